/* Compute threads: which thread runs which stream, and which sleep.
 *
 * A stream is idle (all it was given is done) or active. An active stream is in exactly one place:
 *   ready    its bit is in device.ready, and the thread that clears the bit owns it;
 *   owned    by the thread that runs its entries;
 *   blocked  its bit is in the `waiters` of the stream it waits for, or in device.joining if it waits
 *            for a communication; the thread that clears the bit makes it ready (or, if that is the thread that
 *            set it, goes on).
 *
 * A thread runs tasks, searches, or sleeps. Before it starts a task, it makes sure that no other
 * stream is ready while a thread sleeps and none searches; so at most one thread is woken per task
 * started, and no system call is made while threads are awake.
 *
 * Fairness. With more ranks than threads, a stream that ran to its end would leave others with nothing to wait for
 * but it. Ready streams are then taken by the number of their next instruction, which tells how far their rank has
 * come, since those of all ranks are interleaved; and before a task, a thread gives its stream back if one that is
 * ready is behind by more than a round. Only the order of tasks changes, in which nothing is computed differently.
 *
 * Shared launches. A kernel may consist of parts (kernels.h). The thread that owns the stream opens its
 * share, takes parts from a counter, and leaves when all are done. Threads that search help: after ready
 * streams and communications, they take one part of an open share at a time. A thread enters a share by
 * counting itself in, and then looks whether it is open; the owner closes it, and then waits until no thread
 * is counted: so what the share points to is there for all that saw it open.
 *
 * All decisions to sleep follow one pattern, with sequentially consistent operations on both sides:
 *   sleeper: announce itself, then look for work;   other: publish work, then look for sleepers.
 *
 * Communications. Threads that search move data and look whether joins can pass; what happens while all
 * are busy or asleep is told by notify(), which sets `news` and wakes one. Only a thread that holds one of `active`
 * may do so, since the run may end under the others. The thread in finish() sleeps for a short time at
 * most, and sees when nothing moves any more. */
#ifndef WEIR_DEVICE_CPU_DEVICE_THREADS_H
#define WEIR_DEVICE_CPU_DEVICE_THREADS_H

#include <stdalign.h>

#include "device/cpu/device_bits.h"
#include "device/cpu/device_comm.h"

enum { CPU_MAX_THREADS = 256 };

typedef struct cpu_stream {
  alignas(CPU_LINE_BYTES) _Atomic uint64_t word; /* 2 * entries issued + active */
  alignas(CPU_LINE_BYTES) uint32_t head;         /* of its owner: entries done */
  _Atomic uint32_t need;      /* while blocked: what the other stream must have completed */
  _Atomic uint32_t join;      /* while blocked at a join: its entry */
  _Atomic uint32_t completed; /* entries done, as of the last one that signals */
  cpu_bits waiters; /* streams of its rank, counted from `first`, that are blocked on this one */
  uint32_t first;   /* stream of its rank */
} cpu_stream;

typedef struct cpu_device cpu_device;

typedef struct cpu_loaded {
  rt_loaded base;
  cpu_device *device;
  cpu_program program;
  cpu_stream *streams;
  void *streams_block;
  _Atomic uint64_t *waiter_words;
  uint32_t issued; /* instructions of this run */
  cpu_run run;
  cpu_errors errors;
  cpu_comms comms;
} cpu_loaded;

/* A launch of which idle threads run parts. It belongs to the thread that owns the stream. */
typedef struct cpu_share {
  const cpu_launch *launch; /* read only by threads that count in `helpers` and saw it open */
  alignas(CPU_LINE_BYTES) _Atomic uint32_t next;    /* part */
  alignas(CPU_LINE_BYTES) _Atomic uint32_t helpers; /* futex: threads in it; CPU_OWNER_SLEEPS */
} cpu_share;

enum { CPU_OWNER_SLEEPS = 1 << 16 };

typedef struct cpu_thread {
  alignas(CPU_LINE_BYTES) _Atomic uint32_t token; /* futex: 1 wakes it */
  cpu_device *device;
  uint32_t index;         /* 0: the thread that calls finish() */
  uint32_t turn;          /* which endpoint to help next */
  bool helped;            /* moved data since it last ran a stream */
  _Atomic uint64_t moves; /* grows with all it does; odd: it runs a stream */
  /* In runs that communicate: */
  _Atomic uint64_t steps; /* instructions done */
  _Atomic uint32_t at;    /* the last one begun */
  pthread_t handle;
  cpu_share share;
} cpu_thread;

struct cpu_device {
  rt_device base;
  const allocator *memory;
  void *block; /* what to free */
  uint32_t n_threads, n_started, cores;
  pthread_mutex_t run; /* held from begin() to finish() */
  cpu_loaded *current; /* read only by holders of one of `active` */
  cpu_world world;
  cpu_pool pool;
  uint64_t seen_moves; /* of the thread in finish(): when something moved last */
  int64_t moved_ns;
  alignas(CPU_LINE_BYTES) cpu_bits ready;
  _Atomic uint32_t active;                   /* streams, and threads that look at the run */
  _Atomic bool communicates;                 /* the current run does */
  _Atomic bool news;                         /* notify() was called since a thread looked */
  alignas(CPU_LINE_BYTES) cpu_bits joining;  /* streams blocked at a join */
  _Atomic uint64_t notices;                  /* calls of notify() */
  alignas(CPU_LINE_BYTES) cpu_bits sharing;  /* threads whose launch has parts that are not taken */
  alignas(CPU_LINE_BYTES) cpu_bits sleeping; /* threads */
  _Atomic uint32_t searching;                /* threads, and those woken to search */
  _Atomic bool closing;
  _Atomic bool fair; /* the current run has more ranks than threads */
  _Atomic uint32_t
      nexts[RT_MAX_STREAMS]; /* then: of streams that are ready, their next instruction */
  _Atomic uint64_t thread_words[2][CPU_MAX_THREADS / 64]; /* of `sharing` and `sleeping` */
  _Atomic uint64_t stream_words[2][RT_MAX_STREAMS / 64];  /* of `ready` and `joining` */
  cpu_thread threads[];
};

/* Starts the threads after the first. On failure those started must still be stopped. */
NODISCARD status cpu_threads_start(cpu_device *d);
void cpu_threads_stop(cpu_device *d);

/* Puts the next entry of stream `s` where threads see it. Wakes no thread. */
void cpu_stream_issue(cpu_loaded *l, uint32_t s);
/* Wakes a thread if a stream is ready and none looks for one. */
void cpu_threads_rouse(cpu_device *d);
/* Something about communications may have changed. */
void cpu_threads_notify(cpu_device *d);
/* What the threads do, told from any other. */
void cpu_threads_pulse(cpu_device *d, rt_pulse *pulse);
/* Runs streams on the calling thread, as compute thread 0, until all are idle. */
void cpu_threads_finish(cpu_device *d);

/* How many threads are in runs of all devices; they spin only while they are no more than the cores. */
void cpu_threads_enter(cpu_device *d);
void cpu_threads_leave(cpu_device *d);

#endif
