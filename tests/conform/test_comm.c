/* What every communication backend must do. Started by an MPI launcher the test is for mpi, otherwise
 * for inproc, which has all its ranks in this process and is asked a few more things. */
#include "conform/comm_failures.h"
#include "conform/comm_matrix.h"
#include "mpi/launched.h"

#include <math.h>

/* ---- element reductions ---- */
static double fold_f64(ir_combine op, double a, double b, bool narrow) {
  if (op == IR_COMBINE_SUM) return narrow ? (double)((float)a + (float)b) : a + b;
  if (op == IR_COMBINE_PROD) return narrow ? (double)((float)a * (float)b) : a * b;
  if (isnan(a) || isnan(b)) return NAN;
  return op == IR_COMBINE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

/* In 64 bits, without overflow. */
static int64_t fold_i64(ir_combine op, int64_t a, int64_t b) {
  if (op == IR_COMBINE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
  if (op == IR_COMBINE_PROD) return (int64_t)((uint64_t)a * (uint64_t)b);
  return kit_fold(op, a, b);
}

static void expected_element(ir_combine op, ir_dtype t, uint32_t n, const void *const *sources,
                             size_t i, void *want) {
  size_t at = i * ir_dtype_size_bytes(t);
  double f = 0;
  int64_t k = 0;
  for (uint32_t s = 0; s < n; s++) {
    const char *p = (const char *)sources[s] + at;
    double x = ir_element_as_f64(t, p);
    int64_t y = ir_element_as_i64(t, p);
    f = s ? fold_f64(op, f, x, t != IR_F64) : x;
    k = s ? fold_i64(op, k, y) : y;
    if (t == IR_BOOL) k = k != 0;
  }
  if (ir_dtype_is_float(t)) ir_element_set_f64(t, want, f);
  else ir_element_set_i64(t, want, k);
}

static bool same_element(ir_dtype t, const void *a, const void *b) {
  if (ir_dtype_is_float(t) && isnan(ir_element_as_f64(t, a))) return isnan(ir_element_as_f64(t, b));
  if (ir_dtype_is_float(t)) return ir_element_as_f64(t, a) == ir_element_as_f64(t, b);
  return memcmp(a, b, ir_dtype_size_bytes(t)) == 0;
}

/* Random bits: all classes of numbers. `in_place`: out is the first source. */
static void test_reduction(ir_combine op, ir_dtype t, size_t n, uint32_t n_sources, bool in_place) {
  enum { MAX = 1100 };
  static uint64_t data[9][MAX], out[MAX];
  const void *sources[9], *first = in_place ? (void *)out : (void *)data[0];
  for (uint32_t s = 0; s < n_sources; s++)
    for (size_t i = 0; i < MAX; i++) data[s][i] = random_bits(op * 100 + t * 10 + s, i);
  if (t == IR_BOOL)
    for (size_t i = 0; i < MAX; i++) data[0][i] &= 0x0101010101010101;
  memcpy(out, data[0], sizeof out);
  for (uint32_t s = 0; s < n_sources; s++) sources[s] = s ? data[s] : first;
  size_t half = n / 2, middle = half * ir_dtype_size_bytes(t); /* in two steps */
  rt_comm_reduce(op, t, 0, half, n_sources, sources, out);
  rt_comm_reduce(op, t, half, n - half, n_sources, sources, (char *)out + middle);
  sources[0] = data[0];
  size_t size = ir_dtype_size_bytes(t), wrong = 0;
  for (size_t i = 0; i < n; i++) {
    char want[8];
    expected_element(op, t, n_sources, sources, i, want);
    wrong += !same_element(t, want, (const char *)out + i * size);
  }
  EXPECT_INT(wrong, 0);
}

static void test_reductions(void) {
  for (unsigned op = 0; op < IR_COMBINE_COUNT; op++)
    for (unsigned t = 1; t < IR_DTYPE_COUNT; t++)
      for (uint32_t sources = 1; sources <= 9 && ir_combine_allows((ir_combine)op, (ir_dtype)t);
           sources++)
        for (size_t n = 0; n < 1100; n = n * 3 + 1)
          test_reduction((ir_combine)op, (ir_dtype)t, n, sources, n % 2);
}

/* x + 0 widens and narrows: all f16 and bf16 come back; and random f32 round as they should. */
static void test_narrow_floats(void) {
  static uint16_t all[65536], zero[65536], out[65536];
  const void *sources[] = {all, zero};
  for (uint32_t i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  for (ir_dtype t = IR_F16; t <= IR_BF16; t++) {
    rt_comm_reduce(IR_COMBINE_MAX, t, 0, 65536, 2, (const void *[]){all, all}, out);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 65536; i++) wrong += !same_element(t, &all[i], &out[i]);
    EXPECT_INT(wrong, 0);
    for (uint32_t round = 0; round < (SANITIZED ? 4 : 64);
         round++) { /* sums and products that need rounding */
      for (uint32_t i = 0; i < 65536; i++) zero[i] = (uint16_t)random_bits(round, i);
      ir_combine op = round % 2 ? IR_COMBINE_SUM : IR_COMBINE_PROD;
      rt_comm_reduce(op, t, 0, 65536, 2, sources, out);
      for (uint32_t i = 0; i < 65536; i++) {
        uint16_t want;
        expected_element(op, t, 2, sources, i, &want);
        wrong += !same_element(t, &want, &out[i]);
      }
    }
    EXPECT_INT(wrong, 0);
  }
}

/* ---- collectives ---- */
static void test_matrix(void) {
  matrix m = matrix_make();
  m.reps = SANITIZED || !kit_in_process ? 2 : 8;
  kit_run(kit_ranks, matrix_body, &m);
  kit_run(kit_ranks, matrix_body_window, &m);
  free(m.steps);
  m = matrix_make_large();
  m.reps = 2;
  kit_run(kit_ranks, matrix_body, &m);
  kit_run(kit_ranks, matrix_body_window, &m);
  free(m.steps);
  m = matrix_make_huge();
  m.reps = 1;
  kit_run(kit_ranks, matrix_body, &m);
  free(m.steps);
}

static uint32_t everybody(uint32_t *team, const rt_comm *comm, bool reversed) {
  for (uint32_t i = 0; i < comm->n_ranks; i++) team[i] = reversed ? comm->n_ranks - 1 - i : i;
  return reversed ? comm->n_ranks - 1 - comm->rank : comm->rank;
}

/* Several over the same buffers, without a wait in between: a reduce_scatter whose result is
 * gathered, eight allreduces in place, broadcasts of which the last one stays. */
static void chain_body(rt_comm *comm, void *context) {
  (void)context;
  enum { N = 1024, DEPTH = 8 };
  uint32_t team[KIT_MOST_RANKS], n = comm->n_ranks;
  static int64_t in[KIT_RANKS][KIT_RANKS * N], out[KIT_RANKS][KIT_RANKS * N];
  static int64_t mid[KIT_RANKS][N], last[KIT_RANKS][N], sources[DEPTH][N];
  rt_comm_ticket tickets[2 + DEPTH + DEPTH], *t = tickets;
  rt_comm_request r = {.kind = IR_COMM_REDUCE_SCATTER, .dtype = IR_I64, .team = team, .n_team = n};
  uint32_t me = r.me = everybody(team, comm, true);
  r.count = N;
  for (int64_t i = 0; i < n * N; i++) in[me][i] = i + me;
  if (me == 1 % n)
    for (int k = 0; k < DEPTH; k++)
      for (int i = 0; i < N; i++) sources[k][i] = k * 10000 + i;
  r.in = in[me], r.out = mid[me];
  if (comm->ops->post(comm, &r, t++)) kit_wrong("post", me, 0);
  r.kind = IR_COMM_ALLGATHER, r.in = mid[me], r.out = out[me];
  if (comm->ops->post(comm, &r, t++)) kit_wrong("post", me, 1);
  r.kind = IR_COMM_ALLREDUCE, r.in = r.out = mid[me];
  for (int k = 0; k < DEPTH; k++, t++)
    if (comm->ops->post(comm, &r, t)) kit_wrong("post", me, 2);
  r.kind = IR_COMM_BROADCAST, r.root = 1 % n, r.out = last[me];
  for (int k = 0; k < DEPTH; k++, t++) {
    r.in = sources[k];
    if (comm->ops->post(comm, &r, t)) kit_wrong("post", me, 3);
  }
  kit_wait(comm, t - 1);
  for (const rt_comm_ticket *k = tickets; k < t; k++)
    if (!comm->ops->done(comm, k)) kit_wrong("not done in order", me, k - tickets);
  int64_t many = n, low = n * (n - 1) / 2, power = 1, total = 0;
  for (int k = 1; k < DEPTH; k++) power *= many;
  for (int64_t i = 0; i < n * N; i++)
    if (out[me][i] != many * i + low) kit_wrong("gathered", me, i);
  for (int64_t i = 0; i < N; i++) {
    total = many * many * (many - 1) / 2 * N + many * (many * i + low);
    if (mid[me][i] != total * power) kit_wrong("reduced eight times", me, i);
    if (last[me][i] != (DEPTH - 1) * 10000 + i) kit_wrong("broadcast last", me, i);
  }
}

static void test_chains(void) {
  for (uint32_t n = 1; n <= kit_ranks; n++) kit_run(n, chain_body, NULL);
}

/* Roots that contribute or receive nothing. */
static void absent_root_body(rt_comm *comm, void *context) {
  (void)context;
  uint32_t team[KIT_MOST_RANKS], n = comm->n_ranks;
  rt_comm_request r = {.kind = IR_COMM_GATHER, .dtype = IR_I32, .team = team, .n_team = n};
  r.me = everybody(team, comm, false), r.root = n - 1, r.count = 1;
  bool root = r.me == r.root;
  int32_t in = (int32_t)r.me + 1, out[KIT_RANKS] = {-7}, all[KIT_RANKS] = {0};
  rt_comm_ticket t[4];
  r.in = root ? NULL : &in, r.out = root ? all : NULL;
  status st = comm->ops->post(comm, &r, &t[0]);
  r.kind = IR_COMM_REDUCE, r.out = root ? &out[0] : NULL;
  if (st == STATUS_OK) st = comm->ops->post(comm, &r, &t[1]);
  r.kind = IR_COMM_BROADCAST, r.in = root ? all : NULL, r.out = root ? NULL : &out[1];
  if (st == STATUS_OK) st = comm->ops->post(comm, &r, &t[2]);
  r.kind = IR_COMM_SCATTER, r.out = root ? NULL : &out[2];
  if (st == STATUS_OK) st = comm->ops->post(comm, &r, &t[3]);
  if (st != STATUS_OK) kit_wrong("post", comm->rank, st);
  else kit_wait(comm, &t[3]);
  int32_t sum = (int32_t)(n * (n - 1) / 2);
  if (root && (all[n - 1] != 0 || out[0] != sum)) kit_wrong("absent root", comm->rank, out[0]);
  if (!root && (out[1] != 1 || out[2] != (int32_t)r.me + 1)) kit_wrong("peers", comm->rank, out[2]);
}

/* ---- messages ---- */
/* Around the ring in reversed order, several in flight, unequal sizes, matched in order. */
static void ring_body(rt_comm *comm, void *context) {
  (void)context;
  enum { REPS = 32, MAX = 4000 };
  uint32_t team[KIT_MOST_RANKS], n = comm->n_ranks;
  static float in[KIT_RANKS][REPS][MAX], out[KIT_RANKS][REPS][MAX];
  rt_comm_ticket tickets[REPS];
  rt_comm_request r = {.kind = IR_COMM_PERMUTE, .dtype = IR_F32, .team = team, .n_team = n};
  uint32_t me = r.me = everybody(team, comm, true), left = (me + n - 1) % n;
  r.to = (int32_t)((me + 1) % n), r.from = (int32_t)left;
  for (uint32_t rep = 0; rep < REPS; rep++) {
    r.count = 8 + me * 100 + rep * (rep % 7), r.count_from = 8 + left * 100 + rep * (rep % 7);
    for (int64_t i = 0; i < r.count; i++) in[me][rep][i] = (float)(i + 10 * rep + 1000 * me);
    r.in = in[me][rep], r.out = out[me][rep];
    if (comm->ops->post(comm, &r, &tickets[rep])) kit_wrong("post", me, rep);
  }
  for (uint32_t rep = REPS; rep-- > 0;) {
    kit_wait(comm, &tickets[rep]);
    for (int64_t i = 0; i < 8 + left * 100 + rep * (rep % 7); i++)
      if (out[me][rep][i] != (float)(i + 10 * rep + 1000 * left)) kit_wrong("ring", me, rep);
  }
}

/* A shift along the line: its ends have one neighbour; odd members use plain send and recv. */
static void line_body(rt_comm *comm, void *context) {
  (void)context;
  uint32_t team[KIT_MOST_RANKS], n = comm->n_ranks;
  int64_t in = comm->rank, out = -1;
  rt_comm_request r = {.dtype = IR_I64, .team = team, .n_team = n, .count = 1, .count_from = 1};
  uint32_t me = r.me = everybody(team, comm, false);
  rt_comm_ticket t[2] = {0};
  bool first = me == 0, last = me + 1 == n, grouped = me % 2 == 0;
  r.in = &in, r.out = &out;
  r.to = last ? RT_COMM_NOBODY : (int32_t)me + 1, r.from = first ? RT_COMM_NOBODY : (int32_t)me - 1;
  r.kind = grouped ? IR_COMM_PERMUTE : IR_COMM_RECV;
  if (comm->ops->post(comm, &r, &t[0])) kit_wrong("post", me, 0);
  r.kind = IR_COMM_SEND;
  if (!grouped && !last && comm->ops->post(comm, &r, &t[1])) kit_wrong("post", me, 1);
  kit_wait(comm, &t[0]);
  if (!grouped && !last) kit_wait(comm, &t[1]);
  if (out != (first ? -1 : (int64_t)me - 1)) kit_wrong("line", me, out);
}

/* To oneself: nothing to wait for from others. */
static void self_body(rt_comm *comm, void *context) {
  (void)context;
  uint32_t alone[] = {comm->rank};
  float in[100], out[100] = {0};
  for (int i = 0; i < 100; i++) in[i] = (float)(i + 1);
  rt_comm_request r = {.kind = IR_COMM_SEND, .dtype = IR_F32, .team = alone, .n_team = 1};
  r.count = r.count_from = 100, r.in = in;
  rt_comm_ticket t;
  if (comm->ops->post(comm, &r, &t)) kit_wrong("post", comm->rank, 0);
  r.kind = IR_COMM_RECV, r.in = NULL, r.out = out;
  if (comm->ops->post(comm, &r, &t)) kit_wrong("post", comm->rank, 1);
  kit_wait(comm, &t);
  if (memcmp(in, out, sizeof in) != 0) kit_wrong("self", comm->rank, 0);
}

static void test_messages(void) {
  for (uint32_t n = 1; n <= kit_ranks; n++) {
    kit_run(n, ring_body, NULL);
    kit_run(n, line_body, NULL);
    kit_run(n, self_body, NULL);
    if (n > 1) kit_run(n, absent_root_body, NULL);
  }
}

/* ---- many ranks ---- */
static void crowd_body(rt_comm *comm, void *context) {
  (void)context;
  uint32_t team[KIT_MOST_RANKS], n = comm->n_ranks;
  int32_t in[100], out[KIT_MOST_RANKS], sums[100];
  rt_comm_request r = {.dtype = IR_I32, .team = team, .n_team = n};
  r.me = everybody(team, comm, false);
  for (int32_t rep = 0; rep < 20; rep++) {
    rt_comm_ticket t[2];
    for (int i = 0; i < 100; i++) in[i] = (int32_t)comm->rank * (i + rep);
    r.kind = IR_COMM_ALLREDUCE, r.count = 100, r.in = in, r.out = sums;
    if (comm->ops->post(comm, &r, &t[0])) kit_wrong("post", comm->rank, rep);
    r.kind = IR_COMM_ALLGATHER, r.count = 1, r.in = in + 1, r.out = out;
    if (comm->ops->post(comm, &r, &t[1])) kit_wrong("post", comm->rank, rep);
    kit_wait(comm, &t[0]);
    kit_wait(comm, &t[1]);
    int32_t all = (int32_t)(n * (n - 1) / 2);
    for (int32_t i = 0; i < 100; i++)
      if (sums[i] != all * (i + rep)) kit_wrong("crowd sum", comm->rank, i);
    for (int32_t i = 0; i < (int32_t)n; i++)
      if (out[i] != i * (1 + rep)) kit_wrong("crowd gather", comm->rank, i);
  }
}

/* ---- only where all ranks are in this process ---- */
static _Atomic uint32_t notified[KIT_RANKS];
static void count_notice(void *context, uint32_t rank) {
  (void)context;
  (void)atomic_fetch_add(&notified[rank], 1);
}

/* As an executor does it: posts by one thread per rank, done() polled, progress() by whoever has time;
 * here everything on one thread, and all data are moved by rank 2, who is not in the team. */
static void test_polling(void) {
  enum { N = 300000 };
  static float in[2][N], out[2][N];
  static const uint32_t team[] = {1, 0};
  rt_comm_options options = {.ranks = 3, .notify = count_notice};
  rt_comm *endpoints[KIT_MOST_RANKS];
  rt_comm_ticket t[2];
  uint32_t n;
  EXPECT_INT(kit_backend->open(&options, &memory_default, 3, endpoints, &n), STATUS_OK);
  EXPECT_INT(endpoints[0]->ops->prepare(endpoints[0], team, 2), STATUS_OK);
  for (int i = 0; i < N; i++) in[0][i] = (float)i, in[1][i] = 1;
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .team = team, .n_team = 2};
  r.count = N;
  for (uint32_t rank = 0; rank < 2; rank++) {
    r.me = 1 - rank, r.in = in[rank], r.out = out[rank];
    EXPECT_INT(endpoints[rank]->ops->post(endpoints[rank], &r, &t[rank]), STATUS_OK);
    EXPECT(!endpoints[rank]->ops->done(endpoints[rank], &t[rank]));
  }
  char text[256];
  endpoints[0]->ops->describe(endpoints[0], &t[0], text, sizeof text);
  EXPECT_CONTAINS(text, "rank 0 waits for allreduce of 300000 f32 (sum) on team (1 0), which is "
                        "under way");
  while (endpoints[2]->ops->progress(endpoints[2])) {
  }
  EXPECT(endpoints[0]->ops->done(endpoints[0], &t[0]));
  EXPECT(endpoints[1]->ops->done(endpoints[1], &t[1]));
  EXPECT(atomic_load(&notified[0]) >= 2 && atomic_load(&notified[1]) >= 2 && !notified[2]);
  int wrong = 0;
  for (int i = 0; i < N; i++) wrong += out[0][i] != (float)i + 1 || out[1][i] != (float)i + 1;
  EXPECT_INT(wrong, 0);
  for (uint32_t i = 0; i < n; i++) endpoints[i]->ops->close(endpoints[i]);
}

/* Closing with a post that nobody answered must end the others, and leave the buffers alone. */
static void test_open_limits(void) {
  rt_comm *endpoints[2];
  uint32_t n;
  rt_comm_options options = {.ranks = 0};
  EXPECT_INT(kit_backend->open(&options, &memory_default, 2, endpoints, &n), STATUS_BAD_USAGE);
  status_clear();
  options.ranks = RT_COMM_MAX_RANKS + 1;
  EXPECT_INT(kit_backend->open(&options, &memory_default, 2, endpoints, &n), STATUS_BAD_USAGE);
  status_clear();
  kit_backend->close(NULL);
}

static void test_in_process(void) {
  test_polling();
  test_memory();
  test_open_limits();
  kit_run(64, crowd_body, NULL);
  if (!SANITIZED) kit_run(KIT_MOST_RANKS, crowd_body, NULL);
}

/* Without arithmetic, which does not depend on the backend. */
static void choose_processes(const mpi_launch *launch, const rt_comm_ops *ops) {
  kit_backend = ops;
  kit_in_process = false;
  if (launch->size < kit_ranks) kit_ranks = launch->size;
}

int main(void) {
  mpi_launch launch;
  const rt_comm_ops *ops;
  kit_backend = &rt_comm_inproc;
  if (launched_find(&launch, &ops)) {
    choose_processes(&launch, ops);
  } else {
    test_reductions();
    test_narrow_floats();
  }
  test_matrix();
  test_chains();
  test_messages();
  test_mismatches();
  test_message_mismatch();
  test_troubles();
  test_bad_requests();
  test_faults();
  if (kit_in_process) test_in_process();
  return test_finish();
}
