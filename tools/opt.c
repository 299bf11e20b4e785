#include <stdio.h>
#include <string.h>

#include "cli.h"

static int print_module(const cli *c, const weir_module *m) {
  char *text = NULL;
  CLI_CALL(weir_module_print(m, &text));
  cli_print(c, text);
  weir_string_free(text);
  return 0;
}

/* The program goes to standard output, everything else to standard error. */
static bool dumps_passes(const cli *c) {
  const char *word;
  for (size_t i = 0; (word = cli_text(c, "dump", i)) != NULL; i++)
    if (strcmp(word, "passes") == 0) return true;
  return false;
}

/* "a,b" of an option that may be repeated; empty: it is not given. */
static int join(const cli *c, const char *name, char *text, size_t size) {
  const char *word;
  size_t n = 0;
  text[0] = '\0';
  for (size_t i = 0; (word = cli_text(c, name, i)) != NULL && n < size; i++)
    n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "," : "", word);
  return n < size ? 0 : cli_usage("--%s names too many passes", name);
}

static int run_passes(const cli *c, weir_module *m) {
  const char *print_after = cli_text(c, "print-after", 0);
  char disable[1024], enable[1024];
  CLI_TRY(join(c, "disable", disable, sizeof disable));
  CLI_TRY(join(c, "enable", enable, sizeof enable));
  if (!print_after[0] && dumps_passes(c)) print_after = "all";
  weir_pass_args args = {.struct_size = sizeof args,
                         .passes = cli_text(c, "passes", 0),
                         .print_after = print_after[0] ? print_after : NULL,
                         .time = cli_flag(c, "time"),
                         .reproducer = cli_text(c, "reproducer", 0),
                         .disable = disable,
                         .enable = enable,
                         .pipeline = cli_text(c, "pipeline", 0)};
  char *log = NULL;
  weir_status st = weir_module_run_passes(m, &args, &log);
  if (log) (void)fputs(log, stderr);
  weir_string_free(log);
  return st == WEIR_OK ? print_module(c, m) : cli_status(st);
}

int cli_opt(const cli *c) {
  const char *path;
  weir_module *m = NULL;
  CLI_TRY(cli_file(c, &path));
  CLI_TRY(cli_load(path, &m));
  int code = run_passes(c, m);
  weir_module_destroy(m);
  return code;
}
