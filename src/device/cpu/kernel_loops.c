/* Loops over several views at once: fewer dimensions, the best one innermost. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_internal.h"

static void add_dim(cpu_loops *l, uint32_t d, int64_t extent, const cpu_view *views) {
  l->extents[l->rank] = extent;
  for (uint32_t v = 0; v < l->n_views; v++)
    l->steps[v][l->rank] = views[v].strides[d] * (int64_t)ir_dtype_size_bytes(views[v].dtype);
  l->rank++;
}

static void copy_dim(cpu_loops *l, uint32_t to, uint32_t from) {
  l->extents[to] = l->extents[from];
  for (uint32_t v = 0; v < l->n_views; v++) l->steps[v][to] = l->steps[v][from];
}

void cpu_loops_move(cpu_loops *l, uint32_t from, uint32_t to) {
  cpu_loops old = *l;
  int direction = from < to ? 1 : -1;
  for (uint32_t d = from; d != to; d = (uint32_t)((int)d + direction))
    copy_dim(l, d, (uint32_t)((int)d + direction));
  l->extents[to] = old.extents[from];
  for (uint32_t v = 0; v < l->n_views; v++) l->steps[v][to] = old.steps[v][from];
}

/* Does dimension a belong outside of b? Decided by the first view that tells them apart. */
static bool goes_outside(const cpu_loops *l, uint32_t a, uint32_t b) {
  for (uint32_t v = 0; v < l->n_views; v++) {
    int64_t sa = llabs(l->steps[v][a]), sb = llabs(l->steps[v][b]);
    if (sa != sb) return sa > sb;
  }
  return false;
}

static void sort_dims(cpu_loops *l) {
  for (uint32_t d = 1; d < l->rank; d++) {
    uint32_t to = d;
    while (to > 0 && goes_outside(l, d, to - 1)) to--;
    cpu_loops_move(l, d, to);
  }
}

/* One step of the outer dimension is a whole pass of the inner one, in every view. */
static bool can_merge(const cpu_loops *l, uint32_t outer, uint32_t inner) {
  for (uint32_t v = 0; v < l->n_views; v++)
    if (l->steps[v][outer] != l->steps[v][inner] * l->extents[inner]) return false;
  return true;
}

static void merge_dims(cpu_loops *l) {
  uint32_t last = 0;
  for (uint32_t d = 1; d < l->rank; d++) {
    int64_t outer = l->extents[last];
    bool merges = can_merge(l, last, d);
    if (!merges) last++;
    copy_dim(l, last, d);
    if (merges) l->extents[last] *= outer;
  }
  l->rank = last + 1;
}

void cpu_loops_make(cpu_loops *l, cpu_loop_order order, uint32_t rank, const int64_t *extents,
                    const cpu_view *views, uint32_t n_views) {
  check(n_views <= CPU_MAX_VIEWS);
  memset(l, 0, sizeof *l);
  l->n_views = n_views;
  for (uint32_t d = 0; d < rank; d++)
    if (extents[d] != 1) add_dim(l, d, extents[d], views);
  if (l->rank == 0) { /* a single element counts as dense */
    l->extents[l->rank++] = 1;
    for (uint32_t v = 0; v < n_views; v++)
      l->steps[v][0] = (int64_t)ir_dtype_size_bytes(views[v].dtype);
  }
  if (order == CPU_BY_FIRST) sort_dims(l);
  merge_dims(l);
}

uint32_t cpu_columns_of(const cpu_view *v, uint32_t rank, const int64_t *extents, uint32_t dim) {
  uint32_t best = rank;
  int64_t least = extents[dim] > 1 ? llabs(v->strides[dim]) : INT64_MAX;
  for (uint32_t d = 0; d < rank; d++) {
    if (d == dim || extents[d] < 2 || llabs(v->strides[d]) >= least) continue;
    least = llabs(v->strides[d]);
    best = d;
  }
  return best;
}

cpu_walk cpu_walk_start(const cpu_loops *l, const cpu_view *views, char *const *starts) {
  cpu_walk w = {.index = {0}};
  for (uint32_t v = 0; v < l->n_views; v++) w.at[v] = cpu_view_start(&views[v], starts);
  return w;
}
