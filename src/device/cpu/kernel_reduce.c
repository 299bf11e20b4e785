/* Reductions: sum prod amax amin, and the moments mean, var and var_mean.
 *
 * Two forms, by which of the operand's dimensions is densest in memory:
 *   rows      a reduced one: each result is folded from runs that lie along it
 *   columns   a kept one: a block of neighbouring results is folded from run after run across it
 * var goes over the operand twice: for the mean, which var_mean keeps, then for the squared distances from
 * it. */
#include <stdlib.h>

#include "device/cpu/kernel_fold.h"

enum { COLUMNS = 2048 }; /* results folded side by side: few enough to stay in the cache */

typedef struct reduce_kernel {
  cpu_kernel head;
  cpu_loops kept; /* views: the operand, the result, the means */
  cpu_view views[3];
  cpu_loops reduced; /* view: the operand */
  int64_t count;     /* reduced positions */
  bool columns, is_float;
  cpu_transfer load;            /* of a run of the operand: along it (rows) or across (columns) */
  cpu_transfer store;           /* of results */
  cpu_transfer store_means;     /* var_mean */
  bool means;                   /* they are stored */
  const cpu_fold *first;        /* the fold; for var that of the mean */
  const cpu_fold *second;       /* var: squares */
  bool divides;                 /* mean, var */
  double mean_divisor, divisor; /* of the first and of the second */
} reduce_kernel;

static void divide(const reduce_kernel *m, int64_t n, cpu_element *acc, double divisor) {
  if (m->divides)
    for (int64_t i = 0; i < n; i++) acc[i].f /= divisor;
}

/* ---- rows ---- */
static void fold_run(const reduce_kernel *m, const cpu_fold *fold, const char *from,
                     cpu_element *acc, double center, char *scratch) {
  int64_t run = cpu_run_length(&m->reduced), block = m->load.direct ? run : CPU_BLOCK;
  for (int64_t done = 0; done < run; done += block) {
    int64_t n = run - done < block ? run - done : block;
    fold->row(n, cpu_load(&m->load, n, from + done * m->load.step, scratch), acc, center);
  }
}

static cpu_element fold_row(const reduce_kernel *m, const cpu_fold *fold, char *from, double center,
                            char *scratch) {
  cpu_element acc = fold->start;
  cpu_walk w = {.at = {from}};
  if (m->count > 0) do
      fold_run(m, fold, w.at[0], &acc, center, scratch);
    while (cpu_walk_next(&m->reduced, &w, 1));
  return acc;
}

static cpu_element reduce_row(const reduce_kernel *m, char *from, char *mean, char *scratch) {
  cpu_element acc = fold_row(m, m->first, from, 0, scratch);
  divide(m, 1, &acc, m->mean_divisor);
  if (!m->second) return acc;
  if (m->means) cpu_store(&m->store_means, 1, mean, &acc, scratch + cpu_transfer_bytes(CPU_BLOCK));
  acc = fold_row(m, m->second, from, acc.f, scratch);
  divide(m, 1, &acc, m->divisor);
  return acc;
}

static void run_rows(const reduce_kernel *m, char *const *starts, char *scratch) {
  cpu_walk w = cpu_walk_start(&m->kept, m->views, starts);
  char *spare = scratch + cpu_transfer_bytes(CPU_BLOCK);
  int64_t run = cpu_run_length(&m->kept), step = cpu_run_step(&m->kept, 0);
  do
    for (int64_t i = 0; i < run; i++) {
      char *mean = m->means ? w.at[2] + i * m->store_means.step : NULL;
      cpu_element acc = reduce_row(m, w.at[0] + i * step, mean, scratch);
      cpu_store(&m->store, 1, w.at[1] + i * m->store.step, &acc, spare);
    }
  while (cpu_walk_next(&m->kept, &w, 1));
}

/* ---- columns ---- */
static void fold_columns(const reduce_kernel *m, const cpu_fold *fold, int64_t n, char *from,
                         cpu_element *acc, const cpu_element *center, char *scratch) {
  cpu_walk w = {.at = {from}};
  for (int64_t i = 0; i < n; i++) acc[i] = fold->start;
  if (m->count > 0) do
      fold->column(n, cpu_load(&m->load, n, w.at[0], scratch), acc, center);
    while (cpu_walk_next(&m->reduced, &w, 0));
}

/* Scratch: the block on its way in, then results, then means. */
static const cpu_element *reduce_columns(const reduce_kernel *m, int64_t n, char *from, char *to,
                                         char *scratch) {
  cpu_element *acc = (cpu_element *)(void *)(scratch + cpu_transfer_bytes(COLUMNS));
  cpu_element *means = acc + COLUMNS;
  fold_columns(m, m->first, n, from, acc, acc, scratch);
  divide(m, n, acc, m->mean_divisor);
  if (!m->second) return acc;
  for (int64_t i = 0; i < n; i++) means[i] = acc[i];
  if (m->means) cpu_store(&m->store_means, n, to, means, scratch);
  fold_columns(m, m->second, n, from, acc, means, scratch);
  divide(m, n, acc, m->divisor);
  return acc;
}

static void run_columns(const reduce_kernel *m, char *const *starts, char *scratch) {
  cpu_walk w = cpu_walk_start(&m->kept, m->views, starts);
  int64_t run = cpu_run_length(&m->kept), step = cpu_run_step(&m->kept, 0);
  do
    for (int64_t done = 0; done < run; done += COLUMNS) {
      int64_t n = run - done < COLUMNS ? run - done : COLUMNS;
      char *mean = m->means ? w.at[2] + done * m->store_means.step : NULL;
      const cpu_element *acc = reduce_columns(m, n, w.at[0] + done * step, mean, scratch);
      cpu_store(&m->store, n, w.at[1] + done * m->store.step, acc, scratch);
    }
  while (cpu_walk_next(&m->kept, &w, 1));
}

static status run_reduce(const cpu_kernel *k, char *const *starts, char *scratch) {
  const reduce_kernel *m = (const reduce_kernel *)k;
  (m->columns ? run_columns : run_rows)(m, starts, scratch);
  return STATUS_OK;
}

/* ---- preparing ---- */
static int64_t densest(const cpu_loops *l) {
  int64_t step = llabs(cpu_run_step(l, 0));
  return cpu_run_length(l) > 1 && step > 0 ? step : INT64_MAX;
}

static int64_t count_of(const cpu_loops *l) {
  int64_t n = 1;
  for (uint32_t d = 0; d < l->rank; d++) n *= l->extents[d];
  return n;
}

/* The kept dimensions of the result, and the reduced ones, which the result does not have. */
static void make_loops(const cpu_call *c, reduce_kernel *m) {
  rt_view x = cpu_operand(c, 0);
  bool reduced[IR_MAX_RANK], keepdim = rt_task_int(c->task, "keepdim") != 0;
  int64_t extents[IR_MAX_RANK];
  int from[IR_MAX_RANK];
  uint32_t n_kept = 0, n_reduced = 0;
  cpu_view across = {.dtype = x.dtype};
  rt_task_dims(c->task, "dims", x.rank, reduced);
  for (uint32_t d = 0; d < x.rank; d++) {
    if (!reduced[d]) from[n_kept++] = (int)d;
    else if (keepdim) from[n_kept++] = RT_NO_DIM;
    if (!reduced[d]) continue;
    extents[n_reduced] = x.extents[d];
    across.strides[n_reduced++] = x.strides[d];
  }
  check(n_kept == c->result->rank);
  m->views[0] = cpu_place(c, 0, from);
  m->views[1] = cpu_place_result(c);
  m->means = c->task->n_more > 0;
  if (m->means) m->views[2] = cpu_place_more(c, 1);
  cpu_loops_make(&m->kept, CPU_BY_FIRST, n_kept, c->result->extents, m->views, m->means ? 3 : 2);
  cpu_loops_make(&m->reduced, CPU_BY_FIRST, n_reduced, extents, &across, 1);
  m->count = count_of(&m->reduced);
}

/* source: what elements are folded from. */
static reduce_kernel *new_reduce(const cpu_call *c, ir_dtype source_dtype) {
  reduce_kernel *m = CPU_KERNEL_NEW(c, reduce_kernel, run_reduce);
  make_loops(c, m);
  m->is_float = ir_dtype_is_float(source_dtype);
  m->columns = densest(&m->kept) < densest(&m->reduced) || m->count == 1;
  m->load = cpu_transfer_load(m->views[0].dtype,
                              cpu_run_step(m->columns ? &m->kept : &m->reduced, 0), source_dtype);
  m->store = cpu_transfer_store(m->views[1].dtype, cpu_run_step(&m->kept, 1),
                                m->is_float ? IR_F64 : IR_I64);
  m->store.direct = false; /* accumulators are not in the result */
  if (m->means)
    m->store_means = cpu_transfer_store(m->views[2].dtype, cpu_run_step(&m->kept, 2), IR_F64);
  m->store_means.direct = false;
  m->head.scratch_bytes = cpu_transfer_bytes(COLUMNS) + 2 * COLUMNS * sizeof(cpu_element);
  return m;
}

status cpu_prepare_reduce(const cpu_call *c, cpu_kernel **result) {
  ir_fold fold = ir_op_fold(c->task->code);
  const char *noun = ir_fold_info_of(fold)->noun;
  ir_dtype t = cpu_operand(c, 0).dtype;
  ir_dtype source_dtype = ir_dtype_is_float(t) ? cpu_native(t) : IR_I64;
  reduce_kernel *m = new_reduce(c, source_dtype);
  if (m->count == 0 && noun && !rt_task_int(c->task, "empty"))
    return fail(STATUS_BAD_PROGRAM, "%s: a zero-size reduction has no %s", c->info->name, noun);
  m->first = cpu_fold_of((cpu_fold_kind)fold, source_dtype);
  *result = &m->head;
  return STATUS_OK;
}

status cpu_prepare_moment(const cpu_call *c, cpu_kernel **result) {
  ir_dtype t = cpu_operand(c, 0).dtype;
  ir_dtype source_dtype = ir_dtype_is_float(t) ? cpu_native(t) : IR_F64;
  reduce_kernel *m = new_reduce(c, source_dtype);
  m->first = cpu_fold_of(CPU_FOLD_SUM, source_dtype);
  m->divides = true;
  m->mean_divisor = (double)m->count;
  if (c->task->code != IR_OP_MEAN) {
    double left = (double)m->count - (double)rt_task_int(c->task, "correction");
    m->second = cpu_fold_of(CPU_FOLD_SQUARES, source_dtype);
    m->divisor = left > 0 ? left : 0;
  }
  *result = &m->head;
  return STATUS_OK;
}
