/* The plan checker against an oracle: random small plans, every finding and every verdict on a wait
 * compared with definitions applied byte by byte and pair by pair.
 *
 *   test_check_random [SEEDS [FIRST]]      replays seeds FIRST, FIRST + 1, ... */
#include <stdlib.h>

#include "base/random.h"
#include "check_oracle.h"

/* ---- random plans ---- */
static uint64_t key, counter;
static bool careful; /* draws plans that are mostly right but for their order */
static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(key, counter++) % n); }
static bool chance(uint32_t percent) { return below(100) < percent; }

/* A view while it is drawn. */
typedef struct drawn {
  rt_view view;
  int64_t extents[IR_MAX_RANK], strides[IR_MAX_RANK];
} drawn;

static void shuffle_dims(drawn *v) {
  for (uint32_t d = v->view.rank; d > 1; d--) {
    uint32_t k = below(d);
    int64_t extent = v->extents[d - 1], stride = v->strides[d - 1];
    v->extents[d - 1] = v->extents[k], v->strides[d - 1] = v->strides[k];
    v->extents[k] = extent, v->strides[k] = stride;
  }
}

/* Cuts one dimension of n positions: a range, a step, backwards, or one position expanded. */
static void cut_dim(drawn *v, uint32_t d, int64_t n, int64_t size) {
  int64_t from = chance(50) ? 0 : below((uint32_t)n), step = chance(85) ? 1 : 2;
  int64_t most = (n - from + step - 1) / step,
          count = chance(60) ? most : 1 + below((uint32_t)most);
  v->view.offset_bytes += from * v->strides[d] * size;
  v->extents[d] = count;
  v->strides[d] *= step;
  if (chance(8)) { /* backwards */
    v->view.offset_bytes += (count - 1) * v->strides[d] * size;
    v->strides[d] = -v->strides[d];
  } else if (chance(5)) {
    v->strides[d] = 0;
  }
}

/* A slice of a dense tensor that fills the front of the buffer, or all of it. */
static uint32_t random_view(uint32_t buffer) {
  static const ir_dtype dtypes[] = {IR_F32, IR_F32, IR_F16, IR_U8};
  drawn v = {.view = {.buffer = buffer, .dtype = dtypes[below(4)], .rank = below(4)}};
  int64_t size = (int64_t)ir_dtype_size_bytes(v.view.dtype);
  int64_t left = kit_buffers.data[buffer].size_bytes;
  int64_t room = left / size, stride = 1, parent[IR_MAX_RANK];
  for (uint32_t d = v.view.rank; d-- > 0;) {
    parent[d] = d == 0 && chance(50) ? room / stride
                                     : 1 + below(room / stride < 5 ? (uint32_t)(room / stride) : 5);
    v.strides[d] = stride;
    stride *= parent[d];
  }
  if (chance(5)) v.view.offset_bytes = size * (int64_t)below((uint32_t)(room - stride + 1));
  for (uint32_t d = 0; d < v.view.rank; d++) cut_dim(&v, d, parent[d], size);
  if (!careful && chance(2)) v.view.offset_bytes += left;
  if (chance(1) && v.view.rank) v.extents[0] = 0;
  shuffle_dims(&v);
  v.view.extents = v.extents;
  v.view.strides = v.strides;
  return add_view(v.view);
}

static uint32_t whole(uint32_t buffer) {
  return flat(buffer, 0, kit_buffers.data[buffer].size_bytes / 4);
}

/* Buffers that may share the pool's bytes and, mostly, do not live at the same time. */
static uint32_t random_pool(uint32_t length) {
  uint32_t n = 1 + below(4);
  for (uint32_t k = 0; k < n; k++) {
    int64_t size = 8 + 4 * (int64_t)below(10), offset = 4 * (int64_t)below(32 - (uint32_t)size / 4);
    if (careful || chance(70)) offset = k * 32, size = size > 32 ? 32 : size;
    uint32_t b = pool("p", offset, size);
    if (careful) continue;
    if (chance(30)) kit_buffers.data[b].allocated_at = below(length);
    if (chance(30)) kit_buffers.data[b].freed_at = below(2 * length);
  }
  return n;
}

static uint32_t pending[64], n_pending; /* posts that nobody has waited for */

static void join_pending(uint32_t stream, uint32_t k) {
  join_on(stream, pending[k]);
  if (!chance(20)) pending[k] = pending[--n_pending];
}

static void random_waits(uint32_t stream, uint32_t percent) {
  for (uint32_t k = n_pending; k-- > 0;)
    if (chance(percent)) join_pending(stream, k);
  for (uint32_t s = 0; s < plan.n_streams; s++)
    if (s != stream && chance(percent)) wait_on(stream, s);
}

/* Buffers that launches draw from; the input comes first. */
static uint32_t live[16], n_live;

/* Frees a buffer of the pool and gives its memory, more or less, to a new one. */
static void replace_buffer(uint32_t percent) {
  uint32_t k = below(n_live), stream = below(plan.n_streams);
  rt_buffer b = kit_buffers.data[live[k]];
  if (b.kind != RT_BUFFER_POOL || kit_buffers.len == MAX_BUFFERS) return;
  release(live[k]);
  int64_t skip = 4 * (int64_t)below(3);
  if (skip < b.size_bytes) b.offset_bytes += skip, b.size_bytes -= skip;
  live[k] = pool("q", b.offset_bytes, b.size_bytes);
  random_waits(stream, percent);
  launch(stream, whole(live[k]), CHECK_NONE, CHECK_NONE);
}

/* The task launched last gets a second result, if that is to be. */
static void random_more(uint32_t result) {
  uint32_t to = live[1 + below(n_live - 1)], more = random_view(to);
  bool same = to == kit_views.data[result].buffer;
  if (kit_buffers.data[to].kind == RT_BUFFER_INPUT) return;
  if (careful && (same || rt_view_overlap(&kit_views.data[more]) != RT_APART)) return;
  rt_task *task = &kit_tasks.data[kit_tasks.len - 1];
  for (uint32_t k = 0; careful && k < task->n_operands; k++) {
    const rt_operand *o = &task->operands[k];
    if (o->kind == RT_OPERAND_VIEW && kit_views.data[o->view].buffer == to) return;
  }
  task->more = arena_copy(&kit_memory, &more, sizeof more);
  task->n_more = 1;
}

static void random_launch(uint32_t percent) {
  uint32_t stream = below(plan.n_streams), to = live[1 + below(n_live - 1)];
  uint32_t result = random_view(to), x = CHECK_NONE, y = CHECK_NONE;
  while (careful && rt_view_overlap(&kit_views.data[result]) != RT_APART) result = random_view(to);
  uint32_t from = live[below(n_live)];
  if (careful && from == to) from = 0;
  if (chance(60)) x = random_view(from);
  if (chance(15)) x = result;
  if (chance(20)) y = random_view(careful ? 0 : live[below(n_live)]);
  if (!careful && chance(10)) result = below(kit_views.len);
  if (kit_buffers.data[kit_views.data[result].buffer].kind == RT_BUFFER_INPUT) return;
  random_waits(stream, percent);
  launch(stream, result, x, y);
  if (chance(20)) random_more(result);
}

/* A dense range of a buffer, f32. */
static uint32_t random_range(uint32_t buffer, int64_t n) {
  int64_t room = kit_buffers.data[buffer].size_bytes / 4;
  return flat(buffer, chance(50) ? 0 : below((uint32_t)(room - n + 1)), n);
}

static void random_post(uint32_t percent) {
  static const ir_comm_kind kinds[] = {IR_COMM_ALLREDUCE, IR_COMM_ALLREDUCE, IR_COMM_SEND,
                                       IR_COMM_RECV};
  ir_comm_kind kind = kinds[below(4)];
  uint32_t stream = below(plan.n_streams), to = live[1 + below(n_live - 1)];
  uint32_t from = careful && kind == IR_COMM_ALLREDUCE ? 0 : live[below(n_live)];
  uint32_t in = RT_NO_VIEW, out = RT_NO_VIEW;
  int64_t room = kit_buffers.data[to].size_bytes / 4, rest = kit_buffers.data[from].size_bytes / 4;
  int64_t n = kind != IR_COMM_SEND && (kind == IR_COMM_RECV || room < rest) ? room : rest;
  if (chance(50)) n = 1 + below((uint32_t)n);
  if (kind != IR_COMM_SEND) out = random_range(to, n);
  if (kind != IR_COMM_RECV)
    in = kind == IR_COMM_ALLREDUCE && chance(20) ? out : random_range(from, n);
  random_waits(stream, percent);
  uint32_t p = post_on(stream, kind, in, out);
  if (chance(careful ? 2 : 20)) kit_posts.data[p].before = RT_NO_POST;
  if (n_pending < 64) pending[n_pending++] = p;
}

static void random_plan(uint64_t seed) {
  static const uint32_t densities[] = {0, 20, 50, 90, 100, 100};
  key = seed, counter = 0;
  careful = chance(60);
  n_pending = 0;
  uint32_t posts = chance(50) ? 0 : 10 + below(50);
  begin(1 + below(4));
  uint32_t length = 2 + below(10), percent = densities[below(6)];
  input("in", 0, 4 + 4 * (int64_t)below(20));
  uint32_t n_outputs = below(3);
  for (uint32_t k = 0; k < n_outputs; k++) output("out", k, 4 + 4 * (int64_t)below(16));
  uint32_t n = 1 + n_outputs + random_pool(length);
  plan.pool_bytes = MEMORY_BYTES;
  for (n_live = 0; n_live < n; n_live++) live[n_live] = n_live;
  for (uint32_t b = 1; b < n && (careful || percent != 20); b++)
    if (careful || chance(95)) launch(0, whole(b), CHECK_NONE, CHECK_NONE);
  for (uint32_t s = 1; s < plan.n_streams; s++)
    if (chance(80)) wait_on(s, 0);
  for (uint32_t k = 0; k < length; k++) {
    if (careful && chance(25)) replace_buffer(percent);
    if (chance(posts)) random_post(percent);
    else random_launch(percent);
  }
  random_waits(0, percent < 50 ? 50 : 100);
  finish_plan();
}

/* ---- comparing ---- */
static unsigned n_may;

static bool is_race(check_kind k) {
  return k == CHECK_RACE_RAW || k == CHECK_RACE_WAR || k == CHECK_RACE_WAW || k == CHECK_REUSE;
}

/* Is each race found, or one that the same missing wait explains? */
static bool all_found(const check_report *r, const verdict *v) {
  for (uint32_t i = 0; i < plan.n_instrs; i++)
    for (uint32_t j = i + 1; j < plan.n_instrs; j++) {
      bool explained = !v->race[i][j];
      for (uint32_t k = 0; k < r->findings.len && !explained; k++) {
        const check_finding *f = &r->findings.data[k];
        explained = is_race(f->kind) && f->a >= i && f->b <= j && is_post(f->a) == is_post(i) &&
                    (is_post(i) || plan.instrs[f->a].stream == plan.instrs[i].stream) &&
                    plan.instrs[f->b].stream == plan.instrs[j].stream;
      }
      if (!explained) return false;
    }
  return true;
}

static bool races_agree(const check_report *r, const verdict *v) {
  bool ok = true;
  for (uint32_t k = 0; k < r->findings.len; k++) {
    const check_finding *f = &r->findings.data[k];
    if (is_race(f->kind)) ok = ok && v->race[f->a][f->b];
  }
  return ok && all_found(r, v);
}

static uint32_t subject(const check_finding *f) {
  if (f->kind == CHECK_UNJOINED) return is_post(f->a) ? COMMUNICATIONS : plan.instrs[f->a].stream;
  return f->kind == CHECK_LAYOUT || f->kind == CHECK_OUTPUT_UNWRITTEN ? f->buffer : f->b;
}

static bool others_agree(const check_report *r, const verdict *v) {
  static bool at[CHECK_KIND_COUNT][MAX_INSTRS];
  memset(at, 0, sizeof at);
  for (uint32_t k = 0; k < r->findings.len; k++) {
    const check_finding *f = &r->findings.data[k];
    if (!is_race(f->kind)) at[f->kind][subject(f)] = true;
  }
  return memcmp(at, v->at, sizeof at) == 0;
}

/* Bytes named by a race's finding: its ends belong to both accesses. */
static bool bytes_agree(const check_report *r, const byte_set *sets) {
  for (uint32_t k = 0; k < r->findings.len; k++) {
    const check_finding *f = &r->findings.data[k];
    if (f->view_a == CHECK_NONE) continue;
    int64_t start = place_of(&plan.buffers[f->buffer]);
    const byte_set *a = &sets[f->view_a], *b = &sets[f->view_b];
    int64_t first = start + f->begin_bytes, last = start + f->end_bytes - 1;
    if (!a->has[first] || !b->has[first] || !a->has[last] || !b->has[last]) return false;
  }
  return true;
}

static unsigned n_joins;

static bool joins_agree(const check_report *r, const byte_set *sets) {
  static verdict without;
  bool ok = true;
  for (uint32_t i = 0; i < plan.n_instrs && r->n_found == 0; i++) {
    bool needed = false;
    if (plan.instrs[i].kind != RT_JOIN) continue;
    EXPECT(check_wait_is_needed(&plan, i, NULL, &needed) == STATUS_OK);
    oracle(i, sets, &without);
    ok = ok && needed == !without.passes;
    n_joins += needed;
  }
  return ok;
}

static bool waits_agree(const check_report *r, const byte_set *sets) {
  static verdict without;
  bool ok = true;
  for (uint32_t k = 0; k < r->waits.len && r->n_found == 0; k++) {
    const check_wait *w = &r->waits.data[k];
    bool needed = false;
    EXPECT(check_wait_is_needed(&plan, w->instr, NULL, &needed) == STATUS_OK);
    oracle(w->instr, sets, &without);
    ok = ok && w->verdict != CHECK_WAIT_UNEXAMINED && needed == !without.passes &&
         needed == (w->verdict == CHECK_WAIT_NEEDED);
    if (ok && needed && w->b != CHECK_NONE) ok = without.race[w->a][w->b];
  }
  return ok;
}

/* Is every finding right, or one that says that it may err? A plan that is wrong is not called right. */
static bool errs_safely(const check_report *r, const verdict *v, bool reuse_alone, unsigned *n) {
  bool ok = v->passes || r->n_found > 0;
  for (uint32_t k = 0; k < r->findings.len; k++) {
    const check_finding *f = &r->findings.data[k];
    bool right = is_race(f->kind) ? v->race[f->a][f->b] : v->at[f->kind][subject(f)];
    bool may = f->may && (!reuse_alone || f->kind == CHECK_REUSE);
    ok = ok && (right || may);
    *n += may;
  }
  return ok;
}

/* When no view may be cut into pieces, the answer errs on the safe side, and says where. */
static bool coarse_agrees(const verdict *v) {
  check_options options = {.max_findings = 10000, .max_boxes = 1, .max_walked = UINT32_MAX};
  check_report r;
  EXPECT(check_plan(&plan, &options, &r) == STATUS_OK);
  bool ok = errs_safely(&r, v, false, &n_may);
  check_report_destroy(&r);
  return ok;
}

static unsigned n_reused;

/* When buffers are looked at one by one, only what is said about memory that another had before may err, on the safe
 * side. Buffers that are used outside of their lives are told in another way. */
static bool parted_agrees(const verdict *v) {
  check_options options = {.max_findings = 10000, .max_walked = 1};
  check_report r;
  EXPECT(check_plan(&plan, &options, &r) == STATUS_OK);
  bool ok = errs_safely(&r, v, true, &n_reused);
  if (!r.count[CHECK_LAYOUT] && !r.count[CHECK_AFTER_FREE] && !r.count[CHECK_BEFORE_ALLOCATE])
    ok = ok && all_found(&r, v);
  check_report_destroy(&r);
  return ok;
}

static unsigned n_pruned;

/* Without the waits taken out the plan still passes, and each wait that is left is needed. */
static bool prune_agrees(const byte_set *sets, const verdict *v) {
  static verdict after;
  rt_plan whole_plan = plan;
  uint32_t removed = 0;
  plan.instrs = arena_copy(&kit_memory, plan.instrs, plan.n_instrs * sizeof *plan.instrs);
  plan.buffers = arena_copy(&kit_memory, plan.buffers, plan.n_buffers * sizeof *plan.buffers);
  EXPECT(check_prune_waits(&plan, &memory_default, &removed) == STATUS_OK);
  bool ok = plan.n_instrs + removed == whole_plan.n_instrs && (v->passes || removed == 0);
  if (v->passes) {
    oracle(CHECK_NONE, sets, &after);
    ok = ok && after.passes;
  }
  for (uint32_t i = 0; i < plan.n_instrs && v->passes && ok; i++) {
    if (plan.instrs[i].kind != RT_WAIT) continue;
    oracle(i, sets, &after);
    ok = !after.passes;
  }
  n_pruned += removed;
  plan = whole_plan;
  return ok;
}

static unsigned n_passing, n_needed, n_redundant, n_kinds[CHECK_KIND_COUNT];

static void count(const check_report *r) {
  n_passing += r->n_found == 0;
  for (uint32_t k = 0; k < CHECK_KIND_COUNT; k++) n_kinds[k] += r->count[k] != 0;
  n_redundant += r->n_redundant;
  if (r->n_found == 0) n_needed += r->waits.len - r->n_redundant;
}

static void test_seed(uint64_t seed) {
  static verdict v;
  check_report r;
  check_options options = {.max_findings = 10000};
  random_plan(seed);
  if (!EXPECT(plan.n_instrs < MAX_INSTRS)) return;
  EXPECT(check_plan(&plan, &options, &r) == STATUS_OK);
  byte_set *sets = ARENA_ARRAY(&kit_memory, plan.n_views, byte_set);
  for (uint32_t k = 0; k < plan.n_views; k++) sets[k] = oracle_bytes(k);
  oracle(CHECK_NONE, sets, &v);
  unsigned failed = test_failed;
  EXPECT_INT(r.n_found == 0, v.passes);
  EXPECT(races_agree(&r, &v));
  EXPECT(others_agree(&r, &v));
  EXPECT(bytes_agree(&r, sets));
  EXPECT(waits_agree(&r, sets));
  EXPECT(joins_agree(&r, sets));
  EXPECT(coarse_agrees(&v));
  EXPECT(parted_agrees(&v));
  EXPECT(prune_agrees(sets, &v));
  if (test_failed > failed) {
    strbuf out;
    strbuf_init(&out, &kit_memory);
    check_report_text(&r, &out);
    fprintf(stderr, "seed %" PRIu64 ":\n%s\n", seed, out.data);
  }
  count(&r);
  check_report_destroy(&r);
}

typedef struct range {
  uint64_t first, n;
} range;

static status all(void *context) {
  const range *seeds = context;
  for (uint64_t s = 0; s < seeds->n && test_failed < 5; s++) test_seed(seeds->first + s);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  range seeds = {.first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1,
                 .n = argc > 1 ? strtoull(argv[1], NULL, 10) : 6000};
  EXPECT(memory_guard(all, &seeds) == STATUS_OK);
  arena_destroy(&kit_memory);
  printf("%" PRIu64
         " plans, %u pass; %u needed waits, %u redundant, %u taken out; %u needed joins; %u vague "
         "findings, %u about memory that was parted\n",
         seeds.n, n_passing, n_needed, n_redundant, n_pruned, n_joins, n_may, n_reused);
  if (seeds.n >= 6000) EXPECT(n_reused > 10);
  for (uint32_t k = 0; k < CHECK_KIND_COUNT; k++) {
    printf("  %5u plans with: %s\n", n_kinds[k], check_kind_name((check_kind)k));
    if (seeds.n >= 6000 && k < CHECK_MISMATCH) EXPECT(n_kinds[k] > 0);
  }
  return test_finish();
}
