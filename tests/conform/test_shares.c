/* Launches that idle threads share: kernels made of parts, put in the place of those of a loaded plan.
 * Every part runs once, whatever the number of threads; the error of the first part that fails is the one
 * reported; what parts leave is there when the launch ends; and threads do take part. Stages of a kernel come
 * one after the other, each in parts. */
#include <stdlib.h>
#include <string.h>

#include "conform/plan_kit.h"
#include "device/cpu/device_threads.h"
#include "device/cpu/kernel_internal.h"
#include "device/cpu/tile/stages.h"
#include "test.h"

enum { STREAMS = 5, LAUNCHES = 12, PARTS = 37, MANY = 1000 };

/* A kernel of n_parts: part p writes 1000 * in[0] + p * in[0] to its element, and a partial sum to what
 * is shared; the end adds those up in the last element. */
typedef struct part_kernel {
  cpu_kernel head;
  uint32_t fails[2]; /* parts */
  bool meet;         /* part 0 waits for another one to begin */
  _Atomic uint32_t *begun;
} part_kernel;

static int64_t value_of(int64_t x, uint32_t part) { return 1000 * x + (int64_t)part * x; }

static void wait_for_two(const part_kernel *k) {
  for (int64_t start_ns = rt_clock_ns(); atomic_load(k->begun) < 2;)
    if (rt_clock_ns() - start_ns > 20000000000) break;
}

static status run_part(const cpu_kernel *head, uint32_t part, char *const *starts, char *scratch,
                       char *shared) {
  const part_kernel *k = (const part_kernel *)head;
  int64_t *out = (int64_t *)(void *)starts[0], *mine = (int64_t *)(void *)scratch;
  (void)atomic_fetch_add(k->begun, 1);
  if (k->meet && part == 0) wait_for_two(k);
  for (int i = 0; i < 50; i++) mine[i] = value_of(*(int64_t *)(void *)starts[1], part);
  if (part == k->fails[0] || part == k->fails[1]) return fail(STATUS_BAD_PROGRAM, "part %u", part);
  out[part] += mine[49];
  ((int64_t *)(void *)shared)[part] = mine[49];
  return STATUS_OK;
}

static status add_up(const cpu_kernel *head, char *const *starts, char *scratch, char *shared) {
  int64_t *out = (int64_t *)(void *)starts[0], sum = 0;
  (void)scratch;
  for (uint32_t p = 0; p < head->n_parts; p++) sum += ((int64_t *)(void *)shared)[p];
  out[head->n_parts] += sum;
  return STATUS_OK;
}

static part_kernel kernel_of(uint32_t n_parts, _Atomic uint32_t *begun) {
  return (part_kernel){.head = {.n_parts = n_parts, .run_part = run_part, .finish = add_up},
                       .fails = {UINT32_MAX, UINT32_MAX},
                       .begun = begun};
}

/* ---- plans ---- */
typedef struct rig {
  kit k;
  rt_device *device;
  rt_loaded *loaded;
  memory_faults count;
  allocator memory;
  int64_t x, out[LAUNCHES][MANY + 1];
  void *inputs[1], *outputs[LAUNCHES];
  _Atomic uint32_t begun[LAUNCHES];
  part_kernel kernels[LAUNCHES];
} rig;

/* Scratch of the kernels that the test brings. */
static void size_scratch(cpu_program *p, uint32_t threads, uint32_t n_parts) {
  size_t bytes = (100 + 2 * n_parts) * sizeof(int64_t) + 4 * CPU_SCRATCH_ALIGN;
  p->scratch_bytes = (bytes + CPU_LINE_BYTES - 1) / CPU_LINE_BYTES * CPU_LINE_BYTES;
  p->piece_bytes = p->scratch_bytes + CPU_LINE_BYTES;
  p->threads = threads;
  check(cpu_program_reserve(p) == STATUS_OK);
}

/* One launch per output, on worker streams in turn. */
static void rig_open(rig *r, uint32_t threads, uint32_t n_parts) {
  rt_device_options o = {.threads = threads};
  kit_init(&r->k, STREAMS);
  r->count = (memory_faults){.fail_at = UINT64_MAX};
  r->memory = memory_faulty(&r->count);
  r->x = 7;
  r->inputs[0] = &r->x;
  uint32_t x = kit_buffer(&r->k, RT_BUFFER_INPUT, 0, 1);
  for (uint32_t i = 0; i < LAUNCHES; i++) {
    uint32_t y = kit_buffer(&r->k, RT_BUFFER_OUTPUT, i, n_parts + 1);
    (void)kit_set(&r->k, 1 + i % (STREAMS - 1), y, x);
    r->outputs[i] = r->out[i];
    r->kernels[i] = kernel_of(n_parts, &r->begun[i]);
  }
  check(rt_device_find("cpu")->open(&o, &r->memory, &r->device) == STATUS_OK);
  check(r->device->ops->load(r->device, kit_plan(&r->k), &r->loaded) == STATUS_OK);
  cpu_program *p = &((cpu_loaded *)r->loaded)->program;
  size_scratch(p, threads, n_parts);
  for (uint32_t i = 0; i < LAUNCHES; i++) {
    r->kernels[i].head.scratch_bytes = 50 * sizeof(int64_t);
    r->kernels[i].head.shared_bytes = n_parts * sizeof(int64_t);
    p->kernels[i] = &r->kernels[i].head;
  }
}

static void rig_close(rig *r) {
  r->device->ops->unload(r->loaded);
  r->device->ops->close(r->device);
  kit_destroy(&r->k);
}

static status rig_run(rig *r) {
  memset(r->out, 0, sizeof r->out);
  memset(r->begun, 0, sizeof r->begun);
  status_clear();
  return rt_run(r->loaded, r->inputs, r->outputs, NULL, NULL);
}

static bool is_right(const rig *r, uint32_t n_parts) {
  for (uint32_t i = 0; i < LAUNCHES; i++) {
    int64_t sum = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
      if (r->out[i][p] != value_of(r->x, p)) return false;
      sum += r->out[i][p];
    }
    if (r->out[i][n_parts] != sum || atomic_load(&r->begun[i]) != n_parts) return false;
  }
  return true;
}

/* ---- tests ---- */
static rig shared;

static void test_every_part_once(uint32_t threads, uint32_t n_parts, int repeats) {
  rig_open(&shared, threads, n_parts);
  int wrong = rig_run(&shared) != STATUS_OK || !is_right(&shared, n_parts);
  uint64_t calls = shared.count.calls;
  for (int i = 0; i < repeats; i++)
    wrong += rig_run(&shared) != STATUS_OK || !is_right(&shared, n_parts);
  EXPECT_INT(wrong, 0);
  EXPECT_INT((int64_t)(shared.count.calls - calls), 0);
  rig_close(&shared);
}

/* Part 0 of a launch waits until another part runs: there must be a second thread in it. */
static void test_threads_meet(uint32_t threads) {
  rig_open(&shared, threads, PARTS);
  shared.kernels[LAUNCHES / 2].meet = true;
  int64_t start_ns = rt_clock_ns();
  EXPECT_INT(rig_run(&shared), STATUS_OK);
  EXPECT(is_right(&shared, PARTS));
  EXPECT(rt_clock_ns() - start_ns < 20000000000);
  rig_close(&shared);
}

/* Parts 5 and 20 of launch 3 fail, part 1 of launch 9: launch 3's part 5 is told of, every time. */
static void test_first_error(uint32_t threads, int repeats) {
  int wrong = 0;
  rig_open(&shared, threads, PARTS);
  shared.kernels[3].fails[0] = 20;
  shared.kernels[3].fails[1] = 5;
  shared.kernels[9].fails[0] = 1;
  for (int i = 0; i < repeats; i++) {
    status st = rig_run(&shared);
    wrong += st != STATUS_BAD_PROGRAM || strcmp(status_message(), "part 5") != 0;
    for (uint32_t k = 0; k < 3; k++) wrong += atomic_load(&shared.begun[k]) != PARTS;
    wrong += shared.out[3][PARTS] != 0; /* no end after an error */
  }
  EXPECT_INT(wrong, 0);
  shared.kernels[3].fails[0] = shared.kernels[3].fails[1] = shared.kernels[9].fails[0] = UINT32_MAX;
  EXPECT_INT(rig_run(&shared), STATUS_OK);
  EXPECT(is_right(&shared, PARTS));
  rig_close(&shared);
}

/* ---- stages ---- */
/* The first writes a value of the kernel's own, backwards; the second reads what other parts wrote. */
static status run_first(const cpu_kernel *head, uint32_t part, char *const *starts, char *scratch,
                        char *left) {
  const part_kernel *k = (const part_kernel *)head;
  int64_t *own = (int64_t *)(void *)starts[0];
  (void)scratch, (void)left;
  (void)atomic_fetch_add(k->begun, 1);
  if (part == k->fails[0]) return fail(STATUS_BAD_PROGRAM, "part %u", part);
  own[head->n_parts - 1 - part] = value_of(*(int64_t *)(void *)starts[1], part);
  return STATUS_OK;
}

static status run_second(const cpu_kernel *head, uint32_t part, char *const *starts, char *scratch,
                         char *left) {
  const int64_t *own = (const int64_t *)(void *)starts[1];
  int64_t *out = (int64_t *)(void *)starts[0];
  (void)scratch, (void)left;
  (void)atomic_fetch_add(((const part_kernel *)head)->begun, 1);
  out[part] += own[part];
  return STATUS_OK;
}

typedef struct two_stages {
  part_kernel first, second;
  tile_stages *stages;
} two_stages;

/* Places: the result, the operand, and the value between the stages. */
static void make_stages(two_stages *t, arena *memory, _Atomic uint32_t *begun) {
  static const uint32_t first_places[] = {2, 1}, second_places[] = {0, 2};
  t->first = t->second = kernel_of(PARTS, begun);
  t->first.head.finish = t->second.head.finish = NULL;
  t->first.head.run_part = run_first;
  t->second.head.run_part = run_second;
  t->stages = tile_stages_new(memory, 2, "stages");
  tile_stages_reset(t->stages, 2, 1, 2);
  t->stages->own = ARENA_ARRAY(memory, 1, size_t);
  t->stages->own[t->stages->n_own++] = t->stages->inner_at;
  t->stages->inner_at += tile_aligned(PARTS * sizeof(int64_t));
  tile_stages_add(t->stages, (tile_stage){&t->first.head, 2, first_places});
  tile_stages_add(t->stages, (tile_stage){&t->second.head, 2, second_places});
  tile_stages_end(t->stages);
}

static bool went_through_stages(const rig *r) {
  for (uint32_t i = 0; i < LAUNCHES; i++) {
    if (atomic_load(&r->begun[i]) != 2 * PARTS) return false;
    for (uint32_t p = 0; p < PARTS; p++)
      if (r->out[i][p] != value_of(r->x, PARTS - 1 - p)) return false;
  }
  return true;
}

static void test_stages(uint32_t threads, int repeats) {
  static two_stages kernels[LAUNCHES];
  arena memory;
  int wrong = 0;
  arena_init(&memory, &memory_default);
  rig_open(&shared, threads, PARTS);
  for (uint32_t i = 0; i < LAUNCHES; i++) {
    make_stages(&kernels[i], &memory, &shared.begun[i]);
    ((cpu_loaded *)shared.loaded)->program.kernels[i] = &kernels[i].stages->head;
  }
  for (int i = 0; i < repeats; i++)
    wrong += rig_run(&shared) != STATUS_OK || !went_through_stages(&shared);
  EXPECT_INT(wrong, 0);
  kernels[3].first.fails[0] = 5; /* then there is no second stage */
  for (int i = 0; i < repeats; i++) {
    wrong += rig_run(&shared) != STATUS_BAD_PROGRAM || strcmp(status_message(), "part 5") != 0;
    wrong += atomic_load(&shared.begun[3]) > PARTS || shared.out[3][0] != 0;
  }
  EXPECT_INT(wrong, 0);
  rig_close(&shared);
  arena_destroy(&memory);
}

int main(void) {
  static const uint32_t threads[] = {1, 2, 3, 4, 8};
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    test_every_part_once(threads[i], 1, 20);
    test_every_part_once(threads[i], 2, 300);
    test_every_part_once(threads[i], PARTS, 300);
    test_every_part_once(threads[i], MANY, 20);
    test_first_error(threads[i], 100);
    test_stages(threads[i], 200);
    if (threads[i] > 1) test_threads_meet(threads[i]);
  }
  return test_finish();
}
