/* Many items in one file: each is found by its name at once. */
#include <stdlib.h>
#include <time.h>

#include <weir/weir.h>

#include "test.h"

enum { ONE = 64 };

static char *many(int n, const char *last) {
  size_t size = (size_t)n * ONE + 256, used = 0;
  char *text = malloc(size);
  if (!text) abort();
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(text + used, size - used, "fusion f%d { x : f32[2]; return x }\n", i);
  (void)snprintf(text + used, size - used, "%s", last);
  return text;
}

static weir_status parse(const char *text, weir_module **m) {
  return weir_module_parse("many.weir", text, strlen(text), NULL, m);
}

/* Processor time of reading n fusions, the best of three. */
static double seconds(int n) {
  double best = 1e9;
  char *text = many(n, "");
  for (int i = 0; i < 3; i++) {
    weir_module *m = NULL;
    clock_t start = clock();
    EXPECT(parse(text, &m) == WEIR_OK);
    double taken = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (taken < best) best = taken;
    EXPECT_INT(weir_module_count(m), n);
    weir_module_destroy(m);
  }
  free(text);
  return best;
}

static void test_time(void) {
  double few = seconds(4000), lots = seconds(32000);
  if (!EXPECT(lots < 24 * few + 0.05)) /* 8 if it is linear, near 64 if each looks at all others */
    fprintf(stderr, "  4000 fusions: %.3f s, 32000: %.3f s\n", few, lots);
}

static void test_duplicate(void) {
  weir_module *m = NULL;
  char *text = many(100, "fusion f7 { x : f32[2]; return x }\n");
  EXPECT(parse(text, &m) == WEIR_BAD_PROGRAM);
  EXPECT_CONTAINS(weir_error(), "many.weir:101:8: error: there is already a fusion called 'f7'");
  EXPECT_CONTAINS(weir_error(), "many.weir:8:8: note: the first one is here");
  free(text);
}

/* A host program and a fusion may share a name, in either order; two host programs may not. */
static void test_hosts(void) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  char *text = many(100, "host f7(x : f32[2]) -> (x) { }\n"
                         "host late(x : f32[2]) -> (x) { }\n"
                         "fusion late { x : f32[2]; return x }\n");
  EXPECT(parse(text, &m) == WEIR_OK);
  EXPECT(weir_module_find(m, "f7", &f) == WEIR_OK && weir_fusion_is_host(f));
  EXPECT(weir_module_find(m, "f8", &f) == WEIR_OK && !weir_fusion_is_host(f));
  EXPECT(weir_module_find(m, "late", &f) == WEIR_OK && weir_fusion_is_host(f));
  char *lowered = NULL; /* with its fusion in front, wherever that stood */
  EXPECT(weir_lower(f, NULL, "weir", &lowered) == WEIR_OK);
  EXPECT(lowered && strncmp(lowered, "fusion late {", 13) == 0);
  weir_string_free(lowered);
  weir_module_destroy(m);
  free(text);
  text = many(1, "host h(x : f32[2]) -> (x) { }\nhost h(x : f32[2]) -> (x) { }\n");
  EXPECT(parse(text, &m) == WEIR_BAD_PROGRAM);
  EXPECT_CONTAINS(weir_error(), "already a host program called 'h'");
  free(text);
}

int main(void) {
  test_time();
  test_duplicate();
  test_hosts();
  return test_finish();
}
