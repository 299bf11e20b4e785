#include "cost/needs.h"

#include <math.h>
#include <string.h>

#include "runtime/machine.h"

double cost_arithmetic_ns(const rt_plan *plan, const rt_task *task, const rt_speed *machine) {
  rt_speed m = *machine;
  m.launch_ns = 0;
  m.bytes_per_ns = HUGE_VAL;
  m.cache_bytes = 0;
  return rt_task_ns(plan, task, &m);
}

/* ---- what is needed of a tensor ----
 * A bit for each dimension: all of its positions are needed; of the others one is. */
typedef uint32_t need;
#define NEED_NOTHING UINT32_MAX

static double fraction(need n, uint32_t rank, const int64_t *extents) {
  double f = 1;
  if (n == NEED_NOTHING) return 0;
  for (uint32_t d = 0; d < rank; d++)
    if (!(n >> d & 1) && extents[d] > 1) f /= (double)extents[d];
  return f;
}

/* Of two needs of one tensor the larger; a row and a column together are more, but not all. */
static need larger(need a, need b, uint32_t rank, const int64_t *extents) {
  return fraction(a, rank, extents) >= fraction(b, rank, extents) ? a : b;
}

/* ---- operations ---- */
static need bit(need n, uint32_t from, uint32_t to) { return (n >> from & 1) << to; }

static need of_aligned(need n, const rt_shape *result, const rt_shape *x) {
  need all = 0;
  if (x->rank > result->rank) return NEED_NOTHING;
  for (uint32_t d = 0; d < x->rank; d++)
    if (x->extents[d] > 1) all |= bit(n, result->rank - x->rank + d, d);
  return all;
}

/* Matrices and stacks of them: of matmul(a, b) and linear(x, weight, bias). */
static need of_product(ir_opcode code, need n, const rt_shape *result, const rt_shape *x,
                       uint32_t k) {
  uint32_t last = x->rank - 1, columns = result->rank - 1;
  bool linear = code == IR_OP_LINEAR;
  if (linear && k == 2) return of_aligned(n, result, x);
  if (x->rank < 2 || result->rank < 2) return NEED_NOTHING;
  if (linear && k == 1) return bit(n, columns, 0) | 1U << 1;
  if (x->rank > result->rank) return NEED_NOTHING;
  need all = of_aligned(n, result, x) & ~(3U << (last - 1));
  if (k == 0) return all | bit(n, columns - 1, last - 1) | 1U << last;
  return all | bit(n, columns, last) | 1U << (last - 1);
}

static need of_reduced(need n, const rt_attr *dims, const rt_shape *result, const rt_shape *x) {
  need all = 0, reduced = 0;
  uint32_t at = 0;
  if (!dims->given || dims->len == 0) return (1U << x->rank) - 1;
  for (uint32_t i = 0; i < dims->len; i++)
    reduced |= 1U << (dims->list[i] < 0 ? dims->list[i] + x->rank : dims->list[i]);
  for (uint32_t d = 0; d < x->rank; d++) {
    bool kept = result->rank == x->rank || !(reduced >> d & 1);
    all |= reduced >> d & 1 ? 1U << d : bit(n, at, d);
    at += kept;
  }
  return all;
}

/* Of operations that are not named here nothing is said. */
static need of_operand(ir_opcode code, const rt_attr *attrs, need n, const rt_shape *result,
                       const rt_shape *x, uint32_t k) {
  if (n == NEED_NOTHING || code == IR_OP_NONE) return NEED_NOTHING;
  const ir_op_info *op = ir_op_info_of(code);
  bool aligned = op->family == IR_FAMILY_POINTWISE || op->family == IR_FAMILY_SET ||
                 op->family == IR_FAMILY_CAST;
  if (aligned) return of_aligned(n, result, x);
  if (ir_op_is_plain_product(code)) return of_product(code, n, result, x, k);
  if (op->family == IR_FAMILY_REDUCE || op->family == IR_FAMILY_MOMENT)
    return of_reduced(n, &attrs[0], result, x);
  return NEED_NOTHING;
}

/* ---- tasks ---- */
#define UNKNOWN UINT32_MAX
#define UNREAD (UINT32_MAX - 1)

typedef struct walk {
  const rt_plan *plan;
  const rt_speed *machine;
  arena *scratch;
  need *of_view; /* of what is written there, by view */
  /* By view that is read: the view as which its bytes were written, UNKNOWN or UNREAD. */
  uint32_t *writer_of;
  need *steps; /* of the body that is looked at */
} walk;

static void demand(const walk *w, uint32_t view, need n);

static rt_shape shape_of(const rt_view *v) { return (rt_shape){v->dtype, v->rank, v->extents}; }

/* A value of a body that a step reads. */
static void demand_value(const walk *w, const rt_task *t, need *steps, const rt_value *v, need n) {
  if (v->kind == RT_VALUE_PARAM) demand(w, t->operands[v->index].view, n);
  if (v->kind != RT_VALUE_STEP || v->result > 0) return;
  const rt_shape *x = &t->body->steps[v->index].results[0];
  steps[v->index] = larger(steps[v->index], n, x->rank, x->extents);
}

static void demand_body(const walk *w, const rt_task *t, uint32_t result, need n) {
  const rt_body *b = t->body;
  need *steps = w->steps;
  for (uint32_t i = 0; i < b->n_steps; i++) steps[i] = NEED_NOTHING;
  demand_value(w, t, steps, &b->results[result], n);
  for (uint32_t i = b->n_steps; i-- > 0;) {
    const rt_step *s = &b->steps[i];
    for (uint32_t k = 0; k < s->n_operands && steps[i] != NEED_NOTHING && !s->whole; k++) {
      const rt_value *v = &s->operands[k];
      if (v->kind != RT_VALUE_PARAM && v->kind != RT_VALUE_STEP) continue;
      demand_value(
          w, t, steps, v,
          of_operand(s->code, s->attrs, steps[i], &s->results[0], rt_value_shape(b, v), k));
    }
  }
}

static void demand_operands(const walk *w, const rt_task *t, need n) {
  rt_shape result = shape_of(&w->plan->views[t->result]);
  for (uint32_t k = 0; k < t->n_operands && !t->whole; k++) {
    if (t->operands[k].kind != RT_OPERAND_VIEW) continue;
    rt_shape x = shape_of(&w->plan->views[t->operands[k].view]);
    demand(w, t->operands[k].view, of_operand(t->code, t->attrs, n, &result, &x, k));
  }
}

/* What is needed of its results, and the part of its time that this takes. */
static double demand_task(const walk *w, const rt_task *t) {
  double most = 0;
  for (uint32_t k = 0; k < rt_task_n_results(t); k++) {
    const rt_view *v = &w->plan->views[rt_task_result(t, k)];
    need n = w->of_view[rt_task_result(t, k)];
    if (n == NEED_NOTHING) continue;
    w->of_view[rt_task_result(t, k)] = NEED_NOTHING; /* what was there before is overwritten */
    most = fmax(most, fraction(n, v->rank, v->extents));
    if (t->body) demand_body(w, t, k, n);
    else if (k == 0) demand_operands(w, t, n);
  }
  if (most == 0 || t->n_more) return 0; /* of several results, one may be cheap */
  return most * cost_arithmetic_ns(w->plan, t, w->machine);
}

/* An element of a sum over devices needs this one's. */
static void demand_post(const walk *w, const rt_post *p) {
  if (p->kind != IR_COMM_ALLREDUCE || p->in == RT_NO_VIEW || p->out == RT_NO_VIEW) return;
  const rt_view *in = &w->plan->views[p->in], *out = &w->plan->views[p->out];
  need n = w->of_view[p->out];
  w->of_view[p->out] = NEED_NOTHING;
  if (rt_extents_same(in->rank, in->extents, out->rank, out->extents)) demand(w, p->in, n);
}

/* ---- from what is read to what was written ---- */
/* The dimension of `v` that has this stride; none has if another view of the bytes was written. */
static bool find_stride(const rt_view *v, int64_t stride, int64_t extent, uint32_t *dim) {
  for (*dim = 0; *dim < v->rank; ++*dim)
    if (v->extents[*dim] == extent && v->strides[*dim] == stride) return true;
  return false;
}

static double touched(const rt_view *v) {
  double n = 1;
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->strides[d] != 0) n *= (double)v->extents[d];
  return n;
}

static bool is_dense(const rt_view *v) {
  double last = 0;
  for (uint32_t d = 0; d < v->rank; d++) last += (double)((v->extents[d] - 1) * v->strides[d]);
  return last + 1 == touched(v);
}

/* The same bytes: in the same dimensions, or all of a block. */
static bool is_same_part(const rt_view *read, const rt_view *written) {
  uint32_t dim;
  if (read->buffer != written->buffer || read->offset_bytes != written->offset_bytes ||
      read->dtype != written->dtype || touched(read) != touched(written))
    return false;
  if (is_dense(read) && is_dense(written)) return true;
  for (uint32_t d = 0; d < read->rank; d++)
    if (read->extents[d] > 1 && read->strides[d] != 0 &&
        !find_stride(written, read->strides[d], read->extents[d], &dim))
      return false;
  return true;
}

static void demand(const walk *w, uint32_t view, need n) {
  const rt_view *read = &w->plan->views[view];
  need all = 0;
  uint32_t written = w->writer_of[view], dim;
  if (n == NEED_NOTHING || written == UNKNOWN) return;
  const rt_view *v = &w->plan->views[written];
  for (uint32_t d = 0; d < read->rank; d++)
    if (n >> d & 1 && read->extents[d] > 1 && read->strides[d] != 0 &&
        find_stride(v, read->strides[d], read->extents[d], &dim))
      all |= 1U << dim;
  w->of_view[written] = larger(w->of_view[written], all, v->rank, v->extents);
}

/* ---- all instructions ---- */
static void note_read(const walk *w, const uint32_t *last, uint32_t view) {
  if (view == RT_NO_VIEW) return;
  uint32_t by = last[w->plan->views[view].buffer], *found = &w->writer_of[view];
  bool same = by && is_same_part(&w->plan->views[view], &w->plan->views[by - 1]);
  uint32_t writer = same ? by - 1 : UNKNOWN;
  *found = *found == UNREAD || *found == writer ? writer : UNKNOWN;
}

/* `last`: by buffer, the view that was written last, + 1. */
static void note_task(const walk *w, uint32_t *last, const rt_task *t) {
  for (uint32_t k = 0; k < t->n_operands; k++)
    if (t->operands[k].kind == RT_OPERAND_VIEW) note_read(w, last, t->operands[k].view);
  for (uint32_t k = 0; k < rt_task_n_results(t); k++) {
    uint32_t view = rt_task_result(t, k);
    last[w->plan->views[view].buffer] = view + 1;
  }
}

static void note_writers(const walk *w) {
  uint32_t *last = ARENA_ARRAY(w->scratch, (size_t)w->plan->n_buffers + 1, uint32_t);
  for (uint32_t i = 0; i < w->plan->n_instrs; i++) {
    const rt_instr *instr = &w->plan->instrs[i];
    if (instr->kind == RT_LAUNCH) note_task(w, last, &w->plan->tasks[instr->task]);
    if (instr->kind != RT_POST) continue;
    const rt_post *p = &w->plan->posts[instr->task];
    note_read(w, last, p->in);
    if (p->out != RT_NO_VIEW) last[w->plan->views[p->out].buffer] = p->out + 1;
  }
}

/* Before instruction `at`, for one element of a view. */
static double one_ns(const walk *w, uint32_t at, uint32_t view) {
  const rt_plan *plan = w->plan;
  double sum = 0;
  for (uint32_t v = 0; v < plan->n_views; v++) w->of_view[v] = NEED_NOTHING;
  demand(w, view, 0);
  for (uint32_t i = at; i-- > 0;) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_LAUNCH) sum += demand_task(w, &plan->tasks[instr->task]);
    if (instr->kind == RT_POST) demand_post(w, &plan->posts[instr->task]);
  }
  return sum;
}

/* The cat that writes what is posted; NULL: none does. */
static const rt_task *find_bucket(const walk *w, uint32_t at, uint32_t view, uint32_t *place) {
  for (uint32_t i = at; i-- > 0 && w->writer_of[view] != UNKNOWN;) {
    const rt_instr *instr = &w->plan->instrs[i];
    const rt_task *t = instr->kind == RT_LAUNCH ? &w->plan->tasks[instr->task] : NULL;
    if (!t || t->result != w->writer_of[view]) continue;
    *place = i;
    return t->code == IR_OP_CAT ? t : NULL;
  }
  return NULL;
}

/* Of the post that is instruction `at`. What travels as one could travel alone: the first of its
 * parts counts. */
static double head_ns(const walk *w, uint32_t at) {
  const rt_post *p = &w->plan->posts[w->plan->instrs[at].task];
  uint32_t place = at;
  double least = HUGE_VAL;
  if (p->in == RT_NO_VIEW) return 0;
  const rt_task *bucket = find_bucket(w, at, p->in, &place);
  if (!bucket) return one_ns(w, at, p->in);
  for (uint32_t k = 0; k < bucket->n_operands; k++)
    if (bucket->operands[k].kind == RT_OPERAND_VIEW)
      least = fmin(least, one_ns(w, place, bucket->operands[k].view));
  return least == HUGE_VAL ? 0 : least;
}

/* Plans of thousands of communications would take too long: the rest begins at once. */
enum { MOST_VISITS = 1 << 25 };

static uint32_t longest_body(const rt_plan *plan) {
  uint32_t most = 0;
  for (uint32_t t = 0; t < plan->n_tasks; t++)
    if (plan->tasks[t].body && plan->tasks[t].body->n_steps > most)
      most = plan->tasks[t].body->n_steps;
  return most;
}

void cost_needs(const rt_plan *plan, const rt_speed *machine, arena *scratch, double *result) {
  walk w = {.plan = plan, .machine = machine, .scratch = scratch};
  uint64_t visits = 0;
  w.of_view = ARENA_ARRAY(scratch, (size_t)plan->n_views + 1, need);
  w.writer_of = ARENA_ARRAY(scratch, (size_t)plan->n_views + 1, uint32_t);
  w.steps = ARENA_ARRAY(scratch, (size_t)longest_body(plan) + 1, need);
  for (uint32_t v = 0; v < plan->n_views; v++) w.writer_of[v] = UNREAD;
  note_writers(&w);
  for (uint32_t i = 0; i < plan->n_instrs && visits < MOST_VISITS; i++) {
    if (plan->instrs[i].kind != RT_POST) continue;
    visits += i + plan->n_views;
    result[plan->instrs[i].task] = head_ns(&w, i);
  }
}
