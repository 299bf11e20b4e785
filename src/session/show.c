/* Prints a plan as it is bound, for WEIR_DUMP=plan. */
#include "base/log.h"
#include "session/plans.h"

typedef struct show_call {
  const rt_plan *plan;
  uint32_t first_rank, world;
  bool alike;
  arena scratch;
} show_call;

/* "main", "stream 2"; with several ranks "rank 1 main". */
static void put_stream(const rt_plan *plan, uint32_t first_rank, uint32_t stream, strbuf *out) {
  uint32_t rank = rt_plan_rank(plan, stream), number = stream - rt_plan_first_stream(plan, rank);
  if (plan->n_ranks > 1) strbuf_printf(out, "rank %-3u ", first_rank + rank);
  if (number == 0) strbuf_puts(out, "main        ");
  else strbuf_printf(out, "stream %-3u  ", number - 1);
}

static void put_step(const rt_plan *plan, uint32_t view, strbuf *out) {
  const rt_view *v = &plan->views[view];
  if (v->step_bytes == 0) return;
  strbuf_printf(out, "  %s %+lld bytes", plan->buffers[v->buffer].name, (long long)v->step_bytes);
}

static void put_post_steps(const rt_plan *plan, const rt_post *p, strbuf *out) {
  if (p->out != RT_NO_VIEW) put_step(plan, p->out, out);
  if (p->in != RT_NO_VIEW) put_step(plan, p->in, out);
  if (p->to_step) strbuf_printf(out, "  receiver %+d", (int)p->to_step);
  if (p->from_step) strbuf_printf(out, "  sender %+d", (int)p->from_step);
}

/* The peers of a post: for a message the other end; for a collective the root, and the team if it is not the world. */
static void put_peers(const show_call *c, const rt_post *p, strbuf *out) {
  enum { MOST_SHOWN = 8 };
  bool message = ir_comm_is_message(p->kind);
  if (message && p->to >= 0) strbuf_printf(out, "  to rank %u", p->team[p->to]);
  if (message && p->from >= 0) strbuf_printf(out, "  from rank %u", p->team[p->from]);
  if (message) return;
  if (ir_comm_info_of(p->kind)->root) strbuf_printf(out, "  root rank %u", p->team[p->root]);
  if (p->n_team == c->world) return;
  strbuf_puts(out, "  of ranks");
  for (uint32_t i = 0; i < p->n_team && i < MOST_SHOWN; i++) strbuf_printf(out, " %u", p->team[i]);
  if (p->n_team > MOST_SHOWN) strbuf_printf(out, " … (%u)", p->n_team);
}

/* How far its operands move from one repetition to the next. */
static void put_steps(const rt_plan *plan, uint32_t instr, strbuf *out) {
  if (plan->instrs[instr].kind == RT_POST)
    put_post_steps(plan, &plan->posts[plan->instrs[instr].task], out);
  if (plan->instrs[instr].kind != RT_LAUNCH) return;
  const rt_task *t = &plan->tasks[plan->instrs[instr].task];
  for (uint32_t k = 0; k < rt_task_n_results(t); k++) put_step(plan, rt_task_result(t, k), out);
  for (uint32_t k = 0; k < t->n_operands; k++)
    if (t->operands[k].kind == RT_OPERAND_VIEW) put_step(plan, t->operands[k].view, out);
}

static void put_instr(const show_call *c, uint32_t i, bool in_loop, strbuf *out) {
  strbuf_printf(out, "%6u  %s", i, in_loop ? "  " : "");
  put_stream(c->plan, c->first_rank, c->plan->instrs[i].stream, out);
  rt_describe(c->plan, i, out);
  if (c->plan->instrs[i].kind == RT_POST)
    put_peers(c, &c->plan->posts[c->plan->instrs[i].task], out);
  if (in_loop) put_steps(c->plan, i, out);
  strbuf_putc(out, '\n');
}

/* The line of a loop. One that lowering made has none: then that of the first instruction in it which has one. */
static uint32_t line_of_loop(const rt_plan *plan, uint32_t origin) {
  uint32_t line = rt_line_of(plan, origin);
  if (line || !origin) return line;
  const ir_instr_data *d = &plan->host->host->instrs.data[origin];
  for (uint32_t i = 0; i < d->body.len && !line; i++) line = line_of_loop(plan, d->body.data[i].id);
  for (uint32_t i = 0; i < d->otherwise.len && !line; i++)
    line = line_of_loop(plan, d->otherwise.data[i].id);
  return line;
}

static void put_unrolled(const rt_plan *plan, strbuf *out) {
  for (uint32_t k = 0; k < plan->n_unrolled; k++) {
    const rt_unrolled *u = &plan->unrolled[k];
    uint32_t line = line_of_loop(plan, u->origin);
    strbuf_puts(out, plan->host->module->src.name);
    if (line) strbuf_printf(out, ":%u", line);
    strbuf_printf(out, ": %s loop is unrolled: %s\n", line ? "this" : "a", u->why);
  }
}

/* One of several ranks may be shown, as all of them are alike or run elsewhere. */
static void put_head(const show_call *c, strbuf *out) {
  const rt_plan *p = c->plan;
  strbuf_puts(out, "plan");
  if (p->n_ranks <= 1 && c->world > 1) strbuf_printf(out, " of rank %u", c->first_rank);
  if (p->n_ranks <= 1 && c->alike) strbuf_printf(out, ", like those of all %u", c->world);
  strbuf_printf(out, ": %u instructions on %u streams, %lld bytes of buffers\n", p->n_instrs,
                p->n_streams, (long long)p->pool_bytes);
}

static status show_guarded(void *context) {
  show_call *c = context;
  const rt_plan *p = c->plan;
  const rt_loop *l = p->loops, *end = l + p->n_loops;
  strbuf out;
  strbuf_init(&out, &c->scratch);
  put_head(c, &out);
  for (uint32_t i = 0; i < p->n_instrs; i++) {
    while (l < end && i == l->first + l->n) l++;
    if (l < end && i == l->first) strbuf_printf(&out, "        %u times:\n", l->times);
    put_instr(c, i, l < end && i >= l->first, &out);
  }
  put_unrolled(p, &out);
  log_text(out.data);
  return STATUS_OK;
}

status session_show_plan(const session *x, const rt_plan *plan) {
  show_call c = {.plan = plan, .first_rank = x->ranks.first, .world = x->ranks.world};
  c.alike = plan->alike != NULL;
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(show_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}
