#include "runtime/measured.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/table.h"

enum { MAX_NAME = 128, MAX_FILE = 1 << 14, VERSION = 1 };

/* The number of the version changes when the meaning of the figures does. */
static void name_of(const rt_measured_key *k, char name[MAX_NAME]) {
  (void)snprintf(name, MAX_NAME, "machine-%d-%.16s-%.16s-%u-%016llx", VERSION, k->device, k->comm,
                 k->ranks, (unsigned long long)hash_bytes(k->hosts, strlen(k->hosts)));
}

static void report_unusable(const char *name, const char *why) {
  char folder[PATH_MAX], text[PATH_MAX + 512];
  if (!folder_default(folder, sizeof folder)) folder[0] = '\0';
  (void)snprintf(text, sizeof text, "weir: note: %s/%s is not used: %s\n", folder, name, why);
  log_text(text);
}

/* ---- reading ---- */
/* NULL, or what is wrong. */
static const char *read_open(int fd, size_t size_bytes, const char *name, rt_speed *result) {
  char text[MAX_FILE];
  if (size_bytes >= sizeof text) return "it is too long for a machine file";
  if (!folder_read(fd, text, size_bytes)) return "it cannot be read";
  text[size_bytes] = '\0';
  if (strlen(text) != size_bytes) return "it contains a zero byte";
  if (rt_machine_parse(name, text, result) == STATUS_OK) return NULL;
  return status_message();
}

/* NULL, or what is wrong; "" if there is no such thing. */
static const char *read_file(int folder, const char *name, rt_speed *result) {
  size_t size_bytes;
  int fd = folder_open_file(folder, name, &size_bytes);
  if (fd < 0 && faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) return "";
  if (fd < 0) return "it is no file that only this user can write";
  const char *wrong = read_open(fd, size_bytes, name, result);
  (void)close(fd);
  return wrong;
}

rt_measured rt_measured_read(const rt_measured_key *key, rt_speed *result) {
  char name[MAX_NAME];
  int folder = folder_open(NULL);
  if (folder < 0) return RT_MEASURED_NOWHERE;
  name_of(key, name);
  const char *wrong = read_file(folder, name, result);
  (void)close(folder);
  if (wrong && wrong[0]) report_unusable(name, wrong);
  if (wrong) status_clear();
  return wrong ? RT_MEASURED_MISSING : RT_MEASURED_FOUND;
}

/* ---- writing ---- */
static void print(const rt_measured_key *key, const rt_speed *machine, strbuf *out) {
  strbuf_printf(out, "# device %s, communication %s, %u %s\n# hosts %s\n", key->device, key->comm,
                key->ranks, key->ranks == 1 ? "process" : "processes", key->hosts);
  rt_machine_print(machine, out);
}

/* Makes the draft the file, in one step. A file that cannot be used is replaced. */
static bool place(int folder, const char *draft, const char *name, bool renew) {
  rt_speed other;
  if (renew) return renameat(folder, draft, folder, name) == 0;
  if (linkat(folder, draft, folder, name, 0) == 0) return true;
  if (!read_file(folder, name, &other)) return true;
  status_clear();
  return renameat(folder, draft, folder, name) == 0;
}

bool rt_measured_write(const rt_measured_key *key, const rt_speed *machine, bool renew,
                       arena *scratch) {
  char name[MAX_NAME], draft[MAX_NAME + 32];
  strbuf text;
  strbuf_init(&text, scratch);
  print(key, machine, &text);
  name_of(key, name);
  (void)snprintf(draft, sizeof draft, ".%s.%ld", name, (long)getpid());
  int folder = folder_open(NULL);
  if (folder < 0) return false;
  bool ok =
      folder_create_file(folder, draft, text.data, text.len) && place(folder, draft, name, renew);
  (void)unlinkat(folder, draft, 0);
  (void)close(folder);
  return ok;
}

bool rt_measured_path(const rt_measured_key *key, strbuf *path) {
  char name[MAX_NAME], folder[PATH_MAX];
  if (!folder_default(folder, sizeof folder)) return false;
  name_of(key, name);
  strbuf_printf(path, "%s/%s", folder, name);
  return true;
}
