/* Which of two tensors takes more memory, told from symbolic extents. */
#include "join/internal.h"

enum { SMALL_BYTES = 64 };

/* The bytes of one element, times the extents that are numbers; `sizes` are the others. */
static int64_t count(const join_block *b, ir_tensor t, ir_scalar *sizes, uint32_t *n) {
  ir_func *h = b->facts->h;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  int64_t bytes = (int64_t)ir_dtype_size_bytes(ir_tensor_at(h, t)->dtype), size;
  *n = 0;
  for (uint32_t d = 0; d < rank; d++) {
    ir_scalar extent = ir_axis_size(h, dims[d]);
    if (!ir_scalar_is_const(&h->module->scalars, extent, &size)) sizes[(*n)++] = extent;
    else if (__builtin_mul_overflow(bytes, size, &bytes)) bytes = INT64_MAX;
  }
  return bytes;
}

bool join_is_small(const join_block *b, ir_tensor t) {
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t n;
  return count(b, t, sizes, &n) <= SMALL_BYTES && n == 0;
}

/* Takes the extents of x that are among those of y from both lists. */
static void drop_equal(ir_func *h, ir_scalar *x, uint32_t *n, ir_scalar *y, uint32_t *k) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < *n; i++) {
    uint32_t same = 0;
    while (same < *k && ir_func_equal(h, x[i], y[same]) != IR_TRUE) same++;
    if (same < *k) y[same] = y[--*k];
    else x[left++] = x[i];
  }
  *n = left;
}

/* Is there one of y for each of x that is not less? */
static bool are_below(ir_func *h, const ir_scalar *x, uint32_t n, ir_scalar *y, uint32_t k) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t more = 0;
    while (more < k && ir_scalar_le(&h->module->scalars, x[i], y[more]) != IR_TRUE) more++;
    if (more == k) return false;
    y[more] = y[--k];
  }
  return true;
}

join_size join_compare_sizes(const join_block *b, ir_tensor x, ir_tensor y) {
  ir_scalar p[IR_MAX_RANK], q[IR_MAX_RANK];
  uint32_t n, k;
  int64_t mine = count(b, x, p, &n), theirs = count(b, y, q, &k);
  if (mine == 0) return JOIN_SMALLER;
  drop_equal(b->facts->h, p, &n, q, &k);
  if (mine > theirs || !are_below(b->facts->h, p, n, q, k)) return JOIN_LARGER;
  return mine == theirs && n == 0 && k == 0 ? JOIN_SAME : JOIN_SMALLER;
}
