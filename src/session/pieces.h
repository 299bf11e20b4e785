/* Cuts whole tensors into the pieces that devices hold, and assembles whole tensors from pieces. */
#ifndef WEIR_SESSION_PIECES_H
#define WEIR_SESSION_PIECES_H

#include "runtime/piece.h"
#include "session/ranks.h"

/* Checks that `shard` has the shape of the piece that `device` holds. `side` and `name` are for the message. */
NODISCARD status session_shard_check(const char *side, const char *name, const rt_piece *piece,
                                     int64_t device, const ir_array *shard);

/* Where the pieces of a plan's inputs and outputs are; made once per plan. */
typedef struct session_pieces session_pieces;
NODISCARD status session_pieces_make(const session_ranks *r, const ir_func *host, const ir_env *env,
                                     const allocator *memory, session_pieces **result);
void session_pieces_destroy(session_pieces *p); /* accepts NULL */
/* Cuts the inputs and returns the addresses for the device, rank by rank. Dense shards are used where
 * they are. */
NODISCARD status session_pieces_cut(session_pieces *p, const session_arrays *inputs,
                                    const session_arrays *outputs, void ***in, void ***out);
/* Assembles the outputs in rank 0's process, or writes them to the shards. CHECK_FAILED if devices that should
 * hold the same part of a whole output hold different values. */
NODISCARD status session_pieces_assemble(session_pieces *p, const ir_env *env,
                                         const session_arrays *outputs);

/* At rank 0: receives a piece of a tensor from rank `from` and writes it into `whole`. */
NODISCARD status session_piece_receive(const session_ranks *r, uint32_t from,
                                       const allocator *memory, const rt_piece *piece,
                                       const ir_array *whole);

#endif
