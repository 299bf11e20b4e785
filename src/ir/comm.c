#include "ir/comm.h"

static const ir_comm_info comms[] = {
#define COMM(id, text, nvfuser, root, reduces) {text, nvfuser, root, reduces},
#include "ir/comms.def"
};

const ir_comm_info *ir_comm_info_of(ir_comm_kind kind) { return &comms[kind]; }

const char *ir_combine_text(ir_combine c) {
  static const char *const texts[] = {
#define COMBINE(id, text) text,
#include "ir/comms.def"
  };
  return texts[c];
}
