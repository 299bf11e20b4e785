/* Communications as calls of NCCL. */
#include "device/cuda/comm/nccl_internal.h"

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

/* How NCCL reduces. Bools are 0 or 1, so `or` is max and `and` is min. NCCL does not define min and max of floats
 * of which one is NaN: these are folded by our own kernels. */
static reduction reduction_of(ir_combine op, ir_dtype t) {
  reduction r = {0};
  bool is_bool = t == IR_BOOL;
  r.dtype = dtype_of(t, &r.known);
  switch (op) {
  /* mutant: cuda_nccl_adds_bool */
  case IR_COMBINE_SUM: r.op = is_bool ? ncclMax : ncclSum; break;
  case IR_COMBINE_PROD: r.op = is_bool ? ncclMin : ncclProd; break;
  case IR_COMBINE_MIN: r.op = ncclMin; break;
  case IR_COMBINE_MAX: r.op = ncclMax; break;
  case IR_COMBINE_AND: r.op = ncclMin; break;
  case IR_COMBINE_OR: r.op = ncclMax; break;
  case IR_COMBINE_XOR:
  case IR_COMBINE_COUNT: r.known = false; break;
  }
  if ((op == IR_COMBINE_MIN || op == IR_COMBINE_MAX) && ir_dtype_is_float(t)) r.known = false;
  /* mutant: cuda_nccl_and_is_min */
  if ((op == IR_COMBINE_AND || op == IR_COMBINE_OR) && !is_bool) r.known = false;
  return r;
}

bool cuda_nccl_reduces(const rt_post *post, bool all_give) {
  /* mutant: cuda_nccl_all_give */
  return all_give && reduction_of(post->op, post->dtype).known;
}

/* ---- calls ---- */
typedef struct call {
  cuda_loaded *l;
  const cuda_nccl *n;
  const issue_comm *c;
  const rt_post *p;
  ncclComm_t comm;
  cudaStream_t stream;
  char *in, *out;
  size_t bytes; /* of one piece */
} call;

static char *address_of(const cuda_loaded *l, uint32_t view) {
  if (view == RT_NO_VIEW) return NULL;
  const rt_view *v = &l->plan->views[view];
  return (char *)(uintptr_t)(l->bases[v->buffer] + (CUdeviceptr)v->offset_bytes);
}

/* If communicators do not block, calls return IN_PROGRESS: what counts is how the group ends. */
static ncclResult_t taken(ncclResult_t r) { return r == ncclInProgress ? ncclSuccess : r; }

static ncclResult_t send_to(const call *x, const char *from, uint32_t peer) {
  return taken(x->n->lib.ncclSend(from, x->bytes, ncclUint8, (int)peer, x->comm, x->stream));
}

static ncclResult_t receive_from(const call *x, char *to, uint32_t peer) {
  return taken(x->n->lib.ncclRecv(to, x->bytes, ncclUint8, (int)peer, x->comm, x->stream));
}

/* Copies what stays with its owner. */
static ncclResult_t keep(const call *x, char *to, const char *from) {
  if (!to || !from || to == from || x->bytes == 0) return ncclSuccess;
  CUresult r = x->l->cu->cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                           x->bytes, x->stream);
  return r == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t broadcast(const call *x) {
  const char *from = x->p->me == x->p->root ? x->in : x->out;
  char *to = x->out ? x->out : x->in; /* the root may have no output */
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

/* Collects the inputs of others, to be folded. */
static ncclResult_t collect(const call *x) {
  const rt_post *p = x->p;
  bool sends_all = p->kind != IR_COMM_REDUCE, receives = sends_all || p->me == p->root;
  char *staging =
      (char *)(uintptr_t)(x->l->ranks[x->c->rank].staging + (CUdeviceptr)x->c->staging_at);
  ncclResult_t r = ncclSuccess;
  for (uint32_t k = 1; k < p->n_team && r == ncclSuccess; k++) {
    uint32_t to = (p->me + k) % p->n_team, from = (p->me + p->n_team - k) % p->n_team;
    /* mutant: cuda_nccl_collects_first_piece */
    const char *piece = p->kind == IR_COMM_REDUCE_SCATTER ? x->in + to * x->bytes : x->in;
    if (sends_all || to == p->root) r = send_to(x, piece, to);
    if (r == ncclSuccess && receives)
      r = receive_from(x, staging + from * x->c->stride_bytes, from);
  }
  return r;
}

static ncclResult_t reduce(const call *x) {
  const rt_post *p = x->p;
  const cuda_nccl_library *lib = &x->n->lib;
  reduction by = reduction_of(p->op, p->dtype);
  size_t count = (size_t)p->count;
  if (x->c->collects) return collect(x);
  if (p->kind == IR_COMM_ALLREDUCE)
    return lib->ncclAllReduce(x->in, x->out, count, by.dtype, by.op, x->comm, x->stream);
  if (p->kind == IR_COMM_REDUCE_SCATTER)
    return lib->ncclReduceScatter(x->in, x->out, count, by.dtype, by.op, x->comm, x->stream);
  return lib->ncclReduce(x->in, p->me == p->root ? x->out : NULL, count, by.dtype, by.op,
                         (int)p->root, x->comm, x->stream);
}

/* A rank's message to itself is a copy, made by the receiving end. */
static ncclResult_t message(call *x) {
  const issue_comm *sender = &x->l->order.comms.data[x->c->first];
  if (!x->comm && !x->c->receives) return ncclSuccess;
  if (!x->comm) return keep(x, x->out, address_of(x->l, x->l->plan->posts[sender->post].in));
  return x->c->receives ? receive_from(x, x->out, 0) : send_to(x, x->in, 1);
}

static ncclResult_t issue(call *x) {
  switch (x->p->kind) {
  case IR_COMM_BROADCAST: return broadcast(x);
  case IR_COMM_GATHER: return gather(x);
  case IR_COMM_ALLGATHER:
    return x->n->lib.ncclAllGather(x->in, x->out, x->bytes, ncclUint8, x->comm, x->stream);
  case IR_COMM_SCATTER: return scatter(x);
  case IR_COMM_REDUCE:
  case IR_COMM_ALLREDUCE:
  case IR_COMM_REDUCE_SCATTER: return reduce(x);
  case IR_COMM_ALL_TO_ALL: return all_to_all(x);
  case IR_COMM_SEND:
  case IR_COMM_RECV:
  case IR_COMM_PERMUTE: return message(x);
  case IR_COMM_SEND_RECV:
  case IR_COMM_COUNT: break;
  }
  impossible("a kind of communication");
}

static call call_of(cuda_loaded *l, const issue_comm *c, CUstream stream) {
  const rt_post *p = &l->plan->posts[c->post];
  const cuda_nccl_group *g = l->nccl.groups[c->circle];
  call x = {.l = l, .n = l->device->nccl, .c = c, .p = p, .stream = stream};
  int64_t count = p->kind == IR_COMM_PERMUTE && c->receives ? p->count_from : p->count;
  x.comm = g ? g->comms[c->member] : NULL;
  x.in = address_of(l, p->in);
  x.out = address_of(l, p->out);
  x.bytes = (size_t)count * ir_dtype_size_bytes(p->dtype);
  return x;
}

bool cuda_nccl_issue(cuda_loaded *l, uint32_t comm, CUstream stream) {
  cuda_nccl *n = l->device->nccl;
  const issue_comm *c = &l->order.comms.data[comm];
  call x = call_of(l, c, stream);
  ncclResult_t r = ncclSuccess;
  bool alone = l->share != NULL; /* other processes issue the parts of the other members */
  if (alone || comm == c->first) {
    r = n->lib.ncclGroupStart();
    n->is_open = r == ncclSuccess;
  }
  if (r == ncclSuccess && x.bytes > 0) r = taken(issue(&x));
  if (n->is_open && (r != ncclSuccess || alone || comm == c->first + c->n - 1)) {
    ncclResult_t ended = n->lib.ncclGroupEnd();
    n->is_open = false;
    l->current_gpu = UINT32_MAX; /* NCCL may have made another context current */
    if (r == ncclSuccess) r = ended;
  }
  /* mutant: cuda_nccl_not_awaited */
  if (alone && x.comm) r = cuda_nccl_await(l, x.comm, r);
  if (r != ncclSuccess) l->failed_nccl = (cuda_nccl_error){(int)r, comm};
  return r == ncclSuccess;
}
