/* A program allocates from several threads, but makes one call at a time: callers need no lock. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "test.h"

/* Four devices that all communicate with each other, in many posts. */
static const char text[] = "fusion f {\n"
                           "  mesh d = [4]\n"
                           "  x : f32[32, 8]\n"
                           "  w : f32[8, 8]\n"
                           "  y = linear(x, w)\n"
                           "  return y\n"
                           "  schedule {\n"
                           "    x, w, y on d\n"
                           "    x.outer_split(0, d); x[0] = mesh.x\n"
                           "    y.outer_split(0, d); y[0] = stream\n"
                           "  }\n"
                           "}\n";

static _Atomic int inside, overlaps;
static _Atomic int64_t live;

static void enter(void) {
  if (atomic_fetch_add(&inside, 1) > 0) (void)atomic_fetch_add(&overlaps, 1);
  (void)sched_yield(); /* whoever else wants to come in has the time to */
}

static void leave(void) { (void)atomic_fetch_sub(&inside, 1); }

static void *slow_alloc(void *context, size_t size_bytes) {
  (void)context;
  enter();
  void *block = malloc(size_bytes);
  live += block != NULL;
  leave();
  return block;
}

static void slow_free(void *context, void *block) {
  (void)context;
  enter();
  live -= block != NULL;
  free(block);
  leave();
}

static weir_status compile(const weir_allocator *memory, weir_program **p) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_status st = weir_module_parse("p.weir", text, sizeof text - 1, NULL, &m);
  if (st == WEIR_OK) st = weir_module_find(m, NULL, &f);
  if (st == WEIR_OK) st = weir_options_create(&o);
  if (st == WEIR_OK) st = weir_options_set(o, "threads", "4");
  if (st == WEIR_OK) st = weir_options_set(o, "pipeline", "p2p");
  if (st == WEIR_OK) st = weir_compile(f, o, memory, p);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return st;
}

/* The first run of a program is the one that allocates. */
static void run_once(const weir_allocator *memory) {
  static float x[32 * 8], w[8 * 8], y[32 * 8];
  weir_program *p = NULL;
  weir_dl_tensor t[3];
  void *data[] = {x, w, y};
  int64_t shapes[3][2] = {{32, 8}, {8, 8}, {32, 8}};
  for (int i = 0; i < 3; i++) {
    t[i] = (weir_dl_tensor){.data = data[i], .device = {1, 0}, .ndim = 2, .shape = shapes[i]};
    t[i].dtype = weir_dtype_to_dl(WEIR_F32);
  }
  const weir_dl_tensor *in[] = {&t[0], &t[1]}, *out[] = {&t[2]};
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 2, .outputs = out};
  args.n_outputs = 1;
  if (!EXPECT_INT(compile(memory, &p), WEIR_OK)) return;
  EXPECT_INT(weir_run(p, &args), WEIR_OK);
  weir_program_destroy(p);
}

int main(void) {
  weir_allocator memory = {slow_alloc, slow_free, NULL};
  for (int i = 0; i < 100; i++) run_once(&memory);
  EXPECT_INT(overlaps, 0);
  EXPECT_INT(live, 0);
  return test_finish();
}
