/* Plans: a host program bound to shapes, flat, with everything resolved.
 *
 * Slices are (buffer, offset, extents, strides), streams are numbers, buffers have their place in one
 * pool. Long loops with equal iterations are kept (rt_loop); all others are unrolled. Running a plan does no
 * allocation, hashing, string work or locking of its own. Checking, tracing and simulation all read it.
 *
 * Stream 0 is the stream the program is called on; worker stream k is number k + 1.
 *
 * Happens-before in a plan: instructions of one stream run in order; an RT_WAIT of stream s on stream
 * t orders everything put on t before the RT_WAIT (in plan order) before everything put on s after it.
 * A communication begins after everything before its RT_POST on that stream, and runs concurrently with the
 * stream. Everything after an RT_JOIN for it, on any stream, comes after its end. There is no other
 * order. */
#ifndef WEIR_RUNTIME_PLAN_H
#define WEIR_RUNTIME_PLAN_H

#include "base/memory.h"
#include "ir/array.h"
#include "ir/bind.h"
#include "ir/host.h"
#include "runtime/comm.h"

/* A strided view of a buffer. Strides are in elements; offset in bytes from the buffer's start.
 *
 * Lists of `rank` numbers (here and in tasks) belong to the plan. In a bound plan equal lists are stored once:
 * the many slices of a loop share theirs. */
typedef struct rt_view {
  uint32_t buffer;
  ir_dtype dtype;
  uint32_t rank;
  bool known; /* for the checker: the bytes are known to be written before they are read here */
  int64_t offset_bytes;
  int64_t step_bytes; /* in a loop: added to the offset with each repetition */
  const int64_t *extents, *strides;
} rt_view;

bool rt_view_is_empty(const rt_view *v);
/* A power of two that divides these bits divides the offset in every repetition. */
static inline int64_t rt_view_offset_bits(const rt_view *v) {
  return v->offset_bytes | v->step_bytes;
}
/* Do elements of a view share bytes (as with a stride of 0)? In a view that is written none may. MAY: finding
 * out would take too long. */
typedef enum rt_overlap { RT_APART, RT_OVERLAP, RT_MAY_OVERLAP } rt_overlap;
rt_overlap rt_view_overlap(const rt_view *v);
/* Do two views of one buffer share a byte? Also true where finding out would take too long. */
bool rt_views_meet(const rt_view *a, const rt_view *b);

typedef enum rt_buffer_kind {
  RT_BUFFER_INPUT,  /* memory of the caller: slot `slot` of the run's inputs */
  RT_BUFFER_OUTPUT, /* memory of the caller: slot `slot` of the run's outputs */
  RT_BUFFER_POOL,   /* `offset_bytes` into the plan's own memory */
} rt_buffer_kind;

typedef struct rt_buffer {
  rt_buffer_kind kind;
  uint32_t slot;
  int64_t offset_bytes, size_bytes;
  uint32_t allocated_at, freed_at; /* instruction numbers; freed_at UINT32_MAX: never */
  bool updated;                    /* an input whose memory an output takes (rt_plan_donate) */
  const char *name;                /* of the host tensor */
} rt_buffer;

/* An attribute with its scalars evaluated. */
typedef struct rt_attr {
  bool given;
  bool is_float; /* NUMBER: f holds it, else i */
  int64_t i;     /* INT, BOOL, DTYPE, CHOICE, SCALAR, NUMBER */
  double f;
  uint32_t len;
  const int64_t *list; /* INTS, BOOLS, SCALARS */
} rt_attr;

enum { RT_MAX_OPERANDS = 64 };

typedef enum rt_operand_kind {
  RT_OPERAND_NONE,
  RT_OPERAND_VIEW,
  RT_OPERAND_NUMBER
} rt_operand_kind;

typedef struct rt_operand {
  rt_operand_kind kind;
  uint32_t view;           /* VIEW: in plan->views */
  uint32_t sliced;         /* bit d: already cut along result dimension d (see ir_instr_data) */
  const ir_number *number; /* NUMBER */
} rt_operand;

/* ---- bodies: several operations in one launch ----
 *
 * A body is a list of steps in program order. Step i computes one operation from the parameters of the
 * body (the operands of its task), numbers, and results of earlier steps. Results of steps have no memory
 * that anything else can see; each is rounded to its dtype, as if it had a buffer. What a task writes are
 * the values in `results`, one for each of its result views.
 *
 * The iterations of a loop share one rt_body while their bodies are equal. */
enum { RT_MAX_RESULTS = 16 };

typedef enum rt_value_kind {
  RT_VALUE_NONE,  /* an operand that was left out */
  RT_VALUE_PARAM, /* operand `index` of the task */
  RT_VALUE_STEP,  /* result `result` of step `index` */
  RT_VALUE_NUMBER,
} rt_value_kind;

typedef struct rt_value {
  rt_value_kind kind;
  uint32_t index;
  uint32_t result;
  uint32_t sliced; /* of an operand of a step, as in rt_operand */
  const ir_number *number;
} rt_value;

typedef struct rt_shape {
  ir_dtype dtype;
  uint32_t rank;
  const int64_t *extents;
} rt_shape;

bool rt_extents_same(uint32_t a_rank, const int64_t *a, uint32_t b_rank, const int64_t *b);

/* One operation. Everything has the meaning it has in rt_task. */
typedef struct rt_step {
  ir_opcode code;
  ir_dtype compute;
  uint32_t n_operands;
  const rt_value *operands;
  const rt_attr *attrs;
  uint32_t n_results;
  const rt_shape *results; /* of what is computed here: the window, where there is one */
  const int64_t *offset, *whole;
} rt_step;

typedef struct rt_body {
  uint32_t n_params, n_steps, n_results;
  const rt_shape *params; /* the dtypes and extents of the task's operands */
  const rt_step *steps;
  const rt_value *results; /* PARAM or STEP */
} rt_body;

bool rt_attr_equal(const rt_attr *a, const rt_attr *b);
/* Do they compute the same? They may belong to different plans. Equal bodies have equal hashes. */
bool rt_body_equal(const rt_body *a, const rt_body *b);
uint64_t rt_body_hash(const rt_body *body);
/* A copy in `memory`, which shares attributes, numbers and lists of extents with the original. */
const rt_body *rt_body_copy(const rt_body *body, arena *memory);
/* May a result be written to the memory of the parameter, element by element? Yes if every step that depends
 * on the parameter computes each element from those at the same place, or reduces the first dimensions and
 * no result of the parameter's shape needs that. For very long bodies the answer is no. */
bool rt_body_in_place(const rt_body *body, uint32_t param);

/* Can the body be computed in one sweep over all positions? Yes if all results have one shape and each element
 * depends on elements of the parameters at its own place, apart from sums of columns and what depends on them. A
 * result may then be in the memory of a parameter. */
bool rt_body_is_sweep(const rt_body *body);

/* The dtype and extents of a value that is a parameter or a result of a step. */
const rt_shape *rt_value_shape(const rt_body *body, const rt_value *v);

/* One launch: runs `code`, or the body if there is one, on the operands and writes the result views. */
typedef struct rt_task {
  ir_opcode code;  /* NONE: it has a body */
  uint32_t result; /* view */
  uint32_t n_more; /* further results */
  const uint32_t *more;
  uint32_t n_operands;
  ir_dtype compute;           /* POINTWISE: the dtype computed in */
  const rt_operand *operands; /* if there is a body, all are views */
  const rt_attr *attrs;       /* one per attribute param of the op, in table order */
  /* If the result is a window of the operation's whole result: where it begins, per dimension, and the
   * extents of the whole. Both NULL: it is the whole result. */
  const int64_t *offset, *whole;
  const rt_body *body; /* NULL: a single operation */
} rt_task;

/* The name of its operation, or "kernel". */
const char *rt_task_name(const rt_task *t);
typedef char rt_label[64];
/* A label for people. For a body the operations in it, "matmul+gelu", as many as fit; operations that only move
 * or convert elements are left out if there are others. */
const char *rt_task_label(const rt_task *t, rt_label to);
static inline uint32_t rt_task_n_results(const rt_task *t) { return 1 + t->n_more; }
static inline uint32_t rt_task_result(const rt_task *t, uint32_t k) {
  return k == 0 ? t->result : t->more[k - 1];
}

/* One communication, as one rank posts it; see rt_comm_request. */
typedef struct rt_post {
  ir_comm_kind kind;
  ir_combine op;
  ir_dtype dtype;
  const uint32_t *team; /* device ids */
  uint32_t n_team, me, root;
  int32_t to, from;
  int64_t count, count_from; /* elements per piece */
  uint32_t in, out;          /* views, dense; RT_NO_VIEW: none */
  /* If ranks are alike and another rank is the root: the view + 1 that this rank would read or write if it were the
   * root (rt_post_at_root). 0: none. */
  uint32_t root_view;
  uint32_t rank; /* the rank that posts it */
  /* The post of this rank that must come first, whatever the streams do: posts of one team are matched by
   * their order. RT_NO_POST: none. */
  uint32_t before;
  bool joined; /* some RT_JOIN waits for it */
  bool merged; /* for the checker: its views cover several repetitions */
  /* If the post is in a loop: the loop's number + 1 (0: it is in none). `again`: from the second repetition on the
   * post that must come first is this one, of the repetition before; RT_NO_POST: it is always `before`, of the
   * same repetition. (rt_post_before) */
  uint32_t loop, again;
  /* For a message in a loop: how far its peers move on in the team with each repetition. */
  int32_t to_step, from_step;
  /* For a post before a loop that only the loop's first repetition joins: the post in the loop that later repetitions
   * join instead, each that of the repetition before. RT_NO_POST: none. */
  uint32_t next;
} rt_post;

enum { RT_NO_VIEW = UINT32_MAX, RT_NO_POST = UINT32_MAX };

typedef enum rt_instr_kind {
  RT_LAUNCH, /* task on stream */
  RT_WAIT,   /* stream waits for `other` */
  RT_POST,   /* the stream posts a communication */
  RT_JOIN,   /* the stream waits for a communication */
} rt_instr_kind;

typedef struct rt_instr {
  uint8_t kind; /* rt_instr_kind */
  uint16_t stream, other;
  uint32_t task;   /* LAUNCH; POST, JOIN: in plan->posts */
  uint32_t origin; /* ir_instr in the host program, for messages and traces */
} rt_instr;

/* Instructions [first, first + n) are executed `times` times. The repetitions differ only in the offsets of views
 * with a step, and in the peers of messages with one. Loops are in order and do not overlap. Buffers that are
 * allocated in a loop are freed in it. A communication posted in a loop is joined in the same repetition by the
 * stream that posts it, so it has ended when it is posted again. Other streams join it in the same repetition
 * or in the next. A loop may have no instructions left: waits that order nothing are removed. */
typedef struct rt_loop {
  uint32_t first, n, times;
} rt_loop;

/* A loop of the host program that is long enough to be kept but was unrolled, and why. */
typedef struct rt_unrolled {
  uint32_t origin; /* ir_instr */
  const char *why;
} rt_unrolled;

/* Streams have 16 bits. */
enum { RT_MAX_STREAMS = 1 << 16 };

typedef struct rt_plan {
  arena memory;
  const ir_func *host; /* for names and places; must outlive the plan */
  rt_instr *instrs;
  uint32_t n_instrs;
  rt_loop *loops;
  uint32_t n_loops;
  const rt_unrolled *unrolled; /* a loop inside of another is listed once */
  uint32_t n_unrolled;
  rt_task *tasks;
  uint32_t n_tasks;
  rt_view *views;
  uint32_t n_views;
  rt_buffer *buffers;
  uint32_t n_buffers;
  uint32_t n_streams; /* the main stream included */
  int64_t pool_bytes;
  uint32_t n_inputs, n_outputs;
  rt_post *posts;
  uint32_t n_posts;
  /* If the plan joins several ranks (rt_plan_join): rank r has the streams from first_stream[r] to below
   * first_stream[r + 1], the first of which is its main one, and the buffers from first_buffer[r] to below
   * first_buffer[r + 1]. NULL: the plan is of one rank. */
  uint32_t n_ranks;
  uint32_t *first_stream, *first_buffer;
  /* The seed of uniform() for the next run: set before a run begins and read while it runs. In the plan's memory;
   * joined plans share that of the first. NULL: no task needs it. */
  uint64_t *seed;
  /* If not NULL: all ranks are alike. Their plans are this one, with peers moved along the axes of this mesh, which has
   * all ranks (bind/alike.c, docs/scale.md). In a joined plan: its ranks represent all ranks. */
  const ir_mesh_data *alike;
  /* If only some ranks are alike: the mesh of all ranks, and for each rank whether its plan differs from this one.
   * NULL: all are alike, or it is not known. */
  const ir_mesh_data *kin;
  const bool *differs;
  struct rt_plan *kept; /* a plan that this one needs and is destroyed with it; NULL: none */
  /* The checker has found no error in the plan as it is now, when it removed redundant waits: in this plan alone, or
   * for all ranks that it represents. A change to the plan clears both. */
  bool passed, passed_for_all;
} rt_plan;

void rt_plan_destroy(rt_plan *plan);
/* Joins the plans of ranks 0 … n - 1 into one plan, for a process that runs them all. They must outlive it. Loops
 * are kept if all ranks have the same ones. */
NODISCARD status rt_plan_join(rt_plan *const *plans, uint32_t n, const allocator *memory,
                              rt_plan **result);
/* Makes the plan compute output slot `output` in the memory of input slot `input`: all its views move to the input's
 * buffer, which becomes `updated`, and its own buffer becomes empty. Runs must then be given the same address
 * for both. For the plan of one rank, if check_alias() allows it. */
void rt_plan_donate(rt_plan *plan, uint32_t input, uint32_t output);

/* ---- loops (plan_loops.c) ---- */
/* Visits the instructions in the order of execution:
 *   for (rt_cursor c = {.plan = plan}; rt_cursor_next(&c);) … plan->instrs[c.instr], in repetition c.turn */
typedef struct rt_cursor {
  const rt_plan *plan;
  uint32_t instr, turn; /* outside of loops the turn is 0 */
  uint32_t next, loop;  /* the next instruction, and the first loop that is not finished */
} rt_cursor;
static inline bool rt_cursor_next(rt_cursor *c) {
  const rt_plan *p = c->plan;
  for (; c->loop < p->n_loops; c->loop++, c->turn = 0) {
    const rt_loop *l = &p->loops[c->loop];
    if (l->n == 0) continue;
    if (c->next != l->first + l->n) break;
    if (++c->turn < l->times) {
      c->next = l->first;
      break;
    }
  }
  c->instr = c->next;
  return c->next++ < p->n_instrs;
}
/* The number of the last repetition of a post's loop; 0: it is in no loop. */
static inline uint32_t rt_post_last_turn(const rt_plan *plan, uint32_t post) {
  uint32_t loop = plan->posts[post].loop;
  return loop ? plan->loops[loop - 1].times - 1 : 0;
}
/* The post that must come before `post` of repetition *turn; *turn becomes its repetition. RT_NO_POST: none. */
static inline uint32_t rt_post_before(const rt_plan *plan, uint32_t post, uint32_t *turn) {
  const rt_post *p = &plan->posts[post];
  if (*turn > 0 && p->again != RT_NO_POST) {
    --*turn;
    return p->again;
  }
  bool same = p->before != RT_NO_POST && p->loop && plan->posts[p->before].loop == p->loop;
  if (p->before != RT_NO_POST && !same) *turn = rt_post_last_turn(plan, p->before);
  return p->before;
}
/* How many instructions a run executes, and how many of them are launches; repetitions count. */
uint32_t rt_plan_n_done(const rt_plan *plan);
uint32_t rt_plan_n_launched(const rt_plan *plan);
/* The instruction that is executed as the number-th. */
uint32_t rt_plan_nth(const rt_plan *plan, uint32_t number);
/* The same plan without loops. `plan` must outlive it. */
NODISCARD status rt_plan_unroll(const rt_plan *plan, const allocator *memory, rt_plan **result);
/* A plan without loops for the checker, at most four times as long as `plan`: each loop becomes three
 * repetitions, the last two and one that represents all before, whose views cover those of all of them.
 * `known` (by view, or NULL): what is read there was written by the repetition before; the very first
 * repetition then stays apart. *from (by instruction): the instruction of `plan`; in the memory of the
 * result. *result NULL with OK: a view cannot be extended like that. */
NODISCARD status rt_plan_shorten(const rt_plan *plan, const bool *known, const allocator *memory,
                                 rt_plan **result, const uint32_t **from);

/* The buffer that is input or output slot `slot`; UINT32_MAX: the plan has none. */
uint32_t rt_plan_buffer(const rt_plan *plan, rt_buffer_kind kind, uint32_t slot);
/* Which rank the stream belongs to: an index in the plan, 0 … n_ranks - 1. */
uint32_t rt_plan_rank(const rt_plan *plan, uint32_t stream);
/* The main stream of rank `rank` (an index in the plan). */
uint32_t rt_plan_first_stream(const rt_plan *plan, uint32_t rank);

/* Floating point operations and bytes moved by a task; for statistics and the sim device. */
double rt_task_flops(const rt_plan *plan, const rt_task *task);
/* Operations of the task's products; and of all others, counted as simple operations of a vector unit: a function
 * such as exp counts several. */
double rt_task_product_flops(const rt_plan *plan, const rt_task *task);
double rt_task_vector_flops(const rt_plan *plan, const rt_task *task);
double rt_task_bytes(const rt_plan *plan, const rt_task *task);
/* Bytes that the poster sends to other ranks; of collectives as a ring of the members does. */
double rt_post_bytes(const rt_post *post);
/* Bytes that the post receives from other ranks. */
double rt_post_bytes_in(const rt_post *post);
/* The post as it is in repetition `turn` of its loop, except for its views. */
rt_post rt_post_in_turn(const rt_post *post, uint32_t turn);
static inline bool rt_post_moves(const rt_post *post) { return post->to_step || post->from_step; }
/* The post as its root makes it. */
rt_post rt_post_at_root(const rt_post *post);
/* Does any post in a team of several ranks have a root? */
bool rt_plan_has_roots(const rt_plan *plan);
/* The request for a backend; `in` and `out` are the addresses of its views. Its origin is not set. */
rt_comm_request rt_post_request(const rt_post *post, const void *in, void *out);
/* "t2$1 <- set(t1$1)" and its place; in `out`. */
void rt_describe(const rt_plan *plan, uint32_t instr, strbuf *out);
/* Of an RT_POST: "c0 = allgather(a$1 -> a$1$1)". */
void rt_describe_post(const rt_plan *plan, uint32_t instr, strbuf *out);
/* The line of the source text that has the instruction; 0: it is not known. Allocates nothing. */
uint32_t rt_line(const rt_plan *plan, uint32_t instr);
uint32_t rt_line_of(const rt_plan *plan, uint32_t origin); /* of an ir_instr */
/* The place of the instruction in the host program, "file:12"; its description if the place is not known. */
void rt_place(const rt_plan *plan, uint32_t instr, strbuf *out);
/* Fails with the message, after the place of the instruction where that is known. Allocates nothing. */
status rt_fail_at(const rt_plan *plan, uint32_t instr, status st, const char *message);
/* The same if it is not known which instruction failed: with the place of the first one. */
status rt_fail_in_run(const rt_plan *plan, status st, const char *message);

#endif
