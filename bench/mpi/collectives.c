/* OpenMPI's allgather and allreduce through shared memory, for bench/inproc, which compiles this with
 * mpicc and runs it under mpirun. Prints one line per kind and size: kind, MiB, median seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, MIB = 1 << 20 };

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void once(int gathers, int ranks, size_t bytes, float *in, float *out) {
  int n = (int)(bytes / sizeof(float));
  if (gathers) MPI_Allgather(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
  else MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double median_s(int gathers, int ranks, size_t bytes, float *in, float *out) {
  double times[ROUNDS];
  int repeats = bytes >= 16 * MIB ? 1 : (int)(16 * MIB / bytes);
  once(gathers, ranks, bytes, in, out);
  for (int r = 0; r < ROUNDS; r++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int k = 0; k < repeats; k++) once(gathers, ranks, bytes, in, out);
    MPI_Barrier(MPI_COMM_WORLD);
    times[r] = (MPI_Wtime() - start) / repeats;
  }
  qsort(times, ROUNDS, sizeof *times, by_value);
  return times[ROUNDS / 2];
}

int main(int argc, char **argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  float *in = malloc(64 * MIB), *out = malloc(64 * MIB);
  if (!in || !out) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(in, 0, 64 * MIB);
  memset(out, 0, 64 * MIB);
  for (int gathers = 1; gathers >= 0; gathers--)
    for (size_t mib = 1; mib <= 64; mib *= 2) {
      double t = median_s(gathers, ranks, mib * MIB, in, out);
      if (rank == 0) printf("%s %zu %.9f\n", gathers ? "allgather" : "allreduce", mib, t);
    }
  MPI_Finalize();
  return 0;
}
