/* Tensors of the host program: buffers with the axes of the fusion's tensors, and slices of them. */
#include <string.h>

#include "host/emit.h"
#include "ir/build.h"

uint32_t emit_fresh_name(emitter *e, const char *base, bool numbered) {
  strings *names = &e->h->module->names;
  uint32_t plain = strings_intern(names, base, strlen(base)), name = plain;
  if (!numbered && ir_func_lookup(e->h, name).kind == IR_NAME_NONE) return name;
  for (uint32_t k = map_get(&e->numbers, plain, 1);; k++) {
    name = ir_name_numbered(e->h->module, base, k);
    if (ir_func_lookup(e->h, name).kind != IR_NAME_NONE) continue;
    map_put(&e->numbers, plain, k); /* those below are taken */
    return name;
  }
}

static ir_axis copy_axis(emitter *e, const ir_func *from, ir_axis a) {
  ir_axis_data d = *ir_axis_at(from, a);
  ir_axis copy = ir_axis_new(e->h, d.kind, d.extent);
  ir_axis_at(e->h, copy)->expanded = d.expanded;
  ir_axis_at(e->h, copy)->mark = d.mark;
  const ir_cut_axis *cut = ir_host_cut_of(from, a);
  if (cut) ir_host_note_cut(e->h, copy, cut);
  return copy;
}

ir_tensor emit_add_tensor(emitter *e, const ir_tensor_data *data, ir_tensor origin, bool slice) {
  arena *memory = &e->h->module->memory;
  ir_tensor t = {e->h->tensors.len};
  vec_push(memory, &e->h->tensors, *data);
  while (e->h->host->origins.len < t.id) vec_push(memory, &e->h->host->origins, ((ir_origin){0}));
  vec_push(memory, &e->h->host->origins, ((ir_origin){origin, slice}));
  while (e->dense.len <= t.id) vec_push(&e->l->scratch, &e->dense, false);
  while (e->callers.len <= t.id) vec_push(&e->l->scratch, &e->callers, false);
  if (data->name) ir_func_declare(e->h, data->name, (ir_name_entry){IR_NAME_TENSOR, t.id});
  return t;
}

/* ---- buffers ---- */

typedef struct axis_copies {
  ir_axis from[IR_MAX_RANK], to[IR_MAX_RANK];
  uint32_t len;
} axis_copies;

static ir_axis copied(emitter *e, axis_copies *c, ir_axis a) {
  for (uint32_t i = 0; i < c->len; i++) {
    if (IR_SAME(c->from[i], a)) return c->to[i];
  }
  return copy_axis(e, e->f, a);
}

static ir_axes copied_list(emitter *e, axis_copies *c, ir_axes axes) {
  ir_axis *list = ARENA_ARRAY(&e->h->module->memory, axes.len, ir_axis);
  for (uint32_t i = 0; i < axes.len; i++) list[i] = copied(e, c, axes.data[i]);
  return (ir_axes){list, axes.len};
}

/* Is the allocation domain a permutation of the logical one? Others do not fix an order in memory. */
static bool is_permutation(ir_axes a, ir_axes b) {
  if (a.len != b.len) return false;
  for (uint32_t i = 0; i < a.len; i++) {
    bool found = false;
    for (uint32_t k = 0; k < b.len; k++) found = found || IR_SAME(a.data[i], b.data[k]);
    if (!found) return false;
  }
  return true;
}

static ir_domains clone_domains(emitter *e, const ir_tensor_data *d, axis_copies *c) {
  ir_axes logical = d->now.logical;
  c->len = logical.len;
  for (uint32_t i = 0; i < logical.len; i++) {
    c->from[i] = logical.data[i];
    c->to[i] = copy_axis(e, e->f, logical.data[i]);
  }
  ir_domains out = {.logical = copied_list(e, c, logical)};
  out.root = out.logical;
  out.loop = copied_list(e, c, d->now.loop);
  bool ordered = is_permutation(d->now.allocation, logical);
  out.allocation = ordered ? copied_list(e, c, d->now.allocation) : out.logical;
  out.dense = ir_dense_default(e->h, out.allocation);
  return out;
}

/* The axis becomes as long as one piece of it. Of a device's part that is less than the part, so the cut
 * over devices no longer says how long it is. */
static void cut_axis(emitter *e, ir_axis a, const ir_partition *p, ir_scalar index,
                     ir_scalar iterations) {
  ir_axis_data *x = ir_axis_at(e->h, a);
  ir_scalar *size = x->expanded.id ? &x->expanded : &x->extent;
  *size = ir_partition_length(emit_scalars(e), p, *size, index, iterations);
  /* mutant: dev_piece_text */
  map_put(&e->h->host->cut_of, a.id, 0);
}

/* Those of `axes` that are in `kept`, in their own order. */
static ir_axes kept_of(emitter *e, ir_axes axes, ir_axes kept) {
  ir_axis list[IR_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t i = 0; i < axes.len; i++) {
    for (uint32_t k = 0; k < kept.len; k++) {
      if (IR_SAME(axes.data[i], kept.data[k])) list[n++] = axes.data[i];
    }
  }
  return ir_axes_new(e->h, list, n);
}

/* Drops the dimensions that the first `inside` levels of the nest fix, or shortens them to the part that is
 * left. Along the mesh axes in `without` slices are not cut yet. */
static void cut_domains(emitter *e, ir_domains *d, const op_plan *plan, uint32_t inside,
                        uint32_t without) {
  ir_axis kept[IR_MAX_RANK];
  uint32_t n = 0, dim = 0;
  for (uint32_t i = 0; i < d->logical.len; i++) {
    ir_axis a = d->logical.data[i];
    bool reduction = ir_axis_at(e->h, a)->kind == IR_AXIS_REDUCTION, gone = false;
    for (uint32_t q = 0; q < inside && !reduction; q++) {
      const stream_axis *s = &plan->axes.data[q];
      if (s->reduction || s->dim != dim) continue;
      /* mutant: scattered_parts_cut */
      bool whole = s->scattered && (without >> s->scatter_axis & 1);
      cut_axis(e, a, whole ? &s->slice : &s->partition, e->loops[q].index, s->count);
      gone = gone || host_drops(e->l, plan, q);
    }
    dim += !reduction;
    if (!gone) kept[n++] = a;
  }
  ir_axes list = ir_axes_new(e->h, kept, n);
  ir_axes order = kept_of(e, d->allocation, list);
  *d = (ir_domains){list, list, order, d->loop, ir_dense_default(e->h, order)};
}

/* Each dimension becomes as long as the running device's part of it. */
static void cut_over_devices(emitter *e, ir_tensor t, uint32_t without, ir_domains *d) {
  ir_mesh mesh = ir_tensor_at(e->f, t)->mesh;
  uint32_t dim = 0;
  for (uint32_t i = 0; i < d->logical.len; i++) {
    const ir_cut *cuts;
    ir_axis a = d->logical.data[i];
    if (ir_axis_at(e->h, a)->kind == IR_AXIS_REDUCTION) continue;
    uint32_t n = host_cuts(e->l, t, dim++, without, &cuts);
    if (n) ir_host_cut(e->h, a, mesh, cuts, n);
  }
}

/* What the loop domain of a result that devices compute in parts shows. Their partial results have the
 * device axis as one of their own; when they have been reduced, only that axis is left of the reduction:
 *   [… r n / d, rf d mesh.x]  =>  [… r d mesh.x] */
static void show_parts(emitter *e, ir_tensor t, bool part, ir_domains *d) {
  const ir_tensor_data *x = ir_tensor_at(e->f, t);
  ir_axis kept[IR_MAX_RANK];
  uint32_t n = 0;
  if (x->kind != IR_TENSOR_RESULT || !e->l->ops[x->def.id].partial) return;
  for (uint32_t i = 0; i < d->loop.len; i++) {
    ir_axis_data *a = ir_axis_at(e->h, d->loop.data[i]);
    bool reduced = a->kind == IR_AXIS_REDUCTION,
         split = ir_axis_at(e->f, x->now.loop.data[i])->def.id;
    if (reduced && split) a->rfactor = part;
    if (reduced && part && split && a->mark.kind == IR_MARK_MESH) a->kind = IR_AXIS_ITERATION;
    if (part || !reduced || !split || a->mark.kind == IR_MARK_MESH) kept[n++] = d->loop.data[i];
  }
  d->loop = ir_axes_new(e->h, kept, n);
}

void emit_set_buffer(emitter *e, ir_tensor t, ir_tensor buffer) {
  bool callers = ir_tensor_at(e->f, t)->kind == IR_TENSOR_INPUT || e->is_output[t.id];
  e->buffer[t.id] = buffer;
  e->callers.data[buffer.id] = callers;
}

ir_tensor emit_clone(emitter *e, ir_tensor t, const op_plan *plan, uint32_t inside) {
  return emit_clone_without(e, t, plan, inside, 0);
}

ir_tensor emit_clone_without(emitter *e, ir_tensor t, const op_plan *plan, uint32_t inside,
                             uint32_t without) {
  const ir_tensor_data *d = ir_tensor_at(e->f, t);
  ir_tensor_data data = {.kind = d->kind, .at = d->at, .dtype = d->dtype};
  data.number = d->number;
  data.value = d->value;
  data.memory = d->memory;
  if (d->kind == IR_TENSOR_CONST) return emit_add_tensor(e, &data, t, false);
  data.name = emit_fresh_name(e, ir_tensor_name(e->f, t), false);
  axis_copies copies;
  data.defined = clone_domains(e, d, &copies);
  show_parts(e, t, without != 0, &data.defined);
  if (e->l->shard) {
    data.mesh = d->mesh;
    cut_over_devices(e, t, without, &data.defined);
  }
  if (inside > 0) cut_domains(e, &data.defined, plan, inside, without);
  data.now = data.defined;
  ir_tensor clone = emit_add_tensor(e, &data, t, inside > 0);
  e->dense.data[clone.id] = true;
  return clone;
}

ir_tensor emit_scratch(emitter *e, ir_tensor like, const ir_scalar *sizes, uint32_t rank) {
  ir_tensor origin = e->h->host->origins.data[like.id].tensor;
  uint32_t name = emit_fresh_name(e, ir_tensor_name(e->f, origin), true);
  const ir_tensor_data model = *ir_tensor_at(e->h, like);
  ir_tensor t = ir_host_tensor(e->h, name, model.dtype, sizes, rank, model.at);
  ir_tensor_data data = *ir_tensor_at(e->h, t);
  e->h->tensors.len--; /* it is added again, with its origin */
  data.mesh = model.mesh;
  t = emit_add_tensor(e, &data, origin, false);
  e->dense.data[t.id] = true;
  return t;
}

/* ---- memory ---- */

static bool is_one(const emitter *e, ir_axis a) {
  int64_t n;
  return ir_scalar_is_const(&e->h->module->scalars, ir_axis_size(e->h, a), &n) && n == 1;
}

bool emit_is_dense(const emitter *e, ir_tensor t) { return e->dense.data[t.id]; }

ir_axes emit_order(const emitter *e, ir_tensor t) {
  const ir_domains *d = &ir_tensor_at(e->h, t)->defined;
  /* mutant: callers_memory_ordered */
  return e->callers.data[t.id] ? d->logical : d->allocation;
}

bool emit_is_outermost(const emitter *e, ir_tensor t, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, t, dims);
  uint32_t n = ir_axes_dims(e->h, emit_order(e, t), stored);
  if (n != rank) return false;
  for (uint32_t i = 0; i < n && !IR_SAME(stored[i], dims[dim]); i++) {
    if (!is_one(e, stored[i])) return false;
  }
  return true;
}

/* ---- slices ---- */

/* Loop axes of a shard: the stream axis, then what is left, in the place of the cut dimension. */
static void shard_loop(emitter *e, const stream_axis *s, ir_axis inner, ir_axis *loop,
                       uint32_t *n) {
  ir_axis outer = ir_axis_new(e->h, IR_AXIS_ITERATION, s->count);
  ir_axis_at(e->h, outer)->mark.kind = IR_MARK_STREAM;
  loop[(*n)++] = outer;
  loop[(*n)++] = inner;
}

/* An axis of which each device holds a longer part gets the device axis before it. */
static void device_axes(emitter *e, ir_axis a, ir_mesh mesh, ir_axis *loop, uint32_t *n) {
  const ir_cut_axis *cut = ir_host_cut_of(e->h, a);
  if (!cut || cut->n_cuts != 1 || ir_axis_at(e->h, a)->mark.kind == IR_MARK_MESH) return;
  uint32_t k = cut->cuts[0].mesh_axis;
  int64_t devices = ir_mesh_size(ir_mesh_at(e->h, mesh), k);
  ir_axis outer = ir_axis_new(e->h, IR_AXIS_ITERATION, ir_scalar_const(emit_scalars(e), devices));
  ir_axis_at(e->h, outer)->mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = k};
  loop[(*n)++] = outer;
}

/* The axes `to` in the order that `allocation` gives to the axes `from` they represent. */
static ir_axes order_like(emitter *e, ir_axes allocation, const ir_axis *from, const ir_axis *to,
                          uint32_t n) {
  ir_axis list[IR_MAX_RANK];
  uint32_t found = 0;
  for (uint32_t i = 0; i < allocation.len; i++) {
    for (uint32_t k = 0; k < n; k++) {
      if (IR_SAME(allocation.data[i], from[k])) list[found++] = to[k];
    }
  }
  return found == n ? ir_axes_new(e->h, list, n) : ir_axes_new(e->h, to, n);
}

ir_tensor emit_slice_tensor(emitter *e, ir_tensor from, uint32_t dim, const stream_axis *s,
                            bool drops, ir_scalar index) {
  const ir_tensor_data d = *ir_tensor_at(e->h, from);
  ir_axis logical[IR_MAX_RANK] = {{0}}, from_axes[IR_MAX_RANK] = {{0}}, loop[3 * IR_MAX_RANK];
  uint32_t n = 0, n_loop = 0, at = 0;
  for (uint32_t i = 0; i < d.defined.logical.len; i++) {
    ir_axis a = d.defined.logical.data[i];
    bool reduction = ir_axis_at(e->h, a)->kind == IR_AXIS_REDUCTION,
         cut = !reduction && at++ == dim;
    if ((cut && drops) || (reduction && !drops)) continue;
    ir_axis copy = copy_axis(e, e->h, a);
    logical[n++] = copy;
    if (cut) {
      ir_axis_at(e->h, copy)->mark = (ir_mark){0};
      cut_axis(e, copy, &s->partition, index, s->count);
      shard_loop(e, s, copy, loop, &n_loop);
    } else {
      device_axes(e, copy, d.mesh, loop, &n_loop);
      loop[n_loop++] = copy;
    }
    from_axes[n - 1] = a;
  }
  ir_axes list = ir_axes_new(e->h, logical, n);
  ir_tensor_data data = {.kind = IR_TENSOR_RESULT, .dtype = d.dtype, .at = d.at, .mesh = d.mesh};
  ir_axes order = order_like(e, emit_order(e, from), from_axes, logical, n);
  ir_tensor origin = e->h->host->origins.data[from.id].tensor;
  data.name = emit_fresh_name(e, ir_tensor_name(e->f, origin), true);
  data.defined = (ir_domains){list, list, order, ir_axes_new(e->h, loop, n_loop),
                              ir_dense_default(e->h, order)};
  data.now = data.defined;
  bool dense = emit_is_dense(e, from) && emit_is_outermost(e, from, dim);
  ir_tensor slice = emit_add_tensor(e, &data, origin, true);
  e->dense.data[slice.id] = dense;
  return slice;
}
