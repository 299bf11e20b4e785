/* The parts of `weir run`: run.c drives, run_files.c finds inputs and outputs, run_report.c prints. */
#ifndef WEIR_TOOLS_RUN_H
#define WEIR_TOOLS_RUN_H

#include "cli.h"

/* An input or output of the fusion. */
typedef struct run_tensor {
  weir_tensor tensor;
  weir_tensor_info info;
  const char *path; /* of --input or --output; NULL: none */
  weir_array *value;
  weir_array *again;     /* an output of a further run, for comparison */
  weir_array *reference; /* an output of the definition, with --check */
  weir_comparison comparison;
} run_tensor;

typedef struct run_list {
  run_tensor *data;
  size_t len;
} run_list;

/* An allocator that measures. */
typedef struct run_meter {
  int64_t live_bytes, peak_bytes;
} run_meter;

typedef struct run_state {
  const cli *c;
  weir_module *module;
  weir_fusion *fusion;
  weir_shapes *shapes;
  weir_program *program;
  weir_profile *profile; /* of the last run; NULL unless --stats, --trace or sim asks for it */
  bool computes;         /* the device computes values; sim and null do not */
  run_list inputs, outputs;
  run_meter meter;
  double *times_s; /* one per repeat, sorted at the end */
  size_t n_times;
  bool check_failed;
} run_state;

/* ---- run_files.c ---- */
/* Finds the tensors, reads the files that are given, fixes all extents, fills what is missing. */
int run_prepare(run_state *s);
/* Writes the outputs that have a path, all or none. */
int run_save(const run_state *s);
/* Zeroed arrays for all outputs; `slot` says where. */
int run_allocate(const run_state *s, weir_array **(*slot)(run_tensor *t));
void run_list_free(run_list *l);

/* ---- run_report.c ---- */
int run_report(const run_state *s);
size_t run_size_bytes(const weir_array *a);

#endif
