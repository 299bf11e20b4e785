#include "join/join.h"

#include "join/internal.h"

const join_numbers *join_readers(const join_block *b, ir_tensor root) {
  static const join_numbers none;
  uint32_t list = map_get(&b->reader_list, root.id, 0);
  return list ? &b->lists.data[list - 1] : &none;
}

static void add_to_list(join_block *b, map *lists, ir_tensor root, uint32_t at) {
  uint32_t list = map_get(lists, root.id, 0);
  if (!list) {
    vec_push(b->facts->scratch, &b->lists, (join_numbers){0});
    list = b->lists.len;
    map_put(lists, root.id, list);
  }
  vec_push(b->facts->scratch, &b->lists.data[list - 1], at);
}

void join_add_reader(join_block *b, ir_tensor root, uint32_t at) {
  add_to_list(b, &b->reader_list, root, at);
}

void join_add_touch(join_block *b, ir_tensor root, uint32_t at) {
  add_to_list(b, &b->touch_list, root, at);
}

/* Nothing moves past these. */
static bool is_barrier(ir_instr_kind kind) {
  switch (kind) {
  case IR_CURRENT_STREAM:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
  case IR_FOR:
  case IR_IF:
  case IR_COMMUNICATE:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_WAIT: return true;
  case IR_ALLOCATE:
  case IR_DEALLOCATE:
  case IR_SELECT:
  case IR_SHARD:
  case IR_VIEW:
  case IR_COMPUTE:
  case IR_LAUNCH: return false;
  }
  return true;
}

static void note_readers(join_block *b, uint32_t at) {
  const ir_instr_data *d = join_instr(b, at);
  if (d->kind != IR_COMPUTE && d->kind != IR_VIEW && d->kind != IR_LAUNCH) return;
  const ir_op_data *op = ir_op_at(b->facts->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_tensor t = op->operands[k];
    if (!t.id || !join_is_private(b->facts, t)) continue;
    join_add_reader(b, b->facts->root[t.id], at);
  }
}

static void note_touches(join_block *b, uint32_t at) {
  const ir_instr_data *d = join_instr(b, at);
  if (d->kind != IR_COMPUTE && d->kind != IR_LAUNCH) return;
  const ir_op_data *op = ir_op_at(b->facts->h, d->op);
  if (join_writes_nothing(b->facts->h, op)) return;
  for (uint32_t k = 0; k < op->n_operands; k++)
    if (op->operands[k].id) join_add_touch(b, b->facts->root[op->operands[k].id], at);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    join_add_touch(b, b->facts->root[ir_op_result(op, k).id], at);
}

static join_block new_block(const join_facts *f, const ir_block *block, bool *careful_at) {
  join_block b = {.facts = f, .block = block, .careful_at = careful_at};
  b.nodes = ARENA_ARRAY(f->scratch, block->len, join_node);
  b.groups = ARENA_ARRAY(f->scratch, block->len, join_group);
  b.node_at = ARENA_ARRAY(f->scratch, block->len, uint32_t);
  b.run_at = ARENA_ARRAY(f->scratch, block->len, uint32_t);
  map_init(&b.writer, f->scratch);
  map_init(&b.sibling, f->scratch);
  map_init(&b.reader_list, f->scratch);
  map_init(&b.touch_list, f->scratch);
  uint32_t run = 0;
  for (uint32_t at = 0; at < block->len; at++) {
    run += is_barrier(join_instr(&b, at)->kind);
    b.run_at[at] = run;
    note_readers(&b, at);
    note_touches(&b, at);
  }
  return b;
}

/* Groups that need too much memory are found again, with more care. */
static ir_block join_block_of(const join_facts *f, const ir_block *block, bool *changed) {
  enum { MOST_ROUNDS = 8 };
  bool *careful_at = ARENA_ARRAY(f->scratch, block->len, bool);
  join_block b = new_block(f, block, careful_at);
  join_find_groups(&b);
  for (uint32_t round = 1; round < MOST_ROUNDS && join_find_excess(&b); round++) {
    for (uint32_t at = 0; round + 1 == MOST_ROUNDS && at < block->len; at++) careful_at[at] = true;
    b = new_block(f, block, careful_at);
    join_find_groups(&b);
  }
  return join_rewrite(&b, changed);
}

/* Inner blocks first; a copy of the instruction, since adding others moves their table. */
static ir_block join_all(const join_facts *f, ir_block block, bool *changed) {
  for (uint32_t i = 0; i < block.len; i++) {
    ir_instr at = block.data[i];
    const ir_instr_data d = *ir_instr_at(f->h, at);
    if (d.kind != IR_FOR && d.kind != IR_IF) continue;
    ir_block body = join_all(f, d.body, changed), other = join_all(f, d.otherwise, changed);
    ir_instr_at(f->h, at)->body = body;
    ir_instr_at(f->h, at)->otherwise = other;
  }
  return block.len ? join_block_of(f, &block, changed) : block;
}

void join_kernels(ir_func *h, arena *scratch, bool *changed) {
  join_facts facts = join_find_facts(h, scratch);
  *changed = false;
  h->host->body = join_all(&facts, h->host->body, changed);
  if (*changed) join_remove_dead(h, scratch);
}
