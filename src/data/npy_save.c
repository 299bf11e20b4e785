#include <string.h>

#include "base/beside.h"
#include "data/npy.h"

enum { CHUNK_ELEMENTS = 4096 };

/* ---- contents ---- */
typedef struct chunk {
  ir_dtype dtype;
  size_t size_bytes; /* of an element */
  size_t len;
  unsigned char bytes[CHUNK_ELEMENTS * 8];
} chunk;

static bool flush_chunk(chunk *c, FILE *file) {
  size_t n = c->len * c->size_bytes;
  c->len = 0;
  return fwrite(c->bytes, 1, n, file) == n;
}

static bool write_elements(const ir_array *a, FILE *file) {
  ir_dtype dtype = data_npy_stored_dtype(a->dtype);
  chunk c = {.dtype = dtype, .size_bytes = ir_dtype_size_bytes(dtype)};
  int64_t index[IR_MAX_RANK] = {0};
  do {
    const void *from = ir_array_at(a, index);
    void *to = c.bytes + c.len++ * c.size_bytes;
    if (dtype == a->dtype && dtype != IR_BOOL) memcpy(to, from, c.size_bytes);
    else if (ir_dtype_is_float(dtype))
      ir_element_set_f64(dtype, to, ir_element_as_f64(a->dtype, from));
    else ir_element_set_i64(dtype, to, ir_element_as_i64(a->dtype, from));
    if (c.len == CHUNK_ELEMENTS && !flush_chunk(&c, file)) return false;
  } while (ir_array_next(a, index));
  return flush_chunk(&c, file);
}

static bool write_contents(const ir_array *a, FILE *file) {
  char header[DATA_NPY_HEADER_MAX];
  size_t n = data_npy_format_header(data_npy_stored_dtype(a->dtype), a->extents, a->rank, header);
  int64_t count;
  check(ir_array_count(a, &count));
  if (fwrite(header, 1, n, file) != n) return false;
  return count == 0 || write_elements(a, file);
}

static status write_target(beside *t, const char *path, const ir_array *a,
                           const allocator *memory) {
  TRY(beside_open(t, path, memory));
  if (!write_contents(a, t->file)) return beside_failed(t);
  return beside_close(t);
}

struct data_npy_staged {
  allocator memory;
  char *paths;        /* contiguous: messages outlive the caller's */
  const char **names; /* into them */
  size_t n;
  beside targets[];
};

static status copy_paths(data_npy_staged *s, const char *const *paths) {
  size_t size_bytes = 1;
  for (size_t i = 0; i < s->n; i++) size_bytes += strlen(paths[i]) + 1;
  char *to = s->paths = memory_alloc(&s->memory, size_bytes);
  s->names = memory_alloc(&s->memory, (s->n + 1) * sizeof *s->names);
  if (!to || !s->names) return STATUS_OUT_OF_MEMORY;
  for (size_t i = 0; i < s->n; i++) {
    size_t length = strlen(paths[i]) + 1;
    memcpy(to, paths[i], length);
    s->names[i] = to;
    to += length;
  }
  return STATUS_OK;
}

status data_npy_stage(const ir_array *const *arrays, const char *const *paths, size_t n,
                      const allocator *memory, data_npy_staged **result) {
  data_npy_staged *s = memory_alloc(memory, sizeof *s + n * sizeof *s->targets);
  if (!s) return STATUS_OUT_OF_MEMORY;
  *s = (data_npy_staged){.memory = *memory, .n = n};
  for (size_t i = 0; i < n; i++) s->targets[i] = (beside){0};
  status st = copy_paths(s, paths);
  for (size_t i = 0; i < n && st == STATUS_OK; i++)
    st = write_target(&s->targets[i], s->names[i], arrays[i], &s->memory);
  if (st == STATUS_OK) *result = s;
  else data_npy_staged_destroy(s);
  return st;
}

status data_npy_commit(data_npy_staged *s) {
  for (size_t i = 0; i < s->n; i++) TRY(beside_commit(&s->targets[i]));
  return STATUS_OK;
}

void data_npy_staged_destroy(data_npy_staged *s) {
  if (!s) return;
  allocator memory = s->memory;
  for (size_t i = 0; i < s->n; i++) beside_drop(&s->targets[i]);
  memory_free(&memory, s->paths);
  memory_free(&memory, (void *)s->names);
  memory_free(&memory, s);
}

status data_npy_save(const ir_array *const *arrays, const char *const *paths, size_t n,
                     const allocator *memory) {
  data_npy_staged *s = NULL;
  TRY(data_npy_stage(arrays, paths, n, memory, &s));
  status st = data_npy_commit(s);
  data_npy_staged_destroy(s);
  return st;
}
