/* Runs of a plan whose ranks are processes: flags, the watch, and the end that all wait for. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "device/cuda/device.h"
#include "device/issue/meet.h"

static cuda_world *world_of(const cuda_share *s) { return &s->loaded->device->world; }

static bool is_over(const cuda_share *s) { return atomic_load(&s->head->is_over) != 0; }

/* ---- steps ---- */
static CUresult set_state(const cuda_loaded *l, uint32_t stream, uint64_t state) {
  return l->cu->cuStreamWriteValue64(l->streams[stream].handle, cuda_share_state(l->share, stream),
                                     state, CU_STREAM_WRITE_VALUE_DEFAULT);
}

CUresult cuda_share_wait(cuda_loaded *l, uint32_t step, CUstream stream) {
  const cuda_share *s = l->share;
  const issue_step *x = &l->order.steps.data[step];
  bool is_here = s->split.rank_of_event[x->index] == s->me;
  CUresult r = set_state(l, x->stream, (uint64_t)x->index + 1);
  if (r != CUDA_SUCCESS) return r;
  if (is_here) r = l->cu->cuStreamWaitEvent(stream, l->events[x->index], 0);
  /* mutant: cuda_flags_of_any_run */
  else
    r = l->cu->cuStreamWaitValue64(stream, cuda_share_flag(s, s->split.flag_of[x->index]), s->run,
                                   s->wait_flags);
  if (r == CUDA_SUCCESS) r = set_state(l, x->stream, 0);
  if (r != CUDA_SUCCESS || is_here || !l->spans) return r;
  return l->cu->cuEventRecord(cuda_trace_twin(l, x->index), stream);
}

/* A process that sees the flag also sees what the stream wrote before. */
CUresult cuda_share_record(cuda_loaded *l, uint32_t event, CUstream stream) {
  const cuda_share *s = l->share;
  uint32_t flag = s->split.flag_of[event];
  if (flag == ISSUE_NO_FLAG) return CUDA_SUCCESS;
  return l->cu->cuStreamWriteValue64(stream, cuda_share_flag(s, flag), s->run,
                                     CU_STREAM_WRITE_VALUE_DEFAULT);
}

CUresult cuda_share_end(cuda_loaded *l) {
  CUresult r = CUDA_SUCCESS;
  for (uint32_t i = 0; i < l->n_streams && r == CUDA_SUCCESS; i++)
    if (l->streams[i].used) r = set_state(l, i, CUDA_ENDED);
  return r;
}

/* ---- what this rank does ---- */
typedef struct view {
  bool is_busy; /* some stream runs, or is not issued yet */
  uint64_t sum;
} view;

static view look(const cuda_share *s) {
  const cuda_loaded *l = s->loaded;
  view v = {0};
  for (uint32_t i = 0; i < l->n_streams; i++) {
    if (!l->streams[i].used) continue;
    uint64_t state = atomic_load(&s->states[i]);
    if (state == 0) v.is_busy = true;
    v.sum = v.sum * 31 + state;
  }
  return v;
}

/* ---- which rank waits for what ---- */
/* Adds ": rank 1 has not posted it"; false: all members have, as far as flags tell. */
static bool add_absent(const cuda_share *s, uint32_t post, rt_comm_line *line) {
  const cuda_loaded *l = s->loaded;
  bool found = false;
  for (int h = 0; h < 2; h++) {
    uint32_t at = l->order.meetings->of_post[post][h];
    if (at == ISSUE_NOBODY) continue;
    const issue_meeting *m = &l->order.meetings->list.data[at];
    for (uint32_t i = 0; i < m->n; i++) {
      uint32_t flag = s->split.flag_of[l->order.posted[m->posts[i]]];
      if (m->posts[i] == post || flag == ISSUE_NO_FLAG || atomic_load(&s->flags[flag]) >= s->run)
        continue;
      rt_comm_line_add(line, ": rank %u has not posted it", l->plan->posts[m->posts[i]].rank);
      found = true;
    }
  }
  return found;
}

/* The post of a rank for which an event means its end, or that a partner has posted; RT_NO_POST: none. */
static uint32_t post_of_event(const cuda_share *s, uint32_t event, uint32_t rank) {
  const cuda_loaded *l = s->loaded;
  for (uint32_t i = 0; i < l->order.ends.len; i++) {
    const issue_end *end = &l->order.ends.data[i];
    if (end->event == event && l->plan->posts[end->post].rank == rank) return end->post;
  }
  uint32_t flag = s->split.flag_of[event];
  uint32_t partner = flag == ISSUE_NO_FLAG ? RT_NO_POST : s->split.post_of_flag[flag];
  for (int h = 0; h < 2 && partner != RT_NO_POST; h++) {
    uint32_t at = l->order.meetings->of_post[partner][h];
    if (at == ISSUE_NOBODY) continue;
    const issue_meeting *m = &l->order.meetings->list.data[at];
    for (uint32_t i = 0; i < m->n; i++)
      if (l->plan->posts[m->posts[i]].rank == rank) return m->posts[i];
  }
  return RT_NO_POST;
}

/* The earliest post of a rank that one of its streams waits for. */
static uint32_t find_waited(const cuda_share *s, uint32_t rank) {
  const cuda_loaded *l = s->loaded;
  uint32_t first = RT_NO_POST;
  for (uint32_t i = 0; i < l->n_streams; i++) {
    uint64_t state = l->streams[i].rank == rank ? atomic_load(&s->states[i]) : 0;
    if (state == 0 || state > l->order.n_events) continue;
    uint32_t post = post_of_event(s, (uint32_t)(state - 1), rank);
    if (post < first) first = post;
  }
  return first;
}

/* The place where this rank waits, or, as far as is known, will wait next. */
static const char *own_place(const cuda_share *s) {
  uint32_t post = find_waited(s, s->me);
  return post == RT_NO_POST ? world_of(s)->where : s->places[post];
}

/* Says for the first few ranks, also those of other processes, what they wait for: this names ranks that wait for
 * one another, or all for one. */
static void describe(const cuda_share *s, rt_comm_line *line) {
  enum { SHOWN = 3 };
  uint32_t waiting = 0;
  bool found = false;
  for (uint32_t r = 0; r < s->n; r++) {
    uint32_t post = find_waited(s, r);
    if (post == RT_NO_POST || waiting++ >= SHOWN) continue;
    rt_comm_line_add(line, "%srank %u waits for %s", waiting > 1 ? "; " : "", r, s->texts[post]);
    found = add_absent(s, post, line) || found;
  }
  if (waiting > SHOWN) rt_comm_line_add(line, "; %u more ranks wait", waiting - SHOWN);
  if (waiting == 0) rt_comm_line_add(line, "rank %u has done its part", s->me);
  for (uint32_t r = 0; r < s->n && !found; r++)
    if (r != s->me && atomic_load(&s->ranks[r].done) < s->run && find_waited(s, r) == RT_NO_POST)
      rt_comm_line_add(line, "; rank %u has not%s", r, waiting ? " done its part" : "");
}

/* ---- the watch ---- */
/* From now on no stream of any rank waits for another rank; their results are not used. */
static void release(const cuda_share *s) {
  atomic_store(&s->head->is_over, 1);
  for (uint32_t f = 0; f < s->split.n_flags; f++) atomic_store(&s->flags[f], CUDA_RELEASED);
}

static void give_up(const cuda_share *s) {
  char text[1024];
  rt_comm_line line = rt_comm_line_of(text, sizeof text);
  describe(s, &line);
  if (cuda_world_give_up(world_of(s), text) != STATUS_OK) status_clear();
}

/* Has no rank moved for too long? The lock is held. */
static bool is_stuck(cuda_share *s, cuda_world *w) {
  int64_t now_ns = rt_clock_ns();
  view v = look(s);
  if (v.sum != s->seen) w->moves++;
  if (v.sum != s->seen || v.is_busy) s->moved_ns = now_ns;
  s->seen = v.sum;
  w->is_busy = v.is_busy;
  w->where = own_place(s);
  return cuda_world_is_still(w, s->moved_ns);
}

static void watch_once(cuda_share *s) {
  cuda_world *w = world_of(s);
  (void)pthread_mutex_lock(&w->lock);
  bool running = s->is_running, stuck = running && is_stuck(s, w);
  (void)pthread_mutex_unlock(&w->lock);
  if (!running || is_over(s)) return;
  if (stuck) give_up(s);
  if (cuda_world_has_failed(world_of(s))) release(s);
}

static void *watch(void *context) {
  enum { PAUSE_NS = 5000000 };
  cuda_share *s = context;
  while (!atomic_load(&s->ends)) {
    watch_once(s);
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  }
  return NULL;
}

status cuda_share_watch(cuda_share *s) {
  if (pthread_create(&s->thread, NULL, watch, s) != 0)
    return fail(STATUS_SYSTEM, "cannot start a thread");
  s->is_watched = true;
  return STATUS_OK;
}

void cuda_share_unwatch(cuda_share *s) {
  if (!s->is_watched) return;
  atomic_store(&s->ends, true);
  (void)pthread_join(s->thread, NULL);
  s->is_watched = false;
}

/* ---- runs ---- */
status cuda_share_begin(cuda_share *s) {
  cuda_world *w = world_of(s);
  if (w->endpoint != s->endpoint)
    return fail(STATUS_BAD_USAGE, "the plan was loaded with endpoints that are not there any more");
  TRY(s->endpoint->ops->error(s->endpoint));
  s->run++;
  for (uint32_t i = 0; s->states && i < s->loaded->n_streams; i++)
    if (s->loaded->streams[i].used) atomic_store(&s->states[i], 0);
  (void)pthread_mutex_lock(&w->lock);
  s->is_running = w->is_busy = true;
  s->moved_ns = rt_clock_ns();
  w->where = s->loaded->plan->n_posts > s->first_post ? s->places[s->first_post] : NULL;
  (void)pthread_mutex_unlock(&w->lock);
  return STATUS_OK;
}

static bool all_done(const cuda_share *s) {
  for (uint32_t r = 0; r < s->n; r++)
    if (atomic_load(&s->ranks[r].done) < s->run) return false;
  return true;
}

/* A rank has set the flags, so the world has failed, or will in a moment: all ranks get its message. */
static status failure_of_all(const cuda_share *s) {
  enum { SECONDS = 10, PAUSE_NS = 1000000 };
  rt_comm *e = s->endpoint;
  int64_t end_ns = rt_clock_ns() + SECONDS * INT64_C(1000000000);
  status_clear();
  while (rt_clock_ns() < end_ns) {
    status st = e->ops->error(e);
    if (st != STATUS_OK) return st;
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  }
  return fail(STATUS_UNAVAILABLE, "another rank has failed and does not say why");
}

static status settle(cuda_share *s, status st) {
  enum { YIELDS = 2000, PAUSE_NS = 50000 };
  if (st != STATUS_OK && !is_over(s)) {
    st = cuda_world_abort(world_of(s), st);
    release(s);
    return st;
  }
  atomic_store(&s->ranks[s->me].done, s->run);
  /* mutant: cuda_runs_of_processes_overlap */
  for (uint32_t tries = 0; !is_over(s) && !all_done(s); tries++) {
    if (tries < YIELDS) (void)sched_yield();
    else (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  }
  return is_over(s) ? failure_of_all(s) : STATUS_OK;
}

/* If NCCL carries out communications, ranks share no memory: they exchange their results over the endpoint,
 * so that a run has one result. If it is a failure, streams that wait for a failed rank are released. */
static status settle_apart(cuda_share *s, status st) {
  cuda_world *w = world_of(s);
  uint8_t done = 1, all_done[RT_COMM_MAX_RANKS];
  /* mutant: cuda_nccl_rank_alone */
  if (st == STATUS_OK)
    st = cuda_world_exchange(w, &done, all_done, sizeof done, "the end of a run");
  if (st == STATUS_OK) return STATUS_OK;
  st = cuda_world_abort(w, st);
  cuda_watch_release(s->loaded);
  return st;
}

status cuda_share_finish(cuda_share *s, status st) {
  cuda_world *w = world_of(s);
  status result = s->loaded->device->nccl ? settle_apart(s, st) : settle(s, st);
  (void)pthread_mutex_lock(&w->lock);
  s->is_running = w->is_busy = false;
  w->where = NULL;
  (void)pthread_mutex_unlock(&w->lock);
  return result;
}
