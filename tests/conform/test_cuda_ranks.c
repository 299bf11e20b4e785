/* Ranks on GPUs that are processes: random worlds, directly and through the host, with delays,
 * traced, and what happens to all of them when one cannot go on. Started by an MPI launcher with 2
 * to 8 ranks:
 *
 *   mpirun -n 4 test_cuda_ranks [N] [nccl]     N worlds of each kind (12); by NCCL also of one rank
 *
 * Skips without a launcher, and where there is no GPU. Where NCCL itself has several ranks on a
 * GPU, worlds are shorter and fewer: a communicator takes a third of a second, and a call as long
 * as it takes until all processes had their turn on the GPU. */
#include <stdlib.h>
#include <time.h>

#include "conform/matrix.h"
#include "mpi/launched.h"

static mpi_launch launch;
static const rt_comm_ops *backend;
static bool uses_nccl;
static bool is_shared; /* NCCL itself, with several ranks on a GPU */

/* A line for each part, since some take long. */
static void begins(const char *name) {
  static int64_t start_ns;
  if (!start_ns) start_ns = rt_clock_ns();
  if (launch.rank > 0) return;
  printf("%.1f s: %s\n", (double)(rt_clock_ns() - start_ns) / (double)SECONDS, name);
  (void)fflush(stdout);
}

static uint32_t steps_of(uint32_t steps) { return is_shared ? 12 : steps; }

/* ---- a device in a world ---- */
typedef struct peer {
  rt_device *device;
  rt_comm *endpoint;
} peer;

static void pulse(void *context, rt_pulse *p) {
  peer *x = context;
  x->device->ops->pulse(x->device, p);
}

static void open_peer(peer *x, const rt_device_options *o, const allocator *memory,
                      int64_t timeout_ns) {
  uint32_t n = 0;
  rt_device_options own = *o;
  own.first_gpu = launch.local;
  if (uses_nccl) own.carrier = RT_CARRIER_NCCL;
  rt_comm_options c = {.ranks = launch.size, .pulse = pulse, .pulse_context = x};
  bool good = EXPECT_INT(rt_device_cuda.open(&own, memory, &x->device), STATUS_OK) &&
              EXPECT_INT(backend->open(&c, &memory_default, 1, &x->endpoint, &n), STATUS_OK);
  if (!good) {
    fprintf(stderr, "%s\n", status_message());
    exit(test_finish());
  }
  x->device->ops->attach(x->device, &x->endpoint, 1, timeout_ns);
}

static void close_peer(peer *x) {
  x->endpoint->ops->close(x->endpoint);
  x->device->ops->close(x->device);
}

static status load(const peer *x, const world *w, rt_loaded **l) {
  const rt_plan *plans[WORLD_RANKS];
  for (uint32_t r = 0; r < w->n; r++) plans[r] = &w->ranks[r].k.plan;
  return x->device->ops->load_spread(x->device, plans[launch.rank], plans, w->n, l);
}

static status run(const world *w, rt_loaded *l, rt_span *spans) {
  uint32_t first = launch.rank * WORLD_PLACES;
  return rt_run(l, w->inputs + first, w->outputs + first, spans, NULL);
}

static bool is_right(const world *w) {
  const world_rank *x = &w->ranks[launch.rank];
  for (uint32_t j = 0; j < WORLD_PLACES; j++) {
    const void *out = w->outputs[launch.rank * WORLD_PLACES + j];
    if (memcmp(out, x->value[j], (size_t)w->width * 8) != 0) return false;
  }
  return true;
}

static bool is_good(const world *w, rt_loaded *l, rt_span *spans) {
  world_clear(w);
  if (run(w, l, spans) == STATUS_OK) return is_right(w);
  fprintf(stderr, "rank %u: %s\n", launch.rank, status_message());
  status_clear();
  return false;
}

/* ---- worlds ---- */
enum { AT_ONCE = 3 };

/* Several plans are loaded at a time, and run in turns. */
static void test_worlds(const rt_device_options *o, const char *name, int64_t width, uint32_t n) {
  peer x;
  uint32_t wrong = 0, at_once = is_shared ? 1 : AT_ONCE;
  begins(name);
  open_peer(&x, o, &memory_default, 60 * SECONDS);
  for (uint32_t seed = 0; seed < n; seed += at_once) {
    world w[AT_ONCE];
    rt_loaded *l[AT_ONCE] = {0};
    for (uint32_t i = 0; i < at_once; i++) {
      world_make(&w[i], seed + i, launch.size, width, steps_of(30));
      if (!EXPECT_INT(load(&x, &w[i], &l[i]), STATUS_OK)) {
        fprintf(stderr, "%s\n", status_message());
        exit(test_finish());
      }
    }
    for (uint32_t r = 0; r < 3; r++)
      for (uint32_t i = 0; i < at_once; i++) wrong += !is_good(&w[i], l[i], NULL);
    for (uint32_t i = 0; i < at_once; i++) {
      x.device->ops->unload(l[i]);
      world_destroy(&w[i]);
    }
  }
  close_peer(&x);
  if (wrong) fprintf(stderr, "%s: ", name);
  EXPECT_INT(wrong, 0);
}

/* Every kind of communication, of one dtype. */
static void test_matrix(const peer *x, ir_dtype dtype) {
  rt_loaded *l = NULL;
  const rt_plan *plans[WORLD_RANKS];
  matrix *m = calloc(1, sizeof *m);
  if (!m) abort();
  matrix_make(m, dtype, launch.size);
  EXPECT(matrix_expect(m));
  for (uint32_t r = 0; r < launch.size; r++) plans[r] = &m->kits[r].plan;
  begins(ir_dtype_text(dtype));
  EXPECT_INT(x->device->ops->load_spread(x->device, plans[launch.rank], plans, launch.size, &l),
             STATUS_OK);
  uint32_t first = launch.rank * m->cases;
  for (int run = 0; run < (is_shared ? 1 : 2) && l; run++) {
    matrix_clear(m, m->outputs);
    EXPECT_INT(rt_run(l, m->inputs + first, m->outputs + first, NULL, NULL), STATUS_OK);
    EXPECT_INT(matrix_wrong(m, launch.rank), 0);
  }
  x->device->ops->unload(l);
  matrix_destroy(m);
  free(m);
}

/* All use the same communicators. */
static void test_matrices(bool all) {
  peer x;
  open_peer(&x, &(rt_device_options){0}, &memory_default, 60 * SECONDS);
  for (unsigned dtype = 1; dtype < IR_DTYPE_COUNT; dtype++)
    if (all || dtype % 3 == 1) test_matrix(&x, (ir_dtype)dtype);
  close_peer(&x);
}

/* What this rank does is told with the numbers of its own plan. */
static void test_spans(void) {
  peer x;
  world w;
  rt_loaded *l = NULL;
  uint32_t wrong = 0;
  open_peer(&x, &(rt_device_options){0}, &memory_default, 60 * SECONDS);
  world_make(&w, 3, launch.size, 2000, steps_of(40));
  const rt_plan *plan = &w.ranks[launch.rank].k.plan;
  uint32_t n = plan->n_tasks + plan->n_posts;
  rt_span *spans = ARENA_ARRAY(&w.memory, n, rt_span);
  EXPECT_INT(load(&x, &w, &l), STATUS_OK);
  int64_t start_ns = rt_clock_ns();
  EXPECT(is_good(&w, l, spans));
  int64_t wall_ns = rt_clock_ns() - start_ns;
  for (uint32_t i = 0; i < n; i++) {
    const rt_instr *instr = &plan->instrs[spans[i].instr];
    wrong += spans[i].start_ns < 0 || spans[i].end_ns < spans[i].start_ns;
    wrong += spans[i].end_ns > wall_ns || spans[i].stream != instr->stream;
    wrong += instr->kind != (i >= plan->n_tasks ? RT_POST : RT_LAUNCH);
  }
  EXPECT_INT(wrong, 0);
  x.device->ops->unload(l);
  close_peer(&x);
  world_destroy(&w);
}

/* ---- failures ---- */
/* One rank has no memory at its Nth allocation: all end, and with one message. */
static void test_allocations(uint32_t most) {
  world w;
  world_make(&w, 5, launch.size, 16, 12);
  status st = STATUS_OUT_OF_MEMORY;
  for (uint32_t n = 2; st != STATUS_OK && n < most; n += 1 + n / 4) {
    peer x;
    rt_loaded *l = NULL;
    memory_faults faults = {.fail_at = UINT64_MAX};
    allocator memory = memory_faulty(&faults);
    open_peer(&x, &(rt_device_options){0}, &memory, 60 * SECONDS);
    if (launch.rank == 1) faults.fail_at = faults.calls + n;
    st = load(&x, &w, &l);
    if (st == STATUS_OK) st = run(&w, l, NULL);
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    if (st != STATUS_OK) EXPECT_CONTAINS(status_message(), "rank 1: ");
    status_clear();
    x.device->ops->unload(l);
    close_peer(&x);
    EXPECT_INT(faults.live, 0);
  }
  world_destroy(&w);
}

/* Rank 1 meets a wrong index; the others have done their part by then. */
static void test_wrong_index(void) {
  static const uint32_t team[] = {0, 1, 2, 3, 4, 5, 6, 7};
  peer x;
  kit k[WORLD_RANKS];
  const rt_plan *plans[WORLD_RANKS];
  rt_loaded *l = NULL;
  int64_t in[8] = {0}, index[8] = {0}, out[8];
  open_peer(&x, &(rt_device_options){0}, &memory_default, 60 * SECONDS);
  for (uint32_t r = 0; r < launch.size; r++) {
    kit_init(&k[r], 2);
    uint32_t a = kit_buffer(&k[r], RT_BUFFER_INPUT, 0, 8), t = kit_pool(&k[r], 8);
    uint32_t at = kit_buffer(&k[r], RT_BUFFER_INPUT, 1, 8);
    uint32_t y = kit_pool(&k[r], 8), z = kit_buffer(&k[r], RT_BUFFER_OUTPUT, 0, 8);
    rt_post post = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .count = 8};
    post.n_team = launch.size;
    post.me = post.rank = r;
    post.in = t;
    post.out = y;
    (void)kit_index(&k[r], 0, t, a, at);
    (void)kit_join(&k[r], 0, kit_post(&k[r], 0, post));
    (void)kit_set(&k[r], 0, z, y);
    (void)kit_plan(&k[r]);
    plans[r] = &k[r].plan;
  }
  EXPECT_INT(x.device->ops->load_spread(x.device, plans[launch.rank], plans, launch.size, &l),
             STATUS_OK);
  EXPECT_INT(rt_run(l, (void *[]){in, index}, (void *[]){out}, NULL, NULL), STATUS_OK);
  if (launch.rank == 1) index[3] = 77;
  EXPECT_INT(rt_run(l, (void *[]){in, index}, (void *[]){out}, NULL, NULL), STATUS_BAD_PROGRAM);
  EXPECT_CONTAINS(status_message(), "rank 1: ");
  EXPECT_CONTAINS(status_message(), "77");
  status_clear();
  EXPECT_INT(rt_run(l, (void *[]){in, index}, (void *[]){out}, NULL, NULL), STATUS_BAD_PROGRAM);
  status_clear();
  x.device->ops->unload(l);
  close_peer(&x);
  for (uint32_t r = 0; r < launch.size; r++) kit_destroy(&k[r]);
}

/* Rank 0 comes with a plan that the others do not have. */
static void test_other_plans(uint64_t seed, int64_t width) {
  peer x;
  world w;
  rt_loaded *l = NULL;
  open_peer(&x, &(rt_device_options){0}, &memory_default, 60 * SECONDS);
  if (launch.rank == 0) world_make(&w, seed, launch.size, width, 20);
  else world_make(&w, 8, launch.size, 16, 20);
  EXPECT_INT(load(&x, &w, &l), STATUS_BAD_PROGRAM);
  EXPECT_CONTAINS(status_message(), "another program");
  status_clear();
  close_peer(&x);
  world_destroy(&w);
}

/* What a rank gets of its GPU, the other processes' ranks get no less of. */
static void test_speed(void) {
  peer x;
  rt_device *d = NULL;
  EXPECT_INT(rt_device_cuda.open(&(rt_device_options){0}, &memory_default, &d), STATUS_OK);
  rt_speed all = d->ops->speed(d, NULL, launch.size);
  d->ops->close(d);
  open_peer(&x, &(rt_device_options){0}, &memory_default, 60 * SECONDS);
  rt_speed mine = x.device->ops->speed(x.device, NULL, 1);
  EXPECT(mine.flops_per_ns == all.flops_per_ns);
  EXPECT(mine.link_bytes_per_ns == all.link_bytes_per_ns);
  close_peer(&x);
}

/* The last rank does not run its plan: the others give up, and say what they wait for. */
static void test_absent(void) {
  peer x;
  world w;
  rt_loaded *l = NULL;
  int64_t most_s = is_shared ? 5 : 3; /* communicators are made within it, too */
  char expected[64];
  (void)snprintf(expected, sizeof expected, "no progress in %d s: rank ", (int)most_s);
  open_peer(&x, &(rt_device_options){0}, &memory_default, most_s * SECONDS);
  world_make(&w, 4, launch.size, 16, steps_of(40));
  if (!EXPECT_INT(load(&x, &w, &l), STATUS_OK)) fprintf(stderr, "%s\n", status_message());
  if (launch.rank + 1 < launch.size) {
    EXPECT_INT(run(&w, l, NULL), STATUS_UNAVAILABLE);
    EXPECT_CONTAINS(status_message(), expected);
  } else {
    for (int i = 0; i < 6000 && x.endpoint->ops->error(x.endpoint) == STATUS_OK; i++)
      (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    EXPECT_CONTAINS(status_message(), expected);
  }
  status_clear();
  EXPECT_INT(run(&w, l, NULL), STATUS_UNAVAILABLE);
  status_clear();
  x.device->ops->unload(l);
  close_peer(&x);
  world_destroy(&w);
}

/* Rank 0 computes for longer than the timeout, on its stream, while the others wait for it. */
static void test_busy(void) {
  static const uint32_t team[] = {0, 1, 2, 3, 4, 5, 6, 7};
  peer x;
  kit k[WORLD_RANKS];
  const rt_plan *plans[WORLD_RANKS];
  rt_loaded *l = NULL;
  int64_t in[8] = {1}, out[8] = {0};
  open_peer(&x, &(rt_device_options){0}, &memory_default, SECONDS);
  for (uint32_t r = 0; r < launch.size; r++) {
    kit_init(&k[r], 1);
    uint32_t a = kit_buffer(&k[r], RT_BUFFER_INPUT, 0, 8);
    uint32_t z = kit_buffer(&k[r], RT_BUFFER_OUTPUT, 0, 8), u = kit_pool(&k[r], 1 << 23);
    rt_post post = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .count = 8};
    for (int i = 0; i < 100 && r == 0; i++) (void)kit_binary(&k[r], 0, IR_OP_MUL, u, u, u);
    post.n_team = launch.size;
    post.me = post.rank = r;
    post.in = a;
    post.out = z;
    (void)kit_join(&k[r], 0, kit_post(&k[r], 0, post));
    (void)kit_plan(&k[r]);
    plans[r] = &k[r].plan;
  }
  EXPECT_INT(x.device->ops->load_spread(x.device, plans[launch.rank], plans, launch.size, &l),
             STATUS_OK);
  int64_t start_ns = rt_clock_ns();
  EXPECT_INT(rt_run(l, (void *[]){in}, (void *[]){out}, NULL, NULL), STATUS_OK);
  if (launch.rank == 0) printf("busy for %.1f s\n", (double)(rt_clock_ns() - start_ns) * 1e-9);
  EXPECT_INT(out[0], launch.size);
  x.device->ops->unload(l);
  close_peer(&x);
  for (uint32_t r = 0; r < launch.size; r++) kit_destroy(&k[r]);
}

/* The stand-in fails on rank 1, in its own ways: all ranks end before the timeout, and with one message. */
static void test_told(const char *told, const char *expected, int64_t timeout_ns) {
  peer x;
  world w;
  rt_loaded *l = NULL;
  open_peer(&x, &(rt_device_options){0}, &memory_default, timeout_ns);
  world_make(&w, 4, launch.size, 16, 40);
  if (launch.rank == 1) EXPECT_INT(setenv("WEIR_STANDIN_NCCL", told, 1), 0);
  status st = load(&x, &w, &l);
  if (st == STATUS_OK) st = run(&w, l, NULL);
  EXPECT_INT(st, STATUS_UNAVAILABLE);
  EXPECT_CONTAINS(status_message(), expected);
  status_clear();
  EXPECT_INT(setenv("WEIR_STANDIN_NCCL", "", 1), 0);
  x.device->ops->unload(l);
  close_peer(&x);
  world_destroy(&w);
}

static void test_failing_calls(void) {
  static const char made[] = "rank 1: cuda: NCCL makes no communicator for ";
  static const char failed[] = "rank 1: cuda: NCCL failed at rank 1's ";
  test_told("fail:ncclCommInitRankConfig:1", made, 60 * SECONDS);
  test_told("fail:ncclGroupEnd:1", failed, 60 * SECONDS);
  test_told("fail:ncclGroupEnd:4", failed, 60 * SECONDS);
  test_told("async:2", failed, 60 * SECONDS);
  test_told("hang:1", "no progress in 3 s: rank ", 3 * SECONDS);
}

/* Open all the time, since GPUs that nobody has open take long to open. */
static rt_device *warm;

static bool is_there(void) {
  rt_device_options o = {.carrier = uses_nccl ? RT_CARRIER_NCCL : RT_CARRIER_NONE};
  status st = rt_device_cuda.open(&o, &memory_default, &warm);
  if (st != STATUS_OK)
    EXPECT_INT(st, STATUS_UNAVAILABLE), printf("skipped: %s\n", status_message());
  status_clear();
  return st == STATUS_OK;
}

/* What one rank by itself cannot do wrong. */
static void test_several(uint32_t n) {
  begins("what goes wrong");
  if (!is_shared) test_allocations(n < 12 ? 40 : 4000);
  test_wrong_index();
  begins("other plans");
  test_other_plans(9, 16);
  test_other_plans(8, 24);
  begins("a rank that does not come");
  test_absent();
  if (n >= 12) test_busy();
  if (uses_nccl && getenv("WEIR_STANDIN_NCCL")) test_failing_calls();
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    rt_device_options o;
  } modes[] = {{"direct", {.threads = 0}},
               {"through the host", {.link_host = true}},
               {"delayed", {.adversarial = true, .seed = 7}},
               {"delayed through the host", {.adversarial = true, .seed = 8, .link_host = true}}};
  uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 12;
  uses_nccl = argc > 2 && strcmp(argv[2], "nccl") == 0;
  uint32_t least = uses_nccl ? 1 : 2;
  if (!launched_find(&launch, &backend) || launch.size < least || launch.size > WORLD_RANKS) {
    printf("skipped: to be started by an MPI launcher, with %u to %d ranks\n", least, WORLD_RANKS);
    return 0;
  }
  if (!is_there()) return test_finish();
  is_shared = uses_nccl && !getenv("WEIR_STANDIN_NCCL") && getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
    if (uses_nccl && modes[m].o.link_host) continue;
    test_worlds(&modes[m].o, modes[m].name, 16, n);
    test_worlds(&modes[m].o, modes[m].name, 30000, n / 4);
  }
  test_matrices(n >= 12 || (is_shared && launch.size < WORLD_RANKS));
  test_speed();
  if (launch.size > 1) test_several(n);
  begins("spans"); /* after failures too; and all ranks end at once, or mpirun complains */
  test_spans();
  rt_device_cuda.close(warm);
  return test_finish();
}
