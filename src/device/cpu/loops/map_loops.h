/* The pointwise loops and the table of one type. The including file defines, and may include this
 * again after defining anew:
 *   MAP_TYPE        what memory holds            MAP_WIDE         what is computed in
 *   MAP_TABLE       the table's name             MAP_NAME(id)     a loop's name
 *   MAP_ENTRY(id)   the loop in the table
 *   MAP_READ(x)     an element as a value, itself if not defined
 *   MAP_FINISH(x)   the value to store           MAP_EXPRESSION(fexpr, iexpr)   one of them
 * and what the expressions of ir/ops.def use. */
#include "device/cpu/loops/loops.h"

/* PARAMS(X(a), X(b)) counts tensor params: it becomes 2. */
#define X(name) 1
#define C(...) 0
#define PARAMS(...) MAP_COUNT(__VA_ARGS__, 0, 0, 0)
#define MAP_COUNT(a, b, c, ...) ((a) + (b) + (c))
#define OP(id, name, family, params)
#define NO 0

/* What a loop writes, by the op's result rule. */
#define MAP_RESULT_SAME MAP_TYPE
#define MAP_RESULT_NUMBER MAP_TYPE
#define MAP_RESULT_FLOAT MAP_TYPE
#define MAP_RESULT_BITS MAP_TYPE
#define MAP_RESULT_TRUTH uint8_t
#define MAP_RESULT_CHOICE MAP_TYPE
#define MAP_FINISH_SAME MAP_FINISH
#define MAP_FINISH_NUMBER MAP_FINISH
#define MAP_FINISH_FLOAT MAP_FINISH
#define MAP_FINISH_BITS MAP_FINISH
#define MAP_FINISH_TRUTH
#define MAP_FINISH_CHOICE MAP_FINISH
#ifndef MAP_READ
#define MAP_READ(x) (x)
#endif

/* An operand that the op does not have is not read. */
#define POINTWISE(id, name, result, params, fexpr, iexpr)                                          \
  static void MAP_NAME(id)(int64_t n, void *to_, const void *const *x, bool mode) {                \
    MAP_RESULT_##result *restrict to = to_;                                                        \
    const MAP_TYPE *x0 = x[0], *x1 = x[1], *x2 = x[2];                                             \
    (void)x1, (void)x2, (void)mode;                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
      MAP_WIDE a = MAP_READ(x0[i]), b = params > 1 ? MAP_READ(x1[i]) : 0,                          \
               c = params > 2 ? MAP_READ(x2[i]) : 0;                                               \
      (void)a, (void)b, (void)c;                                                                   \
      to[i] = (MAP_RESULT_##result)MAP_FINISH_##result(MAP_EXPRESSION(fexpr, iexpr));              \
    }                                                                                              \
  }
#include "ir/ops.def"
#undef POINTWISE

cpu_map_fn *const MAP_TABLE[IR_OP_COUNT] = {
#define POINTWISE(id, name, result, params, fexpr, iexpr) [IR_OP_##id] = MAP_ENTRY(id),
#include "ir/ops.def"
#undef POINTWISE
};

#undef X
#undef C
#undef PARAMS
#undef MAP_COUNT
#undef OP
#undef NO
#undef MAP_RESULT_SAME
#undef MAP_RESULT_NUMBER
#undef MAP_RESULT_FLOAT
#undef MAP_RESULT_BITS
#undef MAP_RESULT_TRUTH
#undef MAP_RESULT_CHOICE
#undef MAP_FINISH_SAME
#undef MAP_FINISH_NUMBER
#undef MAP_FINISH_FLOAT
#undef MAP_FINISH_BITS
#undef MAP_FINISH_TRUTH
#undef MAP_FINISH_CHOICE
#undef MAP_READ
#undef MAP_TYPE
#undef MAP_WIDE
#undef MAP_TABLE
#undef MAP_NAME
#undef MAP_ENTRY
#undef MAP_FINISH
