/* memory, shrink, allocate, allocate_as_loop, contiguity: how a tensor lies in memory. */
#include <inttypes.h>

#include "schedule/internal.h"

bool schedule_memory(schedule_step *s) {
  ir_tensor_at(s->f, s->t)->memory = s->stmt->memory;
  return true;
}

bool schedule_shrink(schedule_step *s) {
  ir_tensor_at(s->f, s->t)->shrinks = true;
  return true;
}

static bool is_reduction(const ir_func *f, ir_axis a) {
  return ir_axis_at(f, a)->kind == IR_AXIS_REDUCTION;
}

/* ---- allocate ---- */
/* Reads a permutation of 0 … n-1; negative entries count from the end. */
static bool read_order(schedule_step *s, uint32_t n, uint32_t order[IR_MAX_RANK]) {
  const char *name = schedule_target_name(s);
  bool seen[IR_MAX_RANK] = {false};
  if (s->stmt->n_list != n) {
    return SCHEDULE_REFUSE(s, "allocate names each dimension once: %s has %u, and %u are given",
                           name, n, s->stmt->n_list);
  }
  for (uint32_t i = 0; i < n; i++) {
    int64_t d = s->stmt->list[i];
    if (d < -(int64_t)n || d >= (int64_t)n) {
      return SCHEDULE_REFUSE(s, "dimension %" PRId64 " is out of range: %s has %u", d, name, n);
    }
    order[i] = (uint32_t)(d < 0 ? d + (int64_t)n : d);
    if (seen[order[i]]) {
      return SCHEDULE_REFUSE(s, "allocate names dimension %u of %s twice", order[i], name);
    }
    seen[order[i]] = true;
  }
  return true;
}

/*   allocate([1, 0]):  logical [a, r, b]  =>  allocation [b, r, a]
 * Reductions have no memory and keep their places. Memory is dense unless contiguity says it is not. */
bool schedule_allocate(schedule_step *s) {
  ir_func *f = s->f;
  ir_axis dims[IR_MAX_RANK], list[IR_MAX_RANK];
  uint32_t order[IR_MAX_RANK] = {0};
  ir_axes logical = ir_tensor_at(f, s->t)->now.logical;
  uint32_t n = ir_axes_dims(f, logical, dims);
  if (!read_order(s, n, order)) return false;
  for (uint32_t i = 0, next = 0; i < logical.len; i++) {
    list[i] = is_reduction(f, logical.data[i]) ? logical.data[i] : dims[order[next++]];
  }
  ir_axes allocation = ir_axes_new(f, list, logical.len);
  const uint8_t *dense = ir_dense_default(f, allocation);
  ir_tensor_at(f, s->t)->now.allocation = allocation;
  ir_tensor_at(f, s->t)->now.dense = dense;
  return true;
}

/* ---- contiguity ---- */
static bool has_memory(const ir_func *f, ir_axis a) {
  ir_axis_kind kind = ir_axis_at(f, a)->kind;
  return kind != IR_AXIS_REDUCTION && kind != IR_AXIS_BROADCAST;
}

bool schedule_contiguity(schedule_step *s) {
  ir_func *f = s->f;
  ir_axes allocation = ir_tensor_at(f, s->t)->now.allocation;
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = ir_axes_dims(f, allocation, dims);
  if (s->stmt->n_list != n) {
    return SCHEDULE_REFUSE(
        s, "contiguity takes one value per allocated axis: %s has %u, and %u are given",
        schedule_target_name(s), n, s->stmt->n_list);
  }
  uint8_t *dense = ARENA_ARRAY(&f->module->memory, allocation.len, uint8_t);
  for (uint32_t i = 0, next = 0; i < allocation.len; i++) {
    ir_axis a = allocation.data[i];
    if (is_reduction(f, a)) continue;
    bool given = s->stmt->list[next++] != 0;
    if (has_memory(f, a)) dense[i] = given ? IR_DENSE_TRUE : IR_DENSE_FALSE;
  }
  ir_tensor_at(f, s->t)->now.dense = dense;
  return true;
}

/* ---- allocate_as_loop ---- */
static ir_dense dense_of(const map *dense, ir_axis a) {
  return (ir_dense)map_get(dense, a.id, IR_DENSE_NONE);
}

/* A split of a dense axis is dense inside; where the axis was not dense with the next one, only its
 * inner part is not. */
static void split_density(const ir_transform_data *t, map *dense) {
  ir_dense whole = dense_of(dense, t->in[0]);
  map_put(dense, t->out[0].id, whole == IR_DENSE_FALSE ? IR_DENSE_TRUE : whole);
  map_put(dense, t->out[1].id, whole);
}

/* Merged positions are evenly spaced only if the outer axis is dense with the inner one. An axis
 * without memory does not get in the way. */
static bool merge_density(const ir_transform_data *t, map *dense) {
  ir_dense outer = dense_of(dense, t->in[0]), inner = dense_of(dense, t->in[1]);
  if (outer == IR_DENSE_FALSE && inner != IR_DENSE_NONE) return false;
  map_put(dense, t->out[0].id, inner == IR_DENSE_NONE ? outer : inner);
  return true;
}

static bool transform_density(const ir_transform_data *t, map *dense) {
  switch (t->kind) {
  case IR_SPLIT:
  case IR_OUTER_SPLIT:
  case IR_CHUNK_SPLIT: split_density(t, dense); return true;
  case IR_MERGE: return merge_density(t, dense);
  case IR_RESIZE:
  case IR_SWIZZLE: map_put(dense, t->out[0].id, dense_of(dense, t->in[0])); return true;
  }
  impossible("a transform of no kind");
}

/* An axis that has memory although all it was made of has none: a merged expanded broadcast. */
static ir_dense final_density(const ir_func *f, const map *dense, ir_axis a) {
  if (!has_memory(f, a)) return IR_DENSE_NONE;
  return dense_of(dense, a) == IR_DENSE_FALSE ? IR_DENSE_FALSE : IR_DENSE_TRUE;
}

/*   loop [o, i, r]  =>  allocation [o, i, r] */
bool schedule_allocate_as_loop(schedule_step *s) {
  ir_func *f = s->f;
  ir_domains now = ir_tensor_at(f, s->t)->now;
  map dense;
  map_init(&dense, &f->module->memory);
  for (uint32_t i = 0; i < now.allocation.len; i++) {
    map_put(&dense, now.allocation.data[i].id, now.dense[i]);
  }
  schedule_history h = schedule_history_of(f, now.allocation, now.loop);
  for (uint32_t i = 0; i < h.len; i++) {
    if (transform_density(ir_transform_at(f, h.data[i]), &dense)) continue;
    return SCHEDULE_REFUSE(
        s,
        "%s cannot be allocated as its loop domain: an axis that is not dense with "
        "the next one was merged with it",
        schedule_target_name(s));
  }
  uint8_t *flags = ARENA_ARRAY(&f->module->memory, now.loop.len, uint8_t);
  for (uint32_t i = 0; i < now.loop.len; i++) {
    flags[i] = (uint8_t)final_density(f, &dense, now.loop.data[i]);
  }
  ir_tensor_at(f, s->t)->now.allocation = now.loop;
  ir_tensor_at(f, s->t)->now.dense = flags;
  return true;
}
