/* What the files of the nvFuser style share. Private to text/nvfuser*.c.
 *
 * Numbers are given in one place: tensors and axes in the order of the table, symbols and units when
 * they are first printed. */
#ifndef WEIR_TEXT_NVFUSER_STYLE_H
#define WEIR_TEXT_NVFUSER_STYLE_H

#include "ir/host.h"

typedef struct text_nvfuser {
  const ir_func *h;
  strbuf *out;
  uint32_t *tensors;     /* number + 1 by id; 0: not in the program */
  uint32_t *axes;        /* likewise */
  ir_scalar *pieces;     /* by axis id, of shards: the length of a whole piece */
  bool *slices;          /* by tensor id: made by select or shard */
  const char **symbols;  /* names by symbol; NULL: not printed yet */
  uint32_t n_symbols;    /* named so far: i0, i1, … */
  uint32_t n_indexes;    /* open loops whose index is StreamIdx */
  VEC(uint32_t) streams; /* names in the order of appearance: Stream 0, 1, … */
  VEC(ir_op) units;      /* HostUnit 0, 1, … */
} text_nvfuser;

/* ---- nvfuser_value.c ---- */
/* Gives numbers to the tensors and axes of the program. */
void text_nvfuser_number(text_nvfuser *s);
/* "i0", "StreamIdx", … */
const char *text_nvfuser_symbol(text_nvfuser *s, ir_scalar symbol);
/* Names the index of a loop that begins. */
void text_nvfuser_open_index(text_nvfuser *s, ir_scalar symbol, bool stream);

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

/* ---- nvfuser_op.c ---- */
void text_nvfuser_put_compute(text_nvfuser *s, const ir_op_data *op, ir_op handle, uint32_t depth);
/* The bodies of what PostOnStream names. */
void text_nvfuser_put_units(text_nvfuser *s);

#endif
