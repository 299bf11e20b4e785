/* Is --check to be trusted? Random programs, well and ill conditioned, in f32, f16 and bf16: what a device
 * computes passes, and a result with one element that is off by four times what rounding explains does not.
 *
 *   test_rounding [N] [--seed S]
 *
 * What rounding explains is three standard deviations of 96 evaluations with random errors, others than those
 * the check makes. Values that nothing rounds must be equal, so that there the next number is an error. */
#include <stdlib.h>

#include "command.h"
#include "gen.h"
#include "machines.h"
#include "session/judge.h"
#include "test.h"

enum { N_ROUNDS = 8, FIRST_ROUND = 100 };

typedef struct trial {
  uint64_t seed;
  const gen_program *program;
  subject s;
} trial;

static uint64_t n_checked, n_planted, n_exact, n_open, n_missed, n_alarms, n_overflowed;

/* Some inputs are far from zero and close to each other, so that differences of them cancel. */
static double random_value(gen_random *r, const gen_value *v, uint64_t seed) {
  double x = ((double)gen_below(r, 1u << 20) / (1u << 19) - 1) * 2;
  switch (v->fill) {
  case GEN_FILL_INDEX: return gen_below(r, (uint32_t)v->index_bound);
  case GEN_FILL_INTEGER: return (double)gen_below(r, 7) - 3;
  case GEN_FILL_POSITIVE: return 0.25 + gen_below(r, 64) / 16.0;
  case GEN_FILL_NORMAL: break;
  }
  if (!ir_dtype_is_float(v->dtype))
    return v->dtype == IR_U8 ? gen_below(r, 5) : gen_below(r, 9) - 4.0;
  return seed % 2 ? x : 50 + x / 16;
}

static void fill_inputs(trial *t) {
  for (uint32_t k = 0; k < t->s.n_in; k++) {
    const gen_value *v = &t->program->inputs[k];
    gen_random r = {.state = t->seed ^ ((uint64_t)(k + 1) << 32)};
    int64_t n = 0;
    EXPECT(ir_array_count(&t->s.in[k], &n));
    for (int64_t i = 0; i < n; i++)
      ir_element_set_f64(v->dtype,
                         (char *)t->s.in[k].data + (size_t)i * ir_dtype_size_bytes(v->dtype),
                         random_value(&r, v, t->seed));
  }
}

/* rows: of each output; 0: all. */
static bool judge(trial *t, int64_t rows, data_verdict *verdicts) {
  ref_options options = {.seed = KIT_SEED, .memory = &memory_default, .threads = 1};
  session_judgement j = {.rows = rows, .verdicts = verdicts};
  return kit_ok(session_judge(&t->s.env, t->s.in, t->s.out, &options, &j), "judge");
}

static bool all_right(const trial *t, const data_verdict *verdicts) {
  for (uint32_t i = 0; i < t->s.n_out; i++) {
    if (verdicts[i].n_wrong == 0) continue;
    char text[200];
    snprintf(text, sizeof text,
             "%s: element %lld... is %.9g, by the definition %.9g, explained %.3g",
             t->program->outputs[i].name, (long long)verdicts[i].index[0], verdicts[i].value,
             verdicts[i].reference, verdicts[i].tolerance);
    return kit_wrong("false alarm", text);
  }
  return true;
}

/* ---- planting ---- */
static bool deviations(trial *t, double **mean) {
  double *round[KIT_VALUES];
  ref_options options = {.seed = KIT_SEED, .memory = &memory_default, .threads = 1};
  for (uint32_t i = 0; i < t->s.n_out; i++) {
    int64_t n = 0;
    EXPECT(ir_array_count(&t->s.out[i], &n));
    round[i] = arena_alloc(&t->s.memory, ((size_t)n + 1) * sizeof(double));
    mean[i] = arena_alloc(&t->s.memory, ((size_t)n + 1) * sizeof(double));
    memset(mean[i], 0, ((size_t)n + 1) * sizeof(double));
  }
  for (uint64_t k = 0; k < N_ROUNDS; k++) {
    if (!kit_ok(ref_spread(&t->s.env, t->s.in, t->s.expected, round, FIRST_ROUND + k, &options),
                "spread"))
      return false;
    for (uint32_t i = 0; i < t->s.n_out; i++) {
      int64_t n = 0;
      EXPECT(ir_array_count(&t->s.out[i], &n));
      for (int64_t e = 0; e < n; e++) mean[i][e] += round[i][e] / N_ROUNDS;
    }
  }
  return true;
}

/* The number nearest to x + by, if it is at least as far away; otherwise a farther one. */
static double moved(ir_dtype t, double x, double by) {
  for (double step = by;; step *= 1.5) {
    char memory[8];
    double y;
    if (ir_dtype_is_float(t)) {
      ir_element_set_f64(t, memory, x + step);
      y = ir_element_as_f64(t, memory);
    } else y = x + ceil(step);
    if (!isfinite(y) || fabs(y - x) >= by) return y;
  }
}

static void store(const ir_array *a, int64_t i, double x) {
  void *p = (char *)a->data + (size_t)i * ir_dtype_size_bytes(a->dtype);
  if (ir_dtype_is_float(a->dtype)) ir_element_set_f64(a->dtype, p, x);
  else ir_element_set_i64(a->dtype, p, (int64_t)x);
}

static double value_at(const ir_array *a, int64_t i) {
  const void *p = (char *)a->data + (size_t)i * ir_dtype_size_bytes(a->dtype);
  return ir_dtype_is_float(a->dtype) ? ir_element_as_f64(a->dtype, p)
                                     : (double)ir_element_as_i64(a->dtype, p);
}

/* The next number, for what nothing rounds. */
static double smallest_step(ir_dtype t, double x) {
  if (!ir_dtype_is_float(t)) return 1;
  double step = fabs(x) * 0x1p-60 + 0x1p-1074;
  char memory[8];
  do {
    step *= 2;
    ir_element_set_f64(t, memory, x + step);
  } while (ir_element_as_f64(t, memory) == x);
  return step;
}

static bool plant(trial *t, gen_random *r) {
  double *squares[KIT_VALUES];
  data_verdict verdicts[KIT_VALUES];
  uint32_t k = gen_below(r, t->s.n_out);
  int64_t n = 0;
  ir_array *a = &t->s.out[k];
  if (!ir_array_count(a, &n) || n == 0 || a->dtype == IR_BOOL) return true;
  int64_t e = gen_below(r, (uint32_t)n);
  if (!deviations(t, squares)) return false;
  double was = value_at(a, e), explained = 3 * sqrt(squares[k][e]);
  bool overflowed = !isfinite(was) && explained == 0, open = !isfinite(explained);
  n_open += open || (!overflowed && (!isfinite(was) || fabs(was) > 0x1p52));
  if (open || (!overflowed && (!isfinite(was) || fabs(was) > 0x1p52))) return true;
  double by = explained > 0 ? 4 * explained : overflowed ? 0 : smallest_step(a->dtype, was);
  double wrong = overflowed ? 1 : moved(a->dtype, value_at(&t->s.expected[k], e), by);
  if (!isfinite(wrong) || (!ir_dtype_is_float(a->dtype) && fabs(wrong) > 100)) return true;
  n_overflowed += overflowed;
  n_planted++;
  n_exact += explained == 0;
  store(a, e, wrong);
  if (!judge(t, 0, verdicts)) return false;
  store(a, e, was);
  if (verdicts[k].n_wrong != 0) return true;
  n_missed++;
  char text[200];
  snprintf(text, sizeof text, "%s: element %lld is %.9g, made %.9g; explained %.3g",
           t->program->outputs[k].name, (long long)e, was, wrong, explained);
  return kit_wrong("missed", text);
}

/* ---- one program ---- */
static bool run(trial *t) {
  ir_func *h = subject_lower(&t->s, false);
  rt_loaded *loaded = NULL;
  if (!h) return false;
  subject_join(&t->s, h);
  rt_plan *plan = subject_plan(&t->s, h, 3, false);
  if (!plan) return false;
  bool good = kit_ok(one_thread->ops->load(one_thread, plan, &loaded), "load");
  good = good && subject_run(&t->s, loaded, NULL);
  if (loaded) one_thread->ops->unload(loaded);
  rt_plan_destroy(plan);
  return good;
}

static status check_all(void *context) {
  trial *t = context;
  data_verdict verdicts[KIT_VALUES];
  gen_random r = {.state = t->seed * 77 + 5};
  if (!subject_open(&t->s, t->program->text) || !bind_program(&t->s, t->program)) return STATUS_OK;
  fill_inputs(t);
  if (!run(t)) return strstr(kit_reason, "lower") ? STATUS_OK : STATUS_CHECK_FAILED;
  if (!judge(t, 0, verdicts)) return STATUS_CHECK_FAILED;
  n_checked++;
  if (!all_right(t, verdicts)) {
    n_alarms++;
    return STATUS_CHECK_FAILED;
  }
  /* What a sample leaves out does not matter to what is in it. */
  if (!judge(t, 1 + (int64_t)(t->seed % 3), verdicts) || !all_right(t, verdicts))
    return STATUS_CHECK_FAILED;
  return plant(t, &r) ? STATUS_OK : STATUS_CHECK_FAILED;
}

static gen_options options_of(uint64_t seed) {
  static const uint32_t dtypes[] = {1u << IR_F32, 1u << IR_F16, 1u << IR_BF16};
  gen_options o = gen_options_default(seed);
  o.streams = true;
  o.max_devices = 0;
  o.dtypes = dtypes[seed % 3] | (seed % 4 ? 0 : 1u << IR_I32);
  o.max_elements = 512;
  o.max_ops = seed % 5 ? 6 : 16;
  return o;
}

static bool try_seed(uint64_t seed, bool print) {
  gen_options options = options_of(seed);
  gen_program *p = gen_create(&options);
  trial t = {.seed = seed, .program = p};
  if (print) fputs(p->text, stdout);
  kit_reason[0] = '\0';
  bool good = p->bad_stream || memory_guard(check_all, &t) == STATUS_OK;
  status_clear();
  if (!good)
    fprintf(stderr, "seed %llu: %s\n%s\n", (unsigned long long)seed, kit_reason,
            print ? "" : p->text);
  subject_close(&t.s);
  gen_destroy(p);
  return good;
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 150}, NULL);
  if (!machines_open(NULL)) return 3;
  for (uint64_t i = 0; command_more(&asked, i); i++) EXPECT(try_seed(asked.first + i, asked.one));
  machines_close();
  printf("%llu programs, %llu false alarms; %llu errors planted (%llu where nothing rounds, "
         "%llu where results overflow), %llu missed; %llu elements open\n",
         (unsigned long long)n_checked, (unsigned long long)n_alarms, (unsigned long long)n_planted,
         (unsigned long long)n_exact, (unsigned long long)n_overflowed,
         (unsigned long long)n_missed, (unsigned long long)n_open);
  return test_finish();
}
