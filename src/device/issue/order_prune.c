/* Removes waits that change nothing, and notes which events are waited for.
 *
 * Between two copies on a stream, even a wait for an event that passed long ago costs the copy engine some
 * microseconds. Very long plans keep their waits, and so do plans with loops: what a stream knows in one repetition is
 * not what it knows in a later one. */
#include "device/issue/order_knows.h"

static void drop_waits(issue_maker *k) {
  issue_order *o = k->order;
  issue_knows x;
  if (k->plan->n_loops || !issue_knows_init(&x, k)) return;
  uint32_t kept = 0, at = 0;
  for (uint32_t i = 0; i < k->plan->n_instrs; i++) {
    for (; at < o->upto[i]; at++)
      if (issue_knows_step(&x, &o->steps.data[at])) o->steps.data[kept++] = o->steps.data[at];
    o->upto[i] = kept;
  }
  o->steps.len = kept;
}

void issue_order_prune(issue_maker *k) {
  issue_order *o = k->order;
  drop_waits(k);
  /* mutant: cuda_watch_takes_waits_for_work */
  if (k->options->as_posted && k->plan->n_posts > 0) issue_comms_mark(k);
  o->is_waited_for = ARENA_ARRAY(k->memory, o->n_events, bool);
  for (uint32_t i = 0; i < o->steps.len; i++)
    if (o->steps.data[i].kind == ISSUE_WAIT) o->is_waited_for[o->steps.data[i].index] = true;
}
