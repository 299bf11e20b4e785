/* Lowering: from a scheduled fusion to a host program.
 *
 * Steps. Operations are taken in program order; a merge rule may join neighbours into one step. The default
 * joins none: kernels of several operations are made of the host program (join/).
 *
 * Loops. A step whose result has stream axes runs once per slice, in a nest of host loops, one per
 * stream axis. A step joins the loops that are open as far as its stream axes map to theirs, and as
 * far as every operand made in those loops is read slice by slice as it was made; loops beyond that
 * are closed, and further ones opened.
 *
 * Slices. A stream axis that is a dimension of the tensor gives a select (the slice drops the
 * dimension), the outer part of a split gives a shard (it keeps a shorter one). Operands are cut
 * along the dimension that maps to the stream axis; an operand without one is used whole. A stream
 * on a reduction axis cuts the operands, and iterations add their partial results in order.
 *
 * Buffers. A result that all consumers read in the loops it is made in lives inside the iteration;
 * others are allocated in full before the loop.
 *
 * Devices. A program for several devices is first decomposed (shard_decompose()), so that each step
 * computes from what devices hold or only moves data. Tensors have the extents of the running
 * device's part, as if a loop over devices were fixed at its coordinates; steps that move data
 * become communications, with copies where a collective needs contiguous pieces.
 *
 * Streams. Only the outermost loop of a nest changes streams: iteration i runs on stream i mod
 * `streams`. In a nest that begins with the device's own piece, the two outermost do. All workers wait
 * for the calling stream in a loop of their own before the work loop, and the calling stream waits
 * for them after it. */
#ifndef WEIR_HOST_HOST_H
#define WEIR_HOST_HOST_H

#include "ir/host.h"

/* How a stream over the pieces of a sharded axis fetches them; pass `pipelines` writes it into the
 * schedule. A preference: where a form does not apply, another is used. */
typedef enum host_pipeline {
  HOST_AUTO,       /* p2p-offset */
  HOST_COLLECTIVE, /* the same as broadcast, where pieces are streamed */
  HOST_P2P,        /* iteration i exchanges with peer i */
  HOST_P2P_OFFSET, /* with peers (me + i) and (me - i) mod n: no hot spot */
  HOST_RING,       /* forwards to one neighbour what arrived from the other */
  HOST_BROADCAST,  /* iteration i: root i */
} host_pipeline;

/* The word of --pipeline. */
const char *host_pipeline_text(host_pipeline form);

/* The speeds of the machine that the program is for, as far as it depends on them; all 0: not known. */
typedef struct host_speed {
  double link_latency_ns, post_ns, link_bytes_per_ns;
  double launch_ns, flops_per_ns, memory_bytes_per_ns;
  double narrow_flops_per_ns;              /* products of f16 and bf16; 0: as f32 */
  double bf16_flops_per_ns;                /* products of bf16; 0: as f16 */
  double island;                           /* consecutive devices that the link connects; 0: all */
  double far_latency_ns, far_bytes_per_ns; /* of the link to others; 0: as within */
  double direct; /* 1: an allreduce takes 1.5 times the steps of others; 0: twice as many */
} host_speed;

typedef struct host_options {
  host_pipeline pipeline; /* to say why a collective has another form */
  host_speed speed;
  bool one_phase; /* loops are not split (phases.c), which would need buffers for all iterations */
  bool deterministic; /* iterations add up in the order of the pieces, whatever the form */
} host_options;

/* Does every operation compute from what each device holds, or only move data? If not, a diagnostic says so. */
bool host_is_decomposed(ir_func *f, arena *scratch);

/* Lowers `f`: its schedule applied and, with several devices, decomposed. The host program belongs to f's
 * module but is not listed among its functions; no buffer is freed in it. What cannot be lowered is a
 * diagnostic and STATUS_BAD_PROGRAM. */
NODISCARD status host_lower(ir_func *f, const host_options *options, ir_func **result);

/* Lets the iterations of `stream` loops take turns on the worker streams: the first waits before such a
 * loop, the waits for the iteration before where they add up, the joins after it. Returns how many loops.
 * (streams.c) */
uint32_t host_distribute_streams(ir_func *h);

/* Turns results that only look at their operand differently into views, instead of copies in buffers.
 * Returns how many. (views.c) */
uint32_t host_make_views(ir_func *h);

/* Inserts a deallocate after the last use of every buffer that is neither an output nor freed already:
 * inside the loop body if it is used nowhere else, otherwise after the loop and the waits that join it.
 * Returns how many. */
uint32_t host_free_buffers(ir_func *h);

/* May two neighbouring operations become one step? The default says never. */
typedef bool (*host_merge_rule)(const ir_func *f, ir_op a, ir_op b);
bool host_never_merge(const ir_func *f, ir_op a, ir_op b);

typedef struct host_step {
  uint32_t first, len; /* operations of f->order */
} host_step;
/* Cuts the operations into steps, in `memory`. */
host_step *host_segment(const ir_func *f, host_merge_rule rule, arena *memory, uint32_t *n);

#endif
