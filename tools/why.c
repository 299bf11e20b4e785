#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int answer(const cli *c, weir_fusion *f, const weir_shapes *s) {
  char *text = NULL;
  CLI_CALL(weir_why(f, c->options, s, c->operands + 1, c->n_operands - 1, &text));
  if (weir_launch_rank() <= 0) cli_print(c, text);
  weir_string_free(text);
  return 0;
}

/* ---- what the plan says ---- */
static int explain_memory(const cli *c, const weir_program *p, const weir_shapes *s) {
  weir_memory m = {.struct_size = sizeof m};
  char *text = NULL;
  if (!cli_flag(c, "memory")) return 0;
  CLI_CALL(weir_program_memory(p, s, &m, &text));
  cli_print(c, text);
  weir_string_free(text);
  return 0;
}

/* The number of the tensor of that name; SIZE_MAX: there is none. */
static size_t find(const weir_fusion *f, size_t n,
                   weir_status (*at)(const weir_fusion *, size_t, weir_tensor *), const char *name,
                   size_t length) {
  for (size_t i = 0; i < n; i++) {
    weir_tensor t;
    weir_tensor_info info;
    if (at(f, i, &t) != WEIR_OK || weir_tensor_describe(f, t, &info) != WEIR_OK) continue;
    if (strlen(info.name) == length && memcmp(info.name, name, length) == 0) return i;
  }
  return SIZE_MAX;
}

static int explain_donation(const cli *c, const weir_fusion *f, const weir_program *p,
                            const weir_shapes *s, const char *text) {
  const char *equals = strchr(text, '=');
  char line[1024], *why = NULL;
  if (!equals) return cli_usage("--donate %s: weir why needs INPUT=OUTPUT", text);
  size_t in =
      find(f, weir_fusion_input_count(f), weir_fusion_input_at, text, (size_t)(equals - text));
  size_t out =
      find(f, weir_fusion_output_count(f), weir_fusion_output_at, equals + 1, strlen(equals + 1));
  if (in == SIZE_MAX || out == SIZE_MAX)
    return cli_usage("--donate %s: there is no %s of that name", text,
                     in == SIZE_MAX ? "input" : "output");
  CLI_CALL(weir_program_donation(p, s, in, out, &why));
  (void)snprintf(line, sizeof line, "%s is %scomputed where %.*s is%s%s\n", equals + 1,
                 why ? "not " : "", (int)(equals - text), text, why ? ": " : "", why ? why : "");
  weir_string_free(why);
  cli_print(c, line);
  return 0;
}

static int explain_plan(const cli *c, weir_fusion *f, weir_shapes *s) {
  weir_program *p = NULL;
  const char *text;
  if (!cli_flag(c, "memory") && !cli_text(c, "donate", 0)) return 0;
  CLI_CALL(weir_shapes_complete(s));
  CLI_CALL(weir_compile(f, c->options, NULL, &p));
  int code = explain_memory(c, p, s);
  for (size_t i = 0; code == 0 && (text = cli_text(c, "donate", i)) != NULL; i++)
    code = explain_donation(c, f, p, s, text);
  weir_program_destroy(p);
  return code;
}

/* ---- the command ---- */
static int why(const cli *c, weir_module *m) {
  const char *name = cli_text(c, "fusion", 0);
  weir_fusion *f = NULL;
  weir_shapes *s = NULL;
  CLI_CALL(weir_module_find(m, name[0] ? name : NULL, &f));
  CLI_TRY(cli_check_devices(c, f));
  CLI_TRY(cli_known_shapes(c, f, &s));
  int code = c->n_operands > 1 ? answer(c, f, s) : 0;
  if (code == 0) code = explain_plan(c, f, s);
  weir_shapes_destroy(s);
  return code;
}

int cli_why(const cli *c) {
  weir_module *m = NULL;
  bool plan = cli_flag(c, "memory") || cli_text(c, "donate", 0);
  if (c->n_operands < 1 || (c->n_operands < 2 && !plan))
    return cli_usage("weir why needs a file and the name of a tensor or communication; "
                     "weir lower shows them");
  CLI_TRY(cli_load(c->operands[0], &m));
  int code = why(c, m);
  weir_module_destroy(m);
  return code;
}
