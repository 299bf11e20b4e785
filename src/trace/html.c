/* The page: src/trace/page, which the build makes arrays of, around the JSON of trace_json(). */
#include <string.h>

#include "trace/json.h"
#include "trace/page.h"
#include "trace/trace.h"

static void put_escaped(strbuf *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
    case '&': strbuf_puts(out, "&amp;"); break;
    case '<': strbuf_puts(out, "&lt;"); break;
    case '>': strbuf_puts(out, "&gt;"); break;
    case '"': strbuf_puts(out, "&quot;"); break;
    default: strbuf_putc(out, *text);
    }
  }
}

static void put_head(strbuf *out, const char *title) {
  strbuf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
  put_escaped(out, title);
  strbuf_puts(out, "</title>\n<style>\n");
  strbuf_puts(out, trace_page_css);
  strbuf_puts(out, "</style></head><body>\n");
  strbuf_puts(out, trace_page_html);
  strbuf_puts(out, "<script>\nconst DATA = [");
}

static void put_foot(strbuf *out) {
  strbuf_puts(out, "];\n");
  strbuf_puts(out, trace_page_js);
  strbuf_puts(out, "</script></body></html>\n");
}

void trace_html(const trace_part *traces, uint32_t n, const char *title, strbuf *out) {
  put_head(out, title);
  trace_json(traces, n, out);
  put_foot(out);
}

/* '<' is in JSON only within strings, where the escape means the same. */
static void put_json(strbuf *out, const char *json) {
  for (; *json; json++) {
    if (*json == '<') strbuf_puts(out, "\\u003c");
    else strbuf_putc(out, *json);
  }
}

status trace_check(const char *json) {
  TRY(trace_json_check(json));
  if (json[strspn(json, " \t\r\n")] == '{' && strstr(json, "\"traceEvents\"")) return STATUS_OK;
  return fail(STATUS_BAD_INPUT, "not a trace: it has no traceEvents");
}

status trace_page(const char *const *json, uint32_t n, const char *title, strbuf *out) {
  for (uint32_t i = 0; i < n; i++) TRY(trace_check(json[i]));
  put_head(out, title);
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_puts(out, ",\n");
    put_json(out, json[i]);
  }
  put_foot(out);
  return STATUS_OK;
}
