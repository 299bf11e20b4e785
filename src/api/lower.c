/* Lowering to text. */
#include <string.h>

#include "api/api.h"
#include "host/host.h"
#include "ir/host.h"
#include "text/text.h"

typedef struct lower_call {
  ir_func *f;
  bool nvfuser;
  char **text;
} lower_call;

/* The nvFuser style shows the program before buffers are shrunk and freed. */
static status lower_body(arena *scratch, void *context) {
  lower_call *c = context;
  ir_func *h = c->f;
  strbuf out;
  strbuf_init(&out, scratch);
  if (!h->host) {
    if (!api_schedule(c->f)) return STATUS_BAD_PROGRAM;
    host_options options = {.plain = c->nvfuser};
    TRY(host_lower(c->f, &options, &h));
    if (!ir_host_verify(h)) return fail(STATUS_BAD_PROGRAM, "the lowered program is broken");
  }
  if (c->nvfuser) {
    text_print_nvfuser(h, &out);
  } else {
    if (h->host->fusion) text_print_func(h->host->fusion, &out);
    if (h->host->fusion) strbuf_putc(&out, '\n');
    text_print_host(h, &out);
  }
  return api_string(&out, c->text);
}

weir_status weir_lower(const weir_fusion *f, const weir_options *o, const char *style,
                       char **text) {
  (void)o; /* pipelines and ranks come with several devices */
  if (!f || !style || !text) return api_refuse("weir_lower: an argument is NULL");
  lower_call c = {.f = api_func(f), .nvfuser = strcmp(style, "nvfuser") == 0, .text = text};
  if (!c.nvfuser && strcmp(style, "weir") != 0)
    return api_refuse("there is no style '%s'; there are weir and nvfuser", style);
  return api_edit(api_module(f), lower_body, &c);
}
