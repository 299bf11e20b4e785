/* Attention in bf16, beside attention.py: us of one, for every line of a list of cases.
 *
 *   attention CASES [NAME]         all, or those whose name begins so
 *
 * A program of attentions that follow one another is run on device memory, as often as it takes;
 * what is printed is the median, divided by how many there are. WEIR_CUDNN_LIBRARY=none times the
 * generated kernels. */
#include "gpu/kit.h"

typedef struct form {
  char name[32], pass[16];
  int64_t b, hq, hk, sq, sk, d;
  int causal;
} form;

enum { MOST_CHAIN = 32, REPEATS = 9, TEXT = 16384 };

static double flops_of(const form *f) {
  double n = 4.0 * (double)(f->b * f->hq * f->sq * f->sk * f->d);
  if (f->causal) n /= 2;
  return f->pass[0] == 'b' ? 2.5 * n : n;
}

/* About as long as it takes for the end of a run to count for little. */
static int chain_of(const form *f) {
  double us = flops_of(f) / 300e6;
  int n = us > 0 ? (int)(3000 / us) + 2 : MOST_CHAIN;
  return n < MOST_CHAIN ? n : MOST_CHAIN;
}

static int put(char *text, int at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text + at, (size_t)(TEXT - at), format, args);
  va_end(args);
  if (n < 0 || at + n >= TEXT) exit(2);
  return at + n;
}

static int put_tensor(char *text, int at, const char *name, const form *f, int64_t h, int64_t s) {
  return put(text, at, "  %s : bf16[%lld, %lld, %lld, %lld]\n", name, (long long)f->b, (long long)h,
             (long long)s, (long long)f->d);
}

/* Each takes what the one before gave: queries, or the gradient of the result. Result and statistics are any
 * numbers, which takes as long. */
static void write_program(const form *f, int chain, char *text) {
  bool backward = f->pass[0] == 'b';
  const char *causal = f->causal ? ", causal=true" : "";
  int at = put(text, 0, "fusion f {\n");
  at = put_tensor(text, at, "g0", f, f->hq, f->sq);
  at = put_tensor(text, at, "k", f, f->hk, f->sk);
  at = put_tensor(text, at, "v", f, f->hk, f->sk);
  if (backward) {
    at = put_tensor(text, at, "q", f, f->hq, f->sq);
    at = put_tensor(text, at, "o", f, f->hq, f->sq);
    at = put(text, at, "  l : f32[%lld, %lld, %lld]\n", (long long)f->b, (long long)f->hq,
             (long long)f->sq);
  }
  for (int i = 0; i < chain; i++) {
    if (!backward) at = put(text, at, "  g%d = sdpa(g%d, k, v%s)\n", i + 1, i, causal);
    else
      at = put(text, at, "  g%d, k%d, v%d = sdpa_backward(q, k, v, o, l, g%d%s)\n", i + 1, i, i, i,
               causal);
  }
  at = put(text, at, "  return g%d", chain);
  for (int i = 0; backward && i < chain; i++) at = put(text, at, ", k%d, v%d", i, i);
  (void)put(text, at, "\n}\n");
}

static void time_form(rt_device *d, const form *f) {
  static char text[TEXT];
  bench b;
  int chain = chain_of(f);
  if (f->pass[0] == 'b' && chain > 4) chain = 4; /* all gradients are outputs */
  write_program(f, chain, text);
  bench_args args = {.text = text, .ranks = 1, .streams = 1, .fill = true};
  bench_open(&b, d, &args);
  double us = time_us(bench_run, &b, REPEATS) / chain;
  double bytes = 4.0 * (double)(f->b * f->hk * f->sk * f->d);
  printf("%-16s %10.1f us %7.1f TFLOP/s %7.0f GB/s of keys and values\n", f->name, us,
         flops_of(f) / us * 1e-6, bytes / us * 1e-3);
  (void)fflush(stdout);
  bench_close(&b);
}

static bool read_form(const char *line, form *f) {
  long long x[6];
  int n = sscanf(line, "%31s %lld %lld %lld %lld %lld %lld %d %15s", f->name, &x[0], &x[1], &x[2],
                 &x[3], &x[4], &x[5], &f->causal, f->pass);
  f->b = x[0], f->hq = x[1], f->hk = x[2], f->sq = x[3], f->sk = x[4], f->d = x[5];
  return n == 9 && line[0] != '#';
}

int main(int argc, char **argv) {
  char line[256];
  form f;
  rt_device_options o = {.threads = 0};
  FILE *cases = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (!cases) {
    fprintf(stderr, "usage: attention CASES [NAME]\n");
    return 2;
  }
  rt_device *d = bench_device(&o);
  while (fgets(line, sizeof line, cases)) {
    memset(&f, 0, sizeof f);
    if (!read_form(line, &f)) continue;
    if (argc > 2 && strncmp(f.name, argv[2], strlen(argv[2])) != 0) continue;
    time_form(d, &f);
  }
  (void)fclose(cases);
  d->ops->close(d);
  return 0;
}
