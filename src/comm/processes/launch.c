#include "comm/processes/launch.h"

#include <stddef.h>
#include <stdlib.h>

const char *mpi_flavour_name(mpi_flavour flavour) {
  switch (flavour) {
  case MPI_FLAVOUR_OPENMPI: return "openmpi";
  case MPI_FLAVOUR_MPICH: return "mpich";
  }
  return "";
}

/* Environment variables of launchers, the most specific first: Slurm also sets some of the others'. */
static const struct {
  mpi_flavour flavour;
  const char *rank, *size, *locals[2];
} launchers[] = {
    {MPI_FLAVOUR_OPENMPI,
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_RANK"}},
    {MPI_FLAVOUR_OPENMPI, "PMIX_RANK", "SLURM_STEP_NUM_TASKS", {"SLURM_LOCALID"}},
    {MPI_FLAVOUR_OPENMPI, "PMIX_RANK", "SLURM_NTASKS", {"SLURM_LOCALID"}},
    {MPI_FLAVOUR_MPICH, "PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID", "SLURM_LOCALID"}},
};

static bool number_of(const char *name, uint32_t *value) {
  const char *text = getenv(name);
  if (!text || !*text) return false;
  char *end;
  unsigned long n = strtoul(text, &end, 10);
  if (*end || n > INT32_MAX) return false;
  *value = (uint32_t)n;
  return true;
}

static const char *text_of(const char *name) {
  const char *text = getenv(name);
  return text ? text : "";
}

/* One process is a world without an address. */
static status check_ranks(const torch_launch *l) {
  if (l->rank >= l->size)
    return fail(STATUS_BAD_USAGE, "RANK is %u and WORLD_SIZE is %u: ranks are 0 to WORLD_SIZE - 1",
                l->rank, l->size);
  if (l->size < 2 || *text_of("MASTER_ADDR")) return STATUS_OK;
  return fail(
      STATUS_BAD_USAGE,
      "RANK is %u and WORLD_SIZE is %u, but MASTER_ADDR, the address of rank 0, is not set; "
      "without other ranks: --comm inproc",
      l->rank, l->size);
}

status torch_launch_check(void) {
  static const char *names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"};
  torch_launch l;
  mpi_launch mpi;
  uint32_t *values[] = {&l.rank, &l.size, &l.local, &l.port};
  if (mpi_launch_find(&mpi) || !*text_of("RANK") || !*text_of("WORLD_SIZE")) return STATUS_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (*text_of(names[i]) && !number_of(names[i], values[i]))
      return fail(STATUS_BAD_USAGE, "%s is %s, which is no number", names[i], text_of(names[i]));
  return check_ranks(&l);
}

bool torch_launch_find(torch_launch *launch) {
  torch_launch l = {.address = getenv("MASTER_ADDR")};
  mpi_launch mpi;
  if (!l.address || !number_of("RANK", &l.rank) || !number_of("WORLD_SIZE", &l.size)) return false;
  if (l.size < 2 || l.rank >= l.size || mpi_launch_find(&mpi)) return false;
  l.local = l.rank;
  (void)number_of("LOCAL_RANK", &l.local);
  (void)number_of("MASTER_PORT", &l.port);
  *launch = l;
  return true;
}

bool mpi_launch_find(mpi_launch *launch) {
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    mpi_launch found = {.flavour = launchers[i].flavour};
    if (!number_of(launchers[i].rank, &found.rank)) continue;
    if (!number_of(launchers[i].size, &found.size) || found.rank >= found.size) continue;
    found.local = found.rank;
    for (int k = 1; k >= 0; k--)
      if (launchers[i].locals[k]) (void)number_of(launchers[i].locals[k], &found.local);
    *launch = found;
    return true;
  }
  return false;
}
