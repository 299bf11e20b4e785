/* Communications: what the running device posts, and the waits for it. */
#include <string.h>

#include "bind/internal.h"

/* ---- names ---- */

/* The posts that the name of a communication or group has now. */
static bind_comms *named(binder *b, uint32_t name) {
  uint32_t at = map_get(&b->comm_names, name, 0);
  if (at == 0) {
    vec_push(&b->scratch, &b->comms, (bind_comms){0});
    at = b->comms.len;
    map_put(&b->comm_names, name, at);
  }
  return &b->comms.data[at - 1];
}

static void begin_named(binder *b, uint32_t name, uint32_t first) {
  bind_comms *c = named(b, name);
  *c = (bind_comms){.first = first, .n = b->posts.len - first, .posted = true};
}

/* ---- memory ---- */

static int64_t elements(const rt_view *v) {
  int64_t n = 1;
  for (uint32_t i = 0; i < v->rank; i++) n *= v->extents[i];
  return n;
}

static bool is_dense(const rt_view *v) {
  int64_t stride = 1;
  for (uint32_t i = v->rank; i-- > 0;) {
    if (v->extents[i] == 1) continue;
    if (v->extents[i] == 0) return true;
    if (v->strides[i] != stride) return false;
    stride *= v->extents[i];
  }
  return true;
}

typedef struct posting {
  binder *b;
  const ir_instr_data *d;
  rt_post post;
  uint32_t team;   /* in b->teams */
  bool root_apart; /* gather, scatter: the root has no piece of its own */
} posting;

static const char *name_of(const posting *p, ir_tensor t) { return ir_tensor_name(p->b->h, t); }

/* The view of a tensor that takes part, and its elements. There is none if the tensor is not on this device,
 * or has no role here. */
static bool take_buffer(posting *p, ir_tensor t, bool role, uint32_t *view, int64_t *count) {
  *view = RT_NO_VIEW;
  *count = 0;
  if (t.id == 0 || !role || p->b->absent[t.id]) return true;
  if (!p->b->bound[t.id]) return bind_error(p->b, p->d, "'%s' has no value here", name_of(p, t));
  const rt_view *v = &p->b->views[t.id];
  if (!is_dense(v))
    return bind_error(p->b, p->d, "the memory of '%s' has gaps; communicate a dense copy of it",
                      name_of(p, t));
  *view = bind_add_view(p->b, t);
  *count = elements(v);
  return true;
}

/* ---- team ---- */

static bool same_team(const bind_team *t, const int64_t *line, uint32_t n) {
  bool same = t->n == n;
  for (uint32_t k = 0; same && k < n; k++) same = t->devices[k] == line[k];
  return same;
}

/* Each list of devices is stored once, so that equal teams have one address. */
static uint32_t team_of(binder *b, const int64_t *line, uint32_t n) {
  for (uint32_t i = 0; i < b->teams.len; i++)
    if (same_team(&b->teams.data[i], line, n)) return i;
  uint32_t *devices = ARENA_ARRAY(b->memory, n, uint32_t);
  for (uint32_t k = 0; k < n; k++) devices[k] = (uint32_t)line[k];
  vec_push(&b->scratch, &b->teams, ((bind_team){.devices = devices, .n = n}));
  return b->teams.len - 1;
}

static bind_line find_line(binder *b, ir_mesh mesh, uint32_t axis) {
  const ir_mesh_data *m = ir_mesh_at(b->h, mesh);
  int64_t at = ir_mesh_find(m, b->rank);
  bind_line l = {.mesh = mesh, .axis = axis, .member = at >= 0};
  if (!l.member) return l;
  uint32_t n = (uint32_t)ir_mesh_size(m, axis);
  int64_t *line = ARENA_ARRAY(&b->scratch, n, int64_t);
  ir_mesh_slice(m, at, axis, line);
  l.team = team_of(b, line, n);
  l.me = (uint32_t)ir_mesh_coordinate(m, at, axis);
  return l;
}

static const bind_line *line_of(binder *b, ir_mesh mesh, uint32_t axis) {
  for (uint32_t i = 0; i < b->lines.len; i++) {
    const bind_line *l = &b->lines.data[i];
    if (IR_SAME(l->mesh, mesh) && l->axis == axis) return l;
  }
  bind_line l = find_line(b, mesh, axis);
  vec_push(&b->scratch, &b->lines, l);
  return &b->lines.data[b->lines.len - 1];
}

static bool find_team(posting *p) {
  const bind_line *l = line_of(p->b, p->d->team, p->d->team_axis);
  if (!l->member) return false;
  p->team = l->team;
  p->post.team = p->b->teams.data[l->team].devices;
  p->post.n_team = p->b->teams.data[l->team].n;
  p->post.me = l->me;
  return true;
}

/* May its peers be others in the next iteration? If this plan represents other ranks, they are as far from
 * each rank in all iterations. */
static bool may_move(const posting *p) {
  bool message = p->d->comm == IR_COMM_SEND || p->d->comm == IR_COMM_RECV;
  return message && bind_is_alone(p->b);
}

static bool team_rank(posting *p, ir_scalar x, const char *what, int64_t *rank) {
  uint32_t axis;
  if (!bind_eval_turning(p->b, p->d, x, rank, &axis)) return false;
  if (p->b->watch && may_move(p)) bind_watch_index(p->b, x, p->post.n_team);
  else if (p->b->watch) bind_watch_value(p->b, x);
  uint32_t wanted = ir_comm_has_root(p->d->comm) ? 0 : p->d->team_axis + 1;
  if (axis != wanted && p->post.n_team > 1) bind_unlike(p->b);
  if (*rank >= 0 && *rank < p->post.n_team) return true;
  return bind_error(p->b, p->d, "the %s is %lld, but the team has members 0 to %u", what,
                    (long long)*rank, p->post.n_team - 1);
}

static bool find_peers(posting *p) {
  const ir_instr_data *d = p->d;
  int64_t x;
  p->post.to = p->post.from = RT_COMM_NOBODY;
  if (ir_comm_has_root(d->comm)) {
    if (!team_rank(p, d->root, "root", &x)) return false;
    p->post.root = (uint32_t)x;
    if (p->post.n_team > 1 && d->comm == IR_COMM_SEND_RECV) bind_unlike(p->b); /* others receive */
  }
  if (d->comm == IR_COMM_SEND || d->comm == IR_COMM_PERMUTE) {
    if (!team_rank(p, d->to, "receiver", &x)) return false;
    p->post.to = (int32_t)x;
  }
  if (d->comm == IR_COMM_RECV || d->comm == IR_COMM_PERMUTE) {
    if (!team_rank(p, d->peer, "sender", &x)) return false;
    p->post.from = (int32_t)x;
  }
  if (d->comm != IR_COMM_SEND_RECV) return true;
  if (p->post.n_team != 2)
    return bind_error(p->b, d, "send_recv is for a team of two, not %u", p->post.n_team);
  /* mutant: dev_receiver_sends */
  bool sends = p->post.me == p->post.root;
  p->post.kind = sends ? IR_COMM_SEND : IR_COMM_RECV;
  p->post.to = sends ? (int32_t)(1 - p->post.me) : RT_COMM_NOBODY;
  p->post.from = sends ? RT_COMM_NOBODY : (int32_t)p->post.root;
  return true;
}

/* ---- roles ---- */

typedef struct roles {
  bool in, out;
  bool in_pieces, out_pieces; /* one piece per member, instead of one */
} roles;

static roles roles_of(const rt_post *p) {
  const ir_comm_info *info = ir_comm_info_of(p->kind);
  bool root = p->me == p->root;
  return (roles){.in = info->root == IR_ROOT_SENDS ? root : p->kind != IR_COMM_RECV,
                 /* mutant: dev_recv_nowhere */
                 .out = info->root == IR_ROOT_RECEIVES ? root : p->kind != IR_COMM_SEND,
                 .in_pieces = info->in == IR_PIECES_TEAM,
                 .out_pieces = info->out == IR_PIECES_TEAM};
}

/* Elements of one piece of a buffer. A root outside the senders or receivers comes last and has no
 * piece, so there may be one piece less than members. */
static bool piece_of(posting *p, ir_tensor t, int64_t all, bool pieces, int64_t *one) {
  int64_t n = p->post.n_team;
  *one = all;
  if (!pieces) return true;
  if (p->root_apart) n--;
  if (n > 0 && all % n == 0) {
    *one = all / n;
    return true;
  }
  return bind_error(p->b, p->d, "the %lld elements of '%s' are not %lld pieces of equal length",
                    (long long)all, name_of(p, t), (long long)n);
}

static bool is_on(const binder *b, ir_tensor t, int64_t device) {
  ir_mesh mesh = t.id ? ir_tensor_at(b->h, t)->mesh : (ir_mesh){0};
  return mesh.id == 0 || ir_mesh_find(ir_mesh_at(b->h, mesh), device) >= 0;
}

static void find_lone_root(posting *p) {
  int64_t root = p->post.team[p->post.root];
  if (p->post.kind == IR_COMM_GATHER) p->root_apart = !is_on(p->b, p->d->from, root);
  if (p->post.kind == IR_COMM_SCATTER) p->root_apart = !is_on(p->b, p->d->tensor, root);
}

/* What the root touches and this rank does not. It counts as touched, so that the plan has the same places on all
 * ranks. */
static void take_root_view(posting *p) {
  const ir_comm_info *info = ir_comm_info_of(p->post.kind);
  bool sends = info->root == IR_ROOT_SENDS;
  ir_tensor t = sends ? p->d->from : p->d->tensor;
  if (!p->b->alike || info->root == IR_ROOT_NO || p->post.me == p->post.root) return;
  if (t.id == 0 || p->b->absent[t.id]) return;
  bool pieces = (sends ? info->in : info->out) == IR_PIECES_TEAM;
  int64_t count = p->post.count * (pieces ? p->post.n_team : 1);
  bool fits =
      p->b->bound[t.id] && is_dense(&p->b->views[t.id]) && elements(&p->b->views[t.id]) == count;
  if (fits) p->post.root_view = bind_add_view(p->b, t) + 1;
  else bind_unlike(p->b); /* the root's plan says what is wrong */
}

static bool take_buffers(posting *p) {
  const ir_instr_data *d = p->d;
  roles r = roles_of(&p->post);
  int64_t in, out, in_piece, out_piece;
  find_lone_root(p);
  if (!take_buffer(p, d->from, r.in, &p->post.in, &in)) return false;
  if (!take_buffer(p, d->tensor, r.out, &p->post.out, &out)) return false;
  bool has_in = p->post.in != RT_NO_VIEW, has_out = p->post.out != RT_NO_VIEW;
  if (!piece_of(p, d->from, in, r.in_pieces, &in_piece)) return false;
  if (!piece_of(p, d->tensor, out, r.out_pieces, &out_piece)) return false;
  p->post.count = has_in ? in_piece : out_piece;
  if (p->post.kind == IR_COMM_PERMUTE) {
    p->post.count_from = out_piece;
    return true;
  }
  if (!has_in && !has_out && (r.in || r.out))
    return bind_error(p->b, d, "device %lld takes part, but has none of the tensors",
                      (long long)p->b->rank);
  if (!has_in || !has_out || in_piece == out_piece) return true;
  return bind_error(p->b, d, "'%s' has pieces of %lld elements, '%s' of %lld", name_of(p, d->from),
                    (long long)in_piece, name_of(p, d->tensor), (long long)out_piece);
}

/* ---- instructions ---- */

static void put(binder *b, ir_instr at, rt_instr_kind kind, uint32_t post) {
  rt_instr i = {
      .kind = (uint8_t)kind, .stream = (uint16_t)b->stream, .task = post, .origin = at.id};
  bind_row_add(b, &b->instrs, &i);
  b->clocks[b->stream][b->stream] = ++b->positions[b->stream];
  const rt_post *p = &b->posts.data[post];
  if (p->in != RT_NO_VIEW) bind_touch(b, bind_view_at(b, p->in)->buffer);
  if (p->out != RT_NO_VIEW) bind_touch(b, bind_view_at(b, p->out)->buffer);
  if (p->root_view) bind_touch(b, bind_view_at(b, p->root_view - 1)->buffer);
}

/* The post that this one must come after: the last one of its team; of messages, which are matched per pair
 * in whatever team they are posted, the last message. This post then becomes the last one. */
static uint32_t last_on_team(posting *p) {
  binder *b = p->b;
  uint32_t *last =
      ir_comm_is_message(p->post.kind) ? &b->last_message : &b->teams.data[p->team].last;
  uint32_t before = *last ? *last - 1 : RT_NO_POST;
  *last = b->posts.len + 1;
  return before;
}

bool bind_communicate(binder *b, ir_instr at, const ir_instr_data *d) {
  posting p = {.b = b, .d = d};
  uint32_t first = b->posts.len;
  if (find_team(&p)) {
    p.post.kind = d->comm == IR_COMM_SEND_RECV ? IR_COMM_RECV : d->comm;
    /* mutant: dev_sum_is_max */
    p.post.op = d->combine;
    p.post.dtype = ir_tensor_at(b->h, d->from.id ? d->from : d->tensor)->dtype;
    p.post.rank = (uint32_t)b->rank;
    p.post.again = p.post.next = RT_NO_POST;
    if (!find_peers(&p) || !take_buffers(&p)) return false;
    take_root_view(&p);
    p.post.before = last_on_team(&p);
    vec_push(&b->scratch, &b->posts, p.post);
    put(b, at, RT_POST, first);
  }
  if (!b->in_group) begin_named(b, d->name, first);
  return true;
}

bool bind_group_start(binder *b, const ir_instr_data *d) {
  if (b->in_group) return bind_error(b, d, "groups do not nest");
  b->in_group = true;
  b->group_first = b->posts.len;
  return true;
}

bool bind_group_end(binder *b, const ir_instr_data *d) {
  if (!b->in_group) return bind_error(b, d, "there is no group to end");
  b->in_group = false;
  begin_named(b, d->name, b->group_first);
  return true;
}

/* Several streams may wait for one communication; one stream once is enough. */
bool bind_wait(binder *b, ir_instr at, const ir_instr_data *d) {
  bind_comms *c = named(b, d->name);
  if (!c->posted)
    return bind_error(b, d, "'%s' has not been posted here", ir_name_text(b->h, d->name));
  if (c->joined && c->joined_by == b->stream) return true;
  c->joined = true;
  c->joined_by = b->stream;
  /* mutant: dev_no_joins */
  for (uint32_t i = 0; i < c->n; i++) put(b, at, RT_JOIN, c->first + i);
  for (uint32_t i = 0; i < c->n; i++) b->posts.data[c->first + i].joined = true;
  return true;
}

bool bind_comms_end(binder *b) {
  bool ok = true;
  ir_instr_data place = {.at = b->h->at};
  if (b->in_group) ok = bind_error(b, &place, "a group is not ended");
  uint32_t open = 0;
  for (uint32_t i = 0; i < b->posts.len; i++) open += !b->posts.data[i].joined;
  if (open && ok) ok = bind_error(b, &place, "%u communications are never waited for", open);
  return ok;
}
