/* never_slower on a GPU, with tensors in its memory. */
#include "never_slower.h"
#include "device/cuda/vendor.h"

static const cuda_vendor *cu;

static void *take(size_t size_bytes) {
  CUdeviceptr p = 0;
  return cu->cuMemAlloc(&p, size_bytes) == CUDA_SUCCESS ? (void *)(uintptr_t)p : NULL;
}

static void give_back(void *block) { (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)block); }

static void copy(void *to, const void *from, size_t size_bytes) {
  if (cu->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, size_bytes, NULL) != CUDA_SUCCESS ||
      cu->cuCtxSynchronize() != CUDA_SUCCESS)
    exit(1);
}

static void copy_within(void *to, const void *from, size_t size_bytes) {
  if (cu->cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, size_bytes,
                            NULL) != CUDA_SUCCESS ||
      cu->cuCtxSynchronize() != CUDA_SUCCESS)
    exit(1);
}

/* The best of a few copies of half the bytes within the GPU. */
static double copy_s(size_t size_bytes) {
  enum { TIMES = 8 };
  void *from = take(size_bytes / 2 + 1), *to = take(size_bytes / 2 + 1);
  double best = INFINITY;
  for (int i = 0; from && to && i < TIMES; i++) {
    double begin = now_s();
    copy_within(to, from, size_bytes / 2);
    best = fmin(best, now_s() - begin);
  }
  if (from) give_back(from);
  if (to) give_back(to);
  return best;
}

int main(int argc, char **argv) {
  static const place memory = {
      .most_elements = 256 << 20,
      .most_of_products = 32 << 20,
      .most_flops = 2e12,
      .least_bytes = 2e9,
      .most_memory = 60e9,
      .take = take,
      .give_back = give_back,
      .copy = copy,
      .copy_within = copy_within,
      .copy_s = copy_s,
  };
  rt_device *device = kit_gpu((rt_device_options){.threads = 0});
  CUcontext context = NULL;
  if (!device) {
    printf("skipped: %s\n", kit_reason);
    return 0;
  }
  if (cuda_vendor_load(&cu) != STATUS_OK ||
      cu->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cu->cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 1;
  return never_slower(argc, argv, device, &memory);
}
