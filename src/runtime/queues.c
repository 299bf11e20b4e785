#include "runtime/queues.h"

static void make_room(const rt_plan *plan, arena *memory, rt_queues *q) {
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    check(plan->instrs[i].stream < plan->n_streams);
    q->streams[plan->instrs[i].stream].n++;
  }
  for (uint32_t s = 0; s < q->n_streams; s++) {
    q->streams[s].entries = ARENA_ARRAY(memory, q->streams[s].n, rt_entry);
    q->streams[s].n = 0;
  }
}

/* A stream that waits for itself waits for nothing. */
static void aim(rt_queues *q, const rt_instr *instr, rt_entry *e) {
  check(instr->other < q->n_streams);
  e->other = instr->other;
  e->target = instr->other == instr->stream ? 0 : q->streams[instr->other].n;
  if (e->target) q->streams[e->other].entries[e->target - 1].signals = true;
}

void rt_queues_build(const rt_plan *plan, arena *memory, rt_queues *result) {
  check(plan->n_streams <= RT_MAX_STREAMS);
  rt_queues q = {.n_streams = plan->n_streams};
  q.streams = ARENA_ARRAY(memory, q.n_streams, rt_queue);
  make_room(plan, memory, &q);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    rt_entry e = {.instr = i, .kind = instr->kind};
    switch ((rt_instr_kind)instr->kind) {
    case RT_WAIT: aim(&q, instr, &e); break;
    case RT_LAUNCH:
      check(instr->task < plan->n_tasks);
      e.task = instr->task;
      e.launch = q.n_launches++;
      break;
    case RT_POST:
    case RT_JOIN:
      check(instr->task < plan->n_posts);
      e.task = instr->task;
      break;
    }
    rt_queue *own = &q.streams[instr->stream];
    own->entries[own->n++] = e;
  }
  *result = q;
}
