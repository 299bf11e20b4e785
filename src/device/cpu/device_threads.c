#define _GNU_SOURCE
#include "device/cpu/device_threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pause.h"

/* A wake-up of a sleeping thread takes 20 to 50 us, so it pays to look that long before sleeping. */
enum { SPINS = 2000, HELP_SPINS = 4 }; /* looking at communications counts as several */

/* How long the thread in finish() sleeps while there are communications: backends may miss to notify. */
static const int64_t look_ns = 10000000, look_at_errors_ns = 1000000;

static _Atomic uint32_t running; /* compute threads in runs, of all devices */

/* ---- sleeping ---- */
static void park(cpu_thread *me) {
  while (atomic_exchange_explicit(&me->token, 0, memory_order_acquire) == 0)
    (void)syscall(SYS_futex, &me->token, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

/* For so long at most; true: not woken. */
static bool park_for(cpu_thread *me, int64_t limit_ns) {
  struct timespec limit = {.tv_sec = limit_ns / 1000000000, .tv_nsec = limit_ns % 1000000000};
  if (atomic_exchange_explicit(&me->token, 0, memory_order_acquire)) return false;
  (void)syscall(SYS_futex, &me->token, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0);
  if (cpu_bits_clear(&me->device->sleeping, me->index)) {
    (void)atomic_fetch_add(&me->device->searching, 1);
    return true;
  }
  park(me); /* another thread has taken the bit: the token is here, or will be */
  return false;
}

/* The caller has cleared the thread's bit in `sleeping`. The thread wakes as a searching one. */
static void wake(cpu_device *d, uint32_t thread) {
  (void)atomic_fetch_add(&d->searching, 1);
  atomic_store_explicit(&d->threads[thread].token, 1, memory_order_release);
  (void)syscall(SYS_futex, &d->threads[thread].token, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wake_one(cpu_device *d) {
  uint32_t thread;
  if (!atomic_load(&d->searching) && cpu_bits_take(&d->sleeping, 0, &thread)) wake(d, thread);
}

void cpu_threads_rouse(cpu_device *d) {
  if (cpu_bits_any(&d->ready)) wake_one(d);
}

void cpu_threads_notify(cpu_device *d) {
  if (!atomic_load(&d->communicates)) return;
  (void)atomic_fetch_add_explicit(&d->notices, 1, memory_order_relaxed);
  atomic_store(&d->news, true);
  wake_one(d);
}

/* ---- which of the ready streams ---- */
static bool is_fair(const cpu_device *d) {
  return atomic_load_explicit(&d->fair, memory_order_relaxed);
}

/* The owner of a stream, before it makes it ready: how far it is. */
static void tell_next(cpu_loaded *l, uint32_t s, uint32_t head) {
  if (!is_fair(l->device)) return;
  const rt_queue *q = &l->program.queues.streams[s];
  rt_entry room;
  uint32_t next = head < q->n ? rt_queue_at(q, head, &room)->instr : UINT32_MAX;
  atomic_store_explicit(&l->device->nexts[s], next, memory_order_relaxed);
}

/* The one that is least far; false: none is ready. */
static bool find_last(cpu_device *d, uint32_t *s, uint32_t *next) {
  *next = UINT32_MAX;
  bool found = false;
  for (uint32_t w = 0; w < cpu_bits_n(&d->ready); w++)
    for (uint64_t bits = atomic_load(&d->ready.words[w]); bits; bits &= bits - 1) {
      uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(bits);
      uint32_t at = atomic_load_explicit(&d->nexts[i], memory_order_relaxed);
      if (found && at >= *next) continue;
      found = true;
      *next = at;
      *s = i;
    }
  return found;
}

static bool take_ready(cpu_device *d, uint32_t from, uint32_t *s) {
  uint32_t next;
  if (!is_fair(d)) return cpu_bits_take(&d->ready, from, s);
  while (find_last(d, s, &next))
    if (cpu_bits_clear(&d->ready, *s)) return true;
  return false;
}

/* Is a stream ready that is behind this instruction by more than one of each rank? */
static bool others_are_behind(cpu_loaded *l, uint32_t instr) {
  uint32_t s, next;
  return find_last(l->device, &s, &next) && next < UINT32_MAX &&
         next + l->base.plan->n_ranks < instr;
}

/* ---- streams ---- */
void cpu_stream_issue(cpu_loaded *l, uint32_t s) {
  cpu_stream *q = &l->streams[s];
  uint64_t old = atomic_fetch_add_explicit(&q->word, 2, memory_order_acq_rel);
  if (old & 1) return;
  /* Idle: only this thread touches it until its bit is set. */
  (void)atomic_fetch_or_explicit(&q->word, 1, memory_order_relaxed);
  (void)atomic_fetch_add(&l->device->active, 1);
  tell_next(l, s, q->head);
  cpu_bits_set(&l->device->ready, s);
}

/* Publishes that `count` entries of stream t are done, and makes ready the streams that waited for that. */
static void signal_waiters(cpu_loaded *l, uint32_t t, uint32_t count) {
  cpu_stream *q = &l->streams[t];
  atomic_store(&q->completed, count);
  for (uint32_t w = 0; w < cpu_bits_n(&q->waiters); w++) {
    uint64_t bits = atomic_load(&q->waiters.words[w]);
    for (; bits; bits &= bits - 1) {
      uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(bits), s = q->first + i;
      uint32_t need = atomic_load_explicit(&l->streams[s].need, memory_order_relaxed);
      if (need <= count && cpu_bits_clear(&q->waiters, i)) cpu_bits_set(&l->device->ready, s);
    }
  }
}

/* A holder of one of `active` keeps the run from ending: each stream that is not idle, and each
 * thread that is giving one up. The last one to go wakes the thread in finish(). */
static void release(cpu_device *d) {
  if (atomic_fetch_sub(&d->active, 1) == 1 && cpu_bits_clear(&d->sleeping, 0)) wake(d, 0);
}

/* Holds the run of which the caller has no stream; false: there is none. */
static bool hold(cpu_device *d) {
  uint32_t n = atomic_load(&d->active);
  while (n)
    if (atomic_compare_exchange_weak(&d->active, &n, n + 1)) return true;
  return false;
}

/* Gives stream s to the thread that completes what it waits for at `head`; true: it came back. As soon
 * as the bit is set, others may take the stream, run it, and even block it on the same stream again
 * before this thread looks. So if it gets the bit back it goes on from where they came to, and until
 * then it holds the run itself, since the stream may end it. */
static bool block(cpu_loaded *l, uint32_t s, const rt_entry *e, uint32_t *head) {
  cpu_stream *own = &l->streams[s], *other = &l->streams[e->other];
  own->head = *head;
  tell_next(l, s, *head);
  atomic_store_explicit(&own->need, e->target, memory_order_relaxed);
  (void)atomic_fetch_add(&l->device->active, 1);
  uint32_t i = s - other->first;
  cpu_bits_set(&other->waiters, i);
  bool back = atomic_load(&other->completed) >= e->target && cpu_bits_clear(&other->waiters, i);
  if (back) *head = own->head;
  release(l->device);
  return back;
}

/* The wait at `head` of stream s. True: go on. False: the stream is blocked, and no longer the
 * caller's. A stream may be made ready too early, when its bit was seen during an earlier wait; it
 * then comes here again. */
static bool may_pass(cpu_loaded *l, uint32_t s, uint32_t *head) {
  for (rt_entry room;;) {
    const rt_entry *e = rt_queue_at(&l->program.queues.streams[s], *head, &room);
    const cpu_stream *other = &l->streams[e->other];
    if (atomic_load_explicit(&other->completed, memory_order_acquire) >= e->target) return true;
    if (!block(l, s, e, head)) return false;
  }
}

/* ---- communications ---- */
/* The entry that stream s waits at. */
static const rt_entry *join_of(const cpu_loaded *l, uint32_t s, rt_entry *room) {
  return rt_queue_at(&l->program.queues.streams[s], atomic_load(&l->streams[s].join), room);
}

/* Makes streams ready that wait for what is done; false: there are none. */
static bool pass_joins(cpu_loaded *l) {
  cpu_bits *joining = &l->device->joining;
  bool passed = false;
  for (uint32_t w = 0; w < cpu_bits_n(joining); w++)
    for (uint64_t bits = atomic_load(&joining->words[w]); bits; bits &= bits - 1) {
      uint32_t s = w * 64 + (uint32_t)__builtin_ctzll(bits);
      rt_entry room;
      const rt_entry *e = join_of(l, s, &room);
      if (!cpu_comms_may_pass(&l->comms, e) || !cpu_bits_clear(joining, s)) continue;
      cpu_bits_set(&l->device->ready, s);
      passed = true;
    }
  return passed;
}

/* As block(), at the join at `head`. */
static bool block_at_join(cpu_loaded *l, uint32_t s, const rt_entry *e, uint32_t *head) {
  cpu_stream *own = &l->streams[s];
  own->head = *head;
  tell_next(l, s, *head);
  atomic_store(&own->join, *head);
  (void)atomic_fetch_add(&l->device->active, 1);
  cpu_bits_set(&l->device->joining, s);
  bool back = cpu_comms_may_pass(&l->comms, e) && cpu_bits_clear(&l->device->joining, s);
  if (back) *head = own->head;
  release(l->device);
  return back;
}

/* As may_pass(), for a join. */
static bool may_join(cpu_loaded *l, uint32_t s, uint32_t *head) {
  for (rt_entry room;;) {
    const rt_entry *e = rt_queue_at(&l->program.queues.streams[s], *head, &room);
    if (cpu_comms_may_pass(&l->comms, e)) return true;
    if (!block_at_join(l, s, e, head)) return false;
  }
}

/* A join may have come before the post, and the end before the ticket was written. */
static void post(cpu_thread *me, cpu_loaded *l, const rt_entry *e) {
  cpu_comms_post(&l->comms, e, me->index);
  if (cpu_bits_any(&l->device->joining)) (void)pass_joins(l);
}

/* Only its owner changes it. */
static void move(cpu_thread *me, uint64_t n) {
  uint64_t moves = atomic_load_explicit(&me->moves, memory_order_relaxed);
  atomic_store_explicit(&me->moves, moves + n, memory_order_relaxed);
}

/* Moves data and looks at joins; false: there was nothing to do. `all`: leaves nothing out. Large
 * operations wake one thread at most when they begin, so a thread that found work wakes the next. */
static bool help(cpu_thread *me, bool all) {
  cpu_device *d = me->device;
  if (!atomic_load(&d->communicates) || !hold(d)) return false;
  cpu_loaded *l = d->current;
  if (atomic_load(&d->news)) atomic_store(&d->news, false);
  bool moved = all ? cpu_comms_progress_any(&l->comms) : cpu_comms_progress(&l->comms, me->turn++);
  if (moved) move(me, 2);
  if (moved && !me->helped) {
    me->helped = true;
    wake_one(d);
  }
  bool passed = pass_joins(l);
  release(d);
  return moved || passed;
}

/* ---- when nothing moves ---- */
static uint64_t count_moves(const cpu_device *d, bool *busy) {
  uint64_t n = atomic_load_explicit(&d->notices, memory_order_relaxed);
  *busy = false;
  for (uint32_t i = 0; i < d->n_threads; i++) {
    uint64_t moves = atomic_load_explicit(&d->threads[i].moves, memory_order_relaxed);
    *busy = *busy || moves % 2;
    n += moves;
  }
  return n;
}

enum { MOST_JOINS = 4096 }; /* that a message is made of */

static void time_out(cpu_loaded *l) {
  uint32_t joins[MOST_JOINS], n = 0;
  rt_entry room;
  for (uint32_t s = 0; s < l->base.plan->n_streams && n < MOST_JOINS; s++)
    if (cpu_bits_has(&l->device->joining, s)) joins[n++] = join_of(l, s, &room)->instr;
  if (n) cpu_comms_time_out(&l->comms, joins, n);
}

/* In finish(), after a sleep that ran out. */
static void watch(cpu_device *d) {
  bool busy;
  cpu_loaded *l = d->current;
  uint64_t moves = count_moves(d, &busy);
  int64_t now_ns = rt_clock_ns(), timeout_ns = d->world.timeout_ns;
  int64_t stirred_ns = cpu_world_stirred_ns(&d->world);
  if (stirred_ns > d->moved_ns) d->moved_ns = stirred_ns;
  if (busy || moves != d->seen_moves) {
    d->seen_moves = moves;
    d->moved_ns = now_ns;
  } else if (cpu_comms_is_failing(&l->comms)) cpu_comms_abort(&l->comms);
  else if (timeout_ns > 0 && now_ns - d->moved_ns >= timeout_ns) time_out(l);
}

static int64_t look_again_ns(const cpu_device *d) {
  int64_t part_ns = d->world.timeout_ns / 4;
  if (cpu_comms_is_failing(&d->current->comms)) return look_at_errors_ns;
  return part_ns > 0 && part_ns < look_ns ? part_ns : look_ns;
}

/* ---- telling others ---- */
/* The run is held while its plan is looked at. */
void cpu_threads_pulse(cpu_device *d, rt_pulse *pulse) {
  bool busy;
  uint32_t at = 0;
  (void)count_moves(d, &busy);
  pulse->done = 0;
  pulse->is_busy = busy;
  pulse->where[0] = '\0';
  for (uint32_t i = 0; i < d->n_threads; i++) {
    uint32_t last = atomic_load_explicit(&d->threads[i].at, memory_order_relaxed);
    pulse->done += atomic_load_explicit(&d->threads[i].steps, memory_order_relaxed);
    at = last > at ? last : at;
  }
  if (!atomic_load(&d->communicates) || !hold(d)) return;
  const rt_plan *plan = d->current->base.plan;
  if (plan->n_loops) at = at < rt_plan_n_done(plan) ? rt_plan_nth(plan, at) : UINT32_MAX;
  if (at < plan->n_instrs)
    (void)snprintf(pulse->where, sizeof pulse->where, "%s",
                   d->current->comms.places[plan->instrs[at].origin]);
  release(d);
}

static void note_begin(cpu_thread *me, uint32_t instr) {
  atomic_store_explicit(&me->at, instr, memory_order_relaxed);
}

static void note_end(cpu_thread *me, uint32_t instr) {
  uint64_t steps = atomic_load_explicit(&me->steps, memory_order_relaxed);
  atomic_store_explicit(&me->steps, steps + 1, memory_order_relaxed);
  if (instr == me->device->world.fault.after) rt_fault_strike(&me->device->world.fault);
}

/* ---- shared launches ---- */
static bool may_spin(const cpu_device *d) {
  return atomic_load_explicit(&running, memory_order_relaxed) <= d->cores;
}

/* Wakes two threads at most if there are parts for more than those that search: each that comes calls the next
 * ones. */
static void call_helpers(cpu_device *d, uint32_t parts) {
  for (uint32_t i = 0, thread; i < 2; i++) {
    if (atomic_load(&d->searching) >= parts || !cpu_bits_take(&d->sleeping, 0, &thread)) return;
    wake(d, thread);
  }
}

/* The next part of the launch that thread `owner` shares; the last one to be taken closes the share. */
static bool take_part(cpu_device *d, uint32_t owner, uint32_t *part) {
  cpu_share *share = &d->threads[owner].share;
  uint32_t n = share->launch->n_parts;
  *part = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
  if (*part + 1 >= n) (void)cpu_bits_clear(&d->sharing, owner);
  return *part < n;
}

/* After a failure no thread takes another part; all before the one that failed are taken. */
static void run_part(cpu_thread *me, cpu_share *share, uint32_t part) {
  if (!cpu_launch_run_part(share->launch, part, me->index))
    atomic_store_explicit(&share->next, share->launch->n_parts, memory_order_relaxed);
}

static void await_helpers(cpu_thread *me) {
  _Atomic uint32_t *helpers = &me->share.helpers;
  for (uint32_t i = 0; i < SPINS && may_spin(me->device); i++) {
    if (atomic_load(helpers) == 0) return;
    thread_pause();
  }
  uint32_t n = atomic_fetch_or(helpers, CPU_OWNER_SLEEPS) | CPU_OWNER_SLEEPS;
  while (n != CPU_OWNER_SLEEPS) {
    (void)syscall(SYS_futex, helpers, FUTEX_WAIT_PRIVATE, n, NULL, NULL, 0);
    n = atomic_load(helpers);
  }
  (void)atomic_fetch_and(helpers, ~(uint32_t)CPU_OWNER_SLEEPS);
}

static void leave_share(cpu_share *share) {
  if (atomic_fetch_sub(&share->helpers, 1) == CPU_OWNER_SLEEPS + 1)
    (void)syscall(SYS_futex, &share->helpers, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Runs the parts of a launch, with the help of idle threads. */
static void run_parts(void *executor, const cpu_launch *launch) {
  cpu_thread *me = executor;
  cpu_device *d = me->device;
  uint32_t part;
  me->share.launch = launch;
  atomic_store_explicit(&me->share.next, 0, memory_order_relaxed);
  if (d->n_threads > 1) {
    cpu_bits_set(&d->sharing, me->index);
    call_helpers(d, launch->n_parts - 1);
  }
  while (take_part(d, me->index, &part)) run_part(me, &me->share, part);
  (void)cpu_bits_clear(&d->sharing, me->index);
  if (d->n_threads > 1) await_helpers(me);
}

/* Runs one part of another thread's launch; false: there is none. */
static bool help_share(cpu_thread *me) {
  cpu_device *d = me->device;
  uint32_t owner, part;
  if (!cpu_bits_find(&d->sharing, me->index, &owner)) return false;
  cpu_share *share = &d->threads[owner].share;
  (void)atomic_fetch_add(&share->helpers, 1);
  bool taken = cpu_bits_has(&d->sharing, owner) && take_part(d, owner, &part);
  if (taken) {
    move(me, 1);
    call_helpers(d, share->launch->n_parts - part - 1);
    run_part(me, share, part);
    move(me, 1);
  }
  leave_share(share);
  return taken;
}

/* ---- running ---- */
/* Runs the entry at `head`, or a later one (see block()), and moves past it; false: blocked. */
static bool step(cpu_thread *me, cpu_loaded *l, uint32_t s, uint32_t *head) {
  const rt_queue *q = &l->program.queues.streams[s];
  rt_entry room;
  const rt_entry *e = rt_queue_at(q, *head, &room);
  bool told = l->comms.n > 0;
  switch ((rt_instr_kind)e->kind) {
  case RT_LAUNCH:
    cpu_threads_rouse(me->device);
    if (told) note_begin(me, e->instr);
    if (told && atomic_load(&me->device->news)) wake_one(me->device);
    cpu_program_run(&l->run, e, (uint16_t)s, me->index, run_parts, me);
    break;
  case RT_WAIT:
    if (!may_pass(l, s, head)) return false;
    e = rt_queue_at(q, *head, &room);
    break;
  case RT_POST:
  case RT_JOIN:
    if (!may_join(l, s, head)) return false;
    e = rt_queue_at(q, *head, &room);
    if (e->kind == RT_POST) post(me, l, e);
    break;
  }
  if (told) note_end(me, e->instr);
  ++*head;
  if (e->signals) signal_waiters(l, s, *head);
  return true;
}

/* Makes an owned stream ready again before a task, if others are behind. */
static bool give_back(cpu_loaded *l, uint32_t s, uint32_t head) {
  if (!is_fair(l->device)) return false;
  rt_entry room;
  const rt_entry *e = rt_queue_at(&l->program.queues.streams[s], head, &room);
  if (e->kind != RT_LAUNCH || !others_are_behind(l, e->instr)) return false;
  l->streams[s].head = head;
  tell_next(l, s, head);
  cpu_bits_set(&l->device->ready, s);
  return true;
}

/* Runs an owned stream until it is idle or blocked. After that the loaded program may be gone. */
static void run_stream(cpu_thread *me, uint32_t s) {
  cpu_loaded *l = me->device->current;
  cpu_stream *q = &l->streams[s];
  uint32_t head = q->head;
  uint64_t word = atomic_load_explicit(&q->word, memory_order_acquire);
  uint32_t first = head;
  do {
    while (head < word / 2) {
      if (head > first && give_back(l, s, head)) return;
      if (!step(me, l, s, &head)) return;
    }
    q->head = head;
  } while (!atomic_compare_exchange_strong_explicit(&q->word, &word, word & ~(uint64_t)1,
                                                    memory_order_acq_rel, memory_order_acquire));
  release(me->device);
}

/* ---- threads ---- */
static bool is_over(const cpu_thread *me) {
  return me->index == 0 ? atomic_load(&me->device->active) == 0 : atomic_load(&me->device->closing);
}

/* A thread that moves data or runs a part does not search. */
static bool search_comms(cpu_thread *me) {
  (void)atomic_fetch_sub(&me->device->searching, 1);
  bool helped = help(me, false);
  (void)atomic_fetch_add(&me->device->searching, 1);
  return helped;
}

static bool search_shares(cpu_thread *me) {
  if (!cpu_bits_any(&me->device->sharing)) return false;
  (void)atomic_fetch_sub(&me->device->searching, 1);
  bool helped = help_share(me);
  (void)atomic_fetch_add(&me->device->searching, 1);
  return helped;
}

/* Looks for a ready stream for a while. */
static bool search(cpu_thread *me, uint32_t from, uint32_t *s) {
  for (uint32_t i = 0; !is_over(me); i++) {
    if (take_ready(me->device, from, s)) return true;
    if (atomic_load_explicit(&me->device->communicates, memory_order_relaxed)) {
      if (search_comms(me)) i = 0;
      else i += HELP_SPINS - 1;
    }
    if (search_shares(me)) i = 0;
    if (i >= SPINS || !may_spin(me->device)) return false;
    thread_pause();
  }
  return false;
}

/* Sleeps unless there is something to do. On return the thread counts as searching again. */
static void rest(cpu_thread *me) {
  cpu_device *d = me->device;
  cpu_bits_set(&d->sleeping, me->index);
  (void)atomic_fetch_sub(&d->searching, 1);
  if ((cpu_bits_any(&d->ready) || cpu_bits_any(&d->sharing) || is_over(me) || help(me, true)) &&
      cpu_bits_clear(&d->sleeping, me->index)) {
    (void)atomic_fetch_add(&d->searching, 1);
    return;
  }
  if (me->index > 0 || !atomic_load(&d->communicates)) park(me);
  else if (park_for(me, look_again_ns(d))) watch(d);
}

/* The next stream to run; false when there is no more work for this thread. */
static bool find(cpu_thread *me, uint32_t from, uint32_t *s) {
  cpu_device *d = me->device;
  if (take_ready(d, from, s)) return true;
  (void)atomic_fetch_add(&d->searching, 1);
  bool found = search(me, from, s);
  while (!found && !is_over(me)) {
    rest(me);
    found = search(me, from, s);
  }
  (void)atomic_fetch_sub(&d->searching, 1);
  return found;
}

static void compute(cpu_thread *me) {
  uint32_t s = me->index;
  while (find(me, s + 1, &s)) {
    move(me, 1);
    run_stream(me, s);
    move(me, 1);
    me->helped = false;
  }
}

void cpu_threads_finish(cpu_device *d) {
  if (atomic_load(&d->communicates)) d->moved_ns = rt_clock_ns();
  compute(&d->threads[0]);
}

void cpu_threads_enter(cpu_device *d) {
  (void)atomic_fetch_add_explicit(&running, d->n_threads, memory_order_relaxed);
}

void cpu_threads_leave(cpu_device *d) {
  (void)atomic_fetch_sub_explicit(&running, d->n_threads, memory_order_relaxed);
}

static void *thread_main(void *context) {
  compute(context);
  return NULL;
}

/* Signals are for the program's own threads. */
status cpu_threads_start(cpu_device *d) {
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (d->n_started = 1; d->n_started < d->n_threads; d->n_started++) {
    cpu_thread *t = &d->threads[d->n_started];
    error = pthread_create(&t->handle, NULL, thread_main, t);
    if (error) break;
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error) return STATUS_OK;
  return fail(STATUS_SYSTEM, "cannot start compute thread %u of %u: %s", d->n_started, d->n_threads,
              strerror(error));
}

void cpu_threads_stop(cpu_device *d) {
  atomic_store(&d->closing, true);
  for (uint32_t i = 1; i < d->n_started; i++)
    if (cpu_bits_clear(&d->sleeping, i)) wake(d, i);
  for (uint32_t i = 1; i < d->n_started; i++) (void)pthread_join(d->threads[i].handle, NULL);
}
