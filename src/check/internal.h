/* How the checker works, shared by its files.
 *
 *   steps    the plan as accesses and waits of lines: streams, and what runs beside them (steps.c)
 *   region   memory whose bytes can meet: one caller's slot, or pool buffers that overlap (access.c)
 *   grid     a region's mixed-radix coordinates, in which slices are boxes (grid.c)
 *   tree     the last access to each box, per line (tree.c)
 *   cover    which boxes of a buffer are written (cover.c)
 *   reuse    pool buffers of unrelated shapes that share memory, one after the other (reuse.c)
 *   order    one walk over the plan with vector clocks: findings, and what must stay ordered (order.c)
 *   waits    which waits that order needs (waits.c)
 *
 * An access is one view that one task or communication reads or writes. Accesses are numbered in plan
 * order; the clock of line u holds for every line s a bound: accesses of s below it happen before what
 * u does next. Every task has at least its write, every communication a buffer, so these numbers also
 * identify tasks and communications. */
#ifndef WEIR_CHECK_INTERNAL_H
#define WEIR_CHECK_INTERNAL_H

#include "base/table.h"
#include "base/vec.h"
#include "check/check.h"

/* ---- grid.c: views as boxes ----
 * Level l counts units of unit[l] bytes; unit[0] is 1 and each unit divides the next. Every byte has
 * one coordinate per level: below unit[l+1] / unit[l], at the last level unbounded. */
enum { CHECK_MAX_LEVELS = 8 };

typedef struct check_grid {
  uint32_t levels;
  int64_t unit[CHECK_MAX_LEVELS];
} check_grid;

/* A box is 2 * levels numbers: begin and end (exclusive) of each level. */
typedef VEC(int64_t) check_boxes;

/* The bytes at + Σ i_d * stride_d for 0 <= i_d < extent_d; strides ascend from 1. */
typedef struct check_strided {
  int64_t at;
  uint32_t n;
  struct {
    int64_t stride, extent;
  } dims[IR_MAX_RANK + 1];
} check_strided;

/* First byte and end of a view, from its buffer's start. False: the numbers overflow. A view without
 * elements has begin == end. */
bool check_view_range(const rt_view *v, int64_t *begin, int64_t *end);
/* The view, which is not empty, from address `at` of its buffer. */
check_strided check_view_strided(const rt_view *v, int64_t at);
check_strided check_range_strided(int64_t begin, int64_t end);

/* How much each stride is used by a region's views. */
typedef struct check_stride {
  int64_t stride, weight;
} check_stride;
typedef VEC(check_stride) check_strides;
void check_strides_add(check_strides *list, arena *memory, const check_strided *s);
check_grid check_grid_choose(check_strides *list);

/* Are at most `limit` steps walked along dimensions of `s` whose strides are no units? */
bool check_grid_fits(const check_grid *g, const check_strided *s, int64_t limit);
/* Appends the boxes of `s` to `out`. If that takes more than `limit` pieces, those of the whole range
 * from its first to its last byte, and false. */
bool check_grid_split(const check_grid *g, const check_strided *s, uint32_t limit, arena *memory,
                      check_boxes *out);

static inline bool check_box_meets(const int64_t *a, const int64_t *b, uint32_t levels) {
  for (uint32_t l = 0; l < levels; l++)
    if (a[2 * l] >= b[2 * l + 1] || b[2 * l] >= a[2 * l + 1]) return false;
  return true;
}

/* First and last byte + 1 of a box. */
void check_box_range(const check_grid *g, const int64_t *box, int64_t *begin, int64_t *end);

/* ---- steps.c ---- */
typedef enum check_step_kind { CHECK_STEP_ACCESS, CHECK_STEP_WAIT } check_step_kind;

typedef struct check_step {
  uint32_t instr; /* of the plan */
  uint32_t line;
  uint32_t other; /* WAIT: what the line waits for. ACCESS: the line that accesses are made by */
  check_step_kind kind;
  bool fixed;    /* it is no RT_WAIT, and cannot be removed */
  bool by_waits; /* ACCESS of a lane: waits must keep it after the end of the one before it */
} check_step;

/* ---- tree.c ---- */
/* Per line, the number + 1 of the last access. */
typedef struct check_slot {
  uint32_t stream, last;
} check_slot;
typedef VEC(check_slot) check_slots;
/* Notes an access of a line; the last one counts, in whatever order they come. */
void check_slots_put(arena *memory, check_slots *slots, check_slot slot);

typedef struct check_node {
  uint32_t parent, left, right; /* left: the box itself where right is 0 */
  check_slots any, writes;      /* of all boxes below */
} check_node;

typedef struct check_tree {
  arena *memory;
  uint32_t levels, n;
  const int64_t *boxes; /* n distinct boxes */
  check_node *nodes;    /* the root is node 0 */
  int64_t *bounds;      /* per node and coordinate: smallest and largest */
  uint32_t *leaf;       /* by box */
} check_tree;

/* What a task of `stream` looks for: per other stream the last conflicting access, if it is beyond what
 * is `known` already. */
typedef struct check_search {
  uint32_t stream, access;
  const uint32_t *known; /* per stream */
  uint32_t *need, *by;   /* result per stream: the other's number + 1, and `access` */
  uint32_t *touched, n_touched;
} check_search;

void check_tree_build(check_tree *t, arena *memory, uint32_t levels, const int64_t *boxes,
                      uint32_t n);
void check_tree_insert(check_tree *t, uint32_t box, uint32_t stream, uint32_t access, bool write);
/* Accesses whose box meets `box`: all of them for a write, writes only for a read. */
void check_tree_search(const check_tree *t, const int64_t *box, bool write, check_search *s);

/* ---- cover.c ---- */
typedef struct check_cover_node {
  uint32_t child; /* two nodes from here; 0: a leaf */
  int32_t at;     /* the cut, a boundary */
  uint8_t level;
  bool covered;
} check_cover_node;

typedef struct check_cover {
  uint32_t levels;
  bool partial;                      /* writes without exact boxes were left out */
  int64_t *bounds[CHECK_MAX_LEVELS]; /* sorted coordinates at which a write begins or ends */
  int32_t n_bounds[CHECK_MAX_LEVELS];
  VEC(check_cover_node) nodes; /* from 0: the space between the outermost boundaries */
} check_cover;

/* Prepares for the writes of `boxes`, none of them done. */
void check_cover_init(check_cover *c, arena *memory, uint32_t levels, const check_boxes *boxes);
void check_cover_add(check_cover *c, arena *memory, const int64_t *box);
/* Whether all of `box` is covered; else a box inside it that is not, in `hole`. */
bool check_cover_has(const check_cover *c, const int64_t *box, int64_t *hole);

/* ---- access.c ---- */
typedef struct check_region {
  int64_t begin; /* address of its first byte */
  bool written;  /* by any task */
  check_strides strides;
  check_grid grid;
  check_boxes boxes; /* distinct */
  uint32_t n_boxes;
  table index;
  check_tree tree; /* of a written region */
} check_region;

/* ---- reuse.c ---- */
typedef struct check_reuse check_reuse;

typedef struct check_footprint {
  bool used; /* by any task */
  bool exact;
  uint32_t first, n;  /* in `pieces`; n is 0 where it is empty or out of bounds */
  int64_t begin, end; /* in the buffer until regions are known, then in the region */
} check_footprint;

typedef struct check_access {
  uint32_t instr, step, view;
  uint32_t line;
  bool write;
  bool rooted; /* a write by the root of a collective alone (check_options.any_root) */
} check_access;

/* Line `line` must have happened up to access number `bound` before step `step`. */
typedef struct check_edge {
  uint32_t step, line, bound;
} check_edge;

typedef struct check_analysis {
  const rt_plan *plan;
  check_options options;
  uint32_t skip;       /* a wait or join to leave out, or CHECK_NONE */
  const bool *dropped; /* by step: waits to ignore; NULL: none */
  arena *scratch;
  check_report *report;

  VEC(check_step) steps;
  uint32_t n_lines, first_lane;   /* the plan's streams, then chains, then lanes */
  uint32_t *step_of;              /* by instruction: its first step */
  uint32_t *post_at, *first_join; /* by post: its RT_POST and first RT_JOIN, or CHECK_NONE */
  uint32_t *chain_of;             /* by post, or CHECK_NONE */

  check_region *regions;
  uint32_t n_regions;
  check_reuse *reuse;  /* NULL: no region was parted */
  uint32_t *region_of; /* by buffer */
  uint32_t *object_of; /* by buffer: the buffer through which its bytes count as written */

  check_footprint *footprints; /* by view */
  VEC(uint32_t) pieces;        /* box numbers */
  uint32_t boxes_left;
  VEC(check_access) accesses;
  uint32_t *first_access; /* by step, and the total */
  check_cover **covers;   /* by object; NULL: not needed */

  VEC(check_edge) edges; /* ordered by step; the end of stream 0 is steps.len */
} check_analysis;

/* ---- check.c ---- */
/* An empty report, as that of a plan that passes. */
check_report check_report_new(const rt_plan *plan, const allocator *memory);
/* Analyses the plan, but does not judge its waits; then() gets the analysis. */
NODISCARD status check_analyse(const rt_plan *plan, const check_options *options,
                               void (*then)(check_analysis *c, void *context), void *context);

/* ---- loops.c ---- */
/* Of a plan with loops; the options are complete. */
NODISCARD status check_looped(const rt_plan *plan, const check_options *options,
                              check_report *report);
NODISCARD status check_prune_looped(rt_plan *plan, bool any_root, const allocator *memory,
                                    uint32_t *removed);
/* The short plan (rt_plan_shorten), if its passing proves that the plan passes; NULL: it would not.
 * `examined` is the plan, with the buffers that its views are in. */
NODISCARD status check_shorten(const rt_plan *plan, const rt_plan *examined,
                               const allocator *memory, rt_plan **shortened, const uint32_t **from);

/* ---- access.c ---- */
/* A region without buffers yet, from address `begin` on. */
uint32_t check_new_region(check_analysis *c, int64_t begin);
/* The view, which is in bounds, by addresses of its region. */
check_strided check_region_strided(const check_analysis *c, uint32_t view);
/* Adds its strides to those that its region sees, unless it is empty or nothing is written there. */
void check_add_strides(check_analysis *c, uint32_t view);

/* ---- reuse.c ---- */
/* Gives each buffer of a region a region of its own, where they have no grid in common. Then grids are chosen, and
 * ranges of views are in their buffers. */
void check_reuse_part(check_analysis *c);
/* The walk reaches the instruction: buffers that were freed before it are what later ones must be ordered after. */
void check_reuse_reach(check_analysis *c, uint32_t instr);
/* What the access to memory that other buffers had before must be ordered after; to be called before
 * check_reuse_note(), which says that it has happened. */
void check_reuse_search(const check_analysis *c, const check_access *a, check_search *s);
void check_reuse_note(check_analysis *c, uint32_t access);

/* Fills the steps and what belongs to them. UNAVAILABLE: too many communications at once. */
NODISCARD status check_steps(check_analysis *c);
/* Fills everything from there down to `covers`. */
void check_collect(check_analysis *c);
bool check_same_view(const rt_plan *plan, uint32_t a, uint32_t b);
/* The first piece that two footprints share, as a range of the region; false: none. */
bool check_footprints_meet(const check_analysis *c, uint32_t view_a, uint32_t view_b,
                           int64_t *begin, int64_t *end);

/* ---- posts.c ---- */
/* The post as a request; memory has made-up addresses that overlap where the buffers do. */
rt_comm_request check_request(const rt_plan *plan, const rt_post *post);
/* Whether the post keeps to the rules; `why` is valid until the next call. */
bool check_post_fits(const rt_plan *plan, const rt_post *post, const char **why);
/* Numbers for teams, from 0; equal teams have the same number. */
typedef struct check_teams {
  arena *memory;
  table index;
  VEC(const rt_post *) first; /* a post of each */
  const rt_post *last;        /* the one that was asked for before, and its team */
  uint32_t number;
} check_teams;
void check_teams_init(check_teams *t, arena *memory);
uint32_t check_team_of(check_teams *t, const rt_post *post);
void check_posts(check_analysis *c);

/* ---- match.c: which posts are matched ----
 * A channel is a team, with a list per member, or a sender (member 0) and a receiver (member 1). The
 * k-th posts of all members are one meeting. */
typedef VEC(uint32_t) check_turns; /* RT_POSTs of a rank's plan, in order */
typedef struct check_channel {
  bool is_pair;
  uint32_t n;
  uint32_t *ranks; /* by member */
  check_turns *turns;
  uint32_t step;          /* of a pair of alike ranks: the step from sender to receiver (alike.c) */
  uint32_t times;         /* how many such channels there are: 1, unless ranks are alike */
  uint32_t first_meeting; /* number of the first; one per turn */
} check_channel;

/* A half of a permute, or the whole of another post. */
typedef struct check_part {
  uint32_t meeting, next; /* next: another part of the same post + 1; 0: none */
} check_part;

/* Of messages whose peers move with a loop. */
typedef struct check_stretches {
  bool *moves;      /* by instruction of the host program: it posts such messages, on some rank */
  uint32_t **begun; /* by rank and post: how many stretches have begun, its own included */
} check_stretches;

typedef struct check_match {
  arena *scratch;
  check_world_report *report;
  const ir_mesh_data *alike; /* all ranks are; NULL: each has its plan */
  const uint32_t *positions; /* by rank, in that mesh */
  uint32_t max_findings;
  VEC(check_channel) channels;
  uint32_t n_meetings;
  VEC(check_part) parts;
  uint32_t **first_part;            /* by rank and post: number + 1 in `parts`; 0: none */
  uint32_t *channel_of;             /* by meeting */
  const check_stretches *stretches; /* NULL: no message has a peer that moves */
  /* Some posts are matched across different loops, or with posts outside of loops: the plans must be unrolled
   * (docs/loops.md). */
  bool uneven;
} check_match;

/* Twice the number of loops before the instruction, and one more if it is in the next loop. */
uint32_t check_part_of(const rt_plan *plan, uint32_t instr);

/* Which of the plans is that of a rank. */
static inline uint32_t check_plan_number(const check_world_report *r, uint32_t rank) {
  return r->n_plans == 1 ? 0 : rank;
}
static inline const rt_plan *check_plan_of(const check_world_report *r, uint32_t rank) {
  return r->plans[check_plan_number(r, rank)];
}

/* ---- alike.c: steps from rank to rank in a mesh, as positions in it ---- */
void check_alike_begin(check_match *m);
/* The step from one rank to another; the rank that a step leads to, forward or back. */
uint32_t check_step_between(const check_match *m, uint32_t from, uint32_t to);
uint32_t check_step_from(const check_match *m, uint32_t rank, uint32_t step, bool back);

/* Do the plans of two kinds of ranks post and wait alike? (kin.c) */
bool check_same_posts(const check_match *m, const rt_plan *a, const rt_plan *b);

/* ---- peers.c ----
 * Messages whose peers move with a loop, and messages of the same instructions on other ranks, are in no channel. This
 * file proves that they match. If it cannot, `uneven` is set. */
void check_find_stretches(check_match *m);
bool check_is_in_stretch(const check_match *m, const rt_plan *plan, uint32_t instr);

/* Matches the posts of all ranks. False: something does not fit. */
bool check_match_posts(check_match *m);
void check_met(check_match *m, const check_meeting *f);
/* ---- deadlock.c ---- */
void check_deadlock(check_match *m);

/* ---- report.c, for report_ranks.c ---- */
void check_add_instr(const check_report *report, uint32_t instr, strbuf *out);
/* "checked 3 streams": the noun in singular or plural. */
void check_add_count(strbuf *out, const char *before, uint64_t n, const char *noun);
bool check_add_place(const rt_plan *plan, uint32_t instr, strbuf *out);
/* "FILE:LINE:COL: error: …" and what to do about it; lines end in '\n'. `who` names the ranks that it is
 * about ("rank 3: "), "" in a report of one plan. */
void check_add_finding(const check_report *report, const check_finding *f, const char *who,
                       strbuf *out);

/* ---- order.c, layout.c, waits.c ---- */
void check_found(check_analysis *c, const check_finding *f);
void check_layout(check_analysis *c);
void check_order(check_analysis *c);
void check_waits(check_analysis *c);

static inline const rt_view *check_view(const check_analysis *c, uint32_t view) {
  return &c->plan->views[view];
}
static inline check_region *check_region_of(const check_analysis *c, uint32_t view) {
  return &c->regions[c->region_of[check_view(c, view)->buffer]];
}
static inline const int64_t *check_piece(const check_analysis *c, const check_region *r,
                                         uint32_t piece) {
  return &r->boxes.data[(size_t)c->pieces.data[piece] * 2 * r->grid.levels];
}

#endif
