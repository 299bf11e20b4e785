/* Compares outputs with the results of the definition. */
#ifndef WEIR_SESSION_JUDGE_H
#define WEIR_SESSION_JUDGE_H

#include "data/compare.h"
#include "ref/ref.h"

typedef struct session_judgement {
  double rtol;            /* 0: the tolerance follows from rounding (ref_spread()) */
  int64_t rows;           /* of each output, at random; 0: all */
  data_verdict *verdicts; /* one per output */
} session_judgement;

/* Judges `values`, the outputs of a run. */
NODISCARD status session_judge(const ir_env *env, const ir_array *inputs, const ir_array *values,
                               const ref_options *options, const session_judgement *j);

#endif
