/* The CPU kernels against the reference evaluator.
 *
 * Random one-operation programs for every op and dtype. Each is evaluated whole by ref_eval; then the
 * kernel computes the whole and random windows of it, with operands and results of all kinds of
 * strides, operands cut to the window or not, with and without the libraries. The window must agree
 * within the language's tolerance and nothing outside of it may be touched.
 *
 *   test_kernels [first seed] [seeds per op and dtype] */
#include <stdlib.h>
#include <string.h>

#include "conform/kernel_seeds.h"
#include "device/cpu/kernels.h"
#include "device/cpu/loops/loops.h"

enum { WINDOWS = 4 };

static bool met[IR_OP_COUNT][IR_DTYPE_COUNT], refused[IR_OP_COUNT][IR_DTYPE_COUNT];
static uint64_t n_windows;

/* ---- running and comparing ---- */
static status run_task(const rt_plan *plan, const rt_task *task, char *const *bases) {
  const cpu_kernel *k;
  status_clear();
  TRY(cpu_kernel_prepare(plan, task, &memory, &k));
  size_t bytes = cpu_kernel_scratch_bytes(k);
  char *room = malloc(bytes + CPU_SCRATCH_ALIGN);
  check(room != NULL);
  memset(room, 0xff, bytes + CPU_SCRATCH_ALIGN); /* NaN: nothing may depend on it */
  char *scratch = room + (CPU_SCRATCH_ALIGN - (uintptr_t)room % CPU_SCRATCH_ALIGN);
  char **starts = ARENA_ARRAY(&memory, cpu_kernel_n_starts(task), char *);
  cpu_kernel_starts(plan, task, bases, starts);
  status st = cpu_kernel_run(k, starts, bytes ? scratch : NULL);
  free(room);
  return st;
}

/* Any level that the processor has. */
static void choose_level(void) {
  static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  if (!cpu_vectors_choose(levels[below(4)])) check(cpu_vectors_choose("baseline"));
}

static void run_case(testcase *t, ir_opcode code) {
  ir_dtype dtype = t->p.dtype;
  if (!build(t, code)) {
    refused[code][dtype] = true;
    return;
  }
  if (!evaluate(t)) return; /* amax of nothing, and the like */
  met[code][dtype] = true;
  for (int i = 0; i < WINDOWS; i++, n_windows++) {
    window w = random_window(&t->expected, i == 0);
    choose_level();
    if (!EXPECT(run_window(t, &w))) fprintf(stderr, "level: %s\n", cpu_vectors()->name);
  }
}

/* ---- what must be refused, and what must be covered ---- */
static bool may_refuse(const ir_op_info *info, ir_dtype t) {
  bool is_bool = t == IR_BOOL;
  if (info->rule == IR_RESULT_NUMBER) return is_bool;
  if (info->rule == IR_RESULT_BITS) return ir_dtype_is_float(t);
  if (info->family == IR_FAMILY_SDPA_BACKWARD) return !ir_dtype_is_float(t);
  return is_bool &&
         (info->family == IR_FAMILY_MATMUL || info->family == IR_FAMILY_LINEAR ||
          info->family == IR_FAMILY_GROUPED_MATMUL || info->family == IR_FAMILY_GROUPED_OUTER);
}

static void expect_coverage(void) {
  for (int code = 1; code < IR_OP_COUNT; code++)
    for (int t = 1; t < IR_DTYPE_COUNT; t++) {
      const ir_op_info *info = ir_op_info_of((ir_opcode)code);
      bool ok = met[code][t] || (refused[code][t] && may_refuse(info, (ir_dtype)t));
      if (!EXPECT(ok)) fprintf(stderr, "%s of %s\n", info->name, ir_dtype_text((ir_dtype)t));
    }
}

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 8;
  run_seeds(first, seeds);
  if (seeds >= 8) expect_coverage();
  expect_errors();
  expect_rounding();
  printf("%llu windows, operands cut %llu times\n", (unsigned long long)n_windows,
         (unsigned long long)n_cut);
  return test_finish();
}
