/* What the files of the host parser share. Private to text/parser*.c.
 *
 * A name of a host program is visible from its statement to the end of its block. The function's table
 * of names holds what is visible at the moment: leaving a block takes its names out again. Names of
 * streams and of communications live in tables of their own, but no name is two things. A name of a
 * communication is visible to the end of the loop around it, also after the `if` that posts it. */
#ifndef WEIR_TEXT_PARSER_HOST_H
#define WEIR_TEXT_PARSER_HOST_H

#include "ir/host.h"
#include "text/parser.h"

/* The cuts of a parameter's dimension. They are made after all parameters have been read, because they may
 * name extents of later ones. */
typedef struct text_later {
  ir_axis axis;
  ir_mesh mesh;
  const ir_cut *cuts;
  uint32_t n_cuts;
} text_later;

/* An extent of a parameter, found by reading ahead. */
typedef struct text_ahead {
  uint32_t parameter; /* counted from 1 */
  uint32_t dim;
  text_token token;
  bool anonymous, named; /* `?`; a lone name */
  ir_scalar extent;      /* of `?` */
} text_ahead;

typedef struct text_loop {
  ir_scalar variable, extent;
} text_loop;

typedef struct text_host {
  VEC(uint32_t) names; /* declared in the open blocks, the innermost last */
  uint32_t scope;      /* where those of the innermost begin */
  map streams;         /* names that current_stream() gave */
  VEC(uint32_t) comms; /* communications posted in the open loops, the innermost last */
  map comm_names;      /* the same */
  VEC(text_later) later;
  uint32_t depth;      /* open blocks */
  uint32_t loops;      /* open loops */
  VEC(text_loop) open; /* the open loops, the innermost last */
  uint32_t skippable;  /* how many of them may run no iteration, depending on extents */
  bool unclosed;       /* a missing } has been reported */

  /* What reading ahead found: the cuts of a parameter may name extents that later ones declare. */
  VEC(text_ahead) ahead;
  map head;           /* their names and numbers, counted from 1 */
  uint32_t parameter; /* the one being read, 0 if none is */

  /* The operation being read: where it writes, and what has been built of it. */
  ir_tensor destination;
  VEC(ir_tensor) more; /* where it writes its further results */
  ir_op op;
  struct text_body *body; /* while a kernel is read (parser_host_body.c) */
} text_host;

/* ---- parser_host.c ---- */
/* The names are visible from here to the end of the block. */
void text_host_declare(text_parser *p, uint32_t name, ir_name_entry entry);
/* A stream may be named again in its block; false if the name is something else, which is reported. */
bool text_host_declare_stream(text_parser *p, const text_token *name);
/* Is the name taken? If so, that is reported. */
bool text_host_is_taken(text_parser *p, const text_token *name);

/* The names from number `names` on are not visible any more. */
void text_host_leave_scope(text_parser *p, uint32_t names);
/* Expects the } of a block that was opened at `opened`. */
void text_host_close_block(text_parser *p, loc opened, const char *what);

/* ---- parser_host_place.c: meshes of tensors, cuts of extents ---- */
/* `on d`, if it is here; else the mesh is none. False: it is wrong, which was reported. */
bool text_host_parse_on(text_parser *p, ir_mesh *mesh);
/* Declares the extents of all parameters, with the first of them in hand. */
void text_host_read_ahead(text_parser *p);
/* Can the cuts of the type just read be made? Reports those that cannot. */
bool text_host_cuts_fit(text_parser *p, ir_mesh mesh);
/* Puts a tensor of the type just read on the mesh. Its cuts are made `now`, or by text_host_place_later(). */
void text_host_place(text_parser *p, ir_tensor t, ir_mesh mesh, bool now);
void text_host_place_later(text_parser *p);
/* Puts a slice along `dim` on the mesh of the whole, with the same cuts of its other dimensions. */
void text_host_place_slice(text_parser *p, ir_tensor slice, ir_tensor from, uint32_t dim);

/* ---- parser_host_comm.c: communications ---- */
/* Is the word in hand the name of a communication? */
bool text_host_at_comm(const text_parser *p, ir_comm_kind *kind);
void text_host_suggest_comms(suggestion *s);
/* allgather(…), with the word in hand; `name` is the c of `c =` before it, NULL if there was none. */
void text_host_parse_comm(text_parser *p, const text_token *name, ir_block *block);
/* group_end(), with the word in hand and `c =` before it. */
void text_host_parse_group_end(text_parser *p, const text_token *name, ir_block *block);
/* wait(c), group_start(), send(…), recv(…). False: it is none of them, and nothing was consumed. */
bool text_host_parse_comm_action(text_parser *p, ir_block *block);
/* At the end of a loop: communications from number n on are not visible any more. */
void text_host_leave_comms(text_parser *p, uint32_t n);

/* ---- parser_host_step.c: statements without a body ---- */
void text_host_add(text_parser *p, ir_block *block, const ir_instr_data *d);
/* The tensor in hand; none when it is no tensor, which is reported. */
ir_tensor text_host_parse_tensor(text_parser *p);
/* Consumes the statement and appends it to `block` if it could be understood. */
void text_parse_host_step(text_parser *p, ir_block *block);
/* Checks the extents in p->extents and writes them into p->scalars. */
bool text_host_resolve_sizes(text_parser *p, const text_token *name);
/* `at [offsets] sliced [[dims], …]`, if it follows. Without `sliced` no operand is sliced. */
bool text_host_parse_window(text_parser *p, ir_instr_data *d);

/* ---- parser_host_slice.c ---- */
/* select(…) or shard(…), with the word in hand and `name =` before it. */
void text_host_parse_slice(text_parser *p, const text_token *name, ir_block *block);

/* ---- parser_host_body.c: kernels ---- */
/* kernel(…) { … } into the n tensors `to`, with the word in hand; `name` is the first destination's. */
void text_host_parse_kernel(text_parser *p, const text_token *name, const ir_tensor *to, uint32_t n,
                            ir_block *block);
/* What text_build() does inside a kernel: the operation gets a local. */
text_value text_body_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                           const ir_attr *attrs, loc at);

/* What text_build() does in a host program: the operation writes to the destination. */
text_value text_host_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                           const ir_attr *attrs, loc at);

#endif
