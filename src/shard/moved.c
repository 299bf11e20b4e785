/* How many bytes a decomposed function moves in all, and how much its products compute. */
#include "shard/internal.h"

typedef struct moving {
  shard_ctx *c;
  int64_t *values; /* by symbol */
  ir_reads reads;
  double *
      partial; /* by tensor: bytes of partial results that readers may take before they are reduced */
  double total;
} moving;

static double value_of(const moving *m, ir_scalar x) {
  const ir_scalars *s = &m->c->f->module->scalars;
  int64_t value = 0;
  return ir_scalar_eval(s, x, m->values, s->symbols.len, &value) ? (double)value : 0;
}

static void begin(moving *m) {
  const ir_func *f = m->c->f;
  m->values = ir_module_usual(f->module, m->c->scratch);
  m->reads = ir_func_reads(f, m->c->scratch);
  m->partial = ARENA_ARRAY(m->c->scratch, f->tensors.len, double);
}

/* Bytes of the partial results of `op` that come from those of its operands; 0: it needs them whole. Linear
 * operations that make no more of them, and sums of two, take parts (host/sums.c). */
static double carried(const moving *m, const ir_op_data *op) {
  double first = op->n_operands ? m->partial[op->operands[0].id] : 0;
  double second = op->n_operands > 1 ? m->partial[op->operands[1].id] : 0;
  uint32_t k = first <= 0;
  if (ir_op_adds(op)) return first > 0 && second > 0 ? first : 0;
  if (first + second <= 0 || (first > 0 && second > 0) || !ir_op_is_linear(op, k)) return 0;
  double before = ir_tensor_elements(m->c->f, op->operands[k], m->values);
  double after = ir_tensor_elements(m->c->f, op->result, m->values);
  return after <= before ? (first + second) * after / before : 0;
}

/* What is read elsewhere is reduced for that, or, of which each device takes its piece,
 * scattered. */
static void settle_operands(moving *m, const ir_op_data *op, bool takes_piece) {
  double bytes = carried(m, op);
  if (takes_piece) m->partial[op->operands[0].id] /= 2;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    double *of_operand = &m->partial[op->operands[k].id];
    if (bytes <= 0) m->total += *of_operand;
    *of_operand = 0;
  }
  m->partial[op->result.id] = bytes;
}

static void reduce(moving *m, const ir_op_data *op) {
  const ir_func *f = m->c->f;
  shard_placement p;
  double bytes = m->partial[op->result.id];
  uint32_t scattered = 0, whole = 0;
  shard_placement_of(f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    bool several = p.mesh.id && ir_mesh_size(ir_mesh_at(f, p.mesh), k) > 1;
    if (!p.axes[k].reduced.id || !several) continue;
    if (p.axes[k].kind == SHARD_SHARDED) scattered |= 1u << k;
    else whole |= 1u << k;
  }
  for (; scattered; scattered &= scattered - 1)
    bytes += value_of(m, shard_partial_bytes(m->c, op, scattered & -scattered, scattered));
  if (whole) bytes += value_of(m, shard_partial_bytes(m->c, op, whole, 0));
  bool alone = m->reads.n[op->result.id] == 1;
  m->partial[op->result.id] = alone ? bytes : 0;
  if (!alone) m->total += bytes;
}

/* ---- products ---- */
/* Terms of a result that one device adds up, of all its elements; results that are scattered are computed whole. */
static double terms_of(const moving *m, const ir_op_data *op) {
  const ir_func *f = m->c->f;
  const ir_domains *d = &ir_tensor_at(f, op->result)->now;
  uint32_t reduced = 0;
  double n = 1;
  for (uint32_t i = 0; i < d->root.len; i++)
    if (ir_axis_at(f, d->root.data[i])->kind == IR_AXIS_REDUCTION)
      n *= value_of(m, ir_axis_at(f, d->root.data[i])->extent);
  shard_placement p;
  shard_placement_of(f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if (p.axes[k].reduced.id) {
      n /= (double)ir_mesh_size(ir_mesh_at(f, p.mesh), k);
      reduced |= 1u << k;
    }
  return n * value_of(m, shard_local_elements(m->c, op->result, reduced));
}

/* The extent of the operand's dimension `from_last`, counted from the last. */
static double extent_of(const moving *m, ir_tensor t, uint32_t from_last) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(m->c->f, t, dims);
  return from_last < rank ? value_of(m, ir_axis_size(m->c->f, dims[rank - 1 - from_last])) : 1;
}

static double flops_of(const moving *m, const ir_op_data *op) {
  ir_flops flops = ir_family_info_of(op->code)->flops;
  if (!ir_op_multiplies(op->code)) return 0;
  if (flops == IR_FLOPS_PRODUCT || flops == IR_FLOPS_OUTER) return 2 * terms_of(m, op);
  double keys = extent_of(m, op->operands[1], 1);
  double of_key = value_of(m, shard_local_elements(m->c, op->result, 0));
  return (flops == IR_FLOPS_ATTENTION ? 4 : 10) * keys * of_key;
}

double shard_product_flops(shard_ctx *c) {
  moving m = {.c = c};
  double total = 0;
  m.values = ir_module_usual(c->f->module, c->scratch);
  for (uint32_t i = 0; i < c->f->order.len; i++)
    total += flops_of(&m, ir_op_at(c->f, c->f->order.data[i]));
  return total;
}

/* ---- bytes ---- */
double shard_moved_bytes(shard_ctx *c) {
  moving m = {.c = c};
  const ir_func *f = c->f;
  begin(&m);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    shard_comm comm;
    bool moves = shard_comm_of(c, op, &comm) == SHARD_ONE;
    settle_operands(&m, op, moves && comm.kind == SHARD_LOCAL_SLICE);
    if (moves) m.total += value_of(&m, shard_comm_bytes(c, op, &comm));
    else reduce(&m, op);
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) m.total += m.partial[f->outputs.data[i].id];
  return m.total;
}
