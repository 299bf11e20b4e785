/* How ranks that can exchange a few bytes become connected. */
#define _GNU_SOURCE
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/processes/internal.h"
#include "comm/processes/tcp.h"
#include "comm/processes/tcp_socket.h"
#include "runtime/device.h"

enum { ADDRESSES = 8, TOKEN_BYTES = 16, DIAL_SECONDS = 5 };

static const char magic[8] = "weir-1";

/* First round: which ranks there are. */
typedef struct card {
  char magic[8];
  uint32_t rank, size;
  uint64_t machine; /* equal: the same kernel and the same network */
} card;

/* Second: how to reach it. */
typedef struct place {
  unsigned char token[TOKEN_BYTES];
  uint32_t n;
  tcp_address addresses[ADDRESSES];
} place;

/* Third: whether it is connected. */
typedef struct outcome {
  uint32_t why; /* a status */
  char text[240];
} outcome;

/* What a side shows when a connection begins. */
typedef struct hello {
  unsigned char token[TOKEN_BYTES]; /* the other side's */
  uint32_t rank, lane;
} hello;

typedef struct meeting {
  const mpi_exchange *x;
  int64_t deadline_ns;
  card *cards;
  place mine, *places;
  int listener;
  tcp_link *link;
} meeting;

/* ---- which ranks there are ---- */
static uint64_t machine_id(void) {
  struct stat network = {0};
  uint64_t h = mpi_machine_hash();
  (void)stat("/proc/self/ns/net", &network);
  return (h ^ (uint64_t)network.st_ino) * 1099511628211U;
}

static status exchange(const meeting *m, const void *mine, void *all, size_t bytes) {
  status st = m->x->exchange(m->x->context, mine, all, bytes);
  if (st != STATUS_OK && status_message()[0] == 0)
    return fail(st, "tcp: the exchange between ranks failed on rank %u", m->x->rank);
  return st;
}

static status meet(meeting *m) {
  uint32_t rank = m->x->rank, size = m->x->size;
  card mine = {.rank = rank, .size = size, .machine = machine_id()};
  memcpy(mine.magic, magic, sizeof magic);
  TRY(exchange(m, &mine, m->cards, sizeof mine));
  for (uint32_t r = 0; r < size; r++) {
    const card *c = &m->cards[r];
    if (memcmp(c->magic, magic, sizeof magic) != 0)
      return fail(STATUS_UNAVAILABLE,
                  "tcp: what the exchange gives for rank %u is not what a rank of this version of "
                  "Weir said",
                  r);
    if (c->size != size)
      return fail(STATUS_BAD_USAGE, "tcp: rank %u has a world of %u ranks, rank %u one of %u", r,
                  c->size, rank, size);
    if (c->rank != r)
      return fail(STATUS_BAD_USAGE,
                  "tcp: the exchange gives what rank %u said in the place of rank %u", c->rank, r);
  }
  return STATUS_OK;
}

static bool are_together(const meeting *m) {
  for (uint32_t r = 1; r < m->x->size; r++)
    if (m->cards[r].machine != m->cards[0].machine) return false;
  return true;
}

/* ---- addresses ---- */
static void add_address(place *p, const struct sockaddr *a, uint16_t port) {
  tcp_address found;
  if (p->n == ADDRESSES || !a || !tcp_address_of(a, &found)) return;
  found.port = port;
  p->addresses[p->n++] = found;
}

/* Adds WEIR_ADDRESS, a name or an address, for machines whose interfaces are not how others reach them. */
static status add_named(place *p, const char *name, uint16_t port) {
  struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
  int rc = getaddrinfo(name, NULL, &wanted, &found);
  if (rc != 0)
    return fail(STATUS_BAD_USAGE, "tcp: WEIR_ADDRESS is '%s': %s", name, gai_strerror(rc));
  for (const struct addrinfo *a = found; a; a = a->ai_next) add_address(p, a->ai_addr, port);
  freeaddrinfo(found);
  return STATUS_OK;
}

/* Link-local addresses are of no use: they need the name of an interface, which differs between machines. */
static bool is_of_use(const struct ifaddrs *i, sa_family_t family) {
  if (!i->ifa_addr || i->ifa_addr->sa_family != family) return false;
  if (!(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK) return false;
  const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
  return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static status add_interfaces(place *p, uint16_t port) {
  static const sa_family_t families[] = {AF_INET, AF_INET6};
  struct ifaddrs *all;
  if (getifaddrs(&all) != 0)
    return fail(STATUS_SYSTEM, "tcp: the addresses of this machine: %s", strerror(errno));
  for (int f = 0; f < 2; f++)
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
      if (is_of_use(i, families[f])) add_address(p, i->ifa_addr, port);
  freeifaddrs(all);
  if (p->n > 0) return STATUS_OK;
  return fail(STATUS_UNAVAILABLE,
              "tcp: ranks are on several machines, and this one has no address that others could "
              "reach; WEIR_ADDRESS can name it");
}

static status open_door(meeting *m, bool together) {
  const char *named = getenv("WEIR_ADDRESS");
  uint16_t port;
  m->listener = tcp_listen(together, TCP_ANY_PORT, &port);
  if (m->listener < 0)
    return fail(STATUS_SYSTEM, "tcp: no socket to listen on: %s", strerror(errno));
  if (getrandom(m->mine.token, TOKEN_BYTES, 0) != TOKEN_BYTES)
    return fail(STATUS_SYSTEM, "tcp: the system has no random bytes");
  if (together) {
    m->mine.n = 1;
    m->mine.addresses[0] = (tcp_address){.family = AF_INET, .port = port, .bytes = {127, 0, 0, 1}};
    return STATUS_OK;
  }
  return named && *named ? add_named(&m->mine, named, port) : add_interfaces(&m->mine, port);
}

/* ---- connections ---- */
static int64_t sooner(int64_t a_ns, int64_t b_ns) { return a_ns < b_ns ? a_ns : b_ns; }

/* Each side shows the other's token. The machine that answers at an address may be another one. */
static bool greet(const meeting *m, int socket, uint32_t rank, mpi_lane lane, int64_t deadline_ns) {
  hello mine = {.rank = m->x->rank, .lane = (uint32_t)lane}, theirs;
  memcpy(mine.token, m->places[rank].token, TOKEN_BYTES);
  return tcp_put(socket, &mine, sizeof mine, deadline_ns) &&
         tcp_get(socket, &theirs, sizeof theirs, m->deadline_ns) && theirs.rank == rank &&
         memcmp(theirs.token, m->mine.token, TOKEN_BYTES) == 0;
}

static int reach(const meeting *m, uint32_t rank, mpi_lane lane) {
  const place *p = &m->places[rank];
  for (uint32_t i = 0; i < p->n && i < ADDRESSES; i++) {
    int64_t until_ns = rt_clock_ns() + DIAL_SECONDS * (int64_t)1000000000;
    until_ns = sooner(until_ns, m->deadline_ns);
    int s = tcp_dial(&p->addresses[i], until_ns);
    if (s >= 0 && greet(m, s, rank, lane, until_ns)) return s;
    if (s >= 0) (void)close(s);
  }
  return -1;
}

static status fail_to_reach(const meeting *m, uint32_t rank) {
  char text[64] = "no address";
  int why = errno;
  if (m->places[rank].n > 0) tcp_address_text(&m->places[rank].addresses[0], text, sizeof text);
  return fail(STATUS_UNAVAILABLE, "tcp: rank %u does not reach rank %u at %s: %s", m->x->rank, rank,
              text, strerror(why));
}

static status dial_all(meeting *m) {
  for (uint32_t r = 0; r < m->x->rank; r++)
    for (int lane = 0; lane < MPI_LANE_COUNT; lane++) {
      int s = reach(m, r, (mpi_lane)lane);
      if (s < 0) return fail_to_reach(m, r);
      tcp_link_adopt(m->link, (mpi_lane)lane, r, s);
    }
  return STATUS_OK;
}

/* A peer that does not know this rank's token is a stranger, and gets no answer. */
static bool welcome(meeting *m, int socket) {
  hello theirs, mine = {.rank = m->x->rank};
  int64_t until_ns = sooner(rt_clock_ns() + 1000000000, m->deadline_ns);
  if (!tcp_get(socket, &theirs, sizeof theirs, until_ns)) return false;
  if (memcmp(theirs.token, m->mine.token, TOKEN_BYTES) != 0) return false;
  if (theirs.rank <= m->x->rank || theirs.rank >= m->x->size || theirs.lane >= MPI_LANE_COUNT)
    return false;
  memcpy(mine.token, m->places[theirs.rank].token, TOKEN_BYTES);
  if (!tcp_put(socket, &mine, sizeof mine, m->deadline_ns)) return false;
  tcp_link_adopt(m->link, (mpi_lane)theirs.lane, theirs.rank, socket);
  return true;
}

static status accept_all(meeting *m) {
  uint32_t expected = (m->x->size - 1 - m->x->rank) * MPI_LANE_COUNT;
  for (uint32_t n = 0; n < expected;) {
    int s = tcp_accept(m->listener, m->deadline_ns);
    if (s < 0)
      return fail(STATUS_UNAVAILABLE, "tcp: %u of %u connections to rank %u have come within %g s",
                  n, expected, m->x->rank, (double)mpi_start_timeout_ns() * 1e-9);
    if (welcome(m, s)) n++;
    else (void)close(s);
  }
  return STATUS_OK;
}

/* ---- all together ---- */
static status connect_all(meeting *m) {
  mpi_place here = {.rank = m->x->rank, .size = m->x->size, .max_tag = INT32_MAX};
  for (uint32_t r = 0; r < here.rank; r++)
    here.local += m->cards[r].machine == m->cards[here.rank].machine;
  m->link = tcp_link_create(&here);
  if (!m->link) return STATUS_OUT_OF_MEMORY;
  TRY(dial_all(m));
  return accept_all(m);
}

/* The first rank that failed decides for all. */
static status agree(const meeting *m, status st) {
  outcome mine = {.why = st}, *all = memory_alloc(&memory_default, m->x->size * sizeof *all);
  if (!all) return STATUS_OUT_OF_MEMORY;
  (void)snprintf(mine.text, sizeof mine.text, "%s", status_message());
  if (st != STATUS_OK) status_clear();
  st = exchange(m, &mine, all, sizeof mine);
  for (uint32_t r = 0; r < m->x->size && st == STATUS_OK; r++) {
    all[r].text[sizeof all[r].text - 1] = 0;
    if (all[r].why != STATUS_OK) st = fail((status)all[r].why, "%s", all[r].text);
  }
  memory_free(&memory_default, all);
  return st;
}

/* A rank that fails between two rounds goes on with the rounds, so that others do not wait for it. */
static status hold(meeting *m) {
  m->cards = memory_alloc(&memory_default, m->x->size * sizeof *m->cards);
  m->places = memory_alloc(&memory_default, m->x->size * sizeof *m->places);
  if (!m->cards || !m->places) return STATUS_OUT_OF_MEMORY;
  TRY(meet(m));
  status st = open_door(m, are_together(m));
  TRY(agree(m, st));
  TRY(exchange(m, &m->mine, m->places, sizeof m->mine));
  return agree(m, connect_all(m));
}

static status check_exchange(const mpi_exchange *x) {
  if (x->size < 1 || x->rank >= x->size)
    return fail(STATUS_BAD_USAGE, "a world of %u ranks has no rank %u", x->size, x->rank);
  if (x->size > RT_COMM_MAX_RANKS)
    return fail(STATUS_BAD_USAGE, "%u ranks are more than the %d supported", x->size,
                RT_COMM_MAX_RANKS);
  return STATUS_OK;
}

status tcp_connect(const mpi_exchange *x, tcp_link **result) {
  TRY(check_exchange(x));
  meeting m = {.x = x, .listener = -1, .deadline_ns = rt_clock_ns() + mpi_start_timeout_ns()};
  status st = hold(&m);
  if (m.listener >= 0) (void)close(m.listener);
  memory_free(&memory_default, m.cards);
  memory_free(&memory_default, m.places);
  if (st == STATUS_OK) *result = m.link;
  else tcp_link_destroy(m.link);
  return st;
}
