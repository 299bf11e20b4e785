#include "device/cuda/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- the library of a GPU ---- */
static void give_up(cuda_att_library *x, const char *why) {
  x->dnn = NULL;
  x->why = why;
}

void cuda_att_open(cuda_att_library *x, int major, int minor, int processors) {
  if (x->dnn || x->why) return;
  x->disk.folder = -1;
  const cuda_dnn *dnn = cuda_dnn_load(&x->why);
  if (!dnn) return;
  if (major < 8) { /* older GPUs have no bf16, and no asynchronous copies to shared memory */
    give_up(x, "the GPU is older than compute capability 8.0");
    return;
  }
  x->dnn = dnn;
  if (dnn->cudnnCreate(&x->load_handle)) x->load_handle = NULL;
  if (dnn->cudnnCreate(&x->run_handle)) x->run_handle = NULL;
  cuda_disk_open(&x->disk, NULL);
  (void)snprintf(x->target, sizeof x->target, "sm_%d%d-%d-cudnn-%zu", major, minor, processors,
                 dnn->version);
}

static void forget_plan(const cuda_dnn *dnn, cuda_attention *a) {
  if (a->plan) (void)dnn->cudnnBackendDestroyDescriptor(a->plan);
  a->plan = NULL;
  dnn_graph_destroy(&a->g);
}

static void destroy(const cuda_dnn *dnn, const cuda_vendor *cu, cuda_attention *a,
                    const allocator *memory) {
  forget_plan(dnn, a);
  if (a->lengths) (void)cu->cuMemFree(a->lengths);
  memory_free(memory, a);
}

void cuda_att_close(cuda_att_library *x, const cuda_vendor *cu, const allocator *memory) {
  while (x->list) {
    cuda_attention *next = x->list->next;
    destroy(x->dnn, cu, x->list, memory);
    x->list = next;
  }
  if (x->load_handle) (void)x->dnn->cudnnDestroy(x->load_handle);
  if (x->run_handle) (void)x->dnn->cudnnDestroy(x->run_handle);
  if (x->dnn) cuda_disk_close(&x->disk);
  memset(x, 0, sizeof *x);
}

/* ---- plans, kept ---- */
enum { KEY_BYTES = 1024 };

/* The shape as text. Its first number counts the versions of our graphs. */
static size_t key_of(const cuda_attention *a, char key[KEY_BYTES]) {
  const int64_t *numbers = (const int64_t *)&a->shape;
  int at = snprintf(key, KEY_BYTES, "attention %d", a->ordered ? 3 : 2);
  for (size_t i = 0; i < sizeof a->shape / sizeof *numbers; i++)
    at += snprintf(key + at, KEY_BYTES - (size_t)at, " %lld", (long long)numbers[i]);
  check(at < KEY_BYTES);
  return (size_t)at;
}

static bool find_on_disk(const cuda_att_library *x, cuda_attention *a, const allocator *memory) {
  char key[KEY_BYTES];
  cuda_disk_program found;
  cuda_disk_key wanted = {.source = key, .source_bytes = key_of(a, key), x->target};
  if (!cuda_disk_read(&x->disk, &wanted, memory, &found)) return false;
  a->plan = cuda_att_from_json(x->dnn, x->load_handle, found.image, found.image_bytes);
  memory_free(memory, (void *)(uintptr_t)found.image);
  a->from_disk = a->plan != NULL;
  return a->from_disk;
}

static void keep_on_disk(const cuda_att_library *x, const cuda_attention *a,
                         const allocator *memory) {
  char key[KEY_BYTES];
  cuda_disk_program program = {.texts = key, .texts_bytes = key_of(a, key) + 1};
  char *json = cuda_att_json(x->dnn, a->plan, memory, &program.image_bytes);
  if (!json) return;
  program.image = json;
  cuda_disk_write(&x->disk, x->target, &program);
  memory_free(memory, json);
}

static void choose(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a,
                   const allocator *memory) {
  cuda_att_plans plans;
  cuda_att_build(a, x->load_handle, NULL, ATT_MOST_PLANS, &plans);
  a->n_configs = plans.n;
  if (plans.n == 0) return;
  uint32_t best = plans.n > 1 ? cuda_att_fastest(x, cu, a, &plans) : 0;
  for (uint32_t i = 0; i < plans.n; i++)
    if (i != best) (void)x->dnn->cudnnBackendDestroyDescriptor(plans.plans[i]);
  a->plan = plans.plans[best];
  keep_on_disk(x, a, memory);
}

/* The lengths are constants: all positions count. Both lists are aligned. */
static size_t lengths_bytes(const cuda_attention *a) {
  return round_up((size_t)a->shape.b * sizeof(int32_t));
}

static status make_lengths(const cuda_vendor *cu, cuda_attention *a, const allocator *memory) {
  size_t b = (size_t)a->shape.b, half = lengths_bytes(a), bytes = 2 * half;
  int32_t *values = memory_alloc(memory, bytes);
  if (!values) return STATUS_OUT_OF_MEMORY;
  memset(values, 0, bytes);
  for (size_t i = 0; i < b; i++) {
    values[i] = (int32_t)a->shape.sq;
    values[half / sizeof(int32_t) + i] = (int32_t)a->shape.skv;
  }
  status st = cuda_try(cu->cuMemAlloc(&a->lengths, bytes), "allocating memory");
  if (st == STATUS_OK)
    st = cuda_try(cu->cuMemcpyHtoDAsync(a->lengths, values, bytes, NULL), "copying lengths");
  if (st == STATUS_OK) st = cuda_try(cu->cuStreamSynchronize(NULL), "copying lengths");
  memory_free(memory, values);
  return st;
}

/* If the number of keys is no multiple of 128, dq was not the same in every run. The form that guarantees it
 * keeps the gradients of the scores in its workspace, so it is used if these are not too many. */
static bool wants_order(const cuda_att_shape *s) {
  double scores = (double)s->b * (double)s->hq * (double)s->sq * (double)s->skv;
  return s->backward && s->skv % 128 != 0 && scores <= (double)(1 << 29);
}

static void find_plan(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a,
                      const allocator *memory) {
  dnn_graph_init(&a->g, x->dnn);
  if (!find_on_disk(x, a, memory)) choose(x, cu, a, memory);
  bool is_new = !a->from_disk && a->n_configs > 1; /* it was timed, so it runs */
  a->works = a->plan != NULL && (is_new || cuda_att_runs(x, cu, a));
  if (a->works) a->workspace_bytes = cuda_att_workspace(x->dnn, a->plan);
}

static status make(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a,
                   const allocator *memory) {
  if (cuda_att_has_lengths(&a->shape, x->dnn->version)) TRY(make_lengths(cu, a, memory));
  a->ordered = wants_order(&a->shape);
  find_plan(x, cu, a, memory);
  if (a->works || !a->ordered) return STATUS_OK;
  forget_plan(x->dnn, a);
  a->ordered = false;
  find_plan(x, cu, a, memory);
  return STATUS_OK;
}

status cuda_attention_get(cuda_att_library *x, const cuda_vendor *cu, const cuda_att_shape *shape,
                          const allocator *memory, const cuda_attention **result) {
  *result = NULL;
  if (!x->dnn || !x->load_handle || !x->run_handle) return STATUS_OK;
  cuda_attention *a = x->list;
  while (a && memcmp(&a->shape, shape, sizeof *shape) != 0) a = a->next;
  if (!a) {
    a = memory_alloc(memory, sizeof *a);
    if (!a) return STATUS_OUT_OF_MEMORY;
    memset(a, 0, sizeof *a);
    memcpy(&a->shape, shape, sizeof *shape);
    status st = make(x, cu, a, memory);
    if (st != STATUS_OK) {
      destroy(x->dnn, cu, a, memory);
      return st;
    }
    a->next = x->list;
    x->list = a;
  }
  if (a->works) *result = a;
  return STATUS_OK;
}

void cuda_att_explain(const cuda_att_shape *shape, const cuda_attention *a, const char *why) {
  const cuda_att_shape *s = shape;
  if (!getenv("WEIR_CUDNN_EXPLAIN")) return;
  (void)fprintf(stderr, "weir: attention%s b%lld h%lld/%lld s%lld/%lld d%lld/%lld%s: ",
                s->backward ? " backward" : "", (long long)s->b, (long long)s->hq, (long long)s->hk,
                (long long)s->sq, (long long)s->skv, (long long)s->d, (long long)s->dv,
                s->mask == ATT_ALL ? "" : " causal");
  if (!a) (void)fprintf(stderr, "kernel: %s\n", why ? why : "cuDNN refuses it");
  else if (a->from_disk) (void)fprintf(stderr, "cudnn: a plan from disk\n");
  else (void)fprintf(stderr, "cudnn: the fastest of %u plans\n", a->n_configs);
}

/* ---- runs ---- */
/* Scratch memory: the workspace, then, for gradients, sums of rows, dQ in f32 and gradients that are not wanted. */
static size_t rows_of(const cuda_attention *a) {
  const cuda_att_shape *s = &a->shape;
  return (size_t)(s->b * s->hq * s->sq);
}

static size_t sums_bytes(const cuda_attention *a) { return round_up(rows_of(a) * sizeof(float)); }

static size_t sum_bytes(const cuda_attention *a) {
  if (a->ordered) return 0;
  return round_up(rows_of(a) * (size_t)a->shape.d * sizeof(float));
}

static size_t spare_bytes(const cuda_attention *a, uint32_t side) {
  if (!(a->shape.spare >> side & 1)) return 0;
  return round_up((size_t)cuda_att_reach(&a->shape, (cuda_att_side)side) * sizeof(uint16_t));
}

size_t cuda_attention_scratch(const cuda_attention *a) {
  size_t bytes = round_up(a->workspace_bytes);
  if (!a->shape.backward) return bytes;
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) bytes += spare_bytes(a, i);
  return bytes + sums_bytes(a) + sum_bytes(a);
}

typedef struct pack {
  uint32_t n;
  int64_t ids[ATT_ID_END];
  void *at[ATT_ID_END];
} pack;

static void add(pack *p, int64_t id, void *at) {
  p->ids[p->n] = id;
  p->at[p->n++] = at;
}

static void add_device(pack *p, int64_t id, CUdeviceptr at) { add(p, id, (void *)(uintptr_t)at); }

static bool has_side(const cuda_att_shape *s, uint32_t side) {
  if (side == ATT_STATS) return s->backward || s->stats;
  return side <= ATT_O || s->backward;
}

typedef struct numbers {
  float scale, never, one;
  int32_t n_keys, n_queries;
} numbers;

static void add_numbers(pack *p, const cuda_attention *a, numbers *n) {
  const cuda_att_shape *s = &a->shape;
  add(p, ATT_ID_SCALE, &n->scale);
  if (s->mask != ATT_ALL || a->lengths) add(p, ATT_ID_NEVER, &n->never);
  if (s->backward) add(p, ATT_ID_ONE, &n->one);
  if (s->mask != ATT_BOTTOM_RIGHT) return;
  add(p, ATT_ID_N_KEYS, &n->n_keys);
  add(p, ATT_ID_N_QUERIES, &n->n_queries);
}

static void add_memory(pack *p, const cuda_attention *a, const cuda_att_run *run) {
  CUdeviceptr at = run->scratch + round_up(a->workspace_bytes);
  if (a->lengths) {
    add_device(p, ATT_ID_LENGTHS_Q, a->lengths);
    add_device(p, ATT_ID_LENGTHS_K, a->lengths + lengths_bytes(a));
  }
  if (!a->shape.backward) return;
  add_device(p, ATT_ID_ROW_SUMS, at);
  if (!a->ordered) add_device(p, ATT_ID_SUM_DQ, at + sums_bytes(a));
}

/* A finalized pack cannot be changed; making one costs less than a microsecond. */
static int execute(const cuda_dnn *dnn, void *handle, void *plan, const pack *p, void *workspace) {
  void *d = NULL;
  int st = dnn->cudnnBackendCreateDescriptor(DNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d);
  if (st) return st;
  st = dnn->cudnnBackendSetAttribute(d, DNN_ATTR_VARIANT_PACK_UNIQUE_IDS, DNN_TYPE_INT64, p->n,
                                     p->ids);
  if (!st)
    st = dnn->cudnnBackendSetAttribute(d, DNN_ATTR_VARIANT_PACK_DATA_POINTERS, DNN_TYPE_VOID_PTR,
                                       p->n, p->at);
  if (!st)
    st = dnn->cudnnBackendSetAttribute(d, DNN_ATTR_VARIANT_PACK_WORKSPACE, DNN_TYPE_VOID_PTR, 1,
                                       &workspace);
  if (!st) st = dnn->cudnnBackendFinalize(d);
  if (!st) st = dnn->cudnnBackendExecute(handle, plan, d);
  (void)dnn->cudnnBackendDestroyDescriptor(d);
  return st;
}

int cuda_attention_run(const cuda_dnn *dnn, void *handle, const cuda_attention *a,
                       const cuda_att_run *run) {
  numbers n = {.scale = run->scale,
               .never = -INFINITY,
               .one = 1,
               .n_keys = (int32_t)a->shape.skv,
               .n_queries = (int32_t)a->shape.sq};
  pack p = {.n = 0};
  CUdeviceptr spare = run->scratch + round_up(a->workspace_bytes) + sums_bytes(a) + sum_bytes(a);
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) {
    size_t bytes = spare_bytes(a, i);
    if (has_side(&a->shape, i)) add_device(&p, ATT_ID_SIDES + i, bytes ? spare : run->sides[i]);
    spare += bytes;
  }
  add_memory(&p, a, run);
  add_numbers(&p, a, &n);
  int st = dnn->cudnnSetStream(handle, run->stream);
  return st ? st : execute(dnn, handle, a->plan, &p, (void *)(uintptr_t)run->scratch);
}

status cuda_att_failure(int of_library) {
  const char *why;
  const cuda_dnn *dnn = cuda_dnn_load(&why);
  return fail(STATUS_SYSTEM, "cuda: issuing attention: %s",
              dnn ? dnn->cudnnGetErrorString(of_library) : why);
}
