#include "base/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_TRIES = 100, MOST_NAMES = 256 };

static status refused(const beside *b, const char *what) {
  return fail(STATUS_BAD_INPUT, "%s: cannot write: %s", b->path, what);
}

/* Once the file is open, a failure is the disk's and not the user's. */
status beside_failed(const beside *b) {
  return fail(STATUS_SYSTEM, "%s: writing failed: %s", b->path, strerror(errno));
}

/* ---- names that a signal removes ----
 * A name is entered before its file is created. Files past MOST_NAMES at a time stay on the disk. */
static _Atomic(const char *) names[MOST_NAMES];

static void remember(const char *name) {
  for (int i = 0; i < MOST_NAMES; i++) {
    const char *none = NULL;
    if (atomic_compare_exchange_strong(&names[i], &none, name)) return;
  }
}

static void forget(const char *name) {
  for (int i = 0; i < MOST_NAMES; i++) {
    const char *here = name;
    if (atomic_compare_exchange_strong(&names[i], &here, NULL)) return;
  }
}

void beside_abandon(void) {
  for (int i = 0; i < MOST_NAMES; i++) {
    const char *name = atomic_load(&names[i]);
    if (name) (void)unlink(name);
  }
}

/* ---- opening ---- */
/* Follows links, so that saving through one changes what it points to. */
static status resolve(beside *b) {
  char followed[PATH_MAX];
  const char *name = realpath(b->path, followed);
  if (!name) name = b->path;
  b->final = memory_alloc(b->memory, strlen(name) + 1);
  if (!b->final) return STATUS_OUT_OF_MEMORY;
  memcpy(b->final, name, strlen(name) + 1);
  return STATUS_OK;
}

/* A name in the folder of the target. It does not contain the target's name, which may be as long as names
 * can be. */
static status name_temporary(beside *b) {
  static atomic_uint counter;
  const char *slash = strrchr(b->final, '/');
  size_t folder = slash ? (size_t)(slash - b->final) + 1 : 0, size_bytes = folder + 64;
  memory_free(b->memory, b->temporary);
  b->temporary = memory_alloc(b->memory, size_bytes);
  if (!b->temporary) return STATUS_OUT_OF_MEMORY;
  (void)snprintf(b->temporary, size_bytes, "%.*s.weir.tmp.%ld.%u", (int)folder, b->final,
                 (long)getpid(), atomic_fetch_add(&counter, 1U));
  return STATUS_OK;
}

static status open_temporary(beside *b, const struct stat *replaced) {
  for (int tries = 0; tries < NAME_TRIES; tries++) {
    TRY(name_temporary(b));
    remember(b->temporary);
    int fd = open(b->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaced ? 0600 : 0666);
    if (fd < 0) forget(b->temporary);
    if (fd < 0 && errno == EEXIST) continue; /* left by a process that died */
    if (fd < 0) return refused(b, strerror(errno));
    b->exists = true;
    if (replaced) (void)fchmod(fd, replaced->st_mode & 0777);
    b->file = fdopen(fd, "wb");
    if (b->file) return STATUS_OK;
    status st = beside_failed(b);
    (void)close(fd);
    return st;
  }
  return refused(b, "no free temporary name beside it");
}

status beside_open(beside *b, const char *path, const allocator *memory) {
  struct stat info;
  *b = (beside){.path = path, .memory = memory};
  bool there = stat(path, &info) == 0;
  if (path[0] == '\0') return refused(b, "the file name is empty");
  if (!there && errno == ENAMETOOLONG) return refused(b, strerror(errno));
  if (there && S_ISDIR(info.st_mode)) return refused(b, "it is a directory");
  if (there && S_ISREG(info.st_mode) && access(path, W_OK) != 0) return refused(b, strerror(errno));
  if (!there || S_ISREG(info.st_mode)) {
    TRY(resolve(b));
    return open_temporary(b, there ? &info : NULL);
  }
  b->file = fopen(path, "wb");
  return b->file ? STATUS_OK : refused(b, strerror(errno));
}

/* A full disk may show only when buffers reach it. */
static bool flush(const beside *b) {
  if (fflush(b->file) != 0) return false;
  if (!b->temporary) return true;
  return fsync(fileno(b->file)) == 0 || errno == EINVAL || errno == EROFS;
}

status beside_close(beside *b) {
  status st = flush(b) ? STATUS_OK : beside_failed(b);
  if (fclose(b->file) != 0 && st == STATUS_OK) st = beside_failed(b);
  b->file = NULL;
  return st;
}

status beside_commit(beside *b) {
  if (!b->temporary) return STATUS_OK;
  if (rename(b->temporary, b->final) != 0) return refused(b, strerror(errno));
  b->exists = false;
  forget(b->temporary);
  return STATUS_OK;
}

void beside_drop(beside *b) {
  if (b->file) (void)fclose(b->file);
  if (b->exists) {
    (void)unlink(b->temporary);
    forget(b->temporary);
  }
  if (!b->memory) return;
  memory_free(b->memory, b->temporary);
  memory_free(b->memory, b->final);
  *b = (beside){0};
}
