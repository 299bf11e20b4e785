/* How much a resharding moves, and whether it is better before or after an operation. */
#include <math.h>

#include "shard/internal.h"

static ir_scalars *scalars_of(const shard_ctx *c) { return &c->f->module->scalars; }

/* ---- elements on one device ---- */

typedef VEC(ir_transform) history;

/* The transforms above `a`, in the order in which they were made. */
static void collect(const shard_ctx *c, ir_axes logical, ir_axis a, history *h) {
  for (uint32_t i = 0; i < logical.len; i++) {
    if (IR_SAME(logical.data[i], a)) return;
  }
  ir_transform def = ir_axis_at(c->f, a)->def;
  for (uint32_t i = 0; i < h->len; i++) {
    if (IR_SAME(h->data[i], def)) return;
  }
  const ir_transform_data *t = ir_transform_at(c->f, def);
  collect(c, logical, t->in[0], h);
  if (t->in[1].id) collect(c, logical, t->in[1], h);
  vec_push(c->scratch, h, def);
}

typedef struct axes {
  ir_axis data[2 * IR_MAX_RANK];
  uint32_t len;
} axes;

static bool take(axes *list, ir_axis a) {
  for (uint32_t i = 0; i < list->len; i++) {
    if (!IR_SAME(list->data[i], a)) continue;
    list->data[i] = list->data[--list->len];
    return true;
  }
  return false;
}

static void replay(const shard_ctx *c, const history *h, axes *list) {
  for (uint32_t i = 0; i < h->len; i++) {
    const ir_transform_data *t = ir_transform_at(c->f, h->data[i]);
    bool all = take(list, t->in[0]) && (t->in[1].id == 0 || take(list, t->in[1]));
    for (uint32_t k = 0; all && k < 2; k++) {
      if (t->out[k].id) list->data[list->len++] = t->out[k];
    }
  }
}

static bool is_cut(const shard_ctx *c, ir_axis a, uint32_t ignored) {
  const ir_axis_data *d = ir_axis_at(c->f, a);
  return d->mark.kind == IR_MARK_MESH && d->kind != IR_AXIS_REDUCTION &&
         !(ignored >> d->mark.mesh_axis & 1);
}

ir_scalar shard_local_elements(shard_ctx *c, ir_tensor t, uint32_t ignored) {
  const ir_domains *d = &ir_tensor_at(c->f, t)->now;
  history h = {0};
  axes list = {.len = 0};
  for (uint32_t i = 0; i < d->loop.len; i++) {
    if (is_cut(c, d->loop.data[i], ignored)) collect(c, d->logical, d->loop.data[i], &h);
  }
  list.len = ir_axes_dims(c->f, d->logical, list.data);
  replay(c, &h, &list);
  ir_scalar product = ir_scalar_const(scalars_of(c), 1);
  for (uint32_t i = 0; i < list.len; i++) {
    const ir_axis_data *a = ir_axis_at(c->f, list.data[i]);
    bool one = a->kind == IR_AXIS_BROADCAST || is_cut(c, list.data[i], ignored);
    if (!one) product = ir_scalar_mul(scalars_of(c), product, a->extent);
  }
  return product;
}

/* ---- costs: bytes as fractions, so that they can be compared exactly ---- */

typedef struct cost {
  ir_scalar bytes;
  int64_t per; /* the cost is bytes / per */
} cost;

static ir_scalar times(const shard_ctx *c, ir_scalar x, int64_t n) {
  return ir_scalar_mul(scalars_of(c), x, ir_scalar_const(scalars_of(c), n));
}

static cost add(const shard_ctx *c, cost a, cost b) {
  int64_t common = ir_gcd(a.per, b.per), per;
  if (__builtin_mul_overflow(a.per / common, b.per, &per)) return (cost){IR_SCALAR_OVERFLOW, 1};
  ir_scalar x = times(c, a.bytes, b.per / common), y = times(c, b.bytes, a.per / common);
  return (cost){ir_scalar_add(scalars_of(c), x, y), per};
}

static ir_scalar whole_bytes(shard_ctx *c, ir_tensor t, uint32_t ignored) {
  int64_t size = (int64_t)ir_dtype_size_bytes(ir_tensor_at(c->f, t)->dtype);
  return times(c, shard_local_elements(c, t, ignored), size);
}

static int64_t line_length(const shard_ctx *c, ir_mesh mesh, int32_t k) {
  int64_t n = k < 0 || mesh.id == 0 ? 1 : ir_mesh_size(ir_mesh_at(c->f, mesh), (uint32_t)k);
  return n > 0 ? n : 1;
}

/* Of `whole`, what a line of devices has together; n of them send, k receive. */
static cost comm_cost(const shard_comm *m, ir_scalar whole, int64_t n, int64_t k, shard_ctx *c) {
  switch (m->kind) {
  case SHARD_NONE:
  case SHARD_LOCAL_SLICE: return (cost){ir_scalar_const(scalars_of(c), 0), 1};
  case SHARD_ALLGATHER:
  case SHARD_REDUCE_SCATTER:
  case SHARD_PERMUTE: return (cost){times(c, whole, n - 1), n};
  case SHARD_BROADCAST:
    if (m->by_iteration) return (cost){times(c, whole, n - 1), n};
    return (cost){whole, 1};
  case SHARD_ALLREDUCE: return (cost){times(c, whole, 2 * (n - 1)), n};
  case SHARD_GATHER:
  case SHARD_REDUCE: return (cost){whole, m->sliced ? k : 1};
  case SHARD_SHIFT: return (cost){whole, n};
  case SHARD_SCATTER:
  case SHARD_SEND_RECV: return (cost){whole, k};
  case SHARD_ALL_TO_ALL: return (cost){times(c, whole, n - 1), n * k};
  case SHARD_SEND:
  case SHARD_RECV:
  case SHARD_KINDS: break;
  }
  impossible("a kind that no change of placement needs");
}

ir_scalar shard_comm_bytes(shard_ctx *c, const ir_op_data *op, const shard_comm *m) {
  uint32_t ignored = m->mesh_axis == SHARD_NO_AXIS ? 0 : 1u << m->mesh_axis;
  ir_scalar whole = whole_bytes(c, op->result, ignored);
  int64_t n = line_length(c, m->from, m->mesh_axis), k = line_length(c, m->to, m->mesh_axis);
  cost x = comm_cost(m, whole, n, k, c);
  return ir_scalar_ceildiv(scalars_of(c), x.bytes, ir_scalar_const(scalars_of(c), x.per));
}

ir_scalar shard_partial_bytes(shard_ctx *c, const ir_op_data *op, uint32_t along, uint32_t uncut) {
  shard_placement p;
  int64_t n = 1;
  shard_placement_of(c->f, op->result, &p);
  for (uint32_t left = along; left; left &= left - 1)
    n *= line_length(c, p.mesh, (int32_t)__builtin_ctz(left));
  bool scatters = p.axes[__builtin_ctz(along)].kind == SHARD_SHARDED;
  shard_comm m = {.kind = scatters ? SHARD_REDUCE_SCATTER : SHARD_ALLREDUCE};
  cost x = comm_cost(&m, whole_bytes(c, op->result, uncut), n, n, c);
  return ir_scalar_ceildiv(scalars_of(c), x.bytes, ir_scalar_const(scalars_of(c), x.per));
}

/* ---- before or after? ---- */

/* The cost of bringing `t`, which lies as the view's operand does, to where the result lies. */
static cost move_cost(shard_view *v, ir_tensor t, shard_changes changes) {
  shard_ctx *c = v->c;
  cost sum = {ir_scalar_const(scalars_of(c), 0), 1};
  ir_scalar whole = whole_bytes(c, t, changes.changed);
  bool same_mesh = v->from.coords == v->to.coords;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    if (!(changes.changed >> k & 1)) continue;
    bool from = shard_leaf_of(v, &v->from, k).present, to = shard_leaf_of(v, &v->to, k).present;
    shard_comm m = {.kind = !to ? SHARD_ALLGATHER : from ? SHARD_ALL_TO_ALL : SHARD_LOCAL_SLICE};
    if (!same_mesh) m.kind = to ? SHARD_SCATTER : SHARD_GATHER;
    int64_t n = line_length(c, v->from.mesh, (int32_t)k),
            r = line_length(c, v->to.mesh, (int32_t)k);
    sum = add(c, sum, comm_cost(&m, whole, n, r, c));
  }
  return changes.changed || same_mesh ? sum : (cost){whole, 1};
}

static bool is_tensor(const shard_ctx *c, ir_tensor t) {
  return t.id && ir_tensor_at(c->f, t)->kind != IR_TENSOR_CONST;
}

static bool operand_differs(shard_ctx *c, const ir_op_data *op, uint32_t i) {
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    if (shard_differs(c, op, i, k)) return true;
  }
  return false;
}

/* How the operation would lie if it were computed where its first differing operand is. */
typedef struct plan {
  uint32_t operand;
  ir_mesh mesh;
  shard_leaf leaves[IR_MESH_MAX_RANK]; /* not present: not sharded */
} plan;

static bool on_reduction(shard_view *v, ir_scalar index) {
  ir_axes root = ir_tensor_at(v->c->f, v->to.tensor)->now.root;
  for (uint32_t i = 0; i < root.len; i++) {
    bool reduced = ir_axis_at(v->c->f, root.data[i])->kind == IR_AXIS_REDUCTION;
    if (reduced && ir_scalar_mentions(&v->c->s, index, SHARD_SLOT_ROOT + i)) return true;
  }
  return false;
}

static bool make_plan(shard_view *v, shard_changes changes, plan *p) {
  p->mesh = v->from.mesh;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    bool changed = changes.changed >> k & 1;
    shard_leaf leaf = shard_leaf_of(v, changed ? &v->from : &v->to, k);
    if (leaf.present) p->leaves[k] = leaf;
    if (leaf.mixed || (leaf.present && on_reduction(v, leaf.index))) return false;
  }
  return p->mesh.id != 0;
}

/* What it costs to bring operand i to where the plan needs it, if that can be done: nothing, if it lies there. */
static bool cost_of_plan(shard_ctx *c, const ir_op_data *op, uint32_t i, const plan *p, cost *sum) {
  shard_view v;
  uint32_t changed = 0, to = 0, from = 0;
  shard_view_open(c, op, i, &v);
  if (v.from.mesh.id == 0) return false;
  if (!ir_mesh_same(ir_mesh_at(c->f, v.from.mesh), ir_mesh_at(c->f, p->mesh))) return false;
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    shard_leaf have = shard_leaf_of(&v, &v.from, k);
    shard_leaf want = p->leaves[k].present ? shard_leaf_seen(c, p->leaves[k]) : (shard_leaf){0};
    if (shard_leaf_compare(c, &have, &want) != SHARD_DIFFERENT) continue;
    if (want.mixed) return false;
    changed |= 1u << k;
    if (want.present) to |= 1u << k;
    if (have.present) from |= 1u << k;
  }
  ir_scalar whole = whole_bytes(c, op->operands[i], changed);
  for (uint32_t left = changed; left; left &= left - 1) {
    uint32_t k = (uint32_t)__builtin_ctz(left);
    shard_comm m = {.kind = !(to >> k & 1)    ? SHARD_ALLGATHER
                            : (from >> k & 1) ? SHARD_ALL_TO_ALL
                                              : SHARD_LOCAL_SLICE};
    int64_t n = line_length(c, p->mesh, (int32_t)k);
    *sum = add(c, *sum, comm_cost(&m, whole, n, n, c));
  }
  return true;
}

static bool is_nothing(const shard_ctx *c, cost x) {
  return IR_SAME(x.bytes, ir_scalar_const(scalars_of(c), 0));
}

/* The cost of bringing all operands to where the plan needs them; false: it does not work. Streams of the result say
 * how operands arrive: of these, none is brought elsewhere. */
static bool cost_of_operands(shard_ctx *c, const ir_op_data *op, const plan *p, cost *sum) {
  bool streams = ir_axes_streamed(c->f, ir_tensor_at(c->f, op->result)->now.loop);
  *sum = (cost){ir_scalar_const(scalars_of(c), 0), 1};
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (!is_tensor(c, op->operands[i])) continue;
    if (!cost_of_plan(c, op, i, p, sum)) return false;
    if (streams && !is_nothing(c, *sum)) return false;
  }
  return true;
}

/* Operands in the mask `brought` cost nothing. */
static cost cost_before(shard_ctx *c, const ir_op_data *op, uint32_t brought, uint32_t *first,
                        uint32_t *count) {
  cost sum = {ir_scalar_const(scalars_of(c), 0), 1};
  *first = op->n_operands;
  *count = 0;
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (!is_tensor(c, op->operands[i])) continue;
    ++*count;
    if (!operand_differs(c, op, i)) continue;
    if (*first == op->n_operands) *first = i;
    if (brought >> i & 1) continue;
    shard_view v;
    shard_view_open(c, op, i, &v);
    sum = add(c, sum, move_cost(&v, v.from.tensor, shard_view_changes(&v)));
  }
  return sum;
}

/* Every extent is at least 1: an empty tensor moves nothing anyway. */
static ir_scalar one_more(const void *context, uint32_t symbol) {
  const shard_ctx *c = context;
  return symbol < SHARD_SLOTS ? (ir_scalar){0} : c->grown.data[symbol - SHARD_SLOTS];
}

static ir_scalar at_least_one(shard_ctx *c, ir_scalar x) {
  ir_scalar one = ir_scalar_const(&c->s, 1);
  for (uint32_t i = c->grown.len; i < c->own_extents.len; i++) {
    vec_push(c->scratch, &c->grown, ir_scalar_add(&c->s, c->own_extents.data[i], one));
  }
  return ir_scalar_substitute(&c->s, x, one_more, c);
}

static bool cheaper(shard_ctx *c, cost a, cost b) {
  ir_scalar x = shard_translate(c, times(c, a.bytes, b.per));
  ir_scalar y = shard_translate(c, times(c, b.bytes, a.per));
  if (ir_scalar_lt(&c->s, x, y) == IR_TRUE) return true;
  return ir_scalar_lt(&c->s, at_least_one(c, x), at_least_one(c, y)) == IR_TRUE;
}

/* Undecided for all extents: what those that are expected say. */
static bool expected_cheaper(shard_ctx *c, cost a, cost b) {
  int64_t x, y;
  const ir_module *m = c->f->module;
  return ir_module_expects(m, times(c, a.bytes, b.per), &x) &&
         ir_module_expects(m, times(c, b.bytes, a.per), &y) && x < y;
}

static bool expected(const shard_ctx *c, cost x, double *bytes) {
  int64_t value;
  if (!ir_module_expects(c->f->module, x.bytes, &value)) return false;
  *bytes = (double)value / (double)x.per;
  return true;
}

double shard_usual_before(shard_ctx *c, const ir_op_data *op, uint32_t brought) {
  const ir_scalars *s = &c->f->module->scalars;
  uint32_t first, count;
  int64_t value = 0;
  cost x = cost_before(c, op, brought, &first, &count);
  const int64_t *usual = ir_module_usual(c->f->module, c->scratch);
  bool known = ir_scalar_eval(s, x.bytes, usual, s->symbols.len, &value);
  return known ? (double)value / (double)x.per : INFINITY;
}

bool shard_expected_before(shard_ctx *c, const ir_op_data *op, uint32_t brought, double *bytes) {
  uint32_t first, count;
  return expected(c, cost_before(c, op, brought, &first, &count), bytes);
}

/* If the operation is computed where its operand `first` lies: what operands cost, and all. False: it cannot be. */
static bool cost_after(shard_ctx *c, const ir_op_data *op, uint32_t first, cost *operands,
                       cost *all) {
  shard_view v;
  shard_view_open(c, op, first, &v);
  shard_changes changes = shard_view_changes(&v);
  plan p = {.operand = first};
  if (!make_plan(&v, changes, &p) || !cost_of_operands(c, op, &p, operands)) return false;
  shard_view_open(c, op, first, &v);
  *all = add(c, *operands, move_cost(&v, op->result, changes));
  return true;
}

bool shard_expected_after(shard_ctx *c, const ir_op_data *op, double *bytes) {
  uint32_t first, count;
  cost operands, after;
  (void)cost_before(c, op, 0, &first, &count);
  return first < op->n_operands && cost_after(c, op, first, &operands, &after) &&
         expected(c, after, bytes);
}

bool shard_prefer_before(shard_ctx *c, const ir_op_data *op, uint32_t brought) {
  uint32_t first, count;
  cost before = cost_before(c, op, brought, &first, &count), operands, after;
  if (first == op->n_operands || !cost_after(c, op, first, &operands, &after)) return true;
  if (!is_nothing(c, operands)) return !expected_cheaper(c, after, before);
  if (cheaper(c, before, after)) return true;
  if (cheaper(c, after, before)) return false;
  if (expected_cheaper(c, before, after)) return true;
  if (expected_cheaper(c, after, before)) return false;
  return count > 1;
}
