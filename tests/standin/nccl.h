/* Inside the stand-in for NCCL (nccl.c): communicators, calls, and how they are carried out within a process
 * (nccl_moves.c) and between processes (nccl_far.c). */
#ifndef WEIR_TESTS_STANDIN_NCCL_H
#define WEIR_TESTS_STANDIN_NCCL_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h"
#include "runtime/comm.h"
#include "standin/standin.h"

/* What is used of the driver, whichever it is. */
#define DRIVER(F)                                                                                  \
  F(cuCtxGetCurrent)                                                                               \
  F(cuCtxGetDevice)                                                                                \
  F(cuCtxSetCurrent)                                                                               \
  F(cuEventCreate)                                                                                 \
  F(cuEventDestroy)                                                                                \
  F(cuEventRecord)                                                                                 \
  F(cuStreamWaitEvent)                                                                             \
  F(cuMemHostAlloc)                                                                                \
  F(cuMemFreeHost)                                                                                 \
  F(cuMemcpyDtoHAsync)                                                                             \
  F(cuMemcpyHtoDAsync)                                                                             \
  F(cuMemcpyDtoDAsync)                                                                             \
  F(cuMemcpyPeerAsync)                                                                             \
  F(cuLaunchHostFunc)                                                                              \
  F(cuStreamWaitValue32)

typedef struct nccl_driver {
#define F(name) __typeof__(&name) name;
  DRIVER(F)
#undef F
  /* Only of the stand-in's; else NULL. */
  __typeof__(&standin_submit) standin_submit;
  __typeof__(&standin_misuse) standin_misuse;
} nccl_driver;
extern nccl_driver cu;
void load_driver(void); /* once is enough */

/* Keeps the words for ncclGetLastError(), and returns the result. */
ncclResult_t refuse(ncclResult_t r, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define TRY_CU(call)                                                                               \
  do {                                                                                             \
    CUresult cu_result_ = (call);                                                                  \
    if (cu_result_ != CUDA_SUCCESS)                                                                \
      return refuse(ncclUnhandledCudaError, "%s: error %d", #call, (int)cu_result_);               \
  } while (0)

enum { CHUNK_BYTES = 256 << 10, MOST_RANKS = 64 };

typedef struct far far; /* a communicator between processes, as one of them has it */

/* All ranks of one unique id. */
typedef struct world {
  struct world *next;
  ncclUniqueId id;
  int n, joined, left;
  struct ncclComm *members[MOST_RANKS];
  char *staging;  /* pinned: a chunk of every member, then the result */
  uint32_t *stop; /* pinned: 1 lets go of streams that wait for ever */
  bool is_aborted;
  void *folds; /* list of what was folded, for graphs that do it again */
} world;

struct ncclComm {
  world *w; /* of ranks in this process; NULL: */
  far *far; /* of ranks in different ones */
  int rank, n, gpu;
  CUcontext context;
  unsigned long ctas; /* blocks that it may take */
  ncclResult_t error;
  bool fails_later; /* between processes: not at once, but when it is asked once more */
  unsigned asked;
};

typedef enum call_kind {
  BROADCAST,
  REDUCE,
  ALLREDUCE,
  REDUCE_SCATTER,
  ALLGATHER,
  SEND,
  RECV
} call_kind;

typedef struct call {
  call_kind kind;
  ncclComm_t comm;
  const char *in;
  char *out;
  size_t count, size;
  ncclDataType_t dtype;
  ncclRedOp_t op;
  int peer; /* or root */
  CUstream stream;
  bool is_done;
} call;

/* All calls of it, in the order of ranks; of a message its two ends. */
typedef struct party {
  const call *of[MOST_RANKS];
  int n;
  CUevent came[MOST_RANKS], read[MOST_RANKS];
} party;

/* Puts it on the streams of its members. */
ncclResult_t carry_out(party *p);
/* It never ends, unless its communicators are aborted. */
ncclResult_t hold(const party *p);

/* What a call reduces, in words of ours; false: it does not, or not so. */
bool nccl_words(const call *c, ir_dtype *dtype, ir_combine *op);

/* ---- between processes ---- */
ncclResult_t far_make_id(ncclUniqueId *id);
void far_drop_id(const ncclUniqueId *id); /* it is used within this process */
ncclResult_t far_join(const ncclUniqueId *id, int n, int rank, far **result);
/* A group of calls. IN_PROGRESS, as long as far_state() says so. `holds`: it never ends. */
ncclResult_t far_begin(far *f, const call *calls, size_t n, bool holds);
ncclResult_t far_state(far *f);
ncclResult_t far_leave(far *f, bool aborts);

#endif
