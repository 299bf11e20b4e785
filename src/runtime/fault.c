#include "runtime/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

rt_fault rt_fault_of(uint32_t rank) {
  rt_fault f = {0, RT_NEVER};
  const char *text = getenv("WEIR_FAULT"), *colon = text ? strchr(text, ':') : NULL;
  char *end = NULL;
  if (!colon || strtoul(colon + 1, &end, 10) != rank || *end != ':') return f;
  f.kind = text[0] == 's' && text[1] == 'l' ? 'l' : text[0];
  f.after = (uint32_t)strtoul(end + 1, NULL, 10);
  return f;
}

void rt_fault_strike(const rt_fault *f) {
  if (f->kind == 'd') (void)raise(SIGKILL);
  if (f->kind == 's') (void)raise(SIGSTOP);
  if (f->kind == 'l') (void)nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
}
