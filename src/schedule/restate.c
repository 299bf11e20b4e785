/* Statements that lead to the scheduled view as it is.
 *
 * Some passes change the view itself: they insert operations, take marks away, make one operation of two.
 * What they leave is written down again from what every tensor looks like. Per tensor, in this order:
 *
 *   y on d                      its mesh
 *   y.outer_split(0, 2); …      the transforms between its dimensions and its loop axes, the oldest first
 *   y.reorder(2 -> 0)           the order of the loop axes
 *   y[0] = mesh.x               marks; streams from the outermost part of a dimension inwards, since
 *                               an inner part can be a stream only if what is around it runs apart
 *   y.memory(symmetric); …      how it lies in memory */
#include <string.h>

#include "schedule/internal.h"

typedef struct restating {
  ir_func *f;
  ir_tensor t;
  ir_target *target;
  ir_axis now[IR_MAX_RANK]; /* the loop domain after the statements so far */
  uint32_t len;
  bool staged; /* the transforms that lead to the allocation have been stated */
  map done;    /* those transforms */
} restating;

static void add(restating *r, ir_stmt stmt) {
  stmt.targets = r->target;
  stmt.n_targets = 1;
  ir_build_stmt(r->f, &stmt);
}

static uint32_t place_of(const restating *r, ir_axis a) {
  return schedule_find((ir_axes){r->now, r->len}, a);
}

/* Is every axis of `a` one of `b`? */
static bool is_permutation(ir_axes a, ir_axes b) {
  bool all = a.len == b.len;
  for (uint32_t i = 0; all && i < a.len; i++) all = schedule_find(b, a.data[i]) < b.len;
  return all;
}

/* ---- transforms ---- */
static void splice(restating *r, uint32_t at, uint32_t n_old, const ir_axis *axes, uint32_t n_new) {
  uint32_t rest = r->len - at - n_old;
  check(at + n_new + rest <= IR_MAX_RANK);
  memmove(r->now + at + n_new, r->now + at + n_old, rest * sizeof *r->now);
  memcpy(r->now + at, axes, n_new * sizeof *axes);
  r->len = at + n_new + rest;
}

/* Moves axis `from` to position `to`. */
static void move(restating *r, uint32_t from, uint32_t to) {
  int64_t *list = ARENA_ARRAY(&r->f->module->memory, 2, int64_t);
  ir_axis a = r->now[from];
  list[0] = from;
  list[1] = to;
  splice(r, from, 1, &a, 0);
  splice(r, to, 0, &a, 1);
  add(r, (ir_stmt){.kind = IR_STMT_REORDER, .list = list, .n_list = 2});
}

/* merge needs the second axis right after the first. */
static uint32_t bring_together(restating *r, const ir_transform_data *t) {
  uint32_t first = place_of(r, t->in[0]), second = place_of(r, t->in[1]);
  if (second == first + 1) return first;
  if (second < first) first--;
  move(r, second, first + 1);
  return first;
}

static void state_transform(restating *r, ir_transform x) {
  ir_stmt stmt;
  const ir_transform_data t = *ir_transform_at(r->f, x);
  if (r->staged && map_get(&r->done, x.id, 0)) return;
  if (r->staged) map_put(&r->done, x.id, 1);
  uint32_t at = t.kind == IR_MERGE ? bring_together(r, &t) : place_of(r, t.in[0]);
  check(at < r->len);
  if (t.kind == IR_MERGE) stmt = (ir_stmt){.kind = IR_STMT_MERGE, .axis = at};
  else check(schedule_statement_of(&t, at, &stmt));
  add(r, stmt);
  splice(r, at, schedule_n_in(&t), t.out, schedule_n_out(&t));
}

static void state_order(restating *r, ir_axes wanted) {
  int64_t list[2 * IR_MAX_RANK];
  uint32_t n = 0;
  check(wanted.len == r->len);
  for (uint32_t i = 0; i < wanted.len; i++) {
    uint32_t from = place_of(r, wanted.data[i]);
    if (from == i) continue;
    list[n++] = from;
    list[n++] = i;
  }
  const int64_t *kept = n ? arena_copy(&r->f->module->memory, list, n * sizeof *list) : NULL;
  if (n) add(r, (ir_stmt){.kind = IR_STMT_REORDER, .list = kept, .n_list = n});
  for (uint32_t i = 0; i < wanted.len; i++) r->now[i] = wanted.data[i];
}

static void state_axes(restating *r, ir_axes wanted) {
  if (is_permutation(wanted, (ir_axes){r->now, r->len})) return;
  schedule_history h = schedule_history_of(r->f, ir_tensor_at(r->f, r->t)->now.logical, wanted);
  for (uint32_t i = 0; i < h.len; i++) state_transform(r, h.data[i]);
}

/* ---- marks ---- */
static void state_marks(restating *r, const ir_axis *axes, uint32_t n, ir_axes loop, bool streams) {
  for (uint32_t i = 0; i < n; i++) {
    const ir_axis_data *a = ir_axis_at(r->f, axes[i]);
    bool stream = a->mark.kind == IR_MARK_STREAM;
    if (a->mark.kind == IR_MARK_NONE || stream != streams) continue;
    ir_stmt stmt = {.kind = IR_STMT_MARK, .axis = schedule_find(loop, axes[i]), .mark = a->mark};
    stmt.why = a->why;
    add(r, stmt);
  }
}

static void state_loop(restating *r) {
  ir_axis natural[IR_MAX_RANK];
  ir_axes loop = ir_tensor_at(r->f, r->t)->now.loop;
  state_axes(r, loop);
  uint32_t n = r->len;
  memcpy(natural, r->now, n * sizeof *natural);
  state_order(r, loop);
  state_marks(r, natural, n, loop, false);
  /* mutant: restate_no_streams */
  state_marks(r, natural, n, loop, true);
}

/* ---- memory ---- */
static void state_allocate(restating *r, const ir_domains *d) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t n = ir_axes_dims(r->f, d->logical, dims);
  (void)ir_axes_dims(r->f, d->allocation, stored);
  int64_t *list = ARENA_ARRAY(&r->f->module->memory, n + 1, int64_t);
  bool ordered = is_permutation(d->allocation, d->logical);
  for (uint32_t i = 0; i < n; i++)
    list[i] = ordered ? schedule_find((ir_axes){dims, n}, stored[i]) : i;
  add(r, (ir_stmt){.kind = IR_STMT_ALLOCATE, .list = list, .n_list = n});
}

/* Do all transforms that lead to the allocation domain lead to the loop domain too? */
static bool is_as_loop(const restating *r, const ir_domains *d) {
  schedule_history a = schedule_history_of(r->f, d->logical, d->allocation);
  schedule_history b = schedule_history_of(r->f, d->logical, d->loop);
  uint32_t found = 0;
  for (uint32_t i = 0; i < a.len; i++)
    for (uint32_t k = 0; k < b.len; k++) found += IR_SAME(a.data[i], b.data[k]);
  return found == a.len;
}

/* An allocation that was stated is stated again, even if it is the default. One that follows loop axes which
 * no longer exist becomes the order of the dimensions, which is what lowering uses for it. */
static void state_allocation(restating *r, const ir_tensor_data *t) {
  if (t->now.allocation.data == t->defined.allocation.data) return;
  if (is_permutation(t->now.allocation, t->now.logical) || !is_as_loop(r, &t->now)) {
    state_allocate(r, &t->now);
    return;
  }
  r->staged = true;
  map_init(&r->done, &r->f->module->memory);
  state_axes(r, t->now.allocation);
  state_order(r, t->now.allocation);
  add(r, (ir_stmt){.kind = IR_STMT_ALLOCATE_AS_LOOP});
}

static void state_contiguity(restating *r, const ir_tensor_data *t) {
  if (t->now.dense == t->defined.dense) return;
  const uint8_t *usual = ir_dense_default(r->f, t->now.allocation);
  uint32_t len = t->now.allocation.len, n = 0;
  bool stated = is_permutation(t->now.allocation, t->now.logical) || is_as_loop(r, &t->now);
  if (len == 0 || !stated || memcmp(usual, t->now.dense, len) == 0) return;
  int64_t *list = ARENA_ARRAY(&r->f->module->memory, len, int64_t);
  for (uint32_t i = 0; i < len; i++) {
    if (ir_axis_at(r->f, t->now.allocation.data[i])->kind == IR_AXIS_REDUCTION) continue;
    list[n++] = t->now.dense[i] != IR_DENSE_FALSE;
  }
  add(r, (ir_stmt){.kind = IR_STMT_CONTIGUITY, .list = list, .n_list = n});
}

/* ---- tensors ---- */
static void state_tensor(ir_func *f, ir_tensor of) {
  const ir_tensor_data t = *ir_tensor_at(f, of);
  restating r = {.f = f, .t = of, .len = t.now.logical.len};
  r.target = ARENA_NEW(&f->module->memory, ir_target);
  r.target->name = t.name;
  memcpy(r.now, t.now.logical.data, r.len * sizeof *r.now);
  if (t.mesh.id) add(&r, (ir_stmt){.kind = IR_STMT_ON, .mesh = t.mesh, .why = t.mesh_why});
  if (t.memory != IR_MEMORY_GLOBAL) add(&r, (ir_stmt){.kind = IR_STMT_MEMORY, .memory = t.memory});
  if (t.shrinks) add(&r, (ir_stmt){.kind = IR_STMT_SHRINK});
  state_allocation(&r, &t);
  state_contiguity(&r, &t);
  state_loop(&r);
}

void schedule_restate(ir_func *f) {
  check(f->applied && f->scheduled.len == f->order.len);
  f->statements.data = NULL;
  f->statements.len = f->statements.cap = 0;
  for (uint32_t i = 0; i < f->inputs.len; i++) state_tensor(f, f->inputs.data[i]);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) state_tensor(f, ir_op_result(op, k));
  }
  f->n_defined = (ir_counts){.axes = f->axes.len,
                             .transforms = f->transforms.len,
                             .tensors = f->tensors.len,
                             .ops = f->ops.len,
                             .constraints = f->constraints.len};
}
