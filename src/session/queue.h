/* A queue of jobs, executed in order by a thread that is started when it is first needed. */
#ifndef WEIR_SESSION_QUEUE_H
#define WEIR_SESSION_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The head of a caller's struct; run(j) is called on the queue's thread and may free it. */
typedef struct session_job session_job;
struct session_job {
  session_job *next;
  void (*run)(session_job *j);
};

typedef struct session_queue {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  session_job *first, *last; /* jobs that have not begun */
  _Atomic uint64_t asked, ended;
  pthread_t worker;
  bool has_worker, closing;
  bool is_orphan; /* it was closed by one of its jobs: its own thread finishes and frees it */
  void (*abandoned)(void *context);
  void *context;
} session_queue;

/* Initialises a lock, and a condition with timeouts by the monotonic clock. */
NODISCARD status session_lock_init(pthread_mutex_t *lock, pthread_cond_t *changed);

/* abandoned(context) is called by the queue's thread after the last job, if a job closed the queue. */
NODISCARD status session_queue_init(session_queue *q, void (*abandoned)(void *context),
                                    void *context);
/* Waits for all jobs and ends the thread. False: the caller is that thread; it will call abandoned() when it is
 * done. */
bool session_queue_close(session_queue *q);
NODISCARD status session_queue_append(session_queue *q, session_job *j);
/* Waits for the jobs that were appended so far, unless the caller is one of them. */
void session_queue_settle(session_queue *q);
/* Is the caller the queue's thread? The queue may be gone: only its address is used. */
bool session_queue_is_mine(const session_queue *q);

#endif
