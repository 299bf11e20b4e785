#include "device/issue/meet.h"

typedef struct matching {
  issue_meetings *m;
  arena *memory;
  map meetings; /* by circle and turn */
  bool is_here[RT_COMM_MAX_RANKS];
} matching;

static uint32_t join_meeting(matching *x, rt_part part, uint32_t post) {
  if (part.circle == RT_NO_CIRCLE) return ISSUE_NOBODY;
  const rt_circle *c = &x->m->meet.circles.data[part.circle];
  uint64_t key = (uint64_t)part.circle << 32 | part.turn;
  uint32_t at = map_get(&x->meetings, key, ISSUE_NOBODY);
  if (at == ISSUE_NOBODY) {
    issue_meeting m = {.is_pair = c->is_pair, .circle = part.circle, .n = c->n};
    m.posts = ARENA_ARRAY(x->memory, c->n, uint32_t);
    for (uint32_t i = 0; i < c->n; i++) m.posts[i] = ISSUE_NOBODY;
    at = x->m->list.len;
    vec_push(x->memory, &x->m->list, m);
    map_put(&x->meetings, key, at);
  }
  x->m->list.data[at].posts[part.member] = post;
  return at;
}

static void match(matching *x, uint32_t post) {
  rt_part parts[2];
  rt_meet_post(&x->m->meet, &x->m->plan->posts[post], parts);
  for (int h = 0; h < 2; h++) x->m->of_post[post][h] = join_meeting(x, parts[h], post);
}

/* ---- what does not fit ---- */
void issue_meetings_text(const issue_meetings *m, uint32_t post, arena *memory, char *text,
                         size_t size_bytes) {
  const rt_plan *plan = m->plan;
  rt_comm_request r = rt_post_request(&plan->posts[post], NULL, NULL);
  strbuf place;
  strbuf_init(&place, memory);
  if (plan->host) rt_place(plan, m->instr_of_post[post], &place);
  r.origin = plan->host ? place.data : NULL;
  rt_comm_request_text(&r, text, size_bytes);
}

static status disagree(const matching *x, const issue_meeting *m, uint32_t a, uint32_t b) {
  char left[256], right[256];
  const rt_plan *plan = x->m->plan;
  issue_meetings_text(x->m, m->posts[a], x->memory, left, sizeof left);
  issue_meetings_text(x->m, m->posts[b], x->memory, right, sizeof right);
  return fail(STATUS_BAD_PROGRAM, "rank %u posts %s, but rank %u posts %s",
              plan->posts[m->posts[a]].rank, left, plan->posts[m->posts[b]].rank, right);
}

/* The request of a member, in which `count` is what its end of the communication expects to travel. */
static rt_comm_request seen(const rt_plan *plan, const issue_meeting *m, uint32_t member) {
  rt_comm_request r = rt_post_request(&plan->posts[m->posts[member]], NULL, NULL);
  if (m->is_pair && member == 1 && r.kind == IR_COMM_PERMUTE) r.count = r.count_from;
  return r;
}

static status check_meeting(const matching *x, const issue_meeting *m) {
  const rt_plan *plan = x->m->plan;
  uint32_t first = 0;
  while (m->posts[first] == ISSUE_NOBODY) first++;
  rt_comm_request a = seen(plan, m, first);
  for (uint32_t i = first + 1; i < m->n; i++) {
    if (m->posts[i] == ISSUE_NOBODY) continue;
    rt_comm_request b = seen(plan, m, i);
    if (!rt_comm_posts_agree(m->is_pair, &a, &b)) return disagree(x, m, first, i);
  }
  return STATUS_OK;
}

static status check_post(const matching *x, uint32_t post) {
  const rt_post *p = &x->m->plan->posts[post];
  for (uint32_t i = 0; i < p->n_team; i++) {
    if (p->team[i] < RT_COMM_MAX_RANKS && x->is_here[p->team[i]]) continue;
    return fail(
        STATUS_UNAVAILABLE,
        "device %u communicates with device %u, which another process runs; use --comm nccl "
        "or cuda-ipc, or run without a launcher",
        p->rank, p->team[i]);
  }
  return STATUS_OK;
}

static void find_posts(matching *x) {
  const rt_plan *plan = x->m->plan;
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind != RT_POST) continue;
    uint32_t post = instr->task;
    x->m->instr_of_post[post] = i;
    x->m->rank_of_post[post] = rt_plan_rank(plan, instr->stream);
    check(plan->posts[post].rank < RT_COMM_MAX_RANKS);
    x->is_here[plan->posts[post].rank] = true;
    match(x, post);
  }
}

/* A rank that posts nothing runs in this process too; a rank that waits for its post then waits in vain. */
static void find_ranks(matching *x, uint32_t n_ranks) {
  for (uint32_t r = 0; n_ranks > 1 && r < n_ranks; r++) x->is_here[r] = true;
}

static void count_here(const matching *x, issue_meeting *m) {
  const rt_circle *c = &x->m->meet.circles.data[m->circle];
  for (uint32_t i = 0; i < m->n; i++)
    m->n_here += c->devices[i] < RT_COMM_MAX_RANKS && x->is_here[c->devices[i]];
}

status issue_meetings_make(const rt_plan *plan, bool elsewhere, arena *memory,
                           issue_meetings *result) {
  *result = (issue_meetings){.plan = plan};
  uint32_t n = plan->n_posts;
  if (n == 0) return STATUS_OK;
  result->of_post = arena_array(memory, n, sizeof *result->of_post);
  for (uint32_t p = 0; p < n; p++) result->of_post[p][0] = result->of_post[p][1] = ISSUE_NOBODY;
  rt_meet_init(&result->meet, memory);
  result->rank_of_post = ARENA_ARRAY(memory, n, uint32_t);
  result->instr_of_post = ARENA_ARRAY(memory, n, uint32_t);
  matching *x = ARENA_NEW(memory, matching);
  x->m = result;
  x->memory = memory;
  map_init(&x->meetings, memory);
  find_ranks(x, plan->n_ranks);
  find_posts(x);
  for (uint32_t p = 0; p < n && !elsewhere; p++) TRY(check_post(x, p));
  for (uint32_t i = 0; i < result->list.len; i++) count_here(x, &result->list.data[i]);
  for (uint32_t i = 0; i < result->list.len; i++) TRY(check_meeting(x, &result->list.data[i]));
  return STATUS_OK;
}
