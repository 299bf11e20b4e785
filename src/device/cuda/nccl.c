#include "device/cuda/nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/device.h"

/* ---- the library ---- */
typedef struct library {
#define SYMBOL(name) __typeof__(&name) name;
#include "device/cuda/nccl.def"
#undef SYMBOL
} library;

struct cuda_nccl_group {
  cuda_nccl_group *next;
  bool is_pair;
  uint32_t n;
  ncclComm_t *comms; /* by member; NULL: not made, or aborted */
  uint32_t devices[];
};

struct cuda_nccl {
  const allocator *memory;
  library lib;
  int (*shares)(void); /* of a stand-in: whether two members may be on one GPU; NULL: it is none */
  pthread_mutex_t lock;
  cuda_nccl_group *groups;
  uint64_t generation;
  bool is_open; /* a group of calls has begun */
};

static const cuda_symbol symbols[] = {
#define SYMBOL(name) {#name, offsetof(library, name)},
#include "device/cuda/nccl.def"
#undef SYMBOL
};

static void *open_library(void) {
  static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
  const char *given = getenv("WEIR_NCCL_LIBRARY");
  if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  return cuda_library_open(names, sizeof names / sizeof *names);
}

static status load(cuda_nccl *n) {
  void *found = open_library();
  if (!found)
    return fail(STATUS_UNAVAILABLE,
                "cuda: cannot load libnccl.so.2: install NCCL, or name its folder in "
                "LD_LIBRARY_PATH, or the file in WEIR_NCCL_LIBRARY; without --comm nccl devices "
                "communicate without it");
  void *standin = dlsym(found, "weir_nccl_standin");
  memcpy(&n->shares, &standin, sizeof standin);
  return cuda_library_find(found, "libnccl.so", symbols, sizeof symbols / sizeof *symbols, &n->lib);
}

status cuda_nccl_open(const allocator *memory, cuda_nccl **result) {
  cuda_nccl *n = memory_alloc(memory, sizeof *n);
  if (!n) return STATUS_OUT_OF_MEMORY;
  *n = (cuda_nccl){.memory = memory, .generation = 1};
  status st = load(n);
  if (st == STATUS_OK && pthread_mutex_init(&n->lock, NULL) != 0)
    st = fail(STATUS_SYSTEM, "cannot make a lock");
  if (st == STATUS_OK) *result = n;
  else memory_free(memory, n);
  return st;
}

void cuda_nccl_error_text(const cuda_nccl *n, int result, char *text, size_t size_bytes) {
  const char *more = n->lib.ncclGetLastError(NULL);
  (void)snprintf(text, size_bytes, "%s (%d)%s%s", n->lib.ncclGetErrorString((ncclResult_t)result),
                 result, more && *more ? ": " : "", more ? more : "");
}

/* ---- communicators ---- */
static void end_comms(cuda_nccl *n, cuda_nccl_group *g, bool abort) {
  for (uint32_t i = 0; i < g->n; i++) {
    if (g->comms[i]) (void)(abort ? n->lib.ncclCommAbort : n->lib.ncclCommDestroy)(g->comms[i]);
    g->comms[i] = NULL;
  }
}

void cuda_nccl_close(cuda_nccl *n) {
  if (!n) return;
  while (n->groups) {
    cuda_nccl_group *g = n->groups;
    n->groups = g->next;
    end_comms(n, g, false);
    memory_free(n->memory, g->comms);
    memory_free(n->memory, g);
  }
  (void)pthread_mutex_destroy(&n->lock);
  memory_free(n->memory, n);
}

void cuda_nccl_abort(cuda_nccl *n) {
  (void)pthread_mutex_lock(&n->lock);
  if (n->is_open) (void)n->lib.ncclGroupEnd();
  n->is_open = false;
  for (cuda_nccl_group *g = n->groups; g; g = g->next) end_comms(n, g, true);
  n->generation++;
  (void)pthread_mutex_unlock(&n->lock);
}

static cuda_nccl_group *find_group(const cuda_nccl *n, const cuda_circle *c) {
  for (cuda_nccl_group *g = n->groups; g; g = g->next)
    if (g->is_pair == c->is_pair && g->n == c->n &&
        memcmp(g->devices, c->devices, c->n * sizeof *c->devices) == 0)
      return g;
  return NULL;
}

static cuda_nccl_group *add_group(cuda_nccl *n, const cuda_circle *c) {
  cuda_nccl_group *g = memory_alloc(n->memory, sizeof *g + c->n * sizeof *c->devices);
  ncclComm_t *comms = memory_alloc(n->memory, c->n * sizeof *comms);
  if (!g || !comms) {
    memory_free(n->memory, g);
    memory_free(n->memory, comms);
    return NULL;
  }
  for (uint32_t i = 0; i < c->n; i++) comms[i] = NULL;
  *g = (cuda_nccl_group){.next = n->groups, .is_pair = c->is_pair, .n = c->n, .comms = comms};
  memcpy(g->devices, c->devices, c->n * sizeof *c->devices);
  n->groups = g;
  return g;
}

static CUcontext context_of(const cuda_loaded *l, uint32_t rank) {
  return l->device->gpus[l->ranks[rank].gpu].context;
}

/* All members join at once: one thread that joined them one by one would wait for itself. */
static ncclResult_t join_members(const cuda_loaded *l, cuda_nccl *n, cuda_nccl_group *g,
                                 const cuda_comm *members) {
  ncclUniqueId id;
  ncclResult_t r = n->lib.ncclGetUniqueId(&id);
  if (r == ncclSuccess) r = n->lib.ncclGroupStart();
  if (r != ncclSuccess) return r;
  for (uint32_t i = 0; i < g->n && r == ncclSuccess; i++) {
    if (l->cu->cuCtxSetCurrent(context_of(l, members[i].rank)) != CUDA_SUCCESS)
      r = ncclUnhandledCudaError;
    else r = n->lib.ncclCommInitRank(&g->comms[i], (int)g->n, id, (int)i);
  }
  ncclResult_t ended = n->lib.ncclGroupEnd();
  return r == ncclSuccess ? ended : r;
}

static void circle_text(const cuda_circle *c, char *text, size_t size_bytes) {
  rt_comm_line line = rt_comm_line_of(text, size_bytes);
  if (c->is_pair) rt_comm_line_add(&line, "device %u to device %u", c->devices[0], c->devices[1]);
  else {
    rt_comm_line_add(&line, "team ");
    rt_comm_line_add_team(&line, c->devices, c->n);
  }
}

static status make_comms(const cuda_loaded *l, cuda_nccl *n, cuda_nccl_group *g,
                         const cuda_circle *c, const cuda_comm *members) {
  ncclResult_t r = join_members(l, n, g, members);
  if (r == ncclSuccess) return STATUS_OK;
  char why[512], who[256];
  cuda_nccl_error_text(n, r, why, sizeof why);
  circle_text(c, who, sizeof who);
  end_comms(n, g, true);
  return fail(STATUS_UNAVAILABLE, "cuda: NCCL makes no communicator for %s: %s", who, why);
}

/* NCCL itself would say "invalid usage". */
static status check_members(const cuda_loaded *l, const cuda_nccl *n, const cuda_circle *c,
                            const cuda_comm *members) {
  if (members->n < c->n)
    return fail(STATUS_UNAVAILABLE,
                "cuda: device %u communicates with devices of other processes, which --comm nccl "
                "does not do yet: run without mpirun, or without --comm nccl",
                l->base.plan->posts[members->post].rank);
  bool may_share = n->shares && n->shares();
  for (uint32_t i = 0; i < c->n && !may_share; i++)
    for (uint32_t j = 0; j < i; j++)
      if (l->ranks[members[i].rank].gpu == l->ranks[members[j].rank].gpu)
        return fail(STATUS_UNAVAILABLE,
                    "cuda: NCCL wants a GPU for every device, but devices %u and %u share one: the "
                    "program has %u devices and this machine %u GPU%s; run without --comm nccl",
                    c->devices[j], c->devices[i], l->n_ranks, l->device->n_gpus,
                    l->device->n_gpus == 1 ? "" : "s");
  return STATUS_OK;
}

static bool is_to_itself(const cuda_circle *c) {
  return c->is_pair && c->devices[0] == c->devices[1];
}

static status prepare_circle(cuda_loaded *l, cuda_nccl *n, const cuda_comm *members) {
  const cuda_circle *c = &l->order.circles[members->circle];
  if (is_to_itself(c)) return STATUS_OK;
  TRY(check_members(l, n, c, members));
  cuda_nccl_group *g = find_group(n, c);
  if (!g) g = add_group(n, c);
  if (!g) return STATUS_OUT_OF_MEMORY;
  l->nccl.groups[members->circle] = g;
  return g->comms[0] ? STATUS_OK : make_comms(l, n, g, c, members);
}

status cuda_nccl_prepare(cuda_loaded *l) {
  cuda_nccl *n = l->device->nccl;
  status st = STATUS_OK;
  (void)pthread_mutex_lock(&n->lock);
  const cuda_comm *comms = l->order.comms.data;
  for (uint32_t i = 0; i < l->order.comms.len && st == STATUS_OK; i += comms[i].n) {
    const cuda_nccl_group *known = l->nccl.groups[comms[i].circle];
    if (!known || !known->comms[0]) st = prepare_circle(l, n, &comms[i]);
  }
  l->nccl.generation = st == STATUS_OK ? n->generation : 0;
  (void)pthread_mutex_unlock(&n->lock);
  return st;
}

bool cuda_nccl_is_stale(const cuda_loaded *l) {
  cuda_nccl *n = l->device->nccl;
  (void)pthread_mutex_lock(&n->lock);
  bool stale = l->nccl.generation != n->generation;
  (void)pthread_mutex_unlock(&n->lock);
  return stale;
}

/* ---- what NCCL reduces ---- */
typedef struct reduction {
  bool known;
  ncclDataType_t dtype;
  ncclRedOp_t op;
} reduction;

static ncclDataType_t dtype_of(ir_dtype t, bool *known) {
  static const struct {
    bool known;
    ncclDataType_t dtype;
  } dtypes[IR_DTYPE_COUNT] = {
      [IR_F64] = {true, ncclFloat64}, [IR_F32] = {true, ncclFloat32},
      [IR_F16] = {true, ncclFloat16}, [IR_BF16] = {true, ncclBfloat16},
      [IR_I64] = {true, ncclInt64},   [IR_I32] = {true, ncclInt32},
      [IR_I8] = {true, ncclInt8},     [IR_U8] = {true, ncclUint8},
      [IR_BOOL] = {true, ncclUint8},
  };
  *known = dtypes[t].known;
  return dtypes[t].dtype;
}

/* Of bool, which is 0 or 1, or is the larger and and the smaller. Floats of which one is NaN have no
 * smallest in NCCL: min and max of floats are folded by our own kernels. */
static reduction reduction_of(rt_comm_op op, ir_dtype t) {
  reduction r = {0};
  bool is_bool = t == IR_BOOL;
  r.dtype = dtype_of(t, &r.known);
  switch (op) {
  case RT_COMM_SUM: r.op = is_bool ? ncclMax : ncclSum; break;
  case RT_COMM_PROD: r.op = is_bool ? ncclMin : ncclProd; break;
  case RT_COMM_MIN: r.op = ncclMin; break;
  case RT_COMM_MAX: r.op = ncclMax; break;
  case RT_COMM_AND: r.op = ncclMin; break;
  case RT_COMM_OR: r.op = ncclMax; break;
  case RT_COMM_XOR:
  case RT_COMM_OP_COUNT: r.known = false; break;
  }
  if ((op == RT_COMM_MIN || op == RT_COMM_MAX) && ir_dtype_is_float(t)) r.known = false;
  if ((op == RT_COMM_AND || op == RT_COMM_OR) && !is_bool) r.known = false;
  return r;
}

bool cuda_nccl_reduces(const rt_post *post, bool all_give) {
  return all_give && reduction_of(post->op, post->dtype).known;
}

/* ---- calls ---- */
typedef struct call {
  cuda_loaded *l;
  const cuda_nccl *n;
  const cuda_comm *c;
  const rt_post *p;
  ncclComm_t comm;
  cudaStream_t stream;
  char *in, *out;
  size_t bytes; /* of a piece */
} call;

static char *address_of(const cuda_loaded *l, uint32_t view) {
  if (view == RT_NO_VIEW) return NULL;
  const rt_view *v = &l->base.plan->views[view];
  return (char *)(uintptr_t)(l->bases[v->buffer] + (CUdeviceptr)v->offset_bytes);
}

static ncclResult_t send_to(const call *x, const char *from, uint32_t peer) {
  return x->n->lib.ncclSend(from, x->bytes, ncclUint8, (int)peer, x->comm, x->stream);
}

static ncclResult_t receive_from(const call *x, char *to, uint32_t peer) {
  return x->n->lib.ncclRecv(to, x->bytes, ncclUint8, (int)peer, x->comm, x->stream);
}

/* What stays with its owner. */
static ncclResult_t keep(const call *x, char *to, const char *from) {
  if (!to || !from || to == from || x->bytes == 0) return ncclSuccess;
  CUresult r = x->l->cu->cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                           x->bytes, x->stream);
  return r == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t broadcast(const call *x) {
  const char *from = x->p->me == x->p->root ? x->in : x->out;
  char *to = x->out ? x->out : x->in; /* a root that receives nothing */
  return x->n->lib.ncclBroadcast(from, to, x->bytes, ncclUint8, (int)x->p->root, x->comm,
                                 x->stream);
}

static ncclResult_t gather(const call *x) {
  const rt_post *p = x->p;
  if (p->me != p->root) return send_to(x, x->in, p->root);
  ncclResult_t r = keep(x, x->out + p->me * x->bytes, x->in);
  for (uint32_t i = 0; i < p->n_team && r == ncclSuccess; i++)
    if (i != p->me) r = receive_from(x, x->out + i * x->bytes, i);
  return r;
}

static ncclResult_t scatter(const call *x) {
  const rt_post *p = x->p;
  if (p->me != p->root) return receive_from(x, x->out, p->root);
  ncclResult_t r = keep(x, x->out, x->in + p->me * x->bytes);
  for (uint32_t i = 0; i < p->n_team && r == ncclSuccess; i++)
    if (i != p->me) r = send_to(x, x->in + i * x->bytes, i);
  return r;
}

static ncclResult_t all_to_all(const call *x) {
  const rt_post *p = x->p;
  ncclResult_t r = keep(x, x->out + p->me * x->bytes, x->in + p->me * x->bytes);
  for (uint32_t k = 1; k < p->n_team && r == ncclSuccess; k++) {
    uint32_t to = (p->me + k) % p->n_team, from = (p->me + p->n_team - k) % p->n_team;
    r = send_to(x, x->in + to * x->bytes, to);
    if (r == ncclSuccess) r = receive_from(x, x->out + from * x->bytes, from);
  }
  return r;
}

/* The inputs of others, to be folded. */
static ncclResult_t collect(const call *x) {
  const rt_post *p = x->p;
  bool sends_all = p->kind != RT_COMM_REDUCE, receives = sends_all || p->me == p->root;
  char *staging =
      (char *)(uintptr_t)(x->l->ranks[x->c->rank].staging + (CUdeviceptr)x->c->staging_at);
  ncclResult_t r = ncclSuccess;
  for (uint32_t k = 1; k < p->n_team && r == ncclSuccess; k++) {
    uint32_t to = (p->me + k) % p->n_team, from = (p->me + p->n_team - k) % p->n_team;
    const char *piece = p->kind == RT_COMM_REDUCE_SCATTER ? x->in + to * x->bytes : x->in;
    if (sends_all || to == p->root) r = send_to(x, piece, to);
    if (r == ncclSuccess && receives)
      r = receive_from(x, staging + from * x->c->stride_bytes, from);
  }
  return r;
}

static ncclResult_t reduce(const call *x) {
  const rt_post *p = x->p;
  const library *lib = &x->n->lib;
  reduction by = reduction_of(p->op, p->dtype);
  size_t count = (size_t)p->count;
  if (x->c->collects) return collect(x);
  if (p->kind == RT_COMM_ALLREDUCE)
    return lib->ncclAllReduce(x->in, x->out, count, by.dtype, by.op, x->comm, x->stream);
  if (p->kind == RT_COMM_REDUCE_SCATTER)
    return lib->ncclReduceScatter(x->in, x->out, count, by.dtype, by.op, x->comm, x->stream);
  return lib->ncclReduce(x->in, p->me == p->root ? x->out : NULL, count, by.dtype, by.op,
                         (int)p->root, x->comm, x->stream);
}

/* A rank's message to itself is a copy, made where it receives. */
static ncclResult_t message(call *x) {
  const cuda_comm *sender = &x->l->order.comms.data[x->c->first];
  if (!x->comm && !x->c->receives) return ncclSuccess;
  if (!x->comm) return keep(x, x->out, address_of(x->l, x->l->base.plan->posts[sender->post].in));
  return x->c->receives ? receive_from(x, x->out, 0) : send_to(x, x->in, 1);
}

static ncclResult_t issue(call *x) {
  switch (x->p->kind) {
  case RT_COMM_BROADCAST: return broadcast(x);
  case RT_COMM_GATHER: return gather(x);
  case RT_COMM_ALLGATHER:
    return x->n->lib.ncclAllGather(x->in, x->out, x->bytes, ncclUint8, x->comm, x->stream);
  case RT_COMM_SCATTER: return scatter(x);
  case RT_COMM_REDUCE:
  case RT_COMM_ALLREDUCE:
  case RT_COMM_REDUCE_SCATTER: return reduce(x);
  case RT_COMM_ALL_TO_ALL: return all_to_all(x);
  case RT_COMM_SEND:
  case RT_COMM_RECV:
  case RT_COMM_PERMUTE: return message(x);
  case RT_COMM_KIND_COUNT: break;
  }
  impossible("a kind of communication");
}

static call call_of(cuda_loaded *l, const cuda_comm *c, CUstream stream) {
  const rt_post *p = &l->base.plan->posts[c->post];
  const cuda_nccl_group *g = l->nccl.groups[c->circle];
  call x = {.l = l, .n = l->device->nccl, .c = c, .p = p, .stream = stream};
  int64_t count = p->kind == RT_COMM_PERMUTE && c->receives ? p->count_from : p->count;
  x.comm = g ? g->comms[c->member] : NULL;
  x.in = address_of(l, p->in);
  x.out = address_of(l, p->out);
  x.bytes = (size_t)count * ir_dtype_size_bytes(p->dtype);
  return x;
}

bool cuda_nccl_issue(cuda_loaded *l, uint32_t comm, CUstream stream) {
  cuda_nccl *n = l->device->nccl;
  const cuda_comm *c = &l->order.comms.data[comm];
  call x = call_of(l, c, stream);
  ncclResult_t r = ncclSuccess;
  if (comm == c->first) {
    r = n->lib.ncclGroupStart();
    n->is_open = r == ncclSuccess;
  }
  if (r == ncclSuccess && x.bytes > 0) r = issue(&x);
  if (n->is_open && (r != ncclSuccess || comm == c->first + c->n - 1)) {
    ncclResult_t ended = n->lib.ncclGroupEnd();
    n->is_open = false;
    l->current_gpu = UINT32_MAX; /* it may have changed that */
    if (r == ncclSuccess) r = ended;
  }
  if (r != ncclSuccess) l->failed_nccl = (cuda_nccl_error){(int)r, comm};
  return r == ncclSuccess;
}

bool cuda_nccl_has_failed(const cuda_loaded *l, uint32_t *circle, int *result) {
  const cuda_nccl *n = l->device->nccl;
  for (uint32_t k = 0; k < l->order.n_circles; k++) {
    const cuda_nccl_group *g = l->nccl.groups[k];
    for (uint32_t i = 0; g && i < g->n; i++) {
      ncclResult_t reported = ncclSuccess;
      if (!g->comms[i]) continue;
      ncclResult_t r = n->lib.ncclCommGetAsyncError(g->comms[i], &reported);
      if (r == ncclSuccess) r = reported;
      if (r == ncclSuccess || r == ncclInProgress) continue;
      *circle = k;
      *result = (int)r;
      return true;
    }
  }
  return false;
}
