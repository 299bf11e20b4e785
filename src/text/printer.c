#include "text/printer.h"
#include "text/extents.h"
#include "text/text.h"

/* ---- pieces ---- */
static void put_name(const ir_func *f, uint32_t name, strbuf *out) {
  strbuf_puts(out, ir_name_text(f, name));
}

static void put_bool(bool value, strbuf *out) { strbuf_puts(out, value ? "true" : "false"); }

static void put_number(ir_number n, strbuf *out) {
  if (n.is_float) strbuf_double(out, n.f);
  else strbuf_int(out, n.i);
}

void text_put_ints(const int64_t *list, uint32_t n, strbuf *out) {
  strbuf_putc(out, '[');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_puts(out, ", ");
    strbuf_int(out, list[i]);
  }
  strbuf_putc(out, ']');
}

static void put_bools(const int64_t *list, uint32_t n, strbuf *out) {
  strbuf_putc(out, '[');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_puts(out, ", ");
    put_bool(list[i] != 0, out);
  }
  strbuf_putc(out, ']');
}

void text_put_scalars(const ir_func *f, const ir_scalar *list, uint32_t n, strbuf *out) {
  strbuf_putc(out, '[');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_puts(out, ", ");
    if (list[i].id) ir_print_scalar(f, list[i], out);
    else strbuf_putc(out, '?');
  }
  strbuf_putc(out, ']');
}

/* ---- meshes and inputs ---- */
void text_put_mesh(const ir_func *f, const ir_mesh_data *m, strbuf *out) {
  strbuf_puts(out, "mesh ");
  put_name(f, m->name, out);
  strbuf_puts(out, " = ");
  text_put_ints(m->shape, m->rank, out);
  if (m->listed) {
    strbuf_puts(out, " of {");
    for (int64_t i = 0; i < m->n_devices; i++) {
      if (i) strbuf_puts(out, ", ");
      strbuf_int(out, m->devices[i]);
    }
    strbuf_putc(out, '}');
  }
}

void text_print_mesh(const ir_func *f, ir_mesh m, strbuf *out) {
  text_put_mesh(f, ir_mesh_at(f, m), out);
}

/* The extent that dimension k of the tensor itself declares as `?`. */
static bool is_own(const ir_func *f, ir_scalar x, ir_tensor t, uint32_t k) {
  const ir_scalars *s = &f->module->scalars;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  if (n->kind != IR_SCALAR_SYMBOL) return false;
  const ir_symbol_data *d = &s->symbols.data[n->value];
  return d->name == 0 && d->tensor == t.id && d->dim == k;
}

void text_put_type(const ir_func *f, ir_dtype dtype, const ir_scalar *extents, uint32_t rank,
                   strbuf *out) {
  strbuf_puts(out, " : ");
  strbuf_puts(out, ir_dtype_text(dtype));
  if (rank) text_put_scalars(f, extents, rank, out);
}

static void put_input(const ir_func *f, ir_tensor t, strbuf *out) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  ir_axis dims[IR_MAX_RANK];
  ir_scalar extents[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(f, d->defined.logical, dims);
  for (uint32_t i = 0; i < rank; i++) {
    extents[i] = ir_axis_size(f, dims[i]);
    if (is_own(f, extents[i], t, i)) extents[i] = (ir_scalar){0};
  }
  strbuf_puts(out, "  ");
  put_name(f, d->name, out);
  text_put_type(f, d->dtype, extents, rank, out);
  strbuf_putc(out, '\n');
}

/* ---- operations ---- */
static bool is_const(const ir_func *f, ir_tensor t) {
  return ir_tensor_at(f, t)->kind == IR_TENSOR_CONST;
}

/* In expressions, extents take + - * only; everything else is written inside extent( ). */
static bool is_polynomial(const ir_scalars *s, ir_scalar x) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  if (n->kind == IR_SCALAR_SYMBOL || n->kind == IR_SCALAR_CONST) return true;
  if ((n->kind != IR_SCALAR_ADD && n->kind != IR_SCALAR_MUL) || n->size > IR_SCALAR_LARGE)
    return false;
  return is_polynomial(s, n->a) && is_polynomial(s, n->b);
}

/* Between operators a sum of extents needs parentheses. */
static void put_extent(const ir_func *f, ir_scalar x, bool between, strbuf *out) {
  const ir_scalars *s = &f->module->scalars;
  ir_scalar_kind kind = ir_scalar_node_of(s, x)->kind;
  bool atom = kind == IR_SCALAR_SYMBOL || kind == IR_SCALAR_CONST;
  bool wrap = !is_polynomial(s, x), parens = wrap || (between && !atom);
  if (wrap) strbuf_puts(out, "extent");
  if (parens) strbuf_putc(out, '(');
  ir_print_scalar(f, x, out);
  if (parens) strbuf_putc(out, ')');
}

static void put_operand(const ir_func *f, ir_tensor t, bool between, strbuf *out) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  if (d->kind != IR_TENSOR_CONST) {
    put_name(f, d->name, out);
  } else if (!d->value.id) {
    put_number(d->number, out);
  } else {
    put_extent(f, d->value, between, out);
  }
}

static void put_attr(const ir_func *f, const ir_param *q, const ir_attr *a, strbuf *out) {
  switch (q->kind) {
  case IR_PARAM_INT: strbuf_int(out, a->i); return;
  case IR_PARAM_INTS: text_put_ints(a->ints, a->len, out); return;
  case IR_PARAM_BOOL: put_bool(a->i != 0, out); return;
  case IR_PARAM_BOOLS: put_bools(a->ints, a->len, out); return;
  case IR_PARAM_NUMBER: put_number(a->number, out); return;
  case IR_PARAM_DTYPE: strbuf_puts(out, ir_dtype_text((ir_dtype)a->i)); return;
  case IR_PARAM_SCALAR: ir_print_scalar(f, a->scalar, out); return;
  case IR_PARAM_SCALARS: text_put_scalars(f, a->scalars, a->len, out); return;
  case IR_PARAM_CHOICE: strbuf_puts(out, q->choices[a->i]); return;
  case IR_PARAM_END:
  case IR_PARAM_TENSOR:
  case IR_PARAM_TENSORS: break;
  }
  check(false);
}

/* The arguments of a call while they are printed. */
typedef struct arguments {
  const ir_func *f;
  strbuf *out;
  bool any; /* one is printed */
  bool gap; /* one was left out: the rest needs names */
} arguments;

static void begin_argument(arguments *as, const char *name, bool positional) {
  if (as->any) strbuf_puts(as->out, ", ");
  as->any = true;
  if (positional && !as->gap) return;
  strbuf_puts(as->out, name);
  strbuf_putc(as->out, '=');
  as->gap = true;
}

static void put_operand_argument(arguments *as, const ir_param *q, ir_tensor t) {
  if (!t.id) {
    as->gap = true;
    return;
  }
  begin_argument(as, q->name, true);
  put_operand(as->f, t, false, as->out);
}

static void put_attr_argument(arguments *as, const ir_param *q, const ir_attr *a) {
  if (ir_attr_is_default(q, a)) {
    as->gap = true;
    return;
  }
  begin_argument(as, q->name, q->positional);
  put_attr(as->f, q, a, as->out);
}

static void put_call(const ir_func *f, const ir_op_data *o, strbuf *out) {
  const ir_op_info *info = ir_op_info_of(o->code);
  arguments as = {.f = f, .out = out};
  uint32_t operand = 0, attr = 0;
  strbuf_puts(out, info->name);
  strbuf_putc(out, '(');
  for (const ir_param *q = info->params; q->kind != IR_PARAM_END; q++) {
    if (q->kind == IR_PARAM_TENSORS) {
      while (operand < o->n_operands) put_operand_argument(&as, q, o->operands[operand++]);
    } else if (q->kind == IR_PARAM_TENSOR) {
      put_operand_argument(&as, q, o->operands[operand++]);
    } else {
      put_attr_argument(&as, q, &o->attrs[attr++]);
    }
  }
  strbuf_putc(out, ')');
}

/* An operator between two constants would be folded when read back, so it stays a call. */
void text_put_expression(const ir_func *f, const ir_op_data *o, strbuf *out) {
  const char *infix = ir_op_infix(o->code);
  if (!infix || (is_const(f, o->operands[0]) && is_const(f, o->operands[1]))) {
    put_call(f, o, out);
    return;
  }
  put_operand(f, o->operands[0], true, out);
  strbuf_putc(out, ' ');
  strbuf_puts(out, infix);
  strbuf_putc(out, ' ');
  put_operand(f, o->operands[1], true, out);
}

static void put_result(const ir_func *f, ir_tensor t, strbuf *out) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  put_name(f, d->name, out);
  if (!d->stated) return;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(f, d->defined.logical, dims);
  text_put_type(f, d->dtype, d->stated_extents, rank, out);
}

static void put_op(const ir_func *f, const ir_op_data *o, strbuf *out) {
  for (uint32_t k = 0; k < ir_op_n_results(o); k++) {
    if (k) strbuf_puts(out, ", ");
    put_result(f, ir_op_result(o, k), out);
  }
  strbuf_puts(out, " = ");
  text_put_expression(f, o, out);
}

/* ---- the schedule ---- */
void text_put_mesh_axis(uint32_t axis, strbuf *out) {
  if (axis < 3) strbuf_putc(out, "xyz"[axis]);
  else strbuf_int(out, axis);
}

static void put_factor(const ir_func *f, const ir_stmt *s, strbuf *out) {
  if (!s->factor_is_mesh) {
    ir_print_scalar(f, s->factor, out);
    return;
  }
  put_name(f, ir_mesh_at(f, s->mesh)->name, out);
  if (!s->mesh_axis_named) return;
  strbuf_putc(out, '.');
  text_put_mesh_axis(s->mesh_axis, out);
}

static void put_split(const ir_func *f, const ir_stmt *s, const char *name, strbuf *out) {
  strbuf_puts(out, name);
  strbuf_int(out, s->axis);
  strbuf_puts(out, ", ");
  if (s->kind == IR_STMT_CHUNK_SPLIT) text_put_ints(s->list, s->n_list, out);
  else put_factor(f, s, out);
}

static void put_reorder(const ir_stmt *s, strbuf *out) {
  strbuf_puts(out, ".reorder(");
  for (uint32_t i = 0; i + 1 < s->n_list; i += 2) {
    if (i) strbuf_puts(out, ", ");
    strbuf_int(out, s->list[i]);
    strbuf_puts(out, " -> ");
    strbuf_int(out, s->list[i + 1]);
  }
}

static void put_swizzle(const ir_stmt *s, strbuf *out) {
  strbuf_puts(out, ".swizzle(");
  strbuf_int(out, s->axis);
  strbuf_puts(out, ", mesh.");
  text_put_mesh_axis(s->mesh_axis, out);
}

/* `T.method(` and its arguments; the caller closes. */
static void put_method(const ir_func *f, const ir_stmt *s, strbuf *out) {
  switch (s->kind) {
  case IR_STMT_SPLIT: put_split(f, s, ".split(", out); return;
  case IR_STMT_OUTER_SPLIT:
  case IR_STMT_CHUNK_SPLIT: put_split(f, s, ".outer_split(", out); return;
  case IR_STMT_MERGE:
    strbuf_puts(out, ".merge(");
    strbuf_int(out, s->axis);
    return;
  case IR_STMT_REORDER: put_reorder(s, out); return;
  case IR_STMT_SWIZZLE: put_swizzle(s, out); return;
  case IR_STMT_RFACTOR:
    strbuf_puts(out, ".rfactor(");
    text_put_ints(s->list, s->n_list, out);
    return;
  case IR_STMT_MEMORY:
    strbuf_puts(out, s->memory == IR_MEMORY_GLOBAL ? ".memory(global" : ".memory(symmetric");
    return;
  case IR_STMT_ALLOCATE:
    strbuf_puts(out, ".allocate(");
    text_put_ints(s->list, s->n_list, out);
    return;
  case IR_STMT_ALLOCATE_AS_LOOP: strbuf_puts(out, ".allocate_as_loop("); return;
  case IR_STMT_CONTIGUITY:
    strbuf_puts(out, ".contiguity(");
    put_bools(s->list, s->n_list, out);
    return;
  case IR_STMT_SHRINK: strbuf_puts(out, ".shrink("); return;
  case IR_STMT_ON:
  case IR_STMT_MARK: break;
  }
  check(false);
}

void text_print_stmt(const ir_func *f, const ir_stmt *s, strbuf *out) {
  if (s->kind == IR_STMT_RFACTOR) {
    put_name(f, s->result.name, out);
    strbuf_puts(out, " = ");
  }
  for (uint32_t i = 0; i < s->n_targets; i++) {
    if (i) strbuf_puts(out, ", ");
    put_name(f, s->targets[i].name, out);
  }
  if (s->kind == IR_STMT_ON) {
    strbuf_puts(out, " on ");
    put_name(f, ir_mesh_at(f, s->mesh)->name, out);
  } else if (s->kind == IR_STMT_MARK) {
    strbuf_putc(out, '[');
    strbuf_int(out, s->axis);
    strbuf_puts(out, "] = ");
    strbuf_puts(out, ir_mark_text(s->mark));
  } else {
    put_method(f, s, out);
    strbuf_putc(out, ')');
  }
}

/* The fusion to print, and the one whose places are set to those in the text; NULL: none. */
typedef struct fusion_text {
  const ir_func *f;
  ir_func *placed;
} fusion_text;

/* What was printed since `begin`. */
static loc place_since(size_t begin, const strbuf *out) {
  return (loc){(uint32_t)begin, (uint32_t)(out->len - begin), true};
}

static void put_schedule(const fusion_text *t, strbuf *out) {
  const ir_func *f = t->f;
  if (f->statements.len == 0) return;
  strbuf_puts(out, "  schedule {\n");
  for (uint32_t i = 0; i < f->statements.len; i++) {
    strbuf_puts(out, "    ");
    size_t begin = out->len;
    text_print_stmt(f, &f->statements.data[i], out);
    if (t->placed) t->placed->statements.data[i].at = place_since(begin, out);
    strbuf_putc(out, '\n');
  }
  strbuf_puts(out, "  }\n");
}

static void put_ops(const fusion_text *t, strbuf *out) {
  for (uint32_t i = 0; i < t->f->order.len; i++) {
    ir_op_data *o = ir_op_at(t->f, t->f->order.data[i]);
    strbuf_puts(out, "  ");
    size_t begin = out->len;
    put_op(t->f, o, out);
    if (t->placed) o->at = place_since(begin, out);
    strbuf_putc(out, '\n');
  }
}

/* ---- functions and modules ---- */
static void put_return(const ir_func *f, strbuf *out) {
  if (f->outputs.len == 0) return;
  strbuf_puts(out, "  return ");
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    if (i) strbuf_puts(out, ", ");
    strbuf_puts(out, ir_tensor_name(f, f->outputs.data[i]));
  }
  strbuf_putc(out, '\n');
}

/* `extent s <= 8192` and the like, for the extents that inputs declare, in their order. */
static void put_capacities(const ir_func *f, strbuf *out) {
  const ir_scalars *s = &f->module->scalars;
  for (uint32_t i = 0; i < s->symbols.len; i++) {
    const ir_symbol_data *d = &s->symbols.data[i];
    bool sides[] = {ir_func_has_capacity(f, i), ir_func_has_multiple(f, i)};
    for (int k = 0; k < 2; k++) {
      if (!sides[k]) continue;
      strbuf_puts(out, "  extent ");
      put_name(f, d->name, out);
      if (k == 0) strbuf_printf(out, " <= %lld\n", (long long)d->capacity);
      else strbuf_printf(out, " %% %lld == 0\n", (long long)d->multiple);
    }
  }
}

static void put_fusion(void *context, strbuf *out) {
  const fusion_text *t = context;
  const ir_func *f = t->f;
  strbuf_puts(out, "fusion ");
  put_name(f, f->name, out);
  strbuf_puts(out, " {\n");
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    strbuf_puts(out, "  ");
    text_put_mesh(f, &f->meshes.data[i], out);
    strbuf_putc(out, '\n');
  }
  for (uint32_t i = 0; i < f->inputs.len; i++) put_input(f, f->inputs.data[i], out);
  put_capacities(f, out);
  text_put_extents(f, out);
  put_ops(t, out);
  put_return(f, out);
  put_schedule(t, out);
  strbuf_puts(out, "}\n");
}

void text_print_func(const ir_func *f, strbuf *out) {
  if (f->kind == IR_FUNC_HOST) text_print_host(f, out);
  else text_print_named(f, put_fusion, &(fusion_text){f, NULL}, out);
}

void text_print_placed(ir_func *f, strbuf *out) {
  text_print_named(f, put_fusion, &(fusion_text){f, f}, out);
  for (uint32_t i = 0; i < f->constraints.len; i++)
    if (f->constraints.data[i].op.id)
      f->constraints.data[i].at = ir_op_at(f, f->constraints.data[i].op)->at;
}

void text_print_module(const ir_module *m, strbuf *out) {
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    if (i) strbuf_putc(out, '\n');
    text_print_func(m->funcs.data[i], out);
  }
}
