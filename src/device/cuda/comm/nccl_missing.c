/* NCCL in a build without its header: everything is UNAVAILABLE. */
#include "device/cuda/comm/nccl.h"

status cuda_nccl_open(const allocator *memory, cuda_nccl **result) {
  (void)memory, (void)result;
  return fail(STATUS_UNAVAILABLE,
              "cuda: this weir was built without NCCL: build it again where nccl.h is");
}

void cuda_nccl_close(cuda_nccl *n) { (void)n; }

bool cuda_nccl_reduces(const rt_post *post, bool all_give) {
  (void)post, (void)all_give;
  return false;
}

status cuda_nccl_prepare(cuda_loaded *l) {
  (void)l;
  impossible("there is no NCCL");
}

bool cuda_nccl_issue(cuda_loaded *l, uint32_t comm, CUstream stream) {
  (void)l, (void)comm, (void)stream;
  impossible("there is no NCCL");
}

bool cuda_nccl_has_failed(const cuda_loaded *l, uint32_t *circle, int *result) {
  (void)l, (void)circle, (void)result;
  return false;
}

bool cuda_nccl_is_stale(const cuda_loaded *l) {
  (void)l;
  return false;
}

void cuda_nccl_abort(cuda_nccl *n) { (void)n; }

void cuda_nccl_leave(cuda_nccl *n) { (void)n; }

bool cuda_nccl_is_waiting(int result) {
  (void)result;
  return false;
}

void cuda_nccl_error_text(const cuda_nccl *n, int result, char *text, size_t size_bytes) {
  (void)n, (void)result;
  if (size_bytes > 0) text[0] = 0;
}
