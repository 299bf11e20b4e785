/* Axes (iteration domains), the transforms between them, and the domains of a tensor.
 *
 * An axis is one dimension of a tensor's iteration space. Transforms derive axes from axes and so
 * record history: a DAG that runs from the logical domain to the loop and allocation domains (a
 * schedule), and from the root to the logical domain (reshape, slice, pad, rfactor).
 *
 *   root        as the producer sees it; differs from logical only where the op itself reshapes
 *   logical     the tensor's dimensions; reduction axes included, though memory has none for them
 *   allocation  the order in memory, outermost first; by default the logical domain
 *   loop        what the schedule made of it; by default the logical domain
 */
#ifndef WEIR_IR_AXIS_H
#define WEIR_IR_AXIS_H

#include "ir/handle.h"
#include "ir/scalar.h"

typedef enum ir_axis_kind {
  IR_AXIS_ITERATION, /* an ordinary dimension */
  IR_AXIS_REDUCTION, /* summed away by the defining op: no dimension in memory */
  IR_AXIS_BROADCAST, /* extent 1; `expanded` gives the size it is stretched to, with stride 0 */
  IR_AXIS_GATHER,    /* positions chosen by an index tensor */
} ir_axis_kind;

/* Where and when the positions of an axis run. IR_MARK_SERIAL is the user's word `serial`: unlike no
 * mark at all it keeps propagation off the axis. */
typedef enum ir_mark_kind {
  IR_MARK_NONE,
  IR_MARK_SERIAL,
  IR_MARK_STREAM,
  IR_MARK_MESH
} ir_mark_kind;

/* How a stream fetches pieces from devices. */
typedef enum ir_form {
  IR_FORM_NONE,
#define FORM(id, word) id,
#include "ir/forms.def"
#undef FORM
  IR_FORM_COUNT
} ir_form;

typedef struct ir_mark {
  ir_mark_kind kind;
  uint32_t mesh_axis; /* MESH: 0 is mesh.x, the LAST axis of the mesh, 1 is mesh.y before it, … */
  ir_form form;       /* STREAM */
} ir_mark;

/* Are they equal, the form of a stream aside? */
static inline bool ir_mark_same(ir_mark a, ir_mark b) {
  return a.kind == b.kind && (a.kind != IR_MARK_MESH || a.mesh_axis == b.mesh_axis);
}
/* "stream", "stream.ring", "serial", "mesh.x" … ; "" for no mark. Static storage. */
const char *ir_mark_text(ir_mark m);
/* The form called `word` ("ring"); NONE: there is no such form. */
ir_form ir_form_find(const char *word, size_t length);

typedef struct ir_axis_data {
  ir_axis_kind kind;
  ir_mark mark;
  ir_scalar extent;   /* BROADCAST: 1 */
  ir_scalar expanded; /* BROADCAST that was expanded: its size; else none */
  ir_transform def;   /* the transform that made it; none for an original axis */
  bool rfactor;       /* made by an rfactor */
  uint32_t why;       /* why it is marked; ir/why.h */
} ir_axis_data;

typedef enum ir_transform_kind {
  IR_SPLIT,       /* in[0] -> out[0] = ceildiv(n, factor), out[1] = factor */
  IR_OUTER_SPLIT, /* in[0] -> out[0] = factor, out[1] = ceildiv(n, factor) */
  IR_CHUNK_SPLIT, /* in[0] -> out[0] = number of chunks, out[1] = the longest chunk */
  IR_MERGE,       /* in[0], in[1] -> out[0] = the product */
  IR_RESIZE,      /* in[0] -> out[0]; position p reads in[0] at start + p * step, if that exists */
  IR_SWIZZLE,     /* in[0] -> out[0]; device c sees position p at (p + c) mod n */
} ir_transform_kind;

typedef struct ir_transform_data {
  ir_transform_kind kind;
  ir_axis in[2], out[2]; /* unused ones are none */
  ir_scalar factor;      /* SPLIT, OUTER_SPLIT */
  const int64_t *chunks; /* CHUNK_SPLIT: their lengths */
  uint32_t n_chunks;
  ir_scalar start, step; /* RESIZE */
  uint32_t mesh_axis;    /* SWIZZLE */
} ir_transform_data;

/* An immutable list of axes in the function's arena; a changed domain is a new list. */
typedef struct ir_axes {
  const ir_axis *data;
  uint32_t len;
} ir_axes;

/* Is the memory of an allocation axis dense with the next one inside it? NONE on broadcast and
 * reduction axes, which have no memory. */
typedef enum ir_dense { IR_DENSE_NONE = 0, IR_DENSE_TRUE, IR_DENSE_FALSE } ir_dense;

typedef struct ir_domains {
  ir_axes root, logical, allocation, loop;
  const uint8_t *dense; /* ir_dense, one per allocation axis */
} ir_domains;

#endif
