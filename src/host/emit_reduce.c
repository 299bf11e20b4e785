/* Streams on reduction axes: iterations add their partial results, in iteration order.
 *
 *     y : f32[n] = allocate()
 *     for i in 4 stream {
 *       x$1 = shard(x, dim=1, index=i, parts=4)
 *       if i == 0 { y <- sum(x$1, dims=[1]) } else {
 *         y$1 : f32[n] = allocate()
 *         y$1 <- sum(x$1, dims=[1])
 *         y <- y + y$1
 *       }
 *     }
 */
#include "host/emit.h"
#include "ir/build.h"

bool emit_has_reduction(const op_plan *plan) {
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    if (plan->axes.data[q].reduction) return true;
  }
  return false;
}

ir_instr_data emit_fill(emitter *e, ir_tensor to, int64_t value, loc at) {
  return emit_fill_number(e, to, ir_number_int(value), at);
}

ir_instr_data emit_fill_number(emitter *e, ir_tensor to, ir_number value, loc at) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, to, dims);
  ir_scalar *sizes = ARENA_ARRAY(&e->h->module->memory, rank, ir_scalar);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(e->h, dims[i]);
  ir_attr attrs[3] = {{.given = true, .len = rank, .scalars = sizes},
                      {.given = true, .number = value},
                      {.given = true, .i = ir_tensor_at(e->h, to)->dtype}};
  ir_instr_data fill = {.kind = IR_COMPUTE, .at = at, .tensor = to};
  fill.op = ir_host_op(e->h, IR_OP_FULL, NULL, 0, attrs, to, at);
  return fill;
}

/* The least count of the loops that add up: if it is 0, nothing is added. None if there are no such loops. */
static ir_scalar reduced_iterations(emitter *e, const op_plan *plan) {
  ir_scalar least = {0};
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    const stream_axis *a = &plan->axes.data[q];
    if (!a->reduction) continue;
    least = least.id ? ir_scalar_min(emit_scalars(e), least, a->count) : a->count;
  }
  return least;
}

bool emit_refuses_nothing(const ir_op_data *op) {
  return ir_op_picks(op->code) && ir_op_attr(op, "empty")->i == 0;
}

/* The bias of a weight with leading axes of its own does not line up with the result; it then goes with
 * the first iteration. */
static bool adds_bias_last(const emitter *e, const step *s) {
  ir_axis dims[IR_MAX_RANK];
  return ir_op_has_bias(s->op) && ir_tensor_dims(e->f, s->op->operands[1], dims) == 2;
}

/* if n == 0 { to <- full([...], 0) }: a sum over no iterations is written too. A maximum over none does not
 * exist, and of a linear with bias the bias would be left: both are refused. */
static bool fill_if_empty(emitter *e, const step *s, ir_tensor to, ir_instr_data *choice) {
  ir_scalars *sc = emit_scalars(e);
  ir_scalar n = reduced_iterations(e, s->plan), zero = ir_scalar_const(sc, 0);
  if (n.id == 0 || ir_scalar_lt(sc, zero, n) == IR_TRUE) return false;
  bool biased = ir_op_has_bias(s->op) && !adds_bias_last(e, s);
  if (emit_refuses_nothing(s->op) || biased) {
    ir_require(e->h, IR_REQUIRE_LE, ir_scalar_const(sc, 1), n, "positions that are reduced",
               s->op->at);
    return false;
  }
  ir_number start = ir_fold_start(ir_op_fold(s->op->code), ir_tensor_at(e->h, to)->dtype);
  ir_instr_data fill = emit_fill_number(e, to, start, s->op->at);
  fill.why = IR_RULE_EMPTY;
  *choice = (ir_instr_data){.kind = IR_IF, .relation = IR_EQ, .a = n, .b = zero};
  choice->why = IR_RULE_EMPTY;
  ir_block_add(e->h, &choice->body, ir_host_instr(e->h, &fill));
  return true;
}

/* Pieces at the end may be empty: the condition is i * piece < n, where n is what earlier cuts leave. */
static ir_instr_data non_empty(emitter *e, const step *s, uint32_t q) {
  const stream_axis *a = &s->plan->axes.data[q];
  ir_axis axis = ir_tensor_at(e->f, s->op->result)->defined.logical.data[a->dim];
  ir_scalar n = ir_axis_size(e->f, axis);
  for (uint32_t k = 0; k < q; k++) {
    const stream_axis *b = &s->plan->axes.data[k];
    if (!b->reduction || b->dim != a->dim) continue;
    n = ir_partition_length(emit_scalars(e), &b->partition, n, e->loops[k].index, b->count);
  }
  ir_instr_data d = {.kind = IR_IF, .relation = IR_LT, .b = n, .why = IR_RULE_EMPTY};
  d.a = emit_piece_begin(e, &a->partition, n, e->loops[q].index);
  return d;
}

/* The partial result of a later iteration, added in iteration order:
 *     part : type = allocate();  part <- op(slices);  to <- to + part */
static void emit_addition(emitter *e, step *s, ir_tensor to, ir_block *block) {
  ir_tensor part = emit_clone(e, s->op->result, s->plan, s->plan->axes.len);
  ir_tensor_at(e->h, part)->dtype = ir_tensor_at(e->h, to)->dtype;
  if (ir_op_has_bias(s->op)) s->operands[2] = (ir_tensor){0}; /* the bias is added once */
  ir_instr_data all[3] = {{.kind = IR_ALLOCATE, .tensor = part, .at = s->op->at}};
  uint32_t n = 1;
  all[n++] = emit_compute(e, s, part);
  /* mutant: reduction_not_added */
  ir_tensor both[2] = {to, part};
  all[n] = (ir_instr_data){.kind = IR_COMPUTE, .tensor = to, .at = s->op->at};
  /* mutant: reduction_always_sum */
  ir_opcode merge = ir_fold_info_of(ir_op_fold(s->op->code))->merge;
  all[n++].op = ir_host_op(e->h, merge, both, 2, NULL, to, s->op->at);
  for (uint32_t i = 0; i < n; i++) {
    all[i].why = IR_RULE_ADD;
    ir_block_add(e->h, block, ir_host_instr(e->h, &all[i]));
  }
}

/* ---- f16 and bf16 ---- */

static bool is_narrow(ir_dtype t) { return t == IR_F16 || t == IR_BF16; }

static bool adds_wide(const emitter *e, const step *s) {
  return !ir_op_picks(s->op->code) && is_narrow(ir_tensor_at(e->f, s->op->result)->dtype);
}

/* A buffer like `like`, of another dtype. */
static ir_tensor converted(emitter *e, ir_tensor like, ir_dtype dtype) {
  ir_tensor_data data = *ir_tensor_at(e->h, like);
  ir_tensor origin = e->h->host->origins.data[like.id].tensor;
  data.kind = IR_TENSOR_RESULT;
  data.dtype = dtype;
  data.name = emit_fresh_name(e, ir_tensor_name(e->f, origin), true);
  return emit_add_tensor(e, &data, origin, true);
}

static ir_instr_data cast_to(emitter *e, ir_tensor from, ir_tensor to, loc at) {
  ir_attr dtype = {.given = true, .i = ir_tensor_at(e->h, to)->dtype};
  ir_instr_data d = {.kind = IR_COMPUTE, .at = at, .tensor = to};
  d.op = ir_host_op(e->h, IR_OP_CAST, &from, 1, &dtype, to, at);
  return d;
}

void emit_cast(emitter *e, ir_tensor from, ir_tensor to, loc at) {
  ir_instr_data d = cast_to(e, from, to, at);
  emit_instr(e, &d);
}

static ir_tensor copy_as(emitter *e, ir_tensor t, ir_dtype dtype, loc at) {
  ir_tensor to = converted(e, t, dtype);
  emit_instr(e, &(ir_instr_data){.kind = IR_ALLOCATE, .at = at, .tensor = to});
  emit_cast(e, t, to, at);
  return to;
}

void emit_add_bias(emitter *e, ir_tensor sum, ir_tensor bias, loc at) {
  ir_dtype dtype = ir_tensor_at(e->h, sum)->dtype;
  bool fits = ir_dtype_promote(dtype, ir_tensor_at(e->h, bias)->dtype) == dtype;
  ir_tensor both[2] = {sum, fits ? bias : copy_as(e, bias, dtype, at)};
  emit_simple(e, IR_OP_ADD, both, 2, sum, at);
}

/* A product is asked for the dtype instead (emit_compute), so that its operands stay as they are. */
void emit_convert_operand(emitter *e, step *s, ir_dtype sum) {
  bool wide = is_narrow(ir_tensor_at(e->f, s->op->result)->dtype) && sum == IR_F32;
  ir_tensor t = s->operands[0];
  if (!wide || ir_op_is_product(s->op->code) || ir_tensor_at(e->h, t)->dtype == sum) return;
  check(s->op->n_operands == 1);
  ir_rule before = emit_because(e, IR_RULE_WIDE);
  s->operands[0] = copy_as(e, t, sum, s->op->at);
  (void)emit_because(e, before);
}

static uint32_t first_reduction(const op_plan *plan) {
  uint32_t q = 0;
  while (!plan->axes.data[q].reduction) q++;
  return q;
}

/* if 0 <= me(mesh.x) { d } */
static void only_on(emitter *e, ir_mesh mesh, ir_instr_data *d) {
  if (!e->l->shard || shard_same_devices(e->h, mesh, e->l->everywhere)) return;
  ir_instr_data guard = {.kind = IR_IF, .relation = IR_LE, .at = d->at, .why = IR_RULE_MEMBER};
  guard.a = ir_scalar_const(emit_scalars(e), 0);
  guard.b = emit_me(e, mesh, 0);
  ir_block_add(e->h, &guard.body, ir_host_instr(e->h, d));
  *d = guard;
}

void emit_accumulator(emitter *e, step *s, ir_tensor buffer) {
  uint32_t inside = s->plan->inside;
  ir_instr_data wide = {.kind = IR_ALLOCATE, .at = s->op->at, .why = IR_RULE_WIDE}, fill;
  finish f = {.op = s->op, .plan = s->plan, .level = first_reduction(s->plan), .sum = buffer};
  f.bias = adds_bias_last(e, s);
  f.round = adds_wide(e, s);
  if (f.round) {
    f.sum = wide.tensor = converted(e, buffer, IR_F32);
    if (inside < e->depth) emit_before_loop(e, inside, &wide);
    else emit_instr(e, &wide);
  }
  s->sum = f.sum;
  if (f.bias || f.round) vec_push(&e->l->scratch, &e->finishes, f);
  if (!fill_if_empty(e, s, s->sum, &fill)) return;
  only_on(e, ir_tensor_at(e->f, s->op->result)->mesh, &fill);
  if (inside < e->depth) emit_before_loop(e, inside, &fill);
  else emit_instr(e, &fill);
}

static void emit_finish(emitter *e, const finish *f) {
  op_plan outside = *f->plan; /* the loops that are still open */
  outside.axes.len = f->level;
  uint32_t sliced[3] = {0};
  step s = {.op = f->op, .plan = &outside, .sliced = sliced};
  s.result_dropped = host_dropped_result(e->l, &outside);
  e->h->host->source = ir_tensor_at(e->f, f->op->result)->def;
  ir_tensor sum = emit_destination(e, f->plan, f->level, f->sum);
  host_guard g;
  emit_guard(e, ir_tensor_at(e->f, f->op->result)->mesh, &g);
  if (f->bias) {
    ir_tensor bias = emit_operand(e, &s, 2);
    ir_rule before = emit_because(e, IR_RULE_BIAS);
    emit_add_bias(e, sum, bias, f->op->at);
    (void)emit_because(e, before);
  }
  if (f->round) {
    ir_tensor to = emit_destination(e, f->plan, f->level, e->buffer[f->op->result.id]);
    ir_instr_data cast = cast_to(e, sum, to, f->op->at);
    cast.why = IR_RULE_WIDE;
    emit_instr(e, &cast);
  }
  emit_unguard(e, &g, f->op->at);
}

void emit_finishes(emitter *e, uint32_t level) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < e->finishes.len; i++) {
    finish f = e->finishes.data[i];
    if (f.level == level) emit_finish(e, &f);
    else e->finishes.data[kept++] = f;
  }
  e->finishes.len = kept;
}

void emit_partial(emitter *e, step *s) {
  if (adds_bias_last(e, s)) s->operands[2] = (ir_tensor){0};
  emit_convert_operand(e, s, ir_tensor_at(e->h, s->sum)->dtype);
  ir_tensor to = emit_destination(e, s->plan, s->plan->axes.len, s->sum);
  ir_scalars *sc = emit_scalars(e);
  ir_instr_data choice = {.kind = IR_IF, .relation = IR_EQ, .a = ir_scalar_const(sc, 0)};
  choice.why = IR_RULE_ADD;
  choice.b = ir_scalar_const(sc, 0);
  for (uint32_t q = 0; q < s->plan->axes.len; q++) {
    if (s->plan->axes.data[q].reduction)
      choice.a = ir_scalar_add(sc, choice.a, e->loops[q].variable);
  }
  ir_instr_data first = emit_compute(e, s, to);
  ir_block_add(e->h, &choice.body, ir_host_instr(e->h, &first));
  ir_block later = {0};
  emit_addition(e, s, to, &later);
  for (uint32_t q = s->plan->axes.len; q-- > 0;) {
    /* In a turned loop empty pieces come in between, and what is added then is 0: each iteration
     * waits for the one before only. */
    bool turned = e->l->loop_turns[s->plan->loop[q]] != NULL;
    /* mutant: reduction_of_nothing */
    if (!s->plan->axes.data[q].reduction || s->plan->axes.data[q].logical || turned) continue;
    ir_instr_data guard = non_empty(e, s, q);
    guard.body = later;
    later = (ir_block){0};
    ir_block_add(e->h, &later, ir_host_instr(e->h, &guard));
  }
  choice.otherwise = later;
  emit_instr(e, &choice);
}
