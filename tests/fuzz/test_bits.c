/* Random programs with --deterministic: the same bits whatever the streams, threads, forms of
 * communication and kernels.
 *
 *   test_bits [COUNT [SEED]] */
#include <stdlib.h>
#include <weir/weir.h>

#include "fuzz/gen.h"
#include "test.h"

enum { MOST_TENSORS = 64, TRIALS = 6 };

/* A program, its inputs, and what it computed first. */
typedef struct subject {
  uint64_t seed;
  weir_module *m;
  weir_fusion *f;
  weir_shapes *s;
  weir_array *in[MOST_TENSORS], *out[MOST_TENSORS], *again[MOST_TENSORS];
  size_t n_in, n_out;
} subject;

/* What may differ between two runs. */
typedef struct setting {
  const char *streams, *threads, *pipeline, *disable;
} setting;

static unsigned n_ran, n_refused;

static void must(weir_status st) {
  if (st == WEIR_OK) return;
  (void)fprintf(stderr, "%s\n", weir_error());
  abort();
}

static setting any_setting(gen_random *r) {
  static const char *const streams[] = {"1", "2", "4", "8"}, *const threads[] = {"1", "2", "5"};
  static const char *const forms[] = {"auto",       "marked", "collective", "p2p",
                                      "p2p-offset", "ring",   "broadcast"};
  static const char *const passes[] = {NULL, NULL, "join", "order"};
  return (setting){streams[gen_below(r, 4)], threads[gen_below(r, 3)], forms[gen_below(r, 7)],
                   passes[gen_below(r, 4)]};
}

/* ---- tensors ---- */
static size_t bytes_of(const weir_array *a) {
  const weir_dl_tensor *t = weir_array_tensor(a);
  size_t n = weir_dtype_size_bytes(weir_array_dtype(a));
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
  return n;
}

static weir_array *make(const subject *x, weir_tensor t) {
  weir_tensor_info info;
  int64_t extents[WEIR_MAX_RANK];
  size_t rank = 0;
  weir_array *a = NULL;
  must(weir_tensor_describe(x->f, t, &info));
  must(weir_shapes_of(x->s, t, extents, &rank));
  must(weir_array_create(info.dtype, extents, rank, NULL, &a));
  return a;
}

static void fill(const subject *x, weir_tensor t, weir_array *a) {
  weir_tensor_info info;
  int64_t bound = 0;
  must(weir_tensor_describe(x->f, t, &info));
  must(weir_shapes_index_bound(x->s, t, &bound));
  if (bound > 0 && bytes_of(a) > 0) must(weir_array_fill_index(a, bound, x->seed, info.name));
  else must(weir_array_fill(a, "normal", x->seed, info.name));
}

static bool open_subject(subject *x, const char *text, const gen_program *p) {
  if (weir_module_parse("random", text, strlen(text), NULL, &x->m) != WEIR_OK) return false;
  must(weir_module_find(x->m, NULL, &x->f));
  must(weir_shapes_create(x->f, &x->s));
  for (uint32_t i = 0; p && i < p->n_bindings; i++) must(weir_shapes_define(x->s, p->bindings[i]));
  if (weir_shapes_complete(x->s) != WEIR_OK) return false;
  x->n_in = weir_fusion_input_count(x->f);
  x->n_out = weir_fusion_output_count(x->f);
  if (x->n_in > MOST_TENSORS || x->n_out > MOST_TENSORS) return false;
  weir_tensor t;
  for (size_t i = 0; i < x->n_in; i++) {
    must(weir_fusion_input_at(x->f, i, &t));
    x->in[i] = make(x, t);
    fill(x, t, x->in[i]);
  }
  for (size_t i = 0; i < x->n_out; i++) {
    must(weir_fusion_output_at(x->f, i, &t));
    x->out[i] = make(x, t);
    x->again[i] = make(x, t);
  }
  return true;
}

static void close_subject(subject *x) {
  for (size_t i = 0; i < x->n_in; i++) weir_array_destroy(x->in[i]);
  for (size_t i = 0; i < x->n_out; i++) {
    weir_array_destroy(x->out[i]);
    weir_array_destroy(x->again[i]);
  }
  weir_shapes_destroy(x->s);
  weir_module_destroy(x->m);
}

/* ---- running ---- */
static weir_status run(const subject *x, const setting *how, weir_array *const *outputs) {
  const weir_dl_tensor *in[MOST_TENSORS], *out[MOST_TENSORS];
  weir_options *o = NULL;
  weir_program *p = NULL;
  for (size_t i = 0; i < x->n_in; i++) in[i] = weir_array_tensor(x->in[i]);
  for (size_t i = 0; i < x->n_out; i++) out[i] = weir_array_tensor(outputs[i]);
  must(weir_options_create(&o));
  must(weir_options_set(o, "deterministic", "true"));
  must(weir_options_set(o, "streams", how->streams));
  must(weir_options_set(o, "threads", how->threads));
  must(weir_options_set(o, "pipeline", how->pipeline));
  if (how->disable) must(weir_options_set(o, "disable", how->disable));
  weir_status st = weir_compile(x->f, o, NULL, &p);
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = in,
                        .n_inputs = x->n_in,
                        .outputs = out,
                        .n_outputs = x->n_out,
                        .seed = x->seed};
  if (st == WEIR_OK) st = weir_run(p, &args);
  weir_program_destroy(p);
  weir_options_destroy(o);
  return st;
}

static bool same_bits(const subject *x, const setting *a, const setting *b) {
  for (size_t i = 0; i < x->n_out; i++) {
    size_t n = bytes_of(x->out[i]);
    const char *u = weir_array_tensor(x->out[i])->data, *v = weir_array_tensor(x->again[i])->data;
    if (n == 0 || memcmp(u, v, n) == 0) continue;
    (void)fprintf(stderr,
                  "seed %llu, output %zu: --streams %s --threads %s --pipeline %s --disable %s has "
                  "other bits than --streams %s --threads %s --pipeline %s --disable %s\n",
                  (unsigned long long)x->seed, i, b->streams, b->threads, b->pipeline,
                  b->disable ? b->disable : "''", a->streams, a->threads, a->pipeline,
                  a->disable ? a->disable : "''");
    return false;
  }
  return true;
}

static bool try_subject(const subject *x, gen_random *r) {
  setting first = any_setting(r);
  if (run(x, &first, x->out) != WEIR_OK) {
    n_refused++;
    return true;
  }
  bool same = true;
  for (int i = 0; i < TRIALS && same; i++) {
    setting other = any_setting(r);
    weir_status st = run(x, &other, x->again);
    if (st != WEIR_OK)
      (void)fprintf(stderr, "seed %llu: %s\n", (unsigned long long)x->seed, weir_error());
    same = st == WEIR_OK && same_bits(x, &first, &other);
    n_ran++;
  }
  return same;
}

/* ---- programs ---- */
/* Long sums that streams and devices cut: with streams they are other sums than without. */
static void write_sums(char *text, size_t size, gen_random *r) {
  static const char *const schedules[] = {
      "w.outer_split(0, d); w[0] = mesh.x; w.outer_split(3, d); w[3] = stream",
      "w.outer_split(0, d); w[0] = mesh.x; w.outer_split(1, 3); w[1] = stream",
      "w.outer_split(2, d); w[2] = mesh.x; w.outer_split(0, 4); w[0] = stream",
      "w.outer_split(1, d); w[1] = mesh.x; w.outer_split(3, 5); w[3] = stream",
  };
  static const char *const dtypes[] = {"f32", "f32", "bf16", "f16"};
  static const char *const ends[] = {"v = gelu(w) * 2.0", "v = softmax(w, dim=1)",
                                     "v = sum(w, dims=[1])"};
  unsigned d = 2 + gen_below(r, 3), rows = 8 * d * (1 + gen_below(r, 20));
  const char *dtype = dtypes[gen_below(r, 4)];
  (void)snprintf(text, size,
                 "fusion f {\n mesh d = [%u]\n out : %s[%u, %u]\n in : %s[%u, %u]\n"
                 " t = transpose(out)\n w = matmul(t, in)\n %s\n return w, v\n schedule {\n"
                 "  out, in, w on d\n  out.outer_split(0, d); out[0] = mesh.x\n"
                 "  in.outer_split(0, d); in[0] = mesh.x\n  %s\n }\n}\n",
                 d, dtype, rows, 1 + gen_below(r, 70), dtype, rows, 1 + gen_below(r, 70),
                 ends[gen_below(r, 3)], schedules[gen_below(r, 4)]);
}

static gen_program *any_program(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  o.devices = true;
  o.max_devices = 4;
  if (seed % 4 == 0) return gen_create_gathers(seed, false);
  return seed % 4 == 1 ? gen_create_along(seed, false) : gen_create(&o);
}

static void show(const gen_program *p, const char *text) {
  (void)fputs(text, stderr);
  for (uint32_t i = 0; p && i < p->n_bindings; i++) (void)fprintf(stderr, "-D %s ", p->bindings[i]);
  (void)fputs("\n", stderr);
}

static void try_seed(uint64_t seed) {
  gen_random r = {seed * 2 + 1};
  char sums[1024];
  gen_program *p = seed % 4 < 3 ? any_program(seed) : NULL;
  subject x = {.seed = seed};
  if (!p) write_sums(sums, sizeof sums, &r);
  const char *text = p ? p->text : sums;
  if (!open_subject(&x, text, p)) n_refused++;
  else if (!EXPECT(try_subject(&x, &r))) show(p, text);
  close_subject(&x);
  gen_destroy(p);
}

int main(int argc, char **argv) {
  uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 150;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  for (uint64_t i = 0; i < count; i++) try_seed(seed + i);
  (void)printf("%u runs had the bits of the first; %u programs were refused\n", n_ran, n_refused);
  EXPECT(n_refused * 4 <= count);
  return test_finish();
}
