/* What running a plan costs the host, tasks aside.
 *
 *   null device   nanoseconds per plan instruction, for 100 to 100,000 of them; the goal is under 100
 *   cpu device    the same with tasks of one element: issuing alone, and the whole run
 *   stream switch a chain that goes from stream to stream, each step a task and a wait
 *
 * and the allocations of repeated runs, which must be none. Primitive costs for comparison: reading
 * the clock 22 ns, an uncontended atomic add 2.5 ns, a hop between two spinning threads 50 ns, waking a
 * sleeping thread 20 to 50 us. Prints PASS or MISS per goal; fails when a run allocates. */
#include <stdio.h>
#include <stdlib.h>

#include "conform/plan_kit.h"

enum { ROUNDS = 21 };

static const double goal_ns = 100;
static int failed;

static void require(status st, const char *what) {
  if (st == STATUS_OK) return;
  fprintf(stderr, "%s: %s\n", what, status_message());
  exit(status_exit_code(st));
}

/* ---- plans ---- */
enum { STREAMS = 5 };

/* Independent chains on the worker streams, a wait for every other launch. */
static void make_wide(kit *k, uint32_t instrs) {
  kit_init(k, STREAMS);
  uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, 1), t[STREAMS];
  for (uint32_t s = 0; s < STREAMS; s++) t[s] = kit_pool(k, 1);
  while (k->instrs.len < instrs) {
    uint32_t s = 1 + k->instrs.len / 3 % (STREAMS - 1);
    if (k->instrs.len % 3 == 0) (void)kit_wait(k, s, 0);
    else (void)kit_set(k, s, t[s], x);
  }
}

/* One chain that changes the stream at every step. */
static void make_chain(kit *k, uint32_t steps, uint32_t streams) {
  kit_init(k, streams);
  uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, 1), t = kit_pool(k, 1);
  for (uint32_t i = 0; i < steps; i++) {
    if (i) (void)kit_wait(k, i % streams, (i - 1) % streams);
    (void)kit_set(k, i % streams, t, x);
  }
}

/* ---- measuring ---- */
typedef struct cost {
  double issue_ns, whole_ns; /* per instruction, the median of the rounds */
  uint64_t allocations;      /* of all rounds */
} cost;

static int compare_doubles(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *values) {
  qsort(values, ROUNDS, sizeof *values, compare_doubles);
  return values[ROUNDS / 2];
}

static cost measure(const char *device, uint32_t threads, const rt_plan *plan) {
  memory_faults count = {.fail_at = UINT64_MAX};
  allocator memory = memory_faulty(&count);
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  rt_device_options o = {.threads = threads};
  int64_t x = 1;
  void *inputs[] = {&x};
  double issue_ns[ROUNDS], whole_ns[ROUNDS];
  require(rt_device_find(device)->open(&o, &memory, &d), device);
  require(d->ops->load(d, plan, &l), device);
  require(rt_run(l, inputs, NULL, NULL, NULL), "warming up");
  uint64_t before = count.calls;
  for (int r = 0; r < ROUNDS; r++) {
    int64_t host_ns, start_ns = rt_clock_ns();
    require(rt_run(l, inputs, NULL, NULL, &host_ns), "running");
    whole_ns[r] = (double)(rt_clock_ns() - start_ns) / plan->n_instrs;
    issue_ns[r] = (double)host_ns / plan->n_instrs;
  }
  cost result = {median(issue_ns), median(whole_ns), count.calls - before};
  d->ops->unload(l);
  d->ops->close(d);
  return result;
}

static const char *verdict(bool ok) { return ok ? "PASS" : "MISS"; }

static void no_allocations(const cost *c) {
  printf("  allocations %llu %s\n", (unsigned long long)c->allocations,
         verdict(c->allocations == 0));
  if (c->allocations) failed = 1;
}

static void bench_null(void) {
  printf("null device, ns per instruction (goal: under %.0f)\n", goal_ns);
  for (uint32_t n = 100; n <= 100000; n *= 10) {
    kit k;
    make_wide(&k, n);
    cost c = measure("null", 1, kit_plan(&k));
    printf("  %6u instructions %6.1f %s", n, c.whole_ns, verdict(c.whole_ns < goal_ns));
    no_allocations(&c);
    kit_destroy(&k);
  }
}

static void bench_cpu(uint32_t threads) {
  printf("cpu device, %u thread(s), tasks of one element, ns per instruction\n", threads);
  for (uint32_t n = 100; n <= 100000; n *= 10) {
    kit k;
    make_wide(&k, n);
    cost c = measure("cpu", threads, kit_plan(&k));
    printf("  %6u instructions: issuing %6.1f %s, whole run %6.1f", n, c.issue_ns,
           verdict(c.issue_ns < goal_ns), c.whole_ns);
    no_allocations(&c);
    kit_destroy(&k);
  }
}

static void bench_switch(uint32_t threads, uint32_t streams) {
  enum { STEPS = 10000 };
  kit k;
  make_chain(&k, STEPS, streams);
  cost c = measure("cpu", threads, kit_plan(&k));
  double step_ns = c.whole_ns * kit_plan(&k)->n_instrs / STEPS;
  printf("  %u thread(s), %u streams: %7.1f ns per switch (task + wait), issuing %5.1f per step",
         threads, streams, step_ns, c.issue_ns * kit_plan(&k)->n_instrs / STEPS);
  no_allocations(&c);
  kit_destroy(&k);
}

int main(void) {
  bench_null();
  bench_cpu(1);
  bench_cpu(2);
  printf("stream switch + wait on the cpu device\n");
  for (uint32_t threads = 1; threads <= 4; threads *= 2)
    for (uint32_t streams = 2; streams <= 8; streams *= 2) bench_switch(threads, streams);
  return failed;
}
