/* From a body to tile programs and kernels.
 *
 * Steps that tile programs have no form for run with the kernels of their operations, on values in scratch
 * memory. All others are lowered from the results of the body; where lowering finds that a step must be
 * computed apart (a reduction that is used in another way than a row allows), that step gets memory of its
 * own and a program of its own, and lowering begins again. */
#include "device/cpu/tile/body.h"

#include <string.h>

#include "device/cpu/kernel_epilogue.h"
#include "device/cpu/tile/program.h"
#include "device/cpu/tile/stages.h"

/* How the value of a step is had. */
typedef enum step_mark {
  STEP_INLINE, /* inside the programs that need it */
  STEP_APART,  /* by a program of its own, in memory */
  STEP_KERNEL, /* by the kernel of its operation */
} step_mark;

/* ---- programs as kernels ---- */
/* Its places are its starts. */
typedef struct program_kernel {
  cpu_kernel head;
  const tile_program *program;
} program_kernel;

static status run_part(const cpu_kernel *k, uint32_t part, char *const *starts, char *scratch,
                       char *shared) {
  const tile_program *p = ((const program_kernel *)k)->program;
  int64_t first = 0, end = p->n_units;
  if (k->n_parts > 1) {
    first = p->n_units * part / k->n_parts;
    end = p->n_units * (part + 1) / k->n_parts;
  }
  tile_run(p, first, end, starts, scratch, shared);
  return STATUS_OK;
}

static status finish(const cpu_kernel *k, char *const *starts, char *scratch, char *shared) {
  tile_finish(((const program_kernel *)k)->program, starts, scratch, shared);
  return STATUS_OK;
}

/* Parts of 100 us or so; less than 200 us is not shared. */
static uint32_t parts_of(const tile_program *p) {
  double all_ns = (double)p->n_units * p->unit_ns;
  int64_t parts = all_ns < 200000 ? 1 : (int64_t)(all_ns / 100000);
  if (parts > p->n_units) parts = p->n_units;
  return parts > 4096 ? 4096 : (uint32_t)parts;
}

static cpu_kernel *kernel_of(const tile_program *p, arena *memory) {
  program_kernel *k = ARENA_NEW(memory, program_kernel);
  k->program = p;
  k->head = (cpu_kernel){.n_parts = parts_of(p),
                         .run_part = run_part,
                         .finish = finish,
                         .scratch_bytes = p->scratch_bytes,
                         .shared_bytes = tile_shared_bytes(p),
                         .name = "tiles"};
  return &k->head;
}

/* ---- preparing ---- */
typedef struct planner {
  const rt_plan *plan;
  const rt_task *task;
  const rt_body *body;
  arena *memory, *work;
  bool in_place;
  bool single; /* one operation: in one program or not at all */
  step_mark *marks;
  bool *needed;
  tile_memory *params, **steps;
  rt_plan fake;
  uint32_t *views; /* of steps in memory, in the fake plan */
  tile_stages *stages;
  cpu_kernel *program;      /* made last */
  uint32_t blocked, target; /* the step that a program could not do, and the one it was for */
} planner;

static uint32_t add_view(planner *p, rt_view v) {
  p->fake.views[p->fake.n_views] = v;
  return p->fake.n_views++;
}

static uint32_t result_place(const rt_task *task, uint32_t k) {
  return k == 0 ? 0 : task->n_operands + k;
}

/* The result of the task that the step computes, if it may be computed there at once. */
static uint32_t result_of(const planner *p, uint32_t step) {
  for (uint32_t r = 0; r < p->body->n_results && !p->in_place; r++)
    if (p->body->results[r].kind == RT_VALUE_STEP && p->body->results[r].index == step) return r;
  return UINT32_MAX;
}

/* Memory for the result of a step: that of the task's result, or scratch. */
static void give_memory(planner *p, uint32_t step) {
  const rt_shape *shape = &p->body->steps[step].results[0];
  uint32_t direct = result_of(p, step);
  int64_t *strides = ARENA_ARRAY(p->work, shape->rank + 1, int64_t), n = 1;
  for (uint32_t d = shape->rank; d-- > 0; n *= shape->extents[d]) strides[d] = n;
  rt_view v = {
      .dtype = shape->dtype, .rank = shape->rank, .extents = shape->extents, .strides = strides};
  if (direct != UINT32_MAX) {
    v = p->plan->views[rt_task_result(p->task, direct)];
    p->steps[step][0] = (tile_memory){result_place(p->task, direct), v.strides};
  } else {
    tile_stages *s = p->stages;
    p->steps[step][0] = (tile_memory){s->n_given + s->n_own, strides};
    s->own[s->n_own++] = s->inner_at;
    s->inner_at += tile_aligned((size_t)n * ir_dtype_size_bytes(shape->dtype));
  }
  p->views[step] = add_view(p, v);
}

static rt_operand operand_of(const planner *p, const rt_value *v, uint32_t *place) {
  if (v->kind != RT_VALUE_STEP) return tile_operand(v, 0, 0, place);
  return tile_operand(v, p->views[v->index], p->steps[v->index][0].place, place);
}

static status add_kernel(planner *p, uint32_t step) {
  const rt_step *s = &p->body->steps[step];
  rt_task t = tile_step_task(p->work, s);
  rt_operand *operands = ARENA_ARRAY(p->work, s->n_operands + 1, rt_operand);
  uint32_t *places = ARENA_ARRAY(p->memory, s->n_operands + 1, uint32_t);
  give_memory(p, step);
  for (uint32_t k = 0; k < s->n_operands; k++)
    operands[k] = operand_of(p, &s->operands[k], &places[1 + k]);
  places[0] = p->steps[step][0].place;
  t.operands = operands;
  t.result = p->views[step];
  tile_stage stage = {.n_starts = s->n_operands + 1, .places = places};
  TRY(cpu_kernel_prepare(&p->fake, &t, p->memory, &stage.kernel));
  tile_stages_add(p->stages, stage);
  return STATUS_OK;
}

/* ---- programs ---- */
static bool same_view(const rt_view *a, const rt_view *b) {
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->extents[d] != b->extents[d] || a->strides[d] != b->strides[d]) return false;
  return true;
}

/* A load of memory that a target may be in must read what is written at the same position. */
static bool safe_in_place(const planner *p, const tile_lowering *l) {
  for (uint32_t i = 0; i < l->n_nodes; i++) {
    const tile_node *n = &l->nodes[i];
    if (n->kind != TILE_LOAD || n->place == 0 || n->place > p->task->n_operands) continue;
    const rt_view *x = &p->plan->views[p->task->operands[n->place - 1].view];
    for (uint32_t t = 0; t < l->n_targets; t++) {
      uint32_t k = l->targets[t].to.place == 0 ? 0 : l->targets[t].to.place - p->task->n_operands;
      const rt_view *y = &p->plan->views[rt_task_result(p->task, k)];
      if (x->buffer != y->buffer) continue;
      int64_t strides[TILE_AXES] = {0};
      for (uint32_t d = 0; d < y->rank; d++)
        for (uint32_t a = 0; a < l->n_axes; a++) strides[a] += l->base.coef[d][a] * y->strides[d];
      if (!same_view(x, y) || n->first != 0 || n->guarded ||
          memcmp(strides, n->strides, sizeof strides) != 0)
        return false;
    }
  }
  return true;
}

/* False: `blocked` is set, or it is not safe in place. */
static bool add_program(planner *p, tile_target *targets, uint32_t n) {
  tile_lowering l = {.work = p->work,
                     .plan = p->plan,
                     .body = p->body,
                     .params = p->params,
                     .steps = p->steps,
                     .targets = targets,
                     .n_targets = n};
  p->target = targets[0].value.kind == RT_VALUE_STEP ? targets[0].value.index : TILE_NONE;
  p->blocked = TILE_NONE;
  const tile_program *program = NULL;
  if (tile_lower(&l) && (!p->in_place || safe_in_place(p, &l)))
    program = tile_emit(&l, p->memory, p->in_place);
  p->blocked = program ? TILE_NONE : l.blocked;
  if (!program) return false;
  p->program = kernel_of(program, p->memory);
  tile_stages_add(p->stages, (tile_stage){.kernel = p->program});
  return true;
}

static bool add_apart(planner *p, uint32_t step) {
  tile_target t = {.value = {.kind = RT_VALUE_STEP, .index = step}};
  give_memory(p, step);
  tile_memory to = p->steps[step][0];
  p->steps[step][0].place = TILE_NONE;
  t.to = to;
  t.in_scratch = to.place >= p->stages->n_given;
  if (!add_program(p, &t, 1)) return false;
  p->steps[step][0] = to;
  return true;
}

static bool same_shape(const rt_shape *a, const rt_shape *b) {
  if (a->rank != b->rank) return false;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->extents[d] != b->extents[d]) return false;
  return true;
}

/* Is result r there already: computed in its own place? */
static bool is_done(const planner *p, uint32_t r) {
  const rt_value *v = &p->body->results[r];
  if (rt_view_is_empty(&p->plan->views[rt_task_result(p->task, r)])) return true;
  return v->kind == RT_VALUE_STEP &&
         p->steps[v->index][v->result].place == result_place(p->task, r);
}

/* Programs that follow read what is in memory now. */
static void read_again(planner *p, const tile_target *targets, uint32_t n) {
  for (uint32_t t = 0; t < n && !p->in_place; t++)
    if (targets[t].value.kind == RT_VALUE_STEP) p->steps[targets[t].value.index][0] = targets[t].to;
}

/* The one that is computed first of those that are left: another one may need it. */
static uint32_t first_result(const planner *p, const bool *done) {
  uint32_t first = UINT32_MAX;
  for (uint32_t r = 0; r < p->body->n_results; r++) {
    const rt_value *v = &p->body->results[r];
    if (done[r]) continue;
    if (v->kind != RT_VALUE_STEP) return r;
    if (first == UINT32_MAX || v->index < p->body->results[first].index) first = r;
  }
  return first;
}

/* Results that are left, those of the same shape by one program. */
static bool add_results(planner *p) {
  uint32_t n = p->body->n_results, n_programs = 0;
  bool *done = ARENA_ARRAY(p->work, n, bool);
  for (uint32_t r = 0; r < n; r++) done[r] = is_done(p, r);
  for (uint32_t r; (r = first_result(p, done)) != UINT32_MAX;) {
    tile_target *targets = ARENA_ARRAY(p->work, n, tile_target);
    uint32_t n_targets = 0;
    const rt_shape *shape = rt_value_shape(p->body, &p->body->results[r]);
    for (uint32_t k = 0; k < n; k++) {
      const rt_value *v = &p->body->results[k];
      if (done[k] || !same_shape(shape, rt_value_shape(p->body, v))) continue;
      targets[n_targets++] = (tile_target){
          .value = *v,
          .to = {result_place(p->task, k), p->plan->views[rt_task_result(p->task, k)].strides}};
      done[k] = true;
    }
    if (p->in_place && n_programs++ > 0) return false;
    if (!add_program(p, targets, n_targets)) return false;
    read_again(p, targets, n_targets);
  }
  return true;
}

/* ---- marks ---- */
static void need(planner *p, const rt_value *v) {
  if (v->kind == RT_VALUE_STEP) p->needed[v->index] = true;
}

static void find_needed(planner *p) {
  for (uint32_t r = 0; r < p->body->n_results; r++) need(p, &p->body->results[r]);
  for (uint32_t s = p->body->n_steps; s-- > 0;)
    for (uint32_t k = 0; p->needed[s] && k < p->body->steps[s].n_operands; k++)
      need(p, &p->body->steps[s].operands[k]);
}

/* What kernels read is in memory. */
static void mark_operands(planner *p) {
  for (uint32_t s = 0; s < p->body->n_steps; s++)
    for (uint32_t k = 0; k < p->body->steps[s].n_operands; k++) {
      const rt_value *v = &p->body->steps[s].operands[k];
      if (p->marks[s] == STEP_KERNEL && v->kind == RT_VALUE_STEP &&
          p->marks[v->index] == STEP_INLINE)
        p->marks[v->index] = STEP_APART;
    }
}

static void reset(planner *p) {
  uint32_t n = p->body->n_steps, most = 2;
  for (uint32_t s = 0; s < n; s++) {
    p->steps[s][0].place = TILE_NONE;
    if (p->body->steps[s].n_operands + 1 > most) most = p->body->steps[s].n_operands + 1;
  }
  tile_stages_reset(p->stages, p->task->n_operands + p->body->n_results, n, most);
  p->fake = *p->plan;
  p->fake.views = ARENA_ARRAY(p->work, p->task->n_operands + n + 1, rt_view);
  p->fake.n_views = 0;
  for (uint32_t i = 0; i < p->task->n_operands; i++) {
    rt_view none = {.rank = 0};
    bool is_view = p->task->operands[i].kind == RT_OPERAND_VIEW;
    (void)add_view(p, is_view ? p->plan->views[p->task->operands[i].view] : none);
  }
}

/* One try. OK with `blocked` set: a step must be computed apart. */
static status build(planner *p, bool *complete) {
  *complete = false;
  reset(p);
  mark_operands(p);
  for (uint32_t s = 0; s < p->body->n_steps; s++) {
    if (!p->needed[s] || p->marks[s] == STEP_INLINE) continue;
    if (p->marks[s] == STEP_KERNEL) TRY(add_kernel(p, s));
    else if (!add_apart(p, s)) return STATUS_OK;
  }
  *complete = add_results(p);
  return STATUS_OK;
}

static void start(planner *p) {
  const rt_body *b = p->body;
  p->marks = ARENA_ARRAY(p->work, b->n_steps + 1, step_mark);
  p->needed = ARENA_ARRAY(p->work, b->n_steps + 1, bool);
  p->views = ARENA_ARRAY(p->work, b->n_steps + 1, uint32_t);
  p->params = ARENA_ARRAY(p->work, b->n_params + 1, tile_memory);
  p->steps = ARENA_ARRAY(p->work, b->n_steps + 1, tile_memory *);
  p->stages = tile_stages_new(p->memory, b->n_steps + b->n_results, "tiles");
  p->stages->own = ARENA_ARRAY(p->memory, b->n_steps + 1, size_t);
  for (uint32_t i = 0; i < b->n_params; i++)
    if (p->task->operands[i].kind == RT_OPERAND_VIEW)
      p->params[i] = (tile_memory){1 + i, p->plan->views[p->task->operands[i].view].strides};
  for (uint32_t s = 0; s < b->n_steps; s++) {
    p->steps[s] = ARENA_ARRAY(p->work, 1, tile_memory);
    if (!tile_knows(b, &b->steps[s])) p->marks[s] = STEP_KERNEL;
  }
  find_needed(p);
}

/* Is it one program, which needs no values of its own? */
static bool is_one_program(const tile_stages *s) {
  return s->head.n_stages == 1 && s->n_own == 0 && !s->list[0].places;
}

static bool has_many_results(const rt_body *b) {
  for (uint32_t s = 0; s < b->n_steps; s++)
    if (b->steps[s].n_results != 1) return true;
  return false;
}

/* NULL: there is no way with tiles. */
static status prepare_tiles(planner *p, cpu_kernel **result) {
  bool complete = false;
  *result = NULL;
  if (has_many_results(p->body)) return STATUS_OK;
  start(p);
  if (p->single && p->marks[0] == STEP_KERNEL) return STATUS_OK;
  for (uint32_t tries = 0; tries < 2 * p->body->n_steps + 2; tries++) {
    TRY(build(p, &complete));
    if (complete) break;
    if (p->blocked == TILE_NONE || p->single) return STATUS_OK;
    bool own = p->blocked == p->target || p->marks[p->blocked] == STEP_APART;
    p->marks[p->blocked] = own ? STEP_KERNEL : STEP_APART;
  }
  if (!complete) return STATUS_OK;
  if (p->in_place && (p->stages->head.n_stages != 1 || p->stages->n_own > 0)) return STATUS_OK;
  tile_stages_end(p->stages);
  *result = is_one_program(p->stages) ? p->program : &p->stages->head;
  return STATUS_OK;
}

typedef struct request {
  const rt_plan *plan;
  const rt_task *task;
  const rt_body *body;
  arena *memory, work;
  bool in_place, single;
  cpu_kernel *result;
} request;

static status prepare_guarded(void *context) {
  request *r = context;
  planner p = {.plan = r->plan,
               .task = r->task,
               .body = r->body,
               .memory = r->memory,
               .work = &r->work,
               .in_place = r->in_place,
               .single = r->single};
  return prepare_tiles(&p, &r->result);
}

/* What is needed while a program is made is given back. */
static status prepare_request(request *r) {
  arena_init(&r->work, r->memory->memory);
  status st = memory_guard(prepare_guarded, r);
  arena_destroy(&r->work);
  return st;
}

status cpu_prepare_body(const rt_plan *plan, const rt_task *task, arena *memory,
                        cpu_kernel **result) {
  request r = {.plan = plan, .task = task, .body = task->body, .memory = memory};
  TRY(cpu_prepare_epilogue(plan, task, memory, result));
  if (*result) return STATUS_OK;
  r.in_place = cpu_body_in_place(plan, task);
  TRY(prepare_request(&r));
  if (!r.result) return cpu_prepare_steps(plan, task, memory, result);
  *result = r.result;
  return STATUS_OK;
}

/* ---- one operation ---- */
static rt_value value_of(const rt_operand *o, uint32_t k) {
  switch (o->kind) {
  case RT_OPERAND_NONE: break;
  case RT_OPERAND_VIEW: return (rt_value){.kind = RT_VALUE_PARAM, .index = k, .sliced = o->sliced};
  case RT_OPERAND_NUMBER: return (rt_value){.kind = RT_VALUE_NUMBER, .number = o->number};
  }
  return (rt_value){.kind = RT_VALUE_NONE};
}

static rt_shape shape_of(const rt_view *v) {
  return (rt_shape){.dtype = v->dtype, .rank = v->rank, .extents = v->extents};
}

/* A task as a body of one step; everything lives on the stack of the caller or in the plan. */
typedef struct one_step {
  rt_value operands[RT_MAX_OPERANDS], result;
  rt_shape params[RT_MAX_OPERANDS], shape;
  rt_step step;
  rt_body body;
} one_step;

static void make_step(one_step *o, const cpu_call *c) {
  const rt_task *t = c->task;
  for (uint32_t k = 0; k < t->n_operands; k++) {
    o->operands[k] = value_of(&t->operands[k], k);
    if (t->operands[k].kind == RT_OPERAND_VIEW)
      o->params[k] = shape_of(&c->plan->views[t->operands[k].view]);
  }
  o->shape = shape_of(c->result);
  o->result = (rt_value){.kind = RT_VALUE_STEP};
  o->step = (rt_step){.code = t->code,
                      .compute = t->compute,
                      .n_operands = t->n_operands,
                      .operands = o->operands,
                      .attrs = t->attrs,
                      .n_results = 1,
                      .results = &o->shape,
                      .offset = t->offset,
                      .whole = t->whole};
  o->body = (rt_body){.n_params = t->n_operands,
                      .n_steps = 1,
                      .n_results = 1,
                      .params = o->params,
                      .steps = &o->step,
                      .results = &o->result};
}

status cpu_prepare_single(const cpu_call *c, cpu_kernel **result) {
  one_step o = {.shape = {.rank = 0}};
  *result = NULL;
  if (c->task->n_more > 0) return STATUS_OK;
  make_step(&o, c);
  request r = {
      .plan = c->plan, .task = c->task, .body = &o.body, .memory = c->memory, .single = true};
  TRY(prepare_request(&r));
  if (!r.result) return STATUS_OK;
  r.result->name = c->info->name;
  *result = r.result;
  return STATUS_OK;
}
