/* For communication tests: worlds whose ranks run one function, and collectives with their oracle.
 *
 * Ranks are threads of this process, or processes that an MPI launcher started: then every process runs
 * the whole test, worlds have at most as many ranks as there are processes, and a process opens one
 * endpoint, or none if its rank is not in the world.
 *
 * Ranks run on threads of their own, and expectations are counted by the main thread: what a rank
 * finds wrong goes through kit_wrong(), which is looked at when the world has ended. */
#ifndef WEIR_TESTS_CONFORM_COMM_KIT_H
#define WEIR_TESTS_CONFORM_COMM_KIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/random.h"
#include "runtime/comm.h"
#include "runtime/device.h"
#include "test.h"

enum { KIT_RANKS = 8, KIT_MOST_RANKS = 300, KIT_GUARD = 64 };
#define KIT_SECONDS ((int64_t)1000000000)

static const rt_comm_ops *kit_backend;
static uint32_t kit_ranks = KIT_RANKS; /* in the largest worlds; more on purpose only in process */
static bool kit_in_process = true;     /* all ranks are in this process */
static _Atomic uint32_t kit_errors;

/* Reports the first few. */
static void kit_wrong(const char *what, uint32_t rank, int64_t detail) {
  if (atomic_fetch_add(&kit_errors, 1) < 10)
    fprintf(stderr, "rank %u: %s (%" PRId64 ") %s\n", rank, what, detail, status_message());
}

/* ---- worlds ---- */
typedef void kit_body(rt_comm *comm, void *context);

typedef struct kit_thread {
  pthread_t handle;
  rt_comm *comm;
  kit_body *body;
  void *context;
} kit_thread;

static void *kit_main(void *context) {
  kit_thread *t = context;
  t->body(t->comm, t->context);
  t->comm->ops->close(t->comm);
  return NULL;
}

static uint32_t kit_open(uint32_t ranks, const allocator *memory, rt_comm **endpoints) {
  rt_comm_options options = {.ranks = ranks};
  uint32_t n = 0;
  if (!EXPECT_INT(kit_backend->open(&options, memory, KIT_MOST_RANKS, endpoints, &n), STATUS_OK))
    exit(test_finish());
  return n;
}

/* Runs `body` on a thread per endpoint, which also closes it. */
static void kit_run_on(rt_comm **endpoints, uint32_t n, kit_body *body, void *context) {
  static kit_thread threads[KIT_MOST_RANKS];
  for (uint32_t i = 0; i < n; i++) {
    threads[i] = (kit_thread){.comm = endpoints[i], .body = body, .context = context};
    if (pthread_create(&threads[i].handle, NULL, kit_main, &threads[i])) abort();
  }
  for (uint32_t i = 0; i < n; i++) (void)pthread_join(threads[i].handle, NULL);
  EXPECT_INT(atomic_exchange(&kit_errors, 0), 0);
}

static void kit_run(uint32_t ranks, kit_body *body, void *context) {
  rt_comm *endpoints[KIT_MOST_RANKS];
  uint32_t n = kit_open(ranks, &memory_default, endpoints);
  kit_run_on(endpoints, n, body, context);
}

/* ---- collectives ---- */
typedef struct kit_step {
  ir_comm_kind kind;
  ir_combine op;
  ir_dtype dtype;
  uint32_t team[KIT_RANKS], n, root;
  int64_t count;
  bool in_place;
  uint64_t key; /* of its values */
} kit_step;

/* A shuffled choice of n of the ranks. */
static void kit_team(kit_step *s, uint32_t n, uint64_t key) {
  uint32_t all[KIT_RANKS];
  for (uint32_t i = 0; i < kit_ranks; i++) all[i] = i;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t j = i + (uint32_t)(random_bits(key, i) % (kit_ranks - i)), kept = all[i];
    s->team[i] = all[j];
    all[j] = kept;
  }
  s->n = n;
}

static int32_t kit_position(const kit_step *s, uint32_t rank) {
  for (uint32_t i = 0; i < s->n; i++)
    if (s->team[i] == rank) return (int32_t)i;
  return -1;
}

/* Element i of piece `piece` of what member p puts in: small integers, exact in all dtypes. */
static int64_t kit_value(const kit_step *s, uint64_t rep, uint32_t p, uint32_t piece, int64_t i) {
  uint64_t bits = random_bits(s->key + rep * 977, (uint64_t)i * 4096 + p * 64 + piece);
  if (s->dtype == IR_BOOL) return (int64_t)(bits % 2);
  return (int64_t)(bits % 7) - (s->dtype == IR_U8 ? 0 : 3);
}

static int64_t kit_fold(ir_combine op, int64_t a, int64_t b) {
  switch (op) {
  case IR_COMBINE_SUM: return a + b;
  case IR_COMBINE_PROD: return a * b;
  case IR_COMBINE_MIN: return a < b ? a : b;
  case IR_COMBINE_MAX: return a > b ? a : b;
  case IR_COMBINE_AND: return a & b;
  case IR_COMBINE_OR: return a | b;
  case IR_COMBINE_XOR: return a ^ b;
  case IR_COMBINE_COUNT: break;
  }
  abort();
}

static int64_t kit_reduced(const kit_step *s, uint64_t rep, uint32_t piece, int64_t i) {
  int64_t sum = kit_value(s, rep, 0, piece, i);
  for (uint32_t p = 1; p < s->n; p++) sum = kit_fold(s->op, sum, kit_value(s, rep, p, piece, i));
  return sum;
}

/* Element i of piece `piece` of what member p gets out. */
static int64_t kit_expected(const kit_step *s, uint64_t rep, uint32_t p, uint32_t piece,
                            int64_t i) {
  switch (s->kind) {
  case IR_COMM_BROADCAST: return kit_value(s, rep, s->root, 0, i);
  case IR_COMM_GATHER:
  case IR_COMM_ALLGATHER: return kit_value(s, rep, piece, 0, i);
  case IR_COMM_SCATTER: return kit_value(s, rep, s->root, p, i);
  case IR_COMM_REDUCE:
  case IR_COMM_ALLREDUCE: return kit_reduced(s, rep, 0, i);
  case IR_COMM_REDUCE_SCATTER: return kit_reduced(s, rep, p, i);
  case IR_COMM_ALL_TO_ALL: return kit_value(s, rep, piece, p, i);
  case IR_COMM_SEND:
  case IR_COMM_RECV:
  case IR_COMM_PERMUTE:
  case IR_COMM_SEND_RECV:
  case IR_COMM_COUNT: break;
  }
  abort();
}

static bool kit_has_in(const kit_step *s, uint32_t p) {
  return ir_comm_info_of(s->kind)->root != IR_ROOT_SENDS || p == s->root;
}

static bool kit_has_out(const kit_step *s, uint32_t p) {
  return ir_comm_info_of(s->kind)->root != IR_ROOT_RECEIVES || p == s->root;
}

/* One member's part of one step. The buffers end in bytes that nobody may touch. */
typedef struct kit_part {
  const kit_step *step;
  uint64_t rep;
  uint32_t p;
  char *in, *out;             /* what the request gets */
  char *in_block, *out_block; /* NULL: inside the other one, or none */
  size_t in_bytes, out_bytes;
  char origin[32];
  rt_comm_ticket ticket;
} kit_part;

static char *kit_block(size_t bytes) {
  char *block = malloc(bytes + KIT_GUARD);
  if (!block) abort();
  memset(block, 0xa5, bytes + KIT_GUARD);
  return block;
}

static void kit_part_make(kit_part *t, const kit_step *s, uint32_t p) {
  size_t piece = (size_t)s->count * ir_dtype_size_bytes(s->dtype);
  bool may = ir_comm_info_of(s->kind)->in_place;
  bool both = s->in_place && may && kit_has_in(s, p) && kit_has_out(s, p);
  *t = (kit_part){.step = s, .p = p};
  t->in_bytes = piece * (ir_comm_in_pieces(s->kind) ? s->n : 1);
  t->out_bytes = piece * (ir_comm_out_pieces(s->kind) ? s->n : 1);
  if (kit_has_in(s, p) && !(both && !ir_comm_in_pieces(s->kind)))
    t->in = t->in_block = kit_block(t->in_bytes);
  if (kit_has_out(s, p) && !(both && ir_comm_in_pieces(s->kind)))
    t->out = t->out_block = kit_block(t->out_bytes);
  if (both && ir_comm_in_pieces(s->kind)) t->out = t->in + p * piece;
  if (both && !ir_comm_in_pieces(s->kind))
    t->in = t->out + (ir_comm_out_pieces(s->kind) ? p * piece : 0);
}

static void kit_part_free(kit_part *t) {
  free(t->in_block);
  free(t->out_block);
}

static void kit_part_fill(kit_part *t, uint64_t rep) {
  const kit_step *s = t->step;
  size_t size = ir_dtype_size_bytes(s->dtype);
  t->rep = rep;
  if (t->out_block) memset(t->out_block, 0x5a, t->out_bytes);
  if (!t->in) return;
  for (uint32_t piece = 0; piece < (ir_comm_in_pieces(s->kind) ? s->n : 1); piece++)
    for (int64_t i = 0; i < s->count; i++)
      ir_element_set_i64(s->dtype, t->in + (size_t)(piece * s->count + i) * size,
                         kit_value(s, rep, t->p, piece, i));
}

static status kit_part_post(kit_part *t, rt_comm *comm) {
  const kit_step *s = t->step;
  (void)snprintf(t->origin, sizeof t->origin, "step:%u", (unsigned)t->rep);
  rt_comm_request r = {.kind = s->kind,
                       .op = s->op,
                       .dtype = s->dtype,
                       .team = s->team,
                       .n_team = s->n,
                       .me = t->p,
                       .root = s->root,
                       .count = s->count,
                       .in = t->in,
                       .out = t->out,
                       .origin = t->origin};
  return comm->ops->post(comm, &r, &t->ticket);
}

static bool kit_guard_ok(const char *block, size_t bytes) {
  for (size_t i = 0; block && i < KIT_GUARD; i++)
    if ((unsigned char)block[bytes + i] != 0xa5) return false;
  return true;
}

/* A product may be -0. */
static bool kit_same(ir_dtype t, const char *a, const char *b) {
  if (ir_dtype_is_float(t)) return ir_element_as_f64(t, a) == ir_element_as_f64(t, b);
  return memcmp(a, b, ir_dtype_size_bytes(t)) == 0;
}

/* Elements of `buffer` that are not as `expected` says. */
static int64_t kit_differences(const kit_part *t, const char *buffer, uint32_t pieces,
                               int64_t (*expected)(const kit_step *, uint64_t, uint32_t, uint32_t,
                                                   int64_t)) {
  const kit_step *s = t->step;
  size_t size = ir_dtype_size_bytes(s->dtype);
  int64_t wrong = 0;
  for (uint32_t piece = 0; piece < pieces; piece++)
    for (int64_t i = 0; i < s->count; i++) {
      char want[8];
      ir_element_set_i64(s->dtype, want, expected(s, t->rep, t->p, piece, i));
      wrong += !kit_same(s->dtype, want, buffer + (size_t)(piece * s->count + i) * size);
    }
  return wrong;
}

/* The result, the input (which must be as it was), the guards. */
static void kit_part_check(const kit_part *t, uint32_t rank) {
  const kit_step *s = t->step;
  uint32_t in = ir_comm_in_pieces(s->kind) ? s->n : 1, out = ir_comm_out_pieces(s->kind) ? s->n : 1;
  int64_t wrong = t->out ? kit_differences(t, t->out, out, kit_expected) : 0;
  if (wrong) kit_wrong(ir_comm_text(s->kind), rank, wrong);
  bool apart = t->in_block && (!t->out || t->out_block);
  if (apart && kit_differences(t, t->in, in, kit_value)) kit_wrong("input changed", rank, 0);
  if (!kit_guard_ok(t->in_block, t->in_bytes) || !kit_guard_ok(t->out_block, t->out_bytes))
    kit_wrong("written past the end", rank, s->kind);
}

static void kit_wait(rt_comm *comm, const rt_comm_ticket *ticket) {
  if (comm->ops->wait(comm, ticket, 60 * KIT_SECONDS) != STATUS_OK)
    kit_wrong("wait failed", comm->rank, 0);
}

#endif
