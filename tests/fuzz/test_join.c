/* Random programs, joined into kernels and not: elementwise ones must give the same bits.
 *
 *   test_join [N] [--seed S]
 *
 * Runs N (2000) programs, seeds 0 and on after those that were wrong once. Programs of elementwise operations, makers and what moves elements are
 * compared bit by bit, those with reductions, norms and softmax with the tolerance of their dtypes.
 * The joined program needs no more memory, but for a few numbers, each of which takes 64 bytes;
 * where values may be in outputs before those are written, that is not compared, since a kernel
 * writes all its outputs at once. */
#include <math.h>
#include <stdlib.h>

#include "command.h"
#include "gen.h"
#include "machines.h"
#include "stream_kit.h"
#include "test.h"

typedef struct trial {
  uint64_t seed;
  bool bits;
  const gen_program *program;
  subject s;
  int64_t pool_bytes[2]; /* unjoined, joined */
} trial;

/* Programs that needed more memory joined than unjoined. */
static const uint64_t once_wrong[] = {910010764, 910034813, 910035053, 910040156, 910060157,
                                      910064429, 910089157, 910093841, 910114435, 920014729,
                                      920036872, 920044468, 920061746, 920076916, 920087141,
                                      920096039, 920104697, 920111009};

static uint64_t n_launches[2], n_outputs;

static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed * 2654435761u + 17);
  o.families = GEN_POINTWISE | GEN_VIEW | GEN_CUT | GEN_MAKE;
  if (seed % 2) o.families |= GEN_REDUCE | GEN_MOMENT | GEN_MODEL;
  o.max_ops = 12;
  o.max_devices = 0;
  o.max_elements = 6000;
  o.large = seed % 4 < 2;
  o.schedule = o.streams = seed % 4 == 2;
  o.exact_only = seed % 2 == 1; /* or rounding decides what a comparison gives */
  return o;
}

/* Bits are also those of numbers of all sizes, which kernels treat in several ways. */
static double any_size(gen_random *r, double x) {
  return gen_chance(r, 10) ? 0
                           : ldexp(x, (int)gen_below(r, 60) - 30 + (gen_chance(r, 10) ? 80 : 0));
}

static void fill_inputs(trial *t) {
  bool sizes = t->seed % 8 == 0;
  for (uint32_t k = 0; k < t->s.n_in; k++) {
    const ir_array *a = &t->s.in[k];
    gen_random r = {.state = t->seed ^ ((uint64_t)(k + 1) << 32)};
    bool whole = t->program->inputs[k].fill != GEN_FILL_NORMAL || !ir_dtype_is_float(a->dtype);
    int64_t n;
    if (!ir_array_count(a, &n)) continue;
    for (int64_t i = 0; i < n; i++) {
      double x = whole ? 1 + gen_below(&r, 3) : (double)gen_below(&r, 1u << 20) / (1u << 19) - 1;
      if (sizes && !whole) x = any_size(&r, x);
      ir_element_set_f64(a->dtype, (char *)a->data + (size_t)i * ir_dtype_size_bytes(a->dtype), x);
    }
  }
}

static bool run(trial *t, ir_func *h, int joined) {
  rt_loaded *loaded = NULL;
  rt_plan *plan = subject_plan(&t->s, h, 2, false);
  if (!plan) return false;
  n_launches[joined] += plan->n_tasks;
  t->pool_bytes[joined] = plan->pool_bytes;
  bool good = kit_ok(two_threads->ops->load(two_threads, plan, &loaded), "load") &&
              subject_run(&t->s, loaded, NULL);
  two_threads->ops->unload(loaded);
  rt_plan_destroy(plan);
  return good;
}

static bool compare(const trial *t) {
  const subject *s = &t->s;
  for (uint32_t i = 0; i < s->n_out; i++) {
    n_outputs++;
    ir_dtype least = data_least_dtype(s->func, s->func->outputs.data[i], (arena *)&s->memory);
    bool same = t->bits ? kit_same(&s->out[i], &s->expected[i])
                        : data_compare(&s->out[i], &s->expected[i], least).ok;
    if (!same) return kit_wrong("joined and unjoined differ", t->program->outputs[i].name);
  }
  return true;
}

/* Which memory is in use where is known for the extents that are expected. */
static bool keeps_memory(const trial *t) {
  enum { NUMBERS = 4 * 64, PART = 64 };
  const ir_module *m = t->s.func->module;
  bool known = m->expected.len > 0 || m->scalars.symbols.len == 0;
  int64_t most = t->pool_bytes[0] + t->pool_bytes[0] / PART + NUMBERS;
  if (kit_lends || !known || t->pool_bytes[1] <= most) return true;
  char text[64];
  (void)snprintf(text, sizeof text, "%lld bytes, unjoined %lld", (long long)t->pool_bytes[1],
                 (long long)t->pool_bytes[0]);
  return kit_wrong("joined, it needs more memory", text);
}

static status check_all(void *context) {
  trial *t = context;
  subject *s = &t->s;
  if (!subject_open(s, t->program->text) || !bind_program(s, t->program))
    return STATUS_CHECK_FAILED;
  ir_func *apart = subject_lower(s, false), *joined = apart ? subject_lower(s, false) : NULL;
  if (!joined) /* a limit of streams, which test_streams looks at */
    return strstr(kit_reason, "mixes chunks of different lengths") ? STATUS_OK
                                                                   : STATUS_CHECK_FAILED;
  fill_inputs(t);
  subject_join(s, joined);
  if (!ir_host_verify(joined)) return STATUS_CHECK_FAILED;
  bool good =
      run(t, apart, 0) && subject_keep(s) && run(t, joined, 1) && compare(t) && keeps_memory(t);
  return good ? STATUS_OK : STATUS_CHECK_FAILED;
}

static void try_seed(uint64_t seed) {
  gen_options options = options_of(seed);
  gen_program *p = gen_create(&options);
  trial t = {.seed = seed, .bits = seed % 2 == 0, .program = p};
  kit_reason[0] = '\0';
  kit_lends = seed % 3 == 0;
  if (!EXPECT(p->bad_stream || memory_guard(check_all, &t) == STATUS_OK))
    fprintf(stderr, "seed %llu: %s\n%s\n", (unsigned long long)seed, kit_reason, p->text);
  status_clear();
  subject_close(&t.s);
  gen_destroy(p);
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 2000, .failures = 10}, NULL);
  uint64_t count = asked.count;
  if (!machines_open(NULL)) return 3;
  for (uint64_t k = 0; command_more(&asked, k); k++)
    try_seed(command_seed(&asked, k, once_wrong, sizeof once_wrong / sizeof *once_wrong));
  machines_close();
  printf("%llu programs: %llu launches, joined %llu; %llu outputs\n", (unsigned long long)count,
         (unsigned long long)n_launches[0], (unsigned long long)n_launches[1],
         (unsigned long long)n_outputs);
  if (count >= 1000) EXPECT(n_launches[1] * 5 < n_launches[0] * 4); /* it does join */
  return test_finish();
}
