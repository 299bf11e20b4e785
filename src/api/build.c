/* Building a fusion: everything but operations (op.c) and schedules (schedule.c). */
#include "ir/build.h"

#include <string.h>

#include "api/api.h"
#include "text/fragment.h"

/* ---- fusions ---- */
typedef struct fusion_call {
  weir_module *m;
  const char *name;
  ir_func *result;
} fusion_call;

static status fusion_body(arena *scratch, void *context) {
  (void)scratch;
  fusion_call *c = context;
  ir_module *m = &c->m->ir;
  if (!text_is_name(m, c->name)) {
    diag_error(&m->errors, api_nowhere, "'%s' cannot be the name of a fusion", c->name);
    return STATUS_BAD_PROGRAM;
  }
  uint32_t name = strings_intern(&m->names, c->name, strlen(c->name));
  c->result = ir_build_func(m, IR_FUNC_FUSION, name, api_nowhere);
  return c->result ? STATUS_OK : STATUS_BAD_PROGRAM;
}

weir_status weir_fusion_create(weir_module *m, const char *name, weir_fusion **result) {
  if (!m || !name || !result) return api_refuse("weir_fusion_create: an argument is NULL");
  fusion_call c = {m, name, NULL};
  weir_status st = api_edit(m, fusion_body, &c);
  if (st == WEIR_OK) *result = (weir_fusion *)c.result;
  return st;
}

/* ---- meshes ---- */
typedef struct mesh_call {
  ir_func *f;
  const char *name;
  const int64_t *shape, *devices;
  size_t rank;
  weir_mesh result;
} mesh_call;

/* How many devices the caller has listed: the product of the shape. */
static int64_t listed(const mesh_call *c) {
  int64_t n = 1;
  for (size_t i = 0; i < c->rank; i++)
    if (__builtin_mul_overflow(n, c->shape[i], &n)) return 0;
  return n;
}

static status mesh_body(arena *scratch, void *context) {
  (void)scratch;
  mesh_call *c = context;
  uint32_t name = api_name(c->f, c->name);
  if (!name) return STATUS_BAD_PROGRAM;
  uint32_t rank = c->rank > IR_MESH_MAX_RANK ? IR_MESH_MAX_RANK + 1 : (uint32_t)c->rank;
  ir_mesh m = ir_build_mesh(c->f, name, c->shape, rank, c->devices, c->devices ? listed(c) : 0,
                            api_nowhere);
  c->result.id = name;
  return m.id ? STATUS_OK : STATUS_BAD_PROGRAM;
}

weir_status weir_fusion_mesh(weir_fusion *f, const char *name, const int64_t *shape, size_t rank,
                             const int64_t *devices, weir_mesh *result) {
  if (!f || !name || (rank && !shape) || !result)
    return api_refuse("weir_fusion_mesh: an argument is NULL");
  mesh_call c = {api_func(f), name, shape, devices, rank, {0}};
  weir_status st = api_edit(api_module(f), mesh_body, &c);
  if (st == WEIR_OK) *result = c.result;
  return st;
}

/* ---- inputs ---- */
typedef struct input_call {
  ir_func *f;
  const char *name;
  weir_dtype dtype;
  const char *const *extents;
  size_t rank;
  weir_tensor result;
} input_call;

/* Reads "32" or "t"; "?" becomes none. */
static bool input_extent(ir_func *f, const char *text, ir_scalar *result) {
  *result = (ir_scalar){0};
  if (text && strcmp(text, "?") == 0) return true;
  if (!text) diag_error(&f->module->errors, api_nowhere, "an extent is NULL");
  else if (text_is_name(f->module, text))
    *result =
        ir_build_extent(f, strings_intern(&f->module->names, text, strlen(text)), api_nowhere);
  else *result = text_fragment_scalar(f, text);
  return result->id != 0;
}

static status input_body(arena *scratch, void *context) {
  (void)scratch;
  input_call *c = context;
  ir_scalar extents[IR_MAX_RANK];
  api_unschedule(c->f);
  uint32_t name = api_name(c->f, c->name);
  if (!name) return STATUS_BAD_PROGRAM;
  for (size_t i = 0; i < c->rank; i++)
    if (!input_extent(c->f, c->extents[i], &extents[i])) return STATUS_BAD_PROGRAM;
  ir_tensor t =
      ir_build_input(c->f, name, (ir_dtype)c->dtype, extents, (uint32_t)c->rank, api_nowhere);
  c->result.id = name;
  return t.id ? STATUS_OK : STATUS_BAD_PROGRAM;
}

weir_status weir_fusion_input(weir_fusion *f, const char *name, weir_dtype dtype,
                              const char *const *extents, size_t rank, weir_tensor *result) {
  if (!f || !name || (rank && !extents) || !result)
    return api_refuse("weir_fusion_input: an argument is NULL");
  if (weir_dtype_size_bytes(dtype) == 0) return api_refuse("weir_fusion_input: not a dtype");
  if (rank > WEIR_MAX_RANK)
    return api_refuse("a tensor has at most %d axes, not %zu", WEIR_MAX_RANK, rank);
  input_call c = {api_func(f), name, dtype, extents, rank, {0}};
  weir_status st = api_edit(api_module(f), input_body, &c);
  if (st == WEIR_OK) *result = c.result;
  return st;
}

/* ---- outputs and names ---- */
typedef struct return_call {
  ir_func *f;
  weir_tensor t;
} return_call;

static status return_body(arena *scratch, void *context) {
  (void)scratch;
  return_call *c = context;
  api_unschedule(c->f);
  ir_tensor t = api_tensor(c->f, c->t);
  return t.id && ir_build_output(c->f, t, api_nowhere) ? STATUS_OK : STATUS_BAD_PROGRAM;
}

weir_status weir_fusion_return(weir_fusion *f, weir_tensor t) {
  if (!f) return api_refuse("weir_fusion_return: the fusion is NULL");
  return_call c = {api_func(f), t};
  return api_edit(api_module(f), return_body, &c);
}

static ir_name_entry lookup(const ir_func *f, const char *name, uint32_t *id) {
  *id = strings_find(&f->module->names, name, strlen(name));
  return *id ? ir_func_lookup(f, *id) : (ir_name_entry){0};
}

weir_status weir_fusion_tensor(weir_fusion *f, const char *name, weir_tensor *result) {
  if (!f || !name || !result) return api_refuse("weir_fusion_tensor: an argument is NULL");
  uint32_t id;
  if (lookup(api_func(f), name, &id).kind != IR_NAME_TENSOR)
    return api_refuse("the fusion has no tensor called '%s'", name);
  result->id = id;
  return WEIR_OK;
}

weir_status weir_fusion_find_mesh(weir_fusion *f, const char *name, weir_mesh *result) {
  if (!f || !name || !result) return api_refuse("weir_fusion_find_mesh: an argument is NULL");
  uint32_t id;
  if (lookup(api_func(f), name, &id).kind != IR_NAME_MESH)
    return api_refuse("the fusion has no mesh called '%s'", name);
  result->id = id;
  return WEIR_OK;
}
