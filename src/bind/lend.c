/* Values of the pool in the memory of outputs that are not written yet.
 *
 * An output is the caller's memory from the beginning of a run, and is not read before it is written. So a value
 * that is used for the last time before that may be in it. Only values that are in use where the program needs
 * most memory are moved, as long as that lowers the peak. */
#include "bind/lend.h"

#include <string.h>

enum { MOST_LOANS = 64 };

typedef struct lender {
  const rt_plan *plan;
  rt_lives *lives;
  arena *memory;
  const uint32_t *moved;
  bind_loan *loans; /* by buffer */
  uint32_t lent[MOST_LOANS], n_lent;
  uint32_t *writes;  /* by buffer: how many accesses write it */
  bool *whole;       /* by buffer: its first access writes all of it */
  bool *posted;      /* by buffer: communications use it */
  size_t *widest;    /* by buffer: bytes of its largest element */
  uint32_t *outputs; /* that may be lent */
  uint32_t n_outputs;
  int64_t *change; /* by instruction: bytes that come into use there, less those that go */
} lender;

static uint32_t root(const lender *x, uint32_t buffer) {
  while (x->moved[buffer] != buffer) buffer = x->moved[buffer];
  return buffer;
}

/* ---- outputs ---- */
static bool is_whole(const rt_plan *plan, const rt_view *v) {
  int64_t bytes = (int64_t)ir_dtype_size_bytes(v->dtype);
  for (uint32_t d = 0; d < v->rank; d++) bytes *= v->extents[d];
  return v->offset_bytes == 0 && bytes == plan->buffers[v->buffer].size_bytes;
}

static void look_at_task(lender *x, const rt_task *t, uint32_t instr) {
  for (uint32_t k = 0; k < rt_task_n_results(t); k++) {
    const rt_view *v = &x->plan->views[rt_task_result(t, k)];
    x->writes[v->buffer]++;
    if (x->lives->of[v->buffer].first == instr) x->whole[v->buffer] = is_whole(x->plan, v);
  }
  for (uint32_t k = 0; k < t->n_operands; k++) {
    if (t->operands[k].kind != RT_OPERAND_VIEW) continue;
    uint32_t b = x->plan->views[t->operands[k].view].buffer;
    if (x->lives->of[b].first == instr) x->whole[b] = false;
  }
}

static void look_at_post(lender *x, const rt_post *p) {
  if (p->in != RT_NO_VIEW) x->posted[root(x, x->plan->views[p->in].buffer)] = true;
  if (p->out != RT_NO_VIEW) x->posted[root(x, x->plan->views[p->out].buffer)] = true;
  if (p->root_view) x->posted[root(x, x->plan->views[p->root_view - 1].buffer)] = true;
}

static void look_at_view(lender *x, const rt_view *v) {
  size_t *widest = &x->widest[root(x, v->buffer)], bytes = ir_dtype_size_bytes(v->dtype);
  if (bytes > *widest) *widest = bytes;
}

static void look_at_all(lender *x) {
  const rt_plan *plan = x->plan;
  for (uint32_t v = 0; v < plan->n_views; v++) look_at_view(x, &plan->views[v]);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind == RT_LAUNCH) look_at_task(x, &plan->tasks[instr->task], i);
    if (instr->kind == RT_POST) look_at_post(x, &plan->posts[instr->task]);
  }
}

/* Finds the outputs that may be lent: one access writes all of the output, and is the first. What the
 * checker says of it then does not depend on what was there before. */
static void find_outputs(lender *x, const int64_t *donated) {
  const rt_plan *plan = x->plan;
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    const rt_buffer *o = &plan->buffers[b];
    if (o->kind != RT_BUFFER_OUTPUT || x->posted[b] || x->writes[b] != 1 || !x->whole[b]) continue;
    if (donated && donated[o->slot] >= 0) continue;
    x->outputs[x->n_outputs++] = b;
  }
}

/* ---- loans ---- */
static int64_t bytes_of(const lender *x, uint32_t buffer) {
  return rt_pool_bytes(x->plan->buffers[buffer].size_bytes);
}

static bool meets(const lender *x, uint32_t a, uint32_t b) {
  return !rt_lives_before(x->lives, a, b) && !rt_lives_before(x->lives, b, a);
}

/* The lowest place in the output that no other loan has while the buffer is in use; -1: there is none. */
static int64_t find_place(const lender *x, uint32_t output, uint32_t buffer) {
  int64_t at = 0, size = bytes_of(x, buffer);
  for (uint32_t i = 0; i < x->n_lent; i++) {
    uint32_t b = x->lent[i];
    const bind_loan *other = &x->loans[b];
    if (other->from != output || !meets(x, b, buffer)) continue;
    if (other->at >= at + size || other->at + bytes_of(x, b) <= at) continue;
    at = other->at + bytes_of(x, b);
    i = UINT32_MAX; /* from the first again */
  }
  return at + x->plan->buffers[buffer].size_bytes <= x->plan->buffers[output].size_bytes ? at : -1;
}

static void count_use(const lender *x, uint32_t buffer, int64_t times) {
  const rt_life *life = &x->lives->of[buffer];
  x->change[life->first] += times * bytes_of(x, buffer);
  x->change[life->end] -= times * bytes_of(x, buffer);
}

static bool lend(lender *x, uint32_t buffer) {
  for (uint32_t k = 0; k < x->n_outputs; k++) {
    uint32_t output = x->outputs[k];
    /* mutant: plan_lent_too_long */
    if (!rt_lives_before(x->lives, buffer, output)) continue;
    if (x->widest[buffer] > x->widest[output]) continue; /* the caller aligned it for its own */
    int64_t at = find_place(x, output, buffer);
    if (at < 0) continue;
    x->loans[buffer] = (bind_loan){output, at};
    x->lent[x->n_lent++] = buffer;
    count_use(x, buffer, -1);
    x->lives->of[buffer].used = false;
    return true;
  }
  return false;
}

/* The larger one comes first; of equal ones the one that is needed longer: along a chain, every other value
 * is lent. */
static bool comes_first(const lender *x, uint32_t a, uint32_t b) {
  int64_t p = bytes_of(x, a), q = bytes_of(x, b);
  uint32_t m = x->lives->of[a].end, n = x->lives->of[b].end;
  return p != q ? p > q : m != n ? m > n : a < b;
}

/* The last instruction at which most is in use; false: nothing is. */
static bool find_peak(const lender *x, uint32_t *at) {
  int64_t now = 0, most = 0;
  for (uint32_t i = 0; i < x->plan->n_instrs; i++) {
    now += x->change[i];
    if (now >= most) *at = i;
    if (now > most) most = now;
  }
  return most > 0;
}

/* The first of the buffers that are in use there and come after `last`; BIND_NO_LOAN: none. */
static uint32_t next_of(const lender *x, uint32_t instr, uint32_t last) {
  uint32_t best = BIND_NO_LOAN;
  for (uint32_t b = 0; b < x->plan->n_buffers; b++) {
    const rt_life *life = &x->lives->of[b];
    if (!life->used || life->first > instr || life->end <= instr || x->posted[b]) continue;
    if (last != BIND_NO_LOAN && !comes_first(x, last, b)) continue;
    if (best == BIND_NO_LOAN || comes_first(x, b, best)) best = b;
  }
  return best;
}

/* Lends to the first of them that finds a place. */
static bool lend_at(lender *x, uint32_t instr) {
  uint32_t b = next_of(x, instr, BIND_NO_LOAN);
  while (b != BIND_NO_LOAN && !lend(x, b)) b = next_of(x, instr, b);
  return b != BIND_NO_LOAN;
}

bind_loan *bind_lend(const rt_plan *plan, rt_lives *lives, const uint32_t *moved,
                     const int64_t *donated, arena *memory) {
  size_t n = plan->n_buffers;
  uint32_t at = 0;
  lender x = {.plan = plan, .lives = lives, .memory = memory, .moved = moved};
  x.loans = ARENA_ARRAY(memory, n, bind_loan);
  for (uint32_t b = 0; b < n; b++) x.loans[b].from = BIND_NO_LOAN;
  x.writes = ARENA_ARRAY(memory, n, uint32_t);
  x.whole = ARENA_ARRAY(memory, n, bool);
  x.posted = ARENA_ARRAY(memory, n, bool);
  x.widest = ARENA_ARRAY(memory, n, size_t);
  x.outputs = ARENA_ARRAY(memory, n, uint32_t);
  x.change = ARENA_ARRAY(memory, plan->n_instrs + (size_t)1, int64_t);
  look_at_all(&x);
  find_outputs(&x, donated);
  if (x.n_outputs == 0) return x.loans;
  for (uint32_t b = 0; b < n; b++)
    if (lives->of[b].used) count_use(&x, b, 1);
  while (x.n_lent < MOST_LOANS && find_peak(&x, &at) && lend_at(&x, at)) continue;
  return x.loans;
}
