/* One walk over the plan: clocks, races, lifetimes, written before read, joins.
 *
 * Waits point backwards in the plan, so happens-before goes with plan order, and when a task is
 * reached the clock of its stream already holds all that happens before it. */
#include "check/internal.h"

typedef struct walk {
  check_analysis *c;
  uint32_t n_lines;
  uint32_t *clocks; /* row per line: per other line the bound below which it is ordered */
  uint32_t *known;  /* row per stream: up to where conflicts were found and dealt with */
  uint32_t *last;   /* per line: number + 1 of its last access */
  check_search search;
  /* Of writes by roots: a number by team and view, the roots seen of each, and how many. */
  check_teams teams;
  map team_views, roots;
  VEC(uint32_t) n_roots;
} walk;

static uint32_t *row(const walk *w, uint32_t *rows, uint32_t line) {
  return &rows[(size_t)line * w->n_lines];
}

void check_found(check_analysis *c, const check_finding *f) {
  check_report *r = c->report;
  r->count[f->kind]++;
  r->n_found++;
  if (r->findings.len < c->options.max_findings) vec_push(&r->memory, &r->findings, *f);
}

/* ---- findings ---- */
static check_finding finding(const check_analysis *c, check_kind kind, uint32_t access) {
  const check_access *a = &c->accesses.data[access];
  const check_footprint *f = &c->footprints[a->view];
  uint32_t buffer = check_view(c, a->view)->buffer;
  int64_t start = c->plan->buffers[buffer].offset_bytes - check_region_of(c, a->view)->begin;
  return (check_finding){.kind = kind,
                         .a = CHECK_NONE,
                         .b = a->instr,
                         .buffer = buffer,
                         .other = CHECK_NONE,
                         .view_a = CHECK_NONE,
                         .view_b = a->view,
                         .begin_bytes = f->begin - start,
                         .end_bytes = f->end - start};
}

/* Turns a range of the region into bytes of the finding's buffer. */
static void set_range(const check_analysis *c, check_finding *f, int64_t begin, int64_t end) {
  const check_region *r = &c->regions[c->region_of[f->buffer]];
  const rt_buffer *b = &c->plan->buffers[f->buffer];
  f->begin_bytes = begin + r->begin - b->offset_bytes;
  f->end_bytes = end + r->begin - b->offset_bytes;
}

static void set_other(const check_analysis *c, check_finding *f, uint32_t access) {
  const check_access *a = &c->accesses.data[access];
  int64_t begin, end;
  f->a = a->instr;
  f->view_a = a->view;
  f->other = check_view(c, a->view)->buffer;
  bool parted = check_region_of(c, f->view_a) != check_region_of(c, f->view_b);
  f->may = parted || !c->footprints[f->view_a].exact || !c->footprints[f->view_b].exact;
  if (check_footprints_meet(c, f->view_a, f->view_b, &begin, &end)) set_range(c, f, begin, end);
}

static void report_race(check_analysis *c, uint32_t access_a, uint32_t access_b) {
  const check_access *a = &c->accesses.data[access_a], *b = &c->accesses.data[access_b];
  check_kind kind = !b->write ? CHECK_RACE_RAW : a->write ? CHECK_RACE_WAW : CHECK_RACE_WAR;
  check_finding f = finding(c, kind, access_b);
  set_other(c, &f, access_a);
  if (c->object_of[f.buffer] != c->object_of[f.other]) f.kind = CHECK_REUSE;
  check_found(c, &f);
}

/* ---- one task ---- */
static bool is_empty(const check_analysis *c, uint32_t access) {
  const check_footprint *f = &c->footprints[c->accesses.data[access].view];
  return f->begin == f->end;
}

/* Whether an earlier access of the same task was to the same buffer. */
static bool is_repeated(const check_analysis *c, uint32_t access) {
  const check_access *a = &c->accesses.data[access];
  uint32_t buffer = check_view(c, a->view)->buffer;
  for (uint32_t k = c->first_access[a->step]; k < access; k++)
    if (check_view(c, c->accesses.data[k].view)->buffer == buffer && !is_empty(c, k)) return true;
  return false;
}

static void expect_alive(check_analysis *c, uint32_t access) {
  const check_access *a = &c->accesses.data[access];
  const rt_buffer *b = &c->plan->buffers[check_view(c, a->view)->buffer];
  if (a->instr >= b->allocated_at && a->instr < b->freed_at) return;
  if (is_empty(c, access) || is_repeated(c, access)) return;
  check_kind kind = a->instr < b->allocated_at ? CHECK_BEFORE_ALLOCATE : CHECK_AFTER_FREE;
  check_finding f = finding(c, kind, access);
  check_found(c, &f);
}

static void expect_written(check_analysis *c, uint32_t access) {
  const check_access *a = &c->accesses.data[access];
  const check_footprint *fp = &c->footprints[a->view];
  const check_region *r = check_region_of(c, a->view);
  if (check_view(c, a->view)->known) return;
  check_cover *cover = c->covers[c->object_of[check_view(c, a->view)->buffer]];
  if (!cover || fp->begin == fp->end || !fp->used) return;
  check_finding f = finding(c, CHECK_UNWRITTEN, access);
  if (!r->written) {
    check_found(c, &f);
    return;
  }
  for (uint32_t p = fp->first; p < fp->first + fp->n; p++) {
    int64_t hole[2 * CHECK_MAX_LEVELS], begin, end;
    if (check_cover_has(cover, check_piece(c, r, p), hole)) continue;
    check_box_range(&r->grid, hole, &begin, &end);
    set_range(c, &f, begin, end);
    f.may = !fp->exact || cover->partial;
    check_found(c, &f);
    return;
  }
}

/* An update leaves what it does not write as it was. */
static bool is_updated(const check_analysis *c, const rt_task *task, uint32_t view) {
  if (task->code != IR_OP_UPDATE || !check_same_view(c->plan, task->operands[0].view, view))
    return false;
  for (uint32_t k = 1; k < task->n_operands; k++)
    if (check_same_view(c->plan, task->operands[k].view, view)) return false;
  return true;
}

/* Whether each element of the results depends on the elements of this operand at its own place only. */
static bool is_elementwise(const check_analysis *c, const rt_task *task, uint32_t view) {
  if (!task->body) return ir_op_is_elementwise(task->code) || is_updated(c, task, view);
  for (uint32_t k = 0; k < task->n_operands; k++) {
    bool here = check_same_view(c->plan, task->operands[k].view, view);
    if (here && !rt_body_in_place(task->body, k)) return false;
  }
  return true;
}

static void expect_apart(check_analysis *c, uint32_t read, uint32_t write) {
  const check_access *a = &c->accesses.data[read], *b = &c->accesses.data[write];
  const rt_task *task = &c->plan->tasks[c->plan->instrs[a->instr].task];
  int64_t begin, end;
  if (!check_footprints_meet(c, a->view, b->view, &begin, &end)) return;
  if (check_same_view(c->plan, a->view, b->view) && is_elementwise(c, task, a->view)) return;
  check_finding f = finding(c, CHECK_IN_TASK, write);
  set_other(c, &f, read);
  check_found(c, &f);
}

/* Elements of a result must not share bytes: which of them stays would be undefined. */
static void expect_distinct(check_analysis *c, uint32_t write) {
  uint32_t view = c->accesses.data[write].view;
  if (!c->footprints[view].used) return;
  rt_overlap overlap = rt_view_overlap(check_view(c, view));
  if (overlap == RT_APART) return;
  check_finding f = finding(c, CHECK_SHARED, write);
  f.may = overlap == RT_MAY_OVERLAP;
  check_found(c, &f);
}

/* The same for two results of one task. */
static void expect_disjoint(check_analysis *c, uint32_t first, uint32_t second) {
  const check_access *a = &c->accesses.data[first], *b = &c->accesses.data[second];
  int64_t begin, end;
  if (!check_footprints_meet(c, a->view, b->view, &begin, &end)) return;
  check_finding f = finding(c, CHECK_SHARED, second);
  set_other(c, &f, first);
  check_found(c, &f);
}

/* What a task writes is apart from what it reads, from its other results, and element from element. */
static void expect_results(check_analysis *c, uint32_t step, bool launch) {
  uint32_t from = c->first_access[step], to = c->first_access[step + 1];
  for (uint32_t w = from; w < to; w++) {
    if (!c->accesses.data[w].write) continue;
    for (uint32_t k = from; k < w && launch; k++) {
      if (c->accesses.data[k].write) expect_disjoint(c, k, w);
      else expect_apart(c, k, w);
    }
    expect_distinct(c, w);
  }
}

static void search_conflicts(walk *w, uint32_t access) {
  check_analysis *c = w->c;
  const check_access *a = &c->accesses.data[access];
  const check_footprint *f = &c->footprints[a->view];
  const check_region *r = check_region_of(c, a->view);
  w->search.access = access;
  for (uint32_t p = f->first; p < f->first + f->n; p++)
    check_tree_search(&r->tree, check_piece(c, r, p), a->write, &w->search);
  check_reuse_search(c, a, &w->search);
}

/* What the search found must be in the clock; either way it need not be looked at again for this
 * stream, since later tasks of the stream are ordered after this one. */
static void settle_conflicts(walk *w, uint32_t step, uint32_t stream) {
  check_search *s = &w->search;
  for (uint32_t k = 0; k < s->n_touched; k++) {
    uint32_t other = s->touched[k], bound = s->need[other];
    if (bound > row(w, w->clocks, stream)[other]) report_race(w->c, bound - 1, s->by[other]);
    check_edge edge = {.step = step, .line = other, .bound = bound};
    vec_push(w->c->scratch, &w->c->edges, edge);
    row(w, w->known, stream)[other] = bound;
    s->need[other] = 0;
  }
  s->n_touched = 0;
}

/* A root writes, on one rank. When each member of the team has been the root once, for the same view, all
 * ranks have written. */
static bool is_written(walk *w, const check_access *a) {
  const rt_plan *plan = w->c->plan;
  if (!a->write || !a->rooted) return a->write;
  const rt_post *post = &plan->posts[plan->instrs[a->instr].task];
  uint64_t team = (uint64_t)check_team_of(&w->teams, post) << 32;
  uint32_t number = map_get(&w->team_views, team | a->view, 0);
  if (number == 0) {
    vec_push(w->c->scratch, &w->n_roots, 0);
    map_put(&w->team_views, team | a->view, number = w->n_roots.len);
  }
  uint64_t root = (uint64_t)number << 32 | post->root;
  if (map_get(&w->roots, root, 0) == 0) w->n_roots.data[number - 1]++;
  map_put(&w->roots, root, 1);
  return w->n_roots.data[number - 1] == post->n_team;
}

static void take_effect(walk *w, uint32_t access) {
  check_analysis *c = w->c;
  const check_access *a = &c->accesses.data[access];
  const check_footprint *f = &c->footprints[a->view];
  check_region *r = check_region_of(c, a->view);
  check_cover *cover = c->covers[c->object_of[check_view(c, a->view)->buffer]];
  bool written = is_written(w, a);
  for (uint32_t p = f->first; p < f->first + f->n; p++) {
    check_tree_insert(&r->tree, c->pieces.data[p], a->line, access, a->write);
    if (cover && written && f->exact) check_cover_add(cover, c->scratch, check_piece(c, r, p));
  }
  check_reuse_note(c, access);
  w->last[a->line] = access + 1;
}

/* A lane's next communication must be posted after the end of the one before. If that needs waits, they
 * stay. */
static void keep_lane(walk *w, uint32_t step, const check_step *s) {
  check_edge edge = {.step = step, .line = s->other, .bound = w->last[s->other]};
  if (s->by_waits && edge.bound) vec_push(w->c->scratch, &w->c->edges, edge);
}

/* Visits the accesses of a step. A conflict of a communication needs a wait of the stream that posts it. */
static void visit_accesses(walk *w, uint32_t step) {
  check_analysis *c = w->c;
  uint32_t from = c->first_access[step], to = c->first_access[step + 1];
  const check_step *s = &c->steps.data[step];
  uint32_t stream = s->line;
  bool launch = s->other == s->line;
  check_reuse_reach(c, s->instr);
  w->search.stream = stream;
  w->search.known = row(w, w->known, stream);
  for (uint32_t k = from; k < to; k++) {
    expect_alive(c, k);
    if (!c->accesses.data[k].write) expect_written(c, k);
    search_conflicts(w, k);
  }
  expect_results(c, step, launch);
  keep_lane(w, step, s);
  settle_conflicts(w, step, stream);
  for (uint32_t k = from; k < to; k++) take_effect(w, k);
}

static void visit_wait(walk *w, const check_step *s) {
  if (s->line == s->other) return;
  uint32_t *to = row(w, w->clocks, s->line), *from = row(w, w->clocks, s->other);
  for (uint32_t k = 0; k < w->n_lines; k++)
    if (from[k] > to[k]) to[k] = from[k];
  to[s->other] = w->last[s->other];
}

/* ---- the end ---- */
/* The main stream of the rank that a line belongs to. */
static uint32_t main_of(const check_analysis *c, const walk *w, uint32_t line) {
  const rt_plan *plan = c->plan;
  if (plan->n_ranks <= 1) return 0;
  uint32_t instr = c->accesses.data[w->last[line] - 1].instr;
  return plan->first_stream[rt_plan_rank(plan, plan->instrs[instr].stream)];
}

static void expect_joined(walk *w) {
  check_analysis *c = w->c;
  for (uint32_t s = 1; s < w->n_lines; s++) {
    if (!w->last[s]) continue;
    uint32_t main = main_of(c, w, s);
    check_edge edge = {.step = c->steps.len, .line = s, .bound = w->last[s]};
    vec_push(c->scratch, &c->edges, edge);
    if (s == main || row(w, w->clocks, main)[s] >= w->last[s]) continue;
    check_finding f = {.kind = CHECK_UNJOINED,
                       .a = c->accesses.data[w->last[s] - 1].instr,
                       .b = CHECK_NONE,
                       .buffer = CHECK_NONE,
                       .other = CHECK_NONE,
                       .view_a = CHECK_NONE,
                       .view_b = CHECK_NONE};
    check_found(c, &f);
  }
}

static void expect_complete(check_analysis *c, uint32_t buffer) {
  const rt_buffer *b = &c->plan->buffers[buffer];
  const check_region *r = &c->regions[c->region_of[buffer]];
  const check_cover *cover = c->covers[c->object_of[buffer]];
  if (b->kind != RT_BUFFER_OUTPUT || b->size_bytes <= 0) return;
  check_finding f = {.kind = CHECK_OUTPUT_UNWRITTEN,
                     .a = CHECK_NONE,
                     .b = CHECK_NONE,
                     .buffer = buffer,
                     .other = CHECK_NONE,
                     .view_a = CHECK_NONE,
                     .view_b = CHECK_NONE};
  int64_t begin = b->offset_bytes - r->begin, hole[2 * CHECK_MAX_LEVELS], hole_begin, hole_end;
  check_strided whole = check_range_strided(begin, begin + b->size_bytes);
  check_boxes boxes = {0};
  (void)check_grid_split(&r->grid, &whole, 1, c->scratch, &boxes);
  for (uint32_t k = 0; k < boxes.len; k += 2 * r->grid.levels) {
    if (check_cover_has(cover, &boxes.data[k], hole)) continue;
    check_box_range(&r->grid, hole, &hole_begin, &hole_end);
    set_range(c, &f, hole_begin, hole_end);
    f.may = cover->partial;
    check_found(c, &f);
    return;
  }
}

void check_order(check_analysis *c) {
  const rt_plan *plan = c->plan;
  uint32_t n = c->n_lines;
  walk w = {.c = c, .n_lines = n};
  w.clocks = ARENA_ARRAY(c->scratch, (size_t)n * n, uint32_t);
  w.known = ARENA_ARRAY(c->scratch, (size_t)plan->n_streams * n, uint32_t);
  w.last = ARENA_ARRAY(c->scratch, n, uint32_t);
  w.search.need = ARENA_ARRAY(c->scratch, n, uint32_t);
  w.search.by = ARENA_ARRAY(c->scratch, n, uint32_t);
  w.search.touched = ARENA_ARRAY(c->scratch, n, uint32_t);
  check_teams_init(&w.teams, c->scratch);
  map_init(&w.roots, c->scratch);
  map_init(&w.team_views, c->scratch);
  for (uint32_t s = 0; s < c->steps.len; s++) {
    if (c->steps.data[s].kind == CHECK_STEP_WAIT) visit_wait(&w, &c->steps.data[s]);
    else visit_accesses(&w, s);
  }
  expect_joined(&w);
  for (uint32_t b = 0; b < plan->n_buffers; b++) expect_complete(c, b);
}
