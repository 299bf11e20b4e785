/* One row by a matrix of bf16 that is contiguous along k, in pairs. Included by few.h in a unit of pairs.
 *
 * A vector has LANES pieces of CPU_GEMM_DEPTH elements of one column, where few_tile() has LANES columns. So memory
 * is read column by column, and two columns are computed in turns, since sums wait for each other. Lanes add up
 * what few_tile() adds up, and a column adds its lanes in the order of k, so the bits are the same. */
#define GROUP_DEPTH (LANES * CPU_GEMM_DEPTH) /* of the elements that have a lane */

/* Row i becomes words i of all pieces of `a`. */
TARGET static void FN(group_row)(const E *a, E *to) {
  for (int64_t k = 0; k < CPU_GEMM_DEPTH; k += PAIR * LANES)
    FN(transpose)(a + k, CPU_GEMM_DEPTH, (T *)(void *)(to + k * LANES), LANES);
}

/* Sums of two columns. next: the columns that come after them, or NULL. */
TARGET static __attribute__((noinline)) void FN(group_columns)(const E *a, const char *b,
                                                               int64_t column_bytes,
                                                               const char *next, FN(vector) * to) {
  FN(vector) s[2] = {{0}, {0}};
  for (int64_t k = 0; k < CPU_GEMM_DEPTH; k += PAIR * LANES) UNROLL for (int i = 0; i < 2; i++) {
      FN(vector) x[LANES_BYTES / sizeof(T)];
      const E *column = (const E *)(const void *)(b + i * column_bytes) + k;
      const char *ahead = next + i * column_bytes + k * LANES * (int64_t)sizeof(E);
      UNROLL for (int p = 0; p < LANES; p++) {
        if (next) __builtin_prefetch(ahead + p * LANES_BYTES, 0, 2);
        x[p] = *(const FN(vector) *)(const void *)(column + p * CPU_GEMM_DEPTH);
      }
      FN(turn)(x);
      UNROLL for (int p = 0; p < LANES; p++) s[i] =
          MADD(*(const FN(vector) *)(const void *)(a + (k + PAIR * p) * LANES), x[p], s[i]);
    }
  to[0] = s[0];
  to[1] = s[1];
}

/* Sums of LANES columns, each with a lane per piece, are added to c. */
TARGET static void FN(group_add)(FN(vector) * sums, T *c, bool accumulate) {
  FN(vector) *to = (FN(vector) *)(void *)c, s = {0};
  FN(turn)(sums);
  if (accumulate) s = *to + sums[0];
  else s = sums[0];
  for (int p = 1; p < LANES; p++) s += sums[p];
  *to = s;
}

/* The first GROUP_DEPTH elements along k. scratch: as many of `a`. */
TARGET static void FN(few_group)(const cpu_few *f, const E *a, T *c, char *scratch) {
  int64_t column = f->b.column_stride * (int64_t)sizeof(E);
  E *turned = (E *)(void *)scratch;
  FN(group_row)(a, turned);
  for (int64_t j = 0; j < f->c.columns; j += LANES) {
    FN(vector) sums[LANES_BYTES / sizeof(T)];
    for (int64_t i = 0; i < LANES; i += 2) {
      const char *at = (const char *)f->from + (j + i) * column;
      bool is_last = j + i + 2 == f->c.columns;
      FN(group_columns)(turned, at, column, is_last ? NULL : at + 2 * column, sums + i);
    }
    FN(group_add)(sums, c + j, f->accumulate);
  }
}
