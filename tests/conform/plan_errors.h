/* Tasks that fail, on any device. */
#ifndef WEIR_TESTS_CONFORM_PLAN_ERRORS_H
#define WEIR_TESTS_CONFORM_PLAN_ERRORS_H

#include "conform/plan_kit.h"
#include "test.h"

/* Two streams fail; the task that comes first in the plan is reported, every time, and the next run is
 * clean. */
static inline void plan_test_errors(rt_device *d, int runs) {
  kit k;
  kit_init(&k, 3);
  uint32_t x = kit_buffer(&k, RT_BUFFER_INPUT, 0, 4), bad = kit_buffer(&k, RT_BUFFER_INPUT, 1, 4);
  uint32_t worse = kit_buffer(&k, RT_BUFFER_INPUT, 2, 4),
           out = kit_buffer(&k, RT_BUFFER_OUTPUT, 0, 4);
  uint32_t t[2] = {kit_pool(&k, 4), kit_pool(&k, 4)};
  (void)kit_index(&k, 1, t[0], x, bad);
  (void)kit_index(&k, 2, t[1], x, worse);
  (void)kit_wait(&k, 0, 1);
  (void)kit_wait(&k, 0, 2);
  (void)kit_binary(&k, 0, IR_OP_ADD, out, t[0], t[1]);
  rt_loaded *l = NULL;
  EXPECT_INT(d->ops->load(d, kit_plan(&k), &l), STATUS_OK);
  int64_t good[4] = {0}, v_bad[4] = {0, 77, 0, 0}, v_worse[4] = {0, 0, 99, 0}, result[4];
  void *outputs[] = {result};
  for (int r = 0; l && r < runs; r++) {
    status_clear();
    EXPECT_INT(rt_run(l, (void *[]){good, v_bad, v_worse}, outputs, NULL, NULL),
               STATUS_BAD_PROGRAM);
    EXPECT_CONTAINS(status_message(), "77");
    status_clear();
    EXPECT_INT(rt_run(l, (void *[]){good, good, v_worse}, outputs, NULL, NULL), STATUS_BAD_PROGRAM);
    EXPECT_CONTAINS(status_message(), "99");
    status_clear();
    EXPECT_INT(rt_run(l, (void *[]){good, good, good}, outputs, NULL, NULL), STATUS_OK);
  }
  d->ops->unload(l);
  kit_destroy(&k);
}

#endif
