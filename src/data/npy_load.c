#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "data/npy.h"

enum { HEADER_LIMIT = 1 << 20 }; /* NumPy's own headers stay below 64 KiB */

typedef struct stream {
  const char *path;
  FILE *file;
  const allocator *memory;
  int64_t size_bytes; /* of a regular file; -1: not known */
} stream;

static status read_bytes(stream *s, void *to, size_t n, const char *what) {
  if (fread(to, 1, n, s->file) == n) return STATUS_OK;
  if (ferror(s->file))
    return fail(STATUS_BAD_INPUT, "%s: cannot read: %s", s->path, strerror(errno));
  return fail(STATUS_BAD_INPUT, "%s: the file ends inside its %s", s->path, what);
}

static status open_stream(stream *s) {
  s->file = fopen(s->path, "rb");
  if (!s->file) return fail(STATUS_BAD_INPUT, "%s: cannot open: %s", s->path, strerror(errno));
  struct stat info;
  if (fstat(fileno(s->file), &info) != 0)
    return fail(STATUS_BAD_INPUT, "%s: cannot read: %s", s->path, strerror(errno));
  if (S_ISDIR(info.st_mode)) return fail(STATUS_BAD_INPUT, "%s: is a directory", s->path);
  s->size_bytes = S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
  return STATUS_OK;
}

/* The length field has 2 bytes in version 1 and 4 in versions 2 and 3, low byte first. */
static status read_header_length(stream *s, size_t *length, size_t *before) {
  unsigned char magic[8], size[4] = {0};
  TRY(read_bytes(s, magic, sizeof magic, "header"));
  if (memcmp(magic, "\x93NUMPY", 6) != 0)
    return fail(STATUS_BAD_INPUT, "%s: not a .npy file (its first bytes differ)", s->path);
  if (magic[6] < 1 || magic[6] > 3)
    return fail(STATUS_BAD_INPUT, "%s: .npy version %d is not supported (1 to 3 are)", s->path,
                magic[6]);
  size_t width = magic[6] == 1 ? 2 : 4;
  TRY(read_bytes(s, size, width, "header"));
  *length = (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
  *before = sizeof magic + width;
  if (*length > HEADER_LIMIT)
    return fail(STATUS_BAD_INPUT, "%s: a header of %zu bytes is too long to be true", s->path,
                *length);
  return STATUS_OK;
}

static status read_header(stream *s, data_npy_header *h, int64_t *data_at) {
  size_t length = 0, before = 0;
  TRY(read_header_length(s, &length, &before));
  char *text = memory_alloc(s->memory, length);
  if (!text) return STATUS_OUT_OF_MEMORY;
  status st = read_bytes(s, text, length, "header");
  if (st == STATUS_OK) st = data_npy_parse_header(s->path, text, length, h);
  memory_free(s->memory, text);
  *data_at = (int64_t)(before + length);
  return st;
}

/* Before anything is allocated for it, the promised data is compared with the file's size. */
static status check_size(const stream *s, int64_t data_at, int64_t need) {
  int64_t have = s->size_bytes - data_at;
  if (s->size_bytes < 0 || have == need) return STATUS_OK;
  return fail(STATUS_BAD_INPUT,
              "%s: the shape needs %" PRId64 " bytes of data, but the file has %" PRId64 "%s",
              s->path, need, have < 0 ? 0 : have, have < need ? " (truncated?)" : "");
}

static void swap_bytes(unsigned char *data, size_t n, size_t width) {
  for (size_t i = 0; i < n; i += width) {
    for (size_t j = 0; j < width / 2; j++) {
      unsigned char t = data[i + j];
      data[i + j] = data[i + width - 1 - j];
      data[i + width - 1 - j] = t;
    }
  }
}

static void set_order(ir_array *a, bool fortran) {
  ir_array_dense(a);
  if (!fortran) return;
  int64_t stride = 1;
  for (uint32_t i = 0; i < a->rank; i++) {
    a->strides[i] = stride;
    if (__builtin_mul_overflow(stride, a->extents[i], &stride)) stride = 0; /* empty array */
  }
}

static status read_data(stream *s, const data_npy_header *h, ir_array *a, size_t n) {
  unsigned char *data = a->data;
  TRY(read_bytes(s, data, n, "data"));
  if (fgetc(s->file) != EOF)
    return fail(STATUS_BAD_INPUT, "%s: the file has more data than its shape says", s->path);
  if (h->swapped) swap_bytes(data, n, ir_dtype_size_bytes(h->dtype));
  if (h->dtype == IR_BOOL)
    for (size_t i = 0; i < n; i++) data[i] = data[i] != 0;
  return STATUS_OK;
}

static status read_array(stream *s, ir_array *result) {
  data_npy_header h;
  int64_t data_at, need;
  TRY(read_header(s, &h, &data_at));
  ir_array a = {.dtype = h.dtype, .rank = h.rank};
  memcpy(a.extents, h.extents, sizeof a.extents);
  if (!ir_array_size_bytes(&a, &need))
    return fail(STATUS_BAD_INPUT, "%s: the size of the shape overflows 63 bits", s->path);
  TRY(check_size(s, data_at, need));
  a.data = memory_alloc(s->memory, (size_t)need);
  if (!a.data) return STATUS_OUT_OF_MEMORY;
  set_order(&a, h.fortran);
  status st = read_data(s, &h, &a, (size_t)need);
  if (st == STATUS_OK) *result = a;
  else memory_free(s->memory, a.data);
  return st;
}

status data_npy_load(const char *path, const allocator *memory, ir_array *result) {
  stream s = {.path = path, .memory = memory};
  status st = open_stream(&s);
  if (st == STATUS_OK) st = read_array(&s, result);
  if (s.file) (void)fclose(s.file);
  return st;
}
