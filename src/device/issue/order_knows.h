/* What each stream knows to be over at each step of an order: for every stream, how much of the work of each
 * other stream; for every event, what its stream knew when it was recorded. Where ranks are processes, a stream
 * may also know that a rank has begun the run: only then are that rank's inputs there. */
#ifndef WEIR_DEVICE_ISSUE_ORDER_KNOWS_H
#define WEIR_DEVICE_ISSUE_ORDER_KNOWS_H

#include "device/issue/order_internal.h"

typedef struct issue_knows {
  uint32_t n; /* streams, lanes included, and ranks */
  uint32_t
      *known; /* n for each stream: how many steps of each are over; for a rank 1 if it has begun */
  uint32_t *told; /* n for each event */
} issue_knows;

/* False: the order is too long to keep all of this. */
bool issue_knows_init(issue_knows *x, const issue_maker *k);
/* Takes the next step. False: it is a wait that changes nothing. The stream comes after the event's work
 * already, by an earlier wait, directly or by way of other streams; or there was no work. */
bool issue_knows_step(issue_knows *x, const issue_step *s);

static inline uint32_t *issue_knows_of(const issue_knows *x, uint32_t stream) {
  return x->known + (size_t)stream * x->n;
}

#endif
