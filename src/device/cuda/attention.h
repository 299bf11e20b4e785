/* Attention through cuDNN: its plans, chosen once and kept, and runs.
 *
 * A plan of the library serves one shape (attention_shape.h). It is made when the first program with that
 * shape is loaded. If it was made before for this GPU and this version of the library, it is read from
 * disk. Otherwise the library names configurations, those of its first engine are timed, and the fastest is
 * kept, in memory and on disk. So a choice is made once, and is the same in every later process.
 *
 * A run passes addresses and calls the library, on a stream or in a capture of one. The library writes to
 * its workspace while it runs: launches that may run at the same time need scratch memory each.
 *
 * A handle of the library is used by one thread at a time. A GPU has two handles: one for making plans, under
 * the device's lock, and one for runs, of which the device has one at a time. */
#ifndef WEIR_DEVICE_CUDA_ATTENTION_H
#define WEIR_DEVICE_CUDA_ATTENTION_H

#include "device/cuda/attention_shape.h"
#include "device/cuda/cudnn.h"
#include "device/cuda/kernel_disk.h"
#include "device/cuda/vendor.h"

/* ---- graphs (attention_graph.c) ---- */
/* Identifiers of the tensors of a graph: a side's number + 1, then tensors that are not the caller's. */
enum {
  ATT_ID_SIDES = 1,
  ATT_ID_ROW_SUMS = ATT_ID_SIDES + N_ATT_SIDES, /* backward: sums of dO * O, f32 scratch */
  ATT_ID_SUM_DQ,                                /* backward: dQ in f32, scratch */
  ATT_ID_LENGTHS_Q,                             /* i32 per batch: positions that count */
  ATT_ID_LENGTHS_K,
  ATT_ID_SCALE, /* numbers */
  ATT_ID_NEVER, /* the value of a masked score */
  ATT_ID_ONE,
  ATT_ID_N_KEYS, /* bottom right: i32 */
  ATT_ID_N_QUERIES,
  ATT_ID_END
};

/* Does the graph mask by lengths? Up to version 9.15, gradients need that if the keys are no multiple of 128. */
bool cuda_att_has_lengths(const cuda_att_shape *s, size_t version);
/* Builds the operations of attention, or of its gradient. */
void cuda_att_graph(dnn_graph *g, const cuda_att_shape *s, bool ordered);

/* ---- plans (attention_plan.c) ---- */
typedef struct cuda_attention cuda_attention;
struct cuda_attention {
  cuda_attention *next;
  cuda_att_shape shape;
  bool works;  /* false: the library refused */
  dnn_graph g; /* the graph that the plan was made of; must outlive it */
  void *plan;
  size_t workspace_bytes;
  CUdeviceptr lengths; /* of all queries, then of all keys; 0: none */
  uint32_t n_configs;  /* how many configurations the first engine has */
  bool from_disk;
  bool ordered; /* dq is a product of gradients of scores that are in memory: a fixed order */
};

/* What the plans of one GPU need. */
typedef struct cuda_att_library {
  const cuda_dnn *dnn; /* NULL: none, `why` */
  const char *why;
  void *load_handle, *run_handle;
  cuda_disk disk;
  char target[64]; /* "sm_90-132-cudnn-91900" */
  cuda_attention *list;
} cuda_att_library;

/* Plans of one shape under construction, the library's first choice first. */
enum { ATT_MOST_PLANS = 3 };
typedef struct cuda_att_plans {
  uint32_t n;
  void *plans[ATT_MOST_PLANS];
} cuda_att_plans;
/* Makes a->g and up to `most` plans of the first engine; if there is none, a->g.why says why. `description`
 * describes a device (DEVICEPROP) that need not be present, instead of a handle. */
void cuda_att_build(cuda_attention *a, void *handle, void *description, uint32_t most,
                    cuda_att_plans *result);
/* A plan from what cuda_att_json() gave; NULL: it does not fit this library or device. */
void *cuda_att_from_json(const cuda_dnn *dnn, void *handle, const void *json, size_t size_bytes);
/* The plan as text, allocated from `memory`; NULL: the library has none, or there is no memory. */
char *cuda_att_json(const cuda_dnn *dnn, void *plan, const allocator *memory, size_t *size_bytes);
size_t cuda_att_workspace(const cuda_dnn *dnn, void *plan);
/* The number of the fastest plan. Plans are timed on memory that is allocated for it; if there is none, it is the
 * first plan (attention_time.c). */
uint32_t cuda_att_fastest(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a,
                          const cuda_att_plans *plans);
/* Runs a->plan once, so that what the library loads on first use is not loaded within a capture. False: it
 * cannot run; true also if there is no memory to try. */
bool cuda_att_runs(const cuda_att_library *x, const cuda_vendor *cu, cuda_attention *a);

/* ---- of a GPU, whose context is current (attention.c) ---- */
/* Opens the library, if there is one, on first use. */
void cuda_att_open(cuda_att_library *x, int major, int minor, int processors);
void cuda_att_close(cuda_att_library *x, const cuda_vendor *cu, const allocator *memory);

/* The plan for a shape, new or from the list; NULL in *result: the library has none. */
NODISCARD status cuda_attention_get(cuda_att_library *x, const cuda_vendor *cu,
                                    const cuda_att_shape *shape, const allocator *memory,
                                    const cuda_attention **result);
/* If WEIR_CUDNN_EXPLAIN is set, writes to standard error what computes the shape. `a` NULL: a kernel, for the
 * reason `why`; if that is NULL too, the library refused. */
void cuda_att_explain(const cuda_att_shape *shape, const cuda_attention *a, const char *why);
/* Bytes of scratch that a run needs, aligned to 256. */
size_t cuda_attention_scratch(const cuda_attention *a);

typedef struct cuda_att_run {
  const CUdeviceptr *sides; /* N_ATT_SIDES of them */
  float scale;
  CUdeviceptr scratch;
  CUstream stream;
} cuda_att_run;
/* Turns a failed run's status of the library into a status. */
NODISCARD status cuda_att_failure(int of_library);
/* Returns a status of the library. */
int cuda_attention_run(const cuda_dnn *dnn, void *handle, const cuda_attention *a,
                       const cuda_att_run *run);

#endif
