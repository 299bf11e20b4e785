#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Relative paths in these variables are ignored, as the XDG specification demands. */
bool folder_default(char *path, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n = -1;
  if (cache && cache[0] == '/') n = snprintf(path, size, "%s/weir", cache);
  else if (home && home[0] == '/') n = snprintf(path, size, "%s/.cache/weir", home);
  return n > 0 && (size_t)n < size;
}

int folder_open(const char *given) {
  char path[PATH_MAX];
  struct stat s;
  if (given && (given[0] == '\0' || strlen(given) >= sizeof path)) return -1;
  if (given) memcpy(path, given, strlen(given) + 1);
  else if (!folder_default(path, sizeof path)) return -1;
  make_folders(path);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, &s) == 0 && only_mine(&s, S_IFDIR)) return fd;
  (void)close(fd);
  return -1;
}

/* ---- files ---- */
/* Opening a pipe must not wait for a writer. */
int folder_open_file(int folder, const char *name, size_t *size_bytes) {
  struct stat s;
  int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, &s) == 0 && only_mine(&s, S_IFREG)) {
    *size_bytes = (size_t)s.st_size;
    return fd;
  }
  (void)close(fd);
  return -1;
}

bool folder_read(int fd, void *to, size_t size_bytes) {
  for (char *at = to; size_bytes > 0;) {
    ssize_t n = read(fd, at, size_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size_bytes -= (size_t)n;
  }
  return true;
}

bool folder_write(int fd, const void *from, size_t size_bytes) {
  for (const char *at = from; size_bytes > 0;) {
    ssize_t n = write(fd, at, size_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size_bytes -= (size_t)n;
  }
  return true;
}

bool folder_create_file(int folder, const char *name, const void *bytes, size_t size_bytes) {
  int fd =
      openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return false;
  bool ok = folder_write(fd, bytes, size_bytes);
  return close(fd) == 0 && ok;
}
