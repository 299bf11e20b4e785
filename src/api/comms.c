/* The table of communication backends. It is here because only this room may see all of them. */
#include <string.h>

#include "runtime/comm.h"

static const rt_comm_ops *const comms[] = {
#define COMM(id) &rt_comm_##id,
#include "runtime/comms.def"
#undef COMM
};

uint32_t rt_comm_count(void) { return (uint32_t)(sizeof comms / sizeof *comms); }

const rt_comm_ops *rt_comm_at(uint32_t i) { return comms[i]; }

const rt_comm_ops *rt_comm_find(const char *name) {
  for (uint32_t i = 0; i < rt_comm_count(); i++)
    if (strcmp(comms[i]->name, name) == 0) return comms[i];
  return NULL;
}
