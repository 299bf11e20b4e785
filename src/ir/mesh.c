#include "ir/mesh.h"

#include <string.h>

int64_t ir_mesh_size(const ir_mesh_data *m, uint32_t k) {
  return k < m->rank ? m->shape[m->rank - 1 - k] : 0;
}

int64_t ir_mesh_find(const ir_mesh_data *m, int64_t device) {
  if (!m->listed) return device >= 0 && device < m->n_devices ? device : -1;
  for (int64_t i = 0; i < m->n_devices; i++) {
    if (m->devices[i] == device) return i;
  }
  return -1;
}

/* How far apart in the flat list neighbours along mark axis k are. */
static int64_t stride_of(const ir_mesh_data *m, uint32_t k) {
  int64_t stride = 1;
  for (uint32_t i = m->rank - k; i < m->rank; i++) stride *= m->shape[i];
  return stride;
}

int64_t ir_mesh_coordinate(const ir_mesh_data *m, int64_t position, uint32_t k) {
  check(position >= 0 && position < m->n_devices);
  if (k >= m->rank) return 0;
  return position / stride_of(m, k) % ir_mesh_size(m, k);
}

void ir_mesh_slice(const ir_mesh_data *m, int64_t position, uint32_t k, int64_t *out) {
  if (k >= m->rank) return;
  int64_t stride = stride_of(m, k);
  int64_t first = position - ir_mesh_coordinate(m, position, k) * stride;
  for (int64_t i = 0; i < ir_mesh_size(m, k); i++) out[i] = m->devices[first + i * stride];
}

bool ir_mesh_same(const ir_mesh_data *a, const ir_mesh_data *b) {
  if (a->rank != b->rank) return false;
  if (memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) != 0) return false;
  return memcmp(a->devices, b->devices, (size_t)a->n_devices * sizeof *a->devices) == 0;
}

uint32_t ir_mesh_moved(const ir_mesh_data *m, uint32_t at, uint32_t by, bool back) {
  uint32_t result = 0, stride = 1;
  for (uint32_t k = m->rank; k-- > 0;) {
    uint32_t n = (uint32_t)m->shape[k], x = at % n, y = by % n;
    result += stride * ((back ? x + n - y : x + y) % n);
    stride *= n;
    at /= n;
    by /= n;
  }
  return result;
}
