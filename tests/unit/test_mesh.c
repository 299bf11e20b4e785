/* Meshes: sizes, coordinates, slices, equality; duplicates are refused when a mesh is built. */
#include "ir/build.h"
#include "ir/ir.h"
#include "ir/mesh.h"
#include "test.h"

static ir_module module;
static ir_func *f;

static uint32_t name(const char *text) { return strings_intern(&module.names, text, strlen(text)); }

static const ir_mesh_data *mesh(const char *text, const int64_t *shape, uint32_t rank,
                                const int64_t *devices, int64_t n) {
  ir_mesh m = ir_build_mesh(f, name(text), shape, rank, devices, n, (loc){0});
  return m.id ? ir_mesh_at(f, m) : NULL;
}

static bool slice_is(const ir_mesh_data *m, int64_t device, uint32_t k, const int64_t *expected) {
  int64_t out[16];
  ir_mesh_slice(m, ir_mesh_find(m, device), k, out);
  return memcmp(out, expected, (size_t)ir_mesh_size(m, k) * sizeof *out) == 0;
}
#define EXPECT_SLICE(m, device, k, ...) EXPECT(slice_is(m, device, k, (int64_t[]){__VA_ARGS__}))

static void listed_grid(void) {
  const ir_mesh_data *m = mesh("g", (int64_t[]){2, 3}, 2, (int64_t[]){3, 4, 1, 0, 8, 2}, 6);
  if (!EXPECT(m)) return;
  EXPECT_INT(ir_mesh_size(m, 0), 3); /* mesh.x is the last axis */
  EXPECT_INT(ir_mesh_size(m, 1), 2);
  EXPECT_INT(ir_mesh_size(m, 2), 0);
  EXPECT_INT(ir_mesh_find(m, 8), 4);
  EXPECT_INT(ir_mesh_find(m, 5), -1);
  EXPECT_INT(ir_mesh_coordinate(m, ir_mesh_find(m, 8), 1), 1);
  EXPECT_INT(ir_mesh_coordinate(m, ir_mesh_find(m, 8), 0), 1);
  EXPECT_INT(ir_mesh_coordinate(m, ir_mesh_find(m, 1), 1), 0);
  EXPECT_INT(ir_mesh_coordinate(m, ir_mesh_find(m, 1), 0), 2);
  EXPECT_INT(ir_mesh_coordinate(m, ir_mesh_find(m, 1), 2), 0); /* no such axis: all at 0 */
  EXPECT_SLICE(m, 1, 0, 3, 4, 1);
  EXPECT_SLICE(m, 1, 1, 1, 2);
  EXPECT_SLICE(m, 2, 1, 1, 2);
}

static void counted_cube(void) {
  const ir_mesh_data *m = mesh("c", (int64_t[]){2, 3, 4}, 3, NULL, 0);
  if (!EXPECT(m)) return;
  EXPECT_INT(m->n_devices, 24);
  EXPECT_INT(ir_mesh_find(m, 18), 18);
  EXPECT_INT(ir_mesh_find(m, 24), -1);
  EXPECT_INT(ir_mesh_find(m, -1), -1);
  EXPECT_SLICE(m, 18, 2, 6, 18);
  EXPECT_SLICE(m, 18, 1, 14, 18, 22);
  EXPECT_SLICE(m, 18, 0, 16, 17, 18, 19);
}

static void sameness(void) {
  ir_mesh_data a = *mesh("a", (int64_t[]){2}, 1, NULL, 0);
  ir_mesh_data same = *mesh("same", (int64_t[]){2}, 1, (int64_t[]){0, 1}, 2);
  ir_mesh_data turned = *mesh("turned", (int64_t[]){2}, 1, (int64_t[]){1, 0}, 2);
  ir_mesh_data row = *mesh("row", (int64_t[]){1, 2}, 2, NULL, 0);
  ir_mesh_data longer = *mesh("longer", (int64_t[]){3}, 1, NULL, 0);
  EXPECT(ir_mesh_same(&a, &same));
  EXPECT(!ir_mesh_same(&a, &turned));
  EXPECT(!ir_mesh_same(&a, &row));
  EXPECT(!ir_mesh_same(&a, &longer));
}

static void duplicates(void) {
  uint32_t before = module.errors.errors;
  EXPECT(!mesh("twice", (int64_t[]){4}, 1, (int64_t[]){1, 2, 0, 2}, 4));
  EXPECT_INT(module.errors.errors, before + 1);
}

static status run(void *context) {
  (void)context;
  f = ir_build_func(&module, IR_FUNC_FUSION, name("f"), (loc){0});
  listed_grid();
  counted_cube();
  sameness();
  duplicates();
  return STATUS_OK;
}

int main(void) {
  ir_module_init(&module, &memory_default);
  EXPECT(memory_guard(run, NULL) == STATUS_OK);
  ir_module_destroy(&module);
  return test_finish();
}
