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
  bool is_made;  /* on all ranks alike */
  bool is_apart; /* its members are processes */
  int most_ctas; /* blocks of a GPU that a call may take */
  uint32_t n;
  ncclComm_t *comms; /* by member; NULL: not made, aborted, or of another process */
  uint32_t devices[];
};

struct cuda_nccl {
  const allocator *memory;
  cuda_nccl_library lib;
  int (*shares)(void); /* of a stand-in: whether two members may be on one GPU; NULL: it is none */
  pthread_mutex_t lock;
  cuda_nccl_group *groups;
  uint64_t generation;
  bool is_open; /* a group of calls has begun */
  bool is_late; /* the others did not come when communicators were given back */
};

/* ---- communicators (nccl.c); the lock is held ---- */
static inline bool cuda_nccl_is_to_itself(const rt_circle *c) {
  return c->is_pair && c->devices[0] == c->devices[1];
}
/* The group of a circle, known before or new; NULL: no memory. */
cuda_nccl_group *cuda_nccl_group_of(cuda_nccl *n, const rt_circle *c);
/* Whether two members of a communicator may be on one GPU. */
bool cuda_nccl_may_share(const cuda_nccl *n);
/* Gives the communicators of a group back, or aborts them. */
void cuda_nccl_end_group(cuda_nccl *n, cuda_nccl_group *g, bool abort);
ncclConfig_t cuda_nccl_config(const cuda_nccl_group *g);
/* A call of NCCL is a kernel that waits inside for the other members. If those of several circles did not
 * all fit on a GPU, each rank could begin with another one, and none would end. So every circle gets a
 * share of the GPU's blocks: as many as the smallest GPU has multiprocessors, over the most circles that are
 * on one GPU at once. Ranks of one process can share a GPU (tests; NCCL from 2.30 on). */
int cuda_nccl_blocks(const cuda_loaded *l);            /* of the GPUs here */
uint32_t cuda_nccl_most_circles(const cuda_loaded *l); /* on any GPU */
int cuda_nccl_share_of(int blocks, uint32_t circles);
/* Whether the group must be made; also if it was made with more blocks than that. */
bool cuda_nccl_needs(cuda_nccl *n, cuda_nccl_group *g, int most_ctas, bool is_apart);
/* "team (0 1)" */
void cuda_nccl_circle_text(const rt_circle *c, char *text, size_t size_bytes);
NODISCARD status cuda_nccl_no_communicator(const cuda_nccl *n, const rt_circle *c, ncclResult_t r);
NODISCARD status cuda_nccl_shared_gpu(const cuda_loaded *l, uint32_t a, uint32_t b);

/* ---- ranks that are processes (nccl_ranks.c) ---- */
/* Makes the groups of a plan that are not made: part of loading, on all ranks. The lock is held. */
NODISCARD status cuda_nccl_join(cuda_loaded *l, cuda_nccl *n);
/* Waits until what was begun on a communicator is done by NCCL's part of the host, which may have to wait
 * for the other members. IN_PROGRESS: the world has failed, or no rank has moved for the timeout. */
ncclResult_t cuda_nccl_await(const cuda_loaded *l, ncclComm_t comm, ncclResult_t begun);
/* Gives a communicator back, but does not wait long for the others. */
void cuda_nccl_finalize(cuda_nccl *n, ncclComm_t comm);

#endif
