/* Results that can be where an operand is: the rule of runtime/body.c and bind/place.c, told from symbolic
 * extents before there is a body. */
#include <string.h>

#include "join/internal.h"

/* What an operation has to do with the operand. */
typedef enum reach {
  APART,
  HERE,  /* each element depends on the one at its own place */
  FOLDED /* on those of a column */
} reach;

enum { STEPS = 2 * JOIN_MAX_NODES };

/* A kernel, or an operation alone. */
typedef struct sweep {
  const join_block *b;
  ir_func *h;
  uint32_t groups[2], at;
  uint32_t nodes[STEPS], n; /* what it computes, in order */
  bool folded[STEPS];       /* depends on columns that it adds up */
  reach of[STEPS];
  ir_tensor results[STEPS]; /* that need memory */
  uint32_t n_results;
  bool sure, alone; /* alone: before there are groups */
} sweep;

static const ir_op_data *op_of(const sweep *s, uint32_t i) {
  return ir_op_at(s->h, ir_instr_at(s->h, s->b->nodes[s->nodes[i]].instr)->op);
}

static ir_tensor result_of(const sweep *s, uint32_t i) {
  return ir_instr_at(s->h, s->b->nodes[s->nodes[i]].instr)->tensor;
}

/* The operation that makes the tensor; s->n: it is an operand of all. */
static uint32_t maker_of(const sweep *s, ir_tensor t) {
  uint32_t i = 0;
  while (i < s->n && !IR_SAME(result_of(s, i), t)) i++;
  return i;
}

static bool is_tensor(const sweep *s, ir_tensor t) {
  return t.id && ir_tensor_at(s->h, t)->kind != IR_TENSOR_CONST;
}

/* ---- extents ---- */
static bool same_dims(const sweep *s, ir_tensor x, ir_tensor y) {
  ir_axis p[IR_MAX_RANK], q[IR_MAX_RANK];
  uint32_t n = ir_tensor_dims(s->h, x, p);
  if (n != ir_tensor_dims(s->h, y, q)) return false;
  for (uint32_t d = 0; d < n; d++) {
    ir_proof equal = ir_func_equal(s->h, ir_axis_size(s->h, p[d]), ir_axis_size(s->h, q[d]));
    if (s->sure ? equal != IR_TRUE : equal == IR_FALSE) return false;
  }
  return true;
}

static bool same_size(const sweep *s, ir_tensor x, ir_tensor y) {
  return ir_dtype_size_bytes(ir_tensor_at(s->h, x)->dtype) ==
             ir_dtype_size_bytes(ir_tensor_at(s->h, y)->dtype) &&
         same_dims(s, x, y);
}

/* ---- what is computed ---- */
static bool is_pointwise(const ir_op_data *op) {
  return ir_op_is_elementwise(op->code) || ir_op_info_of(op->code)->family == IR_FAMILY_MAKER;
}

/* Does it fold the first dimensions, and not all? */
static bool folds_columns(const sweep *s, const ir_op_data *op) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(s->h, op->operands[0], dims), folded = 0, n = 0;
  if (ir_op_info_of(op->code)->family != IR_FAMILY_REDUCE) return false;
  const ir_attr *named = ir_op_attr(op, "dims");
  for (uint32_t i = 0; named->given && i < named->len; i++) {
    int64_t d = named->ints[i] < 0 ? named->ints[i] + (int64_t)rank : named->ints[i];
    folded |= 1U << d;
  }
  while (folded >> n & 1) n++;
  return folded && folded >> n == 0 && n < rank;
}

static void add_node(sweep *s, uint32_t n) {
  uint32_t k = s->n++;
  check(s->n <= STEPS);
  for (; k > 0 && s->nodes[k - 1] > n; k--) s->nodes[k] = s->nodes[k - 1];
  s->nodes[k] = n;
}

static void add_group(sweep *s, uint32_t g) {
  const join_group *group = &s->b->groups[g];
  for (uint32_t n = group->first; n != JOIN_NONE; n = s->b->nodes[n].next) add_node(s, n);
  for (uint32_t i = 0; i < group->absorbed.len; i++) add_node(s, group->absorbed.data[i]);
}

/* Views of memory that the kernel does not make stay outside of it. */
static void drop_views(sweep *s) {
  uint32_t n = s->n;
  s->n = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t node = s->nodes[i];
    const ir_instr_data *d = ir_instr_at(s->h, s->b->nodes[node].instr);
    bool made = d->kind != IR_VIEW || maker_of(s, ir_op_at(s->h, d->op)->operands[0]) < s->n;
    if (made) s->nodes[s->n++] = node;
  }
}

static void find_results(sweep *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    ir_tensor t = result_of(s, i), root = s->b->facts->root[t.id];
    if (ir_instr_at(s->h, s->b->nodes[s->nodes[i]].instr)->kind == IR_VIEW) continue;
    uint32_t g = s->b->nodes[s->nodes[i]].group;
    if (!s->alone && g != s->groups[0] && g != s->groups[1]) continue; /* absorbed */
    if (s->alone || !join_is_inside(s->b, root, s->groups[0], s->groups[1]))
      s->results[s->n_results++] = t;
  }
}

/* Is it done position by position, so that a result may be written over what was read there? */
static bool is_sweep(sweep *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    const ir_op_data *op = op_of(s, i);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      uint32_t from = is_tensor(s, op->operands[k]) ? maker_of(s, op->operands[k]) : s->n;
      if (from < i && s->folded[from]) s->folded[i] = true;
    }
    if (s->n == 1) return ir_op_is_elementwise(op->code) && op->code != IR_OP_SET;
    if (is_pointwise(op)) continue;
    if (s->folded[i] || !folds_columns(s, op)) return false;
    s->folded[i] = true;
  }
  return s->n > 0;
}

/* All results that are not folded have the dimensions of x, and what is folded too. */
static bool walks(const sweep *s, ir_tensor x) {
  for (uint32_t r = 0; r < s->n_results; r++)
    if (!s->folded[maker_of(s, s->results[r])] && !same_dims(s, s->results[r], x)) return false;
  for (uint32_t i = 0; i < s->n; i++)
    if (!is_pointwise(op_of(s, i)) && !same_dims(s, op_of(s, i)->operands[0], x)) return false;
  return true;
}

static reach reach_of(const sweep *s, uint32_t i, ir_tensor x) {
  const ir_op_data *op = op_of(s, i);
  reach most = APART;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_tensor t = op->operands[k];
    if (!is_tensor(s, t)) continue;
    uint32_t from = maker_of(s, t);
    reach r = from < i ? s->of[from] : IR_SAME(t, x) ? HERE : APART;
    if (r > most) most = r;
  }
  return most;
}

/* Is x read by nothing but what computes the element at its place, or folds columns? */
static bool is_read_here(sweep *s, ir_tensor x) {
  for (uint32_t i = 0; i < s->n; i++) {
    bool single = ir_op_is_elementwise(op_of(s, i)->code), like = same_dims(s, result_of(s, i), x);
    s->of[i] = reach_of(s, i, x);
    if (s->of[i] == HERE && !(single && like)) {
      if (is_pointwise(op_of(s, i)) || !folds_columns(s, op_of(s, i))) return false;
      s->of[i] = FOLDED;
    } else if (s->of[i] == FOLDED && (!single || like)) {
      return false;
    }
  }
  return true;
}

/* ---- operands ---- */
/* Without groups. */
static bool ends_at(const sweep *s, ir_tensor root) {
  uint32_t last = s->b->facts->buffers[root.id].last;
  return join_is_of_block(s->b, root) && s->b->facts->number[s->b->block->data[s->at].id] == last;
}

/* Is it needed by nothing else afterwards, and read through no other view? */
static bool is_last(const sweep *s, ir_tensor x) {
  ir_tensor root = s->b->facts->root[x.id];
  if (!join_needs_memory(s->b, root)) return false;
  if (s->alone) return ends_at(s, root);
  if (!join_ends_before(s->b, root, s->at + 1)) return false;
  if (s->b->facts->turned[x.id]) return false;
  if (s->sure && join_compare_sizes(s->b, x, root) != JOIN_SAME) return false;
  for (uint32_t i = 0; s->sure && i < s->n; i++) {
    const ir_op_data *op = op_of(s, i);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      ir_tensor t = op->operands[k];
      bool other = is_tensor(s, t) && maker_of(s, t) == s->n && !IR_SAME(t, x);
      if (other && IR_SAME(s->b->facts->root[t.id], root)) return false;
    }
  }
  return true;
}

static bool takes(const sweep *s, ir_tensor result, ir_tensor x) {
  ir_tensor root = s->b->facts->root[result.id];
  bool own = IR_SAME(root, result) && join_needs_memory(s->b, root);
  return own && !s->folded[maker_of(s, result)] && same_size(s, result, x) &&
         (s->n == 1 || walks(s, x)) &&
         (s->alone || s->groups[0] != s->groups[1] || join_begins_at(s->b, root, s->at));
}

static bool has(const ir_tensor *list, uint32_t n, ir_tensor t) {
  for (uint32_t i = 0; i < n; i++)
    if (IR_SAME(list[i], t)) return true;
  return false;
}

/* One result where x is. */
static void place_one(sweep *s, ir_tensor x, ir_tensor *placed, uint32_t *n_placed) {
  for (uint32_t r = 0; r < s->n_results && *n_placed < JOIN_MAX_RESULTS; r++) {
    if (has(placed, *n_placed, s->results[r]) || !takes(s, s->results[r], x)) continue;
    if (is_read_here(s, x)) placed[(*n_placed)++] = s->results[r];
    return;
  }
}

static uint32_t place_all(sweep *s, ir_tensor *results) {
  ir_tensor seen[JOIN_MAX_OPERANDS];
  uint32_t n_placed = 0, n_seen = 0;
  drop_views(s);
  find_results(s);
  if (s->n_results == 0 || !is_sweep(s)) return 0;
  for (uint32_t i = 0; i < s->n; i++) {
    const ir_op_data *op = op_of(s, i);
    for (uint32_t k = 0; k < op->n_operands && n_seen < JOIN_MAX_OPERANDS; k++) {
      ir_tensor x = op->operands[k];
      if (!is_tensor(s, x) || maker_of(s, x) < s->n || has(seen, n_seen, x)) continue;
      seen[n_seen++] = x;
      if (is_last(s, x)) place_one(s, x, results, &n_placed);
    }
  }
  return n_placed;
}

uint32_t join_in_place(const join_block *b, uint32_t g, uint32_t other, uint32_t at, bool sure,
                       ir_tensor *results) {
  sweep s = {.b = b, .h = b->facts->h, .groups = {g, other}, .at = at, .sure = sure};
  add_group(&s, g);
  if (other != g) add_group(&s, other);
  return place_all(&s, results);
}

uint32_t join_in_place_alone(const join_block *b, uint32_t node, ir_tensor *results) {
  sweep s = {.b = b, .h = b->facts->h, .at = b->nodes[node].at, .alone = true};
  add_node(&s, node);
  return place_all(&s, results);
}
