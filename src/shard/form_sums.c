/* Sums whose partial results are added first, so that one communication reduces them:
 *
 *   a = matmul(h, v);  b = matmul(g, w);  y = x + a + b          a and b reduced along mesh.x
 *     =>  y$1 = a + b;  y = x + y$1                              one allreduce, of y$1 (host/sums.c)
 *
 * Terms that lie alike, but not where the sum does, are added where they are, and brought over once:
 *
 *   y[mesh.x, e] = x[mesh.x, e] + a[t, mesh.x] + b[t, mesh.x]  =>  y$1[t, mesh.x] = a + b;  y = x + y$1
 *
 * Of a sum that is only added up, or averaged, partial results and the rest are so apart, since fewer are left then:
 *
 *   y = mean(x - a)              a reduced along mesh.x
 *     =>  y$1 = mean(x);  y$2 = mean(a);  y = y$1 - y$2          one allreduce, of y$2
 *
 * A sum is a tree of additions and subtractions of one shape and placement, each read by the next alone. Its terms
 * are what is added. The bias of a product becomes a term of its own. */
#include "shard/form.h"
#include "shard/internal.h"

enum { MOST_TERMS = 32, DEEPEST = 32, MOST_STEPS = 3 };

typedef struct summing {
  shard_ctx *c;
  ir_func *f;
  ir_reads reads;
  /* The sum at hand. */
  ir_tensor root;
  form_term terms[MOST_TERMS];
  uint32_t n;
  struct {
    uint32_t first, end;
  } sums[MOST_TERMS]; /* additions: the terms of each */
  uint32_t n_sums;
} summing;

/* ---- likeness ---- */
static bool is_streamed(const ir_func *f, ir_tensor t) {
  return ir_axes_streamed(f, ir_tensor_at(f, t)->now.loop);
}

static bool lies_alike(const ir_func *f, ir_tensor a, ir_tensor b) {
  shard_placement p, q;
  shard_placement_of(f, a, &p);
  shard_placement_of(f, b, &q);
  if (!IR_SAME(p.mesh, q.mesh)) return false;
  for (uint32_t k = 0; k < p.rank; k++) {
    const shard_axis *x = &p.axes[k], *y = &q.axes[k];
    bool x_cut = x->kind == SHARD_SHARDED, y_cut = y->kind == SHARD_SHARDED;
    if (x_cut != y_cut || (x_cut && (x->dim != y->dim || x->cut != y->cut))) return false;
  }
  return true;
}

static bool has_shape_of(ir_func *f, ir_tensor a, ir_tensor b) {
  ir_axis x[IR_MAX_RANK], y[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(f, a, x);
  if (rank != ir_tensor_dims(f, b, y)) return false;
  for (uint32_t d = 0; d < rank; d++)
    if (ir_func_equal(f, ir_axis_size(f, x[d]), ir_axis_size(f, y[d])) != IR_TRUE) return false;
  return true;
}

static bool is_like(const summing *s, ir_tensor a, ir_tensor b) {
  return ir_tensor_at(s->f, a)->dtype == ir_tensor_at(s->f, b)->dtype && !is_streamed(s->f, a) &&
         has_shape_of(s->f, a, b) && lies_alike(s->f, a, b);
}

/* ---- terms ---- */
/* Without its bias, has the product another dtype? */
static bool needs_bias(const summing *s, const ir_op_data *op) {
  ir_dtype dtype = ir_tensor_at(s->f, op->result)->dtype;
  return ir_op_has_bias(op) && !ir_op_attr(op, "dtype")->given &&
         (ir_tensor_at(s->f, op->operands[0])->dtype != dtype ||
          ir_tensor_at(s->f, op->operands[1])->dtype != dtype);
}

static bool is_number(const ir_func *f, ir_tensor t) {
  return ir_tensor_at(f, t)->kind == IR_TENSOR_CONST;
}

/* Mesh axes along which the operation itself leaves partial sums. */
static uint32_t parts_made(const summing *s, const ir_op_data *op) {
  shard_comm comm;
  shard_placement p;
  uint32_t mask = 0;
  if (shard_comm_of(s->c, op, &comm) == SHARD_ONE) {
    bool sums = comm.kind == SHARD_ALLREDUCE && comm.combine == IR_COMBINE_SUM;
    return sums && IR_SAME(comm.from, comm.to) && comm.mesh_axis >= 0 ? 1u << comm.mesh_axis : 0;
  }
  if (ir_op_fold(op->code) != IR_FOLD_SUM || needs_bias(s, op)) return 0;
  shard_placement_of(s->f, op->result, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if (p.axes[k].reduced.id && ir_mesh_size(ir_mesh_at(s->f, p.mesh), k) > 1) mask |= 1u << k;
  return mask;
}

/* Mesh axes along which devices have partial sums of `t`, perhaps through operations that are
 * linear in them. What is read by others too may be left in parts for all of them. */
static uint32_t parts_of(const summing *s, ir_tensor t, uint32_t steps) {
  bool read_once = s->reads.n[t.id] == 1 || steps < MOST_STEPS;
  const ir_op_data *op = read_once ? form_maker(s->f, t) : NULL;
  if (!op || op->n_operands == 0 || is_streamed(s->f, t)) return 0;
  uint32_t mask = parts_made(s, op);
  for (uint32_t k = 0; !mask && steps && k < 2 && k < op->n_operands; k++) {
    ir_tensor x = op->operands[k];
    bool goes_on = x.id && ir_op_is_linear(op, k) &&
                   ir_tensor_at(s->f, x)->dtype == ir_tensor_at(s->f, t)->dtype;
    if (goes_on) mask = parts_of(s, x, steps - 1);
    if (shard_is_cut(s->f, t, mask)) mask = 0;
  }
  return mask;
}

static bool is_inner(const summing *s, ir_tensor t, ir_tensor root) {
  const ir_op_data *op = form_maker(s->f, t);
  return op && ir_op_adds(op) && s->reads.n[t.id] == 1 && is_like(s, t, root);
}

/* False: there are too many, or their order decides dtypes. */
static bool find_terms(summing *s, const ir_op_data *op, bool negative, uint32_t depth) {
  uint32_t first = s->n;
  for (uint32_t k = 0; k < 2; k++) {
    ir_tensor t = op->operands[k];
    bool minus = negative != (k == 1 && op->code == IR_OP_SUB);
    if (depth < DEEPEST && is_inner(s, t, s->root)) {
      if (!find_terms(s, form_maker(s->f, t), minus, depth + 1)) return false;
      continue;
    }
    ir_dtype dtype = ir_tensor_at(s->f, s->root)->dtype;
    bool fits = is_number(s->f, t) || ir_tensor_at(s->f, t)->dtype == dtype;
    if (s->n == MOST_TERMS || !fits) return false;
    uint32_t parts = is_like(s, t, s->root) ? parts_of(s, t, MOST_STEPS) : 0;
    s->terms[s->n++] = (form_term){.t = t, .negative = minus, .parts = parts};
  }
  s->sums[s->n_sums].first = first; /* fewer than there are terms */
  s->sums[s->n_sums++].end = s->n;
  return true;
}

/* ---- which sums ---- */
/* Of the terms that are partial sums along the same mesh axes, the axes of the first two; 0: there are none. */
static uint32_t find_pair(const summing *s) {
  for (uint32_t i = 0; i < s->n; i++)
    for (uint32_t j = i + 1; j < s->n; j++)
      if (s->terms[i].parts && s->terms[i].parts == s->terms[j].parts) return s->terms[i].parts;
  return 0;
}

/* Is some addition of the tree one of the n partial terms, without biases, and of nothing else? */
static bool is_grouped(const summing *s, uint32_t n) {
  for (uint32_t k = 0; k < s->n_sums; k++) {
    bool all = s->sums[k].end - s->sums[k].first == n;
    for (uint32_t i = s->sums[k].first; i < s->sums[k].end && all; i++)
      all = s->terms[i].parts && !ir_op_has_bias(form_maker(s->f, s->terms[i].t));
    if (all) return true;
  }
  return false;
}

/* Two or more partial sums along the same mesh axes, and there is no addition of them alone. */
static bool find_parts(summing *s) {
  uint32_t n = 0, parts = find_pair(s);
  for (uint32_t i = 0; i < s->n; i++) {
    if (s->terms[i].parts != parts) s->terms[i].parts = 0;
    n += s->terms[i].parts != 0;
  }
  return parts && !is_grouped(s, n);
}

/* Has it the sum's shape, and do devices have other pieces of it? */
static bool lies_elsewhere(const summing *s, ir_tensor t) {
  shard_placement p;
  if (is_number(s->f, t) || is_streamed(s->f, t) || !has_shape_of(s->f, t, s->root)) return false;
  if (parts_of(s, t, MOST_STEPS) || lies_alike(s->f, t, s->root)) return false;
  shard_placement_of(s->f, t, &p);
  return p.mesh.id && shard_is_cut(s->f, t, UINT32_MAX);
}

/* Two or more terms that lie alike, elsewhere. */
static bool find_elsewhere(summing *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    uint32_t n = 0;
    if (!lies_elsewhere(s, s->terms[i].t)) continue;
    for (uint32_t j = i; j < s->n; j++) {
      ir_tensor t = s->terms[j].t;
      bool with = lies_elsewhere(s, t) && lies_alike(s->f, t, s->terms[i].t);
      s->terms[j].elsewhere = with;
      n += with;
    }
    if (n > 1) return n < s->n;
    s->terms[i].elsewhere = false;
  }
  return false;
}

/* The reason of the first mark that cuts it, or makes partial results of it. */
static uint32_t why_marked(const ir_func *f, const form_term *t) {
  shard_placement p;
  shard_placement_of(f, t->t, &p);
  for (uint32_t k = 0; k < p.rank; k++)
    if (p.axes[k].kind == (t->elsewhere ? SHARD_SHARDED : SHARD_PARTIAL))
      return ir_axis_at(f, p.axes[k].loop)->why;
  return 0;
}

static void begin_form(const summing *s, const ir_op_data *op, form *m) {
  *m = (form){.ctx = s->c, .f = s->f, .rule = IR_RULE_TERMS, .op = *op};
  for (uint32_t i = 0; i < s->n; i++) {
    const form_term *t = &s->terms[i];
    if (t->elsewhere) m->rule = IR_RULE_TERMS_ELSEWHERE;
    if (t->elsewhere || (t->parts && !m->why)) m->why = why_marked(s->f, t);
  }
  m->n_terms = s->n;
  m->terms = arena_copy(s->c->scratch, s->terms, s->n * sizeof *s->terms);
}

static bool wants_group(summing *s, const ir_op_data *op, form *m) {
  s->root = op->result;
  s->n = s->n_sums = 0;
  if (is_streamed(s->f, s->root) || !find_terms(s, op, false, 0)) return false;
  if (!find_parts(s) && !find_elsewhere(s)) return false;
  begin_form(s, op, m);
  m->write = form_sum;
  return true;
}

/* ---- sums that are reduced ---- */
static bool is_stated(const ir_func *f, const ir_stmt *stmt, ir_tensor t) {
  return stmt->kind != IR_STMT_ON && stmt->targets[0].name == ir_tensor_at(f, t)->name;
}

/* Does what is stated of its axes count those that it reduces, besides others? Of two steps in its place, the sum has none. */
static bool counts_reduced(const ir_func *f, const ir_op_data *op) {
  ir_axes root = ir_tensor_at(f, op->result)->now.root;
  uint32_t reduced = 0;
  bool stated = false;
  for (uint32_t i = 0; i < root.len; i++)
    reduced += ir_axis_at(f, root.data[i])->kind == IR_AXIS_REDUCTION;
  for (uint32_t i = 0; i < f->statements.len && !stated; i++)
    stated = is_stated(f, &f->statements.data[i], op->result);
  bool plain = reduced == 1 && form_reduces_plainly(f, op->result);
  return stated && reduced > 0 && reduced < root.len && !plain;
}

/* Of a single number, statements are about reductions only: where devices have parts of these follows from operands. */
static void forget_reduced(ir_func *f, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t n = 0;
  if (ir_tensor_dims(f, t, dims)) return;
  for (uint32_t i = 0; i < f->statements.len; i++)
    if (!is_stated(f, &f->statements.data[i], t)) f->statements.data[n++] = f->statements.data[i];
  f->statements.len = n;
}

/* A sum or mean of floats that are not rounded to 16 bits, and nothing else, of a sum of which it leaves fewer elements. */
static bool reduces_sum(const summing *s, const ir_op_data *op) {
  if (op->code != IR_OP_SUM && op->code != IR_OP_MEAN) return false;
  ir_tensor t = op->operands[0];
  const ir_op_data *of = t.id ? form_maker(s->f, t) : NULL;
  ir_dtype dtype = ir_tensor_at(s->f, t)->dtype;
  if (!of || !ir_op_adds(of) || s->reads.n[t.id] != 1 || is_streamed(s->f, t)) return false;
  const int64_t *usual = ir_module_usual(s->f->module, s->c->scratch);
  return (dtype == IR_F32 || dtype == IR_F64) && !is_streamed(s->f, op->result) &&
         ir_tensor_elements(s->f, op->result, usual) < ir_tensor_elements(s->f, t, usual) &&
         !counts_reduced(s->f, op);
}

/* Has one of the other terms the shape of the sum? The others are stretched beside it. */
static bool has_whole_rest(const summing *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    const form_term *t = &s->terms[i];
    if (!t->parts && !is_number(s->f, t->t) && has_shape_of(s->f, t->t, s->root)) return true;
  }
  return false;
}

static bool wants_apart(summing *s, const ir_op_data *op, form *m) {
  if (!reduces_sum(s, op)) return false;
  s->root = op->operands[0];
  s->n = s->n_sums = 0;
  if (!find_terms(s, form_maker(s->f, s->root), false, 0)) return false;
  uint32_t parts = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    if (!parts) parts = s->terms[i].parts;
    if (s->terms[i].parts != parts) s->terms[i].parts = 0;
  }
  if (!parts || !has_whole_rest(s)) return false;
  begin_form(s, op, m);
  m->write = form_apart;
  return true;
}

static bool is_root(const summing *s, const ir_op_data *op) {
  ir_tensor t = op->result;
  const ir_op_data *reader = s->reads.n[t.id] == 1 && s->reads.reader[t.id].id
                                 ? ir_op_at(s->f, s->reads.reader[t.id])
                                 : NULL;
  return ir_op_adds(op) && !(reader && ir_op_adds(reader) && is_like(s, t, reader->result));
}

uint32_t form_find_sums(shard_ctx *c, form **forms) {
  summing s = {.c = c, .f = c->f, .reads = ir_func_reads(c->f, c->scratch)};
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->f->order.len; i++) {
    ir_op o = c->f->order.data[i];
    form m;
    const ir_op_data *op = ir_op_at(c->f, o);
    bool wanted = is_root(&s, op) ? wants_group(&s, op, &m) : wants_apart(&s, op, &m);
    if (!wanted) continue;
    forms[o.id] = arena_copy(c->scratch, &m, sizeof m);
    n++;
  }
  return n;
}

/* ---- writing ---- */
/* A sum that grows term by term; while all are negative, it is their sum, and the sign is kept. */
typedef struct growing {
  ir_tensor t;
  bool negative;
} growing;

static void grow(form *m, growing *g, ir_tensor t, bool negative) {
  if (!g->t.id) *g = (growing){t, negative};
  else if (g->negative == negative) g->t = form_binary(m, IR_OP_ADD, g->t, t);
  else if (negative) g->t = form_binary(m, IR_OP_SUB, g->t, t);
  else *g = (growing){form_binary(m, IR_OP_SUB, t, g->t), false};
}

/* A product without its bias, which goes to the others. */
static ir_tensor without_bias(form *m, form_term term, growing *others) {
  const ir_op_data *op = ir_op_at(m->f, ir_tensor_at(m->f, term.t)->def);
  if (!ir_op_has_bias(op)) return term.t;
  ir_tensor sides[3] = {op->operands[0], op->operands[1]}, bias = op->operands[2];
  const ir_attr *attrs = op->attrs;
  grow(m, others, bias, term.negative);
  return form_op(m, IR_OP_LINEAR, sides, 3, attrs);
}

static void grow_by(form *m, growing *g, bool numbers) {
  for (uint32_t i = 0; i < m->n_terms; i++) {
    const form_term *t = &m->terms[i];
    if (!t->parts && !t->elsewhere && is_number(m->f, t->t) == numbers)
      grow(m, g, t->t, t->negative);
  }
}

/* The sum of the terms that are partial results, or lie elsewhere, and what is added to the others of their biases. */
static growing parts_of_sum(form *m, growing *others) {
  growing parts = {0};
  for (uint32_t i = 0; i < m->n_terms; i++) {
    const form_term *t = &m->terms[i];
    if (t->elsewhere) grow(m, &parts, t->t, t->negative);
    else if (t->parts) grow(m, &parts, without_bias(m, *t, others), t->negative);
  }
  return parts;
}

/* Numbers come last: they have no dtype of their own. */
void form_sum(form *m) {
  growing all = {0};
  grow_by(m, &all, false);
  growing parts = parts_of_sum(m, &all);
  grow(m, &all, parts.t, parts.negative);
  grow_by(m, &all, true);
  m->results[0] = all.t;
}

void form_apart(form *m) {
  growing rest = {0};
  grow_by(m, &rest, false);
  growing parts = parts_of_sum(m, &rest);
  grow_by(m, &rest, true);
  forget_reduced(m->f, m->op.result);
  rest.t = form_op(m, m->op.code, &rest.t, 1, m->op.attrs);
  grow(m, &rest, form_op(m, m->op.code, &parts.t, 1, m->op.attrs), parts.negative);
  m->results[0] = rest.t;
}
