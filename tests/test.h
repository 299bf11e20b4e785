/* The shared test header: expectations that count and go on.
 *
 * A failed expectation prints its place and both sides; the test goes on, so one run shows all
 * failures. main() ends with `return test_finish();`. */
#ifndef WEIR_TESTS_TEST_H
#define WEIR_TESTS_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Whether everything is slow, for a sanitizer watches. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static unsigned test_passed, test_failed;

/* Counts; true if `ok`. */
static inline bool test_count(bool ok, const char *file, int line) {
  if (ok) {
    test_passed++;
    return true;
  }
  test_failed++;
  fprintf(stderr, "%s:%d: failed: ", file, line);
  return false;
}

static inline bool test_true(bool ok, const char *what, const char *file, int line) {
  if (!test_count(ok, file, line)) fprintf(stderr, "%s\n", what);
  return ok;
}

static inline bool test_int(int64_t a, int64_t b, const char *what, const char *file, int line) {
  if (test_count(a == b, file, line)) return true;
  fprintf(stderr, "%s: %" PRId64 " is not %" PRId64 "\n", what, a, b);
  return false;
}

static inline bool test_str(const char *a, const char *b, const char *what, const char *file,
                            int line) {
  bool ok = a && b && strcmp(a, b) == 0;
  if (test_count(ok, file, line)) return true;
  fprintf(stderr, "%s:\n--- got\n%s\n--- expected\n%s\n", what, a ? a : "(null)", b ? b : "(null)");
  return false;
}

static inline bool test_contains(const char *text, const char *part, const char *what,
                                 const char *file, int line) {
  bool ok = text && strstr(text, part);
  if (test_count(ok, file, line)) return true;
  fprintf(stderr, "%s: not in it: %s\n--- text\n%s\n", what, part, text ? text : "(null)");
  return false;
}

/* Each is also an expression: whether the expectation held. */
#define EXPECT(cond) test_true((cond), #cond, __FILE__, __LINE__)
#define EXPECT_INT(a, b) test_int((int64_t)(a), (int64_t)(b), #a, __FILE__, __LINE__)
#define EXPECT_STR(a, b) test_str((a), (b), #a, __FILE__, __LINE__)
#define EXPECT_CONTAINS(text, part) test_contains((text), (part), #text, __FILE__, __LINE__)

/* Prints the totals; the exit code of main(). */
static inline int test_finish(void) {
  printf("%u passed, %u failed\n", test_passed, test_failed);
  return test_failed || !test_passed ? 1 : 0;
}

#endif
