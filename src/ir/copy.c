#include "ir/build.h"

/* Lists inside the records are never changed in place, so copying the tables is enough. */
#define OWN(field)                                                                                 \
  do {                                                                                             \
    f->field.data = arena_copy(memory, f->field.data, f->field.len * sizeof *f->field.data);       \
    f->field.cap = f->field.len;                                                                   \
  } while (0)

void ir_func_own_tables(ir_func *f, arena *memory) {
  OWN(axes);
  OWN(transforms);
  OWN(meshes);
  OWN(tensors);
  OWN(ops);
  OWN(inputs);
  OWN(order);
  OWN(outputs);
  OWN(constraints);
  OWN(statements);
  OWN(whys);
  OWN(removed);
  OWN(scheduled);
  f->names = map_copy(&f->names, memory);
}

ir_func *ir_func_copy(const ir_func *f) {
  arena *memory = &f->module->memory;
  ir_func *copy = ARENA_NEW(memory, ir_func);
  *copy = *f;
  ir_func_own_tables(copy, memory);
  copy->learned = map_copy(&f->learned, memory);
  copy->numbers = map_copy(&f->numbers, memory);
  return copy;
}
