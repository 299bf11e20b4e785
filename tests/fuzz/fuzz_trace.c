/* Any text given to `weir view` becomes a page or is refused. What is on the page cannot leave its
 * script: it holds no '<' of the trace. */
#include "target.h"
#include "trace/json.h"
#include "trace/page.h"
#include "trace/trace.h"

typedef struct trial {
  const char *text;
} trial;

static size_t count(const char *text, char c) {
  size_t n = 0;
  for (; *text; text++) n += *text == c;
  return n;
}

/* A string of any bytes is JSON. */
static void check_string(const trial *t, arena *memory) {
  strbuf string;
  strbuf_init(&string, memory);
  trace_json_string(&string, t->text);
  require(trace_json_check(string.data) == STATUS_OK, "a string is no JSON", string.data);
  require(count(string.data, '<') == 0, "a string can end its script", string.data);
}

static status try_page(void *context) {
  const trial *t = context;
  const char *texts[] = {t->text, t->text};
  strbuf page, empty;
  arena memory;
  arena_init(&memory, &memory_default);
  strbuf_init(&page, &memory);
  strbuf_init(&empty, &memory);
  check_string(t, &memory);
  status_clear();
  status st = trace_page(texts, 2, "t", &page);
  require(st == STATUS_OK || st == STATUS_BAD_INPUT, "neither shown nor refused", status_message());
  require(st == STATUS_OK || status_message()[0], "refused without a message", t->text);
  require(trace_page(texts, 0, "t", &empty) == STATUS_OK, "a page of nothing", "");
  if (st == STATUS_OK)
    require(count(page.data, '<') == count(empty.data, '<'), "a trace can end its script", t->text);
  arena_destroy(&memory);
  return STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = text_of(data, size);
  trial t = {text};
  require(memory_guard(try_page, &t) == STATUS_OK, "out of memory", "");
  free(text);
  return 0;
}
