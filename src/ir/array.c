#include "ir/array.h"

bool ir_array_count(const ir_array *a, int64_t *elements) {
  int64_t n = 1;
  bool fits = true;
  for (uint32_t i = 0; i < a->rank; i++) {
    check(a->extents[i] >= 0);
    if (a->extents[i] == 0) {
      *elements = 0;
      return true;
    }
    if (__builtin_mul_overflow(n, a->extents[i], &n)) {
      fits = false;
      n = 1; /* keep looking: a later zero makes the array empty */
    }
  }
  if (fits) *elements = n;
  return fits;
}

bool ir_array_size_bytes(const ir_array *a, int64_t *bytes) {
  int64_t n, size;
  if (!ir_array_count(a, &n)) return false;
  if (__builtin_mul_overflow(n, (int64_t)ir_dtype_size_bytes(a->dtype), &size)) return false;
  *bytes = size;
  return true;
}

/* An empty array may have extents whose product overflows; its strides do not matter. */
void ir_array_dense(ir_array *a) {
  int64_t stride = 1;
  for (uint32_t i = a->rank; i-- > 0;) {
    a->strides[i] = stride;
    if (__builtin_mul_overflow(stride, a->extents[i], &stride)) stride = 0;
  }
}

/* The stride of an axis of length 0 or 1 is never used. */
bool ir_array_is_dense(const ir_array *a) {
  int64_t stride = 1, n;
  if (ir_array_count(a, &n) && n == 0) return true;
  for (uint32_t i = a->rank; i-- > 0;) {
    if (a->extents[i] != 1 && a->strides[i] != stride) return false;
    if (__builtin_mul_overflow(stride, a->extents[i], &stride)) return false;
  }
  return true;
}

status ir_array_alloc(ir_array *a, const allocator *memory) {
  int64_t bytes;
  if (!ir_array_size_bytes(a, &bytes))
    return fail(STATUS_BAD_PROGRAM, "the size of an array overflows 63 bits");
  void *data = memory_alloc(memory, (size_t)bytes);
  if (!data) return STATUS_OUT_OF_MEMORY;
  ir_array_dense(a);
  a->data = data;
  return STATUS_OK;
}

void *ir_array_at(const ir_array *a, const int64_t *index) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < a->rank; i++) offset += index[i] * a->strides[i];
  return (char *)a->data + offset * (int64_t)ir_dtype_size_bytes(a->dtype);
}

bool ir_array_next(const ir_array *a, int64_t *index) {
  for (uint32_t i = a->rank; i-- > 0;) {
    if (++index[i] < a->extents[i]) return true;
    index[i] = 0;
  }
  return false;
}
