/* Operations through the API: arguments are matched to the parameters of the op table. */
#include <string.h>

#include "api/api.h"
#include "ir/build.h"
#include "text/fragment.h"
#include "text/text.h"

weir_arg weir_arg_tensor(const char *name, weir_tensor t) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_TENSOR, .tensor = t};
}
weir_arg weir_arg_int(const char *name, int64_t value) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_INT, .i = value};
}
weir_arg weir_arg_float(const char *name, double value) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_FLOAT, .f = value};
}
weir_arg weir_arg_bool(const char *name, bool value) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_BOOL, .i = value};
}
weir_arg weir_arg_dtype(const char *name, weir_dtype value) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_DTYPE, .i = value};
}
weir_arg weir_arg_text(const char *name, const char *value) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_TEXT, .text = value};
}
weir_arg weir_arg_ints(const char *name, const int64_t *values, size_t n) {
  return (weir_arg){.name = name, .kind = WEIR_ARG_INTS, .i = (int64_t)n, .ints = values};
}

/* A call while its arguments are matched. */
typedef struct op_call {
  ir_func *f;
  const char *const *names, *op;
  size_t n_names;
  const weir_arg *args;
  size_t n_args;
  weir_tensor results[IR_MAX_RESULTS];

  const ir_op_info *info;
  uint32_t given;    /* a bit per param */
  uint32_t position; /* the param that the next argument without a name fills */
  ir_tensor *operands;
  uint32_t n_operands;
  ir_attr attrs[IR_MAX_PARAMS];
} op_call;

static bool is_tensor(const ir_param *p) {
  return p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS;
}

/* "…; it is sum(x, dims=[...], keepdim=false)" */
static bool refuse(op_call *c, const char *what, const char *param) {
  strbuf signature;
  strbuf_init(&signature, &c->f->module->memory);
  text_print_signature(c->info, &signature);
  diag_error(&c->f->module->errors, api_nowhere, "%s: %s%s%s; it is %s", c->info->name, what,
             param ? " " : "", param ? param : "", signature.data);
  return false;
}

/* ---- attributes ---- */
static void keep_ints(op_call *c, const int64_t *values, size_t n, ir_attr *a) {
  a->ints = arena_copy(&c->f->module->memory, values, n * sizeof *values);
  a->len = (uint32_t)n;
}

static bool fill_ints(op_call *c, const weir_arg *arg, ir_attr *a) {
  if (arg->kind == WEIR_ARG_TEXT) return text_fragment_ints(c->f, arg->text, &a->ints, &a->len);
  if (arg->kind == WEIR_ARG_INT) keep_ints(c, &arg->i, 1, a);
  else if (arg->kind == WEIR_ARG_INTS) keep_ints(c, arg->ints, (size_t)arg->i, a);
  else return refuse(c, "a list of integers is needed as", arg->name);
  return true;
}

static bool fill_bools(op_call *c, const weir_arg *arg, ir_attr *a) {
  if (arg->kind == WEIR_ARG_TEXT) return text_fragment_bools(c->f, arg->text, &a->ints, &a->len);
  if (arg->kind != WEIR_ARG_INTS) return refuse(c, "a list of 0s and 1s is needed as", arg->name);
  keep_ints(c, arg->ints, (size_t)arg->i, a);
  for (uint32_t i = 0; i < a->len; i++)
    if (a->ints[i] != 0 && a->ints[i] != 1) return refuse(c, "0 or 1 is needed in", arg->name);
  return true;
}

static bool fill_scalar(op_call *c, const weir_arg *arg, ir_attr *a) {
  if (arg->kind == WEIR_ARG_TEXT) a->scalar = text_fragment_scalar(c->f, arg->text);
  else if (arg->kind == WEIR_ARG_INT) a->scalar = ir_scalar_const(&c->f->module->scalars, arg->i);
  else return refuse(c, "an integer or an expression is needed as", arg->name);
  return a->scalar.id != 0;
}

static bool fill_scalars(op_call *c, const weir_arg *arg, ir_attr *a) {
  if (arg->kind == WEIR_ARG_TEXT)
    return text_fragment_scalars(c->f, arg->text, &a->scalars, &a->len);
  if (arg->kind != WEIR_ARG_INTS) return refuse(c, "a list of extents is needed as", arg->name);
  ir_scalar *list = ARENA_ARRAY(&c->f->module->memory, (size_t)arg->i, ir_scalar);
  for (int64_t i = 0; i < arg->i; i++)
    list[i] = ir_scalar_const(&c->f->module->scalars, arg->ints[i]);
  a->scalars = list;
  a->len = (uint32_t)arg->i;
  return true;
}

static bool fill_number(op_call *c, const weir_arg *arg, ir_attr *a) {
  if (arg->kind == WEIR_ARG_INT) a->number = ir_number_int(arg->i);
  else if (arg->kind == WEIR_ARG_FLOAT) a->number = ir_number_float(arg->f);
  else return refuse(c, "a number is needed as", arg->name);
  return true;
}

static bool fill_dtype(op_call *c, const weir_arg *arg, ir_attr *a) {
  if (arg->kind == WEIR_ARG_TEXT) a->i = ir_dtype_parse(arg->text, strlen(arg->text));
  else if (arg->kind == WEIR_ARG_DTYPE && arg->i > 0 && arg->i < IR_DTYPE_COUNT) a->i = arg->i;
  return a->i != IR_DTYPE_NONE || refuse(c, "a dtype is needed as", arg->name);
}

static bool fill_choice(op_call *c, const weir_arg *arg, const ir_param *p, ir_attr *a) {
  for (int i = 0; arg->kind == WEIR_ARG_TEXT && p->choices[i]; i++) {
    if (strcmp(p->choices[i], arg->text) != 0) continue;
    a->i = i;
    return true;
  }
  return refuse(c, "one of its words is needed as", p->name);
}

static bool fill_attr(op_call *c, const weir_arg *given, const ir_param *p, ir_attr *a) {
  weir_arg named = *given, *arg = &named;
  arg->name = p->name; /* for messages */
  *a = (ir_attr){.given = true, .i = p->kind == IR_PARAM_DTYPE ? 0 : arg->i};
  switch (p->kind) {
  case IR_PARAM_INT:
    return arg->kind == WEIR_ARG_INT || refuse(c, "an integer is needed as", p->name);
  case IR_PARAM_BOOL:
    return arg->kind == WEIR_ARG_BOOL || refuse(c, "true or false is needed as", p->name);
  case IR_PARAM_INTS: return fill_ints(c, arg, a);
  case IR_PARAM_BOOLS: return fill_bools(c, arg, a);
  case IR_PARAM_NUMBER: return fill_number(c, arg, a);
  case IR_PARAM_DTYPE: return fill_dtype(c, arg, a);
  case IR_PARAM_SCALAR: return fill_scalar(c, arg, a);
  case IR_PARAM_SCALARS: return fill_scalars(c, arg, a);
  case IR_PARAM_CHOICE: return fill_choice(c, arg, p, a);
  case IR_PARAM_END:
  case IR_PARAM_TENSOR:
  case IR_PARAM_TENSORS: break;
  }
  check_failed(__FILE__, __LINE__, "an attribute");
}

/* ---- operands ---- */
static ir_tensor operand_of(op_call *c, const weir_arg *arg) {
  ir_func *f = c->f;
  switch (arg->kind) {
  case WEIR_ARG_TENSOR: return api_tensor(f, arg->tensor);
  case WEIR_ARG_INT: return ir_build_number(f, ir_number_int(arg->i), api_nowhere);
  case WEIR_ARG_FLOAT: return ir_build_number(f, ir_number_float(arg->f), api_nowhere);
  case WEIR_ARG_TEXT: {
    ir_scalar x = text_fragment_scalar(f, arg->text);
    return x.id ? ir_build_extent_value(f, x, api_nowhere) : (ir_tensor){0};
  }
  case WEIR_ARG_BOOL:
  case WEIR_ARG_DTYPE:
  case WEIR_ARG_INTS: break;
  }
  (void)refuse(c, "an operand is a tensor, a number or an extent", NULL);
  return (ir_tensor){0};
}

/* ---- arguments ---- */
/* The place of a param among the tensor params, or among the attribute params. */
static uint32_t slot_of(const ir_op_info *info, uint32_t param) {
  uint32_t slot = 0;
  for (uint32_t i = 0; i < param; i++)
    slot += is_tensor(&info->params[i]) == is_tensor(&info->params[param]);
  return slot;
}

/* The param an argument fills, or END. Operands past the last of a TENSORS param are attributes. */
static uint32_t param_of(op_call *c, const weir_arg *arg) {
  const ir_param *params = c->info->params;
  uint32_t i = 0;
  if (arg->name) {
    while (params[i].kind != IR_PARAM_END && strcmp(params[i].name, arg->name) != 0) i++;
    return i;
  }
  if (params[c->position].kind == IR_PARAM_TENSORS && arg->kind != WEIR_ARG_TENSOR) c->position++;
  i = c->position;
  if (params[i].kind != IR_PARAM_END && params[i].kind != IR_PARAM_TENSORS) c->position++;
  return i;
}

static bool well_formed(op_call *c, const weir_arg *arg) {
  if (arg->kind == WEIR_ARG_TEXT && !arg->text) return refuse(c, "a text argument is NULL", NULL);
  bool list = arg->kind == WEIR_ARG_INTS;
  if (list && (arg->i < 0 || arg->i > INT32_MAX || (arg->i > 0 && !arg->ints)))
    return refuse(c, "a list argument is NULL or of impossible length", NULL);
  return true;
}

static bool fill(op_call *c, const weir_arg *arg) {
  if (!well_formed(c, arg)) return false;
  uint32_t i = param_of(c, arg);
  const ir_param *p = &c->info->params[i];
  if (p->kind == IR_PARAM_END)
    return refuse(c, arg->name ? "there is no argument" : "too many arguments", arg->name);
  if ((c->given & 1U << i) && p->kind != IR_PARAM_TENSORS)
    return refuse(c, "given twice:", p->name);
  c->given |= 1U << i;
  if (!is_tensor(p)) return fill_attr(c, arg, p, &c->attrs[slot_of(c->info, i)]);
  ir_tensor t = operand_of(c, arg);
  uint32_t slot = p->kind == IR_PARAM_TENSORS ? c->n_operands++ : slot_of(c->info, i);
  c->operands[slot] = t;
  return t.id != 0;
}

static bool require_params(op_call *c) {
  const ir_param *p = c->info->params;
  for (uint32_t i = 0; p[i].kind != IR_PARAM_END; i++)
    if (p[i].use == IR_USE_REQUIRED && !(c->given & 1U << i))
      return refuse(c, "missing:", p[i].name);
  return true;
}

static uint32_t single_tensors(const ir_op_info *info) {
  uint32_t n = 0;
  while (info->params[n].kind == IR_PARAM_TENSOR) n++;
  return n;
}

/* Everything that can be wrong with further results is checked before anything is built. */
static bool name_results(op_call *c) {
  diags *errors = &c->f->module->errors;
  if (c->n_names == 0 || c->n_names > c->info->n_results) {
    diag_error(errors, api_nowhere, "%s has %u result%s, not %zu", c->info->name,
               c->info->n_results, c->info->n_results == 1 ? "" : "s", c->n_names);
    return false;
  }
  for (size_t i = 0; i < c->n_names; i++) {
    c->results[i].id = api_name(c->f, c->names[i]);
    if (!c->results[i].id) return false;
    bool taken = ir_func_lookup(c->f, c->results[i].id).kind != IR_NAME_NONE;
    for (size_t k = 0; k < i; k++) taken = taken || c->results[k].id == c->results[i].id;
    if (!taken || i == 0) continue; /* the first is checked where it is built */
    diag_error(errors, api_nowhere, "'%s' is already a name", c->names[i]);
    return false;
  }
  return true;
}

static bool build_more(op_call *c, ir_tensor first) {
  uint32_t names[IR_MAX_RESULTS], n = (uint32_t)c->n_names - 1;
  for (uint32_t i = 0; i < n; i++) names[i] = c->results[i + 1].id;
  return n == 0 || ir_build_more(c->f, first, names, n, api_nowhere);
}

static status op_body(arena *scratch, void *context) {
  op_call *c = context;
  ir_module *m = c->f->module;
  ir_opcode code = ir_op_parse(c->op, strlen(c->op));
  if (code == IR_OP_NONE) {
    diag_error(&m->errors, api_nowhere, "there is no operation '%s'", c->op);
    return STATUS_BAD_PROGRAM;
  }
  api_unschedule(c->f);
  c->info = ir_op_info_of(code);
  if (!name_results(c)) return STATUS_BAD_PROGRAM;
  c->n_operands = single_tensors(c->info);
  c->operands = ARENA_ARRAY(scratch, c->n_operands + c->n_args, ir_tensor);
  for (size_t i = 0; i < c->n_args; i++)
    if (!fill(c, &c->args[i])) return STATUS_BAD_PROGRAM;
  if (!require_params(c)) return STATUS_BAD_PROGRAM;
  ir_tensor t =
      ir_build_op(c->f, code, c->operands, c->n_operands, c->attrs, c->results[0].id, api_nowhere);
  return t.id && build_more(c, t) ? STATUS_OK : STATUS_BAD_PROGRAM;
}

weir_status weir_fusion_op(weir_fusion *f, const char *name, const char *op, const weir_arg *args,
                           size_t n_args, weir_tensor *result) {
  if (!f || !name || !op || (n_args && !args) || !result)
    return api_refuse("weir_fusion_op: an argument is NULL");
  return weir_fusion_op_results(f, &name, 1, op, args, n_args, result);
}

weir_status weir_fusion_op_results(weir_fusion *f, const char *const *names, size_t n_names,
                                   const char *op, const weir_arg *args, size_t n_args,
                                   weir_tensor *results) {
  bool complete = f && names && op && (!n_args || args) && results;
  for (size_t i = 0; complete && i < n_names; i++) complete = names[i] != NULL;
  if (!complete) return api_refuse("weir_fusion_op_results: an argument is NULL");
  op_call c = {.f = api_func(f), .names = names, .n_names = n_names, .op = op, .args = args};
  c.n_args = n_args;
  weir_status st = api_edit(api_module(f), op_body, &c);
  for (size_t i = 0; st == WEIR_OK && i < n_names; i++) results[i] = c.results[i];
  return st;
}
