/* Runs that the caller does not wait for: their order, their errors, callbacks, cancelling, and
 * many of them at once, of programs of all kinds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <weir/weir.h>

#include "base/random.h"
#include "test.h"

enum { N = 64, KINDS = 4, THREADS = 8 };
static int n_runs = SANITIZED ? 60 : 1000; /* of each thread; test_async N: so many */

#define EXPECT_OK(call)                                                                            \
  do {                                                                                             \
    if (!EXPECT_INT(call, WEIR_OK)) fprintf(stderr, "  %s\n", weir_error());                       \
  } while (0)

/* ---- programs: y = 2 x + 1 in many ways, and one that looks indexes up ---- */
static const char *const texts[KINDS] = {
    "fusion f {\n  x : f32[n]\n  y = x * 2 + 1\n  return y\n}\n",
    "fusion f {\n  x : f32[n]\n  y = x * 2 + 1\n  return y\n"
    "  schedule { y.outer_split(0, 4); y[0] = stream }\n}\n",
    "fusion f {\n  mesh d = [2]\n  x : f32[n]\n  a = x * 2\n  y = a + 1\n  return y\n"
    "  schedule { x, a, y on d; x.outer_split(0, 2); x[0] = mesh.x; a.outer_split(0, 2); "
    "a[0] = mesh.x }\n}\n",
    "fusion f {\n  mesh d = [2]\n  x : f32[n]\n  i : i64[n]\n  a = x * 2 + 1\n"
    "  y = index_select(a, i, dim=0)\n  return y\n"
    "  schedule { x, i, a, y on d; x.outer_split(0, 2); x[0] = mesh.x; a.outer_split(0, 2); "
    "a[0] = mesh.x }\n}\n",
};
enum { LOOKUP = 3 };

static weir_program *compile(int kind, const char *device) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  EXPECT_OK(weir_module_parse("f.weir", texts[kind], strlen(texts[kind]), NULL, &m));
  EXPECT_OK(weir_module_find(m, NULL, &f));
  EXPECT_OK(weir_options_create(&o));
  EXPECT_OK(weir_options_set(o, "device", device));
  EXPECT_OK(weir_options_set(o, "threads", "2"));
  EXPECT_OK(weir_compile(f, o, NULL, &p));
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

/* One run: memory of the caller, and what was asked for. */
typedef struct one {
  float x[N], y[N];
  int64_t i[N];
  bool fails;
  weir_pending *pending;
  _Atomic int told; /* by the callback: 1 + the status */
} one;

static void fill(one *r, float first, bool fails) {
  r->fails = fails;
  atomic_store(&r->told, 0);
  for (int k = 0; k < N; k++) {
    r->x[k] = first + (float)k;
    r->y[k] = -1;
    r->i[k] = N - 1 - k;
  }
  if (fails) r->i[5] = 12345;
}

static void on_end(void *context, weir_status st, const char *message) {
  one *r = context;
  if ((st == WEIR_OK) != (message[0] == '\0')) abort();
  atomic_store(&r->told, 1 + (int)st);
}

/* The structs are gone when it returns. */
static weir_status start(const weir_program *p, int kind, one *r) {
  int64_t shape[] = {N};
  weir_dl_tensor x = {.data = r->x, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}};
  x.shape = shape;
  weir_dl_tensor y = x, i = x;
  y.data = r->y;
  i.data = r->i;
  i.dtype = weir_dtype_to_dl(WEIR_I64);
  const weir_dl_tensor *in[] = {&x, &i}, *out[] = {&y};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .outputs = out, .n_outputs = 1};
  args.n_inputs = kind == LOOKUP ? 2 : 1;
  weir_status st = weir_run_async(p, &args, on_end, r, &r->pending);
  memset(shape, 0xff, sizeof shape);
  return st;
}

static bool is_right(const one *r, int kind) {
  for (int k = 0; k < N; k++)
    if (r->y[k] != r->x[kind == LOOKUP ? r->i[k] : k] * 2 + 1) return false;
  return true;
}

/* Whether it ended as it should; `may_stop`: it was asked to. */
static bool end(one *r, int kind, bool may_stop) {
  weir_status st = weir_pending_wait(r->pending);
  bool told = atomic_load(&r->told) == 1 + (int)st;
  bool polled = weir_pending_poll(r->pending, 0);
  weir_pending_destroy(r->pending);
  if (st == WEIR_CANCELLED) return may_stop && told && polled;
  if (kind == LOOKUP && r->fails)
    return st == WEIR_BAD_INPUT || st == WEIR_BAD_USAGE || st == WEIR_BAD_PROGRAM ||
                   st == WEIR_CHECK_FAILED
               ? told && polled && strstr(weir_error(), "12345")
               : false;
  return st == WEIR_OK && told && polled && is_right(r, kind);
}

/* ---- one thread ---- */
static void test_results(const char *device) {
  enum { MANY = 20 };
  for (int kind = 0; kind < KINDS; kind++) {
    weir_program *p = compile(kind, device);
    one *runs = calloc(MANY, sizeof *runs);
    for (int k = 0; k < MANY; k++) {
      fill(&runs[k], (float)k, false);
      EXPECT_OK(start(p, kind, &runs[k]));
    }
    for (int k = MANY; k-- > 0;) EXPECT(end(&runs[k], kind, false));
    free(runs);
    weir_program_destroy(p);
  }
}

/* The error is that of the thread that waits, as text and as data; the program goes on. */
static void test_errors(void) {
  weir_program *p = compile(LOOKUP, "cpu");
  one bad, good;
  fill(&bad, 1, true);
  fill(&good, 2, false);
  EXPECT_OK(start(p, LOOKUP, &bad));
  EXPECT_OK(start(p, LOOKUP, &good));
  EXPECT(weir_pending_wait(bad.pending) != WEIR_OK);
  EXPECT_CONTAINS(weir_error(), "12345");
  EXPECT_INT(weir_diagnostic_count(), 1);
  weir_diagnostic d = {.struct_size = sizeof d};
  if (EXPECT(weir_diagnostic_at(0, &d))) {
    EXPECT_CONTAINS(d.text, "12345");
    EXPECT_INT(d.severity, WEIR_SEVERITY_ERROR);
    EXPECT(!weir_diagnostic_at(1, &d));
  }
  EXPECT(end(&good, LOOKUP, false));
  EXPECT(weir_pending_wait(bad.pending) != WEIR_OK); /* as often as wanted */
  EXPECT_CONTAINS(weir_error(), "12345");
  weir_pending_destroy(bad.pending);
  weir_program_destroy(p);
}

/* What is wrong with the call itself is said at once; what the tensors hold, at the wait. */
static void test_refusals(void) {
  weir_program *p = compile(0, "cpu");
  weir_pending *r = NULL;
  weir_run_args args = {.struct_size = sizeof args};
  EXPECT_INT(weir_run_async(NULL, &args, NULL, NULL, &r), WEIR_BAD_USAGE);
  EXPECT_INT(weir_run_async(p, NULL, NULL, NULL, &r), WEIR_BAD_USAGE);
  EXPECT_INT(weir_run_async(p, &args, NULL, NULL, &r), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "1 inputs, but 0");
  EXPECT(r == NULL);
  int64_t short_one[] = {3}, odd[] = {4};
  float x[4] = {0}, y[4];
  weir_dl_tensor in = {x, {1, 0}, 1, {2, 32, 1}, short_one, NULL, 0}, out = in, none = in;
  out.data = y;
  out.shape = odd;
  none.ndim = 99;
  const weir_dl_tensor *inputs[] = {&in}, *outputs[] = {&out};
  args = (weir_run_args){.struct_size = sizeof args, .inputs = inputs, .n_inputs = 1};
  args.outputs = outputs;
  args.n_outputs = 1;
  EXPECT_OK(weir_run_async(p, &args, NULL, NULL, &r));
  EXPECT_INT(weir_pending_wait(r), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "needs to be 3");
  weir_pending_destroy(r);
  inputs[0] = &none;
  EXPECT_OK(weir_run_async(p, &args, NULL, NULL, &r));
  EXPECT_INT(weir_pending_wait(r), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "99 dimensions");
  weir_pending_destroy(r);
  EXPECT_INT(weir_pending_wait(NULL), WEIR_BAD_USAGE);
  weir_pending_cancel(NULL);
  weir_pending_destroy(NULL);
  weir_program_destroy(p);
}

/* ---- callbacks ---- */
typedef struct gate {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  bool is_open;
  one *self, *later;
  weir_program *program;
  int seen; /* by the callback */
} gate;

static void wait_for_gate(void *context, weir_status st, const char *message) {
  gate *g = context;
  (void)st, (void)message;
  pthread_mutex_lock(&g->lock);
  while (!g->is_open) pthread_cond_wait(&g->opened, &g->lock);
  pthread_mutex_unlock(&g->lock);
}

static void open_gate(gate *g) {
  pthread_mutex_lock(&g->lock);
  g->is_open = true;
  pthread_cond_broadcast(&g->opened);
  pthread_mutex_unlock(&g->lock);
}

static void gate_init(gate *g) {
  *g = (gate){0};
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->opened, NULL);
}

/* A run whose callback holds the queue until the gate opens. */
static weir_pending *block_queue(const weir_program *p, one *r, gate *g) {
  int64_t shape[] = {N};
  weir_dl_tensor x = {r->x, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0}, y = x;
  y.data = r->y;
  const weir_dl_tensor *in[] = {&x}, *out[] = {&y};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 1, .outputs = out};
  args.n_outputs = 1;
  weir_pending *pending = NULL;
  EXPECT_OK(weir_run_async(p, &args, wait_for_gate, g, &pending));
  return pending;
}

/* A call returns though the run can only begin after something that the caller does next. */
static void test_order(void) {
  weir_program *p = compile(1, "cpu");
  gate g;
  one first, second, third;
  gate_init(&g);
  fill(&first, 1, false);
  fill(&second, 2, false);
  fill(&third, 3, false);
  weir_pending *held = block_queue(p, &first, &g);
  EXPECT_OK(start(p, 1, &second));
  EXPECT_OK(start(p, 1, &third));
  EXPECT(!weir_pending_poll(held, 0));
  EXPECT(!weir_pending_poll(second.pending, 2000000));
  EXPECT_INT(second.y[0], -1);
  weir_pending_cancel(second.pending);
  open_gate(&g);
  EXPECT_INT(weir_pending_wait(second.pending), WEIR_CANCELLED);
  EXPECT_CONTAINS(weir_error(), "cancelled");
  EXPECT_INT(atomic_load(&second.told), 1 + WEIR_CANCELLED);
  EXPECT_INT(second.y[0], -1); /* it never began */
  EXPECT(end(&third, 1, false));
  EXPECT(weir_pending_poll(held, -1));
  weir_pending_destroy(held);
  weir_pending_destroy(second.pending);
  weir_program_destroy(p);
}

/* weir_run() comes after what was begun before it. */
static void test_run_after(void) {
  enum { MANY = 50 };
  weir_program *p = compile(2, "cpu");
  one *runs = calloc(MANY, sizeof *runs);
  for (int k = 0; k < MANY; k++) {
    fill(&runs[k], (float)k, false);
    EXPECT_OK(start(p, 2, &runs[k]));
  }
  int64_t shape[] = {N};
  float out[N];
  weir_dl_tensor x = {runs[MANY - 1].y, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0}, y = x;
  y.data = out; /* of what the last of them writes */
  const weir_dl_tensor *ins[] = {&x}, *outs[] = {&y};
  weir_run_args args = {.struct_size = sizeof args, .inputs = ins, .n_inputs = 1, .outputs = outs};
  args.n_outputs = 1;
  EXPECT_OK(weir_run(p, &args));
  bool right = true;
  for (int k = 0; k < N; k++) right = right && out[k] == ((float)(MANY - 1 + k) * 2 + 1) * 2 + 1;
  EXPECT(right);
  for (int k = 0; k < MANY; k++) EXPECT(end(&runs[k], 2, false));
  free(runs);
  weir_program_destroy(p);
}

/* Callbacks may look at their own run, begin others, and destroy the program; they cannot wait for
 * later runs. */
static void from_inside(void *context, weir_status st, const char *message) {
  gate *g = context;
  (void)message;
  pthread_mutex_lock(&g->lock);
  while (!g->is_open) pthread_cond_wait(&g->opened, &g->lock);
  pthread_mutex_unlock(&g->lock);
  g->seen = st == WEIR_OK && weir_pending_wait(g->self->pending) == WEIR_OK;
  if (start(g->program, 0, g->later) != WEIR_OK) g->seen = -1;
  if (weir_pending_wait(g->later->pending) != WEIR_BAD_USAGE) g->seen = -2;
  if (weir_pending_poll(g->later->pending, -1)) g->seen = -3;
  weir_program_destroy(g->program);
}

static void test_callbacks(void) {
  one self, later;
  gate g;
  gate_init(&g);
  fill(&self, 1, false);
  fill(&later, 2, false);
  g.self = &self;
  g.later = &later;
  g.program = compile(0, "cpu");
  int64_t shape[] = {N};
  weir_dl_tensor x = {self.x, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0}, y = x;
  y.data = self.y;
  const weir_dl_tensor *in[] = {&x}, *out[] = {&y};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 1, .outputs = out};
  args.n_outputs = 1;
  EXPECT_OK(weir_run_async(g.program, &args, from_inside, &g, &self.pending));
  open_gate(&g);
  EXPECT_OK(weir_pending_wait(self.pending));
  EXPECT_INT(g.seen, 1);
  weir_pending_destroy(self.pending);
  EXPECT(end(&later, 0, false)); /* begun before the program was destroyed */
}

/* Nobody waits: destroying the program does. */
static void test_nobody_waits(void) {
  enum { MANY = 30 };
  weir_program *p = compile(1, "cpu");
  one *runs = calloc(MANY, sizeof *runs);
  for (int k = 0; k < MANY; k++) {
    fill(&runs[k], (float)k, false);
    EXPECT_OK(start(p, 1, &runs[k]));
    weir_pending_destroy(runs[k].pending);
  }
  weir_program_destroy(p);
  for (int k = 0; k < MANY; k++) EXPECT(atomic_load(&runs[k].told) == 1 && is_right(&runs[k], 1));
  free(runs);
}

/* ---- cancelling a run under way ---- */
/* Long enough to be met in the middle, on two ranks that wait for each other. */
static void test_cancel(const char *adversary) {
  static const char text[] =
      "fusion f {\n  mesh d = [2]\n  x : f32[32, 40000]\n  y = set(exp(tanh(exp(tanh(x)))))\n"
      "  return y\n  schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x; "
      "y.outer_split(1, 8); y[1] = stream }\n}\n";
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  EXPECT_OK(weir_module_parse("c.weir", text, sizeof text - 1, NULL, &m));
  EXPECT_OK(weir_module_find(m, NULL, &f));
  EXPECT_OK(weir_options_create(&o));
  if (adversary) EXPECT_OK(weir_options_set(o, "adversary", adversary));
  EXPECT_OK(weir_compile(f, o, NULL, &p));
  int64_t extents[] = {32, 40000};
  weir_array *x = NULL, *y = NULL, *z = NULL;
  EXPECT_OK(weir_array_create(WEIR_F32, extents, 2, NULL, &x));
  EXPECT_OK(weir_array_create(WEIR_F32, extents, 2, NULL, &y));
  EXPECT_OK(weir_array_create(WEIR_F32, extents, 2, NULL, &z));
  EXPECT_OK(weir_array_fill(x, "normal", 1, "x"));
  const weir_dl_tensor *in[] = {weir_array_tensor(x)}, *out[] = {weir_array_tensor(y)};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 1, .outputs = out};
  args.n_outputs = 1;
  EXPECT_OK(weir_run(p, &args));
  memcpy(weir_array_tensor(z)->data, weir_array_tensor(y)->data, 32 * 40000 * sizeof(float));
  int stopped = 0;
  /* The machine may stop this thread until a run is over: then once more, at once. */
  for (int k = 0; k < 12 || (stopped == 0 && k < 1000); k++) {
    weir_pending *r = NULL;
    EXPECT_OK(weir_run_async(p, &args, NULL, NULL, &r));
    struct timespec t = {.tv_nsec = k < 12 ? 300000L * k : 0};
    nanosleep(&t, NULL);
    weir_pending_cancel(r);
    weir_status st = weir_pending_wait(r);
    EXPECT(st == WEIR_OK || st == WEIR_CANCELLED);
    stopped += st == WEIR_CANCELLED;
    weir_pending_destroy(r);
  }
  EXPECT(stopped > 0);
  memset(weir_array_tensor(y)->data, 0, 32 * 40000 * sizeof(float));
  EXPECT_OK(weir_run(p, &args)); /* everything is as before */
  EXPECT(memcmp(weir_array_tensor(y)->data, weir_array_tensor(z)->data, 32 * 40000 * 4) == 0);
  weir_array_destroy(x);
  weir_array_destroy(y);
  weir_array_destroy(z);
  weir_program_destroy(p);
  weir_options_destroy(o);
  weir_module_destroy(m);
}

/* ---- many ---- */
typedef struct worker {
  pthread_t thread;
  weir_program *const *programs;
  uint32_t index;
  unsigned wrong, stopped;
} worker;

enum { AT_ONCE = 12 };

static void *hammer(void *context) {
  worker *w = context;
  one *runs = calloc(AT_ONCE, sizeof *runs);
  int kinds[AT_ONCE];
  bool stops[AT_ONCE];
  for (int done = 0; done < n_runs; done += AT_ONCE) {
    for (int k = 0; k < AT_ONCE; k++) {
      uint64_t bits = random_bits(w->index, (uint64_t)(done + k));
      kinds[k] = (int)(bits % KINDS);
      fill(&runs[k], (float)(bits >> 8 & 1023), (bits >> 20) % 5 == 0);
      if (start(w->programs[kinds[k]], kinds[k], &runs[k]) != WEIR_OK) w->wrong++;
      stops[k] = (bits >> 24) % 4 == 0;
      if (stops[k]) weir_pending_cancel(runs[k].pending);
    }
    for (int k = 0; k < AT_ONCE; k++) {
      weir_pending_poll(runs[k].pending, 1);
      if (!end(&runs[k], kinds[k], stops[k])) w->wrong++;
      w->stopped += atomic_load(&runs[k].told) == 1 + WEIR_CANCELLED;
    }
  }
  free(runs);
  return NULL;
}

static void test_many(void) {
  weir_program *programs[KINDS];
  worker workers[THREADS];
  unsigned stopped = 0;
  for (int k = 0; k < KINDS; k++) programs[k] = compile(k, "cpu");
  for (uint32_t t = 0; t < THREADS; t++) {
    workers[t] = (worker){.programs = programs, .index = t};
    EXPECT_INT(pthread_create(&workers[t].thread, NULL, hammer, &workers[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) {
    pthread_join(workers[t].thread, NULL);
    EXPECT_INT(workers[t].wrong, 0);
    stopped += workers[t].stopped;
  }
  for (int k = 0; k < KINDS; k++) weir_program_destroy(programs[k]);
  printf("%d runs by %d threads, %u cancelled\n", n_runs * THREADS, THREADS, stopped);
}

int main(int argc, char **argv) {
  if (argc > 1) n_runs = atoi(argv[1]);
  test_results("cpu");
  test_results("ref");
  test_errors();
  test_refusals();
  test_order();
  test_run_after();
  test_callbacks();
  test_nobody_waits();
  test_cancel(NULL);
  test_cancel("7");
  test_many();
  return test_finish();
}
