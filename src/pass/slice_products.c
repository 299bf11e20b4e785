/* slice-products: streams products that meet a communication, so that the one overlaps the other.
 *
 *   y = linear(x, w)     x[mesh.x t, k] is gathered
 *     =>  y.outer_split(0, d);  y[0] = stream     each piece is multiplied when it is there */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_slice_products(ir_func *f, pass_ctx *ctx) {
  ctx->changed = shard_slice_products(f, SHARD_SLICE_ALL, ctx->scratch) > 0;
  return STATUS_OK;
}
