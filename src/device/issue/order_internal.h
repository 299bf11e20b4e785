/* What finding an order (order.c) and turning a communication into steps (order_moves.c) share. */
#ifndef WEIR_DEVICE_ISSUE_ORDER_INTERNAL_H
#define WEIR_DEVICE_ISSUE_ORDER_INTERNAL_H

#include "base/table.h"
#include "device/issue/order.h"

enum {
  ISSUE_SLOTS = 16,   /* segments that a rank can have in pinned memory at once */
  ISSUE_STAGINGS = 4, /* segments that a rank can have received and not reduced yet */
};

/* A segment of pinned memory. */
typedef struct issue_slot {
  uint32_t *readers; /* events of those who read it, who must be done before it is filled again */
  uint32_t n_readers;
} issue_slot;

typedef struct issue_slots {
  issue_slot slots[ISSUE_SLOTS];
  uint32_t next;
  int64_t size_bytes; /* of the largest segment */
} issue_slots;

/* Memory of a rank that receives the inputs of others; its parts are used in turn. */
typedef struct issue_staging {
  uint32_t next;
  uint32_t
      freed[ISSUE_STAGINGS]; /* the event at which it was reduced; ISSUE_NOBODY: not used yet */
  int64_t size_bytes;        /* of one of them */
} issue_staging;

/* Which communication used which bytes of a buffer last. */
typedef struct issue_use {
  int64_t begin, end;
  bool writes;
  uint32_t meeting;
} issue_use;

typedef VEC(issue_use) issue_uses;

/* A range of bytes in the pool (0), or in a buffer of the caller (1 + its number). */
typedef struct issue_range {
  uint32_t space;
  int64_t begin, end;
} issue_range;

/* An input of a communication that its poster has joined, but that others may still read: what writes
 * there next must come after them. */
typedef struct issue_reading {
  issue_range range;
  uint32_t meeting, member;
  uint16_t stream; /* the one that last waited for it */
} issue_reading;

enum {
  ISSUE_MOST_READINGS = 64, /* of a rank; the ends of more are waited for at once */
  ISSUE_MOST_MEMBERS = 16,  /* of larger teams, all ends are waited for */
  ISSUE_WRITES = 1,         /* an end of a member's output: its join waits */
  ISSUE_READS = 2,          /* an end of reading a member's input */
};

typedef VEC(issue_reading) issue_readings;

typedef struct issue_maker {
  const rt_plan *plan;
  const issue_order_options *options;
  arena *memory;
  issue_order *order;
  rt_queues queues;
  issue_meetings meetings;
  uint32_t *given, *issued; /* by stream: entries the host has reached, entries in the order */
  uint32_t **event_of;      /* by stream and entry in memory: where it signals */
  uint32_t
      *recorded; /* by lane: the event recorded there just now; ISSUE_NOBODY: more came after it */
  bool *is_posted;           /* by post */
  int64_t segment_bytes;     /* of a piece that is sent in parts */
  issue_slots *slots;        /* by rank */
  issue_staging *stagings;   /* by rank */
  issue_uses *uses;          /* by buffer */
  VEC(uint32_t) ends;        /* events; meetings have ranges of it */
  VEC(uint16_t) end_streams; /* where those are recorded */
  VEC(uint8_t) end_flags;    /* ISSUE_MOST_MEMBERS for each, by member */
  issue_readings *readings;  /* by rank */
  map lanes;                 /* as posted: the lane of a rank in a circle */
  uint32_t (*ended)[2];      /* as posted: by post and half, the event at its end */
  int64_t *collected;        /* as posted: by lane, where its part of the memory for receiving is */
  /* Of the communication that is being turned into steps: */
  uint32_t meeting;
  VEC(uint32_t) before; /* meetings that it must come after */
  bool *entered;        /* by lane: it takes part in the communication */
  bool *needs;          /* by lane and member: it waits for that member's post already */
  uint8_t *flags;       /* by lane, ISSUE_MOST_MEMBERS for each: what it does for which member */
} issue_maker;

void issue_step_add(issue_maker *k, issue_step_kind kind, uint16_t stream, uint32_t index);
/* Records a new event on the stream. */
uint32_t issue_step_record(issue_maker *k, uint16_t stream);
/* The range of `bytes` from the start of a view on. */
issue_range issue_range_of(const rt_plan *plan, uint32_t view, int64_t bytes);
bool issue_ranges_meet(const issue_range *a, const issue_range *b);
/* Bytes that a member's input has. */
int64_t issue_input_bytes(const rt_post *post);
/* How many bytes a part of staged memory takes. */
static inline int64_t issue_aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
/* Decides how long segments are. */
void issue_segments_size(issue_maker *k);
/* How many bytes of a piece are sent at once. */
int64_t issue_segment_bytes(const issue_maker *k, int64_t bytes);
/* The most that is sent at once of a part of such a piece. */
int64_t issue_longest_segment_bytes(const issue_maker *k, int64_t bytes);
/* Adds the next entry of a stream. Everything that it waits for must be in the order. */
void issue_entry_add(issue_maker *k, uint32_t stream);
/* Adds all steps of a plan with loops (order_loops.c). */
void issue_loops_add(issue_maker *k);
/* Lets fewer streams wait (order_streams.c). */
void issue_order_spare_streams(issue_maker *k);
/* Removes waits that change nothing (order_prune.c). */
void issue_order_prune(issue_maker *k);
/* Adds the steps of a communication all of whose posts are in the order. */
void issue_moves_add(issue_maker *k, uint32_t meeting);

/* The same for one that is left as it was posted (order_posts.c); and the waits of a join for its end. */
void issue_comms_add(issue_maker *k, uint32_t meeting);
void issue_comms_join(issue_maker *k, uint16_t stream, uint32_t post);
/* Lets each lane record an event after the work that it waits for, so that a watcher can tell that work from the
 * communication. */
void issue_comms_mark(issue_maker *k);
/* A lane for every member of a circle that posts there. More streams than can be numbered are refused. */
NODISCARD status issue_comms_prepare(issue_maker *k);

#endif
