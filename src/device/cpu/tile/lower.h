/* What the files that lower bodies to nodes share. */
#ifndef WEIR_DEVICE_CPU_TILE_LOWER_H
#define WEIR_DEVICE_CPU_TILE_LOWER_H

#include "device/cpu/tile/program.h"

/* Chooses the space of the targets, and how they lie in it. */
bool tile_space(tile_lowering *l);

/* Dimension from[d] of operand k is dimension d of the result; RT_NO_DIM: none is. Not of slices, pads,
 * cats and reshapes, where positions change. */
void tile_dims_of(const tile_lowering *l, const rt_step *s, uint32_t k, int from[IR_MAX_RANK]);
tile_map tile_map_through(const tile_lowering *l, const rt_step *s, uint32_t k, const int *from,
                          const tile_map *m);

#endif
