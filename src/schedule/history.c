#include <stdlib.h>

#include "schedule/internal.h"

typedef VEC(ir_axis) axis_stack;
typedef VEC(ir_transform) transform_list;

static int by_age(const void *a, const void *b) {
  uint32_t x = ((const ir_transform *)a)->id, y = ((const ir_transform *)b)->id;
  return x < y ? -1 : x > y;
}

/* A split whose parts are merged again is reached by two ways; `seen` keeps the walk linear. */
static void visit(const ir_func *f, ir_axis a, map *seen, axis_stack *stack, transform_list *list) {
  arena *memory = &f->module->memory;
  ir_transform def = ir_axis_at(f, a)->def;
  if (!def.id || map_get(seen, def.id, 0)) return;
  map_put(seen, def.id, 1);
  vec_push(memory, list, def);
  const ir_transform_data *t = ir_transform_at(f, def);
  for (uint32_t i = 0; i < schedule_n_in(t); i++) vec_push(memory, stack, t->in[i]);
}

schedule_history schedule_history_of(const ir_func *f, ir_axes from, ir_axes to) {
  arena *memory = &f->module->memory;
  axis_stack stack = {0};
  transform_list list = {0};
  map seen;
  map_init(&seen, memory);
  for (uint32_t i = 0; i < to.len; i++) vec_push(memory, &stack, to.data[i]);
  while (stack.len) {
    ir_axis a = stack.data[--stack.len];
    if (schedule_find(from, a) == from.len) visit(f, a, &seen, &stack, &list);
  }
  /* Handles grow with time, so their order is an order of application. */
  if (list.len) qsort(list.data, list.len, sizeof *list.data, by_age);
  return (schedule_history){list.data, list.len};
}

bool schedule_descends(const ir_func *f, ir_axes from, ir_axis a, ir_axis ancestor) {
  if (IR_SAME(a, ancestor)) return true;
  schedule_history h = schedule_history_of(f, from, (ir_axes){&a, 1});
  for (uint32_t i = 0; i < h.len; i++) {
    const ir_transform_data *t = ir_transform_at(f, h.data[i]);
    if (IR_SAME(t->in[0], ancestor) || IR_SAME(t->in[1], ancestor)) return true;
  }
  return false;
}

uint32_t schedule_n_in(const ir_transform_data *t) { return t->in[1].id ? 2 : 1; }
uint32_t schedule_n_out(const ir_transform_data *t) { return t->out[1].id ? 2 : 1; }

void schedule_transform_like(ir_func *f, ir_transform_data t, const ir_axis *in,
                             const ir_axis *out) {
  uint32_t n_in = schedule_n_in(&t), n_out = schedule_n_out(&t);
  for (uint32_t i = 0; i < n_in; i++) t.in[i] = in[i];
  for (uint32_t i = 0; i < n_out; i++) t.out[i] = out[i];
  (void)ir_transform_new(f, &t);
}

ir_axis schedule_image(const map *images, ir_axis a) { return (ir_axis){map_get(images, a.id, 0)}; }

void schedule_set_image(map *images, ir_axis a, ir_axis image) { map_put(images, a.id, image.id); }
