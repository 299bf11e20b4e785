/* The part of a tensor that a device holds, for cutting inputs and assembling outputs. */
#ifndef WEIR_RUNTIME_PIECE_H
#define WEIR_RUNTIME_PIECE_H

#include "ir/array.h"
#include "ir/bind.h"
#include "ir/host.h"

/* One cut of a dimension: positions [begin, begin + length) of each `period`; 0: there is only one period. */
typedef struct rt_piece_cut {
  int64_t begin, length, period;
} rt_piece_cut;

/* Positions of the whole tensor, in order: a range of each dimension, or ranges that repeat. */
typedef struct rt_piece {
  bool present; /* the device is on the tensor's mesh */
  bool is_box;  /* one range of each dimension */
  uint32_t rank;
  int64_t whole[IR_MAX_RANK], extents[IR_MAX_RANK];
  rt_piece_cut cuts[IR_MAX_RANK][IR_MESH_MAX_RANK]; /* each cuts what the one before leaves */
  uint32_t n_cuts[IR_MAX_RANK];
  /* Of the devices that hold the same piece, the first in the mesh: it represents them. */
  int64_t owner;
} rt_piece;

/* The piece of an input or output of host program `h` that `device` holds; false if an extent cannot be
 * computed. */
bool rt_piece_of(const ir_func *h, const ir_env *env, ir_tensor t, int64_t device, rt_piece *p);
/* The first position of the piece along a dimension. */
int64_t rt_piece_begin(const rt_piece *p, uint32_t d);
/* A piece that is a box, as a view of the whole array. */
ir_array rt_piece_view(const rt_piece *p, const ir_array *whole);
/* Copies any piece out of the whole array, or back into it. */
void rt_piece_take(const rt_piece *p, const ir_array *whole, const ir_array *local);
void rt_piece_put(const rt_piece *p, const ir_array *whole, const ir_array *local);
/* Is the piece in the whole array the same, byte for byte? */
bool rt_piece_same(const rt_piece *p, const ir_array *whole, const ir_array *local);

#endif
