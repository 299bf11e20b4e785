/* Which of the equivalent programs runs: the policy.
 *
 * Lowering can make several programs that compute the same: as the fusion is marked, with other forms of its
 * pipelines, or without streams. The cost model says how long each takes for the extents of a run, and the fastest
 * is taken. This room decides; how a program is bound to its extents is the caller's knowledge, given as a function. */
#ifndef WEIR_CHOOSE_CHOOSE_H
#define WEIR_CHOOSE_CHOOSE_H

#include "ir/bind.h"
#include "runtime/device.h"
#include "runtime/plan.h"

/* Streams are added only for as many ranks as are simulated together. */
enum { CHOOSE_MAX_VARIANTS = 3, CHOOSE_MOST_RANKS = 64 };

/* The same program with other streams. */
typedef struct choose_variant {
  ir_func *host;
  const char *pass;  /* that makes it, an optional one */
  const char *added; /* the statements that it adds, which the user did not write; NULL: none */
} choose_variant;

typedef struct choose_variants {
  choose_variant list[CHOOSE_MAX_VARIANTS];
  uint32_t n;    /* 0: there is no choice */
  uint8_t plain; /* the one without streams: 0 is the program as it is marked, i variant i - 1 */
  /* What to print of the program that is chosen: of the one as it is marked, and of these; NULL: nothing. */
  const char *shown[1 + CHOOSE_MAX_VARIANTS];
} choose_variants;

/* The ranks and the machine that a choice is made for. */
typedef struct choose_world {
  const allocator *memory;
  rt_speed speed; /* what a rank gets of the machine */
  uint32_t ranks; /* all of them */
  uint32_t rank;  /* the one that is looked at where all do the same */
  /* One rank's plan of env->func; destroyed by the caller. `like`: that of another rank, or NULL. */
  status (*bind)(void *context, const ir_env *env, uint32_t rank, const rt_plan *like,
                 rt_plan **result);
  /* The same with all waits of the host program, also those that it can do without. */
  status (*bind_waits)(void *context, const ir_env *env, uint32_t rank, rt_plan **result);
  void *context;
} choose_world;

typedef struct choose_choice {
  uint8_t best;     /* 0: the program as it is marked; i: variant i - 1 */
  uint8_t streamed; /* the fastest with some streams */
  /* What the model says of it, of the one without streams, and of the fastest with some. */
  double ns, plain_ns, streamed_ns;
  int64_t
      too_large_bytes; /* of buffers per device: more than the limit, so it was not taken; 0: it was */
} choose_choice;

/* Among `marked` and at least one variant. */
NODISCARD status choose_pick(const choose_world *w, const ir_env *env, ir_func *marked,
                             const choose_variants *v, choose_choice *result);
/* Of a program whose streams are not used: the times that the simulator predicts for all ranks take the place of the
 * model's for one, if they are soon known and agree with the choice. */
NODISCARD status choose_simulate_times(const choose_world *w, const ir_env *env, ir_func *marked,
                                       const choose_variants *v, choose_choice *choice);

#endif
