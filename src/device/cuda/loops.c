/* Loops of a plan: a task of a loop is in memory once, with the steps of its views from repetition to repetition.
 *
 * The order has the steps of a further repetition once (device/issue/order_loops.c). A run issues them again and
 * again; in repetition i = l->turn each address of a call is that of the first repetition, plus i times the step of
 * its view. So the memory of a loop does not depend on the number of repetitions. */
#include "device/cuda/device.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

/* ---- numbers ---- */
/* How many instructions and launches of this process come before a task. */
typedef struct numbers {
  uint32_t instrs, launches;
} numbers;

static void number_range(cuda_loaded *l, uint32_t first, uint32_t end, numbers *n) {
  const rt_plan *plan = plan_of(l);
  for (uint32_t i = first; i < end; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (!cuda_is_here(l, rt_plan_rank(plan, instr->stream))) continue;
    uint32_t at = n->instrs++;
    if (instr->kind != RT_LAUNCH) continue;
    cuda_task *t = &l->tasks[instr->task];
    t->is_here = true;
    t->instr = at;
    t->launch = n->launches++;
    t->stream = instr->stream;
    t->times = 1;
  }
}

static void number_loop(cuda_loaded *l, const rt_loop *loop, numbers *n) {
  const rt_plan *plan = plan_of(l);
  numbers before = *n;
  number_range(l, loop->first, loop->first + loop->n, n);
  uint32_t instrs = n->instrs - before.instrs, launches = n->launches - before.launches;
  for (uint32_t i = loop->first; i < loop->first + loop->n; i++) {
    if (plan->instrs[i].kind != RT_LAUNCH) continue;
    cuda_task *t = &l->tasks[plan->instrs[i].task];
    t->times = loop->times;
    t->more_instrs = instrs;
    t->more_launches = launches;
  }
  n->instrs += instrs * (loop->times - 1);
  n->launches += launches * (loop->times - 1);
}

void cuda_loops_number(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  numbers n = {0, 0};
  uint32_t at = 0;
  for (uint32_t k = 0; k < plan->n_loops; k++) {
    number_range(l, at, plan->loops[k].first, &n);
    number_loop(l, &plan->loops[k], &n);
    at = plan->loops[k].first + plan->loops[k].n;
  }
  number_range(l, at, plan->n_instrs, &n);
  l->n_launched = n.launches;
}

/* ---- what moves ---- */
const rt_view *cuda_start_view(const cuda_loaded *l, const rt_task *task, uint32_t start) {
  const rt_plan *plan = plan_of(l);
  bool operand = start > 0 && start <= task->n_operands;
  if (operand && task->operands[start - 1].kind != RT_OPERAND_VIEW) return NULL;
  if (operand) return &plan->views[task->operands[start - 1].view];
  return &plan->views[rt_task_result(task, start == 0 ? 0 : start - task->n_operands)];
}

static int64_t step_of(const cuda_loaded *l, const rt_task *task, const cg_pointer *p) {
  bool own =
      p->start == CG_START_SCRATCH || p->start == CG_START_SEED || p->start == CG_START_ERROR;
  const rt_view *v = own ? NULL : cuda_start_view(l, task, p->start);
  return v ? v->step_bytes : 0;
}

static void move_call(cuda_loaded *l, const rt_task *task, cuda_call *c) {
  int64_t *steps = ARENA_ARRAY(&l->memory, c->n_pointers + (size_t)1, int64_t);
  bool any = false;
  for (uint32_t p = 0; p < c->n_pointers; p++) {
    steps[p] = step_of(l, task, &c->pointers[p]);
    any = any || steps[p] != 0;
  }
  if (!any) return;
  c->steps = steps;
  c->moved = ARENA_ARRAY(&l->memory, c->n_pointers + (size_t)1, CUdeviceptr);
}

void cuda_loops_move(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  for (uint32_t t = 0; t < plan->n_tasks && plan->n_loops; t++)
    for (uint32_t i = 0; i < l->tasks[t].n_calls && l->tasks[t].times > 1; i++)
      move_call(l, &plan->tasks[t], &l->tasks[t].calls[i]);
}

const CUdeviceptr *cuda_loops_addresses(const cuda_call *c, uint32_t turn) {
  /* mutant: cuda_loop_stands_still */
  int64_t times = turn;
  for (uint32_t p = 0; p < c->n_pointers; p++)
    c->moved[p] = c->addresses[p] + (CUdeviceptr)(c->steps[p] * times);
  return c->moved;
}

/* ---- a run ---- */
void cuda_loops_begin(cuda_loaded *l) {
  l->issued = l->loop = l->turn = 0;
  l->bound = l->order.loops.len > 0 ? l->order.loops.data[0].first : UINT32_MAX;
}

void cuda_loops_cross(cuda_loaded *l) {
  const issue_loop *x = &l->order.loops.data[l->loop];
  if (l->turn < x->times) {
    l->turn++;
    l->issued = x->first;
    l->bound = x->first + x->n;
    return;
  }
  bool more = ++l->loop < l->order.loops.len;
  l->turn = 0;
  l->bound = more ? l->order.loops.data[l->loop].first : UINT32_MAX;
}

uint32_t cuda_loops_instr(const cuda_loaded *l) {
  const uint32_t *upto = l->turn ? l->order.again : l->order.upto;
  uint32_t instr = 0;
  while (instr < l->base.plan->n_instrs && upto[instr] <= l->failed_step) instr++;
  return instr;
}
