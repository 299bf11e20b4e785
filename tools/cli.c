#include "cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- colours ---- */
const char *cli_colour(FILE *stream, const char *code) {
  static const struct {
    const char *code, *text;
  } codes[] = {{"0", "\033[0m"}, {"31", "\033[1;31m"}, {"32", "\033[32m"}, {"36", "\033[36m"}};
  const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
  bool dumb = terminal && strcmp(terminal, "dumb") == 0;
  bool launched = weir_launch_rank() >= 0; /* output goes through the launcher */
  if ((no && no[0]) || dumb || launched || !isatty(fileno(stream))) return "";
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (strcmp(codes[i].code, code) == 0) return codes[i].text;
  return "";
}

/* A line of a message: its kind has a colour, and so has a line of carets. */
static void put_coloured(const char *line, size_t n) {
  static const struct {
    const char *word, *code;
  } kinds[] = {{"error: ", "31"}, {"note: ", "36"}, {"warning: ", "36"}};
  bool carets = n > 0 && strspn(line, " ^~") >= n && memchr(line, '^', n) != NULL;
  if (carets)
    (void)fprintf(stderr, "%s%.*s%s\n", cli_colour(stderr, "32"), (int)n, line,
                  cli_colour(stderr, "0"));
  for (size_t k = 0; !carets && k < sizeof kinds / sizeof *kinds; k++) {
    const char *at = strstr(line, kinds[k].word);
    size_t before = at ? (size_t)(at - line) : n, word = strlen(kinds[k].word) - 1;
    if (before + word > n || (before > 0 && line[before - 1] != ' ')) continue;
    (void)fprintf(stderr, "%.*s%s%.*s%s%.*s\n", (int)before, line,
                  cli_colour(stderr, kinds[k].code), (int)word, at, cli_colour(stderr, "0"),
                  (int)(n - before - word), at + word);
    return;
  }
  if (!carets) (void)fprintf(stderr, "%.*s\n", (int)n, line);
}

/* ---- progress ---- */
static bool progress_shown; /* on the current line of the terminal */

static void hide_progress(void) {
  if (progress_shown) (void)fputs("\r\033[K", stderr);
  progress_shown = false;
}

static void show_progress(void *context, const char *what, int64_t done, int64_t total) {
  (void)context;
  hide_progress();
  if (done >= total) return;
  (void)fprintf(stderr, "%s: %" PRId64 " of %" PRId64, what, done, total);
  progress_shown = true;
}

void cli_show_progress(const cli *c) {
  const char *terminal = getenv("TERM");
  bool dumb = terminal && strcmp(terminal, "dumb") == 0;
  if (dumb || !isatty(STDERR_FILENO) || weir_launch_rank() >= 0 || cli_flag(c, "quiet")) return;
  weir_log_to(NULL, show_progress, NULL);
}

/* ---- errors ---- */
static const char *json_command; /* NULL: the output is not JSON */

static void print_json_error(const weir_diagnostic *d, bool first) {
  (void)printf("%s{\"severity\": \"%s\", ", first ? "" : ", ",
               d->severity == WEIR_SEVERITY_NOTE ? "note" : "error");
  if (d->file[0]) cli_json_string("file", d->file);
  if (d->line > 0)
    (void)printf(", \"line\": %" PRId64 ", \"column\": %" PRId64, d->line, d->column);
  if (d->file[0]) (void)printf(", ");
  cli_json_string("text", d->text);
  if (d->suggestion[0]) (void)printf(", ");
  if (d->suggestion[0]) cli_json_string("suggestion", d->suggestion);
  if (d->rank >= 0) (void)printf(", \"rank\": %" PRId64, d->rank);
  (void)printf("}");
}

/* With --json, errors are an object too, for programs that read standard output. */
static void print_json_errors(const char *usage) {
  weir_diagnostic d = {.struct_size = sizeof d, .file = "", .suggestion = "", .rank = -1};
  if (!json_command) return;
  (void)printf("{");
  cli_json_string("command", json_command);
  (void)printf(", \"errors\": [");
  d.text = usage ? usage : weir_error();
  if (usage || weir_diagnostic_count() == 0) print_json_error(&d, true);
  for (size_t i = 0; !usage && weir_diagnostic_at(i, &d); i++) print_json_error(&d, i == 0);
  (void)printf("]}\n");
}

int cli_usage(const char *fmt, ...) {
  va_list args;
  char text[4096];
  if (weir_launch_rank() > 0) return CLI_USAGE;
  hide_progress();
  va_start(args, fmt);
  (void)vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  (void)fprintf(stderr, "weir: %serror:%s %s\n", cli_colour(stderr, "31"), cli_colour(stderr, "0"),
                text);
  print_json_errors(text);
  return CLI_USAGE;
}

static bool begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* Is this message left to another rank? Rank 0 prints for all ranks; rank 1 does if rank 0 is gone or does not answer. A
 * rank that did not find rank 0 prints its message itself, since only that rank knows why. */
static bool is_silent(const char *message) {
  static const char *const gone[] = {"rank 0 (process ", "rank 0 left",
                                     "rank 0 has not posted it and has "};
  if (weir_launch_rank() <= 0 || strstr(message, "rank 0 was not found at ")) return false;
  for (size_t i = 0; i < sizeof gone / sizeof *gone && weir_launch_rank() == 1; i++)
    if (strstr(message, gone[i])) return false;
  return true;
}

/* A diagnostic begins with its file, or, without a place, with its kind. */
int cli_status(weir_status st) {
  if (st == WEIR_OK) return 0;
  const char *message = weir_error();
  if (is_silent(message)) return weir_exit_code(st);
  hide_progress();
  bool diagnostics = begins(message, "error: ") || strstr(message, ": error: ") != NULL;
  if (!diagnostics)
    (void)fprintf(stderr, "weir: %serror:%s ", cli_colour(stderr, "31"), cli_colour(stderr, "0"));
  for (const char *line = message; *line;) {
    size_t n = strcspn(line, "\n");
    bool bare = diagnostics && (begins(line, "error: ") || begins(line, "note: "));
    if (bare) (void)fputs("weir: ", stderr);
    put_coloured(line, n);
    line += line[n] ? n + 1 : n;
  }
  int code = weir_exit_code(st);
  print_json_errors(NULL);
  return code;
}

/* ---- nearest words ---- */
enum { LONGEST_WORD = 32 };

/* Edit distance, one row at a time. */
static size_t distance(const char *a, const char *b) {
  size_t row[LONGEST_WORD + 1], n = strlen(b);
  if (strlen(a) > LONGEST_WORD || n > LONGEST_WORD) return SIZE_MAX;
  for (size_t j = 0; j <= n; j++) row[j] = j;
  for (size_t i = 0; a[i] != '\0'; i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < n; j++) {
      size_t change = diagonal + (a[i] != b[j]);
      size_t step = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
      diagonal = row[j + 1];
      row[j + 1] = change < step ? change : step;
    }
  }
  return row[n];
}

const char *cli_nearest(const char *word, const char *const *words, size_t n) {
  const char *best = NULL;
  size_t limit = strlen(word) / 3 + 1;
  for (size_t i = 0; i < n; i++) {
    size_t d = distance(word, words[i]);
    if (d > limit || (best && d == limit)) continue;
    best = words[i];
    limit = d;
  }
  return best;
}

/* ---- options ---- */
static bool takes(const weir_option_info *info, const char *command) {
  const char *at = info->commands;
  size_t n = strlen(command);
  while ((at = strstr(at, command)) != NULL) {
    bool begins = at == info->commands || at[-1] == ' ';
    if (begins && (at[n] == ' ' || at[n] == '\0')) return true;
    at += n;
  }
  return false;
}

static bool find_option(const char *name, size_t length, weir_option_info *info) {
  for (size_t i = 0; i < weir_option_count(); i++) {
    if (weir_option_describe(i, info) != WEIR_OK) continue;
    if (strlen(info->name) == length && memcmp(info->name, name, length) == 0) return true;
  }
  return false;
}

static bool find_letter(char letter, weir_option_info *info) {
  for (size_t i = 0; i < weir_option_count(); i++)
    if (weir_option_describe(i, info) == WEIR_OK && info->letter == letter) return true;
  return false;
}

enum { MOST_OPTIONS = 64 };

static int unknown_option(const char *command, const char *name, size_t length) {
  char word[LONGEST_WORD + 1];
  const char *words[MOST_OPTIONS];
  size_t n = 0;
  (void)snprintf(word, sizeof word, "%.*s", (int)(length < LONGEST_WORD ? length : LONGEST_WORD),
                 name);
  for (size_t i = 0; i < weir_option_count() && n < MOST_OPTIONS; i++) {
    weir_option_info info;
    if (weir_option_describe(i, &info) == WEIR_OK && takes(&info, command)) words[n++] = info.name;
  }
  const char *near = cli_nearest(word, words, n);
  if (near)
    return cli_usage("weir %s has no option --%s (did you mean --%s?)", command, word, near);
  return cli_usage("weir %s has no option --%s; see weir %s --help", command, word, command);
}

/* A place in argv. */
typedef struct walk {
  int argc, at;
  char **argv;
} walk;

/* --check=sample:N means --check --sample N. */
static int set_sample(cli *c, const char **value) {
  static const char *const truths[] = {"true", "1", "yes", "on", "false", "0", "no", "off"};
  for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
    if (strcmp(*value, truths[i]) == 0) return 0;
  size_t prefix = strlen("sample:");
  const char *digits = *value + prefix;
  if (!begins(*value, "sample:") || digits[strspn(digits, "0123456789")] || atoll(digits) < 1)
    return cli_usage("--check takes nothing or sample:N, which looks at N rows of each output; "
                     "not '%s'",
                     *value);
  CLI_CALL(weir_options_set(c->options, "sample", digits));
  *value = "true";
  return 0;
}

/* `value` is the text after "=", or after the letter; NULL: the next argument is taken. */
static int set_option(cli *c, walk *w, const weir_option_info *info, const char *value) {
  if (!takes(info, c->command))
    return cli_usage("weir %s has no option --%s (weir %s has)", c->command, info->name,
                     info->commands);
  if (value && strcmp(info->name, "check") == 0) CLI_TRY(set_sample(c, &value));
  if (!value && info->placeholder[0] == '\0') value = "true";
  if (!value && w->at + 1 < w->argc) value = w->argv[++w->at];
  if (!value) return cli_usage("--%s needs a value: %s", info->name, info->placeholder);
  return cli_status(weir_options_set(c->options, info->name, value));
}

static int parse_long(cli *c, walk *w, const char *name) {
  const char *equals = strchr(name, '=');
  size_t length = equals ? (size_t)(equals - name) : strlen(name);
  weir_option_info info;
  if (strcmp(name, "help") == 0) {
    c->help = true;
    return 0;
  }
  if (!find_option(name, length, &info)) return unknown_option(c->command, name, length);
  return set_option(c, w, &info, equals ? equals + 1 : NULL);
}

static int parse_short(cli *c, walk *w, const char *text) {
  weir_option_info info;
  if (strcmp(text, "h") == 0) {
    c->help = true;
    return 0;
  }
  if (!find_letter(text[0], &info))
    return cli_usage("weir %s has no option -%c; see weir %s --help", c->command, text[0],
                     c->command);
  const char *value = text[1] == '=' ? text + 2 : text + 1;
  return set_option(c, w, &info, text[1] ? value : NULL);
}

/* Looks for --json before options are parsed, since one of them may be wrong. */
static bool wants_json(int argc, char **argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--json") == 0) return true;
  return false;
}

const char *cli_initial(const char *command, const weir_option_info *o) {
  bool bounds = strcmp(command, "bound") == 0 && strcmp(o->name, "device") == 0;
  return bounds ? "sim" : o->initial;
}

/* `weir bound` has a default machine of its own, whatever the environment says for other commands. */
static int set_initial(const cli *c) {
  if (strcmp(c->command, "bound") != 0) return 0;
  return cli_status(weir_options_set(c->options, "device", "sim"));
}

int cli_parse(int argc, char **argv, const char *command, cli *result) {
  cli *c = result;
  json_command = wants_json(argc, argv) ? command : NULL;
  const char **operands = calloc((size_t)argc + 1, sizeof *operands);
  *c = (cli){.command = command, .operands = operands};
  if (!operands) {
    (void)cli_usage("out of memory");
    return CLI_SYSTEM;
  }
  CLI_CALL(weir_options_create(&c->options));
  CLI_TRY(set_initial(c));
  bool only_operands = false;
  for (walk w = {argc, 0, argv}; w.at < w.argc; w.at++) {
    const char *a = argv[w.at];
    if (only_operands || a[0] != '-' || a[1] == '\0') operands[c->n_operands++] = a;
    else if (strcmp(a, "--") == 0) only_operands = true;
    else if (a[1] == '-') CLI_TRY(parse_long(c, &w, a + 2));
    else CLI_TRY(parse_short(c, &w, a + 1));
  }
  return 0;
}

void cli_free(cli *c) {
  hide_progress();
  weir_log_to(NULL, NULL, NULL);
  json_command = NULL;
  free((void *)c->operands);
  weir_options_destroy(c->options);
}

/* Names come from this program, not from its user: a wrong one is a bug. */
static void must(weir_status st) {
  if (st == WEIR_OK) return;
  (void)fprintf(stderr, "weir: internal error: %s\n", weir_error());
  abort();
}

const char *cli_text(const cli *c, const char *name, size_t k) {
  const char *value = NULL;
  must(weir_options_get(c->options, name, k, &value));
  return value;
}

int64_t cli_int(const cli *c, const char *name) {
  int64_t value = 0;
  must(weir_options_get_int(c->options, name, &value));
  return value;
}

bool cli_flag(const cli *c, const char *name) {
  bool value = false;
  must(weir_options_get_bool(c->options, name, &value));
  return value;
}

/* ---- files ---- */
int cli_file(const cli *c, const char **path) {
  if (c->n_operands == 0)
    return cli_usage("weir %s needs a file; - reads standard input", c->command);
  if (c->n_operands > 1)
    return cli_usage("weir %s takes one file, but '%s' follows '%s'%s", c->command, c->operands[1],
                     c->operands[0],
                     strchr(c->operands[1], '=') ? "; extents are given with -D NAME=VALUE" : "");
  if (c->operands[0][0] == '\0') return cli_usage("the name of the file is empty");
  *path = c->operands[0];
  return 0;
}

/* Reads all of standard input; NULL when that failed. */
static char *read_stdin(size_t *length) {
  size_t cap = 65536, len = 0;
  char *text = malloc(cap);
  while (text) {
    len += fread(text + len, 1, cap - len, stdin);
    if (len < cap) break;
    char *larger = cap <= SIZE_MAX / 2 ? realloc(text, cap * 2) : NULL;
    if (!larger) free(text);
    text = larger;
    cap *= 2;
  }
  if (text && ferror(stdin)) {
    free(text);
    text = NULL;
  }
  *length = len;
  return text;
}

char *cli_stdin(size_t *length) {
  char *text = read_stdin(length);
  if (!text) (void)cli_usage("standard input cannot be read");
  return text;
}

int cli_load(const char *path, weir_module **result) {
  if (strcmp(path, "-") != 0) return cli_status(weir_module_load(path, NULL, result));
  size_t length;
  char *text = cli_stdin(&length);
  if (!text) return CLI_SYSTEM;
  int code = cli_status(weir_module_parse("<stdin>", text, length, NULL, result));
  free(text);
  return code;
}

int cli_with_fusion(const cli *c, int (*action)(const cli *c, weir_fusion *f)) {
  const char *path = "", *name = cli_text(c, "fusion", 0);
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  CLI_TRY(cli_file(c, &path));
  CLI_TRY(cli_load(path, &m));
  int code = cli_status(weir_module_find(m, name[0] ? name : NULL, &f));
  if (code == 0) code = action(c, f);
  weir_module_destroy(m);
  return code;
}

int cli_check_devices(const cli *c, const weir_fusion *f) {
  int64_t given = cli_int(c, "devices"), needed = weir_fusion_devices(f);
  if (given == 0 || given >= needed) return 0;
  return cli_usage("--devices %" PRId64 ": the meshes of %s need %" PRId64 " devices", given,
                   weir_fusion_name(f), needed);
}

int cli_shapes(const cli *c, weir_fusion *f, weir_shapes **result) {
  weir_shapes *s = NULL;
  const char *definition;
  CLI_CALL(weir_shapes_create(f, &s));
  int code = 0;
  for (size_t i = 0; code == 0 && (definition = cli_text(c, "define", i)) != NULL; i++)
    code = cli_status(weir_shapes_define(s, definition));
  if (code == 0) *result = s;
  else weir_shapes_destroy(s);
  return code;
}

int cli_known_shapes(const cli *c, weir_fusion *f, weir_shapes **result) {
  CLI_TRY(cli_shapes(c, f, result));
  if (weir_shapes_unbound(*result) > 0) return 0;
  int code = cli_status(weir_shapes_complete(*result));
  if (code == 0) return 0;
  weir_shapes_destroy(*result);
  *result = NULL;
  return code;
}

/* The length of the UTF-8 character that begins here; 0: there is none. */
static size_t character(const unsigned char *c) {
  size_t n = *c < 0x80 ? 1 : *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : 2;
  if ((*c >= 0x80 && *c < 0xc2) || *c > 0xf4) return 0;
  for (size_t i = 1; i < n; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  return n;
}

/* Prints a text as JSON, which is UTF-8; names of files need not be. */
static void json_text(const char *text) {
  (void)putchar('"');
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    size_t n = character(c);
    if (n == 0) (void)printf("\\ufffd");
    else if (*c == '"' || *c == '\\') (void)printf("\\%c", *c);
    else if (*c < 0x20) (void)printf("\\u%04x", (unsigned)*c);
    else (void)fwrite(c, 1, n, stdout);
    if (n > 1) c += n - 1;
  }
  (void)putchar('"');
}

void cli_json_string(const char *key, const char *text) {
  (void)printf("\"%s\": ", key);
  json_text(text);
}

void cli_print_files(const cli *c, const char *const *paths, size_t n) {
  if (!cli_flag(c, "json")) return;
  (void)printf("{");
  cli_json_string("command", c->command);
  (void)printf(", \"files\": [");
  for (size_t i = 0; i < n; i++) {
    (void)printf("%s", i ? ", " : "");
    json_text(paths[i]);
  }
  (void)printf("]}\n");
}

void cli_print(const cli *c, const char *text) {
  if (!cli_flag(c, "json")) {
    (void)fputs(text, stdout);
    return;
  }
  (void)printf("{");
  cli_json_string("command", c->command);
  (void)printf(", ");
  cli_json_string("text", text);
  (void)printf("}\n");
}

int cli_notes(const cli *c, const weir_program *p) {
  char *notes = NULL;
  if (cli_flag(c, "quiet")) return 0;
  CLI_CALL(weir_program_note(p, &notes));
  for (const char *line = notes; line && *line;) {
    size_t n = strcspn(line, "\n");
    (void)fprintf(stderr, "weir: note: %.*s\n", (int)n, line);
    line += line[n] ? n + 1 : n;
  }
  weir_string_free(notes);
  return 0;
}
