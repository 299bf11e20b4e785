/* weir_program_prepare(): what a run needs is there before it. */
#include <stdlib.h>

#include "test.h"
#include "weir/weir.h"

static const char *const text =
    "fusion f { mesh d = [2]; x : f32[n, 4]; y = sum(x, dims=[0]); return y\n"
    "schedule { x on d; x.outer_split(0, d); x[0] = mesh.x } }";

typedef struct made {
  weir_module *m;
  weir_fusion *f;
  weir_program *p;
  weir_shapes *s;
} made;

static made make_with(const char *device, const char *n, const weir_allocator *memory) {
  made x = {0};
  weir_options *o = NULL;
  EXPECT_INT(weir_module_parse("t", text, strlen(text), NULL, &x.m), WEIR_OK);
  EXPECT_INT(weir_module_find(x.m, NULL, &x.f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", device), WEIR_OK);
  EXPECT_INT(weir_compile(x.f, o, memory, &x.p), WEIR_OK);
  EXPECT_INT(weir_shapes_create(x.f, &x.s), WEIR_OK);
  if (n) EXPECT_INT(weir_shapes_define(x.s, n), WEIR_OK);
  if (n) EXPECT_INT(weir_shapes_complete(x.s), WEIR_OK);
  weir_options_destroy(o);
  return x;
}

static made make(const char *device, const char *n) { return make_with(device, n, NULL); }

static void destroy(made *x) {
  weir_shapes_destroy(x->s);
  weir_program_destroy(x->p);
  weir_module_destroy(x->m);
}

static void test_loads_once(void) {
  made x = make("cpu", "n=3");
  weir_counts before = {.struct_size = sizeof before}, after = before;
  float in[12] = {1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400}, out[4];
  int64_t shape[2] = {3, 4};
  weir_dl_tensor a = {
      .data = in, .device = {1, 0}, .ndim = 2, .dtype = weir_dtype_to_dl(WEIR_F32), .shape = shape};
  weir_dl_tensor b = {
      .data = out, .device = {1, 0}, .ndim = 1, .dtype = a.dtype, .shape = shape + 1};
  const weir_dl_tensor *inputs = &a, *outputs = &b;
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = &inputs,
                        .n_inputs = 1,
                        .outputs = &outputs,
                        .n_outputs = 1};
  EXPECT_INT(weir_program_prepare(x.p, x.s), WEIR_OK);
  EXPECT_INT(weir_program_prepare(x.p, x.s), WEIR_OK);
  EXPECT_INT(weir_program_counts(x.p, &before), WEIR_OK);
  EXPECT_INT(before.bindings, 1);
  EXPECT_INT(before.loads, 1);
  EXPECT_INT(before.runs, 0);
  EXPECT_INT(weir_run(x.p, &args), WEIR_OK);
  EXPECT(out[0] == 111 && out[3] == 444);
  EXPECT_INT(weir_program_counts(x.p, &after), WEIR_OK);
  EXPECT_INT(after.bindings, 1);
  EXPECT_INT(after.loads, 1);
  destroy(&x);
}

static void test_reference(void) {
  made x = make("ref", "n=3");
  EXPECT_INT(weir_program_prepare(x.p, x.s), WEIR_OK);
  destroy(&x);
}

static void test_refused(void) {
  made x = make("cpu", NULL);
  EXPECT_INT(weir_program_prepare(NULL, x.s), WEIR_BAD_USAGE);
  EXPECT_INT(weir_program_prepare(x.p, NULL), WEIR_BAD_USAGE);
  EXPECT(weir_program_prepare(x.p, x.s) != WEIR_OK); /* n is not known */
  EXPECT(weir_error()[0] != '\0');
  destroy(&x);
}

/* The simulator looks at shapes only: 64 TiB of input and no data. A device that computes needs it. */
static void test_shape_only(const char *device, weir_status wanted) {
  made x = make(device, "n=4398046511104");
  int64_t shape[2] = {INT64_C(4398046511104), 4};
  weir_dl_tensor a = {
      .device = {1, 0}, .ndim = 2, .dtype = weir_dtype_to_dl(WEIR_F32), .shape = shape};
  weir_dl_tensor b = {.device = {1, 0}, .ndim = 1, .dtype = a.dtype, .shape = shape + 1};
  const weir_dl_tensor *inputs = &a, *outputs = &b;
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = &inputs,
                        .n_inputs = 1,
                        .outputs = &outputs,
                        .n_outputs = 1};
  EXPECT_INT(weir_run(x.p, &args), wanted);
  if (wanted != WEIR_OK) EXPECT_CONTAINS(weir_error(), "input x has no data");
  args.as_definition = true; /* computes on every device */
  EXPECT_INT(weir_run(x.p, &args), WEIR_BAD_USAGE);
  destroy(&x);
}

/* ---- memory that runs out once ---- */
typedef struct failing {
  int64_t left; /* calls until one fails; negative: none does */
} failing;

static void *failing_alloc(void *context, size_t bytes) {
  failing *f = context;
  return f->left-- == 0 ? NULL : malloc(bytes);
}

static void failing_free(void *context, void *block) {
  (void)context;
  free(block);
}

/* Where the device has no memory for a plan, others go and it is loaded all the same: as in a run. */
static void test_drops_others(void) {
  int dropped = 0, refused = 0;
  for (int64_t k = 0; k < 400; k++) {
    failing f = {-1};
    weir_allocator memory = {failing_alloc, failing_free, &f};
    weir_counts n = {.struct_size = sizeof n};
    made x = make_with("cpu", "n=3", &memory);
    weir_shapes *other = NULL;
    EXPECT_INT(weir_program_prepare(x.p, x.s), WEIR_OK);
    EXPECT_INT(weir_shapes_create(x.f, &other), WEIR_OK);
    EXPECT_INT(weir_shapes_define(other, "n=5"), WEIR_OK);
    EXPECT_INT(weir_shapes_complete(other), WEIR_OK);
    f.left = k;
    weir_status st = weir_program_prepare(x.p, other);
    bool was_enough = f.left >= 0;
    f.left = -1;
    EXPECT_INT(weir_program_counts(x.p, &n), WEIR_OK);
    EXPECT(st == WEIR_OK || st == WEIR_OUT_OF_MEMORY);
    dropped += st == WEIR_OK && n.evicted == 1;
    refused += st == WEIR_OUT_OF_MEMORY;
    weir_shapes_destroy(other);
    destroy(&x);
    if (was_enough) break;
  }
  EXPECT(dropped > 0);
  EXPECT(refused > 0); /* memory of the program itself */
}

int main(void) {
  test_loads_once();
  test_reference();
  test_refused();
  test_shape_only("sim", WEIR_OK);
  test_shape_only("null", WEIR_OK);
  test_shape_only("cpu", WEIR_BAD_USAGE);
  test_drops_others();
  return test_finish();
}
