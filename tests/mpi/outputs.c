/* outputs: on every rank weir_run() writes what its device holds of an output, all of it where the
 * output is replicated; donated memory that is used again is refused on every rank, and nothing is
 * lost. Run by mpirun on two ranks. */
#include <string.h>

#include "test.h"
#include "weir/weir.h"

static const char sums[] = "fusion sums {\n"
                           "  mesh d = [2]\n"
                           "  x : f32[4, 3]\n"
                           "  y = sum(x, dims=[0])\n"
                           "  return y\n"
                           "  schedule { x on d; x.outer_split(0, d); x[0] = mesh.x }\n"
                           "}\n";

/* Each rank updates its half of the weights in place, and rank 0 gets both; the norm needs both. */
static const char update[] =
    "fusion update {\n"
    "  mesh d = [2]\n"
    "  w : f32[2, 3]\n"
    "  g : f32[2, 3]\n"
    "  y = w - 0.5 * g\n"
    "  z = sum(g * g, dims=[0, 1])\n"
    "  return y, z\n"
    "  schedule { w, g, y on d; w[0] = mesh.x; g[0] = mesh.x; y[0] = mesh.x }\n"
    "}\n";

/* ---- outputs ---- */
static void run(const weir_program *p) {
  float x[12], y[3] = {-1, -1, -1};
  int64_t of_x[] = {4, 3}, of_y[] = {3};
  for (int i = 0; i < 12; i++) x[i] = (float)i;
  weir_dl_tensor in = {.data = x, .device = {1, 0}, .ndim = 2, .shape = of_x};
  weir_dl_tensor out = {.data = y, .device = {1, 0}, .ndim = 1, .shape = of_y};
  in.dtype = out.dtype = weir_dtype_to_dl(WEIR_F32);
  const weir_dl_tensor *inputs[] = {&in}, *outputs[] = {&out};
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 1};
  args.outputs = outputs;
  args.n_outputs = 1;
  EXPECT_INT(weir_run(p, &args), WEIR_OK);
  EXPECT(y[0] == 18 && y[1] == 22 && y[2] == 26);
}

/* ---- donated memory ---- */
static weir_dl_tensor tensor_of(float *data, int64_t *shape, int32_t rank) {
  weir_dl_tensor t = {.data = data, .device = {1, 0}, .ndim = rank, .shape = shape};
  t.dtype = weir_dtype_to_dl(WEIR_F32);
  return t;
}

static void refuse(const weir_program *p, const weir_run_args *args, const char *message) {
  EXPECT_INT(weir_run(p, args), WEIR_BAD_USAGE);
  EXPECT_CONTAINS(weir_error(), message);
}

static void use_again(const weir_program *p) {
  float w[6], g[6], z = -1;
  int64_t of_w[] = {2, 3}, gifts[] = {0, -1};
  int64_t me = weir_launch_rank();
  for (int i = 0; i < 6; i++) w[i] = (float)i, g[i] = 2;
  weir_dl_tensor tw = tensor_of(w, of_w, 2), tg = tensor_of(g, of_w, 2);
  weir_dl_tensor tz = tensor_of(&z, NULL, 0), in_w = tensor_of(w + 5, NULL, 0);
  const weir_dl_tensor *inputs[] = {&tw, &tw}, *outputs[] = {&tw, &tz};
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 2};
  args.outputs = outputs;
  args.n_outputs = 2;
  args.donated = gifts;
  refuse(p, &args, "donated input w overlaps input g");
  inputs[1] = &tg;
  outputs[1] = &in_w;
  refuse(p, &args, "donated input w overlaps output z");
  gifts[1] = 0;
  refuse(p, &args, "input w is given to output y already");
  for (int i = 0; i < 6; i++) EXPECT(w[i] == (float)i && g[i] == 2);
  gifts[1] = -1; /* the ranks still fit together */
  outputs[1] = &tz;
  for (int k = 1; k <= 2; k++) {
    EXPECT_INT(weir_run(p, &args), WEIR_OK);
    for (int i = 0; i < 6; i++) EXPECT(w[i] == (float)(me == 0 || i >= 3 ? i - k : i));
    EXPECT(z == 24);
  }
}

/* ---- both ---- */
static void test_program(const char *text, void (*test)(const weir_program *p)) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  EXPECT_INT(weir_module_parse("outputs.weir", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  if (EXPECT(weir_compile(f, NULL, NULL, &p) == WEIR_OK)) test(p);
  weir_program_destroy(p);
  weir_module_destroy(m);
}

int main(void) {
  EXPECT(weir_launch_rank() >= 0);
  test_program(sums, run);
  test_program(update, use_again);
  return test_finish();
}
