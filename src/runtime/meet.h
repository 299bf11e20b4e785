/* Matches posts: the k-th of every member of a team, the k-th send and receive of a pair. The checker, the simulator,
 * traces and devices all use this; each keeps what it needs of a meeting. */
#ifndef WEIR_RUNTIME_MEET_H
#define WEIR_RUNTIME_MEET_H

#include "base/table.h"
#include "base/vec.h"
#include "runtime/plan.h"

/* A team, or a sender and its receiver, whose posts are matched. Communications of one circle take effect in order;
 * between circles there is no order. */
typedef struct rt_circle {
  bool is_pair;
  uint32_t n;
  const uint32_t *devices; /* by member; of a pair 0 sends and 1 receives */
  uint32_t *turns;         /* by member: posts so far */
} rt_circle;

/* The part of a post in a meeting: it is the post number `turn` of member `member` of a circle. */
typedef struct rt_part {
  uint32_t circle; /* RT_NO_CIRCLE: the post has no such part */
  uint32_t member, turn;
} rt_part;
enum { RT_NO_CIRCLE = UINT32_MAX };

typedef struct rt_meet {
  arena *memory;
  table known;
  VEC(rt_circle) circles;
  const uint32_t *team; /* of the last collective, and its circle */
  uint32_t n_team, circle;
} rt_meet;

void rt_meet_init(rt_meet *m, arena *memory);
/* Enters the next post of a rank. parts[0]: in a collective, or as the sender of a message; parts[1]: as the receiver. A
 * permute may have both. Only inside a memory_guard(). */
void rt_meet_post(rt_meet *m, const rt_post *p, rt_part parts[2]);

#endif
