/* A machine that runs the order in which a plan is issued to GPUs, on the CPU: streams advance in random
 * legal orders, copies and folds are done by the host. Communications left as they were posted go to an
 * in-process world; as with NCCL, a stream stands still until all members have come to them.
 *
 *   machine_status st = machine_run(plan, &options, inputs, outputs, seed);
 *
 * Needs a memory_guard(). */
#ifndef WEIR_TESTS_ORDER_MACHINE_H
#define WEIR_TESTS_ORDER_MACHINE_H

#include <string.h>

#include "base/random.h"
#include "device/cpu/kernels.h"
#include "device/issue/order.h"

enum { MACHINE_RANKS = 256 };

typedef struct machine {
  const rt_plan *plan;
  void *const *inputs, *const *outputs;
  const issue_order *order;
  arena memory;
  char **bases, **staging, **slots;
  uint32_t n_streams;
  uint32_t **queues, *lengths, *heads; /* steps, by stream */
  bool *recorded;
  rt_comm *endpoints[MACHINE_RANKS];
  uint32_t n_endpoints;
  bool *posted; /* by comm */
  rt_comm_ticket *tickets;
  char **collected;
  uint64_t seed, draws;
} machine;

static inline uint32_t machine_below(machine *m, uint32_t n) {
  return (uint32_t)(random_bits(m->seed, m->draws++) % n);
}

static inline void machine_place(machine *m) {
  const rt_plan *plan = m->plan;
  char *pool = arena_alloc(&m->memory, (size_t)plan->pool_bytes + 64);
  pool += (64 - (uintptr_t)pool % 64) % 64;
  m->bases = ARENA_ARRAY(&m->memory, plan->n_buffers, char *);
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    const rt_buffer *x = &plan->buffers[b];
    switch (x->kind) {
    case RT_BUFFER_INPUT: m->bases[b] = m->inputs[x->slot]; break;
    case RT_BUFFER_OUTPUT: m->bases[b] = m->outputs[x->slot]; break;
    case RT_BUFFER_POOL: m->bases[b] = pool + x->offset_bytes; break;
    }
  }
  m->staging = ARENA_ARRAY(&m->memory, m->order->n_ranks, char *);
  m->slots = ARENA_ARRAY(&m->memory, m->order->n_ranks, char *);
  for (uint32_t r = 0; r < m->order->n_ranks; r++) {
    m->staging[r] = arena_alloc(&m->memory, (size_t)m->order->staging_bytes[r] + 1);
    m->slots[r] = arena_alloc(&m->memory, (size_t)m->order->slots_bytes[r] + 1);
  }
}

static inline void machine_queues(machine *m) {
  const issue_order *o = m->order;
  m->n_streams = m->plan->n_streams + o->n_lanes;
  m->queues = ARENA_ARRAY(&m->memory, m->n_streams, uint32_t *);
  m->lengths = ARENA_ARRAY(&m->memory, m->n_streams, uint32_t);
  m->heads = ARENA_ARRAY(&m->memory, m->n_streams, uint32_t);
  m->recorded = ARENA_ARRAY(&m->memory, o->n_events, bool);
  for (uint32_t s = 0; s < m->n_streams; s++)
    m->queues[s] = ARENA_ARRAY(&m->memory, o->steps.len, uint32_t);
  for (uint32_t i = 0; i < o->steps.len; i++) {
    uint16_t s = o->steps.data[i].stream;
    m->queues[s][m->lengths[s]++] = i;
  }
}

static inline char *machine_address(const machine *m, const issue_place *p) {
  switch (p->kind) {
  case ISSUE_IN_BUFFER: return m->bases[p->index] + p->offset_bytes;
  case ISSUE_IN_STAGING: return m->staging[p->index] + p->offset_bytes;
  case ISSUE_IN_SLOTS: return m->slots[p->index] + p->offset_bytes;
  case ISSUE_NOWHERE: break;
  }
  return NULL;
}

static inline void machine_task(machine *m, const rt_task *task) {
  const cpu_kernel *k;
  char *starts[CPU_MAX_STARTS];
  check(cpu_kernel_prepare(m->plan, task, &m->memory, &k) == STATUS_OK);
  cpu_kernel_starts(m->plan, task, m->bases, starts);
  char *scratch = arena_alloc(&m->memory, cpu_kernel_scratch_bytes(k) + CPU_SCRATCH_ALIGN);
  scratch += (CPU_SCRATCH_ALIGN - (uintptr_t)scratch % CPU_SCRATCH_ALIGN) % CPU_SCRATCH_ALIGN;
  check(cpu_kernel_run(k, starts, scratch) == STATUS_OK);
}

static inline void machine_fold(machine *m, const issue_fold *f) {
  const void *sources[MACHINE_RANKS];
  size_t bytes = (size_t)f->count * ir_dtype_size_bytes(f->dtype);
  char *sum = arena_alloc(&m->memory, bytes);
  for (uint32_t i = 0; i < f->n_sources; i++) sources[i] = machine_address(m, &f->places[i]);
  if (f->n_sources == 1) memcpy(sum, sources[0], bytes);
  else rt_comm_reduce(f->op, f->dtype, 0, (size_t)f->count, f->n_sources, sources, sum);
  for (uint32_t i = 0; i < f->n_results; i++)
    memcpy(machine_address(m, &f->places[f->n_sources + i]), sum, bytes);
}

static inline char *machine_view(const machine *m, uint32_t view) {
  const rt_view *v = view == RT_NO_VIEW ? NULL : &m->plan->views[view];
  return v ? m->bases[v->buffer] + v->offset_bytes : NULL;
}

/* Are so many bytes there? Of buffers binding has made sure. */
static inline bool machine_has(const machine *m, const issue_place *p, int64_t bytes) {
  const issue_order *o = m->order;
  int64_t room = INT64_MAX;
  if (p->kind == ISSUE_IN_STAGING) room = o->staging_bytes[p->index];
  if (p->kind == ISSUE_IN_SLOTS) room = o->slots_bytes[p->index];
  return p->offset_bytes >= 0 && p->offset_bytes <= room - bytes;
}

/* What is only collected comes here first. */
static inline void machine_collect(machine *m, uint32_t comm, rt_comm_request *r) {
  size_t bytes = (size_t)r->count * ir_dtype_size_bytes(r->dtype);
  m->collected[comm] = arena_alloc(&m->memory, bytes * r->n_team + 1);
  r->out = m->collected[comm];
  if (r->kind == IR_COMM_REDUCE) r->kind = IR_COMM_GATHER;
  else r->kind = r->kind == IR_COMM_ALLREDUCE ? IR_COMM_ALLGATHER : IR_COMM_ALL_TO_ALL;
}

static inline void machine_place_collected(machine *m, uint32_t comm) {
  const issue_comm *c = &m->order->comms.data[comm];
  const rt_post *p = &m->plan->posts[c->post];
  size_t bytes = (size_t)p->count * ir_dtype_size_bytes(p->dtype);
  if (!c->collects || (p->kind == IR_COMM_REDUCE && p->me != p->root)) return;
  for (uint32_t i = 0; i < p->n_team; i++)
    if (i != p->me)
      memcpy(m->staging[c->rank] + c->staging_at + i * c->stride_bytes,
             m->collected[comm] + i * bytes, bytes);
}

static inline void machine_post(machine *m, uint32_t comm) {
  const issue_comm *c = &m->order->comms.data[comm];
  const rt_post *p = &m->plan->posts[c->post];
  rt_comm_request r = rt_post_request(p, machine_view(m, p->in), machine_view(m, p->out));
  if (c->collects) machine_collect(m, comm, &r);
  if (ir_comm_is_message(r.kind)) {
    r.kind = c->receives ? IR_COMM_RECV : IR_COMM_SEND;
    if (c->receives && p->kind == IR_COMM_PERMUTE) r.count = r.count_from;
    if (c->receives) r.to = RT_COMM_NOBODY, r.in = NULL;
    else r.from = RT_COMM_NOBODY, r.out = NULL;
  }
  rt_comm *e = m->endpoints[c->rank];
  check(e->ops->post(e, &r, &m->tickets[comm]) == STATUS_OK);
  m->posted[comm] = true;
}

/* All parts of the communication that are on this stream begin together. */
static inline bool machine_comm(machine *m, uint32_t stream, uint32_t comm) {
  const issue_order *o = m->order;
  const issue_comm *c = &o->comms.data[comm];
  if (m->posted[comm]) {
    rt_comm *e = m->endpoints[c->rank];
    while (e->ops->progress(e)) {
    }
    check(e->ops->error(e) == STATUS_OK);
    if (!e->ops->done(e, &m->tickets[comm])) return false;
    machine_place_collected(m, comm);
    return true;
  }
  for (uint32_t h = m->heads[stream]; h < m->lengths[stream]; h++) {
    const issue_step *s = &o->steps.data[m->queues[stream][h]];
    if (s->kind != ISSUE_COMM || o->comms.data[s->index].first != c->first) break;
    machine_post(m, s->index);
  }
  return machine_comm(m, stream, comm);
}

static inline void machine_world(machine *m) {
  rt_comm_options o = {.ranks = m->order->n_ranks};
  m->posted = ARENA_ARRAY(&m->memory, m->order->comms.len, bool);
  m->tickets = ARENA_ARRAY(&m->memory, m->order->comms.len, rt_comm_ticket);
  m->collected = ARENA_ARRAY(&m->memory, m->order->comms.len, char *);
  if (m->order->comms.len == 0) return;
  check(rt_comm_inproc.open(&o, &memory_default, MACHINE_RANKS, m->endpoints, &m->n_endpoints) ==
        STATUS_OK);
}

/* The steps of one communication's members follow one another. */
static inline bool machine_is_together(const issue_order *o) {
  for (uint32_t i = 0; i < o->steps.len; i++) {
    const issue_step *s = &o->steps.data[i];
    if (s->kind != ISSUE_COMM) continue;
    const issue_comm *c = &o->comms.data[s->index];
    uint32_t at = s->index - c->first;
    if (at >= c->n || i < at || i + c->n - at > o->steps.len) return false;
    const issue_step *first = &o->steps.data[i - at];
    if (first->kind != ISSUE_COMM || first->index != c->first) return false;
  }
  return true;
}

/* Whether the stream could go on; it did then. */
static inline bool machine_advance(machine *m, uint32_t s) {
  if (m->heads[s] == m->lengths[s]) return false;
  const issue_order *o = m->order;
  const issue_step *step = &o->steps.data[m->queues[s][m->heads[s]]];
  switch ((issue_step_kind)step->kind) {
  case ISSUE_LAUNCH: machine_task(m, &m->plan->tasks[step->index]); break;
  case ISSUE_RECORD: m->recorded[step->index] = true; break;
  case ISSUE_WAIT:
    if (!m->recorded[step->index]) return false;
    break;
  case ISSUE_COPY: {
    const issue_copy *c = &o->copies.data[step->index];
    check(machine_has(m, &c->to, c->size_bytes) && machine_has(m, &c->from, c->size_bytes));
    memcpy(machine_address(m, &c->to), machine_address(m, &c->from), (size_t)c->size_bytes);
    break;
  }
  case ISSUE_FOLD: machine_fold(m, &o->folds.data[step->index]); break;
  case ISSUE_COMM:
    if (!machine_comm(m, s, step->index)) return false;
    break;
  }
  m->heads[s]++;
  return true;
}

/* One stream is starved: it goes on only when no other can. */
static inline bool machine_finish(machine *m) {
  uint32_t victim = machine_below(m, m->n_streams), left = m->order->steps.len;
  while (left > 0) {
    uint32_t first = machine_below(m, m->n_streams), tried = 0;
    bool moved = false;
    for (; tried < m->n_streams && !moved; tried++) {
      uint32_t s = (first + tried) % m->n_streams;
      if (s != victim) moved = machine_advance(m, s);
    }
    if (!moved) moved = machine_advance(m, victim);
    if (!moved) return false;
    left--;
  }
  return true;
}

/* An event is recorded once, and before anybody is told to wait for it. */
static inline bool machine_is_issuable(const issue_order *o, arena *memory) {
  bool *recorded = ARENA_ARRAY(memory, o->n_events, bool);
  for (uint32_t i = 0; i < o->steps.len; i++) {
    const issue_step *s = &o->steps.data[i];
    if (s->kind == ISSUE_WAIT && !recorded[s->index]) return false;
    if (s->kind != ISSUE_RECORD) continue;
    if (recorded[s->index]) return false;
    recorded[s->index] = true;
  }
  return true;
}

/* Whether everything came to its end; false also if the order cannot be issued. */
static inline status machine_run(const rt_plan *plan, const issue_order_options *options,
                                 void *const *inputs, void *const *outputs, uint64_t seed) {
  machine m = {.plan = plan, .inputs = inputs, .outputs = outputs, .seed = seed};
  issue_order order;
  arena_init(&m.memory, &memory_default);
  status st = issue_order_make(plan, options, &m.memory, &order);
  m.order = &order;
  if (st == STATUS_OK) {
    machine_place(&m);
    machine_queues(&m);
    machine_world(&m);
    bool whole = plan->n_instrs == 0 || order.upto[plan->n_instrs - 1] == order.steps.len;
    whole = whole && machine_is_together(&order);
    if (!whole || !machine_is_issuable(&order, &m.memory) || !machine_finish(&m))
      st = fail(STATUS_CHECK_FAILED, "the order cannot be issued, or does not end");
  }
  for (uint32_t i = 0; i < m.n_endpoints; i++) m.endpoints[i]->ops->close(m.endpoints[i]);
  arena_destroy(&m.memory);
  return st;
}

#endif
