/* A device with the endpoints of its ranks, for tests. */
#ifndef WEIR_TESTS_CONFORM_RIG_H
#define WEIR_TESTS_CONFORM_RIG_H

#include <stdlib.h>

#include "comm/faulty.h"
#include "device/cpu/adversary.h"
#include "runtime/device.h"
#include "test.h"

#define SECONDS ((int64_t)1000000000)

enum { RIG_RANKS = 16 };

/* Ends the test where it cannot. */
static inline rt_loaded *load_plan(rt_device *d, const rt_plan *plan) {
  rt_loaded *l = NULL;
  if (EXPECT_INT(d->ops->load(d, plan, &l), STATUS_OK)) return l;
  fprintf(stderr, "%s\n", status_message());
  exit(test_finish());
}

/* False: it failed, and stderr says why. */
static inline bool run_ok(rt_loaded *l, void *const *inputs, void *const *outputs, rt_span *spans) {
  if (rt_run(l, inputs, outputs, spans, NULL) == STATUS_OK) return true;
  fprintf(stderr, "%s\n", status_message());
  status_clear();
  return false;
}

typedef struct rig {
  rt_device *device;
  rt_comm *endpoints[RIG_RANKS];
  uint32_t n;
  rt_loaded *loaded;
} rig;

static inline void rig_attach(rig *g, int64_t timeout_ns) {
  g->device->ops->attach(g->device, g->endpoints, g->n, timeout_ns);
}

static inline void rig_connect(rig *g, uint32_t n, int64_t timeout_ns, const allocator *memory) {
  rt_comm_options o = {.ranks = n, .notify = g->device->ops->notify, .context = g->device};
  if (!EXPECT_INT(rt_comm_inproc.open(&o, memory, n, g->endpoints, &g->n), STATUS_OK))
    exit(test_finish());
  rig_attach(g, timeout_ns);
}

static inline void rig_disconnect(rig *g) {
  for (uint32_t r = 0; r < g->n; r++) g->endpoints[r]->ops->close(g->endpoints[r]);
  g->n = 0;
}

/* threads 0: the adversary. */
static inline void rig_open_in(rig *g, uint32_t threads, uint32_t n, int64_t timeout_ns,
                               const allocator *memory) {
  rt_device_options o = {.threads = threads, .adversarial = threads == 0};
  *g = (rig){0};
  if (!EXPECT_INT(rt_device_find("cpu")->open(&o, memory, &g->device), STATUS_OK))
    exit(test_finish());
  rig_connect(g, n, timeout_ns, memory);
}

static inline void rig_open(rig *g, uint32_t threads, uint32_t n, int64_t timeout_ns) {
  rig_open_in(g, threads, n, timeout_ns, &memory_default);
}

static inline void rig_load(rig *g, const rt_plan *plan) { g->loaded = load_plan(g->device, plan); }

static inline void rig_close(rig *g) {
  if (g->loaded) g->device->ops->unload(g->loaded);
  rig_disconnect(g);
  g->device->ops->close(g->device);
}

/* A run that must fail like this, with these words in its message. */
static inline void rig_expect_failure(rig *g, void *const *inputs, void *const *outputs, status st,
                                      const char *part) {
  EXPECT_INT(rt_run(g->loaded, inputs, outputs, NULL, NULL), st);
  EXPECT_CONTAINS(status_message(), part);
  status_clear();
}

#endif
