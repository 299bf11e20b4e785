/* What the model of a GPU says beside what happens: programs with slices and without, on two and four
 * devices of one GPU, directly and over the host.
 *
 *   choice [repeats]
 *
 * ms, medians. `auto` takes the program that the model says is faster; what that costs is the time of its
 * choice over the better one's. */
#include "cost/cost.h"
#include "device/cuda/speed.h"
#include "gpu/kit.h"

typedef struct work {
  const char *name, *text;
  uint32_t ranks;
} work;

#define AG(name, d, m, k, n)                                                                       \
  {                                                                                                \
    name,                                                                                          \
        "fusion ag { mesh d = [" #d "]\n a : bf16[8, " #d ", " #m ", " #k "]\n b : bf16[" #k       \
        ", " #n "]\n c = matmul(a, b)\n return c\n"                                                \
        " schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream } }",                              \
        d                                                                                          \
  }
#define AR(name, d, m, k, n)                                                                       \
  {                                                                                                \
    name,                                                                                          \
        "fusion ar { mesh d = [" #d "]\n a : bf16[8, " #d ", " #m ", " #k "]\n b : bf16[" #d       \
        ", " #k ", " #n "]\n u = matmul(a, b)\n c = sum(u, dims=[1])\n return c\n"                 \
        " schedule { a, b, u, c on d; a[1] = mesh.x; b[0] = mesh.x; u[0] = stream; u[1] = mesh.x;" \
        " c[0] = stream } }",                                                                      \
        d                                                                                          \
  }

/* Of each kind: large, with more to move than to compute, and so small that slices cost more. */
static const work works[] = {
    AG("AG, 2 devices, 8192 x 8192 x 4096", 2, 512, 8192, 4096),
    AG("AG, 2 devices, 8192 x 8192 x 256", 2, 512, 8192, 256),
    AG("AG, 2 devices, 256 x 256 x 256", 2, 16, 256, 256),
    AG("AG, 4 devices, 8192 x 4096 x 4096", 4, 256, 4096, 4096),
    AR("AR, 2 devices, 4096 x 8192 x 4096", 2, 512, 4096, 4096),
    AR("AR, 2 devices, 4096 x 512 x 4096", 2, 512, 256, 4096),
    AR("AR, 2 devices, 128 x 256 x 256", 2, 16, 128, 256),
    AR("AR, 4 devices, 4096 x 8192 x 2048", 4, 512, 2048, 2048),
};

static void report(rt_device *d, const rt_speed *machine, const work *w, int repeats) {
  double said[2], took[2];
  rt_speed speed = d->ops->speed(d, machine, w->ranks);
  for (int plain = 0; plain < 2; plain++) {
    bench b;
    bench_args args = {.text = w->text, .ranks = w->ranks, .streams = 8, .fill = true};
    args.pipeline = HOST_COLLECTIVE;
    args.variant = plain ? "unstream" : NULL;
    bench_open(&b, d, &args);
    must(cost_plan_estimate(b.parts[0], &speed, &memory_default, &said[plain]));
    took[plain] = time_us(bench_run, &b, repeats) * 1e-3;
    bench_close(&b);
  }
  for (int i = 0; i < 2; i++) said[i] *= 1e-6;
  int chosen = said[0] < said[1] ? 0 : 1, best = took[0] < took[1] ? 0 : 1;
  printf("  %-36s plain %8.3f (model %8.3f)   slices %8.3f (model %8.3f)   auto: %s, %.2f of the "
         "better\n",
         w->name, took[1], said[1], took[0], said[0], chosen ? "plain " : "slices",
         took[chosen] / took[best]);
}

static void print_speed(const rt_speed *s, const char *link) {
  printf("%s, one rank alone: %.0f TFLOP/s f32, %.0f bf16, memory %.0f GB/s, launch %.1f us, link "
         "%.1f GB/s after %.1f us\n",
         link, s->flops_per_ns * 1e-3, s->narrow_flops_per_ns * 1e-3, s->bytes_per_ns,
         s->launch_ns * 1e-3, s->link_bytes_per_ns, s->link_latency_ns * 1e-3);
}

int main(int argc, char **argv) {
  int repeats = argc > 1 ? atoi(argv[1]) : 15;
  if (repeats < 1 || repeats > BENCH_MOST) repeats = 15;
  for (int host = 0; host < 2; host++) {
    rt_device *d = bench_device(&(rt_device_options){.link_host = host});
    int64_t start_ns = rt_clock_ns();
    rt_speed machine;
    d->ops->measure(d, &machine);
    double ms = (double)(rt_clock_ns() - start_ns) * 1e-6;
    rt_speed one = d->ops->speed(d, &machine, 1);
    print_speed(&one, host ? "over the host" : "directly");
    if (!host) printf("  measured in %.0f ms\n", ms);
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
      report(d, &machine, &works[i], repeats);
    d->ops->close(d);
  }
  return 0;
}
