/* Slices: their sizes, as their instructions give them, and the buffers that they are parts of. */
#include "ir/build.h"
#include "ir/host.h"

/* ---- the size of a slice ---- */
ir_scalar ir_host_slice_size(ir_func *h, const ir_instr_data *d, uint32_t dim, ir_scalar size,
                             ir_scalar iterations) {
  ir_partition partition = d->partition;
  partition.ends_early = false;
  if (dim != d->dim || d->kind != IR_SHARD) return size;
  return ir_partition_length(&h->module->scalars, &partition, size, d->index, iterations);
}

/* ---- whose memory it is ---- */
static void note_root(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  uint32_t *root = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  (void)depth;
  if (d->kind == IR_SELECT || d->kind == IR_SHARD) root[d->tensor.id] = root[d->from.id];
  /* mutant: free_ignores_views */
  if (d->kind == IR_VIEW) root[d->tensor.id] = root[ir_op_at(h, d->op)->operands[0].id];
}

uint32_t *ir_host_roots(ir_func *h, arena *memory) {
  uint32_t *root = ARENA_ARRAY(memory, h->tensors.len, uint32_t);
  for (uint32_t t = 0; t < h->tensors.len; t++) root[t] = t;
  ir_host_walk(h, note_root, root);
  return root;
}

/* ---- all slices of a program ---- */
typedef struct open_loops {
  ir_func *h;
  VEC(ir_instr) loops;
  arena *memory;
} open_loops;

/* How often the loop runs that has this index; none: the scalar is not a loop index. */
static ir_scalar iterations_of(const open_loops *o, ir_scalar index) {
  for (uint32_t i = o->loops.len; i-- > 0;) {
    const ir_instr_data *loop = ir_instr_at(o->h, o->loops.data[i]);
    if (IR_SAME(loop->variable, index)) return loop->extent;
  }
  return (ir_scalar){0};
}

/* An axis of its own, since tensors may share theirs. */
static ir_axis resized(ir_func *h, ir_axis a, ir_scalar size) {
  const ir_axis_data old = *ir_axis_at(h, a);
  ir_axis made = ir_axis_new(h, old.kind, size);
  const ir_cut_axis *cut = ir_host_cut_of(h, a);
  if (cut) ir_host_note_cut(h, made, cut);
  return made;
}

static void resize(const open_loops *o, const ir_instr_data *d) {
  ir_func *h = o->h;
  ir_axis from[IR_MAX_RANK], dims[IR_MAX_RANK];
  bool changed = false;
  uint32_t rank = ir_tensor_dims(h, d->from, from), n = 0;
  ir_scalar iterations = iterations_of(o, d->index);
  (void)ir_tensor_dims(h, d->tensor, dims);
  for (uint32_t k = 0; k < rank; k++) {
    if (k == d->dim && d->kind == IR_SELECT) continue;
    ir_scalar size = ir_host_slice_size(h, d, k, ir_axis_size(h, from[k]), iterations);
    if (!IR_SAME(ir_axis_size(h, dims[n]), size)) {
      dims[n] = resized(h, dims[n], size);
      changed = true;
    }
    n++;
  }
  if (!changed) return;
  ir_axes list = ir_axes_new(h, dims, n);
  ir_tensor_data *t = ir_tensor_at(h, d->tensor);
  t->defined = (ir_domains){list, list, list, list, ir_dense_default(h, list)};
  t->now = t->defined;
}

static void resize_block(open_loops *o, const ir_block *block) {
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data d = *ir_instr_at(o->h, block->data[i]);
    if (d.kind == IR_SELECT || d.kind == IR_SHARD) resize(o, &d);
    if (d.kind == IR_LAUNCH) continue;
    if (d.kind == IR_FOR) vec_push(o->memory, &o->loops, block->data[i]);
    resize_block(o, &d.body);
    resize_block(o, &d.otherwise);
    if (d.kind == IR_FOR) o->loops.len--;
  }
}

void ir_host_resize_slices(ir_func *h) {
  open_loops o = {.h = h, .memory = &h->module->memory};
  resize_block(&o, &h->host->body);
}
