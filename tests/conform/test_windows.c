/* Windows: `y <- op(...) at [...]` for every operation, many shapes of the destination, offsets inside
 * and outside, and operands that are said to be cut already. A program is refused before it runs, or it
 * runs within its buffers (sanitizers see to that) and, where nothing is said to be cut, gives the part
 * of the whole result that it names. */
#include <stdlib.h>

#include "stream_kit.h"
#include "test.h"

#define INPUTS                                                                                     \
  "x : f32[4, 4, 6]; v : f32[4, 6]; w : f32[1, 4, 6]; o : f32[1, 6]; m : f32[6, 6]; b : f32[6]; "  \
  "i : i64[4, 6]; j : i64[4]; c : bool[4, 6]"
#define PARAMETERS                                                                                 \
  "x : f32[4, 4, 6], v : f32[4, 6], w : f32[1, 4, 6], o : f32[1, 6], m : f32[6, 6], b : f32[6], "  \
  "i : i64[4, 6], j : i64[4], c : bool[4, 6]"

static const char *const ops[] = {
    "set(x)",
    "neg(x)",
    "x + w",
    "x + 1.0",
    "cast(x, f32)",
    "sum(x, dims=[2])",
    "sum(x, dims=[0], keepdim=true)",
    "mean(x, dims=[1])",
    "amax(x, dims=[2])",
    "var(x, dims=[0])",
    "broadcast(x, [false, false, false])",
    "broadcast(v, [true, false, false])",
    "squeeze(o, dims=[0])",
    "expand(o, [4, 6])",
    "expand(o, [4, 4, 6])",
    "permute(x, [1, 0, 2])",
    "transpose(v)",
    "reshape(x, [16, 6])",
    "reshape(x, [96])",
    "reshape(v, [6, 4])",
    "slice(x, starts=[0, 0, 0], stops=[4, 4, 6])",
    "slice(v, starts=[1, 2], stops=[4, 6], steps=[2, 1])",
    "pad(v, [1, 1, 1, 1])",
    "cat(v, v, dim=0)",
    "cat(v, v, dim=1)",
    "select(x, dim=0, index=1)",
    "select(x, dim=-1, index=5)",
    "full([4, 6], 1)",
    "zeros([4, 6])",
    "iota(6, dtype=f32)",
    "uniform([4, 6], key=3)",
    "gather(v, i, dim=0)",
    "gather(v, i, dim=1)",
    "scatter(v, i, v, dim=0)",
    "scatter(v, i, v, dim=1)",
    "scatter(v, i, v, dim=0, reduce=add)",
    "scatter(v, i, v, dim=1, reduce=add)",
    "one_hot(i, 4, dtype=f32)",
    "one_hot(j, 6, dtype=f32)",
    "cumsum(v, dim=0)",
    "cumsum(x, dim=2)",
    "topk(v, k=4)",
    "topk(x, k=2, dim=1)",
    "index_select(v, j, dim=0)",
    "index_select(v, j, dim=1)",
    "matmul(v, m)",
    "matmul(x, m)",
    "linear(v, m)",
    "linear(x, m, b)",
    "softmax(v)",
    "softmax(v, dim=0)",
    "softmax(x, dim=1)",
    "layer_norm(v)",
    "layer_norm(x, b, b)",
    "rms_norm(v)",
    "rms_norm(x, b)",
    "sdpa(x, x, x)",
    "sdpa(x, x, x, causal=true)",
    "where(c, v, v)",
    "clamp(v, 0, 1)",
};

static const char *const shapes[] = {"3",       "2, 3",    "4, 6",    "1, 6",   "4, 4, 6",
                                     "2, 2, 3", "0, 3",    "6, 6",    "24",     "4, 4",
                                     "8, 6",    "4, 1, 6", "3, 4, 6", "1, 1, 1"};

/* Offsets of the first three dimensions; "." is the end of the list. */
static const char *const offsets[][3] = {
    {"0", "0", "0"},
    {"1", "1", "1"},
    {"3", "3", "3"},
    {"1", "0", "0"},
    {"0", "1", "0"},
    {"0", "0", "1"},
    {"-1", "0", "0"},
    {"0", "-1", "-1"},
    {"100", "0", "0"},
    {"0", "100", "0"},
    {"0", "0", "100"},
    {"9223372036854775807", "0", "0"},
    {"0", "9223372036854775807", "0"},
};

static const char *const cuts[] = {"", " sliced [[0]]", " sliced [[0], [0]]", " sliced [[1], []]",
                                   " sliced [[0, 1], [0, 1], [0, 1]]"};

enum { LENGTH = 2048, N_OPS = sizeof ops / sizeof *ops };

static rt_device *device;
static subject whole; /* the operation alone */
static bool has_whole;
static unsigned n_programs, n_ran, n_compared;

static void fill(ir_array *a, const char *name) {
  int64_t index[IR_MAX_RANK] = {0}, n = 0;
  bool indexes = name[0] == 'i' || name[0] == 'j';
  do ir_element_set_i64(a->dtype, ir_array_at(a, index), indexes ? n * 3 % 4 : n * 7 % 11 - 3);
  while (n++, ir_array_next(a, index));
}

static bool open_whole(const char *op) {
  char text[LENGTH];
  snprintf(text, sizeof text, "fusion whole { %s; y = %s; return y }\n", INPUTS, op);
  if (!subject_parse(&whole, text)) return false;
  ir_env_init(&whole.env, whole.func, &whole.memory);
  if (!subject_values(&whole)) return false;
  for (uint32_t k = 0; k < whole.n_in; k++)
    fill(&whole.in[k], ir_tensor_name(whole.func, whole.func->inputs.data[k]));
  return subject_reference(&whole, whole.in, whole.expected, false);
}

/* The window is inside the whole result and holds the same values. */
static bool is_window(const ir_array *y, const int64_t *offset) {
  const ir_array *e = &whole.expected[0];
  int64_t index[IR_MAX_RANK] = {0}, at[IR_MAX_RANK];
  if (y->rank != e->rank) return false;
  for (uint32_t d = 0; d < y->rank; d++)
    if (offset[d] < 0 || y->extents[d] > e->extents[d] || offset[d] > e->extents[d] - y->extents[d])
      return false;
  do {
    for (uint32_t d = 0; d < y->rank; d++) at[d] = index[d] + offset[d];
    double a = ir_element_as_f64(y->dtype, ir_array_at(y, index));
    double b = ir_element_as_f64(e->dtype, ir_array_at(e, at));
    if (fabs(a - b) > 1e-4 * (1 + fabs(b))) return false;
  } while (ir_array_next(y, index));
  return true;
}

/* Runs on copies that end where the sanitizer looks. */
static status run_plan(const rt_plan *plan, ir_array *y) {
  void *in[KIT_VALUES], *out[1];
  rt_loaded *loaded = NULL;
  int64_t bytes;
  for (uint32_t k = 0; k < whole.n_in; k++) {
    check(ir_array_size_bytes(&whole.in[k], &bytes));
    in[k] = malloc((size_t)bytes);
    memcpy(in[k], whole.in[k].data, (size_t)bytes);
  }
  check(ir_array_size_bytes(y, &bytes));
  out[0] = calloc(1, (size_t)bytes + 1);
  status st = device->ops->load(device, plan, &loaded);
  if (st == STATUS_OK) st = rt_run(loaded, in, out, NULL, NULL);
  memcpy(y->data, out[0], (size_t)bytes);
  device->ops->unload(loaded);
  for (uint32_t k = 0; k < whole.n_in; k++) free(in[k]);
  free(out[0]);
  return st;
}

static void run_program(const char *text, bool cut, const int64_t *offset) {
  subject s;
  rt_plan *plan = NULL;
  n_programs++;
  if (subject_parse(&s, text) && ir_host_verify(s.func)) {
    ir_env_init(&s.env, s.func, &s.memory);
    bind_options options = {.streams = 1, .seed = KIT_SEED};
    ir_array y;
    int64_t n;
    if (bind_plan(&s.env, &options, &memory_default, &plan) == STATUS_OK &&
        kit_array(&s, s.func->outputs.data[0], &y) && run_plan(plan, &y) == STATUS_OK) {
      n_ran++;
      bool some = ir_array_count(&y, &n) && n > 0;
      if (!cut && some && has_whole) {
        n_compared++;
        if (!EXPECT(is_window(&y, offset))) fprintf(stderr, "%s", text);
      }
    }
  }
  status_clear();
  rt_plan_destroy(plan);
  subject_close(&s);
}

static uint32_t rank_of(const char *shape) {
  uint32_t n = 1;
  for (; *shape; shape++) n += *shape == ',';
  return n;
}

static void try_destination(const char *op, const char *shape, size_t k) {
  char text[LENGTH], at[256] = "";
  uint32_t rank = rank_of(shape);
  int64_t offset[3];
  for (uint32_t d = 0; d < rank; d++) {
    size_t n = strlen(at);
    snprintf(at + n, sizeof at - n, "%s%s", d ? ", " : "", offsets[k][d]);
    offset[d] = strtoll(offsets[k][d], NULL, 10);
  }
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
    snprintf(text, sizeof text,
             "host f(%s) -> (y) {\n  y : f32[%s] = allocate()\n  y <- %s at [%s]%s\n}\n",
             PARAMETERS, shape, op, at, cuts[c]);
    run_program(text, cuts[c][0] != 0, offset);
  }
}

static status try_op(void *context) {
  const char *op = *(const char *const *)context;
  has_whole = open_whole(op);
  if (!EXPECT(has_whole)) fprintf(stderr, "%s: %s\n", op, kit_reason);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) try_destination(op, shapes[s], k);
  subject_close(&whole);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  device = kit_device(1, false);
  check(device != NULL);
  for (size_t k = 0; k < N_OPS; k++) {
    const char *op = argc > 1 ? argv[1] : ops[k];
    EXPECT(memory_guard(try_op, &op) == STATUS_OK);
    if (argc > 1) break;
  }
  device->ops->close(device);
  printf("%u programs, %u ran, %u compared\n", n_programs, n_ran, n_compared);
  return test_finish();
}
