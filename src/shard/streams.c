/* The same program with other streams. What is gathered slice by slice can also be gathered piece by piece
 * of each slice, and the other way round:
 *
 *   a[mesh.x, n, k]  =>  a$1[2, stream, n / s, k]        an allgather per slice
 *                    =>  a$1[stream, stream, n / s, k]   the own piece, then slices of the others' */
#include "ir/map.h"
#include "shard/internal.h"

typedef struct varying {
  ir_func *f;
  shard_ctx *c;
  ir_classes classes;
  uint32_t changed; /* marks */
} varying;

static bool is_stream(const varying *l, ir_axis a) {
  return ir_axis_at(l->f, a)->mark.kind == IR_MARK_STREAM;
}

/* A dimension that is in the loop domain as it is. */
static bool is_dimension(const varying *l, ir_tensor t, ir_axis a) {
  const ir_tensor_data *d = ir_tensor_at(l->f, t);
  if (ir_axis_at(l->f, a)->kind != IR_AXIS_ITERATION) return false;
  for (uint32_t i = 0; i < d->now.logical.len; i++) {
    if (IR_SAME(d->now.logical.data[i], a)) return true;
  }
  return false;
}

/* Marks the axes that go over the same positions, or takes their marks away; only beside other streams,
 * whose reasons are theirs too. */
static void set_marks(varying *l, ir_axis like, bool stream) {
  const ir_func *f = l->f;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_tensor t = ir_op_at(f, f->order.data[i])->result;
    ir_axes loop = ir_tensor_at(f, t)->now.loop;
    ir_axis other = {0};
    for (uint32_t k = 0; k < loop.len && !other.id; k++) {
      bool beside = is_stream(l, loop.data[k]) && !ir_class_same(&l->classes, loop.data[k], like);
      if (beside) other = loop.data[k];
    }
    for (uint32_t k = 0; k < loop.len && other.id; k++) {
      ir_axis_data *a = ir_axis_at(f, loop.data[k]);
      if (a->mark.kind != (stream ? IR_MARK_NONE : IR_MARK_STREAM)) continue;
      if (!is_dimension(l, t, loop.data[k]) || !ir_class_same(&l->classes, loop.data[k], like))
        continue;
      a->mark = (ir_mark){.kind = stream ? IR_MARK_STREAM : IR_MARK_NONE};
      a->why = stream ? ir_axis_at(f, other)->why : 0;
      l->changed++;
    }
  }
}

/* The dimension of what is gathered that has one position per device; none: it is not gathered so. */
static ir_axis gathered_dimension(const varying *l, const ir_op_data *op, const shard_comm *m) {
  ir_axis dims[IR_MAX_RANK];
  if (m->kind != SHARD_ALLGATHER || m->before.axes[m->mesh_axis].cut != SHARD_WHOLE)
    return (ir_axis){0};
  uint32_t rank = ir_tensor_dims(l->f, op->result, dims);
  return m->to_dim >= 0 && (uint32_t)m->to_dim < rank ? dims[m->to_dim] : (ir_axis){0};
}

uint32_t shard_vary_streams(shard_ctx *c, bool pieces, arena *scratch) {
  varying v = {.f = c->f, .c = c};
  v.classes = ir_classes_build(c->f, IR_CLASS_BROADCAST, scratch);
  for (uint32_t i = 0; i < c->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(c->f, c->f->order.data[i]);
    shard_comm m = {0};
    if (ir_op_info_of(op->code)->family != IR_FAMILY_SET) continue;
    if (shard_comm_of(c, op, &m) != SHARD_ONE || m.mesh_axis < 0) continue;
    ir_axis axis = pieces ? gathered_dimension(&v, op, &m) : m.stream;
    if (axis.id) set_marks(&v, axis, pieces);
  }
  return v.changed;
}

/* The statement goes with the mark. */
uint32_t shard_forget_streams(ir_func *f) {
  uint32_t kept = 0, changed = 0;
  for (uint32_t i = 1; i < f->axes.len; i++) {
    ir_mark *mark = &f->axes.data[i].mark;
    if (mark->kind != IR_MARK_STREAM) continue;
    *mark = (ir_mark){0};
    changed++;
  }
  for (uint32_t i = 0; i < f->statements.len; i++) {
    const ir_stmt *s = &f->statements.data[i];
    bool stream = s->kind == IR_STMT_MARK && s->mark.kind == IR_MARK_STREAM;
    if (!stream) f->statements.data[kept++] = *s;
  }
  f->statements.len = kept;
  return changed;
}
