/* loops: what a long loop costs before it runs, as it is kept in the plan and unrolled: time to bind it, time to prove it
 * and take out waits, bytes of the plan and of what the cpu device prepares, and the host's time per instruction. */
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
  bound b;
  double bind_us, prove_us, issue_ns;
  int64_t loaded_bytes;
} row;

static void prove(row *r) {
  uint32_t removed;
  int64_t start_ns = rt_clock_ns();
  require(check_prune_waits(r->b.plan, &memory_default, &removed) == STATUS_OK, "prune");
  r->prove_us = (double)(rt_clock_ns() - start_ns) * 1e-3;
  require(r->b.plan->passed, "the plan does not pass");
}

static void load_and_run(row *r) {
  meter m;
  rt_device *device = NULL;
  rt_loaded *loaded = NULL;
  size_t bytes = (size_t)r->n * 16;
  char *x = calloc(bytes, 1), *y = calloc(bytes, 1), w[16] = {0};
  require(rt_device_cpu.open(&(rt_device_options){.threads = 1}, meter_start(&m), &device) ==
              STATUS_OK,
          "open");
  int64_t before = m.live_bytes;
  require(device->ops->load(device, r->b.plan, &loaded) == STATUS_OK, "load");
  r->loaded_bytes = m.live_bytes - before;
  r->issue_ns = 1e30;
  for (int k = 0; k < 5; k++) {
    int64_t host_ns = 0;
    require(rt_run(loaded, (void *[]){x, w}, (void *[]){y}, NULL, &host_ns) == STATUS_OK, "run");
    double each_ns = (double)host_ns / rt_plan_n_done(r->b.plan);
    if (each_ns < r->issue_ns) r->issue_ns = each_ns;
  }
  device->ops->unload(loaded);
  device->ops->close(device);
  free(x);
  free(y);
}

static status bind_row_guarded(void *context) {
  row *r = context;
  char text[1024];
  rt_bind_options o = {.streams = 4, .loops = r->loops};
  snprintf(text, sizeof text, program, r->n, r->n, r->n);
  require(subject_parse(&r->b.s, text), "parse");
  ir_env env;
  ir_env_init(&env, r->b.s.func, &r->b.s.memory);
  r->bind_us = 1e30;
  for (int k = 0; k < 5; k++) {
    rt_plan_destroy(r->b.plan);
    r->b.plan = NULL;
    int64_t start_ns = rt_clock_ns();
    require(rt_bind(&env, &o, &memory_default, &r->b.plan) == STATUS_OK, "bind");
    double us = (double)(rt_clock_ns() - start_ns) * 1e-3;
    if (us < r->bind_us) r->bind_us = us;
  }
  prove(r);
  load_and_run(r);
  return STATUS_OK;
}

static void print_row(row *r) {
  const rt_plan *p = r->b.plan;
  printf("%9u  %-8s  %9u  %10.0f  %10.0f  %11zu  %12lld  %8.1f\n", r->n,
         r->loops ? "kept" : "unrolled", p->n_instrs, r->bind_us, r->prove_us, p->memory.used_bytes,
         (long long)r->loaded_bytes, r->issue_ns);
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
  return 0;
}
