/* Which writer takes a body. */
#include "codegen/body_internal.h"

static bool folds(const cg_body *b) {
  for (uint32_t i = 0; i < b->nodes.len; i++)
    if (b->nodes.data[i].kind == CG_NODE_FOLD) return true;
  return false;
}

/* Do the arguments fit what every driver accepts? */
static bool fits(const cg_launch *l) {
  enum { MOST_BYTES = 4096 };
  return (l->n_pointers + l->n_numbers) * sizeof(int64_t) <= MOST_BYTES;
}

bool cg_write_body(cg_kernel *k, const cg_body *b) {
  uint32_t before = k->n_launches;
  size_t scratch_bytes = k->scratch_bytes;
  bool written = folds(b) ? cg_write_body_rows(k, b) : cg_write_body_map(k, b);
  for (uint32_t i = before; i < k->n_launches; i++) written = written && fits(&k->launches[i]);
  if (written) return true;
  k->n_launches = before;
  k->scratch_bytes = scratch_bytes;
  return false;
}
