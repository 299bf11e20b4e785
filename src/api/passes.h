/* Running the pass pipeline for the public API. */
#ifndef WEIR_API_PASSES_H
#define WEIR_API_PASSES_H

#include "api/api.h"
#include "pass/pass.h"

/* What options say about passes; the default pipeline without any. The request lives in `scratch`, or as
 * long as the options do. The pipeline form of host_options is the caller's to fill in. */
NODISCARD status api_pass_request(arena *scratch, const weir_options *o, pass_request *result);

/* Takes the extents that the options define (`define`) as those that choices among equivalent
 * programs are made for: what moves fewest bytes, and what is worth waiting for. What is computed
 * is right for all extents. */
NODISCARD weir_status api_expect_shapes(ir_func *f, const weir_options *o);
/* Adds a pass to a list of passes; NULL: none. */
void api_pass_also(arena *scratch, const char *pass, const char **list);

/* Leaves out the passes whose results the nvFuser style does not show. */
void api_show_plain(arena *scratch, pass_request *request);

/* Lowers `f`: runs the passes on a copy of it. What was asked to be printed goes to the log; the reproducer of
 * a failure goes to the file that the request names. */
NODISCARD status api_lower(arena *scratch, ir_func *f, const pass_request *request,
                           ir_func **result);

#endif
