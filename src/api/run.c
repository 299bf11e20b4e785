/* Running a program on caller-owned memory. */
#include "api/run.h"

#include <string.h>

#include "api/overlap.h"

enum { DL_CUDA = 2 };

/* ---- where they lie ---- */
typedef struct operand_list {
  api_operand *items;
  size_t n;
} operand_list;

static bool is_donated(const api_run *c, uint32_t input) {
  for (uint32_t i = 0; i < c->p->func->outputs.len; i++)
    if (api_run_donated(c, i) == (int64_t)input) return true;
  return false;
}

/* Lists the whole tensors of one side, and the shards of those given as shards. */
static void list_side(api_run *c, const session_arrays *a, uint32_t n, operand_list *list) {
  bool is_output = a == &c->out;
  for (uint32_t i = 0; i < n; i++) {
    const char *what = is_output ? api_run_output_label(c, i) : api_run_input_label(c, i);
    bool sharded = session_is_sharded(a, i);
    if (is_output && api_run_donated(c, i) >= 0) continue; /* its memory is the input's */
    bool gift = !is_output && is_donated(c, i);
    if (gift) what = arena_printf(c->memory, "donated %s", what);
    bool written = is_output || gift;
    if (!sharded) list->items[list->n++] = (api_operand){&a->whole[i], what, written};
    for (uint32_t r = 0; sharded && r < c->p->session.ranks.n; r++)
      if (a->shards[r * n + i].dtype)
        list->items[list->n++] = (api_operand){&a->shards[r * n + i], what, written};
  }
}

static operand_list list_operands(api_run *c) {
  const ir_func *f = c->p->func;
  size_t ranks = c->p->session.ranks.n ? c->p->session.ranks.n : 1;
  size_t most = ranks * ((size_t)f->inputs.len + f->outputs.len);
  operand_list list = {ARENA_ARRAY(c->memory, most, api_operand), 0};
  list_side(c, &c->in, f->inputs.len, &list);
  list_side(c, &c->out, f->outputs.len, &list);
  return list;
}

static status wait_for_streams(const api_run *c) {
  for (uint32_t i = 0; i < c->n_streams; i++) TRY(session_memory()->wait(&c->streams[i]));
  return STATUS_OK;
}

/* Is it an input, donated or not? */
static bool is_input(const api_run *c, const ir_array *a) {
  uint32_t n = c->p->func->inputs.len;
  bool shard = c->in.shards && a >= c->in.shards && a < c->in.shards + c->p->session.ranks.n * n;
  return shard || (a >= c->inputs && a < c->inputs + n);
}

/* Replaces arrays in a device's memory that the run cannot use by copies that it can. The host waits for the streams
 * before it copies, and before it evaluates the definition. */
static status move_away(api_run *c, const operand_list *list, bool on_device) {
  bool waited = false;
  for (size_t i = 0; i < list->n; i++) {
    const api_operand *o = &list->items[i];
    ir_array *a = (ir_array *)o->array;
    uint32_t space = 0;
    if (!a->space) continue;
    if (on_device && session_takes(&c->p->session, &c->env, &c->in, &c->out, a, &space)) continue;
    if (!waited) TRY(wait_for_streams(c));
    waited = true;
    TRY(session_away_move(&c->away, a, space, o->is_output && !is_input(c, a)));
  }
  return on_device || waited ? STATUS_OK : wait_for_streams(c);
}

static status prove(api_run *c) {
  TRY(session_prove(&c->p->session, &c->env, &c->found));
  return c->found.n_found > 0 ? api_unsafe(&c->found, c->memory) : STATUS_OK;
}

/* The definition's shapes hold for its host program too: both speak of the same extents. */
static status bind_body(void *context) {
  api_run *c = context;
  ir_env_init(&c->env, c->p->func, c->memory);
  status st = api_run_take_inputs(c);
  if (st == STATUS_OK) st = api_run_take_outputs(c);
  for (uint32_t i = 0; st == STATUS_OK && i < c->p->func->outputs.len; i++)
    st = api_run_check_donated(c, i);
  bool on_device = api_run_on_device(c);
  operand_list operands = {0};
  if (st == STATUS_OK) {
    operands = list_operands(c);
    st = api_check_overlap(operands.items, operands.n, c->memory);
  }
  /* With donated inputs another plan runs, whose proof takes time. */
  bool proves = on_device && !(c->args.donated && c->p->session.proof == SESSION_PROOF_CHEAP);
  if (st == STATUS_OK && proves) st = prove(c);
  c->away.memory = &c->p->memory;
  if (st == STATUS_OK) st = api_run_place_donated(c, on_device);
  if (st == STATUS_OK) st = move_away(c, &operands, on_device);
  if (st == STATUS_OK && on_device) {
    st = session_run(&c->p->session, &c->env,
                     &(session_run_args){.inputs = &c->in,
                                         .outputs = &c->out,
                                         .donated = c->gifts,
                                         .seed = c->args.seed,
                                         .profile = api_profile(c->args.profile),
                                         .streams = c->streams,
                                         .n_streams = c->n_streams,
                                         .copies = c->away.n > 0,
                                         .control = c->control});
  }
  return api_take_diags(&c->p->ir, st, c->memory);
}

/* A host program's extents are not those of its fusion; the inputs' shapes fix both. */
static status bind_definition(api_run *c) {
  const ir_func *f = c->p->definition;
  if (!f) return fail(STATUS_BAD_USAGE, "the host program has no fusion to evaluate");
  if (f == c->p->func) return STATUS_OK;
  TRY(api_run_check_count("inputs", c->args.n_inputs, f->inputs.len));
  TRY(api_run_check_count("outputs", c->args.n_outputs, f->outputs.len));
  ir_env_init(&c->env, (ir_func *)f, c->memory);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    const ir_array *a = &c->inputs[i];
    const char *what = api_run_input_label(c, i);
    TRY(api_run_check_dtype(a, ir_tensor_at(f, f->inputs.data[i])->dtype, what));
    if (!ir_bind_shape(&c->env, f->inputs.data[i], a->extents, a->rank, what)) {
      return STATUS_BAD_PROGRAM;
    }
  }
  if (!ir_bind_check(&c->env)) return STATUS_BAD_PROGRAM;
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    const char *what = api_run_output_label(c, i);
    TRY(api_run_check_dtype(&c->outputs[i], ir_tensor_at(f, f->outputs.data[i])->dtype, what));
    TRY(api_run_check_output(c, f->outputs.data[i], &c->outputs[i], what));
  }
  return STATUS_OK;
}

static status definition_body(void *context) {
  api_run *c = context;
  return api_take_diags(&c->p->ir, bind_definition(c), c->memory);
}

static status eval_body(void *context) {
  api_run *c = context;
  ref_options options = {.seed = c->args.seed, .memory = &c->p->memory};
  if (c->judgement) return session_judge(&c->env, c->inputs, c->outputs, &options, c->judgement);
  return ref_eval(&c->env, c->inputs, c->outputs, &options);
}

/* The definition is evaluated in memory of the call, outside the lock; locks are taken outside guards:
 * running out of memory must not leave one locked. */
static status evaluate(api_run *c) {
  arena memory;
  arena_init(&memory, &c->p->memory);
  c->memory = &memory;
  (void)pthread_mutex_lock(&c->p->lock);
  status st = memory_guard(bind_body, c);
  if (st == STATUS_OK) st = memory_guard(definition_body, c);
  (void)pthread_mutex_unlock(&c->p->lock);
  if (st == STATUS_OK) st = memory_guard(eval_body, c);
  st = session_away_end(&c->away, st);
  arena_destroy(&memory);
  return st;
}

/* A device runs one plan at a time, so its runs can share their scratch memory. */
static status execute(api_run *c) {
  (void)pthread_mutex_lock(&c->p->lock);
  c->memory = &c->p->scratch;
  status st = memory_guard(bind_body, c);
  st = session_away_end(&c->away, st);
  check_world_report_destroy(&c->found);
  arena_reset(&c->p->scratch);
  (void)pthread_mutex_unlock(&c->p->lock);
  return st;
}

rt_stream api_stream(const weir_stream *s) {
  return (rt_stream){1 + (uint32_t)s->device.device_id, s->handle};
}

static weir_status check_streams(const weir_run_args *args, const char *function) {
  size_t n = args->n_streams;
  if (n > SESSION_MAX_STREAMS || (n && !args->streams))
    return api_refuse("%s: %zu streams are given, or their list is NULL; at most %d can be",
                      function, n, SESSION_MAX_STREAMS);
  for (size_t i = 0; i < n; i++) {
    weir_dl_device d = args->streams[i].device;
    if (d.device_type != DL_CUDA || d.device_id < 0)
      return api_refuse("%s: stream %zu is of device %d of type %d; only GPUs (type 2) have "
                        "streams",
                        function, i, d.device_id, d.device_type);
  }
  if (n && !session_memory())
    return api_refuse("%s: streams are given, but this weir was built without CUDA", function);
  return WEIR_OK;
}

weir_status api_run_check(const weir_program *p, const weir_run_args *args, const char *function,
                          weir_run_args *result) {
  if (!p || !args) return api_refuse("%s: an argument is NULL", function);
  if (args->struct_size < offsetof(weir_run_args, seed))
    return api_refuse("%s: struct_size is %zu; set it to sizeof(weir_run_args)", function,
                      args->struct_size);
  if (api_check_process(p) != WEIR_OK) return WEIR_BAD_USAGE;
  *result = (weir_run_args){0};
  api_copy_sized(result, args, args->struct_size, sizeof *result);
  if ((result->n_inputs && !result->inputs) || (result->n_outputs && !result->outputs))
    return api_refuse("%s: a list of tensors is NULL", function);
  api_begin();
  status st = api_run_check_count("inputs", result->n_inputs, p->func->inputs.len);
  if (st == STATUS_OK) st = api_run_check_count("outputs", result->n_outputs, p->func->outputs.len);
  return st == STATUS_OK ? check_streams(result, function) : api_end(st);
}

static status run_now(api_run *c) {
  const weir_run_args *args = &c->args;
  for (size_t i = 0; i < args->n_streams; i++)
    c->streams[c->n_streams++] = api_stream(&args->streams[i]);
  bool on_device = api_run_on_device(c);
  weir_program_busy(c->p, true);
  status st = on_device ? execute(c) : evaluate(c);
  weir_program_busy(c->p, false);
  return st;
}

status api_run_now(weir_program *p, const weir_run_args *args, rt_control *control) {
  return run_now(&(api_run){.p = p, .args = *args, .control = control});
}

weir_status weir_run(const weir_program *p, const weir_run_args *args) {
  weir_run_args checked;
  weir_status refused = api_run_check(p, args, "weir_run", &checked);
  if (refused != WEIR_OK) return refused;
  api_begin();
  session_queue_settle(&((weir_program *)p)->queue);
  return api_end(api_run_now((weir_program *)p, &checked, NULL));
}

static weir_verdict verdict_of(const data_verdict *v) {
  weir_verdict w = {.max_abs = v->max_abs,
                    .max_rel = v->max_rel,
                    .value = v->value,
                    .reference = v->reference,
                    .tolerance = v->tolerance,
                    .n_elements = v->n_elements,
                    .n_wrong = v->n_wrong,
                    .ok = v->n_wrong == 0};
  memcpy(w.index, v->index, sizeof w.index);
  return w;
}

static status judge(api_run *c, session_judgement *j, weir_verdict *verdicts) {
  uint32_t n = c->p->func->outputs.len;
  j->verdicts = memory_alloc(&c->p->memory, (n + (size_t)1) * sizeof *j->verdicts);
  if (!j->verdicts) return STATUS_OUT_OF_MEMORY;
  memset(j->verdicts, 0, n * sizeof *j->verdicts);
  session_queue_settle(&c->p->queue);
  status st = run_now(c);
  for (uint32_t i = 0; st == STATUS_OK && i < n; i++) verdicts[i] = verdict_of(&j->verdicts[i]);
  memory_free(&c->p->memory, j->verdicts);
  return st;
}

weir_status weir_check(const weir_program *p, const weir_run_args *args, double rtol,
                       weir_verdict *verdicts) {
  session_judgement j = {.rtol = rtol};
  api_run c = {.p = (weir_program *)p, .judgement = &j};
  if (!verdicts) return api_refuse("weir_check: an argument is NULL");
  if (!(rtol >= 0)) return api_refuse("weir_check: rtol is %g; it must not be negative", rtol);
  weir_status refused = api_run_check(p, args, "weir_check", &c.args);
  if (refused != WEIR_OK) return refused;
  if (c.args.check_rows < 0) return api_refuse("weir_check: check_rows must not be negative");
  j.rows = c.args.check_rows;
  c.args.as_definition = true;
  api_begin();
  return api_end(judge(&c, &j, verdicts));
}
