/* Bodies in parts: runs of steps that have a form are one kernel; every other step has the kernel of its
 * operation alone. Values between parts are in scratch memory, which later values reuse.
 *
 * Each part becomes a task of a small plan, whose views are the operands and results of the real task
 * and the values in scratch memory. Its kernel is written like any other; then the pointers of its
 * launches are redirected to where those views really begin.
 *
 * A product with elementwise steps after it needs no scratch memory: the product is computed where the
 * result will be, and the other steps in place. If a library can compute the whole (matmul.h), it may do
 * so in one call. */
#include <string.h>

#include "device/cuda/lower.h"
#include "device/cuda/matmul.h"

enum { SCRATCH_ALIGN = 256, MOST_OF_RUN = 32 };
enum {
  OUTER,
  SCRATCH,
  N_BUFFERS
}; /* buffers of the small plan: one for all of the task's, and its own */

/* A result of a step. */
typedef struct value {
  uint32_t view;      /* of the small plan */
  uint32_t last_step; /* the last step that reads it */
  bool in_scratch, live;
  int64_t offset_bytes, size_bytes;
} value;

typedef struct split {
  const rt_task *task;
  const rt_body *body;
  arena *memory;
  cuda_kernel *kernel;
  rt_plan *plan;
  cg_pointer *where; /* by view */
  uint32_t *first;   /* by step: its first value */
  value *values;     /* the results of all steps */
  uint32_t n_values;
  int64_t values_bytes, scratch_bytes; /* scratch memory for values; for the steps' own kernels */
  VEC(cuda_part) parts;
  VEC(cuda_indexed) indexed;
  bool in_place; /* step 0 is a product that is computed in the result's place */
} split;

/* ---- views ---- */
static uint32_t add_view(split *s, const rt_view *v, cg_pointer where) {
  s->plan->views[s->plan->n_views] = *v;
  s->where[s->plan->n_views] = where;
  return s->plan->n_views++;
}

/* Tasks that share a kernel begin at places that differ by multiples of CG_ALIGN: only the rest is kept of the
 * offset. */
static uint32_t add_outer(split *s, const rt_view *v, uint32_t start) {
  rt_view moved = *v;
  moved.offset_bytes = v->offset_bytes % CG_ALIGN + CG_ALIGN;
  moved.buffer = OUTER;
  return add_view(s, &moved, (cg_pointer){start, 0});
}

static int64_t shape_bytes(const rt_shape *x) {
  int64_t n = (int64_t)ir_dtype_size_bytes(x->dtype);
  for (uint32_t d = 0; d < x->rank; d++) n *= x->extents[d];
  return n;
}

static uint32_t add_scratch(split *s, const rt_shape *x) {
  int64_t *strides = ARENA_ARRAY(s->memory, x->rank + (size_t)1, int64_t), stride = 1;
  rt_view v = {.buffer = SCRATCH,
               .dtype = x->dtype,
               .rank = x->rank,
               .extents = x->extents,
               .strides = strides};
  for (uint32_t d = x->rank; d-- > 0;) {
    strides[d] = stride;
    stride *= x->extents[d];
  }
  return add_view(s, &v, (cg_pointer){CG_START_SCRATCH, 0});
}

/* ---- values ---- */
static value *value_of(const split *s, const rt_value *v) {
  check(v->kind == RT_VALUE_STEP);
  return &s->values[s->first[v->index] + v->result];
}

/* The first result of the task that is this value; n_results: none. */
static uint32_t result_of(const split *s, uint32_t step, uint32_t result) {
  uint32_t r = 0;
  for (; r < s->body->n_results; r++) {
    const rt_value *v = &s->body->results[r];
    if (v->kind == RT_VALUE_STEP && v->index == step && v->result == result) break;
  }
  return r;
}

static void list_values(split *s) {
  const rt_body *b = s->body;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    s->first[i] = s->n_values;
    s->n_values += b->steps[i].n_results;
  }
  s->values = ARENA_ARRAY(s->memory, s->n_values + (size_t)1, value);
  for (uint32_t i = 0; i < b->n_steps; i++)
    for (uint32_t k = 0; k < b->steps[i].n_operands; k++)
      if (b->steps[i].operands[k].kind == RT_VALUE_STEP)
        value_of(s, &b->steps[i].operands[k])->last_step = i;
}

/* ---- products with epilogues ---- */
static bool is_like(const rt_shape *a, const rt_view *b) {
  return a->dtype == b->dtype && rt_extents_same(a->rank, a->extents, b->rank, b->extents);
}

/* Is it a product, then steps that compute each element from those at the same place, the last of which is the
 * result? And is nothing that it reads in the buffer of the result? */
static bool fits_in_place(const rt_plan *plan, const rt_task *task) {
  const rt_body *b = task->body;
  const rt_view *result = &plan->views[task->result];
  bool fits = b->n_results == 1 && b->results[0].kind == RT_VALUE_STEP && b->n_steps > 1 &&
              b->results[0].index + 1 == b->n_steps && ir_op_is_plain_product(b->steps[0].code) &&
              is_like(&b->steps[0].results[0], result);
  for (uint32_t i = 1; fits && i < b->n_steps; i++) {
    rt_shape x = b->steps[i].results[0];
    x.dtype = result->dtype;
    fits = ir_op_is_elementwise(b->steps[i].code) && !b->steps[i].offset && is_like(&x, result);
  }
  for (uint32_t k = 0; fits && k < task->n_operands; k++)
    fits = plan->views[task->operands[k].view].buffer != result->buffer;
  return fits;
}

/* Is the result in the buffer of an operand? Later parts may read that operand, so the result is computed elsewhere
 * and copied at the end. (A body that is one kernel reads each element before it writes it.) */
static bool is_over_operand(const split *s, const rt_plan *plan, uint32_t r) {
  uint32_t buffer = plan->views[rt_task_result(s->task, r)].buffer;
  for (uint32_t k = 0; k < s->task->n_operands; k++)
    if (plan->views[s->task->operands[k].view].buffer == buffer) return true;
  return false;
}

static void place_values(split *s, const rt_plan *plan) {
  const rt_body *b = s->body;
  for (uint32_t i = 0; i < b->n_steps; i++)
    for (uint32_t k = 0; k < b->steps[i].n_results; k++) {
      value *v = &s->values[s->first[i] + k];
      uint32_t r = s->in_place && i == 0 ? 0 : result_of(s, i, k);
      /* mutant: cuda_parts_in_place */
      bool over = r < b->n_results && b->n_steps > 1 && is_over_operand(s, plan, r);
      if (over) v->last_step = b->n_steps;
      v->in_scratch = over || r == b->n_results;
      v->size_bytes = shape_bytes(&b->steps[i].results[k]);
      v->view = v->in_scratch ? add_scratch(s, &b->steps[i].results[k])
                              : add_outer(s, &plan->views[rt_task_result(s->task, r)],
                                          cuda_start_of_result(s->task, r));
    }
}

/* ---- scratch memory ---- */
static bool meets(const value *v, int64_t begin, int64_t end) {
  return v->live && v->offset_bytes < end && begin < v->offset_bytes + v->size_bytes;
}

/* Gives a value the lowest place that no live value has. */
static void take(split *s, value *v) {
  int64_t at = 0;
  for (uint32_t i = 0; i < s->n_values; i++)
    if (meets(&s->values[i], at, at + v->size_bytes)) {
      int64_t end = s->values[i].offset_bytes + s->values[i].size_bytes;
      at = (end + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
      i = UINT32_MAX; /* begin again with the first value */
    }
  v->offset_bytes = at;
  v->live = true;
  if (at + v->size_bytes > s->values_bytes) s->values_bytes = at + v->size_bytes;
  s->where[v->view].offset_bytes = at;
}

/* Is the value read after step `last`, or a result? */
static bool is_wanted(const value *v, uint32_t last) {
  return !v->in_scratch || v->last_step > last;
}

/* Takes places for the results of a step that later parts read. */
static void take_results(split *s, uint32_t step, uint32_t last) {
  for (uint32_t k = 0; k < s->body->steps[step].n_results; k++) {
    value *v = &s->values[s->first[step] + k];
    if (v->in_scratch && (step == last || is_wanted(v, last))) take(s, v);
  }
}

static void leave_operands(split *s, uint32_t step) {
  for (uint32_t i = 0; i < s->n_values; i++)
    if (s->values[i].last_step <= step) s->values[i].live = false;
}

/* ---- steps ---- */
static rt_operand operand_of(const split *s, const rt_value *v) {
  switch (v->kind) {
  case RT_VALUE_NONE: break;
  case RT_VALUE_NUMBER: return (rt_operand){.kind = RT_OPERAND_NUMBER, .number = v->number};
  case RT_VALUE_PARAM:
    return (rt_operand){.kind = RT_OPERAND_VIEW, .view = v->index, .sliced = v->sliced};
  case RT_VALUE_STEP:
    return (rt_operand){.kind = RT_OPERAND_VIEW, .view = value_of(s, v)->view, .sliced = v->sliced};
  }
  return (rt_operand){.kind = RT_OPERAND_NONE};
}

static rt_task *task_of(const split *s, uint32_t step) {
  const rt_step *x = &s->body->steps[step];
  rt_task *t = ARENA_NEW(s->memory, rt_task);
  rt_operand *operands = ARENA_ARRAY(s->memory, x->n_operands + (size_t)1, rt_operand);
  uint32_t *more = ARENA_ARRAY(s->memory, x->n_results, uint32_t);
  const value *v = &s->values[s->first[step]];
  for (uint32_t k = 0; k < x->n_operands; k++) operands[k] = operand_of(s, &x->operands[k]);
  for (uint32_t k = 1; k < x->n_results; k++) more[k - 1] = v[k].view;
  *t = (rt_task){.code = x->code,
                 .result = v->view,
                 .n_more = x->n_results - 1,
                 .more = more,
                 .n_operands = x->n_operands,
                 .compute = x->compute,
                 .operands = operands,
                 .attrs = x->attrs,
                 .offset = x->offset,
                 .whole = x->whole};
  return t;
}

/* Where a pointer of a step's launch begins in the real task. */
static cg_pointer redirected(const split *s, const rt_task *t, const cg_pointer *p) {
  uint32_t view = t->result;
  if (p->start > t->n_operands) {
    check(t->more && p->start - t->n_operands <= t->n_more);
    view = t->more[p->start - t->n_operands - 1];
  } else if (p->start > 0) {
    view = t->operands[p->start - 1].view;
  }
  cg_pointer to = s->where[view];
  to.offset_bytes += p->offset_bytes;
  return to;
}

/* Added to offsets in a step's own scratch memory, until place_scratch() knows where that is. (Offsets in values may
 * be negative, too: an operand of a cat is placed from where the whole begins.) */
static const int64_t NOT_PLACED = INT64_MIN / 2;

static void redirect(split *s, const rt_task *t, cg_launch *l) {
  cg_pointer *to = ARENA_ARRAY(s->memory, l->n_pointers + (size_t)1, cg_pointer);
  for (uint32_t p = 0; p < l->n_pointers; p++) {
    to[p] = l->pointers[p];
    if (to[p].start == CG_START_ERROR)
      to[p].offset_bytes += (int64_t)(s->indexed.len * sizeof(cg_error));
    else if (to[p].start == CG_START_SCRATCH) to[p].offset_bytes += NOT_PLACED;
    else if (to[p].start != CG_START_SEED) to[p] = redirected(s, t, &to[p]);
  }
  l->pointers = to;
}

static const cg_pointer *starts_of(const split *s, const rt_task *t) {
  uint32_t n = 1 + t->n_operands + t->n_more;
  cg_pointer *starts = ARENA_ARRAY(s->memory, n, cg_pointer);
  for (uint32_t k = 0; k < n; k++) {
    bool is_operand = k > 0 && k <= t->n_operands;
    bool is_view = !is_operand || t->operands[k - 1].kind == RT_OPERAND_VIEW;
    if (is_view) starts[k] = redirected(s, t, &(cg_pointer){k, 0});
  }
  return starts;
}

static status add_part(split *s, const rt_task *t) {
  const cuda_kernel *own;
  cg_kernel *code = &s->kernel->code;
  TRY(cuda_kernel_prepare(s->plan, t, &code->gpu, s->memory, &own));
  cuda_part part = {.first = code->n_launches,
                    .n_launches = own->code.n_launches,
                    .plan = s->plan,
                    .task = t->body ? NULL : t,
                    .starts = starts_of(s, t)};
  for (uint32_t i = 0; i < own->code.n_launches; i++) {
    cg_launch l = own->code.launches[i];
    redirect(s, t, &l);
    cg_kernel_add(code, &l);
  }
  for (uint32_t i = 0; i < own->n_indexed; i++) vec_push(s->memory, &s->indexed, own->indexed[i]);
  int64_t bytes = (int64_t)own->code.scratch_bytes;
  if (bytes > s->scratch_bytes) s->scratch_bytes = bytes;
  vec_push(s->memory, &s->parts, part);
  return STATUS_OK;
}

/* ---- runs of steps ---- */
/* A run of steps as a body of its own. */
typedef struct run {
  split *s;
  uint32_t first, last;
  VEC(rt_operand) operands;
  VEC(rt_shape) params;
  VEC(rt_value) results;
  VEC(uint32_t) views; /* of the results */
} run;

/* The value inside the run: values of earlier steps are parameters. */
static rt_value inside(run *r, const rt_value *v) {
  split *s = r->s;
  rt_value x = *v;
  if (v->kind == RT_VALUE_NONE || v->kind == RT_VALUE_NUMBER) return x;
  if (v->kind == RT_VALUE_STEP && v->index >= r->first) {
    x.index -= r->first;
    return x;
  }
  rt_operand o = operand_of(s, v);
  o.sliced = 0;
  uint32_t p = 0;
  while (p < r->operands.len && r->operands.data[p].view != o.view) p++;
  if (p == r->operands.len) {
    vec_push(s->memory, &r->operands, o);
    vec_push(s->memory, &r->params, *rt_value_shape(s->body, v));
  }
  x.kind = RT_VALUE_PARAM;
  x.index = p;
  x.result = 0;
  return x;
}

static void add_results(run *r, uint32_t step) {
  split *s = r->s;
  for (uint32_t k = 0; k < s->body->steps[step].n_results; k++) {
    const value *v = &s->values[s->first[step] + k];
    if (!is_wanted(v, r->last)) continue;
    rt_value x = {.kind = RT_VALUE_STEP, .index = step - r->first, .result = k};
    vec_push(s->memory, &r->results, x);
    vec_push(s->memory, &r->views, v->view);
  }
}

static rt_task *task_of_run(split *s, uint32_t first, uint32_t last) {
  run r = {.s = s, .first = first, .last = last};
  rt_body *b = ARENA_NEW(s->memory, rt_body);
  rt_task *t = ARENA_NEW(s->memory, rt_task);
  rt_step *steps = ARENA_ARRAY(s->memory, last - first + (size_t)1, rt_step);
  for (uint32_t i = first; i <= last; i++) {
    const rt_step *from = &s->body->steps[i];
    rt_value *operands = ARENA_ARRAY(s->memory, from->n_operands + (size_t)1, rt_value);
    for (uint32_t k = 0; k < from->n_operands; k++) operands[k] = inside(&r, &from->operands[k]);
    steps[i - first] = *from;
    steps[i - first].operands = operands;
    add_results(&r, i);
  }
  if (r.results.len == 0) return NULL;
  *b = (rt_body){.n_params = r.params.len,
                 .n_steps = last - first + 1,
                 .n_results = r.results.len,
                 .params = r.params.data,
                 .steps = steps,
                 .results = r.results.data};
  *t = (rt_task){.result = r.views.data[0],
                 .n_more = r.views.len - 1,
                 .more = r.views.data + 1,
                 .n_operands = r.operands.len,
                 .operands = r.operands.data,
                 .body = b};
  return t;
}

/* The longest run from `first` on that has a form, as a task; NULL: no run of two steps or more has. */
static rt_task *longest_run(split *s, uint32_t first, uint32_t *last) {
  uint32_t end = first;
  while (end < s->body->n_steps && end < first + MOST_OF_RUN &&
         lower_takes(s->body->steps[end].code))
    end++;
  for (*last = end; *last > first + 1;) {
    cuda_kernel tried = {.name = NULL};
    rt_task *t = task_of_run(s, first, --*last);
    cg_kernel_init(&tried.code, s->memory, &s->kernel->code.gpu);
    if (t && cuda_lower_body(s->plan, t, s->memory, &tried)) return t;
  }
  *last = first;
  return NULL;
}

/* ---- results ---- */
/* Copies results that are parameters, or values that are another result already. */
static status copy_results(split *s, const rt_plan *plan) {
  for (uint32_t r = 0; r < s->body->n_results; r++) {
    const rt_value *v = &s->body->results[r];
    bool first = v->kind == RT_VALUE_STEP && result_of(s, v->index, v->result) == r;
    if (first && !value_of(s, v)->in_scratch) continue;
    rt_task *t = ARENA_NEW(s->memory, rt_task);
    rt_operand *operand = ARENA_NEW(s->memory, rt_operand);
    *operand = operand_of(s, v);
    *t = (rt_task){.code = IR_OP_SET, .n_operands = 1, .operands = operand};
    t->result =
        add_outer(s, &plan->views[rt_task_result(s->task, r)], cuda_start_of_result(s->task, r));
    TRY(add_part(s, t));
  }
  return STATUS_OK;
}

/* Places the steps' own scratch memory after the values. */
static void place_scratch(split *s) {
  cg_kernel *code = &s->kernel->code;
  int64_t at = (s->values_bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
  for (uint32_t i = 0; i < code->n_launches; i++)
    for (uint32_t p = 0; p < code->launches[i].n_pointers; p++) {
      /* redirect() made it, so it may be changed */
      cg_pointer *x = (cg_pointer *)(uintptr_t)&code->launches[i].pointers[p];
      if (x->start == CG_START_SCRATCH && x->offset_bytes < NOT_PLACED / 2)
        x->offset_bytes += at - NOT_PLACED;
    }
  code->scratch_bytes = (size_t)(at + s->scratch_bytes);
}

/* Offers the whole as one task, for a library that can compute it. */
static void offer_whole(split *s) {
  cuda_after *after = ARENA_NEW(s->memory, cuda_after);
  uint32_t result = s->values[s->n_values - 1].view;
  const rt_task *t = s->in_place ? cuda_after_of(s->body, result, s->memory, after) : NULL;
  if (!t) return;
  s->parts.data[0].whole = t;
  s->parts.data[0].after = after;
  s->parts.data[0].whole_starts = starts_of(s, t);
}

status cuda_prepare_steps(const rt_plan *plan, const rt_task *task, bool joined, arena *memory,
                          cuda_kernel *k) {
  const rt_body *b = task->body;
  split s = {.task = task, .body = b, .memory = memory, .kernel = k};
  s.in_place = joined && fits_in_place(plan, task);
  size_t most = b->n_params + 2 * (size_t)b->n_results;
  for (uint32_t i = 0; i < b->n_steps; i++) most += b->steps[i].n_results;
  s.plan = ARENA_NEW(memory, rt_plan);
  s.plan->views = ARENA_ARRAY(memory, most, rt_view);
  s.plan->n_buffers = N_BUFFERS;
  s.plan->buffers = ARENA_ARRAY(memory, N_BUFFERS, rt_buffer);
  s.plan->buffers[OUTER].kind = RT_BUFFER_INPUT;
  s.plan->buffers[SCRATCH].kind = RT_BUFFER_POOL;
  s.where = ARENA_ARRAY(memory, most, cg_pointer);
  s.first = ARENA_ARRAY(memory, b->n_steps + (size_t)1, uint32_t);
  for (uint32_t p = 0; p < b->n_params; p++)
    (void)add_outer(&s, &plan->views[task->operands[p].view], p + 1);
  list_values(&s);
  place_values(&s, plan);
  for (uint32_t i = 0, last; i < b->n_steps; i = last + 1) {
    rt_task *t = joined ? longest_run(&s, i, &last) : NULL;
    if (!t) last = i;
    for (uint32_t step = i; step <= last; step++) take_results(&s, step, last);
    TRY(add_part(&s, t ? t : task_of(&s, i)));
    leave_operands(&s, last);
  }
  TRY(copy_results(&s, plan));
  offer_whole(&s);
  place_scratch(&s);
  k->n_parts = s.parts.len;
  k->parts = s.parts.data;
  k->n_indexed = s.indexed.len;
  k->indexed = s.indexed.data;
  return STATUS_OK;
}
