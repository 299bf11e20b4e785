/* Columns of bodies. In the first launch each block folds the columns of its rows into a part. The second
 * launch adds up the parts, and computes the results that need the sums: a block has 32 columns; its warps
 * share the parts of each column, and the first warp folds the results of the warps. */
#include "codegen/body_rows.h"

enum { WARPS = 32, BLOCK = 32 * WARPS };

/* ---- the first launch ---- */
void cg_rows_put_accumulators(const rows_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (!rows_is_fold(x, i, true)) continue;
    cg_line(w, "  %s c%u[%u][%u];\n#pragma unroll\n  for (int i = 0; i < %u; i++)\n",
            cg_native(rows_part_dtype(x, i)), i, x->vectors, x->width, x->vectors);
    cg_line(w, "#pragma unroll\n  for (int e = 0; e < %u; e++) c%u[i][e] = %s;\n", x->width, i,
            cg_fold_start(n->fold, n->dtype));
  }
}

/* Folds the rows that a block has at once: by halves, through shared memory. */
static void put_halves(const rows_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_node *n = rows_node(x, i);
  cg_set_int(w, "k", i);
  cg_set_int(w, "V", x->width);
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "half", x->block / x->threads / 2);
  cg_set(w, "fold", cg_fold_text(w, n, cg_text(w, "c%u[0][e]", i), "all[e][threadIdx.x]"));
  cg_put(w, "#pragma unroll 1\n"
            "  for (int half = $half; half > 0; half /= 2) {\n"
            "    const int place = (int)threadIdx.x - half * $T;\n"
            "    __syncthreads();\n"
            "    if (place >= 0 && place < half * $T) {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) all[e][place] = c$k[0][e];\n"
            "    }\n"
            "    __syncthreads();\n"
            "    if ((int)threadIdx.x < half * $T) {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) c$k[0][e] = $fold;\n"
            "    }\n"
            "  }\n");
}

/* Writes the block's parts: [part][element of the row], a plane per fold. */
void cg_rows_put_parts(rows_writer *x) {
  cg_writer *w = x->w;
  const char *n_text = cg_number_text(w, x->n);
  for (uint32_t i = 0; i < x->b->nodes.len && x->threads < x->block; i++) {
    if (!rows_is_fold(x, i, true)) continue;
    cg_line(w, "  {\n  __shared__ %s all[%u][%u];\n", cg_native(rows_node(x, i)->dtype), x->width,
            x->block / 2);
    put_halves(x, i);
    cg_line(w, "  }\n");
  }
  if (x->threads < x->block) cg_line(w, "  if (threadIdx.x >= %u) return;\n", x->threads);
  cg_rows_put_loop(x);
  cg_rows_put_element_loop(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!rows_is_fold(x, i, true)) continue;
    uint32_t plane = cg_number(w, x->part[i] * rows_plane_bytes(x));
    cg_line(w, "      ((%s *)(p.at[%u] + n.at[%u]))[(ix)blockIdx.x * %s + j + e] = c%u[i][e];\n",
            cg_native(rows_part_dtype(x, i)), x->parts, plane, n_text, i);
  }
  cg_line(w, "    }\n  }\n");
}

/* ---- the second launch ---- */
static void put_sums(const rows_writer *x) {
  cg_writer *w = x->w;
  cg_set_number(w, "n", x->n);
  cg_set_number(w, "parts", x->grid);
  cg_set_int(w, "warps", WARPS);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (!rows_is_fold(x, i, true)) continue;
    const char *name = cg_text(w, "a%u", i);
    uint32_t plane = cg_number(w, x->part[i] * rows_plane_bytes(x));
    cg_set(w, "T", cg_native(n->dtype));
    cg_set(w, "P", cg_native(rows_part_dtype(x, i)));
    cg_set_int(w, "k", i);
    cg_set(w, "start", cg_fold_start(n->fold, n->dtype));
    cg_set(w, "from",
           cg_text(w, "((const %s *)(p.at[%u] + n.at[%u]))", cg_native(rows_part_dtype(x, i)),
                   x->parts, plane));
    cg_set(w, "fold", cg_fold_text(w, n, name, "from[i * count + j]"));
    cg_put(w, "  $T a$k = $start;\n"
              "  __shared__ $T all$k[$warps][32];\n"
              "  {\n"
              "    const $P *from = $from;\n"
              "    const ix count = $n;\n"
              "#pragma unroll 4\n"
              "    for (ix i = warp; i < $parts; i += $warps)\n"
              "      if (j < count) a$k = $fold;\n"
              "  }\n"
              "  all$k[warp][lane] = a$k;\n");
  }
  cg_line(w, "  __syncthreads();\n  if (warp > 0 || j >= %s) return;\n", cg_number_text(w, x->n));
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (!rows_is_fold(x, i, true)) continue;
    const char *name = cg_text(w, "a%u", i);
    cg_line(w, "#pragma unroll\n  for (int i = 1; i < %u; i++) %s = %s;\n", WARPS, name,
            cg_fold_text(w, n, name, cg_text(w, "all%u[i][lane]", i)));
  }
}

static void put_results(rows_writer *x) {
  cg_writer *w = x->w;
  cg_values *v = &x->values;
  bool *marks = ARENA_ARRAY(w->memory, x->b->nodes.len + (size_t)1, bool);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_is_fold(x, i, true)) v->texts[i] = cg_text(w, "a%u", i);
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->late[x->b->outputs[r].node]) cg_mark_cone(v, x->b->outputs[r].node, marks);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!marks[i]) continue;
    const cg_node *n = rows_node(x, i);
    bool placed = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT;
    const char *at =
        placed ? cg_text(w, "j * %s", cg_number_text(w, rows_step(x, x->walks.of_node[i]))) : "";
    cg_put_node(v, i, cg_text(w, "t%u", i), at, false);
  }
  for (uint32_t r = 0; r < x->b->n_outputs; r++) {
    const cg_output *o = &x->b->outputs[r];
    if (!x->late[o->node]) continue;
    cg_line(w, "  ((%s *)p.at[%u])[j * %s] = %s;\n", cg_storage(o->view.dtype), v->out[r],
            cg_number_text(w, rows_step(x, x->walks.of_output[r])),
            cg_stored_text(v, o->node, o->view.dtype));
  }
}

void cg_write_rows_columns(cg_kernel *k, rows_writer *x) {
  cg_writer w;
  bool wide = x->w->wide;
  cg_begin(&w, k->memory, wide, BLOCK);
  x->w = &w;
  cg_values_begin(&x->values, &w, x->b);
  cg_view scratch = {.start = CG_START_SCRATCH, .offset_bytes = x->parts_at};
  x->parts = cg_address(&w, &scratch);
  cg_line(&w, "  const int lane = (int)threadIdx.x %% 32, warp = (int)threadIdx.x / 32;\n"
              "  const ix j = (ix)blockIdx.x * 32 + lane;\n");
  put_sums(x);
  put_results(x);
  cg_end(&w, k, "columns", cg_ceildiv(x->n, 32), 1);
}
