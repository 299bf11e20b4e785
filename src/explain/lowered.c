/* A host program with its reasons as comments. */
#include "explain/internal.h"
#include "ir/map.h"
#include "text/text.h"

/* ---- instructions ---- */
static uint32_t spoken_of(const explaining *e, const ir_instr_data *d) {
  ir_tensor t = d->tensor.id ? d->tensor : d->from;
  const ir_host *host = e->h->host;
  if (t.id && t.id < host->origins.len && host->origins.data[t.id].tensor.id)
    return ir_tensor_at(e->f, host->origins.data[t.id].tensor)->name;
  return d->source.id ? ir_tensor_at(e->f, ir_op_at(e->f, d->source)->result)->name : 0;
}

static bool is_quiet(const ir_instr_data *d) {
  switch (d->kind) {
  case IR_DEALLOCATE:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
  case IR_GROUP_START:
  case IR_WAIT: return true;
  case IR_COMMUNICATE: return !d->name; /* its group is explained instead */
  case IR_FOR: return d->why == IR_RULE_STREAMS;
  case IR_ALLOCATE:
  case IR_CURRENT_STREAM:
  case IR_IF:
  case IR_SELECT:
  case IR_SHARD:
  case IR_VIEW:
  case IR_COMPUTE:
  case IR_LAUNCH:
  case IR_GROUP_END: return false;
  }
  return false;
}

static bool is_comm(const ir_instr_data *d) {
  return d->kind == IR_COMMUNICATE || d->kind == IR_GROUP_END;
}

static void put_cost(explaining *e, ir_instr i, strbuf *out) {
  ir_op made_for = ir_instr_at(e->h, i)->source;
  for (uint32_t k = 0; k < e->comms_for[made_for.id].len; k++) {
    const explain_comm *c = &e->comms.data[e->comms_for[made_for.id].data[k]];
    ir_scalar bytes = IR_SAME(c->instr, i) ? explain_bytes(e, c) : (ir_scalar){0};
    if (!bytes.id) continue;
    const explain_comm *other = explain_instead_of(e, c);
    strbuf_puts(out, "; ");
    if (other)
      strbuf_printf(out,
                    "in place of %s: ", ir_name_text(e->h, ir_instr_at(e->h, other->instr)->name));
    explain_put_bytes(e, bytes, out);
  }
}

void explain_instr(explaining *e, ir_instr i, strbuf *out) {
  const ir_instr_data *d = ir_instr_at(e->h, i);
  if (!d->source.id) return;
  const ir_op_data *op = ir_op_at(e->f, d->source);
  uint32_t line = explain_line(e, op->at);
  if (line) strbuf_printf(out, "line %u", line);
  if (op->why) { /* an inserted step says first why there is one */
    ir_why w = *ir_why_at(e->f, op->why);
    bool itself = d->why == IR_RULE_NONE || is_comm(d);
    strbuf_puts(out, line ? ": " : "");
    if (itself) explain_sentence(e, w.rule, w.from, out);
    if (itself && d->why != IR_RULE_NONE) strbuf_puts(out, "; ");
    if (d->why != IR_RULE_NONE) explain_sentence(e, d->why, spoken_of(e, d), out);
  } else if (d->why != IR_RULE_NONE) {
    strbuf_puts(out, line ? ": " : "");
    explain_sentence(e, d->why, spoken_of(e, d), out);
  }
  if (d->saved_ns > 0)
    strbuf_printf(out, "; with others of its kind, which saves %.1f us", d->saved_ns * 1e-3);
  if (is_comm(d)) put_cost(e, i, out);
}

/* Of several instructions with one reason, the first says it; buffers and communications always do. */
static void write_note(void *context, const ir_func *h, ir_instr i, strbuf *out) {
  explaining *e = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  if (is_quiet(d)) return;
  bool again = IR_SAME(d->source, e->last_source) && d->why == e->last_why && d->why;
  /* mutant: why_says_it_twice */
  if (!again || is_comm(d) || d->kind == IR_ALLOCATE) explain_instr(e, i, out);
  e->last_source = d->source;
  e->last_why = d->why;
}

/* ---- what was decided before ---- */
typedef struct heading {
  explaining *e;
  const char *comment; /* "# " or "// " */
} heading;

static void begin_line(const heading *x, const char *indent) {
  strbuf_printf(x->e->out, "%s%s", x->comment, indent);
}

static void put_place_of(explaining *e, loc at) {
  uint32_t line = explain_line(e, at);
  if (line) strbuf_printf(e->out, ", line %u", line);
}

enum { REASON_COLUMN = 40 };

/* Statements up to a mark belong to it. */
static void put_marks(const heading *x) {
  explaining *e = x->e;
  if (e->f->n_spread) strbuf_printf(e->out, "%sMarks that propagation added:\n", x->comment);
  for (uint32_t i = 0; i < e->f->n_spread; i++) {
    ir_stmt stmt = e->f->spread[i];
    begin_line(x, "  ");
    size_t begin = e->out->len;
    text_print_stmt(e->f, &stmt, e->out);
    if (stmt.why) {
      ir_why w = *ir_why_at(e->f, stmt.why);
      do strbuf_putc(e->out, ' ');
      while (e->out->len - begin < REASON_COLUMN);
      explain_sentence(e, w.rule, w.from, e->out);
      put_place_of(e, w.at);
    }
    strbuf_putc(e->out, '\n');
  }
}

/* ---- conflicts ---- */
ir_op *explain_find_readers(const explaining *e) {
  ir_op *reader = ARENA_ARRAY(e->s->scratch, e->f->tensors.len, ir_op);
  for (uint32_t i = e->f->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(e->f, e->f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) reader[op->operands[k].id] = e->f->order.data[i];
  }
  return reader;
}

/* Is this the name of an operand after the first, or of what it is a copy of? */
static bool is_weight(const explaining *e, const ir_op_data *op, uint32_t name) {
  for (uint32_t k = 1; k < op->n_operands; k++) {
    for (ir_tensor t = op->operands[k]; t.id;) {
      const ir_tensor_data *d = ir_tensor_at(e->f, t);
      /* mutant: why_nobody_is_weight */
      if (d->name == name) return true;
      bool copy = d->def.id && ir_op_at(e->f, d->def)->why;
      t = copy ? ir_op_at(e->f, d->def)->operands[0] : (ir_tensor){0};
    }
  }
  return false;
}

/* Why the operand of that name came before others. */
static const char *order_of(const explaining *e, const ir_op_data *op, uint32_t name) {
  if (!ir_op_is_product(op->code))
    return " (the operand with more marks comes first, then the one written first)";
  return is_weight(e, op, name) ? " (weights come before activations)" : "";
}

/* What the result has along mesh axis k, and where that comes from. */
static void put_kept(const heading *x, const explain_conflict *c, uint32_t k) {
  explaining *e = x->e;
  const ir_tensor_data *t = ir_tensor_at(e->f, c->result);
  shard_placement p;
  shard_placement_of(e->f, c->result, &p);
  bool marked = k < p.rank && p.axes[k].loop.id;
  begin_line(x, "    kept: ");
  strbuf_printf(e->out, "that of %s, ", explain_name(e, c->result));
  if (!marked && !t->placed) {
    strbuf_puts(e->out, "which has no dimension that takes the cut over\n");
    return;
  }
  ir_why w = *ir_why_at(e->f, marked ? ir_axis_at(e->f, p.axes[k].loop)->why : t->mesh_why);
  explain_sentence(e, w.rule, w.from, e->out);
  put_place_of(e, w.at);
  if (!marked) strbuf_puts(e->out, " (axes without a mark are replicated)");
  if (w.rule == IR_RULE_FORWARD) strbuf_puts(e->out, order_of(e, c->op, w.from));
  strbuf_putc(e->out, '\n');
}

static void put_conflict(const heading *x, const explain_conflict *c, uint32_t k) {
  explaining *e = x->e;
  shard_placement a, b;
  shard_placement_of(e->f, c->from, &a);
  shard_placement_of(e->f, c->to, &b);
  begin_line(x, "  ");
  uint32_t line = explain_line(e, c->op->at);
  if (line) strbuf_printf(e->out, "line %u, ", line);
  strbuf_printf(e->out, "%s: %s is cut along ", ir_op_info_of(c->op->code)->name,
                explain_name(e, c->from));
  explain_mesh_axis(e, a.mesh, k);
  strbuf_puts(e->out, ", ");
  explain_cut(e, &a.axes[k], a.mesh, k);
  strbuf_puts(e->out, "; needed: ");
  if (k >= b.rank || b.axes[k].kind != SHARD_SHARDED) strbuf_puts(e->out, "all of it");
  else explain_cut(e, &b.axes[k], b.mesh, k);
  strbuf_putc(e->out, '\n');
  put_kept(x, c, k);
}

bool explain_differs(const explaining *e, const explain_conflict *c, uint32_t k) {
  shard_placement a, b;
  shard_placement_of(e->f, c->from, &a);
  shard_placement_of(e->f, c->to, &b);
  if (k >= a.rank || a.axes[k].kind != SHARD_SHARDED) return false;
  if (k >= b.rank || b.axes[k].kind != SHARD_SHARDED) return true;
  return a.axes[k].dim != b.axes[k].dim || a.axes[k].cut != b.axes[k].cut;
}

bool explain_find_conflict(const explaining *e, ir_op o, const ir_op *readers,
                           explain_conflict *c) {
  const ir_op_data *op = ir_op_at(e->f, o);
  ir_rule rule = op->why ? ir_why_at(e->f, op->why)->rule : IR_RULE_NONE;
  *c = (explain_conflict){.to = op->result, .result = op->result};
  if (rule != IR_RULE_BEFORE && rule != IR_RULE_AFTER && rule != IR_RULE_WHOLE) return false;
  c->from = explain_moved(e, o);
  ir_op other = rule == IR_RULE_BEFORE ? readers[op->result.id] : ir_tensor_at(e->f, c->from)->def;
  if (!other.id) return false;
  c->op = ir_op_at(e->f, other);
  if (rule == IR_RULE_BEFORE) c->result = c->op->result;
  return true;
}

static void put_conflicts(const heading *x) {
  explaining *e = x->e;
  const ir_op *readers = explain_find_readers(e);
  bool any = false;
  for (uint32_t i = 0; i < e->f->order.len; i++) {
    explain_conflict c;
    if (!explain_find_conflict(e, e->f->order.data[i], readers, &c)) continue;
    for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
      if (!explain_differs(e, &c, k)) continue;
      if (!any) strbuf_printf(e->out, "%sOperands that are cut differently:\n", x->comment);
      any = true;
      put_conflict(x, &c, k);
    }
  }
}

/* ---- streams that do not meet ---- */
/* The first stream axis of a tensor, as an axis of its logical domain; none: it is not streamed. */
static ir_axis streamed_axis(const explaining *e, ir_tensor t, uint32_t *dim) {
  const ir_domains *d = &ir_tensor_at(e->f, t)->now;
  for (uint32_t i = 0; i < d->loop.len; i++) {
    ir_axis a = d->loop.data[i];
    if (ir_axis_at(e->f, a)->mark.kind != IR_MARK_STREAM) continue;
    *dim = 0;
    for (uint32_t n = 0; n < d->logical.len; n++) {
      ir_axis from = a;
      while (!IR_SAME(from, d->logical.data[n]) && ir_axis_at(e->f, from)->def.id)
        from = ir_transform_at(e->f, ir_axis_at(e->f, from)->def)->in[0];
      if (IR_SAME(from, d->logical.data[n])) return from;
      *dim += ir_axis_at(e->f, d->logical.data[n])->kind != IR_AXIS_REDUCTION;
    }
  }
  return (ir_axis){0};
}

static bool streams_meet(const explaining *e, const ir_op_data *op, uint32_t k, ir_axis from,
                         ir_axis to) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(e->f, op, k, pairs);
  ir_axes root = ir_tensor_at(e->f, op->result)->now.root;
  for (uint32_t i = 0; i < n; i++) {
    if (!IR_SAME(pairs[i].producer, from)) continue;
    return IR_SAME(pairs[i].consumer, to) ||
           IR_SAME(pairs[i].consumer, ir_map_root(e->f, root, to));
  }
  return false;
}

/* Operations that compute, and cannot share the loop of an operand. */
static void put_streams(const heading *x) {
  explaining *e = x->e;
  bool any = false;
  for (uint32_t i = 0; i < e->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(e->f, e->f->order.data[i]);
    uint32_t mine = 0, theirs = 0;
    if (e->comms_for[e->f->order.data[i].id].len) continue; /* a loop may run over its pieces */
    ir_axis to = streamed_axis(e, op->result, &mine);
    for (uint32_t k = 0; to.id && k < op->n_operands; k++) {
      ir_tensor t = op->operands[k];
      ir_axis from = t.id ? streamed_axis(e, t, &theirs) : (ir_axis){0};
      if (!from.id || streams_meet(e, op, k, from, to)) continue;
      if (!any) strbuf_printf(e->out, "%sStreams that do not meet:\n", x->comment);
      any = true;
      begin_line(x, "  ");
      uint32_t line = explain_line(e, op->at);
      if (line) strbuf_printf(e->out, "line %u, ", line);
      strbuf_printf(e->out, "%s: %s is streamed along dimension %u, ",
                    ir_op_info_of(op->code)->name, explain_name(e, t), theirs);
      bool reduction = ir_axis_at(e->f, to)->kind == IR_AXIS_REDUCTION;
      strbuf_printf(e->out, "%s along ", explain_name(e, op->result));
      if (reduction) strbuf_puts(e->out, "its reduction: a loop each\n");
      else strbuf_printf(e->out, "dimension %u: a loop each\n", mine);
    }
  }
}

/* ---- forms of communication ---- */
static const char *const pipelines[] = {
    [HOST_AUTO] = "auto", [HOST_COLLECTIVE] = "collective",
    [HOST_P2P] = "p2p",   [HOST_P2P_OFFSET] = "p2p-offset",
    [HOST_RING] = "ring", [HOST_BROADCAST] = "broadcast",
};

static void put_fallbacks(const heading *x, host_pipeline asked) {
  explaining *e = x->e;
  const ir_host *host = e->h->host;
  if (host->fallbacks.len)
    strbuf_printf(e->out, "%sWhere --pipeline %s does not apply:\n", x->comment, pipelines[asked]);
  for (uint32_t i = 0; i < host->fallbacks.len; i++) {
    const ir_fallback *f = &host->fallbacks.data[i];
    const ir_op_data *op = ir_op_at(e->f, f->source);
    begin_line(x, "  ");
    strbuf_printf(e->out, "%s: %s, ", explain_name(e, op->result), ir_rule_info_of(f->used)->name);
    explain_sentence(e, f->why, ir_tensor_at(e->f, op->result)->name, e->out);
    put_place_of(e, op->at);
    strbuf_putc(e->out, '\n');
  }
}

static void put_heading(explaining *e, host_pipeline asked, const char *comment) {
  heading x = {e, comment};
  size_t before = e->out->len;
  put_marks(&x);
  put_conflicts(&x);
  put_streams(&x);
  put_fallbacks(&x, asked);
  if (e->out->len > before) strbuf_putc(e->out, '\n');
}

void explain_host(const explain_subject *s, host_pipeline asked, strbuf *out) {
  explaining *e = explain_begin(s, out);
  text_notes notes = {write_note, e};
  put_heading(e, asked, "# ");
  text_print_host_noted(s->h, &notes, out);
}

void explain_nvfuser(const explain_subject *s, host_pipeline asked, int64_t rank, strbuf *out) {
  explaining *e = explain_begin(s, out);
  text_notes notes = {write_note, e};
  put_heading(e, asked, "// ");
  text_print_nvfuser_noted(s->h, rank, &notes, out);
}
