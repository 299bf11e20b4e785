/* Matrix products through cublasLt.
 *
 * A product of a plan becomes one call of the library, strided batches included. Operands are used in
 * the layout they have, transposed or not, and a bias goes into the epilogue. So does what follows the
 * product in a body, if the library supports it: the sum with a bias and with a tensor of the same shape,
 * and then gelu in the form with tanh, for results of 16 bits only (in others its error may matter). relu
 * does not: the library's may lose a NaN. Operands of f16 and bf16 may have a result in f32. Everything
 * else (integers, other mixed dtypes, strides that no leading dimension describes, several batch
 * dimensions that cannot be merged) is left to the generated kernels.
 *
 * The algorithm is chosen once per shape, when the first plan with that shape is loaded, and kept with
 * the GPU. f32 is computed in f32, unless TF32 was asked for. */
#ifndef WEIR_DEVICE_CUDA_MATMUL_H
#define WEIR_DEVICE_CUDA_MATMUL_H

#include "device/cuda/vendor.h"
#include "runtime/plan.h"

/* Everything that the choice of algorithm depends on. Column-major, as in the library:
 * d[m, n] = op(a) op(b) (+ c[m, n]) (+ bias[m]), then the activation. Compared as bytes, so all
 * fields have one type. */
typedef struct cuda_matmul_shape {
  int64_t m, n, k;
  int64_t lda, ldb, ldd;
  int64_t ldc;
  int64_t batch, stride_a, stride_b, stride_c, stride_d, stride_bias;
  int64_t dtype, dtype_d; /* ir_dtype: of the operands; of result and bias */
  int64_t tf32;           /* f32 may be multiplied as TF32: an option of the device */
  int64_t trans_a, trans_b, has_bias, has_c, has_gelu;
  int64_t swapped; /* a is the plan's second operand: the result is computed transposed */
  int64_t align_a, align_b, align_c, align_d, align_bias;
} cuda_matmul_shape;

enum { CUDA_MATMUL_SIDES = 5 }; /* the result, two operands, a bias, an added tensor */

typedef struct cuda_matmul cuda_matmul;
struct cuda_matmul {
  cuda_matmul *next;
  cuda_matmul_shape shape;
  bool works; /* the library has an algorithm for it */
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c, d; /* c may be NULL */
  cublasLtMatmulAlgo_t algo;
  size_t workspace_bytes;
};

/* How far into its operands a task begins, in elements: a, b, bias, c, in the plan's order. */
typedef struct cuda_matmul_starts {
  int64_t offset[4];
} cuda_matmul_starts;

/* What follows a product. Its task has operand 2, a bias, and operand 3, a tensor that is added, even if its
 * operation has no such operands; both are aligned with the result at the last dimension. */
typedef struct cuda_after {
  bool bias, added, gelu; /* without bias, operand 2 is that of the operation */
} cuda_after;

/* The task of a body that is a product with steps after it which the library may compute; NULL: the body is no such
 * thing. The product is step 0; `made` gets what follows. Operands are views of the parameters, the result is
 * `result`. */
const rt_task *cuda_after_of(const rt_body *body, uint32_t result, arena *memory, cuda_after *made);

/* Can the library take the task? Knows no GPU. `after` may be NULL. */
bool cuda_matmul_shape_of(const rt_plan *plan, const rt_task *task, const cuda_after *after,
                          cuda_matmul_shape *shape, cuda_matmul_starts *starts);

typedef struct cuda_gpu cuda_gpu;
/* The product of that shape, new or from the list of the GPU; NULL in *result: the library has no
 * algorithm. The context must be current. */
NODISCARD status cuda_matmul_get(const cuda_vendor *cu, cublasLtHandle_t lt, cuda_matmul **list,
                                 const cuda_matmul_shape *shape, const allocator *memory,
                                 const cuda_matmul **result);
void cuda_matmuls_destroy(const cuda_vendor *cu, cuda_matmul *list, const allocator *memory);

/* starts: of result, a, b, bias, c, in the plan's order. */
cublasStatus_t cuda_matmul_run(const cuda_vendor *cu, cublasLtHandle_t lt, const cuda_matmul *m,
                               const CUdeviceptr starts[CUDA_MATMUL_SIDES], CUdeviceptr workspace,
                               CUstream stream);

#endif
