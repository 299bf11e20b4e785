/* Whether two views share a byte.
 *
 * Byte p of view a and byte q of view b are the same if
 *     offset a + sum i·stride + p  =  offset b + sum j·stride + q.
 * So there must be a sum of multiples of all strides, each within its extent, that is the distance of the
 * offsets. Largest strides come first; as those of slices nest, one or two multiples of each are possible. */
#include "runtime/plan.h"

enum { MOST_TERMS = 2 * IR_MAX_RANK + 1, MOST_TRIES = 4096 };

typedef struct term {
  int64_t stride, lo, hi; /* k * stride, where lo <= k <= hi */
} term;

typedef struct sum {
  term terms[MOST_TERMS];
  uint32_t n, tries;
  int64_t low[MOST_TERMS + 1], high[MOST_TERMS + 1]; /* of the terms from there on */
} sum;

static void add_term(sum *s, int64_t stride, int64_t lo, int64_t hi) {
  uint32_t at = 0;
  if (stride == 0) return;
  if (stride < 0) {
    add_term(s, -stride, -hi, -lo);
    return;
  }
  while (at < s->n && s->terms[at].stride > stride) at++;
  if (at < s->n && s->terms[at].stride == stride) {
    s->terms[at].lo += lo;
    s->terms[at].hi += hi;
    return;
  }
  for (uint32_t i = s->n++; i > at; i--) s->terms[i] = s->terms[i - 1];
  s->terms[at] = (term){stride, lo, hi};
}

static void find_bounds(sum *s) {
  s->low[s->n] = s->high[s->n] = 0;
  for (uint32_t i = s->n; i-- > 0;) {
    s->low[i] = s->low[i + 1] + s->terms[i].lo * s->terms[i].stride;
    s->high[i] = s->high[i + 1] + s->terms[i].hi * s->terms[i].stride;
  }
}

static int64_t divide_down(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Yes if it takes too long to tell. */
static bool reaches(sum *s, uint32_t i, int64_t goal) {
  if (goal < s->low[i] || goal > s->high[i]) return false;
  if (i == s->n || s->tries == 0) return true;
  const term *t = &s->terms[i];
  int64_t lo = -divide_down(s->high[i + 1] - goal, t->stride);
  int64_t hi = divide_down(goal - s->low[i + 1], t->stride);
  if (lo < t->lo) lo = t->lo;
  if (hi > t->hi) hi = t->hi;
  for (int64_t k = lo; k <= hi; k++) {
    if (s->tries > 0) s->tries--;
    if (reaches(s, i + 1, goal - k * t->stride)) return true;
  }
  return false;
}

bool rt_views_meet(const rt_view *a, const rt_view *b) {
  const rt_view *views[2] = {a, b};
  sum s = {.n = 0, .tries = MOST_TRIES};
  for (int k = 0; k < 2; k++) {
    const rt_view *v = views[k];
    int64_t bytes = (int64_t)ir_dtype_size_bytes(v->dtype), sign = k == 0 ? 1 : -1;
    for (uint32_t d = 0; d < v->rank; d++) {
      if (v->extents[d] == 0) return false;
      add_term(&s, sign * v->strides[d] * bytes, 0, v->extents[d] - 1);
    }
    add_term(&s, sign, 0, bytes - 1);
  }
  find_bounds(&s);
  return reaches(&s, 0, b->offset_bytes - a->offset_bytes);
}
