/* What `weir doctor` says of CUDA: which libraries are there. */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/cudnn.h"
#include "device/cuda/device.h"
#include "device/cuda/vendor.h"

/* Has the machine a GPU without a driver? Looks for vendor 10de among the devices on its buses. */
static bool has_gpu(void) {
  glob_t found;
  bool any = false;
  if (glob("/sys/bus/pci/devices/*/vendor", 0, NULL, &found) != 0) return false;
  for (size_t i = 0; i < found.gl_pathc && !any; i++) {
    char vendor[8] = "";
    FILE *f = fopen(found.gl_pathv[i], "r");
    any = f && fgets(vendor, sizeof vendor, f) && strncmp(vendor, "0x10de", 6) == 0;
    if (f) (void)fclose(f);
  }
  globfree(&found);
  return any;
}

static const char *library_to_do(const char *message) {
  if (strstr(message, "libcuda.so"))
    return "install the driver: sudo apt install nvidia-driver (Debian, non-free), or NVIDIA's own";
  return "sudo apt install cuda-toolkit (NVIDIA's repository), or pip install nvidia-cuda-nvrtc "
         "nvidia-cublas";
}

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
  if (!dnn)
    say(context, "cuDNN to do", "sudo apt install cudnn9, or pip install nvidia-cudnn-cu13");
}

void cuda_examine(rt_say_fn *say, void *context) {
  static const char *const nccl[] = {"libnccl.so.2"};
  const cuda_vendor *cuda = NULL;
  if (cuda_vendor_load(&cuda) == STATUS_OK) {
    say(context, "libraries", "driver, NVRTC and cublasLt are there");
    examine_gpus(cuda, say, context);
    examine_cudnn(say, context);
  } else {
    const char *message = status_message();
    say(context, "libraries", message);
    if (has_gpu()) say(context, "libraries to do", library_to_do(message));
    else say(context, "GPUs", "this machine has none by NVIDIA");
    status_clear();
  }
  bool has_nccl = cuda_library_open(nccl, 1) != NULL;
  say(context, "NCCL", has_nccl ? "found" : "libnccl.so.2 is not found");
  if (!has_nccl && has_gpu())
    say(context, "NCCL to do", "sudo apt install libnccl2, or pip install nvidia-nccl-cu13");
}
