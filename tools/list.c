#include <stdio.h>

#include "cli.h"

int cli_list(const cli *c) {
  if (c->n_operands != 1)
    return cli_usage("say what: weir list ops|passes|devices|comms|machines|options");
  char *text = NULL;
  CLI_CALL(weir_list(c->operands[0], &text));
  cli_print(c, text);
  weir_string_free(text);
  return 0;
}
