/* What families that only copy, move or combine elements ask of extents; and what all families use. */
#include "bind/fits.h"

bool fit_refuse(shapes *s, const char *what) {
  return bind_error(s->b, s->d, "%s: %s", ir_op_info_of(s->task->code)->name, what);
}

const rt_view *fit_operand(const shapes *s, uint32_t k) {
  if (k >= s->task->n_operands || s->task->operands[k].kind != RT_OPERAND_VIEW) return NULL;
  return bind_view_at(s->b, s->task->operands[k].view);
}

void fit_put_extents(strbuf *out, const char *name, const rt_view *v) {
  strbuf_printf(out, "%s is [", name);
  for (uint32_t i = 0; i < v->rank; i++) {
    if (i) strbuf_puts(out, ", ");
    strbuf_int(out, v->extents[i]);
  }
  strbuf_putc(out, ']');
}

bool fit_mismatch(shapes *s, const char *what) {
  const ir_op_data *op = ir_op_at(s->b->h, s->d->op);
  strbuf out;
  strbuf_init(&out, &s->b->scratch);
  strbuf_printf(&out, "%s: ", what);
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    const rt_view *x = fit_operand(s, k);
    if (!x) continue;
    fit_put_extents(&out, ir_tensor_name(s->b->h, op->operands[k]), x);
    strbuf_puts(&out, ", ");
  }
  fit_put_extents(&out, ir_tensor_name(s->b->h, s->d->tensor), s->r);
  return fit_refuse(s, out.data);
}

const rt_attr *fit_attr(const shapes *s, const char *name) {
  const ir_op_data *op = ir_op_at(s->b->h, s->d->op);
  return &s->task->attrs[ir_op_attr(op, name) - op->attrs];
}

bool fit_is_cut(const shapes *s, uint32_t k, uint32_t dim) {
  return (s->task->operands[k].sliced >> dim & 1) != 0;
}

uint32_t fit_position(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

void fit_set_whole(shapes *s, uint32_t i, int64_t n) {
  s->whole[i] = n;
  s->known |= 1u << i;
}

bool fit_along(shapes *s, uint32_t k, uint32_t p, uint32_t i) {
  int64_t n = fit_operand(s, k)->extents[p];
  if (!s->windowed || fit_is_cut(s, k, i)) {
    s->cut |= 1u << i;
    return n == s->r->extents[i];
  }
  if (s->known >> i & 1 && s->whole[i] != n) return false;
  fit_set_whole(s, i, n); /* windows_inside() looks at it */
  return true;
}

bool fit_along_aligned(shapes *s, uint32_t k, uint32_t p_end, uint32_t r_end) {
  if (p_end > r_end) return false;
  for (uint32_t p = 0; p < p_end; p++) {
    uint32_t i = r_end - p_end + p;
    if (fit_operand(s, k)->extents[p] != 1 && !fit_along(s, k, p, i)) return false;
    if (fit_is_cut(s, k, i)) s->cut |= 1u << i;
  }
  return true;
}

bool fit_same_dims(const shapes *s, const rt_view *x, uint32_t p, uint32_t r, uint32_t n,
                   bool stretches) {
  for (uint32_t i = 0; i < n; i++) {
    int64_t have = x->extents[p + i], want = s->r->extents[r + i];
    if (have != want && !(stretches && have == 1)) return false;
  }
  return true;
}

bool fit_right_aligned(shapes *s, uint32_t k, uint32_t p_end, uint32_t r_end) {
  const rt_view *x = fit_operand(s, k);
  if (!x) return true;
  if (p_end > r_end || !fit_same_dims(s, x, 0, r_end - p_end, p_end, true)) {
    return fit_mismatch(s, "operands and destination have different extents");
  }
  return true;
}

bool fit_same_rank(shapes *s, const rt_view *x) {
  return x->rank == s->r->rank || fit_mismatch(s, "operand and destination have different ranks");
}

bool fit_same_extents(const rt_view *a, const rt_view *b, uint32_t rank) {
  return rt_extents_same(rank, a->extents, rank, b->extents);
}

/* ---- families ---- */
bool fits_pointwise(shapes *s) {
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    const rt_view *x = fit_operand(s, k);
    if (x && !fit_right_aligned(s, k, x->rank, s->r->rank)) return false;
  }
  return true;
}

bool fits_copy(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  if (!fit_same_rank(s, x)) return false;
  return fit_same_dims(s, x, 0, 0, x->rank, false) || fit_mismatch(s, "extents differ");
}

static bool is_chosen(const shapes *s, uint32_t i, uint32_t rank) {
  const rt_attr *dims = fit_attr(s, "dims");
  if (!dims->given) return true;
  for (uint32_t k = 0; k < dims->len; k++) {
    if (fit_position(dims->list[k], rank) == i) return true;
  }
  return false;
}

static bool reduced(shapes *s, bool keep, bool whole_axis) {
  const rt_view *x = fit_operand(s, 0);
  uint32_t r = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    bool gone = is_chosen(s, i, x->rank);
    if (gone && !keep) continue;
    int64_t want = gone ? 1 : x->extents[i];
    if (r >= s->r->rank || s->r->extents[r++] != want) return fit_mismatch(s, "extents differ");
    if (gone && !whole_axis && x->extents[i] != 1)
      return fit_mismatch(s, "a squeezed extent is not 1");
  }
  return r == s->r->rank || fit_mismatch(s, "ranks differ");
}

bool fits_reduced(shapes *s) { return reduced(s, fit_attr(s, "keepdim")->i != 0, true); }

bool fits_squeezed(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  for (uint32_t i = 0; i < x->rank; i++) {
    if (is_chosen(s, i, x->rank) && x->extents[i] != 1)
      return fit_mismatch(s, "a squeezed extent is not 1");
  }
  return reduced(s, false, false);
}

bool fits_inserted(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  const rt_attr *axes = fit_attr(s, "axes");
  uint32_t p = 0;
  for (uint32_t i = 0; i < axes->len; i++) {
    int64_t want = axes->list[i] ? 1 : x->extents[p++];
    if (s->r->extents[i] != want) return fit_mismatch(s, "extents differ");
  }
  return true;
}

bool fits_permuted(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  if (!fit_same_rank(s, x)) return false;
  bool transpose = s->task->code == IR_OP_TRANSPOSE;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint32_t from = i;
    if (transpose && i + 2 >= x->rank) from = i + 1 == x->rank ? i - 1 : i + 1;
    if (!transpose) from = fit_position(fit_attr(s, "order")->list[i], x->rank);
    if (x->extents[from] != s->r->extents[i]) return fit_mismatch(s, "extents differ");
  }
  return true;
}

static bool count(const int64_t *extents, uint32_t rank, int64_t *n) {
  *n = 1;
  for (uint32_t i = 0; i < rank; i++) {
    if (__builtin_mul_overflow(*n, extents[i], n)) return false;
  }
  return true;
}

/* The whole result has the stated shape, except where the operand is cut already. */
bool fits_reshaped(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  int64_t n, m;
  uint32_t unknown = UINT32_MAX;
  for (uint32_t i = 0; s->windowed && i < s->r->rank; i++) {
    if (fit_is_cut(s, 0, i)) continue;
    s->whole[i] = fit_attr(s, "shape")->list[i];
    if (s->whole[i] == -1) unknown = i;
  }
  if (unknown != UINT32_MAX) s->whole[unknown] = 1;
  if (!count(x->extents, x->rank, &n) || !count(s->whole, s->r->rank, &m)) {
    return fit_mismatch(s, "too many elements");
  }
  if (unknown != UINT32_MAX && m > 0) s->whole[unknown] = n / m;
  if (unknown != UINT32_MAX && m > 0) m *= n / m;
  if (n != m) return fit_mismatch(s, "operand and result have different numbers of elements");
  for (uint32_t i = 0; i < s->r->rank; i++) {
    if (fit_is_cut(s, 0, i)) s->cut |= 1u << i; /* counted from the slice's own start */
    else fit_set_whole(s, i, s->whole[i]);
  }
  return true;
}

static int64_t clamp_bound(int64_t bound, int64_t n) {
  if (bound < 0) bound += n;
  return bound < 0 ? 0 : bound > n ? n : bound;
}

/* Whole extents of slice and pad follow from the operand; a dimension that is cut keeps its length. */
bool fits_resized(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  bool slice = s->task->code == IR_OP_SLICE;
  if (!fit_same_rank(s, x)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t n = x->extents[i];
    if (s->windowed && fit_is_cut(s, 0, i)) {
      if (!fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
      continue;
    }
    if (slice) {
      const rt_attr *steps = fit_attr(s, "steps");
      int64_t step = steps->given ? steps->list[i] : 1;
      int64_t span = clamp_bound(fit_attr(s, "stops")->list[i], n) -
                     clamp_bound(fit_attr(s, "starts")->list[i], n);
      n = span > 0 ? span / step + (span % step != 0) : 0;
    } else if (__builtin_add_overflow(n, fit_attr(s, "widths")->list[2 * i], &n) ||
               __builtin_add_overflow(n, fit_attr(s, "widths")->list[2 * i + 1], &n)) {
      return fit_mismatch(s, "an extent overflows");
    }
    fit_set_whole(s, i, n);
    if (!s->windowed && n != s->r->extents[i]) return fit_mismatch(s, "extents differ");
  }
  return true;
}

bool fits_cat(shapes *s) {
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, s->r->rank);
  int64_t sum = 0;
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    const rt_view *x = fit_operand(s, k);
    if (!fit_same_rank(s, x)) return false;
    if (s->windowed && fit_is_cut(s, k, axis))
      return fit_mismatch(s, "an operand is cut along the axis");
    if (__builtin_add_overflow(sum, x->extents[axis], &sum))
      return fit_mismatch(s, "an extent overflows");
    for (uint32_t i = 0; i < x->rank; i++) {
      if (i != axis && !fit_along(s, k, i, i)) return fit_mismatch(s, "extents differ");
    }
  }
  if (!s->windowed && sum != s->r->extents[axis]) return fit_mismatch(s, "extents differ");
  fit_set_whole(s, axis, sum);
  return true;
}

bool fits_selected(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, x->rank);
  int64_t index = fit_attr(s, "index")->i;
  if (index < 0) index += x->extents[axis];
  if (index < 0 || index >= x->extents[axis]) return fit_mismatch(s, "the index is out of range");
  bool fits = fit_same_dims(s, x, 0, 0, axis, false) &&
              fit_same_dims(s, x, axis + 1, axis, x->rank - axis - 1, false);
  return fits || fit_mismatch(s, "extents differ");
}
