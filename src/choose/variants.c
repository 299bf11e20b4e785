/* What `auto` chooses from: the same program with other streams. */
#include "choose/variants.h"

#include <string.h>

#include "ir/build.h"
#include "ir/host.h"
#include "shard/shard.h"
#include "text/text.h"

typedef struct varying {
  const choose_varied *of;
  arena *scratch;
  choose_variants *to;
} varying;

static bool has_stream_loops(const ir_func *host) {
  for (uint32_t i = 1; i < host->host->instrs.len; i++)
    if (host->host->instrs.data[i].kind == IR_SET_STREAM) return true;
  return false;
}

static bool has_streams(const ir_func *f) {
  for (uint32_t i = 1; i < f->axes.len; i++) {
    if (f->axes.data[i].mark.kind == IR_MARK_STREAM) return true;
  }
  return false;
}

/* ---- sums that other streams would change ---- */
/* Does the operation add up, or multiply, elements of which each is rounded? */
static bool sums_floats(const ir_func *f, const ir_op_data *op) {
  ir_family family = ir_op_info_of(op->code)->family;
  if (!ir_dtype_is_float(ir_tensor_at(f, op->result)->dtype)) return false;
  if (family == IR_FAMILY_MOMENT || family == IR_FAMILY_SCAN) return true;
  ir_fold fold = family == IR_FAMILY_REDUCE ? ir_op_fold(op->code) : IR_FOLD_MAX;
  return fold == IR_FOLD_SUM || fold == IR_FOLD_PROD;
}

/* The outermost dimension of the operand that it goes along. */
static uint32_t first_summed(const ir_func *f, const ir_op_data *op) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, op->operands[0], dims), first = rank;
  bool scan = ir_op_info_of(op->code)->family == IR_FAMILY_SCAN;
  const ir_attr *along = ir_op_attr(op, scan ? "dim" : "dims");
  if (!scan && !along->given) return 0;
  for (uint32_t i = 0; i < (scan ? 1 : along->len); i++) {
    int64_t axis = scan ? along->i : along->ints[i];
    uint32_t dim = (uint32_t)(axis < 0 ? axis + rank : axis);
    if (dim < first) first = dim;
  }
  return first;
}

/* The place in the logical domain of what a loop axis is cut from. */
static uint32_t dimension_of(const ir_func *f, const ir_tensor_data *t, ir_axis a) {
  for (;;) {
    for (uint32_t i = 0; i < t->now.logical.len; i++)
      if (IR_SAME(t->now.logical.data[i], a)) return i;
    ir_transform def = ir_axis_at(f, a)->def;
    if (!def.id) return t->now.logical.len;
    a = ir_transform_at(f, def)->in[0];
  }
}

/* Are slices summed in another order than the whole? Those of a dimension inside of what is added up may be: without it
 * a column of numbers is a row, which vectors add up. */
static bool turns_sum(const ir_func *f, const ir_op_data *op) {
  const ir_tensor_data *t = ir_tensor_at(f, op->result);
  if (!sums_floats(f, op)) return false;
  uint32_t first = first_summed(f, op);
  for (uint32_t i = 0; i < t->now.loop.len; i++) {
    ir_axis a = t->now.loop.data[i];
    if (ir_axis_at(f, a)->mark.kind == IR_MARK_STREAM && dimension_of(f, t, a) >= first)
      return true;
  }
  return false;
}

/* Would sums be others without the streams, as a stream cuts a reduction, or turns a sum? What the host program was made
 * from has all marks that were propagated, and the sums that composite operations were written as. */
static bool changes_sums(const ir_func *host) {
  const ir_func *f = host->host->lowered;
  for (uint32_t i = 1; f && i < f->axes.len; i++) {
    const ir_axis_data *a = &f->axes.data[i];
    if (a->mark.kind == IR_MARK_STREAM && a->kind == IR_AXIS_REDUCTION) return true;
  }
  for (uint32_t i = 0; f && i < f->scheduled.len; i++)
    if (turns_sum(f, ir_op_at(f, f->scheduled.data[i]))) return true;
  return false;
}

static status lower_with(const varying *v, const char *pass, ir_func **result) {
  return v->of->lower(v->of->context, pass, result);
}

/* ---- of a program with streams ---- */
/* If it has the device's own piece first, a collective per slice; if it does not and could, that; and everything
 * in one piece. */
static status vary_streams(varying *v) {
  const ir_func *host = v->of->host;
  bool own_first = host->host->own_first;
  choose_variant other = {.pass = own_first ? "stream-slices" : "stream-pieces"};
  TRY(lower_with(v, other.pass, &other.host));
  bool differs = v->of->deterministic && changes_sums(other.host);
  if (other.host->host->own_first != own_first && !differs) v->to->list[v->to->n++] = other;
  else if (!has_stream_loops(host)) return STATUS_OK; /* no loop came of any mark */
  other.pass = "unstream";
  TRY(lower_with(v, other.pass, &other.host));
  v->to->list[v->to->n++] = other;
  v->to->plain = (uint8_t)v->to->n;
  return STATUS_OK;
}

/* ---- of one without, or where no loop comes of them ---- */
/* "y.outer_split(0, d); y[0] = stream": the statements from number `first` on. */
static const char *print_added(const ir_func *f, uint32_t first, const char *pass) {
  enum { MOST_SHOWN = 6 };
  strbuf out;
  strbuf_init(&out, &f->module->memory);
  uint32_t n = f->statements.len - first;
  for (uint32_t i = 0; i < n && i < MOST_SHOWN; i++) {
    if (i) strbuf_puts(&out, "; ");
    text_print_stmt(f, &f->statements.data[first + i], &out);
  }
  if (n > MOST_SHOWN)
    strbuf_printf(&out, "; … (%u more: --enable %s --print-after %s)", n - MOST_SHOWN, pass, pass);
  return out.data;
}

static int64_t most_devices(const ir_func *f) {
  int64_t most = 0;
  for (uint32_t i = 1; i < f->meshes.len; i++)
    if (f->meshes.data[i].n_devices > most) most = f->meshes.data[i].n_devices;
  return most;
}

static const char *const slicing_passes[] = {[SHARD_SLICE_ALL] = "slice-products",
                                             [SHARD_SLICE_HALVES] = "halve-products",
                                             [SHARD_SLICE_LAST] = "slice-last"};

static bool is_known(const choose_variants *v, const char *added) {
  for (uint32_t i = 0; i < v->n; i++)
    if (strcmp(v->list[i].added, added) == 0) return true;
  return false;
}

/* Products that meet a communication, slice by slice. */
static status slice_products(varying *v, shard_slices which) {
  ir_func *sliced = ir_func_copy(v->of->fusion);
  uint32_t before = sliced->statements.len;
  choose_variant other = {.pass = slicing_passes[which]};
  if (shard_slice_products(sliced, which, v->scratch) == 0) return STATUS_OK;
  other.added = print_added(sliced, before, other.pass);
  if (is_known(v->to, other.added)) return STATUS_OK;
  TRY(lower_with(v, other.pass, &other.host));
  if (v->of->deterministic && changes_sums(other.host)) return STATUS_OK;
  if (has_stream_loops(other.host)) v->to->list[v->to->n++] = other; /* it is not disabled */
  return STATUS_OK;
}

/* Of more products the last is too small a part for a gain that is taken. */
static bool may_gain_by_last(const ir_func *f) {
  enum { MOST_PRODUCTS = 32 };
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->order.len; i++)
    n += ir_op_is_product(ir_op_at(f, f->order.data[i])->code);
  return n <= MOST_PRODUCTS;
}

static status slice_each_way(varying *v) {
  int64_t devices = most_devices(v->of->fusion);
  if (devices > CHOOSE_MOST_RANKS) return STATUS_OK;
  TRY(slice_products(v, SHARD_SLICE_ALL));
  if (v->to->n && devices > 2) TRY(slice_products(v, SHARD_SLICE_HALVES));
  return may_gain_by_last(v->of->fusion) ? slice_products(v, SHARD_SLICE_LAST) : STATUS_OK;
}

status choose_find_variants(const choose_varied *of, arena *scratch, choose_variants *result) {
  varying v = {.of = of, .scratch = scratch, .to = result};
  if (of->host->meshes.len <= 1) return STATUS_OK;
  bool fixed = of->deterministic && changes_sums(of->host);
  if (has_streams(of->fusion) && !fixed) TRY(vary_streams(&v));
  bool streams = has_streams(of->fusion) && has_stream_loops(of->host);
  return result->n || streams ? STATUS_OK : slice_each_way(&v);
}
