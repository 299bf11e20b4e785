/* Nodes of bodies as text. */
#include <stdlib.h>
#include <string.h>

#include "codegen/body_internal.h"

/* ---- walks ---- */
static uint32_t walk_of(cg_walks *x, const cg_view *v, uint32_t rank) {
  for (uint32_t i = 0; i < x->n; i++)
    if (memcmp(x->views[i]->strides, v->strides, rank * sizeof *v->strides) == 0) return i;
  if (x->n < CG_MAX_VIEWS) x->views[x->n] = v;
  return x->n++;
}

bool cg_walks_find(cg_walks *x, const cg_body *b, arena *memory) {
  *x = (cg_walks){.of_node = ARENA_ARRAY(memory, b->nodes.len + (size_t)1, uint32_t)};
  for (uint32_t i = 0; i < b->n_outputs; i++)
    x->of_output[i] = walk_of(x, &b->outputs[i].view, b->rank);
  for (uint32_t i = 0; i < b->nodes.len; i++) {
    const cg_node *n = &b->nodes.data[i];
    if (n->kind == CG_NODE_LOAD || n->kind == CG_NODE_AT)
      x->of_node[i] = walk_of(x, &n->view, b->rank);
    if (x->n > CG_MAX_VIEWS) return false;
  }
  return x->n <= CG_MAX_VIEWS;
}

int64_t cg_body_reach(const cg_body *b) {
  int64_t most = 0;
  for (uint32_t i = 0; i < b->nodes.len; i++) {
    const cg_node *n = &b->nodes.data[i];
    int64_t reach = llabs(n->first) + n->n + llabs(n->low) + llabs(n->high);
    for (uint32_t t = 0; t < n->n_terms; t++) {
      const cg_node *from = &b->nodes.data[n->terms[t].node];
      int64_t range = from->kind == CG_NODE_DIV ? from->high : from->n;
      reach += range * llabs(n->terms[t].scale);
    }
    if (reach > most) most = reach;
  }
  return most;
}

/* ---- beginning ---- */
void cg_values_begin(cg_values *x, cg_writer *w, const cg_body *b) {
  *x = (cg_values){.w = w, .b = b};
  x->address = ARENA_ARRAY(w->memory, b->nodes.len + (size_t)1, uint32_t);
  x->texts = ARENA_ARRAY(w->memory, b->nodes.len + (size_t)1, const char *);
  x->stored = ARENA_ARRAY(w->memory, b->nodes.len + (size_t)1, const char *);
  x->bits = ARENA_ARRAY(w->memory, b->nodes.len + (size_t)1, const char *);
  x->raw = ARENA_ARRAY(w->memory, b->nodes.len + (size_t)1, const char *);
  for (uint32_t i = 0; i < b->n_outputs; i++) x->out[i] = cg_address(w, &b->outputs[i].view);
  for (uint32_t i = 0; i < b->nodes.len; i++) {
    const cg_node *n = &b->nodes.data[i];
    if (n->kind == CG_NODE_LOAD) x->address[i] = cg_address(w, &n->view);
    if (n->kind == CG_NODE_INSIDE) x->address[i] = cg_error_record(w, n->error);
  }
}

/* ---- values ---- */
static const char *operand(const cg_values *x, const cg_node *n, uint32_t k) {
  const char *text = x->texts[n->operands[k]];
  check(text != NULL);
  return text;
}

static ir_dtype dtype_of(const cg_values *x, uint32_t node) { return x->b->nodes.data[node].dtype; }

const char *cg_place_text(const cg_values *x, uint32_t node, const char *at) {
  const cg_node *n = &x->b->nodes.data[node];
  cg_writer *w = x->w;
  const char *text = at;
  for (uint32_t t = 0; t < n->n_terms; t++)
    text = cg_text(w, "%s + (ix)%s * %s", text, x->texts[n->terms[t].node],
                   cg_number_text(w, n->terms[t].scale));
  if (n->kind == CG_NODE_AT) text = cg_text(w, "%s + %s", text, cg_number_text(w, n->first));
  return text;
}

static const char *load_text(const cg_values *x, uint32_t node, const char *at) {
  const cg_node *n = &x->b->nodes.data[node];
  cg_writer *w = x->w;
  const char *text = cg_text(w, "%s(((const %s *)p.at[%u])[%s])", cg_get(w, n->dtype),
                             cg_storage(n->dtype), x->address[node], cg_place_text(x, node, at));
  if (n->guard == CG_NO_NODE) return text;
  return cg_text(w, "%s ? %s : 0", x->texts[n->guard], text);
}

static const char *divided_text(const cg_values *x, const cg_node *n) {
  cg_writer *w = x->w;
  const char *value = cg_text(w, "(ix)%s", operand(x, n, 0)), *by = cg_number_text(w, n->n);
  const char *quotient =
      w->wide ? cg_text(w, "(%s / %s)", value, by)
              : cg_text(w, "weir_div(%s, n.at[%u])", value, cg_number(w, cg_magic_of(n->n)));
  if (n->kind == CG_NODE_DIV) return cg_text(w, "(long long)%s", quotient);
  return cg_text(w, "(long long)(%s - %s * %s)", value, quotient, by);
}

static const char *inside_text(const cg_values *x, uint32_t node) {
  const cg_node *n = &x->b->nodes.data[node];
  cg_writer *w = x->w;
  const char *index = cg_convert(w, IR_I64, dtype_of(x, n->operands[0]), operand(x, n, 0));
  const char *guard = n->guard == CG_NO_NODE ? "" : cg_text(w, "%s && ", x->texts[n->guard]);
  uint32_t count = cg_number(w, n->n);
  return cg_text(w, "%sweir_inside(%s, n.at[%u], p.at[%u]) ? %s : 0", guard, index, count,
                 x->address[node], index);
}

static const char *range_text(const cg_values *x, const cg_node *n) {
  cg_writer *w = x->w;
  const char *value = operand(x, n, 0);
  uint32_t low = cg_number(w, n->low), high = cg_number(w, n->high);
  return cg_text(w, "%s >= n.at[%u] && %s < n.at[%u]", value, low, value, high);
}

/* Is a value of f32 rounded to 16 bits? */
static bool is_rounded(ir_dtype to, ir_dtype from) {
  bool is_float = from == IR_F32 || from == IR_F16 || from == IR_BF16;
  return (to == IR_F16 || to == IR_BF16) && is_float;
}

/* A choice between two numbers is rounded to the choice between the rounded numbers: so their unrounded values can be
 * used. */
static const char *raw_text(const cg_values *x, const cg_node *n, const char *value) {
  if (n->step.code != IR_OP_WHERE) return value;
  const char *from[2];
  for (uint32_t k = 0; k < 2; k++) {
    uint32_t i = n->operands[1 + k];
    from[k] = x->raw[i] && dtype_of(x, i) == n->dtype ? x->raw[i] : x->texts[i];
    if (*cg_letter(dtype_of(x, i)) != 'f') return value;
  }
  return cg_text(x->w, "(%s ? %s : %s)", operand(x, n, 0), from[0], from[1]);
}

/* A uniform can be compared with a constant by its random bits, which grow with it: how many of their
 * values are below the limit. 0: it is no such comparison, or all or none are. */
static uint32_t units_below(const cg_values *x, const cg_node *n, uint32_t side) {
  const cg_node *drawn = &x->b->nodes.data[n->operands[side]];
  const cg_node *limit = &x->b->nodes.data[n->operands[1 - side]];
  bool after = side == 1; /* limit < uniform is !(uniform <= limit) */
  bool reaches = n->step.code == IR_OP_LE || n->step.code == IR_OP_GT;
  if (!x->bits[n->operands[side]] || limit->kind != CG_NODE_CONSTANT || !limit->number.is_float)
    return 0;
  if (limit->dtype != n->step.compute || drawn->dtype != n->step.compute) return 0;
  uint32_t units = cg_units_below(drawn->dtype, limit->number.f, reaches != after);
  return units < 1 << 24 ? units : 0;
}

static bool put_drawn(cg_values *x, const cg_node *n, const char *name) {
  ir_opcode code = n->kind == CG_NODE_STEP ? n->step.code : IR_OP_UNIFORM;
  bool less = code == IR_OP_LT || code == IR_OP_LE, more = code == IR_OP_GT || code == IR_OP_GE;
  for (uint32_t side = 0; side < 2 && (less || more); side++) {
    uint32_t units = units_below(x, n, side);
    if (units == 0) continue;
    uint32_t limit = cg_number(x->w, (int64_t)units << 8);
    cg_line(x->w, "    const int %s = %s %s (unsigned)n.at[%u];\n", name,
            x->bits[n->operands[side]], less == (side == 0) ? "<" : ">=", limit);
    return true;
  }
  return false;
}

/* The value as an expression. For a step, writes the lines that compute it first. */
static const char *value_text(cg_values *x, uint32_t node, const char *name, const char *at) {
  const cg_node *n = &x->b->nodes.data[node];
  cg_writer *w = x->w;
  switch (n->kind) {
  case CG_NODE_LOAD: return load_text(x, node, at);
  case CG_NODE_AT: /* widened first, so that elements differ by a constant */
    return cg_text(w, "((long long)%s)", cg_place_text(x, node, at));
  case CG_NODE_DIV:
  case CG_NODE_MOD: return divided_text(x, n);
  case CG_NODE_INSIDE: return inside_text(x, node);
  case CG_NODE_RANGE: return range_text(x, n);
  case CG_NODE_BOTH: return cg_text(w, "%s && %s", operand(x, n, 0), operand(x, n, 1));
  case CG_NODE_CHOOSE:
    return cg_text(w, "%s ? %s : %s", operand(x, n, 0), operand(x, n, 1), operand(x, n, 2));
  case CG_NODE_CAST:
    if (is_rounded(n->dtype, dtype_of(x, n->operands[0]))) x->raw[node] = operand(x, n, 0);
    return cg_convert(w, n->dtype, dtype_of(x, n->operands[0]), operand(x, n, 0));
  case CG_NODE_STEP: break;
  case CG_NODE_CONSTANT:
  case CG_NODE_KEY:
  case CG_NODE_FOLD: impossible("a value that is computed elsewhere");
  }
  const char *operands[CG_MAX_OPERANDS] = {NULL}, *value = cg_text(w, "s%s", name);
  for (uint32_t k = 0; k < n->n_operands; k++) {
    bool converts = n->step.code != IR_OP_UNIFORM; /* uniform takes its operands as they are */
    operands[k] =
        converts ? cg_convert(w, n->step.compute, dtype_of(x, n->operands[k]), operand(x, n, k))
                 : operand(x, n, k);
  }
  if (!put_drawn(x, n, value)) cg_put_step(w, &n->step, value, operands);
  if (n->step.code == IR_OP_UNIFORM && n->step.quick) x->bits[node] = cg_unit_bits(w, value);
  if (is_rounded(n->dtype, cg_step_value(&n->step))) x->raw[node] = raw_text(x, n, value);
  if (n->dtype == IR_BF16 && x->raw[node]) return cg_text(w, "weir_round_bf16(%s)", value);
  const char *bits = cg_text(w, "r%u", node);
  cg_line(w, "    const %s %s = %s(%s);\n", cg_storage(n->dtype), bits,
          cg_of(w, n->dtype, cg_step_value(&n->step)), value);
  x->stored[node] = bits;
  return cg_text(w, "%s(%s)", cg_get(w, n->dtype), bits);
}

/* A float is passed as its bits, so that a loop need not convert it. */
static const char *constant_text(cg_writer *w, const cg_node *n) {
  const char *type = cg_native(n->dtype);
  if (!n->number.is_float) return cg_text(w, "((%s)n.at[%u])", type, cg_number(w, n->number.i));
  if (strcmp(type, "float") != 0) return cg_text(w, "((%s)%s)", type, cg_f64_text(w, n->number.f));
  float value = (float)n->number.f;
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return cg_text(w, "__int_as_float((int)n.at[%u])", cg_number(w, bits));
}

void cg_put_node(cg_values *x, uint32_t node, const char *name, const char *at, bool assigned) {
  const cg_node *n = &x->b->nodes.data[node];
  cg_writer *w = x->w;
  const char *plain = cg_text(w, "t%u", node);
  if (n->kind == CG_NODE_CONSTANT) {
    x->texts[node] = constant_text(w, n);
    return;
  }
  if (n->kind == CG_NODE_KEY) {
    cg_line(w, "  const unsigned long long %s = %s;\n", plain, cg_key_text(w, n->number.i));
    x->texts[node] = plain;
    return;
  }
  if (assigned) cg_line(w, "    {\n");
  const char *value = value_text(x, node, plain, at);
  if (assigned) x->stored[node] = x->raw[node] = x->bits[node] = NULL; /* out of scope */
  if (assigned) cg_line(w, "    %s = %s;\n    }\n", name, value);
  else cg_line(w, "    const %s %s = %s;\n", cg_native(n->dtype), name, value);
  x->texts[node] = name;
}

const char *cg_stored_text(const cg_values *x, uint32_t node, ir_dtype t) {
  if (x->stored[node] && dtype_of(x, node) == t) return x->stored[node];
  if (t == IR_BF16 && dtype_of(x, node) == t)
    return cg_text(x->w, "weir_cut_bf16(%s)", x->texts[node]);
  return cg_text(x->w, "%s(%s)", cg_of(x->w, t, dtype_of(x, node)), x->texts[node]);
}

static bool is_short_float(ir_dtype t) { return t == IR_F16 || t == IR_BF16; }

void cg_put_result_begin(const cg_values *x, uint32_t r, uint32_t width) {
  cg_line(x->w, "    w%u y%u;\n", r, r);
  if (is_short_float(x->b->outputs[r].view.dtype) && width > 1)
    cg_line(x->w, "    float f%u[%u] = {0};\n", r, width);
}

void cg_put_result(cg_values *x, uint32_t r, uint32_t width) {
  const cg_output *o = &x->b->outputs[r];
  ir_dtype t = o->view.dtype, from = dtype_of(x, o->node);
  const char *raw = from == t ? x->raw[o->node] : from == IR_F32 ? x->texts[o->node] : NULL;
  x->paired[r] = is_short_float(t) && width > 1 && raw;
  if (x->paired[r]) cg_line(x->w, "      f%u[e] = %s;\n", r, raw);
  else cg_line(x->w, "      y%u.e[e] = %s;\n", r, cg_stored_text(x, o->node, t));
}

void cg_put_result_end(const cg_values *x, uint32_t r, uint32_t width) {
  cg_writer *w = x->w;
  if (!x->paired[r]) return;
  cg_line(w, "#pragma unroll\n    for (int e = 0; e < %u; e += 2)\n", width);
  cg_line(w, "      y%u.h[e / 2] = weir_pair_%s(f%u[e], f%u[e + 1]);\n", r,
          x->b->outputs[r].view.dtype == IR_F16 ? "f16" : "bf16", r, r);
}

void cg_mark_cone(const cg_values *x, uint32_t target, bool *marks) {
  const cg_node *n = &x->b->nodes.data[target];
  if (marks[target] || x->texts[target]) return;
  marks[target] = true;
  for (uint32_t k = 0; k < n->n_operands; k++) cg_mark_cone(x, n->operands[k], marks);
  for (uint32_t t = 0; t < n->n_terms; t++) cg_mark_cone(x, n->terms[t].node, marks);
  bool guarded = n->kind == CG_NODE_LOAD || n->kind == CG_NODE_INSIDE;
  if (guarded && n->guard != CG_NO_NODE) cg_mark_cone(x, n->guard, marks);
}
