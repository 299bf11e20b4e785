/* Programs on several devices: the ranks of this process, their endpoints, and how whole tensors become
 * the pieces that devices hold and pieces become whole tensors again. */
#ifndef WEIR_API_RANKS_H
#define WEIR_API_RANKS_H

#include <stdatomic.h>

#include "ir/array.h"
#include "ir/bind.h"
#include "runtime/comm.h"
#include "runtime/device.h"
#include "runtime/piece.h"

typedef struct api_ranks {
  uint32_t n;     /* in this process */
  uint32_t first; /* the world rank of the first of them */
  uint32_t world; /* all of them */
  rt_comm **endpoints;
  const rt_comm_ops *ops; /* of the endpoints */
  rt_group *group;        /* that the caller has given, retained; NULL: none */
  rt_device *device;
  uint32_t n_endpoints;
  uint32_t *everybody; /* 0 … world - 1 */
  int64_t *answers;    /* one per rank, for agreements */
  int64_t timeout_ns;
  /* Calls under way, and those that wait for other processes or have left the rest to the device. With some
   * of the first and none of the second, this process does something that others may be waiting for. */
  _Atomic uint32_t busy, waiting;
} api_ranks;

/* Of this process under a launcher, of MPI or torchrun; else -1. */
int64_t api_launch_rank(void);

/* How the ranks of a program are spread over processes. */
typedef struct api_place {
  const rt_comm_ops *ops;
  rt_group *group; /* that the caller has given, or NULL */
  uint32_t world;  /* ranks */
  uint32_t local;  /* of this rank among those of its machine, or the GPU that it is on */
  bool is_spread;  /* one in each process; else all are in this one */
  bool needs_endpoints;
} api_place;
/* `comm` is a backend's name or "auto"; `devices` 0: as many as the program needs; `host`
 * NULL: as many as there are processes. */
NODISCARD status api_place_find(const ir_func *host, const char *comm, rt_group *group,
                                uint32_t devices, api_place *result);
/* Opens the endpoints of the ranks that this process runs. A program on one device needs none. */
NODISCARD status api_ranks_open(api_ranks *r, const api_place *place, int64_t timeout_ns,
                                rt_device *device, const allocator *memory);
void api_ranks_close(api_ranks *r, const allocator *memory); /* accepts a zeroed one */
/* After a failed run: a failed world whose ranks are all in this process is closed, and api_ranks_need() opens
 * another, so that the program can run again. */
void api_ranks_renew(api_ranks *r);
NODISCARD status api_ranks_need(api_ranks *r, const allocator *memory);
/* Are there several, here or elsewhere? */
static inline bool api_ranks_are_many(const api_ranks *r) { return r->world > 1; }

/* Do all processes run the same? `program` is a hash of everything that must be. */
NODISCARD status api_ranks_agree(const api_ranks *r, uint64_t program);
/* What rank 0 chose. */
NODISCARD status api_ranks_decide(const api_ranks *r, uint8_t *choice);
/* Whatever it is. */
NODISCARD status api_ranks_tell(const api_ranks *r, void *data, int64_t bytes);
/* Are there ranks in other processes? */
bool api_ranks_are_spread(const api_ranks *r);
/* Measures the link between processes, which all call it. */
NODISCARD status api_ranks_measure(const api_ranks *r, const allocator *memory, double *latency_ns,
                                   double *bytes_per_ns);

/* A message between rank 0 and `peer`: of this rank to 0, or at rank 0 from it. */
NODISCARD status api_ranks_transfer(const api_ranks *r, bool sends, uint32_t peer, void *data,
                                    int64_t bytes);
/* At rank 0: `view` becomes what `from` sends, dense. */
NODISCARD status api_ranks_receive(const api_ranks *r, uint32_t from, const allocator *memory,
                                   const ir_array *view);
/* The same of what `from` holds of a tensor, into the whole of it. */
NODISCARD status api_piece_receive(const api_ranks *r, uint32_t from, const allocator *memory,
                                   const rt_piece *piece, const ir_array *whole);
/* `bytes` from every process, in the order of ranks. */
NODISCARD status api_ranks_exchange(const api_ranks *r, const void *mine, void *all, int64_t bytes);

/* Arrays of a program's inputs or outputs. */
typedef struct api_arrays {
  const ir_array *whole;  /* by tensor; of those given as shards only the shape */
  const ir_array *shards; /* by rank of this process, then by tensor; without a dtype: none */
  const bool *sharded;    /* by tensor; NULL: all are whole */
} api_arrays;

static inline bool api_is_sharded(const api_arrays *a, uint32_t tensor) {
  return a->sharded && a->sharded[tensor];
}
/* Is this what `device` holds of the tensor? `side` and `name` are for the message. */
NODISCARD status api_shard_check(const char *side, const char *name, const rt_piece *piece,
                                 int64_t device, const ir_array *shard);
/* Depends on dtype, extents and values only. */
uint64_t api_array_hash(const ir_array *a);

/* Where the pieces of a plan's inputs and outputs lie; made once per plan. */
typedef struct api_pieces api_pieces;
NODISCARD status api_pieces_make(const api_ranks *r, const ir_func *host, const ir_env *env,
                                 const allocator *memory, api_pieces **result);
void api_pieces_destroy(api_pieces *p); /* accepts NULL */
/* Cuts the inputs and gives the addresses for the device, rank by rank. Dense shards are used where they
 * lie. */
NODISCARD status api_pieces_cut(api_pieces *p, const api_arrays *inputs, const api_arrays *outputs,
                                void ***in, void ***out);
/* Puts the outputs together, on rank 0's process, or into the shards; CHECK_FAILED if devices that should
 * hold the same part of a whole output do not. */
NODISCARD status api_pieces_assemble(api_pieces *p, const ir_env *env, const api_arrays *outputs);

#endif
