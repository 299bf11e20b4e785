/* A BLAS, loaded at run time if the machine has one.
 *
 * Device threads multiply concurrently, one thread each, so how the library was built matters:
 *   pthread   told to use one thread; safe
 *   openmp    told so in every calling thread; safe
 *   serial    gives wrong results when called concurrently: every call takes a lock */
#ifndef WEIR_DEVICE_CPU_BLAS_H
#define WEIR_DEVICE_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* A matrix in memory; strides in elements. */
typedef struct cpu_matrix {
  int64_t rows, columns;
  int64_t row_stride, column_stride;
} cpu_matrix;

/* Loads it on first use; false when there is none. Not for the path of a run. */
bool cpu_blas_available(void);
/* For tests: without it the own kernels are used. Takes effect on kernels prepared later. */
void cpu_blas_allow(bool allowed);

/* Can it be handed over as it is: dense one way, of sizes that a BLAS can count? */
bool cpu_blas_takes(const cpu_matrix *m);

/* c = a * b, or c += a * b if `accumulate`; all three must be taken. Available ones only. */
void cpu_blas_sgemm(const cpu_matrix *sa, const float *a, const cpu_matrix *sb, const float *b,
                    const cpu_matrix *sc, float *c, bool accumulate);
void cpu_blas_dgemm(const cpu_matrix *sa, const double *a, const cpu_matrix *sb, const double *b,
                    const cpu_matrix *sc, double *c, bool accumulate);

#endif
