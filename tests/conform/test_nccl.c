/* Communications through NCCL: every kind, dtype and reduction on 1 to 8 ranks against the in-process
 * backend, random worlds directly, as graphs and with delayed streams, and all ways to fail that the
 * stand-in knows (tests/standin/nccl.c).
 *
 *   test_nccl [quick]
 *
 * Skips where there is no GPU or no NCCL. With NCCL itself there are no more ranks than GPUs, and nothing
 * is made to fail. */
#include <math.h>
#include <stdlib.h>

#include "conform/rig.h"
#include "conform/world_random.h"
#include "order_machine.h"

static bool quick;
static uint32_t most_ranks; /* 8 with the stand-in, else as many as there are GPUs */
static bool is_standin;

static rt_device *open_device(rt_device_options o, const allocator *memory) {
  rt_device *d = NULL;
  o.carrier = RT_CARRIER_NCCL;
  if (!EXPECT_INT(rt_device_cuda.open(&o, memory, &d), STATUS_OK)) {
    fprintf(stderr, "%s\n", status_message());
    exit(test_finish());
  }
  return d;
}

static rt_loaded *load(rt_device *d, const rt_plan *plan) {
  rt_loaded *l = NULL;
  if (EXPECT_INT(d->ops->load(d, plan, &l), STATUS_OK)) return l;
  fprintf(stderr, "%s\n", status_message());
  exit(test_finish());
}

static bool run_ok(rt_loaded *l, void *const *inputs, void *const *outputs, rt_span *spans) {
  if (rt_run(l, inputs, outputs, spans, NULL) == STATUS_OK) return true;
  fprintf(stderr, "%s\n", status_message());
  status_clear();
  return false;
}

/* ---- every kind ---- */
enum { COUNT = 37, MOST_CASES = 64 };

typedef enum form { APART, IN_PLACE, ROOT_LACKS, EMPTY, FORMS } form;

typedef struct matrix {
  arena memory;
  uint32_t n, cases;
  ir_dtype dtype;
  uint32_t teams[2][WORLD_RANKS]; /* in both directions: they communicate side by side */
  kit kits[WORLD_RANKS];
  rt_plan *plan;
  rt_comm_kind kinds[MOST_CASES];
  rt_comm_op ops[MOST_CASES];
  form forms[MOST_CASES];
  void **inputs, **expected, **outputs;
} matrix;

static int64_t room(const matrix *m) { return m->n * (int64_t)COUNT; }

static bool may(const matrix *m, rt_comm_kind kind, form f) {
  bool moves_in_place = kind != RT_COMM_ALL_TO_ALL && !rt_comm_is_message(kind);
  switch (f) {
  case APART:
  case EMPTY: return true;
  case IN_PLACE: return moves_in_place;
  case ROOT_LACKS: return rt_comm_has_root(kind) && m->n > 1;
  case FORMS: break;
  }
  return false;
}

/* `pieces` of a buffer, from piece `at` on. */
static uint32_t part(const matrix *m, kit *k, uint32_t buffer, uint32_t at, uint32_t pieces) {
  rt_view v = k->views.data[buffer];
  int64_t n = pieces * (int64_t)COUNT;
  v.dtype = m->dtype;
  v.extents = arena_copy(&k->memory, &n, sizeof n);
  v.offset_bytes += at * (int64_t)COUNT * (int64_t)ir_dtype_size_bytes(m->dtype);
  vec_push(&k->memory, &k->views, v);
  return k->views.len - 1;
}

static void place(const matrix *m, kit *k, uint32_t c, rt_post *p) {
  uint32_t x = 2 * c, y = 2 * c + 1; /* buffers */
  bool gathers = p->kind == RT_COMM_ALLGATHER || p->kind == RT_COMM_GATHER;
  bool scatters = p->kind == RT_COMM_REDUCE_SCATTER || p->kind == RT_COMM_SCATTER;
  bool is_root = p->me == p->root, in_place = m->forms[c] == IN_PLACE;
  uint32_t n = m->forms[c] == EMPTY ? 0 : m->n, one = n > 0;
  uint32_t taken = scatters || p->kind == RT_COMM_ALL_TO_ALL ? n : one;
  uint32_t given = gathers || p->kind == RT_COMM_ALL_TO_ALL ? n : one;
  p->in = part(m, k, in_place ? y : x, in_place && gathers ? p->me : 0, taken);
  p->out = part(m, k, y, in_place && scatters ? p->me : 0, given);
  bool lacks = m->forms[c] == ROOT_LACKS && is_root;
  bool gives = p->kind == RT_COMM_GATHER || p->kind == RT_COMM_REDUCE;
  bool takes = p->kind == RT_COMM_BROADCAST || p->kind == RT_COMM_SCATTER;
  if (takes && !is_root) p->in = RT_NO_VIEW;
  if (gives && !is_root) p->out = RT_NO_VIEW;
  if (gives && lacks) p->in = RT_NO_VIEW;
  if (takes && lacks) p->out = RT_NO_VIEW;
}

static rt_post post_of(const matrix *m, uint32_t c, uint32_t r) {
  rt_post p = {.kind = m->kinds[c], .op = m->ops[c], .dtype = m->dtype, .team = m->teams[c % 2]};
  uint32_t me = 0;
  while (p.team[me] != r) me++;
  p.n_team = m->n;
  p.me = me;
  p.rank = r;
  p.root = c % m->n;
  p.count = p.count_from = m->forms[c] == EMPTY ? 0 : COUNT;
  p.to = (int32_t)((me + 1) % m->n);
  p.from = (int32_t)((me + m->n - 1) % m->n);
  return p;
}

static void list_cases(matrix *m) {
  for (unsigned kind = 0; kind < RT_COMM_KIND_COUNT; kind++) {
    for (unsigned op = 0; op < RT_COMM_OP_COUNT; op++) {
      if (kind == RT_COMM_SEND || kind == RT_COMM_RECV) continue; /* a permute is both */
      if (!rt_comm_op_allowed((rt_comm_op)op, m->dtype)) continue;
      for (unsigned f = 0; f < FORMS; f++) {
        if (!may(m, (rt_comm_kind)kind, (form)f) || (op > 0 && f != APART && f != (op + 1) % FORMS))
          continue;
        if (m->cases == MOST_CASES) abort();
        m->kinds[m->cases] = (rt_comm_kind)kind;
        m->ops[m->cases] = (rt_comm_op)op;
        m->forms[m->cases++] = (form)f;
      }
      if (!rt_comm_reduces((rt_comm_kind)kind)) break;
    }
  }
}

/* Small numbers, of which sums and products are exact in every dtype and order; a NaN for min and max. */
static void fill(const matrix *m, uint32_t c, uint64_t key, void *data) {
  static const uint16_t halves[] = {0x3c00, 0x4000, 0xbc00, 0},
                        brains[] = {0x3f80, 0x4000, 0xbf80, 0};
  static const int8_t numbers[] = {1, 2, -1, 0};
  bool orders = m->ops[c] == RT_COMM_MIN || m->ops[c] == RT_COMM_MAX;
  for (int64_t i = 0; i < room(m); i++) {
    uint64_t bits = random_bits(key, (uint64_t)i);
    int8_t x = numbers[bits % 4];
    switch (m->dtype) {
    case IR_F64: ((double *)data)[i] = x; break;
    case IR_F32: ((float *)data)[i] = orders && i % 11 == 3 && key % 3 == 0 ? NAN : x; break;
    case IR_F16: ((uint16_t *)data)[i] = halves[bits % 4]; break;
    case IR_BF16: ((uint16_t *)data)[i] = brains[bits % 4]; break;
    case IR_I64: ((int64_t *)data)[i] = (int64_t)bits; break;
    case IR_I32: ((int32_t *)data)[i] = (int32_t)bits; break;
    case IR_I8:
    case IR_U8: ((uint8_t *)data)[i] = (uint8_t)bits; break;
    case IR_BOOL: ((uint8_t *)data)[i] = bits & 1; break;
    case IR_DTYPE_NONE:
    case IR_DTYPE_COUNT: abort();
    }
  }
}

static bool is_same(const matrix *m, const void *a, const void *b) {
  size_t size = ir_dtype_size_bytes(m->dtype);
  for (size_t i = 0; i < (size_t)room(m); i++) {
    if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) continue;
    bool nan = m->dtype == IR_F32 && isnan(((const float *)a)[i]) && isnan(((const float *)b)[i]);
    if (!nan) return false;
  }
  return true;
}

static void make_rank(matrix *m, uint32_t r) {
  kit *k = &m->kits[r];
  uint32_t posts[MOST_CASES];
  kit_init(k, 3);
  for (uint32_t c = 0; c < m->cases; c++) {
    (void)kit_buffer(k, RT_BUFFER_INPUT, c, room(m));
    (void)kit_buffer(k, RT_BUFFER_OUTPUT, c, room(m));
  }
  for (uint32_t c = 0; c < m->cases; c++) {
    rt_post p = post_of(m, c, r);
    place(m, k, c, &p);
    posts[c] = kit_post(k, 1 + c % 2, p);
  }
  for (uint32_t c = 0; c < m->cases; c++) (void)kit_join(k, 0, posts[c]);
  (void)kit_plan(k);
}

static void make_matrix(matrix *m, ir_dtype dtype, uint32_t n) {
  rt_plan *plans[WORLD_RANKS];
  *m = (matrix){.n = n, .dtype = dtype};
  arena_init(&m->memory, &memory_default);
  for (uint32_t i = 0; i < n; i++) m->teams[0][i] = m->teams[1][n - 1 - i] = n - 1 - i;
  list_cases(m);
  for (uint32_t r = 0; r < n; r++) {
    make_rank(m, r);
    plans[r] = &m->kits[r].plan;
  }
  if (rt_plan_join(plans, n, &memory_default, &m->plan) != STATUS_OK) abort();
  uint32_t arrays = n * m->cases;
  m->inputs = ARENA_ARRAY(&m->memory, arrays, void *);
  m->expected = ARENA_ARRAY(&m->memory, arrays, void *);
  m->outputs = ARENA_ARRAY(&m->memory, arrays, void *);
  for (uint32_t i = 0; i < arrays; i++) {
    m->inputs[i] = arena_alloc(&m->memory, (size_t)room(m) * 8);
    m->expected[i] = arena_alloc(&m->memory, (size_t)room(m) * 8);
    m->outputs[i] = arena_alloc(&m->memory, (size_t)room(m) * 8);
    fill(m, i % m->cases, i, m->inputs[i]);
  }
}

static void fill_outputs(const matrix *m, void **outputs) {
  for (uint32_t i = 0; i < m->n * m->cases; i++) fill(m, i % m->cases, i + 1000, outputs[i]);
}

static bool reduces_all(const rt_post *post, bool all_give) {
  (void)post, (void)all_give;
  return true;
}

static status expect_matrix(void *context) {
  matrix *m = context;
  cuda_order_options o = {.as_posted = true, .reduces = reduces_all};
  return machine_run(m->plan, &o, m->inputs, m->expected, 1);
}

static void test_matrix(ir_dtype dtype, uint32_t n) {
  matrix *m = calloc(1, sizeof *m);
  if (!m) abort();
  make_matrix(m, dtype, n);
  fill_outputs(m, m->expected);
  EXPECT_INT(memory_guard(expect_matrix, m), STATUS_OK);
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  rt_loaded *l = load(d, m->plan);
  for (int r = 0; r < 2; r++) {
    fill_outputs(m, m->outputs);
    EXPECT(run_ok(l, m->inputs, m->outputs, NULL));
    for (uint32_t i = 0; i < n * m->cases; i++) {
      uint32_t c = i % m->cases;
      if (EXPECT(is_same(m, m->outputs[i], m->expected[i]))) continue;
      fprintf(stderr, "%s (%s) of %s, form %d, rank %u of %u\n", rt_comm_kind_text(m->kinds[c]),
              rt_comm_op_text(m->ops[c]), ir_dtype_text(dtype), (int)m->forms[c], i / m->cases, n);
    }
  }
  d->ops->unload(l);
  d->ops->close(d);
  rt_plan_destroy(m->plan);
  for (uint32_t r = 0; r < n; r++) kit_destroy(&m->kits[r]);
  arena_destroy(&m->memory);
  free(m);
}

static void test_all_kinds(void) {
  static const uint32_t sizes[] = {1, 2, 3, 8};
  for (unsigned dtype = 1; dtype < IR_DTYPE_COUNT; dtype++)
    for (uint32_t i = 0; i < 4; i++)
      if (sizes[i] <= most_ranks && (!quick || sizes[i] <= 3))
        test_matrix((ir_dtype)dtype, sizes[i]);
}

/* ---- random worlds ---- */
static void test_worlds(rt_device_options o, const char *name, int64_t width, uint32_t worlds,
                        uint32_t runs) {
  rt_device *d = open_device(o, &memory_default);
  uint32_t wrong = 0;
  d->ops->attach(d, NULL, 0, 20 * SECONDS);
  for (uint32_t seed = 0; seed < worlds; seed++) {
    world w;
    world_make(&w, seed, 1 + seed % most_ranks, width, 40);
    rt_loaded *l = load(d, w.plan);
    for (uint32_t r = 0; r < runs; r++) {
      world_clear(&w);
      wrong += !run_ok(l, w.inputs, w.outputs, NULL) || !world_is_right(&w);
    }
    d->ops->unload(l);
    world_destroy(&w);
  }
  d->ops->close(d);
  if (wrong) fprintf(stderr, "%s: ", name);
  EXPECT_INT(wrong, 0);
}

/* Spans lie within the run, and communications take time. */
static void test_spans(void) {
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  world w;
  world_make(&w, 3, most_ranks < 4 ? most_ranks : 4, 2000, 60);
  uint32_t wrong = 0;
  rt_span *spans = ARENA_ARRAY(&w.memory, w.plan->n_tasks + (size_t)w.plan->n_posts, rt_span);
  rt_loaded *l = load(d, w.plan);
  int64_t start_ns = rt_clock_ns();
  EXPECT(run_ok(l, w.inputs, w.outputs, spans) && world_is_right(&w));
  int64_t wall_ns = rt_clock_ns() - start_ns;
  uint32_t tasks = w.plan->n_tasks, empty = 0;
  for (uint32_t i = 0; i < tasks + w.plan->n_posts; i++) {
    bool meets = i >= tasks && w.plan->posts[i - tasks].n_team > 1;
    wrong += spans[i].start_ns < 0 || spans[i].end_ns < spans[i].start_ns;
    wrong += spans[i].end_ns > wall_ns;
    empty += meets && spans[i].end_ns == spans[i].start_ns;
  }
  EXPECT(empty * 4 <= w.plan->n_posts); /* some are shorter than what can be told */
  EXPECT_INT(wrong, 0);
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
}

/* ---- failures ---- */
static void tell(const char *what) { (void)setenv("WEIR_STANDIN_NCCL", what, 1); }

/* Whatever fails, the run ends with a message, and the next one is as if nothing had been. */
static bool fails_once(rt_device_options o, const char *what, const char *text) {
  rt_device *d = open_device(o, &memory_default);
  rt_loaded *l = NULL;
  world w;
  d->ops->attach(d, NULL, 0, SECONDS / 4);
  world_make(&w, 11, 4, 16, 30);
  tell(what);
  status st = d->ops->load(d, w.plan, &l);
  if (st == STATUS_OK) st = rt_run(l, w.inputs, w.outputs, NULL, NULL);
  bool failed = st != STATUS_OK;
  if (failed) {
    EXPECT_INT(st, STATUS_UNAVAILABLE);
    EXPECT_CONTAINS(status_message(), text);
  }
  tell("");
  status_clear();
  if (!l) l = load(d, w.plan);
  for (int r = 0; r < 2; r++) {
    world_clear(&w);
    EXPECT(run_ok(l, w.inputs, w.outputs, NULL) && world_is_right(&w));
  }
  d->ops->unload(l);
  d->ops->close(d);
  world_destroy(&w);
  return failed;
}

static void test_failing_calls(void) {
  static const char *const functions[] = {
      "ncclGetUniqueId",   "ncclCommInitRankConfig", "ncclGroupStart",
      "ncclGroupEnd",      "ncclBroadcast",          "ncclReduce",
      "ncclReduceScatter", "ncclAllReduce",          "ncclSend",
      "ncclRecv",          "ncclAllGather"};
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
    for (int n = 1; n < (quick ? 2 : 40); n += n < 4 ? 1 : 7) {
      char what[64], text[64];
      (void)snprintf(what, sizeof what, "fail:%s:%d", functions[f], n);
      (void)snprintf(text, sizeof text, "%s was told to fail", functions[f]);
      rt_device_options o = {.graph = n % 2 == 0};
      if (!fails_once(o, what, text)) break;
    }
  }
}

static void test_late_failures(void) {
  for (int n = 1; n < (quick ? 2 : 6); n++) {
    char what[64];
    for (int graph = 0; graph < 2; graph++) {
      rt_device_options o = {.graph = graph};
      (void)snprintf(what, sizeof what, "async:%d", n);
      EXPECT(fails_once(o, what, "was told to fail"));
      (void)snprintf(what, sizeof what, "hang:%d", n);
      EXPECT(fails_once(o, what, "no progress in 0.25 s"));
    }
  }
}

/* The message of a timeout tells who waits for what. */
static void test_timeout_message(void) {
  matrix *m = calloc(1, sizeof *m);
  if (!m) abort();
  make_matrix(m, IR_F32, 2);
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  d->ops->attach(d, NULL, 0, SECONDS / 5);
  rt_loaded *l = load(d, m->plan);
  tell("hang:2");
  fill_outputs(m, m->outputs);
  int64_t start_ns = rt_clock_ns();
  EXPECT_INT(rt_run(l, m->inputs, m->outputs, NULL, NULL), STATUS_UNAVAILABLE);
  EXPECT(rt_clock_ns() - start_ns < 5 * SECONDS);
  EXPECT_CONTAINS(status_message(), "no progress in 0.2 s: rank ");
  EXPECT_CONTAINS(status_message(), " waits for broadcast of 37 f32 with root 1 on team (");
  status_clear();
  tell("");
  d->ops->unload(l);
  d->ops->close(d);
  rt_plan_destroy(m->plan);
  for (uint32_t r = 0; r < 2; r++) kit_destroy(&m->kits[r]);
  arena_destroy(&m->memory);
  free(m);
}

/* One rank computes for longer than the timeout while the other waits for it: that is no stillness. */
static void make_long(kit kits[2], int64_t width, rt_plan **plan) {
  static const uint32_t team[] = {0, 1};
  rt_plan *plans[2];
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &kits[r];
    kit_init(k, 1);
    uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, 16), z = kit_buffer(k, RT_BUFFER_OUTPUT, 0, 16);
    uint32_t u = kit_pool(k, width);
    for (int i = 0; i < 12 && r == 0; i++) (void)kit_binary(k, 0, IR_OP_MUL, u, u, u);
    rt_post p = {.kind = RT_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
    p.me = p.rank = r;
    p.count = 16;
    p.in = x, p.out = z;
    (void)kit_join(k, 0, kit_post(k, 0, p));
    (void)kit_plan(k);
    plans[r] = &k->plan;
  }
  if (rt_plan_join(plans, 2, &memory_default, plan) != STATUS_OK) abort();
}

static void test_long_kernels(void) {
  int64_t x[16] = {1}, z[2][16];
  void *inputs[] = {x, x}, *outputs[] = {z[0], z[1]};
  int64_t taken_ns = 0;
  rt_device *d = open_device((rt_device_options){0}, &memory_default);
  for (int64_t width = 1 << 17; taken_ns < SECONDS / 2 && width <= 1 << 23; width *= 4) {
    kit kits[2];
    rt_plan *plan;
    make_long(kits, width, &plan);
    rt_loaded *l = load(d, plan);
    d->ops->attach(d, NULL, 0, 0);
    int64_t start_ns = rt_clock_ns();
    EXPECT(run_ok(l, inputs, outputs, NULL));
    taken_ns = rt_clock_ns() - start_ns;
    d->ops->attach(d, NULL, 0, taken_ns / 3);
    if (taken_ns >= SECONDS / 2) EXPECT(run_ok(l, inputs, outputs, NULL));
    EXPECT_INT(z[1][0], 2);
    d->ops->unload(l);
    rt_plan_destroy(plan);
    for (int r = 0; r < 2; r++) kit_destroy(&kits[r]);
  }
  d->ops->close(d);
}

static void test_allocations(void) {
  world w;
  world_make(&w, 5, most_ranks < 3 ? most_ranks : 3, 16, 12);
  world_test_allocations(&w, &rt_device_cuda, &(rt_device_options){.carrier = RT_CARRIER_NCCL});
  world_destroy(&w);
}

/* ---- what there is ---- */
static bool is_there(void) {
  rt_device *d = NULL;
  rt_device_options o = {.carrier = RT_CARRIER_NCCL};
  status st = rt_device_cuda.open(&o, &memory_default, &d);
  if (st != STATUS_OK) {
    EXPECT_INT(st, STATUS_UNAVAILABLE);
    printf("skipped: %s\n", status_message());
    status_clear();
    return false;
  }
  for (most_ranks = 1; most_ranks < WORLD_RANKS; most_ranks++) {
    world w;
    rt_loaded *l = NULL;
    world_make(&w, 0, most_ranks + 1, 16, 20);
    st = d->ops->load(d, w.plan, &l);
    if (l) d->ops->unload(l);
    world_destroy(&w);
    if (st == STATUS_OK) continue;
    EXPECT_CONTAINS(status_message(), "NCCL wants a GPU for every device");
    status_clear();
    break;
  }
  d->ops->close(d);
  return true;
}

int main(int argc, char **argv) {
  quick = argc > 1 && strcmp(argv[1], "quick") == 0;
  is_standin = getenv("WEIR_STANDIN_NCCL") != NULL;
  if (!is_there()) return test_finish();
  printf("up to %u ranks%s\n", most_ranks, is_standin ? ", with the stand-in" : "");
  test_all_kinds();
  static const struct {
    const char *name;
    rt_device_options o;
  } modes[] = {{"direct", {.threads = 0}},
               {"graph", {.graph = true}},
               {"delayed", {.adversarial = true, .seed = 7}}};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    test_worlds(modes[i].o, modes[i].name, 16, quick ? 4 : 40, 3);
    test_worlds(modes[i].o, modes[i].name, 50000, quick ? 1 : 8, 2);
  }
  test_spans();
  if (is_standin) {
    test_failing_calls();
    test_late_failures();
    test_timeout_message();
    test_long_kernels();
  }
  if (!quick) test_allocations();
  return test_finish();
}
