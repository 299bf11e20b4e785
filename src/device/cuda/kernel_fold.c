/* Operations that sum: reductions and moments, softmax and norms, products of matrices, attention. */
#include <math.h>

#include "device/cuda/kernel_place.h"

/* ---- sum prod amax amin mean var var_mean ---- */
static int64_t reduced_count(const cg_reduce *r) {
  int64_t n = 1;
  for (uint32_t d = r->n_kept; d < r->n_kept + r->n_reduced; d++) n *= r->extents[d];
  return n;
}

/* The space: the result's dimensions except kept ones of size 1, then the reduced ones, along which the
 * result has the stride 0. */
static void place_reduced(const cuda_call *c, cg_view result, cg_reduce *r) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  bool reduced[IR_MAX_RANK], keepdim = rt_task_int(c->task, "keepdim") != 0;
  int from[IR_MAX_RANK];
  uint32_t rank = 0;
  rt_task_dims(c->task, "dims", x.rank, reduced);
  for (uint32_t d = 0; d < x.rank; d++)
    if (!reduced[d] || keepdim) from[rank++] = reduced[d] ? RT_NO_DIM : (int)d;
  check(rank == c->result->rank);
  r->x = cuda_place(c, 0, from);
  r->result = result;
  for (uint32_t d = 0; d < rank; d++) {
    if (from[d] == RT_NO_DIM) continue;
    r->extents[r->n_kept] = c->result->extents[d];
    r->x.strides[r->n_kept] = r->x.strides[d];
    r->result.strides[r->n_kept++] = r->result.strides[d];
  }
  for (uint32_t d = 0; d < x.rank; d++) {
    if (!reduced[d]) continue;
    uint32_t to = r->n_kept + r->n_reduced++;
    r->extents[to] = x.extents[d];
    r->x.strides[to] = x.strides[d];
  }
}

/* The means of var_mean, in a launch of their own. */
static void write_means(const cuda_call *c) {
  cg_reduce r = {.code = IR_OP_MEAN};
  place_reduced(c, cuda_place_more(c, 1), &r);
  r.divisor = (double)reduced_count(&r);
  cg_write_reduce(&c->kernel->code, &r);
}

status cuda_prepare_reduce(const cuda_call *c) {
  cg_reduce r = {.code = c->task->code};
  if (r.code == IR_OP_VAR_MEAN) r.code = IR_OP_VAR;
  place_reduced(c, cuda_place_result(c), &r);
  int64_t n = reduced_count(&r);
  ir_fold fold = ir_op_fold(r.code); /* a moment has none */
  const char *noun = fold == IR_FOLD_NONE ? NULL : ir_fold_info_of(fold)->noun;
  if (n == 0 && noun && !rt_task_int(c->task, "empty"))
    return fail(STATUS_BAD_PROGRAM, "%s: a zero-size reduction has no %s", c->info->name, noun);
  r.divisor = (double)n;
  if (r.code == IR_OP_VAR) r.divisor -= (double)rt_task_int(c->task, "correction");
  if (r.divisor < 0) r.divisor = 0;
  cg_write_reduce(&c->kernel->code, &r);
  if (c->task->n_more) write_means(c);
  return STATUS_OK;
}

/* ---- softmax layer_norm rms_norm ---- */
/* Moves the dimension of the row to the end of the space. */
static void row_last(const cuda_call *c, uint32_t axis, cg_view *v, int64_t step) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < c->result->rank; d++)
    if (d != axis) v->strides[n++] = v->strides[d];
  v->strides[n] = step;
}

static cg_rows place_rows(const cuda_call *c, uint32_t axis) {
  rt_view x = rt_task_operand(c->plan, c->task, 0);
  cg_rows r = {.code = c->task->code, .rank = x.rank};
  int from[IR_MAX_RANK];
  uint32_t n = 0;
  rt_align(x.rank, x.rank, from);
  from[axis] = RT_NO_DIM;
  r.x = cuda_place(c, 0, from);
  r.result = cuda_place_result(c);
  row_last(c, axis, &r.x, x.strides[axis]);
  row_last(c, axis, &r.result, r.result.strides[axis]);
  for (uint32_t d = 0; d < x.rank; d++)
    if (d != axis) r.extents[n++] = c->result->extents[d];
  r.extents[n] = x.extents[axis];
  r.first = rt_task_sliced(c->task, 0, axis) ? 0 : c->offset[axis];
  r.count = c->result->extents[axis];
  check(r.first + r.count <= x.extents[axis]);
  return r;
}

status cuda_prepare_softmax(const cuda_call *c) {
  cg_rows r = place_rows(c, rt_task_dim(c->task, "dim", c->result->rank));
  cg_write_rows(&c->kernel->code, &r);
  return STATUS_OK;
}

static bool place_vector(const cuda_call *c, uint32_t k, cg_view *result) {
  uint32_t axis = c->result->rank - 1;
  int from[IR_MAX_RANK];
  if (!rt_task_has_operand(c->task, k)) return false;
  rt_align(0, c->result->rank, from);
  from[axis] = 0;
  *result = cuda_place(c, k, from);
  return true;
}

status cuda_prepare_norm(const cuda_call *c) {
  cg_rows r = place_rows(c, c->result->rank - 1);
  r.eps = ir_number_as_f64(rt_task_number(c->task, "eps"));
  r.has_weight = place_vector(c, 1, &r.weight);
  r.has_bias = place_vector(c, 2, &r.bias);
  cg_write_rows(&c->kernel->code, &r);
  return STATUS_OK;
}

/* ---- matmul linear grouped_matmul grouped_outer ---- */
/* `a` has all dimensions of the result but the last, and b those of its batch. One dimension along which b
 * repeats becomes m, the others are the batch. n_last: the result's last dimension belongs to b alone; else
 * n is 1. */
static void write_product(const cuda_call *c, cg_matmul *m, bool n_last, int64_t k, int64_t a_step,
                          int64_t b_step) {
  cg_view *views[] = {&m->c, &m->a, &m->b, m->grouped ? &m->index : &m->bias};
  cg_matmul old = *m;
  const cg_view *from[] = {&old.c, &old.a, &old.b, m->grouped ? &old.index : &old.bias};
  uint32_t rank = c->result->rank, outer = n_last ? rank - 1 : rank, row = outer;
  const int64_t *extents = c->result->extents;
  for (uint32_t d = 0; d < outer; d++)
    if (m->b.strides[d] == 0 && (row == outer || extents[d] >= extents[row])) row = d;
  if (m->grouped) row = rank - 2;
  m->rank = 0;
  for (uint32_t d = 0; d < outer; d++) {
    if (d == row) continue;
    for (int v = 0; v < 4; v++) views[v]->strides[m->rank] = from[v]->strides[d];
    m->extents[m->rank++] = extents[d];
  }
  for (int v = 0; v < 4; v++) {
    views[v]->strides[m->rank] = row < outer ? from[v]->strides[row] : 0;
    views[v]->strides[m->rank + 1] = n_last ? from[v]->strides[rank - 1] : 0;
    views[v]->strides[m->rank + 2] = v == 1 ? a_step : v == 2 ? b_step : 0;
  }
  m->extents[m->rank] = row < outer ? extents[row] : 1;
  m->extents[m->rank + 1] = n_last ? extents[rank - 1] : 1;
  m->extents[m->rank + 2] = k;
  m->rank += 3;
  cg_write_matmul(&c->kernel->code, m);
}

/* a[*, m, k] and b[*, k, n]; a vector has no m, or no n. */
status cuda_prepare_matmul(const cuda_call *c) {
  rt_view a = rt_task_operand(c->plan, c->task, 0), b = rt_task_operand(c->plan, c->task, 1);
  uint32_t rank = c->result->rank, has_m = a.rank > 1, has_n = b.rank > 1;
  uint32_t n_batch = rank - has_m - has_n;
  cg_matmul m = {.c = cuda_place_result(c)};
  int from[IR_MAX_RANK];
  rt_align(a.rank - 1 - has_m, n_batch, from);
  if (has_m) from[n_batch] = (int)a.rank - 2;
  m.a = cuda_place(c, 0, from);
  rt_align(b.rank - 1 - has_n, n_batch, from);
  if (has_n) from[rank - 1] = (int)b.rank - 1;
  m.b = cuda_place(c, 1, from);
  write_product(c, &m, has_n, a.extents[a.rank - 1], a.strides[a.rank - 1],
                b.strides[has_n ? b.rank - 2 : 0]);
  return STATUS_OK;
}

/* x[*, k], weight[*w, n, k], bias[*w, n] in the result [*w, *, n]. */
status cuda_prepare_linear(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0), w = rt_task_operand(c->plan, c->task, 1);
  uint32_t rank = c->result->rank, lead = w.rank - 2;
  cg_matmul m = {.c = cuda_place_result(c), .has_bias = rt_task_has_operand(c->task, 2)};
  int from[IR_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++)
    from[d] = d >= lead && d + 1 < rank ? (int)(d - lead) : RT_NO_DIM;
  m.a = cuda_place(c, 0, from);
  for (uint32_t d = 0; d < rank; d++) from[d] = d < lead ? (int)d : RT_NO_DIM;
  from[rank - 1] = (int)lead;
  m.b = cuda_place(c, 1, from);
  if (m.has_bias) m.bias = cuda_place(c, 2, from);
  write_product(c, &m, true, x.extents[x.rank - 1], x.strides[x.rank - 1], w.strides[w.rank - 1]);
  return STATUS_OK;
}

/* x[*, m, k], weight[*, g, k, n], index[*, m] in the result [*, m, n]. */
status cuda_prepare_grouped_matmul(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0), w = rt_task_operand(c->plan, c->task, 1);
  rt_view index = rt_task_operand(c->plan, c->task, 2);
  uint32_t rank = c->result->rank, n_batch = rank - 2;
  cg_matmul m = {.c = cuda_place_result(c), .grouped = true};
  int from[IR_MAX_RANK];
  m.n_groups = w.extents[w.rank - 3];
  m.group_step = w.strides[w.rank - 3];
  rt_align_with(x.rank - 2, n_batch, n_batch, x.rank - 2, from);
  m.a = cuda_place(c, 0, from);
  rt_align_with(index.rank - 1, n_batch, n_batch, index.rank - 1, from);
  m.index = cuda_place(c, 2, from);
  rt_align_with(w.rank - 3, n_batch, rank - 1, w.rank - 1, from);
  m.b = cuda_place(c, 1, from);
  cuda_set_indexed(c, 0, m.n_groups + 1);
  write_product(c, &m, true, x.extents[x.rank - 1], x.strides[x.rank - 1], w.strides[w.rank - 2]);
  return STATUS_OK;
}

/* x[*, m, k], y[*, m, n], index[*, m] in the result [*, g, k, n]. */
status cuda_prepare_grouped_outer(const cuda_call *c) {
  rt_view x = rt_task_operand(c->plan, c->task, 0), y = rt_task_operand(c->plan, c->task, 1);
  rt_view index = rt_task_operand(c->plan, c->task, 2);
  uint32_t rank = c->result->rank, groups = rank - 3;
  cg_matmul m = {.c = cuda_place_result(c), .grouped = true, .by_depth = true};
  int from[IR_MAX_RANK];
  m.n_groups = c->whole[groups];
  m.first_group = c->offset[groups];
  m.index_step = index.strides[index.rank - 1];
  rt_align_with(x.rank - 2, groups, rank - 2, x.rank - 1, from);
  m.a = cuda_place(c, 0, from);
  rt_align_with(y.rank - 2, groups, rank - 1, y.rank - 1, from);
  m.b = cuda_place(c, 1, from);
  rt_align(index.rank - 1, groups, from);
  m.index = cuda_place(c, 2, from);
  cuda_set_indexed(c, 0, m.n_groups + 1);
  write_product(c, &m, true, x.extents[x.rank - 2], x.strides[x.rank - 2], y.strides[y.rank - 2]);
  return STATUS_OK;
}

/* ---- sdpa ---- */
/* The batch of operand k, then its own two dimensions; rows, columns: those the result has too. */
static cg_view place_side(const cuda_call *c, uint32_t k, bool rows, bool columns) {
  rt_view x = rt_task_operand(c->plan, c->task, k);
  uint32_t rank = c->result->rank;
  int from[IR_MAX_RANK];
  rt_align(x.rank - 2, rank - 2, from);
  if (rows) from[rank - 2] = (int)x.rank - 2;
  if (columns) from[rank - 1] = (int)x.rank - 1;
  cg_view v = cuda_place(c, k, from);
  v.strides[rank - 2] = x.strides[x.rank - 2];
  v.strides[rank - 1] = x.strides[x.rank - 1];
  return v;
}

status cuda_prepare_sdpa(const cuda_call *c) {
  const rt_attr *scale = rt_task_attr(c->task, "scale");
  rt_view q = rt_task_operand(c->plan, c->task, 0), k = rt_task_operand(c->plan, c->task, 1);
  uint32_t rank = c->result->rank;
  cg_sdpa s = {.rank = rank,
               .keys = k.extents[k.rank - 2],
               .width = q.extents[q.rank - 1],
               .out = cuda_place_result(c),
               .q = place_side(c, 0, true, false),
               .k = place_side(c, 1, false, false),
               .v = place_side(c, 2, false, true),
               .causal = rt_task_int(c->task, "causal") != 0,
               .first = c->offset[rank - 2]};
  for (uint32_t d = 0; d < rank; d++) s.extents[d] = c->result->extents[d];
  s.keeps_lse = c->task->n_more > 0;
  if (s.keeps_lse) s.lse = cuda_place_more(c, 1); /* it does not have the last dimension */
  s.scale =
      scale->given ? ir_number_as_f64(rt_task_number(c->task, "scale")) : 1 / sqrt((double)s.width);
  cg_write_sdpa(&c->kernel->code, &s);
  return STATUS_OK;
}

/* ---- sdpa_backward ---- */
/* `view` in the space of cg_sdpa_backward; of_keys: it has the heads of k. */
static cg_view place_gradient(cg_view view, const rt_view *v, bool columns, bool of_keys,
                              int64_t group) {
  cg_view to = {.start = view.start, .dtype = view.dtype, .align = view.align};
  uint32_t row = v->rank - 1 - columns, n = row ? row - 1 : 0;
  int64_t head = row ? v->strides[row - 1] : 0;
  for (uint32_t d = 0; d < n; d++) to.strides[d] = v->strides[d];
  to.strides[n] = of_keys ? head : head * group;
  to.strides[n + 1] = of_keys ? 0 : head;
  to.strides[n + 2] = v->strides[row];
  to.strides[n + 3] = columns ? v->strides[row + 1] : 0;
  return to;
}

static cg_view gradient_operand(const cuda_call *c, uint32_t k, int64_t group) {
  rt_view x = rt_task_operand(c->plan, c->task, k);
  return place_gradient(cuda_place_start(c, k), &x, k != 4, k == 1 || k == 2, group);
}

static cg_view gradient_result(const cuda_call *c, uint32_t k, int64_t group) {
  if (k >= rt_task_n_results(c->task)) return (cg_view){0};
  cg_view v = k ? cuda_place_more(c, k) : cuda_place_result(c);
  return place_gradient(v, &c->plan->views[rt_task_result(c->task, k)], true, k > 0, group);
}

status cuda_prepare_sdpa_backward(const cuda_call *c) {
  rt_view q = rt_task_operand(c->plan, c->task, 0), k = rt_task_operand(c->plan, c->task, 1);
  rt_view v = rt_task_operand(c->plan, c->task, 2);
  const rt_attr *scale = rt_task_attr(c->task, "scale");
  uint32_t rank = q.rank, n = rank > 2 ? rank - 3 : 0;
  int64_t heads = rank > 2 ? k.extents[n] : 1;
  int64_t group = rank > 2 && heads ? q.extents[n] / heads : 1;
  if (n + 4 > IR_MAX_RANK)
    return fail(STATUS_BAD_PROGRAM, "sdpa_backward: there are at most %d axes", IR_MAX_RANK - 1);
  cg_sdpa_backward s = {.rank = n + 4,
                        .queries = q.extents[rank - 2],
                        .keys = k.extents[rank - 2],
                        .width = q.extents[rank - 1],
                        .value_width = v.extents[rank - 1],
                        .group = group,
                        .n_gradients = rt_task_n_results(c->task),
                        .causal = rt_task_int(c->task, "causal") != 0};
  for (uint32_t d = 0; d < n; d++) s.extents[d] = q.extents[d];
  s.extents[n] = heads;
  s.extents[n + 1] = group;
  cg_view *in[] = {&s.q, &s.k, &s.v, &s.out, &s.lse, &s.dout}, *out[] = {&s.dq, &s.dk, &s.dv};
  for (uint32_t i = 0; i < 6; i++) *in[i] = gradient_operand(c, i, group);
  for (uint32_t i = 0; i < 3; i++) *out[i] = gradient_result(c, i, group);
  s.scale =
      scale->given ? ir_number_as_f64(rt_task_number(c->task, "scale")) : 1 / sqrt((double)s.width);
  cg_write_sdpa_backward(&c->kernel->code, &s);
  return STATUS_OK;
}
