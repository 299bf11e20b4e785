/* Lowers values at indexes, and a body to kernels. */
#include "device/cuda/lower.h"

#include <string.h>

/* ---- parameters ---- */
/* A dimension of size 1 has the stride 0, whatever the index is. */
static uint32_t lower_param(lowering *l, uint32_t p, const lower_index *at) {
  const rt_view *v = &l->plan->views[l->task->operands[p].view];
  lower_index place = {.first = 0};
  cg_node n = {.kind = CG_NODE_LOAD, .dtype = v->dtype, .guard = l->guard};
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->extents[d] != 1) lower_index_add(l, &place, &at[d], v->strides[d]);
  n.view = (cg_view){.start = p + 1, .dtype = v->dtype, .align = cuda_view_align(v)};
  n.view.offset_bytes = place.first * (int64_t)ir_dtype_size_bytes(v->dtype);
  memcpy(n.view.strides, place.strides, sizeof place.strides);
  n.n_terms = place.n_terms;
  memcpy(n.terms, place.terms, sizeof place.terms);
  return l->failed ? CG_NO_NODE : lower_node(l, &n);
}

/* ---- steps ---- */
static void begin_step(lowering *l, const rt_step *step, lower_step *s) {
  rt_operand *operands = ARENA_ARRAY(l->memory, step->n_operands + (size_t)1, rt_operand);
  for (uint32_t k = 0; k < step->n_operands; k++) operands[k].sliced = step->operands[k].sliced;
  *s = (lower_step){.l = l, .step = step, .info = ir_op_info_of(step->code)};
  s->result = &step->results[0];
  s->task = (rt_task){.code = step->code,
                      .n_operands = step->n_operands,
                      .compute = step->compute,
                      .operands = operands,
                      .attrs = step->attrs,
                      .offset = step->offset,
                      .whole = step->whole};
  for (uint32_t d = 0; d < s->result->rank; d++) {
    s->offset[d] = step->offset ? step->offset[d] : 0;
    s->whole[d] = step->whole ? step->whole[d] : s->result->extents[d];
  }
}

bool lower_has_operand(const lower_step *s, uint32_t k) {
  return k < s->step->n_operands && s->step->operands[k].kind != RT_VALUE_NONE;
}

const rt_shape *lower_shape(const lower_step *s, uint32_t k) {
  static const rt_shape scalar = {.dtype = IR_F64};
  const rt_value *v = &s->step->operands[k];
  return v->kind == RT_VALUE_NUMBER ? &scalar : rt_value_shape(s->l->body, v);
}

uint32_t lower_operand(const lower_step *s, uint32_t k, const lower_index *at) {
  return lower_value(s->l, &s->step->operands[k], at);
}

lower_index lower_moved(const lower_step *s, uint32_t k, uint32_t d, const lower_index *at) {
  lower_index i = at[d];
  if (!(s->step->operands[k].sliced >> d & 1)) i.first += s->offset[d];
  return i;
}

/* ---- pointwise ---- */
/* Operand k with broadcasting as in NumPy. */
static uint32_t lower_aligned(const lower_step *s, uint32_t k, const lower_index *at) {
  const rt_shape *x = lower_shape(s, k);
  lower_index own[IR_MAX_RANK] = {{0}};
  for (uint32_t d = 0; d < x->rank; d++)
    if (x->extents[d] != 1) own[d] = lower_moved(s, k, d + s->result->rank - x->rank, at);
  return lower_operand(s, k, own);
}

static bool mode_of(const lower_step *s) {
  for (const ir_param *p = s->info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind == IR_PARAM_CHOICE) return rt_task_int(&s->task, p->name) != 0;
  return false;
}

static uint32_t lower_pointwise(const lower_step *s, const lower_index *at) {
  lowering *l = s->l;
  uint32_t operands[CG_MAX_OPERANDS];
  cg_step step = {.code = s->step->code, .compute = s->step->compute, .mode = mode_of(s)};
  step.result = s->result->dtype;
  check(s->step->n_operands < CG_MAX_OPERANDS);
  for (uint32_t k = 0; k < s->step->n_operands && !l->failed; k++) {
    const rt_value *v = &s->step->operands[k];
    operands[k] = v->kind == RT_VALUE_NUMBER ? lower_constant(l, *v->number, step.compute)
                                             : lower_aligned(s, k, at);
  }
  return l->failed ? CG_NO_NODE : lower_step_node(l, &step, s->step->n_operands, operands);
}

/* ---- families, by the names of families.def ---- */
static uint32_t lower_none(const lower_step *s, const lower_index *at) {
  (void)at;
  return lower_fail(s->l);
}

static lower_fn *const families[] = {
#define CUDA(kernel, body) lower_##body
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, cpu, cuda) [IR_FAMILY_##id] = cuda,
#include "ir/families.def"
};

bool lower_takes(ir_opcode code) { return families[ir_op_info_of(code)->family] != lower_none; }

/* ---- values ---- */
static uint32_t recall(const lowering *l, const rt_value *v, uint32_t rank, const lower_index *at) {
  for (uint32_t i = 0; i < l->memos.len; i++) {
    const lower_memo *m = &l->memos.data[i];
    if (m->step != v->index || m->result != v->result || m->guard != l->guard) continue;
    uint32_t d = 0;
    while (d < rank && lower_index_same(&m->at[d], &at[d])) d++;
    if (d == rank) return m->node;
  }
  return CG_NO_NODE;
}

static uint32_t lower_result(lowering *l, const rt_value *v, const lower_index *at) {
  const rt_step *step = &l->body->steps[v->index];
  uint32_t rank = step->results[v->result].rank;
  lower_step s;
  uint32_t node = recall(l, v, rank, at);
  if (node != CG_NO_NODE) return node;
  if (v->result > 0 || l->depth == LOWER_DEPTH) return lower_fail(l);
  begin_step(l, step, &s);
  l->depth++;
  node = families[s.info->family](&s, at);
  l->depth--;
  if (l->failed || node == CG_NO_NODE) return lower_fail(l);
  lower_memo m = {.step = v->index, .result = v->result, .guard = l->guard, .node = node};
  m.at = arena_copy(l->memory, at, (rank + (size_t)1) * sizeof *at);
  vec_push(l->memory, &l->memos, m);
  return node;
}

/* Along dimensions of size 1 every index is 0. */
uint32_t lower_value(lowering *l, const rt_value *v, const lower_index *at) {
  lower_index own[IR_MAX_RANK + 1] = {{0}};
  if (l->failed) return CG_NO_NODE;
  if (v->kind == RT_VALUE_NONE) return lower_fail(l);
  if (v->kind == RT_VALUE_NUMBER) return lower_number(l, *v->number);
  const rt_shape *shape = rt_value_shape(l->body, v);
  for (uint32_t d = 0; d < shape->rank; d++)
    if (shape->extents[d] != 1) own[d] = at[d];
  if (v->kind == RT_VALUE_PARAM) return lower_param(l, v->index, own);
  return lower_result(l, v, own);
}

/* ---- bodies ---- */
static const rt_view *result_view(const lowering *l, uint32_t r) {
  return &l->plan->views[rt_task_result(l->task, r)];
}

/* Adds result r, whose dimension d is dimension dims[d] of the space (IR_MAX_RANK: none). */
static void add_output(lowering *l, uint32_t r, const uint32_t *dims) {
  const rt_view *v = result_view(l, r);
  cg_output *o = &l->out->outputs[l->out->n_outputs++];
  lower_index at[IR_MAX_RANK + 1] = {{0}};
  o->view = (cg_view){.start = cuda_start_of_result(l->task, r), .dtype = v->dtype};
  o->view.align = cuda_view_align(v);
  for (uint32_t d = 0; d < v->rank; d++) {
    if (dims[d] == IR_MAX_RANK) continue;
    at[d].strides[dims[d]] = 1;
    o->view.strides[dims[d]] = v->strides[d];
  }
  o->node = lower_cast(l, lower_value(l, &l->body->results[r], at), v->dtype);
}

/* Matches the dimensions of result r, in order, with those dimensions of the space that are in `mask`. */
static bool match_dims(const lowering *l, uint32_t r, uint32_t mask, uint32_t *dims) {
  const rt_view *v = result_view(l, r);
  uint32_t s = 0;
  for (uint32_t d = 0; d < v->rank; d++) {
    dims[d] = IR_MAX_RANK;
    if (v->extents[d] == 1) continue;
    while (s < l->rank && (!(mask >> s & 1) || l->extents[s] == 1)) s++;
    if (s == l->rank || l->extents[s] != v->extents[d]) return false;
    dims[d] = s++;
  }
  for (; s < l->rank; s++)
    if (mask >> s & 1 && l->extents[s] != 1) return false;
  return true;
}

/* Adds a result that has all dimensions of the space, those of its rows, or those of its columns. */
static bool add_row_output(lowering *l, uint32_t r) {
  uint32_t all = (1U << l->rank) - 1, masks[] = {all, all & ~l->row, l->row};
  for (int i = 0; i < 3; i++) {
    uint32_t dims[IR_MAX_RANK], nodes = l->out->nodes.len, memos = l->memos.len;
    uint32_t outputs = l->out->n_outputs, indexed = l->indexed.len;
    if (!match_dims(l, r, masks[i], dims)) continue;
    add_output(l, r, dims);
    if (!l->failed) return true;
    l->failed = false;
    l->out->nodes.len = nodes;
    l->memos.len = memos;
    l->out->n_outputs = outputs;
    l->indexed.len = indexed;
    l->guard = CG_NO_NODE;
  }
  return false;
}

static bool lower_rows(lowering *l, cuda_kernel *k) {
  cg_body *body = l->out = ARENA_NEW(l->memory, cg_body);
  body->rank = l->rank;
  body->row = l->row;
  for (uint32_t d = 0; d < l->rank; d++) body->extents[d] = l->extents[d];
  for (uint32_t r = 0; r < l->body->n_results; r++)
    if (!add_row_output(l, r)) return false;
  return cg_write_body(&k->code, body);
}

/* Lowers all results that have the shape of result `first` as one map. */
static bool lower_map(lowering *l, uint32_t first, bool *done, cuda_kernel *k) {
  const rt_view *shape = result_view(l, first);
  uint32_t dims[IR_MAX_RANK] = {0};
  cg_body *body = l->out = ARENA_NEW(l->memory, cg_body);
  body->rank = shape->rank;
  l->memos.len = 0;
  for (uint32_t d = 0; d < shape->rank; d++) {
    body->extents[d] = shape->extents[d];
    dims[d] = d;
  }
  for (uint32_t r = first; r < l->body->n_results && !l->failed; r++) {
    const rt_view *other = result_view(l, r);
    if (done[r] || !rt_extents_same(shape->rank, shape->extents, other->rank, other->extents))
      continue;
    add_output(l, r, dims);
    done[r] = true;
  }
  return !l->failed && cg_write_body(&k->code, body);
}

static bool lower_maps(lowering *l, cuda_kernel *k) {
  bool done[CG_MAX_OUTPUTS] = {false};
  for (uint32_t r = 0; r < l->body->n_results; r++)
    if (!done[r] && !lower_map(l, r, done, k)) return false;
  return true;
}

static bool has_empty(const lowering *l) {
  for (uint32_t r = 0; r < l->body->n_results; r++)
    if (rt_view_is_empty(result_view(l, r))) return true;
  for (uint32_t i = 0; i < l->body->n_steps; i++)
    for (uint32_t d = 0; d < l->body->steps[i].results[0].rank; d++)
      if (l->body->steps[i].results[0].extents[d] == 0) return true;
  return false;
}

bool cuda_lower_body(const rt_plan *plan, const rt_task *task, arena *memory, cuda_kernel *k) {
  lowering l = {.plan = plan, .task = task, .body = task->body, .memory = memory};
  l.guard = CG_NO_NODE;
  if (task->body->n_results > CG_MAX_OUTPUTS || has_empty(&l)) return false;
  if (!(lower_find_rows(&l) ? lower_rows(&l, k) : lower_maps(&l, k))) return false;
  k->n_indexed = l.indexed.len;
  k->indexed = l.indexed.data;
  return true;
}
