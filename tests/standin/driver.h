/* Inside the stand-in for the driver: handles, memory, queues. One lock guards all of it. */
#ifndef WEIR_TESTS_STANDIN_DRIVER_H
#define WEIR_TESTS_STANDIN_DRIVER_H

#include <pthread.h>
#include <stdint.h>

#include "standin/standin.h"

enum { MAX_GPUS = 16 };

/* ---- handles ---- */
typedef struct op op;

/* One record of an event, or one end of a stream that somebody waits for. */
typedef struct mark {
  uint32_t refs;
  bool done;
  int64_t time_ns;
  CUstream stream; /* NULL: it is gone */
} mark;

struct CUctx_st {
  int index; /* of the GPU */
  int retained;
  bool peer[MAX_GPUS]; /* whose memory its kernels may use */
  CUstream null_stream;
};

/* A capture: nodes with what they stand behind. */
typedef struct node {
  op *op;
  uint32_t n_deps, *deps;
} node;

typedef struct node_set {
  uint32_t n, *items;
} node_set;

struct CUgraph_st {
  uint32_t refs, n_nodes, cap;
  node *nodes;
};

typedef struct capture {
  uint64_t id;
  CUgraph graph;
  CUstream origin;
  pthread_t thread;
} capture;

struct CUstream_st {
  CUstream next; /* of all streams */
  CUcontext gpu;
  op *head, *tail;
  bool busy, destroyed;
  uint64_t priority; /* of the moment */
  capture *capture;
  node_set after; /* capturing: what the next node stands behind */
};

struct CUevent_st {
  CUcontext gpu;
  bool has_time;
  mark *mark;       /* of the last record; NULL: never recorded */
  uint64_t capture; /* 0: the last record was no captured one */
  node_set after;
};

struct CUgraphExec_st {
  CUgraph graph;
  uint32_t refs; /* the handle's, and one per launch */
  bool running;
};

/* The set of live handles, so that a stale one is found without looking inside. */
void handle_add(const void *h);
void handle_remove(const void *h);
bool handle_is_live(const void *h);

/* ---- work ---- */
/* One item of a queue. */
struct op {
  op *next;
  const char *name;
  CUcontext gpu;
  bool is_kernel; /* reaches only memory of its GPU and of peers */
  bool is_record;
  void (*run)(op *o);         /* without the lock; NULL: nothing to do */
  bool (*ready)(const op *o); /* with it; NULL: always */
  mark *mark;                 /* of a record or a wait */
  CUgraphExec exec;           /* a launch of a graph: */
  bool *begun, *done;
  uint32_t left;
  standin_range *ranges;
  size_t n_ranges;
  void *args; /* of run() and ready(), behind it */
};

op *op_new(const char *name, CUstream s, size_t args_bytes);
void op_touch(op *o, CUdeviceptr at, size_t size_bytes);
void op_free(op *o);
/* Takes the op, whatever comes out. */
CUresult submit(CUstream s, op *o);
/* Waits for all that is on the stream; the lock is given back meanwhile. */
CUresult drain(CUstream s);
/* The same inside of a call that keeps others from creating things, as the driver's copies to
 * pageable memory do. */
CUresult drain_holding(CUstream s);
void wait_for_holders(void);
/* All streams of the current context, as loading may. */
void settle_holding(void);
CUresult wait_for(mark *m);
mark *mark_new(CUstream s);
void mark_drop(mark *m);
void wake(void); /* something changed for whoever runs or waits */
uint64_t random_draw(void);
int64_t now_ns(void);

/* ---- captures ---- */
CUresult capture_add(CUstream s, op *o);
void capture_leave(CUstream s); /* the stream that began one goes: it is lost */
void graph_drop(CUgraph g);
/* A node of a launched graph that may run; false: none at the moment. */
bool graph_pick(const op *launch, uint32_t *index);
/* Is the calling thread restricted by a capture of its own? */
bool is_capturing_thread(void);
bool is_relaxed_thread(void);

/* ---- memory ---- */
typedef struct block block;
/* The live block that holds an address; NULL: none. */
const block *block_at(CUdeviceptr p);
CUcontext block_gpu(const block *b); /* NULL: pinned memory of the host */
/* Says what is wrong with a range and returns false; used: by whom. */
bool range_is_good(CUdeviceptr at, size_t size_bytes, const char *used);
bool op_is_good(const op *o);
uint32_t memory_live(CUcontext gpu);
/* While a kernel runs, pages it may not reach are closed: true if there are any. */
bool memory_close(const op *o);
void memory_open(void);

/* ---- calls ---- */
typedef struct state {
  pthread_mutex_t lock;
  bool ready; /* cuInit was called */
  int n_gpus;
  bool peers;
  struct CUctx_st gpus[MAX_GPUS];   /* their primary contexts */
  struct CUctx_st others[MAX_GPUS]; /* that a caller made */
  CUresult sticky;                  /* an error that ends all */
  CUstream streams;
} state;
extern state standin;

CUcontext current(void);
/* Begins every call: takes the lock until the caller returns. */
CUresult enter(const char *function);
void leave(const int *guard);
#define ENTER(function)                                                                            \
  __attribute__((cleanup(leave))) int guard_of_lock = pthread_mutex_lock(&standin.lock);           \
  (void)guard_of_lock;                                                                             \
  CUresult entered = enter(#function);                                                             \
  if (entered != CUDA_SUCCESS) return entered
#define MISUSE(code, ...) (standin_misuse(__VA_ARGS__), (code))

bool stream_is_good(CUstream *s); /* NULL becomes the context's own */
bool on_host_function(void);
void set_host_function(bool on);

#endif
