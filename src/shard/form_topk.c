/* topk along a sharded axis: the best of each piece, and then the best of these candidates.
 *
 *     v, i = topk(x[t, v mesh.x])                          candidates in the order of their positions
 *     v, i = topk(reshape(x[b, k, v mesh.x], [b, k * v]))  the same; these have to be sorted by position first
 *
 * Of equal ones the first is taken, as ever. */
#include <math.h>

#include "ir/build.h"
#include "shard/form.h"

static ir_scalar wanted(const form *m) { return ir_op_attr(&m->op, "k")->scalar; }

static ir_tensor best(form *m, ir_opcode code, ir_tensor x, ir_scalar k, uint32_t dim) {
  ir_attr attrs[2] = {{.given = true, .scalar = k}, {.given = true, .i = dim}};
  return form_op(m, code, &x, 1, attrs);
}

/* The elements of a row that a device has; of a merged one, those of all rows that it is made of. */
static ir_scalar row_of_piece(const form *m) {
  if (!m->source.id) return m->piece;
  return ir_scalar_mul(form_scalars(m), form_sized(m, m->source, form_rank(m) - 1), m->piece);
}

/* All that a piece has, if that is less: together there are enough of them, since the axis has as many. */
static ir_scalar candidates_of(const form *m) {
  return ir_scalar_min(form_scalars(m), wanted(m), row_of_piece(m));
}

static ir_tensor best_indexes(form *m, ir_tensor values) {
  uint32_t name = ir_func_fresh_name(m->f, ir_tensor_at(m->f, m->op.result)->name);
  check(ir_build_more(m->f, values, &name, 1, m->op.at));
  return ir_op_at(m->f, ir_tensor_at(m->f, values)->def)->more[0];
}

/* What devices have of a tensor whose last two dimensions were made one, as [.., n, k * c]. */
static ir_tensor merged_pieces(form *m) {
  ir_scalars *s = form_scalars(m);
  ir_scalar shape[IR_MAX_RANK];
  int64_t *order = ARENA_ARRAY(&m->f->module->memory, IR_MAX_RANK, int64_t);
  uint32_t rank = form_rank(m) + 2, k = rank - 3; /* [.., k, n, c] */
  for (uint32_t i = 0; i < rank; i++) {
    shape[i] = i <= k ? form_sized(m, m->source, i) : m->piece;
    order[i] = i;
  }
  shape[k + 1] = ir_scalar_const(s, m->pieces);
  order[k] = k + 1;
  order[k + 1] = k;
  ir_attr attr = {.given = true, .len = rank, .ints = order};
  ir_tensor x = form_with_shape(m, IR_OP_RESHAPE, m->source, shape, rank);
  x = form_op(m, IR_OP_PERMUTE, &x, 1, &attr);
  m->cuts[m->n_cuts++] = x;
  shape[k + 1] = ir_scalar_mul(s, form_sized(m, m->source, k), m->piece);
  shape[k] = ir_scalar_const(s, m->pieces);
  x = form_with_shape(m, IR_OP_RESHAPE, x, shape, rank - 1);
  m->cuts[m->n_cuts++] = x;
  return x;
}

/* Where position q of the device's k * c is in the whole: q / c * v + (start of the piece) + q % c, which is
 * q + q / c * (v - c) + start. There is no division of integers: that of their f64 is exact. */
static ir_tensor merged_positions(form *m, ir_tensor q, ir_tensor starts) {
  ir_scalar v = form_sized(m, m->source, form_rank(m));
  ir_tensor c = form_extent(m, m->piece);
  ir_tensor whole = form_binary(m, IR_OP_SUB, q, form_binary(m, IR_OP_MOD, q, c));
  ir_tensor rows = form_binary(m, IR_OP_DIV, form_cast(m, whole, IR_F64), c);
  ir_tensor skipped = form_extent(m, ir_scalar_sub(form_scalars(m), v, m->piece));
  skipped = form_binary(m, IR_OP_MUL, form_cast(m, rows, IR_I64), skipped);
  return form_binary(m, IR_OP_ADD, form_binary(m, IR_OP_ADD, q, skipped), starts);
}

static ir_tensor in_order_of(form *m, ir_tensor at) {
  ir_attr attrs[2] = {{.given = true, .i = m->dim}};
  return form_op(m, IR_OP_ARGSORT, &at, 1, attrs);
}

void form_topk(form *m) {
  uint32_t rank = form_rank(m);
  bool values_wanted = m->op.code == IR_OP_TOPK, merged = m->source.id != 0;
  bool indexes_wanted = !values_wanted || m->op.n_more > 0;
  ir_tensor x = merged ? merged_pieces(m) : form_in_pieces(m, m->op.operands[0]), at = {0};
  ir_tensor of_piece = best(m, IR_OP_TOPK, x, candidates_of(m), m->dim + 1);
  if (indexes_wanted) {
    ir_tensor starts = form_piece_starts(m, form_piece_numbers(m, rank + 1));
    ir_tensor q = best_indexes(m, of_piece);
    at = merged ? merged_positions(m, q, starts) : form_binary(m, IR_OP_ADD, q, starts);
    at = form_in_one(m, at, rank);
  }
  ir_tensor candidates = form_in_one(m, of_piece, rank);
  if (!indexes_wanted) {
    m->results[0] = best(m, IR_OP_TOPK, candidates, wanted(m), m->dim);
    return;
  }
  if (merged) {
    ir_tensor order = in_order_of(m, at);
    candidates = form_picked(m, candidates, order, m->dim);
    at = form_picked(m, at, order, m->dim);
  }
  ir_tensor which = best(m, IR_OP_TOPK_INDEX, candidates, wanted(m), m->dim);
  if (values_wanted) m->results[0] = form_picked(m, candidates, which, m->dim);
  m->results[values_wanted] = form_picked(m, at, which, m->dim);
}

/* ---- which are wanted ---- */
/* The last dimension is made of two, of which the inner one is cut: [b, k, v mesh.x] as [b, k * v]. */
static bool begin_merged(form *m, uint32_t rank) {
  ir_op def = ir_tensor_at(m->f, m->op.operands[0])->scheduled_def;
  const ir_op_data *op = def.id ? ir_op_at(m->f, def) : NULL;
  ir_axis dims[IR_MAX_RANK], others[IR_MAX_RANK];
  if (!op || op->code != IR_OP_RESHAPE || rank + 3 > IR_MAX_RANK) return false;
  m->write = form_topk;
  m->source = op->operands[0];
  m->dim = rank;
  (void)ir_tensor_dims(m->f, op->result, others);
  bool plain = form_position(ir_op_attr(&m->op, "dim")->i, rank) + 1 == rank &&
               ir_tensor_dims(m->f, m->source, dims) == rank + 1 && form_has_pieces(m, m->source);
  for (uint32_t i = 0; plain && i + 1 < rank; i++)
    plain = IR_SAME(ir_axis_size(m->f, dims[i]), ir_axis_size(m->f, others[i]));
  m->dims = 1u << m->dim;
  m->dim = rank - 1; /* of the result, and of the pieces */
  return plain;
}

/* What is filled up with comes after all that is there, also among equals. */
static ir_number least_of(ir_dtype dtype) {
  if (ir_dtype_is_float(dtype)) return ir_number_float(-INFINITY);
  bool is_unsigned = dtype == IR_U8 || dtype == IR_BOOL;
  uint32_t bits = 8 * (uint32_t)ir_dtype_size_bytes(dtype);
  return ir_number_int(is_unsigned ? 0 : INT64_MIN >> (64 - bits));
}

static bool begin_topk(form *m, uint32_t rank) {
  form merged = *m;
  m->fill = least_of(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  if (form_begin_pieces(m, m->op.operands[0], rank, form_topk)) return true;
  if (!begin_merged(&merged, rank)) return false;
  *m = merged;
  return true;
}

/* The candidates are fewer bytes than the axis, for the usual extents. */
bool form_wants_topk(form *m, uint32_t rank) {
  if (!begin_topk(m, rank)) return false;
  double size = (double)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  bool indexed = m->op.code == IR_OP_TOPK_INDEX || m->op.n_more;
  double row = form_usual(m, row_of_piece(m)), k = form_usual(m, candidates_of(m));
  return k * (size + (indexed ? 8 : 0)) < row * size;
}
