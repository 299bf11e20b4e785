#include "session/judge.h"

#include <string.h>

/* The spread of few evaluations may be too small by chance. So a difference that seems too large counts only if it
 * is too large for the spread of more evaluations, up to this number. */
enum { MOST_LANES = 4 * REF_LANES };

typedef struct trial {
  const ir_env *env;
  const ir_array *inputs, *values;
  const ref_options *options;
  const session_judgement *judgement;
  uint32_t n;
  ir_array *references; /* one per output */
  double **squares;     /* per output: the mean over the rounds so far */
  double **round;       /* and that of the last round */
  ref_options sampled;  /* `options` with the rows that are compared */
  arena scratch;
} trial;

static const allocator *memory_of(const trial *t) { return t->options->memory; }

static int64_t count(const ir_array *a) {
  int64_t n = 0;
  check(ir_array_count(a, &n));
  return n;
}

static void *zeroed(const trial *t, size_t bytes) {
  void *p = memory_alloc(memory_of(t), bytes + 1);
  if (p) memset(p, 0, bytes);
  return p;
}

static status make(trial *t) {
  t->references = zeroed(t, t->n * sizeof *t->references);
  t->squares = zeroed(t, t->n * sizeof *t->squares);
  t->round = zeroed(t, t->n * sizeof *t->round);
  if (!t->references || !t->squares || !t->round) return STATUS_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < t->n; i++) {
    t->references[i] = t->values[i];
    t->references[i].data = NULL;
    TRY(ir_array_alloc(&t->references[i], memory_of(t)));
    if (t->judgement->rtol > 0) continue;
    size_t bytes = (size_t)count(&t->values[i]) * sizeof(double);
    t->squares[i] = zeroed(t, bytes);
    t->round[i] = zeroed(t, bytes);
    if (!t->squares[i] || !t->round[i]) return STATUS_OUT_OF_MEMORY;
  }
  return STATUS_OK;
}

static void drop(trial *t) {
  for (uint32_t i = 0; i < t->n; i++) {
    if (t->references) memory_free(memory_of(t), t->references[i].data);
    if (t->squares) memory_free(memory_of(t), t->squares[i]);
    if (t->round) memory_free(memory_of(t), t->round[i]);
  }
  memory_free(memory_of(t), t->references);
  memory_free(memory_of(t), t->squares);
  memory_free(memory_of(t), t->round);
}

/* Adds a round to the mean. A value may be infinite. */
static void add_round(const trial *t, int round) {
  for (uint32_t i = 0; i < t->n; i++)
    for (int64_t k = 0; k < count(&t->values[i]); k++)
      t->squares[i][k] = (t->squares[i][k] * round + t->round[i][k]) / (round + 1);
}

static bool decide(const trial *t) {
  bool ok = true;
  for (uint32_t i = 0; i < t->n; i++) {
    const uint8_t *rows =
        t->options->rows ? t->options->rows[t->env->func->outputs.data[i].id] : NULL;
    data_verdict *to = &t->judgement->verdicts[i];
    *to = data_judge(&t->values[i], &t->references[i], t->squares[i], t->judgement->rtol, rows);
    ok = ok && to->n_wrong == 0;
  }
  return ok;
}

/* Is an element so far away that one or two lanes more or less would decide? */
static bool is_close(const trial *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (t->judgement->verdicts[i].worst > 0.5) return true;
  return false;
}

/* Most results differ by less than the rounding of the last operation explains: then nothing else is evaluated. */
static status try_own(const trial *t, bool *right) {
  if (!ref_outputs_round(t->env)) return STATUS_OK;
  TRY(ref_own_spread(t->env, t->inputs, t->references, t->squares, t->options));
  *right = decide(t);
  for (uint32_t i = 0; !*right && i < t->n; i++)
    memset(t->squares[i], 0, (size_t)count(&t->values[i]) * sizeof(double));
  return STATUS_OK;
}

static status try_rounds(const trial *t) {
  if (t->judgement->rtol > 0) {
    TRY(ref_eval(t->env, t->inputs, t->references, t->options));
    (void)decide(t);
    return STATUS_OK;
  }
  bool right = false, doubts = ref_decides(t->env);
  TRY(try_own(t, &right));
  int rounds = right ? 0 : MOST_LANES / (int)ref_lanes(t->env);
  for (int round = 0; round < rounds; round++) {
    TRY(ref_spread(t->env, t->inputs, t->references, t->round, (uint64_t)round, t->options));
    add_round(t, round);
    if (decide(t) && !(doubts && is_close(t))) break;
  }
  return STATUS_OK;
}

static status choose_rows(void *context) {
  trial *t = context;
  t->sampled = *t->options;
  t->sampled.rows = ref_sample(t->env, t->judgement->rows, t->options->seed, &t->scratch);
  t->options = &t->sampled;
  return STATUS_OK;
}

status session_judge(const ir_env *env, const ir_array *inputs, const ir_array *values,
                     const ref_options *options, const session_judgement *j) {
  trial t = {.env = env,
             .inputs = inputs,
             .values = values,
             .options = options,
             .judgement = j,
             .n = env->func->outputs.len};
  arena_init(&t.scratch, options->memory);
  status st = make(&t);
  if (st == STATUS_OK && j->rows) st = memory_guard(choose_rows, &t);
  if (st == STATUS_OK) st = try_rounds(&t);
  drop(&t);
  arena_destroy(&t.scratch);
  return st;
}
