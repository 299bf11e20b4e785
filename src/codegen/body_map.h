/* Maps of bodies: what body_map.c and its tiles (body_tiles.c) share. */
#ifndef WEIR_CODEGEN_BODY_MAP_H
#define WEIR_CODEGEN_BODY_MAP_H

#include "codegen/body_internal.h"

typedef struct map_writer {
  cg_writer *w;
  const cg_body *b;
  cg_walks walks;
  cg_space space;
  cg_values values;
  uint32_t width, items;
  uint32_t block; /* threads */
  uint32_t turns; /* how often a thread takes `items` items */
  bool tail;
  bool *varies; /* by node: along the last dimension */
  bool *vector; /* by node: a load of whole vectors */
  bool stores[CG_MAX_OUTPUTS];
  bool tiled; /* loads that are dense along dimension `turned` go through shared memory */
  uint32_t turned;
  cg_space tiles; /* views: the walks, then the row and the column at which a tile begins */
  bool *crossed;  /* by node: it is such a load */
  uint32_t lanes; /* threads side by side along a tile; the block has several such lines */
} map_writer;

enum { CG_TILE_BLOCK = 256 };

/* True: tiles are used; width and items are then set, too. */
bool cg_map_find_tiles(map_writer *x, arena *memory);
/* Writes where the block's tile is, and its loads; then, when all other loads are under way too, the stores of
 * what was loaded to shared memory. */
void cg_map_put_tiles(map_writer *x);
void cg_map_put_turns(map_writer *x);
/* The offsets of item u of a thread, if there is one. */
void cg_map_put_tile_item(map_writer *x);
/* The vector of a crossed load for item u. */
const char *cg_map_tile_text(const map_writer *x, uint32_t i);
static inline uint32_t cg_map_tile_rows(const map_writer *x) { return CG_TILE_BLOCK / x->lanes; }

#endif
