/* Buffers of the pool that live at the same time must not share bytes.
 *
 * Where few live at once, a walk along the plan compares each with those that live when it begins.
 * Otherwise, and to report what does share bytes, a buffer is a box of bytes x instructions, and
 * the tree of accesses finds boxes that meet. */
#include "check/internal.h"

static bool box_of(const rt_buffer *b, uint32_t n_instrs, int64_t box[4]) {
  uint32_t end = b->freed_at < n_instrs ? b->freed_at : n_instrs;
  box[0] = b->offset_bytes;
  box[1] = b->offset_bytes + b->size_bytes;
  box[2] = b->allocated_at;
  box[3] = end;
  return b->kind == RT_BUFFER_POOL && b->size_bytes > 0 && b->allocated_at < end;
}

static void report_layout(check_analysis *c, uint32_t first, uint32_t second) {
  const rt_buffer *a = &c->plan->buffers[first], *b = &c->plan->buffers[second];
  int64_t end_a = a->offset_bytes + a->size_bytes, end_b = b->offset_bytes + b->size_bytes;
  int64_t begin = a->offset_bytes > b->offset_bytes ? a->offset_bytes : b->offset_bytes;
  check_finding f = {.kind = CHECK_LAYOUT,
                     .a = CHECK_NONE,
                     .b = CHECK_NONE,
                     .buffer = second,
                     .other = first,
                     .view_a = CHECK_NONE,
                     .view_b = CHECK_NONE,
                     .begin_bytes = begin - b->offset_bytes,
                     .end_bytes = (end_a < end_b ? end_a : end_b) - b->offset_bytes};
  check_found(c, &f);
}

/* Each buffer against those of lower number, as if each were a task of its own stream 0 and the
 * searches came from stream 1. */
static void compare_buffers(check_analysis *c, check_tree *t, const uint32_t *buffers) {
  uint32_t known[2] = {0}, need[2] = {0}, by[2], touched[2];
  for (uint32_t k = 0; k < t->n; k++) {
    check_search s = {.stream = 1, .known = known, .need = need, .by = by, .touched = touched};
    check_tree_search(t, &t->boxes[4 * (size_t)k], true, &s);
    if (need[0]) report_layout(c, buffers[need[0] - 1], buffers[k]);
    need[0] = 0;
    check_tree_insert(t, k, 0, k, true);
  }
}

/* ---- few at once ---- */
enum { FEW = 64 };

/* Boxes that live now. */
typedef struct living {
  const int64_t *boxes[FEW];
  uint32_t n;
} living;

static void drop_ended(living *l, int64_t now) {
  uint32_t kept = 0;
  for (uint32_t k = 0; k < l->n; k++)
    if (l->boxes[k][3] > now) l->boxes[kept++] = l->boxes[k];
  l->n = kept;
}

static bool is_apart(const living *l, const int64_t *box) {
  for (uint32_t k = 0; k < l->n; k++)
    if (l->boxes[k][0] < box[1] && box[0] < l->boxes[k][1]) return false;
  return true;
}

/* Whether no two meet; false also where it would take too long to say. */
static bool all_are_apart(const check_analysis *c, const int64_t *boxes, uint32_t n) {
  uint32_t n_instrs = c->plan->n_instrs;
  uint32_t *first = ARENA_ARRAY(c->scratch, n_instrs, uint32_t); /* by instruction: box + 1 */
  uint32_t *next = ARENA_ARRAY(c->scratch, n, uint32_t);
  living l = {.n = 0};
  for (uint32_t k = 0; k < n; k++) {
    next[k] = first[boxes[4 * (size_t)k + 2]];
    first[boxes[4 * (size_t)k + 2]] = k + 1;
  }
  for (uint32_t i = 0; i < n_instrs; i++)
    for (uint32_t k = first[i]; k; k = next[k - 1]) {
      const int64_t *box = &boxes[4 * (size_t)(k - 1)];
      drop_ended(&l, i);
      if (l.n == FEW || !is_apart(&l, box)) return false;
      l.boxes[l.n++] = box;
    }
  return true;
}

void check_layout(check_analysis *c) {
  const rt_plan *plan = c->plan;
  int64_t *boxes = ARENA_ARRAY(c->scratch, 4 * (size_t)plan->n_buffers, int64_t);
  uint32_t *buffers = ARENA_ARRAY(c->scratch, plan->n_buffers, uint32_t), n = 0;
  for (uint32_t b = 0; b < plan->n_buffers; b++)
    if (box_of(&plan->buffers[b], plan->n_instrs, &boxes[4 * (size_t)n])) buffers[n++] = b;
  if (all_are_apart(c, boxes, n)) return;
  check_tree t;
  check_tree_build(&t, c->scratch, 2, boxes, n);
  compare_buffers(c, &t, buffers);
}
