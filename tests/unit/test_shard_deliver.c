/* Random changes of placement: communications deliver what is needed. */
#include "unit/shard_random_kit.h"

typedef struct delivery {
  const ir_op_data *op;
  shard_comm m;
  bool served[8];
} delivery;

static ir_tensor operand_of(const delivery *d) { return d->op->operands[0]; }

static bool in_mesh(ir_mesh mesh, int64_t device) {
  return ir_mesh_find(ir_mesh_at(f, mesh), device) >= 0;
}

/* How many of the team, from the first, send; the others only receive. */
static uint32_t senders(const delivery *d, const shard_team *t) {
  uint32_t n = 0;
  int64_t line = ir_mesh_size(ir_mesh_at(f, d->m.from), (uint32_t)d->m.mesh_axis);
  while (n < t->len && n < (uint32_t)line) n++;
  return n;
}

/* What the senders have together; false if two have the same. */
static bool together(const delivery *d, const shard_team *t, elements *sum) {
  bool apart = true;
  memset(sum, 0, sizeof *sum);
  for (uint32_t i = 0; i < senders(d, t); i++) {
    elements e;
    held_by(operand_of(d), t->devices[i], &e);
    apart = unite(sum, &e) && apart;
  }
  return apart;
}

/* The receiver needs what the team has together, or a part of it if it takes a slice. */
static bool receives(delivery *d, int64_t device, const elements *sum, bool part) {
  elements need;
  needed_by(d->op, 0, device, &need);
  d->served[device] = true;
  return part ? within(&need, sum) : equal(&need, sum);
}

static bool gathers(delivery *d, const shard_team *t) {
  elements sum;
  bool part = d->m.sliced || d->m.kind == SHARD_ALL_TO_ALL || d->m.kind == SHARD_REDUCE_SCATTER;
  bool ok = together(d, t, &sum);
  for (uint32_t i = 0; i < t->len; i++) {
    if (t->root != SHARD_ROOT_NONE && t->root != (int32_t)i) continue;
    ok = receives(d, t->devices[i], &sum, part) && ok;
  }
  return ok;
}

/* In the order of pieces? */
static bool ordered(const delivery *d, const shard_team *t, bool after) {
  for (uint32_t i = 0; i < senders(d, t); i++) {
    if (shard_comm_piece(ctx, &d->m, after, t->devices[i]) != (int64_t)i) return false;
  }
  return true;
}

/* The length of a line of receivers. */
static uint32_t receivers(const delivery *d) {
  return (uint32_t)ir_mesh_size(ir_mesh_at(f, d->m.to), (uint32_t)d->m.mesh_axis);
}

static bool root_sends(delivery *d, const shard_team *t, bool part) {
  elements have;
  bool ok = true;
  held_by(operand_of(d), t->devices[t->root], &have);
  for (uint32_t i = 0; i < t->len; i++) {
    bool appended =
        (int32_t)i == t->root &&
        (d->m.kind == SHARD_SCATTER ? i >= receivers(d) : !in_mesh(d->m.to, t->devices[i]));
    bool sender = d->m.kind == SHARD_SEND_RECV && i == 0 && t->len > 1;
    if (!appended && !sender) ok = receives(d, t->devices[i], &have, part) && ok;
  }
  return ok;
}

static ir_axis stream_axis(ir_tensor t) {
  ir_axes loop = ir_tensor_at(f, t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (ir_axis_at(f, loop.data[i])->mark.kind == IR_MARK_STREAM) return loop.data[i];
  }
  return (ir_axis){0};
}

/* The slice of the result that a device works on in an iteration; element numbers of a set agree. */
static void slice_of(ir_tensor t, int64_t device, int64_t iteration, elements *e) {
  point p = point_of(t, device);
  p.len = dims_of(t, p.axis);
  uint32_t i = 0;
  memset(e, 0, sizeof *e);
  do e->in[i++] = holds(t, &p) && index_at(&p, stream_axis(t)) == iteration;
  while (next_point(&p));
}

static bool iterates(delivery *d, const shard_team *t) {
  bool permutes = d->m.kind == SHARD_PERMUTE, ok = true;
  for (int64_t me = 0; me < (int64_t)t->len; me++) {
    d->served[t->devices[me]] = true;
    for (int64_t i = 0; i < (int64_t)t->len; i++) {
      elements have, need;
      int64_t from = permutes ? shard_permute_source(me, i, t->len) : i;
      if (permutes) ok = ok && shard_permute_target(from, i, t->len) == me;
      held_by(operand_of(d), t->devices[from], &have);
      slice_of(d->op->result, t->devices[me], i, &need);
      ok = equal(&have, &need) && ok;
    }
  }
  return ok;
}

static bool team_delivers(delivery *d, const shard_team *t) {
  switch (d->m.kind) {
  case SHARD_NONE:
  case SHARD_SEND:
  case SHARD_RECV:
  case SHARD_KINDS:
  case SHARD_LOCAL_SLICE: return false; /* have no teams */
  case SHARD_SHIFT: return false;       /* no set or reduction shifts */
  case SHARD_ALLGATHER:
  case SHARD_ALL_TO_ALL:
  case SHARD_GATHER:
  case SHARD_REDUCE:
  case SHARD_ALLREDUCE: return ordered(d, t, false) && gathers(d, t);
  case SHARD_REDUCE_SCATTER: return ordered(d, t, true) && gathers(d, t);
  case SHARD_SCATTER:
    for (uint32_t i = 0; i < receivers(d); i++) {
      if (shard_comm_piece(ctx, &d->m, true, t->devices[i]) != (int64_t)i) return false;
    }
    return root_sends(d, t, true);
  case SHARD_SEND_RECV: return root_sends(d, t, false);
  case SHARD_BROADCAST: return d->m.by_iteration ? iterates(d, t) : root_sends(d, t, false);
  case SHARD_PERMUTE: return iterates(d, t);
  }
  return false;
}

/* Without teams, everybody has what it needs. */
static bool in_place(delivery *d) {
  elements have, need;
  const ir_mesh_data *to = ir_mesh_at(f, d->m.to);
  bool ok = true;
  for (int64_t i = 0; i < to->n_devices; i++) {
    held_by(operand_of(d), to->devices[i], &have);
    needed_by(d->op, 0, to->devices[i], &need);
    d->served[to->devices[i]] = true;
    ok = ok && (d->m.kind == SHARD_NONE ? equal(&need, &have) : within(&need, &have));
  }
  return ok;
}

/* What one device is told about its teams is what all are told. */
static bool devices_agree(const delivery *d, const shard_teams *all) {
  for (int64_t device = 0; device < 8; device++) {
    shard_teams mine = shard_comm_teams(ctx, &d->m, device);
    uint32_t k = 0;
    for (uint32_t i = 0; i < all->list.len; i++) {
      const shard_team *t = &all->list.data[i];
      bool member = false;
      for (uint32_t j = 0; j < t->len; j++) member |= t->devices[j] == device;
      if (!member) continue;
      const shard_team *own = k < mine.list.len ? &mine.list.data[k++] : NULL;
      if (!own || own->len != t->len || own->root != t->root) return false;
      if (memcmp(own->devices, t->devices, t->len * sizeof *t->devices) != 0) return false;
    }
    if (k != mine.list.len) return false;
  }
  return true;
}

static bool delivers(delivery *d) {
  shard_teams teams = shard_comm_teams(ctx, &d->m, SHARD_EVERY_DEVICE);
  bool local = d->m.kind == SHARD_NONE || d->m.kind == SHARD_LOCAL_SLICE;
  bool ok = local ? in_place(d) : devices_agree(d, &teams);
  for (uint32_t i = 0; i < teams.list.len; i++) ok = team_delivers(d, &teams.list.data[i]) && ok;
  const ir_mesh_data *to = ir_mesh_at(f, d->m.to);
  for (int64_t i = 0; i < to->n_devices; i++) ok = ok && d->served[to->devices[i]];
  return ok;
}

typedef struct tally {
  uint32_t kinds[SHARD_KINDS], several, computes, unsupported;
} tally;

static void check_comm(tally *n) {
  delivery d = {.op = def("y")};
  bool moves = shard_is_resharding(ctx, d.op), ok = true;
  shard_answer answer = shard_comm_of(ctx, d.op, &d.m);
  if (answer == SHARD_ONE) {
    n->kinds[d.m.kind]++;
    ok = delivers(&d);
    if (!d.m.reduces) ok = ok && moves == (d.m.kind != SHARD_NONE);
  }
  n->several += answer == SHARD_SEVERAL;
  n->computes += answer == SHARD_COMPUTES;
  n->unsupported += answer == SHARD_UNSUPPORTED;
  if (EXPECT(ok)) return;
  fprintf(stderr, "seed %d: %s\n%s", (int)seed_now, shard_comm_name(d.m.kind), body);
}

/* A loop over the very pieces in which the operand lies. */
static void draw_iteration(const grid *p, uint32_t k) {
  int n = (int)p->shape[p->rank - 1 - k];
  put("x, y on p\nx.outer_split(0, %d)\nx[0] = mesh.%c\ny.outer_split(0, %d)\n", n, "xyz"[k], n);
  if (chance(50)) put("y.swizzle(0, mesh.%c)\n", "xyz"[k]);
  put("y[0] = stream\n}\n");
}

/* A set, a squeeze, or a sum over an axis with a position per device. */
static void comm_case(uint64_t seed, tally *n) {
  grid p, q;
  shape x = {0};
  loops result;
  seed_now = seed;
  drawn = n_named = 0;
  body[0] = 0;
  draw_meshes(&p, &q);
  uint32_t op = pick(3), k = pick(p.rank), rank = 1 + pick(3);
  for (uint32_t i = 0; i < rank; i++) draw_dim(&x, true);
  if (op > 0) x.name[0] = -1;
  if (op == 1) x.size[0] = p.shape[p.rank - 1 - k];
  if (op == 2) x.size[0] = 1;
  put("x : f32");
  put_shape(&x);
  put("\ny = %s\n", op == 0 ? "set(x)" : op == 1 ? "sum(x, dims=[0])" : "squeeze(x, dims=[0])");
  if (!loops_of_result(&result)) return;
  put("return y\nschedule {\n");
  if (op == 0 && chance(6)) {
    draw_iteration(&p, k);
    if (random_program(body)) check_comm(n);
    return;
  }
  if (op == 1) put("x[0] = mesh.%c\n", "xyz"[k]);
  uint32_t density = 25 + pick(40);
  uint64_t start = drawn;
  loops l = loops_of(&x);
  l.fixed[0] = op == 1;
  draw_placement("x", &l, &p, "p", density);
  draw_memory(&l, x.len);
  uint32_t dims = op == 0 ? x.len : x.len - 1;
  if (chance(40)) drawn = start;
  draw_placement("y", &result, &q, "q", density);
  if (result.len) draw_memory(&result, dims);
  put("}\n");
  if (random_program(body)) check_comm(n);
}

static void communications(void) {
  tally n = {0};
  for (uint64_t seed = 0; seed < 12000; seed++) comm_case(seed, &n);
  for (uint32_t k = 0; k < SHARD_KINDS; k++) {
    if (k == SHARD_SHIFT || k == SHARD_SEND || k == SHARD_RECV) continue;
    printf("%s %u, ", shard_comm_name((shard_comm_kind)k), n.kinds[k]);
    EXPECT(n.kinds[k] >= 5);
  }
  printf("several %u, computes %u, unsupported %u\n", n.several, n.computes, n.unsupported);
}

int main(void) {
  communications();
  forget();
  return test_finish();
}
