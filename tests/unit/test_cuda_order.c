/* The order in which plans are issued to GPUs, run on the CPU: streams advance in random legal orders,
 * copies and folds are done by the host, and the result must be that of the program in its own order. */
#include "conform/rig.h"
#include "conform/world_random.h"
#include "device/cpu/kernels.h"
#include "device/cuda/order.h"

/* ---- a machine for steps ---- */
typedef struct machine {
  const world *w;
  const rt_plan *plan;
  const cuda_order *order;
  arena memory;
  char **bases, **staging, **slots;
  uint32_t n_streams;
  uint32_t **queues, *lengths, *heads; /* steps, by stream */
  bool *recorded;
  uint64_t seed, draws;
} machine;

static uint32_t below(machine *m, uint32_t n) {
  return (uint32_t)(random_bits(m->seed, m->draws++) % n);
}

static void place_buffers(machine *m) {
  const rt_plan *plan = m->plan;
  char *pool = arena_alloc(&m->memory, (size_t)plan->pool_bytes + 64);
  pool += (64 - (uintptr_t)pool % 64) % 64;
  m->bases = ARENA_ARRAY(&m->memory, plan->n_buffers, char *);
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    const rt_buffer *x = &plan->buffers[b];
    switch (x->kind) {
    case RT_BUFFER_INPUT: m->bases[b] = m->w->inputs[x->slot]; break;
    case RT_BUFFER_OUTPUT: m->bases[b] = m->w->outputs[x->slot]; break;
    case RT_BUFFER_POOL: m->bases[b] = pool + x->offset_bytes; break;
    }
  }
  m->staging = ARENA_ARRAY(&m->memory, m->order->n_ranks, char *);
  m->slots = ARENA_ARRAY(&m->memory, m->order->n_ranks, char *);
  for (uint32_t r = 0; r < m->order->n_ranks; r++) {
    m->staging[r] = arena_alloc(&m->memory, (size_t)m->order->staging_bytes[r] + 1);
    m->slots[r] = arena_alloc(&m->memory, (size_t)m->order->slots_bytes[r] + 1);
  }
}

static void make_queues(machine *m) {
  const cuda_order *o = m->order;
  m->n_streams = m->plan->n_streams + CUDA_LANES * o->n_ranks;
  m->queues = ARENA_ARRAY(&m->memory, m->n_streams, uint32_t *);
  m->lengths = ARENA_ARRAY(&m->memory, m->n_streams, uint32_t);
  m->heads = ARENA_ARRAY(&m->memory, m->n_streams, uint32_t);
  m->recorded = ARENA_ARRAY(&m->memory, o->n_events, bool);
  for (uint32_t s = 0; s < m->n_streams; s++)
    m->queues[s] = ARENA_ARRAY(&m->memory, o->steps.len, uint32_t);
  for (uint32_t i = 0; i < o->steps.len; i++) {
    uint16_t s = o->steps.data[i].stream;
    m->queues[s][m->lengths[s]++] = i;
  }
}

static char *address(const machine *m, const cuda_place *p) {
  switch (p->kind) {
  case CUDA_IN_BUFFER: return m->bases[p->index] + p->offset_bytes;
  case CUDA_IN_STAGING: return m->staging[p->index] + p->offset_bytes;
  case CUDA_IN_SLOTS: return m->slots[p->index] + p->offset_bytes;
  case CUDA_NOWHERE: break;
  }
  return NULL;
}

static void run_task(machine *m, const rt_task *task) {
  const cpu_kernel *k;
  char *starts[RT_MAX_OPERANDS + 1];
  check(cpu_kernel_prepare(m->plan, task, &m->memory, &k) == STATUS_OK);
  cpu_kernel_starts(m->plan, task, m->bases, starts);
  char *scratch = arena_alloc(&m->memory, cpu_kernel_scratch_bytes(k) + CPU_SCRATCH_ALIGN);
  scratch += (CPU_SCRATCH_ALIGN - (uintptr_t)scratch % CPU_SCRATCH_ALIGN) % CPU_SCRATCH_ALIGN;
  check(cpu_kernel_run(k, starts, scratch) == STATUS_OK);
}

static void run_fold(machine *m, const cuda_fold *f) {
  const void *sources[RT_COMM_MAX_RANKS];
  size_t bytes = (size_t)f->count * ir_dtype_size_bytes(f->dtype);
  char *sum = arena_alloc(&m->memory, bytes);
  for (uint32_t i = 0; i < f->n_sources; i++) sources[i] = address(m, &f->places[i]);
  if (f->n_sources == 1) memcpy(sum, sources[0], bytes);
  else rt_comm_reduce(f->op, f->dtype, (size_t)f->count, f->n_sources, sources, sum);
  for (uint32_t i = 0; i < f->n_results; i++)
    memcpy(address(m, &f->places[f->n_sources + i]), sum, bytes);
}

/* Whether the stream could go on; it did then. */
static bool advance(machine *m, uint32_t s) {
  if (m->heads[s] == m->lengths[s]) return false;
  const cuda_order *o = m->order;
  const cuda_step *step = &o->steps.data[m->queues[s][m->heads[s]]];
  switch ((cuda_step_kind)step->kind) {
  case CUDA_LAUNCH: run_task(m, &m->plan->tasks[step->index]); break;
  case CUDA_RECORD: m->recorded[step->index] = true; break;
  case CUDA_WAIT:
    if (!m->recorded[step->index]) return false;
    break;
  case CUDA_COPY: {
    const cuda_copy *c = &o->copies.data[step->index];
    memcpy(address(m, &c->to), address(m, &c->from), (size_t)c->size_bytes);
    break;
  }
  case CUDA_FOLD: run_fold(m, &o->folds.data[step->index]); break;
  }
  m->heads[s]++;
  return true;
}

/* One stream is starved: it goes on only when no other can. */
static bool run_machine(machine *m) {
  uint32_t victim = below(m, m->n_streams), left = m->order->steps.len;
  while (left > 0) {
    uint32_t first = below(m, m->n_streams), tried = 0;
    bool moved = false;
    for (; tried < m->n_streams && !moved; tried++) {
      uint32_t s = (first + tried) % m->n_streams;
      if (s != victim) moved = advance(m, s);
    }
    if (!moved) moved = advance(m, victim);
    if (!moved) return false;
    left--;
  }
  return true;
}

/* ---- orders ---- */
/* An event is recorded once, and before anybody is told to wait for it. */
static bool is_issuable(const cuda_order *o, arena *memory) {
  bool *recorded = ARENA_ARRAY(memory, o->n_events, bool);
  for (uint32_t i = 0; i < o->steps.len; i++) {
    const cuda_step *s = &o->steps.data[i];
    if (s->kind == CUDA_WAIT && !recorded[s->index]) return false;
    if (s->kind != CUDA_RECORD) continue;
    if (recorded[s->index]) return false;
    recorded[s->index] = true;
  }
  return true;
}

typedef struct job {
  const world *w;
  cuda_order_options options;
  uint64_t seed;
  bool right;
} job;

static status run_job(void *context) {
  job *j = context;
  machine m = {.w = j->w, .plan = j->w->plan, .seed = j->seed};
  cuda_order order;
  arena_init(&m.memory, &memory_default);
  status st = cuda_order_make(m.plan, &j->options, &m.memory, &order);
  m.order = &order;
  if (st == STATUS_OK) {
    EXPECT_INT(order.upto[m.plan->n_instrs - 1], order.steps.len);
    place_buffers(&m);
    make_queues(&m);
    j->right = is_issuable(&order, &m.memory) && run_machine(&m);
  }
  arena_destroy(&m.memory);
  return st;
}

static void test_worlds(cuda_order_options options, const char *name, int64_t width,
                        uint32_t worlds, uint32_t runs) {
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < worlds; seed++) {
    world w;
    world_make(&w, seed, 1 + seed % WORLD_RANKS, width, 40);
    for (uint32_t r = 0; r < runs; r++) {
      job j = {&w, options, seed * 100 + r, false};
      world_clear(&w);
      status st = memory_guard(run_job, &j);
      bool right = st == STATUS_OK && j.right && world_is_right(&w);
      if (!right && !wrong)
        fprintf(stderr, "%s: seed %u run %u: %s\n", name, seed, r, status_message());
      wrong += !right;
    }
    world_destroy(&w);
  }
  EXPECT_INT(wrong, 0);
}

/* ---- by hand ---- */
/* Posts of one team take effect in their order, joined or not: the second reads what the first writes,
 * the third writes what the second reads. */
static void make_chain(world *w, int64_t width) {
  static const uint32_t team[] = {0, 1};
  rt_plan *plans[2];
  *w = (world){.n = 2, .width = width};
  arena_init(&w->memory, &memory_default);
  for (uint32_t r = 0; r < 2; r++) {
    kit *k = &w->ranks[r].k;
    kit_init(k, 1);
    uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, width), y = kit_pool(k, width);
    uint32_t z = kit_buffer(k, RT_BUFFER_OUTPUT, 0, width);
    rt_post p = {.kind = RT_COMM_ALLREDUCE, .dtype = IR_I64, .team = team, .n_team = 2};
    p.me = p.rank = r;
    p.count = width;
    p.in = x, p.out = y;
    (void)kit_post(k, 0, p);
    p.in = y, p.out = z;
    (void)kit_post(k, 0, p);
    p.in = x, p.out = y;
    (void)kit_post(k, 0, p);
    (void)kit_plan(k);
    plans[r] = &k->plan;
    w->inputs[r] = world_array(w);
    w->outputs[r] = world_array(w);
    for (int64_t i = 0; i < width; i++) ((int64_t *)w->inputs[r])[i] = i + r;
  }
  if (rt_plan_join(plans, 2, &memory_default, &w->plan) != STATUS_OK) abort();
}

static void test_chain(cuda_order_options options, int64_t width) {
  world w;
  uint32_t wrong = 0;
  make_chain(&w, width);
  for (uint32_t seed = 0; seed < 60; seed++) {
    job j = {&w, options, seed, false};
    EXPECT_INT(memory_guard(run_job, &j), STATUS_OK);
    bool right = j.right;
    for (int64_t i = 0; i < 2 * width && right; i++)
      right = ((int64_t *)w.outputs[i / width])[i % width] == 2 * (2 * (i % width) + 1);
    wrong += !right;
  }
  EXPECT_INT(wrong, 0);
  world_destroy(&w);
}

int main(void) {
  cuda_order_options direct = {0}, one = {.one_gpu = true}, peers = {.staged = true};
  cuda_order_options host = {.staged = true, .through_host = true};
  test_worlds(direct, "direct", 24, 60, 8);
  test_worlds(one, "one GPU", 24, 60, 8);
  test_worlds(peers, "peer copies", 24, 60, 8);
  test_worlds(host, "through the host", 24, 60, 8);
  test_worlds(host, "through the host, long", 300 * 1024, 4, 2);
  test_chain(direct, 64);
  test_chain(one, 64);
  test_chain(peers, 64);
  test_chain(host, 64);
  return test_finish();
}
