/* The words of communication (comms.def): kinds, how partial results are combined, and how many
 * bytes are moved. Host programs, plans, backends, the checker, costs and devices all use these. */
#ifndef WEIR_IR_COMM_H
#define WEIR_IR_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h"

typedef enum ir_comm_kind {
#define COMM(id, ...) IR_COMM_##id,
#include "ir/comms.def"
  IR_COMM_COUNT
} ir_comm_kind;

enum { IR_COMM_POSTED = IR_COMM_SEND_RECV }; /* kinds below this one can be posted */

typedef enum ir_comm_pieces { IR_PIECES_ONE, IR_PIECES_TEAM } ir_comm_pieces;
typedef enum ir_comm_root { IR_ROOT_NO, IR_ROOT_SENDS, IR_ROOT_RECEIVES } ir_comm_root;
typedef enum ir_comm_way { IR_WAY_CHAIN, IR_WAY_RING, IR_WAY_TWICE, IR_WAY_PAIR } ir_comm_way;

typedef struct ir_comm_info {
  const char *text, *nvfuser;
  ir_comm_pieces in, out;
  ir_comm_root root;
  bool combines, in_place;
  ir_comm_way way;
} ir_comm_info;
const ir_comm_info *ir_comm_info_of(ir_comm_kind kind);
/* Does the input of a member consist of a piece for each member of the team? Does its output? */
static inline bool ir_comm_in_pieces(ir_comm_kind kind) {
  return ir_comm_info_of(kind)->in == IR_PIECES_TEAM;
}
static inline bool ir_comm_out_pieces(ir_comm_kind kind) {
  return ir_comm_info_of(kind)->out == IR_PIECES_TEAM;
}

const char *ir_comm_text(ir_comm_kind kind);
bool ir_comm_combines(ir_comm_kind kind);
bool ir_comm_has_root(ir_comm_kind kind);
/* Between two members, and matched by pair: send, recv, permute, send_recv. */
bool ir_comm_is_message(ir_comm_kind kind);

/* Bytes that member `me` of a team of n sends, for pieces of `piece_bytes`. `me`, `root`: positions in the
 * team. */
double ir_comm_bytes(ir_comm_kind kind, double piece_bytes, uint32_t n, uint32_t me, uint32_t root);
/* Bytes that this member receives. */
double ir_comm_bytes_in(ir_comm_kind kind, double piece_bytes, uint32_t n, uint32_t me,
                        uint32_t root);
/* Bytes over the link of the member with the most to send or receive. */
double ir_comm_link_bytes(ir_comm_kind kind, double piece_bytes, uint32_t n);

/* Integers wrap; min and max give NaN if one element is NaN. For bool, sum and max mean `or`, prod and min
 * mean `and`. The combinations and, or, xor are for integers (bitwise) and bool. */
typedef enum ir_combine {
#define COMBINE(id, text, bitwise) IR_COMBINE_##id,
#include "ir/comms.def"
  IR_COMBINE_COUNT
} ir_combine;
const char *ir_combine_text(ir_combine c);
bool ir_combine_allows(ir_combine c, ir_dtype dtype);

#endif
