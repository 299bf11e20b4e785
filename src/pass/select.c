/* Which passes run: names, what is left out, what is added, what needs what. */
#include <string.h>

#include "base/suggest.h"
#include "pass/pass.h"
#include "pass/passes.h"

static const pass_info passes[] = {
#define PASS(name, run, level, use, needs, summary) {name, level, use, run, needs, summary},
#include "pass/passes.def"
#undef PASS
};

enum { N_PASSES = sizeof passes / sizeof *passes };

uint32_t pass_count(void) { return N_PASSES; }
const pass_info *pass_at(uint32_t i) { return &passes[i]; }

const char *pass_level_text(pass_level level) {
  switch (level) {
  case PASS_DEFINITION: return "definition";
  case PASS_SCHEDULE: return "schedule";
  case PASS_SHARD: return "shard";
  case PASS_HOST: return "host";
  case PASS_JOIN: return "join";
  }
  impossible("a pass of no level");
}

static bool is_word(const char *word, const char *text, size_t length) {
  return strlen(word) == length && memcmp(word, text, length) == 0;
}

const pass_info *pass_find(const char *name, size_t length) {
  for (uint32_t i = 0; i < N_PASSES; i++)
    if (is_word(passes[i].name, name, length)) return &passes[i];
  return NULL;
}

/* ---- lists of names ---- */
typedef status (*visitor)(void *context, const pass_info *p);

static const char *advice_on(const char *name, size_t length, suggest_advice advice) {
  suggestion near;
  suggest_init(&near, name, length);
  for (uint32_t i = 0; i < N_PASSES; i++) suggest_offer(&near, passes[i].name);
  return suggest_text(&near, advice);
}

static status find_named(const char *name, size_t length, const pass_info **result) {
  suggest_advice advice;
  *result = pass_find(name, length);
  if (*result) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "there is no pass called '%.*s'%s; 'weir list passes' names them",
              (int)length, name, advice_on(name, length, advice));
}

/* The word "default" has no row: visit(context, NULL). */
static status each_name(const char *list, visitor visit, void *context) {
  for (const char *at = list; at && *at;) {
    size_t n = strcspn(at, ",");
    const pass_info *p = NULL;
    if (!is_word("default", at, n)) TRY(find_named(at, n, &p));
    TRY(visit(context, p));
    at += n;
    if (*at == ',' && *++at == '\0')
      return fail(STATUS_BAD_USAGE, "the list of passes ends in ','");
  }
  return STATUS_OK;
}

/* By row of the table. */
typedef struct marked {
  bool row[N_PASSES];
} marked;

static status mark(void *context, const pass_info *p) {
  if (!p) return fail(STATUS_BAD_USAGE, "'default' is all passes: name one");
  ((marked *)context)->row[p - passes] = true;
  return STATUS_OK;
}

/* ---- selecting ---- */
typedef struct selecting {
  marked disabled, enabled;
  arena *memory;
  VEC(const pass_info *) list;
} selecting;

static void add(selecting *s, const pass_info *p) {
  if (!s->disabled.row[p - passes]) vec_push(s->memory, &s->list, p);
}

static status add_named(void *context, const pass_info *p) {
  selecting *s = context;
  if (p) add(s, p);
  for (uint32_t i = 0; !p && i < N_PASSES; i++)
    if (passes[i].use == PASS_DEFAULT || s->enabled.row[i]) add(s, &passes[i]);
  return STATUS_OK;
}

static status check_needs(const selecting *s, const pass_info *p) {
  for (const char *at = p->needs; *at;) {
    size_t n = strcspn(at, " ");
    const pass_info *needed = pass_find(at, n);
    check(needed);
    if (s->disabled.row[needed - passes])
      return fail(STATUS_BAD_USAGE, "pass '%s' cannot be disabled: '%s' needs it", needed->name,
                  p->name);
    at += n + (at[n] == ' ');
  }
  return STATUS_OK;
}

static status check_list(const selecting *s) {
  for (uint32_t i = 0; i < s->list.len; i++) {
    const pass_info *p = s->list.data[i], *before = i ? s->list.data[i - 1] : p;
    TRY(check_needs(s, p));
    bool back = p->level < PASS_HOST && p->level < before->level && before->level >= PASS_SHARD;
    if (back)
      return fail(STATUS_BAD_USAGE, "pass '%s' (%s) cannot run after '%s' (%s)", p->name,
                  pass_level_text(p->level), before->name, pass_level_text(before->level));
  }
  return STATUS_OK;
}

status pass_select(const pass_request *request, arena *memory, pass_list *result) {
  selecting s = {.memory = memory};
  const char *after = request->print_after;
  suggest_advice advice;
  bool special = !after || strcmp(after, "all") == 0 || strcmp(after, "changed") == 0;
  if (!special && !pass_find(after, strlen(after)))
    return fail(STATUS_BAD_USAGE, "--print-after takes all, changed or a pass, not '%s'%s", after,
                advice_on(after, strlen(after), advice));
  TRY(each_name(request->disable, mark, &s.disabled));
  TRY(each_name(request->enable, mark, &s.enabled));
  TRY(each_name(request->passes ? request->passes : "default", add_named, &s));
  TRY(check_list(&s));
  *result = (pass_list){s.list.data, s.list.len};
  return STATUS_OK;
}
