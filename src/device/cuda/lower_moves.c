/* Steps that move, make or look up elements. */
#include "device/cuda/lower.h"

/* ---- moves ---- */
static uint32_t lower_from(const lower_step *s, const int *from, const lower_index *at) {
  const rt_shape *x = lower_shape(s, 0);
  lower_index own[IR_MAX_RANK] = {{0}};
  for (uint32_t d = 0; d < s->result->rank; d++)
    if (from[d] != RT_NO_DIM && x->extents[from[d]] != 1) own[from[d]] = lower_moved(s, 0, d, at);
  return lower_operand(s, 0, own);
}

static rt_view view_of(const rt_shape *x) {
  return (rt_view){.dtype = x->dtype, .rank = x->rank, .extents = x->extents};
}

static uint32_t lower_select(const lower_step *s, const lower_index *at) {
  const rt_shape *x = lower_shape(s, 0);
  rt_view view = view_of(x);
  uint32_t dim;
  int64_t index;
  int from[IR_MAX_RANK];
  lower_index own[IR_MAX_RANK] = {{0}};
  if (rt_task_selected(&s->task, &view, &dim, &index) != STATUS_OK) return lower_fail(s->l);
  rt_task_from(&s->task, x->rank, from);
  for (uint32_t d = 0; d < s->result->rank; d++) own[from[d]] = lower_moved(s, 0, d, at);
  own[dim] = (lower_index){.first = index};
  return lower_operand(s, 0, own);
}

static uint32_t lower_slice(const lower_step *s, const lower_index *at) {
  const rt_shape *x = lower_shape(s, 0);
  rt_view view = view_of(x);
  lower_index own[IR_MAX_RANK] = {{0}};
  for (uint32_t d = 0; d < x->rank; d++) {
    own[d].first = rt_task_slice_start(&s->task, &view, d, s->offset[d]);
    lower_index_add(s->l, &own[d], &at[d], rt_task_slice_step(&s->task, d));
  }
  return lower_operand(s, 0, own);
}

/* The row-major number of the position `at` in the whole; along dimensions in `cut` it counts from the window. */
static lower_index number_of(const lower_step *s, const lower_index *at, uint32_t cut) {
  lower_index i = {.first = 0};
  int64_t stride = 1;
  for (uint32_t d = s->result->rank; d-- > 0;) {
    bool counts_here = cut >> d & 1;
    lower_index_add(s->l, &i, &at[d], stride);
    i.first += counts_here ? 0 : s->offset[d] * stride;
    stride *= counts_here ? s->result->extents[d] : s->whole[d];
  }
  return i;
}

static uint32_t lower_reshape(const lower_step *s, const lower_index *at) {
  lower_index own[IR_MAX_RANK] = {{0}};
  lower_unravel(s->l, number_of(s, at, s->step->operands[0].sliced), lower_shape(s, 0), own);
  return s->l->failed ? CG_NO_NODE : lower_operand(s, 0, own);
}

/* ---- parts ---- */
/* Operand k, which begins at begin[d] in the whole: its value. *truth: whether the position is in it; CG_NO_NODE:
 * always. */
static uint32_t lower_part(const lower_step *s, uint32_t k, const int64_t *begin,
                           const lower_index *at, uint32_t *truth) {
  lowering *l = s->l;
  const rt_shape *x = lower_shape(s, k);
  lower_index own[IR_MAX_RANK] = {{0}};
  uint32_t before = l->guard;
  *truth = CG_NO_NODE;
  for (uint32_t d = 0; d < x->rank; d++) {
    bool cut = s->step->operands[k].sliced >> d & 1;
    own[d] = at[d];
    own[d].first += cut ? 0 : s->offset[d] - begin[d];
    int64_t origin = cut ? 0 : begin[d] - s->offset[d]; /* relative to the window */
    bool covers = origin <= 0 && origin + x->extents[d] >= s->result->extents[d];
    if (covers) continue;
    *truth = lower_both(l, *truth, lower_range(l, &own[d], 0, x->extents[d]));
  }
  l->guard = lower_both(l, before, *truth);
  uint32_t node = lower_cast(l, lower_operand(s, k, own), s->result->dtype);
  l->guard = before;
  return l->failed ? CG_NO_NODE : node;
}

static bool holds_nothing(const rt_shape *x) {
  for (uint32_t d = 0; d < x->rank; d++)
    if (x->extents[d] == 0) return true;
  return false;
}

static uint32_t lower_pad(const lower_step *s, const lower_index *at) {
  const rt_attr *widths = rt_task_attr(&s->task, "widths");
  int64_t begin[IR_MAX_RANK] = {0};
  uint32_t truth;
  uint32_t value = lower_constant(s->l, rt_task_number(&s->task, "value"), s->result->dtype);
  if (holds_nothing(lower_shape(s, 0))) return value;
  for (uint32_t d = 0; d < s->result->rank; d++) begin[d] = widths->list[2 * d];
  uint32_t x = lower_part(s, 0, begin, at, &truth);
  return truth == CG_NO_NODE ? x : lower_choose(s->l, truth, x, value);
}

/* The last part that is not empty needs no condition. */
static uint32_t lower_cat(const lower_step *s, const lower_index *at) {
  uint32_t dim = rt_task_dim(&s->task, "dim", s->result->rank), truth, node = CG_NO_NODE;
  int64_t begin[IR_MAX_RANK] = {0};
  for (uint32_t k = 0; k < s->step->n_operands; k++) begin[dim] += lower_shape(s, k)->extents[dim];
  for (uint32_t k = s->step->n_operands; k-- > 0;) {
    const rt_shape *x = lower_shape(s, k);
    begin[dim] -= x->extents[dim];
    if (x->extents[dim] == 0) continue;
    uint32_t part = lower_part(s, k, begin, at, &truth);
    bool only = node == CG_NO_NODE || truth == CG_NO_NODE;
    node = only ? part : lower_choose(s->l, truth, part, node);
    if (s->l->failed) return CG_NO_NODE;
  }
  return node == CG_NO_NODE ? lower_fail(s->l) : node;
}

static uint32_t lower_moved_value(const lower_step *s, const lower_index *at) {
  const rt_shape *x = lower_shape(s, 0);
  int from[IR_MAX_RANK];
  if (s->step->operands[0].kind == RT_VALUE_NUMBER)
    return lower_constant(s->l, *s->step->operands[0].number, s->result->dtype);
  if (s->info->family == IR_FAMILY_SELECT) return lower_select(s, at);
  if (s->info->family == IR_FAMILY_SLICE) return lower_slice(s, at);
  if (s->info->family == IR_FAMILY_RESHAPE) return lower_reshape(s, at);
  if (rt_task_moves_dims(&s->task)) rt_task_from(&s->task, x->rank, from);
  else
    for (uint32_t d = 0; d < s->result->rank; d++) {
      bool has = d + x->rank >= s->result->rank;
      from[d] = has ? (int)(d + x->rank - s->result->rank) : RT_NO_DIM;
    }
  return lower_from(s, from, at);
}

uint32_t lower_moves(const lower_step *s, const lower_index *at) {
  if (s->info->family == IR_FAMILY_PAD) return lower_pad(s, at);
  if (s->info->family == IR_FAMILY_CAT) return lower_cat(s, at);
  return lower_cast(s->l, lower_moved_value(s, at), s->result->dtype);
}

/* ---- makers ---- */
static uint32_t lower_uniform(const lower_step *s, uint32_t number) {
  lowering *l = s->l;
  ir_number key = ir_number_int(rt_task_attr(&s->task, "key")->i);
  double lo = ir_number_as_f64(rt_task_number(&s->task, "lo"));
  double hi = ir_number_as_f64(rt_task_number(&s->task, "hi"));
  cg_step step = {.code = IR_OP_UNIFORM, .compute = IR_F64, .result = s->result->dtype};
  step.quick = cuda_is_unit(lo, hi, step.result);
  uint32_t operands[] = {number, lower_key(l, key), lower_number(l, ir_number_float(lo)),
                         lower_number(l, ir_number_float(hi))};
  return lower_step_node(l, &step, 4, operands);
}

uint32_t lower_makes(const lower_step *s, const lower_index *at) {
  lowering *l = s->l;
  ir_opcode code = s->step->code;
  if (code == IR_OP_FULL)
    return lower_constant(l, rt_task_number(&s->task, "value"), s->result->dtype);
  if (code != IR_OP_IOTA && code != IR_OP_UNIFORM)
    return lower_constant(l, ir_number_int(code == IR_OP_ONES), s->result->dtype);
  lower_index i = number_of(s, at, 0);
  uint32_t number = lower_at(l, &i);
  return code == IR_OP_IOTA ? lower_cast(l, number, s->result->dtype) : lower_uniform(s, number);
}

/* ---- indexes from memory ---- */
/* x at the result's position, but along `dim` at the position `index`. */
static uint32_t lower_found(const lower_step *s, uint32_t dim, uint32_t index,
                            const lower_index *at) {
  lowering *l = s->l;
  const rt_shape *x = lower_shape(s, 0);
  lower_index own[IR_MAX_RANK] = {{0}};
  if (index == CG_NO_NODE) return lower_fail(l);
  uint32_t inside = lower_inside(l, index, s->info->name, dim, x->extents[dim]);
  if (l->failed) return CG_NO_NODE;
  for (uint32_t d = 0; d < x->rank; d++) own[d] = lower_moved(s, 0, d, at);
  own[dim] = lower_index_of(inside);
  return lower_cast(l, lower_operand(s, 0, own), s->result->dtype);
}

static uint32_t lower_hot(const lower_step *s, const lower_index *at) {
  lowering *l = s->l;
  uint32_t last = s->result->rank - 1;
  const rt_shape *x = lower_shape(s, 0);
  lower_index own[IR_MAX_RANK] = {{0}}, place = at[last];
  for (uint32_t d = 0; d < x->rank; d++) own[d] = lower_moved(s, 0, d, at);
  uint32_t index = lower_operand(s, 0, own);
  if (l->failed) return CG_NO_NODE;
  index = lower_inside(l, index, s->info->name, last, s->whole[last]);
  place.first += s->offset[last];
  cg_step step = {.code = IR_OP_EQ, .compute = IR_I64, .result = s->result->dtype};
  uint32_t operands[] = {index, lower_at(l, &place)};
  return l->failed ? CG_NO_NODE : lower_step_node(l, &step, 2, operands);
}

uint32_t lower_indexed(const lower_step *s, const lower_index *at) {
  lower_index own[IR_MAX_RANK] = {{0}};
  if (s->info->family == IR_FAMILY_ONE_HOT) return lower_hot(s, at);
  uint32_t dim = rt_task_dim(&s->task, "dim", lower_shape(s, 0)->rank);
  if (s->info->family == IR_FAMILY_INDEX_SELECT) own[0] = lower_moved(s, 1, dim, at);
  else
    for (uint32_t d = 0; d < s->result->rank; d++) own[d] = lower_moved(s, 1, d, at);
  return lower_found(s, dim, lower_operand(s, 1, own), at);
}
