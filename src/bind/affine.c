/* How values move with the index of a loop: the value in the k-th window from now is value + k * step, for k below a
 * horizon. Read off the expression; no other iteration is computed. */
#include "bind/loop.h"

#define FOREVER INT64_MAX

static bool add(int64_t a, int64_t b, int64_t *sum) { return !__builtin_add_overflow(a, b, sum); }
static bool mul(int64_t a, int64_t b, int64_t *product) {
  return !__builtin_mul_overflow(a, b, product);
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* The first k >= 0 with value + k * step > limit. */
static int64_t exceeds(int64_t value, int64_t step, int64_t limit) {
  int64_t way;
  if (value > limit) return 0;
  if (step <= 0 || !add(limit, -value, &way)) return FOREVER;
  return way / step + 1;
}

int64_t bind_moves_above(bind_motion m, int64_t limit) {
  return least(m.horizon, exceeds(m.value, m.step, limit));
}

int64_t bind_moves_below(bind_motion m, int64_t limit) {
  if (m.value == INT64_MIN || m.step == INT64_MIN || limit == INT64_MIN) return 0;
  return least(m.horizon, exceeds(-m.value, -m.step, -limit));
}

/* ---- expressions ---- */
static bind_motion constant(int64_t value) {
  return (bind_motion){.value = value, .horizon = FOREVER};
}

/* Nothing is known of the next window. */
static bind_motion unknown(int64_t value) { return (bind_motion){.value = value, .horizon = 1}; }

static bind_motion sum(bind_motion a, bind_motion b, int64_t value) {
  bind_motion m = {.value = value, .horizon = least(a.horizon, b.horizon)};
  return add(a.step, b.step, &m.step) ? m : unknown(value);
}

static bind_motion product(bind_motion a, bind_motion b, int64_t value) {
  bind_motion m = {.value = value, .horizon = least(a.horizon, b.horizon)};
  if (a.step != 0 && b.step != 0) return unknown(value);
  bool fits = a.step ? mul(a.step, b.value, &m.step) : mul(b.step, a.value, &m.step);
  return fits ? m : unknown(value);
}

/* A quotient or remainder by m begins anew after so many iterations: asks for a window of a multiple of
 * them. */
static void want(bind_watch *w, int64_t step, int64_t m, int64_t horizon) {
  int64_t turns = m / ir_gcd(step, m), all;
  if (!w->probes || horizon >= w->left || turns > BIND_LONGEST_WINDOW) return;
  all = w->wanted / ir_gcd(w->wanted, turns) * turns;
  if (all <= BIND_LONGEST_WINDOW) w->wanted = all;
  else w->too_long = true;
}

/* For how many windows a / m keeps its value. */
static int64_t same_quotient(bind_motion a, int64_t m, int64_t quotient) {
  int64_t first, end;
  if (!mul(quotient, m, &first) || !add(first, m, &end)) return 1;
  return a.step > 0 ? bind_moves_above(a, end - 1) : bind_moves_below(a, first);
}

static bind_motion quotient(bind_watch *w, bind_motion a, bind_motion b, int64_t value) {
  bind_motion m = {.value = value, .horizon = least(a.horizon, b.horizon)};
  if (b.step != 0 || b.value < 1) return unknown(value);
  m.step = a.step / b.value;
  if (a.step % b.value == 0) return m;
  m.step = 0;
  m.horizon = least(b.horizon, same_quotient(a, b.value, value));
  want(w, a.step, b.value, m.horizon);
  return m;
}

static bind_motion remainder_of(bind_watch *w, bind_motion a, bind_motion b, int64_t value) {
  bind_motion m = {.value = value, .horizon = least(a.horizon, b.horizon)};
  if (b.step != 0 || b.value < 1) return unknown(value);
  if (a.step % b.value == 0) return m;
  m.step = a.step;
  m.horizon = least(b.horizon, same_quotient(a, b.value, floor_div(a.value, b.value)));
  want(w, a.step, b.value, m.horizon);
  return m;
}

/* The smaller of the two, for as long as it is the smaller one. */
static bind_motion smaller(bind_motion a, bind_motion b) {
  bind_motion less = a.value <= b.value ? a : b, more = a.value <= b.value ? b : a, way = {0};
  way.horizon = least(a.horizon, b.horizon);
  if (!add(less.value, -more.value, &way.value) || !add(less.step, -more.step, &way.step))
    return unknown(less.value);
  less.horizon = bind_moves_above(way, 0);
  return less;
}

static bind_motion negative(bind_motion m) { return (bind_motion){-m.value, -m.step, m.horizon}; }

static bind_motion of_node(const binder *b, bind_watch *w, const ir_scalar_node *n, int64_t value) {
  bind_motion x, y;
  switch (n->kind) {
  case IR_SCALAR_CONST: return constant(value);
  case IR_SCALAR_SYMBOL:
    if ((uint32_t)n->value != w->symbol) return constant(value);
    return (bind_motion){value, w->period, FOREVER};
  case IR_SCALAR_OVERFLOWED:
  case IR_SCALAR_LIST:
  case IR_SCALAR_CHUNK:
  case IR_SCALAR_CHUNK_START: return unknown(value);
  case IR_SCALAR_ADD:
  case IR_SCALAR_MUL:
  case IR_SCALAR_FLOORDIV:
  case IR_SCALAR_CEILDIV:
  case IR_SCALAR_MOD:
  case IR_SCALAR_MIN:
  case IR_SCALAR_MAX: break;
  }
  if (!bind_motion_of(b, w, n->a, &x) || !bind_motion_of(b, w, n->b, &y)) return unknown(value);
  if (n->kind == IR_SCALAR_ADD) return sum(x, y, value);
  if (n->kind == IR_SCALAR_MUL) return product(x, y, value);
  if (n->kind == IR_SCALAR_MOD) return remainder_of(w, x, y, value);
  if (n->kind == IR_SCALAR_MIN) return smaller(x, y);
  if (n->kind == IR_SCALAR_MAX) return negative(smaller(negative(x), negative(y)));
  if (n->kind == IR_SCALAR_CEILDIV && !add(x.value, y.value - 1, &x.value)) return unknown(value);
  return quotient(w, x, y, value);
}

bool bind_motion_of(const binder *b, bind_watch *w, ir_scalar x, bind_motion *result) {
  const ir_scalars *s = &b->h->module->scalars;
  int64_t value;
  if (!ir_scalar_eval(s, x, b->symbols, b->n_symbols, &value)) return false;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  bool large = value > INT64_MAX / 4 || value < -(INT64_MAX / 4) || n->size > IR_SCALAR_SMALL;
  if (!ir_scalar_has(s, x, IR_SYMBOL_INDEX)) *result = constant(value);
  else *result = large ? unknown(value) : of_node(b, w, n, value);
  if (result->step > INT64_MAX / 4 || result->step < -(INT64_MAX / 4)) *result = unknown(value);
  return true;
}
