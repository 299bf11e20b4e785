/* Runs that wait their turn: a queue and a thread per program, made when they are first needed. */
#ifndef WEIR_API_PENDING_H
#define WEIR_API_PENDING_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "runtime/control.h"

typedef struct api_queue {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  weir_pending *first, *last; /* that have not begun */
  _Atomic uint64_t asked, ended;
  pthread_t worker;
  bool has_worker, closing;
  bool is_orphan; /* the program was destroyed by a callback: its thread does the rest */
} api_queue;

NODISCARD status api_queue_init(api_queue *q);
/* Waits for all runs. False: it is called by the queue's own thread, which destroys the program later. */
bool api_queue_close(weir_program *p);
/* Waits for the runs that were asked for so far, unless the caller is one of them. */
void api_queue_settle(weir_program *p);

/* What can be said of arguments before it is the run's turn; *result is a copy of all of them. (run.c) */
weir_status api_run_check(const weir_program *p, const weir_run_args *args, const char *function,
                          weir_run_args *result);
/* The run itself, of arguments that were checked. (run.c) */
NODISCARD status api_run_now(weir_program *p, const weir_run_args *args, rt_control *control);
rt_stream api_stream(const weir_stream *s);

#endif
