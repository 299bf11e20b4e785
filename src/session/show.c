/* Prints a plan as it is bound, for WEIR_DUMP=plan. */
#include "base/log.h"
#include "session/plans.h"

typedef struct show_call {
  const rt_plan *plan;
  uint32_t first_rank;
  arena scratch;
} show_call;

/* "main", "stream 2"; of several ranks "rank 1 main". */
static void put_stream(const rt_plan *plan, uint32_t first_rank, uint32_t stream, strbuf *out) {
  uint32_t rank = rt_plan_rank(plan, stream), number = stream - rt_plan_first_stream(plan, rank);
  if (plan->n_ranks > 1) strbuf_printf(out, "rank %-3u ", first_rank + rank);
  if (number == 0) strbuf_puts(out, "main        ");
  else strbuf_printf(out, "stream %-3u  ", number - 1);
}

static status show_guarded(void *context) {
  show_call *c = context;
  strbuf out;
  strbuf_init(&out, &c->scratch);
  strbuf_printf(&out, "plan: %u instructions on %u streams, %lld bytes of buffers\n",
                c->plan->n_instrs, c->plan->n_streams, (long long)c->plan->pool_bytes);
  for (uint32_t i = 0; i < c->plan->n_instrs; i++) {
    strbuf_printf(&out, "%6u  ", i);
    put_stream(c->plan, c->first_rank, c->plan->instrs[i].stream, &out);
    rt_describe(c->plan, i, &out);
    strbuf_putc(&out, '\n');
  }
  log_text(out.data);
  return STATUS_OK;
}

status session_show_plan(const session *x, const rt_plan *plan) {
  show_call c = {.plan = plan, .first_rank = x->ranks.first};
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(show_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}
