#include "ir/infer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/infer_internal.h"

bool infer_error(infer *c, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  diag_error(&c->f->module->errors, c->op->at, "%s: %s", c->name, text);
  return false;
}

/* ---- dimensions ---- */

dims infer_dims(infer *c, uint32_t i) {
  dims d;
  d.len = ir_tensor_dims(c->f, c->op->operands[i], d.data);
  return d;
}

ir_scalar infer_size(const infer *c, ir_axis a) { return ir_axis_size(c->f, a); }

bool infer_is_one(const infer *c, ir_axis a) {
  const ir_axis_data *d = ir_axis_at(c->f, a);
  return d->kind == IR_AXIS_BROADCAST && d->expanded.id == 0;
}

bool infer_axis(infer *c, int64_t axis, uint32_t rank, uint32_t *result) {
  int64_t position = axis < 0 ? axis + (int64_t)rank : axis;
  if (position < 0 || position >= (int64_t)rank) {
    return infer_error(c, "axis %lld is out of range for rank %u", (long long)axis, rank);
  }
  *result = (uint32_t)position;
  return true;
}

bool infer_axis_set(infer *c, const ir_attr *list, uint32_t rank, bool chosen[IR_MAX_RANK]) {
  for (uint32_t i = 0; i < IR_MAX_RANK; i++) chosen[i] = !list->given && i < rank;
  for (uint32_t i = 0; list->given && i < list->len; i++) {
    uint32_t axis = 0;
    if (!infer_axis(c, list->ints[i], rank, &axis)) return false;
    if (chosen[axis]) return infer_error(c, "axis %lld is listed twice", (long long)list->ints[i]);
    chosen[axis] = true;
  }
  return true;
}

bool infer_push(infer *c, dims *d, ir_axis a) {
  if (d->len == IR_MAX_RANK) {
    return infer_error(c, "the result would have more than %d axes", IR_MAX_RANK);
  }
  d->data[d->len++] = a;
  return true;
}

ir_axis infer_new_dim(infer *c, ir_scalar size) {
  int64_t value;
  bool one = ir_scalar_is_const(&c->f->module->scalars, size, &value) && value == 1;
  return ir_axis_new(c->f, one ? IR_AXIS_BROADCAST : IR_AXIS_ITERATION, size);
}

ir_axis infer_copy_dim(infer *c, ir_axis a) {
  ir_axis copy = ir_axis_copy(c->f, a);
  ir_axis_data *d = ir_axis_at(c->f, copy);
  if (d->kind == IR_AXIS_GATHER) d->kind = IR_AXIS_ITERATION;
  return copy;
}

ir_axis infer_unlike_dim(infer *c, ir_axis a) {
  bool stretched = ir_axis_at(c->f, a)->expanded.id != 0;
  return stretched ? infer_new_dim(c, infer_size(c, a)) : infer_copy_dim(c, a);
}

ir_axis infer_varying(const infer *c, ir_axis a, ir_axis b) {
  bool same = ir_axis_at(c->f, a)->expanded.id != 0;
  return same && ir_axis_at(c->f, b)->kind != IR_AXIS_BROADCAST ? b : a;
}

/* "the operands are f32[3, 4] and f32[5, 4]", for messages. */
static const char *operand_types(infer *c) {
  strbuf out;
  strbuf_init(&out, &c->f->module->memory);
  uint32_t left = 0;
  for (uint32_t i = 0; i < c->op->n_operands; i++) left += c->op->operands[i].id != 0;
  const char *intro = left == 1 ? "the operand is " : "the operands are ";
  strbuf_puts(&out, intro);
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    if (c->op->operands[i].id == 0) continue;
    if (out.len > strlen(intro)) strbuf_puts(&out, left == 1 ? " and " : ", ");
    strbuf_puts(&out, ir_type_text(c->f, c->op->operands[i]));
    left--;
  }
  return out.data;
}

bool infer_same_size(infer *c, ir_scalar a, ir_scalar b, const char *what) {
  ir_proof same = ir_func_equal(c->f, a, b);
  if (same == IR_FALSE) {
    return infer_error(c, "%s differ: %s and %s; %s", what, ir_scalar_text(c->f, a),
                       ir_scalar_text(c->f, b), operand_types(c));
  }
  if (same == IR_UNKNOWN) {
    const char *text = arena_printf(&c->f->module->memory, "%s of %s", what, c->name);
    ir_require(c->f, IR_REQUIRE_EQ, a, b, text, c->op->at);
  }
  return true;
}

bool infer_at_most(infer *c, ir_scalar a, ir_scalar b, const char *what) {
  ir_proof fits = ir_scalar_le(&c->f->module->scalars, a, b);
  if (fits == IR_FALSE) {
    return infer_error(c, "%s: %s is more than %s", what, ir_scalar_text(c->f, a),
                       ir_scalar_text(c->f, b));
  }
  if (fits == IR_UNKNOWN) {
    const char *text = arena_printf(&c->f->module->memory, "%s of %s", what, c->name);
    ir_require(c->f, IR_REQUIRE_LE, a, b, text, c->op->at);
  }
  return true;
}

bool infer_not_negative(infer *c, ir_scalar size) {
  ir_scalars *s = &c->f->module->scalars;
  if (ir_scalar_is_overflow(size))
    return infer_error(c, "an extent %s", ir_scalar_overflow_text(&c->f->module->scalars));
  ir_proof fits = ir_scalar_le(s, ir_scalar_const(s, 0), size);
  if (fits == IR_FALSE) {
    return infer_error(c, "an extent cannot be negative: %s", ir_scalar_text(c->f, size));
  }
  if (fits == IR_UNKNOWN) {
    const char *text = arena_printf(&c->f->module->memory, "extent of %s", c->name);
    ir_require(c->f, IR_REQUIRE_LE, ir_scalar_const(s, 0), size, text, c->op->at);
  }
  return true;
}

static bool is_plain(infer *c, ir_scalar x) {
  ir_scalar_kind kind = ir_scalar_node_of(infer_scalars(c), x)->kind;
  return kind == IR_SCALAR_CONST || kind == IR_SCALAR_SYMBOL;
}

/* The one of two equal sizes that is a number or a name. */
static ir_scalar plainer(infer *c, ir_scalar a, ir_scalar b) {
  return is_plain(c, b) && !is_plain(c, a) ? b : a;
}

bool infer_meet(infer *c, ir_axis a, ir_axis b, ir_axis *result) {
  if (infer_is_one(c, a) || infer_is_one(c, b)) {
    *result = infer_copy_dim(c, infer_is_one(c, a) ? b : a);
    return true;
  }
  if (!infer_same_size(c, infer_size(c, a), infer_size(c, b), "extents")) return false;
  bool both_stretched = ir_axis_at(c->f, a)->kind == IR_AXIS_BROADCAST &&
                        ir_axis_at(c->f, b)->kind == IR_AXIS_BROADCAST;
  ir_scalar size = plainer(c, infer_size(c, a), infer_size(c, b));
  *result = both_stretched ? infer_copy_dim(c, a) : ir_axis_new(c->f, IR_AXIS_ITERATION, size);
  return true;
}

bool infer_broadcast(infer *c, const dims *a, const dims *b, dims *result) {
  uint32_t n = a->len > b->len ? a->len : b->len;
  dims out = {.len = n};
  for (uint32_t i = 0; i < n; i++) { /* i counts from the right */
    bool has_a = i < a->len, has_b = i < b->len;
    ir_axis x = has_a ? a->data[a->len - 1 - i] : (ir_axis){0};
    ir_axis y = has_b ? b->data[b->len - 1 - i] : (ir_axis){0};
    ir_axis *to = &out.data[n - 1 - i];
    if (has_a && has_b) {
      if (!infer_meet(c, x, y, to)) return false;
    } else {
      *to = infer_copy_dim(c, has_a ? x : y);
    }
  }
  *result = out;
  return true;
}

static dims copy_dims(infer *c, const dims *in) {
  dims out = {.len = in->len};
  for (uint32_t i = 0; i < in->len; i++) out.data[i] = infer_copy_dim(c, in->data[i]);
  return out;
}

static bool write_result(infer *c, ir_inferred *to, ir_dtype dtype, const dims *root,
                         const dims *logical) {
  for (uint32_t i = 0; i < logical->len; i++) {
    if (ir_scalar_is_overflow(infer_size(c, logical->data[i]))) {
      return infer_error(c, "extent %u of the result %s", i,
                         ir_scalar_overflow_text(&c->f->module->scalars));
    }
  }
  ir_axes list = ir_axes_new(c->f, logical->data, logical->len);
  ir_axes first = root == logical ? list : ir_axes_new(c->f, root->data, root->len);
  to->dtype = dtype;
  to->domains = (ir_domains){first, list, list, list, ir_dense_default(c->f, list)};
  return true;
}

bool infer_done(infer *c, ir_dtype dtype, const dims *root, const dims *logical) {
  return write_result(c, &c->results[0], dtype, root, logical);
}

bool infer_wants(const infer *c, uint32_t k) { return k < ir_op_n_results(c->op); }

bool infer_more(infer *c, uint32_t k, ir_dtype dtype, const dims *logical) {
  return !infer_wants(c, k) || write_result(c, &c->results[k], dtype, logical, logical);
}

bool infer_more_like(infer *c, uint32_t k, ir_dtype dtype, const dims *like) {
  if (!infer_wants(c, k)) return true;
  dims own = copy_dims(c, like);
  return infer_more(c, k, dtype, &own);
}

/* ---- dtypes ---- */

static bool is_weak(const ir_func *f, ir_tensor t) {
  return ir_tensor_at(f, t)->kind == IR_TENSOR_CONST;
}

ir_dtype ir_infer_promote(const ir_func *f, const ir_tensor *operands, uint32_t n) {
  ir_dtype strong = IR_DTYPE_NONE;
  bool integer = false, fraction = false;
  for (uint32_t i = 0; i < n; i++) {
    if (operands[i].id == 0) continue;
    const ir_tensor_data *t = ir_tensor_at(f, operands[i]);
    if (!is_weak(f, operands[i])) {
      strong = strong ? ir_dtype_promote(strong, t->dtype) : t->dtype;
    } else if (t->number.is_float) {
      fraction = true;
    } else {
      integer = true;
    }
  }
  if (strong == IR_DTYPE_NONE) return fraction ? IR_F32 : IR_I64;
  if (fraction && !ir_dtype_is_float(strong)) return IR_F32;
  if (integer && strong == IR_BOOL) return IR_I64;
  return strong;
}

ir_dtype ir_infer_compute_dtype(const ir_func *f, const ir_op_data *op) {
  ir_result_rule rule = ir_op_info_of(op->code)->rule;
  uint32_t skip = rule == IR_RESULT_CHOICE ? 1 : 0;
  ir_dtype t = ir_infer_promote(f, op->operands + skip, op->n_operands - skip);
  return rule == IR_RESULT_FLOAT && !ir_dtype_is_float(t) ? IR_F32 : t;
}

/* A number must be representable in the dtype that it takes. */
static bool numbers_fit(infer *c, ir_dtype t) {
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    const ir_tensor_data *d = ir_tensor_at(c->f, c->op->operands[i]);
    bool number = d->kind == IR_TENSOR_CONST && d->value.id == 0 && !d->number.is_float;
    if (!number || ir_dtype_is_float(t) || t == IR_BOOL || t == IR_I64) continue;
    int64_t kept;
    ir_element_set_i64(t, &kept, d->number.i);
    if (ir_element_as_i64(t, &kept) == d->number.i) continue;
    return infer_error(c, "the number %lld does not fit %s; cast the tensor first",
                       (long long)d->number.i, ir_dtype_text(t));
  }
  return true;
}

static bool pointwise_dtype(infer *c, ir_dtype *result) {
  ir_result_rule rule = ir_op_info_of(c->op->code)->rule;
  ir_dtype t = ir_infer_compute_dtype(c->f, c->op);
  if (rule == IR_RESULT_NUMBER && t == IR_BOOL) {
    return infer_error(c, "bool has no such arithmetic; cast it first, or use and, or, xor, not");
  }
  if (rule == IR_RESULT_BITS && ir_dtype_is_float(t)) {
    return infer_error(c, "needs bools or integers, not %s", ir_dtype_text(t));
  }
  if (rule == IR_RESULT_CHOICE && ir_tensor_at(c->f, c->op->operands[0])->dtype != IR_BOOL) {
    return infer_error(c, "the condition must be bool, not %s; compare it with 0 first",
                       ir_dtype_text(ir_tensor_at(c->f, c->op->operands[0])->dtype));
  }
  *result = rule == IR_RESULT_TRUTH ? IR_BOOL : t;
  return numbers_fit(c, t);
}

bool infer_pointwise(infer *c) {
  ir_dtype dtype = IR_DTYPE_NONE;
  if (!pointwise_dtype(c, &dtype)) return false;
  dims out = infer_dims(c, 0);
  if (c->op->n_operands == 1) out = copy_dims(c, &out);
  for (uint32_t i = 1; i < c->op->n_operands; i++) {
    dims d = infer_dims(c, i), before = out;
    if (!infer_broadcast(c, &before, &d, &out)) return false;
  }
  return infer_done(c, dtype, &out, &out);
}

bool infer_copy(infer *c) {
  dims in = infer_dims(c, 0), out = copy_dims(c, &in);
  ir_dtype t = ir_tensor_at(c->f, c->op->operands[0])->dtype;
  if (c->op->code == IR_OP_CAST) t = (ir_dtype)ir_op_attr(c->op, "dtype")->i;
  return infer_done(c, t, &out, &out);
}

/* ---- the driver ---- */

static bool tensors_only(infer *c) {
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    if (c->op->operands[i].id == 0 || !is_weak(c->f, c->op->operands[i])) continue;
    return infer_error(c, "needs a tensor, not a number; write full([...], value)");
  }
  return true;
}

static bool all_numbers(infer *c) {
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    if (!is_weak(c->f, c->op->operands[i])) return false;
  }
  return true;
}

static infer_fn *const families[] = {
#define IR(name, ...) infer_##name
#define FAMILY(id, group, ir, ...) [IR_FAMILY_##id] = ir,
#include "ir/families.def"
};

bool ir_infer(ir_func *f, const ir_op_data *op, ir_inferred results[IR_MAX_RESULTS]) {
  const ir_op_info *info = ir_op_info_of(op->code);
  infer c = {f, op, info->name, results};
  check(ir_op_n_results(op) <= info->n_results);
  if (info->family != IR_FAMILY_POINTWISE && !tensors_only(&c)) return false;
  if (info->family == IR_FAMILY_POINTWISE && all_numbers(&c)) {
    return infer_error(&c, "needs at least one tensor; a number alone is written full([], value)");
  }
  return families[info->family](&c);
}
