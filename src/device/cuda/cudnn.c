#include "device/cuda/cudnn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/vendor.h"

/* ---- the library ---- */
static cuda_dnn library;
static const char *missing = "libcudnn.so.9 was not found";
static bool loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define FUNCTION(result, name, parameters) {#name, offsetof(cuda_dnn, name)},
static const cuda_symbol symbols[] = {
#include "device/cuda/cudnn.def"
};
#undef FUNCTION

/* Older versions are untested, or compute attention wrongly (9.10.0, 9.10.1). */
enum { OLDEST = 91002 };

static void load_once(void) {
  const char *named = getenv("WEIR_CUDNN_LIBRARY");
  const char *names[] = {named && named[0] ? named : "libcudnn.so.9"};
  if (strcmp(names[0], "none") == 0) {
    missing = "WEIR_CUDNN_LIBRARY is none";
    return;
  }
  void *handle = cuda_library_open(names, 1);
  if (!handle) return;
  if (cuda_library_find(handle, names[0], symbols, sizeof symbols / sizeof *symbols, &library) !=
      STATUS_OK) {
    status_clear();
    missing = "libcudnn.so.9 lacks the graph interface";
    return;
  }
  library.version = library.cudnnGetVersion();
  loaded = library.version >= OLDEST;
  if (!loaded) missing = "libcudnn.so.9 is older than 9.10.2";
}

const cuda_dnn *cuda_dnn_load(const char **why) {
  check(pthread_once(&once, load_once) == 0);
  *why = loaded ? NULL : missing;
  return loaded ? &library : NULL;
}

/* ---- descriptors ---- */
dnn_dims dnn_packed(dnn_dims d) {
  int64_t *x = d.at;
  return (dnn_dims){{x[1] * x[2] * x[3], x[2] * x[3], x[3], 1}};
}

dnn_dims dnn_swapped(dnn_dims x) { return (dnn_dims){{x.at[0], x.at[1], x.at[3], x.at[2]}}; }

enum { FIRST_VIRTUAL = 1000 };

void dnn_graph_init(dnn_graph *g, const cuda_dnn *dnn) {
  memset(g, 0, sizeof *g);
  g->dnn = dnn;
  g->next_id = FIRST_VIRTUAL;
}

void dnn_graph_destroy(dnn_graph *g) {
  while (g->n_all > 0) (void)g->dnn->cudnnBackendDestroyDescriptor(g->all[--g->n_all]);
  g->n_ops = 0;
}

void dnn_fail(dnn_graph *g, int st, const char *what) {
  char last[400] = "";
  if (g->status != DNN_STATUS_SUCCESS || st == DNN_STATUS_SUCCESS) return;
  g->dnn->cudnnGetLastErrorString(last, sizeof last);
  g->status = st;
  (void)snprintf(g->why, sizeof g->why, "%s: %s (%s)", what, g->dnn->cudnnGetErrorString(st), last);
}

void *dnn_make(dnn_graph *g, int kind) {
  void *d = NULL;
  if (g->status) return NULL;
  check(g->n_all < DNN_MOST_DESCRIPTORS);
  dnn_fail(g, g->dnn->cudnnBackendCreateDescriptor(kind, &d), "making a descriptor");
  if (g->status) return NULL;
  return g->all[g->n_all++] = d;
}

void dnn_set(dnn_graph *g, void *d, int name, int type, int64_t count, const void *values) {
  if (g->status) return;
  dnn_fail(g, g->dnn->cudnnBackendSetAttribute(d, name, type, count, values),
           "setting an attribute");
}

void dnn_finish(dnn_graph *g, void *d, const char *what) {
  if (!g->status) dnn_fail(g, g->dnn->cudnnBackendFinalize(d), what);
}

static void link_to(dnn_graph *g, void *d, int name, void *other) {
  if (other) dnn_set(g, d, name, DNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

/* ---- tensors ---- */
enum { REAL = 0, BYTES_ALIGNED = 16 };

static void *tensor(dnn_graph *g, int64_t id, int dtype, dnn_dims dims, dnn_dims strides,
                    int kind) {
  void *d = dnn_make(g, DNN_BACKEND_TENSOR_DESCRIPTOR);
  int64_t align = BYTES_ALIGNED;
  bool yes = true;
  dnn_set(g, d, DNN_ATTR_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE, 1, &dtype);
  dnn_set(g, d, DNN_ATTR_TENSOR_DIMENSIONS, DNN_TYPE_INT64, 4, dims.at);
  dnn_set(g, d, DNN_ATTR_TENSOR_STRIDES, DNN_TYPE_INT64, 4, strides.at);
  dnn_set(g, d, DNN_ATTR_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, 1, &id);
  dnn_set(g, d, DNN_ATTR_TENSOR_BYTE_ALIGNMENT, DNN_TYPE_INT64, 1, &align);
  if (kind != REAL) dnn_set(g, d, kind, DNN_TYPE_BOOLEAN, 1, &yes);
  dnn_finish(g, d, "a tensor");
  return d;
}

void *dnn_tensor(dnn_graph *g, int64_t id, int dtype, dnn_dims dims, dnn_dims strides) {
  return tensor(g, id, dtype, dims, strides, REAL);
}

void *dnn_virtual_view(dnn_graph *g, int dtype, dnn_dims dims, dnn_dims strides) {
  return tensor(g, g->next_id++, dtype, dims, strides, DNN_ATTR_TENSOR_IS_VIRTUAL);
}

void *dnn_virtual(dnn_graph *g, int dtype, dnn_dims dims) {
  return dnn_virtual_view(g, dtype, dims, dnn_packed(dims));
}

void *dnn_scalar(dnn_graph *g, int64_t id, int dtype) {
  dnn_dims one = {{1, 1, 1, 1}};
  return tensor(g, id, dtype, one, one, DNN_ATTR_TENSOR_IS_BY_VALUE);
}

/* ---- operations ---- */
static void add_op(dnn_graph *g, void *op, const char *what) {
  dnn_finish(g, op, what);
  check(g->n_ops < DNN_MOST_OPS);
  if (!g->status) g->ops[g->n_ops++] = op;
}

void dnn_matmul(dnn_graph *g, void *a, void *b, void *c, dnn_lengths cut) {
  int f32 = DNN_DATA_FLOAT;
  void *how = dnn_make(g, DNN_BACKEND_MATMUL_DESCRIPTOR);
  dnn_set(g, how, DNN_ATTR_MATMUL_COMP_TYPE, DNN_TYPE_DATA_TYPE, 1, &f32);
  dnn_finish(g, how, "a product");
  void *op = dnn_make(g, DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_ADESC, a);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_BDESC, b);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_CDESC, c);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_DESC, how);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, cut.m);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, cut.n);
  link_to(g, op, DNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, cut.k);
  add_op(g, op, "a product");
}

static void *pointwise_how(dnn_graph *g, int mode, int precision, const int64_t *axis) {
  void *how = dnn_make(g, DNN_BACKEND_POINTWISE_DESCRIPTOR);
  dnn_set(g, how, DNN_ATTR_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, 1, &mode);
  dnn_set(g, how, DNN_ATTR_POINTWISE_MATH_PREC, DNN_TYPE_DATA_TYPE, 1, &precision);
  if (axis) dnn_set(g, how, DNN_ATTR_POINTWISE_AXIS, DNN_TYPE_INT64, 1, axis);
  dnn_finish(g, how, "a pointwise operation");
  return how;
}

static void pointwise(dnn_graph *g, void *how, void *x, void *b, void *t, void *y) {
  void *op = dnn_make(g, DNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  link_to(g, op, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  link_to(g, op, DNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  link_to(g, op, DNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  link_to(g, op, DNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  link_to(g, op, DNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_op(g, op, "a pointwise operation");
}

void dnn_pointwise(dnn_graph *g, int mode, int precision, void *x, void *b, void *y) {
  pointwise(g, pointwise_how(g, mode, precision, NULL), x, b, NULL, y);
}

void dnn_index(dnn_graph *g, int precision, int64_t axis, void *x, void *y) {
  pointwise(g, pointwise_how(g, DNN_POINTWISE_GEN_INDEX, precision, &axis), x, NULL, NULL, y);
}

void dnn_select(dnn_graph *g, void *x, void *b, void *t, void *y) {
  pointwise(g, pointwise_how(g, DNN_POINTWISE_BINARY_SELECT, DNN_DATA_FLOAT, NULL), x, b, t, y);
}

void dnn_reduce(dnn_graph *g, int operation, void *x, void *y) {
  int f32 = DNN_DATA_FLOAT;
  void *how = dnn_make(g, DNN_BACKEND_REDUCTION_DESCRIPTOR);
  dnn_set(g, how, DNN_ATTR_REDUCTION_COMP_TYPE, DNN_TYPE_DATA_TYPE, 1, &f32);
  dnn_set(g, how, DNN_ATTR_REDUCTION_OPERATOR, DNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation);
  dnn_finish(g, how, "a reduction");
  void *op = dnn_make(g, DNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  link_to(g, op, DNN_ATTR_OPERATION_REDUCTION_DESC, how);
  link_to(g, op, DNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  link_to(g, op, DNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  add_op(g, op, "a reduction");
}

void dnn_reshape(dnn_graph *g, void *x, void *y) {
  void *op = dnn_make(g, DNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  link_to(g, op, DNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  link_to(g, op, DNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_op(g, op, "a reshape");
}
