/* Matrix products whose operands are cut in ways that do not go together: which of them moves. */
#include <math.h>

#include "shard/internal.h"

/* How an operand is cut along a mesh axis. */
typedef enum role {
  ROLE_WHOLE,
  ROLE_FREE,    /* along its own rows or columns: so is the result */
  ROLE_REDUCED, /* along the inner dimension: devices have partial results */
  ROLE_BATCH,   /* along a dimension that both operands have */
  ROLE_OTHER,   /* in a way that nothing is known about */
} role;

typedef struct product {
  const ir_func *f;
  const ir_op_data *op;
  uint32_t mesh_axis;
  double devices;  /* along it */
  role roles[2];   /* of the operands */
  double bytes[3]; /* of operands and result, on a line of devices along the axis */
} product;

static role role_of(const ir_func *f, const ir_op_data *op, uint32_t k, uint32_t mesh_axis) {
  shard_placement p;
  ir_pair pairs[IR_MAX_RANK], others[IR_MAX_RANK];
  shard_placement_of(f, op->operands[k], &p);
  const shard_axis *a = &p.axes[mesh_axis];
  if (mesh_axis >= p.rank || a->kind != SHARD_SHARDED) return ROLE_WHOLE;
  uint32_t n = ir_map_pairs(f, op, k, pairs), m = ir_map_pairs(f, op, 1 - k, others);
  for (uint32_t i = 0; i < n; i++) {
    if (!IR_SAME(pairs[i].producer, a->logical) || a->swizzled) continue;
    if (ir_axis_at(f, pairs[i].consumer)->kind == IR_AXIS_REDUCTION) return ROLE_REDUCED;
    for (uint32_t j = 0; j < m; j++)
      if (IR_SAME(others[j].consumer, pairs[i].consumer)) return ROLE_BATCH;
    return ROLE_FREE;
  }
  return ROLE_OTHER;
}

/* False: not all extents are expected. */
static bool find_bytes(product *x, ir_tensor t, double *bytes) {
  ir_axis dims[IR_MAX_RANK];
  shard_placement p;
  uint32_t rank = ir_tensor_dims(x->f, t, dims);
  *bytes = (double)ir_dtype_size_bytes(ir_tensor_at(x->f, t)->dtype);
  for (uint32_t i = 0; i < rank; i++) {
    int64_t n;
    if (!ir_module_expects(x->f->module, ir_axis_size(x->f, dims[i]), &n)) return false;
    *bytes *= (double)n;
  }
  shard_placement_of(x->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    bool cut = k != x->mesh_axis && p.axes[k].kind == SHARD_SHARDED;
    if (cut) *bytes /= (double)ir_mesh_size(ir_mesh_at(x->f, p.mesh), k);
  }
  return true;
}

/* What each device receives if operand k, cut as it is, must be whole, or cut differently. */
static double gathered(const product *x, uint32_t k) {
  return x->roles[k] == ROLE_WHOLE ? 0 : x->bytes[k] * (x->devices - 1) / x->devices;
}
static double recut(const product *x, uint32_t k) { return gathered(x, k) / x->devices; }

/* Each device has rows of operand k, and of the result. */
static double cost_free(const product *x, uint32_t k) { return gathered(x, 1 - k); }

/* Partial results are reduced, and scattered if an operand wants the result cut. */
static double cost_reduced(const product *x) {
  double moved = 0, times = 2;
  for (uint32_t k = 0; k < 2; k++) {
    if (x->roles[k] != ROLE_FREE) continue;
    moved += recut(x, k);
    times = 1;
  }
  return moved + times * x->bytes[2] * (x->devices - 1) / x->devices;
}

/* What operand k says, by its role. */
static double cost_of(const product *x, uint32_t k) {
  return x->roles[k] == ROLE_FREE ? cost_free(x, k) : cost_reduced(x);
}

static bool has_streams(const ir_func *f, ir_tensor t) {
  return ir_axes_streamed(f, ir_tensor_at(f, t)->now.loop);
}

/* Streams say how pieces are to arrive: they are left alone. */
static bool is_open(const ir_func *f, const ir_op_data *op) {
  if (!ir_op_is_product(op->code) && !shard_may_turn(op)) return false;
  ir_mesh a = ir_tensor_at(f, op->operands[0])->mesh, b = ir_tensor_at(f, op->operands[1])->mesh;
  if (!a.id && !b.id) return false;
  if (a.id && b.id && !ir_mesh_same(ir_mesh_at(f, a), ir_mesh_at(f, b))) return false;
  return !has_streams(f, op->operands[0]) && !has_streams(f, op->operands[1]) &&
         !has_streams(f, op->result);
}

/* That of the operands; one without a mesh is wherever it is needed. */
static ir_mesh mesh_of(const ir_func *f, const ir_op_data *op) {
  ir_mesh a = ir_tensor_at(f, op->operands[0])->mesh;
  return a.id ? a : ir_tensor_at(f, op->operands[1])->mesh;
}

static bool open_axis(const ir_func *f, const ir_op_data *op, uint32_t mesh_axis, product *x) {
  *x = (product){.f = f, .op = op, .mesh_axis = mesh_axis};
  x->devices = (double)ir_mesh_size(ir_mesh_at(f, mesh_of(f, op)), mesh_axis);
  bool whole = false, reduced = false, other = false;
  for (uint32_t k = 0; k < 2; k++) {
    x->roles[k] = role_of(f, op, k, mesh_axis);
    whole = whole || x->roles[k] == ROLE_WHOLE;
    reduced = reduced || x->roles[k] == ROLE_REDUCED;
    other = other || x->roles[k] == ROLE_OTHER;
  }
  bool same = x->roles[0] == x->roles[1] && x->roles[0] != ROLE_FREE;
  return !same && !other && (!whole || reduced) && x->devices > 1;
}

/* The operand that may be gathered, or exchanged. */
static uint32_t yielder(const product *x) {
  if (x->roles[0] == ROLE_BATCH || x->roles[1] == ROLE_BATCH) return x->roles[0] == ROLE_BATCH;
  return x->roles[0] == ROLE_REDUCED ? 0 : 1;
}

static bool yields_by_cost(product *x, uint32_t k) {
  if (x->roles[1 - k] == ROLE_BATCH || x->roles[1 - k] == ROLE_WHOLE) return false;
  for (uint32_t i = 0; i < 2; i++) {
    if (!find_bytes(x, x->op->operands[i], &x->bytes[i])) return false;
  }
  return find_bytes(x, x->op->result, &x->bytes[2]) && cost_of(x, 1 - k) < cost_of(x, k);
}

static uint32_t class_of(const ir_func *f, const ir_op_data *op, const shard_choice *choice) {
  uint32_t id = ir_tensor_at(f, op->result)->scheduled_def.id;
  return id < choice->n_ops ? choice->class_of[id] : 0;
}

/* Is the bias less than the input, as far as that is known? */
static bool is_bias_less(const ir_func *f, const ir_op_data *op, uint32_t mesh_axis) {
  product x = {.f = f, .op = op, .mesh_axis = mesh_axis};
  return find_bytes(&x, op->operands[0], &x.bytes[0]) &&
         find_bytes(&x, op->operands[2], &x.bytes[2]) && x.bytes[2] < x.bytes[0];
}

/* A bias goes with the weight. Beside rows of the input that are cut and a weight that is not, the less of both yields. */
static uint32_t bias_yields(const ir_func *f, const ir_op_data *op, const shard_choice *choice) {
  uint32_t turned, yields = shard_product_yields(f, op, 1, choice, &turned);
  uint32_t rank = ir_mesh_at(f, mesh_of(f, op))->rank;
  for (uint32_t axis = 0; axis < rank; axis++) {
    bool rows = role_of(f, op, 0, axis) == ROLE_FREE && role_of(f, op, 1, axis) == ROLE_WHOLE;
    if (rows && is_bias_less(f, op, axis)) yields |= 1u << axis;
  }
  return yields;
}

/* Do operands meet along the axis that are cut in ways that do not go together? */
static bool meets(const ir_func *f, const ir_op_data *op, uint32_t mesh_axis, product *x) {
  if (ir_op_is_product(op->code)) return open_axis(f, op, mesh_axis, x);
  *x = (product){.f = f, .op = op, .mesh_axis = mesh_axis};
  x->devices = (double)ir_mesh_size(ir_mesh_at(f, mesh_of(f, op)), mesh_axis);
  return shard_attention_meets(f, op, mesh_axis);
}

/* Is exchanging all that is cut, and perhaps reducing partial results, less than what is done without that? */
static bool pays_to_turn(product *x, bool reduces) {
  double exchanged = 0, without = INFINITY;
  uint32_t n = x->op->n_operands < 2 ? 1 : 2;
  for (uint32_t k = 0; k < n; k++)
    if (!find_bytes(x, x->op->operands[k], &x->bytes[k])) return false;
  if (!find_bytes(x, x->op->result, &x->bytes[2])) return false;
  double reduced = x->bytes[2] * (x->devices - 1) / x->devices;
  for (uint32_t k = 0; k < n; k++) {
    if (x->roles[k] == ROLE_WHOLE) continue;
    exchanged += recut(x, k);
    without = fmin(without, gathered(x, k));
    if (x->roles[k] == ROLE_REDUCED) without = fmin(without, reduced);
  }
  return exchanged + (reduces ? 2 * reduced : 0) < without;
}

/* Keys and values are gathered without that; with it, queries and results are exchanged too. For the usual extents, as
 * all of them have positions, batches and heads. */
static bool pays_to_turn_attention(product *x) {
  const int64_t *usual = ir_module_usual(x->f->module, &x->f->module->memory);
  double all = 0, keys = 0;
  for (uint32_t k = 0; k < 3; k++) {
    ir_tensor t = x->op->operands[k];
    double bytes = ir_tensor_elements(x->f, t, usual);
    bytes *= (double)ir_dtype_size_bytes(ir_tensor_at(x->f, t)->dtype);
    all += bytes * (k == 0 ? 2 : 1);
    keys += k == 0 ? 0 : bytes;
  }
  return all < keys * x->devices;
}

static bool is_turned(product *x, uint64_t bit, const shard_choice *choice) {
  uint32_t at;
  if (!(choice->turned & bit) && !choice->turns) return false;
  if (!bit || !shard_turn_of(x->f, x->op, mesh_of(x->f, x->op), x->mesh_axis, &at)) return false;
  ir_axis_kind kind = ir_axis_at(x->f, ir_tensor_at(x->f, x->op->result)->now.loop.data[at])->kind;
  bool is_product = ir_op_is_product(x->op->code);
  if (is_product ? !pays_to_turn(x, kind == IR_AXIS_REDUCTION) : !pays_to_turn_attention(x))
    return false;
  if (choice->turns) *choice->turns |= bit;
  return (choice->turned & bit) != 0;
}

static bool yields_along(product *x, uint32_t k, uint64_t bit, const shard_choice *choice) {
  if (!ir_op_is_product(x->op->code)) return false;
  bool may = yielder(x) == k, asked = !choice->by_cost && bit;
  return asked ? (choice->both & bit) || (may && (choice->yields & bit))
               : may && yields_by_cost(x, k);
}

uint32_t shard_product_yields(const ir_func *f, const ir_op_data *op, uint32_t k,
                              const shard_choice *choice, uint32_t *turned) {
  uint32_t yields = 0;
  product x;
  *turned = 0;
  if (!is_open(f, op)) return 0;
  if (k > 1 && ir_op_is_product(op->code))
    return op->code == IR_OP_LINEAR ? bias_yields(f, op, choice) : 0;
  uint32_t rank = ir_mesh_at(f, mesh_of(f, op))->rank;
  uint32_t class = class_of(f, op, choice);
  uint64_t bit = class ? (uint64_t)1 << (class - 1) : 0;
  for (uint32_t axis = 0; axis < rank; axis++) {
    if (!meets(f, op, axis, &x)) continue;
    if (choice->met) *choice->met |= bit;
    bool turns = is_turned(&x, bit, choice);
    bool does = turns || yields_along(&x, k, bit, choice);
    if (does && choice->gave) *choice->gave |= bit;
    if (does) yields |= 1u << axis;
    if (turns) *turned |= 1u << axis;
  }
  return yields;
}
