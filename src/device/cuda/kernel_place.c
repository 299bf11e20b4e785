/* Operands, attributes and windows of a task. */
#include "device/cuda/kernel_place.h"

#include <string.h>

cuda_call cuda_call_of(const rt_plan *plan, const rt_task *task, cuda_kernel *kernel) {
  cuda_call c = {.plan = plan,
                 .task = task,
                 .info = ir_op_info_of(task->code),
                 .result = &plan->views[task->result],
                 .kernel = kernel};
  for (uint32_t d = 0; d < c.result->rank; d++) {
    c.offset[d] = task->offset ? task->offset[d] : 0;
    c.whole[d] = task->whole ? task->whole[d] : c.result->extents[d];
  }
  return c;
}

/* ---- operands ---- */
bool cuda_has_operand(const cuda_call *c, uint32_t k) {
  return k < c->task->n_operands && c->task->operands[k].kind != RT_OPERAND_NONE;
}

rt_view cuda_operand(const cuda_call *c, uint32_t k) {
  const rt_operand *o = &c->task->operands[k];
  check(cuda_has_operand(c, k));
  if (o->kind == RT_OPERAND_NUMBER) {
    static const int64_t none[1];
    return (rt_view){
        .dtype = o->number->is_float ? IR_F64 : IR_I64, .extents = none, .strides = none};
  }
  check(o->view < c->plan->n_views);
  return c->plan->views[o->view];
}

bool cuda_sliced(const cuda_call *c, uint32_t k, uint32_t d) {
  return c->task->operands[k].sliced >> d & 1;
}

/* ---- attributes ---- */
static const ir_param *param_of(const cuda_call *c, const char *name, uint32_t *position) {
  *position = 0;
  for (const ir_param *p = c->info->params; p->kind != IR_PARAM_END; p++) {
    if (p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS) continue;
    if (strcmp(p->name, name) == 0) return p;
    (*position)++;
  }
  impossible("an attribute of the operation");
}

const rt_attr *cuda_attr(const cuda_call *c, const char *name) {
  uint32_t position;
  (void)param_of(c, name, &position);
  return &c->task->attrs[position];
}

static double default_of(const cuda_call *c, const char *name) {
  uint32_t position;
  const ir_param *p = param_of(c, name, &position);
  check(p->use == IR_USE_DEFAULT);
  return p->value;
}

int64_t cuda_attr_int(const cuda_call *c, const char *name) {
  const rt_attr *a = cuda_attr(c, name);
  return a->given ? a->i : (int64_t)default_of(c, name);
}

ir_number cuda_attr_number(const cuda_call *c, const char *name) {
  const rt_attr *a = cuda_attr(c, name);
  if (!a->given) return ir_number_float(default_of(c, name));
  return a->is_float ? ir_number_float(a->f) : ir_number_int(a->i);
}

static uint32_t from_front(int64_t dim, uint32_t rank) {
  if (dim < 0) dim += rank;
  check(dim >= 0 && dim < rank);
  return (uint32_t)dim;
}

uint32_t cuda_attr_dim(const cuda_call *c, const char *name, uint32_t rank) {
  return from_front(cuda_attr_int(c, name), rank);
}

void cuda_attr_dims(const cuda_call *c, const char *name, uint32_t rank, bool named[IR_MAX_RANK]) {
  const rt_attr *a = cuda_attr(c, name);
  for (uint32_t i = 0; i < IR_MAX_RANK; i++) named[i] = !a->given && i < rank;
  for (uint32_t i = 0; a->given && i < a->len; i++) named[from_front(a->list[i], rank)] = true;
}

bool cuda_attr_mode(const cuda_call *c) {
  for (const ir_param *p = c->info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind == IR_PARAM_CHOICE) return cuda_attr_int(c, p->name) != 0;
  return false;
}

status cuda_fail_index(const char *op, int64_t index, uint32_t dim, int64_t n) {
  return fail(STATUS_BAD_PROGRAM, "%s: index %lld is outside axis %u, which has %lld elements", op,
              (long long)index, dim, (long long)n);
}

/* ---- views ---- */
static uint32_t alignment(int64_t offset_bytes) {
  uint32_t align = CG_ALIGN;
  while (offset_bytes % align != 0) align /= 2;
  return align;
}

cg_view cuda_place_result(const cuda_call *c) {
  const rt_view *r = c->result;
  cg_view v = {.dtype = r->dtype, .align = alignment(r->offset_bytes)};
  for (uint32_t d = 0; d < r->rank; d++) v.strides[d] = r->strides[d];
  return v;
}

cg_view cuda_place_start(const cuda_call *c, uint32_t k) {
  rt_view x = cuda_operand(c, k);
  return (cg_view){.start = k + 1, .dtype = x.dtype, .align = alignment(x.offset_bytes)};
}

cg_view cuda_place(const cuda_call *c, uint32_t k, const int *from) {
  rt_view x = cuda_operand(c, k);
  cg_view v = cuda_place_start(c, k);
  for (uint32_t d = 0; d < c->result->rank; d++) {
    if (from[d] == CUDA_NO_DIM || x.extents[from[d]] == 1) continue;
    int64_t first = cuda_sliced(c, k, d) ? 0 : c->offset[d];
    check(first + c->result->extents[d] <= x.extents[from[d]]);
    v.strides[d] = x.strides[from[d]];
    cuda_advance(&v, first * v.strides[d]);
  }
  return v;
}

void cuda_align(const cuda_call *c, uint32_t n, uint32_t dims, int from[IR_MAX_RANK]) {
  check(n <= dims && dims <= c->result->rank);
  for (uint32_t d = 0; d < IR_MAX_RANK; d++)
    from[d] = d < dims && d + n >= dims ? (int)(d + n - dims) : CUDA_NO_DIM;
}

cg_view cuda_place_aligned(const cuda_call *c, uint32_t k) {
  int from[IR_MAX_RANK];
  cuda_align(c, cuda_operand(c, k).rank, c->result->rank, from);
  return cuda_place(c, k, from);
}

cg_source cuda_source(const cuda_call *c, uint32_t k) {
  const rt_operand *o = &c->task->operands[k];
  if (o->kind == RT_OPERAND_NUMBER) return (cg_source){.kind = CG_CONSTANT, .number = *o->number};
  return (cg_source){.kind = CG_VIEW, .view = cuda_place_aligned(c, k)};
}

cg_source cuda_positions(const cuda_call *c, uint32_t cut) {
  cg_source s = {.kind = CG_POSITION, .view = {.dtype = IR_I64, .align = CG_ALIGN}};
  int64_t stride = 1;
  for (uint32_t d = c->result->rank; d-- > 0;) {
    bool counts_here = cut >> d & 1;
    s.view.strides[d] = stride;
    s.first += counts_here ? 0 : c->offset[d] * stride;
    stride *= counts_here ? c->result->extents[d] : c->whole[d];
  }
  return s;
}

cg_map cuda_map(const cuda_call *c, const char *name) {
  cg_map m = {.name = name, .rank = c->result->rank, .result = cuda_place_result(c)};
  for (uint32_t d = 0; d < m.rank; d++) m.extents[d] = c->result->extents[d];
  return m;
}
