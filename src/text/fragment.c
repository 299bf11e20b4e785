#include "text/fragment.h"

#include <string.h>

#include "text/parser.h"

bool text_is_name(ir_module *m, const char *text) {
  size_t n = strlen(text);
  if (n == 0 || n > UINT32_MAX) return false;
  text_lexer lexer;
  text_lexer_init(&lexer, &m->memory, NULL, text, (uint32_t)n);
  text_token t = text_lexer_next(&lexer);
  return t.kind == TOKEN_NAME && t.offset == 0 && t.length == n;
}

/* ---- a parser over one piece ---- */
typedef struct fragment {
  text_parser p;
  const char *text;
  uint32_t entries; /* diagnostics before it */
} fragment;

static void begin(fragment *g, ir_func *f, const char *text) {
  ir_module *m = f->module;
  size_t n = strlen(text);
  *g = (fragment){.p = {.m = m, .f = f}, .entries = m->errors.entries.len};
  if (n > UINT32_MAX) n = UINT32_MAX;
  g->text = arena_string(&m->memory, text, n);
  map_init(&g->p.poisoned, &m->memory);
  strbuf_init(&g->p.name, &m->memory);
  text_lexer_init(&g->p.lexer, &m->memory, &m->errors, g->text, (uint32_t)n);
  text_advance(&g->p);
  text_skip_newlines(&g->p);
  text_begin_statement(&g->p);
}

/* Places inside the piece mean nothing in the module's source, so the message quotes the text instead. */
static void quote(const fragment *g) {
  ir_module *m = g->p.m;
  for (uint32_t i = g->entries; i < m->errors.entries.len; i++) {
    diag_entry *e = &m->errors.entries.data[i];
    e->at = (loc){0};
    e->message = arena_printf(&m->memory, "%s (in '%.200s')", e->message, g->text);
  }
}

/* Checks that all of the text was used. */
static bool end(fragment *g, bool good) {
  text_skip_newlines(&g->p);
  if (good && !text_is(&g->p, TOKEN_END)) text_expected(&g->p, "the end");
  quote(g);
  return good && !g->p.panic;
}

/* ---- pieces ---- */
ir_scalar text_fragment_scalar(ir_func *f, const char *text) {
  fragment g;
  begin(&g, f, text);
  ir_scalar x = text_parse_scalar(&g.p);
  return end(&g, x.id != 0) ? x : (ir_scalar){0};
}

bool text_fragment_scalars(ir_func *f, const char *text, const ir_scalar **list, uint32_t *n) {
  fragment g;
  begin(&g, f, text);
  return end(&g, text_parse_scalars(&g.p, "the list", list, n));
}

bool text_fragment_ints(ir_func *f, const char *text, const int64_t **list, uint32_t *n) {
  fragment g;
  begin(&g, f, text);
  return end(&g, text_parse_ints(&g.p, "the list", list, n));
}

bool text_fragment_bools(ir_func *f, const char *text, const int64_t **list, uint32_t *n) {
  fragment g;
  begin(&g, f, text);
  return end(&g, text_parse_bools(&g.p, "the list", list, n));
}

/* A mesh alone is kept as a mesh, so that it prints by its name; inside an expression it is a number. */
static bool is_mesh_alone(const fragment *g) {
  const text_parser *p = &g->p;
  if (!text_is(p, TOKEN_NAME)) return false;
  uint32_t name = strings_find(&p->m->names, text_of(p, &p->token), p->token.length);
  if (ir_func_lookup(p->f, name).kind != IR_NAME_MESH) return false;
  text_lexer ahead = p->lexer;
  ahead.errors = NULL;
  text_token next = text_lexer_next(&ahead);
  if (next.kind == TOKEN_DOT) {
    (void)text_lexer_next(&ahead);
    next = text_lexer_next(&ahead);
  }
  return next.kind == TOKEN_END || next.kind == TOKEN_NEWLINE;
}

bool text_fragment_factor(ir_func *f, const char *text, ir_stmt *stmt) {
  fragment g;
  begin(&g, f, text);
  stmt->factor_is_mesh = is_mesh_alone(&g);
  if (!stmt->factor_is_mesh) {
    stmt->factor = text_parse_scalar(&g.p);
    return end(&g, stmt->factor.id != 0);
  }
  text_token t = g.p.token;
  stmt->mesh = (ir_mesh){ir_func_lookup(f, text_intern(&g.p, &t)).id};
  text_advance(&g.p);
  return end(&g,
             text_parse_mesh_size(&g.p, &t, stmt->mesh, &stmt->mesh_axis, &stmt->mesh_axis_named));
}

bool text_fragment_mesh_axis(ir_func *f, const char *text, uint32_t *axis) {
  fragment g;
  begin(&g, f, text);
  if (text_accept(&g.p, TOKEN_MESH) && !text_expect(&g.p, TOKEN_DOT, "'.'")) return end(&g, false);
  return end(&g, text_parse_mesh_axis(&g.p, axis));
}
