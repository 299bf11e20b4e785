#include "text/nvfuser_style.h"

/* ---- numbers ---- */
static void show(text_nvfuser *s, ir_tensor t) {
  if (t.id && ir_tensor_at(s->h, t)->kind != IR_TENSOR_CONST) s->tensors[t.id] = 1;
}

/* The notation has no shorter last piece, so the length of a whole one is shown. */
static void note_piece(text_nvfuser *s, const ir_instr_data *d) {
  ir_scalars *all = &s->h->module->scalars;
  ir_axis a = text_nvfuser_dim(s, d->tensor, d->dim), from = text_nvfuser_dim(s, d->from, d->dim);
  if (!a.id || !from.id || d->partition.kind == IR_CHUNKS) return;
  ir_scalar n =
      ir_host_cut_of(s->h, from) ? text_nvfuser_length(s, from) : ir_axis_size(s->h, from);
  s->pieces[a.id] = ir_partition_longest(all, &d->partition, n);
}

static void show_block(text_nvfuser *s, const ir_block *block) {
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    const ir_block *taken = text_nvfuser_membership(s, d);
    if (taken) {
      show_block(s, taken);
      continue;
    }
    if (d->kind == IR_COMMUNICATE && !text_nvfuser_takes_part(s, d)) continue;
    show(s, d->tensor);
    show(s, d->from);
    if (d->kind == IR_SELECT || d->kind == IR_SHARD) s->slices[d->tensor.id] = true;
    if (d->kind == IR_SHARD) note_piece(s, d);
    if (d->kind == IR_COMPUTE || d->kind == IR_LAUNCH) {
      const ir_op_data *op = ir_op_at(s->h, d->op);
      for (uint32_t k = 0; k < op->n_more; k++) show(s, op->more[k]);
      for (uint32_t k = 0; k < op->n_operands; k++) show(s, op->operands[k]);
    }
    show_block(s, &d->body);
    show_block(s, &d->otherwise);
  }
}

/* One position per device? Then the notation shows the axis as it is over all devices. */
static const ir_cut_axis *device_axis(const text_nvfuser *s, ir_axis a) {
  const ir_cut_axis *cut = ir_host_cut_of(s->h, a);
  int64_t length;
  if (!cut || cut->n_cuts != 1 || cut->cuts[0].partition.kind != IR_CHUNK) return NULL;
  if (cut->cuts[0].partition.period.id) return NULL;
  bool one = ir_scalar_is_const(&s->h->module->scalars, cut->cuts[0].partition.size, &length) &&
             length == 1;
  return one ? cut : NULL;
}

/* For cuts over devices the notation shows the length of a whole piece. */
static void note_cut(text_nvfuser *s, const ir_cut_axis *cut) {
  ir_scalars *all = &s->h->module->scalars;
  ir_scalar size = cut->whole;
  for (uint32_t i = 0; i < cut->n_cuts; i++) {
    size = ir_partition_longest(all, &cut->cuts[i].partition, size);
  }
  s->pieces[cut->axis.id] = device_axis(s, cut->axis) ? cut->whole : size;
}

static void number_axes(text_nvfuser *s, ir_axes axes, uint32_t *next) {
  for (uint32_t i = 0; i < axes.len; i++) {
    uint32_t *number = &s->axes[axes.data[i].id];
    if (*number == 0) *number = ++*next;
  }
}

void text_nvfuser_number(text_nvfuser *s) {
  const ir_func *h = s->h;
  for (uint32_t i = 0; i < h->inputs.len; i++) show(s, h->inputs.data[i]);
  for (uint32_t i = 0; i < h->outputs.len; i++) show(s, h->outputs.data[i]);
  for (uint32_t i = 0; i < h->host->cut.len; i++) note_cut(s, &h->host->cut.data[i]);
  show_block(s, &h->host->body);
  uint32_t tensors = 0, axes = 0;
  for (uint32_t i = 1; i < h->tensors.len; i++) {
    if (!s->tensors[i]) continue;
    s->tensors[i] = ++tensors;
    number_axes(s, h->tensors.data[i].now.logical, &axes);
    number_axes(s, h->tensors.data[i].now.loop, &axes);
  }
}

/* ---- scalars ---- */
static uint32_t symbol_index(const text_nvfuser *s, ir_scalar symbol) {
  return (uint32_t)ir_scalar_node_of(&s->h->module->scalars, symbol)->value;
}

static const char *next_name(text_nvfuser *s) {
  return arena_printf(s->out->memory, "i%u", s->n_symbols++);
}

static const char *coordinate_name(text_nvfuser *s, ir_scalar symbol) {
  const ir_coordinate *c = text_nvfuser_coordinate(s, symbol);
  uint32_t axis = c ? c->axis : 0;
  if (axis < 3) return arena_printf(s->out->memory, "deviceIdx.%c", "xyz"[axis]);
  return arena_printf(s->out->memory, "deviceIdx.%u", axis);
}

const char *text_nvfuser_symbol(text_nvfuser *s, ir_scalar symbol) {
  uint32_t i = symbol_index(s, symbol);
  switch (s->h->module->scalars.symbols.data[i].kind) {
  case IR_SYMBOL_STREAMS: return "numberOfStreams";
  case IR_SYMBOL_RANK: return coordinate_name(s, symbol);
  case IR_SYMBOL_EXTENT:
  case IR_SYMBOL_INDEX: break;
  }
  if (!s->symbols[i]) s->symbols[i] = next_name(s);
  return s->symbols[i];
}

void text_nvfuser_open_index(text_nvfuser *s, ir_scalar symbol, bool stream) {
  bool free = stream && s->n_indexes == 0;
  s->symbols[symbol_index(s, symbol)] = free ? "StreamIdx" : next_name(s);
}

/* ---- scalars ---- */

/* 1 if index == k, else 0. */
static ir_scalar indicator(ir_scalars *s, ir_scalar index, uint32_t k) {
  ir_scalar one = ir_scalar_const(s, 1), at = ir_scalar_const(s, k);
  ir_scalar apart = ir_scalar_max(s, ir_scalar_sub(s, index, at), ir_scalar_sub(s, at, index));
  return ir_scalar_max(s, ir_scalar_sub(s, one, apart), ir_scalar_const(s, 0));
}

/* 1 if index > k, else 0. */
static ir_scalar is_past(ir_scalars *s, ir_scalar index, uint32_t k) {
  ir_scalar past = ir_scalar_sub(s, index, ir_scalar_const(s, k));
  past = ir_scalar_max(s, past, ir_scalar_const(s, 0));
  return ir_scalar_min(s, past, ir_scalar_const(s, 1));
}

/* The notation has no word for chunks, so they are written as a sum over all chunks. */
static ir_scalar without_chunks(ir_scalars *s, ir_scalar x) {
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  if (n.a.id == 0) return x;
  ir_scalar a = without_chunks(s, n.a);
  if (n.kind != IR_SCALAR_CHUNK && n.kind != IR_SCALAR_CHUNK_START)
    return ir_scalar_with(s, x, a, without_chunks(s, n.b));
  const ir_chunk_list list = *ir_scalar_list_of(s, n.b);
  ir_scalar sum = ir_scalar_const(s, 0);
  for (uint32_t k = 0; k < list.len; k++) {
    ir_scalar one = n.kind == IR_SCALAR_CHUNK ? indicator(s, a, k) : is_past(s, a, k);
    sum = ir_scalar_add(s, sum, ir_scalar_mul(s, one, ir_scalar_const(s, list.lengths[k])));
  }
  return sum;
}

static void put_scalar(text_nvfuser *s, ir_scalar x);

static void put_infix(text_nvfuser *s, const ir_scalar_node *n, const char *op) {
  strbuf_puts(s->out, "( ");
  put_scalar(s, n->a);
  strbuf_puts(s->out, op);
  put_scalar(s, n->b);
  strbuf_puts(s->out, " )");
}

static void put_function(text_nvfuser *s, const ir_scalar_node *n, const char *name) {
  strbuf_puts(s->out, "( ");
  strbuf_puts(s->out, name);
  strbuf_putc(s->out, '(');
  put_scalar(s, n->a);
  strbuf_puts(s->out, ", ");
  put_scalar(s, n->b);
  strbuf_puts(s->out, ") )");
}

static void put_scalar(text_nvfuser *s, ir_scalar x) {
  const ir_scalar_node n = *ir_scalar_node_of(&s->h->module->scalars, x);
  switch (n.kind) {
  case IR_SCALAR_CONST: strbuf_int(s->out, n.value); return;
  case IR_SCALAR_SYMBOL: strbuf_puts(s->out, text_nvfuser_symbol(s, x)); return;
  case IR_SCALAR_ADD: put_infix(s, &n, " + "); return;
  case IR_SCALAR_MUL: put_infix(s, &n, " * "); return;
  case IR_SCALAR_FLOORDIV: put_infix(s, &n, " / "); return;
  case IR_SCALAR_MOD: put_infix(s, &n, " % "); return;
  case IR_SCALAR_CEILDIV: put_function(s, &n, "ceilDiv"); return;
  case IR_SCALAR_MIN: put_function(s, &n, "fmin"); return;
  case IR_SCALAR_MAX: put_function(s, &n, "fmax"); return;
  case IR_SCALAR_LIST:
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_CHUNK_START:
  case IR_SCALAR_OVERFLOWED: strbuf_putc(s->out, '?'); return;
  }
}

void text_nvfuser_put_scalar(text_nvfuser *s, ir_scalar x) {
  ir_scalars *all = &s->h->module->scalars;
  if (ir_scalar_node_of(all, x)->size > IR_SCALAR_LARGE) strbuf_puts(s->out, "( ... )");
  else put_scalar(s, without_chunks(all, x));
}

/* ---- axes ---- */
static bool is_logical(const text_nvfuser *s, ir_tensor t, ir_axis a) {
  ir_axes logical = ir_tensor_at(s->h, t)->now.logical;
  for (uint32_t i = 0; i < logical.len; i++) {
    if (IR_SAME(logical.data[i], a)) return true;
  }
  return false;
}

static void put_mark(text_nvfuser *s, ir_tensor t, ir_axis a) {
  ir_mark mark = ir_axis_at(s->h, a)->mark;
  const ir_cut_axis *cut = device_axis(s, a);
  if (cut) mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = cut->cuts[0].mesh_axis};
  switch (mark.kind) {
  case IR_MARK_NONE:
  case IR_MARK_SERIAL: strbuf_putc(s->out, 'S'); return;
  case IR_MARK_STREAM: strbuf_puts(s->out, is_logical(s, t, a) ? "StreamIdx" : "streamIdx"); return;
  case IR_MARK_MESH:
    strbuf_puts(s->out, "deviceIdx.");
    if (mark.mesh_axis < 3) strbuf_putc(s->out, "xyz"[mark.mesh_axis]);
    else strbuf_int(s->out, mark.mesh_axis);
    return;
  }
}

ir_scalar text_nvfuser_length(const text_nvfuser *s, ir_axis a) {
  return s->pieces[a.id].id ? s->pieces[a.id] : ir_axis_size(s->h, a);
}

void text_nvfuser_put_axis(text_nvfuser *s, ir_tensor t, ir_axis a) {
  const ir_axis_data d = *ir_axis_at(s->h, a);
  static const char letters[] = {[IR_AXIS_ITERATION] = 'i',
                                 [IR_AXIS_REDUCTION] = 'r',
                                 [IR_AXIS_BROADCAST] = 'b',
                                 [IR_AXIS_GATHER] = 'g'};
  strbuf_putc(s->out, letters[d.kind]);
  put_mark(s, t, a);
  strbuf_int(s->out, (int64_t)s->axes[a.id] - 1);
  strbuf_putc(s->out, '{');
  text_nvfuser_put_scalar(s, s->pieces[a.id].id ? s->pieces[a.id] : d.extent);
  if (d.expanded.id) {
    strbuf_puts(s->out, " ex ");
    text_nvfuser_put_scalar(s, d.expanded);
  }
  strbuf_putc(s->out, '}');
  if (d.rfactor) strbuf_puts(s->out, "rf");
}

ir_axis text_nvfuser_dim(const text_nvfuser *s, ir_tensor t, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(s->h, ir_tensor_at(s->h, t)->now.logical, dims);
  return dim < rank ? dims[dim] : (ir_axis){0};
}

/* ---- tensors ---- */
/* {0 1} of a row, {{0 1}{2 3}} of a grid. */
static void put_devices(text_nvfuser *s, const ir_mesh_data *m, uint32_t level, int64_t *next) {
  strbuf_putc(s->out, '{');
  for (int64_t i = 0; i < m->shape[level]; i++) {
    if (level + 1 < m->rank) {
      put_devices(s, m, level + 1, next);
      continue;
    }
    if (i) strbuf_putc(s->out, ' ');
    strbuf_int(s->out, m->devices[(*next)++]);
  }
  strbuf_putc(s->out, '}');
}

static void put_mesh(text_nvfuser *s, const ir_mesh_data *m) {
  int64_t next = 0;
  strbuf_puts(s->out, " (DeviceMesh");
  put_devices(s, m, 0, &next);
  strbuf_putc(s->out, ')');
}

void text_nvfuser_put_tensor(text_nvfuser *s, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(s->h, t);
  strbuf_printf(s->out, "T%u_%c_%s[", s->tensors[t.id] - 1, s->slices[t.id] ? 'l' : 'g',
                ir_dtype_nvfuser(d->dtype));
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    if (i) strbuf_puts(s->out, ", ");
    text_nvfuser_put_axis(s, t, d->now.loop.data[i]);
  }
  strbuf_putc(s->out, ']');
  if (d->mesh.id) put_mesh(s, ir_mesh_at(s->h, d->mesh));
}

void text_nvfuser_put_operand(text_nvfuser *s, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(s->h, t);
  if (d->kind != IR_TENSOR_CONST) {
    text_nvfuser_put_tensor(s, t);
  } else if (d->value.id) {
    text_nvfuser_put_scalar(s, d->value);
  } else if (d->number.is_float) {
    strbuf_puts(s->out, "double(");
    strbuf_double(s->out, d->number.f);
    strbuf_putc(s->out, ')');
  } else {
    strbuf_int(s->out, d->number.i);
  }
}

void text_nvfuser_put_indent(text_nvfuser *s, uint32_t depth) {
  for (uint32_t i = 0; i < depth; i++) strbuf_puts(s->out, "  ");
}
