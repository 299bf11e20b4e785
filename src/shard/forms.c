/* Puts the forms of operations along sharded axes (form_*.c) in the place of the operations. docs/shard.md
 * has the rules in words. */
#include <string.h>

#include "ir/build.h"
#include "schedule/schedule.h"
#include "shard/form.h"
#include "shard/internal.h"

typedef struct rewriting {
  ir_func *f;
  arena *scratch;
  form **forms;         /* by operation; NULL: it stays as it is */
  ir_tensor *instead;   /* by tensor: what took its place */
  form_rows_list owned; /* rows of grouped products that were written */
  form_places_list places;
  uint32_t first; /* operation that is new */
} rewriting;

typedef uint32_t find_fn(shard_ctx *c, form **forms);

/* Shifts that other shifts are written with. */
static uint32_t find_shifts(shard_ctx *c, form **forms) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->f->order.len; i++) {
    ir_op o = c->f->order.data[i];
    form m;
    if (!form_wanted(c, ir_op_at(c->f, o), &m) || m.write != form_shift) continue;
    forms[o.id] = arena_copy(c->scratch, &m, sizeof m);
    n++;
  }
  return n - form_share_shifts(forms, c->f->ops.len);
}

static uint32_t find_wanted(shard_ctx *c, form **forms) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->f->order.len; i++) {
    ir_op o = c->f->order.data[i];
    form m;
    if (!form_wanted(c, ir_op_at(c->f, o), &m)) continue;
    bool grouped = m.write == form_groups || m.write == form_outer;
    m.reads_own_rows = grouped && form_reads_own_rows(c, forms, &m);
    if (m.write == form_outer && !m.reads_own_rows) continue;
    forms[o.id] = arena_copy(c->scratch, &m, sizeof m);
    n++;
  }
  return n - form_share_shifts(forms, c->f->ops.len);
}

/* ---- rewriting ---- */
/* Where the reduction axis of a result is, among all its axes; false: it has none. */
static bool find_reduction(const ir_func *f, ir_tensor t, int64_t *at) {
  ir_axes root = ir_tensor_at(f, t)->defined.root;
  for (uint32_t i = 0; i < root.len; i++) {
    *at = i;
    if (ir_axis_at(f, root.data[i])->kind == IR_AXIS_REDUCTION) return true;
  }
  return false;
}

/* The result takes over the name of the one it replaces, and with it all statements about it. */
static void take_place(rewriting *r, ir_tensor old, ir_tensor now) {
  ir_tensor_data *from = ir_tensor_at(r->f, old), *to = ir_tensor_at(r->f, now);
  uint32_t name = from->name;
  to->stated = from->stated;
  to->stated_extents = from->stated_extents;
  ir_func_undeclare(r->f, name);
  check(ir_build_name(r->f, now, name, from->at));
  r->instead[old.id] = now;
  from->name = 0;
}

/* Names what was built since operation `first`, and says why it is there. */
static void name_steps(rewriting *r, form *m, uint32_t first, uint32_t base) {
  ir_func *f = r->f;
  ir_why why = {.rule = m->rule, .at = m->op.at, .from = base, .because = m->why};
  m->why = ir_why_add(f, why);
  for (uint32_t i = first; i < f->ops.len; i++) {
    ir_tensor t = f->ops.data[i].result;
    if (ir_tensor_at(f, t)->name) continue; /* a result of what was written */
    f->ops.data[i].why = m->why;
    check(ir_build_name(f, t, ir_func_fresh_name(f, base), m->op.at));
  }
}

static void rewrite(rewriting *r, ir_op o) {
  ir_op_data op = *ir_op_at(r->f, o);
  form *m = r->forms[o.id];
  int64_t at;
  uint32_t first = r->f->ops.len, base = ir_tensor_at(r->f, op.result)->name;
  m->first = r->first;
  m->owned = &r->owned;
  m->places = &r->places;
  m->op = op; /* what its operands were has perhaps been rewritten */
  m->had_reduction = find_reduction(r->f, op.result, &at);
  if (r->instead[m->source.id].id) m->source = r->instead[m->source.id];
  if (r->instead[m->enters.id].id) m->enters = r->instead[m->enters.id];
  for (uint32_t i = 0; i < m->n_terms; i++)
    if (r->instead[m->terms[i].t.id].id) m->terms[i].t = r->instead[m->terms[i].t.id];
  m->write(m);
  for (uint32_t k = 0; k < ir_op_n_results(&op); k++)
    take_place(r, ir_op_result(&op, k), m->results[k]);
  name_steps(r, m, first, base);
}

static void rewrite_all(rewriting *r) {
  ir_func *f = r->f;
  uint32_t n = f->order.len;
  const ir_op *old = arena_copy(r->scratch, f->order.data, n * sizeof *old);
  f->order.len = 0;
  for (uint32_t i = 0; i < n; i++) {
    ir_op_redirect(f, ir_op_at(f, old[i]), r->instead);
    if (r->forms[old[i].id]) rewrite(r, old[i]);
    else vec_push(&f->module->memory, &f->order, old[i]);
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_tensor now = r->instead[f->outputs.data[i].id];
    if (now.id) f->outputs.data[i] = now;
  }
  ir_func_forget_unused(f);
}

/* ---- statements ---- */
/* Axes that are counted from the end come before `more` others than they did. */
static void count_more(ir_func *f, ir_stmt *s, int64_t more) {
  if (s->axis < 0) s->axis -= more;
  if (s->kind != IR_STMT_REORDER) return;
  int64_t *list = arena_copy(&f->module->memory, s->list, s->n_list * sizeof *list);
  for (uint32_t i = 0; i < s->n_list; i++) list[i] -= list[i] < 0 ? more : 0;
  s->list = list;
}

static void count_all(ir_func *f, ir_tensor t, int64_t more) {
  for (uint32_t i = 0; more != 0 && i < f->statements.len; i++) {
    ir_stmt *s = &f->statements.data[i];
    if (s->kind != IR_STMT_ON && s->targets[0].name == ir_tensor_at(f, t)->name)
      count_more(f, s, more);
  }
}

/* Statements count loop axes, and the last step may have a reduction axis where the operation had none, or the
 * other way round. One goes to the end before anything else is stated. Forms have at most one. */
static void move_reduction_last(ir_func *f, ir_tensor t, bool had_one) {
  int64_t at;
  bool has_one = find_reduction(f, t, &at);
  count_all(f, t, (int64_t)has_one - (int64_t)had_one);
  if (!has_one) return;
  int64_t *list = ARENA_ARRAY(&f->module->memory, 2, int64_t);
  ir_target *target = ARENA_NEW(&f->module->memory, ir_target);
  target->name = ir_tensor_at(f, t)->name;
  list[0] = at;
  list[1] = -1;
  ir_stmt reorder = {.kind = IR_STMT_REORDER, .list = list, .n_list = 2};
  reorder.targets = target;
  reorder.n_targets = 1;
  ir_build_stmt(f, &reorder);
  memmove(f->statements.data + 1, f->statements.data,
          (f->statements.len - 1) * sizeof *f->statements.data);
  f->statements.data[0] = reorder;
}

static void move_reductions(rewriting *r, uint32_t n_ops) {
  for (uint32_t i = 0; i < n_ops; i++) {
    const form *m = r->forms[i];
    for (uint32_t k = 0; m && k < ir_op_n_results(&m->op); k++)
      move_reduction_last(r->f, m->results[k], m->had_reduction);
  }
}

/* Reasons belong to the view, but statements that propagation added refer to them. */
static void drop_view(ir_func *f) {
  uint32_t reasons = f->whys.len;
  ir_func_unschedule(f);
  f->whys.len = reasons;
}

static void state(ir_func *f, ir_tensor t, ir_stmt stmt) {
  ir_target *target = ARENA_NEW(&f->module->memory, ir_target);
  target->name = ir_tensor_at(f, t)->name;
  stmt.targets = target;
  stmt.n_targets = 1;
  check(schedule_add_quiet(f, &stmt));
}

/* What was filled up is cut into pieces of equal length. */
static void place_evened(rewriting *r, const form *m) {
  ir_scalar n = ir_scalar_const(&r->f->module->scalars, m->pieces);
  for (uint32_t k = 0; k < m->n_evened; k++) {
    ir_stmt on = {.kind = IR_STMT_ON, .mesh = m->mesh, .why = m->why};
    ir_stmt split = {.kind = IR_STMT_OUTER_SPLIT, .axis = m->dim, .factor = n};
    ir_stmt mark = {.kind = IR_STMT_MARK, .axis = m->dim, .why = m->why};
    mark.mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = m->mesh_axis};
    state(r->f, m->evened[k], on);
    state(r->f, m->evened[k], split);
    state(r->f, m->evened[k], mark);
  }
}

/* What has a position per device is placed so; everything else follows from the operands. */
static void place_cuts(rewriting *r, uint32_t n_ops) {
  for (uint32_t i = 0; i < n_ops; i++) {
    const form *m = r->forms[i];
    if (m) place_evened(r, m);
    for (uint32_t k = 0; m && k < m->n_cuts; k++) {
      ir_stmt on = {.kind = IR_STMT_ON, .mesh = m->mesh, .why = m->why};
      ir_stmt mark = {.kind = IR_STMT_MARK, .axis = m->dim, .why = m->why};
      mark.mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = m->mesh_axis};
      state(r->f, m->cuts[k], on);
      state(r->f, m->cuts[k], mark);
    }
  }
}

/* Steps are placed by propagation. Of their results all has been said. */
static void place_steps(rewriting *r, uint32_t n_ops, uint32_t n_tensors) {
  bool *open = arena_alloc(r->scratch, r->f->tensors.len);
  place_cuts(r, n_ops);
  for (uint32_t i = n_tensors; i < r->f->tensors.len; i++) open[i] = true;
  for (uint32_t i = 0; i < n_ops; i++) {
    const form *m = r->forms[i];
    for (uint32_t k = 0; m && k < ir_op_n_results(&m->op); k++) open[m->results[k].id] = false;
  }
  (void)shard_propagate_to(r->f, open);
}

/* `again`: some are written with shifts that are to be written in their form. */
static uint32_t write_forms(ir_func *f, arena *scratch, find_fn *find, bool *again) {
  rewriting r = {.f = f, .scratch = scratch};
  uint32_t n_ops = f->ops.len, n_tensors = f->tensors.len;
  r.forms = ARENA_ARRAY(scratch, n_ops, form *);
  uint32_t n = find(shard_begin(f, scratch), r.forms);
  if (n == 0) return 0;
  r.instead = ARENA_ARRAY(scratch, n_tensors, ir_tensor);
  drop_view(f);
  r.first = f->ops.len;
  rewrite_all(&r);
  move_reductions(&r, n_ops);
  check(schedule_apply(f));
  place_steps(&r, n_ops, n_tensors);
  for (uint32_t i = 0; i < n_ops; i++)
    *again = *again || (r.forms[i] && form_needs_shifts(r.forms[i]));
  return n;
}

uint32_t shard_write_forms(ir_func *f, arena *scratch) {
  bool again = false;
  uint32_t n = write_forms(f, scratch, find_wanted, &again);
  for (uint32_t dims = 1; again && dims < IR_MESH_MAX_RANK; dims++) {
    again = false;
    n += write_forms(f, scratch, find_shifts, &again);
  }
  return n;
}

uint32_t shard_group_sums(ir_func *f, arena *scratch) {
  bool again = false;
  return write_forms(f, scratch, form_find_sums, &again);
}
