/* The device interface: streams that run tasks in order and wait for one another.
 *
 * A device is opened once, a plan is loaded once (its pool is allocated, kernels are chosen), and the
 * loaded plan is run any number of times. During a run the executor calls launch() and wait() in plan
 * order; neither blocks nor allocates. finish() waits until all streams are done.
 *
 * Errors of tasks (an index out of range) are kept by the device and returned by finish().
 *
 * Communications. A device whose plans post communications is given the endpoints of the ranks in this
 * process before it loads them:
 *
 *   rt_comm_options o = {.ranks = n, .notify = device->ops->notify, .context = device};
 *   … open the endpoints …
 *   if (device->ops->attach) device->ops->attach(device, endpoints, n, timeout_ns);
 *
 * A failed run ends the world for all ranks. Then, or before the device is closed, close the endpoints;
 * plans already loaded may be run again when others have been attached. */
#ifndef WEIR_RUNTIME_DEVICE_H
#define WEIR_RUNTIME_DEVICE_H

#include "runtime/examine.h"
#include "runtime/plan.h"

typedef struct rt_device rt_device;
typedef struct rt_loaded rt_loaded;

/* When a task or communication ran, in ns from the run's start; filled if tracing is on. A communication
 * begins when it is posted and ends when the device sees that it is done. */
typedef struct rt_span {
  int64_t start_ns, end_ns;
  uint32_t instr;
  uint16_t stream;
  uint16_t worker; /* which compute thread */
} rt_span;

/* What moves data between devices (carriers.def). */
typedef enum rt_carrier {
  RT_CARRIER_NONE, /* the device itself, or the endpoints */
#define CARRIER(ID, name, summary) RT_CARRIER_##ID,
#include "runtime/carriers.def"
#undef CARRIER
  RT_CARRIER_COUNT
} rt_carrier;

/* Where a device takes its memory from. NULL functions: from the driver. */
typedef struct rt_device_memory {
  void *(*alloc)(void *context, int32_t gpu,
                 size_t size_bytes); /* aligned to 256 bytes; NULL: none is left */
  void (*free)(void *context, int32_t gpu, void *block);
  void *context;
} rt_device_memory;

typedef struct rt_device_options {
  uint32_t threads; /* compute threads; 0: the number of cores (sim: one) */
  bool adversarial; /* cpu: run in a hostile but legal order drawn from `seed`; cuda: with delays */
  uint64_t seed;
  bool graph;     /* cuda: a plan is captured once and replayed */
  bool tf32;      /* cuda: products of f32 in TF32 */
  bool link_host; /* cuda: devices communicate through the host's memory */
  rt_carrier carrier;
  uint32_t first_gpu;             /* cuda: of this process; GPUs are taken in turns from there on */
  const struct rt_speed *machine; /* sim: the machine; NULL: rt_machine_default() */
  rt_device_memory memory; /* cuda: for plans; not used if other processes open that memory */
} rt_device_options;

/* The speeds of one rank of a program on a device, for models; see cost/cost.h. */
typedef struct rt_speed {
  double flops_per_ns, bytes_per_ns; /* f32 operations and bytes of memory, of one compute thread */
  double narrow_flops_per_ns;        /* products of f16 and bf16; 0: as f32 */
  double bf16_flops_per_ns;          /* products of bf16; 0: as f16 */
  double vector_flops_per_ns;        /* of what is no product; 0: as f32 */
  double cache_bytes, cache_bytes_per_ns; /* of a task's first bytes; 0: as memory */
  double launch_ns;                       /* to start a task; 0: not known */
  double issue_ns, call_ns; /* time of the host: for a task; for one step of a communication */
  uint32_t threads;
  bool reads_ahead; /* a task reads while it computes */
  bool reads_peers; /* a reduction between ranks reads all inputs where they are */
  /* Of communications, where the device moves the data itself; 0: the endpoints' link counts. */
  double link_bytes_per_ns, link_latency_ns, post_ns;
  /* Bytes that a link takes at once after a rest, as links with traffic shaping do; it recovers at its rate. */
  double link_burst_bytes;
  /* Devices 0 … island - 1, island … 2 * island - 1, … are connected by that link; between them there is
   * another one. island 0: all are; far figures 0: as within (runtime/machine.h). */
  double island, far_bytes_per_ns, far_latency_ns;
  /* Measured figures of GPUs, from which the link is made for the ranks that share them; 0: not known. */
  double host_bytes_per_ns, host_latency_ns, peer_bytes_per_ns, peer_latency_ns;
  double packs; /* 1: !reads_ahead */
  /* 1: members of a team tell each other that they are there, and send to each other directly: two rounds, of an
   * allreduce three. 0: rings, so that an allreduce takes twice as many steps as others. */
  double direct;
  /* Devices 0 … per_host - 1, per_host … 2 * per_host - 1, … (0: all) share that many cores. 0: each has its own.
   * A communication of a device keeps a part of one busy. */
  double cores, per_host, comm_cores;
} rt_speed;

/* The result of a run on a virtual clock: its length, and its critical path (device/sim/sim.h). Valid until the
 * next run. */
typedef struct rt_outcome {
  int64_t total_ns;
  const uint32_t *path; /* launches, as instruction numbers, in order */
  uint32_t path_len;
} rt_outcome;

/* A stream of the caller's. */
typedef struct rt_stream {
  uint32_t space; /* 1 + the number of the GPU */
  void *handle;   /* CUstream; NULL: the default stream */
} rt_stream;

/* Memory of GPUs. `space` (ir/array.h) is 1 + the number of the GPU. No device needs to be open. */
typedef struct rt_memory_ops {
  /* Is `p` memory of that space? If not, BAD_USAGE, with a message about tensor `what`. */
  status (*verify)(uint32_t space, const void *p, const char *what);
  status (*alloc)(uint32_t space, size_t size_bytes, void **result);
  void (*free)(uint32_t space, void *block);
  /* Between arrays of one dtype and equal extents, any strides, in any spaces; returns when it is done. */
  status (*copy)(const ir_array *to, const ir_array *from);
  /* Waits for all work on a stream of the caller's; BAD_USAGE while the stream is captured. */
  status (*wait)(const rt_stream *stream);
  /* A new stream that is ordered after all work now on a stream of the caller's, for runs that are issued later.
   * BAD_USAGE while the caller's stream is captured. */
  status (*follow)(const rt_stream *stream, rt_stream *result);
  status (*passed)(const rt_stream *followed, bool *yes); /* does not wait */
  void (*end)(const rt_stream *followed);
} rt_memory_ops;

/* A communicator of the caller's, of the device's own library: NCCL. */
typedef struct rt_caller_comm {
  uint32_t rank, size;
  int32_t gpu; /* of this rank */
} rt_caller_comm;

/* Which loops of plans a device can run. Plans with other loops are unrolled before they are loaded. */
typedef enum rt_loops_taken {
  RT_LOOPS_NONE,
  RT_LOOPS_ALONE, /* of one rank that does not communicate */
  RT_LOOPS_APART, /* of ranks that do not communicate */
  RT_LOOPS_ALL,
} rt_loops_taken;

typedef struct rt_device_ops {
  const char *name;
  const char *summary;  /* one sentence, for `weir list devices` */
  bool virtual_clock;   /* spans tell simulated time */
  bool takes_adversary; /* options.adversarial means something */
  /* A kernel that also sums columns of its result may write the result to an operand's memory at no cost. */
  bool folds_in_place;
  rt_loops_taken takes_loops;
  bool shares_pool;  /* loaded plans share one pool, as large as the largest needs */
  uint32_t carriers; /* bit c: options.carrier may be c */
  const rt_memory_ops
      *memory; /* of the device's own memory, which begin() accepts; NULL: it has none */
  /* The device may have other operations than these (the adversary): use (*result)->ops afterwards. */
  status (*open)(const rt_device_options *options, const allocator *memory, rt_device **result);
  void (*close)(rt_device *device); /* accepts NULL */

  /* Between runs: sets the endpoints through which plans communicate; endpoints[i] is that of rank i in the
   * plan (rt_plan_rank). If streams wait for communications and nothing moves for `timeout_ns` (<= 0: for
   * ever), the run fails with UNAVAILABLE and says which rank waits for which. Progress that other processes
   * report counts. NULL: the device needs no endpoints. */
  void (*attach)(rt_device *device, rt_comm *const *endpoints, uint32_t n, int64_t timeout_ns);
  void (*notify)(void *device, uint32_t rank); /* for rt_comm_options; NULL: no thread sleeps */

  /* Optional: what the device does; for rt_comm_options, from any thread. */
  void (*pulse)(rt_device *device, rt_pulse *pulse);

  /* Optional: measures the speed of the device and of the link between ranks of this process, for a machine file.
   * Figures that cannot be measured are the built-in ones. */
  void (*measure)(rt_device *device, rt_speed *result);
  /* Optional: the share of a machine that each of `ranks` ranks in this process has. machine NULL: the built-in
   * figures. */
  rt_speed (*speed)(rt_device *device, const rt_speed *machine, uint32_t ranks);

  /* Optional: the members of a communicator of the caller's, and an exchange through it: each rank passes
   * `size_bytes` bytes and gets those of all. No device needs to be open. */
  status (*caller_comm)(void *comm, rt_caller_comm *result);
  status (*caller_exchange)(void *comm, const void *mine, void *all, size_t size_bytes);

  /* Optional: reports which libraries and instructions the device would use on this machine, and its speed.
   * Opens no device and takes some ms. */
  void (*examine)(rt_say_fn *say, void *context);

  /* Optional: if ranks are alike (plan->alike), how many of them must be loaded to represent all. 1: the plan's own;
   * more: the first ones, joined in a plan that has `alike` too. NULL: all. */
  uint32_t (*enough)(const rt_device *device, const rt_plan *plan);
  status (*load)(rt_device *device, const rt_plan *plan, rt_loaded **result);
  /* Optional: the same for a world of one rank per process, with the plans of all n ranks; `plan` is that of
   * this one. All processes call it and wait for each other: for devices that read and write each other's
   * memory. The plans must outlive what is loaded. NULL: load() is enough. */
  status (*load_spread)(rt_device *device, const rt_plan *plan, const rt_plan *const *plans,
                        uint32_t n, rt_loaded **result);
  void (*unload)(rt_loaded *loaded); /* accepts NULL */

  /* Begins a run. inputs and outputs: base addresses, one per slot; devices with memory of their own accept NULL
   * for an output that is not wanted. spans: NULL, or room for n_tasks + n_posts of them: the k-th launch in plan
   * order fills spans[k], post p fills spans[n_tasks + p]; a task that did not run because of an earlier error
   * has an empty span. Spans and outcomes of a plan with loops are those of the unrolled plan (rt_plan_unroll).
   * A device executes one run at a time: begin() waits for the run before. After begin() has succeeded, the
   * same thread must call finish(). */
  status (*begin)(rt_loaded *loaded, void *const *inputs, void *const *outputs, rt_span *spans);
  void (*launch)(rt_loaded *loaded, uint32_t instr);
  void (*wait)(rt_loaded *loaded, uint32_t instr); /* also posts and joins */
  status (*finish)(rt_loaded *loaded);
  /* Optional: from any thread, between begin() and the end of finish(). No further task is started, and finish()
   * returns CANCELLED. With several ranks the world has then failed, as after any failure. A device that cannot
   * stop may run to the end. */
  void (*cancel)(rt_loaded *loaded);
  /* Optional: a run that is ordered after the work now on the caller's streams, and before work put there later.
   * Returns once it is issued; if arrays are host memory that is not pinned, once it has ended. Errors of its
   * tasks are returned by a later run or by settle(). *captured: the run has become part of a CUDA graph that the
   * caller captures; what is loaded, and the arrays, must then outlive the graph. */
  status (*run_on)(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                   const rt_stream *streams, uint32_t n, bool *captured);
  /* Optional: waits for runs of run_on() whose tasks may fail, and returns their error. */
  status (*settle)(rt_device *device);
  /* Of the last run; NULL unless the clock is virtual. */
  rt_outcome (*outcome)(const rt_loaded *loaded);
} rt_device_ops;

/* Every device object begins with its operations. */
struct rt_device {
  const rt_device_ops *ops;
};
struct rt_loaded {
  const rt_device_ops *ops;
  const rt_plan *plan;
};

/* Runs a loaded plan once. `host_ns` (may be NULL) receives the time spent issuing. */
NODISCARD status rt_run(rt_loaded *loaded, void *const *inputs, void *const *outputs,
                        rt_span *spans, int64_t *host_ns);

/* Nanoseconds on the monotonic clock. */
int64_t rt_clock_ns(void);

/* The table of devices (base/devices.def): rt_device_cpu and so on. */
#define DEVICE(id) extern const rt_device_ops rt_device_##id;
#include "base/devices.def"
#undef DEVICE
const rt_device_ops *rt_device_find(const char *name); /* NULL: no such device */
uint32_t rt_device_count(void);
const rt_device_ops *rt_device_at(uint32_t i);
/* NONE: there is no such carrier. */
rt_carrier rt_carrier_find(const char *name);
const char *rt_carrier_name(rt_carrier c);
const char *rt_carrier_summary(rt_carrier c);

#endif
