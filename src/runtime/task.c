#include "runtime/task.h"

#include <string.h>

#include "base/table.h"

/* ---- operands ---- */
bool rt_task_has_operand(const rt_task *t, uint32_t k) {
  return k < t->n_operands && t->operands[k].kind != RT_OPERAND_NONE;
}

rt_view rt_task_operand(const rt_plan *plan, const rt_task *t, uint32_t k) {
  const rt_operand *o = &t->operands[k];
  check(rt_task_has_operand(t, k));
  if (o->kind == RT_OPERAND_NUMBER) {
    static const int64_t none[1];
    ir_dtype dtype = o->number->is_float ? IR_F64 : IR_I64;
    return (rt_view){.dtype = dtype, .extents = none, .strides = none};
  }
  check(o->view < plan->n_views);
  return plan->views[o->view];
}

bool rt_task_sliced(const rt_task *t, uint32_t k, uint32_t d) {
  return t->operands[k].sliced >> d & 1;
}

bool rt_task_is_empty(const rt_plan *plan, const rt_task *t) {
  for (uint32_t k = 0; k < rt_task_n_results(t); k++)
    if (!rt_view_is_empty(&plan->views[rt_task_result(t, k)])) return false;
  return true;
}

/* ---- attributes ---- */
static const ir_param *param_of(const rt_task *t, const char *name, uint32_t *position) {
  *position = 0;
  for (const ir_param *p = ir_op_info_of(t->code)->params; p->kind != IR_PARAM_END; p++) {
    if (p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS) continue;
    if (strcmp(p->name, name) == 0) return p;
    (*position)++;
  }
  impossible("an attribute of the operation");
}

const rt_attr *rt_task_attr(const rt_task *t, const char *name) {
  uint32_t position;
  (void)param_of(t, name, &position);
  return &t->attrs[position];
}

static double default_of(const rt_task *t, const char *name) {
  uint32_t position;
  const ir_param *p = param_of(t, name, &position);
  check(p->use == IR_USE_DEFAULT);
  return p->value;
}

int64_t rt_task_int(const rt_task *t, const char *name) {
  const rt_attr *a = rt_task_attr(t, name);
  return a->given ? a->i : (int64_t)default_of(t, name);
}

ir_number rt_task_number(const rt_task *t, const char *name) {
  const rt_attr *a = rt_task_attr(t, name);
  if (!a->given) return ir_number_float(default_of(t, name));
  return a->is_float ? ir_number_float(a->f) : ir_number_int(a->i);
}

static uint32_t from_front(int64_t dim, uint32_t rank) {
  if (dim < 0) dim += rank;
  check(dim >= 0 && dim < rank);
  return (uint32_t)dim;
}

uint32_t rt_task_dim(const rt_task *t, const char *name, uint32_t rank) {
  return from_front(rt_task_int(t, name), rank);
}

void rt_task_dims(const rt_task *t, const char *name, uint32_t rank, bool named[IR_MAX_RANK]) {
  const rt_attr *a = rt_task_attr(t, name);
  for (uint32_t i = 0; i < IR_MAX_RANK; i++) named[i] = !a->given && i < rank;
  for (uint32_t i = 0; a->given && i < a->len; i++) named[from_front(a->list[i], rank)] = true;
}

/* ---- views of one operand ---- */
static void from_broadcast(const rt_task *t, int *from) {
  const rt_attr *axes = rt_task_attr(t, "axes");
  int next = 0;
  for (uint32_t i = 0; i < axes->len; i++) from[i] = axes->list[i] ? RT_NO_DIM : next++;
}

static void from_squeeze(const rt_task *t, uint32_t rank, int *from) {
  bool dropped[IR_MAX_RANK];
  rt_task_dims(t, "dims", rank, dropped);
  for (uint32_t i = 0, d = 0; i < rank; i++)
    if (!dropped[i]) from[d++] = (int)i;
}

static void from_permute(const rt_task *t, uint32_t rank, int *from) {
  for (uint32_t i = 0; i < rank; i++) from[i] = (int)i;
  if (t->code == IR_OP_TRANSPOSE) {
    from[rank - 2] = (int)rank - 1;
    from[rank - 1] = (int)rank - 2;
    return;
  }
  const rt_attr *order = rt_task_attr(t, "order");
  for (uint32_t i = 0; i < rank; i++) from[i] = (int)from_front(order->list[i], rank);
}

bool rt_task_moves_dims(const rt_task *t) {
  ir_family f = ir_op_info_of(t->code)->family;
  return f == IR_FAMILY_BROADCAST || f == IR_FAMILY_SQUEEZE || f == IR_FAMILY_PERMUTE;
}

void rt_task_from(const rt_task *t, uint32_t rank, int from[IR_MAX_RANK]) {
  ir_family family = ir_op_info_of(t->code)->family;
  if (family == IR_FAMILY_BROADCAST) {
    from_broadcast(t, from);
  } else if (family == IR_FAMILY_SQUEEZE) {
    from_squeeze(t, rank, from);
  } else if (family == IR_FAMILY_SELECT) {
    uint32_t dim = rt_task_dim(t, "dim", rank);
    for (uint32_t d = 0; d + 1 < rank; d++) from[d] = (int)(d < dim ? d : d + 1);
  } else {
    check(family == IR_FAMILY_PERMUTE);
    from_permute(t, rank, from);
  }
}

status rt_task_selected(const rt_task *t, const rt_view *x, uint32_t *dim, int64_t *index) {
  *dim = rt_task_dim(t, "dim", x->rank);
  *index = rt_task_int(t, "index");
  int64_t n = x->extents[*dim];
  if (*index < 0) *index += n;
  if (*index >= 0 && *index < n) return STATUS_OK;
  return rt_fail_index(ir_op_info_of(t->code)->name, *index, *dim, n);
}

static int64_t clamp_start(int64_t start, int64_t n) {
  if (start < 0) start += n;
  if (start < 0) return 0;
  return start > n ? n : start;
}

int64_t rt_task_slice_step(const rt_task *t, uint32_t d) {
  const rt_attr *steps = rt_task_attr(t, "steps");
  return rt_task_sliced(t, 0, d) || !steps->given ? 1 : steps->list[d];
}

int64_t rt_task_slice_start(const rt_task *t, const rt_view *x, uint32_t d, int64_t offset) {
  if (rt_task_sliced(t, 0, d)) return 0;
  int64_t start = clamp_start(rt_task_attr(t, "starts")->list[d], x->extents[d]);
  return start + offset * rt_task_slice_step(t, d);
}

static status fail_lengths(const char *op, int64_t sum, int64_t n) {
  if (sum < 0)
    return fail(STATUS_BAD_PROGRAM, "%s: a length is negative, %lld", op, (long long)sum);
  return fail(STATUS_BAD_PROGRAM, "%s: the lengths add up to %lld or more, and there are %lld rows",
              op, (long long)sum, (long long)n);
}

status rt_fail_index(const char *op, int64_t index, uint32_t dim, int64_t n) {
  if (strcmp(op, "group_index") == 0) return fail_lengths(op, index, n - 1);
  if (strcmp(op, "grouped_matmul") == 0 || strcmp(op, "grouped_outer") == 0)
    return fail(STATUS_BAD_PROGRAM, "%s: index %lld is not in 0 to %lld, for %lld groups", op,
                (long long)index, (long long)n - 1, (long long)n - 1);
  if (strcmp(op, "update") == 0)
    return fail(STATUS_BAD_PROGRAM, "%s: position %lld along axis %u is not in 0 to %lld", op,
                (long long)index, dim, (long long)n - 1);
  return fail(STATUS_BAD_PROGRAM, "%s: index %lld is outside axis %u, which has %lld elements", op,
              (long long)index, dim, (long long)n);
}

/* ---- sharing ---- */
static bool equal_views(const rt_view *a, const rt_view *b, int64_t modulus) {
  return a->dtype == b->dtype && a->rank == b->rank && a->extents == b->extents &&
         a->strides == b->strides && (a->offset_bytes - b->offset_bytes) % modulus == 0 &&
         (a->step_bytes - b->step_bytes) % modulus == 0;
}

static bool equal_operands(const rt_plan *plan, const rt_operand *a, const rt_operand *b,
                           int64_t modulus) {
  if (a->kind != b->kind || a->sliced != b->sliced) return false;
  switch (a->kind) {
  case RT_OPERAND_NONE: return true;
  case RT_OPERAND_VIEW: return equal_views(&plan->views[a->view], &plan->views[b->view], modulus);
  case RT_OPERAND_NUMBER: return ir_number_same(*a->number, *b->number);
  }
  return false;
}

/* Do the same operands share their buffers with the same results? Kernels of bodies ask for that. */
static bool equal_places(const rt_plan *plan, const rt_task *a, const rt_task *b) {
  const rt_view *views = plan->views;
  for (uint32_t r = 0; a->body && r < rt_task_n_results(a); r++)
    for (uint32_t k = 0; k < a->n_operands; k++) {
      bool in_a = views[rt_task_result(a, r)].buffer == views[a->operands[k].view].buffer;
      bool in_b = views[rt_task_result(b, r)].buffer == views[b->operands[k].view].buffer;
      if (in_a != in_b) return false;
    }
  return true;
}

/* Equal lists of a bound plan have one address. */
bool rt_task_equal(const rt_plan *plan, const rt_task *a, const rt_task *b, int64_t modulus_bytes) {
  if (a->code != b->code || a->compute != b->compute || a->n_operands != b->n_operands ||
      a->attrs != b->attrs || a->offset != b->offset || a->whole != b->whole ||
      a->n_more != b->n_more || !rt_body_equal(a->body, b->body))
    return false;
  for (uint32_t k = 0; k < rt_task_n_results(a); k++)
    if (!equal_views(&plan->views[rt_task_result(a, k)], &plan->views[rt_task_result(b, k)],
                     modulus_bytes))
      return false;
  for (uint32_t k = 0; k < a->n_operands; k++)
    if (!equal_operands(plan, &a->operands[k], &b->operands[k], modulus_bytes)) return false;
  return equal_places(plan, a, b);
}

static uint64_t hash_view(uint64_t hash, const rt_view *v, int64_t modulus) {
  hash = hash_mix(hash, (uint64_t)v->dtype << 8 | v->rank);
  hash = hash_mix(hash, (uint64_t)v->offset_bytes % (uint64_t)modulus);
  hash = hash_mix(hash, (uint64_t)v->step_bytes % (uint64_t)modulus);
  return hash_mix(hash_mix(hash, (uintptr_t)v->extents), (uintptr_t)v->strides);
}

uint64_t rt_task_hash(const rt_plan *plan, const rt_task *t, int64_t modulus_bytes) {
  uint64_t hash = hash_mix(hash_mix(0, (uint64_t)t->code), (uintptr_t)t->attrs);
  hash = hash_mix(hash_mix(hash, (uintptr_t)t->offset), (uintptr_t)t->whole);
  if (t->body) hash = hash_mix(hash, rt_body_hash(t->body));
  for (uint32_t k = 0; k < rt_task_n_results(t); k++)
    hash = hash_view(hash, &plan->views[rt_task_result(t, k)], modulus_bytes);
  for (uint32_t k = 0; k < t->n_operands; k++) {
    const rt_operand *o = &t->operands[k];
    if (o->kind == RT_OPERAND_VIEW)
      hash = hash_view(hash_mix(hash, o->sliced), &plan->views[o->view], modulus_bytes);
    if (o->kind == RT_OPERAND_NUMBER) hash = hash_mix(hash, (uint64_t)o->number->i);
  }
  return hash;
}
