/* Attention, forward and backward. All sums are in f64. */
#include <math.h>
#include <string.h>

#include "ref/internal.h"

/* An operand in f64, with the batch axes of the result and its own last two, which are dense. The axis
 * before those two has the heads; each may serve `group` heads of the result. */
typedef struct side {
  ir_array a;
  int64_t group;
  void *memory; /* to be freed */
} side;

typedef struct attention {
  side q, k, v;
  uint32_t rank;
  int64_t n_keys, width, v_width; /* S, E and the features of v */
  double scale;
  bool causal;
  double unit, unit_sum; /* of rounding: to the dtype, and in sums */
  double large;          /* where a weight, or its product, may overflow */
} attention;

static status batched(const ref_call *c, const char *name, side *result) {
  const ir_array *x = ref_operand_named(c, name);
  int64_t extents[IR_MAX_RANK];
  uint32_t rank = c->result.rank, head = rank - 3;
  ir_array dense = *x;
  *result = (side){.group = 1};
  dense.dtype = IR_F64;
  TRY(ir_array_alloc(&dense, c->state->options->memory));
  ir_array_copy(&dense, x);
  result->memory = dense.data;
  memcpy(extents, c->result.extents, sizeof extents);
  extents[rank - 2] = x->extents[x->rank - 2];
  extents[rank - 1] = x->extents[x->rank - 1];
  bool fewer = rank > 2 && x->rank > 2 && x->extents[x->rank - 3] < extents[head];
  if (fewer) result->group = extents[head] / x->extents[x->rank - 3];
  if (fewer) extents[head] = x->extents[x->rank - 3];
  result->a = ref_broadcast_to(&dense, rank, extents);
  return STATUS_OK;
}

static status attention_of(const ref_call *c, attention *a) {
  const ir_attr *scale = ir_op_attr(c->op, "scale");
  *a = (attention){.rank = c->result.rank, .causal = ref_attr_int(c, "causal") != 0};
  TRY(batched(c, "q", &a->q));
  TRY(batched(c, "k", &a->k));
  TRY(batched(c, "v", &a->v));
  a->n_keys = a->k.a.extents[a->rank - 2];
  a->width = a->q.a.extents[a->rank - 1];
  a->v_width = a->v.a.extents[a->rank - 1];
  a->scale = scale->given ? ir_number_as_f64(scale->number) : 1 / sqrt((double)a->width);
  a->unit = ir_dtype_unit(c->result.dtype);
  a->unit_sum = ref_unit_sum(c->result.dtype);
  a->large = c->result.dtype == IR_F64 ? 1e300 : c->result.dtype == IR_F16 ? 3e4 : 1e37;
  return STATUS_OK;
}

static void attention_end(const ref_call *c, attention *a) {
  memory_free(c->state->options->memory, a->q.memory);
  memory_free(c->state->options->memory, a->k.memory);
  memory_free(c->state->options->memory, a->v.memory);
}

/* The features at a position of the batch that `row` is of. */
static double *features(const side *s, const int64_t *row, int64_t position) {
  uint32_t rank = s->a.rank;
  int64_t index[IR_MAX_RANK];
  memcpy(index, row, sizeof index);
  if (rank > 2) index[rank - 3] /= s->group;
  index[rank - 2] = position;
  index[rank - 1] = 0;
  return ir_array_at(&s->a, index);
}

/* A product of two rows, and the deviation of its sum. */
static double dot(const double *x, const double *y, int64_t n, double *squares) {
  double sum = 0, of_terms = 0;
  for (int64_t e = 0; e < n; e++) {
    sum += x[e] * y[e];
    of_terms += x[e] * x[e] * y[e] * y[e];
  }
  *squares = of_terms * (double)n / 2;
  return sum;
}

/* Query `row[rank - 2]` of its batch against key j. */
static double score(const attention *a, const int64_t *row, int64_t j, double *noise) {
  double squares, sum = dot(features(&a->q, row, row[a->rank - 2]), features(&a->k, row, j),
                            a->width, &squares);
  *noise = a->unit_sum * fabs(a->scale) * (sqrt(squares) + 2 * fabs(sum));
  return sum * a->scale;
}

/* A causal query sees the keys up to its own position. */
static int64_t n_seen(const attention *a, const int64_t *row) {
  int64_t position = row[a->rank - 2];
  return a->causal && position < a->n_keys ? position + 1 : a->n_keys;
}

/* ---- forward ---- */
/* Softmax of the scores of one query, and how much each weight may be off, relative to it; the logarithm of
 * the sum of their exponentials. Devices may round weights to the dtype. */
static double weigh(const attention *a, const int64_t *row, int64_t n, double *weights,
                    double *noise) {
  double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++) {
    weights[j] = score(a, row, j, &noise[j]);
    if (isnan(weights[j]) || weights[j] > top) top = weights[j];
  }
  for (int64_t j = 0; j < n; j++) {
    double below = fabs(weights[j] - top);
    noise[j] += a->unit + a->unit_sum * (3 + (below < 1000 ? below : 0));
    sum += weights[j] = exp(weights[j] - top);
  }
  for (int64_t j = 0; j < n; j++) {
    if (weights[j] == 0) noise[j] = 0; /* even if its score is infinite */
    weights[j] /= sum;
  }
  return top == -INFINITY ? top : top + log(sum);
}

static double norm_of(const double *weights, const double *noise, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += weights[j] * weights[j] * noise[j] * noise[j];
  return sqrt(sum);
}

static void attend(const ref_call *c, const attention *a, int64_t *row, double *weights) {
  int64_t n = n_seen(a, row);
  double *noise = weights + a->n_keys, steps = a->unit_sum * sqrt((double)(n < 4096 ? n : 4096));
  double lse = weigh(a, row, n, weights, noise), all = norm_of(weights, noise, n);
  if (ref_wants(c, 1)) {
    void *p = ir_array_at(&c->more[0], row);
    ir_element_set_f64(c->more[0].dtype, p, lse);
    if (isfinite(lse)) ref_note(c, 1, p, all + a->unit_sum * (3 + 2 * fabs(lse)));
  }
  for (int64_t e = 0; e < a->v_width; e++) {
    const double *v = n > 0 ? features(&a->v, row, 0) + e : NULL;
    double sum = 0, of_weights = 0, of_terms = 0;
    for (int64_t j = 0; j < n; j++) {
      double term = weights[j] * v[j * a->v_width];
      sum += term;
      of_terms += term * term;
      of_weights += term * term * noise[j] * noise[j];
    }
    row[a->rank - 1] = e;
    void *p = ir_array_at(&c->result, row);
    ir_element_set_f64(c->result.dtype, p, sum);
    ref_note(c, 0, p, sqrt(of_weights) + fabs(sum) * (all + steps) + steps * sqrt(of_terms));
  }
  row[a->rank - 1] = 0;
}

/* One position per query, whatever the features of v. */
static ir_array queries_of(const ref_call *c) {
  ir_array rows = c->result;
  rows.extents[rows.rank - 1] = 1;
  return rows;
}

static status attend_all(const ref_call *c, const attention *a) {
  ir_array weights = {.dtype = IR_F64, .rank = 1, .extents = {2 * a->n_keys}}, rows = queries_of(c);
  int64_t index[IR_MAX_RANK] = {0};
  TRY(ir_array_alloc(&weights, c->state->options->memory));
  do attend(c, a, index, weights.data);
  while (ir_array_next(&rows, index));
  memory_free(c->state->options->memory, weights.data);
  return STATUS_OK;
}

status ref_sdpa(const ref_call *c) {
  ir_array rows = queries_of(c);
  attention a;
  if (ref_count(&rows) == 0) return STATUS_OK;
  status st = attention_of(c, &a);
  if (st == STATUS_OK) st = attend_all(c, &a);
  attention_end(c, &a);
  return st;
}

/* ---- backward ---- */
/* Gradients are summed in f64 until all queries are done, and so are the squares of the deviations of their
 * terms. */
typedef struct backward {
  attention a;
  side out, dout, dq, dk, dv, dq_noise, dk_noise, dv_noise;
  const ir_array *lse;
  bool overflows; /* a device may overflow; then its other gradients may be anything too */
} backward;

static void add_row(double *to, const double *x, double factor, int64_t n) {
  for (int64_t e = 0; e < n; e++) to[e] += factor * x[e];
}

static void add_squares(double *to, const double *x, double factor, int64_t n) {
  for (int64_t e = 0; e < n; e++) to[e] += factor * factor * x[e] * x[e];
}

/* What one pair of a query and a key adds. */
typedef struct pair {
  double p, p_noise, ds, ds_noise;
  bool overflows;
} pair;

/* s = scale q.k, p = exp(s - lse), ds = scale p (dout.v - dout.out): the gradients are dq = ds k,
 * dk = ds q, dv = p dout, each summed over the positions that the gradient itself does not have. A weight of 0
 * stays 0 even if s or lse is infinite. */
static pair pair_of(const backward *b, const int64_t *row, int64_t j, double lse, double mean,
                    double mean_noise) {
  const attention *a = &b->a;
  int64_t i = row[a->rank - 2];
  double relative, squares, s = score(a, row, j, &relative);
  double dp = dot(features(&b->dout, row, i), features(&a->v, row, j), a->v_width, &squares);
  pair x = {.p = exp(s - lse)};
  relative = x.p == 0 ? 0 : relative + a->unit + a->unit_sum * (3 + fabs(s) + fabs(lse));
  x.overflows = x.p * (1 + fabs(dp) + fabs(mean)) * (1 + fabs(a->scale)) > a->large;
  double dp_noise = a->unit_sum * (sqrt(squares) + fabs(dp)) + mean_noise;
  x.ds = a->scale * x.p * (dp - mean);
  x.p_noise = x.p * relative;
  x.ds_noise =
      fabs(a->scale) * x.p * (relative * fabs(dp - mean) + dp_noise) + a->unit * fabs(x.ds);
  return x;
}

/* Partial sums grow with the root of their number, as their deviations do. */
static double with_steps(const attention *a, double noise, double term, int64_t n) {
  return noise + a->unit_sum * sqrt((double)(n < 4096 ? n : 4096)) * fabs(term);
}

static void add_query(backward *b, const int64_t *row) {
  const attention *a = &b->a;
  int64_t i = row[a->rank - 2], n = n_seen(a, row);
  double lse = ir_element_as_f64(b->lse->dtype, ir_array_at(b->lse, row)), squares;
  const double *dout = features(&b->dout, row, i), *q = features(&a->q, row, i);
  double mean = dot(dout, features(&b->out, row, i), a->v_width, &squares);
  double mean_noise = a->unit_sum * (sqrt(squares) + fabs(mean));
  for (int64_t j = 0; j < n; j++) {
    pair x = pair_of(b, row, j, lse, mean, mean_noise);
    double ds_noise = with_steps(a, x.ds_noise, x.ds, a->n_keys);
    b->overflows = b->overflows || x.overflows;
    add_row(features(&b->dq, row, i), features(&a->k, row, j), x.ds, a->width);
    add_row(features(&b->dk, row, j), q, x.ds, a->width);
    add_row(features(&b->dv, row, j), dout, x.p, a->v_width);
    if (!b->dq_noise.memory) continue;
    add_squares(features(&b->dq_noise, row, i), features(&a->k, row, j), ds_noise, a->width);
    add_squares(features(&b->dk_noise, row, j), q, ds_noise, a->width);
    add_squares(features(&b->dv_noise, row, j), dout, with_steps(a, x.p_noise, x.p, a->n_keys),
                a->v_width);
  }
  for (int64_t j = n; j < a->n_keys && b->dq_noise.memory; j++) /* a device may mask these later */
    b->overflows = b->overflows || pair_of(b, row, j, lse, mean, mean_noise).overflows;
}

static status new_sum(const ref_call *c, const side *like, side *sum) {
  *sum = (side){.a = {.dtype = IR_F64, .rank = like->a.rank}, .group = like->group};
  memcpy(sum->a.extents, like->a.extents, sizeof sum->a.extents);
  TRY(ir_array_alloc(&sum->a, c->state->options->memory));
  memset(sum->a.data, 0, (size_t)ref_count(&sum->a) * sizeof(double));
  sum->memory = sum->a.data;
  return STATUS_OK;
}

static status new_sums(const ref_call *c, backward *b) {
  TRY(attention_of(c, &b->a));
  TRY(batched(c, "out", &b->out));
  TRY(batched(c, "dout", &b->dout));
  TRY(new_sum(c, &b->a.q, &b->dq));
  TRY(new_sum(c, &b->a.k, &b->dk));
  TRY(new_sum(c, &b->a.v, &b->dv));
  if (!c->noise[0]) return STATUS_OK;
  TRY(new_sum(c, &b->a.k, &b->dk_noise));
  TRY(new_sum(c, &b->a.v, &b->dv_noise));
  return new_sum(c, &b->a.q, &b->dq_noise);
}

static void add_queries(const ref_call *c, backward *b) {
  int64_t index[IR_MAX_RANK] = {0};
  ir_array rows = queries_of(c);
  if (ref_count(&rows) == 0) return;
  do add_query(b, index);
  while (ir_array_next(&rows, index));
}

static void give(const ref_call *c, uint32_t k, const side *sum, const side *noise, bool open) {
  if (!ref_wants(c, k)) return;
  const ir_array *to = k ? &c->more[k - 1] : &c->result;
  ir_array_copy(to, &sum->a);
  for (int64_t i = 0; noise->memory && i < ref_count(to); i++)
    ref_note(c, k, ref_element(to, i), open ? REF_OPEN : sqrt(((double *)noise->memory)[i]));
}

status ref_sdpa_backward(const ref_call *c) {
  backward b = {.lse = ref_operand_named(c, "lse")};
  status st = new_sums(c, &b);
  if (st == STATUS_OK) {
    add_queries(c, &b);
    give(c, 0, &b.dq, &b.dq_noise, b.overflows);
    give(c, 1, &b.dk, &b.dk_noise, b.overflows);
    give(c, 2, &b.dv, &b.dv_noise, b.overflows);
  }
  const side *sides[] = {&b.out, &b.dout,     &b.dq,       &b.dk,
                         &b.dv,  &b.dq_noise, &b.dk_noise, &b.dv_noise};
  for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
    memory_free(c->state->options->memory, sides[i]->memory);
  attention_end(c, &b.a);
  return st;
}
