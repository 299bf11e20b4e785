/* Messages over connections: a head, then the data. A message is read into the buffer of the receive that
 * waits for it, or into memory of its own until there is such a receive. */
#define _GNU_SOURCE
#include "comm/processes/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/processes/tcp_room.h"
#include "comm/processes/tcp_socket.h"
#include "runtime/device.h"

enum {
  CONTROL_BYTES = 4096,  /* no message of the control lane is longer */
  EARLY_BYTES = 8 << 20, /* data of one rank that nothing waits for yet; more is not read */
  /* If the rest of a message has at least LOW_BYTES, a connection counts as readable only when all of
   * it has arrived, or HIGH_BYTES of it: otherwise each packet would wake a thread that sleeps. */
  LOW_BYTES = 32 << 10,
  HIGH_BYTES = 128 << 10
};

typedef struct head {
  int32_t tag;
  uint32_t bytes;
} head;

typedef struct sending {
  struct sending *next;
  head head;
  const char *data;
  size_t done; /* of the head and the data */
  void *token;
} sending;

typedef struct receiving {
  struct receiving *next;
  int32_t tag;
  char *data;
  size_t room_bytes;
  void *token;
} receiving;

/* A message that came before its receive. */
typedef struct early {
  struct early *next;
  int32_t tag;
  size_t bytes;
  char data[];
} early;

typedef struct lists {
  receiving *first, *last;
  early *first_early, *last_early;
  size_t early_bytes;
} lists;

typedef struct connection {
  int socket; /* negative: ended, or to oneself */
  sending *first, *last;
  head head; /* of the message that is coming */
  size_t got;
  bool is_mute;    /* the other side does not read what is sent */
  tcp_room room;   /* of the data lane */
  int low;         /* SO_RCVLOWAT; 0: as it was */
  receiving *into; /* where it goes; or: */
  early *kept;
  lists *lists;
} connection;

struct tcp_link {
  mpi_place place;
  connection *connections; /* by lane, then by rank */
  lists *data, control;    /* control: from any rank */
  struct pollfd *polled;
  uint32_t *polled_at; /* connections */
  void **ended;        /* tokens for the next poll() */
  uint32_t n_ended, ended_room;
  sending *free_sendings;
  receiving *free_receivings;
};

static _Thread_local char message[128];

static bool refused(const char *what) {
  (void)snprintf(message, sizeof message, "%s", what);
  return false;
}

static const char *error_text(void) { return message; }

/* ---- links ---- */
static connection *connection_of(tcp_link *l, mpi_lane lane, uint32_t rank) {
  return &l->connections[(uint32_t)lane * l->place.size + rank];
}

tcp_link *tcp_link_create(const mpi_place *place) {
  uint32_t n = place->size;
  tcp_link *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->place = *place;
  l->connections = calloc((size_t)n * MPI_LANE_COUNT, sizeof *l->connections);
  l->data = calloc(n, sizeof *l->data);
  l->polled = calloc((size_t)n * MPI_LANE_COUNT, sizeof *l->polled);
  l->polled_at = calloc((size_t)n * MPI_LANE_COUNT, sizeof *l->polled_at);
  if (!l->connections || !l->data || !l->polled || !l->polled_at) {
    tcp_link_destroy(l);
    return NULL;
  }
  for (uint32_t r = 0; r < n; r++) {
    *connection_of(l, MPI_LANE_CONTROL, r) = (connection){.socket = -1, .lists = &l->control};
    *connection_of(l, MPI_LANE_DATA, r) = (connection){.socket = -1, .lists = &l->data[r]};
  }
  return l;
}

void tcp_link_adopt(tcp_link *l, mpi_lane lane, uint32_t rank, int socket) {
  connection *c = connection_of(l, lane, rank);
  tcp_tune(socket);
  c->socket = socket;
  if (lane == MPI_LANE_DATA) tcp_room_begin(&c->room, socket, l->place.size);
}

static void free_receivings(receiving *r) {
  for (receiving *next; r; r = next) {
    next = r->next;
    free(r);
  }
}

static void free_lists(lists *list) {
  for (early *m = list->first_early, *next; m; m = next) {
    next = m->next;
    free(m);
  }
  free_receivings(list->first);
}

static void free_sendings(sending *s) {
  for (sending *next; s; s = next) {
    next = s->next;
    free(s);
  }
}

static void free_connection(connection *c) {
  if (c->socket >= 0) (void)close(c->socket);
  free_sendings(c->first);
  free(c->into);
  free(c->kept);
}

void tcp_link_destroy(tcp_link *l) {
  if (!l) return;
  for (uint32_t i = 0; l->connections && i < l->place.size * MPI_LANE_COUNT; i++)
    free_connection(&l->connections[i]);
  for (uint32_t r = 0; l->data && r < l->place.size; r++) free_lists(&l->data[r]);
  free_lists(&l->control);
  free_sendings(l->free_sendings);
  free_receivings(l->free_receivings);
  free(l->connections);
  free(l->data);
  free(l->polled);
  free(l->polled_at);
  free(l->ended);
  free(l);
}

/* ---- what ended ---- */
static bool note_ended(tcp_link *l, void *token) {
  if (l->n_ended == l->ended_room) {
    uint32_t room = l->ended_room ? 2 * l->ended_room : 256;
    void **more = realloc(l->ended, room * sizeof *more);
    if (!more) return refused("out of memory");
    l->ended = more;
    l->ended_room = room;
  }
  l->ended[l->n_ended++] = token;
  return true;
}

static bool free_sending(tcp_link *l, sending *s) {
  s->next = l->free_sendings;
  l->free_sendings = s;
  return note_ended(l, s->token);
}

/* The other side does not read any more: what was to be sent counts as sent. */
static bool drop_sendings(tcp_link *l, connection *c) {
  bool ok = true;
  for (sending *s = c->first, *next; s; s = next) {
    next = s->next;
    ok &= free_sending(l, s);
  }
  c->first = c->last = NULL;
  return ok;
}

static bool end_lane(tcp_link *l, connection *c) {
  (void)close(c->socket);
  c->socket = -1;
  return drop_sendings(l, c);
}

static int n_open(const tcp_link *l, uint32_t rank) {
  int n = 0;
  for (uint32_t lane = 0; lane < MPI_LANE_COUNT; lane++)
    n += l->connections[lane * l->place.size + rank].socket >= 0;
  return n;
}

/* A rank is lost when all of its lanes have ended: what it sent on another one may still arrive. */
static bool is_lost(void *self, uint32_t rank) {
  const tcp_link *l = self;
  return rank != l->place.rank && n_open(l, rank) == 0;
}

/* ---- sending ---- */
static ssize_t write_some(const connection *c, const sending *s) {
  size_t in_head = s->done < sizeof s->head ? sizeof s->head - s->done : 0;
  size_t from = s->done > sizeof s->head ? s->done - sizeof s->head : 0;
  struct iovec parts[2] = {
      {.iov_base = (char *)&s->head + sizeof s->head - in_head, .iov_len = in_head},
      {.iov_base = (char *)s->data + from, .iov_len = s->head.bytes - from}};
  struct msghdr all = {.msg_iov = parts, .msg_iovlen = 2};
  return sendmsg(c->socket, &all, MSG_NOSIGNAL);
}

/* Sends as much as the connection takes; false: no memory. */
static bool push(tcp_link *l, connection *c) {
  while (c->first && c->socket >= 0) {
    sending *s = c->first;
    ssize_t n = write_some(c, s);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      tcp_room_is_full(&c->room, c->socket, rt_clock_ns());
      return true;
    }
    if (n < 0) { /* there may be something to read */
      c->is_mute = true;
      return drop_sendings(l, c);
    }
    s->done += (size_t)n;
    c->room.sent_bytes += (size_t)n;
    if (s->done < sizeof s->head + s->head.bytes) continue;
    c->first = s->next;
    if (!c->first) c->last = NULL;
    if (!free_sending(l, s)) return false;
  }
  return true;
}

static bool begin_send(void *self, mpi_lane lane, uint32_t to, int32_t tag, const void *data,
                       size_t size_bytes, void *token) {
  tcp_link *l = self;
  connection *c = connection_of(l, lane, to);
  if (c->socket < 0 || c->is_mute) return note_ended(l, token);
  sending *s = l->free_sendings;
  if (s) l->free_sendings = s->next;
  else s = malloc(sizeof *s);
  if (!s) return refused("out of memory");
  *s = (sending){.head = {tag, (uint32_t)size_bytes}, .data = data, .token = token};
  bool idle = !c->first;
  if (idle) c->first = s;
  else c->last->next = s;
  c->last = s;
  return !idle || push(l, c);
}

/* ---- receiving ---- */
static void give_back(tcp_link *l, receiving *r) {
  r->next = l->free_receivings;
  l->free_receivings = r;
}

static bool finish_receive(tcp_link *l, receiving *r) {
  give_back(l, r);
  return note_ended(l, r->token);
}

/* The first receive that waits for this tag, taken out of its list. */
static receiving *take_receive(lists *list, int32_t tag) {
  receiving *before = NULL, *r = list->first;
  while (r && r->tag != tag) before = r, r = r->next;
  if (!r) return NULL;
  if (before) before->next = r->next;
  else list->first = r->next;
  if (list->last == r) list->last = before;
  return r;
}

static early *take_early(lists *list, int32_t tag) {
  early *before = NULL, *m = list->first_early;
  while (m && m->tag != tag) before = m, m = m->next;
  if (!m) return NULL;
  if (before) before->next = m->next;
  else list->first_early = m->next;
  if (list->last_early == m) list->last_early = before;
  list->early_bytes -= m->bytes;
  return m;
}

static bool deliver(tcp_link *l, receiving *r, const char *data, size_t bytes) {
  if (bytes > r->room_bytes) {
    give_back(l, r);
    return refused("a message is longer than what waits for it");
  }
  memcpy(r->data, data, bytes);
  return finish_receive(l, r);
}

static bool begin_receive(void *self, mpi_lane lane, int32_t from, int32_t tag, void *data,
                          size_t size_bytes, void *token) {
  tcp_link *l = self;
  lists *list = lane == MPI_LANE_CONTROL ? &l->control : &l->data[from];
  receiving *r = l->free_receivings;
  if (r) l->free_receivings = r->next;
  else r = malloc(sizeof *r);
  if (!r) return refused("out of memory");
  *r = (receiving){.tag = tag, .data = data, .room_bytes = size_bytes, .token = token};
  early *m = take_early(list, tag);
  if (m) {
    bool ok = deliver(l, r, m->data, m->bytes);
    free(m);
    return ok;
  }
  if (list->last) list->last->next = r;
  else list->first = r;
  list->last = r;
  return true;
}

static early *make_early(const head *h) {
  early *m = malloc(sizeof *m + h->bytes);
  if (m) m->next = NULL, m->tag = h->tag, m->bytes = h->bytes;
  return m;
}

static bool keep_early(lists *list, early *m) {
  if (list->last_early) list->last_early->next = m;
  else list->first_early = m;
  list->last_early = m;
  list->early_bytes += m->bytes;
  return true;
}

/* ---- a connection's next message ---- */
/* A receive from any rank takes a message only when all of it has arrived: another rank's may be faster. */
static bool begin_message(tcp_link *l, connection *c) {
  bool is_control = c->lists == &l->control;
  if (is_control && c->head.bytes > CONTROL_BYTES) return refused("a message is too long");
  if (!is_control) c->into = take_receive(c->lists, c->head.tag);
  if (c->into && c->into->room_bytes < c->head.bytes)
    return refused("a message is longer than what waits for it");
  if (!c->into) c->kept = make_early(&c->head);
  return c->into || c->kept || refused("out of memory");
}

static bool end_message(tcp_link *l, connection *c) {
  receiving *r = c->into;
  early *m = c->kept;
  c->got = 0;
  c->into = NULL;
  c->kept = NULL;
  if (r) return finish_receive(l, r);
  r = take_receive(c->lists, m->tag);
  if (!r) return keep_early(c->lists, m);
  bool ok = deliver(l, r, m->data, m->bytes);
  free(m);
  return ok;
}

/* Reads what has arrived of the head or of the data; 0: nothing now, negative: the connection has ended. */
static ssize_t read_some(connection *c) {
  bool in_head = c->got < sizeof c->head;
  size_t from = in_head ? c->got : c->got - sizeof c->head;
  char *to = in_head ? (char *)&c->head : c->into ? c->into->data : c->kept->data;
  size_t bytes = (in_head ? sizeof c->head : c->head.bytes) - from;
  ssize_t n = recv(c->socket, to + from, bytes, 0);
  if (n == 0) return -1;
  if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
  return n;
}

static void set_low(connection *c) {
  size_t left = c->got < sizeof c->head ? 0 : sizeof c->head + c->head.bytes - c->got;
  int low = left < LOW_BYTES ? 1 : left < HIGH_BYTES ? (int)left : HIGH_BYTES;
  if (low == c->low || (low == 1 && c->low == 0) || c->socket < 0) return;
  (void)setsockopt(c->socket, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
  c->low = low;
}

/* Reads messages; false: the engine cannot go on. */
static bool pull(tcp_link *l, connection *c) {
  enum { AT_ONCE = 64 };
  for (int i = 0; i < AT_ONCE && c->socket >= 0; i++) {
    ssize_t n = read_some(c);
    if (n == 0) break;
    if (n < 0) return end_lane(l, c);
    c->got += (size_t)n;
    if (c->got == sizeof c->head && !begin_message(l, c)) return false;
    if (c->got >= sizeof c->head && c->got == sizeof c->head + c->head.bytes && !end_message(l, c))
      return false;
  }
  set_low(c);
  return true;
}

/* ---- polling ---- */
static bool is_full(const tcp_link *l, const connection *c) {
  return c->lists != &l->control && c->lists->early_bytes > EARLY_BYTES;
}

/* From a rank that is leaving everything is read: little can be left. */
static short wants(const tcp_link *l, uint32_t at) {
  const connection *c = &l->connections[at];
  bool leaves = n_open(l, at % l->place.size) < MPI_LANE_COUNT;
  return (short)((leaves || !is_full(l, c) ? POLLIN : 0) | (c->first ? POLLOUT : 0));
}

static nfds_t gather(tcp_link *l) {
  nfds_t n = 0;
  for (uint32_t i = 0; i < l->place.size * MPI_LANE_COUNT; i++) {
    const connection *c = &l->connections[i];
    if (c->socket < 0) continue;
    l->polled_at[n] = i;
    l->polled[n++] = (struct pollfd){.fd = c->socket, .events = wants(l, i)};
  }
  return n;
}

/* Leaves out connections that would only report their end, which poll_link() notices. */
static uint32_t watch(void *self, struct pollfd *sockets) {
  tcp_link *l = self;
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->place.size * MPI_LANE_COUNT; i++) {
    struct pollfd p = {.fd = l->connections[i].socket, .events = wants(l, i)};
    if (p.fd >= 0 && p.events) sockets[n++] = p;
  }
  return n;
}

static bool serve(tcp_link *l, const struct pollfd *p, uint32_t at) {
  connection *c = &l->connections[at];
  if (c->socket != p->fd) return true; /* lost meanwhile */
  if (p->revents & POLLOUT && !push(l, c)) return false;
  if (p->revents & (POLLIN | POLLERR | POLLHUP) && c->socket >= 0) return pull(l, c);
  return true;
}

static bool poll_link(void *self, void *const **tokens, uint32_t *count) {
  tcp_link *l = self;
  nfds_t n = gather(l);
  int ready = poll(l->polled, n, 0);
  for (nfds_t i = 0; i < n && ready > 0; i++)
    if (l->polled[i].revents && !serve(l, &l->polled[i], l->polled_at[i])) return false;
  *tokens = l->ended;
  *count = l->n_ended;
  l->n_ended = 0;
  return true;
}

/* ---- starting and ending ---- */
static bool start(const void *given, bool crowded, mpi_place *place, void **result) {
  tcp_link *l = (tcp_link *)given;
  (void)crowded;
  *place = l->place;
  *result = l;
  return true;
}

/* Shuts down sending first: others then read all that was sent before they see the end. */
static void end(void *self, bool has_failed, bool is_exit) {
  tcp_link *l = self;
  (void)has_failed;
  (void)is_exit;
  for (uint32_t i = 0; i < l->place.size * MPI_LANE_COUNT; i++)
    if (l->connections[i].socket >= 0) (void)shutdown(l->connections[i].socket, SHUT_WR);
  tcp_link_destroy(l);
}

const mpi_transport tcp_transport = {
    .size_bytes = sizeof(mpi_transport),
    .start = start,
    .send = begin_send,
    .receive = begin_receive,
    .poll = poll_link,
    .watch = watch,
    .is_lost = is_lost,
    .end = end,
    .error = error_text,
};
