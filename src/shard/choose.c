/* Which operands of products yield: what moves the fewest bytes in all.
 *
 * Each conflict by itself has a cheap side, but what is cheap for one product may lead to others that are not:
 * gathering small weights leaves activations cut along the sequence, and then keys and values have to be gathered.
 * So placements are tried: propagated, decomposed, and their bytes added up. At first all by the order of operands,
 * all by their own cost, and all that yield; then the best one with something else for one class of products after
 * another. */
#include "ir/build.h"
#include "shard/internal.h"

typedef struct choosing {
  ir_func *f;
  uint8_t *classes;
  uint64_t of_inputs; /* classes of products with inputs of the program */
  uint32_t tries;     /* that are left */
} choosing;

/* ---- classes ---- */
static bool same_sizes(const ir_func *f, ir_tensor a, ir_tensor b) {
  ir_axis x[IR_MAX_RANK], y[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(f, a, x);
  if (n != ir_tensor_dims(f, b, y)) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!IR_SAME(ir_axis_size(f, x[i]), ir_axis_size(f, y[i]))) return false;
  return true;
}

static bool same_class(const ir_func *f, const ir_op_data *a, const ir_op_data *b) {
  return a->code == b->code && same_sizes(f, a->operands[0], b->operands[0]) &&
         same_sizes(f, a->operands[1], b->operands[1]);
}

static bool has_input(const ir_func *f, const ir_op_data *op) {
  for (uint32_t k = 0; k < 2; k++)
    if (ir_tensor_at(f, op->operands[k])->kind == IR_TENSOR_INPUT) return true;
  return false;
}

/* False: there is no product, or there are too many kinds of them. */
static bool find_classes(choosing *c) {
  const ir_func *f = c->f;
  ir_op first[SHARD_MAX_CLASSES];
  uint32_t n = 0;
  c->classes = ARENA_ARRAY(&f->module->memory, f->ops.len, uint8_t);
  for (uint32_t i = 0; i < f->scheduled.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->scheduled.data[i]);
    uint32_t k = 0;
    if (!ir_op_is_product(op->code)) continue;
    while (k < n && !same_class(f, op, ir_op_at(f, first[k]))) k++;
    if (k == SHARD_MAX_CLASSES) return false;
    if (k == n) first[n++] = f->scheduled.data[i];
    c->classes[f->scheduled.data[i].id] = (uint8_t)(k + 1);
    if (has_input(f, op)) c->of_inputs |= (uint64_t)1 << k;
  }
  return n > 0;
}

/* ---- trying ---- */
typedef struct trial {
  shard_choice choice;
  uint64_t met, gave;
  double bytes;
} trial;

/* What decomposing `f`, propagated by the choice, makes devices receive. */
static void count_bytes(choosing *c, ir_func *f, trial *t) {
  arena *memory = &f->module->memory;
  t->choice.met = t->choice.gave = NULL;
  if (t->met) {
    (void)shard_write_forms(f, memory);
    shard_ctx *ctx = shard_begin(f, memory);
    if (shard_decompose(ctx)) t->bytes = shard_moved_bytes(ctx);
  }
  if (c->tries) c->tries--;
}

static void propagate_by(choosing *c, ir_func *f, trial *t) {
  t->choice.class_of = c->classes;
  t->choice.n_ops = c->f->ops.len;
  t->choice.met = &t->met;
  t->choice.gave = &t->gave;
  f->choice = &t->choice;
  (void)shard_propagate_to(f, NULL);
}

static trial try_choice(choosing *c, uint64_t yields, uint64_t both, bool by_cost) {
  trial t = {.choice = {.yields = yields, .both = both, .by_cost = by_cost}, .bytes = -1};
  diags before = c->f->module->errors;
  ir_func *copy = ir_func_copy(c->f);
  propagate_by(c, copy, &t);
  count_bytes(c, copy, &t);
  c->f->module->errors = before;
  return t;
}

/* All by the order of operands, and in the function itself: most programs have no conflict, and are propagated
 * then. If there are conflicts, the function is left as it was. */
static trial try_in_place(choosing *c) {
  trial t = {.bytes = -1};
  diags before = c->f->module->errors;
  ir_func *other = ir_func_copy(c->f);
  propagate_by(c, c->f, &t);
  if (t.met) {
    ir_func propagated = *c->f;
    *c->f = *other;
    *other = propagated;
  }
  count_bytes(c, other, &t);
  if (t.met) c->f->module->errors = before;
  return t;
}

static bool is_better(const trial *a, const trial *b) {
  return a->bytes >= 0 && (b->bytes < 0 || a->bytes < b->bytes);
}

/* No operand yields, one, or both: what the class does `turn` steps on from what it does. */
static trial try_other(choosing *c, const trial *best, uint64_t bit, uint32_t turn) {
  uint64_t yields = best->choice.by_cost ? best->gave : best->choice.yields,
           both = best->choice.both;
  uint32_t now = both & bit ? 2 : yields & bit ? 1 : 0, then = (now + turn) % 3;
  yields = then == 1 ? yields | bit : yields & ~bit;
  both = then == 2 ? both | bit : both & ~bit;
  return try_choice(c, yields, both, false);
}

/* Lets one class after another do something else, until nothing is better. */
static void improve(choosing *c, uint64_t may, trial *best) {
  for (uint32_t k = 0, since = 0; since < 2 * SHARD_MAX_CLASSES && c->tries; k++, since++) {
    uint64_t bit = (uint64_t)1 << k / 2 % SHARD_MAX_CLASSES;
    if (!(best->met & may & bit)) continue;
    trial other = try_other(c, best, bit, 1 + k % 2);
    if (!is_better(&other, best)) continue;
    *best = other;
    since = 0;
  }
}

static bool all_expected(const ir_func *f) {
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_axis dims[IR_MAX_RANK];
    uint32_t n = ir_tensor_dims(f, f->inputs.data[i], dims);
    int64_t value;
    for (uint32_t d = 0; d < n; d++)
      if (!ir_module_expects(f->module, ir_axis_size(f, dims[d]), &value)) return false;
  }
  return true;
}

/* Large programs are tried less often. */
static uint32_t tries_for(const ir_func *f) {
  enum { LEAST = 3, MOST = 40, OPS = 12000 };
  uint32_t n = OPS / (f->order.len + 1);
  return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

/* ---- what was decided already ---- */
static uint64_t hash_stmt(uint64_t h, const ir_stmt *s) {
  const uint64_t fields[] = {s->kind,      s->mesh.id,        s->factor_is_mesh,
                             s->mesh_axis, (uint64_t)s->axis, s->factor.id,
                             s->mark.kind, s->mark.mesh_axis, s->mark.form};
  for (uint32_t i = 0; i < sizeof fields / sizeof *fields; i++) h = hash_mix(h, fields[i]);
  for (uint32_t i = 0; i < s->n_targets; i++) h = hash_mix(h, s->targets[i].name);
  for (uint32_t i = 0; i < s->n_list; i++) h = hash_mix(h, (uint64_t)s->list[i]);
  return h;
}

/* Of all that a choice depends on; handles mean the same in all copies of a function. */
static uint64_t key_of(const ir_func *f) {
  const ir_module *m = f->module;
  uint64_t h = hash_bytes(m->expected.data, m->expected.len * sizeof *m->expected.data);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    h = hash_mix(hash_mix(h, f->order.data[i].id), op->code);
    for (uint32_t k = 0; k < op->n_operands; k++) h = hash_mix(h, op->operands[k].id);
  }
  for (uint32_t i = 0; i < f->statements.len; i++) h = hash_stmt(h, &f->statements.data[i]);
  return hash_mix(h, f->name);
}

bool shard_choose(ir_func *f) {
  choosing c = {.f = f, .tries = tries_for(f)};
  if (f->choice || f->scheduled.len != f->order.len)
    return false; /* reductions in two steps: not yet */
  if (!shard_is_distributed(f) || !find_classes(&c)) return false;
  uint64_t key = key_of(f);
  if (f->module->choice && f->module->choice_key == key) {
    f->choice = f->module->choice;
    return false;
  }
  trial best = try_in_place(&c);
  if (best.met && all_expected(f)) {
    trial starts[] = {try_choice(&c, 0, 0, true), try_choice(&c, UINT64_MAX, 0, false)};
    for (uint32_t i = 0; i < 2; i++)
      if (is_better(&starts[i], &best)) best = starts[i];
    improve(&c, UINT64_MAX, &best);
  } else if (best.met) {
    improve(&c, ~c.of_inputs, &best);
  }
  f->choice = arena_copy(&f->module->memory, &best.choice, sizeof best.choice);
  f->module->choice = f->choice;
  f->module->choice_key = key;
  return !best.met;
}
