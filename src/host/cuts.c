/* How the dimensions of a tensor are cut over devices.
 *
 * A device's part of a dimension is the positions at which every marked axis has the device's coordinate,
 * made contiguous. Cuts are taken from the outermost axis inwards, so that each of them cuts what
 * those before it leave: an axis counts steps of `unit` positions, and begins again every `period`
 * positions if an axis around it is not fixed on the device.
 *
 *     [2 mesh.x, n/2]           parts=2
 *     [n/8, 2 mesh.x, 4]        pieces of 4 in every 8
 *     [n/4, 4 mesh.x]           pieces of 1 in every 4
 *     [2 mesh.y, n/8, 4 mesh.x] parts=2 along y, and of that pieces of 1 in every 4 along x */
#include "base/table.h"
#include "host/internal.h"
#include "ir/build.h"

enum { MAX_STEPS = 32 };

/* The way from a dimension down to an axis: which part of which split. */
typedef struct way {
  const ir_transform_data *splits[MAX_STEPS];
  bool inner[MAX_STEPS];
  uint32_t len;
  ir_scalar
      rows; /* the dimension is the outer of merged ones: positions of the others per step of it */
} way;

typedef struct cutting {
  const lowering *l;
  ir_tensor t;
  ir_axis placed[IR_MESH_MAX_RANK]; /* axes cut so far */
  ir_cut cuts[IR_MESH_MAX_RANK];
  uint32_t n;
  const char *why;
  /* Of merged axes: `rows` must divide `piece`, which only the extents show. */
  ir_scalar rows[IR_MESH_MAX_RANK], piece[IR_MESH_MAX_RANK];
} cutting;

/* What an axis counts: its index at position x of what is left is (x % period) / unit. */
typedef struct counted {
  ir_scalar unit, period; /* no period: it does not begin again */
  bool flat;              /* it goes over all that is left, one position at a time, and that is as
                             long as the axis on every device */
} counted;

static ir_scalars *scalars_of(const lowering *l) { return &l->f->module->scalars; }

static ir_scalar at_least_one(const lowering *l, ir_scalar x) {
  return ir_scalar_max(scalars_of(l), x, ir_scalar_const(scalars_of(l), 1));
}

static bool is_one(const lowering *l, ir_scalar x) {
  int64_t n;
  return ir_scalar_is_const(scalars_of(l), x, &n) && n == 1;
}

static bool divides(const lowering *l, ir_scalar part, ir_scalar whole) {
  ir_scalar rest = ir_scalar_mod(scalars_of(l), whole, part);
  return ir_func_equal(l->f, rest, ir_scalar_const(scalars_of(l), 0)) == IR_TRUE;
}

/* ---- ways ---- */

static bool is_dimension(const ir_func *f, ir_tensor t, ir_axis a) {
  ir_axes logical = ir_tensor_at(f, t)->now.logical;
  for (uint32_t i = 0; i < logical.len; i++) {
    if (IR_SAME(logical.data[i], a)) return true;
  }
  return false;
}

/* Above a merge: the axis that counts, which is the outer one unless that has one position. */
static ir_axis above_merge(const lowering *l, const ir_transform_data *t, way *w) {
  ir_scalar size = ir_axis_size(l->f, t->in[1]);
  if (is_one(l, ir_axis_size(l->f, t->in[0]))) return t->in[1];
  if (!is_one(l, size)) w->rows = w->rows.id ? ir_scalar_mul(scalars_of(l), w->rows, size) : size;
  return t->in[0];
}

static const char *find_way(const lowering *l, ir_tensor t, ir_axis a, way *w) {
  const ir_func *f = l->f;
  *w = (way){0};
  for (bool first = true; !is_dimension(f, t, a); first = false) {
    ir_transform def = ir_axis_at(f, a)->def;
    check(def.id);
    const ir_transform_data *x = ir_transform_at(f, def);
    if (x->kind == IR_MERGE) {
      a = above_merge(l, x, w);
      continue;
    }
    if (w->rows.id) return "is a part of merged axes that were split before";
    if (x->kind == IR_SWIZZLE && !first) return "is a part of a swizzled axis";
    if (x->kind != IR_SWIZZLE) {
      if (w->len == MAX_STEPS) return "is split too often";
      w->inner[w->len] = !IR_SAME(a, x->out[0]);
      w->splits[w->len++] = x;
    }
    a = x->in[0];
  }
  for (uint32_t i = 0, k = w->len; i + 1 < k; i++) { /* it was found from the axis up */
    const ir_transform_data *split = w->splits[i];
    bool inner = w->inner[i];
    w->splits[i] = w->splits[--k];
    w->inner[i] = w->inner[k];
    w->splits[k] = split;
    w->inner[k] = inner;
  }
  return NULL;
}

/* Does `b` lie inside each step of `a`, or in what follows it? */
static bool comes_first(const way *a, const way *b) {
  uint32_t i = 0;
  while (i < a->len && i < b->len && a->splits[i] == b->splits[i] && a->inner[i] == b->inner[i])
    i++;
  return i < a->len && i < b->len && !a->inner[i] && b->inner[i];
}

/* ---- from ways to cuts ---- */

static int32_t placed_at(const cutting *c, ir_axis a) {
  for (uint32_t i = 0; i < c->n; i++) {
    if (IR_SAME(c->placed[i], a)) return (int32_t)i;
  }
  return -1;
}

/* Does the axis have only one position? One that is marked with a mesh axis of one device does. */
static bool is_alone(const cutting *c, ir_axis a) {
  const ir_func *f = c->l->f;
  ir_mesh mesh = ir_tensor_at(f, c->t)->mesh;
  ir_mark mark = ir_axis_at(f, a)->mark;
  if (is_one(c->l, ir_axis_size(f, a))) return true;
  return mark.kind == IR_MARK_MESH && ir_mesh_size(ir_mesh_at(f, mesh), mark.mesh_axis) == 1;
}

/* Are all positions of the split positions of what is split? If not, the last part may be shorter. */
static bool is_exact(const lowering *l, const ir_transform_data *t) {
  ir_scalar outer = ir_axis_size(l->f, t->out[0]), inner = ir_axis_size(l->f, t->out[1]);
  ir_scalar all = ir_scalar_mul(scalars_of(l), outer, inner);
  return ir_func_equal(l->f, all, ir_axis_size(l->f, t->in[0])) == IR_TRUE;
}

/* Inside a split an axis begins again with each step of the outer part, unless the device has one
 * position of that and it does not begin again itself. */
static bool go_inside(cutting *c, const ir_transform_data *split, counted *x) {
  ir_scalars *s = scalars_of(c->l);
  ir_scalar step = ir_scalar_mul(s, x->unit, ir_axis_size(c->l->f, split->out[1]));
  int32_t outer = placed_at(c, split->out[0]);
  bool given = split->kind == IR_CHUNK_SPLIT;
  if (is_alone(c, split->out[0]) || (outer >= 0 && !x->period.id)) {
    /* mutant: cut_by_what_is_left */
    x->flat = x->flat && is_exact(c->l, split);
    return true;
  }
  c->why =
      given ? "lies inside chunks of given lengths that are not placed; place them too"
            : "lies in pieces of different lengths, whose positions have no common step; split by "
              "factors that divide";
  if (given || (x->period.id && !divides(c->l, step, x->period))) return false;
  /* mutant: cut_without_period */
  x->period = step;
  x->flat = false;
  return true;
}

static bool go_outside(cutting *c, const ir_transform_data *split, counted *x) {
  c->why = "is a part of an axis that counts chunks of given lengths";
  if (split->kind == IR_CHUNK_SPLIT) return false;
  ir_scalar size = ir_axis_size(c->l->f, split->out[1]);
  x->unit = ir_scalar_mul(scalars_of(c->l), x->unit, size);
  x->flat = x->flat && is_one(c->l, size);
  return true;
}

/* What the axis at the end of the way counts; all but the last step if `above`. */
static bool count_along(cutting *c, const way *w, bool above, counted *x) {
  *x = (counted){.unit = ir_scalar_const(scalars_of(c->l), 1), .flat = !w->rows.id};
  for (uint32_t i = 0; i + above < w->len; i++) {
    bool good = w->inner[i] ? go_inside(c, w->splits[i], x) : go_outside(c, w->splits[i], x);
    if (!good) return false;
  }
  return true;
}

/* Pieces of merged axes must be whole rows of the outermost axis: others have no shape. If pieces are whole
 * rows, so are periods, which consist of pieces. */
static bool divide_by_rows(cutting *c, const way *w, ir_partition *p) {
  ir_scalars *s = scalars_of(c->l);
  c->why =
      "comes from merged axes, and its pieces are not whole rows of the first of them; cut one "
      "dimension instead";
  if (!w->rows.id) return true;
  if (p->kind != IR_CHUNK || ir_func_divides(c->l->f, w->rows, p->size) == IR_FALSE) return false;
  ir_scalar rows = w->rows;
  if (!divides(c->l, rows, p->size)) {
    if (p->period.id && !divides(c->l, p->size, p->period)) return false;
    rows = at_least_one(c->l, rows);
    c->rows[c->n] = rows;
    c->piece[c->n] = p->size;
  } else if (p->period.id && !divides(c->l, rows, p->period)) {
    return false;
  }
  p->size = ir_scalar_floordiv(s, p->size, rows);
  if (p->period.id) p->period = ir_scalar_floordiv(s, p->period, rows);
  return true;
}

/* Cuts along the outer part of a split. */
static bool cut_outer(cutting *c, const ir_transform_data *t, counted *x, int64_t devices,
                      ir_partition *p) {
  ir_scalars *s = scalars_of(c->l);
  if (t->kind == IR_CHUNK_SPLIT) {
    *p = (ir_partition){.kind = IR_CHUNKS, .chunks = t->chunks, .n_chunks = t->n_chunks};
    p->period = x->period;
    /* A device may have less than all chunks: the last ones then end early. */
    /* mutant: chunks_inside_add_up */
    if (!p->period.id && !x->flat) p->period = ir_axis_size(c->l->f, t->in[0]);
    c->why = "counts chunks of given lengths in steps of several positions";
    return is_one(c->l, x->unit);
  }
  if (x->flat && !x->period.id) {
    /* A symbolic factor is as many as there are devices, as is checked when extents are bound. */
    bool chunk = t->kind == IR_SPLIT;
    *p = (ir_partition){.kind = chunk ? IR_CHUNK : IR_PARTS,
                        .size = chunk ? t->factor : ir_scalar_const(s, devices)};
    return true;
  }
  ir_scalar unit = ir_scalar_mul(s, x->unit, ir_axis_size(c->l->f, t->out[1]));
  *p = (ir_partition){.kind = IR_CHUNK, .size = unit, .period = x->period};
  if (!p->period.id) p->period = ir_scalar_mul(s, p->size, ir_scalar_const(s, devices));
  return true;
}

static bool cut_inner(cutting *c, const ir_transform_data *t, counted *x, ir_partition *p) {
  ir_scalars *s = scalars_of(c->l);
  if (!go_inside(c, t, x)) return false;
  c->why = "lies inside chunks of given lengths";
  if (!x->period.id && t->kind == IR_CHUNK_SPLIT) return false;
  ir_scalar all = ir_scalar_mul(s, x->unit, ir_axis_size(c->l->f, t->out[1]));
  *p = (ir_partition){.kind = IR_CHUNK, .size = x->unit};
  p->period = x->period.id ? x->period : all;
  return true;
}

/* Drops a period that covers everything and has a piece for each device. */
static void drop_needless_period(const cutting *c, const shard_axis *a, int64_t devices,
                                 ir_partition *p) {
  ir_scalars *s = scalars_of(c->l);
  if (c->n > 0 || p->kind != IR_CHUNK || !p->period.id) return;
  ir_scalar n = ir_axis_size(c->l->f, a->logical), all = ir_scalar_const(s, devices);
  bool covers = ir_scalar_le(s, n, p->period) == IR_TRUE;
  if (covers && ir_func_equal(c->l->f, ir_scalar_ceildiv(s, n, p->size), all) == IR_TRUE)
    p->period = (ir_scalar){0};
}

static bool add_cut(cutting *c, const way *w, uint32_t k, const shard_axis *a) {
  const ir_func *f = c->l->f;
  int64_t devices = ir_mesh_size(ir_mesh_at(f, ir_tensor_at(f, c->t)->mesh), k);
  ir_cut *cut = &c->cuts[c->n];
  counted x;
  *cut = (ir_cut){.mesh_axis = k};
  ir_partition *p = &cut->partition;
  if (!count_along(c, w, true, &x)) return false;
  const ir_transform_data *last = w->len ? w->splits[w->len - 1] : NULL;
  bool good = true;
  if (!last) *p = (ir_partition){.kind = IR_CHUNK, .size = x.unit};
  /* mutant: dev_inner_like_outer */
  else good = w->inner[w->len - 1] ? cut_inner(c, last, &x, p) : cut_outer(c, last, &x, devices, p);
  if (!good || !divide_by_rows(c, w, p)) return false;
  if (p->kind == IR_CHUNK && p->period.id) p->size = at_least_one(c->l, p->size);
  if (p->period.id) p->period = at_least_one(c->l, p->period);
  drop_needless_period(c, a, devices, p);
  c->why = "is swizzled along the mesh axis that it is marked with";
  if (a->swizzled && a->swizzle_axis == k) return false;
  if (a->swizzled) cut->turn = a->swizzle_axis + 1;
  c->placed[c->n++] = last ? last->out[w->inner[w->len - 1] ? 1 : 0] : a->logical;
  return true;
}

/* ---- questions ---- */

static const char *find_cuts(const lowering *l, ir_tensor t, uint32_t dim, uint32_t without,
                             cutting *c) {
  shard_placement p;
  way ways[IR_MESH_MAX_RANK];
  uint32_t order[IR_MESH_MAX_RANK], n = 0;
  *c = (cutting){.l = l, .t = t};
  shard_placement_of(l->f, t, &p);
  for (uint32_t k = 0; k < p.rank; k++) {
    if (p.axes[k].kind != SHARD_SHARDED || p.axes[k].dim != dim || (without >> k & 1)) continue;
    if (ir_mesh_size(ir_mesh_at(l->f, p.mesh), k) == 1) continue;
    if (ir_axis_at(l->f, p.axes[k].logical)->kind == IR_AXIS_BROADCAST) { /* all the same */
      if (ir_axis_at(l->f, p.axes[k].loop)->kind == IR_AXIS_BROADCAST) continue;
      return "comes from a broadcast axis that was merged with another one; mark that one instead";
    }
    const char *why = find_way(l, t, p.axes[k].loop, &ways[k]);
    if (why) return why;
    uint32_t at = n++;
    for (; at > 0 && comes_first(&ways[k], &ways[order[at - 1]]); at--) order[at] = order[at - 1];
    order[at] = k;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!add_cut(c, &ways[order[i]], order[i], &p.axes[order[i]])) return c->why;
  }
  return NULL;
}

/* ---- kept ---- */

struct host_cut_store {
  arena *memory;
  map index; /* by tensor, dimension and the mesh axes left out: in `list`, plus 1 */
  VEC(const cutting *) list;
  cutting none; /* list[0]: what is not cut, as most dimensions are */
};

struct host_cut_store *host_cut_store_new(arena *memory) {
  struct host_cut_store *s = ARENA_NEW(memory, struct host_cut_store);
  s->memory = memory;
  map_init(&s->index, memory);
  vec_push(memory, &s->list, &s->none);
  return s;
}

/* The cuts; `why` is set if the dimension cannot be cut so. */
static const cutting *cuts_of(const lowering *l, ir_tensor t, uint32_t dim, uint32_t without) {
  struct host_cut_store *s = l->cuts;
  uint64_t key = ((uint64_t)t.id << 8 | dim) << IR_MESH_MAX_RANK | without;
  uint32_t at = map_get(&s->index, key, 0);
  if (at) return s->list.data[at - 1];
  cutting c;
  c.why = find_cuts(l, t, dim, without, &c);
  bool cut = c.why || c.n;
  if (cut) vec_push(s->memory, &s->list, arena_copy(s->memory, &c, sizeof c));
  map_put(&s->index, key, cut ? s->list.len : 1);
  return s->list.data[cut ? s->list.len - 1 : 0];
}

static const cutting *good_cuts_of(const lowering *l, ir_tensor t, uint32_t dim, uint32_t without) {
  const cutting *c = cuts_of(l, t, dim, without);
  check(!c->why);
  return c;
}

const char *host_cuts_problem(const lowering *l, ir_tensor t, uint32_t dim) {
  return cuts_of(l, t, dim, 0)->why;
}

void host_require_cuts(const lowering *l, ir_tensor t, uint32_t dim) {
  const cutting *c = good_cuts_of(l, t, dim, 0);
  for (uint32_t i = 0; i < c->n; i++) {
    if (!c->rows[i].id) continue;
    ir_require(
        l->h, IR_REQUIRE_DIVIDES, c->rows[i], c->piece[i],
        "pieces of merged axes must be whole rows of the first of them (or cut one dimension "
        "instead)",
        ir_tensor_at(l->f, t)->at);
  }
}

uint32_t host_cuts(const lowering *l, ir_tensor t, uint32_t dim, uint32_t without,
                   const ir_cut **cuts) {
  if (!l->shard) return 0;
  const cutting *c = good_cuts_of(l, t, dim, without);
  if (cuts) *cuts = c->cuts;
  return c->n;
}

ir_cut host_cut_along(const lowering *l, ir_tensor t, uint32_t k) {
  shard_placement p;
  const ir_cut *cuts;
  shard_placement_of(l->f, t, &p);
  uint32_t n = host_cuts(l, t, p.axes[k].dim, 0, &cuts), i = 0;
  while (i < n && cuts[i].mesh_axis != k) i++;
  if (i < n) return cuts[i];
  ir_scalar one = ir_scalar_const(scalars_of(l), 1); /* one device has all of it */
  return (ir_cut){.mesh_axis = k, .partition = {.kind = IR_PARTS, .size = one}};
}

/* Each slice of the stream contains pieces of all devices. Of a slice, a device has what the cuts inside it
 * leave. */
bool host_fit_stream(const lowering *l, ir_tensor t, stream_axis *a) {
  cutting c;
  way mine, other;
  counted x;
  shard_placement p;
  ir_scalar unit = {0};
  if (!l->shard || a->reduction || find_way(l, t, a->axis, &mine)) return true;
  c = *good_cuts_of(l, t, a->dim, 0);
  shard_placement_of(l->f, t, &p);
  for (uint32_t i = 0; i < c.n; i++) {
    check(!find_way(l, t, p.axes[c.cuts[i].mesh_axis].loop, &other));
    if (!comes_first(&mine, &other)) continue;
    ir_scalar period = c.cuts[i].partition.period;
    if (!unit.id) {
      if (!count_along(&c, &mine, false, &x)) return false;
      unit = at_least_one(l, x.unit); /* as periods are */
    }
    if (!period.id || !divides(l, period, unit)) return false;
    /* mutant: stream_whole_slices */
    unit = ir_host_part(l->h, p.mesh, &c.cuts[i], unit);
  }
  if (unit.id) a->partition = (ir_partition){.kind = IR_CHUNK, .size = at_least_one(l, unit)};
  return true;
}
