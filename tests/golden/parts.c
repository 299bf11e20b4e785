#include "parts.h"

#include <regex.h>
#include <stdio.h>

/* Everything a part may keep from line to line. */
typedef struct part {
  regex_t pattern, last; /* last: of `from A to B` */
  bool has_last, inside;
  int count;
  words out;
} part;

static void add_line(words *out, const char *line) {
  words_adds(out, line);
  words_adds(out, "\n");
}

static bool matches(const regex_t *pattern, const char *line) {
  return regexec(pattern, line, 0, NULL, 0) == 0;
}

static void take_lines(part *p, const char *line) {
  if (matches(&p->pattern, line)) add_line(&p->out, line);
}

static void take_from(part *p, const char *line) {
  bool first = !p->inside && matches(&p->pattern, line);
  p->inside = p->inside || first;
  if (p->inside) add_line(&p->out, line);
  if (p->has_last && !first && matches(&p->last, line)) p->inside = false;
}

static void take_words(part *p, const char *line) {
  regmatch_t m;
  for (; regexec(&p->pattern, line, 1, &m, 0) == 0 && m.rm_eo > m.rm_so; line += m.rm_eo) {
    words_add(&p->out, line + m.rm_so, (size_t)(m.rm_eo - m.rm_so));
    words_adds(&p->out, "\n");
  }
}

static void take_without(part *p, const char *line) {
  regmatch_t m;
  for (; regexec(&p->pattern, line, 1, &m, 0) == 0 && m.rm_eo > m.rm_so; line += m.rm_eo)
    words_add(&p->out, line, (size_t)m.rm_so);
  add_line(&p->out, line);
}

static void take_count(part *p, const char *line) { p->count += matches(&p->pattern, line); }

typedef struct part_kind {
  const char *word;
  void (*take)(part *p, const char *line);
} part_kind;
static const part_kind kinds[] = {{"lines ", take_lines},
                                  {"from ", take_from},
                                  {"words ", take_words},
                                  {"without ", take_without},
                                  {"count ", take_count}};

static const part_kind *find_kind(const char *check) {
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (strncmp(check, kinds[i].word, strlen(kinds[i].word)) == 0) return &kinds[i];
  return NULL;
}

static bool compile(part *p, const part_kind *kind, const char *check) {
  char first[256];
  const char *pattern = check + strlen(kind->word);
  const char *to = kind->take == take_from ? strstr(pattern, " to ") : NULL;
  snprintf(first, sizeof first, "%.*s", (int)(to ? to - pattern : (long)strlen(pattern)), pattern);
  if (regcomp(&p->pattern, first, REG_EXTENDED) != 0) return false;
  p->has_last = to && regcomp(&p->last, to + 4, REG_EXTENDED) == 0;
  if (!to || p->has_last) return true;
  regfree(&p->pattern);
  return false;
}

static void take_all(part *p, const part_kind *kind, char *lines) {
  while (*lines) {
    char *end = strchr(lines, '\n');
    if (end) *end = '\0';
    kind->take(p, lines);
    lines = end ? end + 1 : lines + strlen(lines);
  }
  char count[16];
  snprintf(count, sizeof count, "%d\n", p->count);
  if (kind->take == take_count) words_adds(&p->out, count);
}

bool golden_part(const char *check, words *t) {
  part p = {0};
  const part_kind *kind = find_kind(check);
  if (!kind || !compile(&p, kind, check)) return false;
  words_add(&p.out, "", 0);
  take_all(&p, kind, t->data);
  regfree(&p.pattern);
  if (p.has_last) regfree(&p.last);
  words_free(t);
  *t = p.out;
  return true;
}
