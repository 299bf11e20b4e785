/* Views: other extents and strides for the memory of the operand. */
#include "bind/internal.h"

typedef struct viewing {
  const rt_view *x;
  const rt_attr *attrs;
  const ir_op_data *op;
  bind_shape s; /* the result */
} viewing;

static const rt_attr *attr(const viewing *w, const char *name) {
  return &w->attrs[ir_op_attr(w->op, name) - w->op->attrs];
}

static uint32_t position(int64_t dim, uint32_t rank) {
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

static void take(viewing *w, uint32_t from) {
  w->s.extents[w->s.view.rank] = w->x->extents[from];
  w->s.strides[w->s.view.rank++] = w->x->strides[from];
}

static void insert(viewing *w, int64_t extent) {
  w->s.extents[w->s.view.rank] = extent;
  w->s.strides[w->s.view.rank++] = 0;
}

static void inserted(viewing *w) {
  const rt_attr *axes = attr(w, "axes");
  uint32_t from = 0;
  for (uint32_t i = 0; i < axes->len; i++) {
    if (axes->list[i]) insert(w, 1);
    else take(w, from++);
  }
}

static void squeezed(viewing *w) {
  const rt_attr *dims = attr(w, "dims");
  uint32_t gone = 0;
  for (uint32_t i = 0; i < dims->len; i++) gone |= 1u << position(dims->list[i], w->x->rank);
  for (uint32_t i = 0; i < w->x->rank; i++) {
    if (!(gone >> i & 1)) take(w, i);
  }
}

static void expanded(viewing *w) {
  const rt_attr *shape = attr(w, "shape");
  uint32_t fresh = shape->len - w->x->rank;
  for (uint32_t i = 0; i < shape->len; i++) {
    bool keeps = i >= fresh && (shape->list[i] == -1 || w->x->extents[i - fresh] != 1);
    if (keeps) take(w, i - fresh);
    else insert(w, shape->list[i] == -1 ? 1 : shape->list[i]);
  }
}

static void permuted(viewing *w) {
  uint32_t rank = w->x->rank;
  bool transpose = w->op->code == IR_OP_TRANSPOSE;
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t from = i;
    if (transpose && i + 2 >= rank) from = i + 1 == rank ? i - 1 : i + 1;
    if (!transpose) from = position(attr(w, "order")->list[i], rank);
    take(w, from);
  }
}

static int64_t clamp_bound(int64_t bound, int64_t n) {
  if (bound < 0) bound += n;
  return bound < 0 ? 0 : bound > n ? n : bound;
}

static void sliced(viewing *w) {
  const rt_attr *starts = attr(w, "starts"), *stops = attr(w, "stops"), *steps = attr(w, "steps");
  int64_t bytes = (int64_t)ir_dtype_size_bytes(w->x->dtype);
  for (uint32_t i = 0; i < w->x->rank; i++) {
    int64_t n = w->x->extents[i], step = steps->given ? steps->list[i] : 1;
    int64_t start = clamp_bound(starts->list[i], n), span = clamp_bound(stops->list[i], n) - start;
    take(w, i);
    w->s.extents[i] = span > 0 ? span / step + (span % step != 0) : 0;
    w->s.strides[i] *= step;
    /* mutant: plan_view_at_0 */
    if (span > 0) w->s.view.offset_bytes += start * w->x->strides[i] * bytes;
  }
}

/* Do dimensions [from, to) of `x` lie in memory as one dimension does? */
static bool are_one(const bind_shape *x, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i + 1 < to; i++)
    if (x->strides[i] != x->extents[i + 1] * x->strides[i + 1]) return false;
  return true;
}

/* The strides of the result, whose extents are known. Dimensions of both sides that have the same elements belong
 * together; where several are merged they must lie in memory as one. Those of one position do not count. */
static bool find_strides(viewing *w) {
  bind_shape x = {.view.rank = 0};
  uint32_t from = 0, to = 0, rank = w->s.view.rank;
  for (uint32_t i = 0; i < w->x->rank; i++) {
    if (w->x->extents[i] == 1) continue;
    x.extents[x.view.rank] = w->x->extents[i];
    x.strides[x.view.rank++] = w->x->strides[i];
  }
  while (from < x.view.rank) {
    uint32_t from_end = from + 1, to_end = to;
    int64_t have = x.extents[from], n = 1;
    while (n != have) {
      if (n < have) n *= w->s.extents[to_end++];
      else have *= x.extents[from_end++];
    }
    if (!are_one(&x, from, from_end)) return false;
    int64_t stride = x.strides[from_end - 1];
    for (uint32_t i = to_end; i-- > to; stride *= w->s.extents[i]) w->s.strides[i] = stride;
    from = from_end;
    to = to_end;
  }
  for (; to < rank; to++) w->s.strides[to] = 1;
  return true;
}

static int64_t count(const int64_t *extents, uint32_t rank) {
  int64_t n = 1;
  for (uint32_t i = 0; i < rank; i++) n *= extents[i];
  return n;
}

/* The extents are those of the destination's type. */
static bool reshaped(binder *b, const ir_instr_data *d, viewing *w) {
  ir_axis dims[IR_MAX_RANK];
  const char *name = ir_tensor_name(b->h, d->tensor);
  w->s.view.rank = ir_tensor_dims(b->h, d->tensor, dims);
  for (uint32_t i = 0; i < w->s.view.rank; i++) {
    if (!bind_eval(b, d, ir_axis_size(b->h, dims[i]), &w->s.extents[i])) return false;
    w->s.strides[i] = 1;
  }
  int64_t n = count(w->s.extents, w->s.view.rank), have = count(w->x->extents, w->x->rank);
  if (n != have)
    return bind_error(b, d, "'%s' has %lld elements, but what it reshapes has %lld", name,
                      (long long)n, (long long)have);
  if (n == 0 || find_strides(w)) return true;
  return bind_error(b, d, "'%s' is no view: what it merges is not contiguous in memory", name);
}

static void find_shape(viewing *w) {
  if (w->op->code == IR_OP_BROADCAST) inserted(w);
  else if (w->op->code == IR_OP_SQUEEZE) squeezed(w);
  else if (w->op->code == IR_OP_EXPAND) expanded(w);
  else if (w->op->code == IR_OP_SLICE) sliced(w);
  else permuted(w);
}

/* Does the view have the extents of the destination's type? */
static bool has_type(binder *b, const ir_instr_data *d, const bind_shape *s) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(b->h, d->tensor, dims);
  const char *name = ir_tensor_name(b->h, d->tensor);
  if (rank != s->view.rank) {
    return bind_error(b, d, "'%s' has rank %u, but the view has %u", name, rank, s->view.rank);
  }
  for (uint32_t i = 0; i < rank; i++) {
    int64_t want;
    if (!bind_eval(b, d, ir_axis_size(b->h, dims[i]), &want)) return false;
    if (want == s->extents[i]) continue;
    return bind_error(b, d, "extent %u of '%s' is %lld, but the view has %lld", i, name,
                      (long long)want, (long long)s->extents[i]);
  }
  return true;
}

bool bind_view(binder *b, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(b->h, d->op);
  b->absent[d->tensor.id] |= b->absent[op->operands[0].id];
  if (b->absent[d->tensor.id]) return true;
  rt_operand x;
  rt_task task = {.code = op->code};
  if (!bind_operand(b, d, 0, op->operands[0], &x) || !bind_attrs(b, d, op, &task)) return false;
  viewing w = {.x = bind_view_at(b, x.view), .attrs = task.attrs, .op = op};
  w.s.view = *w.x;
  w.s.view.rank = 0;
  bool reshape = ir_op_info_of(op->code)->family == IR_FAMILY_RESHAPE;
  if (reshape && !reshaped(b, d, &w)) return false;
  if (!reshape) find_shape(&w);
  if (!has_type(b, d, &w.s)) return false;
  bind_tensor(b, d->tensor, &w.s);
  b->turns[d->tensor.id] = b->turns[op->operands[0].id];
  return true;
}
