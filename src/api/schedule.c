/* Scheduling through the API: each call makes the statement that the language would write. */
#include "schedule/schedule.h"

#include <string.h>

#include "api/api.h"
#include "text/fragment.h"

/* A statement, and what has to be looked up or parsed for it once memory is guarded. */
typedef struct stmt_call {
  ir_func *f;
  weir_tensor t;
  ir_stmt stmt;
  const weir_mesh *mesh;     /* ON */
  const char *factor, *mark; /* SPLIT, OUTER_SPLIT; MARK */
  const char *mesh_axis, *memory;
  const char *result;
} stmt_call;

static bool report(ir_func *f, const char *what, const char *text) {
  diag_error(&f->module->errors, api_nowhere, "%s, not '%s'", what, text);
  return false;
}

static bool parse_mark(ir_func *f, const char *text, ir_mark *mark) {
  *mark = (ir_mark){.kind = IR_MARK_STREAM};
  if (strcmp(text, "stream") == 0) return true;
  if (strncmp(text, "stream.", 7) == 0) mark->form = ir_form_find(text + 7, strlen(text + 7));
  if (mark->form != IR_FORM_NONE) return true;
  mark->kind = IR_MARK_SERIAL;
  if (strcmp(text, "serial") == 0) return true;
  mark->kind = IR_MARK_MESH;
  if (strncmp(text, "mesh.", 5) == 0) return text_fragment_mesh_axis(f, text, &mark->mesh_axis);
  return report(f, "a mark is stream, stream.ring, serial, mesh.x, mesh.y, …", text);
}

static bool parse_memory(ir_func *f, const char *text, ir_memory *memory) {
  *memory = strcmp(text, "symmetric") == 0 ? IR_MEMORY_SYMMETRIC : IR_MEMORY_GLOBAL;
  if (*memory == IR_MEMORY_SYMMETRIC || strcmp(text, "global") == 0) return true;
  return report(f, "memory is global or symmetric", text);
}

/* What the caller gave as text. */
static bool complete(stmt_call *c) {
  ir_stmt *s = &c->stmt;
  if (c->mesh) {
    s->mesh = api_mesh(c->f, *c->mesh);
    if (!s->mesh.id) return false;
  }
  if (c->factor && !text_fragment_factor(c->f, c->factor, s)) return false;
  if (c->mark && !parse_mark(c->f, c->mark, &s->mark)) return false;
  if (c->mesh_axis && !text_fragment_mesh_axis(c->f, c->mesh_axis, &s->mesh_axis)) return false;
  if (c->memory && !parse_memory(c->f, c->memory, &s->memory)) return false;
  if (c->result) s->result.name = api_name(c->f, c->result);
  return !c->result || s->result.name;
}

static status stmt_body(arena *scratch, void *context) {
  (void)scratch;
  stmt_call *c = context;
  arena *memory = &c->f->module->memory;
  if (!api_schedule(c->f) || !api_tensor(c->f, c->t).id || !complete(c)) return STATUS_BAD_PROGRAM;
  ir_target target = {.name = c->t.id};
  c->stmt.targets = arena_copy(memory, &target, sizeof target);
  c->stmt.n_targets = 1;
  if (c->stmt.n_list)
    c->stmt.list = arena_copy(memory, c->stmt.list, c->stmt.n_list * sizeof *c->stmt.list);
  return schedule_add(c->f, &c->stmt) ? STATUS_OK : STATUS_BAD_PROGRAM;
}

static weir_status add_stmt(weir_fusion *f, weir_tensor t, stmt_call *c) {
  if (!f) return api_refuse("scheduling: the fusion is NULL");
  c->f = api_func(f);
  c->t = t;
  return api_edit(api_module(f), stmt_body, c);
}

enum { LIST_LIMIT = 1 << 20 };

/* A statement whose arguments are a list. */
static weir_status add_list(weir_fusion *f, weir_tensor t, ir_stmt stmt, const int64_t *list,
                            size_t n, const char *result) {
  if (n && !list) return api_refuse("scheduling: the list is NULL");
  if (n > LIST_LIMIT) return api_refuse("scheduling: a list of %zu numbers is too long", n);
  stmt.list = list;
  stmt.n_list = (uint32_t)n;
  return add_stmt(f, t, &(stmt_call){.stmt = stmt, .result = result});
}

/* ---- the statements ---- */
weir_status weir_schedule_on(weir_fusion *f, weir_tensor t, weir_mesh mesh) {
  return add_stmt(f, t, &(stmt_call){.stmt = {.kind = IR_STMT_ON}, .mesh = &mesh});
}

weir_status weir_schedule_split(weir_fusion *f, weir_tensor t, int64_t axis, const char *factor) {
  if (!factor) return api_refuse("weir_schedule_split: the factor is NULL");
  stmt_call c = {.stmt = {.kind = IR_STMT_SPLIT, .axis = axis}, .factor = factor};
  return add_stmt(f, t, &c);
}

weir_status weir_schedule_outer_split(weir_fusion *f, weir_tensor t, int64_t axis,
                                      const char *factor) {
  if (!factor) return api_refuse("weir_schedule_outer_split: the factor is NULL");
  stmt_call c = {.stmt = {.kind = IR_STMT_OUTER_SPLIT, .axis = axis}, .factor = factor};
  return add_stmt(f, t, &c);
}

weir_status weir_schedule_chunk_split(weir_fusion *f, weir_tensor t, int64_t axis,
                                      const int64_t *lengths, size_t n) {
  return add_list(f, t, (ir_stmt){.kind = IR_STMT_CHUNK_SPLIT, .axis = axis}, lengths, n, NULL);
}

weir_status weir_schedule_merge(weir_fusion *f, weir_tensor t, int64_t axis) {
  return add_stmt(f, t, &(stmt_call){.stmt = {.kind = IR_STMT_MERGE, .axis = axis}});
}

weir_status weir_schedule_reorder(weir_fusion *f, weir_tensor t, const int64_t *from,
                                  const int64_t *to, size_t n) {
  int64_t pairs[2 * WEIR_MAX_RANK];
  if (n && (!from || !to)) return api_refuse("weir_schedule_reorder: an argument is NULL");
  if (n > WEIR_MAX_RANK)
    return api_refuse("weir_schedule_reorder: %zu moves, but a tensor has at most %d axes", n,
                      WEIR_MAX_RANK);
  for (size_t i = 0; i < n; i++) {
    pairs[2 * i] = from[i];
    pairs[2 * i + 1] = to[i];
  }
  return add_list(f, t, (ir_stmt){.kind = IR_STMT_REORDER}, pairs, 2 * n, NULL);
}

weir_status weir_schedule_swizzle(weir_fusion *f, weir_tensor t, int64_t axis,
                                  const char *mesh_axis) {
  if (!mesh_axis) return api_refuse("weir_schedule_swizzle: the mesh axis is NULL");
  stmt_call c = {.stmt = {.kind = IR_STMT_SWIZZLE, .axis = axis}, .mesh_axis = mesh_axis};
  return add_stmt(f, t, &c);
}

weir_status weir_schedule_rfactor(weir_fusion *f, weir_tensor t, const int64_t *axes, size_t n,
                                  const char *name, weir_tensor *result) {
  if (!name || !result) return api_refuse("weir_schedule_rfactor: an argument is NULL");
  weir_status st = add_list(f, t, (ir_stmt){.kind = IR_STMT_RFACTOR}, axes, n, name);
  return st == WEIR_OK ? weir_fusion_tensor(f, name, result) : st;
}

weir_status weir_schedule_mark(weir_fusion *f, weir_tensor t, int64_t axis, const char *mark) {
  if (!mark) return api_refuse("weir_schedule_mark: the mark is NULL");
  return add_stmt(f, t, &(stmt_call){.stmt = {.kind = IR_STMT_MARK, .axis = axis}, .mark = mark});
}

weir_status weir_schedule_memory(weir_fusion *f, weir_tensor t, const char *memory) {
  if (!memory) return api_refuse("weir_schedule_memory: the memory is NULL");
  return add_stmt(f, t, &(stmt_call){.stmt = {.kind = IR_STMT_MEMORY}, .memory = memory});
}

weir_status weir_schedule_allocate(weir_fusion *f, weir_tensor t, const int64_t *order, size_t n) {
  return add_list(f, t, (ir_stmt){.kind = IR_STMT_ALLOCATE}, order, n, NULL);
}

weir_status weir_schedule_allocate_as_loop(weir_fusion *f, weir_tensor t) {
  return add_stmt(f, t, &(stmt_call){.stmt = {.kind = IR_STMT_ALLOCATE_AS_LOOP}});
}

weir_status weir_schedule_contiguity(weir_fusion *f, weir_tensor t, const bool *dense, size_t n) {
  int64_t list[4 * WEIR_MAX_RANK];
  if (n && !dense) return api_refuse("weir_schedule_contiguity: the list is NULL");
  if (n > sizeof list / sizeof *list)
    return api_refuse("weir_schedule_contiguity: a list of %zu flags is too long", n);
  for (size_t i = 0; i < n; i++) list[i] = dense[i];
  return add_list(f, t, (ir_stmt){.kind = IR_STMT_CONTIGUITY}, list, n, NULL);
}
