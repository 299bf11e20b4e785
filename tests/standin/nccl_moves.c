/* The stand-in for NCCL: what puts a communication on streams. */
#include "standin/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- the driver ---- */
#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x) /* after <cuda.h> has mapped it */

nccl_driver cu;

static void find(void *library, const char *name, void *to) {
  void *address = dlsym(library, name);
  if (!address) abort();
  memcpy(to, &address, sizeof address);
}

void load_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) abort();
#define F(name) find(library, NAME_OF(name), &cu.name);
  DRIVER(F)
#undef F
  void *submits = dlsym(library, "standin_submit"), *misuses = dlsym(library, "standin_misuse");
  memcpy(&cu.standin_submit, &submits, sizeof submits);
  memcpy(&cu.standin_misuse, &misuses, sizeof misuses);
}

/* ---- streams of one communication ---- */
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
  ir_combine op;
  ir_dtype dtype;
  size_t count;
  int n;
} fold;

static void run_fold(void *context) {
  const fold *f = context;
  const void *sources[MOST_RANKS];
  for (int i = 0; i < f->n; i++) sources[i] = f->sources + (size_t)i * CHUNK_BYTES;
  if (f->n == 1) memcpy(f->result, sources[0], f->count * ir_dtype_size_bytes(f->dtype));
  else rt_comm_reduce(f->op, f->dtype, 0, f->count, (uint32_t)f->n, sources, f->result);
}

bool nccl_words(const call *c, ir_dtype *dtype, ir_combine *op) {
  static const ir_dtype dtypes[] = {
      [ncclInt8] = IR_I8,     [ncclUint8] = IR_U8,     [ncclInt32] = IR_I32,
      [ncclInt64] = IR_I64,   [ncclFloat16] = IR_F16,  [ncclFloat32] = IR_F32,
      [ncclFloat64] = IR_F64, [ncclBfloat16] = IR_BF16};
  static const ir_combine ops[] = {[ncclSum] = IR_COMBINE_SUM,
                                   [ncclProd] = IR_COMBINE_PROD,
                                   [ncclMax] = IR_COMBINE_MAX,
                                   [ncclMin] = IR_COMBINE_MIN};
  if ((size_t)c->dtype >= sizeof dtypes / sizeof *dtypes || (int)c->op > ncclMin) return false;
  *dtype = dtypes[c->dtype];
  *op = ops[c->op];
  return *dtype != IR_DTYPE_NONE;
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
  if (!f || !nccl_words(p->of[0], &f->dtype, &f->op))
    return refuse(ncclInvalidArgument, "a reduction");
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

/* ---- all of it ---- */
ncclResult_t hold(const party *p) {
  for (int i = 0; i < p->n; i++) {
    CUdeviceptr stop = (CUdeviceptr)(uintptr_t)p->of[i]->comm->w->stop;
    TRY_CU(cu.cuCtxSetCurrent(p->of[i]->comm->context));
    TRY_CU(cu.cuStreamWaitValue32(p->of[i]->stream, stop, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  return ncclSuccess;
}

ncclResult_t carry_out(party *p) {
  call_kind kind = p->of[0]->kind;
  ncclResult_t r = mark_and_meet(p, p->came);
  if (r == ncclSuccess)
    r = kind == REDUCE || kind == ALLREDUCE || kind == REDUCE_SCATTER ? reduce(p) : move(p);
  return r == ncclSuccess ? mark_and_meet(p, p->read) : r;
}
