#include <stdio.h>

#include "cli.h"

static int answer(const cli *c, weir_fusion *f, const weir_shapes *s) {
  char *text = NULL;
  CLI_CALL(weir_why(f, c->options, s, c->operands + 1, c->n_operands - 1, &text));
  cli_print(c, text);
  weir_string_free(text);
  return 0;
}

static int why(const cli *c, weir_module *m) {
  const char *name = cli_text(c, "fusion", 0);
  weir_fusion *f = NULL;
  weir_shapes *s = NULL;
  CLI_CALL(weir_module_find(m, name[0] ? name : NULL, &f));
  CLI_TRY(cli_check_devices(c, f));
  CLI_TRY(cli_shapes(c, f, &s));
  int code = answer(c, f, s);
  weir_shapes_destroy(s);
  return code;
}

int cli_why(const cli *c) {
  weir_module *m = NULL;
  if (c->n_operands < 2)
    return cli_usage("weir why needs a file and the name of a tensor or communication; "
                     "weir lower shows them");
  CLI_TRY(cli_load(c->operands[0], &m));
  int code = why(c, m);
  weir_module_destroy(m);
  return code;
}
