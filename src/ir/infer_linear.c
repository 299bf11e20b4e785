/* matmul, linear and attention: operations that contract an axis of two operands. */
#include "ir/infer_internal.h"

static bool contraction_dtype(infer *c, ir_dtype *result) {
  ir_dtype t = ir_infer_promote(c->f, c->op->operands, c->op->n_operands);
  if (t == IR_BOOL) return infer_error(c, "needs numbers, not bools; cast them first");
  *result = t;
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
    if (!infer_push(c, &out, infer_copy_dim(c, w.data[i]))) return false;
  }
  for (uint32_t i = 0; i + 1 < x.len; i++) {
    if (!infer_push(c, &out, infer_copy_dim(c, x.data[i]))) return false;
  }
  if (!infer_push(c, &out, infer_copy_dim(c, w.data[w.len - 2]))) return false;
  return push_reduction(c, &out, kx) && infer_done(c, dtype, &out, &out);
}

/* q[*, L, E], k[*, S, E], v[*, S, Ev] -> [*, L, Ev] */
bool infer_sdpa(infer *c) {
  dims q = infer_dims(c, 0), k = infer_dims(c, 1), v = infer_dims(c, 2), qk, out;
  if (q.len < 2 || k.len < 2 || v.len < 2) {
    return infer_error(c, "q, k and v need at least two axes: [..., position, feature]");
  }
  ir_axis e = q.data[q.len - 1], s = k.data[k.len - 2];
  if (!infer_same_size(c, infer_size(c, e), infer_size(c, k.data[k.len - 1]),
                       "features of q and k")) {
    return false;
  }
  if (!infer_same_size(c, infer_size(c, s), infer_size(c, v.data[v.len - 2]),
                       "positions of k and v")) {
    return false;
  }
  dims bq = leading(&q, q.len - 2), bk = leading(&k, k.len - 2), bv = leading(&v, v.len - 2);
  if (!infer_broadcast(c, &bq, &bk, &qk) || !infer_broadcast(c, &qk, &bv, &out)) return false;
  if (!infer_push(c, &out, infer_copy_dim(c, q.data[q.len - 2]))) return false;
  if (!infer_push(c, &out, infer_copy_dim(c, v.data[v.len - 1]))) return false;
  ir_dtype t = ir_infer_promote(c->f, c->op->operands, c->op->n_operands);
  return infer_done(c, ir_dtype_is_float(t) ? t : IR_F32, &out, &out);
}
