#include "device/sim/sim.h"

#include <pthread.h>

#include "device/sim/sim_alike.h"
#include "device/sim/sim_comm.h"
#include "runtime/machine.h"
#include "runtime/queues.h"

typedef struct sim_device {
  rt_device base;
  const allocator *memory;
  rt_speed machine;
  uint32_t units;
  pthread_mutex_t run; /* held from begin() to finish() */
} sim_device;

typedef struct sim_loaded {
  rt_loaded base;
  sim_device *device;
  rt_speed machine;
  arena memory;
  rt_queues queues;
  double *durations_ns; /* by task */
  sim_moment **after;   /* by stream and entry: when it was done */
  uint32_t *head;       /* by stream: entries done */
  /* A stream that cannot advance is in one place: in `starts`, a heap of the streams whose next entry
   * is a launch, or in a list of the streams that wait for a stream, a post or an operation (linked by
   * stream + 1; 0 ends a list). `moved` are streams that may advance now. */
  uint32_t *starts, n_starts, *moved, n_moved;
  double *starts_ns; /* by stream: it does not start earlier, as far as is known */
  uint32_t *stream_waiters, *post_waiters, *op_waiters, *next_waiter;
  uint32_t
      *causes; /* by instruction, as they are done, then by operation: what its start waited for */
  uint32_t n_done;     /* instructions */
  uint32_t *turns;     /* by instruction: its number among those of its rank; NULL: one rank */
  uint16_t *ranks;     /* by stream */
  uint32_t most_turns; /* of a rank */
  sim_moment *units;   /* when each is free, rank by rank */
  uint32_t n_units;    /* of a rank */
  sim_cores cores;
  sim_comms comms;
  uint32_t *path, path_len;
  sim_moment end;
  rt_span *spans;
} sim_loaded;

/* ---- devices ---- */
static status sim_open(const rt_device_options *options, const allocator *memory,
                       rt_device **result) {
  sim_device *d = memory_alloc(memory, sizeof *d);
  if (!d) return STATUS_OUT_OF_MEMORY;
  *d = (sim_device){.base.ops = &rt_device_sim, .memory = memory};
  d->machine = options->machine ? *options->machine : rt_machine_default();
  d->units = options->threads ? options->threads : 1;
  if (pthread_mutex_init(&d->run, NULL) != 0) {
    memory_free(memory, d);
    return fail(STATUS_SYSTEM, "cannot make a lock");
  }
  *result = &d->base;
  return STATUS_OK;
}

static void sim_close(rt_device *device) {
  sim_device *d = (sim_device *)device;
  if (!d) return;
  (void)pthread_mutex_destroy(&d->run);
  memory_free(d->memory, d);
}

void sim_set_machine(rt_device *device, const rt_speed *machine) {
  check(device->ops == &rt_device_sim);
  ((sim_device *)device)->machine = *machine;
}

/* ---- loading ---- */
static uint32_t rank_count(const rt_plan *plan) { return plan->n_ranks ? plan->n_ranks : 1; }

/* Each rank has its own host, which issues its instructions one at a time. */
static void count_turns(sim_loaded *l) {
  const rt_plan *plan = l->base.plan;
  l->ranks = ARENA_ARRAY(&l->memory, plan->n_streams, uint16_t);
  for (uint32_t s = 0; s < plan->n_streams; s++) l->ranks[s] = (uint16_t)rt_plan_rank(plan, s);
  l->most_turns = rt_plan_n_done(plan);
  if (rank_count(plan) == 1) return;
  uint32_t *next = ARENA_ARRAY(&l->memory, plan->n_ranks, uint32_t);
  l->turns = ARENA_ARRAY(&l->memory, plan->n_instrs, uint32_t);
  l->most_turns = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    l->turns[i] = next[l->ranks[plan->instrs[i].stream]]++;
    if (l->turns[i] >= l->most_turns) l->most_turns = l->turns[i] + 1;
  }
}

static uint32_t most_streams(const rt_plan *plan) {
  uint32_t most = rank_count(plan) == 1 ? plan->n_streams : 0;
  for (uint32_t r = 0; rank_count(plan) > 1 && r < plan->n_ranks; r++) {
    uint32_t n = plan->first_stream[r + 1] - plan->first_stream[r];
    if (n > most) most = n;
  }
  return most;
}

static status build(void *context) {
  sim_loaded *l = context;
  const rt_plan *plan = l->base.plan;
  arena *memory = &l->memory;
  uint32_t most = most_streams(plan);
  rt_queues_build(plan, memory, &l->queues);
  sim_comms_build(&l->comms, plan, &l->machine, memory);
  count_turns(l);
  const ir_mesh_data *all = plan->alike ? plan->alike : plan->kin;
  sim_cores_build(&l->cores, &l->machine, rank_count(plan),
                  all ? (uint32_t)all->n_devices : rank_count(plan), memory);
  if (l->n_units > most) l->n_units = most;
  l->durations_ns = ARENA_ARRAY(memory, plan->n_tasks, double);
  for (uint32_t t = 0; t < plan->n_tasks; t++)
    l->durations_ns[t] = l->cores.slower * rt_task_ns(plan, &plan->tasks[t], &l->machine);
  l->after = ARENA_ARRAY(memory, plan->n_streams, sim_moment *);
  for (uint32_t s = 0; s < plan->n_streams; s++)
    l->after[s] = ARENA_ARRAY(memory, l->queues.streams[s].n, sim_moment);
  l->head = ARENA_ARRAY(memory, plan->n_streams, uint32_t);
  l->n_done = rt_plan_n_done(plan);
  l->causes = ARENA_ARRAY(memory, (size_t)l->n_done + l->comms.n_ops, uint32_t);
  l->path = ARENA_ARRAY(memory, (size_t)l->queues.n_launches + l->comms.n_ops, uint32_t);
  l->units = ARENA_ARRAY(memory, (size_t)rank_count(plan) * l->n_units, sim_moment);
  l->starts = ARENA_ARRAY(memory, plan->n_streams, uint32_t);
  l->starts_ns = ARENA_ARRAY(memory, plan->n_streams, double);
  l->moved = ARENA_ARRAY(memory, plan->n_streams, uint32_t);
  l->stream_waiters = ARENA_ARRAY(memory, plan->n_streams, uint32_t);
  l->next_waiter = ARENA_ARRAY(memory, plan->n_streams, uint32_t);
  l->post_waiters = ARENA_ARRAY(memory, plan->n_posts, uint32_t);
  l->op_waiters = ARENA_ARRAY(memory, l->comms.n_ops, uint32_t);
  return STATUS_OK;
}

static void sim_unload(rt_loaded *loaded) {
  sim_loaded *l = (sim_loaded *)loaded;
  if (!l) return;
  arena_destroy(&l->memory);
  memory_free(l->device->memory, l);
}

static status sim_load(rt_device *device, const rt_plan *plan, rt_loaded **result) {
  sim_device *d = (sim_device *)device;
  sim_loaded *l = memory_alloc(d->memory, sizeof *l);
  if (!l) return STATUS_OUT_OF_MEMORY;
  *l = (sim_loaded){.base = {&rt_device_sim, plan}, .device = d, .machine = d->machine};
  l->n_units = d->units;
  arena_init(&l->memory, d->memory);
  status st = memory_guard(build, l);
  if (st != STATUS_OK) sim_unload(&l->base);
  else *result = &l->base;
  return st;
}

static uint32_t sim_enough(const rt_device *device, const rt_plan *plan) {
  return sim_alike_enough(plan, &((const sim_device *)device)->machine);
}

/* ---- the clock ---- */
static sim_moment issued_at(const sim_loaded *l, uint32_t instr) {
  double turn = l->turns ? l->turns[instr] : instr;
  return (sim_moment){l->machine.issue_ns * (turn + 1), SIM_NOBODY};
}

/* When the next entry of stream s can start, units aside. */
static sim_moment ready_at(const sim_loaded *l, uint32_t s) {
  uint32_t head = l->head[s];
  rt_entry room;
  sim_moment host = issued_at(l, rt_queue_at(&l->queues.streams[s], head, &room)->instr);
  return head == 0 ? host : sim_later(l->after[s][head - 1], host);
}

/* *t: when the stream reaches an entry; becomes when the entry is over, if it takes no time. False: that is
 * not known yet, or it is a launch. */
static bool pass(sim_loaded *l, const rt_entry *e, sim_moment *t) {
  sim_moment end;
  switch ((rt_instr_kind)e->kind) {
  case RT_LAUNCH: return false;
  case RT_WAIT:
    if (l->head[e->other] < e->target) return false;
    if (e->target) *t = sim_later(*t, l->after[e->other][e->target - 1]);
    break;
  case RT_POST:
    if (!sim_comms_may_post(&l->comms, e->task, t)) return false;
    sim_comms_post(&l->comms, e->task, *t);
    break;
  case RT_JOIN:
    if (!sim_comms_end(&l->comms, e->task, &end)) return false;
    *t = sim_later(*t, end);
    break;
  }
  return true;
}

/* ---- streams that can start ---- */
/* Can the task of stream a start before that of b? Of two that can start at once, the earlier one in the plan. */
static bool comes_first(const sim_loaded *l, uint32_t a, uint32_t b) {
  double x = l->starts_ns[a], y = l->starts_ns[b];
  const rt_queue *q = l->queues.streams;
  rt_entry rooms[2];
  if (x != y) return x < y;
  return rt_queue_at(&q[a], l->head[a], &rooms[0])->instr <
         rt_queue_at(&q[b], l->head[b], &rooms[1])->instr;
}

static void add_start(sim_loaded *l, uint32_t s) {
  uint32_t at = l->n_starts++;
  for (; at > 0 && comes_first(l, s, l->starts[(at - 1) / 2]); at = (at - 1) / 2)
    l->starts[at] = l->starts[(at - 1) / 2];
  l->starts[at] = s;
}

static void take_first_start(sim_loaded *l) {
  uint32_t last = l->starts[--l->n_starts], at = 0, child;
  for (; (child = 2 * at + 1) < l->n_starts; at = child) {
    if (child + 1 < l->n_starts && comes_first(l, l->starts[child + 1], l->starts[child])) child++;
    if (!comes_first(l, l->starts[child], last)) break;
    l->starts[at] = l->starts[child];
  }
  l->starts[at] = last;
}

/* ---- streams that wait ---- */
static void wake(sim_loaded *l, uint32_t *waiters) {
  for (uint32_t s = *waiters; s; s = l->next_waiter[s - 1]) l->moved[l->n_moved++] = s - 1;
  *waiters = 0;
}

/* The list in which a stream waits that cannot pass this entry. */
static uint32_t *waiters_for(sim_loaded *l, const rt_entry *e) {
  if (e->kind == RT_WAIT) return &l->stream_waiters[e->other];
  if (e->kind == RT_POST) return &l->post_waiters[l->base.plan->posts[e->task].before];
  return &l->op_waiters[sim_comms_open(&l->comms, e->task)];
}

static void hold(sim_loaded *l, uint32_t s, const rt_entry *e) {
  uint32_t *waiters = waiters_for(l, e);
  l->next_waiter[s] = *waiters;
  *waiters = s + 1;
}

/* Passes the entries at the head of stream s that it need not wait for any more. */
static void pass_waits(sim_loaded *l, uint32_t s) {
  const rt_queue *q = &l->queues.streams[s];
  uint32_t before = l->head[s];
  for (; l->head[s] < q->n; l->head[s]++) {
    rt_entry room;
    const rt_entry *e = rt_queue_at(q, l->head[s], &room);
    sim_moment t = ready_at(l, s);
    if (e->kind == RT_LAUNCH) {
      l->starts_ns[s] = t.ns;
      add_start(l, s);
    } else if (!pass(l, e, &t)) hold(l, s, e);
    else {
      l->after[s][l->head[s]] = t;
      if (e->kind == RT_POST) wake(l, &l->post_waiters[e->task]);
      continue;
    }
    break;
  }
  if (l->head[s] != before) wake(l, &l->stream_waiters[s]);
}

/* One pass may let another stream pass. */
static void pass_all_waits(sim_loaded *l) {
  while (l->n_moved) pass_waits(l, l->moved[--l->n_moved]);
}

static uint32_t first_unit(const sim_moment *units, uint32_t n) {
  uint32_t best = 0;
  for (uint32_t u = 1; u < n; u++)
    if (units[u].ns < units[best].ns) best = u;
  return best;
}

/* Finds the unit and the core for the next entry of a stream; returns when it starts there. */
static sim_moment find_place(const sim_loaded *l, uint32_t s, uint32_t *unit, sim_moment **core) {
  const sim_moment *units = &l->units[l->ranks[s] * l->n_units];
  *unit = first_unit(units, l->n_units);
  sim_moment start = sim_later(ready_at(l, s), units[*unit]);
  *core = sim_cores_find(&l->cores, l->ranks[s], start.ns);
  return *core ? sim_later(start, **core) : start;
}

/* If the place is busy until later, the stream is considered again then: others that come earlier in the
 * plan may have become ready. */
static bool delay(sim_loaded *l, uint32_t s) {
  uint32_t unit;
  sim_moment *core;
  double start_ns = find_place(l, s, &unit, &core).ns;
  take_first_start(l);
  if (start_ns <= l->starts_ns[s]) return false;
  l->starts_ns[s] = start_ns;
  add_start(l, s);
  return true;
}

static void launch(sim_loaded *l, uint32_t s) {
  rt_entry room;
  const rt_entry *e = rt_queue_at(&l->queues.streams[s], l->head[s], &room);
  sim_moment *units = &l->units[l->ranks[s] * l->n_units], *core;
  uint32_t unit;
  sim_moment start = find_place(l, s, &unit, &core);
  sim_moment end = {start.ns + l->durations_ns[e->task], e->instr};
  l->causes[e->instr] = start.cause;
  l->after[s][l->head[s]++] = units[unit] = end;
  if (core) *core = end;
  l->moved[l->n_moved++] = s;
  wake(l, &l->stream_waiters[s]);
  l->end = sim_later(l->end, end);
  if (l->spans)
    l->spans[e->launch] =
        (rt_span){(int64_t)start.ns, (int64_t)end.ns, e->instr, (uint16_t)s, (uint16_t)unit};
}

static void communicate(sim_loaded *l, uint32_t op) {
  if (l->cores.n && sim_comms_delay(&l->comms, op)) return;
  l->causes[l->n_done + op] = sim_comms_start(&l->comms, op, &l->cores);
  wake(l, &l->op_waiters[op]);
  l->end = sim_later(l->end, l->comms.ops[op].end);
}

/* Starts the task or communication that can start first; false: none is left. */
static bool advance(sim_loaded *l) {
  uint32_t s = l->n_starts ? l->starts[0] : SIM_NOBODY, op = sim_comms_first(&l->comms);
  if (s == SIM_NOBODY && op == SIM_NOBODY) return false;
  if (op != SIM_NOBODY && (s == SIM_NOBODY || l->comms.ops[op].ready.ns <= l->starts_ns[s]))
    communicate(l, op);
  else if (!delay(l, s)) launch(l, s);
  return true;
}

static void fill_post_spans(sim_loaded *l) {
  for (uint32_t p = 0; l->spans && p < l->base.plan->n_posts; p++) {
    const sim_post *post = &l->comms.posts[p];
    rt_span s = {.instr = post->instr, .stream = post->stream};
    sim_moment end;
    if (post->is_posted) s.start_ns = s.end_ns = (int64_t)post->start.ns;
    if (post->is_posted && sim_comms_end(&l->comms, p, &end) && end.ns > post->start.ns)
      s.end_ns = (int64_t)end.ns;
    l->spans[l->base.plan->n_tasks + p] = s;
  }
}

static void trace_path(sim_loaded *l) {
  uint32_t n = l->n_done;
  l->path_len = 0;
  for (uint32_t i = l->end.cause; i != SIM_NOBODY; i = l->causes[i])
    l->path[l->path_len++] = i < n ? i : l->comms.ops[i - n].last;
  for (uint32_t a = 0, b = l->path_len; a + 1 < b; a++) {
    uint32_t t = l->path[a];
    l->path[a] = l->path[--b];
    l->path[b] = t;
  }
}

/* ---- runs ---- */
static status sim_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                        rt_span *spans) {
  (void)inputs, (void)outputs;
  sim_loaded *l = (sim_loaded *)loaded;
  (void)pthread_mutex_lock(&l->device->run);
  l->n_starts = l->n_moved = 0;
  for (uint32_t s = l->queues.n_streams; s-- > 0;) {
    l->head[s] = l->stream_waiters[s] = 0;
    l->moved[l->n_moved++] = s;
  }
  for (uint32_t p = 0; p < loaded->plan->n_posts; p++) l->post_waiters[p] = 0;
  for (uint32_t k = 0; k < l->comms.n_ops; k++) l->op_waiters[k] = 0;
  uint32_t n_units = rank_count(loaded->plan) * l->n_units;
  for (uint32_t u = 0; u < n_units; u++) l->units[u] = (sim_moment){0, SIM_NOBODY};
  sim_comms_begin(&l->comms);
  sim_cores_begin(&l->cores);
  for (uint32_t i = 0; spans && l->comms.n_ops && i < loaded->plan->n_tasks; i++)
    spans[i] = (rt_span){0}; /* some may never run, if a communication never ends */
  l->end = (sim_moment){l->machine.issue_ns * l->most_turns, SIM_NOBODY};
  l->spans = spans;
  return STATUS_OK;
}

static void sim_issue(rt_loaded *loaded, uint32_t instr) { (void)loaded, (void)instr; }

typedef struct stuck {
  const sim_loaded *l;
  uint32_t instr;
  arena scratch;
} stuck;

static status report_stuck(void *context) {
  stuck *x = context;
  const rt_plan *plan = x->l->base.plan;
  strbuf text;
  strbuf_init(&text, &x->scratch);
  rt_place(plan, x->instr, &text);
  const rt_post *p = &plan->posts[plan->instrs[x->instr].task];
  return fail(STATUS_UNAVAILABLE, "%s: rank %u waits for %s, which not all of its team post",
              text.data, p->rank, ir_comm_text(p->kind));
}

/* Fails if a stream did not reach its end: then it waits for a communication. */
static status check_end(const sim_loaded *l) {
  uint32_t first = SIM_NOBODY;
  for (uint32_t s = 0; s < l->queues.n_streams; s++) {
    const rt_queue *q = &l->queues.streams[s];
    if (l->head[s] == q->n) continue;
    const rt_entry *e = &q->entries[l->head[s]]; /* it communicates: it is unrolled */
    if (e->kind == RT_JOIN && e->instr < first) first = e->instr;
    check(l->comms.n_ops > 0);
  }
  if (first == SIM_NOBODY) return STATUS_OK;
  stuck x = {.l = l, .instr = first};
  arena_init(&x.scratch, l->device->memory);
  status st = memory_guard(report_stuck, &x);
  arena_destroy(&x.scratch);
  return st;
}

static status sim_finish(rt_loaded *loaded) {
  sim_loaded *l = (sim_loaded *)loaded;
  do pass_all_waits(l);
  while (advance(l));
  status st = check_end(l);
  fill_post_spans(l);
  trace_path(l);
  (void)pthread_mutex_unlock(&l->device->run);
  return st;
}

int64_t sim_total_ns(const rt_loaded *loaded) {
  check(loaded->ops == &rt_device_sim);
  return (int64_t)((const sim_loaded *)loaded)->end.ns;
}

uint32_t sim_critical_path(const rt_loaded *loaded, const uint32_t **instrs) {
  check(loaded->ops == &rt_device_sim);
  *instrs = ((const sim_loaded *)loaded)->path;
  return ((const sim_loaded *)loaded)->path_len;
}

static rt_outcome sim_outcome(const rt_loaded *loaded) {
  rt_outcome o = {.total_ns = sim_total_ns(loaded)};
  o.path_len = sim_critical_path(loaded, &o.path);
  return o;
}

/* Choices for this device are made with the machine that it simulates. */
static rt_speed sim_speed(rt_device *device, const rt_speed *machine, uint32_t ranks) {
  (void)machine;
  (void)ranks;
  rt_speed s = ((sim_device *)device)->machine;
  s.threads = 1;
  return s;
}

const rt_device_ops rt_device_sim = {
    .name = "sim",
    .virtual_clock = true,
    .takes_loops = RT_LOOPS_ALONE,
    .summary = "a virtual clock instead of work: timeline and critical path of a plan",
    .open = sim_open,
    .close = sim_close,
    .enough = sim_enough,
    .load = sim_load,
    .unload = sim_unload,
    .begin = sim_begin,
    .launch = sim_issue,
    .wait = sim_issue,
    .finish = sim_finish,
    .outcome = sim_outcome,
    .speed = sim_speed,
};
