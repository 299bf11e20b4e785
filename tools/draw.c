#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Takes the extents. If all are known, tensors are drawn too. */
static int define(const cli *c, weir_fusion *f, weir_shapes **result) {
  CLI_TRY(cli_shapes(c, f, result));
  if (weir_shapes_unbound(*result) == 0) return cli_status(weir_shapes_complete(*result));
  if (weir_fusion_devices(f) > 1)
    (void)fprintf(stderr, "weir: note: extents are not known: -D NAME=VALUE shows what devices "
                          "hold of the tensors\n");
  weir_shapes_destroy(*result);
  *result = NULL;
  return 0;
}

static int print(const cli *c, const char *text) {
  const char *path = cli_text(c, "out", 0);
  if (path[0]) CLI_CALL(weir_text_write(text, path));
  if (path[0]) cli_print_files(c, &path, 1);
  else cli_print(c, text);
  return 0;
}

/* Checks the path before anything is computed. */
static int check_path(const cli *c) {
  const char *path = cli_text(c, "out", 0);
  size_t n = strlen(path);
  if (n == 0 || strncmp(path, "/dev/", 5) == 0 || (n > 4 && strcmp(path + n - 4, ".svg") == 0))
    return 0;
  return cli_usage("%s: a picture is written to a file ending in .svg", path);
}

static int draw(const cli *c, weir_fusion *f) {
  weir_shapes *s = NULL;
  char *text = NULL;
  CLI_TRY(cli_check_devices(c, f));
  int code = define(c, f, &s);
  if (code == 0) code = cli_status(weir_draw(f, c->options, s, &text));
  if (code == 0) code = print(c, text);
  weir_string_free(text);
  weir_shapes_destroy(s);
  return code;
}

int cli_draw(const cli *c) {
  CLI_TRY(check_path(c));
  return cli_with_fusion(c, draw);
}
