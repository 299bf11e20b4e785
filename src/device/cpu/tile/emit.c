/* From nodes to instructions on tiles. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/kernel_fold.h"
#include "device/cpu/kernel_make.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/tile/emit.h"

/* ---- values ---- */
/* What a value of the dtype is in its slot: bf16 stays as it is in memory. */
static ir_dtype in_slot(ir_dtype t) { return t == IR_BF16 ? t : cpu_native(t); }

static uint32_t new_value(tile_emitter *e, tile_form form, ir_dtype native, bool permanent) {
  e->values[e->n_values] = (tile_value){.form = form, .native = native, .permanent = permanent};
  return e->n_values++;
}

static tile_instr *add_instr(tile_emitter *e, tile_phase phase, tile_instr i) {
  tile_code *code = &e->code[phase];
  if (code->n == e->capacity[phase]) {
    uint32_t capacity = 2 * code->n + 16;
    tile_instr *list = ARENA_ARRAY(e->l->work, capacity, tile_instr);
    if (code->n > 0) memcpy(list, code->list, code->n * sizeof *list);
    code->list = list;
    e->capacity[phase] = capacity;
  }
  code->list[code->n] = i;
  return &code->list[code->n++];
}

/* Of tiles of one row, all forms have that row. */
static bool same_form(const tile_emitter *e, tile_form a, tile_form b) {
  return (a.rows == b.rows || e->tile_rows == 1) && a.columns == b.columns;
}

static bool in_phase(const tile_value *v, tile_phase phase) {
  return v->phase == phase || v->phase == TILE_ONCE;
}

/* Value v with `form`, which is at least what it has. */
static uint32_t spread(tile_emitter *e, tile_phase phase, uint32_t v, tile_form form) {
  tile_value *x = &e->values[v];
  check(in_phase(x, phase));
  if (same_form(e, x->form, form)) return v;
  for (uint32_t i = 0; i < e->n_values; i++)
    if (e->values[i].spread_of == v + 1 && same_form(e, e->values[i].form, form) &&
        in_phase(&e->values[i], phase))
      return i;
  phase = x->phase;
  uint32_t to = new_value(e, form, x->native, phase == TILE_ONCE);
  uint32_t size = (uint32_t)ir_dtype_size_bytes(x->native);
  e->values[to].spread_of = v + 1;
  e->values[to].phase = phase;
  e->values[to].placed = true;
  add_instr(e, phase,
            (tile_instr){.kind = TILE_DO_SPREAD,
                         .form = form,
                         .from = e->values[v].form,
                         .to = to,
                         .x = {v},
                         .size_bytes = size});
  return to;
}

static tile_form form_of(const tile_emitter *e, uint32_t axes) {
  return (tile_form){.rows = (axes & e->row_axes) != 0, .columns = (axes & e->column_axes) != 0};
}

static tile_form joined(tile_form a, tile_form b) {
  return (tile_form){.rows = a.rows || b.rows, .columns = a.columns || b.columns};
}

/* Nodes that are the same for all tiles are computed once for each part. */
static tile_phase phase_of(const tile_emitter *e, const tile_node *n, tile_phase wanted) {
  return !n->after_fold && (n->axes & ~e->steady_axes) == 0 ? TILE_ONCE : wanted;
}

static uint32_t emit_node(tile_emitter *e, uint32_t node, tile_phase phase);

/* ---- memory ---- */
static uint32_t new_view(tile_emitter *e, uint32_t place, ir_dtype dtype, int64_t first,
                         const int64_t *strides, int64_t size) {
  tile_view *v = &e->views[e->n_views];
  *v = (tile_view){.place = place, .dtype = dtype, .first_bytes = first * size};
  for (uint32_t i = 0; i < e->n_loops; i++)
    if (e->loop_axis[i] != TILE_NONE) v->steps[i] = strides[e->loop_axis[i]] * size;
  return e->n_views++;
}

/* How a load walks columns that are several loops; NULL: evenly. */
static const tile_nest *nest_of(const tile_emitter *e, const int64_t *strides, int64_t size) {
  uint32_t last = e->n_nested - 1;
  bool is_even = true;
  for (uint32_t i = 0; e->n_nested > 0 && i < last; i++)
    is_even = is_even && strides[e->nested_axis[i]] ==
                             strides[e->nested_axis[i + 1]] * e->nested_extents[i + 1];
  if (e->n_nested == 0 || is_even) return NULL;
  int64_t width = e->extents[e->n_loops - 1], run = e->nested_extents[last];
  tile_nest nest = {.length = run < TILE_NEST_RUN ? 1 : run};
  nest.n = width / nest.length;
  nest.step = strides[e->nested_axis[last]] * size;
  int64_t *offsets = ARENA_ARRAY(e->memory, (size_t)nest.n, int64_t);
  for (int64_t i = 0; i < nest.n; i++) {
    int64_t left = i * nest.length;
    for (uint32_t k = e->n_nested; k-- > 0; left /= e->nested_extents[k])
      offsets[i] += left % e->nested_extents[k] * strides[e->nested_axis[k]] * size;
  }
  nest.offsets = offsets;
  return arena_copy(e->memory, &nest, sizeof nest);
}

/* Is what a view reads or writes of a tile contiguous? */
static bool is_dense(const tile_emitter *e, const tile_view *v, tile_form form) {
  if (v->nest) return false;
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype), column = v->steps[e->n_loops - 1];
  int64_t row = v->steps[e->n_loops - 2], width = e->extents[e->n_loops - 1];
  bool one_row = !form.rows || e->tile_rows == 1;
  if (!form.columns) return one_row || row == size;
  if (width > 1 && column != size) return false;
  return one_row || (e->tile_columns >= width && row == width * size);
}

static uint32_t add_box(tile_emitter *e, const tile_box *box) {
  tile_box *b = &e->boxes[e->n_boxes];
  for (uint32_t i = 0; i < e->n_loops; i++) {
    uint32_t a = e->loop_axis[i];
    b->lo[i] = a == TILE_NONE ? 0 : box->lo[a];
    b->hi[i] = a == TILE_NONE ? 1 : box->hi[a];
    if (a != TILE_NONE && e->merged[a]) { /* only whole axes were merged */
      b->lo[i] = 0;
      b->hi[i] = e->extents[i];
    }
  }
  return e->n_boxes++;
}

static uint32_t emit_load(tile_emitter *e, const tile_node *n, tile_phase phase) {
  ir_dtype native = in_slot(n->dtype);
  tile_form form = form_of(e, n->axes);
  uint32_t size = (uint32_t)ir_dtype_size_bytes(n->dtype);
  uint32_t view = new_view(e, n->place, n->dtype, n->first, n->strides, size);
  tile_instr i = {.kind = TILE_DO_LOAD,
                  .form = form,
                  .to = new_value(e, form, native, phase == TILE_ONCE),
                  .size_bytes = (uint32_t)ir_dtype_size_bytes(native),
                  .view = view,
                  .guarded = n->guarded};
  e->views[view].nest = nest_of(e, n->strides, size);
  if (n->guarded) i.box = add_box(e, &n->box);
  if (native != n->dtype) i.convert[0] = cpu_convert_of(native, n->dtype);
  i.direct = !e->in_place && !n->guarded && !i.convert[0] && is_dense(e, &e->views[view], form);
  e->values[i.to].elsewhere = i.direct;
  add_instr(e, phase, i);
  return i.to;
}

static _Atomic int64_t stream_from = TILE_STREAM;
void tile_stream_from(int64_t bytes) { atomic_store(&stream_from, bytes); }

bool tile_is_large(const tile_lowering *l, const tile_target *t) {
  const rt_shape *shape = rt_value_shape(l->body, &t->value);
  if (t->in_scratch) return false;
  int64_t bytes = (int64_t)ir_dtype_size_bytes(shape->dtype);
  for (uint32_t d = 0; d < shape->rank; d++) bytes *= shape->extents[d];
  return bytes >= atomic_load_explicit(&stream_from, memory_order_relaxed);
}

/* What is computed goes to memory at once: in its place, or past the caches piece by piece. */
static bool store_where_made(tile_instr *maker, uint32_t view, bool stream) {
  if (maker->stream) return false; /* to another place already */
  maker->direct = !stream;
  maker->stream = stream;
  maker->view = view;
  return true;
}

static void store(tile_emitter *e, const tile_target *t, uint32_t v, tile_phase phase) {
  const rt_shape *shape = rt_value_shape(e->l->body, &t->value);
  int64_t strides[TILE_AXES] = {0}, size = (int64_t)ir_dtype_size_bytes(shape->dtype);
  for (uint32_t d = 0; d < shape->rank; d++)
    for (uint32_t a = 0; a < e->l->n_axes; a++)
      strides[a] += e->l->base.coef[d][a] * t->to.strides[d];
  uint32_t view = new_view(e, t->to.place, shape->dtype, 0, strides, size);
  v = spread(e, phase, v, joined(e->values[v].form, e->store_form));
  tile_value *x = &e->values[v];
  tile_instr i = {.kind = TILE_DO_STORE,
                  .form = x->form,
                  .x = {v},
                  .from_bytes = (uint32_t)ir_dtype_size_bytes(x->native),
                  .view = view};
  if (x->native != shape->dtype) i.convert[0] = cpu_convert_of(shape->dtype, x->native);
  i.stream = tile_is_large(e->l, t) && e->views[view].steps[e->n_loops - 1] == size;
  bool joins = !e->in_place && !i.convert[0] && x->phase == phase && !x->elsewhere &&
               x->maker != 0 && is_dense(e, &e->views[view], x->form);
  if (joins && store_where_made(&e->code[phase].list[x->maker - 1], view, i.stream)) {
    x->elsewhere = !i.stream;
    return;
  }
  add_instr(e, phase, i);
}

/* ---- numbers and makers ---- */
static uint32_t emit_number(tile_emitter *e, const tile_node *n, tile_phase phase) {
  ir_dtype native = in_slot(n->dtype);
  tile_form once = {.rows = false};
  tile_instr i = {.kind = TILE_DO_FILL,
                  .to = new_value(e, once, native, phase == TILE_ONCE),
                  .size_bytes = (uint32_t)ir_dtype_size_bytes(native),
                  .value = n->value};
  if (native != n->dtype) cpu_convert_of(native, n->dtype)(1, i.value.bytes, n->value.bytes);
  add_instr(e, phase, i);
  return i.to;
}

static uint32_t emit_make(tile_emitter *e, const tile_node *n, tile_phase phase) {
  ir_dtype native = in_slot(n->dtype);
  ir_dtype made = n->code == IR_OP_UNIFORM ? IR_F64 : IR_I64;
  tile_form form = form_of(e, n->axes);
  rt_task t = tile_step_task(e->l->work, n->step);
  tile_instr i = {.kind = TILE_DO_MAKE,
                  .form = form,
                  .to = new_value(e, form, native, phase == TILE_ONCE),
                  .size_bytes = (uint32_t)ir_dtype_size_bytes(native),
                  .maker = cpu_maker_new(e->l->plan, &t, n->dtype, e->memory),
                  .cost_ns = n->code == IR_OP_UNIFORM ? 10 : 1,
                  .middle = n->dtype};
  i.view = new_view(e, TILE_NONE, IR_U8, n->first, n->strides, 1);
  i.convert[0] = made != n->dtype ? cpu_convert_of(n->dtype, made) : NULL;
  i.convert[1] = native != n->dtype ? cpu_convert_of(native, n->dtype) : NULL;
  add_instr(e, phase, i);
  return i.to;
}

/* ---- computing ---- */
static uint32_t emit_round(tile_emitter *e, uint32_t v, ir_dtype dtype, tile_phase phase) {
  add_instr(e, phase,
            (tile_instr){.kind = TILE_DO_ROUND,
                         .form = e->values[v].form,
                         .to = v,
                         .x = {v},
                         .size_bytes = 4,
                         .round = cpu_vectors()->round[dtype]});
  e->values[v].maker = 0;
  return v;
}

/* Values of f16 are rounded where they are made; one that is only stored is rounded there. */
static bool must_round(const tile_emitter *e, uint32_t node) {
  return e->l->nodes[node].dtype == IR_F16 && e->n_uses[node] > 0;
}

static bool mode_of(const rt_task *t) {
  for (const ir_param *p = ir_op_info_of(t->code)->params; p->kind != IR_PARAM_END; p++)
    if (p->kind == IR_PARAM_CHOICE) return rt_task_int(t, p->name) != 0;
  return false;
}

bool tile_is_function(ir_opcode code) {
  return code == IR_OP_EXP || code == IR_OP_LOG || code == IR_OP_SIN || code == IR_OP_COS ||
         code == IR_OP_TANH || code == IR_OP_SIGMOID || code == IR_OP_ERF || code == IR_OP_SILU ||
         code == IR_OP_GELU || code == IR_OP_POW || code == IR_OP_MOD;
}

bool tile_is_long(ir_opcode code) {
  bool is_short =
      code == IR_OP_EXP || code == IR_OP_TANH || code == IR_OP_SIGMOID || code == IR_OP_SILU;
  return tile_is_function(code) && !is_short;
}

/* Of an element, about: pow and mod of floats go through the C library for some or all. */
static float cost_ns(ir_opcode code, ir_dtype native) {
  if (!tile_is_function(code)) return 0.1F;
  if (native == IR_F64 || code == IR_OP_MOD) return 8;
  return code == IR_OP_POW ? 3 : 0.7F;
}

static uint32_t emit_map(tile_emitter *e, uint32_t node, tile_phase phase) {
  const tile_node *n = &e->l->nodes[node];
  ir_dtype native = in_slot(n->step->compute), made = n->dtype == IR_BOOL ? IR_BOOL : native;
  rt_task t = tile_step_task(e->l->work, n->step);
  bool rounds = must_round(e, node) && n->dtype == n->step->compute;
  check(made == in_slot(n->dtype));
  tile_instr i = {.kind = TILE_DO_MAP,
                  .map = cpu_vectors()->map[rounds ? n->dtype : native][n->code],
                  .mode = mode_of(&t),
                  .size_bytes = (uint32_t)ir_dtype_size_bytes(made)};
  check(i.map);
  i.from_bytes = (uint32_t)ir_dtype_size_bytes(native);
  i.heavy = tile_is_function(n->code);
  i.is_long = tile_is_long(n->code);
  i.cost_ns = cost_ns(n->code, native);
  if (native == IR_BF16 && e->n_positions >= CPU_TABLE_WORTH) {
    cpu_table fastest = cpu_table_of(n->code, i.mode);
    i.map = fastest.map;
    i.table = fastest.results;
  }
  for (uint32_t k = 0; k < n->n_x; k++) {
    i.x[k] = emit_node(e, n->x[k], phase);
    i.form = joined(i.form, e->values[i.x[k]].form);
  }
  for (uint32_t k = 0; k < n->n_x; k++) i.x[k] = spread(e, phase, i.x[k], i.form);
  for (uint32_t k = n->n_x; k < 3; k++) i.x[k] = i.x[0];
  i.to = new_value(e, i.form, made, phase == TILE_ONCE);
  add_instr(e, phase, i);
  e->values[i.to].maker = e->code[phase].n;
  return i.to;
}

static uint32_t emit_cast(tile_emitter *e, uint32_t node, tile_phase phase) {
  const tile_node *n = &e->l->nodes[node];
  uint32_t x = emit_node(e, n->x[0], phase);
  ir_dtype from = e->values[x].native, native = in_slot(n->dtype);
  if (from == native) {
    if (!must_round(e, node)) return x;
    tile_instr i = {.kind = TILE_DO_ROUND,
                    .form = e->values[x].form,
                    .to = new_value(e, e->values[x].form, native, phase == TILE_ONCE),
                    .x = {x},
                    .size_bytes = 4,
                    .round = cpu_vectors()->round[n->dtype]};
    add_instr(e, phase, i);
    return i.to;
  }
  tile_instr i = {.kind = TILE_DO_CONVERT,
                  .form = e->values[x].form,
                  .x = {x},
                  .size_bytes = (uint32_t)ir_dtype_size_bytes(native),
                  .middle = n->dtype};
  i.to = new_value(e, i.form, native, phase == TILE_ONCE);
  i.convert[0] = cpu_convert_of(n->dtype, from);
  if (native != n->dtype) i.convert[1] = cpu_convert_of(native, n->dtype);
  add_instr(e, phase, i);
  return i.to;
}

static uint32_t emit_blend(tile_emitter *e, const tile_node *n, tile_phase phase) {
  tile_instr i = {.kind = TILE_DO_BLEND, .guarded = true, .box = add_box(e, &n->box)};
  i.form = form_of(e, n->axes);
  for (uint32_t k = 0; k < 2; k++) {
    i.x[k] = emit_node(e, n->x[k], phase);
    i.form = joined(i.form, e->values[i.x[k]].form);
  }
  for (uint32_t k = 0; k < 2; k++) i.x[k] = spread(e, phase, i.x[k], i.form);
  i.size_bytes = (uint32_t)ir_dtype_size_bytes(in_slot(n->dtype));
  i.to = new_value(e, i.form, in_slot(n->dtype), phase == TILE_ONCE);
  add_instr(e, phase, i);
  return i.to;
}

/* ---- reductions ---- */
/* Moments are made of sums. */
static cpu_fold_kind fold_kind(ir_opcode code) {
  ir_fold fold = ir_op_fold(code);
  return fold == IR_FOLD_NONE ? CPU_FOLD_SUM : (cpu_fold_kind)fold;
}

static void describe_fold(const tile_emitter *e, const tile_node *n, ir_dtype folded,
                          tile_instr *i) {
  ir_dtype wide = folded == IR_I64 ? IR_I64 : IR_F64, native = in_slot(n->dtype);
  rt_task t = tile_step_task(e->l->work, n->step);
  i->fold = cpu_fold_of(fold_kind(n->code), folded);
  i->from_bytes = (uint32_t)ir_dtype_size_bytes(folded);
  i->size_bytes = (uint32_t)ir_dtype_size_bytes(native);
  i->middle = n->dtype;
  i->convert[0] = wide != n->dtype ? cpu_convert_of(n->dtype, wide) : NULL;
  i->convert[1] = native != n->dtype ? cpu_convert_of(native, n->dtype) : NULL;
  if (n->code == IR_OP_MEAN || tile_is_variance(n->code)) i->divisor = (double)e->n_inner;
  if (!tile_is_variance(n->code)) return;
  double left = (double)e->n_inner - (double)rt_task_int(&t, "correction");
  i->squares = cpu_fold_of(CPU_FOLD_SQUARES, folded);
  i->second_divisor = left > 0 ? left : 0;
}

static bool is_target(const tile_lowering *l, uint32_t node) {
  for (uint32_t t = 0; t < l->n_targets; t++)
    if (l->targets[t].node == node) return true;
  return false;
}

/* Does the fold alone use a product that it can compute itself? */
static bool folds_products(const tile_emitter *e, const tile_node *n) {
  const tile_node *x = &e->l->nodes[n->x[0]];
  bool is_product = x->kind == TILE_MAP && x->code == IR_OP_MUL && e->n_uses[n->x[0]] == 1;
  bool knows = x->dtype == IR_F32 || x->dtype == IR_BF16;
  return is_product && knows && x->dtype == x->step->compute && !tile_is_variance(n->code) &&
         fold_kind(n->code) == CPU_FOLD_SUM && e->stream != TILE_STREAM_COLUMNS &&
         !is_target(e->l, n->x[0]);
}

static uint32_t emit_fold(tile_emitter *e, uint32_t node, tile_phase phase) {
  const tile_node *n = &e->l->nodes[node];
  tile_form full = {.rows = true, .columns = true};
  tile_instr i = {.kind = TILE_DO_FOLD, .products = folds_products(e, n)};
  bool streamed = e->stream != TILE_WHOLE;
  tile_phase operand_phase = streamed ? TILE_EACH : phase;
  const uint32_t *operands = i.products ? e->l->nodes[n->x[0]].x : n->x;
  for (uint32_t k = 0; k < (i.products ? 2 : 1); k++)
    i.x[k] = spread(e, operand_phase, emit_node(e, operands[k], operand_phase), full);
  uint32_t x = i.x[0];
  describe_fold(e, n, e->values[x].native, &i);
  if (streamed) {
    tile_instr fold = i;
    fold.kind = TILE_DO_ACCUMULATE;
    fold.form = full;
    fold.accumulator = e->n_accumulators;
    add_instr(e, TILE_EACH, fold);
    ir_dtype wide = e->values[x].native == IR_I64 ? IR_I64 : IR_F64;
    e->joins[e->n_accumulators] = cpu_fold_of(fold_kind(n->code), wide);
    e->folds[e->n_accumulators++] = i.fold;
    i.kind = TILE_DO_TAKE;
    i.accumulator = fold.accumulator;
  }
  i.form.columns = e->stream == TILE_STREAM_COLUMNS;
  i.form.rows = e->stream != TILE_STREAM_COLUMNS;
  i.to = new_value(e, i.form, in_slot(n->dtype), false);
  if (streamed) i.x[0] = i.to;
  add_instr(e, phase, i);
  return i.to;
}

/* An f32 value as bf16. */
static uint32_t emit_narrow(tile_emitter *e, uint32_t v, tile_phase phase) {
  tile_instr i = {.kind = TILE_DO_CONVERT,
                  .form = e->values[v].form,
                  .x = {v},
                  .size_bytes = (uint32_t)ir_dtype_size_bytes(IR_BF16),
                  .middle = IR_BF16,
                  .convert = {cpu_convert_of(IR_BF16, IR_F32)}};
  i.to = new_value(e, i.form, IR_BF16, phase == TILE_ONCE);
  add_instr(e, phase, i);
  return i.to;
}

static uint32_t emit_rows(tile_emitter *e, uint32_t node, tile_phase phase) {
  const tile_node *n = &e->l->nodes[node];
  tile_form full = {.rows = true, .columns = true}, columns = {.columns = true};
  rt_task t = tile_step_task(e->l->work, n->step);
  tile_instr i = {.kind = TILE_DO_ROWS, .form = full, .native = e->l->nodes[n->x[0]].dtype};
  i.x[0] = spread(e, phase, emit_node(e, n->x[0], phase), full);
  for (uint32_t k = 1; k < 3; k++)
    i.x[k] =
        n->x[k] == TILE_NONE ? TILE_NONE : spread(e, phase, emit_node(e, n->x[k], phase), columns);
  i.softmax = n->code == IR_OP_SOFTMAX;
  i.centered = n->code == IR_OP_LAYER_NORM;
  if (!i.softmax) i.eps = ir_number_as_f64(rt_task_number(&t, "eps"));
  i.size_bytes = (uint32_t)ir_dtype_size_bytes(i.native);
  i.to = new_value(e, full, i.native, false);
  add_instr(e, phase, i);
  e->values[i.to].maker = e->code[phase].n;
  if (n->dtype == IR_BF16 && i.native != IR_BF16) return emit_narrow(e, i.to, phase);
  return must_round(e, node) ? emit_round(e, i.to, n->dtype, phase) : i.to;
}

static uint32_t emit_new(tile_emitter *e, uint32_t node, tile_phase phase) {
  const tile_node *n = &e->l->nodes[node];
  switch (n->kind) {
  case TILE_LOAD: return emit_load(e, n, phase);
  case TILE_NUMBER: return emit_number(e, n, phase);
  case TILE_MAKE: return emit_make(e, n, phase);
  case TILE_MAP: return emit_map(e, node, phase);
  case TILE_CAST: return emit_cast(e, node, phase);
  case TILE_BLEND: return emit_blend(e, n, phase);
  case TILE_FOLD: return emit_fold(e, node, phase);
  case TILE_ROWS: return emit_rows(e, node, phase);
  }
  impossible("a kind of node");
}

/* Values that are used where they are must be set for every tile. */
static bool can_skip(const tile_instr *t) {
  switch (t->kind) {
  case TILE_DO_LOAD:
  case TILE_DO_MAP: return !t->direct && !t->stream;
  case TILE_DO_MAKE:
  case TILE_DO_CONVERT:
  case TILE_DO_ROUND:
  case TILE_DO_SPREAD:
  case TILE_DO_BLEND: return true;
  case TILE_DO_FILL:
  case TILE_DO_FOLD:
  case TILE_DO_ACCUMULATE:
  case TILE_DO_TAKE:
  case TILE_DO_ROWS:
  case TILE_DO_STORE: return false;
  }
  impossible("a kind of instruction");
}

static bool is_needed_everywhere(const tile_lowering *l, const tile_node *n) {
  for (uint32_t a = 0; n->bounded && a < l->n_axes; a++)
    if (n->need.lo[a] > 0 || n->need.hi[a] < l->extents[a]) return false;
  return true;
}

/* Instructions from `first` on that were made for the node itself. */
static void bound(tile_emitter *e, const tile_node *n, tile_phase phase, uint32_t first) {
  uint32_t box = TILE_NONE;
  if (phase != TILE_EACH || is_needed_everywhere(e->l, n)) return;
  for (uint32_t i = first; i < e->code[phase].n; i++) {
    tile_instr *t = &e->code[phase].list[i];
    if (t->bounded || !can_skip(t)) continue;
    if (box == TILE_NONE) box = add_box(e, &n->need);
    t->bounded = true;
    t->need = box;
  }
}

static uint32_t emit_node(tile_emitter *e, uint32_t node, tile_phase phase) {
  phase = phase_of(e, &e->l->nodes[node], phase);
  uint32_t *known = &e->emitted[node][phase];
  if (*known == 0) {
    uint32_t first = e->n_values, first_instr = e->code[phase].n;
    uint32_t v = emit_new(e, node, phase);
    bound(e, &e->l->nodes[node], phase, first_instr);
    for (uint32_t i = first; i < e->n_values; i++)
      if (!e->values[i].placed) e->values[i].phase = phase, e->values[i].placed = true;
    *known = v + 1;
  }
  return *known - 1;
}

/* ---- all of it ---- */
static void count_uses(tile_emitter *e) {
  for (uint32_t i = 0; i < e->l->n_nodes; i++)
    for (uint32_t k = 0; k < e->l->nodes[i].n_x; k++)
      if (e->l->nodes[i].x[k] != TILE_NONE) e->n_uses[e->l->nodes[i].x[k]]++;
  /* A target in another memory than the first of the same node needs the rounded value there too. */
  for (uint32_t t = 0; t < e->l->n_targets; t++)
    for (uint32_t u = 0; u < t; u++)
      if (e->l->targets[t].node == e->l->targets[u].node) e->n_uses[e->l->targets[t].node]++;
}

tile_program *tile_emit(tile_lowering *l, arena *memory, bool in_place) {
  tile_emitter e = {.l = l, .memory = memory, .in_place = in_place};
  uint32_t most = 4 * l->n_nodes + l->n_targets + 4;
  if (!tile_choose_loops(&e)) return NULL;
  e.n_positions = 1;
  for (uint32_t i = 0; i < e.n_loops; i++) e.n_positions *= e.extents[i];
  e.values = ARENA_ARRAY(l->work, 4 * most, tile_value);
  e.views = ARENA_ARRAY(l->work, most, tile_view);
  e.boxes = ARENA_ARRAY(l->work, most, tile_box);
  e.folds = ARENA_ARRAY(l->work, l->n_nodes + 1, const cpu_fold *);
  e.joins = ARENA_ARRAY(l->work, l->n_nodes + 1, const cpu_fold *);
  e.emitted = arena_array(l->work, l->n_nodes + 1, sizeof *e.emitted);
  e.n_uses = ARENA_ARRAY(l->work, l->n_nodes + 1, uint32_t);
  count_uses(&e);
  tile_phase phase = e.stream == TILE_WHOLE ? TILE_EACH : TILE_LAST;
  uint32_t *results = ARENA_ARRAY(l->work, l->n_targets + 1, uint32_t);
  for (uint32_t t = 0; t < l->n_targets; t++) results[t] = emit_node(&e, l->targets[t].node, phase);
  for (uint32_t t = 0; t < l->n_targets; t++) store(&e, &l->targets[t], results[t], phase);
  return tile_assemble(&e);
}
