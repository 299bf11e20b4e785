#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int format_file(const cli *c, const char *path, bool write) {
  char *text = NULL;
  CLI_CALL(weir_format_file(path, write, write ? NULL : &text));
  if (text) cli_print(c, text);
  weir_string_free(text);
  return 0;
}

static int format_stdin(const cli *c) {
  size_t length;
  char *text = cli_stdin(&length), *formatted = NULL;
  if (!text) return CLI_SYSTEM;
  int code = cli_status(weir_format("<stdin>", text, length, &formatted));
  free(text);
  if (formatted) cli_print(c, formatted);
  weir_string_free(formatted);
  return code;
}

int cli_fmt(const cli *c) {
  bool write = cli_flag(c, "write");
  if (c->n_operands == 0) return cli_usage("weir fmt needs a file; - reads standard input");
  if (c->n_operands > 1 && !write)
    return cli_usage("several files are laid out in place: weir fmt --write FILE...");
  for (size_t i = 0; i < c->n_operands; i++) {
    bool is_stdin = strcmp(c->operands[i], "-") == 0;
    if (is_stdin && write) return cli_usage("--write needs files, not -");
    CLI_TRY(is_stdin ? format_stdin(c) : format_file(c, c->operands[i], write));
  }
  if (write) cli_print_files(c, c->operands, c->n_operands);
  return 0;
}
