/* The table of devices. It stands here because only this room may see all of them. */
#include <string.h>

#include "runtime/device.h"

static const rt_device_ops *const devices[] = {
#define DEVICE(id) &rt_device_##id,
#include "runtime/backends.def"
#undef DEVICE
};

uint32_t rt_device_count(void) { return (uint32_t)(sizeof devices / sizeof *devices); }

const rt_device_ops *rt_device_at(uint32_t i) { return devices[i]; }

const rt_device_ops *rt_device_find(const char *name) {
  for (uint32_t i = 0; i < rt_device_count(); i++)
    if (strcmp(devices[i]->name, name) == 0) return devices[i];
  return NULL;
}
