/* Chunks of given lengths, by their number. */
#include <string.h>

#include "ir/scalar_internal.h"

const ir_chunk_list *ir_scalar_list_of(const ir_scalars *s, ir_scalar list) {
  const ir_scalar_node *n = ir_scalar_node_of(s, list);
  check(n->kind == IR_SCALAR_LIST);
  return &s->lists.data[n->value];
}

ir_scalar ir_scalar_list(ir_scalars *s, const int64_t *lengths, uint32_t n) {
  ir_chunk_list list = {.len = n};
  for (uint32_t i = 0; i < n; i++) {
    if (lengths[i] < 0 || __builtin_add_overflow(list.total, lengths[i], &list.total))
      return IR_SCALAR_OVERFLOW;
    if (lengths[i] > list.longest) list.longest = lengths[i];
  }
  uint32_t at = 0;
  for (; at < s->lists.len; at++) {
    const ir_chunk_list *l = &s->lists.data[at];
    if (l->len == n && (n == 0 || memcmp(l->lengths, lengths, n * sizeof *lengths) == 0)) break;
  }
  if (at == s->lists.len) {
    if (n) list.lengths = arena_copy(s->memory, lengths, n * sizeof *lengths);
    vec_push(s->memory, &s->lists, list);
  }
  return ir_scalar_intern(s, IR_SCALAR_LIST, at, (ir_scalar){0}, (ir_scalar){0});
}

int64_t ir_scalar_chunk_value(const ir_chunk_list *l, ir_scalar_kind kind, int64_t index) {
  if (kind == IR_SCALAR_CHUNK) return index < 0 || index >= l->len ? 0 : l->lengths[index];
  int64_t sum = 0;
  for (uint32_t i = 0; i < l->len && i < index; i++) sum += l->lengths[i];
  return sum;
}

static ir_scalar of_chunks(ir_scalars *s, ir_scalar_kind kind, ir_scalar index, ir_scalar list) {
  int64_t i;
  if (ir_scalar_is_overflow(index) || ir_scalar_is_overflow(list)) return IR_SCALAR_OVERFLOW;
  const ir_chunk_list *l = ir_scalar_list_of(s, list);
  if (ir_scalar_is_const(s, index, &i))
    return ir_scalar_const(s, ir_scalar_chunk_value(l, kind, i));
  return ir_scalar_intern(s, kind, 0, index, list);
}

ir_scalar ir_scalar_chunk(ir_scalars *s, ir_scalar index, ir_scalar list) {
  return of_chunks(s, IR_SCALAR_CHUNK, index, list);
}

ir_scalar ir_scalar_chunk_start(ir_scalars *s, ir_scalar index, ir_scalar list) {
  return of_chunks(s, IR_SCALAR_CHUNK_START, index, list);
}
