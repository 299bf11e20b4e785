#include "ir/host_verify.h"

typedef struct loop {
  ir_scalar variable, extent;
} loop;

/* A set of streams: the one the program was called on, or the workers `index` for all iterations of the
 * loops. Only loops that have ended are listed, the innermost first; the index of an open loop is a value
 * like others. */
typedef struct stream_set {
  bool main;
  ir_scalar index;
  const loop *loops;
  uint32_t n_loops;
} stream_set;

/* Work that a stream must still wait for. It is enough to wait for one owner: the owners after the first are
 * streams that waited for the work themselves. */
typedef struct work {
  VEC(stream_set) owners;
  uint32_t serial;
  loc at;
} work;

typedef struct wait {
  stream_set who, on;
} wait;

typedef struct named {
  uint32_t name;
  stream_set stream;
} named;

typedef struct joins {
  ir_func *h;
  stream_set current;
  loc current_at;
  VEC(named) names;
  VEC(work) pending;
  VEC(wait) waits; /* in the open loops */
  uint32_t serial, loops;
  uint64_t budget; /* instructions that may still be looked at a second time */
} joins;

static arena *memory_of(const joins *j) { return &j->h->module->memory; }
static ir_scalars *scalars_of(const joins *j) { return &j->h->module->scalars; }

/* ---- sets ---- */
static uint32_t symbol_of(const joins *j, ir_scalar variable) {
  return (uint32_t)ir_scalar_node_of(scalars_of(j), variable)->value;
}

static bool mentions(const joins *j, ir_scalar x, ir_scalar variable) {
  return ir_scalar_mentions(scalars_of(j), x, symbol_of(j, variable));
}

static bool depends(const joins *j, const stream_set *s, ir_scalar variable) {
  if (s->main) return false;
  if (mentions(j, s->index, variable)) return true;
  for (uint32_t i = 0; i < s->n_loops; i++) {
    if (mentions(j, s->loops[i].extent, variable)) return true;
  }
  return false;
}

/* Extends the set to all iterations of a loop that has ended. */
static void close_over(joins *j, stream_set *s, loop l) {
  if (!depends(j, s, l.variable)) return;
  loop *loops = ARENA_ARRAY(memory_of(j), s->n_loops + 1, loop);
  for (uint32_t i = 0; i < s->n_loops; i++) loops[i] = s->loops[i];
  loops[s->n_loops++] = l;
  s->loops = loops;
}

static ir_scalar replace_one(const void *context, uint32_t symbol) {
  const loop *by = context; /* the symbol's number in `variable`, its value in `extent` */
  return by->variable.id == symbol ? by->extent : (ir_scalar){0};
}

static ir_scalar replace(joins *j, ir_scalar x, ir_scalar variable, ir_scalar value) {
  loop by = {{symbol_of(j, variable)}, value};
  return ir_scalar_substitute(scalars_of(j), x, replace_one, &by);
}

/* Are they equal once the loop indexes of b are called like those of a? */
static bool same_set(joins *j, const stream_set *a, const stream_set *b) {
  if (a->main || b->main) return a->main && b->main;
  if (a->n_loops != b->n_loops) return false;
  ir_scalar index = b->index;
  for (uint32_t i = 0; i < a->n_loops; i++) {
    ir_scalar extent = b->loops[i].extent;
    for (uint32_t k = 0; k < a->n_loops; k++) {
      extent = replace(j, extent, b->loops[k].variable, a->loops[k].variable);
    }
    if (!IR_SAME(extent, a->loops[i].extent)) return false;
    index = replace(j, index, b->loops[i].variable, a->loops[i].variable);
  }
  return IR_SAME(index, a->index);
}

/* ---- ranges ---- */
static bool free_of_loops(const joins *j, ir_scalar x, const stream_set *s) {
  for (uint32_t i = 0; i < s->n_loops; i++) {
    if (mentions(j, x, s->loops[i].variable)) return false;
  }
  return true;
}

/* Does x never fall when an index of the set's loops rises? */
static bool rises(const joins *j, ir_scalar x, const stream_set *s) {
  const ir_scalar_node n = *ir_scalar_node_of(scalars_of(j), x);
  if (free_of_loops(j, x, s)) return n.kind != IR_SCALAR_CONST || n.value >= 0;
  if (n.size > IR_SCALAR_LARGE) return false;
  switch (n.kind) {
  case IR_SCALAR_SYMBOL: return true;
  case IR_SCALAR_ADD:
  case IR_SCALAR_MUL:
  case IR_SCALAR_MIN:
  case IR_SCALAR_MAX: return rises(j, n.a, s) && rises(j, n.b, s);
  case IR_SCALAR_FLOORDIV:
  case IR_SCALAR_CEILDIV: return rises(j, n.a, s) && free_of_loops(j, n.b, s);
  case IR_SCALAR_CHUNK_START: return rises(j, n.a, s);
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_LIST:
  case IR_SCALAR_MOD:
  case IR_SCALAR_CONST:
  case IR_SCALAR_OVERFLOWED: break;
  }
  return false;
}

/* The same for sums like n * i - i, by how much x grows with each index. A loop that runs has an extent of
 * at least 1. */
static bool grows(joins *j, ir_scalar x, const stream_set *s) {
  ir_scalars *all = scalars_of(j);
  ir_scalar zero = ir_scalar_const(all, 0), one = ir_scalar_const(all, 1);
  if (ir_scalar_node_of(all, x)->size > IR_SCALAR_SMALL) return false;
  for (uint32_t i = 0; i < s->n_loops; i++) {
    ir_scalar next = ir_scalar_add(all, s->loops[i].variable, one);
    ir_scalar by = ir_scalar_sub(all, replace(j, x, s->loops[i].variable, next), x);
    bool up = ir_scalar_le(all, zero, by) == IR_TRUE;
    for (uint32_t k = 0; k < s->n_loops; k++) up = up || IR_SAME(by, s->loops[k].extent);
    if (!up) return false;
  }
  return true;
}

/* How often a loop runs, if it runs at all: ceildiv(count, step) times. */
typedef struct trips {
  ir_scalar count, step;
} trips;

static trips trips_of(joins *j, loop l) {
  ir_scalars *all = scalars_of(j);
  ir_scalar zero = ir_scalar_const(all, 0);
  trips t = {l.extent, ir_scalar_const(all, 1)};
  const ir_scalar_node by_step = *ir_scalar_node_of(all, t.count);
  if (by_step.kind == IR_SCALAR_CEILDIV) t = (trips){by_step.a, by_step.b};
  const ir_scalar_node n = *ir_scalar_node_of(all, t.count);
  if (n.kind == IR_SCALAR_MAX && IR_SAME(n.a, zero)) t.count = n.b;
  if (n.kind == IR_SCALAR_MAX && IR_SAME(n.b, zero)) t.count = n.a;
  return t;
}

/* By how much x grows from start to end of a loop whose iterations add `by`: by * (ceildiv(count, step) -
 * 1), which is at most by / step * (count - 1). None if that is not a whole number. */
static ir_scalar grown(joins *j, ir_scalar by, trips t) {
  ir_scalars *all = scalars_of(j);
  ir_scalar one = ir_scalar_const(all, 1), last = ir_scalar_sub(all, t.count, one);
  if (IR_SAME(by, t.step)) return last;
  const ir_scalar_node n = *ir_scalar_node_of(all, by), s = *ir_scalar_node_of(all, t.step);
  if (n.kind != IR_SCALAR_CONST || s.kind != IR_SCALAR_CONST) return (ir_scalar){0};
  if (n.value < 0 || s.value < 1 || n.value % s.value != 0) return (ir_scalar){0};
  return ir_scalar_mul(all, ir_scalar_const(all, n.value / s.value), last);
}

/* An upper bound in one of two forms, because a range of waits may be written in either: from the last
 * iteration, 3 * ceildiv(n, 3) - 3, or from what the iterations count up to, n - 1. */
typedef enum bound { BY_ITERATION, BY_COUNT } bound;

/* An upper bound of x over all iterations of the loop; x never falls. */
static ir_scalar at_last(joins *j, ir_scalar x, loop l, bound form) {
  ir_scalars *all = scalars_of(j);
  ir_scalar one = ir_scalar_const(all, 1);
  ir_scalar next = replace(j, x, l.variable, ir_scalar_add(all, l.variable, one));
  ir_scalar growth = grown(j, ir_scalar_sub(all, next, x), trips_of(j, l));
  if (!growth.id || form == BY_ITERATION)
    return replace(j, x, l.variable, ir_scalar_sub(all, l.extent, one));
  return ir_scalar_add(all, replace(j, x, l.variable, ir_scalar_const(all, 0)), growth);
}

/* An index past all that x takes as the set's loops run; none where that is not clear. */
static ir_scalar end_of(joins *j, ir_scalar x, const stream_set *s, bound form) {
  ir_scalars *all = scalars_of(j);
  const ir_scalar_node n = *ir_scalar_node_of(all, x);
  if (n.kind == IR_SCALAR_MOD && free_of_loops(j, n.b, s)) {
    ir_scalar end = end_of(j, n.a, s, form);
    return end.id ? ir_scalar_min(all, end, n.b) : n.b;
  }
  if (!rises(j, x, s) && !grows(j, x, s)) return (ir_scalar){0};
  for (uint32_t i = 0; i < s->n_loops; i++) x = at_last(j, x, s->loops[i], form);
  return ir_scalar_add(all, x, ir_scalar_const(all, 1));
}

/* The least index that x takes; 0 where that is not clear. */
static ir_scalar begin_of(joins *j, ir_scalar x, const stream_set *s) {
  ir_scalar zero = ir_scalar_const(scalars_of(j), 0);
  if (!rises(j, x, s) && !grows(j, x, s)) return zero;
  for (uint32_t i = 0; i < s->n_loops; i++) x = replace(j, x, s->loops[i].variable, zero);
  return x;
}

/* Does the set consist of all of begin … end - 1? `i + begin` and `(i + begin) % m` over one loop do. */
static bool is_range(joins *j, const stream_set *s, ir_scalar *begin, ir_scalar *end) {
  if (s->n_loops != 1) return false;
  ir_scalars *all = scalars_of(j);
  const ir_scalar_node n = *ir_scalar_node_of(all, s->index);
  bool turns = n.kind == IR_SCALAR_MOD && free_of_loops(j, n.b, s);
  trips t = trips_of(j, s->loops[0]);
  *begin = ir_scalar_sub(all, turns ? n.a : s->index, s->loops[0].variable);
  *end = ir_scalar_add(all, *begin, t.count);
  if (turns) *end = ir_scalar_min(all, *end, n.b);
  const ir_scalar_node first = *ir_scalar_node_of(all, *begin);
  return first.kind == IR_SCALAR_CONST && first.value >= 0 &&
         IR_SAME(t.step, ir_scalar_const(all, 1));
}

static bool at_most(joins *j, ir_scalar a, ir_scalar b) {
  if (IR_SAME(a, b) || ir_scalar_le(scalars_of(j), a, b) == IR_TRUE) return true;
  const ir_scalar_node x = *ir_scalar_node_of(scalars_of(j), a);
  const ir_scalar_node y = *ir_scalar_node_of(scalars_of(j), b);
  if (x.size > IR_SCALAR_SMALL || y.size > IR_SCALAR_SMALL) return false;
  if (y.kind == IR_SCALAR_MIN) return at_most(j, a, y.a) && at_most(j, a, y.b);
  if (x.kind == IR_SCALAR_MAX) return at_most(j, x.a, b) && at_most(j, x.b, b);
  if (x.kind == IR_SCALAR_MIN) return at_most(j, x.a, b) || at_most(j, x.b, b);
  return y.kind == IR_SCALAR_MAX && (at_most(j, a, y.a) || at_most(j, a, y.b));
}

static bool ends_within(joins *j, const stream_set *s, ir_scalar end) {
  for (bound form = BY_ITERATION; form <= BY_COUNT; form++) {
    ir_scalar needed = end_of(j, s->index, s, form);
    if (needed.id && at_most(j, needed, end)) return true;
  }
  return false;
}

/* Has a stream that waits for all of `on` waited for all of `s`? */
static bool covers(joins *j, const stream_set *on, const stream_set *s) {
  ir_scalar begin, end;
  if (same_set(j, on, s)) return true;
  if (on->main || s->main || !is_range(j, on, &begin, &end)) return false;
  return ends_within(j, s, end) && at_most(j, begin, begin_of(j, s->index, s));
}

/* ---- work and waits ---- */
static void add_work(joins *j) {
  if (j->current.main) return;
  for (uint32_t i = 0; i < j->pending.len; i++) {
    const work *w = &j->pending.data[i];
    if (w->owners.len == 1 && same_set(j, &w->owners.data[0], &j->current)) return;
  }
  work w = {.serial = j->serial++, .at = j->current_at};
  vec_push(memory_of(j), &w.owners, j->current);
  vec_push(memory_of(j), &j->pending, w);
}

static bool owned_by(joins *j, const work *w, const stream_set *on) {
  for (uint32_t i = 0; i < w->owners.len; i++) {
    if (covers(j, on, &w->owners.data[i])) return true;
  }
  return false;
}

/* Work older than `serial` for which `who` has now waited: it is done if `who` is the main stream; otherwise
 * `who` becomes an owner. */
static void settle(joins *j, const wait *w, uint32_t serial) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < j->pending.len; i++) {
    work *p = &j->pending.data[i];
    bool waited = p->serial < serial && owned_by(j, p, &w->on);
    if (waited && w->who.main) continue;
    if (waited && !owned_by(j, p, &w->who)) vec_push(memory_of(j), &p->owners, w->who);
    j->pending.data[kept++] = *p;
  }
  j->pending.len = kept;
}

static stream_set set_of(const joins *j, const ir_instr_data *d) {
  for (uint32_t i = j->names.len; d->stream.name && i-- > 0;) {
    if (j->names.data[i].name == d->stream.name) return j->names.data[i].stream;
  }
  if (d->stream.name) return (stream_set){.main = true}; /* unknown: reported elsewhere */
  return (stream_set){.index = d->stream.index};
}

static void add_wait(joins *j, const ir_instr_data *d) {
  wait w = {j->current, set_of(j, d)};
  if (w.on.main) return;
  settle(j, &w, j->serial);
  if (j->loops) vec_push(memory_of(j), &j->waits, w);
}

/* ---- blocks ---- */
static void walk(joins *j, const ir_block *block);

typedef enum first_use { NOTHING, SETS, INHERITS } first_use;

/* Does the block choose a stream before it uses the current one? */
static first_use first_use_in(const ir_func *h, const ir_block *block) {
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(h, block->data[i]);
    if (d->kind == IR_SET_STREAM) return SETS;
    bool uses = d->kind == IR_COMPUTE || d->kind == IR_LAUNCH || d->kind == IR_WAIT_STREAM ||
                d->kind == IR_CURRENT_STREAM || d->kind == IR_COMMUNICATE || d->kind == IR_WAIT;
    if (uses) return INHERITS;
    bool inner =
        first_use_in(h, &d->body) == INHERITS || first_use_in(h, &d->otherwise) == INHERITS;
    if (inner) return INHERITS;
  }
  return NOTHING;
}

/* What happened in the loop happens in each of its iterations. */
static void end_loop(joins *j, loop l, uint32_t serial, uint32_t waits) {
  for (uint32_t i = 0; i < j->pending.len; i++) {
    work *p = &j->pending.data[i];
    for (uint32_t k = 0; k < p->owners.len; k++) close_over(j, &p->owners.data[k], l);
  }
  close_over(j, &j->current, l);
  for (uint32_t i = waits; i < j->waits.len; i++) {
    wait *w = &j->waits.data[i];
    close_over(j, &w->who, l);
    close_over(j, &w->on, l);
    settle(j, w, serial);
  }
  if (j->loops == 0) j->waits.len = 0;
}

static void walk_for(joins *j, const ir_instr_data *d) {
  loop l = {d->variable, d->extent};
  uint32_t serial = j->serial, waits = j->waits.len;
  stream_set before = j->current;
  j->loops++;
  walk(j, &d->body);
  bool moved = !same_set(j, &before, &j->current);
  if (moved && j->budget > 0 && first_use_in(j->h, &d->body) == INHERITS) {
    close_over(j, &j->current, l); /* the stream that another iteration left */
    walk(j, &d->body);
  }
  j->loops--;
  end_loop(j, l, serial, waits);
}

/* After an if, the current stream is the main one only if it is so after both branches. */
static void walk_if(joins *j, const ir_instr_data *d) {
  stream_set before = j->current;
  walk(j, &d->body);
  stream_set then = j->current;
  j->current = before;
  walk(j, &d->otherwise);
  if (j->current.main) j->current = then;
}

static void walk_instr(joins *j, const ir_instr_data *d) {
  switch (d->kind) {
  case IR_CURRENT_STREAM:
    vec_push(memory_of(j), &j->names, ((named){d->stream.name, j->current}));
    return;
  case IR_SET_STREAM:
    j->current = set_of(j, d);
    j->current_at = d->at;
    return;
  case IR_WAIT_STREAM: add_wait(j, d); return;
  case IR_COMMUNICATE:
  case IR_WAIT:
  case IR_COMPUTE:
  case IR_LAUNCH: add_work(j); return;
  case IR_FOR: walk_for(j, d); return;
  case IR_IF: walk_if(j, d); return;
  case IR_ALLOCATE:
  case IR_DEALLOCATE:
  case IR_SELECT:
  case IR_SHARD:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_VIEW: return;
  }
}

static void walk(joins *j, const ir_block *block) {
  uint32_t names = j->names.len;
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data d = *ir_instr_at(j->h, block->data[i]);
    if (j->budget > 0) j->budget--;
    walk_instr(j, &d);
  }
  j->names.len = names;
}

bool ir_host_verify_streams(ir_func *h) {
  joins j = {.h = h, .current = {.main = true}};
  j.budget = 16 * (uint64_t)h->host->instrs.len + 1024;
  walk(&j, &h->host->body);
  for (uint32_t i = 0; i < j.pending.len; i++) {
    const work *w = &j.pending.data[i];
    diag_error(&h->module->errors, w->at,
               "stream %s is never joined: the stream the program was called on must wait for it, "
               "with wait_stream(), before the end",
               ir_scalar_text(h, w->owners.data[0].index));
  }
  return j.pending.len == 0;
}
