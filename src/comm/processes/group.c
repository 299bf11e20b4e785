/* Where groups of processes come from. */
#include "comm/processes/group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm/processes/internal.h"
#include "comm/processes/tcp.h"

/* ---- what the launcher started ----
 * MPI starts once in a process, so a start that failed is remembered. */
static struct {
  pthread_mutex_t lock;
  mpi_engine *engine;
  status why; /* of MPI */
  char reason[256];
} launched = {.lock = PTHREAD_MUTEX_INITIALIZER};

static status start_mpi(const void *communicator, mpi_engine **result) {
  const mpi_transport *transport;
  rt_group group = {.ops = &rt_comm_mpi, .gpu = -1};
  if (communicator) TRY(mpi_load_present(&transport));
  else TRY(mpi_load(&transport));
  return mpi_engine_start(transport, communicator, &group, result);
}

static status launch_mpi(mpi_engine **result) {
  if (launched.why != STATUS_OK) return fail(launched.why, "%s", launched.reason);
  status st = start_mpi(NULL, result);
  if (st == STATUS_OK) return st;
  launched.why = st;
  (void)snprintf(launched.reason, sizeof launched.reason, "%s", status_message());
  return st;
}

static status start_tcp(tcp_link *link, int32_t gpu, mpi_engine **result) {
  rt_group group = {.ops = &rt_comm_tcp, .gpu = gpu};
  return mpi_engine_start(&tcp_transport, link, &group, result);
}

static status launch_tcp(mpi_engine **result) {
  torch_launch launch;
  tcp_link *link;
  if (!torch_launch_find(&launch))
    return fail(STATUS_UNAVAILABLE,
                "tcp: the environment does not say who takes part: RANK, WORLD_SIZE, MASTER_ADDR "
                "and MASTER_PORT, as torchrun sets them");
  TRY(tcp_rendezvous(&launch, &link));
  return start_tcp(link, -1, result);
}

static status launch(const rt_comm_ops *ops, rt_group **result) {
  mpi_engine *e = launched.engine;
  if (e && e->base.ops != ops)
    return fail(STATUS_BAD_USAGE, "this process has joined its world by %s, not by %s",
                e->base.ops->name, ops->name);
  if (!e) TRY(ops == &rt_comm_mpi ? launch_mpi(&launched.engine) : launch_tcp(&launched.engine));
  mpi_engine_retain(launched.engine);
  *result = &launched.engine->base;
  return STATUS_OK;
}

status mpi_group_of_launcher(const rt_comm_ops *ops, rt_group **result) {
  (void)pthread_mutex_lock(&launched.lock);
  status st = launch(ops, result);
  (void)pthread_mutex_unlock(&launched.lock);
  return st;
}

/* ---- what the caller has ---- */
status mpi_group_of_communicator(const void *communicator, rt_group **result) {
  mpi_engine *e;
  TRY(start_mpi(communicator, &e));
  *result = &e->base;
  return STATUS_OK;
}

status tcp_group_create(const mpi_exchange *x, rt_group **result) {
  tcp_link *link;
  mpi_engine *e;
  TRY(tcp_connect(x, &link));
  TRY(start_tcp(link, x->gpu, &e));
  *result = &e->base;
  return STATUS_OK;
}
