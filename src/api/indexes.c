/* Inputs that hold indexes: which axes they index, so that values drawn for them are in range. */
#include "api/api.h"
#include "ir/host.h"

typedef struct index_call {
  const weir_shapes *shapes;
  const ir_env *env;
  ir_tensor input;
  int64_t bound; /* 0: it indexes nothing */
} index_call;

static bool is_indexed(ir_opcode code) {
  return code == IR_OP_GATHER || code == IR_OP_SCATTER || code == IR_OP_INDEX_SELECT ||
         code == IR_OP_ONE_HOT || code == IR_OP_UPDATE || code == IR_OP_GROUP_INDEX ||
         code == IR_OP_GROUPED_MATMUL || code == IR_OP_GROUPED_OUTER;
}

/* The elements of the result are elements of the operand, as they are. */
static bool only_moves(ir_opcode code) {
  ir_family f = ir_op_info_of(code)->family;
  return f == IR_FAMILY_SET || f == IR_FAMILY_SELECT || ir_op_is_view(code);
}

/* How many positions at the end of the axis an update cannot begin at. */
static int64_t taken(const ir_env *env, const ir_op_data *op, int64_t dim) {
  int64_t extents[IR_MAX_RANK];
  uint32_t rank;
  if (op->code != IR_OP_UPDATE || !ir_env_shape(env, ir_op_operand(op, "src"), extents, &rank))
    return 0;
  return extents[dim] > 0 ? extents[dim] - 1 : 0;
}

static ir_tensor index_of(const ir_op_data *op) {
  if (op->code == IR_OP_GROUP_INDEX) return ir_op_operand(op, "lengths");
  return ir_op_operand(op, op->code == IR_OP_UPDATE ? "at" : "index");
}

/* The index of a grouped product is that of a group, or the number of groups for "none". */
static int64_t n_indexes(const ir_env *env, const ir_op_data *op) {
  int64_t extents[IR_MAX_RANK];
  uint32_t rank;
  if (!ir_env_shape(env, ir_op_operand(op, "weight"), extents, &rank)) return 1;
  return extents[rank - 3] + 1;
}

/* If all lengths are below it, their sum is at most n. */
static int64_t length_bound(const ir_env *env, const ir_op_data *op) {
  int64_t extents[IR_MAX_RANK], n;
  uint32_t rank;
  bool known = ir_env_eval(env, ir_op_attr(op, "n")->scalar, &n) &&
               ir_env_shape(env, ir_op_operand(op, "lengths"), extents, &rank);
  return known && extents[rank - 1] > 0 ? n / extents[rank - 1] + 1 : 1;
}

/* The size of the axis that `op` indexes. If it differs between iterations of a host program, it has no
 * value here: then 0 is the only index that is surely in range. */
static int64_t indexed_size(const ir_env *env, const ir_op_data *op) {
  int64_t extents[IR_MAX_RANK], n;
  uint32_t rank;
  if (op->code == IR_OP_GROUPED_MATMUL) return n_indexes(env, op);
  if (op->code == IR_OP_GROUP_INDEX) return length_bound(env, op);
  if (op->code == IR_OP_GROUPED_OUTER)
    return ir_env_eval(env, ir_op_attr(op, "n")->scalar, &n) ? n + 1 : 1;
  if (op->code == IR_OP_ONE_HOT) return ir_env_eval(env, ir_op_attr(op, "n")->scalar, &n) ? n : 1;
  int64_t dim = ir_op_attr(op, "dim")->i;
  if (!ir_env_shape(env, ir_op_operand(op, "x"), extents, &rank)) return 1;
  if (dim < 0) dim += rank;
  check(dim >= 0 && dim < rank);
  return extents[dim] - taken(env, op, dim);
}

/* The least size among the axes that `input` indexes. `from` says where the elements of each tensor come
 * from. */
static int64_t least_size(const ir_env *env, const ir_op *ops, uint32_t n, const ir_tensor *from,
                          ir_tensor input) {
  bool found = false;
  int64_t least = 0;
  for (uint32_t i = 0; i < n; i++) {
    const ir_op_data *op = ir_op_at(env->func, ops[i]);
    if (!is_indexed(op->code) || !IR_SAME(from[index_of(op).id], input)) continue;
    int64_t size = indexed_size(env, op);
    if (!found || size < least) least = size;
    found = true;
  }
  return least;
}

static ir_tensor *own_sources(const ir_func *f, arena *scratch) {
  ir_tensor *from = ARENA_ARRAY(scratch, f->tensors.len, ir_tensor);
  for (uint32_t i = 0; i < f->tensors.len; i++) from[i] = (ir_tensor){i};
  return from;
}

static void follow(ir_tensor *from, const ir_op_data *op) {
  if (only_moves(op->code)) from[op->result.id] = from[op->operands[0].id];
}

static int64_t bound_in_fusion(const ir_env *env, ir_tensor input, arena *scratch) {
  const ir_func *f = env->func;
  ir_tensor *from = own_sources(f, scratch);
  for (uint32_t i = 0; i < f->order.len; i++) follow(from, ir_op_at(f, f->order.data[i]));
  return least_size(env, f->order.data, f->order.len, from, input);
}

/* ---- host programs ---- */
typedef struct host_walk {
  ir_tensor *from;
  ir_tensor *buffer; /* of which a tensor is a slice, or itself */
  VEC(ir_op) ops;    /* that compute */
  arena *scratch;
} host_walk;

static void visit(void *context, ir_func *h, ir_instr at, uint32_t depth) {
  (void)depth;
  host_walk *w = context;
  const ir_instr_data *d = ir_instr_at(h, at);
  if (d->kind == IR_SELECT || d->kind == IR_SHARD) {
    w->from[d->tensor.id] = w->from[d->from.id];
    w->buffer[d->tensor.id] = w->buffer[d->from.id];
  }
  if (d->kind == IR_VIEW || d->kind == IR_COMPUTE) follow(w->from, ir_op_at(h, d->op));
  if (d->kind == IR_COMMUNICATE && d->from.id && d->tensor.id)
    w->from[d->tensor.id] = w->from[d->from.id];
  if (d->tensor.id) w->from[w->buffer[d->tensor.id].id] = w->from[d->tensor.id];
  if (d->kind == IR_COMPUTE) vec_push(w->scratch, &w->ops, d->op);
  for (uint32_t i = 0; d->kind == IR_LAUNCH && i < d->body.len; i++) {
    ir_op op = ir_instr_at(h, d->body.data[i])->op;
    follow(w->from, ir_op_at(h, op));
    vec_push(w->scratch, &w->ops, op);
  }
}

static int64_t bound_in_host(const ir_env *env, ir_tensor input, arena *scratch) {
  host_walk w = {.from = own_sources(env->func, scratch), .scratch = scratch};
  w.buffer = own_sources(env->func, scratch);
  ir_host_walk(env->func, visit, &w);
  return least_size(env, w.ops.data, w.ops.len, w.from, input);
}

/* The fusion's inputs have the shapes of the host program's. */
static status bind_fusion(const index_call *c, ir_func *fusion, ir_env *env, arena *scratch) {
  ir_env_init(env, fusion, scratch);
  for (uint32_t i = 0; i < fusion->inputs.len; i++) {
    int64_t extents[IR_MAX_RANK];
    uint32_t rank;
    TRY(api_shapes_input(c->shapes, i, extents, &rank));
    if (!ir_bind_shape(env, fusion->inputs.data[i], extents, rank, "the host program"))
      return STATUS_BAD_PROGRAM;
  }
  return STATUS_OK;
}

static uint32_t position_of(const ir_func *f, ir_tensor input) {
  uint32_t i = 0;
  while (i < f->inputs.len && !IR_SAME(f->inputs.data[i], input)) i++;
  return i;
}

/* A host program has the bounds of its fusion, so that inputs made for either of them are the same. */
static status bound_body(arena *scratch, void *context) {
  index_call *c = context;
  const ir_func *f = c->env->func;
  ir_func *fusion = f->host ? f->host->fusion : NULL;
  uint32_t i = position_of(f, c->input);
  if (i == f->inputs.len) return STATUS_OK;
  if (fusion) {
    ir_env env;
    TRY(bind_fusion(c, fusion, &env, scratch));
    c->bound = bound_in_fusion(&env, fusion->inputs.data[i], scratch);
  } else if (f->host) {
    c->bound = bound_in_host(c->env, c->input, scratch);
  } else {
    c->bound = bound_in_fusion(c->env, c->input, scratch);
  }
  return STATUS_OK;
}

weir_status weir_shapes_index_bound(const weir_shapes *s, weir_tensor input, int64_t *bound) {
  if (!s || !bound) return api_refuse("weir_shapes_index_bound: an argument is NULL");
  index_call c = {.shapes = s};
  c.input = api_shapes_tensor(s, input, &c.env);
  if (!c.input.id) return WEIR_BAD_USAGE;
  weir_status st = api_edit((weir_module *)c.env->func->module, bound_body, &c);
  if (st == WEIR_OK) *bound = c.bound;
  return st;
}
