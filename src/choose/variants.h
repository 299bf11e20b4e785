/* The programs among which a run chooses. */
#ifndef WEIR_CHOOSE_VARIANTS_H
#define WEIR_CHOOSE_VARIANTS_H

#include "choose/choose.h"

typedef struct choose_varied {
  ir_func *fusion;     /* scheduled */
  const ir_func *host; /* what it is lowered to as it is marked */
  bool deterministic;  /* what is chosen changes no bits */
  /* Lowers the fusion in the same way with one more optional pass. */
  status (*lower)(void *context, const char *pass, ir_func **result);
  void *context;
} choose_varied;

/* Lowers the fusion with other streams: of a program that has some, those of other forms and none; of one that has
 * none, or of whose marks no loop comes, those of passes slice-products, halve-products and slice-last. */
NODISCARD status choose_find_variants(const choose_varied *of, arena *scratch,
                                      choose_variants *result);

#endif
