#include "ir/host_verify.h"

static bool is_const(const ir_func *h, ir_scalar x, int64_t *value) {
  return ir_scalar_is_const(&h->module->scalars, x, value);
}

#define BROKEN(h, at, ...) (diag_error(&(h)->module->errors, (at), __VA_ARGS__), false)

/* ---- one communication ---- */
static int64_t team_size(const ir_func *h, const ir_instr_data *d) {
  return ir_mesh_size(ir_mesh_at(h, d->team), d->team_axis);
}

static bool team_fits(ir_func *h, const ir_instr_data *d) {
  const ir_mesh_data *m = ir_mesh_at(h, d->team);
  if (d->team_axis >= m->rank) {
    return BROKEN(h, d->at, "mesh '%s' has no axis %u; it has %u", ir_name_text(h, m->name),
                  d->team_axis, m->rank);
  }
  if (d->comm != IR_COMM_SEND_RECV || team_size(h, d) == 2) return true;
  return BROKEN(h, d->at, "send_recv is for a team of two devices, and this one has %lld",
                (long long)team_size(h, d));
}

static bool rank_fits(ir_func *h, const ir_instr_data *d, ir_scalar rank, const char *key) {
  int64_t value;
  if (!rank.id || !is_const(h, rank, &value)) return true;
  if (value >= 0 && value < team_size(h, d)) return true;
  return BROKEN(h, d->at, "%s=%lld is no position in a team of %lld devices", key, (long long)value,
                (long long)team_size(h, d));
}

static bool types_fit(ir_func *h, const ir_instr_data *d) {
  const ir_comm_info *info = ir_comm_info_of(d->comm);
  ir_dtype to = ir_tensor_at(h, d->tensor)->dtype;
  if (ir_tensor_at(h, d->from)->dtype != to) {
    return BROKEN(h, d->at, "%s keeps the dtype, but '%s' is %s and '%s' is %s", info->text,
                  ir_tensor_name(h, d->from), ir_type_text(h, d->from),
                  ir_tensor_name(h, d->tensor), ir_type_text(h, d->tensor));
  }
  bool bits =
      d->combine == IR_COMBINE_AND || d->combine == IR_COMBINE_OR || d->combine == IR_COMBINE_XOR;
  if (!info->combines || !bits || !ir_dtype_is_float(to)) return true;
  return BROKEN(h, d->at, "op=%s combines bits; '%s' is %s", ir_combine_text(d->combine),
                ir_tensor_name(h, d->tensor), ir_type_text(h, d->tensor));
}

static ir_scalar elements_of(ir_func *h, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalars *s = &h->module->scalars;
  uint32_t rank = ir_tensor_dims(h, t, dims);
  ir_scalar n = ir_scalar_const(s, 1);
  for (uint32_t i = 0; i < rank; i++) n = ir_scalar_mul(s, n, ir_axis_size(h, dims[i]));
  return n;
}

/* Does x differ between devices? */
static bool is_local(const ir_scalars *s, ir_scalar x) {
  return ir_scalar_has(s, x, IR_SYMBOL_RANK);
}

/* The factors for which elements sent * `sent` == elements received * `received`. */
static void shares(const ir_instr_data *d, int64_t team, int64_t *sent, int64_t *received) {
  bool in = ir_comm_in_pieces(d->comm), out = ir_comm_out_pieces(d->comm);
  *sent = out && !in ? team : 1;
  *received = in && !out ? team : 1;
}

/* Does the root of a gather or scatter have no piece of its own, since it is not on the mesh of the pieces? */
static bool is_apart(const ir_func *h, const ir_instr_data *d) {
  ir_tensor one = d->comm == IR_COMM_GATHER ? d->from : d->tensor;
  ir_mesh mesh = one.id ? ir_tensor_at(h, one)->mesh : (ir_mesh){0};
  const ir_mesh_data *team = ir_mesh_at(h, d->team);
  int64_t root;
  if (d->comm != IR_COMM_GATHER && d->comm != IR_COMM_SCATTER) return false;
  if (!mesh.id || team->rank != 1) return false;
  if (!ir_scalar_is_const(&h->module->scalars, d->root, &root)) return false;
  bool inside = root >= 0 && root < team->n_devices;
  return inside && ir_mesh_find(ir_mesh_at(h, mesh), team->devices[root]) < 0;
}

/* Left to binding: parts of different lengths, and what depends on extents. */
static bool counts_fit(ir_func *h, const ir_instr_data *d) {
  ir_scalars *s = &h->module->scalars;
  int64_t team = team_size(h, d), sent, received, n;
  ir_scalar from = elements_of(h, d->from), to = elements_of(h, d->tensor);
  const char *what = ir_comm_info_of(d->comm)->text;
  shares(d, team - is_apart(h, d), &sent, &received);
  if (is_local(s, from) || is_local(s, to)) return true;
  bool exchanges = ir_comm_in_pieces(d->comm) && ir_comm_out_pieces(d->comm);
  if (exchanges && is_const(h, from, &n) && n % team != 0) {
    return BROKEN(h, d->at, "%s sends %lld pieces, and '%s' has %lld elements", what,
                  (long long)team, ir_tensor_name(h, d->from), (long long)n);
  }
  ir_scalar left = ir_scalar_mul(s, from, ir_scalar_const(s, sent));
  ir_scalar right = ir_scalar_mul(s, to, ir_scalar_const(s, received));
  if (ir_func_equal(h, left, right) != IR_FALSE) return true;
  const char *times =
      arena_printf(&h->module->memory, "%lld times ", (long long)(sent > 1 ? sent : received));
  return BROKEN(h, d->at, "%s: %s'%s', %s, must have as many elements as %s'%s', %s", what,
                sent > 1 ? times : "", ir_tensor_name(h, d->from), ir_type_text(h, d->from),
                received > 1 ? times : "", ir_tensor_name(h, d->tensor),
                ir_type_text(h, d->tensor));
}

bool ir_host_verify_communicate(ir_func *h, const ir_instr_data *d) {
  bool sends = d->comm != IR_COMM_RECV, receives = d->comm != IR_COMM_SEND;
  check(d->team.id && (d->from.id != 0) == sends && (d->tensor.id != 0) == receives);
  if (!team_fits(h, d)) return false;
  bool ok = rank_fits(h, d, d->root, "root") && rank_fits(h, d, d->to, "to") &&
            rank_fits(h, d, d->peer, "from");
  return (!sends || !receives || (types_fit(h, d) && counts_fit(h, d))) && ok;
}

/* ---- cuts over devices ---- */
static bool cut_fits(ir_func *h, ir_tensor t, const ir_cut *c) {
  ir_mesh mesh = ir_tensor_at(h, t)->mesh;
  int64_t size = mesh.id ? ir_mesh_size(ir_mesh_at(h, mesh), c->mesh_axis) : 0, n;
  loc at = ir_tensor_at(h, t)->at;
  if (size == 0) {
    return BROKEN(h, at, "'%s' is cut over devices, but is on no mesh with that axis",
                  ir_tensor_name(h, t));
  }
  bool as_many = c->partition.kind == IR_CHUNK ||
                 (c->partition.kind == IR_CHUNKS ? c->partition.n_chunks == size
                                                 : is_const(h, c->partition.size, &n) && n == size);
  if (as_many) return true;
  return BROKEN(h, at, "'%s' is not cut into as many parts as its mesh has devices",
                ir_tensor_name(h, t));
}

bool ir_host_verify_cuts(ir_func *h, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  bool ok = true;
  for (uint32_t i = 0; i < rank; i++) {
    const ir_cut_axis *cut = ir_host_cut_of(h, dims[i]);
    for (uint32_t k = 0; cut && k < cut->n_cuts; k++) ok = cut_fits(h, t, &cut->cuts[k]) && ok;
  }
  return ok;
}

/* ---- groups and waits ---- */
/* A communication or group as it is posted. It is waited for if it reaches a wait for its name: if there is
 * a way to the wait on which nothing else gets that name. */
typedef struct posted {
  uint32_t name;
  loc at;
  bool waited;
} posted;

typedef struct posts {
  ir_func *h;
  bool ok;
  VEC(posted) all;
  VEC(uint32_t) reach; /* those that reach this point, in `all` */
  map numbers;         /* instruction -> position in `all` + 1 */
  map known;           /* names, visible from the first post to the end of its loop */
  VEC(uint32_t) names; /* the same */
} posts;

static arena *memory_of(const posts *p) { return &p->h->module->memory; }

static uint32_t number_of(posts *p, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(p->h, i);
  uint32_t number = map_get(&p->numbers, i.id, 0);
  if (number) return number - 1;
  vec_push(memory_of(p), &p->all, ((posted){.name = d->name, .at = d->at}));
  map_put(&p->numbers, i.id, p->all.len);
  return p->all.len - 1;
}

/* Earlier posts of that name are not visible any more. */
static void forget(posts *p, uint32_t name) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < p->reach.len; i++) {
    uint32_t k = p->reach.data[i];
    if (p->all.data[k].name != name) p->reach.data[kept++] = k;
  }
  p->reach.len = kept;
}

static void learn_name(posts *p, uint32_t name) {
  if (map_get(&p->known, name, 0)) return;
  map_put(&p->known, name, 1);
  vec_push(memory_of(p), &p->names, name);
}

static void post(posts *p, ir_instr i) {
  uint32_t name = ir_instr_at(p->h, i)->name, number = number_of(p, i);
  forget(p, name);
  vec_push(memory_of(p), &p->reach, number);
  learn_name(p, name);
}

static void wait_for(posts *p, const ir_instr_data *d) {
  for (uint32_t i = 0; i < p->reach.len; i++) {
    posted *q = &p->all.data[p->reach.data[i]];
    q->waited = q->waited || q->name == d->name;
  }
  forget(p, d->name);
  if (map_get(&p->known, d->name, 0)) return;
  p->ok = BROKEN(p->h, d->at, "'%s' is waited for before it is posted, or outside its loop",
                 ir_name_text(p->h, d->name));
}

static bool posts_something(const ir_instr_data *d) {
  return (d->kind == IR_COMMUNICATE || d->kind == IR_GROUP_END) && d->name;
}

/* What an iteration posts reaches the next one, which may wait for it before it posts again. */
static void carry(posts *p, const ir_block *body) {
  for (uint32_t i = 0; i < body->len; i++) {
    const ir_instr_data d = *ir_instr_at(p->h, body->data[i]);
    if (posts_something(&d)) {
      learn_name(p, d.name);
      vec_push(memory_of(p), &p->reach, number_of(p, body->data[i]));
    }
    carry(p, &d.body);
    carry(p, &d.otherwise);
  }
}

static void walk(posts *p, const ir_block *block);

static void walk_for(posts *p, const ir_instr_data *d) {
  uint32_t names = p->names.len;
  carry(p, &d->body);
  walk(p, &d->body);
  while (p->names.len > names) {
    uint32_t name = p->names.data[--p->names.len];
    map_put(&p->known, name, 0);
    forget(p, name);
  }
}

/* What reaches the end of either branch reaches the code after the if. */
static void walk_if(posts *p, const ir_instr_data *d) {
  uint32_t n = p->reach.len;
  uint32_t *before = arena_copy(memory_of(p), p->reach.data, n * sizeof *before);
  walk(p, &d->body);
  uint32_t n_then = p->reach.len;
  uint32_t *then = arena_copy(memory_of(p), p->reach.data, n_then * sizeof *then);
  p->reach.len = 0;
  for (uint32_t i = 0; i < n; i++) vec_push(memory_of(p), &p->reach, before[i]);
  walk(p, &d->otherwise);
  for (uint32_t i = 0; i < n_then; i++) {
    bool there = false;
    for (uint32_t k = 0; k < p->reach.len && !there; k++) there = p->reach.data[k] == then[i];
    if (!there) vec_push(memory_of(p), &p->reach, then[i]);
  }
}

/* A group holds sends and receives only. They have no names, the group has one. */
static void check_member(posts *p, const ir_instr_data *d, bool grouped, loc group) {
  bool message = d->kind == IR_COMMUNICATE && (d->comm == IR_COMM_SEND || d->comm == IR_COMM_RECV);
  diags *errors = &p->h->module->errors;
  if (d->kind == IR_GROUP_START && grouped) {
    p->ok = BROKEN(p->h, d->at, "groups do not nest");
    diag_note(errors, group, "the group begins here");
  } else if (d->kind == IR_GROUP_END && !grouped) {
    p->ok = BROKEN(p->h, d->at, "group_end() without a group_start() in its block");
  } else if (d->kind == IR_COMMUNICATE && !grouped && !d->name) {
    p->ok = BROKEN(p->h, d->at, "outside a group a communication has a name: 'c = %s(...)'",
                   ir_comm_info_of(d->comm)->text);
  } else if (grouped && message && d->name) {
    p->ok = BROKEN(p->h, d->at, "in a group '%s' has no name of its own: wait for the group",
                   ir_comm_info_of(d->comm)->text);
  } else if (grouped && !message && d->kind != IR_GROUP_END) {
    p->ok = BROKEN(p->h, d->at, "only send and recv may be between group_start() and group_end()");
    diag_note(errors, group, "the group begins here");
  }
}

static void walk(posts *p, const ir_block *block) {
  bool grouped = false;
  loc group = {0};
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data d = *ir_instr_at(p->h, block->data[i]);
    check_member(p, &d, grouped, group);
    if (d.kind == IR_GROUP_START) group = d.at;
    if (d.kind == IR_GROUP_START || d.kind == IR_GROUP_END) grouped = d.kind == IR_GROUP_START;
    if (posts_something(&d)) post(p, block->data[i]);
    else if (d.kind == IR_WAIT) wait_for(p, &d);
    else if (d.kind == IR_FOR) walk_for(p, &d);
    else if (d.kind == IR_IF) walk_if(p, &d);
  }
  if (grouped) p->ok = BROKEN(p->h, group, "the group has no group_end() in its block");
}

bool ir_host_verify_waits(ir_func *h) {
  posts p = {.h = h, .ok = true};
  map_init(&p.numbers, &h->module->memory);
  map_init(&p.known, &h->module->memory);
  walk(&p, &h->host->body);
  for (uint32_t i = 0; i < p.all.len; i++) {
    const posted *q = &p.all.data[i];
    if (!q->waited) {
      p.ok = BROKEN(h, q->at, "'%s' is never waited for", ir_name_text(h, q->name));
    }
  }
  return p.ok;
}
