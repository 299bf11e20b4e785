/* Whether strided arrays share memory. Both questions ask whether an equation
 *   c[0] u[0] + c[1] u[1] + … = target,   0 <= u[k] <= most[k],   c[k] > 0
 * has a solution in integers. The search tries the largest coefficient first. */
#include "ir/array.h"

enum { MOST_TERMS = 2 * IR_MAX_RANK + 2, MOST_STEPS = 20000 };

typedef struct equation {
  uint32_t n;
  int64_t c[MOST_TERMS], most[MOST_TERMS];
  int64_t rest[MOST_TERMS + 1]; /* the greatest sum of the terms from k on */
  int64_t gcd[MOST_TERMS + 1];  /* of their coefficients */
  uint32_t steps;
} equation;

static void add_term(equation *e, int64_t c, int64_t most) {
  if (c == 0 || most == 0) return;
  uint32_t at = e->n++;
  for (; at > 0 && e->c[at - 1] < c; at--) {
    e->c[at] = e->c[at - 1];
    e->most[at] = e->most[at - 1];
  }
  e->c[at] = c;
  e->most[at] = most;
}

static bool search(equation *e, uint32_t k, int64_t target) {
  if (target == 0) return true;
  if (target > e->rest[k] || target % e->gcd[k] != 0) return false;
  int64_t missing = target - e->rest[k + 1];
  int64_t low = missing > 0 ? (missing - 1) / e->c[k] + 1 : 0;
  int64_t high = target / e->c[k] < e->most[k] ? target / e->c[k] : e->most[k];
  for (int64_t u = high; u >= low; u--) {
    if (++e->steps > MOST_STEPS) return true;
    if (search(e, k + 1, target - u * e->c[k])) return true;
  }
  return false;
}

/* Says yes if a sum overflows: the search would be too long anyway. */
static bool has_solution(equation *e, int64_t target) {
  if (target < 0) return false;
  e->rest[e->n] = 0;
  e->gcd[e->n] = 1;
  for (uint32_t k = e->n; k-- > 0;) {
    int64_t most;
    if (__builtin_mul_overflow(e->c[k], e->most[k], &most) ||
        __builtin_add_overflow(e->rest[k + 1], most, &e->rest[k]))
      return true;
    e->gcd[k] = k + 1 == e->n ? e->c[k] : ir_gcd(e->gcd[k + 1], e->c[k]);
  }
  return search(e, 0, target);
}

bool ir_array_span(const ir_array *a, int64_t *first, int64_t *end) {
  int64_t size = (int64_t)ir_dtype_size_bytes(a->dtype), n, from = 0, to = size;
  *first = *end = 0;
  if (ir_array_count(a, &n) && n == 0) return true;
  for (uint32_t d = 0; d < a->rank; d++) {
    int64_t reach;
    if (__builtin_mul_overflow(a->strides[d], size, &reach) ||
        __builtin_mul_overflow(reach, a->extents[d] - 1, &reach) ||
        __builtin_add_overflow(reach < 0 ? from : to, reach, reach < 0 ? &from : &to))
      return false;
  }
  *first = from;
  *end = to;
  return true;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Is it dense, perhaps with gaps: does no stride reach into the next larger one? */
static bool is_nested(const ir_array *a) {
  bool used[IR_MAX_RANK] = {false};
  int64_t reach = 1;
  for (uint32_t i = 0; i < a->rank; i++) {
    uint32_t least = a->rank;
    for (uint32_t d = 0; d < a->rank; d++)
      if (!used[d] && (least == a->rank || magnitude(a->strides[d]) < magnitude(a->strides[least])))
        least = d;
    used[least] = true;
    if (a->extents[least] == 1) continue;
    if (magnitude(a->strides[least]) < reach) return false;
    reach += magnitude(a->strides[least]) * (a->extents[least] - 1);
  }
  return true;
}

/* Looks at two positions whose indexes are equal in the dimensions before k, differ by 1 to extent - 1 in
 * dimension k, and by any number after it. */
static bool shares_from(const ir_array *a, uint32_t k) {
  equation e = {0};
  int64_t target = -magnitude(a->strides[k]);
  add_term(&e, magnitude(a->strides[k]), a->extents[k] - 2);
  for (uint32_t d = k + 1; d < a->rank; d++) {
    int64_t most = a->extents[d] - 1, stride = magnitude(a->strides[d]), reach;
    if (__builtin_mul_overflow(stride, most, &reach) ||
        __builtin_add_overflow(target, reach, &target) || most > INT64_MAX / 2)
      return true;
    add_term(&e, stride, 2 * most);
  }
  return has_solution(&e, target);
}

bool ir_array_shares(const ir_array *a) {
  int64_t n;
  if (ir_array_count(a, &n) && n <= 1) return false;
  if (is_nested(a)) return false;
  for (uint32_t k = 0; k < a->rank; k++)
    if (a->extents[k] > 1 && shares_from(a, k)) return true;
  return false;
}

static void add_array(equation *e, const ir_array *a) {
  int64_t size = (int64_t)ir_dtype_size_bytes(a->dtype);
  add_term(e, 1, size - 1); /* the bytes of an element */
  for (uint32_t d = 0; d < a->rank; d++)
    add_term(e, magnitude(a->strides[d]) * size, a->extents[d] - 1);
}

/* Two arrays overlap if the offset of a byte from the first byte of `a`, plus its offset back from the last
 * byte of `b`, can be the distance between those two bytes. */
bool ir_arrays_overlap(const ir_array *a, const ir_array *b) {
  int64_t a_first, a_end, b_first, b_end;
  if (!ir_array_span(a, &a_first, &a_end) || !ir_array_span(b, &b_first, &b_end)) return true;
  if (a_first == a_end || b_first == b_end) return false;
  intptr_t a0 = (intptr_t)a->data + (intptr_t)a_first, a1 = (intptr_t)a->data + (intptr_t)a_end;
  intptr_t b0 = (intptr_t)b->data + (intptr_t)b_first, b1 = (intptr_t)b->data + (intptr_t)b_end;
  if (a1 <= b0 || b1 <= a0) return false;
  if (ir_array_is_dense(a) && ir_array_is_dense(b)) return true;
  equation e = {0};
  add_array(&e, a);
  add_array(&e, b);
  return has_solution(&e, (int64_t)(b1 - 1 - a0));
}
