/* The same program with other streams. What is gathered slice by slice can also be gathered piece by piece
 * of each slice, and the other way round:
 *
 *   a[mesh.x, n, k]  =>  a$1[2, stream, n / s, k]        an allgather per slice
 *                    =>  a$1[stream, stream, n / s, k]   the own piece, then slices of the others' */
#include "host/internal.h"

static bool is_stream(const lowering *l, ir_axis a) {
  return ir_axis_at(l->f, a)->mark.kind == IR_MARK_STREAM;
}

/* A dimension that is in the loop domain as it is. */
static bool is_dimension(const lowering *l, ir_tensor t, ir_axis a) {
  const ir_tensor_data *d = ir_tensor_at(l->f, t);
  if (ir_axis_at(l->f, a)->kind != IR_AXIS_ITERATION) return false;
  for (uint32_t i = 0; i < d->now.logical.len; i++) {
    if (IR_SAME(d->now.logical.data[i], a)) return true;
  }
  return false;
}

/* Marks the axes that go over the same positions, or takes their marks away; only beside other streams,
 * whose reasons are theirs too. */
static void set_marks(lowering *l, ir_axis like, bool stream) {
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
    }
  }
}

/* The dimension of what is gathered that has one position per device; none: it is not gathered so. */
static ir_axis gathered_dimension(const lowering *l, const ir_op_data *op, const shard_comm *m) {
  ir_axis dims[IR_MAX_RANK];
  if (m->kind != SHARD_ALLGATHER || m->before.axes[m->mesh_axis].cut != SHARD_WHOLE)
    return (ir_axis){0};
  uint32_t rank = ir_tensor_dims(l->f, op->result, dims);
  return m->to_dim >= 0 && (uint32_t)m->to_dim < rank ? dims[m->to_dim] : (ir_axis){0};
}

void host_vary_streams(lowering *l) {
  host_streams wanted = l->options->streams;
  if (!l->shard || (wanted != HOST_BY_SLICES && wanted != HOST_BY_PIECES)) return;
  for (uint32_t i = 0; i < l->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(l->f, l->f->order.data[i]);
    shard_comm m = {0};
    if (ir_op_info_of(op->code)->family != IR_FAMILY_SET) continue;
    if (shard_comm_of(l->shard, op, &m) != SHARD_ONE || m.mesh_axis < 0) continue;
    ir_axis axis = wanted == HOST_BY_SLICES ? m.stream : gathered_dimension(l, op, &m);
    if (axis.id) set_marks(l, axis, wanted == HOST_BY_PIECES);
  }
}
