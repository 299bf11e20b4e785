/* The plan as steps on lines: accesses, and lines that wait for one another.
 *
 * A line is a stream, or one of two things that run beside streams:
 *   lane    communications, one after the other: each is posted after the one before it has ended. Their
 *           accesses are the lane's, not the stream's that posts them
 *   chain   posts that must be posted in order (rt_post.before). It has no accesses of its own
 *
 *   RT_POST on u                     RT_JOIN on v
 *     u waits for the chain            v waits for the lane
 *     accesses, made by the lane
 *     the chain waits for u
 *     the lane waits for u
 *
 * With that, happens-before is that of launches and waits alone. A lane is used again only when no stream
 * will join its last communication any more, so a join always means the newest one.
 *
 * That a communication has ended when the next one of its lane is posted must not depend on waits that
 * may be taken out. Lanes are chosen by joins, chains and the order of streams alone, as long as there
 * are not too many of them; after that by waits too, and these waits are then needed. */
#include "check/internal.h"

enum { EXACT_LANES = 256, MAX_LANES = 2048 };

typedef struct lane {
  uint32_t post, n; /* the newest, and how many there were */
} lane;

typedef VEC(uint32_t)
    counts; /* by lane: how many of its communications have ended; 0 past the end */

/* What a line knows of the ends of communications. */
typedef struct knowledge {
  counts sure, all; /* without and with waits */
} knowledge;

typedef struct builder {
  check_analysis *c;
  VEC(lane) lanes;
  knowledge *streams, *chains;
  VEC(knowledge) posted;                /* by lane: what was known at the newest post */
  uint32_t *chain_of;                   /* by post, or CHECK_NONE */
  bool *has_next;                       /* by post: another one is posted after it */
  uint32_t *lane_of, *turn, *last_join; /* by post */
  bool too_many;
} builder;

/* ---- knowledge ---- */
static uint32_t count_of(const counts *c, uint32_t k) { return k < c->len ? c->data[k] : 0; }

static void set_count(arena *memory, counts *c, uint32_t k, uint32_t n) {
  while (c->len <= k) vec_push(memory, c, 0);
  if (c->data[k] < n) c->data[k] = n;
}

static void merge(arena *memory, counts *to, const counts *from) {
  for (uint32_t k = from->len; k-- > 0;)
    if (from->data[k]) set_count(memory, to, k, from->data[k]);
}

static void merge_both(const builder *b, knowledge *to, const knowledge *from) {
  merge(b->c->scratch, &to->sure, &from->sure);
  merge(b->c->scratch, &to->all, &from->all);
}

/* ---- chains ---- */
/* Posts that follow one another; where two follow the same one, the second begins a chain of its own,
 * and its order is not relied on. */
static uint32_t find_chains(builder *b) {
  const rt_plan *plan = b->c->plan;
  uint32_t n = 0;
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    uint32_t before = plan->posts[p].before;
    b->chain_of[p] = CHECK_NONE;
    if (before < p && !b->has_next[before]) {
      b->has_next[before] = true;
      if (b->chain_of[before] == CHECK_NONE) b->chain_of[before] = n++;
      b->chain_of[p] = b->chain_of[before];
    }
  }
  return n;
}

static bool follows(const builder *b, uint32_t post) {
  uint32_t before = b->c->plan->posts[post].before;
  return before < post && b->chain_of[post] != CHECK_NONE &&
         b->chain_of[before] == b->chain_of[post] && b->c->post_at[before] != CHECK_NONE;
}

/* ---- lanes ---- */
static bool is_free(const builder *b, const counts *known, uint32_t k, uint32_t instr) {
  const lane *l = &b->lanes.data[k];
  return count_of(known, k) == l->n && b->last_join[l->post] < instr;
}

static uint32_t find_lane(const builder *b, const counts *known, uint32_t instr) {
  for (uint32_t k = 0; k < b->lanes.len; k++)
    if (is_free(b, known, k, instr)) return k;
  return CHECK_NONE;
}

static uint32_t take_lane(builder *b, uint32_t instr, uint32_t post, bool *by_waits) {
  arena *memory = b->c->scratch;
  const knowledge *mine = &b->streams[b->c->plan->instrs[instr].stream];
  uint32_t k = find_lane(b, &mine->sure, instr);
  *by_waits = false;
  if (k == CHECK_NONE && b->lanes.len >= EXACT_LANES) {
    k = find_lane(b, &mine->all, instr);
    *by_waits = k != CHECK_NONE;
  }
  if (k == CHECK_NONE) {
    k = b->lanes.len;
    b->too_many = k >= MAX_LANES;
    vec_push(memory, &b->lanes, (lane){0});
    vec_push(memory, &b->posted, (knowledge){0});
  }
  lane *l = &b->lanes.data[k];
  l->post = post;
  b->turn[post] = ++l->n;
  return b->lane_of[post] = k;
}

/* ---- steps ---- */
static void add(builder *b, uint32_t instr, check_step_kind kind, uint32_t line, uint32_t other) {
  check_step s = {.instr = instr, .kind = kind, .line = line, .other = other};
  s.fixed = b->c->plan->instrs[instr].kind != RT_WAIT;
  vec_push(b->c->scratch, &b->c->steps, s);
}

static void add_post(builder *b, uint32_t i) {
  check_analysis *c = b->c;
  const rt_instr *instr = &c->plan->instrs[i];
  uint32_t post = instr->task, u = instr->stream, chain = b->chain_of[post];
  bool by_waits;
  check(post < c->plan->n_posts);
  c->post_at[post] = i;
  if (follows(b, post)) {
    merge_both(b, &b->streams[u], &b->chains[chain]);
    add(b, i, CHECK_STEP_WAIT, u, c->plan->n_streams + chain);
  }
  uint32_t k = take_lane(b, i, post, &by_waits), line = c->first_lane + k;
  add(b, i, CHECK_STEP_ACCESS, u, line);
  c->steps.data[c->steps.len - 1].by_waits = by_waits;
  if (b->has_next[post]) {
    merge_both(b, &b->chains[chain], &b->streams[u]);
    add(b, i, CHECK_STEP_WAIT, c->plan->n_streams + chain, u);
  }
  b->posted.data[k].sure.len = b->posted.data[k].all.len = 0;
  merge_both(b, &b->posted.data[k], &b->streams[u]);
  add(b, i, CHECK_STEP_WAIT, line, u);
}

static void add_join(builder *b, uint32_t i) {
  check_analysis *c = b->c;
  const rt_instr *instr = &c->plan->instrs[i];
  check(instr->task < c->plan->n_posts);
  if (i == c->skip || c->post_at[instr->task] == CHECK_NONE) return;
  uint32_t k = b->lane_of[instr->task];
  knowledge *mine = &b->streams[instr->stream];
  if (c->first_join[instr->task] == CHECK_NONE) c->first_join[instr->task] = i;
  merge_both(b, mine, &b->posted.data[k]);
  set_count(c->scratch, &mine->sure, k, b->turn[instr->task]);
  set_count(c->scratch, &mine->all, k, b->turn[instr->task]);
  add(b, i, CHECK_STEP_WAIT, instr->stream, c->first_lane + k);
}

static void add_wait(builder *b, uint32_t i) {
  const rt_instr *instr = &b->c->plan->instrs[i];
  check(instr->other < b->c->plan->n_streams);
  if (i == b->c->skip) return;
  if (instr->other != instr->stream)
    merge(b->c->scratch, &b->streams[instr->stream].all, &b->streams[instr->other].all);
  add(b, i, CHECK_STEP_WAIT, instr->stream, instr->other);
}

static void add_instr(builder *b, uint32_t i) {
  const rt_instr *instr = &b->c->plan->instrs[i];
  check(instr->stream < b->c->plan->n_streams);
  switch ((rt_instr_kind)instr->kind) {
  case RT_LAUNCH: add(b, i, CHECK_STEP_ACCESS, instr->stream, instr->stream); break;
  case RT_WAIT: add_wait(b, i); break;
  case RT_POST: add_post(b, i); break;
  case RT_JOIN: add_join(b, i); break;
  }
}

static uint32_t *numbers(const check_analysis *c, uint32_t value) {
  uint32_t *list = ARENA_ARRAY(c->scratch, c->plan->n_posts, uint32_t);
  for (uint32_t k = 0; k < c->plan->n_posts; k++) list[k] = value;
  return list;
}

/* The step that a wait of the plan is, for callers that go by instruction. */
static void number_steps(check_analysis *c) {
  c->step_of = ARENA_ARRAY(c->scratch, (size_t)c->plan->n_instrs + 1, uint32_t);
  for (uint32_t s = c->steps.len; s-- > 0;) c->step_of[c->steps.data[s].instr] = s;
}

status check_steps(check_analysis *c) {
  const rt_plan *plan = c->plan;
  builder b = {.c = c};
  b.streams = ARENA_ARRAY(c->scratch, plan->n_streams, knowledge);
  b.chain_of = numbers(c, CHECK_NONE);
  b.lane_of = numbers(c, 0);
  b.turn = numbers(c, 0);
  b.last_join = numbers(c, CHECK_NONE);
  b.has_next = ARENA_ARRAY(c->scratch, plan->n_posts, bool);
  c->post_at = numbers(c, CHECK_NONE);
  c->first_join = numbers(c, CHECK_NONE);
  uint32_t n_chains = find_chains(&b);
  b.chains = ARENA_ARRAY(c->scratch, n_chains, knowledge);
  c->chain_of = b.chain_of;
  c->first_lane = plan->n_streams + n_chains;
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].kind == RT_JOIN && i != c->skip) b.last_join[plan->instrs[i].task] = i;
  for (uint32_t i = 0; i < plan->n_instrs && !b.too_many; i++) add_instr(&b, i);
  if (b.too_many)
    return fail(STATUS_UNAVAILABLE,
                "more than %d communications run at once, too many to prove their order",
                MAX_LANES);
  c->n_lines = c->first_lane + b.lanes.len;
  number_steps(c);
  return STATUS_OK;
}
