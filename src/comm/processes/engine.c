/* Driving MPI: buffers under way, control messages as they come, new posts. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/processes/internal.h"
#include "runtime/device.h"

enum {
  CONTROL_RECEIVES = 32,
  TICK_NS = 20000000,
  GRACE_NS = 200000000, /* for messages that a process sent before it ended */
};

/* ---- buffers ---- */
static mpi_io **free_list(mpi_engine *e, size_t room_bytes) {
  return room_bytes == MPI_CONTROL_BYTES ? &e->free_control : &e->free_chunks;
}

mpi_io *mpi_io_take(mpi_engine *e, mpi_io_kind kind, size_t room_bytes) {
  mpi_io **list = free_list(e, room_bytes), *io = *list;
  if (io) *list = io->next;
  else io = memory_alloc(&memory_default, sizeof *io + room_bytes);
  if (!io) {
    mpi_engine_break(e, "no memory for messages");
    return NULL;
  }
  *io = (mpi_io){.engine = e, .kind = kind, .room_bytes = room_bytes};
  return io;
}

void mpi_io_free(mpi_io *io) {
  if (!io) return;
  mpi_io **list = free_list(io->engine, io->room_bytes);
  io->next = *list;
  *list = io;
}

static void link_under_way(mpi_io *io) {
  mpi_engine *e = io->engine;
  io->older = e->under_way;
  io->newer = NULL;
  if (e->under_way) e->under_way->newer = io;
  e->under_way = io;
}

static void unlink_under_way(mpi_io *io) {
  mpi_engine *e = io->engine;
  if (io->newer) io->newer->older = io->older;
  else e->under_way = io->older;
  if (io->older) io->older->newer = io->newer;
}

static void begun(mpi_io *io, bool ok) {
  mpi_engine *e = io->engine;
  link_under_way(io);
  if (!ok) mpi_engine_break(e, e->transport->error());
}

void mpi_io_send(mpi_io *io, mpi_lane lane, uint32_t to, int32_t tag, size_t size_bytes) {
  mpi_engine *e = io->engine;
  if (e->is_broken) mpi_io_free(io);
  else begun(io, e->transport->send(e->link, lane, to, tag, io->data, size_bytes, io));
}

void mpi_io_receive(mpi_io *io, mpi_lane lane, int32_t from, int32_t tag, size_t size_bytes) {
  mpi_engine *e = io->engine;
  if (!e->is_broken)
    begun(io, e->transport->receive(e->link, lane, from, tag, io->data, size_bytes, io));
}

void mpi_io_detach(mpi_world *w) {
  mpi_engine *e = w->engine;
  for (mpi_io *io = e->under_way; io; io = io->older)
    if (io->world == w) {
      io->is_abandoned = mpi_world_state(w) != MPI_WELL;
      io->world = NULL, io->stream = NULL;
    }
}

bool mpi_engine_is_sending(mpi_engine *e) {
  for (const mpi_io *io = e->under_way; io; io = io->older)
    if (io->kind == MPI_IO_SEND && !io->is_abandoned) return true;
  return false;
}

/* The transport is not called again, so other ranks cannot be asked: every world decides for itself. */
void mpi_engine_break(mpi_engine *e, const char *what) {
  if (e->is_broken) return;
  e->is_broken = true;
  (void)snprintf(e->broken_text, sizeof e->broken_text, "mpi: %s", what);
  for (mpi_world *w = e->worlds; w; w = w->next)
    mpi_world_decide(w, STATUS_SYSTEM, e->broken_text, false);
}

/* ---- what ended ---- */
/* A chunk whose world is gone has no owner. */
static void ended(mpi_io *io) {
  unlink_under_way(io);
  io->has_arrived = true;
  if (io->kind == MPI_IO_CONTROL) return;
  if (io->stream) io->stream->in_flight--;
  if (io->kind == MPI_IO_SEND || !io->world) mpi_io_free(io);
}

static bool begin_control(mpi_engine *e, uint32_t place) {
  mpi_io *io = e->control[place] = mpi_io_take(e, MPI_IO_CONTROL, MPI_CONTROL_BYTES);
  if (io) mpi_io_receive(io, MPI_LANE_CONTROL, MPI_FROM_ANYBODY, 0, MPI_CONTROL_BYTES);
  return io != NULL;
}

bool mpi_engine_listen(mpi_engine *e) {
  e->control = memory_alloc(&memory_default, CONTROL_RECEIVES * sizeof *e->control);
  for (uint32_t i = 0; e->control && i < CONTROL_RECEIVES; i++)
    if (!begin_control(e, i)) return false;
  return e->control != NULL;
}

/* In the order of the receives: messages of one rank match them in the order of sending. */
static void hear_control(mpi_engine *e) {
  for (;;) {
    uint32_t head = e->control_head % CONTROL_RECEIVES;
    mpi_io *io = e->control[head];
    if (e->is_broken || !io || !io->has_arrived) return;
    if (mpi_hear(io)) mpi_io_free(io);
    if (!begin_control(e, head)) return;
    e->control_head++;
  }
}

/* ---- new posts ---- */
static mpi_record *take_submitted(mpi_engine *e) {
  (void)pthread_mutex_lock(&e->submit_lock);
  mpi_record *first = e->submit_first;
  e->submit_first = e->submit_last = NULL;
  atomic_store(&e->has_submitted, false);
  (void)pthread_mutex_unlock(&e->submit_lock);
  return first;
}

static void serve_posts(mpi_engine *e, bool chunks) {
  for (mpi_record *r = take_submitted(e), *next; r; r = next) {
    mpi_queue *q = r->queue;
    next = r->next;
    r->next = NULL;
    mpi_queue_add(q, r);
    mpi_say_post(q, r);
    mpi_queue_check_gone(q);
    mpi_queue_advance(q, chunks);
  }
}

/* ---- time ---- */
static bool has_ended(const mpi_engine *e, uint32_t rank) {
  struct pollfd look = {.fd = e->processes[rank].pid_fd, .events = POLLIN};
  if (look.fd >= 0 && poll(&look, 1, 0) == 1) return true;
  return !e->is_broken && e->transport->is_lost && e->transport->is_lost(e->link, rank);
}

static void note_deaths(mpi_engine *e, int64_t now_ns) {
  for (uint32_t r = 0; r < e->place.size; r++) {
    mpi_process *p = &e->processes[r];
    if (p->is_dead) continue;
    if (p->died_ns == 0 && has_ended(e, r)) p->died_ns = now_ns;
    if (p->died_ns == 0 || now_ns - p->died_ns < GRACE_NS) continue;
    p->is_dead = true;
    for (mpi_world *w = e->worlds; w; w = w->next)
      if (r < w->base.n_ranks && !w->peers[r].has_left) {
        w->peers[r].has_died = true;
        mpi_world_peer_gone(w, r);
      }
  }
}

static void tick(mpi_engine *e) {
  int64_t now_ns = rt_clock_ns();
  if (now_ns - e->tick_ns < TICK_NS) return;
  e->tick_ns = now_ns;
  note_deaths(e, now_ns);
  for (mpi_world *w = e->worlds; w; w = w->next) mpi_world_tick(w, now_ns);
}

/* ---- driving ---- */
static void step_worlds(mpi_engine *e) {
  for (mpi_world *w = e->worlds; w; w = w->next)
    for (mpi_queue *q = w->active, *next; q; q = next) {
      next = q->next_active;
      mpi_queue_advance(q, true);
    }
}

bool mpi_engine_poll(mpi_engine *e) {
  void *const *tokens;
  uint32_t count = 0;
  tick(e);
  e->has_moved = false;
  bool moved = atomic_load(&e->has_submitted);
  if (moved) serve_posts(e, true);
  if (!e->is_broken && !e->transport->poll(e->link, &tokens, &count))
    mpi_engine_break(e, e->transport->error());
  for (uint32_t i = 0; i < count && !e->is_broken; i++) ended(tokens[i]);
  if (count > 0) hear_control(e);
  step_worlds(e);
  return e->has_moved || moved || count > 0;
}

void mpi_engine_lock(mpi_engine *e) { (void)pthread_mutex_lock(&e->lock); }

/* Handles posts that came while this thread held the lock: their threads could not. */
void mpi_engine_unlock(mpi_engine *e) {
  (void)pthread_mutex_unlock(&e->lock);
  mpi_engine_kick(e);
}

void mpi_engine_kick(mpi_engine *e) {
  while (atomic_load(&e->has_submitted) && pthread_mutex_trylock(&e->lock) == 0) {
    serve_posts(e, false);
    (void)pthread_mutex_unlock(&e->lock);
  }
}

bool mpi_engine_drive(mpi_engine *e) {
  if (pthread_mutex_trylock(&e->lock) != 0) return false;
  bool moved = mpi_engine_poll(e);
  mpi_engine_unlock(e);
  return moved;
}

bool mpi_engine_all_said_bye(mpi_engine *e) {
  for (uint32_t r = 0; r < e->place.size; r++)
    if (r != e->place.rank && !e->processes[r].said_bye && !e->processes[r].is_dead) return false;
  return true;
}

static void free_list_of(mpi_io *io) {
  for (mpi_io *next; io; io = next) {
    next = io->next;
    memory_free(&memory_default, io);
  }
}

void mpi_engine_free_buffers(mpi_engine *e) {
  for (uint32_t i = 0; e->control && i < CONTROL_RECEIVES; i++) /* the others are under way */
    if (e->control[i] && e->control[i]->has_arrived) memory_free(&memory_default, e->control[i]);
  for (mpi_io *io = e->under_way, *older; io; io = older) {
    older = io->older;
    memory_free(&memory_default, io);
  }
  free_list_of(e->free_control);
  free_list_of(e->free_chunks);
  memory_free(&memory_default, e->control);
}

/* Yields for about a millisecond, then sleeps, longer and longer. */
void mpi_pause(uint32_t tries) {
  enum { YIELDS = 1000, SHORT_NS = 50000, LONG_NS = 500000 };
  if (tries < YIELDS) {
    (void)sched_yield();
    return;
  }
  int64_t ns = tries < YIELDS + 100 ? SHORT_NS : LONG_NS;
  (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}
