/* Which part of a buffer is written: a binary partition of the space between the outermost boundaries
 * of all its writes, cut only where a write needs it, and always in the middle of the boundaries that
 * are left, so that it stays balanced whatever the order of the writes.
 *
 * Between two neighbouring boundaries of every level lies a cell; writes consist of whole cells. */
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"

/* Cells begin[l] .. end[l] of every level. */
typedef struct cells {
  int32_t begin[CHECK_MAX_LEVELS], end[CHECK_MAX_LEVELS];
} cells;

static int compare_coordinates(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Mostly the two ends of one write. */
static void sort_few(int64_t *data, uint32_t n) {
  for (uint32_t i = 1; i < n; i++) {
    int64_t x = data[i];
    uint32_t k = i;
    for (; k > 0 && data[k - 1] > x; k--) data[k] = data[k - 1];
    data[k] = x;
  }
}

static int32_t sort_unique(int64_t *data, uint32_t n) {
  enum { FEW = 16 };
  if (n <= FEW) sort_few(data, n);
  else qsort(data, n, sizeof *data, compare_coordinates);
  uint32_t kept = 0;
  for (uint32_t k = 0; k < n; k++)
    if (k == 0 || data[k] != data[kept - 1]) data[kept++] = data[k];
  return (int32_t)kept;
}

void check_cover_init(check_cover *c, arena *memory, uint32_t levels, const check_boxes *boxes) {
  *c = (check_cover){.levels = levels};
  uint32_t n = boxes->len / (2 * levels);
  for (uint32_t l = 0; l < levels; l++) {
    c->bounds[l] = ARENA_ARRAY(memory, 2 * (size_t)n, int64_t);
    for (uint32_t k = 0; k < n; k++) {
      const int64_t *box = &boxes->data[(size_t)k * 2 * levels];
      c->bounds[l][2 * k] = box[2 * l];
      c->bounds[l][2 * k + 1] = box[2 * l + 1];
    }
    c->n_bounds[l] = sort_unique(c->bounds[l], 2 * n);
  }
  vec_push(memory, &c->nodes, ((check_cover_node){0}));
}

static cells all_cells(const check_cover *c) {
  cells all = {0};
  for (uint32_t l = 0; l < c->levels; l++) all.end[l] = c->n_bounds[l] - 1;
  return all;
}

/* The number of boundaries up to and including x. */
static int32_t count_to(const int64_t *bounds, int32_t n, int64_t x) {
  int32_t low = 0, high = n;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (bounds[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The cells a box touches; false: it reaches outside of all of them at `level`. */
static bool cells_of(const check_cover *c, const int64_t *box, cells *r, uint32_t *level) {
  for (uint32_t l = 0; l < c->levels; l++) {
    const int64_t *bounds = c->bounds[l];
    int32_t n = c->n_bounds[l];
    *level = l;
    if (n == 0 || box[2 * l] < bounds[0] || box[2 * l + 1] > bounds[n - 1]) return false;
    r->begin[l] = count_to(bounds, n, box[2 * l]) - 1;
    r->end[l] = count_to(bounds, n, box[2 * l + 1] - 1);
  }
  return true;
}

static bool contains(const check_cover *c, const cells *outer, const cells *inner) {
  for (uint32_t l = 0; l < c->levels; l++)
    if (outer->begin[l] > inner->begin[l] || outer->end[l] < inner->end[l]) return false;
  return true;
}

/* Cuts a leaf in the middle of a level in which `box` is only a part of `space`. */
static void cut(check_cover *c, arena *memory, uint32_t node, const cells *space,
                const cells *box) {
  uint32_t l = 0;
  while (box->begin[l] <= space->begin[l] && box->end[l] >= space->end[l]) l++;
  check_cover_node *n = &c->nodes.data[node];
  n->level = (uint8_t)l;
  n->at = space->begin[l] + (space->end[l] - space->begin[l]) / 2;
  n->child = c->nodes.len;
  vec_push(memory, &c->nodes, ((check_cover_node){0}));
  vec_push(memory, &c->nodes, ((check_cover_node){0}));
}

/* The two halves of a node's space. */
static cells half(const check_cover_node *n, const cells *space, uint32_t side) {
  cells h = *space;
  *(side ? &h.begin[n->level] : &h.end[n->level]) = n->at;
  return h;
}

static bool reaches(const check_cover_node *n, const cells *box, uint32_t side) {
  return side ? box->end[n->level] > n->at : box->begin[n->level] < n->at;
}

static void add(check_cover *c, arena *memory, uint32_t node, const cells *space,
                const cells *box) {
  if (c->nodes.data[node].covered) return;
  if (contains(c, box, space)) {
    c->nodes.data[node].covered = true;
    return;
  }
  if (!c->nodes.data[node].child) cut(c, memory, node, space, box);
  check_cover_node n = c->nodes.data[node];
  for (uint32_t side = 0; side < 2; side++) {
    cells h = half(&n, space, side);
    if (reaches(&n, box, side)) add(c, memory, n.child + side, &h, box);
  }
  c->nodes.data[node].covered =
      c->nodes.data[n.child].covered && c->nodes.data[n.child + 1].covered;
}

void check_cover_add(check_cover *c, arena *memory, const int64_t *box) {
  cells space = all_cells(c), r = {0};
  uint32_t level;
  check(cells_of(c, box, &r, &level));
  add(c, memory, 0, &space, &r);
}

static bool has(const check_cover *c, uint32_t node, const cells *space, const cells *box,
                cells *hole) {
  const check_cover_node *n = &c->nodes.data[node];
  if (n->covered) return true;
  if (!n->child) {
    *hole = *space;
    return false;
  }
  for (uint32_t side = 0; side < 2; side++) {
    cells h = half(n, space, side);
    if (reaches(n, box, side) && !has(c, n->child + side, &h, box, hole)) return false;
  }
  return true;
}

bool check_cover_has(const check_cover *c, const int64_t *box, int64_t *hole) {
  cells space = all_cells(c), r = {0}, empty = {0};
  uint32_t level;
  memcpy(hole, box, 2 * (size_t)c->levels * sizeof *hole);
  if (!cells_of(c, box, &r, &level)) {
    const int64_t *bounds = c->bounds[level];
    int32_t n = c->n_bounds[level];
    if (n && box[2 * level] < bounds[0] && box[2 * level + 1] > bounds[0])
      hole[2 * level + 1] = bounds[0];
    else if (n && box[2 * level] < bounds[n - 1] && box[2 * level] >= bounds[0])
      hole[2 * level] = bounds[n - 1];
    return false;
  }
  if (has(c, 0, &space, &r, &empty)) return true;
  for (uint32_t l = 0; l < c->levels; l++) {
    int64_t begin = c->bounds[l][empty.begin[l]], end = c->bounds[l][empty.end[l]];
    if (hole[2 * l] < begin) hole[2 * l] = begin;
    if (hole[2 * l + 1] > end) hole[2 * l + 1] = end;
  }
  return false;
}
