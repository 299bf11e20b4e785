#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/npy.h"

enum { CHUNK_ELEMENTS = 4096, NAME_TRIES = 100 };

/* One file on its way: complete under a temporary name, then renamed. */
typedef struct target {
  const char *path; /* as the user wrote it, for messages */
  char *final;      /* the name at the end: `path` with links followed */
  char *temporary;  /* NULL: written directly */
  FILE *file;
  bool exists; /* the temporary file does */
} target;

static status refused(const target *t, const char *what) {
  return fail(STATUS_BAD_INPUT, "%s: cannot write: %s", t->path, what);
}

/* Once a file is open, what fails is the disk, not the user. */
static status write_failed(const target *t) {
  return fail(STATUS_SYSTEM, "%s: writing failed: %s", t->path, strerror(errno));
}

/* ---- names ---- */
static status copy_name(const char *text, const char *suffix, const allocator *memory,
                        char **result) {
  size_t size_bytes = strlen(text) + strlen(suffix) + 1;
  char *copy = memory_alloc(memory, size_bytes);
  if (!copy) return STATUS_OUT_OF_MEMORY;
  (void)snprintf(copy, size_bytes, "%s%s", text, suffix);
  *result = copy;
  return STATUS_OK;
}

/* Follows links, so that saving through one changes what it points to. */
static status resolve(target *t, const allocator *memory) {
  char followed[PATH_MAX];
  const char *name = realpath(t->path, followed);
  return copy_name(name ? name : t->path, "", memory, &t->final);
}

static status open_temporary(target *t, const allocator *memory) {
  static atomic_uint counter;
  for (int tries = 0; tries < NAME_TRIES; tries++) {
    char suffix[48];
    (void)snprintf(suffix, sizeof suffix, ".tmp.%ld.%u", (long)getpid(),
                   atomic_fetch_add(&counter, 1U));
    memory_free(memory, t->temporary);
    t->temporary = NULL;
    TRY(copy_name(t->final, suffix, memory, &t->temporary));
    int fd = open(t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) continue; /* left by a process that died */
    if (fd < 0) return refused(t, strerror(errno));
    t->exists = true;
    t->file = fdopen(fd, "wb");
    if (t->file) return STATUS_OK;
    status st = write_failed(t);
    (void)close(fd);
    return st;
  }
  return refused(t, "no free temporary name beside it");
}

/* Renaming over a device would replace it: devices and pipes are written as they are. */
static status open_target(target *t, const allocator *memory) {
  struct stat info;
  bool there = stat(t->path, &info) == 0;
  if (t->path[0] == '\0') return refused(t, "the file name is empty");
  if (there && S_ISDIR(info.st_mode)) return refused(t, "it is a directory");
  if (there && S_ISREG(info.st_mode) && access(t->path, W_OK) != 0)
    return refused(t, strerror(errno));
  if (!there || S_ISREG(info.st_mode)) {
    TRY(resolve(t, memory));
    return open_temporary(t, memory);
  }
  t->file = fopen(t->path, "wb");
  return t->file ? STATUS_OK : refused(t, strerror(errno));
}

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
  ir_dtype dtype = rt_npy_stored_dtype(a->dtype);
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
  char header[RT_NPY_HEADER_MAX];
  size_t n = rt_npy_format_header(rt_npy_stored_dtype(a->dtype), a->extents, a->rank, header);
  int64_t count;
  check(ir_array_count(a, &count));
  if (fwrite(header, 1, n, file) != n) return false;
  return count == 0 || write_elements(a, file);
}

/* A full disk may show only when buffers reach it. */
static bool flush_file(const target *t) {
  if (fflush(t->file) != 0) return false;
  if (!t->temporary) return true;
  return fsync(fileno(t->file)) == 0 || errno == EINVAL || errno == EROFS;
}

static status write_target(target *t, const ir_array *a, const allocator *memory) {
  TRY(open_target(t, memory));
  bool written = write_contents(a, t->file) && flush_file(t);
  status st = written ? STATUS_OK : write_failed(t);
  if (fclose(t->file) != 0 && st == STATUS_OK) st = write_failed(t);
  t->file = NULL;
  return st;
}

static status rename_target(target *t) {
  if (!t->temporary) return STATUS_OK;
  if (rename(t->temporary, t->final) != 0) return refused(t, strerror(errno));
  t->exists = false;
  return STATUS_OK;
}

static void drop_target(target *t, const allocator *memory) {
  if (t->file) (void)fclose(t->file);
  if (t->exists) (void)unlink(t->temporary);
  memory_free(memory, t->temporary);
  memory_free(memory, t->final);
}

struct rt_npy_staged {
  allocator memory;
  char *paths; /* one behind the other: messages outlive the caller's */
  size_t n;
  target targets[];
};

static status copy_paths(rt_npy_staged *s, const char *const *paths) {
  size_t size_bytes = 1;
  for (size_t i = 0; i < s->n; i++) size_bytes += strlen(paths[i]) + 1;
  char *to = s->paths = memory_alloc(&s->memory, size_bytes);
  if (!to) return STATUS_OUT_OF_MEMORY;
  for (size_t i = 0; i < s->n; i++) {
    size_t length = strlen(paths[i]) + 1;
    memcpy(to, paths[i], length);
    s->targets[i].path = to;
    to += length;
  }
  return STATUS_OK;
}

status rt_npy_stage(const ir_array *const *arrays, const char *const *paths, size_t n,
                    const allocator *memory, rt_npy_staged **result) {
  rt_npy_staged *s = memory_alloc(memory, sizeof *s + n * sizeof *s->targets);
  if (!s) return STATUS_OUT_OF_MEMORY;
  *s = (rt_npy_staged){.memory = *memory, .n = n};
  for (size_t i = 0; i < n; i++) s->targets[i] = (target){0};
  status st = copy_paths(s, paths);
  for (size_t i = 0; i < n && st == STATUS_OK; i++)
    st = write_target(&s->targets[i], arrays[i], &s->memory);
  if (st == STATUS_OK) *result = s;
  else rt_npy_staged_destroy(s);
  return st;
}

status rt_npy_commit(rt_npy_staged *s) {
  for (size_t i = 0; i < s->n; i++) TRY(rename_target(&s->targets[i]));
  return STATUS_OK;
}

void rt_npy_staged_destroy(rt_npy_staged *s) {
  if (!s) return;
  allocator memory = s->memory;
  for (size_t i = 0; i < s->n; i++) drop_target(&s->targets[i], &memory);
  memory_free(&memory, s->paths);
  memory_free(&memory, s);
}

status rt_npy_save(const ir_array *const *arrays, const char *const *paths, size_t n,
                   const allocator *memory) {
  rt_npy_staged *s = NULL;
  TRY(rt_npy_stage(arrays, paths, n, memory, &s));
  status st = rt_npy_commit(s);
  rt_npy_staged_destroy(s);
  return st;
}
