/* Tells a process from those it was forked from. Only the thread that calls fork() exists in the new
 * process, so objects that have threads or connections remember their process and are not used in others. */
#ifndef WEIR_BASE_PROCESS_H
#define WEIR_BASE_PROCESS_H

#include <stdint.h>

/* A number that differs from those of all ancestors of this process. Costs no system call. */
uint32_t process_number(void);

#endif
