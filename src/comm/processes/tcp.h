/* The transport over TCP: for processes without MPI, and for callers with an exchange of their own.
 *
 * Every pair of ranks has a connection per lane, so that control messages do not wait for data. If a
 * connection ends before its rank has said goodbye, the rank has died; this is known at once, across machines
 * too. There is no encryption: connections are for the ranks' own network. A connection counts only if both
 * sides show 16 random bytes of each other, which the exchange has given them. */
#ifndef WEIR_COMM_PROCESSES_TCP_H
#define WEIR_COMM_PROCESSES_TCP_H

#include "comm/processes/group.h"
#include "comm/processes/launch.h"
#include "comm/processes/transport.h"

extern const mpi_transport tcp_transport;

/* Connections to all other ranks. */
typedef struct tcp_link tcp_link;

/* Connects all ranks. By the exchange they learn which ranks there are, their addresses, and whether all
 * are connected. If one rank fails, all fail. */
NODISCARD status tcp_connect(const mpi_exchange *x, tcp_link **result);
/* The same by way of rank 0, which listens on a port near MASTER_PORT: torchrun itself, or the program, uses
 * that one. */
NODISCARD status tcp_rendezvous(const torch_launch *launch, tcp_link **result);

/* ---- tcp.c, for tcp_connect() ---- */
/* A link that has no connections yet. */
tcp_link *tcp_link_create(const mpi_place *place);
void tcp_link_adopt(tcp_link *link, mpi_lane lane, uint32_t rank, int socket);
void tcp_link_destroy(tcp_link *link); /* accepts NULL */

#endif
