#include "text/text.h"

static void put_default(const ir_param *q, strbuf *out) {
  if (q->kind == IR_PARAM_BOOL) strbuf_puts(out, q->value != 0 ? "true" : "false");
  else if (q->kind == IR_PARAM_DTYPE) strbuf_puts(out, ir_dtype_text((ir_dtype)q->value));
  else if (q->kind == IR_PARAM_CHOICE) strbuf_puts(out, q->choices[(int)q->value]);
  else if (q->value == (double)(int64_t)q->value) strbuf_int(out, (int64_t)q->value);
  else strbuf_double(out, q->value);
}

static void put_param(const ir_param *q, strbuf *out) {
  bool tensor = q->kind == IR_PARAM_TENSOR || q->kind == IR_PARAM_TENSORS;
  if (q->use == IR_USE_OMIT) strbuf_putc(out, '[');
  strbuf_puts(out, q->name);
  if (q->kind == IR_PARAM_TENSORS) strbuf_puts(out, ", ...");
  if (!tensor && !q->positional) strbuf_putc(out, '=');
  if (q->use == IR_USE_DEFAULT) put_default(q, out);
  if (q->use == IR_USE_OMIT) strbuf_putc(out, ']');
}

void text_print_signature(const ir_op_info *info, strbuf *out) {
  strbuf_puts(out, info->name);
  strbuf_putc(out, '(');
  for (const ir_param *q = info->params; q->kind != IR_PARAM_END; q++) {
    if (q != info->params) strbuf_puts(out, ", ");
    put_param(q, out);
  }
  strbuf_putc(out, ')');
}
