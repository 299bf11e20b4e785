#include "base/mutant.h"

#ifdef WEIR_MUTANTS
#include <stdlib.h>
#include <string.h>

bool mutant_is(const char *name) {
  const char *chosen = getenv("WEIR_MUTANT");
  return chosen && strcmp(chosen, name) == 0;
}
#endif
