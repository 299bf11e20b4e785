#include <stdio.h>

#include "cli.h"

static int define_all(const cli *c, weir_shapes *s) {
  const char *definition;
  for (size_t i = 0; (definition = cli_text(c, "define", i)) != NULL; i++)
    CLI_CALL(weir_shapes_define(s, definition));
  return 0;
}

/* Definitions must fix every extent; without any, shapes are checked if the file fixes them all. */
static int check_shapes(const cli *c, weir_shapes *s, bool *bound) {
  CLI_TRY(define_all(c, s));
  *bound = cli_text(c, "define", 0) != NULL || weir_shapes_unbound(s) == 0;
  return *bound ? cli_status(weir_shapes_complete(s)) : 0;
}

/* With every extent known, the plan's order is proven too. */
static int check_plan(const cli *c, weir_fusion *f, const weir_shapes *s) {
  weir_program *p = NULL;
  char *report = NULL;
  CLI_CALL(weir_compile(f, c->options, NULL, &p));
  int code = cli_status(weir_program_check(p, s, &report));
  if (code == 0 && report) (void)fputs(report, stdout);
  weir_string_free(report);
  weir_program_destroy(p);
  return code;
}

static int verify_fusion(const cli *c, weir_fusion *f) {
  weir_shapes *s = NULL;
  bool bound = false;
  CLI_TRY(cli_check_devices(c, f));
  CLI_CALL(weir_shapes_create(f, &s));
  int code = check_shapes(c, s, &bound);
  if (code == 0 && bound) code = check_plan(c, f, s);
  weir_shapes_destroy(s);
  if (code == 0)
    (void)printf("ok: %s%s%s\n", weir_fusion_is_host(f) ? "host " : "", weir_fusion_name(f),
                 bound ? "" : " (extents not bound)");
  return code;
}

/* With --fusion that one; with -D the first one, as weir run; otherwise all of them. */
static int verify_module(const cli *c, weir_module *m) {
  const char *name = cli_text(c, "fusion", 0);
  weir_fusion *f = NULL;
  if (name[0] || cli_text(c, "define", 0)) {
    CLI_CALL(weir_module_find(m, name[0] ? name : NULL, &f));
    return verify_fusion(c, f);
  }
  for (size_t i = 0; i < weir_module_count(m); i++) {
    CLI_CALL(weir_module_at(m, i, &f));
    CLI_TRY(verify_fusion(c, f));
  }
  return 0;
}

int cli_verify(const cli *c) {
  const char *path;
  weir_module *m = NULL;
  CLI_TRY(cli_file(c, &path));
  CLI_TRY(cli_load(path, &m));
  int code = verify_module(c, m);
  weir_module_destroy(m);
  return code;
}
