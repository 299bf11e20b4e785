/* The stand-in for NCCL: communicators whose members are processes, on the stand-in's driver.
 *
 * The first member's unique id names a piece of shared memory without a name in any folder: nothing is left
 * behind. In it every sender and receiver have a channel of one chunk. A group of calls becomes work on the
 * stream that its calls name: put a chunk into all channels that are free, take one from all that are full,
 * and so on; at the end, until all have taken what this rank sent. Nothing blocks but the stream, and calls
 * of different communicators run side by side.
 *
 * Communicators do not block the host either: a group is put on its stream when somebody asks for the
 * second time how far it is, as a thread of NCCL's own would do later. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/comm.h"
#include "standin/nccl.h"
#include "standin/standin.h"

enum { PIECE_BYTES = 64 << 10, MOST_FAR_CALLS = 2 * MOST_RANKS };

/* ---- what all members see ---- */
typedef struct head {
  int kind, dtype, op, root;
  size_t bytes;
} head;

typedef struct channel {
  _Atomic uint64_t sent, taken;
  head called; /* by the sender */
  char data[PIECE_BYTES];
} channel;

typedef struct shared {
  _Atomic int n, joined;
  _Atomic bool is_member[MOST_RANKS];
  channel channels[]; /* from, to */
} shared;

struct far {
  shared *s;
  size_t size_bytes;
  int me, n, fd; /* of the memory: until all have joined */
  _Atomic bool is_aborted;
  bool is_held; /* what comes next never ends */
  call waiting[MOST_FAR_CALLS];
  size_t n_waiting;
  unsigned asked; /* for what waits */
};

static channel *channel_of(const far *f, int from, int to) {
  return &f->s->channels[from * f->n + to];
}

/* ---- ids ---- */
ncclResult_t far_make_id(ncclUniqueId *id) {
  static unsigned long n;
  int fd = memfd_create("standin-nccl", MFD_CLOEXEC);
  if (fd < 0) return refuse(ncclSystemError, "no shared memory");
  memset(id, 0, sizeof *id);
  (void)snprintf(id->internal, sizeof id->internal, "%d %d %lu", (int)getpid(), fd, ++n);
  return ncclSuccess;
}

static bool read_id(const ncclUniqueId *id, int *pid, int *fd) {
  return sscanf(id->internal, "%d %d", pid, fd) == 2;
}

void far_drop_id(const ncclUniqueId *id) {
  int pid, fd;
  if (read_id(id, &pid, &fd) && pid == (int)getpid()) (void)close(fd);
}

/* ---- joining and leaving ---- */
static ncclResult_t map_memory(far *f, const ncclUniqueId *id) {
  int pid, fd;
  char path[64];
  if (!read_id(id, &pid, &fd)) return refuse(ncclInvalidArgument, "this is no id");
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  f->fd = pid == (int)getpid() ? fd : open(path, O_RDWR | O_CLOEXEC);
  f->size_bytes = sizeof(shared) + (size_t)f->n * (size_t)f->n * sizeof(channel);
  if (f->fd < 0 || ftruncate(f->fd, (off_t)f->size_bytes) != 0)
    return refuse(ncclSystemError, "the process that made the id is gone");
  void *p = mmap(NULL, f->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
  if (p == MAP_FAILED) return refuse(ncclSystemError, "no shared memory");
  f->s = p;
  return ncclSuccess;
}

static ncclResult_t enter_memory(far *f) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&f->s->n, &none, f->n) && none != f->n)
    return refuse(ncclInvalidArgument, "members disagree: %d or %d ranks", none, f->n);
  if (atomic_exchange(&f->s->is_member[f->me], true))
    return refuse(ncclInvalidArgument, "rank %d has joined before", f->me);
  (void)atomic_fetch_add(&f->s->joined, 1);
  return ncclSuccess;
}

ncclResult_t far_join(const ncclUniqueId *id, int n, int rank, far **result) {
  if (!cu.standin_submit)
    return refuse(ncclInvalidUsage, "processes are for the stand-in's driver alone");
  far *f = calloc(1, sizeof *f);
  if (!f) return refuse(ncclSystemError, "no memory");
  f->me = rank;
  f->n = n;
  f->fd = -1;
  ncclResult_t r = map_memory(f, id);
  if (r == ncclSuccess) r = enter_memory(f);
  if (r == ncclSuccess) {
    *result = f;
    return r;
  }
  if (f->s) (void)munmap(f->s, f->size_bytes);
  if (f->fd >= 0) (void)close(f->fd);
  free(f);
  return r;
}

/* What streams may still use stays. */
ncclResult_t far_leave(far *f, bool aborts) {
  if (!aborts && f->n_waiting) return refuse(ncclInvalidUsage, "a group is under way");
  atomic_store(&f->is_aborted, true);
  if (f->fd >= 0) (void)close(f->fd);
  f->fd = -1;
  if (aborts) return ncclSuccess;
  (void)munmap(f->s, f->size_bytes);
  free(f);
  return ncclSuccess;
}

/* ---- one round of a group ---- */
typedef struct side {
  const char *from;
  char *to;
  head called;
} side;

typedef struct round {
  far *f;
  size_t at;            /* of each piece: from there on */
  side out[MOST_RANKS]; /* `from`; NULL: nothing is sent there */
  side in[MOST_RANKS];  /* `to` */
  bool folds;           /* all of `in` into `result` */
  char *result;
  ir_combine op;
  ir_dtype dtype;
} round_of;

static size_t part(const round_of *r, const side *s) {
  size_t bytes = s->called.bytes;
  if (bytes <= r->at) return 0;
  return bytes - r->at < PIECE_BYTES ? bytes - r->at : PIECE_BYTES;
}

static bool is_free(const channel *c) { return atomic_load(&c->taken) == atomic_load(&c->sent); }

static bool may_put(void *args) {
  const round_of *r = args;
  if (atomic_load(&r->f->is_aborted)) return true;
  for (int i = 0; i < r->f->n; i++)
    if (part(r, &r->out[i]) && !is_free(channel_of(r->f, r->f->me, i))) return false;
  return true;
}

static void put(void *args) {
  const round_of *r = args;
  for (int i = 0; i < r->f->n && !atomic_load(&r->f->is_aborted); i++) {
    channel *c = channel_of(r->f, r->f->me, i);
    size_t bytes = part(r, &r->out[i]);
    if (bytes == 0) continue;
    c->called = r->out[i].called;
    memcpy(c->data, r->out[i].from + r->at, bytes);
    (void)atomic_fetch_add(&c->sent, 1);
  }
}

static bool may_take(void *args) {
  const round_of *r = args;
  if (atomic_load(&r->f->is_aborted)) return true;
  for (int i = 0; i < r->f->n; i++)
    if (part(r, &r->in[i]) && is_free(channel_of(r->f, i, r->f->me))) return false;
  return true;
}

static bool is_same(const head *a, const head *b) {
  return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
         a->bytes == b->bytes;
}

static void take(void *args) {
  const round_of *r = args;
  const void *sources[MOST_RANKS];
  size_t bytes = 0;
  if (atomic_load(&r->f->is_aborted)) return;
  for (int i = 0; i < r->f->n; i++) {
    const channel *c = channel_of(r->f, i, r->f->me);
    sources[i] = c->data;
    if (!part(r, &r->in[i])) continue;
    bytes = part(r, &r->in[i]);
    if (!is_same(&c->called, &r->in[i].called))
      cu.standin_misuse("NCCL: ranks %d and %d call different things", i, r->f->me);
    if (!r->folds) memcpy(r->in[i].to + r->at, c->data, bytes);
  }
  if (r->folds && bytes)
    rt_comm_reduce(r->op, r->dtype, 0, bytes / ir_dtype_size_bytes(r->dtype), (uint32_t)r->f->n,
                   sources, r->result + r->at);
  for (int i = 0; i < r->f->n; i++)
    if (part(r, &r->in[i])) (void)atomic_fetch_add(&channel_of(r->f, i, r->f->me)->taken, 1);
}

static bool may_end(void *args) {
  const round_of *r = args;
  if (atomic_load(&r->f->is_aborted)) return true;
  for (int i = 0; i < r->f->n; i++)
    if (r->out[i].from && !is_free(channel_of(r->f, r->f->me, i))) return false;
  return !r->f->is_held;
}

static void end(void *args) { (void)args; }

/* ---- groups ---- */
static size_t touch(const round_of *r, bool puts, standin_range *ranges) {
  size_t n = 0;
  for (int i = 0; i < r->f->n; i++) {
    const side *s = puts ? &r->out[i] : &r->in[i];
    const char *at = puts ? s->from : r->folds ? r->result : s->to;
    if (part(r, s)) ranges[n++] = (standin_range){(CUdeviceptr)(uintptr_t)(at + r->at), part(r, s)};
  }
  return n;
}

static ncclResult_t submit(CUstream stream, const round_of *r, const char *name,
                           void (*run)(void *), bool (*ready)(void *)) {
  standin_range ranges[MOST_RANKS];
  standin_work w = {.name = name, .run = run, .ready = ready, .args = r, .args_bytes = sizeof *r};
  w.ranges = ranges;
  if (run != end) w.n_ranges = touch(r, run == put, ranges);
  TRY_CU(cu.standin_submit(stream, &w));
  return ncclSuccess;
}

static void add_side(side *s, const call *c, const char *from, char *to) {
  bool reduces = c->kind == REDUCE || c->kind == ALLREDUCE || c->kind == REDUCE_SCATTER;
  s->from = from;
  s->to = to;
  s->called = (head){.kind = c->kind == RECV ? SEND : (int)c->kind, .bytes = c->count * c->size};
  if (reduces) s->called.dtype = (int)c->dtype, s->called.op = (int)c->op;
  if (c->kind == REDUCE || c->kind == BROADCAST) s->called.root = c->peer;
}

static void add_collective(const call *c, round_of *r) {
  size_t bytes = c->count * c->size;
  bool all = c->kind != REDUCE && c->kind != BROADCAST, roots = r->f->me == c->peer;
  r->folds = c->kind == ALLREDUCE || c->kind == REDUCE_SCATTER || (c->kind == REDUCE && roots);
  r->result = c->out;
  for (int i = 0; i < r->f->n; i++) {
    const char *from = c->in + (c->kind == REDUCE_SCATTER ? (size_t)i * bytes : 0);
    char *to = c->kind == ALLGATHER ? c->out + (size_t)i * bytes : c->out;
    bool sends = all || (c->kind == BROADCAST ? roots : i == c->peer);
    bool takes = all || (c->kind == BROADCAST ? i == c->peer : roots);
    if (sends) add_side(&r->out[i], c, from, NULL);
    if (takes) add_side(&r->in[i], c, NULL, to);
  }
}

static ncclResult_t add_call(const call *c, round_of *r) {
  if (c->kind != SEND && c->kind != RECV) {
    add_collective(c, r);
    return nccl_words(c, &r->dtype, &r->op) || !r->folds
               ? ncclSuccess
               : refuse(ncclInvalidArgument, "a reduction");
  }
  side *s = c->kind == SEND ? &r->out[c->peer] : &r->in[c->peer];
  if (s->from || s->to) return refuse(ncclInvalidUsage, "two messages to a rank are not modelled");
  add_side(s, c, c->in, c->out);
  return ncclSuccess;
}

static size_t longest(const round_of *r) {
  size_t most = 0;
  for (int i = 0; i < r->f->n; i++) {
    if (r->out[i].called.bytes > most) most = r->out[i].called.bytes;
    if (r->in[i].called.bytes > most) most = r->in[i].called.bytes;
  }
  return most;
}

static ncclResult_t put_on_stream(far *f) {
  round_of r = {.f = f};
  CUstream stream = f->waiting[0].stream;
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < f->n_waiting && result == ncclSuccess; i++)
    result = add_call(&f->waiting[i], &r);
  size_t most = longest(&r);
  for (; r.at < most && result == ncclSuccess; r.at += PIECE_BYTES) {
    result = submit(stream, &r, "NCCL sends", put, may_put);
    if (result == ncclSuccess) result = submit(stream, &r, "NCCL receives", take, may_take);
  }
  return result == ncclSuccess ? submit(stream, &r, "NCCL ends", end, may_end) : result;
}

ncclResult_t far_begin(far *f, const call *calls, size_t n, bool holds) {
  if (f->n_waiting || atomic_load(&f->s->joined) < f->n)
    return refuse(ncclInvalidUsage, "what was begun before is still in progress");
  if (n > MOST_FAR_CALLS) return refuse(ncclInvalidUsage, "too many calls in a group");
  for (size_t i = 0; i < n; i++) {
    bool alone = n == 1 || calls[i].kind >= SEND;
    if (!alone || calls[i].comm != calls[0].comm || calls[i].stream != calls[0].stream)
      return refuse(ncclInvalidUsage,
                    "a group of one communicator and stream, of messages or of one "
                    "collective, is all that is modelled");
    f->waiting[i] = calls[i];
  }
  f->n_waiting = n;
  f->asked = 0;
  f->is_held = f->is_held || holds;
  return ncclInProgress;
}

ncclResult_t far_state(far *f) {
  if (atomic_load(&f->s->joined) < f->n) return ncclInProgress;
  if (f->fd >= 0) (void)close(f->fd);
  f->fd = -1;
  if (f->n_waiting == 0) return ncclSuccess;
  if (++f->asked < 2) return ncclInProgress;
  ncclResult_t r = put_on_stream(f);
  f->n_waiting = 0;
  return r;
}
