/* A hint to the processor, for spin loops. */
#ifndef WEIR_BASE_PAUSE_H
#define WEIR_BASE_PAUSE_H

static inline void thread_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#endif
