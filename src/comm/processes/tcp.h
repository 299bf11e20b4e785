/* The transport over TCP: for processes that have no MPI, or whose caller brings its own way to meet.
 *
 * Every pair of ranks has a connection per lane, so that what ranks tell each other does not wait for data. A
 * connection that ends before its rank has said goodbye tells, at once and across machines, that the rank has
 * died. There is no encryption: connections are for the ranks' own network. A connection counts only if both
 * sides show what the exchange has told them, 16 random bytes of each rank. */
#ifndef WEIR_COMM_PROCESSES_TCP_H
#define WEIR_COMM_PROCESSES_TCP_H

#include "comm/processes/group.h"
#include "comm/processes/launch.h"
#include "comm/processes/transport.h"

extern const mpi_transport tcp_transport;

/* Connections to all other ranks. */
typedef struct tcp_link tcp_link;

/* By the exchange: which ranks there are, under which addresses, and whether all are connected. A
 * failure of one rank is that of all. */
NODISCARD status tcp_connect(const mpi_exchange *x, tcp_link **result);
/* By rank 0, which listens on a port near MASTER_PORT: torchrun itself, or the program, uses that one. */
NODISCARD status tcp_rendezvous(const torch_launch *launch, tcp_link **result);

/* ---- tcp.c, for tcp_connect() ---- */
/* Without connections yet. */
tcp_link *tcp_link_create(const mpi_place *place);
void tcp_link_adopt(tcp_link *link, mpi_lane lane, uint32_t rank, int socket);
void tcp_link_destroy(tcp_link *link); /* accepts NULL */

#endif
