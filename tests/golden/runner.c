/* The golden runner: a `.weir` file holds the program, the commands, and what they print.
 *
 *   runner [WEIR_BINARY] FILE_OR_FOLDER... [--update]
 *
 * Lines of a case, all of them comments of the language:
 *   # RUN: weir opt %s --passes dce      a shell command; %s is the file; weir is the binary, or $WEIR
 *   # EXIT: 2                            its exit code, if not 0
 *   #> text                              its standard output, line by line
 *   #! text                              its standard error
 *   # BIND: t=6 inp=6x32                 extents for the evaluation below
 * Expectations follow their RUN line; --update rewrites them, again and again until they hold: a new
 * expectation may move lines that a message speaks about. It fails only where a RUN line cannot be
 * executed. Best is to keep RUN lines at the end of a file, where they move nothing.
 *
 * A case whose program is valid is also checked for what must hold of every program: it verifies,
 * print -> parse -> print is a fixpoint, and the reference evaluation on random inputs gives the same
 * bits for the program, for its printed form, and after the passes named in its RUN lines. */
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "test.h"

enum { MAX_RUNS = 64, MAX_UPDATES = 10 };

static const char *binary;
static bool update;

/* ---- text that grows ---- */
typedef struct text {
  char *data;
  size_t len, cap;
} text;

static void add(text *t, const char *bytes, size_t n) {
  if (t->len + n + 1 > t->cap) {
    t->cap = 2 * (t->len + n + 1);
    t->data = realloc(t->data, t->cap);
    if (!t->data) abort();
  }
  memcpy(t->data + t->len, bytes, n);
  t->len += n;
  t->data[t->len] = '\0';
}

static void adds(text *t, const char *s) { add(t, s, strlen(s)); }

static bool read_file(const char *path, text *out) {
  FILE *f = fopen(path, "rb");
  char block[4096];
  size_t n;
  add(out, "", 0);
  if (!f) return false;
  while ((n = fread(block, 1, sizeof block, f)) > 0) add(out, block, n);
  fclose(f);
  return true;
}

/* ---- a case ---- */
typedef struct run {
  char command[1024];
  int exit_code;
  text out, err; /* expected */
  size_t end;    /* offset in the file behind the RUN line */
} run;

typedef struct golden {
  const char *path;
  text source;
  run runs[MAX_RUNS];
  int n_runs;
  bool too_many; /* RUN lines */
  char bind[256];
  int failures;
} golden;

static bool starts(const char *line, const char *prefix) {
  return strncmp(line, prefix, strlen(prefix)) == 0;
}

static bool is_expectation(const char *line) {
  return starts(line, "#>") || starts(line, "#!") || starts(line, "# EXIT:");
}

/* The text of `#> text`: one blank after the mark is not part of it. */
static void add_expected(text *t, const char *line, size_t n) {
  size_t skip = n > 2 && line[2] == ' ' ? 3 : 2;
  add(t, line + skip, n - skip);
  adds(t, "\n");
}

static void read_line(golden *g, const char *line, size_t n) {
  run *r = g->n_runs ? &g->runs[g->n_runs - 1] : NULL;
  int length = n < 255 ? (int)n : 255;
  bool is_run = starts(line, "# RUN: ");
  if (is_run && g->n_runs == MAX_RUNS) {
    g->too_many = true;
  } else if (is_run) {
    r = &g->runs[g->n_runs++];
    snprintf(r->command, sizeof r->command, "%.*s", (int)(n - 7), line + 7);
    r->end = (size_t)(line - g->source.data) + n;
    add(&r->out, "", 0);
    add(&r->err, "", 0);
  } else if (starts(line, "# BIND: ")) {
    snprintf(g->bind, sizeof g->bind, "%.*s", length - 8, line + 8);
  } else if (r && starts(line, "# EXIT:")) {
    r->exit_code = atoi(line + 7);
  } else if (r && starts(line, "#>")) {
    add_expected(&r->out, line, n);
  } else if (r && starts(line, "#!")) {
    add_expected(&r->err, line, n);
  }
}

static void read_case(golden *g) {
  const char *line = g->source.data;
  while (*line) {
    const char *end = strchr(line, '\n');
    size_t n = end ? (size_t)(end - line) : strlen(line);
    read_line(g, line, n);
    line += n + (end ? 1 : 0);
  }
}

static void free_case(golden *g) {
  for (int i = 0; i < g->n_runs; i++) {
    free(g->runs[i].out.data);
    free(g->runs[i].err.data);
  }
  free(g->source.data);
}

/* ---- running a command ---- */
/* `weir` at the beginning and behind a pipe becomes the binary, %s the file. */
static void expand(const golden *g, const char *command, const char *folder, text *out) {
  adds(out, "{ ");
  for (const char *at = command; *at; at++) {
    bool first = at == command || (at - command > 2 && starts(at - 2, "| "));
    if (first && starts(at, "weir ")) {
      adds(out, binary);
      at += 3;
    } else if (starts(at, "%s")) {
      adds(out, g->path);
      at++;
    } else {
      add(out, at, 1);
    }
  }
  adds(out, "; } >");
  adds(out, folder);
  adds(out, "/out 2>");
  adds(out, folder);
  adds(out, "/err");
}

static void take_file(const char *folder, const char *name, text *out) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  read_file(path, out);
  unlink(path);
  if (out->len && out->data[out->len - 1] != '\n') adds(out, "\n\\ no newline at the end\n");
}

static int execute(const golden *g, const char *command, text *out, text *err) {
  char folder[] = "/tmp/weir-golden-XXXXXX";
  text line = {0};
  if (!mkdtemp(folder)) return -1;
  expand(g, command, folder, &line);
  int status = system(line.data);
  take_file(folder, "out", out);
  take_file(folder, "err", err);
  rmdir(folder);
  free(line.data);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- comparing ---- */
static void print_lines(char mark, const char *from, const char *to) {
  while (from < to) {
    const char *end = memchr(from, '\n', (size_t)(to - from));
    size_t n = end ? (size_t)(end - from) : (size_t)(to - from);
    fprintf(stderr, "  %c%.*s\n", mark, (int)n, from);
    from += n + 1;
  }
}

/* What is the same at both ends is left out, except for a line before. */
static void print_diff(const char *expected, const char *got) {
  const char *start = expected, *a = expected, *b = got;
  while (*a && *a == *b) {
    if (*a == '\n') start = a + 1;
    a++, b++;
  }
  b = got + (start - expected);
  const char *a_end = expected + strlen(expected), *b_end = got + strlen(got);
  const char *a_last = a_end, *b_last = b_end;
  while (a_end > start && b_end > b && a_end[-1] == b_end[-1]) {
    if (a_end[-1] == '\n') a_last = a_end, b_last = b_end;
    a_end--, b_end--;
  }
  const char *before = start;
  while (before > expected && (before == start || before[-1] != '\n')) before--;
  print_lines(' ', before, start);
  print_lines('-', start, a_last);
  print_lines('+', b, b_last);
}

static void fail_case(golden *g, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  fprintf(stderr, "%s: ", g->path);
  vfprintf(stderr, fmt, args);
  fprintf(stderr, "\n");
  va_end(args);
  g->failures++;
}

static void compare(golden *g, const run *r, const char *what, const char *expected,
                    const char *got) {
  if (strcmp(expected, got) == 0) return;
  fail_case(g, "%s of `%s` differs (- expected, + printed)", what, r->command);
  print_diff(expected, got);
}

/* The shell gives 126 and 127 for what it cannot start, and more for what a signal ended. */
static bool could_execute(int code) { return code >= 0 && code < 126; }

static void check_run(golden *g, run *r) {
  text out = {0}, err = {0};
  int code = execute(g, r->command, &out, &err);
  if (update) {
    free(r->out.data);
    free(r->err.data);
    r->out = out;
    r->err = err;
    r->exit_code = code;
    if (!could_execute(code)) fail_case(g, "`%s` cannot be executed (%d)", r->command, code);
    return;
  }
  if (code != r->exit_code)
    fail_case(g, "`%s` ended with %d, not %d", r->command, code, r->exit_code);
  compare(g, r, "stdout", r->out.data, out.data);
  compare(g, r, "stderr", r->err.data, err.data);
  free(out.data);
  free(err.data);
}

/* ---- --update ---- */
static void write_block(text *out, const char *mark, const char *lines) {
  while (*lines) {
    size_t n = strcspn(lines, "\n");
    adds(out, mark);
    if (n) adds(out, " ");
    add(out, lines, n);
    adds(out, "\n");
    lines += n + 1;
  }
}

static void write_expectations(const run *r, text *out) {
  char line[32];
  snprintf(line, sizeof line, "# EXIT: %d\n", r->exit_code);
  if (r->exit_code) adds(out, line);
  write_block(out, "#>", r->out.data);
  write_block(out, "#!", r->err.data);
}

/* The source with the expectation blocks replaced. */
static void rewrite(const golden *g, text *out) {
  const char *line = g->source.data;
  int next = 0;
  while (*line) {
    size_t n = strcspn(line, "\n");
    bool drop = next > 0 && is_expectation(line);
    if (!drop) add(out, line, n);
    if (!drop) adds(out, "\n");
    if (next < g->n_runs && (size_t)(line - g->source.data) + n == g->runs[next].end)
      write_expectations(&g->runs[next++], out);
    line += n + (line[n] == '\n' ? 1 : 0);
  }
}

/* True if the file was changed. */
static bool write_back(golden *g) {
  text out = {0};
  rewrite(g, &out);
  bool differs = strcmp(out.data, g->source.data) != 0;
  FILE *f = differs ? fopen(g->path, "wb") : NULL;
  bool written = f && fwrite(out.data, 1, out.len, f) == out.len;
  if (f) written = fclose(f) == 0 && written;
  if (differs && !written) fail_case(g, "cannot be written");
  free(out.data);
  return written;
}

/* ---- what must hold of every program ---- */
/* The value of --passes in a command; "" when there is none. */
static void passes_of(const char *command, char *out, size_t size) {
  const char *at = strstr(command, "--passes");
  out[0] = '\0';
  if (!at) return;
  at += strlen("--passes");
  while (*at == ' ' || *at == '=' || *at == '\'' || *at == '"') at++;
  snprintf(out, size, "%.*s", (int)strcspn(at, " '\""), at);
}

static void check_program(golden *g) {
  char message[4096];
  golden_program p = {.path = g->path, .text = g->source.data, .bind = g->bind};
  if (!golden_is_valid(&p)) return;
  if (!golden_check(&p, "", message, sizeof message)) fail_case(g, "%s", message);
  for (int i = 0; i < g->n_runs; i++) {
    char passes[256];
    passes_of(g->runs[i].command, passes, sizeof passes);
    if (!passes[0] || g->runs[i].exit_code) continue;
    if (!golden_check(&p, passes, message, sizeof message)) fail_case(g, "%s", message);
  }
}

/* ---- the command ---- */
/* Runs the commands once; true if --update changed the file. */
static bool run_once(const char *path, int *failures) {
  golden g = {.path = path};
  if (!read_file(path, &g.source)) fail_case(&g, "cannot be read");
  read_case(&g);
  if (g.n_runs == 0 && !update) fail_case(&g, "has no RUN line");
  if (g.too_many) fail_case(&g, "has more than %d RUN lines", MAX_RUNS);
  for (int i = 0; i < g.n_runs; i++) check_run(&g, &g.runs[i]);
  bool changed = update && g.failures == 0 && write_back(&g);
  if (!update) check_program(&g);
  *failures += g.failures;
  free_case(&g);
  return changed;
}

static void run_case(const char *path) {
  int failures = 0, updates = 0;
  while (run_once(path, &failures) && ++updates < MAX_UPDATES) continue;
  if (updates == MAX_UPDATES) {
    fprintf(stderr, "%s: the expectations change with every update\n", path);
    failures++;
  } else if (updates > 0) {
    printf("updated %s\n", path);
  }
  test_passed += failures == 0;
  test_failed += failures != 0;
}

static bool is_case(const char *path) {
  size_t n = strlen(path);
  return n > 5 && strcmp(path + n - 5, ".weir") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static void run_path(const char *path) {
  struct stat info;
  struct dirent **entries;
  bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
  if (is_case(path) && !folder) run_case(path);
  int n = folder ? scandir(path, &entries, NULL, by_name) : 0;
  for (int i = 0; i < n; i++) {
    char inner[512];
    snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
    if (entries[i]->d_name[0] != '.') run_path(inner);
    free(entries[i]);
  }
  if (n > 0) free(entries);
}

int main(int argc, char **argv) {
  struct stat info;
  binary = getenv("WEIR") ? getenv("WEIR") : "build/weir";
  for (int i = 1; i < argc; i++) {
    bool is_binary = !is_case(argv[i]) && stat(argv[i], &info) == 0 && S_ISREG(info.st_mode);
    if (strcmp(argv[i], "--update") == 0) update = true;
    if (is_binary) binary = argv[i];
  }
  for (int i = 1; i < argc; i++) run_path(argv[i]);
  return test_finish();
}
