/* Messages about which rank waits for which. */
#include <stdio.h>

#include "comm/inproc/inproc.h"

/* Says where a rank is that has not posted. */
static void add_absent(rt_comm_line *l, const inproc_rank *r) {
  int kind = atomic_load(&r->last_kind);
  const char *origin = atomic_load(&r->last_origin);
  rt_comm_line_add(l, "rank %u has not posted it", r->base.rank);
  if (atomic_load(&r->left)) {
    rt_comm_line_add(l, " and has left");
    return;
  }
  if (kind < 0) {
    rt_comm_line_add(l, ", nor anything else");
    return;
  }
  bool unfinished = atomic_load(&r->ended) < atomic_load(&r->posts);
  rt_comm_line_add(l, "; its last post is %s%s%s, %s", ir_comm_text((ir_comm_kind)kind),
                   origin ? " at " : "", origin ? origin : "", unfinished ? "unfinished" : "done");
}

/* Ranks that have left are named first: the others may still come. */
static void add_missing(rt_comm_line *l, const inproc_queue *q, uint64_t turn) {
  enum { SHOWN = 4 };
  bool left[RT_COMM_MAX_RANKS]; /* a rank may leave meanwhile */
  uint32_t absent = 0;
  for (uint32_t i = 0; i < q->n; i++) left[i] = atomic_load(&q->members[i].rank->left);
  for (int gone = 1; gone >= 0; gone--) {
    for (uint32_t i = 0; i < q->n; i++) {
      if (q->members[i].posted >= turn || left[i] != gone) continue;
      if (absent++ >= SHOWN) continue;
      rt_comm_line_add(l, absent > 1 ? ", " : ": ");
      add_absent(l, q->members[i].rank);
    }
  }
  if (absent == 0) rt_comm_line_add(l, ", which is under way");
  if (absent > SHOWN) rt_comm_line_add(l, ", and %u more", absent - SHOWN);
}

/* The lock is held; the member's post of that turn is not done. */
static void add_wait(rt_comm_line *l, const inproc_queue *q, const inproc_member *m,
                     uint64_t turn) {
  char request[256];
  const inproc_record *r = m->head;
  for (uint64_t t = atomic_load(&m->completed) + 1; t < turn; t++) r = r->next;
  rt_comm_request_text(&r->request, request, sizeof request);
  rt_comm_line_add(l, "%srank %u waits for %s", l->used ? "; " : "", m->rank->base.rank, request);
  if (!q->is_pair) {
    rt_comm_line_add(l, " on team ");
    rt_comm_line_add_team(l, q->devices, q->n);
  }
  add_missing(l, q, turn);
}

void inproc_describe(rt_comm *comm, const rt_comm_ticket *ticket, char *text, size_t size_bytes) {
  rt_comm_line l = rt_comm_line_of(text, size_bytes);
  for (int h = 0; h < 2; h++) {
    inproc_member *m = ticket->half[h].where;
    if (!m) continue;
    (void)pthread_mutex_lock(&m->queue->lock);
    if (atomic_load(&m->completed) < ticket->half[h].turn)
      add_wait(&l, m->queue, m, ticket->half[h].turn);
    (void)pthread_mutex_unlock(&m->queue->lock);
  }
  if (l.used == 0) rt_comm_line_add(&l, "rank %u waits for nothing", comm->rank);
}

void inproc_describe_waiter(inproc_queue *q, char *text, size_t size_bytes) {
  rt_comm_line l = rt_comm_line_of(text, size_bytes);
  (void)pthread_mutex_lock(&q->lock);
  for (uint32_t i = 0; i < q->n && l.used == 0; i++) {
    inproc_member *m = &q->members[i];
    uint64_t completed = atomic_load(&m->completed);
    if (m->posted > completed) add_wait(&l, q, m, completed + 1);
  }
  (void)pthread_mutex_unlock(&q->lock);
}
