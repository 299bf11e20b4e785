/* Where posts and waits go: early and late, as far as memory allows. */
#include <math.h>

#include "order/internal.h"

/* Work p is slot 2p + 1 of the program, posts and waits before it are slot 2p. */
typedef struct placing {
  order_graph *g;
  double *live;         /* by slot: bytes of buffers in use */
  double limit;         /* of those */
  double *bytes;        /* by root; 0: not a buffer of the program's own */
  order_numbers *users; /* by root: nodes */
  double *time;         /* by place: when it comes, with nothing but work before it */
} placing;

static order_node *node(const placing *x, uint32_t i) { return &x->g->nodes.data[i]; }

/* ---- memory ---- */
static uint32_t slot(const placing *x, uint32_t i) {
  return 2 * node(x, i)->place + (node(x, i)->kind == ORDER_WORK);
}

static void life(const placing *x, uint32_t root, uint32_t *first, uint32_t *last) {
  const order_numbers *users = &x->users[root];
  *first = UINT32_MAX;
  *last = 0;
  for (uint32_t i = 0; i < users->len; i++) {
    uint32_t s = slot(x, users->data[i]);
    if (s < *first) *first = s;
    if (s > *last) *last = s;
  }
}

static void count(placing *x, uint32_t root, double sign) {
  uint32_t first, last;
  life(x, root, &first, &last);
  for (uint32_t s = first; s <= last; s++) x->live[s] += sign * x->bytes[root];
}

static void move(placing *x, uint32_t i, uint32_t place) {
  const order_node *n = node(x, i);
  for (uint32_t k = 0; k < n->accesses.len; k++)
    if (x->bytes[n->accesses.data[k].root] > 0) count(x, n->accesses.data[k].root, -1);
  node(x, i)->place = place;
  for (uint32_t k = 0; k < n->accesses.len; k++)
    if (x->bytes[n->accesses.data[k].root] > 0) count(x, n->accesses.data[k].root, 1);
}

static bool fits(const placing *x, uint32_t a, uint32_t b) {
  for (uint32_t p = a < b ? a : b; p <= (a < b ? b : a); p++) {
    if (x->live[2 * p] > x->limit) return false;
    if (p < x->g->n_work && x->live[2 * p + 1] > x->limit) return false;
  }
  return true;
}

/* Moves the node to that place, or as near to it as memory allows. */
static void approach(placing *x, uint32_t i, uint32_t to) {
  while (node(x, i)->place != to) {
    uint32_t from = node(x, i)->place, next = from < to ? from + 1 : from - 1;
    move(x, i, next);
    if (fits(x, from, next)) continue;
    move(x, i, from);
    return;
  }
}

/* ---- bounds ---- */
/* The first place at which all that the post needs has been computed. */
static uint32_t ready(const placing *x, uint32_t i) {
  uint32_t place = 0;
  const order_numbers *before = &node(x, i)->before;
  for (uint32_t k = 0; k < before->len; k++) {
    const order_node *b = node(x, before->data[k]);
    if (b->kind == ORDER_WORK && b->place + 1 > place) place = b->place + 1;
  }
  return place;
}

/* The last place at which it comes before all that needs it. */
static uint32_t needed(const placing *x, uint32_t i) {
  uint32_t place = x->g->n_work;
  const order_numbers *after = &node(x, i)->after;
  for (uint32_t k = 0; k < after->len; k++) {
    const order_node *a = node(x, after->data[k]);
    if (a->place < place) place = a->place;
  }
  return place;
}

/* ---- waits ---- */
/* An elementwise operation whose result is only read by the operation after the wait stays with that: they
 * can be one kernel. */
static uint32_t before_chain(const placing *x, uint32_t place, uint32_t earliest) {
  uint32_t end = place;
  if (place == x->g->n_work || !order_is_cheap(x->g, x->g->work[place])) return place;
  while (place > earliest && order_is_cheap(x->g, x->g->work[place - 1])) {
    const order_numbers *after = &node(x, x->g->work[place - 1])->after;
    bool only = after->len > 0;
    for (uint32_t k = 0; k < after->len; k++) {
      const order_node *a = node(x, after->data[k]);
      only = only && a->kind == ORDER_WORK && a->place <= end;
    }
    if (!only) break;
    place--;
  }
  return place;
}

/* All waits: those for the longest communications first, which have most to gain from memory; of equals the last. */
static order_numbers find_waits(const placing *x) {
  order_numbers list = {0};
  for (uint32_t i = x->g->nodes.len; i-- > 0;) {
    if (node(x, i)->kind != ORDER_WAIT) continue;
    vec_push(x->g->scratch, &list, i);
    double link_ns = node(x, node(x, i)->partner)->link_ns;
    uint32_t k = list.len - 1;
    for (; k > 0 && node(x, node(x, list.data[k - 1])->partner)->link_ns < link_ns; k--)
      list.data[k] = list.data[k - 1];
    list.data[k] = i;
  }
  return list;
}

/* First each wait is put so late that the communication has probably ended, and only then those that
 * memory is left for right before the first use. */
static void sink_waits(placing *x, bool fully) {
  order_numbers waits = find_waits(x);
  for (uint32_t w = 0; w < waits.len; w++) {
    uint32_t i = waits.data[w];
    const order_node *n = node(x, i), *post = node(x, n->partner);
    uint32_t to = needed(x, i), place = n->place;
    double end = x->time[post->place] + post->link_ns;
    while (!fully && place < to && x->time[place] < end) place++;
    if (fully) place = to;
    place = before_chain(x, place, n->place);
    if (place > n->place) approach(x, i, place);
  }
}

/* ---- posts ---- */
static uint32_t use_of(const placing *x, uint32_t post) {
  return node(x, node(x, post)->partner)->place;
}

/* Posts of data that are there from the beginning, in the order in which they are needed. */
static order_numbers find_fetches(const placing *x) {
  order_numbers list = {0};
  for (uint32_t i = 0; i < x->g->nodes.len; i++) {
    if (node(x, i)->kind != ORDER_POST || ready(x, i) > 0) continue;
    vec_push(x->g->scratch, &list, i);
    uint32_t k = list.len - 1;
    for (; k > 0 && use_of(x, list.data[k - 1]) > use_of(x, i); k--)
      list.data[k] = list.data[k - 1];
    list.data[k] = i;
  }
  return list;
}

/* Is it an elementwise operation on what the work before it computes? They can be one kernel, if nothing is posted
 * between them. */
static bool continues(const placing *x, uint32_t place) {
  if (place == 0 || place == x->g->n_work || !order_is_cheap(x->g, x->g->work[place])) return false;
  const order_numbers *before = &node(x, x->g->work[place])->before;
  bool reads = false;
  for (uint32_t k = 0; k < before->len; k++) {
    if (node(x, before->data[k])->kind != ORDER_WORK) return false;
    reads = reads || before->data[k] == x->g->work[place - 1];
  }
  return reads;
}

/* Data is fetched just in time for its use, by the estimate, and not earlier: other communications may be more
 * urgent. But while the program waits for one, the next one is always under way. */
static void place_fetches(placing *x) {
  order_numbers list = find_fetches(x);
  double next = INFINITY;
  for (uint32_t k = list.len; k-- > 0;) {
    uint32_t i = list.data[k], use = use_of(x, i), latest = needed(x, i);
    uint32_t to = k > 0 ? use_of(x, list.data[k - 1]) : use;
    next = fmin(next, x->time[use]) - node(x, i)->link_ns;
    while (to > 0 && (x->time[to] > next || continues(x, to))) to--;
    approach(x, i, to < latest ? to : latest);
  }
}

static void hoist_posts(placing *x) {
  for (uint32_t i = 0; i < x->g->nodes.len; i++) {
    const order_node *n = node(x, i);
    uint32_t to = n->kind == ORDER_POST ? ready(x, i) : 0;
    if (n->kind == ORDER_POST && to > 0 && to < n->place) approach(x, i, to);
  }
}

/* ---- the whole ---- */
static void measure(placing *x, const order_estimate *e) {
  order_graph *g = x->g;
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const order_node *n = node(x, i);
    const ir_instr_data *d = ir_instr_at(g->h, g->block->data[n->first]);
    if (d->kind == IR_ALLOCATE) x->bytes[d->tensor.id] = order_bytes(e, d->tensor);
    for (uint32_t k = 0; n->kind != ORDER_NAME && k < n->accesses.len; k++)
      vec_push(g->scratch, &x->users[n->accesses.data[k].root], i);
  }
  for (uint32_t i = 0; i < g->h->outputs.len; i++) x->bytes[g->h->outputs.data[i].id] = 0;
}

static void find_times(placing *x) {
  for (uint32_t p = 0; p < x->g->n_work; p++)
    x->time[p + 1] = x->time[p] + node(x, x->g->work[p])->work_ns;
}

/* Counts the memory in use anew; the most of it. */
static double peak(placing *x) {
  double now = 0, most = 0;
  uint32_t first, last, end = 2 * x->g->n_work;
  for (uint32_t s = 0; s <= end; s++) x->live[s] = 0;
  for (uint32_t t = 0; t < x->g->h->tensors.len; t++) {
    if (x->bytes[t] <= 0 || !x->users[t].len) continue;
    life(x, t, &first, &last);
    x->live[first] += x->bytes[t];
    if (last < end) x->live[last + 1] -= x->bytes[t];
  }
  for (uint32_t s = 0; s <= end; s++) {
    now = x->live[s] += now;
    most = fmax(most, now);
  }
  return most;
}

/* The limit of memory: what the program needs in its present order, plus the largest buffer of a communication, plus
 * a little for small buffers. Without that, small communications would be waited for early, and all before them. */
static void set_limit(placing *x) {
  const double small_part = 1.0 / 32;
  double largest = 0;
  for (uint32_t i = 0; i < x->g->nodes.len; i++) {
    const order_node *n = node(x, i);
    for (uint32_t k = 0; n->kind == ORDER_POST && k < n->accesses.len; k++)
      largest = fmax(largest, x->bytes[n->accesses.data[k].root]);
  }
  x->limit = peak(x) + largest + fmax(small_part * largest, x->g->small_bytes);
}

/* ---- the order of work ---- */
/* Each post comes right after what it needs, or before its use, and each wait right after its post, or as late
 * as what it needs itself. */
static void start_again(placing *x) {
  order_graph *g = x->g;
  for (uint32_t p = 0; p < g->n_work; p++) node(x, g->work[p])->place = p;
  for (uint32_t i = g->nodes.len; i-- > 0;) {
    order_node *n = node(x, i);
    if (n->kind == ORDER_WAIT) n->place = needed(x, i);
    if (n->kind != ORDER_POST) continue;
    n->place = ready(x, i) ? ready(x, i) : needed(x, i);
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = node(x, i);
    if (n->kind != ORDER_WAIT) continue;
    const order_node *post = node(x, n->partner);
    uint32_t first = post->place + (post->kind == ORDER_WORK), own = ready(x, i);
    n->place = own > first ? own : first;
  }
}

static bool fits_all(void *context) {
  placing *x = context;
  start_again(x);
  return peak(x) <= x->limit;
}

static void fill_waits(placing *x, bool moved) {
  order_graph *g = x->g;
  uint32_t *places = ARENA_ARRAY(g->scratch, g->nodes.len, uint32_t);
  for (uint32_t i = 0; i < g->nodes.len; i++) places[i] = node(x, i)->place;
  if (order_fill_waits(g, fits_all, x) || moved) {
    start_again(x);
  } else {
    for (uint32_t i = 0; i < g->nodes.len; i++) node(x, i)->place = places[i];
  }
  (void)peak(x);
}

bool order_place(order_graph *g, const order_estimate *e, uint32_t ahead) {
  placing x = {.g = g};
  order_reset(g);
  order_find_costs(g, e);
  x.live = ARENA_ARRAY(g->scratch, 2 * g->n_work + 1, double);
  x.bytes = ARENA_ARRAY(g->scratch, g->h->tensors.len, double);
  x.users = ARENA_ARRAY(g->scratch, g->h->tensors.len, order_numbers);
  x.time = ARENA_ARRAY(g->scratch, g->n_work + 1, double);
  measure(&x, e);
  set_limit(&x);
  if (ahead && !order_fetch_ahead(g, ahead, fits_all, &x)) return false;
  fill_waits(&x, ahead > 0);
  find_times(&x);
  sink_waits(&x, false);
  place_fetches(&x);
  hoist_posts(&x);
  sink_waits(&x, true);
  place_fetches(&x);
  return true;
}
