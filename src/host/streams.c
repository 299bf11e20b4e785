/* Iterations of `stream` loops take turns on the worker streams.
 *
 *   main = current_stream()           main = current_stream()
 *   for i in n stream {         =>    for i in min(n, streams) {
 *     y$1 <- exp(x$1)                   set_stream(i)
 *   }                                   wait_stream(main)
 *                                     }
 *                                     for i in n {
 *                                       set_stream(i % streams)
 *                                       y$1 <- exp(x$1)
 *                                     }
 *                                     set_stream(main)
 *                                     for i in min(n, streams) { wait_stream(i) }
 *
 * All first waits come before the work, so that no worker waits for work of another one. What is
 * between current_stream() and the loop stays on the calling stream, beside the workers. Iterations
 * that add to the same memory do so in order: before an addition the stream waits for that of the
 * iteration before. Stream loops that follow each other are phases of one nest (phases.c): their
 * iterations are on the same streams, which are joined after the last loop. */
#include <string.h>

#include "host/host.h"
#include "ir/build.h"

typedef struct distribution {
  ir_func *h;
  ir_stream main;   /* the calling stream */
  ir_scalar turns;  /* iterations that take turns, of the longest loop before a join */
  uint32_t *varies; /* by tensor id: number of the last loop whose iterations have one each */
  uint32_t n;       /* loops so far */
} distribution;

static ir_scalars *scalars(const distribution *x) { return &x->h->module->scalars; }

static void add(distribution *x, ir_block *block, const ir_instr_data *like, ir_instr_data d) {
  /* mutant: why_streams_unsaid */
  d.source = like->source;
  if (d.why == IR_RULE_NONE) d.why = like->why;
  ir_block_add(x->h, block, ir_host_instr(x->h, &d));
}

static void put_first(distribution *x, ir_block *block, const ir_instr_data *like,
                      ir_instr_data d) {
  add(x, block, like, d);
  ir_instr last = block->data[block->len - 1];
  memmove(block->data + 1, block->data, (block->len - 1) * sizeof *block->data);
  block->data[0] = last;
}

/* ---- around the loop ---- */
/* for i in min(turns, streams) { body }: once per stream that the loop uses. */
static void add_per_stream(distribution *x, ir_block *block, const ir_instr_data *loop, ir_rule why,
                           const ir_instr_data *body, uint32_t n) {
  const ir_symbol_data *named =
      &scalars(x)->symbols.data[ir_scalar_node_of(scalars(x), loop->variable)->value];
  ir_symbol_data symbol = {.kind = IR_SYMBOL_INDEX, .name = named->name};
  ir_instr_data d = {.kind = IR_FOR, .why = why};
  d.variable = ir_scalar_symbol(scalars(x), symbol);
  d.extent = ir_scalar_min(scalars(x), x->turns, x->h->host->streams);
  for (uint32_t k = 0; k < n; k++) {
    ir_instr_data each = body[k];
    each.why = why;
    if (!each.stream.name) each.stream.index = d.variable;
    add(x, &d.body, loop, each);
  }
  add(x, block, loop, d);
}

/* Puts the first waits after the current_stream() at `at`. */
static void fork_streams(distribution *x, ir_block *block, uint32_t at, const ir_instr_data *loop) {
  ir_block beside = {0};
  x->main = ir_instr_at(x->h, block->data[at])->stream;
  for (uint32_t i = at + 1; i < block->len; i++) ir_block_add(x->h, &beside, block->data[i]);
  block->len = at + 1;
  const ir_instr_data body[] = {{.kind = IR_SET_STREAM},
                                {.kind = IR_WAIT_STREAM, .stream = x->main}};
  /* mutant: streams_no_first_wait */
  add_per_stream(x, block, loop, IR_RULE_STREAMS, body, 2);
  if (!beside.len) return;
  /* mutant: own_piece_stream */
  add(x, block, loop,
      (ir_instr_data){.kind = IR_SET_STREAM, .stream = x->main, .why = IR_RULE_STREAMS});
  for (uint32_t i = 0; i < beside.len; i++) ir_block_add(x->h, block, beside.data[i]);
}

static void join_streams(distribution *x, ir_block *block, const ir_instr_data *loop) {
  /* mutant: streams_no_way_back */
  add(x, block, loop,
      (ir_instr_data){.kind = IR_SET_STREAM, .stream = x->main, .why = IR_RULE_JOIN});
  /* mutant: streams_no_join */
  add_per_stream(x, block, loop, IR_RULE_JOIN, &(ir_instr_data){.kind = IR_WAIT_STREAM}, 1);
}

/* ---- inside the loop ---- */
static bool is_in_place(const distribution *x, const ir_instr_data *d) {
  if (d->kind != IR_COMPUTE || x->varies[d->tensor.id] == x->n) return false;
  const ir_op_data *op = ir_op_at(x->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (IR_SAME(op->operands[k], d->tensor)) return true;
  }
  return false;
}

static void note_memory(distribution *x, const ir_instr_data *d, ir_scalar i) {
  uint32_t symbol = (uint32_t)ir_scalar_node_of(scalars(x), i)->value;
  bool slices = d->kind == IR_SELECT || d->kind == IR_SHARD;
  bool varies = d->kind == IR_ALLOCATE;
  if (slices)
    varies = x->varies[d->from.id] == x->n || ir_scalar_mentions(scalars(x), d->index, symbol);
  if (d->kind == IR_VIEW) varies = x->varies[ir_op_at(x->h, d->op)->operands[0].id] == x->n;
  if (varies) x->varies[d->tensor.id] = x->n;
}

static void order_sums(distribution *x, ir_block *block, ir_scalar i) {
  ir_block with = {0};
  for (uint32_t k = 0; k < block->len; k++) {
    ir_instr at = block->data[k];
    ir_instr_data d = *ir_instr_at(x->h, at); /* a copy: adding instructions moves their table */
    note_memory(x, &d, i);
    if (d.kind == IR_FOR || d.kind == IR_IF) {
      order_sums(x, &d.body, i);
      order_sums(x, &d.otherwise, i);
      *ir_instr_at(x->h, at) = d;
    }
    /* mutant: reduction_unordered */
    if (is_in_place(x, &d)) {
      ir_scalar before = ir_scalar_sub(scalars(x), i, ir_scalar_const(scalars(x), 1));
      ir_instr_data wait = {.kind = IR_WAIT_STREAM};
      wait.stream.index = ir_scalar_mod(scalars(x), before, x->h->host->streams);
      add(x, &with, &d, wait);
    }
    ir_block_add(x->h, &with, at);
  }
  *block = with;
}

/* A stream loop directly inside another: iterations of both take turns together. */
static ir_instr inner_loop(const distribution *x, const ir_block *body) {
  for (uint32_t i = 0; i < body->len; i++) {
    const ir_instr_data *d = ir_instr_at(x->h, body->data[i]);
    if (d->kind == IR_FOR && d->streamed) return body->data[i];
  }
  return (ir_instr){0};
}

static ir_scalar turns_of(const distribution *x, ir_instr loop) {
  const ir_instr_data *outer = ir_instr_at(x->h, loop);
  ir_instr inner = inner_loop(x, &outer->body);
  if (!inner.id) return outer->extent;
  return ir_scalar_mul(scalars(x), outer->extent, ir_instr_at(x->h, inner)->extent);
}

static void set_streams(distribution *x, ir_instr loop) {
  ir_instr_data outer = *ir_instr_at(x->h, loop);
  ir_instr inner = inner_loop(x, &outer.body);
  ir_scalar i = outer.variable;
  ir_instr_data d = inner.id ? *ir_instr_at(x->h, inner) : outer;
  if (inner.id) {
    i = ir_scalar_add(scalars(x), ir_scalar_mul(scalars(x), i, d.extent), d.variable);
  } else {
    x->n++;
    order_sums(x, &d.body, i);
  }
  ir_instr_data turn = {.kind = IR_SET_STREAM, .why = IR_RULE_STREAMS};
  /* mutant: streams_no_modulo */
  turn.stream.index = ir_scalar_mod(scalars(x), i, x->h->host->streams);
  /* mutant: streams_wait_in_loop */
  put_first(x, &d.body, &d, turn);
  d.streamed = false;
  *ir_instr_at(x->h, inner.id ? inner : loop) = d;
  ir_instr_at(x->h, loop)->streamed = false;
}

/* ---- blocks ---- */
static bool is_stream_loop(const distribution *x, const ir_block *block, uint32_t k) {
  if (k >= block->len) return false;
  const ir_instr_data *d = ir_instr_at(x->h, block->data[k]);
  return d->kind == IR_FOR && d->streamed;
}

/* Of the stream loops from k on that follow each other. */
static ir_scalar most_turns(const distribution *x, const ir_block *block, uint32_t k) {
  ir_scalar most = turns_of(x, block->data[k]);
  while (is_stream_loop(x, block, ++k))
    most = ir_scalar_max(scalars(x), most, turns_of(x, block->data[k]));
  return most;
}

static uint32_t distribute_block(distribution *x, ir_block *block) {
  ir_block with = {0};
  uint32_t n = 0, from = UINT32_MAX; /* where the streams of the next loop begin */
  bool forked = false;               /* or: it goes on with those of the loop before */
  for (uint32_t k = 0; k < block->len; k++) {
    ir_instr at = block->data[k];
    ir_instr_data d = *ir_instr_at(x->h, at);
    if (d.kind == IR_CURRENT_STREAM) from = with.len;
    bool turns = d.kind == IR_FOR && d.streamed && (from < with.len || forked);
    if (turns) {
      if (!forked) x->turns = most_turns(x, block, k);
      set_streams(x, at);
      if (!forked) fork_streams(x, &with, from, &d);
    } else if (d.kind == IR_FOR || d.kind == IR_IF) {
      n += distribute_block(x, &d.body) + distribute_block(x, &d.otherwise);
      *ir_instr_at(x->h, at) = d;
    }
    ir_block_add(x->h, &with, at);
    forked = turns && is_stream_loop(x, block, k + 1);
    if (turns && !forked) join_streams(x, &with, &d);
    if (turns) from = UINT32_MAX;
    n += turns;
  }
  *block = with;
  return n;
}

uint32_t host_distribute_streams(ir_func *h) {
  distribution x = {.h = h};
  x.varies = ARENA_ARRAY(&h->module->memory, h->tensors.len, uint32_t);
  return distribute_block(&x, &h->host->body);
}
