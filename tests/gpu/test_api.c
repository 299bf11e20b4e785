/* weir_run() on tensors wherever they are: of the host, pinned, managed, on the device's own GPU,
 * on another, there but not aligned, with gaps between rows, column by column; for programs on
 * GPUs, on the CPU and for the definition itself. And addresses that are not what the caller says.
 *
 * Needs a GPU, or a stand-in for one; skips where there is neither. */
#include <stdlib.h>

#include "base/random.h"
#include "device/cuda/vendor.h"
#include "test.h"
#include "weir/weir.h"

enum { MAX_GPUS = 64, ROWS = 8, COLUMNS = 6, MOST = 1024, DL_CPU = 1, DL_CUDA, DL_PINNED };
enum { DL_MANAGED = 13 };
typedef enum { HOST, PINNED, MANAGED, OWN, SHIFTED_8, SHIFTED_16, OTHER, N_PLACES } place;
typedef enum { DENSE, GAPS, BY_COLUMNS, BACKWARDS, N_FORMS } form;

static const cuda_vendor *cu;
static __typeof__(&cuMemAllocManaged) alloc_managed;
static int n_gpus;
static CUcontext contexts[MAX_GPUS];
static uint64_t seed, draws;

static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(seed, draws++) % n); }
static void must(CUresult r) { check(r == CUDA_SUCCESS); }

/* ---- tensors of the caller ---- */
typedef struct array {
  place at;
  int gpu;
  void *base;
  int64_t shape[2], strides[2];
  weir_dl_tensor t;
} array;

/* Everything there is of the block, to or from the host. */
static void move_block(const array *a, void *host, bool out) {
  bool reachable = a->at == HOST || a->at == PINNED || a->at == MANAGED;
  must(cu->cuCtxSetCurrent(contexts[a->gpu]));
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)a->base;
  if (reachable && out) memcpy(host, a->base, MOST);
  else if (reachable) memcpy(a->base, host, MOST);
  else if (out) must(cu->cuMemcpyDtoHAsync(host, p, MOST, NULL));
  else must(cu->cuMemcpyHtoDAsync(p, host, MOST, NULL));
  if (!reachable) must(cu->cuStreamSynchronize(NULL));
}

static void allocate(array *a) {
  CUdeviceptr p = 0;
  must(cu->cuCtxSetCurrent(contexts[a->gpu]));
  if (a->at == HOST) a->base = malloc(MOST);
  else if (a->at == PINNED) must(cu->cuMemHostAlloc(&a->base, MOST, CU_MEMHOSTALLOC_PORTABLE));
  else if (a->at == MANAGED) must(alloc_managed(&p, MOST, CU_MEM_ATTACH_GLOBAL));
  else must(cu->cuMemAlloc(&p, MOST));
  if (p) a->base = (void *)(uintptr_t)p;
  check(a->base != NULL);
}

static void set_form(array *a, form f) {
  int64_t rows = a->shape[0], columns = a->shape[1];
  int64_t strides[N_FORMS][2] = {{columns, 1}, {columns + 3, 1}, {1, rows}, {-columns, -1}};
  memcpy(a->strides, strides[f], sizeof a->strides);
  if (f == BACKWARDS) a->t.byte_offset += (uint64_t)(rows * columns - 1) * sizeof(float);
}

static void make(array *a, int64_t rows, int64_t columns, bool own) {
  static const int32_t types[N_PLACES] = {DL_CPU,  DL_PINNED, DL_MANAGED, DL_CUDA,
                                          DL_CUDA, DL_CUDA,   DL_CUDA};
  *a = (array){.at = own ? OWN : (place)below(N_PLACES), .shape = {rows, columns}};
  if (a->at == OTHER) a->gpu = 1 % n_gpus;
  allocate(a);
  a->t = (weir_dl_tensor){.data = a->base,
                          .device = {types[a->at], a->gpu},
                          .ndim = 2,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = a->shape,
                          .strides = a->strides};
  if (a->at == SHIFTED_8) a->t.byte_offset = 8;
  if (a->at == SHIFTED_16) a->t.data = (char *)a->base + 16;
  set_form(a, own ? DENSE : (form)below(N_FORMS));
}

static void drop(array *a) {
  must(cu->cuCtxSetCurrent(contexts[a->gpu]));
  if (a->at == HOST) free(a->base);
  else if (a->at == PINNED) must(cu->cuMemFreeHost(a->base));
  else must(cu->cuMemFree((CUdeviceptr)(uintptr_t)a->base));
}

/* Element (i, k) in a copy of the block. */
static float *element(const array *a, char *block, int64_t i, int64_t k) {
  char *first = block + ((char *)a->t.data - (char *)a->base) + a->t.byte_offset;
  return (float *)(void *)first + i * a->strides[0] + k * a->strides[1];
}

static void fill(const array *a, const float *values) {
  char block[MOST];
  memset(block, 0x5a, sizeof block);
  for (int64_t i = 0; i < a->shape[0]; i++)
    for (int64_t k = 0; k < a->shape[1]; k++)
      *element(a, block, i, k) = values ? values[i * a->shape[1] + k] : -77;
  move_block(a, block, false);
}

/* How many elements are not as expected, and bytes between them that were written. */
static int differences(const array *a, const float *values) {
  char block[MOST], mask[MOST] = {0};
  int wrong = 0;
  move_block(a, block, true);
  for (int64_t i = 0; i < a->shape[0]; i++) {
    for (int64_t k = 0; k < a->shape[1]; k++) {
      float *e = element(a, block, i, k);
      wrong += *e != values[i * a->shape[1] + k];
      memset(mask + ((char *)e - block), 1, sizeof *e);
    }
  }
  for (int i = 0; i < MOST; i++) wrong += !mask[i] && block[i] != 0x5a;
  return wrong;
}

/* ---- programs ---- */
typedef struct program {
  const char *text;
} program;

/* Small integers: every order of sums gives the same. */
static const program programs[] = {
    {"fusion f { x : f32[8, 6]; w : f32[8, 6]; y = x * w + 1; z = x - w; return y, z }"},
    {"fusion f { x : f32[8, 6]; w : f32[8, 6]; y = x * 2; return y, w }"},
    {"fusion f { mesh d = [2]; x : f32[8, 6]; w : f32[8, 6]; y = x + w; z = x * w; return y, z\n"
     "schedule { x, w, y, z on d; x.outer_split(0, 2); x[0] = mesh.x\n"
     "y.outer_split(0, 2); y[0] = mesh.x } }"},
    {"fusion f { mesh d = [2]; x : f32[8, 6]; w : f32[8, 6]; y = x + w; z = x * w; return y, z\n"
     "schedule { x, w, y, z on d; x.outer_split(1, 2); x[1] = mesh.x\n"
     "y.outer_split(1, 2); y[1] = mesh.x } }"},
    {"fusion f { mesh d = [2]; x : f32[8, 6]; w : f32[8, 6]; y = x + w; return y, x\n"
     "schedule { x, w, y on d; x.outer_split(0, 2); x[0] = mesh.x } }"},
};

static weir_program *compile(const program *from, const char *device) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  weir_options *o = NULL;
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", device), WEIR_OK);
  EXPECT_INT(weir_module_parse("t", from->text, strlen(from->text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  if (weir_compile(f, o, NULL, &p) != WEIR_OK) fprintf(stderr, "%s\n", weir_error());
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static weir_status run(const weir_program *p, const array *a, bool as_definition) {
  const weir_dl_tensor *in[] = {&a[0].t, &a[1].t}, *out[] = {&a[2].t, &a[3].t};
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out, .n_outputs = 2};
  args.as_definition = as_definition;
  return weir_run(p, &args);
}

static void test_program(const program *from, const char *device, bool as_definition) {
  enum { RUNS = 12, N = ROWS * COLUMNS };
  float values[2][N], expected[2][N];
  weir_program *p = compile(from, device), *oracle = compile(from, "ref");
  for (int k = 0; p && oracle && k < RUNS; k++) {
    array a[4];
    bool own = below(4) == 0;
    for (int i = 0; i < 2 * N; i++) values[i / N][i % N] = (float)below(9) - 4;
    array plain[4];
    for (int i = 0; i < 4; i++) {
      make(&a[i], ROWS, COLUMNS, own);
      plain[i] = a[i];
      plain[i].t = (weir_dl_tensor){.data = i < 2 ? values[i] : expected[i - 2],
                                    .device = {DL_CPU, 0},
                                    .ndim = 2,
                                    .dtype = a[i].t.dtype,
                                    .shape = a[i].shape};
      fill(&a[i], i < 2 ? values[i] : NULL);
    }
    EXPECT_INT(run(oracle, plain, false), WEIR_OK);
    if (!EXPECT_INT(run(p, a, as_definition), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
    for (int i = 0; i < 2; i++)
      if (!EXPECT_INT(differences(&a[2 + i], expected[i]), 0) ||
          !EXPECT_INT(differences(&a[i], values[i]), 0))
        fprintf(stderr, "%s on %s, run %d, output %d in place %d\n", from->text, device, k, i,
                a[2 + i].at);
    for (int i = 0; i < 4; i++) drop(&a[i]);
  }
  weir_program_destroy(p);
  weir_program_destroy(oracle);
}

/* ---- small tensors ---- */
static weir_dl_tensor small(void *data, const int64_t *shape) {
  return (weir_dl_tensor){.data = data,
                          .device = {DL_CUDA, 0},
                          .ndim = shape ? 1 : 0,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = (int64_t *)(uintptr_t)shape};
}

/* A tensor without dimensions, and one of no or few elements; an empty one may have no address. */
static void test_small(const char *device) {
  static const program from = {
      "fusion f { x : f32; w : f32[n]; y = w * x; z = x + sum(w, dims=[0]); return y, z }"};
  weir_program *p = compile(&from, device);
  CUdeviceptr block = 0;
  must(cu->cuCtxSetCurrent(contexts[0]));
  must(cu->cuMemAlloc(&block, MOST));
  for (int64_t n = 3; n >= 0; n -= 3) {
    char *at = (char *)(uintptr_t)block;
    float host[12] = {3, 0, 0, 0, 1, 2, 4};
    array a[4] = {{.t = small(at, NULL)},
                  {.t = small(n ? at + 16 : NULL, &n)},
                  {.t = small(n ? at + 32 : NULL, &n)},
                  {.t = small(at + 12, NULL)}};
    must(cu->cuMemcpyHtoDAsync(block, host, sizeof host, NULL));
    must(cu->cuStreamSynchronize(NULL));
    if (!EXPECT_INT(run(p, a, false), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
    must(cu->cuMemcpyDtoHAsync(host, block, sizeof host, NULL));
    must(cu->cuStreamSynchronize(NULL));
    EXPECT(host[3] == (n ? 10 : 3));
    for (int i = 0; i < 3; i++) EXPECT(host[8 + i] == (n ? 3 * host[4 + i] : 0));
  }
  must(cu->cuMemFree(block));
  weir_program_destroy(p);
}

/* ---- used where they are ---- */
static void *count_alloc(void *context, int32_t gpu, size_t size_bytes) {
  CUdeviceptr p = 0;
  (void)gpu;
  ++*(int *)context;
  must(cu->cuMemAlloc(&p, size_bytes));
  return (void *)(uintptr_t)p;
}

static void count_free(void *context, int32_t gpu, void *block) {
  (void)context, (void)gpu;
  must(cu->cuMemFree((CUdeviceptr)(uintptr_t)block));
}

/* Memory is taken for tensors that must be copied: a multiple of 16 bytes is enough, 8 are not. */
static void test_in_place(void) {
  static const char text[] =
      "fusion f { x : f32[8, 6]; w : f32[8, 6]; y = x * w; z = x - w; return y, z }";
  int blocks = 0;
  weir_device_allocator memory = {
      .struct_size = sizeof memory, .alloc = count_alloc, .free = count_free, .context = &blocks};
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  EXPECT_INT(weir_module_parse("t", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", "cuda"), WEIR_OK);
  EXPECT_INT(weir_options_set_device_allocator(o, &memory), WEIR_OK);
  for (int shift = 16; shift >= 8; shift -= 8) {
    weir_program *p = NULL;
    array a[4];
    blocks = 0;
    EXPECT_INT(weir_compile(f, o, NULL, &p), WEIR_OK);
    for (int i = 0; i < 4; i++) {
      make(&a[i], ROWS, COLUMNS, true);
      a[i].t.data = (char *)a[i].base + shift;
      fill(&a[i], NULL);
    }
    EXPECT_INT(run(p, a, false), WEIR_OK);
    EXPECT_INT(blocks > 0, shift == 8);
    weir_program_destroy(p);
    for (int i = 0; i < 4; i++) drop(&a[i]);
  }
  weir_options_destroy(o);
  weir_module_destroy(m);
}

/* ---- long loops ---- */
static void *sized_alloc(void *context, size_t size_bytes) {
  *(int64_t *)context += (int64_t)size_bytes;
  return malloc(size_bytes);
}

static void sized_free(void *context, void *block) {
  (void)context;
  free(block);
}

/* All that is ever allocated to make the program ready. */
static int64_t prepared_bytes(const char *device, int64_t times) {
  char text[512];
  int64_t bytes = 0;
  weir_allocator memory = {sized_alloc, sized_free, &bytes};
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_shapes *s = NULL;
  weir_program *p = NULL;
  snprintf(text, sizeof text,
           "host f(x : f32[%1$d, 4]) -> (y) {\n  y : f32[%1$d, 4] = allocate()\n"
           "  for i in %1$d {\n    x$1 = select(x, dim=0, index=i)\n"
           "    y$1 = select(y, dim=0, index=i)\n    y$1 <- x$1 + x$1\n  }\n}\n",
           (int)times);
  EXPECT_INT(weir_module_parse("t", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", device), WEIR_OK);
  EXPECT_INT(weir_compile(f, o, &memory, &p), WEIR_OK);
  EXPECT_INT(weir_shapes_create(f, &s), WEIR_OK);
  EXPECT_INT(weir_shapes_complete(s), WEIR_OK);
  if (!EXPECT_INT(weir_program_prepare(p, s), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
  weir_program_destroy(p);
  weir_shapes_destroy(s);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return bytes;
}

/* They stay loops: a program is as large with 300 iterations as with 300,000. */
static void test_long_loops(const char *device) {
  int64_t few = prepared_bytes(device, 300), many = prepared_bytes(device, 300000);
  EXPECT(few > 0 && many < few + few / 100);
}

/* ---- what is not what the caller says ---- */
static void test_lies(const char *device) {
  weir_program *p = compile(&programs[0], device);
  array a[4];
  for (int i = 0; i < 4; i++) {
    make(&a[i], ROWS, COLUMNS, true);
    fill(&a[i], NULL);
  }
  float host[ROWS * COLUMNS];
  weir_dl_tensor good = a[0].t;
  a[0].t.device.device_id = 63;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "there is no GPU 63");
  a[0].t.device.device_id = 1;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), n_gpus > 1 ? "but is memory of GPU 0" : "there is no GPU 1");
  a[0].t = good;
  a[0].t.data = host;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "input x is said to be on GPU 0, but the driver knows of no");
  void *pinned = NULL;
  must(cu->cuMemHostAlloc(&pinned, MOST, CU_MEMHOSTALLOC_PORTABLE));
  a[0].t.data = pinned;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "but is memory of the host");
  must(cu->cuMemFreeHost(pinned));
  a[0].t = good;
  weir_dl_tensor y = a[2].t;
  a[2].t.data = (char *)good.data + 16;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "output y overlaps input x");
  a[2].t = y;
  EXPECT_INT(run(p, a, false), WEIR_OK);
  for (int i = 0; i < 4; i++) drop(&a[i]);
  weir_program_destroy(p);
}

/* Memory that was freed, and memory of a context that the caller made beside the primary one. */
static void test_foreign(const char *device) {
  static const char *const driver[] = {"libcuda.so.1"};
  const cuda_symbol names[] = {{"cuCtxCreate_v2", 0}, {"cuCtxDestroy_v2", sizeof(void *)}};
  struct {
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
  } context;
  weir_program *p = compile(&programs[0], device);
  CUcontext other = NULL;
  CUdeviceptr there = 0, freed = 0;
  array a[4];
  check(cuda_library_find(cuda_library_open(driver, 1), "driver", names, 2, (void *)&context) ==
        STATUS_OK);
  for (int i = 0; i < 4; i++) {
    make(&a[i], ROWS, COLUMNS, true);
    fill(&a[i], NULL);
  }
  weir_dl_tensor good = a[1].t;
  must(context.create(&other, 0, 0));
  must(cu->cuMemAlloc(&there, MOST));
  must(cu->cuCtxSetCurrent(contexts[0]));
  a[1].t.data = (void *)(uintptr_t)there;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "input w is memory of another context of GPU 0");
  must(cu->cuCtxSetCurrent(other));
  must(cu->cuMemFree(there));
  must(context.destroy(other));
  must(cu->cuCtxSetCurrent(contexts[0]));
  must(cu->cuMemAlloc(&freed, (size_t)64 << 20));
  must(cu->cuMemFree(freed));
  a[1].t.data = (void *)(uintptr_t)freed;
  EXPECT_INT(run(p, a, false), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "input w is said to be on GPU 0, but the driver knows of no");
  a[1].t = good;
  EXPECT_INT(run(p, a, false), WEIR_OK);
  for (int i = 0; i < 4; i++) drop(&a[i]);
  weir_program_destroy(p);
}

static void open_gpus(void) {
  must(cu->cuDeviceGetCount(&n_gpus));
  if (n_gpus > MAX_GPUS) n_gpus = MAX_GPUS;
  for (int g = 0; g < n_gpus; g++) must(cu->cuDevicePrimaryCtxRetain(&contexts[g], g));
}

static void close_gpus(void) {
  for (int g = 0; g < n_gpus; g++) must(cu->cuDevicePrimaryCtxRelease(g));
}

int main(void) {
  static const char *const driver[] = {"libcuda.so.1"};
  const cuda_symbol managed = {"cuMemAllocManaged", 0};
  if (cuda_vendor_load(&cu) != STATUS_OK) {
    printf("skipped: %s\n", status_message());
    return EXPECT(true) ? test_finish() : 1;
  }
  check(cuda_library_find(cuda_library_open(driver, 1), "driver", &managed, 1,
                          (void *)&alloc_managed) == STATUS_OK);
  open_gpus();
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    seed = i;
    test_program(&programs[i], "cuda", false);
    test_program(&programs[i], "cpu", false);
    test_program(&programs[i], "cuda", true);
  }
  test_small("cuda");
  test_small("cpu");
  test_in_place();
  test_long_loops("cuda");
  test_long_loops("cpu");
  test_lies("cuda");
  test_lies("cpu");
  test_foreign("cuda");
  test_foreign("cpu");
  close_gpus();
  return test_finish();
}
