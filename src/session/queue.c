#include "session/queue.h"

#include <signal.h>
#include <time.h>

/* The queue whose jobs this thread executes; NULL: none. */
static _Thread_local const session_queue *working_for;

bool session_queue_is_mine(const session_queue *q) { return working_for == q; }

static bool make_condition(pthread_cond_t *c) {
  pthread_condattr_t how;
  if (pthread_condattr_init(&how) != 0) return false;
  bool made =
      pthread_condattr_setclock(&how, CLOCK_MONOTONIC) == 0 && pthread_cond_init(c, &how) == 0;
  (void)pthread_condattr_destroy(&how);
  return made;
}

status session_lock_init(pthread_mutex_t *lock, pthread_cond_t *changed) {
  if (pthread_mutex_init(lock, NULL) != 0) return fail(STATUS_SYSTEM, "cannot make a lock");
  if (make_condition(changed)) return STATUS_OK;
  (void)pthread_mutex_destroy(lock);
  return fail(STATUS_SYSTEM, "cannot make a lock");
}

/* ---- the queue's thread ---- */
/* Waits for the next job; NULL: the queue is closed and has no more. */
static session_job *take_next(session_queue *q) {
  (void)pthread_mutex_lock(&q->lock);
  while (!q->first && !q->closing) (void)pthread_cond_wait(&q->changed, &q->lock);
  session_job *j = q->first;
  if (j) q->first = j->next;
  if (!q->first) q->last = NULL;
  (void)pthread_mutex_unlock(&q->lock);
  return j;
}

static void count_end(session_queue *q) {
  (void)pthread_mutex_lock(&q->lock);
  (void)atomic_fetch_add(&q->ended, 1);
  (void)pthread_cond_broadcast(&q->changed);
  (void)pthread_mutex_unlock(&q->lock);
}

static void *work(void *context) {
  session_queue *q = context;
  session_job *j;
  working_for = q;
  while ((j = take_next(q))) {
    j->run(j);
    count_end(q);
  }
  working_for = NULL;
  if (q->is_orphan) q->abandoned(q->context);
  return NULL;
}

/* Starts the thread with all signals blocked: they are for the caller's threads. */
static status start_worker(session_queue *q) {
  sigset_t all, before;
  if (q->has_worker) return STATUS_OK;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  q->has_worker = pthread_create(&q->worker, NULL, work, q) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return q->has_worker ? STATUS_OK : fail(STATUS_SYSTEM, "cannot start a thread");
}

status session_queue_append(session_queue *q, session_job *j) {
  (void)pthread_mutex_lock(&q->lock);
  status st = start_worker(q);
  if (st == STATUS_OK) {
    if (q->last) q->last->next = j;
    else q->first = j;
    q->last = j;
    (void)atomic_fetch_add(&q->asked, 1);
    (void)pthread_cond_broadcast(&q->changed);
  }
  (void)pthread_mutex_unlock(&q->lock);
  return st;
}

/* ---- queues ---- */
status session_queue_init(session_queue *q, void (*abandoned)(void *context), void *context) {
  q->abandoned = abandoned;
  q->context = context;
  return session_lock_init(&q->lock, &q->changed);
}

void session_queue_settle(session_queue *q) {
  uint64_t asked = atomic_load(&q->asked);
  if (atomic_load(&q->ended) >= asked || session_queue_is_mine(q)) return;
  (void)pthread_mutex_lock(&q->lock);
  while (atomic_load(&q->ended) < asked) (void)pthread_cond_wait(&q->changed, &q->lock);
  (void)pthread_mutex_unlock(&q->lock);
}

bool session_queue_close(session_queue *q) {
  bool is_own = session_queue_is_mine(q);
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
