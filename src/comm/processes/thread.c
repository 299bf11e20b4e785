/* The progress thread: it starts MPI or TCP, drives it while ranks compute, and ends it.
 *
 * MPI makes no progress by itself, and has nothing to sleep on; on TCP the thread sleeps until a connection
 * has something. With operations under way the thread polls as often as cores allow. While another thread
 * waits, which polls itself, and when nothing is under way, it polls every few milliseconds, to hear of
 * failures.
 *
 * Without a core to spare each poll takes a core from a thread that computes. If a thread has nothing to do
 * until an operation ends (`engine.is_awaited`), polls are frequent. Otherwise it is enough to poll before
 * the windows of the streams are empty, so the pauses depend on what each poll finds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/processes/internal.h"
#include "runtime/device.h"
#include "runtime/machine.h"

enum {
  FAILED_BYE_SECONDS = 2,
  END_SECONDS = 10,    /* for MPI_Finalize */
  BUSY_NS = 2000000,   /* how long it stays alert after the last event */
  IDLE_NS = 2000000,   /* between polls otherwise */
  EAGER_NS = 100000,   /* the least pause with operations under way and no core to spare */
  PATIENT_NS = 500000, /* the longest, if a thread waits for them */
  LAZY_NS = 1000000,   /* the longest, if all threads have something else to do */
};

/* ---- sleeping ---- */
static struct timespec time_of(int64_t ns) {
  return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

void mpi_engine_wake(mpi_engine *e) {
  if (!atomic_load(&e->thread.sleeps)) return;
  (void)pthread_mutex_lock(&e->thread.lock);
  if (e->thread.sleeps) (void)pthread_cond_signal(&e->thread.wake);
  e->thread.sleeps = false;
  (void)pthread_mutex_unlock(&e->thread.lock);
}

static bool is_ending(mpi_engine *e) {
  (void)pthread_mutex_lock(&e->thread.lock);
  bool ends = e->thread.ends;
  (void)pthread_mutex_unlock(&e->thread.lock);
  return ends;
}

static void sleep_until_woken(mpi_engine *e, int64_t ns) {
  struct timespec until = time_of(rt_clock_ns() + ns);
  (void)pthread_mutex_lock(&e->thread.lock);
  e->thread.sleeps = !e->thread.ends;
  while (e->thread.sleeps &&
         pthread_cond_timedwait(&e->thread.wake, &e->thread.lock, &until) != ETIMEDOUT) {
  }
  e->thread.sleeps = false;
  (void)pthread_mutex_unlock(&e->thread.lock);
}

/* Whether some operation of this rank is not done. */
static bool has_work(mpi_engine *e) {
  bool work = false;
  mpi_engine_lock(e);
  for (mpi_world *w = e->worlds; w; w = w->next)
    work |= mpi_world_state(w) == MPI_FAILING ||
            (mpi_world_state(w) == MPI_WELL && atomic_load(&w->unfinished) > 0);
  mpi_engine_unlock(e);
  return work;
}

/* ---- running ---- */
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The next pause. `moved`: data moved since the last one; `starved`: so much that a window had become empty. */
static int64_t next_nap_ns(mpi_engine *e, int64_t nap_ns, bool moved, bool starved) {
  bool awaited = atomic_load(&e->is_awaited);
  if (awaited && moved) return EAGER_NS;
  if (starved) return nap_ns / 2 > EAGER_NS ? nap_ns / 2 : EAGER_NS;
  return smaller(nap_ns + nap_ns / 2, awaited ? PATIENT_NS : LAZY_NS);
}

/* Sleeps for `ns`, or until there is something to read, or room to write. A socket that is closed meanwhile ends the
 * sleep early. */
static void nap(mpi_engine *e, int64_t ns) {
  struct timespec most = time_of(ns);
  uint32_t n = 0;
  if (e->thread.sockets) {
    mpi_engine_lock(e);
    if (!e->is_broken) n = e->transport->watch(e->link, e->thread.sockets);
    mpi_engine_unlock(e);
  }
  (void)ppoll(e->thread.sockets, n, &most, NULL);
}

static void rest(mpi_engine *e, int64_t quiet_ns, int64_t nap_ns) {
  bool spare = 2 * e->n_here <= e->cores && !e->is_bound;
  if (atomic_load(&e->waiters) > 0) {
    (void)nanosleep(&(struct timespec){.tv_nsec = PATIENT_NS}, NULL);
  } else if (!has_work(e) && quiet_ns > BUSY_NS) {
    sleep_until_woken(e, IDLE_NS);
  } else if (spare) {
    (void)sched_yield();
  } else {
    nap(e, nap_ns);
  }
}

static void run(mpi_engine *e) {
  int64_t event_ns = rt_clock_ns(), nap_ns = EAGER_NS;
  bool moved = false;
  while (!is_ending(e)) {
    if (mpi_engine_drive(e)) {
      event_ns = rt_clock_ns();
      moved = true;
      continue;
    }
    nap_ns = next_nap_ns(e, nap_ns, moved, atomic_exchange(&e->is_starved, false));
    moved = false;
    rest(e, rt_clock_ns() - event_ns, nap_ns);
  }
}

/* ---- starting ---- */
static uint64_t mix(uint64_t h, const char *text) {
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211U;
  return h;
}

uint64_t mpi_machine_hash(void) {
  char space[64] = "";
  struct stat info;
  if (stat("/proc/self/ns/pid", &info) == 0)
    (void)snprintf(space, sizeof space, "%llu", (unsigned long long)info.st_ino);
  return mix(rt_system_hash(), space);
}

/* How many cores this process may run on: launchers bind ranks to cores. */
static uint32_t own_cores(uint32_t all) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : all;
}

static status make_engine(mpi_engine *e) {
  e->processes = memory_alloc(&memory_default, e->place.size * sizeof *e->processes);
  e->scratch = memory_alloc(&memory_default, MPI_CHUNK_BYTES);
  if (e->transport->watch)
    e->thread.sockets =
        memory_alloc(&memory_default, (size_t)e->place.size * 2 * sizeof *e->thread.sockets);
  if (!e->processes || !e->scratch || (e->transport->watch && !e->thread.sockets))
    return STATUS_OUT_OF_MEMORY;
  for (uint32_t r = 0; r < e->place.size; r++) e->processes[r] = (mpi_process){.pid_fd = -1};
  e->processes[e->place.rank].host = mpi_machine_hash();
  e->processes[e->place.rank].cores = rt_cores_hash();
  e->processes[e->place.rank].pid = (int)getpid();
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  e->cores = cores > 0 ? (uint32_t)cores : 1;
  e->own_cores = own_cores(e->cores);
  e->is_bound = e->own_cores == 1;
  if (!mpi_engine_listen(e)) return fail(STATUS_SYSTEM, "%s", e->broken_text);
  return STATUS_OK;
}

/* Known from the launcher's environment, since MPI does not run yet. */
static bool is_crowded(void) {
  const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  long here = text ? strtol(text, NULL, 10) : 1, cores = sysconf(_SC_NPROCESSORS_ONLN);
  return here > cores;
}

static status start(mpi_engine *e) {
  if (!e->transport->start(e->given, is_crowded(), &e->place, &e->link))
    return fail(STATUS_SYSTEM, "%s: %s", e->base.ops->name, e->transport->error());
  e->base.rank = e->place.rank;
  e->base.size = e->place.size;
  e->base.local = e->place.local;
  return make_engine(e);
}

static void enter(mpi_engine *e, mpi_phase next, status why) {
  (void)pthread_mutex_lock(&e->thread.lock);
  e->thread.phase = next;
  e->thread.why = why;
  (void)snprintf(e->thread.reason, sizeof e->thread.reason, "%s", status_message());
  (void)pthread_cond_broadcast(&e->thread.changed);
  (void)pthread_mutex_unlock(&e->thread.lock);
}

/* ---- ending ---- */
static bool has_lost_somebody(const mpi_engine *e) {
  for (uint32_t r = 0; r < e->place.size; r++)
    if (e->processes[r].is_dead && !e->processes[r].said_bye) return true;
  return false;
}

/* Says goodbye. True: everything has been sent, and, if the transport has `ends_together`, all ranks have
 * said goodbye. That may take long, while another rank computes; after a failure it is not waited for. */
static bool say_goodbye(mpi_engine *e) {
  int64_t deadline_ns = rt_clock_ns() + FAILED_BYE_SECONDS * (int64_t)1000000000;
  bool together = e->transport->ends_together;
  mpi_engine_lock(e);
  mpi_say_bye(e);
  mpi_engine_unlock(e);
  for (uint32_t tries = 0;; tries++) {
    mpi_engine_lock(e);
    if (mpi_engine_poll(e)) tries = 0;
    bool all = !together || mpi_engine_all_said_bye(e), broken = e->is_broken;
    bool failed = e->has_failed || !together;
    broken |= has_lost_somebody(e);
    bool sent = !mpi_engine_is_sending(e);
    mpi_engine_unlock(e);
    if (broken || (failed && rt_clock_ns() > deadline_ns)) return false;
    if (all && sent) return true;
    mpi_pause(tries);
  }
}

/* A transport with `ends_together` that has lost a rank cannot be ended: it keeps what it holds. */
static void end(mpi_engine *e) {
  bool parted = say_goodbye(e);
  enter(e, MPI_ENDING, STATUS_OK);
  if (!parted && e->transport->ends_together) return;
  e->transport->end(e->link, e->has_failed, e->thread.is_exit);
  e->link = NULL;
}

static void *thread_main(void *context) {
  mpi_engine *e = context;
  status st = start(e);
  enter(e, st == STATUS_OK ? MPI_RUNNING : MPI_USELESS, st);
  if (st != STATUS_OK) return NULL;
  run(e);
  end(e);
  enter(e, MPI_ENDED, STATUS_OK);
  return NULL;
}

/* Waits, with the lock held, until the phase is not `from` any more; false: it took too long. */
static bool leave_phase(mpi_engine *e, mpi_phase from, int64_t timeout_ns) {
  struct timespec until = time_of(rt_clock_ns() + timeout_ns);
  while (e->thread.phase == from)
    if (timeout_ns < 0) (void)pthread_cond_wait(&e->thread.changed, &e->thread.lock);
    else if (pthread_cond_timedwait(&e->thread.changed, &e->thread.lock, &until) == ETIMEDOUT)
      return false;
  return true;
}

/* True: the thread has ended. If the transport does not end in time, the process goes on without it. */
static bool finish(mpi_engine *e, bool is_exit) {
  (void)pthread_mutex_lock(&e->thread.lock);
  e->thread.ends = true;
  e->thread.is_exit = is_exit;
  e->thread.sleeps = false;
  (void)pthread_cond_signal(&e->thread.wake);
  (void)leave_phase(e, MPI_RUNNING, -1);
  (void)leave_phase(e, MPI_ENDING, END_SECONDS * (int64_t)1000000000);
  bool ended = e->thread.phase == MPI_ENDED || e->thread.phase == MPI_USELESS;
  (void)pthread_mutex_unlock(&e->thread.lock);
  return ended;
}

/* ---- all engines of the process ---- */
static struct {
  pthread_mutex_t lock;
  mpi_engine *first;
  bool is_watched; /* at_exit() is registered */
} engines = {.lock = PTHREAD_MUTEX_INITIALIZER};

static mpi_engine *take_engine(void) {
  (void)pthread_mutex_lock(&engines.lock);
  mpi_engine *e = engines.first;
  if (e) engines.first = e->next;
  (void)pthread_mutex_unlock(&engines.lock);
  return e;
}

/* Says goodbye to ranks that still wait for this one. What engines hold is freed with the process. */
static void at_exit(void) {
  for (mpi_engine *e; (e = take_engine());)
    if (finish(e, true)) (void)pthread_join(e->thread.handle, NULL);
}

static void enlist(mpi_engine *e) {
  (void)pthread_mutex_lock(&engines.lock);
  e->next = engines.first;
  engines.first = e;
  if (!engines.is_watched) (void)atexit(at_exit);
  engines.is_watched = true;
  (void)pthread_mutex_unlock(&engines.lock);
}

/* False: the process is ending, and at_exit() ends the engine. */
static bool delist(mpi_engine *e) {
  (void)pthread_mutex_lock(&engines.lock);
  mpi_engine **link = &engines.first;
  while (*link && *link != e) link = &(*link)->next;
  bool found = *link != NULL;
  if (found) *link = e->next;
  (void)pthread_mutex_unlock(&engines.lock);
  return found;
}

void mpi_engine_retain(mpi_engine *e) {
  (void)pthread_mutex_lock(&engines.lock);
  e->users++;
  (void)pthread_mutex_unlock(&engines.lock);
}

static bool drop_user(mpi_engine *e) {
  (void)pthread_mutex_lock(&engines.lock);
  bool last = --e->users == 0;
  (void)pthread_mutex_unlock(&engines.lock);
  return last;
}

/* ---- from outside ---- */
static void destroy(mpi_engine *e) {
  for (uint32_t r = 0; e->processes && r < e->place.size; r++)
    if (e->processes[r].pid_fd >= 0) (void)close(e->processes[r].pid_fd);
  mpi_engine_free_buffers(e);
  memory_free(&memory_default, e->processes);
  memory_free(&memory_default, e->scratch);
  memory_free(&memory_default, e->thread.sockets);
  (void)pthread_cond_destroy(&e->thread.changed);
  (void)pthread_cond_destroy(&e->thread.wake);
  (void)pthread_mutex_destroy(&e->thread.lock);
  (void)pthread_mutex_destroy(&e->lock);
  (void)pthread_mutex_destroy(&e->submit_lock);
  memory_free(&memory_default, e);
}

void mpi_engine_release(mpi_engine *e) {
  if (!e || !drop_user(e) || !delist(e)) return;
  bool ended = finish(e, false);
  if (!ended || e->link) return;
  (void)pthread_join(e->thread.handle, NULL);
  destroy(e);
}

static void retain(rt_group *group) { mpi_engine_retain((mpi_engine *)group); }
static void release(rt_group *group) { mpi_engine_release((mpi_engine *)group); }

static mpi_engine *create(const mpi_transport *transport, const void *given,
                          const rt_group *group) {
  pthread_condattr_t monotonic;
  mpi_engine *e = memory_alloc(&memory_default, sizeof *e);
  if (!e) return NULL;
  *e = (mpi_engine){.base = *group, .users = 1, .transport = transport, .given = given};
  e->base.retain = retain;
  e->base.release = release;
  (void)pthread_mutex_init(&e->lock, NULL);
  (void)pthread_mutex_init(&e->submit_lock, NULL);
  (void)pthread_mutex_init(&e->thread.lock, NULL);
  (void)pthread_condattr_init(&monotonic);
  (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&e->thread.changed, &monotonic);
  (void)pthread_cond_init(&e->thread.wake, &monotonic);
  (void)pthread_condattr_destroy(&monotonic);
  return e;
}

/* A thread that did not start in time may still be starting, and keeps what it uses. */
static status await_start(mpi_engine *e) {
  (void)pthread_mutex_lock(&e->thread.lock);
  status st = STATUS_OK;
  if (!leave_phase(e, MPI_STARTING, mpi_start_timeout_ns()))
    st = fail(STATUS_UNAVAILABLE, "%s: not all ranks started within %g s", e->base.ops->name,
              (double)mpi_start_timeout_ns() * 1e-9);
  else if (e->thread.phase == MPI_USELESS) st = fail(e->thread.why, "%s", e->thread.reason);
  (void)pthread_mutex_unlock(&e->thread.lock);
  return st;
}

status mpi_engine_start(const mpi_transport *transport, const void *given, const rt_group *group,
                        mpi_engine **result) {
  mpi_engine *e = create(transport, given, group);
  if (!e) return STATUS_OUT_OF_MEMORY;
  if (pthread_create(&e->thread.handle, NULL, thread_main, e)) {
    destroy(e);
    return fail(STATUS_SYSTEM, "%s: no thread can be started", group->ops->name);
  }
  status st = await_start(e);
  if (st != STATUS_OK) {
    if (e->thread.phase != MPI_USELESS) return st;
    (void)pthread_join(e->thread.handle, NULL);
    destroy(e);
    return st;
  }
  enlist(e);
  *result = e;
  return STATUS_OK;
}
