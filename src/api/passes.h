/* Running the pass pipeline for the public API. */
#ifndef WEIR_API_PASSES_H
#define WEIR_API_PASSES_H

#include "api/api.h"
#include "pass/pass.h"

/* What options say about passes; the default pipeline without any. The request lives in `scratch`, or as
 * long as the options do. The pipeline form of host_options is the caller's to fill in. */
NODISCARD status api_pass_request(arena *scratch, const weir_options *o, pass_request *result);

/* Makes it the request for what the nvFuser style shows. */
void api_show_plain(arena *scratch, pass_request *request);

/* Runs the passes on a copy of `f`, for its host program. What was asked to be printed goes to standard
 * error; the reproducer of a failure to the file that the request names. */
NODISCARD status api_lower(arena *scratch, ir_func *f, const pass_request *request,
                           ir_func **result);

#endif
