/* Plans with loops. None of them communicates, so everything is ready when the host reaches it, and the order is that
 * of the plan.
 *
 *   plan                   order
 *   launch a on 1          a  record e1 on 1
 *   n times:               wait e1 on 2  b  record e2 on 2  wait e2 on 1  c  record e3 on 1     once
 *     2 waits for 1        wait e3 on 2  b  record e2 on 2  wait e2 on 1  c  record e3 on 1     n - 1 times
 *     launch b on 2
 *     1 waits for 2
 *     launch c on 1
 *
 * Where a stream waits for work before the loop in the first repetition, it waits for the repetition before in a
 * further one (e1 and e3). Both repetitions record the same events: waits in a further repetition, and after the loop,
 * then mean the last record. If a stream does nothing in the loop, only the first repetition waits for it. */
#include <string.h>

#include "device/issue/order_internal.h"

/* The same entry in a further repetition; the events that it waits for are those of the last record. */
static void add_again(issue_maker *k, uint32_t stream, const uint32_t *end) {
  uint32_t at = k->issued[stream]++;
  const rt_queue *q = k->queues.streams;
  const rt_entry *e = &q[stream].entries[at];
  if (e->kind == RT_LAUNCH) issue_step_add(k, ISSUE_LAUNCH, (uint16_t)stream, e->task);
  if (e->kind == RT_WAIT && e->others) {
    bool here = end[e->other] - k->issued[e->other] <
                e->others; /* has the other one begun this repetition? */
    uint32_t last = here ? k->issued[e->other] : end[e->other];
    /* mutant: cuda_loop_forgets_the_last */
    issue_step_add(k, ISSUE_WAIT, (uint16_t)stream, k->event_of[e->other][last - 1]);
  }
  if (e->signals) issue_step_add(k, ISSUE_RECORD, (uint16_t)stream, k->event_of[stream][at]);
}

static void add_further(issue_maker *k, const rt_loop *l, const uint32_t *begin) {
  const rt_plan *plan = k->plan;
  issue_order *o = k->order;
  issue_loop again = {o->steps.len, 0, l->times - 1};
  uint32_t *end = arena_copy(k->memory, k->issued, plan->n_streams * sizeof *end);
  memcpy(k->issued, begin, plan->n_streams * sizeof *begin);
  for (uint32_t i = l->first; i < l->first + l->n; i++) {
    add_again(k, plan->instrs[i].stream, end);
    o->again[i] = o->steps.len;
  }
  again.n = o->steps.len - again.first;
  o->upto[l->first + l->n - 1] = o->steps.len;
  if (again.n > 0) vec_push(k->memory, &o->loops, again);
}

static void add_range(issue_maker *k, uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < end; i++) {
    issue_entry_add(k, k->plan->instrs[i].stream);
    k->order->upto[i] = k->order->steps.len;
  }
}

void issue_loops_add(issue_maker *k) {
  const rt_plan *plan = k->plan;
  uint32_t *begin = ARENA_ARRAY(k->memory, plan->n_streams, uint32_t), at = 0;
  check(plan->n_posts == 0);
  k->order->again = ARENA_ARRAY(k->memory, plan->n_instrs, uint32_t);
  for (uint32_t i = 0; i < plan->n_loops; i++) {
    const rt_loop *l = &plan->loops[i];
    add_range(k, at, l->first);
    memcpy(begin, k->issued, plan->n_streams * sizeof *begin);
    add_range(k, l->first, l->first + l->n);
    if (l->times > 1 && l->n > 0) add_further(k, l, begin);
    at = l->first + l->n;
  }
  add_range(k, at, plan->n_instrs);
}
