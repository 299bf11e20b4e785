#define _GNU_SOURCE
#include "device/cpu/device_threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A wake-up of a sleeping thread takes 20 to 50 us, so it pays to look that long before sleeping. */
enum { SPINS = 2000 };

static _Atomic uint32_t running; /* compute threads in runs, of all devices */

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* ---- sets ---- */
static void bits_set(cpu_bits *b, uint32_t i) {
  (void)atomic_fetch_or(&b->words[i / 64], (uint64_t)1 << (i % 64));
}

/* Whether the bit was set; if so, the caller now has it. */
static bool bits_clear(cpu_bits *b, uint32_t i) {
  uint64_t bit = (uint64_t)1 << (i % 64);
  if (!(atomic_load(&b->words[i / 64]) & bit)) return false;
  return atomic_fetch_and(&b->words[i / 64], ~bit) & bit;
}

static bool bits_any(const cpu_bits *b) {
  for (uint32_t w = 0; w < CPU_BIT_WORDS; w++)
    if (atomic_load(&b->words[w])) return true;
  return false;
}

static bool word_take(cpu_bits *b, uint32_t w, uint64_t mask, uint32_t *i) {
  for (;;) {
    uint64_t bits = atomic_load(&b->words[w]) & mask;
    if (!bits) return false;
    *i = w * 64 + (uint32_t)__builtin_ctzll(bits);
    if (bits_clear(b, *i)) return true;
  }
}

/* Takes any member, the next one from `from` on if there is one. */
static bool bits_take(cpu_bits *b, uint32_t from, uint32_t *i) {
  uint32_t first = from / 64 % CPU_BIT_WORDS;
  if (word_take(b, first, UINT64_MAX << (from % 64), i)) return true;
  for (uint32_t k = 1; k <= CPU_BIT_WORDS; k++)
    if (word_take(b, (first + k) % CPU_BIT_WORDS, UINT64_MAX, i)) return true;
  return false;
}

/* ---- sleeping ---- */
static void park(cpu_thread *me) {
  while (atomic_exchange_explicit(&me->token, 0, memory_order_acquire) == 0)
    (void)syscall(SYS_futex, &me->token, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

/* The caller has cleared the thread's bit in `sleeping`. The thread wakes as a searching one. */
static void wake(cpu_device *d, uint32_t thread) {
  (void)atomic_fetch_add(&d->searching, 1);
  atomic_store_explicit(&d->threads[thread].token, 1, memory_order_release);
  (void)syscall(SYS_futex, &d->threads[thread].token, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void cpu_threads_rouse(cpu_device *d) {
  uint32_t thread;
  if (!bits_any(&d->ready) || atomic_load(&d->searching)) return;
  if (bits_take(&d->sleeping, 0, &thread)) wake(d, thread);
}

/* ---- streams ---- */
void cpu_stream_issue(cpu_loaded *l, uint32_t s) {
  cpu_stream *q = &l->streams[s];
  uint64_t old = atomic_fetch_add_explicit(&q->word, 2, memory_order_acq_rel);
  if (old & 1) return;
  /* Idle: nobody but this thread touches it until its bit is set. */
  (void)atomic_fetch_or_explicit(&q->word, 1, memory_order_relaxed);
  (void)atomic_fetch_add(&l->device->active, 1);
  bits_set(&l->device->ready, s);
}

/* Publishes that `count` entries of stream t are done, and makes ready who waited for that. */
static void signal_waiters(cpu_loaded *l, uint32_t t, uint32_t count) {
  cpu_stream *q = &l->streams[t];
  atomic_store(&q->completed, count);
  for (uint32_t w = 0; w < CPU_BIT_WORDS; w++) {
    uint64_t bits = atomic_load(&q->waiters.words[w]);
    for (; bits; bits &= bits - 1) {
      uint32_t s = w * 64 + (uint32_t)__builtin_ctzll(bits);
      uint32_t need = atomic_load_explicit(&l->streams[s].need, memory_order_relaxed);
      if (need <= count && bits_clear(&q->waiters, s)) bits_set(&l->device->ready, s);
    }
  }
}

/* Whoever holds one of `active` keeps the run from ending: each stream that is not idle, and each
 * thread that is giving one up. The last one to go wakes the thread in finish(). */
static void release(cpu_device *d) {
  if (atomic_fetch_sub(&d->active, 1) == 1 && bits_clear(&d->sleeping, 0)) wake(d, 0);
}

/* Gives stream s up to whoever completes what it waits for at `head`; true: it came back. As soon
 * as the bit is set, others may take the stream, run it, and even block it on the same stream again
 * before this thread looks. So if it gets the bit back it goes on from where they came to, and until
 * then it holds the run itself, since the stream may end it. */
static bool block(cpu_loaded *l, uint32_t s, const rt_entry *e, uint32_t *head) {
  cpu_stream *own = &l->streams[s], *other = &l->streams[e->other];
  own->head = *head;
  atomic_store_explicit(&own->need, e->target, memory_order_relaxed);
  (void)atomic_fetch_add(&l->device->active, 1);
  bits_set(&other->waiters, s);
  bool back = atomic_load(&other->completed) >= e->target && bits_clear(&other->waiters, s);
  if (back) *head = own->head;
  release(l->device);
  return back;
}

/* The wait at `head` of stream s. True: go on. False: the stream is blocked, and no longer the
 * caller's. A stream may be made ready too early, when its bit was seen during an earlier wait; it
 * then comes here again. */
static bool may_pass(cpu_loaded *l, uint32_t s, uint32_t *head) {
  for (;;) {
    const rt_entry *e = &l->program.queues.streams[s].entries[*head];
    const cpu_stream *other = &l->streams[e->other];
    if (atomic_load_explicit(&other->completed, memory_order_acquire) >= e->target) return true;
    if (!block(l, s, e, head)) return false;
  }
}

/* Runs the entry at `head`, or a later one (see block()), and moves past it; false: blocked. */
static bool step(cpu_thread *me, cpu_loaded *l, uint32_t s, uint32_t *head) {
  const rt_entry *entries = l->program.queues.streams[s].entries;
  if (entries[*head].kind == RT_WAIT) {
    if (!may_pass(l, s, head)) return false;
  } else {
    cpu_threads_rouse(me->device);
    cpu_program_run(&l->program, &entries[*head], (uint16_t)s, me->index, l->spans, l->origin_ns,
                    &l->errors);
  }
  if (entries[(*head)++].signals) signal_waiters(l, s, *head);
  return true;
}

/* Runs an owned stream until it is idle or blocked. After that the loaded program may be gone. */
static void run_stream(cpu_thread *me, uint32_t s) {
  cpu_loaded *l = me->device->current;
  cpu_stream *q = &l->streams[s];
  uint32_t head = q->head;
  uint64_t word = atomic_load_explicit(&q->word, memory_order_acquire);
  do {
    while (head < word / 2)
      if (!step(me, l, s, &head)) return;
    q->head = head;
  } while (!atomic_compare_exchange_strong_explicit(&q->word, &word, word & ~(uint64_t)1,
                                                    memory_order_acq_rel, memory_order_acquire));
  release(me->device);
}

/* ---- threads ---- */
static bool is_over(const cpu_thread *me) {
  return me->index == 0 ? atomic_load(&me->device->active) == 0 : atomic_load(&me->device->closing);
}

static bool may_spin(const cpu_device *d) {
  return atomic_load_explicit(&running, memory_order_relaxed) <= d->cores;
}

/* Looks for a ready stream for a while. */
static bool search(cpu_thread *me, uint32_t from, uint32_t *s) {
  for (uint32_t i = 0; !is_over(me); i++) {
    if (bits_take(&me->device->ready, from, s)) return true;
    if (i == SPINS || !may_spin(me->device)) return false;
    cpu_pause();
  }
  return false;
}

/* Sleeps unless there is something to do. On return the thread counts as searching again. */
static void rest(cpu_thread *me) {
  cpu_device *d = me->device;
  bits_set(&d->sleeping, me->index);
  (void)atomic_fetch_sub(&d->searching, 1);
  if ((bits_any(&d->ready) || is_over(me)) && bits_clear(&d->sleeping, me->index)) {
    (void)atomic_fetch_add(&d->searching, 1);
    return;
  }
  park(me);
}

/* The next stream to run; false when there is no more work for this thread. */
static bool find(cpu_thread *me, uint32_t from, uint32_t *s) {
  cpu_device *d = me->device;
  if (bits_take(&d->ready, from, s)) return true;
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
  while (find(me, (s + 1) % RT_MAX_STREAMS, &s)) run_stream(me, s);
}

void cpu_threads_finish(cpu_device *d) { compute(&d->threads[0]); }

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
    if (bits_clear(&d->sleeping, i)) wake(d, i);
  for (uint32_t i = 1; i < d->n_started; i++) (void)pthread_join(d->threads[i].handle, NULL);
}
