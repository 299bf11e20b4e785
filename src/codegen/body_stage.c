/* Rows that wait in shared memory while columns are folded (body_rows.c).
 *
 * A block goes over rows and has sums of columns in registers, so there is little room for the row itself. The
 * row is in shared memory, and the next one is copied there while this one is computed. Each thread copies
 * what it will read itself, so this needs no barriers. In each pass it reads its vectors again. Vectors that
 * are the same for all rows are copied there once, at the beginning. */
#include "codegen/body_rows.h"

/* How many pieces of 16 bytes a vector of node i has. */
static uint32_t pieces_of(const rows_writer *x, uint32_t i) {
  return (uint32_t)ir_dtype_size_bytes(rows_node(x, i)->dtype) * x->width / CG_ALIGN;
}

static bool is_saved(const rows_writer *x, uint32_t i) { return x->saved[i] && !x->held; }

/* Rows have several slots; vectors that are the same for all rows, and what the first pass saves, have
 * one. */
static bool is_once(const rows_writer *x, uint32_t i) { return x->spare[i] || is_saved(x, i); }

static uint32_t pieces_before(const rows_writer *x, uint32_t end, bool once) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < end; i++)
    if ((x->vector[i] || is_saved(x, i)) && is_once(x, i) == once) n += pieces_of(x, i);
  return n;
}

/* How many pieces all vectors of a slot have. */
static uint32_t stage_pieces(const rows_writer *x, bool once) {
  return pieces_before(x, x->b->nodes.len, once) * x->vectors * x->threads;
}

uint32_t cg_stage_bytes(const rows_writer *x) {
  return CG_ALIGN * (x->slots * stage_pieces(x, false) + stage_pieces(x, true));
}

bool cg_stage_fits(const rows_writer *x) {
  if (x->n % x->width != 0) return false;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    bool there = x->vector[i] || is_saved(x, i);
    if (there && x->width * ir_dtype_size_bytes(n->dtype) % CG_ALIGN != 0) return false;
  }
  return pieces_before(x, x->b->nodes.len, false) > 0;
}

/* Piece q of node i, in this iteration of the loop over vectors. */
static const char *piece_text(const rows_writer *x, uint32_t i, uint32_t q, const char *slot) {
  bool once = is_once(x, i);
  uint32_t row = stage_pieces(x, false);
  uint32_t first = (pieces_before(x, i, once) + q) * x->vectors;
  const char *at = once ? cg_text(x->w, "%u", x->slots * row) : cg_text(x->w, "%s * %u", slot, row);
  return cg_text(x->w, "weir_stage[%s + (%u + i) * %u + lane]", at, first, x->threads);
}

/* Where the first vector of load i is, in memory. */
static void put_source(const rows_writer *x, uint32_t i) {
  cg_line(
      x->w,
      "    const uint4 *f%u = (const uint4 *)((const %s *)p.at[%u] + q%u + begin) + lane * %u;\n",
      i, cg_storage(rows_node(x, i)->dtype), x->values.address[i], x->walks.of_node[i],
      pieces_of(x, i));
}

static void put_copies(const rows_writer *x, bool spare, const char *slot, const char *is_there) {
  cg_writer *w = x->w;
  cg_line(w, "  {\n");
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->vector[i] && x->spare[i] == spare) put_source(x, i);
  cg_rows_put_loop(x);
  cg_line(w, "    (void)j;\n");
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    for (uint32_t q = 0; x->vector[i] && x->spare[i] == spare && q < pieces_of(x, i); q++)
      cg_line(w, "    weir_copy16(&%s, f%u + i * %u + %u, %s);\n", piece_text(x, i, q, slot), i,
              x->threads * pieces_of(x, i), q,
              cg_rows_is_full(x) ? is_there : cg_text(w, "%s && j < length", is_there));
  cg_line(w, "  }\n  }\n");
}

void cg_put_stage(const rows_writer *x) {
  cg_set_int(x->w, "N", cg_stage_bytes(x) / CG_ALIGN);
  cg_put(x->w, "#ifdef __CUDA_ARCH__\n"
               "  extern __shared__ uint4 weir_stage[];\n"
               "#else\n"
               "  __shared__ uint4 weir_stage[$N];\n"
               "#endif\n"
               "  int slot = 0;\n");
}

void cg_put_stage_shared(const rows_writer *x) { put_copies(x, true, "", "true"); }

void cg_put_stage_copies(const rows_writer *x, const char *slot, const char *is_there) {
  put_copies(x, false, slot, is_there);
  cg_line(x->w, "  weir_copies_end();\n");
}

void cg_put_stage_loads(const rows_writer *x, const bool *marks) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->vector[i] || !marks[i]) continue;
    cg_line(x->w, "    v%u x%u;\n", i, i);
    for (uint32_t q = 0; q < pieces_of(x, i); q++)
      cg_line(x->w, "    x%u.w[%u] = %s;\n", i, q, piece_text(x, i, q, "slot"));
  }
}

void cg_put_stage_saved(const rows_writer *x, bool writes) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->saved[i]) continue;
    if (!writes) cg_line(x->w, "    s%ut k%u;\n", i, i);
    for (uint32_t q = 0; q < pieces_of(x, i); q++) {
      const char *piece = piece_text(x, i, q, "slot");
      if (writes) cg_line(x->w, "    %s = k%u.w[%u];\n", piece, i, q);
      else cg_line(x->w, "    k%u.w[%u] = %s;\n", i, q, piece);
    }
  }
}
