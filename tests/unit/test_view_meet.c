/* Whether two views share a byte: random ones, compared with trying all bytes. test_view_meet COUNT SEED */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/plan.h"
#include "test.h"

enum { BYTES = 4096, MIDDLE = BYTES / 2 };

static uint32_t draw(uint64_t *seed, uint32_t n) {
  *seed = *seed * 6364136223846793005U + 1442695040888963407U;
  return (uint32_t)(*seed >> 33) % n;
}

static rt_view draw_view(uint64_t *seed, int64_t *extents, int64_t *strides) {
  static const ir_dtype dtypes[] = {IR_F64, IR_F32, IR_BF16, IR_I8};
  rt_view v = {.dtype = dtypes[draw(seed, 4)], .rank = draw(seed, 4)};
  int64_t stride = 1;
  for (uint32_t d = 0; d < v.rank; d++) {
    extents[d] = draw(seed, 16) ? 1 + draw(seed, 4) : 0;
    strides[d] = stride * (draw(seed, 4) ? 1 : -1) * (draw(seed, 8) ? 1 : 0);
    stride *= extents[d] + draw(seed, 3); /* with gaps, without, and sometimes overlapping */
    if (stride == 0) stride = 1;
  }
  v.extents = extents;
  v.strides = strides;
  v.offset_bytes = draw(seed, 64);
  if (draw(seed, 2)) v.offset_bytes *= (int64_t)ir_dtype_size_bytes(v.dtype);
  return v;
}

static void touch(const rt_view *v, uint32_t d, int64_t at, bool *bytes) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype);
  if (d == v->rank) {
    for (int64_t k = 0; k < size; k++) bytes[MIDDLE + at + k] = true;
    return;
  }
  for (int64_t i = 0; i < v->extents[d]; i++) touch(v, d + 1, at + i * v->strides[d] * size, bytes);
}

static bool meet(const rt_view *a, const rt_view *b) {
  bool of_a[BYTES] = {false}, of_b[BYTES] = {false}, both = false;
  touch(a, 0, a->offset_bytes, of_a);
  touch(b, 0, b->offset_bytes, of_b);
  for (int i = 0; i < BYTES; i++) both = both || (of_a[i] && of_b[i]);
  return both;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 20000, n_apart = 0;
  uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  for (int i = 0; i < count; i++) {
    uint64_t seed = first + (uint64_t)i;
    int64_t extents[2][4], strides[2][4];
    (void)draw(&seed, 2);
    rt_view a = draw_view(&seed, extents[0], strides[0]),
            b = draw_view(&seed, extents[1], strides[1]);
    bool expected = meet(&a, &b);
    n_apart += !expected;
    if (rt_views_meet(&a, &b) != expected) printf("seed %" PRIu64 "\n", first + (uint64_t)i);
    EXPECT(rt_views_meet(&a, &b) == expected);
    EXPECT(rt_views_meet(&b, &a) == expected);
  }
  EXPECT(n_apart > count / 10 && n_apart < count - count / 10);
  return test_finish();
}
