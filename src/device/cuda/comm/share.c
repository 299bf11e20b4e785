#define _GNU_SOURCE
#include "device/cuda/comm/share.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/device.h"
#include "device/issue/meet.h"

enum { PAGE = 4096 };
static const char START[] = "the start of the program";

/* ---- the world ---- */
status cuda_world_init(cuda_world *w) {
  *w = (cuda_world){0};
  return pthread_mutex_init(&w->lock, NULL) == 0 ? STATUS_OK
                                                 : fail(STATUS_SYSTEM, "cannot make a lock");
}

void cuda_world_destroy(cuda_world *w) { (void)pthread_mutex_destroy(&w->lock); }

void cuda_world_attach(cuda_world *w, rt_comm *const *endpoints, uint32_t n, int64_t timeout_ns) {
  w->endpoint = n == 1 ? endpoints[0] : NULL;
  w->timeout_ns = timeout_ns;
  w->met = false;
}

void cuda_world_tell(cuda_world *w, bool is_busy, bool moved) {
  (void)pthread_mutex_lock(&w->lock);
  w->is_busy = is_busy;
  w->moves += moved;
  (void)pthread_mutex_unlock(&w->lock);
}

void cuda_world_set_busy(cuda_world *w, bool is_busy) { cuda_world_tell(w, is_busy, false); }

void cuda_world_tell_place(cuda_world *w, const char *where) {
  (void)pthread_mutex_lock(&w->lock);
  w->where = where;
  (void)pthread_mutex_unlock(&w->lock);
}

void cuda_world_pulse(cuda_world *w, rt_pulse *pulse) {
  (void)pthread_mutex_lock(&w->lock);
  *pulse = (rt_pulse){.done = w->moves, .is_busy = w->is_busy};
  if (w->where) (void)snprintf(pulse->where, sizeof pulse->where, "%s", w->where);
  (void)pthread_mutex_unlock(&w->lock);
}

status cuda_world_abort(cuda_world *w, status st) {
  char text[1024];
  rt_comm *e = w->endpoint;
  (void)snprintf(text, sizeof text, "rank %u: %s", e->rank, status_message());
  status_clear();
  e->ops->abort(e, st, text);
  status all = e->ops->error(e);
  return all != STATUS_OK ? all : fail(st, "%s", text);
}

bool cuda_world_has_failed(const cuda_world *w) {
  if (w->endpoint->ops->error(w->endpoint) == STATUS_OK) return false;
  status_clear();
  return true;
}

bool cuda_world_listen(const cuda_world *w) {
  enum { TRIES = 100, PAUSE_NS = 5000000 };
  for (uint32_t i = 0; i < TRIES; i++) {
    if (cuda_world_has_failed(w)) return true;
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  }
  return false;
}

bool cuda_world_is_still(const cuda_world *w, int64_t since_ns) {
  int64_t last_ns = since_ns;
  if (w->endpoint->ops->stirred) {
    int64_t stirred_ns = w->endpoint->ops->stirred(w->endpoint);
    if (stirred_ns > last_ns) last_ns = stirred_ns;
  }
  return w->timeout_ns > 0 && rt_clock_ns() - last_ns > w->timeout_ns;
}

status cuda_world_give_up(const cuda_world *w, const char *text) {
  char all[1100];
  rt_comm *e = w->endpoint;
  (void)snprintf(all, sizeof all, "no progress in %.3g s: %s", (double)w->timeout_ns * 1e-9, text);
  e->ops->abort(e, STATUS_UNAVAILABLE, all);
  status st = e->ops->error(e);
  return st != STATUS_OK ? st : fail(STATUS_UNAVAILABLE, "%s", all);
}

/* A rank that waits for others is not busy. */
status cuda_world_exchange(cuda_world *w, const void *mine, void *all, size_t bytes,
                           const char *what) {
  rt_comm *e = w->endpoint;
  uint32_t team[RT_COMM_MAX_RANKS];
  rt_comm_ticket ticket;
  for (uint32_t i = 0; i < e->n_ranks; i++) team[i] = i;
  rt_comm_request q = {.kind = IR_COMM_ALLGATHER, .dtype = IR_U8, .team = team, .in = mine};
  q.n_team = e->n_ranks;
  q.me = e->rank;
  q.count = (int64_t)bytes;
  q.out = all;
  q.origin = what;
  TRY(e->ops->post(e, &q, &ticket));
  cuda_world_set_busy(w, false);
  status st = e->ops->wait(e, &ticket, w->timeout_ns > 0 ? w->timeout_ns : -1);
  cuda_world_set_busy(w, true);
  return st;
}

/* ---- where each rank is ---- */
typedef struct hello {
  char machine[96]; /* the same text: the same kernel and the same process numbers */
  CUuuid gpu;
  CUipcMemHandle trial; /* memory that the others try to open */
  uint8_t exports, wants_host;
} hello;

static void read_line(const char *path, char *text, size_t room) {
  FILE *f = fopen(path, "r");
  text[0] = 0;
  if (!f) return;
  if (!fgets(text, (int)room, f)) text[0] = 0;
  text[strcspn(text, "\n")] = 0;
  (void)fclose(f);
}

static void name_machine(char *text, size_t room) {
  char boot[40], space[48];
  read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  if (!boot[0]) (void)gethostname(boot, sizeof boot - 1);
  ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  space[n > 0 ? n : 0] = 0;
  (void)snprintf(text, room, "%s %s", boot, space);
}

static status check_memory_operations(const cuda_loaded *l, CUdevice gpu) {
  int can = 0;
  TRY(cuda_try(
      l->cu->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, gpu),
      "asking for operations on memory"));
  if (can) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE, "cuda: streams of this GPU cannot wait for memory, which "
                                  "processes need to communicate: run without mpirun");
}

static status check_machines(const hello *all, uint32_t n) {
  for (uint32_t r = 1; r < n; r++)
    if (strcmp(all[r].machine, all[0].machine) != 0)
      return fail(STATUS_UNAVAILABLE,
                  "cuda: rank %u is on another machine, or in another container, than rank 0; GPUs "
                  "of one machine can communicate: start all ranks on one",
                  r);
  return STATUS_OK;
}

/* Can this process open what the others export? */
static bool opens_all(const cuda_loaded *l, const hello *all, uint32_t n, uint32_t me) {
  bool can = true;
  for (uint32_t r = 0; r < n; r++) {
    CUdeviceptr p = 0;
    if (r == me) continue;
    can = can && all[r].exports &&
          l->cu->cuIpcOpenMemHandle(&p, all[r].trial, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
              CUDA_SUCCESS;
    if (p) (void)l->cu->cuIpcCloseMemHandle(p);
  }
  return can;
}

static status meet(cuda_loaded *l, hello *mine, hello *all) {
  cuda_world *w = &l->device->world;
  uint32_t n = w->endpoint->n_ranks, me = w->endpoint->rank;
  uint8_t can, can_all[RT_COMM_MAX_RANKS];
  TRY(cuda_world_exchange(w, mine, all, sizeof *mine, START));
  TRY(check_machines(all, n));
  can = opens_all(l, all, n, me);
  TRY(cuda_world_exchange(w, &can, can_all, sizeof can, START));
  w->through_host = false;
  w->one_gpu = true;
  for (uint32_t r = 0; r < n; r++) {
    if (!can_all[r] || all[r].wants_host) w->through_host = true;
    if (memcmp(&all[r].gpu, &all[0].gpu, sizeof all[r].gpu) != 0) w->one_gpu = false;
  }
  if (w->through_host && l->device->options.carrier == RT_CARRIER_CUDA_IPC)
    return fail(STATUS_UNAVAILABLE, "cuda: not all ranks can open each other's memory: run without "
                                    "--comm cuda-ipc, and they communicate through the host");
  w->met = true;
  return STATUS_OK;
}

status cuda_share_meet(cuda_loaded *l) {
  cuda_world *w = &l->device->world;
  uint32_t gpu = l->ranks[l->share->me].gpu;
  CUdeviceptr trial = 0;
  hello mine = {.wants_host = l->device->options.link_host};
  if (w->met) return STATUS_OK;
  hello *all = memory_alloc(l->device->memory, w->endpoint->n_ranks * sizeof *all);
  if (!all) return STATUS_OUT_OF_MEMORY;
  status st;
  TRY_OUT(check_memory_operations(l, l->device->gpus[gpu].id));
  name_machine(mine.machine, sizeof mine.machine);
  TRY_OUT(cuda_try(l->cu->cuDeviceGetUuid(&mine.gpu, l->device->gpus[gpu].id), "asking for a GPU"));
  TRY_OUT(cuda_try(l->cu->cuMemAlloc(&trial, CUDA_SHARED_ALIGN), "allocating memory"));
  mine.exports = l->cu->cuIpcGetMemHandle(&mine.trial, trial) == CUDA_SUCCESS;
  TRY_OUT(meet(l, &mine, all));
out:
  if (trial) (void)l->cu->cuMemFree(trial);
  memory_free(l->device->memory, all);
  return st;
}

/* ---- the plan ---- */
status cuda_share_open(cuda_loaded *l, const rt_plan *const *plans, uint32_t n) {
  if (l->device->options.graph)
    return fail(STATUS_BAD_USAGE, "cuda: --graph cannot capture communications between processes: "
                                  "run without --graph, or without mpirun");
  cuda_share *s = memory_alloc(l->device->memory, sizeof *s);
  if (!s) return STATUS_OUT_OF_MEMORY;
  *s = (cuda_share){.loaded = l, .n = n, .plans = plans, .fd = -1};
  s->endpoint = l->device->world.endpoint;
  s->me = s->endpoint->rank;
  s->fault = rt_fault_of(s->me);
  for (uint32_t r = 0; r < s->me; r++) {
    s->first_task += plans[r]->n_tasks;
    s->first_post += plans[r]->n_posts;
  }
  l->share = s;
  TRY(rt_plan_join((rt_plan *const *)plans, n, l->device->memory, &l->joined));
  l->plan = l->joined;
  return STATUS_OK;
}

static void find_places(cuda_loaded *l) {
  cuda_share *s = l->share;
  const rt_plan *plan = l->plan;
  s->places = ARENA_ARRAY(&l->memory, plan->n_posts, const char *);
  for (uint32_t i = 0; i < plan->n_instrs && plan->host; i++) {
    const rt_instr *instr = &plan->instrs[i];
    if (instr->kind != RT_POST || plan->posts[instr->task].rank != s->me) continue;
    strbuf where;
    strbuf_init(&where, &l->memory);
    rt_place(plan, i, &where);
    s->places[instr->task] = where.data;
  }
}

void cuda_share_split(cuda_loaded *l) {
  cuda_share *s = l->share;
  issue_order_split(l->plan, s->me, &l->memory, &l->order, &s->split);
  s->texts = ARENA_ARRAY(&l->memory, l->plan->n_posts, const char *);
  s->slots = ARENA_ARRAY(&l->memory, s->n, size_t);
  s->mappings = ARENA_ARRAY(&l->memory, s->n, cuda_mapping *);
  for (uint32_t p = 0; p < l->plan->n_posts; p++) {
    char text[256];
    issue_meetings_text(l->order.meetings, p, &l->memory, text, sizeof text);
    s->texts[p] = arena_copy(&l->memory, text, strlen(text) + 1);
  }
  find_places(l);
}

/* ---- the region ---- */
static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static size_t flags_at(const cuda_share *s) {
  return sizeof(cuda_shared_head) + s->n * sizeof(cuda_shared_rank);
}

static size_t states_at(const cuda_share *s) {
  return flags_at(s) + s->split.n_flags * sizeof(uint64_t);
}

static void lay_out(cuda_loaded *l) {
  cuda_share *s = l->share;
  size_t at = pages(states_at(s) + l->n_streams * sizeof(uint64_t));
  for (uint32_t r = 0; r < s->n; r++) {
    s->slots[r] = at;
    at += pages((size_t)l->order.slots_bytes[r]);
  }
  s->region_bytes = at;
}

static status make_region(cuda_share *s) {
  s->fd = memfd_create("weir", MFD_CLOEXEC);
  if (s->fd < 0 || ftruncate(s->fd, (off_t)s->region_bytes) != 0)
    return fail(STATUS_SYSTEM, "cuda: cannot make %zu bytes of shared memory: %s", s->region_bytes,
                strerror(errno));
  return STATUS_OK;
}

static status open_region(cuda_share *s, int pid, int fd) {
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  if (s->fd < 0) s->fd = open(path, O_RDWR | O_CLOEXEC);
  if (s->fd < 0)
    return fail(STATUS_SYSTEM, "cuda: cannot open shared memory of rank 0, %s: %s", path,
                strerror(errno));
  void *p = mmap(NULL, s->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
  if (p == MAP_FAILED)
    return fail(STATUS_SYSTEM, "cuda: cannot map %zu bytes of shared memory: %s", s->region_bytes,
                strerror(errno));
  s->region = p;
  s->head = p;
  s->ranks = (cuda_shared_rank *)(s->region + sizeof *s->head);
  s->flags = (_Atomic uint64_t *)(s->region + flags_at(s));
  s->states = (_Atomic uint64_t *)(s->region + states_at(s));
  return STATUS_OK;
}

static status register_region(cuda_loaded *l) {
  cuda_share *s = l->share;
  TRY(cuda_try(l->cu->cuMemHostRegister(s->region, s->region_bytes,
                                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
               "registering shared memory"));
  status st = cuda_try(l->cu->cuMemHostGetDevicePointer(&s->device_region, s->region, 0),
                       "registering shared memory");
  if (st != STATUS_OK) (void)l->cu->cuMemHostUnregister(s->region);
  return st;
}

CUdeviceptr cuda_share_flag(const cuda_share *s, uint32_t flag) {
  return s->device_region + flags_at(s) + flag * sizeof(uint64_t);
}

CUdeviceptr cuda_share_state(const cuda_share *s, uint32_t stream) {
  return s->device_region + states_at(s) + stream * sizeof(uint64_t);
}

/* ---- memory of the others ---- */
/* What a rank says about itself when it has its memory. */
typedef struct card {
  uint64_t hash, base, id, block_bytes;
  CUipcMemHandle handle;
  int32_t pid, fd;
} card;

static status export_block(const cuda_loaded *l, card *c) {
  const cuda_rank *r = &l->ranks[l->share->me];
  CUdeviceptr base = r->block;
  if (!base || l->through_host) return STATUS_OK;
  c->base = base;
  c->block_bytes = r->block_bytes;
  TRY(cuda_try(l->cu->cuPointerGetAttribute(&c->id, CU_POINTER_ATTRIBUTE_BUFFER_ID, base),
               "asking for an allocation"));
  return cuda_try(l->cu->cuIpcGetMemHandle(&c->handle, base), "exporting memory");
}

static status map_block(cuda_loaded *l, const card *c, uint32_t rank) {
  cuda_world *w = &l->device->world;
  uint32_t gpu = l->ranks[l->share->me].gpu;
  cuda_mapping *m = w->mappings;
  if (!c->base) return STATUS_OK;
  while (m && (m->pid != c->pid || m->base != c->base || m->id != c->id || m->gpu != gpu))
    m = m->next;
  if (!m) {
    m = memory_alloc(l->device->memory, sizeof *m);
    if (!m) return STATUS_OUT_OF_MEMORY;
    *m = (cuda_mapping){w->mappings, c->pid, c->base, c->id, 0, gpu, 0};
    status st = cuda_try(
        l->cu->cuIpcOpenMemHandle(&m->address, c->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "opening memory of another process");
    if (st != STATUS_OK) {
      memory_free(l->device->memory, m);
      return st;
    }
    w->mappings = m;
  }
  m->uses++;
  l->share->mappings[rank] = m;
  l->ranks[rank].block = m->address;
  return STATUS_OK;
}

static void unmap_block(cuda_loaded *l, uint32_t rank) {
  cuda_mapping *m = l->share->mappings ? l->share->mappings[rank] : NULL;
  if (!m || --m->uses > 0) return;
  cuda_mapping **at = &l->device->world.mappings;
  while (*at != m) at = &(*at)->next;
  *at = m->next;
  (void)l->cu->cuIpcCloseMemHandle(m->address);
  memory_free(l->device->memory, m);
}

static status check_cards(const cuda_share *s, const card *cards) {
  for (uint32_t r = 0; r < s->n; r++)
    if (cards[r].hash != cards[s->me].hash)
      return fail(STATUS_BAD_PROGRAM,
                  "rank %u runs another program, or with other options, than "
                  "rank %u",
                  r, s->me);
  return STATUS_OK;
}

static status connect(cuda_loaded *l, card *cards) {
  cuda_share *s = l->share;
  cuda_world *w = &l->device->world;
  uint8_t here = 1, all_here[RT_COMM_MAX_RANKS];
  card mine = {.hash = s->split.hash + l->through_host, .pid = (int32_t)getpid()};
  if (s->me == 0) TRY(make_region(s));
  mine.fd = s->fd;
  TRY(export_block(l, &mine));
  TRY(cuda_world_exchange(w, &mine, cards, sizeof mine, START));
  TRY(check_cards(s, cards));
  TRY(open_region(s, cards[0].pid, cards[0].fd));
  TRY(register_region(l));
  for (uint32_t r = 0; r < s->n; r++)
    if (r != s->me) TRY(map_block(l, &cards[r], r));
  /* the descriptor is not needed any more */
  TRY(cuda_world_exchange(w, &here, all_here, sizeof here, START));
  return cuda_share_watch(s);
}

status cuda_share_connect(cuda_loaded *l) {
  cuda_share *s = l->share;
  int can_flush = 0;
  CUdevice gpu = l->device->gpus[l->ranks[s->me].gpu].id;
  (void)l->cu->cuDeviceGetAttribute(&can_flush, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, gpu);
  s->wait_flags = CU_STREAM_WAIT_VALUE_GEQ;
  if (can_flush) s->wait_flags |= CU_STREAM_WAIT_VALUE_FLUSH;
  lay_out(l);
  card *cards = memory_alloc(l->device->memory, s->n * sizeof *cards);
  if (!cards) return STATUS_OUT_OF_MEMORY;
  status st = connect(l, cards);
  memory_free(l->device->memory, cards);
  if (s->fd >= 0) (void)close(s->fd);
  s->fd = -1;
  if (st != STATUS_OK) return st;
  for (uint32_t r = 0; r < s->n; r++) l->ranks[r].slots = s->region + s->slots[r];
  return STATUS_OK;
}

/* Waits until other ranks have closed this rank's memory, which is then freed; not for ever. */
static void wait_for_closing(const cuda_share *s) {
  enum { TRIES = 2000 };
  for (uint32_t i = 0; i < TRIES && !atomic_load(&s->head->is_over); i++) {
    uint32_t closed = 0;
    for (uint32_t r = 0; r < s->n; r++) closed += atomic_load(&s->ranks[r].closed) != 0;
    if (closed == s->n) return;
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

void cuda_share_close(cuda_loaded *l) {
  cuda_share *s = l->share;
  if (!s) return;
  cuda_share_unwatch(s);
  for (uint32_t r = 0; l->ranks && r < s->n; r++) {
    unmap_block(l, r);
    l->ranks[r].slots = NULL;
    if (r != s->me) l->ranks[r].block = 0;
  }
  if (s->region) {
    atomic_store(&s->ranks[s->me].closed, 1);
    if (s->device_region) wait_for_closing(s);
  }
  if (s->device_region) (void)l->cu->cuMemHostUnregister(s->region);
  if (s->region) (void)munmap(s->region, s->region_bytes);
  memory_free(l->device->memory, s);
  l->share = NULL;
}
