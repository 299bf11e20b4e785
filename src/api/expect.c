/* Extents that are given with the options of compiling: what a program is likely to be run with. */
#include <stdlib.h>
#include <string.h>

#include "api/passes.h"

static void expect(ir_module *m, ir_scalar extent, int64_t value) {
  const ir_scalar_node *node = ir_scalar_node_of(&m->scalars, extent);
  if (node->kind != IR_SCALAR_SYMBOL) return;
  uint32_t symbol = (uint32_t)node->value;
  while (m->expected.len <= symbol) vec_push(&m->memory, &m->expected, IR_UNBOUND);
  m->expected.data[symbol] = value;
}

static void expect_shape(ir_func *f, ir_tensor t, const char *extents) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, t, dims);
  for (uint32_t i = 0; i < rank; i++) {
    char *end = NULL;
    long long n = strtoll(extents, &end, 10);
    if (end == extents || n < 0) return;
    expect(f->module, ir_axis_whole(f, dims[i]), n);
    extents = *end == 'x' ? end + 1 : end;
  }
}

/* Reads "t=6" or "inp=6x32". Mistakes in it are reported where shapes are bound. */
static void expect_one(ir_func *f, const char *text, size_t length) {
  const char *equals = memchr(text, '=', length);
  if (!equals) return;
  uint32_t id = strings_find(&f->module->names, text, (size_t)(equals - text));
  ir_name_entry e = id ? ir_func_lookup(f, id) : (ir_name_entry){0};
  if (e.kind == IR_NAME_TENSOR) expect_shape(f, (ir_tensor){e.id}, equals + 1);
  long long n = strtoll(equals + 1, NULL, 10);
  if (e.kind == IR_NAME_EXTENT && n >= 0) expect(f->module, (ir_scalar){e.id}, n);
}

weir_status api_expect_shapes(ir_func *f, const weir_options *o) {
  f->module->expected.len = 0;
  for (size_t i = 0; o; i++) {
    const char *text = NULL;
    weir_status st = weir_options_get(o, "define", i, &text);
    if (st != WEIR_OK || !text) return st;
    while (*text) {
      size_t length = strcspn(text, ",");
      expect_one(f, text, length);
      text += length + (text[length] == ',');
    }
  }
  return WEIR_OK;
}
