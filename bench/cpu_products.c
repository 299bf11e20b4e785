/* Products and attention on the CPU device, through the public API.
 *
 *   cpu_products [--json] [--cpu-time] [THREADS [SECONDS [NAME]]]
 *
 * Each case is a program of one or a few operations, compiled once and run again and again for
 * SECONDS (0.5); the shortest time counts. With --cpu-time that of the processor, of all threads
 * together, counts in place of the clock's, for machines that others use as well. Cases whose name
 * does not contain NAME are left out. bench/cpu_peers.py times the same with PyTorch and JAX;
 * docs/performance.md has the figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

typedef struct bench_case {
  const char *name, *text;
  double flops;
} bench_case;

#define LLAMA                                                                                      \
  "fusion f { x : f32[1, 512, 512]; g1 : f32[512]; wq : f32[512, 512]; wk : f32[512, 512];"        \
  "wv : f32[512, 512]; wo : f32[512, 512]; g2 : f32[512]; w1 : f32[1408, 512];"                    \
  "w3 : f32[1408, 512]; w2 : f32[512, 1408]; n1 = rms_norm(x, g1);"                                \
  "q = permute(reshape(linear(n1, wq), [1, 512, 8, 64]), [0, 2, 1, 3]);"                           \
  "k = permute(reshape(linear(n1, wk), [1, 512, 8, 64]), [0, 2, 1, 3]);"                           \
  "v = permute(reshape(linear(n1, wv), [1, 512, 8, 64]), [0, 2, 1, 3]);"                           \
  "a = sdpa(q, k, v, causal=true); m = reshape(permute(a, [0, 2, 1, 3]), [1, 512, 512]);"          \
  "r = x + linear(m, wo); n2 = rms_norm(r, g2);"                                                   \
  "y = r + linear(silu(linear(n2, w1)) * linear(n2, w3), w2); return y }"

#define MATMUL(t, m, k, n)                                                                         \
  "fusion f { a : " t "[" #m ", " #k "]; b : " t "[" #k ", " #n "]; y = matmul(a, b); return y }", \
      2.0 * m *k *n
#define LINEAR(t, m, k, n)                                                                         \
  "fusion f { a : " t "[" #m ", " #k "]; w : " t "[" #n ", " #k "]; b : " t "[" #n                 \
  "]; y = linear(a, w, b); return y }",                                                            \
      2.0 * m *k *n
#define SDPA(t, h, s, d, causal, part)                                                             \
  "fusion f { q : " t "[1, " #h ", " #s ", " #d "]; k : " t "[1, " #h ", " #s ", " #d "]; v : " t  \
  "[1, " #h ", " #s ", " #d "]; y = sdpa(q, k, v, causal=" causal "); return y }",                 \
      4.0 * h *s *s *d *part

static const bench_case cases[] = {
    {"matmul_f32_256", MATMUL("f32", 256, 256, 256)},
    {"matmul_f32_512", MATMUL("f32", 512, 512, 512)},
    {"matmul_f32_1024", MATMUL("f32", 1024, 1024, 1024)},
    {"matmul_f32_2048", MATMUL("f32", 2048, 2048, 2048)},
    {"matmul_f64_1024", MATMUL("f64", 1024, 1024, 1024)},
    {"matmul_bf16_1024", MATMUL("bf16", 1024, 1024, 1024)},
    {"matmul_f16_1024", MATMUL("f16", 1024, 1024, 1024)},
    {"linear_f32_512x512x2048", LINEAR("f32", 512, 512, 2048)},
    {"linear_bf16_512x512x2048", LINEAR("bf16", 512, 512, 2048)},
    {"linear_f32_1x4096x4096", LINEAR("f32", 1, 4096, 4096)},
    {"matmul_f32_1x4096x4096", MATMUL("f32", 1, 4096, 4096)},
    {"linear_f32_4x4096x4096", LINEAR("f32", 4, 4096, 4096)},
    {"linear_f32_16x4096x4096", LINEAR("f32", 16, 4096, 4096)},
    {"matmul_f32_8x4096x4096", MATMUL("f32", 8, 4096, 4096)},
    {"linear_bf16_1x4096x4096", LINEAR("bf16", 1, 4096, 4096)},
    {"linear_bf16_8x4096x4096", LINEAR("bf16", 8, 4096, 4096)},
    {"matmul_bf16_1x4096x4096", MATMUL("bf16", 1, 4096, 4096)},
    {"sdpa_f32_8x1024x64", SDPA("f32", 8, 1024, 64, "false", 1.0)},
    {"sdpa_causal_f32_8x1024x64", SDPA("f32", 8, 1024, 64, "true", 0.5)},
    {"sdpa_bf16_8x1024x64", SDPA("bf16", 8, 1024, 64, "false", 1.0)},
    {"sdpa_f32_8x4096x128", SDPA("f32", 8, 4096, 128, "false", 1.0)},
    {"llama_block_f32_512x512", LLAMA,
     2.0 * 512 * 512 * (4 * 512 + 3 * 1408) + 2.0 * 8 * 512 * 512 * 64},
};

static void must(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(weir_exit_code(status));
}

static clockid_t the_clock = CLOCK_MONOTONIC;

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(the_clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { MAX_TENSORS = 16 };

typedef struct tensors {
  weir_array *arrays[MAX_TENSORS];
  const weir_dl_tensor *views[MAX_TENSORS];
  size_t n;
} tensors;

static void add(tensors *t, weir_fusion *f, const weir_shapes *s, weir_tensor tensor) {
  int64_t extents[WEIR_MAX_RANK];
  size_t rank;
  weir_tensor_info info;
  must(weir_shapes_of(s, tensor, extents, &rank));
  must(weir_tensor_describe(f, tensor, &info));
  must(weir_array_create(info.dtype, extents, rank, NULL, &t->arrays[t->n]));
  must(weir_array_fill(t->arrays[t->n], "normal", 1, info.name));
  t->views[t->n] = weir_array_tensor(t->arrays[t->n]);
  t->n++;
}

static void destroy(tensors *t) {
  for (size_t i = 0; i < t->n; i++) weir_array_destroy(t->arrays[i]);
}

static double time_runs(const weir_program *p, const tensors *in, const tensors *out,
                        double seconds) {
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = in->views,
                        .n_inputs = in->n,
                        .outputs = out->views,
                        .n_outputs = out->n};
  double least = 1e30, end = now_s() + seconds;
  must(weir_run(p, &args));
  for (int i = 0; i < 5 || now_s() < end; i++) {
    double start = now_s();
    must(weir_run(p, &args));
    double took = now_s() - start;
    if (took < least) least = took;
  }
  return least;
}

static double time_case(const bench_case *c, const char *threads, double seconds) {
  weir_module *module;
  weir_fusion *f;
  weir_options *o;
  weir_shapes *s;
  weir_program *p;
  tensors in = {.n = 0}, out = {.n = 0};
  weir_tensor t;
  must(weir_module_parse(c->name, c->text, strlen(c->text), NULL, &module));
  must(weir_module_find(module, NULL, &f));
  must(weir_options_create(&o));
  must(weir_options_set(o, "threads", threads));
  must(weir_shapes_create(f, &s));
  must(weir_shapes_complete(s));
  for (size_t i = 0; i < weir_fusion_input_count(f); i++) {
    must(weir_fusion_input_at(f, i, &t));
    add(&in, f, s, t);
  }
  must(weir_fusion_output_at(f, 0, &t));
  add(&out, f, s, t);
  must(weir_compile(f, o, NULL, &p));
  double took = time_runs(p, &in, &out, seconds);
  weir_program_destroy(p);
  weir_shapes_destroy(s);
  weir_options_destroy(o);
  weir_module_destroy(module);
  destroy(&in);
  destroy(&out);
  return took;
}

/* Takes the flag off the front of the arguments. */
static int take_flag(int *argc, char ***argv, const char *flag) {
  if (*argc < 2 || strcmp((*argv)[1], flag) != 0) return 0;
  (*argv)++, (*argc)--;
  return 1;
}

int main(int argc, char **argv) {
  int json = take_flag(&argc, &argv, "--json");
  if (take_flag(&argc, &argv, "--cpu-time")) the_clock = CLOCK_PROCESS_CPUTIME_ID;
  const char *threads = argc > 1 ? argv[1] : "0", *name = argc > 3 ? argv[3] : "";
  double seconds = argc > 2 ? atof(argv[2]) : 0.5;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bench_case *c = &cases[i];
    if (!strstr(c->name, name)) continue;
    double took = time_case(c, threads, seconds);
    if (json) printf("{\"name\": \"%s\", \"ms\": %.4f}\n", c->name, took * 1e3);
    else printf("%-28s %9.3f ms %8.1f GFLOP/s\n", c->name, took * 1e3, c->flops / took * 1e-9);
    (void)fflush(stdout);
  }
  return 0;
}
