/* What an operation moves, and reducing.
 *
 * Everything goes directly from the member that has it to the members that need it. That moves no more
 * bytes than a ring does, and reductions are in team order. There are two exceptions: a broadcast runs
 * along a chain; and if whole inputs are reduced, member p reduces slice p of all and sends the result on.
 *
 *   kind                      first phase                          second phase
 *   broadcast                 from the previous to the next member, chunk by chunk
 *   reduce                    slice p of every input to member p   slices to the root
 *   allreduce                 the same                             slices to all members
 *   reduce_scatter            piece p of every input to member p
 *   gather, scatter, allgather, all_to_all, messages: pieces to where they belong */
#include <string.h>

#include "comm/processes/internal.h"

/* ---- what goes where ---- */
static bool many_in(ir_comm_kind k) { return ir_comm_info_of(k)->in == IR_PIECES_TEAM; }
static bool many_out(ir_comm_kind k) { return ir_comm_info_of(k)->out == IR_PIECES_TEAM; }

bool mpi_op_is_small(const rt_comm_request *r) {
  return (size_t)r->count * ir_dtype_size_bytes(r->dtype) <= MPI_SMALL_BYTES;
}

bool mpi_op_moves(const mpi_queue *q, const rt_comm_request *r, uint32_t a, uint32_t b,
                  size_t *offset) {
  size_t piece = (size_t)r->count * ir_dtype_size_bytes(r->dtype);
  *offset = many_in(r->kind) ? b * piece : 0;
  if (q->is_pair) return a == 0 && b == 1;
  switch (ir_comm_info_of(r->kind)->root) {
  case IR_ROOT_SENDS: return a == r->root;
  case IR_ROOT_RECEIVES: return b == r->root && r->in != NULL;
  case IR_ROOT_NO: break;
  }
  return true;
}

static const rt_comm_request *request_at(const mpi_queue *q, uint32_t member) {
  return &q->members[member].head->request;
}

/* Where this rank's result goes, or NULL if it gets none. */
static char *out_of(const mpi_queue *q) {
  const rt_comm_request *r = request_at(q, q->me);
  bool only_root = ir_comm_info_of(r->kind)->root == IR_ROOT_RECEIVES;
  if (q->is_pair ? q->me == 0 : only_root && r->root != q->me) return NULL;
  return r->out;
}

/* `out` may be a source only where rt_comm_reduce() allows it. */
static void reduce_into(const mpi_queue *q, size_t bytes, uint32_t n, char *out) {
  mpi_engine *e = q->world->engine;
  const rt_comm_request *r = request_at(q, q->me);
  char *to = out;
  for (uint32_t i = 2; i < n; i++)
    if (q->sources[i] == out) to = e->scratch;
  rt_comm_reduce(r->op, r->dtype, 0, bytes / ir_dtype_size_bytes(r->dtype), n, q->sources, to);
  if (to != out) memcpy(out, to, bytes);
}

/* ---- small operations ---- */
bool mpi_small_is_ready(const mpi_queue *q) {
  size_t offset;
  for (uint32_t p = 0; p < q->n && q->piece_bytes > 0; p++) {
    const mpi_record *r = q->members[p].head;
    if (p != q->me && mpi_op_moves(q, &r->request, p, q->me, &offset) && !r->payload) return false;
  }
  return true;
}

/* What member p sends to this rank, or NULL. */
static const char *small_source(const mpi_queue *q, uint32_t p) {
  const mpi_record *r = q->members[p].head;
  size_t offset;
  if (!mpi_op_moves(q, &r->request, p, q->me, &offset)) return NULL;
  if (p != q->me) return r->payload_data;
  return r->request.in ? (const char *)r->request.in + offset : NULL;
}

void mpi_small_run(mpi_queue *q) {
  char *out = out_of(q);
  size_t bytes = q->piece_bytes;
  uint32_t n = 0;
  if (!out || bytes == 0) return;
  for (uint32_t p = 0; p < q->n; p++) {
    const char *from = small_source(q, p);
    if (!from) continue;
    char *to = out + (many_out(q->kind) ? p * bytes : 0);
    if (ir_comm_combines(q->kind)) q->sources[n++] = from;
    else if (to != from) memcpy(to, from, bytes);
  }
  if (n > 0) reduce_into(q, bytes, n, out);
}

/* ---- large operations: setting up ---- */
static size_t slice(const mpi_queue *q, uint32_t p, size_t *begin) {
  size_t rest = p * q->slice_bytes < q->piece_bytes ? q->piece_bytes - p * q->slice_bytes : 0;
  *begin = p * q->slice_bytes;
  return rest < q->slice_bytes ? rest : q->slice_bytes;
}

/* Chunks get smaller with many members, whose windows are all open at once. */
static void set_sizes(mpi_queue *q) {
  size_t share = (q->piece_bytes + q->n - 1) / q->n;
  q->slice_bytes = (share + MPI_LINE_BYTES - 1) / MPI_LINE_BYTES * MPI_LINE_BYTES;
  q->chunk_bytes = MPI_CHUNK_BYTES;
  while (q->chunk_bytes > (size_t)16 << 10 && q->chunk_bytes * q->n > (size_t)1 << 20)
    q->chunk_bytes /= 2;
}

static void begin_reduction(mpi_queue *q, const char *own, char *to, size_t bytes) {
  q->reduce_own = own;
  q->reduce_to = to;
  q->reduce_bytes = bytes;
  q->reduce_chunks = (uint32_t)((bytes + q->chunk_bytes - 1) / q->chunk_bytes);
}

static void begin_direct(mpi_queue *q) {
  const rt_comm_request *mine = request_at(q, q->me);
  bool reduces = ir_comm_combines(q->kind);
  char *out = out_of(q);
  size_t offset;
  for (uint32_t p = 0; p < q->n; p++) {
    mpi_member *m = &q->members[p];
    char *to = many_out(q->kind) && out ? out + p * q->piece_bytes : out;
    if (p == q->me) {
      bool stays = mpi_op_moves(q, mine, p, p, &offset) && mine->in && to && !reduces;
      if (stays) q->local.from = (const char *)mine->in + offset, q->local.to = to;
      continue;
    }
    if (mpi_op_moves(q, mine, q->me, p, &offset))
      mpi_stream_open(&m->out[0], q, (const char *)mine->in + offset, NULL, q->piece_bytes);
    if (mpi_op_moves(q, &m->head->request, p, q->me, &offset))
      mpi_stream_open(&m->in[0], q, NULL, reduces ? NULL : to, q->piece_bytes);
  }
  if (reduces)
    begin_reduction(q, (const char *)mine->in + q->me * q->piece_bytes, out, q->piece_bytes);
}

static void begin_broadcast(mpi_queue *q) {
  const rt_comm_request *r = request_at(q, q->me);
  uint32_t distance = (q->me + q->n - r->root) % q->n;
  mpi_stream *in = &q->members[(q->me + q->n - 1) % q->n].in[0];
  mpi_stream *out = &q->members[(q->me + 1) % q->n].out[0];
  bool is_root = distance == 0;
  if (!is_root) mpi_stream_open(in, q, NULL, r->out, q->piece_bytes);
  if (distance + 1 < q->n) {
    mpi_stream_open(out, q, is_root ? r->in : r->out, NULL, q->piece_bytes);
    out->ready = is_root ? NULL : &in->ended;
  }
  if (is_root && r->out) q->local.from = r->in, q->local.to = r->out;
}

/* Member p reduces slice p. The slices go to all, or to the root. */
static void begin_sliced(mpi_queue *q) {
  mpi_engine *e = q->world->engine;
  const rt_comm_request *mine = request_at(q, q->me);
  bool to_all = q->kind == IR_COMM_ALLREDUCE;
  size_t begin, my_begin, my_bytes = slice(q, q->me, &my_begin);
  char *out = out_of(q), *result = out ? out + my_begin : NULL;
  for (uint32_t p = 0; p < q->n; p++) {
    mpi_member *m = &q->members[p];
    size_t bytes = slice(q, p, &begin);
    if (p == q->me) continue;
    if (mine->in) mpi_stream_open(&m->out[0], q, (const char *)mine->in + begin, NULL, bytes);
    if (m->head->request.in) mpi_stream_open(&m->in[0], q, NULL, NULL, my_bytes);
    if (to_all || p == mine->root) {
      mpi_stream_open(&m->out[1], q, result ? result : e->scratch, NULL, my_bytes);
      m->out[1].ready = &q->reduced;
      if (!result) m->out[1].stride_bytes = 0;
    }
    if (out) mpi_stream_open(&m->in[1], q, NULL, out + begin, bytes);
  }
  begin_reduction(q, mine->in ? (const char *)mine->in + my_begin : NULL, result, my_bytes);
}

static void clear(mpi_queue *q) {
  for (uint32_t p = 0; p < q->n; p++)
    for (int phase = 0; phase < 2; phase++) {
      mpi_stream_open(&q->members[p].in[phase], q, NULL, NULL, 0);
      mpi_stream_open(&q->members[p].out[phase], q, NULL, NULL, 0);
    }
  q->local.from = q->local.to = NULL;
  q->local.bytes = q->local.done = 0;
  q->reduced = q->reduce_chunks = 0;
}

void mpi_op_begin(mpi_queue *q) {
  set_sizes(q);
  clear(q);
  if (q->is_pair && q->devices[0] == q->devices[1]) {
    q->local.from = request_at(q, 0)->in;
    q->local.to = request_at(q, 1)->out;
  } else if (q->kind == IR_COMM_BROADCAST) begin_broadcast(q);
  else if (q->kind == IR_COMM_REDUCE || q->kind == IR_COMM_ALLREDUCE) begin_sliced(q);
  else begin_direct(q);
  if (q->local.from && q->local.to != q->local.from) q->local.bytes = q->piece_bytes;
}

/* ---- large operations: running ---- */
static bool step_local(mpi_queue *q) {
  size_t rest = q->local.bytes - q->local.done;
  size_t bytes = rest < MPI_CHUNK_BYTES ? rest : MPI_CHUNK_BYTES;
  if (bytes > 0) memcpy(q->local.to + q->local.done, q->local.from + q->local.done, bytes);
  q->local.done += bytes;
  return bytes > 0;
}

/* The next chunk of every contribution, in team order; false: one is missing. */
static bool find_sources(const mpi_queue *q, uint32_t *n) {
  *n = 0;
  for (uint32_t p = 0; p < q->n; p++) {
    const mpi_stream *s = &q->members[p].in[0];
    const char *own = q->reduce_own ? q->reduce_own + q->reduced * q->chunk_bytes : NULL;
    const char *from = p == q->me ? own : s->chunks > 0 ? mpi_stream_chunk(s) : NULL;
    if (from) q->sources[(*n)++] = from;
    else if (p != q->me && s->chunks > 0) return false;
  }
  return true;
}

/* A result for the root alone is in the scratch buffer, and must leave at once. */
static bool may_reduce(const mpi_queue *q) {
  if (q->reduce_to) return true;
  const mpi_stream *out = q->members[request_at(q, q->me)->root].out;
  return out[1].in_flight < MPI_WINDOW && out[0].begun == out[0].chunks;
}

static bool step_reduction(mpi_queue *q) {
  mpi_engine *e = q->world->engine;
  uint32_t n;
  bool moved = false;
  while (q->reduced < q->reduce_chunks && may_reduce(q) && find_sources(q, &n)) {
    size_t bytes = mpi_chunk_bytes(q, q->reduce_bytes, q->reduced);
    char *to = q->reduce_to ? q->reduce_to + q->reduced * q->chunk_bytes : e->scratch;
    reduce_into(q, bytes, n, to);
    for (uint32_t p = 0; p < q->n; p++)
      if (q->members[p].in[0].chunks > 0) mpi_stream_release(&q->members[p].in[0]);
    q->reduced++;
    moved = true;
    if (!q->reduce_to) (void)mpi_stream_send(q, request_at(q, q->me)->root, 1);
  }
  return moved;
}

static bool is_over(const mpi_queue *q) {
  bool over = q->local.done == q->local.bytes && q->reduced == q->reduce_chunks;
  for (uint32_t p = 0; p < q->n && over; p++)
    for (int phase = 0; phase < 2; phase++)
      over &= mpi_stream_is_over(&q->members[p].in[phase]) &&
              mpi_stream_is_over(&q->members[p].out[phase]);
  return over;
}

/* Each rank begins with another member, so that not all send to one at once. */
bool mpi_op_step(mpi_queue *q, bool *moved) {
  *moved = false;
  for (uint32_t k = 1; k < q->n; k++) {
    uint32_t to = (q->me + k) % q->n, from = (q->me + q->n - k) % q->n;
    *moved |= mpi_stream_receive(q, from, 0);
    *moved |= mpi_stream_send(q, to, 0);
    *moved |= mpi_stream_send(q, to, 1);
    *moved |= mpi_stream_receive(q, from, 1);
  }
  *moved |= step_reduction(q);
  *moved |= step_local(q);
  return is_over(q);
}
