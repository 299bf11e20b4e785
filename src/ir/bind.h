/* Binding: from the shapes of the inputs to a value for every symbolic extent.
 *
 * Three sources give values: a name (-D t=6), all extents of a tensor (-D inp=6x32), and an input's
 * actual shape. The first value of a symbol counts; a later, different one is an error that names
 * both. Errors are diagnostics of the module. */
#ifndef WEIR_IR_BIND_H
#define WEIR_IR_BIND_H

#include "ir/ir.h"

typedef struct ir_env {
  ir_func *func;
  int64_t *symbols;  /* by symbol index; IR_UNBOUND where unknown */
  const char **from; /* what gave the value, for messages */
  uint32_t len;
} ir_env;

void ir_env_init(ir_env *env, ir_func *f, arena *memory);
bool ir_bind_name(ir_env *env, const char *name, int64_t value);
/* `from` says where the shape comes from ("-D inp=6x32", "x.npy"). */
bool ir_bind_shape(ir_env *env, ir_tensor input, const int64_t *extents, uint32_t rank,
                   const char *from);
/* Is everything bound? If not, reports one error that lists the extents without a value. */
bool ir_bind_complete(ir_env *env);
/* Checks the function's constraints (of a host program those that extents alone decide), the sizes of
 * device axes against their meshes, and that every tensor's bytes fit 63 bits. Needs a complete
 * environment. */
bool ir_bind_check(ir_env *env);

/* Value of a scalar in the environment; false when it cannot be computed. */
bool ir_env_eval(const ir_env *env, ir_scalar x, int64_t *value);
/* Dimensions of a tensor as the user sees them: no reductions, expanded sizes, and in a host program
 * the lengths over all devices. */
bool ir_env_shape(const ir_env *env, ir_tensor t, int64_t extents[IR_MAX_RANK], uint32_t *rank);

#endif
