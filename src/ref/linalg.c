/* matmul, linear and sdpa.
 *
 * matmul and linear sum, over the last axis of a common index space [result dims ..., k], the product
 * of two views with those extents; an axis that an operand does not have gets stride 0. */
#include <math.h>
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
    ref_fold sum = ref_fold_start(c->state, IR_OP_SUM, is_float, c->result.dtype);
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

/* ---- attention ---- */
typedef struct attention {
  ir_array q, k, v; /* with the result's batch axes */
  uint32_t rank;
  int64_t n_keys, width; /* S and E */
  double scale;
  bool causal;
} attention;

/* x with the batch axes of the result and its own last two. */
static ir_array batched(const ref_call *c, const ir_array *x) {
  int64_t extents[IR_MAX_RANK];
  uint32_t rank = c->result.rank;
  memcpy(extents, c->result.extents, sizeof extents);
  extents[rank - 2] = x->extents[x->rank - 2];
  extents[rank - 1] = x->extents[x->rank - 1];
  return ref_broadcast_to(x, rank, extents);
}

static attention attention_of(const ref_call *c) {
  attention a = {.q = batched(c, ref_operand_named(c, "q")),
                 .k = batched(c, ref_operand_named(c, "k")),
                 .v = batched(c, ref_operand_named(c, "v")),
                 .rank = c->result.rank,
                 .causal = ref_attr_int(c, "causal") != 0};
  const ir_attr *scale = ir_op_attr(c->op, "scale");
  a.n_keys = a.k.extents[a.rank - 2];
  a.width = a.q.extents[a.rank - 1];
  a.scale = scale->given ? ir_number_as_f64(scale->number) : 1 / sqrt((double)a.width);
  return a;
}

static double element(const ir_array *a, const int64_t *index) {
  return ir_element_as_f64(a->dtype, ir_array_at(a, index));
}

/* Query `row[rank - 2]` of its batch against key j. */
static double score(const attention *a, const int64_t *row, int64_t j) {
  int64_t iq[IR_MAX_RANK], ik[IR_MAX_RANK];
  double sum = 0;
  memcpy(iq, row, sizeof iq);
  memcpy(ik, row, sizeof ik);
  ik[a->rank - 2] = j;
  for (int64_t e = 0; e < a->width; e++) {
    iq[a->rank - 1] = ik[a->rank - 1] = e;
    sum += element(&a->q, iq) * element(&a->k, ik);
  }
  return sum * a->scale;
}

/* Softmax of the scores of one query; a causal one sees the keys up to its own position. */
static void weigh(const attention *a, const int64_t *row, int64_t n_seen, double *weights) {
  double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n_seen; j++) {
    weights[j] = score(a, row, j);
    if (isnan(weights[j]) || weights[j] > top) top = weights[j];
  }
  for (int64_t j = 0; j < n_seen; j++) sum += weights[j] = exp(weights[j] - top);
  for (int64_t j = 0; j < n_seen; j++) weights[j] /= sum;
}

static void attend(const ref_call *c, const attention *a, int64_t *row, double *weights) {
  int64_t n_seen = a->n_keys, at[IR_MAX_RANK];
  if (a->causal && row[a->rank - 2] < n_seen) n_seen = row[a->rank - 2] + 1;
  weigh(a, row, n_seen, weights);
  memcpy(at, row, sizeof at);
  for (int64_t e = 0; e < c->result.extents[a->rank - 1]; e++) {
    double sum = 0;
    at[a->rank - 1] = row[a->rank - 1] = e;
    for (int64_t j = 0; j < n_seen; j++) {
      at[a->rank - 2] = j;
      sum += weights[j] * element(&a->v, at);
    }
    ir_element_set_f64(c->result.dtype, ir_array_at(&c->result, row), sum);
  }
}

/* Each step handles a row of the result and leaves the index at its last element. */
status ref_sdpa(const ref_call *c) {
  attention a = attention_of(c);
  ir_array weights = {.dtype = IR_F64, .rank = 1, .extents = {a.n_keys}};
  int64_t index[IR_MAX_RANK] = {0};
  if (ref_count(&c->result) == 0) return STATUS_OK;
  TRY(ir_array_alloc(&weights, c->state->options->memory));
  do attend(c, &a, index, weights.data);
  while (ir_array_next(&c->result, index));
  memory_free(c->state->options->memory, weights.data);
  return STATUS_OK;
}
