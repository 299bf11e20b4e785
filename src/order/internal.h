/* Shared by the files that order a host program. */
#ifndef WEIR_ORDER_INTERNAL_H
#define WEIR_ORDER_INTERNAL_H

#include "order/order.h"

/* ---- split.c ---- */
/* Splits the branches of the outermost block that communicate, at their waits:
 *
 *   if n % 2 == 0 {                      if n % 2 == 0 {
 *     c0 = allgather(w -> g, ...)          c0 = allgather(w -> g, ...)
 *     wait(c0)                           }
 *   } else {                       =>    if n % 2 == 0 {
 *     ...                                  wait(c0)
 *   }                                    } else {
 *                                          ...
 *                                        }
 *
 * Buffers that are in use at a cut are allocated before the first part. The `else` branch is not split: it is
 * for extents that do not divide evenly. */
typedef struct order_parts {
  ir_block block;        /* the outermost block with all branches split */
  VEC(ir_instr) part_of; /* by position in `block`: the branch that this is a part of, or none */
} order_parts;
/* Branches in `whole` are left as they are. The program itself does not change. */
order_parts order_split_branches(ir_func *h, arena *scratch, const map *whole);

/* ---- nodes.c ---- */
typedef enum order_kind {
  ORDER_NAME, /* allocates or slices: costs nothing, and comes before what uses it first */
  ORDER_WORK, /* keeps its place among the others of this kind */
  ORDER_POST, /* posts communications */
  ORDER_WAIT, /* waits for those of one post */
} order_kind;

typedef VEC(uint32_t) order_numbers;

typedef struct order_access {
  uint32_t root; /* the tensor whose memory it is */
  bool writes;
} order_access;

/* Consecutive instructions of the block that stay together. */
typedef struct order_node {
  order_kind kind;
  uint32_t first, len;
  VEC(order_access) accesses;
  order_numbers uses;      /* tensors that it mentions */
  order_numbers posted;    /* names of communications that it posts and does not wait for */
  order_numbers waited;    /* names of communications that it waits for and does not post */
  order_numbers before;    /* nodes that must come before it, because of memory or of a wait */
  order_numbers after;     /* the reverse */
  uint32_t partner;        /* of a POST its WAIT, of a WAIT its POST */
  bool ordered;            /* it posts messages, or waits and posts: it cannot be a POST */
  double work_ns, link_ns; /* estimates */
  /* The number of WORK nodes before it. */
  uint32_t place;
} order_node;

typedef struct order_graph {
  ir_func *h;
  arena *scratch;
  const ir_block *block;
  VEC(order_node) nodes; /* in program order */
  uint32_t *root;        /* by tensor id */
  uint32_t *definition; /* by tensor id: its NAME node + 1; 0: a parameter, or made inside a node */
  uint32_t n_work;
  uint32_t *work;     /* numbers of the WORK nodes */
  double small_bytes; /* memory that may always be used */
} order_graph;

/* False: the program changes streams, or waits, in a way that this pass does not handle. */
bool order_find_nodes(order_graph *g);
/* All nodes have the places of the program again. */
void order_reset(order_graph *g);
/* Is the node one elementwise operation? */
bool order_is_cheap(const order_graph *g, uint32_t node);

/* ---- estimate.c ---- */
/* Times and sizes for nominal extents: every extent that is not a number counts 1024, the running device is
 * the first of each mesh. */
typedef struct order_estimate order_estimate;
order_estimate *order_estimate_new(ir_func *h, const order_machine *machine, arena *scratch);
double order_bytes(const order_estimate *e, ir_tensor t);
/* A collective's time on the link: before its bytes, and of these. */
typedef struct order_comm {
  double fixed_ns, bytes_ns;
} order_comm;
order_comm order_comm_cost(const order_estimate *e, const ir_instr_data *d);
/* Adds up what the instruction computes, and how long its communications keep the link busy. */
void order_instr_cost(const order_estimate *e, ir_instr i, double *work_ns, double *link_ns);

/* Estimates work_ns and link_ns of all nodes. */
void order_find_costs(order_graph *g, const order_estimate *e);
/* Are all extents of the program numbers or expected ones? */
bool order_knows_extents(const ir_func *h, arena *scratch);

/* ---- timeline.c ---- */
/* How long the nodes take in this order, by their estimates. */
double order_total_ns(const order_graph *g, const order_numbers *written);

/* ---- fetch.c ---- */
/* A move of work after which fits() returns false is undone. */
typedef bool order_fits(void *context);
/* Moves work that belongs to fetches, so that each step is posted so many uses of other fetches before its own (at
 * least 1). False: there is none. */
bool order_fetch_ahead(order_graph *g, uint32_t ahead, order_fits *fits, void *context);

/* ---- fill.c ---- */
/* Changes the order of work so that there is work between posts and waits. Needs estimates of all nodes. False: nothing
 * moved. */
bool order_fill_waits(order_graph *g, order_fits *fits, void *context);

/* ---- place.c ---- */
/* Finds the order of work, and `place` of every node. `ahead`: for how many uses fetches in several steps are begun
 * before their own; 0: the work in them keeps its place. What was found before is forgotten. False: there are
 * no such fetches, and nothing was found. */
bool order_place(order_graph *g, const order_estimate *e, uint32_t ahead);

#endif
