/* What the parts of the verifier of host programs share. Private to ir/host_verify*.c. */
#ifndef WEIR_IR_HOST_VERIFY_H
#define WEIR_IR_HOST_VERIFY_H

#include "ir/host.h"

/* Types of slices and operations: dtypes, ranks, and extents that cannot fit. What only shapes can
 * tell is left to binding. */
bool ir_host_verify_slice(ir_func *h, const ir_instr_data *d);
bool ir_host_verify_compute(ir_func *h, const ir_instr_data *d);
/* A kernel returns local `from` into `to`: the same dtype, and extents that can be equal. */
bool ir_host_verify_return(ir_func *h, const ir_instr_data *d, ir_tensor to, ir_tensor from);

/* A communication by itself: team, positions in it, dtypes, and counts of elements that cannot fit. */
bool ir_host_verify_communicate(ir_func *h, const ir_instr_data *d);
/* Groups hold sends and receives and end in their block; every wait is for something posted before,
 * and everything posted reaches a wait. What either branch of an if posts counts as posted after it. */
bool ir_host_verify_waits(ir_func *h);
/* The tensor is on the mesh that its dimensions are cut over. */
bool ir_host_verify_cuts(ir_func *h, ir_tensor t);

/* Every worker stream that gets work is waited for, before the end, by the stream the program was
 * called on. This looks at the structure: a set of streams is a range of indexes or an expression over
 * loops, and a wait covers it if its own set provably does. The order of single accesses is proved on
 * the bound plan. */
bool ir_host_verify_streams(ir_func *h);

#endif
