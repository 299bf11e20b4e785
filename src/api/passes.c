/* Passes: over a module, and as compiling, lowering and explaining run them. */
#include "api/passes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/program.h"
#include "base/log.h"
#include "runtime/machine.h"
#include "session/ranks.h"

/* ---- what the options ask for ---- */
/* "a,b" of an option that may be repeated; NULL: it is not given. */
static status read_list(arena *scratch, const weir_options *o, const char *name,
                        const char **result) {
  strbuf text;
  strbuf_init(&text, scratch);
  for (size_t i = 0;; i++) {
    const char *word = NULL;
    if (weir_options_get(o, name, i, &word) != WEIR_OK) return STATUS_BAD_USAGE;
    if (!word) break;
    strbuf_printf(&text, "%s%s", i ? "," : "", word);
  }
  *result = text.len ? text.data : NULL;
  return STATUS_OK;
}

static bool dumps_passes(const weir_options *o) {
  const char *word = NULL;
  for (size_t i = 0; weir_options_get(o, "dump", i, &word) == WEIR_OK && word; i++)
    if (strcmp(word, "passes") == 0) return true;
  return false;
}

/* If no machine is named, GPUs are those of a built-in one; a link by way of the host's memory is PCIe 5. */
static status assume_gpus(const weir_options *o, rt_speed *speed) {
  enum { HOST_GB_S = 50, HOST_US = 15 };
  const char *link = "";
  if (weir_options_get(o, "link", 0, &link) != WEIR_OK) return STATUS_BAD_USAGE;
  TRY(rt_machine_load("dgx-h200", speed));
  if (strcmp(link, "host") != 0) return STATUS_OK;
  speed->link_bytes_per_ns = HOST_GB_S;
  speed->link_latency_ns = HOST_US * 1e3;
  return STATUS_OK;
}

/* The links that the program is for: those of the named machine, of usual GPUs, or, in one process, of
 * threads. */
static status read_link(const weir_options *o, host_options *result) {
  const char *machine = "", *device = "";
  rt_speed speed = rt_machine_default();
  if (weir_options_get(o, "machine", 0, &machine) != WEIR_OK) return STATUS_BAD_USAGE;
  if (weir_options_get(o, "device", 0, &device) != WEIR_OK) return STATUS_BAD_USAGE;
  if (machine[0]) TRY(rt_machine_load(machine, &speed));
  bool gpus = strcmp(device, "cuda") == 0;
  if (!machine[0] && gpus) TRY(assume_gpus(o, &speed));
  if (!machine[0] && !gpus && session_launch_rank() >= 0) return STATUS_OK;
  result->speed = (host_speed){.link_latency_ns = speed.link_latency_ns,
                               .post_ns = speed.post_ns,
                               .link_bytes_per_ns = speed.link_bytes_per_ns,
                               .launch_ns = speed.launch_ns,
                               .flops_per_ns = speed.flops_per_ns,
                               .memory_bytes_per_ns = speed.bytes_per_ns,
                               .narrow_flops_per_ns = speed.narrow_flops_per_ns,
                               .bf16_flops_per_ns = speed.bf16_flops_per_ns,
                               .island = speed.island,
                               .far_latency_ns = speed.far_latency_ns,
                               .far_bytes_per_ns = speed.far_bytes_per_ns,
                               .direct = speed.direct};
  return STATUS_OK;
}

status api_pass_request(arena *scratch, const weir_options *o, pass_request *result) {
  if (!o) return STATUS_OK;
  const char *after = "";
  TRY(read_list(scratch, o, "disable", &result->disable));
  TRY(read_list(scratch, o, "enable", &result->enable));
  TRY(read_link(o, &result->options));
  if (weir_options_get_bool(o, "deterministic", &result->options.deterministic) != WEIR_OK)
    return STATUS_BAD_USAGE;
  if (weir_options_get(o, "print-after", 0, &after) != WEIR_OK) return STATUS_BAD_USAGE;
  if (!after[0] && dumps_passes(o)) after = "all";
  result->print_after = after[0] ? after : NULL;
  if (weir_options_get_bool(o, "time", &result->time) != WEIR_OK) return STATUS_BAD_USAGE;
  if (weir_options_get_bool(o, "verify-passes", &result->verify) != WEIR_OK)
    return STATUS_BAD_USAGE;
  return weir_options_get(o, "reproducer", 0, &result->reproducer) == WEIR_OK ? STATUS_OK
                                                                              : STATUS_BAD_USAGE;
}

void api_pass_also(arena *scratch, const char *pass, const char **list) {
  if (!pass) return;
  *list = *list ? arena_printf(scratch, "%s,%s", *list, pass) : pass;
}

void api_show_plain(arena *scratch, pass_request *request) {
  api_pass_also(scratch, PASS_NVFUSER_DISABLED, &request->disable);
}

/* ---- the reproducer ---- */
/* Returns NULL, or why the file could not be written. */
static const char *write_file(const char *path, const strbuf *text) {
  errno = 0;
  FILE *file = fopen(path, "wb");
  if (!file) return strerror(errno);
  bool written = fwrite(text->data, 1, text->len, file) == text->len;
  if (fclose(file) == 0 && written) return NULL;
  return errno ? strerror(errno) : "writing failed";
}

/* Adds to the failure's diagnostics where the reproducer is. */
static void keep_reproducer(diags *errors, const char *path, const strbuf *text) {
  if (!path || text->len == 0) return;
  if (errors->errors == 0) diag_error(errors, api_nowhere, "%s", status_message());
  const char *why = write_file(path, text);
  if (why) diag_note(errors, api_nowhere, "no reproducer in %s: %s", path, why);
  else diag_note(errors, api_nowhere, "a reproducer is in %s", path);
}

/* ---- one fusion ---- */
status api_lower(arena *scratch, ir_func *f, const pass_request *request, ir_func **result) {
  strbuf log, reproducer;
  strbuf_init(&log, scratch);
  strbuf_init(&reproducer, scratch);
  status st = pass_run_fusion(f, request, &log, &reproducer, result);
  if (st != STATUS_OK) keep_reproducer(&f->module->errors, request->reproducer, &reproducer);
  if (log.len) log_text(log.data);
  return st;
}

/* ---- a module ---- */
typedef struct pass_call {
  weir_module *m;
  weir_pass_args args;
  char **log;
} pass_call;

static status pass_body(arena *scratch, void *context) {
  pass_call *c = context;
  strbuf log, reproducer;
  strbuf_init(&log, scratch);
  strbuf_init(&reproducer, scratch);
  pass_request request = {.passes = c->args.passes,
                          .disable = c->args.disable,
                          .enable = c->args.enable,
                          .print_after = c->args.print_after,
                          .time = c->args.time,
                          .verify = true};
  if (c->args.pipeline && !api_find_pipeline(c->args.pipeline, &request.options.pipeline))
    return fail(STATUS_BAD_USAGE, "there is no pipeline '%s'", c->args.pipeline);
  for (uint32_t i = 0; i < c->m->ir.funcs.len; i++)
    if (!api_schedule(c->m->ir.funcs.data[i])) return STATUS_BAD_PROGRAM;
  status st = pass_run(&c->m->ir, &request, &log, &reproducer);
  if (st != STATUS_OK) keep_reproducer(&c->m->ir.errors, c->args.reproducer, &reproducer);
  status logged = c->log ? api_string(&log, c->log) : STATUS_OK;
  return st == STATUS_OK ? logged : st;
}

weir_status weir_module_run_passes(weir_module *m, const weir_pass_args *args, char **log) {
  if (!m || !args) return api_refuse("weir_module_run_passes: an argument is NULL");
  if (api_check_size(args->struct_size, "weir_module_run_passes") != WEIR_OK) return WEIR_BAD_USAGE;
  pass_call c = {.m = m, .log = log};
  api_copy_sized(&c.args, args, args->struct_size, sizeof c.args);
  if (!c.args.passes) return api_refuse("weir_module_run_passes: no passes are given");
  return api_edit(m, pass_body, &c);
}
