#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/comm/nccl_internal.h"

/* ---- the library ---- */
static const cuda_symbol symbols[] = {
#define SYMBOL(name) {#name, offsetof(cuda_nccl_library, name)},
#include "device/cuda/comm/nccl.def"
#undef SYMBOL
};

static void *open_library(void) {
  static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
  const char *given = getenv("WEIR_NCCL_LIBRARY");
  if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  return cuda_library_open(names, sizeof names / sizeof *names);
}

static status load(cuda_nccl *n) {
  void *found = open_library();
  if (!found)
    return fail(STATUS_UNAVAILABLE,
                "cuda: cannot load libnccl.so.2: install NCCL, or name its folder in "
                "LD_LIBRARY_PATH, or the file in WEIR_NCCL_LIBRARY; without --comm nccl devices "
                "communicate without it");
  void *standin = dlsym(found, "weir_nccl_standin");
  memcpy(&n->shares, &standin, sizeof standin);
  return cuda_library_find(found, "libnccl.so", symbols, sizeof symbols / sizeof *symbols, &n->lib);
}

status cuda_nccl_open(const allocator *memory, cuda_nccl **result) {
  cuda_nccl *n = memory_alloc(memory, sizeof *n);
  if (!n) return STATUS_OUT_OF_MEMORY;
  *n = (cuda_nccl){.memory = memory, .generation = 1};
  status st = load(n);
  if (st == STATUS_OK && pthread_mutex_init(&n->lock, NULL) != 0)
    st = fail(STATUS_SYSTEM, "cannot make a lock");
  if (st == STATUS_OK) *result = n;
  else memory_free(memory, n);
  return st;
}

void cuda_nccl_error_text(const cuda_nccl *n, int result, char *text, size_t size_bytes) {
  const char *more = n->lib.ncclGetLastError(NULL);
  (void)snprintf(text, size_bytes, "%s (%d)%s%s", n->lib.ncclGetErrorString((ncclResult_t)result),
                 result, more && *more ? ": " : "", more ? more : "");
}

/* ---- communicators ---- */
void cuda_nccl_end_group(cuda_nccl *n, cuda_nccl_group *g, bool abort) {
  for (uint32_t i = 0; i < g->n; i++) {
    if (!g->comms[i]) continue;
    if (abort) (void)n->lib.ncclCommAbort(g->comms[i]);
    else if (g->is_apart) cuda_nccl_finalize(n, g->comms[i]);
    else (void)n->lib.ncclCommDestroy(g->comms[i]);
    g->comms[i] = NULL;
  }
  g->is_made = false;
}

void cuda_nccl_close(cuda_nccl *n) {
  if (!n) return;
  while (n->groups) {
    cuda_nccl_group *g = n->groups;
    n->groups = g->next;
    cuda_nccl_end_group(n, g, false);
    memory_free(n->memory, g->comms);
    memory_free(n->memory, g);
  }
  (void)pthread_mutex_destroy(&n->lock);
  memory_free(n->memory, n);
}

void cuda_nccl_abort(cuda_nccl *n) {
  (void)pthread_mutex_lock(&n->lock);
  if (n->is_open) (void)n->lib.ncclGroupEnd();
  n->is_open = false;
  for (cuda_nccl_group *g = n->groups; g; g = g->next) cuda_nccl_end_group(n, g, true);
  n->generation++;
  (void)pthread_mutex_unlock(&n->lock);
}

void cuda_nccl_leave(cuda_nccl *n) {
  (void)pthread_mutex_lock(&n->lock);
  for (cuda_nccl_group *g = n->groups; g; g = g->next)
    if (g->is_apart) cuda_nccl_end_group(n, g, false);
  (void)pthread_mutex_unlock(&n->lock);
}

bool cuda_nccl_is_waiting(int result) { return result == (int)ncclInProgress; }

static cuda_nccl_group *find_group(const cuda_nccl *n, const rt_circle *c) {
  for (cuda_nccl_group *g = n->groups; g; g = g->next)
    if (g->is_pair == c->is_pair && g->n == c->n &&
        memcmp(g->devices, c->devices, c->n * sizeof *c->devices) == 0)
      return g;
  return NULL;
}

static cuda_nccl_group *add_group(cuda_nccl *n, const rt_circle *c) {
  cuda_nccl_group *g = memory_alloc(n->memory, sizeof *g + c->n * sizeof *c->devices);
  ncclComm_t *comms = memory_alloc(n->memory, c->n * sizeof *comms);
  if (!g || !comms) {
    memory_free(n->memory, g);
    memory_free(n->memory, comms);
    return NULL;
  }
  for (uint32_t i = 0; i < c->n; i++) comms[i] = NULL;
  *g = (cuda_nccl_group){.next = n->groups, .is_pair = c->is_pair, .n = c->n, .comms = comms};
  memcpy(g->devices, c->devices, c->n * sizeof *c->devices);
  n->groups = g;
  return g;
}

cuda_nccl_group *cuda_nccl_group_of(cuda_nccl *n, const rt_circle *c) {
  cuda_nccl_group *known = find_group(n, c);
  return known ? known : add_group(n, c);
}

ncclConfig_t cuda_nccl_config(const cuda_nccl_group *g) {
  enum { MOST = 64 }; /* NCCL never takes more */
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = !g->is_apart;
  /* mutant: cuda_nccl_whole_gpu */
  if (g->most_ctas < MOST) config.maxCTAs = g->most_ctas;
  return config;
}

static CUcontext context_of(const cuda_loaded *l, uint32_t rank) {
  return l->device->gpus[l->ranks[rank].gpu].context;
}

/* All members join in one group: a thread that joined them one by one would wait for itself. */
static ncclResult_t join_members(const cuda_loaded *l, cuda_nccl *n, cuda_nccl_group *g,
                                 const issue_comm *members) {
  ncclUniqueId id;
  ncclConfig_t config = cuda_nccl_config(g);
  ncclResult_t r = n->lib.ncclGetUniqueId(&id);
  if (r == ncclSuccess) r = n->lib.ncclGroupStart();
  if (r != ncclSuccess) return r;
  for (uint32_t i = 0; i < g->n && r == ncclSuccess; i++) {
    if (l->cu->cuCtxSetCurrent(context_of(l, members[i].rank)) != CUDA_SUCCESS)
      r = ncclUnhandledCudaError;
    else r = n->lib.ncclCommInitRankConfig(&g->comms[i], (int)g->n, id, (int)i, &config);
  }
  ncclResult_t ended = n->lib.ncclGroupEnd();
  return r == ncclSuccess ? ended : r;
}

void cuda_nccl_circle_text(const rt_circle *c, char *text, size_t size_bytes) {
  rt_comm_line line = rt_comm_line_of(text, size_bytes);
  if (c->is_pair) rt_comm_line_add(&line, "device %u to device %u", c->devices[0], c->devices[1]);
  else {
    rt_comm_line_add(&line, "team ");
    rt_comm_line_add_team(&line, c->devices, c->n);
  }
}

status cuda_nccl_no_communicator(const cuda_nccl *n, const rt_circle *c, ncclResult_t r) {
  char why[512], who[256];
  cuda_nccl_error_text(n, (int)r, why, sizeof why);
  cuda_nccl_circle_text(c, who, sizeof who);
  return fail(STATUS_UNAVAILABLE, "cuda: NCCL makes no communicator for %s: %s", who, why);
}

/* Refuses two members on one GPU, for which NCCL itself would say "invalid usage". */
status cuda_nccl_shared_gpu(const cuda_loaded *l, uint32_t a, uint32_t b) {
  return fail(STATUS_UNAVAILABLE,
              "cuda: NCCL wants a GPU for every device, but devices %u and %u share one: the "
              "program has %u devices and this machine %u GPU%s; run without --comm nccl",
              a, b, l->n_ranks, l->device->n_gpus, l->device->n_gpus == 1 ? "" : "s");
}

/* NCCL allows it from 2.30 on, if the configuration says so. */
bool cuda_nccl_may_share(const cuda_nccl *n) {
  enum { FIRST = 23000 };
  int version = 0;
  const char *told = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (n->shares) return n->shares();
  return told && strcmp(told, "1") == 0 && n->lib.ncclGetVersion(&version) == ncclSuccess &&
         version >= FIRST;
}

static status check_members(const cuda_loaded *l, const cuda_nccl *n, const rt_circle *c,
                            const issue_comm *members) {
  if (members->n < c->n)
    return fail(STATUS_UNAVAILABLE,
                "cuda: device %u communicates with devices of other processes, whose plans are not "
                "here",
                l->plan->posts[members->post].rank);
  bool may_share = cuda_nccl_may_share(n);
  for (uint32_t i = 0; i < c->n && !may_share; i++)
    for (uint32_t j = 0; j < i; j++)
      if (l->ranks[members[i].rank].gpu == l->ranks[members[j].rank].gpu)
        return cuda_nccl_shared_gpu(l, c->devices[j], c->devices[i]);
  return STATUS_OK;
}

static status prepare_circle(cuda_loaded *l, cuda_nccl *n, const issue_comm *members, int most) {
  const rt_circle *c = &l->order.circles[members->circle];
  if (cuda_nccl_is_to_itself(c)) return STATUS_OK;
  TRY(check_members(l, n, c, members));
  cuda_nccl_group *g = cuda_nccl_group_of(n, c);
  if (!g) return STATUS_OUT_OF_MEMORY;
  l->nccl.groups[members->circle] = g;
  if (!cuda_nccl_needs(n, g, most, false)) return STATUS_OK;
  ncclResult_t r = join_members(l, n, g, members);
  g->is_made = r == ncclSuccess;
  if (g->is_made) return STATUS_OK;
  status st = cuda_nccl_no_communicator(n, c, r);
  cuda_nccl_end_group(n, g, true);
  return st;
}

/* ---- how much of a GPU ---- */
bool cuda_nccl_needs(cuda_nccl *n, cuda_nccl_group *g, int most_ctas, bool is_apart) {
  /* mutant: cuda_nccl_large_share_kept */
  if (g->is_made && g->most_ctas <= most_ctas && g->is_apart == is_apart) return false;
  if (g->is_made) n->generation++; /* graphs have the old ones */
  cuda_nccl_end_group(n, g, false);
  g->most_ctas = most_ctas;
  g->is_apart = is_apart;
  return true;
}

/* Can calls of both ranks run at the same time? Those of different processes on a GPU take turns. */
static bool run_together(const cuda_loaded *l, uint32_t a, uint32_t b) {
  return a == b || (!l->share && l->ranks[a].gpu == l->ranks[b].gpu);
}

uint32_t cuda_nccl_most_circles(const cuda_loaded *l) {
  uint32_t most = 1;
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    uint32_t together = 0;
    for (uint32_t i = 0; i < l->order.n_lanes; i++)
      together += run_together(l, l->order.rank_of_lane[i], r);
    if (together > most) most = together;
  }
  return most;
}

int cuda_nccl_blocks(const cuda_loaded *l) {
  int least = INT_MAX;
  for (uint32_t r = 0; r < l->n_ranks; r++) {
    int n = 0;
    CUdevice gpu = l->device->gpus[l->ranks[r].gpu].id;
    if (!cuda_is_here(l, r)) continue;
    if (l->cu->cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu) ==
            CUDA_SUCCESS &&
        n < least)
      least = n;
  }
  return least;
}

int cuda_nccl_share_of(int blocks, uint32_t circles) {
  int share = blocks / (int)circles;
  return share > 1 ? share : 1;
}

static status prepare_all(cuda_loaded *l, cuda_nccl *n) {
  int most = cuda_nccl_share_of(cuda_nccl_blocks(l), cuda_nccl_most_circles(l));
  const issue_comm *comms = l->order.comms.data;
  for (uint32_t i = 0; i < l->order.comms.len; i += comms[i].n) {
    const cuda_nccl_group *known = l->nccl.groups[comms[i].circle];
    if (!known || !known->is_made || known->most_ctas > most)
      TRY(prepare_circle(l, n, &comms[i], most));
  }
  return STATUS_OK;
}

status cuda_nccl_prepare(cuda_loaded *l) {
  cuda_nccl *n = l->device->nccl;
  (void)pthread_mutex_lock(&n->lock);
  status st = l->share ? cuda_nccl_join(l, n) : prepare_all(l, n);
  l->nccl.generation = st == STATUS_OK ? n->generation : 0;
  (void)pthread_mutex_unlock(&n->lock);
  return st;
}

bool cuda_nccl_is_stale(const cuda_loaded *l) {
  cuda_nccl *n = l->device->nccl;
  (void)pthread_mutex_lock(&n->lock);
  bool stale = l->nccl.generation != n->generation;
  (void)pthread_mutex_unlock(&n->lock);
  return stale;
}

bool cuda_nccl_has_failed(const cuda_loaded *l, uint32_t *circle, int *result) {
  const cuda_nccl *n = l->device->nccl;
  for (uint32_t k = 0; k < l->order.n_circles; k++) {
    const cuda_nccl_group *g = l->nccl.groups[k];
    for (uint32_t i = 0; g && i < g->n; i++) {
      ncclResult_t reported = ncclSuccess;
      if (!g->comms[i]) continue;
      ncclResult_t r = n->lib.ncclCommGetAsyncError(g->comms[i], &reported);
      if (r == ncclSuccess) r = reported;
      /* mutant: cuda_nccl_errors_unseen */
      if (r == ncclSuccess || r == ncclInProgress) continue;
      *circle = k;
      *result = (int)r;
      return true;
    }
  }
  return false;
}
