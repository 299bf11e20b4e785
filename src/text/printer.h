/* What the files of the printer share. Private to text/printer*.c. */
#ifndef WEIR_TEXT_PRINTER_H
#define WEIR_TEXT_PRINTER_H

#include "ir/ir.h"

void text_put_ints(const int64_t *list, uint32_t n, strbuf *out);
/* A scalar that is none prints as `?`. */
void text_put_scalars(const ir_func *f, const ir_scalar *list, uint32_t n, strbuf *out);
/* "mesh d = [2] of {5, 2}" */
void text_put_mesh(const ir_func *f, const ir_mesh_data *m, strbuf *out);
/* "x", "y", "z", then "3", "4" */
void text_put_mesh_axis(uint32_t axis, strbuf *out);
/* " : f32[a, 4]" */
void text_put_type(const ir_func *f, ir_dtype dtype, const ir_scalar *extents, uint32_t rank,
                   strbuf *out);
/* "add(x, 2)" or "x + 2": the right side of a definition. */
void text_put_expression(const ir_func *f, const ir_op_data *o, strbuf *out);

#endif
