/* Which buffers are seen by operations of one block only. */
#include "join/internal.h"

static join_buffer *buffer_of(const join_facts *f, ir_tensor t) {
  return &f->buffers[f->root[t.id].id];
}

static void use(const join_facts *f, ir_tensor t, uint32_t block) {
  if (t.id && buffer_of(f, t)->block != block) buffer_of(f, t)->shared = true;
}

static void share(const join_facts *f, ir_tensor t) { buffer_of(f, t)->shared = true; }

/* A view that does not change the order of elements is an operation like others in a kernel. */
static bool keeps_order(ir_opcode code) {
  return code == IR_OP_BROADCAST || code == IR_OP_SQUEEZE || code == IR_OP_EXPAND;
}

static void note_op(join_facts *f, const ir_instr_data *d, uint32_t block) {
  const ir_op_data *op = ir_op_at(f->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) use(f, op->operands[k], block);
  if (d->kind == IR_VIEW) {
    f->root[d->tensor.id] = f->root[op->operands[0].id];
    if (!keeps_order(op->code)) share(f, d->tensor);
    return;
  }
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor t = ir_op_result(op, k);
    use(f, t, block);
    buffer_of(f, t)->writes++;
    if (op->n_more) share(f, t);
  }
}

static void note_launch(const join_facts *f, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(f->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) share(f, op->operands[k]);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) share(f, ir_op_result(op, k));
}

static void take_names(const join_facts *f, const ir_instr_data *d) {
  if (d->tensor.id) map_put(f->names, ir_tensor_at(f->h, d->tensor)->name, 1);
  for (uint32_t i = 0; d->kind == IR_LAUNCH && i < d->body.len; i++)
    take_names(f, ir_instr_at(f->h, d->body.data[i]));
}

static void note_block(join_facts *f, const ir_block *block);

static void note(join_facts *f, ir_instr i, uint32_t block) {
  const ir_instr_data *d = ir_instr_at(f->h, i);
  take_names(f, d);
  switch (d->kind) {
  case IR_ALLOCATE: f->buffers[d->tensor.id] = (join_buffer){.allocate = i, .block = block}; return;
  case IR_DEALLOCATE: use(f, d->tensor, block); return;
  case IR_SELECT:
  case IR_SHARD:
    f->root[d->tensor.id] = f->root[d->from.id];
    share(f, d->tensor);
    return;
  case IR_VIEW:
  case IR_COMPUTE: note_op(f, d, block); return;
  case IR_LAUNCH: note_launch(f, d); return;
  case IR_COMMUNICATE:
    if (d->from.id) share(f, d->from);
    if (d->tensor.id) share(f, d->tensor);
    return;
  case IR_FOR:
  case IR_IF:
    note_block(f, &d->body);
    note_block(f, &d->otherwise);
    return;
  case IR_CURRENT_STREAM:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_WAIT: return;
  }
}

static void note_block(join_facts *f, const ir_block *block) {
  uint32_t number = ++f->n_blocks;
  for (uint32_t i = 0; i < block->len; i++) note(f, block->data[i], number);
}

join_facts join_find_facts(ir_func *h, arena *scratch) {
  join_facts f = {.h = h, .scratch = scratch};
  f.root = ARENA_ARRAY(scratch, h->tensors.len, ir_tensor);
  f.buffers = ARENA_ARRAY(scratch, h->tensors.len, join_buffer);
  f.names = ARENA_NEW(scratch, map);
  map_init(f.names, scratch);
  for (uint32_t i = 0; i < h->tensors.len; i++) f.root[i] = (ir_tensor){i};
  for (uint32_t i = 0; i < h->inputs.len; i++)
    map_put(f.names, ir_tensor_at(h, h->inputs.data[i])->name, 1);
  note_block(&f, &h->host->body);
  for (uint32_t i = 0; i < h->outputs.len; i++) share(&f, h->outputs.data[i]);
  return f;
}

bool join_is_private(const join_facts *f, ir_tensor t) {
  const join_buffer *b = buffer_of(f, t);
  return b->allocate.id && !b->shared && b->writes == 1;
}
