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

static status build(void *context) {
  cpu_comms *c = context;
  const rt_plan *plan = c->program->plan;
  arena *memory = &c->program->memory;
  uint32_t most = 0;
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].origin > most) most = plan->instrs[i].origin;
  c->at = ARENA_ARRAY(memory, c->n, cpu_post_place);
  c->states = arena_array(memory, c->n, sizeof *c->states);
  c->tickets = ARENA_ARRAY(memory, c->n, rt_comm_ticket);
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
status cpu_comms_begin(cpu_comms *c, rt_span *spans, int64_t origin_ns) {
  if (c->n == 0) return STATUS_OK;
  TRY(check_world(c));
  c->spans = spans ? spans + c->program->plan->n_tasks : NULL;
  c->origin_ns = origin_ns;
  atomic_store(&c->oldest, 0);
  atomic_store(&c->stopped, false);
  for (uint32_t p = 0; p < c->n; p++) {
    atomic_store_explicit(&c->states[p], CPU_UNPOSTED, memory_order_relaxed);
    if (c->spans) c->spans[p] = (rt_span){.instr = c->at[p].instr, .stream = c->at[p].stream};
  }
  return STATUS_OK;
}

static void *address_of(const cpu_comms *c, uint32_t view) {
  if (view == RT_NO_VIEW) return NULL;
  const rt_view *v = &c->program->plan->views[view];
  return c->program->bases[v->buffer] + v->offset_bytes;
}

static rt_comm_request request_of(const cpu_comms *c, uint32_t post) {
  const rt_plan *plan = c->program->plan;
  const rt_post *p = &plan->posts[post];
  rt_comm_request r = rt_post_request(p, address_of(c, p->in), address_of(c, p->out));
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
static cpu_post_state refused(cpu_comms *c, uint32_t post, status st) {
  const rt_comm_ticket *t = &c->tickets[post];
  cpu_errors_keep(c->errors, c->at[post].instr, 0, st);
  (void)note_failure(c, endpoint_of(c, post));
  return t->half[0].where || t->half[1].where ? CPU_POSTED : CPU_SKIPPED;
}

/* Spans end when the end is seen, so traced runs look often. */
static void see_ends(cpu_comms *c) {
  enum { SEEN_AT_ONCE = 64 };
  uint32_t first = atomic_load_explicit(&c->oldest, memory_order_relaxed), oldest = first;
  bool all = true;
  for (uint32_t p = first; p < c->n && p < first + SEEN_AT_ONCE; p++) {
    all = cpu_comms_passed(c, p) && all;
    if (all) oldest = p + 1;
  }
  if (oldest > first) atomic_store_explicit(&c->oldest, oldest, memory_order_relaxed);
}

void cpu_comms_post(cpu_comms *c, const rt_entry *entry, uint32_t thread) {
  uint32_t post = entry->task;
  cpu_post_state state = CPU_SKIPPED;
  if (entry->instr < atomic_load_explicit(&c->errors->first, memory_order_relaxed)) {
    rt_comm *e = endpoint_of(c, post);
    rt_comm_request r = request_of(c, post);
    if (c->spans) {
      c->spans[post].worker = (uint16_t)thread;
      c->spans[post].start_ns = c->spans[post].end_ns = rt_clock_ns() - c->origin_ns;
    }
    c->tickets[post] = (rt_comm_ticket){0};
    status st = e->ops->post(e, &r, &c->tickets[post]);
    state = st == STATUS_OK ? CPU_POSTED : refused(c, post, st);
  }
  atomic_store(&c->states[post], (uint8_t)state);
  if (c->spans) see_ends(c);
}

bool cpu_comms_passed(cpu_comms *c, uint32_t post) {
  switch ((cpu_post_state)atomic_load(&c->states[post])) {
  case CPU_UNPOSTED: return false;
  case CPU_DONE:
  case CPU_SKIPPED: return true;
  case CPU_POSTED: break;
  }
  rt_comm *e = endpoint_of(c, post);
  if (!e->ops->done(e, &c->tickets[post])) return false;
  (void)note_failure(c, e);
  uint8_t posted = CPU_POSTED;
  bool first = atomic_compare_exchange_strong(&c->states[post], &posted, CPU_DONE);
  if (first && c->spans) c->spans[post].end_ns = rt_clock_ns() - c->origin_ns;
  return true;
}

bool cpu_comms_may_pass(cpu_comms *c, const rt_entry *entry) {
  if (entry->kind == RT_JOIN) return cpu_comms_passed(c, entry->task);
  uint32_t before = c->program->plan->posts[entry->task].before;
  return before == RT_NO_POST || atomic_load(&c->states[before]) != CPU_UNPOSTED;
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
  uint32_t rank = rt_plan_rank(plan, plan->instrs[c->errors->instr].stream);
  rt_comm *e = c->world->endpoints[rank];
  status st = c->errors->st;
  uint32_t line = c->errors->placed ? rt_line(plan, c->errors->instr) : 0;
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
  if (atomic_load(&c->states[post]) != CPU_UNPOSTED)
    e->ops->describe(e, &c->tickets[post], what, sizeof what);
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
    if (atomic_load(&c->states[p]) != CPU_POSTED || cpu_comms_passed(c, p)) continue;
    if (cpu_comms_is_failing(c)) cpu_comms_abort(c);
    int64_t timeout_ns = c->world->timeout_ns > 0 ? c->world->timeout_ns : -1;
    if (e->ops->wait(e, &c->tickets[p], timeout_ns) != STATUS_OK) status_clear();
    (void)cpu_comms_passed(c, p);
  }
  if (c->n == 0) return;
  if (cpu_comms_is_failing(c)) cpu_comms_abort(c);
  else (void)note_failure(c, c->world->endpoints[0]);
}
