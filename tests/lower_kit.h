/* Lowering as programs are compiled, by the default pipeline but for joining, for tests of what comes after
 * it. */
#ifndef WEIR_TESTS_LOWER_KIT_H
#define WEIR_TESTS_LOWER_KIT_H

#include "pass/pass.h"

/* `enable`: an optional pass that makes a variant of the program, or NULL. */
static inline status kit_lower_variant(ir_func *f, const host_options *options, const char *enable,
                                       ir_func **result) {
  strbuf log;
  strbuf_init(&log, &f->module->memory);
  pass_request request = {.enable = enable, .options = *options, .verify = true};
  request.disable = "join";
  return pass_run_fusion(f, &request, &log, NULL, result);
}

/* The program that the nvFuser style shows. */
static inline status kit_lower_plain(ir_func *f, const host_options *options, ir_func **result) {
  strbuf log;
  strbuf_init(&log, &f->module->memory);
  pass_request request = {.options = *options, .verify = true};
  request.disable = PASS_NVFUSER_DISABLED;
  return pass_run_fusion(f, &request, &log, NULL, result);
}

static inline status kit_lower(ir_func *f, const host_options *options, ir_func **result) {
  return kit_lower_variant(f, options, NULL, result);
}

#endif
