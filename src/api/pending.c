#include "api/pending.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "api/program.h"
#include "base/process.h"
#include "session/follow.h"

/* Allocated by malloc, since it may outlive its program. Copies of arguments are in the program's memory. */
struct weir_pending {
  session_job job; /* first */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t holders; /* the caller, and the queue */
  bool has_ended;   /* the callback has returned, too */
  bool is_telling;  /* the run has ended: status and error are set */
  status st;
  api_error *error;
  weir_program *program;
  const session_queue *queue; /* of the program, which may be gone */
  uint32_t process;           /* that began it */
  rt_control control;
  weir_done_fn *done;
  void *context;
  weir_run_args args;
  void *block; /* of the copies in `args` */
  session_follow follow;
};

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
  return STATUS_OK;
}

/* Replaces the caller's streams in the copied arguments by streams of ours that follow them. */
static status follow_streams(weir_pending *r) {
  weir_stream *streams = (weir_stream *)r->args.streams; /* in the block */
  for (size_t i = 0; i < r->args.n_streams; i++) {
    TRY(session_follow_add(&r->follow, api_stream(&streams[i])));
    streams[i].handle = r->follow.streams[i].handle;
  }
  return STATUS_OK;
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

/* Frees the copies of arguments, while the program still exists. */
static void drop_args(weir_pending *r) {
  memory_free(&r->program->memory, r->block);
  r->block = NULL;
}

/* ---- the queue's thread ---- */
static status execute(weir_pending *r) {
  status st = rt_control_stops(&r->control) ? STATUS_CANCELLED
                                            : session_follow_await(&r->follow, &r->control);
  if (st == STATUS_OK)
    st = session_follow_finish(&r->follow, api_run_now(r->program, &r->args, &r->control));
  session_follow_end(&r->follow);
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

static void run(session_job *j) {
  weir_pending *r = (weir_pending *)j;
  api_begin();
  status st = execute(r);
  drop_args(r);
  tell(r, st);
  end(r);
}

/* ---- entry points ---- */
static status create(const weir_program *p, weir_pending **result) {
  weir_pending *r = memory_alloc(&memory_default, sizeof *r);
  if (!r) return STATUS_OUT_OF_MEMORY;
  *r = (weir_pending){.program = (weir_program *)p, .holders = 1, .queue = &p->queue};
  r->process = process_number();
  r->job.run = run;
  status st = session_lock_init(&r->lock, &r->changed);
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

static status begin(weir_pending *r, const weir_run_args *args) {
  TRY(copy_args(r, args));
  status st = follow_streams(r);
  if (st == STATUS_OK) st = session_queue_append(&r->program->queue, &r->job);
  if (st == STATUS_OK) return st;
  session_follow_end(&r->follow);
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

/* Has the run ended, as the calling thread sees it? Its own callback sees that it has. */
static bool has_ended(const weir_pending *r) {
  return r->has_ended || (r->is_telling && session_queue_is_mine(r->queue));
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

/* The run was begun before a fork(): it goes on in the parent alone. */
static bool is_of_parent(const weir_pending *r) { return r->process != process_number(); }

bool weir_pending_poll(const weir_pending *pending, int64_t timeout_ns) {
  weir_pending *r = (weir_pending *)pending;
  if (!r || is_of_parent(r)) return true;
  if (session_queue_is_mine(r->queue))
    timeout_ns = 0; /* a later run begins when the caller returns */
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
  if (is_of_parent(r))
    return api_refuse("weir_pending_wait: the run was begun before fork(), in another process");
  if (session_queue_is_mine(r->queue) && !weir_pending_poll(r, 0))
    return api_refuse("weir_pending_wait: a callback waits for a later run of its own program");
  (void)weir_pending_poll(r, -1);
  api_begin();
  api_error_show(r->error);
  return api_end(r->st);
}

/* A run in which other processes take part is not stopped: they would wait for this one. */
void weir_pending_cancel(weir_pending *r) {
  if (!r || is_of_parent(r)) return;
  (void)pthread_mutex_lock(&r->lock);
  bool is_over = r->is_telling;
  bool is_spread = !is_over && r->program->session.ranks.n < r->program->session.ranks.world;
  (void)pthread_mutex_unlock(&r->lock);
  if (!is_over && !is_spread) rt_control_stop(&r->control);
}

void weir_pending_destroy(weir_pending *r) {
  if (r && !is_of_parent(r)) release(r);
}
