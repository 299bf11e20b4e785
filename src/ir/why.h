/* Provenance: why something is as it is.
 *
 * A reason names a rule, the tensor it comes from, and the place of the statement or operation at which
 * the rule applied. It points to the reason before it, so that a chain of them ends at a line that the
 * user wrote:
 *
 *   y axis 0 is stream    FORWARD   from h     through the linear at line 9
 *   h axis 0 is stream    FORWARD   from x     through the linear at line 7
 *   x axis 0 is stream    USER                 line 14
 *
 * Reasons are kept in a table of the function and named by their number; 0 is none. They speak of tensors
 * by name, so a host program shares the table of the fusion it was lowered from. */
#ifndef WEIR_IR_WHY_H
#define WEIR_IR_WHY_H

#include <stdint.h>

#include "base/diag.h"

typedef enum ir_rule {
#define RULE(id, name, sentence) IR_RULE_##id,
#include "ir/rules.def"
#undef RULE
  IR_RULE_COUNT
} ir_rule;

typedef struct ir_rule_info {
  const char *name, *sentence;
} ir_rule_info;
const ir_rule_info *ir_rule_info_of(ir_rule rule);

typedef struct ir_why {
  ir_rule rule;
  loc at;           /* USER: the statement; else the operation, or the tensor */
  uint32_t from;    /* the tensor it comes from, an interned name; 0: none */
  uint32_t because; /* the reason before it; 0: none */
} ir_why;

#endif
