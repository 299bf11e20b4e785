/* The order in which a plan is issued to streams of GPUs, communications included.
 *
 * When a stream of a GPU is told to wait for an event, it waits only for a record that was issued before.
 * So the host must issue in an order in which everything comes after what it waits for. A plan's own order
 * is not always such an order: a join may come before another rank's post. This room finds one when the
 * plan is loaded, as a flat list of *steps*:
 *
 *   LAUNCH  a task
 *   RECORD  an event on a stream          WAIT  a stream for an event
 *   COPY    bytes from place to place     FOLD  several sources into several results, element by element
 *   COMM    one member's part in a communication that a library carries out
 *
 * Posts of all ranks are matched here, and each communication becomes copies and folds on streams of
 * its own, the rank's *lanes*. Nothing is left to decide in a run: to issue instruction i of the plan is
 * to issue the steps from upto[i - 1] to below upto[i].
 *
 * Loops. A loop of the plan is in the list twice: the steps of its first repetition, and then those of a further one,
 * which are issued again and again (issue_loop). A wait for an event that was recorded several times means the last
 * record before the wait; so both repetitions use the same events (order_loops.c). Only plans that do not communicate
 * have loops.
 *
 * Two ways of moving. Where every GPU can read the others' memory, the receiver pulls, and reductions
 * read all sources directly. Otherwise (`staged`) bytes go in segments through pinned memory of the host
 * (`through_host`) or by peer copies, and reductions first receive into memory of the reducing rank.
 *
 * A third way (`as_posted`) is to leave communications whole, for a library or a backend that knows how to
 * carry them out, also with members in other processes. Every post becomes a COMM (a permute becomes two,
 * one that sends and one that receives) on a lane that belongs to its rank and its *circle*, which is a
 * team, or a sender and its receiver. Communications of one circle stay in their order; those of different
 * circles never wait for one another. The lane waits for the post. The COMMs of all members of a
 * communication that are in this process come when the last of them has posted, with nothing in between,
 * so that they can be handed over together. A join of a post waits for the end of its COMM, which must mean
 * that the output is written and that the input may be overwritten. A reduction that the library does not
 * carry out (`reduces`) is only collected: the inputs of the others come into the rank's memory for
 * receiving, and a FOLD after the COMM reduces them in team order, with the same bits as the other ways.
 *
 * Knows no CUDA: tests run the steps on the CPU. */
#ifndef WEIR_DEVICE_ISSUE_ORDER_H
#define WEIR_DEVICE_ISSUE_ORDER_H

#include "base/vec.h"
#include "device/issue/meet.h"
#include "runtime/plan.h"
#include "runtime/queues.h"

typedef enum issue_step_kind {
  ISSUE_LAUNCH,
  ISSUE_RECORD,
  ISSUE_WAIT,
  ISSUE_COPY,
  ISSUE_FOLD,
  ISSUE_COMM,
} issue_step_kind;

typedef struct issue_step {
  uint8_t kind;    /* issue_step_kind */
  uint16_t stream; /* below n_streams: of the plan; then lanes */
  uint32_t index; /* LAUNCH: task; RECORD, WAIT: event; COPY, FOLD, COMM: in copies, folds, comms */
} issue_step;

/* Streams of a rank that communicate. Reduced segments are sent on to the others on lanes of their own, so
 * that they do not hold up what comes in meanwhile. */
typedef enum issue_lane {
  ISSUE_RECEIVES,
  ISSUE_SENDS,
  ISSUE_KEEPS, /* copies what stays on its rank */
  ISSUE_FOLDS, /* reduces what was received, while more comes in */
  ISSUE_RECEIVES_REDUCED,
  ISSUE_SENDS_REDUCED,
  ISSUE_LANES
} issue_lane;
static inline uint16_t issue_lane_of(const rt_plan *p, uint32_t rank, issue_lane lane) {
  return (uint16_t)(p->n_streams + ISSUE_LANES * rank + lane);
}

/* Where bytes are. */
typedef enum issue_place_kind {
  ISSUE_IN_BUFFER,  /* `offset_bytes` into buffer `index` of the plan */
  ISSUE_IN_STAGING, /* into the memory for receiving of rank `index` */
  ISSUE_IN_SLOTS,   /* into the pinned memory for sending of rank `index` */
  ISSUE_NOWHERE,
} issue_place_kind;

typedef struct issue_place {
  issue_place_kind kind;
  uint32_t index;
  int64_t offset_bytes;
} issue_place;

typedef struct issue_copy {
  issue_place to, from;
  uint32_t to_rank, from_rank; /* in the plan; whose GPU */
  int64_t size_bytes;
} issue_copy;

/* results[j][i] = sources[0][i] op sources[1][i] op …; a result is one of the sources, or overlaps none. */
typedef struct issue_fold {
  ir_combine op;
  ir_dtype dtype;
  int64_t count;
  uint32_t n_sources, n_results;
  uint32_t rank;             /* in the plan: the rank that computes it */
  const issue_place *places; /* sources, then results */
} issue_fold;

/* One member's part in a communication. */
typedef struct issue_comm {
  uint32_t post;     /* in the plan */
  bool receives;     /* of messages: this is the receiving end */
  uint32_t circle;   /* in circles */
  uint32_t member;   /* of the circle; in a pair 0 sends and 1 receives */
  uint32_t rank;     /* in the plan: whose GPU */
  uint32_t first, n; /* in comms: of all members in this process; their steps follow one another */
  /* A reduction that is only collected: what this member will reduce of the input of each other
   * member i goes to `staging_at` + i * `stride_bytes` in the rank's memory for receiving. In a
   * reduce_scatter that is this member's piece of the input, else the whole. In a reduce only the
   * root receives, and only from members that have an input. */
  bool collects;
  int64_t staging_at, stride_bytes;
} issue_comm;

/* When a communication ended, as seen by one of its streams; for traces. */
typedef struct issue_end {
  uint32_t post, event;
} issue_end;

/* Steps [first, first + n) are issued `times` > 0 times: once for each repetition of a loop of the plan but the first.
 * In the i-th of these, i = 1, 2, …, a view of a task is i times its step_bytes further on. */
typedef struct issue_loop {
  uint32_t first, n, times;
} issue_loop;

typedef struct issue_order {
  VEC(issue_step) steps;
  /* By instruction of the plan; in a loop, for the first repetition. That of a loop's last instruction includes the
   * further repetitions. */
  uint32_t *upto;
  VEC(issue_loop) loops; /* in order; without loops whose further repetitions have no steps */
  uint32_t
      *again; /* by instruction of a loop, as upto, in the further repetition; NULL: no loops */
  VEC(issue_copy) copies;
  VEC(issue_fold) folds;
  VEC(issue_comm) comms;
  const issue_meetings *meetings; /* of the plan's posts */
  const rt_circle *circles;       /* likewise */
  uint32_t n_circles;
  uint32_t n_lanes, *rank_of_lane; /* streams beside those of the plan */
  uint32_t n_events;
  bool *is_waited_for;    /* by event; if not, it is there only for its time stamp */
  uint32_t *posted;       /* by post: the event at which it was posted */
  VEC(issue_end) ends;    /* of all posts */
  uint32_t n_ranks;       /* of the plan */
  int64_t *staging_bytes; /* by rank: memory for receiving */
  int64_t *slots_bytes;   /* by rank: pinned memory for sending */
} issue_order;

typedef struct issue_order_options {
  bool staged;       /* GPUs cannot read each other's memory, or shall not */
  bool through_host; /* if staged: by way of the host's memory */
  bool one_gpu;      /* all ranks are on one GPU */
  bool apart;        /* each rank begins a run by itself: others may not have begun it */
  bool as_posted;    /* communications are left whole; nothing of the above matters */
  /* As posted: does the library carry out this reduction too? `all_give`: as far as this process knows, no root
   * lacks an input. NULL: it carries out none. */
  bool (*reduces)(const rt_post *post, bool all_give);
  /* A task whose result has at least so many elements keeps a GPU busy by itself; 0: none does. */
  int64_t large;
  /* Pieces up to `whole_bytes` are sent as they are, larger ones in segments. 0: good values. */
  int64_t whole_bytes, segment_bytes;
} issue_order_options;

/* Needs a memory_guard(); the order is in `memory`. If communications do not match, or wait for each other in a
 * cycle, it fails with BAD_PROGRAM or UNAVAILABLE, and the places. */
NODISCARD status issue_order_make(const rt_plan *plan, const issue_order_options *options,
                                  arena *memory, issue_order *result);

#endif
