#include "base/process.h"

#include <pthread.h>
#include <stdatomic.h>

static _Atomic uint32_t forks; /* counted from the first call on, through all generations */

static void count_fork(void) { (void)atomic_fetch_add(&forks, 1); }

static void start(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

uint32_t process_number(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, start);
  return atomic_load_explicit(&forks, memory_order_relaxed);
}
