#include "device/cuda/matmul.h"

#include <string.h>

enum { C, A, B, BIAS, ADDED, N_SIDES };
enum { POOL_ALIGN = 64, MOST_WORKSPACE = 32 << 20 };

/* The result's dimensions except the last, with the strides of every side along them. */
typedef struct product {
  const rt_plan *plan;
  const rt_task *task;
  cuda_after after;
  const rt_view *result;
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
  int64_t steps[N_SIDES][IR_MAX_RANK];
  int64_t first[N_SIDES]; /* elements from the start of the view */
  int64_t n, k;
  int64_t n_step[N_SIDES], k_step[N_SIDES]; /* along n and along k */
  bool has_bias;
} product;

static const rt_view *view_of(const rt_plan *plan, const rt_task *task, uint32_t operand) {
  if (operand >= task->n_operands || task->operands[operand].kind != RT_OPERAND_VIEW) return NULL;
  return &plan->views[task->operands[operand].view];
}

enum { NO_DIM = -1 };

/* Sets the stride of operand `side` along result dimension d, which is its own dimension `from`. An operand that
 * is not cut to the result's window is moved to where that begins. */
static void place(product *p, uint32_t side, uint32_t d, int from, int64_t *step) {
  const rt_view *v = view_of(p->plan, p->task, side - 1);
  *step = 0;
  if (from == NO_DIM || v->extents[from] == 1) return;
  bool is_cut = p->task->operands[side - 1].sliced >> d & 1;
  *step = v->strides[from];
  if (p->task->offset && !is_cut) p->first[side] += p->task->offset[d] * *step;
}

/* ---- the two operations ---- */
/* a[*, m, k] and b[*, k, n]; a vector has no m, or no n. */
static void read_matmul(product *p) {
  const rt_view *a = view_of(p->plan, p->task, 0), *b = view_of(p->plan, p->task, 1);
  uint32_t rank = p->result->rank, has_m = a->rank > 1, has_n = b->rank > 1;
  uint32_t n_batch = rank - has_m - has_n, batch_a = a->rank - 1 - has_m;
  uint32_t batch_b = b->rank - 1 - has_n;
  p->rank = rank - has_n;
  for (uint32_t d = 0; d < p->rank; d++) {
    bool is_m = has_m && d == n_batch;
    int from_a = is_m                     ? (int)a->rank - 2
                 : d + batch_a >= n_batch ? (int)(d + batch_a - n_batch)
                                          : NO_DIM;
    int from_b = !is_m && d + batch_b >= n_batch ? (int)(d + batch_b - n_batch) : NO_DIM;
    place(p, A, d, from_a, &p->steps[A][d]);
    place(p, B, d, from_b, &p->steps[B][d]);
  }
  p->k = a->extents[a->rank - 1];
  p->k_step[A] = a->strides[a->rank - 1];
  p->k_step[B] = b->strides[has_n ? b->rank - 2 : 0];
  p->n = has_n ? p->result->extents[rank - 1] : 1;
  if (!has_n) return;
  place(p, B, rank - 1, (int)b->rank - 1, &p->n_step[B]);
  p->n_step[C] = p->result->strides[rank - 1];
}

/* x[*, k], weight[*w, n, k], bias[*w, n] in the result [*w, *, n]. */
static void read_linear(product *p) {
  const rt_view *x = view_of(p->plan, p->task, 0), *w = view_of(p->plan, p->task, 1);
  const rt_view *bias = view_of(p->plan, p->task, 2);
  uint32_t rank = p->result->rank, lead = w->rank - 2;
  p->rank = rank - 1;
  for (uint32_t d = 0; d < p->rank; d++) {
    place(p, A, d, d >= lead ? (int)(d - lead) : NO_DIM, &p->steps[A][d]);
    place(p, B, d, d < lead ? (int)d : NO_DIM, &p->steps[B][d]);
    if (bias) place(p, BIAS, d, d < lead ? (int)d : NO_DIM, &p->steps[BIAS][d]);
  }
  p->k = x->extents[x->rank - 1];
  p->k_step[A] = x->strides[x->rank - 1];
  p->k_step[B] = w->strides[w->rank - 1];
  p->n = p->result->extents[rank - 1];
  place(p, B, rank - 1, (int)lead, &p->n_step[B]);
  if (bias) place(p, BIAS, rank - 1, (int)lead, &p->n_step[BIAS]);
  p->n_step[C] = p->result->strides[rank - 1];
  p->has_bias = bias != NULL;
}

/* Reads an operand of what follows the product, aligned with the result at the last dimension. */
static void read_aligned(product *p, uint32_t side) {
  const rt_view *x = view_of(p->plan, p->task, side - 1);
  uint32_t rank = p->result->rank;
  for (uint32_t d = 0; d < rank; d++) {
    int from = d + x->rank >= rank ? (int)(d + x->rank - rank) : NO_DIM;
    place(p, side, d, from, d + 1 == rank ? &p->n_step[side] : &p->steps[side][d]);
  }
}

/* Reads what follows the product; false: the result is a vector, which the library does not support. */
static bool read_after(product *p) {
  if ((p->after.bias || p->after.added) && p->rank == p->result->rank) return false;
  if (p->after.bias) read_aligned(p, BIAS);
  if (p->after.added) read_aligned(p, ADDED);
  p->has_bias = p->has_bias || p->after.bias;
  return true;
}

/* ---- dimensions ---- */
static bool falls_together(const product *p, uint32_t d) {
  for (uint32_t s = 0; s < N_SIDES; s++)
    if (p->steps[s][d] != p->extents[d + 1] * p->steps[s][d + 1]) return false;
  return true;
}

static void remove_dim(product *p, uint32_t d) {
  p->rank--;
  for (uint32_t i = d; i < p->rank; i++) {
    p->extents[i] = p->extents[i + 1];
    for (uint32_t s = 0; s < N_SIDES; s++) p->steps[s][i] = p->steps[s][i + 1];
  }
}

static void collapse(product *p) {
  for (uint32_t d = p->rank; d-- > 0;) {
    if (p->extents[d] == 1) {
      remove_dim(p, d);
    } else if (d + 1 < p->rank && falls_together(p, d)) {
      p->extents[d + 1] *= p->extents[d];
      remove_dim(p, d);
    }
  }
}

/* Takes the longest dimension that b does not have as m, and removes it from the others. */
static int64_t take_m(product *p, int64_t m_step[N_SIDES]) {
  uint32_t best = p->rank;
  for (uint32_t d = 0; d < p->rank; d++)
    if (p->steps[B][d] == 0 && p->steps[BIAS][d] == 0 &&
        (best == p->rank || p->extents[d] >= p->extents[best]))
      best = d;
  for (uint32_t s = 0; s < N_SIDES; s++) m_step[s] = 0;
  if (best == p->rank) return 1;
  int64_t m = p->extents[best];
  for (uint32_t s = 0; s < N_SIDES; s++) m_step[s] = p->steps[s][best];
  remove_dim(p, best);
  return m;
}

/* ---- layouts ---- */
/* Describes a matrix, rows x columns, as the library does: one of its strides is 1, the other is the leading
 * dimension. `trans`: that is the stride of the rows. */
static bool lay(int64_t rows, int64_t row_step, int64_t columns, int64_t column_step,
                int64_t *trans, int64_t *ld) {
  if (rows == 1) row_step = 1;
  if (row_step == 1 && (columns == 1 || column_step >= rows)) {
    *trans = false;
    *ld = columns == 1 ? rows : column_step;
    return true;
  }
  if (columns == 1) column_step = 1;
  if (column_step == 1 && row_step >= columns) {
    *trans = true;
    *ld = row_step;
    return true;
  }
  return false;
}

/* The alignment in every repetition of a loop. The caller's memory may begin at any multiple of CUDA_BUFFER_ALIGN. */
static int64_t alignment(const rt_plan *plan, const rt_view *v, int64_t first) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype);
  bool is_ours = plan->buffers[v->buffer].kind == RT_BUFFER_POOL;
  /* mutant: cuda_product_alignment */
  int64_t bits = rt_view_offset_bits(v) | first * size | (is_ours ? POOL_ALIGN : CUDA_BUFFER_ALIGN);
  return bits & -bits;
}

static void set_alignments(const product *p, cuda_matmul_shape *s) {
  uint32_t a = s->swapped ? B : A, b = s->swapped ? A : B;
  const rt_plan *plan = p->plan;
  s->align_a = alignment(plan, view_of(plan, p->task, a - 1), p->first[a]);
  s->align_b = alignment(plan, view_of(plan, p->task, b - 1), p->first[b]);
  s->align_d = alignment(plan, p->result, 0);
  s->align_c = s->align_d;
  if (s->has_bias) s->align_bias = alignment(plan, view_of(plan, p->task, 2), p->first[BIAS]);
  if (s->has_c) s->align_c = alignment(plan, view_of(plan, p->task, 3), p->first[ADDED]);
}

/* The tensor that is added must have the layout of the result; its leading dimension may differ. */
static bool lay_added(const product *p, int64_t rows, int64_t row_step, int64_t columns,
                      int64_t column_step, cuda_matmul_shape *s) {
  int64_t trans;
  s->ldc = 0;
  if (!p->after.added) return true;
  if ((rows > 1 && row_step == 0) || (columns > 1 && column_step == 0)) return false;
  return lay(rows, row_step, columns, column_step, &trans, &s->ldc) && !trans;
}

/* A row-major result is the product of the swapped operands, column-major. */
static bool set_layouts(const product *p, int64_t m, const int64_t m_step[N_SIDES],
                        cuda_matmul_shape *s) {
  int64_t trans, ld;
  if (lay(p->n, p->n_step[C], m, m_step[C], &trans, &ld) && !trans) {
    s->swapped = true;
    s->m = p->n;
    s->n = m;
    s->ldd = ld;
    return lay(p->n, p->n_step[B], p->k, p->k_step[B], &s->trans_a, &s->lda) &&
           lay(p->k, p->k_step[A], m, m_step[A], &s->trans_b, &s->ldb) &&
           lay_added(p, p->n, p->n_step[ADDED], m, m_step[ADDED], s);
  }
  if (p->has_bias || !lay(m, m_step[C], p->n, p->n_step[C], &trans, &ld) || trans) return false;
  s->m = m;
  s->n = p->n;
  s->ldd = ld;
  return lay(m, m_step[A], p->k, p->k_step[A], &s->trans_a, &s->lda) &&
         lay(p->k, p->k_step[B], p->n, p->n_step[B], &s->trans_b, &s->ldb) &&
         lay_added(p, m, m_step[ADDED], p->n, p->n_step[ADDED], s);
}

static bool set_batch(const product *p, cuda_matmul_shape *s) {
  s->batch = 1;
  if (p->rank == 0) return true;
  if (p->rank > 1 || p->extents[0] > INT32_MAX) return false;
  s->batch = p->extents[0];
  s->stride_a = p->steps[s->swapped ? B : A][0];
  /* mutant: cuda_product_batch */
  s->stride_b = p->steps[s->swapped ? A : B][0];
  s->stride_d = p->steps[C][0];
  s->stride_bias = p->steps[BIAS][0];
  s->stride_c = p->steps[ADDED][0];
  return s->stride_c >= 0 && s->stride_a >= 0 && s->stride_b >= 0 && s->stride_d > 0 &&
         s->stride_bias >= 0;
}

static bool is_narrow(ir_dtype t) { return t == IR_F16 || t == IR_BF16; }

static bool takes_types(ir_dtype from, ir_dtype to) {
  if (from == to) return is_narrow(to) || to == IR_F32 || to == IR_F64;
  return is_narrow(from) && to == IR_F32;
}

/* Both factors must have one dtype, and further operands that of the result. */
static bool types_fit(const product *p) {
  const rt_view *a = view_of(p->plan, p->task, 0), *b = view_of(p->plan, p->task, 1);
  if (!a || !b || a->dtype != b->dtype || !takes_types(a->dtype, p->result->dtype)) return false;
  for (uint32_t k = 2; k < p->task->n_operands; k++) {
    const rt_view *x = view_of(p->plan, p->task, k);
    if (p->task->operands[k].kind != RT_OPERAND_NONE && (!x || x->dtype != p->result->dtype))
      return false;
  }
  return !p->after.gelu || is_narrow(p->result->dtype);
}

static bool read_product(product *p) {
  if (!ir_op_is_plain_product(p->task->code) || !types_fit(p)) return false;
  if (p->task->code == IR_OP_MATMUL) read_matmul(p);
  else read_linear(p);
  if (!read_after(p)) return false;
  for (uint32_t d = 0; d < p->rank; d++) {
    p->extents[d] = p->result->extents[d];
    p->steps[C][d] = p->result->strides[d];
    if (p->extents[d] == 0) return false;
  }
  return p->n > 0 && p->k > 0;
}

bool cuda_matmul_shape_of(const rt_plan *plan, const rt_task *task, const cuda_after *after,
                          cuda_matmul_shape *shape, cuda_matmul_starts *starts) {
  product p = {.plan = plan, .task = task, .result = &plan->views[task->result]};
  if (after) p.after = *after;
  int64_t m_step[N_SIDES];
  memset(shape, 0, sizeof *shape);
  if (!read_product(&p)) return false;
  collapse(&p);
  int64_t m = take_m(&p, m_step);
  collapse(&p);
  if (p.has_bias && p.n > 1 && p.n_step[BIAS] != 1) return false;
  if (!set_layouts(&p, m, m_step, shape) || !set_batch(&p, shape)) return false;
  shape->k = p.k;
  shape->dtype = view_of(plan, task, 0)->dtype;
  shape->dtype_d = p.result->dtype;
  shape->has_bias = p.has_bias;
  shape->has_c = p.after.added;
  shape->has_gelu = p.after.gelu;
  set_alignments(&p, shape);
  for (uint32_t i = 0; i < 4; i++) starts->offset[i] = p.first[A + i];
  return shape->m <= INT32_MAX && shape->n <= INT32_MAX && shape->k <= INT32_MAX;
}

/* ---- the library ---- */
typedef struct types {
  cudaDataType_t from, to, scale;
  cublasComputeType_t compute;
} types;

static cudaDataType_t type_of(ir_dtype t) {
  if (is_narrow(t)) return t == IR_F16 ? CUDA_R_16F : CUDA_R_16BF;
  return t == IR_F32 ? CUDA_R_32F : CUDA_R_64F;
}

static types types_of(const cuda_matmul_shape *s) {
  cudaDataType_t from = type_of((ir_dtype)s->dtype), to = type_of((ir_dtype)s->dtype_d);
  if (s->dtype == IR_F64) return (types){from, to, CUDA_R_64F, CUBLAS_COMPUTE_64F};
  bool tf32 = s->dtype == IR_F32 && s->tf32;
  return (types){from, to, CUDA_R_32F, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
}

static cublasStatus_t make_layout(const cuda_vendor *cu, cudaDataType_t type, int64_t rows,
                                  int64_t columns, int64_t ld, int64_t batch, int64_t stride,
                                  cublasLtMatrixLayout_t *result) {
  int32_t count = (int32_t)batch;
  cublasStatus_t st =
      cu->cublasLtMatrixLayoutCreate(result, type, (uint64_t)rows, (uint64_t)columns, ld);
  if (st != CUBLAS_STATUS_SUCCESS || batch == 1) return st;
  st = cu->cublasLtMatrixLayoutSetAttribute(*result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count);
  if (st != CUBLAS_STATUS_SUCCESS) return st;
  return cu->cublasLtMatrixLayoutSetAttribute(*result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof stride);
}

static cublasStatus_t set_desc(const cuda_vendor *cu, cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t which, const void *value,
                               size_t size_bytes) {
  return cu->cublasLtMatmulDescSetAttribute(desc, which, value, size_bytes);
}

static cublasLtEpilogue_t epilogue_of(const cuda_matmul_shape *s) {
  if (s->has_gelu) return s->has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return s->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t make_desc(const cuda_vendor *cu, cuda_matmul *m, types t) {
  const cuda_matmul_shape *s = &m->shape;
  cublasOperation_t yes = CUBLAS_OP_T;
  cublasLtEpilogue_t epilogue = epilogue_of(s);
  cublasStatus_t st = cu->cublasLtMatmulDescCreate(&m->desc, t.compute, t.scale);
  /* mutant: cuda_product_turned */
  if (!st && s->trans_a) st = set_desc(cu, m->desc, CUBLASLT_MATMUL_DESC_TRANSA, &yes, sizeof yes);
  if (!st && s->trans_b) st = set_desc(cu, m->desc, CUBLASLT_MATMUL_DESC_TRANSB, &yes, sizeof yes);
  if (!st && epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    st = set_desc(cu, m->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (st || !s->has_bias) return st;
  void *pointer = (void *)(uintptr_t)s->align_bias; /* only its alignment matters here */
  if (!st) st = set_desc(cu, m->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer, sizeof pointer);
  if (!st && s->batch > 1)
    st = set_desc(cu, m->desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &s->stride_bias,
                  sizeof s->stride_bias);
  return st;
}

static cublasStatus_t set_preferences(const cuda_vendor *cu, cublasLtMatmulPreference_t pref,
                                      const cuda_matmul_shape *s) {
  uint64_t workspace = MOST_WORKSPACE;
  struct {
    cublasLtMatmulPreferenceAttributes_t which;
    uint32_t value;
  } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)s->align_a},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)s->align_b},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)s->align_c},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)s->align_d}};
  cublasStatus_t st = cu->cublasLtMatmulPreferenceSetAttribute(
      pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  for (size_t i = 0; !st && i < sizeof alignments / sizeof *alignments; i++)
    st = cu->cublasLtMatmulPreferenceSetAttribute(pref, alignments[i].which, &alignments[i].value,
                                                  sizeof alignments[i].value);
  return st;
}

static cublasStatus_t choose(const cuda_vendor *cu, cublasLtHandle_t lt, cuda_matmul *m) {
  cublasLtMatmulPreference_t pref = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int n = 0;
  cublasStatus_t st = cu->cublasLtMatmulPreferenceCreate(&pref);
  if (!st) st = set_preferences(cu, pref, &m->shape);
  if (!st)
    st = cu->cublasLtMatmulAlgoGetHeuristic(lt, m->desc, m->a, m->b, m->c ? m->c : m->d, m->d, pref,
                                            1, &found, &n);
  if (pref) (void)cu->cublasLtMatmulPreferenceDestroy(pref);
  m->works = !st && n > 0 && found.state == CUBLAS_STATUS_SUCCESS;
  if (m->works) {
    m->algo = found.algo;
    m->workspace_bytes = found.workspaceSize;
  }
  return st == CUBLAS_STATUS_NOT_SUPPORTED || st == CUBLAS_STATUS_INVALID_VALUE
             ? CUBLAS_STATUS_SUCCESS
             : st;
}

static cublasStatus_t build(const cuda_vendor *cu, cublasLtHandle_t lt, cuda_matmul *m) {
  const cuda_matmul_shape *s = &m->shape;
  types t = types_of(s);
  int64_t rows_a = s->trans_a ? s->k : s->m, columns_a = s->trans_a ? s->m : s->k;
  int64_t rows_b = s->trans_b ? s->n : s->k, columns_b = s->trans_b ? s->k : s->n;
  cublasStatus_t st = make_desc(cu, m, t);
  if (!st) st = make_layout(cu, t.from, rows_a, columns_a, s->lda, s->batch, s->stride_a, &m->a);
  if (!st) st = make_layout(cu, t.from, rows_b, columns_b, s->ldb, s->batch, s->stride_b, &m->b);
  if (!st) st = make_layout(cu, t.to, s->m, s->n, s->ldd, s->batch, s->stride_d, &m->d);
  if (!st && s->has_c) st = make_layout(cu, t.to, s->m, s->n, s->ldc, s->batch, s->stride_c, &m->c);
  return st ? st : choose(cu, lt, m);
}

static void destroy(const cuda_vendor *cu, cuda_matmul *m, const allocator *memory) {
  if (m->a) (void)cu->cublasLtMatrixLayoutDestroy(m->a);
  if (m->b) (void)cu->cublasLtMatrixLayoutDestroy(m->b);
  if (m->c) (void)cu->cublasLtMatrixLayoutDestroy(m->c);
  if (m->d) (void)cu->cublasLtMatrixLayoutDestroy(m->d);
  if (m->desc) (void)cu->cublasLtMatmulDescDestroy(m->desc);
  memory_free(memory, m);
}

void cuda_matmuls_destroy(const cuda_vendor *cu, cuda_matmul *list, const allocator *memory) {
  while (list) {
    cuda_matmul *next = list->next;
    destroy(cu, list, memory);
    list = next;
  }
}

status cuda_matmul_get(const cuda_vendor *cu, cublasLtHandle_t lt, cuda_matmul **list,
                       const cuda_matmul_shape *shape, const allocator *memory,
                       const cuda_matmul **result) {
  cuda_matmul *m = *list;
  while (m && memcmp(&m->shape, shape, sizeof *shape) != 0) m = m->next;
  if (!m) {
    m = memory_alloc(memory, sizeof *m);
    if (!m) return STATUS_OUT_OF_MEMORY;
    memset(m, 0, sizeof *m);
    memcpy(&m->shape, shape, sizeof *shape);
    cublasStatus_t st = build(cu, lt, m);
    if (st != CUBLAS_STATUS_SUCCESS) {
      destroy(cu, m, memory);
      return cuda_try_lt(st, "choosing an algorithm for a matrix product");
    }
    m->next = *list;
    *list = m;
  }
  *result = m->works ? m : NULL;
  return STATUS_OK;
}

cublasStatus_t cuda_matmul_run(const cuda_vendor *cu, cublasLtHandle_t lt, const cuda_matmul *m,
                               const CUdeviceptr starts[CUDA_MATMUL_SIDES], CUdeviceptr workspace,
                               CUstream stream) {
  static const float one = 1, zero = 0;
  static const double one_f64 = 1, zero_f64 = 0;
  bool wide = m->shape.dtype == IR_F64;
  const void *alpha = wide ? (const void *)&one_f64 : &one;
  const void *beta = m->c ? alpha : wide ? (const void *)&zero_f64 : &zero;
  CUdeviceptr a = starts[m->shape.swapped ? B : A], b = starts[m->shape.swapped ? A : B];
  /* mutant: cuda_product_bias */
  if (m->shape.has_bias) {
    cublasStatus_t st = set_desc(cu, m->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &starts[BIAS],
                                 sizeof starts[BIAS]);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
  }
  void *d = (void *)(uintptr_t)starts[C];
  const void *c = m->c ? (const void *)(uintptr_t)starts[ADDED] : d;
  return cu->cublasLtMatmul(lt, m->desc, alpha, (const void *)(uintptr_t)a, m->a,
                            (const void *)(uintptr_t)b, m->b, beta, c, m->c ? m->c : m->d, d, m->d,
                            &m->algo, (void *)(uintptr_t)workspace, m->workspace_bytes, stream);
}
