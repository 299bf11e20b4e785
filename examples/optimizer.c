/* Training steps whose weights and moments are updated in place.
 *
 * One program computes the loss of a small network, its gradients and Adam's update. Weights and
 * moments are donated: their new values are computed where the old ones are, so that training needs
 * no second copy of them and copies nothing. The learning rate and the number of the step are
 * inputs, so all steps run the plan that was bound for the first one. Every step is compared with
 * the definition, evaluated on copies. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

enum { ROWS = 32, IN = 8, HIDDEN = 16, OUT = 4, STEPS = 40 };

static const char text[] =
    "fusion step {\n"
    "  x : f32[b, i];   y : f32[b, o]\n"
    "  w1 : f32[i, h];  m1 : f32[i, h];  v1 : f32[i, h]\n"
    "  w2 : f32[h, o];  m2 : f32[h, o];  v2 : f32[h, o]\n"
    "  rate : f32;      t : f32\n"
    "  a = relu(matmul(x, w1))\n"
    "  e = matmul(a, w2) - y\n"
    "  loss = mean(e * e, dims=[0, 1])\n"
    "  g2 = matmul(transpose(a), e) * 0.015625\n"
    "  g1 = matmul(transpose(x), where(a > 0, matmul(e, transpose(w2)), 0)) * 0.015625\n"
    "  scale = rate * sqrt(1 - exp(t * -0.0010005003)) / (1 - exp(t * -0.10536052))\n"
    "  m1n = 0.9 * m1 + 0.1 * g1\n"
    "  v1n = 0.999 * v1 + 0.001 * g1 * g1\n"
    "  w1n = w1 - scale * m1n / (sqrt(v1n) + 1e-8)\n"
    "  m2n = 0.9 * m2 + 0.1 * g2\n"
    "  v2n = 0.999 * v2 + 0.001 * g2 * g2\n"
    "  w2n = w2 - scale * m2n / (sqrt(v2n) + 1e-8)\n"
    "  return loss, w1n, m1n, v1n, w2n, m2n, v2n\n"
    "}\n";

/* What is trained: weights, and Adam's moments of them. */
typedef struct state {
  float w1[IN * HIDDEN], m1[IN * HIDDEN], v1[IN * HIDDEN];
  float w2[HIDDEN * OUT], m2[HIDDEN * OUT], v2[HIDDEN * OUT];
} state;

static float x[ROWS][IN], y[ROWS][OUT];

static int fail(void) {
  (void)fprintf(stderr, "%s\n", weir_error());
  return 1;
}

static weir_program *compile(void) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  if (weir_module_parse("optimizer", text, strlen(text), NULL, &m) == WEIR_OK &&
      weir_module_find(m, NULL, &f) == WEIR_OK)
    (void)weir_compile(f, NULL, NULL, &p);
  weir_module_destroy(m);
  return p;
}

static weir_dl_tensor tensor(void *data, int64_t *shape, int rank) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = rank,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = shape};
}

/* One step, which replaces the state; `t` counts from 1. */
static weir_status train(const weir_program *p, state *s, float t, bool as_definition,
                         float *loss) {
  static int64_t in[] = {ROWS, IN}, out[] = {ROWS, OUT}, one[] = {IN, HIDDEN},
                 two[] = {HIDDEN, OUT};
  const int64_t donated[] = {-1, 2, 3, 4, 5, 6, 7}; /* w1n takes the memory of w1, … */
  float rate = 0.02F;
  weir_dl_tensor all[] = {tensor(x, in, 2),      tensor(y, out, 2),     tensor(s->w1, one, 2),
                          tensor(s->m1, one, 2), tensor(s->v1, one, 2), tensor(s->w2, two, 2),
                          tensor(s->m2, two, 2), tensor(s->v2, two, 2), tensor(&rate, in, 0),
                          tensor(&t, in, 0)};
  weir_dl_tensor result = tensor(loss, in, 0);
  const weir_dl_tensor *inputs[10], *outputs[7] = {&result};
  for (int i = 0; i < 10; i++) inputs[i] = &all[i];
  for (int i = 1; i < 7; i++) outputs[i] = &all[donated[i]];
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 10};
  args.outputs = outputs;
  args.n_outputs = 7;
  args.donated = donated;
  args.as_definition = as_definition;
  return weir_run(p, &args);
}

static void fill(state *s) {
  for (int r = 0; r < ROWS; r++) {
    for (int k = 0; k < IN; k++) x[r][k] = sinf((float)(3 * r + 5 * k));
    for (int k = 0; k < OUT; k++) y[r][k] = x[r][k] * x[r][k + 1];
  }
  for (int i = 0; i < IN * HIDDEN; i++) s->w1[i] = 0.5F * sinf((float)(7 * i + 1));
  for (int i = 0; i < HIDDEN * OUT; i++) s->w2[i] = 0.5F * sinf((float)(11 * i + 2));
}

static double difference(const state *a, const state *b) {
  const float *p = (const float *)a, *q = (const float *)b;
  double worst = 0;
  for (size_t i = 0; i < sizeof *a / sizeof *p; i++)
    worst = fmax(worst, fabs((double)(p[i] - q[i])));
  return worst;
}

int main(void) {
  static state trained, before;
  float first = 0, loss = 0, expected = 0;
  double worst = 0;
  weir_program *p = compile();
  if (!p) return fail();
  fill(&trained);
  for (int t = 1; t <= STEPS; t++) {
    before = trained;
    if (train(p, &trained, (float)t, false, &loss) != WEIR_OK ||
        train(p, &before, (float)t, true, &expected) != WEIR_OK)
      return fail();
    worst = fmax(worst, fmax(difference(&trained, &before), fabs((double)(loss - expected))));
    if (t == 1) first = loss;
  }
  weir_counts n = {.struct_size = sizeof n};
  if (weir_program_counts(p, &n) != WEIR_OK) return fail();
  (void)printf(
      "%lld steps, bound %lld times; state written in place %lld times, copied %lld times\n",
      (long long)n.runs, (long long)n.bindings, (long long)n.in_place, (long long)n.copied);
  (void)printf("loss %.3g, then %.3g; largest difference to the definition: %.2g\n", (double)first,
               (double)loss, worst);
  weir_program_destroy(p);
  return worst < 1e-4 && loss < first / 2 && n.bindings == 1 && n.copied == 0 ? 0 : 1;
}
