/* The generator's driver: random numbers, text, inputs, statements, and the finished program. */
#include "gen.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen_model.h"

/* ---- random numbers (splitmix64) ---- */
uint64_t gen_next(gen_random *r) {
  uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint32_t gen_below(gen_random *r, uint32_t n) { return (uint32_t)((gen_next(r) >> 32) % n); }
bool gen_chance(gen_random *r, uint32_t percent) { return gen_below(r, 100) < percent; }

gen_options gen_options_default(uint64_t seed) {
  return (gen_options){.seed = seed,
                       .max_ops = 12,
                       .families = GEN_ALL,
                       .dtypes = UINT32_MAX,
                       .max_devices = 8,
                       .max_elements = 1024,
                       .schedule = true,
                       .rfactor = true,
                       .symbolic = true,
                       .edges = true};
}

/* ---- text ---- */
static void *must(void *block) {
  if (!block) abort();
  return block;
}

void buffer_printf(text_buffer *b, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  size_t n = (size_t)vsnprintf(NULL, 0, fmt, args);
  if (b->len + n + 1 > b->cap) {
    b->cap = 2 * (b->len + n + 1);
    b->data = must(realloc(b->data, b->cap));
  }
  vsnprintf(b->data + b->len, n + 1, fmt, again);
  b->len += n;
  va_end(again);
  va_end(args);
}

void expr_printf(model_tensor *t, const char *fmt, ...) {
  size_t used = strlen(t->text);
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(t->text + used, sizeof t->text - used, fmt, args);
  va_end(args);
  if (n >= (int)(sizeof t->text - used)) t->too_long = true;
}

/* ---- loop domains ---- */
void axes_add(model_tensor *t, model_axis_kind kind, int64_t size) {
  t->axes[t->n_axes++] = (model_axis){.kind = kind, .size = size};
}

void axes_from_dims(model_tensor *t) {
  t->n_axes = 0;
  for (uint32_t i = 0; i < t->rank; i++)
    axes_add(t, t->dims[i].one ? AXIS_BROADCAST : AXIS_ITERATION, t->dims[i].size);
}

/* ---- inputs ---- */
static int find_symbol(const model *m, const model_dim *d) {
  for (uint32_t i = 0; i < m->n_symbols; i++)
    if (strcmp(m->symbols[i].text, d->text) == 0) return (int)i;
  return -1;
}

/* An input's extent is an integer, a name or `?`. */
static void declare_dim(model *m, model_tensor *t, uint32_t i) {
  model_dim *d = &t->dims[i];
  int symbol = find_symbol(m, d);
  if ((symbol < 0 && !dim_is_const(d)) || (m->options.symbolic && !d->one && chance(m, 4))) {
    *d = dim_unknown(d->size);
    t->anonymous = true;
  } else if (symbol >= 0) {
    m->declared[symbol] = true;
  }
  buffer_printf(&m->head, "%s%s", i ? ", " : "", d->text[0] ? d->text : "?");
}

static void choose_fill(model *m, model_tensor *t) {
  t->fill = m->options.exact_only || chance(m, 30) ? GEN_FILL_INTEGER : GEN_FILL_NORMAL;
  if (!m->options.exact_only && chance(m, 20)) t->fill = GEN_FILL_POSITIVE;
  t->bound = t->fill == GEN_FILL_INTEGER && t->dtype != IR_U8 ? 3 : dtype_largest(t->dtype);
}

uint32_t model_input(model *m, ir_dtype dtype, const model_dim *dims, uint32_t rank) {
  uint32_t index = m->n_tensors++;
  model_tensor *t = &m->tensors[index];
  *t = (model_tensor){.dtype = dtype, .rank = rank, .mesh = -1};
  snprintf(t->name, sizeof t->name, "x%u", m->n_inputs++ % 1000);
  for (uint32_t i = 0; i < rank; i++) t->dims[i] = dims[i];
  buffer_printf(&m->head, "  %s : %s%s", t->name, ir_dtype_text(dtype), rank ? "[" : "");
  for (uint32_t i = 0; i < rank; i++) declare_dim(m, t, i);
  buffer_printf(&m->head, "%s\n", rank ? "]" : "");
  axes_from_dims(t);
  t->n_allocated = t->rank;
  choose_fill(m, t);
  return index;
}

static ir_dtype dtype_wanted(model *m, model_wants wants) {
  for (int tries = 0; tries < 30; tries++) {
    model_tensor t = {.dtype = dtype_random(m)};
    if (wants(&t)) return t.dtype;
  }
  if (wants == wants_bool) return IR_BOOL;
  return wants == wants_bits ? IR_I32 : IR_F32;
}

static uint32_t new_input(model *m, model_wants wants, uint32_t min_rank, uint32_t max_rank) {
  model_dim dims[GEN_MAX_RANK];
  if (max_rank > 4 && min_rank <= 4) max_rank = 4;
  uint32_t rank = min_rank + below(m, max_rank - min_rank + 1);
  for (uint32_t i = 0; i < rank; i++) dims[i] = dim_random(m);
  while (dims_count(dims, rank) > m->options.max_elements) dims[below(m, rank)] = dim_const(2);
  return model_input(m, dtype_wanted(m, wants), dims, rank);
}

/* ---- picking operands ---- */
static bool pickable(const model *m, const model_tensor *t) {
  bool used_up = !t->nested && (t->name[0] == '\0' || strchr(t->name, '$'));
  return !used_up && !(t->nested && t->picked == m->serial);
}

static uint32_t picked(model *m, uint32_t index) {
  m->tensors[index].picked = m->serial;
  return index;
}

/* Nested expressions are tried first: they wait for their one use. */
static bool find(model *m, model_wants wants, uint32_t min_rank, uint32_t max_rank,
                 const model_tensor *like, uint32_t *index) {
  for (uint32_t tries = 0; tries < 12 && m->n_tensors; tries++) {
    uint32_t i = below(m, m->n_tensors);
    for (uint32_t k = 0; tries < 3 && k < m->n_tensors; k++)
      if (m->tensors[k].nested) i = k;
    const model_tensor *t = &m->tensors[i];
    model_tensor met = like ? *like : *t;
    if (!pickable(m, t) || !wants(t) || t->rank < min_rank || t->rank > max_rank) continue;
    if (like && (!model_meet(&met, t) || met.rank > GEN_MAX_RANK)) continue;
    *index = i;
    return true;
  }
  return false;
}

uint32_t model_pick(model *m, model_wants wants, uint32_t min_rank, uint32_t max_rank) {
  uint32_t index;
  bool full = m->n_inputs >= 8;
  if ((full || !chance(m, 20)) && find(m, wants, min_rank, max_rank, NULL, &index))
    return picked(m, index);
  return picked(m, new_input(m, wants, min_rank, max_rank));
}

uint32_t model_pick_meeting(model *m, model_wants wants, const model_tensor *like) {
  uint32_t index;
  bool full = m->n_inputs >= 8;
  if ((full || !chance(m, 25)) && find(m, wants, 0, GEN_MAX_RANK, like, &index))
    return picked(m, index);
  model_dim dims[GEN_MAX_RANK];
  uint32_t rank = chance(m, 60) ? like->rank : below(m, like->rank + 1);
  for (uint32_t i = 0; i < rank; i++) {
    const model_dim *d = &like->dims[like->rank - rank + i];
    dims[i] = chance(m, 15) ? dim_one() : d->one ? dim_random(m) : *d;
  }
  return picked(m, model_input(m, dtype_wanted(m, wants), dims, rank));
}

/* ---- operations ---- */
model_mark model_mark_now(const model *m) {
  model_mark mark = {m->n_tensors, m->n_inputs, m->head.len, {false}};
  memcpy(mark.declared, m->declared, sizeof mark.declared);
  return mark;
}

void model_reset(model *m, const model_mark *mark) {
  m->n_tensors = mark->n_tensors;
  m->n_inputs = mark->n_inputs;
  m->head.len = mark->head;
  if (m->head.data) m->head.data[m->head.len] = '\0';
  memcpy(m->declared, mark->declared, sizeof m->declared);
}

model_tensor *model_begin(model *m, ir_opcode op) {
  m->draft = (model_tensor){.op = op, .bound = INFINITY, .mesh = -1};
  m->n_more = 0;
  m->serial++;
  return &m->draft;
}

model_tensor *model_more(model *m, ir_dtype dtype, double bound) {
  model_tensor *t = &m->more[m->n_more++];
  *t = (model_tensor){.op = m->draft.op, .dtype = dtype, .bound = bound, .mesh = -1};
  t->further = true;
  t->rank = m->draft.rank;
  memcpy(t->dims, m->draft.dims, sizeof t->dims);
  return t;
}

void model_use(model *m, model_tensor *t, uint32_t i) {
  const model_tensor *x = &m->tensors[i];
  expr_printf(t, "%s", x->nested ? x->text : x->name);
  if (x->nested) t->nested_operands[t->n_nested++] = i;
}

/* Nested results are named after their statement, in evaluation order. */
static void name_nested(model *m, const model_tensor *t, const char *statement, uint32_t *count) {
  for (uint32_t k = 0; k < t->n_nested; k++) {
    model_tensor *x = &m->tensors[t->nested_operands[k]];
    name_nested(m, x, statement, count);
    snprintf(x->name, sizeof x->name, "%.16s$%u", statement, ++*count % 1000);
    x->nested = false;
  }
}

static void write_result(model *m, const model_tensor *t) {
  buffer_printf(&m->body, "%s", t->name);
  if (!chance(m, 30)) return;
  buffer_printf(&m->body, " : %s%s", ir_dtype_text(t->dtype), t->rank ? "[" : "");
  for (uint32_t i = 0; i < t->rank; i++) {
    const char *text = t->dims[i].text;
    buffer_printf(&m->body, "%s%s", i ? ", " : "", text[0] && !chance(m, 10) ? text : "?");
  }
  buffer_printf(&m->body, "%s", t->rank ? "]" : "");
}

static void write_statement(model *m, model_tensor *t) {
  uint32_t count = 0;
  snprintf(t->name, sizeof t->name, "y%u", m->n_names++ % 1000);
  t->nested = false;
  name_nested(m, t, t->name, &count);
  buffer_printf(&m->body, "  ");
  write_result(m, t);
  for (uint32_t k = 0; k < m->n_more; k++) {
    model_tensor *more = &m->tensors[m->n_tensors++];
    *more = m->more[k];
    snprintf(more->name, sizeof more->name, "y%u", m->n_names++ % 1000);
    buffer_printf(&m->body, ", ");
    write_result(m, more);
  }
  m->n_more = 0;
  buffer_printf(&m->body, " = %s\n", t->text);
}

/* Further results that are too large or not exact enough are not named, nor are those after them. */
static void settle_more(model *m) {
  uint32_t kept = 0, n = m->n_more;
  bool wanted = chance(m, 60);
  for (uint32_t k = 0; wanted && k < n && kept == k; k++) {
    model_tensor *t = &m->more[k];
    double largest = dtype_largest(t->dtype);
    if (t->bound > largest) t->bound = largest;
    bool exact = !m->options.exact_only || t->bound <= dtype_exact(t->dtype);
    if (!exact || dims_count(t->dims, t->rank) > m->options.max_elements) continue;
    axes_from_dims(t);
    t->n_allocated = t->rank;
    kept++;
  }
  m->n_more = kept;
}

bool model_commit(model *m, model_tensor *t) {
  double largest = dtype_largest(t->dtype);
  if (t->bound > largest) t->bound = largest;
  if (t->too_long || t->rank > GEN_MAX_RANK || m->n_tensors >= MODEL_TENSORS - 8) return false;
  if (dims_count(t->dims, t->rank) > m->options.max_elements) return false;
  if (m->options.exact_only && t->bound > dtype_exact(t->dtype)) return false;
  if (t->n_axes == 0) axes_from_dims(t);
  t->n_allocated = t->rank;
  if (m->n_more) settle_more(m);
  model_tensor *kept = &m->tensors[m->n_tensors++];
  *kept = *t;
  kept->nested = !m->n_more && chance(m, 30) && strlen(t->text) < 200;
  for (uint32_t k = 0; kept->nested && k < t->n_nested; k++)
    m->tensors[t->nested_operands[k]].nested = false;
  if (!kept->nested) write_statement(m, kept);
  m->n_ops++;
  return true;
}

/* ---- the program ---- */
/* Some take turns with an older one: seeds of programs without either keep their meaning. */
static ir_opcode draw_op(model *m) {
  ir_opcode op = (ir_opcode)(1 + below(m, IR_OP_COUNT - 5));
  if (op >= IR_OP_UPDATE) op++;
  if (op >= IR_OP_GROUP_INDEX) op++;
  if (op >= IR_OP_GROUPED_MATMUL) op++;
  if (op >= IR_OP_GROUPED_OUTER) op++;
  if (op == IR_OP_ONE_HOT && m->n_tensors % 2) return IR_OP_GROUP_INDEX;
  if (op == IR_OP_MATMUL && m->n_tensors % 3 == 2) return IR_OP_GROUPED_MATMUL;
  if (op == IR_OP_MATMUL && m->n_tensors % 6 == 3) return IR_OP_GROUPED_OUTER;
  return op == IR_OP_SCATTER && chance(m, 50) ? IR_OP_UPDATE : op;
}

static void make_operations(model *m) {
  uint32_t wanted = 1 + below(m, m->options.max_ops);
  for (uint32_t tries = 0; tries < 50 * wanted && m->n_ops < wanted; tries++) {
    if (m->n_tensors > MODEL_TENSORS - 16) break;
    ir_opcode op = draw_op(m);
    bool structured = ops_family(op) != GEN_POINTWISE;
    if (!structured && chance(m, 40)) continue; /* they are half of the table */
    if (m->options.families & ops_family(op)) ops_make(m, op);
  }
  for (uint32_t tries = 0; m->n_ops == 0 && tries < 1000; tries++) ops_make(m, IR_OP_SET);
  m->n_more = 0; /* of a try that failed */
  for (uint32_t i = 0; i < m->n_tensors; i++)
    if (m->tensors[i].nested) write_statement(m, &m->tensors[i]);
}

static gen_value value_of(const model_tensor *t) {
  gen_value v = {
      .dtype = t->dtype, .rank = t->rank, .fill = t->fill, .index_bound = t->index_bound};
  snprintf(v.name, sizeof v.name, "%s", t->name);
  for (uint32_t i = 0; i < t->rank; i++) v.extents[i] = t->dims[i].size;
  return v;
}

static void write_outputs(model *m, gen_program *p) {
  p->outputs = must(calloc(MODEL_TENSORS, sizeof *p->outputs));
  uint32_t wanted = 1 + below(m, 3);
  buffer_printf(&m->body, "  return ");
  for (uint32_t i = m->n_tensors; i-- > 0;) {
    const model_tensor *t = &m->tensors[i];
    if (t->op == IR_OP_NONE || strchr(t->name, '$') || p->n_outputs >= wanted) continue;
    if (p->n_outputs && chance(m, 40)) continue;
    buffer_printf(&m->body, "%s%s", p->n_outputs ? ", " : "", t->name);
    p->outputs[p->n_outputs++] = value_of(t);
  }
  buffer_printf(&m->body, "\n");
}

static void bind_input(gen_program *p, const model_tensor *t) {
  char *out = p->bindings[p->n_bindings++];
  size_t room = sizeof p->bindings[0];
  size_t n = (size_t)snprintf(out, room, "%s=", t->name);
  for (uint32_t i = 0; i < t->rank && n < room; i++)
    n += (size_t)snprintf(out + n, room - n, "%s%lld", i ? "x" : "", (long long)t->dims[i].size);
}

/* Every symbol that was drawn is an extent of some input. */
static void declare_symbols(model *m) {
  for (uint32_t i = 0; i < m->n_symbols; i++)
    while (!m->declared[i]) model_input(m, IR_F32, &m->symbols[i], 1);
}

static void list_inputs(const model *m, gen_program *p) {
  p->inputs = must(calloc(m->n_tensors, sizeof *p->inputs));
  for (uint32_t i = 0; i < m->n_symbols; i++)
    snprintf(p->bindings[p->n_bindings++], sizeof p->bindings[0], "%.8s=%lld", m->symbols[i].text,
             (long long)m->symbols[i].size);
  for (uint32_t i = 0; i < m->n_tensors; i++) {
    const model_tensor *t = &m->tensors[i];
    if (t->op != IR_OP_NONE) continue;
    p->inputs[p->n_inputs++] = value_of(t);
    if (t->anonymous && p->n_bindings < GEN_MAX_BINDINGS) bind_input(p, t);
  }
}

gen_program *gen_create(const gen_options *options) {
  model *m = must(calloc(1, sizeof *m));
  gen_program *p = must(calloc(1, sizeof *p));
  m->options = *options;
  m->random.state = options->seed;
  if (options->schedule && options->devices) schedule_device_meshes(m);
  else if (options->schedule && !options->streams) schedule_meshes(m);
  make_operations(m);
  declare_symbols(m);
  write_outputs(m, p);
  if (options->schedule && options->devices) schedule_devices(m);
  else if (options->schedule && options->streams) schedule_streams(m);
  else if (options->schedule) schedule_write(m);
  list_inputs(m, p);
  p->n_ops = m->n_ops;
  p->has_rfactor = m->has_rfactor;
  p->has_schedule = m->tail.len > 0;
  p->bad_stream = m->bad_stream;
  text_buffer text = {0};
  buffer_printf(&text, "fusion random {\n%s%s", m->head.data ? m->head.data : "", m->body.data);
  if (p->has_schedule) buffer_printf(&text, "  schedule {\n%s  }\n", m->tail.data);
  buffer_printf(&text, "}\n");
  p->text = text.data;
  free(m->head.data);
  free(m->body.data);
  free(m->tail.data);
  free(m);
  return p;
}

void gen_destroy(gen_program *p) {
  if (!p) return;
  free(p->text);
  free(p->inputs);
  free(p->outputs);
  free(p);
}
