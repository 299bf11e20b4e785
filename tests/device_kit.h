/* Programs for several devices in a test: the plans of all ranks, and a run of them in program order.
 *
 *   team t;
 *   if (team_open(&t, &s, h, streams, devices)) {    one plan per rank
 *     team_step(&t);                                 runs them, one instruction at a time
 *     …                                              s->out holds the outputs, put together
 *   }
 *   team_close(&t);
 *
 * team_step() is an executor of its own: one thread takes turns among the ranks, each of which runs its
 * plan in order, streams or not, and stops only where a communication it waits for is not done. */
#ifndef WEIR_TESTS_DEVICE_KIT_H
#define WEIR_TESTS_DEVICE_KIT_H

#include <stdlib.h>

#include "bind/bind.h"
#include "device/cpu/kernels.h"
#include "session/pieces.h"
#include "stream_kit.h"

enum { TEAM_MAX = 16 };

typedef struct team_member {
  char **bases; /* of the plan's buffers */
  char *pool;
  rt_comm_ticket *tickets; /* by post */
  uint32_t at;             /* the next instruction */
} team_member;

typedef struct team {
  subject *s;
  ir_func *h;
  ir_env env;
  uint32_t n;
  rt_plan *plans[TEAM_MAX];
  session_ranks ranks;
  session_pieces *pieces;
  void **in, **out; /* addresses for all ranks */
  rt_comm *endpoints[TEAM_MAX];
  uint32_t n_endpoints;
  team_member members[TEAM_MAX];
} team;

/* ---- plans ---- */
static inline bool team_bind(team *t) {
  ir_env_init(&t->env, t->h, &t->s->memory);
  for (uint32_t i = 0; i < t->s->n_in; i++) {
    const ir_array *a = &t->s->in[i];
    if (!ir_bind_shape(&t->env, t->h->inputs.data[i], a->extents, a->rank, "the test"))
      return kit_refused(t->s, "bind");
  }
  return true;
}

static inline void team_close(team *t) {
  for (uint32_t i = 0; i < t->n_endpoints; i++) t->endpoints[i]->ops->close(t->endpoints[i]);
  session_pieces_destroy(t->pieces);
  for (uint32_t r = 0; r < t->n; r++) rt_plan_destroy(t->plans[r]);
}

/* With loops of so many repetitions kept (0: none is), and values in outputs where they `lend`. */
static inline bool team_open_loops(team *t, subject *s, ir_func *h, uint32_t streams,
                                   uint32_t devices, uint32_t loops, bool lends) {
  *t = (team){.s = s, .h = h};
  if (!team_bind(t)) return false;
  bind_options options = {.streams = streams, .seed = KIT_SEED, .world = devices};
  options.loops = loops;
  options.lends = lends;
  for (; t->n < devices; t->n++) {
    options.rank = t->n;
    if (bind_plan(&t->env, &options, &memory_default, &t->plans[t->n]) == STATUS_OK) continue;
    return kit_refused(s, status_message());
  }
  t->ranks = (session_ranks){.n = devices, .world = devices};
  return kit_ok(session_pieces_make(&t->ranks, h, &t->env, &memory_default, &t->pieces), "pieces");
}

static inline bool team_open(team *t, subject *s, ir_func *h, uint32_t streams, uint32_t devices) {
  return team_open_loops(t, s, h, streams, devices, 0, true);
}

/* Cuts the inputs; the outputs are filled with something else. */
static inline void team_cut(team *t) {
  for (uint32_t i = 0; i < t->s->n_out; i++) {
    int64_t bytes;
    if (ir_array_size_bytes(&t->s->out[i], &bytes)) memset(t->s->out[i].data, 0x5b, (size_t)bytes);
  }
  session_arrays in = {.whole = t->s->in}, out = {.whole = t->s->out};
  (void)kit_ok(session_pieces_cut(t->pieces, &in, &out, &t->in, &t->out), "cut");
}

static inline bool team_assemble(team *t) {
  session_arrays out = {.whole = t->s->out};
  return kit_ok(session_pieces_assemble(t->pieces, &t->env, &out), "assemble");
}

/* ---- in program order ---- */
static inline void team_member_begin(team *t, uint32_t r) {
  const rt_plan *p = t->plans[r];
  team_member *m = &t->members[r];
  arena *memory = &t->s->memory;
  *m = (team_member){.bases = arena_alloc(memory, (p->n_buffers + 1) * sizeof(char *))};
  char *pool = arena_alloc(memory, (size_t)p->pool_bytes + 64);
  m->pool = pool + (64 - (uintptr_t)pool % 64) % 64;
  memset(m->pool, 0x5b, (size_t)p->pool_bytes);
  m->tickets = arena_alloc(memory, (p->n_posts + 1) * sizeof *m->tickets);
  for (uint32_t i = 0; i < p->n_buffers; i++) {
    const rt_buffer *b = &p->buffers[i];
    switch (b->kind) {
    case RT_BUFFER_INPUT: m->bases[i] = t->in[r * p->n_inputs + b->slot]; break;
    case RT_BUFFER_OUTPUT: m->bases[i] = t->out[r * p->n_outputs + b->slot]; break;
    case RT_BUFFER_POOL: m->bases[i] = m->pool + b->offset_bytes; break;
    }
  }
}

static inline status team_launch(team *t, uint32_t r, const rt_task *task) {
  char *starts[CPU_MAX_STARTS];
  const cpu_kernel *k;
  TRY(cpu_kernel_prepare(t->plans[r], task, &t->s->memory, &k));
  char *scratch =
      arena_alloc(&t->s->memory, cpu_kernel_scratch_bytes(k) + (size_t)CPU_SCRATCH_ALIGN);
  scratch += (CPU_SCRATCH_ALIGN - (uintptr_t)scratch % CPU_SCRATCH_ALIGN) % CPU_SCRATCH_ALIGN;
  cpu_kernel_starts(t->plans[r], task, t->members[r].bases, starts);
  return cpu_kernel_run(k, starts, scratch);
}

static inline char *team_address(const team *t, uint32_t r, uint32_t view) {
  if (view == RT_NO_VIEW) return NULL;
  const rt_view *v = &t->plans[r]->views[view];
  return t->members[r].bases[v->buffer] + v->offset_bytes;
}

static inline status team_post(team *t, uint32_t r, uint32_t post) {
  const rt_post *p = &t->plans[r]->posts[post];
  rt_comm_request q = {.kind = p->kind, .op = p->op, .dtype = p->dtype, .team = p->team};
  q.n_team = p->n_team;
  q.me = p->me;
  q.root = p->root;
  q.to = p->to;
  q.from = p->from;
  q.count = p->count;
  q.count_from = p->count_from;
  q.in = team_address(t, r, p->in);
  q.out = team_address(t, r, p->out);
  return t->endpoints[r]->ops->post(t->endpoints[r], &q, &t->members[r].tickets[post]);
}

/* Runs rank r up to a communication that is not done. */
static inline status team_advance(team *t, uint32_t r, bool *moved) {
  const rt_plan *p = t->plans[r];
  rt_comm *comm = t->endpoints[r];
  for (team_member *m = &t->members[r]; m->at < p->n_instrs; m->at++) {
    const rt_instr *i = &p->instrs[m->at];
    if (i->kind == RT_LAUNCH) TRY(team_launch(t, r, &p->tasks[i->task]));
    if (i->kind == RT_POST) TRY(team_post(t, r, i->task));
    if (i->kind == RT_JOIN && !comm->ops->done(comm, &m->tickets[i->task])) return STATUS_OK;
    *moved = true;
  }
  return STATUS_OK;
}

static inline status team_stuck(const team *t) {
  char text[512] = "";
  for (uint32_t r = 0; r < t->n; r++) {
    const team_member *m = &t->members[r];
    if (m->at == t->plans[r]->n_instrs) continue;
    uint32_t post = t->plans[r]->instrs[m->at].task;
    t->endpoints[r]->ops->describe(t->endpoints[r], &m->tickets[post], text, sizeof text);
    break;
  }
  return fail(STATUS_UNAVAILABLE, "stuck: %s", text);
}

static inline bool team_is_done(const team *t) {
  for (uint32_t r = 0; r < t->n; r++) {
    const team_member *m = &t->members[r];
    if (m->at < t->plans[r]->n_instrs) return false;
  }
  return true;
}

static inline status team_steps(team *t) {
  while (!team_is_done(t)) {
    bool moved = false;
    for (uint32_t r = 0; r < t->n; r++) TRY(team_advance(t, r, &moved));
    for (uint32_t r = 0; r < t->n; r++) {
      while (t->endpoints[r]->ops->progress(t->endpoints[r])) moved = true;
      TRY(t->endpoints[r]->ops->error(t->endpoints[r]));
    }
    if (!moved) return team_stuck(t);
  }
  return STATUS_OK;
}

static inline bool team_step(team *t) {
  rt_comm_options options = {.ranks = t->n};
  status st =
      rt_comm_inproc.open(&options, &memory_default, TEAM_MAX, t->endpoints, &t->n_endpoints);
  if (!kit_ok(st, "open the world")) return false;
  team_cut(t);
  for (uint32_t r = 0; r < t->n; r++) team_member_begin(t, r);
  return kit_ok(team_steps(t), "in program order") && team_assemble(t);
}

/* The endpoints of all ranks of a program, in this process. */
static inline status kit_ranks_open(session_ranks *r, const ir_func *host, uint32_t devices,
                                    int64_t timeout_ns, rt_device *device) {
  session_place place;
  TRY(session_place_find(host, "inproc", NULL, devices, &place));
  TRY(session_ranks_open(r, &place, timeout_ns, device, &memory_default));
  return session_ranks_need(r, &memory_default);
}

#endif
