#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int define_all(const cli *c, weir_shapes *s) {
  const char *definition;
  for (size_t i = 0; (definition = cli_text(c, "define", i)) != NULL; i++)
    CLI_CALL(weir_shapes_define(s, definition));
  return 0;
}

/* With -D every extent must get a value; without it, shapes are checked if the file determines all extents. */
static int check_shapes(const cli *c, weir_shapes *s, bool *bound) {
  CLI_TRY(define_all(c, s));
  *bound = cli_text(c, "define", 0) != NULL || weir_shapes_unbound(s) == 0;
  return *bound ? cli_status(weir_shapes_complete(s)) : 0;
}

/* ---- the report ---- */
/* A line of the report that is a note. */
typedef struct note {
  const char *text;
  size_t length, place; /* of the line, and of the FILE:LINE:COL in front of it */
  size_t times;
} note;

static bool read_note(const char *line, size_t n, note *result) {
  static const char mark[] = "note: ";
  for (size_t i = 0; i + sizeof mark - 1 <= n; i++) {
    if (memcmp(line + i, mark, sizeof mark - 1) != 0) continue;
    *result = (note){line, n, i, 1};
    return true;
  }
  return false;
}

/* Adds a note that is not there yet: a wait in a loop may be redundant in every iteration, but it is one line of
 * the program. Returns how many notes there are now. */
static size_t add_note(note *notes, size_t n, const note *one) {
  for (size_t i = 0; i < n; i++) {
    if (notes[i].place != one->place || memcmp(notes[i].text, one->text, one->place) != 0) continue;
    notes[i].times++;
    return n;
  }
  notes[n] = *one;
  return n + 1;
}

static void print_notes(const note *notes, size_t n) {
  for (size_t i = 0; i < n; i++) {
    (void)fprintf(stderr, "%s%.*s", notes[i].place ? "" : "weir: ", (int)notes[i].length,
                  notes[i].text);
    if (notes[i].times > 1) (void)fprintf(stderr, " (the first of %zu here)", notes[i].times);
    (void)fputc('\n', stderr);
  }
}

/* Prints notes as diagnostics; the rest of the report says how the proof went. */
static int print_report(const char *report) {
  size_t lines = 1, n = 0;
  for (const char *c = report; *c; c++) lines += *c == '\n';
  note *notes = calloc(lines, sizeof *notes), one;
  if (!notes) {
    (void)cli_usage("out of memory");
    return CLI_SYSTEM;
  }
  for (const char *line = report; *line;) {
    size_t length = strcspn(line, "\n");
    if (read_note(line, length, &one)) n = add_note(notes, n, &one);
    else (void)printf("%.*s\n", (int)length, line);
    line += line[length] ? length + 1 : length;
  }
  print_notes(notes, n);
  free(notes);
  return 0;
}

/* If every extent is known, proves the plan's order, too. */
static int check_plan(const cli *c, weir_fusion *f, const weir_shapes *s) {
  weir_program *p = NULL;
  char *report = NULL;
  CLI_CALL(weir_compile(f, c->options, NULL, &p));
  int code = cli_status(weir_program_check(p, s, &report));
  bool silent = cli_flag(c, "quiet") || cli_flag(c, "json");
  if (code == 0 && report && !silent) code = print_report(report);
  if (code == 0 && !silent) code = cli_notes(c, p);
  weir_string_free(report);
  weir_program_destroy(p);
  return code;
}

/* Prints one object per line. */
static void print_json(const weir_fusion *f, bool bound) {
  (void)printf("{");
  cli_json_string("name", weir_fusion_name(f));
  (void)printf(", \"host\": %s, \"bound\": %s, \"ok\": true}\n",
               weir_fusion_is_host(f) ? "true" : "false", bound ? "true" : "false");
}

static int verify_fusion(const cli *c, weir_fusion *f) {
  weir_shapes *s = NULL;
  bool bound = false;
  CLI_TRY(cli_check_devices(c, f));
  CLI_CALL(weir_shapes_create(f, &s));
  int code = check_shapes(c, s, &bound);
  if (code == 0 && bound) code = check_plan(c, f, s);
  weir_shapes_destroy(s);
  if (code == 0 && cli_flag(c, "json")) print_json(f, bound);
  else if (code == 0 && !cli_flag(c, "quiet"))
    (void)printf("ok: %s%s%s\n", weir_fusion_is_host(f) ? "host " : "", weir_fusion_name(f),
                 bound ? "" : " (extents not bound)");
  return code;
}

/* Verifies the fusion of --fusion; with -D the first one, like weir run; otherwise all of them. */
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
  cli_show_progress(c);
  int code = verify_module(c, m);
  weir_module_destroy(m);
  return code;
}
