/* Pointwise operations, makers, and operations with an index tensor. */
#include "device/cuda/kernel_place.h"

/* ---- pointwise ---- */
status cuda_prepare_map(const cuda_call *c) {
  const rt_task *task = c->task;
  cg_map m = cuda_map(c, c->info->name);
  cg_step *step = &m.steps[m.n_steps++];
  check(task->n_operands < CG_MAX_OPERANDS);
  *step = (cg_step){.code = task->code,
                    .compute = task->compute,
                    .result = c->result->dtype,
                    .mode = cuda_attr_mode(c),
                    .n_operands = task->n_operands};
  for (uint32_t i = 0; i < task->n_operands; i++) {
    m.sources[m.n_sources++] = cuda_source(c, i);
    step->operands[i] = i;
  }
  cg_write_map(&c->kernel->code, &m);
  return STATUS_OK;
}

/* ---- full zeros ones iota uniform ---- */
static cg_source constant(ir_number number) {
  return (cg_source){.kind = CG_CONSTANT, .number = number};
}

static void make_uniform(const cuda_call *c, cg_map *m) {
  ir_number number = ir_number_int(rt_task_attr(c->task, "key")->i);
  m->sources[1] = (cg_source){.kind = CG_KEY, .number = number};
  m->sources[2] = constant(ir_number_float(ir_number_as_f64(rt_task_number(c->task, "lo"))));
  m->sources[3] = constant(ir_number_float(ir_number_as_f64(rt_task_number(c->task, "hi"))));
  m->n_sources = 4;
  m->n_steps = 1;
  m->steps[0] = (cg_step){
      .code = IR_OP_UNIFORM,
      .compute = IR_F64,
      .result = c->result->dtype,
      .quick = cuda_is_unit(m->sources[2].number.f, m->sources[3].number.f, c->result->dtype),
      .n_operands = 4,
      .operands = {0, 1, 2, 3}};
}

status cuda_prepare_maker(const cuda_call *c) {
  ir_opcode code = c->task->code;
  bool numbered = code == IR_OP_IOTA || code == IR_OP_UNIFORM;
  cg_map m = cuda_map(c, numbered ? c->info->name : "full");
  m.n_sources = 1;
  if (numbered) m.sources[0] = cuda_positions(c, 0);
  else if (code == IR_OP_FULL) m.sources[0] = constant(rt_task_number(c->task, "value"));
  else m.sources[0] = constant(ir_number_int(code == IR_OP_ONES));
  if (code == IR_OP_UNIFORM) make_uniform(c, &m);
  cg_write_map(&c->kernel->code, &m);
  return STATUS_OK;
}

/* ---- gather index_select ---- */
/* result[p] = x[p, with p[dim] = an index]; `index` is placed in the result's space. */
static void write_indexed(const cuda_call *c, uint32_t dim, const cg_view *index) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  int from[IR_MAX_RANK];
  cg_map m = cuda_map(c, "gather");
  rt_align(x.rank, x.rank, from);
  from[dim] = RT_NO_DIM;
  cuda_set_indexed(c, dim, x.extents[dim]);
  m.n_sources = 2;
  m.sources[0] = (cg_source){.kind = CG_VIEW, .view = *index};
  m.sources[1] = (cg_source){.kind = CG_INDEXED,
                             .view = cuda_place(c, 0, from),
                             .index = 0,
                             .step = x.strides[dim],
                             .n = x.extents[dim]};
  cg_write_map(&c->kernel->code, &m);
}

status cuda_prepare_gather(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  int from[IR_MAX_RANK];
  rt_align(x.rank, x.rank, from);
  cg_view index = cuda_place(c, 1, from);
  write_indexed(c, rt_task_dim(c->task, "dim", x.rank), &index);
  return STATUS_OK;
}

status cuda_prepare_index_select(const cuda_call *c) {
  uint32_t dim = rt_task_dim(c->task, "dim", rt_task_operand(c->plan, c->task, 0).rank);
  int from[IR_MAX_RANK];
  for (int d = 0; d < IR_MAX_RANK; d++) from[d] = RT_NO_DIM;
  from[dim] = 0;
  cg_view index = cuda_place(c, 1, from);
  write_indexed(c, dim, &index);
  return STATUS_OK;
}

/* ---- scatter update ---- */
/* Operand k from index position 0 along `dim`, and from the window's start along the other dimensions;
 * *step: its stride along a line. */
static cg_view place_lines(const cuda_call *c, uint32_t k, uint32_t dim, int64_t *step) {
  rt_view x = rt_task_operand(c->plan, c->task, k);
  cg_view v = cuda_place_start(c, k);
  uint32_t n = 0;
  *step = x.strides[dim];
  for (uint32_t d = 0; d < x.rank; d++) {
    if (d == dim) continue;
    v.strides[n++] = x.strides[d];
    if (!rt_task_sliced(c->task, k, d)) cuda_advance(&v, c->offset[d] * x.strides[d]);
  }
  return v;
}

/* Finds the lines of the index that are in the window; false: there are none. Along other axes than `dim`
 * an index may be shorter than x. */
static bool line_extents(const cuda_call *c, uint32_t dim, cg_scatter *s) {
  rt_view index = rt_task_operand(c->plan, c->task, 1);
  s->length = index.extents[dim];
  for (uint32_t d = 0; d < index.rank; d++) {
    if (d == dim) continue;
    int64_t extent = index.extents[d] - (rt_task_sliced(c->task, 1, d) ? 0 : c->offset[d]);
    if (extent > c->result->extents[d]) extent = c->result->extents[d];
    if (extent <= 0) return false;
    s->extents[s->rank++] = extent;
  }
  return s->length > 0;
}

/* result = x; then result[p, with p[dim] = index[p]] = src[p]. */
status cuda_prepare_scatter(const cuda_call *c) {
  uint32_t rank = c->result->rank, dim = rt_task_dim(c->task, "dim", rank), n = 0;
  cg_map copy = cuda_map(c, "copy");
  cg_scatter s = {.n = c->whole[dim], .low = c->offset[dim]};
  copy.n_sources = 1;
  copy.sources[0] = cuda_source(c, 0);
  cg_write_map(&c->kernel->code, &copy);
  cuda_set_indexed(c, dim, c->whole[dim]);
  if (!line_extents(c, dim, &s)) return STATUS_OK;
  s.end = s.low + c->result->extents[dim];
  s.index = place_lines(c, 1, dim, &s.index_step);
  s.source = place_lines(c, 2, dim, &s.source_step);
  s.result = cuda_place_result(c);
  s.result_step = s.result.strides[dim];
  for (uint32_t d = 0; d < rank; d++)
    if (d != dim) s.result.strides[n++] = c->result->strides[d];
  s.adds = rt_task_int(c->task, "reduce") != 0;
  cg_write_scatter(&c->kernel->code, &s);
  return STATUS_OK;
}

/* Finds the lines of src that may be in the window, whatever position they are written to. */
static bool update_extents(const cuda_call *c, uint32_t dim, cg_scatter *s) {
  rt_view src = rt_task_operand(c->plan, c->task, 1);
  s->length = src.extents[dim];
  for (uint32_t d = 0; d < src.rank; d++)
    if (d != dim) s->extents[s->rank++] = c->result->extents[d];
  return s->length > 0;
}

/* Copies x to the result. The launch is not needed if both are the same memory, in the same order. */
static void copy_unless_same(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  cg_map copy = cuda_map(c, "copy");
  copy.n_sources = 1;
  copy.sources[0] = cuda_source(c, 0);
  uint32_t first = c->kernel->code.n_launches;
  cg_write_map(&c->kernel->code, &copy);
  bool same =
      x.rank == c->result->rank && copy.sources[0].view.offset_bytes == copy.result.offset_bytes;
  for (uint32_t d = 0; same && d < x.rank; d++)
    same = c->result->extents[d] == 1 || copy.sources[0].view.strides[d] == copy.result.strides[d];
  for (uint32_t i = first; i < c->kernel->code.n_launches; i++)
    c->kernel->code.launches[i].moves = same && c->kernel->code.launches[i].n_pointers == 2;
}

/* result = x; then result[p, with p[dim] = at + p[dim]] = src[p]. */
status cuda_prepare_update(const cuda_call *c) {
  uint32_t rank = c->result->rank, dim = rt_task_dim(c->task, "dim", rank), n = 0;
  cg_scatter s = {.n = c->whole[dim], .low = c->offset[dim], .runs = true};
  copy_unless_same(c);
  bool any = update_extents(c, dim, &s);
  s.positions = s.n - s.length + 1;
  cuda_set_indexed(c, dim, s.positions);
  if (!any) return STATUS_OK;
  s.end = s.low + c->result->extents[dim];
  s.index = cuda_place_start(c, 2);
  s.source = place_lines(c, 1, dim, &s.source_step);
  s.result = cuda_place_result(c);
  s.result_step = s.result.strides[dim];
  for (uint32_t d = 0; d < rank; d++)
    if (d != dim) s.result.strides[n++] = c->result->strides[d];
  cg_write_scatter(&c->kernel->code, &s);
  return STATUS_OK;
}
