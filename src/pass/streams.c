/* streams: lets the iterations of `stream` loops take turns on the worker streams.
 *
 *   for i in n stream { … }    =>    each worker waits for the calling stream;
 *                                    for i in n { set_stream(i % streams); … };
 *                                    the calling stream waits for each worker */
#include "host/host.h"
#include "pass/passes.h"

status pass_streams(ir_func *f, pass_ctx *ctx) {
  ctx->changed = host_distribute_streams(f) > 0;
  return STATUS_OK;
}
