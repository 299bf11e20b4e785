/* Slices and launches of a plan. */
#include "bind/internal.h"
#include "ir/infer.h"

bool bind_is_bound(binder *b, const ir_instr_data *d, ir_tensor t) {
  if (b->absent[t.id])
    return bind_error(b, d, "'%s' is not on device %lld", ir_tensor_name(b->h, t),
                      (long long)b->rank);
  return b->bound[t.id] || bind_error(b, d, "'%s' has no value here", ir_tensor_name(b->h, t));
}

static int64_t step_bytes(const rt_view *v, uint32_t dim) {
  return v->strides[dim] * (int64_t)ir_dtype_size_bytes(v->dtype);
}

static bool is_broadcast(const binder *b, ir_tensor t, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(b->h, t, dims);
  const ir_axis_data *a = ir_axis_at(b->h, dims[dim]);
  return a->kind == IR_AXIS_BROADCAST && a->expanded.id == 0;
}

bool bind_select(binder *b, const ir_instr_data *d) {
  int64_t index;
  uint32_t axis;
  if ((b->absent[d->tensor.id] = b->absent[d->from.id])) return true;
  if (!bind_is_bound(b, d, d->from) || !bind_eval_turning(b, d, d->index, &index, &axis))
    return false;
  const rt_view *from = &b->views[d->from.id];
  /* mutant: plan_index_on_broadcast */
  if (is_broadcast(b, d->from, d->dim)) index = 0, axis = 0;
  else if (b->watch) bind_watch_index(b, d->index, from->extents[d->dim]);
  if (index < 0 || index >= from->extents[d->dim]) {
    return bind_error(
        b, d, "index %lld is out of range: '%s' has %lld positions along dimension %u",
        (long long)index, ir_tensor_name(b->h, d->from), (long long)from->extents[d->dim], d->dim);
  }
  bind_shape s = bind_shape_of(from);
  /* mutant: plan_select_at_0 */
  s.view.offset_bytes += index * step_bytes(from, d->dim);
  s.view.rank--;
  for (uint32_t i = d->dim; i < s.view.rank; i++) {
    s.extents[i] = s.extents[i + 1];
    s.strides[i] = s.strides[i + 1];
  }
  bind_tensor(b, d->tensor, &s);
  bind_turn_part(b, d->tensor, d->from, axis, from->extents[d->dim], step_bytes(from, d->dim));
  return true;
}

static int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }

static bool no_piece(binder *b, const ir_instr_data *d, int64_t index) {
  return bind_error(b, d, "there is no piece %lld of '%s' along dimension %u", (long long)index,
                    ir_tensor_name(b->h, d->from), d->dim);
}

static bool chunks_fit(binder *b, const ir_instr_data *d, int64_t n) {
  int64_t total = 0;
  for (uint32_t i = 0; i < d->partition.n_chunks; i++) {
    if (__builtin_add_overflow(total, d->partition.chunks[i], &total)) total = INT64_MAX;
  }
  return total == n || (total > n && ir_host_is_piece(b->h, d->from, d->dim)) ||
         bind_error(b, d, "the chunks of '%s' along dimension %u: %lld must equal %lld",
                    ir_tensor_name(b->h, d->from), d->dim, (long long)total, (long long)n);
}

/* Piece `index` of n positions as [begin, begin + length). */
static bool piece(binder *b, const ir_instr_data *d, int64_t n, int64_t index, int64_t *begin,
                  int64_t *length) {
  const ir_partition *p = &d->partition;
  int64_t size = 0, end;
  if (index < 0) return no_piece(b, d, index);
  if (p->kind == IR_CHUNKS) {
    if (index >= p->n_chunks) return no_piece(b, d, index);
    if (!chunks_fit(b, d, n)) return false;
    int64_t at = 0;
    /* mutant: plan_chunks_equal */
    for (int64_t i = 0; i < index; i++) at += p->chunks[i];
    *begin = at_most(at, n);
    *length = at_most(at + p->chunks[index], n) - *begin;
    return true;
  }
  if (!bind_eval(b, d, p->size, &size)) return false;
  if (size == 0 && n == 0) size = 1;
  if (size < 1) {
    return bind_error(b, d, "a piece of '%s' cannot have %lld positions",
                      ir_tensor_name(b->h, d->from), (long long)size);
  }
  if (p->kind == IR_PARTS) size = n / size + (n % size != 0);
  if (__builtin_mul_overflow(index, size, begin)) *begin = n;
  *begin = at_most(*begin, n);
  if (__builtin_add_overflow(*begin, size, &end)) end = n;
  /* mutant: plan_short_piece_dropped */
  *length = at_most(end, n) - *begin;
  return true;
}

bool bind_shard(binder *b, const ir_instr_data *d) {
  if ((b->absent[d->tensor.id] = b->absent[d->from.id])) return true;
  int64_t index, begin = 0, length = 0;
  uint32_t axis;
  if (!bind_is_bound(b, d, d->from) || !bind_eval_turning(b, d, d->index, &index, &axis))
    return false;
  const rt_view *from = &b->views[d->from.id];
  if (!piece(b, d, from->extents[d->dim], index, &begin, &length)) return false;
  if (b->watch) bind_watch_piece(b, d, from->extents[d->dim], begin, length);
  bind_shape s = bind_shape_of(from);
  /* mutant: plan_shard_at_0 */
  s.view.offset_bytes += begin * step_bytes(from, d->dim);
  s.extents[d->dim] = length;
  bind_tensor(b, d->tensor, &s);
  bool even = d->partition.kind != IR_CHUNKS && length > 0 && begin == index * length &&
              from->extents[d->dim] % length == 0;
  bind_turn_part(b, d->tensor, d->from, axis, even ? from->extents[d->dim] / length : 0,
                 length * step_bytes(from, d->dim));
  return true;
}

/* ---- launches ---- */

typedef struct view_key {
  const binder *b;
  const rt_view *v;
} view_key;

static bool same_view(const void *context, uint32_t id) {
  const view_key *k = context;
  const rt_view *a = k->v, *v = bind_view_at(k->b, id - 1);
  return a->buffer == v->buffer && a->offset_bytes == v->offset_bytes && a->rank == v->rank &&
         a->extents == v->extents && a->strides == v->strides;
}

uint32_t bind_add_view(binder *b, ir_tensor t) {
  const rt_view *v = &b->views[t.id];
  if (v->buffer == BIND_LOCAL) {
    vec_push(&b->scratch, &b->locals, *v);
    return BIND_LOCAL_VIEW + b->locals.len - 1;
  }
  view_key key = {b, v};
  uint64_t hash = hash_mix(hash_mix(0, v->buffer), (uint64_t)v->offset_bytes);
  hash = hash_mix(hash_mix(hash, (uintptr_t)v->extents), (uintptr_t)v->strides);
  uint32_t found = table_find(&b->view_index, hash, same_view, &key);
  uint32_t id = found ? found - 1 : bind_row_add(b, &b->all_views, v);
  if (!found) table_add(&b->view_index, hash, id + 1);
  bind_turn_note(b, t, id, found != 0);
  return id;
}

bool bind_operand(binder *b, const ir_instr_data *d, uint32_t k, ir_tensor t, rt_operand *out) {
  *out = (rt_operand){.sliced = d->sliced ? d->sliced[k] : 0};
  if (t.id == 0) return true;
  const ir_tensor_data *data = ir_tensor_at(b->h, t);
  if (data->kind == IR_TENSOR_CONST) {
    out->kind = RT_OPERAND_NUMBER;
    out->number = &data->number; /* the host program outlives the plan */
    int64_t value;
    if (data->value.id == 0) return true;
    if (!bind_eval(b, d, data->value, &value)) return false;
    ir_number number = ir_number_int(value);
    out->number = arena_copy(b->memory, &number, sizeof number);
    return true;
  }
  if (!bind_is_bound(b, d, t)) return false;
  out->kind = RT_OPERAND_VIEW;
  out->view = bind_add_view(b, t);
  return true;
}

static bool bind_attr(binder *b, const ir_instr_data *d, const ir_param *p, const ir_attr *a,
                      rt_attr *out) {
  *out = (rt_attr){.given = a->given, .i = a->i, .len = a->len, .list = a->ints};
  if (p->kind == IR_PARAM_NUMBER) {
    *out = (rt_attr){.given = a->given, .is_float = a->number.is_float, .i = a->number.i};
    out->f = ir_number_as_f64(a->number);
  }
  if (p->kind == IR_PARAM_SCALAR && a->scalar.id) return bind_eval(b, d, a->scalar, &out->i);
  if (p->kind != IR_PARAM_SCALARS) return true;
  int64_t list[2 * IR_MAX_RANK];
  check(a->len <= 2 * IR_MAX_RANK);
  for (uint32_t i = 0; i < a->len; i++) {
    if (!bind_eval(b, d, a->scalars[i], &list[i])) return false;
    bool bound = ir_op_at(b->h, d->op)->code == IR_OP_SLICE;
    bool written = ir_scalar_is_const(&b->h->module->scalars, a->scalars[i], NULL);
    if (bound && !written && list[i] < 0) list[i] = 0; /* only written ones count from the end */
  }
  out->list = bind_list(b, list, a->len, NULL);
  return true;
}

static bool same_attrs(const rt_attr *a, const rt_attr *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!rt_attr_equal(&a[i], &b[i])) return false;
  }
  return true;
}

enum { MAX_ATTRS = 16 };

bool bind_attrs(binder *b, const ir_instr_data *d, const ir_op_data *op, rt_task *task) {
  const ir_op_info *info = ir_op_info_of(op->code);
  rt_attr attrs[MAX_ATTRS];
  const rt_attr **last = &b->attrs[d->op.id];
  uint32_t i = 0;
  check(info->n_attrs <= MAX_ATTRS);
  for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++) {
    if (p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS) continue;
    if (!bind_attr(b, d, p, &op->attrs[i], &attrs[i])) return false;
    i++;
  }
  if (!*last || !same_attrs(*last, attrs, i))
    *last = arena_copy(b->memory, attrs, i * sizeof *attrs);
  task->attrs = *last;
  return true;
}

bool bind_operands(binder *b, const ir_instr_data *d, const ir_op_data *op, arena *memory,
                   rt_task *task) {
  rt_operand *operands = ARENA_ARRAY(memory, op->n_operands, rt_operand);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (!bind_operand(b, d, k, op->operands[k], &operands[k])) return false;
  }
  task->operands = operands;
  task->n_operands = op->n_operands;
  return true;
}

/* False: reported. */
static bool bind_results(binder *b, const ir_instr_data *d, const ir_op_data *op, rt_task *task) {
  uint32_t more[RT_MAX_RESULTS];
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
    ir_tensor t = ir_op_result(op, k);
    if (!bind_is_bound(b, d, t)) return false;
    uint32_t view = bind_add_view(b, t);
    if (k) more[k - 1] = view;
    else task->result = view;
  }
  task->n_more = op->n_more;
  if (op->n_more) task->more = arena_copy(b->memory, more, op->n_more * sizeof *more);
  return true;
}

static bool results_empty(const binder *b, const rt_task *task) {
  for (uint32_t k = 0; k < rt_task_n_results(task); k++) {
    if (!rt_view_is_empty(bind_view_at(b, rt_task_result(task, k)))) return false;
  }
  return true;
}

static bool results_distinct(binder *b, const ir_instr_data *d, const rt_task *task) {
  const ir_op_data *op = ir_op_at(b->h, d->op);
  for (uint32_t k = 0; k < rt_task_n_results(task); k++) {
    if (rt_view_overlap(bind_view_at(b, rt_task_result(task, k))) == RT_APART) continue;
    return bind_error(b, d, "several elements of the destination '%s' share the same bytes",
                      ir_tensor_name(b->h, ir_op_result(op, k)));
  }
  return true;
}

void bind_put_launch(binder *b, ir_instr at, const rt_task *task) {
  rt_instr i = {.kind = RT_LAUNCH, .stream = (uint16_t)b->stream, .task = b->tasks.len};
  i.origin = at.id;
  bind_row_add(b, &b->tasks, task);
  bind_row_add(b, &b->instrs, &i);
  b->clocks[b->stream][b->stream] = ++b->positions[b->stream];
  for (uint32_t k = 0; k < rt_task_n_results(task); k++)
    bind_touch(b, bind_view_at(b, rt_task_result(task, k))->buffer);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    if (task->operands[k].kind != RT_OPERAND_VIEW) continue;
    bind_touch(b, bind_view_at(b, task->operands[k].view)->buffer);
  }
}

bool bind_compute(binder *b, ir_instr at, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(b->h, d->op);
  rt_task task = {.code = op->code};
  if (!bind_is_bound(b, d, d->tensor) || !bind_operands(b, d, op, b->memory, &task)) return false;
  if (!bind_attrs(b, d, op, &task) || !bind_results(b, d, op, &task)) return false;
  if (ir_op_info_of(op->code)->family == IR_FAMILY_POINTWISE) {
    task.compute = ir_infer_compute_dtype(b->h, op);
  }
  if (results_empty(b, &task)) return true; /* nothing to compute */
  if (!results_distinct(b, d, &task) || !bind_shapes_fit(b, d, &task)) return false;
  bind_put_launch(b, at, &task);
  return true;
}
