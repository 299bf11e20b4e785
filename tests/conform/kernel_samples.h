/* The kernels whose speed and text are looked at: bf16[rows, columns], dense. Starts: the result is 0,
 * x 1, what else there is 2 and 3. */
#ifndef WEIR_TESTS_CONFORM_KERNEL_SAMPLES_H
#define WEIR_TESTS_CONFORM_KERNEL_SAMPLES_H

#include <string.h>

#include "codegen/codegen.h"

typedef struct sample {
  const char *name;
  uint32_t reads, writes; /* whole tensors of x's size */
} sample;

enum { N_SAMPLES = 6 };
static const sample samples[N_SAMPLES] = {
    {"bias_gelu", 1, 1}, {"softmax", 1, 1}, {"layer_norm", 1, 1},
    {"rms_norm", 1, 1},  {"row_sum", 1, 0}, {"column_sum", 1, 0},
};

static cg_view sample_view(uint32_t start, int64_t outer, int64_t inner) {
  return (cg_view){.start = start, .dtype = IR_BF16, .align = CG_ALIGN, .strides = {outer, inner}};
}

/* gelu(x + bias): two steps, each rounded. */
static void sample_bias_gelu(cg_kernel *k, int64_t rows, int64_t columns) {
  cg_map m = {.name = "bias_gelu",
              .rank = 2,
              .extents = {rows, columns},
              .result = sample_view(0, columns, 1),
              .n_sources = 2,
              .n_steps = 2};
  m.sources[0] = (cg_source){.kind = CG_VIEW, .view = sample_view(1, columns, 1)};
  m.sources[1] = (cg_source){.kind = CG_VIEW, .view = sample_view(2, 0, 1)};
  m.steps[0] = (cg_step){IR_OP_ADD, IR_BF16, IR_BF16, false, 2, {0, 1}};
  m.steps[1] = (cg_step){IR_OP_GELU, IR_BF16, IR_BF16, false, 1, {2}};
  cg_write_map(k, &m);
}

static void sample_rows(cg_kernel *k, ir_opcode code, int64_t rows, int64_t columns) {
  cg_rows r = {.code = code,
               .rank = 2,
               .extents = {rows, columns},
               .count = columns,
               .result = sample_view(0, columns, 1),
               .x = sample_view(1, columns, 1),
               .weight = sample_view(2, 0, 1),
               .bias = sample_view(3, 0, 1),
               .has_weight = code != IR_OP_SOFTMAX,
               .has_bias = code == IR_OP_LAYER_NORM,
               .eps = 1e-5};
  cg_write_rows(k, &r);
}

static void sample_sum(cg_kernel *k, bool along_rows, int64_t rows, int64_t columns) {
  cg_reduce r = {.code = IR_OP_SUM, .n_kept = 1, .n_reduced = 1, .result = sample_view(0, 1, 0)};
  r.extents[0] = along_rows ? rows : columns;
  r.extents[1] = along_rows ? columns : rows;
  r.x = along_rows ? sample_view(1, columns, 1) : sample_view(1, 1, columns);
  cg_write_reduce(k, &r);
}

/* Only inside a memory_guard(). */
static void sample_write(cg_kernel *k, const char *name, int64_t rows, int64_t columns) {
  if (strcmp(name, "bias_gelu") == 0) sample_bias_gelu(k, rows, columns);
  else if (strcmp(name, "softmax") == 0) sample_rows(k, IR_OP_SOFTMAX, rows, columns);
  else if (strcmp(name, "layer_norm") == 0) sample_rows(k, IR_OP_LAYER_NORM, rows, columns);
  else if (strcmp(name, "rms_norm") == 0) sample_rows(k, IR_OP_RMS_NORM, rows, columns);
  else sample_sum(k, strcmp(name, "row_sum") == 0, rows, columns);
}

#endif
