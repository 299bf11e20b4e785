/* Attention, forward and backward. All sums are in f64. */
#include <math.h>
#include <string.h>

#include "ref/internal.h"

/* An operand with the batch axes of the result and its own last two. Of its heads, the axis before those,
 * each may serve `group` of the result. */
typedef struct side {
  ir_array a;
  int64_t group;
} side;

typedef struct attention {
  side q, k, v;
  uint32_t rank;
  int64_t n_keys, width; /* S and E */
  double scale;
  bool causal;
} attention;

static side batched(const ref_call *c, const char *name) {
  const ir_array *x = ref_operand_named(c, name);
  int64_t extents[IR_MAX_RANK];
  uint32_t rank = c->result.rank, head = rank - 3;
  side s = {.group = 1};
  memcpy(extents, c->result.extents, sizeof extents);
  extents[rank - 2] = x->extents[x->rank - 2];
  extents[rank - 1] = x->extents[x->rank - 1];
  bool fewer = rank > 2 && x->rank > 2 && x->extents[x->rank - 3] < extents[head];
  if (fewer) s.group = extents[head] / x->extents[x->rank - 3];
  if (fewer) extents[head] = x->extents[x->rank - 3];
  s.a = ref_broadcast_to(x, rank, extents);
  return s;
}

static attention attention_of(const ref_call *c) {
  attention a = {.q = batched(c, "q"),
                 .k = batched(c, "k"),
                 .v = batched(c, "v"),
                 .rank = c->result.rank,
                 .causal = ref_attr_int(c, "causal") != 0};
  const ir_attr *scale = ir_op_attr(c->op, "scale");
  a.n_keys = a.k.a.extents[a.rank - 2];
  a.width = a.q.a.extents[a.rank - 1];
  a.scale = scale->given ? ir_number_as_f64(scale->number) : 1 / sqrt((double)a.width);
  return a;
}

/* Where the side has [position, feature] of the batch that `row` is of. */
static void *address(const side *s, const int64_t *row, int64_t position, int64_t feature) {
  uint32_t rank = s->a.rank;
  int64_t index[IR_MAX_RANK];
  memcpy(index, row, sizeof index);
  if (rank > 2) index[rank - 3] /= s->group;
  index[rank - 2] = position;
  index[rank - 1] = feature;
  return ir_array_at(&s->a, index);
}

static double value(const side *s, const int64_t *row, int64_t position, int64_t feature) {
  return ir_element_as_f64(s->a.dtype, address(s, row, position, feature));
}

/* Query `row[rank - 2]` of its batch against key j. */
static double score(const attention *a, const int64_t *row, int64_t j) {
  double sum = 0;
  for (int64_t e = 0; e < a->width; e++)
    sum += value(&a->q, row, row[a->rank - 2], e) * value(&a->k, row, j, e);
  return sum * a->scale;
}

/* A causal query sees the keys up to its own position. */
static int64_t n_seen(const attention *a, const int64_t *row) {
  int64_t position = row[a->rank - 2];
  return a->causal && position < a->n_keys ? position + 1 : a->n_keys;
}

/* ---- forward ---- */
/* Softmax of the scores of one query; the logarithm of the sum of their exponentials. */
static double weigh(const attention *a, const int64_t *row, int64_t n, double *weights) {
  double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++) {
    weights[j] = score(a, row, j);
    if (isnan(weights[j]) || weights[j] > top) top = weights[j];
  }
  for (int64_t j = 0; j < n; j++) sum += weights[j] = exp(weights[j] - top);
  for (int64_t j = 0; j < n; j++) weights[j] /= sum;
  return top == -INFINITY ? top : top + log(sum);
}

static void attend(const ref_call *c, const attention *a, int64_t *row, double *weights) {
  int64_t n = n_seen(a, row);
  double lse = weigh(a, row, n, weights);
  if (ref_wants(c, 1)) ir_element_set_f64(c->more[0].dtype, ir_array_at(&c->more[0], row), lse);
  for (int64_t e = 0; e < c->result.extents[a->rank - 1]; e++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += weights[j] * value(&a->v, row, j, e);
    row[a->rank - 1] = e;
    ir_element_set_f64(c->result.dtype, ir_array_at(&c->result, row), sum);
  }
  row[a->rank - 1] = 0;
}

/* One position per query, whatever the features of v. */
static ir_array queries_of(const ref_call *c) {
  ir_array rows = c->result;
  rows.extents[rows.rank - 1] = 1;
  return rows;
}

status ref_sdpa(const ref_call *c) {
  attention a = attention_of(c);
  ir_array weights = {.dtype = IR_F64, .rank = 1, .extents = {a.n_keys}}, rows = queries_of(c);
  int64_t index[IR_MAX_RANK] = {0};
  if (ref_count(&rows) == 0) return STATUS_OK;
  TRY(ir_array_alloc(&weights, c->state->options->memory));
  do attend(c, &a, index, weights.data);
  while (ir_array_next(&rows, index));
  memory_free(c->state->options->memory, weights.data);
  return STATUS_OK;
}

/* ---- backward ---- */
/* Sums of gradients in f64, until all queries are done. */
typedef struct backward {
  attention a;
  side out, dout, dq, dk, dv;
  const ir_array *lse;
} backward;

static void add_to(const side *s, const int64_t *row, int64_t position, int64_t feature, double x) {
  *(double *)address(s, row, position, feature) += x;
}

static double dot_rows(const side *x, int64_t i, const side *y, int64_t j, const int64_t *row) {
  double sum = 0;
  for (int64_t e = 0; e < x->a.extents[x->a.rank - 1]; e++)
    sum += value(x, row, i, e) * value(y, row, j, e);
  return sum;
}

/* s = scale q.k, p = exp(s - lse), ds = scale p (dout.v - dout.out): the gradients are dq = ds k,
 * dk = ds q, dv = p dout, each summed over the positions that it does not have. */
static void add_query(const backward *b, const int64_t *row) {
  const attention *a = &b->a;
  int64_t i = row[a->rank - 2], n = n_seen(a, row);
  double lse = ir_element_as_f64(b->lse->dtype, ir_array_at(b->lse, row));
  double mean = dot_rows(&b->dout, i, &b->out, i, row);
  for (int64_t j = 0; j < n; j++) {
    double p = exp(score(a, row, j) - lse);
    double ds = a->scale * p * (dot_rows(&b->dout, i, &a->v, j, row) - mean);
    for (int64_t e = 0; e < a->width; e++) {
      add_to(&b->dq, row, i, e, ds * value(&a->k, row, j, e));
      add_to(&b->dk, row, j, e, ds * value(&a->q, row, i, e));
    }
    for (int64_t e = 0; e < b->dv.a.extents[a->rank - 1]; e++)
      add_to(&b->dv, row, j, e, p * value(&b->dout, row, i, e));
  }
}

static status new_sum(const ref_call *c, const side *like, side *sum) {
  *sum = (side){.a = {.dtype = IR_F64, .rank = like->a.rank}, .group = like->group};
  memcpy(sum->a.extents, like->a.extents, sizeof sum->a.extents);
  TRY(ir_array_alloc(&sum->a, c->state->options->memory));
  memset(sum->a.data, 0, (size_t)ref_count(&sum->a) * sizeof(double));
  return STATUS_OK;
}

static status new_sums(const ref_call *c, backward *b) {
  TRY(new_sum(c, &b->a.q, &b->dq));
  TRY(new_sum(c, &b->a.k, &b->dk));
  return new_sum(c, &b->a.v, &b->dv);
}

static void add_queries(const ref_call *c, const backward *b) {
  int64_t index[IR_MAX_RANK] = {0};
  ir_array rows = queries_of(c);
  if (ref_count(&rows) == 0) return;
  do add_query(b, index);
  while (ir_array_next(&rows, index));
}

status ref_sdpa_backward(const ref_call *c) {
  backward b = {.a = attention_of(c), .lse = ref_operand_named(c, "lse")};
  b.out = batched(c, "out");
  b.dout = batched(c, "dout");
  status st = new_sums(c, &b);
  if (st == STATUS_OK) {
    add_queries(c, &b);
    ir_array_copy(&c->result, &b.dq.a);
    if (ref_wants(c, 1)) ir_array_copy(&c->more[0], &b.dk.a);
    if (ref_wants(c, 2)) ir_array_copy(&c->more[1], &b.dv.a);
  }
  memory_free(c->state->options->memory, b.dq.a.data);
  memory_free(c->state->options->memory, b.dk.a.data);
  memory_free(c->state->options->memory, b.dv.a.data);
  return st;
}
