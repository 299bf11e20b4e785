/* Products of matrices in f64. Every sum goes from its first term to its last, as the definition says, and
 * many sums are computed side by side.
 *
 * The right factor lies in panels of WIDTH columns. A tile is a few rows by one panel; its sums stay in
 * registers. Rows are taken in blocks that stay in the cache while all panels pass. */
#include "ref/internal.h"

enum { WIDTH = 16, BLOCK = 64 };

typedef double vector
    __attribute__((vector_size(WIDTH * sizeof(double) / 2), aligned(8), may_alias));
typedef void tile_function(int64_t depth, const double *a, const double *b, double *sums,
                           double *squares);

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* With `squared`, the squares of all partial sums are added up too. */
#define TILE(name, target, rows, squared)                                                          \
  target static void name(int64_t depth, const double *a, const double *b, double *sums,           \
                          double *squares) {                                                       \
    vector s[rows][2] = {0}, q[rows][2] = {0};                                                     \
    for (int64_t k = 0; k < depth; k++) {                                                          \
      const vector *y = (const vector *)(const void *)(b + k * WIDTH);                             \
      UNROLL for (int i = 0; i < (rows); i++) UNROLL for (int j = 0; j < 2; j++) {                 \
        s[i][j] += a[i * depth + k] * y[j];                                                        \
        if (squared) q[i][j] += s[i][j] * s[i][j];                                                 \
      }                                                                                            \
    }                                                                                              \
    UNROLL for (int i = 0; i < 2 * (rows); i++) {                                                  \
      ((vector *)(void *)sums)[i] = s[i / 2][i % 2];                                               \
      if (squared) ((vector *)(void *)squares)[i] = q[i / 2][i % 2];                               \
    }                                                                                              \
  }

TILE(tile_1, , 1, false)
TILE(tile_1_squares, , 1, true)
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
/* clang takes the width of the vectors that are written; gcc would halve them. */
#if defined(__clang__)
#define AVX512 __attribute__((target("avx512f")))
#else
#define AVX512 __attribute__((target("avx512f,prefer-vector-width=512")))
#endif
TILE(tile_avx2, AVX2, 2, false)
TILE(tile_avx2_squares, AVX2, 2, true)
TILE(tile_avx512, AVX512, 4, false)
TILE(tile_avx512_squares, AVX512, 4, true)
#endif

typedef struct tiles {
  int rows;
  tile_function *tile, *one; /* of `rows` rows, and of one */
} tiles;

static tiles tiles_here(bool squares) {
  tile_function *one = squares ? tile_1_squares : tile_1;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return (tiles){4, squares ? tile_avx512_squares : tile_avx512, one};
  if (__builtin_cpu_supports("avx2"))
    return (tiles){2, squares ? tile_avx2_squares : tile_avx2, one};
#endif
  return (tiles){1, one, one};
}

static int64_t n_panels(int64_t n) { return (n + WIDTH - 1) / WIDTH; }
int64_t ref_panels_count(int64_t n, int64_t k) { return n_panels(n) * k * WIDTH; }
int64_t ref_panels_at(int64_t n_k, int64_t k, int64_t j) {
  return ((j / WIDTH) * n_k + k) * WIDTH + j % WIDTH;
}

static void store(const ref_factors *f, int64_t row, int64_t panel, const double *from,
                  double *to) {
  for (int64_t j = 0; j < WIDTH && panel * WIDTH + j < f->n; j++)
    to[row * f->n + panel * WIDTH + j] = from[j];
}

static void rows_by_panel(const ref_factors *f, tiles t, int64_t row, int64_t stop, int64_t panel) {
  const double *b = f->b + panel * f->k * WIDTH;
  for (int64_t step; row < stop; row += step) {
    double sums[4 * WIDTH], squares[4 * WIDTH] = {0};
    bool full = row + t.rows <= stop;
    step = full ? t.rows : 1;
    (full ? t.tile : t.one)(f->k, f->a + row * f->k, b, sums, squares);
    for (int64_t i = 0; i < step; i++) {
      store(f, row + i, panel, sums + i * WIDTH, f->sums);
      if (f->squares) store(f, row + i, panel, squares + i * WIDTH, f->squares);
    }
  }
}

static void block(void *context, uint32_t i) {
  const ref_factors *f = context;
  tiles t = tiles_here(f->squares != NULL);
  int64_t row = (int64_t)i * BLOCK, stop = row + BLOCK < f->m ? row + BLOCK : f->m;
  for (int64_t panel = 0; panel < n_panels(f->n); panel++) rows_by_panel(f, t, row, stop, panel);
}

void ref_product(const ref_factors *f, uint32_t threads) {
  ref_parallel((uint32_t)((f->m + BLOCK - 1) / BLOCK), threads, block, (void *)f);
}
