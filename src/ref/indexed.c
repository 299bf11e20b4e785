/* Operations that take positions from an index tensor: gather scatter update index_select
 * one_hot, and group_index, which makes one.
 *
 * As in PyTorch an index lies in 0 .. n-1; a negative one is an error, not a count from the end. */
#include <string.h>

#include "ref/internal.h"

static status read_index(const ref_call *c, const ir_array *indexes, const int64_t *at,
                         uint32_t dim, int64_t n, int64_t *index) {
  int64_t i = ir_element_as_i64(indexes->dtype, ir_array_at(indexes, at));
  if (i < 0 || i >= n)
    return ref_fail(c, "index %lld is outside axis %u, which has %lld elements", (long long)i, dim,
                    (long long)n);
  *index = i;
  return STATUS_OK;
}

static void copy_element(const ir_array *to, const int64_t *to_at, const ir_array *from,
                         const int64_t *from_at) {
  ir_array target = {.dtype = to->dtype, .data = ir_array_at(to, to_at)};
  ir_array origin = {.dtype = from->dtype, .data = ir_array_at(from, from_at)};
  ir_array_copy(&target, &origin);
}

status ref_gather(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *indexes = ref_operand_named(c, "index");
  uint32_t dim = ref_attr_dim(c, "dim", x->rank);
  int64_t at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK];
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    memcpy(from, at, sizeof from);
    TRY(read_index(c, indexes, at, dim, x->extents[dim], &from[dim]));
    copy_element(&c->result, at, x, from);
  } while (ir_array_next(&c->result, at));
  return STATUS_OK;
}

/* ---- scatter ---- */

/* The sums along one line of the result: what x has there, then src where the index says so. Positions
 * of other lines never meet, so each sum has its terms in row-major order. */
static status add_line(const ref_call *c, uint32_t dim, int64_t *at, ref_fold *sums) {
  const ir_array *indexes = ref_operand_named(c, "index"), *src = ref_operand_named(c, "src");
  bool is_float = ir_dtype_is_float(c->result.dtype);
  for (int64_t i = 0; i < c->result.extents[dim]; i++) {
    at[dim] = i;
    const void *p = ir_array_at(&c->result, at);
    sums[i] = ref_fold_start(c->state, IR_FOLD_SUM, is_float, c->result.dtype);
    if (is_float) sums[i].f = ir_element_as_f64(c->result.dtype, p);
    else sums[i].i = ir_element_as_i64(c->result.dtype, p);
  }
  for (int64_t i = 0; i < indexes->extents[dim]; i++) {
    int64_t to = 0;
    at[dim] = i;
    TRY(read_index(c, indexes, at, dim, c->result.extents[dim], &to));
    ref_fold_term(&sums[to], &(ref_terms){.left = *src}, at);
  }
  for (int64_t i = 0; i < c->result.extents[dim]; i++) {
    at[dim] = i;
    ref_fold_store(&sums[i], c->result.dtype, ir_array_at(&c->result, at));
    ref_note(c, 0, ir_array_at(&c->result, at), ref_fold_noise(&sums[i], c->result.dtype));
  }
  at[dim] = 0;
  return STATUS_OK;
}

/* On entry the result holds x. */
static status scatter_add(const ref_call *c, uint32_t dim) {
  ir_array lines = *ref_operand_named(c, "index");
  const allocator *memory = c->state->options->memory;
  size_t length = (size_t)c->result.extents[dim];
  ref_fold *sums = memory_alloc(memory, (length + 1) * sizeof *sums);
  int64_t at[IR_MAX_RANK] = {0};
  status st = STATUS_OK;
  if (!sums) return STATUS_OUT_OF_MEMORY;
  lines.extents[dim] = 1;
  do st = add_line(c, dim, at, sums);
  while (st == STATUS_OK && ir_array_next(&lines, at));
  memory_free(memory, sums);
  return st;
}

/* Where an index occurs twice, the later position in row-major order wins. */
status ref_scatter(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *indexes = ref_operand_named(c, "index");
  const ir_array *src = ref_operand_named(c, "src");
  uint32_t dim = ref_attr_dim(c, "dim", x->rank);
  int64_t at[IR_MAX_RANK] = {0}, to[IR_MAX_RANK];
  ir_array_copy(&c->result, x);
  if (ref_count(indexes) == 0) return STATUS_OK;
  if (ref_attr_int(c, "reduce")) return scatter_add(c, dim);
  do {
    memcpy(to, at, sizeof to);
    TRY(read_index(c, indexes, at, dim, x->extents[dim], &to[dim]));
    copy_element(&c->result, to, src, at);
  } while (ir_array_next(indexes, at));
  return STATUS_OK;
}

status ref_update(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *src = ref_operand_named(c, "src");
  const ir_array *position = ref_operand_named(c, "at");
  uint32_t dim = ref_attr_dim(c, "dim", x->rank);
  int64_t at[IR_MAX_RANK] = {0}, to[IR_MAX_RANK];
  ir_array_copy(&c->result, x);
  if (ref_count(src) == 0) return STATUS_OK;
  int64_t first = ir_element_as_i64(position->dtype, ir_array_at(position, at));
  int64_t last = x->extents[dim] - src->extents[dim];
  if (first < 0 || first > last)
    return ref_fail(c, "position %lld along axis %u is not in 0 to %lld", (long long)first, dim,
                    (long long)last);
  do {
    memcpy(to, at, sizeof to);
    to[dim] += first;
    copy_element(&c->result, to, src, at);
  } while (ir_array_next(src, at));
  return STATUS_OK;
}

status ref_index_select(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *indexes = ref_operand_named(c, "index");
  uint32_t dim = ref_attr_dim(c, "dim", x->rank);
  int64_t at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK];
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    memcpy(from, at, sizeof from);
    TRY(read_index(c, indexes, &at[dim], dim, x->extents[dim], &from[dim]));
    copy_element(&c->result, at, x, from);
  } while (ir_array_next(&c->result, at));
  return STATUS_OK;
}

status ref_one_hot(const ref_call *c) {
  const ir_array *indexes = ref_operand_named(c, "index");
  uint32_t last = indexes->rank;
  int64_t at[IR_MAX_RANK] = {0}, hot = 0;
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    TRY(read_index(c, indexes, at, last, c->result.extents[last], &hot));
    ir_element_set_i64(c->result.dtype, ir_array_at(&c->result, at), at[last] == hot);
  } while (ir_array_next(&c->result, at));
  return STATUS_OK;
}

/* One line: group 0 as often as its length says, then group 1 and so on; the rest is the number of groups. */
static status index_groups(const ref_call *c, const ir_array *lengths, int64_t *at, int64_t *to) {
  uint32_t last = lengths->rank - 1;
  int64_t n = c->result.extents[last], row = 0;
  for (int64_t g = 0; g <= lengths->extents[last]; g++) {
    int64_t length = n - row;
    at[last] = g;
    if (g < lengths->extents[last])
      length = ir_element_as_i64(lengths->dtype, ir_array_at(lengths, at));
    if (length < 0) return ref_fail(c, "a length is negative, %lld", (long long)length);
    if (length > n - row)
      return ref_fail(c, "the lengths add up to %lld or more, and there are %lld rows",
                      (long long)(length > INT64_MAX - row ? INT64_MAX : row + length),
                      (long long)n);
    for (int64_t end = row + length; row < end; row++) {
      to[last] = row;
      ir_element_set_i64(IR_I64, ir_array_at(&c->result, to), g);
    }
  }
  return STATUS_OK;
}

status ref_group_index(const ref_call *c) {
  const ir_array *lengths = ref_operand_named(c, "lengths");
  ir_array lines = *lengths;
  int64_t line[IR_MAX_RANK] = {0}, at[IR_MAX_RANK], to[IR_MAX_RANK];
  lines.extents[lines.rank - 1] = 1;
  if (ref_count(&c->result) == 0) return STATUS_OK;
  do {
    memcpy(at, line, sizeof at);
    memcpy(to, line, sizeof to);
    TRY(index_groups(c, lengths, at, to));
  } while (ir_array_next(&lines, line));
  return STATUS_OK;
}
