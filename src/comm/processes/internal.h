/* Inside the backends mpi and tcp: each rank is a process, and what it says to others goes through
 * a transport (transport.h): MPI, by a loaded module, or TCP.
 *
 * An *engine*, one per group of processes (group.h), owns a link of the transport, a progress
 * thread and all buffers that the transport sees. It serves all worlds of the group. The thread that
 * holds `engine.lock` is its driver: the progress thread, a thread in wait() or progress(), or a
 * poster that finds the lock free. No other thread calls MPI or touches the buffers of requests. Only
 * a driver can declare a world failed; from then on callers may free their buffers.
 *
 * A post becomes a *record*. Posters put theirs into a list, under `engine.submit_lock`, which is
 * held for a few instructions only; drivers take them out. A *queue*, one per team and one per pair
 * (sender, receiver), has the records of all its members in order. The poster's engine tells every
 * other member of the queue by a control message, so each process sees the records of all members,
 * and finds disagreements by itself. When all members have a record at the front the operation
 * runs.
 *
 * Small operations: each member sends what the others need right after (or within) that message,
 * and every member computes the result from it. Large ones: *streams* of chunks between pairs of
 * members (stream.c, run.c), copied through buffers of the engine on both sides. So nothing that
 * MPI still holds after a failure belongs to the caller.
 *
 * Control messages of one rank arrive in order. Locks: `lock` before `submit_lock`. */
#ifndef WEIR_COMM_PROCESSES_INTERNAL_H
#define WEIR_COMM_PROCESSES_INTERNAL_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "comm/processes/group.h"
#include "comm/processes/launch.h"
#include "comm/processes/transport.h"
#include "runtime/comm.h"

enum {
  MPI_MAX_TEAMS = 1024,
  MPI_QUEUE_BITS = 11, /* of a tag: a queue's id as its sender numbers it; above: the world */
  MPI_WINDOW = 4,      /* chunks of a stream under way */
  MPI_CHUNK_BYTES = 128 << 10,
  MPI_CONTROL_BYTES = 4000, /* below what MPIs send at once */
  MPI_SMALL_BYTES = 3072,   /* per piece: travels inside control messages */
  MPI_ORIGIN_BYTES = 256,
  MPI_REASON_BYTES = 1024,
  MPI_LINE_BYTES = 64,
};

typedef struct mpi_engine mpi_engine;
typedef struct mpi_world mpi_world;
typedef struct mpi_queue mpi_queue;
typedef struct mpi_stream mpi_stream;

/* ---- buffers that MPI reads or writes ---- */
typedef enum mpi_io_kind { MPI_IO_SEND, MPI_IO_CHUNK, MPI_IO_CONTROL } mpi_io_kind;

typedef struct mpi_io {
  mpi_engine *engine;
  mpi_io_kind kind;
  bool has_arrived;
  bool is_abandoned;            /* of a world that failed: the other side may never take it */
  size_t room_bytes;            /* of data: MPI_CONTROL_BYTES or MPI_CHUNK_BYTES */
  struct mpi_io *next;          /* in the list of free buffers */
  struct mpi_io *older, *newer; /* in the list of buffers under way */
  mpi_world *world;             /* NULL: the world was closed meanwhile */
  mpi_stream *stream;           /* that counts it; NULL: none does */
  alignas(16) char data[];
} mpi_io;

/* ---- records ---- */
typedef struct mpi_record {
  rt_comm_request request; /* if another rank's, only whether its buffers are NULL counts */
  mpi_queue *queue;
  uint32_t member;
  struct mpi_record *next;
  bool is_local, payload_sent;
  mpi_io *payload; /* of a small operation, from another rank */
  const char *payload_data;
  char origin[MPI_ORIGIN_BYTES]; /* of another rank */
} mpi_record;

/* ---- queues ---- */
/* Bytes from or to one member, in chunks. For sending, `ended` == `begun`: a chunk is copied when it is begun. */
struct mpi_stream {
  const char *from;
  char *to;                   /* NULL: for a reduction, which takes the chunks itself */
  size_t bytes, stride_bytes; /* from one chunk to the next; 0: all are sent from one place */
  uint32_t chunks, begun, ended, in_flight;
  const uint32_t *ready; /* sending: so many chunks exist; NULL: all */
  mpi_io *window[MPI_WINDOW];
};

typedef struct mpi_member {
  _Atomic uint64_t completed; /* posts; a ticket is done at its turn */
  uint64_t posted;            /* here, by post(); under submit_lock */
  mpi_record *head, *tail;    /* not completed */
  mpi_queue *queue;
  uint32_t device;
  uint32_t remote_id;       /* of the queue, as that rank numbers it */
  mpi_stream out[2], in[2]; /* first and second phase */
} mpi_member;

struct mpi_queue {
  mpi_world *world;
  mpi_queue *next_active;
  uint32_t id;      /* of a team; a pair has 0 */
  uint32_t hash, n; /* of members */
  uint32_t me;      /* the member that is this rank; in a message to oneself, the sender */
  bool is_pair;     /* member 0 sends, member 1 receives */
  bool is_announced;
  bool is_running, is_small, is_active;
  uint32_t present,
      first; /* members with a record; the first of them, with which others must agree */
  uint32_t *devices;
  const void **sources; /* room for one of each member, to reduce them */
  /* The running operation. */
  ir_comm_kind kind;
  size_t piece_bytes, slice_bytes, chunk_bytes;
  uint32_t reduced, reduce_chunks; /* chunks of the part that this rank reduces */
  size_t reduce_bytes;
  const char *reduce_own; /* this rank's contribution, or NULL */
  char *reduce_to;        /* NULL: sent on at once, to the root */
  struct {
    const char *from;
    char *to;
    size_t bytes, done;
  } local; /* what stays in this process */
  mpi_member members[];
};

/* ---- worlds ---- */
/* What a world knows of one of its ranks. */
typedef struct mpi_peer {
  bool has_left, has_died;
  mpi_queue **teams; /* by the id that the peer gives them */
  uint32_t *told;    /* the devices of a team, of which it has sent some parts */
  /* Its last answer to the question where it is: */
  uint64_t answered; /* the number of that question */
  int last_kind;     /* -1: has posted nothing */
  bool is_unfinished;
  char last_origin[MPI_ORIGIN_BYTES];
  char where[sizeof((rt_pulse *)0)->where]; /* the place that its program has reached */
} mpi_peer;

typedef enum mpi_state { MPI_WELL, MPI_FAILING, MPI_FAILED } mpi_state;

struct mpi_world {
  rt_comm base;
  mpi_engine *engine;
  const allocator *memory;
  mpi_world *next;
  uint32_t epoch;
  void (*notify)(void *context, uint32_t rank);
  void *context;
  void (*pulse)(void *context, rt_pulse *pulse);
  void *pulse_context;
  int64_t beat_ns;            /* when others were last told, or could have been */
  uint64_t beat_done;         /* what pulse() said then */
  _Atomic int64_t stirred_ns; /* when data moved, or another rank made progress */
  mpi_queue **teams;          /* by id - 1; under submit_lock */
  uint32_t n_teams;
  mpi_queue **pairs;           /* to each rank, then from each rank; under submit_lock */
  mpi_queue *active;           /* queues with an operation that moves chunks */
  _Atomic uint64_t unfinished; /* posts */
  mpi_record *free_records;    /* under submit_lock */
  mpi_peer *peers;             /* by rank */
  int last_kind;               /* of this rank's last post; under submit_lock */
  char last_origin[MPI_ORIGIN_BYTES];
  uint64_t questions;
  /* Failure. It is FAILING until the world's arbiter has decided on a reason. */
  _Atomic int state; /* mpi_state */
  status why;
  char reason[MPI_REASON_BYTES];
  uint32_t arbiter;
  int64_t decide_ns; /* when to decide without the arbiter */
};

/* ---- the engine ---- */
typedef struct mpi_process {
  uint32_t epoch; /* worlds it has opened */
  uint64_t host;  /* equal: on this machine */
  uint64_t cores; /* equal: they may run on the same cores */
  int pid, pid_fd;
  bool is_dead, said_bye;
  int64_t died_ns;
} mpi_process;

/* A thread starts as STARTING. USELESS: the transport did not start, so the thread has ended. */
typedef enum mpi_phase { MPI_STARTING, MPI_RUNNING, MPI_ENDING, MPI_USELESS, MPI_ENDED } mpi_phase;

struct mpi_engine {
  rt_group base;
  uint32_t users;   /* under the lock of the list of engines */
  mpi_engine *next; /* in that list */
  pthread_mutex_t lock, submit_lock;
  mpi_record *submit_first, *submit_last; /* under submit_lock */
  _Atomic bool has_submitted;
  const mpi_transport *transport;
  const void *given; /* the argument of its start() */
  void *link;
  mpi_place place;
  mpi_process *processes; /* by rank */
  mpi_world *worlds;
  uint32_t epochs;
  mpi_io *under_way;
  mpi_io *free_control, *free_chunks;
  mpi_io **control; /* receives, in the order in which they were begun */
  uint32_t control_head;
  bool is_broken;  /* MPI reported an error, or does not answer: it is not called again */
  bool has_failed; /* one of its worlds has failed */
  bool has_moved;  /* chunks have moved since the poll began */
  char broken_text[256];
  char *scratch; /* a chunk */
  int64_t tick_ns;
  uint32_t cores, n_here; /* cores of this machine; ranks on it */
  uint32_t own_cores;     /* cores that this rank may run on */
  bool is_bound;          /* to one core, which other threads of this rank need too */
  bool is_crowded;        /* more ranks run on its cores than there are */
  _Atomic uint32_t waiters;
  _Atomic bool is_awaited; /* a thread that called progress() has nothing else to do */
  _Atomic bool is_starved; /* a stream's window was found nearly empty */
  struct {
    pthread_mutex_t lock;
    pthread_cond_t changed, wake;
    pthread_t handle;
    struct pollfd *sockets; /* what it sleeps on; NULL: the transport has none */
    mpi_phase phase;
    _Atomic bool sleeps;
    bool ends, is_exit;
    status why;
    char reason[256];
  } thread;
};

/* ---- comm.c ---- */
/* Do more of these processes run on the cores of process `me` than it has? */
bool mpi_are_crowded(const mpi_process *processes, uint32_t n, uint32_t me, uint32_t cores);

/* ---- load.c ---- */
/* The transport of the MPI whose launcher started this process. */
NODISCARD status mpi_load(const mpi_transport **result);
/* The transport of the MPI that this process has loaded; if it has none, that of the launcher. */
NODISCARD status mpi_load_present(const mpi_transport **result);
/* Says which modules there are. */
void mpi_examine(rt_say_fn *say, void *context);

/* ---- comm.c ---- */
/* How long to wait for ranks to start, or to open a world. */
int64_t mpi_start_timeout_ns(void);

/* ---- thread.c: the progress thread, starting and ending ---- */
/* Starts the transport on a thread of the engine; waits for the other ranks for a bounded time. `group` is
 * already filled in as far as it is known. The engine has one user. */
NODISCARD status mpi_engine_start(const mpi_transport *transport, const void *given,
                                  const rt_group *group, mpi_engine **result);
void mpi_engine_retain(mpi_engine *e);
/* The last user ends the engine, and waits for other ranks if the transport has `ends_together`. Accepts NULL. */
void mpi_engine_release(mpi_engine *e);
/* Tells the progress thread that there is something to do. */
void mpi_engine_wake(mpi_engine *e);

/* Equal for processes that can see each other's ids: this boot, this process namespace. */
uint64_t mpi_machine_hash(void);

/* ---- engine.c: driving; the lock is held, unless said otherwise ---- */
/* Polls the transport once and handles what ended; false: nothing happened. */
bool mpi_engine_poll(mpi_engine *e);
/* Without the lock: takes it, polls, releases it; false: nothing happened, or another thread drives. */
bool mpi_engine_drive(mpi_engine *e);
/* Without the lock: handles new posts, unless another thread drives, which then handles them. */
void mpi_engine_kick(mpi_engine *e);
void mpi_engine_lock(mpi_engine *e);
void mpi_engine_unlock(mpi_engine *e);
/* A buffer; NULL: no memory, and the engine is broken. */
mpi_io *mpi_io_take(mpi_engine *e, mpi_io_kind kind, size_t room_bytes);
void mpi_io_free(mpi_io *io);
/* Both own the buffer until the transport has ended the request. */
void mpi_io_send(mpi_io *io, mpi_lane lane, uint32_t to, int32_t tag, size_t size_bytes);
void mpi_io_receive(mpi_io *io, mpi_lane lane, int32_t from, int32_t tag, size_t size_bytes);
/* Buffers that are under way no longer belong to this world. */
void mpi_io_detach(mpi_world *w);
void mpi_engine_break(mpi_engine *e, const char *what);
/* Begins to receive control messages. */
bool mpi_engine_listen(mpi_engine *e);
/* Are messages under way that will still reach the other side? */
bool mpi_engine_is_sending(mpi_engine *e);
/* Whether all ranks have said goodbye, or are dead. */
bool mpi_engine_all_said_bye(mpi_engine *e);
/* Frees all buffers of the engine. No thread may drive it any more. */
void mpi_engine_free_buffers(mpi_engine *e);
/* Waits a little; `tries` counts from 0 since something happened. */
void mpi_pause(uint32_t tries);

/* ---- message.c: control messages; the lock is held ---- */
void mpi_say_open(mpi_engine *e, uint32_t epoch);
void mpi_say_bye(mpi_engine *e);
void mpi_say_leave(mpi_world *w);
void mpi_say_reason(mpi_world *w, bool is_verdict, uint32_t to);
/* Tells all ranks that this rank makes progress. */
void mpi_say_beat(mpi_world *w);
void mpi_say_question(mpi_world *w, uint32_t to);
/* Sends a local record, with its payloads if it is small and at the front. */
void mpi_say_post(mpi_queue *q, mpi_record *r);
/* Sends the payloads of a local record that has come to the front. */
void mpi_say_payload(mpi_queue *q, mpi_record *r);
/* Handles a message; false: it keeps the buffer. */
bool mpi_hear(mpi_io *io);

/* ---- world.c ---- */
mpi_world *mpi_world_create(mpi_engine *e, const rt_comm_options *options, const allocator *memory,
                            const rt_comm_ops *ops, uint32_t epoch);
void mpi_world_destroy(mpi_world *w);
mpi_world *mpi_world_of(mpi_engine *e, uint32_t epoch);
/* Find or create; submit_lock is held. */
NODISCARD status mpi_team(mpi_world *w, const uint32_t *devices, uint32_t n, mpi_queue **result);
NODISCARD status mpi_pair(mpi_world *w, bool sends, uint32_t other, mpi_queue **result);
mpi_record *mpi_record_take(mpi_world *w);
/* The lock is held in all of these. The first reason wins on all ranks. */
void mpi_world_fail(mpi_world *w, status why, const char *reason);
void mpi_world_decide(mpi_world *w, status why, const char *reason, bool tell);
/* The next queue from *i on, which counts from 0; NULL: no more. */
mpi_queue *mpi_world_queue(mpi_world *w, uint32_t *i);
void mpi_world_tick(mpi_world *w, int64_t now_ns);
/* Notes that data moved, or that a rank said that it makes progress. */
void mpi_world_stir(mpi_world *w);
void mpi_world_peer_gone(mpi_world *w, uint32_t rank);
/* Called without the lock. Drives until a failing world has failed. */
void mpi_world_settle(mpi_world *w);
static inline mpi_state mpi_world_state(const mpi_world *w) {
  return (mpi_state)atomic_load(&w->state);
}

/* ---- queue.c: matching; the lock is held ---- */
/* Appends a record to those of its member. */
void mpi_queue_add(mpi_queue *q, mpi_record *r);
/* Runs the operations that can run; moves chunks only if `chunks` is set. */
void mpi_queue_advance(mpi_queue *q, bool chunks);
/* Fails the world if this queue's post waits for a rank that is gone. */
void mpi_queue_check_gone(mpi_queue *q);

/* ---- run.c: operations; the lock is held ---- */
bool mpi_op_is_small(const rt_comm_request *r);
/* What member a sends to member b if everything goes directly: its place in a's input; false: nothing. */
bool mpi_op_moves(const mpi_queue *q, const rt_comm_request *r, uint32_t a, uint32_t b,
                  size_t *offset);
bool mpi_small_is_ready(const mpi_queue *q);
void mpi_small_run(mpi_queue *q);
void mpi_op_begin(mpi_queue *q);
/* Moves the chunks that can move; true: the operation is over. */
bool mpi_op_step(mpi_queue *q, bool *moved);

/* ---- stream.c ---- */
void mpi_stream_open(mpi_stream *s, const mpi_queue *q, const char *from, char *to, size_t bytes);
bool mpi_stream_send(mpi_queue *q, uint32_t member, uint32_t phase);
bool mpi_stream_receive(mpi_queue *q, uint32_t member, uint32_t phase);
/* The next chunk in order, or NULL; it stays in the stream until it is released. */
const char *mpi_stream_chunk(const mpi_stream *s);
void mpi_stream_release(mpi_stream *s);
static inline bool mpi_stream_is_over(const mpi_stream *s) { return s->ended == s->chunks; }
/* Bytes of chunk c of `bytes`. */
size_t mpi_chunk_bytes(const mpi_queue *q, size_t bytes, uint32_t c);

/* ---- describe.c; without the lock ---- */
void mpi_describe(rt_comm *comm, const rt_comm_ticket *ticket, char *text, size_t size_bytes);
/* Called with the lock. Says what the member of this rank, or another, waits for; "": none waits. */
void mpi_describe_waiter(mpi_queue *q, char *text, size_t size_bytes);

static inline bool mpi_half_is_complete(const rt_comm_ticket *t, uint32_t half) {
  const mpi_member *m = t->half[half].where;
  return !m || atomic_load(&m->completed) >= t->half[half].turn;
}

static inline bool mpi_is_complete(const rt_comm_ticket *t) {
  return mpi_half_is_complete(t, 0) && mpi_half_is_complete(t, 1);
}

#endif
