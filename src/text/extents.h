/* Names for extents that would be too long to write out. Private to text/.
 *
 * Scalars share their parts in memory, but not in text: in a chain of slices or pads the text of the extents
 * doubles with every step. So parts of large extents get names, which are declared before their use:
 *
 *     extent e0 = max(0, n - 2) + ceildiv(max(0, n - 2), 2)
 *     extent e1 = e0 + ceildiv(e0, 2)
 *
 * A name stands for the scalar itself, so the text parses back to the same program. */
#ifndef WEIR_TEXT_EXTENTS_H
#define WEIR_TEXT_EXTENTS_H

#include "ir/ir.h"

/* Prints a program by calling put(context, out). Where it meets large scalars it does so twice: first to
 * find them, then with names, which `put` declares by text_put_extents(). */
typedef void (*text_put_program)(void *context, strbuf *out);
void text_print_named(const ir_func *f, text_put_program put, void *context, strbuf *out);

/* A line for each name; nothing if there are none. */
void text_put_extents(const ir_func *f, strbuf *out);

/* Between these two calls nothing is printed by name: all extents are written out. */
ir_scalar_names *text_begin_unnamed(const ir_func *f, ir_scalar_names *none);
void text_end_unnamed(const ir_func *f, ir_scalar_names *names);

#endif
