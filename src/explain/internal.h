/* What the files of explain/ share. */
#ifndef WEIR_EXPLAIN_INTERNAL_H
#define WEIR_EXPLAIN_INTERNAL_H

#include "explain/explain.h"
#include "shard/shard.h"

enum { EXPLAIN_MAX_DEPTH = 32 };

/* A loop or branch around an instruction. */
typedef struct explain_around {
  ir_instr instr;
  bool otherwise; /* in the else branch */
} explain_around;

/* A communication, or a group of them, where it is posted. */
typedef struct explain_comm {
  ir_instr instr;    /* the communication, or the end of its group */
  ir_instr parts[4]; /* the members of the group */
  uint32_t n_parts;
  ir_op source;
  ir_rule why;
  explain_around around[EXPLAIN_MAX_DEPTH]; /* outermost first */
  uint32_t depth;
} explain_comm;

typedef struct explaining {
  const explain_subject *s;
  ir_func *h, *f; /* f: the lowered copy */
  strbuf *out;
  shard_ctx *shard;         /* NULL: one device */
  VEC(explain_comm) comms;  /* in program order */
  VEC(uint32_t) *comms_for; /* by operation of f: positions in `comms` */
  ir_op last_source;        /* of the note before, so that it is not repeated */
  ir_rule last_why;
} explaining;

/* The first communication that runs in place of `c` for other extents (in the other branch); NULL: none. */
const explain_comm *explain_instead_of(const explaining *e, const explain_comm *c);
explaining *explain_begin(const explain_subject *s, strbuf *out);

/* ---- words.c ---- */
/* "f.weir:6: y = neg(x)"; nothing if the place is not known. */
void explain_place(explaining *e, loc at);
/* The number of its line; 0: not known. */
uint32_t explain_line(explaining *e, loc at);
/* The rule's sentence, with the name of a tensor put in. */
void explain_sentence(explaining *e, ir_rule rule, uint32_t name, strbuf *out);
/* A reason and those before it, one line each: the sentence, and then the place. */
void explain_chain(explaining *e, uint32_t why, uint32_t indent);
/* "dimension 1 in 2 ranges" */
void explain_cut(explaining *e, const shard_axis *a, ir_mesh mesh, uint32_t k);
/* The mesh of a lowered tensor, its placement along each axis of the mesh, its streams; with reasons. */
void explain_placement(explaining *e, ir_tensor t);
/* "its reduction", "dimension 1": the axis of the logical domain that loop axis `a` is a part of. */
void explain_along(explaining *e, const ir_domains *d, ir_axis a);
/* "d.x" */
void explain_mesh_axis(explaining *e, ir_mesh mesh, uint32_t k);
const char *explain_name(const explaining *e, ir_tensor t); /* of f */

/* ---- comms.c ---- */
void explain_find_comms(explaining *e);
/* Bytes that the busiest device receives in all iterations together; none: not known. */
ir_scalar explain_bytes(explaining *e, const explain_comm *c);
/* "4 * n bytes (24)" */
void explain_put_bytes(explaining *e, ir_scalar bytes, strbuf *out);
/* Everything about one communication; a line or two about it. */
void explain_comm_fully(explaining *e, const explain_comm *c);
void explain_comm_briefly(explaining *e, const explain_comm *c);
/* The tensor of f that its operation moves, as it was before steps were inserted. */
ir_tensor explain_moved(const explaining *e, ir_op o);

/* ---- lowered.c ---- */
/* Two tensors that are placed differently, so that data was moved from one to the other: an operand as it is,
 * and as the operation needs it; or a result as it is computed, and as it is placed. */
typedef struct explain_conflict {
  const ir_op_data *op; /* the operation that needs or makes it */
  ir_tensor from, to;
  ir_tensor result; /* its placement is the reason of the move */
} explain_conflict;
/* By tensor: the first operation that reads it; for the operand of an inserted set, the one it was inserted for. */
ir_op *explain_find_readers(const explaining *e);
/* Is the operation a set that was inserted because placements differ? */
bool explain_find_conflict(const explaining *e, ir_op o, const ir_op *readers, explain_conflict *c);
/* Are the two tensors placed differently along mesh axis k? */
bool explain_differs(const explaining *e, const explain_conflict *c, uint32_t k);
/* The sentence about an instruction, in few words. */
void explain_instr(explaining *e, ir_instr i, strbuf *out);

#endif
