/* From a task to a kernel: operands, attributes, windows, and the table of families. */
#include <string.h>

#include "base/table.h"
#include "device/cpu/kernel_internal.h"

/* ---- operands ---- */
bool cpu_has_operand(const cpu_call *c, uint32_t k) {
  return k < c->task->n_operands && c->task->operands[k].kind != RT_OPERAND_NONE;
}

rt_view cpu_operand(const cpu_call *c, uint32_t k) {
  const rt_operand *o = &c->task->operands[k];
  check(cpu_has_operand(c, k));
  if (o->kind == RT_OPERAND_NUMBER) {
    static const int64_t none[1];
    ir_dtype dtype = o->number->is_float ? IR_F64 : IR_I64;
    return (rt_view){.dtype = dtype, .extents = none, .strides = none};
  }
  check(o->view < c->plan->n_views);
  rt_view v = c->plan->views[o->view];
  v.buffer = k + 1;
  v.offset_bytes = 0;
  return v;
}

bool cpu_sliced(const cpu_call *c, uint32_t k, uint32_t d) {
  return c->task->operands[k].sliced >> d & 1;
}

/* ---- attributes ---- */
static const ir_param *param_of(const cpu_call *c, const char *name, uint32_t *position) {
  *position = 0;
  for (const ir_param *p = c->info->params; p->kind != IR_PARAM_END; p++) {
    if (p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS) continue;
    if (strcmp(p->name, name) == 0) return p;
    (*position)++;
  }
  impossible("an attribute of the operation");
}

const rt_attr *cpu_attr(const cpu_call *c, const char *name) {
  uint32_t position;
  (void)param_of(c, name, &position);
  return &c->task->attrs[position];
}

static double default_of(const cpu_call *c, const char *name) {
  uint32_t position;
  const ir_param *p = param_of(c, name, &position);
  check(p->use == IR_USE_DEFAULT);
  return p->value;
}

int64_t cpu_attr_int(const cpu_call *c, const char *name) {
  const rt_attr *a = cpu_attr(c, name);
  return a->given ? a->i : (int64_t)default_of(c, name);
}

ir_number cpu_attr_number(const cpu_call *c, const char *name) {
  const rt_attr *a = cpu_attr(c, name);
  if (!a->given) return ir_number_float(default_of(c, name));
  return a->is_float ? ir_number_float(a->f) : ir_number_int(a->i);
}

static uint32_t from_front(int64_t dim, uint32_t rank) {
  if (dim < 0) dim += rank;
  check(dim >= 0 && dim < rank);
  return (uint32_t)dim;
}

uint32_t cpu_attr_dim(const cpu_call *c, const char *name, uint32_t rank) {
  return from_front(cpu_attr_int(c, name), rank);
}

void cpu_attr_dims(const cpu_call *c, const char *name, uint32_t rank, bool named[IR_MAX_RANK]) {
  const rt_attr *a = cpu_attr(c, name);
  for (uint32_t i = 0; i < IR_MAX_RANK; i++) named[i] = !a->given && i < rank;
  for (uint32_t i = 0; a->given && i < a->len; i++) named[from_front(a->list[i], rank)] = true;
}

status cpu_fail_index(const char *op, int64_t index, uint32_t dim, int64_t n) {
  return fail(STATUS_BAD_PROGRAM, "%s: index %lld is outside axis %u, which has %lld elements", op,
              (long long)index, dim, (long long)n);
}

/* ---- views ---- */
cpu_element cpu_element_of(ir_dtype t, ir_number n) {
  cpu_element e = {.i = 0};
  if (n.is_float) ir_element_set_f64(t, e.bytes, n.f);
  else ir_element_set_i64(t, e.bytes, n.i);
  return e;
}

cpu_view cpu_place_result(const cpu_call *c) {
  const rt_view *r = c->result;
  cpu_view v = {.dtype = r->dtype};
  for (uint32_t d = 0; d < r->rank; d++) v.strides[d] = r->strides[d];
  return v;
}

cpu_view cpu_place_start(const cpu_call *c, uint32_t k) {
  rt_view x = cpu_operand(c, k);
  cpu_view v = {.start = x.buffer, .dtype = x.dtype};
  const rt_operand *o = &c->task->operands[k];
  if (o->kind == RT_OPERAND_NUMBER) {
    cpu_element e = cpu_element_of(x.dtype, *o->number);
    v.constant = arena_copy(c->memory, &e, sizeof e);
  }
  return v;
}

cpu_view cpu_place(const cpu_call *c, uint32_t k, const int *from) {
  rt_view x = cpu_operand(c, k);
  cpu_view v = cpu_place_start(c, k);
  for (uint32_t d = 0; d < c->result->rank; d++) {
    if (from[d] == CPU_NO_DIM || x.extents[from[d]] == 1) continue;
    int64_t first = cpu_sliced(c, k, d) ? 0 : c->offset[d];
    check(first + c->result->extents[d] <= x.extents[from[d]]);
    v.strides[d] = x.strides[from[d]];
    cpu_view_advance(&v, first * v.strides[d]);
  }
  return v;
}

void cpu_align(const cpu_call *c, uint32_t n, uint32_t dims, int from[IR_MAX_RANK]) {
  check(n <= dims && dims <= c->result->rank);
  for (uint32_t d = 0; d < IR_MAX_RANK; d++)
    from[d] = d < dims && d + n >= dims ? (int)(d + n - dims) : CPU_NO_DIM;
}

cpu_view cpu_place_aligned(const cpu_call *c, uint32_t k) {
  int from[IR_MAX_RANK];
  cpu_align(c, cpu_operand(c, k).rank, c->result->rank, from);
  return cpu_place(c, k, from);
}

int64_t cpu_place_numbers(const cpu_call *c, uint32_t cut, cpu_view *numbers) {
  int64_t stride = 1, first = 0;
  *numbers = (cpu_view){.dtype = IR_U8};
  for (uint32_t d = c->result->rank; d-- > 0;) {
    bool counts_here = cut >> d & 1;
    numbers->strides[d] = stride;
    first += counts_here ? 0 : c->offset[d] * stride;
    stride *= counts_here ? c->result->extents[d] : c->whole[d];
  }
  return first;
}

/* ---- kernels ---- */
void *cpu_kernel_new(const cpu_call *c, size_t size_bytes,
                     status (*run)(const cpu_kernel *, char *const *, char *)) {
  cpu_kernel *k = arena_alloc(c->memory, size_bytes);
  k->run = run;
  k->name = c->info->name;
  return k;
}

static status run_nothing(const cpu_kernel *k, char *const *starts, char *scratch) {
  (void)k, (void)starts, (void)scratch;
  return STATUS_OK;
}

static cpu_prepare_fn *family_prepare(ir_family family) {
  switch (family) {
  case IR_FAMILY_POINTWISE: return cpu_prepare_map;
  case IR_FAMILY_REDUCE: return cpu_prepare_reduce;
  case IR_FAMILY_MOMENT: return cpu_prepare_moment;
  case IR_FAMILY_SCAN: return cpu_prepare_scan;
  case IR_FAMILY_SORT:
  case IR_FAMILY_TOPK: return cpu_prepare_sort;
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST:
  case IR_FAMILY_BROADCAST:
  case IR_FAMILY_SQUEEZE:
  case IR_FAMILY_EXPAND:
  case IR_FAMILY_PERMUTE:
  case IR_FAMILY_SLICE:
  case IR_FAMILY_SELECT: return cpu_prepare_copy;
  case IR_FAMILY_RESHAPE: return cpu_prepare_reshape;
  case IR_FAMILY_PAD: return cpu_prepare_pad;
  case IR_FAMILY_CAT: return cpu_prepare_cat;
  case IR_FAMILY_MAKER: return cpu_prepare_maker;
  case IR_FAMILY_GATHER: return cpu_prepare_gather;
  case IR_FAMILY_SCATTER: return cpu_prepare_scatter;
  case IR_FAMILY_INDEX_SELECT: return cpu_prepare_index_select;
  case IR_FAMILY_ONE_HOT: return cpu_prepare_one_hot;
  case IR_FAMILY_MATMUL: return cpu_prepare_matmul;
  case IR_FAMILY_LINEAR: return cpu_prepare_linear;
  case IR_FAMILY_SOFTMAX: return cpu_prepare_softmax;
  case IR_FAMILY_NORM: return cpu_prepare_norm;
  case IR_FAMILY_SDPA: return cpu_prepare_sdpa;
  }
  impossible("a family of operations");
}

static cpu_call call_of(const rt_plan *plan, const rt_task *task, arena *memory) {
  cpu_call c = {.plan = plan,
                .task = task,
                .info = ir_op_info_of(task->code),
                .memory = memory,
                .result = &plan->views[task->result]};
  for (uint32_t d = 0; d < c.result->rank; d++) {
    c.offset[d] = task->offset ? task->offset[d] : 0;
    c.whole[d] = task->whole ? task->whole[d] : c.result->extents[d];
  }
  return c;
}

static bool is_empty(const rt_view *v) {
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->extents[d] == 0) return true;
  return false;
}

status cpu_kernel_prepare(const rt_plan *plan, const rt_task *task, arena *memory,
                          const cpu_kernel **result) {
  cpu_call c = call_of(plan, task, memory);
  cpu_kernel *k;
  if (is_empty(c.result)) k = cpu_kernel_new(&c, sizeof *k, run_nothing);
  else TRY(family_prepare(c.info->family)(&c, &k));
  *result = k;
  return STATUS_OK;
}

/* ---- sharing ---- */
static bool equal_views(const rt_view *a, const rt_view *b) {
  return a->dtype == b->dtype && a->rank == b->rank && a->extents == b->extents &&
         a->strides == b->strides;
}

static bool equal_operands(const rt_plan *plan, const rt_operand *a, const rt_operand *b) {
  if (a->kind != b->kind || a->sliced != b->sliced) return false;
  switch (a->kind) {
  case RT_OPERAND_NONE: return true;
  case RT_OPERAND_VIEW: return equal_views(&plan->views[a->view], &plan->views[b->view]);
  case RT_OPERAND_NUMBER: return ir_number_same(*a->number, *b->number);
  }
  return false;
}

bool cpu_kernel_equal(const rt_plan *plan, const rt_task *a, const rt_task *b) {
  if (a->code != b->code || a->compute != b->compute || a->n_operands != b->n_operands ||
      a->attrs != b->attrs || a->offset != b->offset || a->whole != b->whole ||
      !equal_views(&plan->views[a->result], &plan->views[b->result]))
    return false;
  for (uint32_t k = 0; k < a->n_operands; k++)
    if (!equal_operands(plan, &a->operands[k], &b->operands[k])) return false;
  return true;
}

static uint64_t hash_view(uint64_t hash, const rt_view *v) {
  hash = hash_mix(hash, (uint64_t)v->dtype << 8 | v->rank);
  return hash_mix(hash_mix(hash, (uintptr_t)v->extents), (uintptr_t)v->strides);
}

uint64_t cpu_kernel_hash(const rt_plan *plan, const rt_task *task) {
  uint64_t hash = hash_mix(hash_mix(0, (uint64_t)task->code), (uintptr_t)task->attrs);
  hash = hash_mix(hash_mix(hash, (uintptr_t)task->offset), (uintptr_t)task->whole);
  hash = hash_view(hash, &plan->views[task->result]);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    const rt_operand *o = &task->operands[k];
    if (o->kind == RT_OPERAND_VIEW)
      hash = hash_view(hash_mix(hash, o->sliced), &plan->views[o->view]);
    if (o->kind == RT_OPERAND_NUMBER) hash = hash_mix(hash, (uint64_t)o->number->i);
  }
  return hash;
}

/* ---- running ---- */
size_t cpu_kernel_scratch_bytes(const cpu_kernel *k) { return k->scratch_bytes; }

status cpu_kernel_run(const cpu_kernel *k, char *const *starts, void *scratch) {
  return k->run(k, starts, scratch);
}
