/* What plans cost: bytes per instruction, of the plan and of what the cpu device keeps of it; and
 * where buffers of many iterations are. */
#include "bind_kit.h"
#include "check/check.h"

static const char slices[] =
    "fusion slices {\n  x : f32[100000, 4]\n  y = exp(x)\n  z = y + x\n  return z\n"
    "  schedule { y[0] = stream; z[0] = stream }\n}\n";

static const char rows[] = "fusion rows {\n  x : f32[100000, 4]\n  w : f32[4, 8]\n"
                           "  y = matmul(x, w)\n  z = softmax(y)\n  return z\n"
                           "  schedule { y[0] = stream; z[0] = stream }\n}\n";

typedef struct cost {
  const char *text;
  double plan, loaded, peak; /* bytes per instruction */
  uint32_t instrs;
} cost;

static status measure(void *context) {
  cost *c = context;
  meter m;
  const allocator *memory = meter_start(&m);
  bound b;
  rt_device *device = NULL;
  rt_loaded *loaded = NULL;
  if (!EXPECT(bind_text(&b, c->text, 4, memory))) fprintf(stderr, "%s\n", kit_reason);
  rt_device_options one = {.threads = 1};
  if (b.plan && EXPECT(rt_device_cpu.open(&one, memory, &device) == STATUS_OK)) {
    int64_t before = m.live_bytes;
    c->instrs = b.plan->n_instrs;
    c->plan = (double)m.live_bytes / c->instrs;
    c->peak = (double)m.peak_bytes / c->instrs;
    EXPECT(device->ops->load(device, b.plan, &loaded) == STATUS_OK);
    c->loaded = (double)(m.live_bytes - before - b.plan->pool_bytes) / c->instrs;
    device->ops->unload(loaded);
  }
  if (device) device->ops->close(device);
  bind_close(&b);
  EXPECT_INT(m.live_bytes, 0);
  return STATUS_OK;
}

static void expect_small(const char *name, const char *text) {
  cost c = {.text = text};
  EXPECT(memory_guard(measure, &c) == STATUS_OK);
  printf(
      "%s: %u instructions, bytes each: plan %.0f, cpu device %.0f, at most while binding %.0f\n",
      name, c.instrs, c.plan, c.loaded, c.peak);
  EXPECT(c.instrs >= 100000);
  EXPECT(c.plan + c.loaded < 300);
}

/* Iterations on four streams take turns at one place per stream. They are placed again, because `v`
 * leaves a hole below `s` when `u` comes: in the end there is room for `u` and `s`, and all else is
 * where these are. */
static const char turns[] = "host f(x : f32[600, 16], w : f32[16]) -> (y) {\n"
                            "  y : f32[600, 16] = allocate()\n"
                            "  main = current_stream()\n"
                            "  v : f32[16] = allocate()\n  v <- w + w\n"
                            "  for i in 4 {\n    set_stream(i)\n    wait_stream(main)\n  }\n"
                            "  for i in 600 {\n    set_stream(i % 4)\n"
                            "    x$1 = select(x, dim=0, index=i)\n"
                            "    y$1 = select(y, dim=0, index=i)\n"
                            "    t : f32[16] = allocate()\n    t <- x$1 * w\n"
                            "    y$1 <- t + x$1\n    deallocate(t)\n  }\n"
                            "  set_stream(main)\n"
                            "  for i in 4 {\n    wait_stream(i)\n  }\n"
                            "  s : f32[16] = allocate()\n  s <- cumsum(v, dim=0)\n"
                            "  deallocate(v)\n"
                            "  u : f32[600, 16] = allocate()\n  u <- y + x\n  y <- u * s\n"
                            "  deallocate(u)\n  deallocate(s)\n}\n";

static status place_turns(void *context) {
  bound b;
  check_report r = {0};
  (void)context;
  if (!EXPECT(bind_text(&b, turns, 4, &memory_default))) fprintf(stderr, "%s\n", kit_reason);
  else {
    EXPECT_INT(b.plan->pool_bytes, INT64_C(601) * 64);
    EXPECT(check_plan(b.plan, NULL, &r) == STATUS_OK && r.n_found == 0);
  }
  check_report_destroy(&r);
  bind_close(&b);
  return STATUS_OK;
}

int main(void) {
  EXPECT(memory_guard(place_turns, NULL) == STATUS_OK);
  expect_small("slices", slices);
  expect_small("rows", rows);
  return test_finish();
}
