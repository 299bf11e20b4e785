/* Random placements against brute force: for small extents, list which elements every device holds and
 * needs, and see that "nothing has to move" is true and that communications deliver.
 *
 * The oracle walks histories with numbers; it shares nothing with the symbolic code but the maps
 * between axes. */
#include <stdlib.h>

#include "base/random.h"
#include "ir/map.h"
#include "unit/shard_kit.h"

/* ---- random programs ---- */

static uint64_t seed_now, drawn;

static uint32_t pick(uint32_t n) { return (uint32_t)(random_bits(seed_now, drawn++) % n); }
static bool chance(uint32_t percent) { return pick(100) < percent; }

static char body[4096];

static void put(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void put(const char *fmt, ...) {
  size_t at = strlen(body);
  va_list args;
  va_start(args, fmt);
  vsnprintf(body + at, sizeof body - at, fmt, args);
  va_end(args);
}

/* Extents: a number, or a name that stands for it. */
enum { MAX_DIMS = 4 };
static int64_t named[MAX_DIMS * 2];
static uint32_t n_named;

typedef struct shape {
  int64_t size[MAX_DIMS];
  int name[MAX_DIMS]; /* -1: a number */
  uint32_t len;
} shape;

static void draw_dim(shape *s, bool symbolic) {
  static const int64_t sizes[] = {1, 2, 3, 4, 4, 5, 6, 6, 8};
  uint32_t i = s->len++;
  s->size[i] = sizes[pick(9)];
  s->name[i] = -1;
  if (!symbolic || s->size[i] == 1 || !chance(35)) return;
  s->name[i] = (int)n_named;
  named[n_named++] = s->size[i];
}

static void put_shape(const shape *s) {
  put("[");
  for (uint32_t i = 0; i < s->len; i++) {
    if (i) put(", ");
    if (s->name[i] < 0) put("%d", (int)s->size[i]);
    else put("n%d", s->name[i]);
  }
  put("]");
}

typedef struct grid {
  int64_t shape[3];
  uint32_t rank;
  int64_t devices[8];
  int64_t n;
} grid;

static void draw_grid(grid *g) {
  int64_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  g->rank = 1 + pick(3);
  g->n = 1;
  for (uint32_t i = 0; i < g->rank; i++) {
    int64_t room = 8 / g->n;
    g->shape[i] = 1 + pick((uint32_t)(room < 3 ? room : 3));
    if (g->shape[i] == 1 && room > 1 && chance(70)) g->shape[i] = 2;
    g->n *= g->shape[i];
  }
  for (uint32_t i = 7; i > 0; i--) {
    uint32_t j = pick(i + 1);
    int64_t x = all[i];
    all[i] = all[j];
    all[j] = x;
  }
  for (int64_t i = 0; i < g->n; i++) g->devices[i] = all[i];
}

static void put_grid(const grid *g, const char *name) {
  put("mesh %s = [", name);
  for (uint32_t i = 0; i < g->rank; i++) put("%s%d", i ? ", " : "", (int)g->shape[i]);
  put("] of {");
  for (int64_t i = 0; i < g->n; i++) put("%s%d", i ? ", " : "", (int)g->devices[i]);
  put("}\n");
}

/* The loop domain while statements are written. */
typedef struct loops {
  const char *name;
  int64_t n[12];
  bool reduced[12], fixed[12];
  uint32_t len;
} loops;

static void cut_model(loops *l, uint32_t at, int64_t outer, int64_t inner) {
  for (uint32_t i = l->len++; i > at; i--) {
    l->n[i] = l->n[i - 1];
    l->reduced[i] = l->reduced[i - 1];
    l->fixed[i] = l->fixed[i - 1];
  }
  l->n[at] = outer;
  l->n[at + 1] = inner;
}

static int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

static uint32_t cut_chunks(loops *l, uint32_t at, int64_t parts) {
  int64_t left = l->n[at], longest = 0;
  put("%s.outer_split(%u, [", l->name, at);
  for (int64_t i = 0; i < parts; i++) {
    int64_t room = left - (parts - i - 1);
    int64_t take = i + 1 == parts ? left : 1 + pick((uint32_t)room);
    put("%s%d", i ? ", " : "", (int)take);
    left -= take;
    if (take > longest) longest = take;
  }
  put("])\n");
  cut_model(l, at, parts, longest);
  return at;
}

/* Makes an axis with `parts` positions out of the one at `at`; returns where it is. */
static uint32_t cut(loops *l, uint32_t at, int64_t parts) {
  int64_t n = l->n[at];
  if (n == parts && chance(50)) return at;
  if (n >= parts && chance(20)) return cut_chunks(l, at, parts);
  if (chance(30)) {
    put("%s.split(%u, %d)\n", l->name, at, (int)parts);
    cut_model(l, at, ceil_of(n, parts), parts);
    return at + 1;
  }
  int64_t factor = ceil_of(n, parts);
  if (chance(30) && ceil_of(n, factor) == parts) {
    put("%s.split(%u, %d)\n", l->name, at, (int)factor);
    cut_model(l, at, parts, factor);
    return at;
  }
  put("%s.outer_split(%u, %d)\n", l->name, at, (int)parts);
  cut_model(l, at, parts, factor);
  return at;
}

static void maybe_merge(loops *l) {
  uint32_t at = pick(l->len);
  if (!chance(12) || at + 1 >= l->len || l->fixed[at] || l->fixed[at + 1]) return;
  if (l->reduced[at] || l->reduced[at + 1]) return;
  put("%s.merge(%u)\n", l->name, at);
  l->n[at] *= l->n[at + 1];
  for (uint32_t i = at + 1; i + 1 < l->len; i++) {
    l->n[i] = l->n[i + 1];
    l->reduced[i] = l->reduced[i + 1];
    l->fixed[i] = l->fixed[i + 1];
  }
  l->len--;
}

static void maybe_swizzle(const loops *l, const grid *g, uint32_t at, uint32_t k) {
  for (uint32_t j = 0; j < g->rank; j++) {
    if (g->shape[g->rank - 1 - j] != l->n[at] || (j == k && !chance(10)) || !chance(12)) continue;
    put("%s.swizzle(%u, mesh.%c)\n", l->name, at, "xyz"[j]);
    return;
  }
}

static void mark(loops *l, const grid *g, uint32_t k, bool reduced) {
  uint32_t at = pick(l->len), tries = 0;
  while ((l->fixed[at] || l->reduced[at] != reduced) && tries++ < 10) at = pick(l->len);
  if (l->fixed[at] || l->reduced[at] != reduced || l->len > 9) return;
  at = cut(l, at, g->shape[g->rank - 1 - k]);
  if (!reduced) maybe_swizzle(l, g, at, k);
  put("%s[%u] = mesh.%c\n", l->name, at, "xyz"[k]);
  l->fixed[at] = true;
}

static void draw_stream(loops *l, const grid *g) {
  uint32_t at = pick(l->len);
  if (l->fixed[at] || l->reduced[at] || l->len > 9) return;
  int64_t parts = chance(60) ? g->shape[pick(g->rank)] : 2;
  put("%s.outer_split(%u, %d)\n", l->name, at, (int)parts);
  cut_model(l, at, parts, ceil_of(l->n[at], parts));
  if (chance(40)) maybe_swizzle(l, g, at, 0);
  put("%s[%u] = stream\n", l->name, at);
  l->fixed[at] = true;
}

static void draw_placement(const char *name, loops *l, const grid *g, const char *mesh,
                           uint32_t density) {
  l->name = name;
  put("%s on %s\n", name, mesh);
  if (l->len == 0) return;
  maybe_merge(l);
  for (uint32_t k = 0; k < g->rank; k++) {
    if (chance(density)) mark(l, g, k, false);
    if (chance(15)) mark(l, g, k, true);
  }
  if (chance(15)) draw_stream(l, g);
}

static loops loops_of(const shape *s) {
  loops l = {.len = s->len};
  for (uint32_t i = 0; i < s->len; i++) l.n[i] = s->size[i];
  return l;
}

/* ---- the oracle ---- */

static int64_t value_of(ir_scalar x) {
  int64_t symbols[64], v = 0;
  if (ir_scalar_is_const(&module.scalars, x, &v)) return v;
  const ir_scalars *s = &module.scalars;
  for (uint32_t i = 0; i < s->symbols.len; i++) {
    const char *name = strings_text(&module.names, s->symbols.data[i].name);
    symbols[i] = name[0] == 'n' ? named[atoi(name + 1)] : 0;
  }
  if (!ir_scalar_eval(s, x, symbols, s->symbols.len, &v)) EXPECT(!"an extent without a value");
  return v;
}

typedef struct point { /* positions of some axes, on a device */
  ir_axis axis[IR_MAX_RANK];
  int64_t at[IR_MAX_RANK];
  uint32_t len;
  ir_mesh mesh;
  int64_t device;
} point;

static int64_t coordinate(ir_mesh mesh, int64_t device, uint32_t k) {
  const ir_mesh_data *m = ir_mesh_at(f, mesh);
  return ir_mesh_coordinate(m, ir_mesh_find(m, device), k);
}

static int64_t index_at(const point *p, ir_axis a);

static int64_t split_at(const ir_transform_data *t, int64_t x, bool outer) {
  if (t->kind == IR_CHUNK_SPLIT) {
    int64_t i = 0;
    while (x >= t->chunks[i]) x -= t->chunks[i++];
    return outer ? i : x;
  }
  int64_t size = value_of(t->factor);
  if (t->kind == IR_OUTER_SPLIT) size = ceil_of(value_of(ir_axis_size(f, t->in[0])), size);
  return outer ? x / size : x % size;
}

static int64_t index_at(const point *p, ir_axis a) {
  for (uint32_t i = 0; i < p->len; i++) {
    if (IR_SAME(p->axis[i], a)) return p->at[i];
  }
  ir_transform d = ir_axis_at(f, a)->def;
  if (!d.id) return 0; /* an axis of one position */
  const ir_transform_data *t = ir_transform_at(f, d);
  int64_t x = index_at(p, t->in[0]), n = value_of(ir_axis_size(f, t->in[0]));
  switch (t->kind) {
  case IR_SPLIT:
  case IR_OUTER_SPLIT:
  case IR_CHUNK_SPLIT: return split_at(t, x, IR_SAME(a, t->out[0]));
  case IR_MERGE: return x * value_of(ir_axis_size(f, t->in[1])) + index_at(p, t->in[1]);
  case IR_SWIZZLE: return (x - coordinate(p->mesh, p->device, t->mesh_axis) + n) % n;
  case IR_RESIZE: return (x - value_of(t->start)) / value_of(t->step);
  }
  return -1;
}

/* Does the device hold the element at the point? */
static bool holds(ir_tensor t, const point *p) {
  ir_axes loop = ir_tensor_at(f, t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, loop.data[i]);
    if (a->mark.kind != IR_MARK_MESH || a->kind == IR_AXIS_REDUCTION) continue;
    if (a->kind == IR_AXIS_BROADCAST) continue;
    if (index_at(p, loop.data[i]) != coordinate(p->mesh, p->device, a->mark.mesh_axis))
      return false;
  }
  return true;
}

static point point_of(ir_tensor t, int64_t device) {
  point p = {.mesh = ir_tensor_at(f, t)->mesh, .device = device};
  return p;
}

/* Steps through all positions of n axes; start with at[] = 0. */
static bool next_point(point *p) {
  for (uint32_t i = p->len; i-- > 0;) {
    if (++p->at[i] < value_of(ir_axis_at(f, p->axis[i])->extent)) return true;
    p->at[i] = 0;
  }
  return false;
}

enum { MAX_ELEMENTS = 4096 };
typedef struct elements {
  bool in[MAX_ELEMENTS];
} elements;

static uint32_t dims_of(ir_tensor t, ir_axis dims[IR_MAX_RANK]) {
  return ir_axes_dims(f, ir_tensor_at(f, t)->now.logical, dims);
}

static void held_by(ir_tensor t, int64_t device, elements *e) {
  point p = point_of(t, device);
  p.len = dims_of(t, p.axis);
  uint32_t i = 0;
  memset(e, 0, sizeof *e);
  if (ir_mesh_find(ir_mesh_at(f, p.mesh), device) < 0) return;
  do e->in[i++] = holds(t, &p);
  while (next_point(&p));
}

/* Is the root position read at all (slices leave some out)? Then in[] says where the operand is read:
 * -1 where all of it is. */
static bool reads(const point *root, ir_tensor result) {
  ir_axes logical = ir_tensor_at(f, result)->now.logical;
  for (uint32_t i = 0; i < logical.len; i++) {
    ir_transform d = ir_axis_at(f, logical.data[i])->def;
    if (!d.id || ir_transform_at(f, d)->kind != IR_RESIZE) continue;
    const ir_transform_data *t = ir_transform_at(f, d);
    int64_t x = index_at(root, t->in[0]) - value_of(t->start), step = value_of(t->step);
    if (x < 0 || x % step || x / step >= value_of(ir_axis_at(f, logical.data[i])->extent))
      return false;
  }
  return true;
}

static bool in_product(const int64_t *want, const point *p) {
  for (uint32_t i = 0; i < p->len; i++) {
    if (want[i] >= 0 && want[i] != p->at[i]) return false;
  }
  return true;
}

/* Where a root position of the result reads the operand's dimension `a`; -1: everywhere. */
static int64_t read_at(const ir_op_data *op, uint32_t operand, const point *root, ir_axis a) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(f, op, operand, pairs);
  for (uint32_t k = 0; k < n; k++) {
    if (!IR_SAME(pairs[k].producer, a) || pairs[k].kind == IR_PAIR_WHOLE) continue;
    bool one = ir_axis_at(f, a)->kind == IR_AXIS_BROADCAST;
    return one ? 0 : index_at(root, pairs[k].consumer);
  }
  return -1;
}

static void add_read(const ir_op_data *op, uint32_t operand, const point *root, elements *e) {
  int64_t want[IR_MAX_RANK];
  uint32_t i = 0;
  point p = {0};
  p.len = dims_of(op->operands[operand], p.axis);
  for (uint32_t d = 0; d < p.len; d++) want[d] = read_at(op, operand, root, p.axis[d]);
  do e->in[i++] |= in_product(want, &p);
  while (next_point(&p));
}

/* The elements of the operand that a device needs for its part of the result. */
static void needed_by(const ir_op_data *op, uint32_t operand, int64_t device, elements *e) {
  ir_axes domain = ir_tensor_at(f, op->result)->now.root;
  point root = point_of(op->result, device);
  for (; root.len < domain.len; root.len++) root.axis[root.len] = domain.data[root.len];
  memset(e, 0, sizeof *e);
  do {
    if (reads(&root, op->result) && holds(op->result, &root)) add_read(op, operand, &root, e);
  } while (next_point(&root));
}

static bool within(const elements *a, const elements *b) {
  for (uint32_t i = 0; i < MAX_ELEMENTS; i++) {
    if (a->in[i] && !b->in[i]) return false;
  }
  return true;
}

static bool equal(const elements *a, const elements *b) { return !memcmp(a, b, sizeof *a); }

/* Adds b to a; false if they meet. */
static bool unite(elements *a, const elements *b) {
  bool apart = true;
  for (uint32_t i = 0; i < MAX_ELEMENTS; i++) {
    if (a->in[i] && b->in[i]) apart = false;
    a->in[i] |= b->in[i];
  }
  return apart;
}

/* ---- nothing has to move ---- */

static void draw_slice(const shape *s) {
  put("y = slice(x, starts=[");
  int64_t stops[MAX_DIMS];
  for (uint32_t i = 0; i < s->len; i++) {
    int64_t start = pick((uint32_t)s->size[i]);
    stops[i] = start + 1 + pick((uint32_t)(s->size[i] - start));
    put("%s%d", i ? ", " : "", (int)start);
  }
  put("], stops=[");
  for (uint32_t i = 0; i < s->len; i++) put("%s%d", i ? ", " : "", (int)stops[i]);
  put("], steps=[");
  for (uint32_t i = 0; i < s->len; i++) put("%s%d", i ? ", " : "", 1 + (int)pick(2));
  put("])\n");
}

/* Writes x, perhaps w, and y = op(x, w); the number of operands. */
static uint32_t draw_definition(shape *x, shape *w) {
  uint32_t op = pick(9);
  bool symbolic = op != 3 && op != 4;
  *x = *w = (shape){0};
  uint32_t rank = op == 6 ? 2 : 1 + pick(3);
  for (uint32_t i = 0; i < rank; i++) draw_dim(x, symbolic);
  put("x : f32");
  put_shape(x);
  put("\n");
  uint32_t dim = pick(rank);
  switch (op) {
  case 0: put("y = set(x)\n"); return 1;
  case 1: put("y = sum(x, dims=[%u])\n", dim); return 1;
  case 2:
    *w = *x;
    if (chance(40)) {
      w->size[dim] = 1;
      w->name[dim] = -1;
    }
    put("w : f32");
    put_shape(w);
    put("\ny = x + w\n");
    return 2;
  case 3: draw_slice(x); return 1;
  case 4:
    if (rank == 1) put("y = reshape(x, [%d, -1])\n", x->size[0] % 2 ? 1 : 2);
    else if (rank == 2 || chance(50)) put("y = reshape(x, [-1%s])\n", rank == 3 ? ", 1" : "");
    else put("y = reshape(x, [%d, %d])\n", (int)(x->size[0] * x->size[1]), (int)x->size[2]);
    return 1;
  case 5: put("y = softmax(x, dim=%u)\n", dim); return 1;
  case 6:
    w->size[0] = x->size[1];
    w->name[0] = x->name[1];
    w->len = 1;
    draw_dim(w, true);
    put("w : f32");
    put_shape(w);
    put("\ny = matmul(x, w)\n");
    return 2;
  case 7: put("y = permute(x, [%s])\n", rank == 1 ? "0" : rank == 2 ? "1, 0" : "2, 0, 1"); return 1;
  default: put("y = select(x, dim=%u, index=%u)\n", dim, pick((uint32_t)x->size[dim])); return 1;
  }
}

/* The result's loop domain, which only a first parse knows. */
static bool loops_of_result(loops *l) {
  char text[sizeof body + 64];
  snprintf(text, sizeof text, "%sreturn y\n", body);
  if (!try_program(text)) return false;
  ir_axes loop = ir_tensor_at(f, tensor("y"))->now.loop;
  *l = (loops){.len = loop.len};
  for (uint32_t i = 0; i < loop.len; i++) {
    l->n[i] = value_of(ir_axis_size(f, loop.data[i]));
    l->reduced[i] = ir_axis_at(f, loop.data[i])->kind == IR_AXIS_REDUCTION;
  }
  return true;
}

typedef struct counts {
  uint32_t programs, still, moving, needless;
} counts;

/* If the operand is said to lie right, then every device has what it needs. */
static void check_operand(const ir_op_data *op, uint32_t i, counts *n) {
  bool moves = false, lacks = false, equal_sets = true;
  elements have, need;
  for (uint32_t k = 0; k < 3; k++) moves |= shard_differs(ctx, op, i, k);
  const ir_mesh_data *mesh = ir_mesh_at(f, ir_tensor_at(f, op->result)->mesh);
  for (int64_t d = 0; d < mesh->n_devices; d++) {
    held_by(op->operands[i], mesh->devices[d], &have);
    needed_by(op, i, mesh->devices[d], &need);
    lacks |= !within(&need, &have);
    equal_sets &= equal(&need, &have);
  }
  if (!EXPECT(moves || !lacks)) fprintf(stderr, "seed %d\n%s", (int)seed_now, body);
  n->still += !moves;
  n->moving += moves;
  n->needless += moves && equal_sets;
}

static void draw_meshes(grid *p, grid *q) {
  draw_grid(p);
  *q = *p;
  if (chance(35)) draw_grid(q);
  put_grid(p, "p");
  put_grid(q, "q");
}

static void still_case(uint64_t seed, counts *n) {
  grid p, q;
  shape x, w;
  loops result;
  seed_now = seed;
  drawn = n_named = 0;
  body[0] = 0;
  draw_meshes(&p, &q);
  uint32_t operands = draw_definition(&x, &w);
  if (!loops_of_result(&result)) return;
  put("return y\nschedule {\n");
  uint64_t start = drawn;
  loops lx = loops_of(&x), lw = loops_of(&w);
  draw_placement("x", &lx, &p, "p", 50);
  if (chance(50)) drawn = start; /* the same choices again often give placements that agree */
  if (operands > 1) draw_placement("w", &lw, &p, "p", 50);
  if (chance(50)) drawn = start;
  draw_placement("y", &result, &q, "q", 50);
  put("}\n");
  if (!try_program(body)) return;
  n->programs++;
  for (uint32_t i = 0; i < operands; i++) check_operand(def("y"), i, n);
}

static void nothing_moves(void) {
  counts n = {0};
  for (uint64_t seed = 0; seed < 6000; seed++) still_case(seed, &n);
  printf("%u programs: %u operands in place, %u not, %u of these hold just what is needed\n",
         n.programs, n.still, n.moving, n.needless);
  EXPECT(n.programs > 3000 && n.still > 800 && n.moving > 800);
}

/* ---- communications deliver ---- */

typedef struct delivery {
  const ir_op_data *op;
  shard_comm m;
  bool served[8];
} delivery;

static ir_tensor operand_of(const delivery *d) { return d->op->operands[0]; }

static bool in_mesh(ir_mesh mesh, int64_t device) {
  return ir_mesh_find(ir_mesh_at(f, mesh), device) >= 0;
}

/* How many of the team, from the first, send; the others only receive. */
static uint32_t senders(const delivery *d, const shard_team *t) {
  uint32_t n = 0;
  int64_t line = ir_mesh_size(ir_mesh_at(f, d->m.from), (uint32_t)d->m.mesh_axis);
  while (n < t->len && n < (uint32_t)line) n++;
  return n;
}

/* What the senders have together; false if two have the same. */
static bool together(const delivery *d, const shard_team *t, elements *sum) {
  bool apart = true;
  memset(sum, 0, sizeof *sum);
  for (uint32_t i = 0; i < senders(d, t); i++) {
    elements e;
    held_by(operand_of(d), t->devices[i], &e);
    apart = unite(sum, &e) && apart;
  }
  return apart;
}

/* The receiver needs what the team has together, or a part of it if it takes a slice. */
static bool receives(delivery *d, int64_t device, const elements *sum, bool part) {
  elements need;
  needed_by(d->op, 0, device, &need);
  d->served[device] = true;
  return part ? within(&need, sum) : equal(&need, sum);
}

static bool gathers(delivery *d, const shard_team *t) {
  elements sum;
  bool part = d->m.sliced || d->m.kind == SHARD_ALL_TO_ALL || d->m.kind == SHARD_REDUCE_SCATTER;
  bool ok = together(d, t, &sum);
  for (uint32_t i = 0; i < t->len; i++) {
    if (t->root != SHARD_ROOT_NONE && t->root != (int32_t)i) continue;
    ok = receives(d, t->devices[i], &sum, part) && ok;
  }
  return ok;
}

/* In the order of pieces? */
static bool ordered(const delivery *d, const shard_team *t, bool after) {
  for (uint32_t i = 0; i < senders(d, t); i++) {
    if (shard_comm_piece(ctx, &d->m, after, t->devices[i]) != (int64_t)i) return false;
  }
  return true;
}

/* The length of a line of receivers. */
static uint32_t receivers(const delivery *d) {
  return (uint32_t)ir_mesh_size(ir_mesh_at(f, d->m.to), (uint32_t)d->m.mesh_axis);
}

static bool root_sends(delivery *d, const shard_team *t, bool part) {
  elements have;
  bool ok = true;
  held_by(operand_of(d), t->devices[t->root], &have);
  for (uint32_t i = 0; i < t->len; i++) {
    bool appended =
        (int32_t)i == t->root &&
        (d->m.kind == SHARD_SCATTER ? i >= receivers(d) : !in_mesh(d->m.to, t->devices[i]));
    bool sender = d->m.kind == SHARD_SEND_RECV && i == 0 && t->len > 1;
    if (!appended && !sender) ok = receives(d, t->devices[i], &have, part) && ok;
  }
  return ok;
}

static ir_axis stream_axis(ir_tensor t) {
  ir_axes loop = ir_tensor_at(f, t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (ir_axis_at(f, loop.data[i])->mark.kind == IR_MARK_STREAM) return loop.data[i];
  }
  return (ir_axis){0};
}

/* The slice of the result that a device works on in an iteration; element numbers of a set agree. */
static void slice_of(ir_tensor t, int64_t device, int64_t iteration, elements *e) {
  point p = point_of(t, device);
  p.len = dims_of(t, p.axis);
  uint32_t i = 0;
  memset(e, 0, sizeof *e);
  do e->in[i++] = holds(t, &p) && index_at(&p, stream_axis(t)) == iteration;
  while (next_point(&p));
}

static bool iterates(delivery *d, const shard_team *t) {
  bool permutes = d->m.kind == SHARD_COLLECTIVE_PERMUTE, ok = true;
  for (int64_t me = 0; me < (int64_t)t->len; me++) {
    d->served[t->devices[me]] = true;
    for (int64_t i = 0; i < (int64_t)t->len; i++) {
      elements have, need;
      int64_t from = permutes ? shard_permute_source(me, i, t->len) : i;
      if (permutes) ok = ok && shard_permute_target(from, i, t->len) == me;
      held_by(operand_of(d), t->devices[from], &have);
      slice_of(d->op->result, t->devices[me], i, &need);
      ok = equal(&have, &need) && ok;
    }
  }
  return ok;
}

static bool team_delivers(delivery *d, const shard_team *t) {
  switch (d->m.kind) {
  case SHARD_NONE:
  case SHARD_LOCAL_SLICE: return false; /* have no teams */
  case SHARD_ALLGATHER:
  case SHARD_ALL_TO_ALL:
  case SHARD_GATHER:
  case SHARD_REDUCE:
  case SHARD_ALLREDUCE: return ordered(d, t, false) && gathers(d, t);
  case SHARD_REDUCE_SCATTER: return ordered(d, t, true) && gathers(d, t);
  case SHARD_SCATTER:
    for (uint32_t i = 0; i < receivers(d); i++) {
      if (shard_comm_piece(ctx, &d->m, true, t->devices[i]) != (int64_t)i) return false;
    }
    return root_sends(d, t, true);
  case SHARD_SEND_RECV: return root_sends(d, t, false);
  case SHARD_BROADCAST: return d->m.by_iteration ? iterates(d, t) : root_sends(d, t, false);
  case SHARD_COLLECTIVE_PERMUTE: return iterates(d, t);
  }
  return false;
}

/* Without teams, everybody has what it needs. */
static bool in_place(delivery *d) {
  elements have, need;
  const ir_mesh_data *to = ir_mesh_at(f, d->m.to);
  bool ok = true;
  for (int64_t i = 0; i < to->n_devices; i++) {
    held_by(operand_of(d), to->devices[i], &have);
    needed_by(d->op, 0, to->devices[i], &need);
    d->served[to->devices[i]] = true;
    ok = ok && (d->m.kind == SHARD_NONE ? equal(&need, &have) : within(&need, &have));
  }
  return ok;
}

/* What one device is told about its teams is what all are told. */
static bool devices_agree(const delivery *d, const shard_teams *all) {
  for (int64_t device = 0; device < 8; device++) {
    shard_teams mine = shard_comm_teams(ctx, &d->m, device);
    uint32_t k = 0;
    for (uint32_t i = 0; i < all->list.len; i++) {
      const shard_team *t = &all->list.data[i];
      bool member = false;
      for (uint32_t j = 0; j < t->len; j++) member |= t->devices[j] == device;
      if (!member) continue;
      const shard_team *own = k < mine.list.len ? &mine.list.data[k++] : NULL;
      if (!own || own->len != t->len || own->root != t->root) return false;
      if (memcmp(own->devices, t->devices, t->len * sizeof *t->devices) != 0) return false;
    }
    if (k != mine.list.len) return false;
  }
  return true;
}

static bool delivers(delivery *d) {
  shard_teams teams = shard_comm_teams(ctx, &d->m, SHARD_EVERY_DEVICE);
  bool local = d->m.kind == SHARD_NONE || d->m.kind == SHARD_LOCAL_SLICE;
  bool ok = local ? in_place(d) : devices_agree(d, &teams);
  for (uint32_t i = 0; i < teams.list.len; i++) ok = team_delivers(d, &teams.list.data[i]) && ok;
  const ir_mesh_data *to = ir_mesh_at(f, d->m.to);
  for (int64_t i = 0; i < to->n_devices; i++) ok = ok && d->served[to->devices[i]];
  return ok;
}

typedef struct tally {
  uint32_t kinds[SHARD_COLLECTIVE_PERMUTE + 1], several, computes, unsupported;
} tally;

static void check_comm(tally *n) {
  delivery d = {.op = def("y")};
  bool moves = shard_is_resharding(ctx, d.op), ok = true;
  shard_answer answer = shard_comm_of(ctx, d.op, &d.m);
  if (answer == SHARD_ONE) {
    n->kinds[d.m.kind]++;
    ok = delivers(&d);
    if (!d.m.reduce) ok = ok && moves == (d.m.kind != SHARD_NONE);
  }
  n->several += answer == SHARD_SEVERAL;
  n->computes += answer == SHARD_COMPUTES;
  n->unsupported += answer == SHARD_UNSUPPORTED;
  if (EXPECT(ok)) return;
  fprintf(stderr, "seed %d: %s\n%s", (int)seed_now, shard_comm_name(d.m.kind), body);
}

/* A loop over the very pieces in which the operand lies. */
static void draw_iteration(const grid *p, uint32_t k) {
  int n = (int)p->shape[p->rank - 1 - k];
  put("x, y on p\nx.outer_split(0, %d)\nx[0] = mesh.%c\ny.outer_split(0, %d)\n", n, "xyz"[k], n);
  if (chance(50)) put("y.swizzle(0, mesh.%c)\n", "xyz"[k]);
  put("y[0] = stream\n}\n");
}

/* A set, a squeeze, or a sum over an axis with a position per device. */
static void comm_case(uint64_t seed, tally *n) {
  grid p, q;
  shape x = {0};
  loops result;
  seed_now = seed;
  drawn = n_named = 0;
  body[0] = 0;
  draw_meshes(&p, &q);
  uint32_t op = pick(3), k = pick(p.rank), rank = 1 + pick(3);
  for (uint32_t i = 0; i < rank; i++) draw_dim(&x, true);
  if (op > 0) x.name[0] = -1;
  if (op == 1) x.size[0] = p.shape[p.rank - 1 - k];
  if (op == 2) x.size[0] = 1;
  put("x : f32");
  put_shape(&x);
  put("\ny = %s\n", op == 0 ? "set(x)" : op == 1 ? "sum(x, dims=[0])" : "squeeze(x, dims=[0])");
  if (!loops_of_result(&result)) return;
  put("return y\nschedule {\n");
  if (op == 0 && chance(6)) {
    draw_iteration(&p, k);
    if (try_program(body)) check_comm(n);
    return;
  }
  if (op == 1) put("x[0] = mesh.%c\n", "xyz"[k]);
  uint32_t density = 25 + pick(40);
  uint64_t start = drawn;
  loops l = loops_of(&x);
  l.fixed[0] = op == 1;
  draw_placement("x", &l, &p, "p", density);
  if (chance(40)) drawn = start;
  draw_placement("y", &result, &q, "q", density);
  put("}\n");
  if (try_program(body)) check_comm(n);
}

static void communications(void) {
  tally n = {0};
  for (uint64_t seed = 0; seed < 12000; seed++) comm_case(seed, &n);
  for (uint32_t k = 0; k <= SHARD_COLLECTIVE_PERMUTE; k++) {
    printf("%s %u, ", shard_comm_name((shard_comm_kind)k), n.kinds[k]);
    EXPECT(n.kinds[k] >= 5);
  }
  printf("several %u, computes %u, unsupported %u\n", n.several, n.computes, n.unsupported);
}

int main(void) {
  nothing_moves();
  communications();
  forget();
  return test_finish();
}
