/* Waits for a run that may never end by itself: one whose communications NCCL carries out.
 *
 * Every stream is followed through its steps by the events that it records. The step it has reached tells whether
 * it can make progress without other ranks: a stream that computes or copies does, one that waits for an event does
 * not, and one that is in a communication does only when that ends. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/cuda/device.h"
#include "device/cuda/run.h"

typedef enum place { IS_DONE, COMPUTES, WAITS, COMMUNICATES } place;

/* ---- where streams are ---- */
static bool has_passed(const cuda_loaded *l, uint32_t event) {
  return l->cu->cuEventQuery(l->events[event]) != CUDA_ERROR_NOT_READY;
}

/* Notes that all steps up to a record that has passed are done. True: some were not done before. */
static bool follow(cuda_loaded *l, uint32_t stream) {
  cuda_watched *w = &l->watched[stream];
  uint32_t before = w->done;
  for (uint32_t i = w->done; i < w->n; i++) {
    const issue_step *s = &l->order.steps.data[w->steps[i]];
    if (s->kind != ISSUE_RECORD) continue;
    if (!has_passed(l, s->index)) break;
    w->done = i + 1;
  }
  return w->done > before;
}

/* What the stream does now; *at: the step it has reached. */
static place place_of(const cuda_loaded *l, uint32_t stream, uint32_t *at) {
  const cuda_watched *w = &l->watched[stream];
  for (uint32_t i = w->done; i < w->n; i++) {
    const issue_step *s = &l->order.steps.data[w->steps[i]];
    *at = w->steps[i];
    switch ((issue_step_kind)s->kind) {
    case ISSUE_WAIT:
      if (!has_passed(l, s->index)) return WAITS;
      break;
    case ISSUE_COMM: return COMMUNICATES;
    case ISSUE_LAUNCH:
    case ISSUE_COPY:
    case ISSUE_FOLD: return COMPUTES;
    case ISSUE_RECORD: break;
    }
  }
  return IS_DONE;
}

typedef struct sight {
  bool moved;    /* something happened since the last check */
  bool computes; /* something may be happening */
} sight;

static sight look_at_streams(cuda_loaded *l) {
  sight seen = {0};
  for (uint32_t s = 0; s < l->n_streams; s++)
    if (l->streams[s].used) seen.moved = follow(l, s) || seen.moved;
  for (uint32_t s = 0; s < l->n_streams && !seen.computes; s++) {
    uint32_t at;
    bool busy = l->streams[s].used && place_of(l, s, &at) == COMPUTES;
    seen.computes = busy && l->cu->cuStreamQuery(l->streams[s].handle) == CUDA_ERROR_NOT_READY;
  }
  return seen;
}

/* ---- words ---- */
typedef struct text_call {
  cuda_loaded *l;
  uint32_t post;
  char *text;
  size_t size_bytes;
} text_call;

static status make_text(void *context) {
  text_call *c = context;
  const rt_plan *plan = c->l->plan;
  rt_comm_request r = rt_post_request(&plan->posts[c->post], NULL, NULL);
  strbuf where;
  strbuf_init(&where, &c->l->memory);
  for (uint32_t i = 0; i < plan->n_instrs && plan->host; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_POST && instr->task == c->post) rt_place(plan, i, &where);
  }
  r.origin = plan->host ? where.data : NULL;
  rt_comm_request_text(&r, c->text, c->size_bytes);
  return STATUS_OK;
}

void cuda_comm_text(cuda_loaded *l, uint32_t comm, char *text, size_t size_bytes) {
  const rt_post *p = &l->plan->posts[l->order.comms.data[comm].post];
  char what[256];
  text_call c = {l, l->order.comms.data[comm].post, what, sizeof what};
  if (memory_guard(make_text, &c) != STATUS_OK)
    (void)snprintf(what, sizeof what, "%s", ir_comm_text(p->kind));
  rt_comm_line line = rt_comm_line_of(text, size_bytes);
  rt_comm_line_add(&line, "%s on team ", what);
  rt_comm_line_add_team(&line, p->team, p->n_team);
}

/* The first communication of the circle that is under way; in a graph, its first one. */
static uint32_t find_comm(const cuda_loaded *l, uint32_t circle) {
  uint32_t at;
  for (uint32_t s = l->plan->n_streams; s < l->n_streams && !l->replaying; s++) {
    if (!l->streams[s].used || place_of(l, s, &at) != COMMUNICATES) continue;
    uint32_t comm = l->order.steps.data[at].index;
    if (l->order.comms.data[comm].circle == circle) return comm;
  }
  for (uint32_t i = 0; i < l->order.comms.len; i++)
    if (l->order.comms.data[i].circle == circle) return i;
  return 0;
}

static status report_stillness(cuda_loaded *l) {
  char text[1024] = "", comm[384];
  uint32_t at;
  rt_comm_line line = rt_comm_line_of(text, sizeof text);
  if (l->replaying) {
    cuda_comm_text(l, 0, comm, sizeof comm);
    rt_comm_line_add(&line, " in a graph with %u communications, the first of which is %s",
                     l->order.comms.len, comm);
  }
  for (uint32_t s = l->plan->n_streams; s < l->n_streams && !l->replaying; s++) {
    if (!l->streams[s].used || place_of(l, s, &at) != COMMUNICATES) continue;
    uint32_t i = l->order.steps.data[at].index;
    cuda_comm_text(l, i, comm, sizeof comm);
    rt_comm_line_add(&line, "%srank %u waits for %s", line.used ? "; " : ": ",
                     l->plan->posts[l->order.comms.data[i].post].rank, comm);
  }
  if (l->share) return cuda_world_give_up(&l->device->world, line.used ? text + 2 : "");
  return fail(STATUS_UNAVAILABLE, "no progress in %g s%s", (double)l->device->timeout_ns / 1e9,
              text);
}

/* ---- waiting ---- */
/* Have all streams with which a run ends ended? An error of the driver ends it too. */
static bool have_ended(const cuda_loaded *l, bool all, CUresult *result) {
  bool ended = true;
  for (uint32_t s = 0; s < l->n_streams && *result == CUDA_SUCCESS; s++) {
    bool counts = l->replaying ? s == 0 : all ? l->streams[s].used : l->streams[s].is_last;
    if (!counts) continue;
    CUresult r = l->cu->cuStreamQuery(l->streams[s].handle);
    if (r == CUDA_ERROR_NOT_READY) ended = false;
    else *result = r;
  }
  return ended || *result != CUDA_SUCCESS;
}

/* Yields at first, so that short waits are not longer than needed; then sleeps, so that long ones take no core. */
static void pause_for(int64_t waited_ns) {
  enum { SPIN_NS = 300000, NAP_NS = 20000, LONG_NS = 300000, LATER = 20000000 };
  if (waited_ns < SPIN_NS) {
    (void)sched_yield();
    return;
  }
  struct timespec t = {0, waited_ns < LATER ? NAP_NS : LONG_NS};
  (void)nanosleep(&t, NULL);
}

/* After an abort streams end soon. If they do not, nothing that they use may be freed. */
static void drain(cuda_loaded *l) {
  const int64_t most_ns = INT64_C(10000000000);
  int64_t start_ns = rt_clock_ns();
  CUresult result = CUDA_SUCCESS;
  while (!l->is_stuck && !have_ended(l, true, &result)) {
    int64_t waited_ns = rt_clock_ns() - start_ns;
    l->is_stuck = waited_ns > most_ns;
    pause_for(waited_ns);
  }
}

static status check_errors(cuda_loaded *l) {
  uint32_t circle = 0;
  int result = 0;
  if (!cuda_nccl_has_failed(l, &circle, &result)) return STATUS_OK;
  l->failed_nccl = (cuda_nccl_error){result, find_comm(l, circle)};
  return cuda_nccl_failure(l);
}

/* Tells others which communication this rank's process is in, if it is in one. */
static void tell_place(cuda_loaded *l) {
  uint32_t at;
  for (uint32_t s = l->plan->n_streams; s < l->n_streams; s++) {
    if (!l->streams[s].used || place_of(l, s, &at) != COMMUNICATES) continue;
    uint32_t post = l->order.comms.data[l->order.steps.data[at].index].post;
    cuda_world_tell_place(&l->device->world, l->share->places[post]);
    return;
  }
}

/* Has nothing moved for too long? If ranks are processes, the progress of others counts, and they are told of this
 * one's. */
static bool is_still(cuda_loaded *l, const sight *seen, int64_t moved_ns) {
  cuda_world *w = &l->device->world;
  int64_t most_ns = l->device->timeout_ns;
  if (!l->share) return most_ns > 0 && rt_clock_ns() - moved_ns >= most_ns;
  cuda_world_tell(w, seen->computes, seen->moved);
  tell_place(l);
  return cuda_world_is_still(w, moved_ns);
}

/* Called from time to time: checks for errors, and whether anything moves. A graph does not show its progress. */
static status look(cuda_loaded *l, int64_t now_ns, int64_t *moved_ns) {
  sight seen = {0};
  /* mutant: cuda_nccl_failure_unseen */
  if (l->share) TRY(l->share->endpoint->ops->error(l->share->endpoint));
  TRY(check_errors(l));
  if (!l->replaying) seen = look_at_streams(l);
  /* mutant: cuda_watch_forgets_events */
  if (seen.moved || seen.computes) *moved_ns = now_ns;
  return is_still(l, &seen, *moved_ns) ? report_stillness(l) : STATUS_OK;
}

static status wait_for_end(cuda_loaded *l, bool all) {
  const int64_t between_ns = 5000000;
  int64_t start_ns = rt_clock_ns(), moved_ns = start_ns, looked_ns = start_ns;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t s = 0; s < l->n_streams; s++) l->watched[s].done = 0;
  while (!have_ended(l, all, &result)) {
    int64_t now_ns = rt_clock_ns();
    if (now_ns - looked_ns > between_ns) {
      TRY(look(l, now_ns, &moved_ns));
      looked_ns = now_ns;
    }
    pause_for(now_ns - start_ns);
  }
  TRY(cuda_run_try(l, result));
  return check_errors(l);
}

void cuda_watch_release(cuda_loaded *l) {
  /* mutant: cuda_nccl_never_aborted */
  cuda_nccl_abort(l->device->nccl);
  l->current_gpu = UINT32_MAX; /* NCCL leaves another context, or none */
  if (cuda_run_make_current(l, l->share ? l->share->me : 0) == CUDA_SUCCESS) drain(l);
}

status cuda_watch(cuda_loaded *l) {
  bool failed = l->failed != CUDA_SUCCESS;
  status st = failed ? STATUS_OK : wait_for_end(l, false);
  if (l->share || (!failed && st == STATUS_OK)) return st;
  cuda_watch_release(l);
  return st;
}

status cuda_nccl_failure(cuda_loaded *l) {
  char why[512], what[384], text[512];
  const cuda_world *w = &l->device->world;
  const issue_comm *c = &l->order.comms.data[l->failed_nccl.comm];
  uint32_t rank = l->plan->posts[c->post].rank;
  cuda_nccl_error_text(l->device->nccl, l->failed_nccl.result, why, sizeof why);
  cuda_comm_text(l, l->failed_nccl.comm, what, sizeof what);
  if (l->share && cuda_nccl_is_waiting(l->failed_nccl.result)) {
    (void)snprintf(text, sizeof text, "rank %u waits for %s", rank, what);
    return cuda_world_give_up(w, text);
  }
  /* NCCL reports a rank that has died as an error of the network */
  if (l->share && cuda_world_listen(w)) return w->endpoint->ops->error(w->endpoint);
  return fail(STATUS_UNAVAILABLE, "cuda: NCCL failed at rank %u's %s: %s", rank, what, why);
}

/* ---- the steps to follow ---- */
void cuda_watch_prepare(cuda_loaded *l) {
  const issue_order *o = &l->order;
  l->watched = ARENA_ARRAY(&l->memory, l->n_streams, cuda_watched);
  for (uint32_t i = 0; i < o->steps.len; i++) l->watched[o->steps.data[i].stream].n++;
  for (uint32_t s = 0; s < l->n_streams; s++) {
    l->watched[s].steps = ARENA_ARRAY(&l->memory, l->watched[s].n, uint32_t);
    l->watched[s].n = 0;
  }
  for (uint32_t i = 0; i < o->steps.len; i++) {
    cuda_watched *w = &l->watched[o->steps.data[i].stream];
    w->steps[w->n++] = i;
  }
}
