/* A compiled program; shared by compiling, running and checking. */
#ifndef WEIR_API_PROGRAM_H
#define WEIR_API_PROGRAM_H

#include <pthread.h>

#include "api/pending.h"
#include "check/check.h"
#include "host/host.h"
#include "session/queue.h"
#include "session/session.h"

/* What to print to standard error (option dump). */
typedef struct api_dump {
  bool fusion, host, nvfuser;
} api_dump;

/* What the options say about compiling and running. Strings in it outlive the options. */
typedef struct api_options {
  session_options session;
  host_pipeline pipeline;
  bool chooses;             /* among variants: --pipeline auto */
  const char *machine_name; /* "": this machine, or on sim a default one */
  const char *proof;        /* when to prove a plan before it runs: auto, always or never */
  api_dump dump;
} api_options;

/* NULL: those of the environment. (settings.c) */
weir_status api_read_options(const weir_options *o, api_options *result);
/* The pipeline called `word`; false: there is none. */
bool api_find_pipeline(const char *word, host_pipeline *result);
/* The one that the options name. */
weir_status api_read_pipeline(const weir_options *o, host_pipeline *result);

struct weir_program {
  /* All memory of the program comes from `memory`, which calls the caller's allocator `given` under a lock: compute
   * threads and threads of communication allocate too. */
  allocator memory;
  allocator given;
  pthread_mutex_t memory_lock;
  int64_t n_allocations; /* so far; under memory_lock */
  ir_module ir;
  ir_func *func; /* a fusion or host program: its inputs and outputs are those of the program */
  ir_func *definition; /* the fusion; NULL for a host program that has none */
  session session;     /* without a device: the reference evaluator executes */
  /* Binding reports to the module, and a device runs one plan at a time. The reference evaluator only
   * reads, so it runs outside the lock. */
  pthread_mutex_t lock;
  const char **labels; /* "input x", of all inputs and then all outputs, for messages */
  int64_t *held;       /* extents that passed ir_bind_check() last, under the lock */
  uint32_t n_held, most_held;
  session_queue queue; /* of runs begun by weir_run_async() */
  uint32_t process;    /* the one that compiled it, and has its threads (base/process.h) */
  arena scratch; /* of runs on the device, under the lock; kept between runs, to allocate nothing */
};

/* A run with these options and shapes takes some variant of the fusion: the optional pass that makes it.
 * NULL: it takes the program as it is marked, or the shapes are not complete. (program.c) */
weir_status api_choose_pass(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                            const char **pass);

/* Refuses a program that was compiled before a fork(). (program.c) */
weir_status api_check_process(const weir_program *p);

/* Asks a program something: runs the body under the program's lock, with a scratch arena and a
 * guard; diagnostics of the program become the message. (ask.c) */
weir_status api_ask(const weir_program *p, api_body body, void *context);

/* Binds the program to completed shapes of the fusion it was compiled from. The caller holds the lock, and
 * takes the diagnostics. (ask.c) */
status api_bind_like(weir_program *p, const weir_shapes *shapes, arena *scratch, ir_env *env);

/* Returns CHECK_FAILED, with all findings as the message. Needs a memory_guard(). (ask.c) */
status api_unsafe(const check_world_report *found, arena *scratch);

#endif
