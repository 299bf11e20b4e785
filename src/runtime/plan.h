/* Plans: a host program bound to shapes, flat, with everything resolved.
 *
 * Loops are unrolled, slices are (buffer, offset, extents, strides), streams are numbers, buffers
 * have their place in one pool. Running a plan does no allocation, hashing, string work or locking
 * of its own; checking, tracing, simulation all read it.
 *
 * Stream 0 is the stream the program is called on; worker stream k is number k + 1.
 *
 * Happens-before in a plan: instructions of one stream run in order; an RT_WAIT of stream s on stream
 * t orders everything put on t before the RT_WAIT (in plan order) before everything put on s after it.
 * Nothing else orders anything. */
#ifndef WEIR_RUNTIME_PLAN_H
#define WEIR_RUNTIME_PLAN_H

#include "base/memory.h"
#include "ir/array.h"
#include "ir/bind.h"
#include "ir/host.h"

/* A strided view of a buffer. Strides are in elements; offset in bytes from the buffer's start. */
typedef struct rt_view {
  uint32_t buffer;
  ir_dtype dtype;
  uint32_t rank;
  int64_t offset_bytes;
  int64_t extents[IR_MAX_RANK];
  int64_t strides[IR_MAX_RANK];
} rt_view;

typedef enum rt_buffer_kind {
  RT_BUFFER_INPUT,  /* memory of the caller: slot `slot` of the run's inputs */
  RT_BUFFER_OUTPUT, /* likewise, of its outputs */
  RT_BUFFER_POOL,   /* `offset_bytes` into the plan's own memory */
} rt_buffer_kind;

typedef struct rt_buffer {
  rt_buffer_kind kind;
  uint32_t slot;
  int64_t offset_bytes, size_bytes;
  uint32_t allocated_at, freed_at; /* instruction numbers; freed_at UINT32_MAX: never */
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
  uint32_t view;    /* VIEW: in plan->views */
  ir_number number; /* NUMBER */
  uint32_t sliced;  /* bit d: already cut along result dimension d (see ir_instr_data) */
} rt_operand;

/* One launch: run `code` on the operands into the result view. */
typedef struct rt_task {
  ir_opcode code;
  uint32_t result; /* view */
  uint32_t n_operands;
  const rt_operand *operands;
  const rt_attr *attrs;        /* one per attribute param of the op, in table order */
  ir_dtype compute;            /* POINTWISE: the dtype computed in */
  bool windowed;               /* the result is a part of the operation's whole result */
  int64_t offset[IR_MAX_RANK]; /* where it begins, per dimension */
  int64_t whole[IR_MAX_RANK];  /* extents of the whole result */
} rt_task;

typedef enum rt_instr_kind {
  RT_LAUNCH, /* task on stream */
  RT_WAIT,   /* stream waits for `other` */
} rt_instr_kind;

typedef struct rt_instr {
  uint8_t kind; /* rt_instr_kind */
  uint16_t stream, other;
  uint32_t task;   /* LAUNCH */
  uint32_t origin; /* ir_instr in the host program, for messages and traces */
} rt_instr;

enum { RT_MAX_STREAMS = 256 };

typedef struct rt_plan {
  arena memory;
  const ir_func *host; /* for names and places; must outlive the plan */
  rt_instr *instrs;
  uint32_t n_instrs;
  rt_task *tasks;
  uint32_t n_tasks;
  rt_view *views;
  uint32_t n_views;
  rt_buffer *buffers;
  uint32_t n_buffers;
  uint32_t n_streams; /* the main stream included */
  int64_t pool_bytes;
  uint32_t n_inputs, n_outputs;
  uint64_t seed;
} rt_plan;

typedef struct rt_bind_options {
  uint32_t streams; /* worker streams, >= 1 */
  uint64_t seed;
  bool keep_waits; /* also those for streams that did nothing new since the last wait */
} rt_bind_options;

/* Binds a host program to the extents of `env` (complete and checked). Errors in the program that only
 * shapes show are diagnostics of the module and STATUS_BAD_PROGRAM. */
NODISCARD status rt_bind(const ir_env *env, const rt_bind_options *options, const allocator *memory,
                         rt_plan **result);
void rt_plan_destroy(rt_plan *plan);

/* Floating point operations and bytes moved by a task; for statistics and the sim device. */
double rt_task_flops(const rt_plan *plan, const rt_task *task);
double rt_task_bytes(const rt_plan *plan, const rt_task *task);
/* "t2$1 <- set(t1$1)" and where it stands; in `out`. */
void rt_describe(const rt_plan *plan, uint32_t instr, strbuf *out);

#endif
