/* Which part of a tensor a device holds: what cutting inputs and assembling outputs needs. */
#ifndef WEIR_RUNTIME_PIECE_H
#define WEIR_RUNTIME_PIECE_H

#include "ir/array.h"
#include "ir/bind.h"
#include "ir/host.h"

/* A box in the whole tensor. */
typedef struct rt_piece {
  bool present; /* the device is on the tensor's mesh */
  uint32_t rank;
  int64_t whole[IR_MAX_RANK], begin[IR_MAX_RANK], extents[IR_MAX_RANK];
  /* Of the devices that hold the same piece, the first in the mesh: it speaks for them. */
  int64_t owner;
} rt_piece;

/* The piece of an input or output of host program `h` that `device` holds; false if an extent cannot be
 * computed. */
bool rt_piece_of(const ir_func *h, const ir_env *env, ir_tensor t, int64_t device, rt_piece *p);
/* The piece as a view of the whole array. */
ir_array rt_piece_view(const rt_piece *p, const ir_array *whole);

#endif
