/* Inside the in-process backend: ranks are threads of one process, and read each other's memory.
 *
 * A *queue* matches posts: one per team, and one per pair (sender, receiver). Each member's posts
 * are in order; when all members have one, the operation at the front runs, one per queue at a time.
 *
 * Running it is cut into *parts*, one per member (what that member would do in a textbook algorithm),
 * and parts into *chunks*. A thread that calls progress() or wait(), of whatever rank, takes chunks: those
 * of its own part first, then the others'. So nothing depends on a certain thread being scheduled,
 * and with fewer cores than ranks a few threads do all the work while the others sleep.
 *
 * A chunk is taken by shortening the part's `left`. That also tells that the operation cannot end, and
 * its description cannot change, before the chunk is reported done. A thread that comes late, to a
 * queue that went on to its next operation meanwhile, simply takes a chunk of that one.
 *
 * Locks: a queue's `lock` is held for matching only, never while data move. `world->registry` guards
 * the creation of queues, `world->reason_lock` the message of a failure; both are innermost. */
#ifndef WEIR_COMM_INPROC_INPROC_H
#define WEIR_COMM_INPROC_INPROC_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "runtime/comm.h"

enum {
  INPROC_LINE_BYTES = 64,
  INPROC_MAX_TEAMS = 1024,
  INPROC_TEAM_SLOTS = 4 * INPROC_MAX_TEAMS, /* of the hash table */
  INPROC_REASON_BYTES = 1024,
};

/* One post. A member's records form a ring that grows when it is full. */
typedef struct inproc_record {
  rt_comm_request request;
  struct inproc_record *next;
} inproc_record;

typedef struct inproc_rank inproc_rank;
typedef struct inproc_queue inproc_queue;
typedef struct inproc_world inproc_world;

/* Chunks [begin, end) of a part in one word. A rank takes its own from the front, others from the
 * back, so that in repeated operations the same core tends to move the same data. */
static inline uint64_t inproc_range(uint32_t begin, uint32_t end) {
  return (uint64_t)end << 32 | begin;
}
static inline uint32_t inproc_range_begin(uint64_t r) { return (uint32_t)r; }
static inline uint32_t inproc_range_end(uint64_t r) { return (uint32_t)(r >> 32); }

/* What one rank has on one queue. */
typedef struct inproc_member {
  alignas(
      INPROC_LINE_BYTES) _Atomic uint64_t completed; /* posts done; a ticket is done at its turn */
  uint64_t posted;                                   /* by this rank; under the lock */
  inproc_record *head, *tail;                        /* oldest not done; next free */
  inproc_record *blocks;                             /* all its records, to free them */
  inproc_rank *rank;
  inproc_queue *queue;
  alignas(INPROC_LINE_BYTES) _Atomic uint64_t left; /* inproc_range of chunks not taken yet */
  _Atomic bool is_tended;                           /* a thread takes them from the front */
  uint32_t chunks;                                  /* of its part */
  const void *in;                                   /* of the running operation */
  char *out;
} inproc_member;

/* How the parts of an operation divide it (n members, pieces of B bytes). */
typedef enum inproc_cut {
  INPROC_SLICES, /* part p is the p-th of n slices of B */
  INPROC_PIECE,  /* part p is the whole of piece p */
  INPROC_PIECES, /* part p is n pieces: all that member p receives */
} inproc_cut;

/* The running operation. */
typedef struct inproc_job {
  ir_comm_kind kind;
  ir_combine op;
  ir_dtype dtype;
  uint32_t root;
  inproc_cut cut;
  bool streams; /* large: past the caches */
  size_t piece_bytes, slice_bytes, chunk_bytes;
} inproc_job;

struct inproc_queue {
  inproc_world *world;
  void *block; /* what to free */
  uint32_t id, n;
  bool is_pair;       /* member 0 sends, member 1 receives */
  uint32_t *devices;  /* of the members */
  int32_t *positions; /* by rank: which member, or -1 */
  pthread_mutex_t lock;
  uint32_t present;  /* members that have a post */
  uint32_t first;    /* the first of them to post, with which the others must agree */
  bool is_running;   /* there is a job */
  inproc_job job;    /* belongs to those who hold a chunk; else to the holder of the lock */
  uint64_t finished; /* operations */
  /* The buffers that the job reads and writes, of all members that have one. */
  const void **ins;
  char **outs;
  uint32_t n_ins, n_outs;
  alignas(INPROC_LINE_BYTES) _Atomic uint32_t remaining; /* chunks not done */
  alignas(INPROC_LINE_BYTES) _Atomic uint32_t helpers;   /* threads that may touch buffers */
  inproc_member members[];
};

struct inproc_rank {
  rt_comm base;
  inproc_world *world;
  _Atomic(const char *) last_origin; /* of its last post, for messages */
  _Atomic int last_kind;             /* -1: none */
  _Atomic uint64_t posts, ended;
  _Atomic bool left;
  alignas(INPROC_LINE_BYTES) _Atomic uint32_t events; /* futex: changes when a sleeper must look */
  _Atomic uint32_t sleepers;
};

struct inproc_world {
  const allocator *memory;
  void *block; /* what to free */
  uint32_t n_ranks, cores;
  size_t cache_bytes; /* shared by the cores */
  _Atomic uint32_t open_ranks;
  void (*notify)(void *context, uint32_t rank);
  void *context;
  pthread_mutex_t registry;
  _Atomic uint32_t n_queues;
  uint32_t n_teams;
  _Atomic(inproc_queue *) *queues; /* by id */
  _Atomic(inproc_queue *) *teams;  /* hash table, open addressing */
  _Atomic(inproc_queue *) *pairs;  /* by sender * n_ranks + receiver */
  _Atomic uint64_t *active;        /* bits by id: has a job */
  pthread_mutex_t reason_lock;
  status why;
  char reason[INPROC_REASON_BYTES];
  alignas(INPROC_LINE_BYTES) _Atomic bool failed;
  inproc_rank ranks[]; /* by rank */
};

/* ---- world.c: queues, failure ---- */
inproc_world *inproc_world_create(const rt_comm_options *options, const allocator *memory,
                                  const rt_comm_ops *ops); /* NULL: no memory */
/* The last one to leave frees the world. */
void inproc_leave(inproc_rank *r);
NODISCARD status inproc_team(inproc_world *w, const uint32_t *devices, uint32_t n,
                             inproc_queue **result);
NODISCARD status inproc_pair(inproc_world *w, uint32_t sender, uint32_t receiver,
                             inproc_queue **result);
/* Memory aligned to a cache line and zeroed; *block is what to free. */
void *inproc_alloc(const allocator *memory, size_t size_bytes, void **block);
/* First reason wins. Wakes all sleepers. */
void inproc_fail(inproc_world *w, status why, const char *reason);
/* True if no thread moves data of this rank. Only after a failure does it stay true. */
bool inproc_is_quiet(inproc_rank *r);
void inproc_quiesce(inproc_rank *r);

/* ---- queue.c: matching ---- */
NODISCARD status inproc_enqueue(inproc_queue *q, uint32_t member, const rt_comm_request *request,
                                rt_comm_ticket *ticket, uint32_t half);
/* Moves at most `budget` chunks of the running operation, those of part `first` before others, and
 * ends the operation if they were the last. If another thread works on a part, the last `leave` chunks
 * of it are left to that thread: otherwise it would have to fetch them from another core's cache the
 * next time. */
bool inproc_help(inproc_queue *q, uint32_t first, uint32_t budget, uint32_t leave);

/* ---- describe.c: which rank waits for which ---- */
void inproc_describe(rt_comm *comm, const rt_comm_ticket *ticket, char *text, size_t size_bytes);
/* What some member of this queue waits for, or "". */
void inproc_describe_waiter(inproc_queue *q, char *text, size_t size_bytes);

/* ---- move.c: data ---- */
/* Fills in the job and the members' parts from the posts at the front; the number of chunks. */
uint32_t inproc_job_make(inproc_queue *q);
bool inproc_job_is_small(const inproc_queue *q);
void inproc_chunk_run(const inproc_queue *q, uint32_t part, uint32_t chunk);

/* ---- wait.c: sleeping ---- */
bool inproc_progress(rt_comm *comm);
status inproc_wait(rt_comm *comm, const rt_comm_ticket *ticket, int64_t timeout_ns);
/* True if the ticket is done; and if it never will be, and the caller may use its buffers again. */
bool inproc_done(rt_comm *comm, const rt_comm_ticket *ticket);
/* Wakes up to `most` sleeping members of the queue. */
void inproc_wake(inproc_queue *q, uint32_t most);
void inproc_wake_rank(inproc_rank *r);

static inline bool inproc_half_is_complete(const rt_comm_ticket *t, uint32_t half) {
  const inproc_member *m = t->half[half].where;
  return !m || atomic_load(&m->completed) >= t->half[half].turn;
}

static inline bool inproc_is_complete(const rt_comm_ticket *t) {
  return inproc_half_is_complete(t, 0) && inproc_half_is_complete(t, 1);
}

static inline inproc_world *inproc_world_of(rt_comm *comm) { return ((inproc_rank *)comm)->world; }

#endif
