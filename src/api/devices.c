/* The table of devices. It is here because only this room may see all of them. */
#include <string.h>

#include "runtime/device.h"

static const rt_device_ops *const devices[] = {
#define DEVICE(id) &rt_device_##id,
#include "base/devices.def"
#undef DEVICE
};

uint32_t rt_device_count(void) { return (uint32_t)(sizeof devices / sizeof *devices); }

const rt_device_ops *rt_device_at(uint32_t i) { return devices[i]; }

const rt_device_ops *rt_device_find(const char *name) {
  for (uint32_t i = 0; i < rt_device_count(); i++)
    if (strcmp(devices[i]->name, name) == 0) return devices[i];
  return NULL;
}

/* ---- carriers ---- */
static const struct carrier {
  const char *name, *summary;
} carriers[RT_CARRIER_COUNT] = {
#define CARRIER(ID, name, summary) [RT_CARRIER_##ID] = {name, summary},
#include "runtime/carriers.def"
#undef CARRIER
};

rt_carrier rt_carrier_find(const char *name) {
  for (uint32_t i = RT_CARRIER_NONE + 1; i < RT_CARRIER_COUNT; i++)
    if (strcmp(carriers[i].name, name) == 0) return (rt_carrier)i;
  return RT_CARRIER_NONE;
}

const char *rt_carrier_name(rt_carrier c) { return carriers[c].name; }
const char *rt_carrier_summary(rt_carrier c) { return carriers[c].summary; }
