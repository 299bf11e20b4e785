#include "shard/form.h"

#include <string.h>

#include "ir/build.h"

static arena *memory_of(const form *m) { return &m->f->module->memory; }

static bool same_attrs(const ir_op_info *info, const ir_attr *a, const ir_attr *b) {
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    bool lists = a[i].len && a[i].len == b[i].len && a[i].ints && b[i].ints;
    if (a[i].len != b[i].len || a[i].i != b[i].i || a[i].given != b[i].given) return false;
    if (lists && memcmp(a[i].ints, b[i].ints, a[i].len * sizeof *a[i].ints) != 0) return false;
  }
  return true;
}

/* The sum of another form that is the same: a mean, and the mean of a variance. */
static ir_tensor find_sum(form *m, ir_tensor x, const ir_attr *attrs) {
  for (uint32_t i = m->first; i < m->f->ops.len; i++) {
    const ir_op_data *op = &m->f->ops.data[i];
    if (op->code != IR_OP_SUM || !IR_SAME(op->operands[0], x)) continue;
    if (same_attrs(ir_op_info_of(IR_OP_SUM), op->attrs,
                   ir_attrs_complete(m->f, ir_op_info_of(IR_OP_SUM), attrs)))
      return op->result;
  }
  return (ir_tensor){0};
}

ir_tensor form_op(form *m, ir_opcode code, const ir_tensor *operands, uint32_t n,
                  const ir_attr *attrs) {
  ir_tensor there = code == IR_OP_SUM ? find_sum(m, operands[0], attrs) : (ir_tensor){0};
  if (there.id) return there;
  ir_tensor t = ir_build_op(m->f, code, operands, n, attrs, 0, m->op.at);
  check(t.id != 0);
  return t;
}

ir_tensor form_unary(form *m, ir_opcode code, ir_tensor a) { return form_op(m, code, &a, 1, NULL); }

ir_tensor form_binary(form *m, ir_opcode code, ir_tensor a, ir_tensor b) {
  ir_tensor both[2] = {a, b};
  return form_op(m, code, both, 2, NULL);
}

ir_tensor form_cast(form *m, ir_tensor x, ir_dtype dtype) {
  ir_attr attr = {.given = true, .i = dtype};
  if (ir_tensor_at(m->f, x)->dtype == dtype) return x;
  return form_op(m, IR_OP_CAST, &x, 1, &attr);
}

ir_tensor form_number(form *m, ir_number n) { return ir_build_number(m->f, n, m->op.at); }

ir_tensor form_extent(form *m, ir_scalar n) {
  int64_t value;
  if (ir_scalar_is_const(&m->f->module->scalars, n, &value))
    return form_number(m, ir_number_int(value));
  return ir_build_extent_value(m->f, n, m->op.at);
}

static ir_tensor reduce(form *m, ir_opcode code, ir_tensor x, uint32_t dims, bool may_be_empty) {
  int64_t *list = ARENA_ARRAY(memory_of(m), IR_MAX_RANK, int64_t);
  ir_attr attrs[3] = {{.given = true, .ints = list}, {0}, {.given = may_be_empty, .i = 1}};
  for (uint32_t left = dims; left; left &= left - 1)
    list[attrs[0].len++] = (int64_t)__builtin_ctz(left);
  return form_op(m, code, &x, 1, attrs);
}

ir_tensor form_reduce(form *m, ir_opcode code, ir_tensor x, uint32_t dims) {
  return reduce(m, code, x, dims, false);
}

ir_tensor form_greatest(form *m, ir_tensor x, uint32_t dims) {
  return reduce(m, IR_OP_AMAX, x, dims, true);
}

ir_tensor form_keep(form *m, ir_tensor x, uint32_t dims, uint32_t rank) {
  int64_t *flags = ARENA_ARRAY(memory_of(m), IR_MAX_RANK, int64_t);
  ir_attr attr = {.given = true, .ints = flags, .len = rank};
  for (uint32_t i = 0; i < rank; i++) flags[i] = dims >> i & 1;
  return form_op(m, IR_OP_BROADCAST, &x, 1, &attr);
}

uint32_t form_rank(const form *m) {
  ir_axis dims[IR_MAX_RANK];
  return ir_tensor_dims(m->f, m->op.operands[0], dims);
}

ir_scalar form_count(const form *m) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalars *s = &m->f->module->scalars;
  ir_scalar n = ir_scalar_const(s, 1);
  (void)ir_tensor_dims(m->f, m->op.operands[0], dims);
  for (uint32_t left = m->dims; left; left &= left - 1)
    n = ir_scalar_mul(s, n, ir_axis_size(m->f, dims[__builtin_ctz(left)]));
  return n;
}
