/* Communications of one rank by themselves: the rules of runtime/comm.h, lifetimes, order of posting. */
#include "check/internal.h"

/* ---- rules ---- */
/* A made-up address: memory of different slots of the caller is far apart, the pool is one piece. */
static void *address_of(const rt_plan *plan, uint32_t view) {
  if (view == RT_NO_VIEW) return NULL;
  const rt_view *v = &plan->views[view];
  const rt_buffer *b = &plan->buffers[v->buffer];
  uint64_t memory = b->kind == RT_BUFFER_POOL     ? 1
                    : b->kind == RT_BUFFER_OUTPUT ? 2 + 2 * (uint64_t)b->slot
                                                  : 3 + 2 * (uint64_t)b->slot;
  return (void *)(uintptr_t)((memory << 44) + (uint64_t)(b->offset_bytes + v->offset_bytes));
}

rt_comm_request check_request(const rt_plan *plan, const rt_post *p) {
  return rt_post_request(p, address_of(plan, p->in), address_of(plan, p->out));
}

bool check_post_fits(const rt_plan *plan, const rt_post *post, const char **why) {
  rt_comm_request r = check_request(plan, post);
  status_clear();
  bool fits = rt_comm_request_check(&r, post->rank, IR_MESH_MAX_DEVICES) == STATUS_OK;
  *why = fits ? "" : status_message();
  return fits;
}

static check_finding finding(check_kind kind, uint32_t a, uint32_t b) {
  return (check_finding){.kind = kind,
                         .a = a,
                         .b = b,
                         .buffer = CHECK_NONE,
                         .other = CHECK_NONE,
                         .view_a = CHECK_NONE,
                         .view_b = CHECK_NONE};
}

/* Where posts of one team follow one another, the team is checked once. */
static bool keeps_rules(const check_analysis *c, const rt_post *post, const rt_post *last) {
  const char *why;
  bool known = last && last->team == post->team && last->n_team == post->n_team &&
               last->me == post->me && last->rank == post->rank && last->dtype == post->dtype;
  if (!known || (unsigned)post->kind >= IR_COMM_POSTED) return check_post_fits(c->plan, post, &why);
  rt_comm_request r = check_request(c->plan, post);
  status_clear();
  return rt_comm_request_check_rest(&r) == STATUS_OK;
}

/* The same for the post as its root makes it, if every member may be the root. */
static bool keeps_rules_anywhere(const check_analysis *c, const rt_post *post,
                                 const rt_post *last) {
  if (!keeps_rules(c, post, last)) return false;
  if (!c->options.any_root || !post->root_view) return true;
  rt_post at_root = rt_post_at_root(post);
  rt_comm_request r = check_request(c->plan, &at_root); /* of the same team */
  return rt_comm_request_check_rest(&r) == STATUS_OK;
}

static bool expect_rules(check_analysis *c, uint32_t instr, const rt_post *post,
                         const rt_post *last) {
  if (post->merged || keeps_rules_anywhere(c, post, last))
    return true; /* the last repetition tells */
  check_finding f = finding(CHECK_POST_RULE, CHECK_NONE, instr);
  check_found(c, &f);
  status_clear();
  return false;
}

/* A buffer must stay until a stream has waited. */
static void expect_kept(check_analysis *c, uint32_t instr, const rt_post *given, uint32_t joined) {
  rt_post post = c->options.any_root ? rt_post_at_root(given) : *given;
  const uint32_t views[] = {post.in, post.out};
  for (int k = 0; k < 2; k++) {
    if (views[k] == RT_NO_VIEW) continue;
    uint32_t buffer = check_view(c, views[k])->buffer;
    const rt_buffer *b = &c->plan->buffers[buffer];
    if (b->freed_at <= instr || b->freed_at > joined || b->freed_at == UINT32_MAX) continue;
    check_finding f = finding(CHECK_FREED_IN_FLIGHT, CHECK_NONE, instr);
    f.buffer = buffer;
    f.view_b = views[k];
    f.end_bytes = b->size_bytes;
    check_found(c, &f);
    return;
  }
}

/* ---- order ---- */
void check_teams_init(check_teams *t, arena *memory) {
  *t = (check_teams){.memory = memory};
  table_init(&t->index, memory);
}

typedef struct team_key {
  const check_teams *teams;
  const rt_post *post;
} team_key;

static bool same_team(const void *context, uint32_t value) {
  const team_key *key = context;
  const rt_post *a = key->post, *b = key->teams->first.data[value - 1];
  if (a->n_team != b->n_team) return false;
  for (uint32_t k = 0; k < a->n_team; k++)
    if (a->team[k] != b->team[k]) return false;
  return true;
}

static uint32_t find_team(check_teams *t, const rt_post *post) {
  uint64_t hash = hash_bytes(post->team, post->n_team * sizeof *post->team);
  team_key key = {t, post};
  uint32_t found = table_find(&t->index, hash, same_team, &key);
  if (found) return found - 1;
  vec_push(t->memory, &t->first, post);
  table_add(&t->index, hash, t->first.len);
  return t->first.len - 1;
}

uint32_t check_team_of(check_teams *t, const rt_post *post) {
  const rt_post *last = t->last;
  if (last && last->team == post->team && last->n_team == post->n_team) return t->number;
  t->last = post;
  return t->number = find_team(t, post);
}

typedef struct ordering {
  check_analysis *c;
  check_teams teams;
  map last;   /* with the same peers: the post + 1 */
  bool moves; /* one post is of several repetitions, with other peers in each: */
  uint32_t
      first; /* then the first message + 1, and whether all are in its chain, or on its stream */
  bool other_chain, other_stream;
} ordering;

static bool is_ordered(const check_analysis *c, uint32_t p, uint32_t q) {
  const rt_instr *instrs = c->plan->instrs;
  if (c->chain_of[p] != CHECK_NONE && c->chain_of[p] == c->chain_of[q]) return true;
  return instrs[c->post_at[p]].stream == instrs[c->post_at[q]].stream;
}

static void expect_order(ordering *o, uint64_t key, uint32_t post) {
  check_analysis *c = o->c;
  key |= (uint64_t)c->plan->posts[post].rank << 34;
  uint32_t before = map_get(&o->last, key, 0);
  map_put(&o->last, key, post + 1);
  if (before == 0 || is_ordered(c, before - 1, post)) return;
  check_finding f = finding(CHECK_POST_ORDER, c->post_at[before - 1], c->post_at[post]);
  check_found(c, &f);
}

/* Any two messages may have a peer in common. */
static void expect_one_order(ordering *o, uint32_t post) {
  check_analysis *c = o->c;
  if (!o->first) o->first = post + 1;
  uint32_t first = o->first - 1;
  const rt_instr *instrs = c->plan->instrs;
  if (post != first && (c->chain_of[post] == CHECK_NONE || c->chain_of[post] != c->chain_of[first]))
    o->other_chain = true;
  if (instrs[c->post_at[post]].stream != instrs[c->post_at[first]].stream) o->other_stream = true;
  if (!o->other_chain || !o->other_stream) return;
  check_finding f = finding(CHECK_POST_ORDER, c->post_at[first], c->post_at[post]);
  check_found(c, &f);
}

enum { MEETS_TEAM = 0, MEETS_RECEIVER = 1, MEETS_SENDER = 2 };

static void order_post(ordering *o, uint32_t post) {
  const rt_post *p = &o->c->plan->posts[post];
  if (!ir_comm_is_message(p->kind)) {
    expect_order(o, (uint64_t)check_team_of(&o->teams, p) << 2 | MEETS_TEAM, post);
    return;
  }
  if (o->moves) {
    expect_one_order(o, post);
    return;
  }
  if (p->kind != IR_COMM_RECV && p->to >= 0)
    expect_order(o, (uint64_t)p->team[p->to] << 2 | MEETS_RECEIVER, post);
  if (p->kind != IR_COMM_SEND && p->from >= 0)
    expect_order(o, (uint64_t)p->team[p->from] << 2 | MEETS_SENDER, post);
}

void check_posts(check_analysis *c) {
  const rt_plan *plan = c->plan;
  ordering o = {.c = c};
  const rt_post *last = NULL; /* that keeps the rules */
  if (plan->n_posts == 0) return;
  for (uint32_t p = 0; p < plan->n_posts; p++)
    o.moves = o.moves || (plan->posts[p].merged && rt_post_moves(&plan->posts[p]));
  check_teams_init(&o.teams, c->scratch);
  map_init(&o.last, c->scratch);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    if (plan->instrs[i].kind != RT_POST) continue;
    uint32_t post = plan->instrs[i].task;
    expect_kept(c, i, &plan->posts[post], c->first_join[post]);
    if (!expect_rules(c, i, &plan->posts[post], last)) continue;
    if (!plan->posts[post].merged) last = &plan->posts[post];
    order_post(&o, post);
  }
}
