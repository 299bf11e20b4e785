/* split, outer_split, chunks, merge, reorder, swizzle: statements that derive loop axes. */
#include <inttypes.h>
#include <string.h>

#include "schedule/internal.h"

static bool is_placed_mark(ir_mark m) { return m.kind == IR_MARK_STREAM || m.kind == IR_MARK_MESH; }

/* An axis that runs on a mesh or a stream has one position per device or iteration; to derive others
 * from it would change what the mark means. */
static bool check_unmarked(schedule_step *s, uint32_t position, const char *verb) {
  ir_mark mark = ir_axis_at(s->f, schedule_loop_at(s, position))->mark;
  if (!is_placed_mark(mark)) return true;
  return SCHEDULE_REFUSE(s, "axis %u of %s is marked %s: %s it before marking it", position,
                         schedule_target_name(s), ir_mark_text(mark), verb);
}

static bool check_room(schedule_step *s) {
  uint32_t n = ir_tensor_at(s->f, s->t)->now.loop.len;
  if (n < IR_MAX_RANK) return true;
  return SCHEDULE_REFUSE(s, "%s has %u loop axes already, and no tensor may have more",
                         schedule_target_name(s), n);
}

static bool check_size(schedule_step *s, ir_scalar size, const char *what) {
  if (!ir_scalar_is_overflow(size)) return true;
  return SCHEDULE_REFUSE(s, "the extent of the %s axis of %s does not fit 64 bits", what,
                         schedule_target_name(s));
}

/* ---- making axes ---- */
static ir_scalar constant(ir_func *f, int64_t value) {
  return ir_scalar_const(&f->module->scalars, value);
}

/* An axis of `size` positions like `parent`: its kind and a `serial` mark are inherited. A broadcast
 * keeps extent 1 and is expanded to its size. */
static ir_axis derived_axis(ir_func *f, ir_axis parent, ir_axis_kind kind, ir_scalar size) {
  bool broadcast = kind == IR_AXIS_BROADCAST;
  ir_scalar one = constant(f, 1);
  ir_axis a = ir_axis_new(f, kind, broadcast ? one : size);
  if (broadcast && !IR_SAME(size, one)) ir_axis_at(f, a)->expanded = size;
  ir_mark mark = ir_axis_at(f, parent)->mark;
  if (mark.kind == IR_MARK_SERIAL) ir_axis_at(f, a)->mark = mark;
  return a;
}

/*   [… a …]  =>  [… outer, inner …] */
static void split_axis(schedule_step *s, uint32_t position, ir_transform_data t, ir_scalar outer,
                       ir_scalar inner) {
  ir_func *f = s->f;
  ir_axis a = schedule_loop_at(s, position);
  ir_axis_kind kind = ir_axis_at(f, a)->kind;
  ir_axis parts[2] = {derived_axis(f, a, kind, outer), derived_axis(f, a, kind, inner)};
  t.out[0] = parts[0], t.out[1] = parts[1];
  schedule_transform_like(f, t, &a, parts);
  schedule_loop_splice(f, s->t, position, 1, parts, 2);
}

/* ---- split, outer_split ---- */
static bool mesh_factor(schedule_step *s, ir_scalar *factor) {
  const ir_mesh_data *mesh = ir_mesh_at(s->f, s->stmt->mesh);
  const char *name = ir_name_text(s->f, mesh->name);
  if (!s->stmt->mesh_axis_named && mesh->rank != 1) {
    return SCHEDULE_REFUSE(s, "mesh %s has %u axes: name one of them as the factor, as in %s.x",
                           name, mesh->rank, name);
  }
  int64_t size = ir_mesh_size(mesh, s->stmt->mesh_axis);
  if (size == 0) {
    ir_mark mark = {.kind = IR_MARK_MESH, .mesh_axis = s->stmt->mesh_axis};
    return SCHEDULE_REFUSE(s, "mesh %s has %u %s: there is no %s", name, mesh->rank,
                           mesh->rank == 1 ? "axis" : "axes", ir_mark_text(mark));
  }
  *factor = constant(s->f, size);
  return true;
}

static bool factor_of(schedule_step *s, ir_scalar *factor) {
  if (s->stmt->factor_is_mesh) return mesh_factor(s, factor);
  *factor = s->stmt->factor;
  check(factor->id);
  if (!check_size(s, *factor, "split")) return false;
  if (ir_scalar_le(&s->f->module->scalars, constant(s->f, 1), *factor) != IR_FALSE) return true;
  return SCHEDULE_REFUSE(s, "a factor must be at least 1, and this one is %s",
                         ir_scalar_text(s->f, *factor));
}

/* The part that is not the factor. A broadcast of one position has one, whatever the factor. */
static ir_scalar remainder_of(ir_func *f, ir_axis a, ir_scalar factor) {
  ir_axis_data data = *ir_axis_at(f, a);
  if (data.kind == IR_AXIS_BROADCAST && !data.expanded.id) return constant(f, 1);
  return ir_scalar_ceildiv(&f->module->scalars, ir_axis_size(f, a), factor);
}

/*   split(i, f):        [… n …]  =>  [… ceildiv(n, f), f …]
 *   outer_split(i, f):  [… n …]  =>  [… f, ceildiv(n, f) …] */
bool schedule_split(schedule_step *s) {
  ir_func *f = s->f;
  uint32_t position;
  ir_scalar factor;
  if (!schedule_axis(s, s->stmt->axis, &position) || !check_unmarked(s, position, "split") ||
      !check_room(s) || !factor_of(s, &factor)) {
    return false;
  }
  ir_axis a = schedule_loop_at(s, position);
  ir_scalar rest = remainder_of(f, a, factor);
  if (!check_size(s, rest, "split")) return false;
  ir_scalar one = constant(f, 1);
  /* An exact split leaves no division whose divisor must be checked: b * s split by s are b pieces, also if
   * s is 0. */
  bool exact = IR_SAME(ir_scalar_mul(&f->module->scalars, rest, factor), ir_axis_size(f, a));
  if (!exact && ir_scalar_le(&f->module->scalars, one, factor) != IR_TRUE) {
    ir_require(f, IR_REQUIRE_LE, one, factor, "the factor of a split", s->stmt->at);
  }
  bool outer = s->stmt->kind == IR_STMT_OUTER_SPLIT;
  ir_transform_data t = {.kind = outer ? IR_OUTER_SPLIT : IR_SPLIT, .factor = factor};
  split_axis(s, position, t, outer ? factor : rest, outer ? rest : factor);
  return true;
}

/* ---- unequal chunks ---- */
static bool sum_chunks(schedule_step *s, int64_t *sum, int64_t *longest) {
  *sum = *longest = 0;
  if (s->stmt->n_list == 0) return SCHEDULE_REFUSE(s, "a list of chunks must not be empty");
  for (uint32_t i = 0; i < s->stmt->n_list; i++) {
    int64_t chunk = s->stmt->list[i];
    if (chunk < 1) {
      return SCHEDULE_REFUSE(s, "a chunk must have at least 1 position, and chunk %u has %" PRId64,
                             i, chunk);
    }
    if (__builtin_add_overflow(*sum, chunk, sum)) {
      return SCHEDULE_REFUSE(s, "the sum of the chunks does not fit 64 bits");
    }
    if (chunk > *longest) *longest = chunk;
  }
  return true;
}

static bool check_chunk_sum(schedule_step *s, uint32_t position, ir_scalar size, int64_t sum) {
  ir_func *f = s->f;
  ir_proof same = ir_func_equal(f, size, constant(f, sum));
  if (same != IR_FALSE) return true;
  return SCHEDULE_REFUSE(s, "axis %u of %s has %s positions, but the chunks add up to %" PRId64,
                         position, schedule_target_name(s), ir_scalar_text(f, size), sum);
}

/*   outer_split(i, [c0, c1, …]):  [… n …]  =>  [… number of chunks, longest chunk …] */
bool schedule_chunk_split(schedule_step *s) {
  ir_func *f = s->f;
  uint32_t position;
  int64_t sum, longest;
  if (!schedule_axis(s, s->stmt->axis, &position) || !check_unmarked(s, position, "split") ||
      !check_room(s) || !sum_chunks(s, &sum, &longest)) {
    return false;
  }
  ir_scalar size = ir_axis_size(f, schedule_loop_at(s, position));
  if (!check_chunk_sum(s, position, size, sum)) return false;
  if (ir_func_equal(f, size, constant(f, sum)) == IR_UNKNOWN) {
    ir_require(f, IR_REQUIRE_EQ, size, constant(f, sum), "the sum of the chunks", s->stmt->at);
  }
  uint32_t n = s->stmt->n_list;
  ir_transform_data t = {.kind = IR_CHUNK_SPLIT, .n_chunks = n};
  t.chunks = arena_copy(&f->module->memory, s->stmt->list, n * sizeof *s->stmt->list);
  split_axis(s, position, t, constant(f, n), constant(f, longest));
  return true;
}

/* ---- merge ---- */
static ir_axis_kind merged_kind(ir_axis_kind a, ir_axis_kind b) {
  if (a == b) return a;
  return a == IR_AXIS_GATHER || b == IR_AXIS_GATHER ? IR_AXIS_GATHER : IR_AXIS_ITERATION;
}

static bool check_mergeable(schedule_step *s, uint32_t position) {
  if (position + 1 == ir_tensor_at(s->f, s->t)->now.loop.len) {
    return SCHEDULE_REFUSE(s, "axis %u is the last loop axis of %s: there is none to merge it with",
                           position, schedule_target_name(s));
  }
  if (!check_unmarked(s, position, "merge") || !check_unmarked(s, position + 1, "merge"))
    return false;
  bool a = ir_axis_at(s->f, schedule_loop_at(s, position))->kind == IR_AXIS_REDUCTION;
  bool b = ir_axis_at(s->f, schedule_loop_at(s, position + 1))->kind == IR_AXIS_REDUCTION;
  if (a == b) return true;
  return SCHEDULE_REFUSE(
      s, "axis %u of %s is a reduction and axis %u is not: they cannot be merged",
      a ? position : position + 1, schedule_target_name(s), a ? position + 1 : position);
}

/*   merge(i):  [… a, b …]  =>  [… a * b …] */
bool schedule_merge(schedule_step *s) {
  ir_func *f = s->f;
  uint32_t position;
  if (!schedule_axis(s, s->stmt->axis, &position) || !check_mergeable(s, position)) return false;
  ir_axis in[2] = {schedule_loop_at(s, position), schedule_loop_at(s, position + 1)};
  ir_scalar size =
      ir_scalar_mul(&f->module->scalars, ir_axis_size(f, in[0]), ir_axis_size(f, in[1]));
  if (!check_size(s, size, "merged")) return false;
  ir_axis_data a = *ir_axis_at(f, in[0]), b = *ir_axis_at(f, in[1]);
  ir_axis parent = a.mark.kind == IR_MARK_SERIAL ? in[0] : in[1];
  ir_axis out = derived_axis(f, parent, merged_kind(a.kind, b.kind), size);
  ir_transform_data t = {.kind = IR_MERGE, .in = {in[0], in[1]}, .out = {out}};
  schedule_transform_like(f, t, in, &out);
  schedule_loop_splice(f, s->t, position, 2, &out, 1);
  return true;
}

/* ---- reorder ---- */
/* Reads the pairs into goes_to[from] = to and taken[to]; both are filled with "nothing". */
static bool read_moves(schedule_step *s, uint32_t *goes_to, bool *taken) {
  for (uint32_t i = 0; i + 1 < s->stmt->n_list; i += 2) {
    uint32_t from, to;
    if (!schedule_axis(s, s->stmt->list[i], &from)) return false;
    if (!schedule_axis(s, s->stmt->list[i + 1], &to)) return false;
    if (goes_to[from] != UINT32_MAX) {
      return SCHEDULE_REFUSE(s, "axis %u of %s is moved twice", from, schedule_target_name(s));
    }
    if (taken[to]) {
      return SCHEDULE_REFUSE(s, "two axes of %s are moved to position %u", schedule_target_name(s),
                             to);
    }
    goes_to[from] = to;
    taken[to] = true;
  }
  return true;
}

/*   reorder(2 -> 0):  [a, b, c, d]  =>  [c, a, b, d]
 * Axes that are not named fill the free places in their old order. */
bool schedule_reorder(schedule_step *s) {
  ir_axes loop = ir_tensor_at(s->f, s->t)->now.loop;
  uint32_t goes_to[IR_MAX_RANK];
  bool taken[IR_MAX_RANK] = {false};
  memset(goes_to, 0xff, sizeof goes_to);
  if (!read_moves(s, goes_to, taken)) return false;
  ir_axis list[IR_MAX_RANK] = {0};
  uint32_t hole = 0;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (goes_to[i] == UINT32_MAX) {
      while (taken[hole]) hole++;
      goes_to[i] = hole++;
    }
    list[goes_to[i]] = loop.data[i];
  }
  ir_tensor_at(s->f, s->t)->now.loop = ir_axes_new(s->f, list, loop.len);
  return true;
}

/* ---- swizzle ---- */
/*   swizzle(i, mesh.x):  [… a …]  =>  [… a' …], where device c sees position p of a at (p + c) mod n */
bool schedule_swizzle(schedule_step *s) {
  ir_func *f = s->f;
  uint32_t position;
  if (!schedule_axis(s, s->stmt->axis, &position) || !check_unmarked(s, position, "swizzle")) {
    return false;
  }
  ir_axis a = schedule_loop_at(s, position);
  ir_mesh mesh = ir_tensor_at(f, s->t)->mesh;
  if (mesh.id && !schedule_has_axis(s, mesh, s->stmt->mesh_axis)) return false;
  ir_axis_kind kind = ir_axis_at(f, a)->kind;
  ir_axis out = derived_axis(f, a, kind, ir_axis_size(f, a));
  ir_transform_data t = {.kind = IR_SWIZZLE, .out = {out}, .mesh_axis = s->stmt->mesh_axis};
  schedule_transform_like(f, t, &a, &out);
  schedule_loop_splice(f, s->t, position, 1, &out, 1);
  return true;
}
