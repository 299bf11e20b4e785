/* What the files of the host parser share. Private to text/parser*.c.
 *
 * A name of a host program is visible from its statement to the end of its block. The function's table
 * of names holds what is visible at the moment: leaving a block takes its names out again. Names of
 * streams live in a table of their own, but no name is both. */
#ifndef WEIR_TEXT_PARSER_HOST_H
#define WEIR_TEXT_PARSER_HOST_H

#include "ir/host.h"
#include "text/parser.h"

typedef struct text_host {
  VEC(uint32_t) names; /* declared in the open blocks, the innermost last */
  uint32_t scope;      /* where those of the innermost begin */
  map streams;         /* names that current_stream() gave */
  uint32_t depth;      /* open blocks */
  bool unclosed;       /* a missing } has been reported */

  /* The operation being read: where it writes, and what has been built of it. */
  ir_tensor destination;
  ir_op op;
} text_host;

/* ---- parser_host.c ---- */
/* The names are visible from here to the end of the block. */
void text_host_declare(text_parser *p, uint32_t name, ir_name_entry entry);
/* A stream may be named again in its block; false if the name is something else, which is reported. */
bool text_host_declare_stream(text_parser *p, const text_token *name);
/* Reports that the name stands for something already; it is then no definition. */
bool text_host_is_taken(text_parser *p, const text_token *name);

/* ---- parser_host_step.c: statements without a body ---- */
/* Consumes the statement and appends it to `block` if it could be understood. */
void text_parse_host_step(text_parser *p, ir_block *block);
/* What text_build() does in a host program: the operation writes to the destination. */
text_value text_host_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                           const ir_attr *attrs, loc at);

#endif
