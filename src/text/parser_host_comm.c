/* Communications of a host program: posting them, grouping them, waiting for them. */
#include <string.h>

#include "text/parser_host.h"

typedef enum comm_key { TEAM, OP, ROOT, TO, FROM, N_KEYS } comm_key;

static const char *const key_names[] = {"team", "op", "root", "to", "from"};

typedef struct comm {
  ir_instr_data d;
  uint32_t wanted, given; /* a bit per key */
  bool poison;
} comm;

static uint32_t keys_of(ir_comm_kind kind) {
  const ir_comm_info *info = ir_comm_info_of(kind);
  uint32_t keys = 1u << TEAM;
  if (info->combines) keys |= 1u << OP;
  if (info->root != IR_ROOT_NO) keys |= 1u << ROOT;
  if (kind == IR_COMM_PERMUTE || kind == IR_COMM_SEND) keys |= 1u << TO;
  if (kind == IR_COMM_PERMUTE || kind == IR_COMM_RECV) keys |= 1u << FROM;
  return keys;
}

/* How it is written, for messages: "reduce(x -> y, team=, op=, root=)". */
static const char *form_of(text_parser *p, ir_comm_kind kind) {
  strbuf out;
  strbuf_init(&out, &p->m->memory);
  strbuf_puts(&out, ir_comm_info_of(kind)->text);
  strbuf_puts(&out, kind == IR_COMM_SEND ? "(x" : kind == IR_COMM_RECV ? "(y" : "(x -> y");
  for (uint32_t k = 0; k < N_KEYS; k++) {
    if (keys_of(kind) >> k & 1) strbuf_printf(&out, ", %s=", key_names[k]);
  }
  strbuf_putc(&out, ')');
  return out.data;
}

bool text_host_at_comm(const text_parser *p, ir_comm_kind *kind) {
  for (uint32_t k = 0; k < IR_COMM_COUNT; k++) {
    *kind = (ir_comm_kind)k;
    if (text_is_word(p, ir_comm_info_of(*kind)->text)) return true;
  }
  return false;
}

void text_host_suggest_comms(suggestion *s) {
  for (uint32_t k = 0; k < IR_COMM_COUNT; k++) {
    suggest_offer(s, ir_comm_info_of((ir_comm_kind)k)->text);
  }
}

/* ---- arguments ---- */
static void refuse(text_parser *p, comm *c, const text_token *at, const char *why) {
  if (!c->poison) text_error(p, at, "%s; it is %s", why, form_of(p, c->d.comm));
  c->poison = true;
  text_skip_argument(p);
}

static bool parse_combine(text_parser *p, ir_combine *combine) {
  strbuf known;
  suggestion s;
  suggest_init(&s, text_of(p, &p->token), p->token.length);
  strbuf_init(&known, &p->m->memory);
  for (uint32_t i = 0; i < IR_COMBINE_COUNT; i++) {
    const char *text = ir_combine_text((ir_combine)i);
    *combine = (ir_combine)i;
    if (text_is_word(p, text)) {
      text_advance(p);
      return true;
    }
    strbuf_printf(&known, "%s%s", i == 0 ? "" : i + 1 < IR_COMBINE_COUNT ? ", " : " or ", text);
    suggest_offer(&s, text);
  }
  if (text_is(p, TOKEN_NAME)) {
    text_error(p, &p->token, "op is %s, not '%.*s'%s", known.data, text_shown(&p->token),
               text_of(p, &p->token), text_did_you_mean(p, &s));
    text_advance(p);
  } else {
    text_expected(p, arena_printf(&p->m->memory, "%s as op", known.data));
  }
  return false;
}

static bool parse_scalar(text_parser *p, ir_scalar *x) {
  *x = text_parse_scalar(p);
  return x->id != 0;
}

static bool parse_value(text_parser *p, comm *c, comm_key key) {
  switch (key) {
  case TEAM: return text_parse_mesh_and_axis(p, &c->d.team, &c->d.team_axis);
  case OP: return parse_combine(p, &c->d.combine);
  case ROOT: return parse_scalar(p, &c->d.root);
  case TO: return parse_scalar(p, &c->d.to);
  case FROM: return parse_scalar(p, &c->d.peer);
  case N_KEYS: break;
  }
  return false;
}

static void refuse_key(text_parser *p, comm *c, const text_token *t, uint32_t key) {
  const char *what = "this is not an argument here";
  suggestion s;
  suggest_init(&s, text_of(p, t), t->length);
  for (uint32_t k = 0; k < N_KEYS; k++) {
    if (c->wanted >> k & 1) suggest_offer(&s, key_names[k]);
  }
  if (key < N_KEYS) {
    what = arena_printf(&p->m->memory, "%s has no %s", ir_comm_info_of(c->d.comm)->text,
                        key_names[key]);
  } else if (t->kind == TOKEN_NAME) {
    what = arena_printf(&p->m->memory, "this is not an argument here%s", text_did_you_mean(p, &s));
  }
  refuse(p, c, t, what);
}

static void parse_key(text_parser *p, comm *c) {
  text_token t = p->token;
  uint32_t key = 0;
  while (key < N_KEYS && !text_is_word(p, key_names[key])) key++;
  bool named = text_lexer_peek(&p->lexer).kind == TOKEN_ASSIGN;
  if (key == N_KEYS || !named || !(c->wanted >> key & 1)) {
    refuse_key(p, c, &t, named ? key : N_KEYS);
    return;
  }
  text_advance(p);
  text_advance(p);
  bool again = c->given >> key & 1;
  c->given |= 1u << key;
  if (again) refuse(p, c, &t, "this argument is given already");
  else c->poison = !parse_value(p, c, (comm_key)key) || c->poison;
}

/* x -> y; of a send the first, of a receive the second alone. */
static void parse_tensors(text_parser *p, comm *c) {
  bool sends = c->d.comm != IR_COMM_RECV, receives = c->d.comm != IR_COMM_SEND;
  if (sends) c->poison = !(c->d.from = text_host_parse_tensor(p)).id;
  if (sends && receives) text_expect(p, TOKEN_ARROW, "'->' and the tensor to receive into");
  if (receives && !p->panic) {
    c->poison = !(c->d.tensor = text_host_parse_tensor(p)).id || c->poison;
  }
}

static bool all_given(text_parser *p, const comm *c, const text_token *word) {
  for (uint32_t k = 0; k < N_KEYS; k++) {
    if (!((c->wanted & ~c->given) >> k & 1)) continue;
    text_error(p, word, "%s needs %s; it is %s", ir_comm_info_of(c->d.comm)->text, key_names[k],
               form_of(p, c->d.comm));
    return false;
  }
  return true;
}

/* ---- names ---- */
static bool is_comm(const text_parser *p, uint32_t name) {
  return map_get(&p->host->comm_names, name, 0) != 0;
}

/* A communication may be posted again under its name. */
static bool declare(text_parser *p, const text_token *name) {
  uint32_t interned = text_intern(p, name);
  if (is_comm(p, interned)) return true;
  if (text_host_is_taken(p, name)) return false;
  map_put(&p->host->comm_names, interned, 1);
  vec_push(&p->m->memory, &p->host->comms, interned);
  return true;
}

void text_host_leave_comms(text_parser *p, uint32_t n) {
  while (p->host->comms.len > n) {
    map_put(&p->host->comm_names, p->host->comms.data[--p->host->comms.len], 0);
  }
}

/* ---- statements ---- */
void text_host_parse_comm(text_parser *p, const text_token *name, ir_block *block) {
  text_token word = p->token;
  comm c = {.d = {.kind = IR_COMMUNICATE, .at = text_token_loc(name ? name : &word)}};
  (void)text_host_at_comm(p, &c.d.comm);
  c.wanted = keys_of(c.d.comm);
  text_advance(p);
  if (text_expect(p, TOKEN_LPAREN, "'('")) parse_tensors(p, &c);
  while (text_accept(p, TOKEN_COMMA) && !text_is(p, TOKEN_RPAREN)) parse_key(p, &c);
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
  bool good = !p->panic && !c.poison && all_given(p, &c, &word);
  if (name && (!good || !declare(p, name))) {
    text_poison(p, text_intern(p, name));
    return;
  }
  if (!good) return;
  c.d.name = name ? text_intern(p, name) : 0;
  text_host_add(p, block, &c.d);
}

void text_host_parse_group_end(text_parser *p, const text_token *name, ir_block *block) {
  ir_instr_data d = {.kind = IR_GROUP_END, .at = text_token_loc(name)};
  text_advance(p);
  text_expect(p, TOKEN_LPAREN, "'('");
  text_expect(p, TOKEN_RPAREN, "')'");
  if (p->panic || !declare(p, name)) {
    text_poison(p, text_intern(p, name));
    return;
  }
  d.name = text_intern(p, name);
  text_host_add(p, block, &d);
}

static void parse_wait(text_parser *p, ir_block *block) {
  ir_instr_data d = {.kind = IR_WAIT, .at = text_token_loc(&p->token)};
  text_advance(p);
  text_advance(p);
  text_token t = p->token;
  if (!text_expect(p, TOKEN_NAME, "the name of a communication")) return;
  d.name = text_intern(p, &t);
  bool known = is_comm(p, d.name), stream = map_get(&p->host->streams, d.name, 0) != 0;
  if (!known && stream) {
    text_error(p, &t, "'%.*s' is a stream; wait_stream(%.*s) waits for it", text_shown(&t),
               text_of(p, &t), text_shown(&t), text_of(p, &t));
  } else if (!known && ir_func_lookup(p->f, d.name).kind != IR_NAME_NONE) {
    text_not_this(p, &t, ir_func_lookup(p->f, d.name), "a communication");
  } else if (!known && p->host->loops > 0) {
    known = true; /* of the iteration before; the verifier sees whether there is one */
  } else if (!known) {
    text_unknown_name(p, &t, "communication");
  }
  if (text_expect(p, TOKEN_RPAREN, "')'") && known) text_host_add(p, block, &d);
}

static void parse_group_start(text_parser *p, ir_block *block) {
  ir_instr_data d = {.kind = IR_GROUP_START, .at = text_token_loc(&p->token)};
  text_advance(p);
  text_advance(p);
  if (text_expect(p, TOKEN_RPAREN, "')'")) text_host_add(p, block, &d);
}

bool text_host_parse_comm_action(text_parser *p, ir_block *block) {
  ir_comm_kind kind;
  if (text_is_word(p, "wait")) {
    parse_wait(p, block);
  } else if (text_is_word(p, "group_start")) {
    parse_group_start(p, block);
  } else if (text_is_word(p, "group_end")) {
    text_error(p, &p->token, "a group has a name to wait for: 'c = group_end()'");
    p->panic = true;
  } else if (text_host_at_comm(p, &kind) && (kind == IR_COMM_SEND || kind == IR_COMM_RECV)) {
    text_host_parse_comm(p, NULL, block);
  } else {
    return false;
  }
  return true;
}
