/* Inside the stand-in for cuDNN: a graph as one flat block, which plans copy, write as text and run. */
#ifndef WEIR_TESTS_STANDIN_CUDNN_H
#define WEIR_TESTS_STANDIN_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/cudnn.h"

enum { MOST_TENSORS = 96, MOST_NODES = 48, NONE = -1 };

typedef struct tensor {
  int64_t id, dims[4], strides[4];
  int dtype;
  bool is_virtual, by_value;
} tensor;

typedef enum node_kind { MATMUL, POINTWISE, REDUCTION, RESHAPE } node_kind;
typedef struct node {
  node_kind kind;
  int mode; /* of a pointwise operation or a reduction */
  int64_t axis;
  int x, b, t, y;          /* tensors; of a product x · b = y */
  int cut_m, cut_n, cut_k; /* lengths; NONE: whole */
} node;

typedef struct program {
  uint32_t n_tensors, n_nodes;
  tensor tensors[MOST_TENSORS];
  node nodes[MOST_NODES];
  int64_t engine, config;
  bool is_wrong; /* a stride that the library computes nonsense with, and says nothing */
} program;

/* NULL: the library has kernels for it; else why not. Ends the process where the library would. */
const char *program_refusal(const program *p);
bool program_is_wrong(const program *p);
/* Elements from the first to the last. */
int64_t tensor_reach(const tensor *t);
size_t tensor_size(const tensor *t); /* of an element */

/* Evaluates all nodes; at[i]: the memory of tensor i, of the host for numbers, NULL for virtual ones.
 * scramble: writes nonsense instead. */
void program_run(const program *p, void *const *at, bool scramble);

#endif
