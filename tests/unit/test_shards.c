/* Tensors given and returned as the parts that devices hold. */
#include <weir/weir.h>

#include "base/memory.h"
#include "test.h"

/* x: rows on devices 0 and 1; w on both; z: columns on devices 2 and 1; 5 rows are 3 and 2. */
static const char text[] = "fusion f {\n"
                           "  mesh a = [2]\n"
                           "  mesh b = [2] of {2, 1}\n"
                           "  x : f32[n, 4]\n"
                           "  w : f32[4]\n"
                           "  z = x * w\n"
                           "  return z, x\n"
                           "  schedule {\n"
                           "    x, w on a\n"
                           "    z on b\n"
                           "    x.outer_split(0, a); x[0] = mesh.x\n"
                           "    z.outer_split(1, b); z[1] = mesh.x\n"
                           "  }\n"
                           "}\n";
enum { N = 5, K = 4 };

typedef struct setup {
  weir_module *m;
  weir_fusion *f;
  weir_shapes *shapes;
  weir_program *p;
} setup;

static weir_status setup_make(const char *device, const weir_allocator *memory, setup *s) {
  weir_options *o = NULL;
  *s = (setup){0};
  weir_status st = weir_module_parse("p.weir", text, sizeof text - 1, memory, &s->m);
  if (st == WEIR_OK) st = weir_module_find(s->m, NULL, &s->f);
  if (st == WEIR_OK) st = weir_shapes_create(s->f, &s->shapes);
  if (st == WEIR_OK) st = weir_shapes_define(s->shapes, "n=5");
  if (st == WEIR_OK) st = weir_shapes_complete(s->shapes);
  if (st == WEIR_OK) st = weir_options_create(&o);
  if (st == WEIR_OK) st = weir_options_set(o, "threads", "1");
  if (st == WEIR_OK) st = weir_options_set(o, "device", device);
  if (st == WEIR_OK) st = weir_compile(s->f, o, memory, &s->p);
  weir_options_destroy(o);
  return st;
}

static void setup_free(setup *s) {
  weir_program_destroy(s->p);
  weir_shapes_destroy(s->shapes);
  weir_module_destroy(s->m);
}

/* ---- tensors ---- */
typedef struct part {
  weir_dl_tensor t;
  int64_t shape[2], strides[2];
} part;

/* rows x columns at `data`; a column count of -1 makes it of rank 1. */
static const weir_dl_tensor *part_of(part *p, float *data, int64_t rows, int64_t columns,
                                     bool fortran) {
  *p = (part){.shape = {rows, columns < 0 ? 1 : columns}};
  p->strides[0] = fortran ? 1 : p->shape[1];
  p->strides[1] = fortran ? rows : 1;
  p->t = (weir_dl_tensor){.data = data, .device = {1, 0}, .dtype = weir_dtype_to_dl(WEIR_F32)};
  p->t.ndim = columns < 0 ? 1 : 2;
  p->t.shape = p->shape;
  p->t.strides = p->strides;
  return &p->t;
}

typedef struct tensors {
  float x0[3 * K], x1[2 * K], w[K], z1[N * 2], z2[N * 2], back0[3 * K], back1[2 * K], whole[N * K];
  part parts[12];
  const weir_dl_tensor *x[3], *ws[3], *z[3], *back[3];
  const weir_dl_tensor *const *in[2], *const *out[2];
  const weir_dl_tensor *none[2];
  weir_run_args args;
} tensors;

static float value(int64_t r, int64_t c) { return (float)(r * 10 + c); }

/* fortran: the shards are not dense. */
static void tensors_make(tensors *t, const setup *s, bool fortran) {
  *t = (tensors){0};
  for (int64_t c = 0; c < K; c++) {
    for (int64_t r = 0; r < 3; r++) t->x0[fortran ? c * 3 + r : r * K + c] = value(r, c);
    for (int64_t r = 0; r < 2; r++) t->x1[fortran ? c * 2 + r : r * K + c] = value(r + 3, c);
    t->w[c] = (float)(c + 1);
  }
  t->x[0] = part_of(&t->parts[0], t->x0, 3, K, fortran);
  t->x[1] = part_of(&t->parts[1], t->x1, 2, K, fortran);
  t->ws[0] = t->ws[1] = part_of(&t->parts[2], t->w, K, -1, false);
  t->z[1] = part_of(&t->parts[3], t->z1, N, 2, fortran);
  t->z[2] = part_of(&t->parts[4], t->z2, N, 2, fortran);
  t->back[0] = part_of(&t->parts[5], t->back0, 3, K, false);
  t->back[1] = part_of(&t->parts[6], t->back1, 2, K, fortran);
  t->in[0] = t->x, t->in[1] = t->ws;
  t->out[0] = t->z, t->out[1] = t->back;
  t->args = (weir_run_args){.struct_size = sizeof t->args, .inputs = t->none, .n_inputs = 2};
  t->args.outputs = t->none;
  t->args.n_outputs = 2;
  t->args.input_shards = t->in;
  t->args.output_shards = t->out;
  t->args.shapes = s->shapes;
}

/* ---- tests ---- */
static void test_places(void) {
  setup s;
  weir_devices d = {.struct_size = sizeof d};
  weir_shard h = {.struct_size = sizeof h};
  EXPECT_INT(setup_make("cpu", NULL, &s), WEIR_OK);
  EXPECT_INT(weir_program_devices(s.p, &d), WEIR_OK);
  EXPECT(d.first == 0 && d.count == 3 && d.world == 3);
  EXPECT_INT(weir_program_shard(s.p, s.shapes, WEIR_INPUT, 0, 1, &h), WEIR_OK);
  EXPECT(h.present && h.rank == 2 && h.owner == 1);
  EXPECT(h.begin[0] == 3 && h.extents[0] == 2 && h.whole[0] == N && h.whole[1] == K);
  EXPECT_INT(weir_program_shard(s.p, s.shapes, WEIR_INPUT, 1, 1, &h), WEIR_OK);
  EXPECT(h.present && h.owner == 0);
  EXPECT_INT(weir_program_shard(s.p, s.shapes, WEIR_OUTPUT, 0, 0, &h), WEIR_OK);
  EXPECT(!h.present);
  EXPECT_INT(weir_program_shard(s.p, s.shapes, WEIR_OUTPUT, 0, 1, &h), WEIR_OK);
  EXPECT(h.present && h.begin[1] == 2 && h.extents[1] == 2);
  EXPECT_INT(weir_program_shard(s.p, s.shapes, WEIR_INPUT, 2, 0, &h), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "2 inputs");
  EXPECT_INT(weir_program_agree(s.p, WEIR_OK, NULL), WEIR_OK);
  EXPECT_INT(weir_program_agree(s.p, WEIR_SYSTEM, "the disk is full"), WEIR_SYSTEM);
  EXPECT_STR(weir_error(), "the disk is full");
  setup_free(&s);
  EXPECT_INT(setup_make("ref", NULL, &s), WEIR_OK);
  EXPECT_INT(weir_program_shard(s.p, s.shapes, WEIR_INPUT, 0, 0, &h), WEIR_BAD_USAGE);
  EXPECT_INT(weir_program_devices(s.p, &d), WEIR_OK);
  EXPECT(d.first == 0 && d.count == 1 && d.world == 1);
  setup_free(&s);
}

/* Of a tensor whose own extents are known; others need not be. */
static void test_partial_shapes(void) {
  setup s;
  weir_shapes *some = NULL;
  weir_shard h = {.struct_size = sizeof h};
  weir_tensor x;
  const int64_t extents[] = {N, K};
  EXPECT_INT(setup_make("cpu", NULL, &s), WEIR_OK);
  EXPECT_INT(weir_shapes_create(s.f, &some), WEIR_OK);
  EXPECT_INT(weir_program_shard(s.p, some, WEIR_INPUT, 0, 1, &h), WEIR_BAD_PROGRAM);
  EXPECT_CONTAINS(weir_error(), "not all of its extents are known");
  EXPECT_INT(weir_fusion_input_at(s.f, 0, &x), WEIR_OK);
  EXPECT_INT(weir_shapes_input(some, x, extents, 2, NULL), WEIR_OK);
  EXPECT_INT(weir_program_shard(s.p, some, WEIR_INPUT, 0, 1, &h), WEIR_OK);
  EXPECT(h.begin[0] == 3 && h.extents[0] == 2 && h.whole[0] == N);
  weir_shapes_destroy(some);
  setup_free(&s);
}

static void test_run(bool fortran) {
  setup s;
  tensors t;
  EXPECT_INT(setup_make("cpu", NULL, &s), WEIR_OK);
  tensors_make(&t, &s, fortran);
  for (int turn = 0; turn < 2; turn++) {
    EXPECT_INT(weir_run(s.p, &t.args), WEIR_OK);
    for (int64_t r = 0; r < N; r++)
      for (int64_t c = 0; c < K; c++) {
        const float *z = c < 2 ? t.z2 : t.z1; /* device 2 is the first of the mesh */
        EXPECT(z[fortran ? c % 2 * N + r : r * 2 + c % 2] == value(r, c) * (float)(c + 1));
      }
    EXPECT(memcmp(t.back1, t.x1, sizeof t.x1) == 0);
    EXPECT(t.back0[K + 2] == value(1, 2));
    t.w[0] = 1;
  }
  part whole;
  (void)part_of(&whole, t.whole, N, K, false);
  EXPECT_INT(weir_program_join(s.p, s.shapes, WEIR_OUTPUT, 0, t.z, true, &whole.t), WEIR_OK);
  EXPECT(t.whole[2 * K + 3] == value(2, 3) * 4 && t.whole[4 * K] == value(4, 0));
  setup_free(&s);
}

static void test_replicas(void) {
  setup s;
  tensors t;
  part other;
  float w[K] = {1, 2, 3, 5};
  EXPECT_INT(setup_make("cpu", NULL, &s), WEIR_OK);
  tensors_make(&t, &s, false);
  EXPECT_INT(weir_program_join(s.p, s.shapes, WEIR_INPUT, 1, t.ws, false, NULL), WEIR_OK);
  t.ws[1] = part_of(&other, w, K, -1, false);
  EXPECT_INT(weir_program_join(s.p, s.shapes, WEIR_INPUT, 1, t.ws, false, NULL), WEIR_BAD_INPUT);
  EXPECT_CONTAINS(weir_error(), "devices 0 and 1 hold the same part of input w");
  (void)part_of(&other, t.whole, N, 3, false);
  EXPECT_INT(weir_program_join(s.p, s.shapes, WEIR_INPUT, 0, t.x, true, &other.t), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), "shape");
  setup_free(&s);
}

static void expect_refused(const setup *s, const tensors *t, const char *why) {
  EXPECT_INT(weir_run(s->p, &t->args), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), why);
}

static void test_refusals(void) {
  setup s;
  tensors t;
  part p;
  EXPECT_INT(setup_make("cpu", NULL, &s), WEIR_OK);
  tensors_make(&t, &s, false);
  t.args.shapes = NULL;
  expect_refused(&s, &t, "shapes are needed");
  tensors_make(&t, &s, false);
  t.x[1] = NULL;
  expect_refused(&s, &t, "device 1 holds a part of input x, but no shard is given");
  tensors_make(&t, &s, false);
  t.x[2] = t.x[1];
  expect_refused(&s, &t, "device 2 holds nothing of input x");
  tensors_make(&t, &s, false);
  t.x[1] = t.x[0];
  expect_refused(&s, &t, "the shard of input x on device 1 has shape [3, 4], but needs [2, 4]");
  tensors_make(&t, &s, false);
  t.z[1] = part_of(&p, t.whole, N, 3, false);
  expect_refused(&s, &t, "the shard of output z on device 1 has shape [5, 3], but needs [5, 2]");
  tensors_make(&t, &s, false);
  t.parts[3].strides[0] = 0;
  expect_refused(&s, &t, "share memory");
  tensors_make(&t, &s, false);
  t.parts[0].t.dtype = weir_dtype_to_dl(WEIR_I32);
  expect_refused(&s, &t, "i32");
  tensors_make(&t, &s, false);
  t.args.as_definition = true;
  expect_refused(&s, &t, "whole");
  tensors_make(&t, &s, false);
  EXPECT_INT(weir_run(s.p, &t.args), WEIR_OK);
  setup_free(&s);
}

/* Strided whole tensors are cut as any other. */
static void test_strided_whole(void) {
  setup s;
  part parts[4];
  float x[N * K], w[K], z[N * K], back[N * K];
  EXPECT_INT(setup_make("cpu", NULL, &s), WEIR_OK);
  for (int64_t c = 0; c < K; c++) {
    for (int64_t r = 0; r < N; r++) x[c * N + r] = value(r, c);
    w[c] = (float)(c + 1);
  }
  const weir_dl_tensor *in[] = {part_of(&parts[0], x, N, K, true),
                                part_of(&parts[1], w, K, -1, false)};
  const weir_dl_tensor *out[] = {part_of(&parts[2], z, N, K, true),
                                 part_of(&parts[3], back, N, K, false)};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out};
  args.n_outputs = 2;
  EXPECT_INT(weir_run(s.p, &args), WEIR_OK);
  for (int64_t r = 0; r < N; r++)
    for (int64_t c = 0; c < K; c++) {
      EXPECT(z[c * N + r] == value(r, c) * (float)(c + 1));
      EXPECT(back[r * K + c] == value(r, c));
    }
  setup_free(&s);
}

/* Every allocation fails once. */
static void test_memory(void) {
  weir_status st = WEIR_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != WEIR_OK && n < 20000; n++) {
    memory_faults faults = {.fail_at = n};
    allocator a = memory_faulty(&faults);
    weir_allocator memory = {a.alloc, a.free, a.context};
    setup s;
    tensors t;
    part whole;
    st = setup_make("cpu", &memory, &s);
    if (st == WEIR_OK) {
      tensors_make(&t, &s, true);
      (void)part_of(&whole, t.whole, N, K, false);
      st = weir_run(s.p, &t.args);
      if (st == WEIR_OK) st = weir_program_join(s.p, s.shapes, WEIR_OUTPUT, 0, t.z, true, &whole.t);
    }
    EXPECT(st == WEIR_OK || st == WEIR_OUT_OF_MEMORY);
    setup_free(&s);
    EXPECT_INT(faults.live, 0);
  }
  EXPECT_INT(st, WEIR_OK);
}

int main(void) {
  test_places();
  test_partial_shapes();
  test_run(false);
  test_run(true);
  test_replicas();
  test_refusals();
  test_strided_whole();
  test_memory();
  return test_finish();
}
