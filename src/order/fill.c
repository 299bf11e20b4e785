/* Work that fills waits. Where too little comes between a post and the first use of its result, other work is
 * moved there:
 *
 *   dw <- matmul(x, dy)  # from before it            dx$1 <- matmul(dy, w)
 *   dx$1 <- matmul(dy, w)                            c0 = allreduce(dx$1 -> dx, ...)
 *   c0 = allreduce(dx$1 -> dx, ...)          =>      dw <- matmul(x, dy)
 *   wait(c0)                                         z <- matmul(u, v)
 *   y <- matmul(dx, v)                               wait(c0)
 *   z <- matmul(u, v)    # and from after it         y <- matmul(dx, v)
 *
 * An operation and the elementwise ones that follow it and read its result move together: they can be one
 * kernel. */
#include <string.h>

#include "order/internal.h"

typedef struct cluster {
  order_numbers members; /* nodes */
  double ns;
  bool pure;    /* it begins with more than an elementwise operation, and does not communicate */
  bool movable; /* and nothing that does needs it */
} cluster;

/* A cluster that changed its place. */
typedef struct jump {
  uint32_t from, to;
} jump;

typedef struct filling {
  order_graph *g;
  VEC(cluster) clusters;
  uint32_t *cluster_of;   /* by node */
  uint32_t *order;        /* of clusters */
  uint32_t *at;           /* by cluster: its place there */
  bool *feeds;            /* by node: a communication comes after it */
  uint32_t *mark;         /* by node: the last search that came there */
  uint32_t search, floor; /* of which clusters before place `floor` do not matter */
  VEC(jump) jumps;        /* of the gaps that are being filled */
  order_fits *fits;
  void *context;
  bool moved;
} filling;

enum { WINDOW = 64 }; /* how far work is moved, in clusters */

static order_node *node(const filling *f, uint32_t i) { return &f->g->nodes.data[i]; }
static bool communicates(const order_node *n) { return n->ordered || n->link_ns > 0; }

/* ---- clusters ---- */
static bool reads_from(const filling *f, uint32_t i, uint32_t c) {
  const order_numbers *before = &node(f, i)->before;
  bool reads = false;
  for (uint32_t k = 0; k < before->len; k++) {
    const order_node *b = node(f, before->data[k]);
    if (b->kind != ORDER_WORK) return false; /* it begins with a wait */
    reads = reads || f->cluster_of[before->data[k]] == c;
  }
  return reads;
}

static void find_clusters(filling *f) {
  order_graph *g = f->g;
  for (uint32_t p = 0; p < g->n_work; p++) {
    uint32_t i = g->work[p], last = f->clusters.len - 1;
    bool joins = p > 0 && order_is_cheap(g, i) && reads_from(f, i, last);
    if (!joins)
      vec_push(g->scratch, &f->clusters,
               ((cluster){.pure = !order_is_cheap(g, i), .movable = true}));
    cluster *c = &f->clusters.data[f->clusters.len - 1];
    f->cluster_of[i] = f->clusters.len - 1;
    vec_push(g->scratch, &c->members, i);
    c->ns += node(f, i)->work_ns;
    c->pure = c->pure && !communicates(node(f, i));
    c->movable = c->movable && c->pure && !f->feeds[i];
  }
  f->order = ARENA_ARRAY(g->scratch, f->clusters.len, uint32_t);
  f->at = ARENA_ARRAY(g->scratch, f->clusters.len, uint32_t);
  for (uint32_t c = 0; c < f->clusters.len; c++) f->order[c] = f->at[c] = c;
}

static void find_feeders(filling *f) {
  for (uint32_t i = f->g->nodes.len; i-- > 0;) {
    const order_node *n = node(f, i);
    f->feeds[i] = n->posted.len > 0 || communicates(n);
    for (uint32_t k = 0; k < n->after.len; k++) f->feeds[i] |= f->feeds[n->after.data[k]];
  }
}

/* ---- moving ---- */
/* The cluster at place `from` goes to place `to`; those between make room. */
static void shift(filling *f, uint32_t from, uint32_t to) {
  uint32_t c = f->order[from];
  if (from < to) memmove(&f->order[from], &f->order[from + 1], (to - from) * sizeof c);
  else memmove(&f->order[to + 1], &f->order[to], (from - to) * sizeof c);
  f->order[to] = c;
  for (uint32_t p = from < to ? from : to; p <= (from < to ? to : from); p++)
    f->at[f->order[p]] = p;
}

static void write_order(filling *f) {
  uint32_t n = 0;
  for (uint32_t p = 0; p < f->clusters.len; p++) {
    const order_numbers *members = &f->clusters.data[f->order[p]].members;
    for (uint32_t k = 0; k < members->len; k++) f->g->work[n++] = members->data[k];
  }
}

static void jump_to(filling *f, uint32_t from, uint32_t to) {
  shift(f, from, to);
  vec_push(f->g->scratch, &f->jumps, ((jump){from, to}));
}

/* Takes jumps back, or makes them again, until `kept` of those `made` are made. */
static void rewind_to(filling *f, uint32_t made, uint32_t kept) {
  for (; made > kept; made--) shift(f, f->jumps.data[made - 1].to, f->jumps.data[made - 1].from);
  for (; made < kept; made++) shift(f, f->jumps.data[made].from, f->jumps.data[made].to);
}

static bool do_fit(filling *f) {
  write_order(f);
  return f->fits(f->context);
}

static bool all_fit(filling *f) {
  if (f->jumps.len > 0 && !do_fit(f)) return false;
  f->moved = f->moved || f->jumps.len > 0;
  f->jumps.len = 0;
  return true;
}

/* Keeps as many of the jumps as fit; all of them do not. */
static void settle(filling *f) {
  uint32_t made = f->jumps.len, good = 0, bad = made;
  while (bad - good > 1) {
    uint32_t middle = good + (bad - good) / 2;
    rewind_to(f, made, middle);
    made = middle;
    if (do_fit(f)) good = middle;
    else bad = middle;
  }
  rewind_to(f, made, good);
  write_order(f);
  f->moved = f->moved || good > 0;
  f->jumps.len = 0;
}

static void mark_ancestors(filling *f, uint32_t i) {
  const order_numbers *before = &node(f, i)->before;
  if (f->mark[i] == f->search) return;
  if (node(f, i)->kind == ORDER_WORK && f->at[f->cluster_of[i]] < f->floor) return;
  f->mark[i] = f->search;
  for (uint32_t k = 0; k < before->len; k++) mark_ancestors(f, before->data[k]);
}

/* Marks everything that work which stays before the post depends on. */
static void mark_needs(filling *f, const cluster *c) {
  for (uint32_t k = 0; k < c->members.len; k++) mark_ancestors(f, c->members.data[k]);
}

static bool is_ancestor(const filling *f, const cluster *c) {
  for (uint32_t k = 0; k < c->members.len; k++)
    if (f->mark[c->members.data[k]] == f->search) return true;
  return false;
}

static uint32_t mesh_of(const filling *f, const cluster *c) {
  const order_node *n = node(f, c->members.data[0]);
  for (uint32_t k = 0; k < n->accesses.len; k++)
    if (n->accesses.data[k].writes)
      return ir_tensor_at(f->g->h, (ir_tensor){n->accesses.data[k].root})->mesh.id;
  return 0;
}

/* The earliest place of the post, as a number of clusters; 0: at the beginning, or the post is not considered. */
static uint32_t start_of(const filling *f, const order_node *post) {
  uint32_t start = 0;
  for (uint32_t k = 0; k < post->before.len; k++) {
    uint32_t b = post->before.data[k];
    if (node(f, b)->kind != ORDER_WORK) return 0;
    uint32_t place = f->at[f->cluster_of[b]] + 1;
    if (place > start) start = place;
  }
  return start;
}

/* The first cluster that needs what the post brings; the number of clusters: none. */
static uint32_t use_of(const filling *f, const order_node *post) {
  uint32_t use = f->clusters.len;
  const order_numbers *after = &node(f, post->partner)->after;
  for (uint32_t k = 0; k < after->len; k++) {
    if (node(f, after->data[k])->kind != ORDER_WORK) continue;
    uint32_t place = f->at[f->cluster_of[after->data[k]]];
    if (place < use) use = place;
  }
  return use;
}

/* May the cluster come before place `use`? What it waits for must have been posted before this post. */
static bool can_precede(const filling *f, const cluster *c, uint32_t use, uint32_t start) {
  for (uint32_t m = 0; m < c->members.len; m++) {
    const order_numbers *before = &node(f, c->members.data[m])->before;
    for (uint32_t k = 0; k < before->len; k++) {
      const order_node *b = node(f, before->data[k]);
      uint32_t of = f->cluster_of[before->data[k]];
      if (b->kind == ORDER_WORK && &f->clusters.data[of] != c && f->at[of] >= use) return false;
      if (b->kind == ORDER_POST) return false;
      if (b->kind != ORDER_WAIT) continue;
      const order_node *post = node(f, b->partner);
      if (post->kind != ORDER_POST || b->before.len > 1) return false;
      if (post->before.len && (start_of(f, post) == 0 || start_of(f, post) >= start)) return false;
    }
  }
  return true;
}

/* A post, and how much work comes between it and the first use of what it brings. */
typedef struct gap {
  uint32_t start, use, mesh;
  double filled_ns, wanted_ns;
} gap;

static void fill_from_before(filling *f, gap *x) {
  for (uint32_t p = x->start; p-- > f->floor && x->filled_ns < x->wanted_ns;) {
    const cluster *c = &f->clusters.data[f->order[p]];
    if (!c->movable || is_ancestor(f, c) || mesh_of(f, c) != x->mesh) {
      mark_needs(f, c);
      continue;
    }
    jump_to(f, p, x->start - 1);
    x->start--;
    x->filled_ns += c->ns;
  }
}

static void fill_from_after(filling *f, gap *x) {
  uint32_t n = f->clusters.len, end = x->use + WINDOW < n ? x->use + WINDOW : n;
  for (uint32_t p = x->use + 1; p < end && x->filled_ns < x->wanted_ns; p++) {
    const cluster *c = &f->clusters.data[f->order[p]];
    if (!c->pure || mesh_of(f, c) != x->mesh || !can_precede(f, c, x->use, x->start)) continue;
    jump_to(f, p, x->use);
    x->use++;
    x->filled_ns += c->ns;
  }
}

static void fill_wait(filling *f, uint32_t i) {
  const order_node *post = node(f, i);
  gap x = {.start = start_of(f, post), .use = use_of(f, post), .wanted_ns = post->link_ns};
  if (x.start == 0 || x.start > x.use) return;
  x.mesh = mesh_of(f, &f->clusters.data[f->order[x.start - 1]]);
  for (uint32_t p = x.start; p < x.use; p++) x.filled_ns += f->clusters.data[f->order[p]].ns;
  f->search++;
  f->floor = x.start > WINDOW ? x.start - WINDOW : 0;
  mark_ancestors(f, i);
  fill_from_before(f, &x);
  fill_from_after(f, &x);
}

/* To ask whether jumps fit takes as long as the program is. So it is asked for all posts at once, and where
 * they do not fit, for each half of them. */
static void fill_waits(filling *f, const uint32_t *posts, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) fill_wait(f, posts[i]);
  if (all_fit(f)) return;
  if (n == 1) {
    settle(f);
    return;
  }
  rewind_to(f, f->jumps.len, 0);
  f->jumps.len = 0;
  fill_waits(f, posts, n / 2);
  fill_waits(f, posts + n / 2, n - n / 2);
}

/* ---- the whole ---- */
bool order_fill_waits(order_graph *g, order_fits *fits, void *context) {
  filling f = {.g = g, .fits = fits, .context = context};
  f.cluster_of = ARENA_ARRAY(g->scratch, g->nodes.len, uint32_t);
  f.feeds = ARENA_ARRAY(g->scratch, g->nodes.len, bool);
  f.mark = ARENA_ARRAY(g->scratch, g->nodes.len, uint32_t);
  find_feeders(&f);
  find_clusters(&f);
  order_numbers posts = {0};
  for (uint32_t i = 0; i < g->nodes.len; i++)
    if (g->nodes.data[i].kind == ORDER_POST) vec_push(g->scratch, &posts, i);
  fill_waits(&f, posts.data, posts.len);
  return f.moved;
}
