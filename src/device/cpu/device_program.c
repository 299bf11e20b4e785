#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "device/cpu/device.h"

status cpu_alloc_aligned(const allocator *memory, size_t size_bytes, void **block, void **aligned) {
  size_t all_bytes =
      size_bytes <= SIZE_MAX - CPU_LINE_BYTES ? size_bytes + CPU_LINE_BYTES : SIZE_MAX;
  char *p = memory_alloc(memory, all_bytes);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *block = p;
  *aligned = p + (CPU_LINE_BYTES - (uintptr_t)p % CPU_LINE_BYTES) % CPU_LINE_BYTES;
  return STATUS_OK;
}

/* ---- loading ---- */
static void list_external(cpu_program *p) {
  for (uint32_t b = 0; b < p->plan->n_buffers; b++)
    if (p->plan->buffers[b].kind != RT_BUFFER_POOL) p->external[p->n_external++] = b;
}

typedef struct kernel_key {
  const cpu_program *program;
  const rt_task *task;
} kernel_key;

static bool serves(const void *context, uint32_t value) {
  const kernel_key *key = context;
  const rt_plan *plan = key->program->plan;
  return rt_task_equal(plan, key->task, &plan->tasks[value - 1], 1);
}

/* The kernel of an equal task before it, or a new one. */
static status prepare_task(cpu_program *p, table *known, uint32_t t) {
  const rt_task *task = &p->plan->tasks[t];
  kernel_key key = {p, task};
  uint64_t hash = rt_task_hash(p->plan, task, 1);
  uint32_t found = table_find(known, hash, serves, &key);
  uint32_t n_starts = cpu_kernel_n_starts(task);
  if (n_starts > p->max_starts) p->max_starts = n_starts;
  if (found) {
    p->kernels[t] = p->kernels[found - 1];
    return STATUS_OK;
  }
  TRY(cpu_kernel_prepare(p->plan, task, &p->memory, &p->kernels[t]));
  table_add(known, hash, t + 1);
  p->n_kernels++;
  size_t bytes = cpu_kernel_scratch_bytes(p->kernels[t]);
  if (bytes > p->scratch_bytes) p->scratch_bytes = bytes;
  return STATUS_OK;
}

static status prepare(void *context) {
  cpu_program *p = context;
  const rt_plan *plan = p->plan;
  table known;
  table_init(&known, &p->memory);
  rt_queues_build(plan, &p->memory, &p->queues);
  p->bases = ARENA_ARRAY(&p->memory, plan->n_buffers, char *);
  p->external = ARENA_ARRAY(&p->memory, plan->n_buffers, uint32_t);
  list_external(p);
  p->kernels = ARENA_ARRAY(&p->memory, plan->n_tasks, const cpu_kernel *);
  for (uint32_t t = 0; t < plan->n_tasks; t++) TRY(prepare_task(p, &known, t));
  return STATUS_OK;
}

/* ---- memory ---- */
static size_t whole_lines(size_t bytes) {
  return (bytes + CPU_LINE_BYTES - 1) / CPU_LINE_BYTES * CPU_LINE_BYTES;
}

static status size_pieces(cpu_program *p) {
  size_t starts_bytes = p->max_starts * sizeof(char *);
  size_t most = (SIZE_MAX / 2) / p->threads - starts_bytes - 2 * (size_t)CPU_LINE_BYTES;
  if (p->scratch_bytes > most)
    return fail(STATUS_OUT_OF_MEMORY, "scratch of %zu bytes is too large", p->scratch_bytes);
  p->scratch_bytes = whole_lines(p->scratch_bytes);
  p->piece_bytes = p->scratch_bytes + whole_lines(starts_bytes);
  return STATUS_OK;
}

status cpu_program_reserve(cpu_program *p) {
  cpu_pool *pool = p->shared;
  void *block, *aligned;
  size_t bytes = whole_lines((size_t)p->plan->pool_bytes) + p->piece_bytes * p->threads;
  if (!p->counted) pool->users++;
  p->counted = true;
  if (pool->block && pool->size_bytes >= bytes) return STATUS_OK;
  TRY(cpu_alloc_aligned(pool->memory, bytes, &block, &aligned));
  memory_free(pool->memory, pool->block);
  pool->block = block;
  pool->base = aligned;
  pool->size_bytes = bytes;
  return STATUS_OK;
}

static void leave_pool(cpu_program *p) {
  cpu_pool *pool = p->shared;
  if (!p->counted || --pool->users > 0) return;
  memory_free(pool->memory, pool->block);
  *pool = (cpu_pool){.memory = pool->memory};
}

/* Another program may have made the pool larger since the last run, elsewhere. */
static void find_pool(cpu_program *p) {
  if (p->pool == p->shared->base) return;
  p->pool = p->shared->base;
  p->scratch = p->pool + whole_lines((size_t)p->plan->pool_bytes);
  for (uint32_t b = 0; b < p->plan->n_buffers; b++) {
    const rt_buffer *buffer = &p->plan->buffers[b];
    if (buffer->kind == RT_BUFFER_POOL) p->bases[b] = p->pool + buffer->offset_bytes;
  }
}

status cpu_program_init(cpu_program *p, const rt_plan *plan, uint32_t threads, cpu_pool *shared,
                        const allocator *memory) {
  *p = (cpu_program){.plan = plan, .threads = threads, .shared = shared, .allocator = memory};
  arena_init(&p->memory, memory);
  status st = memory_guard(prepare, p);
  if (st == STATUS_OK) st = size_pieces(p);
  if (st != STATUS_OK) cpu_program_destroy(p);
  return st;
}

void cpu_program_destroy(cpu_program *p) {
  if (!p->allocator) return;
  leave_pool(p);
  arena_destroy(&p->memory);
  *p = (cpu_program){0};
}

void cpu_program_bind(cpu_program *p, void *const *inputs, void *const *outputs) {
  find_pool(p);
  for (uint32_t i = 0; i < p->n_external; i++) {
    const rt_buffer *b = &p->plan->buffers[p->external[i]];
    p->bases[p->external[i]] = b->kind == RT_BUFFER_INPUT ? inputs[b->slot] : outputs[b->slot];
  }
}

/* ---- errors ---- */
void cpu_errors_reset(cpu_errors *e) {
  e->st = STATUS_OK;
  e->placed = false;
  atomic_store_explicit(&e->first, UINT32_MAX, memory_order_relaxed);
}

/* The message of fail() is this thread's: copied, and cleared so that the next one is recorded. */
static void take_message(cpu_errors *e, uint32_t instr, uint32_t part, status st) {
  e->st = st;
  e->instr = instr;
  e->part = part;
  (void)snprintf(e->message, sizeof e->message, "%s", status_message());
}

void cpu_errors_keep(cpu_errors *e, uint32_t instr, uint32_t part, status st) {
  (void)pthread_mutex_lock(&e->lock);
  uint32_t first = atomic_load_explicit(&e->first, memory_order_relaxed);
  bool same = e->st != STATUS_OK && instr == first && instr == e->instr;
  if (instr < first || (same && part < e->part)) {
    take_message(e, instr, part, st);
    e->placed = true;
    atomic_store_explicit(&e->first, instr, memory_order_relaxed);
  }
  (void)pthread_mutex_unlock(&e->lock);
  status_clear();
}

void cpu_errors_stop(cpu_errors *e, status st) {
  (void)pthread_mutex_lock(&e->lock);
  if (e->st == STATUS_OK) take_message(e, 0, 0, st);
  atomic_store_explicit(&e->first, 0, memory_order_relaxed);
  (void)pthread_mutex_unlock(&e->lock);
  status_clear();
}

void cpu_errors_cancel(cpu_errors *e) {
  status_clear();
  cpu_errors_stop(e, fail(STATUS_CANCELLED, "the run was cancelled"));
}

status cpu_errors_report(cpu_errors *e, const rt_plan *plan) {
  (void)pthread_mutex_lock(&e->lock);
  status st = e->st;
  uint32_t instr = e->placed ? rt_plan_nth(plan, e->instr) : UINT32_MAX;
  if (st != STATUS_OK) (void)rt_fail_at(plan, instr, st, e->message);
  (void)pthread_mutex_unlock(&e->lock);
  return st;
}

/* ---- running ---- */
static char *scratch_of(const cpu_program *p, uint32_t thread) {
  return p->scratch + thread * p->piece_bytes;
}

static bool may_run(const cpu_errors *errors, uint32_t instr) {
  return instr < atomic_load_explicit(&errors->first, memory_order_relaxed);
}

bool cpu_launch_run_part(const cpu_launch *l, uint32_t part, uint32_t thread) {
  char *scratch = scratch_of(l->run->program, thread) + l->scratch_at;
  status st = cpu_kernel_run_part(l->kernel, part, l->starts, scratch, l->shared);
  if (st != STATUS_OK) cpu_errors_keep(l->run->errors, l->instr, part, st);
  return st == STATUS_OK;
}

static status run_parts(const cpu_launch *l, uint32_t thread, cpu_parts_fn *parts, void *executor) {
  parts(executor, l);
  if (!may_run(l->run->errors, l->instr)) return STATUS_OK;
  char *scratch = scratch_of(l->run->program, thread) + l->scratch_at;
  return cpu_kernel_finish(l->kernel, l->starts, scratch, l->shared);
}

static void run_stage(const cpu_run *run, uint32_t instr, const cpu_stage *s, uint32_t thread,
                      cpu_parts_fn *parts, void *executor) {
  char *scratch = scratch_of(run->program, thread) + s->scratch_at;
  cpu_launch l = {.run = run,
                  .kernel = s->kernel,
                  .instr = instr,
                  .n_parts = cpu_kernel_parts(s->kernel),
                  .starts = s->starts,
                  .scratch_at = s->scratch_at,
                  .shared = cpu_kernel_shared(s->kernel, scratch)};
  status st = l.n_parts > 1 ? run_parts(&l, thread, parts, executor)
                            : cpu_kernel_run(s->kernel, s->starts, scratch);
  if (st != STATUS_OK) cpu_errors_keep(run->errors, instr, l.n_parts, st);
}

static void run_task(const cpu_run *run, const rt_entry *entry, uint32_t thread,
                     cpu_parts_fn *parts, void *executor) {
  const cpu_program *p = run->program;
  const cpu_kernel *kernel = p->kernels[entry->task];
  char *scratch = scratch_of(p, thread);
  char **starts = (char **)(void *)(scratch + p->scratch_bytes);
  cpu_kernel_starts(p->plan, &p->plan->tasks[entry->task], p->bases, starts);
  if (entry->turn) cpu_kernel_move(p->plan, &p->plan->tasks[entry->task], entry->turn, starts);
  for (uint32_t i = 0; i < cpu_kernel_stages(kernel) && may_run(run->errors, entry->instr); i++) {
    cpu_stage s = cpu_kernel_stage(kernel, i, starts, scratch);
    run_stage(run, entry->instr, &s, thread, parts, executor);
  }
}

void cpu_program_run(const cpu_run *run, const rt_entry *entry, uint16_t stream, uint32_t thread,
                     cpu_parts_fn *parts, void *executor) {
  int64_t start_ns = run->spans ? rt_clock_ns() - run->origin_ns : 0, end_ns = start_ns;
  if (may_run(run->errors, entry->instr)) {
    run_task(run, entry, thread, parts, executor);
    if (run->spans) end_ns = rt_clock_ns() - run->origin_ns;
  }
  if (run->spans)
    run->spans[entry->launch] = (rt_span){start_ns, end_ns, entry->instr, stream, (uint16_t)thread};
}
