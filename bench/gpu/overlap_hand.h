/* The work of overlap.c by hand: products, transfers, and programs in C with equal slices, each with
 * streams that copy and one stream per device that computes. */
#ifndef WEIR_BENCH_GPU_OVERLAP_HAND_H
#define WEIR_BENCH_GPU_OVERLAP_HAND_H

#include "gpu/kit.h"

typedef struct size {
  bool ar;
  int64_t m, k, n;
} size;

static inline size_t bf16_bytes(int64_t rows, int64_t columns) {
  return (size_t)(rows * columns * 2);
}

static inline CUstream new_stream(void) {
  CUstream s = NULL;
  ok(cu->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
  return s;
}

static inline void *pinned_memory(size_t bytes) {
  void *p = NULL;
  ok(cu->cuMemHostAlloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE));
  memset(p, 1, bytes);
  return p;
}

static inline CUdeviceptr filled_memory(size_t bytes) {
  CUdeviceptr p = device_memory(bytes);
  fill_bf16(p, bytes);
  return p;
}

/* ---- products ---- */
enum { WORKSPACE = 32 << 20 };

typedef struct product {
  cublasLtHandle_t lt;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
} product;

/* Row-major c[m, n] = a[m, k] b[k, n], as its transpose. */
static inline void product_open(product *p, int64_t m, int64_t k, int64_t n) {
  cublasLtMatmulPreference_t pref;
  cublasLtMatmulHeuristicResult_t found;
  size_t room = WORKSPACE;
  int count = 0;
  if (!p->lt) ok_lt(cu->cublasLtCreate(&p->lt));
  ok_lt(cu->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, (uint64_t)n, (uint64_t)k, n));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, (uint64_t)k, (uint64_t)m, k));
  ok_lt(cu->cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, (uint64_t)n, (uint64_t)m, n));
  ok_lt(cu->cublasLtMatmulPreferenceCreate(&pref));
  ok_lt(cu->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &room, sizeof room));
  ok_lt(cu->cublasLtMatmulAlgoGetHeuristic(p->lt, p->desc, p->a, p->b, p->c, p->c, pref, 1, &found,
                                           &count));
  p->algo = found.algo;
}

/* Where a product is computed. */
typedef struct worker {
  CUstream stream;
  CUdeviceptr workspace;
} worker;

static inline worker worker_new(void) { return (worker){new_stream(), device_memory(WORKSPACE)}; }

static inline void product_issue(const product *p, CUdeviceptr in, CUdeviceptr weights,
                                 CUdeviceptr out, worker w) {
  static const float one = 1, zero = 0;
  void *c = (void *)(uintptr_t)out;
  ok_lt(cu->cublasLtMatmul(p->lt, p->desc, &one, (const void *)(uintptr_t)weights, p->a,
                           (const void *)(uintptr_t)in, p->b, &zero, c, p->c, c, p->c, &p->algo,
                           (void *)(uintptr_t)w.workspace, WORKSPACE, w.stream));
}

/* ---- limits ---- */
/* The whole product on the whole GPU: what both devices compute together. */
typedef struct whole {
  product p;
  worker w;
  CUdeviceptr in, weights, out;
} whole;

static inline void whole_open(whole *x, size s) {
  *x = (whole){.w = worker_new(), .in = filled_memory(bf16_bytes(s.m, s.k))};
  x->weights = filled_memory(bf16_bytes(s.k, s.n));
  x->out = device_memory(bf16_bytes(s.m, s.n));
  product_open(&x->p, s.m, s.k, s.n);
}

static inline void whole_run(void *context) {
  const whole *x = context;
  product_issue(&x->p, x->in, x->weights, x->out, x->w);
  ok(cu->cuStreamSynchronize(x->w.stream));
}

/* All bytes that cross the link, both ways at once: whole, a half by each device, or in pieces each of
 * which goes back as soon as it has arrived in the host's memory. */
typedef struct transfer {
  size_t bytes, piece; /* each way */
  int devices;
  void *pinned[2];
  CUdeviceptr memory[2];
  CUstream out[2], in[2]; /* by device */
  CUevent arrived[64];
} transfer;

/* AG: the two halves of a. AR: two products (each device sends half of its own and the sum of the other
 * half, or its whole one). */
static inline size_t crossing_bytes(size s) {
  return s.ar ? 2 * bf16_bytes(s.m, s.n) : bf16_bytes(s.m, s.k);
}

static inline void transfer_open(transfer *t, size s, size_t piece, int devices) {
  *t = (transfer){.bytes = crossing_bytes(s), .piece = piece, .devices = devices};
  for (int i = 0; i < 2; i++) {
    t->out[i] = new_stream();
    t->in[i] = new_stream();
    t->pinned[i] = pinned_memory(t->bytes);
    t->memory[i] = device_memory(t->bytes);
  }
  for (size_t i = 0; i < 64; i++) ok(cu->cuEventCreate(&t->arrived[i], CU_EVENT_DISABLE_TIMING));
}

static inline void transfer_run(void *context) {
  const transfer *t = context;
  size_t piece = t->piece ? t->piece : t->bytes / (size_t)t->devices;
  for (size_t at = 0, i = 0; at < t->bytes; at += piece, i++) {
    CUstream out = t->out[i % (size_t)t->devices], in = t->in[i % (size_t)t->devices];
    char *there = (char *)t->pinned[0] + at, *back = (char *)t->pinned[t->piece ? 0 : 1] + at;
    ok(cu->cuMemcpyDtoHAsync(there, t->memory[0] + at, piece, out));
    if (t->piece) ok(cu->cuEventRecord(t->arrived[i], out));
    if (t->piece) ok(cu->cuStreamWaitEvent(in, t->arrived[i], 0));
    ok(cu->cuMemcpyHtoDAsync(t->memory[1] + at, back, piece, in));
  }
  for (int d = 0; d < t->devices; d++) {
    ok(cu->cuStreamSynchronize(t->out[d]));
    ok(cu->cuStreamSynchronize(t->in[d]));
  }
}

/* ---- programs in equal slices ---- */
enum { MOST_SLICES = 64 };

typedef struct hand {
  size s;
  int slices;
  bool own_first; /* AG: all own rows in one product, before anything arrives */
  product p, own;
  void *pinned[2];
  CUdeviceptr a[2], b[2], c[2], other[2], sum[2]; /* by device */
  CUstream out[2], in[2], add[2];
  worker compute[2];
  CUevent made[2][MOST_SLICES], sent[2][MOST_SLICES], arrived[2][MOST_SLICES];
  CUfunction adds;
} hand;

static inline void hand_open(hand *h, size s, int slices, bool own_first, CUfunction adds) {
  *h = (hand){.s = s, .slices = slices, .own_first = own_first, .adds = adds};
  int64_t columns = s.ar ? s.n : s.n / 2, inner = s.ar ? s.k / 2 : s.k, rows = s.ar ? s.m : s.m / 2;
  size_t moved = s.ar ? bf16_bytes(s.m, s.n) : bf16_bytes(rows, inner);
  product_open(&h->p, rows / slices, inner, columns);
  if (own_first) product_open(&h->own, rows, inner, columns);
  for (int d = 0; d < 2; d++) {
    h->pinned[d] = pinned_memory(moved);
    h->a[d] = filled_memory(bf16_bytes(rows, inner));
    h->b[d] = filled_memory(bf16_bytes(inner, columns));
    h->c[d] = device_memory(bf16_bytes(s.m, columns));
    h->other[d] = device_memory(moved);
    if (s.ar) h->sum[d] = device_memory(moved);
    h->compute[d] = worker_new();
    h->out[d] = new_stream();
    h->in[d] = new_stream();
    h->add[d] = new_stream();
    for (int i = 0; i < slices; i++) {
      ok(cu->cuEventCreate(&h->made[d][i], CU_EVENT_DISABLE_TIMING));
      ok(cu->cuEventCreate(&h->sent[d][i], CU_EVENT_DISABLE_TIMING));
      ok(cu->cuEventCreate(&h->arrived[d][i], CU_EVENT_DISABLE_TIMING));
    }
  }
}

/* Slice i of what each device has, to the other one. */
static inline void hand_exchange(hand *h, int i, const CUdeviceptr *from, size_t at, size_t bytes) {
  for (int d = 0; d < 2; d++) {
    ok(cu->cuMemcpyDtoHAsync((char *)h->pinned[d] + at, from[d] + at, bytes, h->out[d]));
    ok(cu->cuEventRecord(h->sent[d][i], h->out[d]));
  }
  for (int d = 0; d < 2; d++) {
    ok(cu->cuStreamWaitEvent(h->in[d], h->sent[1 - d][i], 0));
    ok(cu->cuMemcpyHtoDAsync(h->other[d] + at, (char *)h->pinned[1 - d] + at, bytes, h->in[d]));
    ok(cu->cuEventRecord(h->arrived[d][i], h->in[d]));
  }
}

static inline void hand_gathered(hand *h, int i) {
  int64_t rows = h->s.m / 2 / h->slices;
  size_t bytes = bf16_bytes(rows, h->s.k), at = (size_t)i * bytes;
  size_t made = bf16_bytes(rows, h->s.n / 2);
  hand_exchange(h, i, h->a, at, bytes);
  for (int d = 0; d < 2; d++) {
    CUdeviceptr mine = h->c[d] + (size_t)i * made, theirs = mine + (size_t)h->slices * made;
    if (!h->own_first) product_issue(&h->p, h->a[d] + at, h->b[d], mine, h->compute[d]);
    else if (i == 0) product_issue(&h->own, h->a[d], h->b[d], mine, h->compute[d]);
    ok(cu->cuStreamWaitEvent(h->compute[d].stream, h->arrived[d][i], 0));
    product_issue(&h->p, h->other[d] + at, h->b[d], theirs, h->compute[d]);
  }
}

static inline void hand_reduced(hand *h, int i) {
  int64_t rows = h->s.m / h->slices;
  size_t bytes = bf16_bytes(rows, h->s.n), at = (size_t)i * bytes;
  long long vectors = (long long)(bytes / 16);
  for (int d = 0; d < 2; d++) {
    product_issue(&h->p, h->a[d] + (size_t)i * bf16_bytes(rows, h->s.k / 2), h->b[d], h->c[d] + at,
                  h->compute[d]);
    ok(cu->cuEventRecord(h->made[d][i], h->compute[d].stream));
    ok(cu->cuStreamWaitEvent(h->out[d], h->made[d][i], 0));
  }
  hand_exchange(h, i, h->c, at, bytes);
  for (int d = 0; d < 2; d++) {
    CUdeviceptr to = h->sum[d] + at, x = h->c[d] + at, y = h->other[d] + at;
    void *params[] = {&to, &x, &y, &vectors};
    ok(cu->cuStreamWaitEvent(h->add[d], h->arrived[d][i], 0));
    ok(cu->cuLaunchKernel(h->adds, 264, 1, 1, 256, 1, 1, 0, h->add[d], params, NULL));
  }
}

static inline void hand_run(void *context) {
  hand *h = context;
  for (int i = 0; i < h->slices; i++)
    if (h->s.ar) hand_reduced(h, i);
    else hand_gathered(h, i);
  for (int d = 0; d < 2; d++)
    ok(cu->cuStreamSynchronize(h->s.ar ? h->add[d] : h->compute[d].stream));
}

/* The kernel that adds two bf16 arrays, eight elements at a time. */
static inline CUfunction hand_adds(void) {
  static const char text[] =
      "struct alignas(16) vec { unsigned short x[8]; };\n"
      "__device__ float up(unsigned short x) { return __uint_as_float((unsigned)x << 16); }\n"
      "__device__ unsigned short down(float x) { unsigned u = __float_as_uint(x);\n"
      "  return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16); }\n"
      "extern \"C\" __global__ void adds(vec *to, const vec *x, const vec *y, long long n) {\n"
      "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
      "       i += (long long)gridDim.x * blockDim.x) {\n"
      "    vec a = x[i], b = y[i];\n"
      "    for (int k = 0; k < 8; k++) a.x[k] = down(up(a.x[k]) + up(b.x[k]));\n"
      "    to[i] = a; } }\n";
  const char *options[] = {"-arch=sm_90"};
  nvrtcProgram program = NULL;
  size_t bytes = 0;
  CUmodule module = NULL;
  CUfunction result = NULL;
  if (cu->nvrtcCreateProgram(&program, text, "adds", 0, NULL, NULL) != NVRTC_SUCCESS ||
      cu->nvrtcCompileProgram(program, 1, options) != NVRTC_SUCCESS ||
      cu->nvrtcGetCUBINSize(program, &bytes) != NVRTC_SUCCESS) {
    fprintf(stderr, "the kernel by hand does not compile\n");
    exit(3);
  }
  char *image = malloc(bytes);
  if (!image || cu->nvrtcGetCUBIN(program, image) != NVRTC_SUCCESS) exit(3);
  ok(cu->cuModuleLoadData(&module, image));
  ok(cu->cuModuleGetFunction(&result, module, "adds"));
  free(image);
  return result;
}

#endif
