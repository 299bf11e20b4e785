#define _GNU_SOURCE
#include "comm/processes/tcp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/device.h"

/* ---- addresses ---- */
tcp_sockaddr tcp_sockaddr_of(const tcp_address *a) {
  tcp_sockaddr s = {0};
  if (a->family == AF_INET6) {
    s.as.v6.sin6_family = AF_INET6;
    s.as.v6.sin6_port = htons(a->port);
    memcpy(&s.as.v6.sin6_addr, a->bytes, 16);
    s.size = sizeof s.as.v6;
    return s;
  }
  s.as.v4.sin_family = AF_INET;
  s.as.v4.sin_port = htons(a->port);
  memcpy(&s.as.v4.sin_addr, a->bytes, 4);
  s.size = sizeof s.as.v4;
  return s;
}

bool tcp_address_of(const struct sockaddr *a, tcp_address *result) {
  tcp_address r = {.family = (uint16_t)a->sa_family};
  if (a->sa_family == AF_INET) {
    const struct sockaddr_in *v4 = (const void *)a;
    r.port = ntohs(v4->sin_port);
    memcpy(r.bytes, &v4->sin_addr, 4);
  } else if (a->sa_family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const void *)a;
    r.port = ntohs(v6->sin6_port);
    memcpy(r.bytes, &v6->sin6_addr, 16);
  } else {
    return false;
  }
  *result = r;
  return true;
}

void tcp_address_text(const tcp_address *a, char *text, size_t size_bytes) {
  char host[INET6_ADDRSTRLEN] = "?";
  bool v6 = a->family == AF_INET6;
  (void)inet_ntop(v6 ? AF_INET6 : AF_INET, a->bytes, host, sizeof host);
  (void)snprintf(text, size_bytes, v6 ? "[%s]:%u" : "%s:%u", host, a->port);
}

/* ---- connections ---- */
static int new_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int give_up(int socket) {
  int why = errno;
  if (socket >= 0) (void)close(socket);
  errno = why;
  return -1;
}

static int listen_at(const tcp_sockaddr *where) {
  enum { WAITING = 1024 };
  int on = 1, off = 0, s = new_socket(where->as.any.sa_family);
  if (s < 0) return s;
  (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where->as.any.sa_family == AF_INET6)
    (void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(s, &where->as.any, where->size) != 0 || listen(s, WAITING) != 0) return give_up(s);
  return s;
}

/* A socket of IPv6 accepts connections over IPv4 too; but a machine may have only IPv4. */
static int listen_everywhere(uint16_t port) {
  tcp_sockaddr v6 = tcp_sockaddr_of(&(tcp_address){.family = AF_INET6, .port = port});
  tcp_sockaddr v4 = tcp_sockaddr_of(&(tcp_address){.family = AF_INET, .port = port});
  int s = listen_at(&v6);
  return s >= 0 ? s : listen_at(&v4);
}

int tcp_listen(bool only_here, uint16_t port, uint16_t *bound) {
  tcp_address local = {.family = AF_INET, .port = port, .bytes = {127, 0, 0, 1}};
  tcp_sockaddr here = tcp_sockaddr_of(&local), got = {.size = sizeof got.as};
  int s = only_here ? listen_at(&here) : listen_everywhere(port);
  tcp_address found;
  if (s < 0) return s;
  if (getsockname(s, &got.as.any, &got.size) != 0 || !tcp_address_of(&got.as.any, &found))
    return give_up(s);
  *bound = found.port;
  return s;
}

/* False: the deadline has passed. */
static bool await(int socket, short events, int64_t deadline_ns) {
  for (;;) {
    struct pollfd look = {.fd = socket, .events = events};
    int64_t left_ns = deadline_ns - rt_clock_ns();
    int n = poll(&look, 1, left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (n == 0 && left_ns <= 0) {
      errno = ETIMEDOUT;
      return false;
    }
  }
}

int tcp_accept(int listener, int64_t deadline_ns) {
  for (;;) {
    int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s >= 0) return s;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return -1;
    if (!await(listener, POLLIN, deadline_ns)) return -1;
  }
}

int tcp_dial(const tcp_address *to, int64_t deadline_ns) {
  tcp_sockaddr where = tcp_sockaddr_of(to);
  int why = 0, s = new_socket(where.as.any.sa_family);
  socklen_t size = sizeof why;
  if (s < 0) return s;
  if (connect(s, &where.as.any, where.size) == 0) return s;
  if (errno != EINPROGRESS || !await(s, POLLOUT, deadline_ns)) return give_up(s);
  (void)getsockopt(s, SOL_SOCKET, SO_ERROR, &why, &size);
  errno = why;
  return why == 0 ? s : give_up(s);
}

bool tcp_put(int socket, const void *data, size_t size_bytes, int64_t deadline_ns) {
  for (const char *at = data; size_bytes > 0;) {
    ssize_t n = send(socket, at, size_bytes, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n < 0 && !await(socket, POLLOUT, deadline_ns)) return false;
    if (n < 0) continue;
    at += n;
    size_bytes -= (size_t)n;
  }
  return true;
}

bool tcp_get(int socket, void *data, size_t size_bytes, int64_t deadline_ns) {
  for (char *at = data; size_bytes > 0;) {
    ssize_t n = recv(socket, at, size_bytes, 0);
    if (n == 0) errno = ECONNRESET;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (n < 0 && !await(socket, POLLIN, deadline_ns)) return false;
    if (n < 0) continue;
    at += n;
    size_bytes -= (size_t)n;
  }
  return true;
}

void tcp_tune(int socket) {
  const struct {
    int level, name, value;
  } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
                 {IPPROTO_TCP, TCP_KEEPIDLE, 1}, {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                 {IPPROTO_TCP, TCP_KEEPCNT, 3},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 4000}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    (void)setsockopt(socket, options[i].level, options[i].name, &options[i].value,
                     sizeof options[i].value);
}
