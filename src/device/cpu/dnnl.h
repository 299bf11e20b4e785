/* oneDNN, loaded at run time if the machine has it: bf16 products, which no BLAS here has. */
#ifndef WEIR_DEVICE_CPU_DNNL_H
#define WEIR_DEVICE_CPU_DNNL_H

#include "device/cpu/blas.h"

/* Loads it on first use and tries a product; false when it or the processor cannot. */
bool cpu_dnnl_available(void);
/* For tests, as cpu_blas_allow(). */
void cpu_dnnl_allow(bool allowed);

/* c = a * b, or += if `accumulate`: bf16 operands that cpu_blas_takes(), a dense row-major f32 c. */
void cpu_dnnl_bgemm(const cpu_matrix *sa, const uint16_t *a, const cpu_matrix *sb,
                    const uint16_t *b, const cpu_matrix *sc, float *c, bool accumulate);

#endif
