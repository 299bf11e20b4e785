/* Whether outputs are what the definition says. */
#ifndef WEIR_SESSION_JUDGE_H
#define WEIR_SESSION_JUDGE_H

#include "ref/ref.h"
#include "runtime/compare.h"

typedef struct session_judgement {
  double rtol;          /* 0: by how results spread */
  int64_t rows;         /* of each output, at random; 0: all */
  rt_verdict *verdicts; /* by output; right: none is wrong */
} session_judgement;

/* `values` are the outputs to be judged. */
NODISCARD status session_judge(const ir_env *env, const ir_array *inputs, const ir_array *values,
                               const ref_options *options, const session_judgement *j);

#endif
