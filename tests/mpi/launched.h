/* Which launcher started this process, and by which backend its ranks communicate. */
#ifndef WEIR_TESTS_MPI_LAUNCHED_H
#define WEIR_TESTS_MPI_LAUNCHED_H

#include "comm/processes/launch.h"
#include "runtime/comm.h"

/* False: none. The flavour means nothing for torchrun. */
static inline bool launched_find(mpi_launch *launch, const rt_comm_ops **ops) {
  torch_launch torch;
  *ops = &rt_comm_mpi;
  if (mpi_launch_find(launch)) return true;
  if (!torch_launch_find(&torch)) return false;
  *launch = (mpi_launch){.rank = torch.rank, .size = torch.size, .local = torch.local};
  *ops = &rt_comm_tcp;
  return true;
}

#endif
