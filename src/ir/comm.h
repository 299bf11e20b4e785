/* The words of communication (comms.def): kinds, and how partial results are combined. */
#ifndef WEIR_IR_COMM_H
#define WEIR_IR_COMM_H

#include <stdbool.h>

typedef enum ir_comm_kind {
#define COMM(id, text, nvfuser, root, reduces) IR_COMM_##id,
#include "ir/comms.def"
  IR_COMM_COUNT
} ir_comm_kind;

typedef struct ir_comm_info {
  const char *text, *nvfuser;
  bool has_root, reduces;
} ir_comm_info;
const ir_comm_info *ir_comm_info_of(ir_comm_kind kind);

typedef enum ir_combine {
#define COMBINE(id, text) IR_COMBINE_##id,
#include "ir/comms.def"
  IR_COMBINE_COUNT
} ir_combine;
const char *ir_combine_text(ir_combine c);

#endif
