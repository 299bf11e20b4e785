/* A compiled program; shared by compiling, running and checking. */
#ifndef WEIR_API_PROGRAM_H
#define WEIR_API_PROGRAM_H

#include <pthread.h>

#include "api/execute.h"

struct weir_program {
  allocator memory;
  ir_module ir;
  ir_func *func;         /* whose inputs and outputs the caller sees: a fusion or a host program */
  ir_func *definition;   /* the fusion; NULL for a host program that has none */
  api_executor executor; /* without a device: the reference evaluator executes */
  /* Binding reports to the module, and a device runs one plan at a time. The reference evaluator only
   * reads, so it runs outside the lock. */
  pthread_mutex_t lock;
  arena scratch; /* of runs on the device, under the lock: repeated runs find it warm */
};

/* The options a program is compiled with; NULL: the defaults. */
weir_status api_read_options(const weir_options *o, api_executor_options *result);

#endif
