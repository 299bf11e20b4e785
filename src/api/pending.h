/* What runs at once, and runs that wait their turn, have in common. */
#ifndef WEIR_API_PENDING_H
#define WEIR_API_PENDING_H

#include "api/api.h"
#include "runtime/control.h"

/* What can be said of arguments before it is the run's turn; *result is a copy of all of them. (run.c) */
weir_status api_run_check(const weir_program *p, const weir_run_args *args, const char *function,
                          weir_run_args *result);
/* The run itself, of arguments that were checked. (run.c) */
NODISCARD status api_run_now(weir_program *p, const weir_run_args *args, rt_control *control);
rt_stream api_stream(const weir_stream *s);

#endif
