/* The caller's threads and contexts: a device, a plan and its runs may belong to different threads, with
 * or without a context of their own, and whatever context a thread has it has still after every call.
 *
 * Needs a GPU, or a stand-in for one; skips where there is neither. */
#include <pthread.h>

#include "conform/world_random.h"
#include "device/cuda/vendor.h"
#include "runtime/device.h"
#include "test.h"

static const cuda_vendor *cu;

/* One call at a time, each on a thread of its own. */
typedef struct job {
  const rt_device_options *options;
  world w;
  rt_device *device;
  rt_loaded *loaded;
  rt_span *spans; /* NULL: runs are not traced */
  status st;
} job;

static void open_device(job *j) {
  j->st = rt_device_cuda.open(j->options, &memory_default, &j->device);
}
static void ask_speed(job *j) {
  rt_speed machine;
  j->device->ops->measure(j->device, &machine);
  (void)j->device->ops->speed(j->device, &machine, j->w.n);
}
static void load(job *j) { j->st = j->device->ops->load(j->device, j->w.plan, &j->loaded); }
static void run(job *j) {
  world_clear(&j->w);
  j->st = rt_run(j->loaded, j->w.inputs, j->w.outputs, j->spans, NULL);
  if (j->st == STATUS_OK) EXPECT(world_is_right(&j->w));
}
static void unload(job *j) { j->device->ops->unload(j->loaded); }
static void close_device(job *j) { j->device->ops->close(j->device); }

typedef struct call {
  void (*call)(job *j);
  job *j;
  CUcontext context; /* of the caller */
} call;

static void *make_call(void *context) {
  const call *c = context;
  CUcontext after = NULL;
  EXPECT_INT(cu->cuCtxSetCurrent(c->context), CUDA_SUCCESS);
  c->call(c->j);
  EXPECT_INT(cu->cuCtxGetCurrent(&after), CUDA_SUCCESS);
  EXPECT(after == c->context);
  if (!EXPECT_INT(c->j->st, STATUS_OK)) fprintf(stderr, "%s\n", status_message());
  return NULL;
}

static void on_a_thread(void (*f)(job *j), job *j, CUcontext context) {
  pthread_t thread;
  call c = {f, j, context};
  check(pthread_create(&thread, NULL, make_call, &c) == 0);
  check(pthread_join(thread, NULL) == 0);
}

static void test_mode(const rt_device_options *o, CUcontext context) {
  job j = {.options = o};
  world_make(&j.w, 6, 3, 100, 30);
  on_a_thread(open_device, &j, context);
  on_a_thread(ask_speed, &j, context);
  on_a_thread(load, &j, context);
  on_a_thread(run, &j, context);
  j.spans = ARENA_ARRAY(&j.w.memory, j.w.plan->n_tasks + j.w.plan->n_posts, rt_span);
  on_a_thread(run, &j, context);
  j.spans = NULL;
  on_a_thread(run, &j, context);
  on_a_thread(unload, &j, context);
  on_a_thread(close_device, &j, context);
  world_destroy(&j.w);
}

/* What is measured between two GPUs is what plans get: memory read directly, where that is possible. */
static void test_measured_peers(void) {
  job j = {.options = &(rt_device_options){.graph = false}, .w = {.n = 2}};
  CUcontext contexts[2];
  int n = 0, can = 0;
  check(cu->cuDeviceGetCount(&n) == CUDA_SUCCESS);
  if (n < 2 || cu->cuDeviceCanAccessPeer(&can, 0, 1) != CUDA_SUCCESS || !can) return;
  for (int i = 0; i < 2; i++) check(cu->cuDevicePrimaryCtxRetain(&contexts[i], i) == CUDA_SUCCESS);
  open_device(&j);
  ask_speed(&j);
  check(cu->cuCtxSetCurrent(contexts[0]) == CUDA_SUCCESS);
  EXPECT_INT(cu->cuCtxEnablePeerAccess(contexts[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  check(cu->cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
  close_device(&j);
  for (int i = 0; i < 2; i++) (void)cu->cuDevicePrimaryCtxRelease(i);
}

int main(void) {
  int n = 0;
  CUcontext theirs;
  if (cuda_vendor_load(&cu) != STATUS_OK) {
    printf("skipped: %s\n", status_message());
    return EXPECT(true) ? test_finish() : 1;
  }
  check(cu->cuDeviceGetCount(&n) == CUDA_SUCCESS && n > 0);
  test_measured_peers(); /* the first to ask: it is measured once */
  check(cu->cuDevicePrimaryCtxRetain(&theirs, n - 1) == CUDA_SUCCESS);
  for (int i = 0; i < 2; i++) {
    CUcontext context = i ? theirs : NULL;
    test_mode(&(rt_device_options){.graph = false}, context);
    test_mode(&(rt_device_options){.graph = true}, context);
    test_mode(&(rt_device_options){.link_host = true}, context);
    test_mode(&(rt_device_options){.adversarial = true, .seed = 5}, context);
  }
  (void)cu->cuDevicePrimaryCtxRelease(n - 1);
  return test_finish();
}
