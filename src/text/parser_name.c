#include <string.h>

#include "text/parser_host.h"

void text_poison(text_parser *p, uint32_t name) { map_put(&p->poisoned, name, 1); }

/* `y$1` is poisoned if `y` is. */
static bool is_poisoned(const text_parser *p, const text_token *t) {
  const char *text = text_of(p, t);
  for (size_t n = t->length; n > 0; n--) {
    if (n < t->length && text[n] != '$') continue;
    uint32_t name = strings_find(&p->m->names, text, n);
    if (name && map_get(&p->poisoned, name, 0)) return true;
  }
  return false;
}

const char *text_did_you_mean(text_parser *p, const suggestion *s) {
  return s->best ? arena_printf(&p->m->memory, " (did you mean '%s'?)", s->best) : "";
}

enum { MOST_CANDIDATES = 10000 }; /* keeps a file full of unknown names linear */

static void suggest_names(text_parser *p, suggestion *s, const char *kind) {
  const map *names = &p->f->names;
  if (p->m->errors.errors >= DIAG_LIMIT) return;
  if (strcmp(kind, "communication") == 0) {
    for (uint32_t i = 0; i < p->host->comms.len && i < MOST_CANDIDATES; i++) {
      suggest_offer(s, strings_text(&p->m->names, p->host->comms.data[i]));
    }
    return;
  }
  for (uint32_t i = 1; i < names->len && i <= MOST_CANDIDATES; i++) {
    uint32_t name = (uint32_t)names->keys[i];
    if (ir_func_lookup(p->f, name).kind != IR_NAME_NONE) {
      suggest_offer(s, strings_text(&p->m->names, name));
    }
  }
}

void text_unknown_name(text_parser *p, const text_token *t, const char *kind) {
  p->tainted = true;
  if (is_poisoned(p, t) || text_is(p, TOKEN_BAD)) return; /* or what follows has been reported */
  suggestion s;
  suggest_init(&s, text_of(p, t), t->length);
  suggest_names(p, &s, kind);
  const char *advice = text_did_you_mean(p, &s);
  if (!*advice && text_is_function(p, t))
    advice = arena_printf(&p->m->memory, "; as a function it is written %.*s(...)", text_shown(t),
                          text_of(p, t));
  text_error(p, t, "unknown %s '%.*s'%s", kind, text_shown(t), text_of(p, t), advice);
  text_poison(p, text_intern(p, t)); /* once is enough */
}

ir_name_entry text_lookup(text_parser *p, const text_token *t, const char *kind) {
  ir_name_entry e = ir_func_lookup(p->f, text_intern(p, t));
  if (e.kind == IR_NAME_NONE) text_unknown_name(p, t, kind);
  return e;
}

static const char *const kinds[] = {"nothing", "a tensor", "an integer", "a mesh"};

void text_not_this(text_parser *p, const text_token *t, ir_name_entry e, const char *wanted) {
  text_error(p, t, "'%.*s' is %s, not %s", text_shown(t), text_of(p, t), kinds[e.kind], wanted);
}

bool text_is_kind(text_parser *p, const text_token *t, ir_name_entry e, ir_name_kind kind) {
  if (e.kind != kind && e.kind != IR_NAME_NONE) text_not_this(p, t, e, kinds[kind]);
  return e.kind == kind;
}
