/* What each task touches: regions, footprints of views, accesses. */
#include <stdlib.h>

#include "check/internal.h"

/* ---- regions ---- */
uint32_t check_new_region(check_analysis *c, int64_t begin) {
  check_region *r = &c->regions[c->n_regions];
  r->begin = begin;
  table_init(&r->index, c->scratch);
  return c->n_regions++;
}

typedef struct placed {
  int64_t begin, end;
  uint32_t buffer;
} placed;

static int compare_placed(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static uint32_t sort_pool(check_analysis *c, placed *list) {
  uint32_t n = 0;
  for (uint32_t b = 0; b < c->plan->n_buffers; b++) {
    const rt_buffer *buffer = &c->plan->buffers[b];
    if (buffer->kind != RT_BUFFER_POOL) continue;
    int64_t end = buffer->offset_bytes + buffer->size_bytes;
    list[n++] = (placed){.begin = buffer->offset_bytes, .end = end, .buffer = b};
  }
  qsort(list, n, sizeof *list, compare_placed);
  return n;
}

/* Pool buffers that share bytes, also by way of others, are one region. */
static void find_pool_regions(check_analysis *c) {
  placed *list = ARENA_ARRAY(c->scratch, c->plan->n_buffers, placed);
  uint32_t n = sort_pool(c, list), region = 0;
  int64_t end = INT64_MIN;
  for (uint32_t k = 0; k < n; k++) {
    if (k == 0 || list[k].begin >= end) region = check_new_region(c, list[k].begin);
    if (list[k].end > end) end = list[k].end;
    c->region_of[list[k].buffer] = region;
    c->object_of[list[k].buffer] = list[k].buffer;
  }
}

/* Buffers on the same slot of the caller are the same memory. */
static void find_caller_regions(check_analysis *c) {
  map slots;
  map_init(&slots, c->scratch);
  for (uint32_t b = 0; b < c->plan->n_buffers; b++) {
    const rt_buffer *buffer = &c->plan->buffers[b];
    if (buffer->kind == RT_BUFFER_POOL) continue;
    uint64_t key = (uint64_t)buffer->slot << 1 | (buffer->kind == RT_BUFFER_OUTPUT);
    uint32_t object = map_get(&slots, key, CHECK_NONE);
    if (object == CHECK_NONE) {
      map_put(&slots, key, object = b);
      c->region_of[b] = check_new_region(c, buffer->offset_bytes);
    }
    check_region *r = &c->regions[c->region_of[object]];
    if (buffer->offset_bytes < r->begin) r->begin = buffer->offset_bytes;
    c->region_of[b] = c->region_of[object];
    c->object_of[b] = object;
  }
}

/* ---- accesses ---- */
bool check_same_view(const rt_plan *plan, uint32_t a, uint32_t b) {
  const rt_view *x = &plan->views[a], *y = &plan->views[b];
  if (a == b) return true;
  if (x->buffer != y->buffer || x->offset_bytes != y->offset_bytes || x->rank != y->rank ||
      ir_dtype_size_bytes(x->dtype) != ir_dtype_size_bytes(y->dtype))
    return false;
  for (uint32_t d = 0; d < x->rank; d++)
    if (x->extents[d] != y->extents[d] || (x->extents[d] != 1 && x->strides[d] != y->strides[d]))
      return false;
  return true;
}

static void add_access(check_analysis *c, uint32_t step, uint32_t view, bool write) {
  check(view < c->plan->n_views && check_view(c, view)->buffer < c->plan->n_buffers);
  const check_step *s = &c->steps.data[step];
  uint32_t first = c->first_access[step];
  for (uint32_t k = first; k < c->accesses.len && !write; k++)
    if (check_same_view(c->plan, c->accesses.data[k].view, view)) return;
  check_access a = {
      .instr = s->instr, .step = step, .view = view, .line = s->other, .write = write};
  vec_push(c->scratch, &c->accesses, a);
  c->footprints[view].used = true;
  if (write) check_region_of(c, view)->written = true;
}

static void add_task(check_analysis *c, uint32_t step, const rt_task *task) {
  for (uint32_t k = 0; k < task->n_operands; k++)
    if (task->operands[k].kind == RT_OPERAND_VIEW)
      add_access(c, step, task->operands[k].view, false);
  for (uint32_t k = 0; k < rt_task_n_results(task); k++)
    add_access(c, step, rt_task_result(task, k), true);
}

static void add_post(check_analysis *c, uint32_t step, const rt_post *given) {
  rt_post post = c->options.any_root ? rt_post_at_root(given) : *given;
  if (post.in != RT_NO_VIEW) add_access(c, step, post.in, false);
  if (post.out == RT_NO_VIEW) return;
  add_access(c, step, post.out, true);
  bool by_root = ir_comm_info_of(post.kind)->root == IR_ROOT_RECEIVES && post.n_team > 1;
  c->accesses.data[c->accesses.len - 1].rooted = c->options.any_root && by_root;
}

/* The reads of a step come before its writes. */
static void find_accesses(check_analysis *c) {
  const rt_plan *plan = c->plan;
  for (uint32_t s = 0; s < c->steps.len; s++) {
    const rt_instr *instr = &plan->instrs[c->steps.data[s].instr];
    c->first_access[s] = c->accesses.len;
    if (c->steps.data[s].kind != CHECK_STEP_ACCESS) continue;
    if (instr->kind == RT_POST) add_post(c, s, &plan->posts[instr->task]);
    else {
      check(instr->task < plan->n_tasks);
      add_task(c, s, &plan->tasks[instr->task]);
    }
  }
  c->first_access[c->steps.len] = c->accesses.len;
}

/* ---- footprints ---- */
static bool in_bounds(const check_analysis *c, uint32_t view, int64_t *begin, int64_t *end) {
  const rt_view *v = check_view(c, view);
  const rt_buffer *b = &c->plan->buffers[v->buffer];
  if (!check_view_range(v, begin, end)) return false;
  bool outside = b->kind == RT_BUFFER_POOL &&
                 (b->offset_bytes < 0 || b->offset_bytes + b->size_bytes > c->plan->pool_bytes);
  return *begin == *end || (*begin >= 0 && *end <= b->size_bytes && !outside);
}

static void report_bounds(check_analysis *c, uint32_t view) {
  for (uint32_t k = 0; k < c->accesses.len; k++) {
    const check_access *a = &c->accesses.data[k];
    if (a->view != view) continue;
    check_finding f = {.kind = CHECK_BOUNDS,
                       .a = CHECK_NONE,
                       .b = a->instr,
                       .view_b = view,
                       .buffer = check_view(c, view)->buffer,
                       .other = CHECK_NONE,
                       .view_a = CHECK_NONE};
    if (!check_view_range(check_view(c, view), &f.begin_bytes, &f.end_bytes))
      f.begin_bytes = f.end_bytes = 0;
    check_found(c, &f);
  }
}

static int64_t address(const check_analysis *c, uint32_t view) {
  const rt_view *v = check_view(c, view);
  return c->plan->buffers[v->buffer].offset_bytes + v->offset_bytes -
         check_region_of(c, view)->begin;
}

check_strided check_region_strided(const check_analysis *c, uint32_t view) {
  return check_view_strided(check_view(c, view), address(c, view));
}

void check_add_strides(check_analysis *c, uint32_t view) {
  const check_footprint *f = &c->footprints[view];
  check_region *r = check_region_of(c, view);
  if (f->begin == f->end || !r->written) return;
  check_strided s = check_region_strided(c, view);
  check_strides_add(&r->strides, c->scratch, &s);
}

/* Ranges of all views in their buffers, and the strides their regions see. */
static void measure_views(check_analysis *c) {
  for (uint32_t v = 0; v < c->plan->n_views; v++) {
    check_footprint *f = &c->footprints[v];
    int64_t begin, end;
    if (!f->used) continue;
    if (!in_bounds(c, v, &begin, &end)) {
      report_bounds(c, v);
      f->used = false;
      continue;
    }
    f->begin = begin;
    f->end = end;
    check_add_strides(c, v);
  }
}

static void place_views(check_analysis *c) {
  for (uint32_t v = 0; v < c->plan->n_views; v++) {
    check_footprint *f = &c->footprints[v];
    if (!f->used) continue;
    int64_t base = address(c, v) - check_view(c, v)->offset_bytes;
    f->begin += base;
    f->end += base;
  }
}

typedef struct box_key {
  const check_region *region;
  const int64_t *box;
} box_key;

static bool same_box(const void *context, uint32_t value) {
  const box_key *key = context;
  size_t n = 2 * (size_t)key->region->grid.levels;
  const int64_t *box = &key->region->boxes.data[(value - 1) * n];
  for (size_t k = 0; k < n; k++)
    if (box[k] != key->box[k]) return false;
  return true;
}

/* The number of a box in its region. */
static uint32_t intern_box(check_analysis *c, check_region *r, const int64_t *box) {
  uint32_t n = 2 * r->grid.levels;
  uint64_t hash = hash_numbers(box, n);
  box_key key = {.region = r, .box = box};
  uint32_t found = table_find(&r->index, hash, same_box, &key);
  if (found) return found - 1;
  for (uint32_t k = 0; k < n; k++) vec_push(c->scratch, &r->boxes, box[k]);
  table_add(&r->index, hash, ++r->n_boxes);
  return r->n_boxes - 1;
}

static void split_views(check_analysis *c) {
  check_boxes boxes = {0};
  for (uint32_t v = 0; v < c->plan->n_views; v++) {
    check_footprint *f = &c->footprints[v];
    check_region *r = f->used ? check_region_of(c, v) : NULL;
    if (!f->used || f->begin == f->end || !r->written) continue;
    check_strided s = check_region_strided(c, v);
    uint32_t limit = c->options.max_boxes < c->boxes_left ? c->options.max_boxes : c->boxes_left;
    boxes.len = 0;
    f->exact = check_grid_split(&r->grid, &s, limit, c->scratch, &boxes);
    f->first = c->pieces.len;
    for (uint32_t k = 0; k < boxes.len; k += 2 * r->grid.levels)
      vec_push(c->scratch, &c->pieces, intern_box(c, r, &boxes.data[k]));
    f->n = c->pieces.len - f->first;
    c->boxes_left -= f->n < c->boxes_left ? f->n : c->boxes_left;
  }
}

bool check_footprints_meet(const check_analysis *c, uint32_t view_a, uint32_t view_b,
                           int64_t *begin, int64_t *end) {
  const check_footprint *a = &c->footprints[view_a], *b = &c->footprints[view_b];
  const check_region *r = check_region_of(c, view_a);
  if (r != check_region_of(c, view_b) || a->begin >= b->end || b->begin >= a->end) return false;
  for (uint32_t i = a->first; i < a->first + a->n; i++)
    for (uint32_t j = b->first; j < b->first + b->n; j++) {
      const int64_t *x = check_piece(c, r, i), *y = check_piece(c, r, j);
      if (!check_box_meets(x, y, r->grid.levels)) continue;
      int64_t both[2 * CHECK_MAX_LEVELS];
      for (uint32_t l = 0; l < r->grid.levels; l++) {
        both[2 * l] = x[2 * l] > y[2 * l] ? x[2 * l] : y[2 * l];
        both[2 * l + 1] = x[2 * l + 1] < y[2 * l + 1] ? x[2 * l + 1] : y[2 * l + 1];
      }
      check_box_range(&r->grid, both, begin, end);
      return true;
    }
  return false;
}

/* ---- covers ---- */
/* Every buffer that begins without contents has a cover: all but the caller's inputs. */
static void build_covers(check_analysis *c) {
  const rt_plan *plan = c->plan;
  check_boxes *writes = ARENA_ARRAY(c->scratch, plan->n_buffers, check_boxes);
  bool *partial = ARENA_ARRAY(c->scratch, plan->n_buffers, bool);
  c->covers = ARENA_ARRAY(c->scratch, plan->n_buffers, check_cover *);
  for (uint32_t k = 0; k < c->accesses.len; k++) {
    const check_access *a = &c->accesses.data[k];
    const check_footprint *f = &c->footprints[a->view];
    const check_region *r = check_region_of(c, a->view);
    uint32_t object = c->object_of[check_view(c, a->view)->buffer];
    if (a->write && f->n && !f->exact) partial[object] = true;
    if (!a->write || !f->exact) continue;
    check_boxes *list = &writes[object];
    for (uint32_t p = f->first; p < f->first + f->n; p++)
      for (uint32_t n = 0; n < 2 * r->grid.levels; n++)
        vec_push(c->scratch, list, check_piece(c, r, p)[n]);
  }
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    if (c->object_of[b] != b || plan->buffers[b].kind == RT_BUFFER_INPUT) continue;
    c->covers[b] = ARENA_NEW(c->scratch, check_cover);
    check_region *r = &c->regions[c->region_of[b]];
    check_cover_init(c->covers[b], c->scratch, r->grid.levels, &writes[b]);
    c->covers[b]->partial = partial[b];
  }
}

void check_collect(check_analysis *c) {
  const rt_plan *plan = c->plan;
  c->regions = ARENA_ARRAY(c->scratch, 2 * (size_t)plan->n_buffers, check_region);
  c->region_of = ARENA_ARRAY(c->scratch, plan->n_buffers, uint32_t);
  c->object_of = ARENA_ARRAY(c->scratch, plan->n_buffers, uint32_t);
  c->footprints = ARENA_ARRAY(c->scratch, plan->n_views, check_footprint);
  c->first_access = ARENA_ARRAY(c->scratch, (size_t)c->steps.len + 1, uint32_t);
  find_pool_regions(c);
  find_caller_regions(c);
  find_accesses(c);
  measure_views(c);
  for (uint32_t k = 0; k < c->n_regions; k++)
    c->regions[k].grid = check_grid_choose(&c->regions[k].strides);
  check_reuse_part(c);
  place_views(c);
  split_views(c);
  for (uint32_t k = 0; k < c->n_regions; k++) {
    check_region *r = &c->regions[k];
    check_tree_build(&r->tree, c->scratch, r->grid.levels, r->boxes.data, r->n_boxes);
  }
  build_covers(c);
}
