/* What products, rows and attention ask of extents. */
#include "bind/fits.h"

bool fits_matmul(shapes *s) {
  const rt_view *a = fit_operand(s, 0), *b = fit_operand(s, 1);
  bool has_m = a->rank > 1, has_n = b->rank > 1;
  uint32_t batch = s->r->rank - has_m - has_n;
  int64_t ka = a->extents[a->rank - 1], kb = b->extents[has_n ? b->rank - 2 : 0];
  if (s->r->rank < (uint32_t)has_m + has_n || ka != kb)
    return fit_mismatch(s, "contracted extents differ");
  if (has_m && a->extents[a->rank - 2] != s->r->extents[batch])
    return fit_mismatch(s, "rows differ");
  if (has_n && b->extents[b->rank - 1] != s->r->extents[s->r->rank - 1]) {
    return fit_mismatch(s, "columns differ");
  }
  return fit_right_aligned(s, 0, has_m ? a->rank - 2 : 0, batch) &&
         fit_right_aligned(s, 1, has_n ? b->rank - 2 : 0, batch);
}

bool fits_grouped_matmul(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *w = fit_operand(s, 1), *index = fit_operand(s, 2);
  if (s->r->rank < 2 || x->rank < 2 || w->rank < 3 || index->rank < 1)
    return fit_mismatch(s, "ranks differ");
  uint32_t batch = s->r->rank - 2;
  if (x->extents[x->rank - 1] != w->extents[w->rank - 2])
    return fit_mismatch(s, "contracted extents differ");
  if (x->extents[x->rank - 2] != s->r->extents[batch] ||
      index->extents[index->rank - 1] != s->r->extents[batch])
    return fit_mismatch(s, "rows differ");
  if (w->extents[w->rank - 1] != s->r->extents[batch + 1]) return fit_mismatch(s, "columns differ");
  return fit_right_aligned(s, 0, x->rank - 2, batch) &&
         fit_right_aligned(s, 1, w->rank - 3, batch) &&
         fit_right_aligned(s, 2, index->rank - 1, batch);
}

/* The result may be a window of the groups. */
bool fits_grouped_outer(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *y = fit_operand(s, 1), *index = fit_operand(s, 2);
  int64_t n = fit_attr(s, "n")->i;
  if (s->r->rank < 3 || x->rank < 2 || y->rank < 2 || index->rank < 1)
    return fit_mismatch(s, "ranks differ");
  uint32_t batch = s->r->rank - 3;
  int64_t rows = x->extents[x->rank - 2];
  if (rows != y->extents[y->rank - 2] || rows != index->extents[index->rank - 1])
    return fit_mismatch(s, "rows differ");
  if (x->extents[x->rank - 1] != s->r->extents[batch + 1] ||
      y->extents[y->rank - 1] != s->r->extents[batch + 2])
    return fit_mismatch(s, "columns differ");
  if (!s->windowed && s->r->extents[batch] != n) return fit_mismatch(s, "groups differ");
  fit_set_whole(s, batch, n);
  for (uint32_t i = 0; i < s->r->rank; i++)
    if (i != batch) s->cut |= 1u << i;
  return fit_right_aligned(s, 0, x->rank - 2, batch) &&
         fit_right_aligned(s, 1, y->rank - 2, batch) &&
         fit_right_aligned(s, 2, index->rank - 1, batch);
}

bool fits_linear(shapes *s) {
  const rt_view *x = fit_operand(s, 0), *w = fit_operand(s, 1), *bias = fit_operand(s, 2);
  uint32_t front = w->rank - 2, last = s->r->rank - 1;
  bool fits = s->r->rank == front + x->rank && x->extents[x->rank - 1] == w->extents[w->rank - 1] &&
              fit_same_dims(s, w, 0, 0, front, false) &&
              fit_same_dims(s, x, 0, front, x->rank - 1, false) &&
              w->extents[front] == s->r->extents[last];
  if (fits && bias) {
    fits = bias->rank == front + 1 && fit_same_dims(s, bias, 0, 0, front, false) &&
           bias->extents[front] == s->r->extents[last];
  }
  return fits || fit_mismatch(s, "extents differ");
}

/* softmax, norms, cumsum and argsort: along their axis the operand is whole, and the result may be a
 * window. */
static bool normalized(shapes *s, uint32_t axis) {
  const rt_view *x = fit_operand(s, 0);
  if (!fit_same_rank(s, x)) return false;
  if (s->windowed && fit_is_cut(s, 0, axis))
    return fit_mismatch(s, "the operand is cut along the axis");
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!fit_along(s, 0, i, i)) return fit_mismatch(s, "extents differ");
  }
  for (uint32_t k = 1; k < s->task->n_operands; k++) {
    const rt_view *v = fit_operand(s, k);
    int64_t want = v && fit_is_cut(s, k, axis) ? s->r->extents[axis] : x->extents[axis];
    if (v && (v->rank != 1 || v->extents[0] != want))
      return fit_mismatch(s, "weight or bias differ");
  }
  return true;
}

bool fits_along_dim(shapes *s) {
  return normalized(s, fit_position(fit_attr(s, "dim")->i, s->r->rank));
}

bool fits_norm(shapes *s) { return normalized(s, s->r->rank - 1); }

static bool divides(int64_t hk, int64_t hq) { return hk == hq || (hk > 0 && hq % hk == 0); }

/* Does each head of k or v, the axis before the positions, serve several of q? Such heads are never cut into
 * slices. */
static bool is_grouped(const shapes *s, uint32_t k) {
  const rt_view *q = fit_operand(s, 0), *x = fit_operand(s, k);
  uint32_t head = s->r->rank - 3;
  if (k == 0 || q->rank < 3 || x->rank < 3) return false;
  int64_t all = q->extents[q->rank - 3], heads = x->extents[x->rank - 3];
  return heads != all && heads != 1 && all != 1 && fit_is_cut(s, 0, head) == fit_is_cut(s, k, head);
}

static bool batches_fit(shapes *s, uint32_t k) {
  const rt_view *q = fit_operand(s, 0), *x = fit_operand(s, k);
  uint32_t n = s->r->rank;
  if (!is_grouped(s, k)) return fit_along_aligned(s, k, x->rank - 2, n - 2);
  int64_t all = q->extents[q->rank - 3];
  return divides(x->extents[x->rank - 3], all) && s->r->extents[n - 3] == all &&
         fit_along_aligned(s, k, x->rank - 3, n - 3);
}

/* A causal mask needs the number of the first row, even where q is cut. */
bool fits_sdpa(shapes *s) {
  const rt_view *q = fit_operand(s, 0), *k = fit_operand(s, 1), *v = fit_operand(s, 2);
  uint32_t n = s->r->rank;
  bool fits = q->extents[q->rank - 1] == k->extents[k->rank - 1] &&
              k->extents[k->rank - 2] == v->extents[v->rank - 2] && n >= 2 &&
              fit_along(s, 0, q->rank - 2, n - 2) && fit_along(s, 2, v->rank - 1, n - 1) &&
              batches_fit(s, 0) && batches_fit(s, 1) && batches_fit(s, 2);
  if (fits && fit_attr(s, "causal")->i) s->kept |= 1u << (n - 2);
  return fits || fit_mismatch(s, "extents differ");
}

/* Nothing is broadcast; heads of k and v divide those of q. */
bool fits_sdpa_backward(shapes *s) {
  const rt_view *x[6];
  uint32_t n = s->r->rank;
  for (uint32_t i = 0; i < 6; i++) {
    x[i] = fit_operand(s, i);
    if (x[i]->rank + (i == 4) != n) return fit_mismatch(s, "ranks differ");
  }
  const rt_view *q = x[0], *k = x[1], *v = x[2];
  uint32_t heads = n > 2 ? n - 3 : 0;
  bool fits = fit_same_extents(s->r, q, n) && fit_same_extents(q, k, heads) &&
              fit_same_extents(k, v, n - 1) && q->extents[n - 1] == k->extents[n - 1] &&
              fit_same_extents(x[3], q, n - 1) && fit_same_extents(x[4], q, n - 1) &&
              fit_same_extents(x[5], q, n - 1) && x[3]->extents[n - 1] == v->extents[n - 1] &&
              x[5]->extents[n - 1] == v->extents[n - 1];
  if (!fits) return fit_mismatch(s, "extents differ");
  return n < 3 || divides(k->extents[heads], q->extents[heads]) ||
         fit_mismatch(s, "heads do not divide");
}
