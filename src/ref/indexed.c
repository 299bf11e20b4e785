/* Operations that take positions from an index tensor: gather scatter index_select.
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

/* Where an index occurs twice, the later position in row-major order wins. */
status ref_scatter(const ref_call *c) {
  const ir_array *x = ref_operand_named(c, "x"), *indexes = ref_operand_named(c, "index");
  const ir_array *src = ref_operand_named(c, "src");
  uint32_t dim = ref_attr_dim(c, "dim", x->rank);
  int64_t at[IR_MAX_RANK] = {0}, to[IR_MAX_RANK];
  ir_array_copy(&c->result, x);
  if (ref_count(indexes) == 0) return STATUS_OK;
  do {
    memcpy(to, at, sizeof to);
    TRY(read_index(c, indexes, at, dim, x->extents[dim], &to[dim]));
    copy_element(&c->result, to, src, at);
  } while (ir_array_next(indexes, at));
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
