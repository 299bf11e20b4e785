/* halve-products: as slice-products, with two slices of what is reduced or gathered after the
 * product. Layers that follow each other need no more: while one half is under way, the other one
 * is computed.
 *
 *   y = linear(h, w)     partial results on four devices
 *     =>  y.outer_split(0, 2);  y[0] = stream     two allreduces */
#include "pass/passes.h"
#include "shard/shard.h"

status pass_halve_products(ir_func *f, pass_ctx *ctx) {
  ctx->changed = shard_slice_products(f, SHARD_SLICE_HALVES, ctx->scratch) > 0;
  return STATUS_OK;
}
