/* Cases for tests of kernels: a random program of one operation, evaluated by the reference, and tasks
 * that compute the whole result or a window of it, with operands and results of all kinds of strides,
 * operands cut to the window or not. */
#ifndef WEIR_TESTS_CONFORM_KERNEL_CASES_H
#define WEIR_TESTS_CONFORM_KERNEL_CASES_H

#include <math.h>

#include "base/table.h"
#include "conform/kernel_programs.h"
#include "data/compare.h"
#include "data/fill.h"
#include "ir/bind.h"
#include "ir/infer.h"
#include "ir/map.h"
#include "ref/ref.h"
#include "runtime/plan.h"
#include "test.h"
#include "text/text.h"

enum { SEED_OF_UNIFORM = 11 };

/* One program, evaluated. */
typedef struct testcase {
  program p;
  const char *text;
  ir_module module;
  ir_env env;
  const ir_op_data *op;
  ir_array inputs[MAX_INPUTS], expected; /* expected is dense */
  ir_array more[IR_MAX_RESULTS];         /* further results, from 1 on, likewise */
  char *blocks[MAX_INPUTS];              /* memory of the inputs */
  ir_dtype least;
} testcase;

enum { MAX_BUFFERS = MAX_INPUTS + IR_MAX_RESULTS };

static arena memory;   /* of one program */
static uint64_t n_cut; /* operands cut to a window */

/* What the test that includes this does with a task; bases: the address of each buffer of the plan. */
static status run_task(const rt_plan *plan, const rt_task *task, char *const *bases);
static bool dry_run; /* nothing is computed yet, so there is nothing to expect */

/* ---- arrays ---- */
/* Gives `a` memory in a random order of dimensions, perhaps with gaps, backwards or repeating. Returns
 * the block. */
static char *lay_out(ir_array *a, bool readable_only, int64_t *size_bytes) {
  int64_t stride = chance(20) ? 2 : 1, first = 0, size = (int64_t)ir_dtype_size_bytes(a->dtype);
  bool in_order = chance(50), backwards = chance(10);
  uint32_t left = a->rank, order[IR_MAX_RANK];
  for (uint32_t i = 0; i < a->rank; i++) order[i] = a->rank - 1 - i;
  for (; left > 0; left--) {
    uint32_t k = in_order ? 0 : (uint32_t)below(left), d = order[k];
    for (uint32_t i = k; i + 1 < left; i++) order[i] = order[i + 1];
    bool repeats = readable_only && chance(4), back = backwards && chance(50);
    a->strides[d] = repeats ? 0 : back ? -stride : stride;
    if (repeats || a->extents[d] == 0) continue;
    if (back) first += stride * (a->extents[d] - 1);
    stride *= a->extents[d] + (chance(15) ? 1 : 0);
  }
  *size_bytes = (stride + 2) * size;
  char *block = arena_alloc(&memory, (size_t)*size_bytes);
  a->data = block + first * size;
  return block;
}

/* Squares of the largest overflow; sums of three of them do not, in f32, in which devices may sum f16 and
 * bf16 where the reference has f64. */
static void add_special(const ir_array *a) {
  static const double values[] = {INFINITY, -INFINITY, NAN, 0, -0.0, 1e4, -1e4, 1e-6, 1e38, 1e19};
  int64_t n;
  if (!ir_array_count(a, &n) || n == 0) return;
  for (int i = 0; i < 3; i++) {
    int64_t at = below(n) * (int64_t)ir_dtype_size_bytes(a->dtype);
    ir_element_set_f64(a->dtype, (char *)a->data + at, values[below(10)]);
  }
}

static void fill_input(testcase *t, uint32_t i) {
  int64_t size_bytes, bound = t->p.index_bound[i];
  ir_array dense = t->inputs[i];
  char name[2] = {(char)('a' + (int)i), 0};
  check(ir_array_size_bytes(&dense, &size_bytes));
  dense.data = arena_alloc(&memory, (size_t)size_bytes);
  ir_array_dense(&dense);
  if (bound >= 0) check(data_fill_index(&dense, bound, rng_state, name) == STATUS_OK);
  else data_fill(&dense, chance(80) ? DATA_FILL_NORMAL : DATA_FILL_INT, rng_state, name);
  if (t->p.special && chance(15)) add_special(&dense);
  t->blocks[i] = lay_out(&t->inputs[i], true, &size_bytes);
  ir_array_copy(&t->inputs[i], &dense);
}

/* ---- from a program to an evaluated case ---- */
static bool build(testcase *t, ir_opcode code) {
  const ir_op_info *info = ir_op_info_of(code);
  strbuf text;
  strbuf_init(&t->p.inputs, &memory);
  strbuf_init(&t->p.call, &memory);
  strbuf_init(&text, &memory);
  strbuf_printf(&t->p.call, "%s(", info->name);
  gen_call(&t->p, code, info);
  static const char *const results[] = {"y", "y, z", "y, z, u"};
  const char *names = results[info->n_results > 1 ? below(info->n_results) : 0];
  strbuf_printf(&text, "fusion c {\n%s  %s = %s)\n  return %s\n}\n",
                t->p.inputs.len ? t->p.inputs.data : "", names, t->p.call.data, names);
  t->text = text.data;
  if (text_parse(&t->module, "case", text.data, text.len) != STATUS_OK) return false;
  ir_env_init(&t->env, t->module.funcs.data[0], &memory);
  if (!ir_bind_complete(&t->env) || !ir_bind_check(&t->env)) return false;
  t->op = ir_op_at(t->env.func, t->env.func->order.data[0]);
  return true;
}

static bool evaluate(testcase *t) {
  const ir_func *f = t->env.func;
  int64_t size_bytes;
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    t->inputs[i].dtype = ir_tensor_at(f, f->inputs.data[i])->dtype;
    check(ir_env_shape(&t->env, f->inputs.data[i], t->inputs[i].extents, &t->inputs[i].rank));
    fill_input(t, i);
  }
  ir_array outputs[IR_MAX_RESULTS];
  for (uint32_t k = 0; k < ir_op_n_results(t->op); k++) {
    ir_array *a = k ? &t->more[k] : &t->expected;
    a->dtype = ir_tensor_at(f, ir_op_result(t->op, k))->dtype;
    check(ir_env_shape(&t->env, ir_op_result(t->op, k), a->extents, &a->rank));
    ir_array_dense(a);
    check(ir_array_size_bytes(a, &size_bytes));
    a->data = arena_alloc(&memory, (size_t)size_bytes);
    outputs[k] = *a;
  }
  t->least = data_least_dtype(f, t->op->result, &memory);
  ref_options options = {.seed = SEED_OF_UNIFORM};
  status_clear();
  return ref_eval(&t->env, t->inputs, outputs, &options) == STATUS_OK;
}

/* ---- tasks ---- */
typedef struct window {
  bool windowed;
  int64_t offset[IR_MAX_RANK], extents[IR_MAX_RANK];
} window;

static window random_window(const ir_array *whole, bool all) {
  window w = {.windowed = !all};
  for (uint32_t d = 0; d < whole->rank; d++) {
    int64_t n = whole->extents[d];
    w.extents[d] = all || chance(30) ? n : below(n + 1);
    if (!all && w.extents[d] == 0 && n > 0 && chance(90)) w.extents[d] = 1;
    w.offset[d] = below(n - w.extents[d] + 1);
  }
  return w;
}

static rt_view view_of(const ir_array *a, uint32_t buffer, const char *block) {
  rt_view v = {.buffer = buffer, .dtype = a->dtype, .rank = a->rank};
  v.offset_bytes = (const char *)a->data - block;
  v.extents = arena_copy(&memory, a->extents, a->rank * sizeof *a->extents);
  v.strides = arena_copy(&memory, a->strides, a->rank * sizeof *a->strides);
  return v;
}

static void cut_view(rt_view *v, uint32_t d, int64_t offset, int64_t length) {
  v->offset_bytes += offset * v->strides[d] * (int64_t)ir_dtype_size_bytes(v->dtype);
  ((int64_t *)v->extents)[d] = length; /* view_of() made the list */
}

static uint32_t position(const ir_axis *axes, uint32_t n, ir_axis a) {
  uint32_t i = 0;
  while (i < n && !IR_SAME(axes[i], a)) i++;
  return i;
}

/* Cuts an operand along some of the dimensions that map one to one. */
static uint32_t cut_operand(const testcase *t, uint32_t k, const window *w, rt_view *v) {
  const ir_func *f = t->env.func;
  ir_axis own[IR_MAX_RANK], result[IR_MAX_RANK];
  ir_pair pairs[IR_MAX_RANK];
  uint32_t n_own = ir_tensor_dims(f, t->op->operands[k], own);
  uint32_t n_result = ir_tensor_dims(f, t->op->result, result), sliced = 0;
  uint32_t n = ir_map_pairs(f, t->op, k, pairs);
  for (uint32_t i = 0; i < n && w->windowed; i++) {
    uint32_t from = position(own, n_own, pairs[i].producer);
    uint32_t d = position(result, n_result, pairs[i].consumer);
    if (pairs[i].kind != IR_PAIR_EXACT || from == n_own || d == n_result || chance(40)) continue;
    if (v->extents[from] != t->expected.extents[d]) continue;
    cut_view(v, from, w->offset[d], w->extents[d]);
    sliced |= 1U << d;
    n_cut++;
  }
  return sliced;
}

static rt_attr attr_of(const testcase *t, const ir_param *p, const ir_attr *a) {
  rt_attr out = {.given = a->given, .i = a->i, .len = a->len};
  if (p->kind == IR_PARAM_NUMBER) {
    out.is_float = a->number.is_float;
    out.i = a->number.i;
    out.f = a->number.f;
  }
  if (p->kind == IR_PARAM_SCALAR && a->scalar.id) check(ir_env_eval(&t->env, a->scalar, &out.i));
  if (p->kind == IR_PARAM_INTS || p->kind == IR_PARAM_BOOLS) out.list = a->ints;
  if (p->kind == IR_PARAM_SCALARS) {
    int64_t *list = ARENA_ARRAY(&memory, a->len + 1, int64_t);
    for (uint32_t i = 0; i < a->len; i++) check(ir_env_eval(&t->env, a->scalars[i], &list[i]));
    out.list = list;
  }
  if (!a->given && strcmp(p->name, "key") == 0) { /* plans always have one */
    out.given = true;
    out.i = (int64_t)hash_bytes("y", 1);
  }
  return out;
}

static const rt_attr *attrs_of(const testcase *t) {
  const ir_op_info *info = ir_op_info_of(t->op->code);
  rt_attr *attrs = ARENA_ARRAY(&memory, info->n_attrs + 1, rt_attr);
  uint32_t n = 0;
  for (const ir_param *p = info->params; p->kind != IR_PARAM_END; p++)
    if (p->kind != IR_PARAM_TENSOR && p->kind != IR_PARAM_TENSORS)
      attrs[n] = attr_of(t, p, &t->op->attrs[n]), n++;
  return attrs;
}

static rt_operand operand_of(const testcase *t, uint32_t k, const window *w, rt_plan *plan) {
  ir_tensor id = t->op->operands[k];
  const ir_tensor_data *data = ir_tensor_at(t->env.func, id);
  if (id.id == 0) return (rt_operand){.kind = RT_OPERAND_NONE};
  if (data->kind == IR_TENSOR_CONST)
    return (rt_operand){.kind = RT_OPERAND_NUMBER, .number = &data->number};
  uint32_t input = (uint32_t)(ir_tensor_name(t->env.func, id)[0] - 'a');
  rt_view v = view_of(&t->inputs[input], input, t->blocks[input]);
  rt_operand o = {.kind = RT_OPERAND_VIEW, .view = plan->n_views};
  o.sliced = cut_operand(t, k, w, &v);
  plan->views[plan->n_views++] = v;
  return o;
}

static rt_task task_of(const testcase *t, const window *w, const rt_view *result, rt_plan *plan) {
  rt_operand *operands = ARENA_ARRAY(&memory, t->op->n_operands + 1, rt_operand);
  rt_task task = {.code = t->op->code, .n_operands = t->op->n_operands, .operands = operands};
  bool pointwise = ir_op_info_of(t->op->code)->family == IR_FAMILY_POINTWISE;
  plan->views = ARENA_ARRAY(&memory, MAX_BUFFERS, rt_view);
  plan->views[plan->n_views++] = *result;
  plan->seed = ARENA_NEW(&memory, uint64_t);
  *plan->seed = SEED_OF_UNIFORM;
  for (uint32_t k = 0; k < t->op->n_operands; k++) operands[k] = operand_of(t, k, w, plan);
  task.attrs = attrs_of(t);
  if (pointwise) task.compute = ir_infer_compute_dtype(t->env.func, t->op);
  if (w->windowed) {
    task.offset = w->offset;
    task.whole = t->expected.extents;
  }
  return task;
}

/* ---- comparing ---- */
enum { PATTERN = 0xa5 };

/* The elements of `part` are taken from the block into `values` and overwritten there by the pattern,
 * so that afterwards the block must hold nothing else. */
static bool take_window(const ir_array *part, const ir_array *values, char *block, int64_t bytes) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  check(ir_array_count(part, &n));
  if (n > 0) ir_array_copy(values, part);
  if (n > 0) do
      memset(ir_array_at(part, index), PATTERN, ir_dtype_size_bytes(part->dtype));
    while (ir_array_next(part, index));
  for (int64_t i = 0; i < bytes; i++)
    if ((unsigned char)block[i] != PATTERN) return false;
  return true;
}

static ir_array window_of(const ir_array *a, const window *w) {
  ir_array part = *a;
  int64_t n;
  for (uint32_t d = 0; d < a->rank; d++) part.extents[d] = w->extents[d];
  check(ir_array_count(&part, &n));
  if (n > 0) part.data = ir_array_at(a, w->offset);
  return part;
}

/* Operations that only move, choose or make elements must give the same ones. */
static bool is_exact(ir_opcode code) {
  ir_family family = ir_op_info_of(code)->family;
  if (family == IR_FAMILY_REDUCE) return code == IR_OP_AMAX || code == IR_OP_AMIN;
  bool computes = family == IR_FAMILY_POINTWISE || family == IR_FAMILY_MOMENT ||
                  ir_op_is_product(code) || family == IR_FAMILY_SOFTMAX ||
                  family == IR_FAMILY_NORM || family == IR_FAMILY_SCAN ||
                  family == IR_FAMILY_SDPA || family == IR_FAMILY_SDPA_BACKWARD;
  return !computes;
}

/* ---- running and comparing ---- */
static int64_t result_bytes; /* of the block that holds the result; 0: as far as its view goes */

static bool report(const testcase *t, const window *w, const char *what) {
  fprintf(stderr, "%s\n%swindow%s at [", what, t->text, w->windowed ? "" : " (whole)");
  for (uint32_t d = 0; d < t->expected.rank; d++)
    fprintf(stderr, " %lld+%lld", (long long)w->offset[d], (long long)w->extents[d]);
  fprintf(stderr, " ]\n");
  return false;
}

/* One result of a task, on its way. */
typedef struct target {
  ir_array part;
  char *block;
  int64_t size_bytes;
} target;

static target new_target(const ir_array *like, const window *w) {
  ir_array whole = *like;
  target r;
  r.block = lay_out(&whole, false, &r.size_bytes);
  memset(r.block, PATTERN, (size_t)r.size_bytes);
  r.part = window_of(&whole, w);
  return r;
}

static bool compare_target(const testcase *t, const window *w, const target *r,
                           const ir_array *expected, ir_dtype least) {
  ir_array values = *expected;
  int64_t dense_bytes;
  check(ir_array_size_bytes(&values, &dense_bytes));
  values.data = arena_copy(&memory, expected->data, (size_t)dense_bytes);
  ir_array taken = window_of(&values, w);
  if (!take_window(&r->part, &taken, r->block, r->size_bytes)) return report(t, w, "wrote outside");
  data_comparison c = data_compare(&values, expected, least);
  if (c.ok && (c.max_abs == 0 || !is_exact(t->op->code))) return true;
  fprintf(stderr, "max_abs %g max_rel %g tolerance %g\n", c.max_abs, c.max_rel, c.tolerance);
  return report(t, w, "differs");
}

static bool has_groups(const testcase *t) {
  uint32_t rank = t->expected.rank;
  for (uint32_t k = 1; k < 3 && t->op->code == IR_OP_SDPA && rank > 2; k++) {
    const ir_array *x = &t->inputs[k];
    int64_t heads = x->rank > 2 ? x->extents[x->rank - 3] : 1;
    if (heads != 1 && heads != t->expected.extents[rank - 3]) return true;
  }
  return false;
}

/* Gradients have no windows, and heads in groups are never cut. */
static window fitting_window(const testcase *t, const window *given) {
  window w = *given;
  bool gradient = t->op->code == IR_OP_SDPA_BACKWARD, grouped = has_groups(t);
  uint32_t rank = t->expected.rank;
  for (uint32_t d = 0; d < rank; d++) {
    if (!gradient && !(grouped && d + 3 == rank)) continue;
    w.offset[d] = 0;
    w.extents[d] = t->expected.extents[d];
  }
  if (gradient) w.windowed = false;
  return w;
}

static window window_of_more(const testcase *t, const window *w, uint32_t k) {
  window own = *w;
  for (uint32_t d = 0; t->op->code == IR_OP_SDPA_BACKWARD && d < t->more[k].rank; d++)
    own.extents[d] = t->more[k].extents[d];
  return own;
}

static bool run_window(const testcase *t, const window *given) {
  rt_plan plan = {.n_views = 0};
  window all[IR_MAX_RESULTS] = {fitting_window(t, given)}, *w = all;
  target results[IR_MAX_RESULTS] = {new_target(&t->expected, w)};
  char *bases[MAX_BUFFERS];
  uint32_t more[IR_MAX_RESULTS], n = t->p.n_inputs;
  for (uint32_t i = 0; i < n; i++) bases[i] = t->blocks[i];
  bases[n] = results[0].block;
  rt_view result = view_of(&results[0].part, n, results[0].block);
  rt_task task = task_of(t, w, &result, &plan);
  for (uint32_t k = 1; k < ir_op_n_results(t->op); k++) {
    all[k] = window_of_more(t, w, k);
    results[k] = new_target(&t->more[k], &all[k]);
    bases[n + k] = results[k].block;
    more[k - 1] = plan.n_views;
    plan.views[plan.n_views++] = view_of(&results[k].part, n + k, results[k].block);
  }
  task.more = more;
  task.n_more = t->op->n_more;
  result_bytes = results[0].size_bytes;
  status st = run_task(&plan, &task, bases);
  result_bytes = 0;
  if (st != STATUS_OK) return report(t, w, status_message());
  if (dry_run) return true;
  bool ok = compare_target(t, w, &results[0], &t->expected, t->least);
  for (uint32_t k = 1; k < ir_op_n_results(t->op); k++) {
    ir_dtype least = data_least_dtype(t->env.func, ir_op_result(t->op, k), &memory);
    ok = compare_target(t, &all[k], &results[k], &t->more[k], least) && ok;
  }
  return ok;
}

/* ---- errors ---- */
typedef struct bad_index {
  const char *program;
  int64_t index;       /* in every position */
  const char *message; /* NULL: it runs */
} bad_index;

static status run_bad_index(void *context) {
  const bad_index *b = context;
  testcase t = {.p = {.n_inputs = 0}};
  ir_module_init(&t.module, &memory_default);
  t.text = b->program;
  check(text_parse(&t.module, "case", t.text, strlen(t.text)) == STATUS_OK);
  const ir_func *f = t.module.funcs.data[0];
  ir_env_init(&t.env, t.module.funcs.data[0], &memory);
  t.op = ir_op_at(f, f->order.data[0]);
  for (; t.p.n_inputs < f->inputs.len; t.p.n_inputs++)
    t.p.index_bound[t.p.n_inputs] = t.p.n_inputs == 1 ? 1 : -1;
  check(evaluate(&t));
  int64_t at[IR_MAX_RANK] = {0};
  do ir_element_set_i64(t.inputs[1].dtype, ir_array_at(&t.inputs[1], at), b->index);
  while (ir_array_next(&t.inputs[1], at));
  window w = random_window(&t.expected, true);
  rt_plan plan = {.n_views = 0};
  _Alignas(16) char room[4096];
  char *bases[] = {t.blocks[0], t.blocks[1], t.blocks[2], room};
  rt_view result = view_of(&t.expected, 3, t.expected.data);
  rt_task task = task_of(&t, &w, &result, &plan);
  status st = run_task(&plan, &task, bases);
  if (!dry_run) (void)EXPECT_INT(st, b->message ? STATUS_BAD_PROGRAM : STATUS_OK);
  if (!dry_run && b->message) (void)EXPECT_CONTAINS(status_message(), b->message);
  ir_module_destroy(&t.module);
  return STATUS_OK;
}

static void expect_errors(void) {
#define GATHER "fusion c { a : f32[3, 4]; b : i64[2, 4]; y = gather(a, b, dim=0); return y }"
#define SELECT "fusion c { a : f32[3, 4]; b : i32[5]; y = index_select(a, b, dim=1); return y }"
#define SCATTER                                                                                    \
  "fusion c { a : f32[3, 4]; b : i8[3, 2]; c : f32[3, 2]; y = scatter(a, b, c, dim=1); return y }"
#define UPDATE                                                                                     \
  "fusion c { a : f32[3, 4]; b : i8; c : f32[3, 2]; y = update(a, c, b, dim=1); return y }"
#define ADD                                                                                        \
  "fusion c { a : bf16[3, 4]; b : i8[3, 2]; c : bf16[3, 2]; "                                      \
  "y = scatter(a, b, c, dim=1, reduce=add); return y }"
#define LENGTHS "fusion c { a : f32[7]; b : i8[2]; y = group_index(b, 7); return y }"
#define GROUPED                                                                                    \
  "fusion c { a : f32[3, 4]; b : i8[3]; c : f32[2, 4, 5]; "                                        \
  "y = grouped_matmul(a, c, b); return y }"
#define OUTER                                                                                      \
  "fusion c { a : f32[3, 4]; b : i8[3]; c : f32[3, 5]; "                                           \
  "y = grouped_outer(a, c, b, 2); return y }"
  bad_index cases[] = {
      {GATHER, 2, NULL},
      {GATHER, 3, "gather: index 3 is outside axis 0, which has 3 elements"},
      {GATHER, -1, "gather: index -1 is outside axis 0"},
      {SELECT, 3, NULL},
      {SELECT, 4, "index_select: index 4 is outside axis 1, which has 4 elements"},
      {SCATTER, 3, NULL},
      {SCATTER, 4, "scatter: index 4 is outside axis 1, which has 4 elements"},
      {UPDATE, 2, NULL},
      {UPDATE, 3, "update: position 3 along axis 1 is not in 0 to 2"},
      {UPDATE, -1, "update: position -1 along axis 1 is not in 0 to 2"},
      {GROUPED, 2, NULL},
      {GROUPED, 3, "grouped_matmul: index 3 is not in 0 to 2, for 2 groups"},
      {GROUPED, -1, "grouped_matmul: index -1 is not in 0 to 2, for 2 groups"},
      {OUTER, 2, NULL},
      {OUTER, 3, "grouped_outer: index 3 is not in 0 to 2, for 2 groups"},
      {OUTER, -1, "grouped_outer: index -1 is not in 0 to 2, for 2 groups"},
      {LENGTHS, 3, NULL},
      {LENGTHS, 8, "group_index: the lengths add up to 8 or more, and there are 7 rows"},
      {LENGTHS, -5, "group_index: a length is negative, -5"},
      {ADD, 3, NULL},
      {ADD, 4, "scatter: index 4 is outside axis 1, which has 4 elements"},
      {ADD, -1, "scatter: index -1 is outside axis 1, which has 4 elements"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena_init(&memory, &memory_default);
    (void)EXPECT(memory_guard(run_bad_index, &cases[i]) == STATUS_OK);
    arena_destroy(&memory);
  }
}

/* ---- rounding ---- */
enum { N_NARROW = 1 << 16, NEIGHBOURS = 5 };

/* f32 numbers at, between and beside all narrow ones: ties and their neighbours. */
static void fill_ties(ir_dtype narrow, float *to) {
  static const int offsets[NEIGHBOURS] = {0, -1, 0, 1, 0};
  uint32_t half = narrow == IR_F16 ? 1U << 12 : 1U << 15;
  for (uint32_t h = 0; h < N_NARROW; h++)
    for (int i = 0; i < NEIGHBOURS; i++) {
      float value = narrow == IR_F16 ? ir_f32_from_f16((uint16_t)h) : ir_f32_from_bf16((uint16_t)h);
      uint32_t bits;
      memcpy(&bits, &value, sizeof bits);
      if (i > 0 && i < 4) bits += half + (uint32_t)offsets[i];
      memcpy(to++, &bits, sizeof bits);
    }
}

static status run_rounding(void *context) {
  ir_dtype narrow = *(const ir_dtype *)context;
  int64_t n = N_NARROW * NEIGHBOURS, one = 1, wrong = 0;
  float *from = ARENA_ARRAY(&memory, (size_t)n, float),
        *back = ARENA_ARRAY(&memory, (size_t)n, float);
  uint16_t *to = ARENA_ARRAY(&memory, (size_t)n, uint16_t);
  char *bases[] = {(char *)from, (char *)to, (char *)back};
  rt_view views[3] = {{.buffer = 1, .dtype = narrow, .rank = 1, .extents = &n, .strides = &one}};
  views[1] = views[2] = views[0];
  views[1].buffer = 0, views[2].buffer = 2;
  views[1].dtype = views[2].dtype = IR_F32;
  rt_operand down = {.kind = RT_OPERAND_VIEW, .view = 1}, up = {.kind = RT_OPERAND_VIEW};
  rt_attr attrs[1] = {{.given = true, .i = narrow}};
  rt_plan plan = {.views = views, .n_views = 3};
  rt_task task = {.code = IR_OP_CAST, .n_operands = 1, .operands = &down, .attrs = attrs};
  fill_ties(narrow, from);
  TRY(run_task(&plan, &task, bases));
  task.operands = &up;
  task.result = 2;
  TRY(run_task(&plan, &task, bases));
  for (int64_t i = 0; i < n && !dry_run; i++) {
    uint16_t want = narrow == IR_F16 ? ir_f16_from_f64(from[i]) : ir_bf16_from_f64(from[i]);
    double value = ir_element_as_f64(narrow, &to[i]);
    bool nan = isnan(from[i]) && isnan(value) && isnan(back[i]);
    wrong += !nan && (to[i] != want || (double)back[i] != value);
  }
  (void)EXPECT_INT(wrong, 0);
  return STATUS_OK;
}

static void expect_rounding(void) {
  ir_dtype narrow[] = {IR_F16, IR_BF16};
  for (int i = 0; i < 2; i++) {
    arena_init(&memory, &memory_default);
    (void)EXPECT(memory_guard(run_rounding, &narrow[i]) == STATUS_OK);
    arena_destroy(&memory);
  }
}

#endif
