/* The reference evaluator: the meaning of every operation, slow and obvious.
 *
 * It evaluates the definition of a fusion and ignores its schedule; every pass, backend and schedule
 * is measured against it. Each result is rounded to its dtype. Sums and products accumulate in f64,
 * or, on request, in the dtype's own accumulator (f32 for f32, f16 and bf16), as devices do. */
#ifndef WEIR_REF_REF_H
#define WEIR_REF_REF_H

#include "ir/array.h"
#include "ir/bind.h"

typedef struct ref_options {
  bool native_accumulate; /* accumulate as a device would, not in f64 */
  bool scheduled;         /* evaluate the scheduled view (operations after rfactor) */
  uint64_t seed;          /* of uniform() */
  uint32_t threads;       /* 0: one per core */
  const allocator *memory;
  /* To evaluate a sample only, made by ref_sample(): by tensor, a flag for each row (a position of all dimensions
   * but the last) that is needed; NULL: all rows of that tensor. Other rows may hold anything. NULL: everything
   * is needed. */
  const uint8_t *const *rows;
} ref_options;

/* The rows of all tensors that `n` random rows of each output need. Needs a memory_guard(). (sample.c) */
const uint8_t *const *ref_sample(const ir_env *env, int64_t n, uint64_t seed, arena *memory);

/* Evaluates with the extents of `env` (complete and checked). inputs: one array per fusion input, of
 * the bound shape, any strides. outputs: one array per fusion output, of the bound shape, memory
 * provided by the caller, any strides; written only on success. Intermediate results are allocated
 * from options->memory and freed after their last use.
 *
 * An index out of range (gather, scatter, index_select, one_hot, select) is STATUS_BAD_PROGRAM with
 * a message that names the operation and the value. */
NODISCARD status ref_eval(const ir_env *env, const ir_array *inputs, const ir_array *outputs,
                          const ref_options *options);

/* ---- how well conditioned a result is (spread.c) ----
 * The definition is evaluated ref_lanes() times more, in f64 and with random errors of the size that devices
 * make where they round: in every result of its dtype, in sums of its accumulator, in functions a few units.
 * How far these results are from the reference says how far a correct result may be.
 *
 * squares: one array per output, dense, with one double per element: the mean square of the distances. It is
 * written on success. `round` picks the random errors: others for every round. Where results are decided by
 * a comparison, a sort or a conversion to an integer, errors are REF_DECIDES times as large, so that a
 * decision that rounding can change is changed in some of the lanes. */
enum { REF_LANES = 12, REF_DECIDES = 4 };
/* REF_LANES; fewer if all tensors together are so large that they would need several GiB. */
uint32_t ref_lanes(const ir_env *env);
NODISCARD status ref_spread(const ir_env *env, const ir_array *inputs, const ir_array *outputs,
                            double *const *squares, uint64_t round, const ref_options *options);

/* A lower bound of the spread, for the price of one evaluation: only what the operation that makes an output
 * rounds itself. `squares` must be zero before. */
NODISCARD status ref_own_spread(const ir_env *env, const ir_array *inputs, const ir_array *outputs,
                                double *const *squares, const ref_options *options);
/* Does an operation turn floats into decisions? Then a few lanes may be far from the reference, and the others
 * not at all. */
bool ref_decides(const ir_env *env);
/* Is every output made by an operation that rounds? If not, ref_own_spread() says nothing. */
bool ref_outputs_round(const ir_env *env);

#endif
