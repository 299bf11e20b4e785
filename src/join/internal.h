/* What the files of the joining pass share. */
#ifndef WEIR_JOIN_INTERNAL_H
#define WEIR_JOIN_INTERNAL_H

#include "join/join.h"

/* ---- facts.c ---- */
/* Facts about a piece of memory: a parameter or a buffer. Tensors that are slices or views of it have it as
 * their root. */
typedef struct join_buffer {
  ir_instr allocate;
  uint32_t block;  /* the number, from 1, of the block that it is allocated in; 0: a parameter */
  uint32_t writes; /* operations that write it */
  uint32_t first, last; /* the first and the last instruction that touches it, in program order */
  bool shared;          /* seen by anything but operations and views of its own block */
  bool output;
} join_buffer;

/* A tensor that a communication uses, and the name by which something waits for it. */
typedef struct join_post {
  ir_tensor tensor;
  uint32_t name;
} join_post;

typedef struct join_facts {
  ir_func *h;
  arena *scratch;
  ir_tensor *root; /* by tensor id */
  bool *turned;    /* by tensor id: a view with other elements than its root, or in another order */
  join_buffer *buffers; /* by tensor id, of roots */
  uint32_t n_blocks, n_instrs;
  uint32_t *number; /* by instruction id: its position in the program, from 1 */
  uint32_t *in;     /* by instruction id: the number of its block */
  uint32_t *
      once; /* by block number: the outermost block around it that each run of goes through it once */
  VEC(join_post) posted;
  map *names; /* of all tensors of the program */
} join_facts;

join_facts join_find_facts(ir_func *h, arena *scratch);
/* Can the buffer be removed once all operations that read it are in one kernel with the one that writes it? */
bool join_is_private(const join_facts *f, ir_tensor t);
/* Have all results no elements, whatever the extents? Then it is never executed. */
bool join_writes_nothing(const ir_func *h, const ir_op_data *op);

/* ---- spaces.c: the rule ---- */
/* The positions over which a kernel loops: those of its largest results, or of what its reductions read. */
typedef struct join_space {
  uint32_t rank;
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t kept; /* reductions reduce the dimensions from this one on; `rank`: nothing is reduced */
  bool
      ends; /* it reduces outer dimensions: only what comes last in the kernel may read the result */
  uint32_t
      outer;  /* if it `ends`: it reduces so many dimensions, the outermost; 0: others than those */
  bool moves; /* it reads elements from other positions than its own */
  bool light; /* cheap enough to be computed again for every position of a larger space */
  bool product; /* a product, with what follows it (epilogue.c) */
} join_space;

/* The space of one operation. False: the operation is always a launch of its own. */
bool join_space_of(ir_func *h, const ir_instr_data *d, join_space *space);
/* Can one kernel compute the operations of `producer`, and then those of `consumer`, which read their results?
 * `both` becomes the space of that kernel. */
bool join_spaces_fit(ir_func *h, const join_space *producer, const join_space *consumer,
                     join_space *both);

/* The same for a consumer that reads results which are known only after all rows have been reduced. */
bool join_space_follows(ir_func *h, const join_space *producer, const join_space *consumer,
                        join_space *both);
/* Can one kernel compute both, if neither reads the other's results? */
bool join_spaces_alike(ir_func *h, const join_space *a, const join_space *b, join_space *both);
/* Can one kernel compute `producer` and an operation that only moves its results? */
bool join_space_moves(ir_func *h, const join_space *producer, const join_space *moves,
                      join_space *both);
/* Is it a pad or a cat? Which operand they read, if any, depends on the position. */
bool join_is_border(ir_opcode code);
bool join_space_same(ir_func *h, const join_space *a, const join_space *b);
/* Does the tensor have an element for each position of the space? */
bool join_space_is_whole(ir_func *h, const join_space *s, ir_tensor t);
/* May a kernel of this space compute the operation of `small` again at each of its positions? */
bool join_space_absorbs(ir_func *h, const join_space *space, const join_space *small);

/* ---- groups.c ---- */
enum { JOIN_NONE = UINT32_MAX };

typedef struct join_node {
  ir_instr instr; /* a COMPUTE, or a VIEW of a private buffer */
  uint32_t at;    /* its position in the block */
  uint32_t group; /* its number in the block */
  uint32_t next;  /* of its group, in program order; JOIN_NONE: the last */
  bool careful;   /* its group needed too much memory in an earlier round */
  bool late;      /* its result is known only after all rows of the space have been reduced */
  join_space space;
} join_node;

typedef VEC(uint32_t) join_numbers;

typedef struct join_group {
  uint32_t first, last; /* nodes; the kernel is put where the last one is */
  uint32_t n_nodes;     /* 0: it became part of another */
  bool careful;         /* one of its nodes is */
  join_space space;
  join_numbers absorbed; /* nodes of other groups that it also computes, for itself */
} join_group;

typedef struct join_block {
  const join_facts *facts;
  const ir_block *block;
  join_node *nodes;
  uint32_t n_nodes;
  join_group *groups; /* by number: that of its first node */
  uint32_t *node_at;  /* by position: number of the node + 1 */
  uint32_t *run_at;   /* by position: the run it is in */
  bool *careful_at;   /* by position: of nodes that are careful */
  /* Maps, since there may be many small blocks and many tensors. */
  map writer;              /* by tensor id: number of the node that makes it + 1 */
  map sibling;             /* by tensor id: number of the last node that reads it + 1 */
  map reader_list;         /* by tensor id, of private roots: index of its list + 1 */
  map touch_list;          /* the same of all roots: who reads or writes it, views not counted */
  VEC(join_numbers) lists; /* positions of instructions that read a root */
} join_block;

/* The positions of instructions that read the root. */
const join_numbers *join_readers(const join_block *b, ir_tensor root);
void join_add_reader(join_block *b, ir_tensor root, uint32_t at);
void join_add_touch(join_block *b, ir_tensor root, uint32_t at);

enum { JOIN_MAX_NODES = 64, JOIN_MAX_OPERANDS = 48, JOIN_MAX_RESULTS = 8 };

/* Groups the operations of a block. */
void join_find_groups(join_block *b);
const ir_instr_data *join_instr(const join_block *b, uint32_t at);
/* Does the operation at that position read or write memory of `root`? */
bool join_reads(const join_block *b, uint32_t at, ir_tensor root);
bool join_writes(const join_block *b, uint32_t at, ir_tensor root);

/* Must the instruction at position `before` stay before that at `at`? */
bool join_precedes(const join_block *b, uint32_t before, uint32_t at);
/* May the operations of group g move to position `to`: past all instructions between that are neither in g nor
 * in `other`? */
bool join_may_move(const join_block *b, uint32_t g, uint32_t other, uint32_t to);
/* Does group g read what group `of` writes to memory only after it is written and before it is written again, and
 * the rest of what `of` makes only as it is made, or through views that one of the two computes? */
bool join_all_apart(const join_block *b, uint32_t of, uint32_t g);
/* Group `from` becomes a part of group `to`. */
void join_merge_lists(join_block *b, uint32_t from, uint32_t to);
/* The node that makes the operand, in the same run; JOIN_NONE: there is none. */
uint32_t join_producer_of(const join_block *b, uint32_t node, ir_tensor t);

/* ---- lives.c: when buffers are in use, with the groups as they are ---- */
/* Does it need bytes of the plan's own memory? An output and a parameter are the caller's. */
bool join_needs_memory(const join_block *b, ir_tensor root);
/* Is something computed at that position? The operations of a group are, at its last one. */
bool join_computes_at(const join_block *b, uint32_t at);
/* Is it given back, and taken again, each time this block is repeated? */
bool join_is_of_block(const join_block *b, ir_tensor root);
/* The position of this block in which the instruction with that number is. */
uint32_t join_position(const join_block *b, uint32_t number);
/* Where the operation at that position is computed. */
uint32_t join_moved_to(const join_block *b, uint32_t at);
/* Positions of the operations that read or write the root. */
const join_numbers *join_touches(const join_block *b, ir_tensor root);
/* Does everything that touches it come before position `at`? */
bool join_ends_before(const join_block *b, ir_tensor root, uint32_t at);
/* Does everything that touches it come at `at` or later? */
bool join_begins_at(const join_block *b, ir_tensor root, uint32_t at);
/* Do the groups make it, and does nothing else read it? Then it needs no memory in their kernel. Both may be the
 * same. */
bool join_is_inside(const join_block *b, ir_tensor root, uint32_t g, uint32_t other);

/* ---- sizes.c ---- */
/* A few numbers: what takes one place of the pool is not counted. */
bool join_is_small(const join_block *b, ir_tensor t);
typedef enum join_size { JOIN_LARGER, JOIN_SAME, JOIN_SMALLER } join_size;
/* Compares the bytes of x with those of y; LARGER: it may be. */
join_size join_compare_sizes(const join_block *b, ir_tensor x, ir_tensor y);

/* ---- places.c: results that can be where an operand is ---- */
/* The results of the kernel of groups g and `other` (both may be the same), at position `at`, that are put where one of its
 * operands is, which nothing needs any more. sure: extents show it; else those that may be.
 * Returns how many; JOIN_MAX_RESULTS at most. */
uint32_t join_in_place(const join_block *b, uint32_t g, uint32_t other, uint32_t at, bool sure,
                       ir_tensor *results);
/* Of the operation of a node alone, without groups: those that may be. */
uint32_t join_in_place_alone(const join_block *b, uint32_t node, ir_tensor *results);

/* ---- memory.c: the rule for memory ---- */
/* If group `a` becomes a part of group `into`, at its end `to`: is no more memory in use than before? */
bool join_keeps_memory(const join_block *b, uint32_t a, uint32_t into, uint32_t to);
/* The same if group g computes the operation of node p for itself. */
bool join_absorbs_memory(const join_block *b, uint32_t g, uint32_t p);

/* ---- careful.c: the same, with no group but those that there are now ---- */
bool join_keeps_memory_now(const join_block *b, uint32_t a, uint32_t into, uint32_t to);
bool join_absorbs_memory_now(const join_block *b, uint32_t g, uint32_t p);

/* ---- peak.c: is no more memory in use than without groups? ---- */
/* When all groups are found. Marks nodes as careful; false: there were none to mark. */
bool join_find_excess(join_block *b);

/* ---- epilogue.c: the rule for products ---- */
/* A product that may have an epilogue. */
bool join_is_product(const ir_func *h, const ir_instr_data *d);
/* Joins products with the operations after them. To be called once consumers are joined with producers. */
void join_epilogues(join_block *b);

/* ---- build.c ---- */
/* The block with a kernel for every group of two or more. */
ir_block join_rewrite(const join_block *b, bool *changed);

/* ---- dead.c ---- */
/* Removes operations whose results nothing reads, and their buffers. */
void join_remove_dead(ir_func *h, arena *scratch);

#endif
