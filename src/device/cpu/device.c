#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu/adversary.h"
#include "device/cpu/device_threads.h"
#include "device/cpu/loops/loops.h"
#include "device/cpu/speed.h"

/* Launches look for sleeping threads only this often: a wake-up costs the host about as much as
 * issuing a hundred instructions, and finish() makes up for what is left. */
enum { ROUSE_EVERY = 64 };

static uint32_t count_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return (uint32_t)CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (uint32_t)n : 1;
}

/* ---- devices ---- */
static uint32_t thread_count(const rt_device_options *options, uint32_t cores) {
  uint32_t n = options->threads ? options->threads : cores;
  return n < CPU_MAX_THREADS ? n : CPU_MAX_THREADS;
}

static status device_new(uint32_t threads, uint32_t cores, const allocator *memory,
                         cpu_device **result) {
  void *block, *aligned;
  TRY(cpu_alloc_aligned(memory, sizeof(cpu_device) + threads * sizeof(cpu_thread), &block,
                        &aligned));
  cpu_device *d = aligned;
  *d = (cpu_device){.base.ops = &rt_device_cpu, .memory = memory, .block = block};
  d->pool.memory = memory;
  d->n_threads = threads;
  d->cores = cores;
  d->world.fault.after = RT_NEVER;
  cpu_bits_init(&d->ready, d->stream_words[0], 64);
  cpu_bits_init(&d->joining, d->stream_words[1], 64);
  cpu_bits_init(&d->sharing, d->thread_words[0], threads);
  cpu_bits_init(&d->sleeping, d->thread_words[1], threads);
  for (uint32_t i = 0; i < threads; i++) d->threads[i] = (cpu_thread){.device = d, .index = i};
  if (pthread_mutex_init(&d->run, NULL) != 0) {
    memory_free(memory, block);
    return fail(STATUS_SYSTEM, "cannot make a lock");
  }
  *result = d;
  return STATUS_OK;
}

static void cpu_close(rt_device *device) {
  cpu_device *d = (cpu_device *)device;
  if (!d) return;
  cpu_threads_stop(d);
  (void)pthread_mutex_destroy(&d->run);
  memory_free(d->memory, d->block);
}

static status cpu_open(const rt_device_options *options, const allocator *memory,
                       rt_device **result) {
  if (options->adversarial) return cpu_adversary.open(options, memory, result);
  cpu_device *d = NULL;
  uint32_t cores = count_cores();
  TRY(device_new(thread_count(options, cores), cores, memory, &d));
  status st = cpu_threads_start(d);
  if (st != STATUS_OK) cpu_close(&d->base);
  else *result = &d->base;
  return st;
}

static void cpu_attach(rt_device *device, rt_comm *const *endpoints, uint32_t n,
                       int64_t timeout_ns) {
  cpu_world_attach(&((cpu_device *)device)->world, endpoints, n, timeout_ns);
}

static void cpu_pulse(rt_device *device, rt_pulse *pulse) {
  cpu_threads_pulse((cpu_device *)device, pulse);
}

/* Between ranks of one process a communication is a copy by an idle thread. */
static const rt_speed built_in = {.flops_per_ns = 50,
                                  .bytes_per_ns = 10,
                                  .launch_ns = 500,
                                  .link_bytes_per_ns = 8,
                                  .link_latency_ns = 1000,
                                  .post_ns = 1000,
                                  .packs = 1};

/* As rt_task_vector_flops() counts a function. */
static const double of_function = 9;

static double inner_cache_bytes(void) {
  long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? (double)bytes : 1 << 20;
}

static void cpu_measure(rt_device *device, rt_speed *result) {
  (void)device;
  cpu_speed s = cpu_speed_measure(count_cores());
  *result = built_in;
  if (s.flops_per_ns > 0) result->flops_per_ns = s.flops_per_ns;
  result->bf16_flops_per_ns = s.pairs_per_ns;
  if (s.memory_bytes_per_ns > 0) result->bytes_per_ns = s.memory_bytes_per_ns;
  if (s.cache_bytes_per_ns > 0) result->cache_bytes = inner_cache_bytes();
  result->cache_bytes_per_ns = s.cache_bytes_per_ns;
  if (s.function_ns > 0) result->vector_flops_per_ns = of_function / s.function_ns;
  result->cores = count_cores();
  result->comm_cores = 1;
}

/* Ranks in one process share its threads. */
static rt_speed cpu_speed_of(rt_device *device, const rt_speed *machine, uint32_t ranks) {
  uint32_t threads = ((cpu_device *)device)->n_threads;
  rt_speed s = machine ? *machine : built_in;
  s.threads = threads > ranks ? threads / ranks : 1;
  if (ranks > 1 && s.cores > threads) s.cores = threads;
  s.reads_ahead = s.packs == 0;
  return s;
}

/* "model name      : Intel(R) Xeon(R)", the first of them. */
static bool read_model(char *text, size_t size) {
  FILE *f = fopen("/proc/cpuinfo", "r");
  bool found = false;
  while (f && !found && fgets(text, (int)size, f)) found = strncmp(text, "model name", 10) == 0;
  if (f) (void)fclose(f);
  const char *colon = found ? strchr(text, ':') : NULL;
  if (!colon) return false;
  memmove(text, colon + 2, strlen(colon + 2) + 1);
  text[strcspn(text, "\n")] = '\0';
  return true;
}

static void cpu_examine(rt_say_fn *say, void *context) {
  cpu_speed s = cpu_speed_measure(1);
  char text[256];
  if (read_model(text, sizeof text)) say(context, "model", text);
  (void)snprintf(text, sizeof text, "%u", count_cores());
  say(context, "cores", text);
  say(context, "instructions", cpu_level_chosen()->name);
  say(context, "products", "Weir's own for these instructions; no BLAS is used");
  (void)snprintf(text, sizeof text, "%.0f GFLOP/s", s.flops_per_ns);
  say(context, "f32 products, one thread", text);
  (void)snprintf(text, sizeof text, "%.0f GFLOP/s", s.pairs_per_ns);
  if (s.pairs_per_ns > 0) say(context, "bf16 products, one thread", text);
  (void)snprintf(text, sizeof text, "%.0f GB/s", s.copied_per_ns);
  say(context, "copies, one thread", text);
}

static void cpu_notify(void *device, uint32_t rank) {
  (void)rank;
  cpu_threads_notify(device);
}

/* ---- loaded plans ---- */
static void cpu_unload(rt_loaded *loaded) {
  cpu_loaded *l = (cpu_loaded *)loaded;
  if (!l) return;
  const allocator *memory = l->device->memory;
  (void)pthread_mutex_lock(&l->device->run);
  cpu_program_destroy(&l->program);
  (void)pthread_mutex_unlock(&l->device->run);
  (void)pthread_mutex_destroy(&l->errors.lock);
  memory_free(memory, l->streams_block);
  memory_free(memory, l->waiter_words);
  memory_free(memory, l);
}

/* Which streams may block on each: those of its rank. */
static uint32_t waiter_words(const rt_plan *plan, uint32_t stream, uint32_t *first) {
  uint32_t rank = rt_plan_rank(plan, stream);
  *first = rt_plan_first_stream(plan, rank);
  return cpu_bits_words((plan->first_stream ? plan->first_stream[rank + 1] : plan->n_streams) -
                        *first);
}

static status make_streams(cpu_loaded *l, const rt_plan *plan) {
  cpu_device *d = l->device;
  void *aligned;
  size_t words = 0;
  uint32_t first;
  TRY(cpu_alloc_aligned(d->memory, plan->n_streams * sizeof(cpu_stream), &l->streams_block,
                        &aligned));
  l->streams = aligned;
  for (uint32_t s = 0; s < plan->n_streams; s++) words += waiter_words(plan, s, &first);
  l->waiter_words = memory_alloc(d->memory, (words + 1) * sizeof *l->waiter_words);
  if (!l->waiter_words) return STATUS_OUT_OF_MEMORY;
  memset((void *)l->waiter_words, 0, words * sizeof *l->waiter_words);
  for (uint32_t s = 0, at = 0; s < plan->n_streams; s++) {
    uint32_t n = waiter_words(plan, s, &l->streams[s].first);
    cpu_bits_init(&l->streams[s].waiters, &l->waiter_words[at], 64 * n);
    at += n;
  }
  cpu_bits_grow(&d->ready, plan->n_streams);
  cpu_bits_grow(&d->joining, plan->n_streams);
  return STATUS_OK;
}

static status cpu_load(rt_device *device, const rt_plan *plan, rt_loaded **result) {
  cpu_device *d = (cpu_device *)device;
  cpu_loaded *l = memory_alloc(d->memory, sizeof *l);
  if (!l) return STATUS_OUT_OF_MEMORY;
  *l = (cpu_loaded){.base = {&rt_device_cpu, plan}, .device = d};
  if (pthread_mutex_init(&l->errors.lock, NULL) != 0) {
    memory_free(d->memory, l);
    return fail(STATUS_SYSTEM, "cannot make a lock");
  }
  status st;
  TRY_OUT(cpu_program_init(&l->program, plan, d->n_threads, &d->pool, d->memory));
  (void)pthread_mutex_lock(&d->run);
  st = cpu_program_reserve(&l->program);
  (void)pthread_mutex_unlock(&d->run);
  if (st != STATUS_OK) goto out;
  TRY_OUT(cpu_comms_init(&l->comms, &l->program, &d->world, &l->errors));
  TRY_OUT(make_streams(l, plan));
  *result = &l->base;
out:
  if (st != STATUS_OK) cpu_unload(&l->base);
  return st;
}

/* ---- runs ---- */
static void cpu_stream_reset(cpu_stream *s) {
  atomic_store_explicit(&s->word, 0, memory_order_relaxed);
  s->head = 0;
  for (uint32_t w = 0; w < cpu_bits_n(&s->waiters); w++)
    atomic_store_explicit(&s->waiters.words[w], 0, memory_order_relaxed);
  atomic_store_explicit(&s->need, 0, memory_order_relaxed);
  atomic_store_explicit(&s->join, 0, memory_order_relaxed);
  atomic_store_explicit(&s->completed, 0, memory_order_relaxed);
}

static status cpu_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                        rt_span *spans) {
  cpu_loaded *l = (cpu_loaded *)loaded;
  (void)pthread_mutex_lock(&l->device->run);
  int64_t origin_ns = spans ? rt_clock_ns() : 0;
  status st = cpu_comms_begin(&l->comms, spans, origin_ns);
  if (st != STATUS_OK) {
    (void)pthread_mutex_unlock(&l->device->run);
    return st;
  }
  cpu_program_bind(&l->program, inputs, outputs);
  for (uint32_t s = 0; s < loaded->plan->n_streams; s++) cpu_stream_reset(&l->streams[s]);
  cpu_errors_reset(&l->errors);
  l->issued = 0;
  l->run = (cpu_run){&l->program, &l->errors, spans, origin_ns};
  l->device->current = l;
  for (uint32_t i = 0; i < l->device->n_threads; i++) atomic_store(&l->device->threads[i].at, 0);
  if (l->comms.n) atomic_store(&l->device->communicates, true);
  atomic_store(&l->device->fair, l->comms.n && loaded->plan->n_ranks > l->device->n_threads);
  cpu_threads_enter(l->device);
  return STATUS_OK;
}

static void cpu_issue(rt_loaded *loaded, uint32_t instr) {
  cpu_loaded *l = (cpu_loaded *)loaded;
  cpu_stream_issue(l, loaded->plan->instrs[instr].stream);
  if (++l->issued % ROUSE_EVERY == 0) cpu_threads_rouse(l->device);
}

static void cpu_cancel(rt_loaded *loaded) { cpu_errors_cancel(&((cpu_loaded *)loaded)->errors); }

static status cpu_finish(rt_loaded *loaded) {
  cpu_loaded *l = (cpu_loaded *)loaded;
  cpu_threads_finish(l->device);
  cpu_threads_leave(l->device);
  if (l->comms.n) {
    atomic_store(&l->device->communicates, false);
    cpu_comms_end(&l->comms);
  }
  status st = cpu_errors_report(&l->errors, loaded->plan);
  (void)pthread_mutex_unlock(&l->device->run);
  return st;
}

const rt_device_ops rt_device_cpu = {
    .name = "cpu",
    .summary = "streams on threads of this machine",
    .takes_adversary = true,
    .takes_loops = RT_LOOPS_ALL,
    .shares_pool = true,
    .open = cpu_open,
    .close = cpu_close,
    .attach = cpu_attach,
    .notify = cpu_notify,
    .pulse = cpu_pulse,
    .measure = cpu_measure,
    .speed = cpu_speed_of,
    .examine = cpu_examine,
    .load = cpu_load,
    .unload = cpu_unload,
    .begin = cpu_begin,
    .launch = cpu_issue,
    .wait = cpu_issue,
    .finish = cpu_finish,
    .cancel = cpu_cancel,
};
