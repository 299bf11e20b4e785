/* Loops in which one communication depends on another are written as several, one after the other.
 *
 *   for i in n stream { a;  allreduce;  b;  allreduce }
 *     =>  for i in n stream { a;  allreduce }
 *         for i in n stream { b;  allreduce }
 *
 * All devices post the communications of a team in the order of the program. In one loop that is:
 * all of the first iteration, then all of the second, which so has nothing under way while the
 * first one computes. In several, the iterations take turns with their communications. Iteration i
 * of each loop goes on where that of the loop before ended, on the same stream; the streams are
 * joined after the last one only.
 *
 * What one loop hands to the next has a buffer for all iterations. So that not all of them are
 * there at once, a nest has a few phases at most. */
#include "host/internal.h"

enum { MOST_PHASES = 8 };

/* The operations of a loop, which follow each other. */
typedef struct members {
  uint32_t first, len; /* in f->order */
} members;

static op_plan *plan_at(lowering *l, uint32_t i) { return &l->ops[l->f->order.data[i].id]; }

/* Does it communicate as a whole, and not piece by piece? */
static bool communicates(const op_plan *plan) {
  return plan->kind == STEP_MOVES || (plan->partial && !plan->unreduced);
}

/* Are iterations independent, and numbered alike on all devices? */
static bool is_plain(const op_plan *plan) {
  const stream_axis *a = &plan->axes.data[0];
  bool whole = plan->kind == STEP_COMPUTES || plan->kind == STEP_SLICES || plan->kind == STEP_MOVES;
  return plan->axes.len == 1 && whole && !a->reduction && !a->swizzled &&
         host_piece_level(plan) < 0;
}

static bool reads_communicated(lowering *l, ir_op o, uint32_t loop) {
  const ir_op_data *op = ir_op_at(l->f, o);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_op producer = l->producer[op->operands[k].id];
    const op_plan *made = &l->ops[producer.id];
    if (producer.id && made->axes.len && made->loop[0] == loop && communicates(made)) return true;
  }
  return false;
}

/* Operations after the last communication of the loop need no phase of their own. */
static uint32_t end_of_phases(lowering *l, members m) {
  uint32_t end = m.first;
  for (uint32_t i = m.first; i < m.first + m.len; i++) {
    if (!is_plain(plan_at(l, i))) return m.first;
    if (communicates(plan_at(l, i))) end = i + 1;
  }
  return end;
}

static void split_loop(lowering *l, members m) {
  uint32_t loop = plan_at(l, m.first)->loop[0], now = loop, n = 1;
  uint32_t end = end_of_phases(l, m);
  for (uint32_t i = m.first; i < m.first + m.len; i++) {
    if (i < end && reads_communicated(l, l->f->order.data[i], now)) {
      uint32_t next = l->n_loops++;
      vec_push(&l->scratch, &l->phases, ((loop_phase){next, n % MOST_PHASES ? now : UINT32_MAX}));
      now = next;
      n++;
    }
    plan_at(l, i)->loop[0] = now;
  }
}

void host_split_phases(lowering *l) {
  if (!l->shard) return;
  members m = {0};
  for (uint32_t i = 0; i < l->f->order.len; i += m.len ? m.len : 1) {
    const op_plan *plan = plan_at(l, i);
    m = (members){.first = i};
    if (plan->axes.len == 0) continue;
    uint32_t loop = plan->loop[0];
    while (i + m.len < l->f->order.len && plan_at(l, i + m.len)->axes.len &&
           plan_at(l, i + m.len)->loop[0] == loop)
      m.len++;
    split_loop(l, m);
  }
}

bool host_continues(const lowering *l, uint32_t loop, uint32_t before) {
  for (uint32_t i = 0; i < l->phases.len; i++)
    if (l->phases.data[i].loop == loop) return l->phases.data[i].after == before;
  return false;
}
