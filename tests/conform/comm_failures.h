/* What goes wrong: mismatches, timeouts, aborts, ranks that leave, injected faults, no memory. Every
 * rank must end, with the same status and the same message. */
#ifndef WEIR_TESTS_CONFORM_COMM_FAILURES_H
#define WEIR_TESTS_CONFORM_COMM_FAILURES_H

#include "comm/faulty.h"
#include "conform/comm_kit.h"

typedef struct outcome {
  status st[KIT_RANKS];
  char text[KIT_RANKS][1024];
} outcome;

static void outcome_note(outcome *o, uint32_t rank, status st) {
  o->st[rank] = st;
  (void)snprintf(o->text[rank], sizeof o->text[rank], "%s", status_message());
  status_clear();
}

/* Brings the outcomes of all ranks together, in a world that works. */
static void share_body(rt_comm *comm, void *context) {
  outcome *o = context;
  uint32_t team[KIT_RANKS];
  char mine[sizeof o->text[0]];
  memcpy(mine, o->text[comm->rank], sizeof mine);
  for (uint32_t i = 0; i < comm->n_ranks; i++) team[i] = i;
  rt_comm_request r = {.kind = IR_COMM_ALLGATHER, .dtype = IR_U8, .team = team};
  r.n_team = comm->n_ranks, r.me = comm->rank, r.count = sizeof mine;
  r.in = mine, r.out = o->text;
  rt_comm_ticket t;
  if (comm->ops->post(comm, &r, &t) != STATUS_OK) kit_wrong("share", comm->rank, 0);
  else kit_wait(comm, &t);
  int32_t code = (int32_t)o->st[comm->rank], codes[KIT_RANKS];
  r.dtype = IR_I32, r.count = 1, r.in = &code, r.out = codes;
  if (comm->ops->post(comm, &r, &t) != STATUS_OK) kit_wrong("share", comm->rank, 1);
  else kit_wait(comm, &t);
  for (uint32_t i = 0; i < comm->n_ranks; i++) o->st[i] = (status)codes[i];
}

/* Every process gets to know every outcome. */
static void outcome_share(outcome *o) {
  rt_comm *endpoints[KIT_MOST_RANKS];
  if (kit_in_process) return;
  kit_run_on(endpoints, kit_open(kit_ranks, &memory_default, endpoints), share_body, o);
}

static void expect_shared(const outcome *o, uint32_t n, status st, const char *part) {
  for (uint32_t r = 0; r < n; r++) {
    EXPECT_INT(o->st[r], st);
    EXPECT_STR(o->text[r], o->text[0]);
  }
  EXPECT_CONTAINS(o->text[0], part);
}

static void expect_outcome(outcome *o, uint32_t n, status st, const char *part) {
  outcome_share(o);
  expect_shared(o, n, st, part);
}

static status post_and_wait(rt_comm *comm, const rt_comm_request *r, int64_t timeout_ns) {
  rt_comm_ticket ticket;
  TRY(comm->ops->post(comm, r, &ticket));
  return comm->ops->wait(comm, &ticket, timeout_ns);
}

/* ---- mismatches ---- */
typedef struct mismatch {
  rt_comm_request odd; /* of the last of three (or two) ranks */
  rt_comm_request common;
  outcome result;
} mismatch;

static const uint32_t three[] = {0, 1, 2};

static uint32_t few(void) { return kit_ranks < 3 ? kit_ranks : 3; }

static void mismatch_body(rt_comm *comm, void *context) {
  mismatch *m = context;
  float in[24] = {0}, out[24];
  bool is_odd = comm->rank == few() - 1;
  rt_comm_request r = is_odd ? m->odd : m->common;
  r.team = three, r.n_team = few(), r.me = comm->rank, r.in = in, r.out = out;
  r.origin = is_odd ? "odd.weir:9" : "common.weir:7";
  outcome_note(&m->result, comm->rank, post_and_wait(comm, &r, -1));
}

static void test_mismatch(rt_comm_request common, rt_comm_request odd, const char *left,
                          const char *right) {
  mismatch m = {.common = common, .odd = odd};
  kit_run(few(), mismatch_body, &m);
  expect_outcome(&m.result, few(), STATUS_BAD_PROGRAM, left);
  EXPECT_CONTAINS(m.result.text[0], right);
  EXPECT_CONTAINS(m.result.text[0], "common.weir:7");
  EXPECT_CONTAINS(m.result.text[0], "odd.weir:9");
  EXPECT_CONTAINS(m.result.text[0], few() == 3 ? "on team (0 1 2)" : "on team (0 1)");
}

static void test_mismatches(void) {
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .count = 4}, odd = r;
  odd.count = 5;
  test_mismatch(r, odd, "allreduce of 4 f32 (sum)", "allreduce of 5 f32 (sum)");
  odd = r, odd.op = IR_COMBINE_MAX;
  test_mismatch(r, odd, "(sum)", "(max)");
  odd = r, odd.dtype = IR_I32;
  test_mismatch(r, odd, "4 f32", "4 i32");
  odd = r, odd.kind = IR_COMM_ALLGATHER;
  test_mismatch(r, odd, "allreduce", "allgather");
  r.kind = IR_COMM_BROADCAST, odd = r, odd.root = 1;
  test_mismatch(r, odd, "with root 0", "with root 1");
}

static void message_mismatch_body(rt_comm *comm, void *context) {
  float data[8] = {0};
  rt_comm_request r = {.dtype = IR_F32, .team = three, .n_team = 2, .me = comm->rank};
  r.kind = comm->rank ? IR_COMM_RECV : IR_COMM_SEND;
  r.to = 1, r.from = 0, r.in = data, r.out = data, r.count = 4 + comm->rank;
  r.origin = comm->rank ? "b:2" : "a:1";
  outcome_note(context, comm->rank, post_and_wait(comm, &r, -1));
}

static void test_message_mismatch(void) {
  outcome o = {0};
  kit_run(2, message_mismatch_body, &o);
  expect_outcome(&o, 2, STATUS_BAD_PROGRAM, "send of 4 f32 to rank 1 at a:1");
  EXPECT_CONTAINS(o.text[0], "recv of 5 f32 from rank 0 at b:2");
}

/* ---- timeouts, aborts, leaving ---- */
typedef enum trouble { TIMEOUT, ABORT, LEAVE } trouble;

typedef struct trouble_case {
  trouble what;
  uint32_t n;
  outcome result;
} trouble_case;

/* All but the last rank post an allreduce; rank 0 with a timeout, for which all meet before. */
static void trouble_body(rt_comm *comm, void *context) {
  trouble_case *c = context;
  float data[4] = {0};
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .n_team = c->n, .count = 4};
  uint32_t team[KIT_RANKS];
  for (uint32_t i = 0; i < c->n; i++) team[i] = i;
  r.team = team, r.me = comm->rank, r.in = r.out = data, r.origin = "meet.weir:2";
  status st = c->what == TIMEOUT ? post_and_wait(comm, &r, -1) : STATUS_OK;
  if (st != STATUS_OK) kit_wrong("meet", comm->rank, st);
  r.origin = "all.weir:3";
  if (comm->rank == c->n - 1) {
    if (c->what == ABORT) comm->ops->abort(comm, STATUS_SYSTEM, "the disk is full");
    if (c->what == LEAVE) return;
    while ((st = comm->ops->error(comm)) == STATUS_OK) (void)comm->ops->progress(comm);
    outcome_note(&c->result, comm->rank, st);
    return;
  }
  bool patient = c->what != TIMEOUT || comm->rank > 0;
  outcome_note(&c->result, comm->rank, post_and_wait(comm, &r, patient ? -1 : KIT_SECONDS / 20));
}

/* A rank that the machine stops just then cannot say where it is, and others may be late: then once more. */
static void test_time_out(uint32_t n) {
  enum { TRIES = 5 };
  char place[96];
  trouble_case c = {.what = TIMEOUT, .n = n};
  (void)snprintf(place, sizeof place,
                 "rank %u has not posted it; its last post is allreduce at meet.weir:2, done",
                 n - 1);
  for (int i = 0; i < TRIES; i++) {
    kit_run(n, trouble_body, &c);
    outcome_share(&c.result);
    if (strstr(c.result.text[0], place)) break;
  }
  expect_shared(&c.result, n, STATUS_UNAVAILABLE,
                "no progress in 0.05 s: rank 0 waits for allreduce of 4 f32 (sum) at all.weir:3");
  EXPECT_CONTAINS(c.result.text[0], place);
}

static void test_troubles(void) {
  for (uint32_t n = 2; n <= kit_ranks; n += kit_in_process ? 3 : 2) {
    test_time_out(n);
    trouble_case c = {.what = ABORT, .n = n};
    kit_run(n, trouble_body, &c);
    expect_outcome(&c.result, n, STATUS_SYSTEM, "the disk is full");
    c.what = LEAVE;
    kit_run(n, trouble_body, &c);
    expect_outcome(&c.result, n - 1, STATUS_UNAVAILABLE, "has left");
  }
}

/* ---- wrong by itself ---- */
static void expect_refused(rt_comm *comm, rt_comm_request r, const char *part) {
  rt_comm_ticket ticket;
  EXPECT_INT(comm->ops->post(comm, &r, &ticket), STATUS_BAD_USAGE);
  EXPECT_CONTAINS(status_message(), part);
  status_clear();
}

static void test_refusals(rt_comm *comm, rt_comm_request good) {
  static const uint32_t twice[] = {0, 0}, absent[] = {0, 9}, strangers[] = {1, 0};
  float data[8];
  rt_comm_request r = good;
  r.team = twice, r.n_team = 2;
  expect_refused(comm, r, "x:1: allreduce: the team has a device twice");
  r.team = absent;
  expect_refused(comm, r, "does not exist");
  r.team = strangers;
  expect_refused(comm, r, "not `me`");
  r = good, r.count = -1;
  expect_refused(comm, r, "impossible number");
  r = good, r.op = IR_COMBINE_XOR;
  expect_refused(comm, r, "no meaning");
  r = good, r.in = NULL;
  expect_refused(comm, r, "no input");
  r = good, r.in = data, r.out = data + 1;
  expect_refused(comm, r, "overlap");
  r = good, r.in = (const char *)data + 1;
  expect_refused(comm, r, "not aligned");
  r = good, r.kind = IR_COMM_BROADCAST, r.root = 1;
  expect_refused(comm, r, "no such root");
  r = good, r.kind = IR_COMM_SEND, r.to = 4;
  expect_refused(comm, r, "no such receiver");
}

/* After refusals the world is as before. */
static void test_bad_requests(void) {
  static const uint32_t alone[] = {0};
  rt_comm *endpoints[KIT_MOST_RANKS];
  uint32_t n = kit_open(2, &memory_default, endpoints);
  bool first = n > 0 && endpoints[0]->rank == 0;
  float in[4] = {1, 2, 3, 4}, out[4] = {0};
  rt_comm_request good = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .team = alone, .n_team = 1};
  good.count = 4, good.in = in, good.out = out, good.origin = "x:1";
  if (first) {
    test_refusals(endpoints[0], good);
    EXPECT_INT(endpoints[0]->ops->error(endpoints[0]), STATUS_OK);
    EXPECT_INT(post_and_wait(endpoints[0], &good, -1), STATUS_OK);
    EXPECT(memcmp(in, out, sizeof in) == 0);
  }
  for (uint32_t i = 0; i < n; i++) endpoints[i]->ops->close(endpoints[i]);
}

/* ---- injected faults ---- */
enum { FAULT_STEPS = 6 };

/* Six collectives, two of them in flight at any time. */
static status faults_program(rt_comm *comm) {
  static const ir_comm_kind kinds[] = {IR_COMM_ALLREDUCE, IR_COMM_ALLGATHER, IR_COMM_BROADCAST};
  kit_step steps[FAULT_STEPS];
  kit_part parts[FAULT_STEPS];
  status st = STATUS_OK;
  uint32_t posted = 0;
  for (uint32_t i = 0; i < FAULT_STEPS; i++) {
    steps[i] = (kit_step){.kind = kinds[i % 3], .dtype = IR_F32, .n = few(), .count = 100000};
    memcpy(steps[i].team, three, sizeof three);
    kit_part_make(&parts[i], &steps[i], comm->rank);
    kit_part_fill(&parts[i], i);
  }
  for (uint32_t i = 0; i <= FAULT_STEPS && st == STATUS_OK; i++) {
    if (i < FAULT_STEPS) st = kit_part_post(&parts[i], comm), posted += st == STATUS_OK;
    if (i == 0 || st != STATUS_OK) continue;
    st = comm->ops->wait(comm, &parts[i - 1].ticket, 60 * KIT_SECONDS);
    if (st == STATUS_OK) kit_part_check(&parts[i - 1], comm->rank);
  }
  for (uint32_t i = 0; i < posted; i++)
    while (!comm->ops->done(comm, &parts[i].ticket)) (void)comm->ops->progress(comm);
  for (uint32_t i = 0; i < FAULT_STEPS; i++) kit_part_free(&parts[i]);
  return st;
}

static void faults_body(rt_comm *comm, void *context) {
  outcome_note(context, comm->rank, faults_program(comm));
}

/* True: a post failed. */
static bool test_fault(uint32_t rank, rt_comm_faults faults) {
  rt_comm *endpoints[KIT_MOST_RANKS], *wrapped = NULL;
  outcome o = {0};
  uint32_t n = kit_open(few(), &memory_default, endpoints);
  for (uint32_t i = 0; i < n; i++)
    if (endpoints[i]->rank == rank) {
      EXPECT_INT(rt_comm_faulty_open(endpoints[i], &faults, &memory_default, &wrapped), STATUS_OK);
      endpoints[i] = wrapped;
    }
  kit_run_on(endpoints, n, faults_body, &o);
  if (faults.fail_at < FAULT_STEPS) expect_outcome(&o, few(), faults.fail_with, "injected: post");
  else expect_outcome(&o, few(), STATUS_OK, "");
  return faults.fail_at < FAULT_STEPS;
}

static void test_faults(void) {
  for (uint32_t rank = 0; rank < few(); rank++) {
    uint64_t at = 0;
    rt_comm_faults faults = {.delay_at = UINT64_MAX, .fail_with = STATUS_SYSTEM};
    for (faults.fail_at = at; test_fault(rank, faults); faults.fail_at = ++at) {
    }
    EXPECT_INT(at, FAULT_STEPS);
    faults = (rt_comm_faults){.fail_at = UINT64_MAX, .delay_ns = KIT_SECONDS / 200};
    for (faults.delay_at = 0; faults.delay_at < FAULT_STEPS; faults.delay_at++)
      (void)test_fault(rank, faults);
  }
}

/* ---- memory ---- */
/* All ranks from one thread: posts of all, then the waits. */
static status run_by_one_thread(rt_comm **endpoints, uint32_t n, uint32_t rounds) {
  float in[3][100] = {{1}, {2}, {3}}, out[3][100] = {{0}};
  rt_comm_ticket tickets[3];
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .team = three, .n_team = n};
  r.count = 100;
  for (uint32_t round = 0; round < rounds; round++) {
    for (uint32_t i = 0; i < n; i++) {
      r.me = i, r.in = in[i], r.out = out[i];
      TRY(endpoints[i]->ops->post(endpoints[i], &r, &tickets[i]));
    }
    for (uint32_t i = 0; i < n; i++)
      TRY(endpoints[i]->ops->wait(endpoints[i], &tickets[i], 60 * KIT_SECONDS));
    EXPECT(out[0][0] == 6 && out[2][0] == 6);
  }
  return STATUS_OK;
}

/* The Nth allocation fails, for every N; after the first round nothing is allocated. */
static void test_memory(void) {
  memory_faults faults = {0};
  status st = STATUS_OUT_OF_MEMORY;
  for (; st == STATUS_OUT_OF_MEMORY; faults.fail_at++) {
    rt_comm *endpoints[KIT_MOST_RANKS];
    rt_comm_options options = {.ranks = 3};
    uint32_t n = 0;
    faults.calls = 0;
    allocator memory = memory_faulty(&faults);
    st = kit_backend->open(&options, &memory, KIT_MOST_RANKS, endpoints, &n);
    if (st == STATUS_OK) st = run_by_one_thread(endpoints, n, 1);
    uint64_t calls = faults.calls;
    if (st == STATUS_OK) st = run_by_one_thread(endpoints, n, 100);
    if (st == STATUS_OK) EXPECT_INT(faults.calls, calls);
    for (uint32_t i = 0; i < n; i++) endpoints[i]->ops->close(endpoints[i]);
    EXPECT_INT(faults.live, 0);
    if (st != STATUS_OK) EXPECT_INT(st, STATUS_OUT_OF_MEMORY);
    status_clear();
  }
  EXPECT(faults.fail_at > 3);
}

#endif
