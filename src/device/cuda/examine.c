/* What `weir doctor` says of CUDA: which libraries are there. */
#include <stdio.h>

#include "device/cuda/cudnn.h"
#include "device/cuda/device.h"
#include "device/cuda/vendor.h"

static void examine_gpus(const cuda_vendor *cuda, rt_say_fn *say, void *context) {
  char text[64] = "the driver does not start";
  int n = 0;
  if (cuda->cuInit(0) == CUDA_SUCCESS && cuda->cuDeviceGetCount(&n) == CUDA_SUCCESS)
    (void)snprintf(text, sizeof text, "%d", n);
  say(context, "GPUs", text);
}

static void examine_cudnn(rt_say_fn *say, void *context) {
  const char *why = "";
  const cuda_dnn *dnn = cuda_dnn_load(&why);
  char text[64];
  if (dnn)
    (void)snprintf(text, sizeof text, "%zu.%zu.%zu", dnn->version / 10000, dnn->version / 100 % 100,
                   dnn->version % 100);
  say(context, "cuDNN", dnn ? text : why);
}

void cuda_examine(rt_say_fn *say, void *context) {
  static const char *const nccl[] = {"libnccl.so.2"};
  const cuda_vendor *cuda = NULL;
  if (cuda_vendor_load(&cuda) == STATUS_OK) {
    say(context, "libraries", "driver, NVRTC and cublasLt are there");
    examine_gpus(cuda, say, context);
    examine_cudnn(say, context);
  } else {
    say(context, "libraries", status_message());
    status_clear();
  }
  say(context, "NCCL", cuda_library_open(nccl, 1) ? "found" : "libnccl.so.2 is not found");
}
