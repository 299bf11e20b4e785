/* What happens to a process after an instruction of its plan, for tests (docs/testing.md): WEIR_FAULT.
 *
 *   die:1:17     rank 1 is killed when it has done, or issued, instruction 17
 *   stop:1:17    it is stopped
 *   sleep:1:17   it is held up for 3 s */
#ifndef WEIR_RUNTIME_FAULT_H
#define WEIR_RUNTIME_FAULT_H

#include <stdint.h>

typedef struct rt_fault {
  char kind;      /* the first letter that tells; 0: none */
  uint32_t after; /* an instruction; RT_NEVER: none */
} rt_fault;

enum { RT_NEVER = UINT32_MAX };

/* What the environment has for this rank. */
rt_fault rt_fault_of(uint32_t rank);
void rt_fault_strike(const rt_fault *f);

#endif
