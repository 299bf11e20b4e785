#include "ir/op.h"

#include <string.h>

#include "base/status.h"
#include "base/table.h"

#define REQUIRED .use = IR_USE_REQUIRED
#define OMIT .use = IR_USE_OMIT
#define DEF(v) .use = IR_USE_DEFAULT, .value = (v)
#define X(n)                                                                                       \
  { .kind = IR_PARAM_TENSOR, .name = #n, REQUIRED }
#define XO(n)                                                                                      \
  { .kind = IR_PARAM_TENSOR, .name = #n, OMIT }
#define XS(n)                                                                                      \
  { .kind = IR_PARAM_TENSORS, .name = #n, REQUIRED }
#define A(k, n, u)                                                                                 \
  { .kind = IR_PARAM_##k, .name = #n, u }
#define P(k, n, u)                                                                                 \
  { .kind = IR_PARAM_##k, .name = #n, u, .positional = true }
#define C(n, k, ...)                                                                               \
  {                                                                                                \
    .kind = IR_PARAM_CHOICE, .name = #n, DEF(k), .choices = { __VA_ARGS__ }                        \
  }
#define PARAMS(...)                                                                                \
  (const ir_param[]) {                                                                             \
    __VA_ARGS__, { .kind = IR_PARAM_END }                                                          \
  }

/* Counts are filled in once, before main. */
static ir_op_info infos[IR_OP_COUNT] = {
#define POINTWISE(id, n, result, ps, fx, ix)                                                       \
  [IR_OP_##id] = {.name = #n,                                                                      \
                  .family = IR_FAMILY_POINTWISE,                                                   \
                  .rule = IR_RESULT_##result,                                                      \
                  .fexpr = #fx,                                                                    \
                  .iexpr = #ix,                                                                    \
                  .params = ps},
#define OP(id, n, fam, ps) [IR_OP_##id] = {.name = #n, .family = IR_FAMILY_##fam, .params = ps},
#define REDUCE(id, n, result, f)                                                                   \
  [IR_OP_##id] = {.name = #n,                                                                      \
                  .family = IR_FAMILY_REDUCE,                                                      \
                  .rule = IR_RESULT_##result,                                                      \
                  .fold = IR_FOLD_##f,                                                             \
                  .params = PARAMS(X(x), A(INTS, dims, OMIT), A(BOOL, keepdim, DEF(0)),            \
                                   C(empty, 0, "error", "start"))},
#include "ir/ops.def"
#undef POINTWISE
#undef OP
};

static const char *const *const result_names[IR_OP_COUNT] = {
#define POINTWISE(...)
#define OP(...)
#define RESULTS(id, ...) [IR_OP_##id] = (const char *const[]){__VA_ARGS__, NULL},
#include "ir/ops.def"
#undef POINTWISE
#undef OP
};

enum { NAME_SLOTS = 256 };
static uint8_t by_name[NAME_SLOTS];

static uint32_t slot_of(const char *name, size_t length) {
  return (uint32_t)hash_bytes(name, length) % NAME_SLOTS;
}

__attribute__((constructor)) static void fill_tables(void) {
  _Static_assert(IR_OP_COUNT < NAME_SLOTS / 2, "the name table is half empty, so probing ends");
  for (uint32_t code = 1; code < IR_OP_COUNT; code++) {
    ir_op_info *info = &infos[code];
    for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++) {
      bool tensor = p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS;
      *(tensor ? &info->n_tensors : &info->n_attrs) += 1;
    }
    info->results = result_names[code];
    info->n_results = 1;
    while (info->results && info->results[info->n_results]) info->n_results++;
    check(info->n_results <= IR_MAX_RESULTS);
    uint32_t slot = slot_of(info->name, strlen(info->name));
    while (by_name[slot]) slot = (slot + 1) % NAME_SLOTS;
    by_name[slot] = (uint8_t)code;
  }
}

const ir_op_info *ir_op_info_of(ir_opcode code) {
  check(code > IR_OP_NONE && code < IR_OP_COUNT);
  return &infos[code];
}

ir_opcode ir_op_parse(const char *name, size_t length) {
  for (uint32_t slot = slot_of(name, length); by_name[slot]; slot = (slot + 1) % NAME_SLOTS) {
    const char *known = infos[by_name[slot]].name;
    if (strlen(known) == length && memcmp(known, name, length) == 0) {
      return (ir_opcode)by_name[slot];
    }
  }
  return IR_OP_NONE;
}

enum { NO_VIEW, VIEW };
static const ir_family_info families[] = {
#define IR(infer, pairs, view, at, cost)                                                           \
  .is_view = view, .window = IR_WINDOW_##at, .flops = IR_FLOPS_##cost
#define FAMILY(id, text, ir, ...) [IR_FAMILY_##id] = {.group = text, ir},
#include "ir/families.def"
};

const ir_family_info *ir_family_info_of(ir_opcode code) {
  return &families[ir_op_info_of(code)->family];
}

bool ir_op_is_product(ir_opcode code) {
  ir_flops flops = ir_family_info_of(code)->flops;
  return flops == IR_FLOPS_PRODUCT || flops == IR_FLOPS_OUTER;
}

static bool has_index(ir_opcode code) {
  return code == IR_OP_GROUPED_MATMUL || code == IR_OP_GROUPED_OUTER;
}

bool ir_op_is_plain_product(ir_opcode code) { return ir_op_is_product(code) && !has_index(code); }

uint32_t ir_op_n_factors(ir_opcode code, uint32_t n_operands) {
  return has_index(code) ? 2 : n_operands;
}

bool ir_op_multiplies(ir_opcode code) {
  ir_flops flops = ir_family_info_of(code)->flops;
  return ir_op_is_product(code) || flops == IR_FLOPS_ATTENTION ||
         flops == IR_FLOPS_ATTENTION_BACKWARD;
}

static const struct {
  ir_opcode code;
  const char *text;
} infix[] = {{IR_OP_ADD, "+"}, {IR_OP_SUB, "-"}, {IR_OP_MUL, "*"}, {IR_OP_DIV, "/"},
             {IR_OP_EQ, "=="}, {IR_OP_NE, "!="}, {IR_OP_LT, "<"},  {IR_OP_LE, "<="},
             {IR_OP_GT, ">"},  {IR_OP_GE, ">="}};

bool ir_op_is_elementwise(ir_opcode code) {
  ir_family family = ir_op_info_of(code)->family;
  return family == IR_FAMILY_POINTWISE || family == IR_FAMILY_SET || family == IR_FAMILY_CAST;
}

const char *ir_op_infix(ir_opcode code) {
  for (size_t i = 0; i < sizeof infix / sizeof *infix; i++) {
    if (infix[i].code == code) return infix[i].text;
  }
  return NULL;
}

bool ir_number_same(ir_number a, ir_number b) {
  uint64_t x, y;
  memcpy(&x, &a.f, sizeof x);
  memcpy(&y, &b.f, sizeof y);
  return a.is_float == b.is_float && a.i == b.i && x == y;
}
