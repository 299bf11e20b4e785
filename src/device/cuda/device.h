/* Inside the CUDA device: GPUs, loaded plans, runs.
 *
 * A device of the runtime serves the GPUs of this machine. Each rank of a plan is a *virtual
 * device*: it has its own streams and its own memory on GPU number rank mod the number of GPUs, so
 * any number of ranks run on one.
 *
 * Loading a plan decides everything: the order of steps (order.h), what is where in a block of
 * memory per rank, kernels compiled, an algorithm for every matrix product, a stream per stream of
 * the plan, an event wherever one stream waits for another. A run issues the steps and never blocks
 * before finish().
 *
 * The caller's arrays. Those in memory of the rank's GPU, and managed ones, are used where they are
 * if they are aligned to CUDA_BUFFER_ALIGN. All others get a place in the rank's block: they are
 * copied there by begin(), and outputs back by finish(). */
#ifndef WEIR_DEVICE_CUDA_DEVICE_H
#define WEIR_DEVICE_CUDA_DEVICE_H

#include <pthread.h>

#include "device/cuda/attention.h"
#include "device/cuda/comm/nccl.h"
#include "device/cuda/comm/share.h"
#include "device/cuda/matmul.h"
#include "device/cuda/vendor.h"
#include "device/issue/order.h"
#include "runtime/device.h"

enum {
  CUDA_MAX_GPUS = 64,
  CUDA_ALIGN = 256,
  CUDA_SHARED_ALIGN = 2 << 20 /* smaller blocks share an allocation, which is exported as a whole */
};

/* ---- callers ---- */
/* Contexts belong to threads, and a caller may use CUDA too: whatever context its thread has when it calls,
 * it has when the call, or the run that it began, is over. A capture that it has begun on a stream of its own
 * does not forbid what is done in between: that has other streams. */
CUcontext cuda_caller_enter(const cuda_vendor *cu);
void cuda_caller_leave(const cuda_vendor *cu, CUcontext caller);

/* ---- memory of the caller's ---- */
/* Arrays wherever they are, without an open device (memory.c). */
/* Of rt_device_ops. (comm/caller.c) */
NODISCARD status cuda_caller_comm(void *comm, rt_caller_comm *result);
NODISCARD status cuda_caller_exchange(void *comm, const void *mine, void *all, size_t size_bytes);
extern const rt_memory_ops cuda_memory;

/* Tells which libraries there are (examine.c). */
void cuda_examine(rt_say_fn *say, void *context);

/* ---- GPUs ---- */
typedef struct cuda_gpu {
  CUdevice id;
  CUcontext context; /* NULL: not used yet */
  int major, minor;
  int units;        /* multiprocessors */
  int shared_bytes; /* that a block may ask for */
  cuda_programs *programs;
  cublasLtHandle_t lt;
  cuda_matmul *matmuls; /* all that were prepared, of whatever plan */
  CUfunction delay;     /* of the adversary; NULL: none */
  cuda_att_library attention;
  CUevent entry; /* to follow a caller's stream; NULL: not yet */
} cuda_gpu;

/* Memory of a GPU, on which loaded plans have theirs. */
typedef struct cuda_block {
  CUdeviceptr at;
  size_t bytes;
  uint32_t gpu;
  bool is_callers; /* of options.memory */
} cuda_block;

typedef struct cuda_device {
  rt_device base;
  const allocator *memory;
  const cuda_vendor *cu;
  rt_device_options options;
  pthread_mutex_t run;  /* held from begin() to finish() */
  CUcontext caller;     /* of that run: what its thread had */
  pthread_mutex_t lock; /* of the GPUs, while plans are loaded */
  cuda_world world;     /* of processes */
  uint32_t n_gpus;
  cuda_gpu gpus[CUDA_MAX_GPUS];
  cuda_block *blocks; /* by rank: what its plans share; of a run, as d->run is held */
  uint32_t n_blocks;
  cuda_loaded *last;     /* whose run was the last to use them; NULL: none */
  cuda_loaded *followed; /* plans whose runs may have found errors (errors.c) */
  cuda_nccl *nccl;       /* NULL: communications are copies and folds */
  int64_t timeout_ns;    /* without progress of communications that NCCL carries out; <= 0: never */
} cuda_device;

/* Makes the GPU ready on first use, and its context current. The lock is held. */
NODISCARD status cuda_gpu_open(cuda_device *d, uint32_t gpu);
/* From now on GPU `a` reads the memory of GPU `b`, if it can. Both are ready; the context of `a` becomes
 * current. */
NODISCARD status cuda_gpu_connect(cuda_device *d, uint32_t a, uint32_t b, bool *can);

/* ---- loaded plans ---- */
/* One launch of a kernel, or one product or attention by a library. */
typedef struct cuda_call {
  const cuda_matmul *matmul;
  const cuda_attention *attention; /* both NULL: a kernel */
  float scale;                     /* of attention */
  CUfunction function;
  const cg_launch *launch;
  uint32_t n_pointers;
  const cg_pointer *pointers; /* what the addresses are made of */
  CUdeviceptr *addresses;     /* argument 0 of a kernel; of a product: the result and its operands;
                           * of attention: its sides */
  size_t workspace_at;        /* of a library: where in the scratch memory its workspace begins */
  /* In a loop, by pointer: how much further on it is in the next repetition; NULL: none moves. Then there is room for
   * the addresses of another repetition than the first. */
  const int64_t *steps;
  CUdeviceptr *moved;
} cuda_call;

typedef struct cuda_task {
  const cuda_kernel *kernel; /* NULL: a library computes it */
  cuda_call *calls;
  uint32_t n_calls;
  uint32_t instr,
      launch;     /* how many instructions and launches of this process are done before it */
  uint32_t times; /* how often it is done */
  uint32_t more_instrs, more_launches; /* of those in a repetition of its loop */
  uint16_t stream;                     /* of the plan */
  uint16_t on;                         /* in `streams`: where it is launched */
  bool is_here;                        /* this process runs it; otherwise nothing else is set */
  uint32_t error;                      /* its first record, if the kernel has some */
  bool in_pool; /* its scratch memory is in the pool, where no buffer is then */
  size_t scratch_bytes, scratch_at;
  CUdeviceptr scratch;
} cuda_task;

/* A copy or fold with its addresses. */
typedef struct cuda_move {
  void *to, *from; /* of the host or the device */
} cuda_move;

typedef struct cuda_fold_call {
  CUfunction function;
  cg_launch launch; /* its text */
  void *arguments;  /* pointers, then the number of vectors */
  uint32_t n_pointers, grid;
  void *params[2];
  int64_t n;
} cuda_fold_call;

typedef struct cuda_stream {
  CUstream handle;
  uint32_t rank;
  bool used;
  bool is_last; /* no other stream waits for its end */
} cuda_stream;

/* The caller's memory for one slot. */
typedef struct cuda_external {
  uint32_t buffer, rank;
  bool is_output, copies_in, copies_out;
  bool is_shared; /* other processes read or write it: always in its place */
  bool has_place; /* some run needed one */
  size_t place_at;
  CUdeviceptr place; /* in the rank's block */
  CUdeviceptr used;  /* in the last run: `place`, or the caller's own */
  void *caller;
  bool on_device; /* the caller's is memory of `gpu` */
  bool is_pinned; /* of the host, and known to the driver */
  uint32_t gpu;
} cuda_external;

/* A stream that is followed (watch.c). */
typedef struct cuda_watched {
  uint32_t *steps; /* all of the stream */
  uint32_t n, done;
} cuda_watched;

typedef struct cuda_rank {
  uint32_t gpu;
  CUdeviceptr block; /* all its memory */
  size_t block_bytes;
  cuda_block own;                      /* of plans that do not share */
  size_t pool_at, staging_at, seed_at; /* in the block */
  int64_t pool_begin, pool_end;        /* its part of the plan's pool */
  CUdeviceptr pool, staging, seed;
  CUdeviceptr errors; /* its records, in pinned memory */
  uint32_t n_errors;
  void *slots;       /* pinned */
  CUevent origin;    /* tracing: what its events' times are told from; NULL: not yet */
  int64_t offset_ns; /* how much later than the run's start it was issued */
} cuda_rank;

/* `base.plan` is what the executor issues. `plan` is the same, but for ranks that are processes of their
 * own: then it is that of all ranks, `joined`, of which only share->me is run here, and of the others
 * nothing is made but what tells where their memory is. */
struct cuda_loaded {
  rt_loaded base;
  const rt_plan *plan;
  rt_plan *joined;
  cuda_share *share; /* NULL: all ranks are in this process */
  cuda_device *device;
  const cuda_vendor *cu;
  arena memory;
  issue_order order;
  cuda_rank *ranks;
  uint32_t n_ranks;
  cuda_stream *streams; /* of the plan, then lanes */
  uint32_t n_streams;
  CUevent *events;
  uint32_t n_events;
  uint32_t *rank_of_event;
  bool through_host;  /* ranks communicate by way of the host's memory */
  CUdeviceptr *bases; /* by buffer */
  uint32_t *rank_of_buffer;
  cuda_external *externals;
  uint32_t n_externals;
  cuda_task *tasks;
  uint32_t n_launched; /* launches of this process in a run */
  cuda_move *moves;    /* by copy */
  cuda_fold_call *folds;
  cg_error *errors; /* pinned (errors.c); NULL: none */
  uint32_t n_errors;
  /* A run. */
  uint32_t issued;     /* the step that comes next */
  uint32_t loop, turn; /* in order.loops, which is or comes next; its repetition, 0: none of them */
  uint32_t bound;      /* the step before which it begins, or ends a repetition */
  CUresult failed;     /* the first call of the driver that failed */
  _Atomic bool cancelled; /* nothing more is issued */
  cublasStatus_t failed_lt;
  int failed_dnn; /* of cuDNN; 0: none */
  uint32_t failed_step;
  cuda_nccl_error failed_nccl;
  uint32_t current_gpu;
  rt_span *spans;
  int64_t origin_ns; /* the run's start */
  CUevent *timing;   /* tracing: two per launch, then one per event; NULL: not yet */
  cuda_nccl_plan nccl;
  cuda_watched *watched; /* by stream; NULL: NCCL carries nothing out */
  bool is_pending;       /* a run on the caller's streams was issued; the first stream ends it */
  bool is_followed;      /* a run that nobody waits for may have found errors */
  cuda_loaded *next_followed;
  bool is_stuck;     /* its streams never ended: nothing of it can be given back */
  bool keeps_memory; /* its blocks are its own: a graph of the caller's may use them at any time */
  size_t placed_bytes; /* of all blocks, as addresses were made for; 0: not yet */
  bool moved;          /* some address changed since the last run */
  bool has_managed;    /* an array of the caller's is managed memory, used where it is */
  CUgraphExec graph;   /* NULL: not captured yet */
  bool replaying;      /* this run is the graph */
  bool draws;          /* some kernel reads the seed of the run */
  bool has_seed;       /* what ranks have as the seed is this: */
  uint64_t seed;
  bool outlived; /* a graph of the caller's writes its own, whenever it is launched */
};

/* The first stream of a rank, which its copies in and out are on (run.c). */
uint32_t cuda_main_stream(const cuda_loaded *l, uint32_t rank);

/* Whether ranks, which are processes, open each other's memory. */
static inline bool cuda_is_mapped(const cuda_loaded *l) { return l->share && !l->device->nccl; }

/* Whether a rank of the plan is run by this process. */
static inline bool cuda_is_here(const cuda_loaded *l, uint32_t rank) {
  return !l->share || l->share->me == rank;
}

/* Everything between load and the first run (program.c). */
NODISCARD status cuda_program_init(cuda_loaded *l);
void cuda_program_destroy(cuda_loaded *l);
/* ---- memory (blocks.c) ----
 * The plans of a device share a block for each rank, as large as the largest of them needs: a
 * device runs one at a time, and a run that has been issued on the caller's streams is waited for
 * by that of another plan. Blocks of ranks that are processes, or whose communications NCCL carries
 * out, and those of plans that a caller has captured are their own. Everything in a block is there
 * for one run; the caller's arrays have a place from the first run on that cannot use them where
 * they are. */
/* What the plan needs; needs a memory_guard(). */
void cuda_blocks_lay_out(cuda_loaded *l);
void cuda_blocks_need_place(cuda_loaded *l, cuda_external *e);
/* There is memory for all of it, and addresses. Shared blocks may grow, after the host has waited
 * for the last run. device->run is held, or nothing is shared. */
NODISCARD status cuda_blocks_ready(cuda_loaded *l);
/* The block of this process, which others will open. */
NODISCARD status cuda_blocks_export(cuda_loaded *l);
/* From now on the plan uses the shared blocks: after the run of another one, for which `stream`
 * waits; NULL: the host does. */
NODISCARD status cuda_blocks_follow(cuda_loaded *l, CUstream stream);
void cuda_blocks_leave(cuda_loaded *l);
void cuda_blocks_close(cuda_device *d);

/* ---- loops (loops.c) ---- */
/* Which tasks are here, and their numbers. */
void cuda_loops_number(cuda_loaded *l);
/* The view of a task that a pointer begins at (cg_pointer.start); NULL: none, it is left out or a number. */
const rt_view *cuda_start_view(const cuda_loaded *l, const rt_task *task, uint32_t start);
/* What moves in which call; needs a memory_guard(). */
void cuda_loops_move(cuda_loaded *l);
/* The addresses of a call with steps; valid until it is asked again. */
const CUdeviceptr *cuda_loops_addresses(const cuda_call *c, uint32_t turn);
/* From the first step on. */
void cuda_loops_begin(cuda_loaded *l);
/* l->issued is l->bound: the next repetition begins, or what comes after the loop. */
void cuda_loops_cross(cuda_loaded *l);
/* The instruction, in `base.plan`, of the step that failed. */
uint32_t cuda_loops_instr(const cuda_loaded *l);

/* Needs a memory_guard() (externals.c). */
void cuda_externals_list(cuda_loaded *l);
/* Addresses of everything, after a caller's array moved. */
void cuda_program_place(cuda_loaded *l);
/* The functions of all kernels, compiled where they were not before (compile.c). */
NODISCARD status cuda_program_compile(cuda_loaded *l);
/* The kernel of a fold, as text; needs a memory_guard() (fold.c). */
void cuda_fold_write(cuda_loaded *l, uint32_t fold);
void cuda_fold_place(cuda_loaded *l, uint32_t fold);
CUdeviceptr cuda_place_address(const cuda_loaded *l, const issue_place *p);
/* A kernel that does nothing for so many ns: what an adversary delays streams with. */
extern const cg_launch cuda_delay;

/* Issues the steps up to below `upto` (run.c). */
void cuda_issue(cuda_loaded *l, uint32_t upto);
NODISCARD status cuda_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                            rt_span *spans);
NODISCARD status cuda_finish(rt_loaded *loaded);
void cuda_cancel(rt_loaded *loaded);
void cuda_launch(rt_loaded *loaded, uint32_t instr);
/* Between what the caller's streams hold and what comes next on them (stream.c). */
NODISCARD status cuda_settle(rt_device *device); /* (errors.c) */
NODISCARD status cuda_run_on(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                             const rt_stream *streams, uint32_t n, bool *captured);

/* Waits for a run whose communications NCCL carries out: until all is done, or NCCL reports an error, or
 * nothing moves for the device's timeout, or another process has failed. Then communicators are aborted, so
 * that the streams end; of ranks that are processes not before all know (watch.c). */
NODISCARD status cuda_watch(cuda_loaded *l);
/* Aborts the communicators and waits for the streams, but not for ever. */
void cuda_watch_release(cuda_loaded *l);
void cuda_watch_prepare(cuda_loaded *l); /* needs a memory_guard() */
/* "allreduce of 16 f32 (sum) at f:7 on team (0 1)" */
void cuda_comm_text(cuda_loaded *l, uint32_t comm, char *text, size_t size_bytes);
/* l->failed_nccl as a status, with the communication and its place. */
NODISCARD status cuda_nccl_failure(cuda_loaded *l);

/* Time stamps (trace.c). */
CUevent cuda_trace_twin(const cuda_loaded *l, uint32_t event); /* of an event of the order */
NODISCARD status cuda_trace_begin(cuda_loaded *l);
void cuda_trace_end(cuda_loaded *l);
void cuda_trace_destroy(cuda_loaded *l);

#endif
