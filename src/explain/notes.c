/* What a user may want to change. */
#include "explain/internal.h"

enum { MANY_BYTES = 1 << 20 };

static void put_line(explaining *e, loc at) {
  uint32_t line = explain_line(e, at);
  if (line) strbuf_printf(e->out, "line %u: ", line);
}

/* ---- streams ---- */
/* Only of marks that the user wrote; what propagation added follows from them. */
static void note_stream(explaining *e, const ir_unstreamed *u) {
  uint32_t why = ir_axis_at(e->f, u->axis)->why;
  ir_tensor t = ir_op_at(e->f, u->source)->result;
  if (!why || ir_why_at(e->f, why)->rule != IR_RULE_USER) return;
  put_line(e, ir_why_at(e->f, why)->at);
  strbuf_printf(e->out, "the stream of %s along ", explain_name(e, t));
  explain_along(e, &ir_tensor_at(e->f, t)->now, u->axis);
  strbuf_puts(e->out, " is not used: ");
  explain_sentence(e, u->why, ir_tensor_at(e->f, t)->name, e->out);
  strbuf_putc(e->out, '\n');
}

/* About the results that are computed from a tensor, also through copies: whether one is streamed, and one that the
 * user has placed. */
typedef struct read_by {
  bool streamed;
  ir_tensor placed;
} read_by;

static void find_readers(const explaining *e, ir_tensor t, read_by *r) {
  for (uint32_t i = 0; i < e->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(e->f, e->f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      if (!IR_SAME(op->operands[k], t)) continue;
      const ir_tensor_data *result = ir_tensor_at(e->f, op->result);
      r->streamed = r->streamed || ir_axes_streamed(e->f, result->now.loop);
      if (result->placed) r->placed = op->result;
      if (ir_op_info_of(op->code)->family == IR_FAMILY_SET) find_readers(e, op->result, r);
    }
  }
}

/* An operation runs in the slices of its result; a mark on an input only propagates. */
static void note_input(explaining *e, ir_tensor t) {
  ir_axes loop = ir_tensor_at(e->f, t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(e->f, loop.data[i]);
    bool written = a->why && ir_why_at(e->f, a->why)->rule == IR_RULE_USER;
    read_by r = {0};
    if (a->mark.kind != IR_MARK_STREAM || !written) continue;
    find_readers(e, t, &r);
    if (r.streamed || !r.placed.id) return;
    put_line(e, ir_why_at(e->f, a->why)->at);
    strbuf_printf(e->out, "the stream of %s along ", explain_name(e, t));
    explain_along(e, &ir_tensor_at(e->f, t)->now, loop.data[i]);
    const char *name = explain_name(e, r.placed);
    strbuf_printf(e->out,
                  " is not used: %s, which is computed of it, runs in slices of its own, and `on` "
                  "says all about "
                  "them: give %s a stream (--pipeline auto tries some)\n",
                  name, name);
    return;
  }
}

/* ---- movements ---- */
/* Bytes that the busiest device receives for an operation; 0: not known. */
static int64_t bytes_for(explaining *e, ir_op o) {
  for (uint32_t i = 0; e->s->env && i < e->comms_for[o.id].len; i++) {
    int64_t value;
    ir_scalar bytes = explain_bytes(e, &e->comms.data[e->comms_for[o.id].data[i]]);
    if (bytes.id && ir_env_eval(e->s->env, bytes, &value)) return value;
  }
  return 0;
}

/* A tensor that the user put on a mesh, and did not mark, although what it is made of is cut. */
static bool is_unmarked(const explaining *e, const explain_conflict *c, uint32_t k) {
  const ir_tensor_data *t = ir_tensor_at(e->f, c->result);
  shard_placement p;
  shard_placement_of(e->f, c->result, &p);
  return t->placed && !ir_func_returns(e->f, c->result) && k < p.rank && !p.axes[k].loop.id;
}

/* Two operands that are cut differently where each element needs only its counterpart. */
static bool is_beside(const explaining *e, const explain_conflict *c) {
  ir_tensor from = c->from;
  const ir_tensor_data *t = ir_tensor_at(e->f, from);
  return ir_op_info_of(c->op->code)->family == IR_FAMILY_POINTWISE && c->op->n_operands > 1 &&
         t->kind == IR_TENSOR_INPUT && !IR_SAME(c->to, c->result);
}

static void note_move(explaining *e, const explain_conflict *c, uint32_t k, int64_t bytes) {
  const char *result = explain_name(e, c->result), *from = explain_name(e, c->from);
  bool unmarked = is_unmarked(e, c, k);
  if (!unmarked && !is_beside(e, c)) return;
  put_line(e, c->op->at);
  strbuf_printf(e->out, "each device receives %lld bytes of %s, ", (long long)bytes, from);
  if (unmarked)
    strbuf_printf(e->out,
                  "since %s is put on the mesh without a mark: mark it, or leave it out of `on`\n",
                  result);
  else
    strbuf_printf(e->out, "which is cut differently from %s: marked alike, nothing would move\n",
                  result);
}

static void note_moves(explaining *e) {
  const ir_op *readers = explain_find_readers(e);
  for (uint32_t i = 0; i < e->f->order.len; i++) {
    ir_op o = e->f->order.data[i];
    explain_conflict c;
    if (!explain_find_conflict(e, o, readers, &c)) continue;
    int64_t bytes = bytes_for(e, o);
    for (uint32_t k = 0; bytes >= MANY_BYTES && k < IR_MESH_MAX_RANK; k++) {
      if (!explain_differs(e, &c, k)) continue;
      note_move(e, &c, k, bytes);
      break; /* one note for one movement */
    }
  }
}

void explain_notes(const explain_subject *s, strbuf *out) {
  explaining *e = explain_begin(s, out);
  const ir_host *host = s->h->host;
  for (uint32_t i = 0; i < host->unstreamed.len; i++) note_stream(e, &host->unstreamed.data[i]);
  for (uint32_t i = 0; i < e->f->inputs.len; i++) note_input(e, e->f->inputs.data[i]);
  note_moves(e);
}
