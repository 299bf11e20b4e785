/* Errors that kernels find while they run: indexes, positions and lengths that are out of range.
 *
 * A task that may find an error has records in pinned memory of the host. A kernel writes to a record
 * only when it finds an error, and the record keeps the first one until it is reported. So nothing is
 * copied or cleared for a run without errors, and the host need not wait for it. If the host waits for a
 * run anyway, its error is reported at its end. The error of another run, on the caller's streams or in
 * a graph of the caller's, is reported by the next call that runs something on the device; if there is
 * none, it is written to the log when the plan is unloaded. */
#include "device/cuda/errors.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "device/cuda/run.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

status cuda_errors_make(cuda_loaded *l) {
  uint32_t at = 0;
  void *made = NULL;
  if (l->n_errors == 0) return STATUS_OK;
  TRY(cuda_try(l->cu->cuMemHostAlloc(&made, l->n_errors * sizeof(cg_error),
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
               "allocating pinned memory"));
  l->errors = made;
  memset(l->errors, 0, l->n_errors * sizeof(cg_error));
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    l->ranks[r].errors = (CUdeviceptr)(uintptr_t)(l->errors + at);
    at += l->ranks[r].n_errors;
  }
  return STATUS_OK;
}

void cuda_errors_clear(cuda_loaded *l) {
  if (l->n_errors) memset(l->errors, 0, l->n_errors * sizeof(cg_error));
}

/* Has any record an error? Kernels may be writing to records. */
static bool is_raised(const cuda_loaded *l) {
  bool any = false;
  for (uint32_t i = 0; i < l->n_errors; i++)
    any = any || ((const volatile cg_error *)l->errors)[i].raised;
  return any;
}

/* ---- reporting ---- */
/* The first record of a task that has an error; n_indexed: none has. */
static uint32_t first_raised(const cuda_loaded *l, const cuda_task *t, const cg_error **why) {
  uint32_t record = t->error, n = t->kernel ? t->kernel->n_indexed : 0, i = 0;
  for (uint32_t r = 0; r < l->streams[t->stream].rank; r++) record += l->ranks[r].n_errors;
  while (i < n && !l->errors[record + i].raised) i++;
  *why = &l->errors[record + i];
  return i;
}

static uint32_t instr_of(const cuda_loaded *l, const cuda_task *task) {
  const rt_plan *plan = plan_of(l);
  uint32_t number = (uint32_t)(task - l->tasks), i = 0;
  while (i < plan->n_instrs &&
         (plan->instrs[i].kind != RT_LAUNCH || plan->instrs[i].task != number))
    i++;
  return i;
}

static status fail_in(const cuda_loaded *l, const cuda_task *task, uint32_t record,
                      const cg_error *why, const char *when) {
  char message[256];
  status st = cuda_kernel_fail(task->kernel, record, why);
  (void)snprintf(message, sizeof message, "%s%s", status_message(), when);
  status_clear();
  return rt_fail_at(plan_of(l), instr_of(l, task), st, message);
}

/* If several tasks found errors, that of the first one in the plan is reported. */
static status tell(cuda_loaded *l, const char *when) {
  const cuda_task *first = NULL;
  const cg_error *why = NULL, *raised;
  uint32_t record = 0;
  for (uint32_t t = 0; t < plan_of(l)->n_tasks; t++) {
    const cuda_task *task = &l->tasks[t];
    /* mutant: cuda_last_error_told */
    if (!task->kernel || (first && first->instr < task->instr)) continue;
    uint32_t i = first_raised(l, task, &raised);
    if (i == task->kernel->n_indexed) continue;
    first = task;
    record = i;
    why = raised;
  }
  status st = first ? fail_in(l, first, record, why, when) : STATUS_OK;
  cuda_errors_clear(l);
  return st;
}

status cuda_errors_tell(cuda_loaded *l) { return is_raised(l) ? tell(l, "") : STATUS_OK; }

/* ---- runs that nobody waits for ---- */
void cuda_errors_follow(cuda_loaded *l) {
  cuda_device *d = l->device;
  if (l->n_errors == 0 || l->is_followed) return;
  l->is_followed = true;
  l->next_followed = d->followed;
  d->followed = l;
}

static void leave(cuda_device *d, cuda_loaded *l) {
  cuda_loaded **at = &d->followed;
  while (*at && *at != l) at = &(*at)->next_followed;
  if (*at) *at = l->next_followed;
  l->is_followed = false;
}

/* Are all runs of the plan over? Never for a captured plan: a graph of the caller's may run at any time. */
static bool is_over(cuda_loaded *l) {
  CUevent end = l->events[l->order.n_events];
  l->current_gpu = UINT32_MAX; /* another context may be current */
  if (l->keeps_memory || cuda_run_make_current(l, 0) != CUDA_SUCCESS) return false;
  return !l->is_pending || l->cu->cuEventQuery(end) == CUDA_SUCCESS;
}

/* A plan whose runs are over is checked for errors after that is known: its run may have ended just before. */
status cuda_errors_earlier(cuda_device *d) {
  for (cuda_loaded *l = d->followed, *next; l; l = next) {
    next = l->next_followed;
    bool over = is_over(l);
    if (is_raised(l)) {
      if (l->is_pending) TRY(cuda_run_settle(l));
      return tell(l, " (found by an earlier run)");
    }
    if (over) leave(d, l);
  }
  return STATUS_OK;
}

static status settle_all(cuda_device *d) {
  for (cuda_loaded *l = d->followed; l; l = l->next_followed) {
    l->current_gpu = UINT32_MAX; /* another context may be current */
    if (l->is_pending) TRY(cuda_run_settle(l));
  }
  return cuda_errors_earlier(d);
}

status cuda_settle(rt_device *device) {
  cuda_device *d = (cuda_device *)device;
  (void)pthread_mutex_lock(&d->run);
  CUcontext caller = cuda_caller_enter(d->cu);
  status st = settle_all(d);
  cuda_caller_leave(d->cu, caller);
  (void)pthread_mutex_unlock(&d->run);
  return st;
}

void cuda_errors_leave(cuda_loaded *l) {
  cuda_device *d = l->device;
  if (!l->errors) return;
  (void)pthread_mutex_lock(&d->run);
  leave(d, l);
  (void)pthread_mutex_unlock(&d->run);
}

/* Writes the error to the log: no call is left that could return it. */
void cuda_errors_end(cuda_loaded *l) {
  if (!l->errors) return;
  if (is_raised(l) && tell(l, " (found by an earlier run)") != STATUS_OK) {
    char text[512];
    (void)snprintf(text, sizeof text, "weir: %s\n", status_message());
    status_clear();
    log_text(text);
  }
  (void)l->cu->cuMemFreeHost(l->errors);
  l->errors = NULL;
}
