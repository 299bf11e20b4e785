/* Puts a deallocate after the last use of every buffer. */
#include "host/host.h"

/* A buffer that a communication uses until it is waited for. */
typedef struct comm_use {
  uint32_t name; /* of the communication or group; 0: of the group that is open */
  ir_tensor tensor;
} comm_use;

typedef struct freeing {
  ir_func *h;
  arena *memory;
  uint32_t *root; /* ir_host_roots() */
  uint32_t *last; /* by tensor id: where in the current block it is used last */
  uint32_t *next; /* by tensor id: the buffer freed after it */
  ir_op *source;  /* by tensor id: the operation it was allocated for */
  bool *kept;     /* by tensor id: it is an output, or freed already */
  uint32_t n;     /* deallocations inserted */
  VEC(comm_use) comms;
} freeing;

static void note_comm(freeing *z, const ir_instr_data *d) {
  if (d->kind == IR_COMMUNICATE) {
    vec_push(z->memory, &z->comms, ((comm_use){d->name, d->tensor}));
    vec_push(z->memory, &z->comms, ((comm_use){d->name, d->from}));
  }
  for (uint32_t i = z->comms.len; d->kind == IR_GROUP_END && i-- > 0;) {
    if (z->comms.data[i].name == 0) z->comms.data[i].name = d->name;
  }
}

static void note_buffer(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  freeing *z = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  note_comm(z, d);
  if (d->kind == IR_DEALLOCATE) z->kept[d->tensor.id] = true;
  if (d->kind == IR_ALLOCATE) z->source[d->tensor.id] = d->source;
}

static void note_block(freeing *z, const ir_block *block, uint32_t at);

static void note_uses(freeing *z, ir_instr i, uint32_t at) {
  const ir_instr_data *d = ir_instr_at(z->h, i);
  z->last[z->root[d->tensor.id]] = at;
  z->last[z->root[d->from.id]] = at;
  /* mutant: free_ignores_reads */
  if (d->kind == IR_COMPUTE || d->kind == IR_VIEW || d->kind == IR_LAUNCH) {
    const ir_op_data *op = ir_op_at(z->h, d->op);
    for (uint32_t k = 0; k < op->n_operands; k++) z->last[z->root[op->operands[k].id]] = at;
    for (uint32_t k = 0; k < op->n_more; k++) z->last[z->root[op->more[k].id]] = at;
  }
  for (uint32_t k = 0; d->kind == IR_WAIT && k < z->comms.len; k++) {
    if (z->comms.data[k].name == d->name) z->last[z->root[z->comms.data[k].tensor.id]] = at;
  }
  note_block(z, &d->body, at);
  note_block(z, &d->otherwise, at);
}

static void note_block(freeing *z, const ir_block *block, uint32_t at) {
  for (uint32_t i = 0; i < block->len; i++) note_uses(z, block->data[i], at);
}

/* Does the loop set the stream of each iteration, or is it directly around one that does? */
static bool is_work_loop(const freeing *z, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(z->h, i);
  return d->kind == IR_FOR && d->body.len > 1 &&
         ir_instr_at(z->h, d->body.data[0])->kind == IR_SET_STREAM;
}

/* After the work loops of a nest come the instructions that join its streams; memory is free only
 * after them. */
static uint32_t past_join(const freeing *z, const ir_block *block, uint32_t i) {
  uint32_t used = i;
  if (ir_instr_at(z->h, block->data[i])->kind != IR_FOR) return used;
  while (i + 1 < block->len && is_work_loop(z, block->data[i + 1])) i++;
  if (i + 2 >= block->len) return used;
  const ir_instr_data *set = ir_instr_at(z->h, block->data[i + 1]);
  const ir_instr_data *join = ir_instr_at(z->h, block->data[i + 2]);
  bool joins = set->kind == IR_SET_STREAM && join->kind == IR_FOR && join->body.len == 1 &&
               ir_instr_at(z->h, join->body.data[0])->kind == IR_WAIT_STREAM;
  /* mutant: free_before_join */
  return joins ? i + 2 : used;
}

/* Per instruction the first of the buffers to free after it; the others follow by z->next. */
static uint32_t *find_frees(freeing *z, const ir_block *block) {
  uint32_t *first = ARENA_ARRAY(z->memory, block->len, uint32_t);
  for (uint32_t i = block->len; i-- > 0;) { /* backward, so that chains run in program order */
    const ir_instr_data *d = ir_instr_at(z->h, block->data[i]);
    /* mutant: free_never */
    if (d->kind != IR_ALLOCATE || z->kept[d->tensor.id]) continue;
    uint32_t at = past_join(z, block, z->last[d->tensor.id]);
    z->next[d->tensor.id] = first[at];
    first[at] = d->tensor.id;
  }
  return first;
}

static void free_block(freeing *z, ir_block *block) {
  if (block->len == 0) return;
  for (uint32_t i = 0; i < block->len; i++) {
    ir_instr at = block->data[i];
    ir_instr_data d = *ir_instr_at(z->h, at); /* a copy: adding instructions moves their table */
    free_block(z, &d.body);
    free_block(z, &d.otherwise);
    ir_instr_at(z->h, at)->body = d.body;
    ir_instr_at(z->h, at)->otherwise = d.otherwise;
  }
  for (uint32_t i = 0; i < block->len; i++) note_uses(z, block->data[i], i);
  const uint32_t *first = find_frees(z, block);
  ir_block with_frees = {0};
  for (uint32_t i = 0; i < block->len; i++) {
    ir_block_add(z->h, &with_frees, block->data[i]);
    for (uint32_t t = first[i]; t; t = z->next[t]) {
      ir_instr_data d = {.kind = IR_DEALLOCATE, .tensor = {t}, .source = z->source[t]};
      ir_block_add(z->h, &with_frees, ir_host_instr(z->h, &d));
      z->n++;
    }
  }
  *block = with_frees;
}

uint32_t host_free_buffers(ir_func *h) {
  arena *memory = &h->module->memory;
  freeing z = {.h = h, .memory = memory};
  z.root = ir_host_roots(h, memory);
  z.last = ARENA_ARRAY(memory, h->tensors.len, uint32_t);
  z.next = ARENA_ARRAY(memory, h->tensors.len, uint32_t);
  z.source = ARENA_ARRAY(memory, h->tensors.len, ir_op);
  z.kept = ARENA_ARRAY(memory, h->tensors.len, bool);
  /* mutant: free_outputs */
  for (uint32_t i = 0; i < h->outputs.len; i++) z.kept[h->outputs.data[i].id] = true;
  ir_host_walk(h, note_buffer, &z);
  free_block(&z, &h->host->body);
  return z.n;
}
