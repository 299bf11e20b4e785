/* Lists of numbers in a plan (extents, strides, offsets, attributes), each stored once; and rows, which grow
 * with the plan. */
#include <string.h>

#include "bind/internal.h"

typedef struct list_key {
  const binder *b;
  bind_numbers numbers;
} list_key;

static bool equal(const int64_t *a, const int64_t *b, uint32_t n) {
  return memcmp(a, b, n * sizeof *a) == 0;
}

static bool same_list(const void *context, uint32_t id) {
  const list_key *k = context;
  const bind_numbers *known = &k->b->lists.data[id - 1];
  return known->n == k->numbers.n && equal(known->data, k->numbers.data, known->n);
}

const int64_t *bind_list(binder *b, const int64_t *list, uint32_t n, const int64_t *likely) {
  static const int64_t none[1];
  if (n == 0) return none;
  if (likely && equal(likely, list, n)) return likely;
  list_key key = {b, {list, n}};
  uint64_t hash = hash_numbers(list, n);
  uint32_t found = table_find(&b->list_index, hash, same_list, &key);
  if (found) return b->lists.data[found - 1].data;
  bind_numbers own = {arena_copy(b->memory, list, n * sizeof *list), n};
  vec_push(&b->scratch, &b->lists, own);
  table_add(&b->list_index, hash, b->lists.len);
  return own.data;
}

bind_shape bind_shape_of(const rt_view *v) {
  bind_shape s = {.view = *v};
  memcpy(s.extents, v->extents, v->rank * sizeof *v->extents);
  memcpy(s.strides, v->strides, v->rank * sizeof *v->strides);
  return s;
}

/* Slices of a loop differ in their offsets: what the tensor named before is a good guess. */
void bind_tensor(binder *b, ir_tensor t, const bind_shape *shape) {
  rt_view *v = &b->views[t.id], old = *v;
  bool alike = old.extents && old.rank == shape->view.rank;
  *v = shape->view;
  v->extents = bind_list(b, shape->extents, v->rank, alike ? old.extents : NULL);
  v->strides = bind_list(b, shape->strides, v->rank, alike ? old.strides : NULL);
  b->bound[t.id] = true;
  b->turns[t.id] = (bind_turn){0};
}

/* ---- rows ---- */
uint32_t bind_row_add(binder *b, bind_rows *r, const void *value) {
  if (r->len == r->chunks.len * BIND_CHUNK) {
    char *chunk = arena_room(&b->scratch, BIND_CHUNK * r->size_bytes);
    vec_push(&b->scratch, &r->chunks, chunk);
  }
  memcpy(bind_row(r, r->len), value, r->size_bytes);
  return r->len++;
}

void *bind_rows_flat(binder *b, const bind_rows *r) {
  char *flat = arena_room(b->memory, r->len * r->size_bytes);
  for (uint32_t i = 0; i < r->len; i += BIND_CHUNK) {
    uint32_t n = r->len - i < BIND_CHUNK ? r->len - i : BIND_CHUNK;
    memcpy(flat + (size_t)i * r->size_bytes, bind_row(r, i), (size_t)n * r->size_bytes);
  }
  return flat;
}
