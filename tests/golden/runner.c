/* The golden runner: a `.weir` file holds the program, the commands, and what they print.
 *
 *   runner [WEIR_BINARY] FILE_OR_FOLDER... [--update]
 *
 * Lines of a case, all of them comments of the language:
 *   # FOREACH: n = 1 2 4                 the next command runs for each value of $n; several: for all pairs
 *   # RUN: weir opt %s --passes dce      a shell command; %s is the file, %t a folder of its own; weir is
 *                                        the binary, or $WEIR
 *   # CHECK: lines team=                 only this part of its standard output is compared: parts.h
 *   # EXIT: 2                            its exit code, if not 0
 *   #> text                              its standard output, line by line
 *   #! text                              its standard error
 *   # BIND: t=6 inp=6x32                 extents for the evaluation below
 * Where a command prints the same for every value, the text is there once; otherwise each value has
 * its own, after a line `[n=1]`. Expectations follow their RUN and CHECK lines; --update rewrites
 * them, again and again until they hold: a new expectation may move lines that a message speaks
 * about. It fails only where a RUN line cannot be executed. Best is to keep RUN lines at the end of
 * a file, where they move nothing.
 *
 * A case whose program is valid is also checked for what must hold of every program: it verifies,
 * print -> parse -> print is a fixpoint, and the reference evaluation on random inputs gives the
 * same bits for the program, for its printed form, and after the passes named in its RUN lines. */
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "parts.h"
#include "test.h"

enum { MAX_RUNS = 64, MAX_UPDATES = 10, MAX_CHECKS = 4, MAX_LOOPS = 3 };

static const char *binary;
static bool update;

static bool read_file(const char *path, words *out) {
  FILE *f = fopen(path, "rb");
  char block[4096];
  size_t n;
  words_add(out, "", 0);
  if (!f) return false;
  while ((n = fread(block, 1, sizeof block, f)) > 0) words_add(out, block, n);
  fclose(f);
  return true;
}

/* ---- a case ---- */
typedef struct loop {
  char name[16], values[256]; /* separated by blanks */
} loop;

typedef struct run {
  char command[1024];
  loop loops[MAX_LOOPS];
  int n_loops;
  char checks[MAX_CHECKS][256];
  int n_checks;
  int exit_code;
  words out, err; /* expected */
  size_t end;     /* offset in the file after its RUN and CHECK lines */
} run;

typedef struct golden {
  const char *path;
  words source;
  run runs[MAX_RUNS];
  int n_runs;
  loop loops[MAX_LOOPS]; /* of the next RUN line */
  int n_loops;
  const char *wrong; /* what is wrong with the lines; NULL: nothing */
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
static void add_expected(words *t, const char *line, size_t n) {
  size_t skip = n > 2 && line[2] == ' ' ? 3 : 2;
  words_add(t, line + skip, n - skip);
  words_adds(t, "\n");
}

static void read_run(golden *g, const char *line, size_t n) {
  run *r = &g->runs[g->n_runs++];
  snprintf(r->command, sizeof r->command, "%.*s", (int)n, line);
  memcpy(r->loops, g->loops, sizeof r->loops);
  r->n_loops = g->n_loops;
  g->n_loops = 0;
  words_add(&r->out, "", 0);
  words_add(&r->err, "", 0);
}

/* NAME = VALUE... */
static void read_loop(golden *g, const char *line, size_t n) {
  if (g->n_loops == MAX_LOOPS) {
    g->wrong = "too many FOREACH lines before a RUN line";
    return;
  }
  char all[256];
  snprintf(all, sizeof all, "%.*s", (int)n, line);
  loop *l = &g->loops[g->n_loops++];
  if (sscanf(all, "%15[a-z] = %255[^\n]", l->name, l->values) != 2)
    g->wrong = "FOREACH needs `name = value...`";
}

static void read_check(golden *g, run *r, const char *line, size_t n) {
  if (r->n_checks == MAX_CHECKS) g->wrong = "too many CHECK lines after a RUN line";
  else snprintf(r->checks[r->n_checks++], sizeof r->checks[0], "%.*s", (int)n, line);
}

static void read_line(golden *g, const char *line, size_t n) {
  run *r = g->n_runs ? &g->runs[g->n_runs - 1] : NULL;
  size_t at = (size_t)(line - g->source.data) + n;
  if (starts(line, "# RUN: ") && g->n_runs == MAX_RUNS) {
    g->wrong = "too many RUN lines";
  } else if (starts(line, "# RUN: ")) {
    read_run(g, line + 7, n - 7);
    g->runs[g->n_runs - 1].end = at;
  } else if (starts(line, "# FOREACH: ")) {
    read_loop(g, line + 11, n - 11);
  } else if (r && starts(line, "# CHECK: ")) {
    read_check(g, r, line + 9, n - 9);
    r->end = at;
  } else if (starts(line, "# BIND: ")) {
    snprintf(g->bind, sizeof g->bind, "%.*s", (int)n - 8, line + 8);
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
    words_free(&g->runs[i].out);
    words_free(&g->runs[i].err);
  }
  words_free(&g->source);
}

/* ---- running a command ---- */
/* `weir` at the beginning and after a pipe becomes the binary, whatever is in its path, %s the file, %t the folder. */
static void expand(const golden *g, const char *command, const char *folder, words *out) {
  for (const char *at = command; *at; at++) {
    bool first = at == command || (at - command > 2 && starts(at - 2, "| "));
    if (first && starts(at, "weir ")) {
      words_adds(out, "\"$WEIR\"");
      at += 3;
    } else if (starts(at, "%s")) {
      words_adds(out, g->path);
      at++;
    } else if (starts(at, "%t")) {
      words_adds(out, folder);
      at++;
    } else {
      words_add(out, at, 1);
    }
  }
}

static void take_file(const char *folder, const char *name, words *out) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  read_file(path, out);
  unlink(path);
  if (out->len && out->data[out->len - 1] != '\n') words_adds(out, "\n\\ no newline at the end\n");
}

/* What `auto` says of its choice depends on how fast the machine is at the moment. */
static void drop_choices(words *err) {
  static const char choice[] = "weir: note: the program's streams are not used";
  for (char *at = err->data; at && *at;) {
    char *end = strchr(at, '\n');
    size_t n = end ? (size_t)(end + 1 - at) : strlen(at);
    if (!starts(at, choice)) {
      at += n;
      continue;
    }
    memmove(at, at + n, strlen(at + n) + 1);
    err->len -= n;
  }
}

static void remove_folder(const char *folder) {
  struct dirent **entries;
  int n = scandir(folder, &entries, NULL, NULL);
  for (int i = 0; i < n; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    unlink(path);
    free(entries[i]);
  }
  if (n >= 0) free(entries);
  rmdir(folder);
}

/* `settings`: assignments of the shell, before the command. */
static int execute(const golden *g, const run *r, const char *settings, words *out, words *err) {
  char folder[] = "/tmp/weir-golden-XXXXXX";
  words line = {0};
  if (!mkdtemp(folder)) return -1;
  words_adds(&line, "{ ");
  words_adds(&line, settings);
  expand(g, r->command, folder, &line);
  words_adds(&line, "; } >");
  words_adds(&line, folder);
  words_adds(&line, "/out 2>");
  words_adds(&line, folder);
  words_adds(&line, "/err");
  int status = system(line.data);
  take_file(folder, "out", out);
  take_file(folder, "err", err);
  drop_choices(err);
  remove_folder(folder);
  words_free(&line);
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

/* ---- a command, for all values of its loops ---- */
/* The `index`th of the values; false if there are not so many. */
static bool value_at(const loop *l, int index, char *out, size_t size) {
  char values[256], *rest = values;
  snprintf(values, sizeof values, "%s", l->values);
  for (char *word; (word = strtok_r(rest, " ", &rest));)
    if (index-- == 0) return snprintf(out, size, "%s", word) >= 0;
  return false;
}

static int count_values(const loop *l) {
  char value[64];
  int n = 0;
  while (value_at(l, n, value, sizeof value)) n++;
  return n;
}

/* Assignments for the `index`th round: the last loop is the innermost. Separated by `separator`. */
static void round_settings(const run *r, int index, const char *separator, words *out) {
  int rounds = 1;
  for (int i = 0; i < r->n_loops; i++) rounds *= count_values(&r->loops[i]);
  words_add(out, "", 0);
  for (int i = 0; i < r->n_loops; i++) {
    char value[64], one[128];
    int n = count_values(&r->loops[i]);
    rounds /= n;
    if (!value_at(&r->loops[i], index / rounds % n, value, sizeof value)) continue;
    snprintf(one, sizeof one, "%s=%s%s", r->loops[i].name, value, separator);
    words_adds(out, one);
  }
}

typedef struct rounds {
  words same, each; /* what the first printed; what each printed, after its values */
  bool differ;
} rounds;

static void add_round(rounds *all, const char *values, const words *got) {
  if (!all->same.data) words_adds(&all->same, got->data);
  else all->differ = all->differ || strcmp(all->same.data, got->data) != 0;
  words_adds(&all->each, "[");
  words_add(&all->each, values, strlen(values) ? strlen(values) - 1 : 0);
  words_adds(&all->each, "]\n");
  words_adds(&all->each, got->data);
}

static words take_rounds(rounds *all) {
  words_free(all->differ ? &all->same : &all->each);
  return all->differ ? all->each : all->same;
}

static int run_round(golden *g, const run *r, int index, rounds *out, rounds *err) {
  words settings = {0}, values = {0}, got = {0}, errors = {0};
  round_settings(r, index, "; ", &settings);
  round_settings(r, index, " ", &values);
  int code = execute(g, r, settings.data, &got, &errors);
  for (int i = 0; i < r->n_checks; i++)
    if (!golden_part(r->checks[i], &got)) fail_case(g, "cannot check `%s`", r->checks[i]);
  add_round(out, values.data, &got);
  add_round(err, values.data, &errors);
  words_free(&settings);
  words_free(&values);
  words_free(&got);
  words_free(&errors);
  return code;
}

static int run_rounds(golden *g, const run *r, words *out, words *err) {
  rounds outs = {0}, errs = {0};
  int n = 1, code = 0;
  for (int i = 0; i < r->n_loops; i++) n *= count_values(&r->loops[i]);
  for (int i = 0; i < n; i++) {
    int one = run_round(g, r, i, &outs, &errs);
    if (i > 0 && one != code) fail_case(g, "`%s` ends with %d and %d", r->command, code, one);
    code = one;
  }
  *out = take_rounds(&outs);
  *err = take_rounds(&errs);
  return code;
}

static void check_run(golden *g, run *r) {
  words out, err;
  int code = run_rounds(g, r, &out, &err);
  if (update) {
    words_free(&r->out);
    words_free(&r->err);
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
  words_free(&out);
  words_free(&err);
}

/* ---- --update ---- */
static void write_block(words *out, const char *mark, const char *lines) {
  while (*lines) {
    size_t n = strcspn(lines, "\n");
    words_adds(out, mark);
    if (n) words_adds(out, " ");
    words_add(out, lines, n);
    words_adds(out, "\n");
    lines += n + 1;
  }
}

static void write_expectations(const run *r, words *out) {
  char line[32];
  snprintf(line, sizeof line, "# EXIT: %d\n", r->exit_code);
  if (r->exit_code) words_adds(out, line);
  write_block(out, "#>", r->out.data);
  write_block(out, "#!", r->err.data);
}

/* The source with the expectation blocks replaced. */
static void rewrite(const golden *g, words *out) {
  const char *line = g->source.data;
  int next = 0;
  while (*line) {
    size_t n = strcspn(line, "\n");
    bool drop = next > 0 && is_expectation(line);
    if (!drop) words_add(out, line, n);
    if (!drop) words_adds(out, "\n");
    if (next < g->n_runs && (size_t)(line - g->source.data) + n == g->runs[next].end)
      write_expectations(&g->runs[next++], out);
    line += n + (line[n] == '\n' ? 1 : 0);
  }
}

/* True if the file was changed. */
static bool write_back(golden *g) {
  words out = {0};
  rewrite(g, &out);
  bool differs = strcmp(out.data, g->source.data) != 0;
  FILE *f = differs ? fopen(g->path, "wb") : NULL;
  bool written = f && fwrite(out.data, 1, out.len, f) == out.len;
  if (f) written = fclose(f) == 0 && written;
  if (differs && !written) fail_case(g, "cannot be written");
  words_free(&out);
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
  if (g.n_loops) g.wrong = "FOREACH without a RUN line";
  if (g.wrong) fail_case(&g, "%s", g.wrong);
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
  (void)setenv("XDG_CACHE_HOME", "/dev/null", 1); /* nothing is kept: figures are those built in */
  binary = getenv("WEIR") ? getenv("WEIR") : "build/weir";
  (void)setenv("LC_ALL", "C", 1); /* commands like sort go by it */
  for (int i = 1; i < argc; i++) {
    bool is_binary = !is_case(argv[i]) && stat(argv[i], &info) == 0 && S_ISREG(info.st_mode);
    if (strcmp(argv[i], "--update") == 0) update = true;
    if (is_binary) binary = argv[i];
  }
  (void)setenv("WEIR", binary, 1);
  for (int i = 1; i < argc; i++) run_path(argv[i]);
  return test_finish();
}
