/* One rank's part of an order, for ranks that are processes of their own.
 *
 * All processes make the same order of the same plan of all ranks, and each issues only what is on
 * streams of its own rank:
 *
 *   order of all           process 0              process 1
 *   launch a on 0          launch a
 *   record 7 on 0          record 7, flag 7
 *   wait 1 for 7                                  wait for flag 7
 *   copy on 1                                     copy
 *
 * An event that streams of other ranks wait for has a *flag* beside it, a number in memory that all
 * processes see: the run that recorded it last. Every event is recorded once in a run, so "at least the
 * number of this run" is what a wait for it means.
 *
 * Everything comes after what it waits for, in the order and therefore in every part: whatever streams
 * share, the first step that is not done can always run. Knows no CUDA. */
#ifndef WEIR_DEVICE_ISSUE_SPLIT_H
#define WEIR_DEVICE_ISSUE_SPLIT_H

#include "device/issue/order.h"

typedef struct issue_split {
  uint32_t n_flags;
  uint32_t *flag_of;       /* by event; ISSUE_NO_FLAG: no other rank waits for it */
  uint32_t *rank_of_event; /* in the plan: the rank that records it */
  uint32_t
      *post_of_flag; /* the post that it tells of; RT_NO_POST: of none, but of what came of one */
  uint64_t hash;     /* of the order of all: processes that differ cannot run together */
} issue_split;

enum { ISSUE_NO_FLAG = UINT32_MAX };

/* The rank that a stream of the order belongs to: of the plan, or a lane. */
uint32_t issue_rank_of_stream(const rt_plan *plan, const issue_order *order, uint32_t stream);
/* The order becomes that of `rank`: its steps, and `upto` by instruction of its own plan, of which the
 * last has all. Needs a memory_guard(). */
void issue_order_split(const rt_plan *plan, uint32_t rank, arena *memory, issue_order *order,
                       issue_split *result);

#endif
