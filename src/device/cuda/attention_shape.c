#include "device/cuda/attention_shape.h"

#include <math.h>
#include <string.h>

/* If a stride or a start is no multiple of this, the library computes wrong numbers without an error. */
enum { UNIT_BYTES = 16, UNIT = 8 };
enum { B, H, S, N_STRIDES };
enum { MOST_BACKWARD_WIDTH = 256 };

bool cuda_att_is(const rt_task *task) {
  return task->code == IR_OP_SDPA || task->code == IR_OP_SDPA_BACKWARD;
}

static bool is_of_keys(cuda_att_side side) {
  return side == ATT_K || side == ATT_V || side == ATT_DK || side == ATT_DV;
}

/* The batch of all sides, while it is reduced to two dimensions. */
typedef struct batch {
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  int64_t keys[IR_MAX_RANK]; /* how many of them k and v have */
  int64_t steps[N_ATT_SIDES][IR_MAX_RANK];
} batch;

enum { NO_OPERAND = UINT32_MAX };
typedef struct reading {
  const rt_plan *plan;
  const rt_task *task;
  const rt_view *views[N_ATT_SIDES]; /* NULL: none */
  uint32_t operand[N_ATT_SIDES];     /* NO_OPERAND: a result */
  bool used[N_ATT_SIDES];
  const rt_view *base; /* the first result, whose dimensions windows refer to */
  cuda_att_shape *shape;
  cuda_att_places *places;
  batch batch;
  const char *why;
} reading;

static bool refuse(reading *r, const char *why) {
  r->why = why;
  return false;
}

static int64_t at_offset(const reading *r, uint32_t d) {
  return r->task->offset ? r->task->offset[d] : 0;
}

/* ---- which view is which ---- */
static void take(reading *r, cuda_att_side side, uint32_t view, uint32_t start) {
  r->views[side] = &r->plan->views[view];
  r->places->start[side] = start;
  r->operand[side] = NO_OPERAND;
  r->used[side] = true;
}

static bool take_operand(reading *r, cuda_att_side side, uint32_t k) {
  const rt_operand *o = &r->task->operands[k];
  if (k >= r->task->n_operands || o->kind != RT_OPERAND_VIEW)
    return refuse(r, "an operand that is no tensor");
  take(r, side, o->view, k + 1);
  r->operand[side] = k;
  return true;
}

static void take_result(reading *r, cuda_att_side side, uint32_t k) {
  uint32_t view = rt_task_result(r->task, k);
  take(r, side, view, k == 0 ? 0 : r->task->n_operands + k);
}

/* Gradients that are not wanted are written too, to scratch memory. */
static bool read_gradient(reading *r) {
  static const cuda_att_side operands[] = {ATT_Q, ATT_K, ATT_V, ATT_O, ATT_STATS, ATT_DO};
  static const cuda_att_side results[] = {ATT_DQ, ATT_DK, ATT_DV};
  r->shape->backward = true;
  for (uint32_t k = 0; k < sizeof operands / sizeof *operands; k++)
    if (!take_operand(r, operands[k], k)) return false;
  for (uint32_t k = 0; k < 3; k++) {
    if (k < rt_task_n_results(r->task)) take_result(r, results[k], k);
    else r->shape->spare |= 1 << results[k];
  }
  return true;
}

static bool read_sides(reading *r) {
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) r->places->start[i] = ATT_NO_START;
  if (r->task->code == IR_OP_SDPA_BACKWARD) return read_gradient(r);
  if (!take_operand(r, ATT_Q, 0) || !take_operand(r, ATT_K, 1) || !take_operand(r, ATT_V, 2))
    return false;
  take_result(r, ATT_O, 0);
  if (r->task->n_more > 0) take_result(r, ATT_STATS, 1);
  return true;
}

/* Was the side cut to the window along result dimension d? Results are. */
static bool is_cut(const reading *r, cuda_att_side side, uint32_t d) {
  return r->operand[side] == NO_OPERAND || rt_task_sliced(r->task, r->operand[side], d);
}

/* ---- dtypes and extents ---- */
static bool read_types(reading *r) {
  ir_dtype t = r->base->dtype;
  if (t != IR_F16 && t != IR_BF16) return refuse(r, "only f16 and bf16");
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) {
    if (!r->used[i] || i == ATT_STATS) continue;
    if (r->views[i]->dtype != t) return refuse(r, "operands of different dtypes");
  }
  if (r->used[ATT_STATS] && r->views[ATT_STATS]->dtype != IR_F32)
    return refuse(r, "statistics that are not f32");
  r->shape->dtype = t;
  return true;
}

static bool read_extents(reading *r) {
  cuda_att_shape *s = r->shape;
  const rt_view *q = r->views[ATT_Q], *k = r->views[ATT_K], *o = r->views[ATT_O], *y = r->base;
  s->sq = y->extents[y->rank - 2];
  s->dv = o->extents[o->rank - 1];
  s->d = q->extents[q->rank - 1];
  s->skv = k->extents[k->rank - 2];
  for (uint32_t d = 0; d < y->rank; d++)
    if (y->extents[d] == 0) return refuse(r, "an empty result");
  if (s->skv == 0 || s->d == 0 || s->dv == 0) return refuse(r, "no keys, or no width");
  if (s->sq > INT32_MAX || s->skv > INT32_MAX) return refuse(r, "more positions than 2^31");
  if (s->d % UNIT || s->dv % UNIT) return refuse(r, "a width that is no multiple of 8");
  if (s->backward && (s->d > MOST_BACKWARD_WIDTH || s->dv > MOST_BACKWARD_WIDTH))
    return refuse(r, "a gradient of a width above 256");
  return true;
}

/* ---- the batch ---- */
static uint32_t lead_of(cuda_att_side side, const rt_view *v) {
  return v->rank - (side == ATT_STATS ? 1 : 2);
}

/* Grouped heads that were not cut to the window: finds the keys' heads that the window's queries read. The
 * queries must be whole groups, or read one head. */
static bool place_group(reading *r, uint32_t d, int64_t extent, int64_t *first, int64_t *count) {
  int64_t all = r->batch.extents[d], whole = r->task->whole ? r->task->whole[d] : all;
  if (whole % extent) return refuse(r, "heads that do not divide");
  int64_t group = whole / extent, begin = *first;
  *first = begin / group;
  *count = (begin + all - 1) / group + 1 - *first;
  bool is_whole = begin % group == 0 && all % group == 0;
  return is_whole || *count == 1 || refuse(r, "a window of parts of groups");
}

/* Sets the stride of one side along dimension d of the batch, and how many heads it has there. */
static bool place(reading *r, cuda_att_side side, uint32_t d) {
  batch *x = &r->batch;
  const rt_view *v = r->views[side];
  uint32_t n = r->base->rank - 2, lead = lead_of(side, v);
  if (lead > n) return refuse(r, "an operand with more dimensions than the result");
  if (d + lead < n) return true; /* it repeats */
  uint32_t own = d + lead - n;
  int64_t extent = v->extents[own], step = v->strides[own], count = x->extents[d];
  if (extent == 1) return true;
  bool cut = is_cut(r, side, d), is_keys = is_of_keys(side);
  int64_t first = cut ? 0 : at_offset(r, d);
  if (is_keys && d + 1 == n && cut) count = extent;
  else if (is_keys && d + 1 == n && !place_group(r, d, extent, &first, &count)) return false;
  if (first + count > extent) return refuse(r, "heads that do not fit");
  if (is_keys && count > 1) x->keys[d] = count;
  if (count > 1 || !is_keys) x->steps[side][d] = step;
  r->places->offset_bytes[side] += first * step * (int64_t)ir_dtype_size_bytes(v->dtype);
  return true;
}

static bool read_batch(reading *r) {
  batch *x = &r->batch;
  x->rank = r->base->rank - 2;
  for (uint32_t d = 0; d < x->rank; d++) {
    x->extents[d] = x->keys[d] = r->base->extents[d];
    for (uint32_t i = 0; i < N_ATT_SIDES; i++)
      if (r->used[i] && !place(r, (cuda_att_side)i, d)) return false;
    if (x->extents[d] % x->keys[d]) return refuse(r, "heads that do not divide");
  }
  return true;
}

static void remove_dim(batch *x, uint32_t d) {
  x->rank--;
  for (uint32_t i = d; i < x->rank; i++) {
    x->extents[i] = x->extents[i + 1];
    x->keys[i] = x->keys[i + 1];
    for (uint32_t s = 0; s < N_ATT_SIDES; s++) x->steps[s][i] = x->steps[s][i + 1];
  }
}

static bool falls_together(const batch *x, uint32_t d) {
  if (x->keys[d] != x->extents[d] || x->keys[d + 1] != x->extents[d + 1]) return false;
  for (uint32_t s = 0; s < N_ATT_SIDES; s++)
    if (x->steps[s][d] != x->extents[d + 1] * x->steps[s][d + 1]) return false;
  return true;
}

/* Merges neighbouring dimensions only while there are more than two: heads stay apart from batches, since the
 * library's own choices depend on both. */
static void collapse(batch *x) {
  for (uint32_t d = x->rank; d-- > 0;)
    if (x->extents[d] == 1) remove_dim(x, d);
  for (uint32_t d = x->rank; d-- > 0 && x->rank > 2;) {
    if (d + 1 >= x->rank || !falls_together(x, d)) continue;
    x->extents[d + 1] *= x->extents[d];
    x->keys[d + 1] = x->extents[d + 1];
    remove_dim(x, d);
  }
}

/* ---- strides ---- */
void cuda_att_extents(const cuda_att_shape *s, cuda_att_side side, int64_t extents[4]) {
  extents[0] = s->b;
  extents[1] = is_of_keys(side) ? s->hk : s->hq;
  extents[2] = is_of_keys(side) ? s->skv : s->sq;
  bool wide = side == ATT_V || side == ATT_DV || side == ATT_O || side == ATT_DO;
  extents[3] = side == ATT_STATS ? 1 : wide ? s->dv : s->d;
}

int64_t cuda_att_reach(const cuda_att_shape *s, cuda_att_side side) {
  int64_t extents[4];
  cuda_att_extents(s, side, extents);
  int64_t last = extents[3] - 1;
  for (uint32_t i = 0; i < N_STRIDES; i++) last += (extents[i] - 1) * s->strides[side][i];
  return last + 1;
}

/* Dimensions of one element get the stride they would have in a packed tensor. */
static void set_strides(reading *r, cuda_att_side side) {
  cuda_att_shape *s = r->shape;
  const rt_view *v = r->views[side];
  const batch *x = &r->batch;
  int64_t extents[4], packed = 1, *to = s->strides[side];
  to[S] = v->strides[v->rank - (side == ATT_STATS ? 1 : 2)];
  to[H] = x->rank > 0 ? x->steps[side][x->rank - 1] : 0;
  to[B] = x->rank > 1 ? x->steps[side][0] : 0;
  cuda_att_extents(s, side, extents);
  packed = extents[3];
  for (uint32_t i = N_STRIDES; i-- > 0;
       packed = to[i] > packed ? to[i] * extents[i] : packed * extents[i])
    if (extents[i] == 1) to[i] = packed;
}

static bool is_packed(const cuda_att_shape *s, cuda_att_side side) {
  int64_t extents[4], packed = 1;
  cuda_att_extents(s, side, extents);
  packed = extents[3];
  for (uint32_t i = N_STRIDES; i-- > 0; packed *= extents[i])
    if (s->strides[side][i] != packed) return false;
  return true;
}

static bool check_strides(reading *r, cuda_att_side side) {
  const cuda_att_shape *s = r->shape;
  const rt_view *v = r->views[side];
  const int64_t *x = s->strides[side];
  int64_t start = v->offset_bytes + r->places->offset_bytes[side], extents[4];
  if ((start | v->step_bytes) % UNIT_BYTES)
    return refuse(r, "a tensor that does not begin at a multiple of 16 bytes");
  if (side == ATT_STATS) return is_packed(s, side) || refuse(r, "statistics that are not packed");
  cuda_att_extents(s, side, extents);
  if (v->strides[v->rank - 1] != 1) return refuse(r, "a width that is not innermost");
  if (x[S] < extents[3]) return refuse(r, "rows that overlap");
  for (uint32_t i = 0; i < N_STRIDES; i++)
    if (x[i] < 0 || x[i] % UNIT) return refuse(r, "a stride that is no multiple of 8");
  bool may_repeat = side == ATT_K || side == ATT_V;
  if (x[H] == 0 || (x[B] == 0 && !may_repeat)) return refuse(r, "a tensor that repeats");
  return true;
}

/* Finds batch and heads. If all heads of keys are the same memory, there is one. */
static bool read_heads(reading *r) {
  cuda_att_shape *s = r->shape;
  const batch *x = &r->batch;
  if (x->rank > 2) return refuse(r, "more than two dimensions of batch");
  s->b = x->rank > 1 ? x->extents[0] : 1;
  s->hq = x->rank > 0 ? x->extents[x->rank - 1] : 1;
  s->hk = x->rank > 0 ? x->keys[x->rank - 1] : 1;
  if (s->b > INT32_MAX || s->hq > INT32_MAX) return refuse(r, "more heads than 2^31");
  if (x->rank > 1 && x->keys[0] != x->extents[0]) return refuse(r, "groups of batches");
  if (x->rank == 0) return true;
  bool repeats_k = x->steps[ATT_K][x->rank - 1] == 0, repeats_v = x->steps[ATT_V][x->rank - 1] == 0;
  if (repeats_k != repeats_v) return refuse(r, "keys and values that repeat differently");
  if (repeats_k) s->hk = 1;
  return true;
}

/* ---- masks ---- */
/* A causal query sees the keys up to its position in the whole tensor, so no query sees keys past the last query's
 * position. Without those, the window's last query sees all keys: the library calls this mask aligned at the
 * bottom right. Gradients need all keys, and have no windows along the queries. */
static bool read_mask(reading *r) {
  cuda_att_shape *s = r->shape;
  uint32_t rank = r->base->rank;
  int64_t first = at_offset(r, rank - 2);
  s->mask = ATT_ALL;
  if (!rt_task_int(r->task, "causal")) return true;
  s->mask = ATT_TOP_LEFT;
  if (s->backward) return first == 0 || refuse(r, "a gradient of a window of causal queries");
  if (first > 0 && first + s->sq > s->skv) return refuse(r, "causal queries past the last key");
  if (first + s->sq < s->skv) s->skv = first + s->sq;
  if (first > 0) s->mask = ATT_BOTTOM_RIGHT;
  return true;
}

/* Queries that are not cut to the window are moved to where it begins, and so are values along their width.
 * Gradients have no such windows. */
static bool place_window(reading *r) {
  uint32_t rank = r->base->rank;
  int64_t row = at_offset(r, rank - 2), column = at_offset(r, rank - 1);
  const rt_view *q = r->views[ATT_Q], *v = r->views[ATT_V];
  int64_t size = (int64_t)ir_dtype_size_bytes(q->dtype);
  if (r->shape->backward)
    return (row == 0 && column == 0) || refuse(r, "a gradient of a window of positions");
  if (!is_cut(r, ATT_Q, rank - 2))
    r->places->offset_bytes[ATT_Q] += row * q->strides[q->rank - 2] * size;
  if (!is_cut(r, ATT_V, rank - 1))
    r->places->offset_bytes[ATT_V] += column * v->strides[v->rank - 1] * size;
  return true;
}

static void set_packed(cuda_att_shape *s, cuda_att_side side) {
  int64_t extents[4], packed;
  cuda_att_extents(s, side, extents);
  packed = extents[3];
  for (uint32_t i = N_STRIDES; i-- > 0; packed *= extents[i]) s->strides[side][i] = packed;
}

/* Sets the strides of all sides; false: the library cannot take one of them. */
static bool read_strides(reading *r) {
  for (uint32_t i = 0; i < N_ATT_SIDES; i++) {
    cuda_att_side side = (cuda_att_side)i;
    if (r->shape->spare >> i & 1) set_packed(r->shape, side);
    if (!r->used[i]) continue;
    set_strides(r, side);
    if (!check_strides(r, side)) return false;
  }
  return true;
}

bool cuda_att_shape_of(const rt_plan *plan, const rt_task *task, cuda_att_shape *shape,
                       cuda_att_places *places, const char **why) {
  reading r = {.plan = plan, .task = task, .shape = shape, .places = places};
  memset(shape, 0, sizeof *shape);
  memset(places, 0, sizeof *places);
  *why = NULL;
  if (!cuda_att_is(task)) return false;
  r.base = &plan->views[task->result];
  bool ok = read_sides(&r) && read_types(&r) && read_extents(&r) && read_batch(&r) &&
            place_window(&r) && read_mask(&r);
  if (ok) collapse(&r.batch);
  ok = ok && read_heads(&r) && read_strides(&r);
  shape->stats = r.used[ATT_STATS];
  const rt_attr *scale = rt_task_attr(task, "scale");
  places->scale = (float)(scale->given ? ir_number_as_f64(rt_task_number(task, "scale"))
                                       : 1 / sqrt((double)shape->d));
  *why = r.why;
  return ok;
}
