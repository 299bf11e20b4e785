/* The stand-in for NCCL: the functions of nccl.def, for ranks of one process, on whichever driver that
 * process has loaded, a GPU's or the stand-in's. Two ranks may be on one GPU.
 *
 * Calls of a group are matched when it ends; what does not meet all its peers in the same group would
 * wait for ever in a single thread, and is refused. Then every receiver copies from its senders' memory,
 * on its own stream, behind what the senders' streams had done before; senders go on when all have read.
 * Reductions go through pinned memory and are folded by a function of the host.
 *
 * Environment: WEIR_STANDIN_NCCL=
 *   fail:F:N   call number N (from 1) of function F returns an error, say fail:ncclGroupEnd:2
 *   async:N    communication number N never ends, and its communicators report an error
 *   hang:N     communication number N never ends */
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm.h"

#define API __attribute__((visibility("default")))

/* By this a program knows that ranks may share a GPU. */
extern API int weir_nccl_standin;
int weir_nccl_standin = 1;

/* ---- the driver ---- */
#define DRIVER(F)                                                                                  \
  F(cuCtxGetCurrent)                                                                               \
  F(cuCtxSetCurrent)                                                                               \
  F(cuEventCreate)                                                                                 \
  F(cuEventDestroy)                                                                                \
  F(cuEventRecord)                                                                                 \
  F(cuStreamWaitEvent)                                                                             \
  F(cuMemHostAlloc)                                                                                \
  F(cuMemFreeHost)                                                                                 \
  F(cuMemcpyDtoHAsync)                                                                             \
  F(cuMemcpyHtoDAsync)                                                                             \
  F(cuMemcpyDtoDAsync)                                                                             \
  F(cuMemcpyPeerAsync)                                                                             \
  F(cuLaunchHostFunc)                                                                              \
  F(cuStreamWaitValue32)
#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x) /* after <cuda.h> has mapped it */

static struct {
#define F(name) __typeof__(&name) name;
  DRIVER(F)
#undef F
} cu;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void *library, const char *name, void *to) {
  void *address = dlsym(library, name);
  if (!address) abort();
  memcpy(to, &address, sizeof address);
}

static void load_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) abort();
#define F(name) find(library, NAME_OF(name), &cu.name);
  DRIVER(F)
#undef F
}

/* ---- communicators ---- */
enum { CHUNK_BYTES = 256 << 10, MOST_RANKS = 64 };

/* All ranks of one unique id. */
typedef struct world {
  struct world *next;
  ncclUniqueId id;
  int n, joined, left;
  struct ncclComm *members[MOST_RANKS];
  char *staging;  /* pinned: a chunk of every member, then the result */
  uint32_t *stop; /* pinned: 1 lets go of streams that wait for ever */
  bool is_aborted;
  void *folds; /* list of what was folded, for graphs that do it again */
} world;

struct ncclComm {
  world *w;
  int rank;
  CUcontext context;
  ncclResult_t error;
};

static world *worlds; /* also those that are gone while streams may use them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char last_error[256];
static unsigned long communications;

static ncclResult_t refuse(ncclResult_t r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static ncclResult_t refuse(ncclResult_t r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(last_error, sizeof last_error, format, args);
  va_end(args);
  return r;
}

static bool is_asked(const char *what, unsigned long *n) {
  const char *text = getenv("WEIR_STANDIN_NCCL");
  size_t length = strlen(what);
  if (!text || strncmp(text, what, length) != 0 || text[length] != ':') return false;
  *n = strtoul(text + length + 1, NULL, 10);
  return true;
}

/* Is this the call that shall fail? Only one function is ever asked for, so one counter does. */
static bool fails(const char *function) {
  static unsigned long calls;
  char what[64];
  unsigned long n;
  (void)snprintf(what, sizeof what, "fail:%s", function);
  return is_asked(what, &n) && ++calls == n;
}

#define ENTER(function)                                                                            \
  if (fails(#function)) return refuse(ncclSystemError, "%s was told to fail", #function)

#define TRY_CU(call)                                                                               \
  do {                                                                                             \
    CUresult cu_result_ = (call);                                                                  \
    if (cu_result_ != CUDA_SUCCESS)                                                                \
      return refuse(ncclUnhandledCudaError, "%s: error %d", #call, (int)cu_result_);               \
  } while (0)

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
  static unsigned long n;
  ENTER(ncclGetUniqueId);
  (void)pthread_once(&once, load_driver);
  memset(id, 0, sizeof *id);
  (void)pthread_mutex_lock(&lock);
  (void)snprintf(id->internal, sizeof id->internal, "stand-in %lu", ++n);
  (void)pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static world *find_world(const ncclUniqueId *id, int n) {
  for (world *w = worlds; w; w = w->next)
    if (memcmp(&w->id, id, sizeof *id) == 0) return w->n == n ? w : NULL;
  world *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->id = *id;
  w->n = n;
  w->next = worlds;
  worlds = w;
  return w;
}

static _Thread_local int depth; /* of groups */
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
    if (joining[i]->joined < joining[i]->n)
      r = refuse(ncclInvalidUsage, "%d of %d ranks join: one thread would wait for ever",
                 joining[i]->joined, joining[i]->n);
  n_joining = 0;
  return r;
}

API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank) {
  ENTER(ncclCommInitRank);
  if (n < 1 || n > MOST_RANKS || rank < 0 || rank >= n)
    return refuse(ncclInvalidArgument, "rank %d of %d", rank, n);
  (void)pthread_mutex_lock(&lock);
  world *w = find_world(&id, n);
  ncclComm_t c = calloc(1, sizeof *c);
  bool taken = !w || !c || w->members[rank];
  if (!taken) {
    *c = (struct ncclComm){.w = w, .rank = rank};
    w->members[rank] = c;
    w->joined++;
  }
  (void)pthread_mutex_unlock(&lock);
  if (taken) {
    free(c);
    return refuse(ncclInvalidArgument, "rank %d has joined before", rank);
  }
  TRY_CU(cu.cuCtxGetCurrent(&c->context));
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

API ncclResult_t ncclCommDestroy(ncclComm_t c) {
  ENTER(ncclCommDestroy);
  leave(c, false);
  return ncclSuccess;
}

API ncclResult_t ncclCommAbort(ncclComm_t c) {
  ENTER(ncclCommAbort);
  leave(c, true);
  return ncclSuccess;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
  ENTER(ncclCommGetAsyncError);
  *error = c->error;
  return ncclSuccess;
}

/* ---- groups of calls ---- */
typedef enum call_kind {
  BROADCAST,
  REDUCE,
  ALLREDUCE,
  REDUCE_SCATTER,
  ALLGATHER,
  SEND,
  RECV
} call_kind;

typedef struct call {
  call_kind kind;
  ncclComm_t comm;
  const char *in;
  char *out;
  size_t count, size;
  ncclDataType_t dtype;
  ncclRedOp_t op;
  int peer; /* or root */
  CUstream stream;
  bool is_done;
} call;

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

/* ---- streams of one communication ---- */
/* All calls of it, in the order of ranks; of a message its two ends. */
typedef struct party {
  const call *of[MOST_RANKS];
  int n;
  CUevent came[MOST_RANKS], read[MOST_RANKS];
} party;

static ncclResult_t mark(const call *c, CUevent *event) {
  TRY_CU(cu.cuCtxSetCurrent(c->comm->context));
  TRY_CU(cu.cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
  TRY_CU(cu.cuEventRecord(*event, c->stream));
  return ncclSuccess;
}

/* Every stream of the party comes behind the marks of all. */
static ncclResult_t meet(const party *p, const CUevent *marks) {
  for (int i = 0; i < p->n; i++) {
    TRY_CU(cu.cuCtxSetCurrent(p->of[i]->comm->context));
    for (int j = 0; j < p->n; j++)
      if (p->of[j]->stream != p->of[i]->stream)
        TRY_CU(cu.cuStreamWaitEvent(p->of[i]->stream, marks[j], 0));
  }
  return ncclSuccess;
}

static ncclResult_t mark_all(const party *p, CUevent *marks) {
  for (int i = 0; i < p->n; i++) {
    ncclResult_t r = mark(p->of[i], &marks[i]);
    if (r != ncclSuccess) return r;
  }
  return ncclSuccess;
}

static ncclResult_t mark_and_meet(const party *p, CUevent *marks) {
  ncclResult_t r = mark_all(p, marks);
  if (r == ncclSuccess) r = meet(p, marks);
  for (int i = 0; i < p->n; i++) (void)cu.cuEventDestroy(marks[i]);
  return r;
}

static ncclResult_t copy(const call *to, char *there, const call *from, const char *here,
                         size_t bytes) {
  CUdeviceptr d = (CUdeviceptr)(uintptr_t)there, s = (CUdeviceptr)(uintptr_t)here;
  CUcontext a = to->comm->context, b = from->comm->context;
  if (there == here) return ncclSuccess;
  TRY_CU(cu.cuCtxSetCurrent(a));
  if (a == b) TRY_CU(cu.cuMemcpyDtoDAsync(d, s, bytes, to->stream));
  else TRY_CU(cu.cuMemcpyPeerAsync(d, a, s, b, bytes, to->stream));
  return ncclSuccess;
}

static ncclResult_t move(const party *p) {
  size_t bytes = p->of[0]->count * p->of[0]->size;
  call_kind kind = p->of[0]->kind;
  int root = p->of[0]->peer;
  for (int i = 0; i < p->n; i++) {
    const call *to = p->of[i];
    ncclResult_t r = ncclSuccess;
    for (int j = 0; j < p->n && kind == ALLGATHER && r == ncclSuccess; j++)
      r = copy(to, to->out + (size_t)j * bytes, p->of[j], p->of[j]->in, bytes);
    if (kind == BROADCAST) r = copy(to, to->out, p->of[root], p->of[root]->in, bytes);
    if (kind == SEND && i == 1) r = copy(to, to->out, p->of[0], p->of[0]->in, bytes);
    if (r != ncclSuccess) return r;
  }
  return ncclSuccess;
}

/* ---- reductions ---- */
typedef struct fold {
  struct fold *next;
  const char *sources;
  char *result;
  rt_comm_op op;
  ir_dtype dtype;
  size_t count;
  int n;
} fold;

static void run_fold(void *context) {
  const fold *f = context;
  const void *sources[MOST_RANKS];
  for (int i = 0; i < f->n; i++) sources[i] = f->sources + (size_t)i * CHUNK_BYTES;
  if (f->n == 1) memcpy(f->result, sources[0], f->count * ir_dtype_size_bytes(f->dtype));
  else rt_comm_reduce(f->op, f->dtype, f->count, (uint32_t)f->n, sources, f->result);
}

static bool fold_words(const call *c, fold *f) {
  static const ir_dtype dtypes[] = {
      [ncclInt8] = IR_I8,     [ncclUint8] = IR_U8,     [ncclInt32] = IR_I32,
      [ncclInt64] = IR_I64,   [ncclFloat16] = IR_F16,  [ncclFloat32] = IR_F32,
      [ncclFloat64] = IR_F64, [ncclBfloat16] = IR_BF16};
  static const rt_comm_op ops[] = {[ncclSum] = RT_COMM_SUM,
                                   [ncclProd] = RT_COMM_PROD,
                                   [ncclMax] = RT_COMM_MAX,
                                   [ncclMin] = RT_COMM_MIN};
  if ((size_t)c->dtype >= sizeof dtypes / sizeof *dtypes || (int)c->op > ncclMin) return false;
  f->dtype = dtypes[c->dtype];
  f->op = ops[c->op];
  return f->dtype != IR_DTYPE_NONE;
}

static fold *add_fold(const party *p, size_t count) {
  world *w = p->of[0]->comm->w;
  fold *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  f->sources = w->staging;
  f->result = w->staging + (size_t)w->n * CHUNK_BYTES;
  f->count = count;
  f->n = w->n;
  f->next = w->folds;
  w->folds = f;
  return f;
}

/* One chunk: of every input, from `at` on, to the outputs of those from first to below last. */
static ncclResult_t reduce_chunk(party *p, size_t at, size_t out_at, size_t count, int first,
                                 int last) {
  size_t size = p->of[0]->size;
  fold *f = add_fold(p, count);
  if (!f || !fold_words(p->of[0], f)) return refuse(ncclInvalidArgument, "a reduction");
  for (int i = 0; i < p->n; i++) {
    TRY_CU(cu.cuCtxSetCurrent(p->of[i]->comm->context));
    TRY_CU(cu.cuMemcpyDtoHAsync((char *)(uintptr_t)f->sources + (size_t)i * CHUNK_BYTES,
                                (CUdeviceptr)(uintptr_t)(p->of[i]->in + at * size), count * size,
                                p->of[i]->stream));
  }
  ncclResult_t r = mark_and_meet(p, p->came);
  if (r != ncclSuccess) return r;
  TRY_CU(cu.cuCtxSetCurrent(p->of[0]->comm->context));
  TRY_CU(cu.cuLaunchHostFunc(p->of[0]->stream, run_fold, f));
  r = mark_and_meet(p, p->read);
  for (int i = first; i < last && r == ncclSuccess; i++) {
    TRY_CU(cu.cuCtxSetCurrent(p->of[i]->comm->context));
    TRY_CU(cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)(p->of[i]->out + out_at * size), f->result,
                                count * size, p->of[i]->stream));
  }
  return r == ncclSuccess ? mark_and_meet(p, p->came) : r;
}

static ncclResult_t reduce(party *p) {
  const call *c = p->of[0];
  size_t step = CHUNK_BYTES / c->size;
  int pieces = c->kind == REDUCE_SCATTER ? p->n : 1;
  for (int piece = 0; piece < pieces; piece++) {
    int first = c->kind == REDUCE ? c->peer : c->kind == REDUCE_SCATTER ? piece : 0;
    int last = c->kind == ALLREDUCE ? p->n : first + 1;
    for (size_t at = 0; at < c->count; at += step) {
      size_t count = c->count - at < step ? c->count - at : step;
      ncclResult_t r = reduce_chunk(p, (size_t)piece * c->count + at, at, count, first, last);
      if (r != ncclSuccess) return r;
    }
  }
  return ncclSuccess;
}

/* ---- what comes together ---- */
static ncclResult_t hold(const party *p) {
  for (int i = 0; i < p->n; i++) {
    CUdeviceptr stop = (CUdeviceptr)(uintptr_t)p->of[i]->comm->w->stop;
    TRY_CU(cu.cuCtxSetCurrent(p->of[i]->comm->context));
    TRY_CU(cu.cuStreamWaitValue32(p->of[i]->stream, stop, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  return ncclSuccess;
}

static ncclResult_t carry_out(party *p) {
  unsigned long n = ++communications, asked;
  bool is_async = is_asked("async", &asked) && asked == n;
  call_kind kind = p->of[0]->kind;
  if (is_async || (is_asked("hang", &asked) && asked == n)) {
    for (int i = 0; i < p->n && is_async; i++) p->of[i]->comm->error = ncclRemoteError;
    if (is_async) (void)refuse(ncclRemoteError, "communication %lu was told to fail", n);
    return hold(p);
  }
  ncclResult_t r = mark_and_meet(p, p->came);
  if (r == ncclSuccess)
    r = kind == REDUCE || kind == ALLREDUCE || kind == REDUCE_SCATTER ? reduce(p) : move(p);
  return r == ncclSuccess ? mark_and_meet(p, p->read) : r;
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

/* Sends come before receives, so that a receive that is left has no sender. */
static ncclResult_t run_calls(void) {
  ncclResult_t r = ncclSuccess;
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < n_calls && r == ncclSuccess; i++) {
      party p = {0};
      if (calls[i].is_done || (pass == 0 && calls[i].kind == RECV)) continue;
      r = gather_party(&calls[i], &p);
      if (r == ncclSuccess) r = carry_out(&p);
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
  bool told = fails("ncclGroupEnd");
  if (depth == 0) return refuse(ncclInvalidUsage, "no group has begun");
  if (--depth > 0) return ncclSuccess;
  ncclResult_t joined = check_joined();
  ncclResult_t r = told ? refuse(ncclSystemError, "ncclGroupEnd was told to fail") : joined;
  if (n_calls > 0) (void)cu.cuCtxGetCurrent(&before);
  if (r == ncclSuccess) r = run_calls();
  if (n_calls > 0) (void)cu.cuCtxSetCurrent(before);
  n_calls = 0;
  return r;
}

static ncclResult_t add(const char *function, call c) {
  if (fails(function)) return refuse(ncclSystemError, "%s was told to fail", function);
  if (!c.comm || n_calls == MOST_CALLS)
    return refuse(ncclInvalidArgument, "%s: no communicator", function);
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
