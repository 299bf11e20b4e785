/* Lengths that grow: buckets of an extent that has a capacity. */
#include <inttypes.h>
#include <string.h>

#include "api/program.h"

enum { SMALLEST = 64 };

static const ir_symbol_data *find_extent(const ir_func *f, const char *name) {
  const ir_scalars *s = &f->module->scalars;
  for (uint32_t i = 0; i < s->symbols.len; i++) {
    const ir_symbol_data *d = &s->symbols.data[i];
    if (ir_func_has_capacity(f, i) && strcmp(ir_name_text(f, d->name), name) == 0) return d;
  }
  return NULL;
}

weir_status weir_program_bucket(const weir_program *p, const char *extent, int64_t length,
                                int64_t *bucket) {
  if (!p || !extent || !bucket) return api_refuse("weir_program_bucket: an argument is NULL");
  const ir_symbol_data *d = find_extent(p->func, extent);
  if (!d) return api_refuse("the program has no extent '%s' with a capacity", extent);
  if (length < 0 || length > d->capacity)
    return api_refuse("length %" PRId64 " of extent '%s' is not in 0 to its capacity of %" PRId64,
                      length, extent, d->capacity);
  int64_t n = SMALLEST;
  while (n < length && n <= d->capacity / 2) n *= 2;
  *bucket = n < length || n > d->capacity ? d->capacity : n;
  return WEIR_OK;
}
