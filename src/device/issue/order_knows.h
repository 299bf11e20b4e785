/* What each stream knows to be over while the steps of an order go by: per stream how much of every other
 * one's work, per event what its stream knew when it was recorded. That a rank has begun the run is such
 * knowledge too, where ranks are processes: its inputs are there only then. */
#ifndef WEIR_DEVICE_ISSUE_ORDER_KNOWS_H
#define WEIR_DEVICE_ISSUE_ORDER_KNOWS_H

#include "device/issue/order_internal.h"

typedef struct issue_knows {
  uint32_t n; /* streams, lanes included, and ranks */
  uint32_t
      *known; /* n for each stream: steps of that one that are over; of ranks: 1 if it has begun */
  uint32_t *told; /* n for each event */
} issue_knows;

/* False: the order is too long to know all that about it. */
bool issue_knows_init(issue_knows *x, const issue_maker *k);
/* A step goes by. False: it is a wait that changes nothing, for the stream is after the event's work
 * already: because of an earlier wait, directly or by way of other streams, or because there was no work. */
bool issue_knows_step(issue_knows *x, const issue_step *s);

static inline uint32_t *issue_knows_of(const issue_knows *x, uint32_t stream) {
  return x->known + (size_t)stream * x->n;
}

#endif
