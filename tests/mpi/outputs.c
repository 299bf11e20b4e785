/* outputs: on every rank weir_run() writes what its device holds of an output, all of it where the output is
 * replicated. Run by mpirun on two ranks. */
#include <string.h>

#include "test.h"
#include "weir/weir.h"

static const char text[] = "fusion sums {\n"
                           "  mesh d = [2]\n"
                           "  x : f32[4, 3]\n"
                           "  y = sum(x, dims=[0])\n"
                           "  return y\n"
                           "  schedule { x on d; x.outer_split(0, d); x[0] = mesh.x }\n"
                           "}\n";

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

int main(void) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  EXPECT(weir_launch_rank() >= 0);
  EXPECT_INT(weir_module_parse("sums.weir", text, strlen(text), NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  if (EXPECT(weir_compile(f, NULL, NULL, &p) == WEIR_OK)) run(p);
  weir_program_destroy(p);
  weir_module_destroy(m);
  return test_finish();
}
