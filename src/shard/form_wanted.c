/* Which operations are written in their form for sharded axes. docs/shard.md has the rules in words. */
#include <math.h>

#include "shard/form.h"
#include "shard/internal.h"

/* Mesh axes along which dimension `dim` is cut into pieces that can be reduced in parts. */
static uint32_t cuts_of(const ir_func *f, ir_tensor t, uint32_t dim) {
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

static uint32_t position(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

/* The dimensions that `dims` names. */
static uint32_t listed_dims(const ir_op_data *op, uint32_t rank) {
  const ir_attr *list = ir_op_attr(op, "dims");
  uint32_t mask = 0;
  if (!list->given) return (1u << rank) - 1;
  for (uint32_t i = 0; i < list->len; i++) mask |= 1u << position(list->ints[i], rank);
  return mask;
}

static bool any_cut(const ir_func *f, const ir_op_data *op, uint32_t dims) {
  for (; dims; dims &= dims - 1) {
    if (cuts_of(f, op->operands[0], (uint32_t)__builtin_ctz(dims))) return true;
  }
  return false;
}

/* Where operand and result are cut along one mesh axis, the gather and the slice that follows it move more
 * than results per row; where the result is whole, all of it has to be gathered anyway. */
static bool both_cut(const ir_func *f, const ir_op_data *op, uint32_t dim) {
  return (cuts_of(f, op->operands[0], dim) & cuts_of(f, op->result, dim)) != 0;
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

/* Is what a row moves otherwise more than `steps` partial results, each sent twice, in bytes? An extent
 * that is not expected counts as long. */
static bool pays(const form *m, int64_t steps) {
  int64_t n, wide = (int64_t)ir_dtype_size_bytes(m->wide);
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  if (!ir_module_expects(m->f->module, form_count(m), &n)) return true;
  return n > 2 * steps * row_devices(m) * wide / size;
}

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

/* ---- reductions ---- */
static bool wants_reduction(form *m, uint32_t rank) {
  bool moment = ir_op_info_of(m->op.code)->family == IR_FAMILY_MOMENT;
  bool kept = ir_op_attr(&m->op, "keepdim")->i != 0;
  m->write = moment ? form_moment : form_kept_reduction;
  m->dims = listed_dims(&m->op, rank);
  if (!moment && !kept) return false; /* has partial results as it is */
  return any_cut(m->f, &m->op, m->dims) && pays(m, moment && m->op.code != IR_OP_MEAN ? 2 : 1);
}

static bool wants_rows(form *m, uint32_t rank) {
  bool norm = ir_op_info_of(m->op.code)->family == IR_FAMILY_NORM;
  uint32_t dim = norm ? rank - 1 : position(ir_op_attr(&m->op, "dim")->i, rank);
  m->write = norm ? form_norm : form_softmax;
  m->dims = 1u << dim;
  return both_cut(m->f, &m->op, dim) && pays(m, m->op.code == IR_OP_RMS_NORM ? 1 : 2);
}

/* ---- pieces ---- */
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

static bool begin_pieces(form *m, ir_tensor t, uint32_t rank, void (*write)(form *)) {
  m->write = write;
  m->dim = position(ir_op_attr(&m->op, "dim")->i, rank);
  m->dims = 1u << m->dim;
  return form_has_ranges(m, t);
}

static ir_scalar bytes_of(shard_ctx *c, ir_tensor t, uint32_t mesh_axis, int64_t element) {
  ir_scalars *s = &c->f->module->scalars;
  ir_scalar n = shard_local_elements(c, t, 1u << mesh_axis);
  return ir_scalar_mul(s, n, ir_scalar_const(s, element));
}

/* The only operation that reads `t`; none where it is an output. */
static const ir_op_data *only_reader(const ir_func *f, ir_tensor t) {
  const ir_op_data *found = NULL;
  for (uint32_t i = 0; i < f->outputs.len; i++)
    if (IR_SAME(f->outputs.data[i], t)) return NULL;
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      if (!IR_SAME(op->operands[k], t)) continue;
      if (found) return NULL;
      found = op;
    }
  }
  return found;
}

/* Lowering lets partial results go through operations that are linear in them (host/sums.c): the last of these
 * is what is reduced, if it is less. */
static ir_scalar reduced_bytes(form *m, int64_t element) {
  ir_scalar least = bytes_of(m->ctx, m->op.result, m->mesh_axis, element);
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  for (ir_tensor t = m->op.result; ir_dtype_is_float(dtype) && dtype != IR_F16;) {
    const ir_op_data *reader = only_reader(m->f, t);
    if (!reader || !ir_op_is_linear(reader, !IR_SAME(reader->operands[0], t))) break;
    t = reader->result;
    if (ir_tensor_at(m->f, t)->dtype != dtype || shard_is_cut(m->f, t, 1u << m->mesh_axis)) break;
    ir_scalar bytes = bytes_of(m->ctx, t, m->mesh_axis, element);
    int64_t a, b;
    bool known =
        ir_module_expects(m->f->module, bytes, &a) && ir_module_expects(m->f->module, least, &b);
    if (known && a < b) least = bytes;
  }
  return least;
}

/* What an allreduce sends of each element of sums. */
static int64_t summed_size(ir_dtype dtype) {
  int64_t size = (int64_t)ir_dtype_size_bytes(dtype);
  return !ir_dtype_is_float(dtype) ? 8 : dtype == IR_F16 ? 4 : size;
}

/* Results are reduced across devices, twice their bytes (once if they are scattered): not if that is
 * provably no less than the table. */
static bool moves_less(form *m, ir_tensor looked_up) {
  shard_placement p;
  shard_placement_of(m->f, m->op.result, &p);
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  int64_t size = (int64_t)ir_dtype_size_bytes(dtype);
  int64_t sent = summed_size(dtype);
  bool scattered = m->mesh_axis < p.rank && p.axes[m->mesh_axis].kind == SHARD_SHARDED;
  ir_scalar whole = bytes_of(m->ctx, looked_up, m->mesh_axis, size);
  ir_scalar results =
      scattered ? bytes_of(m->ctx, m->op.result, m->mesh_axis, sent) : reduced_bytes(m, 2 * sent);
  int64_t a, b;
  bool known =
      ir_module_expects(m->f->module, whole, &a) && ir_module_expects(m->f->module, results, &b);
  return known ? a > b : ir_scalar_le(&m->f->module->scalars, whole, results) != IR_TRUE;
}

static bool wants_lookup(form *m, uint32_t rank) {
  ir_tensor x = m->op.operands[0];
  return begin_pieces(m, x, rank, form_lookup) && moves_less(m, x);
}

/* ---- ranges ---- */
/* Of what a slice takes along its only dimension that is cut: true if that is less than all. */
static bool begin_slice(form *m, uint32_t rank) {
  ir_axis dims[IR_MAX_RANK];
  ir_axes logical = ir_tensor_at(m->f, m->op.result)->now.logical;
  const ir_transform_data *resize = NULL;
  (void)ir_axes_dims(m->f, logical, dims);
  for (uint32_t i = 0; i < rank; i++) {
    ir_transform def = ir_axis_at(m->f, dims[i])->def;
    const ir_transform_data *t = def.id ? ir_transform_at(m->f, def) : NULL;
    if (!t || t->kind != IR_RESIZE) continue;
    if (resize) return false; /* along one dimension only */
    resize = t;
    m->dim = i;
  }
  if (!resize || !ir_scalar_is_const(&m->f->module->scalars, resize->step, &m->step)) return false;
  m->start = resize->start;
  return true;
}

static bool begin_select(form *m, uint32_t rank) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalars *s = &m->f->module->scalars;
  int64_t at;
  m->dim = position(ir_op_attr(&m->op, "dim")->i, rank);
  m->start = ir_op_attr(&m->op, "index")->scalar;
  (void)ir_tensor_dims(m->f, m->op.operands[0], dims);
  if (ir_scalar_is_const(s, m->start, &at) && at < 0)
    m->start = ir_scalar_add(s, ir_axis_size(m->f, dims[m->dim]), m->start);
  return true;
}

/* Elements of all that slices and selects take of the tensor that this one reads. */
static ir_scalar all_taken(const form *m) {
  ir_scalars *s = &m->f->module->scalars;
  ir_scalar n = ir_scalar_const(s, 0);
  for (uint32_t i = 0; i < m->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(m->f, m->f->order.data[i]);
    ir_family family = ir_op_info_of(op->code)->family;
    if (family != IR_FAMILY_SLICE && family != IR_FAMILY_SELECT) continue;
    if (IR_SAME(op->operands[0], m->op.operands[0]))
      n = ir_scalar_add(s, n, bytes_of(m->ctx, op->result, m->mesh_axis, 1));
  }
  return n;
}

/* All devices need a few positions of an axis that is cut. What is taken is reduced, twice its bytes: all that is
 * taken of the tensor together must be less than the tensor. */
static bool wants_range(form *m, uint32_t rank) {
  ir_scalars *s = &m->f->module->scalars;
  ir_dtype dtype = ir_tensor_at(m->f, m->op.result)->dtype;
  int64_t a, b;
  m->write = form_range;
  if (!(m->op.code == IR_OP_SELECT ? begin_select(m, rank) : begin_slice(m, rank))) return false;
  m->dims = 1u << m->dim;
  if (!form_has_ranges(m, m->op.operands[0])) return false;
  if (shard_is_cut(m->f, m->op.result, 1u << m->mesh_axis)) return false;
  ir_scalar taken = ir_scalar_mul(s, all_taken(m), ir_scalar_const(s, 2 * summed_size(dtype)));
  ir_scalar whole =
      bytes_of(m->ctx, m->op.operands[0], m->mesh_axis, (int64_t)ir_dtype_size_bytes(dtype));
  const int64_t *usual = ir_module_usual(m->f->module, m->ctx->scratch);
  return ir_scalar_eval(s, taken, usual, s->symbols.len, &a) &&
         ir_scalar_eval(s, whole, usual, s->symbols.len, &b) && a < b;
}

/* Nothing is said of the axis along which the operation reduces: its form reduces along another one. */
static bool reduces_plainly(const ir_func *f, ir_tensor t) {
  const ir_tensor_data *x = ir_tensor_at(f, t);
  ir_axes loop = x->now.loop, logical = x->defined.logical;
  ir_axis last = loop.len ? loop.data[loop.len - 1] : (ir_axis){0};
  return loop.len && ir_axis_at(f, last)->kind == IR_AXIS_REDUCTION &&
         ir_axis_at(f, last)->mark.kind == IR_MARK_NONE &&
         IR_SAME(last, logical.data[logical.len - 1]);
}

/* Weights of groups are cut along the groups, without batches. */
static bool wants_groups(form *m, uint32_t rank) {
  if (!reduces_plainly(m->f, m->op.result)) return false;
  ir_axis dims[IR_MAX_RANK];
  ir_tensor weight = m->op.operands[1];
  m->write = form_groups;
  m->dims = 1;
  bool plain = rank == 2 && ir_tensor_dims(m->f, weight, dims) == 3 &&
               ir_tensor_dims(m->f, m->op.operands[2], dims) == 1;
  return plain && form_has_pieces(m, weight) && moves_less(m, weight);
}

/* Do all devices have what is scattered, or is it cut as the index is? */
static bool goes_with_index(const form *m) {
  form src = *m;
  ir_axis dims[IR_MAX_RANK];
  ir_tensor t = m->op.operands[2];
  (void)ir_tensor_dims(m->f, t, dims);
  if (ir_func_equal(m->f, ir_axis_size(m->f, dims[m->dim]), m->length) != IR_TRUE) return false;
  if (!shard_is_cut(m->f, t, 1u << m->mesh_axis)) return true;
  return form_has_ranges(&src, t) && src.mesh_axis == m->mesh_axis && IR_SAME(src.mesh, m->mesh);
}

/* What would be brought to all devices: as much of the index, and of what is scattered, as is cut. */
static ir_scalar scattered_bytes(const form *m) {
  ir_scalar n = ir_scalar_const(&m->f->module->scalars, 0);
  for (uint32_t k = 1; k < 3; k++) {
    ir_tensor t = m->op.operands[k];
    int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, t)->dtype);
    if (!shard_is_cut(m->f, t, 1u << m->mesh_axis)) continue;
    n = ir_scalar_add(&m->f->module->scalars, n, bytes_of(m->ctx, t, m->mesh_axis, size));
  }
  return n;
}

/* What is scattered lies on different devices: each adds up its own, and the results are reduced, if that is less than
 * what is scattered. */
static bool wants_added(form *m, uint32_t rank) {
  if (ir_tensor_at(m->f, m->op.result)->dtype == IR_BOOL) return false;
  if (!begin_pieces(m, m->op.operands[1], rank, form_added) || !goes_with_index(m)) return false;
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.result)->dtype), a, b;
  bool scattered = shard_is_cut(m->f, m->op.result, 1u << m->mesh_axis);
  ir_scalar results = bytes_of(m->ctx, m->op.result, m->mesh_axis, scattered ? size : 2 * size);
  ir_scalar moved = scattered_bytes(m);
  bool known =
      ir_module_expects(m->f->module, results, &a) && ir_module_expects(m->f->module, moved, &b);
  return known ? a < b : ir_scalar_le(&m->f->module->scalars, moved, results) != IR_TRUE;
}

/* What is scattered is where the result is; each device takes what falls into its piece. */
static bool wants_scatter(form *m, uint32_t rank) {
  if (!ir_op_attr(&m->op, "reduce")->i) return false;
  if (wants_added(m, rank)) return true;
  return begin_pieces(m, m->op.result, rank, form_scatter);
}

/* The last dimension is made of two, of which the inner one is cut: [b, k, v mesh.x] as [b, k * v]. */
static bool begin_merged(form *m, uint32_t rank) {
  ir_op def = ir_tensor_at(m->f, m->op.operands[0])->scheduled_def;
  const ir_op_data *op = def.id ? ir_op_at(m->f, def) : NULL;
  ir_axis dims[IR_MAX_RANK], others[IR_MAX_RANK];
  if (!op || op->code != IR_OP_RESHAPE || rank + 3 > IR_MAX_RANK) return false;
  m->write = form_topk;
  m->source = op->operands[0];
  m->dim = rank;
  (void)ir_tensor_dims(m->f, op->result, others);
  bool plain = position(ir_op_attr(&m->op, "dim")->i, rank) + 1 == rank &&
               ir_tensor_dims(m->f, m->source, dims) == rank + 1 && form_has_pieces(m, m->source);
  for (uint32_t i = 0; plain && i + 1 < rank; i++)
    plain = IR_SAME(ir_axis_size(m->f, dims[i]), ir_axis_size(m->f, others[i]));
  m->dims = 1u << m->dim;
  m->dim = rank - 1; /* of the result, and of the pieces */
  return plain;
}

/* What is filled up with comes after all that is there, also among equals. */
static ir_number least_of(ir_dtype dtype) {
  if (ir_dtype_is_float(dtype)) return ir_number_float(-INFINITY);
  bool is_unsigned = dtype == IR_U8 || dtype == IR_BOOL;
  uint32_t bits = 8 * (uint32_t)ir_dtype_size_bytes(dtype);
  return ir_number_int(is_unsigned ? 0 : INT64_MIN >> (64 - bits));
}

static bool begin_topk(form *m, uint32_t rank) {
  form merged = *m;
  m->fill = least_of(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  if (begin_pieces(m, m->op.operands[0], rank, form_topk)) return true;
  if (!begin_merged(&merged, rank)) return false;
  *m = merged;
  return true;
}

/* Each device has candidates enough, and all of them are fewer bytes than the axis. */
static bool wants_topk(form *m, uint32_t rank) {
  int64_t k, piece, rows = 1;
  ir_axis dims[IR_MAX_RANK];
  const ir_scalars *s = &m->f->module->scalars;
  if (!begin_topk(m, rank)) return false;
  if (!ir_scalar_is_const(s, ir_op_attr(&m->op, "k")->scalar, &k)) return false;
  if (m->source.id) (void)ir_tensor_dims(m->f, m->source, dims);
  if (m->source.id && !ir_scalar_is_const(s, ir_axis_size(m->f, dims[rank - 1]), &rows))
    return false;
  if (!ir_scalar_is_const(s, m->piece, &piece) || k > piece * rows) return false;
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, m->op.operands[0])->dtype);
  bool indexed = m->op.code == IR_OP_TOPK_INDEX || m->op.n_more;
  return k * (size + (indexed ? 8 : 0)) < piece * rows * size;
}

/* A sum of each piece is gathered, instead of the row. */
static bool has_more_than_pieces(const form *m) {
  int64_t n;
  return !ir_module_expects(m->f->module, m->length, &n) || n > m->pieces;
}

static bool wants_cumsum(form *m, uint32_t rank) {
  return m->op.code == IR_OP_CUMSUM && begin_pieces(m, m->op.operands[0], rank, form_cumsum) &&
         both_cut(m->f, &m->op, m->dim) && pays(m, 1) && has_more_than_pieces(m);
}

/* Every k-th position of pieces whose length is a multiple of k, along all dimensions of which that is so. */
static bool wants_step(form *m, uint32_t rank) {
  ir_scalars *s = &m->f->module->scalars;
  int64_t start, step;
  uint32_t dims = 0, n = rank;
  for (uint32_t i = 0; i < rank; i++) {
    m->dim = i;
    if (!form_is_step(m->f, &m->op, i, &start, &step) || !both_cut(m->f, &m->op, i)) continue;
    if (!form_has_pieces(m, m->op.operands[0])) continue;
    if (ir_func_divides(m->f, ir_scalar_const(s, step), m->piece) != IR_TRUE) continue;
    dims |= 1u << i;
    n++;
  }
  m->write = form_step;
  m->dims = dims;
  return dims != 0 && n <= IR_MAX_RANK;
}

static bool wants_slice(form *m, uint32_t rank) {
  form step = *m;
  if (m->op.code != IR_OP_SLICE || !wants_step(&step, rank))
    return m->op.code == IR_OP_SLICE && wants_range(m, rank);
  *m = step;
  return true;
}

/* A few positions of each piece go to the next device, or the one before. */
static bool wants_shift(form *m, uint32_t rank) {
  int64_t piece;
  if (!form_is_shift(m, rank)) return wants_slice(m, rank);
  m->write = form_shift;
  m->dims = 1u << m->dim;
  if (!form_has_ranges(m, m->source)) return false;
  if (m->uneven && (m->wraps || (m->enters.id && m->shift < 0))) return false;
  m->fill = m->value;
  bool cut = (cuts_of(m->f, m->source, m->dim) & cuts_of(m->f, m->op.result, m->dim)) != 0;
  int64_t by = m->shift > 0 ? m->shift : -m->shift;
  if (ir_scalar_is_const(&m->f->module->scalars, m->piece, &piece)) return cut && by < piece;
  return cut && by <= 1 && !m->wraps && !m->enters.id;
}

/* ---- attention ---- */
static bool const_dim(const form *m, ir_tensor t, uint32_t dim, int64_t *n) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(m->f, t, dims);
  return ir_scalar_is_const(&m->f->module->scalars, ir_axis_size(m->f, dims[dim]), n);
}

/* Heads of q are cut into more pieces than k has heads, and each piece reads one of them. */
static bool wants_heads(form *m, uint32_t rank, void (*write)(form *)) {
  const ir_op_data *op = &m->op;
  int64_t heads, pieces;
  m->dim = rank - 3;
  m->dims = 1u << m->dim;
  m->write = write;
  if (!form_has_pieces(m, op->operands[0]) || !both_cut(m->f, op, m->dim)) return false;
  if (shard_is_cut(m->f, op->operands[1], 1u << m->mesh_axis)) return false;
  if (shard_is_cut(m->f, op->operands[2], 1u << m->mesh_axis)) return false;
  if (!const_dim(m, op->operands[1], m->dim, &m->heads) || m->heads < 1) return false;
  if (!const_dim(m, op->operands[2], m->dim, &heads) || heads != m->heads) return false;
  if (!ir_scalar_is_const(&m->f->module->scalars, m->piece, &pieces) || pieces < 1) return false;
  return m->heads < m->pieces && m->pieces % m->heads == 0;
}

/* Keys and values are cut along their positions; of few queries, results are fewer bytes than these. */
static bool wants_positions(form *m, uint32_t rank) {
  const ir_op_data *op = &m->op;
  int64_t queries, keys, wide = (int64_t)ir_dtype_size_bytes(m->wide);
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(m->f, op->operands[1])->dtype);
  form values = *m;
  m->dim = values.dim = rank - 2;
  m->dims = 1u << m->dim;
  m->write = form_attention;
  if (ir_op_attr(op, "causal")->i || !form_has_pieces(m, op->operands[1])) return false;
  if (!form_has_pieces(&values, op->operands[2]) || values.mesh_axis != m->mesh_axis) return false;
  if (shard_is_cut(m->f, op->operands[0], 1u << m->mesh_axis)) return false;
  if (!const_dim(m, op->operands[0], m->dim, &queries)) return false;
  if (!const_dim(m, op->operands[1], m->dim, &keys)) return false;
  return 2 * queries * wide < keys * size;
}

static bool has_heads(const form *m, uint32_t rank) {
  ir_axis dims[IR_MAX_RANK];
  return rank >= 3 && rank == ir_tensor_dims(m->f, m->op.operands[1], dims) &&
         rank == ir_tensor_dims(m->f, m->op.operands[2], dims);
}

static bool wants_attention(form *m, uint32_t rank) {
  return has_heads(m, rank) && (wants_heads(m, rank, form_heads) || wants_positions(m, rank));
}

static bool wants_attention_backward(form *m, uint32_t rank) {
  return rank < IR_MAX_RANK && has_heads(m, rank) && wants_heads(m, rank, form_heads_backward);
}

/* ---- all of them, by the names of families.def ---- */
typedef bool wants_fn(form *m, uint32_t rank);

static bool wants_none(form *m, uint32_t rank) {
  (void)m, (void)rank;
  return false;
}

static wants_fn *const families[] = {
#define SHARD(positions, wants) wants_##wants
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
  ir_tensor cut = m.write == form_scatter ? op->result
                  : m.write == form_attention || m.write == form_groups || m.write == form_added
                      ? op->operands[1]
                  : m.source.id ? m.source
                                : op->operands[0];
  if (wanted) m.why = reason_of_cut(c->f, cut, m.dims);
  *result = m;
  return wanted;
}
