/* What this machine has. */
#include "api/api.h"
#include "runtime/comm.h"
#include "runtime/device.h"

typedef struct examination {
  const char *subject;
  weir_finding_fn *tell;
  void *context;
} examination;

static void say(void *context, const char *name, const char *value) {
  examination *e = context;
  e->tell(e->context, &(weir_finding){e->subject, name, value});
}

static status examine_body(arena *scratch, void *context) {
  examination *e = context;
  (void)scratch;
  for (uint32_t i = 0; i < rt_device_count(); i++) {
    e->subject = rt_device_at(i)->name;
    if (rt_device_at(i)->examine) rt_device_at(i)->examine(say, e);
  }
  for (uint32_t i = 0; i < rt_comm_count(); i++) {
    e->subject = rt_comm_at(i)->name;
    if (rt_comm_at(i)->examine) rt_comm_at(i)->examine(say, e);
  }
  return STATUS_OK;
}

weir_status weir_examine(weir_finding_fn *tell, void *context) {
  if (!tell) return api_refuse("weir_examine: an argument is NULL");
  examination e = {NULL, tell, context};
  return api_call(&memory_default, examine_body, &e);
}
