/* Meshes of tensors that the schedule does not place. */
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "shard/internal.h"

typedef VEC(int64_t) device_set; /* sorted */

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void add_mesh(const ir_func *f, ir_mesh mesh, arena *memory, device_set *set) {
  const ir_mesh_data *m = ir_mesh_at(f, mesh);
  for (int64_t i = 0; i < m->n_devices; i++) vec_push(memory, set, m->devices[i]);
}

static void normalize(device_set *set) {
  uint32_t n = 0;
  if (set->len > 1) qsort(set->data, set->len, sizeof *set->data, compare);
  for (uint32_t i = 0; i < set->len; i++) {
    if (n == 0 || set->data[n - 1] != set->data[i]) set->data[n++] = set->data[i];
  }
  set->len = n;
}

static bool is_set(const ir_func *f, ir_mesh mesh, const device_set *set) {
  const ir_mesh_data *m = ir_mesh_at(f, mesh);
  if (m->n_devices != set->len) return false;
  for (uint32_t i = 0; i < set->len; i++) {
    if (ir_mesh_find(m, set->data[i]) < 0) return false;
  }
  return true;
}

bool shard_same_devices(const ir_func *f, ir_mesh a, ir_mesh b) {
  const ir_mesh_data *x = ir_mesh_at(f, a), *y = ir_mesh_at(f, b);
  if (IR_SAME(a, b)) return true;
  if (x->n_devices != y->n_devices) return false;
  for (int64_t i = 0; i < x->n_devices; i++) {
    if (ir_mesh_find(y, x->devices[i]) < 0) return false;
  }
  return true;
}

bool shard_same_coordinates(const ir_func *f, ir_mesh a, ir_mesh b, uint32_t axis) {
  const ir_mesh_data *x = ir_mesh_at(f, a), *y = ir_mesh_at(f, b);
  for (int64_t i = 0; i < x->n_devices; i++) {
    int64_t at = ir_mesh_find(y, x->devices[i]);
    if (at < 0 || ir_mesh_coordinate(x, i, axis) != ir_mesh_coordinate(y, at, axis)) return false;
  }
  return true;
}

ir_mesh shard_fresh_mesh(ir_func *f, const char *base, const int64_t *devices, int64_t n) {
  arena *memory = &f->module->memory;
  const char *text = base;
  uint32_t name;
  for (uint32_t k = 1;; k++) {
    name = strings_intern(&f->module->names, text, strlen(text));
    if (ir_func_lookup(f, name).kind == IR_NAME_NONE) break;
    text = arena_printf(memory, "%s%u", base, k);
  }
  return ir_build_mesh(f, name, &n, 1, devices, n, f->at);
}

/* A mesh with exactly these devices, those of the program before new ones. */
static ir_mesh mesh_of(ir_func *f, device_set *set) {
  normalize(set);
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    if (is_set(f, (ir_mesh){i}, set)) return (ir_mesh){i};
  }
  return shard_fresh_mesh(f, "all", set->data, set->len);
}

ir_mesh shard_all_devices(ir_func *f) {
  device_set set = {0};
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    add_mesh(f, (ir_mesh){i}, &f->module->memory, &set);
  }
  return set.len ? mesh_of(f, &set) : (ir_mesh){0};
}

/* The mesh of all operands if it is one; else all their devices together. `first`: one of them. */
static ir_mesh mesh_of_operands(ir_func *f, const ir_op_data *op, ir_mesh otherwise,
                                ir_tensor *first) {
  device_set set = {0};
  ir_mesh one = {0};
  bool several = false;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_mesh m = op->operands[k].id ? ir_tensor_at(f, op->operands[k])->mesh : (ir_mesh){0};
    if (m.id == 0) continue;
    several = several || (one.id && !IR_SAME(one, m));
    if (one.id == 0) *first = op->operands[k];
    one = m;
    add_mesh(f, m, &f->module->memory, &set);
  }
  if (one.id == 0) return otherwise;
  return several ? mesh_of(f, &set) : one;
}

bool shard_is_distributed(const ir_func *f) {
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    const ir_mesh_data *m = &f->meshes.data[i];
    if (m->n_devices > 1 || (m->n_devices == 1 && m->devices[0] != 0)) return true;
  }
  return false;
}

static uint32_t placed_why(ir_func *f, const ir_op_data *op, ir_tensor operand) {
  ir_why why = {.rule = operand.id ? IR_RULE_UNION : IR_RULE_ALL, .at = op->at};
  if (operand.id) {
    why.from = ir_tensor_at(f, operand)->name;
    /* mutant: why_operand_unsaid */
    why.because = ir_tensor_at(f, operand)->mesh_why;
  }
  return ir_why_add(f, why);
}

static void place_first(ir_func *f, const ir_op_data *op, ir_mesh all) {
  ir_tensor first = {0};
  if (ir_tensor_at(f, op->result)->mesh.id) return;
  ir_mesh mesh = mesh_of_operands(f, op, all, &first);
  ir_tensor_at(f, op->result)->mesh = mesh;
  ir_tensor_at(f, op->result)->mesh_why = placed_why(f, op, first);
}

void shard_place_all(ir_func *f) {
  ir_mesh all = shard_all_devices(f);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_tensor_data *t = ir_tensor_at(f, f->inputs.data[i]);
    if (t->mesh.id) continue;
    t->mesh = all;
    t->mesh_why = ir_why_add(f, (ir_why){.rule = IR_RULE_ALL, .at = t->at});
  }
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data op = *ir_op_at(f, f->order.data[i]);
    place_first(f, &op, all);
    for (uint32_t k = 1; k < ir_op_n_results(&op); k++) {
      ir_tensor_data *t = ir_tensor_at(f, ir_op_result(&op, k));
      if (t->mesh.id) continue;
      t->mesh = ir_tensor_at(f, op.result)->mesh;
      t->mesh_why = ir_tensor_at(f, op.result)->mesh_why;
    }
  }
}
