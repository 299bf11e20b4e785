/* Communicators whose members are processes, and calls that may wait for them.
 *
 * All ranks load at the same time, with the plans of all. So each of them knows which circles there are, in
 * which order they come and which of them have a communicator. The first member of a circle makes its id; all
 * ids travel in one exchange over the endpoint. Then every rank joins its circles one after the other, in the
 * order of the plan of all. So all members of the first circle that is not made are joining it, or will.
 *
 * Communicators do not block: NCCL works in its own threads, and the host polls it, and asks the endpoint
 * whether the other ranks are still there. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/table.h"
#include "device/cuda/comm/nccl_internal.h"

/* ---- waiting for NCCL ---- */
static void pause_for(int64_t waited_ns) {
  enum { SPIN_NS = 200000, NAP_NS = 20000, LATER_NS = 20000000, LONG_NS = 500000 };
  if (waited_ns < SPIN_NS) (void)sched_yield();
  else
    (void)nanosleep(&(struct timespec){.tv_nsec = waited_ns < LATER_NS ? NAP_NS : LONG_NS}, NULL);
}

static ncclResult_t state_of(const cuda_nccl *n, ncclComm_t comm) {
  ncclResult_t state = ncclSuccess, r = n->lib.ncclCommGetAsyncError(comm, &state);
  return r == ncclSuccess ? state : r;
}

static bool is_over(cuda_world *w, int64_t since_ns) {
  /* mutant: cuda_nccl_joins_for_ever */
  if (cuda_world_has_failed(w)) return true;
  return cuda_world_is_still(w, since_ns);
}

ncclResult_t cuda_nccl_await(const cuda_loaded *l, ncclComm_t comm, ncclResult_t begun) {
  enum { SOON_NS = 2000000 };
  const cuda_nccl *n = l->device->nccl;
  cuda_world *w = &l->device->world;
  if (begun != ncclSuccess && begun != ncclInProgress) return begun;
  int64_t start_ns = rt_clock_ns(), looked_ns = start_ns, now_ns = start_ns;
  ncclResult_t r = state_of(n, comm);
  for (; r == ncclInProgress; r = state_of(n, comm)) {
    now_ns = rt_clock_ns();
    if (now_ns - looked_ns > SOON_NS) {
      cuda_world_set_busy(w, false);
      if (is_over(w, start_ns)) break;
      looked_ns = now_ns;
    }
    pause_for(now_ns - start_ns);
  }
  if (now_ns - start_ns > SOON_NS) cuda_world_set_busy(w, true);
  return r;
}

void cuda_nccl_finalize(cuda_nccl *n, ncclComm_t comm) {
  const int64_t most_ns = INT64_C(2000000000);
  int64_t start_ns = rt_clock_ns(), waited_ns = 0;
  ncclResult_t r = n->is_late ? ncclRemoteError : n->lib.ncclCommFinalize(comm);
  if (r == ncclSuccess) r = ncclInProgress;
  while (r == ncclInProgress && waited_ns < most_ns) {
    r = state_of(n, comm);
    waited_ns = rt_clock_ns() - start_ns;
    if (r == ncclInProgress) pause_for(waited_ns);
  }
  if (r == ncclInProgress) n->is_late = true; /* do not wait for further ones */
  (void)(r == ncclSuccess ? n->lib.ncclCommDestroy : n->lib.ncclCommAbort)(comm);
}

/* ---- joining ---- */
/* What a rank says about itself. */
typedef struct card {
  uint64_t hash; /* of the order, and of the communicators that exist */
  CUuuid gpu;
  int32_t blocks;
} card;

/* A circle that needs a communicator. */
typedef struct fresh {
  const rt_circle *circle;
  cuda_nccl_group *group;
  uint32_t id; /* its number among the ids that its first member makes */
} fresh;

typedef struct joining {
  cuda_loaded *l;
  cuda_nccl *n;
  uint32_t me, n_ranks;
  card *cards;   /* by rank */
  uint32_t *led; /* by rank: how many ids it makes, as the first member */
  fresh *list;
  uint32_t len;
  uint32_t ids; /* the most that a rank makes */
  ncclUniqueId *mine, *all;
} joining;

static status meet(joining *j) {
  const cuda_loaded *l = j->l;
  const cuda_gpu *gpu = &l->device->gpus[l->ranks[j->me].gpu];
  card mine = {.hash = l->share->split.hash, .blocks = cuda_nccl_blocks(l)};
  for (const cuda_nccl_group *g = j->n->groups; g; g = g->next)
    mine.hash = hash_mix(mine.hash, (uint64_t)g->is_made << 32 | g->devices[0]);
  TRY(cuda_try(l->cu->cuCtxSetCurrent(gpu->context), "making a context current"));
  TRY(cuda_try(l->cu->cuDeviceGetUuid(&mine.gpu, gpu->id), "asking for a GPU"));
  TRY(cuda_world_exchange(&l->device->world, &mine, j->cards, sizeof mine, "loading"));
  for (uint32_t r = 0; r < j->n_ranks; r++)
    if (j->cards[r].hash != mine.hash)
      return fail(STATUS_BAD_PROGRAM,
                  "rank %u runs another program, or with other options, than rank %u", r, j->me);
  return STATUS_OK;
}

static status check_gpus(const joining *j, const rt_circle *c) {
  bool may_share = cuda_nccl_may_share(j->n);
  for (uint32_t a = 0; a < c->n && !may_share; a++)
    for (uint32_t b = 0; b < a; b++)
      if (memcmp(&j->cards[c->devices[a]].gpu, &j->cards[c->devices[b]].gpu, sizeof(CUuuid)) == 0)
        return cuda_nccl_shared_gpu(j->l, c->devices[b], c->devices[a]);
  return STATUS_OK;
}

/* Lists the circles that need a communicator, in the order of their first communications, which is the same on all
 * ranks. */
static status list_fresh(joining *j) {
  const issue_order *o = &j->l->order;
  int blocks = j->cards[0].blocks;
  for (uint32_t r = 1; r < j->n_ranks; r++)
    if (j->cards[r].blocks < blocks) blocks = j->cards[r].blocks;
  int most = cuda_nccl_share_of(blocks, cuda_nccl_most_circles(j->l));
  for (uint32_t i = 0; i < o->comms.len; i += o->comms.data[i].n) {
    uint32_t at = o->comms.data[i].circle;
    const rt_circle *c = &o->circles[at];
    if (j->l->nccl.groups[at] || cuda_nccl_is_to_itself(c)) continue;
    TRY(check_gpus(j, c));
    cuda_nccl_group *g = cuda_nccl_group_of(j->n, c);
    if (!g) return STATUS_OUT_OF_MEMORY;
    j->l->nccl.groups[at] = g;
    if (!cuda_nccl_needs(j->n, g, most, true)) continue;
    uint32_t *led = &j->led[c->devices[0]];
    j->list[j->len++] = (fresh){c, g, (*led)++};
    if (*led > j->ids) j->ids = *led;
  }
  return STATUS_OK;
}

static status exchange_ids(joining *j) {
  size_t bytes = j->ids * sizeof *j->mine;
  j->mine = memory_alloc(j->n->memory, bytes);
  j->all = memory_alloc(j->n->memory, j->n_ranks * bytes);
  if (!j->mine || !j->all) return STATUS_OUT_OF_MEMORY;
  memset(j->mine, 0, bytes);
  for (uint32_t i = 0; i < j->len; i++) {
    const fresh *f = &j->list[i];
    if (f->circle->devices[0] != j->me) continue;
    ncclResult_t r = j->n->lib.ncclGetUniqueId(&j->mine[f->id]);
    if (r != ncclSuccess) return cuda_nccl_no_communicator(j->n, f->circle, r);
  }
  return cuda_world_exchange(&j->l->device->world, j->mine, j->all, bytes, "loading");
}

/* The failure to join a circle. If another rank has failed, its message is used. */
static status not_joined(const joining *j, const rt_circle *c, ncclResult_t r) {
  cuda_world *w = &j->l->device->world;
  char who[256], text[512];
  if (r != ncclInProgress && !cuda_world_listen(w)) return cuda_nccl_no_communicator(j->n, c, r);
  cuda_nccl_circle_text(c, who, sizeof who);
  rt_comm_line line = rt_comm_line_of(text, sizeof text);
  rt_comm_line_add(&line, "rank %u waits for the other members of %s to make a communicator", j->me,
                   who);
  return cuda_world_give_up(w, text);
}

static status join(const joining *j, const fresh *f) {
  cuda_nccl_group *g = f->group;
  uint32_t member = 0;
  while (member < g->n && g->devices[member] != j->me) member++;
  g->is_made = true;
  if (member == g->n) return STATUS_OK;
  ncclConfig_t config = cuda_nccl_config(g);
  /* mutant: cuda_nccl_one_id */
  ncclUniqueId id = j->all[(size_t)g->devices[0] * j->ids + f->id];
  ncclComm_t *comm = &g->comms[member];
  ncclResult_t r = j->n->lib.ncclCommInitRankConfig(comm, (int)g->n, id, (int)member, &config);
  if (*comm) r = cuda_nccl_await(j->l, *comm, r);
  if (r == ncclSuccess) return STATUS_OK;
  status st = not_joined(j, f->circle, r);
  cuda_nccl_end_group(j->n, g, true);
  return st;
}

static status join_all(joining *j) {
  TRY(meet(j));
  TRY(list_fresh(j));
  if (j->len == 0) return STATUS_OK;
  TRY(exchange_ids(j));
  for (uint32_t i = 0; i < j->len; i++) TRY(join(j, &j->list[i]));
  return STATUS_OK;
}

status cuda_nccl_join(cuda_loaded *l, cuda_nccl *n) {
  joining j = {.l = l, .n = n, .me = l->share->me, .n_ranks = l->share->n};
  size_t led_bytes = j.n_ranks * sizeof *j.led;
  j.cards = memory_alloc(n->memory, j.n_ranks * sizeof *j.cards);
  j.led = memory_alloc(n->memory, led_bytes);
  j.list = memory_alloc(n->memory, (l->order.n_circles + (size_t)1) * sizeof *j.list);
  status st = j.cards && j.led && j.list ? STATUS_OK : STATUS_OUT_OF_MEMORY;
  if (j.led) memset(j.led, 0, led_bytes);
  if (st == STATUS_OK) st = join_all(&j);
  memory_free(n->memory, j.mine);
  memory_free(n->memory, j.all);
  memory_free(n->memory, j.cards);
  memory_free(n->memory, j.led);
  memory_free(n->memory, j.list);
  return st;
}
