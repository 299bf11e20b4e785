/* Binding: walks the host program with all scalars known and writes down what it does. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bind/loop.h"

bool bind_error(binder *b, const ir_instr_data *d, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  diag_error(b->errors, d->at, "%s", text);
  return false;
}

bool bind_eval(binder *b, const ir_instr_data *d, ir_scalar x, int64_t *value) {
  const ir_scalars *s = &b->h->module->scalars;
  if (ir_scalar_eval(s, x, b->symbols, b->n_symbols, value)) {
    if (b->alike && ir_scalar_has(s, x, IR_SYMBOL_RANK)) bind_alike_value(b, x, *value);
    if (b->watch && ir_scalar_has(s, x, IR_SYMBOL_INDEX)) bind_watch_value(b, x);
    return true;
  }
  return bind_error(
      b, d, "%s cannot be computed: it overflows, divides by a number below 1 or has no value",
      ir_scalar_text((ir_func *)b->h, x));
}

/* ---- streams ---- */

static void make_clocks(binder *b, uint32_t room) {
  uint32_t **clocks = ARENA_ARRAY(&b->scratch, room, uint32_t *);
  uint32_t *positions = ARENA_ARRAY(&b->scratch, room, uint32_t);
  for (uint32_t s = 0; s < room; s++) {
    clocks[s] = ARENA_ARRAY(&b->scratch, room, uint32_t);
    if (s >= b->clock_room) continue;
    memcpy(clocks[s], b->clocks[s], b->clock_room * sizeof *clocks[s]);
    positions[s] = b->positions[s];
  }
  b->clocks = clocks;
  b->positions = positions;
  b->clock_room = room;
}

/* Makes a clock for each stream up to `stream`; a new one knows only of itself. */
static bool reach_stream(binder *b, const ir_instr_data *d, int64_t stream) {
  if (stream < 0 || stream >= RT_MAX_STREAMS) {
    return bind_error(b, d, "there is no stream %lld; streams are numbered 0 to %d",
                      (long long)stream - 1, RT_MAX_STREAMS - 2);
  }
  if (stream >= b->clock_room) make_clocks(b, 2 * (uint32_t)stream);
  if (stream >= b->plan->n_streams) b->plan->n_streams = (uint32_t)stream + 1;
  return true;
}

static bool stream_number(binder *b, const ir_instr_data *d, uint32_t *number) {
  if (d->stream.name) {
    uint32_t known = map_get(&b->stream_names, d->stream.name, 0);
    if (!known) return bind_error(b, d, "the stream has no value here");
    *number = known - 1;
    return true;
  }
  int64_t index;
  if (!bind_eval(b, d, d->stream.index, &index)) return false;
  if (index < 0 || !reach_stream(b, d, index + 1)) {
    return index < 0 && bind_error(b, d, "a stream cannot have the number %lld", (long long)index);
  }
  /* mutant: plan_one_stream */
  *number = (uint32_t)index + 1;
  return true;
}

/* Is the current stream ordered after all that `other` has done? Positions count launches: what another
 * stream may have to wait for. */
static bool is_implied(const binder *b, uint32_t other) {
  for (uint32_t s = 0; s < b->plan->n_streams; s++) {
    /* mutant: plan_no_waits */
    if (b->clocks[other][s] > b->clocks[b->stream][s]) return false;
  }
  return true;
}

static bool wait_stream(binder *b, ir_instr at, const ir_instr_data *d) {
  uint32_t other = 0;
  if (!stream_number(b, d, &other)) return false;
  /* mutant: plan_all_waits */
  if (other == b->stream || (!b->keep_waits && is_implied(b, other))) return true;
  rt_instr i = {.kind = RT_WAIT, .stream = (uint16_t)b->stream, .other = (uint16_t)other};
  i.origin = at.id;
  bind_row_add(b, &b->instrs, &i);
  for (uint32_t s = 0; s < b->plan->n_streams; s++) {
    uint32_t seen = b->clocks[other][s];
    if (seen > b->clocks[b->stream][s]) b->clocks[b->stream][s] = seen;
  }
  return true;
}

/* ---- limits ---- */
static int64_t add_steps(int64_t a, int64_t b) { return a < INT64_MAX - b ? a + b : INT64_MAX; }

static int64_t times_steps(int64_t n, int64_t steps) {
  int64_t all;
  return __builtin_mul_overflow(n, steps, &all) ? INT64_MAX : all;
}

/* A lower bound: loops whose extent is not known yet may be empty, choices may go either way. */
static int64_t least_steps(const binder *b, const ir_block *block) {
  int64_t all = 0;
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(b->h, block->data[i]);
    all = add_steps(all, 1);
    int64_t n;
    bool known = d->kind == IR_FOR &&
                 ir_scalar_eval(&b->h->module->scalars, d->extent, b->symbols, b->n_symbols, &n);
    if (known && n > 0)
      all = add_steps(all, times_steps(n, add_steps(least_steps(b, &d->body), 1)));
    if (d->kind != IR_IF) continue;
    int64_t first = least_steps(b, &d->body), second = least_steps(b, &d->otherwise);
    all = add_steps(all, first < second ? first : second);
  }
  return all;
}

/* Refuses an outermost loop that takes too many steps in any case, before it begins. */
static bool loop_affordable(binder *b, const ir_instr_data *d, int64_t n) {
  int64_t least = n > 0 ? times_steps(n, add_steps(least_steps(b, &d->body), 1)) : 0;
  if (least <= b->max_steps - b->steps) return true;
  return bind_error(b, d, "the loop takes %s%lld steps; a program may take %lld in all",
                    least == INT64_MAX ? "more than " : "", (long long)least,
                    (long long)b->max_steps);
}

/* Counts an instruction or an iteration. */
static bool take_step(binder *b, const ir_instr_data *d) {
  const ir_instr_data *at = b->loop ? b->loop : d;
  if (++b->steps > b->max_steps)
    return bind_error(b, at, "the program takes more than %lld steps", (long long)b->max_steps);
  if (b->scratch.used_bytes + b->memory->used_bytes > (size_t)b->max_bytes)
    return bind_error(b, at, "the plan takes more than %lld MiB: %u instructions after %lld steps",
                      (long long)(b->max_bytes >> 20), b->instrs.len, (long long)b->steps);
  return true;
}

/* ---- control ---- */

static bool run_block(binder *b, const ir_block *block);

static bool run_iterations(binder *b, ir_instr at, const ir_instr_data *d, int64_t n) {
  uint32_t symbol = (uint32_t)ir_scalar_node_of(&b->h->module->scalars, d->variable)->value;
  bind_try t;
  bind_try_begin(b, at.id, symbol, n, &t);
  /* mutant: plan_last_iteration_missing */
  for (int64_t i = 0; i < n; i++) {
    b->symbols[symbol] = i;
    bind_try_before(b, &t, i);
    if (!take_step(b, d) || !run_block(b, &d->body)) return false;
    i += bind_try_after(b, &t, i + 1);
  }
  bind_try_end(b, &t);
  b->symbols[symbol] = IR_UNBOUND;
  return true;
}

static bool run_loop(binder *b, ir_instr at, const ir_instr_data *d) {
  int64_t n;
  if (!bind_eval(b, d, d->extent, &n)) return false;
  if (b->loop) return run_iterations(b, at, d, n);
  if (!loop_affordable(b, d, n)) return false;
  b->loop = d;
  bool ok = run_iterations(b, at, d, n);
  b->loop = NULL;
  return ok;
}

static bool run_choice(binder *b, const ir_instr_data *d) {
  int64_t x, y;
  bind_watch *watch = b->watch;
  b->watch = NULL;
  if (!bind_eval(b, d, d->a, &x) || !bind_eval(b, d, d->b, &y)) return false;
  b->watch = watch;
  if (watch) bind_watch_relation(b, d);
  bool holds = false;
  switch (d->relation) {
  case IR_EQ: holds = x == y; break;
  case IR_NE: holds = x != y; break;
  case IR_LT: holds = x < y; break;
  case IR_LE: holds = x <= y; break;
  }
  /* mutant: plan_if_always */
  return run_block(b, holds ? &d->body : &d->otherwise);
}

static bool run_instr(binder *b, ir_instr at) {
  const ir_instr_data *d = ir_instr_at(b->h, at);
  if (!take_step(b, d)) return false;
  switch (d->kind) {
  case IR_ALLOCATE: return bind_allocate(b, d);
  case IR_DEALLOCATE: return bind_deallocate(b, d);
  /* mutant: plan_main_is_current */
  case IR_CURRENT_STREAM: map_put(&b->stream_names, d->stream.name, b->stream + 1); return true;
  case IR_SET_STREAM: return stream_number(b, d, &b->stream);
  case IR_WAIT_STREAM: return wait_stream(b, at, d);
  case IR_FOR: return run_loop(b, at, d);
  case IR_IF: return run_choice(b, d);
  case IR_SELECT: return bind_select(b, d);
  case IR_SHARD: return bind_shard(b, d);
  case IR_VIEW: return bind_view(b, d);
  case IR_COMPUTE: return bind_compute(b, at, d);
  case IR_LAUNCH: return bind_launch(b, at, d);
  case IR_COMMUNICATE: return bind_communicate(b, at, d);
  case IR_GROUP_START: return bind_group_start(b, d);
  case IR_GROUP_END: return bind_group_end(b, d);
  case IR_WAIT: return bind_wait(b, at, d);
  }
  return false;
}

static bool run_block(binder *b, const ir_block *block) {
  for (uint32_t i = 0; i < block->len; i++) {
    if (!run_instr(b, block->data[i])) return false;
  }
  return true;
}

/* ---- the whole ---- */

/* The place of the running device in each mesh, and which tensors it does not have. */
static void place(binder *b, int64_t rank) {
  const ir_func *h = b->h;
  b->rank = rank;
  for (uint32_t i = 0; i < h->host->coordinates.len; i++) {
    const ir_coordinate *c = &h->host->coordinates.data[i];
    const ir_mesh_data *m = ir_mesh_at(h, c->mesh);
    int64_t at = ir_mesh_find(m, rank);
    uint32_t symbol = (uint32_t)ir_scalar_node_of(&h->module->scalars, c->symbol)->value;
    b->symbols[symbol] = at < 0 ? -1 : ir_mesh_coordinate(m, at, c->axis);
  }
  for (uint32_t i = 1; i < h->tensors.len; i++) {
    ir_mesh mesh = h->tensors.data[i].mesh;
    b->absent[i] = mesh.id && ir_mesh_find(ir_mesh_at(h, mesh), rank) < 0;
  }
}

static void init(binder *b, const ir_env *env, const bind_options *options) {
  const ir_func *h = env->func;
  uint32_t n = h->module->scalars.symbols.len;
  b->symbols = ARENA_ARRAY(&b->scratch, n, int64_t);
  b->n_symbols = n;
  for (uint32_t i = 0; i < n; i++) b->symbols[i] = i < env->len ? env->symbols[i] : IR_UNBOUND;
  uint32_t streams = (uint32_t)ir_scalar_node_of(&h->module->scalars, h->host->streams)->value;
  b->symbols[streams] = options->streams;
  b->views = ARENA_ARRAY(&b->scratch, h->tensors.len, rt_view);
  b->steps_at = ARENA_ARRAY(&b->scratch, h->tensors.len, uint32_t);
  b->bound = ARENA_ARRAY(&b->scratch, h->tensors.len, bool);
  b->absent = ARENA_ARRAY(&b->scratch, h->tensors.len, bool);
  map_init(&b->comm_names, &b->scratch);
  place(b, options->rank);
  b->attrs = ARENA_ARRAY(&b->scratch, h->ops.len, const rt_attr *);
  b->bodies = ARENA_ARRAY(&b->scratch, h->ops.len, const rt_body *);
  make_clocks(b, 8);
  b->turns = ARENA_ARRAY(&b->scratch, h->tensors.len, bind_turn);
  bind_alike_begin(b, options->world);
  b->instrs.size_bytes = sizeof(rt_instr);
  b->tasks.size_bytes = sizeof(rt_task);
  b->all_views.size_bytes = sizeof(rt_view);
  b->buffers.size_bytes = sizeof(bind_buffer);
  bind_pool_init(&b->pool, &b->scratch);
  map_init(&b->stream_names, &b->scratch);
  table_init(&b->view_index, &b->scratch);
  table_init(&b->list_index, &b->scratch);
}

static void finish(binder *b) {
  rt_plan *p = b->plan;
  p->n_instrs = b->instrs.len;
  p->instrs = bind_rows_flat(b, &b->instrs);
  p->n_tasks = b->tasks.len;
  p->tasks = bind_rows_flat(b, &b->tasks);
  p->n_views = b->all_views.len;
  p->views = bind_rows_flat(b, &b->all_views);
  p->n_buffers = b->buffers.len;
  p->buffers = ARENA_ARRAY(b->memory, p->n_buffers, rt_buffer);
  for (uint32_t i = 0; i < p->n_buffers; i++) p->buffers[i] = bind_buffer_at(b, i)->buffer;
  p->posts = arena_copy(b->memory, b->posts.data, b->posts.len * sizeof *p->posts);
  p->n_posts = b->posts.len;
  p->n_inputs = b->h->inputs.len;
  p->n_outputs = b->h->outputs.len;
  p->pool_bytes = b->pool.size_bytes;
  p->n_loops = b->loops.len;
  p->loops = arena_copy(b->memory, b->loops.data, b->loops.len * sizeof *p->loops);
  p->n_unrolled = b->unrolled.len;
  p->unrolled = arena_copy(b->memory, b->unrolled.data, b->unrolled.len * sizeof *p->unrolled);
  bind_place(b);
  bind_alike_end(b);
}

/* What lowering could not know: conditions on the extents that the host program relies on. */
static bool bind_conditions(binder *b) {
  bool ok = true;
  for (uint32_t i = 0; i < b->h->constraints.len; i++) {
    const ir_constraint *c = &b->h->constraints.data[i];
    ir_instr_data place = {.at = c->at};
    int64_t x, y;
    if (!bind_eval(b, &place, c->a, &x) || !bind_eval(b, &place, c->b, &y)) return false;
    bool holds = c->kind == IR_REQUIRE_EQ   ? x == y
                 : c->kind == IR_REQUIRE_LE ? x <= y
                                            : x >= 1 && y % x == 0;
    if (holds) continue;
    if (c->kind == IR_REQUIRE_DIVIDES) { /* what else is wrong follows from it */
      return bind_error(b, &place, "%s: %lld does not divide %lld", c->what, (long long)x,
                        (long long)y);
    }
    ok = bind_error(b, &place, "%s: there are %lld", c->what, (long long)y);
  }
  return ok;
}

static void look_for_memory(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  binder *b = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  (void)depth;
  if (d->kind == IR_ALLOCATE && !b->absent[d->tensor.id]) b->takes_part = true;
}

/* A device that has none of the program's tensors has nothing to do. */
static bool takes_part(binder *b) {
  for (uint32_t i = 0; i < b->h->inputs.len; i++) {
    if (!b->absent[b->h->inputs.data[i].id]) return true;
  }
  ir_host_walk((ir_func *)b->h, look_for_memory, b);
  return b->takes_part;
}

typedef struct bind_call {
  binder b;
  const ir_env *env;
  const bind_options *options;
} bind_call;

static status bind_guarded(void *context) {
  bind_call *c = context;
  init(&c->b, c->env, c->options);
  c->b.plan->seed = arena_copy(c->b.memory, &c->options->seed, sizeof c->options->seed);
  bind_inputs(&c->b);
  if (!bind_conditions(&c->b)) return fail(STATUS_BAD_PROGRAM, "the extents do not fit");
  /* mutant: dev_everybody_takes_part */
  if (takes_part(&c->b) && !run_block(&c->b, &c->b.h->host->body)) {
    return fail(STATUS_BAD_PROGRAM, "the program does not fit these extents");
  }
  if (!bind_comms_end(&c->b)) return fail(STATUS_BAD_PROGRAM, "a communication is left open");
  finish(&c->b);
  return STATUS_OK;
}

status bind_plan(const ir_env *env, const bind_options *options, const allocator *memory,
                 rt_plan **result) {
  rt_plan *plan = memory_alloc(memory, sizeof *plan);
  if (!plan) return STATUS_OUT_OF_MEMORY;
  *plan = (rt_plan){.host = env->func, .n_streams = 1};
  arena_init(&plan->memory, memory);
  bind_call c = {.env = env, .options = options};
  c.b = (binder){.h = env->func, .plan = plan, .memory = &plan->memory};
  c.b.errors = &env->func->module->errors;
  c.b.keep_waits = options->keep_waits;
  c.b.lends = options->lends;
  c.b.folds_in_place = options->folds_in_place;
  c.b.donated = options->donated;
  c.b.min_loops = options->loops;
  c.b.max_steps = options->max_steps ? options->max_steps : BIND_MAX_STEPS;
  c.b.max_bytes = options->max_bytes ? options->max_bytes : BIND_MAX_PLAN_BYTES;
  arena_init(&c.b.scratch, memory);
  arena_init(&c.b.work, memory);
  status st = memory_guard(bind_guarded, &c);
  arena_destroy(&c.b.scratch);
  arena_destroy(&c.b.work);
  if (st != STATUS_OK) {
    rt_plan_destroy(plan);
    return st;
  }
  *result = plan;
  return STATUS_OK;
}

uint32_t rt_plan_rank(const rt_plan *plan, uint32_t stream) {
  uint32_t first = 0, n = plan->n_ranks;
  while (n > 1) { /* it is one of the n ranks from `first` on */
    uint32_t half = n / 2;
    bool later = stream >= plan->first_stream[first + half];
    first += later ? half : 0;
    n = later ? n - half : half;
  }
  return first;
}

uint32_t rt_plan_first_stream(const rt_plan *plan, uint32_t rank) {
  return plan->first_stream ? plan->first_stream[rank] : 0;
}

void rt_plan_destroy(rt_plan *plan) {
  if (!plan) return;
  rt_plan_destroy(plan->kept);
  const allocator *memory = plan->memory.memory;
  arena_destroy(&plan->memory);
  memory_free(memory, plan);
}
