/* Which bytes go where, and moving them. */
#include <string.h>

#include "comm/inproc/inproc.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
/* Sanitizers see plain copies only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLAIN_COPIES 1
#endif
#if defined(__x86_64__) && !defined(PLAIN_COPIES)
#define HAS_STREAMS 1
#include <immintrin.h>
#endif

enum {
  CHUNK_BYTES = 256 << 10,    /* read and written for one chunk */
  CHUNK_BYTES_MIN = 16 << 10, /* of each source and target */
  SLICE_BYTES_MIN = 4 << 10,
  SMALL_BYTES = 32 << 10,      /* moved in all: not worth a second thread */
  BLOCK_BYTES = 8 << 10,       /* reduced at once: stays in the first cache */
  COPY_BLOCK_BYTES = 32 << 10, /* copied to several places at once */
};

/* ---- the job ---- */
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

/* In an allgather, pulling leaves the result in the cache of the rank that needs it; pushing reads each
 * piece once, which counts when it comes from memory, or has many readers. */
static inproc_cut cut_of(ir_comm_kind kind, bool pushes) {
  switch (kind) {
  case IR_COMM_BROADCAST:
  case IR_COMM_REDUCE:
  case IR_COMM_ALLREDUCE:
  case IR_COMM_SEND:
  case IR_COMM_RECV:
  case IR_COMM_PERMUTE: return INPROC_SLICES;
  case IR_COMM_ALLGATHER: return pushes ? INPROC_PIECE : INPROC_PIECES;
  case IR_COMM_GATHER:
  case IR_COMM_SCATTER:
  case IR_COMM_REDUCE_SCATTER: return INPROC_PIECE;
  case IR_COMM_ALL_TO_ALL: return INPROC_PIECES;
  case IR_COMM_SEND_RECV:
  case IR_COMM_COUNT: break;
  }
  impossible("a kind of communication");
}

/* Bytes of the buffers of all members together. */
static size_t buffers_bytes(const inproc_queue *q, ir_comm_root one, ir_comm_pieces pieces) {
  bool alone = q->is_pair || ir_comm_info_of(q->job.kind)->root == one;
  return (alone ? 1 : q->n) * (pieces == IR_PIECES_TEAM ? q->n : 1) * q->job.piece_bytes;
}

static size_t written_bytes(const inproc_queue *q) {
  return buffers_bytes(q, IR_ROOT_RECEIVES, ir_comm_info_of(q->job.kind)->out);
}

static size_t read_bytes(const inproc_queue *q) {
  return buffers_bytes(q, IR_ROOT_SENDS, ir_comm_info_of(q->job.kind)->in);
}

bool inproc_job_is_small(const inproc_queue *q) {
  return written_bytes(q) + read_bytes(q) <= SMALL_BYTES;
}

/* Bytes of a piece that the slice of part p has, and where they begin. */
static size_t slice_bytes(const inproc_job *j, uint32_t p, size_t *begin) {
  *begin = smaller(j->piece_bytes, p * j->slice_bytes);
  return smaller(j->slice_bytes, j->piece_bytes - *begin);
}

static uint32_t part_chunks(const inproc_queue *q, uint32_t p) {
  const inproc_job *j = &q->job;
  size_t begin, bytes = j->cut == INPROC_SLICES ? slice_bytes(j, p, &begin) : j->piece_bytes;
  size_t chunks = divide_up(bytes, j->chunk_bytes);
  return (uint32_t)(j->cut == INPROC_PIECES ? chunks * q->n : chunks);
}

/* Bytes of a source or target that make a chunk: whole lines, and no more than a 32-bit number of
 * chunks. */
static size_t chunk_bytes(const inproc_queue *q) {
  size_t ends = 2, n = q->n;
  bool pushes = q->job.kind == IR_COMM_ALLGATHER && q->job.cut == INPROC_PIECE;
  if (q->job.kind == IR_COMM_BROADCAST || pushes) ends = 1 + n;
  if (q->job.kind == IR_COMM_REDUCE || q->job.kind == IR_COMM_REDUCE_SCATTER) ends = n + 1;
  if (q->job.kind == IR_COMM_ALLREDUCE) ends = 2 * n;
  size_t bytes = CHUNK_BYTES / ends / CHUNK_BYTES_MIN * CHUNK_BYTES_MIN;
  if (bytes < CHUNK_BYTES_MIN) bytes = CHUNK_BYTES_MIN;
  while (divide_up(q->job.piece_bytes, bytes) * n > UINT32_MAX / (2 * n)) bytes *= 2;
  return bytes;
}

uint32_t inproc_job_make(inproc_queue *q) {
  const rt_comm_request *r = &q->members[0].head->request;
  inproc_job *j = &q->job;
  j->kind = r->kind;
  j->op = r->op;
  j->dtype = r->dtype;
  j->root = r->root;
  j->piece_bytes = (size_t)r->count * ir_dtype_size_bytes(r->dtype);
  size_t share = divide_up(divide_up(j->piece_bytes, q->n), INPROC_LINE_BYTES) * INPROC_LINE_BYTES;
  j->slice_bytes = share > SLICE_BYTES_MIN ? share : SLICE_BYTES_MIN;
  j->streams = written_bytes(q) + read_bytes(q) >= q->world->cache_bytes / 2 * 3;
  j->cut = cut_of(r->kind, j->streams || q->n > 2);
  j->chunk_bytes = chunk_bytes(q);
  uint32_t total = 0;
  q->n_ins = q->n_outs = 0;
  for (uint32_t p = 0; p < q->n; p++) {
    inproc_member *m = &q->members[p];
    m->in = m->head->request.in;
    m->out = m->head->request.out;
    if (m->in) q->ins[q->n_ins++] = m->in;
    if (m->out) q->outs[q->n_outs++] = m->out;
    m->chunks = part_chunks(q, p);
    total += m->chunks;
  }
  return total;
}

/* ---- moving ---- */
#ifdef HAS_STREAMS
/* Stores that do not read the line first and do not stay in the caches. */
static void copy_past_caches(char *to, const char *from, size_t bytes) {
  size_t head = smaller(bytes, -(uintptr_t)to & (INPROC_LINE_BYTES - 1));
  memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= INPROC_LINE_BYTES; bytes -= INPROC_LINE_BYTES) {
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
    _mm_stream_si128((__m128i *)(void *)to, a);
    _mm_stream_si128((__m128i *)(void *)(to + 16), b);
    _mm_stream_si128((__m128i *)(void *)(to + 32), c);
    _mm_stream_si128((__m128i *)(void *)(to + 48), d);
    to += INPROC_LINE_BYTES, from += INPROC_LINE_BYTES;
  }
  memcpy(to, from, bytes);
}

/* Streamed stores are ordered by nothing else, not even by a release. */
static void streams_end(void) { _mm_sfence(); }
#else
static void copy_past_caches(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }
static void streams_end(void) {}
#endif

static void copy(char *to, const char *from, size_t bytes, bool streams) {
  if (streams) copy_past_caches(to, from, bytes);
  else memcpy(to, from, bytes);
}

/* ---- chunks ---- */
/* Bytes to be copied, or reduced, from all sources to all targets. */
typedef struct tile {
  const void *const *sources;
  char *const *targets;
  uint32_t n_sources, n_targets;
  size_t from, to; /* where it begins in each source, and in each target */
  size_t bytes;
} tile;

/* A root that contributes or receives nothing has no buffer. */
static void set_source(tile *t, const inproc_member *m, size_t offset) {
  t->sources = &m->in;
  t->n_sources = m->in != NULL;
  t->from = offset;
}

static void set_target(tile *t, const inproc_member *m, size_t offset) {
  t->targets = &m->out;
  t->n_targets = m->out != NULL;
  t->to = offset;
}

static void set_all_sources(tile *t, const inproc_queue *q, size_t offset) {
  t->sources = q->ins;
  t->n_sources = q->n_ins;
  t->from = offset;
}

static void set_all_targets(tile *t, const inproc_queue *q, size_t offset) {
  t->targets = q->outs;
  t->n_targets = q->n_outs;
  t->to = offset;
}

/* `piece` counts pieces of a buffer that has several, `offset` bytes within one. */
static void tile_ends(tile *t, const inproc_queue *q, uint32_t p, uint32_t piece, size_t offset) {
  const inproc_member *me = &q->members[p], *root = &q->members[q->job.root];
  size_t bytes = q->job.piece_bytes;
  switch (q->job.kind) {
  case IR_COMM_BROADCAST:
    set_source(t, root, offset);
    set_all_targets(t, q, offset);
    return;
  case IR_COMM_GATHER:
    set_source(t, me, offset);
    set_target(t, root, p * bytes + offset);
    return;
  case IR_COMM_ALLGATHER:
    if (q->job.cut == INPROC_PIECES) {
      set_source(t, &q->members[piece], offset);
      set_target(t, me, piece * bytes + offset);
    } else {
      set_source(t, me, offset);
      set_all_targets(t, q, p * bytes + offset);
    }
    return;
  case IR_COMM_SCATTER:
    set_source(t, root, p * bytes + offset);
    set_target(t, me, offset);
    return;
  case IR_COMM_REDUCE:
    set_all_sources(t, q, offset);
    set_target(t, root, offset);
    return;
  case IR_COMM_ALLREDUCE:
    set_all_sources(t, q, offset);
    set_all_targets(t, q, offset);
    return;
  case IR_COMM_REDUCE_SCATTER:
    set_all_sources(t, q, p * bytes + offset);
    set_target(t, me, offset);
    return;
  case IR_COMM_ALL_TO_ALL:
    set_source(t, &q->members[piece], p * bytes + offset);
    set_target(t, me, piece * bytes + offset);
    return;
  case IR_COMM_SEND:
  case IR_COMM_RECV:
  case IR_COMM_PERMUTE:
    set_source(t, &q->members[0], offset);
    set_target(t, &q->members[1], offset);
    return;
  case IR_COMM_SEND_RECV:
  case IR_COMM_COUNT: break;
  }
  impossible("a kind of communication");
}

/* Each part begins with another piece, so that not all read from one member at once. */
static void tile_make(tile *t, const inproc_queue *q, uint32_t p, uint32_t chunk) {
  const inproc_job *j = &q->job;
  size_t begin = 0, len = j->piece_bytes;
  uint32_t piece = p;
  if (j->cut == INPROC_SLICES) len = slice_bytes(j, p, &begin);
  if (j->cut == INPROC_PIECES) {
    uint32_t per_piece = (uint32_t)divide_up(j->piece_bytes, j->chunk_bytes);
    piece = (p + chunk / per_piece) % q->n;
    chunk %= per_piece;
  }
  size_t offset = chunk * j->chunk_bytes;
  t->bytes = smaller(j->chunk_bytes, len - offset);
  tile_ends(t, q, p, piece, begin + offset);
}

/* In place, the source is one of the targets. */
static void tile_copy(const tile *t, bool streams) {
  const char *from = (const char *)t->sources[0] + t->from;
  size_t block = t->n_targets > 1 ? COPY_BLOCK_BYTES : t->bytes;
  for (size_t done = 0; done < t->bytes; done += block) {
    size_t len = smaller(block, t->bytes - done);
    for (uint32_t i = 0; i < t->n_targets; i++)
      if (t->targets[i] + t->to != from)
        copy(t->targets[i] + t->to + done, from + done, len, streams);
  }
}

/* May the first target hold partial results? Yes, if no source that is read after the first pass is there. */
static bool may_reduce_there(const tile *t) {
  for (uint32_t i = 2; i < t->n_sources; i++)
    if ((const char *)t->sources[i] + t->from == t->targets[0] + t->to) return false;
  return true;
}

static void tile_reduce(const tile *t, const inproc_job *j) {
  alignas(INPROC_LINE_BYTES) char block[BLOCK_BYTES];
  bool direct = !j->streams && may_reduce_there(t);
  size_t size = ir_dtype_size_bytes(j->dtype);
  for (size_t done = 0; done < t->bytes; done += BLOCK_BYTES) {
    size_t len = smaller(BLOCK_BYTES, t->bytes - done);
    char *result = direct ? t->targets[0] + t->to + done : block;
    size_t from = (t->from + done) / size;
    rt_comm_reduce(j->op, j->dtype, from, len / size, t->n_sources, t->sources, result);
    for (uint32_t i = direct; i < t->n_targets; i++)
      copy(t->targets[i] + t->to + done, result, len, j->streams);
  }
}

void inproc_chunk_run(const inproc_queue *q, uint32_t part, uint32_t chunk) {
  tile t;
  tile_make(&t, q, part, chunk);
  if (t.n_sources == 0 || t.n_targets == 0) return;
  if (t.n_sources > 1) tile_reduce(&t, &q->job);
  else tile_copy(&t, q->job.streams);
  if (q->job.streams) streams_end();
}
