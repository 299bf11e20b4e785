/* Is joining ever slower? Random programs, joined into kernels and not, in turns.
 *
 *   never_slower [N] [--seed S] [--rounds R] [--seconds T] [--products] [--show] [--compile]
 *
 * Takes the first N (200) programs of the generator from seed S on that run for a millisecond or
 * more unjoined, and times both in R (9) rounds. A program's ratio is that of the least times of
 * both, which what else the machine does disturbs least; where it is above 1.05, up to three times
 * as many rounds follow. Prints the geometric mean, how many are above 1.05, and the worst; --show
 * the texts of these, and what each of their launches takes (of seed S alone, if N is 0). It ends
 * after T seconds, if there are fewer. --products: products and what follows them. On a GPU, the
 * programs that became one kernel are also compared with copying the same bytes: inputs and
 * outputs, each once. --compile only compiles the kernels of N seeds, several of which can be under
 * way at once, and leaves them in the cache for the run that is timed.
 *
 * Who includes this says where tensors are, and how large they are at most. */
#ifndef WEIR_BENCH_NEVER_SLOWER_H
#define WEIR_BENCH_NEVER_SLOWER_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bind/bind.h"
#include "fuzz/gen.h"
#include "stream_kit.h"

enum {
  LOOKS = 4,
  MOST_ROUNDS = 99,
  MOST_PROGRAMS = 2000,
  N_WORST = 8,
  FILLED = 1 << 20,
  LEAST_BYTES = 64 << 20
};

/* Memory that a run reads and writes; some bytes of it. */
typedef struct place {
  int64_t most_elements, most_of_products;
  double most_flops, least_bytes, most_memory; /* of a program */
  void *(*take)(size_t size_bytes);
  void (*give_back)(void *block);
  void (*copy)(void *to, const void *from, size_t size_bytes); /* from the host */
  void (*copy_within)(void *to, const void *from, size_t size_bytes);
  double (*copy_s)(size_t size_bytes); /* to read and write so many bytes; NULL: not asked */
} place;
static const double least_s = 1e-3, enough_s = 4e-3;

typedef struct result {
  uint64_t seed;
  double ratio, apart_s, joined_s;
  double of_copying; /* 0: not one kernel, or not asked */
} result;

static struct {
  uint64_t n, seed;
  int rounds;
  double seconds;
  bool products, show, compile;
  const place *place;
  rt_device *device;
} asked = {.n = 200, .rounds = 9, .seconds = 1e9};

static result results[MOST_PROGRAMS];
static uint32_t n_results;

typedef struct trial {
  const gen_program *program;
  subject s;
  void **in, **out;
  rt_plan *plans[2]; /* unjoined, joined */
  rt_loaded *loaded[2];
  result result;
  bool counts, show;
} trial;

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- a program ---- */
static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed * 2654435761u + 5);
  check(asked.place);
  o.families = GEN_POINTWISE | GEN_VIEW | GEN_CUT | GEN_MAKE | GEN_REDUCE | GEN_MOMENT | GEN_MODEL;
  if (asked.products) o.families = GEN_POINTWISE | GEN_MATMUL | GEN_REDUCE | GEN_MODEL;
  o.dtypes = 1u << IR_F32 | 1u << IR_BF16;
  o.max_ops = 12;
  o.max_devices = 0;
  o.max_elements = asked.products ? asked.place->most_of_products : asked.place->most_elements;
  o.schedule = o.edges = false;
  o.large = true;
  return o;
}

/* Numbers from 1 to 3, whatever the dtype. */
static void fill(void *to, ir_dtype dtype, size_t size_bytes) {
  static char block[8 * FILLED];
  size_t size = ir_dtype_size_bytes(dtype),
         n = size_bytes / size < FILLED ? size_bytes / size : FILLED;
  gen_random r = {.state = 1};
  for (size_t i = 0; i < n; i++)
    ir_element_set_f64(dtype, block + i * size, 1 + (int)gen_below(&r, 3));
  size_t done = size_bytes < n * size ? size_bytes : n * size;
  asked.place->copy(to, block, done);
  for (size_t more; done < size_bytes; done += more) { /* twice as much each time */
    more = size_bytes - done < done ? size_bytes - done : done;
    asked.place->copy_within((char *)to + done, to, more);
  }
}

/* Both plans have the same inputs and outputs. */
static bool make_arrays(trial *t) {
  const rt_plan *plan = t->plans[0];
  t->in = ARENA_ARRAY(&t->s.memory, plan->n_inputs + (size_t)1, void *);
  t->out = ARENA_ARRAY(&t->s.memory, plan->n_outputs + (size_t)1, void *);
  for (uint32_t i = 0; i < plan->n_buffers; i++) {
    const rt_buffer *x = &plan->buffers[i];
    if (x->kind == RT_BUFFER_POOL) continue;
    void *block = asked.place->take((size_t)x->size_bytes + 1);
    if (!block) return kit_wrong("memory", "");
    *(x->kind == RT_BUFFER_INPUT ? &t->in[x->slot] : &t->out[x->slot]) = block;
    if (x->kind != RT_BUFFER_INPUT) continue;
    ir_tensor input = plan->host->inputs.data[x->slot];
    fill(block, ir_tensor_at(plan->host, input)->dtype, (size_t)x->size_bytes);
  }
  return true;
}

static void drop_arrays(trial *t) {
  for (uint32_t i = 0; t->in && i < t->plans[0]->n_inputs; i++) asked.place->give_back(t->in[i]);
  for (uint32_t i = 0; t->out && i < t->plans[0]->n_outputs; i++) asked.place->give_back(t->out[i]);
}

static bool bind(trial *t, int joined) {
  ir_func *h = subject_lower(&t->s, false);
  bind_options options = {.streams = 1, .seed = KIT_SEED};
  ir_env env;
  if (!h) return false;
  if (joined) subject_join(&t->s, h);
  ir_env_init(&env, h, &t->s.memory);
  for (uint32_t i = 0; i < t->program->n_inputs; i++) {
    const gen_value *v = &t->program->inputs[i];
    if (!ir_bind_shape(&env, h->inputs.data[i], v->extents, v->rank, v->name)) return false;
  }
  return kit_ok(bind_plan(&env, &options, &memory_default, &t->plans[joined]), "bind");
}

static bool load(trial *t) {
  for (int k = 0; k < 2; k++)
    if (!kit_ok(asked.device->ops->load(asked.device, t->plans[k], &t->loaded[k]), "load"))
      return false;
  return true;
}

static bool run_for(trial *t, int joined, int times, double *s) {
  double begin = now_s();
  for (int i = 0; i < times; i++)
    if (!kit_ok(rt_run(t->loaded[joined], t->in, t->out, NULL, NULL), "run")) return false;
  *s = (now_s() - begin) / times;
  return true;
}

/* One more look at both, in turns; the least times so far are kept. */
static bool run_rounds(trial *t, int times) {
  for (int r = 0; r < asked.rounds; r++) {
    double s[2] = {0};
    for (int k = 0; k < 2; k++) {
      int joined = (r + k) % 2;
      if (!run_for(t, joined, times, &s[joined])) return false;
    }
    t->result.apart_s = fmin(t->result.apart_s, s[0]);
    t->result.joined_s = fmin(t->result.joined_s, s[1]);
  }
  t->result.ratio = t->result.joined_s / t->result.apart_s;
  return true;
}

static bool measure(trial *t) {
  double first, again;
  if (!run_for(t, 0, 1, &first) || !run_for(t, 1, 1, &again) || !run_for(t, 0, 1, &first))
    return false;
  if (first < least_s) return true;
  int times = first < enough_s ? (int)(enough_s / first) + 1 : 1;
  t->result.apart_s = t->result.joined_s = INFINITY;
  for (int look = 0; look < LOOKS && (look == 0 || t->result.ratio > 1.05); look++)
    if (!run_rounds(t, times)) return false;
  t->counts = t->result.apart_s >= least_s;
  return true;
}

/* What one kernel reads and writes at least. */
static void compare_with_copying(trial *t) {
  const rt_plan *plan = t->plans[1];
  size_t bytes = 0;
  if (plan->n_tasks != 1 || !asked.place->copy_s || !t->counts) return;
  for (uint32_t i = 0; i < plan->n_buffers; i++)
    if (plan->buffers[i].kind != RT_BUFFER_POOL) bytes += (size_t)plan->buffers[i].size_bytes;
  if (bytes >= LEAST_BYTES) t->result.of_copying = asked.place->copy_s(bytes) / t->result.joined_s;
}

/* Was something joined, and can it run for a millisecond, but not for minutes? Others are not even
 * compiled. Of products there is attention only, and little of it is enough. */
static bool is_apt(const trial *t) {
  const rt_plan *plan = t->plans[0];
  double flops = 0, bytes = 0, memory = 0;
  for (uint32_t i = 0; i < plan->n_tasks; i++) flops += rt_task_flops(plan, &plan->tasks[i]);
  for (uint32_t i = 0; i < plan->n_tasks; i++) bytes += rt_task_bytes(plan, &plan->tasks[i]);
  for (uint32_t i = 0; i < plan->n_buffers; i++) memory += (double)plan->buffers[i].size_bytes;
  return plan->n_tasks != t->plans[1]->n_tasks &&
         memory < asked.place->most_memory / (asked.compile ? 8 : 1) &&
         bytes >= asked.place->least_bytes &&
         flops < asked.place->most_flops / (asked.products ? 1 : 16);
}

/* The least times of launches in some runs, with the text of each. */
static void show_launches(trial *t, int joined) {
  const rt_plan *plan = t->plans[joined];
  rt_span *spans = ARENA_ARRAY(&t->s.memory, plan->n_tasks + (size_t)1, rt_span);
  double *least = ARENA_ARRAY(&t->s.memory, plan->n_tasks + (size_t)1, double);
  strbuf text;
  for (int r = 0; r < asked.rounds; r++) {
    if (!kit_ok(rt_run(t->loaded[joined], t->in, t->out, spans, NULL), "run")) return;
    for (uint32_t i = 0; i < plan->n_tasks; i++) {
      double ms = (double)(spans[i].end_ns - spans[i].start_ns) * 1e-6;
      least[i] = r == 0 ? ms : fmin(least[i], ms);
    }
  }
  printf("%s:\n", joined ? "joined" : "unjoined");
  for (uint32_t i = 0; i < plan->n_tasks; i++) {
    const rt_view *v = &plan->views[plan->tasks[i].result];
    strbuf_init(&text, &t->s.memory);
    text_print_instr(plan->host, (ir_instr){plan->instrs[spans[i].instr].origin}, &text);
    printf("  %8.3f ms  [", least[i]);
    for (uint32_t d = 0; d < v->rank; d++) printf(" %lld", (long long)v->extents[d]);
    printf(" ] %s\n", text.data);
  }
}

static status try_program(void *context) {
  trial *t = context;
  if (!subject_open(&t->s, t->program->text)) return STATUS_CHECK_FAILED;
  if (!bind(t, 0) || !bind(t, 1) || !is_apt(t) || !load(t)) return STATUS_CHECK_FAILED;
  if (asked.compile) return STATUS_OK;
  if (!make_arrays(t) || !measure(t)) return STATUS_CHECK_FAILED;
  compare_with_copying(t);
  for (int k = 0; k < 2 && t->show; k++) show_launches(t, k);
  return STATUS_OK;
}

static void try_seed(uint64_t seed, bool show) {
  gen_options options = options_of(seed);
  gen_program *p = gen_create(&options);
  trial t = {.program = p, .result = {.seed = seed}, .show = show};
  if (show) printf("seed %llu\n%s\n", (unsigned long long)seed, p->text);
  bool runs = !p->bad_stream && memory_guard(try_program, &t) == STATUS_OK;
  status_clear();
  drop_arrays(&t);
  for (int i = 0; i < 2; i++) {
    if (t.loaded[i]) asked.device->ops->unload(t.loaded[i]);
    if (t.plans[i]) rt_plan_destroy(t.plans[i]);
  }
  if (runs && t.counts && !show) results[n_results++] = t.result;
  subject_close(&t.s);
  gen_destroy(p);
}

/* ---- the table ---- */
static int by_ratio(const void *a, const void *b) {
  double x = ((const result *)a)->ratio, y = ((const result *)b)->ratio;
  return x < y ? 1 : x > y ? -1 : 0;
}

static int by_copying(const void *a, const void *b) {
  double x = ((const result *)a)->of_copying, y = ((const result *)b)->of_copying;
  return x < y ? -1 : x > y ? 1 : 0;
}

static void report_copying(void) {
  uint32_t n = 0, below = 0, first = 0;
  qsort(results, n_results, sizeof *results, by_copying);
  while (first < n_results && results[first].of_copying == 0) first++;
  for (uint32_t i = first; i < n_results; i++, n++) below += results[i].of_copying < 0.7;
  if (n == 0) return;
  printf("%u of them one kernel: %.2f of copying in the middle, worst %.2f, %u below 0.70\n", n,
         results[first + n / 2].of_copying, results[first].of_copying, below);
  for (uint32_t i = first; i < n_results && (i < first + N_WORST || results[i].of_copying < 0.7);
       i++)
    printf("  seed %6llu  %.2f of copying, %8.3f ms\n", (unsigned long long)results[i].seed,
           results[i].of_copying, results[i].joined_s * 1e3);
}

/* Where it is, in case it is broken off. */
static void report_so_far(uint64_t tried) {
  static double next_s;
  double sum = 0, worst = 0;
  if (n_results == 0 || now_s() < next_s) return;
  next_s = now_s() + 10;
  for (uint32_t i = 0; i < n_results; i++) {
    sum += log(results[i].ratio);
    worst = fmax(worst, results[i].ratio);
  }
  printf("so far %u of %llu tried: %.3f, worst %.3f; next --seed %llu\n", n_results,
         (unsigned long long)tried, exp(sum / n_results), worst,
         (unsigned long long)(asked.seed + tried));
  (void)fflush(stdout);
}

static void report(uint64_t tried) {
  double sum = 0;
  uint32_t above = 0;
  for (uint32_t i = 0; i < n_results; i++) {
    sum += log(results[i].ratio);
    above += results[i].ratio > 1.05;
  }
  qsort(results, n_results, sizeof *results, by_ratio);
  printf("%u programs of %llu tried: joined over unjoined %.3f in the geometric mean, worst %.3f, "
         "%u above 1.05\n",
         n_results, (unsigned long long)tried, exp(sum / n_results), results[0].ratio, above);
  for (uint32_t i = 0; i < N_WORST && i < n_results; i++)
    printf("  seed %6llu  %.3f  unjoined %8.3f ms, joined %8.3f ms\n",
           (unsigned long long)results[i].seed, results[i].ratio, results[i].apart_s * 1e3,
           results[i].joined_s * 1e3);
  for (uint32_t i = 0; asked.show && i < 3 && i < n_results; i++) try_seed(results[i].seed, true);
  report_copying();
}

static void read_arguments(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--products") == 0) asked.products = true;
    else if (strcmp(argv[i], "--show") == 0) asked.show = true;
    else if (strcmp(argv[i], "--compile") == 0) asked.compile = true;
    else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
      asked.seed = strtoull(argv[++i], NULL, 0);
    else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
      asked.seconds = strtod(argv[++i], NULL);
    else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) asked.rounds = atoi(argv[++i]);
    else asked.n = strtoull(argv[i], NULL, 0);
  }
  if (asked.n > MOST_PROGRAMS) asked.n = MOST_PROGRAMS;
  if (asked.rounds < 1 || asked.rounds > MOST_ROUNDS) asked.rounds = 9;
}

static int never_slower(int argc, char **argv, rt_device *device, const place *where) {
  uint64_t tried = 0;
  read_arguments(argc, argv);
  asked.device = device;
  asked.place = where;
  double end = now_s() + asked.seconds;
  uint64_t most = asked.compile ? asked.n : 40 * asked.n;
  while (n_results < asked.n && tried < most && now_s() < end) {
    try_seed(asked.seed + tried++, false);
    report_so_far(tried);
  }
  if (n_results) report(tried);
  else if (asked.n == 0) try_seed(asked.seed, asked.show);
  device->ops->close(device);
  return 0;
}

#endif
