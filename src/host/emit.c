/* Writes the host program: loops, slices, operations, and the management of streams. */
#include "host/emit.h"

#include <string.h>

#include "ir/build.h"

ir_scalars *emit_scalars(emitter *e) { return &e->h->module->scalars; }

/* ---- blocks ---- */

static ir_block *block_at(emitter *e, uint32_t depth) {
  return depth == 0 ? &e->h->host->body : &ir_instr_at(e->h, e->loops[depth - 1].loop)->body;
}

void emit_instr(emitter *e, const ir_instr_data *data) {
  ir_instr i = ir_host_instr(e->h, data);
  ir_block_add(e->h, e->sink ? e->sink : block_at(e, e->depth), i);
}

ir_rule emit_because(emitter *e, ir_rule rule) {
  ir_rule before = e->h->host->why;
  e->h->host->why = rule;
  return before;
}

void emit_fallback(emitter *e, ir_rule used, ir_rule why) {
  ir_fallback f = {e->h->host->source, used, why};
  vec_push(&e->h->module->memory, &e->h->host->fallbacks, f);
}

ir_block *emit_begin(emitter *e, ir_block *block) {
  ir_block *before = e->sink;
  e->sink = block;
  return before;
}

void emit_end(emitter *e, ir_block *before) { e->sink = before; }

void emit_allocation(emitter *e, ir_tensor t, loc at) {
  emit_instr(e, &(ir_instr_data){.kind = IR_ALLOCATE, .tensor = t, .at = at});
}

void emit_simple(emitter *e, ir_opcode code, const ir_tensor *operands, uint32_t n, ir_tensor to,
                 loc at) {
  ir_instr_data d = {.kind = IR_COMPUTE, .at = at, .tensor = to};
  d.op = ir_host_op(e->h, code, operands, n, NULL, to, at);
  emit_instr(e, &d);
}

void emit_allocation_because(emitter *e, ir_tensor t, ir_rule rule, loc at) {
  ir_rule before = emit_because(e, rule);
  emit_allocation(e, t, at);
  (void)emit_because(e, before);
}

void emit_copy_because(emitter *e, ir_tensor from, ir_tensor to, ir_mesh where, ir_rule rule,
                       loc at) {
  ir_rule before = emit_because(e, rule);
  host_guard g;
  emit_guard(e, where, &g);
  emit_simple(e, IR_OP_SET, &from, 1, to, at);
  emit_unguard(e, &g, at);
  (void)emit_because(e, before);
}

void emit_before_loop(emitter *e, uint32_t level, const ir_instr_data *data) {
  ir_instr i = ir_host_instr(e->h, data);
  ir_block *block = block_at(e, level);
  ir_block_add(e->h, block, i);
  uint32_t at = e->loops[level].anchor++;
  memmove(block->data + at + 1, block->data + at, (block->len - 1 - at) * sizeof *block->data);
  block->data[at] = i;
}

/* ---- loops ---- */

/* i, j, k, …; a name that the fusion uses is avoided by repeating the letter. */
static uint32_t variable_name(emitter *e, uint32_t depth) {
  strings *names = &e->h->module->names;
  char letters[64] = {0};
  for (size_t n = 0; n + 1 < sizeof letters; n++) {
    letters[n] = (char)('i' + depth);
    uint32_t name = strings_intern(names, letters, n + 1);
    bool taken = ir_func_lookup(e->f, name).kind != IR_NAME_NONE;
    if (!taken) return name;
  }
  return emit_fresh_name(e, "i", true);
}

ir_scalar emit_new_variable(emitter *e, uint32_t nested) {
  ir_symbol_data symbol = {.kind = IR_SYMBOL_INDEX, .name = variable_name(e, e->depth + nested)};
  return ir_scalar_symbol(emit_scalars(e), symbol);
}

static ir_instr_data new_loop(ir_scalar variable, ir_scalar extent) {
  return (ir_instr_data){.kind = IR_FOR, .variable = variable, .extent = extent};
}

/* main, or main_, …: a name that the fusion does not use. */
static uint32_t stream_name(emitter *e) {
  strings *names = &e->h->module->names;
  char text[64] = "main";
  size_t n = strlen(text);
  uint32_t name = strings_intern(names, text, n);
  while (ir_func_lookup(e->f, name).kind != IR_NAME_NONE && n + 1 < sizeof text) {
    text[n++] = '_';
    name = strings_intern(names, text, n);
  }
  return name;
}

/* The streams of a nest begin here. */
static void begin_streams(emitter *e) {
  ir_instr_data main = {.kind = IR_CURRENT_STREAM, .why = IR_RULE_STREAMS};
  main.stream.name = stream_name(e);
  emit_instr(e, &main);
}

ir_scalar emit_slice_index(emitter *e, uint32_t number, const stream_axis *a, ir_mesh mesh,
                           ir_scalar i) {
  const shard_comm *turned = e->l->loop_turns[number];
  if (!a->swizzled && !turned) return i;
  if (turned) mesh = turned->from;
  uint32_t axis = turned ? (uint32_t)turned->mesh_axis : a->swizzle_axis;
  ir_scalars *s = emit_scalars(e);
  ir_scalar n = a->count; /* pieces of devices are as many as those */
  /* mutant: swizzle_by_devices */
  if (turned) n = ir_scalar_const(s, ir_mesh_size(ir_mesh_at(e->h, mesh), axis));
  return ir_scalar_mod(s, ir_scalar_add(s, emit_me(e, mesh, axis), i), n);
}

/* How often the loop of level q runs. */
static ir_scalar iterations(emitter *e, const op_plan *plan, uint32_t q) {
  const own_first *own = &e->l->own[plan->loop[0]];
  ir_scalar n = plan->axes.data[q].count, one = ir_scalar_const(emit_scalars(e), 1);
  /* mutant: own_piece_twice */
  return own->on && own->level == q ? ir_scalar_sub(emit_scalars(e), n, one) : n;
}

/* Emits what comes before the loops of a nest: where its streams begin, and the work on the own piece. */
static void begin_nest(emitter *e, const op_plan *plan, uint32_t *anchor) {
  const own_first *own = &e->l->own[plan->loop[0]];
  begin_streams(e);
  if (own->on) emit_own_first(e, own, anchor);
}

/* Iterations take turns on the streams: those of the outermost loop; of the two outermost, if they were
 * found to be independent. */
static bool takes_turns(const emitter *e, const op_plan *plan, uint32_t level) {
  const own_first *own = &e->l->own[plan->loop[0]];
  /* mutant: own_piece_streams */
  return level == 0 || (level == 1 && own->on && own->pairs);
}

static void open_loop_of(emitter *e, const op_plan *plan, ir_mesh mesh) {
  uint32_t level = e->depth, number = plan->loop[level];
  uint32_t anchor = block_at(e, level)->len;
  const own_first *own = &e->l->own[plan->loop[0]];
  bool continues = level == 0 && host_continues(e->l, number, e->loops[0].number);
  if (continues) anchor = e->loops[0].anchor;
  else if (level == 0) begin_nest(e, plan, &anchor);
  ir_scalar i = emit_new_variable(e, 0), turn = i, n = iterations(e, plan, level);
  /* Equal extents may be written differently, 3 and x.0: all phases have the streams of one of them. */
  ir_instr_data data = new_loop(i, continues ? ir_instr_at(e->h, e->loops[0].loop)->extent : n);
  data.why = IR_RULE_LOOP;
  data.streamed = takes_turns(e, plan, level);
  ir_instr loop = ir_host_instr(e->h, &data);
  ir_block_add(e->h, block_at(e, level), loop);
  /* mutant: own_piece_turn */
  if (own->on && own->level == level)
    turn = ir_scalar_add(emit_scalars(e), i, ir_scalar_const(emit_scalars(e), 1));
  ir_scalar index = emit_slice_index(e, number, &plan->axes.data[level], mesh, turn);
  e->loops[e->depth++] = (open_loop){number, loop, i, turn, index, anchor};
}

/* Slices are visible in the block they were taken in. */
static void forget_slices(emitter *e) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < e->slices.len; i++) {
    /* mutant: slice_outlives_loop */
    if (e->slices.data[i].depth <= e->depth) e->slices.data[kept++] = e->slices.data[i];
  }
  e->slices.len = kept;
}

static void close_to(emitter *e, uint32_t depth) {
  ir_op current = e->h->host->source;
  while (e->depth > depth) {
    e->depth--;
    forget_slices(e);
    emit_finishes(e, e->depth);
  }
  e->h->host->source = current;
}

static void enter(emitter *e, const op_plan *plan, ir_mesh mesh) {
  uint32_t same = 0;
  while (same < e->depth && same < plan->axes.len && e->loops[same].number == plan->loop[same])
    same++;
  close_to(e, same);
  for (uint32_t q = same; q < plan->axes.len; q++) open_loop_of(e, plan, mesh);
}

/* ---- slices ---- */

ir_tensor emit_cut(emitter *e, ir_tensor from, uint32_t dim, const stream_axis *s, bool drops,
                   ir_scalar index, loc at) {
  ir_instr_data d = {.kind = drops ? IR_SELECT : IR_SHARD, .from = from, .dim = dim, .at = at};
  d.index = index;
  d.partition = s->partition;
  if (e->h->host->why == IR_RULE_NONE) d.why = IR_RULE_SLICE;
  d.tensor = emit_slice_tensor(e, from, dim, s, drops, index);
  emit_instr(e, &d);
  return d.tensor;
}

ir_tensor emit_slice(emitter *e, ir_tensor from, uint32_t dim, uint32_t level, const stream_axis *s,
                     bool drops) {
  for (uint32_t i = 0; i < e->slices.len; i++) {
    const taken_slice *t = &e->slices.data[i];
    /* mutant: slice_taken_once */
    if (IR_SAME(t->from, from) && t->dim == dim && t->level == level) return t->slice;
  }
  ir_tensor slice = emit_cut(e, from, dim, s, drops, e->loops[level].index, (loc){0});
  taken_slice taken = {from, slice, dim, level, e->depth};
  vec_push(&e->l->scratch, &e->slices, taken);
  return slice;
}

/* The position of a dimension once those in `dropped` are gone. */
uint32_t emit_renumber(uint32_t dim, uint32_t dropped) {
  /* mutant: slice_dims_not_renumbered */
  return dim - (uint32_t)__builtin_popcount(dropped & ((1u << dim) - 1));
}

/* ---- operations ---- */

static void mark_sliced(step *s, uint32_t k, uint32_t q) {
  const stream_axis *a = &s->plan->axes.data[q];
  if (a->reduction || (s->result_dropped >> a->dim & 1)) return;
  /* mutant: offset_operands_whole */
  s->sliced[k] |= 1u << emit_renumber(a->dim, s->result_dropped);
}

/* How many levels of the nest operand k is already cut for, because it lives inside them. */
static uint32_t levels_cut(const emitter *e, const step *s, uint32_t k) {
  ir_op producer = e->l->producer[s->op->operands[k].id];
  return producer.id ? e->l->ops[producer.id].inside : 0;
}

/* The stream on operand k. If the step gathers slices, a device has a part of each slice of the operand. If
 * it scatters them, the device has the slices whole, except for a bias, which is added afterwards. */
static stream_axis slices_of_part(emitter *e, const step *s, stream_axis a, uint32_t k,
                                  uint32_t dim) {
  const ir_cut *cuts;
  ir_tensor t = s->op->operands[0];
  const shard_comm *m = s->plan->comm;
  /* mutant: scattered_bias_whole */
  if (a.scattered && !(k == 2 && ir_op_has_bias(s->op))) a.partition = a.slice;
  if (!s->plan->gathered || m->before.axes[m->mesh_axis].dim != dim) return a;
  check(host_cuts(e->l, t, dim, 0, &cuts) == 1);
  ir_scalar period = cuts[0].partition.period, one = ir_scalar_const(emit_scalars(e), 1);
  ir_cut within = cuts[0];
  within.partition = ir_partition_of_period(&cuts[0].partition);
  ir_scalar part = ir_host_part(e->h, ir_tensor_at(e->f, t)->mesh, &within, period);
  a.partition = (ir_partition){.kind = IR_CHUNK, .size = ir_scalar_max(emit_scalars(e), part, one)};
  return a;
}

ir_tensor emit_operand(emitter *e, step *s, uint32_t k) {
  ir_tensor t = s->op->operands[k];
  if (t.id == 0) return t;
  if (e->buffer[t.id].id == 0) emit_set_buffer(e, t, emit_clone(e, t, NULL, 0));
  ir_tensor at = e->buffer[t.id];
  uint32_t dropped = 0, cut = levels_cut(e, s, k);
  for (uint32_t q = 0; q < s->plan->axes.len; q++) {
    const stream_axis *a = &s->plan->axes.data[q];
    uint32_t dim;
    bool stretched, drops = host_drops(e->l, s->plan, q);
    if (s->whole >> q & 1) continue;
    if (!host_operand_dim(e->l, s->op, k, a, &dim, &stretched)) continue;
    mark_sliced(s, k, q);
    bool nothing_to_cut = q < cut || (stretched && !drops);
    stream_axis mine = slices_of_part(e, s, *a, k, dim);
    if (!nothing_to_cut) at = emit_slice(e, at, emit_renumber(dim, dropped), q, &mine, drops);
    if (drops) dropped |= 1u << dim;
  }
  return at;
}

static void emit_buffer(emitter *e, step *s, ir_tensor t) {
  uint32_t inside = s->plan->inside;
  if (e->buffer[t.id].id) return; /* with the own piece, before the loops */
  ir_instr_data d = {.kind = IR_ALLOCATE, .at = s->op->at, .why = s->plan->buffer};
  uint32_t without = s->plan->unreduced ? s->plan->partial : 0;
  d.tensor = emit_clone_without(e, t, s->plan, inside, without);
  emit_set_buffer(e, t, d.tensor);
  if (inside < e->depth) emit_before_loop(e, inside, &d);
  else emit_instr(e, &d);
  if (emit_has_reduction(s->plan)) emit_accumulator(e, s, d.tensor);
}

void emit_result_buffer(emitter *e, step *s) {
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++) emit_buffer(e, s, ir_op_result(s->op, k));
}

ir_tensor emit_destination(emitter *e, const op_plan *plan, uint32_t levels, ir_tensor buffer) {
  ir_tensor at = buffer;
  uint32_t dropped = 0;
  for (uint32_t q = 0; q < levels; q++) {
    stream_axis a = plan->axes.data[q];
    bool drops = host_drops(e->l, plan, q);
    if (a.reduction) continue;
    if (a.scattered && plan->unreduced) a.partition = a.slice;
    /* mutant: destination_not_sliced */
    if (q >= plan->inside) at = emit_slice(e, at, emit_renumber(a.dim, dropped), q, &a, drops);
    if (drops) dropped |= 1u << a.dim;
  }
  return at;
}

/* Slices of the own piece are taken where there is one, also of an operand that other devices have. */
static bool slices_members_only(const emitter *e, const step *s) {
  bool apart = false;
  for (uint32_t k = 0; e->own && k < s->op->n_operands; k++) {
    ir_tensor t = s->op->operands[k];
    ir_mesh mesh = t.id ? ir_tensor_at(e->f, t)->mesh : (ir_mesh){0};
    apart = apart || (mesh.id && !shard_same_devices(e->f, mesh, e->own->comm->from));
  }
  return apart;
}

/* Into the slice `to` of the result; none: into what the loops add up in. */
static void emit_result(emitter *e, step *s, ir_tensor to) {
  if (!to.id) {
    emit_partial(e, s);
    return;
  }
  ir_instr_data d = emit_compute(e, s, to);
  if (s->op->n_more) ir_host_op_more(e->h, d.op, s->more, s->op->n_more);
  if (s->plan->unreduced) d.why = s->plan->carried ? IR_RULE_LINEAR : IR_RULE_ADDEND;
  emit_instr(e, &d);
}

static void emit_computation(emitter *e, step *s) {
  ir_mesh mesh = ir_tensor_at(e->f, s->op->result)->mesh;
  host_guard g;
  bool early = slices_members_only(e, s);
  bool reduces = s->plan->partial && !s->plan->unreduced;
  if (early) {
    emit_result_buffer(e, s);
    emit_guard(e, mesh, &g);
  }
  for (uint32_t k = 0; k < s->op->n_operands; k++) s->operands[k] = emit_operand(e, s, k);
  if (reduces) {
    emit_partial_results(e, s);
  } else {
    emit_result_buffer(e, s);
    ir_tensor to = {0};
    if (!emit_has_reduction(s->plan))
      to = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->result.id]);
    for (uint32_t k = 0; k < s->op->n_more; k++)
      s->more[k] = emit_destination(e, s->plan, s->plan->axes.len, e->buffer[s->op->more[k].id]);
    if (!early) emit_guard(e, mesh, &g);
    emit_result(e, s, to);
  }
  if (early || !reduces) emit_unguard(e, &g, s->op->at);
}

void emit_step(emitter *e, ir_op o) {
  step s = {.op = ir_op_at(e->f, o), .plan = &e->l->ops[o.id]};
  s.sliced = ARENA_ARRAY(&e->h->module->memory, s.op->n_operands + 1, uint32_t);
  s.result_dropped = host_dropped_result(e->l, s.plan);
  check(s.op->n_operands <= 64);
  switch (s.plan->kind) {
  case STEP_COMPUTES: emit_computation(e, &s); return;
  case STEP_SLICES: emit_slicing(e, &s); return;
  case STEP_MOVES: emit_move(e, &s); return;
  case STEP_EXCHANGES: emit_exchanged_piece(e, &s); return;
  case STEP_REDUCES: emit_reduced_piece(e, &s); return;
  }
}

static void emit_op(emitter *e, ir_op o) {
  e->h->host->source = o;
  enter(e, &e->l->ops[o.id], ir_tensor_at(e->f, ir_op_at(e->f, o)->result)->mesh);
  emit_step(e, o);
}

/* The extents keep their names, so no tensor or loop index may take one. */
static void declare_extents(ir_func *f, ir_func *h) {
  const ir_scalars *s = &f->module->scalars;
  uint32_t streams = s->symbols.data[ir_scalar_node_of(s, h->host->streams)->value].name;
  ir_func_declare(h, streams, (ir_name_entry){IR_NAME_EXTENT, h->host->streams.id});
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_axis dims[IR_MAX_RANK];
    uint32_t rank = ir_tensor_dims(f, f->inputs.data[i], dims);
    for (uint32_t k = 0; k < rank; k++) {
      ir_scalar x = ir_axis_size(f, dims[k]);
      const ir_scalar_node *n = ir_scalar_node_of(s, x);
      if (n->kind != IR_SCALAR_SYMBOL || s->symbols.data[n->value].name == 0) continue;
      ir_func_declare(h, s->symbols.data[n->value].name, (ir_name_entry){IR_NAME_EXTENT, x.id});
    }
  }
}

void host_emit(lowering *l) {
  emitter e = {.l = l, .f = l->f, .h = l->h};
  ir_func *f = l->f, *h = l->h;
  h->meshes.data =
      arena_copy(&h->module->memory, f->meshes.data, f->meshes.len * sizeof *f->meshes.data);
  h->meshes.len = h->meshes.cap = f->meshes.len;
  for (uint32_t i = 1; i < h->meshes.len; i++)
    ir_func_declare(h, h->meshes.data[i].name, (ir_name_entry){IR_NAME_MESH, i});
  declare_extents(f, h);
  e.buffer = ARENA_ARRAY(&l->scratch, f->tensors.len, ir_tensor);
  map_init(&e.numbers, &l->scratch);
  e.is_output = ARENA_ARRAY(&l->scratch, f->tensors.len, bool);
  for (uint32_t i = 0; i < f->outputs.len; i++) e.is_output[f->outputs.data[i].id] = true;
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_tensor t = emit_clone(&e, f->inputs.data[i], NULL, 0);
    emit_set_buffer(&e, f->inputs.data[i], t);
    vec_push(&h->module->memory, &h->inputs, t);
  }
  for (uint32_t i = 0; i < f->order.len; i++) emit_op(&e, f->order.data[i]);
  close_to(&e, 0);
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    vec_push(&h->module->memory, &h->outputs, e.buffer[f->outputs.data[i].id]);
  }
}
