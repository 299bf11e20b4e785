/* Is no more memory in use than without groups?
 *
 * At each position at which something is computed, what is in use there is compared with what would be in use at some
 * position without groups: first the same one, then those of the operations of the kernel, then all. If each tensor
 * that is in use only with groups has one as large that is in use only without, the peak is not above that of the
 * program without groups. Before that, bytes are added up for the extents that are expected (ir_module_usual()): a position
 * whose sum is not above the peak without groups is no peak. If neither holds, the kernel that is computed there, and all
 * that keep something for later, are found again with more care (careful.c). */
#include <math.h>

#include "join/internal.h"

/* What a row kernel keeps beside its rows is not worth reading and writing them once more. */
#define MOST_GROWTH (1 + 1.0 / 64)
enum { MOST_NEEDS = 256, MOST_STEPS = 20 * 1000 * 1000, POOL_ALIGN = 64 };

/* From position `first` to `end`, both included. */
typedef struct span {
  uint32_t first, end;
  bool used;
} span;

typedef struct buffer {
  ir_tensor root;
  span apart, joined;
  double bytes; /* for the usual extents */
} buffer;

typedef struct lists {
  ir_tensor needs[MOST_NEEDS], rooms[MOST_NEEDS];
  bool taken[MOST_NEEDS];
  uint32_t n_needs, n_rooms;
  bool full;
} lists;

typedef struct look {
  join_block *b;
  VEC(buffer) buffers;
  map known; /* roots that are in the list */
  bool *dead,
      *gone; /* by node: every reader computes it for itself; or is in its kernel, so that it needs no memory */
  uint32_t steps;
  bool marked;
  int64_t *values; /* ir_module_usual() */
  double *joined;  /* by position: bytes in use with groups */
  double peak;     /* the most bytes in use without */
} look;

static bool has(const join_numbers *list, uint32_t n) {
  for (uint32_t i = 0; i < list->len; i++)
    if (list->data[i] == n) return true;
  return false;
}

/* ---- what needs memory ---- */
/* Does every reader compute it for itself? own: or in the same kernel. */
static bool is_computed_again(const look *x, uint32_t node, bool own) {
  const join_block *b = x->b;
  ir_tensor root = b->facts->root[join_instr(b, b->nodes[node].at)->tensor.id];
  if (!join_is_private(b->facts, root)) return false;
  const join_numbers *readers = join_readers(b, root);
  for (uint32_t i = 0; i < readers->len; i++) {
    uint32_t reader = b->node_at[readers->data[i]];
    if (!reader) return false;
    uint32_t g = b->nodes[reader - 1].group;
    bool here = own && g == b->nodes[node].group;
    if (!here && !has(&b->groups[g].absorbed, node) && !x->dead[reader - 1]) return false;
  }
  return true;
}

static span apart_of(const look *x, ir_tensor root) {
  const join_buffer *f = &x->b->facts->buffers[root.id];
  if (!f->first) return (span){.used = false};
  return (span){join_position(x->b, f->first), join_position(x->b, f->last), true};
}

/* From the spans without groups: operations only move to later positions. */
static span joined_of(const look *x, ir_tensor root, span apart) {
  const join_numbers *list = join_touches(x->b, root);
  uint32_t writer = x->b->node_at[apart.first], first = UINT32_MAX;
  if (!apart.used || (writer && x->gone[writer - 1])) return (span){.used = false};
  for (uint32_t i = 0; i < list->len; i++) {
    uint32_t at = join_moved_to(x->b, list->data[i]);
    if (at < first) first = at;
    if (at > apart.end) apart.end = at;
  }
  if (writer && first != UINT32_MAX) apart.first = first;
  return apart;
}

/* In the pool. */
static double bytes_of(const look *x, ir_tensor t) {
  const ir_func *h = x->b->facts->h;
  double bytes =
      ir_tensor_elements(h, t, x->values) * (double)ir_dtype_size_bytes(ir_tensor_at(h, t)->dtype);
  return ceil(bytes / POOL_ALIGN) * POOL_ALIGN;
}

static void add_buffer(look *x, ir_tensor t) {
  ir_tensor root = x->b->facts->root[t.id];
  if (!t.id || map_get(&x->known, root.id, 0)) return;
  map_put(&x->known, root.id, 1);
  if (!join_needs_memory(x->b, root) || !join_is_of_block(x->b, root)) return;
  buffer found = {.root = root, .apart = apart_of(x, root), .bytes = bytes_of(x, root)};
  found.joined = joined_of(x, root, found.apart);
  vec_push(x->b->facts->scratch, &x->buffers, found);
}

static void find_buffers(look *x) {
  for (uint32_t n = x->b->n_nodes; n-- > 0;) {
    x->dead[n] = is_computed_again(x, n, false);
    x->gone[n] = is_computed_again(x, n, true);
  }
  for (uint32_t at = 0; at < x->b->block->len; at++) {
    const ir_instr_data *d = join_instr(x->b, at);
    if (d->kind == IR_ALLOCATE || d->kind == IR_DEALLOCATE) add_buffer(x, d->tensor);
    if (d->kind != IR_COMPUTE && d->kind != IR_LAUNCH) continue;
    const ir_op_data *op = ir_op_at(x->b->facts->h, d->op);
    for (uint32_t k = 0; k < op->n_operands; k++) add_buffer(x, op->operands[k]);
    for (uint32_t k = 0; k < ir_op_n_results(op); k++) add_buffer(x, ir_op_result(op, k));
  }
}

/* ---- two positions ---- */
static bool is_in(const span *s, uint32_t at) { return s->used && s->first <= at && at <= s->end; }

static void add(lists *l, bool need, ir_tensor t) {
  uint32_t *n = need ? &l->n_needs : &l->n_rooms;
  l->full = l->full || *n == MOST_NEEDS;
  if (*n < MOST_NEEDS) (need ? l->needs : l->rooms)[(*n)++] = t;
}

static void add_in_place(const look *x, uint32_t to, uint32_t from, lists *l) {
  const join_block *b = x->b;
  ir_tensor results[JOIN_MAX_RESULTS];
  uint32_t node = b->node_at[from], n = 0;
  if (node) n = join_in_place_alone(b, node - 1, results);
  for (uint32_t i = 0; i < n; i++) add(l, true, results[i]);
  node = b->node_at[to];
  uint32_t g = node ? b->nodes[node - 1].group : JOIN_NONE;
  n = node ? join_in_place(b, g, g, to, true, results) : 0;
  for (uint32_t i = 0; i < n; i++) add(l, false, results[i]);
}

static bool fits(const join_block *b, lists *l) {
  for (uint32_t i = 0; i < l->n_rooms; i++) l->taken[i] = false;
  for (uint32_t i = 0; i < l->n_needs; i++) {
    uint32_t found = MOST_NEEDS;
    for (uint32_t k = 0; k < l->n_rooms; k++) {
      join_size size = l->taken[k] ? JOIN_LARGER : join_compare_sizes(b, l->needs[i], l->rooms[k]);
      if (size != JOIN_LARGER) found = k;
      if (size == JOIN_SAME) break;
    }
    if (found == MOST_NEEDS) return false;
    l->taken[found] = true;
  }
  return !l->full;
}

/* Is no more in use at `to` with groups than at `from` without? */
static bool is_covered(look *x, uint32_t to, uint32_t from) {
  lists l;
  l.n_needs = l.n_rooms = 0;
  l.full = false;
  x->steps += x->buffers.len;
  for (uint32_t i = 0; i < x->buffers.len; i++) {
    const buffer *r = &x->buffers.data[i];
    bool joined = is_in(&r->joined, to), apart = is_in(&r->apart, from);
    if (joined != apart && !(joined && join_is_small(x->b, r->root))) add(&l, joined, r->root);
  }
  if (l.n_needs > l.n_rooms + JOIN_MAX_RESULTS) return false;
  add_in_place(x, to, from, &l);
  return fits(x->b, &l);
}

/* ---- sums of bytes ---- */
/* Adds the bytes to all positions of the span, to be summed up from the first. */
static void put_span(double *sums, const span *s, double bytes) {
  if (!s->used) return;
  sums[s->first] += bytes;
  sums[s->end + 1] -= bytes;
}

/* Of results that take the place of an operand: counted twice before. */
static double in_place_bytes(const look *x, const ir_tensor *results, uint32_t n) {
  double bytes = 0;
  for (uint32_t i = 0; i < n; i++) bytes += bytes_of(x, results[i]);
  return bytes;
}

static void add_up(look *x) {
  const join_block *b = x->b;
  uint32_t len = b->block->len;
  double *apart = ARENA_ARRAY(b->facts->scratch, len + 1, double), now = 0, with = 0;
  x->joined = ARENA_ARRAY(b->facts->scratch, len + 1, double);
  for (uint32_t i = 0; i < x->buffers.len; i++) {
    const buffer *r = &x->buffers.data[i];
    put_span(apart, &r->apart, r->bytes);
    put_span(x->joined, &r->joined, r->bytes);
  }
  for (uint32_t at = 0; at < len; at++) {
    ir_tensor results[JOIN_MAX_RESULTS];
    uint32_t node = b->node_at[at], g = node ? b->nodes[node - 1].group : JOIN_NONE;
    x->joined[at] = with += x->joined[at];
    now += apart[at];
    if (!node) continue;
    x->joined[at] -= in_place_bytes(x, results, join_in_place(b, g, g, at, true, results));
    double used = now - in_place_bytes(x, results, join_in_place_alone(b, node - 1, results));
    if (used > x->peak) x->peak = used;
  }
}

/* ---- all positions ---- */
static bool is_candidate(const look *x, uint32_t at) {
  ir_instr_kind kind = join_instr(x->b, at)->kind;
  return kind == IR_COMPUTE || kind == IR_LAUNCH || kind == IR_COMMUNICATE || kind == IR_WAIT;
}

static bool is_covered_somewhere(look *x, uint32_t at) {
  const join_block *b = x->b;
  uint32_t node = b->node_at[at];
  if (x->joined[at] <= x->peak * MOST_GROWTH || is_covered(x, at, at)) return true;
  uint32_t n = node ? b->groups[b->nodes[node - 1].group].first : JOIN_NONE;
  for (; n != JOIN_NONE; n = b->nodes[n].next)
    if (is_covered(x, at, b->nodes[n].at)) return true;
  for (uint32_t from = 0; from < b->block->len && x->steps < MOST_STEPS; from++)
    if (is_candidate(x, from) && is_covered(x, at, from)) return true;
  return false;
}

static void mark(look *x, uint32_t node) {
  x->marked = x->marked || !x->b->nodes[node].careful;
  x->b->careful_at[x->b->nodes[node].at] = true;
}

static void mark_group(look *x, uint32_t g) {
  const join_group *group = &x->b->groups[g];
  for (uint32_t n = group->first; n != JOIN_NONE; n = x->b->nodes[n].next) mark(x, n);
  for (uint32_t i = 0; i < group->absorbed.len; i++) mark(x, group->absorbed.data[i]);
}

/* Does the group touch something that is in use there only because of groups? */
static bool keeps_something(const look *x, uint32_t g, uint32_t at) {
  const join_block *b = x->b;
  for (uint32_t i = 0; i < x->buffers.len; i++) {
    const buffer *r = &x->buffers.data[i];
    if (!is_in(&r->joined, at) || is_in(&r->apart, at)) continue;
    for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next) {
      uint32_t own = b->nodes[n].at;
      if (join_reads(b, own, r->root) || join_writes(b, own, r->root)) return true;
    }
  }
  return false;
}

/* The group that computes there, and those that keep something for later. */
static void mark_all(look *x, uint32_t at) {
  const join_block *b = x->b;
  for (uint32_t g = 0; g < b->n_nodes; g++) {
    const join_group *group = &b->groups[g];
    if (group->n_nodes == 0 || group->n_nodes + group->absorbed.len < 2) continue;
    uint32_t last = b->nodes[group->last].at;
    if (last == at || (at < last && (group->absorbed.len || keeps_something(x, g, at))))
      mark_group(x, g);
  }
}

static bool has_groups(const join_block *b) {
  for (uint32_t g = 0; g < b->n_nodes; g++)
    if (b->groups[g].n_nodes && b->groups[g].n_nodes + b->groups[g].absorbed.len > 1) return true;
  return false;
}

bool join_find_excess(join_block *b) {
  look x = {.b = b};
  if (!has_groups(b)) return false;
  map_init(&x.known, b->facts->scratch);
  x.dead = ARENA_ARRAY(b->facts->scratch, b->n_nodes, bool);
  x.gone = ARENA_ARRAY(b->facts->scratch, b->n_nodes, bool);
  x.values = ir_module_usual(b->facts->h->module, b->facts->scratch);
  find_buffers(&x);
  add_up(&x);
  for (uint32_t at = 0; at < b->block->len; at++) /* mutant: join_holds_memory */
    if (join_computes_at(b, at) && !is_covered_somewhere(&x, at)) mark_all(&x, at);
  return x.marked;
}
