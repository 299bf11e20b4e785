/* In-process collectives against hand-written ones, and against OpenMPI's shared memory.
 *
 * allgather and allreduce (f32 sum) of S = 1 to 64 MiB per device, on 2 and 4 devices, a thread each.
 * The hand-written ones use the same threads and a barrier of their own; the ceiling is the fastest
 * of them at each size:
 *   pull     each thread copies all pieces into its result, or reduces its slice and copies the others
 *   push     each thread copies its piece into all results, or reduces its slice into all of them
 *   pull-nt, push-nt   the same with non-temporal stores
 * All run interleaved in one process; medians. S / time in GB/s. Goal: 90% of the ceiling, and faster
 * than OpenMPI (bench/mpi/collectives.c), which runs right after; skipped where it is not installed. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/comm.h"
#include "runtime/device.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { ROUNDS = 21, MAX_DEVICES = 4, MAX_MIB = 64, MIB = 1 << 20, SIZES = 7 };
enum { WEIR, PULL, PUSH, PULL_NT, PUSH_NT, VARIANTS };
static const char *const variant_names[] = {"weir", "pull", "push", "pull-nt", "push-nt"};

typedef struct bench {
  uint32_t devices, cores;
  bool gathers; /* else allreduce */
  size_t bytes; /* per result */
  int variant, repeats;
  float *in[MAX_DEVICES], *out[MAX_DEVICES];
  rt_comm *comms[MAX_DEVICES];
  _Atomic uint32_t arrived, phase;
  _Atomic bool is_over;
  int64_t start_ns[MAX_DEVICES], end_ns[MAX_DEVICES];
} bench;

static void require(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "bench/inproc: %s: %s\n", what, status_message());
  exit(1);
}

/* ---- by hand ---- */
/* Spins where every thread has a core, yields otherwise. */
static void barrier(bench *b) {
  uint32_t phase = atomic_load(&b->phase);
  if (atomic_fetch_add(&b->arrived, 1) + 1 == b->devices) {
    atomic_store(&b->arrived, 0);
    atomic_store(&b->phase, phase + 1);
    return;
  }
  for (uint32_t spins = 0; atomic_load(&b->phase) == phase; spins++)
    if (b->devices > b->cores || spins > 100000) (void)sched_yield();
}

static void copy(float *to, const float *from, size_t bytes, bool nt) {
#if defined(__x86_64__)
  if (nt) {
    for (size_t i = 0; i < bytes / 16; i += 4) {
      __m128 a = _mm_loadu_ps(from + 4 * i), c = _mm_loadu_ps(from + 4 * i + 4);
      __m128 d = _mm_loadu_ps(from + 4 * i + 8), e = _mm_loadu_ps(from + 4 * i + 12);
      _mm_stream_ps(to + 4 * i, a);
      _mm_stream_ps(to + 4 * i + 4, c);
      _mm_stream_ps(to + 4 * i + 8, d);
      _mm_stream_ps(to + 4 * i + 12, e);
    }
    _mm_sfence();
    return;
  }
#else
  (void)nt;
#endif
  memcpy(to, from, bytes);
}

static void gather_by_hand(bench *b, uint32_t me, bool push, bool nt) {
  size_t piece = b->bytes / b->devices, n = piece / sizeof(float), block = 64 << 10;
  if (!push) {
    for (uint32_t k = 0; k < b->devices; k++) {
      uint32_t p = (me + k) % b->devices;
      copy(b->out[me] + p * n, b->in[p], piece, nt);
    }
    return;
  }
  for (size_t at = 0; at < piece; at += block)
    for (uint32_t k = 0; k < b->devices; k++) {
      float *to = b->out[(me + k) % b->devices] + me * n + at / sizeof(float);
      copy(to, b->in[me] + at / sizeof(float), piece - at < block ? piece - at : block, nt);
    }
}

/* out = the sum of all inputs at `at`. */
static void sum_block(const bench *b, size_t at, size_t n, float *out) {
  const float *x = b->in[0] + at, *y = b->in[1] + at;
  if (b->devices == 2) {
    for (size_t i = 0; i < n; i++) out[i] = x[i] + y[i];
    return;
  }
  const float *z = b->in[2] + at, *w = b->in[3] + at;
  for (size_t i = 0; i < n; i++) out[i] = x[i] + y[i] + z[i] + w[i];
}

static void reduce_by_hand(bench *b, uint32_t me, bool push, bool nt) {
  enum { BLOCK = 2048 };
  static _Thread_local float sum[BLOCK] __attribute__((aligned(64)));
  size_t n = b->bytes / sizeof(float) / b->devices, first = me * n;
  for (size_t at = first; at < first + n; at += BLOCK) {
    float *direct = b->out[me] + at;
    sum_block(b, at, BLOCK, nt ? sum : direct);
    for (uint32_t k = nt ? 0 : 1; k < (push ? b->devices : 1); k++)
      copy(b->out[(me + k) % b->devices] + at, nt ? sum : direct, BLOCK * sizeof(float), nt);
  }
  if (push) return;
  barrier(b);
  for (uint32_t k = 1; k < b->devices; k++) {
    uint32_t p = (me + k) % b->devices;
    copy(b->out[me] + p * n, b->out[p] + p * n, n * sizeof(float), nt);
  }
}

static void run_by_hand(bench *b, uint32_t me) {
  bool push = b->variant == PUSH || b->variant == PUSH_NT, nt = b->variant >= PULL_NT;
  for (int k = 0; k < b->repeats; k++) {
    if (b->gathers) gather_by_hand(b, me, push, nt);
    else reduce_by_hand(b, me, push, nt);
    barrier(b);
  }
}

/* ---- by Weir ---- */
static void run_by_weir(bench *b, uint32_t me) {
  static const uint32_t team[] = {0, 1, 2, 3};
  rt_comm *comm = b->comms[me];
  rt_comm_request r = {.dtype = IR_F32, .team = team, .n_team = b->devices, .me = me};
  r.kind = b->gathers ? IR_COMM_ALLGATHER : IR_COMM_ALLREDUCE;
  r.count = (int64_t)(b->bytes / sizeof(float) / (b->gathers ? b->devices : 1));
  r.in = b->in[me], r.out = b->out[me];
  for (int k = 0; k < b->repeats; k++) {
    rt_comm_ticket ticket;
    require(comm->ops->post(comm, &r, &ticket) == STATUS_OK, "post");
    require(comm->ops->wait(comm, &ticket, -1) == STATUS_OK, "wait");
  }
}

/* ---- measuring ---- */
static void run_round(bench *b, uint32_t me) {
  barrier(b);
  b->start_ns[me] = rt_clock_ns();
  if (b->variant == WEIR) run_by_weir(b, me);
  else run_by_hand(b, me);
  b->end_ns[me] = rt_clock_ns();
  barrier(b);
}

/* From the first to begin to the last to end: with fewer cores than threads, a thread may leave the
 * barrier when the others have done half of the work. */
static int64_t elapsed_ns(const bench *b) {
  int64_t start_ns = b->start_ns[0], end_ns = b->end_ns[0];
  for (uint32_t i = 1; i < b->devices; i++) {
    if (b->start_ns[i] < start_ns) start_ns = b->start_ns[i];
    if (b->end_ns[i] > end_ns) end_ns = b->end_ns[i];
  }
  return end_ns - start_ns;
}

typedef struct device {
  bench *b;
  uint32_t me;
  pthread_t handle;
} device;

/* Every round is one meeting at the start and one at the end of run_round(). */
static void *device_main(void *context) {
  device *d = context;
  for (;;) {
    barrier(d->b);
    if (atomic_load(&d->b->is_over)) return NULL;
    run_round(d->b, d->me);
  }
}

/* The second of two, so that no variant pays for what the one before it left in the caches. */
static double timed_round(bench *b, int variant) {
  b->variant = variant;
  for (int k = 0; k < 2; k++) {
    barrier(b);
    run_round(b, 0);
  }
  return (double)elapsed_ns(b) * 1e-9 / b->repeats;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median seconds of every variant. */
static void measure(bench *b, double *seconds) {
  double times[VARIANTS][ROUNDS];
  b->repeats = b->bytes >= 16 * MIB ? 1 : (int)(16 * MIB / b->bytes);
  for (int round = -1; round < ROUNDS; round++) /* the first is for warming up */
    for (int v = 0; v < VARIANTS; v++) {
      int rotated = (v + round + 1) % VARIANTS;
      double t = timed_round(b, rotated);
      if (round >= 0) times[rotated][round] = t;
    }
  for (int v = 0; v < VARIANTS; v++) {
    qsort(times[v], ROUNDS, sizeof **times, by_value);
    seconds[v] = times[v][ROUNDS / 2];
  }
}

/* Both must compute the same. */
static void check_results(bench *b) {
  size_t n = b->bytes / sizeof(float), wrong = 0;
  for (uint32_t d = 0; d < b->devices; d++)
    for (size_t i = 0; i < n; i++) {
      uint32_t p = (uint32_t)(i / (n / b->devices));
      size_t at = b->gathers ? i % (n / b->devices) : i;
      float sum = 0;
      for (uint32_t k = 0; k < b->devices; k++) sum += (float)((at + k) % 1000);
      wrong += b->out[d][i] != (b->gathers ? (float)((at + p) % 1000) : sum);
    }
  require(wrong == 0, "wrong result");
}

static void check_once(bench *b, int variant) {
  for (uint32_t d = 0; d < b->devices; d++) memset(b->out[d], 0, b->bytes);
  (void)timed_round(b, variant);
  check_results(b);
}

/* ---- OpenMPI ---- */
typedef struct mpi_times {
  bool known;
  double seconds[2][SIZES]; /* by gathers */
} mpi_times;

static bool mpi_build(char *program, size_t size_bytes) {
  if (access("bench/mpi/collectives.c", R_OK) != 0) return false;
  (void)snprintf(program, size_bytes, "/tmp/weir-bench-mpi-%d", (int)getpid());
  char command[256];
  (void)snprintf(command, sizeof command,
                 "command -v mpirun >/dev/null && mpicc -O2 bench/mpi/collectives.c -o %s "
                 "2>/dev/null",
                 program);
  return system(command) == 0;
}

static void mpi_run(const char *program, uint32_t devices, mpi_times *times) {
  char command[512], kind[32];
  (void)snprintf(command, sizeof command,
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun -n "
                 "%u --bind-to none --oversubscribe --mca btl self,vader --mca "
                 "mpi_yield_when_idle %d %s 2>/dev/null",
                 devices, devices > 2, program);
  FILE *f = popen(command, "r");
  int lines = 0;
  size_t mib;
  double seconds;
  while (f && fscanf(f, "%31s %zu %lf", kind, &mib, &seconds) == 3) {
    int size = 0;
    while (size < SIZES && (size_t)1 << size != mib) size++;
    if (size < SIZES) times->seconds[strcmp(kind, "allgather") == 0][size] = seconds, lines++;
  }
  times->known = f && pclose(f) == 0 && lines == 2 * SIZES;
}

/* ---- the table ---- */
static bool print_row(const bench *b, const double *seconds, const mpi_times *mpi, int size) {
  int best = PULL;
  for (int v = PULL; v < VARIANTS; v++)
    if (seconds[v] < seconds[best]) best = v;
  double gb = (double)b->bytes * 1e-9, percent = 100 * seconds[best] / seconds[WEIR];
  double other = mpi->known ? mpi->seconds[b->gathers][size] : 0;
  bool pass = percent >= 90 && (!mpi->known || seconds[WEIR] < other);
  printf("%-9s %u %3zu MiB  weir %6.2f  hand %6.2f (%-7s) %4.0f%%",
         b->gathers ? "allgather" : "allreduce", b->devices, b->bytes / MIB, gb / seconds[WEIR],
         gb / seconds[best], variant_names[best], percent);
  if (mpi->known) printf("  openmpi %6.2f", gb / other);
  printf("  %s\n", pass ? "PASS" : "MISS");
  return pass;
}

static int run_devices(bench *b, const mpi_times *mpi) {
  device threads[MAX_DEVICES];
  rt_comm_options options = {.ranks = b->devices};
  uint32_t n;
  int misses = 0;
  require(rt_comm_inproc.open(&options, &memory_default, MAX_DEVICES, b->comms, &n) == STATUS_OK,
          "open");
  atomic_store(&b->is_over, false);
  for (uint32_t i = 1; i < n; i++) {
    threads[i] = (device){.b = b, .me = i};
    require(!pthread_create(&threads[i].handle, NULL, device_main, &threads[i]), "pthread_create");
  }
  for (int kind = 0; kind < 2; kind++)
    for (int size = 0; size < SIZES; size++) {
      double seconds[VARIANTS];
      b->gathers = kind == 0, b->bytes = (size_t)MIB << size;
      measure(b, seconds);
      for (int v = 0; v < VARIANTS; v++) check_once(b, v);
      misses += !print_row(b, seconds, mpi, size);
    }
  atomic_store(&b->is_over, true);
  barrier(b);
  for (uint32_t i = 1; i < n; i++) (void)pthread_join(threads[i].handle, NULL);
  for (uint32_t i = 0; i < n; i++) b->comms[i]->ops->close(b->comms[i]);
  return misses;
}

int main(void) {
  static bench b;
  char program[64];
  int misses = 0;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  b.cores = cores > 0 ? (uint32_t)cores : 1;
  for (int d = 0; d < MAX_DEVICES; d++) {
    b.in[d] = aligned_alloc(4096, (size_t)MAX_MIB * MIB);
    b.out[d] = aligned_alloc(4096, (size_t)MAX_MIB * MIB);
    require(b.in[d] && b.out[d], "memory");
    for (size_t i = 0; i < (size_t)MAX_MIB * MIB / sizeof(float); i++)
      b.in[d][i] = (float)((i + (size_t)d) % 1000);
    memset(b.out[d], 0, (size_t)MAX_MIB * MIB);
  }
  bool has_mpi = mpi_build(program, sizeof program);
  printf("GB/s of result per device, medians of %d rounds, %u cores\n", ROUNDS, b.cores);
  if (!has_mpi) printf("OpenMPI: skipped, mpicc or mpirun is not installed\n");
  for (b.devices = 2; b.devices <= MAX_DEVICES; b.devices += 2) {
    mpi_times mpi = {0};
    if (has_mpi) mpi_run(program, b.devices, &mpi);
    misses += run_devices(&b, &mpi);
  }
  if (has_mpi) (void)unlink(program);
  for (int d = 0; d < MAX_DEVICES; d++) free(b.in[d]), free(b.out[d]);
  printf("%s: %d of %d below 90%% of the ceiling%s\n", misses ? "MISS" : "PASS", misses, 4 * SIZES,
         has_mpi ? " or behind OpenMPI" : "");
  return 0;
}
