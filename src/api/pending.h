/* Shared by weir_run() and weir_run_async(). */
#ifndef WEIR_API_PENDING_H
#define WEIR_API_PENDING_H

#include "api/api.h"
#include "runtime/control.h"

/* Checks arguments as far as possible before the run begins; *result is a copy of them. (run.c) */
weir_status api_run_check(const weir_program *p, const weir_run_args *args, const char *function,
                          weir_run_args *result);
/* The run, with arguments that were checked. (run.c) */
NODISCARD status api_run_now(weir_program *p, const weir_run_args *args, rt_control *control);
rt_stream api_stream(const weir_stream *s);

#endif
