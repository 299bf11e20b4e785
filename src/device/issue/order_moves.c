/* A communication as copies and folds on the streams of its members. */
#include <string.h>

#include "device/issue/order_internal.h"

/* ---- members ---- */
static const issue_meeting *meeting_of(const issue_maker *k) {
  return &k->meetings.list.data[k->meeting];
}

static const rt_post *post_of(const issue_maker *k, uint32_t member) {
  return &k->plan->posts[meeting_of(k)->posts[member]];
}

static uint32_t rank_of(const issue_maker *k, uint32_t member) {
  return k->meetings.rank_of_post[meeting_of(k)->posts[member]];
}

static issue_place place_of(const issue_maker *k, uint32_t view) {
  if (view == RT_NO_VIEW) return (issue_place){.kind = ISSUE_NOWHERE};
  const rt_view *v = &k->plan->views[view];
  return (issue_place){ISSUE_IN_BUFFER, v->buffer, v->offset_bytes};
}

static issue_place in_of(const issue_maker *k, uint32_t member) {
  return place_of(k, post_of(k, member)->in);
}

static issue_place out_of(const issue_maker *k, uint32_t member) {
  return place_of(k, post_of(k, member)->out);
}

static issue_place further(issue_place p, int64_t bytes) {
  p.offset_bytes += bytes;
  return p;
}

static bool is_same(issue_place a, issue_place b) {
  return a.kind == b.kind && a.index == b.index && a.offset_bytes == b.offset_bytes;
}

/* ---- streams ---- */
/* Lets a stream take part from now on: it waits for the communications that used the same bytes. */
static void enter(issue_maker *k, uint16_t stream) {
  uint32_t at = stream - k->plan->n_streams;
  if (k->entered[at]) return;
  k->entered[at] = true;
  for (uint32_t b = 0; b < k->before.len; b++) {
    const issue_meeting *m = &k->meetings.list.data[k->before.data[b]];
    for (uint32_t i = m->first_end; i < m->first_end + m->n_ends; i++)
      if (k->end_streams.data[i] != stream) issue_step_add(k, ISSUE_WAIT, stream, k->ends.data[i]);
  }
}

/* Lets the stream wait for the member's post. */
static void need(issue_maker *k, uint16_t stream, uint32_t member) {
  uint32_t at = stream - k->plan->n_streams;
  enter(k, stream);
  bool *needs = &k->needs[at * (k->order->n_ranks + 1) + member];
  if (*needs) return;
  *needs = true;
  issue_step_add(k, ISSUE_WAIT, stream, k->order->posted[meeting_of(k)->posts[member]]);
}

static uint16_t lane(const issue_maker *k, uint32_t member, issue_lane l) {
  return issue_lane_of(k->plan, rank_of(k, member), l);
}

static uint16_t receives(const issue_maker *k, uint32_t member) {
  return lane(k, member, ISSUE_RECEIVES);
}

/* ---- copies and folds ---- */
static void note(issue_maker *k, uint16_t stream, uint32_t member, uint8_t what) {
  uint32_t at = (stream - k->plan->n_streams) * ISSUE_MOST_MEMBERS;
  if (member < ISSUE_MOST_MEMBERS) k->flags[at + member] |= what;
}

static void copy(issue_maker *k, uint16_t stream, uint32_t to, issue_place there, uint32_t from,
                 issue_place here, int64_t bytes) {
  issue_copy c = {there, here, rank_of(k, to), rank_of(k, from), bytes};
  if (there.kind == ISSUE_IN_BUFFER) note(k, stream, to, ISSUE_WRITES);
  if (here.kind == ISSUE_IN_BUFFER) note(k, stream, from, ISSUE_READS);
  issue_step_add(k, ISSUE_COPY, stream, k->order->copies.len);
  vec_push(k->memory, &k->order->copies, c);
}

/* Where one piece goes: to any number of members. */
typedef struct targets {
  uint32_t n;
  uint32_t *members;
  issue_place *places;
} targets;

static targets targets_new(issue_maker *k, uint32_t most) {
  return (targets){.members = ARENA_ARRAY(k->memory, most, uint32_t),
                   .places = ARENA_ARRAY(k->memory, most, issue_place)};
}

enum { NO_EVENT = UINT32_MAX };

/* A part of a member's bytes, and how far into the targets' places it goes. `after`: an event of the member
 * that it must wait for. */
typedef struct part {
  uint32_t from;
  issue_place here;
  int64_t bytes, at;
  uint32_t after;
  bool reduced; /* it was reduced, and goes on lanes of its own */
} part;

/* Each receiver copies the part from the sender. */
static void pull(issue_maker *k, const part *p, const targets *t) {
  for (uint32_t i = 0; i < t->n; i++) {
    uint32_t to = t->members[i];
    uint16_t stream = lane(k, to, p->reduced ? ISSUE_RECEIVES_REDUCED : ISSUE_RECEIVES);
    need(k, stream, to);
    need(k, stream, p->from);
    if (p->after != NO_EVENT) issue_step_add(k, ISSUE_WAIT, stream, p->after);
    copy(k, stream, to, further(t->places[i], p->at), p->from, p->here, p->bytes);
    if (p->reduced) note(k, stream, p->from, ISSUE_WRITES); /* it reads an output */
  }
}

/* Copies the part into pinned memory once, and from there to each receiver. The slot is filled again only
 * when all receivers have read it. */
static void send_through_host(issue_maker *k, const part *p, const targets *t) {
  uint32_t rank = rank_of(k, p->from);
  issue_slots *slots = &k->slots[rank];
  uint32_t number = slots->next++ % ISSUE_SLOTS;
  issue_slot *slot = &slots->slots[number];
  uint16_t stream = lane(k, p->from, p->reduced ? ISSUE_SENDS_REDUCED : ISSUE_SENDS);
  issue_place pinned = {ISSUE_IN_SLOTS, rank, number};
  if (p->bytes > slots->size_bytes) slots->size_bytes = p->bytes;
  need(k, stream, p->from);
  if (p->after != NO_EVENT) issue_step_add(k, ISSUE_WAIT, stream, p->after);
  for (uint32_t i = 0; i < slot->n_readers; i++)
    issue_step_add(k, ISSUE_WAIT, stream, slot->readers[i]);
  copy(k, stream, p->from, pinned, p->from, p->here, p->bytes);
  if (p->reduced) note(k, stream, p->from, ISSUE_WRITES); /* it reads an output */
  uint32_t filled = issue_step_record(k, stream);
  slot->n_readers = 0;
  for (uint32_t i = 0; i < t->n; i++) {
    uint32_t to = t->members[i];
    uint16_t receiver = lane(k, to, p->reduced ? ISSUE_RECEIVES_REDUCED : ISSUE_RECEIVES);
    if (t->places[i].kind == ISSUE_IN_BUFFER) need(k, receiver, to);
    issue_step_add(k, ISSUE_WAIT, receiver, filled);
    copy(k, receiver, to, further(t->places[i], p->at), p->from, pinned, p->bytes);
    slot->readers[slot->n_readers++] = issue_step_record(k, receiver);
  }
}

static void send(issue_maker *k, const part *p, const targets *t) {
  if (p->bytes == 0 || t->n == 0) return;
  if (k->options->staged && k->options->through_host) send_through_host(k, p, t);
  else pull(k, p, t);
}

static void fold(issue_maker *k, uint16_t stream, uint32_t on, int64_t count, uint32_t n_sources,
                 uint32_t n_results, const issue_place *places) {
  const rt_post *p = post_of(k, on);
  size_t bytes = ((size_t)n_sources + n_results) * sizeof *places;
  issue_fold f = {p->op, p->dtype, count, n_sources, n_results, rank_of(k, on), NULL};
  f.places = arena_copy(k->memory, places, bytes);
  issue_step_add(k, ISSUE_FOLD, stream, k->order->folds.len);
  vec_push(k->memory, &k->order->folds, f);
}

/* What stays on its rank is copied by a kernel: the copy engines are left to what crosses the link. If it is
 * in its place already, the stream only waits for the communications that brought it there. */
static void keep(issue_maker *k, uint32_t member, issue_place to, issue_place from, int64_t bytes) {
  bool stays = is_same(to, from);
  if (bytes == 0 || to.kind == ISSUE_NOWHERE || from.kind == ISSUE_NOWHERE) return;
  if (stays && k->before.len == 0) return;
  uint16_t stream = lane(k, member, ISSUE_KEEPS);
  int64_t size = (int64_t)ir_dtype_size_bytes(post_of(k, member)->dtype);
  need(k, stream, member);
  note(k, stream, member, ISSUE_WRITES | ISSUE_READS);
  if (stays) return;
  fold(k, stream, member, bytes / size, 1, 1, (issue_place[]){from, to});
}

/* ---- segments ---- */
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* A large piece is sent in segments, so that its way into the host's memory and its way out overlap. The last
 * bytes arrive later than they leave by the time of one segment; and every segment costs the engines some
 * microseconds, in which they could move about 256 KiB. The sum of both is least if a segment is the square root
 * of 256 KiB times all bytes that go the same way. */
void issue_segments_size(issue_maker *k) {
  enum { LEAST = 1 << 20, MOST = 8 << 20, GAP = 256 << 10, ENOUGH = 1 << 30 };
  const rt_plan *plan = k->plan;
  int64_t bytes = 0, root = LEAST;
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    const rt_post *post = &plan->posts[p];
    if (post->in != RT_NO_VIEW) bytes = smaller(bytes + issue_input_bytes(post), ENOUGH);
  }
  if (!k->options->one_gpu) bytes /= k->order->n_ranks;
  while (root < MOST && root * root < bytes * GAP) root += LEAST / 4;
  k->segment_bytes = k->options->segment_bytes ? k->options->segment_bytes : root;
}

/* Pieces up to one and a half segments are not cut. */
static int64_t longest_whole(const issue_maker *k) {
  return k->options->whole_bytes ? k->options->whole_bytes
                                 : k->segment_bytes + k->segment_bytes / 2;
}

int64_t issue_longest_segment_bytes(const issue_maker *k, int64_t bytes) {
  /* mutant: cuda_shares_as_small_as_segments */
  return smaller(bytes, longest_whole(k));
}

/* Longer pieces are cut into equal parts. */
int64_t issue_segment_bytes(const issue_maker *k, int64_t bytes) {
  enum { GRAIN = 256 };
  int64_t some = k->segment_bytes;
  if (!k->options->staged || bytes <= longest_whole(k)) return bytes;
  int64_t parts = (bytes + some - 1) / some, each = (bytes + parts - 1) / parts;
  return k->options->segment_bytes ? some : (each + GRAIN - 1) / GRAIN * GRAIN;
}

/* ---- kinds that only move ---- */
typedef struct move {
  uint32_t from;
  issue_place here;
  int64_t bytes;
  targets to;
} move;

/* Sends the moves segment by segment: the first segment of each, then the second, and so on. */
static void send_all(issue_maker *k, const move *moves, uint32_t n) {
  int64_t most = 0;
  for (uint32_t i = 0; i < n; i++) most = moves[i].bytes > most ? moves[i].bytes : most;
  int64_t step = issue_segment_bytes(k, most);
  for (int64_t at = 0; at < most; at += step) {
    for (uint32_t i = 0; i < n; i++) {
      if (at >= moves[i].bytes) continue;
      part p = {.from = moves[i].from, .at = at, .after = NO_EVENT};
      p.here = further(moves[i].here, at);
      p.bytes = smaller(step, moves[i].bytes - at);
      send(k, &p, &moves[i].to);
    }
  }
}

static void target_add(targets *t, uint32_t member, issue_place place) {
  if (place.kind == ISSUE_NOWHERE) return;
  t->members[t->n] = member;
  t->places[t->n++] = place;
}

typedef VEC(move) move_list;

/* Member `from` sends a piece to member `to`, or keeps it. */
static void move_add(issue_maker *k, move_list *l, uint32_t from, issue_place here, uint32_t to,
                     issue_place there, int64_t bytes) {
  if (here.kind == ISSUE_NOWHERE || there.kind == ISSUE_NOWHERE || bytes == 0) return;
  if (rank_of(k, from) == rank_of(k, to)) {
    /* mutant: cuda_sent_to_oneself_early */
    if (from != to) need(k, lane(k, to, ISSUE_KEEPS), from);
    keep(k, to, there, here, bytes);
    note(k, lane(k, to, ISSUE_KEEPS), from, ISSUE_READS); /* a message to oneself has two members */
    return;
  }
  move m = {.from = from, .here = here, .bytes = bytes, .to = targets_new(k, 1)};
  target_add(&m.to, to, there);
  vec_push(k->memory, l, m);
}

/* Member `from` sends the same to all others. */
static void spread_add(issue_maker *k, move_list *l, uint32_t from, issue_place here, int64_t bytes,
                       int64_t at) {
  uint32_t n = meeting_of(k)->n;
  move m = {.from = from, .here = here, .bytes = bytes, .to = targets_new(k, n)};
  for (uint32_t i = 0; i < n; i++) {
    issue_place out = out_of(k, i);
    if (out.kind != ISSUE_NOWHERE) out = further(out, at);
    if (i == from) keep(k, i, out, here, bytes);
    else target_add(&m.to, i, out);
  }
  if (bytes > 0 && m.to.n > 0) vec_push(k->memory, l, m);
}

static void add_moving(issue_maker *k, int64_t bytes) {
  const issue_meeting *m = meeting_of(k);
  const rt_post *p = post_of(k, 0);
  uint32_t root = p->root;
  move_list l = {0};
  for (uint32_t i = 0; i < m->n; i++) {
    int64_t at = i * bytes;
    switch (p->kind) {
    case IR_COMM_BROADCAST:
      if (i == root) spread_add(k, &l, i, in_of(k, i), bytes, 0);
      break;
    case IR_COMM_ALLGATHER: spread_add(k, &l, i, in_of(k, i), bytes, at); break;
    case IR_COMM_GATHER:
      move_add(k, &l, i, in_of(k, i), root, further(out_of(k, root), at), bytes);
      break;
    case IR_COMM_SCATTER:
      move_add(k, &l, root, further(in_of(k, root), at), i, out_of(k, i), bytes);
      break;
    case IR_COMM_ALL_TO_ALL:
      for (uint32_t j = 0; j < m->n; j++) {
        uint32_t to = (i + j) % m->n;
        move_add(k, &l, i, further(in_of(k, i), to * bytes), to, further(out_of(k, to), at), bytes);
      }
      break;
    case IR_COMM_SEND:
    case IR_COMM_RECV:
    case IR_COMM_PERMUTE:
      if (i == 0) move_add(k, &l, 0, in_of(k, 0), 1, out_of(k, 1), bytes);
      break;
    case IR_COMM_REDUCE:
    case IR_COMM_ALLREDUCE:
    case IR_COMM_REDUCE_SCATTER:
    case IR_COMM_SEND_RECV:
    case IR_COMM_COUNT: impossible("a kind that only moves");
    }
  }
  send_all(k, l.data, l.len);
}

/* ---- reductions ---- */
/* A range of every member's input, reduced by one of them into its memory. */
typedef struct share {
  uint32_t owner;
  int64_t begin_bytes, bytes; /* in every input */
  issue_place result;
} share;

/* Reads all sources where they are, and writes all results where they belong. */
static void fold_direct(issue_maker *k, const share *s, uint32_t n_results,
                        const issue_place *results) {
  const issue_meeting *m = meeting_of(k);
  issue_place *places = ARENA_ARRAY(k->memory, m->n + (size_t)n_results, issue_place);
  uint32_t n = 0;
  if (s->bytes == 0) return;
  for (uint32_t q = 0; q < m->n; q++) {
    issue_place in = in_of(k, q);
    if (in.kind == ISSUE_NOWHERE) continue;
    need(k, receives(k, s->owner), q);
    note(k, receives(k, s->owner), q, ISSUE_READS);
    places[n++] = further(in, s->begin_bytes);
  }
  for (uint32_t i = 0; i < n_results; i++) {
    places[n + i] = results[i];
    note(k, receives(k, s->owner), n_results == 1 ? s->owner : i, ISSUE_WRITES);
  }
  need(k, receives(k, s->owner), s->owner);
  int64_t size = (int64_t)ir_dtype_size_bytes(post_of(k, 0)->dtype);
  fold(k, receives(k, s->owner), s->owner, s->bytes / size, n, n_results, places);
}

/* Copies the others' inputs for a segment into memory of the owner. Returns how many sources there are. */
static uint32_t receive_sources(issue_maker *k, const share *s, int64_t at, int64_t bytes,
                                issue_place *sources) {
  uint32_t n = 0, rank = rank_of(k, s->owner);
  issue_staging *staging = &k->stagings[rank];
  uint32_t *freed = &staging->freed[staging->next % ISSUE_STAGINGS];
  issue_place there = {ISSUE_IN_STAGING, rank, 0};
  there.offset_bytes = (int64_t)(staging->next % ISSUE_STAGINGS) * staging->size_bytes;
  enter(k, receives(k, s->owner));
  if (*freed != ISSUE_NOBODY) issue_step_add(k, ISSUE_WAIT, receives(k, s->owner), *freed);
  for (uint32_t q = 0; q < meeting_of(k)->n; q++) {
    issue_place in = in_of(k, q);
    if (in.kind == ISSUE_NOWHERE) continue;
    in = further(in, s->begin_bytes + at);
    if (q != s->owner) {
      part p = {.from = q, .here = in, .bytes = bytes, .after = NO_EVENT};
      send(k, &p, &(targets){1, (uint32_t[]){s->owner}, &there});
      in = there;
      there = further(there, issue_aligned(bytes));
    }
    sources[n++] = in;
  }
  return n;
}

/* Reduces the segment of a share that begins at `at`. Returns the event at its end. */
static uint32_t fold_received(issue_maker *k, const share *s, int64_t at, int64_t step) {
  int64_t bytes = smaller(step, s->bytes - at);
  issue_place *places = ARENA_ARRAY(k->memory, meeting_of(k)->n + (size_t)1, issue_place);
  uint32_t n = receive_sources(k, s, at, bytes, places);
  uint32_t here = issue_step_record(k, receives(k, s->owner));
  uint16_t stream = lane(k, s->owner, ISSUE_FOLDS);
  places[n] = further(s->result, at);
  need(k, stream, s->owner);
  issue_step_add(k, ISSUE_WAIT, stream, here);
  note(k, stream, s->owner, ISSUE_WRITES | ISSUE_READS);
  int64_t size = (int64_t)ir_dtype_size_bytes(post_of(k, 0)->dtype);
  fold(k, stream, s->owner, bytes / size, n, 1, places);
  issue_staging *staging = &k->stagings[rank_of(k, s->owner)];
  uint32_t done = issue_step_record(k, stream);
  staging->freed[staging->next++ % ISSUE_STAGINGS] = done;
  return done;
}

/* Sends the segment of a reduced share to all others. */
static void send_reduced(issue_maker *k, const share *s, int64_t at, int64_t step, uint32_t after) {
  uint32_t n = meeting_of(k)->n;
  targets t = targets_new(k, n);
  for (uint32_t q = 0; q < n; q++)
    if (q != s->owner) target_add(&t, q, further(out_of(k, q), s->begin_bytes));
  part p = {.from = s->owner, .here = further(s->result, at), .at = at, .after = after};
  p.reduced = true;
  p.bytes = smaller(step, s->bytes - at);
  send(k, &p, &t);
}

/* Reduced segments go out while later ones come in; a sender that waited for each would idle. */
static void reduce_staged(issue_maker *k, const share *shares, uint32_t n, bool spreads) {
  enum { AHEAD = 2 };
  int64_t most = 0;
  for (uint32_t i = 0; i < n; i++) most = shares[i].bytes > most ? shares[i].bytes : most;
  if (most == 0) return;
  int64_t step = issue_segment_bytes(k, most);
  uint32_t segments = (uint32_t)((most + step - 1) / step);
  uint32_t *done = ARENA_ARRAY(k->memory, (size_t)segments * n, uint32_t);
  for (uint32_t s = 0; s < segments + AHEAD; s++) {
    for (uint32_t i = 0; i < n && s < segments; i++) {
      if (s * step >= shares[i].bytes) continue;
      done[s * n + i] = fold_received(k, &shares[i], s * step, step);
    }
    for (uint32_t i = 0; i < n && spreads && s >= AHEAD; i++) {
      uint32_t old = s - AHEAD;
      if (old * step < shares[i].bytes)
        send_reduced(k, &shares[i], old * step, step, done[old * n + i]);
    }
  }
}

static void add_reduce(issue_maker *k, int64_t bytes) {
  uint32_t root = post_of(k, 0)->root;
  issue_place out = out_of(k, root);
  share s = {root, 0, bytes, out};
  if (k->options->staged) reduce_staged(k, &s, 1, false);
  else fold_direct(k, &s, 1, &out);
}

static void add_reduce_scatter(issue_maker *k, int64_t bytes) {
  const issue_meeting *m = meeting_of(k);
  share *shares = ARENA_ARRAY(k->memory, m->n, share);
  for (uint32_t i = 0; i < m->n; i++) shares[i] = (share){i, i * bytes, bytes, out_of(k, i)};
  for (uint32_t i = 0; i < m->n && !k->options->staged; i++)
    fold_direct(k, &shares[i], 1, &shares[i].result);
  if (k->options->staged) reduce_staged(k, shares, m->n, false);
}

/* Two members whose outputs are not their inputs each receive the other's whole input and reduce it: that
 * moves as many bytes as sharing the work, and neither waits for a second transfer. */
static bool exchanges(const issue_maker *k) {
  bool apart = true;
  for (uint32_t i = 0; i < meeting_of(k)->n; i++)
    apart = apart && !is_same(in_of(k, i), out_of(k, i));
  return k->options->staged && meeting_of(k)->n == 2 && apart;
}

static void add_exchange(issue_maker *k, int64_t bytes) {
  share shares[2];
  for (uint32_t i = 0; i < 2; i++) shares[i] = (share){i, 0, bytes, out_of(k, i)};
  reduce_staged(k, shares, 2, false);
}

/* Every member reduces a share; if it can reach the others' memory, it also writes it to all. If all ranks are
 * on one GPU, one member reduces everything: sharing would not be faster. */
static void add_allreduce(issue_maker *k, int64_t bytes) {
  enum { GRAIN = 256 };
  const issue_meeting *m = meeting_of(k);
  bool alone = k->options->one_gpu && !k->options->staged;
  int64_t whole = alone ? bytes : (bytes / m->n + GRAIN - 1) / GRAIN * GRAIN;
  if (whole == 0) whole = GRAIN;
  share *shares = ARENA_ARRAY(k->memory, m->n, share);
  issue_place *results = ARENA_ARRAY(k->memory, m->n, issue_place);
  for (uint32_t i = 0; i < m->n; i++) {
    int64_t begin = smaller(bytes, i * whole), end = smaller(bytes, begin + whole);
    if (i + 1 == m->n) end = bytes;
    shares[i] = (share){i, begin, end - begin, further(out_of(k, i), begin)};
    if (k->options->staged || begin == end) continue;
    for (uint32_t q = 0; q < m->n; q++) results[q] = further(out_of(k, q), begin);
    fold_direct(k, &shares[i], m->n, results);
  }
  if (k->options->staged) reduce_staged(k, shares, m->n, true);
}

/* ---- order between communications ---- */
static bool clash(const issue_use *a, int64_t begin, int64_t end, bool writes) {
  return a->begin < end && begin < a->end && (a->writes || writes);
}

static void come_after(issue_maker *k, uint32_t meeting) {
  for (uint32_t i = 0; i < k->before.len; i++)
    if (k->before.data[i] == meeting) return;
  vec_push(k->memory, &k->before, meeting);
}

/* Notes that this communication uses these bytes, after the earlier ones that clash with it. An earlier use is
 * forgotten if this one overwrites all of its bytes. */
static void use(issue_maker *k, uint32_t view, int64_t bytes, bool writes) {
  if (view == RT_NO_VIEW || bytes == 0) return;
  const rt_view *v = &k->plan->views[view];
  issue_uses *uses = &k->uses[v->buffer];
  int64_t begin = v->offset_bytes, end = begin + bytes;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < uses->len; i++) {
    issue_use u = uses->data[i];
    bool clashes = clash(&u, begin, end, writes);
    if (clashes && u.meeting != k->meeting) come_after(k, u.meeting);
    bool covered = writes && begin <= u.begin && u.end <= end && u.meeting != k->meeting;
    if (!covered) uses->data[kept++] = u;
  }
  uses->len = kept;
  issue_use mine = {begin, end, writes, k->meeting};
  vec_push(k->memory, uses, mine);
}

/* A member's output may overwrite an earlier input that others still read. */
static void avoid_readings(issue_maker *k, uint32_t member, uint32_t view, int64_t bytes) {
  const issue_readings *list = &k->readings[rank_of(k, member)];
  if (view == RT_NO_VIEW || bytes == 0) return;
  issue_range to = issue_range_of(k->plan, view, bytes);
  for (uint32_t i = 0; i < list->len; i++)
    if (issue_ranges_meet(&list->data[i].range, &to)) come_after(k, list->data[i].meeting);
}

static void find_before(issue_maker *k, int64_t piece) {
  const issue_meeting *m = meeting_of(k);
  k->before.len = 0;
  for (uint32_t i = 0; i < m->n; i++) {
    const rt_post *p = post_of(k, i);
    bool all_in = ir_comm_in_pieces(p->kind), all_out = ir_comm_out_pieces(p->kind);
    if (!m->is_pair || i == 0) use(k, p->in, all_in ? piece * m->n : piece, false);
    int64_t out_bytes = all_out ? piece * m->n : piece;
    if (m->is_pair && i == 0) continue;
    use(k, p->out, out_bytes, true);
    avoid_readings(k, i, p->out, out_bytes);
  }
}

/* ---- one communication ---- */
static void add_steps(issue_maker *k, int64_t bytes) {
  ir_comm_kind kind = post_of(k, 0)->kind;
  if (bytes == 0) return;
  if (kind == IR_COMM_REDUCE) add_reduce(k, bytes);
  else if (kind == IR_COMM_REDUCE_SCATTER) add_reduce_scatter(k, bytes);
  else if (kind == IR_COMM_ALLREDUCE && exchanges(k)) add_exchange(k, bytes);
  else if (kind == IR_COMM_ALLREDUCE) add_allreduce(k, bytes);
  else add_moving(k, bytes);
}

static void add_ends(issue_maker *k) {
  issue_meeting *m = &k->meetings.list.data[k->meeting];
  m->first_end = k->ends.len;
  for (uint32_t i = 0; i < ISSUE_LANES * k->order->n_ranks; i++) {
    if (!k->entered[i]) continue;
    uint16_t stream = (uint16_t)(k->plan->n_streams + i);
    uint32_t event = k->recorded[i] != ISSUE_NOBODY ? k->recorded[i] : issue_step_record(k, stream);
    vec_push(k->memory, &k->ends, event);
    vec_push(k->memory, &k->end_streams, stream);
    for (uint32_t j = 0; j < ISSUE_MOST_MEMBERS; j++)
      vec_push(k->memory, &k->end_flags, k->flags[i * ISSUE_MOST_MEMBERS + j]);
  }
  m->n_ends = k->ends.len - m->first_end;
  m->complete = true;
}

void issue_moves_add(issue_maker *k, uint32_t meeting) {
  k->meeting = meeting;
  size_t ranks = k->order->n_ranks;
  memset(k->flags, 0, ISSUE_LANES * ranks * ISSUE_MOST_MEMBERS);
  memset(k->entered, 0, ISSUE_LANES * ranks * sizeof *k->entered);
  memset(k->needs, 0, ISSUE_LANES * ranks * (ranks + 1) * sizeof *k->needs);
  const rt_post *p = post_of(k, 0);
  int64_t bytes = p->count * (int64_t)ir_dtype_size_bytes(p->dtype);
  find_before(k, bytes);
  add_steps(k, bytes);
  add_ends(k);
}
