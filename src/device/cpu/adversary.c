#include "device/cpu/adversary.h"

#include <string.h>

#include "base/random.h"
#include "device/cpu/device.h"

typedef enum policy { STARVE, RANDOM, LATEST, BURST } policy;

typedef struct adversary_device {
  rt_device base;
  const allocator *memory;
  uint64_t seed;
  pthread_mutex_t run;
} adversary_device;

typedef struct adversary {
  rt_loaded base;
  adversary_device *device;
  cpu_program program;
  cpu_errors errors;
  uint64_t seed, draws;
  policy policy;
  uint32_t last;                     /* BURST: the stream that ran */
  uint16_t priority[RT_MAX_STREAMS]; /* STARVE: streams, the first runnable one runs */
  uint32_t head[RT_MAX_STREAMS];     /* entries done, by stream */
  uint32_t issued[RT_MAX_STREAMS];   /* entries issued */
  uint32_t *accesses, *left;         /* of each buffer: in all, and still to come */
  rt_span *spans;
  int64_t origin_ns;
} adversary;

/* ---- choosing ---- */
static policy policy_of(uint64_t seed) {
  static const policy odd[] = {RANDOM, LATEST, BURST};
  return seed % 2 == 0 ? STARVE : odd[seed / 2 % 3];
}

const char *cpu_adversary_policy(uint64_t seed, uint32_t n_streams, uint32_t *victim) {
  static const char *const names[] = {"starve", "random", "latest", "burst"};
  policy p = policy_of(seed);
  *victim = p == STARVE ? (uint32_t)(seed / 2 % n_streams) : UINT32_MAX;
  return names[p];
}

static uint32_t draw(adversary *a, uint32_t below) {
  return (uint32_t)(random_bits(a->seed, a->draws++) % below);
}

/* A random permutation with the victim last. */
static void draw_priorities(adversary *a) {
  uint32_t n = a->base.plan->n_streams;
  if (n == 0) return;
  for (uint32_t s = 0; s < n; s++) a->priority[s] = (uint16_t)s;
  uint16_t victim = (uint16_t)(a->seed / 2 % n);
  a->priority[victim] = (uint16_t)(n - 1);
  a->priority[n - 1] = victim;
  for (uint32_t k = n - 1; k > 1; k--) {
    uint32_t j = draw(a, k);
    uint16_t t = a->priority[k - 1];
    a->priority[k - 1] = a->priority[j];
    a->priority[j] = t;
  }
}

static const rt_entry *next_entry(const adversary *a, uint32_t s) {
  return &a->program.queues.streams[s].entries[a->head[s]];
}

static bool is_runnable(const adversary *a, uint32_t s) {
  if (a->head[s] == a->issued[s]) return false;
  const rt_entry *e = next_entry(a, s);
  return e->kind == RT_LAUNCH || a->head[e->other] >= e->target;
}

/* The runnable streams in `list`; how many there are. */
static uint32_t list_runnable(const adversary *a, uint16_t *list) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < a->base.plan->n_streams; s++)
    if (is_runnable(a, s)) list[n++] = (uint16_t)s;
  return n;
}

static uint32_t latest(const adversary *a, const uint16_t *list, uint32_t n) {
  uint32_t best = list[0];
  for (uint32_t i = 1; i < n; i++)
    if (next_entry(a, list[i])->instr > next_entry(a, best)->instr) best = list[i];
  return best;
}

static uint32_t most_urgent(const adversary *a) {
  uint32_t k = 0;
  while (!is_runnable(a, a->priority[k])) k++;
  return a->priority[k];
}

/* False when all streams are done. */
static bool choose(adversary *a, uint32_t *stream) {
  uint16_t list[RT_MAX_STREAMS];
  uint32_t n = list_runnable(a, list);
  if (n == 0) return false;
  switch (a->policy) {
  case STARVE: *stream = most_urgent(a); break;
  case RANDOM: *stream = list[draw(a, n)]; break;
  case LATEST: *stream = latest(a, list, n); break;
  case BURST: *stream = is_runnable(a, a->last) ? a->last : list[draw(a, n)]; break;
  }
  a->last = *stream;
  return true;
}

/* ---- poison ---- */
static int poison_byte(const adversary *a) {
  static const uint8_t bytes[] = {0xff, 0x7f, 0xfe, 0xbd};
  return bytes[random_bits(~a->seed, 0) % sizeof bytes];
}

static void poison(adversary *a, uint32_t buffer) {
  size_t bytes = (size_t)a->base.plan->buffers[buffer].size_bytes;
  if (bytes) memset(a->program.bases[buffer], poison_byte(a), bytes);
}

static void poison_all(adversary *a) {
  if (a->base.plan->pool_bytes)
    memset(a->program.pool, poison_byte(a), (size_t)a->base.plan->pool_bytes);
  for (uint32_t b = 0; b < a->base.plan->n_buffers; b++)
    if (a->base.plan->buffers[b].kind == RT_BUFFER_OUTPUT) poison(a, b);
}

/* Does a buffer that shares memory hold values that are still wanted? Two may own one piece at a time
 * as long as they touch different bytes of it; poison knows no bytes, so it then stays away. */
static bool is_shared(const adversary *a, uint32_t buffer) {
  const rt_plan *plan = a->base.plan;
  const rt_buffer *x = &plan->buffers[buffer];
  for (uint32_t i = 0; i < plan->n_buffers; i++) {
    const rt_buffer *y = &plan->buffers[i];
    bool overlaps = i != buffer && y->kind == RT_BUFFER_POOL &&
                    x->offset_bytes < y->offset_bytes + y->size_bytes &&
                    y->offset_bytes < x->offset_bytes + x->size_bytes;
    bool begun = i < buffer || a->left[i] < a->accesses[i];
    if (overlaps && begun && a->left[i] > 0) return true;
  }
  return false;
}

static void before_access(adversary *a, uint32_t buffer) {
  bool pool = a->base.plan->buffers[buffer].kind == RT_BUFFER_POOL;
  bool first = a->left[buffer] == a->accesses[buffer];
  if (pool && first && !is_shared(a, buffer)) poison(a, buffer);
}

static void after_access(adversary *a, uint32_t buffer) {
  const rt_buffer *b = &a->base.plan->buffers[buffer];
  bool freed = b->kind == RT_BUFFER_POOL && b->freed_at != UINT32_MAX;
  if (--a->left[buffer] == 0 && freed && !is_shared(a, buffer)) poison(a, buffer);
}

static void count_access(adversary *a, uint32_t buffer) { a->accesses[buffer]++; }

/* Calls visit() for the buffer of every view of a task. */
static void each_access(adversary *a, const rt_task *t, void (*visit)(adversary *, uint32_t)) {
  const rt_plan *plan = a->base.plan;
  visit(a, plan->views[t->result].buffer);
  for (uint32_t k = 0; k < t->n_operands; k++)
    if (t->operands[k].kind == RT_OPERAND_VIEW) visit(a, plan->views[t->operands[k].view].buffer);
}

/* ---- running ---- */
static void run_entry(adversary *a, uint32_t s) {
  const rt_entry *e = next_entry(a, s);
  if (e->kind == RT_LAUNCH) {
    const rt_task *task = &a->base.plan->tasks[e->task];
    each_access(a, task, before_access);
    cpu_program_run(&a->program, e, (uint16_t)s, 0, a->spans, a->origin_ns, &a->errors);
    each_access(a, task, after_access);
  }
  a->head[s]++;
}

static status adversary_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                              rt_span *spans) {
  adversary *a = (adversary *)loaded;
  (void)pthread_mutex_lock(&a->device->run);
  cpu_program_bind(&a->program, inputs, outputs);
  cpu_errors_reset(&a->errors);
  memset(a->head, 0, sizeof a->head);
  memset(a->issued, 0, sizeof a->issued);
  if (loaded->plan->n_buffers)
    memcpy(a->left, a->accesses, loaded->plan->n_buffers * sizeof *a->left);
  a->draws = 0;
  a->last = 0;
  a->policy = policy_of(a->seed);
  draw_priorities(a);
  poison_all(a);
  a->spans = spans;
  a->origin_ns = rt_clock_ns();
  return STATUS_OK;
}

static void adversary_issue(rt_loaded *loaded, uint32_t instr) {
  ((adversary *)loaded)->issued[loaded->plan->instrs[instr].stream]++;
}

/* Waits look back in the plan, so something can always run until all is done. */
static status adversary_finish(rt_loaded *loaded) {
  adversary *a = (adversary *)loaded;
  uint32_t stream;
  while (choose(a, &stream)) run_entry(a, stream);
  check(memcmp(a->head, a->issued, sizeof a->head) == 0);
  status st = cpu_errors_report(&a->errors);
  (void)pthread_mutex_unlock(&a->device->run);
  return st;
}

/* ---- loading ---- */
static status count_accesses(void *context) {
  adversary *a = context;
  const rt_plan *plan = a->base.plan;
  a->accesses = ARENA_ARRAY(&a->program.memory, plan->n_buffers, uint32_t);
  a->left = ARENA_ARRAY(&a->program.memory, plan->n_buffers, uint32_t);
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].kind == RT_LAUNCH)
      each_access(a, &plan->tasks[plan->instrs[i].task], count_access);
  return STATUS_OK;
}

static void adversary_unload(rt_loaded *loaded) {
  adversary *a = (adversary *)loaded;
  if (!a) return;
  cpu_program_destroy(&a->program);
  (void)pthread_mutex_destroy(&a->errors.lock);
  memory_free(a->device->memory, a);
}

static status adversary_load(rt_device *device, const rt_plan *plan, rt_loaded **result) {
  adversary_device *d = (adversary_device *)device;
  adversary *a = memory_alloc(d->memory, sizeof *a);
  if (!a) return STATUS_OUT_OF_MEMORY;
  *a = (adversary){.base = {&cpu_adversary, plan}, .device = d, .seed = d->seed};
  if (pthread_mutex_init(&a->errors.lock, NULL) != 0) {
    memory_free(d->memory, a);
    return fail(STATUS_SYSTEM, "cannot make a lock");
  }
  status st = cpu_program_init(&a->program, plan, 1, d->memory);
  if (st == STATUS_OK) st = memory_guard(count_accesses, a);
  if (st != STATUS_OK) adversary_unload(&a->base);
  else *result = &a->base;
  return st;
}

void cpu_adversary_reseed(rt_loaded *loaded, uint64_t seed) {
  check(loaded->ops == &cpu_adversary);
  ((adversary *)loaded)->seed = seed;
}

static void adversary_close(rt_device *device) {
  adversary_device *d = (adversary_device *)device;
  if (!d) return;
  (void)pthread_mutex_destroy(&d->run);
  memory_free(d->memory, d);
}

static status adversary_open(const rt_device_options *options, const allocator *memory,
                             rt_device **result) {
  adversary_device *d = memory_alloc(memory, sizeof *d);
  if (!d) return STATUS_OUT_OF_MEMORY;
  *d = (adversary_device){.base.ops = &cpu_adversary, .memory = memory, .seed = options->seed};
  if (pthread_mutex_init(&d->run, NULL) != 0) {
    memory_free(memory, d);
    return fail(STATUS_SYSTEM, "cannot make a lock");
  }
  *result = &d->base;
  return STATUS_OK;
}

const rt_device_ops cpu_adversary = {
    .name = "cpu",
    .summary = "the cpu device, in the order that does the most harm",
    .takes_adversary = true,
    .open = adversary_open,
    .close = adversary_close,
    .load = adversary_load,
    .unload = adversary_unload,
    .begin = adversary_begin,
    .launch = adversary_issue,
    .wait = adversary_issue,
    .finish = adversary_finish,
};
