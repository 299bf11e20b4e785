/* The communication interface: ranks post requests and ask whether they are done.
 *
 * A world has n ranks, each of which is one device. A process opens the endpoints of its ranks: all
 * of them in one process (inproc), or one (mpi). What a plan needs:
 *
 *   POST  a compute thread calls post() when the stream gets there, and goes on: post() neither
 *         blocks nor, once a team has been used before, allocates;
 *   JOIN  the stream is not run until done() is true. Threads that have nothing else to do call
 *         progress(): in process, these threads move the data.
 *
 * Matching. Collectives on one team (the same devices in the same order) are matched by position: the
 * k-th post of one member meets the k-th of every other. Messages are matched per (sender, receiver)
 * in order, whatever team they were posted with. Different teams and different pairs are independent.
 * All posts of one rank on one team, or one pair, must be ordered by the plan.
 *
 * Order. Posts on one team, or one pair, take effect in posting order, as on one stream, so several
 * may be in flight over the same buffers. Between different teams only done() orders anything.
 *
 * Done means that `out` is written and `in` may be overwritten or freed.
 *
 * Errors. A world fails as a whole and for ever: by a mismatch, by a timeout, by a rank that leaves
 * while others wait for it, by abort(). Then every ticket becomes done once its buffers are no longer
 * touched, every wait() ends, and all return the same status and message: the first one.
 *
 * docs/comm.md has the contract in full. */
#ifndef WEIR_RUNTIME_COMM_H
#define WEIR_RUNTIME_COMM_H

#include "base/memory.h"
#include "ir/comm.h"
#include "runtime/examine.h"

/* Of ranks that exchange data; those that are only checked or simulated may be more. */
enum { RT_COMM_MAX_RANKS = 1 << 14, RT_COMM_NOBODY = -1 };

/* Buffers are dense and aligned for their dtype. Pieces of a buffer are contiguous, in team order.
 * `in` and `out` are apart, or in place as in NCCL:
 *   in == out                  broadcast, reduce, allreduce
 *   in == out + me pieces      allgather, gather
 *   out == in + me pieces      reduce_scatter, scatter
 * A member that is not the root has no `out` in gather and reduce, no `in` in broadcast and scatter
 * (NULL; what is given is ignored). The root may lack the other one too: without `in` it contributes
 * nothing to a gather or reduce, without `out` it receives nothing from a broadcast or scatter. */
typedef struct rt_comm_request {
  ir_comm_kind kind;
  ir_combine op; /* reduce, allreduce, reduce_scatter */
  ir_dtype dtype;
  const uint32_t *team; /* device ids, all different; the position is the team rank */
  uint32_t n_team;
  uint32_t me;        /* team rank of the poster */
  uint32_t root;      /* team rank: broadcast, gather, scatter, reduce */
  int32_t to, from;   /* team ranks: send, recv, permute. Permute: one of them may be NOBODY */
  int64_t count;      /* elements per piece; permute: sent */
  int64_t count_from; /* permute: elements received */
  const void *in;
  void *out;
  const char *origin; /* where the program says so, "file:12"; for messages; NULL: unknown */
} rt_comm_request;
/* `team` and `origin` must live until the ticket is done; the request itself need not. */

/* Two words per half: a permute waits for two messages. Opaque; copies are tickets too, and remain
 * valid until the endpoint is closed, so any number of streams may wait for one. */
typedef struct rt_comm_ticket {
  struct {
    void *where;
    uint64_t turn;
  } half[2];
} rt_comm_ticket;

/* What a rank does besides communicating. */
typedef struct rt_pulse {
  uint64_t done;   /* instructions so far */
  bool is_busy;    /* executing one, or something else that others may wait for */
  char where[128]; /* the place in its program, "file:12", or "" */
} rt_pulse;

/* Connected processes, each of them one rank. They may open any number of worlds in the group, all in the
 * same order. Reference-counted: an owner retains it. */
typedef struct rt_group rt_group;

typedef struct rt_comm_options {
  rt_group *group;  /* NULL: that of the launcher, where the backend knows groups */
  uint32_t ranks;   /* of the world; 0: what the launcher says (inproc: must be given) */
  int64_t start_ns; /* how long to wait for other processes to connect; 0: the backend's default */
  /* Called from any thread when a ticket of `rank` became done, or there is work in which progress()
   * of `rank` can help; for executors whose threads sleep. Must not block or call back. May be NULL. */
  void (*notify)(void *context, uint32_t rank);
  void *context;
  /* Called now and then, from any thread. Ranks in other processes that wait for this one are told, and do not give
   * up while it is busy. Must not block or call back. NULL: this rank is never busy. */
  void (*pulse)(void *pulse_context, rt_pulse *pulse);
  void *pulse_context;
} rt_comm_options;

typedef struct rt_comm rt_comm; /* an endpoint: one rank */

typedef struct rt_comm_ops {
  const char *name;
  const char *summary; /* one sentence, for `weir list comms` */
  /* Opens the endpoints of this process's ranks into `endpoints`, which has room for `room`. */
  status (*open)(const rt_comm_options *options, const allocator *memory, uint32_t room,
                 rt_comm **endpoints, uint32_t *count);
  /* Accepts NULL. If another rank waits for this one, now or later, the world fails. */
  void (*close)(rt_comm *comm);

  /* Optional: makes a team known, so that even the first post on it allocates nothing. */
  status (*prepare)(rt_comm *comm, const uint32_t *team, uint32_t n_team);
  /* A request that is wrong by itself is BAD_USAGE and has no effect. */
  status (*post)(rt_comm *comm, const rt_comm_request *request, rt_comm_ticket *ticket);
  /* Cheap: for polling. True also after a failure: then error() says so. */
  bool (*done)(rt_comm *comm, const rt_comm_ticket *ticket);
  /* Does a bounded part of the pending work, of any rank. False: there was none. */
  bool (*progress)(rt_comm *comm);
  /* Makes progress, or sleeps, until the ticket is done. If no other process reports progress for `timeout_ns`
   * (negative: for ever), the world fails with UNAVAILABLE and a message that says which rank waits for which. */
  status (*wait)(rt_comm *comm, const rt_comm_ticket *ticket, int64_t timeout_ns);
  /* Ends the world. The first reason wins. */
  void (*abort)(rt_comm *comm, status why, const char *reason);
  /* OK, or the failure, also recorded with fail() for the calling thread. */
  status (*error)(rt_comm *comm);
  /* "rank 0 waits at f:7 for allreduce of 16 f32 (sum) on team (0 1); rank 1 has not posted it, ..."
   * For watchdogs. */
  void (*describe)(rt_comm *comm, const rt_comm_ticket *ticket, char *text, size_t size_bytes);
  /* Optional: when another process last reported progress, or data last moved, by rt_clock_ns(); 0: never. For
   * watchdogs. NULL: there are no other processes. */
  int64_t (*stirred)(rt_comm *comm);
  /* Optional: as of a device (runtime/device.h). */
  void (*examine)(rt_say_fn *say, void *context);
} rt_comm_ops;

struct rt_group {
  const rt_comm_ops *ops; /* of its endpoints */
  uint32_t rank, size;
  uint32_t local; /* among the ranks of this machine */
  int32_t gpu;    /* the GPU of this rank; -1: not known */
  void (*retain)(rt_group *group);
  /* The last release may wait for other ranks; after a failure, for a bounded time. */
  void (*release)(rt_group *group);
};

/* Every endpoint begins with its operations. */
struct rt_comm {
  const rt_comm_ops *ops;
  uint32_t rank, n_ranks;
};

/* The table of backends (comms.def): rt_comm_inproc and so on. */
#define COMM(id) extern const rt_comm_ops rt_comm_##id;
#include "runtime/comms.def"
#undef COMM
const rt_comm_ops *rt_comm_find(const char *name); /* NULL: no such backend */
uint32_t rt_comm_count(void);
const rt_comm_ops *rt_comm_at(uint32_t i);

/* ---- for backends and messages ---- */
/* Checks a request without its peers; BAD_USAGE with its place. */
NODISCARD status rt_comm_request_check(const rt_comm_request *r, uint32_t rank, uint32_t n_ranks);
/* The same for a request with the dtype and team of one that was checked before. */
NODISCARD status rt_comm_request_check_rest(const rt_comm_request *r);
/* Do two members of a team post the same collective? */
bool rt_comm_requests_agree(const rt_comm_request *a, const rt_comm_request *b);
/* "allreduce of 16 f32 (sum) at f:7"; at most `size_bytes`, with the final NUL. */
void rt_comm_request_text(const rt_comm_request *r, char *text, size_t size_bytes);

/* Do two matched posts agree? Of a message, only the data must agree. */
bool rt_comm_posts_agree(bool is_pair, const rt_comm_request *a, const rt_comm_request *b);

/* A text of limited size that grows at its end; what does not fit is cut off. */
typedef struct rt_comm_line {
  char *text;
  size_t used, size_bytes;
} rt_comm_line;
rt_comm_line rt_comm_line_of(char *text, size_t size_bytes);
void rt_comm_line_add(rt_comm_line *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* "(0 1 2)" */
void rt_comm_line_add_team(rt_comm_line *l, const uint32_t *devices, uint32_t n);

/* The members of a team, or the two ends of a pair, whose posts meet. */
typedef struct rt_comm_party {
  const uint32_t *devices; /* by member */
  uint32_t n;
  bool is_pair;
} rt_comm_party;
/* Do the posts of members a and b agree? If not, `text` says what each posts, the lower device first, so that all
 * ranks give the same message. */
bool rt_comm_party_agrees(rt_comm_party p, uint32_t a, const rt_comm_request *of_a, uint32_t b,
                          const rt_comm_request *of_b, char *text, size_t size_bytes);

/* out[i] = sources[0][from + i] op sources[1][from + i] op ..., in this order, i < n. f16 and bf16 are
 * accumulated in f32 and rounded once. `out` is where one of the first two sources begins, or apart from all.
 * (src/comm/reduce.c) */
void rt_comm_reduce(ir_combine op, ir_dtype dtype, size_t from, size_t n, uint32_t n_sources,
                    const void *const *sources, void *out);

#endif
