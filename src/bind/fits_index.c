/* What families that count or look up positions ask of extents. */
#include "bind/fits.h"

/* Dimension i of operand k, cut or whole, reaches `n` positions past the window's start. */
static bool reaches(const shapes *s, uint32_t k, uint32_t i, int64_t n) {
  return fit_operand(s, k)->extents[i] >= n + (fit_is_cut(s, k, i) ? 0 : s->offset[i]);
}

/* The result has the extents of the index; x may be larger. */
bool fits_gathered(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *index = fit_operand(s, 1);
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, x->rank);
  if (!fit_same_rank(s, x) || !fit_same_rank(s, index)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!fit_along(s, 1, i, i)) return fit_mismatch(s, "extents of index differ");
    if (i == axis) continue;
    if (!reaches(s, 0, i, s->r->extents[i])) return fit_mismatch(s, "index is larger than x");
    if (!fit_is_cut(s, 0, i)) s->kept |= 1u << i;
  }
  return true;
}

/* How many positions of the index along dimension i meet the window. */
static int64_t scattered_along(const shapes *s, uint32_t i) {
  int64_t n = fit_operand(s, 1)->extents[i] - (fit_is_cut(s, 1, i) ? 0 : s->offset[i]);
  return n < s->r->extents[i] ? n : s->r->extents[i];
}

/* The result has the extents of x. Indexes count along the whole axis, wherever the window begins. */
bool fits_scattered(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *index = fit_operand(s, 1), *src = fit_operand(s, 2);
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, x->rank);
  if (!fit_same_rank(s, x) || !fit_same_rank(s, index) || !fit_same_rank(s, src)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
    int64_t n = i == axis ? index->extents[i] : scattered_along(s, i);
    bool fits = i == axis ? src->extents[i] >= n : n <= 0 || reaches(s, 2, i, n);
    if (!fits) return fit_mismatch(s, "index is larger than src");
    if (i == axis || !fit_is_cut(s, 1, i) || !fit_is_cut(s, 2, i)) s->kept |= 1u << i;
  }
  return true;
}

/* The result has the extents of x, or x is cut as the result is. src is whole along the axis. Where x is
 * cut, `of` says how long the axis is. */
bool fits_updated(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *src = fit_operand(s, 1), *at = fit_operand(s, 2);
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, x->rank);
  if (!fit_same_rank(s, x) || !fit_same_rank(s, src)) return false;
  if (!at || at->rank != 0) return fit_mismatch(s, "the position must be a tensor without axes");
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
    if (i == axis) s->kept |= 1u << i;
    else if (!fit_along(s, 1, i, i)) return fit_mismatch(s, "extents differ");
  }
  const rt_attr *of = fit_attr(s, "of");
  if (!of->given) return true;
  if (s->known >> axis & 1 && s->whole[axis] != of->i)
    return fit_mismatch(s, "'of' is another extent");
  fit_set_whole(s, axis, of->i);
  return true;
}

bool fits_index_selected(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *index = fit_operand(s, 1);
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, x->rank);
  if (!fit_same_rank(s, x)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t want = i == axis ? index->extents[0] : x->extents[i];
    if (s->r->extents[i] != want) return fit_mismatch(s, "extents differ");
  }
  return true;
}

bool fits_made(shapes *s) {
  if (!s->windowed) return true;
  for (uint32_t i = 0; i < s->r->rank; i++) {
    bool iota = s->task->code == IR_OP_IOTA;
    fit_set_whole(s, i, iota ? fit_attr(s, "n")->i : fit_attr(s, "shape")->list[i]);
  }
  return true;
}

/* topk: the whole result has k positions along the axis; the result may be a window of it. */
bool fits_topk(shapes *s) {
  const rt_view *x = fit_operand(s, 0);
  int64_t k = fit_attr(s, "k")->i;
  if (!fit_same_rank(s, x)) return false;
  uint32_t axis = fit_position(fit_attr(s, "dim")->i, x->rank);
  if (s->windowed && fit_is_cut(s, 0, axis))
    return fit_mismatch(s, "the operand is cut along the axis");
  if (k < 0 || k > x->extents[axis]) return fit_mismatch(s, "k is more than there are positions");
  for (uint32_t i = 0; i < x->rank; i++) {
    if (i != axis && !fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
  }
  if (!s->windowed && s->r->extents[axis] != k) return fit_mismatch(s, "extents differ");
  fit_set_whole(s, axis, k);
  return true;
}

/* one_hot: the index has all axes of the result but the last, of which the result may be a window. */
bool fits_one_hot(shapes *s) {
  const rt_view *index = fit_operand(s, 0);
  int64_t n = fit_attr(s, "n")->i;
  if (index->rank + 1 != s->r->rank) return fit_mismatch(s, "ranks differ");
  for (uint32_t i = 0; i < index->rank; i++) {
    if (!fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
  }
  if (!s->windowed && s->r->extents[index->rank] != n) return fit_mismatch(s, "extents differ");
  fit_set_whole(s, index->rank, n);
  return true;
}

/* group_index: all axes of the result but the last, of which the result may be a window. */
bool fits_group_index(shapes *s) {
  const rt_view *lengths = fit_operand(s, 0);
  int64_t n = fit_attr(s, "n")->i;
  if (!fit_same_rank(s, lengths)) return false;
  uint32_t last = lengths->rank - 1;
  for (uint32_t i = 0; i < last; i++) {
    if (!fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
  }
  if (!s->windowed && s->r->extents[last] != n) return fit_mismatch(s, "extents differ");
  fit_set_whole(s, last, n);
  return true;
}
