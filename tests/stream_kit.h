/* From a program's text to plans and runs: what the tests of streams share.
 *
 *   subject s;
 *   if (subject_open(&s, text)) {       parses, applies the schedule
 *     subject_bind(&s, shapes);         extents, then inputs and outputs in memory of its own
 *     h = subject_lower(&s, plain);     the verified host program
 *     plan = subject_plan(&s, h, 4, false);
 *     …
 *   }
 *   subject_close(&s);
 *
 * All of it runs inside a memory_guard(). A step that fails leaves its reason in kit_reason. */
#ifndef WEIR_TESTS_STREAM_KIT_H
#define WEIR_TESTS_STREAM_KIT_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bind/bind.h"
#include "check/check.h"
#include "data/compare.h"
#include "data/fill.h"
#include "device/cpu/adversary.h"
#include "ir/bind.h"
#include "join/join.h"
#include "lower_kit.h"
#include "ref/ref.h"
#include "runtime/device.h"
#include "schedule/schedule.h"
#include "text/text.h"

enum { KIT_VALUES = 64, KIT_SEED = 7 }; /* inputs and outputs at most; the seed of uniform() */

static _Thread_local char kit_reason[16384];

static inline bool kit_wrong(const char *what, const char *detail) {
  snprintf(kit_reason, sizeof kit_reason, "%s%s%s", what, detail[0] ? ": " : "", detail);
  return false;
}

static inline bool kit_ok(status st, const char *what) {
  if (st == STATUS_OK) return true;
  kit_wrong(what, status_message());
  status_clear();
  return false;
}

/* A program, its values, and what its definition gives. */
typedef struct subject {
  arena memory;
  ir_module module;
  ir_func *func; /* the fusion, or a host program without one */
  ir_env env;
  ir_array in[KIT_VALUES], out[KIT_VALUES], expected[KIT_VALUES];
  uint32_t n_in, n_out;
} subject;

/* The module's diagnostics as the reason. */
static inline bool kit_refused(subject *s, const char *what) {
  strbuf text;
  strbuf_init(&text, &s->memory);
  diags_render(&s->module.errors, &text);
  status_clear();
  return kit_wrong(what, text.len ? text.data : "without a diagnostic");
}

static inline void subject_close(subject *s) {
  ir_module_destroy(&s->module);
  arena_destroy(&s->memory);
}

/* The last function of the text is the one that counts; subject_close() in any case. */
static inline bool subject_parse(subject *s, const char *text) {
  memset(s, 0, sizeof *s);
  arena_init(&s->memory, &memory_default);
  ir_module_init(&s->module, &memory_default);
  if (text_parse(&s->module, "program.weir", text, strlen(text)) != STATUS_OK)
    return kit_refused(s, "parse");
  s->func = s->module.funcs.data[s->module.funcs.len - 1];
  return true;
}

static inline bool subject_open(subject *s, const char *text) {
  if (!subject_parse(s, text)) return false;
  return schedule_apply(s->func) ? true : kit_refused(s, "apply the schedule");
}

/* ---- values ---- */
static inline bool kit_array(subject *s, ir_tensor t, ir_array *a) {
  int64_t bytes;
  *a = (ir_array){.dtype = ir_tensor_at(s->func, t)->dtype};
  if (!ir_env_shape(&s->env, t, a->extents, &a->rank)) return kit_wrong("shape", "");
  ir_array_dense(a);
  if (!ir_array_size_bytes(a, &bytes)) return kit_wrong("too large", "");
  a->data = arena_alloc(&s->memory, (size_t)bytes + 1);
  return true;
}

/* Inputs and outputs for the extents bound in s->env. */
static inline bool subject_values(subject *s) {
  const ir_func *f = s->func;
  if (!ir_bind_complete(&s->env) || !ir_bind_check(&s->env)) return kit_refused(s, "bind");
  s->n_in = f->inputs.len;
  s->n_out = f->outputs.len;
  for (uint32_t i = 0; i < s->n_in; i++)
    if (!kit_array(s, f->inputs.data[i], &s->in[i])) return false;
  for (uint32_t i = 0; i < s->n_out; i++)
    if (!kit_array(s, f->outputs.data[i], &s->out[i]) ||
        !kit_array(s, f->outputs.data[i], &s->expected[i]))
      return false;
  return true;
}

static inline bool subject_reference(subject *s, const ir_array *in, const ir_array *out,
                                     bool native) {
  ref_options options = {.native_accumulate = native, .seed = KIT_SEED, .memory = &memory_default};
  return kit_ok(ref_eval(&s->env, in, out, &options), "the reference");
}

/* What was computed becomes what is expected of the next run. */
static inline bool subject_keep(subject *s) {
  for (uint32_t i = 0; i < s->n_out; i++) {
    int64_t bytes;
    if (!ir_array_size_bytes(&s->out[i], &bytes)) return false;
    memcpy(s->expected[i].data, s->out[i].data, (size_t)bytes);
  }
  return true;
}

/* ---- host programs and plans ---- */
/* Operations that one kernel can compute become one. */
static inline void subject_join(subject *s, ir_func *h) {
  bool changed;
  join_kernels(h, &s->memory, &changed);
}

static inline ir_func *subject_lower(subject *s, bool plain) {
  host_options options = {.pipeline = HOST_AUTO};
  ir_func *h = NULL;
  status st = plain ? kit_lower_plain(s->func, &options, &h) : kit_lower(s->func, &options, &h);
  if (st != STATUS_OK) {
    kit_refused(s, "lower");
    return NULL;
  }
  if (ir_host_verify(h)) return h;
  kit_refused(s, "the lowered program does not verify");
  return NULL;
}

static bool kit_lends = true; /* outputs may hold other values first */

/* Loops of so many repetitions and more are kept; 0: none are. */
static inline rt_plan *subject_plan_loops(subject *s, ir_func *h, uint32_t streams, bool keep_waits,
                                          uint32_t loops, bool lends) {
  bind_options options = {.streams = streams, .seed = KIT_SEED, .keep_waits = keep_waits};
  options.loops = loops;
  options.lends = lends;
  options.folds_in_place = true;
  rt_plan *plan = NULL;
  ir_env env;
  ir_env_init(&env, h, &s->memory);
  for (uint32_t i = 0; i < s->n_in; i++)
    if (!ir_bind_shape(&env, h->inputs.data[i], s->in[i].extents, s->in[i].rank, "the test")) {
      kit_refused(s, "bind");
      return NULL;
    }
  if (bind_plan(&env, &options, &memory_default, &plan) == STATUS_OK) return plan;
  kit_refused(s, status_message());
  return NULL;
}

static inline rt_plan *subject_plan(subject *s, ir_func *h, uint32_t streams, bool keep_waits) {
  return subject_plan_loops(s, h, streams, keep_waits, 0, kit_lends);
}

static inline const char *subject_print(subject *s, const ir_func *h) {
  strbuf text;
  strbuf_init(&text, &s->memory);
  text_print_host(h, &text);
  return text.data;
}

/* ---- running ---- */
static inline rt_device *kit_device(uint32_t threads, bool adversarial) {
  rt_device_options options = {.threads = threads, .adversarial = adversarial};
  rt_device *device = NULL;
  return kit_ok(rt_device_cpu.open(&options, &memory_default, &device), "open") ? device : NULL;
}

/* A device of GPUs; NULL: there is none, and kit_reason says why. */
static inline rt_device *kit_gpu(rt_device_options options) {
  rt_device *d = NULL;
  return kit_ok(rt_device_cuda.open(&options, &memory_default, &d), "open the GPU") ? d : NULL;
}

/* Runs into s->out, which is filled with something else first. */
static inline bool subject_run(subject *s, rt_loaded *loaded, rt_span *spans) {
  void *in[KIT_VALUES], *out[KIT_VALUES];
  for (uint32_t i = 0; i < s->n_in; i++) in[i] = s->in[i].data;
  for (uint32_t i = 0; i < s->n_out; i++) {
    int64_t bytes;
    out[i] = s->out[i].data;
    if (ir_array_size_bytes(&s->out[i], &bytes)) memset(out[i], 0x5b, (size_t)bytes);
  }
  if (!kit_ok(rt_run(loaded, in, out, spans, NULL), "run")) return false;
  const ir_func *h = loaded->plan->host;
  for (uint32_t i = 0; i < h->outputs.len; i++)
    for (uint32_t k = 0; k < h->inputs.len; k++)
      if (IR_SAME(h->outputs.data[i], h->inputs.data[k])) ir_array_copy(&s->out[i], &s->in[k]);
  return true;
}

/* Equal in every bit, but that NaNs are equal to one another and so are both zeros. */
static inline bool kit_same(const ir_array *a, const ir_array *b) {
  int64_t n;
  size_t size = ir_dtype_size_bytes(a->dtype);
  if (!ir_array_count(a, &n)) return false;
  for (int64_t i = 0; i < n; i++) {
    const char *p = (const char *)a->data + (size_t)i * size;
    const char *q = (const char *)b->data + (size_t)i * size;
    if (memcmp(p, q, size) == 0) continue;
    if (!ir_dtype_is_float(a->dtype)) return false;
    double x = ir_element_as_f64(a->dtype, p), y = ir_element_as_f64(a->dtype, q);
    if (!(isnan(x) && isnan(y)) && x != y) return false;
  }
  return true;
}

static inline bool subject_same(const subject *s) {
  for (uint32_t i = 0; i < s->n_out; i++)
    if (!kit_same(&s->out[i], &s->expected[i]))
      return kit_wrong("differs", ir_tensor_name(s->func, s->func->outputs.data[i]));
  return true;
}

/* ---- the checker ---- */
/* The plan passes; what the checker says of it is the reason if not. */
static inline bool subject_passes(subject *s, const rt_plan *plan, uint32_t *redundant) {
  check_report report;
  if (!kit_ok(check_plan(plan, NULL, &report), "check")) return false;
  bool passes = report.n_found == 0;
  if (redundant) *redundant = report.n_redundant;
  if (!passes) {
    strbuf text;
    strbuf_init(&text, &s->memory);
    check_report_text(&report, &text);
    kit_wrong("the checker finds", text.data);
  }
  check_report_destroy(&report);
  return passes;
}

#endif
