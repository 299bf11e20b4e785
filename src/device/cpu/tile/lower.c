/* From the targets of a tile program down to memory: nodes and where they are needed. */
#include <string.h>

#include "device/cpu/tile/lower.h"

/* Values that are nodes already, by where they are needed. */
struct tile_known {
  rt_value value;
  tile_map where;
  bool guarded;
  tile_box box;
  uint32_t node;
};

/* ---- steps ---- */
rt_task tile_step_task(arena *memory, const rt_step *s) {
  rt_operand *operands = ARENA_ARRAY(memory, s->n_operands + 1, rt_operand);
  for (uint32_t k = 0; k < s->n_operands; k++) {
    rt_operand_kind kind = s->operands[k].kind == RT_VALUE_NONE     ? RT_OPERAND_NONE
                           : s->operands[k].kind == RT_VALUE_NUMBER ? RT_OPERAND_NUMBER
                                                                    : RT_OPERAND_VIEW;
    operands[k] = (rt_operand){
        .kind = kind, .sliced = s->operands[k].sliced, .number = s->operands[k].number};
  }
  return (rt_task){.code = s->code,
                   .n_operands = s->n_operands,
                   .compute = s->compute,
                   .operands = operands,
                   .attrs = s->attrs,
                   .offset = s->offset,
                   .whole = s->whole};
}

static bool fits(const rt_shape *s) {
  if (s->rank > TILE_DIMS) return false;
  for (uint32_t d = 0; d < s->rank; d++)
    if (s->extents[d] == 0) return false;
  return true;
}

static bool shapes_fit(const rt_body *body, const rt_step *s) {
  if (s->n_results != 1 || !fits(&s->results[0])) return false;
  for (uint32_t k = 0; k < s->n_operands; k++) {
    rt_value_kind kind = s->operands[k].kind;
    if (kind == RT_VALUE_NONE || kind == RT_VALUE_NUMBER) continue;
    if (!fits(rt_value_shape(body, &s->operands[k]))) return false;
  }
  return true;
}

/* ---- which steps can be tiles, by the names of families.def ---- */
typedef bool takes_fn(const rt_step *s);

static bool takes_never(const rt_step *s) {
  (void)s;
  return false;
}

static bool takes_always(const rt_step *s) {
  (void)s;
  return true;
}

static bool takes_tensor(const rt_step *s) { return s->operands[0].kind != RT_VALUE_NUMBER; }

static bool takes_pointwise(const rt_step *s) { return s->n_operands <= 3; }

static bool takes_reshape(const rt_step *s) { return s->offset == NULL && takes_tensor(s); }

static bool takes_cat(const rt_step *s) {
  for (uint32_t k = 0; k < s->n_operands; k++)
    if (s->operands[k].kind == RT_VALUE_NUMBER) return false;
  return s->n_operands <= 8;
}

static takes_fn *const takes[] = {
#define CPU(kernel, tile) takes_##tile
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, cpu, ...) [IR_FAMILY_##id] = cpu,
#include "ir/families.def"
};

bool tile_knows(const rt_body *body, const rt_step *s) {
  return shapes_fit(body, s) && takes[ir_op_info_of(s->code)->family](s);
}

/* ---- nodes ---- */
static uint32_t add_node(tile_lowering *l, const tile_node *n) {
  if (l->n_nodes == TILE_NODES) return TILE_NONE;
  l->nodes[l->n_nodes] = *n;
  return l->n_nodes++;
}

/* A node of others: it depends on what they depend on. */
static uint32_t add_of(tile_lowering *l, tile_node n) {
  for (uint32_t i = 0; i < n.n_x; i++) {
    if (n.x[i] == TILE_NONE) continue;
    n.axes |= l->nodes[n.x[i]].axes;
    n.after_fold = n.after_fold || l->nodes[n.x[i]].after_fold;
  }
  return add_node(l, &n);
}

/* The value of node x as another dtype. Slots hold f16 and bf16 as f32. */
static uint32_t cast_to(tile_lowering *l, uint32_t x, ir_dtype t) {
  if (x == TILE_NONE || l->nodes[x].dtype == t) return x;
  for (uint32_t i = 0; i < l->n_nodes; i++)
    if (l->nodes[i].kind == TILE_CAST && l->nodes[i].x[0] == x && l->nodes[i].dtype == t) return i;
  return add_of(l, (tile_node){.kind = TILE_CAST,
                               .dtype = t,
                               .n_x = 1,
                               .x = {x},
                               .bounded = l->nodes[x].bounded,
                               .need = l->nodes[x].need});
}

static uint32_t add_number(tile_lowering *l, ir_dtype t, cpu_element e) {
  return add_of(l, (tile_node){.kind = TILE_NUMBER, .dtype = t, .value = e});
}

static bool is_whole(const tile_lowering *l, const tile_box *b, uint32_t axis) {
  return b->lo[axis] <= 0 && b->hi[axis] >= l->extents[axis];
}

static uint32_t add_load(tile_lowering *l, const rt_shape *shape, const tile_memory *from,
                         const tile_map *m, const tile_box *box) {
  tile_node n = {.kind = TILE_LOAD, .dtype = shape->dtype, .place = from->place, .box = *box};
  for (uint32_t e = 0; e < shape->rank; e++) {
    n.first += m->offset[e] * from->strides[e];
    for (uint32_t a = 0; a < l->n_axes; a++) n.strides[a] += m->coef[e][a] * from->strides[e];
  }
  for (uint32_t a = 0; a < l->n_axes; a++) {
    if (n.strides[a] != 0) n.axes |= 1U << a;
    if (n.strides[a] == 0) n.box.lo[a] = 0, n.box.hi[a] = l->extents[a];
    if (!is_whole(l, &n.box, a)) n.guarded = true;
  }
  for (uint32_t a = 0; n.guarded && a < l->n_axes; a++) n.axes |= 1U << a;
  return add_node(l, &n);
}

/* ---- maps ---- */
/* The map of an operand whose dimension from[d] is dimension d of the result. */
tile_map tile_map_through(const tile_lowering *l, const rt_step *s, uint32_t k, const int *from,
                          const tile_map *m) {
  const rt_shape *x = rt_value_shape(l->body, &s->operands[k]);
  tile_map out = {.offset = {0}};
  for (uint32_t d = 0; d < s->results[0].rank; d++) {
    if (from[d] == RT_NO_DIM || x->extents[from[d]] == 1) continue;
    int64_t first = s->offset && !(s->operands[k].sliced >> d & 1) ? s->offset[d] : 0;
    out.offset[from[d]] = m->offset[d] + first;
    memcpy(out.coef[from[d]], m->coef[d], sizeof out.coef[0]);
  }
  return out;
}

/* Dimension from[d] of operand k is dimension d of the result, of operations that are like that. */
void tile_dims_of(const tile_lowering *l, const rt_step *s, uint32_t k, int from[IR_MAX_RANK]) {
  ir_family family = ir_op_info_of(s->code)->family;
  uint32_t rank = s->results[0].rank, n = rt_value_shape(l->body, &s->operands[k])->rank;
  for (uint32_t d = 0; d < IR_MAX_RANK; d++) from[d] = RT_NO_DIM;
  if (family == IR_FAMILY_NORM && k > 0) {
    from[rank - 1] = 0;
  } else if (family == IR_FAMILY_REDUCE || family == IR_FAMILY_MOMENT) {
    rt_task t = tile_step_task(l->work, s);
    bool reduced[IR_MAX_RANK], keepdim = rt_task_int(&t, "keepdim") != 0;
    uint32_t next = 0;
    rt_task_dims(&t, "dims", n, reduced);
    for (uint32_t e = 0; e < n; e++) {
      if (!reduced[e]) from[next++] = (int)e;
      else if (keepdim) next++;
    }
  } else if (family == IR_FAMILY_BROADCAST || family == IR_FAMILY_SQUEEZE ||
             family == IR_FAMILY_PERMUTE || family == IR_FAMILY_SELECT) {
    rt_task t = tile_step_task(l->work, s);
    rt_task_from(&t, n, from);
  } else {
    for (uint32_t d = 0; d < rank; d++)
      if (d + n >= rank) from[d] = (int)(d + n - rank);
  }
}

static uint32_t lower_value(tile_lowering *l, const rt_value *v, const tile_map *m,
                            const tile_box *box);

static uint32_t lower_through(tile_lowering *l, const rt_step *s, uint32_t k, const tile_map *m,
                              const tile_box *box) {
  int from[IR_MAX_RANK];
  if (s->operands[k].kind == RT_VALUE_NUMBER) return lower_value(l, &s->operands[k], m, box);
  tile_dims_of(l, s, k, from);
  tile_map where = tile_map_through(l, s, k, from, m);
  return lower_value(l, &s->operands[k], &where, box);
}

/* ---- families ---- */
static uint32_t lower_pointwise(tile_lowering *l, const rt_step *s, const tile_map *m,
                                const tile_box *box) {
  bool truth = ir_op_info_of(s->code)->rule == IR_RESULT_TRUTH;
  tile_node n = {.kind = TILE_MAP,
                 .dtype = truth ? IR_BOOL : s->compute,
                 .n_x = s->n_operands,
                 .step = s,
                 .code = s->code};
  for (uint32_t k = 0; k < s->n_operands; k++) {
    n.x[k] = cast_to(l, lower_through(l, s, k, m, box), s->compute);
    if (n.x[k] == TILE_NONE) return TILE_NONE;
  }
  return cast_to(l, add_of(l, n), s->results[0].dtype);
}

static uint32_t lower_select(tile_lowering *l, const rt_step *s, const tile_map *m,
                             const tile_box *box) {
  const rt_shape *x = rt_value_shape(l->body, &s->operands[0]);
  rt_task t = tile_step_task(l->work, s);
  rt_view v = {.rank = x->rank, .extents = x->extents};
  uint32_t dim;
  int64_t index;
  int from[IR_MAX_RANK];
  if (rt_task_selected(&t, &v, &dim, &index) != STATUS_OK) {
    status_clear(); /* its kernel says it again */
    return TILE_NONE;
  }
  tile_dims_of(l, s, 0, from);
  tile_map where = tile_map_through(l, s, 0, from, m);
  where.offset[dim] = index;
  return lower_value(l, &s->operands[0], &where, box);
}

static uint32_t lower_slice(tile_lowering *l, const rt_step *s, const tile_map *m,
                            const tile_box *box) {
  const rt_shape *x = rt_value_shape(l->body, &s->operands[0]);
  rt_task t = tile_step_task(l->work, s);
  rt_view v = {.rank = x->rank, .extents = x->extents};
  tile_map where = {.offset = {0}};
  for (uint32_t d = 0; d < x->rank; d++) {
    int64_t step = rt_task_slice_step(&t, d);
    where.offset[d] =
        rt_task_slice_start(&t, &v, d, s->offset ? s->offset[d] : 0) + m->offset[d] * step;
    for (uint32_t a = 0; a < l->n_axes; a++) where.coef[d][a] = m->coef[d][a] * step;
  }
  return lower_value(l, &s->operands[0], &where, box);
}

static int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b > 0 && b > 0); }

/* Where position e of the map is at least 0 and below n, as far as axes say; false: they do not. */
static bool narrow(const tile_lowering *l, const tile_map *m, uint32_t e, int64_t n,
                   tile_box *box) {
  uint32_t axis = TILE_NONE;
  for (uint32_t a = 0; a < l->n_axes; a++) {
    if (m->coef[e][a] == 0) continue;
    if (axis != TILE_NONE || m->coef[e][a] < 0) return false;
    axis = a;
  }
  if (axis == TILE_NONE) return true;
  int64_t lo = divide_up(-m->offset[e], m->coef[e][axis]);
  int64_t hi = divide_up(n - m->offset[e], m->coef[e][axis]);
  if (lo > box->lo[axis]) box->lo[axis] = lo;
  if (hi < box->hi[axis]) box->hi[axis] = hi;
  if (box->hi[axis] < box->lo[axis]) box->hi[axis] = box->lo[axis];
  return true;
}

/* Is position e of the map the same everywhere, and not one of n? */
static bool is_outside(const tile_lowering *l, const tile_map *m, uint32_t e, int64_t n) {
  for (uint32_t a = 0; a < l->n_axes; a++)
    if (m->coef[e][a] != 0) return false;
  return m->offset[e] < 0 || m->offset[e] >= n;
}

/* Operand k of pad or cat, which covers the result's positions from begin[d] on; `outside` elsewhere. */
static uint32_t lower_part(tile_lowering *l, const rt_step *s, uint32_t k, const int64_t *begin,
                           const tile_map *m, const tile_box *box, uint32_t outside) {
  const rt_shape *x = rt_value_shape(l->body, &s->operands[k]);
  tile_map where = *m;
  tile_box own = *box;
  for (uint32_t d = 0; d < x->rank; d++) {
    bool cut = s->operands[k].sliced >> d & 1;
    where.offset[d] -= cut ? 0 : begin[d] - (s->offset ? s->offset[d] : 0);
    if (is_outside(l, &where, d, x->extents[d])) return outside;
    if (!narrow(l, &where, d, x->extents[d], &own)) return TILE_NONE;
  }
  uint32_t inside = cast_to(l, lower_value(l, &s->operands[k], &where, &own), s->results[0].dtype);
  if (inside == TILE_NONE || outside == TILE_NONE) return TILE_NONE;
  tile_node n = {.kind = TILE_BLEND,
                 .dtype = s->results[0].dtype,
                 .n_x = 2,
                 .x = {inside, outside},
                 .box = own};
  for (uint32_t a = 0; a < l->n_axes; a++)
    if (!is_whole(l, &own, a)) n.axes |= 1U << a;
  return n.axes == 0 ? inside : add_of(l, n);
}

static uint32_t lower_pad(tile_lowering *l, const rt_step *s, const tile_map *m,
                          const tile_box *box) {
  rt_task t = tile_step_task(l->work, s);
  const rt_attr *widths = rt_task_attr(&t, "widths");
  int64_t begin[IR_MAX_RANK];
  for (uint32_t d = 0; d < s->results[0].rank; d++) begin[d] = widths->list[2 * d];
  cpu_element e = cpu_element_of(s->results[0].dtype, rt_task_number(&t, "value"));
  return lower_part(l, s, 0, begin, m, box, add_number(l, s->results[0].dtype, e));
}

static uint32_t lower_cat(tile_lowering *l, const rt_step *s, const tile_map *m,
                          const tile_box *box) {
  rt_task t = tile_step_task(l->work, s);
  uint32_t dim = rt_task_dim(&t, "dim", s->results[0].rank);
  int64_t begin[IR_MAX_RANK] = {0};
  uint32_t node = add_number(l, s->results[0].dtype, (cpu_element){.i = 0});
  for (uint32_t k = 0; k < s->n_operands; k++) {
    node = lower_part(l, s, k, begin, m, box, node);
    begin[dim] += rt_value_shape(l->body, &s->operands[k])->extents[dim];
  }
  return node;
}

/* Row-major numbers of groups of dimensions that hold equally many positions. One dimension of the operand
 * that became several is affine; several that became one are not. */
static uint32_t lower_reshape(tile_lowering *l, const rt_step *s, const tile_map *m,
                              const tile_box *box) {
  const rt_shape *x = rt_value_shape(l->body, &s->operands[0]), *y = &s->results[0];
  tile_map where = {.offset = {0}};
  uint32_t e = 0, d = 0;
  while (e < x->rank) {
    if (x->extents[e] == 1) {
      e++;
      continue;
    }
    int64_t left = x->extents[e];
    while (left > 1) {
      if (d == y->rank || left % y->extents[d] != 0) return TILE_NONE;
      left /= y->extents[d];
      where.offset[e] += m->offset[d] * left;
      for (uint32_t a = 0; a < l->n_axes; a++) where.coef[e][a] += m->coef[d][a] * left;
      d++;
    }
    e++;
  }
  return lower_value(l, &s->operands[0], &where, box);
}

static uint32_t lower_maker(tile_lowering *l, const rt_step *s, const tile_map *m) {
  rt_task t = tile_step_task(l->work, s);
  ir_dtype dtype = s->results[0].dtype;
  if (s->code == IR_OP_FULL)
    return add_number(l, dtype, cpu_element_of(dtype, rt_task_number(&t, "value")));
  if (s->code != IR_OP_IOTA && s->code != IR_OP_UNIFORM)
    return add_number(l, dtype, cpu_element_of(dtype, ir_number_int(s->code == IR_OP_ONES)));
  tile_node n = {.kind = TILE_MAKE, .dtype = dtype, .step = s, .code = s->code};
  int64_t stride = 1;
  for (uint32_t d = s->results[0].rank; d-- > 0;) {
    n.first += (m->offset[d] + (s->offset ? s->offset[d] : 0)) * stride;
    for (uint32_t a = 0; a < l->n_axes; a++) n.strides[a] += m->coef[d][a] * stride;
    stride *= s->whole ? s->whole[d] : s->results[0].extents[d];
  }
  for (uint32_t a = 0; a < l->n_axes; a++)
    if (n.strides[a] != 0) n.axes |= 1U << a;
  return add_node(l, &n);
}

/* ---- what goes over rows ---- */
static uint32_t first_axes(uint32_t n) {
  check(n < 32);
  return (1U << n) - 1;
}

static uint32_t inner_mask(const tile_lowering *l) {
  return first_axes(l->n_axes) & ~first_axes(l->n_kept);
}

/* A reduction that is needed at positions of the inner axes, or not at every kept one, is computed apart. */
static bool is_row_map(const tile_lowering *l, const tile_map *m, uint32_t rank) {
  uint32_t used = 0;
  for (uint32_t d = 0; d < rank; d++)
    for (uint32_t a = 0; a < l->n_axes; a++)
      if (m->coef[d][a] != 0) used |= 1U << a;
  return used == first_axes(l->n_kept) && l->n_axes > l->n_kept;
}

static bool is_whole_box(const tile_lowering *l, const tile_box *box) {
  for (uint32_t a = 0; a < l->n_axes; a++)
    if (!is_whole(l, box, a)) return false;
  return true;
}

static uint32_t lower_fold(tile_lowering *l, const rt_step *s, const tile_map *m,
                           const tile_box *box) {
  const rt_shape *x = rt_value_shape(l->body, &s->operands[0]);
  bool moment = ir_op_info_of(s->code)->family == IR_FAMILY_MOMENT;
  rt_task t = tile_step_task(l->work, s);
  bool reduced[IR_MAX_RANK];
  int from[IR_MAX_RANK];
  uint32_t axis = l->n_kept;
  if (!is_row_map(l, m, s->results[0].rank) || !is_whole_box(l, box)) return TILE_NONE;
  tile_dims_of(l, s, 0, from);
  tile_map where = tile_map_through(l, s, 0, from, m);
  rt_task_dims(&t, "dims", x->rank, reduced);
  for (uint32_t e = 0; e < x->rank; e++) {
    if (!reduced[e] || x->extents[e] == 1) continue;
    if (axis == l->n_axes || l->extents[axis] != x->extents[e]) return TILE_NONE;
    where.coef[e][axis++] = 1;
  }
  if (axis != l->n_axes) return TILE_NONE;
  uint32_t operand = lower_value(l, &s->operands[0], &where, box);
  if (!ir_dtype_is_float(x->dtype)) operand = cast_to(l, operand, moment ? IR_F64 : IR_I64);
  if (operand == TILE_NONE) return TILE_NONE;
  tile_node n = {.kind = TILE_FOLD,
                 .dtype = s->results[0].dtype,
                 .n_x = 1,
                 .x = {operand},
                 .step = s,
                 .code = s->code,
                 .after_fold = true,
                 .axes = first_axes(l->n_kept)};
  return add_node(l, &n);
}

/* Norms of bf16 read and write that; other rows have native elements. */
static ir_dtype row_dtype(const tile_lowering *l, const rt_step *s) {
  ir_dtype t = s->results[0].dtype;
  if (s->code == IR_OP_SOFTMAX) return cpu_native(t);
  for (uint32_t k = 0; k < s->n_operands; k++)
    if (s->operands[k].kind != RT_VALUE_NONE && s->operands[k].kind != RT_VALUE_NUMBER &&
        rt_value_shape(l->body, &s->operands[k])->dtype != IR_BF16)
      return cpu_native(t);
  return t;
}

/* The last axis of the operation must be the only inner one. */
static uint32_t lower_rows(tile_lowering *l, const rt_step *s, const tile_map *m,
                           const tile_box *box) {
  rt_task t = tile_step_task(l->work, s);
  uint32_t rank = s->results[0].rank, axis = l->n_kept;
  uint32_t dim = s->code == IR_OP_SOFTMAX ? rt_task_dim(&t, "dim", rank) : rank - 1;
  tile_map kept = *m;
  if (l->n_axes != l->n_kept + 1 || l->extents[axis] != s->results[0].extents[dim] ||
      rt_value_shape(l->body, &s->operands[0])->extents[dim] != l->extents[axis])
    return TILE_NONE;
  for (uint32_t a = 0; a < l->n_axes; a++)
    if (m->coef[dim][a] != (a == axis)) return TILE_NONE;
  memset(kept.coef[dim], 0, sizeof kept.coef[dim]);
  if (m->offset[dim] != 0 || !is_row_map(l, &kept, rank) || !is_whole_box(l, box)) return TILE_NONE;
  tile_node n = {.kind = TILE_ROWS,
                 .dtype = s->results[0].dtype,
                 .n_x = 3,
                 .x = {TILE_NONE, TILE_NONE, TILE_NONE},
                 .step = s,
                 .code = s->code,
                 .axes = (1U << l->n_axes) - 1,
                 .after_fold = true};
  for (uint32_t k = 0; k < s->n_operands; k++) {
    if (s->operands[k].kind == RT_VALUE_NONE) continue;
    if (s->operands[k].kind == RT_VALUE_NUMBER) return TILE_NONE;
    n.x[k] = cast_to(l, lower_through(l, s, k, m, box), row_dtype(l, s));
    if (n.x[k] == TILE_NONE) return TILE_NONE;
    if (k > 0 && l->nodes[n.x[k]].axes & ~inner_mask(l)) return TILE_NONE;
  }
  return add_of(l, n);
}

/* ---- values ---- */
static uint32_t lower_family(tile_lowering *l, const rt_step *s, const tile_map *m,
                             const tile_box *box) {
  ir_family family = ir_op_info_of(s->code)->family;
  if (family == IR_FAMILY_POINTWISE) return lower_pointwise(l, s, m, box);
  if (family == IR_FAMILY_REDUCE || family == IR_FAMILY_MOMENT) return lower_fold(l, s, m, box);
  if (family == IR_FAMILY_SOFTMAX || family == IR_FAMILY_NORM) return lower_rows(l, s, m, box);
  if (family == IR_FAMILY_SELECT) return lower_select(l, s, m, box);
  if (family == IR_FAMILY_SLICE) return lower_slice(l, s, m, box);
  if (family == IR_FAMILY_PAD) return lower_pad(l, s, m, box);
  if (family == IR_FAMILY_CAT) return lower_cat(l, s, m, box);
  if (family == IR_FAMILY_RESHAPE) return lower_reshape(l, s, m, box);
  if (family == IR_FAMILY_MAKER) return lower_maker(l, s, m);
  return cast_to(l, lower_through(l, s, 0, m, box), s->results[0].dtype);
}

static uint32_t find_known(const tile_lowering *l, const rt_value *v, const tile_map *m,
                           const tile_box *box) {
  for (uint32_t i = l->n_known; i-- > 0;) {
    const struct tile_known *k = &l->known[i];
    if (k->value.kind == v->kind && k->value.index == v->index && k->value.result == v->result &&
        memcmp(&k->where, m, sizeof *m) == 0 && memcmp(&k->box, box, sizeof *box) == 0)
      return k->node;
  }
  return TILE_NONE;
}

static uint32_t lower_new(tile_lowering *l, const rt_value *v, const tile_map *m,
                          const tile_box *box) {
  const rt_shape *shape = rt_value_shape(l->body, v);
  if (v->kind == RT_VALUE_PARAM) return add_load(l, shape, &l->params[v->index], m, box);
  const tile_memory *memory = &l->steps[v->index][v->result];
  if (memory->place != TILE_NONE) return add_load(l, shape, memory, m, box);
  const rt_step *s = &l->body->steps[v->index];
  uint32_t node = TILE_NONE;
  if (l->depth < TILE_DEPTH && tile_knows(l->body, s)) {
    l->depth++;
    node = lower_family(l, s, m, box);
    l->depth--;
  }
  if (node == TILE_NONE && l->blocked == TILE_NONE) l->blocked = v->index;
  return node;
}

static uint32_t lower_value(tile_lowering *l, const rt_value *v, const tile_map *m,
                            const tile_box *box) {
  if (v->kind == RT_VALUE_NUMBER) {
    ir_dtype t = v->number->is_float ? IR_F64 : IR_I64;
    return add_number(l, t, cpu_element_of(t, *v->number));
  }
  uint32_t node = find_known(l, v, m, box), first = l->n_nodes;
  if (node != TILE_NONE) return node;
  node = lower_new(l, v, m, box);
  for (uint32_t i = first; i < l->n_nodes; i++)
    if (!l->nodes[i].bounded) l->nodes[i].bounded = true, l->nodes[i].need = *box;
  if (node == TILE_NONE || l->n_known == TILE_NODES) return node;
  l->known[l->n_known++] = (struct tile_known){.value = *v, .where = *m, .box = *box, .node = node};
  return node;
}

static bool lower_targets(tile_lowering *l) {
  tile_box all = {.lo = {0}};
  for (uint32_t a = 0; a < l->n_axes; a++) all.hi[a] = l->extents[a];
  for (uint32_t t = 0; t < l->n_targets; t++) {
    tile_target *target = &l->targets[t];
    target->node = lower_value(l, &target->value, &l->base, &all);
    if (target->node == TILE_NONE) {
      if (l->blocked == TILE_NONE) l->blocked = target->value.index;
      return false;
    }
  }
  return true;
}

bool tile_lower(tile_lowering *l) {
  l->blocked = TILE_NONE;
  l->nodes = ARENA_ARRAY(l->work, TILE_NODES, tile_node);
  l->known = ARENA_ARRAY(l->work, TILE_NODES, struct tile_known);
  return tile_space(l) && lower_targets(l);
}
