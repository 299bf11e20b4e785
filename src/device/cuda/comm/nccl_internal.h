/* What the files about NCCL share: the library and the communicators of a device (nccl.c), calls
 * (nccl_calls.c), ranks that are processes (nccl_ranks.c). */
#ifndef WEIR_DEVICE_CUDA_COMM_NCCL_INTERNAL_H
#define WEIR_DEVICE_CUDA_COMM_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>

#include "device/cuda/device.h"

typedef struct cuda_nccl_library {
#define SYMBOL(name) __typeof__(&name) name;
#include "device/cuda/comm/nccl.def"
#undef SYMBOL
} cuda_nccl_library;

/* The communicators of a circle. */
struct cuda_nccl_group {
  cuda_nccl_group *next;
  bool is_pair;
  bool is_made;  /* the same on all ranks */
  bool is_apart; /* its members are processes */
  int most_ctas; /* blocks of a GPU that a call may take */
  uint32_t n;
  ncclComm_t *comms; /* by member; NULL: not made, aborted, or of another process */
  uint32_t devices[];
};

struct cuda_nccl {
  const allocator *memory;
  cuda_nccl_library lib;
  int (*shares)(void); /* of a stand-in: may two members be on one GPU? NULL: it is no stand-in */
  pthread_mutex_t lock;
  cuda_nccl_group *groups;
  uint64_t generation;
  bool is_open; /* a group of calls has begun */
  bool is_late; /* other members did not come when a communicator was destroyed */
};

/* ---- communicators (nccl.c); the lock is held ---- */
static inline bool cuda_nccl_is_to_itself(const rt_circle *c) {
  return c->is_pair && c->devices[0] == c->devices[1];
}
/* Finds or makes the group of a circle; NULL: no memory. */
cuda_nccl_group *cuda_nccl_group_of(cuda_nccl *n, const rt_circle *c);
/* May two members of a communicator be on one GPU? */
bool cuda_nccl_may_share(const cuda_nccl *n);
/* Destroys the communicators of a group, or aborts them. */
void cuda_nccl_end_group(cuda_nccl *n, cuda_nccl_group *g, bool abort);
ncclConfig_t cuda_nccl_config(const cuda_nccl_group *g);
/* A call of NCCL is a kernel that waits inside for the other members. If the kernels of several circles did not
 * all fit on a GPU, each rank could begin with another circle, and none would end. So every circle gets a share
 * of the GPU's blocks: the number of multiprocessors of the smallest GPU, divided by the most circles that are
 * on one GPU at once. Ranks of one process can share a GPU (tests; NCCL from 2.30 on). */
int cuda_nccl_blocks(const cuda_loaded *l);            /* of the GPUs here */
uint32_t cuda_nccl_most_circles(const cuda_loaded *l); /* on any GPU */
int cuda_nccl_share_of(int blocks, uint32_t circles);
/* Must the group be made? Also if it was made with more than `most_ctas` blocks. */
bool cuda_nccl_needs(cuda_nccl *n, cuda_nccl_group *g, int most_ctas, bool is_apart);
/* "team (0 1)" */
void cuda_nccl_circle_text(const rt_circle *c, char *text, size_t size_bytes);
NODISCARD status cuda_nccl_no_communicator(const cuda_nccl *n, const rt_circle *c, ncclResult_t r);
NODISCARD status cuda_nccl_shared_gpu(const cuda_loaded *l, uint32_t a, uint32_t b);

/* ---- ranks that are processes (nccl_ranks.c) ---- */
/* Makes the groups of a plan that are not made: part of loading, on all ranks. The lock is held. */
NODISCARD status cuda_nccl_join(cuda_loaded *l, cuda_nccl *n);
/* Waits until NCCL's threads on the host have done what was begun on a communicator, for which they may have to
 * wait for the other members. IN_PROGRESS: the world has failed, or no rank has moved for the timeout. */
ncclResult_t cuda_nccl_await(const cuda_loaded *l, ncclComm_t comm, ncclResult_t begun);
/* Destroys a communicator, but does not wait long for the other members. */
void cuda_nccl_finalize(cuda_nccl *n, ncclComm_t comm);

#endif
