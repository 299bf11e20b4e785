/* The graphs of attention against cuDNN itself, without a GPU.
 *
 * Where the library and the toolkit's stub of the driver are installed, every form of graph is given to the
 * library for a GPU that is described by text. It refuses, or compiles the kernels and then fails to load
 * them, since there is no driver: the failure that is wanted. Elsewhere there is nothing to do. And the
 * constants of cudnn_values.def are those of the library's header, where there is one. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/attention.h"
#include "test.h"

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#define VALUE(name, value) _Static_assert((int)CUDNN_##name == (value), "CUDNN_" #name);
#include "device/cuda/cudnn_values.def"
#undef VALUE
#endif

/* What the library itself says of an H200. */
static const char h200[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":"
    "65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":6,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
    "\"totalGlobalMem\":150109880320,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560,\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,"
    "\"deviceName\":\"NVIDIA H200\"}";

static bool open_stub(void) {
  static const char *const names[] = {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so",
                                      "/usr/local/cuda/lib/stubs/libcuda.so"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (dlopen(names[i], RTLD_NOW | RTLD_GLOBAL)) return true;
  return false;
}

/* ---- shapes ---- */
enum { PACKED, HEADS_INSIDE, ONE_BUFFER };

static void set_strides(cuda_att_shape *s, cuda_att_side side, int layout) {
  int64_t e[4], *x = s->strides[side], rows = s->hq + 2 * s->hk;
  cuda_att_extents(s, side, e);
  bool is_input = side <= ATT_V || side >= ATT_DQ;
  if (layout == PACKED || side == ATT_STATS) {
    x[0] = e[1] * e[2] * e[3], x[1] = e[2] * e[3], x[2] = e[3];
  } else if (layout == ONE_BUFFER && is_input) {
    x[0] = e[2] * rows * e[3], x[1] = e[3], x[2] = rows * e[3];
  } else {
    x[0] = e[1] * e[2] * e[3], x[1] = e[3], x[2] = e[1] * e[3];
  }
}

typedef struct form {
  int64_t b, hq, hk, sq, skv, d, dv, mask;
  int layout;
  bool stats;
} form;

static cuda_att_shape shape_of(const form *f, bool backward, ir_dtype dtype) {
  cuda_att_shape s = {.backward = backward,
                      .dtype = dtype,
                      .b = f->b,
                      .hq = f->hq,
                      .hk = f->hk,
                      .sq = f->sq,
                      .skv = f->skv,
                      .d = f->d,
                      .dv = f->dv,
                      .mask = f->mask,
                      .stats = f->stats || backward};
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) set_strides(&s, (cuda_att_side)i, f->layout);
  return s;
}

/* ---- asking ---- */
static void *describe(const cuda_dnn *dnn) {
  void *d = NULL;
  if (dnn->cudnnBackendCreateDescriptor(DNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d)) return NULL;
  if (dnn->cudnnBackendSetAttribute(d, DNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, DNN_TYPE_CHAR,
                                    (int64_t)sizeof h200 - 1, h200) ||
      dnn->cudnnBackendFinalize(d))
    return NULL;
  return d;
}

/* Compiled, and not loaded for want of a driver; or the reason. */
static bool is_accepted(const cuda_dnn *dnn, void *device, const cuda_att_shape *s) {
  static cuda_attention a;
  cuda_att_plans plans;
  memset(&a, 0, sizeof a);
  a.shape = *s;
  dnn_graph_init(&a.g, dnn);
  cuda_att_build(&a, NULL, device, 1, &plans);
  bool ok = plans.n > 0 || strstr(a.g.why, "cuLibraryLoadData");
  if (!ok)
    printf("b%d h%d/%d s%d/%d d%d/%d mask %d %s: %s\n", (int)s->b, (int)s->hq, (int)s->hk,
           (int)s->sq, (int)s->skv, (int)s->d, (int)s->dv, (int)s->mask,
           s->backward ? "backward" : "forward", a.g.why);
  for (uint32_t i = 0; i < plans.n; i++) (void)dnn->cudnnBackendDestroyDescriptor(plans.plans[i]);
  dnn_graph_destroy(&a.g);
  return ok;
}

static void test_every_form_is_accepted(void) {
  static const form forms[] = {
      {2, 4, 4, 200, 200, 64, 64, ATT_ALL, PACKED, false},
      {2, 32, 32, 4096, 4096, 128, 128, ATT_TOP_LEFT, HEADS_INSIDE, true},
      {1, 64, 8, 8192, 8192, 128, 128, ATT_TOP_LEFT, ONE_BUFFER, true},
      {2, 8, 2, 64, 333, 64, 64, ATT_BOTTOM_RIGHT, PACKED, false},
      {1, 4, 4, 200, 77, 96, 96, ATT_TOP_LEFT, PACKED, true},
      {8, 32, 8, 1, 8192, 128, 128, ATT_ALL, PACKED, false},
  };
  const char *why;
  const cuda_dnn *dnn = open_stub() ? cuda_dnn_load(&why) : NULL;
  if (!dnn) {
    printf("skipped: no cuDNN, or no stub of the driver\n");
    return;
  }
  void *device = describe(dnn);
  EXPECT(device != NULL);
  for (size_t i = 0; device && i < sizeof forms / sizeof *forms; i++) {
    cuda_att_shape s = shape_of(&forms[i], false, i % 2 ? IR_F16 : IR_BF16);
    EXPECT(is_accepted(dnn, device, &s));
    s = shape_of(&forms[i], true, IR_BF16);
    if (forms[i].sq > 1 && forms[i].mask != ATT_BOTTOM_RIGHT) EXPECT(is_accepted(dnn, device, &s));
  }
  cuda_dnn older = *dnn; /* whose gradients are masked by lengths */
  older.version = 91400;
  cuda_att_shape s = shape_of(&forms[0], true, IR_BF16);
  EXPECT(is_accepted(&older, device, &s));
  s = shape_of(&forms[0], false, IR_BF16);
  s.d = s.dv = 60; /* no multiple of 8: refused, and the reason is kept */
  EXPECT(!is_accepted(dnn, device, &s));
  if (device) (void)dnn->cudnnBackendDestroyDescriptor(device);
}

int main(void) {
  test_every_form_is_accepted();
  return test_finish();
}
