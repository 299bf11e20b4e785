/* The plan checker: proves that a plan's result does not depend on how its streams interleave.
 *
 *   check_report report;
 *   TRY(check_plan(plan, NULL, &report));
 *   if (report.n_found) check_report_text(&report, &out);
 *   check_report_destroy(&report);
 *
 * Happens-before is that of runtime/plan.h: the order within a stream, RT_WAIT, and communications from
 * RT_POST to RT_JOIN. A plan passes when (a communication being a task that runs beside its stream)
 *   - two tasks that touch a common byte, at least one of them writing it, are ordered;
 *   - what a task reads from the pool or from an output, an earlier task has written through the same
 *     buffer (being a conflict, the two are then ordered), and every output is written completely;
 *   - buffers are accessed from instruction `allocated_at` on and before instruction `freed_at`, within
 *     their bytes, and no two buffers that live at the same time share bytes of the pool;
 *   - stream 0 ends after all tasks of all streams;
 *   - communications keep to the rules of runtime/comm.h, and those that meet the same peers are posted
 *     in a certain order;
 *   - a task's result overlaps none of its operands, unless the operand is the same view and the
 *     operation works element by element; and no two elements of its results share bytes.
 * Bytes are compared exactly, so that interleaved slices of one tensor are known to be disjoint; where
 * that would take too long, the answer is conservative and the finding says `may`. docs/checker.md has
 * definitions, limits and costs.
 *
 * A plan with loops is judged as if it were unrolled. Findings name instructions of the unrolled plan
 * (loops.c).
 *
 * check_world() does this for the plans of all devices, and proves that their communications fit
 * together and that no cycle of waits keeps them from ending. */
#ifndef WEIR_CHECK_CHECK_H
#define WEIR_CHECK_CHECK_H

#include "base/strbuf.h"
#include "base/vec.h"
#include "runtime/plan.h"

enum { CHECK_NONE = UINT32_MAX };

typedef enum check_kind {
#define KIND(id, name) CHECK_##id,
#include "check/kinds.def"
#undef KIND
  CHECK_KIND_COUNT
} check_kind;

/* One finding. Of two instructions `a` is first in the plan.
 *
 * Races and REUSE are reported once per missing wait: for the first task `b` of a stream that needs it,
 * with the last task `a` of the other stream that `b` must come after. Tasks that the same wait would
 * order too are not reported again. */
typedef struct check_finding {
  check_kind kind;
  uint32_t a, b;   /* instructions, or CHECK_NONE; a single one is b (UNJOINED: a) */
  uint32_t buffer; /* that b accesses (LAYOUT: the second buffer; OUTPUT_UNWRITTEN: the output) */
  uint32_t other;  /* that a accesses (LAYOUT: the first buffer), or CHECK_NONE */
  uint32_t view_a, view_b;        /* the accesses, or CHECK_NONE */
  int64_t begin_bytes, end_bytes; /* from the start of `buffer`; the hull if strided */
  bool may;                       /* the bytes were too many to compare exactly */
} check_finding;

/* Is an RT_WAIT needed? It is redundant if the plan without it still passes. Each wait is judged with all others
 * in place: of two that order the same, both are redundant until one is removed. */
typedef enum check_verdict {
  CHECK_WAIT_NEEDED,     /* without it task b is not ordered after task a */
  CHECK_WAIT_IMPLIED,    /* redundant: what it waits for is ordered already */
  CHECK_WAIT_UNUSED,     /* redundant: it orders something, but nothing that conflicts */
  CHECK_WAIT_UNEXAMINED, /* the plan fails, or the work limit was reached */
} check_verdict;

/* NEEDED: it orders the tasks a and b; b is CHECK_NONE for the end of stream 0. Both CHECK_NONE: in a
 * loop, for several repetitions together. */
typedef struct check_wait {
  uint32_t instr;
  check_verdict verdict;
  uint32_t a, b;
} check_wait;

typedef struct check_options {
  const allocator *memory; /* NULL: malloc */
  uint32_t max_findings;   /* kept; the rest are counted. 0: 100 */
  uint32_t max_boxes;      /* per view before bytes are compared conservatively. 0: 4096 */
  uint32_t
      max_walked; /* per view before buffers that share memory are looked at one by one. 0: 64 */
  uint64_t max_wait_steps; /* spent on judging waits. 0: 2^31 */
  bool no_waits;           /* leave waits unexamined */
  /* The plan represents all ranks, which are alike: every member of a collective may be its root. What a root
   * receives counts as written when each member has been the root once. */
  bool any_root;
  bool trusted; /* plans that have passed (rt_plan.passed) are not checked again one by one */
} check_options;

typedef struct check_report {
  arena memory;
  const rt_plan *plan;              /* must outlive the report for its text */
  rt_plan *unrolled;                /* `plan`, if it is an unrolled copy; else NULL */
  uint32_t rank;                    /* the device, for the text, or CHECK_NONE: there is only one */
  VEC(check_finding) findings;      /* those kept */
  uint64_t n_found;                 /* findings, also those not kept; 0: the plan passes */
  uint64_t count[CHECK_KIND_COUNT]; /* the same by kind */
  VEC(check_wait) waits;            /* every RT_WAIT, in plan order */
  uint32_t n_redundant, n_unexamined;
} check_report;

/* OK when the check was done, whatever it found. `options` may be NULL. */
NODISCARD status check_plan(const rt_plan *plan, const check_options *options,
                            check_report *report);
void check_report_destroy(check_report *report); /* accepts a zeroed report */

/* Does the plan without the RT_WAIT or RT_JOIN `instr` fail? Found by checking that plan, as the definition says;
 * check_plan() finds the same for all waits of a passing plan at once. */
NODISCARD status check_wait_is_needed(const rt_plan *plan, uint32_t instr,
                                      const check_options *options, bool *needed);

/* Removes as many redundant waits as can go together. The plan still passes, and each wait left is needed (except
 * in very long plans, where judging the last ones may take too long). Joins of communications stay. Does
 * nothing to a plan that does not pass, or that is of several ranks. */
NODISCARD status check_prune_waits(rt_plan *plan, const allocator *memory, uint32_t *removed);
/* The same for a plan that represents all ranks (any_root): a wait stays if some rank needs it. */
NODISCARD status check_prune_alike(rt_plan *plan, const allocator *memory, uint32_t *removed);
/* The same without a check, for ranks that are alike and have no roots: removes the waits that were removed from
 * `like`, another rank's plan of the same program. False: that does not apply. */
bool check_prune_like(rt_plan *plan, const rt_plan *like);

/* ---- donated memory ---- */
typedef struct check_alias_result {
  bool safe;
  char why[200]; /* why not, if it is not safe */
} check_alias_result;

/* May output slot `output` have the memory of input slot `input`? Every read of the input must come
 * before the output is written there, or be of the same element in the same task. Of one rank;
 * conservative. (alias.c) */
NODISCARD status check_alias(const rt_plan *plan, uint32_t input, uint32_t output,
                             const allocator *memory, check_alias_result *result);

/* ---- several devices ---- */
/* A finding about two ranks. MISMATCH: `a` and `b` are posts at the same position that differ. ABSENT: rank_b has no
 * post that matches `a`; b is its last one with the same peers, or CHECK_NONE. DEADLOCK: stops
 * [first, first + n) are a cycle of waits; `a` and `b` are where two of its ranks wait. */
typedef struct check_meeting {
  check_kind kind;
  uint32_t rank_a, a, rank_b, b; /* instructions of the ranks' plans */
  uint32_t turn; /* MISMATCH, ABSENT: how many were posted before with these peers */
  uint32_t first, n;
} check_meeting;

/* A stream that is stuck at `instr` until rank `for_rank` gets past `for_instr`. */
typedef struct check_stop {
  uint32_t rank, instr, for_rank, for_instr;
} check_stop;

typedef struct check_world_report {
  arena memory;
  uint32_t n_ranks;
  uint32_t n_plans;      /* n_ranks, or 1 where all ranks are alike, or one of each kind */
  const uint32_t *times; /* by plan, of several kinds: how many ranks it represents; else NULL */
  const rt_plan *const *plans; /* must outlive the report for its text */
  rt_plan *unrolled;           /* those among them that it made itself; NULL: none */
  check_report *ranks;         /* the findings about each plan alone */
  VEC(check_meeting) meetings; /* those kept */
  VEC(check_stop) stops;
  uint64_t n_found;                 /* in all, of all ranks; 0: the program passes */
  uint64_t count[CHECK_KIND_COUNT]; /* of meetings */
  uint64_t n_met;                   /* collectives and messages that match */
} check_world_report;

/* Checks the plans of ranks 0 … n - 1, each alone and all together. Communications are matched if no plan breaks
 * the rules of posts; deadlocks are looked for if all communications match. */
NODISCARD status check_world(const rt_plan *const *plans, uint32_t n, const check_options *options,
                             check_world_report *report);
/* The same for n ranks that are all alike (plan->alike), by the plan of one of them; the cost does not depend on
 * n. A finding about a pair of ranks is one for every rank (docs/scale.md). If collectives have roots, a
 * finding in the plan alone may be false; finding nothing is a proof all the same. */
NODISCARD status check_alike(const rt_plan *plan, uint32_t n, const check_options *options,
                             check_world_report *report);
/* The same for n ranks of a few kinds, by a plan of each kind (plan->kin); plans[k] represents times[k] ranks. All
 * kinds must post and wait alike. If they do not, or if anything is found, *known is false and there is no
 * report: all ranks must be checked. (kin.c) */
NODISCARD status check_kin(const rt_plan *const *plans, const uint32_t *times, uint32_t n_plans,
                           uint32_t n, const check_options *options, bool *known,
                           check_world_report *report);
void check_world_report_destroy(check_world_report *report); /* accepts a zeroed report */

/* ---- text; only inside a memory_guard() ----
 * Streams are named as in host programs: `main`, and worker streams by their index. */
const char *check_kind_name(check_kind kind);
/* One note per redundant wait. */
void check_waits_text(const check_report *report, strbuf *out);
/* All of it, and a line with the totals. */
void check_report_text(const check_report *report, strbuf *out);
/* The same for several ranks; what several of them have in common is written once. */
void check_world_text(const check_world_report *report, strbuf *out);
/* Where the instruction is in the host program's text; false: not known. */
bool check_instr_place(const rt_plan *plan, uint32_t instr, arena *memory, const char **file,
                       uint32_t *line, uint32_t *column);

#endif
