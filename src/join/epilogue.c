/* Epilogues: what follows a product is computed with it, while its result is at hand.
 *
 *   t <- linear(x, w)                y <- kernel(x, w, b) {
 *   u <- add(t, b)          =>         t = linear(x, w)
 *   y <- gelu(u)                       u = t + b
 *   deallocate(t)                      return gelu(u)
 *   deallocate(u)                    }
 *
 * The product's result must be private, and read by one group only. If all operations of that group are
 * elementwise, at the positions of the product, with one result of the product's dtype, the product joins
 * the whole group: a device that cannot do better computes the product where the result will be, and then
 * the rest in place, which costs what it cost before. Otherwise the product takes what libraries know from
 * the beginning of the group: the sum with a bias and with a tensor of the same shape, then, of 16 bits, gelu
 * in the form with tanh.
 * What is left of the group reads one tensor, as it did before.
 *
 * The kernel is put where the last of these operations was. Memory that the product reads must not have been
 * given back before that while others computed, so that the peak does not grow. */
#include "join/internal.h"

enum {
  MOST_OTHERS = 4,
  MOST_STEPS = 24
}; /* tensors that an epilogue reads besides; its operations */

static const ir_op_data *op_of(const join_block *b, uint32_t node) {
  return ir_op_at(b->facts->h, join_instr(b, b->nodes[node].at)->op);
}

static ir_tensor result_of(const join_block *b, uint32_t node) {
  return join_instr(b, b->nodes[node].at)->tensor;
}

static ir_dtype dtype_of(const join_block *b, ir_tensor t) {
  return ir_tensor_at(b->facts->h, t)->dtype;
}

bool join_is_product(const ir_func *h, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(h, d->op);
  return ir_op_is_plain_product(op->code) && d->kind == IR_COMPUTE && !d->offsets &&
         ir_dtype_is_float(ir_tensor_at(h, d->tensor)->dtype);
}

/* ---- one operation ---- */
static bool is_number(const join_block *b, ir_tensor t) {
  return !t.id || ir_tensor_at(b->facts->h, t)->kind == IR_TENSOR_CONST;
}

/* Elementwise, at the positions of the product. */
static bool is_alike(const join_block *b, uint32_t product, uint32_t node) {
  const ir_instr_data *d = join_instr(b, b->nodes[node].at);
  return d->kind == IR_COMPUTE && !d->offsets && ir_op_is_elementwise(op_of(b, node)->code) &&
         join_space_same(b->facts->h, &b->nodes[product].space, &b->nodes[node].space);
}

/* The only node that reads what the node makes; JOIN_NONE: it is seen elsewhere, or by several. */
static uint32_t only_reader(const join_block *b, uint32_t node) {
  ir_tensor t = result_of(b, node);
  if (!join_is_private(b->facts, t)) return JOIN_NONE;
  const join_numbers *readers = join_readers(b, t);
  uint32_t first = readers->len ? b->node_at[readers->data[0]] : 0;
  for (uint32_t i = 1; first && i < readers->len; i++)
    if (readers->data[i] != readers->data[0]) return JOIN_NONE;
  return first ? first - 1 : JOIN_NONE;
}

static bool is_read_elsewhere(const join_block *b, ir_tensor t, uint32_t g) {
  const join_numbers *readers = join_readers(b, t);
  for (uint32_t i = 0; i < readers->len; i++) {
    uint32_t reader = b->node_at[readers->data[i]];
    if (!reader || b->nodes[reader - 1].group != g) return true;
  }
  return false;
}

/* ---- the order ---- */
static bool frees(const join_block *b, uint32_t at, uint32_t product) {
  const ir_instr_data *d = join_instr(b, at);
  return d->kind == IR_DEALLOCATE && join_reads(b, b->nodes[product].at, d->tensor);
}

/* Does anything but the two groups compute after what the product reads was given back? */
static bool keeps_memory(const join_block *b, uint32_t product, uint32_t g, uint32_t to) {
  bool freed = false;
  for (uint32_t at = b->nodes[product].at + 1; at < to; at++) {
    const ir_instr_data *d = join_instr(b, at);
    freed = freed || frees(b, at, product);
    uint32_t node = b->node_at[at];
    bool ours = node && b->nodes[node - 1].group == g;
    if (freed && !ours && (d->kind == IR_COMPUTE || d->kind == IR_LAUNCH)) return false;
  }
  return true;
}

static bool may_follow(const join_block *b, uint32_t product, uint32_t g, uint32_t to) {
  return b->run_at[b->nodes[product].at] == b->run_at[to] && keeps_memory(b, product, g, to) &&
         join_may_move(b, b->nodes[product].group, g, to);
}

/* ---- a whole group ---- */
typedef struct others {
  ir_tensor tensors[MOST_OTHERS];
  uint32_t n;
} others;

/* False: there are too many. */
static bool add_other(others *o, ir_tensor t) {
  for (uint32_t i = 0; i < o->n; i++)
    if (IR_SAME(o->tensors[i], t)) return true;
  if (o->n == MOST_OTHERS) return false;
  o->tensors[o->n++] = t;
  return true;
}

/* Checks the other operands of the group: few tensors, and none that the group could compute itself. */
static bool takes_operands(const join_block *b, uint32_t product, uint32_t node, others *o) {
  const ir_op_data *op = op_of(b, node);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_tensor t = op->operands[k];
    if (is_number(b, t) || IR_SAME(t, result_of(b, product))) continue;
    uint32_t p = join_producer_of(b, node, t);
    if (p != JOIN_NONE && b->nodes[p].group == b->nodes[node].group) continue;
    if ((p != JOIN_NONE && b->nodes[p].space.light) || !add_other(o, t)) return false;
  }
  return true;
}

static bool is_result(const join_block *b, uint32_t node) {
  ir_tensor t = result_of(b, node);
  return !join_is_private(b->facts, t) || join_readers(b, t)->len == 0 ||
         is_read_elsewhere(b, t, b->nodes[node].group);
}

static bool fits_whole(const join_block *b, uint32_t product, uint32_t g) {
  const join_group *group = &b->groups[g];
  uint32_t n_results = 0;
  others o = {.n = 0};
  if (group->space.product || group->n_nodes > MOST_STEPS) return false;
  for (uint32_t n = group->first; n != JOIN_NONE; n = b->nodes[n].next) {
    if (!is_alike(b, product, n) || !takes_operands(b, product, n, &o)) return false;
    if (!is_result(b, n)) continue;
    n_results++;
    if (dtype_of(b, result_of(b, n)) != dtype_of(b, result_of(b, product))) return false;
  }
  return n_results == 1 && may_follow(b, product, g, b->nodes[group->last].at);
}

/* ---- the beginning of a group ---- */
/* A bias has the last dimension only; a tensor that is added, all. */
static bool is_bias(const join_block *b, uint32_t product, ir_tensor t) {
  ir_func *h = b->facts->h;
  const join_space *s = &b->nodes[product].space;
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  int64_t one;
  for (uint32_t d = 0; d + 1 < rank; d++)
    if (!ir_scalar_is_const(&h->module->scalars, ir_axis_size(h, dims[d]), &one) || one != 1)
      return false;
  return rank > 0 &&
         ir_func_equal(h, ir_axis_size(h, dims[rank - 1]), s->sizes[s->rank - 1]) == IR_TRUE;
}

typedef struct chain {
  uint32_t nodes[3], n;
  bool bias, added, ended;
} chain;

static bool takes_sum(const join_block *b, uint32_t product, ir_tensor other, chain *c) {
  uint32_t last = c->n ? c->nodes[c->n - 1] : product;
  if (is_number(b, other) || IR_SAME(other, result_of(b, last))) return false;
  if (dtype_of(b, other) != dtype_of(b, result_of(b, product))) return false;
  bool whole = join_space_is_whole(b->facts->h, &b->nodes[product].space, other);
  bool *taken = whole ? &c->added : &c->bias;
  if (*taken || (!whole && !is_bias(b, product, other))) return false;
  return *taken = true;
}

static bool takes_step(const join_block *b, uint32_t product, uint32_t node, chain *c) {
  const ir_op_data *op = op_of(b, node);
  uint32_t last = c->n ? c->nodes[c->n - 1] : product;
  if (op->code == IR_OP_GELU) {
    c->ended = true;
    bool narrow = ir_dtype_size_bytes(dtype_of(b, result_of(b, product))) == 2;
    return narrow && ir_op_attr(op, "approximate")->i != 0;
  }
  if (op->code != IR_OP_ADD) return false;
  ir_tensor x = result_of(b, last), l = op->operands[0], r = op->operands[1];
  ir_tensor other = IR_SAME(l, x) ? r : l;
  uint32_t p = join_producer_of(b, node, other);
  bool ours =
      p != JOIN_NONE && (b->nodes[p].group == b->nodes[node].group || b->nodes[p].space.light);
  return !ours && takes_sum(b, product, other, c);
}

static chain find_chain(const join_block *b, uint32_t product, uint32_t g) {
  chain c = {.n = 0};
  if (dtype_of(b, result_of(b, product)) == IR_F64) return c;
  for (uint32_t last = product; c.n < 3 && !c.ended; last = c.nodes[c.n - 1]) {
    uint32_t node = only_reader(b, last);
    if (node == JOIN_NONE || b->nodes[node].group != g || !is_alike(b, product, node)) break;
    if (dtype_of(b, result_of(b, node)) != dtype_of(b, result_of(b, product))) break;
    if (!takes_step(b, product, node, &c)) break;
    c.nodes[c.n++] = node;
  }
  return c;
}

/* Must the product come before what is left of the group and is computed before position `to`? */
static bool is_in_the_way(const join_block *b, uint32_t product, const chain *c, uint32_t g,
                          uint32_t to) {
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE && b->nodes[n].at < to;
       n = b->nodes[n].next) {
    bool taken = false;
    for (uint32_t i = 0; i < c->n; i++) taken = taken || c->nodes[i] == n;
    bool later = b->nodes[n].at > b->nodes[product].at;
    if (!taken && later && join_precedes(b, b->nodes[product].at, b->nodes[n].at)) return true;
  }
  return false;
}

/* The nodes leave group g, which has others, for that of the product. */
static void take_chain(join_block *b, uint32_t product, const chain *c, uint32_t g) {
  uint32_t *link = &b->groups[g].first, last = JOIN_NONE, taken = 0, end = product;
  for (uint32_t n = *link, next; n != JOIN_NONE; n = next) {
    next = b->nodes[n].next;
    bool takes = taken < c->n && n == c->nodes[taken];
    taken += takes;
    if (takes) continue;
    *link = last = n;
    link = &b->nodes[n].next;
  }
  *link = JOIN_NONE;
  b->groups[g].last = last;
  b->groups[g].n_nodes -= c->n;
  for (uint32_t i = 0; i < c->n; end = c->nodes[i++]) {
    b->nodes[end].next = c->nodes[i];
    b->nodes[c->nodes[i]].next = JOIN_NONE;
    b->nodes[c->nodes[i]].group = product;
  }
  b->groups[product].last = end;
  b->groups[product].n_nodes += c->n;
}

/* ---- the block ---- */
static bool are_apart(const join_block *b, uint32_t product, uint32_t g) {
  return join_all_apart(b, product, g) && join_all_apart(b, g, product);
}

/* False: it takes nothing. */
static bool try_product(join_block *b, uint32_t product) {
  ir_tensor t = result_of(b, product);
  uint32_t reader = join_is_private(b->facts, t) && join_readers(b, t)->len
                        ? b->node_at[join_readers(b, t)->data[0]]
                        : 0;
  uint32_t g = reader ? b->nodes[reader - 1].group : JOIN_NONE;
  if (g == JOIN_NONE || is_read_elsewhere(b, t, g) || !are_apart(b, product, g)) return false;
  bool careful = b->nodes[product].careful || b->groups[g].careful;
  uint32_t end = b->nodes[b->groups[g].last].at;
  if (careful && !join_keeps_memory_now(b, b->nodes[product].group, g, end)) return false;
  if (fits_whole(b, product, g)) {
    join_merge_lists(b, product, g);
    return b->groups[g].space.product = true;
  }
  chain c = find_chain(b, product, g);
  if (b->groups[g].space.product || c.n == 0 || c.n == b->groups[g].n_nodes) return false;
  uint32_t to = b->nodes[c.nodes[c.n - 1]].at;
  if (!may_follow(b, product, g, to) || is_in_the_way(b, product, &c, g, to)) return false;
  take_chain(b, product, &c, g);
  return true;
}

static bool is_alone(const join_block *b, uint32_t node) {
  return b->nodes[node].space.product && b->nodes[node].group == node &&
         b->groups[node].n_nodes == 1;
}

/* From the last product on, so that of two products in one sum the later one gets it. Repeated, because what one
 * product takes may leave another one alone in its group. */
void join_epilogues(join_block *b) {
  for (bool again = true; again;) {
    again = false;
    for (uint32_t n = b->n_nodes; n-- > 0;)
      if (is_alone(b, n) && try_product(b, n)) again = true;
  }
}
