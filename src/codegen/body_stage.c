/* Rows that wait in shared memory while columns are folded (body_rows.c).
 *
 * A block goes over rows and has sums of columns in registers, so there is little room for the row itself. It
 * lies in shared memory, and the next one is on its way there while this one is computed. A thread copies
 * what it reads itself: there are no barriers for it. In each pass it reads its vectors again. */
#include "codegen/body_rows.h"

static bool is_staged(const rows_writer *x, uint32_t i) { return x->vector[i] && !x->spare[i]; }

/* Pieces of 16 bytes that a vector of load i has. */
static uint32_t pieces_of(const rows_writer *x, uint32_t i) {
  return (uint32_t)ir_dtype_size_bytes(rows_node(x, i)->dtype) * x->width / CG_ALIGN;
}

static uint32_t pieces_before(const rows_writer *x, uint32_t end) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < end; i++)
    if (is_staged(x, i)) n += pieces_of(x, i);
  return n;
}

/* Pieces of one row. */
static uint32_t stage_pieces(const rows_writer *x) {
  return pieces_before(x, x->b->nodes.len) * x->vectors * x->threads;
}

uint32_t cg_stage_bytes(const rows_writer *x) { return 2 * CG_ALIGN * stage_pieces(x); }

bool cg_stage_fits(const rows_writer *x) {
  if (x->n % x->width != 0) return false;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (is_staged(x, i) && x->width * ir_dtype_size_bytes(n->dtype) % CG_ALIGN != 0) return false;
  }
  return pieces_before(x, x->b->nodes.len) > 0;
}

void cg_put_stage(const rows_writer *x) {
  cg_set_int(x->w, "N", 2 * (int64_t)stage_pieces(x));
  cg_put(x->w, "#ifdef __CUDA_ARCH__\n"
               "  extern __shared__ uint4 weir_stage[];\n"
               "#else\n"
               "  __shared__ uint4 weir_stage[$N];\n"
               "#endif\n"
               "  int slot = 0;\n");
}

/* Piece q of load i, of the vector of this turn of the loop. */
static const char *piece_text(const rows_writer *x, uint32_t i, uint32_t q, const char *slot) {
  uint32_t first = (pieces_before(x, i) + q) * x->vectors;
  return cg_text(x->w, "weir_stage[%s * %u + (%u + i) * %u + lane]", slot, stage_pieces(x), first,
                 x->threads);
}

void cg_put_stage_copies(const rows_writer *x, const char *slot, const char *is_there) {
  cg_writer *w = x->w;
  cg_rows_put_loop(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    for (uint32_t q = 0; is_staged(x, i) && q < pieces_of(x, i); q++)
      cg_line(w,
              "    weir_copy16(&%s, (const uint4 *)((const %s *)p.at[%u] + q%u + j) + %u, %s);\n",
              piece_text(x, i, q, slot), cg_storage(rows_node(x, i)->dtype), x->values.address[i],
              x->walks.of_node[i], q,
              cg_rows_is_full(x) ? is_there : cg_text(w, "%s && j < length", is_there));
  cg_line(w, "  }\n  weir_copies_end();\n");
}

void cg_put_stage_loads(const rows_writer *x, const bool *marks) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!is_staged(x, i) || !marks[i]) continue;
    cg_line(x->w, "    v%u x%u;\n", i, i);
    for (uint32_t q = 0; q < pieces_of(x, i); q++)
      cg_line(x->w, "    x%u.w[%u] = %s;\n", i, q, piece_text(x, i, q, "slot"));
  }
}
