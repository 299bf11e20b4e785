/* Which buffers are seen by operations of one block only. */
#include "join/internal.h"

static join_buffer *buffer_of(const join_facts *f, ir_tensor t) {
  return &f->buffers[f->root[t.id].id];
}

static void use(const join_facts *f, ir_tensor t, uint32_t block) {
  if (t.id && buffer_of(f, t)->block != block) buffer_of(f, t)->shared = true;
}

/* By the instruction that is looked at. */
static void touch(const join_facts *f, ir_tensor t) {
  join_buffer *b = buffer_of(f, t);
  if (!b->first) b->first = f->n_instrs;
  b->last = f->n_instrs;
}

static void share(const join_facts *f, ir_tensor t) { buffer_of(f, t)->shared = true; }

/* A view that does not change the order of elements is an operation like others in a kernel. */
static bool keeps_order(ir_opcode code) {
  return code == IR_OP_BROADCAST || code == IR_OP_SQUEEZE || code == IR_OP_EXPAND;
}

static bool is_empty(const ir_func *h, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  int64_t n;
  for (uint32_t d = 0; d < rank; d++)
    if (ir_scalar_is_const(&h->module->scalars, ir_axis_size(h, dims[d]), &n) && n == 0)
      return true;
  return false;
}

bool join_writes_nothing(const ir_func *h, const ir_op_data *op) {
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    if (!is_empty(h, ir_op_result(op, k))) return false;
  return true;
}

static void touch_all(const join_facts *f, const ir_op_data *op) {
  if (join_writes_nothing(f->h, op)) return;
  for (uint32_t k = 0; k < op->n_operands; k++) touch(f, op->operands[k]);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) touch(f, ir_op_result(op, k));
}

static void note_op(join_facts *f, const ir_instr_data *d, uint32_t block) {
  const ir_op_data *op = ir_op_at(f->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) use(f, op->operands[k], block);
  if (d->kind == IR_VIEW) {
    f->root[d->tensor.id] = f->root[op->operands[0].id];
    bool same = keeps_order(op->code) || op->code == IR_OP_RESHAPE;
    f->turned[d->tensor.id] = f->turned[op->operands[0].id] || !same;
    if (!keeps_order(op->code)) share(f, d->tensor);
    return;
  }
  touch_all(f, op);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor t = ir_op_result(op, k);
    use(f, t, block);
    buffer_of(f, t)->writes++;
    if (op->n_more) share(f, t);
  }
}

static void note_launch(const join_facts *f, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(f->h, d->op);
  touch_all(f, op);
  for (uint32_t k = 0; k < op->n_operands; k++) share(f, op->operands[k]);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) share(f, ir_op_result(op, k));
}

static void take_names(const join_facts *f, const ir_instr_data *d) {
  if (d->tensor.id) map_put(f->names, ir_tensor_at(f->h, d->tensor)->name, 1);
  for (uint32_t i = 0; d->kind == IR_LAUNCH && i < d->body.len; i++)
    take_names(f, ir_instr_at(f->h, d->body.data[i]));
}

static void note_post(join_facts *f, ir_tensor t, uint32_t name) {
  if (!t.id) return;
  touch(f, t);
  share(f, t);
  vec_push(f->scratch, &f->posted, ((join_post){t, name}));
}

/* Posts of a group get its name. */
static void note_group(const join_facts *f, uint32_t name) {
  for (uint32_t i = f->posted.len; i-- > 0 && f->posted.data[i].name == 0;)
    f->posted.data[i].name = name;
}

/* What a communication uses is in use until something waits for it. */
static void note_wait(join_facts *f, uint32_t name) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->posted.len; i++) {
    if (f->posted.data[i].name == name) touch(f, f->posted.data[i].tensor);
    else f->posted.data[n++] = f->posted.data[i];
  }
  f->posted.len = n;
}

static void note_block(join_facts *f, const ir_block *block, uint32_t once);

static bool repeats(const join_facts *f, const ir_instr_data *d) {
  int64_t times;
  return d->kind == IR_FOR &&
         (!ir_scalar_is_const(&f->h->module->scalars, d->extent, &times) || times > 1);
}

/* What is in a branch, or in a loop of one repetition, is done once whenever the block around it is. */
static void note_inner(join_facts *f, const ir_instr_data *d, uint32_t block) {
  uint32_t once = repeats(f, d) ? 0 : f->once[block];
  note_block(f, &d->body, once);
  note_block(f, &d->otherwise, once);
}

static void note(join_facts *f, ir_instr i, uint32_t block) {
  const ir_instr_data *d = ir_instr_at(f->h, i);
  f->number[i.id] = ++f->n_instrs;
  f->in[i.id] = block;
  take_names(f, d);
  switch (d->kind) {
  case IR_ALLOCATE: f->buffers[d->tensor.id] = (join_buffer){.allocate = i, .block = block}; return;
  case IR_DEALLOCATE: use(f, d->tensor, block); return;
  case IR_SELECT:
  case IR_SHARD:
    f->root[d->tensor.id] = f->root[d->from.id];
    f->turned[d->tensor.id] = true;
    share(f, d->tensor);
    return;
  case IR_VIEW:
  case IR_COMPUTE: note_op(f, d, block); return;
  case IR_LAUNCH: note_launch(f, d); return;
  case IR_COMMUNICATE:
    note_post(f, d->from, d->name);
    note_post(f, d->tensor, d->name);
    return;
  case IR_GROUP_END: note_group(f, d->name); return;
  case IR_WAIT: note_wait(f, d->name); return;
  case IR_FOR:
  case IR_IF: note_inner(f, d, block); return;
  case IR_CURRENT_STREAM:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
  case IR_GROUP_START: return;
  }
}

/* once: 0: the block is repeated by itself. */
static void note_block(join_facts *f, const ir_block *block, uint32_t once) {
  uint32_t number = ++f->n_blocks;
  f->once[number] = once ? once : number;
  for (uint32_t i = 0; i < block->len; i++) note(f, block->data[i], number);
}

join_facts join_find_facts(ir_func *h, arena *scratch) {
  join_facts f = {.h = h, .scratch = scratch};
  f.root = ARENA_ARRAY(scratch, h->tensors.len, ir_tensor);
  f.turned = ARENA_ARRAY(scratch, h->tensors.len, bool);
  f.buffers = ARENA_ARRAY(scratch, h->tensors.len, join_buffer);
  f.number = ARENA_ARRAY(scratch, h->host->instrs.len + 1, uint32_t);
  f.in = ARENA_ARRAY(scratch, h->host->instrs.len + 1, uint32_t);
  f.once = ARENA_ARRAY(scratch, 2 * h->host->instrs.len + 2, uint32_t); /* each has two at most */
  f.names = ARENA_NEW(scratch, map);
  map_init(f.names, scratch);
  for (uint32_t i = 0; i < h->tensors.len; i++) f.root[i] = (ir_tensor){i};
  for (uint32_t i = 0; i < h->inputs.len; i++)
    map_put(f.names, ir_tensor_at(h, h->inputs.data[i])->name, 1);
  note_block(&f, &h->host->body, 0);
  for (uint32_t i = 0; i < h->outputs.len; i++) {
    share(&f, h->outputs.data[i]);
    buffer_of(&f, h->outputs.data[i])->output = true;
  }
  return f;
}

bool join_is_private(const join_facts *f, ir_tensor t) {
  const join_buffer *b = buffer_of(f, t);
  return b->allocate.id && !b->shared && b->writes == 1;
}
