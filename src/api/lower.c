/* Lowering to text. */
#include <string.h>

#include "api/program.h"
#include "ir/host.h"
#include "text/text.h"

typedef struct lower_call {
  ir_func *f;
  bool nvfuser;
  int64_t rank; /* whose program the nvFuser style shows */
  host_pipeline pipeline;
  char **text;
} lower_call;

/* Lowering has room for as many operands. */
enum { MAX_OPERANDS = 64 };

status api_lower(ir_func *f, const host_options *options, ir_func **result) {
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    if (op->n_operands <= MAX_OPERANDS) continue;
    diag_error(&f->module->errors, op->at,
               "%s of %u tensors cannot be lowered: there is room for %d; do some of them first",
               ir_op_info_of(op->code)->name, op->n_operands, MAX_OPERANDS);
    return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  }
  return host_lower(f, options, result);
}

/* The nvFuser style shows the program before buffers are shrunk and freed. */
static status lower_body(arena *scratch, void *context) {
  lower_call *c = context;
  ir_func *h = c->f;
  strbuf out;
  strbuf_init(&out, scratch);
  if (!h->host) {
    if (!api_schedule(c->f)) return STATUS_BAD_PROGRAM;
    host_options options = {.plain = c->nvfuser, .pipeline = c->pipeline};
    TRY(api_lower(c->f, &options, &h));
    if (!ir_host_verify(h)) return fail(STATUS_BAD_PROGRAM, "the lowered program is broken");
  }
  if (c->nvfuser) {
    text_print_nvfuser(h, c->rank, &out);
  } else {
    if (h->host->fusion) text_print_func(h->host->fusion, &out);
    if (h->host->fusion) strbuf_putc(&out, '\n');
    text_print_host(h, &out);
  }
  return api_string(&out, c->text);
}

weir_status weir_lower(const weir_fusion *f, const weir_options *o, const char *style,
                       char **text) {
  if (!f || !style || !text) return api_refuse("weir_lower: an argument is NULL");
  lower_call c = {.f = api_func(f), .nvfuser = strcmp(style, "nvfuser") == 0, .text = text};
  if (o && weir_options_get_int(o, "rank", &c.rank) != WEIR_OK) return WEIR_BAD_USAGE;
  if (o && api_read_pipeline(o, &c.pipeline) != WEIR_OK) return WEIR_BAD_USAGE;
  if (!c.nvfuser && strcmp(style, "weir") != 0)
    return api_refuse("there is no style '%s'; there are weir and nvfuser", style);
  return api_edit(api_module(f), lower_body, &c);
}
