/* What a device must have computed before a communication can begin, however fine its work is cut.
 *
 * A communication begins with one element. One element of a product needs a row of one factor and a
 * column of the other; a whole row of it needs all of the second factor; and so on, back to the
 * inputs. So a gradient of weights needs nearly all of the layers before, while a row of
 * activations needs a row of each. Where it cannot be told what an element needs, it needs nothing:
 * what is counted is never too much. */
#ifndef WEIR_COST_NEEDS_H
#define WEIR_COST_NEEDS_H

#include "runtime/device.h"

/* By post of the plan, of one device: ns of one thread. */
void cost_needs(const rt_plan *plan, const rt_speed *machine, arena *scratch, double *result);
/* The time of a task if nothing but its arithmetic counted. */
double cost_arithmetic_ns(const rt_plan *plan, const rt_task *task, const rt_speed *machine);

#endif
