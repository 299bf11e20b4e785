/* Are the plans of all ranks one plan? Found while that of one rank is bound (docs/scale.md).
 *
 * Ranks differ by their coordinates in the mesh alone. They are alike if every value that is computed from
 * coordinates either is the same on all ranks, or turns with the rank and is used in one of two ways:
 *   - as a peer of a message, in the team along the axis that it turns with;
 *   - as the position of a slice in a dimension that has as many blocks as the mesh has devices along the
 *     axis. The memory of the buffer then turns with the rank, and so must everything that touches it: each
 *     view of that buffer is one block, or has all blocks alike.
 * A rank on which another value differs is not like this one; ranks with the same value may still be. The root
 * of a collective touches one more buffer than the others, so each post of such a collective has that buffer. */
#include "bind/internal.h"

/* Evaluations of scalars for other ranks. */
enum { MOST_STEPS = 16 * 1000 * 1000 };

static const ir_mesh_data *mesh_of_all(const ir_func *h, uint32_t world) {
  if (world < 2 || h->meshes.len < 2) return NULL;
  const ir_mesh_data *first = &h->meshes.data[1];
  if (first->n_devices != world) return NULL;
  for (uint32_t i = 2; i < h->meshes.len; i++)
    if (!ir_mesh_same(first, &h->meshes.data[i])) return NULL;
  return first;
}

void bind_alike_begin(binder *b, uint32_t world) {
  b->alike = mesh_of_all(b->h, world);
  b->alike_steps = MOST_STEPS;
  b->n_same = b->h->module->scalars.nodes.len;
  if (!b->alike) return;
  b->same = ARENA_ARRAY(&b->scratch, b->n_same, uint8_t);
  b->differs = ARENA_ARRAY(&b->scratch, world, bool);
}

/* ---- values that are the same ---- */
typedef struct coordinates {
  uint32_t n;
  struct {
    uint32_t symbol, axis;
    int64_t here;
  } list[IR_MESH_MAX_RANK];
  bool one_axis;
} coordinates;

/* Finds the coordinates that occur in x; false: there are too many. */
static bool find_coordinates(const binder *b, ir_scalar x, coordinates *c) {
  const ir_scalars *s = &b->h->module->scalars;
  *c = (coordinates){.one_axis = true};
  for (uint32_t i = 0; i < b->h->host->coordinates.len; i++) {
    const ir_coordinate *one = &b->h->host->coordinates.data[i];
    uint32_t symbol = (uint32_t)ir_scalar_node_of(s, one->symbol)->value;
    if (!ir_scalar_mentions(s, x, symbol)) continue;
    if (c->n == IR_MESH_MAX_RANK) return false;
    c->list[c->n].symbol = symbol;
    c->list[c->n].axis = one->axis;
    c->list[c->n].here = b->symbols[symbol];
    if (one->axis != c->list[0].axis) c->one_axis = false;
    c->n++;
  }
  return c->n > 0;
}

static bool is_same_at(binder *b, const coordinates *c, int64_t position, ir_scalar x,
                       int64_t value) {
  for (uint32_t i = 0; i < c->n; i++)
    b->symbols[c->list[i].symbol] =
        c->one_axis ? position : ir_mesh_coordinate(b->alike, position, c->list[i].axis);
  int64_t there;
  return ir_scalar_eval(&b->h->module->scalars, x, b->symbols, b->n_symbols, &there) &&
         there == value;
}

static void set_one_apart(binder *b, int64_t position) {
  b->n_differ += !b->differs[position];
  b->differs[position] = true;
}

/* Notes that ranks at that position, of the mesh or along the axis, have another plan. */
static void set_apart(binder *b, const coordinates *c, int64_t position) {
  const ir_mesh_data *m = b->alike;
  if (!c->one_axis || m->rank == 1) set_one_apart(b, position);
  for (int64_t p = 0; c->one_axis && m->rank > 1 && p < m->n_devices; p++)
    if (ir_mesh_coordinate(m, p, c->list[0].axis) == position) set_one_apart(b, p);
}

/* Compares x with its value on other ranks. False: it would take too long. */
static bool compare(binder *b, ir_scalar x, int64_t value) {
  coordinates c;
  if (!find_coordinates(b, x, &c)) return false;
  int64_t n = c.one_axis ? ir_mesh_size(b->alike, c.list[0].axis) : b->alike->n_devices;
  for (int64_t i = 0; i < n && b->alike_steps >= 0; i++) {
    b->alike_steps--;
    if (is_same_at(b, &c, i, x, value)) continue;
    set_apart(b, &c, i);
    if (b->alike->rank > 1) b->alike_steps -= b->alike->n_devices;
  }
  for (uint32_t i = 0; i < c.n; i++) b->symbols[c.list[i].symbol] = c.list[i].here;
  return b->alike_steps >= 0;
}

void bind_alike_value(binder *b, ir_scalar x, int64_t value) {
  check(x.id < b->n_same);
  if (b->same[x.id] || bind_is_alone(b)) return;
  if (!compare(b, x, value)) bind_unlike(b);
  else if (!ir_scalar_has(&b->h->module->scalars, x, IR_SYMBOL_INDEX)) b->same[x.id] = 1;
}

/* ---- values that turn ---- */
typedef struct sum {
  uint32_t symbol; /* the coordinate + 1; 0: none yet */
  bool bare;       /* nothing is added to it */
} sum;

/* Is x a sum of one coordinate and of terms without any? */
static bool add_terms(const ir_scalars *s, ir_scalar x, sum *t) {
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  if (n->kind == IR_SCALAR_ADD) {
    t->bare = false;
    return add_terms(s, n->a, t) && add_terms(s, n->b, t);
  }
  if (!ir_scalar_has(s, x, IR_SYMBOL_RANK)) return true;
  if (n->kind != IR_SCALAR_SYMBOL || t->symbol) return false;
  t->symbol = (uint32_t)n->value + 1;
  return true;
}

/* me, or (me + …) % n with n devices along the axis: its mark axis + 1. 0: neither. */
static uint32_t turning_axis(const binder *b, ir_scalar x) {
  const ir_scalars *s = &b->h->module->scalars;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  bool modulo = n->kind == IR_SCALAR_MOD;
  int64_t size = 0;
  sum t = {.bare = true};
  if (modulo && !ir_scalar_is_const(s, n->b, &size)) return 0;
  if (!add_terms(s, modulo ? n->a : x, &t) || !t.symbol) return 0;
  uint32_t axis = s->symbols.data[t.symbol - 1].dim;
  if (modulo ? size != ir_mesh_size(b->alike, axis) : !t.bare) return 0;
  return axis + 1;
}

bool bind_eval_turning(binder *b, const ir_instr_data *d, ir_scalar x, int64_t *value,
                       uint32_t *axis) {
  const ir_mesh_data *alike = b->alike;
  bool may_turn = alike && ir_scalar_has(&b->h->module->scalars, x, IR_SYMBOL_RANK);
  *axis = may_turn ? turning_axis(b, x) : 0;
  if (*axis) b->alike = NULL; /* it need not be the same on all ranks, nor in all iterations */
  bind_watch *watch = b->watch;
  b->watch = NULL;
  bool ok = bind_eval(b, d, x, value);
  b->watch = watch;
  if (watch && !*axis) bind_watch_rank(b, x);
  if (*axis) b->alike = alike;
  return ok;
}

/* ---- memory that turns ---- */
static bool same_turn(const bind_turn *a, const bind_turn *b) {
  return a->axis == b->axis && a->block_bytes == b->block_bytes &&
         a->period_bytes == b->period_bytes;
}

/* How far the view reaches from its first byte by dimensions whose steps are no whole periods, dimension
 * `but` left out. */
static int64_t reach_bytes(const rt_view *v, int64_t period_bytes, uint32_t but) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype), reach = size;
  for (uint32_t i = 0; i < v->rank; i++) {
    int64_t step = v->strides[i] * size;
    if (i == but || v->extents[i] < 2 || step % period_bytes == 0) continue;
    if (step < 0) return INT64_MAX / 2;
    reach += (v->extents[i] - 1) * step;
  }
  return reach;
}

/* Does the view lie in one block of each period? */
static bool is_in_block(const rt_view *v, const bind_turn *t) {
  return v->offset_bytes >= 0 &&
         v->offset_bytes % t->block_bytes + reach_bytes(v, t->period_bytes, v->rank) <=
             t->block_bytes;
}

void bind_turn_part(binder *b, ir_tensor part, ir_tensor from, uint32_t axis, int64_t n,
                    int64_t block_bytes) {
  bind_turn t = b->turns[from.id];
  if (axis && b->alike) {
    bind_turn own = {axis, block_bytes, block_bytes * n};
    bool fits = !t.axis && n == ir_mesh_size(b->alike, axis - 1) && block_bytes > 0 &&
                b->views[from.id].offset_bytes % own.period_bytes < block_bytes &&
                is_in_block(&b->views[part.id], &own);
    if (!fits) bind_unlike(b);
    if (b->watch) bind_watch_turn(b, from, b->views[from.id].offset_bytes);
    t = own;
  }
  b->turns[part.id] = t;
}

void bind_turn_note(binder *b, ir_tensor t, uint32_t view, bool known) {
  if (!b->alike) return;
  const bind_turn *turn = &b->turns[t.id];
  if (!known) vec_push(&b->scratch, &b->view_turns, *turn);
  else if (!same_turn(turn, &b->view_turns.data[view])) bind_unlike(b);
}

/* Are all blocks of a period alike to the view? A dimension goes through the whole of it in steps that
 * divide a block, and what is touched at each step lies within the step. */
static bool has_all_blocks(const rt_view *v, const bind_turn *t) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype);
  for (uint32_t i = 0; i < v->rank; i++) {
    int64_t step = v->strides[i] * size;
    if (step <= 0 || t->block_bytes % step != 0 || step * v->extents[i] != t->period_bytes)
      continue;
    return v->offset_bytes % t->period_bytes + reach_bytes(v, t->period_bytes, i) <= step;
  }
  return false;
}

/* Does the view consist of whole periods, without gaps? */
static bool is_whole(const rt_view *v, const bind_turn *t) {
  int64_t stride = 1;
  for (uint32_t i = v->rank; i-- > 0;) {
    if (v->extents[i] != 1 && v->strides[i] != stride) return false;
    stride *= v->extents[i];
  }
  return v->offset_bytes % t->period_bytes == 0 &&
         stride * (int64_t)ir_dtype_size_bytes(v->dtype) % t->period_bytes == 0;
}

/* The turn of each buffer; false: views of one turn differently. */
static bool turns_of_buffers(const binder *b, bind_turn *turns, bool *any) {
  for (uint32_t i = 0; i < b->view_turns.len; i++) {
    const bind_turn *t = &b->view_turns.data[i];
    bind_turn *whole = &turns[b->plan->views[i].buffer];
    if (!t->axis) continue;
    if (whole->axis && !same_turn(t, whole)) return false;
    *whole = *t;
    *any = true;
  }
  return true;
}

static bool views_fit(const binder *b, const bind_turn *turns) {
  for (uint32_t i = 0; i < b->view_turns.len; i++) {
    const rt_view *v = &b->plan->views[i];
    const bind_turn *t = &turns[v->buffer];
    if (!t->axis || rt_view_is_empty(v)) continue;
    bool moves = b->view_turns.data[i].axis;
    bool fits = moves ? is_in_block(v, t) : is_whole(v, t) || has_all_blocks(v, t);
    /* In a loop it must stay so in all repetitions. */
    bool stays = v->step_bytes % (moves ? t->block_bytes : t->period_bytes) == 0;
    if (!fits || !stays) return false;
  }
  return true;
}

static bool share_bytes(const rt_buffer *x, const rt_buffer *y) {
  return x->kind == RT_BUFFER_POOL && y->kind == RT_BUFFER_POOL && y->size_bytes > 0 &&
         x->offset_bytes < y->offset_bytes + y->size_bytes &&
         y->offset_bytes < x->offset_bytes + x->size_bytes;
}

/* Are buffers that turn alone in their memory? Another one there would not turn with them. */
static bool are_alone(binder *b, const bind_turn *turns) {
  const rt_plan *plan = b->plan;
  for (uint32_t i = 0; i < plan->n_buffers; i++) {
    if (!turns[i].axis) continue;
    if ((b->alike_steps -= plan->n_buffers) < 0) return false;
    for (uint32_t k = 0; k < plan->n_buffers; k++)
      if (k != i && share_bytes(&plan->buffers[i], &plan->buffers[k])) return false;
  }
  return true;
}

/* Does all memory that turns do so as a whole? */
static bool turns_fit(binder *b) {
  check(b->view_turns.len == b->all_views.len);
  bind_turn *turns = ARENA_ARRAY(&b->scratch, b->buffers.len, bind_turn);
  bool any = false;
  if (!turns_of_buffers(b, turns, &any)) return false;
  return !any || (views_fit(b, turns) && are_alone(b, turns));
}

void bind_alike_end(binder *b) {
  if (!b->alike || !turns_fit(b)) return;
  if (!b->n_differ) b->plan->alike = b->alike;
  else {
    bool *differs = ARENA_ARRAY(b->memory, (size_t)b->alike->n_devices, bool);
    for (int64_t p = 0; p < b->alike->n_devices; p++) differs[b->alike->devices[p]] = b->differs[p];
    b->plan->kin = b->alike;
    b->plan->differs = differs;
  }
}
