/* Parses pieces of the language that callers of the public API give as text.
 *
 * Errors go to the module's diagnostics without a place: the message quotes the text instead. */
#ifndef WEIR_TEXT_FRAGMENT_H
#define WEIR_TEXT_FRAGMENT_H

#include "ir/ir.h"

/* Is `text` a name that the language can write? */
bool text_is_name(ir_module *m, const char *text);

/* An integer expression ("a * b"); none when it is wrong. */
ir_scalar text_fragment_scalar(ir_func *f, const char *text);
/* Lists: "[a * b, 4]", "[0, -1]", "[true, false]". In the module's arena. */
bool text_fragment_scalars(ir_func *f, const char *text, const ir_scalar **list, uint32_t *n);
bool text_fragment_ints(ir_func *f, const char *text, const int64_t **list, uint32_t *n);
bool text_fragment_bools(ir_func *f, const char *text, const int64_t **list, uint32_t *n);
/* The factor of a split, written into the statement: "3", "n / 2", a mesh "d", its axis "g.x". */
bool text_fragment_factor(ir_func *f, const char *text, ir_stmt *stmt);
/* "x", "y", … or "mesh.x", …: an axis of a mesh. */
bool text_fragment_mesh_axis(ir_func *f, const char *text, uint32_t *axis);

#endif
