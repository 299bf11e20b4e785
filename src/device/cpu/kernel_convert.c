/* The way between runs in memory and dense native elements: conversions, strided copies. */
#include <string.h>

#include "device/cpu/kernel_internal.h"

cpu_convert_fn *cpu_convert_of(ir_dtype to, ir_dtype from) {
  cpu_convert_fn *convert = cpu_vectors()->convert[to][from];
  check(convert);
  return convert;
}

void cpu_copy_strided(size_t size_bytes, int64_t n, char *to, int64_t to_step, const char *from,
                      int64_t from_step) {
  cpu_vectors()->copy(size_bytes, n, to, to_step, from, from_step);
}

void cpu_fill_strided(size_t size_bytes, int64_t n, char *to, int64_t step, const void *value) {
  cpu_vectors()->fill(size_bytes, n, to, step, value);
}

void cpu_transpose(size_t size_bytes, int64_t rows, int64_t n, char *to, int64_t to_row,
                   int64_t to_step, const char *from, int64_t from_step) {
  cpu_vectors()->transpose(size_bytes, rows, n, to, to_row, to_step, from, from_step);
}

/* ---- transfers ---- */
static cpu_transfer transfer_of(ir_dtype dtype, int64_t step) {
  size_t size = ir_dtype_size_bytes(dtype);
  return (cpu_transfer){
      .size_bytes = size, .native_bytes = size, .step = step, .direct = step == (int64_t)size};
}

static void add_conversion(cpu_transfer *t, ir_dtype to, ir_dtype from) {
  if (to == from) return;
  t->convert[t->convert[0] != NULL] = cpu_convert_of(to, from);
  t->direct = false;
}

cpu_transfer cpu_transfer_load_as(ir_dtype dtype, int64_t step, ir_dtype compute, ir_dtype native) {
  cpu_transfer t = transfer_of(dtype, step);
  add_conversion(&t, compute, dtype);
  add_conversion(&t, native, compute);
  t.native_bytes = ir_dtype_size_bytes(native);
  return t;
}

cpu_transfer cpu_transfer_store(ir_dtype dtype, int64_t step, ir_dtype native) {
  cpu_transfer t = transfer_of(dtype, step);
  add_conversion(&t, dtype, native);
  t.native_bytes = ir_dtype_size_bytes(native);
  return t;
}

const void *cpu_load(const cpu_transfer *t, int64_t n, const char *from, char *scratch) {
  if (t->direct) return from;
  char *blocks[2] = {scratch, scratch + cpu_transfer_bytes(n) / 2};
  const void *at = from;
  int to = 0;
  if (t->step != (int64_t)t->size_bytes) {
    cpu_copy_strided(t->size_bytes, n, blocks[to], (int64_t)t->size_bytes, from, t->step);
    at = blocks[to];
    to ^= 1;
  }
  for (int i = 0; i < 2 && t->convert[i]; i++, to ^= 1) {
    t->convert[i](n, blocks[to], at);
    at = blocks[to];
  }
  return at;
}

void cpu_load_to(const cpu_transfer *t, int64_t n, const char *from, void *to, char *scratch) {
  bool dense = t->step == (int64_t)t->size_bytes;
  if (!t->convert[0]) {
    cpu_copy_strided(t->size_bytes, n, to, (int64_t)t->size_bytes, from, t->step);
  } else if (dense && !t->convert[1]) {
    t->convert[0](n, to, from);
  } else {
    memcpy(to, cpu_load(t, n, from, scratch), (size_t)n * t->native_bytes);
  }
}

void cpu_store(const cpu_transfer *t, int64_t n, char *to, const void *block, char *scratch) {
  bool dense = t->step == (int64_t)t->size_bytes;
  if (t->direct && to == block) return;
  if (t->convert[0]) {
    t->convert[0](n, dense ? to : scratch, block);
    if (dense) return;
    block = scratch;
  }
  cpu_copy_strided(t->size_bytes, n, to, t->step, block, (int64_t)t->size_bytes);
}
