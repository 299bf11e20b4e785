/* Random programs of one kind: an operation along an axis that lies on different devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen_model.h"

enum { RANK = 3 };

typedef enum along_op {
  SUM,
  AMAX,
  CUMSUM,
  TOPK,
  TOPK_INDEX,
  GATHER,
  INDEX_SELECT,
  SCATTER,
  SHIFT,
  ROLL,
  WINDOWS,
  N_EXACT, /* those before it do not round whole numbers */
  MEAN = N_EXACT,
  VAR_MEAN,
  SOFTMAX,
  LAYER_NORM,
  RMS_NORM,
  N_OPS,
} along_op;

typedef struct shape {
  along_op op;
  uint32_t devices, lines; /* mesh [lines, devices] */
  int64_t extents[RANK];
  uint32_t dim, other; /* the one it works along, and another */
  int64_t k;           /* positions that are picked */
  bool keeps;
  bool streamed;  /* along the other dimension */
  bool lines_cut; /* the other dimension lies on lines */
  int result;     /* where it lies: -1: not said; 0: whole; 1: as x; 2: cut along the other */
  bool index_cut; /* of an index: lies on the same devices */
  const char *dtype;
} shape;

static shape random_shape(gen_random *r, bool exact) {
  static const char *const dtypes[] = {"f32", "f32", "f64", "bf16"};
  shape s = {.op = (along_op)gen_below(r, exact ? N_EXACT : N_OPS)};
  s.devices = 2 + gen_below(r, 3);
  s.lines = gen_chance(r, 30) ? 2 : 1;
  for (uint32_t i = 0; i < RANK; i++) s.extents[i] = 1 + gen_below(r, 5);
  s.dim = s.op == LAYER_NORM || s.op == RMS_NORM ? RANK - 1 : gen_below(r, RANK);
  s.other = (s.dim + 1 + gen_below(r, RANK - 1)) % RANK;
  s.extents[s.dim] = (int64_t)s.devices * (2 + gen_below(r, 6));
  if (gen_chance(r, 25)) s.extents[s.dim] += gen_below(r, 4);
  s.k = 1 + gen_below(r, 2);
  s.keeps = gen_chance(r, 60);
  s.streamed = gen_chance(r, 30);
  s.lines_cut = s.lines > 1 && gen_chance(r, 60);
  s.result = (int)gen_below(r, 4) - 1;
  s.index_cut = gen_chance(r, 30);
  s.dtype = dtypes[exact ? 0 : gen_below(r, 4)];
  return s;
}

static void write_type(text_buffer *text, const char *name, const char *dtype, const shape *s,
                       int64_t along) {
  buffer_printf(text, "  %s : %s[", name, dtype);
  for (uint32_t i = 0; i < RANK; i++) {
    int64_t n = i == s->dim ? along : s->extents[i];
    if (i == s->other) buffer_printf(text, "%sn", i ? ", " : "");
    else buffer_printf(text, "%s%lld", i ? ", " : "", (long long)n);
  }
  buffer_printf(text, "]\n");
}

/* slice(x, …): positions first … last - 1 along the dimension. */
static void write_slice(text_buffer *text, const shape *s, const char *x, int64_t first,
                        int64_t last) {
  buffer_printf(text, "slice(%s, starts=[", x);
  for (uint32_t i = 0; i < RANK; i++)
    buffer_printf(text, "%s%lld", i ? ", " : "", i == s->dim ? (long long)first : 0);
  buffer_printf(text, "], stops=[");
  for (uint32_t i = 0; i < RANK; i++) {
    int64_t n = i == s->dim ? last : s->extents[i];
    if (i == s->other) buffer_printf(text, "%sn", i ? ", " : "");
    else buffer_printf(text, "%s%lld", i ? ", " : "", (long long)n);
  }
  buffer_printf(text, "])");
}

/* Rolled to the right or to the left; if it is streamed, what comes in is another end. */
static void write_roll(text_buffer *text, const shape *s) {
  int64_t n = s->extents[s->dim], cut = s->keeps ? n - s->k : s->k;
  buffer_printf(text, "  y0 = cat(");
  if (s->streamed) write_slice(text, s, "x0", 0, n - cut);
  else write_slice(text, s, "x0", cut, n);
  buffer_printf(text, ", ");
  write_slice(text, s, "x0", 0, cut);
  buffer_printf(text, ", dim=%u)\n", s->dim);
}

/* A sum of windows of what was padded, or of two that were put together. */
static void write_windows(text_buffer *text, const shape *s) {
  int64_t n = s->extents[s->dim];
  if (s->keeps) {
    buffer_printf(text, "  p0 = pad(x0, [");
    for (uint32_t i = 0; i < RANK; i++)
      buffer_printf(text, "%s%d, %d", i ? ", " : "", i == s->dim, i == s->dim ? 2 : 0);
    buffer_printf(text, "], value=2)\n");
  } else {
    buffer_printf(text, "  o0 = ");
    write_slice(text, s, "x0", 0, 3);
    buffer_printf(text, "\n  p0 = cat(%s, dim=%u)\n", s->index_cut ? "o0, x0" : "x0, o0", s->dim);
  }
  buffer_printf(text, "  y0 = ");
  for (int64_t i = 0; i < 3; i++) {
    buffer_printf(text, "%s", i ? " + " : "");
    write_slice(text, s, "p0", i * s->k / 2, i * s->k / 2 + n);
  }
  buffer_printf(text, "\n");
}

static void write_op(text_buffer *text, const shape *s) {
  const char *keeps = s->keeps ? ", keepdim=true" : "";
  long long k = (long long)s->k;
  unsigned dim = s->dim;
  switch (s->op) {
  case SUM: buffer_printf(text, "  y0 = sum(x0, dims=[%u]%s)\n", dim, keeps); return;
  case AMAX: buffer_printf(text, "  y0 = amax(x0, dims=[%u]%s)\n", dim, keeps); return;
  case CUMSUM: buffer_printf(text, "  y0 = cumsum(x0, dim=%u)\n", dim); return;
  case TOPK: buffer_printf(text, "  y0, y1 = topk(x0, k=%lld, dim=%u)\n", k, dim); return;
  case TOPK_INDEX: buffer_printf(text, "  y0 = topk_index(x0, k=%lld, dim=%u)\n", k, dim); return;
  case GATHER: buffer_printf(text, "  y0 = gather(x0, x1, dim=%u)\n", dim); return;
  case INDEX_SELECT: buffer_printf(text, "  y0 = index_select(x0, x1, dim=%u)\n", dim); return;
  case SCATTER:
    buffer_printf(text, "  y0 = scatter(x0, x1, x2, dim=%u, reduce=add)\n", dim);
    return;
  case SHIFT: {
    buffer_printf(text, "  y0 = pad(x0, [");
    for (uint32_t i = 0; i < RANK; i++) {
      int by = i != s->dim ? 0 : s->keeps ? (int)s->k : -(int)s->k;
      buffer_printf(text, "%s%d, %d", i ? ", " : "", by, -by);
    }
    buffer_printf(text, "], value=3)\n");
    return;
  }
  case ROLL: write_roll(text, s); return;
  case WINDOWS: write_windows(text, s); return;
  case MEAN: buffer_printf(text, "  y0 = mean(x0, dims=[%u]%s)\n", dim, keeps); return;
  case VAR_MEAN: buffer_printf(text, "  y0, y1 = var_mean(x0, dims=[%u]%s)\n", dim, keeps); return;
  case SOFTMAX: buffer_printf(text, "  y0 = softmax(x0, dim=%u)\n", dim); return;
  case LAYER_NORM: buffer_printf(text, "  y0 = layer_norm(x0, x1)\n"); return;
  case RMS_NORM: buffer_printf(text, "  y0 = rms_norm(x0)\n"); return;
  case N_OPS: return;
  }
}

static bool picks(const shape *s) { return s->op == GATHER || s->op == SCATTER; }
static bool has_more(const shape *s) { return s->op == TOPK || s->op == VAR_MEAN; }
static bool reduces(const shape *s) {
  return s->op == SUM || s->op == AMAX || s->op == MEAN || s->op == VAR_MEAN;
}

/* The place of the other dimension in the result, and whether the one of the operation is there. */
static uint32_t result_dim(const shape *s, uint32_t dim) {
  return reduces(s) && !s->keeps && dim > s->dim ? dim - 1 : dim;
}

static void cut(text_buffer *text, const char *name, uint32_t dim, const char *axis) {
  buffer_printf(text, "    %s.outer_split(%u, d.%s); %s[%u] = mesh.%s\n", name, dim, axis, name,
                dim, axis);
}

/* Of a reduction without keepdim the loop domain has the reduction too. */
static void place_result(text_buffer *text, const shape *s) {
  bool moments = s->op == MEAN || s->op == VAR_MEAN;
  uint32_t other = moments ? result_dim(s, s->other) : s->other;
  bool same = !reduces(s) && s->op != TOPK && s->op != TOPK_INDEX;
  if (s->result < 0) return;
  buffer_printf(text, "    y0 on d\n");
  if (s->result == 1 && same) cut(text, "y0", s->dim, "x");
  if (s->result == 2) cut(text, "y0", other, "x");
}

static void write_schedule(text_buffer *text, const shape *s) {
  uint32_t shift = s->other > s->dim ? 1 : 0; /* the other dimension, after the first split */
  buffer_printf(text, "  schedule {\n    x0 on d\n");
  cut(text, "x0", s->dim, "x");
  if (s->lines_cut) cut(text, "x0", s->other + shift, "y");
  else if (s->streamed) buffer_printf(text, "    x0[%u] = stream\n", s->other + shift);
  if (s->index_cut && (picks(s) || s->op == INDEX_SELECT)) {
    buffer_printf(text, "    x1 on d\n");
    cut(text, "x1", s->op == INDEX_SELECT ? 0 : s->other, "x");
  }
  place_result(text, s);
  buffer_printf(text, "  }\n}\n");
}

static void write_program(text_buffer *text, const shape *s) {
  buffer_printf(text, "fusion random {\n  mesh d = [");
  if (s->lines > 1) buffer_printf(text, "%u, ", s->lines);
  buffer_printf(text, "%u]\n", s->devices);
  write_type(text, "x0", s->dtype, s, s->extents[s->dim]);
  if (picks(s)) write_type(text, "x1", "i64", s, s->k);
  if (s->op == SCATTER) write_type(text, "x2", s->dtype, s, s->k);
  if (s->op == INDEX_SELECT) buffer_printf(text, "  x1 : i64[%lld]\n", (long long)s->k);
  if (s->op == LAYER_NORM)
    buffer_printf(text, "  x1 : %s[%lld]\n", s->dtype, (long long)s->extents[s->dim]);
  write_op(text, s);
  buffer_printf(text, "  return y0%s\n", has_more(s) ? ", y1" : "");
  write_schedule(text, s);
}

static gen_value *add(gen_value *list, uint32_t *n, const char *name, ir_dtype dtype, bool exact) {
  gen_value *v = &list[(*n)++];
  *v = (gen_value){.dtype = dtype, .fill = exact ? GEN_FILL_INTEGER : GEN_FILL_NORMAL};
  (void)snprintf(v->name, sizeof v->name, "%s", name);
  return v;
}

static void set_extents(gen_value *v, const shape *s, int64_t along) {
  v->rank = RANK;
  memcpy(v->extents, s->extents, sizeof s->extents);
  v->extents[s->dim] = along;
}

static void add_inputs(gen_program *p, const shape *s, ir_dtype dtype, bool exact) {
  set_extents(add(p->inputs, &p->n_inputs, "x0", dtype, exact), s, s->extents[s->dim]);
  if (picks(s) || s->op == INDEX_SELECT) {
    gen_value *v = add(p->inputs, &p->n_inputs, "x1", IR_I64, exact);
    set_extents(v, s, s->k);
    v->fill = GEN_FILL_INDEX;
    v->index_bound = s->extents[s->dim];
    if (s->op == INDEX_SELECT) v->rank = 1;
    if (s->op == INDEX_SELECT) v->extents[0] = s->k;
  }
  if (s->op == SCATTER) set_extents(add(p->inputs, &p->n_inputs, "x2", dtype, exact), s, s->k);
  if (s->op != LAYER_NORM) return;
  gen_value *w = add(p->inputs, &p->n_inputs, "x1", dtype, exact);
  w->rank = 1;
  w->extents[0] = s->extents[s->dim];
}

static void add_output(gen_program *p, const shape *s, const char *name, ir_dtype dtype) {
  bool k = picks(s) || s->op == INDEX_SELECT || s->op == TOPK || s->op == TOPK_INDEX;
  gen_value *v = add(p->outputs, &p->n_outputs, name, dtype, true);
  bool whole = !k || s->op == SCATTER;
  set_extents(v, s, reduces(s) ? 1 : whole ? s->extents[s->dim] : s->k);
  if (!reduces(s) || s->keeps) return;
  v->rank--;
  for (uint32_t i = s->dim; i < v->rank; i++) v->extents[i] = v->extents[i + 1];
}

/* ---- attention ---- */
typedef struct attention {
  uint32_t devices;
  bool heads_cut; /* of q; else the positions of k and v */
  int64_t q[RANK], k[RANK];
  bool causal, lse;
} attention;

static attention random_attention(gen_random *r) {
  attention a = {.devices = 2 + 2 * gen_below(r, 2), .heads_cut = gen_chance(r, 50)};
  int64_t heads = gen_chance(r, 50) ? 1 : 2, features = 1 + gen_below(r, 4);
  a.q[0] = a.heads_cut ? (int64_t)a.devices * (1 + gen_below(r, 3)) : heads * (1 + gen_below(r, 2));
  a.q[1] = 1 + gen_below(r, 3);
  a.k[0] = heads;
  a.k[1] = (int64_t)a.devices * (1 + gen_below(r, 6)) + (gen_chance(r, 20) ? 1 : 0);
  a.q[2] = a.k[2] = features;
  a.causal = gen_chance(r, 30);
  a.lse = gen_chance(r, 30);
  return a;
}

static void write_input(text_buffer *text, const char *name, const int64_t *e) {
  buffer_printf(text, "  %s : f32[%lld, %lld, %lld]\n", name, (long long)e[0], (long long)e[1],
                (long long)e[2]);
}

static void write_attention(text_buffer *text, const attention *a) {
  buffer_printf(text, "fusion random {\n  mesh d = [%u]\n", a->devices);
  write_input(text, "x0", a->q);
  write_input(text, "x1", a->k);
  write_input(text, "x2", a->k);
  buffer_printf(text, "  y0%s = sdpa(x0, x1, x2%s)\n", a->lse ? ", y1" : "",
                a->causal ? ", causal=true" : "");
  buffer_printf(text, "  return y0%s\n  schedule {\n    x0, x1, x2 on d\n", a->lse ? ", y1" : "");
  if (a->heads_cut) cut(text, "x0", 0, "x");
  if (!a->heads_cut) cut(text, "x1", 1, "x");
  if (!a->heads_cut) cut(text, "x2", 1, "x");
  buffer_printf(text, "  }\n}\n");
}

static void add_value(gen_value *list, uint32_t *n, const char *name, const int64_t *e,
                      uint32_t rank) {
  gen_value *v = add(list, n, name, IR_F32, false);
  v->rank = rank;
  memcpy(v->extents, e, rank * sizeof *e);
}

static gen_program *create_attention(gen_random *r) {
  attention a = random_attention(r);
  text_buffer text = {0};
  gen_program *p = calloc(1, sizeof *p);
  if (!p) abort();
  write_attention(&text, &a);
  p->text = text.data;
  p->inputs = calloc(3, sizeof *p->inputs);
  p->outputs = calloc(2, sizeof *p->outputs);
  if (!p->inputs || !p->outputs) abort();
  add_value(p->inputs, &p->n_inputs, "x0", a.q, RANK);
  add_value(p->inputs, &p->n_inputs, "x1", a.k, RANK);
  add_value(p->inputs, &p->n_inputs, "x2", a.k, RANK);
  add_value(p->outputs, &p->n_outputs, "y0", a.q, RANK);
  if (a.lse) add_value(p->outputs, &p->n_outputs, "y1", a.q, RANK - 1);
  p->n_ops = 1;
  p->has_schedule = true;
  return p;
}

gen_program *gen_create_along(uint64_t seed, bool exact) {
  gen_random r = {seed * 2 + 1};
  if (!exact && gen_chance(&r, 20)) return create_attention(&r);
  shape s = random_shape(&r, exact);
  text_buffer text = {0};
  gen_program *p = calloc(1, sizeof *p);
  if (!p) abort();
  write_program(&text, &s);
  p->text = text.data;
  p->inputs = calloc(3, sizeof *p->inputs);
  p->outputs = calloc(2, sizeof *p->outputs);
  if (!p->inputs || !p->outputs) abort();
  ir_dtype dtype = ir_dtype_parse(s.dtype, strlen(s.dtype));
  add_inputs(p, &s, dtype, exact);
  add_output(p, &s, "y0", s.op == TOPK_INDEX ? IR_I64 : dtype);
  if (has_more(&s)) add_output(p, &s, "y1", s.op == TOPK ? IR_I64 : dtype);
  (void)snprintf(p->bindings[p->n_bindings++], sizeof p->bindings[0], "n=%lld",
                 (long long)s.extents[s.other]);
  p->n_ops = 1;
  p->has_schedule = true;
  return p;
}
