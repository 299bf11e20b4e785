/* Which operations are written in their form for sharded axes. docs/shard.md has the rules in words. */
#include "shard/form.h"
#include "shard/internal.h"

static form begin(const ir_func *f, const ir_op_data *op) {
  bool is_f64 = ir_tensor_at(f, op->result)->dtype == IR_F64;
  return (form){.f = (ir_func *)f, .op = *op, .wide = is_f64 ? IR_F64 : IR_F32};
}

/* The reason of the mark that cuts one of these dimensions. */
static uint32_t reason_of_cut(const ir_func *f, ir_tensor t, uint32_t dims) {
  shard_placement p;
  shard_placement_of(f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    bool cut = p.axes[k].kind == SHARD_SHARDED && (dims >> p.axes[k].dim & 1);
    if (cut) return ir_axis_at(f, p.axes[k].loop)->why;
  }
  return 0;
}

/* ---- all of them, by the names of families.def ---- */
typedef bool wants_fn(form *m, uint32_t rank);

static bool form_wants_none(form *m, uint32_t rank) {
  (void)m, (void)rank;
  return false;
}

static wants_fn *const families[] = {
#define SHARD(positions, wants) form_wants_##wants
#define FAMILY(id, group, ir, shard, ...) [IR_FAMILY_##id] = shard,
#include "ir/families.def"
};

bool form_wanted(shard_ctx *c, const ir_op_data *op, form *result) {
  ir_axis axes[IR_MAX_RANK];
  form m = begin(c->f, op);
  m.ctx = c;
  m.rule = IR_RULE_PARTS;
  if (op->n_operands == 0 || op->operands[0].id == 0) return false;
  uint32_t rank = ir_tensor_dims(c->f, op->operands[0], axes);
  if (rank == 0) return false;
  bool wanted = families[ir_op_info_of(op->code)->family](&m, rank);
  ir_tensor cut = m.write == form_scatter || m.write == form_outer ? op->result
                  : m.write == form_attention || m.write == form_keys || m.write == form_groups ||
                          m.write == form_added
                      ? op->operands[1]
                  : m.source.id ? m.source
                                : op->operands[0];
  if (wanted) m.why = reason_of_cut(c->f, cut, m.dims);
  *result = m;
  return wanted;
}
