#include "base/utf8.h"

/* The length that a first byte announces; 0: no character begins with it. */
static uint32_t announced(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c <= 0xdf) return 2;
  if (c >= 0xe0 && c <= 0xef) return 3;
  return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

int32_t utf8_next(const char *text, uint32_t n, uint32_t *length) {
  static const int32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *c = (const unsigned char *)text;
  uint32_t want = announced(c[0]);
  *length = 1;
  if (want == 0 || want > n) return UTF8_BAD;
  int32_t code = want == 1 ? c[0] : c[0] & (0x7f >> want);
  for (uint32_t i = 1; i < want; i++) {
    if ((c[i] & 0xc0) != 0x80) return UTF8_BAD;
    code = code << 6 | (c[i] & 0x3f);
  }
  if (code < smallest[want] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
    return UTF8_BAD;
  *length = want;
  return code;
}
