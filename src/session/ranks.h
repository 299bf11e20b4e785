/* Programs on several devices: the ranks of this process, their endpoints, and what processes agree on and
 * send to each other. */
#ifndef WEIR_SESSION_RANKS_H
#define WEIR_SESSION_RANKS_H

#include <stdatomic.h>

#include "ir/array.h"
#include "ir/bind.h"
#include "runtime/comm.h"
#include "runtime/device.h"

typedef struct session_ranks {
  uint32_t n;     /* in this process */
  uint32_t first; /* the world rank of the first of them */
  uint32_t world; /* all of them */
  rt_comm **endpoints;
  const rt_comm_ops *ops; /* of the endpoints */
  rt_group *group;        /* the caller's world, retained; NULL: none */
  rt_device *device;
  uint32_t n_endpoints;
  uint32_t *everybody; /* 0 … world - 1 */
  int64_t *answers;    /* one per rank, for agreements */
  int64_t timeout_ns;
  /* How many calls are under way, and how many of them wait for other processes or for the device. If there are calls
   * and none of them waits, this process is computing: others that wait for it should not give up. */
  _Atomic uint32_t busy, waiting;
} session_ranks;

/* The rank of this process, if MPI or torchrun started it; else -1. */
int64_t session_launch_rank(void);

/* How the ranks of a program are spread over processes. */
typedef struct session_place {
  const rt_comm_ops *ops;
  rt_group *group; /* the caller's world, or NULL */
  uint32_t world;  /* ranks */
  uint32_t local;  /* of this rank among those of its machine, or the GPU that it is on */
  bool is_spread;  /* one in each process; else all are in this one */
  bool needs_endpoints;
} session_place;
/* `comm` is a backend's name or "auto"; `devices` 0: as many as the program needs; `host`
 * NULL: as many as there are processes. */
NODISCARD status session_place_find(const ir_func *host, const char *comm, rt_group *group,
                                    uint32_t devices, session_place *result);
/* Opens the endpoints of the ranks that this process runs. A program on one device needs none. */
NODISCARD status session_ranks_open(session_ranks *r, const session_place *place,
                                    int64_t timeout_ns, rt_device *device, const allocator *memory);
void session_ranks_close(session_ranks *r, const allocator *memory); /* accepts a zeroed one */
/* After a failed run: a failed world whose ranks are all in this process is closed, and
 * session_ranks_need() opens another, so that the program can run again. */
void session_ranks_renew(session_ranks *r);
NODISCARD status session_ranks_need(session_ranks *r, const allocator *memory);
/* Are there several ranks, here or in other processes? */
static inline bool session_ranks_are_many(const session_ranks *r) { return r->world > 1; }

/* Checks that all processes run the same program: `program` is a hash of everything that must be equal. */
NODISCARD status session_ranks_agree(const session_ranks *r, uint64_t program);
/* *choice becomes what it is at rank 0. */
NODISCARD status session_ranks_decide(const session_ranks *r, uint8_t *choice);
/* `data` becomes what it is at rank 0. */
NODISCARD status session_ranks_tell(const session_ranks *r, void *data, int64_t bytes);
/* Are there ranks in other processes? */
bool session_ranks_are_spread(const session_ranks *r);
/* Each rank sends `bytes` to the next one and receives as many from the one before. nap_ns > 0: the caller
 * sleeps and polls at that interval; 0: it moves data itself meanwhile. */
NODISCARD status session_ranks_pass_on(const session_ranks *r, void *in, void *out, int64_t bytes,
                                       int64_t nap_ns);
/* These wait in the same way: `out` becomes what all ranks pass as `in`, `bytes` each; or the sums of the `count`
 * floats that they pass. */
NODISCARD status session_ranks_share(const session_ranks *r, const void *in, void *out,
                                     int64_t bytes, int64_t nap_ns);
NODISCARD status session_ranks_add(const session_ranks *r, const float *in, float *out,
                                   int64_t count, int64_t nap_ns);

/* A message between this rank and `peer`, one of which is rank 0; `sends`: from this rank. */
NODISCARD status session_ranks_transfer(const session_ranks *r, bool sends, uint32_t peer,
                                        void *data, int64_t bytes);
/* At rank 0: receives an array from rank `from`, sent dense, and writes it into `view`. */
NODISCARD status session_ranks_receive(const session_ranks *r, uint32_t from,
                                       const allocator *memory, const ir_array *view);
/* `all` becomes what all processes pass as `mine`, `bytes` each, in the order of ranks. */
NODISCARD status session_ranks_exchange(const session_ranks *r, const void *mine, void *all,
                                        int64_t bytes);

/* Arrays of a program's inputs or outputs. */
typedef struct session_arrays {
  const ir_array *whole;  /* by tensor; if it is given as shards, only its shape counts */
  const ir_array *shards; /* by rank of this process, then by tensor; no dtype: no shard */
  const bool *sharded;    /* by tensor; NULL: all are whole */
} session_arrays;

static inline bool session_is_sharded(const session_arrays *a, uint32_t tensor) {
  return a->sharded && a->sharded[tensor];
}

#endif
