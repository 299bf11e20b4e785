/* Planted mistakes, for `make mutants`.
 *
 * MUTANT("name") stands where a decision is made and is false in every ordinary build. With
 * -DWEIR_MUTANTS=ON it is true when the environment has WEIR_MUTANT=name; the tests must then fail,
 * which shows that they test something. tests/mutants/list.txt says what each one breaks. */
#ifndef WEIR_BASE_MUTANT_H
#define WEIR_BASE_MUTANT_H

#ifdef WEIR_MUTANTS
#include <stdbool.h>
bool mutant_is(const char *name);
#define MUTANT(name) mutant_is(name)
#else
#define MUTANT(name) false
#endif

#endif
