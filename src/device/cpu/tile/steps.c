/* Bodies step by step.
 *
 * A plan is made up in which every step is a task of its own: its views are the operands and results of
 * the real task, and one dense view for each value that has no memory. A value that is a result of the
 * body is computed where it belongs, unless operands are in the same place. */
#include <string.h>

#include "device/cpu/tile/body.h"
#include "device/cpu/tile/stages.h"

/* A value of the body while it is prepared: result `result` of step `step`. */
typedef struct own_value {
  uint32_t view, place;
  bool in_scratch;
  uint32_t last_use;
  size_t at, bytes;
} own_value;

typedef struct making {
  const rt_plan *plan;
  const rt_task *task;
  const rt_body *body;
  arena *memory;
  rt_plan fake;
  own_value **values; /* [step][result] */
  tile_stages *stages;
} making;

static uint32_t add_view(making *m, rt_view v) {
  m->fake.views[m->fake.n_views] = v;
  return m->fake.n_views++;
}

/* The start of result k of the task: the first result, the operands, the further results. */
static uint32_t result_place(const rt_task *task, uint32_t k) {
  return k == 0 ? 0 : task->n_operands + k;
}

static rt_view dense_view(arena *memory, const rt_shape *shape) {
  int64_t *strides = ARENA_ARRAY(memory, shape->rank + 1, int64_t), stride = 1;
  for (uint32_t d = shape->rank; d-- > 0; stride *= shape->extents[d]) strides[d] = stride;
  return (rt_view){
      .dtype = shape->dtype, .rank = shape->rank, .extents = shape->extents, .strides = strides};
}

static size_t shape_bytes(const rt_shape *shape) {
  size_t n = ir_dtype_size_bytes(shape->dtype);
  for (uint32_t d = 0; d < shape->rank; d++) n *= (size_t)shape->extents[d];
  return tile_aligned(n);
}

bool cpu_body_in_place(const rt_plan *plan, const rt_task *task) {
  for (uint32_t r = 0; r < rt_task_n_results(task); r++)
    for (uint32_t k = 0; k < task->n_operands; k++)
      if (plan->views[rt_task_result(task, r)].buffer == plan->views[task->operands[k].view].buffer)
        return true;
  return false;
}

/* Which result of the task the value may be computed in; UINT32_MAX: none. */
static uint32_t direct_result(const making *m, uint32_t step, uint32_t result, bool in_place) {
  if (in_place) return UINT32_MAX;
  for (uint32_t r = 0; r < m->body->n_results; r++) {
    const rt_value *v = &m->body->results[r];
    if (v->kind == RT_VALUE_STEP && v->index == step && v->result == result) return r;
  }
  return UINT32_MAX;
}

static void note_use(making *m, const rt_value *v, uint32_t at) {
  if (v->kind == RT_VALUE_STEP) m->values[v->index][v->result].last_use = at;
}

static void find_uses(making *m) {
  for (uint32_t s = 0; s < m->body->n_steps; s++) {
    for (uint32_t r = 0; r < m->body->steps[s].n_results; r++) m->values[s][r].last_use = s;
    for (uint32_t k = 0; k < m->body->steps[s].n_operands; k++)
      note_use(m, &m->body->steps[s].operands[k], s);
  }
  for (uint32_t r = 0; r < m->body->n_results; r++)
    note_use(m, &m->body->results[r], m->body->n_steps);
}

/* Does [at, at + bytes) meet a value that is still read at or after `step`? Then `*next` is its end. */
static bool meets(const making *m, uint32_t step, uint32_t result, size_t at, size_t bytes,
                  size_t *next) {
  for (uint32_t s = 0; s <= step; s++)
    for (uint32_t r = 0; r < m->body->steps[s].n_results; r++) {
      const own_value *v = &m->values[s][r];
      if (s == step && r >= result) break;
      if (!v->in_scratch || v->last_use < step) continue;
      if (at < v->at + v->bytes && v->at < at + bytes) {
        *next = v->at + v->bytes;
        return true;
      }
    }
  return false;
}

static void place_value(making *m, uint32_t step, uint32_t result, size_t first, bool in_place) {
  own_value *v = &m->values[step][result];
  uint32_t direct = direct_result(m, step, result, in_place);
  const rt_shape *shape = &m->body->steps[step].results[result];
  if (direct != UINT32_MAX) {
    v->view = rt_task_result(m->task, direct);
    v->view = add_view(m, m->plan->views[v->view]);
    v->place = result_place(m->task, direct);
    return;
  }
  v->view = add_view(m, dense_view(m->memory, shape));
  v->place = m->task->n_operands + rt_task_n_results(m->task) + m->stages->n_own;
  v->in_scratch = true;
  v->bytes = shape_bytes(shape);
  v->at = first;
  while (meets(m, step, result, v->at, v->bytes, &v->at)) continue;
  m->stages->own[m->stages->n_own++] = v->at;
  if (v->at + v->bytes > m->stages->inner_at) m->stages->inner_at = v->at + v->bytes;
}

rt_operand tile_operand(const rt_value *v, uint32_t view, uint32_t at, uint32_t *place) {
  rt_operand o = {.sliced = v->sliced};
  *place = TILE_NO_PLACE;
  switch (v->kind) {
  case RT_VALUE_NONE: break;
  case RT_VALUE_NUMBER:
    o.kind = RT_OPERAND_NUMBER;
    o.number = v->number;
    break;
  case RT_VALUE_PARAM:
    o.kind = RT_OPERAND_VIEW;
    o.view = v->index;
    *place = 1 + v->index;
    break;
  case RT_VALUE_STEP:
    o.kind = RT_OPERAND_VIEW;
    o.view = view;
    *place = at;
    break;
  }
  return o;
}

static rt_operand operand_of(const making *m, const rt_value *v, uint32_t *place) {
  if (v->kind != RT_VALUE_STEP) return tile_operand(v, 0, 0, place);
  const own_value *made = &m->values[v->index][v->result];
  return tile_operand(v, made->view, made->place, place);
}

static status add_call(making *m, const rt_task *t, const uint32_t *places) {
  tile_stage stage = {.n_starts = t->n_operands + rt_task_n_results(t), .places = places};
  TRY(cpu_kernel_prepare(&m->fake, t, m->memory, &stage.kernel));
  tile_stages_add(m->stages, stage);
  return STATUS_OK;
}

static status add_step(making *m, uint32_t i) {
  const rt_step *s = &m->body->steps[i];
  rt_operand *operands = ARENA_ARRAY(m->memory, s->n_operands + 1, rt_operand);
  uint32_t *places = ARENA_ARRAY(m->memory, s->n_operands + s->n_results, uint32_t);
  uint32_t *more = ARENA_ARRAY(m->memory, s->n_results, uint32_t);
  for (uint32_t k = 0; k < s->n_operands; k++)
    operands[k] = operand_of(m, &s->operands[k], &places[1 + k]);
  for (uint32_t r = 0; r < s->n_results; r++) {
    places[r == 0 ? 0 : s->n_operands + r] = m->values[i][r].place;
    if (r > 0) more[r - 1] = m->values[i][r].view;
  }
  rt_task t = {.code = s->code,
               .result = m->values[i][0].view,
               .n_more = s->n_results - 1,
               .more = more,
               .n_operands = s->n_operands,
               .compute = s->compute,
               .operands = operands,
               .attrs = s->attrs,
               .offset = s->offset,
               .whole = s->whole};
  return add_call(m, &t, places);
}

/* A result that was computed elsewhere, or is an operand of the task, is copied there. */
static status add_copy(making *m, uint32_t k) {
  const rt_value *v = &m->body->results[k];
  rt_operand *operand = ARENA_ARRAY(m->memory, 1, rt_operand);
  uint32_t *places = ARENA_ARRAY(m->memory, 2, uint32_t);
  uint32_t result = add_view(m, m->plan->views[rt_task_result(m->task, k)]);
  *operand = operand_of(m, v, &places[1]);
  operand->sliced = 0;
  places[0] = result_place(m->task, k);
  if (places[0] == places[1]) return STATUS_OK;
  rt_task t = {.code = IR_OP_SET, .result = result, .n_operands = 1, .operands = operand};
  return add_call(m, &t, places);
}

/* Operands first: no result may have been written over them. */
static status add_copies(making *m) {
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t k = 0; k < m->body->n_results; k++)
      if ((m->body->results[k].kind == RT_VALUE_PARAM) == (pass == 0)) TRY(add_copy(m, k));
  return STATUS_OK;
}

static uint32_t count_values(const rt_body *b) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < b->n_steps; s++) n += b->steps[s].n_results;
  return n;
}

static void start(making *m) {
  uint32_t n = count_values(m->body), n_params = m->task->n_operands;
  m->fake = *m->plan;
  m->fake.views = ARENA_ARRAY(m->memory, n_params + n + m->body->n_results, rt_view);
  m->fake.n_views = 0;
  for (uint32_t k = 0; k < n_params; k++)
    (void)add_view(m, m->plan->views[m->task->operands[k].view]);
  m->values = ARENA_ARRAY(m->memory, m->body->n_steps + 1, own_value *);
  for (uint32_t s = 0; s < m->body->n_steps; s++)
    m->values[s] = ARENA_ARRAY(m->memory, m->body->steps[s].n_results, own_value);
}

static uint32_t most_starts(const rt_body *b) {
  uint32_t most = 2;
  for (uint32_t s = 0; s < b->n_steps; s++) {
    uint32_t n = b->steps[s].n_operands + b->steps[s].n_results;
    if (n > most) most = n;
  }
  return most;
}

static void start_stages(making *m) {
  uint32_t n = count_values(m->body);
  m->stages = tile_stages_new(m->memory, m->body->n_steps + m->body->n_results, "steps");
  m->stages->own = ARENA_ARRAY(m->memory, n + 1, size_t);
  tile_stages_reset(m->stages, m->task->n_operands + m->body->n_results, n, most_starts(m->body));
}

status cpu_prepare_steps(const rt_plan *plan, const rt_task *task, arena *memory,
                         cpu_kernel **result) {
  making m = {.plan = plan, .task = task, .body = task->body, .memory = memory};
  bool in_place = cpu_body_in_place(plan, task);
  start(&m);
  find_uses(&m);
  start_stages(&m);
  size_t first = m.stages->inner_at;
  for (uint32_t s = 0; s < m.body->n_steps; s++) {
    for (uint32_t r = 0; r < m.body->steps[s].n_results; r++)
      place_value(&m, s, r, first, in_place);
    TRY(add_step(&m, s));
  }
  TRY(add_copies(&m));
  tile_stages_end(m.stages);
  *result = &m.stages->head;
  return STATUS_OK;
}
