/* Whether outputs are what the definition says. */
#ifndef WEIR_API_JUDGE_H
#define WEIR_API_JUDGE_H

#include "api/api.h"
#include "ref/ref.h"

typedef struct api_judgement {
  double rtol;  /* 0: by how results spread */
  int64_t rows; /* of each output, at random; 0: all */
  weir_verdict *verdicts;
} api_judgement;

/* `values` are the outputs to be judged. */
NODISCARD status api_judge(const ir_env *env, const ir_array *inputs, const ir_array *values,
                           const ref_options *options, const api_judgement *j);

#endif
