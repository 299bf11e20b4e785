/* Bodies with folds along rows, and along columns beside them.
 *
 * T threads share a row: a warp or a block. They make passes over the row's elements. Each pass computes
 * the nodes that its folds need, from what was loaded and from the folds of earlier passes; the last pass
 * computes the results. Two forms:
 *
 *   kept     the row is read once, V elements at a time, and stays in registers as it was in memory
 *   looped   the row is read again in every pass
 *
 * If columns are folded, a block goes over several rows; each thread has the same elements of every row
 * and folds them on the way. At the end the block's part goes to scratch memory, and body_columns.c adds
 * up the parts. */
#include <stdlib.h>

#include "codegen/body_rows.h"

/* ---- folds ---- */
const char *cg_fold_text(cg_writer *w, const cg_node *n, const char *a, const char *b) {
  return cg_text(w, "%s(%s, %s)", cg_fold_name(w, n->fold, n->dtype), a, b);
}

/* ---- loads ---- */
static const char *walk_text(const rows_writer *x, uint32_t walk) {
  return cg_text(x->w, "o%u", walk);
}

static bool has_tail(const rows_writer *x) { return x->n % x->width != 0; }

/* The vector of a load that begins at element j of the row; `offset`: o of this row, q of the next. */
static void put_vector(const rows_writer *x, uint32_t i, const char *to, char offset) {
  cg_writer *w = x->w;
  const cg_node *n = rows_node(x, i);
  const char *from = cg_text(w, "(const %s *)p.at[%u] + %c%u + j", cg_storage(n->dtype),
                             x->values.address[i], offset, x->walks.of_node[i]);
  cg_set_int(w, "V", x->width);
  cg_set(w, "to", to);
  cg_set(w, "from", has_tail(x) ? cg_text(w, "j + e < length ? (%s)[e] : 0", from) : "0");
  if (!cg_rows_is_full(x)) cg_line(w, "    if (j + %u <= length) {\n", x->width);
  if (x->across[i]) cg_put_vector_stream(w, n->dtype, x->width, to, from);
  else cg_put_vector_load(w, n->dtype, x->width, to, from);
  if (cg_rows_is_full(x)) return;
  cg_put(w, "    } else {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) $to.e[e] = $from;\n"
            "    }\n");
}

/* A block that goes over rows loads the next row while it computes this one; if registers do not hold both, as
 * soon as the last pass has finished with this one. */
static bool goes_ahead(const rows_writer *x) { return x->has_columns && x->kept; }

static const char *loaded_to(const rows_writer *x, uint32_t i) {
  return cg_text(x->w, "%c%u", x->early ? 'z' : 'x', i);
}

void cg_rows_put_loop(const rows_writer *x) {
  cg_writer *w = x->w;
  cg_set_int(w, "NV", x->vectors);
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "V", x->width);
  cg_put(w, "#pragma unroll\n"
            "  for (int i = 0; i < $NV; i++) {\n"
            "    const ix j = begin + ((ix)lane + i * $T) * $V;\n");
}

static void put_types(const rows_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->vector[i]) cg_put_vector(w, cg_text(w, "v%u", i), rows_node(x, i)->dtype, x->width);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->saved[i]) cg_put_vector(w, cg_text(w, "s%ut", i), rows_node(x, i)->dtype, x->width);
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->stores[r]) cg_put_vector(w, cg_text(w, "w%u", r), x->b->outputs[r].view.dtype, x->width);
}

/* Loads the vectors in `marks`; NULL: all. */
static void put_loads(rows_writer *x, const bool *marks) {
  cg_writer *w = x->w;
  uint32_t found = 0;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->vector[i] || x->spare[i] || (marks && !marks[i])) continue;
    cg_line(w, "  v%u %s[%u];\n", i, loaded_to(x, i), x->vectors);
    found++;
  }
  if (found == 0) return;
  cg_rows_put_loop(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->vector[i] && !x->spare[i] && (!marks || marks[i]))
      put_vector(x, i, cg_text(w, "%s[i]", loaded_to(x, i)), goes_ahead(x) ? 'q' : 'o');
  cg_line(w, "  }\n");
}

/* Takes the row that was loaded ahead, and begins to load the next one. */
static void put_ahead(rows_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->vector[i] && !x->spare[i]) cg_line(w, "  v%u x%u[%u];\n", i, i, x->vectors);
  cg_rows_put_loop(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->vector[i] || x->spare[i]) continue;
    cg_line(w, "    x%u[i] = z%u[i];\n", i, i);
    put_vector(x, i, cg_text(w, "z%u[i]", i), 'q');
  }
  cg_line(w, "  }\n");
}

/* Loads vectors that are the same for all rows, where they are needed. */
static void put_spare(const rows_writer *x, const bool *marks) {
  cg_writer *w = x->w;
  if (x->staged) {
    cg_put_stage_loads(x, marks);
    return;
  }
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->spare[i] || !marks[i]) continue;
    cg_line(w, "    v%u x%u;\n", i, i);
    put_vector(x, i, cg_text(w, "x%u", i), 'o');
  }
}

/* ---- nodes ---- */
/* Where element e of the vector at j is. */
static const char *element_text(const rows_writer *x, uint32_t walk) {
  int64_t step = rows_step(x, walk);
  if (step == 0) return walk_text(x, walk);
  if (step == 1) return cg_text(x->w, "o%u + j + e", walk);
  return cg_text(x->w, "o%u + (j + e) * %s", walk, cg_number_text(x->w, step));
}

static bool is_product(const cg_node *n) {
  return n->kind == CG_NODE_STEP && n->step.code == IR_OP_MUL && n->step.compute == IR_F32 &&
         n->dtype == IR_F32;
}

/* A factor of product i, in f32. */
static const char *factor_text(const rows_writer *x, uint32_t i, uint32_t k) {
  uint32_t factor = rows_node(x, i)->operands[k];
  return cg_convert(x->w, IR_F32, rows_node(x, factor)->dtype, x->values.texts[factor]);
}

/* A sum in f32 plus node i. If that is a product of f32, it is added without being rounded. */
static const char *added_text(const rows_writer *x, const char *sum, uint32_t i) {
  if (!is_product(rows_node(x, i))) return cg_text(x->w, "%s + %s", sum, x->values.texts[i]);
  return cg_text(x->w, "fma(%s, %s, %s)", factor_text(x, i, 0), factor_text(x, i, 1), sum);
}

/* Writes the nodes in `marks` that differ within the row, or those that do not. */
static void put_nodes(rows_writer *x, const bool *marks, bool along) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (!marks[i] || x->along[i] != along || x->values.texts[i] || n->kind == CG_NODE_FOLD)
      continue;
    bool placed = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT;
    const char *at = "";
    if (placed)
      at = along ? element_text(x, x->walks.of_node[i]) : walk_text(x, x->walks.of_node[i]);
    cg_put_node(&x->values, i, cg_text(w, "t%u", i), at, false);
  }
}

static void forget_along(rows_writer *x) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (x->along[i] && !cg_node_is_constant(rows_node(x, i)->kind)) {
      x->values.texts[i] = NULL;
      x->values.stored[i] = NULL;
      x->values.raw[i] = NULL;
      x->values.bits[i] = NULL;
    }
}

static bool *no_marks(const rows_writer *x) {
  return ARENA_ARRAY(x->w->memory, x->b->nodes.len + (size_t)1, bool);
}

/* What a pass needs: the operands of its folds, or all results. */
static bool *marks_of(const rows_writer *x, uint32_t pass) {
  bool *marks = no_marks(x);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (x->saved[i] && pass == 0) cg_mark_cone(&x->values, i, marks);
    bool columns = pass == x->passes && rows_is_fold(x, i, true);
    if (rows_folds_in(x, i, pass) || columns) cg_mark_cone(&x->values, rows_operand(x, i), marks);
  }
  for (uint32_t r = 0; r < x->b->n_outputs && pass == x->passes; r++)
    if (!x->late[x->b->outputs[r].node]) cg_mark_cone(&x->values, x->b->outputs[r].node, marks);
  return marks;
}

/* Gives the values that the first pass saved their texts. */
static void name_saved(rows_writer *x) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->saved[i]) continue;
    const char *name = cg_text(x->w, rows_saves_in_stage(x) ? "k%u" : "k%u[i]", i);
    x->values.stored[i] = cg_text(x->w, "%s.e[e]", name);
    x->values.texts[i] = cg_element(x->w, rows_node(x, i)->dtype, x->width, name);
  }
}

static void name_vectors(rows_writer *x, bool spare) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!x->vector[i] || (x->spare[i] && !spare)) continue;
    const char *from = cg_text(x->w, x->spare[i] || x->staged ? "x%u" : "x%u[i]", i);
    x->values.texts[i] = cg_element(x->w, rows_node(x, i)->dtype, x->width, from);
  }
}

void cg_rows_put_element_loop(const rows_writer *x) {
  cg_writer *w = x->w;
  cg_line(w, "#pragma unroll\n    for (int e = 0; e < %u; e++) {\n", x->width);
  if (cg_rows_is_full(x)) return;
  cg_line(w, "      if (%s >= length) continue;\n", has_tail(x) || x->width == 1 ? "j + e" : "j");
}

/* If the row is read in each pass: begins the loop over it, and loads the vectors of a few turns at once. */
static void put_turn(rows_writer *x, const bool *marks) {
  cg_writer *w = x->w;
  if (x->kept) return;
  cg_line(w, "  for (ix begin = 0; begin < length; begin += %u) {\n",
          x->vectors * x->threads * x->width);
  put_loads(x, marks);
}

/* ---- a pass of folds ---- */
/* Is it a sum of f32 that is added up in f32 within a vector (and beside columns, within a warp)? */
static bool adds_narrow(const rows_writer *x, uint32_t i, uint32_t pass) {
  return x->width > 1 && rows_folds_in(x, i, pass) && !cg_rows_has_top(x, i) &&
         cg_rows_narrow(x, i) != CG_NO_NODE;
}

static void put_fold_warp(const rows_writer *x, uint32_t i, bool narrow) {
  cg_writer *w = x->w;
  const cg_node *n = rows_node(x, i);
  const char *name = cg_text(w, narrow ? "h%u" : "a%u", i);
  const char *other = cg_text(w, "__shfl_xor_sync(WEIR_ALL, %s, d)", name);
  cg_line(w, "#pragma unroll\n  for (int d = %u; d > 0; d /= 2) %s = %s;\n",
          x->threads < 32 ? x->threads / 2 : 16, name,
          narrow ? cg_text(w, "%s + %s", name, other) : cg_fold_text(w, n, name, other));
  if (x->threads > 32)
    cg_line(w, "  if (threadIdx.x %% 32 == 0) part%u[threadIdx.x / 32] = %s;\n", i, name);
}

/* All threads read up to eight parts, which is faster than exchanging them by shuffles. */
static const char *joined_text(const rows_writer *x, uint32_t i, uint32_t first, uint32_t count) {
  if (count == 1) return cg_text(x->w, "part%u[%u]", i, first);
  const char *low = joined_text(x, i, first, count / 2);
  const char *high = joined_text(x, i, first + count / 2, count / 2);
  return cg_fold_text(x->w, rows_node(x, i), low, high);
}

static void put_fold_block(const rows_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_node *n = rows_node(x, i);
  const char *name = cg_text(w, "a%u", i);
  if (x->staged && !x->held && x->threads <= 256) {
    cg_line(w, "  %s = %s;\n", name, joined_text(x, i, 0, x->threads / 32));
    return;
  }
  const char *other = cg_text(w, "__shfl_xor_sync(WEIR_ALL, %s, d)", name);
  cg_line(w, "  %s = part%u[threadIdx.x %% %u];\n", name, i, x->threads / 32);
  cg_line(w, "#pragma unroll\n  for (int d = %u; d > 0; d /= 2) %s = %s;\n", x->threads / 64, name,
          cg_fold_text(w, n, name, other));
}

static void put_folds(rows_writer *x, uint32_t pass) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!rows_folds_in(x, i, pass)) continue;
    if (x->top[i] != CG_NO_NODE) cg_put_tops_warp(x, i);
    else if (!cg_rows_has_top(x, i)) put_fold_warp(x, i, x->staged && adds_narrow(x, i, pass));
  }
  if (x->threads > 32) cg_line(w, "  __syncthreads();\n");
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (!rows_folds_in(x, i, pass)) continue;
    if (x->threads > 32 && x->top[i] != CG_NO_NODE) cg_put_tops_block(x, i);
    else if (x->threads > 32 && !cg_rows_has_top(x, i)) put_fold_block(x, i);
    x->values.texts[i] = cg_text(w, "a%u", i);
  }
}

static void put_narrow_begin(const rows_writer *x, uint32_t pass) {
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (adds_narrow(x, i, pass)) cg_line(x->w, "    float h%u = 0;\n", i);
}

/* Writes what the first pass saves, to shared memory if rows are there. */
static void put_saved(const rows_writer *x, uint32_t pass) {
  if (!rows_saves_in_stage(x)) return;
  if (pass > 0) cg_put_stage_saved(x, false);
  for (uint32_t i = 0; i < x->b->nodes.len && pass == 0; i++)
    if (x->saved[i]) cg_line(x->w, "    s%ut k%u;\n", i, i);
}

static void put_fold_pass(rows_writer *x, uint32_t pass) {
  cg_writer *w = x->w;
  if (pass > 0) name_saved(x);
  bool *marks = marks_of(x, pass);
  put_nodes(x, marks, false);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (rows_folds_in(x, i, pass))
      cg_line(w, "  %s a%u = %s;\n", cg_native(rows_node(x, i)->dtype), i,
              cg_fold_start(rows_node(x, i)->fold, rows_node(x, i)->dtype));
  for (uint32_t i = 0; i < x->b->nodes.len && pass == 0; i++)
    if (x->saved[i] && !rows_saves_in_stage(x)) cg_line(w, "  s%ut k%u[%u];\n", i, i, x->vectors);
  put_turn(x, marks);
  name_vectors(x, true);
  if (x->staged) put_narrow_begin(x, pass);
  cg_rows_put_loop(x);
  put_spare(x, marks);
  put_saved(x, pass);
  cg_put_tops_begin(x, pass);
  if (!x->staged) put_narrow_begin(x, pass);
  cg_rows_put_element_loop(x);
  put_nodes(x, marks, true);
  for (uint32_t i = 0; i < x->b->nodes.len && pass == 0; i++)
    if (x->saved[i])
      cg_line(w, "      k%u%s.e[e] = %s;\n", i, rows_saves_in_stage(x) ? "" : "[i]",
              cg_stored_text(&x->values, i, rows_node(x, i)->dtype));
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (!rows_folds_in(x, i, pass) || cg_rows_has_top(x, i)) continue;
    if (adds_narrow(x, i, pass)) {
      cg_line(w, "      h%u = %s;\n", i, added_text(x, cg_text(w, "h%u", i), cg_rows_narrow(x, i)));
      continue;
    }
    const char *name = cg_text(w, "a%u", i);
    cg_line(w, "      %s = %s;\n", name, cg_fold_text(w, n, name, x->values.texts[n->operands[0]]));
  }
  cg_put_tops_element(x, pass);
  cg_line(w, "    }\n");
  if (rows_saves_in_stage(x) && pass == 0) cg_put_stage_saved(x, true);
  cg_put_tops_end(x, pass);
  for (uint32_t i = 0; i < x->b->nodes.len; i++)
    if (!x->staged && adds_narrow(x, i, pass)) cg_line(w, "    a%u += h%u;\n", i, i);
  cg_line(w, "  }\n%s", x->kept ? "" : "  }\n");
  forget_along(x);
  put_folds(x, pass);
}

/* ---- results ---- */
static bool is_row_output(const rows_writer *x, uint32_t r) {
  const cg_output *o = &x->b->outputs[r];
  return !x->late[o->node] && rows_step(x, x->walks.of_output[r]) == 0;
}
static bool is_along_output(const rows_writer *x, uint32_t r) {
  return !x->late[x->b->outputs[r].node] && !is_row_output(x, r);
}

static void put_row_outputs(rows_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t r = 0; r < x->b->n_outputs; r++) {
    const cg_output *o = &x->b->outputs[r];
    if (!is_row_output(x, r)) continue;
    cg_line(w, "  if (lane == 0) ((%s *)p.at[%u])[o%u] = %s;\n", cg_storage(o->view.dtype),
            x->values.out[r], x->walks.of_output[r],
            cg_stored_text(&x->values, o->node, o->view.dtype));
  }
}

static void put_element_results(rows_writer *x, const bool *marks) {
  cg_writer *w = x->w;
  put_nodes(x, marks, true);
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    const cg_node *n = rows_node(x, i);
    if (!rows_is_fold(x, i, true)) continue;
    const char *name = cg_text(w, "c%u[i][e]", i);
    bool narrow = rows_part_dtype(x, i) != n->dtype;
    cg_line(w, "      %s = %s;\n", name,
            narrow ? added_text(x, name, cg_rows_narrow(x, i))
                   : cg_fold_text(w, n, name, x->values.texts[n->operands[0]]));
  }
  for (uint32_t r = 0; r < x->b->n_outputs; r++) {
    const cg_output *o = &x->b->outputs[r];
    if (!is_along_output(x, r)) continue;
    uint32_t walk = x->walks.of_output[r];
    if (x->stores[r]) cg_put_result(&x->values, r, x->width);
    else
      cg_line(w, "      ((%s *)p.at[%u])[%s] = %s;\n", cg_storage(o->view.dtype), x->values.out[r],
              element_text(x, walk), cg_stored_text(&x->values, o->node, o->view.dtype));
  }
}

static void put_store(rows_writer *x, uint32_t r) {
  cg_writer *w = x->w;
  ir_dtype t = x->b->outputs[r].view.dtype;
  const char *to = cg_text(w, "(%s *)p.at[%u] + o%u + j", cg_storage(t), x->values.out[r],
                           x->walks.of_output[r]);
  const char *from = cg_text(w, "y%u", r);
  cg_put_result_end(&x->values, r, x->width);
  if (has_tail(x)) cg_line(w, "    if (j + %u <= length) {\n", x->width);
  cg_put_vector_store(w, t, x->width, to, from);
  if (!has_tail(x)) return;
  cg_set_int(w, "V", x->width);
  cg_set(w, "to", to);
  cg_set(w, "from", from);
  cg_put(w, "    } else {\n"
            "#pragma unroll\n"
            "      for (int e = 0; e < $V; e++) if (j + e < length) ($to)[e] = $from.e[e];\n"
            "    }\n");
}

static bool has_along(const rows_writer *x) {
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (is_along_output(x, r)) return true;
  return x->has_columns;
}

static void put_results(rows_writer *x) {
  cg_writer *w = x->w;
  if (x->passes > 0) name_saved(x);
  bool *marks = marks_of(x, x->passes);
  put_nodes(x, marks, false);
  put_row_outputs(x);
  if (!has_along(x)) return;
  put_turn(x, marks);
  cg_rows_put_loop(x);
  if (!cg_rows_is_full(x)) cg_line(w, "    if (j >= length) continue;\n");
  put_spare(x, marks);
  put_saved(x, x->passes);
  name_vectors(x, true);
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->stores[r]) cg_put_result_begin(&x->values, r, x->width);
  cg_rows_put_element_loop(x);
  put_element_results(x, marks);
  cg_line(w, "    }\n");
  for (uint32_t r = 0; r < x->b->n_outputs; r++)
    if (x->stores[r]) put_store(x, r);
  for (uint32_t i = 0; i < x->b->nodes.len && goes_ahead(x) && !x->early && !x->staged; i++)
    if (x->vector[i] && !x->spare[i]) put_vector(x, i, cg_text(w, "x%u[i]", i), 'q');
  cg_line(w, "  }\n%s", x->kept ? "" : "  }\n");
  forget_along(x);
}

/* ---- the kernel ---- */
static void put_offsets(rows_writer *x, const char *row, char offset) {
  cg_writer *w = x->w;
  const char *names[CG_MAX_VIEWS];
  for (uint32_t k = 0; k < x->walks.n; k++) {
    names[k] = cg_text(w, "%c%u", offset, k);
    cg_line(w, "  %c%u = 0;\n", offset, k);
  }
  cg_put_offsets(w, &x->outer, row, names, NULL, 0);
}

static void put_walks(const rows_writer *x, char offset) {
  for (uint32_t k = 0; k < x->walks.n; k++) cg_line(x->w, "  ix %c%u;\n", offset, k);
}

static void put_constants(rows_writer *x) {
  cg_writer *w = x->w;
  for (uint32_t i = 0; i < x->b->nodes.len; i++) {
    if (cg_node_is_constant(rows_node(x, i)->kind)) cg_put_node(&x->values, i, "", "", false);
    if (rows_is_fold(x, i, false) && x->threads > 32)
      cg_line(w, "  __shared__ __align__(16) %s part%u[%u];\n", cg_native(rows_node(x, i)->dtype),
              i, x->threads / 32);
  }
}

static void put_row(rows_writer *x) {
  cg_line(x->w, "  const ix length = end;\n");
  put_walks(x, 'o');
  put_offsets(x, "row", 'o');
  if (x->kept && !goes_ahead(x)) put_loads(x, NULL);
  if (goes_ahead(x)) put_offsets(x, "next", 'q');
  if (x->early) put_ahead(x);
  if (x->staged) {
    cg_line(x->w, "  const int last = slot == 0 ? %u : slot - 1;\n", x->slots - 1);
    cg_put_stage_copies(x, "last", "next != row");
    cg_line(x->w, "  weir_copies_wait_but_%s();\n", x->slots > 2 ? "two" : "one");
  }
  for (uint32_t pass = 0; pass < x->passes; pass++) put_fold_pass(x, pass);
  put_results(x);
}

/* Begins to copy what all rows share, and the first rows of the block. */
static void put_stage_begin(rows_writer *x, const char *stride) {
  cg_put_stage_shared(x);
  cg_put_stage_copies(x, "0", "true");
  for (uint32_t s = 1; s + 1 < x->slots; s++) {
    const char *row = cg_text(x->w, "group + %u * %s", s, stride);
    put_offsets(x, cg_text(x->w, "(%s < rows ? %s : group)", row, row), 'q');
    cg_put_stage_copies(x, cg_text(x->w, "%u", s), cg_text(x->w, "%s < rows", row));
  }
}

/* Goes over the rows of the block, one after the other, and folds the columns. */
static void put_all_rows(rows_writer *x) {
  cg_writer *w = x->w;
  uint32_t at_once = x->block / x->threads;
  cg_rows_put_accumulators(x);
  const char *stride = cg_number_text(w, x->grid * at_once);
  if (x->staged) cg_put_stage(x);
  if (goes_ahead(x)) {
    cg_line(w, "  const ix length = end;\n");
    put_walks(x, 'q');
    put_offsets(x, at_once > 1 ? "(group < rows ? group : rows - 1)" : "group", 'q');
    if (x->staged) put_stage_begin(x, stride);
    else put_loads(x, NULL);
  }
  cg_line(w, "  for (ix row = group; row < rows; row += %s) {\n", stride);
  if (goes_ahead(x)) {
    const char *ahead = cg_text(w, "row + %u * %s", x->staged ? x->slots - 1 : 1, stride);
    cg_line(w, "  const ix next = %s < rows ? %s : row;\n", ahead, ahead);
  }
  /* with two passes, the barriers of the other pass are between reading a part and writing it again */
  if (x->passes == 1 && x->threads > 32) cg_line(w, "  __syncthreads();\n");
  put_row(x);
  if (x->staged) cg_line(w, "  slot = slot == %u ? 0 : slot + 1;\n", x->slots - 1);
  cg_line(w, "  }\n");
  if (!goes_ahead(x)) cg_line(w, "  const ix length = end;\n");
  cg_rows_put_parts(x);
}

static void put_kernel(rows_writer *x) {
  cg_writer *w = x->w;
  uint32_t at_once = x->block / x->threads;
  cg_set_int(w, "T", x->threads);
  cg_set_int(w, "R", at_once);
  cg_set_number(w, "rows", x->rows);
  cg_set_number(w, "n", x->n);
  cg_put(w, "  const int lane = (int)threadIdx.x % $T;\n"
            "  const ix group = (ix)blockIdx.x * $R + (ix)threadIdx.x / $T;\n"
            "  const ix rows = $rows;\n");
  if (x->tile < x->n) {
    cg_set_int(w, "tile", x->tile);
    cg_put(w, "  const ix begin = (ix)blockIdx.y * $tile;\n"
              "  const ix end = weir_least(begin + $tile, $n);\n");
  } else if (x->kept) cg_put(w, "  const ix begin = 0, end = $n;\n");
  else cg_put(w, "  const ix end = $n;\n");
  put_types(x);
  put_constants(x);
  if (!x->has_columns) {
    /* the threads of a warp stay together: those without a row compute the last one again */
    bool stays = x->threads > 1 && x->threads < 32;
    cg_line(w, "  const ix row = %s;\n", stays ? "group < rows ? group : rows - 1" : "group");
    if (at_once > 1 && !stays) cg_line(w, "  if (row >= rows) return;\n");
    put_row(x);
    return;
  }
  put_all_rows(x);
}

static bool is_wide(const rows_writer *x) {
  int64_t row = 0;
  for (uint32_t k = 0; k < x->walks.n; k++) {
    int64_t reach = (x->n + 1024 * 32) * (llabs(rows_step(x, k)) + 1);
    if (reach > row) row = reach;
  }
  int64_t parts = x->has_columns ? x->grid * x->n : 0;
  return cg_space_reach(&x->outer) + row + cg_body_reach(x->b) + parts > CG_NARROW_REACH;
}

/* Beside columns a third pass over a row costs so much that the body is factored; a second one does not. */
static void take_factored(rows_writer *x, arena *memory) {
  rows_writer y = {.w = x->w, .most_staged = x->most_staged};
  if (!x->has_columns || x->passes <= 2) return;
  y.b = cg_rows_factored(x, memory);
  if (y.b && cg_rows_plan(&y, memory) && y.passes < x->passes) *x = y;
}

bool cg_write_body_rows(cg_kernel *k, const cg_body *b) {
  cg_writer w;
  rows_writer x = {.w = &w, .b = b, .most_staged = k->gpu.shared_bytes};
  if (!cg_rows_plan(&x, k->memory)) return false;
  take_factored(&x, k->memory);
  cg_begin(&w, k->memory, is_wide(&x), x.block);
  w.resident = x.resident;
  w.shared_bytes = x.staged ? cg_stage_bytes(&x) : 0;
  cg_values_begin(&x.values, &w, x.b);
  if (x.has_columns) {
    cg_view scratch = {.start = CG_START_SCRATCH, .offset_bytes = (int64_t)k->scratch_bytes};
    x.parts_at = scratch.offset_bytes;
    x.parts = cg_address(&w, &scratch);
    k->scratch_bytes += (size_t)(x.n_parts * rows_plane_bytes(&x));
  }
  put_kernel(&x);
  int64_t blocks = x.has_columns ? x.grid : cg_ceildiv(x.rows, x.block / x.threads);
  cg_end(&w, k, "rows", blocks, cg_ceildiv(x.n, x.tile));
  if (x.has_columns) cg_write_rows_columns(k, &x);
  return true;
}
