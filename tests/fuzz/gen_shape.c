/* Operations that move elements about: views, cuts, and what reads through an index. */
#include <stdio.h>
#include <string.h>

#include "gen_model.h"

static void begin_call(model *m, model_tensor *t, uint32_t who) {
  const model_tensor *x = &m->tensors[who];
  t->dtype = x->dtype;
  t->bound = x->bound;
  expr_printf(t, "%s(", ir_op_info_of(t->op)->name);
  model_use(m, t, who);
}

static void add_dim(model_tensor *t, model_dim d) { t->dims[t->rank++] = d; }

/* A dim of the same size that no longer broadcasts. */
static model_dim plain(model_dim d) {
  d.one = false;
  return d;
}

/* ---- views ---- */
bool make_broadcast(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 0, 3);
  const model_tensor *x = &m->tensors[who];
  uint32_t more = 1 + below(m, 2), at = 0;
  begin_call(m, t, who);
  expr_printf(t, ", [");
  for (uint32_t i = 0; i < x->rank + more; i++) {
    uint32_t left = x->rank + more - i;
    bool fresh = i - at < more && (x->rank - at == 0 || below(m, left) < more - (i - at));
    add_dim(t, fresh ? dim_one() : x->dims[at]);
    at += fresh ? 0 : 1;
    expr_printf(t, "%s%s", i ? ", " : "", fresh ? "true" : "false");
  }
  expr_printf(t, "])");
  return true;
}

static bool wants_one(const model_tensor *t) {
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->dims[i].one) return true;
  return false;
}

bool make_squeeze(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  const char *comma = "";
  char axis[8];
  if (!wants_one(x)) return false;
  begin_call(m, t, who);
  expr_printf(t, ", dims=[");
  for (uint32_t i = 0; i < x->rank; i++) {
    bool drop = x->dims[i].one && (comma[0] == '\0' || chance(m, 60));
    if (!drop) add_dim(t, x->dims[i]);
    if (!drop) continue;
    expr_printf(t, "%s%s", comma, axis_text(m, i, x->rank, axis));
    comma = ", ";
  }
  expr_printf(t, "])");
  return true;
}

bool make_expand(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, GEN_MAX_RANK - 1);
  const model_tensor *x = &m->tensors[who];
  begin_call(m, t, who);
  expr_printf(t, ", [");
  if (chance(m, 25)) { /* a new axis in front */
    add_dim(t, plain(dim_random(m)));
    expr_printf(t, "%s, ", t->dims[0].text);
  }
  for (uint32_t i = 0; i < x->rank; i++) {
    model_dim d = x->dims[i].one ? dim_random(m) : x->dims[i];
    if (!d.text[0]) return false;
    add_dim(t, d);
    expr_printf(t, "%s%s", i ? ", " : "", d.text);
  }
  expr_printf(t, "])");
  return true;
}

bool make_permute(model *m, model_tensor *t) {
  bool swap = t->op == IR_OP_TRANSPOSE;
  uint32_t who = model_pick(m, wants_any, swap ? 2 : 0, GEN_MAX_RANK), order[GEN_MAX_RANK];
  const model_tensor *x = &m->tensors[who];
  for (uint32_t i = 0; i < x->rank; i++) order[i] = i;
  for (uint32_t i = x->rank; i-- > 1 && !swap;) {
    uint32_t k = below(m, i + 1), old = order[i];
    order[i] = order[k];
    order[k] = old;
  }
  if (swap) order[x->rank - 1] = x->rank - 2;
  if (swap) order[x->rank - 2] = x->rank - 1;
  begin_call(m, t, who);
  for (uint32_t i = 0; i < x->rank; i++) {
    add_dim(t, x->dims[order[i]]);
    if (!swap) expr_printf(t, "%s%u", i ? ", " : ", [", order[i]);
  }
  expr_printf(t, swap ? ")" : x->rank ? "])" : ", [])");
  return true;
}

/* Joins neighbouring dims and cuts others in two; sizes multiply to the same number. */
static void reshape_dims(model *m, const model_tensor *x, model_tensor *t) {
  for (uint32_t i = 0; i < x->rank; i++) {
    const model_dim *d = &x->dims[i], *e = &x->dims[i + 1 < x->rank ? i + 1 : i];
    bool join = i + 1 < x->rank && d->text[0] && e->text[0] && chance(m, 40);
    bool cut = d->size > 0 && d->size % 2 == 0 && d->text[0] && t->rank < 4 && chance(m, 40);
    if (join && dim_is_const(d) && dim_is_const(e)) {
      add_dim(t, dim_const(d->size * e->size));
      i++;
    } else if (join) {
      add_dim(t, dim_expr(d->size * e->size, "(%s) * (%s)", d->text, e->text));
      i++;
    } else if (cut && dim_is_const(d)) {
      add_dim(t, dim_const(d->size / 2));
      add_dim(t, dim_const(2));
    } else {
      add_dim(t, plain(*d));
    }
  }
}

bool make_reshape(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 0, 4);
  const model_tensor *x = &m->tensors[who];
  bool zero = dims_count(x->dims, x->rank) == 0;
  reshape_dims(m, x, t);
  uint32_t guess = t->rank && !zero && chance(m, 40) ? below(m, t->rank) : GEN_MAX_RANK;
  begin_call(m, t, who);
  expr_printf(t, ", [");
  for (uint32_t i = 0; i < t->rank; i++) {
    if (i == guess && !dim_is_const(&t->dims[i])) t->dims[i] = dim_unknown(t->dims[i].size);
    if (i != guess && !t->dims[i].text[0]) return false;
    expr_printf(t, "%s%s", i ? ", " : "", i == guess ? "-1" : t->dims[i].text);
  }
  expr_printf(t, "])");
  return true;
}

/* ---- cuts ---- */
typedef struct cut {
  int64_t start, stop, step;
  bool to_end; /* stop is the extent itself, by its name */
  bool back;   /* written as counted from the end, where that is not the end itself */
} cut;

static cut random_cut(model *m, const model_dim *d) {
  cut c = {.stop = d->size, .step = 1};
  if (chance(m, 60)) c.start = below(m, (uint32_t)d->size + 1);
  c.to_end = d->text[0] && chance(m, 60);
  if (!c.to_end) c.stop = c.start + below(m, (uint32_t)(d->size - c.start) + 1);
  if (chance(m, 25)) c.step = 1 + below(m, 3);
  c.back = chance(m, 15);
  return c;
}

static int64_t bound_text(const cut *c, int64_t bound, int64_t size) {
  return c->back && bound < size ? bound - size : bound;
}

static model_dim cut_dim(const model_dim *d, const cut *c) {
  int64_t size = (c->stop - c->start + c->step - 1) / c->step;
  return dim_is_const(d) ? dim_const(size) : dim_unknown(size);
}

bool make_slice(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  cut cuts[GEN_MAX_RANK];
  bool steps = chance(m, 20);
  for (uint32_t i = 0; i < x->rank; i++) {
    cuts[i] = random_cut(m, &x->dims[i]);
    steps |= cuts[i].step > 1;
    add_dim(t, cut_dim(&x->dims[i], &cuts[i]));
  }
  begin_call(m, t, who);
  for (uint32_t i = 0; i < x->rank; i++)
    expr_printf(t, "%s%lld", i ? ", " : ", starts=[",
                (long long)bound_text(&cuts[i], cuts[i].start, x->dims[i].size));
  for (uint32_t i = 0; i < x->rank; i++) {
    expr_printf(t, i ? ", " : "], stops=[");
    if (cuts[i].to_end) expr_printf(t, "%s", x->dims[i].text);
    else expr_printf(t, "%lld", (long long)bound_text(&cuts[i], cuts[i].stop, x->dims[i].size));
  }
  for (uint32_t i = 0; steps && i < x->rank; i++)
    expr_printf(t, "%s%lld", i ? ", " : "], steps=[", (long long)cuts[i].step);
  expr_printf(t, "])");
  return true;
}

bool make_pad(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, 4);
  const model_tensor *x = &m->tensors[who];
  begin_call(m, t, who);
  expr_printf(t, ", [");
  for (uint32_t i = 0; i < x->rank; i++) {
    uint32_t before = below(m, 3), after = below(m, 3), both = before + after;
    model_dim d = x->dims[i];
    add_dim(t, both == 0          ? plain(d)
               : dim_is_const(&d) ? dim_const(d.size + both)
               : d.text[0]        ? dim_expr(d.size + both, "%s + %u", d.text, both)
                                  : dim_unknown(d.size + both));
    expr_printf(t, "%s%u, %u", i ? ", " : "", before, after);
  }
  bool value = t->dtype != IR_BOOL && chance(m, 40);
  if (value) t->bound = t->bound > 2 ? t->bound : 2;
  expr_printf(t, value ? "], value=2)" : "])");
  return true;
}

static bool same_but(const model_tensor *a, const model_tensor *b, uint32_t dim) {
  if (a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (i != dim && (a->dims[i].size != b->dims[i].size || a->dims[i].one != b->dims[i].one))
      return false;
  return true;
}

/* A tensor that can be joined with `x` along `dim`: an old one if the dice find it, else a new one. */
static uint32_t pick_beside(model *m, uint32_t who, uint32_t dim) {
  uint32_t other = model_pick(m, wants_any, m->tensors[who].rank, m->tensors[who].rank);
  if (same_but(&m->tensors[who], &m->tensors[other], dim)) return other;
  model_dim dims[GEN_MAX_RANK];
  memcpy(dims, m->tensors[who].dims, sizeof dims);
  dims[dim] = dim_random(m);
  return model_input(m, dtype_random(m), dims, m->tensors[who].rank);
}

static model_dim joined(const model_dim *a, const model_dim *b) {
  int64_t size = a->size + b->size;
  if (dim_is_const(a) && dim_is_const(b)) return dim_const(size);
  return a->text[0] && b->text[0] ? dim_expr(size, "%s + %s", a->text, b->text) : dim_unknown(size);
}

bool make_cat(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, 4), n = below(m, 3);
  uint32_t dim = below(m, m->tensors[who].rank);
  char axis[8];
  model_meet(t, &m->tensors[who]);
  t->dims[dim].one = false;
  begin_call(m, t, who);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t other = pick_beside(m, who, dim);
    const model_tensor *y = &m->tensors[other];
    for (uint32_t i = 0; i < t->rank; i++)
      if (i == dim) t->dims[i] = joined(&t->dims[i], &y->dims[i]);
      else if (!dim_meet(&t->dims[i], &y->dims[i], &t->dims[i])) return false;
    t->dtype = dtype_meet(t->dtype, y->dtype);
    t->bound = y->bound > t->bound ? y->bound : t->bound;
    expr_printf(t, ", ");
    model_use(m, t, other);
  }
  expr_printf(t, ", dim=%s)", axis_text(m, dim, t->rank, axis));
  return true;
}

bool make_select(model *m, model_tensor *t) {
  uint32_t who = model_pick(m, wants_any, 1, GEN_MAX_RANK);
  const model_tensor *x = &m->tensors[who];
  uint32_t dim = below(m, x->rank);
  char axis[8];
  if (x->dims[dim].size == 0) return false;
  for (uint32_t i = 0; i < x->rank; i++)
    if (i != dim) add_dim(t, x->dims[i]);
  begin_call(m, t, who);
  int64_t size = x->dims[dim].size, index = below(m, (uint32_t)size);
  expr_printf(t, ", dim=%s, index=%lld)", axis_text(m, dim, x->rank, axis),
              (long long)(chance(m, 20) ? index - size : index));
  return true;
}
