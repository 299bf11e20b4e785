/* Groups become kernels.
 *
 * A kernel is put where the last operation of its group was. Buffers that only the group saw are gone;
 * their tensors become locals. Other results keep their memory, and get a local besides. What was
 * deallocated between the operations of a group, though the kernel uses it, is deallocated after it. */
#include <string.h>

#include "join/internal.h"

typedef struct kernel {
  const join_block *b;
  ir_func *h;
  uint32_t group;
  join_numbers nodes; /* in the order of the body */
  map local;          /* tensor id -> id of its local in the body */
  ir_block body;
  VEC(ir_tensor) params, results, returns;
} kernel;

static bool is_member(const kernel *k, uint32_t at) {
  uint32_t node = k->b->node_at[at];
  return node && k->b->nodes[node - 1].group == k->group;
}

/* ---- which tensors go ---- */
static bool read_outside(const kernel *k, ir_tensor root) {
  const join_numbers *readers = join_readers(k->b, root);
  for (uint32_t i = 0; i < readers->len; i++) {
    if (!is_member(k, readers->data[i])) return true;
  }
  return false;
}

static bool goes(const kernel *k, const ir_instr_data *d);

static bool reads(const kernel *k, const ir_instr_data *d, ir_tensor t) {
  const ir_op_data *op = ir_op_at(k->h, d->op);
  for (uint32_t q = 0; q < op->n_operands; q++) {
    if (IR_SAME(op->operands[q], t)) return true;
  }
  return false;
}

/* Does the group at that position, another one, compute a reader of the view for itself? */
static bool absorbs_reader(const kernel *k, uint32_t at, ir_tensor view) {
  uint32_t node = k->b->node_at[at];
  if (!node || is_member(k, at)) return false;
  const join_numbers *absorbed = &k->b->groups[k->b->nodes[node - 1].group].absorbed;
  for (uint32_t i = 0; i < absorbed->len; i++)
    if (reads(k, ir_instr_at(k->h, k->b->nodes[absorbed->data[i]].instr), view)) return true;
  return false;
}

/* Does anything outside of the kernel read this view itself? Views of it that stay do. */
static bool view_read_outside(const kernel *k, ir_tensor view) {
  const join_numbers *readers = join_readers(k->b, k->b->facts->root[view.id]);
  for (uint32_t i = 0; i < readers->len; i++) {
    const ir_instr_data *d = join_instr(k->b, readers->data[i]);
    if (absorbs_reader(k, readers->data[i], view)) return true;
    if (!reads(k, d, view)) continue;
    if (!is_member(k, readers->data[i]) || (d->kind == IR_VIEW && !goes(k, d))) return true;
  }
  return false;
}

static bool goes(const kernel *k, const ir_instr_data *d) {
  if (d->kind == IR_VIEW) return !view_read_outside(k, d->tensor);
  return join_is_private(k->b->facts, d->tensor) && !read_outside(k, d->tensor);
}

/* ---- locals ---- */
static uint32_t fresh_name(const kernel *k, ir_tensor like) {
  for (uint32_t i = 1;; i++) {
    uint32_t name = ir_name_numbered(k->h->module, ir_tensor_name(k->h, like), i);
    if (map_get(k->b->facts->names, name, 0)) continue;
    map_put(k->b->facts->names, name, 1);
    return name;
  }
}

/* The type is written only where it does not follow from the operation. */
static void state_type(const kernel *k, const ir_instr_data *d) {
  ir_dtype dtype;
  ir_scalar sizes[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank, n = ir_tensor_dims(k->h, d->tensor, dims);
  ir_tensor_data *t = ir_tensor_at(k->h, d->tensor);
  const ir_op_data op = *ir_op_at(k->h, d->op);
  bool known = !d->offsets && ir_host_infer(k->h, &op, &dtype, sizes, &rank);
  known = known && rank == n && dtype == t->dtype;
  for (uint32_t i = 0; known && i < n; i++) known = IR_SAME(sizes[i], ir_axis_size(k->h, dims[i]));
  ir_tensor_at(k->h, d->tensor)->stated = !known;
}

static void keep_origin(ir_func *h, ir_tensor t, ir_tensor like) {
  ir_host *host = h->host;
  if (like.id >= host->origins.len) return;
  ir_origin origin = host->origins.data[like.id];
  while (host->origins.len < t.id) vec_push(&h->module->memory, &host->origins, (ir_origin){0});
  vec_push(&h->module->memory, &host->origins, origin);
}

static ir_tensor new_local(const kernel *k, ir_tensor like) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(k->h, like, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(k->h, dims[i]);
  const ir_tensor_data t = *ir_tensor_at(k->h, like);
  ir_tensor local = ir_host_tensor(k->h, fresh_name(k, like), t.dtype, sizes, rank, t.at);
  keep_origin(k->h, local, like);
  ir_func_declare(k->h, ir_tensor_at(k->h, local)->name, (ir_name_entry){IR_NAME_TENSOR, local.id});
  return local;
}

/* A buffer becomes a plain tensor: no cuts over devices, no order in memory, no mesh. */
static void make_local(const kernel *k, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(k->h, t, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(k->h, dims[i]);
  ir_host_retype(k->h, t, ir_tensor_at(k->h, t)->dtype, sizes, rank);
}

static ir_tensor in_body(kernel *k, ir_tensor t) {
  arena *memory = &k->h->module->memory;
  if (!t.id || ir_tensor_at(k->h, t)->kind == IR_TENSOR_CONST) return t;
  uint32_t local = map_get(&k->local, t.id, 0);
  if (local) return (ir_tensor){local};
  for (uint32_t i = 0; i < k->params.len; i++) {
    if (IR_SAME(k->params.data[i], t)) return t;
  }
  vec_push(memory, &k->params, t);
  return t;
}

/* ---- operations ---- */
/* Random numbers of a result that gets another name keep the key that they had. */
static void keep_key(const kernel *k, ir_op op) {
  if (ir_op_at(k->h, op)->code != IR_OP_UNIFORM) return;
  ((ir_attr *)ir_op_attr(ir_op_at(k->h, op), "key"))->given = true;
}

static void add_op(kernel *k, const ir_instr_data *from, ir_tensor local) {
  const ir_op_data op = *ir_op_at(k->h, from->op);
  ir_tensor *operands = ARENA_ARRAY(k->b->facts->scratch, op.n_operands, ir_tensor);
  for (uint32_t i = 0; i < op.n_operands; i++) operands[i] = in_body(k, op.operands[i]);
  ir_instr_data d = *from;
  d.kind = IR_COMPUTE;
  d.tensor = local;
  ir_op_data copy = op;
  copy.operands = arena_copy(&k->h->module->memory, operands, op.n_operands * sizeof *operands);
  uint32_t n_attrs = ir_op_info_of(op.code)->n_attrs;
  copy.attrs = arena_copy(&k->h->module->memory, op.attrs, n_attrs * sizeof *op.attrs);
  copy.result = local;
  d.op = (ir_op){k->h->ops.len};
  vec_push(&k->h->module->memory, &k->h->ops, copy);
  if (!IR_SAME(local, from->tensor)) keep_key(k, d.op);
  state_type(k, &d);
  ir_block_add(k->h, &k->body, ir_host_instr(k->h, &d));
}

static void add_node(kernel *k, uint32_t number) {
  arena *memory = &k->h->module->memory;
  const join_node *node = &k->b->nodes[number];
  const ir_instr_data d = *ir_instr_at(k->h, node->instr);
  bool member = node->group == k->group, gone = member && goes(k, &d);
  ir_tensor local = gone ? d.tensor : new_local(k, d.tensor);
  if (gone) make_local(k, local);
  add_op(k, &d, local);
  map_put(&k->local, d.tensor.id, local.id);
  if (!member || gone || d.kind == IR_VIEW) return;
  vec_push(memory, &k->results, d.tensor);
  vec_push(memory, &k->returns, local);
}

/* ---- the block ---- */
typedef struct rewriting {
  const join_block *b;
  kernel *kernels; /* by group; no nodes: it is none */
  map gone;        /* by tensor id: buffers and views that are locals now */
  uint32_t *delay; /* by position of a deallocate: the position it moves to */
  ir_block out;
} rewriting;

static bool is_kernel(const join_group *g) {
  return g->n_nodes > 0 && g->n_nodes + g->absorbed.len > 1;
}

/* A product reads nothing that its epilogue makes. */
static void put_product_first(kernel *k) {
  for (uint32_t i = k->nodes.len; i-- > 1;) {
    uint32_t n = k->nodes.data[i];
    if (!k->b->nodes[n].space.product) continue;
    memmove(k->nodes.data + 1, k->nodes.data, i * sizeof n);
    k->nodes.data[0] = n;
    return;
  }
}

/* In the order of their positions: a node comes after what it reads. */
static void order_nodes(kernel *k, const join_group *g) {
  const join_block *b = k->b;
  arena *scratch = b->facts->scratch;
  for (uint32_t i = 0; i < g->absorbed.len; i++) vec_push(scratch, &k->nodes, g->absorbed.data[i]);
  for (uint32_t n = g->first; n != JOIN_NONE; n = b->nodes[n].next) vec_push(scratch, &k->nodes, n);
  for (uint32_t i = 1; i < k->nodes.len; i++) {
    for (uint32_t q = i; q > 0 && k->nodes.data[q - 1] > k->nodes.data[q]; q--) {
      uint32_t swap = k->nodes.data[q];
      k->nodes.data[q] = k->nodes.data[q - 1];
      k->nodes.data[q - 1] = swap;
    }
  }
  put_product_first(k);
}

/* Views of memory that the kernel does not make stay outside: it reads what they show, and can write in its place.
 *   t = squeeze(s); y <- kernel(t) { … }     not  y <- kernel(s) { t = squeeze(s); … }, where shapes differ */
static void leave_views(kernel *k) {
  arena *scratch = k->b->facts->scratch;
  map made;
  uint32_t n = 0;
  map_init(&made, scratch);
  for (uint32_t i = 0; i < k->nodes.len; i++) {
    const ir_instr_data *d = ir_instr_at(k->h, k->b->nodes[k->nodes.data[i]].instr);
    if (d->kind == IR_VIEW && !map_get(&made, ir_op_at(k->h, d->op)->operands[0].id, 0)) continue;
    map_put(&made, d->tensor.id, 1);
    k->nodes.data[n++] = k->nodes.data[i];
  }
  k->nodes.len = n;
}

static void make_kernel(rewriting *w, uint32_t group) {
  kernel *k = &w->kernels[group];
  *k = (kernel){.b = w->b, .h = w->b->facts->h, .group = group};
  map_init(&k->local, w->b->facts->scratch);
  order_nodes(k, &w->b->groups[group]);
  leave_views(k);
  if (k->nodes.len < 2) k->nodes.len = 0; /* no kernel: the operation stays as it is */
  for (uint32_t i = 0; i < k->nodes.len; i++) {
    const join_node *node = &w->b->nodes[k->nodes.data[i]];
    const ir_instr_data *d = ir_instr_at(k->h, node->instr);
    if (node->group == group && goes(k, d)) map_put(&w->gone, d->tensor.id, 1);
  }
  for (uint32_t i = 0; i < k->nodes.len; i++) add_node(k, k->nodes.data[i]);
}

static ir_instr launch_of(const kernel *k) {
  const join_group *g = &k->b->groups[k->group];
  const ir_instr_data last = *ir_instr_at(k->h, k->b->nodes[g->last].instr);
  ir_instr_data d = {.kind = IR_LAUNCH, .at = last.at, .source = last.source};
  d.why = g->space.product ? IR_RULE_EPILOGUE : IR_RULE_KERNEL;
  d.tensor = k->results.data[0];
  d.op = ir_host_launch_op(k->h, k->params.data, k->params.len, k->results.data, k->results.len,
                           last.at);
  d.body = k->body;
  d.returns = k->returns.data;
  return ir_host_instr(k->h, &d);
}

/* ---- deallocations ---- */
static bool uses(const kernel *k, ir_tensor root) {
  const ir_tensor *roots = k->b->facts->root;
  for (uint32_t i = 0; i < k->params.len; i++) {
    if (IR_SAME(roots[k->params.data[i].id], root)) return true;
  }
  for (uint32_t i = 0; i < k->results.len; i++) {
    if (IR_SAME(roots[k->results.data[i].id], root)) return true;
  }
  return false;
}

/* The first position of the kernel's operations. */
static uint32_t start_of(const rewriting *w, const kernel *k) {
  uint32_t first = w->b->nodes[w->b->groups[k->group].first].at;
  for (uint32_t i = 0; i < k->nodes.len; i++)
    if (w->b->nodes[k->nodes.data[i]].at < first) first = w->b->nodes[k->nodes.data[i]].at;
  return first;
}

static void delay_frees(rewriting *w, const kernel *k) {
  uint32_t last = w->b->nodes[w->b->groups[k->group].last].at;
  for (uint32_t at = start_of(w, k); at < last; at++) {
    const ir_instr_data *d = join_instr(w->b, at);
    if (d->kind != IR_DEALLOCATE || !uses(k, d->tensor)) continue;
    if (w->delay[at] < last) w->delay[at] = last;
  }
}

/* Those that the kernel at `at` delayed, which begins at `first`. */
static void put_delayed(rewriting *w, uint32_t first, uint32_t at) {
  ir_func *h = w->b->facts->h;
  for (uint32_t i = first; i < at; i++) {
    if (w->delay[i] == at) ir_block_add(h, &w->out, w->b->block->data[i]);
  }
}

static void put(rewriting *w, uint32_t at) {
  ir_func *h = w->b->facts->h;
  const ir_instr_data *d = join_instr(w->b, at);
  uint32_t node = w->b->node_at[at], group = node ? w->b->nodes[node - 1].group : 0;
  const kernel *k = node && w->kernels[group].nodes.len ? &w->kernels[group] : NULL;
  bool memory = d->kind == IR_ALLOCATE || d->kind == IR_DEALLOCATE;
  if (memory && map_get(&w->gone, d->tensor.id, 0)) return;
  if (w->delay[at]) return;
  if (!k || (d->kind == IR_VIEW && !map_get(&w->gone, d->tensor.id, 0))) {
    ir_block_add(h, &w->out, w->b->block->data[at]);
  }
  if (!k || w->b->nodes[w->b->groups[group].last].at != at) return;
  if (k->results.len) ir_block_add(h, &w->out, launch_of(k)); /* else nothing reads what it makes */
  put_delayed(w, start_of(w, k), at);
}

ir_block join_rewrite(const join_block *b, bool *changed) {
  arena *scratch = b->facts->scratch;
  rewriting w = {.b = b};
  w.kernels = ARENA_ARRAY(scratch, b->n_nodes, kernel);
  map_init(&w.gone, scratch);
  w.delay = ARENA_ARRAY(scratch, b->block->len, uint32_t);
  bool any = false;
  for (uint32_t g = 0; g < b->n_nodes; g++) {
    if (!is_kernel(&b->groups[g])) continue;
    make_kernel(&w, g);
    delay_frees(&w, &w.kernels[g]);
    any = true;
  }
  if (!any) return *b->block;
  *changed = true;
  for (uint32_t at = 0; at < b->block->len; at++) put(&w, at);
  return w.out;
}
