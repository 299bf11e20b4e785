/* What plans cost: bytes per instruction, of the plan and of what the cpu device keeps of it. */
#include "bind_kit.h"

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

int main(void) {
  expect_small("slices", slices);
  expect_small("rows", rows);
  return test_finish();
}
