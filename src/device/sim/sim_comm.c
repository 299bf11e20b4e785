#include "device/sim/sim_comm.h"

#include "device/sim/sim_alike.h"
#include "runtime/meet.h"

/* ---- matching ---- */
typedef struct turns {
  VEC(uint32_t) ops; /* of one circle, in order */
  rt_link link;
} turns;

typedef struct matching {
  sim_comms *c;
  const rt_speed *machine;
  arena *memory;
  rt_meet meet;
  VEC(turns) circles;
  VEC(sim_op) ops;
  bool *present; /* by rank: it is in the plan */
  sim_alike alike;
} matching;

/* A collective takes the time of a ring, each step of which moves a piece; broadcast and reduce that of a pipeline
 * along a chain. */
static void set_time(sim_op *op, const rt_speed *machine, const rt_post *p) {
  double n = p->n_team, steps = n - 1, pieces = 1;
  double piece_ns =
      (double)p->count * (double)ir_dtype_size_bytes(p->dtype) / op->link.bytes_per_ns;
  op->fixed_ns = op->bytes_ns = 0;
  if (p->n_team <= 1) return;
  switch (ir_comm_info_of(p->kind)->way) {
  case IR_WAY_CHAIN: break;
  case IR_WAY_RING: pieces = steps; break;
  case IR_WAY_TWICE:
    pieces = 2 * steps / n;
    steps *= machine->direct > 0 ? 1.5 : 2;
    break;
  case IR_WAY_PAIR: steps = 1; break;
  }
  op->fixed_ns = machine->post_ns + steps * op->link.latency_ns;
  op->bytes_ns = pieces * piece_ns;
}

static uint32_t count_present(const matching *m, const uint32_t *team, uint32_t n) {
  uint32_t present = 0;
  for (uint32_t i = 0; i < n; i++) present += m->present[team[i]];
  return present;
}

static rt_link link_of(const matching *m, const rt_circle *c, const rt_post *p) {
  bool far = c->n > 1 && sim_alike_is_far(&m->alike, c->devices[0], c->devices[1]);
  if (c->is_pair || (m->alike.mesh && m->alike.n == 1)) return rt_machine_link_of(m->machine, far);
  return rt_machine_link(m->machine, p);
}

/* Its team: the ranks whose links it takes. If ranks are alike, those that represent its members. */
static sim_op new_op(matching *m, const rt_circle *c) {
  sim_op op = {.is_message = c->is_pair, .team = c->devices, .n_team = c->n};
  op.expected = count_present(m, c->devices, c->n);
  if (!m->alike.mesh) return op;
  uint32_t *team = ARENA_ARRAY(m->memory, c->n, uint32_t);
  op.n_team = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t rank = c->is_pair ? sim_alike_of(&m->alike, c->devices[i]) : c->devices[i];
    if (m->present[rank]) team[op.n_team++] = rank;
  }
  op.team = team;
  if (c->is_pair) op.expected = c->n;
  return op;
}

/* The operation that a post is part of. */
static uint32_t join_op(matching *m, rt_part part, const rt_post *p) {
  const rt_circle *c = &m->meet.circles.data[part.circle];
  while (m->circles.len <= part.circle)
    vec_push(m->memory, &m->circles, ((turns){.link = link_of(m, c, p)}));
  turns *t = &m->circles.data[part.circle];
  if (part.turn == t->ops.len) {
    sim_op op = part.turn ? m->ops.data[t->ops.data[0]] : new_op(m, c);
    op.link = t->link;
    set_time(&op, m->machine, p);
    vec_push(m->memory, &t->ops, m->ops.len);
    vec_push(m->memory, &m->ops, op);
  }
  return t->ops.data[part.turn];
}

/* One half of rt_meet_post(), for a rank that represents others. */
static rt_part half_of(matching *m, const rt_post *p, bool sends) {
  uint32_t pair[2], me = p->team[p->me];
  if (sends) sim_alike_pair(&m->alike, me, p->team[p->to], pair);
  else sim_alike_pair(&m->alike, p->team[p->from], me, pair);
  rt_post half = {.kind = sends ? IR_COMM_SEND : IR_COMM_RECV, .team = pair, .n_team = 2};
  half.me = sends ? 0 : 1;
  half.to = sends ? 1 : RT_COMM_NOBODY;
  half.from = sends ? RT_COMM_NOBODY : 0;
  rt_part parts[2];
  rt_meet_post(&m->meet, &half, parts);
  return parts[sends ? 0 : 1];
}

static void meet(matching *m, const rt_post *p, rt_part parts[2]) {
  if (!m->alike.mesh || !ir_comm_is_message(p->kind)) {
    rt_meet_post(&m->meet, p, parts);
    return;
  }
  parts[0] = parts[1] = (rt_part){.circle = RT_NO_CIRCLE};
  if (p->kind != IR_COMM_RECV && p->to >= 0) parts[0] = half_of(m, p, true);
  if (p->kind != IR_COMM_SEND && p->from >= 0) parts[1] = half_of(m, p, false);
}

/* A post has up to two operations: a rank may send and receive, also to and from itself. */
static void match_post(matching *m, const rt_instr *instr, uint32_t i) {
  const rt_post *p = &m->c->plan->posts[instr->task];
  sim_post *s = &m->c->posts[instr->task];
  rt_post received = *p;
  rt_part parts[2];
  *s = (sim_post){.ops = {SIM_NOBODY, SIM_NOBODY}, .instr = i, .stream = instr->stream};
  if (p->kind == IR_COMM_PERMUTE) received.count = p->count_from;
  meet(m, p, parts);
  if (parts[0].circle != RT_NO_CIRCLE) s->ops[0] = join_op(m, parts[0], p);
  if (parts[1].circle != RT_NO_CIRCLE) s->ops[1] = join_op(m, parts[1], &received);
}

/* One more than the largest rank that a post names. */
static uint32_t count_ranks(const rt_plan *plan) {
  uint32_t n = plan->n_ranks;
  for (uint32_t p = 0; p < plan->n_posts; p++)
    for (uint32_t i = 0; i < plan->posts[p].n_team; i++)
      if (plan->posts[p].team[i] >= n) n = plan->posts[p].team[i] + 1;
  return n;
}

static void find_ranks(matching *m) {
  const rt_plan *plan = m->c->plan;
  m->present = ARENA_ARRAY(m->memory, m->c->n_links, bool);
  for (uint32_t r = 0; plan->n_ranks > 1 && !plan->kin && r < plan->n_ranks; r++)
    m->present[r] = true;
  for (uint32_t p = 0; p < plan->n_posts; p++) m->present[plan->posts[p].rank] = true;
}

void sim_comms_build(sim_comms *c, const rt_plan *plan, const rt_speed *machine, arena *memory) {
  *c = (sim_comms){.plan = plan};
  if (plan->n_posts == 0) return;
  c->n_links = count_ranks(plan);
  matching m = {.c = c, .machine = machine, .memory = memory};
  rt_meet_init(&m.meet, memory);
  find_ranks(&m);
  sim_alike_begin(&m.alike, plan, machine, memory);
  c->posts = ARENA_ARRAY(memory, plan->n_posts, sim_post);
  for (uint32_t i = 0; i < plan->n_instrs; i++)
    if (plan->instrs[i].kind == RT_POST) match_post(&m, &plan->instrs[i], i);
  c->ops = m.ops.data;
  c->n_ops = m.ops.len;
  c->waiting = ARENA_ARRAY(memory, c->n_ops, uint32_t);
  c->sends = ARENA_ARRAY(memory, c->n_links, sim_moment);
  c->receives = ARENA_ARRAY(memory, c->n_links, sim_moment);
  c->recovered_ns = ARENA_ARRAY(memory, c->n_links, double);
}

/* ---- runs ---- */
void sim_comms_begin(sim_comms *c) {
  c->n_waiting = 0;
  for (uint32_t i = 0; i < c->n_ops; i++) {
    c->ops[i].posted = 0;
    c->ops[i].is_done = false;
    c->ops[i].ready = (sim_moment){0, SIM_NOBODY};
  }
  for (uint32_t p = 0; p < c->plan->n_posts; p++) c->posts[p].is_posted = false;
  for (uint32_t r = 0; c->n_ops && r < c->n_links; r++) {
    c->sends[r] = c->receives[r] = (sim_moment){0, SIM_NOBODY};
    c->recovered_ns[r] = 0;
  }
}

void sim_comms_post(sim_comms *c, uint32_t post, sim_moment at) {
  sim_post *p = &c->posts[post];
  p->is_posted = true;
  p->start = at;
  for (uint32_t h = 0; h < 2; h++) {
    if (p->ops[h] == SIM_NOBODY) continue;
    sim_op *op = &c->ops[p->ops[h]];
    if (op->posted == 0 || at.ns > op->ready.ns) {
      op->ready = at;
      op->last = p->instr;
    }
    if (++op->posted == op->expected) c->waiting[c->n_waiting++] = p->ops[h];
  }
}

uint32_t sim_comms_first(const sim_comms *c) {
  uint32_t best = SIM_NOBODY;
  for (uint32_t i = 0; i < c->n_waiting; i++) {
    uint32_t k = c->waiting[i];
    double ns = c->ops[k].ready.ns;
    if (best == SIM_NOBODY || ns < c->ops[best].ready.ns ||
        (ns == c->ops[best].ready.ns && k < best))
      best = k;
  }
  return best;
}

/* Returns when the links are free. If `end` is not NULL, takes them until then. */
static sim_moment use_links(sim_comms *c, const sim_op *op, const sim_moment *end) {
  sim_moment free = {0, SIM_NOBODY};
  for (uint32_t i = 0; i < op->n_team; i++) {
    uint32_t rank = op->team[i];
    bool sends = !op->is_message || i == 0, receives = !op->is_message || i == 1;
    if (sends) free = sim_later(free, c->sends[rank]);
    if (receives) free = sim_later(free, c->receives[rank]);
    if (sends && end) c->sends[rank] = *end;
    if (receives && end) c->receives[rank] = *end;
  }
  return free;
}

/* Returns when its bytes have passed all links that send them. */
static double send_bytes(sim_comms *c, const sim_op *op, double start_ns) {
  double end_ns = start_ns;
  for (uint32_t i = 0; i < op->n_team && !(op->is_message && i); i++) {
    double through_ns =
        rt_link_through_ns(op->link, start_ns, op->bytes_ns, &c->recovered_ns[op->team[i]]);
    if (through_ns > end_ns) end_ns = through_ns;
  }
  return end_ns;
}

bool sim_comms_delay(sim_comms *c, uint32_t k) {
  sim_op *op = &c->ops[k];
  sim_moment free = use_links(c, op, NULL);
  if (free.ns <= op->ready.ns) return false;
  op->ready = free;
  return true;
}

/* The communication takes part of a core of each rank that is simulated. */
static void use_cores(sim_cores *cores, const rt_plan *plan, sim_op *op, double start_ns) {
  for (uint32_t i = 0; i < op->n_team; i++)
    if (op->team[i] < plan->n_ranks)
      op->end = sim_later(op->end, sim_cores_communicate(cores, op->team[i], start_ns, op->end));
}

uint32_t sim_comms_start(sim_comms *c, uint32_t k, sim_cores *cores) {
  sim_op *op = &c->ops[k];
  uint32_t at = 0;
  while (c->waiting[at] != k) at++;
  c->waiting[at] = c->waiting[--c->n_waiting];
  sim_moment start = sim_later(op->ready, use_links(c, op, NULL));
  op->end = (sim_moment){send_bytes(c, op, start.ns) + op->fixed_ns, c->plan->n_instrs + k};
  op->is_done = true;
  if (cores->n) use_cores(cores, c->plan, op, start.ns);
  (void)use_links(c, op, &op->end);
  return start.cause;
}

bool sim_comms_may_post(const sim_comms *c, uint32_t post, sim_moment *at) {
  uint32_t before = c->plan->posts[post].before;
  if (before == RT_NO_POST) return true;
  if (c->posts[before].is_posted) *at = sim_later(*at, c->posts[before].start);
  return c->posts[before].is_posted;
}

uint32_t sim_comms_open(const sim_comms *c, uint32_t post) {
  for (uint32_t h = 0; h < 2; h++) {
    uint32_t k = c->posts[post].ops[h];
    if (k != SIM_NOBODY && !c->ops[k].is_done) return k;
  }
  return SIM_NOBODY;
}

bool sim_comms_end(const sim_comms *c, uint32_t post, sim_moment *end) {
  *end = (sim_moment){0, SIM_NOBODY};
  for (uint32_t h = 0; h < 2; h++) {
    uint32_t k = c->posts[post].ops[h];
    if (k == SIM_NOBODY) continue;
    if (!c->ops[k].is_done) return false;
    *end = sim_later(*end, c->ops[k].end);
  }
  return true;
}
