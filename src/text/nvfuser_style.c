#include "text/nvfuser_style.h"

/* ---- buffers and slices ---- */
/* The product of the sizes, as nvFuser nests it. */
static void put_size(text_nvfuser *s, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(s->h, ir_tensor_at(s->h, t)->now.logical, dims);
  for (uint32_t i = 1; i < rank; i++) strbuf_puts(s->out, "( ");
  for (uint32_t i = 0; i < rank; i++) {
    if (i) strbuf_puts(s->out, " * ");
    text_nvfuser_put_scalar(s, text_nvfuser_length(s, dims[i]));
    if (i) strbuf_puts(s->out, " )");
  }
  if (rank == 0) strbuf_putc(s->out, '1');
}

static void put_allocate(text_nvfuser *s, ir_tensor t) {
  bool symmetric = ir_tensor_at(s->h, t)->memory == IR_MEMORY_SYMMETRIC;
  text_nvfuser_put_tensor(s, t);
  strbuf_puts(s->out, " = ALLOCATE(buffer=");
  text_nvfuser_put_tensor(s, t);
  strbuf_printf(s->out, ", mem_type=%s, size=", symmetric ? "symmetric" : "global");
  put_size(s, t);
  strbuf_puts(s->out, ", zero_init=false, resets_to_zero=false)\n");
}

static void put_deallocate(text_nvfuser *s, ir_tensor t, uint32_t depth) {
  strbuf_puts(s->out, "Deallocate {\n");
  text_nvfuser_put_indent(s, depth + 1);
  text_nvfuser_put_tensor(s, t);
  strbuf_putc(s->out, '\n');
  text_nvfuser_put_indent(s, depth);
  strbuf_puts(s->out, "}\n");
}

static void put_select(text_nvfuser *s, const ir_instr_data *d, uint32_t depth) {
  ir_axis a = text_nvfuser_dim(s, d->from, d->dim);
  text_nvfuser_put_tensor(s, d->tensor);
  strbuf_putc(s->out, '\n');
  text_nvfuser_put_indent(s, depth);
  strbuf_puts(s->out, "   = HirAliasSelect( ");
  text_nvfuser_put_tensor(s, d->from);
  strbuf_puts(s->out, ", axis = ");
  if (a.id) text_nvfuser_put_axis(s, d->from, a);
  strbuf_puts(s->out, ", index = ");
  text_nvfuser_put_scalar(s, d->index);
  strbuf_puts(s->out, " )\n");
}

static void put_shard(text_nvfuser *s, const ir_instr_data *d) {
  text_nvfuser_put_tensor(s, d->tensor);
  strbuf_puts(s->out, " = ShardByStream(");
  text_nvfuser_put_tensor(s, d->from);
  strbuf_puts(s->out, ", stream_index = ");
  text_nvfuser_put_scalar(s, d->index);
  strbuf_puts(s->out, ")\n");
}

/* ---- streams ---- */
static uint32_t stream_number(text_nvfuser *s, uint32_t name) {
  for (uint32_t i = 0; i < s->streams.len; i++) {
    if (s->streams.data[i] == name) return i;
  }
  vec_push(s->out->memory, &s->streams, name);
  return s->streams.len - 1;
}

static void put_stream(text_nvfuser *s, const char *what, ir_stream stream) {
  strbuf_puts(s->out, what);
  if (stream.name) strbuf_int(s->out, stream_number(s, stream.name));
  else text_nvfuser_put_scalar(s, stream.index);
  strbuf_putc(s->out, '\n');
}

/* ---- loops and branches ---- */
static void put_block(text_nvfuser *s, const ir_block *block, uint32_t depth);

static bool mentions(const text_nvfuser *s, ir_scalar x, ir_scalar variable) {
  const ir_scalars *all = &s->h->module->scalars;
  return ir_scalar_mentions(all, x, (uint32_t)ir_scalar_node_of(all, variable)->value);
}

/* The first select of the loop on an axis that is marked stream: the axis the loop runs over. */
static const ir_instr_data *stream_select(const text_nvfuser *s, const ir_block *block,
                                          ir_scalar variable) {
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    if (d->kind == IR_SELECT && mentions(s, d->index, variable)) {
      ir_axis a = text_nvfuser_dim(s, d->from, d->dim);
      if (a.id && ir_axis_at(s->h, a)->mark.kind == IR_MARK_STREAM) return d;
    }
    const ir_instr_data *inner = stream_select(s, &d->body, variable);
    if (!inner) inner = stream_select(s, &d->otherwise, variable);
    if (inner) return inner;
  }
  return NULL;
}

/* FOR StreamIdx in iStreamIdx2{i0}:   or   FOR i7 from 0 to 3: */
static void put_for(text_nvfuser *s, const ir_instr_data *d, uint32_t depth) {
  const ir_instr_data *over = stream_select(s, &d->body, d->variable);
  text_nvfuser_open_index(s, d->variable, over != NULL);
  strbuf_printf(s->out, "FOR %s ", text_nvfuser_symbol(s, d->variable));
  if (over) {
    strbuf_puts(s->out, "in ");
    text_nvfuser_put_axis(s, over->from, text_nvfuser_dim(s, over->from, over->dim));
  } else {
    strbuf_puts(s->out, "from 0 to ");
    text_nvfuser_put_scalar(s, d->extent);
  }
  strbuf_puts(s->out, ":\n");
  s->n_indexes += over != NULL;
  put_block(s, &d->body, depth + 1);
  s->n_indexes -= over != NULL;
}

static void put_if(text_nvfuser *s, const ir_instr_data *d, uint32_t depth) {
  static const char *const relations[] = {
      [IR_EQ] = " == ", [IR_NE] = " != ", [IR_LT] = " < ", [IR_LE] = " <= "};
  strbuf_puts(s->out, "IF Manual ( ");
  text_nvfuser_put_scalar(s, d->a);
  strbuf_puts(s->out, relations[d->relation]);
  text_nvfuser_put_scalar(s, d->b);
  strbuf_puts(s->out, " ):\n");
  put_block(s, &d->body, depth + 1);
  if (d->otherwise.len == 0) return;
  text_nvfuser_put_indent(s, depth);
  strbuf_puts(s->out, "ELSE:\n");
  put_block(s, &d->otherwise, depth + 1);
}

static void put_instr(text_nvfuser *s, const ir_instr_data *d, uint32_t depth) {
  bool indents = d->kind == IR_COMPUTE || d->kind == IR_VIEW || d->kind == IR_LAUNCH;
  if (!indents) text_nvfuser_put_indent(s, depth);
  switch (d->kind) {
  case IR_ALLOCATE: put_allocate(s, d->tensor); return;
  case IR_DEALLOCATE: put_deallocate(s, d->tensor, depth); return;
  case IR_CURRENT_STREAM: put_stream(s, "GetCurrentStream into Stream ", d->stream); return;
  case IR_SET_STREAM: put_stream(s, "SetCurrentStream to Stream ", d->stream); return;
  case IR_WAIT_STREAM: put_stream(s, "Synchronize Stream ", d->stream); return;
  case IR_FOR: put_for(s, d, depth); return;
  case IR_IF: put_if(s, d, depth); return;
  case IR_SELECT: put_select(s, d, depth); return;
  case IR_SHARD: put_shard(s, d); return;
  case IR_VIEW:
  case IR_COMPUTE: text_nvfuser_put_compute(s, ir_op_at(s->h, d->op), d->op, depth); return;
  case IR_LAUNCH: text_nvfuser_put_launch(s, d, depth); return;
  case IR_COMMUNICATE:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_WAIT: break;
  }
  impossible("a communication is printed elsewhere");
}

static bool is_comm(ir_instr_kind kind) {
  return kind == IR_COMMUNICATE || kind == IR_GROUP_START || kind == IR_GROUP_END ||
         kind == IR_WAIT;
}

/* A note above the lines of an instruction. */
static void put_note(text_nvfuser *s, ir_instr i, uint32_t depth) {
  strbuf note;
  if (!s->notes) return;
  strbuf_init(&note, s->out->memory);
  s->notes->write(s->notes->context, s->h, i, &note);
  if (!note.len) return;
  text_nvfuser_put_indent(s, depth);
  strbuf_puts(s->out, "// ");
  strbuf_add(s->out, note.data, note.len);
  strbuf_putc(s->out, '\n');
}

/* A device outside of a mesh skips what is done there; one inside does it without a condition. */
static void put_block(text_nvfuser *s, const ir_block *block, uint32_t depth) {
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    const ir_block *taken = text_nvfuser_membership(s, d);
    if (!taken) put_note(s, block->data[i], depth);
    if (taken) put_block(s, taken, depth);
    else if (is_comm(d->kind)) text_nvfuser_put_comm(s, block, i, depth);
    else put_instr(s, d, depth);
  }
}

/* ---- the container ---- */
static void put_tensors(text_nvfuser *s, const ir_tensor *list, uint32_t n) {
  strbuf_putc(s->out, '(');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_puts(s->out, ", ");
    text_nvfuser_put_tensor(s, list[i]);
  }
  strbuf_putc(s->out, ')');
}

void text_print_nvfuser(const ir_func *h, int64_t rank, strbuf *out) {
  text_print_nvfuser_noted(h, rank, NULL, out);
}

void text_print_nvfuser_noted(const ir_func *h, int64_t rank, const text_notes *notes,
                              strbuf *out) {
  arena *memory = out->memory;
  text_nvfuser s = {.h = h, .notes = notes, .rank = rank, .out = out};
  map_init(&s.numbers, memory);
  s.tensors = ARENA_ARRAY(memory, h->tensors.len, uint32_t);
  s.slices = ARENA_ARRAY(memory, h->tensors.len, bool);
  s.axes = ARENA_ARRAY(memory, h->axes.len, uint32_t);
  s.pieces = ARENA_ARRAY(memory, h->axes.len, ir_scalar);
  s.symbols = ARENA_ARRAY(memory, h->module->scalars.symbols.len, const char *);
  text_nvfuser_number(&s);
  strbuf_puts(out, "%HostIrContainer { ");
  put_tensors(&s, h->inputs.data, h->inputs.len);
  strbuf_puts(out, " -> ");
  put_tensors(&s, h->outputs.data, h->outputs.len);
  strbuf_puts(out, " :\n");
  put_block(&s, &h->host->body, 1);
  text_nvfuser_put_units(&s);
  strbuf_puts(out, "} // %HostIrContainer\n");
}
