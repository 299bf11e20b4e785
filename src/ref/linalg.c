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

static void contract(const ref_call *c, const ref_terms *terms, const ir_array *bias) {
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
  } while (ir_array_next(&c->result, index));
}

status ref_matmul(const ref_call *c) {
  ref_terms terms = matmul_terms(c);
  if (ref_is_partial(c)) return ref_reduce_partial(c, &terms);
  contract(c, &terms, NULL);
  return STATUS_OK;
}

status ref_linear(const ref_call *c) {
  const ir_array *given = ref_operand_named(c, "bias");
  ref_terms terms = linear_terms(c);
  ir_array bias;
  if (ref_is_partial(c)) return ref_reduce_partial(c, &terms);
  if (given) bias = bias_view(c, given);
  contract(c, &terms, given ? &bias : NULL);
  return STATUS_OK;
}
