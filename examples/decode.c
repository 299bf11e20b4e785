/* Decoding with a cache: each token adds one row to the keys and values of the tokens before it.
 *
 * The caches are donated: their new values are computed where the old ones are, so a step writes
 * one row and copies nothing. They have room for as many tokens as the program's capacity says, but
 * a step uses only their first rows: as many as the bucket has in which its position is. The position
 * is an input, so all steps of a bucket run the plan that was bound for the first of them, and
 * allocate nothing. At the end every step is compared with attention over all tokens at once. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

enum { TOKENS = 1000, CAPACITY = 1024, BUCKETS = 5, WIDTH = 8 };

static const char step_text[] =
    "fusion step {\n"
    "  q : f32[1, d];  k : f32[1, d];  v : f32[1, d]\n"
    "  keys : f32[s, d];  values : f32[s, d];  at : i64\n"
    "  extent s <= 1024\n"
    "  keys2 = update(keys, k, at, dim=0)\n"
    "  values2 = update(values, v, at, dim=0)\n"
    "  scores = matmul(q, transpose(keys2)) * 0.35355339\n"
    "  out = matmul(softmax(where(iota(s) <= at, scores, -1e30)), values2)\n"
    "  return out, keys2, values2\n"
    "}\n";

static const char all_text[] = "fusion all {\n"
                               "  q : f32[s, d];  k : f32[s, d];  v : f32[s, d]\n"
                               "  out = sdpa(q, k, v, causal=true, scale=0.35355339)\n"
                               "  return out\n"
                               "}\n";

static int fail(void) {
  (void)fprintf(stderr, "%s\n", weir_error());
  return 1;
}

static weir_program *compile(const char *text) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  if (weir_module_parse("decode", text, strlen(text), NULL, &m) == WEIR_OK &&
      weir_module_find(m, NULL, &f) == WEIR_OK)
    (void)weir_compile(f, NULL, NULL, &p);
  weir_module_destroy(m);
  return p;
}

static weir_dl_tensor tensor(void *data, weir_dtype dtype, int64_t *shape, int rank) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = rank,
                          .dtype = weir_dtype_to_dl(dtype),
                          .shape = shape};
}

typedef float rows[CAPACITY][WIDTH];
static int64_t whole[] = {TOKENS, WIDTH}, row[] = {1, WIDTH};

static weir_status attend_to_all(rows q, rows k, rows v, rows out) {
  weir_program *p = compile(all_text);
  weir_dl_tensor t[] = {tensor(q, WEIR_F32, whole, 2), tensor(k, WEIR_F32, whole, 2),
                        tensor(v, WEIR_F32, whole, 2), tensor(out, WEIR_F32, whole, 2)};
  const weir_dl_tensor *inputs[] = {&t[0], &t[1], &t[2]}, *outputs[] = {&t[3]};
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 3};
  args.outputs = outputs;
  args.n_outputs = 1;
  weir_status st = weir_run(p, &args);
  weir_program_destroy(p);
  return st;
}

static int64_t allocations_of(const weir_program *p) {
  weir_counts n = {.struct_size = sizeof n};
  return weir_program_counts(p, &n) == WEIR_OK ? n.allocations : -1;
}

/* *again: how many allocations were made by steps that are not the first of their bucket. */
static weir_status decode(const weir_program *p, rows q, rows k, rows v, rows out, int64_t *again) {
  static rows keys, values; /* rows that are not written yet are masked */
  int64_t at = 0, used[] = {0, WIDTH}, bucket = 0;
  const int64_t donated[] = {-1, 3, 4}; /* keys2 takes the memory of keys, values2 that of values */
  weir_dl_tensor cache[] = {tensor(keys, WEIR_F32, used, 2), tensor(values, WEIR_F32, used, 2)};
  weir_dl_tensor position = tensor(&at, WEIR_I64, row, 0);
  weir_status st = WEIR_OK;
  for (; at < TOKENS && st == WEIR_OK; at++) {
    weir_dl_tensor t[] = {tensor(q[at], WEIR_F32, row, 2), tensor(k[at], WEIR_F32, row, 2),
                          tensor(v[at], WEIR_F32, row, 2), tensor(out[at], WEIR_F32, row, 2)};
    const weir_dl_tensor *inputs[] = {&t[0], &t[1], &t[2], &cache[0], &cache[1], &position};
    const weir_dl_tensor *outputs[] = {&t[3], &cache[0], &cache[1]};
    weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 6};
    args.outputs = outputs;
    args.n_outputs = 3;
    args.donated = donated;
    st = weir_program_bucket(p, "s", at + 1, &bucket);
    bool is_first = bucket != used[0];
    used[0] = bucket;
    int64_t before = allocations_of(p);
    if (st == WEIR_OK) st = weir_run(p, &args);
    if (!is_first) *again += allocations_of(p) - before;
  }
  return st;
}

int main(void) {
  static rows q, k, v, out, expected;
  weir_program *p = compile(step_text);
  int64_t again = 0, none;
  if (!p) return fail();
  for (int i = 0; i < TOKENS; i++)
    for (int j = 0; j < WIDTH; j++) {
      q[i][j] = sinf((float)(3 * i + j));
      k[i][j] = cosf((float)(i + 5 * j));
      v[i][j] = sinf((float)(7 * i - j));
    }
  if (decode(p, q, k, v, out, &again) != WEIR_OK || attend_to_all(q, k, v, expected) != WEIR_OK)
    return fail();
  double worst = 0;
  for (int i = 0; i < TOKENS; i++)
    for (int j = 0; j < WIDTH; j++) worst = fmax(worst, fabs((double)(out[i][j] - expected[i][j])));
  weir_counts n = {.struct_size = sizeof n};
  if (weir_program_counts(p, &n) != WEIR_OK) return fail();
  (void)printf(
      "%lld steps, bound %lld times; caches written in place %lld times, copied %lld times\n",
      (long long)n.runs, (long long)n.bindings, (long long)n.in_place, (long long)n.copied);
  (void)printf("allocations after the first step of a bucket: %lld\n", (long long)again);
  if (weir_program_bucket(p, "s", CAPACITY + 1, &none) != WEIR_BAD_USAGE) return 1;
  (void)printf("one token too many: %s\n", weir_error());
  (void)printf("largest difference to attention over all tokens: %.2g\n", worst);
  weir_program_destroy(p);
  return worst < 1e-5 && n.bindings <= BUCKETS && n.copied == 0 && again == 0 ? 0 : 1;
}
