/* Pointwise operations: runs of operands are brought into dense native blocks where they are not
 * already, one loop of loops/map_*.c computes the block, and it is stored.
 *
 * An operand that repeats along the run is spread over its block once per run, and one that never
 * changes (a number, a scalar) once per kernel. */
#include "device/cpu/kernel_internal.h"

enum { MAX_OPERANDS = 3 };

typedef struct map_kernel {
  cpu_kernel head;
  cpu_loops loops;
  cpu_view views[1 + MAX_OPERANDS]; /* the result first */
  cpu_transfer load[MAX_OPERANDS], store;
  bool constant[MAX_OPERANDS];
  uint32_t n_operands;
  int64_t block; /* elements at a time */
  cpu_map_fn *fn;
  bool mode;
} map_kernel;

/* Block 0 takes results, the others operands. There is no scratch where none is needed. */
static char *block_of(char *scratch, uint32_t i) {
  return scratch ? scratch + i * cpu_transfer_bytes(CPU_BLOCK) : NULL;
}

static void load_operands(const map_kernel *m, const cpu_walk *w, int64_t done, int64_t n,
                          bool first, const void **x, char *scratch) {
  for (uint32_t i = 0; i < m->n_operands; i++) {
    const cpu_transfer *t = &m->load[i];
    bool loaded = m->constant[i] ? !first : t->step == 0 && done > 0;
    if (!loaded) x[i] = cpu_load(t, n, w->at[1 + i] + done * t->step, block_of(scratch, 1 + i));
  }
}

static status run_map(const cpu_kernel *k, char *const *starts, char *scratch) {
  const map_kernel *m = (const map_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  int64_t run = cpu_run_length(&m->loops);
  const void *x[MAX_OPERANDS] = {NULL};
  char *spare = scratch ? scratch + cpu_transfer_bytes(CPU_BLOCK) / 2 : NULL;
  bool first = true;
  do {
    for (int64_t done = 0; done < run; done += m->block, first = false) {
      int64_t n = run - done < m->block ? run - done : m->block;
      char *to = w.at[0] + done * m->store.step;
      load_operands(m, &w, done, n, first, x, scratch);
      void *block = cpu_store_target(&m->store, to, scratch);
      m->fn(n, block, x, m->mode);
      cpu_store(&m->store, n, to, block, spare);
    }
  } while (cpu_walk_next(&m->loops, &w, 1));
  return STATUS_OK;
}

/* The choice attribute; no pointwise op has another. */
static bool mode_of(const cpu_call *c) {
  for (const ir_param *p = c->info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind == IR_PARAM_CHOICE) return rt_task_int(c->task, p->name) != 0;
  return false;
}

static bool never_moves(const cpu_loops *l, uint32_t view) {
  for (uint32_t d = 0; d < l->rank; d++)
    if (l->steps[view][d] != 0 && l->extents[d] != 1) return false;
  return true;
}

/* Direct operands need no blocks, so a run is computed at once; else a block at a time. */
static void plan_transfers(map_kernel *m, ir_dtype compute, ir_dtype native, bool truth) {
  m->store =
      cpu_transfer_store(m->views[0].dtype, cpu_run_step(&m->loops, 0), truth ? IR_BOOL : native);
  bool direct = m->store.direct;
  for (uint32_t i = 0; i < m->n_operands; i++) {
    m->load[i] = cpu_transfer_load_as(m->views[1 + i].dtype, cpu_run_step(&m->loops, 1 + i),
                                      compute, native);
    m->constant[i] = never_moves(&m->loops, 1 + i);
    direct = direct && m->load[i].direct;
  }
  m->block = direct ? cpu_run_length(&m->loops) : CPU_BLOCK;
  if (!direct) m->head.scratch_bytes = (1 + m->n_operands) * cpu_transfer_bytes(CPU_BLOCK);
}

status cpu_prepare_map(const cpu_call *c, cpu_kernel **result) {
  map_kernel *m = CPU_KERNEL_NEW(c, map_kernel, run_map);
  ir_dtype native = cpu_native(c->task->compute);
  m->n_operands = c->task->n_operands;
  check(m->n_operands <= MAX_OPERANDS);
  m->views[0] = cpu_place_result(c);
  for (uint32_t i = 0; i < m->n_operands; i++) m->views[1 + i] = cpu_place_aligned(c, i);
  cpu_loops_make(&m->loops, CPU_BY_FIRST, c->result->rank, c->result->extents, m->views,
                 1 + m->n_operands);
  plan_transfers(m, c->task->compute, native, c->info->rule == IR_RESULT_TRUTH);
  m->fn = cpu_vectors()->map[native][c->task->code];
  check(m->fn);
  m->mode = mode_of(c);
  *result = &m->head;
  return STATUS_OK;
}
