/* Copying, comparing and hashing arrays with random strides, against a walk over single elements. */
#include "ir/array.h"

#include <stdlib.h>

#include "test.h"

enum { ROOM = 1 << 15, ROUNDS = 4000 };

static uint64_t state = 0x2545F4914F6CDD1Du;
static uint32_t draw(uint32_t n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)(state >> 33) % n;
}

static const ir_dtype dtypes[] = {IR_BOOL, IR_BF16, IR_F32, IR_F64};

/* Strides in a random order of axes, with gaps, some negative; `data` is where position 0 is. */
static ir_array lay_out(const ir_array *shape, unsigned char *room, bool may_expand) {
  ir_array a = *shape;
  uint32_t order[IR_MAX_RANK];
  int64_t stride = 1 + draw(2), first = 0;
  for (uint32_t i = 0; i < a.rank; i++) order[i] = i;
  for (uint32_t i = 0; draw(2) && i < a.rank; i++) {
    uint32_t k = draw(a.rank), swap = order[i];
    order[i] = order[k], order[k] = swap;
  }
  for (uint32_t i = a.rank; i-- > 0;) {
    uint32_t d = order[i];
    a.strides[d] = stride;
    if (may_expand && draw(8) == 0) a.strides[d] = 0;
    else if (draw(6) == 0) a.strides[d] = -stride, first += stride * (a.extents[d] - 1);
    stride *= a.extents[d];
    if (draw(4) == 0) stride += draw(3);
  }
  a.data = room + (size_t)first * ir_dtype_size_bytes(a.dtype);
  return a;
}

static ir_array draw_shape(void) {
  static const uint32_t most[] = {4096, 4096, 90, 16, 8, 5};
  ir_array a = {.dtype = dtypes[draw(4)], .rank = draw(6)};
  for (uint32_t i = 0; i < a.rank; i++)
    a.extents[i] = draw(30) == 0 ? 0 : 1 + draw(a.rank == 2 && draw(2) ? 20 : most[a.rank]);
  return a;
}

static void copy_by_element(const ir_array *to, const ir_array *from) {
  int64_t index[IR_MAX_RANK] = {0}, n;
  if (!ir_array_count(to, &n) || n == 0) return;
  do memcpy(ir_array_at(to, index), ir_array_at(from, index), ir_dtype_size_bytes(to->dtype));
  while (ir_array_next(to, index));
}

static void try_random(unsigned char *values, unsigned char *got, unsigned char *expected) {
  int64_t n;
  ir_array shape = draw_shape();
  if (!ir_array_count(&shape, &n) || n > 4096) return;
  ir_array from = lay_out(&shape, values, true), to = lay_out(&shape, got, false), same = to;
  same.data = expected + ((unsigned char *)to.data - got);
  memset(got, 0xA5, 8 * ROOM);
  memset(expected, 0xA5, 8 * ROOM);
  ir_array_copy(&to, &from);
  copy_by_element(&same, &from);
  EXPECT(memcmp(got, expected, 8 * ROOM) == 0);
  EXPECT(ir_array_same_bytes(&to, &from) && ir_array_same_bytes(&from, &to));
  EXPECT(ir_array_hash(&to) == ir_array_hash(&from));
  if (n == 0) return;
  int64_t index[IR_MAX_RANK] = {0};
  for (uint32_t i = 0; i < to.rank; i++) index[i] = draw((uint32_t)to.extents[i]);
  *(unsigned char *)ir_array_at(&to, index) ^= 1;
  EXPECT(!ir_array_same_bytes(&to, &from) && !ir_array_same_bytes(&from, &to));
  EXPECT(ir_array_hash(&to) != ir_array_hash(&from));
}

int main(void) {
  unsigned char *room = malloc(3 * 8 * ROOM);
  if (!room) return 1;
  for (size_t i = 0; i < 8 * ROOM; i++) room[i] = (unsigned char)draw(256);
  for (int i = 0; i < ROUNDS; i++) try_random(room, room + 8 * ROOM, room + 16 * ROOM);
  free(room);
  return test_finish();
}
