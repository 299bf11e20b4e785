/* From a task to a kernel: operands, attributes, windows, and the table of families. */
#include "device/cpu/kernel_internal.h"
#include "device/cpu/tile/body.h"

/* ---- operands ---- */
rt_view cpu_operand(const cpu_call *c, uint32_t k) {
  rt_view v = rt_task_operand(c->plan, c->task, k);
  if (c->task->operands[k].kind == RT_OPERAND_NUMBER) return v;
  v.buffer = k + 1;
  v.offset_bytes = 0;
  return v;
}

/* ---- views ---- */
cpu_element cpu_element_of(ir_dtype t, ir_number n) {
  cpu_element e = {.i = 0};
  if (n.is_float) ir_element_set_f64(t, e.bytes, n.f);
  else ir_element_set_i64(t, e.bytes, n.i);
  return e;
}

cpu_view cpu_place_result(const cpu_call *c) {
  const rt_view *r = c->result;
  cpu_view v = {.dtype = r->dtype};
  for (uint32_t d = 0; d < r->rank; d++) v.strides[d] = r->strides[d];
  return v;
}

const rt_view *cpu_result(const cpu_call *c, uint32_t k) {
  return &c->plan->views[rt_task_result(c->task, k)];
}

cpu_view cpu_place_more(const cpu_call *c, uint32_t k) {
  const rt_view *r = cpu_result(c, k);
  cpu_view v = {.start = c->task->n_operands + k, .dtype = r->dtype};
  for (uint32_t d = 0; d < r->rank; d++) v.strides[d] = r->strides[d];
  return v;
}

cpu_view cpu_place_start(const cpu_call *c, uint32_t k) {
  rt_view x = cpu_operand(c, k);
  cpu_view v = {.start = x.buffer, .dtype = x.dtype};
  const rt_operand *o = &c->task->operands[k];
  if (o->kind == RT_OPERAND_NUMBER) {
    cpu_element e = cpu_element_of(x.dtype, *o->number);
    v.constant = arena_copy(c->memory, &e, sizeof e);
  }
  return v;
}

cpu_view cpu_place(const cpu_call *c, uint32_t k, const int *from) {
  cpu_view v = cpu_place_start(c, k);
  cpu_view_advance(&v, rt_task_place(c->plan, c->task, k, from, v.strides));
  return v;
}

void cpu_place_lines(const cpu_call *c, uint32_t dim, cpu_view views[2],
                     int64_t extents[IR_MAX_RANK]) {
  int from[IR_MAX_RANK];
  uint32_t rank = cpu_operand(c, 0).rank;
  rt_align(rank, rank, from);
  from[dim] = RT_NO_DIM;
  views[0] = cpu_place_result(c);
  views[1] = cpu_place(c, 0, from);
  for (uint32_t d = 0; d < rank; d++) extents[d] = d == dim ? 1 : c->result->extents[d];
}

cpu_view cpu_place_aligned(const cpu_call *c, uint32_t k) {
  int from[IR_MAX_RANK];
  rt_align(cpu_operand(c, k).rank, c->result->rank, from);
  return cpu_place(c, k, from);
}

int64_t cpu_place_numbers(const cpu_call *c, uint32_t cut, cpu_view *numbers) {
  *numbers = (cpu_view){.dtype = IR_U8};
  return rt_task_place_numbers(c->plan, c->task, cut, numbers->strides);
}

/* ---- kernels ---- */
void *cpu_kernel_new(const cpu_call *c, size_t size_bytes,
                     status (*run)(const cpu_kernel *, char *const *, char *)) {
  cpu_kernel *k = arena_alloc(c->memory, size_bytes);
  k->run = run;
  k->name = c->info->name;
  return k;
}

static status run_nothing(const cpu_kernel *k, char *const *starts, char *scratch) {
  (void)k, (void)starts, (void)scratch;
  return STATUS_OK;
}

static cpu_prepare_fn *const families[] = {
#define CPU(kernel, tile) cpu_prepare_##kernel
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, cpu, ...) [IR_FAMILY_##id] = cpu,
#include "ir/families.def"
};

cpu_call cpu_call_of(const rt_plan *plan, const rt_task *task, arena *memory) {
  cpu_call c = {.plan = plan,
                .task = task,
                .info = ir_op_info_of(task->code),
                .memory = memory,
                .result = &plan->views[task->result]};
  rt_task_window(plan, task, c.offset, c.whole);
  return c;
}

/* One operation: as a tile program where that is as good or better, else by the kernel of its family. */
static bool is_for_tiles(ir_family f) {
  return f == IR_FAMILY_POINTWISE || f == IR_FAMILY_REDUCE || f == IR_FAMILY_MOMENT ||
         f == IR_FAMILY_SOFTMAX || f == IR_FAMILY_NORM || f == IR_FAMILY_SET ||
         f == IR_FAMILY_CAST || f == IR_FAMILY_BROADCAST || f == IR_FAMILY_SQUEEZE ||
         f == IR_FAMILY_EXPAND || f == IR_FAMILY_PERMUTE || f == IR_FAMILY_SLICE ||
         f == IR_FAMILY_SELECT || f == IR_FAMILY_MAKER;
}

static status prepare_one(const cpu_call *c, cpu_kernel **result) {
  *result = NULL;
  if (is_for_tiles(c->info->family)) TRY(cpu_prepare_single(c, result));
  if (!*result) TRY(families[c->info->family](c, result));
  return STATUS_OK;
}

status cpu_kernel_prepare(const rt_plan *plan, const rt_task *task, arena *memory,
                          const cpu_kernel **result) {
  cpu_kernel *k;
  if (task->body) {
    TRY(cpu_prepare_body(plan, task, memory, &k));
    *result = k;
    return STATUS_OK;
  }
  rt_plan made;
  rt_task grouped;
  if (rt_task_has_groups(plan, task)) {
    TRY(rt_task_group_heads(plan, task, memory, &made, &grouped));
    plan = &made;
    task = &grouped;
  }
  cpu_call c = cpu_call_of(plan, task, memory);
  if (rt_task_is_empty(plan, task)) k = cpu_kernel_new(&c, sizeof *k, run_nothing);
  else TRY(prepare_one(&c, &k));
  *result = k;
  return STATUS_OK;
}

/* ---- running ---- */
static size_t own_bytes(const cpu_kernel *k) {
  return (k->scratch_bytes + CPU_SCRATCH_ALIGN - 1) & ~(size_t)(CPU_SCRATCH_ALIGN - 1);
}

size_t cpu_kernel_scratch_bytes(const cpu_kernel *k) {
  return k->shared_bytes ? own_bytes(k) + k->shared_bytes : k->scratch_bytes;
}

char *cpu_kernel_shared(const cpu_kernel *k, char *scratch) {
  return k->shared_bytes ? scratch + own_bytes(k) : NULL;
}

uint32_t cpu_kernel_parts(const cpu_kernel *k) { return k->n_parts; }

status cpu_kernel_run_part(const cpu_kernel *k, uint32_t part, char *const *starts, void *scratch,
                           void *shared) {
  return k->run_part(k, part, starts, scratch, shared);
}

status cpu_kernel_finish(const cpu_kernel *k, char *const *starts, void *scratch, void *shared) {
  return k->finish ? k->finish(k, starts, scratch, shared) : STATUS_OK;
}

uint32_t cpu_kernel_stages(const cpu_kernel *k) { return k->n_stages ? k->n_stages : 1; }

cpu_stage cpu_kernel_stage(const cpu_kernel *k, uint32_t i, char *const *starts, char *scratch) {
  return k->n_stages ? k->stage(k, i, starts, scratch) : (cpu_stage){k, starts, 0};
}

static status run_stages(const cpu_kernel *k, char *const *starts, char *scratch) {
  for (uint32_t i = 0; i < k->n_stages; i++) {
    cpu_stage s = k->stage(k, i, starts, scratch);
    TRY(cpu_kernel_run(s.kernel, s.starts, scratch + s.scratch_at));
  }
  return STATUS_OK;
}

status cpu_kernel_run(const cpu_kernel *k, char *const *starts, void *scratch) {
  if (k->n_stages > 0) return run_stages(k, starts, scratch);
  if (k->n_parts == 0) return k->run(k, starts, scratch);
  char *shared = cpu_kernel_shared(k, scratch);
  for (uint32_t part = 0; part < k->n_parts; part++)
    TRY(k->run_part(k, part, starts, scratch, shared));
  return cpu_kernel_finish(k, starts, scratch, shared);
}
