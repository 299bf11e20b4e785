/* The passes' entry points, as passes.def lists them. */
#ifndef WEIR_PASS_PASSES_H
#define WEIR_PASS_PASSES_H

#include "pass/pass.h"

#define PASS(name, run, level, use, needs, summary) status run(ir_func *f, pass_ctx *ctx);
#include "pass/passes.def"
#undef PASS

/* Drops operations that were needed only by one that is written differently now. */
status pass_drop_unused(ir_func *f, pass_ctx *ctx);

#endif
