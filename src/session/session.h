/* A program on its device, for this process: bound to extents, proven, loaded, run.
 *
 * A session holds the host program with its variants, the device, this process's ranks, and plans,
 * cached by extents. The caller holds a lock around every call: one at a time uses it. Nothing here
 * knows the public API; messages are left by fail() and in the module's diagnostics. */
#ifndef WEIR_SESSION_SESSION_H
#define WEIR_SESSION_SESSION_H

#include "check/check.h"
#include "choose/choose.h"
#include "host/host.h"
#include "ir/bind.h"
#include "runtime/control.h"
#include "runtime/device.h"
#include "session/machine.h"
#include "session/ranks.h"

typedef struct session_plan session_plan;       /* session/plans.h */
typedef struct session_profile session_profile; /* session/profile.h */

/* When a plan is proven before it runs. CHEAP: if that takes about a millisecond at most, and this
 * process runs all devices. */
typedef enum session_proof {
  SESSION_PROOF_NEVER,
  SESSION_PROOF_CHEAP,
  SESSION_PROOF_ALWAYS
} session_proof;

/* Extents for which the plan has been proven. */
typedef struct session_proven {
  int64_t *symbols; /* NULL: none */
  uint32_t len;
} session_proven;

enum { SESSION_MAX_PROVEN = 256 }; /* beyond that, old ones are proven again */

typedef struct session {
  const allocator *memory;
  ir_func *host;
  choose_variants variants;
  ir_func *tight;       /* the program as it takes least memory; NULL: it does so anyway */
  int64_t memory_limit; /* bytes of buffers per device; 0: none */
  int64_t plan_cache;   /* bytes of plans that are kept beside the one in use */
  choose_choice choice; /* the last one; its times only at rank 0 */
  rt_device *device;
  uint64_t program;
  session_ranks ranks;
  session_machine machine; /* that choices are made for */
  uint32_t streams;
  bool keep_waits, dump_plan;
  session_plan *plans; /* the most recently used first */
  bool has_seed;       /* the last run's, which all processes have in common: */
  uint64_t seed;
  struct {
    int64_t runs, bindings, loads, in_place, copied, evicted, proofs;
  } counts;                 /* so far */
  session_profile *profile; /* the one that looks at a plan; it is told when that goes */
  session_proof proof;
  session_proven proven[SESSION_MAX_PROVEN];
  uint32_t n_proven; /* so far */
} session;

typedef struct session_options {
  const char *device, *comm;
  uint32_t streams, threads;
  uint32_t devices; /* 0: as many as the program needs */
  int64_t timeout_s;
  bool deterministic; /* what is chosen changes no bits */
  choose_variants variants;
  ir_func *tight;
  int64_t memory_limit, plan_cache;
  uint64_t program;  /* a hash of what all processes must have in common */
  int64_t adversary; /* a seed, or -1 */
  bool graph, tf32, link_host;
  bool has_machine;
  rt_speed machine;
  rt_carrier carrier;
  rt_device_memory device_memory;
  rt_group *group; /* of the caller's world; NULL: as the launcher says */
  bool keep_waits; /* of a program written by hand, even where they order nothing */
  session_proof proof;
  bool dump_plan; /* to standard error */
} session_options;

/* host NULL: only the device and the ranks. */
NODISCARD status session_open(session *x, ir_func *host, const session_options *options,
                              const allocator *memory);
void session_close(session *x); /* accepts a zeroed one */

/* ---- choosing (session.c) ---- */
/* What a rank gets of the machine that choices are made for. */
rt_speed session_speed(const session *x);
/* For the functions of `choose`; binds with session_bind_rank(). */
choose_world session_world(session *x);
/* The streams of the plan that ran last. If they are fewer than the session's, because of the limit of
 * memory, *too_large_bytes is what buffers would take with these. */
uint32_t session_streams(const session *x, int64_t *too_large_bytes);
/* The pass that makes the variant which a run takes; NULL: it takes the program as it is marked. */
NODISCARD status session_choose(session *x, const ir_env *env, const char **pass);

/* ---- plans (plans.c, load.c) ----
 * All of them bind on first use. */
/* Plans that are kept, and the memory they take. */
void session_kept(const session *x, int64_t *plans, int64_t *bytes);
/* The plans of all ranks for these extents, also of those that other processes run; or of one,
 * where all are alike. No memory is allocated for their buffers. */
NODISCARD status session_bind(session *x, const ir_env *env, const rt_plan *const **plans,
                              uint32_t *n);
/* Checks the plans of all ranks for these extents, also of those that other processes run; no
 * memory is allocated for their buffers. Of ranks that are alike one is bound, and represents
 * all. */
NODISCARD status session_check(session *x, const ir_env *env, const check_options *options,
                               check_world_report *report);
/* Checks them before their first run, as `proof` says: each is looked at once. If there are
 * findings, the plan is not safe. The caller destroys *found, which must be zeroed. (prove.c) */
NODISCARD status session_prove(session *x, const ir_env *env, check_world_report *found);
void session_forget_proven(session *x);
/* The plan of the ranks of this process, loaded on the device. */
NODISCARD status session_load(session *x, const ir_env *env, rt_loaded **result);
/* The host program that runs with these extents take, or took. */
NODISCARD status session_host(session *x, const ir_env *env, ir_func **host);
/* The host program of the last plan that was bound or used, and its extents; NULL: there is none. */
ir_func *session_last(const session *x, arena *scratch, ir_env *env);
/* One rank's plan of env->func; destroyed by the caller. `like`: that of another rank, which may
 * need the same waits; NULL: there is none. */
NODISCARD status session_bind_rank(session *x, const ir_env *env, uint32_t rank,
                                   const rt_plan *like, rt_plan **result);
/* The same with all its waits, also those that it can do without. */
NODISCARD status session_bind_waits(session *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* Without those that it can do without, and with nothing in the memory of outputs but them. */
NODISCARD status session_bind_apart(session *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* The same of the variant without stream loops, if there is a choice. */
NODISCARD status session_bind_plain(session *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* What `rank` runs where `plan`, of this session, is what the ranks of this process run; destroyed
 * by the caller. */
NODISCARD status session_bind_other(session *x, const rt_plan *plan, uint32_t rank,
                                    rt_plan **result);

/* ---- donated inputs (donate.c) ----
 * `donated` has by output the input whose memory it is given, or -1. */
/* By output, which of those a run computes where their input is. */
NODISCARD status session_donate(session *x, const ir_env *env, const int64_t *donated,
                                bool *in_place);
/* Whether a run could; if not, `why` says what is in the way, and where. */
NODISCARD status session_donation(session *x, const ir_env *env, uint32_t input, uint32_t output,
                                  check_alias_result *result);
/* Of one whole tensor for both: does every device of this process have the same part of it to
 * itself, for reading and for writing, contiguous in it? */
bool session_donate_whole(const session *x, const ir_env *env, uint32_t input, uint32_t output,
                          const ir_array *whole);

/* ---- running (run.c) ---- */
/* Can a run use this array, in memory of a device, where it is? It is one of the two lists, whole or a shard.
 * If not, *space is where a dense copy can be used. */
bool session_takes(const session *x, const ir_env *env, const session_arrays *inputs,
                   const session_arrays *outputs, const ir_array *a, uint32_t *space);
/* One run: on arrays of the bound shapes, of which those that are not dense go through a copy. Shards are for
 * several devices. */
typedef struct session_run_args {
  const session_arrays *inputs, *outputs;
  const int64_t *donated; /* as it was given to session_donate(); NULL: none */
  uint64_t seed;
  session_profile *profile; /* NULL: none */
  const rt_stream *streams; /* of the caller's; the run is ordered by them */
  uint32_t n_streams;
  bool copies;         /* some of the arrays are copies, which the host makes or frees */
  rt_control *control; /* by which another thread stops it; NULL: none does */
} session_run_args;
NODISCARD status session_run(session *x, const ir_env *env, const session_run_args *run);

/* Devices that only tell how long it would take need no data, and leave outputs as they were. */
bool session_computes(const session *x);

#endif
