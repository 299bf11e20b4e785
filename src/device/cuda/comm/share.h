/* Ranks that are processes of one machine: what they share.
 *
 * A plan that communicates between processes is loaded by all of them at the same time, each with the plans
 * of all ranks. Loading exchanges over the endpoint
 *
 *   places          the same machine? which GPU? can the others open memory of this GPU?
 *   memory          each rank's block, as a handle that the others open (CUDA IPC)
 *   the region      memory of the host that all map, and whose addresses streams of GPUs can use
 *
 * From then on only failures go through the endpoint. The region has
 *
 *   flags      by event that another rank waits for: the run that recorded it last (split.h)
 *   states     by stream: 0 if it runs, the number + 1 of the event that it waits for, or CUDA_ENDED
 *   ranks      which run each has done, and whether it has closed the others' memory
 *   slots      pinned memory for sending, if ranks communicate by way of the host
 *
 * Streams write flags and wait for them. The host does not block before finish(), where it waits until
 * all ranks have done the run: only then may memory be used again.
 *
 * A thread watches while a run is under way. It calls no function of CUDA: it reads states and tells the
 * endpoint whether this rank is busy. When the world has failed, or nothing has moved for the timeout, it
 * sets all flags, so that every stream in every process goes on to its end. */
#ifndef WEIR_DEVICE_CUDA_COMM_SHARE_H
#define WEIR_DEVICE_CUDA_COMM_SHARE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda/vendor.h"
#include "device/issue/split.h"
#include "runtime/device.h"
#include "runtime/fault.h"

struct cuda_device;
struct cuda_loaded;

#define CUDA_ENDED UINT64_MAX
#define CUDA_RELEASED (UINT64_C(1) << 62) /* the value of a flag that ends all waits for it */

/* ---- what a device knows of the world ---- */
/* An allocation of another process, opened here. It is identified by its process, its address, and the number that the
 * driver gave it: memory that was freed and allocated again is another allocation. */
typedef struct cuda_mapping {
  struct cuda_mapping *next;
  int pid;
  CUdeviceptr base;
  uint64_t id;
  CUdeviceptr address; /* here */
  uint32_t gpu;        /* whose context opened it */
  uint32_t uses;
} cuda_mapping;

typedef struct cuda_world {
  rt_comm *endpoint; /* for load_spread(); NULL: none, or several ranks are in this process */
  int64_t timeout_ns;
  bool met;          /* what follows is known */
  bool through_host; /* some rank cannot open the memory of another, or shall not */
  bool one_gpu;      /* all ranks are on one GPU */
  cuda_mapping *mappings;
  /* What the rank is doing, for rt_pulse. */
  pthread_mutex_t lock;
  bool is_busy;
  uint64_t moves;
  const char *where; /* "file:12": the communication that it has reached; NULL: not known */
} cuda_world;

NODISCARD status cuda_world_init(cuda_world *w);
void cuda_world_destroy(cuda_world *w);
void cuda_world_attach(cuda_world *w, rt_comm *const *endpoints, uint32_t n, int64_t timeout_ns);
void cuda_world_pulse(cuda_world *w, rt_pulse *pulse);
/* Sets whether this rank works at something that others may wait for. */
void cuda_world_set_busy(cuda_world *w, bool is_busy);
void cuda_world_tell(cuda_world *w, bool is_busy, bool moved); /* moved: it made progress */
/* Sets which communication it has reached; the text must live until the next call. The lock must not be held. */
void cuda_world_tell_place(cuda_world *w, const char *where);
/* Collects `bytes` of every rank, in the order of ranks. `what`: what the ranks are doing, for messages. */
NODISCARD status cuda_world_exchange(cuda_world *w, const void *mine, void *all, size_t bytes,
                                     const char *what);
/* Has no rank made progress for the timeout? Neither this rank since `since_ns`, nor another one that says so. */
bool cuda_world_is_still(const cuda_world *w, int64_t since_ns);
bool cuda_world_has_failed(const cuda_world *w);
/* The same, but gives the endpoint a moment to learn why something went wrong here. */
bool cuda_world_listen(const cuda_world *w);
/* Ends the world with "no progress in 2 s: TEXT", unless it has failed already; returns the failure of the world. */
NODISCARD status cuda_world_give_up(const cuda_world *w, const char *text);

/* ---- what a loaded plan shares ---- */
/* The beginning of the region. */
typedef struct cuda_shared_head {
  _Atomic uint64_t is_over; /* some rank has failed; all flags are set */
  char rest[56];
} cuda_shared_head;

typedef struct cuda_shared_rank {
  _Atomic uint64_t done;   /* the last run that this rank has done */
  _Atomic uint64_t closed; /* it has closed the other ranks' memory */
  char rest[48];           /* of the cache line */
} cuda_shared_rank;

typedef struct cuda_share {
  struct cuda_loaded *loaded;
  rt_comm *endpoint;
  uint32_t me, n;                  /* ranks of the plan are those of the world */
  const rt_plan *const *plans;     /* by rank */
  uint32_t first_task, first_post; /* of this rank in the plan of all */
  issue_split split;
  /* The region. */
  int fd;
  char *region;
  size_t region_bytes;
  CUdeviceptr device_region; /* as the GPU sees it; 0: not registered */
  cuda_shared_head *head;
  cuda_shared_rank *ranks;
  _Atomic uint64_t *flags, *states;
  size_t *slots; /* by rank: where they begin in the region */
  unsigned wait_flags;
  cuda_mapping **mappings; /* by rank; NULL: none */
  _Atomic uint64_t run;    /* the number of the run under way, or of the last one; from 1 */
  rt_fault fault;          /* for tests */
  const char **texts;      /* by post: what is posted where */
  const char **places;     /* by post: "file:12"; NULL for posts of other ranks */
  /* The watch. */
  pthread_t thread;
  bool is_watched;
  _Atomic bool ends;
  bool is_running;  /* from begin() to finish(); under the world's lock, with what follows */
  int64_t moved_ns; /* when this rank was last seen to move */
  uint64_t seen;    /* a sum of its states then */
} cuda_share;

/* Joins the plans of all ranks. */
NODISCARD status cuda_share_open(struct cuda_loaded *l, const rt_plan *const *plans, uint32_t n);
/* Exchanges the places of all ranks; once per world. Part of loading, on all ranks. */
NODISCARD status cuda_share_meet(struct cuda_loaded *l);
/* Makes the flags of the order and the texts of posts, and reduces the order to that of this rank. Needs a
 * memory_guard(). */
void cuda_share_split(struct cuda_loaded *l);
/* Opens the memory of the other ranks, and the region. Blocks are laid out, and this rank's is allocated. */
NODISCARD status cuda_share_connect(struct cuda_loaded *l);
/* Closes both, and waits until the others have, or do not answer: then this rank's memory may be freed. */
void cuda_share_close(struct cuda_loaded *l);

/* Addresses in the region, as the GPU sees them. */
CUdeviceptr cuda_share_flag(const cuda_share *s, uint32_t flag);
CUdeviceptr cuda_share_state(const cuda_share *s, uint32_t stream);

/* ---- runs (share_run.c) ---- */
NODISCARD status cuda_share_watch(cuda_share *s); /* starts the thread */
void cuda_share_unwatch(cuda_share *s);
NODISCARD status cuda_share_begin(cuda_share *s);
/* Lets a stream wait at step number `step`, and notes in its state that it waits. */
CUresult cuda_share_wait(struct cuda_loaded *l, uint32_t step, CUstream stream);
CUresult cuda_share_record(struct cuda_loaded *l, uint32_t event, CUstream stream);
/* Everything is issued: lets streams say when they have ended. */
CUresult cuda_share_end(struct cuda_loaded *l);
/* This rank has done the run with `st`; waits for the others. Returns the result of all. */
NODISCARD status cuda_share_finish(cuda_share *s, status st);
/* Ends the world: this rank has failed, with the recorded message. Returns the failure of the world. */
NODISCARD status cuda_world_abort(cuda_world *w, status st);

#endif
