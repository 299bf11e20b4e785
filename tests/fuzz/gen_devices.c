/* Random placements on device meshes, with streams beside them. Tensors of one program share a few
 * placements, so that some fit and others must be moved. */
#include <stdio.h>
#include <string.h>

#include "gen_model.h"

/* ---- meshes ---- */
typedef struct mesh_shape {
  uint32_t rank;
  int64_t sizes[3];
} mesh_shape;

static mesh_shape random_shape(model *m) {
  static const mesh_shape shapes[] = {{1, {2}},    {1, {2}},    {1, {2}},       {1, {3}},
                                      {1, {3}},    {1, {4}},    {1, {4}},       {1, {5}},
                                      {1, {8}},    {1, {1}},    {2, {2, 2}},    {2, {2, 2}},
                                      {2, {2, 3}}, {2, {3, 2}}, {2, {2, 4}},    {2, {4, 2}},
                                      {2, {1, 3}}, {2, {2, 1}}, {3, {2, 2, 2}}, {3, {2, 1, 2}}};
  return shapes[below(m, sizeof shapes / sizeof *shapes)];
}

/* With so many devices, if any shape has. */
static mesh_shape full_shape(model *m) {
  mesh_shape s = {1, {m->options.max_devices}};
  for (int i = 0; i < 64; i++) {
    mesh_shape drawn = random_shape(m);
    int64_t count = 1;
    for (uint32_t k = 0; k < drawn.rank; k++) count *= drawn.sizes[k];
    if (count == m->options.max_devices) return drawn;
  }
  return s;
}

/* In order, in another order, or some of all devices. */
static void write_device_list(model *m, int64_t count) {
  int64_t n = m->options.max_devices < 8 ? m->options.max_devices : 8;
  bool some = chance(m, 50);
  if (!chance(m, 50)) return;
  write_devices(m, some ? n : count, count);
}

static void make_mesh(model *m) {
  model_mesh *mesh = &m->meshes[m->n_meshes];
  bool full = m->options.all_devices && m->n_meshes == 0;
  mesh_shape shape = full ? full_shape(m) : random_shape(m);
  int64_t count = 1;
  snprintf(mesh->name, sizeof mesh->name, "%c", "dgh"[m->n_meshes++]);
  mesh->rank = shape.rank;
  buffer_printf(&m->head, "  mesh %s = [", mesh->name);
  for (uint32_t i = 0; i < shape.rank; i++) {
    int64_t size = count * shape.sizes[i] <= m->options.max_devices ? shape.sizes[i] : 1;
    mesh->shape[i] = size;
    count *= size;
    buffer_printf(&m->head, "%s%lld", i ? ", " : "", (long long)size);
  }
  buffer_printf(&m->head, "]");
  write_device_list(m, count);
  buffer_printf(&m->head, "\n");
}

void schedule_device_meshes(model *m) {
  uint32_t n = 1u + chance(m, 30) + chance(m, 10);
  for (uint32_t i = 0; i < n; i++) make_mesh(m);
}

/* ---- placements ---- */
typedef enum cut_kind {
  CUT_NONE,
  CUT_OUTER,
  CUT_LENGTH, /* pieces of a given length */
  CUT_CHUNKS,
  CUT_CYCLIC, /* every n-th position */
  CUT_BLOCKS, /* every n-th block */
  CUT_MERGED, /* of two dimensions as one */
} cut_kind;

/* An axis, counted from the front or from the end, modulo the number of axes. */
typedef struct choice {
  uint32_t axis;
  bool from_end;
} choice;

typedef struct placement {
  int mesh;
  struct {
    choice at;
    cut_kind kind;
    bool reduction; /* of results with reduction axes, one of those */
    bool scatter;   /* and the chosen axis too */
  } along[3];
  bool streamed, swizzled, stream_first;
  choice stream;
  int64_t factor; /* 0: the axis itself */
  bool nested;    /* and a second stream, inside of the first or around it */
} placement;

static choice random_choice(model *m) {
  return (choice){.axis = chance(m, 60) ? 0 : below(m, 3), .from_end = chance(m, 25)};
}

static placement random_placement(model *m, bool streams) {
  static const cut_kind kinds[] = {CUT_NONE,   CUT_NONE,   CUT_NONE,   CUT_OUTER,  CUT_OUTER,
                                   CUT_OUTER,  CUT_OUTER,  CUT_OUTER,  CUT_OUTER,  CUT_OUTER,
                                   CUT_LENGTH, CUT_LENGTH, CUT_CHUNKS, CUT_CHUNKS, CUT_CYCLIC,
                                   CUT_CYCLIC, CUT_BLOCKS, CUT_MERGED};
  placement p = {.mesh = (int)(chance(m, 75) ? 0 : below(m, m->n_meshes))};
  for (uint32_t k = 0; k < 3; k++) {
    p.along[k].at = random_choice(m);
    p.along[k].kind = kinds[below(m, sizeof kinds / sizeof *kinds)];
    p.along[k].reduction = chance(m, 40);
    p.along[k].scatter = chance(m, 40);
  }
  p.streamed = streams && chance(m, 70);
  p.swizzled = chance(m, 15);
  p.stream_first = chance(m, 15);
  p.stream = chance(m, 50) ? p.along[0].at : random_choice(m);
  p.factor = chance(m, 50) ? 0 : 1 + below(m, 4);
  return p;
}

/* The chosen axis among those of a kind; false if there is none. */
static bool find_axis(const model_tensor *t, choice c, bool reduction, uint32_t *at) {
  uint32_t list[MODEL_AXES], n = 0;
  for (uint32_t i = 0; i < t->n_axes; i++) {
    if ((t->axes[i].kind == AXIS_REDUCTION) == reduction) list[n++] = i;
  }
  if (n == 0) return false;
  uint32_t k = c.axis % n;
  *at = list[c.from_end ? n - 1 - k : k];
  return true;
}

/* ---- cuts over devices ---- */
static void split_for_devices(model *m, model_tensor *t, uint32_t at, uint32_t k) {
  const model_mesh *mesh = &m->meshes[t->mesh];
  int64_t devices = model_mesh_size(mesh, k);
  if (chance(m, 30)) {
    write_split(m, t, at, true, devices);
    return;
  }
  buffer_printf(&m->tail, "    %s.outer_split(%u, %s.%c)\n", t->name, at, mesh->name, "xyz"[k]);
  model_parts(t, at, devices, (t->axes[at].size + devices - 1) / devices);
}

/* As many chunks of random lengths as there are devices. */
static bool split_in_chunks(model *m, model_tensor *t, uint32_t at, int64_t devices) {
  int64_t left = t->axes[at].size, longest = 0;
  if (left < devices) return false;
  buffer_printf(&m->tail, "    %s.outer_split(%u, [", t->name, at);
  for (int64_t i = devices; i > 0; i--) {
    int64_t length = i == 1 ? left : 1 + below(m, (uint32_t)(left - i + 1));
    buffer_printf(&m->tail, "%s%lld", i == devices ? "" : ", ", (long long)length);
    longest = length > longest ? length : longest;
    left -= length;
  }
  buffer_printf(&m->tail, "])\n");
  model_parts(t, at, devices, longest);
  return true;
}

/* split(at, f) with as many outer positions as there are devices. */
static bool split_by_length(model *m, model_tensor *t, uint32_t at, int64_t devices) {
  int64_t size = t->axes[at].size, f = size ? (size + devices - 1) / devices : 1;
  if ((size + f - 1) / f != devices) return false;
  write_split(m, t, at, false, f);
  return true;
}

/* split(at, f): the inner part, or a part of it, is placed, the outer is not. */
static bool split_repeatedly(model *m, model_tensor *t, uint32_t *at, uint32_t k, cut_kind kind) {
  int64_t devices = model_mesh_size(&m->meshes[t->mesh], k);
  int64_t block = kind == CUT_BLOCKS ? 1 + below(m, 3) : 1;
  write_split(m, t, *at, false, devices * block + (block > 1 && chance(m, 20)));
  t->axes[++*at].loose = true;
  if (block > 1) split_for_devices(m, t, *at, k);
  return true;
}

static void merge_with_next(model *m, model_tensor *t, uint32_t at) {
  if (at + 1 >= t->n_axes) return;
  model_axis *a = &t->axes[at], *b = &t->axes[at + 1];
  if (a->kind != AXIS_ITERATION || b->kind != AXIS_ITERATION) return;
  if (a->marked || b->marked || a->never || b->never) return;
  buffer_printf(&m->tail, "    %s.merge(%u)\n", t->name, at);
  a->size *= b->size;
  a->never = a->whole = a->loose = true;
  for (uint32_t i = at + 1; i + 1 < t->n_axes; i++) t->axes[i] = t->axes[i + 1];
  t->n_axes--;
}

/* The device axis turns along another axis of the mesh. */
static void turn(model *m, const model_tensor *t, uint32_t at, uint32_t k) {
  const model_mesh *mesh = &m->meshes[t->mesh];
  uint32_t other = (k + 1) % mesh->rank;
  if (mesh->rank < 2 || !chance(m, 8) || t->axes[at].kind != AXIS_ITERATION) return;
  buffer_printf(&m->tail, "    %s.swizzle(%u, mesh.%c)\n", t->name, at, "xyz"[other]);
}

/* What was added later takes random numbers of its own, so that seeds keep their programs. */
static gen_random begin_aside(model *m) {
  gen_random kept = m->random;
  m->random.state ^= 0x5bd1e9955bd1e995u;
  return kept;
}

/* In place of the axis, what a split into single positions leaves of it: one, at index 0. */
static uint32_t descend(model *m, model_tensor *t, uint32_t at) {
  gen_random kept = begin_aside(m);
  const model_axis *a = &t->axes[at];
  bool goes = a->size > 0 && !a->never && !a->marked && a->kind == AXIS_ITERATION && t->n_axes < 8;
  goes = goes && chance(m, 4);
  if (goes) write_split(m, t, at++, true, a->size);
  if (goes) t->axes[at - 1].never = t->axes[at].loose = true;
  m->random = kept;
  return at;
}

static void cut(model *m, model_tensor *t, uint32_t at, uint32_t k, cut_kind kind) {
  at = descend(m, t, at);
  int64_t devices = model_mesh_size(&m->meshes[t->mesh], k);
  bool whole = t->axes[at].size == devices && !t->axes[at].never && chance(m, 70);
  bool reduction = t->axes[at].kind == AXIS_REDUCTION;
  if (t->axes[at].marked || t->n_axes > 10 || (t->used[reduction ? 0 : 1] & (1u << k))) return;
  if (t->axes[at].kind == AXIS_BROADCAST && !chance(m, 20)) return;
  bool repeats = kind == CUT_CYCLIC || kind == CUT_BLOCKS;
  if (kind == CUT_MERGED && !reduction && !whole) merge_with_next(m, t, at);
  if (t->axes[at].never && !repeats) kind = CUT_OUTER; /* pieces of pieces differ in length */
  if (!whole && kind == CUT_LENGTH && split_by_length(m, t, at, devices)) whole = true;
  if (!whole && repeats && split_repeatedly(m, t, &at, k, kind)) whole = true;
  if (!whole && kind == CUT_CHUNKS && split_in_chunks(m, t, at, devices)) whole = true;
  if (!whole) split_for_devices(m, t, at, k);
  turn(m, t, at, k);
  write_mark_mesh(m, t, at, k);
}

/* If the axis is cut already, what that leaves of it. */
static void cut_along(model *m, model_tensor *t, const placement *p, uint32_t k) {
  uint32_t at;
  if (p->along[k].kind == CUT_NONE) return;
  bool reduction = p->along[k].reduction && find_axis(t, p->along[k].at, true, &at);
  if (reduction) cut(m, t, at, k, p->along[k].kind);
  if (reduction && !p->along[k].scatter) return;
  if (!find_axis(t, p->along[k].at, false, &at)) return;
  if (t->axes[at].marked && at + 1 < t->n_axes && t->axes[at + 1].never) at++;
  cut(m, t, at, k, p->along[k].kind);
}

/* ---- streams ---- */

/* A second stream beside the one at `first`: over what that one leaves of its dimension, or over slices of
 * another one, which may lie outside. */
static void nest(model *m, model_tensor *t, uint32_t first) {
  uint32_t list[MODEL_AXES], n = 0;
  for (uint32_t i = 0; i < t->n_axes; i++) {
    const model_axis *a = &t->axes[i];
    bool inside = i == first + 1 && a->never;
    if (a->kind == AXIS_ITERATION && !a->marked && (inside || (!a->never && !a->loose)))
      list[n++] = i;
  }
  if (n == 0 || t->n_axes > 10) return;
  uint32_t at = list[below(m, n)];
  bool outside = !t->axes[at].never && chance(m, 40);
  write_split(m, t, at, chance(m, 80), 1 + below(m, 4));
  write_mark_stream(m, t, at);
  if (outside && at > first)
    buffer_printf(&m->tail, "    %s.reorder(%u -> %u)\n", t->name, at, first);
}

/* The axis itself, the outer part of a split of it, or of what devices leave of it. */
static void stream(model *m, model_tensor *t, const placement *p) {
  uint32_t at, k = 0;
  bool reduction = chance(m, 15);
  if (!p->streamed || !find_axis(t, p->stream, reduction, &at)) return;
  if (t->axes[at].marked && at + 1 < t->n_axes && t->axes[at + 1].never) at++;
  if (t->axes[at].marked || t->axes[at].loose || t->n_axes > 10) return;
  bool inner = t->axes[at].never;
  if (inner && (at == 0 || !t->axes[at - 1].marked)) return;
  if (p->factor || inner) {
    const model_mesh *mesh = t->mesh >= 0 ? &m->meshes[t->mesh] : NULL;
    int64_t devices = mesh ? model_mesh_size(mesh, 0) : 2;
    write_split(m, t, at, chance(m, 80), p->factor == 1 || !p->factor ? devices : p->factor);
  }
  if (p->swizzled && t->mesh >= 0 && !inner && !reduction) {
    const model_mesh *mesh = &m->meshes[t->mesh];
    k = below(m, mesh->rank);
    if (t->axes[at].size > 1)
      buffer_printf(&m->tail, "    %s.swizzle(%u, mesh.%c)\n", t->name, at, "xyz"[k]);
  }
  write_mark_stream(m, t, at);
  if (!p->nested || reduction) return;
  gen_random kept = begin_aside(m);
  nest(m, t, at);
  m->random = kept;
}

/* What is left of reductions that are placed becomes a step of its own. */
static void factor_out(model *m, model_tensor *t) {
  uint32_t kept = 0, chosen = 0, rest = 0;
  for (uint32_t i = 0; i < t->n_axes; i++) {
    if (t->axes[i].kind != AXIS_REDUCTION) continue;
    chosen += !t->axes[i].marked;
    rest += t->axes[i].marked;
  }
  if (!chosen || !rest || t->biased || !chance(m, 40)) return;
  buffer_printf(&m->tail, "    r%u = %s.rfactor([", m->n_factored++, t->name);
  for (uint32_t i = 0, n = 0; i < t->n_axes; i++) {
    bool goes = t->axes[i].kind == AXIS_REDUCTION && !t->axes[i].marked;
    if (goes) buffer_printf(&m->tail, "%s%u", n++ ? ", " : "", i);
    else t->axes[kept++] = t->axes[i];
  }
  buffer_printf(&m->tail, "])\n");
  t->n_axes = kept;
  t->factored = true;
}

static void apply(model *m, model_tensor *t, const placement *p) {
  t->mesh = p->mesh;
  buffer_printf(&m->tail, "    %s on %s\n", t->name, m->meshes[p->mesh].name);
  uint32_t rank = m->meshes[p->mesh].rank;
  if (p->stream_first && t->op != IR_OP_NONE) stream(m, t, p);
  for (uint32_t k = rank; k-- > 0;) cut_along(m, t, p, k);
  if (!p->stream_first && t->op != IR_OP_NONE) factor_out(m, t);
  if (!p->stream_first && t->op != IR_OP_NONE) stream(m, t, p);
}

/* Memory in another order. */
static void permute_memory(model *m, model_tensor *t) {
  uint32_t order[GEN_MAX_RANK];
  if (t->rank < 2) return;
  for (uint32_t i = 0; i < t->rank; i++) order[i] = i;
  for (uint32_t i = t->rank; i-- > 1;) {
    uint32_t k = below(m, i + 1), old = order[i];
    order[i] = order[k];
    order[k] = old;
  }
  buffer_printf(&m->tail, "    %s.allocate([", t->name);
  for (uint32_t i = 0; i < t->rank; i++) buffer_printf(&m->tail, "%s%u", i ? ", " : "", order[i]);
  buffer_printf(&m->tail, "])\n");
}

/* A stream over what `from` cuts along mesh.x: its pieces, one per iteration. */
static placement pipelined(model *m, const placement *from) {
  placement p = *from;
  p.along[0].kind = CUT_NONE;
  p.streamed = true;
  p.stream_first = false;
  p.stream = from->along[0].at;
  p.factor = chance(m, 30) ? 0 : 1;
  gen_random kept = begin_aside(m);
  p.nested = chance(m, 50);
  if (p.nested && chance(m, 40)) { /* each device makes something of its own */
    p.along[0].kind = CUT_OUTER;
    p.along[0].reduction = false;
    p.along[0].at.axis = from->along[0].at.axis + 1;
  }
  m->random = kept;
  return p;
}

void schedule_devices(model *m) {
  bool streams = chance(m, 60), pipelines = streams && chance(m, 50);
  placement some[3];
  for (uint32_t i = 0; i < 3; i++) some[i] = random_placement(m, streams);
  if (pipelines) {
    some[0].along[0].kind = CUT_OUTER;
    some[0].streamed = false;
    some[1] = pipelined(m, &some[0]);
  }
  uint32_t n = m->n_tensors, share = 40 + 20 * below(m, 4);
  for (uint32_t i = 0; i < n; i++) {
    model_tensor *t = &m->tensors[i];
    uint32_t first = pipelines && t->op != IR_OP_NONE ? 1 : 0;
    if (chance(m, 4)) permute_memory(m, t);
    if (!chance(m, share)) continue;
    if (chance(m, 8)) some[2] = random_placement(m, streams);
    apply(m, t, &some[chance(m, 65) ? first : below(m, 3)]);
  }
}
