/* Faults of a process at an instruction of its plan, for tests (docs/testing.md): WEIR_FAULT.
 *
 *   die:1:17     rank 1 is killed after it has executed, or issued, instruction 17
 *   stop:1:17    it is stopped (SIGSTOP)
 *   sleep:1:17   it sleeps for 3 s */
#ifndef WEIR_RUNTIME_FAULT_H
#define WEIR_RUNTIME_FAULT_H

#include <stdint.h>

typedef struct rt_fault {
  char kind;      /* 'd' die, 's' stop, 'l' sleep; 0: none */
  uint32_t after; /* an instruction; RT_NEVER: none */
} rt_fault;

enum { RT_NEVER = UINT32_MAX };

/* The fault that the environment sets for this rank. */
rt_fault rt_fault_of(uint32_t rank);
void rt_fault_strike(const rt_fault *f);

#endif
