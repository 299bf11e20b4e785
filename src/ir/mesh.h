/* Device meshes: a dense grid of distinct device ids, of any rank, outermost axis first.
 *
 * `mesh.x` names the LAST axis, `mesh.y` the one before it: mark axis k is grid axis rank-1-k. */
#ifndef WEIR_IR_MESH_H
#define WEIR_IR_MESH_H

#include "base/diag.h"
#include "ir/handle.h"

typedef struct ir_mesh_data {
  uint32_t name; /* interned */
  loc at;
  uint32_t rank;
  const int64_t *shape;   /* rank entries, each >= 1 */
  const int64_t *devices; /* row-major, n_devices of them */
  int64_t n_devices;
  bool listed; /* written with `of { … }` */
} ir_mesh_data;

enum { IR_MESH_MAX_DEVICES = 1 << 20, IR_MESH_MAX_RANK = 16 };

/* Size along mark axis k (0 = mesh.x); 0 when the mesh has no such axis. */
int64_t ir_mesh_size(const ir_mesh_data *m, uint32_t k);
/* Position of a device in the flat list, or -1. */
int64_t ir_mesh_find(const ir_mesh_data *m, int64_t device);
/* Coordinate of the device at flat position `position` along mark axis k. */
int64_t ir_mesh_coordinate(const ir_mesh_data *m, int64_t position, uint32_t k);
/* The devices met when only mark axis k varies, through the device at `position`.
 * `out` has room for ir_mesh_size(m, k) ids. */
void ir_mesh_slice(const ir_mesh_data *m, int64_t position, uint32_t k, int64_t *out);
/* The position whose coordinates are those of `at` plus (`back`: minus) those of `by`, each modulo the size
 * of its axis. */
uint32_t ir_mesh_moved(const ir_mesh_data *m, uint32_t at, uint32_t by, bool back);
/* Same shape and same devices in the same order. */
bool ir_mesh_same(const ir_mesh_data *a, const ir_mesh_data *b);

#endif
