/* Messages about bytes that begin no token, and about files that are not text. */
#include "text/strange.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

typedef struct lookalike {
  int32_t code;
  const char *name, *instead;
} lookalike;

static const lookalike lookalikes[] = {
#define LOOKALIKE(code, name, instead) {code, name, instead},
#include "text/lookalikes.def"
#undef LOOKALIKE
};

static const lookalike *find(int32_t code) {
  for (size_t i = 0; i < sizeof lookalikes / sizeof *lookalikes; i++)
    if (lookalikes[i].code == code) return &lookalikes[i];
  return NULL;
}

/* The forms of ASCII that are as wide as an ideograph. */
static bool is_wide(int32_t code) { return code > 0xff00 && code < 0xff5f; }

/* Letters of other alphabets, roughly: not symbols. */
static bool is_letter(int32_t code) {
  return (code >= 0xc0 && code < 0x2000) || (code >= 0x2c00 && code < 0xd800);
}

void text_report_strange(diags *errors, loc at, const char *text, uint32_t n) {
  uint32_t length;
  int32_t code = utf8_next(text, n, &length);
  const lookalike *like = find(code);
  if (code < 0x20 || code == 0x7f) { /* UTF8_BAD too */
    diag_error(errors, at, "the byte 0x%02x means nothing here", (unsigned char)*text);
  } else if (like) {
    char number[16] = "";
    if (length > 1) (void)snprintf(number, sizeof number, " (U+%04X)", (unsigned)code);
    diag_error(errors, at, "'%.*s'%s is %s; write %s", (int)length, text, number, like->name,
               like->instead);
  } else if (is_wide(code)) {
    diag_error(errors, at, "'%.*s' (U+%04X) is a wide form; write %c", (int)length, text,
               (unsigned)code, (char)(code - 0xfee0));
  } else if (is_letter(code)) {
    diag_error(errors, at,
               "'%.*s' (U+%04X) means nothing here: names are made of a to z, A to Z, digits, _ "
               "and $; comments may hold anything",
               (int)length, text, (unsigned)code);
  } else if (length > 1) {
    diag_error(errors, at, "'%.*s' (U+%04X) means nothing here", (int)length, text, (unsigned)code);
  } else {
    diag_error(errors, at, "the character '%c' means nothing here", *text);
  }
}

/* ---- files ---- */
static bool is_utf16(const char *text, uint32_t length) {
  if (length < 2) return false;
  bool marked = memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0;
  return marked || (text[0] == '\0') != (text[1] == '\0');
}

bool text_refuse_file(diags *errors, const char *text, uint32_t length) {
  enum { HEAD = 8192 };
  uint32_t head = length < HEAD ? length : HEAD;
  bool zero = head > 0 && memchr(text, '\0', head) != NULL;
  bool lines = head == 0 || memchr(text, '\n', length) || !memchr(text, '\r', head);
  if (zero && is_utf16(text, head))
    diag_error(errors, (loc){0}, "this file is UTF-16; save it as UTF-8");
  else if (zero) diag_error(errors, (loc){0}, "this is not a text file: it has zero bytes");
  else if (!lines)
    diag_error(errors, (loc){0},
               "the lines of this file end with a carriage return alone; save it with line feeds");
  return zero || !lines;
}
