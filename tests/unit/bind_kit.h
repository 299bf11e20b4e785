/* Plans bound from a program's text with all extents written in it, and what they cost: an allocator
 * that counts bytes.
 *
 *   meter m = {0};
 *   bound b;
 *   if (bind_text(&b, text, 4, &m)) … b.plan …
 *   bind_close(&b);
 *
 * Inside a memory_guard(). What a program is refused for is in kit_reason. */
#ifndef WEIR_TESTS_UNIT_BIND_KIT_H
#define WEIR_TESTS_UNIT_BIND_KIT_H

#include <stdlib.h>

#include "stream_kit.h"
#include "test.h"

typedef struct meter {
  allocator memory;
  int64_t live_bytes, peak_bytes, largest_bytes;
} meter;

enum { METER_HEADER = 16 };

static inline void *meter_alloc(void *context, size_t size_bytes) {
  meter *m = context;
  if ((int64_t)size_bytes > m->largest_bytes) m->largest_bytes = (int64_t)size_bytes;
  char *block = size_bytes < SIZE_MAX / 2 ? malloc(size_bytes + METER_HEADER) : NULL;
  if (!block) return NULL;
  memcpy(block, &size_bytes, sizeof size_bytes);
  m->live_bytes += (int64_t)size_bytes;
  if (m->live_bytes > m->peak_bytes) m->peak_bytes = m->live_bytes;
  return block + METER_HEADER;
}

static inline void meter_free(void *context, void *block) {
  meter *m = context;
  size_t size_bytes;
  if (!block) return;
  char *start = (char *)block - METER_HEADER;
  memcpy(&size_bytes, start, sizeof size_bytes);
  m->live_bytes -= (int64_t)size_bytes;
  free(start);
}

static inline const allocator *meter_start(meter *m) {
  *m = (meter){.memory = {meter_alloc, meter_free, m}};
  return &m->memory;
}

typedef struct bound {
  subject s;
  ir_func *host;
  rt_plan *plan;
} bound;

/* The last function of the text: a host program, or a fusion that is lowered. */
static inline bool bind_with(bound *b, const char *text, const bind_options *options,
                             const allocator *memory) {
  b->plan = NULL;
  if (!subject_parse(&b->s, text)) return false;
  b->host = b->s.func;
  if (!b->s.func->host) {
    if (!schedule_apply(b->s.func)) return kit_refused(&b->s, "apply the schedule");
    b->host = subject_lower(&b->s, false);
    if (!b->host) return false;
  }
  ir_env env;
  ir_env_init(&env, b->host, &b->s.memory);
  if (bind_plan(&env, options, memory, &b->plan) == STATUS_OK) return true;
  return kit_refused(&b->s, status_message());
}

static inline bool bind_text(bound *b, const char *text, uint32_t streams,
                             const allocator *memory) {
  bind_options options = {.streams = streams, .seed = KIT_SEED};
  return bind_with(b, text, &options, memory);
}

static inline void bind_close(bound *b) {
  rt_plan_destroy(b->plan);
  subject_close(&b->s);
}

#endif
