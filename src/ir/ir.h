/* The IR: modules, functions, tensors, operations, schedule statements.
 *
 * A module owns everything in one arena. A function (a fusion or a host program) holds dense tables of axes,
 * transforms, meshes, tensors and operations, addressed by handles; slot 0 of each table is unused.
 *
 * A fusion has two views:
 *   - the definition: `inputs`, `order` (operations in program order), `outputs`. It says what is
 *     computed and is never changed by scheduling. The reference evaluator runs it.
 *   - the schedule: `statements`, as written. schedule_apply() derives from both the scheduled view:
 *     each tensor's `now` domains, marks, mesh and memory, and `scheduled`, the operations after
 *     rfactor. It can be thrown away and derived again at any time, so text needs to carry only the
 *     definition and the statements, and everything prints and parses back exactly.
 *
 * Derived objects are appended after the defined ones (`n_defined`), so dropping the scheduled view
 * is a truncation. */
#ifndef WEIR_IR_IR_H
#define WEIR_IR_IR_H

#include "base/diag.h"
#include "base/table.h"
#include "base/vec.h"
#include "ir/axis.h"
#include "ir/dtype.h"
#include "ir/handle.h"
#include "ir/mesh.h"
#include "ir/op.h"
#include "ir/scalar.h"
#include "ir/why.h"

enum { IR_MAX_RANK = 16 }; /* axes of a tensor, reductions included */

typedef enum ir_memory { IR_MEMORY_GLOBAL, IR_MEMORY_SYMMETRIC } ir_memory;

typedef enum ir_tensor_kind {
  IR_TENSOR_INPUT,
  IR_TENSOR_RESULT,
  IR_TENSOR_CONST, /* a number in an expression: rank 0, weakly typed, without a name */
} ir_tensor_kind;

typedef struct ir_tensor_data {
  ir_tensor_kind kind;
  uint32_t name; /* interned; 0 for CONST */
  loc at;
  ir_dtype dtype; /* CONST: f32, i64 or bool as written; see `weak` */
  ir_op def;      /* RESULT: the defining operation of the definition */
  ir_domains defined;

  ir_number number; /* CONST */
  ir_scalar value;  /* CONST that is an extent: the expression; else none */

  /* A type written at the definition, printed back. Extents of `?` are none. */
  bool stated;
  const ir_scalar *stated_extents;

  /* The scheduled view. */
  ir_op scheduled_def;
  ir_domains now;
  ir_mesh mesh;      /* none: not placed */
  bool placed;       /* by the user's `on` */
  uint32_t mesh_why; /* why it is on that mesh */
  ir_memory memory;
  bool shrinks; /* along a streamed dimension its buffer may have one slice only */
} ir_tensor_data;

typedef struct ir_op_data {
  ir_opcode code;
  loc at;
  const ir_tensor *operands; /* one per tensor param; none where left out */
  uint32_t n_operands;
  const ir_attr *attrs; /* one per attribute param, in the table's order */
  ir_tensor result;
  uint32_t n_more; /* further results, in the order of the op's table row */
  const ir_tensor *more;
  uint32_t why; /* of an operation that lowering inserted; 0: of the definition */
} ir_op_data;

static inline uint32_t ir_op_n_results(const ir_op_data *o) { return 1 + o->n_more; }
static inline ir_tensor ir_op_result(const ir_op_data *o, uint32_t k) {
  return k == 0 ? o->result : o->more[k - 1];
}

/* A condition on extents; checked when they are bound. */
typedef enum ir_constraint_kind {
  IR_REQUIRE_EQ,      /* a == b */
  IR_REQUIRE_LE,      /* a <= b */
  IR_REQUIRE_DIVIDES, /* a divides b */
} ir_constraint_kind;

typedef struct ir_constraint {
  ir_constraint_kind kind;
  ir_scalar a, b;
  loc at;
  const char *what; /* "extents of add", for the message */
  ir_op op;         /* of the definition that asserts it; none: a statement, or a stated type */
} ir_constraint;

/* ---- schedule statements, as written ---- */
typedef enum ir_stmt_kind {
  IR_STMT_ON,
  IR_STMT_SPLIT,
  IR_STMT_OUTER_SPLIT,
  IR_STMT_CHUNK_SPLIT, /* outer_split(axis, [c0, c1, …]) */
  IR_STMT_MERGE,
  IR_STMT_REORDER,
  IR_STMT_SWIZZLE,
  IR_STMT_RFACTOR,
  IR_STMT_MARK, /* T[axis] = … */
  IR_STMT_MEMORY,
  IR_STMT_ALLOCATE,
  IR_STMT_ALLOCATE_AS_LOOP,
  IR_STMT_CONTIGUITY,
  IR_STMT_SHRINK,
} ir_stmt_kind;

typedef struct ir_target {
  uint32_t name; /* interned; resolved when the schedule is applied */
  loc at;
} ir_target;

typedef struct ir_stmt {
  ir_stmt_kind kind;
  loc at;
  const ir_target *targets; /* ON: one or more; others: one */
  uint32_t n_targets;
  ir_mesh mesh; /* ON; or the mesh named as a factor (SPLIT, OUTER_SPLIT) */
  bool factor_is_mesh;
  uint32_t mesh_axis;   /* of a mesh factor, and of SWIZZLE */
  bool mesh_axis_named; /* the factor was written g.x, not g */
  int64_t axis;         /* SPLIT … MERGE, SWIZZLE, MARK: as written, may be negative */
  ir_scalar factor;
  ir_mark mark;
  ir_memory memory;
  const int64_t *list; /* REORDER: from, to pairs; RFACTOR: axes; ALLOCATE: order; CHUNK_SPLIT:
                          lengths; CONTIGUITY: 0 or 1 */
  uint32_t n_list;
  ir_target result; /* RFACTOR: the name of the new tensor */
  uint32_t why;     /* 0: the user wrote it */
} ir_stmt;

/* A tensor of the fusion as written that a pass removed: it is not computed any more. */
typedef struct ir_removed {
  uint32_t name;
  ir_rule rule;
  uint32_t instead; /* the name of the tensor that the rule's sentence mentions; 0: none */
} ir_removed;

typedef enum ir_func_kind { IR_FUNC_FUSION, IR_FUNC_HOST } ir_func_kind;

typedef struct ir_module ir_module;
typedef struct ir_host ir_host; /* ir/host.h */

/* Lengths of the tables when the definition ended. */
typedef struct ir_counts {
  uint32_t axes, transforms, tensors, ops, constraints;
} ir_counts;

typedef struct ir_func {
  ir_module *module;
  ir_func_kind kind;
  uint32_t name;
  loc at;

  VEC(ir_axis_data) axes;
  VEC(ir_transform_data) transforms;
  VEC(ir_mesh_data) meshes;
  VEC(ir_tensor_data) tensors;
  VEC(ir_op_data) ops;

  VEC(ir_tensor) inputs;
  VEC(ir_op) order;
  VEC(ir_tensor) outputs;
  VEC(ir_constraint) constraints;
  VEC(ir_stmt) statements;
  VEC(ir_why) whys; /* from 1; of the scheduled view */
  VEC(ir_removed) removed;
  const ir_stmt *spread; /* the statements that propagation added */
  uint32_t n_spread;
  /* How propagation settles conflicts (shard/choose.c); NULL: not decided. */
  const struct shard_choice *choice;

  bool applied; /* the scheduled view is up to date */
  VEC(ir_op) scheduled;
  ir_counts n_defined; /* valid while `applied` */

  ir_host *host; /* IR_FUNC_HOST: the instructions */

  map names;   /* interned name -> ir_name_entry packed by ir_func_declare */
  map learned; /* symbol index -> scalar it was asserted equal to; for proofs only */
  map numbers; /* constants already built */
} ir_func;

struct ir_module {
  arena memory;
  strings names;
  ir_scalars scalars;
  source src;
  diags errors;
  VEC(ir_func *) funcs;
  /* By symbol: the value that it will probably have; IR_UNBOUND where nothing is known. Only choices among
   * programs that are right for all values may depend on it. */
  VEC(int64_t) expected;
  /* Choices that were made, newest first: other variants of a program look them up. */
  const struct shard_choice *choices;
};

void ir_module_init(ir_module *m, const allocator *memory);
void ir_module_destroy(ir_module *m); /* accepts a zeroed module */
/* The function called `name`; the host program if a fusion has one of the same name. NULL: none. */
ir_func *ir_module_find(const ir_module *m, const char *name);
/* The value of x for the expected extents; false: for some of its symbols none is expected. */
bool ir_module_expects(const ir_module *m, ir_scalar x, int64_t *value);
/* Values of symbols for ir_scalar_eval(), to compare costs: what is expected, or IR_USUAL_EXTENT. */
enum { IR_USUAL_EXTENT = 1024 };
int64_t *ir_module_usual(const ir_module *m, arena *memory);
/* Tables by tensor id: how often it is read, as an operand or output, and one operation that reads it
 * (none: it is only an output, or unused). The operations that read tensor t are readers[from[t]] to below
 * readers[from[t + 1]], in program order; one that reads it twice is there twice. */
typedef struct ir_reads {
  uint32_t *n;
  ir_op *reader;
  uint32_t *from;
  ir_op *readers;
} ir_reads;
/* Without the lists, `from` and `readers`; with them. */
ir_reads ir_func_reads(const ir_func *f, arena *memory);
ir_reads ir_func_readers(const ir_func *f, arena *memory);

/* The number of elements of t for these values of symbols (ir_module_usual()). */
double ir_tensor_elements(const ir_func *f, ir_tensor t, const int64_t *values);

/* Is it a linear with a bias? */
bool ir_op_has_bias(const ir_op_data *op);
/* Is it a sum or a difference of two tensors? */
bool ir_op_adds(const ir_op_data *op);
/* Is the result linear in operand k if the others stay the same: does a sum of operands give the sum of the
 * results? */
bool ir_op_is_linear(const ir_op_data *op, uint32_t k);

/* ---- reading ---- */
static inline ir_axis_data *ir_axis_at(const ir_func *f, ir_axis a) { return &f->axes.data[a.id]; }
static inline ir_transform_data *ir_transform_at(const ir_func *f, ir_transform t) {
  return &f->transforms.data[t.id];
}
static inline ir_mesh_data *ir_mesh_at(const ir_func *f, ir_mesh m) {
  return &f->meshes.data[m.id];
}
static inline ir_tensor_data *ir_tensor_at(const ir_func *f, ir_tensor t) {
  return &f->tensors.data[t.id];
}
static inline ir_op_data *ir_op_at(const ir_func *f, ir_op o) { return &f->ops.data[o.id]; }
static inline const char *ir_name_text(const ir_func *f, uint32_t name) {
  return strings_text(&f->module->names, name);
}
static inline const char *ir_tensor_name(const ir_func *f, ir_tensor t) {
  return ir_name_text(f, ir_tensor_at(f, t)->name);
}

bool ir_func_returns(const ir_func *f, ir_tensor t);
/* The attribute called `name`; it must be in the op's table row. */
const ir_attr *ir_op_attr(const ir_op_data *o, const char *name);
/* Is the attribute left out, or given its default? Both mean the same operation, and print alike. */
bool ir_attr_is_default(const ir_param *p, const ir_attr *a);
/* The operand of the tensor param called `name`; none when left out. */
ir_tensor ir_op_operand(const ir_op_data *o, const char *name);

/* Logical axes that have memory (no reductions), in order; writes at most IR_MAX_RANK of them. */
uint32_t ir_tensor_dims(const ir_func *f, ir_tensor t, ir_axis dims[IR_MAX_RANK]);
/* The same for any list of axes. */
uint32_t ir_axes_dims(const ir_func *f, ir_axes axes, ir_axis dims[IR_MAX_RANK]);
/* Does one of the axes have a stream mark? */
bool ir_axes_streamed(const ir_func *f, ir_axes axes);
/* How many elements the axis counts: its expanded size if expanded, else its extent. */
ir_scalar ir_axis_size(const ir_func *f, ir_axis a);

/* ---- names: tensors, extents and meshes share one space ---- */
typedef enum ir_name_kind {
  IR_NAME_NONE,
  IR_NAME_TENSOR,
  IR_NAME_EXTENT,
  IR_NAME_MESH
} ir_name_kind;
typedef struct ir_name_entry {
  ir_name_kind kind;
  uint32_t id; /* ir_tensor, ir_scalar or ir_mesh */
} ir_name_entry;
ir_name_entry ir_func_lookup(const ir_func *f, uint32_t name);
/* The name base$k. */
uint32_t ir_name_numbered(ir_module *m, const char *base, uint32_t k);
/* base$1, base$2, …: the first that names nothing in the function. */
uint32_t ir_func_fresh_name(const ir_func *f, uint32_t base);
/* Is the symbol an extent of this function with a capacity (`extent s <= 8192`)? */
bool ir_func_has_capacity(const ir_func *f, uint32_t symbol);
/* Is the symbol an extent of this function that is declared to be a multiple of a number? */
bool ir_func_has_multiple(const ir_func *f, uint32_t symbol);
void ir_func_declare(ir_func *f, uint32_t name, ir_name_entry entry);
void ir_func_undeclare(ir_func *f, uint32_t name);

/* Equality for all values, using what operations assert (two symbols that met in an op). */
ir_proof ir_func_equal(ir_func *f, ir_scalar a, ir_scalar b);
/* Does d divide x for all values? */
ir_proof ir_func_divides(ir_func *f, ir_scalar d, ir_scalar x);
/* Notes, for proofs, that a == b was asserted; that x was asserted to be a multiple of d. */
void ir_func_learn(ir_func *f, ir_scalar a, ir_scalar b);
void ir_func_learn_multiple(ir_func *f, ir_scalar d, ir_scalar x);
/* x with symbols replaced by what they were asserted to equal; for proofs only. */
ir_scalar ir_func_resolve(ir_func *f, ir_scalar x);

/* Adds a reason and returns its number. */
uint32_t ir_why_add(ir_func *f, ir_why why);
static inline const ir_why *ir_why_at(const ir_func *f, uint32_t why) { return &f->whys.data[why]; }

void ir_print_scalar(const ir_func *f, ir_scalar x, strbuf *out);
const char *ir_scalar_text(ir_func *f, ir_scalar x); /* in the module's arena; for messages */
/* "f32[a, 4]" of the definition; for messages and printing. */
const char *ir_type_text(ir_func *f, ir_tensor t);

#endif
