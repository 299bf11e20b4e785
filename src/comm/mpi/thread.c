/* The progress thread: it starts MPI, drives it while ranks compute, and ends it.
 *
 * MPI makes no progress by itself, and has nothing to sleep on. With operations under way the thread
 * looks as often as cores allow; while somebody waits, who looks himself, and when nothing is under way,
 * it looks every few milliseconds, to hear of failures.
 *
 * Without a core to spare each look takes one from a thread that computes. If somebody has nothing to do
 * until an operation ends (`engine.is_awaited`), looks are frequent; otherwise it is enough to look
 * before the windows of the streams are empty, so the pauses follow what each look finds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi/internal.h"
#include "runtime/device.h"

enum {
  FAILED_BYE_SECONDS = 2,
  END_SECONDS = 10,    /* for MPI_Finalize */
  BUSY_NS = 2000000,   /* how long it stays alert after the last event */
  IDLE_NS = 2000000,   /* between looks otherwise */
  EAGER_NS = 100000,   /* between looks with operations under way and no core to spare, at first */
  PATIENT_NS = 500000, /* and at last, if somebody waits for them */
  LAZY_NS = 1000000,   /* if all have something else to do */
};

static mpi_engine *const e = &mpi_the_engine;

typedef enum phase { NEW, STARTING, RUNNING, ENDING, USELESS, ENDED } phase;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed, wake;
  pthread_t handle;
  phase phase;
  _Atomic bool sleeps;
  bool ends;
  status why;
  char reason[256];
} thread = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- sleeping ---- */
static struct timespec time_of(int64_t ns) {
  return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

void mpi_engine_wake(void) {
  if (!atomic_load(&thread.sleeps)) return;
  (void)pthread_mutex_lock(&thread.lock);
  if (thread.sleeps) (void)pthread_cond_signal(&thread.wake);
  thread.sleeps = false;
  (void)pthread_mutex_unlock(&thread.lock);
}

static bool is_ending(void) {
  (void)pthread_mutex_lock(&thread.lock);
  bool ends = thread.ends;
  (void)pthread_mutex_unlock(&thread.lock);
  return ends;
}

static void sleep_until_woken(int64_t ns) {
  struct timespec until = time_of(rt_clock_ns() + ns);
  (void)pthread_mutex_lock(&thread.lock);
  thread.sleeps = !thread.ends;
  while (thread.sleeps && pthread_cond_timedwait(&thread.wake, &thread.lock, &until) != ETIMEDOUT) {
  }
  thread.sleeps = false;
  (void)pthread_mutex_unlock(&thread.lock);
}

/* Whether some operation of this rank is not done. */
static bool has_work(void) {
  bool work = false;
  mpi_engine_lock();
  for (mpi_world *w = e->worlds; w; w = w->next)
    work |= mpi_world_state(w) == MPI_FAILING ||
            (mpi_world_state(w) == MPI_WELL && atomic_load(&w->unfinished) > 0);
  mpi_engine_unlock();
  return work;
}

/* ---- running ---- */
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The next pause. `moved`: since the last one; `starved`: so much that a window had become empty. */
static int64_t next_nap_ns(int64_t nap_ns, bool moved, bool starved) {
  bool awaited = atomic_load(&e->is_awaited);
  if (awaited && moved) return EAGER_NS;
  if (starved) return nap_ns / 2 > EAGER_NS ? nap_ns / 2 : EAGER_NS;
  return smaller(nap_ns + nap_ns / 2, awaited ? PATIENT_NS : LAZY_NS);
}

static void rest(int64_t quiet_ns, int64_t nap_ns) {
  bool spare = 2 * e->n_here <= e->cores;
  if (atomic_load(&e->waiters) > 0) {
    (void)nanosleep(&(struct timespec){.tv_nsec = PATIENT_NS}, NULL);
  } else if (!has_work() && quiet_ns > BUSY_NS) {
    sleep_until_woken(IDLE_NS);
  } else if (spare) {
    (void)sched_yield();
  } else {
    (void)nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
  }
}

static void run(void) {
  int64_t event_ns = rt_clock_ns(), nap_ns = EAGER_NS;
  bool moved = false;
  while (!is_ending()) {
    if (mpi_engine_drive()) {
      event_ns = rt_clock_ns();
      moved = true;
      continue;
    }
    nap_ns = next_nap_ns(nap_ns, moved, atomic_exchange(&e->is_starved, false));
    moved = false;
    rest(rt_clock_ns() - event_ns, nap_ns);
  }
}

/* ---- starting ---- */
static uint64_t mix(uint64_t h, const char *text) {
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211U;
  return h;
}

/* Equal for processes that can see each other's ids: this boot, this process namespace. */
static uint64_t host_hash(void) {
  char boot[64] = "", space[64] = "";
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (f && !fgets(boot, sizeof boot, f)) boot[0] = 0;
  if (f) (void)fclose(f);
  struct stat info;
  if (stat("/proc/self/ns/pid", &info) == 0)
    (void)snprintf(space, sizeof space, "%llu", (unsigned long long)info.st_ino);
  return mix(mix(14695981039346656037U, boot), space);
}

static status make_engine(void) {
  e->processes = memory_alloc(&memory_default, e->place.size * sizeof *e->processes);
  e->scratch = memory_alloc(&memory_default, MPI_CHUNK_BYTES);
  if (!e->processes || !e->scratch) return STATUS_OUT_OF_MEMORY;
  for (uint32_t r = 0; r < e->place.size; r++) e->processes[r] = (mpi_process){.pid_fd = -1};
  e->processes[e->place.rank].host = host_hash();
  e->processes[e->place.rank].pid = (int)getpid();
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  e->cores = cores > 0 ? (uint32_t)cores : 1;
  if (!mpi_engine_listen()) return fail(STATUS_SYSTEM, "%s", e->broken_text);
  return STATUS_OK;
}

/* From what the launcher says, as MPI does not run yet. */
static bool is_crowded(void) {
  const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  long here = text ? strtol(text, NULL, 10) : 1, cores = sysconf(_SC_NPROCESSORS_ONLN);
  return here > cores;
}

static status start(void) {
  TRY(mpi_load(&e->transport));
  if (!e->transport->start(is_crowded(), &e->place))
    return fail(STATUS_SYSTEM, "mpi: %s", e->transport->error());
  return make_engine();
}

static void enter(phase next, status why) {
  (void)pthread_mutex_lock(&thread.lock);
  thread.phase = next;
  thread.why = why;
  (void)snprintf(thread.reason, sizeof thread.reason, "%s", status_message());
  (void)pthread_cond_broadcast(&thread.changed);
  (void)pthread_mutex_unlock(&thread.lock);
}

/* ---- ending ---- */
/* MPI_Finalize waits for all ranks, so it is called only when all have come here. A rank may compute
 * for long before it does; not when there was a failure. */
static void end(void) {
  int64_t deadline_ns = rt_clock_ns() + FAILED_BYE_SECONDS * (int64_t)1000000000;
  mpi_engine_lock();
  mpi_say_bye();
  mpi_engine_unlock();
  for (uint32_t tries = 0;; tries++) {
    mpi_engine_lock();
    if (mpi_engine_poll()) tries = 0;
    bool all = mpi_engine_all_said_bye(), broken = e->is_broken, failed = e->has_failed;
    for (uint32_t r = 0; r < e->place.size; r++)
      broken |= e->processes[r].is_dead && !e->processes[r].said_bye;
    bool sent = !mpi_engine_is_sending();
    mpi_engine_unlock();
    if (broken || (failed && rt_clock_ns() > deadline_ns)) return;
    if (all && sent) break;
    mpi_pause(tries);
  }
  enter(ENDING, STATUS_OK);
  e->transport->end(e->has_failed);
}

static void *thread_main(void *context) {
  (void)context;
  status st = start();
  enter(st == STATUS_OK ? RUNNING : USELESS, st);
  if (st != STATUS_OK) return NULL;
  run();
  end();
  enter(ENDED, STATUS_OK);
  return NULL;
}

/* Waits, with the lock held, until the phase is not `from` any more; false: it takes too long. */
static bool leave_phase(phase from, int64_t timeout_ns) {
  struct timespec until = time_of(rt_clock_ns() + timeout_ns);
  while (thread.phase == from)
    if (timeout_ns < 0) (void)pthread_cond_wait(&thread.changed, &thread.lock);
    else if (pthread_cond_timedwait(&thread.changed, &thread.lock, &until) == ETIMEDOUT)
      return false;
  return true;
}

/* Of the process. If MPI does not let go in time, it ends without it. */
static void at_exit(void) {
  (void)pthread_mutex_lock(&thread.lock);
  thread.ends = true;
  thread.sleeps = false;
  (void)pthread_cond_signal(&thread.wake);
  (void)leave_phase(RUNNING, -1);
  (void)leave_phase(ENDING, END_SECONDS * (int64_t)1000000000);
  (void)pthread_mutex_unlock(&thread.lock);
}

/* ---- from outside ---- */
static status begin(void) {
  pthread_condattr_t monotonic;
  (void)pthread_condattr_init(&monotonic);
  (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&thread.changed, &monotonic);
  (void)pthread_cond_init(&thread.wake, &monotonic);
  (void)pthread_condattr_destroy(&monotonic);
  thread.phase = STARTING;
  if (pthread_create(&thread.handle, NULL, thread_main, NULL)) {
    thread.phase = USELESS;
    return thread.why = fail(STATUS_SYSTEM, "mpi: no thread can be started");
  }
  (void)pthread_detach(thread.handle);
  (void)atexit(at_exit);
  return STATUS_OK;
}

status mpi_engine_start(void) {
  (void)pthread_mutex_lock(&thread.lock);
  status st = thread.phase == NEW ? begin() : STATUS_OK;
  if (st == STATUS_OK && !leave_phase(STARTING, mpi_start_timeout_ns()))
    st = fail(STATUS_UNAVAILABLE, "mpi: not all ranks started within %g s",
              (double)mpi_start_timeout_ns() * 1e-9);
  if (st == STATUS_OK && thread.phase == USELESS) st = fail(thread.why, "%s", thread.reason);
  if (st == STATUS_OK && thread.phase == ENDED)
    st = fail(STATUS_BAD_USAGE, "mpi: the process is ending");
  (void)pthread_mutex_unlock(&thread.lock);
  return st;
}
