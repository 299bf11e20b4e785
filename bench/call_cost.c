/* What a call of weir_run() costs above the issue of its plan, of a ready program on small tensors.
 *
 *   call_cost [DEVICE [REPEATS]]     null by default, on which issuing is all there is
 *
 * us, medians: the whole call, issuing the plan as the profile tells, and the difference. The goal
 * for 8 tensors is 3 us; bench/call_cost.py compares calls from Python. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "runtime/device.h"

enum { MOST = 8, REPEATS = 4000, N = 16 };

static void must(weir_status st) {
  if (st == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(weir_exit_code(st));
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static weir_program *compile(const char *device, int inputs) {
  char text[1024];
  size_t n = (size_t)snprintf(text, sizeof text, "fusion f {\n");
  for (int i = 0; i < inputs; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "  x%d : f32[n]\n", i);
  n += (size_t)snprintf(text + n, sizeof text - n, "  y = x0%s", inputs > 1 ? "" : " + 1");
  for (int i = 1; i < inputs; i++) n += (size_t)snprintf(text + n, sizeof text - n, " + x%d", i);
  n += (size_t)snprintf(text + n, sizeof text - n, "\n  return y\n}\n");
  weir_module *m;
  weir_fusion *f;
  weir_options *o;
  weir_program *p;
  must(weir_module_parse("call", text, n, NULL, &m));
  must(weir_module_find(m, NULL, &f));
  must(weir_options_create(&o));
  must(weir_options_set(o, "device", device));
  must(weir_compile(f, o, NULL, &p));
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

/* The median time of a call with so many tensors, the output included, and of issuing its plan. */
static double measure(const char *device, int tensors, int repeats, double *issue_us) {
  static float data[MOST][N];
  int64_t shape[] = {N};
  weir_dl_tensor t[MOST];
  const weir_dl_tensor *list[MOST];
  for (int i = 0; i < tensors; i++) {
    t[i] = (weir_dl_tensor){.data = data[i], .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}};
    t[i].shape = shape;
    list[i] = &t[i];
  }
  weir_program *p = compile(device, tensors - 1);
  weir_profile *profile;
  weir_stats stats = {.struct_size = sizeof stats};
  weir_run_args args = {.struct_size = sizeof args, .inputs = list + 1, .outputs = list};
  args.n_inputs = (size_t)tensors - 1;
  args.n_outputs = 1;
  double *times = malloc((size_t)repeats * sizeof *times);
  if (!times) exit(3);
  must(weir_profile_create(&profile));
  for (int i = 0; i < 100; i++) must(weir_run(p, &args));
  for (int i = 0; i < repeats; i++) {
    int64_t start = rt_clock_ns();
    must(weir_run(p, &args));
    times[i] = (double)(rt_clock_ns() - start) * 1e-3;
  }
  qsort(times, (size_t)repeats, sizeof *times, by_size);
  double whole = times[repeats / 2];
  args.profile = profile;
  for (int i = 0; i < 200; i++) {
    must(weir_run(p, &args));
    must(weir_profile_stats(profile, &stats));
    times[i] = (double)stats.host_ns * 1e-3;
  }
  qsort(times, 200, sizeof *times, by_size);
  *issue_us = times[100];
  free(times);
  weir_profile_destroy(profile);
  weir_program_destroy(p);
  return whole;
}

int main(int argc, char **argv) {
  const char *device = argc > 1 ? argv[1] : "null";
  int repeats = argc > 2 ? atoi(argv[2]) : REPEATS;
  if (repeats < 200) repeats = 200;
  printf("%-8s %8s %8s %8s\n", "tensors", "call us", "issue us", "above us");
  for (int n = 2; n <= MOST; n *= 2) {
    double issue, whole = measure(device, n, repeats, &issue);
    printf("%-8d %8.2f %8.2f %8.2f%s\n", n, whole, issue, whole - issue,
           n < MOST || strcmp(device, "null") != 0 ? ""
           : whole - issue <= 3                    ? "  PASS: at most 3 us"
                                                   : "  MISS: more than 3 us");
  }
  return 0;
}
