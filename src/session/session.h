/* A program on its device, for this process: bound to extents, proven, loaded, run.
 *
 * A session holds the host program with its variants, the device, this process's ranks, and plans,
 * cached by extents. One call at a time may use it: the caller holds a lock around every call. Nothing
 * here knows the public API; messages are left by fail() and in the module's diagnostics. */
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
  ir_func *tight;       /* the lowering that takes least memory; NULL: `host` does */
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
  bool has_seed;       /* there was a run; all processes have agreed on its seed: */
  uint64_t seed;
  struct {
    int64_t runs, bindings, loads, in_place, copied, evicted, proofs;
  } counts; /* so far */
  session_profile
      *profile; /* the profile that refers to a plan; it is released before the plan is destroyed */
  session_proof proof;
  session_proven proven[SESSION_MAX_PROVEN];
  uint32_t n_proven; /* so far */
} session;

typedef struct session_options {
  const char *device, *comm;
  uint32_t streams, threads;
  uint32_t devices; /* 0: as many as the program needs */
  int64_t timeout_s;
  bool deterministic; /* choices must not change the bits of results */
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
  bool keep_waits; /* those of a program written by hand, even if they order nothing */
  session_proof proof;
  bool dump_plan; /* to standard error */
} session_options;

/* host NULL: only the device and the ranks. */
NODISCARD status session_open(session *x, ir_func *host, const session_options *options,
                              const allocator *memory);
void session_close(session *x); /* accepts a zeroed one */

/* ---- choosing (session.c) ---- */
/* The share of the machine that a rank has, for choices. */
rt_speed session_speed(const session *x);
/* What the functions of `choose` know of the session; its function that binds is session_bind_rank(). */
choose_world session_world(session *x);
/* The choice for the run that env belongs to, with the predicted times to report. */
NODISCARD status session_told_choice(session *x, const ir_env *env, choose_choice *result);
/* The number of streams of the plan that ran last. If the memory limit made it smaller than the session's,
 * *too_large_bytes is the memory of buffers with all streams. */
uint32_t session_streams(const session *x, int64_t *too_large_bytes);
/* The pass that makes the variant that a run with these extents uses; NULL: the program as it is marked. */
NODISCARD status session_choose(session *x, const ir_env *env, const char **pass);

/* ---- plans (plans.c, load.c) ----
 * All of them bind on first use. */
/* How many plans are kept, and the bytes of their memory. */
void session_kept(const session *x, int64_t *plans, int64_t *bytes);
/* Binds the plans of all ranks for these extents, those of other processes too; only one if all are alike. No
 * memory is allocated for buffers. */
NODISCARD status session_bind(session *x, const ir_env *env, const rt_plan *const **plans,
                              uint32_t *n);
/* Binds the same plans and checks them. */
NODISCARD status session_check(session *x, const ir_env *env, const check_options *options,
                               check_world_report *report);
/* The same before the first run with these extents, if `proof` asks for it. If there are findings, the plan is
 * not safe. The caller destroys *found, which must be zeroed before. (prove.c) */
NODISCARD status session_prove(session *x, const ir_env *env, check_world_report *found);
void session_forget_proven(session *x);
/* The plan of the ranks of this process, loaded on the device. */
NODISCARD status session_load(session *x, const ir_env *env, rt_loaded **result);
/* The host program that a run with these extents uses. */
NODISCARD status session_host(session *x, const ir_env *env, ir_func **host);
/* The host program of the last plan that was bound or used, and its extents; NULL: there is none. */
ir_func *session_last(const session *x, arena *scratch, ir_env *env);
/* One rank's plan of env->func, without redundant waits; destroyed by the caller. `like`: the plan of another
 * rank, which may need the same waits; NULL: there is none. */
NODISCARD status session_bind_rank(session *x, const ir_env *env, uint32_t rank,
                                   const rt_plan *like, rt_plan **result);
/* The same with all waits, redundant ones too. */
NODISCARD status session_bind_waits(session *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* Without redundant waits, and with no other buffer in the memory of outputs. */
NODISCARD status session_bind_apart(session *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* The same for the variant without stream loops, if there is one. */
NODISCARD status session_bind_plain(session *x, const ir_env *env, uint32_t rank, rt_plan **result);
/* The plan of `rank`, in any process, that belongs to `plan`, which is what the ranks of this process run;
 * destroyed by the caller. */
NODISCARD status session_bind_other(session *x, const rt_plan *plan, uint32_t rank,
                                    rt_plan **result);

/* ---- donated inputs (donate.c) ----
 * `donated` has for each output the input whose memory it is given, or -1. */
/* Which of those outputs a run computes in the memory of their input. */
NODISCARD status session_donate(session *x, const ir_env *env, const int64_t *donated,
                                bool *in_place);
/* Could a run compute `output` in the memory of `input`? If not, *result says what is in the way, and where. */
NODISCARD status session_donation(session *x, const ir_env *env, uint32_t input, uint32_t output,
                                  check_alias_result *result);
/* For an input and output that are one whole tensor: does every device of this process read and write the same
 * part of it, which no other device has and which is contiguous in it? */
bool session_donate_whole(const session *x, const ir_env *env, uint32_t input, uint32_t output,
                          const ir_array *whole);

/* ---- running (run.c) ---- */
/* Can a run use array `a`, an entry of one of the two lists in a device's memory, in place? If not, *space is
 * the memory in which it can use a dense copy. */
bool session_takes(const session *x, const ir_env *env, const session_arrays *inputs,
                   const session_arrays *outputs, const ir_array *a, uint32_t *space);
/* One run, on arrays of the bound shapes. Arrays that are not dense are copied. Shards are for programs on
 * several devices. */
typedef struct session_run_args {
  const session_arrays *inputs, *outputs;
  const int64_t *donated; /* as it was given to session_donate(); NULL: none */
  uint64_t seed;
  session_profile *profile; /* NULL: none */
  const rt_stream *streams; /* of the caller's; the run is ordered by them */
  uint32_t n_streams;
  bool copies;         /* some of the arrays are copies that the host makes and frees */
  rt_control *control; /* by which another thread can stop it; NULL: none can */
} session_run_args;
NODISCARD status session_run(session *x, const ir_env *env, const session_run_args *run);

/* Does the device compute? Devices that only predict times need no data and leave outputs alone. */
bool session_computes(const session *x);

#endif
