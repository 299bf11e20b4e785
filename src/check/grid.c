/* Views as boxes of a mixed-radix grid.
 *
 * A slice of a dense tensor is, in the tensor's own coordinates, an interval per dimension. The grid
 * recovers such coordinates from the strides alone: they are the units of its levels.
 *
 *   f32[4, 8], columns 2..4:  at 8, strides 1 (x8 bytes) and 32 (x4)
 *   grid {1, 32}:             [8, 16) x [0, 4)
 *
 * Columns 4..6 are [16, 24) x [0, 4): disjoint, though the bytes interleave. */
#include <string.h>

#include "check/internal.h"

bool check_view_range(const rt_view *v, int64_t *begin, int64_t *end) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype), low = v->offset_bytes, high = low;
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->extents[d] == 0) {
      *begin = *end = v->offset_bytes;
      return true;
    }
  for (uint32_t d = 0; d < v->rank; d++) {
    int64_t reach;
    if (__builtin_mul_overflow(v->strides[d], size, &reach) ||
        __builtin_mul_overflow(reach, v->extents[d] - 1, &reach) ||
        __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
      return false;
  }
  *begin = low;
  return !__builtin_add_overflow(high, size, end);
}

/* Dimensions in ascending order of stride, without those that stay in place. */
static void add_dim(check_strided *s, int64_t stride, int64_t extent) {
  if (stride < 0) {
    s->at += stride * (extent - 1);
    stride = -stride;
  }
  if (stride == 0 || extent == 1) return;
  uint32_t k = s->n++;
  for (; k > 0 && s->dims[k - 1].stride > stride; k--) s->dims[k] = s->dims[k - 1];
  s->dims[k].stride = stride;
  s->dims[k].extent = extent;
}

/* Where the steps of a dimension leave no gap after the one below, the two are one:
 *   (stride 4, extent 8), (stride 32, extent 3)  ⇒  (stride 4, extent 24) */
static void merge_dims(check_strided *s) {
  uint32_t n = 1;
  for (uint32_t k = 1; k < s->n; k++) {
    int64_t step = s->dims[k].stride / s->dims[n - 1].stride;
    bool whole = s->dims[k].stride % s->dims[n - 1].stride == 0;
    if (whole && step <= s->dims[n - 1].extent)
      s->dims[n - 1].extent += step * (s->dims[k].extent - 1);
    else s->dims[n++] = s->dims[k];
  }
  s->n = n;
}

check_strided check_range_strided(int64_t begin, int64_t end) {
  check_strided s;
  s.at = begin;
  s.n = 1;
  s.dims[0].stride = 1;
  s.dims[0].extent = end - begin;
  return s;
}

check_strided check_view_strided(const rt_view *v, int64_t at) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype);
  check_strided s = check_range_strided(at, at + size);
  for (uint32_t d = v->rank; d-- > 0;) add_dim(&s, v->strides[d] * size, v->extents[d]);
  merge_dims(&s);
  return s;
}

/* ---- choosing the grid ---- */
enum { MAX_STRIDES = 64 }; /* told apart; views with further ones are split into pieces */

void check_strides_add(check_strides *list, arena *memory, const check_strided *s) {
  for (uint32_t d = 1; d < s->n; d++) {
    uint32_t k = 0;
    while (k < list->len && list->data[k].stride != s->dims[d].stride) k++;
    if (k == MAX_STRIDES) continue;
    if (k == list->len) vec_push(memory, list, ((check_stride){.stride = s->dims[d].stride}));
    list->data[k].weight += s->dims[d].extent;
  }
}

static bool fits_chain(const check_grid *g, int64_t unit) {
  for (uint32_t l = 0; l < g->levels; l++)
    if (g->unit[l] == unit || (g->unit[l] % unit != 0 && unit % g->unit[l] != 0)) return false;
  return true;
}

static void add_level(check_grid *g, int64_t unit) {
  uint32_t l = g->levels++;
  for (; g->unit[l - 1] > unit; l--) g->unit[l] = g->unit[l - 1];
  g->unit[l] = unit;
}

/* The most used stride first; others as long as all divide one another. */
check_grid check_grid_choose(check_strides *list) {
  check_grid g = {.levels = 1, .unit = {1}};
  while (g.levels < CHECK_MAX_LEVELS) {
    check_stride *best = NULL;
    for (uint32_t k = 0; k < list->len; k++) {
      check_stride *s = &list->data[k];
      bool more = !best || s->weight > best->weight ||
                  (s->weight == best->weight && s->stride < best->stride);
      if (more && fits_chain(&g, s->stride)) best = s;
    }
    if (!best) break;
    add_level(&g, best->stride);
  }
  return g;
}

/* ---- splitting ---- */
typedef struct splitter {
  const check_grid *grid;
  arena *memory;
  check_boxes *out;
} splitter;

static int64_t radix(const check_grid *g, uint32_t level) {
  return level + 1 < g->levels ? g->unit[level + 1] / g->unit[level] : INT64_MAX;
}

static int64_t digit(const check_grid *g, int64_t at, uint32_t level) {
  return at / g->unit[level] % radix(g, level);
}

/* A level that would run over into the next one is cut where it does.
 *
 *     |. . A A|      head
 *     |A A A A|      whole rows: one more extent of the next level
 *     |A A A A|
 *     |A . . .|      tail                                                     */
static void split_carry(const splitter *s, int64_t at, const int64_t *extent) {
  const check_grid *g = s->grid;
  uint32_t l = 0;
  while (l < g->levels && extent[l] <= radix(g, l) - digit(g, at, l)) l++;
  int64_t part[CHECK_MAX_LEVELS];
  memcpy(part, extent, sizeof part);
  if (l == g->levels) {
    for (l = 0; l < g->levels; l++) {
      vec_push(s->memory, s->out, digit(g, at, l));
      vec_push(s->memory, s->out, digit(g, at, l) + extent[l]);
    }
    return;
  }
  int64_t row = radix(g, l), head = (row - digit(g, at, l)) % row;
  int64_t rows = (extent[l] - head) / row, tail = (extent[l] - head) % row;
  if ((part[l] = head) > 0) split_carry(s, at, part);
  at += head * g->unit[l];
  if ((part[l] = tail) > 0) split_carry(s, at + rows * g->unit[l + 1], part);
  part[l] = row;
  part[l + 1] += rows - 1;
  if (rows > 0) split_carry(s, at, part);
}

/* Dimensions whose stride is no unit of the grid are walked step by step. */
static void split_dim(const splitter *sp, const check_strided *s, uint32_t dim, int64_t at,
                      int64_t *extent) {
  if (dim == s->n) {
    split_carry(sp, at, extent);
    return;
  }
  const check_grid *g = sp->grid;
  for (uint32_t l = 0; l < g->levels; l++)
    if (g->unit[l] == s->dims[dim].stride) {
      extent[l] = s->dims[dim].extent;
      split_dim(sp, s, dim + 1, at, extent);
      return;
    }
  for (int64_t i = 0; i < s->dims[dim].extent; i++)
    split_dim(sp, s, dim + 1, at + i * s->dims[dim].stride, extent);
}

static bool has_unit(const check_grid *g, int64_t stride) {
  for (uint32_t l = 0; l < g->levels; l++)
    if (g->unit[l] == stride) return true;
  return false;
}

bool check_grid_fits(const check_grid *g, const check_strided *s, int64_t limit) {
  int64_t steps = 1;
  for (uint32_t d = 0; d < s->n; d++)
    if (!has_unit(g, s->dims[d].stride) &&
        (__builtin_mul_overflow(steps, s->dims[d].extent, &steps) || steps > limit))
      return false;
  return true;
}

bool check_grid_split(const check_grid *g, const check_strided *s, uint32_t limit, arena *memory,
                      check_boxes *out) {
  splitter sp = {.grid = g, .memory = memory, .out = out};
  check_strided hull = check_range_strided(s->at, s->at + 1);
  for (uint32_t d = 0; d < s->n; d++)
    hull.dims[0].extent += s->dims[d].stride * (s->dims[d].extent - 1);
  bool exact = check_grid_fits(g, s, limit);
  int64_t extent[CHECK_MAX_LEVELS];
  for (uint32_t l = 0; l < CHECK_MAX_LEVELS; l++) extent[l] = 1;
  split_dim(&sp, exact ? s : &hull, 0, s->at, extent);
  return exact;
}

void check_box_range(const check_grid *g, const int64_t *box, int64_t *begin, int64_t *end) {
  *begin = 0;
  *end = 1;
  for (uint32_t l = 0; l < g->levels; l++) {
    *begin += box[2 * l] * g->unit[l];
    *end += (box[2 * l + 1] - 1) * g->unit[l];
  }
}
