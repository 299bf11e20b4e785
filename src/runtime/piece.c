#include "runtime/piece.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Piece `index` of n positions. */
static bool cut(const ir_env *env, const ir_partition *p, int64_t n, int64_t index, int64_t *begin,
                int64_t *length) {
  int64_t size = 0;
  *begin = 0;
  if (p->kind == IR_CHUNKS) {
    if (index >= p->n_chunks) return false;
    for (int64_t i = 0; i < index; i++) *begin += p->chunks[i];
    size = p->chunks[index];
  } else {
    if (!ir_env_eval(env, p->size, &size) || size < 1) return false;
    if (p->kind == IR_PARTS) size = n / size + (n % size != 0);
    *begin = size * index;
  }
  *begin = least(*begin, n);
  *length = least(size, n - *begin);
  return true;
}

/* The mesh axes that the tensor is cut along, as a mask. */
static bool cut_dim(const ir_func *h, const ir_env *env, ir_axis a, const ir_mesh_data *m,
                    int64_t at, rt_piece *p, uint32_t d, uint32_t *axes) {
  if (!ir_env_eval(env, ir_axis_whole(h, a), &p->whole[d])) return false;
  p->extents[d] = p->whole[d];
  const ir_cut_axis *x = ir_host_cut_of(h, a);
  for (uint32_t i = 0; x && i < x->n_cuts; i++) {
    int64_t begin, index = ir_mesh_coordinate(m, at, x->cuts[i].mesh_axis);
    if (!cut(env, &x->cuts[i].partition, p->extents[d], index, &begin, &p->extents[d]))
      return false;
    p->begin[d] += begin;
    *axes |= 1u << x->cuts[i].mesh_axis;
  }
  return true;
}

static bool agree(const ir_mesh_data *m, int64_t a, int64_t b, uint32_t axes) {
  for (uint32_t k = 0; k < m->rank; k++) {
    if ((axes >> k & 1) && ir_mesh_coordinate(m, a, k) != ir_mesh_coordinate(m, b, k)) return false;
  }
  return true;
}

bool rt_piece_of(const ir_func *h, const ir_env *env, ir_tensor t, int64_t device, rt_piece *p) {
  ir_axis dims[IR_MAX_RANK];
  ir_mesh mesh = ir_tensor_at(h, t)->mesh;
  const ir_mesh_data *m = mesh.id ? ir_mesh_at(h, mesh) : NULL;
  int64_t at = m ? ir_mesh_find(m, device) : 0, first = 0;
  uint32_t axes = 0;
  *p = (rt_piece){.present = at >= 0, .rank = ir_tensor_dims(h, t, dims), .owner = m ? device : 0};
  if (!p->present) return true;
  for (uint32_t d = 0; d < p->rank; d++) {
    if (!cut_dim(h, env, dims[d], m, at, p, d, &axes)) return false;
  }
  while (m && !agree(m, first, at, axes)) first++;
  if (m) p->owner = m->devices[first];
  return true;
}

ir_array rt_piece_view(const rt_piece *p, const ir_array *whole) {
  ir_array view = *whole;
  int64_t offset = 0;
  for (uint32_t d = 0; d < p->rank; d++) {
    view.extents[d] = p->extents[d];
    offset += p->begin[d] * whole->strides[d];
  }
  if (view.data) view.data = (char *)view.data + offset * (int64_t)ir_dtype_size_bytes(view.dtype);
  return view;
}
