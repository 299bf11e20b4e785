#include "device/sim/sim.h"

#include <pthread.h>

#include "runtime/queues.h"

/* f32 matrix products 100 GFLOP/s, memory 21 GB/s, and a hop between threads that spin 50 ns. */
const sim_costs sim_default_costs = {
    .flops_per_ns = 100, .bytes_per_ns = 21, .latency_ns = 50, .issue_ns = 20};

enum { NOBODY = UINT32_MAX };

typedef struct sim_device {
  rt_device base;
  const allocator *memory;
  sim_costs costs;
  uint32_t units;
  pthread_mutex_t run; /* held from begin() to finish() */
} sim_device;

/* A moment, and the launch whose end it is (NOBODY: the host's doing). */
typedef struct moment {
  double ns;
  uint32_t cause;
} moment;

typedef struct sim_loaded {
  rt_loaded base;
  sim_device *device;
  sim_costs costs;
  arena memory;
  rt_queues queues;
  double *durations_ns; /* by task */
  moment **after;       /* by stream and entry: when it was done */
  uint32_t *head;       /* by stream: entries done */
  uint32_t *causes;     /* by instruction: what its start waited for */
  moment *units;        /* when each is free */
  uint32_t n_units;
  uint32_t *path, path_len;
  moment end;
  rt_span *spans;
} sim_loaded;

/* ---- devices ---- */
static status sim_open(const rt_device_options *options, const allocator *memory,
                       rt_device **result) {
  sim_device *d = memory_alloc(memory, sizeof *d);
  if (!d) return STATUS_OUT_OF_MEMORY;
  *d = (sim_device){.base.ops = &rt_device_sim, .memory = memory, .costs = sim_default_costs};
  d->units = options->threads;
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

void sim_set_costs(rt_device *device, const sim_costs *costs) {
  check(device->ops == &rt_device_sim);
  ((sim_device *)device)->costs = *costs;
}

/* ---- loading ---- */
static double duration_ns(const sim_costs *c, const rt_plan *plan, const rt_task *task) {
  double compute_ns = rt_task_flops(plan, task) / c->flops_per_ns;
  double memory_ns = rt_task_bytes(plan, task) / c->bytes_per_ns;
  return c->latency_ns + (compute_ns > memory_ns ? compute_ns : memory_ns);
}

static status build(void *context) {
  sim_loaded *l = context;
  const rt_plan *plan = l->base.plan;
  arena *memory = &l->memory;
  rt_queues_build(plan, memory, &l->queues);
  if (l->n_units == 0 || l->n_units > plan->n_streams) l->n_units = plan->n_streams;
  l->durations_ns = ARENA_ARRAY(memory, plan->n_tasks, double);
  for (uint32_t t = 0; t < plan->n_tasks; t++)
    l->durations_ns[t] = duration_ns(&l->costs, plan, &plan->tasks[t]);
  l->after = ARENA_ARRAY(memory, plan->n_streams, moment *);
  for (uint32_t s = 0; s < plan->n_streams; s++)
    l->after[s] = ARENA_ARRAY(memory, l->queues.streams[s].n, moment);
  l->head = ARENA_ARRAY(memory, plan->n_streams, uint32_t);
  l->causes = ARENA_ARRAY(memory, plan->n_instrs, uint32_t);
  l->path = ARENA_ARRAY(memory, l->queues.n_launches, uint32_t);
  l->units = ARENA_ARRAY(memory, l->n_units, moment);
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
  *l = (sim_loaded){.base = {&rt_device_sim, plan}, .device = d, .costs = d->costs};
  l->n_units = d->units;
  arena_init(&l->memory, d->memory);
  status st = memory_guard(build, l);
  if (st != STATUS_OK) sim_unload(&l->base);
  else *result = &l->base;
  return st;
}

/* ---- the clock ---- */
static moment later(moment a, moment b) { return b.ns > a.ns ? b : a; }

static moment issued_at(const sim_loaded *l, uint32_t instr) {
  return (moment){l->costs.issue_ns * ((double)instr + 1), NOBODY};
}

/* When the next entry of stream s can start, units aside. */
static moment ready_at(const sim_loaded *l, uint32_t s) {
  uint32_t head = l->head[s];
  moment host = issued_at(l, l->queues.streams[s].entries[head].instr);
  return head == 0 ? host : later(l->after[s][head - 1], host);
}

/* Passes the waits at the head of stream s that hold nothing up any more. */
static void pass_waits(sim_loaded *l, uint32_t s) {
  const rt_queue *q = &l->queues.streams[s];
  for (; l->head[s] < q->n && q->entries[l->head[s]].kind == RT_WAIT; l->head[s]++) {
    const rt_entry *e = &q->entries[l->head[s]];
    if (l->head[e->other] < e->target) return;
    moment t = ready_at(l, s);
    if (e->target) t = later(t, l->after[e->other][e->target - 1]);
    l->after[s][l->head[s]] = t;
  }
}

/* One pass may let another stream pass. */
static void pass_all_waits(sim_loaded *l) {
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t s = 0; s < l->queues.n_streams; s++) {
      uint32_t before = l->head[s];
      pass_waits(l, s);
      if (l->head[s] != before) moved = true;
    }
  }
}

static bool can_launch(const sim_loaded *l, uint32_t s) {
  const rt_queue *q = &l->queues.streams[s];
  return l->head[s] < q->n && q->entries[l->head[s]].kind == RT_LAUNCH;
}

/* The stream whose task starts first; NOBODY when none is left. */
static uint32_t first_stream(const sim_loaded *l) {
  uint32_t best = NOBODY, best_instr = 0;
  double best_ns = 0;
  for (uint32_t s = 0; s < l->queues.n_streams; s++) {
    if (!can_launch(l, s)) continue;
    double ns = ready_at(l, s).ns;
    uint32_t instr = l->queues.streams[s].entries[l->head[s]].instr;
    bool better = best == NOBODY || ns < best_ns || (ns == best_ns && instr < best_instr);
    if (better) best = s, best_ns = ns, best_instr = instr;
  }
  return best;
}

static uint32_t first_unit(const sim_loaded *l) {
  uint32_t best = 0;
  for (uint32_t u = 1; u < l->n_units; u++)
    if (l->units[u].ns < l->units[best].ns) best = u;
  return best;
}

static void launch(sim_loaded *l, uint32_t s) {
  const rt_entry *e = &l->queues.streams[s].entries[l->head[s]];
  uint32_t unit = first_unit(l);
  moment start = later(ready_at(l, s), l->units[unit]);
  moment end = {start.ns + l->durations_ns[e->task], e->instr};
  l->causes[e->instr] = start.cause;
  l->after[s][l->head[s]++] = l->units[unit] = end;
  l->end = later(l->end, end);
  if (l->spans)
    l->spans[e->launch] =
        (rt_span){(int64_t)start.ns, (int64_t)end.ns, e->instr, (uint16_t)s, (uint16_t)unit};
}

static void trace_path(sim_loaded *l) {
  l->path_len = 0;
  for (uint32_t i = l->end.cause; i != NOBODY; i = l->causes[i]) l->path[l->path_len++] = i;
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
  for (uint32_t s = 0; s < l->queues.n_streams; s++) l->head[s] = 0;
  for (uint32_t u = 0; u < l->n_units; u++) l->units[u] = (moment){0, NOBODY};
  l->end = (moment){l->costs.issue_ns * loaded->plan->n_instrs, NOBODY};
  l->spans = spans;
  return STATUS_OK;
}

static void sim_issue(rt_loaded *loaded, uint32_t instr) { (void)loaded, (void)instr; }

static status sim_finish(rt_loaded *loaded) {
  sim_loaded *l = (sim_loaded *)loaded;
  pass_all_waits(l);
  for (uint32_t s; (s = first_stream(l)) != NOBODY; pass_all_waits(l)) launch(l, s);
  for (uint32_t s = 0; s < l->queues.n_streams; s++) check(l->head[s] == l->queues.streams[s].n);
  trace_path(l);
  (void)pthread_mutex_unlock(&l->device->run);
  return STATUS_OK;
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

const rt_device_ops rt_device_sim = {
    .name = "sim",
    .virtual_clock = true,
    .summary = "a virtual clock instead of work: timeline and critical path of a plan",
    .open = sim_open,
    .close = sim_close,
    .load = sim_load,
    .unload = sim_unload,
    .begin = sim_begin,
    .launch = sim_issue,
    .wait = sim_issue,
    .finish = sim_finish,
    .outcome = sim_outcome,
};
