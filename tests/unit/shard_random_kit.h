/* Random placements and the brute-force oracle: which elements every device holds and needs.
 *
 * The oracle walks histories with numbers; it shares nothing with the symbolic code but the maps
 * between axes. */
#ifndef WEIR_TESTS_UNIT_SHARD_RANDOM_KIT_H
#define WEIR_TESTS_UNIT_SHARD_RANDOM_KIT_H

#include <stdlib.h>

#include "base/random.h"
#include "ir/map.h"
#include "unit/shard_kit.h"

/* ---- random programs ---- */

static uint64_t seed_now, drawn;

static inline uint32_t pick(uint32_t n) { return (uint32_t)(random_bits(seed_now, drawn++) % n); }
static inline bool chance(uint32_t percent) { return pick(100) < percent; }

static char body[4096];

static inline void put(const char *fmt, ...) PRINTF_LIKE(1, 2);
static inline void put(const char *fmt, ...) {
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

static inline void draw_dim(shape *s, bool symbolic) {
  static const int64_t sizes[] = {1, 2, 3, 4, 4, 5, 6, 6, 8};
  uint32_t i = s->len++;
  s->size[i] = sizes[pick(9)];
  s->name[i] = -1;
  if (!symbolic || s->size[i] == 1 || !chance(35)) return;
  s->name[i] = (int)n_named;
  named[n_named++] = s->size[i];
}

static inline void put_shape(const shape *s) {
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

static inline void shuffle(int64_t *x, int64_t n) {
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = pick((uint32_t)i + 1), y = x[i];
    x[i] = x[j];
    x[j] = y;
  }
}

static inline void draw_grid(grid *g) {
  int64_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  g->rank = 1 + pick(3);
  g->n = 1;
  for (uint32_t i = 0; i < g->rank; i++) {
    int64_t room = 8 / g->n;
    g->shape[i] = 1 + pick((uint32_t)(room < 3 ? room : 3));
    if (g->shape[i] == 1 && room > 1 && chance(70)) g->shape[i] = 2;
    g->n *= g->shape[i];
  }
  shuffle(all, 8);
  for (int64_t i = 0; i < g->n; i++) g->devices[i] = all[i];
}

static inline void put_grid(const grid *g, const char *name) {
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

static inline void cut_model(loops *l, uint32_t at, int64_t outer, int64_t inner) {
  for (uint32_t i = l->len++; i > at; i--) {
    l->n[i] = l->n[i - 1];
    l->reduced[i] = l->reduced[i - 1];
    l->fixed[i] = l->fixed[i - 1];
  }
  l->n[at] = outer;
  l->n[at + 1] = inner;
}

static inline int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

static inline uint32_t cut_chunks(loops *l, uint32_t at, int64_t parts) {
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
static inline uint32_t cut(loops *l, uint32_t at, int64_t parts) {
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

static inline void maybe_merge(loops *l) {
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

static inline void maybe_swizzle(const loops *l, const grid *g, uint32_t at, uint32_t k) {
  for (uint32_t j = 0; j < g->rank; j++) {
    if (g->shape[g->rank - 1 - j] != l->n[at] || (j == k && !chance(10)) || !chance(12)) continue;
    put("%s.swizzle(%u, mesh.%c)\n", l->name, at, "xyz"[j]);
    return;
  }
}

static inline void mark(loops *l, const grid *g, uint32_t k, bool reduced) {
  uint32_t at = pick(l->len), tries = 0;
  while ((l->fixed[at] || l->reduced[at] != reduced) && tries++ < 10) at = pick(l->len);
  if (l->fixed[at] || l->reduced[at] != reduced || l->len > 9) return;
  at = cut(l, at, g->shape[g->rank - 1 - k]);
  if (!reduced) maybe_swizzle(l, g, at, k);
  put("%s[%u] = mesh.%c\n", l->name, at, "xyz"[k]);
  l->fixed[at] = true;
}

static inline void draw_stream(loops *l, const grid *g) {
  uint32_t at = pick(l->len);
  if (l->fixed[at] || l->reduced[at] || l->len > 9) return;
  int64_t parts = chance(60) ? g->shape[pick(g->rank)] : 2;
  put("%s.outer_split(%u, %d)\n", l->name, at, (int)parts);
  cut_model(l, at, parts, ceil_of(l->n[at], parts));
  if (chance(40)) maybe_swizzle(l, g, at, 0);
  put("%s[%u] = stream\n", l->name, at);
  l->fixed[at] = true;
}

static inline void draw_placement(const char *name, loops *l, const grid *g, const char *mesh,
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

/* Where the tensor's `dims` dimensions lie in memory. */
static inline void draw_memory(const loops *l, uint32_t dims) {
  if (chance(30)) put("%s.reorder(%u -> %u)\n", l->name, pick(l->len), pick(l->len));
  if (chance(40)) put("%s.allocate_as_loop()\n", l->name);
  else if (chance(30) && dims == 2) put("%s.allocate([1, 0])\n", l->name);
  else if (chance(30) && dims == 3)
    put("%s.allocate([%s])\n", l->name, chance(50) ? "1, 2, 0" : "2, 0, 1");
}

static inline loops loops_of(const shape *s) {
  loops l = {.len = s->len};
  for (uint32_t i = 0; i < s->len; i++) l.n[i] = s->size[i];
  return l;
}

/* ---- the oracle ---- */

/* By symbol; filled in when a program was parsed. */
static int64_t symbols[64];

static inline void bind_extents(void) {
  const ir_scalars *s = &module.scalars;
  for (uint32_t i = 0; i < s->symbols.len; i++) {
    const char *name = strings_text(&module.names, s->symbols.data[i].name);
    symbols[i] = name[0] == 'n' ? named[atoi(name + 1)] : 0;
  }
}

static inline int64_t value_of(ir_scalar x) {
  int64_t v = -1;
  bool known = ir_scalar_eval(&module.scalars, x, symbols, module.scalars.symbols.len, &v);
  if (!known) EXPECT(known);
  return v;
}

static inline bool random_program(const char *text) {
  bool ok = try_program(text);
  if (ok) bind_extents();
  return ok;
}

typedef struct point { /* positions of some axes, on a device */
  ir_axis axis[IR_MAX_RANK];
  int64_t at[IR_MAX_RANK];
  uint32_t len;
  ir_mesh mesh;
  int64_t device;
} point;

static inline int64_t coordinate(ir_mesh mesh, int64_t device, uint32_t k) {
  const ir_mesh_data *m = ir_mesh_at(f, mesh);
  return ir_mesh_coordinate(m, ir_mesh_find(m, device), k);
}

static inline int64_t index_at(const point *p, ir_axis a);

static inline int64_t split_at(const ir_transform_data *t, int64_t x, bool outer) {
  if (t->kind == IR_CHUNK_SPLIT) {
    int64_t i = 0;
    while (x >= t->chunks[i]) x -= t->chunks[i++];
    return outer ? i : x;
  }
  int64_t size = value_of(t->factor);
  if (t->kind == IR_OUTER_SPLIT) size = ceil_of(value_of(ir_axis_size(f, t->in[0])), size);
  return outer ? x / size : x % size;
}

static inline int64_t index_at(const point *p, ir_axis a) {
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
static inline bool holds(ir_tensor t, const point *p) {
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

static inline point point_of(ir_tensor t, int64_t device) {
  point p = {.mesh = ir_tensor_at(f, t)->mesh, .device = device};
  return p;
}

/* Steps through all positions of n axes; start with at[] = 0. */
static inline bool next_point(point *p) {
  for (uint32_t i = p->len; i-- > 0;) {
    int64_t next = p->at[i] + 1;
    bool more = next < value_of(ir_axis_at(f, p->axis[i])->extent);
    p->at[i] = more ? next : 0;
    if (more) return true;
  }
  return false;
}

enum { MAX_ELEMENTS = 4096 };
typedef struct elements {
  bool in[MAX_ELEMENTS];
} elements;

static inline uint32_t dims_of(ir_tensor t, ir_axis dims[IR_MAX_RANK]) {
  return ir_axes_dims(f, ir_tensor_at(f, t)->now.logical, dims);
}

static inline void held_by(ir_tensor t, int64_t device, elements *e) {
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
static inline bool reads(const point *root, ir_tensor result) {
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

static inline bool in_product(const int64_t *want, const point *p) {
  for (uint32_t i = 0; i < p->len; i++) {
    if (want[i] >= 0 && want[i] != p->at[i]) return false;
  }
  return true;
}

/* Where a root position of the result reads the operand's dimension `a`; -1: everywhere. */
static inline int64_t read_at(const ir_op_data *op, uint32_t operand, const point *root,
                              ir_axis a) {
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n = ir_map_pairs(f, op, operand, pairs);
  for (uint32_t k = 0; k < n; k++) {
    if (!IR_SAME(pairs[k].producer, a) || pairs[k].kind == IR_PAIR_WHOLE) continue;
    bool one = ir_axis_at(f, a)->kind == IR_AXIS_BROADCAST;
    return one ? 0 : index_at(root, pairs[k].consumer);
  }
  return -1;
}

static inline void add_read(const ir_op_data *op, uint32_t operand, const point *root,
                            elements *e) {
  int64_t want[IR_MAX_RANK];
  uint32_t i = 0;
  point p = {0};
  p.len = dims_of(op->operands[operand], p.axis);
  for (uint32_t d = 0; d < p.len; d++) want[d] = read_at(op, operand, root, p.axis[d]);
  do e->in[i++] |= in_product(want, &p);
  while (next_point(&p));
}

/* The elements of the operand that a device needs for its part of the result. */
static inline void needed_by(const ir_op_data *op, uint32_t operand, int64_t device, elements *e) {
  ir_axes domain = ir_tensor_at(f, op->result)->now.root;
  point root = point_of(op->result, device);
  for (; root.len < domain.len; root.len++) root.axis[root.len] = domain.data[root.len];
  memset(e, 0, sizeof *e);
  do {
    if (reads(&root, op->result) && holds(op->result, &root)) add_read(op, operand, &root, e);
  } while (next_point(&root));
}

static inline bool within(const elements *a, const elements *b) {
  for (uint32_t i = 0; i < MAX_ELEMENTS; i++) {
    if (a->in[i] && !b->in[i]) return false;
  }
  return true;
}

static inline bool equal(const elements *a, const elements *b) { return !memcmp(a, b, sizeof *a); }

/* Adds b to a; false if they meet. */
static inline bool unite(elements *a, const elements *b) {
  bool apart = true;
  for (uint32_t i = 0; i < MAX_ELEMENTS; i++) {
    if (a->in[i] && b->in[i]) apart = false;
    a->in[i] |= b->in[i];
  }
  return apart;
}

/* The result's loop domain, which only a first parse knows. */
static inline bool loops_of_result(loops *l) {
  char text[sizeof body + 64];
  snprintf(text, sizeof text, "%sreturn y\n", body);
  if (!random_program(text)) return false;
  ir_axes loop = ir_tensor_at(f, tensor("y"))->now.loop;
  *l = (loops){.len = loop.len};
  for (uint32_t i = 0; i < loop.len; i++) {
    l->n[i] = value_of(ir_axis_size(f, loop.data[i]));
    l->reduced[i] = ir_axis_at(f, loop.data[i])->kind == IR_AXIS_REDUCTION;
  }
  return true;
}

static inline void draw_meshes(grid *p, grid *q) {
  draw_grid(p);
  *q = *p;
  if (chance(30)) draw_grid(q);
  else if (chance(20)) shuffle(q->devices, q->n); /* the same devices elsewhere */
  put_grid(p, "p");
  put_grid(q, "q");
}

#endif
