/* matmul, linear, grouped products and attention: operations that contract an axis of two operands. */
#include "ir/infer_internal.h"

/* The dtype that was asked for, or that of the operands. */
static bool contraction_dtype(infer *c, ir_dtype *result) {
  ir_dtype t =
      ir_infer_promote(c->f, c->op->operands, ir_op_n_factors(c->op->code, c->op->n_operands));
  if (t == IR_BOOL) return infer_error(c, "needs numbers, not bools; cast them first");
  const ir_attr *asked = ir_op_attr(c->op, "dtype");
  *result = asked->given ? (ir_dtype)asked->i : t;
  if (*result == IR_BOOL || (ir_dtype_is_float(t) && !ir_dtype_is_float(*result))) {
    return infer_error(c, "has a result of %s, which cannot be %s; cast it afterwards",
                       ir_dtype_text(t), ir_dtype_text(*result));
  }
  return true;
}

static dims leading(const dims *d, uint32_t n) {
  dims out = *d;
  out.len = n;
  return out;
}

static bool push_reduction(infer *c, dims *out, ir_axis k) {
  return infer_push(c, out, ir_axis_new(c->f, IR_AXIS_REDUCTION, infer_size(c, k)));
}

/* a[*, M, K] x b[*, K, N] -> [*, M, N, rK]; a vector has no M (on the left) or no N (on the right). */
bool infer_matmul(infer *c) {
  ir_dtype dtype = IR_DTYPE_NONE;
  if (!contraction_dtype(c, &dtype)) return false;
  dims a = infer_dims(c, 0), b = infer_dims(c, 1), out;
  if (a.len == 0 || b.len == 0) return infer_error(c, "needs operands with at least one axis");
  bool has_m = a.len > 1, has_n = b.len > 1;
  ir_axis ka = a.data[a.len - 1], kb = b.data[has_n ? b.len - 2 : 0];
  if (!infer_same_size(c, infer_size(c, ka), infer_size(c, kb), "contracted extents")) return false;
  dims batch_a = leading(&a, has_m ? a.len - 2 : 0), batch_b = leading(&b, has_n ? b.len - 2 : 0);
  if (!infer_broadcast(c, &batch_a, &batch_b, &out)) return false;
  if (has_m && !infer_push(c, &out, infer_copy_dim(c, a.data[a.len - 2]))) return false;
  if (has_n && !infer_push(c, &out, infer_copy_dim(c, b.data[b.len - 1]))) return false;
  return push_reduction(c, &out, ka) && infer_done(c, dtype, &out, &out);
}

static bool linear_bias(infer *c, const dims *weight) {
  if (c->op->operands[2].id == 0) return true;
  dims bias = infer_dims(c, 2);
  if (bias.len != weight->len - 1) {
    return infer_error(c, "the bias must have %u axes, not %u", weight->len - 1, bias.len);
  }
  for (uint32_t i = 0; i < bias.len; i++) {
    ir_scalar want = infer_size(c, weight->data[i]), have = infer_size(c, bias.data[i]);
    if (!infer_same_size(c, want, have, "extents of weight and bias")) return false;
  }
  return true;
}

/* With a bias the results differ even along a broadcast axis of the weight. */
static ir_axis weight_dim(infer *c, ir_axis a) {
  return c->op->operands[2].id ? infer_unlike_dim(c, a) : infer_copy_dim(c, a);
}

/* x[*, K] x weight[*w, N, K] -> [*w, *, N, rK]; the weight's leading axes come first. */
bool infer_linear(infer *c) {
  ir_dtype dtype = IR_DTYPE_NONE;
  if (!contraction_dtype(c, &dtype)) return false;
  dims x = infer_dims(c, 0), w = infer_dims(c, 1), out = {.len = 0};
  if (x.len == 0) return infer_error(c, "x needs at least one axis");
  if (w.len < 2) return infer_error(c, "the weight must be [out, in], not of rank %u", w.len);
  ir_axis kx = x.data[x.len - 1], kw = w.data[w.len - 1];
  if (!infer_same_size(c, infer_size(c, kx), infer_size(c, kw), "contracted extents")) return false;
  if (!linear_bias(c, &w)) return false;
  for (uint32_t i = 0; i + 2 < w.len; i++) {
    if (!infer_push(c, &out, weight_dim(c, w.data[i]))) return false;
  }
  for (uint32_t i = 0; i + 1 < x.len; i++) {
    if (!infer_push(c, &out, infer_copy_dim(c, x.data[i]))) return false;
  }
  if (!infer_push(c, &out, weight_dim(c, w.data[w.len - 2]))) return false;
  return push_reduction(c, &out, kx) && infer_done(c, dtype, &out, &out);
}

/* x[*, M, K], weight[*, G, K, N], index[*, M] -> [*, M, N, rK] */
bool infer_grouped_matmul(infer *c) {
  ir_dtype dtype = IR_DTYPE_NONE;
  if (!infer_is_index(c, 2) || !contraction_dtype(c, &dtype)) return false;
  dims x = infer_dims(c, 0), w = infer_dims(c, 1), index = infer_dims(c, 2), both, out;
  if (x.len < 2 || w.len < 3 || index.len < 1)
    return infer_error(c, "needs x[..., rows, in], weight[..., groups, in, out] and "
                          "index[..., rows]");
  ir_axis m = x.data[x.len - 2], k = x.data[x.len - 1];
  ir_scalar kw = infer_size(c, w.data[w.len - 2]), mi = infer_size(c, index.data[index.len - 1]);
  if (!infer_same_size(c, infer_size(c, k), kw, "contracted extents")) return false;
  if (!infer_same_size(c, infer_size(c, m), mi, "rows of x and index")) return false;
  dims bx = leading(&x, x.len - 2), bw = leading(&w, w.len - 3),
       bi = leading(&index, index.len - 1);
  if (!infer_broadcast(c, &bx, &bw, &both) || !infer_broadcast(c, &both, &bi, &out)) return false;
  bool alike = IR_SAME(infer_varying(c, m, index.data[index.len - 1]), m);
  return infer_push(c, &out, alike ? infer_copy_dim(c, m) : infer_unlike_dim(c, m)) &&
         infer_push(c, &out, infer_copy_dim(c, w.data[w.len - 1])) && push_reduction(c, &out, k) &&
         infer_done(c, dtype, &out, &out);
}

/* x[*, M, K], y[*, M, N], index[*, M] -> [*, G, K, N, rM] */
bool infer_grouped_outer(infer *c) {
  ir_dtype dtype = IR_DTYPE_NONE;
  ir_scalar n = ir_op_attr(c->op, "n")->scalar;
  if (!infer_is_index(c, 2) || !contraction_dtype(c, &dtype) || !infer_not_negative(c, n))
    return false;
  dims x = infer_dims(c, 0), y = infer_dims(c, 1), index = infer_dims(c, 2), both, out;
  if (x.len < 2 || y.len < 2 || index.len < 1)
    return infer_error(c, "needs x[..., rows, in], y[..., rows, out] and index[..., rows]");
  ir_axis m = x.data[x.len - 2];
  ir_scalar rows = infer_size(c, m), my = infer_size(c, y.data[y.len - 2]);
  if (!infer_same_size(c, rows, my, "rows of x and y")) return false;
  if (!infer_same_size(c, rows, infer_size(c, index.data[index.len - 1]), "rows of x and index"))
    return false;
  dims bx = leading(&x, x.len - 2), by = leading(&y, y.len - 2),
       bi = leading(&index, index.len - 1);
  if (!infer_broadcast(c, &bx, &by, &both) || !infer_broadcast(c, &both, &bi, &out)) return false;
  return infer_push(c, &out, infer_new_dim(c, n)) &&
         infer_push(c, &out, infer_copy_dim(c, x.data[x.len - 1])) &&
         infer_push(c, &out, infer_copy_dim(c, y.data[y.len - 1])) && push_reduction(c, &out, m) &&
         infer_done(c, dtype, &out, &out);
}

/* ---- attention ---- */
/* The heads of q, and those of k and v, which may be fewer: each then serves as many consecutive heads of q. */
static bool divide_heads(infer *c, ir_axis q, ir_axis kv) {
  ir_scalar hq = infer_size(c, q), hk = infer_size(c, kv);
  ir_proof divides = ir_func_divides(c->f, hk, hq);
  if (divides == IR_FALSE) {
    return infer_error(c, "the heads of q, %s, are not a multiple of those of k and v, %s",
                       ir_scalar_text(c->f, hq), ir_scalar_text(c->f, hk));
  }
  const char *what = "heads of k and v, which divide those of q";
  ir_scalars *s = &c->f->module->scalars; /* 0 heads are a multiple of 0 heads */
  ir_scalar least = ir_scalar_max(s, hk, ir_scalar_const(s, 1));
  if (divides == IR_UNKNOWN) ir_require(c->f, IR_REQUIRE_DIVIDES, least, hq, what, c->op->at);
  return true;
}

/* The head axis is the one before the positions. */
static bool meet_heads(infer *c, ir_axis q, ir_axis k, ir_axis v, ir_axis *head) {
  ir_axis kv;
  if (!infer_meet(c, k, v, &kv)) return false;
  bool alike = infer_is_one(c, q) || infer_is_one(c, kv) ||
               ir_func_equal(c->f, infer_size(c, q), infer_size(c, kv)) == IR_TRUE;
  if (alike) return infer_meet(c, q, kv, head);
  *head = infer_unlike_dim(c, q);
  return divide_heads(c, q, kv);
}

static bool meet_batches(infer *c, const dims *q, const dims *k, const dims *v, dims *out) {
  bool heads = q->len > 2 && k->len > 2 && v->len > 2;
  uint32_t last = heads ? 3 : 2;
  dims bq = leading(q, q->len - last), bk = leading(k, k->len - last), qk;
  dims bv = leading(v, v->len - last);
  ir_axis head = {0};
  if (!infer_broadcast(c, &bq, &bk, &qk) || !infer_broadcast(c, &qk, &bv, out)) return false;
  if (!heads) return true;
  return meet_heads(c, q->data[q->len - 3], k->data[k->len - 3], v->data[v->len - 3], &head) &&
         infer_push(c, out, head);
}

static bool features_fit(infer *c, const dims *q, const dims *k, const dims *v) {
  if (q->len < 2 || k->len < 2 || v->len < 2) {
    return infer_error(c, "q, k and v need at least two axes: [..., position, feature]");
  }
  return infer_same_size(c, infer_size(c, q->data[q->len - 1]), infer_size(c, k->data[k->len - 1]),
                         "features of q and k") &&
         infer_same_size(c, infer_size(c, k->data[k->len - 2]), infer_size(c, v->data[v->len - 2]),
                         "positions of k and v");
}

/* q[*, L, E], k[*, S, E], v[*, S, Ev] -> out[*, L, Ev], lse[*, L] */
bool infer_sdpa(infer *c) {
  dims q = infer_dims(c, 0), k = infer_dims(c, 1), v = infer_dims(c, 2), out;
  if (!features_fit(c, &q, &k, &v) || !meet_batches(c, &q, &k, &v, &out)) return false;
  bool causal = ir_op_attr(c->op, "causal")->i != 0; /* later positions see more keys */
  ir_axis l = q.data[q.len - 2];
  if (!infer_push(c, &out, causal ? infer_unlike_dim(c, l) : infer_copy_dim(c, l))) return false;
  if (!infer_push(c, &out, infer_copy_dim(c, v.data[v.len - 1]))) return false;
  ir_dtype t = ir_infer_promote(c->f, c->op->operands, c->op->n_operands);
  if (!ir_dtype_is_float(t)) t = IR_F32;
  dims rows = leading(&out, out.len - 1);
  return infer_done(c, t, &out, &out) && infer_more_like(c, 1, ir_dtype_accumulator(t), &rows);
}

/* Axes [0, n) of operand k against those of `like`. */
static bool same_axes(infer *c, uint32_t k, const dims *like, uint32_t n, const char *what) {
  dims d = infer_dims(c, k);
  for (uint32_t i = 0; i < n; i++) {
    if (!infer_same_size(c, infer_size(c, d.data[i]), infer_size(c, like->data[i]), what)) {
      return false;
    }
  }
  return true;
}

/* The operands of the backward pass have the shapes of the forward pass, without broadcasting: a gradient
 * would have to be added up along what was repeated. */
static bool gradients_fit(infer *c, const dims *q, const dims *k, const dims *v) {
  dims out = *q;
  uint32_t n = q->len, heads = n > 2 ? n - 3 : 0;
  static const char *const names[] = {"q", "k", "v", "out", "lse", "dout"};
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    uint32_t rank = infer_dims(c, i).len, want = i == 4 ? n - 1 : n;
    if (rank == want) continue;
    return infer_error(c, "q has %u axes, so %s has %u, not %u", n, names[i], want, rank);
  }
  if (!same_axes(c, 1, q, heads, "batches of q and k")) return false;
  if (!same_axes(c, 2, k, n - 2, "batches and heads of k and v")) return false;
  if (n > 2 && !divide_heads(c, q->data[heads], k->data[heads])) return false;
  out.data[n - 1] = v->data[n - 1];
  return same_axes(c, 3, &out, n, "extents of out") &&
         same_axes(c, 4, &out, n - 1, "extents of lse") &&
         same_axes(c, 5, &out, n, "extents of dout");
}

/* Dimensions like those of an operand, but ordinary ones: a gradient differs along what its operand only
 * repeats. */
static dims fresh_dims(infer *c, const dims *like) {
  dims out = {.len = like->len};
  for (uint32_t i = 0; i < like->len; i++) {
    out.data[i] = infer_new_dim(c, infer_size(c, like->data[i]));
  }
  return out;
}

static bool operand_float(infer *c, uint32_t k, ir_dtype *t) {
  *t = ir_tensor_at(c->f, c->op->operands[k])->dtype;
  if (ir_dtype_is_float(*t)) return true;
  return infer_error(c, "needs floats, not %s; cast it first", ir_dtype_text(*t));
}

/* q[*, L, E], k[*, S, E], v[*, S, Ev], out[*, L, Ev], lse[*, L], dout[*, L, Ev] -> dq, dk, dv */
bool infer_sdpa_backward(infer *c) {
  dims x[3] = {infer_dims(c, 0), infer_dims(c, 1), infer_dims(c, 2)};
  if (!features_fit(c, &x[0], &x[1], &x[2]) || !gradients_fit(c, &x[0], &x[1], &x[2])) return false;
  for (uint32_t i = 0; i < c->op->n_operands; i++) {
    ir_dtype t;
    if (!operand_float(c, i, &t)) return false;
  }
  for (uint32_t k = 0; k < 3; k++) {
    if (!infer_wants(c, k)) continue;
    dims d = fresh_dims(c, &x[k]);
    ir_dtype t = ir_tensor_at(c->f, c->op->operands[k])->dtype;
    if (!(k ? infer_more(c, k, t, &d) : infer_done(c, t, &d, &d))) return false;
  }
  return true;
}
