/* The kernels whose speed and text are looked at: bf16[rows, columns], dense. Starts: the result is 0,
 * x 1, what else there is 2 and 3. */
#ifndef WEIR_TESTS_CONFORM_KERNEL_SAMPLES_H
#define WEIR_TESTS_CONFORM_KERNEL_SAMPLES_H

#include <string.h>

#include "codegen/codegen.h"

typedef struct sample {
  const char *name;
  double moved; /* bytes read and written that cannot be avoided, over those of x */
  double goal;  /* of what copying reaches; 0: none, other work weighs more than memory */
} sample;

/* Orders that are not of rows are of lines of SAMPLE_LINE elements, whatever the columns. */
enum { N_SAMPLES = 21, SAMPLE_LINE = 256, SAMPLE_TOP = 8 };
static const sample samples[N_SAMPLES] = {
    {"bias_gelu", 2, 0.8},
    {"softmax", 2, 0.8},
    {"layer_norm", 2, 0.8},
    {"rms_norm", 2, 0.8},
    {"row_sum", 1, 0.8},
    {"column_sum", 1, 0.8},
    {"row_max", 1, 0.8},
    {"column_max", 1, 0.8},
    {"column_mean", 1, 0.8},
    {"row_var", 1, 0.8},
    {"column_var", 1, 0.7},
    {"total_var", 1, 0.7},
    {"row_cumsum", 2, 0.5},
    {"column_cumsum", 2, 0.5},
    {"transpose", 2, 0.8},
    {"argsort", 5, 0},
    {"topk", 1, 0},
    {"column_softmax", 2, 0.55},
    {"column_layer_norm", 2, 0.4},
    {"row_argsort", 5, 0},
    {"row_topk", 1, 0},
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
  m.steps[0] = (cg_step){IR_OP_ADD, IR_BF16, IR_BF16, false, 2, {0, 1}, false};
  m.steps[1] = (cg_step){IR_OP_GELU, IR_BF16, IR_BF16, false, 1, {2}, false};
  cg_write_map(k, &m);
}

/* down: the columns are rows. */
static void sample_rows(cg_kernel *k, ir_opcode code, bool down, int64_t rows, int64_t columns) {
  int64_t n = down ? rows : columns, outer = down ? 1 : columns, inner = down ? columns : 1;
  cg_rows r = {.code = code,
               .rank = 2,
               .extents = {down ? columns : rows, n},
               .count = n,
               .result = sample_view(0, outer, inner),
               .x = sample_view(1, outer, inner),
               .weight = sample_view(2, 0, 1),
               .bias = sample_view(3, 0, 1),
               .has_weight = code != IR_OP_SOFTMAX,
               .has_bias = code == IR_OP_LAYER_NORM,
               .eps = 1e-5};
  cg_write_rows(k, &r);
}

/* Over the columns of each row, the rows of each column, or everything. */
static void sample_reduce(cg_kernel *k, ir_opcode code, char along, int64_t rows, int64_t columns) {
  cg_reduce r = {.code = code, .n_kept = 1, .n_reduced = 1, .result = sample_view(0, 1, 0)};
  if (along == 'c') {
    r.extents[0] = columns, r.extents[1] = rows;
    r.x = sample_view(1, 1, columns);
  } else {
    r.extents[0] = rows, r.extents[1] = columns;
    r.x = sample_view(1, columns, 1);
  }
  if (along == 't') r.n_kept = 0, r.n_reduced = 2;
  r.divisor = (double)(along == 't' ? rows * columns : r.extents[1]);
  cg_write_reduce(k, &r);
}

/* Along rows, columns, or short lines. */
static void sample_lines(cg_kernel *k, ir_opcode code, char along, int64_t rows, int64_t columns) {
  cg_lines l = {.code = code, .rank = 2, .descending = code == IR_OP_TOPK};
  bool down = along == 'c';
  if (along == 's') rows = rows * columns / SAMPLE_LINE, columns = SAMPLE_LINE;
  l.n = down ? rows : columns;
  l.count = code == IR_OP_TOPK ? SAMPLE_TOP : l.n;
  l.extents[0] = down ? 1 : rows, l.extents[1] = down ? columns : 1;
  l.x = sample_view(1, columns, 1);
  l.result = sample_view(0, down ? columns : l.count, 1);
  l.x_step = l.result_step = down ? columns : 1;
  if (code == IR_OP_ARGSORT) l.result.dtype = IR_I64;
  cg_write_lines(k, &l);
}

static void sample_transpose(cg_kernel *k, int64_t rows, int64_t columns) {
  cg_map m = {.name = "set", .rank = 2, .extents = {columns, rows}, .n_sources = 1};
  m.result = sample_view(0, rows, 1);
  m.sources[0] = (cg_source){.kind = CG_VIEW, .view = sample_view(1, 1, columns)};
  cg_write_map(k, &m);
}

static bool sample_is(const char *name, const char *other) { return strcmp(name, other) == 0; }

/* Only inside a memory_guard(). */
static void sample_write(cg_kernel *k, const char *name, int64_t rows, int64_t columns) {
  static const struct {
    const char *ending;
    ir_opcode code;
  } reductions[] = {{"_sum", IR_OP_SUM},
                    {"_max", IR_OP_AMAX},
                    {"_mean", IR_OP_MEAN},
                    {"_var", IR_OP_VAR},
                    {"_cumsum", IR_OP_CUMSUM},
                    {"softmax", IR_OP_SOFTMAX},
                    {"layer_norm", IR_OP_LAYER_NORM},
                    {"rms_norm", IR_OP_RMS_NORM}};
  ir_opcode code = IR_OP_NONE;
  for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
    size_t length = strlen(reductions[i].ending);
    if (strlen(name) >= length && sample_is(name + strlen(name) - length, reductions[i].ending))
      code = reductions[i].code;
  }
  if (sample_is(name, "bias_gelu")) sample_bias_gelu(k, rows, columns);
  else if (sample_is(name, "transpose")) sample_transpose(k, rows, columns);
  else if (sample_is(name, "argsort")) sample_lines(k, IR_OP_ARGSORT, 's', rows, columns);
  else if (sample_is(name, "row_argsort")) sample_lines(k, IR_OP_ARGSORT, 'r', rows, columns);
  else if (sample_is(name, "topk")) sample_lines(k, IR_OP_TOPK, 's', rows, columns);
  else if (sample_is(name, "row_topk")) sample_lines(k, IR_OP_TOPK, 'r', rows, columns);
  else if (code == IR_OP_CUMSUM) sample_lines(k, code, name[0], rows, columns);
  else if (code == IR_OP_SOFTMAX || code == IR_OP_LAYER_NORM || code == IR_OP_RMS_NORM)
    sample_rows(k, code, name[0] == 'c', rows, columns);
  else sample_reduce(k, code, name[0], rows, columns);
}

#endif
