/* Extents, views that have no elements, and views whose elements share bytes. */
#include <stdlib.h>

#include "runtime/plan.h"

typedef struct step {
  int64_t stride, extent; /* stride >= 0, extent >= 2 */
} step;

bool rt_extents_same(uint32_t a_rank, const int64_t *a, uint32_t b_rank, const int64_t *b) {
  for (uint32_t d = 0; d < a_rank && a_rank == b_rank; d++)
    if (a[d] != b[d]) return false;
  return a_rank == b_rank;
}

bool rt_view_is_empty(const rt_view *v) {
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->extents[d] == 0) return true;
  return false;
}

/* The dimensions that move, by ascending stride. */
static uint32_t steps_of(const rt_view *v, step *steps) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < v->rank; d++) {
    if (v->extents[d] < 2) continue;
    step s = {v->strides[d] < 0 ? -v->strides[d] : v->strides[d], v->extents[d]};
    uint32_t k = n++;
    for (; k > 0 && steps[k - 1].stride > s.stride; k--) steps[k] = steps[k - 1];
    steps[k] = s;
  }
  return n;
}

/* Each dimension steps over all that the smaller ones reach: so do all slices of dense tensors. */
static bool is_nested(const step *steps, uint32_t n) {
  int64_t reach = 0;
  for (uint32_t k = 0; k < n; k++) {
    int64_t more;
    if (steps[k].stride <= reach) return false;
    if (__builtin_mul_overflow(steps[k].stride, steps[k].extent - 1, &more) ||
        __builtin_add_overflow(reach, more, &reach))
      return k + 1 == n;
  }
  return true;
}

enum { MAX_ELEMENTS = 4096 };

static int compare_places(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* All places, sorted: equal ones are neighbours. */
static rt_overlap try_all(const step *steps, uint32_t n) {
  int64_t places[MAX_ELEMENTS] = {0};
  int64_t count = 1;
  for (uint32_t k = 0; k < n; k++) {
    if (steps[k].extent > MAX_ELEMENTS / count || steps[k].stride > INT64_MAX / MAX_ELEMENTS / 16)
      return RT_MAY_OVERLAP;
    for (int64_t i = 1; i < steps[k].extent; i++)
      for (int64_t j = 0; j < count; j++) places[i * count + j] = places[j] + i * steps[k].stride;
    count *= steps[k].extent;
  }
  qsort(places, (size_t)count, sizeof *places, compare_places);
  for (int64_t i = 1; i < count; i++)
    if (places[i] == places[i - 1]) return RT_OVERLAP;
  return RT_APART;
}

rt_overlap rt_view_overlap(const rt_view *v) {
  step steps[IR_MAX_RANK];
  if (rt_view_is_empty(v)) return RT_APART;
  uint32_t n = steps_of(v, steps);
  if (is_nested(steps, n)) return RT_APART;
  return steps[0].stride == 0 ? RT_OVERLAP : try_all(steps, n);
}
