/* The programs among which a run chooses. */
#ifndef WEIR_API_VARIANTS_H
#define WEIR_API_VARIANTS_H

#include "api/passes.h"
#include "choose/choose.h"

typedef struct api_varied {
  ir_func *fusion; /* scheduled */
  const ir_func *host;
  const pass_request *request; /* that made the host program */
  bool deterministic;          /* what is chosen changes no bits */
} api_varied;

/* Lowers the fusion with other streams: of a program that has some, those of other forms and none; of one that has
 * none, those of passes slice-products and halve-products. */
NODISCARD status api_find_variants(const api_varied *of, arena *scratch, choose_variants *result);

#endif
