/* Values of random programs, and which of their results can be compared. */
#ifndef WEIR_TESTS_FUZZ_JUDGE_H
#define WEIR_TESTS_FUZZ_JUDGE_H

#include <math.h>

#include "gen.h"
#include "session/judge.h"
#include "stream_kit.h"

typedef struct judge {
  uint64_t seed;
  bool exact; /* only bit-equal results are right */
  const gen_program *program;
  subject *s;
  bool *comparable; /* by output: its reference is not at the mercy of rounding */
} judge;

static _Atomic uint64_t judge_outputs, judge_compared;

/* ---- values ---- */
static double judge_value(gen_random *r, const gen_value *v) {
  switch (v->fill) {
  case GEN_FILL_INDEX: return gen_below(r, (uint32_t)v->index_bound);
  case GEN_FILL_INTEGER: return (double)gen_below(r, 7) - 3;
  case GEN_FILL_POSITIVE: return 0.25 + gen_below(r, 64) / 16.0;
  case GEN_FILL_NORMAL: break;
  }
  if (!ir_dtype_is_float(v->dtype)) return (double)gen_below(r, 9) - 4;
  return ((double)gen_below(r, 1u << 20) / (1u << 19) - 1) * 2;
}

static void judge_fill_inputs(const judge *j) {
  for (uint32_t k = 0; k < j->s->n_in; k++) {
    const gen_value *v = &j->program->inputs[k];
    const ir_array *a = &j->s->in[k];
    gen_random r = {.state = j->seed ^ ((uint64_t)(k + 1) << 32)};
    int64_t n;
    if (!ir_array_count(a, &n)) continue;
    for (int64_t i = 0; i < n; i++) {
      double x = judge_value(&r, v);
      if (v->dtype == IR_U8) x = fabs(x);
      ir_element_set_f64(v->dtype, (char *)a->data + (size_t)i * ir_dtype_size_bytes(v->dtype), x);
    }
  }
}

/* ---- comparing ---- */
/* The inputs, each float moved by about an ulp of f32 (or of its own dtype, if that is coarser). */
static void judge_nudge(const judge *j, ir_array *in) {
  gen_random r = {.state = ~j->seed};
  for (uint32_t k = 0; k < j->s->n_in; k++) {
    in[k] = j->s->in[k];
    int64_t bytes, n;
    size_t size = ir_dtype_size_bytes(in[k].dtype);
    if (!ir_dtype_is_float(in[k].dtype) || !ir_array_size_bytes(&in[k], &bytes)) continue;
    if (!ir_array_count(&in[k], &n)) continue;
    in[k].data = arena_alloc(&j->s->memory, (size_t)bytes + 1);
    for (int64_t i = 0; i < n; i++) {
      double x = ir_element_as_f64(in[k].dtype, (char *)j->s->in[k].data + (size_t)i * size);
      double by = (gen_chance(&r, 50) ? 1 : -1) * 0x1p-23;
      ir_element_set_f64(in[k].dtype, (char *)in[k].data + (size_t)i * size, x * (1 + by));
    }
  }
}

static data_comparison judge_output(const judge *j, const ir_array *got, uint32_t i) {
  const ir_func *f = j->s->func;
  ir_dtype least = data_least_dtype(f, f->outputs.data[i], &j->s->memory);
  return data_compare(got, &j->s->expected[i], least);
}

/* Rounding inside a program may be amplified without bound (a comparison, a difference of large
 * numbers, a cast to an integer). An output is compared only if accumulating differently and nudging
 * the inputs moves its reference by less than a quarter of the tolerance. */
static bool judge_find_comparable(const judge *j) {
  ir_array in[KIT_VALUES], margin[KIT_VALUES];
  judge_nudge(j, in);
  for (uint32_t i = 0; i < j->s->n_out; i++) {
    j->comparable[i] = true;
    if (!kit_array(j->s, j->s->func->outputs.data[i], &margin[i])) return false;
  }
  for (int native = 0; native < 2 && !j->exact; native++) {
    if (!subject_reference(j->s, native ? j->s->in : in, margin, native)) return false;
    for (uint32_t i = 0; i < j->s->n_out; i++) {
      data_comparison c = judge_output(j, &margin[i], i);
      j->comparable[i] &= c.max_rel <= c.tolerance / 4;
    }
  }
  for (uint32_t i = 0; i < j->s->n_out; i++) judge_compared += j->comparable[i];
  judge_outputs += j->s->n_out;
  return true;
}

/* By how the results of the program spread: slower, but right where a tolerance is too strict. */
static bool judge_spread(const judge *j, const subject *s, data_verdict *verdicts) {
  ref_options options = {.seed = KIT_SEED, .threads = 1, .memory = &memory_default};
  session_judgement by = {.verdicts = verdicts};
  return kit_ok(session_judge(&j->s->env, j->s->in, s->out, &options, &by), "judging");
}

/* The outputs of `s`, which ran `how`. */
static bool judge_compare(const judge *j, const subject *s, const char *how) {
  for (uint32_t i = 0; i < s->n_out; i++) {
    data_comparison c = judge_output(j, &s->out[i], i);
    data_verdict verdicts[KIT_VALUES];
    char text[256];
    if (j->exact ? kit_same(&s->out[i], &j->s->expected[i]) : c.ok || !j->comparable[i]) continue;
    if (!j->exact && !judge_spread(j, s, verdicts)) return false;
    if (!j->exact && verdicts[i].n_wrong == 0) continue;
    (void)snprintf(text, sizeof text, "%s: %s differs by %g of %g allowed", how,
                   j->program->outputs[i].name, c.max_rel, c.tolerance);
    return kit_wrong(text, "");
  }
  return true;
}

#endif
