/* Messages about which rank waits for which. Another rank must be asked where it is. */
#include <stdio.h>

#include "comm/processes/internal.h"
#include "runtime/device.h"

enum { ANSWER_NS = 1000000000 }; /* for all answers */

/* Says where a rank is that has not posted. */
static void add_absent(rt_comm_line *l, const mpi_world *w, uint32_t rank) {
  const mpi_peer *p = &w->peers[rank];
  rt_comm_line_add(l, "rank %u has not posted it", rank);
  if (p->has_died) rt_comm_line_add(l, " and has died");
  else if (p->has_left) rt_comm_line_add(l, " and has left");
  else if (p->answered == 0 || p->answered < w->questions)
    rt_comm_line_add(l, " and has not said where it is");
  else if (p->last_kind < 0) rt_comm_line_add(l, ", nor anything else");
  else
    rt_comm_line_add(l, "; its last post is %s%s%s, %s", ir_comm_text((ir_comm_kind)p->last_kind),
                     p->last_origin[0] ? " at " : "", p->last_origin,
                     p->is_unfinished ? "unfinished" : "done");
  bool answered = p->answered > 0 && p->answered == w->questions;
  if (answered && p->where[0]) rt_comm_line_add(l, "; its program has come to %s", p->where);
}

/* The record of a member `depth` after its front, or NULL. */
static const mpi_record *record_at(const mpi_member *m, uint64_t depth) {
  const mpi_record *r = m->head;
  for (; r && depth > 0; depth--) r = r->next;
  return r;
}

/* Ranks that have left or died are named first: the others may still come. */
static void add_missing(rt_comm_line *l, const mpi_queue *q, uint64_t depth) {
  enum { SHOWN = 4 };
  uint32_t absent = 0;
  for (int gone = 1; gone >= 0; gone--) {
    for (uint32_t i = 0; i < q->n; i++) {
      const mpi_peer *p = &q->world->peers[q->devices[i]];
      if (record_at(&q->members[i], depth) || (p->has_died || p->has_left) != gone) continue;
      if (absent++ >= SHOWN) continue;
      rt_comm_line_add(l, absent > 1 ? ", " : ": ");
      add_absent(l, q->world, q->devices[i]);
    }
  }
  if (absent == 0) rt_comm_line_add(l, ", which is under way");
  if (absent > SHOWN) rt_comm_line_add(l, ", and %u more", absent - SHOWN);
}

static void add_wait(rt_comm_line *l, const mpi_queue *q, const mpi_record *r, uint64_t depth) {
  char request[256];
  rt_comm_request_text(&r->request, request, sizeof request);
  rt_comm_line_add(l, "%srank %u waits for %s", l->used ? "; " : "", q->devices[r->member],
                   request);
  if (!q->is_pair) {
    rt_comm_line_add(l, " on team ");
    rt_comm_line_add_team(l, q->devices, q->n);
  }
  add_missing(l, q, depth);
}

/* ---- tickets ---- */
static const mpi_record *record_of(const rt_comm_ticket *t, int half, uint64_t *depth) {
  const mpi_member *m = t->half[half].where;
  if (!m || mpi_half_is_complete(t, (uint32_t)half)) return NULL;
  *depth = t->half[half].turn - atomic_load(&m->completed) - 1;
  return record_at(m, *depth);
}

/* All ranks are asked where they are: the rank that this one waits for may itself wait for another. */
static bool is_asked(const mpi_world *w, uint32_t rank) {
  return rank != w->base.rank && !w->peers[rank].has_left && !w->peers[rank].has_died;
}

static bool has_answered(const mpi_world *w, uint32_t rank) {
  return !is_asked(w, rank) || w->peers[rank].answered == w->questions;
}

static bool have_all_answered(const mpi_world *w) {
  bool all = true;
  for (uint32_t r = 0; r < w->base.n_ranks; r++) all &= has_answered(w, r);
  return all;
}

/* The lock is held, but released between polls. */
static void ask(mpi_world *w) {
  mpi_engine *e = w->engine;
  int64_t end_ns = rt_clock_ns() + ANSWER_NS;
  w->questions++;
  for (uint32_t r = 0; r < w->base.n_ranks; r++)
    if (is_asked(w, r)) mpi_say_question(w, r);
  for (uint32_t tries = 0; !have_all_answered(w) && rt_clock_ns() < end_ns; tries++) {
    if (mpi_engine_poll(e)) tries = 0;
    if (e->is_broken) return;
    mpi_engine_unlock(e);
    mpi_pause(tries);
    mpi_engine_lock(e);
  }
}

static void add_silent(rt_comm_line *l, const mpi_world *w) {
  enum { SHOWN = 4 };
  uint32_t silent = 0;
  for (uint32_t r = 0; r < w->base.n_ranks; r++)
    if (!has_answered(w, r) && silent++ < SHOWN)
      rt_comm_line_add(l, "; rank %u does not answer", r);
  if (silent > SHOWN) rt_comm_line_add(l, ", nor do %u more", silent - SHOWN);
}

void mpi_describe(rt_comm *comm, const rt_comm_ticket *ticket, char *text, size_t size_bytes) {
  mpi_engine *e = ((mpi_world *)comm)->engine;
  mpi_world *w = (mpi_world *)comm;
  uint64_t depth;
  const mpi_record *r;
  rt_comm_line l = rt_comm_line_of(text, size_bytes);
  mpi_engine_lock(e);
  (void)mpi_engine_poll(e); /* what was posted is in its queue now */
  ask(w);
  for (int h = 0; h < 2; h++)
    if ((r = record_of(ticket, h, &depth))) add_wait(&l, r->queue, r, depth);
  if (l.used > 0) add_silent(&l, w);
  mpi_engine_unlock(e);
  if (l.used == 0) rt_comm_line_add(&l, "rank %u waits for nothing", comm->rank);
}

void mpi_describe_waiter(mpi_queue *q, char *text, size_t size_bytes) {
  rt_comm_line l = rt_comm_line_of(text, size_bytes);
  for (uint32_t k = 0; k < q->n && l.used == 0; k++) {
    const mpi_member *m = &q->members[(q->me + k) % q->n];
    uint64_t depth = 0;
    for (const mpi_record *r = m->head; r && l.used == 0; r = r->next, depth++) {
      bool all = true;
      for (uint32_t i = 0; i < q->n; i++) all &= record_at(&q->members[i], depth) != NULL;
      if (!all) add_wait(&l, q, r, depth);
    }
  }
  if (l.used == 0 && q->members[q->me].head) add_wait(&l, q, q->members[q->me].head, 0);
}
