/* Inside the CUDA device: GPUs, loaded plans, runs.
 *
 * A device of the runtime serves the GPUs of this machine. Each rank of a plan is a *virtual
 * device*: it has its own streams and its own memory on GPU number rank mod the number of GPUs, so
 * any number of ranks run on one.
 *
 * Loading a plan decides everything: the order of steps (order.h) and what is where in a block of
 * memory per rank. It compiles kernels, chooses an algorithm for every matrix product, and makes a
 * stream per stream of the plan and an event wherever one stream waits for another. A run issues the
 * steps and never blocks before finish().
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
/* A context is current to a thread, and a caller may use CUDA too: the context that is current when it calls is
 * current again when the call, or the run that it began, is over. Calls in between are allowed even if the caller
 * is capturing a stream of its own: they use other streams. */
CUcontext cuda_caller_enter(const cuda_vendor *cu);
void cuda_caller_leave(const cuda_vendor *cu, CUcontext caller);

/* ---- memory and communicators of the caller's ---- */
/* Of rt_device_ops (comm/caller.c). */
NODISCARD status cuda_caller_comm(void *comm, rt_caller_comm *result);
NODISCARD status cuda_caller_exchange(void *comm, const void *mine, void *all, size_t size_bytes);
/* For arrays wherever they are, without an open device (memory.c). */
extern const rt_memory_ops cuda_memory;

/* Says which libraries there are (examine.c). */
void cuda_examine(rt_say_fn *say, void *context);

/* ---- GPUs ---- */
typedef struct cuda_gpu {
  CUdevice id;
  CUcontext context; /* NULL: not used yet */
  int major, minor;
  int units;        /* multiprocessors */
  int shared_bytes; /* the most shared memory of a block */
  cuda_programs *programs;
  cublasLtHandle_t lt;
  cuda_matmul *matmuls; /* all that were prepared, for any plan */
  CUfunction delay;     /* of the adversary; NULL: none */
  cuda_att_library attention;
  CUevent entry; /* to follow a caller's stream; NULL: not yet */
} cuda_gpu;

/* Memory of a GPU, in which loaded plans have theirs. */
typedef struct cuda_block {
  CUdeviceptr at;
  size_t bytes;
  uint32_t gpu;
  bool is_callers; /* from options.memory */
} cuda_block;

typedef struct cuda_device {
  rt_device base;
  const allocator *memory;
  const cuda_vendor *cu;
  rt_device_options options;
  pthread_mutex_t run;  /* held from begin() to finish() */
  CUcontext caller;     /* the context that was current when that run began */
  pthread_mutex_t lock; /* of the GPUs, while plans are loaded */
  cuda_world world;     /* of processes */
  uint32_t n_gpus;
  cuda_gpu gpus[CUDA_MAX_GPUS];
  cuda_block *blocks; /* by rank: the memory that its plans share; `run` guards it */
  uint32_t n_blocks;
  cuda_loaded *last;     /* the plan whose run used them last; NULL: none */
  cuda_loaded *followed; /* plans whose runs may have found errors (errors.c) */
  cuda_nccl *nccl;       /* NULL: communications are copies and folds */
  int64_t timeout_ns;    /* without progress of communications that NCCL carries out; <= 0: never */
} cuda_device;

/* Opens the GPU on first use, and makes its context current. The lock is held. */
NODISCARD status cuda_gpu_open(cuda_device *d, uint32_t gpu);
/* Lets GPU `a` read the memory of GPU `b`, if it can. Both must be open; the context of `a` becomes current. */
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
  const cg_pointer *pointers; /* where the addresses come from */
  CUdeviceptr *addresses;     /* argument 0 of a kernel; of a product: the result and its operands;
                           * of attention: its sides */
  size_t workspace_at;        /* of a library: where in the scratch memory its workspace begins */
  /* In a loop, by pointer: how far it moves from one repetition to the next; NULL: none moves. If not NULL, `addresses`
   * has room for those of another repetition too. */
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
  uint32_t more_instrs, more_launches; /* how many a repetition of its loop has */
  uint16_t stream;                     /* of the plan */
  uint16_t on;                         /* in `streams`: where it is launched */
  bool is_here;                        /* this process runs it; otherwise nothing else is set */
  uint32_t error;                      /* its first record, if the kernel has some */
  bool in_pool; /* its scratch memory is in the pool, where no buffer is in use */
  size_t scratch_bytes, scratch_at;
  CUdeviceptr scratch;
} cuda_task;

/* A copy or fold with its addresses. */
typedef struct cuda_move {
  void *to, *from; /* of the host or the device */
} cuda_move;

typedef struct cuda_fold_call {
  CUfunction function;
  cg_launch launch; /* with its text */
  void *arguments;  /* pointers, then the number of vectors */
  uint32_t n_pointers, grid;
  void *params[2];
  int64_t n;
} cuda_fold_call;

typedef struct cuda_stream {
  CUstream handle;
  uint32_t rank;
  bool used;
  bool is_last; /* no other stream waits for the end of its work */
} cuda_stream;

/* The caller's memory for one slot. */
typedef struct cuda_external {
  uint32_t buffer, rank;
  bool is_output, copies_in, copies_out;
  bool is_shared; /* other processes read or write it: its place is always used */
  bool has_place; /* some run needed a place */
  size_t place_at;
  CUdeviceptr place; /* in the rank's block */
  CUdeviceptr used;  /* in the last run: `place`, or the caller's memory */
  void *caller;
  bool on_device; /* the caller's memory is on `gpu` */
  bool is_pinned; /* the caller's memory is of the host, and known to the driver */
  uint32_t gpu;
} cuda_external;

/* A stream that is followed (watch.c). */
typedef struct cuda_watched {
  uint32_t *steps; /* all steps on the stream */
  uint32_t n, done;
} cuda_watched;

typedef struct cuda_rank {
  uint32_t gpu;
  CUdeviceptr block; /* all its memory */
  size_t block_bytes;
  cuda_block own;                      /* for a plan that does not share */
  size_t pool_at, staging_at, seed_at; /* in the block */
  int64_t pool_begin, pool_end;        /* its part of the plan's pool */
  CUdeviceptr pool, staging, seed;
  CUdeviceptr errors; /* its records, in pinned memory */
  uint32_t n_errors;
  void *slots;       /* pinned */
  CUevent origin;    /* tracing: times of its events count from this one; NULL: not made yet */
  int64_t offset_ns; /* how much later than the run's start `origin` was issued */
} cuda_rank;

/* `base.plan` is what the executor issues. `plan` is the same unless ranks are processes: then it is the joined
 * plan of all ranks. Only rank share->me of it runs here; for the others only what is needed to find their memory
 * is made. */
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
  uint32_t issued;        /* the next step */
  uint32_t loop, turn;    /* this or the next of order.loops; its repetition, 0: not in it */
  uint32_t bound;         /* the step at which it begins, or a repetition ends */
  CUresult failed;        /* the first call of the driver that failed */
  _Atomic bool cancelled; /* nothing more must be issued */
  cublasStatus_t failed_lt;
  int failed_dnn; /* of cuDNN; 0: none */
  uint32_t failed_step;
  cuda_nccl_error failed_nccl;
  uint32_t current_gpu;
  rt_span *spans;
  int64_t origin_ns; /* the run's start */
  CUevent *timing;   /* tracing: two per launch, then one per event; NULL: not yet */
  cuda_nccl_plan nccl;
  cuda_watched *watched; /* by stream; NULL: NCCL carries out no communication */
  bool is_pending;       /* a run on the caller's streams was issued; it ends on the first stream */
  bool is_followed;      /* a run that nobody waits for may have found errors */
  cuda_loaded *next_followed;
  bool is_stuck;     /* its streams never ended: nothing that it has can be freed */
  bool keeps_memory; /* its blocks are its own: a graph of the caller's may use them at any time */
  size_t placed_bytes; /* the size of all blocks that addresses were made for; 0: not yet made */
  bool moved;          /* some address changed since the last run */
  bool has_managed;    /* an array of the caller's is in managed memory, and used there */
  CUgraphExec graph;   /* NULL: not captured yet */
  bool replaying;      /* this run is the graph */
  bool draws;          /* some kernel reads the seed of the run */
  bool has_seed;       /* the seed in the memory of all ranks is this one: */
  uint64_t seed;
  bool outlived; /* a graph of the caller's writes its own seed whenever it is launched */
};

/* The first stream of a rank, on which its copies in and out are (run.c). */
uint32_t cuda_main_stream(const cuda_loaded *l, uint32_t rank);

/* Are ranks processes that open each other's memory? */
static inline bool cuda_is_mapped(const cuda_loaded *l) { return l->share && !l->device->nccl; }

/* Does this process run this rank of the plan? */
static inline bool cuda_is_here(const cuda_loaded *l, uint32_t rank) {
  return !l->share || l->share->me == rank;
}

/* Everything between load and the first run (program.c). */
NODISCARD status cuda_program_init(cuda_loaded *l);
void cuda_program_destroy(cuda_loaded *l);
/* ---- memory (blocks.c) ----
 * The plans of a device share a block for each rank, as large as the largest of them needs: a device
 * runs one plan at a time, and the run of another plan waits for a run that was issued on the caller's
 * streams. A plan has blocks of its own if ranks are processes, if NCCL carries out its communications,
 * or if a caller has captured it. What is in a block is valid for one run. An array of the caller's gets
 * a place in the block in the first run that cannot use the array where it is. */
/* Computes what the plan needs; needs a memory_guard(). */
void cuda_blocks_lay_out(cuda_loaded *l);
void cuda_blocks_need_place(cuda_loaded *l, cuda_external *e);
/* Allocates that memory and sets addresses. A shared block may grow, after the host has waited for the
 * last run. device->run is held, or nothing is shared. */
NODISCARD status cuda_blocks_ready(cuda_loaded *l);
/* Allocates the block of this process, which others will open. */
NODISCARD status cuda_blocks_export(cuda_loaded *l);
/* Lets the plan use the shared blocks from now on. `stream` waits for the run of the plan that used them;
 * NULL: the host waits. */
NODISCARD status cuda_blocks_follow(cuda_loaded *l, CUstream stream);
void cuda_blocks_leave(cuda_loaded *l);
void cuda_blocks_close(cuda_device *d);

/* ---- loops (loops.c) ---- */
/* Finds which tasks are here, and numbers them. */
void cuda_loops_number(cuda_loaded *l);
/* The view of a task that a pointer begins at (cg_pointer.start); NULL: none; the operand is missing or a number. */
const rt_view *cuda_start_view(const cuda_loaded *l, const rt_task *task, uint32_t start);
/* Sets the steps of calls; needs a memory_guard(). */
void cuda_loops_move(cuda_loaded *l);
/* The addresses of a call with steps; valid until the next such call. */
const CUdeviceptr *cuda_loops_addresses(const cuda_call *c, uint32_t turn);
/* Begins a run with the first step. */
void cuda_loops_begin(cuda_loaded *l);
/* Called when l->issued is l->bound: begins the next repetition, or goes on after the loop. */
void cuda_loops_cross(cuda_loaded *l);
/* The instruction, in `base.plan`, of the step that failed. */
uint32_t cuda_loops_instr(const cuda_loaded *l);

/* Lists the caller's arrays; needs a memory_guard() (externals.c). */
void cuda_externals_list(cuda_loaded *l);
/* Sets all addresses, after a caller's array moved. */
void cuda_program_place(cuda_loaded *l);
/* Gets the functions of all kernels, and compiles those that are missing (compile.c). */
NODISCARD status cuda_program_compile(cuda_loaded *l);
/* Writes the kernel of a fold as text; needs a memory_guard() (fold.c). */
void cuda_fold_write(cuda_loaded *l, uint32_t fold);
void cuda_fold_place(cuda_loaded *l, uint32_t fold);
CUdeviceptr cuda_place_address(const cuda_loaded *l, const issue_place *p);
/* A kernel that does nothing for a given time, with which the adversary delays streams. */
extern const cg_launch cuda_delay;

/* Issues the steps up to below `upto` (run.c). */
void cuda_issue(cuda_loaded *l, uint32_t upto);
NODISCARD status cuda_begin(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                            rt_span *spans);
NODISCARD status cuda_finish(rt_loaded *loaded);
void cuda_cancel(rt_loaded *loaded);
void cuda_launch(rt_loaded *loaded, uint32_t instr);
/* Runs on the caller's streams (stream.c). */
NODISCARD status cuda_settle(rt_device *device); /* (errors.c) */
NODISCARD status cuda_run_on(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                             const rt_stream *streams, uint32_t n, bool *captured);

/* Waits for a run whose communications NCCL carries out: until everything is done, NCCL reports an error, nothing
 * moves for the device's timeout, or another process has failed. After a failure communicators are aborted, so that
 * the streams end; if ranks are processes, only when all of them know of it (watch.c). */
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
