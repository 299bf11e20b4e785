/* What the files of the parser share. Private to text/parser*.c.
 *
 * Recursive descent with one token of lookahead, the token *in hand*. Two kinds of errors are kept apart:
 *   - the text is not in the grammar: text_expected() reports it and sets `panic`; everything
 *     returns at once to the statement, which skips to the next one;
 *   - the text is in the grammar but wrong (an unknown name, a shape): it is reported, the value is
 *     *poison*, and parsing goes on; what is computed from poison is poison and is not reported.
 * A statement that failed poisons the name it would have declared. */
#ifndef WEIR_TEXT_PARSER_H
#define WEIR_TEXT_PARSER_H

#include "base/strbuf.h"
#include "base/suggest.h"
#include "ir/build.h"
#include "ir/host.h"
#include "text/lexer.h"

/* `@x`, `@x/2` or `@x[3, 5]` after an extent: a cut over the devices of a mesh. */
typedef struct text_cut {
  text_token token; /* the @ */
  uint32_t mesh_axis;
  ir_partition partition; /* of PARTS the size follows from the mesh */
  uint32_t turn;          /* as in ir_cut */
  bool poison;
} text_cut;

/* One extent of a written type. A lone name is kept as a name: in an input it declares an extent, in a
 * stated type it refers to one, and the parser knows which only after the type. */
typedef struct text_extent {
  text_token token;
  uint32_t name;    /* a lone name; else 0 */
  ir_scalar scalar; /* none: `?`, a lone name, or poison */
  bool anonymous;   /* `?`; it has its symbol already if its cuts may name it */
  bool poison;
  uint32_t cuts, n_cuts; /* in p->cuts */
} text_extent;

/* One of the results that a statement names: `v` or `v : f32[n, 2]`. */
typedef struct text_result {
  text_token name;
  bool typed, good;         /* a type was written, and can be one */
  ir_dtype dtype;           /* what it states */
  const ir_scalar *extents; /* `?` as none */
  uint32_t rank;
} text_result;

typedef struct text_parser {
  ir_module *m;
  ir_func *f;
  text_lexer lexer;
  text_token token; /* in hand, not yet consumed */
  uint32_t end;     /* offset after the token consumed last */

  uint32_t depth;   /* nesting of the statement */
  bool panic;       /* skip to the next statement */
  text_token start; /* the first token of the statement */
  bool declaring;   /* names skipped in recovery may be extents of a failed input: poison them */
  bool tainted;     /* the statement uses an unknown name */
  map poisoned;     /* names whose declaration failed */

  /* The definition being built: its name, how many results inside it are named, and the newest
   * operation, whose name depends on whether another one follows. */
  uint32_t defining;
  uint32_t nested;
  ir_tensor newest;

  /* Stacks: nested calls push on top of what the outer ones have. */
  VEC(ir_tensor) operands;
  VEC(ir_attr) attrs;

  /* Buffers of one list at a time. */
  VEC(int64_t) ints;
  VEC(ir_scalar) scalars;
  VEC(text_extent) extents;
  VEC(text_cut) cuts;
  VEC(ir_target) targets;
  VEC(text_result) results;
  strbuf name;
  VEC(uint32_t) named; /* extents with names of their own, known to the end of the function */

  struct text_host *host; /* while a host program is read; parser_host.h */
} text_parser;

/* ---- parser_token.c: tokens, errors, recovery ---- */
void text_advance(text_parser *p);
static inline bool text_is(const text_parser *p, text_token_kind kind) {
  return p->token.kind == kind;
}
/* Consumes the token in hand if it is of that kind. */
bool text_accept(text_parser *p, text_token_kind kind);
/* The same; otherwise text_expected(p, wanted). */
bool text_expect(text_parser *p, text_token_kind kind, const char *wanted);
/* Reports "expected <wanted>, found …" and panics. */
void text_expected(text_parser *p, const char *wanted);
/* Reports `what` at the token and panics: for where "expected …" would say too little. */
void text_wrong(text_parser *p, const text_token *t, const char *what);
/* text_expected(), and suggests the nearest of `words`. */
void text_expected_word(text_parser *p, const char *wanted, const char *const *words, size_t n);
/* Consumes a name and returns it interned; panics and returns 0 on anything else. */
uint32_t text_expect_name(text_parser *p, const char *wanted);
/* Is the token in hand the name `word`? */
bool text_is_word(const text_parser *p, const char *word);
void text_skip_newlines(text_parser *p);

const char *text_of(const text_parser *p, const text_token *t); /* not ended by a NUL */
/* The token's length, cut for use as %.*s in a message. */
int text_shown(const text_token *t);
uint32_t text_intern(text_parser *p, const text_token *t);
/* From the first byte of `first` to the end of the token consumed last. */
loc text_span(const text_parser *p, const text_token *first);
/* text_error(p, token, "fmt", …) */
#define text_error(p, t, ...) diag_error(&(p)->m->errors, text_token_loc(t), __VA_ARGS__)

/* Counts one level of nesting; panics past the limit. Each call is paired with one of text_leave(). */
bool text_enter(text_parser *p);
void text_leave(text_parser *p);

/* Begins a statement at the token in hand; ends it. A statement must end with its line or block; after a
 * panic everything up to the next statement is skipped. */
void text_begin_statement(text_parser *p);
void text_end_statement(text_parser *p);
/* May the statement end at the token in hand? */
bool text_at_end(const text_parser *p);
/* At the end of the file, or where a fusion or host program begins? */
bool text_at_item(const text_parser *p);
/* Skips one argument up to its , or ). */
void text_skip_argument(text_parser *p);

/* ---- parser_name.c: names and poison ---- */
void text_poison(text_parser *p, uint32_t name);
/* Reports that nothing has this name, and suggests the nearest one. Once per name, and not for poison. For
 * the kind "communication" it suggests only those of the host program. */
void text_unknown_name(text_parser *p, const text_token *t, const char *kind);
/* What the name means. IR_NAME_NONE: nothing, which was reported, or poison. */
ir_name_entry text_lookup(text_parser *p, const text_token *t, const char *kind);
/* Does the entry of name `t` have this kind? If it has another one, that is reported. */
bool text_is_kind(text_parser *p, const text_token *t, ir_name_entry e, ir_name_kind kind);
/* Reports that the name is that of something else. */
void text_not_this(text_parser *p, const text_token *t, ir_name_entry e, const char *wanted);
/* " (did you mean 'x'?)" or "". */
const char *text_did_you_mean(text_parser *p, const suggestion *s);

/* ---- parser_call.c ---- */
/* `sum(x, [dims=], ...)`, in the module's memory. */
const char *text_signature(text_parser *p, const ir_op_info *info);

/* ---- habits.c: words of other systems ---- */
/* How a function or dtype of other systems is written here; NULL: it is not known. */
const char *text_habit_function(const text_parser *p, const text_token *t);
const char *text_habit_dtype(const text_parser *p, const text_token *t);
/* The argument of the operation that is meant by this word; NULL: none. */
const char *text_habit_argument(const text_parser *p, const text_token *t, const ir_op_info *info);
/* What to write for an argument that only this operation is expected to have; NULL: not known. */
const char *text_habit_of(const text_parser *p, const text_token *t, ir_opcode code);
/* Is it `torch`, `np` or the like, which other systems write before functions? */
bool text_habit_module(const text_parser *p, const text_token *t);
/* Is it the name of an operation? */
bool text_is_function(const text_parser *p, const text_token *t);

/* ---- parser_scalar.c: integer expressions and lists ---- */
/* None when it is poison or the parser panics. */
ir_scalar text_parse_scalar(text_parser *p);
/* ---- parser_extent.c ---- */
/* `extent` and a name: extent half = n / 2. Elsewhere the word is a name. */
bool text_at_named_extent(const text_parser *p);
void text_parse_named_extent(text_parser *p);
/* Removes the names of named extents. They belong to the text: the function does not keep them. */
void text_forget_extents(text_parser *p);
/* A name, an integer, a call or something in parentheses, with a minus or without. */
ir_scalar text_parse_factor(text_parser *p);
/* Does me( begin here? Then text_parse_coordinate() parses it, with the word in hand; none: it was refused. */
bool text_at_coordinate(const text_parser *p);
ir_scalar text_parse_coordinate(text_parser *p);
/* In a parameter of a host program: the symbol of the `?` just read. Is the name just read that of a
 * parameter which is not declared yet? Then text_host_extent_ahead() reads which of its extents is meant. */
ir_scalar text_host_own_extent(text_parser *p);
bool text_host_is_ahead(text_parser *p, const text_token *t);
ir_scalar text_host_extent_ahead(text_parser *p, const text_token *t);
/* After the name of a tensor or mesh: `.k` or `.x`. */
ir_scalar text_parse_extent_of(text_parser *p, const text_token *t, ir_tensor tensor);
/* x, y, z or a number, after a dot. Panics and returns false otherwise. */
bool text_parse_mesh_axis(text_parser *p, uint32_t *axis);
/* d.x, or d where the mesh has one axis. False: it panics, or has been reported. */
bool text_parse_mesh_and_axis(text_parser *p, ir_mesh *mesh, uint32_t *axis);
/* A mesh by its name, which has been consumed, and an optional axis. */
bool text_parse_mesh_size(text_parser *p, const text_token *t, ir_mesh mesh, uint32_t *axis,
                          bool *named);
/* An integer expression that is constant; `what` names it in messages. */
bool text_parse_int(text_parser *p, const char *what, int64_t *value);
/* [ … ], copied into the module; false on poison or panic. */
bool text_parse_ints(text_parser *p, const char *what, const int64_t **list, uint32_t *n);
bool text_parse_bools(text_parser *p, const char *what, const int64_t **list, uint32_t *n);
bool text_parse_scalars(text_parser *p, const char *what, const ir_scalar **list, uint32_t *n);

/* The integer in hand, which may be 2^63 only after a minus. */
bool text_parse_literal(text_parser *p, bool negative, int64_t *value);

/* ---- parser.c: types, inputs ---- */
/* f32[a, 4]; leaves the extents in p->extents and their cuts in p->cuts. IR_DTYPE_NONE when it
 * failed. */
ir_dtype text_parse_type(text_parser *p);
/* `mesh d = [4] of { … }`, with the word in hand. */
void text_parse_mesh(text_parser *p);
/* Resolves p->extents as those of a stated type into p->scalars; `?` becomes none. False: one is poison. */
bool text_resolve_stated(text_parser *p);
/* Declares an input of the type just read, or poisons its names and returns none. */
ir_tensor text_build_input(text_parser *p, const text_token *name, ir_dtype dtype);
/* Is the name taken? Reports it. To be asked before an expression is built, so that its nested names do not
 * clash as well. */
bool text_is_taken(text_parser *p, const text_token *name);

/* ---- parser_host.c ---- */
/* host NAME(…) -> (…) { … }, with the word in hand. */
void text_parse_host(text_parser *p);
/* Connects host programs with fusions that follow them in the file. */
void text_link_hosts(ir_module *m);

/* ---- parser_expr.c, parser_call.c: expressions ---- */
typedef enum text_value_kind {
  TEXT_POISON,
  TEXT_NUMBER,
  TEXT_SCALAR, /* an extent, or arithmetic on extents; not a constant */
  TEXT_TENSOR,
} text_value_kind;

typedef struct text_value {
  text_value_kind kind;
  loc at;
  ir_number number;
  ir_scalar scalar;
  ir_tensor tensor;
} text_value;

#define TEXT_POISONED ((text_value){.kind = TEXT_POISON})

text_value text_parse_expr(text_parser *p);
/* The value as an operand; none for poison. */
ir_tensor text_operand(text_parser *p, const text_value *v);
/* Builds the operation; the one built before it, which is nested in this one, gets the name `y$k`. */
text_value text_build(text_parser *p, ir_opcode code, const ir_tensor *operands, uint32_t n,
                      const ir_attr *attrs, loc at);
/* name ( …, with the name consumed and ( in hand. */
text_value text_parse_call(text_parser *p, const text_token *name);
/* Reports that the text from `first` on is a name, number or extent, where an operation is needed. */
void text_refuse_lone(text_parser *p, const text_token *first, text_value_kind kind);
/* The expression after `name =`, built and named; none when it failed. */
ir_tensor text_parse_definition(text_parser *p, const text_token *name);

/* ---- parser_schedule.c ---- */
/* { … } after the word schedule. */
void text_parse_schedule(text_parser *p);

#endif
