/* Work that waits its turn: a queue, and a thread that is started when it is first needed. */
#ifndef WEIR_SESSION_QUEUE_H
#define WEIR_SESSION_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A part of what is to be done, which run() does on the queue's thread; it may be freed there. */
typedef struct session_job session_job;
struct session_job {
  session_job *next;
  void (*run)(session_job *j);
};

typedef struct session_queue {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  session_job *first, *last; /* that have not begun */
  _Atomic uint64_t asked, ended;
  pthread_t worker;
  bool has_worker, closing;
  bool is_orphan; /* it was closed by a job of its own: its thread does the rest */
  void (*abandoned)(void *context);
  void *context;
} session_queue;

/* A lock, and a condition whose waits can end by the monotonic clock. */
NODISCARD status session_lock_init(pthread_mutex_t *lock, pthread_cond_t *changed);

/* abandoned(context) is called by the queue's thread after the last job, if one of these closed the queue. */
NODISCARD status session_queue_init(session_queue *q, void (*abandoned)(void *context),
                                    void *context);
/* Waits for all jobs. False: it is called by the queue's own thread, which will call abandoned(). */
bool session_queue_close(session_queue *q);
NODISCARD status session_queue_append(session_queue *q, session_job *j);
/* Waits for the jobs that were appended so far, unless the caller is one of them. */
void session_queue_settle(session_queue *q);
/* Is this the queue's thread? Only the address of the queue is looked at. */
bool session_queue_is_mine(const session_queue *q);

#endif
