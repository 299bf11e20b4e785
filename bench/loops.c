/* loops: what a long loop costs before it runs, as it is kept in the plan and unrolled: time to
 * bind it, time to prove it and take out waits, bytes of the plan and of what the cpu device
 * prepares, and the host's time per instruction. Then the same loop on a GPU, or the stand-in for one: time to
 * load it, its bytes on the host, and the host's time per instruction. Then of a loop with an allgather per
 * iteration, on two devices: time to bind both, and to prove them together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/unit/bind_kit.h"
#include "runtime/device.h"

static const char program[] = "host f(x : f32[%u, 4], w : f32[4]) -> (y) {\n"
                              "  y : f32[%u, 4] = allocate()\n"
                              "  main = current_stream()\n"
                              "  for i in 4 {\n    set_stream(i)\n    wait_stream(main)\n  }\n"
                              "  for i in %u {\n"
                              "    set_stream(i %% 4)\n"
                              "    x$1 = select(x, dim=0, index=i)\n"
                              "    y$1 = select(y, dim=0, index=i)\n"
                              "    t : f32[4] = allocate()\n"
                              "    t <- x$1 * w\n    y$1 <- t + x$1\n"
                              "    deallocate(t)\n  }\n"
                              "  set_stream(main)\n"
                              "  for i in 4 {\n    wait_stream(i)\n  }\n}\n";

static void require(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n%s\n", what, kit_reason, status_message());
  exit(3);
}

/* ---- one loop ---- */
typedef struct row {
  uint32_t n, loops;
  bool on_gpu;
  bound b;
  double bind_us, prove_us, load_us, issue_ns;
  int64_t loaded_bytes;
} row;

static void prove(row *r) {
  uint32_t removed;
  int64_t start_ns = rt_clock_ns();
  require(check_prune_waits(r->b.plan, &memory_default, &removed) == STATUS_OK, "prune");
  r->prove_us = (double)(rt_clock_ns() - start_ns) * 1e-3;
  require(r->b.plan->passed, "the plan does not pass");
}

static void load_and_run(row *r, rt_device *device, const meter *m) {
  rt_loaded *loaded = NULL;
  size_t bytes = (size_t)r->n * 16;
  char *x = calloc(bytes, 1), *y = calloc(bytes, 1), w[16] = {0};
  int64_t before = m->live_bytes, start_ns = rt_clock_ns();
  require(device->ops->load(device, r->b.plan, &loaded) == STATUS_OK, "load");
  r->load_us = (double)(rt_clock_ns() - start_ns) * 1e-3;
  r->loaded_bytes = m->live_bytes - before;
  r->issue_ns = 1e30;
  for (int k = 0; k < 5; k++) {
    int64_t host_ns = 0;
    require(rt_run(loaded, (void *[]){x, w}, (void *[]){y}, NULL, &host_ns) == STATUS_OK, "run");
    double each_ns = (double)host_ns / rt_plan_n_done(r->b.plan);
    if (each_ns < r->issue_ns) r->issue_ns = each_ns;
  }
  device->ops->unload(loaded);
  free(x);
  free(y);
}

static void load_on_cpu(row *r) {
  meter m;
  rt_device *device = NULL;
  rt_device_options o = {.threads = 1};
  require(rt_device_cpu.open(&o, meter_start(&m), &device) == STATUS_OK, "open");
  load_and_run(r, device, &m);
  device->ops->close(device);
}

static status bind_row_guarded(void *context) {
  row *r = context;
  char text[1024];
  bind_options o = {.streams = 4, .loops = r->loops};
  snprintf(text, sizeof text, program, r->n, r->n, r->n);
  require(subject_parse(&r->b.s, text), "parse");
  ir_env env;
  ir_env_init(&env, r->b.s.func, &r->b.s.memory);
  r->bind_us = 1e30;
  for (int k = 0; k < 5; k++) {
    rt_plan_destroy(r->b.plan);
    r->b.plan = NULL;
    int64_t start_ns = rt_clock_ns();
    require(bind_plan(&env, &o, &memory_default, &r->b.plan) == STATUS_OK, "bind");
    double us = (double)(rt_clock_ns() - start_ns) * 1e-3;
    if (us < r->bind_us) r->bind_us = us;
  }
  prove(r);
  if (!r->on_gpu) load_on_cpu(r);
  return STATUS_OK;
}

static void print_row(row *r) {
  const rt_plan *p = r->b.plan;
  printf("%9u  %-8s  %9u  %10.0f  %10.0f  %11zu  %12lld  %8.1f\n", r->n,
         r->loops ? "kept" : "unrolled", p->n_instrs, r->bind_us, r->prove_us, p->memory.used_bytes,
         (long long)r->loaded_bytes, r->issue_ns);
}

/* ---- on a GPU ---- */
static void measure_gpu(void) {
  static const uint32_t sizes[] = {1000, 100000};
  meter m;
  rt_device *gpu = NULL;
  if (rt_device_cuda.open(&(rt_device_options){0}, meter_start(&m), &gpu) != STATUS_OK) {
    status_clear();
    return;
  }
  printf("\non a GPU    loop         load us  loaded bytes  issue ns\n");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (uint32_t kept = 0; kept < 2; kept++) {
      row r = {.n = sizes[i], .loops = kept ? 32 : 0, .on_gpu = true};
      require(memory_guard(bind_row_guarded, &r) == STATUS_OK, "memory");
      load_and_run(&r, gpu, &m);
      printf("%9u  %-8s  %10.0f  %12lld  %8.1f\n", r.n, kept ? "kept" : "unrolled", r.load_us,
             (long long)r.loaded_bytes, r.issue_ns);
      bind_close(&r.b);
    }
  rt_device_cuda.close(gpu);
}

/* ---- several devices ---- */
static const char gathers[] = "host f(mesh d = [2], a : f32[%1$u, 2@x/1, 2] on d) -> (c) {\n"
                              "  c : f32[%1$u, 2, 2] on d = allocate()\n"
                              "  main = current_stream()\n"
                              "  for i in 4 {\n    set_stream(i)\n    wait_stream(main)\n  }\n"
                              "  for i in %1$u {\n    set_stream(i %% 4)\n"
                              "    a$1 = select(a, dim=0, index=i)\n"
                              "    t : f32[2@x/1, 2] on d = allocate()\n    t <- a$1 + a$1\n"
                              "    c$1 = select(c, dim=0, index=i)\n"
                              "    c0 = allgather(t -> c$1, team=d.x)\n    wait(c0)\n"
                              "    deallocate(t)\n  }\n  set_stream(main)\n"
                              "  for i in 4 {\n    wait_stream(i)\n  }\n}\n";

typedef struct world_row {
  uint32_t n, loops;
  double bind_us, prove_us;
  uint32_t instrs;
  size_t bytes;
} world_row;

static double bind_ranks(const ir_env *env, uint32_t loops, rt_plan **plans) {
  int64_t start_ns = rt_clock_ns();
  for (uint32_t r = 0; r < 2; r++) {
    bind_options o = {.streams = 4, .loops = loops, .rank = r, .world = 2};
    require(bind_plan(env, &o, &memory_default, &plans[r]) == STATUS_OK, "bind");
  }
  return (double)(rt_clock_ns() - start_ns) * 1e-3;
}

static double prove_ranks(rt_plan **plans) {
  check_world_report report = {0};
  int64_t start_ns = rt_clock_ns();
  require(check_world((const rt_plan *const *)plans, 2, NULL, &report) == STATUS_OK, "check");
  require(report.n_found == 0, "the world does not pass");
  check_world_report_destroy(&report);
  return (double)(rt_clock_ns() - start_ns) * 1e-3;
}

static status world_guarded(void *context) {
  world_row *r = context;
  subject s;
  ir_env env;
  char text[1024];
  snprintf(text, sizeof text, gathers, r->n);
  require(subject_parse(&s, text), "parse");
  ir_env_init(&env, s.func, &s.memory);
  r->bind_us = r->prove_us = 1e30;
  for (int k = 0; k < 3; k++) {
    rt_plan *plans[2];
    double bind_us = bind_ranks(&env, r->loops, plans), prove_us = prove_ranks(plans);
    r->bind_us = bind_us < r->bind_us ? bind_us : r->bind_us;
    r->prove_us = prove_us < r->prove_us ? prove_us : r->prove_us;
    r->instrs = plans[0]->n_instrs;
    r->bytes = plans[0]->memory.used_bytes;
    for (uint32_t i = 0; i < 2; i++) rt_plan_destroy(plans[i]);
  }
  subject_close(&s);
  return STATUS_OK;
}

static void measure_worlds(void) {
  static const uint32_t sizes[] = {1000, 100000};
  printf("\ntwo devices  loop      instrs    bind us    prove us   plan bytes\n");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (uint32_t kept = 0; kept < 2; kept++) {
      world_row r = {.n = sizes[i], .loops = kept ? 32 : 0};
      require(memory_guard(world_guarded, &r) == STATUS_OK, "memory");
      printf("%9u  %-8s  %9u  %10.0f  %10.0f  %11zu\n", r.n, kept ? "kept" : "unrolled", r.instrs,
             r.bind_us, r.prove_us, r.bytes);
    }
}

int main(void) {
  static const uint32_t sizes[] = {10, 1000, 100000, 1000000};
  printf(
      "iterations  loop      instrs    bind us    prove us   plan bytes  loaded bytes  issue ns\n");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (uint32_t kept = 0; kept < 2; kept++) {
      if (!kept && sizes[i] > 100000) continue;
      row r = {.n = sizes[i], .loops = kept ? 32 : 0};
      require(memory_guard(bind_row_guarded, &r) == STATUS_OK, "memory");
      print_row(&r);
      bind_close(&r.b);
    }
  measure_gpu();
  measure_worlds();
  return 0;
}
