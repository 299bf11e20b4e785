/* Chunks from one member to another. */
#include <string.h>

#include "comm/processes/internal.h"

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

size_t mpi_chunk_bytes(const mpi_queue *q, size_t bytes, uint32_t c) {
  return smaller(q->chunk_bytes, bytes - c * q->chunk_bytes);
}

/* Chunks of an operation that is over may still be in flight: they count for the window. */
void mpi_stream_open(mpi_stream *s, const mpi_queue *q, const char *from, char *to, size_t bytes) {
  uint32_t in_flight = s->in_flight;
  *s = (mpi_stream){.from = from, .to = to, .bytes = bytes, .in_flight = in_flight};
  s->stride_bytes = q->chunk_bytes;
  s->chunks = (uint32_t)((bytes + q->chunk_bytes - 1) / q->chunk_bytes);
}

static int32_t tag_of(const mpi_queue *q, uint32_t id) {
  mpi_engine *e = q->world->engine;
  uint32_t worlds = ((uint32_t)e->place.max_tag >> MPI_QUEUE_BITS);
  uint32_t world = worlds > 0 ? q->world->epoch % worlds : 0;
  return (int32_t)(world << MPI_QUEUE_BITS | (q->is_pair ? 0 : id));
}

/* n chunks of a stream were begun at once. If they nearly fill the window, and are not the first, it had run empty. */
static void note_begun(mpi_engine *e, const mpi_stream *s, uint32_t n) {
  if (n + 1 >= MPI_WINDOW && s->begun > n) atomic_store(&e->is_starved, true);
}

/* The second phase is sent after the first, since both have one tag. */
bool mpi_stream_send(mpi_queue *q, uint32_t member, uint32_t phase) {
  mpi_engine *e = q->world->engine;
  mpi_member *m = &q->members[member];
  mpi_stream *s = &m->out[phase];
  uint32_t n = 0;
  if (phase > 0 && m->out[0].begun < m->out[0].chunks) return false;
  while (s->begun < s->chunks && s->in_flight < MPI_WINDOW && (!s->ready || s->begun < *s->ready)) {
    mpi_io *io = mpi_io_take(e, MPI_IO_SEND, MPI_CHUNK_BYTES);
    if (!io) return false;
    size_t bytes = mpi_chunk_bytes(q, s->bytes, s->begun);
    memcpy(io->data, s->from + s->begun * s->stride_bytes, bytes);
    io->world = q->world;
    io->stream = s;
    s->in_flight++;
    s->ended = ++s->begun;
    mpi_io_send(io, MPI_LANE_DATA, m->device, tag_of(q, q->id), bytes);
    n++;
  }
  note_begun(q->world->engine, s, n);
  return n > 0;
}

static bool begin_receives(mpi_queue *q, mpi_member *m, mpi_stream *s) {
  mpi_engine *e = q->world->engine;
  uint32_t n = 0;
  while (s->begun < s->chunks && s->begun < s->ended + MPI_WINDOW) {
    mpi_io *io = mpi_io_take(e, MPI_IO_CHUNK, MPI_CHUNK_BYTES);
    if (!io) return false;
    io->world = q->world;
    s->window[s->begun % MPI_WINDOW] = io;
    size_t bytes = mpi_chunk_bytes(q, s->bytes, s->begun);
    s->begun++;
    mpi_io_receive(io, MPI_LANE_DATA, (int32_t)m->device, tag_of(q, m->remote_id), bytes);
    n++;
  }
  note_begun(q->world->engine, s, n);
  return n > 0;
}

const char *mpi_stream_chunk(const mpi_stream *s) {
  const mpi_io *io = s->ended < s->begun ? s->window[s->ended % MPI_WINDOW] : NULL;
  return io && io->has_arrived ? io->data : NULL;
}

void mpi_stream_release(mpi_stream *s) {
  mpi_io **place = &s->window[s->ended++ % MPI_WINDOW];
  mpi_io_free(*place);
  *place = NULL;
}

bool mpi_stream_receive(mpi_queue *q, uint32_t member, uint32_t phase) {
  mpi_member *m = &q->members[member];
  mpi_stream *s = &m->in[phase];
  if (phase > 0 && m->in[0].begun < m->in[0].chunks) return false;
  bool moved = begin_receives(q, m, s);
  if (!s->to) return moved;
  for (const char *data; (data = mpi_stream_chunk(s)); moved = true) {
    memcpy(s->to + s->ended * q->chunk_bytes, data, mpi_chunk_bytes(q, s->bytes, s->ended));
    mpi_stream_release(s);
  }
  return moved;
}
