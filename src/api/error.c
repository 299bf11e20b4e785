/* The message of the last failed call, and its diagnostics as data.
 *
 * Short messages are in the record of base/status, which needs no memory. What is longer, or was
 * asked for as data, is a block that threads can share: a run on another thread shows its error
 * where it is waited for. */
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

struct api_error {
  _Atomic uint32_t holders;
  size_t n;
  weir_diagnostic *list;
  char *text, *strings; /* of the list */
};

static _Thread_local api_error *shown;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

void api_error_drop(api_error *e) {
  if (!e || atomic_fetch_sub(&e->holders, 1) != 1) return;
  free(e->list);
  free(e->text);
  free(e->strings);
  free(e);
}

static void drop_at_end(void *e) { api_error_drop(e); }
static void make_key(void) { has_key = pthread_key_create(&key, drop_at_end) == 0; }

/* Makes `e` this thread's error, and takes over the caller's reference to it. */
static void show(api_error *e) {
  if (!shown && !e) return;
  api_error *before = shown;
  (void)pthread_once(&once, make_key);
  if (e && (!has_key || pthread_setspecific(key, e) != 0)) {
    api_error_drop(e);
    e = NULL;
  }
  if (!e && has_key) (void)pthread_setspecific(key, NULL);
  shown = e;
  api_error_drop(before);
}

void api_error_show(api_error *e) {
  if (e) (void)atomic_fetch_add(&e->holders, 1);
  show(e);
}

const char *weir_error(void) { return shown ? shown->text : status_message(); }

/* ---- making one ---- */
static api_error *create(const char *text, size_t most) {
  size_t n = strlen(text);
  while (n > 0 && text[n - 1] == '\n') n--;
  api_error *e = malloc(sizeof *e);
  if (!e) return NULL;
  *e = (api_error){.holders = 1};
  e->text = malloc(n + 1);
  e->list = malloc((most + 1) * sizeof *e->list);
  if (!e->text || !e->list) {
    api_error_drop(e);
    return NULL;
  }
  memcpy(e->text, text, n);
  e->text[n] = '\0';
  return e;
}

/* Makes `e` this thread's error; NULL: there was no memory for it. */
static void set(api_error *e, const char *text) {
  show(e);
  if (!shown) (void)fail(STATUS_BAD_PROGRAM, "%s", text); /* as much of it as fits */
}

/* The x of a message that ends with (did you mean 'x'?); "" if it does not. */
static const char *suggestion_in(const char *text, size_t *length) {
  static const char before[] = "(did you mean '";
  const char *at = strstr(text, before);
  const char *begin = at ? at + sizeof before - 1 : NULL, *end = begin ? strchr(begin, '\'') : NULL;
  *length = end ? (size_t)(end - begin) : 0;
  return end ? begin : "";
}

/* Where the next string of a list goes. They take at most twice the texts, and the names of the files. */
typedef struct letters {
  char *at;
} letters;

static const char *add_string(letters *s, const char *text, size_t n) {
  char *begin = s->at;
  memcpy(begin, text, n);
  begin[n] = '\0';
  s->at += n + 1;
  return begin;
}

static weir_diagnostic *add(api_error *e) {
  weir_diagnostic *d = &e->list[e->n++];
  *d = (weir_diagnostic){.struct_size = sizeof *d, .file = "", .text = "", .suggestion = ""};
  d->rank = -1;
  return d;
}

static void add_suggestion(letters *s, weir_diagnostic *d) {
  size_t n;
  const char *found = suggestion_in(d->text, &n);
  if (n) d->suggestion = add_string(s, found, n);
}

/* ---- from diagnostics ---- */
static void add_entry(api_error *e, letters *s, diags *from, const diag_entry *entry) {
  const char *file = from->src ? from->src->name : "";
  weir_diagnostic *d = add(e);
  d->severity = entry->kind == DIAG_ERROR ? WEIR_SEVERITY_ERROR : WEIR_SEVERITY_NOTE;
  d->file = add_string(s, file, strlen(file));
  d->text = add_string(s, entry->message, strlen(entry->message));
  add_suggestion(s, d);
  if (!from->src || !from->src->text || !entry->at.known) return;
  uint32_t line, column;
  source_position(from->src, from->memory, entry->at.offset, &line, &column);
  d->line = line;
  d->column = column;
}

void api_set_diags(const char *text, diags *from) {
  size_t bytes = 1, name = from->src ? strlen(from->src->name) : 0;
  for (uint32_t i = 0; i < from->entries.len; i++)
    bytes += name + 2 * strlen(from->entries.data[i].message) + 3;
  api_error *e = create(text, from->entries.len);
  letters s = {e ? (e->strings = malloc(bytes)) : NULL};
  for (uint32_t i = 0; s.at && i < from->entries.len; i++)
    add_entry(e, &s, from, &from->entries.data[i]);
  set(e, text);
}

/* ---- from text ----
 * A line is "rank 1: file:3:7: error: what"; each part before the last may be missing. */
typedef struct line_parts {
  int64_t rank, line, column;
  const char *file, *text;
  size_t file_length, text_length;
  weir_severity severity;
  bool is_headed; /* it begins with a rank, a place or "error:" */
} line_parts;

static bool skip_word(const char **at, const char *word) {
  size_t n = strlen(word);
  if (strncmp(*at, word, n) != 0) return false;
  *at += n;
  return true;
}

static bool skip_number(const char **at, int64_t *value) {
  char *end;
  if (!isdigit((unsigned char)**at)) return false;
  *value = strtoll(*at, &end, 10);
  *at = end;
  return true;
}

static void skip_rank(const char **at, int64_t *rank) {
  const char *p = *at;
  if (skip_word(&p, "rank ") && skip_number(&p, rank) && skip_word(&p, ": ")) *at = p;
  else *rank = -1;
}

/* "file:3: " or "file:3:7: " */
static bool skip_place(const char **at, const char *end, line_parts *l) {
  for (const char *p = *at; p < end && !isspace((unsigned char)*p); p++) {
    const char *q = p + 1;
    int64_t line, column = 0;
    if (*p != ':' || !skip_number(&q, &line)) continue;
    if (*q == ':' && isdigit((unsigned char)q[1])) {
      q++;
      (void)skip_number(&q, &column);
    }
    if (!skip_word(&q, ": ") || p == *at) return false;
    *l = (line_parts){.rank = l->rank, .line = line, .column = column, .file = *at};
    l->file_length = (size_t)(p - *at);
    *at = q;
    return true;
  }
  return false;
}

static bool skip_severity(const char **at, weir_severity *result) {
  bool is_note = skip_word(at, "note: ");
  *result = is_note ? WEIR_SEVERITY_NOTE : WEIR_SEVERITY_ERROR;
  return is_note || skip_word(at, "error: ");
}

/* "file: error: ": a file without a line. */
static bool skip_file(const char **at, const char *end, line_parts *l) {
  for (const char *p = *at; p < end && !isspace((unsigned char)*p); p++) {
    const char *q = p;
    if (!skip_word(&q, ": ") || !skip_severity(&q, &l->severity)) continue;
    l->file = *at;
    l->file_length = (size_t)(p - *at);
    *at = q;
    return true;
  }
  return false;
}

/* Finds the rank that a text names: "rank 2 (process 7) has died", "NCCL failed at rank 1's
 * allreduce of 8 f32 (sum) at two.weir:4 on team (0 1)". */
static void find_rank(const char *at, const char *end, line_parts *l) {
  const char *p = at;
  if (skip_word(&p, "rank ") && skip_number(&p, &l->rank)) return;
  for (p = at; p < end; p++) {
    const char *q = p;
    if (skip_word(&q, " at rank ") && skip_number(&q, &l->rank) && *q == '\'') return;
  }
  l->rank = -1;
}

/* Reads "f.weir:5". The name has a letter, which the address of a machine has not. */
static bool read_at(const char *at, const char *end, line_parts *l) {
  bool has_letter = false;
  for (const char *p = at; p < end && !isspace((unsigned char)*p); p++) {
    const char *q = p + 1;
    has_letter |= isalpha((unsigned char)*p) != 0;
    if (*p != ':' || !has_letter || !skip_number(&q, &l->line)) continue;
    l->file = at;
    l->file_length = (size_t)(p - at);
    return true;
  }
  l->line = 0;
  return false;
}

/* Finds the place in a message: any "at f.weir:5" if it names a rank, else only "that begins at f.weir:5", since
 * the address of a machine may follow "at". */
static void find_place(const char *at, const char *end, line_parts *l) {
  const char *word = l->rank >= 0 ? " at " : " that begins at ";
  for (const char *p = at; p < end; p++) {
    const char *q = p;
    if (skip_word(&q, word) && read_at(q, end, l)) return;
  }
}

static line_parts read_line(const char *at, const char *end) {
  line_parts l = {.file = ""};
  skip_rank(&at, &l.rank);
  l.is_headed = l.rank >= 0;
  if (skip_place(&at, end, &l)) l.is_headed = true;
  if (skip_severity(&at, &l.severity) || skip_file(&at, end, &l)) l.is_headed = true;
  l.text = at;
  l.text_length = (size_t)(end - at);
  if (l.rank < 0) find_rank(at, end, &l);
  if (l.line == 0) find_place(at, end, &l);
  return l;
}

static void add_line(api_error *e, letters *s, const line_parts *l) {
  weir_diagnostic *d = add(e);
  d->severity = l->severity;
  d->rank = l->rank;
  d->line = l->line;
  d->column = l->column;
  d->file = add_string(s, l->file, l->file_length);
  d->text = add_string(s, l->text, l->text_length);
  add_suggestion(s, d);
}

static size_t count_lines(const char *text) {
  size_t n = 1;
  for (; *text; text++) n += *text == '\n';
  return n;
}

/* Lines of the source and marks under them are indented; they are no diagnostics. */
static void add_lines(api_error *e, letters *s) {
  for (const char *at = e->text; *at;) {
    const char *end = at + strcspn(at, "\n");
    line_parts l = read_line(at, end);
    if (l.text_length > 0 && !isspace((unsigned char)*at) && (l.is_headed || e->n == 0))
      add_line(e, s, &l);
    at = *end ? end + 1 : end;
  }
}

static api_error *create_from_text(const char *text) {
  size_t lines = count_lines(text);
  api_error *e = create(text, lines);
  letters s = {e ? (e->strings = malloc(2 * strlen(text) + 3 * lines + 1)) : NULL};
  if (s.at) add_lines(e, &s);
  return e;
}

void api_set_error(const char *text) { set(create_from_text(text), text); }

/* ---- asking ---- */
/* The error as a list; made from the message in the record of base/status if there is none. */
static const api_error *current(void) {
  if (shown || weir_error()[0] == '\0') return shown;
  show(create_from_text(weir_error()));
  return shown;
}

api_error *api_error_take(void) {
  if (current()) (void)atomic_fetch_add(&shown->holders, 1);
  return shown;
}

size_t weir_diagnostic_count(void) {
  const api_error *e = current();
  return e ? e->n : 0;
}

bool weir_diagnostic_at(size_t i, weir_diagnostic *result) {
  const api_error *e = current();
  size_t size = result ? result->struct_size : 0;
  if (!e || i >= e->n || size < sizeof size) return false;
  if (size > sizeof *result) size = sizeof *result;
  memcpy(result, &e->list[i], size);
  result->struct_size = size;
  return true;
}
