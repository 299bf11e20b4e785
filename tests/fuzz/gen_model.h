/* The generator's own model of a program: what gen.c, gen_ops.c and gen_schedule.c share. */
#ifndef WEIR_TESTS_FUZZ_GEN_MODEL_H
#define WEIR_TESTS_FUZZ_GEN_MODEL_H

#include <stddef.h>

#include "gen.h"
#include "ir/op.h"

enum {
  MODEL_TENSORS = 128,
  MODEL_TEXT = 1024, /* longest expression */
  MODEL_AXES = 16,
  MODEL_SYMBOLS = 4,
  MODEL_MESHES = 3,
  MODEL_OPERANDS = 4,
};

typedef struct model_dim {
  int64_t size;
  char text[40]; /* the extent as the language writes it; "": the model has no text for it */
  bool one;      /* broadcasts: a literal 1, a kept or a broadcast axis */
} model_dim;

typedef enum model_axis_kind { AXIS_ITERATION, AXIS_REDUCTION, AXIS_BROADCAST } model_axis_kind;

typedef struct model_axis {
  model_axis_kind kind;
  int64_t size;
  bool marked;
  bool whole; /* not a logical axis nor the outer part of one: its slices are no ranges */
  bool never; /* merged, or the inner part of a split: no schedule makes it a stream */
  bool loose; /* merged, or inside an axis that is not placed: nor what comes of it */
} model_axis;

typedef struct model_tensor {
  char name[24];         /* "" while it is a nested expression */
  char text[MODEL_TEXT]; /* the expression that defines it */
  ir_opcode op;          /* IR_OP_NONE: an input */
  ir_dtype dtype;
  uint32_t rank;
  model_dim dims[GEN_MAX_RANK];
  model_axis axes[MODEL_AXES]; /* the loop domain */
  uint32_t n_axes;
  bool biased;     /* a linear that adds a bias */
  bool adds;       /* a scatter that adds */
  double bound;    /* largest |value| when all values are integers; INFINITY: unknown */
  bool too_long;   /* the expression did not fit */
  bool nested;     /* has no statement yet; may be used once, inside another expression */
  uint32_t picked; /* serial of the operation that last picked it */
  uint32_t nested_operands[MODEL_OPERANDS], n_nested;
  bool anonymous; /* an input with a `?` extent */
  gen_fill fill;
  int64_t index_bound;

  /* The schedule so far. */
  int mesh;              /* index of its mesh, -1: none */
  uint32_t used[2];      /* bits: mesh axes taken, by reductions and by others */
  uint32_t n_allocated;  /* dimensions of its allocation domain */
  bool factored, uneven; /* made by or cut by rfactor; has a contiguity statement */
  bool further;          /* not the first result of its operation */
} model_tensor;

typedef struct model_mesh {
  char name[8];
  uint32_t rank;
  int64_t shape[3]; /* outermost first; the last one is mesh.x */
} model_mesh;

typedef struct text_buffer {
  char *data;
  size_t len, cap;
} text_buffer;

typedef struct model {
  gen_options options;
  gen_random random;
  model_tensor tensors[MODEL_TENSORS];
  uint32_t n_tensors;
  model_tensor draft;                /* the operation being made */
  model_tensor more[IR_MAX_RESULTS]; /* the further results it has, if they are named */
  uint32_t n_more;
  model_dim symbols[MODEL_SYMBOLS];
  bool declared[MODEL_SYMBOLS]; /* is an extent of an input */
  uint32_t n_symbols;
  model_mesh meshes[MODEL_MESHES];
  uint32_t n_meshes;
  uint32_t serial; /* counts attempts to make an operation */
  uint32_t n_ops, n_inputs, n_names;
  uint32_t n_factored; /* by schedules on devices */
  bool has_rfactor, bad_stream;
  text_buffer head, body, tail; /* meshes and inputs; statements; schedule */
} model;

/* ---- random choices ---- */
static inline uint32_t below(model *m, uint32_t n) { return gen_below(&m->random, n); }
static inline bool chance(model *m, uint32_t percent) { return gen_chance(&m->random, percent); }

/* ---- text ---- */
void buffer_printf(text_buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends to the expression of `t`. */
void expr_printf(model_tensor *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- dims ---- */
model_dim dim_const(int64_t size);
model_dim dim_one(void);
/* A size without a text. */
model_dim dim_unknown(int64_t size);
/* A size with the text of an expression; without one if it would be too long. */
model_dim dim_expr(int64_t size, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
model_dim dim_random(model *m);
bool dim_is_const(const model_dim *d);
/* May the two meet in one operation? *result is what comes out. */
bool dim_meet(const model_dim *a, const model_dim *b, model_dim *result);
int64_t dims_count(const model_dim *dims, uint32_t rank);

/* ---- dtypes ---- */
ir_dtype dtype_random(model *m);
ir_dtype dtype_random_float(model *m);
ir_dtype dtype_meet(ir_dtype a, ir_dtype b);
/* The largest integer n such that all of 0 … n are exact. */
double dtype_exact(ir_dtype t);
/* The largest magnitude of an integer dtype; INFINITY for floats. */
double dtype_largest(ir_dtype t);

/* ---- tensors ---- */
typedef bool (*model_wants)(const model_tensor *t);
bool wants_any(const model_tensor *t);
bool wants_number(const model_tensor *t);
bool wants_float(const model_tensor *t);
bool wants_bits(const model_tensor *t);
bool wants_bool(const model_tensor *t);

/* The draft, emptied; model_commit() adds it to the program. */
model_tensor *model_begin(model *m, ir_opcode op);
/* The next further result of the draft: with its dimensions, until they are changed. */
model_tensor *model_more(model *m, ir_dtype dtype, double bound);
/* False, and nothing happened, if the result is larger or less exact than the options allow. */
bool model_commit(model *m, model_tensor *t);

/* How far the program has come; model_reset() drops the inputs made since. */
typedef struct model_mark {
  uint32_t n_tensors, n_inputs;
  size_t head;
  bool declared[MODEL_SYMBOLS];
} model_mark;
model_mark model_mark_now(const model *m);
void model_reset(model *m, const model_mark *mark);

/* Index of a new input. */
uint32_t model_input(model *m, ir_dtype dtype, const model_dim *dims, uint32_t rank);
/* A random tensor that `wants` accepts, with a rank in the range; a new input if there is none. */
uint32_t model_pick(model *m, model_wants wants, uint32_t min_rank, uint32_t max_rank);
/* One that meets `like` by broadcasting. */
uint32_t model_pick_meeting(model *m, model_wants wants, const model_tensor *like);
/* Appends operand `i` to the expression of `t`; a nested tensor is used up by that. */
void model_use(model *m, model_tensor *t, uint32_t i);

/* Broadcasts the dims of `x` into those of `t`; false if they do not meet. */
bool model_meet(model_tensor *t, const model_tensor *x);
/* "2" or "-1": an axis counted from either end. */
const char *axis_text(model *m, uint32_t axis, uint32_t rank, char out[8]);

void axes_from_dims(model_tensor *t);
void axes_add(model_tensor *t, model_axis_kind kind, int64_t size);

/* ---- the parts ---- */
/* Tries to add an operation; false when this try did not work out. */
bool ops_make(model *m, ir_opcode op);
gen_family ops_family(ir_opcode op);

/* Each writes operation t->op into the draft `t`; false when this try did not work out. */
bool make_broadcast(model *m, model_tensor *t);
bool make_squeeze(model *m, model_tensor *t);
bool make_expand(model *m, model_tensor *t);
bool make_permute(model *m, model_tensor *t);
bool make_reshape(model *m, model_tensor *t);
bool make_slice(model *m, model_tensor *t);
bool make_pad(model *m, model_tensor *t);
bool make_cat(model *m, model_tensor *t);
bool make_select(model *m, model_tensor *t);
bool make_indexed(model *m, model_tensor *t);
bool make_one_hot(model *m, model_tensor *t);
bool make_group_index(model *m, model_tensor *t);
bool make_grouped_matmul(model *m, model_tensor *t);
bool make_grouped_outer(model *m, model_tensor *t);
bool make_ordered(model *m, model_tensor *t);
bool make_matmul(model *m, model_tensor *t);
bool make_linear(model *m, model_tensor *t);
bool make_softmax(model *m, model_tensor *t);
bool make_norm(model *m, model_tensor *t);
bool make_sdpa(model *m, model_tensor *t);
bool make_sdpa_backward(model *m, model_tensor *t);

void schedule_meshes(model *m);
void schedule_write(model *m);
void schedule_streams(model *m);
void schedule_device_meshes(model *m);
void schedule_devices(model *m);

/* " of {3, 0}": `count` of the devices 0 to below n, of which there are at most 64. */
void write_devices(model *m, int64_t n, int64_t count);
/* Statements that the files of schedules share. Size along mesh.x (k = 0), mesh.y (k = 1), …; the axis
 * at `at` becomes two parts; marks; an inner or outer split by a number. */
int64_t model_mesh_size(const model_mesh *mesh, uint32_t k);
void model_parts(model_tensor *t, uint32_t at, int64_t outer, int64_t inner);
void write_mark_mesh(model *m, model_tensor *t, uint32_t at, uint32_t k);
void write_mark_stream(model *m, model_tensor *t, uint32_t at);
void write_split(model *m, model_tensor *t, uint32_t at, bool outer, int64_t factor);

#endif
