/* grouped_matmul and grouped_outer.
 *
 * A grouped product has a matrix b per group. Runs of rows with the same index are products of their own, block
 * by block. grouped_outer has a result per group, and the depth is cut into runs: those of other groups are left
 * out. */
#include "device/cpu/kernel_matmul.h"

#include <string.h>

/* ---- running ---- */
int64_t cpu_matmul_next_depth(const matmul_kernel *g, const char *index, int64_t group, int64_t k,
                              int64_t *d) {
  int64_t depth = smaller(CPU_GEMM_DEPTH, k - *d), n = 0;
  if (!g->by_depth) return depth;
  ir_dtype t = g->views[OTHERS].dtype;
  while (*d < k && ir_element_as_i64(t, index + *d * g->index_step) != group) ++*d;
  depth = smaller(CPU_GEMM_DEPTH, k - *d);
  while (n < depth && ir_element_as_i64(t, index + (*d + n) * g->index_step) == group) n++;
  return n;
}

static int64_t group_at(const matmul_kernel *g, const char *index, int64_t i) {
  const side *s = &g->sides[OTHERS];
  return ir_element_as_i64(g->views[OTHERS].dtype, index + i * s->shape.row_stride * s->size_bytes);
}

status cpu_matmul_groups(const matmul_kernel *g, char *const *starts_at, int64_t i, int64_t j,
                         char *scratch) {
  int64_t end = smaller(g->m, i + g->block_m), last;
  char *at[MOST_SIDES];
  memcpy(at, starts_at, sizeof at);
  for (; i < end; i = last) {
    int64_t group = group_at(g, at[OTHERS], i);
    for (last = i + 1; last < end && group_at(g, at[OTHERS], last) == group;) last++;
    if (group < 0 || group > g->n_groups)
      return rt_fail_index(g->head.name, group, 0, g->n_groups + 1);
    at[B] = group < g->n_groups ? starts_at[B] + group * g->group_step : NULL;
    cpu_matmul_rows(g, at, i, last - i, j, 0, scratch);
  }
  return STATUS_OK;
}

/* Each part looks at all of them: which one finds the fault does not matter. */
static status check_depth(const matmul_kernel *g, const char *index) {
  for (int64_t d = 0; d < g->k; d++) {
    int64_t group = ir_element_as_i64(g->views[OTHERS].dtype, index + d * g->index_step);
    if (group < 0 || group > g->n_groups)
      return rt_fail_index(g->head.name, group, 0, g->n_groups + 1);
  }
  return STATUS_OK;
}

status cpu_matmul_outer(const matmul_kernel *g, int64_t item, char *const *at, int64_t i,
                        int64_t rows, int64_t j, char *scratch) {
  TRY(check_depth(g, at[OTHERS]));
  cpu_matmul_rows(g, at, i, rows, j, g->first_group + item % g->n_results, scratch);
  return STATUS_OK;
}

/* ---- preparing ---- */
void cpu_matmul_place_index(matmul_kernel *g) {
  g->views[BIAS] = (cpu_view){.dtype = g->views[C].dtype};
  g->n_views = OTHERS + 1;
}

void cpu_matmul_take_rows(matmul_kernel *g, const cpu_call *c) {
  uint32_t row = c->result->rank - 2;
  g->m = c->result->extents[row];
  for (uint32_t v = 0; v < g->n_views; v++)
    if (v != B) g->sides[v].shape.row_stride = g->views[v].strides[row];
}

/* x[*, m, k], weight[*, g, k, n] and index[*, m] in the result [*, m, n]. */
status cpu_prepare_grouped_matmul(const cpu_call *c, cpu_kernel **result) {
  matmul_kernel *g = CPU_KERNEL_NEW(c, matmul_kernel, NULL);
  rt_view x = cpu_operand(c, 0), w = cpu_operand(c, 1), index = cpu_operand(c, 2);
  uint32_t rank = c->result->rank, n_batch = rank - 2;
  int from[IR_MAX_RANK];
  g->n_views = BIAS;
  g->grouped = true;
  g->n_groups = w.extents[w.rank - 3];
  g->group_step = w.strides[w.rank - 3] * (int64_t)ir_dtype_size_bytes(w.dtype);
  g->views[C] = cpu_place_result(c);
  rt_align_with(x.rank - 2, n_batch, n_batch, x.rank - 2, from);
  g->views[A] = cpu_place(c, 0, from);
  rt_align_with(index.rank - 1, n_batch, n_batch, index.rank - 1, from);
  g->views[OTHERS] = cpu_place(c, 2, from);
  rt_align_with(w.rank - 3, n_batch, rank - 1, w.rank - 1, from);
  g->views[B] = cpu_place(c, 1, from);
  g->k = x.extents[x.rank - 1];
  g->sides[A].shape.column_stride = x.strides[x.rank - 1];
  g->sides[B].shape.row_stride = w.strides[w.rank - 2];
  TRY(cpu_matmul_plan(c, g, true));
  *result = &g->head;
  return STATUS_OK;
}

/* x[*, m, k], y[*, m, n] and index[*, m] in the result [*, g, k, n]. */
status cpu_prepare_grouped_outer(const cpu_call *c, cpu_kernel **result) {
  matmul_kernel *g = CPU_KERNEL_NEW(c, matmul_kernel, NULL);
  rt_view x = cpu_operand(c, 0), y = cpu_operand(c, 1), index = cpu_operand(c, 2);
  uint32_t rank = c->result->rank, groups = rank - 3;
  int from[IR_MAX_RANK];
  g->n_views = BIAS;
  g->grouped = g->by_depth = true;
  g->n_groups = c->whole[groups];
  g->first_group = c->offset[groups];
  g->n_results = larger(1, c->result->extents[groups]);
  g->index_step = index.strides[index.rank - 1] * (int64_t)ir_dtype_size_bytes(index.dtype);
  g->views[C] = cpu_place_result(c);
  rt_align_with(x.rank - 2, groups, rank - 2, x.rank - 1, from);
  g->views[A] = cpu_place(c, 0, from);
  rt_align_with(y.rank - 2, groups, rank - 1, y.rank - 1, from);
  g->views[B] = cpu_place(c, 1, from);
  rt_align(index.rank - 1, groups, from);
  g->views[OTHERS] = cpu_place(c, 2, from);
  g->k = x.extents[x.rank - 2];
  g->sides[A].shape.column_stride = x.strides[x.rank - 2];
  g->sides[B].shape.row_stride = y.strides[y.rank - 2];
  TRY(cpu_matmul_plan(c, g, true));
  *result = &g->head;
  return STATUS_OK;
}
