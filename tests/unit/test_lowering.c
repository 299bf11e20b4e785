/* The shape of lowered programs and of their plans: which instructions stand where, how many launches of
 * what size there are, how many buffers, and that no wait is missing or does nothing.
 *
 * tests/rows.md says which known behaviour each of these stands for. */
#include <stdlib.h>

#include "bind/bind.h"
#include "check/check.h"
#include "ir/verify.h"
#include "lower_kit.h"
#include "runtime/plan.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"

/* ---- lowering and binding ---- */
typedef struct lowered {
  const char *text, *bind; /* "n=4 x=2x3" */
  uint32_t streams;
  ir_module module;
  ir_func *h;
  rt_plan *plan;
  check_report report;
} lowered;

static bool bind_word(ir_env *env, const char *word) {
  const char *equals = strchr(word, '=');
  char name[64];
  int64_t extents[IR_MAX_RANK];
  uint32_t rank = 0;
  snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
  for (const char *at = equals; at; at = strchr(at + 1, 'x'))
    extents[rank++] = strtoll(at + 1, NULL, 10);
  const strings *names = &env->func->module->names;
  ir_name_entry entry = ir_func_lookup(env->func, strings_find(names, name, strlen(name)));
  if (entry.kind != IR_NAME_TENSOR) return ir_bind_name(env, name, extents[0]);
  return ir_bind_shape(env, (ir_tensor){entry.id}, extents, rank, word);
}

static bool bind_words(ir_env *env, const char *bind) {
  char words[128];
  snprintf(words, sizeof words, "%s", bind);
  for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
    if (!bind_word(env, word)) return false;
  return ir_bind_complete(env) && ir_bind_check(env);
}

/* The host program of the text: its last item, lowered if that is a fusion. */
static status lower_guarded(void *context) {
  lowered *l = context;
  ir_env env;
  ir_module_init(&l->module, &memory_default);
  TRY(text_parse(&l->module, "t", l->text, strlen(l->text)));
  ir_func *f = l->module.funcs.data[l->module.funcs.len - 1];
  host_options options = {.pipeline = HOST_AUTO};
  bool good = f->host ? ir_host_verify(f) : schedule_apply(f) && ir_verify(f);
  if (!good) return fail(STATUS_BAD_PROGRAM, "is not valid");
  l->h = f;
  if (!f->host) TRY(kit_lower(f, &options, &l->h));
  if (!ir_host_verify(l->h)) return fail(STATUS_BAD_PROGRAM, "lowers to a broken program");
  ir_env_init(&env, f, &l->module.memory);
  if (!bind_words(&env, l->bind)) return fail(STATUS_BAD_PROGRAM, "cannot be bound");
  env.func = l->h;
  bind_options bound = {.streams = l->streams};
  TRY(bind_plan(&env, &bound, &memory_default, &l->plan));
  return check_plan(l->plan, NULL, &l->report);
}

static void finish(lowered *l) {
  check_report_destroy(&l->report);
  rt_plan_destroy(l->plan);
  ir_module_destroy(&l->module);
}

/* Every plan passes the checker. False: there is no plan to look at. */
static bool lower(lowered *l, const char *text, const char *bind, uint32_t streams, int line) {
  *l = (lowered){.text = text, .bind = bind, .streams = streams};
  status st = memory_guard(lower_guarded, l);
  if (test_count(st == STATUS_OK && l->report.n_found == 0, __FILE__, line)) return true;
  fprintf(stderr, "%s, %llu findings:\n%s\n", status_message(),
          (unsigned long long)l->report.n_found, text);
  status_clear();
  finish(l);
  return false;
}
#define LOWER(l, text, bind, streams) lower(l, text, bind, streams, __LINE__)

/* ---- what a program consists of ---- */
static const char *kind_name(ir_instr_kind kind) {
  static const char *const names[] = {
      [IR_ALLOCATE] = "allocate",
      [IR_DEALLOCATE] = "deallocate",
      [IR_CURRENT_STREAM] = "current_stream",
      [IR_SET_STREAM] = "set_stream",
      [IR_WAIT_STREAM] = "wait_stream",
      [IR_FOR] = "for",
      [IR_IF] = "if",
      [IR_SELECT] = "select",
      [IR_SHARD] = "shard",
      [IR_VIEW] = "view",
      [IR_COMPUTE] = "compute",
      [IR_COMMUNICATE] = "communicate",
      [IR_GROUP_START] = "group_start",
      [IR_GROUP_END] = "group_end",
      [IR_WAIT] = "wait",
  };
  return names[kind];
}

/* The instructions of a block, by kind: "allocate current_stream for". */
static const char *block_text(const ir_func *h, const ir_block *block) {
  static char text[2048];
  text[0] = '\0';
  for (uint32_t i = 0; i < block->len; i++) {
    if (i > 0) strcat(text, " ");
    strcat(text, kind_name(ir_instr_at(h, block->data[i])->kind));
  }
  return text;
}

static const char *outermost(const lowered *l) { return block_text(l->h, &l->h->host->body); }

/* The body of the k-th loop of the outermost block, from 0. */
static const char *loop_body(const lowered *l, uint32_t k) {
  const ir_block *body = &l->h->host->body;
  for (uint32_t i = 0; i < body->len; i++) {
    const ir_instr_data *d = ir_instr_at(l->h, body->data[i]);
    if (d->kind == IR_FOR && k-- == 0) return block_text(l->h, &d->body);
  }
  return "";
}

typedef struct instr_count {
  ir_instr_kind kind;
  uint32_t n;
} instr_count;

static void count_instr(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  instr_count *c = context;
  c->n += ir_instr_at(h, i)->kind == c->kind;
}

static uint32_t count_of(const lowered *l, ir_instr_kind kind) {
  instr_count c = {kind, 0};
  ir_host_walk(l->h, count_instr, &c);
  return c.n;
}

/* ---- what a plan consists of ---- */
static void append_view(char *text, size_t size, const rt_view *v) {
  size_t n = strlen(text);
  for (uint32_t i = 0; i < v->rank; i++)
    n += (size_t)snprintf(text + n, size - n, i ? "x%lld" : "%lld", (long long)v->extents[i]);
}

/* A launch by its sizes: "5x7 7x2 -> 5x2". */
static const char *launch_text(const rt_plan *p, uint32_t task) {
  static char text[256];
  const rt_task *t = &p->tasks[task];
  text[0] = '\0';
  for (uint32_t k = 0; k < t->n_operands; k++) {
    if (t->operands[k].kind != RT_OPERAND_VIEW) continue;
    append_view(text, sizeof text, &p->views[t->operands[k].view]);
    strcat(text, " ");
  }
  strcat(text, "-> ");
  append_view(text, sizeof text, &p->views[t->result]);
  return text;
}

/* How many launches there are of an operation, each of this size. */
static void expect_launches(const lowered *l, ir_opcode code, uint32_t n, const char *sizes) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < l->plan->n_tasks; i++) {
    if (l->plan->tasks[i].code != code) continue;
    found++;
    EXPECT_STR(launch_text(l->plan, i), sizes);
  }
  EXPECT_INT(found, n);
}

static uint32_t buffers_of(const lowered *l, rt_buffer_kind kind) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->plan->n_buffers; i++) n += l->plan->buffers[i].kind == kind;
  return n;
}

/* Different places in the pool. */
static uint32_t places_in_pool(const lowered *l) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->plan->n_buffers; i++) {
    const rt_buffer *b = &l->plan->buffers[i];
    bool first = b->kind == RT_BUFFER_POOL;
    for (uint32_t k = 0; k < i && first; k++) {
      const rt_buffer *other = &l->plan->buffers[k];
      first = other->kind != RT_BUFFER_POOL || other->offset_bytes != b->offset_bytes;
    }
    n += first;
  }
  return n;
}

static uint32_t waits_of(const lowered *l, bool by_main) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->plan->n_instrs; i++) {
    const rt_instr *x = &l->plan->instrs[i];
    n += x->kind == RT_WAIT && (x->stream == 0) == by_main;
  }
  return n;
}

static uint32_t launches_on(const lowered *l, uint32_t stream) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->plan->n_instrs; i++) {
    const rt_instr *x = &l->plan->instrs[i];
    n += x->kind == RT_LAUNCH && x->stream == stream;
  }
  return n;
}

/* ---- structure ---- */
#define ONE_LOOP "current_stream for for set_stream for"

static void test_one_operation(void) {
  static const struct {
    const char *text, *bind, *body;
  } rows[] = {
      {"fusion f { x : f32[n, m]; y = set(x); return y; schedule { y[0] = stream } }", "n=4 m=8",
       "set_stream select select compute"},
      {"fusion f { x : f32[n, m]; y = set(x); return y; schedule { y[1] = stream } }", "n=4 m=8",
       "set_stream select select compute"},
      {"fusion f { a : f32[n, m]; b : f32[n, m]; y = a + b; return y\n"
       "  schedule { y[0] = stream } }",
       "n=4 m=4", "set_stream select select select compute"},
      {"fusion f { x : f32[n, m, k]; y = sum(x, dims=[2]); return y\n"
       "  schedule { y[0] = stream } }",
       "n=4 m=8 k=2", "set_stream select select compute"},
      {"fusion f { a : f32[m, k]; b : f32[k, n]; y = matmul(a, b); return y\n"
       "  schedule { y[0] = stream } }",
       "m=8 k=4 n=2", "set_stream select select compute"},
      {"fusion f { a : f32[m, k]; b : f32[k, n]; y = matmul(a, b); return y\n"
       "  schedule { y[1] = stream } }",
       "m=8 k=4 n=2", "set_stream select select compute"},
      {"fusion f { a : f32[s, m, k]; b : f32[k, n]; y = matmul(a, b); return y\n"
       "  schedule { y[0] = stream } }",
       "s=16 m=8 k=4 n=2", "set_stream select select compute"},
      {"fusion f { x : f32[n, m]; y = set(x); return y\n"
       "  schedule { y.split(0, 2); y[0] = stream } }",
       "n=4 m=8", "set_stream shard shard compute"},
      {"fusion f { x : f32[n, m]; y = abs(x); return y; schedule { y[0] = stream } }", "n=4 m=8",
       "set_stream select select compute"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    lowered l;
    if (!LOWER(&l, rows[i].text, rows[i].bind, 4)) continue;
    EXPECT_STR(outermost(&l), "allocate " ONE_LOOP);
    EXPECT_STR(loop_body(&l, 0), "set_stream wait_stream");
    EXPECT_STR(loop_body(&l, 1), rows[i].body);
    EXPECT_STR(loop_body(&l, 2), "wait_stream");
    EXPECT_INT(l.report.n_redundant, 0);
    EXPECT_INT(buffers_of(&l, RT_BUFFER_POOL), 0);
    finish(&l);
  }
}

static void test_loops_shared(void) {
  lowered l;
  if (LOWER(&l,
            "fusion f { x : f32[n, m]; y = set(x); z = set(y); return z\n"
            "  schedule { y[0] = stream; z[0] = stream } }",
            "n=4 m=8", 4)) {
    EXPECT_STR(outermost(&l), "allocate " ONE_LOOP);
    EXPECT_STR(loop_body(&l, 1), "set_stream select allocate compute select compute deallocate");
    EXPECT_INT(l.report.n_redundant, 0);
    finish(&l);
  }
  if (LOWER(&l,
            "fusion f { x : f32[n, m]; y = set(x); z = set(y); w = set(z); return w\n"
            "  schedule { y[0] = stream; z[0] = serial; w[0] = stream } }",
            "n=4 m=8", 4)) {
    EXPECT_STR(outermost(&l), "allocate " ONE_LOOP " allocate compute deallocate allocate " ONE_LOOP
                              " deallocate");
    EXPECT_INT(l.report.n_redundant, 0);
    finish(&l);
  }
}

/* ---- launches ---- */
static void test_matmuls(void) {
  lowered l;
  if (LOWER(&l,
            "fusion f { a : f32[?, ?]; w : f32[?, ?]; y = matmul(a, w); return y\n"
            "  schedule { y.outer_split(1, 3); y[1] = stream } }",
            "a=5x7 w=7x6", 4)) {
    expect_launches(&l, IR_OP_MATMUL, 3, "5x7 7x2 -> 5x2");
    finish(&l);
  }
  if (LOWER(&l,
            "fusion f { a : f32[?, ?]; v : f32[?, ?]; w : f32[?, ?]\n"
            "  t = matmul(a, v); y = matmul(t, w); return y\n"
            "  schedule { t.outer_split(0, 3); t[0] = stream\n"
            "    y.outer_split(0, 3); y[0] = stream } }",
            "a=6x3 v=3x5 w=5x3", 4)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < l.plan->n_tasks; i++) {
      n += l.plan->tasks[i].code == IR_OP_MATMUL;
      EXPECT_INT(l.plan->views[l.plan->tasks[i].result].extents[0], 2);
    }
    EXPECT_INT(n, 6);
    EXPECT_INT(count_of(&l, IR_FOR), 3);
    finish(&l);
  }
  if (LOWER(&l,
            "fusion f { a : f32[?, ?]; v : f32[?, ?]; w : f32[?, ?]\n"
            "  t = matmul(a, v); y = matmul(t, w); return y\n"
            "  schedule { t.outer_split(1, 3); t[1] = stream\n"
            "    y.outer_split(0, 3); y[0] = stream } }",
            "a=6x3 v=3x15 w=15x3", 4)) {
    EXPECT_INT(l.plan->n_tasks, 6);
    for (uint32_t i = 0; i < l.plan->n_tasks && i < 6; i++)
      EXPECT_STR(launch_text(l.plan, i), i < 3 ? "6x3 3x5 -> 6x5" : "2x15 15x3 -> 2x3");
    EXPECT_INT(buffers_of(&l, RT_BUFFER_POOL), 1);
    EXPECT_INT(l.plan->pool_bytes, 6 * 15 * 4 / 64 * 64 + 64); /* whole; to a multiple of 64 */
    finish(&l);
  }
}

/* Lengths of the pieces that a streamed copy of n positions launches: "3 3 1". */
static void expect_pieces(const char *split, const char *bind, const char *expected) {
  char text[256], got[128] = "";
  snprintf(text, sizeof text,
           "fusion f { x : f32[n]; y = neg(x); return y; schedule { y.%s; y[0] = stream } }",
           split);
  lowered l;
  if (!LOWER(&l, text, bind, 4)) return;
  for (uint32_t i = 0; i < l.plan->n_tasks; i++) {
    if (i > 0) strcat(got, " ");
    append_view(got, sizeof got, &l.plan->views[l.plan->tasks[i].result]);
  }
  EXPECT_STR(got, expected);
  finish(&l);
}

static void test_pieces(void) {
  expect_pieces("outer_split(0, 3)", "n=6", "2 2 2");
  expect_pieces("outer_split(0, 3)", "n=7", "3 3 1");
  expect_pieces("outer_split(0, 3)", "n=4", "2 2");
  expect_pieces("outer_split(0, 3)", "n=1", "1");
  expect_pieces("outer_split(0, 3)", "n=0", "");
  expect_pieces("split(0, 3)", "n=7", "3 3 1");
  expect_pieces("split(0, 8)", "n=7", "7");
  expect_pieces("outer_split(0, [1, 4, 2])", "n=7", "1 4 2");
}

static void test_nested(void) {
  lowered l;
  if (!LOWER(&l,
             "fusion f { x : f32[n, m]; y = neg(x); z = abs(y); return z\n"
             "  schedule { y[0] = stream; y.outer_split(1, 2); y[1] = stream\n"
             "    z[0] = stream; z.outer_split(1, 2); z[1] = stream } }",
             "n=3 m=4", 2))
    return;
  EXPECT_STR(outermost(&l), "allocate " ONE_LOOP);
  EXPECT_STR(loop_body(&l, 1), "set_stream for"); /* the inner loop changes no stream */
  EXPECT_INT(count_of(&l, IR_FOR), 4);
  expect_launches(&l, IR_OP_NEG, 6, "2 -> 2");
  expect_launches(&l, IR_OP_ABS, 6, "2 -> 2");
  EXPECT_INT(launches_on(&l, 1), 8); /* iterations 0 and 2 */
  EXPECT_INT(launches_on(&l, 2), 4);
  finish(&l);
}

/* ---- streams ---- */
static const char chain[] =
    "fusion f { x : f32[n, 16]; t = -x; y = t + 1.0; z = y * 2.0\n"
    "  w = z - 1.0; return w\n"
    "  schedule { t[0] = serial; y[0] = stream; z[0] = stream; w[0] = stream } }";

/* Iteration i runs on stream i mod streams; each worker waits once before the loop, and is waited for
 * once behind it. */
static void test_streams(void) {
  static const uint32_t streams[] = {1, 2, 4, 8};
  for (size_t k = 0; k < 4; k++) {
    lowered l;
    uint32_t n = streams[k];
    if (!LOWER(&l, chain, "n=6", n)) continue;
    uint32_t used = n < 6 ? n : 6;
    EXPECT_INT(l.plan->n_streams, used + 1);
    EXPECT_INT(waits_of(&l, false), used);
    EXPECT_INT(waits_of(&l, true), used);
    EXPECT_INT(l.report.n_redundant, 0);
    for (uint32_t s = 0; s < used; s++)
      EXPECT_INT(launches_on(&l, s + 1), 3 * (6 / used + (s < 6 % used)));
    EXPECT_INT(launches_on(&l, 0), 1);
    finish(&l);
  }
}

/* All first waits stand before the first launch of a worker. */
static void test_first_waits(void) {
  lowered l;
  if (!LOWER(&l, chain, "n=8", 4)) return;
  bool working = false;
  for (uint32_t i = 0; i < l.plan->n_instrs; i++) {
    const rt_instr *x = &l.plan->instrs[i];
    if (x->stream == 0) continue;
    working = working || x->kind == RT_LAUNCH;
    EXPECT(x->kind == RT_LAUNCH || !working);
  }
  EXPECT(working);
  finish(&l);
}

/* ---- buffers ---- */

/* y and z live in an iteration, z where y was: 64 bytes per stream that is used, and the 64 n bytes
 * of t, however many iterations there are. */
static void test_ring(void) {
  static const uint32_t streams[] = {1, 2, 4};
  for (size_t k = 0; k < 3; k++) {
    lowered l;
    uint32_t n = streams[k];
    if (!LOWER(&l, chain, "n=12", n)) continue;
    EXPECT_INT(buffers_of(&l, RT_BUFFER_POOL), 1 + 2 * 12);
    EXPECT_INT(places_in_pool(&l), 1 + n);
    EXPECT_INT(l.plan->pool_bytes, 12 * 64 + 64 * n);
    finish(&l);
  }
}

static void test_frees(void) {
  lowered l;
  if (LOWER(&l, "fusion f { x : f64[8, 8]; a = x + x; b = a + a; c = sin(b); d = c + c; return d }",
            "", 4)) {
    EXPECT_INT(count_of(&l, IR_DEALLOCATE), 3);
    EXPECT_INT(l.plan->pool_bytes, 512); /* each is where the one before it was */
    EXPECT_INT(buffers_of(&l, RT_BUFFER_OUTPUT), 1);
    finish(&l);
  }
  if (LOWER(&l, "fusion f { x : f32[8, 8]; a = x + x; b = matmul(a, a); return a, b }", "", 4)) {
    EXPECT_INT(count_of(&l, IR_DEALLOCATE), 0);
    EXPECT_INT(l.plan->pool_bytes, 0);
    EXPECT_INT(buffers_of(&l, RT_BUFFER_OUTPUT), 2);
    finish(&l);
  }
  if (LOWER(&l,
            "host f(x : f32[8, 64]) -> (y) { y : f32[8, 64] = allocate(); y <- set(x)\n"
            "  for i in 10 { t : f32[8, 64] = allocate(); t <- neg(y); deallocate(t) } }",
            "", 4)) {
    EXPECT_INT(buffers_of(&l, RT_BUFFER_POOL), 10);
    EXPECT_INT(places_in_pool(&l), 1);
    for (uint32_t i = 0; i < l.plan->n_buffers; i++)
      EXPECT((l.plan->buffers[i].kind == RT_BUFFER_POOL) ==
             (l.plan->buffers[i].freed_at != UINT32_MAX));
    finish(&l);
  }
}

/* What a loop reads is not given away before the loop is joined. */
static void test_free_after_join(void) {
  lowered l;
  if (!LOWER(&l,
             "fusion f { x : f32[n, 16]; a = neg(x); b = abs(a); c = b * 2.0; return c\n"
             "  schedule { a[0] = serial; b[0] = stream; c[0] = serial } }",
             "n=4", 4))
    return;
  EXPECT_STR(outermost(&l),
             "allocate compute allocate " ONE_LOOP " deallocate allocate compute deallocate");
  finish(&l);
}

/* A result is allocated in the loops that all its consumers share with it. */
static void test_levels(void) {
  static const char text[] =
      "fusion f { x : f32[n, m, k]; a = x + 1.0; b = sum(a, dims=[2]); c = a / 2.0; return b, c\n"
      "  schedule { a.outer_split(0, 2); a[0] = stream; c.outer_split(%d, 2); c[%d] = stream\n"
      "    b.outer_split(0, 2); b[0] = stream } }";
  char program[512];
  lowered l;
  snprintf(program, sizeof program, text, 0, 0);
  if (LOWER(&l, program, "n=4 m=6 k=2", 4)) {
    EXPECT_INT(places_in_pool(&l), 2); /* one half per stream */
    EXPECT_INT(l.plan->pool_bytes, 2 * (2 * 6 * 2 * 4 / 64 * 64 + 64));
    finish(&l);
  }
  snprintf(program, sizeof program, text, 1, 1);
  if (LOWER(&l, program, "n=4 m=6 k=2", 4)) {
    EXPECT_INT(places_in_pool(&l), 1);
    EXPECT_INT(l.plan->pool_bytes, 4 * 6 * 2 * 4);
    finish(&l);
  }
}

/* Outputs are written in place: into the caller's memory, slice by slice. */
static void test_in_place(void) {
  lowered l;
  if (!LOWER(&l, "fusion f { x : f32[n, m]; y = neg(x); return y; schedule { y[1] = stream } }",
             "n=4 m=3", 2))
    return;
  for (uint32_t i = 0; i < l.plan->n_tasks; i++) {
    const rt_view *r = &l.plan->views[l.plan->tasks[i].result];
    EXPECT(l.plan->buffers[r->buffer].kind == RT_BUFFER_OUTPUT);
    EXPECT_INT(r->offset_bytes, 4 * i);
    EXPECT_INT(r->strides[0], 3);
  }
  finish(&l);
}

/* An operand of one position along the stream axis is read at that position in every iteration. */
static void test_broadcast(void) {
  lowered l;
  if (!LOWER(&l,
             "fusion f { x : f32[n, m]; one : f32[1, m]; y = x * one; return y\n"
             "  schedule { y[0] = stream } }",
             "n=4 m=3", 2))
    return;
  for (uint32_t i = 0; i < l.plan->n_tasks; i++) {
    const rt_task *t = &l.plan->tasks[i];
    EXPECT_INT(l.plan->views[t->operands[0].view].offset_bytes, 12 * i);
    EXPECT_INT(l.plan->views[t->operands[1].view].offset_bytes, 0);
  }
  finish(&l);
}

/* The slice of an input is cut as its reader is, whatever the input's own marks. */
static void test_slice_follows_reader(void) {
  lowered l;
  if (!LOWER(&l,
             "fusion f { x : f32[n, m]; y = neg(x); return y\n"
             "  schedule { x.outer_split(0, 2); x[0] = stream\n"
             "    y.outer_split(1, 3); y[1] = stream } }",
             "n=4 m=6", 4))
    return;
  expect_launches(&l, IR_OP_NEG, 3, "4x2 -> 4x2");
  finish(&l);
}

/* Iterations that add up: the additions are ordered, and only they. */
static void test_reduction_stream(void) {
  lowered l;
  if (!LOWER(&l,
             "fusion f { x : f32[n, k]; y = sum(x, dims=[1]); return y\n"
             "  schedule { y.outer_split(1, 3); y[1] = stream } }",
             "n=4 k=6", 4))
    return;
  expect_launches(&l, IR_OP_SUM, 3, "4x2 -> 4");
  expect_launches(&l, IR_OP_ADD, 2, "4 4 -> 4");
  EXPECT_INT(waits_of(&l, false), 2);
  EXPECT_INT(places_in_pool(&l), 2);
  finish(&l);
}

/* Equal indexes are one stream; current_stream() names the stream that is current where it stands. */
static void test_stream_identity(void) {
  lowered l;
  if (!LOWER(&l,
             "host f(x : f32[n]) -> (y) { t : f32[n] = allocate(); y : f32[n] = allocate()\n"
             "  main = current_stream(); set_stream(2); t <- neg(x); here = current_stream()\n"
             "  set_stream(1 + 1); t <- neg(t); set_stream(3); wait_stream(here); y <- abs(t)\n"
             "  set_stream(main); wait_stream(3) }",
             "n=4", 4))
    return;
  EXPECT_INT(launches_on(&l, 3), 2);
  EXPECT_INT(launches_on(&l, 4), 1);
  EXPECT_INT(waits_of(&l, false), 1);
  EXPECT_INT(waits_of(&l, true), 1);
  EXPECT_INT(l.report.n_redundant, 0);
  finish(&l);
}

/* Intermediate results that only look at their operand have no buffer. */
static void test_views(void) {
  lowered l;
  if (!LOWER(&l,
             "fusion f { x : f32[n, m]; a = neg(x); t = transpose(a); y = abs(t); return y\n"
             "  schedule { a[0] = stream; t[1] = stream; y[1] = stream } }",
             "n=4 m=3", 2))
    return;
  EXPECT_INT(buffers_of(&l, RT_BUFFER_POOL), 4);
  EXPECT_INT(l.plan->n_tasks, 2 * 4);
  EXPECT_INT(count_of(&l, IR_VIEW), 1);
  finish(&l);
}

/* ---- the command: all tests, those named, or --list ---- */
static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    {"one_operation", test_one_operation},
    {"loops_shared", test_loops_shared},
    {"matmuls", test_matmuls},
    {"pieces", test_pieces},
    {"nested", test_nested},
    {"streams", test_streams},
    {"first_waits", test_first_waits},
    {"ring", test_ring},
    {"frees", test_frees},
    {"free_after_join", test_free_after_join},
    {"levels", test_levels},
    {"in_place", test_in_place},
    {"broadcast", test_broadcast},
    {"slice_follows_reader", test_slice_follows_reader},
    {"reduction_stream", test_reduction_stream},
    {"stream_identity", test_stream_identity},
    {"views", test_views},
};

int main(int argc, char **argv) {
  bool list = argc == 2 && strcmp(argv[1], "--list") == 0;
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    bool named = argc == 1;
    for (int k = 1; k < argc; k++) named = named || strcmp(argv[k], tests[i].name) == 0;
    if (list) puts(tests[i].name);
    if (named) tests[i].run();
  }
  return list ? 0 : test_finish();
}
