/* Status record, arenas and the memory trap, tables, strings, diagnostics. */
#include <math.h>

#include "base/diag.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "base/table.h"
#include "base/vec.h"
#include "test.h"

static void test_first_error_wins(void) {
  status_clear();
  EXPECT_STR(status_message(), "");
  EXPECT(fail(STATUS_SYSTEM, "first %d", 1) == STATUS_SYSTEM);
  EXPECT(fail(STATUS_BAD_USAGE, "second") == STATUS_BAD_USAGE);
  EXPECT_STR(status_message(), "first 1");
  status_clear();
  EXPECT_INT(status_exit_code(STATUS_CHECK_FAILED), 1);
  EXPECT_INT(status_exit_code(STATUS_BAD_PROGRAM), 2);
  EXPECT_INT(status_exit_code(STATUS_OUT_OF_MEMORY), 3);
}

/* Large blocks lie in lines and can be written from end to end. */
static void test_large_blocks(void) {
  static const size_t sizes[] = {1 << 16, (1 << 16) + 1, (4 << 20) - 1, (4 << 20) + 3, 9 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *block = memory_alloc(&memory_default, sizes[i]);
    if (!EXPECT(block != NULL)) continue;
    EXPECT_INT((uintptr_t)block % 64, 0);
    memset(block, 1, sizes[i]);
    memory_free(&memory_default, block);
  }
  EXPECT(memory_alloc(&memory_default, SIZE_MAX) == NULL);
  EXPECT(memory_alloc(&memory_default, SIZE_MAX - 64) == NULL);
  status_clear();
}

static status use_arena(void *context) {
  arena *a = context;
  for (int i = 0; i < 1000; i++) {
    unsigned char *p = arena_alloc(a, 100);
    for (int k = 0; k < 100; k++) {
      if (p[k] != 0) return STATUS_CHECK_FAILED;
    }
    memset(p, 0xff, 100);
  }
  return STATUS_OK;
}

static status ask_too_much(void *context) {
  (void)arena_array(context, SIZE_MAX / 2, 16);
  return STATUS_OK;
}

static void test_every_failing_allocation(void) {
  for (uint64_t n = 0;; n++) {
    memory_faults faults = {.fail_at = n};
    allocator memory = memory_faulty(&faults);
    arena a;
    arena_init(&a, &memory);
    status_clear();
    status st = memory_guard(use_arena, &a);
    arena_destroy(&a);
    EXPECT_INT(faults.live, 0);
    if (st == STATUS_OK) break;
    EXPECT(st == STATUS_OUT_OF_MEMORY);
    EXPECT_CONTAINS(status_message(), "cannot allocate");
  }
  arena a;
  arena_init(&a, &memory_default);
  status_clear();
  EXPECT(memory_guard(ask_too_much, &a) == STATUS_OUT_OF_MEMORY);
  arena_destroy(&a);
  status_clear();
}

static void test_strings_and_maps(arena *a) {
  strings s;
  strings_init(&s, a);
  char name[16];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 5000; i++) {
      int n = snprintf(name, sizeof name, "t%d", i);
      EXPECT_INT(strings_intern(&s, name, (size_t)n), i + 1);
    }
  }
  EXPECT_STR(strings_text(&s, 17), "t16");
  EXPECT_INT(strings_find(&s, "absent", 6), 0);
  strings_attach(&s, 17, 0, 5);
  strings_attach(&s, 17, 1, 6);
  strings_attach(&s, 17, 0, 7);
  EXPECT_INT(strings_attached(&s, 17, 0), 7);
  EXPECT_INT(strings_attached(&s, 17, 1), 6);
  EXPECT_INT(strings_attached(&s, 18, 0), 0);
  map m;
  map_init(&m, a);
  EXPECT_INT(map_get(&m, 3, 77), 77);
  for (uint32_t i = 0; i < 5000; i++) map_put(&m, (uint64_t)i << 32, i);
  for (uint32_t i = 0; i < 5000; i++) map_put(&m, (uint64_t)i << 32, i * 2);
  for (uint32_t i = 0; i < 5000; i++) EXPECT_INT(map_get(&m, (uint64_t)i << 32, 1), i * 2);
}

static const char *double_text(arena *a, double v) {
  strbuf b;
  strbuf_init(&b, a);
  strbuf_double(&b, v);
  return b.data;
}

static void test_doubles(arena *a) {
  EXPECT_STR(double_text(a, 2), "2.0");
  EXPECT_STR(double_text(a, 0.1), "0.1");
  EXPECT_STR(double_text(a, -0.0), "-0.0");
  EXPECT_STR(double_text(a, 1e300), "1e+300");
  EXPECT_STR(double_text(a, 1.0 / 3), "0.3333333333333333");
  EXPECT_STR(double_text(a, -INFINITY), "-inf");
  EXPECT_STR(double_text(a, (double)NAN), "nan");
}

static void test_diagnostics(arena *a) {
  const char *text = "ab = 1\n  cd = x y\n";
  source src = {.name = "f.weir", .text = text, .length = (uint32_t)strlen(text)};
  diags d;
  diags_init(&d, a, &src);
  diag_error(&d, (loc){14, 3, true}, "unknown %s", "name");
  diag_note(&d, (loc){0, 2, true}, "see here");
  diag_error(&d, (loc){0}, "nowhere");
  strbuf out;
  strbuf_init(&out, a);
  diags_render(&d, &out);
  EXPECT_STR(out.data, "f.weir:2:8: error: unknown name\n      cd = x y\n           ^~~\n"
                       "f.weir:1:1: note: see here\n    ab = 1\n    ^~\n"
                       "f.weir: error: nowhere\n");
  EXPECT_INT(d.errors, 2);
  for (int i = 0; i < 200; i++) diag_error(&d, (loc){0}, "again");
  strbuf_init(&out, a);
  diags_render(&d, &out);
  EXPECT_CONTAINS(out.data, "and 102 more errors");
}

static status all(void *context) {
  arena *a = context;
  test_strings_and_maps(a);
  test_doubles(a);
  test_diagnostics(a);
  VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) vec_push(a, &v, i);
  EXPECT_INT(v.len, 1000);
  EXPECT_INT(vec_last(&v), 999);
  EXPECT_INT(v.data[500], 500);
  return STATUS_OK;
}

int main(void) {
  test_first_error_wins();
  test_large_blocks();
  test_every_failing_allocation();
  arena a;
  arena_init(&a, &memory_default);
  EXPECT(memory_guard(all, &a) == STATUS_OK);
  arena_destroy(&a);
  return test_finish();
}
