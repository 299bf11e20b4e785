#include "runtime/lives.h"

#include <string.h>

typedef struct finder {
  rt_lives *l;
  uint32_t n_streams;
  uint32_t *
      clocks; /* by stream and stream: the position of the second that the first is ordered after */
  uint32_t *positions; /* by stream */
  const rt_loop *loop; /* the loop that is walked; NULL: none */
  bool second;         /* for the second time */
  rt_life *repeated;   /* by buffer: its life then */
} finder;

int64_t rt_pool_bytes(int64_t size_bytes) {
  int64_t size = size_bytes > 0 ? size_bytes : 1;
  return (size + RT_POOL_ALIGN - 1) / RT_POOL_ALIGN * RT_POOL_ALIGN;
}

/* A buffer that a loop touches is in use in all repetitions. */
static void extend(const rt_loop *loop, rt_life *life) {
  if (life->first > loop->first) life->first = loop->first;
  life->end = loop->first + loop->n;
}

/* On each stream only the first access counts for `known`, because it knows least. */
static void touch(finder *f, uint32_t view, uint32_t instr, uint32_t stream) {
  rt_lives *l = f->l;
  uint32_t buffer = l->plan->views[view].buffer, n = f->n_streams;
  rt_buffer_kind kind = l->plan->buffers[buffer].kind;
  if (kind == RT_BUFFER_INPUT) return;
  bool own = f->loop && l->loop_of[buffer], again = own && f->second;
  rt_life *life = again ? &f->repeated[buffer] : &l->of[buffer];
  uint32_t *last = again ? &l->later[buffer * n] : &l->last[buffer * n];
  uint32_t *known = again ? &l->again[buffer * n] : &l->known[buffer * n];
  const uint32_t *clock = &f->clocks[stream * n];
  if (!life->touched) *life = (rt_life){kind == RT_BUFFER_POOL, true, instr, instr};
  for (uint32_t s = 0; s < n && last[stream] == 0; s++) {
    uint32_t seen = s == stream ? f->positions[s] - 1 : clock[s];
    if (life->end == life->first || seen < known[s]) known[s] = seen;
  }
  life->end = instr + 1;
  last[stream] = f->positions[stream];
  if (f->loop) l->in_loop[buffer] = true;
  if (f->loop && !own) extend(f->loop, life);
}

static void touch_post(finder *f, const rt_post *p, uint32_t instr, uint32_t stream) {
  if (p->in != RT_NO_VIEW) touch(f, p->in, instr, stream);
  if (p->out != RT_NO_VIEW) touch(f, p->out, instr, stream);
  if (p->root_view) touch(f, p->root_view - 1, instr, stream);
}

static void touch_task(finder *f, const rt_task *t, uint32_t instr, uint32_t stream) {
  for (uint32_t k = 0; k < rt_task_n_results(t); k++) touch(f, rt_task_result(t, k), instr, stream);
  for (uint32_t k = 0; k < t->n_operands; k++)
    if (t->operands[k].kind == RT_OPERAND_VIEW) touch(f, t->operands[k].view, instr, stream);
}

static void wait_for(finder *f, uint32_t stream, uint32_t other) {
  uint32_t *clock = &f->clocks[stream * f->n_streams];
  const uint32_t *seen = &f->clocks[other * f->n_streams];
  for (uint32_t s = 0; s < f->n_streams; s++)
    if (seen[s] > clock[s]) clock[s] = seen[s];
}

static void walk(finder *f, uint32_t first, uint32_t end) {
  const rt_plan *plan = f->l->plan;
  for (uint32_t i = first; i < end; i++) {
    const rt_instr *instr = &plan->instrs[i];
    uint32_t s = instr->stream;
    if (instr->kind == RT_WAIT) {
      wait_for(f, s, instr->other);
      continue;
    }
    f->clocks[s * f->n_streams + s] = ++f->positions[s];
    if (instr->kind == RT_LAUNCH) touch_task(f, &plan->tasks[instr->task], i, s);
    else touch_post(f, &plan->posts[instr->task], i, s);
  }
}

static void walk_all(finder *f) {
  const rt_plan *plan = f->l->plan;
  uint32_t at = 0;
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    walk(f, at, l->first);
    f->loop = l;
    for (uint32_t time = 0; time < 2; time++) {
      f->second = time == 1;
      walk(f, l->first, l->first + l->n);
    }
    f->loop = NULL;
    at = l->first + l->n;
  }
  walk(f, at, plan->n_instrs);
}

static bool is_of(const rt_loop *l, const rt_buffer *b) {
  return b->kind == RT_BUFFER_POOL && b->allocated_at >= l->first && b->freed_at <= l->first + l->n;
}

static void find_loops(finder *f, arena *memory) {
  rt_lives *l = f->l;
  const rt_plan *plan = l->plan;
  size_t n = plan->n_buffers, all = n * plan->n_streams;
  l->in_loop = ARENA_ARRAY(memory, n + 1, bool);
  l->loop_of = ARENA_ARRAY(memory, n + 1, uint32_t);
  l->later = ARENA_ARRAY(memory, all + 1, uint32_t);
  l->again = ARENA_ARRAY(memory, all + 1, uint32_t);
  f->repeated = ARENA_ARRAY(memory, n + 1, rt_life);
  for (uint32_t b = 0; b < n; b++)
    for (uint32_t k = 0; k < plan->n_loops && !l->loop_of[b]; k++)
      if (is_of(&plan->loops[k], &plan->buffers[b])) l->loop_of[b] = k + 1;
}

void rt_lives_find(const rt_plan *plan, arena *memory, rt_lives *result) {
  size_t n = plan->n_streams, all = plan->n_buffers * n;
  *result = (rt_lives){.plan = plan};
  result->of = ARENA_ARRAY(memory, plan->n_buffers + (size_t)1, rt_life);
  result->last = ARENA_ARRAY(memory, all + 1, uint32_t);
  result->known = ARENA_ARRAY(memory, all + 1, uint32_t);
  finder f = {.l = result, .n_streams = plan->n_streams};
  f.clocks = ARENA_ARRAY(memory, n * n, uint32_t);
  f.positions = ARENA_ARRAY(memory, n, uint32_t);
  if (plan->n_loops) find_loops(&f, memory);
  walk_all(&f);
  uint32_t busy = 0;
  for (uint32_t s = 0; s < plan->n_streams; s++) busy += f.positions[s] > 0;
  result->in_order = busy <= 1;
}

/* What has been found in one repetition holds in all of them. */
static bool stays_before(const rt_lives *l, uint32_t a, uint32_t b) {
  uint32_t n = l->plan->n_streams;
  bool of_one = l->loop_of[a] && l->loop_of[a] == l->loop_of[b];
  for (uint32_t s = 0; s < n; s++) {
    if (of_one && l->last[b * n + s] > l->again[a * n + s]) return false;
    if (!of_one && l->later[a * n + s] > l->known[b * n + s]) return false;
  }
  return true;
}

bool rt_lives_before(const rt_lives *l, uint32_t a, uint32_t b) {
  uint32_t n = l->plan->n_streams;
  const uint32_t *last = &l->last[a * n], *known = &l->known[b * n];
  if (l->of[a].end > l->of[b].first) return false;
  if (l->in_order) return true;
  for (uint32_t s = 0; s < n; s++)
    if (last[s] > known[s]) return false;
  return !l->loop_of || stays_before(l, a, b);
}

void rt_lives_merge(const rt_lives *l, uint32_t a, uint32_t b) {
  uint32_t n = l->plan->n_streams;
  for (uint32_t s = 0; s < n; s++)
    if (l->last[b * n + s] > l->last[a * n + s]) l->last[a * n + s] = l->last[b * n + s];
  if (l->of[b].end > l->of[a].end) l->of[a].end = l->of[b].end;
  l->of[b].used = false;
}

int64_t rt_lives_peak(const rt_lives *l, arena *memory, uint32_t *at) {
  const rt_plan *plan = l->plan;
  int64_t *change = ARENA_ARRAY(memory, plan->n_instrs + (size_t)1, int64_t), now = 0, peak = 0;
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    if (!l->of[b].used) continue;
    change[l->of[b].first] += rt_pool_bytes(plan->buffers[b].size_bytes);
    change[l->of[b].end] -= rt_pool_bytes(plan->buffers[b].size_bytes);
  }
  *at = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    now += change[i];
    if (now <= peak) continue;
    peak = now;
    *at = i;
  }
  return peak;
}
