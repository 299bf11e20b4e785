#include <stdio.h>
#include <string.h>

#include "cli.h"

typedef struct report {
  bool json;
  int lines;
} report;

static void print_time(const char *what, double seconds, const char *words) {
  (void)printf("  %-14s%12.3f us%s%s\n", what, seconds * 1e6, words[0] ? "  " : "", words);
}

/* ---- for people ---- */
static void tell(void *context, const char *place, const char *text, double exposed_s) {
  report *r = context;
  if (!r->json) {
    (void)printf("    %-12s%12.3f us  %s: %s\n", "", exposed_s * 1e6, place, text);
    return;
  }
  (void)printf("%s{", r->lines++ ? ", " : "");
  cli_json_string("place", place);
  (void)printf(", ");
  cli_json_string("communication", text);
  (void)printf(", \"exposed_s\": %.9g}", exposed_s);
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

static void print_json(const weir_bound *b) {
  (void)printf("\"bound_s\": %.9g, \"compute_s\": %.9g, \"memory_s\": %.9g, \"receive_s\": %.9g, "
               "\"send_s\": %.9g, \"chain_s\": %.9g, \"predicted_s\": %.9g, \"device\": %lld, "
               "\"computing_s\": %.9g, \"exposed_s\": %.9g, \"idle_s\": %.9g}\n",
               b->bound_s, b->compute_s, b->memory_s, b->receive_s, b->send_s, b->chain_s,
               b->predicted_s, (long long)b->device, b->computing_s, b->exposed_s, b->idle_s);
}

/* Lines are told while the figures are found, so JSON has them first, and people last. */
static int print_all(weir_program *p, const weir_shapes *s, report *r) {
  weir_bound b = {.struct_size = sizeof b};
  if (r->json) {
    (void)printf("{\"exposed\": [");
    CLI_CALL(weir_program_bound(p, s, &b, tell, r));
    (void)printf("], ");
    print_json(&b);
    return 0;
  }
  CLI_CALL(weir_program_bound(p, s, &b, NULL, NULL));
  print_bound(&b);
  return cli_status(weir_program_bound(p, s, &b, tell, r));
}

static int check_device(const cli *c) {
  const char *device = cli_text(c, "device", 0);
  bool none = strcmp(device, "null") == 0 || strcmp(device, "ref") == 0;
  return none ? cli_usage("--device %s has no speed; cpu, cuda and sim have", device) : 0;
}

static int bound(const cli *c, weir_fusion *f) {
  weir_shapes *s = NULL;
  weir_program *p = NULL;
  report r = {.json = cli_flag(c, "json")};
  CLI_TRY(check_device(c));
  CLI_TRY(cli_check_devices(c, f));
  CLI_TRY(cli_shapes(c, f, &s));
  int code = cli_status(weir_shapes_complete(s));
  if (code == 0) code = cli_status(weir_compile(f, c->options, NULL, &p));
  if (code == 0) code = print_all(p, s, &r);
  weir_program_destroy(p);
  weir_shapes_destroy(s);
  return code;
}

int cli_bound(const cli *c) { return cli_with_fusion(c, bound); }
