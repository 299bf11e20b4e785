#include "device/cpu/device_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- endpoints ---- */
void cpu_world_attach(cpu_world *w, rt_comm *const *endpoints, uint32_t n, int64_t timeout_ns) {
  check(n <= RT_COMM_MAX_RANKS);
  for (uint32_t i = 0; i < n; i++) w->endpoints[i] = endpoints[i];
  w->n = n;
  w->timeout_ns = timeout_ns;
  w->fault = (rt_fault){.after = RT_NEVER};
  if (n == 1) w->fault = rt_fault_of(endpoints[0]->rank);
}

int64_t cpu_world_stirred_ns(const cpu_world *w) {
  rt_comm *e = w->n ? w->endpoints[0] : NULL;
  return e && e->ops->stirred ? e->ops->stirred(e) : 0;
}

static rt_comm *endpoint_of(const cpu_comms *c, uint32_t post) {
  return c->world->endpoints[c->at[post].rank];
}

/* ---- loading ---- */
static const char *place_of(const rt_plan *plan, uint32_t instr, arena *memory) {
  strbuf text;
  strbuf_init(&text, memory);
  rt_place(plan, instr, &text);
  return text.data;
}

static void find_posts(cpu_comms *c) {
  const rt_plan *plan = c->program->plan;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    const char **place = &c->places[instr->origin];
    if (!*place) *place = place_of(plan, i, &c->program->memory);
    if (instr->kind != RT_POST) continue;
    uint16_t rank = (uint16_t)rt_plan_rank(plan, instr->stream);
    c->at[instr->task] = (cpu_post_place){i, instr->stream, rank};
  }
}

/* ---- states ---- */
static uint64_t state_of(uint32_t turn, cpu_post_state state) {
  return (uint64_t)turn << 2 | state;
}

static bool is_begun(const cpu_comms *c, uint32_t post, uint32_t turn) {
  return atomic_load(&c->states[post]) > state_of(turn, CPU_UNPOSTED);
}

/* Between the end of one repetition's communication and the next post. */
static void keep_ticket(cpu_ticket *to, const rt_comm_ticket *t) {
  atomic_thread_fence(memory_order_release);
  for (int k = 0; k < 2; k++) {
    atomic_store_explicit(&to->where[k], t->half[k].where, memory_order_relaxed);
    atomic_store_explicit(&to->turn[k], t->half[k].turn, memory_order_relaxed);
  }
}

/* If the state is the same before and after it, the ticket is of that repetition. */
static rt_comm_ticket ticket_of(const cpu_comms *c, uint32_t post) {
  const cpu_ticket *from = &c->tickets[post];
  rt_comm_ticket t;
  for (int k = 0; k < 2; k++) {
    t.half[k].where = atomic_load_explicit(&from->where[k], memory_order_relaxed);
    t.half[k].turn = atomic_load_explicit(&from->turn[k], memory_order_relaxed);
  }
  atomic_thread_fence(memory_order_acquire);
  return t;
}

bool cpu_comms_is_posted(const cpu_comms *c, uint32_t post, uint32_t *turn) {
  uint64_t now = atomic_load(&c->states[post]);
  *turn = (uint32_t)(now >> 2);
  return (now & 3) == CPU_POSTED;
}

/* Without loops a span has the number of its post. */
static rt_span *span_of(const cpu_comms *c, const rt_entry *entry) {
  return &c->spans[c->program->plan->n_loops ? entry->launch : entry->task];
}

static status build(void *context) {
  cpu_comms *c = context;
  const rt_plan *plan = c->program->plan;
  arena *memory = &c->program->memory;
  uint32_t most = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].origin > most) most = plan->instrs[i].origin;
  c->at = ARENA_ARRAY(memory, c->n, cpu_post_place);
  c->states = arena_array(memory, c->n, sizeof *c->states);
  c->tickets = arena_array(memory, c->n, sizeof *c->tickets);
  c->span_of = arena_array(memory, c->n, sizeof *c->span_of);
  c->places = ARENA_ARRAY(memory, (size_t)most + 1, const char *);
  c->told = ARENA_ARRAY(memory, c->n_ranks, bool);
  find_posts(c);
  return STATUS_OK;
}

/* The world may have been replaced since the plan was loaded. */
static status check_world(const cpu_comms *c) {
  if (c->world->n < c->n_ranks)
    return fail(STATUS_BAD_USAGE, "the plan communicates for %u ranks, the device has %u endpoints",
                c->n_ranks, c->world->n);
  for (uint32_t p = 0; p < c->n; p++) {
    uint32_t rank = c->program->plan->posts[p].rank;
    if (endpoint_of(c, p)->rank != rank)
      return fail(STATUS_BAD_USAGE, "the plan posts as rank %u, but its endpoint is rank %u", rank,
                  endpoint_of(c, p)->rank);
  }
  return STATUS_OK;
}

/* Neighbouring posts are often on the same team; of others a backend knows itself that it has them. */
static status prepare_teams(const cpu_comms *c) {
  const rt_post *before = NULL;
  for (uint32_t p = 0; p < c->n; p++) {
    const rt_post *post = &c->program->plan->posts[p];
    rt_comm *e = endpoint_of(c, p);
    if (!e->ops->prepare || ir_comm_is_message(post->kind)) continue;
    if (before && before->team == post->team && before->rank == post->rank) continue;
    TRY(e->ops->prepare(e, post->team, post->n_team));
    before = post;
  }
  return STATUS_OK;
}

status cpu_comms_init(cpu_comms *c, cpu_program *program, const cpu_world *world,
                      cpu_errors *errors) {
  const rt_plan *plan = program->plan;
  *c = (cpu_comms){.program = program, .world = world, .errors = errors, .n = plan->n_posts};
  if (c->n == 0) return STATUS_OK;
  c->n_ranks = plan->n_ranks ? plan->n_ranks : 1;
  TRY(memory_guard(build, c));
  TRY(check_world(c));
  return prepare_teams(c);
}

/* ---- runs ---- */
/* Of those that are never posted. */
static void begin_spans(const cpu_comms *c) {
  const rt_plan *plan = c->program->plan;
  uint32_t number = 0, k = 0;
  for (rt_cursor at = {.plan = plan}; rt_cursor_next(&at); number++) {
    const rt_instr *i = &plan->instrs[at.instr];
    if (i->kind != RT_POST) continue;
    uint32_t span = plan->n_loops ? k++ : i->task;
    c->spans[span] = (rt_span){.instr = number, .stream = i->stream};
  }
}

status cpu_comms_begin(cpu_comms *c, rt_span *spans, int64_t origin_ns) {
  if (c->n == 0) return STATUS_OK;
  TRY(check_world(c));
  c->spans = spans ? spans + rt_plan_n_launched(c->program->plan) : NULL;
  c->origin_ns = origin_ns;
  atomic_store(&c->oldest, 0);
  atomic_store(&c->stopped, false);
  for (uint32_t p = 0; p < c->n; p++) {
    atomic_store_explicit(&c->states[p], state_of(0, CPU_UNPOSTED), memory_order_relaxed);
  }
  if (c->spans) begin_spans(c);
  return STATUS_OK;
}

static void *address_of(const cpu_comms *c, uint32_t view, uint32_t turn) {
  if (view == RT_NO_VIEW) return NULL;
  const rt_view *v = &c->program->plan->views[view];
  return c->program->bases[v->buffer] + v->offset_bytes + v->step_bytes * turn;
}

static rt_comm_request request_of(const cpu_comms *c, uint32_t post, uint32_t turn) {
  const rt_plan *plan = c->program->plan;
  rt_post p = rt_post_in_turn(&plan->posts[post], turn);
  rt_comm_request r = rt_post_request(&p, address_of(c, p.in, turn), address_of(c, p.out, turn));
  r.origin = c->places[plan->instrs[c->at[post].instr].origin];
  return r;
}

/* If the world has failed, so has the run: nothing may be computed from what did not arrive. */
static bool note_failure(cpu_comms *c, rt_comm *endpoint) {
  status st = endpoint->ops->error(endpoint);
  if (st == STATUS_OK) return false;
  cpu_errors_stop(c->errors, st);
  atomic_store(&c->stopped, true);
  return true;
}

/* What one request did wrong is the error of its instruction, unless it ended the world. Of a post that
 * failed half way the backend may still use the buffers; its ticket tells how long. */
static cpu_post_state refused(cpu_comms *c, const rt_entry *entry, const rt_comm_ticket *t,
                              status st) {
  cpu_errors_keep(c->errors, entry->instr, 0, st);
  (void)note_failure(c, endpoint_of(c, entry->task));
  return t->half[0].where || t->half[1].where ? CPU_POSTED : CPU_SKIPPED;
}

/* Spans end when the end is seen, so traced runs look often. */
static void see_ends(cpu_comms *c) {
  enum { SEEN_AT_ONCE = 64 };
  uint32_t first = atomic_load_explicit(&c->oldest, memory_order_relaxed), oldest = first;
  bool all = true;
  for (uint32_t p = first; p < c->n && p < first + SEEN_AT_ONCE; p++) {
    uint32_t turn = (uint32_t)(atomic_load(&c->states[p]) >> 2);
    bool passed = cpu_comms_passed(c, p, turn);
    all = all && passed && turn == rt_post_last_turn(c->program->plan, p);
    if (all) oldest = p + 1;
  }
  if (oldest > first) atomic_store_explicit(&c->oldest, oldest, memory_order_relaxed);
}

void cpu_comms_post(cpu_comms *c, const rt_entry *entry, uint32_t thread) {
  uint32_t post = entry->task;
  cpu_post_state state = CPU_SKIPPED;
  if (entry->instr < atomic_load_explicit(&c->errors->first, memory_order_relaxed)) {
    rt_comm *e = endpoint_of(c, post);
    rt_comm_request r = request_of(c, post, entry->turn);
    if (c->spans) {
      rt_span *span = span_of(c, entry);
      span->worker = (uint16_t)thread;
      span->start_ns = span->end_ns = rt_clock_ns() - c->origin_ns;
      atomic_store_explicit(&c->span_of[post], (uint32_t)(span - c->spans), memory_order_relaxed);
    }
    rt_comm_ticket ticket = {0};
    status st = e->ops->post(e, &r, &ticket);
    state = st == STATUS_OK ? CPU_POSTED : refused(c, entry, &ticket, st);
    keep_ticket(&c->tickets[post], &ticket);
  }
  atomic_store(&c->states[post], state_of(entry->turn, state));
  if (c->spans) see_ends(c);
}

bool cpu_comms_passed(cpu_comms *c, uint32_t post, uint32_t turn) {
  uint64_t now = atomic_load(&c->states[post]);
  if (now >> 2 != turn) return now >> 2 > turn;
  switch ((cpu_post_state)(now & 3)) {
  case CPU_UNPOSTED: return false;
  case CPU_DONE:
  case CPU_SKIPPED: return true;
  case CPU_POSTED: break;
  }
  rt_comm *e = endpoint_of(c, post);
  rt_comm_ticket ticket = ticket_of(c, post);
  uint32_t span = atomic_load_explicit(&c->span_of[post], memory_order_relaxed);
  if (atomic_load(&c->states[post]) != now) return true; /* somebody else saw the end */
  if (!e->ops->done(e, &ticket)) return false;
  (void)note_failure(c, e);
  bool first = atomic_compare_exchange_strong(&c->states[post], &now, state_of(turn, CPU_DONE));
  if (first && c->spans) c->spans[span].end_ns = rt_clock_ns() - c->origin_ns;
  return true;
}

bool cpu_comms_may_pass(cpu_comms *c, const rt_entry *entry) {
  if (entry->kind == RT_JOIN) return cpu_comms_passed(c, entry->task, entry->turn);
  uint32_t turn = entry->turn, before = rt_post_before(c->program->plan, entry->task, &turn);
  return before == RT_NO_POST || is_begun(c, before, turn);
}

bool cpu_comms_progress(cpu_comms *c, uint32_t turn) {
  rt_comm *e = c->world->endpoints[turn % c->n_ranks];
  bool moved = e->ops->progress(e);
  if (c->spans) see_ends(c);
  return moved;
}

bool cpu_comms_progress_any(cpu_comms *c) {
  bool moved = false;
  for (uint32_t r = 0; r < c->n_ranks && !moved; r++) moved = cpu_comms_progress(c, r);
  return moved;
}

/* ---- errors ---- */
bool cpu_comms_is_failing(const cpu_comms *c) {
  return atomic_load(&c->errors->first) != UINT32_MAX && !atomic_load(&c->stopped);
}

void cpu_comms_abort(cpu_comms *c) {
  char text[sizeof c->errors->message + 512];
  const rt_plan *plan = c->program->plan;
  (void)pthread_mutex_lock(&c->errors->lock);
  uint32_t instr = rt_plan_nth(plan, c->errors->instr);
  uint32_t rank = rt_plan_rank(plan, plan->instrs[instr].stream);
  rt_comm *e = c->world->endpoints[rank];
  status st = c->errors->st;
  uint32_t line = c->errors->placed ? rt_line(plan, instr) : 0;
  const char *message = c->errors->message;
  if (line)
    (void)snprintf(text, sizeof text, "rank %u: %s:%u: %s", e->rank, plan->host->module->src.name,
                   line, message);
  else (void)snprintf(text, sizeof text, "rank %u: %s", e->rank, message);
  (void)pthread_mutex_unlock(&c->errors->lock);
  e->ops->abort(e, st, text);
  (void)note_failure(c, e);
}

static int compare_numbers(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* "file:9: rank 0 waits for …": what a stream waits for at this join. */
static int describe_join(const cpu_comms *c, uint32_t join, char *text, size_t size_bytes) {
  const rt_instr *i = &c->program->plan->instrs[join];
  uint32_t post = i->task;
  rt_comm *e = endpoint_of(c, post);
  char what[512];
  rt_comm_ticket ticket = ticket_of(c, post);
  uint32_t turn;
  if (cpu_comms_is_posted(c, post, &turn)) e->ops->describe(e, &ticket, what, sizeof what);
  else
    (void)snprintf(what, sizeof what, "rank %u waits for the %s at %s, which it has not posted",
                   e->rank, ir_comm_text(c->program->plan->posts[post].kind),
                   c->places[c->program->plan->instrs[c->at[post].instr].origin]);
  return snprintf(text, size_bytes, "%s: %s", c->places[i->origin], what);
}

/* One line per rank, for the first few: those that wait in a circle are all named. */
static void describe_joins(const cpu_comms *c, const uint32_t *joins, uint32_t n, char *text,
                           size_t size_bytes) {
  enum { SHOWN = 3 };
  size_t used = 0;
  uint32_t ranks = 0;
  memset(c->told, 0, c->n_ranks);
  for (uint32_t k = 0; k < n && used < size_bytes; k++) {
    uint32_t rank = c->at[c->program->plan->instrs[joins[k]].task].rank;
    if (c->told[rank]) continue;
    c->told[rank] = true;
    if (ranks++ >= SHOWN) continue;
    if (ranks > 1) used += (size_t)snprintf(text + used, size_bytes - used, "; ");
    if (used < size_bytes)
      used += (size_t)describe_join(c, joins[k], text + used, size_bytes - used);
  }
  if (ranks > SHOWN && used < size_bytes)
    (void)snprintf(text + used, size_bytes - used, "; %u more ranks wait", ranks - SHOWN);
}

void cpu_comms_time_out(cpu_comms *c, uint32_t *joins, uint32_t n) {
  char text[1024];
  for (uint32_t k = 0; k < n; k++) joins[k] = rt_plan_nth(c->program->plan, joins[k]);
  if (n) qsort(joins, n, sizeof *joins, compare_numbers);
  int used =
      snprintf(text, sizeof text, "no progress in %.3g s: ", (double)c->world->timeout_ns * 1e-9);
  describe_joins(c, joins, n, text + used, sizeof text - (size_t)used);
  rt_comm *e = c->world->endpoints[0];
  e->ops->abort(e, STATUS_UNAVAILABLE, text);
  (void)note_failure(c, e);
}

void cpu_comms_end(cpu_comms *c) {
  for (uint32_t p = 0; p < c->n; p++) {
    rt_comm *e = endpoint_of(c, p);
    uint32_t turn;
    if (!cpu_comms_is_posted(c, p, &turn) || cpu_comms_passed(c, p, turn)) continue;
    if (cpu_comms_is_failing(c)) cpu_comms_abort(c);
    int64_t timeout_ns = c->world->timeout_ns > 0 ? c->world->timeout_ns : -1;
    rt_comm_ticket ticket = ticket_of(c, p);
    if (e->ops->wait(e, &ticket, timeout_ns) != STATUS_OK) status_clear();
    (void)cpu_comms_passed(c, p, turn);
  }
  if (c->n == 0) return;
  if (cpu_comms_is_failing(c)) cpu_comms_abort(c);
  else (void)note_failure(c, c->world->endpoints[0]);
}
