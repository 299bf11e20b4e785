/* Random schedules. The model follows every loop domain, so each statement is valid when written. */
#include <stdio.h>
#include <string.h>

#include "gen_model.h"

/* ---- meshes ---- */
void write_devices(model *m, int64_t n, int64_t count) {
  int64_t ids[64];
  for (int64_t i = 0; i < n; i++) ids[i] = i;
  for (int64_t i = n; i-- > 1;) {
    int64_t k = below(m, (uint32_t)i + 1), old = ids[i];
    ids[i] = ids[k];
    ids[k] = old;
  }
  buffer_printf(&m->head, " of {");
  for (int64_t i = 0; i < count; i++)
    buffer_printf(&m->head, "%s%lld", i ? ", " : "", (long long)ids[i]);
  buffer_printf(&m->head, "}");
}

static void make_mesh(model *m) {
  model_mesh *mesh = &m->meshes[m->n_meshes];
  int64_t left = m->options.max_devices, count = 1;
  snprintf(mesh->name, sizeof mesh->name, "%c", "dg"[m->n_meshes++]);
  mesh->rank = 1u + chance(m, 40) + chance(m, 15);
  buffer_printf(&m->head, "  mesh %s = [", mesh->name);
  for (uint32_t i = 0; i < mesh->rank; i++) {
    static const int64_t sizes[] = {1, 2, 2, 2, 3, 4};
    int64_t size = sizes[below(m, 6)];
    mesh->shape[i] = size <= left ? size : 1;
    left /= mesh->shape[i];
    count *= mesh->shape[i];
    buffer_printf(&m->head, "%s%lld", i ? ", " : "", (long long)mesh->shape[i]);
  }
  buffer_printf(&m->head, "]");
  if (chance(m, 40) && count <= 64)
    write_devices(m, m->options.max_devices < 64 ? m->options.max_devices : 64, count);
  buffer_printf(&m->head, "\n");
}

void schedule_meshes(model *m) {
  uint32_t n = m->options.max_devices ? below(m, 3) : 0;
  for (uint32_t i = 0; i < n; i++) make_mesh(m);
}

int64_t model_mesh_size(const model_mesh *mesh, uint32_t k) {
  return mesh->shape[mesh->rank - 1 - k];
}

/* ---- writing ---- */
static void begin(model *m, const model_tensor *t) { buffer_printf(&m->tail, "    %s", t->name); }
static void end(model *m, const char *text) { buffer_printf(&m->tail, "%s\n", text); }

static void call(model *m, const model_tensor *t, const char *name, uint32_t axis) {
  char text[8];
  begin(m, t);
  buffer_printf(&m->tail, ".%s(%s", name, axis_text(m, axis, t->n_axes, text));
}

/* ---- changing the loop domain ---- */
static void replace(model_tensor *t, uint32_t at, uint32_t n_old, const model_axis *axes,
                    uint32_t n_new) {
  uint32_t rest = t->n_axes - at - n_old;
  memmove(t->axes + at + n_new, t->axes + at + n_old, rest * sizeof t->axes[0]);
  memcpy(t->axes + at, axes, n_new * sizeof axes[0]);
  t->n_axes = at + n_new + rest;
}

void model_parts(model_tensor *t, uint32_t at, int64_t outer, int64_t inner) {
  model_axis a = t->axes[at];
  model_axis parts[2] = {{.kind = a.kind, .size = outer, .whole = a.whole},
                         {.kind = a.kind, .size = inner, .whole = true, .never = true}};
  parts[0].loose = parts[1].loose = a.loose;
  replace(t, at, 1, parts, 2);
}

static int64_t write_factor(model *m) {
  if (m->n_meshes && chance(m, 50)) {
    const model_mesh *mesh = &m->meshes[below(m, m->n_meshes)];
    uint32_t k = below(m, mesh->rank);
    bool alone = mesh->rank == 1 && chance(m, 60);
    buffer_printf(&m->tail, ", %s", mesh->name);
    if (!alone) buffer_printf(&m->tail, ".%c", "xyz"[k]);
    return model_mesh_size(mesh, k);
  }
  const model_dim *symbol = &m->symbols[0];
  if (m->n_symbols && symbol->size >= 1 && chance(m, 10)) {
    buffer_printf(&m->tail, ", %s", symbol->text);
    return symbol->size;
  }
  int64_t factor = 1 + below(m, 4);
  buffer_printf(&m->tail, ", %lld", (long long)factor);
  return factor;
}

static bool can_split(const model_tensor *t, uint32_t at) {
  return !t->axes[at].marked && t->n_axes < 10;
}

/* By a factor that was written already. */
static void end_split(model *m, model_tensor *t, uint32_t at, bool outer, int64_t factor) {
  int64_t rest = (t->axes[at].size + factor - 1) / factor;
  model_parts(t, at, outer ? factor : rest, outer ? rest : factor);
  end(m, ")");
}

static void split_at(model *m, model_tensor *t, uint32_t at) {
  bool outer = chance(m, 60);
  call(m, t, outer ? "outer_split" : "split", at);
  end_split(m, t, at, outer, write_factor(m));
}

static void split(model *m, model_tensor *t) {
  uint32_t at = below(m, t->n_axes);
  if (can_split(t, at)) split_at(m, t, at);
}

static void chunk_split(model *m, model_tensor *t) {
  uint32_t at = below(m, t->n_axes);
  int64_t left = t->axes[at].size, count = 0, longest = 0;
  if (!can_split(t, at) || left < 2 || left > 64) return;
  call(m, t, "outer_split", at);
  while (left > 0) {
    int64_t length = 1 + below(m, (uint32_t)left);
    buffer_printf(&m->tail, "%s%lld", count ? ", " : ", [", (long long)length);
    longest = length > longest ? length : longest;
    left -= length;
    count++;
  }
  model_parts(t, at, count, longest);
  end(m, "])");
}

static void merge(model *m, model_tensor *t) {
  if (t->n_axes < 2) return;
  uint32_t at = below(m, t->n_axes - 1);
  model_axis a = t->axes[at], b = t->axes[at + 1];
  bool mixed = (a.kind == AXIS_REDUCTION) != (b.kind == AXIS_REDUCTION);
  if (a.marked || b.marked || mixed) return;
  call(m, t, "merge", at);
  model_axis merged = {
      .kind = a.kind == b.kind ? a.kind : AXIS_ITERATION, .whole = true, .never = true};
  merged.size = a.size * b.size;
  replace(t, at, 2, &merged, 1);
  end(m, ")");
}

static void reorder(model *m, model_tensor *t) {
  if (t->n_axes < 2) return;
  uint32_t from = below(m, t->n_axes), to = below(m, t->n_axes);
  char a[8], b[8];
  begin(m, t);
  buffer_printf(&m->tail, ".reorder(%s -> %s", axis_text(m, from, t->n_axes, a),
                axis_text(m, to, t->n_axes, b));
  model_axis moved = t->axes[from];
  memmove(t->axes + from, t->axes + from + 1, (t->n_axes - 1 - from) * sizeof moved);
  memmove(t->axes + to + 1, t->axes + to, (t->n_axes - 1 - to) * sizeof moved);
  t->axes[to] = moved;
  end(m, ")");
}

/* A full permutation, written as pairs. */
static void reverse(model *m, model_tensor *t) {
  if (t->n_axes < 2) return;
  begin(m, t);
  model_axis old[MODEL_AXES];
  memcpy(old, t->axes, sizeof old);
  for (uint32_t i = 0; i < t->n_axes; i++) {
    uint32_t to = t->n_axes - 1 - i;
    buffer_printf(&m->tail, "%s%u -> %u", i ? ", " : ".reorder(", i, to);
    t->axes[to] = old[i];
  }
  end(m, ")");
}

/* ---- placement and marks ---- */
static void place(model *m, model_tensor *t) {
  if (t->mesh >= 0 || !m->n_meshes) return;
  t->mesh = (int)below(m, m->n_meshes);
  begin(m, t);
  buffer_printf(&m->tail, " on %s", m->meshes[t->mesh].name);
  end(m, "");
}

static bool fits_mesh(model *m, const model_tensor *t, uint32_t at, uint32_t *k) {
  if (t->mesh < 0 || t->axes[at].marked) return false;
  const model_mesh *mesh = &m->meshes[t->mesh];
  *k = below(m, mesh->rank);
  return model_mesh_size(mesh, *k) == t->axes[at].size;
}

/* Marks axis `at` if its kind has not used that axis of the mesh yet. */
void write_mark_mesh(model *m, model_tensor *t, uint32_t at, uint32_t k) {
  t->used[t->axes[at].kind == AXIS_REDUCTION ? 0 : 1] |= 1u << k;
  t->axes[at].marked = true;
  char text[8];
  begin(m, t);
  buffer_printf(&m->tail, "[%s] = mesh.%c", axis_text(m, at, t->n_axes, text), "xyz"[k]);
  end(m, "");
}

static bool mesh_axis_free(const model_tensor *t, uint32_t at, uint32_t k) {
  return !(t->used[t->axes[at].kind == AXIS_REDUCTION ? 0 : 1] & (1u << k));
}

static void mark_mesh(model *m, model_tensor *t) {
  uint32_t at = below(m, t->n_axes), k;
  if (fits_mesh(m, t, at, &k) && mesh_axis_free(t, at, k)) write_mark_mesh(m, t, at, k);
}

/* The usual way to cut an axis for devices: split it by the mesh, mark the outer part. */
static void shard(model *m, model_tensor *t) {
  uint32_t at = below(m, t->n_axes);
  if (t->mesh < 0 || !can_split(t, at)) return;
  const model_mesh *mesh = &m->meshes[t->mesh];
  uint32_t k = below(m, mesh->rank);
  if (!mesh_axis_free(t, at, k)) return;
  call(m, t, "outer_split", at);
  buffer_printf(&m->tail, ", %s.%c", mesh->name, "xyz"[k]);
  end(m, ")");
  int64_t devices = model_mesh_size(mesh, k);
  model_parts(t, at, devices, (t->axes[at].size + devices - 1) / devices);
  write_mark_mesh(m, t, at, k);
}

static void swizzle(model *m, model_tensor *t) {
  uint32_t at = below(m, t->n_axes);
  if (t->mesh < 0 || t->axes[at].marked) return;
  uint32_t k = below(m, m->meshes[t->mesh].rank);
  call(m, t, "swizzle", at);
  buffer_printf(&m->tail, ", mesh.%c", "xyz"[k]);
  end(m, ")");
}

static void mark(model *m, model_tensor *t) {
  uint32_t at = below(m, t->n_axes);
  if (t->axes[at].marked) return;
  bool stream = !t->axes[at].whole && chance(m, 70);
  char text[8];
  t->axes[at].marked = true;
  begin(m, t);
  buffer_printf(&m->tail, "[%s] = %s", axis_text(m, at, t->n_axes, text),
                stream ? "stream" : "serial");
  end(m, "");
}

/* ---- rfactor ---- */
static bool can_rfactor(const model *m, const model_tensor *t) {
  uint32_t reductions = 0;
  for (uint32_t i = 0; i < t->n_axes; i++) {
    if (t->axes[i].marked) return false;
    reductions += t->axes[i].kind == AXIS_REDUCTION;
  }
  return m->options.rfactor && reductions >= 2 && !t->biased && !t->uneven &&
         m->n_tensors < MODEL_TENSORS;
}

/* U has all loop axes; the reductions that stay with T are dimensions there. */
static void make_partial(model *m, const model_tensor *t, const bool *chosen) {
  model_tensor *u = &m->tensors[m->n_tensors++];
  *u = (model_tensor){.op = t->op, .mesh = t->mesh, .n_axes = t->n_axes, .factored = true};
  snprintf(u->name, sizeof u->name, "u%u", m->n_tensors % 1000);
  for (uint32_t i = 0; i < t->n_axes; i++) {
    u->axes[i] = t->axes[i];
    if (!chosen[i] && u->axes[i].kind == AXIS_REDUCTION) u->axes[i].kind = AXIS_ITERATION;
  }
}

static void rfactor(model *m, model_tensor *t) {
  if (!can_rfactor(m, t)) return;
  bool chosen[MODEL_AXES] = {false}, any = false, rest = false;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < t->n_axes; i++) {
    chosen[i] = t->axes[i].kind == AXIS_REDUCTION && chance(m, 50);
    any |= chosen[i];
    rest |= !chosen[i] && t->axes[i].kind == AXIS_REDUCTION;
  }
  if (!any || !rest) return;
  make_partial(m, t, chosen);
  buffer_printf(&m->tail, "    %s = %s.rfactor([", m->tensors[m->n_tensors - 1].name, t->name);
  for (uint32_t i = 0, n = 0; i < t->n_axes; i++)
    if (chosen[i]) buffer_printf(&m->tail, "%s%u", n++ ? ", " : "", i);
  for (uint32_t i = 0; i < t->n_axes; i++)
    if (!chosen[i]) t->axes[kept++] = t->axes[i];
  t->n_axes = kept;
  t->factored = true;
  m->has_rfactor = true;
  end(m, "])");
}

/* A reduction cut in two, and one part of it given to a tensor of its own. */
static void split_reduction(model *m, model_tensor *t) {
  for (uint32_t i = 0; i < t->n_axes; i++) {
    if (t->axes[i].kind != AXIS_REDUCTION || !can_split(t, i) || chance(m, 30)) continue;
    split_at(m, t, i);
    break;
  }
  rfactor(m, t);
}

/* ---- memory ---- */
static void memory(model *m, model_tensor *t) {
  begin(m, t);
  end(m, chance(m, 50) ? ".memory(symmetric)" : ".memory(global)");
}

static void allocate(model *m, model_tensor *t) {
  uint32_t order[GEN_MAX_RANK];
  if (t->factored) return;
  for (uint32_t i = 0; i < t->rank; i++) order[i] = i;
  for (uint32_t i = t->rank; i-- > 1;) {
    uint32_t k = below(m, i + 1), old = order[i];
    order[i] = order[k];
    order[k] = old;
  }
  begin(m, t);
  buffer_printf(&m->tail, ".allocate([");
  for (uint32_t i = 0; i < t->rank; i++) buffer_printf(&m->tail, "%s%u", i ? ", " : "", order[i]);
  t->n_allocated = t->rank;
  end(m, "])");
}

static void allocate_as_loop(model *m, model_tensor *t) {
  if (t->factored || t->uneven) return;
  t->n_allocated = 0;
  for (uint32_t i = 0; i < t->n_axes; i++) t->n_allocated += t->axes[i].kind != AXIS_REDUCTION;
  begin(m, t);
  end(m, ".allocate_as_loop()");
}

static void contiguity(model *m, model_tensor *t) {
  if (t->factored) return;
  t->uneven = true;
  begin(m, t);
  buffer_printf(&m->tail, ".contiguity([");
  for (uint32_t i = 0; i < t->n_allocated; i++)
    buffer_printf(&m->tail, "%s%s", i ? ", " : "", chance(m, 70) ? "true" : "false");
  end(m, "])");
}

/* ---- all of it ---- */
static void statement(model *m, model_tensor *t) {
  static void (*const on_axes[])(model *, model_tensor *) = {
      split,     split,     chunk_split, merge, merge, reorder, reverse, mark,
      mark_mesh, mark_mesh, swizzle,     shard, shard, rfactor, mark,    split_reduction};
  static void (*const on_tensor[])(model *, model_tensor *) = {
      place, place, memory, allocate, allocate_as_loop, contiguity};
  if (t->n_axes && chance(m, 80)) on_axes[below(m, 16)](m, t);
  else on_tensor[below(m, 6)](m, t);
}

void schedule_write(model *m) {
  uint32_t wanted = below(m, 30), n = m->n_tensors;
  for (uint32_t i = 0; i < n; i++) {
    if (chance(m, 40)) place(m, &m->tensors[i]);
    if (chance(m, 25)) split_reduction(m, &m->tensors[i]);
  }
  for (uint32_t i = 0; i < wanted; i++) statement(m, &m->tensors[below(m, m->n_tensors)]);
}

/* ---- streams on one device ---- */
/* A way to make an axis a stream. Tensors of one program share a few, so that their loops meet. */
typedef enum recipe_kind { LOGICAL, OUTER, INNER, CHUNKS, NESTED, OUTER_TWICE } recipe_kind;

typedef struct recipe {
  recipe_kind kind;
  uint32_t axis; /* counted from the front or from the end, modulo the number of axes */
  bool from_end;
  int64_t factor, second;
} recipe;

static recipe make_recipe(model *m) {
  static const recipe_kind kinds[] = {LOGICAL, LOGICAL, LOGICAL, LOGICAL, OUTER,  OUTER,
                                      OUTER,   INNER,   INNER,   CHUNKS,  NESTED, OUTER_TWICE};
  return (recipe){.kind = kinds[below(m, 12)],
                  .axis = below(m, 3) * (uint32_t)chance(m, 60),
                  .from_end = chance(m, 30),
                  .factor = 1 + below(m, 4),
                  .second = 1 + below(m, 3)};
}

void write_mark_stream(model *m, model_tensor *t, uint32_t at) {
  char text[8];
  t->axes[at].marked = true;
  begin(m, t);
  buffer_printf(&m->tail, "[%s] = stream", axis_text(m, at, t->n_axes, text));
  end(m, "");
}

void write_split(model *m, model_tensor *t, uint32_t at, bool outer, int64_t factor) {
  call(m, t, outer ? "outer_split" : "split", at);
  buffer_printf(&m->tail, ", %lld", (long long)factor);
  end_split(m, t, at, outer, factor);
}

/* Chunks of factor, factor + 1, … positions. */
static bool split_by_chunks(model *m, model_tensor *t, uint32_t at, int64_t length) {
  int64_t left = t->axes[at].size, count = 0, longest = 0;
  if (left < 1 || left > 64) return false;
  call(m, t, "outer_split", at);
  for (; left > 0; left -= length, length++) {
    if (length > left) length = left;
    buffer_printf(&m->tail, "%s%lld", count++ ? ", " : ", [", (long long)length);
    longest = length > longest ? length : longest;
  }
  model_parts(t, at, count, longest);
  end(m, "])");
  return true;
}

static void follow(model *m, model_tensor *t, const recipe *r) {
  if (t->n_axes == 0 || t->n_axes > 10) return;
  uint32_t at = r->axis % t->n_axes;
  if (r->from_end) at = t->n_axes - 1 - at;
  if (t->axes[at].marked || t->axes[at].whole) return;
  switch (r->kind) {
  case LOGICAL: break;
  case OUTER: write_split(m, t, at, true, r->factor); break;
  case INNER: write_split(m, t, at, false, r->factor); break;
  case CHUNKS:
    if (!split_by_chunks(m, t, at, r->factor)) return;
    break;
  case NESTED: /* what the outer loop leaves of the axis, cut again */
    write_split(m, t, at, chance(m, 50), r->factor);
    write_mark_stream(m, t, at);
    write_split(m, t, ++at, chance(m, 50), r->second);
    break;
  case OUTER_TWICE:
    write_split(m, t, at, chance(m, 50), r->factor);
    write_split(m, t, at, chance(m, 50), r->second);
    break;
  }
  write_mark_stream(m, t, at);
}

/* A mark that must be refused. */
static void mark_badly(model *m, model_tensor *t) {
  for (uint32_t i = 0; i < t->n_axes; i++) {
    if (!t->axes[i].never || t->axes[i].marked) continue;
    m->bad_stream = true;
    write_mark_stream(m, t, i);
    return;
  }
}

static void decorate(model *m, model_tensor *t) {
  static void (*const some[])(model *, model_tensor *) = {
      split, merge, reorder, reverse, mark, memory, allocate, split_reduction, contiguity};
  if (t->n_axes) some[below(m, 9)](m, t);
}

void schedule_streams(model *m) {
  recipe recipes[3] = {make_recipe(m), make_recipe(m), make_recipe(m)};
  uint32_t n = m->n_tensors, share = 50 + 25 * below(m, 3);
  for (uint32_t i = 0; i < n; i++) {
    model_tensor *t = &m->tensors[i];
    if (t->op == IR_OP_NONE && !chance(m, 10)) continue;
    if (t->further) continue; /* it has the streams of the first result */
    if (chance(m, 12)) decorate(m, t);
    if (chance(m, share)) follow(m, t, &recipes[chance(m, 75) ? 0 : 1]);
    if (chance(m, 20)) follow(m, t, &recipes[2]);
    if (chance(m, 12)) decorate(m, t);
  }
  if (chance(m, 2)) mark_badly(m, &m->tensors[below(m, n)]);
}
