/* The cache of compiled programs, with a compiler that only pretends: what it compiles to is the source
 * with a word in front. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dirent.h>

#include "device/cuda/kernel_compile.h"
#include "test.h"

/* ---- the compiler ---- */
static atomic_int n_compiled;
static int n_loaded, n_unloaded;
static bool refuses, bad_modules;
static const char *refused; /* texts with this word in it */
static char last_image[4096];
static struct { char image[4096]; } modules[64];

static int version(int *major, int *minor) {
  *major = 13, *minor = 0;
  return 0;
}
static int create(void **program, const char *text, const char *name, int n,
                  const char *const *headers, const char *const *names) {
  (void)name, (void)n, (void)headers, (void)names;
  *program = strdup(text);
  return *program == NULL;
}
static int destroy(void **program) {
  free(*program);
  return 0;
}
static int compile(void *program, int n, const char *const *options) {
  check(n > 0 && strcmp(options[0], "--gpu-architecture=sm_90a") == 0); /* in any thread */
  n_compiled++;
  return refuses || (refused && strstr(program, refused));
}
static int cubin_size(void *program, size_t *size_bytes) {
  *size_bytes = strlen(program) + 7;
  return 0;
}
static int cubin(void *program, char *to) {
  (void)sprintf(to, "cubin:%s", (const char *)program);
  return 0;
}
static int log_size(void *program, size_t *size_bytes) {
  (void)program;
  *size_bytes = sizeof "k.cu(1): error: no such thing\nmore";
  return 0;
}
static int log_text(void *program, char *to) {
  (void)program;
  (void)strcpy(to, "k.cu(1): error: no such thing\nmore");
  return 0;
}
static int module_load(void **module, const void *image) {
  if (bad_modules) return 209;
  (void)snprintf(last_image, sizeof last_image, "%s", (const char *)image);
  memcpy(modules[n_loaded % 64].image, last_image, sizeof last_image);
  *module = &modules[n_loaded++ % 64];
  return 0;
}
static int module_unload(void *module) {
  (void)module;
  n_unloaded++;
  return 0;
}
static int module_function(void **function, void *module, const char *name) {
  *function = strstr(module, name);
  return *function == NULL;
}

static int attribute(void *function, int which, int value) {
  (void)function, (void)which, (void)value;
  return 0;
}

static const cuda_compiler compiler = {version,     create,        destroy,         compile,
                                       cubin_size,  cubin,         log_size,        log_text,
                                       module_load, module_unload, module_function, attribute};

/* ---- launches and folders ---- */
static char folder[] = "/tmp/weir-programs-XXXXXX";

static cg_launch launch_of(const char *text) {
  return (cg_launch){.source = text, .source_bytes = strlen(text), .entry = "entry"};
}

/* "one", "two", … of a program; those that join have names of their own. */
enum { MOST = 40 };
static char texts[MOST][16];

static void want_some(cuda_wanted *wanted, cg_launch *launches, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    (void)snprintf(texts[i], sizeof texts[i], "<kernel %u>", i);
    launches[i] = (cg_launch){.source = texts[i], .entry = texts[i], .joins = true};
    launches[i].source_bytes = strlen(texts[i]);
    wanted[i] = (cuda_wanted){.launch = &launches[i]};
  }
}

static cuda_programs *opened(const char *where) {
  cuda_programs *p = NULL;
  cuda_programs_options o = {.compiler = &compiler, .major = 9, .folder = where};
  status_clear();
  (void)EXPECT_INT(cuda_programs_open(&o, &memory_default, &p), STATUS_OK);
  return p;
}

/* Gets one program and closes the cache: how often that compiled. */
static int compiles(const char *where, const char *text) {
  cuda_programs *p = opened(where);
  cg_launch l = launch_of(text);
  void *function = NULL;
  int before = n_compiled;
  (void)EXPECT_INT(cuda_programs_get(p, &l, &function), STATUS_OK);
  (void)EXPECT(function != NULL);
  (void)EXPECT_CONTAINS(last_image, text);
  cuda_programs_close(p);
  return n_compiled - before;
}

/* The path of the only file in the folder. */
static void only_file(char path[512]) {
  DIR *d = opendir(folder);
  int n = 0;
  check(d != NULL);
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    if (e->d_name[0] == '.' && strlen(e->d_name) < 3) continue;
    (void)snprintf(path, 512, "%s/%.255s", folder, e->d_name);
    n++;
  }
  (void)closedir(d);
  (void)EXPECT_INT(n, 1);
}

static void empty_folder(void) {
  char command[128];
  (void)snprintf(command, sizeof command, "find %s -mindepth 1 -delete", folder);
  check(system(command) == 0);
}

/* ---- cases ---- */
static void in_memory(void) {
  cuda_programs *p = opened("");
  cg_launch a = launch_of("entry a"), b = launch_of("entry b");
  void *function;
  int before = n_compiled, unloaded = n_unloaded;
  for (int i = 0; i < 3; i++) {
    (void)EXPECT_INT(cuda_programs_get(p, &a, &function), STATUS_OK);
    (void)EXPECT_INT(cuda_programs_get(p, &b, &function), STATUS_OK);
  }
  cuda_programs_counts counts = cuda_programs_count(p);
  (void)EXPECT_INT(n_compiled - before, 2);
  (void)EXPECT_INT(counts.compiled, 2);
  (void)EXPECT_INT(counts.from_memory, 4);
  (void)EXPECT_INT(counts.from_disk, 0);
  cuda_programs_close(p);
  (void)EXPECT_INT(n_unloaded - unloaded, 2);
  cuda_programs_close(NULL);
}

static void on_disk(void) {
  struct stat s;
  char path[512];
  (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  (void)EXPECT_INT(compiles(folder, "entry one"), 0);
  only_file(path);
  (void)EXPECT(stat(path, &s) == 0 && (s.st_mode & 0777) == 0600);
  (void)EXPECT(strstr(path, "sm_90a-nvrtc-13.0-2.cubin") != NULL);
  (void)EXPECT_INT(compiles(folder, "entry two"), 1);
  empty_folder();
}

/* Every byte of a file counts, and so does its length. */
static void damaged(void) {
  char path[512];
  struct stat s;
  (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  only_file(path);
  check(stat(path, &s) == 0);
  for (off_t at = 0; at < s.st_size; at += 3) {
    int fd = open(path, O_RDWR);
    char byte;
    check(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte = (char)(byte ^ 0x40);
    check(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
    if (!EXPECT_INT(compiles(folder, "entry one"), 1)) fprintf(stderr, "byte %d\n", (int)at);
    (void)EXPECT_INT(compiles(folder, "entry one"), 0);
  }
  for (off_t size = 0; size < s.st_size; size += 7) {
    check(truncate(path, size) == 0);
    (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  }
  empty_folder();
}

/* What others could have written is not used, and nothing is written there. */
static void unsafe(void) {
  char path[512], link[512];
  (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  only_file(path);
  check(chmod(path, 0622) == 0);
  (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  (void)EXPECT_INT(compiles(folder, "entry one"), 0);
  check(chmod(folder, 0777) == 0);
  (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  check(chmod(folder, 0700) == 0);
  (void)snprintf(link, sizeof link, "%s-link", folder);
  check(symlink(folder, link) == 0);
  (void)EXPECT_INT(compiles(link, "entry one"), 1);
  check(unlink(link) == 0);
  (void)EXPECT_INT(compiles(path, "entry one"), 1); /* not a folder */
  empty_folder();
}

/* Made where missing, for the user alone; XDG_CACHE_HOME comes before HOME, relative ones do not count. */
static void default_folders(void) {
  char cache[512], made[600];
  struct stat s;
  (void)snprintf(cache, sizeof cache, "%s/a/b", folder);
  check(setenv("XDG_CACHE_HOME", cache, 1) == 0 && setenv("HOME", folder, 1) == 0);
  (void)EXPECT_INT(compiles(NULL, "entry one"), 1);
  (void)EXPECT_INT(compiles(NULL, "entry one"), 0);
  (void)snprintf(made, sizeof made, "%s/weir", cache);
  (void)EXPECT(stat(made, &s) == 0 && (s.st_mode & 0777) == 0700);
  check(setenv("XDG_CACHE_HOME", "a/b", 1) == 0);
  (void)EXPECT_INT(compiles(NULL, "entry one"), 1);
  (void)snprintf(made, sizeof made, "%s/.cache/weir", folder);
  (void)EXPECT(stat(made, &s) == 0);
  check(unsetenv("XDG_CACHE_HOME") == 0 && unsetenv("HOME") == 0);
  (void)EXPECT_INT(compiles(NULL, "entry one"), 1);
  (void)EXPECT_INT(compiles(NULL, "entry one"), 1);
  empty_folder();
}

static void failures(void) {
  cuda_programs *p = opened("");
  cg_launch l = launch_of("entry one");
  void *function = NULL;
  refuses = true;
  (void)EXPECT_INT(cuda_programs_get(p, &l, &function), STATUS_SYSTEM);
  (void)EXPECT_CONTAINS(status_message(), "NVRTC refuses the kernel entry");
  (void)EXPECT_CONTAINS(status_message(), "(--gpu-architecture=sm_90a): no such thing");
  (void)EXPECT(strstr(status_message(), "more") == NULL);
  refuses = false;
  bad_modules = true;
  status_clear();
  (void)EXPECT_INT(cuda_programs_get(p, &l, &function), STATUS_SYSTEM);
  (void)EXPECT_CONTAINS(status_message(), "cannot load the kernel entry (error 209)");
  bad_modules = false;
  l = launch_of("other");
  status_clear();
  (void)EXPECT_INT(cuda_programs_get(p, &l, &function), STATUS_SYSTEM);
  (void)EXPECT_CONTAINS(status_message(), "has no entry");
  (void)EXPECT(function == NULL);
  cuda_programs_close(p);
  (void)EXPECT_INT(n_loaded, n_unloaded);
}

/* A file that is in order but does not load is compiled anew. */
static void stale(void) {
  char path[512];
  (void)EXPECT_INT(compiles(folder, "entry one"), 1);
  only_file(path);
  cuda_programs *p = opened(folder);
  cg_launch l = launch_of("entry one");
  void *function = NULL;
  int before = n_compiled;
  bad_modules = true;
  (void)EXPECT_INT(cuda_programs_get(p, &l, &function), STATUS_SYSTEM);
  bad_modules = false;
  (void)EXPECT_INT(n_compiled - before, 1);
  status_clear();
  (void)EXPECT_INT(cuda_programs_get(p, &l, &function), STATUS_OK);
  cuda_programs_close(p);
  empty_folder();
}

/* ---- several at once ---- */
/* Each function is the place of its own text in the module that has it. */
static bool all_found(const cuda_wanted *wanted, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const char *f = wanted[i].function;
    if (!f || strncmp(f, wanted[i].launch->source, wanted[i].launch->source_bytes) != 0)
      return false;
  }
  return true;
}

static void how_many(void) {
  (void)EXPECT_INT(cuda_compile_programs(1, 16), 1);
  (void)EXPECT_INT(cuda_compile_programs(2, 16), 2);
  (void)EXPECT_INT(cuda_compile_programs(8, 16), 4);
  (void)EXPECT_INT(cuda_compile_programs(40, 16), 8);
  (void)EXPECT_INT(cuda_compile_programs(40, 2), 3); /* no more than 16 each */
  (void)EXPECT_INT(cuda_compile_programs(40, 1), 3);
  (void)EXPECT_INT(cuda_compile_programs(8, 1), 1);
  (void)EXPECT(cuda_compile_threads() >= 1);
}

static void at_once(void) {
  cuda_programs *p = opened(folder);
  cuda_wanted wanted[MOST];
  cg_launch launches[MOST];
  int before = n_compiled, loaded = n_loaded;
  want_some(wanted, launches, MOST);
  wanted[7].launch = &launches[3]; /* asked for twice */
  launches[5].joins = false;
  (void)EXPECT_INT(cuda_programs_get_all(p, wanted, MOST), STATUS_OK);
  (void)EXPECT(all_found(wanted, MOST) && wanted[7].function == wanted[3].function);
  cuda_programs_counts counts = cuda_programs_count(p);
  (void)EXPECT_INT(counts.compiled, MOST - 1);
  (void)EXPECT_INT(counts.from_memory, 1);
  int programs = (int)cuda_compile_programs(MOST - 2, cuda_compile_threads()) + 1;
  (void)EXPECT_INT(n_compiled - before, programs);
  (void)EXPECT_INT(counts.programs, programs);
  (void)EXPECT_INT(n_loaded - loaded, programs);
  cuda_programs_close(p);
  /* Whoever wants one of them finds it, and those it was compiled with: each program is loaded once. */
  p = opened(folder);
  before = n_compiled, loaded = n_loaded;
  (void)EXPECT_INT(cuda_programs_get_all(p, &wanted[20], 1), STATUS_OK);
  (void)EXPECT_INT(cuda_programs_get_all(p, wanted, MOST), STATUS_OK);
  (void)EXPECT(all_found(wanted, MOST));
  (void)EXPECT_INT(n_compiled - before, 0);
  (void)EXPECT_INT(n_loaded - loaded, programs);
  (void)EXPECT_INT(cuda_programs_count(p).compiled, 0);
  cuda_programs_close(p);
  (void)EXPECT_INT(n_loaded, n_unloaded);
  empty_folder();
}

/* One that is refused is named, whatever it was joined with; the others are kept. */
static void one_refused(void) {
  cuda_programs *p = opened("");
  cuda_wanted wanted[MOST];
  cg_launch launches[MOST];
  want_some(wanted, launches, MOST);
  refused = "kernel 9>";
  (void)EXPECT_INT(cuda_programs_get_all(p, wanted, MOST), STATUS_SYSTEM);
  (void)EXPECT_CONTAINS(status_message(), "NVRTC refuses the kernel <kernel 9> (");
  refused = NULL;
  status_clear();
  (void)EXPECT_INT(cuda_programs_get_all(p, wanted, MOST), STATUS_OK);
  (void)EXPECT(all_found(wanted, MOST));
  cuda_programs_close(p);
  (void)EXPECT_INT(n_loaded, n_unloaded);
}

/* What the compiler takes one by one is taken. */
static void refused_together(void) {
  cuda_programs *p = opened("");
  cuda_wanted wanted[MOST];
  cg_launch launches[MOST];
  want_some(wanted, launches, MOST);
  refused = "\n";
  (void)EXPECT_INT(cuda_programs_get_all(p, wanted, MOST), STATUS_OK);
  (void)EXPECT(all_found(wanted, MOST));
  (void)EXPECT_INT(cuda_programs_count(p).programs, MOST);
  refused = NULL;
  cuda_programs_close(p);
}

static status use_several(const allocator *memory, const char *where) {
  cuda_programs *p = NULL;
  cuda_programs_options o = {.compiler = &compiler, .major = 9, .folder = where};
  cuda_wanted wanted[5];
  cg_launch launches[5];
  want_some(wanted, launches, 5);
  status st = cuda_programs_open(&o, memory, &p);
  if (st == STATUS_OK) st = cuda_programs_get_all(p, wanted, 5);
  if (st != STATUS_OK && p) { /* a cache that could not do it once can do it later */
    (void)EXPECT_INT(st, STATUS_OUT_OF_MEMORY);
    (void)EXPECT_INT(cuda_programs_get_all(p, wanted, 5), STATUS_OK);
  }
  if (p) (void)EXPECT(all_found(wanted, 5));
  cuda_programs_close(p);
  return st;
}

static status use(const allocator *memory, const char *where) {
  cuda_programs *p = NULL;
  cuda_programs_options o = {.compiler = &compiler, .major = 9, .folder = where};
  cg_launch l = launch_of("entry one");
  void *function;
  status st = cuda_programs_open(&o, memory, &p);
  for (int i = 0; i < 2 && st == STATUS_OK; i++) st = cuda_programs_get(p, &l, &function);
  cuda_programs_close(p);
  return st;
}

/* With a file on disk an allocation that fails may also mean that it is compiled instead. */
static void allocations(bool several) {
  for (int with_disk = 0; with_disk < 2; with_disk++)
    for (uint64_t n = 0;; n++) {
      const char *where = with_disk ? folder : "";
      memory_faults faults = {.fail_at = n};
      allocator memory = memory_faulty(&faults);
      status_clear();
      status st = several ? use_several(&memory, where) : use(&memory, where);
      (void)EXPECT(st == STATUS_OK || st == STATUS_OUT_OF_MEMORY);
      (void)EXPECT_INT(faults.live, 0);
      if (!EXPECT(n < 40) || faults.calls <= n) break;
    }
  empty_folder();
}

int main(void) {
  check(mkdtemp(folder) != NULL);
  in_memory();
  on_disk();
  damaged();
  unsafe();
  default_folders();
  failures();
  stale();
  how_many();
  at_once();
  one_refused();
  refused_together();
  allocations(false);
  allocations(true);
  check(rmdir(folder) == 0);
  return test_finish();
}
