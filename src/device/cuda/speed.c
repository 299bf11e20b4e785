#include "device/cuda/speed.h"

#include <string.h>

#include "device/cuda/device.h"

enum {
  TRIES = 3,
  LAUNCHES = 64, /* small products in a row */
  SMALL = 64,    /* side of a product that takes only the time of its launch */
  FIRST_SIDE = 128,
  F32_SIDE = 2048, /* at most */
  BF16_SIDE = 4096,
  ENOUGH_NS = 50000, /* a product that takes so long is large enough to be measured */
  FIRST_BYTES = 1 << 20,
  COPY_BYTES = 128 << 20,
  LINK_BYTES = 16 << 20,
  HOP_BYTES = 256
};

/* What measuring needs, in the context of one GPU. */
typedef struct probe {
  cuda_device *d;
  cuda_gpu *g;
  const cuda_vendor *cu;
  CUdeviceptr memory, workspace; /* two halves of COPY_BYTES */
  void *pinned;                  /* two halves of LINK_BYTES */
  CUstream streams[2];
  CUevent begin, end, between;
} probe;

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static bool is_measured;
static cuda_measured measured;

/* ---- opening ---- */
static status open_probe(probe *p) {
  const cuda_vendor *cu = p->cu;
  TRY(cuda_try(cu->cuMemAlloc(&p->memory, 2 * (size_t)COPY_BYTES), "memory to measure with"));
  TRY(cuda_try(cu->cuMemHostAlloc(&p->pinned, 2 * (size_t)LINK_BYTES, CU_MEMHOSTALLOC_PORTABLE),
               "memory to measure with"));
  for (int i = 0; i < 2; i++)
    TRY(cuda_try(cu->cuStreamCreateWithPriority(&p->streams[i], CU_STREAM_NON_BLOCKING, 0),
                 "a stream to measure with"));
  TRY(cuda_try(cu->cuEventCreate(&p->begin, CU_EVENT_DEFAULT), "an event to measure with"));
  TRY(cuda_try(cu->cuEventCreate(&p->end, CU_EVENT_DEFAULT), "an event to measure with"));
  return cuda_try(cu->cuEventCreate(&p->between, CU_EVENT_DISABLE_TIMING), "an event");
}

static void close_probe(probe *p) {
  const cuda_vendor *cu = p->cu;
  for (int i = 0; i < 2; i++)
    if (p->streams[i]) (void)cu->cuStreamSynchronize(p->streams[i]);
  for (int i = 0; i < 2; i++)
    if (p->streams[i]) (void)cu->cuStreamDestroy(p->streams[i]);
  if (p->begin) (void)cu->cuEventDestroy(p->begin);
  if (p->end) (void)cu->cuEventDestroy(p->end);
  if (p->between) (void)cu->cuEventDestroy(p->between);
  if (p->workspace) (void)cu->cuMemFree(p->workspace);
  if (p->memory) (void)cu->cuMemFree(p->memory);
  if (p->pinned) (void)cu->cuMemFreeHost(p->pinned);
}

/* ---- timing ---- */
/* Issues what is timed, on p->streams[0]. What it issues on the other stream it must join itself. */
typedef status enqueue_fn(probe *p, const void *context);

/* The least time of some tries, measured on the GPU; the first try is not counted. */
static status least_ns(probe *p, enqueue_fn *issue, const void *context, double *result) {
  double least = 0;
  for (int i = 0; i <= TRIES; i++) {
    float ms;
    TRY(cuda_try(p->cu->cuEventRecord(p->begin, p->streams[0]), "recording an event"));
    TRY(issue(p, context));
    TRY(cuda_try(p->cu->cuEventRecord(p->end, p->streams[0]), "recording an event"));
    TRY(cuda_try(p->cu->cuEventSynchronize(p->end), "waiting for a measurement"));
    TRY(cuda_try(p->cu->cuEventElapsedTime(&ms, p->begin, p->end), "reading a time"));
    if (i > 0 && (i == 1 || (double)ms * 1e6 < least)) least = (double)ms * 1e6;
  }
  *result = least;
  return STATUS_OK;
}

/* ---- products ---- */
typedef struct product {
  const cuda_matmul *matmul;
  int times;
} product;

enum { THIRD = 2 * (COPY_BYTES / 3 / 256 * 256) };

static status enqueue_products(probe *p, const void *context) {
  const product *x = context;
  CUdeviceptr third = THIRD;
  CUdeviceptr starts[CUDA_MATMUL_SIDES] = {p->memory, p->memory + third, p->memory + 2 * third};
  for (int i = 0; i < x->times; i++)
    TRY(cuda_try_lt(
        cuda_matmul_run(p->cu, p->g->lt, x->matmul, starts, p->workspace, p->streams[0]),
        "a matrix product to measure"));
  return STATUS_OK;
}

/* *ns is 0 if the library has no such product. */
static status time_products(probe *p, ir_dtype dtype, int64_t side, int times, double *ns) {
  cuda_matmul_shape shape;
  product x = {.times = times};
  memset(&shape, 0, sizeof shape);
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldd = side;
  shape.batch = 1;
  shape.dtype = shape.dtype_d = dtype;
  shape.align_a = shape.align_b = shape.align_d = shape.align_bias = CUDA_ALIGN;
  TRY(cuda_matmul_get(p->cu, p->g->lt, &p->g->matmuls, &shape, p->d->memory, &x.matmul));
  if (!x.matmul) return STATUS_OK;
  if (p->workspace) (void)p->cu->cuMemFree(p->workspace);
  p->workspace = 0;
  TRY(cuda_try(p->cu->cuMemAlloc(&p->workspace, x.matmul->workspace_bytes + CUDA_ALIGN),
               "memory to measure with"));
  size_t bytes = (size_t)(side * side) * ir_dtype_size_bytes(dtype);
  for (size_t i = 0; i < 3; i++)
    TRY(cuda_try(p->cu->cuMemsetD8Async(p->memory + i * THIRD, 0, bytes, p->streams[0]),
                 "clearing memory"));
  return least_ns(p, enqueue_products, &x, ns);
}

/* Measures products of sides up to `most`, larger and larger until one takes long enough. */
static status measure_product(probe *p, ir_dtype dtype, int64_t most, double launch_ns,
                              double *flops, double *ns) {
  for (int64_t side = FIRST_SIDE; side <= most; side *= 2) {
    double all = 0;
    TRY(time_products(p, dtype, side, 1, &all));
    if (all == 0) return STATUS_OK;
    *flops = 2.0 * (double)(side * side * side);
    *ns = all - launch_ns;
    if (*ns > ENOUGH_NS) return STATUS_OK;
  }
  return STATUS_OK;
}

static status measure_products(probe *p, cuda_measured *m) {
  double small = 0;
  TRY(time_products(p, IR_BF16, SMALL, LAUNCHES, &small));
  m->launch_ns = small / LAUNCHES;
  TRY(measure_product(p, IR_BF16, BF16_SIDE, m->launch_ns, &m->bf16_flops, &m->bf16_ns));
  return measure_product(p, IR_F32, F32_SIDE, m->launch_ns, &m->f32_flops, &m->f32_ns);
}

/* ---- memory and links ---- */
static status enqueue_copy(probe *p, const void *context) {
  const size_t *bytes = context;
  return cuda_try(
      p->cu->cuMemcpyDtoDAsync(p->memory, p->memory + COPY_BYTES, *bytes, p->streams[0]),
      "a copy to measure");
}

/* Both ways at once. */
static status enqueue_crossing(probe *p, const void *context) {
  const cuda_vendor *cu = p->cu;
  char *second = (char *)p->pinned + LINK_BYTES;
  (void)context;
  TRY(cuda_try(cu->cuStreamWaitEvent(p->streams[1], p->begin, 0), "waiting"));
  TRY(cuda_try(cu->cuMemcpyDtoHAsync(p->pinned, p->memory, LINK_BYTES, p->streams[0]), "a copy"));
  TRY(cuda_try(cu->cuMemcpyHtoDAsync(p->memory + COPY_BYTES, second, LINK_BYTES, p->streams[1]),
               "a copy"));
  TRY(cuda_try(cu->cuEventRecord(p->between, p->streams[1]), "recording an event"));
  return cuda_try(cu->cuStreamWaitEvent(p->streams[0], p->between, 0), "waiting");
}

/* A few bytes to the host, and back on another stream. */
static status enqueue_hop(probe *p, const void *context) {
  const cuda_vendor *cu = p->cu;
  (void)context;
  TRY(cuda_try(cu->cuMemcpyDtoHAsync(p->pinned, p->memory, HOP_BYTES, p->streams[0]), "a copy"));
  TRY(cuda_try(cu->cuEventRecord(p->between, p->streams[0]), "recording an event"));
  TRY(cuda_try(cu->cuStreamWaitEvent(p->streams[1], p->between, 0), "waiting"));
  TRY(cuda_try(cu->cuMemcpyHtoDAsync(p->memory + COPY_BYTES, p->pinned, HOP_BYTES, p->streams[1]),
               "a copy"));
  TRY(cuda_try(cu->cuEventRecord(p->between, p->streams[1]), "recording an event"));
  return cuda_try(cu->cuStreamWaitEvent(p->streams[0], p->between, 0), "waiting");
}

static status measure_moves(probe *p, cuda_measured *m) {
  size_t few = HOP_BYTES;
  for (size_t some = FIRST_BYTES; some <= COPY_BYTES && m->copy_ns < ENOUGH_NS; some *= 2) {
    TRY(least_ns(p, enqueue_copy, &some, &m->copy_ns));
    m->copy_bytes = 2.0 * (double)some;
  }
  TRY(least_ns(p, enqueue_copy, &few, &m->peer_hop_ns));
  TRY(least_ns(p, enqueue_crossing, NULL, &m->host_ns));
  m->host_bytes = LINK_BYTES;
  return least_ns(p, enqueue_hop, NULL, &m->host_hop_ns);
}

/* Measures copies from the second GPU, if there is one. */
static status measure_peer(probe *p, cuda_measured *m) {
  CUdeviceptr far = 0;
  cuda_gpu *other = &p->d->gpus[1];
  if (p->d->n_gpus < 2) return STATUS_OK;
  bool can;
  TRY(cuda_gpu_open(p->d, 1));
  status st = cuda_try(p->cu->cuMemAlloc(&far, LINK_BYTES), "memory to measure with");
  status back = cuda_gpu_connect(p->d, 0, 1, &can); /* otherwise copies go by way of the host */
  if (st == STATUS_OK) st = back;
  double least = 0;
  for (int i = 0; i <= TRIES && st == STATUS_OK; i++) {
    int64_t start_ns = rt_clock_ns();
    TRY_OUT(cuda_try(p->cu->cuMemcpyPeerAsync(p->memory, p->g->context, far, other->context,
                                              LINK_BYTES, p->streams[0]),
                     "a copy between GPUs"));
    TRY_OUT(cuda_try(p->cu->cuStreamSynchronize(p->streams[0]), "a copy between GPUs"));
    double ns = (double)(rt_clock_ns() - start_ns);
    if (i == 1 || (i > 1 && ns < least)) least = ns;
  }
  m->peer_bytes = LINK_BYTES;
  m->peer_ns = least;
out:
  if (far) (void)p->cu->cuMemFree(far);
  return st;
}

/* ---- once ---- */
static void measure(cuda_device *d, cuda_measured *m) {
  probe p = {.d = d, .cu = d->cu};
  status st = cuda_gpu_open(d, 0);
  p.g = &d->gpus[0];
  if (st == STATUS_OK) st = open_probe(&p);
  if (st == STATUS_OK) st = measure_products(&p, m);
  if (st == STATUS_OK) st = measure_moves(&p, m);
  if (st == STATUS_OK) st = measure_peer(&p, m);
  if (st != STATUS_OK) status_clear();
  close_probe(&p);
}

const cuda_measured *cuda_speed_measure(cuda_device *d) {
  (void)pthread_mutex_lock(&once);
  if (!is_measured) {
    (void)pthread_mutex_lock(&d->lock);
    measure(d, &measured);
    (void)pthread_mutex_unlock(&d->lock);
    is_measured = true;
  }
  (void)pthread_mutex_unlock(&once);
  return &measured;
}
