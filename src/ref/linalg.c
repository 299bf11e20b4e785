/* matmul and linear: they sum, over the last axis of a common index space [result dims ..., k], the product
 * of two views with those extents; an axis that an operand does not have gets stride 0. */
#include <string.h>

#include "ref/internal.h"

/* A view over the root domain of the result, which is that space; all strides still 0. */
static ir_array space_view(const ref_call *c, const ir_array *x) {
  ir_axes root = ref_domains(c->state, c->op->result).root;
  ir_array view = {.dtype = x->dtype, .rank = root.len, .data = x->data};
  for (uint32_t i = 0; i < root.len; i++)
    view.extents[i] = ref_eval_scalar(c, ir_axis_size(c->state->f, root.data[i]));
  return view;
}

/* Strides of the batch axes, aligned at the last of them. */
static void batch_strides(ir_array *view, uint32_t n_batch, const ir_array *x, uint32_t n_own) {
  for (uint32_t i = 0; i < n_own; i++)
    if (x->extents[i] != 1) view->strides[n_batch - n_own + i] = x->strides[i];
}

/* a[*, m, k] and b[*, k, n] in the space [*, m, n, k]; a vector has no m, or no n. */
static ref_terms matmul_terms(const ref_call *c) {
  const ir_array *a = ref_operand(c, 0), *b = ref_operand(c, 1);
  ref_terms t = {space_view(c, a), space_view(c, b), true};
  uint32_t k = t.left.rank - 1, has_m = a->rank > 1, has_n = b->rank > 1;
  uint32_t n_batch = k - has_m - has_n, bk = has_n ? b->rank - 2 : 0;
  check(a->extents[a->rank - 1] == b->extents[bk]);
  batch_strides(&t.left, n_batch, a, a->rank - 1 - has_m);
  batch_strides(&t.right, n_batch, b, b->rank - 1 - has_n);
  if (has_m) t.left.strides[n_batch] = a->strides[a->rank - 2];
  if (has_n) t.right.strides[k - 1] = b->strides[b->rank - 1];
  t.left.strides[k] = a->strides[a->rank - 1];
  t.right.strides[k] = b->strides[bk];
  return t;
}

/* x[*, k] and weight[*w, n, k] in the space [*w, *, n, k]. */
static ref_terms linear_terms(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *w = ref_operand_named(c, "weight");
  ref_terms t = {space_view(c, x), space_view(c, w), true};
  uint32_t k = t.left.rank - 1, lead = w->rank - 2;
  check(x->extents[x->rank - 1] == w->extents[w->rank - 1]);
  for (uint32_t i = 0; i < lead; i++) t.right.strides[i] = w->strides[i];
  for (uint32_t i = 0; i + 1 < x->rank; i++) t.left.strides[lead + i] = x->strides[i];
  t.right.strides[k - 1] = w->strides[lead];
  t.left.strides[k] = x->strides[x->rank - 1];
  t.right.strides[k] = w->strides[w->rank - 1];
  return t;
}

/* bias[*w, n] in the result [*w, *, n]. */
static ir_array bias_view(const ref_call *c, const ir_array *bias) {
  ir_array view = c->result;
  view.dtype = bias->dtype;
  view.data = bias->data;
  memset(view.strides, 0, sizeof view.strides);
  for (uint32_t i = 0; i + 1 < bias->rank; i++) view.strides[i] = bias->strides[i];
  view.strides[view.rank - 1] = bias->strides[bias->rank - 1];
  return view;
}

static void add_bias(ref_fold *fold, const ir_array *bias, const int64_t *index) {
  const void *p = ir_array_at(bias, index);
  if (fold->is_float) ref_fold_f64(fold, ir_element_as_f64(bias->dtype, p));
  else ref_fold_i64(fold, ir_element_as_i64(bias->dtype, p));
}

/* One sum after the other. */
static void contract_each(const ref_call *c, const ref_terms *terms, const ir_array *bias) {
  int64_t index[IR_MAX_RANK] = {0}, k = terms->left.extents[c->result.rank];
  bool is_float = ir_dtype_is_float(c->result.dtype);
  if (ref_count(&c->result) == 0) return;
  do {
    ref_fold sum = ref_fold_start(c->state, IR_FOLD_SUM, is_float, c->result.dtype);
    for (int64_t i = 0; i < k; i++) {
      index[c->result.rank] = i;
      ref_fold_term(&sum, terms, index);
    }
    if (bias) add_bias(&sum, bias, index);
    ref_fold_store(&sum, c->result.dtype, ir_array_at(&c->result, index));
    ref_note(c, 0, ir_array_at(&c->result, index), ref_fold_noise(&sum, c->result.dtype));
  } while (ir_array_next(&c->result, index));
}

/* ---- many sums at the same time ----
 * Rows of the result, its last axis, whose right factor is the same make up a product of matrices. */
typedef struct matrices {
  const ref_call *call;
  const ref_terms *terms;
  const ir_array *bias;
  int64_t n, k;
  ref_factors f;
  double *a, *b; /* what the factors point to */
} matrices;

static double read_at(const ir_array *a, int64_t offset) {
  return ir_element_as_f64(a->dtype,
                           (char *)a->data + offset * (int64_t)ir_dtype_size_bytes(a->dtype));
}

static int64_t offset_of(const ir_array *a, const int64_t *index, uint32_t rank) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < rank; i++) offset += index[i] * a->strides[i];
  return offset;
}

/* A result without an axis along which only the right factor changes is left to contract_each(). */
static bool has_matrices(const ref_call *c, const ref_terms *t) {
  uint32_t rank = c->result.rank;
  if (!ir_dtype_is_float(c->result.dtype) || c->state->options->native_accumulate) return false;
  if (rank == 0 || ref_count(&c->result) == 0 || t->left.extents[rank] == 0) return false;
  return t->left.strides[rank - 1] == 0 && c->result.extents[rank - 1] > 1;
}

static void pack_right(const matrices *x, int64_t offset) {
  const ir_array *right = &x->terms->right;
  uint32_t rank = x->call->result.rank;
  for (int64_t k = 0; k < x->k; k++)
    for (int64_t j = 0; j < x->n; j++)
      x->b[ref_panels_at(x->k, k, j)] =
          read_at(right, offset + k * right->strides[rank] + j * right->strides[rank - 1]);
}

static void store_row(const matrices *x, int64_t row, int64_t at, int64_t *index) {
  const ref_call *c = x->call;
  uint32_t rank = c->result.rank;
  for (int64_t j = 0; j < x->n; j++) {
    void *p = ref_element(&c->result, at * x->n + j);
    double sum = x->f.sums[row * x->n + j];
    index[rank - 1] = j;
    if (x->bias) sum += ir_element_as_f64(x->bias->dtype, ir_array_at(x->bias, index));
    ir_element_set_f64(c->result.dtype, p, sum);
    if (x->f.squares)
      ref_note(c, 0, p,
               ref_sum_noise(c->result.dtype, x->f.squares[row * x->n + j] + sum * sum, x->k + 1));
  }
  index[rank - 1] = 0;
}

/* Positions of the rows in `first`, which moves on; `at` is the number of the first of them. */
static void multiply_rows(matrices *x, int64_t at, int64_t *first) {
  const ref_call *c = x->call;
  uint32_t rank = c->result.rank;
  ir_array rows = c->result;
  int64_t index[IR_MAX_RANK];
  rows.rank--;
  memcpy(index, first, sizeof index);
  for (int64_t i = 0; i < x->f.m; i++, (void)ir_array_next(&rows, index)) {
    int64_t offset = offset_of(&x->terms->left, index, rank - 1);
    for (int64_t k = 0; k < x->k; k++)
      x->a[i * x->k + k] = read_at(&x->terms->left, offset + k * x->terms->left.strides[rank]);
  }
  ref_product(&x->f, ref_threads(c));
  for (int64_t i = 0; i < x->f.m; i++, (void)ir_array_next(&rows, first))
    store_row(x, i, at + i, first);
}

enum { MOST_ROWS = 512 };

static int64_t same_right(const matrices *x, const int64_t *first, int64_t offset, int64_t most) {
  uint32_t rank = x->call->result.rank;
  ir_array rows = x->call->result;
  int64_t index[IR_MAX_RANK], n = 0;
  rows.rank--;
  memcpy(index, first, sizeof index);
  do n++;
  while (n < most && ir_array_next(&rows, index) &&
         offset_of(&x->terms->right, index, rank - 1) == offset);
  return n;
}

static void multiply_all(matrices *x) {
  const ref_call *c = x->call;
  int64_t index[IR_MAX_RANK] = {0}, n_rows = ref_count(&c->result) / x->n, packed = -1;
  for (int64_t at = 0; at < n_rows; at += x->f.m) {
    int64_t offset = offset_of(&x->terms->right, index, c->result.rank - 1);
    int64_t left = n_rows - at;
    if (offset != packed) pack_right(x, offset);
    packed = offset;
    x->f.m = same_right(x, index, offset, left < MOST_ROWS ? left : MOST_ROWS);
    multiply_rows(x, at, index);
  }
}

static double *doubles(const ref_call *c, int64_t n) {
  double *p = memory_alloc(c->state->options->memory, ((size_t)n + 1) * sizeof(double));
  if (p) memset(p, 0, ((size_t)n + 1) * sizeof(double));
  return p;
}

static status contract(const ref_call *c, const ref_terms *terms, const ir_array *bias) {
  const allocator *memory = c->state->options->memory;
  if (!has_matrices(c, terms)) {
    contract_each(c, terms, bias);
    return STATUS_OK;
  }
  uint32_t rank = c->result.rank;
  matrices x = {.call = c, .terms = terms, .bias = bias};
  x.n = c->result.extents[rank - 1];
  x.k = terms->left.extents[rank];
  int64_t n_rows = ref_count(&c->result) / x.n, rows = n_rows < MOST_ROWS ? n_rows : MOST_ROWS;
  status st = STATUS_OUT_OF_MEMORY;
  x.f = (ref_factors){.n = x.n, .k = x.k};
  if (!(x.a = doubles(c, rows * x.k))) goto out;
  if (!(x.b = doubles(c, ref_panels_count(x.n, x.k)))) goto out;
  if (!(x.f.sums = doubles(c, rows * x.n))) goto out;
  if (c->noise[0] && !(x.f.squares = doubles(c, rows * x.n))) goto out;
  x.f.a = x.a;
  x.f.b = x.b;
  multiply_all(&x);
  st = STATUS_OK;
out:
  memory_free(memory, x.a);
  memory_free(memory, x.b);
  memory_free(memory, x.f.sums);
  memory_free(memory, x.f.squares);
  return st;
}

status ref_matmul(const ref_call *c) {
  ref_terms terms = matmul_terms(c);
  if (ref_is_partial(c)) return ref_reduce_partial(c, &terms);
  return contract(c, &terms, NULL);
}

status ref_linear(const ref_call *c) {
  const ir_array *given = ref_operand_named(c, "bias");
  ref_terms terms = linear_terms(c);
  ir_array bias;
  if (ref_is_partial(c)) return ref_reduce_partial(c, &terms);
  if (given) bias = bias_view(c, given);
  return contract(c, &terms, given ? &bias : NULL);
}
