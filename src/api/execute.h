/* Running on a device: a host program, the device it runs on, and its plans, cached by shape. */
#ifndef WEIR_API_EXECUTE_H
#define WEIR_API_EXECUTE_H

#include "api/api.h"
#include "api/machine.h"
#include "api/ranks.h"
#include "check/check.h"
#include "host/host.h"
#include "ir/bind.h"
#include "runtime/control.h"
#include "runtime/device.h"
#include "runtime/stats.h"

typedef struct api_plan api_plan;

/* The same program with other streams, of which one may be chosen. */
enum { API_MAX_VARIANTS = 2 };
typedef struct api_variant {
  ir_func *host;
  const char *pass; /* that makes it, an optional one */
} api_variant;
typedef struct api_variants {
  api_variant list[API_MAX_VARIANTS];
  uint32_t n; /* 0: there is no choice */
  /* What to print of the program that is chosen: of the one as it is marked, and of these; NULL: nothing. */
  const char *shown[1 + API_MAX_VARIANTS];
} api_variants;

/* One run at a time uses it; the caller holds the lock. */
typedef struct api_executor {
  const allocator *memory;
  ir_func *host;
  api_variants variants;
  ir_func *tight;       /* the program as it takes least memory; NULL: it does so anyway */
  int64_t memory_limit; /* bytes of buffers per device; 0: none */
  int64_t plan_cache;   /* bytes of plans that are kept beside the one in use */
  /* What the model said of the last choice, at rank 0: of the program with its streams, and of what was taken
   * instead without them; 0: there was no choice, or they are used. */
  double streamed_ns, unstreamed_ns;
  /* What the plan that is looked for is for; set while a run or a question looks: by output the input whose memory
   * it is given, or -1; NULL: none. */
  const int64_t *donated;
  rt_device *device;
  uint64_t program;
  api_ranks ranks;
  api_machine machine; /* that choices are made for */
  uint32_t streams;
  bool keep_waits, dump_plan;
  api_plan *plans; /* the most recently used first */
  bool has_seed;   /* the last run's, which all processes have in common: */
  uint64_t seed;
  struct {
    int64_t runs, bindings, loads, in_place, copied, evicted, proofs;
  } counts;              /* so far */
  weir_profile *profile; /* the one that looks at a plan; it is told when that goes */
} api_executor;

typedef struct api_dump {
  bool fusion, host, nvfuser, plan;
} api_dump;

typedef struct api_executor_options {
  const char *device, *comm;
  uint32_t streams, threads;
  uint32_t devices; /* 0: as many as the program needs */
  int64_t timeout_s;
  host_pipeline pipeline;
  bool chooses;       /* between variants */
  bool deterministic; /* what is chosen changes no bits */
  api_variants variants;
  ir_func *tight;
  int64_t memory_limit, plan_cache;
  uint64_t program;  /* a hash of what all processes must have in common */
  int64_t adversary; /* a seed, or -1 */
  bool graph, tf32, link_host;
  const char *machine_name; /* "": sim's default, or this one */
  bool has_machine;
  rt_speed machine;
  rt_carrier carrier;
  rt_device_memory device_memory;
  rt_group *group; /* of the caller's world; NULL: as the launcher says */
  bool keep_waits; /* of a program written by hand, even where they order nothing */
  api_dump dump;   /* what to print to standard error */
} api_executor_options;

/* What the options say of it. (options.c) */
rt_device_memory api_device_memory(const weir_options *o);
rt_group *api_group_of(const weir_world *w);      /* (world.c) */
rt_group *api_world_group(const weir_options *o); /* NULL: none */
/* NULL: those of the environment. *proof: when to prove a plan before it runs. (program.c) */
weir_status api_read_options(const weir_options *o, api_executor_options *result,
                             const char **proof);
/* host NULL: only the device and the ranks. */
status api_executor_open(api_executor *x, ir_func *host, const api_executor_options *options,
                         const allocator *memory);
void api_executor_close(api_executor *x); /* accepts a zeroed one */
/* The preferred pipeline that the options name. */
/* By its word; false: there is none called so. */
bool api_find_pipeline(const char *word, host_pipeline *result);
weir_status api_read_pipeline(const weir_options *o, host_pipeline *result);

/* Plans that are kept, and the memory they take. */
void api_executor_kept(const api_executor *x, int64_t *plans, int64_t *bytes);

/* What a profile keeps of a run. */
struct weir_profile {
  api_executor *owner; /* of the plan */
  const rt_plan *plan; /* NULL: never filled, or the plan is gone */
  const char *device;
  rt_span *spans;
  uint32_t n_spans, room;
  uint32_t first_rank; /* the device of the plan's first rank */
  int64_t origin_ns;   /* of the spans, by this process's clock */
  rt_plan **world;  /* of a profile of all processes: their plans, which are its own, and which */
  uint32_t n_world; /* `plan` joins then; NULL and 0: of this process */
  uint32_t *path, path_len; /* of a virtual clock: the critical path's instructions */
  rt_stats stats;
};

/* The profile looks at no plan any more. */
void api_profile_release(weir_profile *p);
void api_profile_drop_world(weir_profile *p); /* (profile_world.c) */
/* What `rank` runs where `plan`, of this executor, is what the ranks of this process run; destroyed by the caller. */
status api_executor_bind_other(api_executor *x, const rt_plan *plan, uint32_t rank,
                               rt_plan **result);

/* The plans of all ranks for these extents, also of those that other processes run, bound on first use; or of
 * one, where all are alike. No memory is allocated for their buffers. */
status api_executor_bind(api_executor *x, const ir_env *env, const rt_plan *const **plans,
                         uint32_t *n);
/* Checks the plans of all ranks for these extents, also of those that other processes run, bound on first use;
 * no memory is allocated for their buffers. Of ranks that are alike one is bound, and stands for all. */
status api_executor_check(api_executor *x, const ir_env *env, const check_options *options,
                          check_world_report *report);
/* The plan of the ranks of this process, loaded on the device. */
status api_executor_plan(api_executor *x, const ir_env *env, rt_loaded **result);
/* Binds and loads the plan that a run would take. */
status api_executor_prepare(api_executor *x, const ir_env *env);
/* The pass that makes the variant which a run takes; NULL: it takes the program as it is marked. */
status api_executor_choose(api_executor *x, const ir_env *env, const char **pass);
/* The host program that runs with these extents take, or took. */
status api_executor_host(api_executor *x, const ir_env *env, ir_func **host);
/* The host program of the last plan that was bound or used, and its extents; NULL: there is none. */
ir_func *api_executor_last(const api_executor *x, arena *scratch, ir_env *env);
/* Devices that only tell how long it would take need no data, and leave outputs as they were. */
bool api_executor_computes(const api_executor *x);
/* One rank's plan of env->func; destroyed by the caller. */
status api_executor_bind_rank(api_executor *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* What a rank gets of the machine that choices are made for. */
rt_speed api_executor_speed(const api_executor *x);
/* One rank's plan of the variant without stream loops, if there is a choice; destroyed by the caller. */
status api_executor_bind_plain(api_executor *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* Can a run use this array, in memory of a device, where it is? It is one of the two lists, whole or a shard.
 * If not, *space is where a dense copy can be used. */
bool api_executor_takes(const api_executor *x, const ir_env *env, const api_arrays *inputs,
                        const api_arrays *outputs, const ir_array *a, uint32_t *space);
/* By output, which of those that are `donated` a run computes where their input is. */
status api_executor_donate(api_executor *x, const ir_env *env, const int64_t *donated,
                           bool *in_place);
/* Whether a run could; if not, `why` says what is in the way, and where. */
status api_executor_donation(api_executor *x, const ir_env *env, uint32_t input, uint32_t output,
                             check_alias_result *result);
/* Of one whole tensor for both: does every device of this process have the same part of it to itself, for reading
 * and for writing, contiguous in it? (donate.c) */
bool api_donate_whole(const api_executor *x, const ir_env *env, uint32_t input, uint32_t output,
                      const ir_array *whole);
/* Computes donated outputs where their inputs are, in the plans of all these ranks or, where one of them may not, in
 * none. (donate.c) */
status api_donate_plans(rt_plan *const *plans, uint32_t n, const int64_t *donated,
                        const allocator *memory, bool *in_place);
/* One run: on arrays of the bound shapes, of which those that are not dense go through a copy. Shards are for
 * several devices. */
typedef struct api_run {
  const api_arrays *inputs, *outputs;
  const int64_t *donated; /* as it was given to api_executor_donate(); NULL: none */
  uint64_t seed;
  weir_profile *profile;    /* NULL: none */
  const rt_stream *streams; /* of the caller's; the run is ordered by them */
  uint32_t n_streams;
  bool copies;         /* some of the arrays are copies, which the host makes or frees */
  rt_control *control; /* by which another thread stops it; NULL: nobody does */
} api_run;
status api_executor_run(api_executor *x, const ir_env *env, const api_run *run);

#endif
