/* Which operands of products yield, and which products and attention are turned: what takes least in all, of bytes that
 * move and of products that devices compute.
 *
 * Each conflict by itself has a cheap side, but what is cheap for one product may lead to others that are not:
 * gathering small weights leaves activations cut along the sequence, and then keys and values have to be gathered.
 * So placements are tried: propagated, decomposed, and their costs added up. At first all by the order of operands,
 * all by their own cost, and all that yield; then the best one with something else for one class of products after
 * another.
 *
 * The way goes by bytes first, since fewer bytes lead to fewer; then on by cost from whatever cost least on the way. Bytes
 * alone would let every device compute the same where that saves an exchange. */
#include "ir/build.h"
#include "shard/internal.h"

/* How many operations of products count as much as a byte that is received: between those of links between hosts
 * (10^4 and more) and those of threads in one process (10^2). */
static const double FLOPS_PER_BYTE = 1000;

typedef struct trial {
  shard_choice choice;
  uint64_t met, gave, turns;
  uint64_t stated;     /* the statements that it leads to */
  double bytes, flops; /* bytes below 0: it cannot be done */
} trial;

typedef struct choosing {
  ir_func *f;
  uint8_t *classes;
  uint64_t of_inputs; /* classes of products with inputs of the program */
  uint32_t tries;     /* that are left */
  VEC(trial) tried;
  bool by_cost; /* else by bytes */
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
    if (!ir_op_is_product(op->code) && !shard_may_turn(op)) continue;
    while (k < n && !same_class(f, op, ir_op_at(f, first[k]))) k++;
    if (k == SHARD_MAX_CLASSES) return false;
    if (k == n) first[n++] = f->scheduled.data[i];
    c->classes[f->scheduled.data[i].id] = (uint8_t)(k + 1);
    if (ir_op_is_product(op->code) && has_input(f, op)) c->of_inputs |= (uint64_t)1 << k;
  }
  return n > 0;
}

/* ---- trying ---- */
static uint64_t hash_stmt(uint64_t h, const ir_stmt *s) {
  const uint64_t fields[] = {s->kind,      s->mesh.id,        s->factor_is_mesh,
                             s->mesh_axis, (uint64_t)s->axis, s->factor.id,
                             s->mark.kind, s->mark.mesh_axis, s->mark.form};
  for (uint32_t i = 0; i < sizeof fields / sizeof *fields; i++) h = hash_mix(h, fields[i]);
  for (uint32_t i = 0; i < s->n_targets; i++) h = hash_mix(h, s->targets[i].name);
  for (uint32_t i = 0; i < s->n_list; i++) h = hash_mix(h, (uint64_t)s->list[i]);
  return h;
}

static uint64_t hash_stmts(uint64_t h, const ir_func *f) {
  for (uint32_t i = 0; i < f->statements.len; i++) h = hash_stmt(h, &f->statements.data[i]);
  return h;
}

static bool is_read(const ir_op_data *op, const bool *read) {
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    if (read[ir_op_result(op, k).id]) return true;
  return false;
}

/* What forms were written in the place of is computed no more. */
static void drop_unread(ir_func *f) {
  bool *read = ARENA_ARRAY(&f->module->memory, f->tensors.len, bool);
  uint32_t n = f->order.len, first = n;
  for (uint32_t i = 0; i < f->outputs.len; i++) read[f->outputs.data[i].id] = true;
  for (uint32_t i = n; i-- > 0;) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    if (!is_read(op, read)) continue;
    for (uint32_t k = 0; k < op->n_operands; k++) read[op->operands[k].id] = true;
    f->order.data[--first] = f->order.data[i];
  }
  f->order.len = n - first;
  for (uint32_t i = first; i < n; i++) f->order.data[i - first] = f->order.data[i];
}

static void decompose_and_count(ir_func *f, trial *t) {
  arena *memory = &f->module->memory;
  (void)shard_write_forms(f, memory);
  (void)shard_group_sums(f, memory);
  drop_unread(f);
  shard_ctx *ctx = shard_begin(f, memory);
  if (!shard_decompose(ctx)) return;
  t->bytes = shard_moved_bytes(ctx);
  t->flops = shard_product_flops(ctx);
}

/* What decomposing `f`, propagated by the choice, makes devices receive and compute. Many choices state the same. */
static void count_cost(choosing *c, ir_func *f, trial *t) {
  uint32_t i = 0;
  t->choice.met = t->choice.gave = t->choice.turns = NULL;
  t->stated = hash_stmts(0, f);
  while (i < c->tried.len && c->tried.data[i].stated != t->stated) i++;
  if (i < c->tried.len) {
    t->bytes = c->tried.data[i].bytes;
    t->flops = c->tried.data[i].flops;
  } else if (t->met) {
    decompose_and_count(f, t);
  }
  if (c->tries) c->tries--;
  vec_push(&f->module->memory, &c->tried, *t);
}

static void propagate_by(choosing *c, ir_func *f, trial *t) {
  t->choice.class_of = c->classes;
  t->choice.n_ops = c->f->ops.len;
  t->choice.met = &t->met;
  t->choice.gave = &t->gave;
  t->choice.turns = &t->turns;
  f->choice = &t->choice;
  (void)shard_propagate_to(f, NULL);
}

static bool same_choice(const shard_choice *a, const shard_choice *b) {
  return a->by_cost == b->by_cost && a->yields == b->yields && a->both == b->both &&
         a->turned == b->turned;
}

static trial try_choice(choosing *c, shard_choice choice) {
  trial t = {.choice = choice, .bytes = -1};
  for (uint32_t i = 0; i < c->tried.len; i++)
    if (same_choice(&c->tried.data[i].choice, &choice)) return c->tried.data[i];
  diags before = c->f->module->errors;
  ir_func *copy = ir_func_copy(c->f);
  propagate_by(c, copy, &t);
  count_cost(c, copy, &t);
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
  count_cost(c, other, &t);
  if (t.met) c->f->module->errors = before;
  return t;
}

static double measure(const choosing *c, const trial *t) {
  return c->by_cost ? t->bytes + t->flops / FLOPS_PER_BYTE : t->bytes;
}

static bool is_better(const choosing *c, const trial *a, const trial *b) {
  return a->bytes >= 0 && (b->bytes < 0 || measure(c, a) < measure(c, b));
}

/* The choice, with classes asked. */
static shard_choice asked(const trial *best) {
  const shard_choice *x = &best->choice;
  uint64_t yields = x->by_cost ? best->gave : x->yields;
  return (shard_choice){.yields = yields, .both = x->both, .turned = x->turned};
}

/* No operand yields, one, or both: what the class does `steps` steps on from what it does. */
static trial try_other(choosing *c, const trial *best, uint64_t bit, uint32_t steps) {
  shard_choice x = asked(best);
  uint32_t now = x.both & bit ? 2 : x.yields & bit ? 1 : 0, then = (now + steps) % 3;
  x.yields = then == 1 ? x.yields | bit : x.yields & ~bit;
  x.both = then == 2 ? x.both | bit : x.both & ~bit;
  x.turned &= ~bit;
  return try_choice(c, x);
}

static trial try_turned(choosing *c, const trial *best, uint64_t bit) {
  shard_choice x = asked(best);
  x.turned ^= bit;
  return try_choice(c, x);
}

/* Lets one class after another do something else, until nothing is better; first what is gathered, then what can be
 * exchanged. */
static void improve(choosing *c, uint64_t may, trial *best) {
  enum { WAYS = 2 * SHARD_MAX_CLASSES, ALL = WAYS + SHARD_MAX_CLASSES };
  for (uint32_t k = 0, since = 0; since < ALL && c->tries; k = (k + 1) % ALL, since++) {
    uint32_t class = k < WAYS ? k / 2 : k - WAYS;
    uint64_t bit = (uint64_t)1 << class;
    if (!((k < WAYS ? best->met : best->turns) & may & bit)) continue;
    trial other = k < WAYS ? try_other(c, best, bit, 1 + k % 2) : try_turned(c, best, bit);
    if (!is_better(c, &other, best)) continue;
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

static void search(choosing *c, trial *best) {
  const shard_choice starts[] = {
      {.by_cost = true}, {.yields = UINT64_MAX}, {.yields = UINT64_MAX, .turned = UINT64_MAX}};
  bool known = all_expected(c->f);
  uint64_t may = known ? UINT64_MAX : ~c->of_inputs;
  uint32_t more = c->tries / 2;
  for (uint32_t i = 0; known && i < (best->turns ? 3 : 2); i++) {
    trial other = try_choice(c, starts[i]);
    if (is_better(c, &other, best)) *best = other;
  }
  improve(c, may, best);
  if (!known) return;
  c->by_cost = true;
  c->tries += more;
  for (uint32_t i = 0; i < c->tried.len; i++)
    if (is_better(c, &c->tried.data[i], best)) *best = c->tried.data[i];
  improve(c, may, best);
}

/* Large programs are tried less often. */
static uint32_t tries_for(const ir_func *f) {
  enum { LEAST = 3, MOST = 40, OPS = 12000 };
  uint32_t n = OPS / (f->order.len + 1);
  return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

/* ---- what was decided already ---- */
/* Of all that a choice depends on; handles mean the same in all copies of a function. */
static uint64_t key_of(const ir_func *f) {
  const ir_module *m = f->module;
  uint64_t h = hash_bytes(m->expected.data, m->expected.len * sizeof *m->expected.data);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    h = hash_mix(hash_mix(h, f->order.data[i].id), op->code);
    for (uint32_t k = 0; k < op->n_operands; k++) h = hash_mix(h, op->operands[k].id);
  }
  return hash_mix(hash_stmts(h, f), f->name);
}

static const shard_choice *made_before(const ir_module *m, uint64_t key) {
  const shard_choice *x = m->choices;
  while (x && x->key != key) x = x->next;
  return x;
}

bool shard_choose(ir_func *f) {
  choosing c = {.f = f, .tries = tries_for(f)};
  if (f->choice || f->scheduled.len != f->order.len)
    return false; /* reductions in two steps: not yet */
  if (!shard_is_distributed(f) || !find_classes(&c)) return false;
  uint64_t key = key_of(f);
  f->choice = made_before(f->module, key);
  if (f->choice) return false;
  trial best = try_in_place(&c);
  if (best.met) search(&c, &best);
  best.choice.key = key;
  best.choice.next = f->module->choices;
  f->choice = f->module->choices = arena_copy(&f->module->memory, &best.choice, sizeof best.choice);
  return !best.met;
}
