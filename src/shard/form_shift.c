/* Operations that move all positions of a sharded axis by a few: only what crosses the ends of pieces is sent,
 * to the neighbour.
 *
 *     y = pad(x, [1, -1])                        y[0] is the pad's value
 *     y = slice(pad(x, [1, 1]), 0, v)            the same
 *     y = slice(cat(o, x), 0, v)                 y[0] is o
 *     y = cat(o, slice(x, 0, v - 1))             y[0] is o
 *     y = cat(slice(x, v - 1, v), slice(x, 0, v - 1))   y[0] is the last of x
 *     y = slice(x, 1, v)                     as slice(pad(x, [-1, 1]), 0, v - 1), if pieces stay as long
 *     y = pad(x, [1, 0])                     as pad(pad(x, [0, 1]), [1, -1]), likewise */
#include "ir/build.h"
#include "shard/form.h"

static ir_scalar constant(const form *m, int64_t n) { return ir_scalar_const(form_scalars(m), n); }

static bool is_const(const form *m, ir_scalar x, int64_t *n) {
  return ir_scalar_is_const(form_scalars(m), x, n);
}

static ir_scalar length(const form *m, ir_tensor t, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(m->f, t, dims);
  return ir_axis_size(m->f, dims[dim]);
}

/* max(0, s - 1) + 1 == s says nothing that could stand for s, but it was asserted. */
static bool is_asserted(const ir_func *f, ir_scalar a, ir_scalar b) {
  for (uint32_t i = 0; i < f->constraints.len; i++) {
    const ir_constraint *x = &f->constraints.data[i];
    bool same = IR_SAME(x->a, a) && IR_SAME(x->b, b), turned = IR_SAME(x->a, b) && IR_SAME(x->b, a);
    if (x->kind == IR_REQUIRE_EQ && (same || turned)) return true;
  }
  return false;
}

static bool same_length(const form *m, ir_tensor a, ir_tensor b, uint32_t dim) {
  ir_scalar x = length(m, a, dim), y = length(m, b, dim);
  return ir_func_equal(m->f, x, y) == IR_TRUE || is_asserted(m->f, x, y);
}

static int64_t width(const form *m) { return m->shift > 0 ? m->shift : -m->shift; }

/* ---- what is a shift ---- */

/* The operation that makes `t`, if it is of that kind. */
static const ir_op_data *made_by(const form *m, ir_tensor t, ir_opcode code) {
  ir_op def = ir_tensor_at(m->f, t)->def;
  const ir_op_data *op = def.id ? ir_op_at(m->f, def) : NULL;
  return op && op->code == code ? op : NULL;
}

static bool has_dtype_of_result(const form *m) {
  return ir_tensor_at(m->f, m->source)->dtype == ir_tensor_at(m->f, m->op.result)->dtype;
}

/* What a slice drops in front, as a negative number, along its only dimension that changes. */
typedef struct change {
  uint32_t dim;
  int64_t before;
} change;

static bool slice_change(const form *m, const ir_op_data *op, uint32_t rank, change *result) {
  const ir_attr *starts = ir_op_attr(op, "starts"), *steps = ir_op_attr(op, "steps");
  uint32_t found = 0;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t start;
    if (steps->given && steps->ints[i] != 1) return false;
    if (same_length(m, op->operands[0], op->result, i)) continue;
    if (!is_const(m, starts->scalars[i], &start) || start < 0) return false;
    *result = (change){i, -start};
    found++;
  }
  return found == 1;
}

/* The dimensions along which devices hold pieces of what is shifted. */
static uint32_t cut_dims(const form *m) {
  shard_placement p;
  uint32_t mask = 0;
  shard_placement_of(m->f, m->source, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if (p.axes[k].kind == SHARD_SHARDED && ir_mesh_size(ir_mesh_at(m->f, p.mesh), k) > 1)
      mask |= 1u << p.axes[k].dim;
  return mask;
}

/* By how much a window of a pad lies elsewhere than what was padded, along each dimension. */
typedef struct offsets {
  int64_t by[IR_MAX_RANK];
  uint32_t padded, moved; /* dimensions */
} offsets;

/* It moves along one dimension that is cut, and along others before that; along those that are
 * not cut every device moves its own. */
static void move_by(form *m, uint32_t rank, const offsets *o) {
  uint32_t cut = cut_dims(m), over = o->moved & cut;
  uint32_t which = over ? over : o->padded & cut ? o->padded & cut : o->moved;
  m->dim = which ? (uint32_t)__builtin_ctz(which) : 0;
  m->shift = o->by[m->dim];
  m->inside = o->moved & ~cut & ~(1u << m->dim);
  m->apart = over & ~(1u << m->dim);
  for (uint32_t i = 0; i < rank; i++) m->by[i] = o->by[i];
}

/* A pad that drops at one end what it adds at the other. */
static bool is_pad_shift(form *m, uint32_t rank) {
  const ir_attr *widths = ir_op_attr(&m->op, "widths");
  offsets o = {0};
  m->source = m->op.operands[0];
  m->value = ir_op_attr(&m->op, "value")->number;
  for (uint32_t i = 0; i < rank; i++) {
    if (!is_const(m, widths->scalars[2 * i], &o.by[i])) return false;
    if (!same_length(m, m->source, m->op.result, i)) return false;
    if (o.by[i]) o.moved |= 1u << i;
  }
  o.padded = o.moved;
  move_by(m, rank, &o);
  return o.moved != 0;
}

static bool window_offsets(const form *m, const ir_op_data *pad, uint32_t rank, offsets *o) {
  const ir_attr *starts = ir_op_attr(&m->op, "starts"), *steps = ir_op_attr(&m->op, "steps");
  const ir_attr *widths = ir_op_attr(pad, "widths");
  *o = (offsets){0};
  for (uint32_t i = 0; i < rank; i++) {
    int64_t before, start;
    if (steps->given && steps->ints[i] != 1) return false;
    if (!is_const(m, widths->scalars[2 * i], &before) || before < 0) return false;
    if (!is_const(m, starts->scalars[i], &start) || start < 0) return false;
    if (!same_length(m, m->source, m->op.result, i)) return false;
    o->by[i] = before - start;
    if (before) o->padded |= 1u << i;
    if (before != start) o->moved |= 1u << i;
  }
  return true;
}

/* A window of what was padded, as long as that was before. */
static bool is_window_of_pad(form *m, uint32_t rank) {
  const ir_op_data *pad = made_by(m, m->op.operands[0], IR_OP_PAD);
  offsets o;
  if (!pad) return false;
  m->source = pad->operands[0];
  m->value = ir_op_attr(pad, "value")->number;
  if (!window_offsets(m, pad, rank, &o)) return false;
  move_by(m, rank, &o);
  return true;
}

/* A window of two that were put together, as long as one of them. */
static bool is_window_of_cat(form *m, uint32_t rank, change window) {
  const ir_op_data *cat = made_by(m, m->op.operands[0], IR_OP_CAT);
  m->inside = m->apart = 0;
  if (!cat || cat->n_operands != 2) return false;
  int64_t dim = ir_op_attr(cat, "dim")->i, front = 0;
  if ((dim < 0 ? dim + rank : dim) != (int64_t)m->dim) return false;
  for (uint32_t k = 0; k < 2; k++) { /* operand k comes in */
    m->source = cat->operands[1 - k];
    m->enters = cat->operands[k];
    if (!same_length(m, m->source, m->op.result, m->dim) || !has_dtype_of_result(m)) continue;
    if (k == 0 && !is_const(m, length(m, m->enters, m->dim), &front)) continue;
    m->shift = (k == 0 ? front : 0) + window.before;
    m->enters_from = k == 0 ? -window.before : 0;
    return k == 0 ? m->shift >= 0 : true;
  }
  return false;
}

static bool is_window(form *m, uint32_t rank) {
  change window = {0};
  if (is_window_of_pad(m, rank)) return true;
  if (!slice_change(m, &m->op, rank, &window)) return false;
  m->dim = window.dim;
  return is_window_of_cat(m, rank, window);
}

/* The tensor of which `t` is the slice that starts there along `dim`, and has all of the other dimensions; none: it is
 * no such. */
static ir_tensor sliced(const form *m, ir_tensor t, uint32_t dim, uint32_t rank, ir_scalar from) {
  const ir_op_data *op = made_by(m, t, IR_OP_SLICE);
  if (!op) return (ir_tensor){0};
  const ir_attr *starts = ir_op_attr(op, "starts"), *steps = ir_op_attr(op, "steps");
  for (uint32_t i = 0; i < rank; i++) {
    bool same = same_length(m, op->operands[0], t, i);
    if ((steps->given && steps->ints[i] != 1) || same != (i != dim)) return (ir_tensor){0};
  }
  bool there = ir_func_equal(m->f, starts->scalars[dim], from) == IR_TRUE;
  return there ? op->operands[0] : (ir_tensor){0};
}

/* Is what comes in at one end what has left at the other? */
static bool does_wrap(const form *m, ir_tensor enters, uint32_t rank) {
  ir_scalar whole = length(m, m->source, m->dim), by = constant(m, m->shift);
  ir_scalar from = m->shift > 0 ? ir_scalar_sub(form_scalars(m), whole, by) : constant(m, 0);
  return IR_SAME(sliced(m, enters, m->dim, rank, from), m->source);
}

static bool is_cat_shift(form *m, uint32_t rank) {
  int64_t dim = ir_op_attr(&m->op, "dim")->i, by, whole;
  if (m->op.n_operands != 2) return false;
  m->dim = (uint32_t)(dim < 0 ? dim + rank : dim);
  for (uint32_t k = 0; k < 2; k++) { /* operand k comes in */
    ir_tensor enters = m->op.operands[k], rest = m->op.operands[1 - k];
    if (!is_const(m, length(m, enters, m->dim), &by) || by < 1) continue;
    m->source = sliced(m, rest, m->dim, rank, constant(m, k == 0 ? 0 : by));
    if (!m->source.id || !same_length(m, m->source, m->op.result, m->dim)) continue;
    if (!has_dtype_of_result(m)) continue;
    m->shift = k == 0 ? by : -by;
    m->wraps = does_wrap(m, enters, rank);
    bool known = is_const(m, length(m, m->source, m->dim), &whole);
    if (m->wraps && k == 0 && known && 2 * by > whole) continue; /* the other way round is less */
    if (!m->wraps) m->enters = enters;
    return true;
  }
  return false;
}

bool form_is_shift(form *m, uint32_t rank) {
  if (m->op.code == IR_OP_PAD) return is_pad_shift(m, rank);
  if (m->op.code == IR_OP_SLICE) return is_window(m, rank);
  return m->op.code == IR_OP_CAT && is_cat_shift(m, rank);
}

ir_tensor form_shifted(ir_func *f, const ir_op_data *op) {
  bool may = op->code == IR_OP_PAD || op->code == IR_OP_SLICE || op->code == IR_OP_CAT;
  if (!may) return (ir_tensor){0};
  form m = {.f = f, .op = *op};
  ir_axis dims[IR_MAX_RANK], others[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, op->result, dims);
  if (!form_is_shift(&m, rank) || ir_tensor_dims(f, m.source, others) != rank)
    return (ir_tensor){0};
  for (uint32_t i = 0; i < rank; i++) {
    if (!same_length(&m, m.source, op->result, i)) return (ir_tensor){0};
  }
  return m.source;
}

/* ---- its form ---- */

/* Positions first … last - 1 along a dimension. */
static ir_tensor part(form *m, ir_tensor x, uint32_t dim, ir_scalar first, ir_scalar last) {
  ir_scalar *list = ARENA_ARRAY(&m->f->module->memory, 2 * IR_MAX_RANK, ir_scalar);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(m->f, x, dims);
  for (uint32_t i = 0; i < rank; i++) {
    list[i] = i == dim ? first : constant(m, 0);
    list[rank + i] = i == dim ? last : length(m, x, i);
  }
  ir_attr attrs[3] = {{.given = true, .len = rank, .scalars = list},
                      {.given = true, .len = rank, .scalars = list + rank}};
  return form_op(m, IR_OP_SLICE, &x, 1, attrs);
}

/* The piece at the end gets something else. */
static ir_tensor with_end(form *m, ir_tensor moved, ir_tensor end) {
  ir_tensor numbers = form_piece_numbers(m, form_rank(m) + 1);
  ir_tensor which = form_number(m, ir_number_int(m->shift > 0 ? 0 : m->pieces - 1));
  ir_tensor choice[3] = {form_binary(m, IR_OP_EQ, numbers, which), end, moved};
  return form_op(m, IR_OP_WHERE, choice, 3, NULL);
}

/* x with `before` and `after` positions more along a dimension. */
static ir_tensor padded(form *m, ir_tensor x, uint32_t dim, int64_t before, int64_t after,
                        ir_number value) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(m->f, x, dims);
  ir_scalar *widths = ARENA_ARRAY(&m->f->module->memory, 2 * IR_MAX_RANK, ir_scalar);
  for (uint32_t i = 0; i < 2 * rank; i++) widths[i] = constant(m, 0);
  widths[2 * dim] = constant(m, before);
  widths[2 * dim + 1] = constant(m, after);
  ir_attr attrs[2] = {{.given = true, .len = 2 * rank, .scalars = widths}};
  attrs[1] = (ir_attr){.given = true, .number = value};
  return form_op(m, IR_OP_PAD, &x, 1, attrs);
}

/* What each piece has, for the one `by` pieces further; what comes in is `value`. */
static ir_tensor for_neighbours(form *m, ir_tensor x, int64_t by, ir_number value) {
  return padded(m, x, m->dim, by, -by, value);
}

/* Pieces of unknown length may be empty; one position crosses their ends. */
static bool may_be_empty(const form *m) { return !is_const(m, m->piece, NULL); }

/* What crosses the ends of pieces, by that many positions; of an empty piece, the value that
 * comes in. */
static ir_tensor crossing(form *m, ir_tensor x, int64_t by) {
  ir_scalars *s = form_scalars(m);
  bool right = m->shift > 0;
  uint32_t dim = m->dim + 1;
  ir_scalar from = ir_scalar_sub(s, m->piece, constant(m, by)), to = m->piece;
  if (may_be_empty(m)) {
    x = padded(m, x, dim, right, !right, m->value);
    from = m->piece;
    to = ir_scalar_add(s, to, constant(m, 1));
  }
  return right ? part(m, x, dim, from, to) : part(m, x, dim, constant(m, 0), constant(m, by));
}

/* A piece without what leaves it; where that is not known to be there, all of it. */
static ir_tensor what_stays(form *m, ir_tensor x) {
  ir_scalar zero = constant(m, 0), by = constant(m, width(m));
  ir_scalar rest = ir_scalar_sub(form_scalars(m), m->piece, by);
  if (may_be_empty(m)) return x;
  return m->shift > 0 ? part(m, x, m->dim + 1, zero, rest) : part(m, x, m->dim + 1, by, m->piece);
}

static ir_tensor with_moved(form *m, ir_tensor stays, ir_tensor moves) {
  ir_scalars *s = form_scalars(m);
  bool right = m->shift > 0; /* positions move to the right, over the ends of pieces */
  uint32_t dim = m->dim + 1;
  ir_scalar zero = constant(m, 0), one = constant(m, 1);
  ir_tensor both[2] = {right ? moves : stays, right ? stays : moves};
  ir_attr attr = {.given = true, .i = dim};
  ir_tensor y = form_op(m, IR_OP_CAT, both, 2, &attr);
  if (!may_be_empty(m)) return y;
  return part(m, y, dim, right ? zero : one, right ? m->piece : ir_scalar_add(s, m->piece, one));
}

/* What comes from the neighbours, of the widest of all shifts of the tensor. */
static ir_tensor moved_by_widest(form *m, ir_tensor x) {
  form *widest = m->widest ? m->widest : m;
  int64_t all = width(widest), by = width(m), first = m->shift > 0 ? all - by : 0;
  if (!widest->moved.id)
    widest->moved = for_neighbours(m, crossing(m, x, all), m->shift > 0 ? 1 : -1, widest->value);
  if (all == by) return widest->moved;
  return part(m, widest->moved, m->dim + 1, constant(m, first), constant(m, first + by));
}

/* The one end of a roll goes to the other one. */
static ir_tensor other_end(form *m, ir_tensor x) {
  int64_t by = m->shift > 0 ? 1 - m->pieces : m->pieces - 1;
  return for_neighbours(m, crossing(m, x, width(m)), by, m->value);
}

static ir_tensor what_comes(form *m, ir_tensor x) {
  ir_tensor moved = moved_by_widest(m, x);
  if (m->wraps) return with_end(m, moved, other_end(m, x));
  if (!m->enters.id) return moved;
  int64_t from = m->enters_from, n = width(m);
  ir_tensor end = part(m, m->enters, m->dim, constant(m, from), constant(m, from + n));
  return with_end(m, moved, form_keep(m, end, 1u << m->dim, form_rank(m) + 1));
}

/* Moved along some dimensions: pad(y, [by, -by]). In pieces there is one more of them. */
static ir_tensor moved_along(form *m, ir_tensor y, uint32_t dims, bool in_pieces) {
  if (!dims) return y;
  uint32_t rank = form_rank(m) + in_pieces;
  ir_scalar *widths = ARENA_ARRAY(&m->f->module->memory, 2 * IR_MAX_RANK, ir_scalar);
  for (uint32_t i = 0; i < 2 * rank; i++) widths[i] = constant(m, 0);
  for (uint32_t left = dims; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left), at = i + (in_pieces && i > m->dim);
    widths[2 * at] = constant(m, m->by[i]);
    widths[2 * at + 1] = constant(m, -m->by[i]);
  }
  ir_attr attrs[2] = {{.given = true, .len = 2 * rank, .scalars = widths}};
  attrs[1] = (ir_attr){.given = true, .number = m->value};
  return form_op(m, IR_OP_PAD, &y, 1, attrs);
}

/* The result: `y`, moved along `inside` too, as far as it is kept. */
static void end_with(form *m, ir_tensor y, bool new) {
  if (m->kept.id) y = part(m, y, m->dim, constant(m, 0), m->kept);
  else if (m->inside) y = moved_along(m, y, m->inside, false);
  else if (!new) y = form_op(m, IR_OP_SET, &y, 1, NULL);
  m->results[0] = y;
}

/* ---- pieces of unknown length ---- */
/* Does something come in at the end, which may lie on any device? Its position is looked at then. */
static bool ends_anywhere(const form *m) {
  return m->uneven && m->enters.id && m->shift < 0 && !m->apart;
}

/* The last position of `y` is `end`. */
static ir_tensor with_last(form *m, ir_tensor y, ir_tensor end) {
  ir_attr count[2] = {{.given = true, .scalar = m->length}};
  ir_scalar last = ir_scalar_sub(form_scalars(m), m->length, constant(m, 1));
  uint32_t rank = form_rank(m), others = ((1u << rank) - 1) & ~(1u << m->dim);
  ir_tensor at = form_keep(m, form_op(m, IR_OP_IOTA, NULL, 0, count), others, rank);
  ir_attr select[2] = {{.given = true, .i = m->dim}, {.given = true, .scalar = constant(m, 0)}};
  end = form_keep(m, form_op(m, IR_OP_SELECT, &end, 1, select), 1u << m->dim, rank);
  ir_tensor choice[3] = {form_binary(m, IR_OP_EQ, at, form_extent(m, last)), end, y};
  return form_op(m, IR_OP_WHERE, choice, 3, NULL);
}

/* A neighbour's piece may be shorter than what comes in, which is the next one's then. So positions move one by one,
 * over one end each time, and what moves furthest is what others move on from:
 *     y = pad(x, [2, -2])   =>   y$1 = pad(x, [1, -1]);  y = pad(y$1, [1, -1])   each of which has a form */
static bool moves_in_steps(const form *m) {
  if (ends_anywhere(m)) return true;
  return may_be_empty(m) && !m->apart && width(m->widest ? m->widest : m) > 1;
}

bool form_needs_shifts(const form *m) {
  if (m->write == form_lengthened) return true;
  return m->write == form_shift && m->shift != 0 && (m->apart || moves_in_steps(m));
}

/* All of `x` moved by one position; step `k` brings in what is the k-th from the end of what comes in. */
static ir_tensor moved_by_one(form *m, ir_tensor x, int64_t k) {
  bool right = m->shift > 0;
  uint32_t dim = m->dim;
  bool pads = !m->enters.id || ends_anywhere(m);
  ir_tensor y = pads ? padded(m, x, dim, right ? 1 : -1, right ? -1 : 1, m->value) : (ir_tensor){0};
  if (!m->enters.id) return y;
  int64_t at = right ? m->enters_from + width(m) - k : m->enters_from + k - 1;
  ir_tensor end = part(m, m->enters, dim, constant(m, at), constant(m, at + 1));
  if (pads) return with_last(m, y, end);
  ir_tensor both[2] = {right ? end : x, right ? x : end};
  ir_attr attr = {.given = true, .i = dim};
  ir_scalar from = constant(m, !right);
  return part(m, form_op(m, IR_OP_CAT, both, 2, &attr), dim, from,
              ir_scalar_add(form_scalars(m), from, m->length));
}

static void write_steps(form *m) {
  form *all = m->widest ? m->widest : m;
  int64_t n = width(m);
  for (; all->n_steps < n; all->n_steps++) {
    ir_tensor from = all->n_steps ? all->steps[all->n_steps - 1] : m->source;
    ir_tensor y = moved_by_one(m, from, all->n_steps + 1);
    all->steps[all->n_steps] = m->evened[m->n_evened++] = y;
  }
  end_with(m, all->steps[n - 1], false);
}

/*     y = pad(x, [1, 0])   =>   y$1 = pad(x, [0, 1]);  y = pad(y$1, [1, -1])   which has a form */
void form_lengthened(form *m) {
  ir_scalar longer = ir_scalar_sub(form_scalars(m), length(m, m->op.result, m->dim), m->length);
  int64_t by = 0;
  check(is_const(m, longer, &by));
  ir_tensor y = padded(m, m->source, m->dim, 0, by, m->value);
  m->evened[m->n_evened++] = y;
  m->results[0] = padded(m, y, m->dim, m->shift, -m->shift, m->value);
}

/* What is left of each piece, and the first or last positions of its neighbour. Where it moves
 * over other ends of pieces too, both do so before: these pads get a form of their own. What
 * comes from the neighbour is what it sends for all other shifts, so that only corners are sent
 * besides. */
void form_shift(form *m) {
  if (m->shift == 0) {
    end_with(m, m->source, false); /* not moved over the ends of pieces */
    return;
  }
  if (moves_in_steps(m)) {
    write_steps(m);
    return;
  }
  ir_tensor x = form_in_pieces(m, m->source);
  ir_tensor own = m->apart ? form_in_pieces(m, moved_along(m, m->source, m->apart, false)) : x;
  ir_tensor stays = what_stays(m, own);
  ir_tensor moves = moved_along(m, what_comes(m, x), m->apart, true);
  ir_tensor y = form_in_axis(m, with_moved(m, stays, moves), form_rank(m), m->length);
  end_with(m, y, true);
}

/* ---- several of one tensor ---- */

/* Does the narrower of both bring in what the other does last, position by position? */
static bool enters_alike(const form *a, const form *b) {
  int64_t from = a->enters_from - b->enters_from;
  return IR_SAME(a->enters, b->enters) && (a->shift > 0 ? from == b->shift - a->shift : from == 0);
}

static bool goes_with(const form *a, const form *b) {
  bool same = IR_SAME(a->source, b->source) && a->dim == b->dim && a->mesh_axis == b->mesh_axis;
  bool way = (a->shift > 0) == (b->shift > 0) && b->shift != 0;
  if (!same || !way) return false;
  if (may_be_empty(a) && (a->enters.id || b->enters.id)) return enters_alike(a, b);
  return b->enters.id || b->wraps || ir_number_same(a->value, b->value);
}

/* A shift that others of the same tensor are written with waits for those, so that both send
 * once. */
static uint32_t put_off(form **forms, uint32_t n) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < n; i++) {
    const form *a = forms[i];
    if (!a || a->write != form_shift || a->apart) continue;
    bool waits = false;
    for (uint32_t k = 0; k < n && !waits; k++)
      waits = forms[k] && forms[k]->write == form_shift && IR_SAME(forms[k]->source, a->source) &&
              (forms[k]->apart >> a->dim & 1);
    if (waits) forms[i] = NULL;
    found += waits;
  }
  return found;
}

uint32_t form_share_shifts(form **forms, uint32_t n) {
  uint32_t off = put_off(forms, n);
  for (uint32_t i = 0; i < n; i++) {
    form *a = forms[i];
    if (!a || a->write != form_shift || a->shift == 0) continue;
    form *widest = NULL; /* the first of the widest */
    for (uint32_t k = 0; k < n; k++) {
      form *b = forms[k];
      bool shifts = b && b->write == form_shift && (b == a || goes_with(b, a));
      bool in_steps = shifts && a->apart && may_be_empty(b) && width(b) > 1;
      if (shifts && !in_steps && (!widest || width(b) > width(widest))) widest = b;
    }
    a->widest = widest;
  }
  return off;
}

/* ---- which are wanted ---- */
/* Whether only the ends of dimension `dim` change. */
static bool changes_ends(const ir_op_data *op, uint32_t dim) {
  if (op->code == IR_OP_PAD) return true;
  const ir_attr *steps = op->code == IR_OP_SLICE ? ir_op_attr(op, "steps") : NULL;
  return steps && (!steps->given || steps->ints[dim] == 1);
}

bool form_keeps_pieces(const ir_func *f, const ir_op_data *op, uint32_t dim, int64_t pieces) {
  form m = {.f = (ir_func *)f, .op = *op};
  int64_t before, after;
  if (!changes_ends(op, dim)) return false;
  if (!is_const(&m, length(&m, op->operands[0], dim), &before)) return false;
  if (!is_const(&m, length(&m, op->result, dim), &after)) return false;
  return before > 0 && after > 0 && before != after &&
         (before - 1) / pieces == (after - 1) / pieces;
}

/* Positions that are dropped in front of pieces which stay as long. */
static bool wants_shortened(form *m, uint32_t rank) {
  change c = {0};
  int64_t piece;
  m->write = form_shift;
  if (!slice_change(m, &m->op, rank, &c) || c.before == 0) return false;
  m->source = m->op.operands[0];
  m->dim = c.dim;
  m->dims = 1u << c.dim;
  m->shift = c.before;
  m->kept = length(m, m->op.result, c.dim);
  if (!form_has_ranges(m, m->source) || !form_both_cut(m->f, &m->op, c.dim)) return false;
  m->fill = m->value = ir_number_int(0);
  return form_keeps_pieces(m->f, &m->op, c.dim, m->pieces) && is_const(m, m->piece, &piece) &&
         width(m) < piece;
}

static bool wants_slice(form *m, uint32_t rank) {
  form step = *m, shortened = *m;
  if (m->op.code != IR_OP_SLICE) return false;
  if (form_wants_step(&step, rank)) *m = step;
  else if (wants_shortened(&shortened, rank)) *m = shortened;
  else return form_wants_range(m, rank);
  return true;
}

/* The only dimension whose length a pad changes, to one that leaves pieces as long, with something in front. */
static bool wants_lengthened(form *m, uint32_t rank) {
  const ir_attr *widths = ir_op_attr(&m->op, "widths");
  uint32_t found = 0;
  m->write = form_lengthened;
  m->source = m->op.operands[0];
  m->value = ir_op_attr(&m->op, "value")->number;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t before, after;
    if (!is_const(m, widths->scalars[2 * i], &before)) return false;
    if (!is_const(m, widths->scalars[2 * i + 1], &after)) return false;
    if (before == 0 && after == 0) continue;
    if (before <= 0 || after < 0) return false;
    m->dim = i;
    m->shift = before;
    found++;
  }
  m->dims = 1u << m->dim;
  return found == 1 && form_has_ranges(m, m->source) && form_both_cut(m->f, &m->op, m->dim) &&
         form_keeps_pieces(m->f, &m->op, m->dim, m->pieces);
}

/* A few positions of each piece go to the next device, or the one before. */
bool form_wants_shift(form *m, uint32_t rank) {
  int64_t piece;
  if (!form_is_shift(m, rank))
    return m->op.code == IR_OP_PAD ? wants_lengthened(m, rank) : wants_slice(m, rank);
  m->write = form_shift;
  m->dims = 1u << m->dim;
  if (!form_has_ranges(m, m->source)) return false;
  if (m->uneven && m->wraps) return false;
  m->fill = m->value;
  bool cut =
      (form_cuts_of(m->f, m->source, m->dim) & form_cuts_of(m->f, m->op.result, m->dim)) != 0;
  int64_t most = ends_anywhere(m) ? FORM_MOST_STEPS : INT64_MAX;
  if (is_const(m, m->piece, &piece)) return cut && width(m) < piece && width(m) <= most;
  bool by_one = m->apart || m->wraps;
  return cut && width(m) <= (by_one ? 1 : FORM_MOST_STEPS);
}
