/* What the stand-in for NVRTC makes and the one for the driver loads. */
#ifndef WEIR_TESTS_STANDIN_IMAGE_H
#define WEIR_TESTS_STANDIN_IMAGE_H

#include <stdint.h>

static const char image_magic[8] = {'s', 't', 'a', 'n', 'd', 'i', 'n', '1'};

typedef struct image_head {
  char magic[8];
  uint64_t size_bytes; /* of the library that follows */
} image_head;

typedef void image_call(void *const *params);
typedef void image_launch(image_call *call, void *const *params, const unsigned grid[3],
                          unsigned threads, int barriers);

#endif
