#include "device/cpu/kernel_table.h"

#include <pthread.h>

#include "runtime/device.h"

enum { ENTRIES = 1 << 16, BLOCK = 1 << 10 };

/* Memory that nobody uses costs nothing. */
enum { EXP, LOG, SIN, COS, TANH, SIGMOID, ERF, SILU, GELU, GELU_TANH, N_TABLES };
typedef struct entry {
  const cpu_vector_loops *level; /* it is made of the loops of this level; NULL: not yet */
  cpu_table fastest;
} entry;
static uint16_t tables[N_TABLES][ENTRIES];
static entry entries[N_TABLES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int number_of(ir_opcode code, bool mode) {
  if (code == IR_OP_EXP) return EXP;
  if (code == IR_OP_LOG) return LOG;
  if (code == IR_OP_SIN) return SIN;
  if (code == IR_OP_COS) return COS;
  if (code == IR_OP_TANH) return TANH;
  if (code == IR_OP_SIGMOID) return SIGMOID;
  if (code == IR_OP_ERF) return ERF;
  if (code == IR_OP_SILU) return SILU;
  if (code == IR_OP_GELU) return mode ? GELU_TANH : GELU;
  return N_TABLES;
}

static void make(uint16_t *results, cpu_map_fn *loop, bool mode) {
  uint16_t x[BLOCK];
  const void *operands[3] = {x, x, x};
  for (uint32_t first = 0; first < ENTRIES; first += BLOCK) {
    for (uint32_t i = 0; i < BLOCK; i++) x[i] = (uint16_t)(first + i);
    loop(BLOCK, results + first, operands, mode);
  }
}

/* Of a block of usual numbers, 2^-7 to 8 with both signs; the least of a few times. */
static int64_t time_ns(cpu_table t, bool mode) {
  enum { TIMES = 8, FIRST = 0x3c00, LAST = 0x4100, STEP = 37, SIGN = 0x8000 };
  uint16_t x[BLOCK], y[BLOCK];
  const void *operands[3] = {x, t.results ? t.results : x, x};
  int64_t least = INT64_MAX;
  for (uint32_t i = 0; i < BLOCK; i++)
    x[i] = (uint16_t)((FIRST + i * STEP % (LAST - FIRST)) | (i % 2 ? SIGN : 0));
  for (uint32_t i = 0; i < TIMES; i++) {
    int64_t begin = rt_clock_ns();
    t.map(BLOCK, y, operands, mode);
    int64_t ns = rt_clock_ns() - begin;
    if (ns < least) least = ns;
  }
  return least;
}

static void choose(entry *e, const uint16_t *results, ir_opcode code, bool mode) {
  const cpu_vector_loops *loops = e->level;
  const cpu_table computed = {loops->map[IR_BF16][code], NULL},
                  looked_up = {loops->lookup, results};
  bool computes = time_ns(computed, mode) <= time_ns(looked_up, mode);
  e->fastest = computes ? computed : looked_up;
}

static entry *entry_of(ir_opcode code, bool mode) {
  int t = number_of(code, mode);
  if (t == N_TABLES) return NULL;
  (void)pthread_mutex_lock(&lock);
  if (entries[t].level != cpu_vectors()) {
    entries[t].level = cpu_vectors();
    make(tables[t], cpu_vectors()->map[IR_BF16][code], mode);
    choose(&entries[t], tables[t], code, mode);
  }
  (void)pthread_mutex_unlock(&lock);
  return &entries[t];
}

cpu_table cpu_table_of(ir_opcode code, bool mode) {
  const entry *e = entry_of(code, mode);
  return e ? e->fastest : (cpu_table){cpu_vectors()->map[IR_BF16][code], NULL};
}

const uint16_t *cpu_table_results(ir_opcode code, bool mode) {
  const entry *e = entry_of(code, mode);
  return e ? tables[e - entries] : NULL;
}
