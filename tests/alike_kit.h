/* Ranks that are alike: is what one of them tells of all true? The plans of all ranks are compared,
 * and checked as they are and with one instruction changed on all ranks; both ways to check must
 * agree, and both ways to simulate must take the same time (docs/scale.md). */
#ifndef WEIR_TESTS_ALIKE_KIT_H
#define WEIR_TESTS_ALIKE_KIT_H

#include <stdio.h>

#include "check/check.h"
#include "runtime/device.h"

typedef struct alike_counts {
  uint32_t worlds, alike, mutants, killed;
  uint32_t doubts; /* where collectives have roots: one finds something, all do not */
  uint32_t kinds;  /* worlds of several kinds of ranks */
} alike_counts;

typedef enum alike_change { ALIKE_BLANK, ALIKE_COUNT, ALIKE_SWAP, ALIKE_CHANGES } alike_change;

static inline const rt_plan *alike_one(rt_plan *const *plans, uint32_t n) {
  for (uint32_t r = 0; r < n; r++)
    if (plans[r]->alike) return plans[r];
  return NULL;
}

/* The same instructions on the same streams; what they touch may lie elsewhere. */
static inline bool alike_same_plan(const rt_plan *a, const rt_plan *b) {
  bool same = a->n_instrs == b->n_instrs && a->n_streams == b->n_streams &&
              a->n_tasks == b->n_tasks && a->n_posts == b->n_posts &&
              a->n_buffers == b->n_buffers && a->pool_bytes == b->pool_bytes;
  for (uint32_t i = 0; same && i < a->n_instrs; i++) {
    const rt_instr *x = &a->instrs[i], *y = &b->instrs[i];
    same = x->kind == y->kind && x->stream == y->stream && x->other == y->other &&
           x->task == y->task && x->origin == y->origin;
  }
  for (uint32_t i = 0; same && i < a->n_buffers; i++)
    same = a->buffers[i].kind == b->buffers[i].kind &&
           a->buffers[i].offset_bytes == b->buffers[i].offset_bytes &&
           a->buffers[i].size_bytes == b->buffers[i].size_bytes;
  return same;
}

static inline uint64_t alike_redundant(const check_world_report *r) {
  uint64_t n = 0;
  for (uint32_t k = 0; k < r->n_plans; k++) n += r->ranks[k].n_redundant;
  return n * (r->n_ranks / r->n_plans);
}

/* Both ways to check; *passes is what the whole world says. */
static inline bool alike_checks_agree(rt_plan *const *plans, uint32_t n, const rt_plan *one,
                                      bool *passes, alike_counts *counts) {
  check_world_report all, by_one;
  if (check_world((const rt_plan *const *)plans, n, NULL, &all) != STATUS_OK) return false;
  bool agree = check_alike(one, n, NULL, &by_one) == STATUS_OK;
  *passes = all.n_found == 0;
  if (agree) {
    /* Every rank is looked at as the root: that may find what is no fault of any, and waits that
     * one of them needs are needed. */
    bool roots = rt_plan_has_roots(one), found = by_one.n_found > 0;
    agree = roots ? *passes || found : *passes == !found;
    for (int k = 0; k < CHECK_KIND_COUNT && !roots; k++) agree &= !all.count[k] == !by_one.count[k];
    if (!found)
      agree &=
          all.n_met == by_one.n_met && (roots ? alike_redundant(&all) >= alike_redundant(&by_one)
                                              : alike_redundant(&all) == alike_redundant(&by_one));
    counts->doubts += *passes && found;
    check_world_report_destroy(&by_one);
  }
  check_world_report_destroy(&all);
  return agree;
}

/* ---- ranks of several kinds ---- */
enum { ALIKE_KINDS = 8 };

/* A plan of each kind; 0: they are not known, or too many. */
static inline uint32_t alike_kinds(rt_plan *const *plans, uint32_t n, const rt_plan **kinds,
                                   uint32_t *times) {
  uint32_t n_kinds = 0;
  for (uint32_t r = 0; r < n; r++) {
    bool taken = false;
    if (!plans[r]->kin) return 0;
    for (uint32_t k = 0; k < n_kinds; k++) taken = taken || !kinds[k]->differs[r];
    if (taken) continue;
    if (n_kinds == ALIKE_KINDS) return 0;
    kinds[n_kinds] = plans[r];
    times[n_kinds] = 0;
    for (uint32_t i = 0; i < n; i++) times[n_kinds] += !plans[r]->differs[i];
    n_kinds++;
  }
  return n_kinds;
}

/* If the kinds pass, so does the world. */
static inline bool alike_kinds_agree(rt_plan *const *plans, uint32_t n, bool *passes,
                                     alike_counts *counts) {
  const rt_plan *kinds[ALIKE_KINDS];
  uint32_t times[ALIKE_KINDS], n_kinds = alike_kinds(plans, n, kinds, times);
  check_world_report all, few = {0};
  bool known = false;
  if (check_world((const rt_plan *const *)plans, n, NULL, &all) != STATUS_OK) return false;
  bool agree = check_kin(kinds, times, n_kinds, n, NULL, &known, &few) == STATUS_OK;
  *passes = all.n_found == 0;
  if (known) agree &= *passes && few.n_met == all.n_met;
  counts->doubts += *passes && !known;
  check_world_report_destroy(&few);
  check_world_report_destroy(&all);
  return agree;
}

static inline void alike_swap(rt_plan *plan, uint32_t i) {
  rt_instr t = plan->instrs[i];
  plan->instrs[i] = plan->instrs[i + 1];
  plan->instrs[i + 1] = t;
}

/* Changes instruction i; `old` takes it back (count and swap undo themselves). False: it cannot be. */
static inline bool alike_apply(rt_plan *plan, uint32_t i, alike_change change, bool back,
                               rt_instr *old) {
  rt_instr *instr = &plan->instrs[i];
  switch (change) {
  case ALIKE_BLANK:
    if (instr->kind == RT_LAUNCH) return false;
    if (!back) *old = *instr;
    *instr = back ? *old
                  : (rt_instr){.kind = RT_WAIT,
                               .stream = instr->stream,
                               .other = instr->stream,
                               .origin = instr->origin};
    return true;
  case ALIKE_COUNT: {
    if (instr->kind != RT_POST) return false;
    rt_post *p = &plan->posts[instr->task];
    if (p->kind != IR_COMM_SEND && p->kind != IR_COMM_PERMUTE) return false;
    p->count += back ? 1 : -1;
    return true;
  }
  case ALIKE_SWAP:
    if (!back && (i + 1 >= plan->n_instrs || instr->kind == RT_LAUNCH)) return false;
    alike_swap(plan, i);
    return true;
  case ALIKE_CHANGES: break;
  }
  return false;
}

static inline bool alike_mutant(rt_plan *const *plans, uint32_t n, const rt_plan *one, uint32_t i,
                                alike_change change, alike_counts *counts) {
  rt_instr old[64];
  bool passes = true;
  check(n <= 64);
  uint32_t changed = 0;
  while (changed < n && alike_apply(plans[changed], i, change, false, &old[changed])) changed++;
  for (uint32_t r = 0; changed < n && r < changed; r++)
    (void)alike_apply(plans[r], i, change, true, &old[r]);
  if (changed < n) return true; /* ranks of several kinds do not all have it there */
  bool agree = one ? alike_checks_agree(plans, n, one, &passes, counts)
                   : alike_kinds_agree(plans, n, &passes, counts);
  for (uint32_t r = 0; r < n; r++) (void)alike_apply(plans[r], i, change, true, &old[r]);
  counts->mutants++;
  counts->killed += !passes;
  if (!agree)
    fprintf(stderr, "one of %u ranks tells something else: change %d of instruction %u\n", n,
            (int)change, i);
  return agree;
}

/* ---- the simulator: the ranks that are enough take as long as all ---- */
static inline bool alike_time(const rt_plan *plan, const rt_speed *machine, int64_t *ns) {
  rt_device_options o = {.machine = machine, .threads = 2};
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  bool ok = rt_device_find("sim")->open(&o, &memory_default, &d) == STATUS_OK;
  ok = ok && d->ops->load(d, plan, &l) == STATUS_OK;
  *ns = -1;
  if (ok && rt_run(l, NULL, NULL, NULL, NULL) == STATUS_OK) *ns = l->ops->outcome(l).total_ns;
  status_clear(); /* those that do not meet never end */
  if (l) d->ops->unload(l);
  if (d) d->ops->close(d);
  return ok;
}

static inline bool alike_time_agrees(rt_plan *const *plans, uint32_t n, const rt_speed *machine) {
  rt_plan *all = NULL, *some = NULL;
  rt_device *d = NULL;
  int64_t by_all = 0, by_some = -2;
  bool ok = rt_device_find("sim")->open(&(rt_device_options){.machine = machine}, &memory_default,
                                        &d) == STATUS_OK;
  uint32_t enough = ok ? d->ops->enough(d, plans[0]) : 0;
  ok = ok && rt_plan_join(plans, n, &memory_default, &all) == STATUS_OK;
  ok = ok && alike_time(all, machine, &by_all);
  if (ok && enough > 1) {
    ok = rt_plan_join(plans, enough, &memory_default, &some) == STATUS_OK;
    if (ok) some->alike = plans[0]->alike;
  }
  ok = ok && alike_time(some ? some : plans[0], machine, &by_some) && by_all == by_some;
  if (!ok)
    fprintf(stderr, "%u of %u ranks with islands of %g take %lld ns, all %lld ns\n", enough, n,
            machine->island, (long long)by_some, (long long)by_all);
  rt_plan_destroy(some);
  rt_plan_destroy(all);
  if (d) d->ops->close(d);
  return ok;
}

static inline bool alike_times_agree(rt_plan *const *plans, uint32_t n) {
  static const double islands[] = {0, 2, 3, 8};
  rt_speed m = {.flops_per_ns = 1, .bytes_per_ns = 3, .launch_ns = 50, .issue_ns = 7};
  m.link_bytes_per_ns = 0.5;
  m.link_latency_ns = 300;
  m.far_bytes_per_ns = 0.1;
  m.far_latency_ns = 1100;
  m.threads = 2;
  for (uint32_t i = 0; plans[0]->alike && i < 4; i++) {
    m.island = islands[i];
    if (!alike_time_agrees(plans, n, &m)) return false;
  }
  return true;
}

/* Ranks of one kind have one plan, and say the same of the others. */
static inline bool alike_judge_kinds(rt_plan *const *plans, uint32_t n, uint32_t every,
                                     alike_counts *counts) {
  const rt_plan *kinds[ALIKE_KINDS];
  uint32_t times[ALIKE_KINDS], n_kinds = alike_kinds(plans, n, kinds, times);
  bool passes, same = true, as_long = true;
  if (n_kinds == 0) return true;
  counts->kinds++;
  for (uint32_t k = 0; k < n_kinds; k++)
    for (uint32_t r = 0; r < n; r++) {
      bool like = !kinds[k]->differs[r];
      for (uint32_t i = 0; like && same && i < n; i++)
        same = plans[r]->differs[i] == kinds[k]->differs[i];
      if (!same || (like && !alike_same_plan(kinds[k], plans[r]))) {
        fprintf(stderr, "rank %u is not like the others of its kind\n", r);
        return false;
      }
      as_long = as_long && plans[r]->n_instrs == plans[0]->n_instrs;
    }
  if (!alike_kinds_agree(plans, n, &passes, counts)) return false;
  for (uint32_t i = 0; as_long && every && i < plans[0]->n_instrs; i += every)
    for (int c = 0; c < ALIKE_CHANGES; c++)
      if (!alike_mutant(plans, n, NULL, i, (alike_change)c, counts)) return false;
  return true;
}

/* Plans of n ranks, bound with world = n. Of each `every` instructions one is changed; 0: none. */
static inline bool alike_judge(rt_plan *const *plans, uint32_t n, uint32_t every,
                               alike_counts *counts) {
  const rt_plan *one = alike_one(plans, n);
  bool passes;
  counts->worlds += n > 1;
  if (!one) return alike_judge_kinds(plans, n, every, counts);
  counts->alike++;
  for (uint32_t r = 0; r < n; r++) {
    if (alike_same_plan(one, plans[r])) continue;
    fprintf(stderr, "rank %u is not like the others\n", r);
    return false;
  }
  if (!alike_checks_agree(plans, n, one, &passes, counts)) {
    fprintf(stderr, "one of %u ranks tells something else\n", n);
    return false;
  }
  if (!alike_times_agree(plans, n)) return false;
  for (uint32_t i = 0; every && i < one->n_instrs; i += every)
    for (int c = 0; c < ALIKE_CHANGES; c++)
      if (!alike_mutant(plans, n, one, i, (alike_change)c, counts)) return false;
  return true;
}

#endif
