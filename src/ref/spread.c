/* How far results spread when every rounding is different: lane 0 is the reference, the others follow it
 * operation by operation. A lane's value that is the same as lane 0's is not computed again, and a rounded
 * result of such values is lane 0's with other errors. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "ref/internal.h"

typedef struct spread {
  ref_state lanes[1 + REF_LANES];
  uint32_t n; /* lanes above 0 */
  uint64_t key;
  double *noise[IR_MAX_RESULTS]; /* of the current operation; NULL: none */
  const ir_op_data *op;
  uint32_t position;
  bool decides;                 /* the current operation turns floats into decisions */
  status failed[1 + REF_LANES]; /* by lane */
  ref_options outside;          /* of what runs on the calling thread */
  ref_options inside; /* of what runs on threads: the caller's allocator need not be safe there */
  ir_array amplified[1 + REF_LANES][IR_MAX_RANK];
  double *const *own; /* by output: squares of what its own operation rounds; NULL: not asked for */
} spread;

static ref_value *value_in(const spread *s, uint32_t lane, ir_tensor t) {
  return &s->lanes[lane].values[t.id];
}

static void share(spread *s, uint32_t lane, ir_tensor t) {
  ref_value *v = value_in(s, lane, t);
  v->array = value_in(s, 0, t)->array;
  v->own = false;
}

/* ---- errors ---- */
/* Close to the normal distribution: the sum of four uniform numbers, with variance 1. */
static double draw(uint64_t bits) {
  double sum = 0;
  for (int i = 0; i < 4; i++, bits >>= 16) sum += (double)(bits & 0xffff) + 0.5;
  return (sum / 65536 - 2) * sqrt(3.0);
}

static double as_double(const ir_array *dense, int64_t i) {
  return ir_element_as_f64(dense->dtype, ref_element(dense, i));
}

/* A result that is exactly zero has not been rounded. A device that computes in f32 may make a subnormal
 * result zero, and so one a little above. */
static double own_noise(ir_dtype t, double reference, double value) {
  if (value == 0 || !isfinite(reference)) return 0;
  double size = fabs(reference);
  if (t != IR_F64 && size < 8 * ref_tiny(IR_F32)) return 8 * ref_tiny(IR_F32);
  return ir_dtype_unit(t) * fmax(size, ref_tiny(t));
}

/* Adds the lane's random errors to `value`, which holds what the lane's operands give, or lane 0's result. */
static void add_errors(const spread *s, uint32_t lane, uint32_t k, ir_array *value) {
  const ir_array *reference = &value_in(s, 0, ir_op_result(s->op, k))->array;
  double *to = value->data, bias = 0;
  uint64_t key = random_bits(s->key, ((uint64_t)s->position * 64 + lane) * 4 + k);
  int64_t n = ref_count(value);
  const uint8_t *const *sample = s->inside.rows;
  const uint8_t *rows = sample ? sample[ir_op_result(s->op, k).id] : NULL;
  if (ref_noise_is_biased(s->op)) bias = draw(random_bits(key, UINT64_MAX)) / 4;
  for (int64_t i = 0; i < n; i++) {
    if (rows && !rows[i / value->extents[value->rank - 1]]) continue;
    uint64_t bits = random_bits(key, (uint64_t)i);
    double size = own_noise(reference->dtype, as_double(reference, i), to[i]);
    if (s->noise[k]) size += s->noise[k][i];
    if (isinf(size)) to[i] = NAN;
    else if (size > 0) to[i] += size * (draw(bits) + bias);
    else if (to[i] == 0) to[i] = bits >> 63 ? -0.0 : 0.0; /* the sign of a zero is left open */
  }
}

/* Elementwise results overflow in a lane as they do on a device. Sums may do so in parts, which
 * leaves more open. */
static void overflow(const spread *s, uint32_t k, ir_array *value) {
  ir_dtype t = value_in(s, 0, ir_op_result(s->op, k))->array.dtype;
  ir_family family = ir_op_info_of(s->op->code)->family;
  if (family != IR_FAMILY_POINTWISE && family != IR_FAMILY_CAST) return;
  double *to = value->data, most = ref_largest(t);
  for (int64_t i = 0; i < ref_count(value); i++)
    if (fabs(to[i]) >= most) to[i] = copysign(INFINITY, to[i]);
}

/* Adds what the present operation alone rounds, whatever the errors of its operands. */
static void note_own(const spread *s, ir_tensor t, uint32_t k, double *squares) {
  const ir_array *reference = &value_in(s, 0, t)->array;
  if (ref_noise_of(&s->lanes[0], s->op) == REF_NOISE_NONE) return;
  if (!ir_dtype_is_float(reference->dtype)) return;
  for (int64_t i = 0; i < ref_count(reference); i++) {
    double value = as_double(reference, i), size = own_noise(reference->dtype, value, value);
    if (s->noise[k]) size += s->noise[k][i];
    squares[i] = isfinite(value) ? size * size : 0;
  }
}

static void note_outputs(const spread *s) {
  const ir_func *f = s->lanes[0].f;
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++)
    for (uint32_t i = 0; i < f->outputs.len; i++)
      if (IR_SAME(f->outputs.data[i], ir_op_result(s->op, k)))
        note_own(s, f->outputs.data[i], k, s->own[i]);
}

/* ---- decisions ---- */
/* Functions of floats with jumps: the least difference of an operand can make a large one. */
static bool jumps(ir_opcode code) {
  return code == IR_OP_MOD || code == IR_OP_SIGN || code == IR_OP_FLOOR || code == IR_OP_CEIL ||
         code == IR_OP_ROUND;
}

static bool decides(const ref_state *s, const ir_op_data *op) {
  const ir_op_info *info = ir_op_info_of(op->code);
  bool to_float = ir_dtype_is_float(ir_tensor_at(s->f, op->result)->dtype);
  if (info->family == IR_FAMILY_POINTWISE) return !to_float || jumps(op->code);
  if (info->family == IR_FAMILY_CAST) return !to_float;
  return info->family == IR_FAMILY_SORT || info->family == IR_FAMILY_TOPK;
}

/* The operand, REF_DECIDES times as far from lane 0. */
static void amplify(const ir_array *value, const ir_array *reference, ir_array *result) {
  double *to = result->data;
  int64_t n = ref_count(result);
  for (int64_t i = 0; i < n; i++) {
    double x = ((const double *)value->data)[i], r = as_double(reference, i);
    to[i] = isfinite(x) && isfinite(r) ? r + REF_DECIDES * (x - r) : x;
  }
}

/* ---- one operation of one lane ---- */
static bool is_own(const spread *s, uint32_t lane) {
  for (uint32_t k = 0; k < s->op->n_operands; k++)
    if (value_in(s, lane, s->op->operands[k])->own) return true;
  return false;
}

/* Computes the operation in a lane; if it decides something, with its operands' distances made larger. */
static status compute_lane(spread *s, uint32_t lane) {
  ref_state here = s->lanes[lane], *state = &here;
  ref_call c = {.state = state, .op = s->op};
  here.options = &s->inside;
  ir_array kept[IR_MAX_RANK];
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++)
    *(k ? &c.more[k - 1] : &c.result) = value_in(s, lane, ir_op_result(s->op, k))->array;
  for (uint32_t k = 0; k < s->op->n_operands && k < IR_MAX_RANK; k++) {
    ref_value *v = &state->values[s->op->operands[k].id];
    kept[k] = v->array;
    if (!s->amplified[lane][k].data) continue;
    amplify(&v->array, &value_in(s, 0, s->op->operands[k])->array, &s->amplified[lane][k]);
  }
  for (uint32_t k = 0; k < s->op->n_operands && k < IR_MAX_RANK; k++)
    if (s->amplified[lane][k].data)
      state->values[s->op->operands[k].id].array = s->amplified[lane][k];
  status st = ref_call_family(&c);
  for (uint32_t k = 0; k < s->op->n_operands && k < IR_MAX_RANK; k++)
    state->values[s->op->operands[k].id].array = kept[k];
  return st;
}

/* topk picks values by decisions, so a lane may pick others. Their distances from the reference, which were
 * made larger for that, are reduced again. */
static void shrink(const spread *s, uint32_t lane) {
  if (s->op->code != IR_OP_TOPK) return;
  ir_array *value = &value_in(s, lane, s->op->result)->array;
  const ir_array *reference = &value_in(s, 0, s->op->result)->array;
  if (!ir_dtype_is_float(reference->dtype)) return;
  double *to = value->data;
  for (int64_t i = 0; i < ref_count(value); i++) {
    double r = as_double(reference, i);
    if (isfinite(to[i]) && isfinite(r)) to[i] = r + (to[i] - r) / REF_DECIDES;
  }
}

static void run_lane(void *context, uint32_t i) {
  spread *s = context;
  uint32_t lane = i + 1;
  if (!value_in(s, lane, s->op->result)->own) return;
  bool computes = is_own(s, lane);
  status st = computes ? compute_lane(s, lane) : STATUS_OK;
  if (st != STATUS_OK) status_clear(); /* of this thread */
  s->failed[lane] = st == STATUS_OUT_OF_MEMORY ? st : STATUS_OK;
  bool copies = !computes || st != STATUS_OK;
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++) {
    ir_array *value = &value_in(s, lane, ir_op_result(s->op, k))->array;
    if (copies) ir_array_copy(value, &value_in(s, 0, ir_op_result(s->op, k))->array);
  }
  if (s->decides && !copies) shrink(s, lane);
  bool rounds = ref_noise_of(&s->lanes[0], s->op) != REF_NOISE_NONE;
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++) {
    ir_array *value = &value_in(s, lane, ir_op_result(s->op, k))->array;
    if (rounds && value->dtype == IR_F64) {
      add_errors(s, lane, k, value);
      overflow(s, k, value);
    }
  }
}

/* ---- one operation ---- */
/* A lane whose results are its own gets memory for them. */
static status make_results(spread *s, uint32_t lane) {
  bool own = is_own(s, lane) || ref_noise_of(&s->lanes[0], s->op) != REF_NOISE_NONE;
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++) {
    ir_tensor t = ir_op_result(s->op, k);
    ref_value *v = value_in(s, lane, t);
    share(s, lane, t);
    if (!own) continue;
    ir_array a = value_in(s, 0, t)->array;
    if (ir_dtype_is_float(a.dtype)) a.dtype = IR_F64;
    TRY(ir_array_alloc(&a, s->lanes[0].options->memory));
    v->array = a;
    v->own = v->owned = true;
  }
  return STATUS_OK;
}

static status make_amplified(spread *s, uint32_t lane) {
  for (uint32_t k = 0; s->decides && k < s->op->n_operands && k < IR_MAX_RANK; k++) {
    const ref_value *v = value_in(s, lane, s->op->operands[k]);
    if (!v->own || v->array.dtype != IR_F64) continue;
    ir_array a = v->array;
    TRY(ir_array_alloc(&a, s->lanes[0].options->memory));
    s->amplified[lane][k] = a;
  }
  return STATUS_OK;
}

static void drop_amplified(spread *s) {
  for (uint32_t lane = 1; lane <= s->n; lane++)
    for (uint32_t k = 0; k < IR_MAX_RANK; k++) {
      memory_free(s->lanes[0].options->memory, s->amplified[lane][k].data);
      s->amplified[lane][k] = (ir_array){0};
    }
}

static status make_noise(spread *s) {
  if (ref_noise_of(&s->lanes[0], s->op) != REF_NOISE_NOTES) return STATUS_OK;
  for (uint32_t k = 0; k < ir_op_n_results(s->op); k++) {
    ir_array like = {0};
    ref_set_shape(&s->lanes[0], ir_op_result(s->op, k), &like);
    like.dtype = IR_F64;
    TRY(ir_array_alloc(&like, s->lanes[0].options->memory));
    memset(like.data, 0, (size_t)ref_count(&like) * sizeof(double));
    s->noise[k] = like.data;
  }
  return STATUS_OK;
}

static void drop_noise(spread *s) {
  for (uint32_t k = 0; k < IR_MAX_RESULTS; k++) {
    memory_free(s->lanes[0].options->memory, s->noise[k]);
    s->noise[k] = NULL;
  }
}

static status follow(spread *s) {
  for (uint32_t lane = 1; lane <= s->n; lane++) {
    TRY(make_results(s, lane));
    TRY(make_amplified(s, lane));
  }
  uint32_t threads = s->lanes[0].options->threads;
  ref_parallel(s->n, threads ? threads : ref_cores(), run_lane, s);
  for (uint32_t lane = 1; lane <= s->n; lane++) TRY(s->failed[lane]);
  return STATUS_OK;
}

static status step(spread *s) {
  const ref_state *first = &s->lanes[0];
  s->op = ir_op_at(first->f, first->order[s->position]);
  s->decides = decides(first, s->op);
  status st = make_noise(s);
  if (st == STATUS_OK) st = ref_eval_op(first, s->op, s->noise);
  if (st == STATUS_OK && s->own) note_outputs(s);
  if (st == STATUS_OK) st = follow(s);
  drop_amplified(s);
  drop_noise(s);
  for (uint32_t lane = 0; lane <= s->n; lane++) ref_release_unneeded(&s->lanes[lane], s->position);
  return st;
}

/* ---- distances ---- */
static double distance(double a, double b) {
  if (a == b || (isnan(a) && isnan(b))) return 0;
  double d = fabs(a - b);
  return isnan(d) ? INFINITY : d;
}

static double element_f64(const ir_array *dense, int64_t i) {
  if (ir_dtype_is_float(dense->dtype)) return as_double(dense, i);
  return (double)ir_element_as_i64(dense->dtype, ref_element(dense, i));
}

static void measure(const spread *s, ir_tensor t, double *squares) {
  ir_array dense = value_in(s, 0, t)->array, other;
  if (!ir_array_is_dense(&dense)) { /* an input that is an output: nothing is rounded */
    memset(squares, 0, (size_t)ref_count(&dense) * sizeof *squares);
    return;
  }
  for (int64_t i = 0; i < ref_count(&dense); i++) {
    double sum = 0;
    for (uint32_t lane = 1; lane <= s->n; lane++) {
      other = value_in(s, lane, t)->array;
      double d = distance(element_f64(&other, i), element_f64(&dense, i));
      sum += d * d;
    }
    squares[i] = sum / s->n;
  }
}

static status run_lanes(spread *s, const ir_env *env, const ir_array *inputs,
                        const ref_options *options) {
  for (uint32_t lane = 0; lane <= s->n; lane++) {
    TRY(ref_state_begin(&s->lanes[lane], env, options, inputs));
    s->lanes[lane].wide = lane > 0;
  }
  uint32_t n = s->lanes[0].n_order;
  for (s->position = 0; s->position < n; s->position++) {
    (void)log_progress("checking operations", s->position, n);
    TRY(step(s));
  }
  (void)log_progress("checking operations", n, n);
  return STATUS_OK;
}

/* All values of a lane may be in memory at the same time. */
uint32_t ref_lanes(const ir_env *env) {
  const double most = 0x1p29; /* doubles */
  double elements = 1;
  ir_array a = {0};
  ref_state s = {.env = env, .f = env->func};
  for (uint32_t i = 0; i < env->func->order.len; i++) {
    int64_t n = 0;
    ref_set_shape(&s, ir_op_at(env->func, env->func->order.data[i])->result, &a);
    if (ir_array_count(&a, &n)) elements += (double)n;
  }
  if (elements * REF_LANES <= most) return REF_LANES;
  return elements * 4 <= most ? (uint32_t)(most / elements) : 4;
}

/* Lane 0 and those that follow it; the outputs are lane 0's. */
static status evaluate(spread *s, const ir_env *env, const ir_array *inputs,
                       const ir_array *outputs, const ref_options *options) {
  s->outside = *options;
  if (!s->outside.memory) s->outside.memory = &memory_default;
  s->outside.scheduled = s->outside.native_accumulate = false;
  s->inside = s->outside;
  s->inside.memory = &memory_default;
  s->inside.threads = 1;
  status st = run_lanes(s, env, inputs, &s->outside);
  if (st == STATUS_OK) ref_give_outputs(&s->lanes[0], outputs);
  return st;
}

static void end_lanes(spread *s) {
  for (uint32_t lane = 0; lane <= s->n; lane++) ref_state_end(&s->lanes[lane]);
}

status ref_spread(const ir_env *env, const ir_array *inputs, const ir_array *outputs,
                  double *const *squares, uint64_t round, const ref_options *options) {
  const ir_func *f = env->func;
  spread s = {.n = ref_lanes(env), .key = random_bits(options->seed ^ 0x5eed, round)};
  status st = evaluate(&s, env, inputs, outputs, options);
  for (uint32_t i = 0; st == STATUS_OK && i < f->outputs.len; i++)
    measure(&s, f->outputs.data[i], squares[i]);
  end_lanes(&s);
  return st;
}

status ref_own_spread(const ir_env *env, const ir_array *inputs, const ir_array *outputs,
                      double *const *squares, const ref_options *options) {
  spread s = {.own = squares};
  status st = evaluate(&s, env, inputs, outputs, options);
  end_lanes(&s);
  return st;
}

bool ref_decides(const ir_env *env) {
  const ref_state s = {.env = env, .f = env->func};
  for (uint32_t i = 0; i < env->func->order.len; i++) {
    const ir_op_data *op = ir_op_at(env->func, env->func->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands && decides(&s, op); k++)
      if (ir_dtype_is_float(ir_tensor_at(env->func, op->operands[k])->dtype)) return true;
  }
  return false;
}

bool ref_outputs_round(const ir_env *env) {
  const ref_state s = {.env = env, .f = env->func};
  for (uint32_t i = 0; i < env->func->outputs.len; i++) {
    const ir_tensor_data *t = ir_tensor_at(env->func, env->func->outputs.data[i]);
    if (!t->def.id || ref_noise_of(&s, ir_op_at(env->func, t->def)) == REF_NOISE_NONE) return false;
  }
  return true;
}
