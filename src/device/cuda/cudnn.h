/* cuDNN, loaded at run time: the library, and graphs of its operations under construction.
 *
 * The graph interface is a dozen functions on descriptors, which are created, given attributes, and
 * finalized. Its functions are in cudnn.def, its constants in cudnn_values.def; the ABI of version 9 is
 * fixed, so no header of the library is needed to build.
 *
 * A graph under construction keeps the first failure; later calls do nothing. */
#ifndef WEIR_DEVICE_CUDA_CUDNN_H
#define WEIR_DEVICE_CUDA_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
#define VALUE(name, value) DNN_##name = (value),
#include "device/cuda/cudnn_values.def"
#undef VALUE
};

typedef struct cuda_dnn {
#define FUNCTION(result, name, parameters) result(*name) parameters;
#include "device/cuda/cudnn.def"
#undef FUNCTION
  size_t version; /* 91900: 9.19.0 */
} cuda_dnn;

/* The library, loaded by the first call; NULL: it is missing or must not be used, and *why says so.
 * WEIR_CUDNN_LIBRARY names another one; "none": do not use it. */
const cuda_dnn *cuda_dnn_load(const char **why);

/* ---- descriptors ---- */
typedef struct dnn_dims {
  int64_t at[4];
} dnn_dims;
dnn_dims dnn_packed(dnn_dims dims); /* strides in row-major order */
dnn_dims dnn_swapped(dnn_dims x);   /* the last two exchanged */

enum { DNN_MOST_DESCRIPTORS = 192, DNN_MOST_OPS = 48 };
typedef struct dnn_graph {
  const cuda_dnn *dnn;
  void *all[DNN_MOST_DESCRIPTORS];
  void *ops[DNN_MOST_OPS];
  uint32_t n_all, n_ops;
  int64_t next_id; /* for the next virtual tensor */
  int status;
  char why[512]; /* of the first failure */
} dnn_graph;

void dnn_graph_init(dnn_graph *g, const cuda_dnn *dnn);
void dnn_graph_destroy(dnn_graph *g); /* all its descriptors */
void dnn_fail(dnn_graph *g, int status, const char *what);

void *dnn_make(dnn_graph *g, int kind);
void dnn_set(dnn_graph *g, void *descriptor, int name, int type, int64_t count, const void *values);
void dnn_finish(dnn_graph *g, void *descriptor, const char *what);

/* ---- tensors, all of rank 4 ---- */
void *dnn_tensor(dnn_graph *g, int64_t id, int dtype, dnn_dims dims, dnn_dims strides);
void *dnn_virtual(dnn_graph *g, int dtype, dnn_dims dims);
void *dnn_virtual_view(dnn_graph *g, int dtype, dnn_dims dims, dnn_dims strides);
/* One number, which in a run is in memory of the host. */
void *dnn_scalar(dnn_graph *g, int64_t id, int dtype);

/* ---- operations ---- */
typedef struct dnn_lengths {
  void *m, *n, *k; /* tensors of lengths that limit the product; NULL: not limited */
} dnn_lengths;
void dnn_matmul(dnn_graph *g, void *a, void *b, void *c, dnn_lengths cut);
/* y = mode(x, b), computed in `precision`; b may be NULL. */
void dnn_pointwise(dnn_graph *g, int mode, int precision, void *x, void *b, void *y);
void dnn_index(dnn_graph *g, int precision, int64_t axis, void *x, void *y);
/* y = t ? x : b */
void dnn_select(dnn_graph *g, void *x, void *b, void *t, void *y);
void dnn_reduce(dnn_graph *g, int operation, void *x, void *y);
void dnn_reshape(dnn_graph *g, void *x, void *y);

#endif
