/* Groups of processes that run programs together, each of them one rank (runtime/comm.h). */
#ifndef WEIR_COMM_PROCESSES_GROUP_H
#define WEIR_COMM_PROCESSES_GROUP_H

#include "runtime/comm.h"

/* The group that a launcher started, the same at every call: MPI's, or one over TCP that torchrun's
 * environment describes. */
NODISCARD status mpi_group_of_launcher(const rt_comm_ops *ops, rt_group **result);
/* The ranks of an MPI_Comm, which is copied. MPI must have been initialised with MPI_THREAD_MULTIPLE. */
NODISCARD status mpi_group_of_communicator(const void *communicator, rt_group **result);
/* A group whose ranks are connected over TCP. The exchange is called by tcp_group_create(), a few times and on all
 * ranks alike: each passes `size_bytes` and gets those of all, in the order of ranks. */
typedef struct mpi_exchange {
  uint32_t rank, size;
  int32_t gpu; /* that this rank is on; -1: not known */
  status (*exchange)(void *context, const void *mine, void *all, size_t size_bytes);
  void *context;
} mpi_exchange;
NODISCARD status tcp_group_create(const mpi_exchange *x, rt_group **result);

#endif
