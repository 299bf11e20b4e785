/* Random programs of one operation, for test_kernels.c. */
#ifndef WEIR_TESTS_CONFORM_KERNEL_PROGRAMS_H
#define WEIR_TESTS_CONFORM_KERNEL_PROGRAMS_H

#include "base/random.h"
#include "base/strbuf.h"
#include "ir/op.h"

enum { MAX_INPUTS = 6 };

static uint64_t rng_state;
static uint64_t next_random(void) { return random_bits(17, rng_state++); }
static int64_t below(int64_t n) { return (int64_t)(next_random() % (uint64_t)n); }
static int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
static bool chance(int64_t percent) { return below(100) < percent; }

/* ---- programs ---- */
typedef struct shape {
  uint32_t rank;
  int64_t d[8];
} shape;

typedef struct program {
  strbuf inputs, call;
  uint32_t n_inputs;
  int64_t index_bound[MAX_INPUTS]; /* an index input; else -1 */
  ir_dtype dtype;                  /* of the first operand */
  bool special;                    /* infinities and NaN may occur */
} program;

static int64_t extent(void) {
  if (chance(3)) return 0;
  if (chance(15)) return 1;
  return chance(10) ? between(9, 40) : between(2, 7);
}

static shape random_shape(uint32_t low, uint32_t high) {
  shape s = {.rank = (uint32_t)between(low, high)};
  for (uint32_t i = 0; i < s.rank; i++) s.d[i] = extent();
  return s;
}

static void put_list(strbuf *b, const int64_t *list, uint32_t n) {
  strbuf_putc(b, '[');
  for (uint32_t i = 0; i < n; i++) strbuf_printf(b, "%s%lld", i ? ", " : "", (long long)list[i]);
  strbuf_putc(b, ']');
}

static char declare(program *p, ir_dtype t, const shape *s) {
  char name = (char)('a' + (int)p->n_inputs);
  p->index_bound[p->n_inputs++] = -1;
  strbuf_printf(&p->inputs, "  %c : %s", name, ir_dtype_text(t));
  if (s->rank > 0) put_list(&p->inputs, s->d, s->rank);
  strbuf_putc(&p->inputs, '\n');
  return name;
}

/* Declares an input and writes its name into the call. */
static void put_input(program *p, ir_dtype t, const shape *s) {
  char name = declare(p, t, s);
  if (p->call.len > 0 && p->call.data[p->call.len - 1] != '(') strbuf_puts(&p->call, ", ");
  strbuf_putc(&p->call, name);
}

static void put_index(program *p, const shape *s, int64_t bound) {
  static const ir_dtype types[] = {IR_I64, IR_I32, IR_I8, IR_U8};
  put_input(p, types[below(4)], s);
  p->index_bound[p->n_inputs - 1] = bound;
}

static ir_dtype any_dtype(void) { return (ir_dtype)between(1, IR_DTYPE_COUNT - 1); }
static ir_dtype any_float(void) { return (ir_dtype)between(IR_F64, IR_BF16); }

/* Mostly the given one. */
static ir_dtype like(ir_dtype t) {
  ir_dtype other = any_dtype();
  return chance(75) || ir_dtype_kind_of(other) != ir_dtype_kind_of(t) ? t : other;
}

/* A shape that broadcasts to s. */
static shape broadcastable(const shape *s) {
  shape out = {.rank = chance(70) ? s->rank : (uint32_t)below(s->rank + 1)};
  for (uint32_t i = 0; i < out.rank; i++) out.d[i] = chance(25) ? 1 : s->d[s->rank - out.rank + i];
  return out;
}

static void gen_pointwise(program *p, const ir_op_info *info) {
  shape s = random_shape(0, 4);
  p->special = true;
  for (uint32_t i = 0; i < info->n_tensors; i++) {
    shape own = chance(50) ? s : broadcastable(&s);
    bool condition = info->rule == IR_RESULT_CHOICE && i == 0;
    if (i > 0 && chance(20)) {
      bool whole = !ir_dtype_is_float(p->dtype) && chance(80);
      strbuf_puts(&p->call, p->dtype == IR_BOOL ? ", true" : whole ? ", 2" : ", 0.3");
    } else {
      put_input(p, condition ? IR_BOOL : i ? like(p->dtype) : p->dtype, i ? &own : &s);
    }
  }
  for (const ir_param *q = info->params; q->kind != IR_PARAM_END; q++)
    if (q->kind == IR_PARAM_CHOICE && chance(50))
      strbuf_printf(&p->call, ", %s=%s", q->name, q->choices[below(2)]);
}

/* Distinct dimensions, some of them counted from the end. */
static uint32_t some_dims(uint32_t rank, int64_t *dims) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < rank; d++)
    if (chance(50)) dims[n++] = chance(30) ? (int64_t)d - rank : d;
  return n;
}

static void gen_reduce(program *p, bool var) {
  shape s = random_shape(0, 4);
  int64_t dims[8];
  p->special = true;
  put_input(p, p->dtype, &s);
  if (chance(80)) {
    uint32_t n = some_dims(s.rank, dims);
    strbuf_puts(&p->call, ", dims=");
    put_list(&p->call, dims, n);
  }
  if (chance(40)) strbuf_puts(&p->call, ", keepdim=true");
  if (var && chance(50)) strbuf_printf(&p->call, ", correction=%d", (int)below(3));
}

static void gen_broadcast(program *p) {
  shape s = random_shape(0, 3);
  put_input(p, p->dtype, &s);
  strbuf_puts(&p->call, ", [");
  uint32_t kept = 0;
  for (uint32_t i = 0; kept < s.rank || i < 1 || chance(30); i++) {
    bool insert = kept == s.rank || chance(30);
    kept += !insert;
    strbuf_printf(&p->call, "%s%s", i ? ", " : "", insert ? "true" : "false");
  }
  strbuf_putc(&p->call, ']');
}

static void gen_squeeze(program *p) {
  shape s = random_shape(1, 4);
  int64_t dims[8];
  uint32_t n = some_dims(s.rank, dims);
  for (uint32_t i = 0; i < n; i++) s.d[dims[i] < 0 ? dims[i] + s.rank : dims[i]] = 1;
  put_input(p, p->dtype, &s);
  strbuf_puts(&p->call, ", dims=");
  put_list(&p->call, dims, n);
}

static void gen_expand(program *p) {
  shape s = random_shape(0, 4), own = broadcastable(&s);
  put_input(p, p->dtype, &own);
  strbuf_puts(&p->call, ", ");
  put_list(&p->call, s.d, s.rank);
}

static void gen_permute(program *p, bool transpose) {
  shape s = random_shape(transpose ? 2 : 0, 4);
  int64_t order[8];
  if (chance(20)) s.d[0] = 50, s.d[s.rank ? s.rank - 1 : 0] = 70;
  put_input(p, p->dtype, &s);
  if (transpose) return;
  for (uint32_t i = 0; i < s.rank; i++) {
    uint32_t j = (uint32_t)below(i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  strbuf_puts(&p->call, ", ");
  put_list(&p->call, order, s.rank);
}

/* Both shapes are groupings of the same factors. */
static shape grouped(const int64_t *factors, uint32_t n) {
  shape s = {.rank = 0};
  for (uint32_t i = 0; i < n; i++) {
    if (s.rank == 0 || chance(50)) s.d[s.rank++] = 1;
    s.d[s.rank - 1] *= factors[i];
  }
  return s;
}

static void gen_reshape(program *p) {
  int64_t factors[6];
  uint32_t n = (uint32_t)between(1, 5);
  for (uint32_t i = 0; i < n; i++) factors[i] = chance(3) ? 0 : between(1, 6);
  shape from = grouped(factors, n), to = grouped(factors, n);
  if (chance(50)) /* factors in another order: rows do not stay together */
    for (uint32_t i = 0; i + 1 < to.rank; i++) {
      int64_t d = to.d[i];
      to.d[i] = to.d[i + 1];
      to.d[i + 1] = d;
    }
  put_input(p, p->dtype, &from);
  strbuf_puts(&p->call, ", ");
  put_list(&p->call, to.d, to.rank);
}

static void gen_slice(program *p) {
  shape s = random_shape(1, 4);
  int64_t starts[8], stops[8], steps[8];
  for (uint32_t i = 0; i < s.rank; i++) {
    bool all = chance(30);
    starts[i] = all ? 0 : between(-s.d[i] - 1, s.d[i] + 1);
    stops[i] = all ? s.d[i] : between(-1, s.d[i] + 2);
    steps[i] = all ? 1 : between(1, 3);
  }
  put_input(p, p->dtype, &s);
  strbuf_puts(&p->call, ", starts=");
  put_list(&p->call, starts, s.rank);
  strbuf_puts(&p->call, ", stops=");
  put_list(&p->call, stops, s.rank);
  if (chance(60)) {
    strbuf_puts(&p->call, ", steps=");
    put_list(&p->call, steps, s.rank);
  }
}

static void gen_pad(program *p) {
  shape s = random_shape(1, 3);
  int64_t widths[16];
  for (uint32_t i = 0; i < 2 * s.rank; i++) widths[i] = chance(30) ? 0 : between(-1, 3);
  for (uint32_t i = 0; i < s.rank; i++)
    if (s.d[i] + widths[2 * i] + widths[2 * i + 1] < 0) widths[2 * i] = widths[2 * i + 1] = 0;
  put_input(p, p->dtype, &s);
  strbuf_puts(&p->call, ", ");
  put_list(&p->call, widths, 2 * s.rank);
  if (chance(60)) strbuf_puts(&p->call, ir_dtype_is_float(p->dtype) ? ", value=0.7" : ", value=1");
}

static void gen_cat(program *p) {
  shape s = random_shape(1, 4);
  uint32_t dim = (uint32_t)below(s.rank), n = (uint32_t)between(1, 4);
  for (uint32_t i = 0; i < n; i++) {
    s.d[dim] = extent();
    put_input(p, i ? like(p->dtype) : p->dtype, &s);
  }
  strbuf_printf(&p->call, ", dim=%d", (int)dim);
}

static void gen_select(program *p) {
  shape s = random_shape(1, 4);
  uint32_t dim = (uint32_t)below(s.rank);
  if (s.d[dim] == 0) s.d[dim] = 3;
  put_input(p, p->dtype, &s);
  strbuf_printf(&p->call, ", dim=%d, index=%lld", (int)dim,
                (long long)between(-s.d[dim], s.d[dim] - 1));
}

static void gen_maker(program *p, ir_opcode code) {
  shape s = random_shape(0, 4);
  bool is_float = ir_dtype_is_float(p->dtype);
  if (code == IR_OP_UNIFORM && chance(20)) s = (shape){.rank = 1, .d = {20000}}; /* reaches hi */
  if (code == IR_OP_IOTA) strbuf_printf(&p->call, "%lld", (long long)between(0, 100));
  else put_list(&p->call, s.d, s.rank);
  if (code == IR_OP_FULL) strbuf_puts(&p->call, is_float ? ", 0.3" : ", 1");
  if (code == IR_OP_UNIFORM && chance(60))
    strbuf_printf(&p->call, ", lo=%d, hi=%d", (int)between(-5, 0), (int)between(1, 9));
  if (code == IR_OP_UNIFORM && chance(50)) strbuf_printf(&p->call, ", key=%d", (int)below(9));
  strbuf_printf(&p->call, ", dtype=%s", ir_dtype_text(p->dtype));
}

static void gen_indexed(program *p, ir_opcode code) {
  shape s = random_shape(1, 4), index = s, src;
  uint32_t dim = (uint32_t)below(s.rank);
  if (s.d[dim] == 0) s.d[dim] = 2;
  for (uint32_t i = 0; i < s.rank; i++)
    index.d[i] = i == dim ? extent() : chance(60) ? s.d[i] : below(s.d[i] + 1);
  if (code == IR_OP_INDEX_SELECT) index = (shape){.rank = 1, .d = {extent()}};
  put_input(p, p->dtype, &s);
  put_index(p, &index, s.d[dim]);
  src = index;
  for (uint32_t i = 0; i < src.rank; i++) src.d[i] += chance(20);
  if (code == IR_OP_SCATTER) put_input(p, p->dtype, &src);
  strbuf_printf(&p->call, ", dim=%d", (int)dim);
  if (code == IR_OP_SCATTER && chance(60)) strbuf_puts(&p->call, ", reduce=add");
}

static void gen_update(program *p) {
  shape s = random_shape(1, 4), src, none = {.rank = 0};
  uint32_t dim = (uint32_t)below(s.rank);
  src = s;
  src.d[dim] = below(s.d[dim] + 1);
  put_input(p, p->dtype, &s);
  put_input(p, p->dtype, &src);
  put_index(p, &none, s.d[dim] - src.d[dim] + 1);
  strbuf_printf(&p->call, ", dim=%d", (int)dim);
}

static void gen_one_hot(program *p) {
  shape s = random_shape(0, 3);
  int64_t n = between(1, 9);
  put_index(p, &s, n);
  strbuf_printf(&p->call, ", %lld, dtype=%s", (long long)n, ir_dtype_text(p->dtype));
}

/* Along one axis; sometimes past the blocks of the kernels, so that cumsum goes on and sorting
 * merges. Few different numbers: many are equal. */
static void gen_ordered(program *p, ir_opcode code) {
  shape s = random_shape(1, 4);
  uint32_t dim = (uint32_t)below(s.rank);
  p->special = true;
  if (chance(15)) s = (shape){.rank = 2, .d = {between(1, 3), between(1, 3)}};
  if (s.rank == 2 && chance(50)) s.d[dim = (uint32_t)below(2)] = between(30, 1300);
  put_input(p, p->dtype, &s);
  bool top = code == IR_OP_TOPK || code == IR_OP_TOPK_INDEX;
  if (top) strbuf_printf(&p->call, ", k=%lld", (long long)between(0, s.d[dim]));
  strbuf_printf(&p->call, ", dim=%d", (int)dim - (chance(30) ? (int)s.rank : 0));
  if (code == IR_OP_ARGSORT && chance(50)) strbuf_puts(&p->call, ", descending=true");
}

/* Sometimes past the blocks of the kernels. */
static int64_t matrix_extent(void) { return chance(6) ? between(60, 90) : extent(); }

/* Now and then another dtype of the result: a float, or of integers any number. */
static void put_product_dtype(program *p) {
  ir_dtype t = any_float();
  if (!ir_dtype_is_float(p->dtype) && chance(50)) t = chance(50) ? IR_I64 : IR_I32;
  if (chance(30)) strbuf_printf(&p->call, ", dtype=%s", ir_dtype_text(t));
}

static void gen_matmul(program *p) {
  shape batch = random_shape(0, 2), a = broadcastable(&batch), b = broadcastable(&batch);
  int64_t k = chance(4) ? between(520, 600) : matrix_extent();
  if (chance(10)) a = (shape){.rank = 0};
  else a.d[a.rank++] = chance(3) ? 270 : matrix_extent();
  a.d[a.rank++] = k;
  bool vector = chance(10);
  if (vector) b = (shape){.rank = 0};
  b.d[b.rank++] = k;
  if (!vector) b.d[b.rank++] = chance(3) ? 530 : matrix_extent();
  put_input(p, p->dtype, &a);
  put_input(p, like(p->dtype), &b);
  put_product_dtype(p);
}

/* Often as tensor cores want it. */
static int64_t maybe_eights(bool eights, int64_t n) { return eights ? (n + 7) / 8 * 8 : n; }

static void gen_grouped_matmul(program *p) {
  shape batch = random_shape(0, 2), x = broadcastable(&batch), w = broadcastable(&batch);
  shape index = broadcastable(&batch);
  int64_t k = chance(4) ? between(520, 600) : matrix_extent(), g = below(5);
  int64_t m = chance(20) ? between(60, 140) : matrix_extent();
  bool eights = chance(50);
  k = maybe_eights(eights, k);
  x.d[x.rank++] = m, x.d[x.rank++] = k;
  w.d[w.rank++] = g, w.d[w.rank++] = k, w.d[w.rank++] = maybe_eights(eights, matrix_extent());
  index.d[index.rank++] = m;
  put_input(p, p->dtype, &x);
  put_input(p, like(p->dtype), &w);
  put_index(p, &index, g + 1);
  put_product_dtype(p);
}

static void gen_grouped_outer(program *p) {
  shape batch = random_shape(0, 2), x = broadcastable(&batch), y = broadcastable(&batch);
  shape index = broadcastable(&batch);
  int64_t m = chance(4) ? between(520, 600) : matrix_extent(), g = below(5);
  bool eights = chance(50);
  int64_t in = chance(20) ? between(60, 140) : matrix_extent();
  x.d[x.rank++] = m, x.d[x.rank++] = maybe_eights(eights, in);
  y.d[y.rank++] = m, y.d[y.rank++] = maybe_eights(eights, matrix_extent());
  index.d[index.rank++] = m;
  put_input(p, p->dtype, &x);
  put_input(p, like(p->dtype), &y);
  put_index(p, &index, g + 1);
  strbuf_printf(&p->call, ", %lld", (long long)g);
  put_product_dtype(p);
}

static void gen_group_index(program *p) {
  shape s = random_shape(1, 3);
  int64_t g = s.d[s.rank - 1], bound = between(1, 9), spare = below(4);
  put_index(p, &s, bound);
  strbuf_printf(&p->call, ", %lld", (long long)(g * (bound - 1) + spare));
}

static void gen_linear(program *p) {
  shape x = random_shape(0, 3), w = random_shape(0, 1), bias;
  int64_t k = chance(4) ? between(520, 600) : matrix_extent(), n = matrix_extent();
  x.d[x.rank++] = k;
  w.d[w.rank++] = n;
  bias = w;
  w.d[w.rank++] = k;
  put_input(p, p->dtype, &x);
  put_input(p, like(p->dtype), &w);
  if (chance(50)) put_input(p, like(p->dtype), &bias);
  put_product_dtype(p);
}

static void gen_softmax(program *p) {
  shape s = random_shape(1, 4);
  p->special = true;
  put_input(p, p->dtype, &s);
  if (chance(60)) strbuf_printf(&p->call, ", dim=%d", (int)between(-(int64_t)s.rank, s.rank - 1));
}

static void gen_norm(program *p, bool bias) {
  shape s = random_shape(1, 4), v = {.rank = 1, .d = {s.d[s.rank - 1]}};
  put_input(p, p->dtype, &s);
  if (chance(60)) put_input(p, chance(70) ? p->dtype : any_float(), &v);
  if (bias && chance(50)) {
    strbuf_puts(&p->call, ", bias=");
    strbuf_putc(&p->call, declare(p, chance(70) ? p->dtype : any_float(), &v));
  }
  if (chance(30)) strbuf_puts(&p->call, ", eps=0.01");
}

/* Fewer heads of k and v than of q; they are the last axis so far. */
static void group_heads(shape *q, shape *k, shape *v) {
  int64_t heads = between(2, 3), group = between(2, 3);
  if (q->rank == 0 || k->rank == 0 || v->rank == 0) return;
  q->d[q->rank - 1] = heads * group;
  k->d[k->rank - 1] = v->d[v->rank - 1] = heads;
}

/* What the forward pass would have given may be anything. */
static void gen_sdpa_backward(program *p) {
  shape q = random_shape(0, 2), k, v, out, lse;
  int64_t l = matrix_extent(), s = matrix_extent(), e = between(1, 9), w = between(1, 9);
  k = v = q;
  if (chance(40)) group_heads(&q, &k, &v);
  out = lse = q;
  q.d[q.rank++] = l, q.d[q.rank++] = e;
  k.d[k.rank++] = s, k.d[k.rank++] = e;
  v.d[v.rank++] = s, v.d[v.rank++] = w;
  out.d[out.rank++] = l, out.d[out.rank++] = w;
  lse.d[lse.rank++] = l;
  const shape *shapes[] = {&q, &k, &v, &out, &lse, &out};
  for (int i = 0; i < 6; i++) put_input(p, i ? like(p->dtype) : p->dtype, shapes[i]);
  if (chance(50)) strbuf_puts(&p->call, ", causal=true");
  if (chance(30)) strbuf_puts(&p->call, ", scale=0.5");
}

static void gen_sdpa(program *p) {
  shape batch = random_shape(0, 2), q = broadcastable(&batch), k = broadcastable(&batch),
        v = broadcastable(&batch);
  int64_t l = chance(15) ? between(60, 140) : matrix_extent(), s = matrix_extent();
  int64_t e = between(1, 9);
  if (chance(30)) group_heads(&q, &k, &v);
  q.d[q.rank++] = l, q.d[q.rank++] = e;
  k.d[k.rank++] = s, k.d[k.rank++] = e;
  v.d[v.rank++] = s, v.d[v.rank++] = between(1, 9);
  put_input(p, p->dtype, &q);
  put_input(p, like(p->dtype), &k);
  put_input(p, like(p->dtype), &v);
  if (chance(50)) strbuf_puts(&p->call, ", causal=true");
  if (chance(30)) strbuf_puts(&p->call, ", scale=0.5");
}

static void gen_call(program *p, ir_opcode code, const ir_op_info *info) {
  switch (info->family) {
  case IR_FAMILY_POINTWISE: gen_pointwise(p, info); return;
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST: {
    shape s = random_shape(0, 4);
    p->special = true;
    put_input(p, p->dtype, &s);
    if (code == IR_OP_CAST) strbuf_printf(&p->call, ", %s", ir_dtype_text(any_dtype()));
    return;
  }
  case IR_FAMILY_REDUCE:
  case IR_FAMILY_MOMENT: gen_reduce(p, code == IR_OP_VAR || code == IR_OP_VAR_MEAN); return;
  case IR_FAMILY_BROADCAST: gen_broadcast(p); return;
  case IR_FAMILY_SQUEEZE: gen_squeeze(p); return;
  case IR_FAMILY_EXPAND: gen_expand(p); return;
  case IR_FAMILY_PERMUTE: gen_permute(p, code == IR_OP_TRANSPOSE); return;
  case IR_FAMILY_RESHAPE: gen_reshape(p); return;
  case IR_FAMILY_SLICE: gen_slice(p); return;
  case IR_FAMILY_PAD: gen_pad(p); return;
  case IR_FAMILY_CAT: gen_cat(p); return;
  case IR_FAMILY_SELECT: gen_select(p); return;
  case IR_FAMILY_MAKER: gen_maker(p, code); return;
  case IR_FAMILY_GATHER:
  case IR_FAMILY_SCATTER:
  case IR_FAMILY_INDEX_SELECT: gen_indexed(p, code); return;
  case IR_FAMILY_UPDATE: gen_update(p); return;
  case IR_FAMILY_ONE_HOT: gen_one_hot(p); return;
  case IR_FAMILY_SCAN:
  case IR_FAMILY_SORT:
  case IR_FAMILY_TOPK: gen_ordered(p, code); return;
  case IR_FAMILY_MATMUL: gen_matmul(p); return;
  case IR_FAMILY_LINEAR: gen_linear(p); return;
  case IR_FAMILY_GROUPED_MATMUL: gen_grouped_matmul(p); return;
  case IR_FAMILY_GROUPED_OUTER: gen_grouped_outer(p); return;
  case IR_FAMILY_GROUP_INDEX: gen_group_index(p); return;
  case IR_FAMILY_SOFTMAX: gen_softmax(p); return;
  case IR_FAMILY_NORM: gen_norm(p, code == IR_OP_LAYER_NORM); return;
  case IR_FAMILY_SDPA: gen_sdpa(p); return;
  case IR_FAMILY_SDPA_BACKWARD: gen_sdpa_backward(p); return;
  }
}

#endif
