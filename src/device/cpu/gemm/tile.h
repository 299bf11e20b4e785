/* The functions of one unit; included once per element type and set of instructions, by files that define
 *
 *   TARGET         the function attribute for the instructions
 *   LANES_BYTES    of a vector
 *   TILE_ROWS      of a tile, at most 8
 *   TILE_VECTORS   per row of a tile, at most 4
 *   A_ROWS         see cpu_gemm_unit.rows
 *   FEW_ROWS       see few.h
 * and for each unit
 *   T, NAME        the element type, and what the names end with
 *   ZIP            LANES_BYTES and sizeof(T): picks the masks of units.h
 *   MADD(x, y, s)  x * y + s of vectors
 *   OF_BF16        defined: elements of b may be bf16 where few.h reads it
 *   OF_PAIRS       defined: a unit of pairs. Then T is float, and a row of a panel has pairs of bf16 in words of
 *                  that size. An odd depth is padded with a 0 in both operands
 *
 * A tile of 6 rows of 4 vectors takes 24 of AVX-512's 32 registers for sums, 4 for a row of the panel and 1
 * for an element of a. */
#define FN(name) JOIN(name, NAME)
#define LANES ((int64_t)(LANES_BYTES / sizeof(T)))
#define COLUMNS (TILE_VECTORS * LANES)

/* PAIR elements of type E are multiplied at once. EACH, EACH_LAST: vectors of those at p, and of the last one
 * alone. */
#ifdef OF_PAIRS
#define E uint16_t
#define PAIR 2
typedef uint32_t FN(words) __attribute__((vector_size(LANES_BYTES)));
static inline uint32_t FN(pair)(E first, E second) { return (uint32_t)second << 16 | first; }
static inline uint32_t FN(pair_at)(const E *p) {
  uint32_t pair;
  memcpy(&pair, p, sizeof pair);
  return pair;
}
#define EACH(p) ((FN(vector))(FN(pair_at)(p) - (FN(words)){0}))
#define EACH_LAST(p) ((FN(vector))(FN(pair)(*(p), 0) - (FN(words)){0}))
#else
#define E T
#define PAIR 1
#define EACH(p) EACH_PLAIN(p)
#define EACH_LAST(p) EACH_PLAIN(p)
#endif

/* Loaded from and stored to any address. */
typedef T FN(vector) __attribute__((vector_size(LANES_BYTES), aligned(sizeof(E)), may_alias));

/* Adds the products of PAIR positions along k, or of the last one alone. */
TARGET static inline __attribute__((always_inline)) void
FN(step)(int rows, bool last, const E *restrict a, int64_t a_row, const T *restrict b,
         FN(vector) s[TILE_ROWS][TILE_VECTORS]) {
  FN(vector) y[TILE_VECTORS];
  UNROLL for (int j = 0; j < TILE_VECTORS; j++) y[j] =
      *(const FN(vector) *)(const void *)(b + j * LANES);
  UNROLL for (int i = 0; i < rows; i++) {
    FN(vector) x = last ? EACH_LAST(a + i * a_row) : EACH(a + i * a_row);
    UNROLL for (int j = 0; j < TILE_VECTORS; j++) s[i][j] = MADD(x, y[j], s[i][j]);
  }
}

/* Asks for the next line, for the second cache. */
static inline __attribute__((always_inline)) void FN(fetch)(cpu_ahead *ahead) {
  __builtin_prefetch((const void *)(ahead->at + (uintptr_t)ahead->line * 64), 0, 2);
  if (++ahead->line < ahead->lines) return;
  ahead->line = 0;
  ahead->at += (uintptr_t)ahead->step;
  ahead->pieces--;
}

/* c[rows x COLUMNS] = or += a[rows x depth] * b[depth x COLUMNS]; `rows` is a constant. A line is fetched in every
 * second step: more of them at a time would wait for each other. */
TARGET static inline __attribute__((always_inline)) void
FN(tile)(int rows, int64_t depth, const E *restrict a, int64_t a_row, int64_t a_step,
         const T *restrict b, int64_t b_row, T *restrict c, int64_t c_row, bool accumulate,
         cpu_ahead *ahead) {
  FN(vector) s[TILE_ROWS][TILE_VECTORS];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < TILE_VECTORS; j++) s[i][j] =
      (FN(vector)){0};
  int64_t k = 0;
  cpu_ahead next = *ahead;
  for (; k + 2 * PAIR <= depth && next.pieces > 0; k += 2 * PAIR) {
    FN(fetch)(&next);
    UNROLL for (int i = 0; i < 2; i++, a += PAIR * a_step, b += b_row)
        FN(step)(rows, false, a, a_row, b, s);
  }
  *ahead = next;
  for (; k + PAIR <= depth; k += PAIR, a += PAIR * a_step, b += b_row)
    FN(step)(rows, false, a, a_row, b, s);
  if (k < depth) FN(step)(rows, true, a, a_row, b, s);
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < TILE_VECTORS; j++) {
    FN(vector) *to = (FN(vector) *)(void *)(c + i * c_row + j * LANES);
    if (accumulate) *to += s[i][j];
    else *to = s[i][j];
  }
}

#define TILE_OF(n)                                                                                 \
  case n: FN(tile)(n, depth, a, a_row, a_step, b, b_row, c, c_row, accumulate, ahead); break;

TARGET static __attribute__((noinline)) void FN(tile_of)(int64_t rows, int64_t depth, const E *a,
                                                         int64_t a_row, int64_t a_step, const T *b,
                                                         int64_t b_row, T *c, int64_t c_row,
                                                         bool accumulate, cpu_ahead *ahead) {
  switch (rows) {
    TILE_OF(1)
    TILE_OF(2)
    TILE_OF(3)
    TILE_OF(4)
#if TILE_ROWS > 4
    TILE_OF(5)
    TILE_OF(6)
#endif
  default: impossible("rows of a tile");
  }
}
#undef TILE_OF

/* The last columns, through a whole tile. */
static void FN(edge)(int64_t rows, int64_t depth, const E *a, int64_t a_row, int64_t a_step,
                     const T *b, int64_t b_row, int64_t columns, T *c, int64_t c_row,
                     bool accumulate, cpu_ahead *ahead) {
  T whole[TILE_ROWS * COLUMNS];
  FN(tile_of)(rows, depth, a, a_row, a_step, b, b_row, whole, COLUMNS, false, ahead);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      T *to = &c[i * c_row + j], x = whole[i * COLUMNS + j];
      *to = accumulate ? *to + x : x;
    }
}

static void FN(multiply)(const cpu_matrix *sa, const void *a_, const void *panel, int64_t panel_row,
                         const cpu_matrix *sc, void *c_, bool accumulate, cpu_ahead ahead) {
  const E *a = a_;
  T *c = c_;
  for (int64_t i = 0; i < sa->rows; i += TILE_ROWS) {
    int64_t rows = sa->rows - i < TILE_ROWS ? sa->rows - i : TILE_ROWS;
    const E *from = a + i * sa->row_stride;
    T *to = c + i * sc->row_stride;
    if (sc->columns == COLUMNS) FN(tile_of)
    (rows, sa->columns, from, sa->row_stride, sa->column_stride, panel, panel_row, to,
     sc->row_stride, accumulate, &ahead);
    else FN(edge)(rows, sa->columns, from, sa->row_stride, sa->column_stride, panel, panel_row,
                  sc->columns, to, sc->row_stride, accumulate, &ahead);
  }
}

#include "device/cpu/gemm/few.h"

/* ---- packing ---- */
/* One by one: rows [k, rows) of columns [first, end). */
static void FN(pack_rest)(const cpu_matrix *sb, const E *b, T *panel, int64_t k, int64_t first,
                          int64_t end) {
  for (; k < sb->rows; k += PAIR)
    for (int64_t j = first; j < end; j++) {
      const E *at = b + k * sb->row_stride + j * sb->column_stride;
      T *to = panel + k / PAIR * COLUMNS + j;
#ifdef OF_PAIRS
      uint32_t pair = FN(pair)(*at, k + 1 < sb->rows ? at[sb->row_stride] : 0);
      memcpy(to, &pair, sizeof pair);
#else
      *to = *at;
#endif
    }
}

TARGET static void FN(pack_columns)(const cpu_matrix *sb, const E *b, T *panel) {
  int64_t j = 0;
  for (; j + LANES <= sb->columns; j += LANES) {
    int64_t k = 0;
    for (; k + PAIR * LANES <= sb->rows; k += PAIR * LANES) FN(transpose)
    (b + j * sb->column_stride + k, sb->column_stride, panel + k / PAIR * COLUMNS + j, COLUMNS);
    FN(pack_rest)(sb, b, panel, k, j, j + LANES);
  }
  FN(pack_rest)(sb, b, panel, 0, j, sb->columns);
}

/* Rows of b are contiguous. */
#ifdef OF_PAIRS
TARGET static void FN(pack_rows)(const cpu_matrix *sb, const E *b, T *panel) {
  int64_t columns = sb->columns / LANES * LANES;
  for (int64_t k = 0; k < sb->rows; k += 2)
    for (int64_t j = 0; j < columns; j += LANES) {
      const E *at = b + k * sb->row_stride + j;
      FN(vector) *to = (FN(vector) *)(void *)(panel + k / 2 * COLUMNS + j);
      *to = FN(few_line)((const char *)at,
                         k + 1 < sb->rows ? (const char *)(at + sb->row_stride) : NULL, true);
    }
  FN(pack_rest)(sb, b, panel, 0, columns, sb->columns);
}
#else
TARGET static void FN(pack_rows)(const cpu_matrix *sb, const T *b, T *panel) {
  for (int64_t k = 0; k < sb->rows; k++) {
    const FN(vector) *from = (const FN(vector) *)(const void *)(b + k * sb->row_stride);
    FN(vector) *to = (FN(vector) *)(void *)(panel + k * COLUMNS);
    if (sb->columns < COLUMNS) memcpy(to, from, (size_t)sb->columns * sizeof(T));
    else UNROLL for (int j = 0; j < TILE_VECTORS; j++) to[j] = from[j];
  }
}
#endif

static void FN(pack)(const cpu_matrix *sb, const void *b, void *panel_) {
  T *panel = panel_;
  if (sb->column_stride == 1) FN(pack_rows)(sb, b, panel);
  else if (sb->row_stride == 1) FN(pack_columns)(sb, b, panel);
  else FN(pack_rest)(sb, b, panel, 0, 0, sb->columns);
  for (int64_t k = 0; sb->columns < COLUMNS && k < sb->rows; k += PAIR)
    for (int64_t j = sb->columns; j < COLUMNS; j++) panel[k / PAIR * COLUMNS + j] = 0;
}

static const cpu_gemm_unit FN(unit) = {.pairs = PAIR > 1,
                                       .element_bytes = sizeof(E),
                                       .native_bytes = sizeof(T),
                                       .columns = COLUMNS,
                                       .rows = A_ROWS,
                                       .lanes = LANES,
                                       .multiply = FN(multiply),
                                       .pack = FN(pack),
                                       .few = FN(few)};

#undef LANES
#undef COLUMNS
#undef FN
#undef OF_PAIRS
#undef E
#undef PAIR
#undef EACH
#undef EACH_LAST
#undef T
#undef NAME
#undef ZIP
#undef MADD
