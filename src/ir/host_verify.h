/* What the parts of the verifier of host programs share. Private to ir/host_verify*.c. */
#ifndef WEIR_IR_HOST_VERIFY_H
#define WEIR_IR_HOST_VERIFY_H

#include "ir/host.h"

/* Types of slices and operations: dtypes, ranks, and extents that cannot fit. What only shapes can
 * tell is left to binding. */
bool ir_host_verify_slice(ir_func *h, const ir_instr_data *d);
bool ir_host_verify_compute(ir_func *h, const ir_instr_data *d);

/* Every worker stream that gets work is waited for, before the end, by the stream the program was
 * called on. This looks at the structure: a set of streams is a range of indexes or an expression over
 * loops, and a wait covers it if its own set provably does. The order of single accesses is proved on
 * the bound plan. */
bool ir_host_verify_streams(ir_func *h);

#endif
