#define _GNU_SOURCE
#include "device/cuda/kernel_compile.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum { MOST_THREADS = 16, PATIENCE_S = 1 }; /* progress is shown after that many seconds */

uint32_t cuda_compile_threads(void) {
  cpu_set_t set;
  long n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (uint32_t)n;
}

/* With g programs of k texts in all, the last program starts when g front ends have run, which take 8 ms and 1 per
 * text each, and then takes 12 ms per text. g * (8 + k / g) + 12 * k / g is least for g * g = 1.5 * k. */
uint32_t cuda_compile_programs(uint32_t texts, uint32_t threads) {
  uint32_t n = 1, least = (texts + CUDA_MOST_TEXTS - 1) / CUDA_MOST_TEXTS;
  while (n < threads && 2 * n * n < 3 * texts) n++;
  if (n > texts) n = texts;
  return n < least ? least : n;
}

/* ---- threads ---- */
typedef struct work {
  const cuda_compile_options *options;
  cuda_job *jobs;
  uint32_t n;
  atomic_uint next, done;
  bool on_terminal;
  time_t begun_s;
} work;

static time_t now_s(void) {
  struct timespec t;
  return clock_gettime(CLOCK_MONOTONIC, &t) == 0 ? t.tv_sec : 0;
}

/* Shows the progress on a terminal. */
static void tell(work *w) {
  uint32_t done = atomic_fetch_add(&w->done, 1) + 1;
  if (log_progress("compiling kernels", done, w->n)) return;
  if (!w->on_terminal || now_s() - w->begun_s < PATIENCE_S) return;
  (void)fprintf(stderr, "\rcompiling kernels: %u of %u programs", done, w->n);
  (void)fflush(stderr);
}

static void tell_end(const work *w) {
  if (!w->on_terminal || now_s() - w->begun_s < PATIENCE_S) return;
  (void)fprintf(stderr, "\r\33[K");
  (void)fflush(stderr);
}

/* Products and sums are not contracted: so results are those of the CPU, whatever is fused. Kernels need only
 * the minimal language, without textures and launches by the device, which is faster to read. */
static void compile(const cuda_compile_options *o, cuda_job *job) {
  const char *options[] = {o->arch, "--fmad=false", "--std=c++17", "--disable-warnings",
                           "--minimal"};
  int n = o->version >= 13 ? 5 : 4;
  job->program = NULL;
  if (o->compiler->nvrtcCreateProgram(&job->program, job->source, "kernel.cu", 0, NULL, NULL) != 0)
    job->program = NULL;
  else job->result = o->compiler->nvrtcCompileProgram(job->program, n, options);
}

static void *take_jobs(void *context) {
  work *w = context;
  for (uint32_t i; (i = atomic_fetch_add(&w->next, 1)) < w->n;) {
    compile(w->options, &w->jobs[i]);
    tell(w);
  }
  return NULL;
}

/* A thread that cannot be made leaves its work to the others. */
void cuda_compile_all(const cuda_compile_options *options, cuda_job *jobs, uint32_t n) {
  work w = {.options = options, .jobs = jobs, .n = n};
  pthread_t threads[MOST_THREADS];
  uint32_t most = cuda_compile_threads(), n_threads = 0;
  atomic_init(&w.next, 0);
  atomic_init(&w.done, 0);
  w.on_terminal = n > 1 && isatty(STDERR_FILENO);
  w.begun_s = now_s();
  while (n_threads + 1 < most && n_threads + 1 < n &&
         pthread_create(&threads[n_threads], NULL, take_jobs, &w) == 0)
    n_threads++;
  (void)take_jobs(&w);
  for (uint32_t i = 0; i < n_threads; i++) (void)pthread_join(threads[i], NULL);
  tell_end(&w);
}

/* ---- results ---- */
/* The message has the first error of the compiler's log. */
static status refused(const cuda_compile_options *o, void *program, const char *name,
                      const allocator *memory) {
  size_t size = 0;
  char *log = NULL;
  if (o->compiler->nvrtcGetProgramLogSize(program, &size) == 0 && size > 0)
    log = memory_alloc(memory, size + 1);
  bool told = log && o->compiler->nvrtcGetProgramLog(program, log) == 0;
  if (told) log[size] = '\0';
  const char *text = told ? log : "it does not say why";
  const char *first = told ? strstr(log, "error: ") : NULL;
  if (first) text = first + strlen("error: ");
  (void)fail(STATUS_SYSTEM, "cuda: NVRTC refuses the kernel %s (%s): %.*s", name, o->arch,
             (int)strcspn(text, "\n"), text);
  memory_free(memory, log);
  return STATUS_SYSTEM;
}

status cuda_compile_take(const cuda_compile_options *o, const cuda_job *job, const char *name,
                         const allocator *memory, void **image, size_t *size_bytes) {
  if (!job->program) return fail(STATUS_SYSTEM, "cuda: NVRTC takes no program");
  if (job->result != 0) return refused(o, job->program, name, memory);
  if (o->compiler->nvrtcGetCUBINSize(job->program, size_bytes) != 0 || *size_bytes == 0)
    return fail(STATUS_SYSTEM, "cuda: NVRTC made no machine code for %s", o->arch);
  void *made = memory_alloc(memory, *size_bytes);
  if (!made) return STATUS_OUT_OF_MEMORY;
  if (o->compiler->nvrtcGetCUBIN(job->program, made) == 0) {
    *image = made;
    return STATUS_OK;
  }
  memory_free(memory, made);
  return fail(STATUS_SYSTEM, "cuda: NVRTC does not give its machine code");
}

void cuda_compile_end(const cuda_compile_options *o, cuda_job *job) {
  if (job->program) (void)o->compiler->nvrtcDestroyProgram(&job->program);
  job->program = NULL;
}
