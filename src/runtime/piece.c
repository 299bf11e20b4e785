#include "runtime/piece.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Piece `index` of n positions. */
static bool cut_range(const ir_env *env, const ir_partition *p, int64_t n, int64_t index,
                      rt_piece_cut *c) {
  int64_t size = 0;
  c->begin = 0;
  if (p->kind == IR_CHUNKS) {
    if (index >= p->n_chunks) return false;
    for (int64_t i = 0; i < index; i++) c->begin += p->chunks[i];
    size = p->chunks[index];
  } else {
    if (!ir_env_eval(env, p->size, &size) || size < 1) return false;
    if (p->kind == IR_PARTS) size = n / size + (n % size != 0);
    if (__builtin_mul_overflow(size, index, &c->begin)) c->begin = n;
  }
  c->begin = least(c->begin, n);
  c->length = least(size, n - c->begin);
  return true;
}

/* Cuts n positions; `left` are those of the piece. */
static bool cut(const ir_env *env, const ir_partition *p, int64_t n, int64_t index, rt_piece_cut *c,
                int64_t *left) {
  c->period = 0;
  if (p->period.id && (!ir_env_eval(env, p->period, &c->period) || c->period < 1)) return false;
  if (!cut_range(env, p, c->period ? c->period : n, index, c)) return false;
  *left = c->length;
  if (!c->period) return true;
  int64_t rest = least(c->length, n % c->period - c->begin);
  return !__builtin_mul_overflow(n / c->period, c->length, left) &&
         !__builtin_add_overflow(*left, rest > 0 ? rest : 0, left);
}

static int64_t index_of(const ir_mesh_data *m, int64_t at, const ir_cut *c) {
  int64_t index = ir_mesh_coordinate(m, at, c->mesh_axis);
  if (!c->turn) return index;
  return (index + ir_mesh_coordinate(m, at, c->turn - 1)) % ir_mesh_size(m, c->mesh_axis);
}

static bool cut_dim(const ir_func *h, const ir_env *env, ir_axis a, const ir_mesh_data *m,
                    int64_t at, rt_piece *p, uint32_t d) {
  if (!ir_env_eval(env, ir_axis_whole(h, a), &p->whole[d])) return false;
  p->extents[d] = p->whole[d];
  const ir_cut_axis *x = ir_host_cut_of(h, a);
  for (uint32_t i = 0; x && i < x->n_cuts; i++) {
    rt_piece_cut *c = &p->cuts[d][p->n_cuts[d]++];
    int64_t index = index_of(m, at, &x->cuts[i]);
    if (!cut(env, &x->cuts[i].partition, p->extents[d], index, c, &p->extents[d])) return false;
    p->is_box = p->is_box && !c->period;
  }
  return true;
}

/* Do both devices, by their places in the mesh, hold the same piece? */
static bool hold_same(const ir_func *h, const ir_mesh_data *m, const ir_axis *dims, uint32_t rank,
                      int64_t a, int64_t b) {
  for (uint32_t d = 0; d < rank; d++) {
    const ir_cut_axis *x = ir_host_cut_of(h, dims[d]);
    for (uint32_t i = 0; x && i < x->n_cuts; i++) {
      if (index_of(m, a, &x->cuts[i]) != index_of(m, b, &x->cuts[i])) return false;
    }
  }
  return true;
}

bool rt_piece_of(const ir_func *h, const ir_env *env, ir_tensor t, int64_t device, rt_piece *p) {
  ir_axis dims[IR_MAX_RANK];
  ir_mesh mesh = ir_tensor_at(h, t)->mesh;
  const ir_mesh_data *m = mesh.id ? ir_mesh_at(h, mesh) : NULL;
  int64_t at = m ? ir_mesh_find(m, device) : 0, first = 0;
  *p = (rt_piece){.present = at >= 0, .rank = ir_tensor_dims(h, t, dims), .owner = m ? device : 0};
  p->is_box = true;
  if (!p->present) return true;
  for (uint32_t d = 0; d < p->rank; d++) {
    if (!cut_dim(h, env, dims[d], m, at, p, d)) return false;
  }
  while (m && !hold_same(h, m, dims, p->rank, first, at)) first++;
  if (m) p->owner = m->devices[first];
  return true;
}

/* Where position i of the piece is in the whole dimension, and how many from there on are neighbours in
 * both. */
static int64_t position(const rt_piece *p, uint32_t d, int64_t i, int64_t *run) {
  *run = p->extents[d] - i;
  for (uint32_t k = p->n_cuts[d]; k-- > 0;) {
    const rt_piece_cut *c = &p->cuts[d][k];
    if (!c->period) {
      i += c->begin;
      continue;
    }
    *run = least(*run, c->length - i % c->length);
    i = i / c->length * c->period + c->begin + i % c->length;
  }
  return i;
}

int64_t rt_piece_begin(const rt_piece *p, uint32_t d) {
  int64_t run;
  return p->extents[d] > 0 || p->is_box ? position(p, d, 0, &run) : 0;
}

/* Ranges that are neighbours in the piece and in the whole, as views of both. */
static void box_at(const rt_piece *p, const int64_t *from, const ir_array *whole,
                   const ir_array *local, ir_array views[2], int64_t *lengths) {
  int64_t offsets[2] = {0, 0};
  views[0] = *whole;
  views[1] = *local;
  for (uint32_t d = 0; d < p->rank; d++) {
    offsets[0] += position(p, d, from[d], &lengths[d]) * whole->strides[d];
    offsets[1] += from[d] * local->strides[d];
    views[0].extents[d] = views[1].extents[d] = lengths[d];
  }
  int64_t bytes = (int64_t)ir_dtype_size_bytes(whole->dtype);
  for (int i = 0; i < 2; i++) views[i].data = (char *)views[i].data + offsets[i] * bytes;
}

/* On to the next box, the last dimension first; false after the last one. */
static bool next_box(const rt_piece *p, int64_t *from, const int64_t *lengths) {
  for (uint32_t d = p->rank; d-- > 0;) {
    from[d] += lengths[d];
    if (from[d] < p->extents[d]) return true;
    from[d] = 0;
  }
  return false;
}

static bool is_empty(const rt_piece *p) {
  for (uint32_t d = 0; d < p->rank; d++) {
    if (p->extents[d] == 0) return true;
  }
  return false;
}

void rt_piece_take(const rt_piece *p, const ir_array *whole, const ir_array *local) {
  int64_t from[IR_MAX_RANK] = {0}, lengths[IR_MAX_RANK] = {0};
  ir_array views[2];
  if (is_empty(p)) return;
  do {
    box_at(p, from, whole, local, views, lengths);
    ir_array_copy(&views[1], &views[0]);
  } while (next_box(p, from, lengths));
}

void rt_piece_put(const rt_piece *p, const ir_array *whole, const ir_array *local) {
  int64_t from[IR_MAX_RANK] = {0}, lengths[IR_MAX_RANK] = {0};
  ir_array views[2];
  if (is_empty(p)) return;
  do {
    box_at(p, from, whole, local, views, lengths);
    ir_array_copy(&views[0], &views[1]);
  } while (next_box(p, from, lengths));
}

bool rt_piece_same(const rt_piece *p, const ir_array *whole, const ir_array *local) {
  int64_t from[IR_MAX_RANK] = {0}, lengths[IR_MAX_RANK] = {0};
  ir_array views[2];
  if (is_empty(p)) return true;
  do {
    box_at(p, from, whole, local, views, lengths);
    if (!ir_array_same_bytes(&views[0], &views[1])) return false;
  } while (next_box(p, from, lengths));
  return true;
}

ir_array rt_piece_view(const rt_piece *p, const ir_array *whole) {
  ir_array view = *whole;
  int64_t offset = 0, run;
  check(p->is_box);
  for (uint32_t d = 0; d < p->rank; d++) {
    view.extents[d] = p->extents[d];
    offset += position(p, d, 0, &run) * whole->strides[d];
  }
  if (view.data) view.data = (char *)view.data + offset * (int64_t)ir_dtype_size_bytes(view.dtype);
  return view;
}
