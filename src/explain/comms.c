/* Communications: where they are posted, what they move and what that costs. */
#include "explain/internal.h"
#include "text/text.h"

/* ---- finding them ---- */
typedef struct walking {
  explaining *e;
  explain_comm now; /* what is around, and the members of an open group */
} walking;

static void note(walking *w, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(w->e->h, i);
  explain_comm c = w->now;
  c.instr = i;
  c.source = d->source;
  c.why = d->why;
  vec_push(w->e->s->scratch, &w->e->comms_for[d->source.id], w->e->comms.len);
  vec_push(w->e->s->scratch, &w->e->comms, c);
}

static void visit(walking *w, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(w->e->h, i);
  if (d->kind == IR_COMMUNICATE && d->name) note(w, i);
  if (d->kind == IR_COMMUNICATE && !d->name && w->now.n_parts < 4)
    w->now.parts[w->now.n_parts++] = i;
  if (d->kind == IR_GROUP_END) {
    note(w, i);
    w->now.n_parts = 0;
  }
}

static void walk(walking *w, const ir_block *block) {
  for (uint32_t k = 0; k < block->len; k++) {
    ir_instr i = block->data[k];
    const ir_instr_data *d = ir_instr_at(w->e->h, i);
    visit(w, i);
    if (w->now.depth == EXPLAIN_MAX_DEPTH || (!d->body.len && !d->otherwise.len)) continue;
    w->now.around[w->now.depth++] = (explain_around){i, false};
    walk(w, &d->body);
    w->now.around[w->now.depth - 1].otherwise = true;
    walk(w, &d->otherwise);
    w->now.depth--;
  }
}

void explain_find_comms(explaining *e) {
  walking w = {.e = e};
  e->comms_for = arena_alloc(e->s->scratch, e->f->ops.len * sizeof *e->comms_for);
  walk(&w, &e->h->host->body);
}

/* ---- bytes ---- */
/* The mesh axes along which instruction `i` reduces partial results of `op`: those along which members of
 * its team differ. */
static uint32_t reduced_axes(explaining *e, const ir_op_data *op, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(e->h, i);
  const ir_mesh_data *mesh = ir_mesh_at(e->f, ir_tensor_at(e->f, op->result)->mesh);
  const ir_mesh_data *team = ir_mesh_at(e->h, d->team);
  int64_t n = ir_mesh_size(team, d->team_axis);
  int64_t *members = ARENA_ARRAY(e->s->scratch, (size_t)n, int64_t);
  uint32_t mask = 0;
  ir_mesh_slice(team, 0, d->team_axis, members);
  int64_t first = ir_mesh_find(mesh, members[0]);
  for (int64_t j = 1; j < n; j++) {
    int64_t other = ir_mesh_find(mesh, members[j]);
    for (uint32_t k = 0; k < mesh->rank; k++)
      if (ir_mesh_coordinate(mesh, first, k) != ir_mesh_coordinate(mesh, other, k)) mask |= 1u << k;
  }
  return mask;
}

/* Of an allreduce along several axes that is done in steps: the devices among which it is
 * scattered, and gathered in the end; 1: it is not. */
static int64_t scattered_among(explaining *e, const explain_comm *c) {
  for (uint32_t i = 0; i < e->comms_for[c->source.id].len; i++) {
    const explain_comm *other = &e->comms.data[e->comms_for[c->source.id].data[i]];
    const ir_instr_data *d = ir_instr_at(e->h, other->instr);
    if (other->why == IR_RULE_REDUCE && d->comm == IR_COMM_ALLGATHER)
      return ir_mesh_size(ir_mesh_at(e->h, d->team), d->team_axis);
  }
  return 1;
}

/* Dimensions are not cut yet along the axes that are reduced later. */
static ir_scalar partial_bytes(explaining *e, const explain_comm *c) {
  const ir_op_data *op = ir_op_at(e->f, c->source);
  uint32_t axes = reduced_axes(e, op, c->instr), uncut = axes;
  for (uint32_t i = 0; i < e->comms_for[c->source.id].len; i++) {
    const explain_comm *later = &e->comms.data[e->comms_for[c->source.id].data[i]];
    /* mutant: why_bytes_all_cut */
    if (later->why == IR_RULE_REDUCE && later->instr.id > c->instr.id)
      uncut |= reduced_axes(e, op, later->instr);
  }
  ir_scalars *s = &e->f->module->scalars;
  ir_scalar all = shard_partial_bytes(e->shard, op, axes, uncut);
  int64_t n = scattered_among(e, c);
  ir_comm_kind kind = ir_instr_at(e->h, c->instr)->comm;
  bool cut = shard_is_cut(e->f, op->result, axes);
  if (n == 1 || cut) return all;
  return ir_scalar_ceildiv(s, all, ir_scalar_const(s, kind == IR_COMM_ALLREDUCE ? n : 2));
}

ir_scalar explain_bytes(explaining *e, const explain_comm *c) {
  const ir_instr_data *d = ir_instr_at(e->h, c->instr);
  const ir_op_data *op = ir_op_at(e->f, c->source);
  shard_comm m;
  if (!e->shard || !c->source.id) return (ir_scalar){0};
  if (c->why == IR_RULE_REDUCE) return partial_bytes(e, c);
  if (shard_comm_of(e->shard, op, &m) != SHARD_ONE) return (ir_scalar){0};
  bool gathers = d->kind == IR_COMMUNICATE && d->comm == IR_COMM_ALLGATHER;
  /* mutant: why_bytes_of_exchange */
  if (m.kind == SHARD_ALL_TO_ALL && gathers) m.kind = SHARD_ALLGATHER; /* all of it arrives, also */
  /* mutant: why_bytes_of_piece */
  m.sliced = false; /* where the device then takes its piece */
  return shard_comm_bytes(e->shard, op, &m);
}

void explain_put_bytes(explaining *e, ir_scalar bytes, strbuf *out) {
  int64_t value;
  bool is_number = ir_scalar_is_const(&e->h->module->scalars, bytes, NULL);
  ir_print_scalar(e->f, bytes, out);
  strbuf_puts(out, " bytes");
  if (!is_number && e->s->env && ir_env_eval(e->s->env, bytes, &value))
    strbuf_printf(out, " (%lld)", (long long)value);
}

/* ---- how often ---- */
static void put_branch(explaining *e, const ir_instr_data *d, bool otherwise) {
  static const char *const kept[] = {
      [IR_EQ] = " == ", [IR_NE] = " != ", [IR_LT] = " < ", [IR_LE] = " <= "};
  static const char *const turned[] = {
      [IR_EQ] = " != ", [IR_NE] = " == ", [IR_LT] = " >= ", [IR_LE] = " > "};
  strbuf_puts(e->out, "where ");
  ir_print_scalar(e->h, d->a, e->out);
  /* mutant: why_else_is_then */
  strbuf_puts(e->out, otherwise ? turned[d->relation] : kept[d->relation]);
  ir_print_scalar(e->h, d->b, e->out);
}

/* "for i in 3, where i != me(d.x)" */
static void put_around(explaining *e, const explain_comm *c) {
  if (c->depth == 0) strbuf_puts(e->out, "once");
  for (uint32_t i = 0; i < c->depth; i++) {
    const ir_instr_data *d = ir_instr_at(e->h, c->around[i].instr);
    if (i) strbuf_puts(e->out, ", ");
    if (d->kind == IR_FOR) text_print_instr(e->h, c->around[i].instr, e->out);
    else put_branch(e, d, c->around[i].otherwise);
  }
}

/* ---- alternatives ---- */
/* The same instruction, or parts of one branch that was taken apart (pass `order`). */
static bool is_same_choice(const explaining *e, ir_instr a, ir_instr b) {
  const ir_instr_data *x = ir_instr_at(e->h, a), *y = ir_instr_at(e->h, b);
  if (IR_SAME(a, b)) return true;
  return x->kind == IR_IF && y->kind == IR_IF && x->relation == y->relation &&
         IR_SAME(x->a, y->a) && IR_SAME(x->b, y->b);
}

/* Are they in different branches of one choice, so that only one of them ever runs? */
static bool are_alternatives(const explaining *e, const explain_comm *a, const explain_comm *b) {
  const ir_scalars *s = &e->h->module->scalars;
  for (uint32_t i = 0; i < a->depth && i < b->depth; i++) {
    if (!is_same_choice(e, a->around[i].instr, b->around[i].instr)) return false;
    if (a->around[i].otherwise == b->around[i].otherwise) continue;
    const ir_instr_data *d = ir_instr_at(e->h, a->around[i].instr);
    /* Iterations and devices may choose differently one by one. */
    return ir_scalar_of_extents(s, d->a) && ir_scalar_of_extents(s, d->b);
  }
  return false;
}

const explain_comm *explain_instead_of(const explaining *e, const explain_comm *c) {
  for (uint32_t i = 0; i < e->comms_for[c->source.id].len; i++) {
    const explain_comm *other = &e->comms.data[e->comms_for[c->source.id].data[i]];
    if (other == c) return NULL;
    if (are_alternatives(e, other, c)) return other;
  }
  return NULL;
}

/* How many communications of its step run where this one does. */
static uint32_t count_together(const explaining *e, const explain_comm *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < e->comms_for[c->source.id].len; i++) {
    const explain_comm *other = &e->comms.data[e->comms_for[c->source.id].data[i]];
    n += !are_alternatives(e, other, c);
  }
  return n;
}

static bool is_repeated(const explaining *e, const explain_comm *c) {
  for (uint32_t i = 0; i < c->depth; i++) {
    if (ir_instr_at(e->h, c->around[i].instr)->kind == IR_FOR) return true;
  }
  return false;
}

/* ---- about one ---- */
static void put_call(explaining *e, const explain_comm *c) {
  text_print_instr(e->h, c->instr, e->out);
  for (uint32_t i = 0; i < c->n_parts; i++) {
    strbuf_puts(e->out, i ? ", " : " of ");
    text_print_instr(e->h, c->parts[i], e->out);
  }
}

/* A tensor in few words: "x (d.x: dimension 0 in 2 ranges)". */
static void put_side(explaining *e, const char *label, ir_tensor t) {
  shard_placement p;
  bool any = false;
  shard_placement_of(e->f, t, &p);
  strbuf_printf(e->out, "  %s %s on %s", label, explain_name(e, t),
                p.mesh.id ? ir_name_text(e->f, ir_mesh_at(e->f, p.mesh)->name) : "no mesh");
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].kind == SHARD_REPLICATED) continue;
    strbuf_puts(e->out, any ? "; " : ", ");
    explain_mesh_axis(e, p.mesh, k);
    strbuf_puts(e->out, ": ");
    if (p.axes[k].kind == SHARD_PARTIAL) strbuf_puts(e->out, "partial results, reduced");
    else explain_cut(e, &p.axes[k], p.mesh, k);
    any = true;
  }
  strbuf_puts(e->out, any ? "\n" : ", replicated\n");
}

ir_tensor explain_moved(const explaining *e, ir_op o) {
  ir_tensor t = ir_op_at(e->f, o)->operands[0];
  for (;;) {
    ir_op def = ir_tensor_at(e->f, t)->def;
    uint32_t why = def.id ? ir_op_at(e->f, def)->why : 0;
    if (!why || ir_why_at(e->f, why)->rule != IR_RULE_STEP) return t;
    t = ir_op_at(e->f, def)->operands[0];
  }
}

static void put_bytes_line(explaining *e, const explain_comm *c) {
  ir_scalar bytes = explain_bytes(e, c);
  uint32_t n = count_together(e, c), all = e->comms_for[c->source.id].len;
  if (!bytes.id) return;
  strbuf_puts(e->out, "  costs ");
  explain_put_bytes(e, bytes, e->out);
  strbuf_puts(e->out, ", received by the busiest device");
  if (is_repeated(e, c)) strbuf_puts(e->out, " in all iterations");
  if (n > 1 && c->why != IR_RULE_REDUCE)
    strbuf_printf(e->out, ", by all %u communications of this step together", n);
  if (n < all) strbuf_puts(e->out, ", in whichever form the extents choose");
  strbuf_putc(e->out, '\n');
}

static bool is_partial(const explaining *e, ir_tensor t, uint32_t axis) {
  shard_placement p;
  shard_placement_of(e->f, t, &p);
  return axis < p.rank && p.axes[axis].reduced.id;
}

/* The operand whose partial results the operation was computed from: one that was to be reduced, if any. */
static ir_tensor part_of(const explaining *e, const ir_op_data *op, uint32_t axis) {
  for (uint32_t k = 1; k < op->n_operands; k++)
    if (ir_op_is_linear(op, k) && is_partial(e, op->operands[k], axis)) return op->operands[k];
  return op->n_operands ? op->operands[0] : (ir_tensor){0};
}

/* Why partial results: the reduction that is marked; of a step on them, that of its operand. */
static void put_partial_reasons(explaining *e, const ir_op_data *op, uint32_t axis) {
  for (;;) {
    shard_placement p;
    shard_placement_of(e->f, op->result, &p);
    if (axis < p.rank && p.axes[axis].reduced.id) {
      explain_chain(e, ir_axis_at(e->f, p.axes[axis].reduced)->why, 4);
      return;
    }
    ir_tensor part = part_of(e, op, axis);
    ir_op def = part.id ? ir_tensor_at(e->f, part)->def : (ir_op){0};
    if (!def.id || shard_is_cut(e->f, part, 1u << axis))
      return; /* a sum over a position per device */
    ir_rule rule = ir_op_adds(op) ? IR_RULE_ADDEND : IR_RULE_LINEAR;
    op = ir_op_at(e->f, def);
    strbuf_puts(e->out, "    ");
    explain_sentence(e, rule, ir_tensor_at(e->f, op->result)->name, e->out);
    strbuf_putc(e->out, '\n');
  }
}

/* A form that was preferred, and why it is not this one. */
static void put_fallback(explaining *e, ir_op o) {
  const ir_host *host = e->h->host;
  for (uint32_t i = 0; i < host->fallbacks.len; i++) {
    const ir_fallback *f = &host->fallbacks.data[i];
    if (!IR_SAME(f->source, o)) continue;
    strbuf_printf(e->out, "    not as preferred, but %s: ", ir_rule_info_of(f->used)->name);
    explain_sentence(e, f->why, ir_tensor_at(e->f, ir_op_at(e->f, o)->result)->name, e->out);
    strbuf_putc(e->out, '\n');
  }
}

void explain_comm_fully(explaining *e, const explain_comm *c) {
  const ir_op_data op = *ir_op_at(e->f, c->source);
  bool reduces = c->why == IR_RULE_REDUCE;
  put_call(e, c);
  strbuf_puts(e->out, "\n  runs ");
  put_around(e, c);
  strbuf_putc(e->out, '\n');
  put_bytes_line(e, c);
  if (!reduces) put_side(e, "from ", op.operands[0]);
  for (uint32_t k = 0; reduces && k < op.n_operands; k++) {
    bool tensor = op.operands[k].id && ir_tensor_at(e->f, op.operands[k])->name;
    if (tensor) put_side(e, "of   ", op.operands[k]);
  }
  put_side(e, "to   ", op.result);
  strbuf_puts(e->out, "  because\n");
  if (c->why != IR_RULE_NONE) {
    strbuf_puts(e->out, "    ");
    explain_sentence(e, c->why, ir_tensor_at(e->f, op.result)->name, e->out);
    strbuf_putc(e->out, '\n');
  }
  put_fallback(e, c->source);
  if (reduces) put_partial_reasons(e, &op, (uint32_t)__builtin_ctz(reduced_axes(e, &op, c->instr)));
  else if (op.why) explain_chain(e, op.why, 4);
  if (reduces || op.why) return;
  strbuf_puts(e->out, "    the operation asks for it: ");
  explain_place(e, op.at);
  strbuf_putc(e->out, '\n');
  explain_placement(e, op.result);
}

void explain_comm_briefly(explaining *e, const explain_comm *c) {
  const ir_op_data *op = ir_op_at(e->f, c->source);
  ir_scalar bytes = explain_bytes(e, c);
  strbuf_puts(e->out, "    ");
  put_call(e, c);
  strbuf_puts(e->out, "\n      ");
  put_around(e, c);
  if (bytes.id) {
    strbuf_puts(e->out, "; ");
    explain_put_bytes(e, bytes, e->out);
    strbuf_puts(e->out, " per device");
  }
  strbuf_puts(e->out, "; ");
  ir_why w = op->why ? *ir_why_at(e->f, op->why) : (ir_why){.rule = c->why};
  if (!op->why) w.from = ir_tensor_at(e->f, op->result)->name;
  explain_sentence(e, w.rule, w.from, e->out);
  strbuf_putc(e->out, '\n');
}
