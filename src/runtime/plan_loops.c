/* Plans with loops, written out: in full, or so far as a proof needs it. */
#include <string.h>

#include "runtime/plan.h"

uint32_t rt_plan_n_done(const rt_plan *plan) {
  uint32_t n = plan->n_instrs;
  for (uint32_t k = 0; k < plan->n_loops; k++) n += plan->loops[k].n * (plan->loops[k].times - 1);
  return n;
}

uint32_t rt_plan_n_launched(const rt_plan *plan) {
  uint32_t n = plan->n_tasks;
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    uint32_t launches = 0;
    for (uint32_t i = l->first; i < l->first + l->n; i++)
      launches += plan->instrs[i].kind == RT_LAUNCH;
    n += launches * (l->times - 1);
  }
  return n;
}

uint32_t rt_plan_nth(const rt_plan *plan, uint32_t number) {
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    const rt_loop *l = &plan->loops[k];
    uint32_t more = l->n * (l->times - 1);
    if (number < l->first + l->n) return number;
    if (number < l->first + l->n + more) return l->first + (number - l->first) % l->n;
    number -= more;
  }
  return number;
}

/* ---- writing out ---- */
typedef struct writing {
  const rt_plan *from;
  rt_plan *to;
  bool shorten, fails; /* fails: a view has too many dimensions */
  const bool *known;   /* by view of `from`; NULL: none is */
  uint32_t *origins;   /* by instruction of `to` */
  /* Of the repetitions that are written now: */
  const rt_loop *loop; /* NULL: none */
  uint32_t turn, n_turns;
  uint32_t *views, *buffers; /* number + 1 in `to`, by that in `from`; 0: not written yet */
  uint32_t *posts;           /* the same, of all repetitions: that of the last one written */
  uint32_t *last_posts;      /* that of the repetition before */
} writing;

/* Repetitions that are written by themselves before others are merged. */
static uint32_t lead_of(const writing *w) { return w->known != NULL; }

static bool is_shortened(const writing *w, const rt_loop *l) {
  return w->shorten && l->times > 3 + lead_of(w);
}

/* Repetitions [turn, turn + n) of the loop that are written as one. */
static uint32_t turns_at(const writing *w, const rt_loop *l, uint32_t turn) {
  return is_shortened(w, l) && turn == lead_of(w) ? l->times - 2 - turn : 1;
}

static uint32_t copies_of(const writing *w, const rt_loop *l) {
  return is_shortened(w, l) ? 3 + lead_of(w) : l->times;
}

static bool in_loop(const rt_loop *l, uint32_t instr) {
  return instr >= l->first && instr < l->first + l->n;
}

/* Buffers of a loop are those that are allocated in it: each repetition has its own. In a plan of several ranks, whose
 * buffers are numbered by rank, all repetitions have the same ones. */
static bool is_local(const writing *w, const rt_buffer *b) {
  return w->loop && w->from->n_ranks <= 1 && b->kind == RT_BUFFER_POOL &&
         in_loop(w->loop, b->allocated_at) && b->freed_at <= w->loop->first + w->loop->n;
}

static uint32_t buffer_of(writing *w, uint32_t buffer) {
  const rt_buffer *b = &w->from->buffers[buffer];
  if (!is_local(w, b)) return buffer;
  if (!w->buffers[buffer]) {
    uint32_t first = w->to->n_instrs; /* where this repetition begins */
    rt_buffer copy = *b;
    copy.allocated_at = first + (b->allocated_at - w->loop->first);
    copy.freed_at = first + (b->freed_at - w->loop->first);
    w->to->buffers[w->to->n_buffers++] = copy;
    w->buffers[buffer] = w->to->n_buffers;
  }
  return w->buffers[buffer] - 1;
}

/* Extends a view to what several repetitions touch, by one more dimension. */
static void extend(writing *w, rt_view *v, int64_t step_bytes) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype), n = w->n_turns;
  if (v->rank == IR_MAX_RANK || step_bytes % size != 0) {
    w->fails = true;
    return;
  }
  int64_t *extents = ARENA_ARRAY(&w->to->memory, v->rank + 1, int64_t);
  int64_t *strides = ARENA_ARRAY(&w->to->memory, v->rank + 1, int64_t);
  memcpy(extents + 1, v->extents, v->rank * sizeof *extents);
  memcpy(strides + 1, v->strides, v->rank * sizeof *strides);
  extents[0] = n;
  strides[0] = (step_bytes < 0 ? -step_bytes : step_bytes) / size;
  if (step_bytes < 0) v->offset_bytes += (n - 1) * step_bytes;
  v->rank++;
  v->extents = extents;
  v->strides = strides;
}

static uint32_t view_of(writing *w, uint32_t view) {
  if (view == RT_NO_VIEW || !w->loop) return view;
  if (w->views[view]) return w->views[view] - 1;
  rt_view v = w->from->views[view];
  int64_t step_bytes = v.step_bytes;
  v.buffer = buffer_of(w, v.buffer);
  v.offset_bytes += step_bytes * w->turn;
  v.step_bytes = 0;
  v.known = w->n_turns > 1 && w->known && w->known[view];
  if (w->n_turns > 1 && step_bytes != 0) extend(w, &v, step_bytes);
  w->to->views[w->to->n_views++] = v;
  w->views[view] = w->to->n_views;
  return w->to->n_views - 1;
}

static uint32_t write_task(writing *w, const rt_task *task) {
  arena *memory = &w->to->memory;
  rt_task t = *task;
  if (w->loop) {
    uint32_t *more = arena_copy(memory, t.more, t.n_more * sizeof *more);
    rt_operand *operands = arena_copy(memory, t.operands, t.n_operands * sizeof *operands);
    t.result = view_of(w, t.result);
    for (uint32_t k = 0; k < t.n_more; k++) more[k] = view_of(w, more[k]);
    for (uint32_t k = 0; k < t.n_operands; k++)
      if (operands[k].kind == RT_OPERAND_VIEW) operands[k].view = view_of(w, operands[k].view);
    t.more = more;
    t.operands = operands;
  }
  w->to->tasks[w->to->n_tasks++] = t;
  return w->to->n_tasks - 1;
}

/* The post of this repetition, or of the last one that was written. One that nothing posts has a number too. */
static uint32_t number_of(writing *w, uint32_t post) {
  if (!w->posts[post]) {
    const rt_post *from = &w->from->posts[post];
    bool here = w->loop && from->loop == w->loop - w->from->loops + 1;
    rt_post p = rt_post_in_turn(from, here ? w->turn : 0);
    p.loop = 0;
    if (w->n_turns == 1) p.to_step = p.from_step = 0;
    p.before = p.again = p.next = RT_NO_POST;
    w->to->posts[w->to->n_posts++] = p;
    w->posts[post] = w->to->n_posts;
  }
  return w->posts[post] - 1;
}

/* What is joined: in a loop perhaps what the repetition before has posted. */
static uint32_t joined_by(writing *w, uint32_t post) {
  uint32_t next = w->from->posts[post].next;
  if (!w->loop || w->turn == 0 || next == RT_NO_POST) return number_of(w, post);
  return w->last_posts[next] ? w->last_posts[next] - 1 : number_of(w, next);
}

static uint32_t write_post(writing *w, uint32_t post) {
  const rt_post *from = &w->from->posts[post];
  bool again = w->loop && w->turn > 0 && from->again != RT_NO_POST;
  uint32_t number = number_of(w, post), before = RT_NO_POST;
  if (again && w->last_posts[from->again]) before = w->last_posts[from->again] - 1;
  else if (again || from->before != RT_NO_POST)
    before = number_of(w, again ? from->again : from->before);
  rt_post *p = &w->to->posts[number];
  p->before = before;
  p->in = view_of(w, p->in);
  p->out = view_of(w, p->out);
  if (p->root_view) p->root_view = view_of(w, p->root_view - 1) + 1;
  p->merged = w->loop && w->n_turns > 1;
  return number;
}

static void write_instrs(writing *w, uint32_t first, uint32_t n) {
  uint32_t at = w->to->n_instrs;
  for (uint32_t i = first; i < first + n; i++) {
    rt_instr instr = w->from->instrs[i];
    if (instr.kind == RT_LAUNCH) instr.task = write_task(w, &w->from->tasks[instr.task]);
    if (instr.kind == RT_POST) instr.task = write_post(w, instr.task);
    if (instr.kind == RT_JOIN) instr.task = joined_by(w, instr.task);
    if (w->origins) w->origins[at] = i;
    w->to->instrs[at++] = instr;
  }
  w->to->n_instrs = at;
}

/* Posts of a loop are numbered anew in each repetition. */
static void forget_posts(writing *w, const rt_loop *l) {
  for (uint32_t i = l->first; i < l->first + l->n; i++) {
    const rt_instr *instr = &w->from->instrs[i];
    if (instr->kind != RT_POST) continue;
    w->last_posts[instr->task] = w->posts[instr->task];
    w->posts[instr->task] = 0;
  }
}

static void write_loop(writing *w, const rt_loop *l) {
  w->loop = l;
  for (w->turn = 0; w->turn < l->times; w->turn += w->n_turns) {
    w->n_turns = turns_at(w, l, w->turn);
    memset(w->views, 0, w->from->n_views * sizeof *w->views);
    memset(w->buffers, 0, w->from->n_buffers * sizeof *w->buffers);
    forget_posts(w, l);
    write_instrs(w, l->first, l->n);
  }
  w->loop = NULL;
}

/* Moves the lifetimes of buffers that are of no loop. In a plan of several ranks, buffers of a loop live as
 * long as the loop. A buffer of a loop that is written out is not used any more. */
static void move_buffers(writing *w) {
  const rt_plan *p = w->from;
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    rt_buffer *buffer = &w->to->buffers[b];
    const rt_buffer *old = &p->buffers[b];
    uint32_t begin_more = 0, end_more = 0;
    for (uint32_t k = 0; k < p->n_loops; k++) {
      const rt_loop *l = &p->loops[k];
      uint32_t more = l->n * (copies_of(w, l) - 1);
      w->loop = l;
      if (is_local(w, old)) {
        buffer->size_bytes = 0;
        buffer->freed_at = buffer->allocated_at;
      } else if (p->n_ranks > 1 && old->kind == RT_BUFFER_POOL && in_loop(l, old->allocated_at) &&
                 old->freed_at <= l->first + l->n) {
        buffer->allocated_at = l->first;
        buffer->freed_at = l->first + l->n;
      }
      if (old->allocated_at >= l->first + l->n) begin_more += more;
      if (buffer->freed_at >= l->first + l->n) end_more += more;
    }
    w->loop = NULL;
    buffer->allocated_at += begin_more;
    if (buffer->freed_at != UINT32_MAX)
      buffer->freed_at = buffer->size_bytes ? buffer->freed_at + end_more : buffer->allocated_at;
  }
}

/* Makes room for as much as there can be. */
static void make_room(writing *w) {
  const rt_plan *p = w->from;
  size_t instrs = p->n_instrs, tasks = p->n_tasks, views = p->n_views, buffers = p->n_buffers;
  size_t posts = 2 * (size_t)p->n_posts;
  for (uint32_t k = 0; k < p->n_loops; k++) {
    const rt_loop *l = &p->loops[k];
    size_t copies = copies_of(w, l), of_loop = 0, launches = 0, operands = 0, n_posts = 0;
    w->loop = l;
    for (uint32_t b = 0; b < p->n_buffers; b++) of_loop += is_local(w, &p->buffers[b]);
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
      n_posts += p->instrs[i].kind == RT_POST;
      if (p->instrs[i].kind != RT_LAUNCH) continue;
      const rt_task *t = &p->tasks[p->instrs[i].task];
      launches++;
      operands += t->n_operands + rt_task_n_results(t);
    }
    instrs += copies * l->n;
    tasks += copies * launches;
    views += copies * (operands + 3 * n_posts);
    posts += copies * n_posts;
    buffers += copies * of_loop;
  }
  w->loop = NULL;
  rt_plan *to = w->to;
  to->instrs = ARENA_ARRAY(&to->memory, instrs, rt_instr);
  to->tasks = ARENA_ARRAY(&to->memory, tasks, rt_task);
  to->views = ARENA_ARRAY(&to->memory, views, rt_view);
  to->buffers = ARENA_ARRAY(&to->memory, buffers, rt_buffer);
  to->posts = ARENA_ARRAY(&to->memory, posts, rt_post);
  w->origins = ARENA_ARRAY(&to->memory, instrs, uint32_t);
  w->views = ARENA_ARRAY(&to->memory, p->n_views, uint32_t);
  w->buffers = ARENA_ARRAY(&to->memory, p->n_buffers, uint32_t);
  w->posts = ARENA_ARRAY(&to->memory, p->n_posts, uint32_t);
  w->last_posts = ARENA_ARRAY(&to->memory, p->n_posts, uint32_t);
}

static status write_guarded(void *context) {
  writing *w = context;
  const rt_plan *p = w->from;
  make_room(w);
  memcpy(w->to->views, p->views, p->n_views * sizeof *p->views);
  memcpy(w->to->buffers, p->buffers, p->n_buffers * sizeof *p->buffers);
  w->to->n_views = p->n_views;
  w->to->n_buffers = p->n_buffers;
  uint32_t at = 0;
  for (uint32_t k = 0; k < p->n_loops; k++) {
    const rt_loop *l = &p->loops[k];
    write_instrs(w, at, l->first - at);
    write_loop(w, l);
    at = l->first + l->n;
  }
  write_instrs(w, at, p->n_instrs - at);
  move_buffers(w);
  return STATUS_OK;
}

static status write_out(writing *w, const allocator *memory, rt_plan **result) {
  rt_plan *to = memory_alloc(memory, sizeof *to);
  if (!to) return STATUS_OUT_OF_MEMORY;
  *to = *w->from;
  arena_init(&to->memory, memory);
  to->n_instrs = to->n_loops = to->n_tasks = to->n_views = to->n_buffers = to->n_posts = 0;
  to->loops = NULL;
  to->kept = NULL;
  to->passed = to->passed_for_all = false;
  w->to = to;
  status st = memory_guard(write_guarded, w);
  if (st != STATUS_OK || w->fails) rt_plan_destroy(to);
  else *result = to;
  return st;
}

status rt_plan_unroll(const rt_plan *plan, const allocator *memory, rt_plan **result) {
  return write_out(&(writing){.from = plan}, memory, result);
}

status rt_plan_shorten(const rt_plan *plan, const bool *known, const allocator *memory,
                       rt_plan **result, const uint32_t **from) {
  writing w = {.from = plan, .shorten = true, .known = known};
  *result = NULL;
  TRY(write_out(&w, memory, result));
  *from = w.origins;
  return STATUS_OK;
}
