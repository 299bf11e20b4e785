/* Streams, events, and the thread that works the queues off.
 *
 * One thread runs the heads of all queues, one at a time, in an order drawn from the seed: every stream
 * has a priority of the moment, drawn anew now and then, so that a stream may wait for long while
 * another runs ahead. When lazy, it runs only what somebody waits for. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin/driver.h"

enum { REDRAW_ONE_IN = 16, POLL_NS = 50000, PATIENCE_NS = 3000000 };

/* ---- small things ---- */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t worker;
static bool has_worker, stops, is_lazy, forced;
static uint32_t n_picks;

void wake(void) { (void)pthread_cond_broadcast(&changed); }

uint64_t random_draw(void) {
  static uint64_t random_state;
  if (random_state == 0) {
    const char *seed = getenv("WEIR_STANDIN_SEED");
    random_state = (seed ? strtoull(seed, NULL, 10) : 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
  }
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

mark *mark_new(CUstream s) {
  mark *m = calloc(1, sizeof *m);
  if (!m) abort();
  m->refs = 1;
  m->stream = s;
  return m;
}

void mark_drop(mark *m) {
  if (m && --m->refs == 0) free(m);
}

/* ---- ops ---- */
op *op_new(const char *name, CUstream s, size_t args_bytes) {
  size_t head = (sizeof(op) + 15) / 16 * 16;
  op *o = calloc(1, head + args_bytes);
  if (!o) abort();
  o->args = (char *)o + head;
  o->name = name;
  o->gpu = s->gpu;
  return o;
}

void op_touch(op *o, CUdeviceptr at, size_t size_bytes) {
  standin_range *r = realloc(o->ranges, (o->n_ranges + 1) * sizeof *r);
  if (!r) abort();
  o->ranges = r;
  o->ranges[o->n_ranges++] = (standin_range){at, size_bytes};
}

void op_free(op *o) {
  mark_drop(o->mark);
  free(o->begun);
  free(o->done);
  free(o->ranges);
  free(o);
}

/* ---- choosing ---- */
static void redraw(void) {
  const char *order = getenv("WEIR_STANDIN_ORDER");
  for (CUstream s = standin.streams; s; s = s->next) s->priority = random_draw();
  forced = false;
  is_lazy = random_draw() % 2;
  if (order && strcmp(order, "eager") == 0) is_lazy = false;
  if (order && strcmp(order, "lazy") == 0) is_lazy = true;
}

static bool waits(const op *o) { return o->mark && !o->is_record; }

static bool head_is_ready(CUstream s) {
  uint32_t index;
  const op *o = s->head;
  if (!o || (s->busy && !o->exec)) return false;
  if (o->exec) return graph_pick(o, &index);
  if (waits(o)) return o->mark->done;
  return !o->ready || o->ready(o);
}

static CUstream pick_any(void) {
  CUstream best = NULL;
  for (CUstream s = standin.streams; s; s = s->next)
    if (head_is_ready(s) && (!best || s->priority > best->priority)) best = s;
  return best;
}

/* The stream to run next for the end of another to come nearer. */
static CUstream pick_toward(CUstream s) {
  for (int depth = 0; s && depth < 10000; depth++) {
    if (head_is_ready(s)) return s;
    if (!s->head || !waits(s->head)) break;
    s = s->head->mark->stream;
  }
  return pick_any();
}

typedef struct waiter {
  struct waiter *next;
  mark *mark;
} waiter;
static waiter *waiters;

/* Who still waits; those whose time has come may not have noticed yet. */
static const waiter *somebody(void) {
  const waiter *w = waiters;
  while (w && w->mark->done) w = w->next;
  return w;
}

static CUstream pick(void) {
  if (n_picks++ % REDRAW_ONE_IN == 0) redraw();
  if (!is_lazy || forced) return pick_any();
  const waiter *w = somebody();
  return w ? pick_toward(w->mark->stream) : NULL;
}

/* ---- running ---- */
static void let_go(CUstream s) {
  if (!s->destroyed || s->head || s->busy) return;
  for (CUstream *at = &standin.streams; *at; at = &(*at)->next)
    if (*at == s) {
      *at = s->next;
      break;
    }
  free(s->after.items);
  free(s);
}

static void pop(CUstream s) {
  op *o = s->head;
  s->head = o->next;
  if (!s->head) s->tail = NULL;
  if (o->is_record) {
    o->mark->done = true;
    o->mark->time_ns = now_ns();
    o->mark->stream = NULL;
  }
  if (o->exec) {
    o->exec->running = false;
    graph_drop(o->exec->graph);
    if (--o->exec->refs == 0) free(o->exec);
  }
  op_free(o);
}

static const op *running; /* by the worker */

/* Which kernel it was, before the process ends. */
static void tell_fault(int signal_number) {
  char text[400];
  if (has_worker && pthread_equal(pthread_self(), worker) && running) {
    int n = snprintf(text, sizeof text,
                     "standin: %s on GPU %d touches memory that is not there, not its own, or "
                     "not aligned\n",
                     running->name, running->gpu->index);
    if (write(STDERR_FILENO, text, (size_t)n) < 0) _exit(1);
  }
  (void)signal(signal_number, SIG_DFL);
}

static void watch_faults(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGILL};
  struct sigaction old, mine = {.sa_handler = tell_fault};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    if (sigaction(faults[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
      (void)sigaction(faults[i], &mine, NULL);
}

static void run_unlocked(op *o) {
  bool closed = memory_close(o);
  running = o;
  (void)pthread_mutex_unlock(&standin.lock);
  o->run(o);
  (void)pthread_mutex_lock(&standin.lock);
  running = NULL;
  if (closed) memory_open();
}

/* Errors of what runs come late, and stay. */
static void run_op(op *o) {
  if (standin.sticky != CUDA_SUCCESS) return;
  if (o->is_kernel && standin_fails("kernel")) standin.sticky = CUDA_ERROR_LAUNCH_FAILED;
  else if (!op_is_good(o)) standin.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  else if (o->run) run_unlocked(o);
}

static void run_head(CUstream s) {
  op *o = s->head;
  uint32_t index = 0;
  s->busy = true;
  if (o->exec && graph_pick(o, &index)) {
    o->begun[index] = true;
    o->exec->running = true;
    run_op(o->exec->graph->nodes[index].op);
    o->done[index] = true;
    if (--o->left == 0) pop(s);
  } else {
    run_op(o);
    pop(s);
  }
  s->busy = false;
  let_go(s);
}

static bool has_work(void) {
  for (CUstream s = standin.streams; s; s = s->next)
    if (s->head) return true;
  return false;
}

static void nap(int64_t ns) {
  struct timespec t;
  (void)clock_gettime(CLOCK_REALTIME, &t);
  ns += t.tv_nsec;
  t.tv_sec += ns / 1000000000;
  t.tv_nsec = ns % 1000000000;
  if (pthread_cond_timedwait(&changed, &standin.lock, &t) != 0) forced = true;
}

static void *work(void *unused) {
  (void)unused;
  (void)pthread_mutex_lock(&standin.lock);
  while (!stops) {
    CUstream s = pick();
    if (s) {
      run_head(s);
      wake();
    } else if (has_work()) nap(somebody() || !is_lazy ? POLL_NS : PATIENCE_NS);
    else (void)pthread_cond_wait(&changed, &standin.lock);
  }
  (void)pthread_mutex_unlock(&standin.lock);
  return NULL;
}

/* The process ends: nothing may run on while its memory goes. */
__attribute__((destructor)) static void finish(void) {
  (void)pthread_mutex_lock(&standin.lock);
  stops = true;
  wake();
  (void)pthread_mutex_unlock(&standin.lock);
  if (has_worker && !pthread_equal(pthread_self(), worker)) (void)pthread_join(worker, NULL);
}

CUresult submit(CUstream s, op *o) {
  if (s->capture) return capture_add(s, o);
  if (!has_worker) {
    if (pthread_create(&worker, NULL, work, NULL) != 0) abort();
    has_worker = true;
    watch_faults();
  }
  if (s->tail) s->tail->next = o;
  else s->head = o;
  s->tail = o;
  wake();
  return CUDA_SUCCESS;
}

CUresult wait_for(mark *m) {
  waiter me = {waiters, m}, **at = &waiters;
  m->refs++;
  waiters = &me;
  wake();
  while (!m->done) (void)pthread_cond_wait(&changed, &standin.lock);
  while (*at != &me) at = &(*at)->next;
  *at = me.next;
  mark_drop(m);
  return standin.sticky;
}

static mark *put_mark(CUstream s, const char *name) {
  op *o = op_new(name, s, 0);
  mark *m = mark_new(s);
  o->mark = m;
  o->is_record = true;
  m->refs++;
  (void)submit(s, o);
  return m;
}

CUresult drain(CUstream s) {
  if (!s->head && !s->busy) return standin.sticky;
  mark *m = put_mark(s, "the end of a stream");
  CUresult r = wait_for(m);
  mark_drop(m);
  return r;
}

static unsigned holders;

CUresult drain_holding(CUstream s) {
  holders++;
  CUresult r = drain(s);
  holders--;
  wake();
  return r;
}

void settle_holding(void) {
  bool waited = true;
  while (waited) { /* the list changes while the lock is given back */
    CUstream s = standin.streams;
    while (s && (s->gpu != current() || s->capture || (!s->head && !s->busy))) s = s->next;
    waited = s != NULL;
    if (s) (void)drain_holding(s);
  }
}

void wait_for_holders(void) {
  while (holders) (void)pthread_cond_wait(&changed, &standin.lock);
}

/* Whoever asks again and again must see it come. */
static CUresult not_ready(void) {
  forced = true;
  wake();
  return CUDA_ERROR_NOT_READY;
}

/* ---- streams ---- */
static CUstream make_stream(CUcontext gpu) {
  CUstream s = calloc(1, sizeof *s);
  if (!s) abort();
  s->gpu = gpu;
  s->priority = random_draw();
  s->next = standin.streams;
  standin.streams = s;
  handle_add(s);
  return s;
}

bool stream_is_good(CUstream *s) {
  if (!*s && current()) {
    if (!current()->null_stream) current()->null_stream = make_stream(current());
    *s = current()->null_stream;
  }
  if (handle_is_live(*s)) return true;
  standin_misuse("this is no stream");
  return false;
}

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  (void)priority;
  if (!current()) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "a stream without a context");
  if (flags != CU_STREAM_NON_BLOCKING)
    return MISUSE(CUDA_ERROR_INVALID_VALUE, "only CU_STREAM_NON_BLOCKING is modelled");
  *s = make_stream(current());
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *s, unsigned flags) {
  return cuStreamCreateWithPriority(s, flags, 0);
}

CUresult cuStreamDestroy(CUstream s) {
  ENTER(cuStreamDestroy);
  if (!handle_is_live(s)) return MISUSE(CUDA_ERROR_INVALID_HANDLE, "this is no stream");
  capture_leave(s);
  handle_remove(s);
  s->destroyed = true;
  let_go(s);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream s) {
  ENTER(cuStreamSynchronize);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (s->capture || is_capturing_thread())
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "waiting for a stream during a capture");
  return drain(s);
}

CUresult cuStreamGetCtx(CUstream s, CUcontext *context) {
  ENTER(cuStreamGetCtx);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  *context = s->gpu;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream s) {
  ENTER(cuStreamQuery);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (s->capture)
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "asking a stream that is captured");
  return s->head || s->busy ? not_ready() : standin.sticky;
}

/* Streams may come and go meanwhile: from the start again after every one. */
CUresult cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  if (!current()) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "there is no context");
  if (is_capturing_thread())
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "waiting for a GPU during a capture");
  for (CUstream s = standin.streams; s;) {
    bool waits_here = s->gpu == current() && !s->destroyed && s->head;
    CUresult r = waits_here ? drain(s) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS) return r;
    s = waits_here ? standin.streams : s->next;
  }
  return CUDA_SUCCESS;
}

/* ---- events ---- */
static bool event_is_good(CUevent e) {
  if (handle_is_live(e)) return true;
  standin_misuse("this is no event");
  return false;
}

CUresult cuEventCreate(CUevent *e, unsigned flags) {
  ENTER(cuEventCreate);
  if (!current()) return MISUSE(CUDA_ERROR_INVALID_CONTEXT, "an event without a context");
  wait_for_holders();
  *e = calloc(1, sizeof **e);
  if (!*e) abort();
  (*e)->gpu = current();
  (*e)->has_time = !(flags & CU_EVENT_DISABLE_TIMING);
  handle_add(*e);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent e) {
  ENTER(cuEventDestroy);
  if (!event_is_good(e)) return CUDA_ERROR_INVALID_HANDLE;
  handle_remove(e);
  mark_drop(e->mark);
  free(e->after.items);
  free(e);
  return CUDA_SUCCESS;
}

static void copy_set(node_set *to, const node_set *from) {
  free(to->items);
  to->n = from->n;
  to->items = malloc((from->n + (size_t)1) * sizeof *to->items);
  if (!to->items) abort();
  for (uint32_t i = 0; i < from->n; i++) to->items[i] = from->items[i];
}

CUresult cuEventRecord(CUevent e, CUstream s) {
  ENTER(cuEventRecord);
  if (!event_is_good(e) || !stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (e->gpu != s->gpu)
    return MISUSE(CUDA_ERROR_INVALID_HANDLE, "an event of GPU %d is recorded by GPU %d",
                  e->gpu->index, s->gpu->index);
  e->capture = s->capture ? s->capture->id : 0;
  if (s->capture) {
    copy_set(&e->after, &s->after);
    return CUDA_SUCCESS;
  }
  mark_drop(e->mark);
  e->mark = put_mark(s, "an event");
  return CUDA_SUCCESS;
}

/* Each once: streams that wait for one another again and again stand behind no more than there is. */
static void join_set(node_set *to, const node_set *from) {
  node_set both = {to->n, malloc((to->n + from->n + (size_t)1) * sizeof *both.items)};
  if (!both.items) abort();
  for (uint32_t i = 0; i < to->n; i++) both.items[i] = to->items[i];
  for (uint32_t i = 0; i < from->n; i++) {
    bool known = false;
    for (uint32_t k = 0; k < to->n && !known; k++) known = to->items[k] == from->items[i];
    if (!known) both.items[both.n++] = from->items[i];
  }
  free(to->items);
  *to = both;
}

/* Joins the event's capture, with all that the event stands behind. */
static CUresult wait_captured(CUstream s, CUevent e) {
  const capture *c = s->capture;
  if (c && c->id != e->capture)
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a wait crosses the border of a capture");
  for (CUstream x = standin.streams; x && !s->capture; x = x->next)
    if (x->capture && x->capture->id == e->capture) s->capture = x->capture;
  if (!s->capture)
    return MISUSE(CUDA_ERROR_CAPTURED_EVENT, "a wait for an event of a capture that is over");
  join_set(&s->after, &e->after);
  return CUDA_SUCCESS;
}

/* What was never recorded is not waited for. */
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  (void)flags;
  if (!event_is_good(e) || !stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  if (e->capture) return wait_captured(s, e);
  if (s->capture && e->mark)
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a wait crosses the border of a capture");
  if (!e->mark || e->mark->done) return CUDA_SUCCESS;
  op *o = op_new("a wait", s, 0);
  o->mark = e->mark;
  e->mark->refs++;
  return submit(s, o);
}

CUresult cuEventSynchronize(CUevent e) {
  ENTER(cuEventSynchronize);
  if (!event_is_good(e)) return CUDA_ERROR_INVALID_HANDLE;
  if (e->capture) return MISUSE(CUDA_ERROR_CAPTURED_EVENT, "waiting for a captured event");
  return e->mark ? wait_for(e->mark) : CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent e) {
  ENTER(cuEventQuery);
  if (!event_is_good(e)) return CUDA_ERROR_INVALID_HANDLE;
  if (e->capture) return MISUSE(CUDA_ERROR_CAPTURED_EVENT, "asking a captured event");
  return e->mark && !e->mark->done ? not_ready() : standin.sticky;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  ENTER(cuEventElapsedTime);
  if (!event_is_good(from) || !event_is_good(to)) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->has_time || !to->has_time)
    return MISUSE(CUDA_ERROR_INVALID_HANDLE, "the time of an event without one");
  if (from->gpu != to->gpu)
    return MISUSE(CUDA_ERROR_INVALID_HANDLE, "GPU %d and GPU %d have no common clock",
                  from->gpu->index, to->gpu->index);
  if (!from->mark || !to->mark) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->mark->done || !to->mark->done) return CUDA_ERROR_NOT_READY;
  *ms = (float)((double)(to->mark->time_ns - from->mark->time_ns) / 1e6);
  return CUDA_SUCCESS;
}
