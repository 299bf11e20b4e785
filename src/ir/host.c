#include "ir/host.h"

#include <string.h>

#include "ir/build.h"

static arena *memory_of(ir_func *h) { return &h->module->memory; }

static ir_func *with_host(ir_func *h) {
  ir_module *m = h->module;
  h->host = ARENA_NEW(&m->memory, ir_host);
  vec_push(&m->memory, &h->host->instrs, ((ir_instr_data){0}));
  uint32_t streams = strings_intern(&m->names, "streams", strlen("streams"));
  ir_symbol_data symbol = {.kind = IR_SYMBOL_STREAMS, .name = streams};
  h->host->streams = ir_scalar_symbol(&m->scalars, symbol);
  return h;
}

ir_func *ir_host_new(ir_module *m, uint32_t name, loc at) {
  ir_func *h = ir_build_func(m, IR_FUNC_HOST, name, at);
  if (!h) return NULL;
  (void)with_host(h);
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (f->kind == IR_FUNC_FUSION && f->name == name) h->host->fusion = f;
  }
  return h;
}

ir_func *ir_host_of(ir_func *fusion) {
  ir_func *h = with_host(ir_build_unlisted(fusion->module, IR_FUNC_HOST, fusion->name, fusion->at));
  h->host->fusion = fusion;
  h->host->named_by = fusion;
  return h;
}

ir_instr ir_host_instr(ir_func *h, const ir_instr_data *data) {
  ir_instr i = {h->host->instrs.len};
  vec_push(memory_of(h), &h->host->instrs, *data);
  return i;
}

void ir_block_add(ir_func *h, ir_block *block, ir_instr i) { vec_push(memory_of(h), block, i); }

ir_tensor ir_host_tensor(ir_func *h, uint32_t name, ir_dtype dtype, const ir_scalar *sizes,
                         uint32_t rank, loc at) {
  check(rank <= IR_MAX_RANK);
  ir_axis axes[IR_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) {
    int64_t value;
    bool one = ir_scalar_is_const(&h->module->scalars, sizes[i], &value) && value == 1;
    axes[i] = ir_axis_new(h, one ? IR_AXIS_BROADCAST : IR_AXIS_ITERATION, sizes[i]);
  }
  ir_axes list = ir_axes_new(h, axes, rank);
  ir_tensor_data data = {.kind = IR_TENSOR_RESULT, .name = name, .at = at, .dtype = dtype};
  data.defined = (ir_domains){list, list, list, list, ir_dense_default(h, list)};
  data.now = data.defined;
  ir_tensor t = {h->tensors.len};
  vec_push(memory_of(h), &h->tensors, data);
  return t;
}

bool ir_host_order(ir_func *h, ir_tensor t, const int64_t *order, uint32_t n) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims), seen = 0;
  if (n != rank) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (order[i] < 0 || order[i] >= rank || (seen >> order[i] & 1)) return false;
    seen |= 1u << order[i];
    stored[i] = dims[order[i]];
  }
  ir_tensor_data *d = ir_tensor_at(h, t);
  d->defined.allocation = ir_axes_new(h, stored, n);
  d->defined.dense = ir_dense_default(h, d->defined.allocation);
  d->now = d->defined;
  return true;
}

ir_op ir_host_op(ir_func *h, ir_opcode code, const ir_tensor *operands, uint32_t n_operands,
                 const ir_attr *attrs, ir_tensor tensor, loc at) {
  ir_op_data op = {.code = code, .at = at, .n_operands = n_operands, .result = tensor};
  op.operands = arena_copy(memory_of(h), operands, n_operands * sizeof *operands);
  op.attrs = ir_attrs_complete(h, ir_op_info_of(code), attrs);
  ir_op o = {h->ops.len};
  vec_push(memory_of(h), &h->ops, op);
  return o;
}

bool ir_op_is_view(ir_opcode code) {
  switch (ir_op_info_of(code)->family) {
  case IR_FAMILY_BROADCAST:
  case IR_FAMILY_SQUEEZE:
  case IR_FAMILY_EXPAND:
  case IR_FAMILY_PERMUTE:
  case IR_FAMILY_SLICE: return true;
  case IR_FAMILY_POINTWISE:
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST:
  case IR_FAMILY_REDUCE:
  case IR_FAMILY_MOMENT:
  case IR_FAMILY_RESHAPE:
  case IR_FAMILY_PAD:
  case IR_FAMILY_CAT:
  case IR_FAMILY_SELECT:
  case IR_FAMILY_MAKER:
  case IR_FAMILY_GATHER:
  case IR_FAMILY_SCATTER:
  case IR_FAMILY_INDEX_SELECT:
  case IR_FAMILY_MATMUL:
  case IR_FAMILY_LINEAR:
  case IR_FAMILY_SOFTMAX:
  case IR_FAMILY_NORM:
  case IR_FAMILY_SDPA: return false;
  }
  return false;
}

static ir_scalar longest_piece(ir_scalars *s, const ir_partition *p, ir_scalar n) {
  if (p->kind == IR_PARTS) return ir_scalar_ceildiv(s, n, p->size);
  if (p->kind == IR_CHUNK) return p->size;
  int64_t longest = 0;
  for (uint32_t i = 0; i < p->n_chunks; i++) {
    if (p->chunks[i] > longest) longest = p->chunks[i];
  }
  return ir_scalar_const(s, longest);
}

ir_scalar ir_partition_count(ir_scalars *s, const ir_partition *p, ir_scalar n) {
  if (p->kind == IR_PARTS) return p->size;
  if (p->kind == IR_CHUNK) return ir_scalar_ceildiv(s, n, p->size);
  return ir_scalar_const(s, p->n_chunks);
}

/* 1 if index == k, else 0, as an integer expression. */
static ir_scalar indicator(ir_scalars *s, ir_scalar index, uint32_t k) {
  ir_scalar one = ir_scalar_const(s, 1), at = ir_scalar_const(s, k);
  ir_scalar apart = ir_scalar_max(s, ir_scalar_sub(s, index, at), ir_scalar_sub(s, at, index));
  return ir_scalar_max(s, ir_scalar_sub(s, one, apart), ir_scalar_const(s, 0));
}

static ir_scalar chunk_length(ir_scalars *s, const ir_partition *p, ir_scalar index) {
  ir_scalar sum = ir_scalar_const(s, 0);
  bool equal = true;
  for (uint32_t k = 0; k < p->n_chunks; k++) {
    ir_scalar length = ir_scalar_const(s, p->chunks[k]);
    sum = ir_scalar_add(s, sum, ir_scalar_mul(s, length, indicator(s, index, k)));
    equal = equal && p->chunks[k] == p->chunks[0];
  }
  return equal && p->n_chunks ? ir_scalar_const(s, p->chunks[0]) : sum;
}

ir_scalar ir_partition_length(ir_scalars *s, const ir_partition *p, ir_scalar n, ir_scalar index,
                              ir_scalar iterations) {
  ir_scalar piece = longest_piece(s, p, n), count = ir_partition_count(s, p, n);
  if (p->kind == IR_CHUNKS) return chunk_length(s, p, index);
  bool in_range = iterations.id == 0 || ir_scalar_le(s, iterations, count) == IR_TRUE;
  bool even = ir_scalar_eq(s, ir_scalar_mul(s, piece, count), n) == IR_TRUE;
  if (in_range && even) return piece;
  ir_scalar left = ir_scalar_sub(s, n, ir_scalar_mul(s, index, piece));
  return ir_scalar_max(s, ir_scalar_min(s, piece, left), ir_scalar_const(s, 0));
}

static void walk(ir_func *h, const ir_block *block, uint32_t depth, ir_instr_visitor visit,
                 void *context) {
  for (uint32_t i = 0; i < block->len; i++) {
    ir_instr at = block->data[i];
    visit(context, h, at, depth);
    const ir_instr_data d = *ir_instr_at(h, at);
    walk(h, &d.body, depth + 1, visit, context);
    walk(h, &d.otherwise, depth + 1, visit, context);
  }
}

void ir_host_walk(ir_func *h, ir_instr_visitor visit, void *context) {
  walk(h, &h->host->body, 0, visit, context);
}
