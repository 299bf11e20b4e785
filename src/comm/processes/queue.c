/* Matching posts: the same records in every process, in the same order. */
#include <stdio.h>

#include "comm/processes/internal.h"

enum { STEPS = 8 }; /* of one operation, before others have their turn */

/* ---- disagreement ---- */
/* Fails the world if the posts at the front of members a and b disagree. */
static void check_agreement(mpi_queue *q, uint32_t a, uint32_t b) {
  char text[MPI_REASON_BYTES];
  rt_comm_party party = {q->devices, q->n, q->is_pair};
  if (!rt_comm_party_agrees(party, a, &q->members[a].head->request, b, &q->members[b].head->request,
                            text, sizeof text))
    mpi_world_fail(q->world, STATUS_BAD_PROGRAM, text);
}

/* Notes that member m has a record at the front. */
static void arrive(mpi_queue *q, uint32_t m) {
  if (q->present++ == 0) q->first = m;
  else check_agreement(q, q->first, m);
}

void mpi_queue_add(mpi_queue *q, mpi_record *r) {
  mpi_member *m = &q->members[r->member];
  bool first = m->head == NULL;
  if (first) m->head = r;
  else m->tail->next = r;
  m->tail = r;
  if (first && mpi_world_state(q->world) == MPI_WELL) arrive(q, r->member);
}

/* ---- the operation at the front ---- */
static void set_active(mpi_queue *q, bool on) {
  if (q->is_active == on) return;
  q->is_active = on;
  mpi_queue **link = &q->world->active;
  if (on) {
    q->next_active = *link;
    *link = q;
    return;
  }
  while (*link != q) link = &(*link)->next_active;
  *link = q->next_active;
}

static void record_free(mpi_world *w, mpi_record *r) {
  mpi_engine *e = w->engine;
  mpi_io_free(r->payload);
  r->payload = NULL;
  (void)pthread_mutex_lock(&e->submit_lock);
  r->next = w->free_records;
  w->free_records = r;
  (void)pthread_mutex_unlock(&e->submit_lock);
}

/* Removes the records at the front; the next ones take their place. */
static void end_operation(mpi_queue *q) {
  mpi_engine *e = q->world->engine;
  mpi_world *w = q->world;
  uint32_t ended = 0;
  q->is_running = false;
  q->present = 0;
  set_active(q, false);
  for (uint32_t p = 0; p < q->n; p++) {
    mpi_member *m = &q->members[p];
    mpi_record *r = m->head;
    m->head = r->next;
    ended += r->is_local;
    record_free(w, r);
    (void)atomic_fetch_add(&m->completed, 1);
  }
  (void)atomic_fetch_sub(&w->unfinished, ended);
  atomic_store(&e->is_awaited, false);
  if (w->notify) w->notify(w->context, w->base.rank);
  for (uint32_t p = 0; p < q->n; p++)
    if (q->members[p].head) arrive(q, p);
  mpi_record *next = q->members[q->me].head;
  if (next && mpi_world_state(w) == MPI_WELL) mpi_say_payload(q, next);
}

static void begin_operation(mpi_queue *q) {
  const rt_comm_request *r = &q->members[0].head->request;
  q->is_running = true;
  q->kind = r->kind;
  q->piece_bytes = (size_t)r->count * ir_dtype_size_bytes(r->dtype);
  bool to_oneself = q->is_pair && q->devices[0] == q->devices[1];
  q->is_small = !to_oneself && mpi_op_is_small(r);
  if (q->is_small) return;
  mpi_op_begin(q);
  set_active(q, true);
}

/* True: the operation at the front is over. */
static bool advance_one(mpi_queue *q, bool chunks) {
  mpi_engine *e = q->world->engine;
  if (!q->is_running) begin_operation(q);
  if (!q->is_small) {
    bool moved = true, over = false;
    for (int k = 0; k < STEPS && chunks && moved && !over && !e->is_broken; k++) {
      over = mpi_op_step(q, &moved);
      e->has_moved |= moved;
      if (moved) mpi_world_stir(q->world);
    }
    return over;
  }
  if (!mpi_small_is_ready(q)) return false;
  mpi_small_run(q);
  return true;
}

void mpi_queue_advance(mpi_queue *q, bool chunks) {
  mpi_engine *e = q->world->engine;
  while (q->present == q->n && mpi_world_state(q->world) == MPI_WELL) {
    if (!advance_one(q, chunks) || e->is_broken) return;
    end_operation(q);
  }
}

/* ---- ranks that are gone ---- */
static uint32_t records_of(const mpi_member *m) {
  uint32_t n = 0;
  for (const mpi_record *r = m->head; r; r = r->next) n++;
  return n;
}

void mpi_queue_check_gone(mpi_queue *q) {
  const mpi_world *w = q->world;
  if (mpi_world_state(w) != MPI_WELL || !q->members[q->me].head) return;
  for (uint32_t p = 0; p < q->n; p++) {
    const mpi_peer *peer = &w->peers[q->devices[p]];
    if (!peer->has_left && !peer->has_died) continue;
    if (records_of(&q->members[p]) >= records_of(&q->members[q->me])) continue;
    char text[MPI_REASON_BYTES];
    mpi_describe_waiter(q, text, sizeof text);
    mpi_world_fail(q->world, STATUS_UNAVAILABLE, text);
    return;
  }
}
