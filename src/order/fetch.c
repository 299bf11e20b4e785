/* Fetches in several steps, as of weights that are cut along two axes of a mesh: what one step brings is rearranged, or
 * sent as it is, by the next. Where each step is computed is work, which keeps the order of the program: right before
 * the result is used. It is moved up:
 *
 *   c0 = allgather(w -> a, team=g.y)           c0 = allgather(w -> a, team=g.y)
 *   h <- matmul(x, v)                          wait(c0)
 *   wait(c0)                                   b <- permute(a)
 *   b <- permute(a)                     =>     c1 = allgather(b -> c, team=g.x)
 *   c1 = allgather(b -> c, team=g.x)           h <- matmul(x, v)
 *   wait(c1)                                   wait(c1)
 *   y <- matmul(h, c)                          y <- matmul(h, c)
 */
#include <string.h>

#include "order/internal.h"

/* Work that belongs to a fetch. */
typedef struct mover {
  uint32_t to;  /* the place of the work before which it goes */
  bool allowed; /* or it stays where it is */
} mover;

typedef struct fetching {
  order_graph *g;
  const uint32_t *base; /* the order of work before */
  bool *fetched;        /* by node: it needs nothing that is computed */
  bool *arrived;        /* by node: it needs a communication */
  uint32_t *steps;    /* by node: communications in a row from here on, until the result is used */
  uint32_t *use;      /* by node: the place of that use; the number of places: none */
  uint32_t *mover_of; /* by place: its mover + 1 */
  uint32_t *key;      /* by node: where it goes; of work twice its place, and 1 if it stays there */
  uint32_t *first;    /* by key: the new place of the first that goes there */
  VEC(mover) movers;
  order_fits *fits;
  void *context;
} fetching;

static order_node *node(const fetching *f, uint32_t i) { return &f->g->nodes.data[i]; }

/* ---- what belongs to fetches ---- */
/* Does it only post, wait and move elements, or change each by itself? */
static bool is_light(const order_graph *g, const ir_block *b) {
  for (uint32_t i = 0; i < b->len; i++) {
    const ir_instr_data *d = ir_instr_at(g->h, b->data[i]);
    bool heavy = d->kind == IR_SET_STREAM || d->kind == IR_LAUNCH;
    if (d->kind == IR_COMPUTE) heavy = !ir_op_is_elementwise(ir_op_at(g->h, d->op)->code);
    if (heavy || !is_light(g, &d->body) || !is_light(g, &d->otherwise)) return false;
  }
  return true;
}

static bool is_light_node(const fetching *f, const order_node *n) {
  ir_block b = {.data = &f->g->block->data[n->first], .len = n->len};
  return n->kind != ORDER_WORK || (!n->ordered && is_light(f->g, &b));
}

static void find_fetched(fetching *f) {
  for (uint32_t i = 0; i < f->g->nodes.len; i++) {
    const order_node *n = node(f, i);
    f->fetched[i] = n->kind != ORDER_NAME && is_light_node(f, n);
    for (uint32_t k = 0; k < n->before.len; k++) {
      uint32_t b = n->before.data[k];
      f->fetched[i] = f->fetched[i] && f->fetched[b];
      f->arrived[i] = f->arrived[i] || f->arrived[b] || node(f, b)->posted.len > 0;
    }
  }
}

static void find_uses(fetching *f) {
  for (uint32_t i = f->g->nodes.len; i-- > 0;) {
    const order_node *n = node(f, i);
    f->use[i] = f->g->n_work;
    for (uint32_t k = 0; k < n->after.len; k++) {
      uint32_t a = n->after.data[k];
      uint32_t use = f->fetched[a] ? f->use[a] : node(f, a)->place;
      if (use < f->use[i]) f->use[i] = use;
      if (f->fetched[a] && f->steps[a] > f->steps[i]) f->steps[i] = f->steps[a];
    }
    f->steps[i] += n->posted.len > 0;
  }
}

/* ---- where to ---- */
/* The places at which something that was fetched is first used, in order. */
static order_numbers list_uses(const fetching *f) {
  order_numbers list = {0};
  bool *used = ARENA_ARRAY(f->g->scratch, f->g->n_work + 1, bool);
  for (uint32_t i = 0; i < f->g->nodes.len; i++)
    if (f->fetched[i] && f->steps[i]) used[f->use[i]] = true;
  for (uint32_t p = 0; p < f->g->n_work; p++)
    if (used[p]) vec_push(f->g->scratch, &list, p);
  return list;
}

/* The step is posted before the use that comes `ahead` uses earlier, and one before it so much earlier again. */
static uint32_t target(const fetching *f, const order_numbers *uses, uint32_t i, uint32_t ahead) {
  uint32_t at = 0, back = ahead * f->steps[i];
  while (at < uses->len && uses->data[at] < f->use[i]) at++;
  return at > back ? uses->data[at - back] : 0;
}

static void find_movers(fetching *f, uint32_t ahead) {
  order_numbers uses = list_uses(f);
  for (uint32_t p = 0; p < f->g->n_work; p++) {
    uint32_t i = f->base[p];
    bool belongs = f->fetched[i] && (f->steps[i] > 0 || f->arrived[i]);
    if (!belongs || f->use[i] == f->g->n_work) continue;
    vec_push(f->g->scratch, &f->movers, ((mover){.to = target(f, &uses, i, ahead)}));
    f->mover_of[p] = f->movers.len;
  }
}

/* ---- moving ---- */
/* Work stays if what it needs does not come before the place that it would go to. */
static uint32_t key_of(const fetching *f, uint32_t place, uint32_t after) {
  uint32_t m = f->mover_of[place], key = 2 * place + 1;
  bool moves = m && f->movers.data[m - 1].allowed && after <= 2 * f->movers.data[m - 1].to;
  if (moves) key = 2 * f->movers.data[m - 1].to;
  return key < after ? after : key;
}

static void find_keys(fetching *f) {
  uint32_t place = 0;
  for (uint32_t i = 0; i < f->g->nodes.len; i++) {
    const order_node *n = node(f, i);
    uint32_t after = 0;
    for (uint32_t k = 0; k < n->before.len; k++)
      if (f->key[n->before.data[k]] > after) after = f->key[n->before.data[k]];
    f->key[i] = n->kind == ORDER_WORK ? key_of(f, place++, after) : after;
  }
}

/* Work in the order of its keys; of equals in the order of before. */
static void write_order(fetching *f) {
  uint32_t n = f->g->n_work;
  find_keys(f);
  memset(f->first, 0, (2 * n + 2) * sizeof *f->first);
  for (uint32_t p = 0; p < n; p++) f->first[f->key[f->base[p]] + 1]++;
  for (uint32_t k = 1; k < 2 * n + 2; k++) f->first[k] += f->first[k - 1];
  for (uint32_t p = 0; p < n; p++) f->g->work[f->first[f->key[f->base[p]]]++] = f->base[p];
}

static void allow(fetching *f, uint32_t from, uint32_t n, bool allowed) {
  for (uint32_t m = from; m < from + n; m++) f->movers.data[m].allowed = allowed;
  write_order(f);
}

/* All movers from number `from` on, or of those that do not fit each half. */
static void move_up(fetching *f, uint32_t from, uint32_t n) {
  allow(f, from, n, true);
  if (n == 0 || f->fits(f->context)) return;
  allow(f, from, n, false);
  if (n == 1) return;
  move_up(f, from, n / 2);
  move_up(f, from + n / 2, n - n / 2);
}

/* ---- the whole ---- */
bool order_fetch_ahead(order_graph *g, uint32_t ahead, order_fits *fits, void *context) {
  fetching f = {.g = g, .fits = fits, .context = context};
  uint32_t n = g->nodes.len;
  f.base = arena_copy(g->scratch, g->work, g->n_work * sizeof *g->work);
  f.fetched = ARENA_ARRAY(g->scratch, n, bool);
  f.arrived = ARENA_ARRAY(g->scratch, n, bool);
  f.steps = ARENA_ARRAY(g->scratch, n, uint32_t);
  f.use = ARENA_ARRAY(g->scratch, n, uint32_t);
  f.key = ARENA_ARRAY(g->scratch, n, uint32_t);
  f.mover_of = ARENA_ARRAY(g->scratch, g->n_work, uint32_t);
  f.first = ARENA_ARRAY(g->scratch, 2 * g->n_work + 2, uint32_t);
  find_fetched(&f);
  find_uses(&f);
  find_movers(&f, ahead);
  move_up(&f, 0, f.movers.len);
  return f.movers.len > 0;
}
