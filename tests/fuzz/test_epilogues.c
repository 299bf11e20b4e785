/* Random products with what follows them: sums with biases and tensors, activations, norms, other
 * products.
 *
 *   test_epilogues [N] [--seed S] [--cuda]
 *
 * Runs seeds 0 … N-1 (600) joined and not. On the CPU both must have the same bits, but where a
 * reduction follows; small ones must agree with the reference. --cuda: joined on a GPU or a
 * stand-in, against the reference. The joined program needs no more memory (test_join.c). Most
 * products must have become kernels with an epilogue. */
#include <stdarg.h>
#include <stdlib.h>

#include "command.h"
#include "gen.h"
#include "machines.h"
#include "session/judge.h"
#include "stream_kit.h"
#include "test.h"

typedef struct trial {
  gen_random r;
  uint64_t seed;
  bool large, reduces, cuda;
  char text[4096];
  size_t length;
  int n_inputs;
  int64_t m, n, k;
  uint32_t n_batch;
  const char *dtype, *batch;
  subject s;
  int64_t pool_bytes[2]; /* unjoined, joined */
} trial;

static uint64_t n_products, n_joined;

/* ---- texts ---- */
static int64_t pick(trial *t, const int64_t *list, uint32_t n) { return list[gen_below(&t->r, n)]; }

__attribute__((format(printf, 2, 3))) static void put(trial *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->text + t->length, sizeof t->text - t->length, format, args);
  va_end(args);
  check(n >= 0 && t->length + (size_t)n < sizeof t->text);
  t->length += (size_t)n;
}

typedef enum shape { WHOLE, LAST, ROWS, SCALAR, N_SHAPES } shape;

static void put_input(trial *t, char name, shape s) {
  switch (s) {
  case WHOLE:
    put(t, "  %c : %s[%s%lld, %lld]\n", name, t->dtype, t->batch, (long long)t->m, (long long)t->n);
    break;
  case LAST: put(t, "  %c : %s[%lld]\n", name, t->dtype, (long long)t->n); break;
  case ROWS: put(t, "  %c : %s[%lld, 1]\n", name, t->dtype, (long long)t->m); break;
  case SCALAR:
  case N_SHAPES: put(t, "  %c : %s\n", name, t->dtype); break;
  }
}

/* Inputs c to h are what epilogues read. */
enum { FIRST_OTHER = 'c', N_OTHERS = 6 };
static const shape shapes[N_OTHERS] = {LAST, WHOLE, ROWS, SCALAR, WHOLE, LAST};

static void put_inputs(trial *t, bool linear, bool turned) {
  long long m = t->m, n = t->n, k = t->k;
  put(t, "fusion f {\n  a : %s[%s%lld, %lld]\n", t->dtype, turned ? "" : t->batch, turned ? k : m,
      turned ? m : k);
  put(t, "  b : %s[%lld, %lld]\n", t->dtype, linear ? n : k, linear ? k : n);
  for (int i = 0; i < N_OTHERS; i++) put_input(t, (char)(FIRST_OTHER + i), shapes[i]);
}

static void put_product(trial *t, char name, bool linear, bool turned) {
  const char *a = turned ? "transpose(a)" : "a";
  const char *bias = gen_below(&t->r, 3) == 0 ? ", c" : "";
  if (linear) put(t, "  %c0 = linear(%s, b%s)\n", name, a, bias);
  else put(t, "  %c0 = matmul(%s, b)\n", name, a);
}

static void put_step(trial *t, char name, int i) {
  static const char *const forms[] = {"%c%d + %c",
                                      "%c%d + %c",
                                      "%c%d + %c",
                                      "%c%d * %c",
                                      "%c%d - %c",
                                      "gelu(%c%d)",
                                      "gelu(%c%d, approximate=tanh)",
                                      "gelu(%c%d, approximate=tanh)",
                                      "relu(%c%d)",
                                      "silu(%c%d)",
                                      "tanh(%c%d)",
                                      "%c%d * 0.5",
                                      "neg(%c%d)"};
  uint32_t which = gen_below(&t->r, sizeof forms / sizeof *forms);
  char other = (char)(FIRST_OTHER + gen_below(&t->r, N_OTHERS)), text[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  (void)snprintf(text, sizeof text, forms[which], name, i - 1, other);
#pragma GCC diagnostic pop
  if (gen_below(&t->r, 4) == 0 && which < 3) /* the other way round */
    (void)snprintf(text, sizeof text, "%c + %c%d", other, name, i - 1);
  put(t, "  %c%d = %s\n", name, i, text);
}

static int put_steps(trial *t, char name) {
  int n = 1 + (int)gen_below(&t->r, 5);
  for (int i = 1; i <= n; i++) put_step(t, name, i);
  return n;
}

static void put_end(trial *t, bool linear, bool turned, int n) {
  uint32_t which = gen_below(&t->r, 10);
  t->reduces = which < 4;
  if (which == 0) put(t, "  z = softmax(y%d, dim=-1)\n  return z\n}\n", n);
  else if (which == 1) put(t, "  z = rms_norm(y%d, eps=1)\n  return y%d, z\n}\n", n, n);
  else if (which == 2) put(t, "  z = sum(y%d, dims=[-1])\n  return z\n}\n", n);
  else if (which == 3) put(t, "  z = sum(y%d, dims=[0])\n  return z\n}\n", n);
  else if (which == 4) put(t, "  z = y0 * 2\n  return y%d, z\n}\n", n);
  else if (which == 5) {
    put_product(t, 'z', linear, turned);
    put(t, "  z1 = silu(z0)\n  z2 = z1 * y%d\n  return z2\n}\n", n);
  } else put(t, "  return y%d\n}\n", n);
}

static void write_text(trial *t) {
  static const int64_t small[] = {1, 2, 3, 5, 17, 33, 64, 70}, depths[] = {1, 3, 16, 64, 260};
  static const char *const dtypes[] = {"f32", "f32", "bf16", "f16", "f64"};
  static const char *const batches[] = {"", "", "", "3, ", "2, 3, "};
  bool linear = gen_below(&t->r, 2), turned = gen_below(&t->r, 4) == 0;
  t->dtype = dtypes[gen_below(&t->r, 5)];
  t->batch = turned ? "" : batches[gen_below(&t->r, 5)];
  t->m = t->large ? 500 + gen_below(&t->r, 200) : pick(t, small, 8);
  t->n = t->large ? 200 + gen_below(&t->r, 200) : pick(t, small, 8);
  t->k = t->large ? 400 : pick(t, depths, 5);
  if (t->large) t->batch = "";
  put_inputs(t, linear, turned);
  put_product(t, 'y', linear, turned);
  put_end(t, linear, turned, put_steps(t, 'y'));
}

/* ---- running ---- */
static void fill_inputs(trial *t) {
  for (uint32_t k = 0; k < t->s.n_in; k++) {
    const ir_array *a = &t->s.in[k];
    int64_t n;
    if (!ir_array_count(a, &n)) continue;
    for (int64_t i = 0; i < n; i++) {
      double x = (double)gen_below(&t->r, 1u << 20) / (1u << 19) - 1;
      ir_element_set_f64(a->dtype, (char *)a->data + (size_t)i * ir_dtype_size_bytes(a->dtype), x);
    }
  }
}

static void count(const rt_plan *plan) {
  for (uint32_t i = 0; i < plan->n_tasks; i++) {
    const rt_body *b = plan->tasks[i].body;
    for (uint32_t k = 0; b && k < b->n_steps; k++)
      n_joined += b->steps[k].code == IR_OP_MATMUL || b->steps[k].code == IR_OP_LINEAR;
    n_products +=
        !b && (plan->tasks[i].code == IR_OP_MATMUL || plan->tasks[i].code == IR_OP_LINEAR);
  }
}

static bool run(trial *t, rt_device *device, ir_func *h, bool joined) {
  rt_loaded *loaded = NULL;
  rt_plan *plan = subject_plan(&t->s, h, 2, false);
  if (!plan) return false;
  if (joined) count(plan);
  t->pool_bytes[joined] = plan->pool_bytes;
  bool good =
      kit_ok(device->ops->load(device, plan, &loaded), "load") && subject_run(&t->s, loaded, NULL);
  device->ops->unload(loaded);
  rt_plan_destroy(plan);
  return good;
}

static bool agrees(const trial *t, bool bits, const char *what) {
  const subject *s = &t->s;
  for (uint32_t i = 0; i < s->n_out; i++) {
    ir_tensor o = s->func->outputs.data[i];
    ir_dtype least = data_least_dtype(s->func, o, (arena *)&s->memory);
    bool same = bits ? kit_same(&s->out[i], &s->expected[i])
                     : data_compare(&s->out[i], &s->expected[i], least).ok;
    if (!same) return kit_wrong(what, ir_tensor_name(s->func, o));
  }
  return true;
}

/* A sum of what nearly cancels shows where it was rounded: a library rounds once after several
 * operations, and sums are not in the reference's order. Such a result is compared with how far
 * rounding can move it. */
static bool is_right(trial *t) {
  subject *s = &t->s;
  data_verdict verdicts[KIT_VALUES];
  ref_options options = {.seed = KIT_SEED, .memory = &memory_default};
  session_judgement j = {.verdicts = verdicts};
  if (agrees(t, false, "joined and the reference differ")) return true;
  if (!kit_ok(session_judge(&s->env, s->in, s->out, &options, &j), "judging")) return false;
  for (uint32_t i = 0; i < s->n_out; i++)
    if (verdicts[i].n_wrong > 0) return false;
  return true;
}

static bool compare_all(trial *t, ir_func *apart, ir_func *joined) {
  subject *s = &t->s;
  bool by_reference = t->cuda || !t->large;
  if (by_reference && !subject_reference(s, s->in, s->expected, false)) return false;
  if (t->cuda) return run(t, gpu[0], joined, true) && is_right(t);
  if (!run(t, two_threads, joined, true)) return false;
  if (by_reference && !is_right(t)) return false;
  if (!subject_keep(s) || !run(t, two_threads, apart, false) ||
      !agrees(t, !t->reduces, "joined and unjoined differ"))
    return false;
  if (kit_lends || t->pool_bytes[1] <= t->pool_bytes[0]) return true;
  return kit_wrong("joined, it needs more memory", "");
}

static status check_all(void *context) {
  trial *t = context;
  subject *s = &t->s;
  if (!subject_open(s, t->text)) return STATUS_CHECK_FAILED;
  ir_env_init(&s->env, s->func, &s->memory);
  if (!subject_values(s)) return STATUS_CHECK_FAILED;
  ir_func *apart = subject_lower(s, false), *joined = apart ? subject_lower(s, false) : NULL;
  if (!joined) return STATUS_CHECK_FAILED;
  fill_inputs(t);
  subject_join(s, joined);
  if (!ir_host_verify(joined)) return STATUS_CHECK_FAILED;
  return compare_all(t, apart, joined) ? STATUS_OK : STATUS_CHECK_FAILED;
}

static void try_seed(uint64_t seed, bool cuda) {
  trial t = {.r = {.state = seed * 2654435761u + 99}, .seed = seed, .cuda = cuda};
  t.large = !cuda && seed % 16 == 15;
  write_text(&t);
  kit_reason[0] = '\0';
  kit_lends = seed % 3 == 0;
  if (!EXPECT(memory_guard(check_all, &t) == STATUS_OK))
    fprintf(stderr, "seed %llu: %s\n%s\n", (unsigned long long)seed, kit_reason, t.text);
  status_clear();
  subject_close(&t.s);
}

static bool on_cuda;
static int own_option(command *c, char **argv) {
  (void)c;
  if (strcmp(argv[0], "--cuda") == 0) return on_cuda = true, 1;
  return 0;
}

int main(int argc, char **argv) {
  static const rt_device_options ways[2] = {{.threads = 0}, {.threads = 0}};
  (void)argc;
  command asked = command_read(argv, (command){.count = 600, .failures = 10}, own_option);
  uint64_t n = asked.count;
  if (!machines_open(on_cuda ? ways : NULL)) return 3;
  for (uint64_t k = 0; command_more(&asked, k); k++) try_seed(asked.first + k, on_cuda);
  machines_close();
  printf("%llu programs: %llu products with an epilogue, %llu without\n", (unsigned long long)n,
         (unsigned long long)n_joined, (unsigned long long)n_products);
  if (n >= 100) EXPECT(n_joined > n_products);
  return test_finish();
}
