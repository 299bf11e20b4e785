/* A compiled program; shared by compiling, running and checking. */
#ifndef WEIR_API_PROGRAM_H
#define WEIR_API_PROGRAM_H

#include <pthread.h>

#include "api/execute.h"
#include "api/pending.h"
#include "check/check.h"
#include "host/host.h"

/* Extents for which the plan has been proven. */
typedef struct api_proven {
  int64_t *symbols; /* NULL: none */
  uint32_t len;
} api_proven;

enum { API_MAX_PROVEN = 256 }; /* beyond that, old ones are proven again */

/* CHEAP: if that takes about a millisecond at most, and this process runs all devices. */
typedef enum api_proof { API_PROOF_NEVER, API_PROOF_CHEAP, API_PROOF_ALWAYS } api_proof;

struct weir_program {
  /* What everything of the program comes from: the caller's, one call at a time, since compute threads and
   * the threads of communication allocate too. */
  allocator memory;
  allocator given;
  pthread_mutex_t memory_lock;
  int64_t n_allocations; /* so far; under memory_lock */
  ir_module ir;
  ir_func *func;         /* whose inputs and outputs the caller sees: a fusion or a host program */
  ir_func *definition;   /* the fusion; NULL for a host program that has none */
  api_executor executor; /* without a device: the reference evaluator executes */
  /* Binding reports to the module, and a device runs one plan at a time. The reference evaluator only
   * reads, so it runs outside the lock. */
  pthread_mutex_t lock;
  const char **labels; /* "input x", of all inputs and then all outputs, for messages */
  api_queue queue;     /* of runs that the caller does not wait for */
  arena scratch;       /* of runs on the device, under the lock: repeated runs find it warm */
  api_proof proof;     /* whether a plan is proven before its first run */
  api_proven proven[API_MAX_PROVEN];
  uint32_t n_proven; /* so far */
};

/* The optional pass that makes the variant of the fusion which a run with these options and shapes takes; NULL: it
 * takes the program as it is marked, or the shapes are not complete. (program.c) */
weir_status api_choose_pass(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                            const char **pass);

/* Binds the program to completed shapes of the fusion it was compiled from. The caller holds the lock, and
 * takes the diagnostics. (check.c) */
status api_bind_like(weir_program *p, const weir_shapes *shapes, arena *scratch, ir_env *env);

/* CHECK_FAILED, with all findings as the message, unless the plan for these extents is safe; each is
 * looked at once. The caller holds the lock and destroys *found, which must be zeroed. Only inside a
 * memory_guard(). (prove.c) */
status api_prove(weir_program *p, const ir_env *env, arena *scratch, check_world_report *found);
void api_forget_proven(weir_program *p);

#endif
