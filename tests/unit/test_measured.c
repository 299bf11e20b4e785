/* Measurements that are kept: the first counts, and what cannot be used is said and replaced. */
#include "runtime/measured.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "test.h"

static char folder[64] = "/tmp/weir-measured-XXXXXX", path[1024], said[2048];
static arena scratch;
static const rt_measured_key key = {"cpu", "mpi", 2, "one two"};

static void listen(void *context, const char *text) {
  (void)context;
  (void)snprintf(said, sizeof said, "%s", text);
}

static rt_speed machine(double gflops) {
  return (rt_speed){.flops_per_ns = gflops, .bytes_per_ns = 2, .link_bytes_per_ns = 3, .packs = 1};
}

static bool keep(double gflops, bool renew) {
  rt_speed m = machine(gflops);
  return rt_measured_write(&key, &m, renew, &scratch);
}

/* The rate that is kept; 0: none. */
static double kept(void) {
  rt_speed m = {0};
  said[0] = '\0';
  return rt_measured_read(&key, &m) == RT_MEASURED_FOUND ? m.flops_per_ns : 0;
}

static void test_first(void) {
  rt_speed m;
  EXPECT(kept() == 0 && said[0] == '\0');
  EXPECT(keep(1.0 / 3, false) && kept() == 1.0 / 3);
  EXPECT(keep(5, false) && kept() == 1.0 / 3); /* somebody was faster */
  EXPECT(keep(5, true) && kept() == 5);
  EXPECT_INT(rt_measured_read(&key, &m), RT_MEASURED_FOUND);
  EXPECT(!m.reads_ahead && m.bytes_per_ns == 2 && m.link_bytes_per_ns == 3);
  rt_measured_key other = key;
  other.hosts = "one three";
  EXPECT_INT(rt_measured_read(&other, &m), RT_MEASURED_MISSING);
  other = key;
  other.comm = "inproc";
  EXPECT_INT(rt_measured_read(&other, &m), RT_MEASURED_MISSING);
}

/* ---- files that cannot be used ---- */
static void put(const char *text, size_t n, mode_t mode) {
  (void)unlink(path);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  check(fd >= 0 && write(fd, text, n) == (ssize_t)n && close(fd) == 0 && chmod(path, mode) == 0);
}

static void expect_ignored(const char *why) {
  EXPECT(kept() == 0);
  EXPECT_CONTAINS(said, "is not used: ");
  EXPECT_CONTAINS(said, why);
  EXPECT_STR(status_message(), "");
  EXPECT(keep(7, false) && kept() == 7 && said[0] == '\0'); /* it is replaced */
}

static void test_hostile(void) {
  static const char good[] = "f32_gflops = 1\nmemory_gb_s = 2\nlink_gb_s = 3\n";
  static const char absurd[] = "f32_gflops = 1e300\nmemory_gb_s = 2\nlink_gb_s = 3\n";
  static char large[1 << 20];
  put(good, sizeof good - 1, 0600);
  EXPECT(kept() == 1);
  put("", 0, 0600);
  expect_ignored("f32_gflops is missing");
  put(absurd, sizeof absurd - 1, 0600);
  expect_ignored("takes 0.001 to 1e+09");
  put(good, sizeof good, 0600); /* with its NUL */
  expect_ignored("a zero byte");
  put("\xff\xfe = \x01", 6, 0600);
  expect_ignored("a machine has no");
  put(large, sizeof large, 0600);
  expect_ignored("too long");
  put(good, sizeof good - 1, 0622);
  expect_ignored("only this user can write");
  check(unlink(path) == 0 && symlink("/dev/zero", path) == 0);
  expect_ignored("only this user can write");
  check(unlink(path) == 0 && mkfifo(path, 0600) == 0);
  expect_ignored("only this user can write");
  check(unlink(path) == 0 && mkdir(path, 0700) == 0);
  EXPECT(kept() == 0);
  EXPECT(!keep(7, false) && !keep(7, true)); /* then nothing can be kept */
  check(rmdir(path) == 0);
}

static void test_nowhere(void) {
  rt_speed m = machine(1);
  check(setenv("XDG_CACHE_HOME", "/dev/null", 1) == 0);
  EXPECT_INT(rt_measured_read(&key, &m), RT_MEASURED_NOWHERE);
  EXPECT(!keep(1, true));
}

int main(void) {
  strbuf text;
  log_to(listen, NULL, NULL);
  check(mkdtemp(folder) != NULL && setenv("XDG_CACHE_HOME", folder, 1) == 0);
  arena_init(&scratch, &memory_default);
  strbuf_init(&text, &scratch);
  check(rt_measured_path(&key, &text));
  (void)snprintf(path, sizeof path, "%s", text.data);
  test_first();
  test_hostile();
  test_nowhere();
  arena_destroy(&scratch);
  (void)unlink(path);
  (void)snprintf(path, sizeof path, "%s/weir", folder);
  EXPECT(rmdir(path) == 0 && rmdir(folder) == 0); /* no draft was left */
  return test_finish();
}
