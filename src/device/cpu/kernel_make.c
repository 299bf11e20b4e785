/* Operations without operands: full zeros ones iota uniform.
 *
 * Each element depends on its number alone: its row-major position in the whole result. So every
 * window of a result holds what the whole one holds there. */
#include <math.h>

#include "base/random.h"
#include "device/cpu/kernel_internal.h"
#include "device/cpu/kernel_make.h"

typedef struct maker_kernel {
  cpu_kernel head;
  cpu_loops loops; /* views: the result, the numbers as byte offsets */
  cpu_view views[2];
  int64_t first; /* number of the window's first element */
  ir_dtype dtype;
  cpu_element value; /* full */
  cpu_transfer store;
  const cpu_maker *maker;
} maker_kernel;

struct cpu_maker {
  ir_dtype dtype;
  bool random;
  const uint64_t *seed; /* uniform: of the run */
  uint64_t number;      /* of its stream of numbers */
  double lo, hi, near_hi;
};

/* ---- elements ---- */
static void make_iota(int64_t n, int64_t number, int64_t step, int64_t *to) {
  for (int64_t i = 0; i < n; i++) to[i] = number + i * step;
}

/* Rounding to the dtype may reach hi; the largest of its numbers below takes its place. */
static double below_hi(const cpu_maker *m, double value) {
  cpu_element e;
  double step = fabs(m->hi) * 0x1p-54 + 0x1p-1074;
  ir_element_set_f64(m->dtype, &e, value);
  for (; ir_element_as_f64(m->dtype, &e) >= m->hi && m->lo < m->hi && value > m->lo; step *= 2) {
    value = m->hi - step > m->lo ? m->hi - step : m->lo;
    ir_element_set_f64(m->dtype, &e, value);
  }
  return value;
}

/* With as many bits as the dtype can use. */
static void make_uniform(const cpu_maker *m, int64_t n, int64_t number, int64_t step, double *to) {
  bool is_float = ir_dtype_is_float(m->dtype);
  cpu_uniform u = {.key = random_bits(*m->seed, m->number),
                   .lo = m->lo,
                   .hi = m->hi,
                   .narrow = is_float && m->dtype != IR_F64,
                   .whole = !is_float};
  cpu_vectors()->uniform(&u, n, (uint64_t)number, (uint64_t)step, to);
  for (int64_t i = 0; is_float && i < n; i++)
    if (to[i] >= m->near_hi) to[i] = below_hi(m, to[i]);
}

void cpu_maker_fill(const cpu_maker *m, int64_t n, int64_t number, int64_t step, void *to) {
  if (m->random) make_uniform(m, n, number, step, to);
  else make_iota(n, number, step, to);
}

/* ---- running ---- */
static status run_full(const cpu_kernel *k, char *const *starts, char *scratch) {
  const maker_kernel *m = (const maker_kernel *)k;
  cpu_walk w = cpu_walk_start(&m->loops, m->views, starts);
  size_t size = ir_dtype_size_bytes(m->dtype);
  (void)scratch;
  do
    cpu_fill_strided(size, cpu_run_length(&m->loops), w.at[0], cpu_run_step(&m->loops, 0),
                     m->value.bytes);
  while (cpu_walk_next(&m->loops, &w, 1));
  return STATUS_OK;
}

static void make_run(const maker_kernel *m, char *to, int64_t number, char *scratch) {
  int64_t run = cpu_run_length(&m->loops), step = cpu_run_step(&m->loops, 1);
  for (int64_t done = 0; done < run; done += CPU_BLOCK) {
    int64_t n = run - done < CPU_BLOCK ? run - done : CPU_BLOCK;
    char *at = to + done * m->store.step;
    char *block = cpu_store_target(&m->store, at, scratch);
    cpu_maker_fill(m->maker, n, number + done * step, step, block);
    cpu_store(&m->store, n, at, block, scratch + cpu_transfer_bytes(CPU_BLOCK) / 2);
  }
}

static status run_made(const cpu_kernel *k, char *const *starts, char *scratch) {
  const maker_kernel *m = (const maker_kernel *)k;
  cpu_walk w = {.at = {cpu_view_start(&m->views[0], starts)}};
  do make_run(m, w.at[0], m->first + cpu_walk_offset(&m->loops, &w, 1), scratch);
  while (cpu_walk_step(&m->loops, &w, 1, 1));
  return STATUS_OK;
}

/* ---- preparing ---- */
/* What no number this far below hi can do is round up to it. */
static double near(double hi, ir_dtype t) {
  double relative = t == IR_F64 ? 0x1p-51 : t == IR_F32 ? 0x1p-22 : 0x1p-6;
  return hi - fabs(hi) * relative - (t == IR_F64 ? 0 : 0x1p-20);
}

const cpu_maker *cpu_maker_new(const rt_plan *plan, const rt_task *task, ir_dtype dtype,
                               arena *memory) {
  cpu_maker m = {.dtype = dtype, .random = task->code == IR_OP_UNIFORM};
  if (m.random) {
    m.seed = plan->seed;
    m.number = (uint64_t)rt_task_attr(task, "key")->i;
    m.lo = ir_number_as_f64(rt_task_number(task, "lo"));
    m.hi = ir_number_as_f64(rt_task_number(task, "hi"));
    m.near_hi = near(m.hi, dtype);
  }
  return arena_copy(memory, &m, sizeof m);
}

static void prepare_made(const cpu_call *c, maker_kernel *m) {
  bool random = c->task->code == IR_OP_UNIFORM;
  m->head.run = run_made;
  m->head.scratch_bytes = cpu_transfer_bytes(CPU_BLOCK);
  m->maker = cpu_maker_new(c->plan, c->task, m->dtype, c->memory);
  m->store = cpu_transfer_store(m->dtype, cpu_run_step(&m->loops, 0), random ? IR_F64 : IR_I64);
}

status cpu_prepare_maker(const cpu_call *c, cpu_kernel **result) {
  maker_kernel *m = CPU_KERNEL_NEW(c, maker_kernel, run_full);
  ir_opcode code = c->task->code;
  m->dtype = c->result->dtype;
  m->views[0] = cpu_place_result(c);
  m->first = cpu_place_numbers(c, 0, &m->views[1]);
  bool numbered = code == IR_OP_IOTA || code == IR_OP_UNIFORM;
  cpu_loops_make(&m->loops, CPU_BY_FIRST, c->result->rank, c->result->extents, m->views,
                 numbered ? 2 : 1);
  if (numbered) prepare_made(c, m);
  else if (code == IR_OP_FULL)
    m->value = cpu_element_of(m->dtype, rt_task_number(c->task, "value"));
  else m->value = cpu_element_of(m->dtype, ir_number_int(code == IR_OP_ONES));
  *result = &m->head;
  return STATUS_OK;
}
