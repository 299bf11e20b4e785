/* Random programs of one kind: rows that lie on different devices are gathered piece by piece, and each
 * piece is computed with, in slices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen_model.h"

typedef struct shape {
  uint32_t devices, lines; /* mesh [lines, devices] */
  bool flat;               /* x : [m, k]; else [devices, m, k] */
  int64_t m, k, n;
  bool cut;     /* devices have columns of their own */
  bool sliced;  /* a second stream */
  bool columns; /* it goes over columns */
  bool outside; /* it is the outer one */
  const char *dtype;
  const char *split; /* of the second stream */
  char slices[64];   /* in how many, of which length, or of which lengths */
  uint32_t n_ops;
} shape;

/* How rows or columns are cut; lists of lengths need a known length. */
static void choose_slices(gen_random *r, shape *s) {
  int64_t left = s->columns ? s->n : s->m;
  uint32_t count = 1 + gen_below(r, 5);
  bool even = gen_chance(r, 60) || left < count || s->columns || s->flat;
  s->split = !even || gen_chance(r, 80) ? "outer_split" : "split";
  if (even) {
    (void)snprintf(s->slices, sizeof s->slices, "%u", count);
    return;
  }
  size_t used = (size_t)snprintf(s->slices, sizeof s->slices, "[");
  for (uint32_t i = count; i > 0; i--) {
    int64_t length = i == 1 ? left : 1 + gen_below(r, (uint32_t)(left - i + 1));
    left -= length;
    used += (size_t)snprintf(s->slices + used, sizeof s->slices - used, "%s%lld",
                             i == count ? "" : ", ", (long long)length);
  }
  (void)snprintf(s->slices + used, sizeof s->slices - used, "]");
}

static shape random_shape(gen_random *r, bool exact) {
  static const char *const dtypes[2][2] = {{"f32", "f64"}, {"f32", "i32"}};
  shape s = {.devices = 2 + gen_below(r, 3), .lines = 1, .flat = gen_chance(r, 40)};
  if (gen_chance(r, 15)) s.lines = 2;
  else if (gen_chance(r, 20)) s.devices = 5 + gen_below(r, 4);
  s.m = gen_below(r, 14);
  if (s.flat) s.m += s.devices;
  s.k = 1 + gen_below(r, 5);
  s.n = 1 + gen_below(r, 9);
  s.cut = gen_chance(r, 60);
  s.sliced = gen_chance(r, 85);
  s.columns = !s.cut && gen_chance(r, 15);
  s.outside = !s.flat && gen_chance(r, 40);
  s.dtype = dtypes[exact][gen_below(r, 2)];
  s.n_ops = 1 + gen_below(r, 3);
  choose_slices(r, &s);
  return s;
}

static void write_result(text_buffer *text, const shape *s, uint32_t i) {
  uint32_t columns = s->flat ? 1 : 2;
  buffer_printf(text, "    y%u on d\n", i);
  if (s->cut)
    buffer_printf(text, "    y%u.outer_split(%u, d.x); y%u[%u] = mesh.x\n", i, columns, i, columns);
  if (s->flat) buffer_printf(text, "    y%u.outer_split(0, d.x)\n", i);
  buffer_printf(text, "    y%u[0] = stream\n", i);
  uint32_t at = s->columns ? columns + s->flat : 1;
  if (!s->sliced) return;
  buffer_printf(text, "    y%u.%s(%u, %s); y%u[%u] = stream\n", i, s->split, at, s->slices, i, at);
  if (s->outside) buffer_printf(text, "    y%u.reorder(%u -> 0)\n", i, at);
}

static void write_program(gen_random *r, text_buffer *text, const shape *s) {
  static const char *const after[][2] = {
      {"relu(", ")"}, {"neg(", ")"}, {"", " + x2"}, {"", " * x2"}};
  buffer_printf(text, "fusion random {\n  mesh d = [");
  if (s->lines > 1) buffer_printf(text, "%u, ", s->lines);
  buffer_printf(text, "%u]\n  x0 : %s[", s->devices, s->dtype);
  if (!s->flat) buffer_printf(text, "%u, ", s->devices);
  if (strchr(s->slices, '[')) buffer_printf(text, "%lld, k]\n", (long long)s->m);
  else buffer_printf(text, "m, k]\n");
  buffer_printf(text, "  x1 : %s[k, n]\n  x2 : %s[n]\n  y0 = matmul(x0, x1)\n", s->dtype, s->dtype);
  for (uint32_t i = 1; i < s->n_ops; i++) {
    const char *const *f = after[gen_below(r, 4)];
    buffer_printf(text, "  y%u = %sy%u%s\n", i, f[0], i - 1, f[1]);
  }
  buffer_printf(text, "  return y%u%s\n  schedule {\n    x0, x1, x2 on d\n", s->n_ops - 1,
                s->n_ops > 1 && gen_chance(r, 20) ? ", y0" : "");
  buffer_printf(text, "%s    x0[0] = mesh.x\n", s->flat ? "    x0.outer_split(0, d.x)\n" : "");
  if (s->cut) buffer_printf(text, "    x1.outer_split(1, d.x); x1[1] = mesh.x\n");
  if (s->cut) buffer_printf(text, "    x2.outer_split(0, d.x); x2[0] = mesh.x\n");
  uint32_t marked = gen_chance(r, 80) ? s->n_ops : 1; /* others get theirs by propagation */
  for (uint32_t i = 0; i < marked; i++) write_result(text, s, i);
  buffer_printf(text, "  }\n}\n");
}

static gen_value value(const char *name, const shape *s, const int64_t *extents, uint32_t rank,
                       bool exact) {
  gen_value v = {.rank = rank, .fill = exact ? GEN_FILL_INTEGER : GEN_FILL_NORMAL};
  v.dtype = s->dtype[0] == 'i' ? IR_I32 : s->dtype[1] == '6' ? IR_F64 : IR_F32;
  (void)snprintf(v.name, sizeof v.name, "%s", name);
  memcpy(v.extents, extents, rank * sizeof *extents);
  return v;
}

gen_program *gen_create_gathers(uint64_t seed, bool exact) {
  gen_random r = {seed * 2 + 1};
  shape s = random_shape(&r, exact);
  text_buffer text = {0};
  gen_program *p = calloc(1, sizeof *p);
  if (!p) abort();
  write_program(&r, &text, &s);
  p->text = text.data;
  p->inputs = calloc(3, sizeof *p->inputs);
  p->outputs = calloc(2, sizeof *p->outputs);
  if (!p->inputs || !p->outputs) abort();
  int64_t rows[] = {s.devices, s.m, s.k}, out[] = {s.devices, s.m, s.n};
  uint32_t rank = s.flat ? 2 : 3;
  p->inputs[p->n_inputs++] = value("x0", &s, rows + s.flat, rank, exact);
  p->inputs[p->n_inputs++] = value("x1", &s, (int64_t[]){s.k, s.n}, 2, exact);
  p->inputs[p->n_inputs++] = value("x2", &s, &s.n, 1, exact);
  char name[8];
  (void)snprintf(name, sizeof name, "y%u", s.n_ops - 1);
  p->outputs[p->n_outputs++] = value(name, &s, out + s.flat, rank, exact);
  if (strstr(text.data, ", y0\n"))
    p->outputs[p->n_outputs++] = value("y0", &s, out + s.flat, rank, exact);
  if (!strchr(s.slices, '['))
    (void)snprintf(p->bindings[p->n_bindings++], sizeof p->bindings[0], "m=%lld", (long long)s.m);
  (void)snprintf(p->bindings[p->n_bindings++], sizeof p->bindings[0], "k=%lld", (long long)s.k);
  (void)snprintf(p->bindings[p->n_bindings++], sizeof p->bindings[0], "n=%lld", (long long)s.n);
  p->n_ops = s.n_ops;
  p->has_schedule = true;
  return p;
}
