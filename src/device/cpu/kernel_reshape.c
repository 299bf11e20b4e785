/* reshape: both sides in row-major order.
 *
 * The result's positions are numbered in the whole (a dimension that the operand was already cut
 * along counts as whole there), and so are the operand's. Where both walk evenly they walk together:
 *   result runs   stretches of the window that are stretches of numbers
 *   operand runs  the operand's dimensions, collapsed; the last one holds neighbouring numbers
 * Each result run is copied in pieces that stay inside one operand run. */
#include "device/cpu/kernel_internal.h"

typedef struct reshape_kernel {
  cpu_kernel head;
  cpu_loops to; /* views: the result, its numbers */
  cpu_view views[2];
  int64_t first; /* number of the window's first element */
  cpu_loops from;
  cpu_view source;
  size_t size_bytes;
} reshape_kernel;

static const char *source_at(const reshape_kernel *m, const char *start, int64_t number,
                             int64_t *left) {
  const cpu_loops *l = &m->from;
  *left = cpu_run_length(l) - number % cpu_run_length(l);
  for (uint32_t d = l->rank; d-- > 0; number /= l->extents[d])
    start += number % l->extents[d] * l->steps[0][d];
  return start;
}

/* A window of one column skips numbers: then every element is a piece of its own. */
static void copy_run(const reshape_kernel *m, char *to, const char *start, int64_t number) {
  int64_t n = cpu_run_length(&m->to), step = cpu_run_step(&m->to, 0), left;
  int64_t skip = cpu_run_step(&m->to, 1);
  for (int64_t done = 0; done < n; done += left) {
    const char *from = source_at(m, start, number + done * skip, &left);
    if (skip != 1) left = 1;
    if (left > n - done) left = n - done;
    cpu_copy_strided(m->size_bytes, left, to + done * step, step, from, cpu_run_step(&m->from, 0));
  }
}

static status run_reshape(const cpu_kernel *k, char *const *starts, char *scratch) {
  const reshape_kernel *m = (const reshape_kernel *)k;
  const char *start = cpu_view_start(&m->source, starts);
  cpu_walk w = {.at = {cpu_view_start(&m->views[0], starts)}};
  (void)scratch;
  do copy_run(m, w.at[0], start, m->first + cpu_walk_offset(&m->to, &w, 1));
  while (cpu_walk_step(&m->to, &w, 1, 1));
  return STATUS_OK;
}

status cpu_prepare_reshape(const cpu_call *c, cpu_kernel **result) {
  reshape_kernel *m = CPU_KERNEL_NEW(c, reshape_kernel, run_reshape);
  rt_view x = cpu_operand(c, 0);
  if (x.rank == 0) return cpu_prepare_copy(c, result);
  m->source = cpu_place_start(c, 0);
  for (uint32_t d = 0; d < x.rank; d++) m->source.strides[d] = x.strides[d];
  cpu_loops_make(&m->from, CPU_IN_ORDER, x.rank, x.extents, &m->source, 1);
  m->size_bytes = ir_dtype_size_bytes(x.dtype);
  m->views[0] = cpu_place_result(c);
  m->first = cpu_place_numbers(c, c->task->operands[0].sliced, &m->views[1]);
  cpu_loops_make(&m->to, CPU_IN_ORDER, c->result->rank, c->result->extents, m->views, 2);
  *result = &m->head;
  return STATUS_OK;
}
