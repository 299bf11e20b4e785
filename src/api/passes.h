/* Running the pass pipeline for the public API. */
#ifndef WEIR_API_PASSES_H
#define WEIR_API_PASSES_H

#include "api/api.h"
#include "pass/pass.h"

/* What options say about passes; the default pipeline without any. The request lives in `scratch`, or as
 * long as the options do. The pipeline form of host_options is the caller's to fill in. */
NODISCARD status api_pass_request(arena *scratch, const weir_options *o, pass_request *result);

/* Extents that the options define (`define`) are those that choices among equivalent programs go
 * by: what moves fewest bytes, and what is worth waiting for. What is computed is right for all
 * extents. */
NODISCARD weir_status api_expect_shapes(ir_func *f, const weir_options *o);
/* One more pass in a list of them; NULL: none. */
void api_pass_also(arena *scratch, const char *pass, const char **list);

/* Makes it the request for what the nvFuser style shows. */
void api_show_plain(arena *scratch, pass_request *request);

/* Runs the passes on a copy of `f`, for its host program. What was asked to be printed goes to standard
 * error; the reproducer of a failure to the file that the request names. */
NODISCARD status api_lower(arena *scratch, ir_func *f, const pass_request *request,
                           ir_func **result);

#endif
