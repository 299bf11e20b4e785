/* s = select(t, dim=, index=), s = shard(t, dim=, index=, parts= | chunk= | chunks=) */
#include "text/parser_host.h"

typedef enum slice_key { DIM, INDEX, PARTS, CHUNK, CHUNKS, N_KEYS } slice_key;

static const char *const key_names[] = {"dim", "index", "parts", "chunk", "chunks"};

typedef struct slice {
  ir_instr_data d;
  int64_t dim; /* as written */
  uint32_t given;
  bool poison;
  const char *form; /* how it is written, for messages */
} slice;

static bool positive(text_parser *p, const text_token *at, ir_scalar x, const char *what) {
  int64_t value;
  if (!ir_scalar_is_const(&p->m->scalars, x, &value) || value >= 1) return true;
  text_error(p, at, "%s must be at least 1", what);
  return false;
}

static bool parse_chunks(text_parser *p, ir_partition *part) {
  text_token first = p->token;
  if (!text_parse_ints(p, "chunks", &part->chunks, &part->n_chunks)) return false;
  bool good = part->n_chunks > 0;
  for (uint32_t i = 0; i < part->n_chunks; i++) good = good && part->chunks[i] >= 0;
  if (!good) text_error(p, &first, "chunks are one or more lengths, none of them negative");
  return good;
}

static bool parse_value(text_parser *p, slice *s, slice_key key) {
  text_token at = p->token;
  ir_partition *part = &s->d.partition;
  switch (key) {
  case DIM: return text_parse_int(p, "dim", &s->dim);
  case INDEX: s->d.index = text_parse_scalar(p); return s->d.index.id != 0;
  case PARTS:
  case CHUNK:
    part->kind = key == PARTS ? IR_PARTS : IR_CHUNK;
    part->size = text_parse_scalar(p);
    return part->size.id != 0 && positive(p, &at, part->size, key_names[key]);
  case CHUNKS: part->kind = IR_CHUNKS; return parse_chunks(p, part);
  case N_KEYS: break;
  }
  return false;
}

static void refuse_key(text_parser *p, slice *s, const text_token *at, const char *why) {
  if (!s->poison) text_error(p, at, "%s; it is %s", why, s->form);
  s->poison = true;
  text_skip_argument(p);
}

static void parse_key(text_parser *p, slice *s) {
  text_token t = p->token;
  uint32_t n = s->d.kind == IR_SELECT ? PARTS : N_KEYS, key = 0;
  while (key < n && !text_is_word(p, key_names[key])) key++;
  if (key == n || text_lexer_peek(&p->lexer).kind != TOKEN_ASSIGN) {
    refuse_key(p, s, &t, "this is not an argument here");
    return;
  }
  text_advance(p);
  text_advance(p);
  bool again = (s->given & (1u << key)) || (key >= PARTS && (s->given >> PARTS));
  s->given |= 1u << key;
  if (again) refuse_key(p, s, &t, "this argument is given already");
  else s->poison = !parse_value(p, s, (slice_key)key) || s->poison;
}

static bool all_given(text_parser *p, const slice *s, const text_token *word) {
  bool pieces = s->d.kind == IR_SELECT || (s->given >> PARTS);
  if (pieces && (s->given & 3u) == 3u) return true;
  text_error(p, word, "an argument is missing; it is %s", s->form);
  return false;
}

static bool resolve_dim(text_parser *p, slice *s, const text_token *word, uint32_t rank) {
  int64_t dim = s->dim < 0 ? s->dim + (int64_t)rank : s->dim;
  if (dim < 0 || dim >= (int64_t)rank) {
    text_error(p, word, "dim %lld is out of range: '%s' has %u dimensions", (long long)s->dim,
               ir_tensor_name(p->f, s->d.from), rank);
    return false;
  }
  s->d.dim = (uint32_t)dim;
  return true;
}

/* The chunks must make up the whole dimension, or cover that of a slice. What the types do not show is
 * checked when shapes are bound. */
static void require_chunks(text_parser *p, const slice *s, ir_scalar size) {
  const ir_partition *part = &s->d.partition;
  int64_t total = 0;
  if (part->kind != IR_CHUNKS || p->host->skippable || !ir_scalar_of_extents(&p->m->scalars, size))
    return; /* loop indexes and `streams` have no value when shapes are bound */
  for (uint32_t i = 0; i < part->n_chunks; i++) {
    if (__builtin_add_overflow(total, part->chunks[i], &total)) return; /* the verifier tells */
  }
  const char *what = arena_printf(&p->m->memory, "the chunks of '%s' along dimension %u",
                                  ir_tensor_name(p->f, s->d.from), s->d.dim);
  ir_scalar sum = ir_scalar_const(&p->m->scalars, total);
  bool piece = ir_host_is_piece(p->f, s->d.from, s->d.dim);
  ir_require(p->f, piece ? IR_REQUIRE_LE : IR_REQUIRE_EQ, piece ? size : sum, piece ? sum : size,
             what, s->d.at);
}

/* How often the loop runs that has this index; none: the scalar is not a loop index. */
static ir_scalar iterations_of(const text_parser *p, ir_scalar index) {
  for (uint32_t i = p->host->open.len; i-- > 0;) {
    const text_loop *loop = &p->host->open.data[i];
    if (loop->variable.id && IR_SAME(loop->variable, index)) return loop->extent;
  }
  return (ir_scalar){0};
}

/* The slice as a tensor: without the dimension, or with a shorter one. */
static bool build_slice(text_parser *p, slice *s, const text_token *name, const text_token *word) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(p->f, s->d.from, dims), n = 0;
  if (!resolve_dim(p, s, word, rank)) return false;
  ir_scalar iterations = iterations_of(p, s->d.index);
  for (uint32_t i = 0; i < rank; i++) {
    ir_scalar size = ir_axis_size(p->f, dims[i]);
    if (i == s->d.dim && s->d.kind == IR_SELECT) continue;
    if (i == s->d.dim) require_chunks(p, s, size);
    sizes[n++] = ir_host_slice_size(p->f, &s->d, i, size, iterations);
  }
  s->d.tensor = ir_host_tensor(p->f, text_intern(p, name), ir_tensor_at(p->f, s->d.from)->dtype,
                               sizes, n, text_token_loc(name));
  text_host_place_slice(p, s->d.tensor, s->d.from, s->d.dim);
  return true;
}

void text_host_parse_slice(text_parser *p, const text_token *name, ir_block *block) {
  static const char *const forms[] = {"select(t, dim=, index=)",
                                      "shard(t, dim=, index=, parts= or chunk= or chunks=[...])"};
  text_token word = p->token;
  bool select = text_is_word(p, "select");
  slice s = {.form = forms[!select]};
  s.d.kind = select ? IR_SELECT : IR_SHARD;
  s.d.at = text_token_loc(name);
  text_advance(p);
  text_expect(p, TOKEN_LPAREN, "'('");
  if (!p->panic) s.poison = !(s.d.from = text_host_parse_tensor(p)).id;
  while (text_accept(p, TOKEN_COMMA) && !text_is(p, TOKEN_RPAREN)) parse_key(p, &s);
  text_expect(p, TOKEN_RPAREN, "',' or ')'");
  bool good = !p->panic && !s.poison && all_given(p, &s, &word);
  if (!good || text_host_is_taken(p, name) || !build_slice(p, &s, name, &word)) {
    text_poison(p, text_intern(p, name));
    return;
  }
  text_host_declare(p, text_intern(p, name), (ir_name_entry){IR_NAME_TENSOR, s.d.tensor.id});
  text_host_add(p, block, &s.d);
}
