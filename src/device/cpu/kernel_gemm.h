/* Products of matrices of native elements (f32, f64, i32, i64), any strides: a BLAS where it takes
 * them, else the own kernel. */
#ifndef WEIR_DEVICE_CPU_KERNEL_GEMM_H
#define WEIR_DEVICE_CPU_KERNEL_GEMM_H

#include "device/cpu/blas.h"
#include "device/cpu/kernel_internal.h"

/* What matrices of `t` are multiplied in: f32, f64, i32 or i64. */
ir_dtype cpu_gemm_native(ir_dtype t);

/* Would a BLAS multiply this dtype? Asked while preparing; the answer goes to cpu_gemm_run. */
bool cpu_gemm_uses_blas(ir_dtype native);

/* Scratch of one product. */
size_t cpu_gemm_scratch_bytes(void);

/* c = a * b, or c += a * b. Without elements to sum, c becomes 0 or stays. */
void cpu_gemm_run(ir_dtype native, bool blas, const cpu_matrix *sa, const void *a,
                  const cpu_matrix *sb, const void *b, const cpu_matrix *sc, void *c,
                  bool accumulate, char *scratch);

#endif
