/* Random cases of every op and dtype, for the tests of kernels: each seed is one case, which its failure names. The test
 * says what is done with a case: run_case(). */
#ifndef WEIR_TESTS_CONFORM_KERNEL_SEEDS_H
#define WEIR_TESTS_CONFORM_KERNEL_SEEDS_H

#include "conform/kernel_cases.h"

static void run_case(testcase *t, ir_opcode code);

typedef struct job {
  ir_opcode code;
  ir_dtype dtype;
} job;

static status run_job(void *context) {
  const job *j = context;
  testcase t = {.p = {.dtype = j->dtype}};
  ir_module_init(&t.module, &memory_default);
  run_case(&t, j->code);
  ir_module_destroy(&t.module);
  return STATUS_OK;
}

static void run_seed(uint64_t seed, ir_opcode code, ir_dtype dtype) {
  job j = {code, dtype};
  rng_state = (seed << 32) + ((uint64_t)code << 24) + ((uint64_t)dtype << 16);
  unsigned before = test_failed;
  arena_init(&memory, &memory_default);
  (void)EXPECT(memory_guard(run_job, &j) == STATUS_OK);
  arena_destroy(&memory);
  if (test_failed != before)
    fprintf(stderr, "seed %llu, %s, %s\n", (unsigned long long)seed, ir_op_info_of(code)->name,
            ir_dtype_text(dtype));
}

static void run_seeds(uint64_t first, uint64_t seeds) {
  for (uint64_t seed = first; seed < first + seeds; seed++)
    for (int code = 1; code < IR_OP_COUNT; code++)
      for (int t = 1; t < IR_DTYPE_COUNT; t++) run_seed(seed, (ir_opcode)code, (ir_dtype)t);
}

#endif
