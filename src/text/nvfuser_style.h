/* What the files of the nvFuser style share. Private to text/nvfuser*.c.
 *
 * Numbers are given in one place: tensors and axes in the order of the table, symbols and units when
 * they are first printed, communications when they are posted. */
#ifndef WEIR_TEXT_NVFUSER_STYLE_H
#define WEIR_TEXT_NVFUSER_STYLE_H

#include "text/text.h"

/* What a PostOnStream computes: an operation, or those of a kernel. */
typedef struct text_unit {
  ir_op op;
  const ir_block *body; /* NULL: the operation itself */
} text_unit;

typedef struct text_nvfuser {
  const ir_func *h;
  const text_notes *notes; /* NULL: none */
  int64_t rank;            /* whose program is shown */
  strbuf *out;
  uint32_t *tensors; /* number + 1 by id; 0: not in the program */
  uint32_t *axes;    /* number + 1 by id; 0: not in the program */
  /* By axis id, where another length is shown than the axis has: for a shard, the length of a whole piece; for
   * a dimension with one position per device, the length over all devices. */
  ir_scalar *pieces;
  bool *slices;          /* by tensor id: made by select or shard */
  const char **symbols;  /* names by symbol; NULL: not printed yet */
  uint32_t n_symbols;    /* named so far: i0, i1, … */
  uint32_t n_indexes;    /* open loops whose index is StreamIdx */
  VEC(uint32_t) streams; /* names in the order of appearance: Stream 0, 1, … */
  VEC(text_unit) units;  /* HostUnit 0, 1, … */
  map numbers;           /* of communications by name, from 1; 0: the rank has no part in it */
  uint32_t n_communications;
  bool grouped; /* the open group has something for the rank */
} text_nvfuser;

/* ---- nvfuser_value.c ---- */
/* Gives numbers to the tensors and axes of the program. */
void text_nvfuser_number(text_nvfuser *s);
/* "i0", "StreamIdx", … */
const char *text_nvfuser_symbol(text_nvfuser *s, ir_scalar symbol);
/* Names the index of a loop that begins. */
void text_nvfuser_open_index(text_nvfuser *s, ir_scalar symbol, bool stream);

/* The length that the notation shows for an axis. */
ir_scalar text_nvfuser_length(const text_nvfuser *s, ir_axis a);
void text_nvfuser_put_scalar(text_nvfuser *s, ir_scalar x);
/* "iS0{i0}" of a tensor's axis. */
void text_nvfuser_put_axis(text_nvfuser *s, ir_tensor t, ir_axis a);
/* "T0_g_float[iS0{i0}] (DeviceMesh{0 1})" */
void text_nvfuser_put_tensor(text_nvfuser *s, ir_tensor t);
/* A tensor or a number. */
void text_nvfuser_put_operand(text_nvfuser *s, ir_tensor t);
/* Dimension `dim` of the tensor, reductions not counted. */
ir_axis text_nvfuser_dim(const text_nvfuser *s, ir_tensor t, uint32_t dim);
void text_nvfuser_put_indent(text_nvfuser *s, uint32_t depth);

/* ---- nvfuser_comm.c ---- */
/* The me(d.x) that a symbol means; NULL: it is no such symbol. */
const ir_coordinate *text_nvfuser_coordinate(const text_nvfuser *s, ir_scalar symbol);
/* `if 0 <= me(d.x)`: the branch that the rank takes. NULL: the instruction is something else. */
const ir_block *text_nvfuser_membership(const text_nvfuser *s, const ir_instr_data *d);
/* Is the rank in the mesh of a communication's team? */
bool text_nvfuser_takes_part(const text_nvfuser *s, const ir_instr_data *d);
/* Communications, groups and waits, with their indentation. */
void text_nvfuser_put_comm(text_nvfuser *s, const ir_block *block, uint32_t at, uint32_t depth);

/* ---- nvfuser_op.c ---- */
void text_nvfuser_put_compute(text_nvfuser *s, const ir_op_data *op, ir_op handle, uint32_t depth);
/* A kernel, as a PostOnStream. */
void text_nvfuser_put_launch(text_nvfuser *s, const ir_instr_data *d, uint32_t depth);
/* The bodies of what PostOnStream names. */
void text_nvfuser_put_units(text_nvfuser *s);

#endif
