#include "trace/json.h"

#include <string.h>

/* '<' is escaped so that no text can end the script it is in. Bytes above 0x7f are UTF-8 and
 * pass as they are; the two line separators that old script engines reject cannot occur in names. */
void trace_json_string(strbuf *out, const char *text) {
  strbuf_putc(out, '"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') strbuf_putc(out, '\\'), strbuf_putc(out, (char)c);
    else if (c < 0x20 || c == '<' || c == 0x7f) strbuf_printf(out, "\\u%04x", c);
    else strbuf_putc(out, (char)c);
  }
  strbuf_putc(out, '"');
}

/* ---- checking ---- */
enum { MAX_DEPTH = 64 };

typedef struct reader {
  const char *at;
  uint32_t depth;
} reader;

static void skip_spaces(reader *r) { r->at += strspn(r->at, " \t\r\n"); }

static bool take(reader *r, char c) {
  skip_spaces(r);
  if (*r->at != c) return false;
  r->at++;
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool take_escape(reader *r) {
  char c = *r->at;
  if (c == '\0' || !strchr("\"\\/bfnrtu", c)) return false;
  r->at++;
  for (int i = 0; c == 'u' && i < 4; i++, r->at++)
    if (!is_hex(*r->at)) return false;
  return true;
}

static bool take_string(reader *r) {
  if (!take(r, '"')) return false;
  while (*r->at != '"') {
    unsigned char c = (unsigned char)*r->at;
    if (c < 0x20) return false;
    r->at++;
    if (c == '\\' && !take_escape(r)) return false;
  }
  r->at++;
  return true;
}

static bool take_digits(reader *r) {
  if (!is_digit(*r->at)) return false;
  while (is_digit(*r->at)) r->at++;
  return true;
}

static bool take_number(reader *r) {
  if (*r->at == '-') r->at++;
  if (*r->at == '0') r->at++;
  else if (!take_digits(r)) return false;
  if (*r->at == '.') {
    r->at++;
    if (!take_digits(r)) return false;
  }
  if (*r->at != 'e' && *r->at != 'E') return true;
  r->at++;
  if (*r->at == '+' || *r->at == '-') r->at++;
  return take_digits(r);
}

static bool take_word(reader *r, const char *word) {
  size_t n = strlen(word);
  if (strncmp(r->at, word, n) != 0) return false;
  r->at += n;
  return true;
}

static bool take_value(reader *r);

/* An object's members or a list's values, from after the opening bracket. */
static bool take_members(reader *r, bool named, char end) {
  if (take(r, end)) return true;
  do {
    if (named && (!take_string(r) || !take(r, ':'))) return false;
    if (!take_value(r)) return false;
  } while (take(r, ','));
  return take(r, end);
}

// NOLINTNEXTLINE(misc-no-recursion): MAX_DEPTH deep
static bool take_value(reader *r) {
  if (r->depth == MAX_DEPTH) return false;
  r->depth++;
  skip_spaces(r);
  bool ok;
  switch (*r->at) {
  case '{': r->at++, ok = take_members(r, true, '}'); break;
  case '[': r->at++, ok = take_members(r, false, ']'); break;
  case '"': ok = take_string(r); break;
  case 't': ok = take_word(r, "true"); break;
  case 'f': ok = take_word(r, "false"); break;
  case 'n': ok = take_word(r, "null"); break;
  default: ok = take_number(r);
  }
  r->depth--;
  return ok;
}

status trace_json_check(const char *text) {
  reader r = {.at = text};
  bool ok = take_value(&r);
  skip_spaces(&r);
  if (ok && !*r.at) return STATUS_OK;
  unsigned line = 1;
  for (const char *p = text; p < r.at; p++) line += *p == '\n';
  return fail(STATUS_BAD_INPUT, "not JSON: line %u cannot be read", line);
}
