/* Laying out the text of programs. */
#include <string.h>

#include "api/api.h"
#include "base/beside.h"
#include "text/text.h"

typedef struct format_call {
  const char *text;
  size_t length;
  char *result;
} format_call;

static status format_body(arena *scratch, void *context) {
  format_call *c = context;
  strbuf out;
  strbuf_init(&out, scratch);
  text_format(c->text, c->length, scratch, &out);
  return api_string(&out, &c->result);
}

/* Checks that the text is still the same program. */
static weir_status compare(const weir_module *m, const char *name, const char *text) {
  weir_module *again = NULL;
  char *before = NULL, *after = NULL;
  weir_status st = weir_module_parse(name, text, strlen(text), NULL, &again);
  if (st == WEIR_OK) st = weir_module_print(m, &before);
  if (st == WEIR_OK) st = weir_module_print(again, &after);
  if (st == WEIR_OK && strcmp(before, after) != 0)
    st = api_refuse("%s: laid out, it would be another program: this is an error of weir", name);
  weir_string_free(before);
  weir_string_free(after);
  weir_module_destroy(again);
  return st;
}

weir_status weir_format(const char *name, const char *text, size_t length, char **result) {
  weir_module *m = NULL;
  if (!name || (!text && length) || !result) return api_refuse("weir_format: an argument is NULL");
  weir_status st = weir_module_parse(name, text, length, NULL, &m);
  format_call c = {.text = text ? text : "", .length = length};
  if (st == WEIR_OK) st = api_call(&memory_default, format_body, &c);
  if (st == WEIR_OK) st = compare(m, name, c.result);
  if (st == WEIR_OK) *result = c.result;
  else weir_string_free(c.result);
  weir_module_destroy(m);
  return st;
}

static status replace(const char *path, const char *text) {
  beside b;
  status st = beside_open(&b, path, &memory_default);
  if (st == STATUS_OK && fwrite(text, 1, strlen(text), b.file) != strlen(text))
    st = beside_failed(&b);
  if (st == STATUS_OK) st = beside_close(&b);
  if (st == STATUS_OK) st = beside_commit(&b);
  beside_drop(&b);
  return st;
}

weir_status weir_format_file(const char *path, bool write, char **result) {
  char *text = NULL, *formatted = NULL;
  size_t length = 0;
  if (!path || (!result && !write)) return api_refuse("weir_format_file: an argument is NULL");
  api_begin();
  weir_status st = api_end(api_read_file(path, &memory_default, &text, &length));
  if (st == WEIR_OK) st = weir_format(path, text, length, &formatted);
  check(st != WEIR_OK || formatted);
  bool same = st == WEIR_OK && strlen(formatted) == length && memcmp(formatted, text, length) == 0;
  if (st == WEIR_OK && write && !same) st = api_end(replace(path, formatted));
  memory_free(&memory_default, text);
  if (st == WEIR_OK && result) *result = formatted;
  else weir_string_free(formatted);
  return st;
}
