#include "ir/host.h"
#include "text/extents.h"
#include "text/printer.h"
#include "text/text.h"

/* ---- pieces ---- */
static void put_indent(uint32_t depth, strbuf *out) {
  for (uint32_t i = 0; i <= depth; i++) strbuf_puts(out, "  ");
}

static void put_tensor(const ir_func *h, ir_tensor t, strbuf *out) {
  strbuf_puts(out, ir_tensor_name(h, t));
}

static uint32_t sizes_of(const ir_func *h, ir_tensor t, ir_scalar sizes[IR_MAX_RANK]) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(h, dims[i]);
  return rank;
}

static void put_stream(const ir_func *h, ir_stream s, strbuf *out) {
  if (s.name) strbuf_puts(out, ir_name_text(h, s.name));
  else ir_print_scalar(h, s.index, out);
}

/* ---- instructions ---- */
/* order=[1, 0]: the dimensions from outermost to innermost, where that is not their own order. */
static void put_order(const ir_func *h, ir_tensor t, strbuf *out) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK] = {{0}};
  uint32_t rank = ir_tensor_dims(h, t, dims);
  int64_t order[IR_MAX_RANK] = {0};
  bool plain = ir_axes_dims(h, ir_tensor_at(h, t)->defined.allocation, stored) == rank;
  for (uint32_t i = 0; i < rank; i++) {
    for (uint32_t k = 0; k < rank; k++) {
      if (IR_SAME(stored[i], dims[k])) order[i] = k;
    }
    plain = plain && order[i] == i;
  }
  if (plain) return;
  strbuf_puts(out, "order=");
  text_put_ints(order, rank, out);
}

/* A sum or a quotient after `/` needs parentheses. */
static void put_factor(const ir_func *h, ir_scalar x, strbuf *out) {
  const ir_scalar_node *n = ir_scalar_node_of(&h->module->scalars, x);
  bool atom = n->kind == IR_SCALAR_CONST || n->kind == IR_SCALAR_SYMBOL ||
              n->kind == IR_SCALAR_CEILDIV || n->kind == IR_SCALAR_MIN ||
              n->kind == IR_SCALAR_MAX || n->kind == IR_SCALAR_CHUNK ||
              n->kind == IR_SCALAR_CHUNK_START;
  if (!atom) strbuf_putc(out, '(');
  ir_print_scalar(h, x, out);
  if (!atom) strbuf_putc(out, ')');
}

/* How the dimension is cut over devices: @x, @x/2 or @x[3, 5]; then + and the axis along which the pieces
 * turn, then % and a period. */
static void put_cuts(const ir_func *h, ir_axis a, strbuf *out) {
  const ir_cut_axis *cut = ir_host_cut_of(h, a);
  for (uint32_t i = 0; cut && i < cut->n_cuts; i++) {
    const ir_partition *part = &cut->cuts[i].partition;
    strbuf_putc(out, '@');
    text_put_mesh_axis(cut->cuts[i].mesh_axis, out);
    if (cut->cuts[i].turn) {
      strbuf_putc(out, '+');
      text_put_mesh_axis(cut->cuts[i].turn - 1, out);
    }
    if (part->kind == IR_CHUNKS) text_put_ints(part->chunks, part->n_chunks, out);
    if (part->kind == IR_CHUNK) {
      strbuf_putc(out, '/');
      put_factor(h, part->size, out);
    }
    if (!part->period.id) continue;
    strbuf_putc(out, '%');
    put_factor(h, part->period, out);
  }
}

/* An anonymous extent is declared where it occurs. */
static bool is_anonymous(const ir_func *h, ir_scalar x) {
  const ir_scalars *s = &h->module->scalars;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  return n->kind == IR_SCALAR_SYMBOL && s->symbols.data[n->value].name == 0;
}

/* t : f32[n, m@x] on d, with the lengths over all devices. */
static void put_declaration(const ir_func *h, ir_tensor t, bool parameter, strbuf *out) {
  const ir_tensor_data *d = ir_tensor_at(h, t);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  put_tensor(h, t, out);
  strbuf_puts(out, " : ");
  strbuf_puts(out, ir_dtype_text(d->dtype));
  for (uint32_t i = 0; i < rank; i++) {
    ir_scalar whole = ir_axis_whole(h, dims[i]);
    strbuf_puts(out, i ? ", " : "[");
    if (parameter && is_anonymous(h, whole)) strbuf_putc(out, '?');
    else ir_print_scalar(h, whole, out);
    put_cuts(h, dims[i], out);
  }
  if (rank) strbuf_putc(out, ']');
  if (!d->mesh.id) return;
  strbuf_puts(out, " on ");
  strbuf_puts(out, ir_name_text(h, ir_mesh_at(h, d->mesh)->name));
}

static void put_typed(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  put_declaration(h, d->tensor, false, out);
  strbuf_puts(out, " = ");
  if (d->kind == IR_VIEW) {
    text_put_expression(h, ir_op_at(h, d->op), out);
    return;
  }
  strbuf_puts(out, "allocate(");
  put_order(h, d->tensor, out);
  strbuf_putc(out, ')');
}

static void put_call(const char *name, strbuf *out) {
  strbuf_puts(out, name);
  strbuf_putc(out, '(');
}

static void put_slice(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  const ir_partition *part = &d->partition;
  put_tensor(h, d->tensor, out);
  strbuf_puts(out, " = ");
  put_call(d->kind == IR_SELECT ? "select" : "shard", out);
  put_tensor(h, d->from, out);
  strbuf_puts(out, ", dim=");
  strbuf_int(out, d->dim);
  strbuf_puts(out, ", index=");
  ir_print_scalar(h, d->index, out);
  if (d->kind == IR_SHARD) {
    static const char *const keys[] = {
        [IR_PARTS] = ", parts=", [IR_CHUNK] = ", chunk=", [IR_CHUNKS] = ", chunks="};
    strbuf_puts(out, keys[part->kind]);
    if (part->kind == IR_CHUNKS) text_put_ints(part->chunks, part->n_chunks, out);
    else ir_print_scalar(h, part->size, out);
  }
  strbuf_putc(out, ')');
}

static void put_mask(uint32_t mask, strbuf *out) {
  int64_t dims[32];
  uint32_t n = 0;
  for (uint32_t i = 0; i < 32; i++) {
    if (mask & (1u << i)) dims[n++] = i;
  }
  text_put_ints(dims, n, out);
}

/* at [i * 4, 0] sliced [[0], []]; the second part only where an operand is sliced. */
static void put_window(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  if (!d->offsets) return;
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = sizes_of(h, d->tensor, sizes), any = 0;
  uint32_t n = ir_op_at(h, d->op)->n_operands;
  strbuf_puts(out, " at ");
  text_put_scalars(h, d->offsets, rank, out);
  for (uint32_t i = 0; d->sliced && i < n; i++) any |= d->sliced[i];
  if (!any) return;
  strbuf_puts(out, " sliced [");
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_puts(out, ", ");
    put_mask(d->sliced[i], out);
  }
  strbuf_putc(out, ']');
}

static void put_compute(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  const ir_op_data *op = ir_op_at(h, d->op);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    if (k) strbuf_puts(out, ", ");
    put_tensor(h, ir_op_result(op, k), out);
  }
  strbuf_puts(out, " <- ");
  text_put_expression(h, op, out);
  put_window(h, d, out);
}

/* ---- kernels ---- */
/* y, z <- kernel(x, w) */
static void put_launch(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  const ir_op_data *op = ir_op_at(h, d->op);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    if (k) strbuf_puts(out, ", ");
    put_tensor(h, ir_op_result(op, k), out);
  }
  strbuf_puts(out, " <- ");
  put_call("kernel", out);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (k) strbuf_puts(out, ", ");
    put_tensor(h, op->operands[k], out);
  }
  strbuf_putc(out, ')');
}

static void put_local_op(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  text_put_expression(h, ir_op_at(h, d->op), out);
  put_window(h, d, out);
}

static bool is_operand(const ir_func *h, const ir_block *body, ir_tensor t) {
  for (uint32_t i = 0; i < body->len; i++) {
    const ir_op_data *op = ir_op_at(h, ir_instr_at(h, body->data[i])->op);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      if (IR_SAME(op->operands[k], t)) return true;
    }
  }
  return false;
}

/* Operations at the end of the body that are only returned, in order and with the types of their
 * destinations, are written into the return: how many of them? */
static uint32_t inline_returns(const ir_func *h, const ir_instr_data *d) {
  const ir_op_data *launch = ir_op_at(h, d->op);
  uint32_t n = 0, k = ir_op_n_results(launch);
  for (uint32_t i = d->body.len; i-- > 0 && k > 0;) {
    ir_tensor t = ir_instr_at(h, d->body.data[i])->tensor;
    while (k > 0 && !IR_SAME(d->returns[k - 1], t)) k--;
    if (k == 0 || is_operand(h, &d->body, t)) break;
    bool again = false;
    for (uint32_t q = 0; q + 1 < k; q++) again = again || IR_SAME(d->returns[q], t);
    if (again || !ir_host_same_type(h, t, ir_op_result(launch, k - 1))) break;
    n++;
    k--;
  }
  return n;
}

static void put_local(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  put_tensor(h, d->tensor, out);
  if (ir_tensor_at(h, d->tensor)->stated) {
    ir_scalar sizes[IR_MAX_RANK];
    uint32_t rank = sizes_of(h, d->tensor, sizes);
    text_put_type(h, ir_tensor_at(h, d->tensor)->dtype, sizes, rank, out);
  }
  strbuf_puts(out, " = ");
  put_local_op(h, d, out);
}

static void put_return(const ir_func *h, const ir_instr_data *d, uint32_t n_inline, strbuf *out) {
  uint32_t next = d->body.len - n_inline;
  strbuf_puts(out, "return ");
  for (uint32_t k = 0; k < ir_op_n_results(ir_op_at(h, d->op)); k++) {
    if (k) strbuf_puts(out, ", ");
    const ir_instr_data *op = next < d->body.len ? ir_instr_at(h, d->body.data[next]) : NULL;
    bool here = op && IR_SAME(op->tensor, d->returns[k]);
    if (here) put_local_op(h, op, out);
    else put_tensor(h, d->returns[k], out);
    next += here;
  }
}

/* ---- communications ---- */
static void put_team(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  strbuf_puts(out, ", team=");
  strbuf_puts(out, ir_name_text(h, ir_mesh_at(h, d->team)->name));
  strbuf_putc(out, '.');
  text_put_mesh_axis(d->team_axis, out);
}

static void put_peer(const ir_func *h, const char *key, ir_scalar peer, strbuf *out) {
  if (!peer.id) return;
  strbuf_puts(out, key);
  ir_print_scalar(h, peer, out);
}

/* send(x, to=1, team=d.x) */
static void put_message(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  bool send = d->comm == IR_COMM_SEND;
  put_tensor(h, send ? d->from : d->tensor, out);
  if (send) put_peer(h, ", to=", d->to, out);
  else put_peer(h, ", from=", d->peer, out);
  put_team(h, d, out);
}

/* reduce(x -> y, team=d.x, op=sum, root=0) */
static void put_collective(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  put_tensor(h, d->from, out);
  strbuf_puts(out, " -> ");
  put_tensor(h, d->tensor, out);
  put_team(h, d, out);
  if (ir_comm_combines(d->comm)) {
    strbuf_puts(out, ", op=");
    strbuf_puts(out, ir_combine_text(d->combine));
  }
  put_peer(h, ", root=", d->root, out);
  put_peer(h, ", to=", d->to, out);
  put_peer(h, ", from=", d->peer, out);
}

static void put_communicate(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  bool message = d->comm == IR_COMM_SEND || d->comm == IR_COMM_RECV;
  put_call(ir_comm_info_of(d->comm)->text, out);
  if (message) put_message(h, d, out);
  else put_collective(h, d, out);
  strbuf_putc(out, ')');
}

static void put_comm(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  const char *name = d->name ? ir_name_text(h, d->name) : "";
  if (d->kind == IR_GROUP_START) {
    strbuf_puts(out, "group_start()");
    return;
  }
  if (d->kind == IR_WAIT) {
    strbuf_printf(out, "wait(%s)", name);
    return;
  }
  if (d->name) strbuf_printf(out, "%s = ", name);
  if (d->kind == IR_GROUP_END) strbuf_puts(out, "group_end()");
  else put_communicate(h, d, out);
}

/* ---- blocks, with or without notes ---- */
typedef struct printing {
  const ir_func *h;
  const text_notes *notes; /* NULL: none */
  size_t column;           /* where notes begin */
  strbuf note, *out;
} printing;

/* Ends the line of an instruction with its note. */
static void end_line(printing *p, ir_instr i) {
  strbuf *out = p->out;
  p->note.len = 0;
  if (p->notes && i.id) p->notes->write(p->notes->context, p->h, i, &p->note);
  size_t begin = out->len;
  while (begin > 0 && out->data[begin - 1] != '\n') begin--;
  if (p->note.len) {
    strbuf_putc(out, ' ');
    do strbuf_putc(out, ' ');
    while (out->len - begin < p->column);
    strbuf_puts(out, "# ");
    strbuf_add(out, p->note.data, p->note.len);
  }
  strbuf_putc(out, '\n');
}

static void put_block(printing *p, const ir_block *block, uint32_t depth);

/* `{`, the block on lines of its own, and `}`. */
static void put_body(printing *p, ir_instr i, const ir_block *block, uint32_t depth) {
  strbuf_puts(p->out, " {");
  end_line(p, i);
  put_block(p, block, depth + 1);
  put_indent(depth, p->out);
  strbuf_putc(p->out, '}');
}

static void put_for(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  strbuf_puts(out, "for ");
  ir_print_scalar(h, d->variable, out);
  strbuf_puts(out, " in ");
  ir_print_scalar(h, d->extent, out);
  if (d->streamed) strbuf_puts(out, " stream");
}

static void put_if(const ir_func *h, const ir_instr_data *d, strbuf *out) {
  static const char *const relations[] = {
      [IR_EQ] = " == ", [IR_NE] = " != ", [IR_LT] = " < ", [IR_LE] = " <= "};
  strbuf_puts(out, "if ");
  ir_print_scalar(h, d->a, out);
  strbuf_puts(out, relations[d->relation]);
  ir_print_scalar(h, d->b, out);
}

void text_print_instr(const ir_func *h, ir_instr i, strbuf *out) {
  const ir_instr_data *d = ir_instr_at(h, i);
  switch (d->kind) {
  case IR_ALLOCATE:
  case IR_VIEW: put_typed(h, d, out); return;
  case IR_DEALLOCATE:
    put_call("deallocate", out);
    put_tensor(h, d->tensor, out);
    strbuf_putc(out, ')');
    return;
  case IR_CURRENT_STREAM:
    put_stream(h, d->stream, out);
    strbuf_puts(out, " = current_stream()");
    return;
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
    put_call(d->kind == IR_SET_STREAM ? "set_stream" : "wait_stream", out);
    put_stream(h, d->stream, out);
    strbuf_putc(out, ')');
    return;
  case IR_FOR: put_for(h, d, out); return;
  case IR_IF: put_if(h, d, out); return;
  case IR_SELECT:
  case IR_SHARD: put_slice(h, d, out); return;
  case IR_COMPUTE: put_compute(h, d, out); return;
  case IR_LAUNCH: put_launch(h, d, out); return;
  case IR_COMMUNICATE:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_WAIT: put_comm(h, d, out); return;
  }
  impossible("an instruction without a kind");
}

static void put_kernel(printing *p, ir_instr i, uint32_t depth) {
  const ir_instr_data *d = ir_instr_at(p->h, i);
  uint32_t n_inline = inline_returns(p->h, d);
  strbuf_puts(p->out, " {");
  end_line(p, i);
  for (uint32_t k = 0; k + n_inline < d->body.len; k++) {
    put_indent(depth + 1, p->out);
    put_local(p->h, ir_instr_at(p->h, d->body.data[k]), p->out);
    end_line(p, d->body.data[k]);
  }
  put_indent(depth + 1, p->out);
  put_return(p->h, d, n_inline, p->out);
  end_line(p, n_inline ? d->body.data[d->body.len - 1] : (ir_instr){0});
  put_indent(depth, p->out);
  strbuf_puts(p->out, "}\n");
}

static void put_block(printing *p, const ir_block *block, uint32_t depth) {
  for (uint32_t k = 0; k < block->len; k++) {
    ir_instr i = block->data[k];
    const ir_instr_data *d = ir_instr_at(p->h, i);
    put_indent(depth, p->out);
    text_print_instr(p->h, i, p->out);
    if (d->kind == IR_LAUNCH) {
      put_kernel(p, i, depth);
      continue;
    }
    if (d->kind != IR_FOR && d->kind != IR_IF) {
      end_line(p, i);
      continue;
    }
    put_body(p, i, &d->body, depth);
    if (d->otherwise.len) {
      strbuf_puts(p->out, " else");
      put_body(p, (ir_instr){0}, &d->otherwise, depth);
    }
    strbuf_putc(p->out, '\n');
  }
}

void text_print_kernel(const ir_func *h, ir_instr i, strbuf *out) {
  text_print_instr(h, i, out);
  if (ir_instr_at(h, i)->kind != IR_LAUNCH) return;
  printing p = {.h = h, .out = out};
  strbuf_init(&p.note, out->memory);
  put_kernel(&p, i, 0);
}

/* ---- the program ---- */
static void put_head(const ir_func *h, strbuf *out) {
  strbuf_puts(out, "host ");
  put_call(ir_name_text(h, h->name), out);
  for (uint32_t i = 1; i < h->meshes.len; i++) {
    if (i > 1) strbuf_puts(out, ", ");
    text_put_mesh(h, &h->meshes.data[i], out);
  }
  for (uint32_t i = 0; i < h->inputs.len; i++) {
    if (i || h->meshes.len > 1) strbuf_puts(out, ", ");
    put_declaration(h, h->inputs.data[i], true, out);
  }
  strbuf_puts(out, ") -> (");
  for (uint32_t i = 0; i < h->outputs.len; i++) {
    if (i) strbuf_puts(out, ", ");
    put_tensor(h, h->outputs.data[i], out);
  }
  strbuf_puts(out, ") {\n");
}

static void put_program(void *context, strbuf *out) {
  printing *p = context;
  ir_scalar_names none, *names = text_begin_unnamed(p->h, &none);
  put_head(p->h, out);
  text_end_unnamed(p->h, names);
  text_put_extents(p->h, out);
  put_block(p, &p->h->host->body, 0);
  strbuf_puts(out, "}\n");
}

void text_print_host(const ir_func *h, strbuf *out) {
  printing p = {.h = h, .out = out};
  text_print_named(h, put_program, &p, out);
}

enum { WIDEST = 72 }; /* lines that are longer do not move the notes of the others */

/* The column after the longest instruction, very long ones left out; the first line is not an instruction. */
static size_t note_column(const strbuf *plain) {
  size_t longest = 0, begin = 0;
  for (size_t i = 0; i < plain->len; i++) {
    if (plain->data[i] != '\n') continue;
    if (begin > 0 && i - begin > longest && i - begin <= WIDEST) longest = i - begin;
    begin = i + 1;
  }
  return longest + 2;
}

void text_print_host_noted(const ir_func *h, const text_notes *notes, strbuf *out) {
  strbuf plain;
  strbuf_init(&plain, out->memory);
  text_print_host(h, &plain);
  printing p = {.h = h, .notes = notes, .column = note_column(&plain), .out = out};
  strbuf_init(&p.note, out->memory);
  text_print_named(h, put_program, &p, out);
}
