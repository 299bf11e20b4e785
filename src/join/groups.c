/* Which operations are grouped: greedily, in program order, consumers with their producers. */
#include "join/internal.h"

const ir_instr_data *join_instr(const join_block *b, uint32_t at) {
  return ir_instr_at(b->facts->h, b->block->data[at]);
}

static const ir_op_data *op_at(const join_block *b, uint32_t at) {
  return ir_op_at(b->facts->h, join_instr(b, at)->op);
}

static ir_tensor root_of(const join_block *b, ir_tensor t) { return b->facts->root[t.id]; }

static bool computes(const ir_instr_data *d) {
  return d->kind == IR_COMPUTE || d->kind == IR_LAUNCH;
}

/* ---- is the order kept? ---- */
bool join_reads(const join_block *b, uint32_t at, ir_tensor root) {
  const ir_op_data *op = op_at(b, at);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (op->operands[k].id && IR_SAME(root_of(b, op->operands[k]), root)) return true;
  }
  return false;
}

bool join_writes(const join_block *b, uint32_t at, ir_tensor root) {
  const ir_op_data *op = op_at(b, at);
  for (uint32_t k = 0; computes(join_instr(b, at)) && k < ir_op_n_results(op); k++) {
    if (IR_SAME(root_of(b, ir_op_result(op, k)), root)) return true;
  }
  return false;
}

/* Does `at` write what `node` reads? */
static bool overwrites(const join_block *b, uint32_t at, uint32_t node) {
  const ir_op_data *op = op_at(b, node);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (op->operands[k].id && join_writes(b, at, root_of(b, op->operands[k]))) return true;
  }
  return false;
}

/* Must what is at position `node` come before what is at `at`? */
bool join_precedes(const join_block *b, uint32_t node, uint32_t at) {
  const ir_op_data *op = op_at(b, node);
  for (uint32_t k = 0; computes(join_instr(b, node)) && k < ir_op_n_results(op); k++) {
    ir_tensor root = root_of(b, ir_op_result(op, k));
    if (join_reads(b, at, root) || join_writes(b, at, root)) return true;
  }
  return overwrites(b, at, node);
}

static uint32_t group_at(const join_block *b, uint32_t at) {
  uint32_t node = b->node_at[at];
  return node ? b->nodes[node - 1].group : JOIN_NONE;
}

/* May the operations of group g come after what is between its last one and position `to`, and is
 * neither in g nor in `other`? */
bool join_may_move(const join_block *b, uint32_t g, uint32_t other, uint32_t to) {
  for (uint32_t at = b->nodes[b->groups[g].last].at + 1; at < to; at++) {
    uint32_t mine = group_at(b, at);
    if (!computes(join_instr(b, at)) || mine == g || mine == other) continue;
    for (uint32_t n = b->groups[g].first; n != JOIN_NONE && b->nodes[n].at < at;
         n = b->nodes[n].next) {
      if (join_precedes(b, b->nodes[n].at, at)) return false;
    }
  }
  return true;
}

/* ---- may two groups be one kernel? ---- */
/* A result that keeps its memory is read by later operations as it was written, and by no earlier one. */
static bool stays_apart(const join_block *b, uint32_t writer, uint32_t g) {
  const ir_instr_data *d = join_instr(b, b->nodes[writer].at);
  ir_tensor root = root_of(b, d->tensor);
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next) {
    uint32_t at = b->nodes[n].at;
    const ir_op_data *op = op_at(b, at);
    if (n != writer && join_writes(b, at, root)) return false;
    for (uint32_t k = 0; k < op->n_operands; k++) {
      ir_tensor t = op->operands[k];
      if (!t.id || !IR_SAME(root_of(b, t), root)) continue;
      if (n <= writer || !IR_SAME(t, d->tensor)) return false;
    }
  }
  return true;
}

/* A view that neither group computes looks at memory, which has the result only after the kernel. */
static bool has_view_outside(const join_block *b, uint32_t writer, uint32_t of, uint32_t g) {
  ir_tensor t = join_instr(b, b->nodes[writer].at)->tensor;
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next) {
    const ir_op_data *op = op_at(b, b->nodes[n].at);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      ir_tensor x = op->operands[k];
      if (!x.id || IR_SAME(x, t) || !IR_SAME(root_of(b, x), root_of(b, t))) continue;
      uint32_t view = map_get(&b->writer, x.id, 0),
               in = view ? b->nodes[view - 1].group : JOIN_NONE;
      if (in != of && in != g) return true;
    }
  }
  return false;
}

bool join_all_apart(const join_block *b, uint32_t of, uint32_t g) {
  for (uint32_t n = b->groups[of].first; n != JOIN_NONE; n = b->nodes[n].next) {
    const ir_instr_data *d = join_instr(b, b->nodes[n].at);
    if (d->kind == IR_VIEW) continue;
    bool private = join_is_private(b->facts, d->tensor);
    if (private ? has_view_outside(b, n, of, g) : !stays_apart(b, n, g)) return false;
  }
  return true;
}

/* Operands and results at most; those inside the kernel are counted, too. */
static bool is_small(const join_block *b, uint32_t g, uint32_t other) {
  uint32_t nodes = 0, operands = 0, results = 0;
  for (int side = 0; side < 2; side++) {
    uint32_t n = b->groups[side ? other : g].first;
    for (; n != JOIN_NONE; n = b->nodes[n].next) {
      const ir_instr_data *d = join_instr(b, b->nodes[n].at);
      nodes++;
      operands += op_at(b, b->nodes[n].at)->n_operands;
      results += d->kind != IR_VIEW && !join_is_private(b->facts, d->tensor);
    }
  }
  return nodes <= JOIN_MAX_NODES && operands <= JOIN_MAX_OPERANDS && results <= JOIN_MAX_RESULTS;
}

/* Both lists in program order. */
void join_merge_lists(join_block *b, uint32_t from, uint32_t to) {
  uint32_t x = b->groups[from].first, y = b->groups[to].first, last = JOIN_NONE;
  uint32_t *link = &b->groups[to].first;
  for (uint32_t n = x; n != JOIN_NONE; n = b->nodes[n].next) b->nodes[n].group = to;
  while (x != JOIN_NONE || y != JOIN_NONE) {
    bool takes_x = y == JOIN_NONE || (x != JOIN_NONE && x < y);
    uint32_t *side = takes_x ? &x : &y;
    last = *link = *side;
    *side = b->nodes[last].next;
    link = &b->nodes[last].next;
  }
  *link = JOIN_NONE;
  b->groups[to].last = last;
  b->groups[to].n_nodes += b->groups[from].n_nodes;
  b->groups[to].careful = b->groups[to].careful || b->groups[from].careful;
  b->groups[from].n_nodes = 0;
}

/* Does an operation of `g` read what `other` knows only when all rows are added up? */
static bool reads_late(const join_block *b, uint32_t g, uint32_t other) {
  for (uint32_t n = b->groups[other].first; n != JOIN_NONE; n = b->nodes[n].next) {
    if (!b->nodes[n].late) continue;
    ir_tensor root = root_of(b, join_instr(b, b->nodes[n].at)->tensor);
    for (uint32_t m = b->groups[g].first; m != JOIN_NONE; m = b->nodes[m].next) {
      if (join_reads(b, b->nodes[m].at, root)) return true;
    }
  }
  return false;
}

static void mark_late(join_block *b, uint32_t g) {
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next)
    b->nodes[n].late = true;
}

/* Operands with borders (pad, cat) are not read through tiles, so they are not permuted in the same kernel. */
static bool turns_borders(const join_block *b, uint32_t g, uint32_t other) {
  bool turns = false, borders = false;
  for (int side = 0; side < 2; side++) {
    uint32_t n = b->groups[side ? other : g].first;
    for (; n != JOIN_NONE; n = b->nodes[n].next) {
      ir_opcode code = op_at(b, b->nodes[n].at)->code;
      turns = turns || ir_op_info_of(code)->family == IR_FAMILY_PERMUTE;
      borders = borders || join_is_border(code);
    }
  }
  return turns && borders;
}

typedef bool fit(ir_func *h, const join_space *a, const join_space *b, join_space *both);

/* Group `a`, which ends before `b` does, becomes a part of it. */
static void try_merge(join_block *b, uint32_t a, uint32_t into, fit *fits) {
  join_group *first = &b->groups[a], *then = &b->groups[into];
  join_space both;
  if (a == into || !is_small(b, a, into) || reads_late(b, a, into)) return;
  if (first->space.product || then->space.product || turns_borders(b, a, into)) return;
  bool late = reads_late(b, into, a);
  if (late) fits = join_space_follows;
  if (!fits(b->facts->h, &first->space, &then->space, &both)) return;
  if (!join_may_move(b, a, into, b->nodes[then->last].at)) return;
  if (!join_keeps_memory(b, a, into, b->nodes[then->last].at)) return;
  bool careful = first->careful || then->careful;
  if (careful && !join_keeps_memory_now(b, a, into, b->nodes[then->last].at)) return;
  bool apart = join_all_apart(b, a, a) && join_all_apart(b, a, into) &&
               join_all_apart(b, into, a) && join_all_apart(b, into, into);
  if (!apart) return;
  if (late) mark_late(b, into);
  join_merge_lists(b, a, into);
  then->space = both;
}

/* The node that makes the operand, in the same run; JOIN_NONE: there is none. */
uint32_t join_producer_of(const join_block *b, uint32_t node, ir_tensor t) {
  uint32_t writer = t.id ? map_get(&b->writer, t.id, 0) : 0;
  if (!writer || writer - 1 >= node) return JOIN_NONE;
  return b->run_at[b->nodes[writer - 1].at] == b->run_at[b->nodes[node].at] ? writer - 1
                                                                            : JOIN_NONE;
}

/* Are all results of the group private, and read by it and by this node alone? */
static bool is_for_one(const join_block *b, uint32_t g, uint32_t node) {
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next) {
    ir_tensor t = join_instr(b, b->nodes[n].at)->tensor;
    if (!join_is_private(b->facts, t)) return false;
    const join_numbers *readers = join_readers(b, root_of(b, t));
    for (uint32_t i = 0; i < readers->len; i++) {
      uint32_t at = readers->data[i];
      if (at != b->nodes[node].at && group_at(b, at) != g) return false;
    }
  }
  return true;
}

static void join_producers(join_block *b, uint32_t node) {
  const ir_op_data *op = op_at(b, b->nodes[node].at);
  for (uint32_t k = op->n_operands; k-- > 0;) {
    uint32_t p = join_producer_of(b, node, op->operands[k]);
    if (p == JOIN_NONE) continue;
    uint32_t from = b->nodes[p].group, into = b->nodes[node].group;
    const join_space *s = &b->nodes[node].space;
    bool alone =
        s->moves || (s->ends && s->outer == 0); /* of what it reads, nothing else is kept */
    if (alone && (from == into || !is_for_one(b, from, node))) continue;
    try_merge(b, from, into, s->moves ? join_space_moves : join_spaces_fit);
  }
}

/* Groups that read the same tensor, each element of it. */
static void join_siblings(join_block *b, uint32_t node) {
  const ir_op_data *op = op_at(b, b->nodes[node].at);
  if (b->nodes[node].space.product) return;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_tensor t = op->operands[k];
    if (!t.id || ir_tensor_at(b->facts->h, t)->kind == IR_TENSOR_CONST) continue;
    uint32_t other = map_get(&b->sibling, t.id, 0);
    map_put(&b->sibling, t.id, node + 1);
    if (!other || b->nodes[other - 1].space.moves || b->nodes[node].space.moves) continue;
    if (b->run_at[b->nodes[other - 1].at] != b->run_at[b->nodes[node].at]) continue;
    uint32_t g = b->nodes[other - 1].group, h = b->nodes[node].group;
    if (b->nodes[b->groups[g].last].at > b->nodes[b->groups[h].last].at) {
      uint32_t swap = g;
      g = h;
      h = swap;
    }
    if (join_space_is_whole(b->facts->h, &b->groups[h].space, t))
      try_merge(b, g, h, join_spaces_alike);
  }
}

/* ---- cheap operations ---- */
static bool is_unchanged(const join_block *b, uint32_t node, uint32_t to) {
  for (uint32_t at = b->nodes[node].at + 1; at < to; at++) {
    if (computes(join_instr(b, at)) && overwrites(b, at, b->nodes[node].at)) return false;
  }
  return true;
}

static bool has(const join_numbers *list, uint32_t n) {
  for (uint32_t i = 0; i < list->len; i++) {
    if (list->data[i] == n) return true;
  }
  return false;
}

/* Notes that the instruction at position `at` now reads the operands of the node, too. */
static void read_for(join_block *b, uint32_t node, uint32_t at) {
  const ir_op_data *op = op_at(b, b->nodes[node].at);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (!op->operands[k].id) continue;
    join_add_reader(b, root_of(b, op->operands[k]), at);
    join_add_touch(b, root_of(b, op->operands[k]), at);
  }
}

/* What moves elements reads each of them at most once, so whatever space its operand has, it costs no more
 * to compute it there; of others, the space must take it. */
static bool may_absorb(const join_block *b, uint32_t g, uint32_t node, uint32_t p) {
  const join_space *small = &b->nodes[p].space;
  if (b->nodes[node].space.moves) return small->light && !small->moves;
  return join_space_absorbs(b->facts->h, &b->groups[g].space, small);
}

/* Operands first, so that the list is in an order in which it can be computed. */
static void absorb_operands(join_block *b, uint32_t g, uint32_t node) {
  join_group *group = &b->groups[g];
  const ir_op_data *op = op_at(b, b->nodes[node].at);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    uint32_t p = join_producer_of(b, node, op->operands[k]);
    if (p == JOIN_NONE || b->nodes[p].group == g || has(&group->absorbed, p)) continue;
    if (group->n_nodes + group->absorbed.len >= JOIN_MAX_NODES) return;
    if (!join_is_private(b->facts, join_instr(b, b->nodes[p].at)->tensor)) continue;
    if (!may_absorb(b, g, node, p)) continue;
    if (!is_unchanged(b, p, b->nodes[group->last].at) || !join_absorbs_memory(b, g, p)) continue;
    bool careful = group->careful || b->nodes[p].careful;
    if (careful && !join_absorbs_memory_now(b, g, p)) continue;
    absorb_operands(b, g, p);
    vec_push(b->facts->scratch, &group->absorbed, p);
    read_for(b, p, b->nodes[group->last].at);
  }
}

static void absorb(join_block *b, uint32_t g) {
  if (b->groups[g].space.light) return;   /* its readers absorb it */
  if (b->groups[g].space.product) return; /* it has what it takes */
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next)
    absorb_operands(b, g, n);
}

/* ---- the block ---- */
static void add_node(join_block *b, uint32_t at) {
  const ir_instr_data *d = join_instr(b, at);
  join_space space;
  if (d->kind != IR_COMPUTE && d->kind != IR_VIEW) return;
  if (d->kind == IR_VIEW && !join_is_private(b->facts, d->tensor)) return;
  if (!join_space_of(b->facts->h, d, &space)) return;
  uint32_t n = b->n_nodes++;
  bool careful = b->careful_at[at];
  b->nodes[n] = (join_node){b->block->data[at], at, n, JOIN_NONE, careful, space.ends, space};
  b->groups[n] =
      (join_group){.first = n, .last = n, .n_nodes = 1, .careful = careful, .space = space};
  b->node_at[at] = n + 1;
}

void join_find_groups(join_block *b) {
  for (uint32_t at = 0; at < b->block->len; at++) add_node(b, at);
  for (uint32_t n = 0; n < b->n_nodes; n++) {
    join_producers(b, n);
    map_put(&b->writer, join_instr(b, b->nodes[n].at)->tensor.id, n + 1);
  }
  join_epilogues(b);
  for (uint32_t n = 0; n < b->n_nodes; n++) join_siblings(b, n);
  for (uint32_t n = 0; n < b->n_nodes; n++) {
    if (b->groups[n].n_nodes) absorb(b, n);
  }
}
