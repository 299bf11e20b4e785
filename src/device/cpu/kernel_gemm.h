/* Products of matrices of native elements (f32, f64, i32, i64), or of bf16 in pairs, with any strides, on one
 * thread. */
#ifndef WEIR_DEVICE_CPU_KERNEL_GEMM_H
#define WEIR_DEVICE_CPU_KERNEL_GEMM_H

#include "device/cpu/gemm/unit.h"
#include "device/cpu/kernel_internal.h"

/* What matrices of `t` are multiplied in: f32, f64, i32 or i64. */
ir_dtype cpu_gemm_native(ir_dtype t);

/* Scratch of cpu_gemm_block(). */
static inline size_t cpu_gemm_scratch_bytes(void) { return CPU_GEMM_PANEL_BYTES; }

/* c = a * b, or c += a * b, of at most CPU_GEMM_DEPTH products per sum. c has unit strides along its
 * rows. `ahead`: what is read after b. */
void cpu_gemm_block(const cpu_gemm_unit *unit, const cpu_matrix *sa, const void *a,
                    const cpu_matrix *sb, const void *b, const cpu_matrix *sc, void *c,
                    cpu_ahead ahead, bool accumulate, char *scratch);

#endif
