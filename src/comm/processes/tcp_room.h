/* How much of what is sent over a connection may wait in the system (SO_SNDBUF).
 *
 * By default the system accepts megabytes. They fill the queue of the slowest link on the way, which then drops
 * packets and makes short messages wait. So a connection begins with little. When it is full, its rate tells what it
 * needs: what leaves within some milliseconds, and what is under way. */
#ifndef WEIR_COMM_PROCESSES_TCP_ROOM_H
#define WEIR_COMM_PROCESSES_TCP_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tcp_room {
  size_t bytes;        /* 0: the system decides */
  int64_t looked_ns;   /* when its rate was last measured */
  uint64_t sent_bytes; /* since then */
} tcp_room;

/* For a connection to one of `ranks` ranks; all of these connections share a link. */
void tcp_room_begin(tcp_room *r, int socket, uint32_t ranks);
/* Called when the connection takes no more. */
void tcp_room_is_full(tcp_room *r, int socket, int64_t now_ns);
/* What a connection needs if it delivers bytes_per_s, and a short message takes min_rtt_us to the other side and
 * back. */
size_t tcp_room_wanted(uint64_t bytes_per_s, uint32_t min_rtt_us);

#endif
