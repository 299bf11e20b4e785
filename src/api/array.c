/* Arrays: memory owned by the library; views of the caller's. */
#include <string.h>

#include "api/api.h"
#include "base/beside.h"
#include "data/compare.h"
#include "data/fill.h"
#include "data/npy.h"
#include "session/memory.h"

/* Of DLPack. */
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };

/* ---- views of tensors of the caller ---- */
static status check_header(const weir_dl_tensor *t, const char *what) {
  if (t->ndim < 0 || t->ndim > IR_MAX_RANK)
    return fail(STATUS_BAD_USAGE, "%s has %d dimensions; at most %d are supported", what, t->ndim,
                IR_MAX_RANK);
  if (t->ndim > 0 && !t->shape) return fail(STATUS_BAD_USAGE, "%s has no shape", what);
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] < 0) return fail(STATUS_BAD_USAGE, "%s has a negative extent", what);
  return STATUS_OK;
}

/* The host reaches pinned and managed memory too. */
static status find_space(const weir_dl_tensor *t, const char *what, uint32_t *space) {
  *space = 0;
  switch (t->device.device_type) {
  case DL_CPU:
  case DL_CUDA_HOST:
  case DL_CUDA_MANAGED: return STATUS_OK;
  case DL_CUDA: break;
  default:
    return fail(STATUS_BAD_USAGE,
                "%s is on a device of type %d; supported are the CPU (1), CUDA (2), and CUDA's "
                "pinned (3) and managed memory (13)",
                what, t->device.device_type);
  }
  if (t->device.device_id < 0)
    return fail(STATUS_BAD_USAGE, "%s is on GPU %d", what, t->device.device_id);
  if (!session_memory())
    return fail(STATUS_UNAVAILABLE, "%s is on a GPU, but this weir was built without CUDA", what);
  *space = 1 + (uint32_t)t->device.device_id;
  return STATUS_OK;
}

/* Elements must be aligned, and their addresses must not overflow. */
static status check_addresses(const ir_array *a, const char *what) {
  int64_t first, end;
  uintptr_t start = (uintptr_t)a->data;
  if (!ir_array_span(a, &first, &end))
    return fail(STATUS_BAD_USAGE, "the strides of %s overflow 63 bits", what);
  if (first == end) return STATUS_OK;
  if (start < (uintptr_t)-first || (uint64_t)end > UINTPTR_MAX - start)
    return fail(STATUS_BAD_USAGE, "the strides of %s lead out of the address space", what);
  size_t size = ir_dtype_size_bytes(a->dtype);
  if (start % size == 0) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "the data of %s is not aligned to its elements of %zu bytes", what,
              size);
}

status api_view(const weir_dl_tensor *t, const char *what, bool shape_only, ir_array *result) {
  if (!t) return fail(STATUS_BAD_USAGE, "%s is NULL", what);
  TRY(check_header(t, what));
  weir_dtype dtype;
  TRY(api_dtype_of(t->dtype, what, &dtype));
  ir_array *a = result;
  int64_t n, bytes;
  *a = (ir_array){.dtype = (ir_dtype)dtype, .rank = (uint32_t)t->ndim};
  if (a->rank) memcpy(a->extents, t->shape, a->rank * sizeof *a->extents);
  if (!ir_array_count(a, &n) || !ir_array_size_bytes(a, &bytes))
    return fail(STATUS_BAD_USAGE, "the size of %s overflows 63 bits", what);
  if (n > 0 && !t->data && !shape_only) return fail(STATUS_BAD_USAGE, "%s has no data", what);
  ir_array_dense(a);
  if (t->strides && a->rank) memcpy(a->strides, t->strides, a->rank * sizeof *a->strides);
  if (!t->data) return STATUS_OK;
  a->data = (char *)((uintptr_t)t->data + t->byte_offset);
  TRY(find_space(t, what, &a->space));
  TRY(check_addresses(a, what));
  return a->space && n > 0 ? session_memory()->verify(a->space, a->data, what) : STATUS_OK;
}

/* ---- owned arrays ---- */
/* Takes over value.data. */
static weir_status own(const allocator *memory, const ir_array *value, weir_array **result) {
  weir_array *a = memory_alloc(memory, sizeof *a);
  if (!a) {
    memory_free(memory, value->data);
    return api_end(STATUS_OUT_OF_MEMORY);
  }
  *a = (weir_array){.memory = *memory, .value = *value};
  a->tensor = (weir_dl_tensor){.data = value->data,
                               .device = {DL_CPU, 0},
                               .ndim = (int32_t)value->rank,
                               .dtype = weir_dtype_to_dl((weir_dtype)value->dtype),
                               .shape = a->value.extents,
                               .strides = a->value.strides};
  *result = a;
  return WEIR_OK;
}

weir_status weir_array_create(weir_dtype dtype, const int64_t *extents, size_t rank,
                              const weir_allocator *memory, weir_array **result) {
  if (!result || (rank && !extents)) return api_refuse("weir_array_create: an argument is NULL");
  if (weir_dtype_size_bytes(dtype) == 0) return api_refuse("weir_array_create: not a dtype");
  if (rank > WEIR_MAX_RANK) return api_refuse("weir_array_create: rank %zu is too large", rank);
  for (size_t i = 0; i < rank; i++)
    if (extents[i] < 0) return api_refuse("weir_array_create: an extent is negative");
  if (api_check_allocator(memory, "weir_array_create") != WEIR_OK) return WEIR_BAD_USAGE;
  allocator a = api_allocator(memory);
  ir_array value = {.dtype = (ir_dtype)dtype, .rank = (uint32_t)rank};
  if (rank) memcpy(value.extents, extents, rank * sizeof *extents);
  api_begin();
  status st = ir_array_alloc(&value, &a);
  if (st != STATUS_OK) return api_end(st);
  int64_t bytes;
  check(ir_array_size_bytes(&value, &bytes));
  memset(value.data, 0, (size_t)bytes);
  return own(&a, &value, result);
}

void weir_array_destroy(weir_array *a) {
  if (!a) return;
  allocator memory = a->memory;
  memory_free(&memory, a->value.data);
  memory_free(&memory, a);
}

const weir_dl_tensor *weir_array_tensor(const weir_array *a) { return a ? &a->tensor : NULL; }
weir_dtype weir_array_dtype(const weir_array *a) {
  return a ? (weir_dtype)a->value.dtype : (weir_dtype)0;
}

/* ---- values ---- */
weir_status weir_array_fill(weir_array *a, const char *kind, uint64_t seed, const char *name) {
  data_fill_kind k;
  if (!a || !kind) return api_refuse("weir_array_fill: an argument is NULL");
  if (!data_fill_parse(kind, &k))
    return api_refuse("a fill is normal, int, iota or ones, not '%s'", kind);
  data_fill(&a->value, k, seed, name ? name : "");
  return WEIR_OK;
}

weir_status weir_array_fill_index(weir_array *a, int64_t bound, uint64_t seed, const char *name) {
  if (!a) return api_refuse("weir_array_fill_index: the array is NULL");
  api_begin();
  return api_end(data_fill_index(&a->value, bound, seed, name ? name : ""));
}

weir_status weir_array_convert(const weir_array *a, weir_dtype dtype, weir_array **result) {
  if (!a || !result) return api_refuse("weir_array_convert: an argument is NULL");
  weir_array *to = NULL;
  weir_allocator memory = {a->memory.alloc, a->memory.free, a->memory.context};
  weir_status st = weir_array_create(dtype, a->value.extents, a->value.rank, &memory, &to);
  if (st != WEIR_OK) return st;
  ir_array_copy(&to->value, &a->value);
  *result = to;
  return WEIR_OK;
}

static bool same_type(const ir_array *a, const ir_array *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  return memcmp(a->extents, b->extents, a->rank * sizeof *a->extents) == 0;
}

weir_status weir_array_compare(const weir_array *value, const weir_array *reference,
                               weir_dtype least, weir_comparison *result) {
  if (!value || !reference || !result) return api_refuse("weir_array_compare: an argument is NULL");
  if (weir_dtype_size_bytes(least) == 0) return api_refuse("weir_array_compare: not a dtype");
  if (!same_type(&value->value, &reference->value))
    return api_refuse("weir_array_compare: the arrays differ in dtype or shape");
  data_comparison c = data_compare(&value->value, &reference->value, (ir_dtype)least);
  *result = (weir_comparison){c.max_abs, c.max_rel, c.tolerance, c.ok};
  return WEIR_OK;
}

/* ---- files ---- */
weir_status weir_array_load_npy(const char *path, const weir_allocator *memory,
                                weir_array **result) {
  if (!path || !result) return api_refuse("weir_array_load_npy: an argument is NULL");
  if (api_check_allocator(memory, "weir_array_load_npy") != WEIR_OK) return WEIR_BAD_USAGE;
  allocator a = api_allocator(memory);
  ir_array value;
  api_begin();
  status st = data_npy_load(path, &a, &value);
  return st == STATUS_OK ? own(&a, &value, result) : api_end(st);
}

/* A handle of the header is the internal object itself. */
static data_npy_staged *staged_of(weir_saving *s) { return (data_npy_staged *)s; }

weir_status weir_arrays_stage_npy(const weir_array *const *arrays, const char *const *paths,
                                  size_t n, weir_saving **result) {
  if (!result || (n && (!arrays || !paths)))
    return api_refuse("weir_arrays_stage_npy: an argument is NULL");
  for (size_t i = 0; i < n; i++)
    if (!arrays[i] || !paths[i]) return api_refuse("weir_arrays_stage_npy: an argument is NULL");
  allocator memory = n ? arrays[0]->memory : api_allocator(NULL);
  api_begin();
  const ir_array **values = memory_alloc(&memory, (n + 1) * sizeof(const ir_array *));
  if (!values) return api_end(STATUS_OUT_OF_MEMORY);
  for (size_t i = 0; i < n; i++) values[i] = &arrays[i]->value;
  data_npy_staged *staged = NULL;
  status st = data_npy_stage(values, paths, n, &memory, &staged);
  memory_free(&memory, values);
  if (st == STATUS_OK) *result = (weir_saving *)staged;
  return api_end(st);
}

weir_status weir_saving_commit(weir_saving *s) {
  if (!s) return api_refuse("weir_saving_commit: the argument is NULL");
  api_begin();
  return api_end(data_npy_commit(staged_of(s)));
}

void weir_saving_abandon_all(void) { beside_abandon(); }

void weir_saving_destroy(weir_saving *s) { data_npy_staged_destroy(staged_of(s)); }

weir_status weir_arrays_save_npy(const weir_array *const *arrays, const char *const *paths,
                                 size_t n) {
  weir_saving *s = NULL;
  if (n == 0) return WEIR_OK;
  weir_status st = weir_arrays_stage_npy(arrays, paths, n, &s);
  if (st == WEIR_OK) st = weir_saving_commit(s);
  weir_saving_destroy(s);
  return st;
}

weir_status weir_array_save_npy(const weir_array *a, const char *path) {
  return weir_arrays_save_npy(&a, &path, 1);
}
