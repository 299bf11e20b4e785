#include <stdarg.h>
#include <stdio.h>

#include "ir/host_verify.h"
#include "ir/infer.h"

static bool broken(ir_func *h, loc at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static bool broken(ir_func *h, loc at, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  diag_error(&h->module->errors, at, "%s", text);
  return false;
}

static bool is_const(const ir_func *h, ir_scalar x, int64_t *value) {
  return ir_scalar_is_const(&h->module->scalars, x, value);
}

/* ---- slices ---- */
/* On a dimension of size 1 every index means its only position. */
static bool index_fits(ir_func *h, const ir_instr_data *d, ir_scalar n) {
  int64_t index, size;
  ir_scalar count =
      d->kind == IR_SELECT ? n : ir_partition_count(&h->module->scalars, &d->partition, n);
  if (!is_const(h, d->index, &index)) return true;
  if (index < 0) {
    return broken(h, d->at, "index %lld is negative; '%s' has %s %s along dimension %u",
                  (long long)index, ir_tensor_name(h, d->from), ir_scalar_text(h, count),
                  d->kind == IR_SELECT ? "positions" : "pieces", d->dim);
  }
  if (!is_const(h, count, &size) || index < size) return true;
  if (d->kind == IR_SELECT && size == 1) return true;
  return broken(h, d->at, "index %lld is out of range: '%s' has %lld %s along dimension %u",
                (long long)index, ir_tensor_name(h, d->from), (long long)size,
                d->kind == IR_SELECT ? "positions" : "pieces", d->dim);
}

static bool partition_fits(ir_func *h, const ir_instr_data *d, ir_scalar n) {
  const ir_partition *p = &d->partition;
  int64_t value, total = 0;
  if (p->kind != IR_CHUNKS) {
    if (!is_const(h, p->size, &value) || value >= 1) return true;
    return broken(h, d->at, "pieces of '%s' must be 1 or more", ir_tensor_name(h, d->from));
  }
  for (uint32_t i = 0; i < p->n_chunks; i++) {
    bool fits = p->chunks[i] >= 0 && !__builtin_add_overflow(total, p->chunks[i], &total);
    if (!fits) return broken(h, d->at, "the chunks are negative or overflow");
  }
  ir_scalars *s = &h->module->scalars;
  ir_scalar sum = ir_scalar_const(s, total);
  if (ir_scalar_eq(s, sum, n) != IR_FALSE) return true;
  if (ir_host_is_piece(h, d->from, d->dim) && ir_scalar_le(s, n, sum) == IR_TRUE) return true;
  return broken(h, d->at, "the chunks add up to %lld, but dimension %u of '%s' has %s positions",
                (long long)total, d->dim, ir_tensor_name(h, d->from), ir_scalar_text(h, n));
}

/* The sizes that the slice must have. */
static uint32_t slice_sizes(ir_func *h, const ir_instr_data *d, ir_scalar sizes[IR_MAX_RANK]) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, d->from, dims), n = 0;
  const ir_scalar none = {0};
  for (uint32_t i = 0; i < rank; i++) {
    ir_scalar size = ir_axis_size(h, dims[i]);
    if (i == d->dim && d->kind == IR_SELECT) continue;
    if (i == d->dim) {
      size = ir_partition_length(&h->module->scalars, &d->partition, size, d->index, none);
    }
    sizes[n++] = size;
  }
  return n;
}

static bool has_sizes(ir_func *h, ir_tensor t, const ir_scalar *sizes, uint32_t n) {
  ir_axis dims[IR_MAX_RANK];
  bool same = ir_tensor_dims(h, t, dims) == n;
  for (uint32_t i = 0; same && i < n; i++) {
    same = ir_func_equal(h, ir_axis_size(h, dims[i]), sizes[i]) != IR_FALSE;
  }
  return same;
}

bool ir_host_verify_slice(ir_func *h, const ir_instr_data *d) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, d->from, dims);
  if (d->dim >= rank) {
    return broken(h, d->at, "'%s' has no dimension %u; its rank is %u", ir_tensor_name(h, d->from),
                  d->dim, rank);
  }
  ir_scalar n = ir_axis_size(h, dims[d->dim]);
  if (d->kind == IR_SHARD && !partition_fits(h, d, n)) return false;
  if (!index_fits(h, d, n)) return false;
  uint32_t want = slice_sizes(h, d, sizes);
  bool same = ir_tensor_at(h, d->tensor)->dtype == ir_tensor_at(h, d->from)->dtype;
  if (same && has_sizes(h, d->tensor, sizes, want)) return true;
  return broken(h, d->at, "'%s' is %s, which is not such a slice of %s",
                ir_tensor_name(h, d->tensor), ir_type_text(h, d->tensor), ir_type_text(h, d->from));
}

/* ---- operations ---- */
static const char *type_text(ir_func *h, const ir_inferred *type) {
  strbuf out;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(h, type->domains.logical, dims);
  strbuf_init(&out, &h->module->memory);
  strbuf_puts(&out, ir_dtype_text(type->dtype));
  for (uint32_t i = 0; i < rank; i++) {
    strbuf_puts(&out, i ? ", " : "[");
    ir_print_scalar(h, ir_axis_size(h, dims[i]), &out);
  }
  if (rank) strbuf_putc(&out, ']');
  return out.data;
}

static bool result_fits(ir_func *h, const ir_instr_data *d, ir_tensor t, const ir_inferred *type) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_axes_dims(h, type->domains.logical, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(h, dims[i]);
  bool same = ir_tensor_at(h, t)->dtype == type->dtype;
  if (same && has_sizes(h, t, sizes, rank)) return true;
  return broken(h, d->at, "%s gives %s, but '%s' is %s",
                ir_op_info_of(ir_op_at(h, d->op)->code)->name, type_text(h, type),
                ir_tensor_name(h, t), ir_type_text(h, t));
}

static bool masks_fit(ir_func *h, const ir_instr_data *d) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, d->tensor, dims), n = ir_op_at(h, d->op)->n_operands;
  for (uint32_t i = 0; d->sliced && i < n; i++) {
    if (d->sliced[i] >> rank == 0) continue;
    return broken(h, d->at, "operand %u is sliced along a dimension that '%s' does not have", i,
                  ir_tensor_name(h, d->tensor));
  }
  return true;
}

/* Inference appends axes and constraints; they are removed again, and the types in the program stay. */
bool ir_host_verify_compute(ir_func *h, const ir_instr_data *d) {
  if (d->offsets) return masks_fit(h, d);
  ir_counts before = {h->axes.len, h->transforms.len, h->tensors.len, h->ops.len,
                      h->constraints.len};
  const ir_op_data op = *ir_op_at(h, d->op);
  ir_inferred types[IR_MAX_RESULTS];
  bool ok = ir_infer(h, &op, types);
  for (uint32_t k = 0; ok && k < ir_op_n_results(&op); k++) {
    ok = result_fits(h, d, ir_op_result(&op, k), &types[k]);
  }
  h->axes.len = before.axes;
  h->transforms.len = before.transforms;
  h->constraints.len = before.constraints;
  return ok;
}

bool ir_host_verify_return(ir_func *h, const ir_instr_data *d, ir_tensor to, ir_tensor from) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, from, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(h, dims[i]);
  bool same = ir_tensor_at(h, to)->dtype == ir_tensor_at(h, from)->dtype;
  if (same && has_sizes(h, to, sizes, rank)) return true;
  return broken(h, d->at, "the kernel returns %s, but '%s' is %s", ir_type_text(h, from),
                ir_tensor_name(h, to), ir_type_text(h, to));
}
