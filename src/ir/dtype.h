/* Element types: the closed set of dtype.def, promotion, and conversion of single elements.
 *
 * Promotion (docs/language.md has the table): bool < integers < floats; within a kind the wider one;
 * f16 with bf16 gives f32; i8 with u8, which hold different ranges, gives i32. */
#ifndef WEIR_IR_DTYPE_H
#define WEIR_IR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ir_dtype {
  IR_DTYPE_NONE,
#define DTYPE(id, ...) IR_##id,
#include "ir/dtype.def"
#undef DTYPE
  IR_DTYPE_COUNT
} ir_dtype;

typedef enum ir_dtype_kind { IR_KIND_BOOL, IR_KIND_INT, IR_KIND_FLOAT } ir_dtype_kind;

const char *ir_dtype_text(ir_dtype t);
const char *ir_dtype_nvfuser(ir_dtype t);
size_t ir_dtype_size_bytes(ir_dtype t);
ir_dtype_kind ir_dtype_kind_of(ir_dtype t);
static inline bool ir_dtype_is_float(ir_dtype t) { return ir_dtype_kind_of(t) == IR_KIND_FLOAT; }
/* IR_DTYPE_NONE when `text` names no dtype. */
ir_dtype ir_dtype_parse(const char *text, size_t length);
ir_dtype ir_dtype_promote(ir_dtype a, ir_dtype b);

/* The type sums and products of `t` are accumulated in: f32 for f16 and bf16, else `t`. */
ir_dtype ir_dtype_accumulator(ir_dtype t);

/* Half the distance from 1 to the next number; 0 for exact types. */
double ir_dtype_unit(ir_dtype t);
/* Relative tolerance for comparing results that were rounded to `t`; 0 for exact types. */
double ir_dtype_tolerance(ir_dtype t);

/* ---- single elements ----
 * Floats travel as double, integers and bools as int64. Storing rounds to nearest even (floats) or
 * keeps the low bits (integers); bool stores value != 0. A float to integer conversion truncates
 * toward zero and saturates; NaN gives 0. */
double ir_element_as_f64(ir_dtype t, const void *p);
int64_t ir_element_as_i64(ir_dtype t, const void *p);
void ir_element_set_f64(ir_dtype t, void *p, double value);
void ir_element_set_i64(ir_dtype t, void *p, int64_t value);

float ir_f32_from_f16(uint16_t bits);
float ir_f32_from_bf16(uint16_t bits);
uint16_t ir_f16_from_f64(double value);  /* one rounding, to nearest even */
uint16_t ir_bf16_from_f64(double value); /* one rounding, to nearest even */

#endif
