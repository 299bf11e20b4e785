/* What a plan's instructions are and cost, in words and numbers. */
#include "runtime/plan.h"

static double elements(const rt_view *v) {
  double n = 1;
  for (uint32_t i = 0; i < v->rank; i++) n *= (double)v->extents[i];
  return n;
}

static double last_extent(const rt_view *v) {
  return v->rank ? (double)v->extents[v->rank - 1] : 1;
}

double rt_task_flops(const rt_plan *plan, const rt_task *task) {
  double n = elements(&plan->views[task->result]);
  if (task->n_operands == 0 || task->operands[0].kind != RT_OPERAND_VIEW) return n;
  const rt_view *x = &plan->views[task->operands[0].view];
  switch (ir_op_info_of(task->code)->family) {
  case IR_FAMILY_MATMUL:
  case IR_FAMILY_LINEAR: return 2 * n * last_extent(x);
  case IR_FAMILY_SDPA: { /* q·kᵀ and the product with v */
    const rt_view *k = &plan->views[task->operands[1].view];
    double positions = (double)k->extents[k->rank - 2];
    return 2 * positions * (n + elements(x));
  }
  case IR_FAMILY_REDUCE:
  case IR_FAMILY_MOMENT: return elements(x);
  case IR_FAMILY_SOFTMAX:
  case IR_FAMILY_NORM: return 4 * n;
  case IR_FAMILY_POINTWISE: return n;
  case IR_FAMILY_SET:
  case IR_FAMILY_CAST:
  case IR_FAMILY_BROADCAST:
  case IR_FAMILY_SQUEEZE:
  case IR_FAMILY_EXPAND:
  case IR_FAMILY_PERMUTE:
  case IR_FAMILY_RESHAPE:
  case IR_FAMILY_SLICE:
  case IR_FAMILY_PAD:
  case IR_FAMILY_CAT:
  case IR_FAMILY_SELECT:
  case IR_FAMILY_MAKER:
  case IR_FAMILY_GATHER:
  case IR_FAMILY_SCATTER:
  case IR_FAMILY_INDEX_SELECT: return 0;
  }
  return 0;
}

static double view_bytes(const rt_view *v) {
  return elements(v) * (double)ir_dtype_size_bytes(v->dtype);
}

double rt_task_bytes(const rt_plan *plan, const rt_task *task) {
  double bytes = view_bytes(&plan->views[task->result]);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    if (task->operands[k].kind != RT_OPERAND_VIEW) continue;
    bytes += view_bytes(&plan->views[task->operands[k].view]);
  }
  return bytes;
}

static void add_operand(const ir_func *h, ir_tensor t, strbuf *out) {
  if (t.id == 0) {
    strbuf_puts(out, "-");
    return;
  }
  const ir_tensor_data *d = ir_tensor_at(h, t);
  if (d->kind != IR_TENSOR_CONST) strbuf_puts(out, ir_tensor_name(h, t));
  else if (d->value.id) ir_print_scalar(h, d->value, out);
  else if (d->number.is_float) strbuf_double(out, d->number.f);
  else strbuf_int(out, d->number.i);
}

void rt_describe(const rt_plan *plan, uint32_t instr, strbuf *out) {
  const rt_instr *i = &plan->instrs[instr];
  if (i->kind == RT_WAIT) {
    strbuf_puts(out, "waits for ");
    if (i->other == 0) strbuf_puts(out, "main");
    else strbuf_printf(out, "stream %u", i->other - 1u);
    return;
  }
  const ir_func *h = plan->host;
  const ir_instr_data *d = h && i->origin ? ir_instr_at(h, (ir_instr){i->origin}) : NULL;
  if (!d || d->kind != IR_COMPUTE) {
    strbuf_printf(out, "%s", ir_op_info_of(plan->tasks[i->task].code)->name);
    return;
  }
  const ir_op_data *op = ir_op_at(h, d->op);
  strbuf_printf(out, "%s <- %s(", ir_tensor_name(h, d->tensor), ir_op_info_of(op->code)->name);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (k) strbuf_puts(out, ", ");
    add_operand(h, op->operands[k], out);
  }
  strbuf_putc(out, ')');
}
