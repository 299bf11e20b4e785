/* Streams run at the same time: the trace of a stream-parallel run on two threads shows work of two
 * streams at once, and that of a run on one thread does not. */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "stream_kit.h"
#include "test.h"
#include "trace/stats.h"

/* Machines are shared: the second core may be busy, for a while. */
enum { TRIES = 300, PAUSE_NS = 30 * 1000 * 1000, MAX_SPANS = 64 };

static const char matmuls[] = "fusion matmuls {\n  x : f32[4, 256, 256]\n  w : f32[256, 256]\n"
                              "  y = matmul(x, w)\n  return y\n  schedule { y[0] = stream }\n}\n";
static const char elementwise[] =
    "fusion elementwise {\n  x : f32[4, 200000]\n  y = exp(x)\n  z = y + x\n  return z\n"
    "  schedule { y.outer_split(1, 4); y[1] = stream; z.outer_split(1, 4); z[1] = stream }\n}\n";

typedef struct overlap_call {
  const char *text;
  uint32_t threads, tries;
  int64_t overlap_ns; /* of two streams, in the first try that has some */
  bool stats_agree;   /* trace_stats calls it overlap too */
} overlap_call;

/* How long two spans of different streams ran at the same time, all pairs together. */
static int64_t overlap_of(const rt_span *spans, uint32_t n) {
  int64_t sum = 0;
  for (uint32_t a = 0; a < n; a++) {
    for (uint32_t b = 0; b < a; b++) {
      int64_t start = spans[a].start_ns > spans[b].start_ns ? spans[a].start_ns : spans[b].start_ns;
      int64_t end = spans[a].end_ns < spans[b].end_ns ? spans[a].end_ns : spans[b].end_ns;
      if (spans[a].stream != spans[b].stream && end > start) sum += end - start;
    }
  }
  return sum;
}

static bool spans_are_whole(const rt_plan *plan, const rt_span *spans, uint32_t threads) {
  for (uint32_t k = 0; k < plan->n_tasks; k++) {
    bool good = spans[k].end_ns >= spans[k].start_ns && spans[k].start_ns >= 0 &&
                spans[k].stream == plan->instrs[spans[k].instr].stream && spans[k].worker < threads;
    if (!good) return false;
  }
  return true;
}

static void run_traced(subject *s, rt_loaded *loaded, overlap_call *c) {
  rt_span spans[MAX_SPANS];
  uint32_t n = loaded->plan->n_tasks;
  for (; c->tries < TRIES && c->overlap_ns == 0; c->tries++) {
    if (c->tries > 5) (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    memset(spans, 0, sizeof spans);
    if (!EXPECT(subject_run(s, loaded, spans))) return;
    EXPECT(spans_are_whole(loaded->plan, spans, c->threads));
    c->overlap_ns = overlap_of(spans, n);
    trace_stats stats;
    trace_stats_make(loaded->plan, spans, n, 0, 0, &s->memory, &stats);
    c->stats_agree = (stats.overlap_ns > 0) == (c->overlap_ns > 0);
  }
}

static bool make_plan(subject *s, const char *text, rt_plan **plan) {
  if (!subject_open(s, text)) return false;
  ir_env_init(&s->env, s->func, &s->memory);
  if (!subject_values(s)) return false;
  for (uint32_t i = 0; i < s->n_in; i++) data_fill(&s->in[i], DATA_FILL_NORMAL, 0, "x");
  ir_func *h = subject_lower(s, false);
  *plan = h ? subject_plan(s, h, 2, false) : NULL;
  return *plan && (*plan)->n_tasks <= MAX_SPANS;
}

static status measure(void *context) {
  overlap_call *c = context;
  subject s;
  rt_plan *plan = NULL;
  rt_loaded *loaded = NULL;
  rt_device *device = kit_device(c->threads, false);
  if (EXPECT(device && make_plan(&s, c->text, &plan)) &&
      EXPECT(device->ops->load(device, plan, &loaded) == STATUS_OK))
    run_traced(&s, loaded, c);
  else fprintf(stderr, "%s\n", kit_reason);
  if (device) device->ops->unload(loaded);
  if (device) device->ops->close(device);
  rt_plan_destroy(plan);
  subject_close(&s);
  return STATUS_OK;
}

static void test_overlap(const char *name, const char *text) {
  overlap_call two = {.text = text, .threads = 2}, one = {.text = text, .threads = 1};
  EXPECT(memory_guard(measure, &two) == STATUS_OK);
  EXPECT(two.overlap_ns > 0);
  EXPECT(two.stats_agree);
  printf("%s: two streams at once for %lld ns in try %u\n", name, (long long)two.overlap_ns,
         two.tries);
  one.tries = TRIES - 3;
  EXPECT(memory_guard(measure, &one) == STATUS_OK);
  EXPECT_INT(one.overlap_ns, 0);
}

/* Whether this process may use two cores. */
static bool has_cores(void) {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) > 1;
}

int main(void) {
  if (!has_cores()) {
    EXPECT(true);
    printf("skipped: there is only one core\n");
    return test_finish();
  }
  test_overlap("matmuls", matmuls);
  test_overlap("elementwise", elementwise);
  return test_finish();
}
