/* How fast compute threads are: that it is found out, alone and beside others. */
#include "device/cpu/speed.h"

#include <math.h>

#include "test.h"

static void expect_rates(uint32_t threads) {
  cpu_speed s = cpu_speed_measure(threads);
  (void)EXPECT(isfinite(s.flops_per_ns) && s.flops_per_ns > 0);
  (void)EXPECT(isfinite(s.copied_per_ns) && s.copied_per_ns > 0);
  (void)EXPECT(isfinite(s.memory_bytes_per_ns) && s.memory_bytes_per_ns > 0);
  (void)EXPECT(isfinite(s.cache_bytes_per_ns) && s.cache_bytes_per_ns > 0);
  (void)EXPECT(isfinite(s.function_ns) && s.function_ns > 0);
}

int main(void) {
  expect_rates(1);
  expect_rates(3);
  expect_rates(0); /* as 1 */
  return test_finish();
}
