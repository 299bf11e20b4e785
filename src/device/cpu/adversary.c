#include "device/cpu/adversary.h"

#include <string.h>
#include <time.h>

#include "base/random.h"
#include "device/cpu/device_comm.h"

typedef enum policy { STARVE, RANDOM, LATEST, BURST } policy;
typedef enum pace { LATE, EAGER, MIXED } pace; /* of communications */

typedef struct adversary_device {
  rt_device base;
  const allocator *memory;
  uint64_t seed;
  pthread_mutex_t run;
  cpu_world world;
  cpu_pool pool;
  _Atomic uint64_t done; /* for other processes: entries, and whether a task runs */
  _Atomic bool is_busy;
} adversary_device;

typedef struct adversary {
  rt_loaded base;
  adversary_device *device;
  cpu_program program;
  cpu_errors errors;
  uint64_t seed, draws;
  policy policy;
  uint32_t last;             /* BURST: the stream that ran */
  uint16_t *priority;        /* STARVE: streams, the first runnable one runs */
  uint16_t *list;            /* of streams: scratch */
  uint32_t *head;            /* entries done, by stream */
  rt_entry *rooms;           /* by stream: its next entry, if that is one of a loop */
  uint32_t *issued;          /* entries issued */
  uint32_t *accesses, *left; /* of each buffer: in all, and still to come */
  cpu_run run;
  cpu_comms comms;
  pace pace;
  const rt_entry *
      *held; /* posts that streams went past and the backend does not know yet, in order */
  uint32_t n_held;
  int64_t moved_ns; /* 0: something moved just now */
} adversary;

/* Of `head` and `issued`. */
static size_t streams_bytes(const adversary *a) {
  return a->base.plan->n_streams * sizeof *a->head;
}

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

static pace pace_of(uint64_t seed, uint32_t n_streams) {
  uint64_t v = seed / 2, round = n_streams ? v / n_streams : 0;
  switch (policy_of(seed)) {
  case STARVE: return (v + round) % 2 ? EAGER : LATE;
  case RANDOM: return MIXED;
  case LATEST: return LATE;
  case BURST: break;
  }
  return EAGER;
}

/* Streams of the victim's rank after those of others; both keep their order. */
static void starve_rank(adversary *a, uint32_t victim) {
  const rt_plan *plan = a->base.plan;
  uint16_t *mates = a->list;
  uint32_t rank = rt_plan_rank(plan, victim), n_others = 0, n_mates = 0;
  for (uint32_t k = 0; k < plan->n_streams; k++) {
    uint16_t s = a->priority[k];
    if (rt_plan_rank(plan, s) == rank) mates[n_mates++] = s;
    else a->priority[n_others++] = s;
  }
  memcpy(&a->priority[n_others], mates, n_mates * sizeof *mates);
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
  if (a->base.plan->n_ranks > 1) starve_rank(a, victim);
}

static const rt_entry *next_entry(const adversary *a, uint32_t s) {
  return rt_queue_at(&a->program.queues.streams[s], a->head[s], &a->rooms[s]);
}

static bool is_runnable(adversary *a, uint32_t s) {
  if (a->head[s] == a->issued[s]) return false;
  const rt_entry *e = next_entry(a, s);
  switch ((rt_instr_kind)e->kind) {
  case RT_LAUNCH: break;
  case RT_WAIT: return a->head[e->other] >= e->target;
  case RT_POST:
  case RT_JOIN: return cpu_comms_may_pass(&a->comms, e);
  }
  return true;
}

/* The runnable streams in `list`; how many there are. */
static uint32_t list_runnable(adversary *a, uint16_t *list) {
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

static uint32_t most_urgent(adversary *a) {
  uint32_t k = 0;
  while (!is_runnable(a, a->priority[k])) k++;
  return a->priority[k];
}

/* False when no stream can run. */
static bool choose(adversary *a, uint32_t *stream) {
  uint16_t *list = a->list;
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

/* Calls visit() for the buffers of a communication. */
static void each_side(adversary *a, const rt_post *p, void (*visit)(adversary *, uint32_t)) {
  const rt_plan *plan = a->base.plan;
  if (p->in != RT_NO_VIEW) visit(a, plan->views[p->in].buffer);
  if (p->out != RT_NO_VIEW) visit(a, plan->views[p->out].buffer);
}

/* Calls visit() for the buffer of every view of a task. */
static void each_access(adversary *a, const rt_task *t, void (*visit)(adversary *, uint32_t)) {
  const rt_plan *plan = a->base.plan;
  for (uint32_t k = 0; k < rt_task_n_results(t); k++)
    visit(a, plan->views[rt_task_result(t, k)].buffer);
  for (uint32_t k = 0; k < t->n_operands; k++)
    if (t->operands[k].kind == RT_OPERAND_VIEW) visit(a, plan->views[t->operands[k].view].buffer);
}

/* ---- communications ---- */
/* How many bytes of `out` the poster receives. */
static size_t received_bytes(const adversary *a, const rt_post *p) {
  const rt_view *v = &a->base.plan->views[p->out];
  bool root_only = ir_comm_info_of(p->kind)->root == IR_ROOT_RECEIVES;
  bool nothing = (root_only && p->me != p->root) || p->kind == IR_COMM_SEND ||
                 (p->kind == IR_COMM_PERMUTE && p->from < 0);
  int64_t count = p->kind == IR_COMM_PERMUTE ? p->count_from : p->count, room = 1;
  for (uint32_t d = 0; d < v->rank; d++) room *= v->extents[d];
  if (ir_comm_out_pieces(p->kind)) count *= p->n_team;
  return nothing ? 0 : (size_t)(count < room ? count : room) * ir_dtype_size_bytes(p->dtype);
}

/* Whether a communication under way uses the buffer. */
static bool is_in_flight(adversary *a, uint32_t buffer) {
  const rt_plan *plan = a->base.plan;
  for (uint32_t i = 0; i < a->n_held; i++) {
    const rt_post *p = &plan->posts[a->held[i]->task];
    if (p->in != RT_NO_VIEW && plan->views[p->in].buffer == buffer) return true;
    if (p->out != RT_NO_VIEW && plan->views[p->out].buffer == buffer) return true;
  }
  for (uint32_t i = 0; i < plan->n_posts; i++) {
    const rt_post *p = &plan->posts[i];
    uint32_t turn;
    if (!cpu_comms_is_posted(&a->comms, i, &turn) || cpu_comms_passed(&a->comms, i, turn)) continue;
    if (p->in != RT_NO_VIEW && plan->views[p->in].buffer == buffer) return true;
    if (p->out != RT_NO_VIEW && plan->views[p->out].buffer == buffer) return true;
  }
  return false;
}

static void poison_received(adversary *a, const rt_post *p) {
  const rt_plan *plan = a->base.plan;
  if (p->out == RT_NO_VIEW) return;
  const rt_view *v = &plan->views[p->out];
  bool in_place = p->in != RT_NO_VIEW && plan->views[p->in].buffer == v->buffer;
  size_t bytes = received_bytes(a, p);
  if (bytes && !in_place && !is_in_flight(a, v->buffer))
    memset(a->program.bases[v->buffer] + v->offset_bytes, poison_byte(a), bytes);
}

/* The first one held of a rank drawn from those that have any: a rank's posts stay in order. */
static void release_one(adversary *a) {
  const rt_post *posts = a->base.plan->posts;
  uint32_t rank = posts[a->held[draw(a, a->n_held)]->task].rank, k = 0;
  while (posts[a->held[k]->task].rank != rank) k++;
  cpu_comms_post(&a->comms, a->held[k], 0);
  memmove(&a->held[k], &a->held[k + 1], (--a->n_held - k) * sizeof(const rt_entry *));
}

/* Begins or moves a communication; false: there is none. */
static bool stir(adversary *a) {
  bool moved = a->n_held > 0;
  if (moved) release_one(a);
  else moved = cpu_comms_progress_any(&a->comms);
  if (moved) a->moved_ns = 0;
  return moved;
}

static void run_post(adversary *a, const rt_entry *e) {
  const rt_post *p = &a->base.plan->posts[e->task];
  each_side(a, p, before_access);
  poison_received(a, p);
  a->held[a->n_held++] = e;
  while (a->pace == EAGER && stir(a)) {
  }
  each_side(a, p, after_access);
}

/* No stream can run and nothing moves: other processes may, or none. */
static void idle(adversary *a) {
  static const struct timespec a_while = {.tv_nsec = 100000};
  int64_t now_ns = rt_clock_ns(), timeout_ns = a->device->world.timeout_ns;
  int64_t stirred_ns = cpu_world_stirred_ns(&a->device->world);
  if (a->moved_ns == 0) a->moved_ns = now_ns;
  if (stirred_ns > a->moved_ns) a->moved_ns = stirred_ns;
  if (cpu_comms_is_failing(&a->comms)) cpu_comms_abort(&a->comms);
  else if (timeout_ns <= 0 || now_ns - a->moved_ns < timeout_ns) (void)nanosleep(&a_while, NULL);
  else {
    enum { MOST_JOINS = 4096 }; /* that a message is made of */
    uint32_t joins[MOST_JOINS], n = 0;
    for (uint32_t s = 0; s < a->base.plan->n_streams && n < MOST_JOINS; s++)
      if (a->head[s] < a->issued[s] && next_entry(a, s)->kind != RT_WAIT)
        joins[n++] = next_entry(a, s)->instr;
    cpu_comms_time_out(&a->comms, joins, n);
    a->moved_ns = 0;
  }
}

/* ---- running ---- */
static uint32_t common_divisor(uint32_t a, uint32_t b) {
  while (b) {
    uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* All parts, in steps that reach each of them once. */
static void run_parts(void *executor, const cpu_launch *l) {
  adversary *a = executor;
  uint32_t at = draw(a, l->n_parts), step = 1 + draw(a, l->n_parts);
  while (common_divisor(step, l->n_parts) != 1) step++;
  for (uint32_t i = 0; i < l->n_parts; i++) {
    (void)cpu_launch_run_part(l, at, 0);
    at = (uint32_t)(((uint64_t)at + step) % l->n_parts);
  }
}

static void run_task(adversary *a, const rt_entry *e, uint32_t s) {
  const rt_task *task = &a->base.plan->tasks[e->task];
  each_access(a, task, before_access);
  atomic_store(&a->device->is_busy, true);
  cpu_program_run(&a->run, e, (uint16_t)s, 0, run_parts, a);
  atomic_store(&a->device->is_busy, false);
  each_access(a, task, after_access);
}

static void run_entry(adversary *a, uint32_t s) {
  const rt_entry *e = next_entry(a, s);
  switch ((rt_instr_kind)e->kind) {
  case RT_LAUNCH: run_task(a, e, s); break;
  case RT_WAIT: break;
  case RT_POST: run_post(a, e); break;
  case RT_JOIN: each_side(a, &a->base.plan->posts[e->task], after_access); break;
  }
  a->head[s]++;
  a->moved_ns = 0;
  (void)atomic_fetch_add_explicit(&a->device->done, 1, memory_order_relaxed);
}

static status adversary_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                              rt_span *spans) {
  adversary *a = (adversary *)loaded;
  (void)pthread_mutex_lock(&a->device->run);
  a->run = (cpu_run){&a->program, &a->errors, spans, rt_clock_ns()};
  status st = cpu_comms_begin(&a->comms, spans, a->run.origin_ns);
  if (st != STATUS_OK) {
    (void)pthread_mutex_unlock(&a->device->run);
    return st;
  }
  cpu_program_bind(&a->program, inputs, outputs);
  cpu_errors_reset(&a->errors);
  memset(a->head, 0, streams_bytes(a));
  memset(a->issued, 0, streams_bytes(a));
  if (loaded->plan->n_buffers)
    memcpy(a->left, a->accesses, loaded->plan->n_buffers * sizeof *a->left);
  a->draws = 0;
  a->last = 0;
  a->n_held = 0;
  a->moved_ns = 0;
  a->policy = policy_of(a->seed);
  a->pace = pace_of(a->seed, loaded->plan->n_streams);
  draw_priorities(a);
  poison_all(a);
  return STATUS_OK;
}

static void adversary_issue(rt_loaded *loaded, uint32_t instr) {
  ((adversary *)loaded)->issued[loaded->plan->instrs[instr].stream]++;
}

static void adversary_cancel(rt_loaded *loaded) {
  cpu_errors_cancel(&((adversary *)loaded)->errors);
}

/* Waits look back in the plan, so something can always run until all is done, or a communication is
 * waited for. */
static status adversary_finish(rt_loaded *loaded) {
  adversary *a = (adversary *)loaded;
  uint32_t stream = 0;
  for (;;) {
    if (a->pace == MIXED && a->comms.n && draw(a, 3) == 0) (void)stir(a);
    if (choose(a, &stream)) run_entry(a, stream);
    else if (memcmp(a->head, a->issued, streams_bytes(a)) == 0) break;
    else if (!stir(a)) idle(a);
  }
  while (a->n_held) release_one(a);
  cpu_comms_end(&a->comms);
  status st = cpu_errors_report(&a->errors, a->base.plan);
  (void)pthread_mutex_unlock(&a->device->run);
  return st;
}

/* ---- loading ---- */
static status count_accesses(void *context) {
  adversary *a = context;
  const rt_plan *plan = a->base.plan;
  a->priority = ARENA_ARRAY(&a->program.memory, plan->n_streams, uint16_t);
  a->list = ARENA_ARRAY(&a->program.memory, plan->n_streams, uint16_t);
  a->head = ARENA_ARRAY(&a->program.memory, plan->n_streams, uint32_t);
  a->rooms = ARENA_ARRAY(&a->program.memory, plan->n_streams, rt_entry);
  a->issued = ARENA_ARRAY(&a->program.memory, plan->n_streams, uint32_t);
  a->accesses = ARENA_ARRAY(&a->program.memory, plan->n_buffers, uint32_t);
  a->left = ARENA_ARRAY(&a->program.memory, plan->n_buffers, uint32_t);
  a->held = ARENA_ARRAY(&a->program.memory, plan->n_posts, const rt_entry *);
  for (rt_cursor c = {.plan = plan}; rt_cursor_next(&c);) {
    const rt_instr *instr = &plan->instrs[c.instr];
    switch ((rt_instr_kind)instr->kind) {
    case RT_LAUNCH: each_access(a, &plan->tasks[instr->task], count_access); break;
    case RT_WAIT: break;
    case RT_POST:
    case RT_JOIN: each_side(a, &plan->posts[instr->task], count_access); break;
    }
  }
  /* What no stream joins may be used until the end. */
  for (uint32_t p = 0; p < plan->n_posts; p++)
    if (!plan->posts[p].joined) each_side(a, &plan->posts[p], count_access);
  return STATUS_OK;
}

static void adversary_unload(rt_loaded *loaded) {
  adversary *a = (adversary *)loaded;
  if (!a) return;
  (void)pthread_mutex_lock(&a->device->run);
  cpu_program_destroy(&a->program);
  (void)pthread_mutex_unlock(&a->device->run);
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
  status st = cpu_program_init(&a->program, plan, 1, &d->pool, d->memory);
  if (st == STATUS_OK) {
    (void)pthread_mutex_lock(&d->run);
    st = cpu_program_reserve(&a->program);
    (void)pthread_mutex_unlock(&d->run);
  }
  if (st == STATUS_OK) st = cpu_comms_init(&a->comms, &a->program, &d->world, &a->errors);
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

static void adversary_attach(rt_device *device, rt_comm *const *endpoints, uint32_t n,
                             int64_t timeout_ns) {
  cpu_world_attach(&((adversary_device *)device)->world, endpoints, n, timeout_ns);
}

static void adversary_pulse(rt_device *device, rt_pulse *pulse) {
  adversary_device *d = (adversary_device *)device;
  *pulse = (rt_pulse){.done = atomic_load(&d->done), .is_busy = atomic_load(&d->is_busy)};
}

static status adversary_open(const rt_device_options *options, const allocator *memory,
                             rt_device **result) {
  adversary_device *d = memory_alloc(memory, sizeof *d);
  if (!d) return STATUS_OUT_OF_MEMORY;
  *d = (adversary_device){.base.ops = &cpu_adversary, .memory = memory, .seed = options->seed};
  d->pool.memory = memory;
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
    .takes_loops = RT_LOOPS_ALONE,
    .open = adversary_open,
    .close = adversary_close,
    .attach = adversary_attach,
    .pulse = adversary_pulse,
    .load = adversary_load,
    .unload = adversary_unload,
    .begin = adversary_begin,
    .launch = adversary_issue,
    .wait = adversary_issue,
    .finish = adversary_finish,
    .cancel = adversary_cancel,
};
