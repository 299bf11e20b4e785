/* Branches that communicate are taken apart at their waits. */
#include "order/internal.h"

typedef struct splitting {
  ir_func *h;
  arena *scratch;
  uint32_t *parts; /* by tensor id: bit k is set if part k of the branch at hand uses its memory */
  uint32_t *root;  /* ir_host_roots() */
  map names;       /* interned name -> how many tensors have it */
  order_parts *made;
} splitting;

enum { MAX_PARTS = 31 };

static ir_instr_data *at(const splitting *s, ir_instr i) { return ir_instr_at(s->h, i); }

/* ---- which ---- */
static bool posts(const splitting *s, const ir_block *b, uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < end; i++) {
    ir_instr_kind kind = at(s, b->data[i])->kind;
    if (kind == IR_COMMUNICATE || kind == IR_GROUP_END) return true;
  }
  return false;
}

/* Where each part ends; their number. A part ends before a wait for something that it has posted. */
static uint32_t find_parts(const splitting *s, const ir_block *b, uint32_t ends[MAX_PARTS]) {
  uint32_t n = 0, first = 0;
  for (uint32_t i = 0; i < b->len && n + 1 < MAX_PARTS; i++) {
    if (at(s, b->data[i])->kind != IR_WAIT || !posts(s, b, first, i)) continue;
    ends[n++] = first = i;
  }
  ends[n++] = b->len;
  return n;
}

static void use(const splitting *s, ir_tensor t, uint32_t part) {
  if (!t.id) return;
  s->parts[t.id] |= 1u << part;
  s->parts[s->root[t.id]] |= 1u << part;
}

static void note_block(const splitting *s, const ir_block *b, uint32_t part);

/* The buffers of a communication are also in use in the next part, where its wait is. */
static void note(const splitting *s, ir_instr i, uint32_t part) {
  const ir_instr_data *d = at(s, i);
  for (uint32_t k = part; k <= part + (d->kind == IR_COMMUNICATE); k++) {
    use(s, d->tensor, k);
    use(s, d->from, k);
  }
  bool op = d->kind == IR_COMPUTE || d->kind == IR_VIEW || d->kind == IR_LAUNCH;
  const ir_op_data *o = op ? ir_op_at(s->h, d->op) : NULL;
  for (uint32_t k = 0; o && k < o->n_operands; k++) use(s, o->operands[k], part);
  for (uint32_t k = 0; o && k < o->n_more; k++) use(s, o->more[k], part);
  if (d->kind == IR_LAUNCH) return;
  note_block(s, &d->body, part);
  note_block(s, &d->otherwise, part);
}

static void note_block(const splitting *s, const ir_block *b, uint32_t part) {
  for (uint32_t i = 0; i < b->len; i++) note(s, b->data[i], part);
}

static bool in_several(const splitting *s, ir_tensor t) {
  uint32_t parts = s->parts[t.id];
  return (parts & (parts - 1)) != 0;
}

/* Only buffers may be seen in several parts, and only if their name means nothing else. */
static bool can_split(const splitting *s, const ir_block *b) {
  for (uint32_t i = 0; i < b->len; i++) {
    const ir_instr_data *d = at(s, b->data[i]);
    bool slice = d->kind == IR_SELECT || d->kind == IR_SHARD || d->kind == IR_VIEW;
    bool buffer = d->kind == IR_ALLOCATE;
    if (d->kind == IR_CURRENT_STREAM || d->kind == IR_SET_STREAM || d->kind == IR_WAIT_STREAM)
      return false;
    if ((!slice && !buffer) || !in_several(s, d->tensor)) continue;
    if (slice || map_get(&s->names, ir_tensor_at(s->h, d->tensor)->name, 0) > 1) return false;
  }
  return true;
}

/* ---- rewriting ---- */
static void add(splitting *s, ir_instr i, ir_instr part_of) {
  ir_block_add(s->h, &s->made->block, i);
  vec_push(s->scratch, &s->made->part_of, part_of);
}

static void add_part(splitting *s, ir_instr from, uint32_t first, uint32_t end) {
  const ir_instr_data *whole = at(s, from);
  ir_instr_data part = *whole; /* and a copy: adding instructions moves their table */
  part.body = (ir_block){0};
  bool last = end == whole->body.len;
  if (!last) part.otherwise = (ir_block){0};
  for (uint32_t i = first; i < end; i++) {
    const ir_instr_data *d = at(s, whole->body.data[i]);
    if (d->kind == IR_ALLOCATE && in_several(s, d->tensor)) continue;
    ir_block_add(s->h, &part.body, whole->body.data[i]);
  }
  add(s, ir_host_instr(s->h, &part), from);
}

static bool split(splitting *s, ir_instr i) {
  const ir_instr_data d = *at(s, i);
  uint32_t ends[MAX_PARTS], first = 0;
  if (d.kind != IR_IF) return false;
  uint32_t n = find_parts(s, &d.body, ends);
  if (n == 1) return false;
  for (uint32_t t = 0; t < s->h->tensors.len; t++) s->parts[t] = 0;
  for (uint32_t k = 0; k < n; first = ends[k++])
    for (uint32_t j = first; j < ends[k]; j++) note(s, d.body.data[j], k);
  if (!can_split(s, &d.body)) return false;
  for (uint32_t j = 0; j < d.body.len; j++) {
    const ir_instr_data *inner = at(s, d.body.data[j]);
    if (inner->kind == IR_ALLOCATE && in_several(s, inner->tensor))
      add(s, d.body.data[j], (ir_instr){0});
  }
  first = 0;
  for (uint32_t k = 0; k < n; first = ends[k++]) add_part(s, i, first, ends[k]);
  return true;
}

static void count_name(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  splitting *s = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  (void)depth;
  bool defines =
      d->kind == IR_ALLOCATE || d->kind == IR_SELECT || d->kind == IR_SHARD || d->kind == IR_VIEW;
  if (!defines) return;
  uint32_t name = ir_tensor_at(h, d->tensor)->name;
  map_put(&s->names, name, map_get(&s->names, name, 0) + 1);
}

order_parts order_split_branches(ir_func *h, arena *scratch, const map *whole) {
  order_parts made = {0};
  splitting s = {.h = h, .scratch = scratch, .made = &made};
  s.parts = ARENA_ARRAY(scratch, h->tensors.len, uint32_t);
  s.root = ir_host_roots(h, scratch);
  map_init(&s.names, scratch);
  ir_host_walk(h, count_name, &s);
  for (uint32_t i = 0; i < h->host->body.len; i++) {
    ir_instr at_hand = h->host->body.data[i];
    bool keeps = map_get(whole, at_hand.id, 0);
    if (keeps || !split(&s, at_hand)) add(&s, at_hand, (ir_instr){0});
  }
  return made;
}
