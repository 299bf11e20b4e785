#include "data/fill.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/table.h"

bool data_fill_parse(const char *text, data_fill_kind *kind) {
  static const char *const names[] = {"normal", "int", "iota", "ones"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(names[i], text) != 0) continue;
    *kind = (data_fill_kind)i;
    return true;
  }
  return false;
}

static uint64_t stream_key(uint64_t seed, const char *name) {
  return random_mix(seed + 1) ^ hash_bytes(name, strlen(name));
}

/* Box and Muller; the first unit is taken from (0, 1], whose logarithm is finite. */
static double draw_normal(uint64_t key, uint64_t i) {
  const double two_pi = 6.283185307179586;
  double u = 1.0 - random_unit(random_bits(key, 2 * i));
  double v = random_unit(random_bits(key, 2 * i + 1));
  return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}

static int64_t draw_below(uint64_t key, uint64_t i, int64_t bound) {
  return (int64_t)(random_bits(key, i) % (uint64_t)bound);
}

static int64_t draw_int(ir_dtype dtype, uint64_t key, uint64_t i) {
  if (dtype == IR_BOOL) return draw_below(key, i, 2);
  if (dtype == IR_U8) return draw_below(key, i, 4);
  return draw_below(key, i, 7) - 3;
}

static void set_element(ir_dtype dtype, void *p, data_fill_kind kind, uint64_t key, uint64_t i) {
  switch (kind) {
  case DATA_FILL_NORMAL:
    if (ir_dtype_is_float(dtype)) ir_element_set_f64(dtype, p, draw_normal(key, i));
    else ir_element_set_i64(dtype, p, draw_int(dtype, key, i));
    return;
  case DATA_FILL_INT: ir_element_set_i64(dtype, p, draw_int(dtype, key, i)); return;
  case DATA_FILL_IOTA:
    ir_element_set_i64(dtype, p, dtype == IR_BOOL ? (int64_t)(i % 2) : (int64_t)i);
    return;
  case DATA_FILL_ONES: ir_element_set_i64(dtype, p, 1); return;
  }
}

static bool is_empty(const ir_array *a) {
  int64_t n;
  check(ir_array_count(a, &n));
  return n == 0;
}

void data_fill(const ir_array *a, data_fill_kind kind, uint64_t seed, const char *name) {
  int64_t index[IR_MAX_RANK] = {0};
  uint64_t key = stream_key(seed, name), i = 0;
  if (is_empty(a)) return;
  do set_element(a->dtype, ir_array_at(a, index), kind, key, i++);
  while (ir_array_next(a, index));
}

status data_fill_index(const ir_array *a, int64_t bound, uint64_t seed, const char *name) {
  int64_t index[IR_MAX_RANK] = {0};
  uint64_t key = stream_key(seed, name), i = 0;
  if (is_empty(a)) return STATUS_OK;
  if (bound < 1)
    return fail(STATUS_BAD_USAGE, "%s cannot be filled: the axis it indexes has size %" PRId64,
                name, bound);
  do ir_element_set_i64(a->dtype, ir_array_at(a, index), draw_below(key, i++, bound));
  while (ir_array_next(a, index));
  return STATUS_OK;
}
