/* Vector loops: the inner loops of all kernels, compiled once for each level of the instruction set.
 *
 * Every source file of this folder is compiled for the baseline of the architecture, and on x86-64 again
 * for AVX2 and for AVX-512. A level has one table of functions; cpu_level_chosen() is the best one that the
 * processor has, chosen once. WEIR_CPU_ISA=baseline, avx2, avx512 or avx512_bf16 in the environment asks for
 * another one. The last one has the loops of avx512, and instructions for products of bf16 (gemm/tile_bf16.c).
 *
 * The levels above the baseline give the same bits, and so does the baseline but for the functions of
 * math_f32.h. The loops are plain C in which every operation rounds once: there is no contraction of a
 * product and a sum of two operations, and no function of a library whose variants differ. So results
 * depend neither on how many elements a loop is given nor on where it is cut. */
#ifndef WEIR_DEVICE_CPU_LOOPS_LOOPS_H
#define WEIR_DEVICE_CPU_LOOPS_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/op.h"

/* A number as an element, and what reductions accumulate in: floats in f64, integers in i64. */
typedef union cpu_element {
  double f;
  int64_t i;
  unsigned char bytes[8];
} cpu_element;

/* ---- pointwise ---- */
/* x: dense operands; to: results of the same type, or bytes of truth. mode: the choice attribute. */
typedef void cpu_map_fn(int64_t n, void *to, const void *const *x, bool mode);

/* ---- conversions ---- */
/* Dense to dense, `to` and `from` apart. */
typedef void cpu_convert_fn(int64_t n, void *to, const void *from);

/* ---- folds ---- */
/* Those of ir_fold, with the same numbers, and one more. */
typedef enum cpu_fold_kind {
#define FOLD(id, ...) CPU_FOLD_##id = IR_FOLD_##id,
#include "ir/folds.def"
#undef FOLD
  CPU_FOLD_SQUARES, /* the sum of (x - center)², floats only */
  CPU_FOLD_COUNT
} cpu_fold_kind;

typedef struct cpu_fold {
  /* Folds n dense elements into *acc. */
  void (*row)(int64_t n, const void *x, cpu_element *acc, double center);
  /* Folds x[i] into acc[i]. */
  void (*column)(int64_t n, const void *x, cpu_element *acc, const cpu_element *center);
  /* As `row` of the products of x[i] and y[i], each rounded to the type of both. Sums of f32 and bf16 only. */
  void (*products)(int64_t n, const void *x, const void *y, cpu_element *acc);
  cpu_element start;
} cpu_fold;

/* ---- makers ---- */
/* Numbers from lo to hi, of 24 bits where `narrow`, else of 53; whole ones are rounded down. */
typedef struct cpu_uniform {
  uint64_t key;
  double lo, hi;
  bool narrow, whole;
} cpu_uniform;

/* ---- one level ---- */
typedef struct cpu_vector_loops {
  const char *name; /* of the level that they were compiled for */
  /* By the type computed in (F64 F32 I64 I32 I8 U8 BOOL), then by operation. F16: elements are f32,
   * and results, unless they are truths, are rounded to that dtype. BF16: elements and results are bf16. */
  cpu_map_fn *const *map[IR_DTYPE_COUNT];
  /* Elements of 16 bits; x[1] is a table of all 2^16 results. */
  cpu_map_fn *lookup;
  /* By the dtype converted to, then from. */
  cpu_convert_fn *const (*convert)[IR_DTYPE_COUNT];
  /* Rounds dense f32 elements to f16 or bf16 and back, in place; NULL for other dtypes. */
  void (*round[IR_DTYPE_COUNT])(int64_t n, float *x);
  /* Of elements of 1, 2, 4 or 8 bytes; see kernel_internal.h. */
  void (*copy)(size_t size_bytes, int64_t n, char *to, int64_t to_step, const char *from,
               int64_t from_step);
  /* Dense, past the caches; the fence makes it visible to others. */
  void (*stream)(int64_t bytes, char *to, const char *from);
  void (*fence)(void);
  void (*fill)(size_t size_bytes, int64_t n, char *to, int64_t step, const void *value);
  void (*transpose)(size_t size_bytes, int64_t rows, int64_t n, char *to, int64_t to_row,
                    int64_t to_step, const char *from, int64_t from_step);
  /* Of the elements number, number + step, ... */
  void (*uniform)(const cpu_uniform *u, int64_t n, uint64_t number, uint64_t step, double *to);
  /* By F32, BF16, F64 or I64; the rows are cpu_fold_kind. */
  const cpu_fold *folds[IR_DTYPE_COUNT];
  /* A row of softmax; by F32 or F64. y may be x. */
  void (*softmax[IR_DTYPE_COUNT])(int64_t n, const void *x, void *y);
  /* A row of softmax that comes in pieces, of which this is the next: x becomes exp(scale * x - most), by
   * the maximum so far, in f32 or f64. state: that maximum (at first -inf), and the sum so far (0). What was
   * summed up before, with whatever weights, must be multiplied by *factor. By F32 or F64, all of it. */
  void (*weigh[IR_DTYPE_COUNT])(int64_t n, void *x, double scale, void *state, void *factor);
  /* y = ((x - mean) * scale) * weight + bias; weight and bias may be NULL. By F32, BF16 or F64, all
   * of that type; x - mean and its product with the scale are as if computed in f64. */
  void (*normalize[IR_DTYPE_COUNT])(int64_t n, const void *x, double mean, double scale,
                                    const void *weight, const void *bias, void *y);
} cpu_vector_loops;

typedef struct cpu_level {
  const char *name; /* as in WEIR_CPU_ISA */
  const cpu_vector_loops *loops;
  bool (*is_here)(void); /* does the processor have it? */
} cpu_level;

const cpu_level *cpu_level_chosen(void);
static inline const cpu_vector_loops *cpu_vectors(void) { return cpu_level_chosen()->loops; }
/* For tests: the level of that name from now on; false if the processor does not have it. */
bool cpu_vectors_choose(const char *name);

/* Products of pairs of bf16: older compilers do not know the instruction. */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<avx512bf16intrin.h>)
#define CPU_HAS_BF16_PAIRS
#endif
#endif

/* ---- names of the levels, for the files of this folder ---- */
#ifndef CPU_LEVEL
#define CPU_LEVEL baseline
#endif
#define CPU_PASTE_(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE_(a, b)
#define CPU_OF_LEVEL(name) CPU_PASTE(name, CPU_LEVEL)

#define cpu_map_f32 CPU_OF_LEVEL(cpu_map_f32)
#define cpu_map_f64 CPU_OF_LEVEL(cpu_map_f64)
#define cpu_map_f16 CPU_OF_LEVEL(cpu_map_f16)
#define cpu_map_bf16 CPU_OF_LEVEL(cpu_map_bf16)
#define cpu_map_i64 CPU_OF_LEVEL(cpu_map_i64)
#define cpu_map_i32 CPU_OF_LEVEL(cpu_map_i32)
#define cpu_map_i8 CPU_OF_LEVEL(cpu_map_i8)
#define cpu_map_u8 CPU_OF_LEVEL(cpu_map_u8)
#define cpu_map_bool CPU_OF_LEVEL(cpu_map_bool)
#define cpu_lookup CPU_OF_LEVEL(cpu_lookup)
#define cpu_conversions CPU_OF_LEVEL(cpu_conversions)
#define cpu_folds_f32 CPU_OF_LEVEL(cpu_folds_f32)
#define cpu_folds_bf16 CPU_OF_LEVEL(cpu_folds_bf16)
#define cpu_folds_f64 CPU_OF_LEVEL(cpu_folds_f64)
#define cpu_folds_i64 CPU_OF_LEVEL(cpu_folds_i64)
#define cpu_math CPU_OF_LEVEL(cpu_math)
#define cpu_move CPU_OF_LEVEL(cpu_move)
#define cpu_rows CPU_OF_LEVEL(cpu_rows)

extern cpu_map_fn *const cpu_map_f32[IR_OP_COUNT], *const cpu_map_f64[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_f16[IR_OP_COUNT], *const cpu_map_bf16[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_i64[IR_OP_COUNT], *const cpu_map_i32[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_i8[IR_OP_COUNT], *const cpu_map_u8[IR_OP_COUNT];
extern cpu_map_fn *const cpu_map_bool[IR_OP_COUNT];
cpu_map_fn cpu_lookup;
extern cpu_convert_fn *const cpu_conversions[IR_DTYPE_COUNT][IR_DTYPE_COUNT];
extern const cpu_fold cpu_folds_f32[CPU_FOLD_COUNT], cpu_folds_bf16[CPU_FOLD_COUNT],
    cpu_folds_f64[CPU_FOLD_COUNT], cpu_folds_i64[CPU_FOLD_COUNT];

#endif
