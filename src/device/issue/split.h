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
 * An event that streams of other ranks wait for has a *flag* beside it: memory that all processes see,
 * with the number of the run that recorded the event last. Every event is recorded once in a run, so a
 * wait for it waits until the flag is at least the number of this run.
 *
 * Everything comes after what it waits for, in the order and therefore in every part. So the first step
 * that is not done can always run, whatever streams share. Knows no CUDA. */
#ifndef WEIR_DEVICE_ISSUE_SPLIT_H
#define WEIR_DEVICE_ISSUE_SPLIT_H

#include "device/issue/order.h"

typedef struct issue_split {
  uint32_t n_flags;
  uint32_t *flag_of;       /* by event; ISSUE_NO_FLAG: no other rank waits for it */
  uint32_t *rank_of_event; /* in the plan: the rank that records it */
  uint32_t
      *post_of_flag; /* the post at which it is set; RT_NO_POST: it is set by a communication */
  uint64_t hash;     /* of the order of all: processes that differ cannot run together */
} issue_split;

enum { ISSUE_NO_FLAG = UINT32_MAX };

/* The rank of a stream of the order, which is a stream of the plan or a lane. */
uint32_t issue_rank_of_stream(const rt_plan *plan, const issue_order *order, uint32_t stream);
/* Reduces the order to that of `rank`: its steps, and `upto` by instruction of the rank's own plan. All
 * steps that are left belong to the last instruction. Needs a memory_guard(). */
void issue_order_split(const rt_plan *plan, uint32_t rank, arena *memory, issue_order *order,
                       issue_split *result);

#endif
