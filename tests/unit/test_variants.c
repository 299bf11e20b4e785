/* Variants of a program with other streams, and which of them the cost model takes. */
#include "cost/cost.h"
#include "device_kit.h"
#include "test.h"

/* Half of the rows on each device, each of which has its own columns. */
#define GATHERED                                                                                   \
  "fusion ag { mesh d = [2]\n a : f32[2, m, k]\n b : f32[k, n]\n c = matmul(a, b)\n return c\n"    \
  " schedule { a, b, c on d; a[0] = mesh.x; b.outer_split(1, d); b[1] = mesh.x;"                   \
  " c.outer_split(2, d); c[2] = mesh.x; c.outer_split(1, 8); "

static const char by_slices[] = GATHERED "c[1] = stream } }\n";
static const char by_pieces[] = GATHERED "c[0] = stream; c[1] = stream } }\n";
static const char shared[] =
    "fusion ag { mesh d = [2]\n a : f32[2, m, k]\n b : f32[k, 1024]\n c = matmul(a, b)\n return c\n"
    " schedule { a, b, c on d; a[0] = mesh.x; c.outer_split(1, 8); c[0] = stream; c[1] = stream } "
    "}\n";
/* The stream lies inside the pieces, and goes with them. */
static const char inside[] =
    "fusion rows { mesh d = [2]\n x : f32[m, k]\n w : f32[n, k]\n y = linear(x, w)\n return y\n"
    " schedule { x, w on d; x.outer_split(0, d); x[0] = mesh.x; w.outer_split(0, d); w[0] = mesh.x;"
    " y.outer_split(0, d); y.outer_split(1, 8); y[0] = stream; y[1] = stream } }\n";

typedef enum variant { AS_MARKED, UNSTREAMED, BY_SLICES, BY_PIECES } variant;

typedef struct trial {
  const char *text;
  int64_t m, k, n;
  rt_speed machine;
  double ms[4];         /* by variant */
  const char *texts[4]; /* of the host programs */
  bool own_first[4];
  subject s;
} trial;

/* ---- lowering and costs ---- */
static bool bind_extents(trial *t) {
  ir_env_init(&t->s.env, t->s.func, &t->s.memory);
  (void)ir_bind_name(&t->s.env, "m", t->m); /* not all have them */
  (void)ir_bind_name(&t->s.env, "k", t->k);
  (void)ir_bind_name(&t->s.env, "n", t->n);
  return subject_values(&t->s);
}

static bool try_variant(trial *t, variant which) {
  static const char *const passes[] = {NULL, "unstream", "stream-slices", "stream-pieces"};
  host_options o = {0};
  ir_func *h = NULL;
  uint32_t removed;
  if (kit_lower_variant(t->s.func, &o, passes[which], &h) != STATUS_OK)
    return kit_refused(&t->s, "lower");
  t->texts[which] = subject_print(&t->s, h);
  t->own_first[which] = h->host->own_first;
  rt_plan *plan = subject_plan(&t->s, h, 4, false);
  if (!plan) return false;
  bool pruned = kit_ok(check_prune_waits(plan, &memory_default, &removed), "prune");
  t->ms[which] = cost_plan_ns(plan, &t->machine, &t->s.memory) * 1e-6;
  rt_plan_destroy(plan);
  return pruned;
}

static status try_variants(void *context) {
  trial *t = context;
  bool good = subject_open(&t->s, t->text) && bind_extents(t);
  for (int i = AS_MARKED; good && i <= BY_PIECES; i++) good = try_variant(t, (variant)i);
  return good ? STATUS_OK : STATUS_CHECK_FAILED;
}

/* One core that computes 93 GFLOP/s, and a link of so many Mbit/s to another process. */
static void run(trial *t, const char *text, const int64_t *mkn, double mbits) {
  *t = (trial){.text = text, .m = mkn[0], .k = mkn[1], .n = mkn[2]};
  t->machine = (rt_speed){.flops_per_ns = 93, .bytes_per_ns = 10, .launch_ns = 500};
  t->machine.threads = 1;
  t->machine.link_latency_ns = 100e3;
  t->machine.link_bytes_per_ns = mbits / 8e3;
  t->machine.post_ns = 250e3;
  if (!EXPECT(memory_guard(try_variants, t) == STATUS_OK)) printf("%s\n", kit_reason);
}

/* A rank of `ranks` on one large GPU over the host's link, with what issuing takes or without. Times of such
 * programs were measured on an H200. */
static void run_on_gpu(trial *t, const char *text, double ranks, bool issues) {
  *t = (trial){.text = text};
  t->machine = (rt_speed){.flops_per_ns = 39e3 / ranks, .bytes_per_ns = 3940 / ranks};
  t->machine.narrow_flops_per_ns = 877e3 / ranks;
  t->machine.launch_ns = t->machine.post_ns = 6700;
  t->machine.issue_ns = issues ? 6700 * ranks : 0;
  t->machine.call_ns = t->machine.issue_ns / 4;
  t->machine.threads = 1;
  t->machine.reads_ahead = true;
  t->machine.link_latency_ns = 8500;
  t->machine.link_bytes_per_ns = 50.3 / ranks;
  if (!EXPECT(memory_guard(try_variants, t) == STATUS_OK)) printf("%s\n", kit_reason);
}

/* ---- the tests ---- */
static const int64_t large[] = {1024, 2048, 2048}, small[] = {128, 256, 512};

static void test_texts(void) {
  trial slices, pieces, rows;
  run(&slices, by_slices, large, 1000);
  run(&pieces, by_pieces, large, 1000);
  run(&rows, inside, large, 1000);
  EXPECT_STR(slices.texts[BY_SLICES], slices.texts[AS_MARKED]);
  EXPECT_STR(slices.texts[BY_PIECES], pieces.texts[AS_MARKED]);
  EXPECT_STR(pieces.texts[BY_PIECES], pieces.texts[AS_MARKED]);
  EXPECT_STR(pieces.texts[BY_SLICES], slices.texts[AS_MARKED]);
  EXPECT_STR(pieces.texts[UNSTREAMED], slices.texts[UNSTREAMED]);
  EXPECT_STR(rows.texts[BY_SLICES], rows.texts[AS_MARKED]);
  EXPECT(pieces.own_first[AS_MARKED] && rows.own_first[AS_MARKED]);
  EXPECT(!slices.own_first[AS_MARKED] && slices.own_first[BY_PIECES]);
  EXPECT(!pieces.own_first[BY_SLICES] && !pieces.own_first[UNSTREAMED]);
  EXPECT(strstr(slices.texts[AS_MARKED], "allgather") != NULL);
  EXPECT(strstr(slices.texts[UNSTREAMED], "for ") == NULL);
  subject_close(&slices.s);
  subject_close(&pieces.s);
  subject_close(&rows.s);
}

/* What the own product hides is seen: all but the packing of the weights, once per product. */
static void test_large(void) {
  for (int rate = 0; rate < 2; rate++) {
    trial t;
    run(&t, by_slices, large, rate ? 250 : 1000);
    double limit = rate ? 8.39e6 / 0.03125e6 : 8.59e9 / 93e6; /* of transfer; of computation */
    EXPECT(t.ms[BY_PIECES] < t.ms[BY_SLICES]);
    EXPECT(t.ms[BY_SLICES] < t.ms[UNSTREAMED]);
    EXPECT(t.ms[BY_PIECES] > limit && t.ms[BY_PIECES] < 1.12 * limit);
    subject_close(&t.s);
  }
}

/* Slices that are too short cost more than they hide. */
static void test_small(void) {
  trial t;
  run(&t, by_pieces, small, 1000);
  EXPECT(t.ms[UNSTREAMED] < t.ms[AS_MARKED]);
  EXPECT(t.ms[UNSTREAMED] < t.ms[BY_SLICES]);
  subject_close(&t.s);
}

/* Where all compute the same, the own rows are multiplied in slices too: as many products more. */
static void test_shared(void) {
  trial t, own;
  run(&t, shared, large, 1000);
  run(&own, by_pieces, large, 1000);
  EXPECT(t.own_first[AS_MARKED]);
  EXPECT(t.ms[AS_MARKED] - own.ms[AS_MARKED] > 7 * 0.8);
  subject_close(&t.s);
  subject_close(&own.s);
}

/* Extents are numbers: what is moved depends on them. */
#define GATHERED_ON_GPU(m, k, n)                                                                   \
  "fusion ag { mesh d = [2]\n a : bf16[8, 2, " #m ", " #k "]\n b : bf16[" #k ", " #n "]\n"         \
  " c = matmul(a, b)\n return c\n schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream } }\n"
#define REDUCED_ON_GPU(m, k, n)                                                                    \
  "fusion ar { mesh d = [4]\n a : bf16[8, 4, " #m ", " #k "]\n b : bf16[4, " #k ", " #n "]\n"      \
  " u = matmul(a, b)\n c = sum(u, dims=[1])\n return c\n schedule { a, b, u, c on d;"              \
  " a[1] = mesh.x; b[0] = mesh.x; u[0] = stream; u[1] = mesh.x; c[0] = stream } }\n"

/* One host issues for all devices: what slices hide may be less than that. */
static void test_issue(void) {
  static const struct {
    const char *text;
    double ranks;
    bool slices; /* are faster, as measured */
  } works[] = {
      {GATHERED_ON_GPU(512, 8192, 4096), 2, true}, /* 1.58 ms, 2.08 without slices */
      {GATHERED_ON_GPU(512, 8192, 256), 2, false}, /* 0.32, 0.20 */
      {GATHERED_ON_GPU(16, 256, 256), 2, false},   /* 0.25, 0.06 */
      {REDUCED_ON_GPU(512, 2048, 2048), 4, false}, /* 2.85, 2.19 */
  };
  for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
    trial t, free;
    run_on_gpu(&t, works[i].text, works[i].ranks, true);
    run_on_gpu(&free, works[i].text, works[i].ranks, false);
    EXPECT_INT(t.ms[AS_MARKED] < t.ms[UNSTREAMED], works[i].slices);
    EXPECT(free.ms[AS_MARKED] < t.ms[AS_MARKED]);
    subject_close(&t.s);
    subject_close(&free.s);
  }
}

int main(void) {
  test_issue();
  test_texts();
  test_large();
  test_small();
  test_shared();
  return test_finish();
}
