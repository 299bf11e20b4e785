/* Whether an output may have the memory of an input: a donated one.
 *
 * The plan with both as one buffer must pass as any plan does, which orders every read of the old
 * value and every write of the new one that share bytes. Whether they have the right order is
 * checked here: ordered accesses have the order of the plan, so no read may come after a write in it.
 *
 * A plan with loops is checked as in loops.c: a short plan first, and if that proves nothing, the
 * unrolled one. */
#include <stdio.h>

#include "check/internal.h"

enum { MOST_PAIRS = 10 * 1000 * 1000 };

typedef struct alias_call {
  const rt_plan *plan;
  uint32_t in, out; /* buffers */
  const allocator *memory;
  arena scratch;
  check_alias_result *result;
} alias_call;

typedef struct alias_access {
  uint32_t instr, view;
} alias_access;

typedef struct alias_accesses {
  VEC(alias_access) reads, writes; /* of the old value, of the new one */
} alias_accesses;

static status refuse(alias_call *c, uint32_t instr, const char *what) {
  strbuf place;
  strbuf_init(&place, &c->scratch);
  if (instr != CHECK_NONE) rt_place(c->plan, instr, &place);
  c->result->safe = false;
  (void)snprintf(c->result->why, sizeof c->result->why, "%s%s%s",
                 instr != CHECK_NONE ? place.data : "", instr != CHECK_NONE ? ": " : "", what);
  return STATUS_OK;
}

/* ---- accesses ---- */
static void note(alias_call *c, alias_accesses *all, uint32_t instr, uint32_t view, bool writes) {
  alias_access a = {instr, view};
  uint32_t buffer = c->plan->views[view].buffer;
  if (buffer == c->in && !writes) vec_push(&c->scratch, &all->reads, a);
  if (buffer == c->out && writes) vec_push(&c->scratch, &all->writes, a);
}

static void note_instr(alias_call *c, alias_accesses *all, uint32_t i) {
  const rt_instr *instr = &c->plan->instrs[i];
  if (instr->kind == RT_LAUNCH) {
    const rt_task *t = &c->plan->tasks[instr->task];
    for (uint32_t k = 0; k < t->n_operands; k++)
      if (t->operands[k].kind == RT_OPERAND_VIEW) note(c, all, i, t->operands[k].view, false);
    for (uint32_t k = 0; k < rt_task_n_results(t); k++) note(c, all, i, rt_task_result(t, k), true);
  }
  if (instr->kind == RT_POST) {
    const rt_post *p = &c->plan->posts[instr->task];
    if (p->in != RT_NO_VIEW) note(c, all, i, p->in, false);
    if (p->out != RT_NO_VIEW) note(c, all, i, p->out, true);
  }
}

/* A kernel of several results may read again what it has written one of them to, unless it goes over them
 * once. */
static bool reads_again(const rt_plan *p, uint32_t instr) {
  const rt_instr *i = &p->instrs[instr];
  if (i->kind != RT_LAUNCH) return true;
  const rt_task *t = &p->tasks[i->task];
  return t->body && rt_task_n_results(t) > 1 && !rt_body_is_sweep(t->body);
}

static status look_at_order(alias_call *c, const alias_accesses *all) {
  if ((uint64_t)all->reads.len * all->writes.len > MOST_PAIRS)
    return refuse(c, CHECK_NONE, "there are too many accesses to look at");
  for (uint32_t w = 0; w < all->writes.len; w++)
    for (uint32_t r = 0; r < all->reads.len; r++) {
      const alias_access *read = &all->reads.data[r], *write = &all->writes.data[w];
      if (read->instr < write->instr ||
          !rt_views_meet(&c->plan->views[read->view], &c->plan->views[write->view]))
        continue;
      if (read->instr > write->instr)
        return refuse(c, read->instr, "the old value is read after the new one is written");
      if (reads_again(c->plan, read->instr))
        return refuse(c, read->instr, "a kernel with several results reads it");
    }
  return STATUS_OK;
}

/* ---- the plan with one buffer for both ---- */
static status look_at_races(alias_call *c) {
  rt_plan joined = *c->plan;
  check_report report = {0};
  joined.views = arena_copy(&c->scratch, joined.views, joined.n_views * sizeof *joined.views);
  for (uint32_t v = 0; v < joined.n_views; v++)
    if (joined.views[v].buffer == c->out) joined.views[v].buffer = c->in;
  check_options options = {.memory = c->memory, .max_findings = 1, .no_waits = true};
  TRY(check_plan(&joined, &options, &report));
  if (report.n_found - report.count[CHECK_OUTPUT_UNWRITTEN] > 0)
    (void)refuse(c, report.findings.data[0].b,
                 "it would be read and written at once, or in another order of elements");
  check_report_destroy(&report);
  return STATUS_OK;
}

static status judge(void *context) {
  alias_call *c = context;
  const rt_plan *p = c->plan;
  alias_accesses all = {0};
  if (c->out == CHECK_NONE) return refuse(c, CHECK_NONE, "nothing computes it");
  if (c->in == CHECK_NONE) return STATUS_OK;
  if (p->buffers[c->in].size_bytes != p->buffers[c->out].size_bytes)
    return refuse(c, CHECK_NONE, "devices hold more of one than of the other: place both alike");
  for (uint32_t i = 0; i < p->n_instrs; i++) note_instr(c, &all, i);
  TRY(look_at_order(c, &all));
  return c->result->safe ? look_at_races(c) : STATUS_OK;
}

static status look_without_loops(const rt_plan *plan, uint32_t input, uint32_t output,
                                 const allocator *memory, check_alias_result *result) {
  alias_call c = {.plan = plan, .memory = memory, .result = result};
  *result = (check_alias_result){.safe = true};
  c.in = rt_plan_buffer(plan, RT_BUFFER_INPUT, input);
  c.out = rt_plan_buffer(plan, RT_BUFFER_OUTPUT, output);
  arena_init(&c.scratch, memory);
  status st = memory_guard(judge, &c);
  arena_destroy(&c.scratch);
  return st;
}

/* ---- loops ---- */
/* The short plan (rt_plan_shorten), if it proves anything: views of both have one step, so that a later
 * repetition reads what an earlier one writes only if the last one does. NULL: it does not. */
static status shorten(const rt_plan *plan, uint32_t input, uint32_t output, const allocator *memory,
                      rt_plan **result) {
  uint32_t in = rt_plan_buffer(plan, RT_BUFFER_INPUT, input), n = plan->n_views;
  uint32_t out = rt_plan_buffer(plan, RT_BUFFER_OUTPUT, output);
  rt_view *views = memory_alloc(memory, (n + (size_t)1) * sizeof *views);
  rt_plan joined = *plan;
  const uint32_t *from;
  *result = NULL;
  if (!views) return STATUS_OUT_OF_MEMORY;
  for (uint32_t v = 0; v < n; v++) {
    views[v] = plan->views[v];
    if (views[v].buffer == out && in != CHECK_NONE) views[v].buffer = in;
  }
  joined.views = views;
  status st = check_shorten(plan, &joined, memory, result, &from);
  memory_free(memory, views);
  return st;
}

/* Where the short plan refuses, the unrolled one may know better. */
status check_alias(const rt_plan *plan, uint32_t input, uint32_t output, const allocator *memory,
                   check_alias_result *result) {
  rt_plan *other = NULL;
  if (!plan->n_loops) return look_without_loops(plan, input, output, memory, result);
  *result = (check_alias_result){.safe = false};
  TRY(shorten(plan, input, output, memory, &other));
  status st = other ? look_without_loops(other, input, output, memory, result) : STATUS_OK;
  rt_plan_destroy(other);
  if (st != STATUS_OK || result->safe) return st;
  TRY(rt_plan_unroll(plan, memory, &other));
  st = look_without_loops(other, input, output, memory, result);
  rt_plan_destroy(other);
  return st;
}
