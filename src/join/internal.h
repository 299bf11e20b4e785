/* What the files of the joining pass share. */
#ifndef WEIR_JOIN_INTERNAL_H
#define WEIR_JOIN_INTERNAL_H

#include "join/join.h"

/* ---- facts.c ---- */
/* What is known of the memory that a tensor is, by the id of its root: the parameter or buffer itself. */
typedef struct join_buffer {
  ir_instr allocate;
  uint32_t block;  /* that it is allocated in, a number from 1; 0: a parameter */
  uint32_t writes; /* operations that write it */
  bool shared;     /* seen by anything but operations and views of its own block */
} join_buffer;

typedef struct join_facts {
  ir_func *h;
  arena *scratch;
  ir_tensor *root;      /* by tensor id */
  join_buffer *buffers; /* by tensor id, of roots */
  uint32_t n_blocks;
  map *names; /* of tensors anywhere in the program */
} join_facts;

join_facts join_find_facts(ir_func *h, arena *scratch);
/* Can the buffer go if all operations that read it are in one kernel with the one that writes it? */
bool join_is_private(const join_facts *f, ir_tensor t);

/* ---- spaces.c: the rule ---- */
/* The positions that a kernel walks: those of its largest results, or of what its reductions read. */
typedef struct join_space {
  uint32_t rank;
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t kept; /* reductions reduce the dimensions from this one on; `rank`: nothing is reduced */
  bool ends; /* it reduces outer dimensions: what reads the result, if it can follow, comes last */
  uint32_t outer; /* of one that ends: it reduces just so many, the outermost; 0: others */
  bool moves;     /* it reads elements from other positions than its own */
  bool light;     /* cheap enough to be computed again for every position of a larger space */
  bool product;   /* a product, with what follows it (epilogue.c) */
} join_space;

/* The space of one operation; false: it is always a launch of its own. */
bool join_space_of(ir_func *h, const ir_instr_data *d, join_space *space);
/* Can one kernel compute what is in `producer` and then, reading its results, what is in `consumer`? The
 * space of both together. */
bool join_spaces_fit(ir_func *h, const join_space *producer, const join_space *consumer,
                     join_space *both);

/* The same if the consumer reads what is known only when all rows are added up. */
bool join_space_follows(ir_func *h, const join_space *producer, const join_space *consumer,
                        join_space *both);
/* Can one kernel compute both, neither of which reads the other's results? */
bool join_spaces_alike(ir_func *h, const join_space *a, const join_space *b, join_space *both);
/* Can one kernel compute `producer` and an operation that only moves its results? */
bool join_space_moves(ir_func *h, const join_space *producer, const join_space *moves,
                      join_space *both);
/* A pad or a cat: what is read depends on the position. */
bool join_is_border(ir_opcode code);
bool join_space_same(ir_func *h, const join_space *a, const join_space *b);
/* Is there an element of the tensor for each position? */
bool join_space_is_whole(ir_func *h, const join_space *s, ir_tensor t);
/* May a kernel of this space compute the operation of `small` at each of its positions again? */
bool join_space_absorbs(ir_func *h, const join_space *space, const join_space *small);

/* ---- groups.c ---- */
enum { JOIN_NONE = UINT32_MAX };

typedef struct join_node {
  ir_instr instr; /* a COMPUTE, or a VIEW of a private buffer */
  uint32_t at;    /* its position in the block */
  uint32_t group; /* its number in the block */
  uint32_t next;  /* of its group, in program order; JOIN_NONE: the last */
  bool late;      /* known only when all rows of the space are added up */
  join_space space;
} join_node;

typedef VEC(uint32_t) join_numbers;

typedef struct join_group {
  uint32_t first, last; /* nodes; the kernel is put where the last one is */
  uint32_t n_nodes;     /* 0: it became part of another */
  join_space space;
  join_numbers absorbed; /* nodes that it computes for itself as well */
} join_group;

typedef struct join_block {
  const join_facts *facts;
  const ir_block *block;
  join_node *nodes;
  uint32_t n_nodes;
  join_group *groups; /* by number: that of its first node */
  uint32_t *node_at;  /* by position: number of the node + 1 */
  uint32_t *run_at;   /* by position: the run it is in */
  /* Maps, since there may be many small blocks and many tensors. */
  map writer;              /* by tensor id: number of the node that makes it + 1 */
  map sibling;             /* by tensor id: number of the last node that reads it + 1 */
  map reader_list;         /* by tensor id, of private roots: index of its list + 1 */
  VEC(join_numbers) lists; /* positions of what reads a root */
} join_block;

/* The positions of what reads the root. */
const join_numbers *join_readers(const join_block *b, ir_tensor root);
void join_add_reader(join_block *b, ir_tensor root, uint32_t at);

enum { JOIN_MAX_NODES = 64, JOIN_MAX_PARAMS = 24, JOIN_MAX_RESULTS = 8 };

/* Groups the operations of a block. */
void join_find_groups(join_block *b);
const ir_instr_data *join_instr(const join_block *b, uint32_t at);
/* Does the operation at that position read or write memory of `root`? */
bool join_reads(const join_block *b, uint32_t at, ir_tensor root);
bool join_writes(const join_block *b, uint32_t at, ir_tensor root);

/* Must what is at position `before` come before what is at `at`? */
bool join_precedes(const join_block *b, uint32_t before, uint32_t at);
/* May the operations of group g come after what is between its last one and position `to`, and is neither in
 * g nor in `other`? */
bool join_may_move(const join_block *b, uint32_t g, uint32_t other, uint32_t to);
/* Is what group `of` leaves in memory read by group g only after it is written, and as it was? */
bool join_all_apart(const join_block *b, uint32_t of, uint32_t g);
/* Group `from` becomes a part of group `to`. */
void join_merge_lists(join_block *b, uint32_t from, uint32_t to);
/* The node that makes the operand, in the same run; JOIN_NONE: there is none. */
uint32_t join_producer_of(const join_block *b, uint32_t node, ir_tensor t);

/* ---- memory.c: the rule for memory ---- */
/* Does no more memory stay in use if group `a` goes to position `to`, the end of group `into`, as a
 * part of it? */
bool join_keeps_memory(const join_block *b, uint32_t a, uint32_t into, uint32_t to);
/* The same if group g computes the operation of node p for itself. */
bool join_absorbs_memory(const join_block *b, uint32_t g, uint32_t p);

/* ---- epilogue.c: the rule for products ---- */
/* A product that may have an epilogue. */
bool join_is_product(const ir_func *h, const ir_instr_data *d);
/* Products take what follows them, once consumers are joined with their producers. */
void join_epilogues(join_block *b);

/* ---- build.c ---- */
/* The block with a kernel for every group of two or more. */
ir_block join_rewrite(const join_block *b, bool *changed);

/* ---- dead.c ---- */
/* Takes out operations that write what nothing reads, and their buffers. */
void join_remove_dead(ir_func *h, arena *scratch);

#endif
