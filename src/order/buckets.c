/* Communications travel as one where that saves time. */
#include <math.h>
#include <string.h>

#include "ir/build.h"
#include "order/internal.h"
#include "order/order.h"

enum { MAX_MEMBERS = 64, MAX_WINDOW = 4096 };

/* Communications of one kind, and where the last of them is. */
typedef struct bucket {
  ir_instr_data like;
  uint32_t members[MAX_MEMBERS]; /* positions in the block */
  uint32_t n;
  double bytes, bytes_ns; /* of all, and on the link */
  double before_ns;       /* on the link, of all but the last, each alone */
  double last_ns;         /* and of the last */
  uint32_t use;           /* position of the first use of a result; the end: none */
  double saved_ns;        /* beside sending each alone */
  bool open;
  ir_tensor all;        /* what arrives, once it is written */
  uint32_t next_served; /* bucket + 1 whose results are taken at the same place */
} bucket;

typedef struct bucketing {
  ir_func *h;
  arena *scratch;
  const order_estimate *e;
  const order_machine *m;
  uint32_t *root;            /* ir_host_roots() */
  double *work_ns, *link_ns; /* by position: before it */
  double *queue_ns;    /* by position: what the link has yet to send then, if each goes alone */
  uint32_t *first_use; /* by position of a communication: of its result; none: the end */
  VEC(bucket) list;
  uint32_t first_open; /* of those, or later */
  uint32_t *last_of;   /* by position: the bucket, + 1, whose last member it is */
  uint32_t *served;    /* by position: the bucket, + 1, whose results are taken right before it */
  bool *moves;         /* by position: the communication, or its wait, goes elsewhere */
  uint32_t n_names;
  ir_block done;
  loc at;
} bucketing;

static const ir_instr_data *instr(const bucketing *b, uint32_t i) {
  return ir_instr_at(b->h, b->h->host->body.data[i]);
}

static ir_scalars *scalars_of(const bucketing *b) { return &b->h->module->scalars; }

/* ---- which ---- */
static bool is_kind(const ir_instr_data *d) {
  return d->kind == IR_COMMUNICATE && d->name &&
         (d->comm == IR_COMM_ALLREDUCE || d->comm == IR_COMM_REDUCE_SCATTER ||
          d->comm == IR_COMM_ALLGATHER);
}

/* Has the mesh all devices of the program? What is computed for a bucket is computed on all devices. */
static bool is_everywhere(const bucketing *b, ir_tensor t) {
  if (!t.id || !ir_tensor_at(b->h, t)->mesh.id) return false;
  const ir_mesh_data *mesh = ir_mesh_at(b->h, ir_tensor_at(b->h, t)->mesh);
  for (uint32_t m = 1; m < b->h->meshes.len; m++) {
    const ir_mesh_data *other = &b->h->meshes.data[m];
    for (int64_t i = 0; i < other->n_devices; i++)
      if (ir_mesh_find(mesh, other->devices[i]) < 0) return false;
  }
  return true;
}

/* A communication and, next to it, the wait for it. */
static bool is_candidate(const bucketing *b, uint32_t i) {
  const ir_instr_data *d = instr(b, i);
  if (!is_kind(d) || i + 1 >= b->h->host->body.len) return false;
  if (!is_everywhere(b, d->from) || !is_everywhere(b, d->tensor)) return false;
  const ir_instr_data *wait = instr(b, i + 1);
  return wait->kind == IR_WAIT && wait->name == instr(b, i)->name;
}

static bool same_mesh(const bucketing *b, ir_tensor x, ir_tensor y) {
  return IR_SAME(ir_tensor_at(b->h, x)->mesh, ir_tensor_at(b->h, y)->mesh);
}

static bool goes_with(const bucketing *b, const ir_instr_data *x, const ir_instr_data *y) {
  return x->comm == y->comm && x->combine == y->combine && IR_SAME(x->team, y->team) &&
         x->team_axis == y->team_axis && same_mesh(b, x->from, y->from) &&
         same_mesh(b, x->tensor, y->tensor) &&
         ir_tensor_at(b->h, x->from)->dtype == ir_tensor_at(b->h, y->from)->dtype;
}

static double bytes_of(const bucketing *b, const ir_instr_data *d) {
  double from = order_bytes(b->e, d->from), to = order_bytes(b->e, d->tensor);
  return from > to ? from : to;
}

static bool is_member(const bucketing *b, const bucket *k, ir_tensor t, bool only_results) {
  for (uint32_t i = 0; i < k->n; i++) {
    const ir_instr_data *d = instr(b, k->members[i]);
    if (b->root[d->tensor.id] == b->root[t.id]) return true;
    if (!only_results && b->root[d->from.id] == b->root[t.id]) return true;
  }
  return false;
}

typedef struct touching {
  const bucketing *b;
  const bucket *k;
  bool found;
} touching;

/* Does it use a result, or change what is to be sent? */
static void look(void *context, ir_func *h, ir_instr i) {
  touching *t = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  bool has_op = d->kind == IR_COMPUTE || d->kind == IR_VIEW || d->kind == IR_LAUNCH;
  const ir_op_data *op = has_op ? ir_op_at(h, d->op) : NULL;
  for (uint32_t k = 0; op && k < op->n_operands; k++)
    t->found |= op->operands[k].id && is_member(t->b, t->k, op->operands[k], true);
  for (uint32_t k = 0; op && k < ir_op_n_results(op); k++)
    t->found |= is_member(t->b, t->k, ir_op_result(op, k), d->kind == IR_VIEW);
  if (has_op || d->kind == IR_ALLOCATE) return;
  if (d->from.id) t->found |= is_member(t->b, t->k, d->from, true);
  if (d->tensor.id) t->found |= is_member(t->b, t->k, d->tensor, false);
}

static void look_inside(touching *t, ir_instr i) {
  look(t, t->b->h, i);
  const ir_instr_data *d = ir_instr_at(t->b->h, i);
  if (d->kind == IR_LAUNCH) return;
  for (uint32_t k = 0; k < d->body.len; k++) look_inside(t, d->body.data[k]);
  for (uint32_t k = 0; k < d->otherwise.len; k++) look_inside(t, d->otherwise.data[k]);
}

/* Closes buckets that instruction i makes too late: it needs a result of theirs, or changes their data. */
static void pass_by(bucketing *b, uint32_t i) {
  ir_instr at = b->h->host->body.data[i];
  ir_instr_kind kind = instr(b, i)->kind;
  bool streams = kind == IR_CURRENT_STREAM || kind == IR_SET_STREAM || kind == IR_WAIT_STREAM;
  for (uint32_t k = b->first_open; k < b->list.len; k++) {
    bucket *x = &b->list.data[k];
    if (!x->open && k == b->first_open) b->first_open++;
    if (!x->open) continue;
    touching t = {.b = b, .k = x};
    look_inside(&t, at);
    if (streams || t.found) x->open = false;
  }
}

/* ---- what it saves ---- */
/* Cat and slices: each reads and writes all of it. */
static double copies_ns(const bucketing *b, double bytes, double launches) {
  return 4 * bytes / b->m->memory_bytes_per_ns + launches * b->m->launch_ns;
}

/* The time of a use; infinite if the result is only returned. */
static double used_ns(const bucketing *b, uint32_t use) {
  return use == b->h->host->body.len ? INFINITY : b->work_ns[use];
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Is there enough work until results are used to hide all communications meanwhile? Then their number does not
 * matter. */
static bool is_hidden(const bucketing *b, const bucket *x, uint32_t i) {
  uint32_t use = least(x->use, b->first_use[i]);
  return b->link_ns[use] - b->link_ns[x->members[0]] <= b->work_ns[use] - b->work_ns[i];
}

/* For how long the link has nothing to do while the bucket waits for communication i. Others go alone. */
static double idle_ns(const bucketing *b, const bucket *x, uint32_t i) {
  uint32_t last = x->members[x->n - 1];
  double ready = b->work_ns[last], idle = 0;
  double free_at = ready + fmax(0, b->queue_ns[last] - x->before_ns);
  if (i - last > MAX_WINDOW) return b->work_ns[i] - ready;
  for (uint32_t k = last + 1; k <= i; k++) {
    double link = b->link_ns[k + 1] - b->link_ns[k];
    if (link == 0 && k < i) continue;
    idle += fmax(0, b->work_ns[k] - free_at);
    free_at = fmax(b->work_ns[k], free_at) + link;
  }
  return idle;
}

/* Does one of them move for so long that a communication less is nothing beside it? How long work takes is not known
 * that exactly: if a bucket waits for longer than expected, the link is idle. */
static bool is_large(const bucket *x, order_comm c) {
  const double least_part = 1.0 / 16;
  return c.fixed_ns < least_part * fmax(c.bytes_ns, x->bytes_ns);
}

/* By what the end comes earlier if communication i goes with the bucket instead of after it. One communication less
 * is paid for. The bucket waits for it, while it could move: no longer than it would take. Readers of the first
 * result wait until all have moved, if they would have been served before. And all is copied. */
static double gain_ns(const bucketing *b, const bucket *x, uint32_t i) {
  order_comm c = order_comm_cost(b->e, instr(b, i));
  double bytes = bytes_of(b, instr(b, i));
  double waits = fmin(idle_ns(b, x, i), c.fixed_ns + x->bytes_ns);
  double later = used_ns(b, b->first_use[i]) - used_ns(b, x->use);
  double served = later > 0 ? fmin(later, c.bytes_ns) : 0;
  double copies = x->n == 1 ? copies_ns(b, x->bytes + bytes, 3) : copies_ns(b, bytes, 1);
  bool useless = is_hidden(b, x, i) || is_large(x, c);
  return useless ? 0 : c.fixed_ns - waits - served - copies;
}

static void add_member(bucketing *b, bucket *x, uint32_t i) {
  x->members[x->n++] = i;
  x->bytes += bytes_of(b, instr(b, i));
  order_comm c = order_comm_cost(b->e, instr(b, i));
  x->bytes_ns += c.bytes_ns;
  x->before_ns += x->last_ns;
  x->last_ns = c.fixed_ns + c.bytes_ns;
  x->use = x->n == 1 ? b->first_use[i] : least(x->use, b->first_use[i]);
}

/* It goes where it saves most, or begins a bucket. */
static void take_in(bucketing *b, uint32_t i) {
  double most_ns = 0;
  uint32_t best = UINT32_MAX;
  for (uint32_t k = b->first_open; k < b->list.len; k++) {
    const bucket *x = &b->list.data[k];
    if (!x->open || x->n == MAX_MEMBERS || !goes_with(b, &x->like, instr(b, i))) continue;
    double ns = gain_ns(b, x, i);
    if (ns <= most_ns) continue;
    most_ns = ns;
    best = k;
  }
  if (best == UINT32_MAX) {
    best = b->list.len;
    vec_push(b->scratch, &b->list, ((bucket){.like = *instr(b, i), .open = true}));
  }
  add_member(b, &b->list.data[best], i);
  b->list.data[best].saved_ns += most_ns;
}

/* ---- where results are used ---- */
typedef struct uses {
  bucketing *b;
  uint32_t *next; /* by root: its first use after this position */
  uint32_t at;
} uses;

static void note_use(uses *u, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(u->b->h, i);
  bool has_op = d->kind == IR_COMPUTE || d->kind == IR_VIEW || d->kind == IR_LAUNCH;
  const ir_op_data *op = has_op ? ir_op_at(u->b->h, d->op) : NULL;
  for (uint32_t k = 0; op && k < op->n_operands; k++)
    u->next[u->b->root[op->operands[k].id]] = u->at;
  if (!has_op && d->from.id) u->next[u->b->root[d->from.id]] = u->at;
  if (d->kind == IR_LAUNCH) return;
  for (uint32_t k = 0; k < d->body.len; k++) note_use(u, d->body.data[k]);
  for (uint32_t k = 0; k < d->otherwise.len; k++) note_use(u, d->otherwise.data[k]);
}

static void measure_block(bucketing *b) {
  const ir_block *body = &b->h->host->body;
  uses u = {.b = b, .next = ARENA_ARRAY(b->scratch, b->h->tensors.len, uint32_t)};
  b->work_ns = ARENA_ARRAY(b->scratch, body->len + 1, double);
  b->link_ns = ARENA_ARRAY(b->scratch, body->len + 1, double);
  b->first_use = ARENA_ARRAY(b->scratch, body->len + 1, uint32_t);
  b->queue_ns = ARENA_ARRAY(b->scratch, body->len + 1, double);
  double work = 0, link = 0, free_at = 0;
  for (uint32_t i = 0; i < body->len; i++) {
    b->work_ns[i] = work;
    b->link_ns[i] = link;
    free_at = fmax(work, free_at);
    b->queue_ns[i] = free_at - work;
    order_instr_cost(b->e, body->data[i], &work, &link);
    free_at += link - b->link_ns[i];
  }
  b->work_ns[body->len] = work;
  b->link_ns[body->len] = link;
  for (uint32_t t = 0; t < b->h->tensors.len; t++) u.next[t] = body->len;
  for (uint32_t i = body->len; i-- > 0;) {
    if (is_kind(instr(b, i))) b->first_use[i] = u.next[b->root[instr(b, i)->tensor.id]];
    u.at = i;
    note_use(&u, body->data[i]);
  }
}

static void find_buckets(bucketing *b) {
  for (uint32_t i = 0; i < b->h->host->body.len; i++) {
    bool candidate = is_candidate(b, i);
    pass_by(b, i);
    if (!candidate) continue;
    take_in(b, i);
    i++;
  }
}

/* ---- writing ---- */
static void put(bucketing *b, ir_instr_data d) {
  d.at = b->at;
  ir_block_add(b->h, &b->done, ir_host_instr(b->h, &d));
}

static uint32_t fresh_name(bucketing *b) {
  for (;;) {
    uint32_t name = ir_name_numbered(b->h->module, "bucket", ++b->n_names);
    const ir_func *fusion = b->h->host->fusion;
    bool taken = ir_func_lookup(b->h, name).kind || (fusion && ir_func_lookup(fusion, name).kind);
    if (!taken) return name;
  }
}

/* It represents the same tensor of the fusion as `like`. */
static void note_origin(bucketing *b, ir_tensor like, ir_tensor t) {
  ir_host *host = b->h->host;
  if (like.id >= host->origins.len) return;
  ir_origin origin = host->origins.data[like.id];
  while (host->origins.len < t.id) vec_push(&b->h->module->memory, &host->origins, (ir_origin){0});
  vec_push(&b->h->module->memory, &host->origins, origin);
}

static ir_tensor allocate(bucketing *b, ir_tensor like, const ir_scalar *sizes, uint32_t rank) {
  ir_dtype dtype = ir_tensor_at(b->h, like)->dtype;
  ir_tensor t = ir_host_tensor(b->h, fresh_name(b), dtype, sizes, rank, b->at);
  ir_tensor_at(b->h, t)->mesh = ir_tensor_at(b->h, like)->mesh;
  note_origin(b, like, t);
  ir_func_declare(b->h, ir_tensor_at(b->h, t)->name, (ir_name_entry){IR_NAME_TENSOR, t.id});
  put(b, (ir_instr_data){.kind = IR_ALLOCATE, .tensor = t, .why = IR_RULE_BUCKET});
  return t;
}

static void compute(bucketing *b, ir_opcode code, const ir_tensor *operands, uint32_t n,
                    const ir_attr *attrs, ir_tensor to) {
  ir_instr_data d = {.kind = IR_COMPUTE, .tensor = to, .why = IR_RULE_BUCKET};
  d.op = ir_host_op(b->h, code, operands, n, attrs, to, b->at);
  put(b, d);
}

static const ir_scalar *kept(const bucketing *b, const ir_scalar *list, uint32_t n) {
  return arena_copy(&b->h->module->memory, list, n * sizeof *list);
}

static void reshape(bucketing *b, ir_tensor from, const ir_scalar *sizes, uint32_t rank,
                    ir_tensor to) {
  ir_attr attr = {.given = true, .len = rank, .scalars = kept(b, sizes, rank)};
  compute(b, IR_OP_RESHAPE, &from, 1, &attr, to);
}

static ir_scalar count(const bucketing *b, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(b->h, t, dims);
  ir_scalar n = ir_scalar_const(scalars_of(b), 1);
  for (uint32_t i = 0; i < rank; i++)
    n = ir_scalar_mul(scalars_of(b), n, ir_axis_size(b->h, dims[i]));
  return n;
}

static uint32_t rank_of(const bucketing *b, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  return ir_tensor_dims(b->h, t, dims);
}

/* Elements of one piece: of what each device has on the side of pieces. */
static ir_scalar piece_of(const bucketing *b, const ir_instr_data *d) {
  return count(b, d->comm == IR_COMM_REDUCE_SCATTER ? d->tensor : d->from);
}

/* How many pieces the buffer on that side has, in rows: none if it is flat. */
static uint32_t shape(const bucketing *b, const ir_instr_data *d, bool result, ir_scalar piece,
                      ir_scalar *sizes) {
  bool rows = d->comm == (result ? IR_COMM_ALLGATHER : IR_COMM_REDUCE_SCATTER);
  if (rows)
    sizes[0] =
        ir_scalar_const(scalars_of(b), ir_mesh_size(ir_mesh_at(b->h, d->team), d->team_axis));
  sizes[rows] = piece;
  return rows + 1u;
}

/* All that is sent, contiguous: piece after piece of each device's. */
static ir_tensor pack(bucketing *b, const bucket *x, ir_scalar total) {
  ir_tensor *all = ARENA_ARRAY(b->scratch, x->n, ir_tensor);
  ir_scalar sizes[2];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < x->n; i++) {
    const ir_instr_data d = *instr(b, x->members[i]);
    rank = shape(b, &d, false, piece_of(b, &d), sizes);
    all[i] = d.from;
    if (rank == 1 && rank_of(b, d.from) == 1) continue;
    all[i] = allocate(b, d.from, sizes, rank);
    reshape(b, d.from, sizes, rank, all[i]);
  }
  rank = shape(b, &x->like, false, total, sizes);
  ir_tensor packed = allocate(b, x->like.from, sizes, rank);
  ir_attr dim = {.given = true, .i = rank - 1};
  compute(b, IR_OP_CAT, all, x->n, &dim, packed);
  return packed;
}

/* Each result takes its part. */
static void unpack(bucketing *b, const ir_instr_data *d, ir_tensor all, ir_scalar first,
                   ir_scalar last) {
  ir_scalars *s = scalars_of(b);
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK], starts[2] = {ir_scalar_const(s, 0), first}, stops[2];
  uint32_t rank = shape(b, d, true, ir_scalar_sub(s, last, first), sizes);
  stops[0] = sizes[0];
  starts[rank - 1] = first;
  stops[rank - 1] = last;
  bool flat = rank == 1 && rank_of(b, d->tensor) == 1;
  ir_tensor part = flat ? d->tensor : allocate(b, d->tensor, sizes, rank);
  ir_attr attrs[3] = {{.given = true, .len = rank, .scalars = kept(b, starts, rank)},
                      {.given = true, .len = rank, .scalars = kept(b, stops, rank)}};
  compute(b, IR_OP_SLICE, &all, 1, attrs, part);
  if (flat) return;
  rank = ir_tensor_dims(b->h, d->tensor, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(b->h, dims[i]);
  reshape(b, part, sizes, rank, d->tensor);
}

static void write_bucket(bucketing *b, bucket *x) {
  ir_scalars *s = scalars_of(b);
  ir_scalar total = ir_scalar_const(s, 0), sizes[2];
  b->at = x->like.at;
  b->h->host->source = x->like.source;
  for (uint32_t i = 0; i < x->n; i++)
    total = ir_scalar_add(s, total, piece_of(b, instr(b, x->members[i])));
  ir_tensor packed = pack(b, x, total);
  x->all = allocate(b, x->like.tensor, sizes, shape(b, &x->like, true, total, sizes));
  ir_instr_data d = x->like;
  d.from = packed;
  d.tensor = x->all;
  d.saved_ns = x->saved_ns;
  put(b, d);
  put(b, (ir_instr_data){.kind = IR_WAIT, .name = d.name});
}

static void write_parts(bucketing *b, const bucket *x) {
  ir_scalars *s = scalars_of(b);
  ir_scalar first = ir_scalar_const(s, 0);
  b->at = x->like.at;
  for (uint32_t i = 0; i < x->n; i++) {
    const ir_instr_data member = *instr(b, x->members[i]);
    ir_scalar last = ir_scalar_add(s, first, piece_of(b, &member));
    b->h->host->source = member.source;
    unpack(b, &member, x->all, first, last);
    first = last;
  }
}

/* For each instruction of the outermost block: where the stream loop begins that it is a part of; its own position
 * if it is in none. A stream loop reaches from current_stream() to the loop that joins the streams. */
static uint32_t *find_starts(const bucketing *b) {
  uint32_t n = b->h->host->body.len, *starts = ARENA_ARRAY(b->scratch, n + 1, uint32_t);
  bool inside = false, back = false;
  for (uint32_t i = 0; i <= n; i++) {
    ir_instr_kind kind = i < n ? instr(b, i)->kind : IR_WAIT;
    bool joins = back && kind == IR_FOR;
    if (back && !joins) inside = back = false;
    starts[i] = inside && i ? starts[i - 1] : i;
    if (joins) inside = back = false;
    if (kind == IR_CURRENT_STREAM) inside = true;
    if (kind == IR_SET_STREAM) back = true;
  }
  return starts;
}

/* Results are taken right before the first is used, so that all that comes before it can run meanwhile. */
static void find_places(bucketing *b) {
  const uint32_t *starts = find_starts(b);
  for (uint32_t k = 0; k < b->list.len; k++) {
    bucket *x = &b->list.data[k];
    if (x->n < 2) continue;
    x->next_served = b->served[starts[x->use]];
    b->served[starts[x->use]] = k + 1;
  }
}

static void serve(bucketing *b, uint32_t at) {
  for (uint32_t k = b->served[at]; k; k = b->list.data[k - 1].next_served)
    write_parts(b, &b->list.data[k - 1]);
}

static uint32_t mark_members(bucketing *b) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < b->list.len; k++) {
    const bucket *x = &b->list.data[k];
    if (x->n < 2) continue;
    n++;
    b->last_of[x->members[x->n - 1]] = k + 1;
    for (uint32_t i = 0; i < x->n; i++)
      b->moves[x->members[i]] = b->moves[x->members[i] + 1] = true;
  }
  return n;
}

void order_fill_buckets(ir_func *h, const order_machine *machine, arena *scratch, bool *changed) {
  bucketing b = {.h = h, .scratch = scratch, .m = machine};
  const ir_block body = h->host->body;
  ir_op stamped = h->host->source;
  b.e = order_estimate_new(h, machine, scratch);
  b.root = ir_host_roots(h, scratch);
  b.last_of = ARENA_ARRAY(scratch, body.len + 1, uint32_t);
  b.served = ARENA_ARRAY(scratch, body.len + 1, uint32_t);
  b.moves = arena_alloc(scratch, body.len + 1);
  measure_block(&b);
  find_buckets(&b);
  *changed = mark_members(&b) > 0;
  if (!*changed) return;
  find_places(&b);
  for (uint32_t i = 0; i < body.len; i++) {
    serve(&b, i);
    if (!b.moves[i]) ir_block_add(h, &b.done, body.data[i]);
    if (b.last_of[i]) write_bucket(&b, &b.list.data[b.last_of[i] - 1]);
  }
  serve(&b, body.len);
  h->host->body = b.done;
  h->host->source = stamped;
}
