/* A program that has its own MPI, and gives Weir communicators of it: halves of the ranks run
 * different programs at the same time, then all run one, in worlds that come and go; MPI goes on
 * afterwards. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

enum { ROWS = 6, COLUMNS = 8 };

static int me, failures;

static void expect(int ok, const char *what) {
  if (ok) return;
  failures++;
  fprintf(stderr, "rank %d: %s: %s\n", me, what, weir_error());
}

/* Of `n` devices: each holds some of the rows, and all get the sum over them. */
static weir_program *compile(int n, const weir_world *world) {
  char text[512];
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  int length =
      snprintf(text, sizeof text,
               "fusion f {\n mesh d = [%d]\n x : f32[n, %d]\n y = sum(x, dims=[0])\n return y\n"
               " schedule { x, y on d; x.outer_split(0, d); x[0] = mesh.x }\n}",
               n, COLUMNS);
  expect(weir_module_parse("f.weir", text, (size_t)length, NULL, &m) == WEIR_OK, "parse");
  expect(weir_module_find(m, NULL, &f) == WEIR_OK, "find");
  expect(weir_options_create(&o) == WEIR_OK, "options");
  expect(weir_options_set_world(o, world) == WEIR_OK, "world");
  expect(weir_compile(f, o, NULL, &p) == WEIR_OK, "compile");
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static void run(const weir_program *p, int n) {
  float x[ROWS * 4][COLUMNS], y[COLUMNS];
  int64_t in[] = {ROWS * n, COLUMNS}, out[] = {COLUMNS};
  weir_dl_tensor a = {.data = x, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = in};
  weir_dl_tensor b = {.data = y, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = out};
  const weir_dl_tensor *inputs[] = {&a}, *outputs[] = {&b};
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 1};
  args.outputs = outputs;
  args.n_outputs = 1;
  for (int i = 0; i < ROWS * 4; i++)
    for (int k = 0; k < COLUMNS; k++) x[i][k] = (float)k;
  expect(p && weir_run(p, &args) == WEIR_OK, "run");
  for (int k = 0; k < COLUMNS; k++) expect(y[k] == (float)(k * ROWS * n), "sum");
}

static void use(MPI_Comm comm) {
  weir_world_args a = {.struct_size = sizeof a, .mpi_comm = &comm};
  weir_world_info d = {.struct_size = sizeof d};
  weir_world *w = NULL;
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  expect(weir_world_create(&a, &w) == WEIR_OK, "create");
  if (!w) return;
  expect(weir_world_describe(w, &d) == WEIR_OK && d.rank == rank && d.size == size, "describe");
  expect(strcmp(d.carrier, "mpi") == 0, "carrier");
  weir_program *p = compile(size, w);
  weir_world_destroy(w); /* the program keeps it */
  for (int i = 0; i < 3; i++) run(p, size);
  weir_program_destroy(p);
}

int main(int argc, char **argv) {
  int provided, n;
  weir_world *w = NULL;
  MPI_Comm none = MPI_COMM_NULL, half;
  weir_world_args bad = {.struct_size = sizeof bad, .mpi_comm = &none};
  expect(weir_world_create(&bad, &w) != WEIR_OK && strstr(weir_error(), "MPI_Init"), "too early");
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  expect(weir_world_create(&bad, &w) != WEIR_OK && strstr(weir_error(), "MPI_COMM_NULL"), "null");
  bad = (weir_world_args){.struct_size = sizeof bad, .mpi_comm = &half, .rank = me, .size = n + 1};
  MPI_Comm_dup(MPI_COMM_WORLD, &half);
  expect(weir_world_create(&bad, &w) != WEIR_OK && strstr(weir_error(), "is asked for"), "size");
  MPI_Comm_free(&half);
  MPI_Comm_split(MPI_COMM_WORLD, me * 2 / n, 0, &half);
  use(half);
  use(MPI_COMM_WORLD);
  use(half);
  MPI_Comm_free(&half);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (me == 0) printf("%d ranks: %s\n", n, all ? "failed" : "ok");
  return all != 0;
}
