/* Operations that pick positions along a sharded axis: lookups, scatters and cumsum. The axis of v
 * positions on n devices is seen as n pieces of c positions each,
 *
 *     x[v mesh.x, e]   =>   x$1[n mesh.x, c, e] = reshape(x)
 *
 * and every device works inside of its piece. What is picked by an index in another's piece does not count
 * here. An index outside of the whole axis counts in the first piece or in the last, where it is refused as
 * ever. */
#include "ir/build.h"
#include "shard/form.h"
#include "shard/internal.h"

ir_scalar form_sized(const form *m, ir_tensor t, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(m->f, t, dims);
  return ir_axis_size(m->f, dims[dim]);
}

static ir_tensor number(form *m, int64_t n) { return form_number(m, ir_number_int(n)); }

ir_tensor form_with_shape(form *m, ir_opcode code, ir_tensor x, const ir_scalar *shape,
                          uint32_t rank) {
  ir_attr attr = {.given = true, .len = rank};
  attr.scalars = arena_copy(&m->f->module->memory, shape, rank * sizeof *shape);
  return form_op(m, code, &x, 1, &attr);
}

/* ---- pieces ---- */
static ir_tensor filled_up(form *m, ir_tensor x, uint32_t rank) {
  ir_scalars *s = form_scalars(m);
  ir_scalar *widths = ARENA_ARRAY(&m->f->module->memory, 2 * IR_MAX_RANK, ir_scalar);
  for (uint32_t i = 0; i < 2 * rank; i++) widths[i] = ir_scalar_const(s, 0);
  ir_scalar all = ir_scalar_mul(s, m->piece, ir_scalar_const(s, m->pieces));
  widths[2 * m->dim + 1] = ir_scalar_sub(s, all, form_sized(m, x, m->dim));
  ir_attr attrs[2] = {{.given = true, .len = 2 * rank, .scalars = widths},
                      {.given = true, .number = m->fill}};
  m->evened[m->n_evened++] = form_op(m, IR_OP_PAD, &x, 1, attrs);
  return m->evened[m->n_evened - 1];
}

ir_tensor form_in_pieces(form *m, ir_tensor x) {
  ir_scalar shape[IR_MAX_RANK];
  uint32_t rank = form_rank(m), n = 0;
  if (m->uneven) x = filled_up(m, x, rank);
  for (uint32_t i = 0; i < rank; i++) {
    if (i == m->dim) shape[n++] = ir_scalar_const(form_scalars(m), m->pieces);
    shape[n++] = i == m->dim ? m->piece : form_sized(m, x, i);
  }
  m->cuts[m->n_cuts++] = form_with_shape(m, IR_OP_RESHAPE, x, shape, n);
  return m->cuts[m->n_cuts - 1];
}

ir_tensor form_in_one(form *m, ir_tensor x, uint32_t rank) {
  ir_scalar shape[IR_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) shape[i] = form_sized(m, x, i <= m->dim ? i : i + 1);
  shape[m->dim] = ir_scalar_mul(form_scalars(m), shape[m->dim], form_sized(m, x, m->dim + 1));
  return form_with_shape(m, IR_OP_RESHAPE, x, shape, rank);
}

ir_tensor form_in_axis(form *m, ir_tensor x, uint32_t rank, ir_scalar length) {
  ir_tensor y = form_in_one(m, x, rank);
  if (!m->uneven) return y;
  m->evened[m->n_evened++] = y;
  ir_scalar *list = ARENA_ARRAY(&m->f->module->memory, 2 * IR_MAX_RANK, ir_scalar);
  for (uint32_t i = 0; i < rank; i++) {
    list[i] = ir_scalar_const(form_scalars(m), 0);
    list[rank + i] = i == m->dim ? length : form_sized(m, y, i);
  }
  ir_attr attrs[3] = {{.given = true, .len = rank, .scalars = list},
                      {.given = true, .len = rank, .scalars = list + rank}};
  return form_op(m, IR_OP_SLICE, &y, 1, attrs);
}

/* Only dimensions `own` of `rank` are there. */
static ir_tensor spread(form *m, ir_tensor x, uint32_t own, uint32_t rank) {
  return form_keep(m, x, ((1u << rank) - 1) & ~own, rank);
}

ir_tensor form_piece_numbers(form *m, uint32_t rank) {
  ir_attr attrs[2] = {{.given = true, .scalar = ir_scalar_const(form_scalars(m), m->pieces)}};
  return spread(m, form_op(m, IR_OP_IOTA, NULL, 0, attrs), 1u << m->dim, rank);
}

ir_tensor form_piece_starts(form *m, ir_tensor numbers) {
  return form_binary(m, IR_OP_MUL, numbers, form_extent(m, m->piece));
}

static form_places *find_places(const form *m, const form_places *like) {
  for (uint32_t i = 0; i < m->places->len; i++) {
    form_places *p = &m->places->data[i];
    if (IR_SAME(p->of, like->of) && p->own == like->own && p->rank == like->rank &&
        IR_SAME(p->mesh, like->mesh) && p->mesh_axis == like->mesh_axis && p->dim == like->dim &&
        p->pieces == like->pieces && p->piece.id == like->piece.id)
      return p;
  }
  return NULL;
}

/* An index after the end of the axis is no index of what that was filled up with, but after it. */
static ir_tensor within_axis(form *m, ir_tensor index) {
  if (!m->uneven) return index;
  ir_scalars *s = form_scalars(m);
  ir_scalar all = ir_scalar_mul(s, m->piece, ir_scalar_const(s, m->pieces));
  ir_tensor beyond = form_binary(m, IR_OP_GE, index, form_extent(m, m->length));
  ir_tensor by = form_extent(m, ir_scalar_sub(s, all, m->length));
  ir_tensor moved[3] = {beyond, form_binary(m, IR_OP_ADD, index, by), index};
  return form_op(m, IR_OP_WHERE, moved, 3, NULL);
}

form_places form_places_of(form *m, ir_tensor of, uint32_t own, uint32_t rank) {
  form_places p = {.of = of, .own = own, .rank = rank, .mesh = m->mesh, .mesh_axis = m->mesh_axis};
  p.dim = m->dim;
  p.pieces = m->pieces;
  p.piece = m->piece;
  const form_places *there = find_places(m, &p);
  if (there) return *there;
  ir_tensor index = spread(m, within_axis(m, of), own, rank);
  ir_tensor piece = form_piece_numbers(m, rank), zero = number(m, 0);
  ir_tensor at = form_binary(m, IR_OP_SUB, index, form_piece_starts(m, piece));
  m->cuts[m->n_cuts++] = at; /* whatever devices the index is on */
  ir_tensor first = form_binary(m, IR_OP_EQ, piece, zero);
  ir_tensor last = form_binary(m, IR_OP_EQ, piece, number(m, m->pieces - 1));
  ir_tensor above = form_binary(m, IR_OP_OR, form_binary(m, IR_OP_GE, at, zero), first);
  ir_tensor below = form_binary(m, IR_OP_LT, at, form_extent(m, m->piece));
  below = form_binary(m, IR_OP_OR, below, last);
  p.inside = form_binary(m, IR_OP_AND, above, below);
  ir_tensor choice[3] = {p.inside, at, zero};
  p.index = form_op(m, IR_OP_WHERE, choice, 3, NULL);
  vec_push(&m->f->module->memory, m->places, p);
  return p;
}

ir_tensor form_or_zero(form *m, ir_tensor inside, ir_tensor x) {
  ir_tensor choice[3] = {inside, x, number(m, 0)};
  ir_dtype dtype = ir_tensor_at(m->f, x)->dtype;
  return form_cast(m, form_op(m, IR_OP_WHERE, choice, 3, NULL), dtype);
}

ir_tensor form_picked(form *m, ir_tensor x, ir_tensor index, uint32_t dim) {
  ir_tensor both[2] = {x, index};
  ir_attr attr = {.given = true, .i = dim};
  return form_op(m, IR_OP_GATHER, both, 2, &attr);
}

/* ---- gather, index_select ---- */
/* The index of an index_select, for all other dimensions of x: [.., n, k, ..]. */
static ir_tensor everywhere(form *m, ir_tensor index, ir_tensor x, uint32_t rank) {
  ir_scalar shape[IR_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) shape[i] = form_sized(m, i == m->dim + 1 ? index : x, i);
  return form_with_shape(m, IR_OP_EXPAND, index, shape, rank);
}

/*     y = gather(x, index)   =>   g = gather(x$1, index - start of the piece), 0 where it is not inside
 *                                 y = sum(g, over the pieces) */
void form_pick(form *m, ir_tensor index, bool selects) {
  uint32_t rank = form_rank(m) + 1;
  ir_tensor x = form_in_pieces(m, m->op.operands[0]);
  uint32_t own = selects ? 2u << m->dim : ((1u << rank) - 1) & ~(1u << m->dim);
  form_places p = form_places_of(m, index, own, rank);
  ir_tensor at = selects ? everywhere(m, p.index, x, rank) : p.index;
  ir_tensor g = form_or_zero(m, p.inside, form_picked(m, x, at, m->dim + 1));
  ir_tensor y = form_reduce(m, IR_OP_SUM, g, 1u << m->dim);
  m->results[0] = form_cast(m, y, ir_tensor_at(m->f, m->op.result)->dtype);
}

void form_lookup(form *m) { form_pick(m, m->op.operands[1], m->op.code == IR_OP_INDEX_SELECT); }

/* ---- scatter with reduce=add ---- */
/*     y = scatter(x, index, src)   =>   y$9 = scatter(x$1, index in the piece, src or 0);  y = reshape(y$9) */
void form_scatter(form *m) {
  uint32_t rank = form_rank(m) + 1, all = (1u << rank) - 1;
  ir_tensor x = form_in_pieces(m, m->op.operands[0]);
  form_places p = form_places_of(m, m->op.operands[1], all & ~(1u << m->dim), rank);
  ir_tensor src = spread(m, m->op.operands[2], all & ~(1u << m->dim), rank);
  ir_tensor parts[3] = {x, p.index, form_or_zero(m, p.inside, src)};
  ir_attr attrs[2] = {{.given = true, .i = m->dim + 1}, {.given = true, .i = 1}};
  ir_tensor y = form_op(m, IR_OP_SCATTER, parts, 3, attrs);
  m->results[0] = form_in_axis(m, y, rank - 1, m->length);
}

/* Devices add up what each of them has:
 *     y = scatter(x, index, src)   =>   y$3 = scatter(zeros, index$1, src$1), a piece each;  y = x + sum(y$3) */
void form_added(form *m) {
  uint32_t rank = form_rank(m) + 1;
  ir_tensor x = m->op.operands[0];
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  ir_tensor index = form_in_pieces(m, m->op.operands[1]),
            src = form_in_pieces(m, m->op.operands[2]);
  ir_scalar *shape = ARENA_ARRAY(&m->f->module->memory, IR_MAX_RANK, ir_scalar);
  for (uint32_t i = 0; i < rank; i++) shape[i] = form_sized(m, x, i <= m->dim ? i : i - 1);
  shape[m->dim] = ir_scalar_const(form_scalars(m), m->pieces);
  ir_attr zeros[2] = {{.given = true, .len = rank, .scalars = shape}, {.given = true, .i = dtype}};
  ir_tensor parts[3] = {form_op(m, IR_OP_ZEROS, NULL, 0, zeros), index, src};
  ir_attr attrs[2] = {{.given = true, .i = m->dim + 1}, {.given = true, .i = 1}};
  ir_tensor sum =
      form_reduce(m, IR_OP_SUM, form_op(m, IR_OP_SCATTER, parts, 3, attrs), 1u << m->dim);
  m->results[0] = form_binary(m, IR_OP_ADD, x, form_cast(m, sum, dtype));
}

/* ---- cumsum ---- */
static ir_tensor running(form *m, ir_tensor x, uint32_t dim) {
  ir_attr attr = {.given = true, .i = dim};
  return form_op(m, IR_OP_CUMSUM, &x, 1, &attr);
}

/* The sums of all pieces before each: a zero in front, and the last one dropped. */
static ir_tensor sums_before(form *m, ir_tensor sums, uint32_t rank) {
  ir_scalar widths[2 * IR_MAX_RANK];
  for (uint32_t i = 0; i < 2 * rank; i++) widths[i] = ir_scalar_const(form_scalars(m), 0);
  widths[2 * m->dim] = ir_scalar_const(form_scalars(m), 1);
  widths[2 * m->dim + 1] = ir_scalar_const(form_scalars(m), -1);
  ir_attr attrs[2] = {{.given = true, .len = 2 * rank}};
  attrs[0].scalars = arena_copy(&m->f->module->memory, widths, 2 * rank * sizeof *widths);
  return running(m, form_op(m, IR_OP_PAD, &sums, 1, attrs), m->dim);
}

/*     y = cumsum(x)   =>   y$2 = cumsum inside of the piece;  y = y$2 + sums of the pieces before */
void form_cumsum(form *m) {
  uint32_t rank = form_rank(m);
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  ir_dtype wide = ir_dtype_is_float(dtype) ? m->wide : dtype;
  ir_tensor x = form_in_pieces(m, form_cast(m, m->op.operands[0], wide));
  ir_tensor before = sums_before(m, form_reduce(m, IR_OP_SUM, x, 2u << m->dim), rank);
  before = form_keep(m, before, 2u << m->dim, rank + 1);
  ir_tensor y = form_binary(m, IR_OP_ADD, running(m, x, m->dim + 1), before);
  m->results[0] = form_cast(m, form_in_axis(m, y, rank, m->length), dtype);
}

/* ---- which are wanted ---- */
/* The only operation that reads `t`; none where it is an output. */
static const ir_op_data *only_reader(const ir_func *f, ir_tensor t) {
  const ir_op_data *found = NULL;
  for (uint32_t i = 0; i < f->outputs.len; i++)
    if (IR_SAME(f->outputs.data[i], t)) return NULL;
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      if (!IR_SAME(op->operands[k], t)) continue;
      if (found) return NULL;
      found = op;
    }
  }
  return found;
}

/* Lowering lets partial results go through operations that are linear in them (host/sums.c): the last of these
 * is what is reduced, if it is less. */
static ir_scalar reduced_bytes(form *m, int64_t element) {
  ir_scalar least = form_bytes(m->ctx, m->op.result, m->mesh_axis, element);
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  for (ir_tensor t = m->op.result; ir_dtype_is_float(dtype) && dtype != IR_F16;) {
    const ir_op_data *reader = only_reader(m->f, t);
    if (!reader || !ir_op_is_linear(reader, !IR_SAME(reader->operands[0], t))) break;
    t = reader->result;
    if (ir_tensor_at(m->f, t)->dtype != dtype || shard_is_cut(m->f, t, 1u << m->mesh_axis)) break;
    ir_scalar bytes = form_bytes(m->ctx, t, m->mesh_axis, element);
    int64_t a, b;
    bool known =
        ir_module_expects(m->f->module, bytes, &a) && ir_module_expects(m->f->module, least, &b);
    if (known && a < b) least = bytes;
  }
  return least;
}

bool form_moves_less(form *m, ir_tensor looked_up) {
  shard_placement p;
  shard_placement_of(m->f, m->op.result, &p);
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  int64_t size = (int64_t)ir_dtype_size_bytes(dtype);
  int64_t sent = form_summed_size(dtype);
  bool scattered = m->mesh_axis < p.rank && p.axes[m->mesh_axis].kind == SHARD_SHARDED;
  ir_scalar whole = form_bytes(m->ctx, looked_up, m->mesh_axis, size);
  ir_scalar results =
      scattered ? form_bytes(m->ctx, m->op.result, m->mesh_axis, sent) : reduced_bytes(m, 2 * sent);
  int64_t a, b;
  bool known =
      ir_module_expects(m->f->module, whole, &a) && ir_module_expects(m->f->module, results, &b);
  return known ? a > b : ir_scalar_le(&m->f->module->scalars, whole, results) != IR_TRUE;
}

bool form_wants_lookup(form *m, uint32_t rank) {
  ir_tensor x = m->op.operands[0];
  return form_begin_pieces(m, x, rank, form_lookup) && form_moves_less(m, x);
}

/* Do all devices have what is scattered, or is it cut as the index is? */
static bool goes_with_index(const form *m) {
  form src = *m;
  ir_axis dims[IR_MAX_RANK];
  ir_tensor t = m->op.operands[2];
  (void)ir_tensor_dims(m->f, t, dims);
  if (ir_func_equal(m->f, ir_axis_size(m->f, dims[m->dim]), m->length) != IR_TRUE) return false;
  if (!shard_is_cut(m->f, t, 1u << m->mesh_axis)) return true;
  return form_has_ranges(&src, t) && src.mesh_axis == m->mesh_axis && IR_SAME(src.mesh, m->mesh);
}

/* What would be brought to all devices: as much of the index, and of what is scattered, as is cut. */
static ir_scalar scattered_bytes(const form *m) {
  ir_scalar n = ir_scalar_const(&m->f->module->scalars, 0);
  for (uint32_t k = 1; k < 3; k++) {
    ir_tensor t = m->op.operands[k];
    int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, t)->dtype);
    if (!shard_is_cut(m->f, t, 1u << m->mesh_axis)) continue;
    n = ir_scalar_add(&m->f->module->scalars, n, form_bytes(m->ctx, t, m->mesh_axis, size));
  }
  return n;
}

/* What is scattered lies on different devices: each adds up its own, and the results are reduced, if that is less than
 * what is scattered. */
static bool wants_added(form *m, uint32_t rank) {
  if (ir_tensor_at(m->f, m->op.result)->dtype == IR_BOOL) return false;
  if (!form_begin_pieces(m, m->op.operands[1], rank, form_added) || !goes_with_index(m))
    return false;
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.result)->dtype), a, b;
  bool scattered = shard_is_cut(m->f, m->op.result, 1u << m->mesh_axis);
  ir_scalar results = form_bytes(m->ctx, m->op.result, m->mesh_axis, scattered ? size : 2 * size);
  ir_scalar moved = scattered_bytes(m);
  bool known =
      ir_module_expects(m->f->module, results, &a) && ir_module_expects(m->f->module, moved, &b);
  return known ? a < b : ir_scalar_le(&m->f->module->scalars, moved, results) != IR_TRUE;
}

/* What is scattered is where the result is; each device takes what falls into its piece. */
bool form_wants_scatter(form *m, uint32_t rank) {
  if (!ir_op_attr(&m->op, "reduce")->i) return false;
  if (wants_added(m, rank)) return true;
  return form_begin_pieces(m, m->op.result, rank, form_scatter);
}

/* A sum of each piece is gathered, instead of the row. */
static bool has_more_than_pieces(const form *m) {
  int64_t n;
  return !ir_module_expects(m->f->module, m->length, &n) || n > m->pieces;
}

bool form_wants_cumsum(form *m, uint32_t rank) {
  return m->op.code == IR_OP_CUMSUM && form_begin_pieces(m, m->op.operands[0], rank, form_cumsum) &&
         form_both_cut(m->f, &m->op, m->dim) && form_pays(m, 1) && has_more_than_pieces(m);
}
