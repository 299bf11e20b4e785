/* What the checker must find, from the definitions alone: byte by byte and pair by pair. */
#ifndef WEIR_TESTS_UNIT_CHECK_ORACLE_H
#define WEIR_TESTS_UNIT_CHECK_ORACLE_H

#include "check_kit.h"

enum {
  MAX_INSTRS = 160,
  MAX_BUFFERS = 16,
  MEMORIES = 4,
  MEMORY_BYTES = 128,
  BYTES = MEMORIES * MEMORY_BYTES
};

typedef struct byte_set {
  bool has[BYTES];
  bool empty, outside, shared; /* shared: two elements have a byte in common */
} byte_set;

typedef struct verdict {
  bool race[MAX_INSTRS][MAX_INSTRS];     /* a < b conflict and are not ordered */
  bool at[CHECK_KIND_COUNT][MAX_INSTRS]; /* by instruction, buffer or stream */
  bool passes;
} verdict;

/* Node 2 i is instruction i, the end of the program one more of stream 0; node 2 i + 1 is the
 * communication that instruction i posts. Order goes with these numbers. */
static bool before[2 * MAX_INSTRS + 1][2 * MAX_INSTRS + 1];

static bool is_post(uint32_t instr) { return plan.instrs[instr].kind == RT_POST; }
static uint32_t node_of(uint32_t instr) { return 2 * instr + is_post(instr); }

/* Where a post stands; CHECK_NONE: nowhere. */
static uint32_t oracle_post(uint32_t post) {
  for (uint32_t i = 0; i < plan.n_instrs; i++)
    if (is_post(i) && plan.instrs[i].task == post) return i;
  return CHECK_NONE;
}

static void oracle_posts(uint32_t skip) {
  for (uint32_t j = 0; j < plan.n_instrs; j++) {
    const rt_instr *instr = &plan.instrs[j];
    uint32_t first = CHECK_NONE;
    if (is_post(j)) {
      before[2 * j][2 * j + 1] = true;
      if (plan.posts[instr->task].before != RT_NO_POST)
        first = oracle_post(plan.posts[instr->task].before);
    }
    if (first < j) before[2 * first][2 * j] = true;
    if (instr->kind == RT_JOIN && j != skip) before[2 * oracle_post(instr->task) + 1][2 * j] = true;
  }
}

static void oracle_close(uint32_t n) {
  for (uint32_t k = 0; k <= n; k++) {
    if (k < n && k % 2 && !is_post(k / 2)) continue;
    for (uint32_t i = 0; i < k; i++)
      for (uint32_t j = k + 1; j <= n && before[i][k]; j++)
        if (before[k][j]) before[i][j] = true;
  }
}

/* Literally plan.h: the order of a stream, what waits, posts and joins say, and what follows. */
static void oracle_order(uint32_t skip) {
  uint32_t n = plan.n_instrs;
  memset(before, 0, sizeof before);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = i + 1; j <= n; j++)
      before[2 * i][2 * j] = plan.instrs[i].stream == (j == n ? 0 : plan.instrs[j].stream);
  for (uint32_t w = 0; w < n; w++) {
    if (plan.instrs[w].kind != RT_WAIT || w == skip) continue;
    for (uint32_t i = 0; i < w; i++)
      if (plan.instrs[i].stream == plan.instrs[w].other) before[2 * i][2 * w] = true;
  }
  oracle_posts(skip);
  oracle_close(2 * n);
}

/* Where a buffer's byte lies: the pool, the input, or one of two outputs. */
static int64_t place_of(const rt_buffer *b) {
  if (b->kind == RT_BUFFER_POOL) return b->offset_bytes;
  return b->kind == RT_BUFFER_INPUT ? MEMORY_BYTES : (2 + (int64_t)b->slot) * MEMORY_BYTES;
}

static byte_set oracle_bytes(uint32_t view) {
  const rt_view *v = &plan.views[view];
  const rt_buffer *b = &plan.buffers[v->buffer];
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype), index[IR_MAX_RANK] = {0};
  byte_set set = {0};
  for (uint32_t d = 0; d < v->rank; d++) set.empty |= v->extents[d] == 0;
  while (!set.empty) {
    int64_t at = v->offset_bytes;
    for (uint32_t d = 0; d < v->rank; d++) at += index[d] * v->strides[d] * size;
    for (int64_t k = at; k < at + size; k++) {
      if (k < 0 || k >= b->size_bytes) set.outside = true;
      else set.shared |= set.has[place_of(b) + k], set.has[place_of(b) + k] = true;
    }
    uint32_t d = 0;
    while (d < v->rank && ++index[d] == v->extents[d]) index[d++] = 0;
    if (d == v->rank) break;
  }
  if (set.outside) memset(set.has, 0, sizeof set.has);
  return set;
}

static bool meet(const byte_set *a, const byte_set *b) {
  for (uint32_t k = 0; k < BYTES; k++)
    if (a->has[k] && b->has[k]) return true;
  return false;
}

enum { MAX_VIEWS_OF = 2 + RT_MAX_RESULTS };

/* How many of an instruction's views, the last ones, are written. */
static uint32_t n_written(uint32_t instr) {
  if (is_post(instr)) return plan.posts[plan.instrs[instr].task].out != RT_NO_VIEW;
  if (plan.instrs[instr].kind != RT_LAUNCH) return 0;
  return rt_task_n_results(&plan.tasks[plan.instrs[instr].task]);
}

/* Views of an instruction: those that are read first. */
static uint32_t views_of(uint32_t instr, uint32_t views[MAX_VIEWS_OF]) {
  uint32_t n = 0;
  if (is_post(instr)) {
    const rt_post *p = &plan.posts[plan.instrs[instr].task];
    if (p->in != RT_NO_VIEW) views[n++] = p->in;
    if (p->out != RT_NO_VIEW) views[n++] = p->out;
  }
  if (plan.instrs[instr].kind != RT_LAUNCH) return n;
  const rt_task *task = &plan.tasks[plan.instrs[instr].task];
  for (uint32_t k = 0; k < task->n_operands; k++)
    if (task->operands[k].kind == RT_OPERAND_VIEW) views[n++] = task->operands[k].view;
  for (uint32_t k = 0; k < rt_task_n_results(task); k++) views[n++] = rt_task_result(task, k);
  return n;
}

static bool oracle_conflict(uint32_t i, uint32_t j, const byte_set *sets) {
  uint32_t a[MAX_VIEWS_OF], b[MAX_VIEWS_OF], na = views_of(i, a), nb = views_of(j, b);
  for (uint32_t x = 0; x < na; x++)
    for (uint32_t y = 0; y < nb; y++)
      if ((x + n_written(i) >= na || y + n_written(j) >= nb) && meet(&sets[a[x]], &sets[b[y]]))
        return true;
  return false;
}

static bool same_view(const rt_view *a, const rt_view *b) {
  bool same = a->buffer == b->buffer && a->offset_bytes == b->offset_bytes && a->rank == b->rank &&
              ir_dtype_size_bytes(a->dtype) == ir_dtype_size_bytes(b->dtype);
  for (uint32_t d = 0; d < a->rank && same; d++)
    same = a->extents[d] == b->extents[d] && (a->extents[d] == 1 || a->strides[d] == b->strides[d]);
  return same;
}

/* What one instruction does by itself. `written` has one set per buffer. */
static void oracle_task(uint32_t i, const byte_set *sets, byte_set *written, verdict *v) {
  uint32_t views[MAX_VIEWS_OF], n = views_of(i, views), first = n - n_written(i);
  for (uint32_t k = 0; k < n; k++) {
    const rt_view *view = &plan.views[views[k]];
    const rt_buffer *b = &plan.buffers[view->buffer];
    const byte_set *set = &sets[views[k]];
    if (set->outside) v->at[CHECK_BOUNDS][i] = true;
    if (set->outside || set->empty) continue;
    if (i < b->allocated_at) v->at[CHECK_BEFORE_ALLOCATE][i] = true;
    if (i >= b->freed_at && i >= b->allocated_at) v->at[CHECK_AFTER_FREE][i] = true;
    if (k >= first && set->shared) v->at[CHECK_SHARED][i] = true;
    if (k >= first || b->kind == RT_BUFFER_INPUT) continue;
    for (uint32_t c = 0; c < BYTES; c++)
      if (set->has[c] && !written[view->buffer].has[c]) v->at[CHECK_UNWRITTEN][i] = true;
  }
  for (uint32_t w = first; w < n; w++) {
    for (uint32_t k = 0; k < w; k++) {
      const byte_set *a = &sets[views[k]], *b = &sets[views[w]];
      bool in_place = is_post(i) ? memcmp(a->has, b->has, sizeof a->has) == 0
                                 : same_view(&plan.views[views[k]], &plan.views[views[w]]);
      if (!meet(a, b) || (in_place && k < first)) continue;
      v->at[is_post(i) ? CHECK_POST_RULE : k < first ? CHECK_IN_TASK : CHECK_SHARED][i] = true;
    }
  }
  for (uint32_t w = first; w < n; w++)
    for (uint32_t c = 0; c < BYTES; c++)
      if (sets[views[w]].has[c]) written[plan.views[views[w]].buffer].has[c] = true;
}

/* Two posts with the same peers: collectives, sends, or receives. */
static bool same_peers(uint32_t i, uint32_t j) {
  ir_comm_kind a = plan.posts[plan.instrs[i].task].kind, b = plan.posts[plan.instrs[j].task].kind;
  return a == b || (!ir_comm_is_message(a) && !ir_comm_is_message(b));
}

static void oracle_post_order(uint32_t j, verdict *v) {
  uint32_t i = j;
  while (i-- > 0)
    if (is_post(i) && same_peers(i, j) && !v->at[CHECK_POST_RULE][i]) break;
  if (i == UINT32_MAX || plan.instrs[i].stream == plan.instrs[j].stream) return;
  uint32_t p = plan.instrs[j].task;
  while (p != RT_NO_POST && p != plan.instrs[i].task) p = plan.posts[p].before;
  if (p == RT_NO_POST) v->at[CHECK_POST_ORDER][j] = true;
}

/* A buffer goes before anybody has waited. */
static void oracle_freed(uint32_t i, uint32_t skip, verdict *v) {
  uint32_t views[MAX_VIEWS_OF], n = views_of(i, views), join = CHECK_NONE;
  for (uint32_t j = plan.n_instrs; j-- > i;)
    if (plan.instrs[j].kind == RT_JOIN && plan.instrs[j].task == plan.instrs[i].task && j != skip)
      join = j;
  for (uint32_t k = 0; k < n; k++) {
    uint32_t freed = plan.buffers[plan.views[views[k]].buffer].freed_at;
    if (freed > i && freed <= join && freed != UINT32_MAX) v->at[CHECK_FREED_IN_FLIGHT][i] = true;
  }
}

enum { COMMUNICATIONS = 64 }; /* in place of a stream */

static void oracle_end(uint32_t i, verdict *v) {
  if (before[node_of(i)][2 * plan.n_instrs]) return;
  if (is_post(i)) v->at[CHECK_UNJOINED][COMMUNICATIONS] = true;
  else if (plan.instrs[i].kind == RT_LAUNCH) v->at[CHECK_UNJOINED][plan.instrs[i].stream] = true;
}

static void oracle_buffers(const byte_set *written, verdict *v) {
  for (uint32_t i = 0; i < plan.n_buffers; i++) {
    const rt_buffer *b = &plan.buffers[i];
    for (int64_t k = 0; k < b->size_bytes && b->kind == RT_BUFFER_OUTPUT; k++)
      if (!written[i].has[place_of(b) + k]) v->at[CHECK_OUTPUT_UNWRITTEN][i] = true;
    for (uint32_t h = 0; h < i && b->kind == RT_BUFFER_POOL; h++) {
      const rt_buffer *a = &plan.buffers[h];
      bool bytes = a->kind == RT_BUFFER_POOL && a->offset_bytes < b->offset_bytes + b->size_bytes &&
                   b->offset_bytes < a->offset_bytes + a->size_bytes;
      for (uint32_t t = 0; t < plan.n_instrs && bytes; t++)
        if (t >= a->allocated_at && t < a->freed_at && t >= b->allocated_at && t < b->freed_at)
          v->at[CHECK_LAYOUT][i] = true;
    }
  }
}

static bool nothing_found(const verdict *v) {
  for (uint32_t i = 0; i < MAX_INSTRS; i++) {
    for (uint32_t k = 0; k < CHECK_KIND_COUNT; k++)
      if (v->at[k][i]) return false;
    for (uint32_t j = 0; j < MAX_INSTRS; j++)
      if (v->race[i][j]) return false;
  }
  return true;
}

static void oracle(uint32_t skip, const byte_set *sets, verdict *v) {
  static byte_set written[MAX_BUFFERS];
  memset(v, 0, sizeof *v);
  memset(written, 0, sizeof written);
  oracle_order(skip);
  for (uint32_t j = 0; j < plan.n_instrs; j++) {
    for (uint32_t i = 0; i < j; i++)
      v->race[i][j] = !before[node_of(i)][node_of(j)] && oracle_conflict(i, j, sets);
    oracle_task(j, sets, written, v);
    if (is_post(j)) oracle_freed(j, skip, v);
    if (is_post(j) && !v->at[CHECK_POST_RULE][j]) oracle_post_order(j, v);
    oracle_end(j, v);
  }
  oracle_buffers(written, v);
  v->passes = nothing_found(v);
}

#endif
