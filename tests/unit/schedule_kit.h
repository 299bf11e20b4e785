/* What the schedule tests share: building a fusion, writing statements, looking at domains.
 *
 * Every test starts with begin(). A statement is one call that says whether it was accepted:
 *   begin();  INPUT("x", sym("t"), num(32));  EXPECT(split("x", 1, 8));
 *   EXPECT_STR(loop("x"), "[t, 4, 8]"); */
#ifndef WEIR_TESTS_UNIT_SCHEDULE_KIT_H
#define WEIR_TESTS_UNIT_SCHEDULE_KIT_H

#include "ir/build.h"
#include "ir/ir.h"
#include "ir/map.h"
#include "schedule/internal.h"
#include "schedule/schedule.h"
#include "test.h"

static ir_module module;
static ir_func *f;

/* ---- building ---- */
static inline void begin(void) {
  ir_module_destroy(&module);
  ir_module_init(&module, &memory_default);
  f = ir_build_func(&module, IR_FUNC_FUSION, strings_intern(&module.names, "f", 1), (loc){0});
}

static inline uint32_t name(const char *text) {
  return strings_intern(&module.names, text, strlen(text));
}
static inline ir_scalar num(int64_t n) { return ir_scalar_const(&module.scalars, n); }
static inline ir_scalar sym(const char *text) { return ir_build_extent(f, name(text), (loc){0}); }

/* The definition grows only while no scheduled view stands; the next statement derives it again. */
static inline ir_tensor input_of(const char *text, const ir_scalar *extents, uint32_t rank) {
  ir_func_unschedule(f);
  return ir_build_input(f, name(text), IR_F32, extents, rank, (loc){0});
}
#define INPUT(text, ...)                                                                           \
  input_of(text, (ir_scalar[]){__VA_ARGS__}, sizeof((ir_scalar[]){__VA_ARGS__}) / sizeof(ir_scalar))

static inline ir_tensor reduce(const char *text, ir_opcode code, ir_tensor x, const int64_t *dims,
                               uint32_t n) {
  ir_attr attrs[3] = {{.given = true, .len = n}, {0}, {0}}; /* dims, keepdim, empty */
  attrs[0].ints = arena_copy(&module.memory, dims, n * sizeof *dims);
  return ir_build_op(f, code, &x, 1, attrs, name(text), (loc){0});
}
#define REDUCE(text, code, x, ...)                                                                 \
  reduce(text, code, x, (int64_t[]){__VA_ARGS__},                                                  \
         sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static inline ir_tensor op2(const char *text, ir_opcode code, ir_tensor a, ir_tensor b) {
  return ir_build_op(f, code, (ir_tensor[]){a, b}, 2, NULL, name(text), (loc){0});
}
static inline ir_tensor set_of(const char *text, ir_tensor a) {
  return ir_build_op(f, IR_OP_SET, &a, 1, NULL, name(text), (loc){0});
}
static inline ir_tensor linear_of(const char *text, ir_tensor x, ir_tensor w, ir_tensor bias) {
  return ir_build_op(f, IR_OP_LINEAR, (ir_tensor[]){x, w, bias}, 3, NULL, name(text), (loc){0});
}
static inline ir_mesh mesh_of(const char *text, int64_t a, int64_t b) {
  int64_t shape[2] = {a, b};
  return ir_build_mesh(f, name(text), shape, b ? 2 : 1, NULL, 0, (loc){0});
}
static inline ir_tensor tensor(const char *text) {
  return (ir_tensor){ir_func_lookup(f, name(text)).id};
}

/* ---- statements ---- */
static inline ir_stmt stmt_of(ir_stmt_kind kind, const char *target) {
  ir_target *t = ARENA_NEW(&module.memory, ir_target);
  t->name = name(target);
  return (ir_stmt){.kind = kind, .targets = t, .n_targets = 1};
}
static inline bool add(ir_stmt s) { return schedule_add(f, &s); }

static inline bool on(const char *t, ir_mesh m) {
  ir_stmt s = stmt_of(IR_STMT_ON, t);
  s.mesh = m;
  return add(s);
}
static inline bool split_by(ir_stmt_kind kind, const char *t, int64_t axis, ir_scalar factor) {
  ir_stmt s = stmt_of(kind, t);
  s.axis = axis;
  s.factor = factor;
  return add(s);
}
static inline bool split(const char *t, int64_t axis, int64_t factor) {
  return split_by(IR_STMT_SPLIT, t, axis, num(factor));
}
static inline bool outer_split(const char *t, int64_t axis, int64_t factor) {
  return split_by(IR_STMT_OUTER_SPLIT, t, axis, num(factor));
}
static inline bool split_mesh(const char *t, int64_t axis, ir_mesh m, uint32_t k, bool named) {
  ir_stmt s = stmt_of(IR_STMT_OUTER_SPLIT, t);
  s.axis = axis;
  s.mesh = m;
  s.factor_is_mesh = true;
  s.mesh_axis = k;
  s.mesh_axis_named = named;
  return add(s);
}
static inline bool with_list(ir_stmt_kind kind, const char *t, int64_t axis, const int64_t *list,
                             uint32_t n) {
  ir_stmt s = stmt_of(kind, t);
  s.axis = axis;
  s.list = arena_copy(&module.memory, list, n * sizeof *list);
  s.n_list = n;
  return add(s);
}
#define LIST(kind, t, axis, ...)                                                                   \
  with_list(kind, t, axis, (int64_t[]){__VA_ARGS__},                                               \
            sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define CHUNKS(t, axis, ...) LIST(IR_STMT_CHUNK_SPLIT, t, axis, __VA_ARGS__)
#define REORDER(t, ...) LIST(IR_STMT_REORDER, t, 0, __VA_ARGS__)
#define ALLOCATE(t, ...) LIST(IR_STMT_ALLOCATE, t, 0, __VA_ARGS__)
#define CONTIGUITY(t, ...) LIST(IR_STMT_CONTIGUITY, t, 0, __VA_ARGS__)

static inline bool merge(const char *t, int64_t axis) {
  ir_stmt s = stmt_of(IR_STMT_MERGE, t);
  s.axis = axis;
  return add(s);
}
static inline bool swizzle(const char *t, int64_t axis, uint32_t k) {
  ir_stmt s = stmt_of(IR_STMT_SWIZZLE, t);
  s.axis = axis;
  s.mesh_axis = k;
  return add(s);
}
static inline bool mark(const char *t, int64_t axis, ir_mark_kind kind, uint32_t k) {
  ir_stmt s = stmt_of(IR_STMT_MARK, t);
  s.axis = axis;
  s.mark = (ir_mark){.kind = kind, .mesh_axis = k};
  return add(s);
}
static inline bool stream(const char *t, int64_t axis) { return mark(t, axis, IR_MARK_STREAM, 0); }
static inline bool serial(const char *t, int64_t axis) { return mark(t, axis, IR_MARK_SERIAL, 0); }
static inline bool device(const char *t, int64_t axis, uint32_t k) {
  return mark(t, axis, IR_MARK_MESH, k);
}
static inline bool memory(const char *t, ir_memory where) {
  ir_stmt s = stmt_of(IR_STMT_MEMORY, t);
  s.memory = where;
  return add(s);
}
static inline bool as_loop(const char *t) { return add(stmt_of(IR_STMT_ALLOCATE_AS_LOOP, t)); }

static inline bool rfactor_list(const char *u, const char *t, const int64_t *axes, uint32_t n) {
  ir_stmt s = stmt_of(IR_STMT_RFACTOR, t);
  s.result.name = name(u);
  s.list = arena_copy(&module.memory, axes, n * sizeof *axes);
  s.n_list = n;
  return add(s);
}
#define RFACTOR(u, t, ...)                                                                         \
  rfactor_list(u, t, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* ---- looking ---- */
static inline const ir_domains *now(const char *t) {
  if (!f->applied) (void)schedule_apply(f);
  return &ir_tensor_at(f, tensor(t))->now;
}
static inline const char *loop(const char *t) { return schedule_axes_text(f, now(t)->loop); }
static inline const char *logical(const char *t) { return schedule_axes_text(f, now(t)->logical); }
static inline const char *root(const char *t) { return schedule_axes_text(f, now(t)->root); }
static inline const char *allocation(const char *t) {
  return schedule_axes_text(f, now(t)->allocation);
}
static inline ir_axis_data axis(const char *t, uint32_t i) {
  return *ir_axis_at(f, now(t)->loop.data[i]);
}

static inline const char *dense(const char *t) {
  char *text = arena_alloc(&module.memory, now(t)->allocation.len + 1);
  for (uint32_t i = 0; i < now(t)->allocation.len; i++) text[i] = "-tf"[now(t)->dense[i]];
  return text;
}

static inline const char *last_error(void) {
  diags *d = &module.errors;
  return d->entries.len ? vec_last(&d->entries).message : "";
}

/* The statement was refused, is not recorded, and the message says why. */
#define EXPECT_REFUSED(call, part)                                                                 \
  do {                                                                                             \
    uint32_t errors_ = module.errors.errors, statements_ = f->statements.len;                      \
    EXPECT(!(call));                                                                               \
    EXPECT_INT(module.errors.errors, errors_ + 1);                                                 \
    EXPECT_INT(f->statements.len, statements_);                                                    \
    EXPECT_CONTAINS(last_error(), part);                                                           \
  } while (0)

/* Everything the scheduled view holds, as text. */
static inline const char *view(void) {
  strbuf out;
  strbuf_init(&out, &module.memory);
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    const ir_tensor_data *t = &f->tensors.data[i];
    strbuf_printf(&out, "%s root%s", ir_name_text(f, t->name), schedule_axes_text(f, t->now.root));
    strbuf_printf(&out, " logical%s", schedule_axes_text(f, t->now.logical));
    strbuf_printf(&out, " allocation%s", schedule_axes_text(f, t->now.allocation));
    for (uint32_t j = 0; j < t->now.allocation.len; j++) strbuf_int(&out, t->now.dense[j]);
    strbuf_printf(&out, " loop%s", schedule_axes_text(f, t->now.loop));
    strbuf_printf(&out, " mesh %u%d memory %d by %u\n", t->mesh.id, t->placed, (int)t->memory,
                  t->scheduled_def.id);
  }
  for (uint32_t i = 0; i < f->scheduled.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->scheduled.data[i]);
    strbuf_printf(&out, "%s = %s(", ir_tensor_name(f, op->result), ir_op_info_of(op->code)->name);
    for (uint32_t j = 0; j < op->n_operands; j++) {
      if (op->operands[j].id) strbuf_printf(&out, "%s ", ir_tensor_name(f, op->operands[j]));
    }
    strbuf_puts(&out, ")\n");
  }
  strbuf_printf(&out, "%u constraints\n", f->constraints.len);
  return out.data;
}

/* Deriving the view again from definition and statements gives the same view. */
static inline void expect_derivable(void) {
  if (!f->applied) (void)schedule_apply(f);
  const char *before = view();
  EXPECT(schedule_apply(f));
  EXPECT_STR(view(), before);
}

typedef struct test_list {
  void (*const *tests)(void);
  size_t n;
} test_list;

static inline status run_list(void *context) {
  const test_list *list = context;
  for (size_t i = 0; i < list->n; i++) list->tests[i]();
  return STATUS_OK;
}

/* main() of a test file: its tests under the guard that arenas need. */
static inline int run_all(void (*const *tests)(void), size_t n) {
  test_list list = {tests, n};
  EXPECT(memory_guard(run_list, &list) == STATUS_OK);
  ir_module_destroy(&module);
  return test_finish();
}

#endif
