/* Outputs must have memory of their own. */
#include "api/overlap.h"

typedef struct range {
  intptr_t first, end;
  const api_operand *operand;
} range;

/* A shell sort: there are few ranges, and it allocates nothing. */
static void sort(range *r, size_t n) {
  for (size_t gap = n / 2; gap > 0; gap /= 2) {
    for (size_t i = gap; i < n; i++) {
      range x = r[i];
      size_t at = i;
      for (; at >= gap && r[at - gap].first > x.first; at -= gap) r[at] = r[at - gap];
      r[at] = x;
    }
  }
}

static status refuse(const range *a, const range *b) {
  const api_operand *output = a->operand->is_output ? a->operand : b->operand;
  const api_operand *other = output == a->operand ? b->operand : a->operand;
  return fail(STATUS_BAD_USAGE, "%s overlaps %s: an output needs memory of its own", output->what,
              other->what);
}

status api_check_overlap(const api_operand *operands, size_t n, arena *scratch) {
  range *ranges = ARENA_ARRAY(scratch, n, range);
  size_t used = 0;
  for (size_t i = 0; i < n; i++) {
    int64_t first, end;
    if (!operands[i].array->data) continue; /* empty, or of a run that computes nothing */
    check(ir_array_span(operands[i].array, &first, &end));
    if (first == end) continue;
    intptr_t base = (intptr_t)operands[i].array->data;
    ranges[used++] = (range){base + (intptr_t)first, base + (intptr_t)end, &operands[i]};
  }
  sort(ranges, used);
  for (size_t i = 0; i < used; i++) {
    const range *a = &ranges[i];
    for (const range *b = a + 1; b < ranges + used && b->first < a->end; b++) {
      bool matters = a->operand->is_output || b->operand->is_output;
      if (matters && ir_arrays_overlap(a->operand->array, b->operand->array)) return refuse(a, b);
    }
  }
  return STATUS_OK;
}
