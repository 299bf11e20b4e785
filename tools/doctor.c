#include <stdio.h>
#include <string.h>

#include "cli.h"

/* The findings of one subject follow each other. */
typedef struct report {
  bool json;
  char subject[64]; /* of the last one */
  int to_do;
} report;

static bool is_new(report *r, const char *subject) {
  if (strcmp(r->subject, subject) == 0) return false;
  (void)snprintf(r->subject, sizeof r->subject, "%s", subject);
  return true;
}

/* Is it a finding like "NCCL to do", which says how to get what is missing? */
static bool is_to_do(const char *name) {
  static const char ending[] = " to do";
  size_t n = strlen(name);
  return n > sizeof ending && strcmp(name + n - (sizeof ending - 1), ending) == 0;
}

static void print_text(report *r, const weir_finding *f) {
  bool to_do = is_to_do(f->name);
  r->to_do += to_do;
  (void)printf("%-6s%s%-26s%s%s\n", is_new(r, f->subject) ? f->subject : "",
               to_do ? cli_colour(stdout, "36") : "", to_do ? "  to do" : f->name, f->value,
               to_do ? cli_colour(stdout, "0") : "");
}

static void print_json(report *r, const weir_finding *f) {
  bool first = r->subject[0] == '\0';
  if (is_new(r, f->subject)) (void)printf("%s\"%s\": {", first ? "" : "}, ", f->subject);
  else (void)printf(", ");
  cli_json_string(f->name, f->value);
}

static void tell(void *context, const weir_finding *f) {
  report *r = context;
  if (r->json) print_json(r, f);
  else print_text(r, f);
}

int cli_doctor(const cli *c) {
  report r = {.json = cli_flag(c, "json")};
  if (c->n_operands != 0) return cli_usage("weir doctor takes no operands");
  if (r.json) {
    (void)printf("{");
    cli_json_string("version", weir_version());
    (void)printf(", ");
  } else {
    (void)printf("weir  %-26s%s\n", "version", weir_version());
    (void)is_new(&r, "weir");
  }
  CLI_CALL(weir_examine(tell, &r));
  if (r.json) (void)printf("%s}\n", r.subject[0] ? "}" : "");
  else if (r.to_do == 0) (void)puts("nothing is missing that this machine could use");
  return 0;
}
