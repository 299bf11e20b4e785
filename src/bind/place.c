/* Memory of the pool, planned over the whole program.
 *
 * While a program is bound its buffers are placed one by one, without knowing what comes (pool.h). When all
 * is known they are placed again, the largest first, each at the lowest place where no buffer is that may be in use
 * at the same time: of two that share bytes, every access to the one is ordered before every access to the other.
 *
 * If that leaves too many holes, those that came to lie too high are placed first, and so on, a few times.
 *
 * Before that, results that can be where an operand is are put there: a task computes it element by element, reads
 * the operand as the result is written, and nothing needs the operand afterwards.
 *
 *   y <- gelu(x); dealloc x          ⇒   x <- gelu(x), and what was in y is in x
 *
 * Values whose last use is before an output is written may be in its memory (lend.h). The new places are kept only
 * if they take less memory than the first ones. */
#include <string.h>

#include "base/table.h"
#include "bind/internal.h"
#include "bind/lend.h"
#include "runtime/lives.h"

/* Beyond these, comparing pairs of buffers takes too long: some ms. */
enum { MOST_BUFFERS = 2048, MOST_STEPS = 4 * 1000 * 1000, SPAN = 32 };
/* Other orders are tried while more than 1/HOLES of the bytes in use is lost between buffers. */
enum { HOLES = 64, MOST_TRIES = 16 };
/* With at least so many buffers, those that take turns at one place (chains) are placed as one. A turn that
 * begins more than LONGEST_GAP instructions after the one before it does not count: others could use the
 * place in between. */
enum { MANY_BUFFERS = 256, LONGEST_GAP = 4 * SPAN };

typedef VEC(uint32_t) placed_list;

typedef struct placer {
  rt_plan *plan;
  arena *memory;
  rt_lives lives;
  uint32_t *moved; /* by buffer: the one that it became a part of, or itself */
  bool folds_in_place;
  bind_loan *loans;   /* by buffer: where it is in an output; NULL: none is */
  int64_t *offset;    /* by buffer */
  int64_t *bytes;     /* by buffer: in the pool */
  uint32_t *order;    /* buffers that are placed, the largest first */
  uint32_t *conflict; /* of the one that is placed now, by offset */
  uint32_t n, steps;
  int64_t size_bytes; /* of the pool */
  /* By buffer: the first of those that it takes turns with (NULL: each is placed by itself), and its own life; of the
   * first, `lives` has that of all. */
  uint32_t *chain;
  rt_life *alone;
  /* Of a plan in order: buffers that are placed, by spans of instructions that they live in. */
  placed_list *spans;
  uint32_t *seen; /* by buffer: the last one that was compared with it, + 1 */
} placer;

/* ---- results where an operand is ---- */
static uint32_t root(const placer *p, uint32_t buffer) {
  while (p->moved[buffer] != buffer) buffer = p->moved[buffer];
  return buffer;
}

static bool is_pool(const placer *p, uint32_t buffer) {
  return p->plan->buffers[buffer].kind == RT_BUFFER_POOL;
}

/* What a loop touches stays where it is: the next repetition would have to come after it. */
static bool is_looped(const placer *p, uint32_t buffer) {
  return p->lives.in_loop && p->lives.in_loop[buffer];
}

static bool is_whole(const placer *p, const rt_view *v) {
  int64_t bytes = (int64_t)ir_dtype_size_bytes(v->dtype);
  for (uint32_t d = 0; d < v->rank; d++) bytes *= v->extents[d];
  return v->offset_bytes == 0 && bytes == p->plan->buffers[v->buffer].size_bytes;
}

/* Is element i of both at the same place, for all i? */
static bool same_places(const rt_view *a, const rt_view *b) {
  if (a->rank != b->rank || ir_dtype_size_bytes(a->dtype) != ir_dtype_size_bytes(b->dtype))
    return false;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->extents[d] != b->extents[d] || (a->extents[d] > 1 && a->strides[d] != b->strides[d]))
      return false;
  return true;
}

/* A copy does not count: onto itself it would write what was read, and hide that something is out of order. */
static bool is_elementwise(const placer *p, const rt_task *t, uint32_t operand) {
  const rt_body *b = t->body;
  if (!b) return t->code != IR_OP_SET && t->n_more == 0 && ir_op_is_elementwise(t->code);
  for (uint32_t i = 0; i < b->n_steps && !p->folds_in_place; i++)
    if (!ir_op_is_elementwise(b->steps[i].code)) return false;
  return rt_body_is_sweep(b) && rt_body_in_place(b, operand);
}

/* Is the task the last to access the operand's buffer, and does it read that through this operand only? */
static bool is_last(const placer *p, const rt_task *t, uint32_t instr, uint32_t operand) {
  const rt_view *x = &p->plan->views[t->operands[operand].view];
  uint32_t buffer = root(p, x->buffer);
  if (!is_pool(p, x->buffer) || p->lives.of[buffer].end != instr + 1) return false;
  for (uint32_t k = 0; k < t->n_operands; k++) {
    if (t->operands[k].kind != RT_OPERAND_VIEW || k == operand) continue;
    const rt_view *other = &p->plan->views[t->operands[k].view];
    if (root(p, other->buffer) != buffer) continue;
    if (!is_whole(p, other) || !same_places(other, x) || !is_elementwise(p, t, k)) return false;
  }
  return true;
}

/* All accesses to the operand but this one are ordered before it, and those to the result after. */
static bool follows(const placer *p, uint32_t stream, uint32_t in, uint32_t out) {
  uint32_t n = p->plan->n_streams;
  const uint32_t *last = &p->lives.last[in * n], *known = &p->lives.known[out * n];
  for (uint32_t s = 0; s < n; s++)
    if (last[s] > known[s] + (s == stream)) return false;
  return true;
}

static bool may_follow(const placer *p, const rt_task *t, uint32_t instr, uint32_t operand,
                       const rt_view *y) {
  if (t->operands[operand].kind != RT_OPERAND_VIEW) return false;
  const rt_view *x = &p->plan->views[t->operands[operand].view];
  uint32_t in = root(p, x->buffer);
  if (is_looped(p, in)) return false;
  return is_last(p, t, instr, operand) && is_whole(p, x) && same_places(x, y) &&
         p->plan->buffers[in].size_bytes == p->plan->buffers[y->buffer].size_bytes &&
         is_elementwise(p, t, operand) && follows(p, p->plan->instrs[instr].stream, in, y->buffer);
}

/* Is another result of the task at that place already? It may be one that nothing reads, which lives no
 * longer than the operand. */
static bool is_taken(const placer *p, const rt_task *t, uint32_t in) {
  for (uint32_t k = 0; k < rt_task_n_results(t); k++)
    if (root(p, p->plan->views[rt_task_result(t, k)].buffer) == in) return true;
  return false;
}

static void put_in_place(placer *p, const rt_task *t, uint32_t instr, uint32_t result) {
  const rt_view *y = &p->plan->views[rt_task_result(t, result)];
  uint32_t out = y->buffer;
  if (is_looped(p, out)) return;
  if (!is_pool(p, out) || p->moved[out] != out || p->lives.of[out].first != instr ||
      !is_whole(p, y))
    return;
  for (uint32_t k = 0; k < t->n_operands; k++) {
    if (!may_follow(p, t, instr, k, y)) continue;
    uint32_t in = root(p, p->plan->views[t->operands[k].view].buffer);
    if (is_taken(p, t, in)) continue;
    p->moved[out] = in;
    rt_lives_merge(&p->lives, in, out);
    return;
  }
}

static void find_in_place(placer *p) {
  for (uint32_t i = 0; i < p->plan->n_instrs; i++) {
    if (p->plan->instrs[i].kind != RT_LAUNCH) continue;
    const rt_task *t = &p->plan->tasks[p->plan->instrs[i].task];
    for (uint32_t k = 0; k < rt_task_n_results(t); k++) put_in_place(p, t, i, k);
  }
}

/* ---- places ---- */
static bool comes_first(const placer *p, uint32_t a, uint32_t b) {
  int64_t x = p->bytes[a], y = p->bytes[b];
  return x != y ? x > y : a < b;
}

/* Shell's sort: no allocation, and the same result everywhere. */
static void sort_by_size(placer *p) {
  for (uint32_t gap = p->n / 2; gap > 0; gap /= 2)
    for (uint32_t i = gap; i < p->n; i++) {
      uint32_t b = p->order[i], k = i;
      for (; k >= gap && comes_first(p, b, p->order[k - gap]); k -= gap)
        p->order[k] = p->order[k - gap];
      p->order[k] = b;
    }
}

/* May they be in use at the same time? */
static bool meets(const placer *p, uint32_t a, uint32_t b) {
  const rt_life *x = &p->lives.of[a], *y = &p->lives.of[b];
  if (x->end <= y->first && rt_lives_before(&p->lives, a, b)) return false;
  return y->end > x->first || !rt_lives_before(&p->lives, b, a);
}

/* Inserts `other`, which is placed, among the n conflicts by offset. */
static void add_conflict(placer *p, uint32_t n, uint32_t other) {
  uint32_t k = n;
  for (; k > 0 && p->offset[p->conflict[k - 1]] > p->offset[other]; k--)
    p->conflict[k] = p->conflict[k - 1];
  p->conflict[k] = other;
  p->steps += n + 1 - k;
}

/* Collects those placed before that may be in use at the same time, by offset. */
static uint32_t compare_all(placer *p, uint32_t at) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < at; i++)
    if (meets(p, p->order[i], p->order[at])) add_conflict(p, n++, p->order[i]);
  p->steps += at;
  return n;
}

/* The same in a plan in order, where only buffers that live at the same time can be. */
static uint32_t compare_near(placer *p, uint32_t b) {
  const rt_life *life = &p->lives.of[b];
  uint32_t n = 0;
  for (uint32_t s = life->first / SPAN; s <= (life->end - 1) / SPAN; s++) {
    placed_list *near = &p->spans[s];
    for (uint32_t k = 0; k < near->len; k++) {
      uint32_t other = near->data[k];
      if (p->seen[other] != b + 1 && meets(p, other, b)) add_conflict(p, n++, other);
      p->seen[other] = b + 1;
    }
    p->steps += near->len + 1;
    vec_push(p->memory, near, b);
    p->seen[b] = b + 1;
  }
  return n;
}

static uint32_t find_conflicts(placer *p, uint32_t at) {
  return p->spans ? compare_near(p, p->order[at]) : compare_all(p, at);
}

static void place_one(placer *p, uint32_t at) {
  uint32_t b = p->order[at], n = find_conflicts(p, at);
  int64_t size = p->bytes[b], end = 0;
  for (uint32_t k = 0; k < n; k++) {
    uint32_t other = p->conflict[k];
    if (p->offset[other] - end >= size) break;
    int64_t after = p->offset[other] + p->bytes[other];
    if (after > end) end = after;
  }
  p->offset[b] = end;
  if (end + size > p->size_bytes) p->size_bytes = end + size;
}

/* Places all in this order; false: it takes too long. */
static bool place_all(placer *p) {
  uint32_t n_spans = p->spans ? p->plan->n_instrs / SPAN + 1 : 0;
  for (uint32_t s = 0; s < n_spans; s++) p->spans[s].len = 0;
  for (uint32_t i = 0; i < p->n; i++) p->seen[p->order[i]] = 0;
  p->size_bytes = 0;
  for (uint32_t i = 0; i < p->n && p->steps <= MOST_STEPS; i++) place_one(p, i);
  return p->steps <= MOST_STEPS;
}

static void sort_all(placer *p) {
  for (uint32_t b = 0; b < p->plan->n_buffers; b++) {
    p->bytes[b] = rt_pool_bytes(p->plan->buffers[b].size_bytes);
    if (p->lives.of[b].used) p->order[p->n++] = b;
  }
  sort_by_size(p);
}

/* Those that end above `goal_bytes` found no better place after the others: they come first. */
static void put_high_first(placer *p, int64_t goal_bytes) {
  uint32_t n_high = 0, n_low = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    uint32_t b = p->order[i];
    if (p->offset[b] + p->bytes[b] > goal_bytes) p->order[n_high++] = b;
    else p->conflict[n_low++] = b;
  }
  for (uint32_t i = 0; i < n_low; i++) p->order[n_high + i] = p->conflict[i];
}

/* Places all, in several orders where the first one leaves too many holes. False: it takes too long. */
static bool place_well(placer *p, int64_t live_bytes) {
  int64_t *best = p->offset, goal_bytes = live_bytes + live_bytes / HOLES, best_bytes;
  sort_all(p);
  if (!place_all(p)) return false;
  best_bytes = p->size_bytes;
  p->offset = ARENA_ARRAY(p->memory, p->plan->n_buffers, int64_t);
  memcpy(p->offset, best, p->plan->n_buffers * sizeof *best);
  for (uint32_t k = 0; k < MOST_TRIES && best_bytes > goal_bytes; k++) {
    put_high_first(p, goal_bytes);
    if (!place_all(p)) break;
    if (p->size_bytes >= best_bytes) continue;
    best_bytes = p->size_bytes;
    memcpy(best, p->offset, p->plan->n_buffers * sizeof *best);
  }
  p->offset = best;
  p->size_bytes = best_bytes;
  return true;
}

/* ---- chains ---- */
static uint64_t place_key(const rt_plan *plan, uint32_t buffer) {
  const rt_buffer *b = &plan->buffers[buffer];
  return hash_mix((uint64_t)b->offset_bytes, (uint64_t)b->size_bytes);
}

/* Did they have one place while the program was bound, one right after the other? */
static bool takes_turns(const placer *p, uint32_t first, uint32_t b) {
  const rt_buffer *x = &p->plan->buffers[first], *y = &p->plan->buffers[b];
  return x->offset_bytes == y->offset_bytes && x->size_bytes == y->size_bytes &&
         p->lives.of[b].first <= p->lives.of[first].end + LONGEST_GAP &&
         rt_lives_before(&p->lives, first, b);
}

/* The iterations of a loop use their buffers in turns. On several streams each buffer would be compared with
 * nearly all others, without saving memory. */
static void find_chains(placer *p) {
  uint32_t n = p->plan->n_buffers;
  map last; /* place -> the first of the chain there + 1 */
  if (n < MANY_BUFFERS || p->lives.in_order) return;
  map_init(&last, p->memory);
  p->chain = ARENA_ARRAY(p->memory, n, uint32_t);
  p->alone = arena_copy(p->memory, p->lives.of, n * sizeof *p->alone);
  for (uint32_t b = 0; b < n; b++) {
    uint64_t key = place_key(p->plan, b);
    p->chain[b] = b;
    if (!p->lives.of[b].used || is_looped(p, b)) continue;
    uint32_t first = map_get(&last, key, 0);
    if (first && takes_turns(p, first - 1, b)) {
      p->chain[b] = first - 1;
      rt_lives_merge(&p->lives, first - 1, b);
    } else map_put(&last, key, b + 1);
  }
}

/* Gives each buffer the place of its chain, and its own life again. */
static void end_chains(placer *p) {
  for (uint32_t b = 0; p->chain && b < p->plan->n_buffers; b++) {
    p->offset[b] = p->offset[p->chain[b]];
    p->lives.of[b] = p->alone[b];
  }
}

/* ---- the plan ---- */
static void have_from(rt_buffer *output, uint32_t instr) {
  if (instr < output->allocated_at) output->allocated_at = instr;
}

/* Buffers live from their first access to their last: of those that share bytes, one ends before the other
 * begins. A buffer that became part of another one has no bytes. */
static void keep(const placer *p) {
  rt_plan *plan = p->plan;
  for (uint32_t v = 0; v < plan->n_views; v++) {
    uint32_t in = root(p, plan->views[v].buffer);
    const bind_loan *loan = p->loans && p->loans[in].from != BIND_NO_LOAN ? &p->loans[in] : NULL;
    plan->views[v].buffer = loan ? loan->from : in;
    if (loan) plan->views[v].offset_bytes += loan->at;
  }
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    rt_buffer *buffer = &plan->buffers[b];
    const rt_life *life = &p->lives.of[b];
    bool lent = p->loans && p->loans[b].from != BIND_NO_LOAN;
    if (lent) have_from(&plan->buffers[p->loans[b].from], life->first);
    if (buffer->kind != RT_BUFFER_POOL) continue;
    buffer->offset_bytes = p->offset[b];
    if (!life->used) buffer->size_bytes = 0;
    buffer->allocated_at = life->first;
    buffer->freed_at = life->used ? life->end : life->first;
  }
  plan->pool_bytes = p->size_bytes;
}

void bind_place(binder *b) {
  rt_plan *plan = b->plan;
  uint32_t n = plan->n_buffers, at;
  if (n == 0 || n > MOST_BUFFERS || plan->pool_bytes == 0) return;
  placer p = {.plan = plan, .memory = &b->scratch, .folds_in_place = b->folds_in_place};
  rt_lives_find(plan, p.memory, &p.lives);
  p.moved = ARENA_ARRAY(p.memory, n, uint32_t);
  for (uint32_t i = 0; i < n; i++) p.moved[i] = i;
  find_in_place(&p);
  if (b->lends) p.loans = bind_lend(plan, &p.lives, p.moved, b->donated, p.memory);
  int64_t live_bytes = rt_lives_peak(&p.lives, p.memory, &at);
  if (plan->pool_bytes <= live_bytes) return;
  find_chains(&p);
  p.offset = ARENA_ARRAY(p.memory, n, int64_t);
  p.bytes = ARENA_ARRAY(p.memory, n, int64_t);
  p.order = ARENA_ARRAY(p.memory, n, uint32_t);
  p.conflict = ARENA_ARRAY(p.memory, n, uint32_t);
  p.seen = ARENA_ARRAY(p.memory, n, uint32_t);
  if (p.lives.in_order) p.spans = ARENA_ARRAY(p.memory, plan->n_instrs / SPAN + 1, placed_list);
  /* mutant: plan_not_placed */
  if (!place_well(&p, live_bytes) || p.size_bytes >= plan->pool_bytes) return;
  end_chains(&p);
  keep(&p);
}
