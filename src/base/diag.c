#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void diags_init(diags *d, arena *memory, source *src) {
  *d = (diags){.memory = memory, .src = src};
}

static const char *format(arena *memory, const char *fmt, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  check(n >= 0);
  char *text = arena_alloc(memory, (size_t)n + 1);
  (void)vsnprintf(text, (size_t)n + 1, fmt, again);
  va_end(again);
  return text;
}

void diag_error(diags *d, loc at, const char *fmt, ...) {
  d->errors++;
  d->last_shown = d->errors <= DIAG_LIMIT;
  if (!d->last_shown) return;
  va_list args;
  va_start(args, fmt);
  diag_entry e = {DIAG_ERROR, at, format(d->memory, fmt, args)};
  va_end(args);
  vec_push(d->memory, &d->entries, e);
}

void diag_note(diags *d, loc at, const char *fmt, ...) {
  if (!d->last_shown) return;
  va_list args;
  va_start(args, fmt);
  diag_entry e = {DIAG_NOTE, at, format(d->memory, fmt, args)};
  va_end(args);
  vec_push(d->memory, &d->entries, e);
}

static void index_lines(source *src, arena *memory) {
  vec_push(memory, &src->lines, 0);
  for (uint32_t i = 0; i < src->length; i++) {
    if (src->text[i] == '\n') vec_push(memory, &src->lines, i + 1);
  }
}

void source_position(source *src, arena *memory, uint32_t offset, uint32_t *line,
                     uint32_t *column) {
  if (src->lines.len == 0) index_lines(src, memory);
  uint32_t low = 0, high = src->lines.len;
  while (high - low > 1) {
    uint32_t mid = low + (high - low) / 2;
    if (src->lines.data[mid] <= offset) low = mid;
    else high = mid;
  }
  *line = low + 1;
  *column = offset - src->lines.data[low] + 1;
}

enum { LINE_LIMIT = 200 }; /* longer source lines are shown as a window around the place */

/* Adds the text with control characters and invalid UTF-8 replaced, which would garble a terminal. Returns
 * how many characters it has. */
static uint32_t add_visible(strbuf *out, const char *text, uint32_t length) {
  uint32_t shown = 0;
  for (uint32_t i = 0, n; i < length; i += n, shown++) {
    int32_t c = utf8_next(text + i, length - i, &n);
    bool control = (c >= 0 && c < 0x20) || (c >= 0x7f && c < 0xa0);
    if (c == UTF8_BAD) strbuf_putc(out, '?');
    else if (control) strbuf_putc(out, ' ');
    else strbuf_printf(out, "%.*s", (int)n, text + i);
  }
  return shown;
}

/* Does the byte continue a character of several bytes? */
static bool is_tail(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

static void render_line(strbuf *out, const source *src, loc at, uint32_t column) {
  uint32_t start = at.offset - (column - 1);
  uint32_t end = at.offset;
  while (end < src->length && src->text[end] != '\n') end++;
  uint32_t skip = column > LINE_LIMIT / 2 ? column - LINE_LIMIT / 2 : 0;
  uint32_t shown = end - start - skip;
  if (shown > LINE_LIMIT) shown = LINE_LIMIT;
  while (skip < column - 1 && is_tail(src->text[start + skip])) skip++, shown--;
  while (shown > 0 && is_tail(src->text[start + skip + shown])) shown--;
  const char *line = src->text + start + skip;
  uint32_t before = column - 1 - skip, room = shown > before ? shown - before : 0;
  uint32_t marked = at.length < room ? at.length : room;
  strbuf_puts(out, "    ");
  uint32_t indent = add_visible(out, line, before);
  uint32_t width = add_visible(out, line + before, marked);
  (void)add_visible(out, line + before + marked, room - marked);
  strbuf_printf(out, "\n    %*s^", (int)indent, "");
  for (uint32_t i = 1; i < width; i++) strbuf_putc(out, '~');
  strbuf_putc(out, '\n');
}

static void render_entry(diags *d, const diag_entry *e, strbuf *out) {
  const char *kind = e->kind == DIAG_ERROR ? "error" : "note";
  const char *name = d->src ? d->src->name : "weir";
  if (!d->src || !d->src->text || !e->at.known) {
    strbuf_printf(out, "%s: %s: %s\n", name, kind, e->message);
    return;
  }
  uint32_t line, column;
  source_position(d->src, d->memory, e->at.offset, &line, &column);
  strbuf_printf(out, "%s:%u:%u: %s: %s\n", name, line, column, kind, e->message);
  render_line(out, d->src, e->at, column);
}

void diags_render(diags *d, strbuf *out) {
  for (uint32_t i = 0; i < d->entries.len; i++) render_entry(d, &d->entries.data[i], out);
  if (d->errors > DIAG_LIMIT) {
    strbuf_printf(out, "%s: error: and %u more errors\n", d->src ? d->src->name : "weir",
                  d->errors - DIAG_LIMIT);
  }
}
