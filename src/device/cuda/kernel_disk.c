/* Compiled programs on disk; see kernel_disk.h. */
#include "device/cuda/kernel_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/table.h"

/* ---- the folder ---- */
static bool only_mine(const struct stat *s, mode_t type) {
  return (s->st_mode & S_IFMT) == type && s->st_uid == geteuid() &&
         (s->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Makes the folders of a path that are missing; what exists stays as it is. */
static void make_folders(char *path) {
  for (char *at = path + 1; *at; at++) {
    if (*at != '/') continue;
    *at = '\0';
    (void)mkdir(path, S_IRWXU);
    *at = '/';
  }
  (void)mkdir(path, S_IRWXU);
}

/* Relative values of the variables are to be ignored. */
static bool default_folder(char *path, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n = -1;
  if (cache && cache[0] == '/') n = snprintf(path, size, "%s/weir", cache);
  else if (home && home[0] == '/') n = snprintf(path, size, "%s/.cache/weir", home);
  return n > 0 && (size_t)n < size;
}

void cuda_disk_open(cuda_disk *disk, const char *folder) {
  char path[PATH_MAX];
  struct stat s;
  disk->folder = -1;
  if (folder && folder[0] == '\0') return;
  if (folder && strlen(folder) >= sizeof path) return;
  if (folder) memcpy(path, folder, strlen(folder) + 1);
  else if (!default_folder(path, sizeof path)) return;
  make_folders(path);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  if (fstat(fd, &s) == 0 && only_mine(&s, S_IFDIR)) disk->folder = fd;
  else (void)close(fd);
}

void cuda_disk_close(cuda_disk *disk) {
  if (disk->folder >= 0) (void)close(disk->folder);
  disk->folder = -1;
}

/* ---- files ---- */
typedef struct head {
  char magic[8];
  uint64_t source_bytes, program_bytes, checksum;
} head;

static const char magic[8] = {'w', 'e', 'i', 'r', 'g', 'p', 'u', '1'};
enum { MAX_NAME = 128 };

static void name_of(const cuda_disk_key *key, char name[MAX_NAME]) {
  uint64_t hash = hash_bytes(key->source, key->source_bytes);
  (void)snprintf(name, MAX_NAME, "%016llx-%.64s.cubin", (unsigned long long)hash, key->target);
}

static uint64_t checksum(const void *source, size_t source_bytes, const void *program,
                         size_t program_bytes) {
  return hash_mix(hash_bytes(source, source_bytes), hash_bytes(program, program_bytes));
}

static bool read_all(int fd, void *to, size_t size) {
  for (char *at = to; size > 0;) {
    ssize_t n = read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

static bool write_all(int fd, const void *from, size_t size) {
  for (const char *at = from; size > 0;) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

static bool fits(const head *h, const struct stat *s, const cuda_disk_key *key) {
  if (memcmp(h->magic, magic, sizeof magic) != 0 || h->source_bytes != key->source_bytes)
    return false;
  uint64_t size = (uint64_t)s->st_size, rest = sizeof *h + key->source_bytes;
  return size > rest && h->program_bytes == size - rest;
}

/* An allocation that fails is a program that is not found: it is compiled, or fails there. */
static bool read_file(int fd, const cuda_disk_key *key, const allocator *memory, void **program,
                      size_t *size_bytes) {
  struct stat s;
  head h;
  if (fstat(fd, &s) != 0 || !only_mine(&s, S_IFREG) || !read_all(fd, &h, sizeof h) ||
      !fits(&h, &s, key))
    return false;
  size_t size = key->source_bytes + (size_t)h.program_bytes;
  char *block = memory->alloc(memory->context, size);
  if (!block) return false;
  char *found = block + key->source_bytes;
  bool ok = read_all(fd, block, size) && memcmp(block, key->source, key->source_bytes) == 0 &&
            checksum(block, key->source_bytes, found, (size_t)h.program_bytes) == h.checksum;
  if (ok) memmove(block, found, (size_t)h.program_bytes);
  else memory_free(memory, block);
  if (!ok) return false;
  *program = block;
  *size_bytes = (size_t)h.program_bytes;
  return true;
}

bool cuda_disk_read(const cuda_disk *disk, const cuda_disk_key *key, const allocator *memory,
                    void **program, size_t *size_bytes) {
  char name[MAX_NAME];
  if (disk->folder < 0) return false;
  name_of(key, name);
  int fd = openat(disk->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  bool found = read_file(fd, key, memory, program, size_bytes);
  (void)close(fd);
  return found;
}

static bool write_file(int fd, const cuda_disk_key *key, const void *program, size_t size_bytes) {
  head h = {.source_bytes = key->source_bytes, .program_bytes = size_bytes};
  memcpy(h.magic, magic, sizeof magic);
  h.checksum = checksum(key->source, key->source_bytes, program, size_bytes);
  bool ok = write_all(fd, &h, sizeof h) && write_all(fd, key->source, key->source_bytes) &&
            write_all(fd, program, size_bytes);
  return close(fd) == 0 && ok;
}

void cuda_disk_write(const cuda_disk *disk, const cuda_disk_key *key, const void *program,
                     size_t size_bytes) {
  char name[MAX_NAME], draft[MAX_NAME + 32];
  if (disk->folder < 0) return;
  name_of(key, name);
  (void)snprintf(draft, sizeof draft, ".%s.%ld.%p", name, (long)getpid(), (const void *)program);
  int fd = openat(disk->folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  S_IRUSR | S_IWUSR);
  if (fd < 0) return;
  if (!write_file(fd, key, program, size_bytes) ||
      renameat(disk->folder, draft, disk->folder, name) != 0)
    (void)unlinkat(disk->folder, draft, 0);
}
