/* never_slower on two threads of the CPU. */
#include <malloc.h>

#include "never_slower.h"

static void copy(void *to, const void *from, size_t size_bytes) { memcpy(to, from, size_bytes); }

int main(int argc, char **argv) {
  static const place memory = {4 << 20, 1 << 20, 2e9, 0, 1e9, malloc, free, copy, copy, NULL};
  /* Blocks are used again: new pages would take longer than the programs. */
  (void)mallopt(M_MMAP_MAX, 0);
  (void)mallopt(M_TRIM_THRESHOLD, -1);
  rt_device *device = kit_device(2, false);
  if (!device) {
    fprintf(stderr, "%s\n", kit_reason);
    return 3;
  }
  return never_slower(argc, argv, device, &memory);
}
