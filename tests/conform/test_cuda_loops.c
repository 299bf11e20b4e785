/* Loops of plans on GPUs: random programs whose loops are kept give what the same plans give on the CPU without
 * loops, directly, as graphs, with delayed streams and traced, on one rank and on several; and what is loaded does
 * not grow with repetitions.
 *
 *   test_cuda_loops [SEEDS [FIRST]]      replays seeds FIRST, FIRST + 1, ...
 *
 * Skips where there is no GPU. */
#include <stdlib.h>

#include "base/random.h"
#include "test.h"
#include "unit/bind_kit.h"

enum { WAYS = 3, RANKS = 3 };

static rt_device *cpu, *gpu[WAYS];
static struct { uint32_t programs, refused, racing, kept; } total;

/* ---- programs ---- */
typedef struct program {
  uint64_t seed, draws;
  strbuf text;
  uint32_t times, rows, width, streams, locals;
  const char *dtype;
} program;

static uint32_t below(program *p, uint32_t n) {
  return (uint32_t)(random_bits(p->seed, p->draws++) % n);
}

/* A slice for the iteration; its positions may stop, or begin anew. */
static void put_index(program *p, uint32_t form) {
  if (form == 0) strbuf_printf(&p->text, "%u - 1 - i", p->times);
  else if (form == 1) strbuf_printf(&p->text, "(i + 7) %% %u", p->times);
  else if (form == 2) strbuf_puts(&p->text, "min(i, 11)");
  else strbuf_puts(&p->text, "i");
}

static void put_slice(program *p, const char *name) {
  strbuf_printf(&p->text, "    %s$1 = %s(%s, dim=0, index=", name,
                p->rows == 1 ? "select" : "shard", name);
  put_index(p, below(p, 8));
  if (p->rows > 1) strbuf_printf(&p->text, ", chunk=%u", p->rows);
  strbuf_puts(&p->text, ")\n");
}

static void put_shape(program *p, bool whole) {
  uint32_t rows = whole ? p->rows * p->times : p->rows;
  strbuf_printf(&p->text, "%s[", p->dtype);
  if (whole || p->rows > 1) strbuf_printf(&p->text, "%u, ", rows);
  strbuf_printf(&p->text, "%u]", p->width);
}

static void put_local(program *p) {
  uint32_t k = p->locals++;
  strbuf_printf(&p->text, "    t%u : ", k);
  put_shape(p, false);
  strbuf_printf(&p->text,
                " = allocate()\n    t%u <- x$1 + w\n    y$1 <- t%u * x$1\n    deallocate(t%u)\n", k,
                k, k);
}

static void put_work(program *p) {
  static const char *const forms[] = {
      "    y$1 <- x$1 * w\n",
      "    y$1 <- kernel(x$1, w) {\n      a = x$1 * w\n      b = a + x$1\n      return b\n    }\n",
      "    z$1 <- x$1 + w\n",
      "    z$1 <- y$1 + x$1\n",
      "    y$1 <- set(z$1)\n",
      "    s <- s + x$1\n",
  };
  uint32_t n = sizeof forms / sizeof *forms, form = below(p, n + 3);
  if (form < n) strbuf_puts(&p->text, forms[form]);
  else if (form == n || p->rows == 1) put_local(p);
  else strbuf_puts(&p->text, "    z$1 <- matmul(x$1, m)\n");
}

static void put_wait(program *p) {
  uint32_t other = below(p, p->streams);
  if (below(p, 2)) strbuf_printf(&p->text, "    wait_stream(%u)\n", other);
  else strbuf_printf(&p->text, "    wait_stream((i + %u) %% %u)\n", other, p->streams);
}

static void put_body(program *p) {
  bool turns = below(p, 2);
  put_slice(p, "x");
  put_slice(p, "y");
  put_slice(p, "z");
  if (turns) strbuf_printf(&p->text, "    set_stream(i %% %u)\n", p->streams);
  for (uint32_t n = 1 + below(p, 4); n > 0; n--) {
    if (!turns && below(p, 2))
      strbuf_printf(&p->text, "    set_stream(%u)\n", below(p, p->streams));
    if (below(p, turns ? 6 : 2) == 0) put_wait(p);
    put_work(p);
  }
}

static void put_workers(program *p, const char *body) {
  strbuf_printf(&p->text, "  for k in %u {\n%s  }\n", p->streams, body);
}

static void put_program(program *p) {
  static const char *const dtypes[] = {"f32", "f32", "f16", "i32", "f64"};
  static const uint32_t widths[] = {1, 2, 3, 4, 8, 12, 16, 20, 32};
  p->rows = 1 + below(p, 3);
  p->times = 24 + below(p, 30);
  p->streams = 1 + below(p, 4);
  p->width = widths[below(p, sizeof widths / sizeof *widths)];
  p->dtype = dtypes[below(p, sizeof dtypes / sizeof *dtypes)];
  strbuf_puts(&p->text, "host f(x : ");
  put_shape(p, true);
  strbuf_puts(&p->text, ", u : ");
  put_shape(p, false);
  strbuf_printf(&p->text, ", w : %s[%u], m : %s[%u, %u]) -> (y, z, s) {\n", p->dtype, p->width,
                p->dtype, p->width, p->width);
  for (const char *name = "yz"; *name; name++) {
    strbuf_printf(&p->text, "  %c : ", *name);
    put_shape(p, true);
    strbuf_printf(&p->text, " = allocate()\n  %c <- set(x)\n", *name);
  }
  strbuf_puts(&p->text, "  s : ");
  put_shape(p, false);
  strbuf_puts(&p->text, " = allocate()\n  s <- set(u)\n  main = current_stream()\n");
  put_workers(p, "    set_stream(k)\n    wait_stream(main)\n");
  for (uint32_t n = 1 + below(p, 2); n > 0; n--) {
    strbuf_printf(&p->text, "  for i in %u {\n", p->times);
    put_body(p);
    strbuf_puts(&p->text, "  }\n");
    if (below(p, 2)) put_workers(p, "    set_stream(main)\n    wait_stream(k)\n");
    if (below(p, 2)) put_workers(p, "    set_stream(k)\n    wait_stream(main)\n");
  }
  put_workers(p, "    set_stream(main)\n    wait_stream(k)\n");
  strbuf_puts(&p->text, "}\n");
}

/* ---- runs ---- */
/* Small integers: sums and products of them are exact. */
static void fill(subject *s, uint64_t seed) {
  uint64_t draws = 0;
  for (uint32_t k = 0; k < s->n_in; k++) {
    const ir_array *a = &s->in[k];
    int64_t n;
    if (!ir_array_count(a, &n)) continue;
    for (int64_t i = 0; i < n; i++)
      ir_element_set_f64(a->dtype, (char *)a->data + (size_t)i * ir_dtype_size_bytes(a->dtype),
                         (double)(random_bits(~seed, draws++) % 3) - 1);
  }
}

/* A launch is told as the unrolled plan has it. */
static bool spans_are_right(const rt_plan *unrolled, const rt_span *spans) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < unrolled->n_instrs; i++) {
    if (unrolled->instrs[i].kind != RT_LAUNCH) continue;
    const rt_span *s = &spans[n++];
    if (s->instr != i || s->stream != unrolled->instrs[i].stream || s->end_ns < s->start_ns)
      return false;
  }
  return n == unrolled->n_tasks;
}

static bool run_on(subject *s, rt_device *d, const rt_plan *plan, rt_span *spans, bool keep) {
  rt_loaded *l = NULL;
  bool good = kit_ok(d->ops->load(d, plan, &l), "load");
  for (uint32_t run = 0; good && run < (keep ? 1 : 2); run++) {
    good = subject_run(s, l, spans);
    if (good && keep) good = subject_keep(s);
    good = good && subject_same(s);
  }
  d->ops->unload(l);
  return good;
}

static bool run_all(subject *s, const rt_plan *plan, const rt_plan *unrolled) {
  static const char *const names[] = {"directly", "as a graph", "with delays"};
  rt_span *spans = ARENA_ARRAY(&s->memory, unrolled->n_tasks + (size_t)1, rt_span);
  if (!run_on(s, cpu, unrolled, NULL, true)) return false;
  for (uint32_t w = 0; w < WAYS; w++)
    if (!run_on(s, gpu[w], plan, NULL, false)) return fprintf(stderr, "%s: ", names[w]), false;
  if (!run_on(s, gpu[0], plan, spans, false)) return fprintf(stderr, "traced: "), false;
  return spans_are_right(unrolled, spans) || kit_wrong("spans differ", "");
}

/* ---- several ranks ---- */
/* Each has arrays of its own; rank 0 those of the subject. */
typedef struct team {
  void *in[RANKS * KIT_VALUES], *out[RANKS * KIT_VALUES];
  ir_array copies[RANKS][KIT_VALUES];
} team;

static void make_team(subject *s, team *t) {
  for (uint32_t r = 0; r < RANKS; r++) {
    for (uint32_t i = 0; i < s->n_in; i++) t->in[r * s->n_in + i] = s->in[i].data;
    for (uint32_t i = 0; i < s->n_out; i++) {
      int64_t bytes;
      check(ir_array_size_bytes(&s->out[i], &bytes));
      t->copies[r][i] = s->out[i];
      t->copies[r][i].data = arena_alloc(&s->memory, (size_t)bytes + 1);
      memset(t->copies[r][i].data, 0x5b, (size_t)bytes);
      t->out[r * s->n_out + i] = t->copies[r][i].data;
    }
  }
}

static bool run_joined(subject *s, rt_device *d, const rt_plan *joined, rt_span *spans) {
  team *t = arena_alloc(&s->memory, sizeof *t);
  rt_loaded *l = NULL;
  make_team(s, t);
  bool good = kit_ok(d->ops->load(d, joined, &l), "load ranks") &&
              kit_ok(rt_run(l, t->in, t->out, spans, NULL), "run ranks");
  d->ops->unload(l);
  for (uint32_t r = 0; r < RANKS && good; r++)
    for (uint32_t i = 0; i < s->n_out && good; i++)
      good = kit_same(&t->copies[r][i], &s->expected[i]) || kit_wrong("a rank differs", "");
  return good;
}

/* Ranks that do the same, with loops. */
static bool run_ranks(subject *s, rt_plan *plan) {
  rt_plan *plans[RANKS], *joined = NULL, *unrolled = NULL;
  for (uint32_t r = 0; r < RANKS; r++) plans[r] = plan;
  bool good = kit_ok(rt_plan_join(plans, RANKS, &memory_default, &joined), "join") &&
              kit_ok(rt_plan_unroll(joined, &memory_default, &unrolled), "unroll ranks");
  if (good) {
    rt_span *spans = ARENA_ARRAY(&s->memory, unrolled->n_tasks + (size_t)1, rt_span);
    good = joined->n_loops == plan->n_loops && run_joined(s, gpu[0], joined, spans) &&
           (spans_are_right(unrolled, spans) || kit_wrong("spans of ranks differ", ""));
    for (uint32_t w = 1; w < WAYS && good; w++) good = run_joined(s, gpu[w], joined, NULL);
  }
  rt_plan_destroy(unrolled);
  rt_plan_destroy(joined);
  return good;
}

/* Does the checker find nothing? */
static bool is_ordered(const rt_plan *plan) {
  check_report r = {0};
  bool good = EXPECT(check_plan(plan, NULL, &r) == STATUS_OK) && r.n_found == 0;
  check_report_destroy(&r);
  return good;
}

static bool try_bound(program *p, bound *b) {
  rt_plan *unrolled = NULL;
  uint32_t removed;
  if (p->seed % 2 && !kit_ok(check_prune_waits(b->plan, &memory_default, &removed), "prune"))
    return false;
  total.kept += b->plan->n_loops;
  ir_env_init(&b->s.env, b->s.func, &b->s.memory);
  if (!subject_values(&b->s)) return false;
  fill(&b->s, p->seed);
  if (!kit_ok(rt_plan_unroll(b->plan, &memory_default, &unrolled), "unroll")) return false;
  bool good = run_all(&b->s, b->plan, unrolled) && run_ranks(&b->s, b->plan);
  rt_plan_destroy(unrolled);
  return good;
}

static status try_seed(void *context) {
  program p = {.seed = *(const uint64_t *)context};
  arena memory;
  bound b = {0};
  arena_init(&memory, &memory_default);
  strbuf_init(&p.text, &memory);
  put_program(&p);
  bind_options o = {.streams = p.streams, .seed = KIT_SEED, .loops = 3};
  o.keep_waits = p.seed % 3 == 0;
  o.lends = p.seed % 5 > 0;
  total.programs++;
  kit_reason[0] = '\0';
  bool good = bind_with(&b, p.text.data, &o, &memory_default);
  status_clear();
  if (!good) total.refused++;
  else if (!is_ordered(b.plan)) total.racing++;
  else if (!EXPECT(try_bound(&p, &b)))
    fprintf(stderr, "%s\n%s\nreplay: test_cuda_loops 1 %llu\n", kit_reason, p.text.data,
            (unsigned long long)p.seed);
  status_clear();
  bind_close(&b);
  arena_destroy(&memory);
  return STATUS_OK;
}

/* Two loops with one operation; of the second one only the first repetition begins at a multiple of 16 bytes. */
static const char two_steps[] =
    "host f(x : f32[200, 64], u : f32[64], v : f32[202, 65]) -> (y, z) {\n"
    "  y : f32[200, 64] = allocate()\n  z : f32[200, 64] = allocate()\n"
    "  v$1 = shard(v, dim=1, index=0, chunks=[64, 1])\n"
    "  for i in 200 {\n    x$1 = select(x, dim=0, index=i)\n"
    "    y$1 = select(y, dim=0, index=i)\n    y$1 <- x$1 * u\n  }\n"
    "  for i in 200 {\n    v$2 = select(v$1, dim=0, index=i + 1)\n"
    "    z$1 = select(z, dim=0, index=i)\n    z$1 <- v$2 * u\n  }\n}\n";

static status test_steps(void *context) {
  program p = {.seed = 0};
  bound b = {0};
  bind_options o = {.streams = 1, .loops = 8};
  (void)context;
  bool good = bind_with(&b, two_steps, &o, &memory_default);
  if (EXPECT(good) && EXPECT_INT(b.plan->n_loops, 2)) {
    const rt_plan *plan = b.plan;
    const rt_task *t = &plan->tasks[plan->instrs[plan->loops[1].first].task];
    const rt_view *v = &plan->views[t->operands[0].view];
    EXPECT_INT(v->offset_bytes % 16, 0);
    EXPECT_INT(v->step_bytes, 260);
    EXPECT(try_bound(&p, &b));
  } else fprintf(stderr, "%s\n", kit_reason);
  bind_close(&b);
  return STATUS_OK;
}

/* ---- cost ---- */
/* What a plan of so many iterations takes once it is loaded. */
static int64_t loaded_bytes(uint32_t times) {
  char text[512];
  meter m;
  bound b = {0};
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  bind_options o = {.streams = 4, .loops = 32};
  snprintf(text, sizeof text,
           "host f(x : f32[%1$u, 4]) -> (y) {\n  y : f32[%1$u, 4] = allocate()\n"
           "  for i in %1$u {\n    set_stream(i %% 4)\n    x$1 = select(x, dim=0, index=i)\n"
           "    y$1 = select(y, dim=0, index=i)\n    y$1 <- x$1 + x$1\n  }\n}\n",
           times);
  int64_t bytes = 0;
  if (EXPECT(bind_with(&b, text, &o, &memory_default)) && EXPECT_INT(b.plan->n_loops, 1) &&
      EXPECT(rt_device_cuda.open(&(rt_device_options){0}, meter_start(&m), &d) == STATUS_OK)) {
    int64_t before = m.live_bytes;
    EXPECT(d->ops->load(d, b.plan, &l) == STATUS_OK);
    bytes = m.live_bytes - before;
    d->ops->unload(l);
    d->ops->close(d);
  }
  bind_close(&b);
  return bytes;
}

static status test_bytes(void *context) {
  (void)context;
  EXPECT(rt_device_cuda.takes_loops == RT_LOOPS_APART);
  EXPECT_INT(loaded_bytes(400), loaded_bytes(400000));
  return STATUS_OK;
}

/* ---- allocations ---- */
/* The n-th allocation fails, for every n; what is loaded runs without any. */
static status try_allocations(const rt_plan *plan, memory_faults *faults, float *x, float *y) {
  allocator memory = memory_faulty(faults);
  rt_device *d = NULL;
  rt_loaded *l = NULL;
  TRY(rt_device_cuda.open(&(rt_device_options){0}, &memory, &d));
  status st = d->ops->load(d, plan, &l);
  if (st == STATUS_OK) {
    uint64_t calls = faults->calls;
    for (uint32_t run = 0; run < 2; run++)
      EXPECT(rt_run(l, (void *[]){x}, (void *[]){y}, NULL, NULL) == STATUS_OK);
    EXPECT_INT(faults->calls, calls);
  }
  d->ops->unload(l);
  d->ops->close(d);
  return st;
}

static status test_allocations(void *context) {
  static float x[100][4], y[100][4];
  static const char text[] =
      "host f(x : f32[100, 4]) -> (y) {\n  y : f32[100, 4] = allocate()\n  for i in 100 {\n"
      "    x$1 = select(x, dim=0, index=i)\n    y$1 = select(y, dim=0, index=i)\n"
      "    y$1 <- x$1 + x$1\n  }\n}\n";
  bound b = {0};
  (void)context;
  if (!EXPECT(bind_with(&b, text, &(bind_options){.streams = 1, .loops = 8}, &memory_default)))
    return STATUS_CHECK_FAILED;
  EXPECT_INT(b.plan->n_loops, 1);
  status st = STATUS_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != STATUS_OK && n < 10000; n++) {
    memory_faults faults = {.fail_at = n};
    status_clear();
    st = try_allocations(b.plan, &faults, &x[0][0], &y[0][0]);
    EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
    EXPECT_INT(faults.live, 0);
  }
  EXPECT_INT(st, STATUS_OK);
  bind_close(&b);
  return STATUS_OK;
}

/* ---- errors ---- */
/* An index out of range in one iteration is told with its line and its value. */
static const char indexes[] =
    "host f(x : f32[8], k : i64[50, 4]) -> (y) {\n  y : f32[50, 4] = allocate()\n"
    "  for i in 50 {\n    k$1 = select(k, dim=0, index=i)\n    y$1 = select(y, dim=0, index=i)\n"
    "    y$1 <- index_select(x, k$1, dim=0)\n  }\n}\n";

static status test_errors(void *context) {
  bound b = {0};
  rt_loaded *l = NULL;
  bind_options o = {.streams = 1, .loops = 4};
  (void)context;
  if (!EXPECT(bind_with(&b, indexes, &o, &memory_default)) || !EXPECT_INT(b.plan->n_loops, 1)) {
    fprintf(stderr, "%s\n", kit_reason);
    return STATUS_CHECK_FAILED;
  }
  float x[8] = {0}, y[50][4];
  int64_t k[50][4] = {0};
  void *in[] = {x, k}, *out[] = {y};
  EXPECT(gpu[0]->ops->load(gpu[0], b.plan, &l) == STATUS_OK);
  EXPECT(rt_run(l, in, out, NULL, NULL) == STATUS_OK);
  k[31][2] = 77;
  k[44][0] = 99;
  EXPECT(rt_run(l, in, out, NULL, NULL) == STATUS_BAD_PROGRAM);
  EXPECT_CONTAINS(status_message(), "program.weir:6");
  EXPECT_CONTAINS(status_message(), "index 77 is outside axis 0");
  status_clear();
  k[31][2] = k[44][0] = 0;
  EXPECT(rt_run(l, in, out, NULL, NULL) == STATUS_OK);
  gpu[0]->ops->unload(l);
  bind_close(&b);
  return STATUS_OK;
}

/* ---- */
static bool open_all(void) {
  static const rt_device_options ways[WAYS] = {
      {.graph = false}, {.graph = true}, {.adversarial = true, .seed = 5}};
  cpu = kit_device(1, false);
  status st = rt_device_cuda.open(&ways[0], &memory_default, &gpu[0]);
  if (st != STATUS_OK) {
    EXPECT_INT(st, STATUS_UNAVAILABLE);
    printf("skipped: %s\n", status_message());
    status_clear();
    return false;
  }
  for (uint32_t w = 1; w < WAYS; w++) EXPECT((gpu[w] = kit_gpu(ways[w])) != NULL);
  return cpu && gpu[1] && gpu[2];
}

int main(int argc, char **argv) {
  uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : 40;
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
  bool there = open_all();
  if (there) {
    EXPECT(memory_guard(test_bytes, NULL) == STATUS_OK);
    EXPECT(memory_guard(test_allocations, NULL) == STATUS_OK);
    EXPECT(memory_guard(test_errors, NULL) == STATUS_OK);
    EXPECT(memory_guard(test_steps, NULL) == STATUS_OK);
  }
  for (uint64_t s = first; there && s < first + seeds; s++)
    EXPECT(memory_guard(try_seed, &s) == STATUS_OK);
  for (uint32_t w = 0; w < WAYS; w++) rt_device_cuda.close(gpu[w]);
  if (cpu) cpu->ops->close(cpu);
  printf("%u programs, %u refused, %u with races, %u loops kept\n", total.programs, total.refused,
         total.racing, total.kept);
  if (there && argc < 2) EXPECT(total.kept >= 20);
  return test_finish();
}
