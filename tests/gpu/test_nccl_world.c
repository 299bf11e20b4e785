/* A world of the caller's NCCL communicators: torchrun, or tests/mpi/torchrun.sh, starts the ranks;
 * each makes a communicator by itself, as PyTorch does, gives it to Weir, and uses it afterwards as
 * before. Programs run on GPUs, by communicators of Weir's own. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

#include "device/cuda/vendor.h"
#include "test.h"

static const cuda_vendor *cu;
static struct {
  __typeof__(&ncclGetUniqueId) id;
  __typeof__(&ncclCommInitRankConfig) init;
  __typeof__(&ncclCommGetAsyncError) state;
  __typeof__(&ncclCommAbort) abort;
} nccl;

static void take(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  check(found != NULL);
  memcpy(function, &found, sizeof found);
}

static bool load(void) {
  const char *named = getenv("WEIR_NCCL_LIBRARY");
  void *library = dlopen(named && *named ? named : "libnccl.so.2", RTLD_NOW);
  int gpus = 0;
  if (!library || cuda_vendor_load(&cu) != STATUS_OK) return false;
  if (cu->cuDeviceGetCount(&gpus) != CUDA_SUCCESS || gpus == 0) return false;
  take(library, "ncclGetUniqueId", &nccl.id);
  take(library, "ncclCommInitRankConfig", &nccl.init);
  take(library, "ncclCommGetAsyncError", &nccl.state);
  take(library, "ncclCommAbort", &nccl.abort);
  return true;
}

static int number(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

static void rest(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

/* Rank 0's id, by a file that all reach. */
static ncclUniqueId share_id(int rank) {
  ncclUniqueId id = {0};
  char path[128], made[140];
  (void)snprintf(path, sizeof path, "/tmp/weir-nccl-id-%d", number("MASTER_PORT"));
  (void)snprintf(made, sizeof made, "%s.made", path);
  if (rank == 0) {
    EXPECT_INT(nccl.id(&id), ncclSuccess);
    FILE *file = fopen(made, "w");
    check(file && fwrite(&id, sizeof id, 1, file) == 1);
    (void)fclose(file);
    check(rename(made, path) == 0);
    return id;
  }
  FILE *file = NULL;
  for (int i = 0; i < 5000 && !(file = fopen(path, "r")); i++) rest();
  check(file && fread(&id, sizeof id, 1, file) == 1);
  (void)fclose(file);
  return id;
}

static ncclComm_t make_communicator(int rank, int size) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id = share_id(rank);
  ncclComm_t comm = NULL;
  ncclResult_t state = ncclInProgress;
  config.blocking = 0;
  ncclResult_t r = nccl.init(&comm, size, id, rank, &config);
  EXPECT(r == ncclSuccess || r == ncclInProgress);
  while (state == ncclInProgress && nccl.state(comm, &state) == ncclSuccess) rest();
  EXPECT_INT(state, ncclSuccess);
  return comm;
}

static void open_gpu(int rank) {
  int gpus = 1;
  CUdevice gpu;
  CUcontext context;
  check(cu->cuDeviceGetCount(&gpus) == CUDA_SUCCESS);
  check(cu->cuDeviceGet(&gpu, (gpus - 1 - rank % gpus)) ==
        CUDA_SUCCESS); /* not what its rank says */
  check(cu->cuDevicePrimaryCtxRetain(&context, gpu) == CUDA_SUCCESS);
  check(cu->cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

/* ---- Weir ---- */
static void run(const weir_world *world, int size) {
  char text[512];
  float x[8][6], y[6] = {0};
  int64_t tall[] = {8, 6}, flat[] = {6};
  weir_dl_tensor in = {.data = x, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = tall};
  weir_dl_tensor out = {.data = y, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = flat};
  const weir_dl_tensor *inputs[] = {&in}, *outputs[] = {&out};
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 1};
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  args.outputs = outputs;
  args.n_outputs = 1;
  for (int i = 0; i < 48; i++) x[i / 6][i % 6] = (float)(i % 6);
  int length =
      snprintf(text, sizeof text,
               "fusion f {\n mesh d = [%d]\n x : f32[8, 6]\n y = sum(x, dims=[0])\n return y\n"
               " schedule { x, y on d; x.outer_split(0, d); x[0] = mesh.x }\n}",
               size);
  EXPECT_INT(weir_module_parse("f.weir", text, (size_t)length, NULL, &m), WEIR_OK);
  EXPECT_INT(weir_module_find(m, NULL, &f), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "device", "cuda"), WEIR_OK);
  EXPECT_INT(weir_options_set(o, "comm", "nccl"), WEIR_OK);
  EXPECT_INT(weir_options_set_world(o, world), WEIR_OK);
  if (!EXPECT_INT(weir_compile(f, o, NULL, &p), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
  for (int i = 0; p && i < 3; i++)
    if (!EXPECT_INT(weir_run(p, &args), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
  for (int i = 0; i < 6; i++) EXPECT_INT(y[i], 8 * i);
  weir_program_destroy(p);
  weir_options_destroy(o);
  weir_module_destroy(m);
}

int main(void) {
  int rank = number("RANK"), size = number("WORLD_SIZE");
  if (!load() || size < 2) {
    printf("skipped: there is no GPU with NCCL, or torchrun has not started this\n");
    return 0;
  }
  open_gpu(rank);
  ncclComm_t comm = make_communicator(rank, size);
  for (const char *const *v = (const char *const[]){"RANK", "WORLD_SIZE", "LOCAL_RANK", NULL}; *v;
       v++)
    (void)unsetenv(*v);
  weir_world_args a = {.struct_size = sizeof a, .nccl_comm = comm};
  for (int i = 0; i < 2; i++) {
    weir_world_info d = {.struct_size = sizeof d};
    weir_world *w = NULL;
    if (!EXPECT_INT(weir_world_create(&a, &w), WEIR_OK)) fprintf(stderr, "%s\n", weir_error());
    if (!w) break;
    EXPECT_INT(weir_world_describe(w, &d), WEIR_OK);
    EXPECT(d.rank == rank && d.size == size);
    run(w, size);
    weir_world_destroy(w);
  }
  EXPECT_INT(nccl.abort(comm), ncclSuccess);
  if (rank == 0) {
    char path[128];
    (void)snprintf(path, sizeof path, "/tmp/weir-nccl-id-%d", number("MASTER_PORT"));
    (void)unlink(path);
  }
  return test_finish();
}
