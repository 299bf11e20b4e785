#include "device/cpu/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "device/cpu/kernels.h"

/* ---- the library ---- */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

/* SYMBOL(field, name in the library, parameters): all that is used of it; all return int or void,
 * which the void ones leave unread. */
#define BLAS_SYMBOLS(SYMBOL)                                                                       \
  SYMBOL(void, sgemm, "cblas_sgemm",                                                               \
         (int, int, int, int, int, int, float, const float *, int, const float *, int, float,      \
          float *, int))                                                                           \
  SYMBOL(void, dgemm, "cblas_dgemm",                                                               \
         (int, int, int, int, int, int, double, const double *, int, const double *, int, double,  \
          double *, int))                                                                          \
  SYMBOL(void, sgemv, "cblas_sgemv",                                                               \
         (int, int, int, int, float, const float *, int, const float *, int, float, float *, int)) \
  SYMBOL(void, dgemv, "cblas_dgemv",                                                               \
         (int, int, int, int, double, const double *, int, const double *, int, double, double *,  \
          int))                                                                                    \
  SYMBOL(int, get_parallel, "openblas_get_parallel", (void))                                       \
  SYMBOL(void, set_threads, "openblas_set_num_threads", (int))

typedef enum threading { SERIAL = 0, PTHREAD = 1, OPENMP = 2 } threading;

static struct {
  bool loaded, allowed;
  threading kind;
  void (*omp_set_num_threads)(int);
#define SYMBOL(result, field, name, params) result(*field) params;
  BLAS_SYMBOLS(SYMBOL)
#undef SYMBOL
} blas = {.allowed = true};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t one_caller = PTHREAD_MUTEX_INITIALIZER;

/* POSIX promises that a function's address fits an object pointer. */
static bool find_symbol(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static void load(void) {
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  bool complete = library != NULL;
#define SYMBOL(result, field, name, params)                                                        \
  complete = complete && find_symbol(library, name, &blas.field);
  BLAS_SYMBOLS(SYMBOL)
#undef SYMBOL
  if (!complete) return;
  blas.kind = (threading)blas.get_parallel();
  if (blas.kind == PTHREAD) blas.set_threads(1);
  if (blas.kind == OPENMP)
    (void)find_symbol(RTLD_DEFAULT, "omp_set_num_threads", &blas.omp_set_num_threads);
  if (blas.kind == OPENMP && !blas.omp_set_num_threads)
    (void)find_symbol(library, "omp_set_num_threads", &blas.omp_set_num_threads);
  blas.loaded = true;
}

bool cpu_blas_available(void) {
  check(pthread_once(&once, load) == 0);
  return blas.loaded && blas.allowed;
}

void cpu_blas_allow(bool allowed) { blas.allowed = allowed; }

const char *cpu_blas_name(void) {
  if (!cpu_blas_available()) return "none";
  if (blas.kind == PTHREAD) return "openblas (pthread)";
  return blas.kind == OPENMP ? "openblas (openmp)" : "openblas (serial, locked)";
}

static bool needs_lock(void) {
  return blas.kind == SERIAL || (blas.kind == OPENMP && !blas.omp_set_num_threads);
}

static void enter(void) {
  if (needs_lock()) check(pthread_mutex_lock(&one_caller) == 0);
  else if (blas.kind == OPENMP) blas.omp_set_num_threads(1);
}

static void leave(void) {
  if (needs_lock()) check(pthread_mutex_unlock(&one_caller) == 0);
}

/* ---- layouts ---- */
typedef struct layout {
  int trans, ld;
} layout;

/* A stride of a dimension of size 1 does not matter, and need not be what a BLAS expects. */
static bool layout_of(const cpu_matrix *m, layout *result) {
  bool one_row = m->rows == 1, one_column = m->columns == 1;
  int64_t row = m->row_stride, column = m->column_stride;
  if (m->rows > INT_MAX || m->columns > INT_MAX) return false;
  if ((column == 1 || one_column) && (one_row || row >= m->columns)) {
    *result = (layout){NO_TRANS, (int)(one_row ? m->columns : row)};
    return one_row || row <= INT_MAX;
  }
  if ((row == 1 || one_row) && (one_column || column >= m->rows)) {
    *result = (layout){TRANS, (int)(one_column ? m->rows : column)};
    return one_column || column <= INT_MAX;
  }
  return false;
}

bool cpu_blas_takes(const cpu_matrix *m) {
  layout unused;
  return layout_of(m, &unused);
}

static cpu_matrix transposed(const cpu_matrix *m) {
  return (cpu_matrix){m->columns, m->rows, m->column_stride, m->row_stride};
}

/* ---- products ---- */
/* Terms that gemv, which adds them up one behind the other in few sums, gets at a time: of millions the
 * sums would grow so large that later terms lose their digits. */
enum { AT_ONCE = 1 << 14 };

/* A product with one row is a matrix times a vector, which gemm does slowly. The vectors' strides are
 * positive, because layout_of() took them; y is cleared here, not scaled by 0, which would keep NaN. */
#define PRODUCTS(T, gemv, gemm, product)                                                           \
  static void row_##gemm(const cpu_matrix *sa, const T *a, const cpu_matrix *sb, const T *b,       \
                         const cpu_matrix *sc, T *c, bool accumulate) {                            \
    layout lb = {0};                                                                               \
    int64_t step = sc->columns == 1 ? 1 : sc->column_stride;                                       \
    int64_t x_step = sa->columns == 1 ? 1 : sa->column_stride;                                     \
    check(layout_of(sb, &lb));                                                                     \
    bool plain = lb.trans == NO_TRANS;                                                             \
    for (int64_t i = 0; !accumulate && i < sc->columns; i++) c[i * step] = 0;                      \
    for (int64_t k = 0; k < sb->rows; k += AT_ONCE) {                                              \
      int n = (int)(sb->rows - k < AT_ONCE ? sb->rows - k : AT_ONCE);                              \
      blas.gemv(ROW_MAJOR, plain ? TRANS : NO_TRANS, plain ? n : (int)sb->columns,                 \
                plain ? (int)sb->columns : n, 1, b + (plain ? k * lb.ld : k), lb.ld,               \
                a + k * x_step, (int)x_step, 1, c, (int)step);                                     \
    }                                                                                              \
  }                                                                                                \
  static void whole_##gemm(const cpu_matrix *sa, const T *a, const cpu_matrix *sb, const T *b,     \
                           const cpu_matrix *sc, T *c, bool accumulate) {                          \
    layout la = {0}, lb = {0}, lc = {0};                                                           \
    check(layout_of(sa, &la) && layout_of(sb, &lb) && layout_of(sc, &lc));                         \
    check(lc.trans == NO_TRANS);                                                                   \
    blas.gemm(ROW_MAJOR, la.trans, lb.trans, (int)sc->rows, (int)sc->columns, (int)sa->columns, 1, \
              a, la.ld, b, lb.ld, accumulate, c, lc.ld);                                           \
  }                                                                                                \
  /* c' = b' a' where c lies the other way round, or has one column. */                            \
  void product(const cpu_matrix *sa, const T *a, const cpu_matrix *sb, const T *b,                 \
               const cpu_matrix *sc, T *c, bool accumulate) {                                      \
    cpu_matrix ta = transposed(sa), tb = transposed(sb), tc = transposed(sc);                      \
    layout lc = {0};                                                                               \
    check(layout_of(sc, &lc));                                                                     \
    enter();                                                                                       \
    if (sc->rows == 1) row_##gemm(sa, a, sb, b, sc, c, accumulate);                                \
    else if (sc->columns == 1) row_##gemm(&tb, b, &ta, a, &tc, c, accumulate);                     \
    else if (lc.trans == NO_TRANS) whole_##gemm(sa, a, sb, b, sc, c, accumulate);                  \
    else whole_##gemm(&tb, b, &ta, a, &tc, c, accumulate);                                         \
    leave();                                                                                       \
  }
PRODUCTS(float, sgemv, sgemm, cpu_blas_sgemm)
PRODUCTS(double, dgemv, dgemm, cpu_blas_dgemm)
