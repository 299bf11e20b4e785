/* Slices get the sizes that a reader of the text gives them.
 *
 * Lowering knows more of a slice than its instruction says: up to which iteration pieces are whole, for
 * one. What is joined must not depend on that, or a program would be joined differently once it has been
 * printed and read again. */
#include "ir/build.h"
#include "join/internal.h"

/* The size of dimension `k` of what is sliced, in the slice. */
static ir_scalar size_of(ir_func *h, const ir_instr_data *d, uint32_t k, ir_axis from) {
  ir_scalar size = ir_axis_size(h, from);
  ir_partition partition = d->partition;
  partition.ends_early = false;
  if (k != d->dim) return size;
  return ir_partition_length(&h->module->scalars, &partition, size, d->index, (ir_scalar){0});
}

/* An axis of its own, since tensors may share theirs. */
static ir_axis resized(ir_func *h, ir_axis a, ir_scalar size) {
  const ir_axis_data old = *ir_axis_at(h, a);
  ir_axis made = ir_axis_new(h, old.kind, size);
  const ir_cut_axis *cut = ir_host_cut_of(h, a);
  if (cut) ir_host_note_cut(h, made, cut);
  return made;
}

static void resize(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  const ir_instr_data d = *ir_instr_at(h, i);
  ir_axis from[IR_MAX_RANK], dims[IR_MAX_RANK];
  bool changed = false;
  (void)context, (void)depth;
  if (d.kind != IR_SELECT && d.kind != IR_SHARD) return;
  uint32_t rank = ir_tensor_dims(h, d.from, from), n = 0;
  (void)ir_tensor_dims(h, d.tensor, dims);
  for (uint32_t k = 0; k < rank; k++) {
    if (k == d.dim && d.kind == IR_SELECT) continue;
    ir_scalar size = size_of(h, &d, k, from[k]);
    if (!IR_SAME(ir_axis_size(h, dims[n]), size)) {
      dims[n] = resized(h, dims[n], size);
      changed = true;
    }
    n++;
  }
  if (!changed) return;
  ir_axes list = ir_axes_new(h, dims, n);
  ir_tensor_data *t = ir_tensor_at(h, d.tensor);
  t->defined = (ir_domains){list, list, list, list, ir_dense_default(h, list)};
  t->now = t->defined;
}

void join_resize_slices(ir_func *h) { ir_host_walk(h, resize, NULL); }
