/* The passes' entry points, as passes.def lists them. */
#ifndef WEIR_PASS_PASSES_H
#define WEIR_PASS_PASSES_H

#include "pass/pass.h"

#define PASS(name, run, level, use, needs, summary) status run(ir_func *f, pass_ctx *ctx);
#include "pass/passes.def"
#undef PASS

/* The machine that communications are ordered for, of the options; false: it is not known. */
struct order_machine;
bool pass_order_machine(const pass_ctx *ctx, struct order_machine *result);
/* Drops operations that were needed only by one that is written differently now. */
status pass_drop_unused(ir_func *f, pass_ctx *ctx);

#endif
