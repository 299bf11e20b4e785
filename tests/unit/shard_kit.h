/* What the sharding tests share: programs from text, and looking at what shard/ says about them. */
#ifndef WEIR_TESTS_UNIT_SHARD_KIT_H
#define WEIR_TESTS_UNIT_SHARD_KIT_H

#include <stdarg.h>

#include "ir/verify.h"
#include "schedule/schedule.h"
#include "shard/shard.h"
#include "test.h"
#include "text/text.h"

static ir_module module;
static arena scratch;
static ir_func *f;
static shard_ctx *ctx;

static inline void forget(void) {
  ir_module_destroy(&module);
  if (scratch.memory) arena_destroy(&scratch);
  module = (ir_module){0};
}

/* The body of a fusion, definition and schedule. False if it is refused. */
static inline bool try_program(const char *body) {
  static char text[8300];
  forget();
  snprintf(text, sizeof text, "fusion f {\n%s\n}\n", body);
  ir_module_init(&module, &memory_default);
  arena_init(&scratch, &memory_default);
  if (text_parse(&module, "t", text, strlen(text)) != STATUS_OK) return false;
  f = module.funcs.data[0];
  ctx = shard_begin(f, &scratch);
  return schedule_apply(f);
}

static inline const char *errors(void) {
  strbuf out;
  strbuf_init(&out, &module.memory);
  diags_render(&module.errors, &out);
  return out.data;
}

static inline bool program(const char *fmt, ...) PRINTF_LIKE(1, 2);
static inline bool program(const char *fmt, ...) {
  static char body[8192];
  va_list args;
  va_start(args, fmt);
  vsnprintf(body, sizeof body, fmt, args);
  va_end(args);
  bool ok = EXPECT(try_program(body)) && EXPECT(ir_verify(f));
  if (!ok) fprintf(stderr, "%s%s", body, errors());
  return ok;
}

static inline ir_tensor tensor(const char *text) {
  ir_name_entry e = ir_func_lookup(f, strings_find(&module.names, text, strlen(text)));
  EXPECT(e.kind == IR_NAME_TENSOR);
  return (ir_tensor){e.id};
}

static inline const ir_op_data *def(const char *text) {
  return ir_op_at(f, ir_tensor_at(f, tensor(text))->scheduled_def);
}

static inline bool resharding(const char *text) { return shard_is_resharding(ctx, def(text)); }

#endif
