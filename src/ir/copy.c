#include "ir/build.h"

/* Lists inside the records are never changed in place, so copying the tables is enough. */
#define COPY(field)                                                                                \
  do {                                                                                             \
    copy->field.data = arena_copy(memory, f->field.data, f->field.len * sizeof *f->field.data);    \
    copy->field.cap = f->field.len;                                                                \
  } while (0)

ir_func *ir_func_copy(const ir_func *f) {
  arena *memory = &f->module->memory;
  ir_func *copy = ARENA_NEW(memory, ir_func);
  *copy = *f;
  COPY(axes);
  COPY(transforms);
  COPY(meshes);
  COPY(tensors);
  COPY(ops);
  COPY(inputs);
  COPY(order);
  COPY(outputs);
  COPY(constraints);
  COPY(statements);
  COPY(whys);
  COPY(removed);
  COPY(scheduled);
  copy->names = map_copy(&f->names, memory);
  copy->learned = map_copy(&f->learned, memory);
  copy->numbers = map_copy(&f->numbers, memory);
  return copy;
}
