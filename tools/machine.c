#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Under a launcher rank 0 prints for all. */
int cli_machine(const cli *c) {
  char *text = NULL;
  const char *word = c->n_operands == 1 ? c->operands[0] : "";
  bool measure = strcmp(word, "measure") == 0;
  if (!measure && strcmp(word, "show") != 0)
    return cli_usage("weir machine takes one word: show or measure");
  CLI_CALL(weir_machine(c->options, measure, &text));
  if (weir_launch_rank() <= 0) cli_print(c, text);
  weir_string_free(text);
  return 0;
}
