/* rank CASE FILE: what a rank does in tests/mpi/failures.sh. All ranks reduce over everybody, again
 * and again; the last rank is the odd one. Timeouts are short where the case is about them, but
 * longer than a busy machine stops a process for. Ends with the status's exit code, and adds a line
 * to the file, which outlives the launcher's pipes: "rank R: MESSAGE" on a failure, "rank R: done"
 * without. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpi/launched.h"

enum { ODD_TURN = 20, TURNS = 2000, COUNT = 50000, MOST_RANKS = 64 };
enum { SHORT_S = 3, LONG_S = 60 };

static const char *what;
static uint32_t team[MOST_RANKS];

static _Atomic bool computes;

static bool is(const char *name) { return strcmp(what, name) == 0; }

static void pulse(void *context, rt_pulse *p) {
  (void)context;
  *p = (rt_pulse){.is_busy = computes};
}

/* Longer than the others' timeout; how long nobody knows who only hears that it computes. */
static void be_slow(void) {
  computes = true;
  (void)nanosleep(&(struct timespec){.tv_sec = 2 * SHORT_S}, NULL);
  computes = false;
}

/* A process that ends takes with it what is not sent yet. The odd rank hears from each of the
 * others that it has got everything so far; and what it answers to that gets the time to be
 * sent. */
static void send_all(rt_comm *comm) {
  for (int i = 0; i < 100; i++) {
    (void)comm->ops->progress(comm);
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

static status be_heard(rt_comm *comm) {
  uint32_t odd = comm->n_ranks - 1;
  float word = 0;
  rt_comm_request r = {.dtype = IR_F32, .team = team, .n_team = comm->n_ranks, .me = comm->rank};
  r.count = 1, r.in = r.out = &word, r.origin = "heard.weir:1";
  r.kind = comm->rank == odd ? IR_COMM_RECV : IR_COMM_SEND;
  r.to = (int32_t)odd;
  for (uint32_t k = 0; k < (comm->rank == odd ? odd : 1); k++) {
    rt_comm_ticket ticket;
    r.from = (int32_t)k;
    TRY(comm->ops->post(comm, &r, &ticket));
    TRY(comm->ops->wait(comm, &ticket, LONG_S * INT64_C(1000000000)));
  }
  if (comm->rank == odd) send_all(comm);
  return STATUS_OK;
}

/* The odd rank does not come back from most of these. */
static status be_odd(rt_comm *comm, rt_comm_request *r) {
  if (is("killed")) (void)raise(SIGKILL);
  if (is("aborts")) comm->ops->abort(comm, STATUS_SYSTEM, "the disk is full");
  if (is("exits")) exit(0);
  if (is("slow")) be_slow();
  if (is("mismatch")) r->count--, r->origin = "odd.weir:9";
  status st = STATUS_OK;
  while (is("silent") && (st = comm->ops->error(comm)) == STATUS_OK)
    if (!comm->ops->progress(comm)) (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return st;
}

static status run(rt_comm *comm, int64_t timeout_ns) {
  static float in[COUNT], out[COUNT];
  rt_comm_request r = {.kind = IR_COMM_ALLREDUCE, .dtype = IR_F32, .team = team, .count = COUNT};
  r.n_team = comm->n_ranks, r.me = comm->rank, r.in = in, r.out = out, r.origin = "all.weir:3";
  bool odd = comm->rank + 1 == comm->n_ranks;
  for (int turn = 0; turn < TURNS; turn++) {
    rt_comm_ticket ticket;
    if (turn == ODD_TURN && (is("killed") || is("exits"))) TRY(be_heard(comm));
    if (odd && turn == ODD_TURN) TRY(be_odd(comm, &r));
    TRY(comm->ops->post(comm, &r, &ticket));
    TRY(comm->ops->wait(comm, &ticket, timeout_ns));
  }
  return STATUS_OK;
}

int main(int argc, char **argv) {
  mpi_launch launch;
  what = argc > 1 ? argv[1] : "";
  const rt_comm_ops *ops;
  bool launched = launched_find(&launch, &ops);
  if (launched && is("absent") && launch.rank + 1 == launch.size) return 0;
  rt_comm *comm = NULL;
  rt_comm_options options = {.pulse = pulse};
  uint32_t n = 0;
  for (uint32_t i = 0; i < MOST_RANKS; i++) team[i] = i;
  status st = ops->open(&options, &memory_default, 1, &comm, &n);
  int64_t seconds = is("silent") || is("slow") ? SHORT_S : LONG_S;
  if (st == STATUS_OK) st = run(comm, seconds * 1000000000);
  FILE *file = argc > 2 ? fopen(argv[2], "a") : stdout;
  if (!file) return 1;
  fprintf(file, "rank %u: %s\n", launched ? launch.rank : 0,
          st == STATUS_OK ? "done" : status_message());
  (void)fclose(file);
  ops->close(comm);
  return status_exit_code(st);
}
