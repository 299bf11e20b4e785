/* Building a fusion: what the parser, the public API and the passes call.
 *
 * Each function checks its arguments and reports what is wrong to the module's diagnostics at `at`;
 * it then returns "none" and leaves the function as it was. */
#ifndef WEIR_IR_BUILD_H
#define WEIR_IR_BUILD_H

#include "ir/ir.h"

/* A new function that the module does not list, as a fusion's host program. */
ir_func *ir_build_unlisted(ir_module *m, ir_func_kind kind, uint32_t name, loc at);
/* A new function of the module. */
ir_func *ir_build_func(ir_module *m, ir_func_kind kind, uint32_t name, loc at);
/* The module's function of that kind and name; NULL: there is none. */
ir_func *ir_build_find(const ir_module *m, ir_func_kind kind, uint32_t name);

/* Is the name free in `f`? If not, an error says what has it. */
bool ir_build_name_is_free(ir_func *f, uint32_t name, loc at);

/* devices == NULL: 0, 1, 2, … */
ir_mesh ir_build_mesh(ir_func *f, uint32_t name, const int64_t *shape, uint32_t rank,
                      const int64_t *devices, int64_t n_devices, loc at);

/* A copy that a pass may change as it likes: it is not listed in the module, shares the symbols and the
 * handles of `f`, and keeps its scheduled view. */
ir_func *ir_func_copy(const ir_func *f);
/* After `*copy = *f`: gives the copy tables of its own in `memory`. Lists inside their records stay
 * shared. */
void ir_func_own_tables(ir_func *f, arena *memory);
/* A copy in another module, which must be empty and may outlive that of `f`: as if the text of `f` had been
 * parsed there, but messages still point to the source that `f` came from. A host program is copied together
 * with its fusion. The scheduled view and reasons are not copied: they can be derived again. Names keep
 * their ids; only the scalars that are used are copied. */
ir_func *ir_func_copy_to(const ir_func *f, ir_module *to, arena *scratch);

/* The scalar of a named extent, declared on first use. */
ir_scalar ir_build_extent(ir_func *f, uint32_t name, loc at);
/* An extent is a constant >= 0 or a symbol; none means `?`, an anonymous symbol. */
ir_tensor ir_build_input(ir_func *f, uint32_t name, ir_dtype dtype, const ir_scalar *extents,
                         uint32_t rank, loc at);

/* A number in an expression. */
ir_tensor ir_build_number(ir_func *f, ir_number n, loc at);
/* An extent used as a value: an integer. */
ir_tensor ir_build_extent_value(ir_func *f, ir_scalar x, loc at);

/* Appends an operation. operands: one per tensor param (none where left out), for a TENSORS param as
 * many as there are; attrs: one per attribute param, `given` false where left out. Infers dtype and
 * domains. name 0: the caller names the result later with ir_build_name(). */
ir_tensor ir_build_op(ir_func *f, ir_opcode code, const ir_tensor *operands, uint32_t n_operands,
                      const ir_attr *attrs, uint32_t name, loc at);
/* Adds further results to the operation that defines `first`, `n` of those that it can have, and names them. */
bool ir_build_more(ir_func *f, ir_tensor first, const uint32_t *names, uint32_t n, loc at);
/* The attributes with defaults in place of those left out, so readers need not look at the table. */
const ir_attr *ir_attrs_complete(ir_func *f, const ir_op_info *info, const ir_attr *given);
bool ir_build_name(ir_func *f, ir_tensor t, uint32_t name, loc at);
/* Makes the operation read `instead[t]` in place of operand t, where that is not none. Its list of operands
 * may be shared with others, so it gets a new one. */
void ir_op_redirect(ir_func *f, ir_op_data *op, const ir_tensor *instead);

/* States the type of `t`, which is checked; an extent that is none means `?`. */
bool ir_build_stated(ir_func *f, ir_tensor t, ir_dtype dtype, const ir_scalar *extents,
                     uint32_t rank, loc at);
bool ir_build_output(ir_func *f, ir_tensor t, loc at);
/* Records a statement of the schedule, unapplied. */
void ir_build_stmt(ir_func *f, const ir_stmt *stmt);

/* ---- for infer and schedule: axes and domains ---- */
ir_axis ir_axis_new(ir_func *f, ir_axis_kind kind, ir_scalar extent);
/* A new axis like `a`, without its history and mark. */
ir_axis ir_axis_copy(ir_func *f, ir_axis a);
ir_transform ir_transform_new(ir_func *f, const ir_transform_data *data);
ir_axes ir_axes_new(ir_func *f, const ir_axis *axes, uint32_t n);
/* Default density: TRUE, and NONE on broadcast and reduction axes. */
const uint8_t *ir_dense_default(ir_func *f, ir_axes allocation);
/* Adds a constraint, which is checked when extents are bound; `what` names it in the message. */
void ir_require(ir_func *f, ir_constraint_kind kind, ir_scalar a, ir_scalar b, const char *what,
                loc at);

/* Drops the scheduled view: removes derived objects, clears marks, meshes and memory. */
void ir_func_unschedule(ir_func *f);

/* Call it after removing operations from `order`: their results lose their names, and what they asserted
 * about extents is forgotten. */
void ir_func_forget_unused(ir_func *f);
/* The same, but what the removed operations asserted still holds: others compute the same results. */
void ir_func_forget_repeated(ir_func *f);

#endif
