/* How processes that torchrun started meet: all connect to rank 0 and exchange by way of it.
 *
 * MASTER_PORT is used by torchrun itself, or by PyTorch. Rank 0 listens on the first of the next ports that is
 * free (or on WEIR_MASTER_PORT), and the others look for it there. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/processes/internal.h"
#include "comm/processes/tcp.h"
#include "comm/processes/tcp_socket.h"
#include "runtime/device.h"

enum { PORTS = 16, FIRST_PORT = 29500, ANSWER_SECONDS = 5 };

typedef struct greeting {
  char magic[8];
  uint64_t run; /* equal: started together */
  uint32_t rank, size;
} greeting;

/* From rank 0 to those that came: whether all did. */
typedef struct verdict {
  uint32_t why; /* a status */
  char text[240];
} verdict;

typedef struct circle {
  const torch_launch *launch;
  uint64_t run;
  uint16_t first_port, n_ports;
  int64_t deadline_ns;
  int listener; /* rank 0 */
  int *sockets; /* rank 0: by rank; others: that to rank 0 is the first */
} circle;

static uint64_t mix(uint64_t h, const char *text) {
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211U;
  return h;
}

static uint64_t run_id(const torch_launch *l) {
  char text[32];
  const char *run = getenv("TORCHELASTIC_RUN_ID"), *again = getenv("TORCHELASTIC_RESTART_COUNT");
  (void)snprintf(text, sizeof text, "%u", l->port);
  return mix(mix(mix(14695981039346656037U, text), run ? run : ""), again ? again : "");
}

static greeting greeting_of(const circle *c) {
  greeting g = {.run = c->run, .rank = c->launch->rank, .size = c->launch->size};
  memcpy(g.magic, "weir-rv1", sizeof g.magic);
  return g;
}

static bool is_ours(const circle *c, const greeting *g) {
  greeting mine = greeting_of(c);
  return memcmp(g->magic, mine.magic, sizeof g->magic) == 0 && g->run == mine.run;
}

static int64_t soon(const circle *c) {
  int64_t until_ns = rt_clock_ns() + ANSWER_SECONDS * (int64_t)1000000000;
  return until_ns < c->deadline_ns ? until_ns : c->deadline_ns;
}

/* ---- rank 0 ---- */
static status listen_near(circle *c) {
  for (uint16_t i = 0; i < c->n_ports && c->listener < 0; i++) {
    uint16_t bound;
    c->listener = tcp_listen(false, (uint16_t)(c->first_port + i), &bound);
  }
  if (c->listener >= 0) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE,
              "tcp: rank 0 can listen on none of the ports %u to %u (%s); WEIR_MASTER_PORT names "
              "another",
              c->first_port, c->first_port + c->n_ports - 1, strerror(errno));
}

/* The answer is rank 0's own greeting, so both sides notice sizes that differ. */
static bool admit(circle *c, int socket, uint32_t *n) {
  greeting theirs, mine = greeting_of(c);
  if (!tcp_get(socket, &theirs, sizeof theirs, soon(c)) || !is_ours(c, &theirs)) return false;
  if (!tcp_put(socket, &mine, sizeof mine, soon(c))) return false;
  if (!tcp_get(socket, &(char){0}, 1, soon(c)))
    return false; /* the rank gave up meanwhile, and will connect again */
  bool fits = theirs.size == mine.size && theirs.rank > 0 && theirs.rank < mine.size;
  if (!fits) {
    (void)fail(STATUS_BAD_USAGE, "tcp: rank %u has a world of %u ranks, rank 0 one of %u",
               theirs.rank, theirs.size, mine.size);
    return false;
  }
  tcp_tune(socket);
  if (c->sockets[theirs.rank] >= 0) (void)close(c->sockets[theirs.rank]);
  else (*n)++;
  c->sockets[theirs.rank] = socket;
  return true;
}

static status fail_by_absence(const circle *c) {
  uint32_t r = 1;
  while (r + 1 < c->launch->size && c->sockets[r] >= 0) r++;
  return fail(STATUS_UNAVAILABLE, "tcp: rank %u has not come within %g s", r,
              (double)mpi_start_timeout_ns() * 1e-9);
}

static status await_all(circle *c) {
  TRY(listen_near(c));
  for (uint32_t n = 1; n < c->launch->size;) {
    int s = tcp_accept(c->listener, c->deadline_ns);
    if (s < 0) return fail_by_absence(c);
    if (admit(c, s, &n)) continue;
    (void)close(s);
    if (status_message()[0]) return STATUS_BAD_USAGE;
  }
  return STATUS_OK;
}

static status gather_all(circle *c) {
  verdict all = {.why = await_all(c)};
  (void)snprintf(all.text, sizeof all.text, "%s", status_message());
  for (uint32_t r = 1; r < c->launch->size; r++)
    if (c->sockets[r] >= 0) (void)tcp_put(c->sockets[r], &all, sizeof all, soon(c));
  return (status)all.why;
}

/* ---- the others ---- */
/* Does rank 0 of this run answer there? A connection to a port where nothing listens may reach itself, if
 * the system has chosen that port for this side. */
static bool greet_first(const circle *c, int socket, greeting *theirs) {
  greeting mine = greeting_of(c);
  return tcp_put(socket, &mine, sizeof mine, soon(c)) &&
         tcp_get(socket, theirs, sizeof *theirs, soon(c)) && is_ours(c, theirs) &&
         theirs->rank == 0 && tcp_put(socket, &(char){0}, 1, soon(c));
}

typedef enum answer { IS_FIRST, IS_NOT_THERE, HAS_NO_WAY } answer;

static answer knock(circle *c, const tcp_address *at, greeting *theirs) {
  int s = tcp_dial(at, soon(c));
  if (s < 0) return errno == ECONNREFUSED || errno == ECONNRESET ? IS_NOT_THERE : HAS_NO_WAY;
  tcp_tune(s);
  if (greet_first(c, s, theirs)) {
    c->sockets[0] = s;
    return IS_FIRST;
  }
  (void)close(s);
  return IS_NOT_THERE;
}

static bool look(circle *c, const struct addrinfo *found, greeting *theirs) {
  for (const struct addrinfo *a = found; a; a = a->ai_next) {
    answer got = IS_NOT_THERE;
    for (uint16_t i = 0; i < c->n_ports && got == IS_NOT_THERE; i++) {
      tcp_address at;
      if (!tcp_address_of(a->ai_addr, &at)) break;
      at.port = (uint16_t)(c->first_port + i);
      got = knock(c, &at, theirs);
    }
    if (got == IS_FIRST) return true;
  }
  return false;
}

/* Rank 0 may wait a little longer than this one, as it began later. */
static status hear_verdict(const circle *c) {
  verdict all;
  if (!tcp_get(c->sockets[0], &all, sizeof all, rt_clock_ns() + mpi_start_timeout_ns()))
    return fail(STATUS_UNAVAILABLE, "tcp: the connection to rank 0 has ended: %s", strerror(errno));
  all.text[sizeof all.text - 1] = 0;
  return all.why == STATUS_OK ? STATUS_OK : fail((status)all.why, "%s", all.text);
}

/* The name is looked up each time: while its machine starts, it may not be known yet. */
static status find_first(circle *c) {
  greeting theirs;
  bool found = false;
  while (!found && rt_clock_ns() < c->deadline_ns) {
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (getaddrinfo(c->launch->address, NULL, &wanted, &list) == 0) {
      found = look(c, list, &theirs);
      freeaddrinfo(list);
    }
    if (!found) (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  if (!found)
    return fail(STATUS_UNAVAILABLE, "tcp: rank 0 was not found at %s, ports %u to %u, within %g s",
                c->launch->address, c->first_port, c->first_port + c->n_ports - 1,
                (double)mpi_start_timeout_ns() * 1e-9);
  if (theirs.size != c->launch->size)
    return fail(STATUS_BAD_USAGE, "tcp: rank %u has a world of %u ranks, rank 0 one of %u",
                c->launch->rank, c->launch->size, theirs.size);
  return hear_verdict(c);
}

/* ---- exchanging ---- */
static status by_first(void *context, const void *mine, void *all, size_t size_bytes) {
  circle *c = context;
  uint32_t rank = c->launch->rank, n = c->launch->size;
  char *at = all;
  uint32_t lost = UINT32_MAX;
  if (rank > 0) {
    if (tcp_put(c->sockets[0], mine, size_bytes, c->deadline_ns) &&
        tcp_get(c->sockets[0], all, n * size_bytes, c->deadline_ns))
      return STATUS_OK;
    return fail(STATUS_UNAVAILABLE, "tcp: the connection to rank 0 has ended: %s", strerror(errno));
  }
  memcpy(at, mine, size_bytes);
  for (uint32_t r = 1; r < n; r++)
    if (!tcp_get(c->sockets[r], at + r * size_bytes, size_bytes, c->deadline_ns)) lost = r;
  for (uint32_t r = 1; r < n && lost == UINT32_MAX; r++)
    if (!tcp_put(c->sockets[r], all, n * size_bytes, c->deadline_ns)) lost = r;
  if (lost == UINT32_MAX) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE, "tcp: the connection to rank %u has ended: %s", lost,
              strerror(errno));
}

static status choose_ports(circle *c) {
  const char *named = getenv("WEIR_MASTER_PORT");
  if (named && !*named) named = NULL;
  unsigned long port = named ? strtoul(named, NULL, 10) : c->launch->port;
  if (port > UINT16_MAX || (named && port == 0))
    return fail(STATUS_BAD_USAGE, "tcp: %s is %s; ports are 1 to 65535",
                named ? "WEIR_MASTER_PORT" : "MASTER_PORT", named ? named : getenv("MASTER_PORT"));
  uint32_t base = port ? (uint32_t)port : FIRST_PORT;
  c->first_port = (uint16_t)(base + PORTS < UINT16_MAX ? base + 1 : base - PORTS);
  c->n_ports = PORTS;
  if (!named) return STATUS_OK;
  c->first_port = (uint16_t)port;
  c->n_ports = 1;
  return STATUS_OK;
}

static status meet(circle *c, tcp_link **result) {
  mpi_exchange x = {
      .rank = c->launch->rank, .size = c->launch->size, .gpu = -1, .exchange = by_first};
  x.context = c;
  TRY(c->launch->rank == 0 ? gather_all(c) : find_first(c));
  return tcp_connect(&x, result);
}

status tcp_rendezvous(const torch_launch *launch, tcp_link **result) {
  circle c = {.launch = launch, .run = run_id(launch), .listener = -1};
  c.deadline_ns = rt_clock_ns() + mpi_start_timeout_ns();
  if (launch->size > RT_COMM_MAX_RANKS)
    return fail(STATUS_BAD_USAGE, "%u ranks are more than the %d supported", launch->size,
                RT_COMM_MAX_RANKS);
  TRY(choose_ports(&c));
  c.sockets = memory_alloc(&memory_default, launch->size * sizeof *c.sockets);
  if (!c.sockets) return STATUS_OUT_OF_MEMORY;
  for (uint32_t r = 0; r < launch->size; r++) c.sockets[r] = -1;
  status st = meet(&c, result);
  for (uint32_t r = 0; r < launch->size; r++)
    if (c.sockets[r] >= 0) (void)close(c.sockets[r]);
  if (c.listener >= 0) (void)close(c.listener);
  memory_free(&memory_default, c.sockets);
  return st;
}
