/* What moves as a whole, and what must come before what. */
#include "order/internal.h"

static const ir_instr_data *instr(const order_graph *g, uint32_t at) {
  return ir_instr_at(g->h, g->block->data[at]);
}

static bool has(const order_numbers *list, uint32_t n) {
  for (uint32_t i = 0; i < list->len; i++)
    if (list->data[i] == n) return true;
  return false;
}

static void add(const order_graph *g, order_numbers *list, uint32_t n) {
  if (!has(list, n)) vec_push(g->scratch, list, n);
}

static void take(order_numbers *list, uint32_t n) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < list->len; i++)
    if (list->data[i] != n) list->data[kept++] = list->data[i];
  list->len = kept;
}

/* ---- what an instruction does ---- */
static void touch(order_graph *g, order_node *n, ir_tensor t, bool writes) {
  if (!t.id || ir_tensor_at(g->h, t)->kind == IR_TENSOR_CONST) return;
  order_access a = {g->root[t.id], writes};
  add(g, &n->uses, t.id);
  for (uint32_t i = 0; i < n->accesses.len; i++) {
    if (n->accesses.data[i].root != a.root) continue;
    n->accesses.data[i].writes |= writes;
    return;
  }
  vec_push(g->scratch, &n->accesses, a);
}

static void note_op(order_graph *g, order_node *n, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(g->h, d->op);
  for (uint32_t k = 0; k < op->n_operands; k++) touch(g, n, op->operands[k], false);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) touch(g, n, ir_op_result(op, k), true);
}

/* Memory that only gets another name is not touched. */
static void note_slice(order_graph *g, order_node *n, const ir_instr_data *d) {
  ir_tensor from = d->kind == IR_VIEW ? ir_op_at(g->h, d->op)->operands[0] : d->from;
  add(g, &n->uses, from.id);
}

/* Messages are matched by the order in which a pair of devices posts them. */
static bool is_message(const ir_instr_data *d) {
  return d->kind == IR_GROUP_START || (d->kind == IR_COMMUNICATE && ir_comm_is_message(d->comm));
}

static void note_comm(order_graph *g, order_node *n, const ir_instr_data *d) {
  n->ordered |= is_message(d);
  if (d->kind == IR_COMMUNICATE) {
    touch(g, n, d->from, false);
    touch(g, n, d->tensor, true);
  }
  if ((d->kind == IR_COMMUNICATE || d->kind == IR_GROUP_END) && d->name)
    add(g, &n->posted, d->name);
  if (d->kind != IR_WAIT) return;
  if (has(&n->posted, d->name)) take(&n->posted, d->name);
  else add(g, &n->waited, d->name);
}

static void note_block(order_graph *g, order_node *n, const ir_block *b);

static void note(order_graph *g, order_node *n, const ir_instr_data *d) {
  switch (d->kind) {
  case IR_ALLOCATE: return;
  case IR_DEALLOCATE: touch(g, n, d->tensor, true); return;
  case IR_SELECT:
  case IR_SHARD:
  case IR_VIEW: note_slice(g, n, d); return;
  case IR_COMPUTE:
  case IR_LAUNCH: note_op(g, n, d); return;
  case IR_COMMUNICATE:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_WAIT: note_comm(g, n, d); return;
  case IR_FOR:
  case IR_IF:
    note_block(g, n, &d->body);
    note_block(g, n, &d->otherwise);
    return;
  case IR_CURRENT_STREAM:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM: return;
  }
}

static void note_block(order_graph *g, order_node *n, const ir_block *b) {
  for (uint32_t i = 0; i < b->len; i++) note(g, n, ir_instr_at(g->h, b->data[i]));
}

/* ---- where nodes end ---- */
static bool changes_stream(const ir_func *h, const ir_instr_data *d) {
  if (d->kind == IR_CURRENT_STREAM || d->kind == IR_SET_STREAM || d->kind == IR_WAIT_STREAM)
    return true;
  if (d->kind == IR_LAUNCH) return false;
  for (uint32_t i = 0; i < d->body.len; i++)
    if (changes_stream(h, ir_instr_at(h, d->body.data[i]))) return true;
  for (uint32_t i = 0; i < d->otherwise.len; i++)
    if (changes_stream(h, ir_instr_at(h, d->otherwise.data[i]))) return true;
  return false;
}

static bool joins(const order_graph *g, uint32_t at) {
  const ir_instr_data *d = instr(g, at);
  return d->kind == IR_FOR && d->body.len == 1 &&
         ir_instr_at(g->h, d->body.data[0])->kind == IR_WAIT_STREAM;
}

/* A nest of stream loops: from where the calling stream is named to where it is back and has waited for all
 * others. 0: it does not end so. */
static uint32_t nest_length(const order_graph *g, uint32_t first) {
  uint32_t name = instr(g, first)->stream.name;
  for (uint32_t at = first + 1; at + 1 < g->block->len; at++) {
    const ir_instr_data *d = instr(g, at);
    bool back = d->kind == IR_SET_STREAM && d->stream.name == name;
    if (back && joins(g, at + 1)) return at + 2 - first;
  }
  return 0;
}

static uint32_t group_length(const order_graph *g, uint32_t first) {
  uint32_t at = first;
  while (at < g->block->len && instr(g, at)->kind != IR_GROUP_END) at++;
  return at < g->block->len ? at + 1 - first : 0;
}

/* How many instructions the node has that begins there; 0: it is not understood. */
static uint32_t node_length(const order_graph *g, uint32_t first) {
  const ir_instr_data *d = instr(g, first);
  if (d->kind == IR_CURRENT_STREAM) return nest_length(g, first);
  if (d->kind == IR_GROUP_START) return group_length(g, first);
  return changes_stream(g->h, d) ? 0 : 1;
}

/* ---- kinds ---- */
static bool is_name(ir_instr_kind k) {
  return k == IR_ALLOCATE || k == IR_SELECT || k == IR_SHARD || k == IR_VIEW;
}

static void add_node(order_graph *g, uint32_t first, uint32_t len) {
  order_node n = {.kind = ORDER_WORK, .first = first, .len = len};
  for (uint32_t i = first; i < first + len; i++) note(g, &n, instr(g, i));
  if (is_name(instr(g, first)->kind)) {
    n.kind = ORDER_NAME;
    g->definition[instr(g, first)->tensor.id] = g->nodes.len + 1;
  }
  vec_push(g->scratch, &g->nodes, n);
}

/* The node that posts the communication of that name, before the node `end`; the length: none does. */
static uint32_t poster(const order_graph *g, uint32_t name, uint32_t end) {
  for (uint32_t i = end; i-- > 0;)
    if (has(&g->nodes.data[i].posted, name)) return i;
  return g->nodes.len;
}

/* Each name is posted and waited for once, or the program was not made by lowering. */
static bool pair(order_graph *g) {
  map waits;
  map_init(&waits, g->scratch);
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    for (uint32_t k = 0; k < n->waited.len; k++) {
      uint32_t p = poster(g, n->waited.data[k], i);
      if (p == g->nodes.len || map_get(&waits, n->waited.data[k], 0)) return false;
      map_put(&waits, n->waited.data[k], i + 1);
      n->partner = p;
      add(g, &n->before, p);
    }
    for (uint32_t k = 0; k < n->posted.len; k++)
      if (poster(g, n->posted.data[k], i) != g->nodes.len) return false;
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    for (uint32_t k = 0; k < n->posted.len; k++) {
      uint32_t w = map_get(&waits, n->posted.data[k], 0);
      if (!w) return false;
      if (k && n->partner != w - 1) n->ordered = true;
      n->partner = w - 1;
    }
  }
  return true;
}

/* A wait for what one node posted, and nothing else, can move; a post that waits for nothing, too. */
static void find_kinds(order_graph *g) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    if (n->waited.len && !n->posted.len && n->before.len == 1) n->kind = ORDER_WAIT;
    if (n->posted.len && !n->waited.len && !n->ordered) n->kind = ORDER_POST;
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    bool paired = n->kind == ORDER_POST && g->nodes.data[n->partner].kind == ORDER_WAIT;
    if (n->kind == ORDER_POST && !paired) n->kind = ORDER_WORK;
  }
}

/* ---- what must come before what ---- */
typedef struct last_use {
  uint32_t writer; /* + 1 */
  order_numbers readers;
} last_use;

static void order_access_of(order_graph *g, last_use *last, uint32_t i, order_access a) {
  order_node *n = &g->nodes.data[i];
  last_use *l = &last[a.root];
  if (l->writer && l->writer - 1 != i) add(g, &n->before, l->writer - 1);
  for (uint32_t k = 0; a.writes && k < l->readers.len; k++)
    if (l->readers.data[k] != i) add(g, &n->before, l->readers.data[k]);
  if (a.writes) {
    l->writer = i + 1;
    l->readers = (order_numbers){0};
  } else {
    add(g, &l->readers, i);
  }
}

/* Buffers of a communication are in use until it is waited for: its wait gets the accesses of its post. */
static void share_accesses(order_graph *g) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    for (uint32_t w = 0; w < n->waited.len; w++) {
      const order_node *p = &g->nodes.data[poster(g, n->waited.data[w], i)];
      for (uint32_t k = 0; k < p->accesses.len; k++) {
        order_access a = p->accesses.data[k];
        touch(g, n, (ir_tensor){a.root}, a.writes);
      }
    }
  }
}

static void find_edges(order_graph *g) {
  last_use *last = ARENA_ARRAY(g->scratch, g->h->tensors.len, last_use);
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const order_node n = g->nodes.data[i];
    for (uint32_t k = 0; k < n.accesses.len; k++) order_access_of(g, last, i, n.accesses.data[k]);
  }
  /* A post that must follow a wait, or another post, keeps its place. */
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    for (uint32_t k = 0; n->kind == ORDER_POST && k < n->before.len; k++)
      if (g->nodes.data[n->before.data[k]].kind != ORDER_WORK) n->kind = ORDER_WORK;
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const order_numbers *before = &g->nodes.data[i].before;
    for (uint32_t k = 0; k < before->len; k++)
      vec_push(g->scratch, &g->nodes.data[before->data[k]].after, i);
  }
}

void order_reset(order_graph *g) {
  g->n_work = 0;
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    g->nodes.data[i].place = g->n_work;
    if (g->nodes.data[i].kind == ORDER_WORK) g->work[g->n_work++] = i;
  }
}

bool order_is_cheap(const order_graph *g, uint32_t node) {
  const order_node *n = &g->nodes.data[node];
  const ir_instr_data *d = instr(g, n->first);
  return n->len == 1 && d->kind == IR_COMPUTE && ir_op_is_elementwise(ir_op_at(g->h, d->op)->code);
}

bool order_find_nodes(order_graph *g) {
  g->root = ir_host_roots(g->h, g->scratch);
  g->definition = ARENA_ARRAY(g->scratch, g->h->tensors.len, uint32_t);
  for (uint32_t at = 0; at < g->block->len;) {
    uint32_t len = node_length(g, at);
    if (!len) return false;
    add_node(g, at, len);
    at += len;
  }
  if (!pair(g)) return false;
  find_kinds(g);
  share_accesses(g);
  find_edges(g);
  g->work = ARENA_ARRAY(g->scratch, g->nodes.len, uint32_t);
  order_reset(g);
  return true;
}
