/* Scalars: interned integer expressions over extents, used for shapes, factors, indexes and peers.
 *
 * Every scalar is hash-consed in its module and kept in a normal form, so two scalars that simplify
 * to the same polynomial have the same handle, and equality is `a.id == b.id`. The normal form is a
 * sum of terms (coefficient times a sorted product of atoms); an atom is a symbol or a division,
 * remainder, minimum, maximum or chunk that could not be simplified away. The order of terms and atoms is
 * structural (symbols by kind and declaration), so printing does not depend on hashing.
 *
 * All values are 64-bit. Arithmetic on constants that overflows gives IR_SCALAR_OVERFLOW, which
 * every operation passes on; code that builds an extent looks for it once, at the end. So does an
 * expression that nests too deep; ir_scalar_overflow_text() tells which.
 *
 * Symbols are extents: integers >= 0. Divisors are >= 1 (checked when shapes are bound), so
 * ceildiv(n * 3, 3) is n and ceildiv(a * b, b) is a. */
#ifndef WEIR_IR_SCALAR_H
#define WEIR_IR_SCALAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "base/table.h"
#include "base/vec.h"
#include "ir/handle.h"

typedef enum ir_scalar_kind {
  IR_SCALAR_OVERFLOWED,
  IR_SCALAR_CONST,
  IR_SCALAR_SYMBOL,
  IR_SCALAR_ADD,
  IR_SCALAR_MUL,
  IR_SCALAR_FLOORDIV,
  IR_SCALAR_CEILDIV,
  IR_SCALAR_MOD,
  IR_SCALAR_MIN,
  IR_SCALAR_MAX,
  IR_SCALAR_LIST, /* a list of integers; only ever the second operand of the next two */
  IR_SCALAR_CHUNK,
  IR_SCALAR_CHUNK_START,
} ir_scalar_kind;

/* What a symbol means. Extents come from input shapes; the others are bound by host programs. */
typedef enum ir_symbol_kind {
  IR_SYMBOL_EXTENT,
  IR_SYMBOL_INDEX,
  IR_SYMBOL_RANK,
  IR_SYMBOL_STREAMS,
} ir_symbol_kind;

typedef struct ir_symbol_data {
  ir_symbol_kind kind;
  uint32_t name;    /* interned string; 0 for an anonymous extent (?) */
  uint32_t tensor;  /* the input tensor that declares it, 0 if none; RANK: the mesh */
  uint32_t dim;     /* and which of its dimensions; RANK: which mark axis of the mesh */
  int64_t capacity; /* EXTENT: the most it may be; 0: nothing is said */
  int64_t multiple; /* EXTENT: what divides it, as it is written; 0: nothing is said */
} ir_symbol_data;

typedef struct ir_scalar_node {
  ir_scalar_kind kind;
  uint32_t
      size; /* of the expression written out: shared nodes count every time; UINT32_MAX at most */
  int64_t value;  /* CONST: the value; SYMBOL, LIST: its index in the table */
  ir_scalar a, b; /* operands; ADD and MUL chains lean to the left; operands have smaller ids */
  uint16_t depth; /* of nested operations; at most IR_SCALAR_MAX_DEPTH */
  uint8_t kinds;  /* bit k: a symbol of ir_symbol_kind k occurs */
  uint8_t sign;   /* whether it can be negative, once that is known (scalar.c) */
} ir_scalar_node;

/* Larger sums and products are not put in order: correct, only less simplified. */
enum { IR_SCALAR_MAX_TERMS = 24, IR_SCALAR_MAX_DEGREE = 8 };

/* Because nodes are shared, a scalar can be exponentially larger when written out than in memory. So
 * functions recurse only up to size SMALL; in larger ones they visit each node once. Above LARGE, printing
 * gives names to parts, or leaves parts out. */
enum { IR_SCALAR_SMALL = 64, IR_SCALAR_LARGE = 256, IR_SCALAR_MAX_DEPTH = 8192 };

/* The lengths of consecutive chunks. */
typedef struct ir_chunk_list {
  const int64_t *lengths;
  uint32_t len;
  int64_t longest, total;
} ir_chunk_list;

/* Names for scalars that would be too long written out, while a program is printed (text/extents.c). */
typedef struct ir_scalar_names {
  map by_id;            /* scalar -> string */
  bool collecting;      /* large ones are noted instead of printed */
  VEC(ir_scalar) large; /* in the order in which they were met */
  ir_scalar declared;   /* what a name is being declared for */
  arena *memory;
} ir_scalar_names;

/* A remembered result of an operation on two expressions: the same pairs are asked for often. */
typedef struct ir_scalar_made {
  ir_scalar_kind kind;
  ir_scalar a, b, result;
} ir_scalar_made;

typedef struct ir_scalars {
  arena *memory;
  table index;
  VEC(ir_scalar_node) nodes;   /* by id, from 1; node 1 is the overflow */
  VEC(ir_symbol_data) symbols; /* by symbol index, from 0 */
  VEC(ir_chunk_list) lists;    /* by list index, from 0 */
  VEC(ir_scalar) made;         /* scratch of ir_scalar_substitute() */
  ir_scalar_made *memo;        /* by a hash of what is asked; NULL: nothing was */
  ir_scalar_names naming;      /* of the program that is printed */
  ir_scalar_names *names;      /* those in use; NULL: not printing a program */
  bool too_deep;               /* an expression was not built because of its depth */
} ir_scalars;

#define IR_SCALAR_OVERFLOW ((ir_scalar){1})

void ir_scalars_init(ir_scalars *s, arena *memory);

ir_scalar ir_scalar_const(ir_scalars *s, int64_t value);
/* A new symbol, different from all others. */
ir_scalar ir_scalar_symbol(ir_scalars *s, ir_symbol_data data);
ir_scalar ir_scalar_add(ir_scalars *s, ir_scalar a, ir_scalar b);
ir_scalar ir_scalar_sub(ir_scalars *s, ir_scalar a, ir_scalar b);
ir_scalar ir_scalar_mul(ir_scalars *s, ir_scalar a, ir_scalar b);
ir_scalar ir_scalar_floordiv(ir_scalars *s, ir_scalar a, ir_scalar b); /* rounds down */
ir_scalar ir_scalar_ceildiv(ir_scalars *s, ir_scalar a, ir_scalar b);  /* rounds up */
ir_scalar ir_scalar_mod(ir_scalars *s, ir_scalar a, ir_scalar b);      /* sign of the divisor */
ir_scalar ir_scalar_min(ir_scalars *s, ir_scalar a, ir_scalar b);
ir_scalar ir_scalar_max(ir_scalars *s, ir_scalar a, ir_scalar b);
/* A list of lengths >= 0 whose sum fits 64 bits; other lists give the overflow. */
ir_scalar ir_scalar_list(ir_scalars *s, const int64_t *lengths, uint32_t n);
/* The length of chunk `index` of a list, 0 past its last; and the sum of the lengths before it. */
ir_scalar ir_scalar_chunk(ir_scalars *s, ir_scalar index, ir_scalar list);
ir_scalar ir_scalar_chunk_start(ir_scalars *s, ir_scalar index, ir_scalar list);

const ir_scalar_node *ir_scalar_node_of(const ir_scalars *s, ir_scalar x);
const ir_chunk_list *ir_scalar_list_of(const ir_scalars *s, ir_scalar list);
bool ir_scalar_is_const(const ir_scalars *s, ir_scalar x, int64_t *value); /* value may be NULL */
static inline bool ir_scalar_is_overflow(ir_scalar x) { return x.id == 1; }
/* Why a scalar is IR_SCALAR_OVERFLOW, for messages: "overflows 64 bits", or that it nests too deep. */
const char *ir_scalar_overflow_text(const ir_scalars *s);
/* Does a symbol of that kind occur in x? */
static inline bool ir_scalar_has(const ir_scalars *s, ir_scalar x, ir_symbol_kind kind) {
  return ir_scalar_node_of(s, x)->kinds >> kind & 1;
}
/* Are all symbols in x extents? */
static inline bool ir_scalar_of_extents(const ir_scalars *s, ir_scalar x) {
  return (ir_scalar_node_of(s, x)->kinds & ~(1u << IR_SYMBOL_EXTENT)) == 0;
}

/* What can be said about a comparison for all values of the symbols. */
typedef enum ir_proof { IR_UNKNOWN, IR_TRUE, IR_FALSE } ir_proof;
ir_proof ir_scalar_eq(ir_scalars *s, ir_scalar a, ir_scalar b);
ir_proof ir_scalar_le(ir_scalars *s, ir_scalar a, ir_scalar b);
ir_proof ir_scalar_lt(ir_scalars *s, ir_scalar a, ir_scalar b);
/* Is `a` a multiple of `b` for all values? */
ir_proof ir_scalar_divides(ir_scalars *s, ir_scalar b, ir_scalar a);

/* Replaces symbols: with(context, index) gives the scalar for a symbol, none to keep it. */
typedef ir_scalar (*ir_substitution)(const void *context, uint32_t symbol);
ir_scalar ir_scalar_substitute(ir_scalars *s, ir_scalar x, ir_substitution with,
                               const void *context);
/* The scalar of that kind with these operands, simplified: ir_scalar_add() and so on, by kind. */
ir_scalar ir_scalar_of_kind(ir_scalars *s, ir_scalar_kind kind, ir_scalar a, ir_scalar b);
/* The kind of x with other operands, simplified. */
ir_scalar ir_scalar_with(ir_scalars *s, ir_scalar x, ir_scalar a, ir_scalar b);
/* Calls visit(context, index) for the symbols of x until it returns true; returns whether it did. A symbol
 * that occurs several times may be visited several times. */
typedef bool (*ir_symbol_visitor)(void *context, uint32_t symbol);
bool ir_scalar_any_symbol(const ir_scalars *s, ir_scalar x, ir_symbol_visitor visit, void *context);
/* Does the symbol occur in x? */
bool ir_scalar_mentions(const ir_scalars *s, ir_scalar x, uint32_t symbol);

/* The value under an assignment of the symbols. Fails (false) on overflow, a division by a number
 * < 1 or a symbol without a value (IR_UNBOUND). */
#define IR_UNBOUND INT64_MIN
bool ir_scalar_eval(const ir_scalars *s, ir_scalar x, const int64_t *symbols, uint32_t n,
                    int64_t *value);

/* Prints in the language's syntax. An anonymous symbol prints as `tensor.dim`, which parses back,
 * given the tensors' names. Scalars that have a name in s->names are printed by it. Without names, as in
 * messages, parts of scalars above IR_SCALAR_LARGE are left out: `...`. */
typedef const char *(*ir_tensor_namer)(const void *context, uint32_t tensor);
void ir_scalar_print(const ir_scalars *s, const strings *names, ir_scalar x, ir_tensor_namer namer,
                     const void *context, strbuf *out);

/* The greatest common divisor; not negative. */
int64_t ir_gcd(int64_t a, int64_t b);

#endif
