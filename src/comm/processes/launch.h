/* Finds out whether an MPI launcher started this process, and as which rank. Reads only the environment: this is
 * cheap, and works whether or not a module for that MPI was built. */
#ifndef WEIR_COMM_PROCESSES_LAUNCH_H
#define WEIR_COMM_PROCESSES_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mpi_flavour { MPI_FLAVOUR_OPENMPI, MPI_FLAVOUR_MPICH } mpi_flavour;

typedef struct mpi_launch {
  mpi_flavour flavour;
  uint32_t rank, size;
  uint32_t local; /* among the ranks of this machine; `rank`, if the launcher does not say */
} mpi_launch;

/* "openmpi", "mpich": part of the name of a module. */
const char *mpi_flavour_name(mpi_flavour flavour);

/* False: no launcher, or one that does not say rank and size. Sets *launch only if true. */
bool mpi_launch_find(mpi_launch *launch);

/* What torchrun, or a compatible launcher, put into the environment. */
typedef struct torch_launch {
  uint32_t rank, size, local, port;
  const char *address; /* of rank 0's machine */
} torch_launch;

/* False: it started no process, or only one. Not looked for where there is an MPI launcher. */
bool torch_launch_find(torch_launch *launch);

/* BAD_USAGE: RANK and WORLD_SIZE are set, and are no rank of a world, or nothing says where rank 0 is. */
status torch_launch_check(void);

#endif
