/* Repeating one tensor's transforms and marks on another, as statements of its own. */
#include "schedule/internal.h"

typedef struct replaying {
  ir_func *f;
  ir_tensor to;
  map images; /* axes of `from` -> loop axes of `to` */
  ir_target *target;
  const ir_why *why; /* NULL: marks keep their reasons */
  uint32_t added;
} replaying;

static ir_axes loop_of(const replaying *r) { return ir_tensor_at(r->f, r->to)->now.loop; }

static bool add(replaying *r, ir_stmt stmt) {
  stmt.targets = r->target;
  stmt.n_targets = 1;
  bool good = schedule_add_quiet(r->f, &stmt);
  r->added += good;
  return good;
}

/* The place of an axis's image, if it is a loop axis of `to` without a mark. */
static bool find_free(const replaying *r, ir_axis a, uint32_t *position) {
  ir_axis image = schedule_image(&r->images, a);
  *position = schedule_find(loop_of(r), image);
  return image.id && *position < loop_of(r).len &&
         ir_axis_at(r->f, image)->mark.kind == IR_MARK_NONE;
}

/* Moves the second image to the place after the first, as merge needs it. */
static bool bring_together(replaying *r, ir_axis second, uint32_t first_at, uint32_t *merge_at) {
  uint32_t at = schedule_find(loop_of(r), schedule_image(&r->images, second));
  *merge_at = first_at;
  if (at == first_at + 1) return true;
  /* Taking an axis from before the first moves the first down. */
  if (at < first_at) (*merge_at)--;
  int64_t *list = ARENA_ARRAY(&r->f->module->memory, 2, int64_t);
  list[0] = at;
  list[1] = *merge_at + 1;
  return add(r, (ir_stmt){.kind = IR_STMT_REORDER, .list = list, .n_list = 2});
}

static bool replay_merge(replaying *r, const ir_transform_data *t, uint32_t position) {
  uint32_t second;
  if (!find_free(r, t->in[1], &second)) return false;
  bool a = ir_axis_at(r->f, loop_of(r).data[position])->kind == IR_AXIS_REDUCTION;
  bool b = ir_axis_at(r->f, loop_of(r).data[second])->kind == IR_AXIS_REDUCTION;
  if (a != b || !bring_together(r, t->in[1], position, &position)) return false;
  if (!add(r, (ir_stmt){.kind = IR_STMT_MERGE, .axis = position})) return false;
  schedule_set_image(&r->images, t->out[0], loop_of(r).data[position]);
  return true;
}

bool schedule_statement_of(const ir_transform_data *t, uint32_t position, ir_stmt *stmt) {
  *stmt = (ir_stmt){.axis = position, .factor = t->factor, .mesh_axis = t->mesh_axis};
  switch (t->kind) {
  case IR_SPLIT: stmt->kind = IR_STMT_SPLIT; return true;
  case IR_OUTER_SPLIT: stmt->kind = IR_STMT_OUTER_SPLIT; return true;
  case IR_CHUNK_SPLIT:
    stmt->kind = IR_STMT_CHUNK_SPLIT;
    stmt->list = t->chunks;
    stmt->n_list = t->n_chunks;
    return true;
  case IR_SWIZZLE: stmt->kind = IR_STMT_SWIZZLE; return true;
  case IR_MERGE:
  case IR_RESIZE: return false;
  }
  impossible("a transform of no kind");
}

static void replay_transform(replaying *r, ir_transform_data t) {
  uint32_t position;
  ir_stmt stmt;
  if (!find_free(r, t.in[0], &position)) return;
  if (t.kind == IR_MERGE) {
    (void)replay_merge(r, &t, position);
    return;
  }
  if (!schedule_statement_of(&t, position, &stmt) || !add(r, stmt)) return;
  for (uint32_t i = 0; i < schedule_n_out(&t); i++) {
    schedule_set_image(&r->images, t.out[i], loop_of(r).data[position + i]);
  }
}

static uint32_t why_of(replaying *r, ir_axis from) {
  uint32_t before = ir_axis_at(r->f, from)->why;
  if (!r->why) return before;
  ir_why why = *r->why;
  why.because = before;
  return ir_why_add(r->f, why);
}

static bool replay_mark(replaying *r, ir_axis from) {
  ir_stmt stmt = {.kind = IR_STMT_MARK, .mark = ir_axis_at(r->f, from)->mark};
  uint32_t position;
  if (!find_free(r, from, &position)) return false;
  stmt.axis = position;
  stmt.why = why_of(r, from);
  return add(r, stmt);
}

/* Puts those axes first that could be marked, in their order, and returns how many. An iteration over
 * parts may need the mark of another axis, wherever that is: what is refused is tried again when
 * others have been marked. */
static uint32_t replay_marks(replaying *r, ir_axis *from, uint32_t n) {
  bool done[IR_MAX_RANK] = {0};
  for (bool news = true; news;) {
    news = false;
    for (uint32_t i = 0; i < n; i++) {
      if (done[i] || !replay_mark(r, from[i])) continue;
      /* mutant: replay_marks_once */
      done[i] = news = true;
    }
  }
  uint32_t marked = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (done[i]) from[marked++] = from[i];
  }
  return marked;
}

static void start(replaying *r, const ir_pair *pairs, uint32_t n_pairs) {
  map_init(&r->images, &r->f->module->memory);
  for (uint32_t i = 0; i < n_pairs; i++) {
    if (pairs[i].kind != IR_PAIR_EXACT) continue;
    schedule_set_image(&r->images, pairs[i].producer, pairs[i].consumer);
  }
  r->target = ARENA_NEW(&r->f->module->memory, ir_target);
  r->target->name = ir_tensor_at(r->f, r->to)->name;
}

bool schedule_has_mark(schedule_marks which, ir_mark mark) {
  if (mark.kind == IR_MARK_STREAM) return which.streams;
  return mark.kind == IR_MARK_MESH && (which.mesh_axes >> mark.mesh_axis & 1);
}

/* Streams nest in the order of the loop domain: the images of those of `from` are in their order.
 *   from [s0, s1, n]   to [m, image of s1, image of s0]  =>  [m, image of s0, image of s1] */
static void order_streams(replaying *r, const ir_axis *from, uint32_t len) {
  int64_t at[IR_MAX_RANK], sorted[IR_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t i = 0; i < len; i++) {
    ir_axis image = schedule_image(&r->images, from[i]);
    uint32_t position = schedule_find(loop_of(r), image);
    bool streams = ir_axis_at(r->f, from[i])->mark.kind == IR_MARK_STREAM;
    if (!streams || !image.id || position == loop_of(r).len) continue;
    uint32_t k = n;
    for (; k > 0 && sorted[k - 1] > position; k--) sorted[k] = sorted[k - 1];
    sorted[k] = at[n++] = position;
  }
  int64_t *list = ARENA_ARRAY(&r->f->module->memory, 2 * n + 1, int64_t);
  bool moves = false;
  for (uint32_t i = 0; i < n; i++) {
    list[2 * i] = at[i];
    list[2 * i + 1] = sorted[i];
    moves = moves || at[i] != sorted[i];
  }
  if (moves) (void)add(r, (ir_stmt){.kind = IR_STMT_REORDER, .list = list, .n_list = 2 * n});
}

/* ---- all of a mark or nothing ---- */
/* What statements about one tensor change: its loop domain, the marks in it, and the end
 * of the tables. */
typedef struct state {
  ir_axes loop;
  ir_mark marks[IR_MAX_RANK];
  uint32_t axes, transforms, statements, constraints;
} state;

static state state_of(const replaying *r) {
  const ir_func *f = r->f;
  state now = {.loop = loop_of(r),
               .axes = f->axes.len,
               .transforms = f->transforms.len,
               .statements = f->statements.len,
               .constraints = f->constraints.len};
  for (uint32_t i = 0; i < now.loop.len; i++) now.marks[i] = ir_axis_at(f, now.loop.data[i])->mark;
  return now;
}

static void go_back(replaying *r, const state *to) {
  ir_func *f = r->f;
  ir_tensor_at(f, r->to)->now.loop = to->loop;
  for (uint32_t i = 0; i < to->loop.len; i++) ir_axis_at(f, to->loop.data[i])->mark = to->marks[i];
  f->axes.len = to->axes;
  f->transforms.len = to->transforms;
  f->statements.len = to->statements;
  f->constraints.len = to->constraints;
}

/* `serial` concerns one tensor only, and is not repeated. */
static uint32_t chosen_axes(const ir_func *f, ir_axes loop, schedule_marks which, ir_axis *result) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (schedule_has_mark(which, ir_axis_at(f, loop.data[i])->mark)) result[n++] = loop.data[i];
  }
  return n;
}

static bool is_size(const replaying *r, ir_axis a, ir_scalar size) {
  return ir_func_equal(r->f, ir_axis_size(r->f, a), size) == IR_TRUE;
}

/*   to [… n …], n = again * size * step  =>  [… again, size, step …], where they are more than 1 */
static bool take_part(replaying *r, const schedule_part *part) {
  ir_scalar one = ir_scalar_const(&r->f->module->scalars, 1);
  uint32_t at;
  schedule_set_image(&r->images, part->from, part->to);
  if (!find_free(r, part->from, &at)) return false;
  ir_stmt split = {.kind = IR_STMT_SPLIT, .axis = at, .factor = part->step};
  if (!IR_SAME(part->step, one) && !add(r, split)) return false;
  split.factor = part->size;
  bool again = !is_size(r, loop_of(r).data[at], part->size);
  if (again && !add(r, split)) return false;
  schedule_set_image(&r->images, part->from, loop_of(r).data[at + again]);
  return true;
}

/* A mark that cannot be repeated is dropped together with the transforms that were made for it, and the
 * other marks are tried again. */
static uint32_t replay_chosen(const replaying *first, ir_tensor from, const ir_pair *pairs,
                              uint32_t n_pairs, const schedule_part *part, schedule_marks which) {
  ir_func *f = first->f;
  if (!f->applied) (void)schedule_apply(f);
  ir_domains now = ir_tensor_at(f, from)->now;
  ir_axis chosen[IR_MAX_RANK];
  uint32_t n = chosen_axes(f, now.loop, which, chosen);
  while (n && ir_tensor_at(f, first->to)->name) {
    replaying r = *first;
    state before = state_of(&r);
    start(&r, pairs, n_pairs);
    bool taken = !part || take_part(&r, part);
    schedule_history h = schedule_history_of(f, now.logical, (ir_axes){chosen, n});
    for (uint32_t i = 0; i < h.len; i++) replay_transform(&r, *ir_transform_at(f, h.data[i]));
    uint32_t marked = taken ? replay_marks(&r, chosen, n) : 0;
    /* mutant: streams_repeated_unordered */
    if (marked == n) order_streams(&r, chosen, n);
    /* mutant: replay_leaves_splits */
    if (marked == n) return r.added;
    go_back(&r, &before);
    n = marked;
  }
  return 0;
}

uint32_t schedule_replay_marked(ir_func *f, ir_tensor from, ir_tensor to, const ir_pair *pairs,
                                uint32_t n_pairs, schedule_marks which, const ir_why *why) {
  replaying r = {.f = f, .to = to, .why = why};
  return replay_chosen(&r, from, pairs, n_pairs, NULL, which);
}

uint32_t schedule_replay_part(ir_func *f, ir_tensor from, ir_tensor to, const schedule_part *part,
                              schedule_marks which, const ir_why *why) {
  replaying r = {.f = f, .to = to, .why = why};
  return replay_chosen(&r, from, NULL, 0, part, which);
}
