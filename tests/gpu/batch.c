/* Many commands of `weir` in few processes, so that each need not start CUDA anew.
 *
 *   batch [--at-once N] [--seconds T] [--failures F] [--gpu] [--together] FILE
 *
 * Each line of FILE (-: standard input) is what follows `weir` on a command line; words are separated by
 * blanks, and 'quotes' keep blanks together. A line "# NAME" names those that follow, which are then counted
 * by that name too. N processes (1) take the lines in turn. What a command prints is kept from the screen
 * unless it fails: then the end of it is shown, with the command.
 *
 * --gpu       a process opens the GPUs before its first command and keeps them until its last
 * --seconds   a command that takes longer (120) has failed, and its process is ended
 * --failures  behind so many (40) no more are begun
 * --together  under mpirun: every rank runs all lines itself, in order, and stops at the first that fails
 *
 * A process in which a command failed takes no more: another one goes on. One that dies or hangs is
 * reported with its command. The last line is "N passed, M failed"; a command that was not run has failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../tools/cli.h"
#include "comm/processes/launch.h"
#include "runtime/device.h"
#include "test.h"

enum { MOST_PROCESSES = 64, MOST_WORDS = 64, MOST_SHOWN = 5, TAIL_BYTES = 1000 };
enum { NONE = UINT32_MAX };

/* What becomes of a command. */
typedef enum outcome { WAITING, PASSED, FAILED, LOST } outcome; /* LOST: and that was shown */

/* Seen by all processes. */
typedef struct board {
  _Atomic uint32_t next;
  struct {
    _Atomic uint32_t command; /* NONE: between two */
    _Atomic int64_t start_ns;
  } at[MOST_PROCESSES];
  _Atomic uint8_t outcomes[];
} board;

typedef struct batch {
  char **lines; /* a name is one of them, and has passed when it is met */
  uint32_t n;
  uint32_t at_once, most_failed;
  double seconds;
  bool gpu, together;
  board *board;
  char folder[64];
  pid_t processes[MOST_PROCESSES];
  uint32_t n_failed;
} batch;

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- one command ---- */
/* Cuts the line into words, in place. */
static int split(char *line, char **argv) {
  int argc = 0;
  argv[argc++] = (char *)"weir";
  for (char *at = line; argc < MOST_WORDS - 1;) {
    at += strspn(at, " ");
    if (*at == '\0') break;
    char *to = at;
    argv[argc++] = at;
    for (bool quoted = false; *at && (quoted || *at != ' '); at++)
      if (*at == '\'') quoted = !quoted;
      else *to++ = *at;
    bool more = *at != '\0';
    *to = '\0';
    at += more;
  }
  argv[argc] = NULL;
  return argc;
}

static void path_of(const batch *b, uint32_t command, char path[128]) {
  (void)snprintf(path, 128, "%s/%u", b->folder, command);
}

static bool is_name(const char *line) { return line[0] == '#'; }

/* Runs it with both outputs in a file; the exit code. */
static int run_command(const batch *b, uint32_t command) {
  char path[128], *argv[MOST_WORDS];
  if (is_name(b->lines[command])) return 0;
  path_of(b, command, path);
  char *line = strdup(b->lines[command]);
  int out = dup(1), err = dup(2), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (!line || out < 0 || err < 0 || file < 0) return 3;
  (void)fflush(stdout);
  (void)dup2(file, 1);
  (void)dup2(file, 2);
  int code = cli_main(split(line, argv), argv);
  (void)dup2(out, 1);
  (void)dup2(err, 2);
  (void)close(out);
  (void)close(err);
  (void)close(file);
  free(line);
  return code;
}

/* The end of what it printed. */
static void show(const batch *b, uint32_t command, const char *what) {
  char path[128], text[TAIL_BYTES + 1];
  path_of(b, command, path);
  FILE *f = fopen(path, "r");
  if (f) {
    (void)fseek(f, 0, SEEK_END);
    if (fseek(f, -TAIL_BYTES, SEEK_END) != 0) (void)fseek(f, 0, SEEK_SET);
    text[fread(text, 1, TAIL_BYTES, f)] = '\0';
    (void)fputs(text, stdout);
    (void)fclose(f);
  }
  (void)printf("%s: weir %s\n", what, b->lines[command]);
}

/* ---- a process that takes commands ---- */
static rt_device *open_gpu(const batch *b) {
  rt_device *d = NULL;
  if (b->gpu && rt_device_cuda.open(&(rt_device_options){0}, &memory_default, &d) != STATUS_OK)
    status_clear(); /* the first command says why */
  return d;
}

static void take_commands(const batch *b, uint32_t me) {
  rt_device *gpu = open_gpu(b);
  bool well = true;
  while (well) {
    uint32_t command = atomic_fetch_add(&b->board->next, 1);
    if (command >= b->n) break;
    atomic_store(&b->board->at[me].start_ns, now_ns());
    atomic_store(&b->board->at[me].command, command);
    well = run_command(b, command) == 0;
    atomic_store(&b->board->outcomes[command], well ? PASSED : FAILED);
    atomic_store(&b->board->at[me].command, NONE);
  }
  rt_device_cuda.close(gpu);
}

static bool start(batch *b, uint32_t slot) {
  atomic_store(&b->board->at[slot].command, NONE);
  (void)fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    take_commands(b, slot);
    exit(0);
  }
  b->processes[slot] = pid > 0 ? pid : 0;
  return pid > 0;
}

/* ---- looking after them ---- */
static void lost(batch *b, uint32_t command, const char *what) {
  atomic_store(&b->board->outcomes[command], LOST);
  show(b, command, what);
}

static bool is_over(const batch *b) {
  return atomic_load(&b->board->next) >= b->n || b->n_failed + test_failed >= b->most_failed;
}

/* A process has ended: if within a command, that one has failed. Another one takes its place. */
static void replace(batch *b, uint32_t slot, int how) {
  uint32_t command = atomic_load(&b->board->at[slot].command);
  char what[64];
  b->processes[slot] = 0;
  if (WIFSIGNALED(how)) (void)snprintf(what, sizeof what, "ended by signal %d", WTERMSIG(how));
  else (void)snprintf(what, sizeof what, "ended the process with %d", WEXITSTATUS(how));
  bool within = command != NONE;
  if (within && atomic_load(&b->board->outcomes[command]) == WAITING) lost(b, command, what);
  if (!within && how != 0) (void)printf("a process, between commands, %s\n", what), test_failed++;
  b->n_failed = 0;
  for (uint32_t i = 0; i < b->n; i++) b->n_failed += atomic_load(&b->board->outcomes[i]) >= FAILED;
  if (!is_over(b)) (void)start(b, slot);
}

static void end_late(batch *b, uint32_t slot) {
  uint32_t command = atomic_load(&b->board->at[slot].command);
  double took = (double)(now_ns() - atomic_load(&b->board->at[slot].start_ns)) * 1e-9;
  if (command == NONE || took < b->seconds) return;
  (void)kill(b->processes[slot], SIGKILL);
  if (atomic_load(&b->board->outcomes[command]) == WAITING) lost(b, command, "took too long");
}

static bool look_after(batch *b) {
  bool any = false;
  for (uint32_t slot = 0; slot < b->at_once; slot++) {
    int how;
    if (!b->processes[slot]) continue;
    if (waitpid(b->processes[slot], &how, WNOHANG) == b->processes[slot]) replace(b, slot, how);
    else end_late(b, slot);
    any = any || b->processes[slot];
  }
  return any;
}

static void run_apart(batch *b) {
  uint32_t n = b->at_once < b->n ? b->at_once : b->n;
  b->at_once = n;
  for (uint32_t slot = 0; slot < n; slot++) (void)start(b, slot);
  while (look_after(b)) (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Ranks of one world: this process is one of them. */
static void run_together(batch *b) {
  rt_device *gpu = open_gpu(b);
  bool well = true;
  for (uint32_t i = 0; i < b->n && well; i++) {
    well = run_command(b, i) == 0;
    atomic_store(&b->board->outcomes[i], well ? PASSED : FAILED);
  }
  rt_device_cuda.close(gpu);
}

/* ---- the list ---- */
static bool add_line(batch *b, char *line) {
  if ((b->n & (b->n + 1)) == 0) {
    char **more = realloc(b->lines, (size_t)(b->n + 1) * 2 * sizeof *more);
    if (!more) return false;
    b->lines = more;
  }
  b->lines[b->n] = line;
  b->n++;
  return true;
}

static bool read_lines(batch *b, const char *path) {
  FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
  char *line = NULL;
  size_t size = 0;
  if (!f) return false;
  for (ssize_t n; (n = getline(&line, &size, f)) > 0; line = NULL, size = 0) {
    if (line[n - 1] == '\n') line[n - 1] = '\0';
    if (!add_line(b, line)) return false;
  }
  free(line);
  if (f != stdin) (void)fclose(f);
  return true;
}

static bool prepare(batch *b) {
  const char *folder = getenv("TMPDIR");
  (void)snprintf(b->folder, sizeof b->folder, "%.40s/weir-batch-XXXXXX", folder ? folder : "/tmp");
  if (!mkdtemp(b->folder)) return false;
  void *shared = mmap(NULL, sizeof *b->board + b->n, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  b->board = shared == MAP_FAILED ? NULL : shared;
  return b->board != NULL;
}

static void print_group(const char *name, uint32_t passed, uint32_t all) {
  if (name) (void)printf("%s: %u passed, %u failed\n", name, passed, all - passed);
}

/* Counts what has a name; then all. */
static void count(const batch *b) {
  const char *name = NULL;
  uint32_t passed = 0, all = 0, left = 0;
  for (uint32_t i = 0; i < b->n; i++) {
    uint8_t is = atomic_load(&b->board->outcomes[i]);
    if (is_name(b->lines[i])) {
      print_group(name, passed, all);
      name = b->lines[i] + 1 + strspn(b->lines[i] + 1, " ");
      passed = all = 0;
      continue;
    }
    all++;
    passed += is == PASSED;
    left += is == WAITING;
    test_passed += is == PASSED;
    test_failed += is != PASSED;
  }
  print_group(name, passed, all);
  if (left) (void)printf("%u commands were not run\n", left);
}

/* Shows what failed; leaves no file behind. */
static void conclude(const batch *b) {
  uint32_t shown = 0;
  for (uint32_t i = 0; i < b->n; i++) {
    char path[128];
    if (atomic_load(&b->board->outcomes[i]) == FAILED && shown++ < MOST_SHOWN) show(b, i, "failed");
    path_of(b, i, path);
    (void)unlink(path);
  }
  (void)rmdir(b->folder);
  count(b);
  for (uint32_t i = 0; i < b->n; i++) free(b->lines[i]);
  free(b->lines);
}

static const char *read_arguments(int argc, char **argv, batch *b) {
  const char *path = NULL;
  for (int i = 1; i < argc; i++) {
    bool more = i + 1 < argc;
    if (strcmp(argv[i], "--at-once") == 0 && more)
      b->at_once = (uint32_t)strtoul(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "--seconds") == 0 && more) b->seconds = strtod(argv[++i], NULL);
    else if (strcmp(argv[i], "--failures") == 0 && more)
      b->most_failed = (uint32_t)strtoul(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "--gpu") == 0) b->gpu = true;
    else if (strcmp(argv[i], "--together") == 0) b->together = true;
    else path = argv[i];
  }
  if (b->at_once < 1) b->at_once = 1;
  if (b->at_once > MOST_PROCESSES) b->at_once = MOST_PROCESSES;
  return path;
}

int main(int argc, char **argv) {
  batch b = {.at_once = 1, .most_failed = 40, .seconds = 120};
  const char *path = read_arguments(argc, argv, &b);
  if (!path || !read_lines(&b, path) || !prepare(&b)) {
    (void)fprintf(stderr, "batch: %s\n",
                  path ? strerror(errno) : "the list of commands is missing");
    return 2;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  if (b.together) run_together(&b);
  else run_apart(&b);
  conclude(&b);
  mpi_launch launch;
  bool speaks = !b.together || !mpi_launch_find(&launch) || launch.rank == 0;
  if (!speaks && test_failed == 0) return 0;
  return test_finish();
}
