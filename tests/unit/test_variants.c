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
/* The stream lies inside the pieces, and goes with them. */
static const char inside[] =
    "fusion rows { mesh d = [2]\n x : f32[m, k]\n w : f32[n, k]\n y = linear(x, w)\n return y\n"
    " schedule { x, w on d; x.outer_split(0, d); x[0] = mesh.x; w.outer_split(0, d); w[0] = mesh.x;"
    " y.outer_split(0, d); y.outer_split(1, 8); y[0] = stream; y[1] = stream } }\n";

typedef struct trial {
  const char *text;
  int64_t m, k, n;
  cost_machine machine;
  double ns[4]; /* by host_streams; 0: there is no such variant */
  const char *texts[4];
  subject s;
} trial;

static bool bind_extents(trial *t) {
  ir_env_init(&t->s.env, t->s.func, &t->s.memory);
  return ir_bind_name(&t->s.env, "m", t->m) && ir_bind_name(&t->s.env, "k", t->k) &&
         ir_bind_name(&t->s.env, "n", t->n) && subject_values(&t->s);
}

static status try_variants(void *context) {
  trial *t = context;
  if (!subject_open(&t->s, t->text) || !bind_extents(t)) return STATUS_CHECK_FAILED;
  for (int i = HOST_AS_MARKED; i <= HOST_BY_PIECES; i++) {
    host_options o = {.streams = (host_streams)i};
    ir_func *h = NULL;
    if (host_lower(t->s.func, &o, &h) != STATUS_OK || !ir_host_verify(h))
      return kit_refused(&t->s, "lower"), STATUS_CHECK_FAILED;
    t->texts[i] = subject_print(&t->s, h);
    rt_plan *plan = subject_plan(&t->s, h, 4, false);
    if (!plan) return STATUS_CHECK_FAILED;
    uint32_t removed;
    EXPECT(check_prune_waits(plan, &memory_default, &removed) == STATUS_OK);
    t->ns[i] = cost_plan_ns(plan, &t->machine, &t->s.memory);
    rt_plan_destroy(plan);
  }
  return STATUS_OK;
}

int main(int argc, char **argv) {
  (void)argv;
  static const int64_t sizes[][3] = {{1024, 2048, 1024}, {512, 1024, 1024}, {1024, 2048, 256}, {1024, 512, 4096}, {256, 512, 512}, {128, 256, 256}};
  for (int r = 0; r < 2; r++) for (int i = 0; i < 6; i++) for (int p = 0; p < 3; p++) {
    trial t = {.text = p == 0 ? by_slices : p == 1 ? by_pieces : inside, .m = sizes[i][0] * (p == 2 ? 2 : 1), .k = sizes[i][1], .n = 2 * sizes[i][2]};
    t.machine = (cost_machine){.flops_per_ns = 93, .bytes_per_ns = 10, .launch_ns = 500, .threads = 1, .link_latency_ns = 100e3, .link_bytes_per_ns = r ? 0.03125 : 0.125, .post_ns = 250e3};
    bool ok = memory_guard(try_variants, &t) == STATUS_OK;
    if (!ok) printf("%s\n", kit_reason);
    printf("%d %d %s: marked %.1f plain %.1f slices %.1f pieces %.1f\n", r, i, p == 0 ? "slices" : p == 1 ? "pieces" : "inside", t.ns[0]/1e6, t.ns[1]/1e6, t.ns[2]/1e6, t.ns[3]/1e6);
    if (argc > 1) printf("%s\n%s\n%s\n", t.texts[0], t.texts[2], t.texts[3]);
    subject_close(&t.s);
  }
  return test_finish();
}
