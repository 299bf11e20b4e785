/* matmul, linear, grouped_matmul and grouped_outer: they sum, over the last axis of a common index
 * space [result dims ..., k], the product of two views with those extents; an axis that an operand
 * does not have gets stride 0. */
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
  ref_terms t = {.left = space_view(c, a), .right = space_view(c, b), .has_right = true};
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
  ref_terms t = {.left = space_view(c, x), .right = space_view(c, w), .has_right = true};
  uint32_t k = t.left.rank - 1, lead = w->rank - 2;
  check(x->extents[x->rank - 1] == w->extents[w->rank - 1]);
  for (uint32_t i = 0; i < lead; i++) t.right.strides[i] = w->strides[i];
  for (uint32_t i = 0; i + 1 < x->rank; i++) t.left.strides[lead + i] = x->strides[i];
  t.right.strides[k - 1] = w->strides[lead];
  t.left.strides[k] = x->strides[x->rank - 1];
  t.right.strides[k] = w->strides[w->rank - 1];
  return t;
}

/* x[*, m, k], weight[*, g, k, n] and index[*, m] in the space [*, m, n, k]. */
static ref_terms grouped_terms(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *w = ref_operand_named(c, "weight");
  const ir_array *index = ref_operand_named(c, "index");
  ref_terms t = {.left = space_view(c, x), .right = space_view(c, w), .has_right = true};
  uint32_t k = t.left.rank - 1, n_batch = k - 2;
  t.group = space_view(c, index);
  batch_strides(&t.left, n_batch, x, x->rank - 2);
  batch_strides(&t.right, n_batch, w, w->rank - 3);
  batch_strides(&t.group, n_batch, index, index->rank - 1);
  t.left.strides[n_batch] = x->strides[x->rank - 2];
  t.left.strides[k] = x->strides[x->rank - 1];
  t.right.strides[k] = w->strides[w->rank - 2];
  t.right.strides[k - 1] = w->strides[w->rank - 1];
  t.group.strides[n_batch] = index->strides[index->rank - 1];
  t.has_group = true;
  t.n_groups = w->extents[w->rank - 3];
  t.group_step = w->strides[w->rank - 3];
  return t;
}

/* x[*, m, k], y[*, m, n] and index[*, m] in the space [*, g, k, n, m]. */
static ref_terms outer_terms(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *y = ref_operand_named(c, "y");
  const ir_array *index = ref_operand_named(c, "index");
  ref_terms t = {.left = space_view(c, x), .right = space_view(c, y), .has_right = true};
  uint32_t m = t.left.rank - 1, n_batch = m - 3;
  t.group = space_view(c, index);
  batch_strides(&t.left, n_batch, x, x->rank - 2);
  batch_strides(&t.right, n_batch, y, y->rank - 2);
  batch_strides(&t.group, n_batch, index, index->rank - 1);
  t.left.strides[m] = x->strides[x->rank - 2];
  t.left.strides[m - 2] = x->strides[x->rank - 1];
  t.right.strides[m] = y->strides[y->rank - 2];
  t.right.strides[m - 1] = y->strides[y->rank - 1];
  t.group.strides[m] = index->strides[index->rank - 1];
  t.has_member = true;
  t.group_axis = n_batch;
  return t;
}

/* An index is a group below n, or n: no group. */
static status check_groups(const ref_call *c, int64_t n) {
  const ir_array *index = ref_operand_named(c, "index");
  int64_t at[IR_MAX_RANK] = {0};
  if (ref_count(&c->result) == 0 || ref_count(index) == 0) return STATUS_OK;
  do {
    int64_t i = ir_element_as_i64(index->dtype, ir_array_at(index, at));
    if (i < 0 || i > n)
      return ref_fail(c, "index %lld is not in 0 to %lld, for %lld groups", (long long)i,
                      (long long)n, (long long)n);
  } while (ir_array_next(index, at));
  return STATUS_OK;
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
  if (t->has_member) return false;
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

/* The position of a row in the result, whose last index is 0. */
static void row_index(const matrices *x, int64_t row, int64_t *index) {
  const ir_array *r = &x->call->result;
  index[r->rank - 1] = 0;
  for (uint32_t d = r->rank - 1; d-- > 0; row /= r->extents[d]) index[d] = row % r->extents[d];
}

enum { MOST_ROWS = 512 };

/* Rows of the result with the same right factor. */
typedef struct row_list {
  int64_t data[MOST_ROWS];
  int64_t len, right; /* the factor's offset */
} row_list;

static void multiply_rows(matrices *x, const row_list *rows) {
  const ir_array *left = &x->terms->left;
  uint32_t rank = x->call->result.rank;
  int64_t index[IR_MAX_RANK];
  x->f.m = rows->len;
  for (int64_t i = 0; i < rows->len; i++) {
    row_index(x, rows->data[i], index);
    int64_t offset = offset_of(left, index, rank - 1);
    for (int64_t k = 0; k < x->k; k++)
      x->a[i * x->k + k] = read_at(left, offset + k * left->strides[rank]);
  }
  ref_product(&x->f, ref_threads(x->call));
  for (int64_t i = 0; i < rows->len; i++) {
    row_index(x, rows->data[i], index);
    store_row(x, i, rows->data[i], index);
  }
}

static bool is_asked(const matrices *x, int64_t row) {
  const ref_call *c = x->call;
  const uint8_t *const *sample = c->state->options->rows;
  const uint8_t *rows = sample ? sample[c->op->result.id] : NULL;
  return !rows || rows[row];
}

/* Rows that nothing looks at, or that have no right factor, are 0. */
static bool find_right(const matrices *x, int64_t row, int64_t *right) {
  const ref_call *c = x->call;
  int64_t index[IR_MAX_RANK];
  row_index(x, row, index);
  if (is_asked(x, row) && ref_terms_right(x->terms, index, right)) {
    *right += offset_of(&x->terms->right, index, c->result.rank - 1);
    return true;
  }
  memset(ref_element(&c->result, row * x->n), 0,
         (size_t)x->n * ir_dtype_size_bytes(c->result.dtype));
  return false;
}

/* Offsets may be negative, so none of them stands for "no factor". */
static void multiply_all(matrices *x) {
  int64_t n_rows = ref_count(&x->call->result) / x->n, packed = 0;
  row_list rows = {.len = 0};
  bool has_packed = false;
  for (int64_t row = 0; row <= n_rows; row++) {
    int64_t right = 0;
    bool end = row == n_rows;
    if (!end && !find_right(x, row, &right)) continue;
    if (rows.len && (end || right != rows.right || rows.len == MOST_ROWS)) {
      if (!has_packed || rows.right != packed) pack_right(x, rows.right);
      has_packed = true;
      packed = rows.right;
      multiply_rows(x, &rows);
      rows.len = 0;
    }
    rows.right = right;
    if (!end) rows.data[rows.len++] = row;
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

status ref_grouped_matmul(const ref_call *c) {
  const ir_array *w = ref_operand_named(c, "weight");
  TRY(check_groups(c, w->extents[w->rank - 3]));
  ref_terms terms = grouped_terms(c);
  if (ref_is_partial(c)) return ref_reduce_partial(c, &terms);
  return contract(c, &terms, NULL);
}

status ref_grouped_outer(const ref_call *c) {
  TRY(check_groups(c, ref_eval_scalar(c, ir_op_attr(c->op, "n")->scalar)));
  ref_terms terms = outer_terms(c);
  if (ref_is_partial(c)) return ref_reduce_partial(c, &terms);
  return contract(c, &terms, NULL);
}
