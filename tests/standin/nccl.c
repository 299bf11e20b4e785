/* The stand-in for NCCL: the functions of nccl.def, for ranks of one process, on whichever driver
 * that process has loaded, a GPU's or the stand-in's, and for ranks that are processes of their
 * own, on the stand-in's. Two ranks may be on one GPU. Communicators that block are of one process,
 * those that do not have one member in each (nccl_far.c).
 *
 * Within a process, calls of a group are matched when it ends; what does not meet all its peers in
 * the same group would wait for ever in a single thread, and is refused. Then every receiver copies
 * from its senders' memory, on its own stream, behind what the senders' streams had done before;
 * senders go on when all have read. Reductions go through pinned memory and are folded by a
 * function of the host.
 *
 * Environment: WEIR_STANDIN_NCCL=
 *   fail:F:N   call number N (from 1) of function F returns an error, say fail:ncclGroupEnd:2
 *   async:N    communication number N never ends, and its communicators report an error
 *   hang:N     communication number N never ends
 *   strict     it wants a GPU for every rank
 *   ctas:N     calls on a communicator that may take more than N blocks are refused */
#include "standin/nccl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* ---- communicators ---- */
static world *worlds; /* also those that are gone while streams may use them */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char last_error[256];
static unsigned long n_failing, n_communications;

ncclResult_t refuse(ncclResult_t r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(last_error, sizeof last_error, format, args);
  va_end(args);
  return r;
}

/* ---- what it is told ---- */
/* Counts begin anew when it is told something else. */
static const char *told(void) {
  static char before[128];
  const char *text = getenv("WEIR_STANDIN_NCCL");
  if (!text) text = "";
  if (strcmp(text, before) != 0) {
    (void)snprintf(before, sizeof before, "%s", text);
    n_failing = n_communications = 0;
  }
  return before;
}

static bool is_asked(const char *what, unsigned long *n) {
  const char *text = told();
  size_t length = strlen(what);
  if (strncmp(text, what, length) != 0 || text[length] != ':') return false;
  *n = strtoul(text + length + 1, NULL, 10);
  return true;
}

/* Is this the call that shall fail? */
static bool fails(const char *function) {
  char what[64];
  unsigned long n;
  (void)snprintf(what, sizeof what, "fail:%s", function);
  return is_asked(what, &n) && ++n_failing == n;
}

/* By this function a program knows the stand-in; it tells whether ranks may share a GPU. */
extern API int weir_nccl_standin(void);
int weir_nccl_standin(void) { return strcmp(told(), "strict") != 0; }

#define ENTER(function)                                                                            \
  if (fails(#function)) return refuse(ncclSystemError, "%s was told to fail", #function)

API ncclResult_t ncclGetVersion(int *version) {
  ENTER(ncclGetVersion);
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t r) {
  switch (r) {
  case ncclSuccess: return "no error";
  case ncclUnhandledCudaError: return "unhandled cuda error";
  case ncclSystemError: return "unhandled system error";
  case ncclInternalError: return "internal error";
  case ncclInvalidArgument: return "invalid argument";
  case ncclInvalidUsage: return "invalid usage";
  case ncclRemoteError: return "remote process exited or there was a network error";
  case ncclInProgress: return "in progress";
  case ncclNumResults: break;
  }
  return "unknown result";
}

API const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return last_error;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ENTER(ncclGetUniqueId);
  (void)pthread_once(&once, load_driver);
  (void)pthread_mutex_lock(&lock);
  ncclResult_t r = far_make_id(id);
  (void)pthread_mutex_unlock(&lock);
  return r;
}

static world *find_world(const ncclUniqueId *id, int n) {
  for (world *w = worlds; w; w = w->next)
    if (memcmp(&w->id, id, sizeof *id) == 0) return w->n == n ? w : NULL;
  world *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  far_drop_id(id);
  w->id = *id;
  w->n = n;
  w->next = worlds;
  worlds = w;
  return w;
}

static _Thread_local int depth;           /* of groups */
static _Thread_local ncclResult_t spoilt; /* by a call of the group that failed */
static _Thread_local world *joining[MOST_RANKS];
static _Thread_local int n_joining;

static ncclResult_t make_memory(world *w) {
  size_t bytes = ((size_t)w->n + 1) * CHUNK_BYTES;
  void *p = NULL;
  TRY_CU(cu.cuMemHostAlloc(&p, bytes + 256, CU_MEMHOSTALLOC_PORTABLE));
  w->staging = p;
  w->stop = (uint32_t *)(void *)(w->staging + bytes);
  *w->stop = 0;
  return ncclSuccess;
}

static ncclResult_t check_joined(void) {
  ncclResult_t r = ncclSuccess;
  for (int i = 0; i < n_joining; i++)
    if (joining[i]->joined < joining[i]->n && spoilt == ncclSuccess)
      r = refuse(ncclInvalidUsage, "%d of %d ranks join: one thread would wait for ever",
                 joining[i]->joined, joining[i]->n);
  n_joining = 0;
  return r;
}

static unsigned long ctas_of(const ncclConfig_t *config) {
  enum { MOST = 64 };
  return config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? MOST : (unsigned long)config->maxCTAs;
}

static ncclResult_t join_far(ncclComm_t *comm, int n, const ncclUniqueId *id, int rank,
                             const ncclConfig_t *config) {
  (void)pthread_once(&once, load_driver);
  if (depth > 0) return refuse(ncclInvalidUsage, "processes join one by one here");
  ncclComm_t c = calloc(1, sizeof *c);
  if (!c) return refuse(ncclSystemError, "no memory");
  c->rank = rank;
  c->n = n;
  TRY_CU(cu.cuCtxGetDevice(&c->gpu));
  c->ctas = ctas_of(config);
  ncclResult_t r = far_join(id, n, rank, &c->far);
  if (r == ncclSuccess) *comm = c;
  else free(c);
  return r == ncclSuccess ? ncclInProgress : r;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                        ncclConfig_t *config) {
  if (fails("ncclCommInitRankConfig")) {
    ncclResult_t r = refuse(ncclSystemError, "ncclCommInitRankConfig was told to fail");
    if (depth > 0) spoilt = r;
    return r;
  }
  bool is_limited = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (n < 1 || n > MOST_RANKS || rank < 0 || rank >= n || (is_limited && config->maxCTAs < 1))
    return refuse(ncclInvalidArgument, "rank %d of %d", rank, n);
  if (config->blocking == 0) return join_far(comm, n, &id, rank, config);
  (void)pthread_mutex_lock(&lock);
  world *w = find_world(&id, n);
  ncclComm_t c = calloc(1, sizeof *c);
  bool taken = !w || !c || w->members[rank];
  if (!taken) {
    *c = (struct ncclComm){.w = w, .rank = rank, .n = n, .ctas = ctas_of(config)};
    w->members[rank] = c;
    w->joined++;
  }
  (void)pthread_mutex_unlock(&lock);
  if (taken) {
    free(c);
    return refuse(ncclInvalidArgument, "rank %d has joined before", rank);
  }
  TRY_CU(cu.cuCtxGetCurrent(&c->context));
  TRY_CU(cu.cuCtxGetDevice(&c->gpu));
  *comm = c;
  if (w->joined == 1) joining[n_joining++] = w;
  if (w->joined == n) {
    ncclResult_t r = make_memory(w);
    if (r != ncclSuccess) return r;
  }
  return depth == 0 ? check_joined() : ncclSuccess;
}

static void leave(ncclComm_t c, bool aborts) {
  world *w = c->w;
  (void)pthread_mutex_lock(&lock);
  w->is_aborted = w->is_aborted || aborts;
  if (aborts && w->stop) __atomic_store_n(w->stop, 1, __ATOMIC_RELEASE);
  w->members[c->rank] = NULL;
  if (++w->left == w->joined && !w->is_aborted && w->staging) {
    (void)cu.cuMemFreeHost(w->staging);
    w->staging = NULL;
  }
  (void)pthread_mutex_unlock(&lock);
  free(c);
}

static ncclResult_t leave_any(ncclComm_t c, bool aborts) {
  if (c->w) {
    leave(c, aborts);
    return ncclSuccess;
  }
  ncclResult_t r = far_leave(c->far, aborts);
  if (r == ncclSuccess) free(c);
  return r;
}

API ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank) {
  ENTER(ncclCommUserRank);
  *rank = c->rank;
  return ncclSuccess;
}

API ncclResult_t ncclCommCount(const ncclComm_t c, int *count) {
  ENTER(ncclCommCount);
  *count = c->n;
  return ncclSuccess;
}

API ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *gpu) {
  ENTER(ncclCommCuDevice);
  *gpu = c->gpu;
  return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t c) {
  ENTER(ncclCommFinalize);
  return c->far ? far_state(c->far) : ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t c) {
  ENTER(ncclCommDestroy);
  return leave_any(c, false);
}

API ncclResult_t ncclCommAbort(ncclComm_t c) {
  ENTER(ncclCommAbort);
  return leave_any(c, true);
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
  ENTER(ncclCommGetAsyncError);
  *error = c->error;
  if (!c->far || *error != ncclSuccess) return ncclSuccess;
  *error = far_state(c->far);
  if (*error == ncclSuccess && c->fails_later && ++c->asked > 2)
    *error = c->error = refuse(ncclRemoteError, "a communication was told to fail");
  return ncclSuccess;
}

/* ---- groups of calls ---- */
enum { MOST_CALLS = 4096 };
static _Thread_local call calls[MOST_CALLS];
static _Thread_local size_t n_calls;

static size_t size_of(ncclDataType_t t) {
  switch ((int)t) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32: return 4;
  default: return 8;
  }
}

static bool fits(const call *a, const call *b) {
  return a->kind == b->kind && a->count == b->count && a->dtype == b->dtype && a->op == b->op &&
         (a->peer == b->peer || (a->kind != BROADCAST && a->kind != REDUCE));
}

/* The first open call of the rank in the world: it must be a collective that fits. */
static ncclResult_t find_member(const call *c, int rank, call **found) {
  for (size_t i = 0; i < n_calls; i++) {
    call *x = &calls[i];
    if (x->is_done || x->comm->w != c->comm->w || x->comm->rank != rank) continue;
    if (x->kind >= SEND) continue;
    if (!fits(c, x))
      return refuse(ncclInvalidArgument, "ranks %d and %d disagree", c->comm->rank, rank);
    *found = x;
    return ncclSuccess;
  }
  return refuse(ncclInvalidUsage, "rank %d is not in the group: one thread would wait for ever",
                rank);
}

static ncclResult_t find_receiver(const call *c, call **found) {
  for (size_t i = 0; i < n_calls; i++) {
    call *x = &calls[i];
    if (x->is_done || x->kind != RECV || x->comm->w != c->comm->w) continue;
    if (x->comm->rank != c->peer || x->peer != c->comm->rank) continue;
    if (x->count * x->size != c->count * c->size)
      return refuse(ncclInvalidArgument, "%zu bytes are sent, %zu received", c->count * c->size,
                    x->count * x->size);
    *found = x;
    return ncclSuccess;
  }
  return refuse(ncclInvalidUsage,
                "rank %d does not receive in the group: one thread would wait for ever", c->peer);
}

static ncclResult_t gather_party(call *c, party *p) {
  call *x = NULL;
  ncclResult_t r = ncclSuccess;
  if (c->kind == RECV)
    return refuse(ncclInvalidUsage,
                  "rank %d does not send in the group: one thread would wait for ever", c->peer);
  p->n = c->kind == SEND ? 2 : c->comm->w->n;
  if (c->kind == SEND) {
    c->is_done = true;
    p->of[0] = c;
    r = find_receiver(c, &x);
    p->of[1] = x;
    if (x) x->is_done = true;
    return r;
  }
  for (int i = 0; i < p->n && r == ncclSuccess; i++) {
    r = find_member(c, i, &x);
    p->of[i] = x;
  }
  for (int i = 0; i < p->n && r == ncclSuccess; i++)
    for (size_t k = 0; k < n_calls; k++)
      if (&calls[k] == p->of[i]) calls[k].is_done = true;
  return r;
}

static ncclResult_t begin(party *p) {
  unsigned long n = ++n_communications, asked;
  bool is_async = is_asked("async", &asked) && asked == n;
  if (!is_async && !(is_asked("hang", &asked) && asked == n)) return carry_out(p);
  for (int i = 0; i < p->n && is_async; i++) p->of[i]->comm->error = ncclRemoteError;
  if (is_async) (void)refuse(ncclRemoteError, "communication %lu was told to fail", n);
  return hold(p);
}

static ncclResult_t begin_far(ncclComm_t c) {
  unsigned long n = ++n_communications, asked;
  bool is_async = is_asked("async", &asked) && asked == n;
  bool holds = is_async || (is_asked("hang", &asked) && asked == n);
  c->fails_later = c->fails_later || is_async;
  return far_begin(c->far, calls, n_calls, holds);
}

/* Sends come before receives, so that a receive that is left has no sender. */
static ncclResult_t run_calls(void) {
  ncclResult_t r = ncclSuccess;
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < n_calls && r == ncclSuccess; i++) {
      party p = {0};
      if (calls[i].is_done || (pass == 0 && calls[i].kind == RECV)) continue;
      r = gather_party(&calls[i], &p);
      if (r == ncclSuccess) r = begin(&p);
    }
  }
  return r;
}

API ncclResult_t ncclGroupStart(void); /* the header's are no prototypes */
API ncclResult_t ncclGroupEnd(void);

API ncclResult_t ncclGroupStart(void) {
  ENTER(ncclGroupStart);
  depth++;
  return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void) {
  CUcontext before = NULL;
  if (depth > 0 && fails("ncclGroupEnd"))
    spoilt = refuse(ncclSystemError, "ncclGroupEnd was told to fail");
  if (depth == 0) return refuse(ncclInvalidUsage, "no group has begun");
  if (--depth > 0) return ncclSuccess;
  ncclResult_t joined = check_joined(), r = spoilt == ncclSuccess ? joined : spoilt;
  bool any = n_calls > 0;
  if (any) (void)cu.cuCtxGetCurrent(&before);
  if (r == ncclSuccess && any) r = calls[0].comm->far ? begin_far(calls[0].comm) : run_calls();
  if (any) (void)cu.cuCtxSetCurrent(before);
  n_calls = 0;
  spoilt = ncclSuccess;
  return r;
}

static ncclResult_t add(const char *function, call c) {
  ncclResult_t r = ncclSuccess;
  unsigned long most;
  if (c.comm && is_asked("ctas", &most) && c.comm->ctas > most)
    r = refuse(ncclInvalidUsage, "a communicator may take %lu blocks, not %lu", most, c.comm->ctas);
  else if (fails(function)) r = refuse(ncclSystemError, "%s was told to fail", function);
  else if (!c.comm || n_calls == MOST_CALLS)
    r = refuse(ncclInvalidArgument, "%s: no communicator", function);
  if (r != ncclSuccess && depth > 0) spoilt = r;
  if (r != ncclSuccess) return r;
  c.size = size_of(c.dtype);
  calls[n_calls++] = c;
  if (depth > 0) return ncclSuccess;
  depth = 1;
  return ncclGroupEnd();
}

/* ---- calls ---- */
API ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t t, int root,
                               ncclComm_t comm, cudaStream_t s) {
  call c = {.kind = BROADCAST, .comm = comm, .in = in, .out = out, .count = count, .dtype = t};
  c.peer = root;
  c.stream = s;
  return add("ncclBroadcast", c);
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t t,
                            ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t s) {
  call c = {.kind = REDUCE, .comm = comm, .in = in, .out = out, .count = count, .dtype = t};
  c.op = op;
  c.peer = root;
  c.stream = s;
  return add("ncclReduce", c);
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t s) {
  call c = {.kind = ALLREDUCE, .comm = comm, .in = in, .out = out, .count = count, .dtype = t};
  c.op = op;
  c.stream = s;
  return add("ncclAllReduce", c);
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t t,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t s) {
  call c = {.kind = REDUCE_SCATTER, .comm = comm, .in = in, .out = out, .count = count, .dtype = t};
  c.op = op;
  c.stream = s;
  return add("ncclReduceScatter", c);
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t t,
                               ncclComm_t comm, cudaStream_t s) {
  call c = {.kind = ALLGATHER, .comm = comm, .in = in, .out = out, .count = count, .dtype = t};
  c.stream = s;
  return add("ncclAllGather", c);
}

API ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t t, int peer, ncclComm_t comm,
                          cudaStream_t s) {
  call c = {.kind = SEND, .comm = comm, .in = in, .count = count, .dtype = t, .peer = peer};
  c.stream = s;
  return add("ncclSend", c);
}

API ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t t, int peer, ncclComm_t comm,
                          cudaStream_t s) {
  call c = {.kind = RECV, .comm = comm, .out = out, .count = count, .dtype = t, .peer = peer};
  c.stream = s;
  return add("ncclRecv", c);
}
