/* The stand-ins themselves: do streams run in all orders that are allowed and in no other, is every
 * misuse told? Calls go to the stand-in that this program is linked with. */
#include <nvrtc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "standin/standin.h"
#include "test.h"

#define OK(call) EXPECT_INT(call, CUDA_SUCCESS)
enum { TRIALS = 200, BYTES = 64 };

static CUcontext gpu[2];
static FILE *said; /* what would be on stderr */

static CUdeviceptr memory(int on) {
  CUdeviceptr p = 0;
  OK(cuCtxSetCurrent(gpu[on]));
  OK(cuMemAlloc(&p, BYTES));
  OK(cuMemsetD8(p, 0, BYTES));
  return p;
}

static CUstream stream(int on) {
  CUstream s = NULL;
  OK(cuCtxSetCurrent(gpu[on]));
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  return s;
}

static CUevent event(int on, unsigned flags) {
  CUevent e = NULL;
  OK(cuCtxSetCurrent(gpu[on]));
  OK(cuEventCreate(&e, flags));
  return e;
}

static int byte_at(CUdeviceptr p) {
  unsigned char x = 0;
  OK(cuMemcpyDtoH(&x, p, 1));
  return x;
}

/* Writes v to the first byte after what is on the stream. */
static void put(CUdeviceptr p, unsigned char v, CUstream s) { OK(cuMemsetD8Async(p, v, 1, s)); }

/* ---- order ---- */
/* Two streams write: who is last is open, unless one waits for the other. */
static void test_order(bool waits, bool recorded) {
  CUdeviceptr p = memory(0);
  CUstream a = stream(0), b = stream(0);
  CUevent e = event(0, CU_EVENT_DISABLE_TIMING);
  int last[3] = {0};
  for (int i = 0; i < TRIALS; i++) {
    if (!recorded) OK(cuEventDestroy(e)), e = event(0, CU_EVENT_DISABLE_TIMING);
    put(p, 1, a);
    if (recorded) OK(cuEventRecord(e, a));
    if (waits) OK(cuStreamWaitEvent(b, e, 0));
    put(p, 2, b);
    OK(cuStreamSynchronize(b));
    OK(cuStreamSynchronize(a));
    last[byte_at(p)]++;
  }
  EXPECT_INT(last[0], 0);
  if (waits && recorded) EXPECT_INT(last[1], 0);
  else EXPECT(last[1] > 0 && last[2] > 0);
  OK(cuEventDestroy(e));
  OK(cuStreamDestroy(a));
  OK(cuStreamDestroy(b));
  OK(cuMemFree(p));
}

/* A wait is for the record before it, not for one that comes later. */
static void test_records(void) {
  CUdeviceptr p = memory(0), flag = memory(0);
  CUstream a = stream(0), b = stream(0), c = stream(0);
  CUevent e = event(0, CU_EVENT_DEFAULT), end = event(0, CU_EVENT_DEFAULT);
  float ms = -1;
  EXPECT_INT(cuEventElapsedTime(&ms, e, end), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventSynchronize(e)); /* never recorded */
  put(p, 1, a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuStreamWaitValue32(a, flag, 7, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuEventRecord(e, a));
  OK(cuStreamSynchronize(b)); /* would hang if it waited for the second */
  EXPECT_INT(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  EXPECT_INT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  OK(cuStreamWriteValue32(c, flag, 9, 0));
  OK(cuEventRecord(end, a));
  OK(cuEventSynchronize(end));
  OK(cuEventQuery(e));
  OK(cuEventElapsedTime(&ms, e, end));
  EXPECT(ms >= 0);
  OK(cuEventDestroy(e));
  OK(cuEventDestroy(end));
  OK(cuStreamDestroy(a));
  OK(cuStreamDestroy(b));
  OK(cuStreamDestroy(c));
  OK(cuCtxSynchronize());
  OK(cuMemFree(p));
  OK(cuMemFree(flag));
}

static void count_up(void *data) { ++*(int *)data; }

/* Of pageable memory, too, nothing is there before somebody waits. */
static void test_copies(void) {
  CUdeviceptr p = memory(0), q = memory(1);
  CUstream s = stream(0);
  unsigned char from[BYTES], to[BYTES] = {0};
  void *pinned = NULL;
  int calls = 0;
  for (int i = 0; i < BYTES; i++) from[i] = (unsigned char)(i + 1);
  OK(cuMemHostAlloc(&pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE));
  OK(cuMemcpyHtoDAsync(p, from, BYTES, s));
  OK(cuMemcpyPeerAsync(q, gpu[1], p, gpu[0], BYTES, s));
  OK(cuMemcpyDtoHAsync(pinned, q, BYTES, s));
  OK(cuLaunchHostFunc(s, count_up, &calls));
  OK(cuMemcpyHtoDAsync(p + 1, pinned, 2, s));
  OK(cuMemcpyDtoDAsync(p + 8, p, 3, s));
  OK(cuMemcpyDtoHAsync(to, p, BYTES, s));
  OK(cuStreamSynchronize(s));
  EXPECT_INT(calls, 1);
  EXPECT_INT(memcmp(pinned, from, BYTES), 0);
  EXPECT(to[0] == 1 && to[1] == 1 && to[2] == 2 && to[3] == 4 && to[9] == 1 && to[10] == 2);
  OK(cuMemFreeHost(pinned));
  OK(cuStreamDestroy(s));
  OK(cuMemFree(p));
  OK(cuMemFree(q));
}

/* ---- graphs ---- */
/* a: 1, then (b: 2 to another byte), then a copies both: at every launch. */
static void test_graphs(void) {
  CUdeviceptr p = memory(0);
  CUstream a = stream(0), b = stream(0);
  CUevent fork = event(0, CU_EVENT_DISABLE_TIMING), join = event(0, CU_EVENT_DISABLE_TIMING);
  CUgraph g = NULL;
  CUgraphExec x = NULL;
  OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  put(p, 1, a);
  OK(cuEventRecord(fork, a));
  OK(cuStreamWaitEvent(b, fork, 0));
  OK(cuMemcpyDtoDAsync(p + 1, p, 1, b));
  OK(cuEventRecord(join, b));
  put(p, 3, a); /* beside b's: sometimes b sees it */
  OK(cuStreamWaitEvent(a, join, 0));
  OK(cuMemcpyDtoDAsync(p + 2, p + 1, 1, a));
  OK(cuStreamEndCapture(a, &g));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuGraphDestroy(g));
  EXPECT_INT(byte_at(p), 0);
  int seen[4] = {0};
  for (int i = 0; i < TRIALS; i++) {
    OK(cuMemsetD8(p, 0, BYTES));
    OK(cuGraphLaunch(x, a));
    OK(cuStreamSynchronize(a));
    int between = byte_at(p + 1);
    EXPECT(byte_at(p) == 3 && byte_at(p + 2) == between && between < 4);
    seen[between % 4]++;
  }
  EXPECT(seen[0] == 0 && seen[1] > 0 && seen[3] > 0);
  OK(cuGraphExecDestroy(x));
  OK(cuEventDestroy(fork));
  OK(cuEventDestroy(join));
  OK(cuStreamDestroy(a));
  OK(cuStreamDestroy(b));
  OK(cuMemFree(p));
}

/* ---- kernels ---- */
static const char text[] =
    "struct __align__(8) pair { const float *in; float *out; };\n"
    "extern \"C\" __global__ void sums(const pair p, const int n) {\n"
    "  __shared__ float part[64];\n"
    "  unsigned short h; float y;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(p.in[threadIdx.x]));\n"
    "  asm volatile(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(h));\n"
    "  part[threadIdx.x] = y;\n"
    "  __syncthreads();\n"
    "  p.out[blockIdx.x * blockDim.x + threadIdx.x] = part[(threadIdx.x + 1) % n] + gridDim.x;\n"
    "}\n";

static CUfunction compile(CUmodule *m) {
  nvrtcProgram program = NULL;
  size_t size = 0;
  CUfunction f = NULL;
  EXPECT_INT(nvrtcCreateProgram(&program, text, "k.cu", 0, NULL, NULL), NVRTC_SUCCESS);
  EXPECT_INT(nvrtcCompileProgram(program, 0, NULL), NVRTC_SUCCESS);
  EXPECT_INT(nvrtcGetCUBINSize(program, &size), NVRTC_SUCCESS);
  char *image = calloc(1, size + 1);
  if (!image) abort();
  EXPECT_INT(nvrtcGetCUBIN(program, image), NVRTC_SUCCESS);
  OK(cuCtxSetCurrent(gpu[0]));
  EXPECT_INT(cuModuleLoadData(m, "no module at all"), CUDA_ERROR_INVALID_IMAGE);
  OK(cuModuleLoadData(m, image));
  EXPECT_INT(cuModuleGetFunction(&f, *m, "sum"), CUDA_ERROR_NOT_FOUND);
  OK(cuModuleGetFunction(&f, *m, "sums"));
  free(image);
  EXPECT_INT(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
  return f;
}

static void test_kernels(void) {
  CUdeviceptr in = memory(0), out = memory(0), other = memory(1);
  CUstream s = stream(0), elsewhere = stream(1);
  CUmodule m = NULL;
  CUfunction f = compile(&m);
  float x[4] = {1, 2, 2049, 4}, y[8] = {0};
  CUdeviceptr pair[2] = {in, out};
  int n = 4;
  void *params[] = {pair, &n};
  OK(cuMemcpyHtoD(in, x, sizeof x));
  OK(cuLaunchKernel(f, 2, 1, 1, 4, 1, 1, 0, s, params, NULL));
  pair[0] = pair[1] = 0; /* were taken at the launch */
  OK(cuMemcpyDtoHAsync(y, out, sizeof y, s));
  OK(cuStreamSynchronize(s));
  float want[4] = {4, 2050, 6, 3};
  for (int i = 0; i < 8; i++) EXPECT(y[i] == want[i % 4]);
  EXPECT_INT(cuLaunchKernel(f, 1, 1, 1, 4, 1, 1, 0, elsewhere, params, NULL),
             CUDA_ERROR_INVALID_HANDLE);
  EXPECT_INT(cuLaunchKernel(f, 0, 1, 1, 4, 1, 1, 0, s, params, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleUnload(m));
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(elsewhere));
  OK(cuMemFree(in));
  OK(cuMemFree(out));
  OK(cuMemFree(other));
}

/* ---- misuse ---- */
/* What was said since the last time contains the words. */
static bool told(const char *words) {
  char line[512] = "";
  bool found = false;
  fflush(stderr);
  while (fgets(line, sizeof line, said)) found = found || strstr(line, words);
  clearerr(said);
  return found;
}

/* Told to skip kernels, it takes any machine code, whose kernels do nothing. */
static void test_skipped(void) {
  CUmodule m = NULL;
  CUfunction f = NULL;
  CUstream s = stream(0);
  CUdeviceptr p = memory(0);
  void *params[] = {&p};
  if (!EXPECT(setenv("WEIR_STANDIN_KERNELS", "skip", 1) == 0)) return;
  OK(cuModuleLoadData(&m, "no module at all"));
  OK(cuModuleGetFunction(&f, m, "sum"));
  put(p, 7, s);
  OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, NULL));
  OK(cuStreamSynchronize(s));
  EXPECT_INT(byte_at(p), 7);
  OK(cuModuleUnload(m));
  OK(cuStreamDestroy(s));
  OK(cuMemFree(p));
  EXPECT(unsetenv("WEIR_STANDIN_KERNELS") == 0);
  EXPECT_INT(cuModuleLoadData(&m, "no module at all"), CUDA_ERROR_INVALID_IMAGE);
}

static void test_ranges(void) {
  CUdeviceptr p = memory(0), freed = memory(0);
  CUstream s = stream(0);
  char host[2 * BYTES] = {0};
  OK(cuStreamWaitValue32(s, freed, 7, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_INT(cuMemFree(freed), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("cuMemFree: cuStreamWaitValue32 has yet to use it"));
  CUstream other = stream(0);
  OK(cuStreamWriteValue32(other, freed, 7, 0));
  OK(cuStreamDestroy(other));
  OK(cuStreamSynchronize(s));
  OK(cuCtxSynchronize());
  OK(cuMemFree(freed));
  EXPECT_INT(cuMemcpyDtoHAsync(host, p, BYTES + 1, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("65 bytes at byte 0 of a block of 64"));
  EXPECT_INT(cuMemcpyHtoDAsync(freed, host, 1, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("was freed"));
  EXPECT_INT(cuMemsetD8Async((CUdeviceptr)(uintptr_t)host, 0, 1, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("is no memory of a GPU"));
  EXPECT_INT(cuMemcpyDtoHAsync((void *)(uintptr_t)p, p, 1, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("not of the host"));
  EXPECT_INT(cuMemcpyPeerAsync(p, gpu[1], p, gpu[0], 1, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("not in the context"));
  EXPECT_INT(cuMemFree(p + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_INT(cuMemFree(freed), CUDA_ERROR_INVALID_VALUE);
  EXPECT(told("no block that it can free"));
  OK(cuStreamDestroy(s));
  OK(cuMemFree(p));
}

static void test_handles(void) {
  CUdeviceptr p = memory(0);
  CUstream s = stream(0), other = stream(1), gone = stream(0);
  CUevent e = event(0, CU_EVENT_DISABLE_TIMING);
  CUgraph g = NULL;
  float ms;
  OK(cuStreamDestroy(gone));
  EXPECT_INT(cuEventRecord(e, gone), CUDA_ERROR_INVALID_HANDLE);
  EXPECT(told("no stream"));
  EXPECT_INT(cuEventRecord(e, other), CUDA_ERROR_INVALID_HANDLE);
  EXPECT(told("an event of GPU 0 is recorded by GPU 1"));
  OK(cuStreamWaitEvent(other, e, 0)); /* this may cross */
  EXPECT_INT(cuEventElapsedTime(&ms, e, e), CUDA_ERROR_INVALID_HANDLE);
  OK(cuCtxSetCurrent(gpu[1]));
  EXPECT_INT(cuMemsetD8Async(p, 0, 1, s), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT(told("another context"));
  OK(cuCtxSetCurrent(gpu[0]));
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_INT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_INT(cuMemAlloc(&p, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(other, e, 0));
  OK(cuCtxSetCurrent(gpu[1]));
  OK(cuMemcpyDtoDAsync(p, p + 1, 1, other));
  EXPECT_INT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT(told("not joined"));
  EXPECT_INT(cuStreamWaitEvent(other, e, 0), CUDA_ERROR_CAPTURED_EVENT);
  OK(cuEventDestroy(e));
  EXPECT_INT(cuEventDestroy(e), CUDA_ERROR_INVALID_HANDLE);
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(other));
  OK(cuMemFree(p));
}

/* ---- another process ---- */
typedef struct letter {
  CUipcMemHandle handle;
} letter;

/* Waits for 5 in the parent's memory, then writes 6. */
static int child(int in) {
  letter l;
  CUdeviceptr p = 0;
  if (read(in, &l, sizeof l) != (ssize_t)sizeof l || cuInit(0) != CUDA_SUCCESS) return 1;
  if (cuDevicePrimaryCtxRetain(&gpu[0], 0) != CUDA_SUCCESS) return 1;
  OK(cuCtxSetCurrent(gpu[0]));
  OK(cuIpcOpenMemHandle(&p, l.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CUstream s = stream(0);
  OK(cuStreamWaitValue64(s, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWriteValue64(s, p + 8, 6, 0));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy(s));
  OK(cuIpcCloseMemHandle(p));
  return test_failed != 0;
}

static void test_processes(pid_t pid, int out) {
  CUdeviceptr p = memory(0);
  CUstream s = stream(0);
  letter l;
  int ended = -1;
  OK(cuIpcGetMemHandle(&l.handle, p));
  EXPECT_INT(write(out, &l, sizeof l), sizeof l);
  EXPECT_INT(cuStreamWriteValue64(s, p, 5, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
             CUDA_ERROR_INVALID_VALUE); /* as the driver has it since CUDA 12 */
  OK(cuStreamWriteValue64(s, p, 5, 0));
  OK(cuStreamWaitValue64(s, p + 8, 6, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamSynchronize(s));
  EXPECT_INT(byte_at(p + 8), 6);
  EXPECT_INT(waitpid(pid, &ended, 0), pid);
  EXPECT_INT(ended, 0);
  OK(cuStreamDestroy(s));
  OK(cuMemFree(p));
}

int main(void) {
  int pipes[2];
  if (setenv("WEIR_STANDIN_GPUS", "2", 1) || setenv("WEIR_STANDIN_MISUSE", "return", 1)) return 1;
  (void)unsetenv("WEIR_STANDIN_ORDER");
  if (pipe(pipes) != 0) return 1;
  pid_t pid = fork();
  if (pid == 0) return child(pipes[0]);
  char path[] = "/tmp/weir-standin-said-XXXXXX";
  int file = mkstemp(path);
  if (file < 0 || !freopen(path, "w", stderr)) return 1;
  said = fdopen(file, "r");
  (void)unlink(path);
  OK(cuInit(0));
  for (int i = 0; i < 2; i++) OK(cuDevicePrimaryCtxRetain(&gpu[i], i));
  test_processes(pid, pipes[1]);
  test_order(false, true);
  test_order(true, false);
  test_order(true, true);
  test_records();
  test_copies();
  test_graphs();
  test_kernels();
  test_skipped();
  test_ranges();
  test_handles();
  for (int i = 0; i < 2; i++) OK(cuDevicePrimaryCtxRelease(i));
  fflush(stderr);
  char line[512];
  rewind(said);
  while (test_failed && fgets(line, sizeof line, said)) printf("%s", line);
  return test_finish();
}
