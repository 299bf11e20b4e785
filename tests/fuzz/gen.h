/* The random program generator: from a 64-bit seed, a well-typed program over all operations and a
 * valid schedule for it.
 *
 * The generator keeps a model of its own of dtypes, shapes, broadcasting and loop domains, written
 * from the language's rules and not from the compiler's code. Some statements state the type the
 * model expects, so a program that is refused means that one of the two is wrong. The same seed and
 * options give the same program on every machine. */
#ifndef WEIR_TESTS_FUZZ_GEN_H
#define WEIR_TESTS_FUZZ_GEN_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h"

enum { GEN_MAX_RANK = 6, GEN_MAX_BINDINGS = 32 };

/* Families of operations, as bits of gen_options.families. */
typedef enum gen_family {
  GEN_POINTWISE = 1 << 0, /* set and cast included */
  GEN_REDUCE = 1 << 1,    /* sum prod amax amin */
  GEN_MOMENT = 1 << 2,    /* mean var */
  GEN_VIEW = 1 << 3,      /* broadcast squeeze expand permute transpose reshape */
  GEN_CUT = 1 << 4,       /* slice pad cat select */
  GEN_MAKE = 1 << 5,      /* full zeros ones iota uniform */
  GEN_INDEX = 1 << 6,     /* gather scatter index_select one_hot */
  GEN_MATMUL = 1 << 7,    /* matmul linear */
  GEN_MODEL = 1 << 8,     /* softmax norms sdpa */
  GEN_ORDER = 1 << 9,     /* cumsum argsort topk topk_index */
  GEN_ALL = (1 << 10) - 1,
} gen_family;

typedef struct gen_options {
  uint64_t seed;
  uint32_t max_ops;     /* at least 1 operation, at most this many */
  uint32_t families;    /* which operations */
  uint32_t dtypes;      /* which dtypes inputs may have: bits 1 << IR_F32 … */
  uint32_t max_devices; /* devices of the largest mesh; 0: no meshes */
  bool all_devices;     /* the first mesh has that many */
  int64_t max_elements; /* of any tensor */
  bool schedule;        /* write a schedule */
  bool rfactor;         /* which may contain rfactor */
  bool streams;         /* for one device: stream marks of all kinds, no meshes */
  bool devices;         /* placements on meshes of all kinds, with streams beside them */
  bool symbolic;        /* named and anonymous extents, not only constants */
  bool edges;           /* extents of 0 and 1 */
  bool large;           /* extents of dozens, hundreds or thousands, as large as tensors may be */
  bool exact_only;      /* integer-valued data and operations whose results are exact in every order
                           of evaluation: sums, products and matmuls stay within what the dtype holds */
} gen_options;

/* Everything allowed, 12 operations, 8 devices. */
gen_options gen_options_default(uint64_t seed);

/* What an input must hold. */
typedef enum gen_fill {
  GEN_FILL_NORMAL,   /* anything; tests use a normal distribution */
  GEN_FILL_INTEGER,  /* integers from -3 to 3 */
  GEN_FILL_POSITIVE, /* numbers > 0 */
  GEN_FILL_INDEX,    /* integers from 0 to index_bound - 1 */
} gen_fill;

typedef struct gen_value {
  char name[24];
  ir_dtype dtype;
  uint32_t rank;
  int64_t extents[GEN_MAX_RANK];
  gen_fill fill;       /* inputs */
  int64_t index_bound; /* GEN_FILL_INDEX */
} gen_value;

typedef struct gen_program {
  char *text;
  char bindings[GEN_MAX_BINDINGS][48]; /* "n=4", "x=2x3": all that -D needs */
  uint32_t n_bindings;
  gen_value *inputs;
  uint32_t n_inputs;
  gen_value *outputs; /* as the model expects them */
  uint32_t n_outputs;
  uint32_t n_ops;
  bool has_rfactor;
  bool has_schedule;
  bool bad_stream; /* marks a merged axis or an inner part as a stream, which is refused */
} gen_program;

gen_program *gen_create(const gen_options *options); /* aborts when memory runs out */
/* A program that gathers rows piece by piece and computes with each, in slices. */
gen_program *gen_create_gathers(uint64_t seed, bool exact);
/* A program with an operation along an axis that lies on different devices. */
gen_program *gen_create_along(uint64_t seed, bool exact);
void gen_destroy(gen_program *p); /* accepts NULL */

/* A deterministic generator of random numbers, for the tests themselves too. */
typedef struct gen_random {
  uint64_t state;
} gen_random;
uint64_t gen_next(gen_random *r);
uint32_t gen_below(gen_random *r, uint32_t n); /* n >= 1 */
bool gen_chance(gen_random *r, uint32_t percent);

#endif
