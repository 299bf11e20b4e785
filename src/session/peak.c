/* Which values are in memory when the buffers of a program take most of it. */
#include <stdlib.h>

#include "runtime/lives.h"
#include "session/questions.h"

typedef struct peak_call {
  const session *x;
  arena *scratch;
  const rt_plan *plan; /* of the rank that needs most */
  uint32_t rank, at;
  rt_lives lives;
} peak_call;

typedef struct peak_value {
  uint32_t buffer, made; /* by instruction */
  int64_t bytes;
} peak_value;

static bool writes(const rt_plan *plan, uint32_t instr, uint32_t buffer) {
  const rt_instr *i = &plan->instrs[instr];
  if (i->kind == RT_POST) {
    uint32_t out = plan->posts[i->task].out;
    return out != RT_NO_VIEW && plan->views[out].buffer == buffer;
  }
  if (i->kind != RT_LAUNCH) return false;
  const rt_task *t = &plan->tasks[i->task];
  for (uint32_t k = 0; k < rt_task_n_results(t); k++)
    if (plan->views[rt_task_result(t, k)].buffer == buffer) return true;
  return false;
}

/* The instruction that made what the buffer holds at the peak. */
static uint32_t maker(const peak_call *c, uint32_t buffer) {
  uint32_t first = c->lives.of[buffer].first;
  for (uint32_t i = c->at + 1; i-- > first;)
    if (writes(c->plan, i, buffer)) return i;
  return first;
}

static int by_bytes(const void *a, const void *b) {
  const peak_value *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->buffer < y->buffer ? -1 : 1;
}

static uint32_t find_values(const peak_call *c, peak_value *values) {
  uint32_t n = 0;
  for (uint32_t b = 0; b < c->plan->n_buffers; b++) {
    const rt_life *life = &c->lives.of[b];
    if (!life->used || life->first > c->at || life->end <= c->at) continue;
    values[n++] = (peak_value){b, maker(c, b), rt_pool_bytes(c->plan->buffers[b].size_bytes)};
  }
  qsort(values, n, sizeof *values, by_bytes);
  return n;
}

static void put_place(const peak_call *c, uint32_t instr, strbuf *out) {
  strbuf place;
  strbuf_init(&place, c->scratch);
  rt_place(c->plan, instr, &place);
  rt_describe(c->plan, instr, out);
  strbuf_printf(out, "  (%s)\n", place.data);
}

/* A pool counts as tight if it is larger than needed by less than one part in SLACK. */
enum { SLACK = 64 };

static void explain(peak_call *c, int64_t live_bytes, strbuf *out) {
  const rt_plan *plan = c->plan;
  peak_value *values = ARENA_ARRAY(c->scratch, plan->n_buffers + (size_t)1, peak_value);
  uint32_t n = live_bytes > 0 ? find_values(c, values) : 0;
  strbuf_printf(out, "pool of %lld bytes", (long long)plan->pool_bytes);
  if (session_ranks_are_many(&c->x->ranks)) strbuf_printf(out, " on device %u", c->rank);
  if (n == 0) strbuf_puts(out, ": the program has no buffers of its own\n");
  else {
    strbuf_printf(out, "; at most %lld bytes are in use at once, %.3f of it, first at\n  ",
                  (long long)live_bytes, (double)live_bytes / (double)plan->pool_bytes);
    put_place(c, c->at, out);
    strbuf_puts(out, "by\n");
  }
  for (uint32_t i = 0; i < n; i++) {
    strbuf_printf(out, "%12lld bytes  ", (long long)values[i].bytes);
    put_place(c, values[i].made, out);
  }
  if (n > 0 && plan->n_streams > 1 && plan->pool_bytes > live_bytes + live_bytes / SLACK)
    strbuf_puts(out, "that is in the order of the plan; streams run at the same time, so their "
                     "buffers are apart, and fewer streams need less (--streams)\n");
}

static void find_rank(peak_call *c, const rt_plan *const *plans, uint32_t n) {
  for (uint32_t r = 0; r < n; r++) {
    if (c->plan && plans[r]->pool_bytes <= c->plan->pool_bytes) continue;
    c->plan = plans[r];
    c->rank = n > 1 ? r : c->x->ranks.first;
  }
}

status session_find_peak(session *x, const ir_env *env, arena *scratch, session_peak *result,
                         strbuf *out) {
  peak_call c = {.x = x, .scratch = scratch};
  const rt_plan *const *plans;
  uint32_t n;
  TRY(session_bind(x, env, &plans, &n));
  find_rank(&c, plans, n);
  check(c.plan);            /* there is at least one */
  rt_plan *unrolled = NULL; /* lives are those of a plan without loops */
  if (c.plan->n_loops) TRY(rt_plan_unroll(c.plan, x->memory, &unrolled));
  if (unrolled) c.plan = unrolled;
  rt_lives_find(c.plan, scratch, &c.lives);
  int64_t live_bytes = rt_lives_peak(&c.lives, scratch, &c.at);
  if (out) explain(&c, live_bytes, out);
  *result = (session_peak){c.rank, c.plan->pool_bytes, live_bytes};
  rt_plan_destroy(unrolled);
  return STATUS_OK;
}
