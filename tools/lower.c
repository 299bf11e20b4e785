#include <stdio.h>

#include "cli.h"

static int lower(const cli *c, weir_module *m) {
  const char *name = cli_text(c, "fusion", 0);
  weir_fusion *f = NULL;
  char *text = NULL;
  CLI_CALL(weir_module_find(m, name[0] ? name : NULL, &f));
  CLI_TRY(cli_check_devices(c, f));
  CLI_CALL(weir_lower(f, c->options, cli_text(c, "style", 0), &text));
  (void)fputs(text, stdout);
  weir_string_free(text);
  return 0;
}

int cli_lower(const cli *c) {
  const char *path;
  weir_module *m = NULL;
  CLI_TRY(cli_file(c, &path));
  CLI_TRY(cli_load(path, &m));
  int code = lower(c, m);
  weir_module_destroy(m);
  return code;
}
