/* `T on M` and `T[axis] = …`: where and when axes run. */
#include <inttypes.h>

#include "schedule/internal.h"

/* "x" of mesh.x. */
static const char *letter(uint32_t k) {
  return ir_mark_text((ir_mark){.kind = IR_MARK_MESH, .mesh_axis = k}) + sizeof "mesh." - 1;
}

/* The reason that a statement brings along, or that the user wrote it. */
static uint32_t why_of(schedule_step *s) {
  if (s->stmt->why) return s->stmt->why;
  return ir_why_add(s->f, (ir_why){.rule = IR_RULE_USER, .at = s->stmt->at});
}

/* ---- axes and meshes ---- */
bool schedule_has_axis(schedule_step *s, ir_mesh mesh, uint32_t k) {
  const ir_mesh_data *m = ir_mesh_at(s->f, mesh);
  if (k < m->rank) return true;
  return SCHEDULE_REFUSE(s, "%s is on mesh %s, which has %u %s: there is no mesh.%s",
                         schedule_target_name(s), ir_name_text(s->f, m->name), m->rank,
                         m->rank == 1 ? "axis" : "axes", letter(k));
}

static ir_proof sizes_equal(ir_func *f, ir_axis a, ir_mesh mesh, uint32_t k) {
  int64_t devices = ir_mesh_size(ir_mesh_at(f, mesh), k);
  return ir_func_equal(f, ir_axis_size(f, a), ir_scalar_const(&f->module->scalars, devices));
}

/* Does the mesh have an axis k, with as many devices as `a` has positions? Refuses what is provably wrong.
 * `position` is that of `a` in the loop domain, for the message. */
static bool fits_mesh(schedule_step *s, ir_axis a, uint32_t position, ir_mesh mesh, uint32_t k) {
  ir_func *f = s->f;
  if (!schedule_has_axis(s, mesh, k)) return false;
  if (sizes_equal(f, a, mesh, k) != IR_FALSE) return true;
  const ir_mesh_data *m = ir_mesh_at(f, mesh);
  const char *name = schedule_target_name(s), *on = ir_name_text(f, m->name);
  return SCHEDULE_REFUSE(s,
                         "axis %u of %s has %s positions, but mesh %s has %" PRId64
                         " devices along %s: split the axis first (%s.outer_split(%u, %s%s%s))",
                         position, name, ir_scalar_text(f, ir_axis_size(f, a)), on,
                         ir_mesh_size(m, k), letter(k), name, position, on, m->rank > 1 ? "." : "",
                         m->rank > 1 ? letter(k) : "");
}

/* ---- on ---- */
static bool marks_fit(schedule_step *s) {
  ir_axes loop = ir_tensor_at(s->f, s->t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    ir_mark mark = ir_axis_at(s->f, loop.data[i])->mark;
    if (mark.kind != IR_MARK_MESH) continue;
    if (!fits_mesh(s, loop.data[i], i, s->stmt->mesh, mark.mesh_axis)) return false;
  }
  return true;
}

static schedule_history loop_history(const schedule_step *s) {
  const ir_domains *now = &ir_tensor_at(s->f, s->t)->now;
  return schedule_history_of(s->f, now->logical, now->loop);
}

/* Do the swizzles fit that came before their mesh was known? */
static bool swizzles_fit(schedule_step *s) {
  schedule_history h = loop_history(s);
  for (uint32_t i = 0; i < h.len; i++) {
    const ir_transform_data *t = ir_transform_at(s->f, h.data[i]);
    if (t->kind == IR_SWIZZLE && !schedule_has_axis(s, s->stmt->mesh, t->mesh_axis)) return false;
  }
  return true;
}

bool schedule_may_place(schedule_step *s) {
  ir_mesh mesh = ir_tensor_at(s->f, s->t)->mesh;
  if (mesh.id && !IR_SAME(mesh, s->stmt->mesh)) {
    return SCHEDULE_REFUSE(s, "%s is already on mesh %s: a tensor lives on one mesh",
                           schedule_target_name(s),
                           ir_name_text(s->f, ir_mesh_at(s->f, mesh)->name));
  }
  return mesh.id || (marks_fit(s) && swizzles_fit(s));
}

void schedule_place(schedule_step *s) {
  ir_tensor_data *t = ir_tensor_at(s->f, s->t);
  t->placed = !s->stmt->why;
  if (t->mesh.id) return;
  t->mesh = s->stmt->mesh;
  t->mesh_why = why_of(s);
}

/* ---- marks ---- */
static bool is_reduction(const ir_func *f, ir_axis a) {
  return ir_axis_at(f, a)->kind == IR_AXIS_REDUCTION;
}

/* A reduction on mesh.k means partial results, another axis on mesh.k a shard of the result: one of
 * each is a reduce-scatter, two of a kind contradict each other. */
static bool check_mesh_axis_free(schedule_step *s, uint32_t position) {
  ir_axes loop = ir_tensor_at(s->f, s->t)->now.loop;
  bool reduction = is_reduction(s->f, loop.data[position]);
  for (uint32_t i = 0; i < loop.len; i++) {
    if (!ir_mark_same(ir_axis_at(s->f, loop.data[i])->mark, s->stmt->mark)) continue;
    if (is_reduction(s->f, loop.data[i]) != reduction) continue;
    return SCHEDULE_REFUSE(
        s, "axis %u of %s is already marked %s: only one %saxis of a tensor can be", i,
        schedule_target_name(s), ir_mark_text(s->stmt->mark), reduction ? "reduction " : "");
  }
  return true;
}

static bool may_mark_mesh(schedule_step *s, uint32_t position) {
  ir_mesh mesh = ir_tensor_at(s->f, s->t)->mesh;
  if (!check_mesh_axis_free(s, position)) return false;
  if (!mesh.id) return true;
  return fits_mesh(s, schedule_loop_at(s, position), position, mesh, s->stmt->mark.mesh_axis);
}

/* Are all positions of `a` run by devices or by other iterations, so that what is inside it is one
 * contiguous range to each of them? */
static bool is_run_apart(const ir_func *f, const ir_domains *now, ir_axis a) {
  for (uint32_t i = 0; i < now->loop.len; i++) {
    ir_mark_kind mark = ir_axis_at(f, now->loop.data[i])->mark.kind;
    if (mark == IR_MARK_MESH || mark == IR_MARK_STREAM) continue;
    if (schedule_descends(f, now->logical, now->loop.data[i], a)) return false;
  }
  return true;
}

/* The slices of a stream axis are contiguous ranges of one logical axis: the axis itself, or the
 * outer part of a split of it or of what devices and outer loops leave of it. */
static bool is_sliceable(const ir_func *f, const ir_domains *now, ir_axis a) {
  /* mutant: stream_on_anything */
  bool outer = false; /* passed the outer part of a split on the way up */
  while (schedule_find(now->logical, a) == now->logical.len) {
    const ir_transform_data *t = ir_transform_at(f, ir_axis_at(f, a)->def);
    switch (t->kind) {
    case IR_MERGE:
    case IR_RESIZE: return false;
    case IR_SWIZZLE: break;
    case IR_SPLIT:
    case IR_OUTER_SPLIT:
    case IR_CHUNK_SPLIT:
      if (IR_SAME(a, t->out[1]) && !(outer && is_run_apart(f, now, t->out[0]))) return false;
      outer = true;
    }
    a = t->in[0];
  }
  return true;
}

static bool may_mark_stream(schedule_step *s, uint32_t position) {
  const ir_domains *now = &ir_tensor_at(s->f, s->t)->now;
  if (is_sliceable(s->f, now, now->loop.data[position])) return true;
  return SCHEDULE_REFUSE(
      s,
      "axis %u of %s cannot be a stream: stream axes must be logical axes or the outer part of a "
      "split of one, not merged axes or inner parts",
      position, schedule_target_name(s));
}

static bool may_mark(schedule_step *s, uint32_t position) {
  switch (s->stmt->mark.kind) {
  case IR_MARK_NONE: return SCHEDULE_REFUSE(s, "a mark is stream, serial or an axis of a mesh");
  case IR_MARK_SERIAL: return true;
  case IR_MARK_STREAM: return may_mark_stream(s, position);
  case IR_MARK_MESH: return may_mark_mesh(s, position);
  }
  impossible("a mark of no kind");
}

bool schedule_mark(schedule_step *s) {
  uint32_t position;
  if (!schedule_axis(s, s->stmt->axis, &position)) return false;
  ir_axis a = schedule_loop_at(s, position);
  ir_mark mark = ir_axis_at(s->f, a)->mark;
  if (ir_mark_same(mark, s->stmt->mark) && mark.kind != IR_MARK_NONE) {
    if (s->stmt->mark.form != IR_FORM_NONE) ir_axis_at(s->f, a)->mark.form = s->stmt->mark.form;
    return true;
  }
  if (mark.kind != IR_MARK_NONE) {
    return SCHEDULE_REFUSE(s, "axis %u of %s is already marked %s: an axis has one mark", position,
                           schedule_target_name(s), ir_mark_text(mark));
  }
  if (!may_mark(s, position)) return false;
  ir_axis_at(s->f, a)->mark = s->stmt->mark;
  ir_axis_at(s->f, a)->why = why_of(s);
  return true;
}
