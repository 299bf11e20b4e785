/* Checks every invariant of a function and reports what is broken to the module's diagnostics:
 * definition before use, operand kinds and arity against the table, inferred types against stored
 * ones, domains derivable from the logical domain, density flags, marks (no axis of a mesh used
 * twice, mesh axes that exist, sizes), names. Used after parsing and after every pass. */
#ifndef WEIR_IR_VERIFY_H
#define WEIR_IR_VERIFY_H

#include "ir/ir.h"

bool ir_verify(ir_func *f);

#endif
