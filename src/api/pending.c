#include "api/pending.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "api/program.h"
#include "session/memory.h"

/* It may outlive its program, so its memory is its own; what is copied for the run is the program's. */
struct weir_pending {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t holders; /* the caller, and the queue */
  bool has_ended;   /* and its callback has returned */
  bool is_telling;  /* status and error are there */
  status st;
  api_error *error;
  weir_program *program;
  rt_control control;
  weir_done_fn *done;
  void *context;
  weir_run_args args;
  void *block;         /* of the copies in `args` */
  weir_stream *follow; /* streams that follow the caller's, in the block */
  size_t n_follow;
  weir_pending *next;
};

/* The program whose runs this thread executes. */
static _Thread_local const weir_program *working_for;

/* ---- copies of arguments ----
 * Filled in two passes, of which the first only counts. */
typedef struct packer {
  char *block; /* NULL: count */
  size_t used;
} packer;

static void *pack(packer *k, const void *from, size_t size_bytes) {
  void *to = k->block ? k->block + k->used : NULL;
  if (to && size_bytes) memcpy(to, from, size_bytes);
  k->used += (size_bytes + 15) / 16 * 16;
  return to;
}

static const weir_dl_tensor *pack_tensor(packer *k, const weir_dl_tensor *t) {
  if (!t) return NULL;
  bool is_sound = t->ndim > 0 && t->ndim <= WEIR_MAX_RANK; /* if not, the run says so */
  size_t bytes = is_sound ? (size_t)t->ndim * sizeof *t->shape : 0;
  weir_dl_tensor *copy = pack(k, t, sizeof *t);
  int64_t *shape = is_sound && t->shape ? pack(k, t->shape, bytes) : NULL;
  int64_t *strides = is_sound && t->strides ? pack(k, t->strides, bytes) : NULL;
  if (!copy) return NULL;
  copy->shape = shape;
  copy->strides = strides;
  return copy;
}

static const weir_dl_tensor *const *pack_list(packer *k, const weir_dl_tensor *const *list,
                                              size_t n) {
  if (!list) return NULL;
  const weir_dl_tensor **copy = pack(k, list, n * sizeof *list);
  for (size_t i = 0; i < n; i++) {
    const weir_dl_tensor *t = pack_tensor(k, list[i]);
    if (copy) copy[i] = t;
  }
  return copy;
}

static const weir_dl_tensor *const *const *
pack_lists(packer *k, const weir_dl_tensor *const *const *lists, size_t n, size_t ranks) {
  if (!lists) return NULL;
  const weir_dl_tensor *const **copy = pack(k, lists, n * sizeof *lists);
  for (size_t i = 0; i < n; i++) {
    const weir_dl_tensor *const *list = pack_list(k, lists[i], ranks);
    if (copy) copy[i] = list;
  }
  return copy;
}

static void pack_args(packer *k, const weir_pending *r, const weir_run_args *from,
                      weir_run_args *to) {
  const weir_program *p = r->program;
  size_t ranks = p->session.ranks.n ? p->session.ranks.n : 1;
  *to = *from;
  to->inputs = pack_list(k, from->inputs, from->n_inputs);
  to->outputs = pack_list(k, from->outputs, from->n_outputs);
  to->input_shards = pack_lists(k, from->input_shards, from->n_inputs, ranks);
  if (from->donated) to->donated = pack(k, from->donated, from->n_outputs * sizeof *from->donated);
  to->output_shards = pack_lists(k, from->output_shards, from->n_outputs, ranks);
  to->streams = pack(k, from->streams, from->n_streams * sizeof *from->streams);
}

static status copy_args(weir_pending *r, const weir_run_args *from) {
  packer k = {0};
  weir_run_args unused;
  pack_args(&k, r, from, &unused);
  k.block = r->block = memory_alloc(&r->program->memory, k.used + 1);
  if (!k.block) return STATUS_OUT_OF_MEMORY;
  k.used = 0;
  pack_args(&k, r, from, &r->args);
  r->follow = (weir_stream *)r->args.streams;
  return STATUS_OK;
}

/* ---- streams ---- */
static status follow_streams(weir_pending *r) {
  for (size_t i = 0; i < r->args.n_streams; i++) {
    rt_stream theirs = api_stream(&r->args.streams[i]), own;
    TRY(session_memory()->follow(&theirs, &own));
    r->follow[r->n_follow++].handle = own.handle;
  }
  return STATUS_OK;
}

/* Drivers may answer a call only after all that streams hold, and keep other threads from calling meanwhile. If the
 * streams wait for something that the caller does next, that would never end. So the run makes none before the
 * streams have come to where they were when it was asked for. */
static status await_streams(weir_pending *r) {
  struct timespec pause = {.tv_nsec = 20000};
  for (size_t i = 0; i < r->n_follow; i++) {
    rt_stream own = api_stream(&r->follow[i]);
    bool passed = false;
    for (;;) {
      if (rt_control_stops(&r->control)) return STATUS_CANCELLED;
      TRY(session_memory()->passed(&own, &passed));
      if (passed) break;
      (void)nanosleep(&pause, NULL);
      if (pause.tv_nsec < 500000) pause.tv_nsec *= 2;
    }
  }
  return STATUS_OK;
}

/* The run is on streams of ours; when these are through, it has ended. */
static status wait_for_end(const weir_pending *r, status st) {
  for (size_t i = 0; i < r->n_follow; i++) {
    rt_stream own = api_stream(&r->follow[i]);
    status ended = session_memory()->wait(&own);
    if (st == STATUS_OK) st = ended;
  }
  return st;
}

static void end_streams(weir_pending *r) {
  for (size_t i = 0; i < r->n_follow; i++) {
    rt_stream own = api_stream(&r->follow[i]);
    session_memory()->end(&own);
  }
  r->n_follow = 0;
}

/* ---- objects ---- */
static void release(weir_pending *r) {
  (void)pthread_mutex_lock(&r->lock);
  bool last = --r->holders == 0;
  (void)pthread_mutex_unlock(&r->lock);
  if (!last) return;
  api_error_drop(r->error);
  rt_control_destroy(&r->control);
  (void)pthread_cond_destroy(&r->changed);
  (void)pthread_mutex_destroy(&r->lock);
  memory_free(&memory_default, r);
}

/* A condition whose waits can end by the monotonic clock. */
static bool make_condition(pthread_cond_t *c) {
  pthread_condattr_t how;
  if (pthread_condattr_init(&how) != 0) return false;
  bool made =
      pthread_condattr_setclock(&how, CLOCK_MONOTONIC) == 0 && pthread_cond_init(c, &how) == 0;
  (void)pthread_condattr_destroy(&how);
  return made;
}

static status make_lock(pthread_mutex_t *lock, pthread_cond_t *changed) {
  if (pthread_mutex_init(lock, NULL) != 0) return fail(STATUS_SYSTEM, "cannot make a lock");
  if (make_condition(changed)) return STATUS_OK;
  (void)pthread_mutex_destroy(lock);
  return fail(STATUS_SYSTEM, "cannot make a lock");
}

static status create(const weir_program *p, weir_pending **result) {
  weir_pending *r = memory_alloc(&memory_default, sizeof *r);
  if (!r) return STATUS_OUT_OF_MEMORY;
  *r = (weir_pending){.program = (weir_program *)p, .holders = 1};
  status st = make_lock(&r->lock, &r->changed);
  if (st == STATUS_OK) {
    st = rt_control_init(&r->control);
    if (st == STATUS_OK) {
      *result = r;
      return st;
    }
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
  }
  memory_free(&memory_default, r);
  return st;
}

/* What the run needed goes while the program is there. */
static void drop_args(weir_pending *r) {
  memory_free(&r->program->memory, r->block);
  r->block = NULL;
}

/* ---- the queue's thread ---- */
static status execute(weir_pending *r) {
  status st = rt_control_stops(&r->control) ? STATUS_CANCELLED : await_streams(r);
  if (st == STATUS_OK) st = wait_for_end(r, api_run_now(r->program, &r->args, &r->control));
  end_streams(r);
  return st;
}

static void tell(weir_pending *r, status st) {
  api_error *error = NULL;
  if (api_end(st) != WEIR_OK) error = api_error_take();
  (void)pthread_mutex_lock(&r->lock);
  r->st = st;
  r->error = error;
  r->is_telling = true;
  (void)pthread_mutex_unlock(&r->lock);
  if (r->done) r->done(r->context, (weir_status)st, st == STATUS_OK ? "" : weir_error());
}

static void end(weir_pending *r) {
  (void)pthread_mutex_lock(&r->lock);
  r->has_ended = true;
  (void)pthread_cond_broadcast(&r->changed);
  (void)pthread_mutex_unlock(&r->lock);
  release(r);
}

/* The next one; NULL: there will be none. */
static weir_pending *take_next(api_queue *q) {
  (void)pthread_mutex_lock(&q->lock);
  while (!q->first && !q->closing) (void)pthread_cond_wait(&q->changed, &q->lock);
  weir_pending *r = q->first;
  if (r) q->first = r->next;
  if (!q->first) q->last = NULL;
  (void)pthread_mutex_unlock(&q->lock);
  return r;
}

static void count_end(api_queue *q) {
  (void)pthread_mutex_lock(&q->lock);
  (void)atomic_fetch_add(&q->ended, 1);
  (void)pthread_cond_broadcast(&q->changed);
  (void)pthread_mutex_unlock(&q->lock);
}

static void *work(void *context) {
  weir_program *p = context;
  weir_pending *r;
  working_for = p;
  while ((r = take_next(&p->queue))) {
    api_begin();
    status st = execute(r);
    drop_args(r);
    tell(r, st);
    end(r);
    count_end(&p->queue);
  }
  working_for = NULL;
  if (p->queue.is_orphan) weir_program_destroy(p);
  return NULL;
}

/* Signals are for the caller's threads. */
static status start_worker(api_queue *q, weir_program *p) {
  sigset_t all, before;
  if (q->has_worker) return STATUS_OK;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  q->has_worker = pthread_create(&q->worker, NULL, work, p) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return q->has_worker ? STATUS_OK : fail(STATUS_SYSTEM, "cannot start a thread");
}

static status append(weir_pending *r) {
  api_queue *q = &r->program->queue;
  (void)pthread_mutex_lock(&q->lock);
  status st = start_worker(q, r->program);
  if (st == STATUS_OK) {
    if (q->last) q->last->next = r;
    else q->first = r;
    q->last = r;
    (void)atomic_fetch_add(&q->asked, 1);
    (void)pthread_cond_broadcast(&q->changed);
  }
  (void)pthread_mutex_unlock(&q->lock);
  return st;
}

/* ---- queues ---- */
status api_queue_init(api_queue *q) { return make_lock(&q->lock, &q->changed); }

void api_queue_settle(weir_program *p) {
  api_queue *q = &p->queue;
  uint64_t asked = atomic_load(&q->asked);
  if (atomic_load(&q->ended) >= asked || working_for == p) return;
  (void)pthread_mutex_lock(&q->lock);
  while (atomic_load(&q->ended) < asked) (void)pthread_cond_wait(&q->changed, &q->lock);
  (void)pthread_mutex_unlock(&q->lock);
}

bool api_queue_close(weir_program *p) {
  api_queue *q = &p->queue;
  bool is_own = working_for == p;
  (void)pthread_mutex_lock(&q->lock);
  q->closing = true;
  q->is_orphan = q->is_orphan || is_own;
  (void)pthread_cond_broadcast(&q->changed);
  (void)pthread_mutex_unlock(&q->lock);
  if (is_own) {
    (void)pthread_detach(q->worker);
    q->has_worker = false;
    return false;
  }
  if (q->has_worker && !q->is_orphan) (void)pthread_join(q->worker, NULL);
  (void)pthread_cond_destroy(&q->changed);
  (void)pthread_mutex_destroy(&q->lock);
  return true;
}

/* ---- entry points ---- */
static status begin(weir_pending *r, const weir_run_args *args) {
  TRY(copy_args(r, args));
  status st = follow_streams(r);
  if (st == STATUS_OK) st = append(r);
  if (st == STATUS_OK) return st;
  end_streams(r);
  drop_args(r);
  return st;
}

weir_status weir_run_async(const weir_program *p, const weir_run_args *args, weir_done_fn *done,
                           void *context, weir_pending **result) {
  weir_run_args checked;
  weir_pending *r = NULL;
  weir_status refused = api_run_check(p, args, "weir_run_async", &checked);
  if (refused != WEIR_OK) return refused;
  api_begin();
  status st = create(p, &r);
  if (st != STATUS_OK) return api_end(st);
  r->done = done;
  r->context = context;
  if (result) r->holders++;
  st = begin(r, &checked);
  if (st == STATUS_OK && result) *result = r;
  if (st != STATUS_OK) {
    r->holders = 1;
    release(r);
  }
  return api_end(st);
}

/* Where the callback of the run itself asks, it is as good as ended. */
static bool has_ended(const weir_pending *r) {
  return r->has_ended || (r->is_telling && working_for == r->program);
}

static struct timespec time_after(int64_t ns) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += ns / 1000000000;
  t.tv_nsec += ns % 1000000000;
  if (t.tv_nsec >= 1000000000) {
    t.tv_sec++;
    t.tv_nsec -= 1000000000;
  }
  return t;
}

bool weir_pending_poll(const weir_pending *pending, int64_t timeout_ns) {
  weir_pending *r = (weir_pending *)pending;
  if (!r) return true;
  struct timespec until = timeout_ns > 0 ? time_after(timeout_ns) : (struct timespec){0};
  int late = 0;
  (void)pthread_mutex_lock(&r->lock);
  while (!has_ended(r) && timeout_ns != 0 && late != ETIMEDOUT)
    late = timeout_ns < 0 ? pthread_cond_wait(&r->changed, &r->lock)
                          : pthread_cond_timedwait(&r->changed, &r->lock, &until);
  bool ended = has_ended(r);
  (void)pthread_mutex_unlock(&r->lock);
  return ended;
}

weir_status weir_pending_wait(const weir_pending *r) {
  if (!r) return api_refuse("weir_pending_wait: the run is NULL");
  if (working_for == r->program && !weir_pending_poll(r, 0))
    return api_refuse("weir_pending_wait: a callback waits for a later run of its own program");
  (void)weir_pending_poll(r, -1);
  api_begin();
  api_error_show(r->error);
  return api_end(r->st);
}

/* Other processes would wait for what this one does not do. */
void weir_pending_cancel(weir_pending *r) {
  if (!r) return;
  (void)pthread_mutex_lock(&r->lock);
  bool is_over = r->is_telling;
  bool is_spread = !is_over && r->program->session.ranks.n < r->program->session.ranks.world;
  (void)pthread_mutex_unlock(&r->lock);
  if (!is_over && !is_spread) rt_control_stop(&r->control);
}

void weir_pending_destroy(weir_pending *r) {
  if (r) release(r);
}
