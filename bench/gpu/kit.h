/* What the benchmarks on a GPU share: programs bound for all ranks and run on device memory, medians, the
 * vendor's functions for programs written by hand. */
#ifndef WEIR_BENCH_GPU_KIT_H
#define WEIR_BENCH_GPU_KIT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "bind/bind.h"
#include "check/check.h"
#include "device/cuda/vendor.h"
#include "ir/bind.h"
#include "lower_kit.h"
#include "runtime/device.h"
#include "schedule/schedule.h"
#include "text/text.h"

enum { BENCH_RANKS = 8, BENCH_MOST = 201 };

static const cuda_vendor *cu;

static inline void must(status st) {
  if (st == STATUS_OK) return;
  fprintf(stderr, "%s\n", status_message());
  exit(status_exit_code(st));
}

static inline void ok(CUresult r) { must(cuda_try(r, "a call of the driver")); }
static inline void ok_lt(cublasStatus_t r) { must(cuda_try_lt(r, "a call of cublasLt")); }

/* ---- memory ---- */
static inline CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr p = 0;
  ok(cu->cuMemAlloc(&p, bytes ? bytes : 1));
  return p;
}

/* Small bf16 numbers, drawn anew every 2 MiB. */
static inline void fill_bf16(CUdeviceptr to, size_t bytes) {
  enum { BLOCK = 2 << 20 };
  static uint16_t block[BLOCK / 2];
  static uint64_t drawn;
  for (size_t at = 0; at < bytes; at += BLOCK) {
    for (size_t i = 0; i < BLOCK / 2; i += 4) {
      uint64_t bits = random_bits(1, drawn++);
      for (int k = 0; k < 4; k++) /* sign, an exponent from 2^-4 to 2^-1, mantissa */
        block[i + (size_t)k] =
            (uint16_t)((bits >> (16 * k) & 0x807f) | (0x7b + (bits >> (16 * k + 8) & 3)) << 7);
    }
    size_t some = bytes - at < BLOCK ? bytes - at : BLOCK;
    ok(cu->cuMemcpyHtoDAsync(to + at, block, some, NULL));
    ok(cu->cuCtxSynchronize());
  }
}

/* ---- times ---- */
static inline int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(double *times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_size);
  return times[n / 2];
}

/* Median in us of fn(context), which ends when its work is done. */
static inline double time_us(void (*fn)(void *), void *context, int repeats) {
  double times[BENCH_MOST];
  for (int i = 0; i < 3; i++) fn(context);
  for (int i = 0; i < repeats; i++) {
    int64_t start = rt_clock_ns();
    fn(context);
    times[i] = (double)(rt_clock_ns() - start) * 1e-3;
  }
  return median(times, repeats);
}

/* ---- programs of Weir ---- */
typedef struct bench {
  ir_module module;
  arena memory;
  rt_plan *parts[BENCH_RANKS], *plan;
  rt_loaded *loaded;
  void **inputs, **outputs; /* device memory */
  int64_t host_ns;          /* of the last run: issuing */
} bench;

typedef struct bench_args {
  const char *text;
  const char *const *symbols; /* name, value, name, value, …, NULL */
  uint32_t ranks, streams;
  host_pipeline pipeline;
  const char *variant; /* an optional pass, or NULL */
  bool fill;
} bench_args;

typedef struct bench_call {
  bench *b;
  const bench_args *args;
} bench_call;

static inline void define(ir_env *env, const char *const *symbols) {
  for (; symbols && symbols[0]; symbols += 2)
    if (!ir_bind_name(env, symbols[0], strtoll(symbols[1], NULL, 10))) exit(2);
}

static inline status bench_build(void *context) {
  bench_call *c = context;
  bench *b = c->b;
  ir_func *h = NULL;
  ir_env env;
  TRY(text_parse(&b->module, "bench.weir", c->args->text, strlen(c->args->text)));
  ir_func *f = b->module.funcs.data[0];
  if (!schedule_apply(f)) return STATUS_BAD_PROGRAM;
  host_options lowering = {.pipeline = c->args->pipeline};
  TRY(kit_lower_variant(f, &lowering, c->args->variant, &h));
  ir_env_init(&env, h, &b->memory);
  define(&env, c->args->symbols);
  if (!ir_bind_complete(&env) || !ir_bind_check(&env)) return STATUS_BAD_PROGRAM;
  bind_options o = {.streams = c->args->streams};
  for (uint32_t r = 0; r < c->args->ranks; r++) {
    uint32_t removed;
    o.rank = r;
    TRY(bind_plan(&env, &o, &memory_default, &b->parts[r]));
    TRY(check_prune_waits(b->parts[r], &memory_default, &removed));
  }
  return rt_plan_join(b->parts, c->args->ranks, &memory_default, &b->plan);
}

static inline void bench_arrays(bench *b, bool fill) {
  b->inputs = calloc(b->plan->n_inputs + (size_t)1, sizeof(void *));
  b->outputs = calloc(b->plan->n_outputs + (size_t)1, sizeof(void *));
  for (uint32_t i = 0; i < b->plan->n_buffers; i++) {
    const rt_buffer *x = &b->plan->buffers[i];
    if (x->kind == RT_BUFFER_POOL) continue;
    CUdeviceptr p = device_memory((size_t)x->size_bytes);
    if (fill && x->kind == RT_BUFFER_INPUT) fill_bf16(p, (size_t)x->size_bytes);
    *(x->kind == RT_BUFFER_INPUT ? &b->inputs[x->slot] : &b->outputs[x->slot]) =
        (void *)(uintptr_t)p;
  }
}

static inline void bench_open(bench *b, rt_device *d, const bench_args *args) {
  memset(b, 0, sizeof *b);
  arena_init(&b->memory, &memory_default);
  ir_module_init(&b->module, &memory_default);
  bench_call c = {b, args};
  status st = memory_guard(bench_build, &c);
  if (st != STATUS_OK && b->module.errors.errors) {
    strbuf text;
    strbuf_init(&text, &b->memory);
    diags_render(&b->module.errors, &text);
    fprintf(stderr, "%s\n%s\n", text.data, args->text);
  }
  must(st);
  must(d->ops->load(d, b->plan, &b->loaded));
  bench_arrays(b, args->fill);
}

static inline void bench_close(bench *b) {
  b->loaded->ops->unload(b->loaded);
  for (uint32_t i = 0; i < b->plan->n_inputs; i++)
    if (b->inputs[i]) (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)b->inputs[i]);
  for (uint32_t i = 0; i < b->plan->n_outputs; i++)
    if (b->outputs[i]) (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)b->outputs[i]);
  free(b->inputs);
  free(b->outputs);
  rt_plan_destroy(b->plan);
  for (uint32_t r = 0; r < BENCH_RANKS; r++) rt_plan_destroy(b->parts[r]);
  ir_module_destroy(&b->module);
  arena_destroy(&b->memory);
}

static inline void bench_run(void *context) {
  bench *b = context;
  must(rt_run(b->loaded, b->inputs, b->outputs, NULL, &b->host_ns));
}

/* Opens the GPU, or says why not and ends. What is written by hand works in the same context. */
static inline rt_device *bench_device(const rt_device_options *o) {
  rt_device *d = NULL;
  CUcontext context = NULL;
  status st = rt_device_cuda.open(o, &memory_default, &d);
  if (st == STATUS_UNAVAILABLE) {
    printf("skipped: %s\n", status_message());
    exit(0);
  }
  must(st);
  must(cuda_vendor_load(&cu));
  ok(cu->cuDevicePrimaryCtxRetain(&context, 0));
  ok(cu->cuCtxSetCurrent(context));
  return d;
}

#endif
