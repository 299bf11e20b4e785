/* How much of what is sent over a connection may wait in the system.
 *
 * Left to itself the system takes megabytes, which fill the queue of the slowest link on the way: it drops what is
 * more, and short messages wait for the rest. So a connection begins with little. When it is full, its rate tells
 * what it needs: what leaves within some milliseconds, and what is under way. */
#ifndef WEIR_COMM_PROCESSES_TCP_ROOM_H
#define WEIR_COMM_PROCESSES_TCP_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tcp_room {
  size_t bytes;        /* 0: as the system thinks */
  int64_t looked_ns;   /* at its rate */
  uint64_t sent_bytes; /* since then */
} tcp_room;

/* Of a connection to one of so many ranks, which it shares a link with. */
void tcp_room_begin(tcp_room *r, int socket, uint32_t ranks);
/* It takes no more now. */
void tcp_room_is_full(tcp_room *r, int socket, int64_t now_ns);
/* What a connection needs that delivers so many bytes a second, of which a short message takes min_rtt_us to the other
 * side and back. */
size_t tcp_room_wanted(uint64_t bytes_per_s, uint32_t min_rtt_us);

#endif
