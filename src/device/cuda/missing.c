/* The CUDA device in a build without the CUDA toolkit: opening it is UNAVAILABLE. */
#include "runtime/device.h"

static status missing_open(const rt_device_options *options, const allocator *memory,
                           rt_device **result) {
  (void)options, (void)memory, (void)result;
  return fail(STATUS_UNAVAILABLE,
              "cuda: this weir was built without CUDA: build it again where the CUDA toolkit's "
              "headers are (cuda.h, nvrtc.h, cublasLt.h, nvtx3)");
}

static void missing_examine(rt_say_fn *say, void *context) {
  say(context, "libraries", "this weir was built without the CUDA toolkit's headers");
  say(context, "libraries to do",
      "sudo apt install cuda-toolkit (NVIDIA's repository), then build Weir again");
}

static void missing_close(rt_device *device) { (void)device; }
static void missing_unload(rt_loaded *loaded) { (void)loaded; }

const rt_device_ops rt_device_cuda = {
    .name = "cuda",
    .summary = "streams of NVIDIA GPUs (not in this build)",
    .takes_adversary = true,
    .carriers = 1u << RT_CARRIER_NCCL | 1u << RT_CARRIER_CUDA_IPC,
    .open = missing_open,
    .close = missing_close,
    .examine = missing_examine,
    .unload = missing_unload,
};
