/* What finding an order (order.c) and turning a communication into steps (order_moves.c) share. */
#ifndef WEIR_DEVICE_CUDA_ORDER_INTERNAL_H
#define WEIR_DEVICE_CUDA_ORDER_INTERNAL_H

#include "base/table.h"
#include "device/cuda/order.h"

enum {
  CUDA_SLOTS = 16,   /* segments that a rank can have in pinned memory at once */
  CUDA_STAGINGS = 4, /* segments that a rank can have received and not reduced yet */
};

/* A segment of pinned memory: who must have taken it before it is filled again. */
typedef struct cuda_slot {
  uint32_t *readers; /* events */
  uint32_t n_readers;
} cuda_slot;

typedef struct cuda_slots {
  cuda_slot slots[CUDA_SLOTS];
  uint32_t next;
  int64_t size_bytes; /* of the largest segment */
} cuda_slots;

/* Memory of a rank into which inputs of others come, in turns. */
typedef struct cuda_staging {
  uint32_t next;
  uint32_t freed[CUDA_STAGINGS]; /* the event at which it was reduced; CUDA_NOBODY: not used yet */
  int64_t size_bytes;            /* of one of them */
} cuda_staging;

/* Which communication used which bytes of a buffer last. */
typedef struct cuda_use {
  int64_t begin, end;
  bool writes;
  uint32_t meeting;
} cuda_use;

typedef VEC(cuda_use) cuda_uses;

/* Bytes on the machine: of the pool (0), or of a buffer of the caller (1 + its number). */
typedef struct cuda_range {
  uint32_t space;
  int64_t begin, end;
} cuda_range;

/* An input of a communication that its poster has joined, while others may still read it: who writes
 * there next comes behind them. */
typedef struct cuda_reading {
  cuda_range range;
  uint32_t meeting, member;
  uint16_t stream; /* that last waited for it */
} cuda_reading;

enum {
  CUDA_MOST_READINGS = 64, /* of a rank; more are waited for at once */
  CUDA_MOST_MEMBERS = 16,  /* of larger teams, all ends are waited for */
  CUDA_WRITES = 1,         /* an end of a member's output: its join waits */
  CUDA_READS = 2,          /* an end of reading a member's input */
};

typedef VEC(cuda_reading) cuda_readings;

typedef struct cuda_maker {
  const rt_plan *plan;
  const cuda_order_options *options;
  arena *memory;
  cuda_order *order;
  rt_queues queues;
  cuda_meetings meetings;
  uint32_t *given, *issued; /* by stream: entries the host has reached, entries in the order */
  uint32_t **event_of;      /* by stream and entry: where it signals */
  uint32_t
      *recorded;   /* by lane: the event recorded there just now; CUDA_NOBODY: more came after it */
  bool *is_posted; /* by post */
  int64_t segment_bytes;     /* of a piece that is sent in parts */
  cuda_slots *slots;         /* by rank */
  cuda_staging *stagings;    /* by rank */
  cuda_uses *uses;           /* by buffer */
  VEC(uint32_t) ends;        /* events; meetings have ranges of it */
  VEC(uint16_t) end_streams; /* where those are recorded */
  VEC(uint8_t) end_flags;    /* CUDA_MOST_MEMBERS for each, by member */
  cuda_readings *readings;   /* by rank */
  map lanes;                 /* as posted: the lane of a rank in a circle */
  uint32_t (*ended)[2];      /* as posted: by post and half, the event at its end */
  int64_t *collected;        /* as posted: by lane, where its part of the memory for receiving is */
  /* Of the communication that is being turned into steps: */
  uint32_t meeting;
  VEC(uint32_t) before; /* meetings that it must come behind */
  bool *entered;        /* by lane of all ranks: the stream takes part */
  bool *needs;          /* the same, times members: it is behind that member's post */
  uint8_t *flags;       /* by lane, CUDA_MOST_MEMBERS for each: what it does for which member */
} cuda_maker;

void cuda_step_add(cuda_maker *k, cuda_step_kind kind, uint16_t stream, uint32_t index);
/* A new event, recorded on the stream now. */
uint32_t cuda_step_record(cuda_maker *k, uint16_t stream);
/* The bytes of `bytes` from the start of a view on. */
cuda_range cuda_range_of(const rt_plan *plan, uint32_t view, int64_t bytes);
bool cuda_ranges_meet(const cuda_range *a, const cuda_range *b);
/* Bytes that a member's input has. */
int64_t cuda_input_bytes(const rt_post *post);
/* What a part of staged memory takes. */
static inline int64_t cuda_aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
/* Decides how long segments are. */
void cuda_segments_size(cuda_maker *k);
/* Bytes sent at once of a piece of so many. */
int64_t cuda_segment_bytes(const cuda_maker *k, int64_t bytes);
/* The same at most of any part of such a piece. */
int64_t cuda_longest_segment_bytes(const cuda_maker *k, int64_t bytes);
/* Lets fewer streams wait (order_streams.c), and drops the waits that change nothing. */
void cuda_order_spare_streams(cuda_maker *k);
void cuda_order_prune(cuda_maker *k);
/* The steps of a communication all of whose posts stand in the order. */
void cuda_moves_add(cuda_maker *k, uint32_t meeting);

/* The same of one that is left as it was posted (order_posts.c), and waiting for its end. */
void cuda_comms_add(cuda_maker *k, uint32_t meeting);
void cuda_comms_join(cuda_maker *k, uint16_t stream, uint32_t post);
/* An event behind all work that a stream waits behind: who watches can tell one from the other. */
void cuda_comms_mark(cuda_maker *k);
/* A lane for every member of a circle that posts there. More streams than can be numbered are refused. */
NODISCARD status cuda_comms_prepare(cuda_maker *k);

#endif
