#include "device/cpu/dnnl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/status.h"

/* SYMBOL(field, name, parameters): all that is used of the library and of its OpenMP. */
#define DNNL_SYMBOLS(SYMBOL)                                                                       \
  SYMBOL(int, bgemm, "dnnl_gemm_bf16bf16f32",                                                      \
         (char, char, int64_t, int64_t, int64_t, float, const uint16_t *, int64_t,                 \
          const uint16_t *, int64_t, float, float *, int64_t))                                     \
  SYMBOL(void, set_threads, "omp_set_num_threads", (int))

static struct {
  bool loaded, forbidden;
#define SYMBOL(result, field, name, params) result(*field) params;
  DNNL_SYMBOLS(SYMBOL)
#undef SYMBOL
} dnnl;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find_symbol(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

/* 1 * 1 + 0: does the processor have what it takes? */
static bool works(void) {
  const uint16_t one = 0x3f80;
  float c = 0;
  dnnl.set_threads(1);
  return dnnl.bgemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &c, 1) == 0 && c == 1;
}

static void load(void) {
  void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  bool complete = library != NULL;
#define SYMBOL(result, field, name, params)                                                        \
  complete = complete && find_symbol(library, name, &dnnl.field);
  DNNL_SYMBOLS(SYMBOL)
#undef SYMBOL
  dnnl.loaded = complete && works();
}

bool cpu_dnnl_available(void) {
  check(pthread_once(&once, load) == 0);
  return dnnl.loaded && !dnnl.forbidden;
}

void cpu_dnnl_allow(bool allowed) { dnnl.forbidden = !allowed; }

static char transposition(const cpu_matrix *m, int64_t *ld) {
  bool one_row = m->rows == 1, one_column = m->columns == 1;
  if ((m->column_stride == 1 || one_column) && (one_row || m->row_stride >= m->columns)) {
    *ld = one_row ? m->columns : m->row_stride;
    return 'N';
  }
  *ld = one_column ? m->rows : m->column_stride;
  return 'T';
}

void cpu_dnnl_bgemm(const cpu_matrix *sa, const uint16_t *a, const cpu_matrix *sb,
                    const uint16_t *b, const cpu_matrix *sc, float *c, bool accumulate) {
  int64_t lda, ldb;
  char ta = transposition(sa, &lda), tb = transposition(sb, &ldb);
  dnnl.set_threads(1); /* of this thread; a product runs where it was called */
  check(dnnl.bgemm(ta, tb, sc->rows, sc->columns, sa->columns, 1, a, lda, b, ldb, accumulate, c,
                   sc->row_stride) == 0);
}
