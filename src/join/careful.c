/* The rule for memory: no group needs more than its operations alone.
 *
 *   s <- sum(x); deallocate(x)           s is small: if it were computed with z, x would have to stay
 *   t <- …                               while t is computed
 *   z <- s * t
 *
 * A group goes to the end of the one that it joins. What it reads and others gave back before that stays until then
 * (it is held); what it leaves for that group is there no more (it goes). So for each tensor that stays while others
 * compute, there must be one as large that goes.
 *
 * The kernel itself needs what its operations need together: beside its results, tensors that are held. There must have been
 * as much before, where one of the two groups was computed:
 *
 *   where the second was: each tensor that is held is no larger than one that goes
 *   where the first was:  each result of the second, and what others made in between, is no larger than one that goes
 *
 * A result that is put where an operand was needs nothing (places.c): it is counted with what is needed if that was so before,
 * and with what goes if it is so in the joined kernel. */
#include "join/internal.h"

enum { MOST_TENSORS = 2 * JOIN_MAX_OPERANDS };

/* Tensors, each counted once. */
typedef struct tensors {
  ir_tensor list[MOST_TENSORS];
  bool taken[MOST_TENSORS];
  uint32_t n;
  bool full; /* there was no room for some */
} tensors;

typedef struct merging {
  const join_block *b;
  uint32_t a, into, from,
      to; /* groups: `a`, at position `from`, goes to the end of `into`, at `to` */
} merging;

static void add(tensors *x, ir_tensor t) {
  x->full = x->full || x->n == MOST_TENSORS;
  if (!x->full) x->list[x->n++] = t;
}

static void add_new(tensors *x, ir_tensor t) {
  for (uint32_t i = 0; i < x->n; i++)
    if (IR_SAME(x->list[i], t)) return;
  add(x, t);
}

/* Is there a tensor of `rooms` for each that is needed? One of the same size if there is. */
static bool fits(const join_block *b, const tensors *needs, tensors *rooms) {
  for (uint32_t i = 0; i < needs->n; i++) {
    if (join_is_small(b, needs->list[i])) continue;
    uint32_t found = rooms->n;
    for (uint32_t k = 0; k < rooms->n; k++) {
      if (rooms->taken[k]) continue;
      join_size size = join_compare_sizes(b, needs->list[i], rooms->list[k]);
      if (size != JOIN_LARGER) found = k;
      if (size == JOIN_SAME) break;
    }
    if (found == rooms->n) return false;
    rooms->taken[found] = true;
  }
  return !needs->full;
}

/* ---- what stays, what goes ---- */
/* What `a` touches, and nothing else at `before` or later: in the joined kernel it stays. */
static void add_held(const merging *m, ir_tensor t, uint32_t before, tensors *x) {
  ir_tensor root = m->b->facts->root[t.id];
  if (!t.id || !join_needs_memory(m->b, root) || !join_ends_before(m->b, root, before)) return;
  if (!join_is_inside(m->b, root, m->a, m->into)) add_new(x, root);
}

static void add_all_held(const merging *m, uint32_t before, tensors *x) {
  const join_block *b = m->b;
  for (uint32_t n = b->groups[m->a].first; n != JOIN_NONE; n = b->nodes[n].next) {
    const ir_instr_data *d = join_instr(b, b->nodes[n].at);
    const ir_op_data *op = ir_op_at(b->facts->h, d->op);
    for (uint32_t k = 0; k < op->n_operands; k++) add_held(m, op->operands[k], before, x);
    if (d->kind != IR_VIEW) add_held(m, d->tensor, before, x);
  }
}

/* Results of a group that need memory; `inside`: those that would not in the joined kernel, else the others. */
static void add_results(const merging *m, uint32_t g, bool inside, tensors *x) {
  const join_block *b = m->b;
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next) {
    const ir_instr_data *d = join_instr(b, b->nodes[n].at);
    ir_tensor root = b->facts->root[d->tensor.id];
    if (d->kind == IR_VIEW || !join_needs_memory(b, root)) continue;
    if (join_is_inside(b, root, g, g)) continue; /* it needs none now */
    if (join_is_inside(b, root, m->a, m->into) == inside) add(x, root);
  }
}

/* What others made between the two, and is needed. */
static void add_between(const merging *m, tensors *x) {
  const join_block *b = m->b;
  for (uint32_t at = m->from + 1; at < m->to; at++) {
    if (!join_computes_at(b, at)) continue;
    const ir_op_data *op = ir_op_at(b->facts->h, join_instr(b, at)->op);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) {
      ir_tensor root = b->facts->root[ir_op_result(op, k).id];
      if (!join_needs_memory(b, root) || join_ends_before(b, root, m->to)) continue;
      if (join_begins_at(b, root, at)) add_new(x, root);
    }
  }
}

static void add_in_place(const merging *m, uint32_t g, uint32_t other, uint32_t at, bool sure,
                         tensors *x) {
  ir_tensor results[JOIN_MAX_RESULTS];
  uint32_t n = join_in_place(m->b, g, other, at, sure, results);
  for (uint32_t i = 0; i < n; i++) add(x, results[i]);
}

/* ---- the places to look at ---- */
/* While others compute between the two. */
static bool keeps_between(const merging *m) {
  tensors held = {.n = 0}, goes = {.n = 0};
  uint32_t last = m->to - 1;
  while (last > m->from && !join_computes_at(m->b, last)) last--;
  if (last == m->from) return true;
  add_all_held(m, last, &held);
  if (held.n == 0) return true;
  add_results(m, m->a, true, &goes);
  return fits(m->b, &held, &goes);
}

/* Was as much in use where `into` is now? */
static bool keeps_at_second(const merging *m) {
  tensors needs = {.n = 0}, rooms = {.n = 0};
  add_all_held(m, m->to, &needs);
  add_in_place(m, m->into, m->into, m->to, false, &needs);
  add_results(m, m->a, true, &rooms);
  if (needs.n) add_in_place(m, m->a, m->into, m->to, true, &rooms);
  return fits(m->b, &needs, &rooms);
}

/* Or where `a` is? */
static bool keeps_at_first(const merging *m) {
  tensors needs = {.n = 0}, rooms = {.n = 0};
  add_results(m, m->into, false, &needs);
  add_between(m, &needs);
  add_in_place(m, m->a, m->a, m->from, false, &needs);
  add_results(m, m->a, true, &rooms);
  add_in_place(m, m->a, m->into, m->to, true, &rooms);
  return fits(m->b, &needs, &rooms);
}

bool join_keeps_memory_now(const join_block *b, uint32_t a, uint32_t into, uint32_t to) {
  merging m = {.b = b, .a = a, .into = into, .from = b->nodes[b->groups[a].last].at, .to = to};
  return keeps_between(&m) && (keeps_at_second(&m) || keeps_at_first(&m));
}

/* If group g computes node p for itself, the operands of p stay in memory until the end of g. */
bool join_absorbs_memory_now(const join_block *b, uint32_t g, uint32_t p) {
  const ir_instr_data *made = join_instr(b, b->nodes[p].at);
  const ir_op_data *op = ir_op_at(b->facts->h, made->op);
  uint32_t end = b->nodes[b->groups[g].last].at;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_tensor root = b->facts->root[op->operands[k].id];
    bool held = op->operands[k].id && join_needs_memory(b, root) && join_ends_before(b, root, end);
    if (held && join_compare_sizes(b, root, made->tensor) == JOIN_LARGER) return false;
  }
  return true;
}
