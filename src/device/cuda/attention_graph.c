/* Attention as a graph of cuDNN's operations. The library recognizes these graphs by their form, so the order of
 * operations is always the same. */
#include "device/cuda/attention.h"

enum { F32 = DNN_DATA_FLOAT, I32 = DNN_DATA_INT32, TRUTH = DNN_DATA_BOOLEAN };
static const dnn_lengths whole = {NULL, NULL, NULL};

typedef struct graph {
  dnn_graph *g;
  const cuda_att_shape *s;
  int io;          /* the dtype of the caller's tensors */
  dnn_dims scores; /* [b, hq, sq, skv] */
  dnn_dims rows;   /* [b, hq, sq, 1] */
  void *never;     /* the value of a masked score; made once */
  void *nq, *nk;   /* lengths; NULL: all positions count */
} graph;

bool cuda_att_has_lengths(const cuda_att_shape *s, size_t version) {
  enum { FIRST_WITHOUT = 91600, TILE = 128 };
  return s->backward && version < FIRST_WITHOUT && s->skv % TILE != 0;
}

/* ---- tensors ---- */
static dnn_dims dims_of(const cuda_att_shape *s, cuda_att_side side) {
  dnn_dims d;
  cuda_att_extents(s, side, d.at);
  return d;
}

static dnn_dims strides_of(const cuda_att_shape *s, cuda_att_side side) {
  const int64_t *x = s->strides[side];
  return (dnn_dims){{x[0], x[1], x[2], 1}};
}

static void *side(graph *x, cuda_att_side which) {
  int dtype = which == ATT_STATS ? (int)F32 : x->io;
  return dnn_tensor(x->g, ATT_ID_SIDES + (int64_t)which, dtype, dims_of(x->s, which),
                    strides_of(x->s, which));
}

/* The matrices of a side transposed: the same memory, the strides exchanged. */
static void *turned(graph *x, cuda_att_side which) {
  return dnn_tensor(x->g, ATT_ID_SIDES + (int64_t)which, x->io, dnn_swapped(dims_of(x->s, which)),
                    dnn_swapped(strides_of(x->s, which)));
}

static void *lengths(graph *x, int64_t id) {
  dnn_dims one = {{1, 1, 1, 1}}, per_batch = {{x->s->b, 1, 1, 1}};
  return dnn_tensor(x->g, id, I32, per_batch, one);
}

static void *f32_of(graph *x, dnn_dims dims) { return dnn_virtual(x->g, F32, dims); }

/* mode(a, b) as a new f32 tensor. */
static void *computed(graph *x, int mode, void *a, void *b, dnn_dims dims) {
  void *y = f32_of(x, dims);
  dnn_pointwise(x->g, mode, F32, a, b, y);
  return y;
}

/* ---- masks ---- */
static void *never(graph *x) {
  if (!x->never) x->never = dnn_scalar(x->g, ATT_ID_NEVER, F32);
  return x->never;
}

static void *compared(graph *x, int mode, void *a, void *b) {
  void *y = dnn_virtual(x->g, TRUTH, x->scores);
  dnn_pointwise(x->g, mode, TRUTH, a, b, y);
  return y;
}

static void *position(graph *x, void *scores, int precision, int64_t axis) {
  void *y = dnn_virtual(x->g, I32, x->scores);
  dnn_index(x->g, precision, axis, scores, y);
  return y;
}

static void *kept(graph *x, void *scores, void *where) {
  void *y = f32_of(x, x->scores);
  dnn_select(x->g, scores, never(x), where, y);
  return y;
}

static void *moved(graph *x, int mode, void *row, int64_t id) {
  void *y = dnn_virtual(x->g, I32, x->scores);
  dnn_pointwise(x->g, mode, I32, row, dnn_scalar(x->g, id, I32), y);
  return y;
}

static void *causal(graph *x, void *scores) {
  if (x->s->mask == ATT_ALL) return scores;
  void *row = position(x, scores, F32, 2), *column = position(x, scores, F32, 3);
  if (x->s->mask == ATT_BOTTOM_RIGHT) {
    row = moved(x, DNN_POINTWISE_ADD, row, ATT_ID_N_KEYS);
    row = moved(x, DNN_POINTWISE_SUB, row, ATT_ID_N_QUERIES);
  }
  return kept(x, scores, compared(x, DNN_POINTWISE_CMP_GE, row, column));
}

static void *within_lengths(graph *x, void *scores) {
  if (!x->nq) return scores;
  void *row = position(x, scores, I32, 2), *column = position(x, scores, I32, 3);
  void *in_q = compared(x, DNN_POINTWISE_CMP_LT, row, x->nq);
  void *in_k = compared(x, DNN_POINTWISE_CMP_LT, column, x->nk);
  return kept(x, scores, compared(x, DNN_POINTWISE_LOGICAL_AND, in_q, in_k));
}

/* ---- the result ---- */
static void forward(graph *x) {
  dnn_graph *g = x->g;
  void *q = side(x, ATT_Q), *v = side(x, ATT_V), *o = side(x, ATT_O), *k = turned(x, ATT_K);
  void *s = f32_of(x, x->scores);
  dnn_matmul(g, q, k, s, whole);
  s = computed(x, DNN_POINTWISE_MUL, s, dnn_scalar(g, ATT_ID_SCALE, F32), x->scores);
  s = causal(x, s);
  void *top = f32_of(x, x->rows), *sum = f32_of(x, x->rows);
  dnn_reduce(g, DNN_REDUCE_TENSOR_MAX, s, top);
  s = computed(x, DNN_POINTWISE_SUB, s, top, x->scores);
  s = computed(x, DNN_POINTWISE_EXP, s, NULL, x->scores);
  dnn_reduce(g, DNN_REDUCE_TENSOR_ADD, s, sum);
  void *log = computed(x, DNN_POINTWISE_LOG, sum, NULL, x->rows);
  void *stats = x->s->stats ? side(x, ATT_STATS) : f32_of(x, x->rows);
  dnn_pointwise(g, DNN_POINTWISE_ADD, F32, top, log, stats);
  void *p = dnn_virtual(g, x->io, x->scores); /* f32 is refused */
  dnn_pointwise(g, DNN_POINTWISE_DIV, F32, s, sum, p);
  dnn_matmul(g, p, v, o, whole);
}

/* ---- the gradient ---- */
/* Scores, or their gradients, transposed and in the caller's dtype. */
static void *across(graph *x, void *scores) {
  dnn_dims d = x->scores, turned_dims = dnn_swapped(d);
  int64_t matrix = d.at[2] * d.at[3];
  dnn_dims strides = {{d.at[1] * matrix, matrix, 1, d.at[3]}};
  void *y = dnn_virtual_view(x->g, x->io, turned_dims, strides);
  dnn_reshape(x->g, scores, y);
  return y;
}

/* to = aᵀ · b; if there are fewer heads of keys, summed over the group of each. */
static void into_keys(graph *x, void *a, void *b, cuda_att_side to) {
  dnn_lengths cut = {.m = x->nk, .k = x->nq};
  void *y = side(x, to);
  if (x->s->hq == x->s->hk) {
    dnn_matmul(x->g, a, b, y, cut);
    return;
  }
  dnn_dims all = dims_of(x->s, to);
  all.at[1] = x->s->hq;
  void *of_queries = dnn_virtual(x->g, x->io, all);
  dnn_matmul(x->g, a, b, of_queries, cut);
  dnn_reduce(x->g, DNN_REDUCE_TENSOR_ADD, of_queries, y);
}

/* The row sums of o times its gradient, as a tensor in memory, which later operations read. */
static void *row_sums(graph *x, void *o, void *grad) {
  void *sum = f32_of(x, x->rows);
  void *y = dnn_tensor(x->g, ATT_ID_ROW_SUMS, F32, x->rows, dnn_packed(x->rows));
  dnn_reduce(x->g, DNN_REDUCE_TENSOR_ADD,
             computed(x, DNN_POINTWISE_MUL, grad, o, dims_of(x->s, ATT_O)), sum);
  dnn_pointwise(x->g, DNN_POINTWISE_MUL, F32, sum, dnn_scalar(x->g, ATT_ID_ONE, F32), y);
  return y;
}

/* The weights of each query's keys, computed again from the statistics of the forward run. */
static void *shares(graph *x, void *q, void *k, void *scale) {
  void *s = f32_of(x, x->scores);
  dnn_matmul(x->g, q, k, s, (dnn_lengths){.m = x->nq, .n = x->nk});
  s = computed(x, DNN_POINTWISE_MUL, s, scale, x->scores);
  s = within_lengths(x, s);
  s = computed(x, DNN_POINTWISE_SUB, s, side(x, ATT_STATS), x->scores);
  s = causal(x, s);
  return computed(x, DNN_POINTWISE_EXP, s, NULL, x->scores);
}

static void backward(graph *x, bool ordered) {
  dnn_graph *g = x->g;
  void *q = side(x, ATT_Q), *k = turned(x, ATT_K), *v = turned(x, ATT_V);
  void *o = side(x, ATT_O), *grad = side(x, ATT_DO), *scale = dnn_scalar(g, ATT_ID_SCALE, F32);
  void *sums = row_sums(x, o, grad), *p = shares(x, q, k, scale);
  into_keys(x, across(x, p), grad, ATT_DV);
  void *s = f32_of(x, x->scores);
  dnn_matmul(g, grad, v, s, (dnn_lengths){.m = x->nq, .n = x->nk});
  s = computed(x, DNN_POINTWISE_SUB, s, sums, x->scores);
  s = computed(x, DNN_POINTWISE_MUL, s, p, x->scores);
  s = computed(x, DNN_POINTWISE_MUL, s, scale, x->scores);
  into_keys(x, across(x, s), q, ATT_DK);
  void *upright = dnn_virtual_view(g, x->io, dims_of(x->s, ATT_K), strides_of(x->s, ATT_K));
  dnn_reshape(g, k, upright);
  dnn_lengths cut = {.m = x->nq, .k = x->nk};
  if (ordered) {
    dnn_matmul(g, s, upright, side(x, ATT_DQ), cut);
    return;
  }
  dnn_dims dims = dims_of(x->s, ATT_Q);
  void *sum = dnn_tensor(g, ATT_ID_SUM_DQ, F32, dims, dnn_packed(dims));
  dnn_matmul(g, s, upright, sum, cut);
  dnn_pointwise(g, DNN_POINTWISE_IDENTITY, F32, sum, NULL, side(x, ATT_DQ));
}

void cuda_att_graph(dnn_graph *g, const cuda_att_shape *s, bool ordered) {
  graph x = {.g = g,
             .s = s,
             .io = s->dtype == IR_BF16 ? DNN_DATA_BFLOAT16 : DNN_DATA_HALF,
             .scores = {{s->b, s->hq, s->sq, s->skv}},
             .rows = {{s->b, s->hq, s->sq, 1}}};
  if (cuda_att_has_lengths(s, g->dnn->version)) {
    x.nq = lengths(&x, ATT_ID_LENGTHS_Q);
    x.nk = lengths(&x, ATT_ID_LENGTHS_K);
  }
  if (s->backward) backward(&x, ordered);
  else forward(&x);
}
