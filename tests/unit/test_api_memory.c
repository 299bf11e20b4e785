/* What weir_run() accepts as memory: strides, alignment, overlaps; and calls with half-filled arguments. */
#include <stdlib.h>

#include "base/random.h"
#include "ir/array.h"
#include "test.h"
#include "weir/weir.h"

/* ---- arrays that share memory, against counting every byte ---- */
enum { BYTES = 4096 };

static void mark(const ir_array *a, const char *base, uint8_t *counts) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  check(ir_array_count(a, &n));
  if (n == 0) return;
  do {
    const char *p = ir_array_at(a, index);
    for (size_t i = 0; i < ir_dtype_size_bytes(a->dtype); i++) counts[p - base + (ptrdiff_t)i]++;
  } while (ir_array_next(a, index));
}

static ir_array draw(uint64_t seed, uint64_t *n, char *middle) {
  static const ir_dtype dtypes[] = {IR_U8, IR_F16, IR_F32};
  ir_array a = {.dtype = dtypes[random_bits(seed, (*n)++) % 3], .data = middle};
  a.rank = (uint32_t)(random_bits(seed, (*n)++) % 4);
  for (uint32_t d = 0; d < a.rank; d++) {
    a.extents[d] = (int64_t)(random_bits(seed, (*n)++) % 5);
    a.strides[d] = (int64_t)(random_bits(seed, (*n)++) % 41) - 20;
  }
  size_t size = ir_dtype_size_bytes(a.dtype);
  a.data = middle + (random_bits(seed, (*n)++) % 60) * size;
  return a;
}

static void test_random_overlaps(void) {
  enum { ROUNDS = 20000 };
  static char bytes[BYTES];
  uint32_t shared = 0, overlapping = 0;
  for (uint64_t seed = 0; seed < ROUNDS; seed++) {
    uint64_t n = 0;
    uint8_t counts[2][BYTES] = {{0}};
    ir_array a = draw(seed, &n, bytes + BYTES / 2), b = draw(seed, &n, bytes + BYTES / 2);
    mark(&a, bytes, counts[0]);
    mark(&b, bytes, counts[1]);
    bool shares = false, overlaps = false;
    for (int i = 0; i < BYTES; i++) {
      shares |= counts[0][i] > 1;
      overlaps |= counts[0][i] && counts[1][i];
    }
    shared += shares, overlapping += overlaps;
    if (!EXPECT_INT(ir_array_shares(&a), shares) ||
        !EXPECT_INT(ir_arrays_overlap(&a, &b), overlaps))
      fprintf(stderr, "seed %d\n", (int)seed);
  }
  EXPECT(shared > ROUNDS / 20 && shared < ROUNDS / 2);
  EXPECT(overlapping > ROUNDS / 20 && overlapping < ROUNDS * 19 / 20);
}

/* ---- runs ---- */
static const char *const sum = "fusion f { x : f32[n, 4]; w : f32[n, 4]; y = x + w; z = x - w; "
                               "return y, z }";
static int64_t shape[2] = {4, 4};

static weir_program *compile(const char *text) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  EXPECT_INT(weir_module_parse("t", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_compile(f, NULL, NULL, &p), WEIR_OK);
  weir_module_destroy(m);
  return p;
}

static weir_dl_tensor tensor(void *data) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = 2,
                          .dtype = weir_dtype_to_dl(WEIR_F32),
                          .shape = shape};
}

typedef struct tensors {
  weir_dl_tensor x, w, y, z;
} tensors;

static weir_status run(const weir_program *p, const tensors *t) {
  const weir_dl_tensor *in[] = {&t->x, &t->w}, *out[] = {&t->y, &t->z};
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out, .n_outputs = 2};
  weir_status st = weir_run(p, &args);
  args.as_definition = true;
  EXPECT_INT(weir_run(p, &args), st); /* the oracle refuses and accepts the same */
  return st;
}

static void expect_refused(const weir_program *p, const tensors *t, const char *message) {
  EXPECT_INT(run(p, t), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), message);
}

static void test_overlaps(const weir_program *p) {
  float x[64] = {1, 2, 3}, w[64] = {4, 5, 6}, y[64], z[64];
  tensors good = {tensor(x), tensor(w), tensor(y), tensor(z)}, t = good;
  EXPECT_INT(run(p, &good), WEIR_OK);
  t.y.data = x + 2;
  expect_refused(p, &t, "output y overlaps input x");
  t.y.data = w;
  expect_refused(p, &t, "output y overlaps input w");
  t = good;
  t.z.data = y + 15;
  expect_refused(p, &t, "overlaps output");
  t.z.data = y + 16;
  EXPECT_INT(run(p, &t), WEIR_OK);
  /* two inputs in one memory are nobody's concern */
  t = good;
  t.w.data = x;
  EXPECT_INT(run(p, &t), WEIR_OK);
  EXPECT(y[1] == 4 && z[1] == 0);
  /* columns of one matrix: their ranges overlap, their elements do not */
  int64_t columns[2] = {8, 1}, pairs[2] = {8, 2};
  t = good;
  t.y.strides = t.z.strides = columns;
  t.z.data = y + 4;
  EXPECT_INT(run(p, &t), WEIR_OK);
  EXPECT(y[0] == 5 && y[4] == -3 && y[1] == 7 && y[5] == -3);
  t.y.strides = t.z.strides = pairs;
  t.z.data = y + 1;
  EXPECT_INT(run(p, &t), WEIR_OK);
  t.z.data = y + 2;
  expect_refused(p, &t, "overlaps output");
}

static void test_own_strides(const weir_program *p) {
  static int64_t bad[][2] = {{1, 1}, {2, 1}, {0, 1}, {3, 2}, {4, 0}, {-1, 1}};
  static int64_t fine[][2] = {{4, 1}, {1, 4}, {-4, 1}, {5, 1}, {4, -1}, {7, 2}, {2, 9}};
  float x[16] = {1}, w[16] = {2}, y[128], z[16];
  tensors t = {tensor(x), tensor(w), tensor(y + 64), tensor(z)};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    t.y.strides = bad[i];
    expect_refused(p, &t, "share memory");
  }
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    t.y.strides = fine[i];
    EXPECT_INT(run(p, &t), WEIR_OK);
    EXPECT(y[64] == 3);
  }
  /* an input may read one element again and again */
  t.y.strides = NULL;
  t.x.strides = (int64_t[]){0, 0};
  EXPECT_INT(run(p, &t), WEIR_OK);
  EXPECT(y[64] == 3 && y[65] == 1);
}

/* A batch that goes backwards: the last matrix of the second factor begins one element before the data. */
static void test_backwards(void) {
  enum { B = 2, N = 2 };
  static int64_t extents[] = {B, N, N}, forwards[] = {N * N, N, 1}, backwards[] = {-1, N * B, B};
  float x[B * N * N], w[B * N * N], y[B * N * N] = {0};
  for (int i = 0; i < B * N * N; i++) x[i] = (float)i, w[i] = (float)(i * i % 7);
  weir_program *p =
      compile("fusion f { x : f32[2, 2, 2]; w : f32[2, 2, 2]; y = matmul(x, w); return y }");
  weir_dl_tensor all[] = {tensor(x), tensor(w + B - 1), tensor(y)};
  for (int i = 0; i < 3; i++) all[i].ndim = 3, all[i].shape = extents, all[i].strides = forwards;
  all[1].strides = backwards;
  const weir_dl_tensor *in[] = {&all[0], &all[1]}, *out[] = {&all[2]};
  for (int definition = 0; definition < 2; definition++) {
    weir_run_args args = {
        .struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out, .n_outputs = 1};
    args.as_definition = definition;
    memset(y, 0, sizeof y);
    EXPECT_INT(weir_run(p, &args), WEIR_OK);
    for (int i = 0; i < B * N * N; i++) {
      int b = i / (N * N), row = i / N % N, column = i % N;
      const float *a = &x[b * N * N + row * N], *c = &w[B - 1 - b + B * column];
      EXPECT(y[i] == a[0] * c[0] + a[1] * c[N * B]);
    }
  }
  weir_program_destroy(p);
}

static void test_addresses(const weir_program *p) {
  float x[32] = {1}, w[16] = {2}, y[16], z[16];
  tensors good = {tensor(x), tensor(w), tensor(y), tensor(z)}, t = good;
  t.x.data = (char *)x + 1;
  expect_refused(p, &t, "input x is not aligned to its elements of 4 bytes");
  t = good;
  t.y.byte_offset = 2;
  expect_refused(p, &t, "output y is not aligned");
  t = good;
  t.x.strides = (int64_t[]){INT64_MAX / 4, 1};
  expect_refused(p, &t, "strides of input x");
  t.x.strides = (int64_t[]){INT64_MIN, 1};
  expect_refused(p, &t, "strides of input x");
  t.x.strides = (int64_t[]){-(INT64_MAX / 64), 1};
  expect_refused(p, &t, "out of the address space");
  t = good;
  t.x.device.device_type = 7;
  expect_refused(p, &t, "device of type 7");
  t.x.device = (weir_dl_device){2, -1};
  expect_refused(p, &t, "GPU -1");
  /* memory that the host reaches is the host's */
  for (int type = 3; type <= 13; type += 10) {
    t.x.device = (weir_dl_device){type, 0};
    EXPECT_INT(run(p, &t), WEIR_OK);
  }
}

static void test_sizes(const weir_program *p) {
  weir_run_args args = {.n_inputs = 2};
  weir_devices d = {0};
  EXPECT_INT(weir_run(p, &args), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "struct_size is 0");
  EXPECT_INT(weir_program_devices(p, &d), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "struct_size is 0");
}

static void test_allocators(void) {
  weir_allocator none = {0};
  weir_module *m = NULL;
  weir_array *a = NULL;
  EXPECT_INT(weir_module_create(&none, &m), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "weir_module_create: the allocator lacks a function");
  EXPECT_INT(weir_module_parse("t", sum, strlen(sum), &none, &m), WEIR_BAD_USAGE);
  EXPECT_INT(weir_module_load("t", &none, &m), WEIR_BAD_USAGE);
  EXPECT_INT(weir_array_create(WEIR_F32, shape, 2, &none, &a), WEIR_BAD_USAGE);
  EXPECT_INT(weir_array_load_npy("t", &none, &a), WEIR_BAD_USAGE);
}

/* What is refused binds nothing. */
static void test_shapes(void) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_shapes *s = NULL;
  weir_tensor x;
  const char *text = "fusion f { x : f32[n, n, k]; y = neg(x); return y }";
  EXPECT_INT(weir_module_parse("t", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_shapes_create(f, &s), WEIR_OK);
  EXPECT_INT(weir_fusion_input_at(f, 0, &x), WEIR_OK);
  EXPECT_INT(weir_shapes_input(s, x, (const int64_t[]){3, 5, 2}, 3, NULL), WEIR_BAD_PROGRAM);
  EXPECT_INT(weir_shapes_define(s, "n=3,k=two"), WEIR_BAD_PROGRAM);
  EXPECT_INT(weir_shapes_define(s, "n=3,"), WEIR_BAD_PROGRAM);
  EXPECT_INT(weir_shapes_unbound(s), 3);
  EXPECT_INT(weir_shapes_define(s, "n=7,k=2"), WEIR_OK);
  EXPECT_INT(weir_shapes_complete(s), WEIR_OK);
  weir_shapes_destroy(s);
  weir_module_destroy(m);
}

int main(void) {
  weir_program *p = compile(sum);
  test_random_overlaps();
  test_overlaps(p);
  test_own_strides(p);
  test_backwards();
  test_addresses(p);
  test_sizes(p);
  weir_program_destroy(p);
  test_allocators();
  test_shapes();
  return test_finish();
}
