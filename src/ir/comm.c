#include "ir/comm.h"

static const ir_comm_info comms[] = {
#define COMM(id, text, nvfuser, in, out, root, combines, in_place, way)                            \
  {text,           nvfuser,  IR_PIECES_##in, IR_PIECES_##out,                                      \
   IR_ROOT_##root, combines, in_place,       IR_WAY_##way},
#include "ir/comms.def"
};

const ir_comm_info *ir_comm_info_of(ir_comm_kind kind) { return &comms[kind]; }
const char *ir_comm_text(ir_comm_kind kind) { return comms[kind].text; }
bool ir_comm_combines(ir_comm_kind kind) { return comms[kind].combines; }
bool ir_comm_has_root(ir_comm_kind kind) { return comms[kind].root != IR_ROOT_NO; }
bool ir_comm_is_message(ir_comm_kind kind) { return comms[kind].way == IR_WAY_PAIR; }

double ir_comm_bytes(ir_comm_kind kind, double piece_bytes, uint32_t n, uint32_t me,
                     uint32_t root) {
  const ir_comm_info *info = &comms[kind];
  double others = (double)n - 1;
  bool receives = info->root == IR_ROOT_RECEIVES && me == root;
  bool ends_chain = info->root == IR_ROOT_SENDS && (me + 1) % (n ? n : 1) == root;
  if (n <= 1) return 0;
  switch (info->way) {
  case IR_WAY_CHAIN: return receives || ends_chain ? 0 : piece_bytes;
  case IR_WAY_RING:
    if (info->root == IR_ROOT_RECEIVES) return receives ? 0 : piece_bytes;
    return info->root == IR_ROOT_NO || me == root ? others * piece_bytes : 0;
  case IR_WAY_TWICE: return 2 * others / (double)n * piece_bytes;
  case IR_WAY_PAIR: return kind == IR_COMM_RECV ? 0 : piece_bytes;
  }
  return 0;
}

double ir_comm_bytes_in(ir_comm_kind kind, double piece_bytes, uint32_t n, uint32_t me,
                        uint32_t root) {
  const ir_comm_info *info = &comms[kind];
  bool is_root = me == root;
  if (n <= 1 || kind == IR_COMM_SEND) return 0;
  double all = info->way == IR_WAY_RING ? ((double)n - 1) * piece_bytes : piece_bytes;
  if (info->way == IR_WAY_TWICE) all *= 2 * ((double)n - 1) / (double)n;
  if (info->root == IR_ROOT_SENDS) return is_root ? 0 : piece_bytes;
  if (info->root == IR_ROOT_RECEIVES) return is_root ? all : 0;
  return all;
}

double ir_comm_link_bytes(ir_comm_kind kind, double piece_bytes, uint32_t n) {
  double others = (double)n - 1;
  switch (comms[kind].way) {
  case IR_WAY_CHAIN: return n > 1 ? piece_bytes : 0;
  case IR_WAY_RING: return piece_bytes * others;
  case IR_WAY_TWICE: return 2 * piece_bytes * others / (double)n;
  case IR_WAY_PAIR: return piece_bytes;
  }
  return 0;
}

static const struct {
  const char *text;
  bool bitwise;
} combines[] = {
#define COMBINE(id, text, bitwise) {text, bitwise},
#include "ir/comms.def"
};

const char *ir_combine_text(ir_combine c) { return combines[c].text; }

bool ir_combine_allows(ir_combine c, ir_dtype dtype) {
  return !combines[c].bitwise || !ir_dtype_is_float(dtype);
}
