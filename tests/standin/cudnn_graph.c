/* What the stand-in for cuDNN computes: any graph of products, pointwise operations, reductions and
 * reshapes, node by node on the CPU; and what the library refuses, or gets wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/dtype.h"
#include "standin/cudnn.h"
#include "standin/standin.h"

/* ---- elements ---- */
static ir_dtype dtype_of(int dtype) {
  switch (dtype) {
  case DNN_DATA_HALF: return IR_F16;
  case DNN_DATA_BFLOAT16: return IR_BF16;
  case DNN_DATA_INT32: return IR_I32;
  case DNN_DATA_BOOLEAN: return IR_BOOL;
  default: return IR_F32;
  }
}

size_t tensor_size(const tensor *t) { return ir_dtype_size_bytes(dtype_of(t->dtype)); }

int64_t tensor_reach(const tensor *t) {
  int64_t last = 0;
  for (int i = 0; i < 4; i++) last += (t->dims[i] - 1) * t->strides[i];
  return last + 1;
}

static bool is_half(const tensor *t) {
  return t->dtype == DNN_DATA_HALF || t->dtype == DNN_DATA_BFLOAT16;
}

typedef struct running {
  const program *p;
  void *at[MOST_TENSORS];
  bool ready[MOST_TENSORS];
} running;

/* A dimension of 1 repeats; heads of keys serve a group. */
static int64_t offset_of(const tensor *t, const int64_t index[4], const int64_t dims[4]) {
  int64_t offset = 0;
  for (int i = 0; i < 4; i++) {
    int64_t group = t->dims[i] == 0 ? 1 : dims[i] / t->dims[i];
    offset += (group > 1 ? index[i] / group : index[i]) * t->strides[i];
  }
  return offset;
}

static double load(const running *r, int which, int64_t offset) {
  const tensor *t = &r->p->tensors[which];
  const char *base = r->at[which];
  ir_dtype d = dtype_of(t->dtype);
  const void *p = base + offset * (int64_t)tensor_size(t);
  return ir_dtype_is_float(d) ? ir_element_as_f64(d, p) : (double)ir_element_as_i64(d, p);
}

static void store(const running *r, int which, int64_t offset, double x) {
  const tensor *t = &r->p->tensors[which];
  char *base = r->at[which];
  ir_dtype d = dtype_of(t->dtype);
  void *p = base + offset * (int64_t)tensor_size(t);
  if (ir_dtype_is_float(d)) ir_element_set_f64(d, p, x);
  else ir_element_set_i64(d, p, (int64_t)x);
}

static bool next(int64_t index[4], const int64_t dims[4]) {
  for (int i = 4; i-- > 0;) {
    if (++index[i] < dims[i]) return true;
    index[i] = 0;
  }
  return false;
}

/* ---- nodes ---- */
static int64_t length(const running *r, int which, int64_t batch, int64_t all) {
  if (which == NONE) return all;
  const tensor *t = &r->p->tensors[which];
  return (int64_t)load(r, which, t->dims[0] == 1 ? 0 : batch * t->strides[0]);
}

static void run_matmul(const running *r, const node *n) {
  const tensor *a = &r->p->tensors[n->x], *b = &r->p->tensors[n->b], *y = &r->p->tensors[n->y];
  int64_t i[4] = {0};
  do {
    int64_t m = length(r, n->cut_m, i[0], y->dims[2]), w = length(r, n->cut_n, i[0], y->dims[3]);
    int64_t k = length(r, n->cut_k, i[0], a->dims[3]);
    int64_t row[4] = {i[0], i[1], i[2], 0}, column[4] = {i[0], i[1], 0, i[3]};
    int64_t rows[4] = {y->dims[0], y->dims[1], y->dims[2], a->dims[3]};
    int64_t columns[4] = {y->dims[0], y->dims[1], b->dims[2], y->dims[3]};
    int64_t x = offset_of(a, row, rows), z = offset_of(b, column, columns);
    double sum = 0;
    for (int64_t e = 0; e < k && i[2] < m && i[3] < w; e++)
      sum += load(r, n->x, x + e * a->strides[3]) * load(r, n->b, z + e * b->strides[2]);
    store(r, n->y, offset_of(y, i, y->dims), (double)(float)sum);
  } while (next(i, y->dims));
}

static double pointwise(int mode, double x, double b, double t, int64_t position) {
  switch (mode) {
  case DNN_POINTWISE_ADD: return x + b;
  case DNN_POINTWISE_SUB: return x - b;
  case DNN_POINTWISE_MUL: return x * b;
  case DNN_POINTWISE_DIV: return x / b;
  case DNN_POINTWISE_EXP: return exp(x);
  case DNN_POINTWISE_LOG: return log(x);
  case DNN_POINTWISE_IDENTITY: return x;
  case DNN_POINTWISE_CMP_GE: return x >= b;
  case DNN_POINTWISE_CMP_LT: return x < b;
  case DNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
  case DNN_POINTWISE_GEN_INDEX: return (double)position;
  case DNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
  default: standin_misuse("cudnn: a pointwise operation that is not modelled"); return 0;
  }
}

static double operand(const running *r, int which, const int64_t i[4], const int64_t dims[4]) {
  return which == NONE ? 0 : load(r, which, offset_of(&r->p->tensors[which], i, dims));
}

static void run_pointwise(const running *r, const node *n) {
  const tensor *y = &r->p->tensors[n->y];
  int64_t i[4] = {0};
  do {
    double x = operand(r, n->x, i, y->dims), b = operand(r, n->b, i, y->dims);
    double t = operand(r, n->t, i, y->dims);
    int64_t at = n->axis == NONE ? 0 : i[n->axis];
    store(r, n->y, offset_of(y, i, y->dims), pointwise(n->mode, x, b, t, at));
  } while (next(i, y->dims));
}

/* Each dimension of y is one of x, 1, or a number of groups. Sums are kept in f32, as given. */
static void run_reduction(const running *r, const node *n) {
  const tensor *x = &r->p->tensors[n->x], *y = &r->p->tensors[n->y];
  bool is_max = n->mode == DNN_REDUCE_TENSOR_MAX;
  int64_t i[4] = {0}, j[4] = {0}, count = tensor_reach(y);
  double *sums = malloc((size_t)count * sizeof *sums);
  if (!sums) abort();
  for (int64_t k = 0; k < count; k++) sums[k] = is_max ? -(double)INFINITY : 0;
  do {
    double v = load(r, n->x, offset_of(x, i, x->dims)), *to = &sums[offset_of(y, i, x->dims)];
    if (!is_max) *to += v;
    else if (v > *to || v != v) *to = v;
  } while (next(i, x->dims));
  do store(r, n->y, offset_of(y, j, y->dims), sums[offset_of(y, j, y->dims)]);
  while (next(j, y->dims));
  free(sums);
}

/* The same memory, looked at with other strides; the dtype may be another one. */
static void run_reshape(const running *r, const node *n) {
  const tensor *y = &r->p->tensors[n->y];
  int64_t i[4] = {0};
  do {
    int64_t offset = offset_of(y, i, y->dims);
    store(r, n->y, offset, load(r, n->x, offset));
  } while (next(i, y->dims));
}

static void run_node(const running *r, const node *n) {
  switch (n->kind) {
  case MATMUL: run_matmul(r, n); return;
  case POINTWISE: run_pointwise(r, n); return;
  case REDUCTION: run_reduction(r, n); return;
  case RESHAPE: run_reshape(r, n); return;
  }
}

/* ---- all of it ---- */
static bool can_run(const running *r, const node *n) {
  const int inputs[] = {n->x, n->b, n->t, n->cut_m, n->cut_n, n->cut_k};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (inputs[i] != NONE && !r->ready[inputs[i]]) return false;
  return true;
}

static bool is_output(const program *p, uint32_t which) {
  for (uint32_t n = 0; n < p->n_nodes; n++)
    if (p->nodes[n].y == (int)which) return true;
  return false;
}

static void scramble_all(const running *r) {
  int64_t i[4] = {0};
  for (uint32_t t = 0; t < r->p->n_tensors; t++) {
    const tensor *x = &r->p->tensors[t];
    if (x->is_virtual || x->by_value || !is_output(r->p, t)) continue;
    do store(r, (int)t, offset_of(x, i, x->dims), 4242);
    while (next(i, x->dims));
  }
}

void program_run(const program *p, void *const *at, bool scramble) {
  running r = {.p = p};
  bool done[MOST_NODES] = {false};
  for (uint32_t t = 0; t < p->n_tensors; t++) {
    const tensor *x = &p->tensors[t];
    r.ready[t] = !is_output(p, t);
    r.at[t] = x->is_virtual ? calloc((size_t)tensor_reach(x), tensor_size(x)) : at[t];
    if (!r.at[t]) abort();
  }
  if (scramble) scramble_all(&r);
  for (uint32_t left = p->n_nodes, before = left + 1; !scramble && left > 0 && left < before;) {
    before = left;
    for (uint32_t n = 0; n < p->n_nodes; n++) {
      if (done[n] || !can_run(&r, &p->nodes[n])) continue;
      run_node(&r, &p->nodes[n]);
      r.ready[p->nodes[n].y] = done[n] = true;
      left--;
    }
  }
  for (uint32_t t = 0; t < p->n_tensors; t++)
    if (p->tensors[t].is_virtual) free(r.at[t]);
}

/* ---- what the library refuses, and what it gets wrong ---- */
enum { UNIT = 8 };

static const char *refuse_product(const program *p, const node *n) {
  const tensor *a = &p->tensors[n->x], *b = &p->tensors[n->b], *y = &p->tensors[n->y];
  bool is_scores = !a->is_virtual && !b->is_virtual;
  if (a->dims[3] != b->dims[2] || a->dims[2] != y->dims[2] || b->dims[3] != y->dims[3])
    return "a product whose matrices do not fit";
  if (is_scores && a->dims[3] % UNIT) return "the width is not a multiple of 8";
  if (!y->is_virtual && is_half(y) && y->dims[3] % UNIT) return "the width is not a multiple of 8";
  if (is_scores && (!is_half(a) || !is_half(b))) return "operands that are not of 16 bits";
  if (is_scores && b->dims[2] > 1 && b->strides[2] != 1)
    standin_misuse("cudnn: a width that is not innermost crashes the library");
  return NULL;
}

const char *program_refusal(const program *p) {
  bool has_max = false;
  for (uint32_t i = 0; i < p->n_nodes; i++)
    has_max |= p->nodes[i].kind == REDUCTION && p->nodes[i].mode == DNN_REDUCE_TENSOR_MAX;
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const node *n = &p->nodes[i];
    if (n->kind != MATMUL) continue;
    const char *why = refuse_product(p, n);
    if (why) return why;
    const tensor *a = &p->tensors[n->x];
    if (has_max && a->is_virtual && !is_half(a)) return "shares that are not of 16 bits";
  }
  return NULL;
}

/* Strides but the innermost must be multiples of 8. That an input repeats was tried for batches of keys
 * only, which are those with the fewer heads or a transposed view. */
bool program_is_wrong(const program *p) {
  for (uint32_t t = 0; t < p->n_tensors; t++) {
    const tensor *x = &p->tensors[t];
    if (x->is_virtual || x->by_value || !is_half(x)) continue;
    int inner = x->strides[3] == 1 ? 3 : 2;
    if (x->strides[inner] != 1) standin_misuse("cudnn: a width that is not innermost");
    for (int i = 0; i < 4; i++) {
      if (i == inner) continue;
      if (x->strides[i] % UNIT) return true;
      if (x->strides[i] == 0 && (i > 0 || is_output(p, t)))
        standin_misuse("cudnn: a tensor that repeats along dimension %d", i);
    }
  }
  return false;
}
