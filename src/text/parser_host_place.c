/* Where the tensors of a host program are: `on d` after a type, and the cuts `@x` of its extents. */
#include "ir/build.h"
#include "text/parser_host.h"

bool text_host_parse_on(text_parser *p, ir_mesh *mesh) {
  *mesh = (ir_mesh){0};
  if (p->panic || !text_is_word(p, "on")) return !p->panic;
  text_advance(p);
  text_token t = p->token;
  if (!text_expect(p, TOKEN_NAME, "the name of a mesh")) return false;
  ir_name_entry e = text_lookup(p, &t, "mesh");
  if (!text_is_kind(p, &t, e, IR_NAME_MESH)) return false;
  *mesh = (ir_mesh){e.id};
  return true;
}

/* ---- extents that are not declared yet ---- */

/* Reads the parameters ahead, before they are parsed. Errors in the grammar are skipped here; the parser reports
 * them later. */
typedef struct head {
  text_parser *p;
  text_lexer lexer;
  text_token token;
  uint32_t depth; /* open brackets inside of the parameters' own */
  uint32_t parameter, dim;
  bool begins; /* an extent begins at the token in hand */
} head;

static bool is_alone(const head *h) {
  text_token_kind next = text_lexer_peek(&h->lexer).kind;
  return next == TOKEN_COMMA || next == TOKEN_RBRACKET || next == TOKEN_AT;
}

static void note_extent(head *h) {
  text_ahead e = {.parameter = h->parameter, .dim = h->dim++, .token = h->token};
  e.anonymous = h->token.kind == TOKEN_QUESTION;
  e.named = h->token.kind == TOKEN_NAME && is_alone(h);
  vec_push(&h->p->m->memory, &h->p->host->ahead, e);
}

static void note_parameter(head *h) {
  map *names = &h->p->host->head;
  uint32_t name = text_intern(h->p, &h->token);
  h->parameter++;
  h->dim = 0;
  if (!map_get(names, name, 0)) map_put(names, name, h->parameter);
}

/* False: the token in hand ends the parameters. */
static bool note_token(head *h) {
  text_token_kind kind = h->token.kind;
  bool closes = kind == TOKEN_RPAREN || kind == TOKEN_RBRACKET;
  if (kind == TOKEN_END || kind == TOKEN_RBRACE || (closes && h->depth == 0)) return false;
  if (h->begins && kind != TOKEN_RBRACKET) note_extent(h);
  if (h->depth == 0 && kind == TOKEN_NAME && text_lexer_peek(&h->lexer).kind == TOKEN_COLON) {
    note_parameter(h);
  }
  if (closes) h->depth--;
  if (kind == TOKEN_LPAREN || kind == TOKEN_LBRACKET) h->depth++;
  h->begins = h->depth == 1 && (kind == TOKEN_LBRACKET || kind == TOKEN_COMMA);
  return true;
}

static void declare_ahead(text_parser *p, text_ahead *e) {
  ir_symbol_data symbol = {.kind = IR_SYMBOL_EXTENT, .dim = e->dim};
  symbol.tensor = p->f->tensors.len + e->parameter - 1;
  if (e->anonymous) e->extent = ir_scalar_symbol(&p->m->scalars, symbol);
  if (!e->named) return;
  uint32_t name = text_intern(p, &e->token);
  bool unknown = ir_func_lookup(p->f, name).kind == IR_NAME_NONE;
  if (unknown && !map_get(&p->host->head, name, 0)) {
    (void)ir_build_extent(p->f, name, text_token_loc(&e->token));
  }
}

/* All extents are declared before any cut is read, as sums and products name them in the order of their
 * declaration, and a cut may name later ones. */
void text_host_read_ahead(text_parser *p) {
  head h = {.p = p, .lexer = p->lexer, .token = p->token};
  h.lexer.errors = NULL;
  while (note_token(&h)) h.token = text_lexer_next(&h.lexer);
  for (uint32_t i = 0; i < p->host->ahead.len; i++) declare_ahead(p, &p->host->ahead.data[i]);
}

static const text_ahead *extent_ahead(const text_parser *p, uint32_t parameter, uint64_t dim) {
  for (uint32_t i = 0; i < p->host->ahead.len; i++) {
    const text_ahead *e = &p->host->ahead.data[i];
    if (e->parameter == parameter && e->dim == dim) return e;
  }
  return NULL;
}

ir_scalar text_host_own_extent(text_parser *p) {
  const text_ahead *e = extent_ahead(p, p->host->parameter, p->extents.len);
  return p->host->parameter && e ? e->extent : (ir_scalar){0};
}

bool text_host_is_ahead(text_parser *p, const text_token *t) {
  uint32_t name = text_intern(p, t);
  return p->host->parameter && ir_func_lookup(p->f, name).kind == IR_NAME_NONE &&
         map_get(&p->host->head, name, 0);
}

ir_scalar text_host_extent_ahead(text_parser *p, const text_token *t) {
  uint32_t parameter = map_get(&p->host->head, text_intern(p, t), 0);
  if (!text_expect(p, TOKEN_DOT, "'.' and the number of a dimension")) return (ir_scalar){0};
  text_token number = p->token;
  if (!text_expect(p, TOKEN_INT, "the number of a dimension")) return (ir_scalar){0};
  const text_ahead *e = extent_ahead(p, parameter, number.integer);
  /* mutant: ahead_only_own */
  if (e && e->anonymous) return e->extent;
  if (e) {
    text_error(
        p, &number,
        "only an extent that is '?' is named so before its tensor is declared; this one has a "
        "name or is a number: write that");
  } else {
    text_error(p, &number, "'%.*s' has no such dimension", text_shown(t), text_of(p, t));
  }
  return (ir_scalar){0};
}

/* ---- cuts that cannot be ---- */
static const char *axis_text(text_parser *p, uint32_t axis) {
  static const char *const letters[] = {"x", "y", "z"};
  return axis < 3 ? letters[axis] : arena_printf(&p->m->memory, "%u", axis);
}

static const char *mesh_text(text_parser *p, ir_mesh mesh) {
  return ir_name_text(p->f, ir_mesh_at(p->f, mesh)->name);
}

static bool chunks_fit(text_parser *p, const text_cut *c, ir_mesh mesh, ir_scalar whole) {
  const ir_partition *part = &c->partition;
  int64_t size = ir_mesh_size(ir_mesh_at(p->f, mesh), c->mesh_axis), total = 0, n;
  bool good = true;
  for (uint32_t i = 0; i < part->n_chunks && good; i++) {
    good = part->chunks[i] >= 0 && !__builtin_add_overflow(total, part->chunks[i], &total);
  }
  if (!good) {
    text_error(p, &c->token, "the chunks are negative or overflow");
  } else if (part->n_chunks != size) {
    text_error(p, &c->token, "%u chunks for the %lld devices of mesh '%s' along %s", part->n_chunks,
               (long long)size, mesh_text(p, mesh), axis_text(p, c->mesh_axis));
  } else if (whole.id && ir_scalar_is_const(&p->m->scalars, whole, &n) &&
             (part->period.id ? n > total : n != total)) {
    text_error(p, &c->token, "the chunks add up to %lld, not to %lld", (long long)total,
               (long long)n);
  } else {
    return true;
  }
  return false;
}

/* Are there as many pieces as devices, where both are known? */
static bool pieces_fit(text_parser *p, const text_cut *c, ir_mesh mesh, ir_scalar whole) {
  ir_scalars *s = &p->m->scalars;
  int64_t length, pieces, size = ir_mesh_size(ir_mesh_at(p->f, mesh), c->mesh_axis);
  if (ir_scalar_is_const(s, c->partition.size, &length) && length < 1) {
    text_error(p, &c->token, "pieces have at least 1 position");
    return false;
  }
  if (!whole.id || !ir_scalar_is_const(s, ir_partition_count(s, &c->partition, whole), &pieces)) {
    return true;
  }
  if (pieces == size || (c->partition.period.id && pieces < size)) return true;
  text_error(p, &c->token, "this makes %lld pieces for the %lld devices of mesh '%s' along %s",
             (long long)pieces, (long long)size, mesh_text(p, mesh), axis_text(p, c->mesh_axis));
  return false;
}

static bool cut_fits(text_parser *p, const text_cut *c, ir_mesh mesh, ir_scalar whole) {
  uint32_t rank = ir_mesh_at(p->f, mesh)->rank;
  ir_scalar period = c->partition.period;
  int64_t n;
  if (c->poison) return false;
  if (period.id && ir_scalar_is_const(&p->m->scalars, period, &n) && n < 1) {
    text_error(p, &c->token, "a period has at least 1 position");
    return false;
  }
  if (c->mesh_axis >= rank) {
    text_error(p, &c->token, "mesh '%s' has no axis %s; it has %u", mesh_text(p, mesh),
               axis_text(p, c->mesh_axis), rank);
    return false;
  }
  if (c->turn && (c->turn > rank || c->turn == c->mesh_axis + 1)) {
    text_error(p, &c->token, "pieces turn along another axis of mesh '%s'", mesh_text(p, mesh));
    return false;
  }
  if (c->partition.kind == IR_CHUNKS) return chunks_fit(p, c, mesh, whole);
  return c->partition.kind == IR_PARTS || pieces_fit(p, c, mesh, whole);
}

/* A mesh axis cuts one extent of a tensor: cutting two would leave parts that no device has. */
static bool axes_differ(text_parser *p) {
  for (uint32_t i = 0; i < p->cuts.len; i++) {
    const text_cut *c = &p->cuts.data[i];
    for (uint32_t k = 0; k < i; k++) {
      if (p->cuts.data[k].mesh_axis != c->mesh_axis) continue;
      text_error(p, &c->token, "mesh axis %s cuts the tensor already", axis_text(p, c->mesh_axis));
      return false;
    }
  }
  return true;
}

bool text_host_cuts_fit(text_parser *p, ir_mesh mesh) {
  if (p->cuts.len && !mesh.id) {
    text_error(p, &p->cuts.data[0].token,
               "an extent is cut over the devices of a mesh: write 'on d' after the type");
    return false;
  }
  bool good = axes_differ(p);
  for (uint32_t i = 0; i < p->extents.len; i++) {
    const text_extent *e = &p->extents.data[i];
    for (uint32_t k = 0; k < e->n_cuts; k++) { /* only the first cut knows the length */
      const text_cut *c = &p->cuts.data[e->cuts + k];
      ir_scalar whole = k ? (ir_scalar){0} : e->scalar;
      if (c->partition.period.id) whole = c->partition.period;
      good = cut_fits(p, c, mesh, whole) && good;
    }
  }
  return good;
}

/* ---- placing ---- */
static void cut_axis(text_parser *p, const text_extent *e, text_later *later) {
  ir_cut *cuts = ARENA_ARRAY(&p->m->memory, e->n_cuts, ir_cut);
  for (uint32_t k = 0; k < e->n_cuts; k++) {
    const text_cut *c = &p->cuts.data[e->cuts + k];
    cuts[k] = (ir_cut){c->mesh_axis, c->partition, c->turn};
    if (c->partition.kind != IR_PARTS) continue;
    int64_t size = ir_mesh_size(ir_mesh_at(p->f, later->mesh), c->mesh_axis);
    cuts[k].partition.size = ir_scalar_const(&p->m->scalars, size);
  }
  later->cuts = cuts;
  later->n_cuts = e->n_cuts;
}

void text_host_place(text_parser *p, ir_tensor t, ir_mesh mesh, bool now) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(p->f, t, dims);
  ir_tensor_at(p->f, t)->mesh = mesh;
  for (uint32_t i = 0; i < rank; i++) {
    const text_extent *e = &p->extents.data[i];
    if (e->n_cuts == 0) continue;
    text_later later = {.axis = dims[i], .mesh = mesh};
    cut_axis(p, e, &later);
    if (now) ir_host_cut(p->f, later.axis, mesh, later.cuts, later.n_cuts);
    else vec_push(&p->m->memory, &p->host->later, later);
  }
}

void text_host_place_later(text_parser *p) {
  for (uint32_t i = 0; i < p->host->later.len; i++) {
    const text_later *l = &p->host->later.data[i];
    ir_host_cut(p->f, l->axis, l->mesh, l->cuts, l->n_cuts);
  }
}

/* A slice of one position of a cut dimension does not broadcast: it is one of many positions. */
void text_host_place_slice(text_parser *p, ir_tensor slice, ir_tensor from, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK], kept[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(p->f, from, dims), n = ir_tensor_dims(p->f, slice, kept);
  for (uint32_t i = 0, k = 0; i < rank; i++) {
    if (i == dim && n < rank) continue;
    const ir_cut_axis *cut = ir_host_cut_of(p->f, dims[i]);
    if (i != dim && cut) {
      ir_host_note_cut(p->f, kept[k], cut);
      ir_axis_at(p->f, kept[k])->kind = ir_axis_at(p->f, dims[i])->kind;
    }
    k++;
  }
  ir_tensor_data *d = ir_tensor_at(p->f, slice);
  d->defined.dense = ir_dense_default(p->f, d->defined.allocation);
  d->now = d->defined;
  d->mesh = ir_tensor_at(p->f, from)->mesh;
}
