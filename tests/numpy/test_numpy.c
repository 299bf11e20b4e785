/* The reference evaluator against NumPy: runs every case of cases.txt (see generate.py for the format).
 *
 * Each case is evaluated several times: accumulating in f64, which must give NumPy's values; in the
 * dtype's own accumulator, which must come close; and with every allocation failing in turn, which
 * must be reported and leave nothing behind. Operands and results have strides of all kinds. At the
 * end every operation and every dtype must have been met. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "ir/array.h"
#include "ir/bind.h"
#include "ref/ref.h"
#include "test.h"
#include "text/text.h"

enum { MAX_ARRAYS = 16, SEED = 7 };

typedef struct operand {
  char name[32];
  char layout;     /* of an input: C, F, R or S */
  bool exact;      /* of an output */
  ir_array values; /* dense */
} operand;

typedef struct numpy_case {
  const char *name;
  strbuf program;
  operand in[MAX_ARRAYS], out[MAX_ARRAYS];
  uint32_t n_in, n_out;
  const char *fails; /* NULL when it must not fail */
} numpy_case;

static bool met_op[IR_OP_COUNT], met_dtype[IR_DTYPE_COUNT];
static arena scratch; /* of one case */

/* ---- arrays in memory ---- */
/* Gives `a` memory with strides of the given kind; its extents are set. */
static void lay_out(ir_array *a, char layout) {
  int64_t stride = layout == 'S' ? 2 : 1, offset = 0;
  for (uint32_t k = 0; k < a->rank; k++) {
    uint32_t i = layout == 'F' ? k : a->rank - 1 - k;
    a->strides[i] = layout == 'R' ? -stride : stride;
    if (layout == 'R' && a->extents[i] > 0) offset += stride * (a->extents[i] - 1);
    stride *= a->extents[i];
  }
  size_t size = ir_dtype_size_bytes(a->dtype);
  a->data = (char *)arena_array(&scratch, (size_t)stride + 2, size) + (size_t)offset * size;
}

static ir_array with_layout(const ir_array *from, char layout) {
  ir_array to = *from;
  lay_out(&to, layout);
  ir_array_copy(&to, from);
  return to;
}

/* ---- reading cases ---- */
static void read_shape(const char *text, ir_array *a) {
  if (*text == '-') return;
  for (char *end; isdigit((unsigned char)*text); text = *end == 'x' ? end + 1 : end)
    a->extents[a->rank++] = strtoll(text, &end, 10);
}

static void read_values(const char *text, ir_array *a) {
  int64_t n;
  lay_out(a, 'C');
  ir_array_dense(a);
  check(ir_array_count(a, &n));
  for (int64_t i = 0; i < n; i++) {
    char *p = (char *)a->data + i * (int64_t)ir_dtype_size_bytes(a->dtype), *end;
    if (ir_dtype_is_float(a->dtype)) ir_element_set_f64(a->dtype, p, strtod(text, &end));
    else ir_element_set_i64(a->dtype, p, strtoll(text, &end, 10));
    check(end != text);
    text = end;
  }
}

static ir_array read_array(const char *dtype, const char *shape, const char *values) {
  ir_array a = {.dtype = ir_dtype_parse(dtype, strlen(dtype))};
  check(a.dtype != IR_DTYPE_NONE && values);
  read_shape(shape, &a);
  read_values(values + 1, &a);
  return a;
}

static void read_line(numpy_case *c, const char *line) {
  char dtype[8], word[32], shape[64];
  if (line[0] == '|') {
    strbuf_puts(&c->program, line + 1);
    strbuf_putc(&c->program, '\n');
  } else if (strncmp(line, "fails ", 6) == 0) {
    c->fails = arena_string(&scratch, line + 6, strlen(line + 6));
  } else if (strncmp(line, "in ", 3) == 0) {
    operand *o = &c->in[c->n_in++];
    check(c->n_in <= MAX_ARRAYS);
    check(sscanf(line, "in %31s %7s %c %63s", o->name, dtype, &o->layout, shape) == 4);
    o->values = read_array(dtype, shape, strchr(line, ':'));
  } else {
    operand *o = &c->out[c->n_out++];
    check(c->n_out <= MAX_ARRAYS);
    check(sscanf(line, "out %7s %31s %63s", dtype, word, shape) == 3);
    o->exact = strcmp(word, "exact") == 0;
    o->values = read_array(dtype, shape, strchr(line, ':'));
  }
}

/* ---- comparing ---- */
/* Distance from |x| to the next number of the dtype. */
static double ulp(ir_dtype t, double x) {
  int bits = t == IR_F64 ? 53 : t == IR_F32 ? 24 : t == IR_F16 ? 11 : 8;
  int lowest = t == IR_F64 ? -1021 : t == IR_F16 ? -13 : -125, exponent;
  (void)frexp(x, &exponent);
  return ldexp(1, (exponent < lowest ? lowest : exponent) - bits);
}

static double largest(const ir_array *a) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  double top = 0;
  check(ir_array_count(a, &n));
  if (n > 0) do {
      double x = fabs(ir_element_as_f64(a->dtype, ir_array_at(a, index)));
      if (isfinite(x) && x > top) top = x;
    } while (ir_array_next(a, index));
  return top;
}

/* How far a result may lie from NumPy's `want`: a rounding, and for f64 the noise of another order of
 * summation; natively accumulated, what SPEC allows. */
static double allowed(const operand *o, double want, bool native) {
  ir_dtype t = o->values.dtype;
  if (o->exact || !ir_dtype_is_float(t)) return 0;
  if (native) return ir_dtype_tolerance(t) * largest(&o->values);
  double noise = 1e-15 * largest(&o->values);
  if (t == IR_F64) return 1e-12 * fabs(want) + noise;
  if (t == IR_F32) return 1e-6 * fabs(want) + ulp(t, 0) + noise;
  return ulp(t, want) + noise;
}

static bool same_f64(double got, double want, double tolerance) {
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
  if (isinf(got) || isinf(want)) return got == want;
  return fabs(got - want) <= tolerance;
}

static bool same_element(const operand *o, const ir_array *got, const int64_t *at, bool native) {
  const void *g = ir_array_at(got, at), *w = ir_array_at(&o->values, at);
  if (!ir_dtype_is_float(got->dtype))
    return ir_element_as_i64(got->dtype, g) == ir_element_as_i64(got->dtype, w);
  double want = ir_element_as_f64(got->dtype, w);
  return same_f64(ir_element_as_f64(got->dtype, g), want, allowed(o, want, native));
}

static void print_element(const char *label, const ir_array *a, const int64_t *at) {
  const void *p = ir_array_at(a, at);
  if (ir_dtype_is_float(a->dtype))
    (void)fprintf(stderr, " %s %.17g", label, ir_element_as_f64(a->dtype, p));
  else (void)fprintf(stderr, " %s %" PRId64, label, ir_element_as_i64(a->dtype, p));
}

static bool compare(const numpy_case *c, uint32_t i, const ir_array *got, bool native) {
  int64_t at[IR_MAX_RANK] = {0}, n;
  check(ir_array_count(got, &n));
  if (n > 0) do {
      if (same_element(&c->out[i], got, at, native)) continue;
      (void)fprintf(stderr, "%s: output %u [", c->name, i);
      for (uint32_t k = 0; k < got->rank; k++) (void)fprintf(stderr, "%" PRId64 " ", at[k]);
      (void)fprintf(stderr, "]%s:", native ? ", native accumulation" : "");
      print_element("got", got, at);
      print_element("expected", &c->out[i].values, at);
      (void)fprintf(stderr, "\n");
      return false;
    } while (ir_array_next(got, at));
  return true;
}

/* ---- running ---- */
static bool wrong(const numpy_case *c, const char *what, const char *detail) {
  (void)fprintf(stderr, "%s: %s: %s\n", c->name, what, detail);
  return false;
}

static const char *messages(ir_module *m) {
  strbuf text;
  strbuf_init(&text, &scratch);
  diags_render(&m->errors, &text);
  return text.data ? text.data : "";
}

static bool shapes_agree(const numpy_case *c, const ir_env *env) {
  const ir_func *f = env->func;
  if (f->outputs.len != c->n_out) return wrong(c, "outputs", "not as many as expected");
  for (uint32_t i = 0; i < c->n_out; i++) {
    int64_t extents[IR_MAX_RANK];
    uint32_t rank;
    const ir_array *want = &c->out[i].values;
    ir_dtype dtype = ir_tensor_at(f, f->outputs.data[i])->dtype;
    if (dtype != want->dtype) return wrong(c, "dtype of an output", ir_dtype_text(dtype));
    check(ir_env_shape(env, f->outputs.data[i], extents, &rank));
    if (rank != want->rank) return wrong(c, "shape", "another rank");
    for (uint32_t k = 0; k < rank; k++)
      if (extents[k] != want->extents[k]) return wrong(c, "shape", "another extent");
  }
  return true;
}

static bool bind_inputs(const numpy_case *c, ir_env *env) {
  ir_func *f = env->func;
  ir_env_init(env, f, &scratch);
  check(f->inputs.len == c->n_in);
  for (uint32_t i = 0; i < c->n_in; i++) {
    const ir_array *a = &c->in[i].values;
    check(strcmp(ir_tensor_name(f, f->inputs.data[i]), c->in[i].name) == 0);
    if (!ir_bind_shape(env, f->inputs.data[i], a->extents, a->rank, c->in[i].name)) return false;
  }
  return ir_bind_complete(env) && ir_bind_check(env);
}

static status evaluate(const numpy_case *c, const ir_env *env, ir_array *outputs, bool native,
                       const allocator *memory) {
  ir_array inputs[MAX_ARRAYS];
  ref_options options = {.native_accumulate = native, .seed = SEED, .memory = memory};
  for (uint32_t i = 0; i < c->n_in; i++) inputs[i] = with_layout(&c->in[i].values, c->in[i].layout);
  for (uint32_t i = 0; i < env->func->outputs.len; i++) {
    ir_tensor t = env->func->outputs.data[i];
    outputs[i] = (ir_array){.dtype = ir_tensor_at(env->func, t)->dtype};
    check(ir_env_shape(env, t, outputs[i].extents, &outputs[i].rank));
    lay_out(&outputs[i], "CFRS"[i % 4]);
  }
  status_clear();
  return ref_eval(env, inputs, outputs, &options);
}

static bool values_agree(const numpy_case *c, const ir_env *env, bool native) {
  ir_array outputs[MAX_ARRAYS];
  if (evaluate(c, env, outputs, native, &memory_default) != STATUS_OK)
    return wrong(c, "evaluation failed", status_message());
  for (uint32_t i = 0; i < c->n_out; i++)
    if (!compare(c, i, &outputs[i], native)) return false;
  return true;
}

/* Fails each allocation in turn; sees that it is reported and that everything is freed. */
static bool survives_faults(const numpy_case *c, const ir_env *env) {
  ir_array outputs[MAX_ARRAYS];
  for (uint64_t n = 0;; n++) {
    memory_faults faults = {.fail_at = n};
    allocator memory = memory_faulty(&faults);
    status st = evaluate(c, env, outputs, false, &memory);
    if (faults.live != 0) return wrong(c, "memory is lost", "after a failed allocation");
    if (faults.calls <= n) return true;
    if (st != STATUS_OUT_OF_MEMORY) return wrong(c, "a failed allocation", "was not reported");
  }
}

static bool fails_as_expected(const numpy_case *c, const ir_env *env) {
  ir_array outputs[MAX_ARRAYS];
  memory_faults faults = {.fail_at = UINT64_MAX};
  allocator memory = memory_faulty(&faults);
  status st = evaluate(c, env, outputs, false, &memory);
  if (st != STATUS_BAD_PROGRAM) return wrong(c, "should fail with", c->fails);
  if (!strstr(status_message(), c->fails)) return wrong(c, "another message", status_message());
  return faults.live == 0 || wrong(c, "memory is lost", "after a failure");
}

static void note_coverage(const ir_func *f) {
  for (uint32_t i = 0; i < f->order.len; i++) met_op[ir_op_at(f, f->order.data[i])->code] = true;
  for (uint32_t i = 1; i < f->tensors.len; i++)
    if (f->tensors.data[i].kind != IR_TENSOR_CONST) met_dtype[f->tensors.data[i].dtype] = true;
}

/* A program that must fail may do so before it runs. */
static bool refused(const numpy_case *c, const char *what, const char *message) {
  if (c->fails && strstr(message, c->fails)) return true;
  return wrong(c, what, message);
}

static bool run_in(numpy_case *c, ir_module *m) {
  if (text_parse(m, c->name, c->program.data, c->program.len) != STATUS_OK)
    return refused(c, "does not parse", messages(m));
  ir_env env = {.func = m->funcs.data[0]};
  if (!bind_inputs(c, &env)) return refused(c, "does not bind", messages(m));
  note_coverage(env.func);
  if (c->fails) return fails_as_expected(c, &env);
  return shapes_agree(c, &env) && values_agree(c, &env, false) && values_agree(c, &env, true) &&
         survives_faults(c, &env);
}

static void run_case(numpy_case *c) {
  ir_module m;
  ir_module_init(&m, &memory_default);
  bool ok = run_in(c, &m);
  ir_module_destroy(&m);
  (void)EXPECT(ok);
}

/* ---- the file ---- */
static void start_case(numpy_case *c, const char *name) {
  arena_destroy(&scratch);
  arena_init(&scratch, &memory_default);
  *c = (numpy_case){.name = arena_string(&scratch, name, strlen(name))};
  strbuf_init(&c->program, &scratch);
}

static status run_file(void *file) {
  static char line[1 << 20];
  static numpy_case c;
  bool open = false;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (line[0] == '#') continue;
    if (strncmp(line, "case ", 5) != 0) {
      read_line(&c, line);
      continue;
    }
    if (open) run_case(&c);
    start_case(&c, line + 5);
    open = true;
  }
  if (open) run_case(&c);
  arena_destroy(&scratch);
  return STATUS_OK;
}

static void expect_coverage(void) {
  for (uint32_t code = 1; code < IR_OP_COUNT; code++)
    if (!EXPECT(met_op[code]))
      (void)fprintf(stderr, "no case for op %s\n", ir_op_info_of((ir_opcode)code)->name);
  for (uint32_t t = 1; t < IR_DTYPE_COUNT; t++)
    if (!EXPECT(met_dtype[t]))
      (void)fprintf(stderr, "no case for dtype %s\n", ir_dtype_text((ir_dtype)t));
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "tests/numpy/cases.txt";
  FILE *file = fopen(path, "r");
  if (!EXPECT(file != NULL)) return test_finish();
  arena_init(&scratch, &memory_default);
  (void)EXPECT(memory_guard(run_file, file) == STATUS_OK);
  (void)fclose(file);
  expect_coverage();
  return test_finish();
}
