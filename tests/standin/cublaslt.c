/* The stand-in for the library of matrix products: plain loops, put on the stream as any other work.
 * Pointers must keep the alignment that the algorithm was chosen for, and workspaces are scribbled on. */
#include <cublasLt.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

#define SYMBOL(name) (void (*)(void)) name,
__attribute__((used)) static void (*const all[])(void) = {
#include "device/cuda/cublaslt.def"
};
#undef SYMBOL

enum { WORKSPACE = 1024 };

typedef struct layout {
  cudaDataType type;
  int64_t rows, columns, ld, batch, stride;
} layout;

typedef struct desc {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t trans_a, trans_b;
  uint32_t epilogue;
  const void *bias;
  int64_t bias_stride;
} desc;

typedef struct preference {
  uint64_t workspace;
  uint32_t align[4]; /* A B C D */
} preference;

/* ---- descriptions ---- */
static void *fresh(size_t size) {
  void *p = calloc(1, size);
  if (!p) abort();
  return p;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lt) {
  if (standin_fails("cublasLtCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  *lt = fresh(1);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt) {
  free(lt);
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_(an error)";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *result, cublasComputeType_t compute,
                                        cudaDataType scale) {
  if (standin_fails("cublasLtMatmulDescCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  desc *d = fresh(sizeof *d);
  *d = (desc){.compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
  *result = (cublasLtMatmulDesc_t)(void *)d;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  free(d);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t size, const void *value, size_t given) {
  if (size != given) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size) {
  desc *d = (desc *)(void *)x;
  if (standin_fails("cublasLtMatmulDescSetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  switch ((int)which) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return set(&d->trans_a, sizeof d->trans_a, value, size);
  case CUBLASLT_MATMUL_DESC_TRANSB: return set(&d->trans_b, sizeof d->trans_b, value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof d->epilogue, value, size);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof d->bias, value, size);
  case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
    return set(&d->bias_stride, sizeof d->bias_stride, value, size);
  default: standin_misuse("cublasLt: an attribute that is not modelled");
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *result, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  if (standin_fails("cublasLtMatrixLayoutCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  layout *l = fresh(sizeof *l);
  *l = (layout){type, (int64_t)rows, (int64_t)columns, ld, 1, 0};
  if (ld < (int64_t)rows) standin_misuse("cublasLt: a leading dimension below the rows");
  *result = (cublasLtMatrixLayout_t)(void *)l;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  free(l);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t x,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t size) {
  layout *l = (layout *)(void *)x;
  int32_t count = 0;
  if (standin_fails("cublasLtMatrixLayoutSetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    return set(&l->stride, sizeof l->stride, value, size);
  if (which != CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT || size != sizeof count)
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&count, value, size);
  l->batch = count;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *result) {
  if (standin_fails("cublasLtMatmulPreferenceCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  preference *p = fresh(sizeof *p);
  for (int i = 0; i < 4; i++) p->align[i] = 256;
  *result = (cublasLtMatmulPreference_t)(void *)p;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  free(p);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t size) {
  preference *p = (preference *)(void *)x;
  int at = (int)which - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (standin_fails("cublasLtMatmulPreferenceSetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return set(&p->workspace, sizeof p->workspace, value, size);
  if (at < 0 || at > 3) return CUBLAS_STATUS_INVALID_VALUE;
  return set(&p->align[at], sizeof p->align[at], value, size);
}

/* ---- algorithms ---- */
/* What an algorithm was chosen for. */
typedef struct chosen {
  uint32_t align[4], align_bias;
} chosen;
_Static_assert(sizeof(chosen) <= sizeof(cublasLtMatmulAlgo_t), "it fits");

static uint32_t alignment(const void *p) {
  uintptr_t bits = (uintptr_t)p | 256;
  return (uint32_t)(bits & -bits);
}

/* Those of the library's table that are used. */
static bool types_fit(cudaDataType from, cudaDataType to) {
  return from == to || (to == CUDA_R_32F && (from == CUDA_R_16F || from == CUDA_R_16BF));
}

static bool fits(const desc *d, const layout *a, const layout *b, const layout *x) {
  bool ta = d->trans_a != CUBLAS_OP_N, tb = d->trans_b != CUBLAS_OP_N;
  int64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
  int64_t n = tb ? b->rows : b->columns, other_k = tb ? b->columns : b->rows;
  return m == x->rows && n == x->columns && k == other_k && a->batch == x->batch &&
         b->batch == x->batch && a->type == b->type && types_fit(a->type, x->type);
}

static bool same_shape(const layout *c, const layout *x) {
  return c->rows == x->rows && c->columns == x->columns && c->batch == x->batch &&
         c->type == x->type;
}

static bool has_bias(const desc *d) {
  return d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
}

static bool has_gelu(const desc *d) {
  return d->epilogue == CUBLASLT_EPILOGUE_GELU || d->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lt, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t x,
                                              cublasLtMatmulPreference_t pref, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int *n) {
  const preference *p = (const preference *)(void *)pref;
  const desc *what = (const desc *)(void *)d;
  const char *products = getenv("WEIR_STANDIN_PRODUCTS");
  const char *epilogues = getenv("WEIR_STANDIN_EPILOGUES");
  (void)lt;
  *n = 0;
  if (standin_fails("cublasLtMatmulAlgoGetHeuristic")) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (!fits(what, (const layout *)(void *)a, (const layout *)(void *)b, (const layout *)(void *)x))
    standin_misuse("cublasLt: matrices that do not fit");
  if (!same_shape((const layout *)(void *)c, (const layout *)(void *)x))
    standin_misuse("cublasLt: a sum of matrices that do not fit");
  bool plain = what->epilogue == CUBLASLT_EPILOGUE_DEFAULT && c == x;
  if (!plain && epilogues && epilogues[0] == '0') return CUBLAS_STATUS_NOT_SUPPORTED;
  if (asked < 1 || (products && products[0] == '0')) return CUBLAS_STATUS_NOT_SUPPORTED;
  chosen choice = {.align_bias = alignment(what->bias)};
  memcpy(choice.align, p->align, sizeof choice.align);
  memset(results, 0, sizeof *results);
  memcpy(&results->algo, &choice, sizeof choice);
  results->workspaceSize = p->workspace < WORKSPACE ? (size_t)p->workspace : WORKSPACE;
  results->state = CUBLAS_STATUS_SUCCESS;
  *n = 1;
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- elements ---- */
static double of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

static double of_f16(uint16_t h) {
  int exponent = h >> 10 & 31, m = h & 1023;
  double x = exponent == 0 ? m * 0x1p-24 : (1024 + m) * 0x1p-25;
  for (int i = 0; i < exponent; i++) x *= 2;
  if (exponent == 31) x = m ? of_bits(0x7fc00000U) : of_bits(0x7f800000U);
  return h & 0x8000 ? -x : x;
}

static double load(cudaDataType type, const void *base, int64_t at) {
  if (type == CUDA_R_64F) return ((const double *)base)[at];
  if (type == CUDA_R_32F) return (double)((const float *)base)[at];
  uint16_t h = ((const uint16_t *)base)[at];
  return type == CUDA_R_16F ? of_f16(h) : of_bits((uint32_t)h << 16);
}

/* To the nearest, ties to even. */
static uint16_t f16_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  uint32_t sign = u >> 16 & 0x8000U, m = u & 0x7fffffffU;
  if (m > 0x7f800000U) return 0x7fff;
  if (m >= 0x477ff000U) return (uint16_t)(sign | 0x7c00U);
  if (m >= 0x38800000U) return (uint16_t)(sign | (m - 0x38000000U + 0xfffU + (m >> 13 & 1U)) >> 13);
  float shifted = (float)of_bits(m) + 0.5F; /* the sum rounds where f16 has its last bit */
  memcpy(&u, &shifted, sizeof u);
  return (uint16_t)(sign | (u - 0x3f000000U));
}

static uint16_t bf16_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  if (x != x) return (uint16_t)(u >> 16 | 64U);
  return (uint16_t)((u + 0x7fffU + (u >> 16 & 1U)) >> 16);
}

static void store(cudaDataType type, void *base, int64_t at, double x) {
  if (type == CUDA_R_64F) ((double *)base)[at] = x;
  else if (type == CUDA_R_32F) ((float *)base)[at] = (float)x;
  else ((uint16_t *)base)[at] = type == CUDA_R_16F ? f16_of((float)x) : bf16_of((float)x);
}

static size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/* ---- products ---- */
typedef struct product {
  desc d;
  layout la, lb, lc, ld;
  const char *a, *b, *c; /* c: or NULL */
  char *x, *workspace;
  size_t workspace_bytes;
} product;

/* Of a factor in TF32 10 bits are left, rounded to the nearest. */
static float factor(const product *p, double x) {
  uint32_t u;
  float f = (float)x;
  if (p->d.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || f - f != 0) return f;
  memcpy(&u, &f, sizeof u);
  u = (u + 0xfffU + (u >> 13 & 1U)) & ~0x1fffU;
  memcpy(&f, &u, sizeof f);
  return f;
}

/* Sums are f32, or f64 of f64. */
static double dot(const product *p, const char *a, const char *b, int64_t i, int64_t j) {
  bool ta = p->d.trans_a != CUBLAS_OP_N, tb = p->d.trans_b != CUBLAS_OP_N;
  int64_t k = ta ? p->la.rows : p->la.columns;
  int64_t step_a = ta ? 1 : p->la.ld, step_b = tb ? p->lb.ld : 1;
  int64_t at_a = ta ? i * p->la.ld : i, at_b = tb ? j : j * p->lb.ld;
  double wide = 0;
  float narrow = 0;
  for (int64_t r = 0; r < k; r++, at_a += step_a, at_b += step_b) {
    double x = load(p->la.type, a, at_a), y = load(p->lb.type, b, at_b);
    if (p->d.compute == CUBLAS_COMPUTE_64F) wide += x * y;
    else narrow += factor(p, x) * factor(p, y);
  }
  return p->d.compute == CUBLAS_COMPUTE_64F ? wide : (double)narrow;
}

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* Element (i, j) of product n: the sum of all, then the activation, in f32 or in f64, and rounded once. */
static double finish(const product *p, double value, int64_t n, int64_t i, int64_t j) {
  double more[2] = {0, 0};
  if (p->c) more[0] = load(p->lc.type, p->c, n * p->lc.stride + j * p->lc.ld + i);
  if (has_bias(&p->d)) more[1] = load(p->ld.type, p->d.bias, n * p->d.bias_stride + i);
  for (int k = 0; k < 2; k++)
    value = p->d.compute == CUBLAS_COMPUTE_64F ? value + more[k]
                                               : (double)((float)value + (float)more[k]);
  return has_gelu(&p->d) ? gelu(value) : value;
}

static void run_product(void *args) {
  const product *p = args;
  size_t size = size_of(p->la.type), size_x = size_of(p->ld.type);
  memset(p->workspace, 0x5a, p->workspace_bytes);
  for (int64_t n = 0; n < p->ld.batch; n++) {
    const char *a = p->a + (size_t)(n * p->la.stride) * size;
    const char *b = p->b + (size_t)(n * p->lb.stride) * size;
    char *x = p->x + (size_t)(n * p->ld.stride) * size_x;
    for (int64_t j = 0; j < p->ld.columns; j++)
      for (int64_t i = 0; i < p->ld.rows; i++) {
        double value = finish(p, dot(p, a, b, i, j), n, i, j);
        store(p->ld.type, x, j * p->ld.ld + i, value);
      }
  }
}

static standin_range range_of(const void *p, const layout *l) {
  int64_t last = (l->batch - 1) * l->stride + (l->columns - 1) * l->ld + l->rows;
  return (standin_range){(CUdeviceptr)(uintptr_t)p, (size_t)last * size_of(l->type)};
}

static double factor_of(cudaDataType scale, const void *x) {
  return scale == CUDA_R_64F ? *(const double *)x : (double)*(const float *)x;
}

static void check_alignments(const cublasLtMatmulAlgo_t *algo, const product *p) {
  chosen c;
  memcpy(&c, algo, sizeof c);
  if ((uintptr_t)p->a % c.align[0] || (uintptr_t)p->b % c.align[1] || (uintptr_t)p->x % c.align[3])
    standin_misuse("cublasLt: a matrix is aligned less than its algorithm was told");
  if (p->c && (uintptr_t)p->c % c.align[2])
    standin_misuse("cublasLt: what is added is aligned less than its algorithm was told");
  if (has_bias(&p->d) && (uintptr_t)p->d.bias % c.align_bias)
    standin_misuse("cublasLt: a bias is aligned less than its algorithm was told");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *x, cublasLtMatrixLayout_t lx,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  (void)lt;
  if (standin_fails("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  product p = {.a = a, .b = b, .x = x, .workspace = workspace, .workspace_bytes = workspace_bytes};
  memcpy(&p.d, d, sizeof p.d);
  memcpy(&p.la, la, sizeof p.la);
  memcpy(&p.lb, lb, sizeof p.lb);
  memcpy(&p.ld, lx, sizeof p.ld);
  double one = factor_of(p.d.scale, alpha), adds = factor_of(p.d.scale, beta);
  if (one != 1 || (adds != 0 && adds != 1))
    standin_misuse("cublasLt: factors that are not modelled");
  memcpy(&p.lc, lc, sizeof p.lc);
  p.c = adds != 0 ? c : NULL;
  check_alignments(algo, &p);
  int64_t bias_length = (p.ld.batch - 1) * p.d.bias_stride + p.ld.rows;
  size_t bias_bytes = has_bias(&p.d) ? (size_t)bias_length * size_of(p.ld.type) : 0;
  standin_range ranges[] = {range_of(a, &p.la),
                            range_of(b, &p.lb),
                            range_of(x, &p.ld),
                            {(CUdeviceptr)(uintptr_t)workspace, workspace_bytes},
                            {(CUdeviceptr)(uintptr_t)p.d.bias, bias_bytes},
                            p.c ? range_of(c, &p.lc) : (standin_range){0, 0}};
  standin_work work = {.name = "cublasLtMatmul",
                       .run = run_product,
                       .args = &p,
                       .args_bytes = sizeof p,
                       .ranges = ranges,
                       .n_ranges = 6};
  return standin_submit((CUstream)stream, &work) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                                 : CUBLAS_STATUS_EXECUTION_FAILED;
}
