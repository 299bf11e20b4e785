/* The part of an operation's result that a step computes: where it begins, and how long it is. */
#include "host/emit.h"
#include "ir/infer.h"

ir_scalar emit_piece_begin(emitter *e, const ir_partition *p, ir_scalar n, ir_scalar index) {
  /* mutant: offset_zero */
  return ir_partition_begin(emit_scalars(e), p, n, index);
}

bool emit_needs_offsets(emitter *e, const step *s) {
  for (uint32_t q = 0; q < s->plan->axes.len; q++) {
    if (host_drops(e->l, s->plan, q)) continue;
    if (host_needs_offset(e->l, s->op, &s->plan->axes.data[q])) return true;
  }
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->f, s->op->result, dims);
  for (uint32_t d = 0; d < rank; d++) {
    if (host_needs_device_offset(e->l, s->op, s->plan, d)) return true;
  }
  return false;
}

/* Marks operands of which devices hold a part: their positions count from the part's beginning. */
static void mark_parts(emitter *e, const step *s) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->f, s->op->result, dims);
  for (uint32_t d = 0; d < rank; d++) {
    if (!host_needs_device_offset(e->l, s->op, s->plan, d)) continue;
    for (uint32_t k = 0; k < s->op->n_operands; k++) {
      stream_axis cut = {.dim = d};
      uint32_t dim;
      bool stretched;
      if (!s->op->operands[k].id || (s->result_dropped >> d & 1)) continue;
      if (!host_operand_dim(e->l, s->op, k, &cut, &dim, &stretched) || stretched) continue;
      s->sliced[k] |= 1u << emit_renumber(d, s->result_dropped);
    }
  }
}

/* The length of the running device's part of dimension d; false if that is the whole dimension. */
static bool part_length(emitter *e, const step *s, uint32_t d, ir_scalar *length) {
  const ir_cut *cuts;
  uint32_t n = host_cuts(e->l, s->op->result, d, s->plan->partial, &cuts);
  ir_mesh mesh = ir_tensor_at(e->f, s->op->result)->mesh;
  for (uint32_t i = 0; i < n; i++) *length = ir_host_part(e->h, mesh, &cuts[i], *length);
  return n > 0;
}

/* Offsets and sizes of the slice, per dimension of the whole result. */
static void measure(emitter *e, const step *s, ir_scalar *offsets, ir_scalar *sizes,
                    uint32_t rank) {
  ir_scalars *sc = emit_scalars(e);
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(e->f, s->op->result, dims);
  ir_scalar left[IR_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) {
    offsets[d] = ir_scalar_const(sc, 0);
    left[d] = ir_axis_size(e->f, dims[d]);
    sizes[d] = (ir_scalar){0};
    if (host_needs_device_offset(e->l, s->op, s->plan, d))
      offsets[d] = emit_device_begin(e, s->op->result, d, s->plan->partial);
    if (part_length(e, s, d, &left[d])) sizes[d] = left[d];
  }
  for (uint32_t q = 0; q < s->plan->axes.len; q++) {
    const stream_axis *a = &s->plan->axes.data[q];
    if (a->reduction) continue;
    ir_scalar i = e->loops[q].index, begin = emit_piece_begin(e, &a->partition, left[a->dim], i);
    /* mutant: offset_innermost_only */
    offsets[a->dim] = ir_scalar_add(sc, offsets[a->dim], begin);
    left[a->dim] = ir_partition_length(sc, &a->partition, left[a->dim], i, a->count);
    sizes[a->dim] = left[a->dim];
  }
}

/* A reshape keeps the whole extent of a dimension that its operand is not cut along. */
static void keep_whole(emitter *e, const step *s, ir_scalar *sizes) {
  if (ir_op_info_of(s->op->code)->family != IR_FAMILY_RESHAPE) return;
  for (uint32_t q = 0; q < s->plan->axes.len; q++) {
    uint32_t dim;
    bool stretched;
    const stream_axis *a = &s->plan->axes.data[q];
    if (host_operand_dim(e->l, s->op, 0, a, &dim, &stretched)) continue;
    ir_axis dims[IR_MAX_RANK];
    (void)ir_tensor_dims(e->f, s->op->result, dims);
    ir_scalar whole = ir_axis_size(e->f, dims[a->dim]);
    sizes[a->dim] = part_length(e, s, a->dim, &whole) ? whole : (ir_scalar){0};
  }
}

/* Which dimensions of operand k, in h, repeat one position more often than the device's part of the
 * result needs it; `lengths` are those it needs. */
static uint32_t repeated_dims(emitter *e, const step *s, uint32_t k, ir_tensor to,
                              ir_scalar *lengths) {
  ir_axis dims[IR_MAX_RANK], mine[IR_MAX_RANK], part[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->f, s->op->result, dims), found = 0;
  uint32_t dropped = host_dropped_dims(e->l, s->op, k);
  (void)ir_tensor_dims(e->f, s->op->operands[k], mine);
  (void)ir_tensor_dims(e->h, to, part);
  for (uint32_t d = 0; d < rank; d++) {
    stream_axis cut = {.dim = d};
    uint32_t dim;
    bool stretched;
    if ((s->result_dropped >> d & 1) || !host_cuts(e->l, s->op->result, d, 0, NULL)) continue;
    if (!host_operand_dim(e->l, s->op, k, &cut, &dim, &stretched)) continue;
    if (!ir_axis_at(e->f, mine[dim])->expanded.id ||
        host_cuts(e->l, s->op->operands[k], dim, 0, NULL))
      continue;
    uint32_t at = emit_renumber(dim, dropped);
    lengths[at] = ir_axis_size(e->h, part[emit_renumber(d, s->result_dropped)]);
    found |= 1u << at;
  }
  return found;
}

/* Operand k without the repetitions that are not needed:
 *     x$1 = slice(x, starts=[0, ...], stops=[length, ...]) */
static ir_tensor fitting(emitter *e, const step *s, uint32_t k, ir_tensor to) {
  ir_tensor t = s->operands[k];
  ir_scalar lengths[IR_MAX_RANK];
  if (t.id == 0 || !e->l->shard || ir_tensor_at(e->h, t)->kind == IR_TENSOR_CONST) return t;
  uint32_t which = repeated_dims(e, s, k, to, lengths);
  /* mutant: dev_repeats_too_long */
  return which ? emit_first(e, t, which, lengths, s->op->at) : t;
}

static const ir_attr *attr_named(const ir_op_data *op, const ir_attr *attrs, const char *name) {
  return attrs + (ir_op_attr(op, name) - op->attrs);
}

/* The attributes of a product that writes `to`: partial sums of f16 and bf16 are in f32, and those of a
 * linear whose bias is added later have the dtype that the bias gives the result.
 *
 *     part : f32[m, n];  part <- matmul(a, b, dtype=f32) */
static const ir_attr *with_dtype(emitter *e, const step *s, const ir_attr *attrs, ir_tensor to,
                                 ir_rule *why) {
  const ir_attr *asked = attr_named(s->op, attrs, "dtype");
  ir_dtype dtype = ir_tensor_at(e->h, to)->dtype;
  ir_dtype own =
      ir_infer_promote(e->h, s->operands, ir_op_n_factors(s->op->code, s->op->n_operands));
  if (dtype == (asked->given ? (ir_dtype)asked->i : own)) return attrs;
  uint32_t n = ir_op_info_of(s->op->code)->n_attrs;
  ir_attr *result = arena_copy(&e->h->module->memory, attrs, n * sizeof *attrs);
  result[asked - attrs] = (ir_attr){.given = dtype != own, .i = dtype};
  bool wide = dtype != ir_tensor_at(e->f, s->op->result)->dtype;
  *why = wide ? IR_RULE_WIDE : IR_RULE_BIAS_DTYPE;
  return result;
}

/* The length of the running device's part of dimension d of operand 0. */
static ir_scalar operand_part(emitter *e, const ir_op_data *op, uint32_t d) {
  ir_axis dims[IR_MAX_RANK];
  const ir_cut *cuts;
  (void)ir_tensor_dims(e->f, op->operands[0], dims);
  ir_scalar length = ir_axis_size(e->f, dims[d]);
  uint32_t n = host_cuts(e->l, op->operands[0], d, 0, &cuts);
  ir_mesh mesh = ir_tensor_at(e->f, op->operands[0])->mesh;
  for (uint32_t i = 0; i < n; i++) length = ir_host_part(e->h, mesh, &cuts[i], length);
  return length;
}

/* A slice or pad at the end of a dimension of which the device has a part resizes to the length of that part. A
 * stream computes windows of it.
 *     slice(x, stops=[length]);  pad(x, [0, length - length of x]) */
static const ir_attr *resize_parts(emitter *e, const step *s, uint32_t rank, const ir_attr *attrs) {
  arena *memory = &e->h->module->memory;
  bool pads = s->op->code == IR_OP_PAD;
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(e->f, s->op->result, dims);
  for (uint32_t d = 0; d < rank; d++) {
    ir_scalar length = ir_axis_size(e->f, dims[d]);
    if (!host_resizes_part(e->l, s->op, d) || !part_length(e, s, d, &length)) continue;
    uint32_t at = emit_renumber(d, s->result_dropped);
    ir_attr *result =
        arena_copy(memory, attrs, ir_op_info_of(s->op->code)->n_attrs * sizeof *attrs);
    ir_attr *list = result + (attr_named(s->op, attrs, pads ? "widths" : "stops") - attrs);
    ir_scalar *scalars = arena_copy(memory, list->scalars, list->len * sizeof *scalars);
    ir_scalar added = ir_scalar_sub(emit_scalars(e), length, operand_part(e, s->op, d));
    scalars[pads ? 2 * at + 1 : at] = pads ? added : length;
    list->scalars = scalars;
    attrs = result;
  }
  return attrs;
}

ir_instr_data emit_compute(emitter *e, const step *s, ir_tensor to) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->f, s->op->result, dims), n = 0;
  ir_scalar offsets[IR_MAX_RANK], sizes[IR_MAX_RANK];
  measure(e, s, offsets, sizes, rank);
  keep_whole(e, s, sizes);
  ir_opcode code;
  const ir_attr *attrs;
  host_rewrite(e->l, s->op, sizes, &code, &attrs);
  attrs = resize_parts(e, s, rank, attrs);
  ir_instr_data d = {.kind = IR_COMPUTE, .at = s->op->at, .tensor = to};
  if (ir_op_is_product(s->op->code)) attrs = with_dtype(e, s, attrs, to, &d.why);
  ir_tensor operands[64];
  for (uint32_t k = 0; k < s->op->n_operands; k++) operands[k] = fitting(e, s, k, to);
  d.op = ir_host_op(e->h, code, operands, s->op->n_operands, attrs, to, s->op->at);
  if (!emit_needs_offsets(e, s)) return d;
  mark_parts(e, s);
  for (uint32_t k = 0; k < rank; k++) {
    if (!(s->result_dropped >> k & 1)) offsets[n++] = offsets[k];
  }
  d.offsets = arena_copy(&e->h->module->memory, offsets, n * sizeof *offsets);
  d.sliced = s->sliced;
  return d;
}
