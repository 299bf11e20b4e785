#include "ir/ir.h"

#include <math.h>
#include <string.h>

#include "ir/host.h"

void ir_module_init(ir_module *m, const allocator *memory) {
  *m = (ir_module){.src = {.name = "weir"}};
  arena_init(&m->memory, memory);
  strings_init(&m->names, &m->memory);
  ir_scalars_init(&m->scalars, &m->memory);
  diags_init(&m->errors, &m->memory, &m->src);
}

void ir_module_destroy(ir_module *m) {
  if (m->memory.memory) arena_destroy(&m->memory);
}

int64_t *ir_module_usual(const ir_module *m, arena *memory) {
  uint32_t n = m->scalars.symbols.len;
  int64_t *values = ARENA_ARRAY(memory, n + 1, int64_t);
  for (uint32_t i = 0; i < n; i++) {
    bool known = i < m->expected.len && m->expected.data[i] != IR_UNBOUND;
    values[i] = known ? m->expected.data[i] : IR_USUAL_EXTENT;
  }
  return values;
}

bool ir_module_expects(const ir_module *m, ir_scalar x, int64_t *value) {
  return ir_scalar_eval(&m->scalars, x, m->expected.data, m->expected.len, value);
}

/* Fills r->readers: r->n already counts the operations that read each tensor. */
static void list_readers(const ir_func *f, ir_reads *r, arena *memory) {
  uint32_t n_tensors = f->tensors.len;
  r->from = ARENA_ARRAY(memory, (size_t)n_tensors + 1, uint32_t);
  for (uint32_t t = 0; t < n_tensors; t++) r->from[t + 1] = r->from[t] + r->n[t];
  r->readers = ARENA_ARRAY(memory, r->from[n_tensors], ir_op);
  uint32_t *next = arena_copy(memory, r->from, n_tensors * sizeof *next);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++)
      r->readers[next[op->operands[k].id]++] = f->order.data[i];
  }
}

static ir_reads count_operands(const ir_func *f, arena *memory) {
  ir_reads r = {.n = ARENA_ARRAY(memory, f->tensors.len, uint32_t),
                .reader = ARENA_ARRAY(memory, f->tensors.len, ir_op)};
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      r.n[op->operands[k].id]++;
      r.reader[op->operands[k].id] = f->order.data[i];
    }
  }
  return r;
}

static void count_outputs(const ir_func *f, ir_reads *r) {
  for (uint32_t i = 0; i < f->outputs.len; i++) r->n[f->outputs.data[i].id]++;
}

ir_reads ir_func_reads(const ir_func *f, arena *memory) {
  ir_reads r = count_operands(f, memory);
  count_outputs(f, &r);
  return r;
}

ir_reads ir_func_readers(const ir_func *f, arena *memory) {
  ir_reads r = count_operands(f, memory);
  list_readers(f, &r, memory);
  count_outputs(f, &r);
  return r;
}

double ir_tensor_elements(const ir_func *f, ir_tensor t, const int64_t *values) {
  const ir_scalars *s = &f->module->scalars;
  ir_axis dims[IR_MAX_RANK];
  double n = 1;
  for (uint32_t d = ir_tensor_dims(f, t, dims); d-- > 0;) {
    int64_t size = 0;
    bool known = ir_scalar_eval(s, ir_axis_size(f, dims[d]), values, s->symbols.len, &size);
    n *= known ? (double)size : 0;
  }
  return n;
}

bool ir_op_has_bias(const ir_op_data *op) {
  return op->code == IR_OP_LINEAR && op->n_operands > 2 && op->operands[2].id;
}

bool ir_op_adds(const ir_op_data *op) { return op->code == IR_OP_ADD || op->code == IR_OP_SUB; }

bool ir_op_is_linear(const ir_op_data *op, uint32_t k) {
  static const ir_opcode in_first[] = {IR_OP_NEG,     IR_OP_DIV,     IR_OP_SUM,       IR_OP_MEAN,
                                       IR_OP_SQUEEZE, IR_OP_PERMUTE, IR_OP_TRANSPOSE, IR_OP_RESHAPE,
                                       IR_OP_SLICE,   IR_OP_SELECT};
  if (op->code == IR_OP_MUL) return true;
  if (ir_op_is_product(op->code)) return k < 2 && !ir_op_has_bias(op);
  for (uint32_t i = 0; k == 0 && i < sizeof in_first / sizeof *in_first; i++)
    if (op->code == in_first[i]) return true;
  return false;
}

ir_func *ir_module_find(const ir_module *m, const char *name) {
  ir_func *found = NULL;
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (strcmp(ir_name_text(f, f->name), name) != 0) continue;
    if (!found || f->kind == IR_FUNC_HOST) found = f;
  }
  return found;
}

/* 0.0 and 0 are the same default, -0.0 is not. */
static bool is_default_number(ir_number n, double value) {
  return ir_number_as_f64(n) == value && (!n.is_float || signbit(n.f) == signbit(value));
}

bool ir_attr_is_default(const ir_param *p, const ir_attr *a) {
  if (!a->given) return true;
  if (p->use != IR_USE_DEFAULT) return false;
  if (p->kind == IR_PARAM_NUMBER) return is_default_number(a->number, p->value);
  return (double)a->i == p->value;
}

const ir_attr *ir_op_attr(const ir_op_data *o, const char *name) {
  uint32_t i = 0;
  for (const ir_param *p = ir_op_info_of(o->code)->params; p->kind != IR_PARAM_END; p++) {
    if (p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS) continue;
    if (strcmp(p->name, name) == 0) return &o->attrs[i];
    i++;
  }
  impossible("the operation has no such attribute");
}

ir_tensor ir_op_operand(const ir_op_data *o, const char *name) {
  uint32_t i = 0;
  for (const ir_param *p = ir_op_info_of(o->code)->params; p->kind == IR_PARAM_TENSOR; p++, i++) {
    if (strcmp(p->name, name) == 0) return o->operands[i];
  }
  impossible("the operation has no such operand");
}

uint32_t ir_axes_dims(const ir_func *f, ir_axes axes, ir_axis dims[IR_MAX_RANK]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < axes.len; i++) {
    if (ir_axis_at(f, axes.data[i])->kind == IR_AXIS_REDUCTION) continue;
    check(n < IR_MAX_RANK);
    dims[n++] = axes.data[i];
  }
  return n;
}

uint32_t ir_tensor_dims(const ir_func *f, ir_tensor t, ir_axis dims[IR_MAX_RANK]) {
  return ir_axes_dims(f, ir_tensor_at(f, t)->defined.logical, dims);
}

bool ir_axes_streamed(const ir_func *f, ir_axes axes) {
  for (uint32_t i = 0; i < axes.len; i++)
    if (ir_axis_at(f, axes.data[i])->mark.kind == IR_MARK_STREAM) return true;
  return false;
}

bool ir_func_returns(const ir_func *f, ir_tensor t) {
  for (uint32_t i = 0; i < f->outputs.len; i++)
    if (IR_SAME(f->outputs.data[i], t)) return true;
  return false;
}

ir_scalar ir_axis_size(const ir_func *f, ir_axis a) {
  const ir_axis_data *d = ir_axis_at(f, a);
  return d->expanded.id ? d->expanded : d->extent;
}

const char *ir_mark_text(ir_mark m) {
  static const char *const mesh[IR_MESH_MAX_RANK] = {
      "mesh.x", "mesh.y", "mesh.z",  "mesh.3",  "mesh.4",  "mesh.5",  "mesh.6",  "mesh.7",
      "mesh.8", "mesh.9", "mesh.10", "mesh.11", "mesh.12", "mesh.13", "mesh.14", "mesh.15"};
  static const char *const stream[IR_FORM_COUNT] = {
      "stream",
#define FORM(id, word) "stream." word,
#include "ir/forms.def"
#undef FORM
  };
  switch (m.kind) {
  case IR_MARK_NONE: return "";
  case IR_MARK_SERIAL: return "serial";
  case IR_MARK_STREAM: return stream[m.form];
  case IR_MARK_MESH: return m.mesh_axis < IR_MESH_MAX_RANK ? mesh[m.mesh_axis] : "mesh.?";
  }
  return "";
}

ir_form ir_form_find(const char *word, size_t length) {
  static const char *const words[IR_FORM_COUNT] = {
      "",
#define FORM(id, word) word,
#include "ir/forms.def"
#undef FORM
  };
  for (uint32_t i = 1; i < IR_FORM_COUNT; i++) {
    if (strlen(words[i]) == length && memcmp(words[i], word, length) == 0) return (ir_form)i;
  }
  return IR_FORM_NONE;
}

/* ---- names ---- */

enum { KIND_SHIFT = 29 };

ir_name_entry ir_func_lookup(const ir_func *f, uint32_t name) {
  uint32_t packed = map_get(&f->names, name, 0);
  return (ir_name_entry){(ir_name_kind)(packed >> KIND_SHIFT), packed & ((1u << KIND_SHIFT) - 1)};
}

uint32_t ir_name_numbered(ir_module *m, const char *base, uint32_t k) {
  const char *text = arena_printf(&m->memory, "%s$%u", base, k);
  return strings_intern(&m->names, text, strlen(text));
}

uint32_t ir_func_fresh_name(const ir_func *f, uint32_t base) {
  for (uint32_t k = 1;; k++) {
    uint32_t name = ir_name_numbered(f->module, ir_name_text(f, base), k);
    if (ir_func_lookup(f, name).kind == IR_NAME_NONE) return name;
  }
}

void ir_func_declare(ir_func *f, uint32_t name, ir_name_entry entry) {
  check(entry.id < 1u << KIND_SHIFT);
  map_put(&f->names, name, ((uint32_t)entry.kind << KIND_SHIFT) | entry.id);
}

void ir_func_undeclare(ir_func *f, uint32_t name) { map_put(&f->names, name, 0); }

/* ---- equality under what is known ---- */

static ir_scalar learned(const void *context, uint32_t symbol) {
  const ir_func *f = context;
  return (ir_scalar){map_get(&f->learned, symbol, 0)};
}

/* Follows every symbol one step per round. Chains of equalities are short. */
ir_scalar ir_func_resolve(ir_func *f, ir_scalar x) {
  for (int round = 0; round < 64; round++) {
    ir_scalar next = ir_scalar_substitute(&f->module->scalars, x, learned, f);
    if (IR_SAME(next, x)) break;
    x = next;
  }
  return x;
}

ir_proof ir_func_equal(ir_func *f, ir_scalar a, ir_scalar b) {
  ir_proof direct = ir_scalar_eq(&f->module->scalars, a, b);
  if (direct == IR_TRUE || f->learned.len <= 1) return direct;
  return ir_scalar_eq(&f->module->scalars, ir_func_resolve(f, a), ir_func_resolve(f, b));
}

ir_proof ir_func_divides(ir_func *f, ir_scalar d, ir_scalar x) {
  ir_proof direct = ir_scalar_divides(&f->module->scalars, d, x);
  if (direct != IR_UNKNOWN || f->learned.len <= 1) return direct;
  return ir_scalar_divides(&f->module->scalars, ir_func_resolve(f, d), ir_func_resolve(f, x));
}

static bool learn_symbol(ir_func *f, ir_scalar a, ir_scalar b) {
  ir_scalars *s = &f->module->scalars;
  const ir_scalar_node *n = ir_scalar_node_of(s, a);
  if (n->kind != IR_SCALAR_SYMBOL || ir_scalar_mentions(s, b, (uint32_t)n->value)) return false;
  map_put(&f->learned, (uint64_t)n->value, b.id);
  return true;
}

void ir_func_learn(ir_func *f, ir_scalar a, ir_scalar b) {
  a = ir_func_resolve(f, a);
  b = ir_func_resolve(f, b);
  if (IR_SAME(a, b) || ir_scalar_is_overflow(a) || ir_scalar_is_overflow(b)) return;
  /* The later symbol is described by the earlier one. */
  ir_scalar first = a.id < b.id ? a : b, second = a.id < b.id ? b : a;
  if (!learn_symbol(f, second, first)) (void)learn_symbol(f, first, second);
}

/* Describes x as d times an anonymous symbol. */
void ir_func_learn_multiple(ir_func *f, ir_scalar d, ir_scalar x) {
  ir_scalars *s = &f->module->scalars;
  d = ir_func_resolve(f, d);
  x = ir_func_resolve(f, x);
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  if (n.kind != IR_SCALAR_SYMBOL || ir_scalar_is_overflow(d)) return;
  if (ir_scalar_mentions(s, d, (uint32_t)n.value)) return;
  ir_scalar times = ir_scalar_symbol(s, (ir_symbol_data){.kind = IR_SYMBOL_EXTENT});
  (void)learn_symbol(f, x, ir_scalar_mul(s, d, times));
}

/* ---- text for messages and printing ---- */

static const char *name_of_tensor(const void *context, uint32_t tensor) {
  const ir_func *f = context;
  if (f->host && f->host->named_by) f = f->host->named_by;
  return ir_tensor_name(f, (ir_tensor){tensor});
}

void ir_print_scalar(const ir_func *f, ir_scalar x, strbuf *out) {
  ir_scalar_print(&f->module->scalars, &f->module->names, x, name_of_tensor, f, out);
}

const char *ir_scalar_text(ir_func *f, ir_scalar x) {
  strbuf out;
  strbuf_init(&out, &f->module->memory);
  ir_print_scalar(f, x, &out);
  return out.data;
}

const char *ir_type_text(ir_func *f, ir_tensor t) {
  strbuf out;
  strbuf_init(&out, &f->module->memory);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, t, dims);
  strbuf_puts(&out, ir_dtype_text(ir_tensor_at(f, t)->dtype));
  for (uint32_t i = 0; i < rank; i++) {
    strbuf_puts(&out, i ? ", " : "[");
    ir_print_scalar(f, ir_axis_size(f, dims[i]), &out);
  }
  if (rank) strbuf_putc(&out, ']');
  return out.data;
}

/* Is it an extent that the function has a name for? */
static bool declares(const ir_func *f, uint32_t symbol) {
  const ir_scalars *s = &f->module->scalars;
  const ir_symbol_data *d = &s->symbols.data[symbol];
  if (d->kind != IR_SYMBOL_EXTENT || !d->name) return false;
  ir_name_entry e = ir_func_lookup(f, d->name);
  if (e.kind != IR_NAME_EXTENT) return false;
  const ir_scalar_node *n = ir_scalar_node_of(s, (ir_scalar){e.id});
  return n->kind == IR_SCALAR_SYMBOL && n->value == symbol;
}

bool ir_func_has_capacity(const ir_func *f, uint32_t symbol) {
  return f->module->scalars.symbols.data[symbol].capacity && declares(f, symbol);
}

bool ir_func_has_multiple(const ir_func *f, uint32_t symbol) {
  return f->module->scalars.symbols.data[symbol].multiple && declares(f, symbol);
}
