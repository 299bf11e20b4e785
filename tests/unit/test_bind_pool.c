/* The pool while a plan is bound: ranges that live at once are apart, a range is used again only where
 * every access to it is past, what could serve is used, and all of it is fast. */
#include <time.h>

#include "base/random.h"
#include "bind/pool.h"
#include "test.h"

enum { STREAMS = 4, UNIT = 64, ROOM = 4096, LIVE = 40 };

typedef struct range {
  int64_t begin, size;
  bind_accesses accesses;
  uint32_t last[STREAMS]; /* the oracle's: every access since the range was new */
} range;

typedef struct world {
  bind_pool pool;
  uint32_t clocks[STREAMS][STREAMS];
  uint32_t freed[ROOM][STREAMS]; /* per unit: the accesses before it was given back */
  bool live[ROOM];
  range ranges[LIVE];
  uint32_t n;
} world;

static uint64_t key, counter;
static uint32_t n_taken, n_missed;
static uint32_t below(uint32_t n) { return (uint32_t)(random_bits(key, counter++) % n); }

static bool is_past(const uint32_t *positions, const uint32_t *clock) {
  for (uint32_t s = 0; s < STREAMS; s++)
    if (positions[s] > clock[s]) return false;
  return true;
}

/* Whether `units` free units in a row are safe for the stream. */
static bool has_run(const world *w, uint32_t stream, int64_t units) {
  int64_t run = 0;
  for (int64_t i = 0; i < w->pool.size_bytes / UNIT; i++) {
    run = !w->live[i] && is_past(w->freed[i], w->clocks[stream]) ? run + 1 : 0;
    if (run >= units) return true;
  }
  return false;
}

static void take(world *w, uint32_t stream) {
  range r = {.size = (1 + (int64_t)below(12)) * UNIT};
  int64_t before = w->pool.size_bytes;
  bool had_run = has_run(w, stream, r.size / UNIT);
  EXPECT(bind_pool_take(&w->pool, w->clocks[stream], r.size, &r.begin, &r.accesses));
  check(w->pool.size_bytes <= ROOM * UNIT);
  bool good = r.begin >= 0 && r.begin % UNIT == 0 && r.begin + r.size <= w->pool.size_bytes;
  for (int64_t i = r.begin / UNIT; good && i < (r.begin + r.size) / UNIT; i++) {
    good = !w->live[i] && is_past(w->freed[i], w->clocks[stream]);
    w->live[i] = true;
    for (uint32_t s = 0; s < STREAMS; s++)
      if (w->freed[i][s] > r.last[s]) r.last[s] = w->freed[i][s];
  }
  EXPECT(good);
  n_taken++;
  n_missed += had_run && w->pool.size_bytes > before;
  w->ranges[w->n++] = r;
}

static void touch(world *w, uint32_t stream) {
  if (w->n == 0) return;
  range *r = &w->ranges[below(w->n)];
  r->last[stream] = ++w->clocks[stream][stream];
  bind_pool_touch(&w->pool, &r->accesses, stream, w->clocks[stream]);
}

static void give(world *w) {
  if (w->n == 0) return;
  uint32_t k = below(w->n);
  range r = w->ranges[k];
  w->ranges[k] = w->ranges[--w->n];
  for (int64_t i = r.begin / UNIT; i < (r.begin + r.size) / UNIT; i++) {
    w->live[i] = false;
    memcpy(w->freed[i], r.last, sizeof r.last);
  }
  bind_pool_give(&w->pool, r.begin, r.size, &r.accesses);
}

static void wait_for(world *w, uint32_t stream, uint32_t other) {
  for (uint32_t s = 0; s < STREAMS; s++)
    if (w->clocks[other][s] > w->clocks[stream][s]) w->clocks[stream][s] = w->clocks[other][s];
}

static status random_world(void *context) {
  world *w = context;
  arena memory;
  arena_init(&memory, &memory_default);
  *w = (world){0};
  bind_pool_init(&w->pool, &memory);
  for (uint32_t i = 0; i < 2000; i++) {
    uint32_t what = below(10), stream = below(STREAMS);
    if (what < 3 && w->n < LIVE) take(w, stream);
    else if (what < 6) touch(w, stream);
    else if (what < 9) give(w);
    else wait_for(w, stream, below(STREAMS));
  }
  arena_destroy(&memory);
  return STATUS_OK;
}

static void test_random(void) {
  static world w;
  for (key = 0; key < 200; key++) {
    counter = 0;
    if (!EXPECT(memory_guard(random_world, &w) == STATUS_OK) || test_failed)
      fprintf(stderr, "seed %d\n", (int)key);
    if (test_failed) return;
  }
  /* A range merged of two waits for the accesses to both. */
  printf("%u allocations, %u of them grew the pool though a range would have done\n", n_taken,
         n_missed);
  EXPECT(n_taken > 10000 && n_missed * 100 < n_taken);
}

/* ---- reuse ---- */
static arena memory;
static bind_pool pool;
static uint32_t clocks[STREAMS][STREAMS];

static void begin(void) {
  arena_destroy(&memory);
  arena_init(&memory, &memory_default);
  bind_pool_init(&pool, &memory);
  memset(clocks, 0, sizeof clocks);
}

static range taken(uint32_t stream, int64_t units) {
  range r = {.size = units * UNIT};
  EXPECT(bind_pool_take(&pool, clocks[stream], r.size, &r.begin, &r.accesses));
  return r;
}

static void used(uint32_t stream, range *r) {
  clocks[stream][stream]++;
  bind_pool_touch(&pool, &r->accesses, stream, clocks[stream]);
}

static void given(range *r) { bind_pool_give(&pool, r->begin, r->size, &r->accesses); }

/* Neighbours of one stream are one range; so unequal sizes in any order need only the largest. */
static void test_unequal(void) {
  begin();
  for (uint32_t i = 0; i < 100; i++) {
    range a = taken(0, 1 + i % 7), b = taken(0, 1 + i % 5);
    used(0, &a);
    used(0, &b);
    given(i % 2 ? &a : &b);
    given(i % 2 ? &b : &a);
  }
  EXPECT_INT(pool.size_bytes, 12 * UNIT);
}

/* Pieces of two streams serve a third together, once it has waited for both. */
static void test_joined(void) {
  begin();
  range a = taken(1, 2), b = taken(2, 2);
  used(1, &a);
  used(2, &b);
  given(&a);
  given(&b);
  range c = taken(0, 4);
  EXPECT_INT(c.begin, 4 * UNIT);
  given(&c);
  clocks[0][1] = clocks[1][1];
  clocks[0][2] = clocks[2][2];
  c = taken(0, 4);
  EXPECT(c.begin == 4 * UNIT); /* the one that fits */
  range d = taken(0, 3);
  EXPECT_INT(d.begin, 0);
  given(&d); /* untouched: the accesses of both still hold */
  range e = taken(1, 2);
  EXPECT_INT(e.begin, 8 * UNIT);
  EXPECT_INT(pool.size_bytes, 10 * UNIT);
}

/* The pool grows behind its last range if that is safe. */
static void test_grown(void) {
  begin();
  range a = taken(0, 1), b = taken(0, 2);
  used(0, &b);
  given(&b);
  b = taken(0, 5);
  EXPECT_INT(b.begin, UNIT);
  EXPECT_INT(pool.size_bytes, 6 * UNIT);
  given(&a);
}

/* ---- speed ---- */
enum { MOST = 16000 };

/* n live ranges, every second one freed by a stream nobody waits for, and n more. Returns the
 * processor time. */
static double allocate_many(uint32_t n) {
  static range all[2 * MOST];
  clock_t start = clock();
  begin();
  for (uint32_t i = 0; i < n; i++) {
    all[i] = taken(i % 3, 1 + i % 9);
    used(i % 3, &all[i]);
  }
  for (uint32_t i = 0; i < n; i += 2) given(&all[i]);
  for (uint32_t i = n; i < 2 * n; i++) {
    all[i] = taken(3, 1 + i % 9);
    used(3, &all[i]);
  }
  return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static double best_of_three(uint32_t n) {
  double best = allocate_many(n);
  for (int i = 0; i < 2; i++) {
    double seconds = allocate_many(n);
    if (seconds < best) best = seconds;
  }
  return best;
}

static void test_many(void) {
  double few = best_of_three(MOST / 8), many = best_of_three(MOST);
  printf("%d allocations beside %d free ranges that are not safe: %.0f ms\n", MOST, MOST / 2,
         1e3 * many);
  EXPECT(many < 24 * few + 0.05); /* 8 if it is linear, near 64 if each looks at all free ranges */
}

static status run_all(void *context) {
  (void)context;
  test_unequal();
  test_joined();
  test_grown();
  test_many();
  arena_destroy(&memory);
  return STATUS_OK;
}

int main(void) {
  test_random();
  EXPECT(memory_guard(run_all, NULL) == STATUS_OK);
  return test_finish();
}
