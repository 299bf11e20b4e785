#include "comm/faulty.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/device.h"

/* One post. It is kept until the endpoint is closed, since the caller may keep its ticket that long. */
typedef struct held_post {
  rt_comm_request request;
  rt_comm_ticket ticket; /* the inner one, once forwarded */
  bool is_forwarded;
  struct held_post *older; /* all of them */
  struct held_post *next;  /* those not forwarded, in order */
} held_post;

typedef struct faulty {
  rt_comm base;
  rt_comm *inner;
  rt_comm_faults faults;
  const allocator *memory;
  pthread_mutex_t lock;
  uint64_t posts;
  int64_t due_ns;
  held_post *newest, *first, *last;
} faulty;

static const rt_comm_ops faulty_ops;

/* ---- what must stay in order ---- */
static bool same_team(const rt_comm_request *a, const rt_comm_request *b) {
  return a->n_team == b->n_team && memcmp(a->team, b->team, a->n_team * sizeof *a->team) == 0;
}

/* The device that a message goes to, or comes from; -1: none. */
static int64_t receiver(const rt_comm_request *r) {
  return r->kind != IR_COMM_RECV && r->to >= 0 ? (int64_t)r->team[r->to] : -1;
}

static int64_t sender(const rt_comm_request *r) {
  return r->kind != IR_COMM_SEND && r->from >= 0 ? (int64_t)r->team[r->from] : -1;
}

static bool are_ordered(const rt_comm_request *a, const rt_comm_request *b) {
  if (ir_comm_is_message(a->kind) != ir_comm_is_message(b->kind)) return false;
  if (!ir_comm_is_message(a->kind)) return same_team(a, b);
  return (receiver(a) >= 0 && receiver(a) == receiver(b)) ||
         (sender(a) >= 0 && sender(a) == sender(b));
}

/* ---- posts; the lock is held ---- */
static bool must_wait(const faulty *f, const rt_comm_request *r) {
  bool must = f->first && !f->faults.reorders;
  for (const held_post *p = f->first; p && !must; p = p->next) must = are_ordered(&p->request, r);
  return must;
}

static status forward(faulty *f, held_post *p) {
  p->is_forwarded = true;
  return f->inner->ops->post(f->inner, &p->request, &p->ticket);
}

static void hold(faulty *f, held_post *p) {
  if (f->first) f->last->next = p;
  else f->first = p;
  f->last = p;
}

/* Forwards posts whose delay is over. A wrong request that was held back can only be reported by ending the world. */
static void forward_due(faulty *f) {
  if (!f->first || rt_clock_ns() < f->due_ns) return;
  for (held_post *p = f->first; p; p = p->next) {
    status st = forward(f, p);
    if (st != STATUS_OK) f->inner->ops->abort(f->inner, st, status_message());
  }
  f->first = f->last = NULL;
}

static status inject_failure(faulty *f, uint64_t number) {
  char text[96];
  (void)snprintf(text, sizeof text, "injected: post %llu of rank %u fails",
                 (unsigned long long)number, f->base.rank);
  f->inner->ops->abort(f->inner, f->faults.fail_with, text);
  return f->inner->ops->error(f->inner);
}

static status post_locked(faulty *f, const rt_comm_request *r, rt_comm_ticket *ticket) {
  uint64_t number = f->posts++;
  if (number == f->faults.fail_at) return inject_failure(f, number);
  held_post *p = memory_alloc(f->memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (held_post){.request = *r, .older = f->newest};
  f->newest = p;
  *ticket = (rt_comm_ticket){.half[0].where = p};
  forward_due(f);
  if (number == f->faults.delay_at) f->due_ns = rt_clock_ns() + f->faults.delay_ns;
  if (number != f->faults.delay_at && !must_wait(f, r)) return forward(f, p);
  hold(f, p);
  return STATUS_OK;
}

static bool is_forwarded(faulty *f, const held_post *p) {
  (void)pthread_mutex_lock(&f->lock);
  forward_due(f);
  bool yes = p->is_forwarded;
  (void)pthread_mutex_unlock(&f->lock);
  return yes;
}

/* ---- operations ---- */
static status faulty_post(rt_comm *comm, const rt_comm_request *r, rt_comm_ticket *ticket) {
  faulty *f = (faulty *)comm;
  (void)pthread_mutex_lock(&f->lock);
  status st = post_locked(f, r, ticket);
  (void)pthread_mutex_unlock(&f->lock);
  return st;
}

static bool faulty_done(rt_comm *comm, const rt_comm_ticket *ticket) {
  faulty *f = (faulty *)comm;
  const held_post *p = ticket->half[0].where;
  if (is_forwarded(f, p)) return f->inner->ops->done(f->inner, &p->ticket);
  return f->inner->ops->error(f->inner) != STATUS_OK;
}

static bool faulty_progress(rt_comm *comm) {
  faulty *f = (faulty *)comm;
  (void)pthread_mutex_lock(&f->lock);
  forward_due(f);
  (void)pthread_mutex_unlock(&f->lock);
  return f->inner->ops->progress(f->inner);
}

static status faulty_wait(rt_comm *comm, const rt_comm_ticket *ticket, int64_t timeout_ns) {
  faulty *f = (faulty *)comm;
  const held_post *p = ticket->half[0].where;
  int64_t start_ns = rt_clock_ns();
  while (!is_forwarded(f, p)) {
    TRY(f->inner->ops->error(f->inner));
    if (timeout_ns >= 0 && rt_clock_ns() - start_ns > timeout_ns)
      f->inner->ops->abort(f->inner, STATUS_UNAVAILABLE, "no progress: the post is held back");
    else (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  return f->inner->ops->wait(f->inner, &p->ticket, timeout_ns);
}

static void faulty_describe(rt_comm *comm, const rt_comm_ticket *ticket, char *text,
                            size_t size_bytes) {
  faulty *f = (faulty *)comm;
  const held_post *p = ticket->half[0].where;
  if (is_forwarded(f, p)) f->inner->ops->describe(f->inner, &p->ticket, text, size_bytes);
  else (void)snprintf(text, size_bytes, "rank %u holds its post back", comm->rank);
}

static void faulty_abort(rt_comm *comm, status why, const char *reason) {
  faulty *f = (faulty *)comm;
  f->inner->ops->abort(f->inner, why, reason);
}

static int64_t faulty_stirred(rt_comm *comm) {
  faulty *f = (faulty *)comm;
  return f->inner->ops->stirred ? f->inner->ops->stirred(f->inner) : 0;
}

static status faulty_error(rt_comm *comm) {
  faulty *f = (faulty *)comm;
  return f->inner->ops->error(f->inner);
}

static status faulty_prepare(rt_comm *comm, const uint32_t *team, uint32_t n_team) {
  faulty *f = (faulty *)comm;
  return f->inner->ops->prepare(f->inner, team, n_team);
}

static void faulty_close(rt_comm *comm) {
  if (!comm) return;
  faulty *f = (faulty *)comm;
  f->inner->ops->close(f->inner);
  for (held_post *p = f->newest, *older; p; p = older) {
    older = p->older;
    memory_free(f->memory, p);
  }
  (void)pthread_mutex_destroy(&f->lock);
  memory_free(f->memory, f);
}

status rt_comm_faulty_open(rt_comm *inner, const rt_comm_faults *faults, const allocator *memory,
                           rt_comm **result) {
  faulty *f = memory_alloc(memory, sizeof *f);
  if (!f) return STATUS_OUT_OF_MEMORY;
  *f = (faulty){.base = *inner, .inner = inner, .faults = *faults, .memory = memory};
  f->base.ops = &faulty_ops;
  (void)pthread_mutex_init(&f->lock, NULL);
  *result = &f->base;
  return STATUS_OK;
}

/* Wraps an endpoint that is open already, so there is no open(). */
static const rt_comm_ops faulty_ops = {
    .name = "faulty",
    .summary = "another endpoint, with a post that fails or is late",
    .close = faulty_close,
    .prepare = faulty_prepare,
    .post = faulty_post,
    .done = faulty_done,
    .progress = faulty_progress,
    .wait = faulty_wait,
    .abort = faulty_abort,
    .error = faulty_error,
    .describe = faulty_describe,
    .stirred = faulty_stirred,
};
