/* Stream axes of results, and how cutting a result cuts its operands. */
#include "host/internal.h"

static ir_scalars *scalars_of(const lowering *l) { return &l->f->module->scalars; }

static bool refuse(lowering *l, ir_tensor t, const char *why) {
  diag_error(&l->f->module->errors, ir_tensor_at(l->f, t)->at, "the stream axis of '%s' %s",
             ir_tensor_name(l->f, t), why);
  return false;
}

static bool find_axis(ir_axes axes, ir_axis a, uint32_t *position) {
  for (uint32_t i = 0; i < axes.len; i++) {
    if (!IR_SAME(axes.data[i], a)) continue;
    *position = i;
    return true;
  }
  return false;
}

/* The number of dimensions before a position of the logical domain. */
static uint32_t dims_before(const ir_func *f, ir_axes logical, uint32_t position) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < position; i++) {
    /* mutant: dim_counts_reductions */
    n += ir_axis_at(f, logical.data[i])->kind != IR_AXIS_REDUCTION;
  }
  return n;
}

static ir_partition partition_of(const ir_func *f, const ir_transform_data *t) {
  if (t->kind == IR_CHUNK_SPLIT) {
    bool piece = ir_axis_at(f, t->in[0])->def.id != 0;
    return (ir_partition){
        .kind = IR_CHUNKS, .chunks = t->chunks, .n_chunks = t->n_chunks, .ends_early = piece};
  }
  /* mutant: split_taken_for_outer */
  return (ir_partition){.kind = t->kind == IR_SPLIT ? IR_CHUNK : IR_PARTS, .size = t->factor};
}

static bool is_split(ir_transform_kind k) {
  return k == IR_SPLIT || k == IR_OUTER_SPLIT || k == IR_CHUNK_SPLIT;
}

/* The way from a stream axis up to the dimension it cuts. */
typedef struct axis_path {
  uint32_t position; /* of the dimension in the logical domain */
  uint32_t depth;    /* how many stream axes cut it before this one */
  uint32_t splits;   /* those on the way of which it is in the outer part */
  ir_scalar piece;   /* positions per step of the axis */
  bool unequal;      /* one of those splits is into chunks */
  ir_scalar length;  /* positions that the axis goes over: the dimension, or what is left of it */
  bool swizzled;
  uint32_t swizzle_axis;
} axis_path;

/* Goes up one split. From its outer part, pieces grow by the size of the inner part. Its inner part is what
 * the outer axis leaves, which is well defined if that is a stream too. */
static bool climb(lowering *l, ir_tensor t, ir_axis a, ir_axis *at, axis_path *path) {
  const ir_func *f = l->f;
  ir_transform def = ir_axis_at(f, *at)->def;
  if (def.id == 0) return refuse(l, t, "does not come from one of its dimensions");
  const ir_transform_data *x = ir_transform_at(f, def);
  if (x->kind == IR_MERGE) return refuse(l, t, "comes from merged axes, which cannot be streamed");
  /* mutant: swizzle_needs_several */
  bool placed = l->shard || ir_tensor_at(f, t)->mesh.id; /* if only on one device */
  if (x->kind == IR_SWIZZLE && (!placed || !IR_SAME(*at, a)))
    return refuse(l, t, "is swizzled, which needs several devices");
  if (x->kind == IR_SWIZZLE) {
    path->swizzled = true;
    path->swizzle_axis = x->mesh_axis;
    *at = x->in[0];
    return true;
  }
  if (!is_split(x->kind)) return refuse(l, t, "does not come from one of its dimensions");
  bool inner = IR_SAME(x->out[1], *at);
  if (inner && IR_SAME(*at, a)) return refuse(l, t, "is the inner part of a split");
  ir_mark_kind outside = ir_axis_at(f, x->out[0])->mark.kind;
  bool repeated = ir_axis_at(f, x->out[0])->kind == IR_AXIS_BROADCAST; /* on every device */
  if (inner && outside != IR_MARK_STREAM && (outside != IR_MARK_MESH || repeated)) {
    return refuse(l, t, "lies inside an axis that is neither streamed nor placed");
  }
  if (!inner) {
    ir_scalar step = ir_axis_size(f, x->out[1]);
    path->unequal = path->unequal || x->kind == IR_CHUNK_SPLIT;
    path->piece = ir_scalar_mul(scalars_of(l), path->piece, step);
    if (path->length.id) path->length = ir_scalar_mul(scalars_of(l), path->length, step);
    path->splits++;
  }
  if (inner && path->depth == 0) path->length = ir_axis_size(f, *at);
  path->depth += inner;
  *at = x->in[0];
  return true;
}

static bool find_path(lowering *l, ir_tensor t, ir_axis a, axis_path *path) {
  *path = (axis_path){.piece = ir_scalar_const(scalars_of(l), 1)};
  ir_axes logical = ir_tensor_at(l->f, t)->now.logical;
  for (ir_axis at = a; !find_axis(logical, at, &path->position);) {
    if (!climb(l, t, a, &at, path)) return false;
  }
  if (path->depth == 0) path->length = ir_axis_size(l->f, logical.data[path->position]);
  if (path->unequal && path->splits > 1) {
    return refuse(l, t, "mixes chunks of different lengths with other splits");
  }
  return true;
}

static ir_partition partition_along(const lowering *l, ir_axis a, const axis_path *path) {
  ir_axis split = a;
  if (path->swizzled) split = ir_transform_at(l->f, ir_axis_at(l->f, a)->def)->in[0];
  ir_transform def = ir_axis_at(l->f, split)->def;
  if (path->splits == 1) return partition_of(l->f, ir_transform_at(l->f, def));
  ir_scalars *s = &l->f->module->scalars; /* an empty dimension still has pieces of one position */
  ir_scalar size = ir_scalar_max(s, path->piece, ir_scalar_const(s, 1));
  return (ir_partition){.kind = IR_CHUNK, .size = size};
}

static bool describe(lowering *l, ir_tensor t, ir_axis a, stream_axis *s) {
  const ir_func *f = l->f;
  const ir_tensor_data *d = ir_tensor_at(f, t);
  axis_path path;
  if (!find_path(l, t, a, &path)) return false;
  *s =
      (stream_axis){.axis = a, .logical = path.splits == 0 && path.depth == 0, .depth = path.depth};
  /* mutant: single_device_turns */
  s->swizzled = path.swizzled && l->shard && d->mesh.id && /* a device alone is its own neighbour */
                ir_mesh_size(ir_mesh_at(f, d->mesh), path.swizzle_axis) > 1;
  s->swizzle_axis = path.swizzle_axis;
  ir_axis from = d->now.logical.data[path.position];
  s->reduction = ir_axis_at(f, from)->kind == IR_AXIS_REDUCTION;
  bool rfactored = !IR_SAME(d->def, d->scheduled_def);
  if (s->reduction && rfactored) return refuse(l, t, "is a part of a reduction made by rfactor");
  s->dim = s->reduction ? path.position : dims_before(f, d->now.logical, path.position);
  s->partition = partition_along(l, a, &path);
  s->count = ir_axis_size(f, a);
  if (path.splits > 1 &&
      !path.swizzled) { /* uneven splits of splits may leave steps without any position */
    ir_scalar full = ir_partition_count(scalars_of(l), &s->partition, path.length);
    s->count = ir_scalar_min(scalars_of(l), s->count, full);
    s->cut_short = !IR_SAME(s->count, ir_axis_size(f, a));
  }
  s->slice = s->partition;
  return true;
}

/* Of two axes that cut one dimension, the one that cuts what the other leaves comes second, whatever
 * the order of the loop domain. */
static void order_cuts(stream_axes *axes) {
  for (uint32_t i = 0; i < axes->len; i++) {
    for (uint32_t k = i + 1; k < axes->len; k++) {
      stream_axis *a = &axes->data[i], *b = &axes->data[k];
      bool one_dimension = a->dim == b->dim && a->reduction == b->reduction;
      if (!one_dimension || a->depth <= b->depth) continue;
      stream_axis first = *b;
      *b = *a;
      *a = first;
    }
  }
}

bool host_stream_axes(lowering *l, ir_tensor t, stream_axes *result) {
  const ir_tensor_data *d = ir_tensor_at(l->f, t);
  result->len = 0;
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    ir_axis a = d->now.loop.data[i];
    if (ir_axis_at(l->f, a)->mark.kind != IR_MARK_STREAM) continue;
    if (result->len == HOST_MAX_NEST) return refuse(l, t, "is one too many: at most 8 nest");
    if (!describe(l, t, a, &result->data[result->len++])) return false;
  }
  order_cuts(result);
  return true;
}

/* ---- several results ---- */

/* Does every position of dimension `dim` of the result need its own slice of each operand that has it? */
static bool reads_in_groups(const lowering *l, const ir_op_data *op, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  ir_pair pairs[IR_MAX_RANK];
  (void)ir_tensor_dims(l->f, op->result, dims);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    uint32_t n = ir_map_pairs_defined(l->f, op, k, pairs);
    for (uint32_t i = 0; i < n; i++) {
      if (pairs[i].kind == IR_PAIR_GROUP && IR_SAME(pairs[i].consumer, dims[dim])) return true;
    }
  }
  return false;
}

static bool is_shared(const lowering *l, const ir_op_data *op, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(l->f, op->result, dims);
  for (uint32_t k = 1; k < ir_op_n_results(op); k++) {
    if (!ir_map_result_dim(l->f, op, k, dim)) return false;
  }
  bool inner = op->code == IR_OP_SDPA_BACKWARD && dim + 2 >= rank;
  return !inner && !reads_in_groups(l, op, dim);
}

void host_drop_unshared_streams(const lowering *l, const ir_op_data *op, stream_axes *axes) {
  uint32_t kept = 0;
  for (uint32_t q = 0; q < axes->len; q++) {
    const stream_axis *a = &axes->data[q];
    if (a->reduction || is_shared(l, op, a->dim)) axes->data[kept++] = *a;
  }
  axes->len = kept;
}

static bool same_stream(lowering *l, const stream_axis *a, const stream_axis *b) {
  return a->dim == b->dim && a->depth == b->depth && a->logical == b->logical &&
         a->swizzled == b->swizzled && host_same_partition(l, &a->slice, &b->slice) &&
         ir_func_equal(l->f, a->count, b->count) == IR_TRUE;
}

static bool has_common(lowering *l, const stream_axes *a, const stream_axes *b) {
  for (uint32_t i = 0; i < a->len; i++)
    for (uint32_t k = 0; k < b->len; k++)
      if (same_stream(l, &a->data[i], &b->data[k])) return true;
  return false;
}

bool host_check_results(lowering *l, const ir_op_data *op, const stream_axes *axes) {
  for (uint32_t k = 1; k < ir_op_n_results(op); k++) {
    stream_axes own;
    ir_tensor t = ir_op_result(op, k);
    if (!host_stream_axes(l, t, &own)) return false;
    host_drop_unshared_streams(l, op, &own);
    /* Streams that the first result cannot repeat are dropped. Of two that were written, neither is
     * preferred. */
    if (own.len == 0 || axes->len == 0 || has_common(l, &own, axes)) continue;
    diag_error(&l->f->module->errors, ir_tensor_at(l->f, t)->at,
               "the streams of '%s' are not those of '%s': all results of %s are made in the same "
               "loops; mark set(%s) instead",
               ir_tensor_name(l->f, t), ir_tensor_name(l->f, op->result),
               ir_op_info_of(op->code)->name, ir_tensor_name(l->f, t));
    return false;
  }
  return true;
}

/* ---- operands ---- */

/* The definition's axis that a stream axis cuts. After an rfactor the result has other axes, but the
 * same dimensions in the same order. */
static ir_axis defined_axis(const lowering *l, ir_tensor t, const stream_axis *s) {
  if (s->reduction) return ir_tensor_at(l->f, t)->defined.logical.data[s->dim];
  ir_axis dims[IR_MAX_RANK];
  (void)ir_tensor_dims(l->f, t, dims);
  return dims[s->dim];
}

static bool is_cut_again(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  const stream_axes *all = &l->ops[ir_tensor_at(l->f, op->result)->def.id].axes;
  uint32_t n = 0;
  for (uint32_t q = 0; q < all->len; q++)
    n += !all->data[q].reduction && all->data[q].dim == s->dim;
  return n > 1;
}

/* A reshape makes one dimension of several. Equal parts of it are equal parts of the outermost of those:
 *   [6, 4] in 2 parts of [3, 4]  =>  [24] in 2 parts of [12] */
static ir_axis across_reshape(const lowering *l, const ir_op_data *op, const stream_axis *s,
                              ir_axis cut) {
  ir_axis root = ir_map_root(l->f, ir_tensor_at(l->f, op->result)->defined.root, cut);
  bool equal = ir_op_info_of(op->code)->family == IR_FAMILY_RESHAPE && root.id && s->depth == 0 &&
               !s->reduction && !s->swizzled && s->partition.kind == IR_PARTS &&
               s->partition.size.id;
  ir_axis sides[] = {cut, root};
  equal = equal && !is_cut_again(l, op, s);
  for (uint32_t i = 0; i < 2 && equal; i++) {
    ir_scalar size = ir_axis_size(l->f, sides[i]);
    /* mutant: reshape_uneven */
    equal = ir_func_divides(l->f, s->partition.size, size) == IR_TRUE;
  }
  return equal ? root : cut;
}

bool host_operand_dim(const lowering *l, const ir_op_data *op, uint32_t k, const stream_axis *s,
                      uint32_t *dim, bool *stretched) {
  ir_pair pairs[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  ir_axis cut = across_reshape(l, op, s, defined_axis(l, op->result, s));
  uint32_t n = ir_map_pairs_defined(l->f, op, k, pairs);
  for (uint32_t i = 0; i < n; i++) {
    bool one_to_one = pairs[i].kind == IR_PAIR_EXACT || pairs[i].kind == IR_PAIR_BROADCAST;
    if (!IR_SAME(pairs[i].consumer, cut) || !one_to_one) continue;
    ir_axes list = {dims, ir_tensor_dims(l->f, op->operands[k], dims)};
    /* mutant: operand_cut_like_result */
    check(find_axis(list, pairs[i].producer, dim));
    bool expanded = ir_axis_at(l->f, pairs[i].producer)->expanded.id != 0;
    /* mutant: operand_never_stretched */
    *stretched = pairs[i].kind == IR_PAIR_BROADCAST && !expanded;
    return true;
  }
  return false;
}

/* ---- what operations make of slices ---- */

bool host_drops(const lowering *l, const op_plan *plan, uint32_t q) {
  return plan->axes.data[q].logical && l->loop_drops[plan->loop[q]];
}

uint32_t host_dropped_dims(const lowering *l, const ir_op_data *op, uint32_t k) {
  const op_plan *plan = &l->ops[ir_tensor_at(l->f, op->result)->def.id];
  uint32_t mask = 0;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    uint32_t dim;
    bool stretched;
    if (!host_drops(l, plan, q)) continue;
    if (host_operand_dim(l, op, k, &plan->axes.data[q], &dim, &stretched)) mask |= 1u << dim;
  }
  return mask;
}

uint32_t host_dropped_result(const lowering *l, const op_plan *plan) {
  uint32_t mask = 0;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    if (host_drops(l, plan, q)) mask |= 1u << plan->axes.data[q].dim;
  }
  return mask;
}

static uint32_t rank_of(const lowering *l, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  return ir_tensor_dims(l->f, t, dims);
}

static bool is_cut(const lowering *l, const ir_op_data *op, uint32_t k, const stream_axis *s) {
  uint32_t dim;
  bool stretched;
  return host_operand_dim(l, op, k, s, &dim, &stretched);
}

static uint32_t attr_dim(const lowering *l, const ir_op_data *op) {
  int64_t dim = ir_op_attr(op, "dim")->i;
  return (uint32_t)(dim < 0 ? dim + rank_of(l, op->operands[0]) : dim);
}

static bool all_cut(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (!is_cut(l, op, k, s)) return false;
  }
  return true;
}

/* ---- may an iteration leave out dimension s->dim of the result? By the names of families.def ---- */
typedef bool drops_fn(const lowering *l, const ir_op_data *op, const stream_axis *s);

static bool drops_always(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  (void)l, (void)op, (void)s;
  return true;
}

static bool drops_cut(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  return is_cut(l, op, 0, s);
}

static bool drops_beside_dim(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  /* mutant: ordered_axis_dropped */
  return s->dim != attr_dim(l, op);
}

static bool drops_cut_beside_dim(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  return s->dim != attr_dim(l, op) && all_cut(l, op, s);
}

static bool drops_beside_last(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  return s->dim + 1 < rank_of(l, op->result);
}

static bool drops_beside_last_two(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  return s->dim + 2 < rank_of(l, op->result);
}

static bool drops_beside_last_three(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  return s->dim + 3 < rank_of(l, op->result);
}

static bool drops_maker(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  (void)l, (void)s;
  return op->code != IR_OP_IOTA && op->code != IR_OP_UNIFORM;
}

/* A lost row or column must leave a vector, not a smaller batch. */
static bool drops_matmul(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  uint32_t rank = rank_of(l, op->result);
  uint32_t ra = rank_of(l, op->operands[0]), rb = rank_of(l, op->operands[1]);
  uint32_t columns = rb > 1 ? 1 : 0, rows = ra > 1 ? 1 : 0;
  if (s->dim + columns + rows < rank) return true;
  return columns && s->dim + 1 == rank ? rb == 2 : ra == 2;
}

static drops_fn *const drops[] = {
#define HOST(drops, rewrite) drops_##drops
#define FAMILY(id, group, ir, shard, host, ...) [IR_FAMILY_##id] = host,
#include "ir/families.def"
};

bool host_can_drop(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  return !s->reduction && drops[ir_op_info_of(op->code)->family](l, op, s);
}

bool host_needs_offset(const lowering *l, const ir_op_data *op, const stream_axis *s) {
  uint32_t rank = rank_of(l, op->result);
  /* mutant: offset_forgotten */
  if (s->reduction) return false;
  switch (ir_family_info_of(op->code)->window) {
  case IR_WINDOW_NONE: return false;
  case IR_WINDOW_ALWAYS: return true;
  case IR_WINDOW_RESIZED: return !is_cut(l, op, 0, s);
  /* mutant: ordered_slice_alone */
  case IR_WINDOW_AT_DIM: return s->dim == attr_dim(l, op);
  /* mutant: one_hot_slice_alone */
  case IR_WINDOW_AT_LAST: return s->dim + 1 == rank;
  case IR_WINDOW_AT_GROUPS: return s->dim + 3 == rank;
  case IR_WINDOW_LOOKED_UP: return s->dim != attr_dim(l, op) && !all_cut(l, op, s);
  case IR_WINDOW_WRITTEN: return s->dim == attr_dim(l, op) || !all_cut(l, op, s);
  case IR_WINDOW_CAUSAL: return s->dim + 2 == rank && ir_op_attr(op, "causal")->i != 0;
  case IR_WINDOW_COUNTED: return op->code == IR_OP_IOTA || op->code == IR_OP_UNIFORM;
  }
  return false;
}
