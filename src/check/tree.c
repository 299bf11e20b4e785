/* A k-d tree over the boxes of a region, built once, that remembers per box and line the last access
 * and the last write.
 *
 * Begin and end of each level are coordinates in their own right. A node holds the smallest and largest
 * of each below it, so for a given box it knows when none of its boxes meet it and when all do; in both
 * cases the search stops there. A read of a whole tensor written in n slices looks at one node. */
#include "check/internal.h"

typedef struct builder {
  check_tree *tree;
  uint32_t *order; /* boxes, being sorted into leaves */
  uint32_t n_nodes;
} builder;

static uint32_t coordinates(const check_tree *t) { return 2 * t->levels; }

static int64_t coordinate(const builder *b, uint32_t k, uint32_t c) {
  return b->tree->boxes[(size_t)b->order[k] * coordinates(b->tree) + c];
}

static int64_t *bounds_of(const check_tree *t, uint32_t node) {
  return &t->bounds[(size_t)node * 2 * coordinates(t)];
}

static void find_bounds(builder *b, uint32_t node, uint32_t from, uint32_t to) {
  int64_t *bounds = bounds_of(b->tree, node);
  for (uint32_t c = 0; c < coordinates(b->tree); c++) {
    bounds[2 * c] = INT64_MAX;
    bounds[2 * c + 1] = INT64_MIN;
    for (uint32_t k = from; k < to; k++) {
      int64_t x = coordinate(b, k, c);
      if (x < bounds[2 * c]) bounds[2 * c] = x;
      if (x > bounds[2 * c + 1]) bounds[2 * c + 1] = x;
    }
  }
}

/* How long boxes are at a level, on the average. */
static double mean_length(const builder *b, uint32_t level, uint32_t from, uint32_t to) {
  double sum = 0;
  for (uint32_t k = from; k < to; k++)
    sum += (double)(coordinate(b, k, 2 * level + 1) - coordinate(b, k, 2 * level));
  return sum / (to - from);
}

/* The coordinate that spreads most, measured in lengths of boxes: a cut where most boxes are long separates
 * few of them. */
static uint32_t widest(const builder *b, uint32_t node, uint32_t from, uint32_t to) {
  const int64_t *bounds = bounds_of(b->tree, node);
  uint32_t best = 0;
  double most = -1;
  for (uint32_t l = 0; l < b->tree->levels; l++) {
    double length = mean_length(b, l, from, to);
    for (uint32_t c = 2 * l; c < 2 * l + 2; c++) {
      if (bounds[2 * c] == bounds[2 * c + 1]) continue;
      double spread = (double)(bounds[2 * c + 1] - bounds[2 * c]) / length;
      if (spread > most) {
        most = spread;
        best = c;
      }
    }
  }
  return best;
}

/* Orders [from, to) so that what is before `middle` is not larger, what follows not smaller. */
static void select_middle(builder *b, uint32_t from, uint32_t to, uint32_t middle, uint32_t c) {
  while (to - from > 1) {
    int64_t pivot = coordinate(b, from + (to - from) / 2, c);
    uint32_t i = from, j = to;
    while (i < j) {
      while (coordinate(b, i, c) < pivot) i++;
      while (coordinate(b, j - 1, c) > pivot) j--;
      if (i >= j) break;
      uint32_t swap = b->order[i];
      b->order[i++] = b->order[--j];
      b->order[j] = swap;
    }
    if (middle < j) to = j;
    else if (middle >= i) from = i;
    else return;
  }
}

static uint32_t build(builder *b, uint32_t parent, uint32_t from, uint32_t to) {
  check_tree *t = b->tree;
  uint32_t id = b->n_nodes++;
  t->nodes[id].parent = parent;
  find_bounds(b, id, from, to);
  if (to - from == 1) {
    t->nodes[id].left = b->order[from];
    t->leaf[b->order[from]] = id;
    return id;
  }
  uint32_t middle = from + (to - from) / 2;
  select_middle(b, from, to, middle, widest(b, id, from, to));
  t->nodes[id].left = build(b, id, from, middle);
  t->nodes[id].right = build(b, id, middle, to);
  return id;
}

void check_tree_build(check_tree *t, arena *memory, uint32_t levels, const int64_t *boxes,
                      uint32_t n) {
  *t = (check_tree){.memory = memory, .levels = levels, .n = n, .boxes = boxes};
  if (n == 0) return;
  t->nodes = ARENA_ARRAY(memory, 2 * (size_t)n - 1, check_node);
  t->bounds = ARENA_ARRAY(memory, (2 * (size_t)n - 1) * 2 * coordinates(t), int64_t);
  t->leaf = ARENA_ARRAY(memory, n, uint32_t);
  builder b = {.tree = t, .order = ARENA_ARRAY(memory, n, uint32_t)};
  for (uint32_t k = 0; k < n; k++) b.order[k] = k;
  build(&b, 0, 0, n);
}

void check_slots_put(arena *memory, check_slots *slots, check_slot slot) {
  for (uint32_t k = 0; k < slots->len; k++)
    if (slots->data[k].stream == slot.stream) {
      if (slots->data[k].last < slot.last) slots->data[k].last = slot.last;
      return;
    }
  vec_push(memory, slots, slot);
}

void check_tree_insert(check_tree *t, uint32_t box, uint32_t stream, uint32_t access, bool write) {
  check_slot slot = {.stream = stream, .last = access + 1};
  for (uint32_t id = t->leaf[box];; id = t->nodes[id].parent) {
    check_slots_put(t->memory, &t->nodes[id].any, slot);
    if (write) check_slots_put(t->memory, &t->nodes[id].writes, slot);
    if (id == 0) break;
  }
}

/* ---- searching ---- */
typedef enum meeting { MEETS_NONE, MEETS_SOME, MEETS_ALL } meeting;

static meeting meets(const check_tree *t, uint32_t node, const int64_t *box) {
  const int64_t *bounds = bounds_of(t, node);
  meeting m = MEETS_ALL;
  for (uint32_t l = 0; l < t->levels; l++, bounds += 4, box += 2) {
    if (bounds[0] >= box[1] || bounds[3] <= box[0]) return MEETS_NONE;
    if (bounds[1] >= box[1] || bounds[2] <= box[0]) m = MEETS_SOME;
  }
  return m;
}

static bool is_news(const check_search *s, check_slot slot) {
  return slot.stream != s->stream && slot.last > s->known[slot.stream] &&
         slot.last > s->need[slot.stream];
}

static bool has_news(const check_search *s, const check_slots *slots) {
  for (uint32_t k = 0; k < slots->len; k++)
    if (is_news(s, slots->data[k])) return true;
  return false;
}

static void take_news(check_search *s, const check_slots *slots) {
  for (uint32_t k = 0; k < slots->len; k++) {
    check_slot slot = slots->data[k];
    if (!is_news(s, slot)) continue;
    if (!s->need[slot.stream]) s->touched[s->n_touched++] = slot.stream;
    s->need[slot.stream] = slot.last;
    s->by[slot.stream] = s->access;
  }
}

static void search(const check_tree *t, uint32_t node, const int64_t *box, bool write,
                   check_search *s) {
  const check_node *n = &t->nodes[node];
  const check_slots *slots = write ? &n->any : &n->writes;
  meeting m = meets(t, node, box);
  if (m == MEETS_NONE || !has_news(s, slots)) return;
  if (m == MEETS_ALL) take_news(s, slots);
  if (m != MEETS_SOME || !n->right) return;
  search(t, n->left, box, write, s);
  search(t, n->right, box, write, s);
}

void check_tree_search(const check_tree *t, const int64_t *box, bool write, check_search *s) {
  if (t->n) search(t, 0, box, write, s);
}
