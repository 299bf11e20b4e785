/* Operations that work element by element, reductions and makers; and which file makes the rest. */
#include <math.h>
#include <stdio.h>

#include "gen_model.h"
#include "ir/fold.h"

/* ---- numbers ---- */
typedef struct number {
  bool is_number, is_fraction;
  char text[8];
  double value;
} number;

/* A number; as an operand it may also be an extent's name, or negative. */
static number random_number(model *m, bool integer_only, bool as_operand) {
  static const char *const fractions[] = {"0.5", "1.5", "2.0", "0.25", "1e-3", "3e2"};
  static const double values[] = {0.5, 1.5, 2, 0.25, 1e-3, 3e2};
  number n = {.is_number = true};
  const model_dim *symbol = m->n_symbols ? &m->symbols[below(m, m->n_symbols)] : NULL;
  if (as_operand && symbol && chance(m, 8)) {
    n.value = (double)symbol->size;
    snprintf(n.text, sizeof n.text, "%.7s", symbol->text);
  } else if (!integer_only && !m->options.exact_only && chance(m, 40)) {
    uint32_t k = below(m, 6);
    n.is_fraction = true;
    n.value = values[k];
    snprintf(n.text, sizeof n.text, "%s", fractions[k]);
  } else {
    bool negative = as_operand && chance(m, 15);
    n.value = (negative ? -1.0 : 1.0) * (1 + below(m, 4));
    snprintf(n.text, sizeof n.text, "%.0f", n.value);
  }
  return n;
}

/* ---- pointwise ---- */
typedef struct operands {
  uint32_t n;
  uint32_t who[3];
  number numbers[3];
  ir_dtype common;  /* what all of them are promoted to */
  double bounds[3]; /* of their magnitudes */
} operands;

static model_wants wants_of(ir_result_rule rule, uint32_t k) {
  switch (rule) {
  case IR_RESULT_NUMBER: return wants_number;
  case IR_RESULT_BITS: return wants_bits;
  case IR_RESULT_CHOICE: return k == 0 ? wants_bool : wants_any;
  case IR_RESULT_SAME:
  case IR_RESULT_WIDE:
  case IR_RESULT_FLOAT:
  case IR_RESULT_TRUTH: break;
  }
  return wants_any;
}

/* Which operands are numbers: never all of them, and never the condition of where. */
static void choose_numbers(model *m, const ir_op_info *info, operands *o) {
  bool integer_only = info->rule == IR_RESULT_BITS;
  if (o->n == 2 && chance(m, 25)) o->numbers[below(m, 2)] = random_number(m, integer_only, true);
  if (o->n < 3) return;
  if (info->rule == IR_RESULT_CHOICE) {
    if (chance(m, 30)) o->numbers[1 + below(m, 2)] = random_number(m, false, true);
    return;
  }
  for (uint32_t k = 1; k < 3; k++)
    if (chance(m, 60)) o->numbers[k] = random_number(m, false, true);
}

/* Picks the tensors, broadcasts their shapes into `t` and promotes their dtypes. */
static bool choose_tensors(model *m, const ir_op_info *info, operands *o, model_tensor *t) {
  bool first = true, fraction = false;
  for (uint32_t k = 0; k < o->n; k++) {
    o->bounds[k] = o->numbers[k].is_number ? fabs(o->numbers[k].value) : 0;
    fraction |= o->numbers[k].is_fraction;
    if (o->numbers[k].is_number) continue;
    model_wants wants = wants_of(info->rule, k);
    o->who[k] = first ? model_pick(m, wants, 0, 4) : model_pick_meeting(m, wants, t);
    first = false;
    const model_tensor *x = &m->tensors[o->who[k]];
    if (!model_meet(t, x)) return false;
    o->bounds[k] = x->bound;
    if (info->rule == IR_RESULT_CHOICE && k == 0) continue;
    o->common = o->common ? dtype_meet(o->common, x->dtype) : x->dtype;
  }
  for (uint32_t k = 0; k < o->n; k++) { /* numbers are weak: they take the tensors' dtype */
    if (!o->numbers[k].is_number) continue;
    if (o->common == IR_BOOL || (o->common == IR_U8 && o->numbers[k].value < 0)) return false;
  }
  model_tensor common = {.dtype = o->common};
  if (fraction && wants_bits(&common)) o->common = IR_F32;
  return true;
}

static ir_dtype result_dtype(ir_result_rule rule, ir_dtype common) {
  model_tensor t = {.dtype = common};
  if (rule == IR_RESULT_TRUTH) return IR_BOOL;
  return rule == IR_RESULT_FLOAT && !wants_float(&t) ? IR_F32 : common;
}

/* Largest magnitude of the result where operands are integers; INFINITY where results may not be. */
static double pointwise_bound(ir_opcode op, const operands *o) {
  double a = o->bounds[0], b = o->bounds[1], c = o->bounds[2];
  if (op == IR_OP_NEG || op == IR_OP_ABS || op == IR_OP_RELU) return a;
  if (op == IR_OP_FLOOR || op == IR_OP_CEIL || op == IR_OP_ROUND) return a;
  if (op == IR_OP_SIGN) return 1;
  if (op == IR_OP_ADD || op == IR_OP_SUB) return a + b;
  if (op == IR_OP_MUL) return a * b;
  if (op == IR_OP_MAX || op == IR_OP_MIN) return fmax(a, b);
  if (op == IR_OP_MOD) return o->numbers[1].is_number && b > 0 ? b : INFINITY;
  if (op == IR_OP_WHERE) return fmax(b, c);
  if (op == IR_OP_CLAMP) return fmax(a, fmax(b, c));
  return INFINITY;
}

static bool all_exact(const model *m, const operands *o) {
  for (uint32_t k = 0; k < o->n; k++)
    if (m->options.exact_only && o->bounds[k] > dtype_exact(o->common)) return false;
  return true;
}

static void write_operand(model *m, model_tensor *t, const operands *o, uint32_t k) {
  if (o->numbers[k].is_number) expr_printf(t, "%s", o->numbers[k].text);
  else model_use(m, t, o->who[k]);
}

static void write_pointwise(model *m, model_tensor *t, const ir_op_info *info, const operands *o) {
  const char *infix = o->n == 2 ? ir_op_infix(t->op) : NULL;
  if (infix && chance(m, 60)) {
    expr_printf(t, "(");
    write_operand(m, t, o, 0);
    expr_printf(t, " %s ", infix);
    write_operand(m, t, o, 1);
    expr_printf(t, ")");
    return;
  }
  expr_printf(t, "%s(", info->name);
  for (uint32_t k = 0; k < o->n; k++) {
    expr_printf(t, k ? ", " : "");
    write_operand(m, t, o, k);
  }
  if (t->op == IR_OP_GELU && chance(m, 50)) expr_printf(t, ", approximate=tanh");
  expr_printf(t, ")");
}

static bool make_pointwise(model *m, model_tensor *t) {
  const ir_op_info *info = ir_op_info_of(t->op);
  operands o = {.n = info->n_tensors};
  choose_numbers(m, info, &o);
  if (!choose_tensors(m, info, &o, t) || !all_exact(m, &o)) return false;
  t->dtype = result_dtype(info->rule, o.common);
  t->bound = pointwise_bound(t->op, &o);
  write_pointwise(m, t, info, &o);
  return true;
}

static bool make_copy(model *m, model_tensor *t) {
  bool cast = t->op == IR_OP_CAST;
  uint32_t who = model_pick(m, wants_any, 0, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  model_meet(t, x);
  t->dtype = cast ? dtype_random(m) : x->dtype;
  t->bound = t->dtype == IR_BOOL ? 1 : x->bound;
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  model_use(m, t, who);
  if (cast) expr_printf(t, ", %s", ir_dtype_text(t->dtype));
  expr_printf(t, ")");
  return true;
}

/* ---- reductions ---- */
static bool is_moment(ir_opcode op) { return ir_op_info_of(op)->family == IR_FAMILY_MOMENT; }

static ir_dtype reduced_dtype(ir_opcode op, ir_dtype t) {
  model_tensor x = {.dtype = t};
  if (is_moment(op)) return wants_float(&x) ? t : IR_F32;
  bool adds = ir_op_info_of(op)->rule == IR_RESULT_WIDE;
  return adds && wants_bits(&x) ? IR_I64 : t;
}

static double reduced_bound(ir_opcode op, double bound, int64_t count) {
  switch (ir_op_fold(op)) {
  case IR_FOLD_SUM: return bound * (double)count;
  case IR_FOLD_PROD: return pow(fmax(bound, 1), (double)count);
  case IR_FOLD_MAX:
  case IR_FOLD_MIN: return bound;
  case IR_FOLD_NONE: /* mean and var */
  case IR_FOLD_COUNT: break;
  }
  return INFINITY;
}

static bool needs_elements(ir_opcode op) {
  ir_fold fold = ir_op_fold(op);
  return fold != IR_FOLD_NONE && ir_fold_info_of(fold)->noun;
}

static void write_reduction(model *m, model_tensor *t, uint32_t who, const bool *reduced, bool all,
                            bool keep) {
  const model_tensor *x = &m->tensors[who];
  const char *comma = "";
  char axis[8];
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  model_use(m, t, who);
  if (!all) {
    expr_printf(t, ", dims=[");
    for (uint32_t i = 0; i < x->rank; i++) {
      if (!reduced[i]) continue;
      expr_printf(t, "%s%s", comma, axis_text(m, i, x->rank, axis));
      comma = ", ";
    }
    expr_printf(t, "]");
  }
  if (keep || chance(m, 10)) expr_printf(t, ", keepdim=%s", keep ? "true" : "false");
  bool var = t->op == IR_OP_VAR || t->op == IR_OP_VAR_MEAN;
  if (var && chance(m, 50)) expr_printf(t, ", correction=%u", below(m, 2));
  expr_printf(t, ")");
}

static bool make_reduction(model *m, model_tensor *t) {
  ir_opcode op = t->op;
  uint32_t who = model_pick(m, op == IR_OP_PROD ? wants_number : wants_any, 1, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  bool reduced[GEN_MAX_RANK], all = chance(m, 20), keep = chance(m, 30), axes = false;
  int64_t count = 1;
  for (uint32_t i = 0; i < x->rank; i++) {
    reduced[i] = all || chance(m, 50) || (i + 1 == x->rank && !axes);
    axes |= reduced[i];
    if (reduced[i]) count *= x->dims[i].size;
    if (!reduced[i] || keep) t->dims[t->rank++] = reduced[i] ? dim_one() : x->dims[i];
  }
  bool composite = is_moment(op);
  if (count == 0 && needs_elements(op)) return false;
  for (uint32_t i = 0; i < x->rank && !keep && !composite; i++)
    axes_add(t,
             reduced[i]       ? AXIS_REDUCTION
             : x->dims[i].one ? AXIS_BROADCAST
                              : AXIS_ITERATION,
             x->dims[i].size);
  t->dtype = reduced_dtype(op, x->dtype);
  t->bound = reduced_bound(op, x->bound, count);
  write_reduction(m, t, who, reduced, all, keep);
  if (op == IR_OP_VAR_MEAN) (void)model_more(m, t->dtype, INFINITY);
  return true;
}

/* ---- makers ---- */
static void write_shape(model *m, model_tensor *t) {
  t->rank = below(m, 5);
  expr_printf(t, "[");
  for (uint32_t i = 0; i < t->rank; i++) {
    t->dims[i] = dim_random(m);
    t->dims[i].one = false;
    expr_printf(t, "%s%s", i ? ", " : "", t->dims[i].text);
  }
  expr_printf(t, "]");
}

static bool make_iota(model *m, model_tensor *t) {
  t->rank = 1;
  t->dims[0] = dim_random(m);
  t->dims[0].one = false;
  t->dtype = chance(m, 50) ? IR_I64 : dtype_random(m);
  t->bound = t->dtype == IR_BOOL ? 1 : (double)t->dims[0].size;
  expr_printf(t, "iota(%s, dtype=%s)", t->dims[0].text, ir_dtype_text(t->dtype));
  return true;
}

static bool make_maker(model *m, model_tensor *t) {
  if (t->op == IR_OP_IOTA) return make_iota(m, t);
  bool uniform = t->op == IR_OP_UNIFORM;
  t->dtype = uniform ? dtype_random_float(m) : dtype_random(m);
  t->bound = uniform ? INFINITY : 4;
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  write_shape(m, t);
  if (t->op == IR_OP_FULL) expr_printf(t, ", %s", random_number(m, !wants_float(t), false).text);
  if (uniform && chance(m, 50)) expr_printf(t, ", lo=-2, hi=2.5");
  if (uniform && chance(m, 30)) expr_printf(t, ", key=%u", below(m, 3));
  if (t->dtype != IR_F32 || chance(m, 30)) expr_printf(t, ", dtype=%s", ir_dtype_text(t->dtype));
  expr_printf(t, ")");
  return true;
}

/* ---- which function makes which operation ---- */
typedef struct family_row {
  gen_family family;
  bool (*make)(model *m, model_tensor *t);
} family_row;

static const family_row families[] = {
    [IR_FAMILY_POINTWISE] = {GEN_POINTWISE, make_pointwise},
    [IR_FAMILY_SET] = {GEN_POINTWISE, make_copy},
    [IR_FAMILY_CAST] = {GEN_POINTWISE, make_copy},
    [IR_FAMILY_REDUCE] = {GEN_REDUCE, make_reduction},
    [IR_FAMILY_MOMENT] = {GEN_MOMENT, make_reduction},
    [IR_FAMILY_BROADCAST] = {GEN_VIEW, make_broadcast},
    [IR_FAMILY_SQUEEZE] = {GEN_VIEW, make_squeeze},
    [IR_FAMILY_EXPAND] = {GEN_VIEW, make_expand},
    [IR_FAMILY_PERMUTE] = {GEN_VIEW, make_permute},
    [IR_FAMILY_RESHAPE] = {GEN_VIEW, make_reshape},
    [IR_FAMILY_SLICE] = {GEN_CUT, make_slice},
    [IR_FAMILY_PAD] = {GEN_CUT, make_pad},
    [IR_FAMILY_CAT] = {GEN_CUT, make_cat},
    [IR_FAMILY_SELECT] = {GEN_CUT, make_select},
    [IR_FAMILY_MAKER] = {GEN_MAKE, make_maker},
    [IR_FAMILY_GATHER] = {GEN_INDEX, make_indexed},
    [IR_FAMILY_SCATTER] = {GEN_INDEX, make_indexed},
    [IR_FAMILY_UPDATE] = {GEN_INDEX, make_indexed},
    [IR_FAMILY_INDEX_SELECT] = {GEN_INDEX, make_indexed},
    [IR_FAMILY_ONE_HOT] = {GEN_INDEX, make_one_hot},
    [IR_FAMILY_GROUP_INDEX] = {GEN_INDEX, make_group_index},
    [IR_FAMILY_GROUPED_MATMUL] = {GEN_MATMUL, make_grouped_matmul},
    [IR_FAMILY_GROUPED_OUTER] = {GEN_MATMUL, make_grouped_outer},
    [IR_FAMILY_SCAN] = {GEN_ORDER, make_ordered},
    [IR_FAMILY_SORT] = {GEN_ORDER, make_ordered},
    [IR_FAMILY_TOPK] = {GEN_ORDER, make_ordered},
    [IR_FAMILY_MATMUL] = {GEN_MATMUL, make_matmul},
    [IR_FAMILY_LINEAR] = {GEN_MATMUL, make_linear},
    [IR_FAMILY_SOFTMAX] = {GEN_MODEL, make_softmax},
    [IR_FAMILY_NORM] = {GEN_MODEL, make_norm},
    [IR_FAMILY_SDPA] = {GEN_MODEL, make_sdpa},
    [IR_FAMILY_SDPA_BACKWARD] = {GEN_MODEL, make_sdpa_backward},
};

static const family_row *row_of(ir_opcode op) {
  static const family_row unknown;
  uint32_t family = (uint32_t)ir_op_info_of(op)->family;
  return family < sizeof families / sizeof families[0] ? &families[family] : &unknown;
}

gen_family ops_family(ir_opcode op) { return row_of(op)->family; }

/* A try that fails takes the inputs it made with it. A family that the generator does not know yet
 * makes nothing. */
bool ops_make(model *m, ir_opcode op) {
  const family_row *row = row_of(op);
  model_mark before = model_mark_now(m);
  model_tensor *t = model_begin(m, op);
  if (row->make && row->make(m, t) && model_commit(m, t)) return true;
  model_reset(m, &before);
  return false;
}
