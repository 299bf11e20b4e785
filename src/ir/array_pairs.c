/* Copying and comparing two arrays, element by element at the same positions; hashing one.
 *
 * Axes that are contiguous with each other in both arrays become one, so most pairs are a few long runs. Where one of
 * two arrays is transposed, its neighbours are far apart in the other:
 *
 *   to[i][j], j contiguous      from[i][j], i contiguous
 *     =>  blocks of BLOCK x BLOCK elements, whose cache lines stay in the cache until all of each is used */
#include <string.h>

#include "ir/array.h"

enum { BLOCK = 32 };

/* An axis of both arrays: its length, and its strides in bytes. */
typedef struct pair_axis {
  int64_t n, to, from;
} pair_axis;

typedef struct pair {
  pair_axis axes[IR_MAX_RANK]; /* none of length 1 */
  uint32_t n_axes;
  size_t size_bytes; /* of an element */
} pair;

static pair pair_of(const ir_array *to, const ir_array *from) {
  pair p = {.size_bytes = ir_dtype_size_bytes(to->dtype)};
  int64_t size = (int64_t)p.size_bytes;
  for (uint32_t i = 0; i < to->rank; i++) {
    pair_axis a = {to->extents[i], to->strides[i] * size, from->strides[i] * size};
    pair_axis *last = p.n_axes ? &p.axes[p.n_axes - 1] : NULL;
    if (a.n == 1) continue;
    if (last && last->to == a.to * a.n && last->from == a.from * a.n)
      *last = (pair_axis){last->n * a.n, a.to, a.from};
    else p.axes[p.n_axes++] = a;
  }
  if (p.n_axes == 0) p.axes[p.n_axes++] = (pair_axis){1, size, size};
  return p;
}

/* The next position of the first `n` axes; false after the last one. */
static bool next(const pair *p, uint32_t n, int64_t *index, char **to, const char **from) {
  for (uint32_t i = n; i-- > 0;) {
    const pair_axis *a = &p->axes[i];
    *to += a->to;
    *from += a->from;
    if (++index[i] < a->n) return true;
    *to -= a->n * a->to;
    *from -= a->n * a->from;
    index[i] = 0;
  }
  return false;
}

/* ---- copying ---- */
/* Rows of `j` elements; compiled once for each size of elements. */
static inline void copy_rows(char *to, const char *from, const pair_axis *i, const pair_axis *j,
                             size_t size_bytes) {
  for (int64_t k = 0; k < i->n; k++)
    for (int64_t e = 0; e < j->n; e++)
      memcpy(to + k * i->to + e * j->to, from + k * i->from + e * j->from, size_bytes);
}

static void copy_block(char *to, const char *from, const pair_axis *i, const pair_axis *j,
                       size_t size_bytes) {
  switch (size_bytes) {
  case 1: copy_rows(to, from, i, j, 1); return;
  case 2: copy_rows(to, from, i, j, 2); return;
  case 4: copy_rows(to, from, i, j, 4); return;
  case 8: copy_rows(to, from, i, j, 8); return;
  default: copy_rows(to, from, i, j, size_bytes);
  }
}

/* The block of the axis from position `at` on. */
static pair_axis part(const pair_axis *a, int64_t at) {
  return (pair_axis){a->n - at < BLOCK ? a->n - at : BLOCK, a->to, a->from};
}

static void copy_blocks(char *to, const char *from, const pair_axis *i, const pair_axis *j,
                        size_t size_bytes) {
  for (int64_t k = 0; k < i->n; k += BLOCK)
    for (int64_t e = 0; e < j->n; e += BLOCK) {
      pair_axis rows = part(i, k), row = part(j, e);
      copy_block(to + k * i->to + e * j->to, from + k * i->from + e * j->from, &rows, &row,
                 size_bytes);
    }
}

/* Puts the axis along which `from` is contiguous right before the last one, if that is another. */
static void find_transposed(pair *p) {
  uint32_t last = p->n_axes - 1;
  int64_t size = (int64_t)p->size_bytes;
  if (p->axes[last].from == size) return;
  for (uint32_t i = 0; i < last; i++) {
    if (p->axes[i].from != size) continue;
    pair_axis a = p->axes[i];
    memmove(&p->axes[i], &p->axes[i + 1], (last - 1 - i) * sizeof a);
    p->axes[last - 1] = a;
    return;
  }
}

static void copy_pair(pair *p, char *to, const char *from) {
  int64_t index[IR_MAX_RANK] = {0}, size = (int64_t)p->size_bytes;
  const pair_axis one = {.n = 1}, *row = &p->axes[p->n_axes - 1];
  bool dense = row->to == size && row->from == size;
  if (!dense) find_transposed(p);
  uint32_t outer = p->n_axes - (dense || p->n_axes == 1 ? 1 : 2);
  do {
    if (dense) memmove(to, from, (size_t)(row->n * size));
    else copy_blocks(to, from, p->n_axes == 1 ? &one : row - 1, row, p->size_bytes);
  } while (next(p, outer, index, &to, &from));
}

static void convert_element(ir_dtype to, void *to_p, ir_dtype from, const void *from_p) {
  if (ir_dtype_is_float(from)) ir_element_set_f64(to, to_p, ir_element_as_f64(from, from_p));
  else ir_element_set_i64(to, to_p, ir_element_as_i64(from, from_p));
}

void ir_array_copy(const ir_array *to, const ir_array *from) {
  int64_t index[IR_MAX_RANK] = {0}, n, bytes;
  check(to->rank == from->rank && ir_array_count(to, &n) && ir_array_size_bytes(to, &bytes));
  for (uint32_t i = 0; i < to->rank; i++) check(to->extents[i] == from->extents[i]);
  if (n == 0) return;
  if (to->dtype == from->dtype) {
    pair p = pair_of(to, from);
    copy_pair(&p, to->data, from->data);
    return;
  }
  do convert_element(to->dtype, ir_array_at(to, index), from->dtype, ir_array_at(from, index));
  while (ir_array_next(to, index));
}

/* ---- comparing ---- */
static bool same_row(const pair *p, const char *a, const char *b, const pair_axis *row) {
  int64_t size = (int64_t)p->size_bytes;
  if (row->to == size && row->from == size) return memcmp(a, b, (size_t)(row->n * size)) == 0;
  for (int64_t i = 0; i < row->n; i++)
    if (memcmp(a + i * row->to, b + i * row->from, p->size_bytes) != 0) return false;
  return true;
}

bool ir_array_same_bytes(const ir_array *a, const ir_array *b) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  check(a->dtype == b->dtype && a->rank == b->rank && ir_array_count(a, &n));
  for (uint32_t i = 0; i < a->rank; i++) check(a->extents[i] == b->extents[i]);
  if (n == 0) return true;
  pair p = pair_of(a, b);
  char *mine = a->data;
  const char *theirs = b->data;
  do {
    if (!same_row(&p, mine, theirs, &p.axes[p.n_axes - 1])) return false;
  } while (next(&p, p.n_axes - 1, index, &mine, &theirs));
  return true;
}

/* ---- hashing ---- */
static inline uint64_t hash_elements(uint64_t hash, const char *data, const pair_axis *row,
                                     size_t size_bytes) {
  for (int64_t i = 0; i < row->n; i++) {
    uint64_t bits = 0;
    memcpy(&bits, data + i * row->from, size_bytes);
    hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

static uint64_t hash_row(uint64_t hash, const char *data, const pair_axis *row, size_t size_bytes) {
  switch (size_bytes) {
  case 1: return hash_elements(hash, data, row, 1);
  case 2: return hash_elements(hash, data, row, 2);
  case 4: return hash_elements(hash, data, row, 4);
  default: check(size_bytes == 8); return hash_elements(hash, data, row, 8);
  }
}

uint64_t ir_array_hash(const ir_array *a) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  uint64_t hash = 0;
  if (!ir_array_count(a, &n) || n == 0) return hash;
  pair p = pair_of(a, a);
  char *unused = a->data;
  const char *data = a->data;
  do hash = hash_row(hash, data, &p.axes[p.n_axes - 1], p.size_bytes);
  while (next(&p, p.n_axes - 1, index, &unused, &data));
  return hash;
}
