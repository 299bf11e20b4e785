/* Random programs whose input is wrong in a way that only the run shows: a position, a length or a
 * group that is out of range. The device must refuse it where the reference evaluator does, with
 * the line, and give the same bits for the right input before and after. A donated input that
 * overlaps another one is refused before anything runs.
 *
 *   test_late [N] [--seed S] [--device D]
 *
 * N programs (1,500); --seed S runs that one again; D: cpu, or another device. Programs are for one
 * device, with streams, or for several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "gen.h"
#include "ir/dtype.h"
#include "test.h"
#include "weir/weir.h"

enum { MOST = 64 };

typedef struct trial {
  const gen_program *program;
  weir_fusion *fusion,
      *plain; /* as it is written; without what no output needs, for the reference */
  weir_program *compiled, *truth; /* of these */
  weir_array *in[MOST], *first[MOST], *again[MOST];
} trial;

static const char *device = "cpu";
static uint64_t wrong_inputs, refused, overlaps;

static bool told(const char *what, const char *detail) {
  fprintf(stderr, "%s: %s\n", what, detail);
  return false;
}

/* ---- inputs ---- */
static void set_element(const weir_array *a, ir_dtype t, int64_t at, double x) {
  char *data = weir_array_tensor(a)->data;
  ir_element_set_f64(t, data + at * (int64_t)ir_dtype_size_bytes(t), x);
}

static int64_t count(const gen_value *v) {
  int64_t n = 1;
  for (uint32_t i = 0; i < v->rank; i++) n *= v->extents[i];
  return n;
}

static double draw(gen_random *r, const gen_value *v) {
  if (v->fill == GEN_FILL_INDEX) return gen_below(r, (uint32_t)v->index_bound);
  if (v->fill == GEN_FILL_POSITIVE) return 1 + gen_below(r, 4);
  double x = (double)gen_below(r, 7) - 3;
  return v->dtype == IR_U8 && x < 0 ? -x : x;
}

static bool make_arrays(trial *t, uint64_t seed) {
  const gen_program *p = t->program;
  gen_random r = {seed};
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const gen_value *v = &p->inputs[i];
    if (weir_array_create((weir_dtype)v->dtype, v->extents, v->rank, NULL, &t->in[i])) return false;
    for (int64_t k = 0; k < count(v); k++) set_element(t->in[i], v->dtype, k, draw(&r, v));
  }
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    const gen_value *v = &p->outputs[i];
    if (weir_array_create((weir_dtype)v->dtype, v->extents, v->rank, NULL, &t->first[i]))
      return false;
    if (weir_array_create((weir_dtype)v->dtype, v->extents, v->rank, NULL, &t->again[i]))
      return false;
  }
  return true;
}

static weir_status run(const trial *t, const weir_program *p, weir_array *const *to) {
  const weir_dl_tensor *in[MOST], *out[MOST];
  for (uint32_t i = 0; i < t->program->n_inputs; i++) in[i] = weir_array_tensor(t->in[i]);
  for (uint32_t i = 0; i < t->program->n_outputs; i++) out[i] = weir_array_tensor(to[i]);
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .outputs = out, .seed = 7};
  args.n_inputs = t->program->n_inputs;
  args.n_outputs = t->program->n_outputs;
  return weir_run(p, &args);
}

static bool same_bits(const trial *t) {
  for (uint32_t i = 0; i < t->program->n_outputs; i++) {
    const gen_value *v = &t->program->outputs[i];
    size_t bytes = (size_t)count(v) * ir_dtype_size_bytes(v->dtype);
    const void *a = weir_array_tensor(t->first[i])->data, *b = weir_array_tensor(t->again[i])->data;
    if (bytes && memcmp(a, b, bytes) != 0) return told("other bits after a refused run", v->name);
  }
  return true;
}

/* ---- one element out of range ---- */
static bool names_line(const char *message) {
  return strstr(message, "program.weir:") &&
         (strstr(message, "index") || strstr(message, "position") || strstr(message, "length"));
}

/* What the reference evaluator makes of it is right. */
static bool check_wrong(trial *t) {
  char why[512];
  weir_status want = run(t, t->truth, t->again);
  snprintf(why, sizeof why, "%s", want ? weir_error() : "nothing");
  weir_status got = run(t, t->compiled, t->again);
  wrong_inputs++;
  refused += got != WEIR_OK;
  if (got != want) {
    fprintf(stderr, "the reference says: %s\n", why);
    return told("the device says", got ? weir_error() : "nothing");
  }
  return got == WEIR_OK || names_line(weir_error()) || told("no line or no cause", weir_error());
}

static bool check_index(trial *t, uint32_t input, gen_random *r) {
  const gen_value *v = &t->program->inputs[input];
  int64_t at = gen_below(r, (uint32_t)count(v));
  double old = ir_element_as_f64(v->dtype, (char *)weir_array_tensor(t->in[input])->data +
                                               at * (int64_t)ir_dtype_size_bytes(v->dtype));
  double bad = v->dtype != IR_U8 && gen_chance(r, 50) ? -1 : 100.0 + gen_below(r, 20);
  set_element(t->in[input], v->dtype, at, bad);
  bool good = check_wrong(t);
  set_element(t->in[input], v->dtype, at, old);
  if (!good) return false;
  if (run(t, t->compiled, t->again)) return told("after a refused run", weir_error());
  return same_bits(t);
}

/* ---- donated memory that is used twice ---- */
static bool same_type(const gen_value *a, const gen_value *b) {
  return a->dtype == b->dtype && a->rank == b->rank &&
         (!a->rank || !memcmp(a->extents, b->extents, a->rank * sizeof *a->extents));
}

static bool check_overlap(trial *t, uint32_t output, uint32_t input, uint32_t other) {
  const weir_dl_tensor *in[MOST], *out[MOST];
  int64_t donated[MOST];
  for (uint32_t i = 0; i < t->program->n_inputs; i++) in[i] = weir_array_tensor(t->in[i]);
  for (uint32_t i = 0; i < t->program->n_outputs; i++) {
    out[i] = weir_array_tensor(t->again[i]);
    donated[i] = i == output ? (int64_t)input : -1;
  }
  in[input] = in[other] = out[output];
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .outputs = out, .seed = 7};
  args.n_inputs = t->program->n_inputs;
  args.n_outputs = t->program->n_outputs;
  args.donated = donated;
  overlaps++;
  if (weir_run(t->compiled, &args) != WEIR_BAD_USAGE) return told("not refused", "an overlap");
  return strstr(weir_error(), "overlaps") || told("another cause", weir_error());
}

static bool check_donated(trial *t) {
  const gen_program *p = t->program;
  for (uint32_t o = 0; o < p->n_outputs; o++)
    for (uint32_t i = 0; i < p->n_inputs; i++)
      for (uint32_t k = 0; k < p->n_inputs; k++) {
        if (i == k || count(&p->inputs[i]) == 0 || !same_type(&p->outputs[o], &p->inputs[i]))
          continue;
        if (same_type(&p->inputs[i], &p->inputs[k])) return check_overlap(t, o, i, k);
      }
  return true;
}

/* ---- one seed ---- */
static bool check_all(trial *t, uint64_t seed) {
  const gen_program *p = t->program;
  gen_random r = {seed + 1};
  if (!make_arrays(t, seed)) return told("array", weir_error());
  if (run(t, t->compiled, t->first)) return true; /* extents that its schedule does not take */
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const gen_value *v = &p->inputs[i];
    if (v->fill == GEN_FILL_INDEX && count(v) > 0 && !check_index(t, i, &r)) return false;
  }
  return check_donated(t);
}

static weir_module *parse(const gen_program *p, const char *passes, weir_fusion **f) {
  weir_module *m = NULL;
  weir_pass_args args = {.struct_size = sizeof args, .passes = passes};
  bool good = !weir_module_parse("program.weir", p->text, strlen(p->text), NULL, &m) &&
              (!passes || !weir_module_run_passes(m, &args, NULL)) && !weir_module_find(m, NULL, f);
  if (good) return m;
  weir_module_destroy(m);
  return NULL;
}

static weir_program *compile(weir_fusion *f, const char *on) {
  weir_options *o = NULL;
  weir_program *p = NULL;
  if (weir_options_create(&o) || weir_options_set(o, "device", on) || weir_compile(f, o, NULL, &p))
    p = NULL;
  weir_options_destroy(o);
  return p;
}

static void try_seed(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  o.streams = seed % 3 == 1;
  o.devices = seed % 3 == 2;
  o.families = GEN_POINTWISE | GEN_INDEX | GEN_MATMUL | GEN_REDUCE | GEN_VIEW;
  o.max_ops = 6;
  gen_program *p = gen_create(&o);
  trial t = {.program = p};
  weir_module *m = parse(p, NULL, &t.fusion), *plain = parse(p, "strip-schedule,dce", &t.plain);
  bool parsed = m && plain, good = parsed || p->bad_stream || told("parse", weir_error());
  t.truth = parsed ? compile(t.plain, "ref") : NULL;
  t.compiled = parsed ? compile(t.fusion, device) : NULL; /* NULL: a schedule that is refused */
  if (parsed && t.compiled) good = check_all(&t, seed);
  test_passed += good;
  test_failed += !good;
  if (!good)
    fprintf(stderr, "%s\nreplay: test_late --seed %llu\n", p->text, (unsigned long long)seed);
  for (uint32_t i = 0; i < MOST; i++) {
    weir_array_destroy(t.in[i]);
    weir_array_destroy(t.first[i]);
    weir_array_destroy(t.again[i]);
  }
  weir_program_destroy(t.compiled);
  weir_program_destroy(t.truth);
  weir_module_destroy(m);
  weir_module_destroy(plain);
  gen_destroy(p);
}

static int own_option(command *c, char **argv) {
  (void)c;
  if (strcmp(argv[0], "--device") == 0 && argv[1]) return device = argv[1], 2;
  return 0;
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 1500, .failures = 10}, own_option);
  uint64_t n = asked.count;
  for (uint64_t k = 0; command_more(&asked, k); k++) try_seed(asked.first + k);
  printf("%llu programs on %s: %llu wrong inputs, %llu refused; %llu overlaps refused\n",
         (unsigned long long)n, device, (unsigned long long)wrong_inputs,
         (unsigned long long)refused, (unsigned long long)overlaps);
  if (n > 100) EXPECT(refused > n / 20 && overlaps > 0);
  return test_finish();
}
