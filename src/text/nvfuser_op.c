#include "ir/fold.h"
#include "text/nvfuser_style.h"

/* `<out>`, and on the next line `   = `. */
static void put_result(text_nvfuser *s, const ir_op_data *op, uint32_t depth) {
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    if (k) strbuf_puts(s->out, ",\n");
    text_nvfuser_put_indent(s, depth);
    text_nvfuser_put_tensor(s, ir_op_result(op, k));
  }
  strbuf_putc(s->out, '\n');
  text_nvfuser_put_indent(s, depth);
  strbuf_puts(s->out, "   = ");
}

/* ---- by name ---- */
static void put_set(text_nvfuser *s, const ir_op_data *op) {
  strbuf_puts(s->out, "Set( ");
  text_nvfuser_put_operand(s, op->operands[0]);
  strbuf_puts(s->out, ", cache_op=Streaming )");
}

/* matmul(a,
 *        b) */
static void put_product(text_nvfuser *s, const ir_op_data *op, uint32_t depth) {
  strbuf_puts(s->out, ir_op_info_of(op->code)->name);
  strbuf_putc(s->out, '(');
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (!op->operands[i].id) continue;
    if (i) {
      strbuf_puts(s->out, ",\n");
      text_nvfuser_put_indent(s, depth);
      strbuf_puts(s->out, "            ");
    }
    text_nvfuser_put_operand(s, op->operands[i]);
  }
  strbuf_putc(s->out, ')');
}

static void put_reduction(text_nvfuser *s, const ir_op_data *op) {
  static const char *const starts[] = {[IR_START_ZERO] = "0",
                                       [IR_START_ONE] = "1",
                                       [IR_START_ALL] = "-1",
                                       [IR_START_LEAST] = "-inf",
                                       [IR_START_GREATEST] = "inf"};
  const ir_fold_info *fold = ir_fold_info_of(ir_op_fold(op->code));
  strbuf_puts(s->out, "reduction( ");
  text_nvfuser_put_operand(s, op->operands[0]);
  strbuf_printf(s->out, ", op = %s, initial value = %s(%s), allreduce = false )", fold->nvfuser,
                ir_dtype_nvfuser(ir_tensor_at(s->h, op->result)->dtype), starts[fold->start]);
}

static void put_slice(text_nvfuser *s, const ir_op_data *op) {
  const ir_attr *starts = ir_op_attr(op, "starts"), *stops = ir_op_attr(op, "stops");
  const ir_attr *steps = ir_op_attr(op, "steps");
  strbuf_puts(s->out, "slice( ");
  text_nvfuser_put_operand(s, op->operands[0]);
  strbuf_puts(s->out, ", {");
  for (uint32_t i = 0; i < starts->len && i < stops->len; i++) {
    strbuf_puts(s->out, " {");
    text_nvfuser_put_scalar(s, starts->scalars[i]);
    strbuf_puts(s->out, ", ");
    text_nvfuser_put_scalar(s, stops->scalars[i]);
    strbuf_puts(s->out, ", ");
    strbuf_int(s->out, i < steps->len ? steps->ints[i] : 1);
    strbuf_putc(s->out, '}');
  }
  strbuf_puts(s->out, " } )");
}

static void put_select(text_nvfuser *s, const ir_op_data *op) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(s->h, op->operands[0], dims);
  int64_t dim = ir_op_attr(op, "dim")->i;
  ir_axis a = text_nvfuser_dim(s, op->operands[0], (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim));
  strbuf_puts(s->out, "select( ");
  text_nvfuser_put_operand(s, op->operands[0]);
  strbuf_puts(s->out, ", axis = ");
  if (a.id) text_nvfuser_put_axis(s, op->operands[0], a);
  strbuf_puts(s->out, ", index = ");
  text_nvfuser_put_scalar(s, ir_op_attr(op, "index")->scalar);
  strbuf_puts(s->out, " )");
}

static const char *operator_of(ir_opcode code) {
  if (code == IR_OP_MOD) return "%";
  if (code == IR_OP_AND) return "&";
  if (code == IR_OP_OR) return "|";
  if (code == IR_OP_XOR) return "^";
  return ir_op_infix(code);
}

/* a            pow(a,
 * + b    or          b) */
static void put_binary(text_nvfuser *s, const ir_op_data *op, uint32_t depth) {
  const char *infix = operator_of(op->code);
  if (!infix) {
    bool extreme = op->code == IR_OP_MAX || op->code == IR_OP_MIN;
    strbuf_printf(s->out, "%s%s(", extreme ? "f" : "", ir_op_info_of(op->code)->name);
  }
  text_nvfuser_put_operand(s, op->operands[0]);
  strbuf_puts(s->out, infix ? "\n" : ",\n");
  text_nvfuser_put_indent(s, depth);
  if (infix) strbuf_printf(s->out, "   %s ", infix);
  else strbuf_puts(s->out, "            ");
  text_nvfuser_put_operand(s, op->operands[1]);
  strbuf_puts(s->out, infix ? ";" : ");");
}

/* ---- as a unit ---- */
static void put_list(text_nvfuser *s, const ir_op_data *op, bool inputs) {
  strbuf_putc(s->out, '{');
  for (uint32_t i = 0; i < (inputs ? op->n_operands : ir_op_n_results(op)); i++) {
    ir_tensor t = inputs ? op->operands[i] : ir_op_result(op, i);
    if (!t.id || ir_tensor_at(s->h, t)->kind == IR_TENSOR_CONST) continue;
    text_nvfuser_put_tensor(s, t);
    strbuf_puts(s->out, ", ");
  }
  strbuf_putc(s->out, '}');
}

static void put_post(text_nvfuser *s, text_unit unit, uint32_t depth) {
  const ir_op_data *op = ir_op_at(s->h, unit.op);
  text_nvfuser_put_indent(s, depth);
  strbuf_printf(s->out, "PostOnStream (HostUnit%u, Inputs:", s->units.len);
  put_list(s, op, true);
  strbuf_puts(s->out, ", Outputs:");
  put_list(s, op, false);
  strbuf_putc(s->out, ')');
  vec_push(s->out->memory, &s->units, unit);
}

static bool is_binary(const ir_op_info *info) {
  return info->family == IR_FAMILY_POINTWISE && info->n_tensors == 2;
}

static bool put_by_name(text_nvfuser *s, const ir_op_data *op, uint32_t depth) {
  const ir_op_info *info = ir_op_info_of(op->code);
  bool product = ir_op_is_product(op->code);
  bool reduction = info->family == IR_FAMILY_REDUCE, slice = op->code == IR_OP_SLICE;
  bool select = op->code == IR_OP_SELECT, set = op->code == IR_OP_SET;
  if (!product && !reduction && !slice && !select && !set && !is_binary(info)) return false;
  put_result(s, op, depth);
  if (product) put_product(s, op, depth);
  else if (reduction) put_reduction(s, op);
  else if (slice) put_slice(s, op);
  else if (select) put_select(s, op);
  else if (set) put_set(s, op);
  else put_binary(s, op, depth);
  return true;
}

void text_nvfuser_put_compute(text_nvfuser *s, const ir_op_data *op, ir_op handle, uint32_t depth) {
  if (!put_by_name(s, op, depth)) put_post(s, (text_unit){.op = handle}, depth);
  strbuf_putc(s->out, '\n');
}

void text_nvfuser_put_launch(text_nvfuser *s, const ir_instr_data *d, uint32_t depth) {
  put_post(s, (text_unit){d->op, &d->body}, depth);
  strbuf_putc(s->out, '\n');
}

/* ---- the units ---- */
static void put_ints(text_nvfuser *s, const ir_attr *a, bool truth) {
  strbuf_putc(s->out, '{');
  for (uint32_t i = 0; i < a->len; i++) {
    if (i) strbuf_puts(s->out, ", ");
    if (truth) strbuf_puts(s->out, a->ints[i] ? "true" : "false");
    else strbuf_int(s->out, a->ints[i]);
  }
  strbuf_putc(s->out, '}');
}

static void put_scalars(text_nvfuser *s, const ir_attr *a) {
  strbuf_putc(s->out, '{');
  for (uint32_t i = 0; i < a->len; i++) {
    if (i) strbuf_puts(s->out, ", ");
    text_nvfuser_put_scalar(s, a->scalars[i]);
  }
  strbuf_putc(s->out, '}');
}

static void put_attr(text_nvfuser *s, const ir_param *q, const ir_attr *a) {
  switch (q->kind) {
  case IR_PARAM_INT: strbuf_int(s->out, a->i); return;
  case IR_PARAM_INTS: put_ints(s, a, false); return;
  case IR_PARAM_BOOL: strbuf_puts(s->out, a->i ? "true" : "false"); return;
  case IR_PARAM_BOOLS: put_ints(s, a, true); return;
  case IR_PARAM_NUMBER: strbuf_double(s->out, ir_number_as_f64(a->number)); return;
  case IR_PARAM_DTYPE: strbuf_puts(s->out, ir_dtype_nvfuser((ir_dtype)a->i)); return;
  case IR_PARAM_SCALAR: text_nvfuser_put_scalar(s, a->scalar); return;
  case IR_PARAM_SCALARS: put_scalars(s, a); return;
  case IR_PARAM_CHOICE: strbuf_puts(s->out, q->choices[a->i]); return;
  case IR_PARAM_END:
  case IR_PARAM_TENSOR:
  case IR_PARAM_TENSORS: return;
  }
}

/* broadcast( T1, flags = {true, false} ) */
static void put_call(text_nvfuser *s, const ir_op_data *op) {
  const ir_op_info *info = ir_op_info_of(op->code);
  const ir_attr *a = op->attrs;
  strbuf_puts(s->out, info->name);
  strbuf_putc(s->out, '(');
  bool any = false;
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (!op->operands[i].id) continue;
    strbuf_puts(s->out, any ? ", " : " ");
    text_nvfuser_put_operand(s, op->operands[i]);
    any = true;
  }
  for (const ir_param *q = info->params; q->kind != IR_PARAM_END; q++) {
    if (q->kind == IR_PARAM_TENSOR || q->kind == IR_PARAM_TENSORS) continue;
    if ((a++)->given) {
      strbuf_printf(s->out, "%s%s = ", any ? ", " : " ",
                    op->code == IR_OP_BROADCAST ? "flags" : q->name);
      put_attr(s, q, a - 1);
      any = true;
    }
  }
  strbuf_puts(s->out, " )");
}

static void put_lines(text_nvfuser *s, const ir_op_data *op) {
  strbuf_puts(s->out, "Inputs:\n");
  for (uint32_t i = 0; i < op->n_operands; i++) {
    ir_tensor t = op->operands[i];
    if (!t.id || ir_tensor_at(s->h, t)->kind == IR_TENSOR_CONST) continue;
    strbuf_puts(s->out, "  ");
    text_nvfuser_put_tensor(s, t);
    strbuf_putc(s->out, '\n');
  }
  strbuf_puts(s->out, "Outputs:\n");
  for (uint32_t i = 0; i < ir_op_n_results(op); i++) {
    strbuf_puts(s->out, "  ");
    text_nvfuser_put_tensor(s, ir_op_result(op, i));
    strbuf_putc(s->out, '\n');
  }
  strbuf_putc(s->out, '\n');
}

void text_nvfuser_put_units(text_nvfuser *s) {
  for (uint32_t i = 0; i < s->units.len; i++) {
    const text_unit *unit = &s->units.data[i];
    const ir_op_data *op = ir_op_at(s->h, unit->op);
    strbuf_printf(s->out, "\nHostUnit%u: Inputs=", i);
    put_list(s, op, true);
    strbuf_puts(s->out, " -> Outputs=");
    put_list(s, op, false);
    put_lines(s, op);
    strbuf_puts(s->out, "%kernel {\n");
    for (uint32_t k = 0; k < (unit->body ? unit->body->len : 1); k++) {
      if (unit->body) op = ir_op_at(s->h, ir_instr_at(s->h, unit->body->data[k])->op);
      if (k) strbuf_putc(s->out, '\n');
      put_result(s, op, 0);
      put_call(s, op);
    }
    strbuf_puts(s->out, "\n} // %kernel\n");
  }
}
