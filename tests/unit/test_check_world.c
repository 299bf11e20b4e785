/* Several ranks together: communications that do not fit, that somebody never posts, and waits that form
 * a cycle. Then random programs: those that end are found to end, and one mistake is named.
 *
 * Incidents of other systems (reference/peers.md §9) and where they are planted:
 *   a receive hoisted above the send on all ranks (torchcomms)       test_receive_first
 *   ranks that disagree on whether to meet (nvFuser, IPC cache)      test_absent
 *   communicators used in another order (XLA, NCCL)                  test_crossed_teams
 *   other sizes, other collectives (DDP)                             test_mismatch
 *   one communicator on two streams (RCCL)                           test_check_comm.c, no order of posts
 *
 *   test_check_world [SEEDS [FIRST]] */
#include <stdlib.h>

#include "base/random.h"
#include "check/check.h"
#include "test.h"

enum { RANKS = 4, STREAMS = 3 };

/* ---- plans ---- */
typedef struct side {
  rt_plan plan;
  VEC(rt_instr) instrs;
  VEC(rt_view) views;
  VEC(rt_buffer) buffers;
  VEC(rt_post) posts;
} side;

static arena memory;
static side sides[RANKS];
static const rt_plan *plans[RANKS];
static uint32_t n_ranks;
static check_world_report report;
static const char *text;

static uint32_t add_buffer(side *s, rt_buffer b) {
  static const int64_t one[] = {1}, all[] = {16};
  b.size_bytes = 64;
  b.freed_at = UINT32_MAX;
  b.name = "b";
  vec_push(&memory, &s->buffers, b);
  rt_view v = {.buffer = s->buffers.len - 1, .dtype = IR_F32, .rank = 1};
  v.extents = all;
  v.strides = one;
  vec_push(&memory, &s->views, v);
  return v.buffer;
}

/* View 0 of each rank is its input. */
static void begin(uint32_t n) {
  arena_destroy(&memory);
  arena_init(&memory, &memory_default);
  memset(sides, 0, sizeof sides);
  n_ranks = n;
  for (uint32_t r = 0; r < n; r++) {
    sides[r].plan.n_streams = STREAMS;
    (void)add_buffer(&sides[r], (rt_buffer){.kind = RT_BUFFER_INPUT});
  }
}

static uint32_t fresh(side *s) {
  rt_buffer b = {.kind = RT_BUFFER_POOL, .offset_bytes = s->plan.pool_bytes};
  s->plan.pool_bytes += 64;
  return add_buffer(s, b);
}

static uint32_t put(uint32_t rank, rt_instr_kind kind, uint32_t stream, uint32_t other,
                    uint32_t post) {
  rt_instr i = {.kind = (uint8_t)kind, .stream = (uint16_t)stream, .other = (uint16_t)other};
  i.task = post;
  vec_push(&memory, &sides[rank].instrs, i);
  return sides[rank].instrs.len - 1;
}

static bool same_team(const rt_post *a, const rt_post *b) {
  return a->n_team == b->n_team && memcmp(a->team, b->team, a->n_team * sizeof *a->team) == 0;
}

/* Returns the number of the post. */
static uint32_t post(uint32_t rank, uint32_t stream, rt_post p) {
  side *s = &sides[rank];
  bool message = ir_comm_is_message(p.kind);
  p.rank = rank;
  p.dtype = p.dtype ? p.dtype : IR_F32;
  p.count = p.count ? p.count : 16;
  p.count_from = p.kind == IR_COMM_PERMUTE ? p.count : 0;
  p.before = RT_NO_POST;
  for (uint32_t k = s->posts.len; k-- > 0 && p.before == RT_NO_POST;) {
    const rt_post *q = &s->posts.data[k];
    if (ir_comm_is_message(q->kind) == message && (message || same_team(q, &p))) p.before = k;
  }
  p.in = p.kind == IR_COMM_RECV ? RT_NO_VIEW : 0;
  p.out = p.kind == IR_COMM_SEND ? RT_NO_VIEW : fresh(s);
  vec_push(&memory, &s->posts, p);
  put(rank, RT_POST, stream, 0, s->posts.len - 1);
  return s->posts.len - 1;
}

static const uint32_t everybody[] = {0, 1, 2, 3}, reversed[] = {3, 2, 1, 0};

static uint32_t reduce_on(uint32_t rank, uint32_t stream, const uint32_t *team, uint32_t n) {
  rt_post p = {.kind = IR_COMM_ALLREDUCE, .team = team, .n_team = n};
  while (p.team[p.me] != rank) p.me++;
  return post(rank, stream, p);
}

static uint32_t message(uint32_t rank, uint32_t stream, ir_comm_kind kind, uint32_t peer) {
  rt_post p = {.kind = kind, .team = everybody, .n_team = n_ranks, .me = rank};
  p.to = kind == IR_COMM_SEND ? (int32_t)peer : RT_COMM_NOBODY;
  p.from = kind == IR_COMM_RECV ? (int32_t)peer : RT_COMM_NOBODY;
  return post(rank, stream, p);
}

static uint32_t join(uint32_t rank, uint32_t stream, uint32_t p) {
  return put(rank, RT_JOIN, stream, 0, p);
}

static void wait_on(uint32_t rank, uint32_t stream, uint32_t other) {
  put(rank, RT_WAIT, stream, other, 0);
}

static void finish(void) {
  for (uint32_t r = 0; r < n_ranks; r++) {
    side *s = &sides[r];
    s->plan.instrs = s->instrs.data, s->plan.n_instrs = s->instrs.len;
    s->plan.views = s->views.data, s->plan.n_views = s->views.len;
    s->plan.buffers = s->buffers.data, s->plan.n_buffers = s->buffers.len;
    s->plan.posts = s->posts.data, s->plan.n_posts = s->posts.len;
    plans[r] = &s->plan;
  }
}

static void examine(void) {
  finish();
  check_world_report_destroy(&report);
  EXPECT(check_world(plans, n_ranks, NULL, &report) == STATUS_OK);
  strbuf out;
  strbuf_init(&out, &memory);
  check_world_text(&report, &out);
  text = out.data;
}

static void expect_met(uint64_t n, int line) {
  examine();
  bool ok = report.n_found == 0 && report.n_met == n;
  if (!test_count(ok, __FILE__, line)) fprintf(stderr, "%s\n", text);
}
#define EXPECT_MET(n) expect_met(n, __LINE__)

static void expect_one(check_kind kind, uint32_t rank_a, uint32_t a, uint32_t rank_b, uint32_t b,
                       int line) {
  examine();
  const check_meeting *f = report.meetings.data;
  bool ok = report.n_found == 1 && report.meetings.len == 1 && f->kind == kind &&
            f->rank_a == rank_a && f->a == a && f->rank_b == rank_b && f->b == b;
  if (!test_count(ok, __FILE__, line)) fprintf(stderr, "%s\n", text);
}
#define EXPECT_ONE(kind, rank_a, a, rank_b, b) expect_one(kind, rank_a, a, rank_b, b, __LINE__)

/* ---- matching ---- */
static void all_reduce_twice(void) {
  begin(4);
  for (uint32_t r = 0; r < 4; r++) {
    uint32_t a = reduce_on(r, 0, everybody, 4), b = reduce_on(r, 0, everybody, 4);
    join(r, 0, a);
    join(r, 0, b);
  }
}

static void test_mismatch(void) {
  all_reduce_twice();
  EXPECT_MET(2);
  EXPECT_CONTAINS(text,
                  "checked 4 devices with 16 instructions on 12 streams: ordered; 2 "
                  "communications match, and all get to their end; 0 waits, 0 of them redundant");
  for (uint32_t what = 0; what < 5; what++) {
    all_reduce_twice();
    rt_post *p = &sides[2].posts.data[1];
    if (what == 0) p->kind = IR_COMM_BROADCAST;
    if (what == 1) p->op = IR_COMBINE_MAX;
    if (what == 2) p->dtype = IR_I32;
    if (what == 3) p->count = 8;
    for (uint32_t r = 0; r < 4 && what == 4; r++) {
      sides[r].posts.data[1].kind = IR_COMM_BROADCAST;
      sides[r].posts.data[1].root = r == 2;
    }
    EXPECT_ONE(CHECK_MISMATCH, 0, 1, 2, 1);
    EXPECT_INT(report.meetings.data[0].turn, 1);
  }
  EXPECT_CONTAINS(text,
                  "rank 0 posts broadcast of 16 f32 with root 0, but rank 2 posts broadcast of "
                  "16 f32 with root 1");
  EXPECT_CONTAINS(text, "where: communication 2 of team (0 1 2 3)");
}

static void test_absent(void) {
  all_reduce_twice();
  uint32_t extra = sides[1].instrs.len;
  join(1, 0, reduce_on(1, 0, everybody, 4));
  EXPECT_ONE(CHECK_ABSENT, 1, extra, 0, 1);
  EXPECT_CONTAINS(text, "rank 1 posts allreduce of 16 f32 (sum), but rank 0 never posts its part");
  begin(2);
  join(0, 0, message(0, 0, IR_COMM_SEND, 1));
  EXPECT_ONE(CHECK_ABSENT, 0, 0, 1, CHECK_NONE);
  EXPECT_CONTAINS(text, "rank 1 posts nothing there");
  EXPECT_CONTAINS(text, "where: message 1 from rank 0 to rank 1");
  begin(2);
  join(0, 0, message(0, 0, IR_COMM_RECV, 1));
  EXPECT_ONE(CHECK_ABSENT, 0, 0, 1, CHECK_NONE);
  EXPECT_CONTAINS(text, "where: message 1 from rank 1 to rank 0");
  begin(2);
  join(0, 0, reduce_on(0, 0, everybody, 4)); /* of a world of two */
  join(1, 0, reduce_on(1, 0, everybody, 4));
  EXPECT_ONE(CHECK_ABSENT, 0, 0, 2, CHECK_NONE);
  EXPECT_CONTAINS(text, "rank 2 does not exist");
}

static void test_messages(void) {
  for (uint32_t what = 0; what < 3; what++) {
    begin(3);
    uint32_t a = message(0, 0, IR_COMM_SEND, 1), b = message(0, 0, IR_COMM_SEND, 2);
    uint32_t c = message(0, 0, IR_COMM_SEND, 1);
    uint32_t d = message(1, 0, IR_COMM_RECV, 0), e = message(1, 0, IR_COMM_RECV, 0);
    uint32_t f = message(2, 0, IR_COMM_RECV, 0), g = message(2, 0, IR_COMM_RECV, 2);
    uint32_t h = message(2, 0, IR_COMM_SEND, 2); /* to itself */
    join(0, 0, a), join(0, 0, b), join(0, 0, c), join(1, 0, d), join(1, 0, e), join(2, 0, f);
    join(2, 0, g), join(2, 0, h);
    if (what == 1) sides[1].posts.data[e].count = 4;
    if (what == 2) sides[2].posts.data[f].dtype = IR_I32;
    if (what == 0) EXPECT_MET(4);
    if (what == 1) EXPECT_ONE(CHECK_MISMATCH, 0, 2, 1, 1);
    if (what == 2) EXPECT_ONE(CHECK_MISMATCH, 0, 1, 2, 0);
  }
}

/* Teams of the same devices in another order are others; a permute is two messages. */
static void test_teams(void) {
  begin(4);
  for (uint32_t r = 0; r < 4; r++) {
    uint32_t a = reduce_on(r, 0, r % 2 ? everybody : reversed, 4);
    uint32_t b = reduce_on(r, 0, r % 2 ? reversed : everybody, 4);
    rt_post p = {.kind = IR_COMM_PERMUTE, .team = everybody, .n_team = 4, .me = r};
    p.to = (int32_t)(r + 1) % 4;
    p.from = (int32_t)(r + 3) % 4;
    uint32_t c = post(r, 0, p);
    join(r, 0, a), join(r, 0, b), join(r, 0, c);
  }
  EXPECT_MET(6);
  sides[3].posts.data[2].count_from = 8;
  EXPECT_ONE(CHECK_MISMATCH, 2, 2, 3, 2);
}

/* What is wrong on several ranks is said once. */
static void test_said_once(void) {
  begin(4);
  for (uint32_t r = 0; r < 4; r++) {
    uint32_t a = reduce_on(r, 0, everybody, 4);
    if (r != 3) sides[r].posts.data[a].out = 0, sides[r].posts.data[a].in = RT_NO_VIEW;
    join(r, 0, a);
  }
  examine();
  EXPECT_INT(report.n_found, 3);
  EXPECT_CONTAINS(text, "error: ranks 0 to 2: allreduce: no input\n");
  EXPECT_CONTAINS(text, "3 x communication against the rules of its kind");
  EXPECT(strstr(strstr(text, "no input") + 1, "no input") == NULL);
}

static void test_wrong_plans(void) {
  all_reduce_twice();
  finish();
  const rt_plan *swapped[] = {plans[1], plans[0], plans[2], plans[3]};
  check_world_report r;
  EXPECT(check_world(swapped, 4, NULL, &r) == STATUS_BAD_USAGE);
  status_clear();
}

/* ---- deadlocks ---- */
static void test_receive_first(void) {
  for (uint32_t right = 0; right < 2; right++) {
    begin(2);
    for (uint32_t r = 0; r < 2; r++) {
      uint32_t a = message(r, 0, IR_COMM_RECV, 1 - r);
      if (!right) join(r, 0, a);
      join(r, 0, message(r, 0, IR_COMM_SEND, 1 - r));
      if (right) join(r, 0, a);
    }
    if (right) EXPECT_MET(2);
    else EXPECT_ONE(CHECK_DEADLOCK, 0, 1, 1, 1);
    if (right) continue;
    EXPECT_CONTAINS(text, "deadlock: rank 0 waits for rank 1, which waits for rank 0");
    EXPECT_CONTAINS(text, "rank 0, instruction 1 on stream main: waits for recv(-> b)");
    EXPECT_CONTAINS(text, "until rank 1 gets past instruction 2: send(b -> ) posted");
  }
}

static void test_crossed_teams(void) {
  for (uint32_t side_by_side = 0; side_by_side < 2; side_by_side++) {
    begin(2);
    for (uint32_t r = 0; r < 2; r++) {
      static const uint32_t forth[] = {0, 1}, back[] = {1, 0};
      uint32_t a = reduce_on(r, 1, r ? forth : back, 2);
      if (!side_by_side) join(r, 1, a);
      uint32_t b = reduce_on(r, 1, r ? back : forth, 2);
      if (side_by_side) join(r, 1, a);
      join(r, 1, b);
      wait_on(r, 0, 1);
    }
    if (side_by_side) EXPECT_MET(2);
    else EXPECT_ONE(CHECK_DEADLOCK, 0, 1, 1, 1);
  }
}

/* Through streams: what a stream waits for stands on another, behind a join. */
static void test_through_streams(void) {
  begin(3);
  for (uint32_t r = 0; r < 3; r++) {
    join(r, 1, message(r, 1, IR_COMM_RECV, (r + 2) % 3));
    wait_on(r, 2, 1);
    join(r, 2, message(r, 2, IR_COMM_SEND, (r + 1) % 3));
    wait_on(r, 0, 2);
  }
  EXPECT_ONE(CHECK_DEADLOCK, 0, 1, 2, 1);
  EXPECT_INT(report.meetings.data[0].n, 6);
  EXPECT_CONTAINS(text, "rank 0 waits for rank 2, which waits for rank 1, which waits for rank 0");
}

/* Posts that must stand behind another one stand where that one does. */
static void test_through_order(void) {
  begin(2);
  for (uint32_t r = 0; r < 2; r++) {
    uint32_t a = message(r, 1, IR_COMM_RECV, 1 - r);
    join(r, 1, a);
    uint32_t b = message(r, 1, IR_COMM_RECV, 1 - r); /* after the join */
    uint32_t c = message(r, 2, IR_COMM_SEND, 1 - r), d = message(r, 2, IR_COMM_SEND, 1 - r);
    join(r, 0, b), join(r, 0, c), join(r, 0, d);
  }
  examine();
  EXPECT_INT(report.count[CHECK_DEADLOCK], 1);
  EXPECT_INT(report.n_found, 1);
  EXPECT_CONTAINS(text, "comes after a post of the same rank");
}

/* ---- random programs ---- */
static uint64_t key, counter;
static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(key, counter++) % n); }
static bool chance(uint32_t percent) { return below(100) < percent; }

enum { LENGTH = 10 };
typedef struct meeting {
  bool team, turned;
  uint32_t from, to;
} meeting;

static bool same_channel(const meeting *a, const meeting *b) {
  if (a->team != b->team) return false;
  return a->team ? a->turned == b->turned : a->from == b->from && a->to == b->to;
}

static meeting list[LENGTH];

/* Meetings in an order of the rank's own; those of one channel keep theirs. */
static void shuffle(uint32_t *order, uint32_t n, uint32_t swaps) {
  for (uint32_t k = 0; k < n; k++) order[k] = k;
  while (n > 1 && swaps-- > 0) {
    uint32_t k = below(n - 1), first = order[k];
    if (same_channel(&list[first], &list[order[k + 1]])) continue;
    order[k] = order[k + 1];
    order[k + 1] = first;
  }
}

static uint32_t open[2 * LENGTH], n_open;

static void attend(uint32_t rank, const meeting *m) {
  uint32_t s = below(STREAMS);
  const uint32_t *team = m->turned ? reversed + RANKS - n_ranks : everybody;
  if (m->team) open[n_open++] = reduce_on(rank, s, team, n_ranks);
  if (!m->team && rank == m->from) open[n_open++] = message(rank, s, IR_COMM_SEND, m->to);
  if (!m->team && rank == m->to) open[n_open++] = message(rank, s, IR_COMM_RECV, m->from);
}

/* Everybody meets the same others, on streams of its own choice, and joins early or at the end. With
 * one order for all, or without early joins, such a program ends. */
static void random_world(uint64_t seed, uint32_t early, uint32_t swaps) {
  key = seed;
  counter = 0;
  uint32_t length = 2 + below(LENGTH - 1), order[LENGTH];
  begin(2 + below(RANKS - 1));
  for (uint32_t k = 0; k < length; k++)
    list[k] = (meeting){chance(50), chance(50), below(n_ranks), below(n_ranks)};
  for (uint32_t r = 0; r < n_ranks; r++) {
    n_open = 0;
    shuffle(order, length, swaps);
    for (uint32_t k = 0; k < length; k++) {
      attend(r, &list[order[k]]);
      while (n_open && chance(early)) join(r, below(STREAMS), open[--n_open]);
      if (chance(30)) wait_on(r, below(STREAMS), below(STREAMS));
    }
    while (n_open) join(r, 0, open[--n_open]);
    for (uint32_t t = 1; t < STREAMS; t++) wait_on(r, 0, t);
  }
  finish();
}

/* How many of a rank's posts with the same peers stand before this one. */
static uint32_t turn_of(uint32_t rank, uint32_t p, bool sends) {
  const rt_post *all = sides[rank].posts.data, *q = &all[p];
  uint32_t n = 0;
  for (uint32_t k = 0; k < p; k++)
    n += ir_comm_is_message(q->kind)
             ? all[k].kind == q->kind && (sends ? all[k].to == q->to : all[k].from == q->from)
             : !ir_comm_is_message(all[k].kind) && same_team(&all[k], q);
  return n;
}

static bool fits(uint32_t r, uint32_t p, uint32_t s, uint32_t q) {
  const rt_post *a = &sides[r].posts.data[p], *b = &sides[s].posts.data[q];
  if (!ir_comm_is_message(a->kind))
    return !ir_comm_is_message(b->kind) && same_team(a, b) && turn_of(r, p, 0) == turn_of(s, q, 0);
  if (a->kind == b->kind || !ir_comm_is_message(b->kind)) return false;
  bool sends = a->kind == IR_COMM_SEND;
  uint32_t peer = (uint32_t)(sends ? a->to : a->from), back = (uint32_t)(sends ? b->from : b->to);
  return peer == s && back == r && turn_of(r, p, sends) == turn_of(s, q, !sends);
}

static bool done[RANKS][512], posted[RANKS][64];

static bool may_go(uint32_t r, uint32_t i) {
  const rt_instr *x = &sides[r].instrs.data[i];
  for (uint32_t k = 0; k < i; k++) {
    uint32_t s = sides[r].instrs.data[k].stream;
    if (!done[r][k] && (s == x->stream || (x->kind == RT_WAIT && s == x->other))) return false;
  }
  if (x->kind == RT_POST) {
    uint32_t first = sides[r].posts.data[x->task].before;
    return first == RT_NO_POST || posted[r][first];
  }
  if (x->kind != RT_JOIN) return true;
  if (!posted[r][x->task]) return false;
  for (uint32_t s = 0; s < n_ranks; s++)
    for (uint32_t q = 0; q < sides[s].posts.len; q++)
      if (fits(r, x->task, s, q) && !posted[s][q]) return false;
  return true;
}

/* The definition: go on as long as anything can. */
static bool gets_to_the_end(void) {
  bool moved = true, all = true;
  memset(done, 0, sizeof done);
  memset(posted, 0, sizeof posted);
  while (moved) {
    moved = false;
    all = true;
    for (uint32_t r = 0; r < n_ranks; r++)
      for (uint32_t i = 0; i < sides[r].instrs.len; i++) {
        if (done[r][i] || !may_go(r, i)) {
          all = all && done[r][i];
          continue;
        }
        const rt_instr *x = &sides[r].instrs.data[i];
        moved = done[r][i] = true;
        if (x->kind == RT_POST) posted[r][x->task] = true;
      }
  }
  return all;
}

static unsigned n_stuck, n_ended;

/* A cycle is one: each stop waits for what the next one stands before. */
static bool cycle_holds(const check_meeting *f) {
  for (uint32_t k = 0; k < f->n; k++) {
    const check_stop *a = &report.stops.data[f->first + k];
    const check_stop *b = &report.stops.data[f->first + (k + 1) % f->n];
    const rt_instr *x = sides[b->rank].instrs.data;
    if (a->for_rank != b->rank || x[a->for_instr].stream != x[b->instr].stream) return false;
    if (done[a->rank][a->instr] || b->instr > a->for_instr) return false;
  }
  return f->n > 0;
}

static void test_random(uint64_t seed) {
  unsigned failed = test_failed;
  random_world(seed, seed % 3 == 0 ? 0 : 70, seed % 3 == 1 ? 0 : 12);
  examine();
  bool ends = gets_to_the_end();
  EXPECT(ends || seed % 3 == 2);
  EXPECT_INT(report.n_found == 0, ends);
  EXPECT_INT(report.count[CHECK_DEADLOCK] > 0, !ends);
  EXPECT_INT(report.count[CHECK_MISMATCH] + report.count[CHECK_ABSENT], 0);
  for (uint32_t k = 0; k < report.meetings.len; k++) EXPECT(cycle_holds(&report.meetings.data[k]));
  n_stuck += !ends;
  n_ended += ends;
  uint32_t r = below(n_ranks); /* one mistake */
  if (sides[r].posts.len) {
    rt_post *p = &sides[r].posts.data[below(sides[r].posts.len)];
    p->count = 8;
    examine();
    EXPECT_INT(report.count[CHECK_MISMATCH], 1);
    EXPECT_INT(report.count[CHECK_DEADLOCK], 0);
  }
  if (test_failed > failed) fprintf(stderr, "seed %d:\n%s\n", (int)seed, text);
}

/* ---- memory and time ---- */
static void test_out_of_memory(void) {
  begin(2);
  for (uint32_t r = 0; r < 2; r++) {
    join(r, 0, message(r, 0, IR_COMM_RECV, 1 - r));
    join(r, 0, message(r, 0, IR_COMM_SEND, 1 - r));
  }
  finish();
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 1000; n++) {
    memory_faults faults = {.fail_at = n};
    allocator faulty = memory_faulty(&faults);
    check_options options = {.memory = &faulty};
    check_world_report r = {0};
    st = check_world(plans, 2, &options, &r);
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    check_world_report_destroy(&r);
    EXPECT_INT(faults.live, 0);
    status_clear();
  }
  EXPECT(st == STATUS_OK);
}

static void test_long(void) {
  enum { TIMES = 20000 };
  begin(4);
  for (uint32_t r = 0; r < 4; r++)
    for (uint32_t k = 0; k < TIMES; k++) {
      join(r, k % 2, message(r, k % 2, r % 2 ? IR_COMM_RECV : IR_COMM_SEND, r ^ 1));
      join(r, k % 2, reduce_on(r, k % 2, everybody, 4));
    }
  for (uint32_t r = 0; r < 4; r++) wait_on(r, 0, 1);
  EXPECT_MET(3 * TIMES);
}

static status all(void *context) {
  const uint64_t *seeds = context;
  test_mismatch();
  test_absent();
  test_messages();
  test_teams();
  test_said_once();
  test_wrong_plans();
  test_receive_first();
  test_crossed_teams();
  test_through_streams();
  test_through_order();
  test_out_of_memory();
  test_long();
  for (uint64_t s = 0; s < seeds[0] && test_failed < 5; s++) test_random(seeds[1] + s);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  uint64_t seeds[] = {argc > 1 ? strtoull(argv[1], NULL, 10) : 3000,
                      argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
  EXPECT(memory_guard(all, seeds) == STATUS_OK);
  check_world_report_destroy(&report);
  arena_destroy(&memory);
  printf("%u random programs end, %u do not\n", n_ended, n_stuck);
  if (seeds[0] >= 3000) EXPECT(n_ended > 500 && n_stuck > 100);
  return test_finish();
}
