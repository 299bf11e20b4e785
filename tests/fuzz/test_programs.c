/* Random programs: parsed, verified, printed, evaluated, and all ways to the result compared.
 *
 *   test_programs [N] [--seed S] [--seconds T] [--failures F]
 *
 * Runs seeds 0 … N-1 (3000) for at most T seconds (60) or up to F failures (10). A failure prints
 * its seed and the program; --seed S runs that one again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "gen.h"
#include "ir/op.h"
#include "ref/ref.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"
#include "weir/weir.h"

enum { MAX_VALUES = 64 };

/* The reference evaluator executes: results are compared bit by bit, whatever the schedule. Devices
 * are compared with it in test_streams. */
static const weir_options *reference(void) {
  static weir_options *options;
  if (!options && weir_options_create(&options) == WEIR_OK) {
    (void)weir_options_set(options, "device", "ref");
  }
  return options;
}

/* One program on its way through the checks. */
typedef struct trial {
  const gen_program *program;
  weir_module *module;
  weir_fusion *fusion;
  char *printed;
  weir_array *inputs[MAX_VALUES];
  weir_array *expected[MAX_VALUES]; /* outputs of the definition, as parsed */
  const char *folder;
  bool as_definition; /* evaluated as the oracle is, not as a program on `ref` */
} trial;

/* ---- failures ---- */
static char reason[8192];

static bool wrong(const char *what, const char *detail) {
  snprintf(reason, sizeof reason, "%s%s%s", what, detail[0] ? ": " : "", detail);
  return false;
}

static bool ok(weir_status s, const char *what) {
  return s == WEIR_OK ? true : wrong(what, weir_error());
}

/* ---- arrays ---- */
static int64_t count_of(const weir_dl_tensor *t) {
  int64_t n = 1;
  for (int32_t i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

static void destroy_arrays(weir_array **arrays, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    weir_array_destroy(arrays[i]);
    arrays[i] = NULL;
  }
}

static weir_dtype public_dtype(ir_dtype t) { return (weir_dtype)t; }

static double random_value(gen_random *r, const gen_value *v, bool is_float) {
  switch (v->fill) {
  case GEN_FILL_INDEX: return gen_below(r, (uint32_t)v->index_bound);
  case GEN_FILL_INTEGER: return (double)gen_below(r, 7) - 3;
  case GEN_FILL_POSITIVE: return 0.25 + gen_below(r, 64) / 16.0;
  case GEN_FILL_NORMAL: break;
  }
  if (!is_float) return (double)gen_below(r, 9) - 4;
  double sum = 0; /* near enough to a normal distribution */
  for (int i = 0; i < 6; i++) sum += (double)gen_below(r, 4096) / 4096 - 0.5;
  return 1.4 * sum;
}

static bool make_input(const gen_value *v, uint64_t seed, weir_array **result) {
  if (!ok(weir_array_create(public_dtype(v->dtype), v->extents, v->rank, NULL, result), "array"))
    return false;
  const weir_dl_tensor *t = weir_array_tensor(*result);
  size_t size = ir_dtype_size_bytes(v->dtype);
  gen_random r = {.state = seed ^ ((uint64_t)v->name[1] << 32)};
  for (int64_t i = 0, n = count_of(t); i < n; i++) {
    char *p = (char *)t->data + (size_t)i * size;
    double x = random_value(&r, v, ir_dtype_is_float(v->dtype));
    if (v->dtype == IR_U8) x = fabs(x);
    ir_element_set_f64(v->dtype, p, x);
  }
  return true;
}

/* Equal bit for bit, except that all NaNs are one. */
static bool same_array(const weir_array *a, const weir_array *b) {
  const weir_dl_tensor *x = weir_array_tensor(a), *y = weir_array_tensor(b);
  ir_dtype dtype = (ir_dtype)weir_array_dtype(a);
  size_t size = ir_dtype_size_bytes(dtype);
  if (weir_array_dtype(a) != weir_array_dtype(b) || x->ndim != y->ndim) return false;
  for (int32_t i = 0; i < x->ndim; i++)
    if (x->shape[i] != y->shape[i]) return false;
  for (int64_t i = 0, n = count_of(x); i < n; i++) {
    const char *p = (const char *)x->data + (size_t)i * size;
    const char *q = (const char *)y->data + (size_t)i * size;
    if (memcmp(p, q, size) == 0) continue;
    bool both_nan = ir_dtype_is_float(dtype) && isnan(ir_element_as_f64(dtype, p)) &&
                    isnan(ir_element_as_f64(dtype, q));
    if (!both_nan) return false;
  }
  return true;
}

static bool same_outputs(const trial *t, weir_array *const *got, const char *what) {
  for (uint32_t i = 0; i < t->program->n_outputs; i++)
    if (!same_array(got[i], t->expected[i])) return wrong(what, t->program->outputs[i].name);
  return true;
}

/* ---- running ---- */
static bool make_outputs(const gen_program *p, weir_array **outputs) {
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    const gen_value *v = &p->outputs[i];
    weir_dtype dtype = public_dtype(v->dtype);
    if (!ok(weir_array_create(dtype, v->extents, v->rank, NULL, &outputs[i]), "output"))
      return false;
  }
  return true;
}

static bool run(const trial *t, weir_fusion *f, weir_array *const *inputs, weir_array **outputs) {
  const gen_program *p = t->program;
  const weir_dl_tensor *in[MAX_VALUES], *out[MAX_VALUES];
  weir_program *program = NULL;
  if (!make_outputs(p, outputs)) return false;
  for (uint32_t i = 0; i < p->n_inputs; i++) in[i] = weir_array_tensor(inputs[i]);
  for (uint32_t i = 0; i < p->n_outputs; i++) out[i] = weir_array_tensor(outputs[i]);
  if (!ok(weir_compile(f, reference(), NULL, &program), "compile")) return false;
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = p->n_inputs};
  args.outputs = out;
  args.n_outputs = p->n_outputs;
  args.seed = 7;
  args.as_definition = t->as_definition;
  bool good = ok(weir_run(program, &args), "run");
  weir_program_destroy(program);
  return good;
}

/* ---- the checks, in order ---- */
static bool check_text(trial *t) {
  const char *text = t->program->text;
  weir_module *again = NULL;
  char *second = NULL;
  bool good = ok(weir_module_parse("random.weir", text, strlen(text), NULL, &t->module), "parse") &&
              ok(weir_module_verify(t->module), "verify") &&
              ok(weir_module_print(t->module, &t->printed), "print") &&
              ok(weir_module_parse("printed.weir", t->printed, strlen(t->printed), NULL, &again),
                 "parse what was printed") &&
              ok(weir_module_verify(again), "verify what was printed") &&
              ok(weir_module_print(again, &second), "print again");
  if (good && strcmp(second, t->printed) != 0) good = wrong("printing again differs", second);
  weir_string_free(second);
  weir_module_destroy(again);
  return good && ok(weir_module_find(t->module, NULL, &t->fusion), "find");
}

static bool check_output_type(const trial *t, const weir_shapes *s, uint32_t i) {
  const gen_value *v = &t->program->outputs[i];
  int64_t extents[WEIR_MAX_RANK];
  size_t rank;
  weir_tensor tensor;
  weir_tensor_info info;
  if (!ok(weir_fusion_output_at(t->fusion, i, &tensor), "output") ||
      !ok(weir_tensor_describe(t->fusion, tensor, &info), "describe") ||
      !ok(weir_shapes_of(s, tensor, extents, &rank), "shape"))
    return false;
  bool same = strcmp(info.name, v->name) == 0 && info.dtype == public_dtype(v->dtype) &&
              rank == v->rank && (!rank || !memcmp(extents, v->extents, rank * sizeof *extents));
  return same ? true : wrong("not the type the model expects", v->name);
}

static bool check_index_bound(const trial *t, const weir_shapes *s, uint32_t i) {
  const gen_value *v = &t->program->inputs[i];
  int64_t bound;
  weir_tensor tensor;
  if (!ok(weir_fusion_input_at(t->fusion, i, &tensor), "input") ||
      !ok(weir_shapes_index_bound(s, tensor, &bound), "index bound"))
    return false;
  int64_t expected = v->fill == GEN_FILL_INDEX ? v->index_bound : 0;
  return bound == expected ? true : wrong("not the bound of the index", v->name);
}

static bool check_shapes(trial *t) {
  const gen_program *p = t->program;
  weir_shapes *s = NULL;
  bool good = ok(weir_shapes_create(t->fusion, &s), "shapes");
  if (good && weir_fusion_input_count(t->fusion) != p->n_inputs) good = wrong("input count", "");
  if (good && weir_fusion_output_count(t->fusion) != p->n_outputs) good = wrong("output count", "");
  for (uint32_t i = 0; good && i < p->n_bindings; i++)
    good = ok(weir_shapes_define(s, p->bindings[i]), "define");
  good = good && ok(weir_shapes_complete(s), "bind");
  for (uint32_t i = 0; good && i < p->n_outputs; i++) good = check_output_type(t, s, i);
  for (uint32_t i = 0; good && i < p->n_inputs; i++) good = check_index_bound(t, s, i);
  weir_shapes_destroy(s);
  return good;
}

static bool check_definition(trial *t, uint64_t seed) {
  for (uint32_t i = 0; i < t->program->n_inputs; i++)
    if (!make_input(&t->program->inputs[i], seed, &t->inputs[i])) return false;
  return run(t, t->fusion, t->inputs, t->expected);
}

/* ---- strides ---- */
/* A tensor in memory of its own, with the axes in the opposite order and gaps between elements. */
typedef struct strided {
  weir_dl_tensor tensor;
  int64_t strides[GEN_MAX_RANK];
} strided;

static void make_strided(const weir_array *a, strided *s) {
  const weir_dl_tensor *t = weir_array_tensor(a);
  size_t size = weir_dtype_size_bytes(weir_array_dtype(a)), n = (size_t)count_of(t);
  int64_t stride = 2;
  s->tensor = *t;
  for (int32_t i = 0; i < t->ndim; i++) {
    s->strides[i] = stride;
    stride *= t->shape[i] > 0 ? t->shape[i] : 1;
  }
  s->tensor.strides = s->strides;
  s->tensor.byte_offset = size;
  s->tensor.data = calloc((size_t)stride + 2, size);
  if (!s->tensor.data || n == 0) return;
  ir_array from = {.dtype = (ir_dtype)weir_array_dtype(a), .rank = (uint32_t)t->ndim};
  for (uint32_t i = 0; i < from.rank; i++) from.extents[i] = t->shape[i];
  ir_array_dense(&from);
  ir_array to = from;
  from.data = t->data;
  to.data = (char *)s->tensor.data + size;
  for (uint32_t i = 0; i < to.rank; i++) to.strides[i] = s->strides[i];
  ir_array_copy(&to, &from);
}

static bool run_strided(const trial *t, const strided *in, const weir_array *const *out) {
  const gen_program *p = t->program;
  const weir_dl_tensor *inputs[MAX_VALUES], *outputs[MAX_VALUES];
  weir_program *program = NULL;
  for (uint32_t i = 0; i < p->n_inputs; i++) inputs[i] = &in[i].tensor;
  for (uint32_t i = 0; i < p->n_outputs; i++) outputs[i] = weir_array_tensor(out[i]);
  if (!ok(weir_compile(t->fusion, reference(), NULL, &program), "compile")) return false;
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = p->n_inputs};
  args.outputs = outputs;
  args.n_outputs = p->n_outputs;
  args.seed = 7;
  args.as_definition = t->as_definition;
  bool good = ok(weir_run(program, &args), "run on strided inputs");
  weir_program_destroy(program);
  return good;
}

static bool check_strides(trial *t) {
  const gen_program *p = t->program;
  strided in[MAX_VALUES];
  weir_array *out[MAX_VALUES] = {0};
  for (uint32_t i = 0; i < p->n_inputs; i++) make_strided(t->inputs[i], &in[i]);
  bool good = make_outputs(p, out) && run_strided(t, in, (const weir_array *const *)out) &&
              same_outputs(t, out, "strided inputs");
  for (uint32_t i = 0; i < p->n_inputs; i++) free(in[i].tensor.data);
  destroy_arrays(out, p->n_outputs);
  return good;
}

/* ---- files ---- */

/* Saves and loads; bf16 travels as f32 and comes back. */
static bool through_file(const trial *t, const weir_array *a, const char *name,
                         weir_array **result) {
  char path[256];
  weir_array *loaded = NULL;
  snprintf(path, sizeof path, "%s/%s.npy", t->folder, name);
  bool good = ok(weir_array_save_npy(a, path), "save") &&
              ok(weir_array_load_npy(path, NULL, &loaded), "load") &&
              ok(weir_array_convert(loaded, weir_array_dtype(a), result), "convert");
  unlink(path);
  weir_array_destroy(loaded);
  return good;
}

/* The printed program on inputs that went through files gives the same files. */
static bool check_files(trial *t) {
  const gen_program *p = t->program;
  weir_array *in[MAX_VALUES] = {0}, *out[MAX_VALUES] = {0}, *back[MAX_VALUES] = {0};
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  bool good =
      ok(weir_module_parse("printed.weir", t->printed, strlen(t->printed), NULL, &m), "parse") &&
      ok(weir_module_find(m, NULL, &f), "find");
  for (uint32_t i = 0; good && i < p->n_inputs; i++)
    good = through_file(t, t->inputs[i], p->inputs[i].name, &in[i]);
  good = good && run(t, f, in, out);
  for (uint32_t i = 0; good && i < p->n_outputs; i++)
    good = through_file(t, out[i], p->outputs[i].name, &back[i]);
  good = good && same_outputs(t, back, "differs through .npy");
  destroy_arrays(in, p->n_inputs);
  destroy_arrays(out, p->n_outputs);
  destroy_arrays(back, p->n_outputs);
  weir_module_destroy(m);
  return good;
}

static bool check_passes(trial *t, const char *passes) {
  const gen_program *p = t->program;
  weir_array *out[MAX_VALUES] = {0};
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_pass_args args = {.struct_size = sizeof args, .passes = passes};
  bool good =
      ok(weir_module_parse("printed.weir", t->printed, strlen(t->printed), NULL, &m), "parse") &&
      ok(weir_module_run_passes(m, &args, NULL), passes) &&
      ok(weir_module_find(m, NULL, &f), "find") && run(t, f, t->inputs, out) &&
      same_outputs(t, out, passes);
  destroy_arrays(out, p->n_outputs);
  weir_module_destroy(m);
  return good;
}

/* ---- the scheduled view, evaluated ---- */
typedef struct scheduled {
  trial *t;
  ir_module module;
  weir_array *out[MAX_VALUES];
  const char *failed;
} scheduled;

static ir_array view_of(const weir_array *a) {
  const weir_dl_tensor *t = weir_array_tensor(a);
  ir_array v = {.dtype = (ir_dtype)weir_array_dtype(a), .rank = (uint32_t)t->ndim, .data = t->data};
  for (uint32_t i = 0; i < v.rank; i++) v.extents[i] = t->shape[i];
  ir_array_dense(&v);
  return v;
}

static bool bind_inputs(ir_env *env, const gen_program *p) {
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const gen_value *v = &p->inputs[i];
    if (!ir_bind_shape(env, env->func->inputs.data[i], v->extents, v->rank, v->name)) return false;
  }
  return ir_bind_complete(env) && ir_bind_check(env);
}

static status evaluate_scheduled(void *context) {
  scheduled *s = context;
  const gen_program *p = s->t->program;
  ir_array in[MAX_VALUES], out[MAX_VALUES];
  ref_options options = {.scheduled = true, .seed = 7, .memory = &memory_default};
  ir_env env;
  s->failed = "parse";
  ir_module_init(&s->module, &memory_default);
  TRY(text_parse(&s->module, "random.weir", p->text, strlen(p->text)));
  ir_func *f = s->module.funcs.data[0];
  s->failed = "apply the schedule";
  if (!schedule_apply(f)) return STATUS_BAD_PROGRAM;
  ir_env_init(&env, f, &s->module.memory);
  s->failed = "bind the scheduled view";
  if (!bind_inputs(&env, p)) return STATUS_BAD_PROGRAM;
  for (uint32_t i = 0; i < p->n_inputs; i++) in[i] = view_of(s->t->inputs[i]);
  for (uint32_t i = 0; i < p->n_outputs; i++) out[i] = view_of(s->out[i]);
  s->failed = "evaluate the scheduled view";
  return ref_eval(&env, in, out, &options);
}

/* Without rfactor the view computes the same bits. With it sums are added up in another order, which
 * changes nothing where all partial results are exact. */
static bool check_scheduled(trial *t, bool exact) {
  scheduled s = {.t = t};
  bool good = make_outputs(t->program, s.out);
  if (good && memory_guard(evaluate_scheduled, &s) != STATUS_OK)
    good = wrong(s.failed, status_message());
  status_clear();
  if (good && (exact || !t->program->has_rfactor))
    good = same_outputs(t, s.out, "the scheduled view differs");
  destroy_arrays(s.out, t->program->n_outputs);
  ir_module_destroy(&s.module);
  return good;
}

/* ---- donated inputs ---- */
static bool same_type(const gen_value *a, const gen_value *b) {
  return a->dtype == b->dtype && a->rank == b->rank &&
         (!a->rank || !memcmp(a->extents, b->extents, a->rank * sizeof *a->extents));
}

/* Gives outputs the memory of inputs of their type, as far as there are; how many. */
static uint32_t donate(const gen_program *p, int64_t *donated) {
  bool used[MAX_VALUES] = {false};
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    donated[i] = -1;
    for (uint32_t k = 0; k < p->n_inputs && donated[i] < 0; k++) {
      if (used[k] || !same_type(&p->outputs[i], &p->inputs[k])) continue;
      used[k] = true;
      donated[i] = k;
      n++;
    }
  }
  return n;
}

/* One run on the device; with `donated` the outputs begin as copies of their inputs, which the run
 * may overwrite. */
static bool run_donated(const trial *t, const weir_program *program, const int64_t *donated,
                        weir_array **outputs) {
  const gen_program *p = t->program;
  const weir_dl_tensor *in[MAX_VALUES], *out[MAX_VALUES];
  for (uint32_t i = 0; i < p->n_inputs; i++) in[i] = weir_array_tensor(t->inputs[i]);
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    out[i] = weir_array_tensor(outputs[i]);
    if (!donated || donated[i] < 0) continue;
    size_t bytes = (size_t)count_of(out[i]) * ir_dtype_size_bytes(p->outputs[i].dtype);
    if (bytes) memcpy(out[i]->data, in[donated[i]]->data, bytes);
    in[donated[i]] = out[i];
  }
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = p->n_inputs};
  args.outputs = out;
  args.n_outputs = p->n_outputs;
  args.seed = 7;
  args.donated = donated;
  return ok(weir_run(program, &args), donated ? "run with donated inputs" : "run on the device");
}

/* Overwriting inputs changes no bit of a result, in place or not. Schedules that cannot be lowered
 * are refused by the run without donations. */
static bool check_donated(trial *t) {
  const gen_program *p = t->program;
  weir_array *plain[MAX_VALUES] = {0}, *given[MAX_VALUES] = {0};
  int64_t donated[MAX_VALUES];
  weir_program *program = NULL;
  if (donate(p, donated) == 0) return true;
  bool good = make_outputs(p, plain) && make_outputs(p, given);
  bool runs = good && weir_compile(t->fusion, NULL, NULL, &program) == WEIR_OK &&
              run_donated(t, program, NULL, plain);
  good = good && (!runs || run_donated(t, program, donated, given));
  for (uint32_t i = 0; good && runs && i < p->n_outputs; i++)
    if (!same_array(plain[i], given[i])) good = wrong("donated inputs change", p->outputs[i].name);
  weir_program_destroy(program);
  destroy_arrays(plain, p->n_outputs);
  destroy_arrays(given, p->n_outputs);
  return good;
}

/* ---- one seed ---- */
static gen_options options_of(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  o.exact_only = seed % 3 == 1;
  o.schedule = seed % 5 != 0;
  o.symbolic = seed % 7 != 0;
  if (seed % 11 == 0) o.max_ops = 40;
  if (seed % 4 == 3) o.max_ops = 3; /* short ones are easy to read when they fail */
  if (o.exact_only && seed % 2) o.families = GEN_POINTWISE | GEN_REDUCE | GEN_MATMUL | GEN_VIEW;
  return o;
}

static bool check_all(trial *t, uint64_t seed, bool exact) {
  return check_text(t) && check_shapes(t) && check_definition(t, seed) && check_strides(t) &&
         check_files(t) && check_passes(t, "strip-schedule") && check_passes(t, "cse") &&
         check_passes(t, "dce") && check_passes(t, "strip-schedule,cse,dce") &&
         check_scheduled(t, exact) && check_donated(t);
}

static void destroy_trial(trial *t) {
  destroy_arrays(t->inputs, t->program->n_inputs);
  destroy_arrays(t->expected, t->program->n_outputs);
  weir_string_free(t->printed);
  weir_module_destroy(t->module);
}

static void report(uint64_t seed, const gen_program *p) {
  fprintf(stderr, "seed %llu: %s\n%s", (unsigned long long)seed, reason, p->text);
  for (uint32_t i = 0; i < p->n_bindings; i++) fprintf(stderr, "-D %s ", p->bindings[i]);
  fprintf(stderr, "\nreplay: test_programs --seed %llu\n\n", (unsigned long long)seed);
}

static void try_seed(uint64_t seed, const char *folder, bool seen[IR_OP_COUNT]) {
  gen_options options = options_of(seed);
  gen_program *p = gen_create(&options);
  trial t = {.program = p, .folder = folder, .as_definition = seed % 2 == 0};
  for (uint32_t op = 1; op < IR_OP_COUNT; op++) {
    char call[32];
    snprintf(call, sizeof call, "%.29s(", ir_op_info_of((ir_opcode)op)->name);
    seen[op] |= strstr(p->text, call) != NULL;
  }
  bool good = check_all(&t, seed, options.exact_only);
  test_passed += good;
  test_failed += !good;
  if (!good) report(seed, p);
  destroy_trial(&t);
  gen_destroy(p);
}

/* ---- the command ---- */
static void check_coverage(const bool seen[IR_OP_COUNT]) {
  for (uint32_t op = 1; op < IR_OP_COUNT; op++)
    if (!EXPECT(seen[op]))
      fprintf(stderr, "  no program uses %s\n", ir_op_info_of((ir_opcode)op)->name);
}

int main(int argc, char **argv) {
  (void)argc;
  command a = command_read(argv, (command){.count = 3000, .seconds = 60, .failures = 10}, NULL);
  char folder[] = "/tmp/weir-programs-XXXXXX";
  bool seen[IR_OP_COUNT] = {false};
  uint64_t done = 0;
  if (!mkdtemp(folder)) {
    perror(folder);
    return 3;
  }
  for (; command_more(&a, done); done++) try_seed(a.first + done, folder, seen);
  rmdir(folder);
  printf("%llu programs in %.1f s\n", (unsigned long long)done, command_now() - a.start);
  if (a.one) {
    gen_options o = options_of(a.first);
    gen_program *p = gen_create(&o);
    fputs(p->text, stdout);
    gen_destroy(p);
  } else if (done >= 1000) {
    check_coverage(seen);
  }
  return test_finish();
}
