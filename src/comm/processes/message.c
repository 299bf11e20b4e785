/* Control messages: what ranks tell each other. All ranks run the same build on the same kind of
 * machine, so structs are sent as they are in memory. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/processes/internal.h"

typedef enum message_kind {
  OPEN,     /* a world; also the sender's rank */
  BYE,      /* the process ends */
  LEAVE,    /* the endpoint is closed */
  TEAM,     /* the sender's number for a team */
  POST,     /* a request, with or without its payload */
  PAYLOAD,  /* of the oldest request that lacks one */
  PROPOSAL, /* to the arbiter: a reason to fail */
  VERDICT,  /* from the arbiter: the reason */
  BEAT,     /* the sender makes progress */
  QUESTION, /* where are you? */
  ANSWER,
} message_kind;

typedef struct head {
  message_kind kind;
  uint32_t from, epoch, size_bytes;
} head;

typedef struct open_body {
  uint64_t host, cores;
  int pid;
} open_body;

/* A part of a team: n_part devices from `first` on, of n. Parts come in order. */
enum { TEAM_PART = 256 };
typedef struct team_body {
  uint32_t id, n, first, n_part, devices[TEAM_PART];
} team_body;

/* Which queue: a team by the sender's number, or the pair. */
typedef struct place_body {
  uint32_t team;
  bool is_pair, sends;
} place_body;

/* A request. `to` and `from` are devices in a message, and ranks of the team in a collective. */
typedef struct post_body {
  place_body place;
  ir_comm_kind kind;
  ir_combine op;
  ir_dtype dtype;
  uint32_t root;
  int32_t to, from;
  int64_t count, count_from;
  bool has_in, has_out, has_payload;
  char origin[MPI_ORIGIN_BYTES]; /* sent up to the end of the text */
} post_body;

typedef struct reason_body {
  status why;
  char text[MPI_REASON_BYTES];
} reason_body;

typedef struct question_body {
  uint64_t number;
} question_body;

typedef struct answer_body {
  uint64_t number;
  int last_kind;
  bool is_unfinished;
  char last_origin[MPI_ORIGIN_BYTES];
  char where[sizeof((rt_pulse *)0)->where];
} answer_body;

enum { PAYLOAD_OFFSET = 512, MAX_BODY = MPI_CONTROL_BYTES - (int)sizeof(head) };
_Static_assert(sizeof(head) + sizeof(post_body) <= PAYLOAD_OFFSET, "a payload has its place");
_Static_assert(PAYLOAD_OFFSET + MPI_SMALL_BYTES <= MPI_CONTROL_BYTES, "payloads fit");
_Static_assert(sizeof(head) % 8 == 0 && PAYLOAD_OFFSET % MPI_LINE_BYTES == 0, "alignment");

/* The team of messages that other ranks post: position i is device i, since they name devices. */
static uint32_t all_ranks[RT_COMM_MAX_RANKS];

/* ---- saying ---- */
static void *body_of(mpi_io *io) { return io->data + sizeof(head); }

/* A message to be filled in; NULL: no memory. */
static mpi_io *begin(mpi_engine *e, message_kind kind, uint32_t epoch) {
  mpi_io *io = mpi_io_take(e, MPI_IO_SEND, MPI_CONTROL_BYTES);
  if (!io) return NULL;
  head h = {.kind = kind, .from = e->place.rank, .epoch = epoch};
  memcpy(io->data, &h, sizeof h);
  return io;
}

static void finish(mpi_io *io, uint32_t to, size_t size_bytes) {
  uint32_t size = (uint32_t)size_bytes;
  memcpy(io->data + offsetof(head, size_bytes), &size, sizeof size);
  mpi_io_send(io, MPI_LANE_CONTROL, to, 0, size_bytes);
}

static void say(mpi_engine *e, message_kind kind, uint32_t epoch, uint32_t to, const void *body,
                size_t bytes) {
  mpi_io *io = begin(e, kind, epoch);
  if (!io) return;
  if (bytes > 0) memcpy(body_of(io), body, bytes);
  finish(io, to, sizeof(head) + bytes);
}

void mpi_say_open(mpi_engine *e, uint32_t epoch) {
  const mpi_process *me = &e->processes[e->place.rank];
  open_body body = {.host = me->host, .cores = me->cores, .pid = me->pid};
  for (uint32_t r = 0; r < e->place.size; r++)
    if (r != e->place.rank) say(e, OPEN, epoch, r, &body, sizeof body);
}

void mpi_say_bye(mpi_engine *e) {
  for (uint32_t r = 0; r < e->place.size; r++)
    if (r != e->place.rank && !e->processes[r].is_dead) say(e, BYE, 0, r, NULL, 0);
}

void mpi_say_leave(mpi_world *w) {
  for (uint32_t r = 0; r < w->base.n_ranks; r++)
    if (r != w->base.rank && !w->peers[r].has_left && !w->peers[r].has_died)
      say(w->engine, LEAVE, w->epoch, r, NULL, 0);
}

void mpi_say_reason(mpi_world *w, bool is_verdict, uint32_t to) {
  reason_body body = {.why = w->why};
  memcpy(body.text, w->reason, sizeof body.text);
  say(w->engine, is_verdict ? VERDICT : PROPOSAL, w->epoch, to, &body, sizeof body);
}

void mpi_say_beat(mpi_world *w) {
  for (uint32_t r = 0; r < w->base.n_ranks; r++)
    if (r != w->base.rank && !w->peers[r].has_left && !w->peers[r].has_died)
      say(w->engine, BEAT, w->epoch, r, NULL, 0);
}

void mpi_say_question(mpi_world *w, uint32_t to) {
  question_body body = {.number = w->questions};
  say(w->engine, QUESTION, w->epoch, to, &body, sizeof body);
}

static void announce(mpi_queue *q) {
  team_body body = {.id = q->id, .n = q->n};
  for (body.first = 0; body.first < q->n; body.first += TEAM_PART) {
    body.n_part = q->n - body.first < TEAM_PART ? q->n - body.first : TEAM_PART;
    memcpy(body.devices, q->devices + body.first, body.n_part * sizeof *q->devices);
    for (uint32_t p = 0; p < q->n; p++)
      if (p != q->me)
        say(q->world->engine, TEAM, q->world->epoch, q->devices[p], &body, sizeof body);
  }
  q->is_announced = true;
}

/* Does member b need a payload of member a, whose record this is? One is sent exactly then. */
static bool has_payload(const mpi_queue *q, const mpi_record *r, uint32_t a, uint32_t b) {
  size_t offset;
  return r->request.count > 0 && mpi_op_is_small(&r->request) &&
         mpi_op_moves(q, &r->request, a, b, &offset);
}

/* Appends the payload for member p; returns the size of the message. */
static size_t add_payload(mpi_io *io, const mpi_queue *q, const mpi_record *r, uint32_t p) {
  size_t offset, bytes = (size_t)r->request.count * ir_dtype_size_bytes(r->request.dtype);
  (void)mpi_op_moves(q, &r->request, q->me, p, &offset);
  memcpy(io->data + PAYLOAD_OFFSET, (const char *)r->request.in + offset, bytes);
  return PAYLOAD_OFFSET + bytes;
}

static post_body body_of_post(const mpi_queue *q, const mpi_record *r) {
  const rt_comm_request *x = &r->request;
  post_body body = {.place = {.team = q->id, .is_pair = q->is_pair, .sends = q->me == 0},
                    .kind = x->kind,
                    .op = x->op,
                    .dtype = x->dtype,
                    .root = x->root,
                    .to = RT_COMM_NOBODY,
                    .from = RT_COMM_NOBODY,
                    .count = x->count,
                    .count_from = x->count_from,
                    .has_in = x->in != NULL,
                    .has_out = x->out != NULL};
  bool sends = x->kind == IR_COMM_SEND || x->kind == IR_COMM_PERMUTE;
  bool receives = x->kind == IR_COMM_RECV || x->kind == IR_COMM_PERMUTE;
  if (sends && x->to >= 0) body.to = (int32_t)x->team[x->to];
  if (receives && x->from >= 0) body.from = (int32_t)x->team[x->from];
  if (x->origin) (void)snprintf(body.origin, sizeof body.origin, "%s", x->origin);
  return body;
}

static bool is_at_front(const mpi_queue *q, const mpi_record *r) {
  return q->members[r->member].head == r;
}

void mpi_say_post(mpi_queue *q, mpi_record *r) {
  if (q->n == 1 || (q->is_pair && q->devices[0] == q->devices[1])) return;
  if (!q->is_announced && !q->is_pair) announce(q);
  post_body body = body_of_post(q, r);
  size_t plain = sizeof(head) + offsetof(post_body, origin) + strlen(body.origin) + 1;
  r->payload_sent = is_at_front(q, r);
  for (uint32_t k = 1; k < q->n; k++) {
    uint32_t p = (q->me + k) % q->n;
    mpi_io *io = begin(q->world->engine, POST, q->world->epoch);
    if (!io) return;
    body.has_payload = r->payload_sent && has_payload(q, r, q->me, p);
    memcpy(body_of(io), &body, plain - sizeof(head));
    finish(io, q->devices[p], body.has_payload ? add_payload(io, q, r, p) : plain);
  }
}

void mpi_say_payload(mpi_queue *q, mpi_record *r) {
  if (r->payload_sent) return;
  if (q->is_pair && q->devices[0] == q->devices[1]) return;
  place_body place = {.team = q->id, .is_pair = q->is_pair, .sends = q->me == 0};
  r->payload_sent = true;
  for (uint32_t k = 1; k < q->n; k++) {
    uint32_t p = (q->me + k) % q->n;
    if (!has_payload(q, r, q->me, p)) continue;
    mpi_io *io = begin(q->world->engine, PAYLOAD, q->world->epoch);
    if (!io) return;
    memcpy(body_of(io), &place, sizeof place);
    finish(io, q->devices[p], add_payload(io, q, r, p));
  }
}

/* ---- hearing ---- */
static void hear_open(mpi_engine *e, const head *h, const void *data) {
  open_body body;
  memcpy(&body, data, sizeof body);
  mpi_process *p = &e->processes[h->from];
  p->epoch = h->epoch;
  p->host = body.host;
  p->cores = body.cores;
  p->pid = body.pid;
  if (p->pid_fd >= 0 || body.host != e->processes[e->place.rank].host) return;
#ifdef SYS_pidfd_open
  p->pid_fd = (int)syscall(SYS_pidfd_open, body.pid, 0);
#endif
}

/* Adds a part to the team that the peer describes; NULL: no memory. */
static const uint32_t *add_part(mpi_world *w, mpi_peer *peer, const team_body *body) {
  if (body->first == 0) {
    memory_free(w->memory, peer->told);
    peer->told = memory_alloc(w->memory, body->n * sizeof *peer->told);
  }
  if (peer->told)
    memcpy(peer->told + body->first, body->devices, body->n_part * sizeof *peer->told);
  return peer->told;
}

static void hear_team(mpi_world *w, const head *h, const void *data) {
  mpi_engine *e = w->engine;
  team_body body;
  memcpy(&body, data, sizeof body);
  mpi_queue *q = NULL;
  const uint32_t *devices = add_part(w, &w->peers[h->from], &body);
  if (!devices) {
    mpi_world_fail(w, STATUS_OUT_OF_MEMORY, "no memory for the team of another rank");
    return;
  }
  if (body.first + body.n_part < body.n) return;
  (void)pthread_mutex_lock(&e->submit_lock);
  status st = mpi_team(w, devices, body.n, &q);
  (void)pthread_mutex_unlock(&e->submit_lock);
  if (st != STATUS_OK) {
    mpi_world_fail(w, st, status_message());
    return;
  }
  w->peers[h->from].teams[body.id - 1] = q;
  for (uint32_t p = 0; p < q->n; p++)
    if (q->devices[p] == h->from) q->members[p].remote_id = body.id;
}

static mpi_queue *queue_at(mpi_world *w, const head *h, const place_body *place) {
  mpi_engine *e = w->engine;
  if (!place->is_pair) return w->peers[h->from].teams[place->team - 1];
  mpi_queue *q = NULL;
  (void)pthread_mutex_lock(&e->submit_lock);
  status st = mpi_pair(w, !place->sends, h->from, &q);
  (void)pthread_mutex_unlock(&e->submit_lock);
  if (st != STATUS_OK) mpi_world_fail(w, st, status_message());
  return q;
}

static uint32_t member_of(const mpi_queue *q, const head *h, const place_body *place) {
  if (place->is_pair) return place->sends ? 0 : 1;
  uint32_t p = 0;
  while (q->devices[p] != h->from) p++;
  return p;
}

/* The request that another rank posted. Of its buffers only whether they are NULL is known. */
static rt_comm_request request_of(const mpi_queue *q, const post_body *b, uint32_t member) {
  static char something;
  rt_comm_request r = {.kind = b->kind,
                       .op = b->op,
                       .dtype = b->dtype,
                       .team = q->devices,
                       .n_team = q->n,
                       .me = member,
                       .root = b->root,
                       .to = b->to,
                       .from = b->from,
                       .count = b->count,
                       .count_from = b->count_from,
                       .in = b->has_in ? &something : NULL,
                       .out = b->has_out ? &something : NULL};
  if (!q->is_pair) return r;
  if (b->to >= 0) all_ranks[b->to] = (uint32_t)b->to;
  if (b->from >= 0) all_ranks[b->from] = (uint32_t)b->from;
  r.team = all_ranks, r.n_team = RT_COMM_MAX_RANKS;
  return r;
}

static bool keep_payload(mpi_record *r, mpi_io *io) {
  r->payload = io;
  r->payload_data = io->data + PAYLOAD_OFFSET;
  return false;
}

static bool hear_post(mpi_world *w, const head *h, mpi_io *io) {
  mpi_engine *e = w->engine;
  post_body body = {0};
  size_t bytes = h->size_bytes - sizeof *h;
  memcpy(&body, body_of(io), bytes < sizeof body ? bytes : sizeof body);
  mpi_queue *q = queue_at(w, h, &body.place);
  if (!q) return true;
  (void)pthread_mutex_lock(&e->submit_lock);
  mpi_record *r = mpi_record_take(w);
  (void)pthread_mutex_unlock(&e->submit_lock);
  if (!r) {
    mpi_world_fail(w, STATUS_OUT_OF_MEMORY, "no memory for a request of another rank");
    return true;
  }
  r->queue = q;
  r->member = member_of(q, h, &body.place);
  r->request = request_of(q, &body, r->member);
  memcpy(r->origin, body.origin, sizeof r->origin);
  r->request.origin = r->origin[0] ? r->origin : NULL;
  bool done = !body.has_payload || keep_payload(r, io);
  mpi_queue_add(q, r);
  mpi_queue_advance(q, true);
  return done;
}

static bool hear_payload(mpi_world *w, const head *h, mpi_io *io) {
  place_body place;
  memcpy(&place, body_of(io), sizeof place);
  mpi_queue *q = queue_at(w, h, &place);
  if (!q) return true;
  uint32_t from = member_of(q, h, &place);
  mpi_record *r = q->members[from].head;
  while (r && (r->payload || !has_payload(q, r, from, q->me))) r = r->next;
  if (!r) return true; /* the world has failed meanwhile */
  (void)keep_payload(r, io);
  mpi_queue_advance(q, true);
  return false;
}

static void hear_reason(mpi_world *w, const head *h, const void *data) {
  reason_body body;
  memcpy(&body, data, sizeof body);
  body.text[sizeof body.text - 1] = 0;
  if (h->kind == VERDICT) mpi_world_decide(w, body.why, body.text, false);
  else mpi_world_decide(w, body.why, body.text, true);
}

static void hear_question(mpi_world *w, const head *h, const void *data) {
  mpi_engine *e = w->engine;
  question_body body;
  memcpy(&body, data, sizeof body);
  answer_body answer = {.number = body.number};
  (void)pthread_mutex_lock(&e->submit_lock);
  answer.last_kind = w->last_kind;
  memcpy(answer.last_origin, w->last_origin, sizeof answer.last_origin);
  (void)pthread_mutex_unlock(&e->submit_lock);
  answer.is_unfinished = atomic_load(&w->unfinished) > 0;
  rt_pulse now = {0};
  if (w->pulse) w->pulse(w->pulse_context, &now);
  memcpy(answer.where, now.where, sizeof answer.where);
  say(w->engine, ANSWER, w->epoch, h->from, &answer, sizeof answer);
}

static void hear_answer(mpi_world *w, const head *h, const void *data) {
  answer_body body;
  memcpy(&body, data, sizeof body);
  mpi_peer *p = &w->peers[h->from];
  p->answered = body.number;
  p->last_kind = body.last_kind;
  p->is_unfinished = body.is_unfinished;
  memcpy(p->last_origin, body.last_origin, sizeof p->last_origin);
  memcpy(p->where, body.where, sizeof p->where);
}

/* Handles a message to a world of this process; false: the buffer is kept. */
static bool hear_in(mpi_world *w, const head *h, mpi_io *io) {
  const void *data = body_of(io);
  switch (h->kind) {
  case LEAVE:
    w->peers[h->from].has_left = true;
    mpi_world_peer_gone(w, h->from);
    return true;
  case TEAM: hear_team(w, h, data); return true;
  case POST: return hear_post(w, h, io);
  case PAYLOAD: return hear_payload(w, h, io);
  case PROPOSAL:
  case VERDICT: hear_reason(w, h, data); return true;
  case BEAT: mpi_world_stir(w); return true;
  case QUESTION: hear_question(w, h, data); return true;
  case ANSWER: hear_answer(w, h, data); return true;
  case OPEN:
  case BYE: return true;
  }
  return true;
}

/* A process that says goodbye has left its worlds, closed or not. */
static void hear_bye(mpi_engine *e, uint32_t rank) {
  e->processes[rank].said_bye = true;
  for (mpi_world *w = e->worlds; w; w = w->next) {
    if (rank >= w->base.n_ranks || w->peers[rank].has_left) continue;
    w->peers[rank].has_left = true;
    mpi_world_peer_gone(w, rank);
  }
}

bool mpi_hear(mpi_io *io) {
  head h;
  memcpy(&h, io->data, sizeof h);
  if (h.kind == OPEN) hear_open(io->engine, &h, body_of(io));
  if (h.kind == BYE) hear_bye(io->engine, h.from);
  mpi_world *w = mpi_world_of(io->engine, h.epoch);
  return w ? hear_in(w, &h, io) : true;
}
