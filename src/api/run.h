/* One run: takes the caller's arrays to the session or to the reference evaluator. For run*.c. */
#ifndef WEIR_API_RUN_H
#define WEIR_API_RUN_H

#include "api/program.h"
#include "session/follow.h"
#include "session/judge.h"
#include "session/memory.h"

typedef struct api_run {
  weir_program *p;
  weir_run_args args;
  arena *memory; /* of this call */
  ir_env env;
  ir_array *inputs, *outputs; /* whole; only the shape of those given as shards */
  session_arrays in, out;
  session_away away; /* ended by the entry point */
  rt_stream streams[SESSION_MAX_STREAMS];
  uint32_t n_streams;
  rt_control *control; /* NULL: it cannot be stopped */
  /* By output: the donated input that the plan overwrites if it can, or -1; NULL: none. */
  int64_t *gifts;
  const session_judgement *judgement; /* outputs are compared (weir_check()); NULL: written */
  check_world_report found; /* freed by the entry point: scratch memory may run out meanwhile */
} api_run;

static inline const char *api_run_input_label(const api_run *c, uint32_t i) {
  return c->p->labels[i];
}
static inline const char *api_run_output_label(const api_run *c, uint32_t i) {
  return c->p->labels[c->p->func->inputs.len + i];
}
static inline bool api_run_on_device(const api_run *c) {
  return c->p->session.device && !c->args.as_definition;
}

/* ---- arrays (run_arrays.c) ---- */
NODISCARD status api_run_check_count(const char *what, size_t given, uint32_t wanted);
NODISCARD status api_run_check_dtype(const ir_array *a, ir_dtype wanted, const char *what);
/* Checks that `a` has the shape of tensor t in the environment, and that no two positions share memory. */
NODISCARD status api_run_check_output(api_run *c, ir_tensor t, const ir_array *a, const char *what);
/* Views of the caller's arrays and shards; inputs bind the extents. */
NODISCARD status api_run_take_inputs(api_run *c);
NODISCARD status api_run_take_outputs(api_run *c);

/* ---- donated inputs (run_donated.c) ---- */
/* The number of the input whose memory output i has; -1: none. */
int64_t api_run_donated(const api_run *c, uint32_t i);
NODISCARD status api_run_check_donated(api_run *c, uint32_t i);
/* Decides which donated inputs the run overwrites; other outputs get memory of their own until the end. */
NODISCARD status api_run_place_donated(api_run *c, bool on_device);

#endif
