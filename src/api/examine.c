/* What this machine has. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "api/api.h"
#include "base/folder.h"
#include "runtime/comm.h"
#include "runtime/device.h"

typedef struct examination {
  const char *subject;
  weir_finding_fn *tell;
  void *context;
} examination;

static void say(void *context, const char *name, const char *value) {
  examination *e = context;
  e->tell(e->context, &(weir_finding){e->subject, name, value});
}

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Figures of this machine, and kernels for GPUs. */
static void examine_cache(examination *e) {
  char path[PATH_MAX], text[PATH_MAX + 64];
  if (!folder_default(path, sizeof path)) {
    say(e, "cache", "none: neither XDG_CACHE_HOME nor HOME names a folder");
    return;
  }
  DIR *folder = opendir(path);
  double bytes = 0;
  long files = 0;
  for (struct dirent *d; folder && (d = readdir(folder));) {
    struct stat s;
    if (fstatat(dirfd(folder), d->d_name, &s, 0) != 0 || !S_ISREG(s.st_mode)) continue;
    files++;
    bytes += (double)s.st_size;
  }
  if (folder) (void)closedir(folder);
  (void)snprintf(text, sizeof text, "%s: %ld files, %.1f MB", path, files, bytes / 1e6);
  say(e, "cache", text);
}

static status examine_body(arena *scratch, void *context) {
  examination *e = context;
  (void)scratch;
  e->subject = "weir";
  say(e, "compiled by", COMPILER);
  examine_cache(e);
  for (uint32_t i = 0; i < rt_device_count(); i++) {
    e->subject = rt_device_at(i)->name;
    if (rt_device_at(i)->examine) rt_device_at(i)->examine(say, e);
  }
  for (uint32_t i = 0; i < rt_comm_count(); i++) {
    e->subject = rt_comm_at(i)->name;
    if (rt_comm_at(i)->examine) rt_comm_at(i)->examine(say, e);
  }
  return STATUS_OK;
}

weir_status weir_examine(weir_finding_fn *tell, void *context) {
  if (!tell) return api_refuse("weir_examine: an argument is NULL");
  examination e = {NULL, tell, context};
  return api_call(&memory_default, examine_body, &e);
}
