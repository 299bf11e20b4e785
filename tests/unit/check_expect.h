/* The report of the plan at hand (check_kit.h), and what is expected of it. */
#ifndef WEIR_TESTS_UNIT_CHECK_EXPECT_H
#define WEIR_TESTS_UNIT_CHECK_EXPECT_H

#include "check_kit.h"

static check_report report;
static const char *text; /* of the report */

static inline void examine(void) {
  finish_plan();
  check_report_destroy(&report);
  EXPECT(check_plan(&plan, NULL, &report) == STATUS_OK);
  strbuf out;
  strbuf_init(&out, &kit_memory);
  check_report_text(&report, &out);
  text = out.data;
}

static inline void expect_pass(const char *file, int line) {
  examine();
  if (!test_count(report.n_found == 0, file, line)) fprintf(stderr, "plan fails:\n%s\n", text);
}
#define EXPECT_PASS() expect_pass(__FILE__, __LINE__)

static inline int check_main(status (*all)(void *)) {
  EXPECT(memory_guard(all, NULL) == STATUS_OK);
  check_report_destroy(&report);
  arena_destroy(&kit_memory);
  return test_finish();
}

#endif
