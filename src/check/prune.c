/* Taking out waits that a plan can do without, proof by proof. */
#include <string.h>

#include "check/check.h"

typedef struct pruning {
  const rt_plan *plan;
  const allocator *memory;
  arena scratch;
  bool *dropped;   /* by instruction */
  uint32_t *waits; /* candidates */
  uint32_t n_waits, n_dropped;
  rt_plan *result;
  status st;
} pruning;

/* The instruction numbers of buffers move with the instructions. */
static uint32_t *new_numbers(const pruning *p, arena *memory) {
  uint32_t *number = ARENA_ARRAY(memory, p->plan->n_instrs + 1, uint32_t);
  uint32_t n = 0;
  for (uint32_t i = 0; i <= p->plan->n_instrs; i++) {
    number[i] = n;
    n += i < p->plan->n_instrs && !p->dropped[i];
  }
  return number;
}

static void renumber(const uint32_t *number, uint32_t n_instrs, rt_buffer *b) {
  if (b->allocated_at <= n_instrs) b->allocated_at = number[b->allocated_at];
  if (b->freed_at <= n_instrs) b->freed_at = number[b->freed_at];
}

/* Writes what is left of the plan into `to`, whose tables have room for it; it may be the plan itself. */
static void copy_left(const pruning *p, arena *memory, rt_plan *to) {
  const rt_plan *from = p->plan;
  const uint32_t *number = new_numbers(p, memory);
  uint32_t n = 0, n_instrs = from->n_instrs;
  for (uint32_t i = 0; i < n_instrs; i++) {
    if (!p->dropped[i]) to->instrs[n++] = from->instrs[i];
  }
  to->n_instrs = n;
  for (uint32_t i = 0; i < from->n_buffers; i++) {
    to->buffers[i] = from->buffers[i];
    renumber(number, n_instrs, &to->buffers[i]);
  }
}

static bool passes(pruning *p) {
  rt_plan left = *p->plan;
  left.instrs = ARENA_ARRAY(&p->scratch, p->plan->n_instrs, rt_instr);
  left.buffers = ARENA_ARRAY(&p->scratch, p->plan->n_buffers, rt_buffer);
  copy_left(p, &p->scratch, &left);
  check_options options = {.memory = p->memory, .max_findings = 1, .no_waits = true};
  check_report report = {0};
  p->st = check_plan(&left, &options, &report);
  bool ok = p->st == STATUS_OK && report.n_found == 0;
  check_report_destroy(&report);
  return ok;
}

static void mark(pruning *p, uint32_t first, uint32_t n, bool dropped) {
  for (uint32_t i = first; i < first + n; i++) p->dropped[p->waits[i]] = dropped;
}

/* Drops all of a range if the plan passes without it, otherwise as much of each half as can go. */
static void try_range(pruning *p, uint32_t first, uint32_t n) {
  if (n == 0 || p->st != STATUS_OK) return;
  mark(p, first, n, true);
  if (passes(p)) {
    p->n_dropped += n;
    return;
  }
  mark(p, first, n, false);
  if (n == 1) return;
  try_range(p, first, n / 2);
  try_range(p, first + n / 2, n - n / 2);
}

static bool is_redundant(const check_wait *w) {
  return w->verdict == CHECK_WAIT_IMPLIED || w->verdict == CHECK_WAIT_UNUSED;
}

static status prune_guarded(void *context) {
  pruning *p = context;
  check_options options = {.memory = p->memory};
  check_report report = {0};
  p->dropped = arena_alloc(&p->scratch, p->plan->n_instrs);
  p->waits = ARENA_ARRAY(&p->scratch, p->plan->n_instrs, uint32_t);
  p->st =
      check_plan(p->plan, &options, &report); /* no arena may run out while the report is held */
  for (uint32_t i = 0; p->st == STATUS_OK && report.n_found == 0 && i < report.waits.len; i++) {
    if (is_redundant(&report.waits.data[i])) p->waits[p->n_waits++] = report.waits.data[i].instr;
  }
  check_report_destroy(&report);
  try_range(p, 0, p->n_waits);
  if (p->st == STATUS_OK && p->n_dropped > 0) copy_left(p, &p->scratch, p->result);
  return p->st;
}

status check_prune_waits(rt_plan *plan, const allocator *memory, uint32_t *removed) {
  pruning p = {.plan = plan, .memory = memory, .result = plan};
  arena_init(&p.scratch, memory);
  status st = memory_guard(prune_guarded, &p);
  arena_destroy(&p.scratch);
  if (st == STATUS_OK) *removed = p.n_dropped;
  return st;
}
