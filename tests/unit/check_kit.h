/* Plans built by hand, for the checker's tests. Every test starts with begin(); the parts are added in
 * plan order:
 *   begin(2);  uint32_t x = pool("x", 0, 64);
 *   uint32_t w = launch(0, flat(x, 0, 16), CHECK_NONE, CHECK_NONE);  wait_on(1, 0); */
#ifndef WEIR_TESTS_UNIT_CHECK_KIT_H
#define WEIR_TESTS_UNIT_CHECK_KIT_H

#include "check/check.h"
#include "test.h"

static arena kit_memory;
static rt_plan plan;
static VEC(rt_instr) kit_instrs;
static VEC(rt_task) kit_tasks;
static VEC(rt_view) kit_views;
static VEC(rt_buffer) kit_buffers;
static VEC(rt_post) kit_posts;

/* ---- building; inside a memory_guard() ---- */
static inline void begin(uint32_t n_streams) {
  arena_destroy(&kit_memory);
  arena_init(&kit_memory, &memory_default);
  memset(&kit_instrs, 0, sizeof kit_instrs);
  memset(&kit_tasks, 0, sizeof kit_tasks);
  memset(&kit_views, 0, sizeof kit_views);
  memset(&kit_buffers, 0, sizeof kit_buffers);
  memset(&kit_posts, 0, sizeof kit_posts);
  memset(&plan, 0, sizeof plan);
  plan.n_streams = n_streams;
}

static inline uint32_t add_buffer(rt_buffer b) {
  b.allocated_at = kit_instrs.len;
  b.freed_at = UINT32_MAX;
  if (b.kind == RT_BUFFER_POOL && b.offset_bytes + b.size_bytes > plan.pool_bytes)
    plan.pool_bytes = b.offset_bytes + b.size_bytes;
  vec_push(&kit_memory, &kit_buffers, b);
  return kit_buffers.len - 1;
}

static inline uint32_t pool(const char *name, int64_t offset, int64_t size) {
  return add_buffer((rt_buffer){
      .kind = RT_BUFFER_POOL, .offset_bytes = offset, .size_bytes = size, .name = name});
}

static inline uint32_t input(const char *name, uint32_t slot, int64_t size) {
  return add_buffer(
      (rt_buffer){.kind = RT_BUFFER_INPUT, .slot = slot, .size_bytes = size, .name = name});
}

static inline uint32_t output(const char *name, uint32_t slot, int64_t size) {
  return add_buffer(
      (rt_buffer){.kind = RT_BUFFER_OUTPUT, .slot = slot, .size_bytes = size, .name = name});
}

static inline void release(uint32_t buffer) { kit_buffers.data[buffer].freed_at = kit_instrs.len; }

/* The lists are copied. */
static inline uint32_t add_view(rt_view v) {
  v.extents = arena_copy(&kit_memory, v.extents, v.rank * sizeof *v.extents);
  v.strides = arena_copy(&kit_memory, v.strides, v.rank * sizeof *v.strides);
  vec_push(&kit_memory, &kit_views, v);
  return kit_views.len - 1;
}

#define LIST(...) ((const int64_t[]){__VA_ARGS__})

/* f32[n] from element `first`. */
static inline uint32_t flat(uint32_t buffer, int64_t first, int64_t n) {
  return add_view((rt_view){.buffer = buffer,
                            .dtype = IR_F32,
                            .rank = 1,
                            .offset_bytes = 4 * first,
                            .extents = LIST(n),
                            .strides = LIST(1)});
}

/* f32[rows, columns] with these strides, from element `first`. */
static inline uint32_t matrix(uint32_t buffer, int64_t first, int64_t rows, int64_t columns,
                              int64_t row_stride, int64_t column_stride) {
  return add_view((rt_view){.buffer = buffer,
                            .dtype = IR_F32,
                            .rank = 2,
                            .offset_bytes = 4 * first,
                            .extents = LIST(rows, columns),
                            .strides = LIST(row_stride, column_stride)});
}

static inline uint32_t launch_op(ir_opcode code, uint32_t stream, uint32_t result, uint32_t x,
                                 uint32_t y) {
  rt_operand *operands = ARENA_ARRAY(&kit_memory, 2, rt_operand);
  operands[0] =
      (rt_operand){.kind = x == CHECK_NONE ? RT_OPERAND_NONE : RT_OPERAND_VIEW, .view = x};
  operands[1] =
      (rt_operand){.kind = y == CHECK_NONE ? RT_OPERAND_NONE : RT_OPERAND_VIEW, .view = y};
  rt_task task = {.code = code, .result = result, .n_operands = 2, .operands = operands};
  vec_push(&kit_memory, &kit_tasks, task);
  rt_instr i = {.kind = RT_LAUNCH, .stream = (uint16_t)stream, .task = kit_tasks.len - 1};
  vec_push(&kit_memory, &kit_instrs, i);
  return kit_instrs.len - 1;
}

static inline uint32_t launch(uint32_t stream, uint32_t result, uint32_t x, uint32_t y) {
  return launch_op(IR_OP_ADD, stream, result, x, y);
}

static inline uint32_t wait_on(uint32_t stream, uint32_t other) {
  rt_instr i = {.kind = RT_WAIT, .stream = (uint16_t)stream, .other = (uint16_t)other};
  vec_push(&kit_memory, &kit_instrs, i);
  return kit_instrs.len - 1;
}

/* A communication of rank 0 with the other rank of two, posted in the order of the plan; returns its
 * number. `in` and `out` are dense f32 views, or RT_NO_VIEW. */
static const uint32_t kit_team[] = {0, 1};
static inline uint32_t post_on(uint32_t stream, ir_comm_kind kind, uint32_t in, uint32_t out) {
  rt_post p = {.kind = kind, .dtype = IR_F32, .team = kit_team, .n_team = 2, .in = in, .out = out};
  uint32_t view = in == RT_NO_VIEW ? out : in;
  p.count = kit_views.data[view].extents[0];
  p.to = kind == IR_COMM_SEND ? 1 : RT_COMM_NOBODY;
  p.from = kind == IR_COMM_RECV ? 1 : RT_COMM_NOBODY;
  p.joined = true;
  p.before = RT_NO_POST;
  for (uint32_t k = kit_posts.len; k-- > 0 && p.before == RT_NO_POST;)
    if (ir_comm_is_message(kit_posts.data[k].kind) == ir_comm_is_message(kind)) p.before = k;
  rt_instr i = {.kind = RT_POST, .stream = (uint16_t)stream, .task = kit_posts.len};
  vec_push(&kit_memory, &kit_posts, p);
  vec_push(&kit_memory, &kit_instrs, i);
  return kit_posts.len - 1;
}

static inline uint32_t join_on(uint32_t stream, uint32_t post) {
  rt_instr i = {.kind = RT_JOIN, .stream = (uint16_t)stream, .task = post};
  vec_push(&kit_memory, &kit_instrs, i);
  return kit_instrs.len - 1;
}

static inline void finish_plan(void) {
  plan.instrs = kit_instrs.data, plan.n_instrs = kit_instrs.len;
  plan.tasks = kit_tasks.data, plan.n_tasks = kit_tasks.len;
  plan.views = kit_views.data, plan.n_views = kit_views.len;
  plan.buffers = kit_buffers.data, plan.n_buffers = kit_buffers.len;
  plan.posts = kit_posts.data, plan.n_posts = kit_posts.len;
}

/* ---- memory ---- */
/* The plan is checked while the first, the second, … allocation fails. */
static inline void fail_allocations(void) {
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 1000; n++) {
    memory_faults faults = {.fail_at = n};
    allocator faulty = memory_faulty(&faults);
    check_options options = {.memory = &faulty};
    check_report r = {0};
    st = check_plan(&plan, &options, &r);
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    check_report_destroy(&r);
    EXPECT_INT(faults.live, 0);
    status_clear();
  }
  EXPECT(st == STATUS_OK);
}

#endif
