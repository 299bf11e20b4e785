/* Plans made by hand, for tests and benchmarks of devices: no host program stands behind them.
 *
 *   kit k;
 *   kit_init(&k, 3);
 *   uint32_t in = kit_buffer(&k, RT_BUFFER_INPUT, 0, 16), t = kit_pool(&k, 16);
 *   kit_set(&k, 1, t, in);
 *   kit_wait(&k, 2, 1);
 *   const rt_plan *plan = kit_plan(&k);
 *
 * All arrays are i64 and dense; a task works on whole buffers. */
#ifndef WEIR_TESTS_CONFORM_PLAN_KIT_H
#define WEIR_TESTS_CONFORM_PLAN_KIT_H

#include "base/vec.h"
#include "runtime/device.h"

typedef struct kit {
  arena memory;
  rt_plan plan;
  VEC(rt_instr) instrs;
  VEC(rt_task) tasks;
  VEC(rt_view) views; /* one per buffer, same number */
  VEC(rt_buffer) buffers;
  VEC(rt_post) posts;
} kit;

static inline void kit_init(kit *k, uint32_t n_streams) {
  *k = (kit){0};
  arena_init(&k->memory, &memory_default);
  k->plan.n_streams = n_streams;
}

static inline void kit_destroy(kit *k) { arena_destroy(&k->memory); }

static inline uint32_t kit_add_buffer(kit *k, rt_buffer b, int64_t n) {
  b.size_bytes = n * 8;
  b.freed_at = UINT32_MAX;
  b.name = "t";
  static const int64_t one[] = {1};
  rt_view v = {.buffer = k->buffers.len, .dtype = IR_I64, .rank = 1, .strides = one};
  v.extents = arena_copy(&k->memory, &n, sizeof n);
  vec_push(&k->memory, &k->buffers, b);
  vec_push(&k->memory, &k->views, v);
  return v.buffer;
}

/* The caller's memory: `n` elements in `slot`. */
static inline uint32_t kit_buffer(kit *k, rt_buffer_kind kind, uint32_t slot, int64_t n) {
  if (kind == RT_BUFFER_INPUT && slot >= k->plan.n_inputs) k->plan.n_inputs = slot + 1;
  if (kind == RT_BUFFER_OUTPUT && slot >= k->plan.n_outputs) k->plan.n_outputs = slot + 1;
  return kit_add_buffer(k, (rt_buffer){.kind = kind, .slot = slot}, n);
}

/* `n` elements at a place in the pool; buffers may lie over one another. */
static inline uint32_t kit_pool_at(kit *k, int64_t offset_bytes, int64_t n) {
  rt_buffer b = {.kind = RT_BUFFER_POOL, .offset_bytes = offset_bytes};
  b.allocated_at = k->instrs.len;
  int64_t end = offset_bytes + n * 8;
  if (end > k->plan.pool_bytes) k->plan.pool_bytes = (end + 63) / 64 * 64;
  return kit_add_buffer(k, b, n);
}

static inline uint32_t kit_pool(kit *k, int64_t n) { return kit_pool_at(k, k->plan.pool_bytes, n); }

static inline void kit_free(kit *k, uint32_t buffer) {
  k->buffers.data[buffer].freed_at = k->instrs.len;
}

/* result <- code(operands...), all of them buffers. Returns the instruction. */
static inline uint32_t kit_launch(kit *k, uint32_t stream, ir_opcode code, uint32_t result,
                                  const uint32_t *operands, uint32_t n, const rt_attr *attrs) {
  rt_operand *o = ARENA_ARRAY(&k->memory, n, rt_operand);
  for (uint32_t i = 0; i < n; i++)
    o[i] = (rt_operand){.kind = RT_OPERAND_VIEW, .view = operands[i]};
  rt_task t = {.code = code, .result = result, .n_operands = n, .operands = o, .attrs = attrs};
  t.compute = IR_I64;
  rt_instr i = {.kind = RT_LAUNCH, .stream = (uint16_t)stream, .task = k->tasks.len};
  vec_push(&k->memory, &k->tasks, t);
  vec_push(&k->memory, &k->instrs, i);
  return k->instrs.len - 1;
}

static inline uint32_t kit_set(kit *k, uint32_t stream, uint32_t result, uint32_t x) {
  return kit_launch(k, stream, IR_OP_SET, result, &x, 1, NULL);
}

static inline uint32_t kit_binary(kit *k, uint32_t stream, ir_opcode code, uint32_t result,
                                  uint32_t a, uint32_t b) {
  return kit_launch(k, stream, code, result, (uint32_t[]){a, b}, 2, NULL);
}

/* result <- index_select(x, index, dim=0). Fails when an index is out of range. */
static inline uint32_t kit_index(kit *k, uint32_t stream, uint32_t result, uint32_t x,
                                 uint32_t index) {
  rt_attr *dim = ARENA_NEW(&k->memory, rt_attr);
  dim->given = true;
  return kit_launch(k, stream, IR_OP_INDEX_SELECT, result, (uint32_t[]){x, index}, 2, dim);
}

static inline uint32_t kit_wait(kit *k, uint32_t stream, uint32_t other) {
  rt_instr i = {.kind = RT_WAIT, .stream = (uint16_t)stream, .other = (uint16_t)other};
  vec_push(&k->memory, &k->instrs, i);
  return k->instrs.len - 1;
}

/* Whether two posts of a rank are matched by their order: messages, or collectives of one team. */
static inline bool kit_in_order(const rt_post *a, const rt_post *b) {
  bool message = ir_comm_is_message(a->kind), same = a->n_team == b->n_team;
  for (uint32_t i = 0; same && i < a->n_team; i++) same = a->team[i] == b->team[i];
  return message == ir_comm_is_message(b->kind) && (message || same);
}

/* The stream posts a communication; its number. `in` and `out` are buffers, or RT_NO_VIEW. */
static inline uint32_t kit_post(kit *k, uint32_t stream, rt_post post) {
  rt_instr i = {.kind = RT_POST, .stream = (uint16_t)stream, .task = k->posts.len};
  post.joined = true;
  post.before = k->posts.len;
  while (post.before > 0 && !kit_in_order(&k->posts.data[post.before - 1], &post)) post.before--;
  post.before = post.before > 0 ? post.before - 1 : RT_NO_POST;
  vec_push(&k->memory, &k->posts, post);
  vec_push(&k->memory, &k->instrs, i);
  return k->posts.len - 1;
}

static inline uint32_t kit_join(kit *k, uint32_t stream, uint32_t post) {
  rt_instr i = {.kind = RT_JOIN, .stream = (uint16_t)stream, .task = post};
  vec_push(&k->memory, &k->instrs, i);
  return k->instrs.len - 1;
}

/* Valid until the kit changes. */
static inline const rt_plan *kit_plan(kit *k) {
  k->plan.instrs = k->instrs.data, k->plan.n_instrs = k->instrs.len;
  k->plan.tasks = k->tasks.data, k->plan.n_tasks = k->tasks.len;
  k->plan.views = k->views.data, k->plan.n_views = k->views.len;
  k->plan.buffers = k->buffers.data, k->plan.n_buffers = k->buffers.len;
  k->plan.posts = k->posts.data, k->plan.n_posts = k->posts.len;
  return &k->plan;
}

#endif
