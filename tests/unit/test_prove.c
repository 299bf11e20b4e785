/* Host programs are proven before they run: once per set of extents, and whatever fails. */
#include <weir/weir.h>

#include "base/memory.h"
#include "test.h"

static const char safe[] = "host safe(x : f32[n]) -> (y) {\n"
                           "  y : f32[n] = allocate()\n"
                           "  main = current_stream()\n"
                           "  t : f32[n] = allocate()\n"
                           "  t <- neg(x)\n"
                           "  set_stream(0)\n"
                           "  wait_stream(main)\n"
                           "  y <- neg(t)\n"
                           "  set_stream(main)\n"
                           "  wait_stream(0)\n"
                           "}\n";

static const char racy[] = "host racy(x : f32[n]) -> (y) {\n"
                           "  y : f32[n] = allocate()\n"
                           "  main = current_stream()\n"
                           "  y <- neg(x)\n"
                           "  if 3 < n {\n"
                           "    set_stream(0)\n"
                           "    y <- neg(y)\n"
                           "    set_stream(main)\n"
                           "    wait_stream(0)\n"
                           "  }\n"
                           "}\n";

static weir_status compile(const char *text, const char *prove, const weir_allocator *memory,
                           weir_program **p) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_status st = weir_module_parse("p.weir", text, strlen(text), memory, &m);
  if (st == WEIR_OK) st = weir_module_find(m, NULL, &f);
  if (st == WEIR_OK) st = weir_options_create(&o);
  if (st == WEIR_OK) st = weir_options_set(o, "prove", prove);
  if (st == WEIR_OK) st = weir_options_set(o, "threads", "1");
  if (st == WEIR_OK) st = weir_compile(f, o, memory, p);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return st;
}

enum { MOST = 64 };

static weir_status run(weir_program *p, int64_t n, float y[MOST]) {
  float x[MOST];
  for (int i = 0; i < MOST; i++) x[i] = (float)(i + 1);
  weir_dl_tensor in = {.data = x, .device = {1, 0}, .ndim = 1, .shape = &n};
  in.dtype = weir_dtype_to_dl(WEIR_F32);
  weir_dl_tensor out = in;
  out.data = y;
  const weir_dl_tensor *inputs[] = {&in}, *outputs[] = {&out};
  weir_run_args args = {.struct_size = sizeof args, .inputs = inputs, .n_inputs = 1};
  args.outputs = outputs;
  args.n_outputs = 1;
  return weir_run(p, &args);
}

static void test_findings(void) {
  weir_program *p = NULL;
  float y[MOST] = {0};
  if (!EXPECT(compile(racy, "auto", NULL, &p) == WEIR_OK)) return;
  EXPECT(run(p, 2, y) == WEIR_OK && y[1] == -2);
  y[0] = 7;
  for (int i = 0; i < 2; i++) { /* a refusal is not forgotten */
    EXPECT(run(p, 5, y) == WEIR_CHECK_FAILED);
    EXPECT_CONTAINS(weir_error(), "p.weir:7:5: error: stream 0 ");
    EXPECT_CONTAINS(weir_error(), "nothing orders it after the write on stream main");
    EXPECT(y[0] == 7);
  }
  EXPECT(run(p, 3, y) == WEIR_OK && y[2] == -3);
  weir_program_destroy(p);
  EXPECT(compile(racy, "never", NULL, &p) == WEIR_OK);
  EXPECT(run(p, 5, y) == WEIR_OK);
  weir_program_destroy(p);
}

/* More sets of extents than are remembered, then those that were forgotten. */
static void test_many_extents(void) {
  weir_program *p = NULL;
  float y[MOST];
  if (!EXPECT(compile(safe, "auto", NULL, &p) == WEIR_OK)) return;
  for (int round = 0; round < 2; round++)
    for (int64_t n = 1; n <= 40; n++) EXPECT(run(p, n, y) == WEIR_OK && y[n - 1] == (float)n);
  weir_program_destroy(p);
}

static void test_repeats_allocate_nothing(void) {
  memory_faults faults = {.fail_at = UINT64_MAX};
  allocator a = memory_faulty(&faults);
  weir_allocator memory = {a.alloc, a.free, a.context};
  weir_program *p = NULL;
  float y[MOST];
  if (!EXPECT(compile(safe, "always", &memory, &p) == WEIR_OK)) return;
  EXPECT(run(p, 5, y) == WEIR_OK && run(p, 5, y) == WEIR_OK);
  uint64_t before = faults.calls;
  for (int i = 0; i < 10; i++) EXPECT(run(p, 5, y) == WEIR_OK);
  EXPECT_INT(faults.calls, before);
  weir_program_destroy(p);
  EXPECT_INT(faults.live, 0);
}

/* What a fusion is lowered to: where that is cheap. */
static int64_t count_proofs(const char *text, const char *prove) {
  weir_program *p = NULL;
  weir_counts counts = {.struct_size = sizeof counts};
  float y[MOST];
  if (!EXPECT(compile(text, prove, NULL, &p) == WEIR_OK)) return -1;
  EXPECT(run(p, 5, y) == WEIR_OK && run(p, 5, y) == WEIR_OK);
  EXPECT(weir_program_counts(p, &counts) == WEIR_OK);
  weir_program_destroy(p);
  return counts.proofs;
}

static void test_lowered(void) {
  static const char small[] = "fusion f { x : f32[n]; y = neg(x); return y }\n";
  static const char large[] = "host large(x : f32[n]) -> (y) {\n"
                              "  y : f32[n] = allocate()\n"
                              "  y <- neg(x)\n"
                              "  for i in 5000 {\n"
                              "    y <- neg(y)\n"
                              "  }\n"
                              "}\n";
  static char chain[1 << 17];
  size_t used = (size_t)snprintf(chain, sizeof chain, "fusion f { x : f32[n]; t0 = cumsum(x, 0)\n");
  for (int i = 1; i < 2100; i++)
    used += (size_t)snprintf(chain + used, sizeof chain - used, "t%d = cumsum(t%d, 0)\n", i, i - 1);
  (void)snprintf(chain + used, sizeof chain - used, "return t2099 }\n");
  EXPECT_INT(count_proofs(chain, "auto"), 0);
  EXPECT_INT(count_proofs(chain, "always"), 1);
  EXPECT_INT(count_proofs(small, "auto"), 1);
  EXPECT_INT(count_proofs(small, "never"), 0);
  EXPECT_INT(count_proofs(large, "auto"), 1);
}

static weir_status compile_and_run(const char *text, const weir_allocator *memory) {
  weir_program *p = NULL;
  float y[MOST];
  weir_status st = compile(text, "auto", memory, &p);
  if (st == WEIR_OK) st = run(p, 5, y);
  weir_program_destroy(p);
  return st;
}

static void test_every_failing_allocation(const char *text, weir_status at_the_end) {
  for (uint64_t n = 0;; n++) {
    memory_faults faults = {.fail_at = n};
    allocator a = memory_faulty(&faults);
    weir_allocator memory = {a.alloc, a.free, a.context};
    weir_status st = compile_and_run(text, &memory);
    EXPECT_INT(faults.live, 0);
    if (faults.calls <= n) {
      EXPECT_INT(st, at_the_end);
      return;
    }
    if (!EXPECT_INT(st, WEIR_OUT_OF_MEMORY)) return;
  }
}

int main(void) {
  test_findings();
  test_many_extents();
  test_lowered();
  test_repeats_allocate_nothing();
  test_every_failing_allocation(safe, WEIR_OK);
  test_every_failing_allocation(racy, WEIR_CHECK_FAILED);
  return test_finish();
}
