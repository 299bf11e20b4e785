/* Whether ranks share cores: then one that waits leaves its core to the others. */
#include "comm/processes/internal.h"

#include "test.h"

static void test_own_cores(void) {
  const mpi_process bound[] = {{.cores = 1}, {.cores = 2}, {.cores = 3}};
  for (uint32_t me = 0; me < 3; me++) EXPECT(!mpi_are_crowded(bound, 3, me, 1));
}

static void test_shared_cores(void) {
  const mpi_process all[] = {{.cores = 7}, {.cores = 7}, {.cores = 7}, {.cores = 7}};
  EXPECT(!mpi_are_crowded(all, 4, 0, 4));
  EXPECT(mpi_are_crowded(all, 4, 0, 2));
}

/* Two ranks on one core of a machine with others. */
static void test_two_on_a_core(void) {
  const mpi_process pairs[] = {{.cores = 1}, {.cores = 1}, {.cores = 2}, {.cores = 3}};
  EXPECT(mpi_are_crowded(pairs, 4, 0, 1));
  EXPECT(mpi_are_crowded(pairs, 4, 1, 1));
  EXPECT(!mpi_are_crowded(pairs, 4, 2, 1));
}

int main(void) {
  test_own_cores();
  test_shared_cores();
  test_two_on_a_core();
  return test_finish();
}
