#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* ---- what is told ---- */
typedef struct exposed {
  char *place, *text;
  double seconds;
} exposed;

typedef struct report {
  weir_bound bound;
  exposed *list;
  size_t n;
  bool failed; /* out of memory */
} report;

static void keep(void *context, const char *place, const char *text, double seconds) {
  report *r = context;
  exposed *list = realloc(r->list, (r->n + 1) * sizeof *list);
  if (list) r->list = list;
  exposed one = {strdup(place), strdup(text), seconds};
  r->failed = r->failed || !list || !one.place || !one.text;
  if (!r->failed) {
    r->list[r->n++] = one;
    return;
  }
  free(one.place);
  free(one.text);
}

static void report_end(report *r) {
  for (size_t i = 0; i < r->n; i++) {
    free(r->list[i].place);
    free(r->list[i].text);
  }
  free(r->list);
}

/* ---- for people ---- */
static void print_time(const char *what, double seconds, const char *words) {
  (void)printf("  %-14s%12.3f us%s%s\n", what, seconds * 1e6, words[0] ? "  " : "", words);
}

static void print_bound(const weir_bound *b) {
  (void)printf("bound %.3f us: the largest of\n", b->bound_s * 1e6);
  print_time("compute", b->compute_s, "the arithmetic of a device");
  print_time("memory", b->memory_s, "its inputs and outputs, once");
  print_time("receive", b->receive_s, "what it receives");
  print_time("send", b->send_s, "what it sends");
  print_time("chain", b->chain_s, "work and communications that depend on one another");
  double ratio = b->bound_s > 0 ? b->predicted_s / b->bound_s : 0;
  (void)printf("predicted %.3f us, %.2f of the bound; device %lld, which ends last:\n",
               b->predicted_s * 1e6, ratio, (long long)b->device);
  print_time("computing", b->computing_s, "");
  print_time("exposed", b->exposed_s, "communication while nothing is computed");
  print_time("idle", b->idle_s, "issuing, and waiting for others");
}

static void print_text(const report *r) {
  print_bound(&r->bound);
  for (size_t i = 0; i < r->n; i++)
    (void)printf("    %-12s%12.3f us  %s: %s\n", "", r->list[i].seconds * 1e6, r->list[i].place,
                 r->list[i].text);
}

/* ---- JSON ---- */
static void print_exposed(const report *r) {
  (void)printf("\"exposed\": [");
  for (size_t i = 0; i < r->n; i++) {
    (void)printf("%s{", i ? ", " : "");
    cli_json_string("place", r->list[i].place);
    (void)printf(", ");
    cli_json_string("communication", r->list[i].text);
    (void)printf(", \"exposed_s\": %.9g}", r->list[i].seconds);
  }
  (void)printf("]");
}

static void print_gap(bool first, const char *what, long line, double seconds) {
  (void)printf("%s{", first ? "" : ", ");
  cli_json_string("what", what);
  (void)printf(", \"line\": %ld, \"s\": %.9g}", line, seconds);
}

/* The line of "file:26"; 0: it has none. */
static long line_of(const char *place) {
  const char *colon = strrchr(place, ':');
  return colon ? strtol(colon + 1, NULL, 10) : 0;
}

/* Prints what the device does when it does not compute. */
static void print_gaps(const report *r) {
  (void)printf("\"gap\": [");
  for (size_t i = 0; i < r->n; i++)
    print_gap(i == 0, r->list[i].text, line_of(r->list[i].place), r->list[i].seconds);
  if (r->bound.idle_s > 0) print_gap(r->n == 0, "idle", 0, r->bound.idle_s);
  (void)printf("]");
}

static void print_json(const report *r) {
  const weir_bound *b = &r->bound;
  (void)printf("{");
  print_exposed(r);
  (void)printf(", \"bound_s\": %.9g, \"compute_s\": %.9g, \"memory_s\": %.9g, \"link_s\": %.9g, "
               "\"receive_s\": %.9g, \"send_s\": %.9g, \"path_s\": %.9g, \"chain_s\": %.9g, "
               "\"predicted_s\": %.9g, ",
               b->bound_s, b->compute_s, b->memory_s,
               b->receive_s > b->send_s ? b->receive_s : b->send_s, b->receive_s, b->send_s,
               b->chain_s, b->chain_s, b->predicted_s);
  cli_json_string("program", b->program);
  (void)printf(", \"device\": %lld, \"computing_s\": %.9g, \"exposed_s\": %.9g, \"idle_s\": %.9g, ",
               (long long)b->device, b->computing_s, b->exposed_s, b->idle_s);
  print_gaps(r);
  (void)printf("}\n");
}

/* ---- the command ---- */
static int print_all(weir_program *p, const weir_shapes *s, bool json) {
  report r = {.bound.struct_size = sizeof r.bound};
  int code = cli_status(weir_program_bound(p, s, &r.bound, keep, &r));
  if (code == 0 && r.failed) code = cli_usage("out of memory");
  if (code == 0 && json) print_json(&r);
  if (code == 0 && !json) print_text(&r);
  report_end(&r);
  return code;
}

static int check_device(const cli *c) {
  const char *device = cli_text(c, "device", 0);
  bool none = strcmp(device, "null") == 0 || strcmp(device, "ref") == 0;
  return none ? cli_usage("--device %s has no speed; cpu, cuda and sim have", device) : 0;
}

static int bound(const cli *c, weir_fusion *f) {
  weir_shapes *s = NULL;
  weir_program *p = NULL;
  CLI_TRY(check_device(c));
  CLI_TRY(cli_check_devices(c, f));
  CLI_TRY(cli_shapes(c, f, &s));
  int code = cli_status(weir_shapes_complete(s));
  if (code == 0) code = cli_status(weir_compile(f, c->options, NULL, &p));
  if (code == 0) code = print_all(p, s, cli_flag(c, "json"));
  weir_program_destroy(p);
  weir_shapes_destroy(s);
  return code;
}

int cli_bound(const cli *c) { return cli_with_fusion(c, bound); }
