/* Sockets, with deadlines on the clock of rt_clock_ns(). Used while ranks connect; later nothing blocks. */
#ifndef WEIR_COMM_PROCESSES_TCP_SOCKET_H
#define WEIR_COMM_PROCESSES_TCP_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* An address, in the form in which ranks exchange it. */
typedef struct tcp_address {
  uint16_t family; /* AF_INET, AF_INET6; 0: none */
  uint16_t port;   /* in the byte order of the host */
  unsigned char bytes[16];
} tcp_address;

typedef struct tcp_sockaddr {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
  } as;
  socklen_t size;
} tcp_sockaddr;

tcp_sockaddr tcp_sockaddr_of(const tcp_address *a);
bool tcp_address_of(const struct sockaddr *a, tcp_address *result);
void tcp_address_text(const tcp_address *a, char *text, size_t size_bytes);

enum { TCP_ANY_PORT = 0 };
/* Listens on all addresses, or only on 127.0.0.1; negative: errno says why. Sockets do not block and are
 * closed by exec. */
int tcp_listen(bool only_here, uint16_t port, uint16_t *bound);
/* Negative: no connection came before the deadline. */
int tcp_accept(int listener, int64_t deadline_ns);
int tcp_dial(const tcp_address *to, int64_t deadline_ns);
/* False: the other side has ended, or the deadline has passed. */
bool tcp_put(int socket, const void *data, size_t size_bytes, int64_t deadline_ns);
bool tcp_get(int socket, void *data, size_t size_bytes, int64_t deadline_ns);
/* Sends without delay, and ends a connection whose peer is silent for some seconds. */
void tcp_tune(int socket);

#endif
