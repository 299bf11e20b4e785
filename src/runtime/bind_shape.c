/* Do the extents of a launch fit together? What types could not show is checked here, with numbers,
 * so that no kernel ever reads or writes outside its views. */
#include <string.h>

#include "runtime/bind_internal.h"

typedef struct shapes {
  binder *b;
  const ir_instr_data *d;
  rt_task *task;
  const rt_view *r;
  bool windowed;
  /* Where the window begins and what it is a part of; 0 and the result's own extents by default. */
  int64_t offset[IR_MAX_RANK], whole[IR_MAX_RANK];
  /* A bit per dimension: */
  uint32_t known; /* `whole` was found */
  uint32_t cut;   /* an operand is cut to the window along it */
  uint32_t kept;  /* the kernel needs the offset even so */
} shapes;

static bool refuse(shapes *s, const char *what) {
  return bind_error(s->b, s->d, "%s: %s", ir_op_info_of(s->task->code)->name, what);
}

/* The k-th operand; NULL when it is a number or left out. */
static const rt_view *operand(const shapes *s, uint32_t k) {
  if (k >= s->task->n_operands || s->task->operands[k].kind != RT_OPERAND_VIEW) return NULL;
  return bind_view_at(s->b, s->task->operands[k].view);
}

static void put_extents(strbuf *out, const char *name, const rt_view *v) {
  strbuf_printf(out, "%s is [", name);
  for (uint32_t i = 0; i < v->rank; i++) {
    if (i) strbuf_puts(out, ", ");
    strbuf_int(out, v->extents[i]);
  }
  strbuf_putc(out, ']');
}

/* The same, with the extents of all operands and of the destination. */
static bool mismatch(shapes *s, const char *what) {
  const ir_op_data *op = ir_op_at(s->b->h, s->d->op);
  strbuf out;
  strbuf_init(&out, &s->b->scratch);
  strbuf_printf(&out, "%s: ", what);
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    const rt_view *x = operand(s, k);
    if (!x) continue;
    put_extents(&out, ir_tensor_name(s->b->h, op->operands[k]), x);
    strbuf_puts(&out, ", ");
  }
  put_extents(&out, ir_tensor_name(s->b->h, s->d->tensor), s->r);
  return refuse(s, out.data);
}

static const rt_attr *attr(const shapes *s, const char *name) {
  const ir_op_data *op = ir_op_at(s->b->h, s->d->op);
  return &s->task->attrs[ir_op_attr(op, name) - op->attrs];
}

static bool is_cut(const shapes *s, uint32_t k, uint32_t dim) {
  return (s->task->operands[k].sliced >> dim & 1) != 0;
}

static uint32_t position(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

static void set_whole(shapes *s, uint32_t i, int64_t n) {
  s->whole[i] = n;
  s->known |= 1u << i;
}

/* The result's window lies inside its whole along dimension i; an empty one may lie behind it. */
static bool inside(const shapes *s, uint32_t i) {
  int64_t begin = s->offset[i], n = s->r->extents[i];
  if (n == 0) return begin >= 0;
  return begin >= 0 && begin <= s->whole[i] && n <= s->whole[i] - begin;
}

/* Every offset means something: it lies inside the whole, or an operand is cut there. Where it only
 * says what was cut, it is 0 for the kernel, and the slices of a loop are alike. */
static bool windows_inside(shapes *s) {
  for (uint32_t i = 0; i < s->r->rank; i++) {
    bool known = s->known >> i & 1, cut = s->cut >> i & 1;
    if (known ? !inside(s, i) : !cut && s->offset[i] != 0)
      return mismatch(s, "the destination is not a part of the result");
    if (!known && !(s->kept >> i & 1)) s->offset[i] = 0;
  }
  return true;
}

/* Dimension p of operand k is dimension i of the result: either cut to the window already, or whole. */
static bool along(shapes *s, uint32_t k, uint32_t p, uint32_t i) {
  int64_t n = operand(s, k)->extents[p];
  if (!s->windowed || is_cut(s, k, i)) {
    s->cut |= 1u << i;
    return n == s->r->extents[i];
  }
  if (s->known >> i & 1 && s->whole[i] != n) return false;
  set_whole(s, i, n); /* windows_inside() looks at it */
  return true;
}

/* The first dimensions of operand k, aligned at the last of the first `r_end` of the result; a 1
 * stretches. */
static bool along_aligned(shapes *s, uint32_t k, uint32_t p_end, uint32_t r_end) {
  if (p_end > r_end) return false;
  for (uint32_t p = 0; p < p_end; p++) {
    uint32_t i = r_end - p_end + p;
    if (operand(s, k)->extents[p] != 1 && !along(s, k, p, i)) return false;
    if (is_cut(s, k, i)) s->cut |= 1u << i;
  }
  return true;
}

/* Operand dimensions p.. against result dimensions r..; a 1 stretches if `stretches`. */
static bool same_dims(const shapes *s, const rt_view *x, uint32_t p, uint32_t r, uint32_t n,
                      bool stretches) {
  for (uint32_t i = 0; i < n; i++) {
    int64_t have = x->extents[p + i], want = s->r->extents[r + i];
    if (have != want && !(stretches && have == 1)) return false;
  }
  return true;
}

static bool right_aligned(shapes *s, uint32_t k, uint32_t p_end, uint32_t r_end) {
  const rt_view *x = operand(s, k);
  if (!x) return true;
  if (p_end > r_end || !same_dims(s, x, 0, r_end - p_end, p_end, true)) {
    return mismatch(s, "operands and destination have different extents");
  }
  return true;
}

static bool pointwise_fits(shapes *s) {
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    const rt_view *x = operand(s, k);
    if (x && !right_aligned(s, k, x->rank, s->r->rank)) return false;
  }
  return true;
}

static bool same_rank(shapes *s, const rt_view *x) {
  return x->rank == s->r->rank || mismatch(s, "operand and destination have different ranks");
}

static bool copy_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  if (!same_rank(s, x)) return false;
  return same_dims(s, x, 0, 0, x->rank, false) || mismatch(s, "extents differ");
}

static bool is_chosen(const shapes *s, uint32_t i, uint32_t rank) {
  const rt_attr *dims = attr(s, "dims");
  if (!dims->given) return true;
  for (uint32_t k = 0; k < dims->len; k++) {
    if (position(dims->list[k], rank) == i) return true;
  }
  return false;
}

static bool reduced_fits(shapes *s, bool keep, bool whole_axis) {
  const rt_view *x = operand(s, 0);
  uint32_t r = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    bool gone = is_chosen(s, i, x->rank);
    if (gone && !keep) continue;
    int64_t want = gone ? 1 : x->extents[i];
    if (r >= s->r->rank || s->r->extents[r++] != want) return mismatch(s, "extents differ");
    if (gone && !whole_axis && x->extents[i] != 1) return mismatch(s, "a squeezed extent is not 1");
  }
  return r == s->r->rank || mismatch(s, "ranks differ");
}

static bool squeezed_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  for (uint32_t i = 0; i < x->rank; i++) {
    if (is_chosen(s, i, x->rank) && x->extents[i] != 1)
      return mismatch(s, "a squeezed extent is not 1");
  }
  return reduced_fits(s, false, false);
}

static bool inserted_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  const rt_attr *axes = attr(s, "axes");
  uint32_t p = 0;
  for (uint32_t i = 0; i < axes->len; i++) {
    int64_t want = axes->list[i] ? 1 : x->extents[p++];
    if (s->r->extents[i] != want) return mismatch(s, "extents differ");
  }
  return true;
}

static bool permuted_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  if (!same_rank(s, x)) return false;
  bool transpose = s->task->code == IR_OP_TRANSPOSE;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint32_t from = i;
    if (transpose && i + 2 >= x->rank) from = i + 1 == x->rank ? i - 1 : i + 1;
    if (!transpose) from = position(attr(s, "order")->list[i], x->rank);
    if (x->extents[from] != s->r->extents[i]) return mismatch(s, "extents differ");
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
static bool reshaped_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  int64_t n, m;
  uint32_t unknown = UINT32_MAX;
  for (uint32_t i = 0; s->windowed && i < s->r->rank; i++) {
    if (is_cut(s, 0, i)) continue;
    s->whole[i] = attr(s, "shape")->list[i];
    if (s->whole[i] == -1) unknown = i;
  }
  if (unknown != UINT32_MAX) s->whole[unknown] = 1;
  if (!count(x->extents, x->rank, &n) || !count(s->whole, s->r->rank, &m)) {
    return mismatch(s, "too many elements");
  }
  if (unknown != UINT32_MAX && m > 0) s->whole[unknown] = n / m;
  if (unknown != UINT32_MAX && m > 0) m *= n / m;
  if (n != m) return mismatch(s, "operand and result have different numbers of elements");
  for (uint32_t i = 0; i < s->r->rank; i++) {
    if (is_cut(s, 0, i)) s->cut |= 1u << i; /* counted from the slice's own start */
    else set_whole(s, i, s->whole[i]);
  }
  return true;
}

static int64_t clamp_bound(int64_t bound, int64_t n) {
  if (bound < 0) bound += n;
  return bound < 0 ? 0 : bound > n ? n : bound;
}

/* Whole extents of slice and pad follow from the operand; a dimension that is cut keeps its length. */
static bool resized_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  bool slice = s->task->code == IR_OP_SLICE;
  if (!same_rank(s, x)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t n = x->extents[i];
    if (s->windowed && is_cut(s, 0, i)) {
      if (!along(s, 0, i, i)) return mismatch(s, "extents differ");
      continue;
    }
    if (slice) {
      const rt_attr *steps = attr(s, "steps");
      int64_t step = steps->given ? steps->list[i] : 1;
      int64_t span =
          clamp_bound(attr(s, "stops")->list[i], n) - clamp_bound(attr(s, "starts")->list[i], n);
      n = span > 0 ? span / step + (span % step != 0) : 0;
    } else if (__builtin_add_overflow(n, attr(s, "widths")->list[2 * i], &n) ||
               __builtin_add_overflow(n, attr(s, "widths")->list[2 * i + 1], &n)) {
      return mismatch(s, "an extent overflows");
    }
    set_whole(s, i, n);
    if (!s->windowed && n != s->r->extents[i]) return mismatch(s, "extents differ");
  }
  return true;
}

static bool cat_fits(shapes *s) {
  uint32_t axis = position(attr(s, "dim")->i, s->r->rank);
  int64_t sum = 0;
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    const rt_view *x = operand(s, k);
    if (!same_rank(s, x)) return false;
    if (s->windowed && is_cut(s, k, axis)) return mismatch(s, "an operand is cut along the axis");
    if (__builtin_add_overflow(sum, x->extents[axis], &sum))
      return mismatch(s, "an extent overflows");
    for (uint32_t i = 0; i < x->rank; i++) {
      if (i != axis && !along(s, k, i, i)) return mismatch(s, "extents differ");
    }
  }
  if (!s->windowed && sum != s->r->extents[axis]) return mismatch(s, "extents differ");
  set_whole(s, axis, sum);
  return true;
}

static bool selected_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  uint32_t axis = position(attr(s, "dim")->i, x->rank);
  int64_t index = attr(s, "index")->i;
  if (index < 0) index += x->extents[axis];
  if (index < 0 || index >= x->extents[axis]) return mismatch(s, "the index is out of range");
  bool fits = same_dims(s, x, 0, 0, axis, false) &&
              same_dims(s, x, axis + 1, axis, x->rank - axis - 1, false);
  return fits || mismatch(s, "extents differ");
}

/* Dimension i of operand k, cut or whole, reaches `n` positions past the window's start. */
static bool reaches(const shapes *s, uint32_t k, uint32_t i, int64_t n) {
  return operand(s, k)->extents[i] >= n + (is_cut(s, k, i) ? 0 : s->offset[i]);
}

/* The result has the extents of the index; x may be larger. */
static bool gathered_fits(shapes *s) {
  const rt_view *x = operand(s, 0), *index = operand(s, 1);
  uint32_t axis = position(attr(s, "dim")->i, x->rank);
  if (!same_rank(s, x) || !same_rank(s, index)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!along(s, 1, i, i)) return mismatch(s, "extents of index differ");
    if (i == axis) continue;
    if (!reaches(s, 0, i, s->r->extents[i])) return mismatch(s, "index is larger than x");
    if (!is_cut(s, 0, i)) s->kept |= 1u << i;
  }
  return true;
}

/* How many positions of the index along dimension i meet the window. */
static int64_t scattered_along(const shapes *s, uint32_t i) {
  int64_t n = operand(s, 1)->extents[i] - (is_cut(s, 1, i) ? 0 : s->offset[i]);
  return n < s->r->extents[i] ? n : s->r->extents[i];
}

/* The result has the extents of x. Indexes count along the whole axis, wherever the window begins. */
static bool scattered_fits(shapes *s) {
  const rt_view *x = operand(s, 0), *index = operand(s, 1), *src = operand(s, 2);
  uint32_t axis = position(attr(s, "dim")->i, x->rank);
  if (!same_rank(s, x) || !same_rank(s, index) || !same_rank(s, src)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!along(s, 0, i, i)) return mismatch(s, "extents differ");
    int64_t n = i == axis ? index->extents[i] : scattered_along(s, i);
    bool fits = i == axis ? src->extents[i] >= n : n <= 0 || reaches(s, 2, i, n);
    if (!fits) return mismatch(s, "index is larger than src");
    if (i == axis || !is_cut(s, 1, i) || !is_cut(s, 2, i)) s->kept |= 1u << i;
  }
  return true;
}

/* The result has the extents of x, or x is cut as it is; src lies somewhere along the axis, whole. How long
 * that is altogether, `of` says where x is cut. */
static bool updated_fits(shapes *s) {
  const rt_view *x = operand(s, 0), *src = operand(s, 1), *at = operand(s, 2);
  uint32_t axis = position(attr(s, "dim")->i, x->rank);
  if (!same_rank(s, x) || !same_rank(s, src)) return false;
  if (!at || at->rank != 0) return mismatch(s, "the position must be a tensor without axes");
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!along(s, 0, i, i)) return mismatch(s, "extents differ");
    if (i == axis) s->kept |= 1u << i;
    else if (!along(s, 1, i, i)) return mismatch(s, "extents differ");
  }
  const rt_attr *of = attr(s, "of");
  if (!of->given) return true;
  if (s->known >> axis & 1 && s->whole[axis] != of->i) return mismatch(s, "'of' is another extent");
  set_whole(s, axis, of->i);
  return true;
}

static bool index_selected_fits(shapes *s) {
  const rt_view *x = operand(s, 0), *index = operand(s, 1);
  uint32_t axis = position(attr(s, "dim")->i, x->rank);
  if (!same_rank(s, x)) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t want = i == axis ? index->extents[0] : x->extents[i];
    if (s->r->extents[i] != want) return mismatch(s, "extents differ");
  }
  return true;
}

static bool made_fits(shapes *s) {
  if (!s->windowed) return true;
  for (uint32_t i = 0; i < s->r->rank; i++) {
    bool iota = s->task->code == IR_OP_IOTA;
    set_whole(s, i, iota ? attr(s, "n")->i : attr(s, "shape")->list[i]);
  }
  return true;
}

static bool matmul_fits(shapes *s) {
  const rt_view *a = operand(s, 0), *b = operand(s, 1);
  bool has_m = a->rank > 1, has_n = b->rank > 1;
  uint32_t batch = s->r->rank - has_m - has_n;
  int64_t ka = a->extents[a->rank - 1], kb = b->extents[has_n ? b->rank - 2 : 0];
  if (s->r->rank < (uint32_t)has_m + has_n || ka != kb)
    return mismatch(s, "contracted extents differ");
  if (has_m && a->extents[a->rank - 2] != s->r->extents[batch]) return mismatch(s, "rows differ");
  if (has_n && b->extents[b->rank - 1] != s->r->extents[s->r->rank - 1]) {
    return mismatch(s, "columns differ");
  }
  return right_aligned(s, 0, has_m ? a->rank - 2 : 0, batch) &&
         right_aligned(s, 1, has_n ? b->rank - 2 : 0, batch);
}

static bool linear_fits(shapes *s) {
  const rt_view *x = operand(s, 0), *w = operand(s, 1), *bias = operand(s, 2);
  uint32_t front = w->rank - 2, last = s->r->rank - 1;
  bool fits = s->r->rank == front + x->rank && x->extents[x->rank - 1] == w->extents[w->rank - 1] &&
              same_dims(s, w, 0, 0, front, false) &&
              same_dims(s, x, 0, front, x->rank - 1, false) &&
              w->extents[front] == s->r->extents[last];
  if (fits && bias) {
    fits = bias->rank == front + 1 && same_dims(s, bias, 0, 0, front, false) &&
           bias->extents[front] == s->r->extents[last];
  }
  return fits || mismatch(s, "extents differ");
}

/* softmax, norms, cumsum and argsort: along their axis the operand is whole, and the result may be a
 * window. */
static bool normalized_fits(shapes *s, uint32_t axis) {
  const rt_view *x = operand(s, 0);
  if (!same_rank(s, x)) return false;
  if (s->windowed && is_cut(s, 0, axis)) return mismatch(s, "the operand is cut along the axis");
  for (uint32_t i = 0; i < x->rank; i++) {
    if (!along(s, 0, i, i)) return mismatch(s, "extents differ");
  }
  for (uint32_t k = 1; k < s->task->n_operands; k++) {
    const rt_view *v = operand(s, k);
    int64_t want = v && is_cut(s, k, axis) ? s->r->extents[axis] : x->extents[axis];
    if (v && (v->rank != 1 || v->extents[0] != want)) return mismatch(s, "weight or bias differ");
  }
  return true;
}

/* topk: as long as k along the axis, of which the result may be a window. */
static bool topk_fits(shapes *s) {
  const rt_view *x = operand(s, 0);
  int64_t k = attr(s, "k")->i;
  if (!same_rank(s, x)) return false;
  uint32_t axis = position(attr(s, "dim")->i, x->rank);
  if (s->windowed && is_cut(s, 0, axis)) return mismatch(s, "the operand is cut along the axis");
  if (k < 0 || k > x->extents[axis]) return mismatch(s, "k is more than there are positions");
  for (uint32_t i = 0; i < x->rank; i++) {
    if (i != axis && !along(s, 0, i, i)) return mismatch(s, "extents differ");
  }
  if (!s->windowed && s->r->extents[axis] != k) return mismatch(s, "extents differ");
  set_whole(s, axis, k);
  return true;
}

/* one_hot: the index has all axes of the result but the last, of which the result may be a window. */
static bool one_hot_fits(shapes *s) {
  const rt_view *index = operand(s, 0);
  int64_t n = attr(s, "n")->i;
  if (index->rank + 1 != s->r->rank) return mismatch(s, "ranks differ");
  for (uint32_t i = 0; i < index->rank; i++) {
    if (!along(s, 0, i, i)) return mismatch(s, "extents differ");
  }
  if (!s->windowed && s->r->extents[index->rank] != n) return mismatch(s, "extents differ");
  set_whole(s, index->rank, n);
  return true;
}

static bool same_extents(const rt_view *a, const rt_view *b, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++) {
    if (a->extents[i] != b->extents[i]) return false;
  }
  return true;
}

static bool divides(int64_t hk, int64_t hq) { return hk == hq || (hk > 0 && hq % hk == 0); }

/* Does each head of k or v, the axis before the positions, serve several of q? Such are never cut into
 * slices. */
static bool is_grouped(const shapes *s, uint32_t k) {
  const rt_view *q = operand(s, 0), *x = operand(s, k);
  uint32_t head = s->r->rank - 3;
  if (k == 0 || q->rank < 3 || x->rank < 3) return false;
  int64_t all = q->extents[q->rank - 3], heads = x->extents[x->rank - 3];
  return heads != all && heads != 1 && all != 1 && is_cut(s, 0, head) == is_cut(s, k, head);
}

static bool batches_fit(shapes *s, uint32_t k) {
  const rt_view *q = operand(s, 0), *x = operand(s, k);
  uint32_t n = s->r->rank;
  if (!is_grouped(s, k)) return along_aligned(s, k, x->rank - 2, n - 2);
  int64_t all = q->extents[q->rank - 3];
  return divides(x->extents[x->rank - 3], all) && s->r->extents[n - 3] == all &&
         along_aligned(s, k, x->rank - 3, n - 3);
}

/* With a causal mask the first row's number counts, also where q is cut. */
static bool sdpa_fits(shapes *s) {
  const rt_view *q = operand(s, 0), *k = operand(s, 1), *v = operand(s, 2);
  uint32_t n = s->r->rank;
  bool fits = q->extents[q->rank - 1] == k->extents[k->rank - 1] &&
              k->extents[k->rank - 2] == v->extents[v->rank - 2] && n >= 2 &&
              along(s, 0, q->rank - 2, n - 2) && along(s, 2, v->rank - 1, n - 1) &&
              batches_fit(s, 0) && batches_fit(s, 1) && batches_fit(s, 2);
  if (fits && attr(s, "causal")->i) s->kept |= 1u << (n - 2);
  return fits || mismatch(s, "extents differ");
}

/* Nothing is broadcast; heads of k and v divide those of q. */
static bool sdpa_backward_fits(shapes *s) {
  const rt_view *x[6];
  uint32_t n = s->r->rank;
  for (uint32_t i = 0; i < 6; i++) {
    x[i] = operand(s, i);
    if (x[i]->rank + (i == 4) != n) return mismatch(s, "ranks differ");
  }
  const rt_view *q = x[0], *k = x[1], *v = x[2];
  uint32_t heads = n > 2 ? n - 3 : 0;
  bool fits = same_extents(s->r, q, n) && same_extents(q, k, heads) && same_extents(k, v, n - 1) &&
              q->extents[n - 1] == k->extents[n - 1] && same_extents(x[3], q, n - 1) &&
              same_extents(x[4], q, n - 1) && same_extents(x[5], q, n - 1) &&
              x[3]->extents[n - 1] == v->extents[n - 1] &&
              x[5]->extents[n - 1] == v->extents[n - 1];
  if (!fits) return mismatch(s, "extents differ");
  return n < 3 || divides(k->extents[heads], q->extents[heads]) ||
         mismatch(s, "heads do not divide");
}

static bool fits(shapes *s) {
  switch (ir_op_info_of(s->task->code)->family) {
  case IR_FAMILY_POINTWISE: return pointwise_fits(s);
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST: return copy_fits(s);
  case IR_FAMILY_REDUCE:
  case IR_FAMILY_MOMENT: return reduced_fits(s, attr(s, "keepdim")->i != 0, true);
  case IR_FAMILY_BROADCAST: return inserted_fits(s);
  case IR_FAMILY_SQUEEZE: return squeezed_fits(s);
  case IR_FAMILY_EXPAND: return pointwise_fits(s);
  case IR_FAMILY_PERMUTE: return permuted_fits(s);
  case IR_FAMILY_RESHAPE: return reshaped_fits(s);
  case IR_FAMILY_SLICE:
  case IR_FAMILY_PAD: return resized_fits(s);
  case IR_FAMILY_CAT: return cat_fits(s);
  case IR_FAMILY_SELECT: return selected_fits(s);
  case IR_FAMILY_MAKER: return made_fits(s);
  case IR_FAMILY_GATHER: return gathered_fits(s);
  case IR_FAMILY_SCATTER: return scattered_fits(s);
  case IR_FAMILY_UPDATE: return updated_fits(s);
  case IR_FAMILY_INDEX_SELECT: return index_selected_fits(s);
  case IR_FAMILY_ONE_HOT: return one_hot_fits(s);
  case IR_FAMILY_MATMUL: return matmul_fits(s);
  case IR_FAMILY_LINEAR: return linear_fits(s);
  case IR_FAMILY_TOPK: return topk_fits(s);
  case IR_FAMILY_SCAN:
  case IR_FAMILY_SORT:
  case IR_FAMILY_SOFTMAX: return normalized_fits(s, position(attr(s, "dim")->i, s->r->rank));
  case IR_FAMILY_NORM: return normalized_fits(s, s->r->rank - 1);
  case IR_FAMILY_SDPA: return sdpa_fits(s);
  case IR_FAMILY_SDPA_BACKWARD: return sdpa_backward_fits(s);
  }
  return false;
}

/* Only some operations know how to compute a part of their result. */
static bool takes_window(ir_opcode code) {
  ir_family f = ir_op_info_of(code)->family;
  return f == IR_FAMILY_RESHAPE || f == IR_FAMILY_SLICE || f == IR_FAMILY_PAD ||
         f == IR_FAMILY_CAT || f == IR_FAMILY_GATHER || f == IR_FAMILY_SCATTER ||
         f == IR_FAMILY_UPDATE || f == IR_FAMILY_SOFTMAX || f == IR_FAMILY_NORM ||
         f == IR_FAMILY_SDPA || f == IR_FAMILY_SCAN || f == IR_FAMILY_SORT || f == IR_FAMILY_TOPK ||
         f == IR_FAMILY_ONE_HOT || code == IR_OP_IOTA || code == IR_OP_UNIFORM;
}

/* Entries per dimension that attributes must have, as far as these operations read them. */
static bool entries_fit(const shapes *s) {
  uint32_t rank = s->r->rank;
  switch ((int)s->task->code) {
  case IR_OP_RESHAPE:
  case IR_OP_UNIFORM: return attr(s, "shape")->len == rank;
  case IR_OP_IOTA: return rank == 1;
  case IR_OP_SLICE: return attr(s, "starts")->len == rank && attr(s, "stops")->len == rank;
  case IR_OP_PAD: return attr(s, "widths")->len == 2 * rank;
  default: return true;
  }
}

static bool tensors_only(const shapes *s) {
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    if (s->task->operands[k].kind == RT_OPERAND_NUMBER) return false;
  }
  return true;
}

static bool has_dim(ir_opcode code) {
  const ir_param *p = ir_op_info_of(code)->params;
  while (p->kind != IR_PARAM_END && strcmp(p->name, "dim") != 0) p++;
  return p->kind != IR_PARAM_END;
}

static bool dim_fits(const shapes *s) {
  int64_t rank = s->task->n_operands ? operand(s, 0)->rank : 0, dim;
  if (!has_dim(s->task->code)) return true;
  dim = attr(s, "dim")->i;
  return dim >= -rank && dim < rank;
}

/* Operations that write elements as they are, without converting them, need a destination of the
 * right dtype. */
static bool dtype_fits(const shapes *s) {
  ir_family f = ir_op_info_of(s->task->code)->family;
  bool moves = f == IR_FAMILY_RESHAPE || f == IR_FAMILY_SLICE || f == IR_FAMILY_PAD ||
               f == IR_FAMILY_GATHER || f == IR_FAMILY_SCATTER || f == IR_FAMILY_UPDATE ||
               s->task->code == IR_OP_TOPK;
  bool finds = f == IR_FAMILY_SORT || s->task->code == IR_OP_TOPK_INDEX;
  return finds ? s->r->dtype == IR_I64 : !moves || s->r->dtype == operand(s, 0)->dtype;
}

/* The result of a window is not inferred, so what inference would refuse is refused here. */
static bool window_fits(shapes *s) {
  if (!takes_window(s->task->code)) return refuse(s, "cannot compute a part of its result ('at')");
  if (!tensors_only(s)) return refuse(s, "needs a tensor, not a number");
  if (!dim_fits(s)) return refuse(s, "dim is out of range");
  if (!dtype_fits(s)) return refuse(s, "the destination has another dtype than the result");
  if (!entries_fit(s)) return refuse(s, "the destination has another rank than the result");
  for (uint32_t i = 0; i < s->r->rank; i++) {
    int64_t at = s->offset[i];
    if (at < 0 || at > INT64_MAX / 4) return refuse(s, "an offset is out of range");
  }
  return true;
}

static bool begin_window(shapes *s) {
  const ir_instr_data *d = s->d;
  s->windowed = d->offsets != NULL;
  for (uint32_t i = 0; i < s->r->rank; i++) {
    s->whole[i] = s->r->extents[i];
    /* mutant: plan_offset_ignored */
    if (d->offsets && !bind_eval(s->b, d, d->offsets[i], &s->offset[i])) return false;
  }
  return true;
}

/* ---- further results ---- */
static bool refuse_more(shapes *s, uint32_t k) {
  const ir_op_info *info = ir_op_info_of(s->task->code);
  strbuf out;
  strbuf_init(&out, &s->b->scratch);
  strbuf_printf(&out, "%s: the destination of the %s, ", info->name, info->results[k]);
  put_extents(&out, ir_tensor_name(s->b->h, ir_op_result(ir_op_at(s->b->h, s->d->op), k)),
              bind_view_at(s->b, rt_task_result(s->task, k)));
  strbuf_puts(&out, ", while that ");
  put_extents(&out, "of the first result", s->r);
  return bind_error(s->b, s->d, "%s", out.data);
}

/* Gradients are like their operands; other results have the extents of the first, or of its window, and
 * the lse has one axis less. */
static bool more_fits(shapes *s, uint32_t k) {
  const rt_view *v = bind_view_at(s->b, rt_task_result(s->task, k)), *like = s->r;
  bool gradient = s->task->code == IR_OP_SDPA_BACKWARD, lse = s->task->code == IR_OP_SDPA;
  ir_dtype dtype = s->r->dtype;
  if (gradient) like = operand(s, k);
  if (gradient) dtype = like->dtype;
  if (lse) dtype = ir_dtype_accumulator(dtype);
  if (s->task->code == IR_OP_TOPK) dtype = IR_I64;
  bool fits = v->dtype == dtype && v->rank + lse == like->rank && same_extents(v, like, v->rank);
  return fits || refuse_more(s, k);
}

bool bind_shapes_fit(binder *b, const ir_instr_data *d, rt_task *task) {
  shapes s = {.b = b, .d = d, .task = task, .r = bind_view_at(b, task->result)};
  if (!begin_window(&s) || (s.windowed && !window_fits(&s)) || !fits(&s)) return false;
  for (uint32_t k = 1; k < rt_task_n_results(task); k++) {
    if (!more_fits(&s, k)) return false;
  }
  if (!s.windowed) return true;
  if (!windows_inside(&s)) return false;
  task->offset = bind_list(b, s.offset, s.r->rank, NULL);
  task->whole = bind_list(b, s.whole, s.r->rank, NULL);
  return true;
}
