#define _GNU_SOURCE
#include "comm/processes/tcp_room.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum {
  ALL_BYTES = 384 << 10, /* of all connections, to begin with */
  LEAST_BYTES = 32 << 10,
  MOST_BYTES = 128 << 10,
  PAGE_BYTES = 4096,
  LOOK_NS = 10000000,
  AHEAD_US = 2000 /* within this time a sender that sleeps is awake again */
};

/* The system reserves twice what it is told. */
static int set(int socket, size_t bytes) {
  int value = bytes > INT32_MAX ? INT32_MAX / 2 : (int)(bytes / 2);
  return setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &value, sizeof value);
}

void tcp_room_begin(tcp_room *r, int socket, uint32_t ranks) {
  size_t share = ALL_BYTES / (ranks > 1 ? ranks - 1 : 1);
  size_t bytes = share < LEAST_BYTES ? LEAST_BYTES : share > MOST_BYTES ? MOST_BYTES : share;
  *r = (tcp_room){.bytes = set(socket, bytes) == 0 ? bytes : 0};
}

size_t tcp_room_wanted(uint64_t bytes_per_s, uint32_t min_rtt_us) {
  return (size_t)((double)bytes_per_s * 1e-6 * (AHEAD_US + 2.0 * min_rtt_us));
}

/* Lets the system decide again, where the administrator's limit is too small. */
static void let_go(tcp_room *r, int socket) {
#ifdef SO_BUF_LOCK
  int none = 0;
  if (setsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &none, sizeof none) == 0) r->bytes = 0;
#else
  (void)r, (void)socket;
#endif
}

static void grow(tcp_room *r, int socket, size_t wanted) {
  int got = 0;
  socklen_t size = sizeof got;
  if (set(socket, wanted) != 0) return;
  r->bytes = wanted;
  bool less = getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &got, &size) == 0 && (size_t)got < wanted;
  if (less) let_go(r, socket);
}

static uint32_t min_rtt_us(int socket) {
  struct tcp_info info;
  socklen_t size = sizeof info;
  memset(&info, 0, sizeof info);
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_min_rtt : 0;
}

/* Measures the rate itself: the system's figure includes the burst that a link passes after a rest. */
void tcp_room_is_full(tcp_room *r, int socket, int64_t now_ns) {
  int64_t passed_ns = now_ns - r->looked_ns;
  if (r->bytes == 0 || passed_ns < LOOK_NS) return;
  uint64_t rate = (uint64_t)((double)r->sent_bytes * 1e9 / (double)passed_ns);
  r->looked_ns = now_ns;
  r->sent_bytes = 0;
  size_t wanted = tcp_room_wanted(rate, min_rtt_us(socket)) / PAGE_BYTES * PAGE_BYTES;
  if (wanted > r->bytes) grow(r, socket, wanted);
}
