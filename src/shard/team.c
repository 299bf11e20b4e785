/* The members: teams, roots and pieces of a communication, device by device. */
#include "shard/internal.h"

typedef struct gathering {
  shard_ctx *c;
  const shard_comm *m;
  int64_t only; /* the device asked for, or all */
  shard_teams result;
} gathering;

static const ir_mesh_data *mesh_of(const gathering *g, ir_mesh m) { return ir_mesh_at(g->c->f, m); }

static int64_t turn(shard_ctx *c, const shard_axis *a, ir_mesh mesh, int64_t device) {
  return a->swizzled ? shard_coordinate(c, mesh, device, a->swizzle_axis) : 0;
}

int64_t shard_comm_piece(shard_ctx *c, const shard_comm *m, bool after, int64_t device) {
  ir_mesh mesh = after ? m->to : m->from;
  if (shard_position(c, mesh, device) < 0) return -1;
  if (m->mesh_axis == SHARD_NO_AXIS) return 0;
  uint32_t k = (uint32_t)m->mesh_axis;
  const shard_axis *a = after ? &m->after.axes[k] : &m->before.axes[k];
  if (a->kind != SHARD_SHARDED) return 0;
  int64_t n = ir_mesh_size(ir_mesh_at(c->f, mesh), k);
  return (shard_coordinate(c, mesh, device, k) + turn(c, a, mesh, device)) % n;
}

/* The device that holds `piece` in the line through `device`. */
static int64_t owner(const gathering *g, bool after, int64_t device, int64_t piece) {
  uint32_t k = (uint32_t)g->m->mesh_axis;
  ir_mesh mesh = after ? g->m->to : g->m->from;
  const shard_axis *a = after ? &g->m->after.axes[k] : &g->m->before.axes[k];
  int64_t n = ir_mesh_size(mesh_of(g, mesh), k);
  int64_t coordinate = (piece - turn(g->c, a, mesh, device) % n + n) % n;
  return shard_neighbour(g->c, mesh, device, k, coordinate);
}

static bool same_kept(const gathering *g, int64_t sender, int64_t receiver) {
  for (uint32_t k = 0; k < IR_MESH_MAX_RANK; k++) {
    if (!(g->m->kept >> k & 1)) continue;
    int64_t a = shard_coordinate(g->c, g->m->from, sender, k);
    if (a != shard_coordinate(g->c, g->m->to, receiver, k)) return false;
  }
  return true;
}

/* A sender whose kept pieces are those of the receiver: itself if possible; else its counterpart, with
 * its coordinates as far as the senders' mesh goes, so that receivers spread over the senders. */
static int64_t counterpart(const gathering *g, int64_t receiver) {
  const ir_mesh_data *from = mesh_of(g, g->m->from);
  if (shard_position(g->c, g->m->from, receiver) >= 0 && same_kept(g, receiver, receiver)) {
    return receiver;
  }
  int64_t device = from->devices[0];
  for (uint32_t k = 0; k < from->rank; k++) {
    int64_t coordinate = shard_coordinate(g->c, g->m->to, receiver, k) % ir_mesh_size(from, k);
    device = shard_neighbour(g->c, g->m->from, device, k, coordinate);
  }
  return device;
}

/* ---- building teams ---- */

typedef VEC(int64_t) members;

static int32_t member(const members *t, int64_t device) {
  for (uint32_t i = 0; i < t->len; i++) {
    if (t->data[i] == device) return (int32_t)i;
  }
  return -1;
}

static void join(gathering *g, members *t, int64_t device) {
  if (member(t, device) < 0) vec_push(g->c->scratch, t, device);
}

static void add_team(gathering *g, const members *t, int32_t root) {
  if (g->only != SHARD_EVERY_DEVICE && member(t, g->only) < 0) return;
  shard_team team = {t->data, t->len, root};
  vec_push(g->c->scratch, &g->result.list, team);
}

/* The owners of all pieces in the line through `device`, in the order of the pieces. */
static members line(gathering *g, bool after, int64_t device) {
  members t = {0};
  int64_t n = ir_mesh_size(mesh_of(g, after ? g->m->to : g->m->from), (uint32_t)g->m->mesh_axis);
  for (int64_t i = 0; i < n; i++) vec_push(g->c->scratch, &t, owner(g, after, device, i));
  return t;
}

/* The first device of a line along the changed axis represents the line. */
static bool leads(const gathering *g, ir_mesh mesh, int64_t device) {
  return shard_coordinate(g->c, mesh, device, (uint32_t)g->m->mesh_axis) == 0;
}

static void line_teams(gathering *g, bool after, int32_t root) {
  ir_mesh mesh = after ? g->m->to : g->m->from;
  const ir_mesh_data *d = mesh_of(g, mesh);
  bool one = g->only != SHARD_EVERY_DEVICE;
  if (one && shard_position(g->c, mesh, g->only) < 0) return;
  for (int64_t i = 0; i < (one ? 1 : d->n_devices); i++) {
    int64_t device = one ? g->only : d->devices[i];
    if (!one && !leads(g, mesh, device)) continue;
    members t = line(g, after, device);
    add_team(g, &t, root);
  }
}

/* Gather, reduce: the senders' line, and after it the receiver if it is no sender. */
static void receiver_teams(gathering *g) {
  const ir_mesh_data *to = mesh_of(g, g->m->to);
  for (int64_t i = 0; i < to->n_devices; i++) {
    members t = line(g, false, counterpart(g, to->devices[i]));
    join(g, &t, to->devices[i]);
    add_team(g, &t, member(&t, to->devices[i]));
  }
}

/* The first sender with the right kept pieces that is itself in the team; else the counterpart. */
static int64_t scatter_root(const gathering *g, const members *receivers, int64_t first) {
  const ir_mesh_data *from = mesh_of(g, g->m->from);
  for (int64_t i = 0; i < from->n_devices; i++) {
    int64_t device = from->devices[i];
    if (member(receivers, device) >= 0 && same_kept(g, device, first)) return device;
  }
  return counterpart(g, first);
}

static void scatter_teams(gathering *g) {
  const ir_mesh_data *to = mesh_of(g, g->m->to);
  for (int64_t i = 0; i < to->n_devices; i++) {
    if (!leads(g, g->m->to, to->devices[i])) continue;
    members t = line(g, true, to->devices[i]);
    int64_t root = scatter_root(g, &t, to->devices[i]);
    join(g, &t, root);
    add_team(g, &t, member(&t, root));
  }
}

static void broadcast_team(gathering *g) {
  const ir_mesh_data *from = mesh_of(g, g->m->from), *to = mesh_of(g, g->m->to);
  members t = {0};
  int64_t root = -1;
  for (int64_t i = 0; i < to->n_devices; i++) vec_push(g->c->scratch, &t, to->devices[i]);
  for (int64_t i = 0; i < from->n_devices && root < 0; i++) {
    if (shard_position(g->c, g->m->to, from->devices[i]) >= 0) root = from->devices[i];
  }
  if (root < 0) {
    root = from->devices[0];
    vec_push(g->c->scratch, &t, root);
  }
  add_team(g, &t, member(&t, root));
}

static void pair_teams(gathering *g) {
  const ir_mesh_data *to = mesh_of(g, g->m->to);
  for (int64_t i = 0; i < to->n_devices; i++) {
    int64_t receiver = to->devices[i], sender = counterpart(g, receiver);
    if (g->m->mesh_axis != SHARD_NO_AXIS) { /* the same pieces in another order */
      sender = owner(g, false, sender, shard_comm_piece(g->c, g->m, true, receiver));
    }
    members t = {0};
    join(g, &t, sender);
    join(g, &t, receiver);
    add_team(g, &t, 0);
  }
}

shard_teams shard_comm_teams(shard_ctx *c, const shard_comm *m, int64_t device) {
  gathering g = {.c = c, .m = m, .only = device};
  switch (m->kind) {
  case SHARD_NONE:
  case SHARD_LOCAL_SLICE: break;
  case SHARD_BROADCAST:
    if (m->by_iteration) line_teams(&g, false, SHARD_ROOT_ITERATION);
    else broadcast_team(&g);
    break;
  case SHARD_GATHER:
  case SHARD_REDUCE: receiver_teams(&g); break;
  case SHARD_SCATTER: scatter_teams(&g); break;
  case SHARD_REDUCE_SCATTER: line_teams(&g, true, SHARD_ROOT_NONE); break;
  case SHARD_ALLGATHER:
  case SHARD_ALLREDUCE:
  case SHARD_SHIFT:
  case SHARD_ALL_TO_ALL: line_teams(&g, false, SHARD_ROOT_NONE); break;
  case SHARD_PERMUTE: line_teams(&g, false, SHARD_ROOT_ITERATION); break;
  case SHARD_SEND_RECV: pair_teams(&g); break;
  case SHARD_SEND:
  case SHARD_RECV:
  case SHARD_KINDS: impossible("a kind that no change of placement needs");
  }
  return g.result;
}
