/* Operations on slices: attributes that name dimensions or extents are rewritten for them. */
#include <string.h>

#include "base/table.h"
#include "host/internal.h"

typedef struct rewriting {
  lowering *l;
  const ir_op_data *op;
  ir_opcode code; /* what it becomes */
  ir_attr *attrs;
  uint32_t result_dropped, operand_dropped; /* masks; of operand 0 */
  const ir_scalar *sizes;
} rewriting;

static bool is_in(uint32_t mask, uint32_t i) { return (mask >> i & 1) != 0; }

static uint32_t renumber(uint32_t dim, uint32_t dropped) {
  check(dim < IR_MAX_RANK);
  /* mutant: attr_not_renumbered */
  return dim - (uint32_t)__builtin_popcount(dropped & ((1u << dim) - 1));
}

static uint32_t rank_of(const rewriting *r, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  return ir_tensor_dims(r->l->f, t, dims);
}

static uint32_t positive(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

static arena *memory_of(const rewriting *r) { return &r->l->f->module->memory; }

static ir_attr *attr_of(rewriting *r, const char *name) {
  return &r->attrs[ir_op_attr(r->op, name) - r->op->attrs];
}

/* dim=: one dimension of operand 0. */
static void rewrite_dim(rewriting *r) {
  ir_attr *a = attr_of(r, "dim");
  a->i = renumber(positive(a->i, rank_of(r, r->op->operands[0])), r->operand_dropped);
  a->given = true;
}

/* dims=[...]: a set of dimensions of operand 0; none of them is dropped. */
static void rewrite_dims(rewriting *r) {
  ir_attr *a = attr_of(r, "dims");
  if (!a->given) return;
  int64_t *list = ARENA_ARRAY(memory_of(r), a->len, int64_t);
  for (uint32_t i = 0; i < a->len; i++) {
    list[i] = renumber(positive(a->ints[i], rank_of(r, r->op->operands[0])), r->operand_dropped);
  }
  a->ints = list;
}

/* One entry per dimension of the result, `width` values each. */
static void int_entries(rewriting *r, const char *name) {
  ir_attr *a = attr_of(r, name);
  if (!a->given) return;
  int64_t *list = ARENA_ARRAY(memory_of(r), a->len, int64_t);
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->len; i++) {
    if (!is_in(r->result_dropped, i)) list[n++] = a->ints[i];
  }
  a->ints = list;
  a->len = n;
}

static void scalar_entries(rewriting *r, const char *name, uint32_t width, bool sized) {
  ir_attr *a = attr_of(r, name);
  ir_scalar *list = ARENA_ARRAY(memory_of(r), a->len, ir_scalar);
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->len; i++) {
    uint32_t dim = i / width;
    if (is_in(r->result_dropped, dim)) continue;
    /* mutant: attr_not_resized */
    list[n++] = sized && r->sizes[dim].id ? r->sizes[dim] : a->scalars[i];
  }
  a->scalars = list;
  a->len = n;
}

static void rewrite_order(rewriting *r) {
  uint32_t rank = rank_of(r, r->op->result), n = 0;
  bool transpose = r->op->code == IR_OP_TRANSPOSE;
  if (transpose && r->result_dropped == 0) return;
  int64_t *list = ARENA_ARRAY(memory_of(r), rank, int64_t);
  for (uint32_t d = 0; d < rank; d++) {
    uint32_t from = d;
    if (transpose && d + 2 >= rank) from = d + 1 == rank ? d - 1 : d + 1;
    if (!transpose) from = positive(ir_op_attr(r->op, "order")->ints[d], rank);
    if (!is_in(r->result_dropped, d)) list[n++] = renumber(from, r->operand_dropped);
  }
  r->code = IR_OP_PERMUTE;
  r->attrs = ARENA_ARRAY(memory_of(r), 1, ir_attr);
  r->attrs[0] = (ir_attr){.given = true, .len = n, .ints = list};
}

/* The stream of random numbers must not change with the name of the slice. */
static void uniform_key(rewriting *r) {
  const char *name = ir_tensor_name(r->l->f, r->op->result);
  ir_attr *key = attr_of(r, "key");
  if (key->given) return;
  /* mutant: attr_no_key */
  key->given = true;
  key->i = (int64_t)hash_bytes(name, strlen(name));
}

/* A part of x does not tell how long x is along the axis that is written to. */
static void rewrite_update(rewriting *r) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(r->l->f, r->op->result, dims);
  uint32_t dim = positive(ir_op_attr(r->op, "dim")->i, rank);
  ir_attr *of = attr_of(r, "of");
  rewrite_dim(r);
  if (of->given || !r->sizes[dim].id) return;
  of->given = true;
  of->scalar = ir_axis_size(r->l->f, dims[dim]);
}

/* ---- what becomes of attributes, by the names of families.def ---- */
typedef void rewrite_fn(rewriting *r);

static void rewrite_none(rewriting *r) { (void)r; }

static void rewrite_axes(rewriting *r) { int_entries(r, "axes"); }

static void rewrite_shape(rewriting *r) { scalar_entries(r, "shape", 1, true); }

static void rewrite_ranges(rewriting *r) {
  scalar_entries(r, "starts", 1, false);
  scalar_entries(r, "stops", 1, false);
  int_entries(r, "steps");
}

static void rewrite_widths(rewriting *r) { scalar_entries(r, "widths", 2, false); }

static void rewrite_maker(rewriting *r) {
  if (r->op->code == IR_OP_UNIFORM) uniform_key(r);
  else if (r->op->code != IR_OP_IOTA) rewrite_shape(r);
}

static rewrite_fn *const families[] = {
#define HOST(drops, rewrite) rewrite_##rewrite
#define FAMILY(id, group, ir, shard, host, ...) [IR_FAMILY_##id] = host,
#include "ir/families.def"
};

void host_rewrite(lowering *l, const ir_op_data *op, const ir_scalar *sizes, ir_opcode *code,
                  const ir_attr **attrs) {
  const op_plan *plan = &l->ops[ir_tensor_at(l->f, op->result)->def.id];
  uint32_t n = ir_op_info_of(op->code)->n_attrs;
  rewriting r = {.l = l, .op = op, .sizes = sizes, .code = op->code};
  r.attrs = arena_copy(&l->f->module->memory, op->attrs, n * sizeof *op->attrs);
  r.result_dropped = host_dropped_result(l, plan);
  if (op->n_operands) r.operand_dropped = host_dropped_dims(l, op, 0);
  if (plan->axes.len > 0 || op->code == IR_OP_UNIFORM || l->shard)
    families[ir_op_info_of(op->code)->family](&r);
  *code = r.code;
  *attrs = r.attrs;
}
