#include "order/order.h"

#include "order/internal.h"

typedef struct writing {
  order_graph *g;
  ir_block done;
  /* By node: how many that are no names are written, this one included, and one more; 0: not yet. */
  uint32_t *written;
  order_numbers sequence; /* of these */
} writing;

static void write_node(writing *w, uint32_t i);

/* Posts and waits that must come before it. */
static void write_waits(writing *w, const order_node *n) {
  for (uint32_t k = 0; k < n->before.len; k++) {
    order_kind kind = w->g->nodes.data[n->before.data[k]].kind;
    if (kind != ORDER_WORK) write_node(w, n->before.data[k]);
  }
}

static void write_uses(writing *w, const order_node *n) {
  for (uint32_t k = 0; k < n->uses.len; k++) {
    uint32_t definition = w->g->definition[n->uses.data[k]];
    if (definition) write_node(w, definition - 1);
  }
}

/* Names right before it come with it. */
static void write_names(writing *w, uint32_t i) {
  uint32_t first = i;
  while (first > 0 && w->g->nodes.data[first - 1].kind == ORDER_NAME) first--;
  for (; first < i; first++) write_node(w, first);
}

static void write_node(writing *w, uint32_t i) {
  const order_node *n = &w->g->nodes.data[i];
  if (w->written[i]) return;
  w->written[i] = 1;
  write_waits(w, n);
  if (n->kind == ORDER_WORK) write_names(w, i);
  write_uses(w, n);
  for (uint32_t k = n->first; k < n->first + n->len; k++)
    ir_block_add(w->g->h, &w->done, w->g->block->data[k]);
  if (n->kind != ORDER_NAME) vec_push(w->g->scratch, &w->sequence, i);
  w->written[i] = w->sequence.len + 1;
}

static uint32_t use_of(const order_graph *g, uint32_t i) {
  return g->nodes.data[g->nodes.data[i].partner].place;
}

/* By place: its posts, those needed first coming first, and its waits. */
static order_numbers *sort(const order_graph *g, order_kind kind) {
  order_numbers *at = ARENA_ARRAY(g->scratch, g->n_work + 1, order_numbers);
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_numbers *list = &at[g->nodes.data[i].place];
    if (g->nodes.data[i].kind != kind) continue;
    vec_push(g->scratch, list, i);
    uint32_t k = list->len - 1;
    for (; kind == ORDER_POST && k > 0 && use_of(g, list->data[k - 1]) > use_of(g, i); k--)
      list->data[k] = list->data[k - 1];
    list->data[k] = i;
  }
  return at;
}

static void write_list(writing *w, const order_numbers *list) {
  for (uint32_t k = 0; k < list->len; k++) write_node(w, list->data[k]);
}

static void write_all(writing *w) {
  const order_graph *g = w->g;
  const order_numbers *posts = sort(g, ORDER_POST), *waits = sort(g, ORDER_WAIT);
  for (uint32_t place = 0; place <= g->n_work; place++) {
    write_list(w, &posts[place]);
    write_list(w, &waits[place]);
    if (place < g->n_work) write_node(w, g->work[place]);
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) write_node(w, i);
}

static bool is_same(const ir_block *a, const ir_block *b) {
  if (a->len != b->len) return false;
  for (uint32_t i = 0; i < a->len; i++)
    if (!IR_SAME(a->data[i], b->data[i])) return false;
  return true;
}

static bool communicates(const ir_func *h) {
  for (uint32_t i = 1; i < h->host->instrs.len; i++)
    if (h->host->instrs.data[i].kind == IR_COMMUNICATE) return true;
  return false;
}

/* Is something between the parts of each branch? Notes those of which that is not so. */
static bool are_apart(const writing *w, const order_parts *parts, map *whole) {
  const order_graph *g = w->g;
  bool all = true;
  map apart;
  map_init(&apart, g->scratch);
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = 0; i + 1 < g->nodes.len; i++) {
      ir_instr a = parts->part_of.data[g->nodes.data[i].first];
      uint32_t k = i + 1;
      while (a.id && k < g->nodes.len && !IR_SAME(parts->part_of.data[g->nodes.data[k].first], a))
        k++;
      if (!a.id || k == g->nodes.len) continue;
      if (round == 0 && w->written[k] != w->written[i] + 1) map_put(&apart, a.id, 1);
      if (round == 0 || map_get(&apart, a.id, 0)) continue;
      map_put(whole, a.id, 1);
      all = false;
    }
  }
  return all;
}

/* The program with the places that nodes have. */
static writing write_placed(order_graph *g) {
  writing w = {.g = g, .written = ARENA_ARRAY(g->scratch, g->nodes.len, uint32_t)};
  write_all(&w);
  check(w.done.len == g->block->len);
  return w;
}

/* All devices do the same, so one says how long the program takes. */
static bool has_one_mesh(const ir_func *h) { return h->meshes.len == 2; }

/* The program in the order in which it is predicted to take least on the machine. Where extents are not known, there
 * is nothing to predict: the order for the nominal machine. */
static writing write_best(order_graph *g, const order_machine *machine) {
  enum { MOST_AHEAD = 3, SMALL_BYTES = 64 << 10 };
  const double least_gain = 1.01;
  (void)order_place(g, order_estimate_new(g->h, &order_nominal, g->scratch), 0);
  writing best = write_placed(g);
  if (!machine || !has_one_mesh(g->h) || !order_knows_extents(g->h, g->scratch)) return best;
  const order_estimate *e = order_estimate_new(g->h, machine, g->scratch);
  order_find_costs(g, e);
  g->small_bytes = SMALL_BYTES;
  double best_ns = order_total_ns(g, &best.sequence);
  for (uint32_t ahead = 0; ahead <= MOST_AHEAD && order_place(g, e, ahead); ahead++) {
    writing w = write_placed(g);
    double ns = order_total_ns(g, &w.sequence);
    if (ns * least_gain >= best_ns) continue;
    best = w;
    best_ns = ns;
  }
  return best;
}

/* False: branches were taken apart in vain. */
static bool try(ir_func *h, const order_machine *machine, arena *scratch, map *whole,
                ir_block *result) {
  order_parts parts = order_split_branches(h, scratch, whole);
  order_graph g = {.h = h, .scratch = scratch, .block = &parts.block};
  *result = h->host->body;
  if (!order_find_nodes(&g)) return true;
  writing w = write_best(&g, machine);
  if (!are_apart(&w, &parts, whole)) return false;
  *result = w.done;
  return true;
}

void order_program(ir_func *h, const order_machine *machine, arena *scratch, bool *changed) {
  ir_block result;
  map whole;
  map_init(&whole, scratch);
  *changed = false;
  if (!communicates(h)) return;
  while (!try(h, machine, scratch, &whole, &result)) continue;
  *changed = !is_same(&h->host->body, &result);
  h->host->body = result;
}
