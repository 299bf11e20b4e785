/* Named extents: extent half = n / 2 */
#include "text/parser_host.h"

bool text_at_named_extent(const text_parser *p) {
  return text_is_word(p, "extent") && text_lexer_peek(&p->lexer).kind == TOKEN_NAME;
}

static bool is_taken(text_parser *p, const text_token *name) {
  return p->host ? text_host_is_taken(p, name) : text_is_taken(p, name);
}

static void declare(text_parser *p, uint32_t name, ir_scalar x) {
  ir_name_entry entry = {IR_NAME_EXTENT, x.id};
  if (p->host && p->host->depth) {
    text_host_declare(p, name, entry);
    return;
  }
  ir_func_declare(p->f, name, entry);
  vec_push(&p->m->memory, &p->named, name);
}

void text_parse_named_extent(text_parser *p) {
  text_advance(p);
  text_token name = p->token;
  text_advance(p);
  if (is_taken(p, &name)) {
    p->panic = true;
    return;
  }
  ir_scalar x = {0};
  if (text_expect(p, TOKEN_ASSIGN, "'=' and an integer expression")) x = text_parse_scalar(p);
  if (x.id) declare(p, text_intern(p, &name), x);
  else text_poison(p, text_intern(p, &name));
}

void text_forget_extents(text_parser *p) {
  for (uint32_t i = 0; i < p->named.len; i++) ir_func_undeclare(p->f, p->named.data[i]);
  p->named.len = 0;
}
