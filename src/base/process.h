/* Which process this is. fork() makes another one, in which only the thread that called it goes on: what has threads
 * or connections remembers its process, and is not used in others. */
#ifndef WEIR_BASE_PROCESS_H
#define WEIR_BASE_PROCESS_H

#include <stdint.h>

/* Differs from that of every process this one descends from. Costs no system call. */
uint32_t process_number(void);

#endif
