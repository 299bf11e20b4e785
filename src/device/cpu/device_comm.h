/* Communications of a loaded program, as both executors need them: posting, looking, giving up.
 *
 * A post is in one state, which only goes forward: unposted, posted, done; or skipped, after an error. That of a loop
 * goes through them in each repetition: it is done before it is posted again (rt_loop).
 * A stream at a join may pass in the last two. It is never let past a communication that may still
 * touch its buffers, so when all streams are done, the caller's memory is the caller's again.
 *
 * Errors. A failed task or a refused post leaves the others as they are: what comes before it in the
 * plan still runs, nothing after it does. When nothing moves any more (or the run is over) the executor
 * aborts the world, and all joins pass. A world that has failed stops the run at once. */
#ifndef WEIR_DEVICE_CPU_DEVICE_COMM_H
#define WEIR_DEVICE_CPU_DEVICE_COMM_H

#include "device/cpu/device.h"
#include "runtime/fault.h"

/* What attach() gave: endpoints by rank in the plan. */
typedef struct cpu_world {
  rt_comm *endpoints[RT_COMM_MAX_RANKS];
  uint32_t n;
  int64_t timeout_ns; /* <= 0: never */
  rt_fault fault;     /* for tests */
} cpu_world;

void cpu_world_attach(cpu_world *w, rt_comm *const *endpoints, uint32_t n, int64_t timeout_ns);

typedef enum cpu_post_state { CPU_UNPOSTED, CPU_POSTED, CPU_DONE, CPU_SKIPPED } cpu_post_state;

/* Where a post is in the plan. */
typedef struct cpu_post_place {
  uint32_t instr;
  uint16_t stream, rank; /* rank: in the plan */
} cpu_post_place;

/* The ticket of a post, which a loop writes again while others may still look. */
typedef struct cpu_ticket {
  _Atomic(void *) where[2];
  _Atomic uint64_t turn[2];
} cpu_ticket;

typedef struct cpu_comms {
  cpu_program *program;
  const cpu_world *world;
  cpu_errors *errors;
  uint32_t n;                /* posts; 0: the plan does not communicate, and nothing below is set */
  uint32_t n_ranks;          /* of the plan */
  cpu_post_place *at;        /* by post */
  _Atomic uint64_t *states;  /* by post: the repetition << 2 | its cpu_post_state */
  cpu_ticket *tickets;       /* by post; of those posted */
  _Atomic uint32_t *span_of; /* by post: the number of its last span */
  const char **places;       /* "file:7" by host instruction */
  bool *told;                /* by rank: the message names what it waits for */
  _Atomic bool stopped;      /* the world has failed */
  _Atomic uint32_t oldest;   /* traced runs: posts before it are done */
  rt_span *spans;            /* of the posts, as they are numbered without loops; or NULL */
  int64_t origin_ns;
} cpu_comms;

/* Checks that the endpoints fit the plan, and prepares its teams. */
NODISCARD status cpu_comms_init(cpu_comms *c, cpu_program *program, const cpu_world *world,
                                cpu_errors *errors);
/* A run begins. `spans`: of the whole run, or NULL. */
NODISCARD status cpu_comms_begin(cpu_comms *c, rt_span *spans, int64_t origin_ns);
/* The entry of an RT_POST. */
void cpu_comms_post(cpu_comms *c, const rt_entry *entry, uint32_t thread);
/* Whether an RT_JOIN of this post, in the repetition, lets its stream go on. */
bool cpu_comms_passed(cpu_comms *c, uint32_t post, uint32_t turn);
/* Whether it is under way; `turn` is then the repetition. */
bool cpu_comms_is_posted(const cpu_comms *c, uint32_t post, uint32_t *turn);
/* Whether the stream may go past its entry, an RT_JOIN, or begin it, an RT_POST: posts of one team keep
 * their order, on whatever streams they are. */
bool cpu_comms_may_pass(cpu_comms *c, const rt_entry *entry);
/* Does some of the work that waits, at the endpoint whose turn it is, or at the first that has any. */
bool cpu_comms_progress(cpu_comms *c, uint32_t turn);
bool cpu_comms_progress_any(cpu_comms *c);

/* When another process was last heard of; 0: never. */
int64_t cpu_world_stirred_ns(const cpu_world *w);

/* Whether a task or post failed while the world goes on. */
bool cpu_comms_is_failing(const cpu_comms *c);
/* Ends the world for that. */
void cpu_comms_abort(cpu_comms *c);
/* Ends the world because nothing moves; `joins`: the RT_JOINs that streams are at, which it sorts. */
void cpu_comms_time_out(cpu_comms *c, uint32_t *joins, uint32_t n);
/* All streams are done: waits for what no stream joined, and settles which error the run has. */
void cpu_comms_end(cpu_comms *c);

#endif
