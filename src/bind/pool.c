#include "bind/pool.h"

#include <string.h>

/* A free range, and a node of its group's tree: ordered by size, then place; the priority of a node is
 * not below that of its children (a treap). */
struct bind_piece {
  int64_t begin, size;
  bind_group *group; /* NULL: not in use */
  bind_piece *left, *right;
  uint64_t priority;
  uint32_t id;
  uint32_t numbers[]; /* per stream of the group its position; then the least of the subtree */
};

struct bind_group {
  uint32_t n;
  const uint32_t *streams; /* ascending */
  bind_piece *root;
  bind_piece *spare; /* not in use, linked by `left` */
  uint32_t at;       /* in pool.used, while it has pieces */
};

/* ---- trees ---- */
static uint32_t *least(const bind_piece *t) { return (uint32_t *)t->numbers + t->group->n; }

static void update(bind_piece *t) {
  uint32_t *all = least(t);
  for (uint32_t i = 0; i < t->group->n; i++) {
    all[i] = t->numbers[i];
    if (t->left && least(t->left)[i] < all[i]) all[i] = least(t->left)[i];
    if (t->right && least(t->right)[i] < all[i]) all[i] = least(t->right)[i];
  }
}

static bool is_before(const bind_piece *t, int64_t size, int64_t begin) {
  return t->size != size ? t->size < size : t->begin < begin;
}

static bind_piece *join(bind_piece *a, bind_piece *b) {
  if (!a || !b) return a ? a : b;
  bind_piece *top = a->priority >= b->priority ? a : b;
  if (top == a) a->right = join(a->right, b);
  else b->left = join(a, b->left);
  update(top);
  return top;
}

/* Splits a tree into the pieces before (size, begin) and the rest. */
static void cut(bind_piece *t, int64_t size, int64_t begin, bind_piece **a, bind_piece **b) {
  if (!t) {
    *a = *b = NULL;
    return;
  }
  bool first = is_before(t, size, begin);
  if (first) cut(t->right, size, begin, &t->right, b);
  else cut(t->left, size, begin, a, &t->left);
  update(t);
  *(first ? a : b) = t;
}

static bool is_safe(const bind_group *g, const uint32_t *positions, const uint32_t *clock) {
  /* mutant: plan_reuse_too_early */
  for (uint32_t i = 0; i < g->n; i++)
    if (clock[g->streams[i]] < positions[i]) return false;
  return true;
}

/* The smallest safe piece of at least `size`; a subtree in which some stream's least is too late has
 * none. */
static bind_piece *find(bind_piece *t, int64_t size, const uint32_t *clock) {
  if (!t || !is_safe(t->group, least(t), clock)) return NULL;
  if (t->size < size) return find(t->right, size, clock);
  bind_piece *smaller = find(t->left, size, clock);
  if (smaller) return smaller;
  return is_safe(t->group, t->numbers, clock) ? t : find(t->right, size, clock);
}

/* ---- groups ---- */
typedef struct group_key {
  const bind_pool *pool;
  const bind_accesses *accesses;
} group_key;

static bool same_group(const void *context, uint32_t value) {
  const group_key *k = context;
  const bind_group *g = k->pool->groups.data[value - 1];
  if (g->n != k->accesses->len) return false;
  for (uint32_t i = 0; i < g->n; i++)
    if (g->streams[i] != k->accesses->data[i].stream) return false;
  return true;
}

static bind_group *new_group(bind_pool *p, const bind_accesses *accesses) {
  bind_group *g = ARENA_NEW(p->memory, bind_group);
  uint32_t *streams = ARENA_ARRAY(p->memory, accesses->len, uint32_t);
  for (uint32_t i = 0; i < accesses->len; i++) streams[i] = accesses->data[i].stream;
  *g = (bind_group){.n = accesses->len, .streams = streams};
  vec_push(p->memory, &p->groups, g);
  return g;
}

/* The group of these streams, which are in ascending order. */
static bind_group *group_of(bind_pool *p, const bind_accesses *accesses) {
  group_key key = {p, accesses};
  uint64_t hash = accesses->len;
  for (uint32_t i = 0; i < accesses->len; i++) hash = hash_mix(hash, accesses->data[i].stream);
  uint32_t found = table_find(&p->group_index, hash, same_group, &key);
  if (found) return p->groups.data[found - 1];
  bind_group *g = new_group(p, accesses);
  table_add(&p->group_index, hash, p->groups.len);
  return g;
}

/* ---- pieces ---- */
static bind_piece *piece_at(const map *places, const bind_pool *p, int64_t at) {
  uint32_t id = map_get(places, (uint64_t)at, 0);
  return id ? p->pieces.data[id - 1] : NULL;
}

static bind_piece *new_piece(bind_pool *p, bind_group *g) {
  bind_piece *t = g->spare;
  if (t) {
    g->spare = t->left;
  } else {
    t = arena_alloc(p->memory, sizeof *t + 2 * (size_t)g->n * sizeof *t->numbers);
    vec_push(p->memory, &p->pieces, t);
    t->id = p->pieces.len;
    t->priority = hash_mix(0, t->id);
  }
  t->group = g;
  return t;
}

static void add_piece(bind_pool *p, bind_piece *t) {
  bind_group *g = t->group;
  bind_piece *a, *b;
  if (!g->root) {
    g->at = p->used.len;
    vec_push(p->memory, &p->used, g);
  }
  t->left = t->right = NULL;
  update(t);
  cut(g->root, t->size, t->begin, &a, &b);
  g->root = join(join(a, t), b);
  map_put(&p->begins, (uint64_t)t->begin, t->id);
  map_put(&p->ends, (uint64_t)(t->begin + t->size), t->id);
  p->free_bytes += t->size;
}

/* Takes a piece out of its tree; its numbers stay until it is added or dropped. */
static void remove_piece(bind_pool *p, bind_piece *t) {
  bind_group *g = t->group;
  bind_piece *a, *b, *own;
  cut(g->root, t->size, t->begin, &a, &b);
  cut(b, t->size, t->begin + 1, &own, &b);
  check(own == t);
  g->root = join(a, b);
  if (!g->root) {
    p->used.data[g->at] = vec_last(&p->used);
    p->used.data[g->at]->at = g->at;
    p->used.len--;
  }
  map_put(&p->begins, (uint64_t)t->begin, 0);
  map_put(&p->ends, (uint64_t)(t->begin + t->size), 0);
  p->free_bytes -= t->size;
}

static void drop_piece(bind_piece *t) {
  t->left = t->group->spare;
  t->group->spare = t;
  t->group = NULL;
}

/* `t`, which is in no tree, becomes one with a neighbour of its group. */
static void absorb(bind_pool *p, bind_piece *t, bind_piece *other) {
  if (!other || other->group != t->group) return;
  remove_piece(p, other);
  if (other->begin < t->begin) t->begin = other->begin;
  t->size += other->size;
  for (uint32_t i = 0; i < t->group->n; i++)
    if (other->numbers[i] > t->numbers[i]) t->numbers[i] = other->numbers[i];
  drop_piece(other);
}

/* ---- accesses ---- */
static void add_access(bind_pool *p, bind_accesses *list, bind_access a) {
  for (uint32_t i = 0; i < list->len; i++) {
    if (list->data[i].stream != a.stream) continue;
    if (list->data[i].position < a.position) list->data[i].position = a.position;
    return;
  }
  if (!list->data && p->spare.len) *list = p->spare.data[--p->spare.len];
  check(list->data || list->cap == 0);
  vec_push(p->memory, list, a);
}

/* What the stream's clock has passed happens before this access: a stream that waits for this one has
 * then waited for the others too. */
void bind_pool_touch(bind_pool *p, bind_accesses *accesses, uint32_t stream,
                     const uint32_t *clock) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < accesses->len; i++) {
    bind_access a = accesses->data[i];
    if (clock[a.stream] < a.position) accesses->data[n++] = a;
  }
  accesses->len = n;
  add_access(p, accesses, (bind_access){stream, clock[stream]});
}

static void inherit(bind_pool *p, const bind_piece *t, bind_accesses *accesses) {
  for (uint32_t i = 0; i < t->group->n; i++)
    add_access(p, accesses, (bind_access){t->group->streams[i], t->numbers[i]});
}

static void sort_accesses(bind_accesses *list) {
  for (uint32_t i = 1; i < list->len; i++) {
    bind_access a = list->data[i];
    uint32_t k = i;
    for (; k > 0 && list->data[k - 1].stream > a.stream; k--) list->data[k] = list->data[k - 1];
    list->data[k] = a;
  }
}

/* ---- taking ---- */
/* Takes the front of a piece, at most `size`; how much that was. */
static int64_t take_front(bind_pool *p, bind_piece *t, int64_t size, bind_accesses *accesses) {
  int64_t taken = t->size < size ? t->size : size;
  inherit(p, t, accesses);
  remove_piece(p, t);
  t->begin += taken;
  t->size -= taken;
  if (t->size) add_piece(p, t);
  else drop_piece(t);
  return taken;
}

static bind_piece *best_piece(const bind_pool *p, const uint32_t *clock, int64_t size) {
  bind_piece *best = NULL;
  for (uint32_t k = 0; k < p->used.len; k++) {
    bind_piece *t = find(p->used.data[k]->root, size, clock);
    if (t && (!best || !is_before(best, t->size, t->begin))) best = t;
  }
  return best;
}

static bool is_usable(const bind_piece *t, const uint32_t *clock) {
  return t && t->group && is_safe(t->group, t->numbers, clock);
}

/* The bytes of contiguous safe pieces, from `at` on. */
static int64_t run_bytes(const bind_pool *p, const uint32_t *clock, int64_t at) {
  int64_t end = at;
  for (const bind_piece *t; is_usable(t = piece_at(&p->begins, p, end), clock);) end += t->size;
  return end - at;
}

/* The smallest run of safe neighbours that is large enough; -1: none. A search takes a step of the credit
 * per piece, and every allocation adds to the credit. */
static int64_t best_run(bind_pool *p, const uint32_t *clock, int64_t size) {
  int64_t best = -1, best_bytes = INT64_MAX;
  if (p->free_bytes < size || p->pieces.len > p->credit) return -1;
  p->credit -= p->pieces.len;
  for (uint32_t k = 0; k < p->pieces.len; k++) {
    const bind_piece *t = p->pieces.data[k];
    if (!is_usable(t, clock) || is_usable(piece_at(&p->ends, p, t->begin), clock)) continue;
    int64_t bytes = run_bytes(p, clock, t->begin);
    bool better = bytes < best_bytes || (bytes == best_bytes && t->begin < best);
    if (bytes >= size && better) best = t->begin, best_bytes = bytes;
  }
  return best;
}

/* Where the safe pieces at the end of the pool begin. */
static int64_t safe_end(const bind_pool *p, const uint32_t *clock) {
  int64_t at = p->size_bytes;
  for (const bind_piece *t; is_usable(t = piece_at(&p->ends, p, at), clock);) at = t->begin;
  return at;
}

bool bind_pool_take(bind_pool *p, const uint32_t *clock, int64_t size_bytes, int64_t *offset_bytes,
                    bind_accesses *accesses) {
  enum { STEPS = 64, MOST = 1 << 20 };
  p->credit = p->credit < MOST ? p->credit + STEPS : MOST;
  bind_piece *best = best_piece(p, clock, size_bytes);
  int64_t at = best ? best->begin : best_run(p, clock, size_bytes), end;
  if (at < 0) at = safe_end(p, clock);
  if (__builtin_add_overflow(at, size_bytes, &end)) return false;
  for (int64_t i = at; i < end && i < p->size_bytes;)
    i += take_front(p, piece_at(&p->begins, p, i), end - i, accesses);
  if (end > p->size_bytes) p->size_bytes = end;
  *offset_bytes = at;
  return true;
}

void bind_pool_give(bind_pool *p, int64_t offset_bytes, int64_t size_bytes,
                    bind_accesses *accesses) {
  sort_accesses(accesses);
  bind_piece *t = new_piece(p, group_of(p, accesses));
  t->begin = offset_bytes;
  t->size = size_bytes;
  for (uint32_t i = 0; i < accesses->len; i++) t->numbers[i] = accesses->data[i].position;
  absorb(p, t, piece_at(&p->ends, p, offset_bytes));
  absorb(p, t, piece_at(&p->begins, p, offset_bytes + size_bytes));
  add_piece(p, t);
  accesses->len = 0;
  if (accesses->data) vec_push(p->memory, &p->spare, *accesses);
  *accesses = (bind_accesses){0};
}

void bind_pool_init(bind_pool *p, arena *memory) {
  *p = (bind_pool){.memory = memory};
  table_init(&p->group_index, memory);
  map_init(&p->begins, memory);
  map_init(&p->ends, memory);
}
