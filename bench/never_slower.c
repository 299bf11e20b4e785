/* never_slower on two threads of the CPU. */
#include <malloc.h>

#include "never_slower.h"

/* Blocks are used again, up to a limit: new pages would take longer than the programs. */
static void give_back(void *block) {
  enum { MOST_GIB = 4 };
  free(block);
  if (mallinfo2().arena >> 30 >= MOST_GIB) (void)malloc_trim(0);
}

static void copy(void *to, const void *from, size_t size_bytes) { memcpy(to, from, size_bytes); }

int main(int argc, char **argv) {
  static const place memory = {4 << 20, 1 << 20, 2e9, 0, 1e9, malloc, give_back, copy, copy, NULL};
  (void)mallopt(M_MMAP_MAX, 0);
  (void)mallopt(M_TRIM_THRESHOLD, -1);
  rt_device *device = kit_device(2, false);
  if (!device) {
    fprintf(stderr, "%s\n", kit_reason);
    return 3;
  }
  return never_slower(argc, argv, device, &memory);
}
