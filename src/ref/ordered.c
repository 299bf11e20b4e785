/* Operations along one axis in which order counts: cumsum, argsort, topk, topk_index. */
#include <math.h>

#include "ref/internal.h"

/* ---- rows ---- */
typedef struct ordered_rows {
  ref_rows from, to, more;
  int64_t index[IR_MAX_RANK];
} ordered_rows;

static ordered_rows rows_of(const ref_call *c) {
  const ir_array *x = ref_operand(c, 0);
  bool chosen[IR_MAX_RANK] = {false};
  chosen[ref_attr_dim(c, "dim", x->rank)] = true;
  ordered_rows r = {.from = ref_rows_of(x, chosen), .to = ref_rows_of(&c->result, chosen)};
  if (ref_wants(c, 1)) r.more = ref_rows_of(&c->more[0], chosen);
  return r;
}

/* ---- cumsum ---- */
static void scan_row(const ref_call *c, const ir_array *from, const ir_array *to) {
  ref_fold sum =
      ref_fold_start(c->state, IR_FOLD_SUM, ir_dtype_is_float(from->dtype), c->result.dtype);
  for (int64_t i = 0; i < from->extents[0]; i++) {
    ref_fold_term(&sum, &(ref_terms){.left = *from}, &i);
    ref_fold_store(&sum, to->dtype, ir_array_at(to, &i));
    ref_note(c, 0, ir_array_at(to, &i), ref_fold_noise(&sum, to->dtype));
  }
}

status ref_scan(const ref_call *c) {
  ordered_rows r = rows_of(c);
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    ir_array from = ref_row_at(&r.from, r.index), to = ref_row_at(&r.to, r.index);
    scan_row(c, &from, &to);
  } while (ir_array_next(&r.from.outer, r.index));
  return STATUS_OK;
}

/* ---- sorting ---- */
/* -1, 0 or 1. NaN is larger than every number and equal to NaN. */
static int compare(const ir_array *row, int64_t i, int64_t j) {
  const void *p = ir_array_at(row, &i), *q = ir_array_at(row, &j);
  if (!ir_dtype_is_float(row->dtype)) {
    int64_t a = ir_element_as_i64(row->dtype, p), b = ir_element_as_i64(row->dtype, q);
    return (a > b) - (a < b);
  }
  double a = ir_element_as_f64(row->dtype, p), b = ir_element_as_f64(row->dtype, q);
  if (isnan(a) || isnan(b)) return (isnan(a) != 0) - (isnan(b) != 0);
  return (a > b) - (a < b);
}

/* Does the element at position j come before the one at i < j? Equal ones keep their order. */
static bool overtakes(const ir_array *row, int64_t j, int64_t i, bool descending) {
  int order = compare(row, j, i);
  return descending ? order > 0 : order < 0;
}

/* Two sorted halves of `order`, [0, n / 2) and [n / 2, n), become one. */
static void merge(const ir_array *row, int64_t *order, int64_t n, int64_t *spare, bool descending) {
  int64_t half = n / 2, i = 0, j = half;
  for (int64_t k = 0; k < n; k++) {
    bool second = i == half || (j < n && overtakes(row, order[j], order[i], descending));
    spare[k] = second ? order[j++] : order[i++];
  }
  for (int64_t k = 0; k < n; k++) order[k] = spare[k];
}

static void sort(const ir_array *row, int64_t *order, int64_t n, int64_t *spare, bool descending) {
  if (n < 2) return;
  sort(row, order, n / 2, spare, descending);
  sort(row, order + n / 2, n - n / 2, spare, descending);
  merge(row, order, n, spare, descending);
}

static void write_values(const ir_array *from, const ir_array *to, const int64_t *order) {
  for (int64_t i = 0; i < to->extents[0]; i++) {
    ir_array target = {.dtype = to->dtype, .data = ir_array_at(to, &i)};
    ir_array origin = {.dtype = from->dtype, .data = ir_array_at(from, &order[i])};
    ir_array_copy(&target, &origin);
  }
}

static void write_indices(const ir_array *to, const int64_t *order) {
  for (int64_t i = 0; i < to->extents[0]; i++)
    ir_element_set_i64(to->dtype, ir_array_at(to, &i), order[i]);
}

/* topk is the beginning of a descending sort. */
status ref_sort(const ref_call *c) {
  ordered_rows r = rows_of(c);
  bool values = c->op->code == IR_OP_TOPK;
  bool descending = c->op->code != IR_OP_ARGSORT || ref_attr_int(c, "descending") != 0;
  const allocator *memory = c->state->options->memory;
  int64_t n = r.from.row.extents[0];
  if (ref_count(&c->result) == 0) return STATUS_OK;
  int64_t *order = memory_alloc(memory, 2 * (size_t)n * sizeof *order);
  if (!order) return STATUS_OUT_OF_MEMORY;
  do {
    ir_array from = ref_row_at(&r.from, r.index), to = ref_row_at(&r.to, r.index);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    sort(&from, order, n, order + n, descending);
    if (values) write_values(&from, &to, order);
    else write_indices(&to, order);
    if (!ref_wants(c, 1)) continue;
    ir_array indices = ref_row_at(&r.more, r.index);
    write_indices(&indices, order);
  } while (ir_array_next(&r.from.outer, r.index));
  memory_free(memory, order);
  return STATUS_OK;
}
