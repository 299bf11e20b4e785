/* How an axis is cut that an operation works along, and what its forms cost: what decisions about forms share. */
#include "shard/form.h"
#include "shard/internal.h"

uint32_t form_cuts_of(const ir_func *f, ir_tensor t, uint32_t dim) {
  shard_placement p;
  uint32_t mask = 0;
  shard_placement_of(f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *a = &p.axes[k];
    bool cut = a->kind == SHARD_SHARDED && a->dim == dim && !a->swizzled;
    if (cut && ir_mesh_size(ir_mesh_at(f, p.mesh), k) > 1) mask |= 1u << k;
  }
  return mask;
}

uint32_t form_position(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

/* Where operand and result are cut along one mesh axis, the gather and the slice that follows it move more
 * than results per row; where the result is whole, all of it has to be gathered anyway. */
bool form_both_cut(const ir_func *f, const ir_op_data *op, uint32_t dim) {
  return (form_cuts_of(f, op->operands[0], dim) & form_cuts_of(f, op->result, dim)) != 0;
}

/* Devices among which the result's rows are dealt out: rows that are cut along d devices are exchanged for
 * these, which moves a d-th of what the gather does. */
static int64_t row_devices(const form *m) {
  shard_placement from, to;
  int64_t n = 1;
  shard_placement_of(m->f, m->op.operands[0], &from);
  shard_placement_of(m->f, m->op.result, &to);
  for (uint32_t k = 0; k < from.rank && k < to.rank; k++) {
    bool along = from.axes[k].kind == SHARD_SHARDED && (m->dims >> from.axes[k].dim & 1);
    bool moves = to.axes[k].kind == SHARD_SHARDED && from.axes[k].dim != to.axes[k].dim;
    if (along && moves) n *= ir_mesh_size(ir_mesh_at(m->f, from.mesh), k);
  }
  return n;
}

bool form_pays(const form *m, int64_t steps) {
  int64_t n, wide = (int64_t)ir_dtype_size_bytes(m->wide);
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  if (!ir_module_expects(m->f->module, form_count(m), &n)) return true;
  return n > 2 * steps * row_devices(m) * wide / size;
}

/* Whether they are of equal length is seen in `uneven`. */
static bool find_ranges(form *m, ir_tensor t) {
  shard_placement p;
  ir_axis dims[IR_MAX_RANK];
  ir_scalars *s = &m->f->module->scalars;
  uint32_t found = 0, rank = ir_tensor_dims(m->f, t, dims);
  shard_placement_of(m->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].kind != SHARD_SHARDED || p.axes[k].dim != m->dim) continue;
    m->mesh_axis = k;
    found++;
  }
  if (found != 1 || rank + 2 > IR_MAX_RANK) return false;
  const shard_axis *a = &p.axes[m->mesh_axis];
  m->mesh = p.mesh;
  m->pieces = ir_mesh_size(ir_mesh_at(m->f, p.mesh), m->mesh_axis);
  ir_scalar n = ir_scalar_const(s, m->pieces), size = ir_axis_size(m->f, dims[m->dim]);
  m->uneven = ir_func_divides(m->f, n, size) != IR_TRUE;
  m->piece = m->uneven ? ir_scalar_ceildiv(s, size, n) : ir_scalar_floordiv(s, size, n);
  m->length = size;
  bool ranges = a->cut == SHARD_OUTER && !a->nested && !a->swizzled && m->pieces > 1;
  return ranges && ir_func_equal(m->f, a->piece, m->piece) == IR_TRUE;
}

bool form_has_pieces(form *m, ir_tensor t) { return find_ranges(m, t) && !m->uneven; }

/* Streams are not taken along through what is filled up. */
bool form_has_ranges(form *m, ir_tensor t) {
  if (!find_ranges(m, t)) return false;
  return !m->uneven || (!ir_axes_streamed(m->f, ir_tensor_at(m->f, t)->now.loop) &&
                        !ir_axes_streamed(m->f, ir_tensor_at(m->f, m->op.result)->now.loop));
}

bool form_begin_pieces(form *m, ir_tensor t, uint32_t rank, void (*write)(form *)) {
  m->write = write;
  m->dim = form_position(ir_op_attr(&m->op, "dim")->i, rank);
  m->dims = 1u << m->dim;
  return form_has_ranges(m, t);
}

ir_scalar form_bytes(shard_ctx *c, ir_tensor t, uint32_t mesh_axis, int64_t element) {
  ir_scalars *s = &c->f->module->scalars;
  ir_scalar n = shard_local_elements(c, t, 1u << mesh_axis);
  return ir_scalar_mul(s, n, ir_scalar_const(s, element));
}

double form_usual(const form *m, ir_scalar x) {
  const ir_scalars *s = form_scalars(m);
  const int64_t *usual = ir_module_usual(m->f->module, m->ctx->scratch);
  int64_t n = 0;
  return ir_scalar_eval(s, x, usual, s->symbols.len, &n) ? (double)n : 0;
}

int64_t form_summed_size(ir_dtype dtype) {
  int64_t size = (int64_t)ir_dtype_size_bytes(dtype);
  return !ir_dtype_is_float(dtype) ? 8 : dtype == IR_F16 ? 4 : size;
}

bool form_reduces_plainly(const ir_func *f, ir_tensor t) {
  const ir_tensor_data *x = ir_tensor_at(f, t);
  ir_axes loop = x->now.loop, logical = x->defined.logical;
  ir_axis last = loop.len ? loop.data[loop.len - 1] : (ir_axis){0};
  return loop.len && ir_axis_at(f, last)->kind == IR_AXIS_REDUCTION &&
         ir_axis_at(f, last)->mark.kind == IR_MARK_NONE &&
         IR_SAME(last, logical.data[logical.len - 1]);
}
