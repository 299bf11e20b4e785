/* The plans of several ranks as one, for devices that share a process.
 *
 * Streams, buffers, views, tasks and posts of rank r follow those of rank r - 1; the inputs and
 * outputs of rank r are slots r * n_inputs ... Nothing orders instructions of different ranks but their
 * communications. Instructions are interleaved, so that all ranks begin at once. Loops stay loops if all ranks
 * have the same ones; otherwise they are unrolled. */
#include "runtime/plan.h"

typedef struct joining {
  rt_plan *p;
  uint32_t instrs, tasks, views, buffers, posts, streams; /* of the ranks before */
} joining;

static void add_views(joining *j, const rt_plan *from) {
  for (uint32_t i = 0; i < from->n_views; i++) {
    rt_view *v = &j->p->views[j->views + i];
    *v = from->views[i];
    v->buffer += j->buffers;
  }
}

static void add_buffers(joining *j, const rt_plan *from, uint32_t rank) {
  for (uint32_t i = 0; i < from->n_buffers; i++) {
    rt_buffer *b = &j->p->buffers[j->buffers + i];
    *b = from->buffers[i];
    if (b->kind == RT_BUFFER_INPUT) b->slot += rank * from->n_inputs;
    if (b->kind == RT_BUFFER_OUTPUT) b->slot += rank * from->n_outputs;
    if (b->kind == RT_BUFFER_POOL) b->offset_bytes += j->p->pool_bytes;
  }
}

static void add_tasks(joining *j, const rt_plan *from) {
  for (uint32_t i = 0; i < from->n_tasks; i++) {
    rt_task *t = &j->p->tasks[j->tasks + i];
    *t = from->tasks[i];
    t->result += j->views;
    uint32_t *more = arena_copy(&j->p->memory, t->more, t->n_more * sizeof *more);
    for (uint32_t k = 0; k < t->n_more; k++) more[k] += j->views;
    t->more = more;
    rt_operand *operands = arena_copy(&j->p->memory, t->operands, t->n_operands * sizeof *operands);
    for (uint32_t k = 0; k < t->n_operands; k++) {
      if (operands[k].kind == RT_OPERAND_VIEW) operands[k].view += j->views;
    }
    t->operands = operands;
  }
}

static void add_posts(joining *j, const rt_plan *from) {
  for (uint32_t i = 0; i < from->n_posts; i++) {
    rt_post *q = &j->p->posts[j->posts + i];
    *q = from->posts[i];
    if (q->in != RT_NO_VIEW) q->in += j->views;
    if (q->out != RT_NO_VIEW) q->out += j->views;
    if (q->root_view) q->root_view += j->views;
    if (q->before != RT_NO_POST) q->before += j->posts;
    if (q->again != RT_NO_POST) q->again += j->posts;
    if (q->next != RT_NO_POST) q->next += j->posts;
  }
}

static rt_instr renumbered(const joining *j, rt_instr i) {
  i.stream = (uint16_t)(i.stream + j->streams);
  switch ((rt_instr_kind)i.kind) {
  case RT_LAUNCH: i.task += j->tasks; break;
  case RT_WAIT: i.other = (uint16_t)(i.other + j->streams); break;
  case RT_POST:
  case RT_JOIN: i.task += j->posts; break;
  }
  return i;
}

/* ---- instructions ---- */
/* A part of the plans that is interleaved: what is between two loops, or a loop. */
typedef struct part {
  uint32_t *begin, *end; /* by rank */
} part;

static void next_part(part *x, rt_plan *const *plans, uint32_t n, uint32_t number) {
  for (uint32_t r = 0; r < n; r++) {
    const rt_loop *l = number / 2 < plans[r]->n_loops ? &plans[r]->loops[number / 2] : NULL;
    x->begin[r] = x->end[r];
    x->end[r] = !l ? plans[r]->n_instrs : number % 2 ? l->first + l->n : l->first;
  }
}

/* Adds an instruction of each rank in turn. */
static void add_part(joining *all, const joining *at, rt_plan *const *plans, uint32_t n,
                     const part *x, uint32_t **moved) {
  rt_plan *p = all->p;
  uint32_t most = 0;
  for (uint32_t r = 0; r < n; r++)
    if (x->end[r] - x->begin[r] > most) most = x->end[r] - x->begin[r];
  for (uint32_t i = 0; i <= most; i++)
    for (uint32_t r = 0; r < n; r++) {
      uint32_t from = x->begin[r] + i;
      if (from <= x->end[r]) moved[r][from] = all->instrs;
      if (from < x->end[r]) p->instrs[all->instrs++] = renumbered(&at[r], plans[r]->instrs[from]);
    }
}

/* Moves the begin and end of buffers, which are instruction numbers. An end at a loop stays at the loop: not
 * in it, and not past its end. */
static void move_buffers(const joining *at, const rt_plan *from, const uint32_t *moved) {
  rt_plan *p = at->p;
  for (uint32_t i = 0; i < from->n_buffers; i++) {
    rt_buffer *b = &p->buffers[at->buffers + i];
    uint32_t freed_at = b->freed_at;
    b->allocated_at = moved[b->allocated_at];
    if (freed_at != UINT32_MAX) b->freed_at = moved[freed_at];
    for (uint32_t k = 0; k < from->n_loops; k++) {
      const rt_loop *l = &from->loops[k];
      if (freed_at == l->first) b->freed_at = p->loops[k].first;
      if (freed_at == l->first + l->n) b->freed_at = p->loops[k].first + p->loops[k].n;
    }
  }
}

static void add_instrs(joining *all, const joining *at, rt_plan *const *plans, uint32_t n) {
  rt_plan *p = all->p;
  uint32_t **moved = ARENA_ARRAY(&p->memory, n, uint32_t *), n_loops = plans[0]->n_loops;
  part x = {ARENA_ARRAY(&p->memory, n, uint32_t), ARENA_ARRAY(&p->memory, n, uint32_t)};
  for (uint32_t r = 0; r < n; r++)
    moved[r] = ARENA_ARRAY(&p->memory, plans[r]->n_instrs + 1, uint32_t);
  p->loops = ARENA_ARRAY(&p->memory, n_loops, rt_loop);
  for (uint32_t k = 0; k <= 2 * n_loops; k++) {
    uint32_t first = all->instrs;
    next_part(&x, plans, n, k);
    add_part(all, at, plans, n, &x, moved);
    if (k % 2)
      p->loops[p->n_loops++] = (rt_loop){first, all->instrs - first, plans[0]->loops[k / 2].times};
  }
  for (uint32_t r = 0; r < n; r++) move_buffers(&at[r], plans[r], moved[r]);
}

static void count(rt_plan *p, const rt_plan *from) {
  p->n_instrs += from->n_instrs;
  p->n_tasks += from->n_tasks;
  p->n_views += from->n_views;
  p->n_buffers += from->n_buffers;
  p->n_posts += from->n_posts;
  p->n_streams += from->n_streams;
  p->n_inputs += from->n_inputs;
  p->n_outputs += from->n_outputs;
}

typedef struct join_call {
  rt_plan *p;
  rt_plan *const *plans;
  uint32_t n;
} join_call;

static status join_guarded(void *context) {
  join_call *c = context;
  rt_plan *p = c->p;
  arena *memory = &p->memory;
  for (uint32_t r = 0; r < c->n; r++) count(p, c->plans[r]);
  if (p->n_streams > RT_MAX_STREAMS)
    return fail(STATUS_BAD_USAGE,
                "%u devices with all their streams make %u streams; %d are possible", c->n,
                p->n_streams, RT_MAX_STREAMS);
  p->instrs = ARENA_ARRAY(memory, p->n_instrs, rt_instr);
  p->tasks = ARENA_ARRAY(memory, p->n_tasks, rt_task);
  p->views = ARENA_ARRAY(memory, p->n_views, rt_view);
  p->buffers = ARENA_ARRAY(memory, p->n_buffers, rt_buffer);
  p->posts = ARENA_ARRAY(memory, p->n_posts, rt_post);
  p->first_stream = ARENA_ARRAY(memory, c->n + 1, uint32_t);
  p->first_buffer = ARENA_ARRAY(memory, c->n + 1, uint32_t);
  joining j = {.p = p}, *at = ARENA_ARRAY(memory, c->n, joining);
  for (uint32_t r = 0; r < c->n; r++) {
    const rt_plan *from = c->plans[r];
    at[r] = j;
    p->first_stream[r] = j.streams;
    p->first_buffer[r] = j.buffers;
    add_views(&j, from);
    add_buffers(&j, from, r);
    add_tasks(&j, from);
    add_posts(&j, from);
    p->pool_bytes += from->pool_bytes;
    j.tasks += from->n_tasks;
    j.views += from->n_views;
    j.buffers += from->n_buffers;
    j.posts += from->n_posts;
    j.streams += from->n_streams;
  }
  p->first_stream[c->n] = j.streams;
  p->first_buffer[c->n] = j.buffers;
  p->n_ranks = c->n;
  add_instrs(&j, at, c->plans, c->n);
  return STATUS_OK;
}

/* ---- loops ---- */
static bool same_loops(const rt_plan *a, const rt_plan *b) {
  bool same = a->n_loops == b->n_loops;
  for (uint32_t k = 0; same && k < a->n_loops; k++) same = a->loops[k].times == b->loops[k].times;
  return same;
}

/* Replaces plans with loops by unrolled ones, which `kept` lists. */
static status unroll_all(rt_plan **plans, uint32_t n, const allocator *memory, rt_plan **kept) {
  for (uint32_t r = 0; r < n; r++) {
    rt_plan *unrolled;
    if (!plans[r]->n_loops) continue;
    TRY(rt_plan_unroll(plans[r], memory, &unrolled));
    unrolled->kept = *kept;
    *kept = plans[r] = unrolled;
  }
  return STATUS_OK;
}

static status join(rt_plan *const *plans, uint32_t n, const allocator *memory, rt_plan **result) {
  rt_plan *p = memory_alloc(memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (rt_plan){.host = plans[0]->host, .seed = plans[0]->seed};
  p->unrolled = plans[0]->unrolled;
  p->n_unrolled = plans[0]->n_unrolled;
  arena_init(&p->memory, memory);
  join_call c = {p, plans, n};
  status st = memory_guard(join_guarded, &c);
  if (st == STATUS_OK) *result = p;
  else rt_plan_destroy(p);
  return st;
}

static status join_unrolled(rt_plan *const *plans, uint32_t n, const allocator *memory,
                            rt_plan **result) {
  rt_plan *kept = NULL, **list = memory_alloc(memory, n * sizeof *list);
  if (!list) return STATUS_OUT_OF_MEMORY;
  for (uint32_t r = 0; r < n; r++) list[r] = plans[r];
  status st = unroll_all(list, n, memory, &kept);
  if (st == STATUS_OK) st = join(list, n, memory, result);
  if (st == STATUS_OK) (*result)->kept = kept;
  else rt_plan_destroy(kept);
  memory_free(memory, list);
  return st;
}

status rt_plan_join(rt_plan *const *plans, uint32_t n, const allocator *memory, rt_plan **result) {
  check(n > 0);
  bool same = true;
  for (uint32_t r = 1; r < n && same; r++) same = same_loops(plans[0], plans[r]);
  return same ? join(plans, n, memory, result) : join_unrolled(plans, n, memory, result);
}
