/* free: deallocates every buffer after its last use.
 *
 *   for i in n {                        for i in n {
 *     t : f32[m] = allocate()             t : f32[m] = allocate()
 *     t <- exp(x)                 =>      t <- exp(x)
 *     y <- neg(t)                         y <- neg(t)
 *   }                                     deallocate(t)
 *                                       } */
#include "host/host.h"
#include "pass/passes.h"

status pass_free(ir_func *f, pass_ctx *ctx) {
  ctx->changed = host_free_buffers(f) > 0;
  return STATUS_OK;
}
