/* Running a program on caller-owned memory. */
#include <inttypes.h>
#include <string.h>

#include "api/judge.h"
#include "api/overlap.h"
#include "api/program.h"
#include "session/follow.h"
#include "session/memory.h"

enum { DL_CUDA = 2 };

typedef struct run_call {
  weir_program *p;
  weir_run_args args;
  arena *memory; /* of this call */
  ir_env env;
  ir_array *inputs, *outputs; /* whole; of those given as shards the shape */
  session_arrays in, out;
  session_away away; /* ended by the entry point, likewise */
  rt_stream streams[SESSION_MAX_STREAMS];
  uint32_t n_streams;
  rt_control *control; /* NULL: nobody stops it */
  int64_t *
      gifts; /* by output: the donated input that the plan overwrites if it can, or -1; NULL: none */
  const api_judgement *judgement; /* outputs are compared, not written; NULL: the other way round */
  check_world_report
      found; /* freed by the entry point: scratch memory may run out while it is held */
} run_call;

static const char *input_label(const run_call *c, uint32_t i) { return c->p->labels[i]; }
static const char *output_label(const run_call *c, uint32_t i) {
  return c->p->labels[c->p->func->inputs.len + i];
}

static status check_count(const char *what, size_t given, uint32_t wanted) {
  if (given == wanted) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "the fusion has %u %s, but %zu are given", wanted, what, given);
}

static status check_dtype(const ir_array *a, ir_dtype wanted, const char *what) {
  if (a->dtype == wanted) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "%s holds %s, but the fusion has %s", what, ir_dtype_text(a->dtype),
              ir_dtype_text(wanted));
}

static bool is_on_device(const run_call *c) {
  return c->p->session.device && !c->args.as_definition;
}

/* A device that computes nothing needs no data. */
static status view(const run_call *c, const weir_dl_tensor *t, const char *what, ir_array *result) {
  bool shape_only = is_on_device(c) && !session_computes(&c->p->session);
  return api_view(t, what, shape_only, result);
}

/* ---- shards ---- */
static bool has_shards(const weir_dl_tensor *const *const *lists, uint32_t i) {
  return lists && lists[i];
}

/* The devices of this process hold parts of tensor i; `n` tensors are on this side. */
static status take_shards(run_call *c, const weir_dl_tensor *const *list, ir_tensor t, uint32_t i,
                          uint32_t n, const char *what, session_arrays *a) {
  const session_ranks *ranks = &c->p->session.ranks;
  if (!is_on_device(c))
    return fail(STATUS_BAD_USAGE,
                "%s is given as shards, but the reference evaluator takes whole "
                "tensors",
                what);
  if (!a->sharded) {
    a->sharded = ARENA_ARRAY(c->memory, n, bool);
    a->shards = ARENA_ARRAY(c->memory, ranks->n * n, ir_array);
  }
  ((bool *)a->sharded)[i] = true;
  for (uint32_t r = 0; r < ranks->n; r++) {
    ir_array *shard = (ir_array *)&a->shards[r * n + i];
    if (!list[r]) continue;
    TRY(view(c, list[r], what, shard));
    TRY(check_dtype(shard, ir_tensor_at(c->p->func, t)->dtype, what));
  }
  return STATUS_OK;
}

/* The only device of a program holds all. */
static status take_only_shard(run_call *c, const weir_dl_tensor *const *list, const char *what,
                              ir_array *whole, session_arrays *a, uint32_t i) {
  if (session_ranks_are_many(&c->p->session.ranks)) return STATUS_OK;
  ((bool *)a->sharded)[i] = false;
  return view(c, list[0], what, whole);
}

static status take_sharded_input(run_call *c, ir_tensor t, uint32_t i, const char *what) {
  const ir_func *f = c->p->func;
  ir_array *whole = &c->inputs[i];
  if (!c->args.shapes)
    return fail(STATUS_BAD_USAGE, "%s is given as shards: shapes are needed too", what);
  TRY(take_shards(c, c->args.input_shards[i], t, i, f->inputs.len, what, &c->in));
  *whole = (ir_array){.dtype = ir_tensor_at(f, t)->dtype};
  TRY(api_shapes_input(c->args.shapes, i, whole->extents, &whole->rank));
  ir_array_dense(whole);
  return take_only_shard(c, c->args.input_shards[i], what, whole, &c->in, i);
}

static status take_inputs(run_call *c) {
  const ir_func *f = c->p->func;
  c->inputs = ARENA_ARRAY(c->memory, f->inputs.len, ir_array);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_tensor t = f->inputs.data[i];
    const char *what = input_label(c, i);
    if (has_shards(c->args.input_shards, i)) TRY(take_sharded_input(c, t, i, what));
    else TRY(view(c, c->args.inputs[i], what, &c->inputs[i]));
    TRY(check_dtype(&c->inputs[i], ir_tensor_at(f, t)->dtype, what));
    if (!ir_bind_shape(&c->env, t, c->inputs[i].extents, c->inputs[i].rank, what))
      return STATUS_BAD_PROGRAM;
  }
  c->in.whole = c->inputs;
  /* Only inputs declare extents: with all of them bound, every extent has a value. */
  return ir_bind_check(&c->env) ? STATUS_OK : STATUS_BAD_PROGRAM;
}

/* Two positions of an output must not share memory. */
static status check_own(const ir_array *a, const char *what) {
  if (!ir_array_shares(a)) return STATUS_OK;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->strides[d] == 0 && a->extents[d] > 1)
      return fail(STATUS_BAD_USAGE, "%s: elements along dimension %u share memory", what, d);
  return fail(STATUS_BAD_USAGE, "%s: by its strides, elements share memory", what);
}

static status check_output(run_call *c, ir_tensor t, const ir_array *a, const char *what) {
  int64_t extents[IR_MAX_RANK];
  uint32_t rank;
  check(ir_env_shape(&c->env, t, extents, &rank));
  if (a->rank != rank)
    return fail(STATUS_BAD_USAGE, "%s has rank %u, but needs %u", what, a->rank, rank);
  for (uint32_t i = 0; i < rank; i++) {
    if (a->extents[i] != extents[i])
      return fail(STATUS_BAD_USAGE, "%s: extent %u is %" PRId64 ", but needs to be %" PRId64, what,
                  i, a->extents[i], extents[i]);
  }
  return check_own(a, what);
}

/* Shapes of shards are looked at where the placement is known; here only that no two elements share
 * memory. */
static status take_sharded_output(run_call *c, ir_tensor t, uint32_t i, const char *what) {
  const ir_func *f = c->p->func;
  ir_array *whole = &c->outputs[i];
  TRY(take_shards(c, c->args.output_shards[i], t, i, f->outputs.len, what, &c->out));
  for (uint32_t r = 0; r < c->p->session.ranks.n; r++) {
    const ir_array *a = &c->out.shards[r * f->outputs.len + i];
    if (a->dtype) TRY(check_own(a, what));
  }
  *whole = (ir_array){.dtype = ir_tensor_at(f, t)->dtype};
  check(ir_env_shape(&c->env, t, whole->extents, &whole->rank));
  ir_array_dense(whole);
  return take_only_shard(c, c->args.output_shards[i], what, whole, &c->out, i);
}

static status take_outputs(run_call *c) {
  const ir_func *f = c->p->func;
  c->outputs = ARENA_ARRAY(c->memory, f->outputs.len, ir_array);
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_tensor t = f->outputs.data[i];
    const char *what = output_label(c, i);
    if (has_shards(c->args.output_shards, i)) TRY(take_sharded_output(c, t, i, what));
    else TRY(view(c, c->args.outputs[i], what, &c->outputs[i]));
    TRY(check_dtype(&c->outputs[i], ir_tensor_at(f, t)->dtype, what));
    TRY(check_output(c, t, &c->outputs[i], what));
  }
  c->out.whole = c->outputs;
  return STATUS_OK;
}

/* ---- donated inputs ---- */
/* The number of the input whose memory output i has; -1: none. */
static int64_t donated(const run_call *c, uint32_t i) {
  return c->args.donated && c->args.donated[i] >= 0 ? c->args.donated[i] : -1;
}

static bool is_donated(const run_call *c, uint32_t input) {
  for (uint32_t i = 0; i < c->p->func->outputs.len; i++)
    if (donated(c, i) == (int64_t)input) return true;
  return false;
}

/* Arrays of an output: itself, or its shards, by device of this process. */
static uint32_t arrays_of(const run_call *c, uint32_t output) {
  return session_is_sharded(&c->out, output) ? c->p->session.ranks.n : 1;
}
static ir_array *array_at(const session_arrays *a, uint32_t n, uint32_t i, uint32_t device) {
  return (ir_array *)(session_is_sharded(a, i) ? &a->shards[device * n + i] : &a->whole[i]);
}
static ir_array *output_array(const run_call *c, uint32_t i, uint32_t device) {
  return array_at(&c->out, c->p->func->outputs.len, i, device);
}
static ir_array *input_array(const run_call *c, uint32_t i, uint32_t device) {
  return array_at(&c->in, c->p->func->inputs.len, i, device);
}

static bool same_array(const ir_array *a, const ir_array *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->rank != b->rank || a->space != b->space)
    return false;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->extents[d] != b->extents[d] || (a->extents[d] > 1 && a->strides[d] != b->strides[d]))
      return false;
  return true;
}

static status check_donated(run_call *c, uint32_t i) {
  const ir_func *f = c->p->func;
  int64_t from = donated(c, i);
  const char *what = output_label(c, i);
  if (from < 0) return STATUS_OK;
  if (from >= (int64_t)f->inputs.len)
    return fail(STATUS_BAD_USAGE, "%s is given input %" PRId64 ": there are %u", what, from,
                f->inputs.len);
  const char *input = input_label(c, (uint32_t)from);
  for (uint32_t k = 0; k < i; k++)
    if (donated(c, k) == from)
      return fail(STATUS_BAD_USAGE, "%s is given to %s already", input, output_label(c, k));
  if (session_is_sharded(&c->in, (uint32_t)from) != session_is_sharded(&c->out, i))
    return fail(STATUS_BAD_USAGE,
                "%s is given the memory of %s: both must be whole tensors, or both shards", what,
                input);
  for (uint32_t r = 0; r < arrays_of(c, i); r++)
    if (!same_array(output_array(c, i, r), input_array(c, (uint32_t)from, r)))
      return fail(STATUS_BAD_USAGE,
                  "%s is given the memory of %s, so both must be one tensor: the same address, "
                  "dtype, extents and strides",
                  what, input);
  return STATUS_OK;
}

/* Could the device overwrite the memory of input `from` with output i, where it is? */
static bool may_overwrite(run_call *c, uint32_t from, uint32_t i) {
  const session *x = &c->p->session;
  if (!session_is_sharded(&c->out, i) &&
      !session_donate_whole(x, &c->env, from, i, output_array(c, i, 0)))
    return false;
  for (uint32_t r = 0; r < arrays_of(c, i); r++) {
    const ir_array *a = output_array(c, i, r);
    uint32_t space;
    if (a->space && !session_takes(x, &c->env, &c->in, &c->out, a, &space)) return false;
    if (session_is_sharded(&c->out, i) && a->dtype && !ir_array_is_dense(a)) return false;
  }
  return true;
}

/* An output that is not computed where its input is gets memory of its own until the end. */
static status keep_apart(run_call *c, uint32_t i, bool on_device) {
  for (uint32_t r = 0; r < arrays_of(c, i); r++) {
    ir_array *a = output_array(c, i, r);
    uint32_t space = 0;
    if (!a->dtype) continue;
    if (a->space && on_device && session_takes(&c->p->session, &c->env, &c->in, &c->out, a, &space))
      space = a->space;
    TRY(session_away_move(&c->away, a, space, true));
  }
  return STATUS_OK;
}

static bool any_donated(const run_call *c) {
  for (uint32_t i = 0; i < c->p->func->outputs.len; i++)
    if (donated(c, i) >= 0) return true;
  return false;
}

static status place_donated(run_call *c, bool on_device) {
  session *x = &c->p->session;
  uint32_t n = c->p->func->outputs.len;
  if (!any_donated(c)) return STATUS_OK;
  bool *in_place = ARENA_ARRAY(c->memory, n, bool);
  c->gifts = ARENA_ARRAY(c->memory, n, int64_t);
  bool any = false;
  for (uint32_t i = 0; i < n; i++) {
    int64_t from = donated(c, i);
    c->gifts[i] = from >= 0 && on_device && may_overwrite(c, (uint32_t)from, i) ? from : -1;
    any = any || c->gifts[i] >= 0;
  }
  if (any) TRY(session_donate(x, &c->env, c->gifts, in_place));
  else c->gifts = NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (donated(c, i) < 0) continue;
    if (!in_place[i]) TRY(keep_apart(c, i, on_device));
    if (in_place[i]) x->counts.in_place++;
    else if (on_device) x->counts.copied++;
  }
  return STATUS_OK;
}

/* ---- where they lie ---- */
typedef struct operand_list {
  api_operand *items;
  size_t n;
} operand_list;

/* Whole tensors, and the shards of others. */
static void list_side(run_call *c, const session_arrays *a, uint32_t n, operand_list *list) {
  bool is_output = a == &c->out;
  for (uint32_t i = 0; i < n; i++) {
    const char *what = is_output ? output_label(c, i) : input_label(c, i);
    bool sharded = session_is_sharded(a, i);
    if (is_output && donated(c, i) >= 0) continue; /* its memory is the input's */
    bool gift = !is_output && is_donated(c, i);
    if (gift) what = arena_printf(c->memory, "donated %s", what);
    bool written = is_output || gift;
    if (!sharded) list->items[list->n++] = (api_operand){&a->whole[i], what, written};
    for (uint32_t r = 0; sharded && r < c->p->session.ranks.n; r++)
      if (a->shards[r * n + i].dtype)
        list->items[list->n++] = (api_operand){&a->shards[r * n + i], what, written};
  }
}

static operand_list list_operands(run_call *c) {
  const ir_func *f = c->p->func;
  size_t ranks = c->p->session.ranks.n ? c->p->session.ranks.n : 1;
  size_t most = ranks * ((size_t)f->inputs.len + f->outputs.len);
  operand_list list = {ARENA_ARRAY(c->memory, most, api_operand), 0};
  list_side(c, &c->in, f->inputs.len, &list);
  list_side(c, &c->out, f->outputs.len, &list);
  return list;
}

static status wait_for_streams(const run_call *c) {
  for (uint32_t i = 0; i < c->n_streams; i++) TRY(session_memory()->wait(&c->streams[i]));
  return STATUS_OK;
}

/* A donated one too. */
static bool is_input(const run_call *c, const ir_array *a) {
  uint32_t n = c->p->func->inputs.len;
  bool shard = c->in.shards && a >= c->in.shards && a < c->in.shards + c->p->session.ranks.n * n;
  return shard || (a >= c->inputs && a < c->inputs + n);
}

/* Arrays of a device's memory that the run cannot use as they are get a copy that it can. */
static status move_away(run_call *c, const operand_list *list, bool on_device) {
  bool waited =
      false; /* what the host copies, and the definition, come after the streams by waiting */
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

static status prove(run_call *c) {
  TRY(session_prove(&c->p->session, &c->env, &c->found));
  return c->found.n_found > 0 ? api_unsafe(&c->found, c->memory) : STATUS_OK;
}

/* The definition's shapes hold for its host program too: both speak of the same extents. */
static status bind_body(void *context) {
  run_call *c = context;
  ir_env_init(&c->env, c->p->func, c->memory);
  status st = take_inputs(c);
  if (st == STATUS_OK) st = take_outputs(c);
  for (uint32_t i = 0; st == STATUS_OK && i < c->p->func->outputs.len; i++)
    st = check_donated(c, i);
  bool on_device = is_on_device(c);
  operand_list operands = {0};
  if (st == STATUS_OK) {
    operands = list_operands(c);
    st = api_check_overlap(operands.items, operands.n, c->memory);
  }
  /* With donated memory another plan runs, whose proof would not be for free. */
  bool proves = on_device && !(c->args.donated && c->p->session.proof == SESSION_PROOF_CHEAP);
  if (st == STATUS_OK && proves) st = prove(c);
  c->away.memory = &c->p->memory;
  if (st == STATUS_OK) st = place_donated(c, on_device);
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
static status bind_definition(run_call *c) {
  const ir_func *f = c->p->definition;
  if (!f) return fail(STATUS_BAD_USAGE, "the host program has no fusion to evaluate");
  if (f == c->p->func) return STATUS_OK;
  TRY(check_count("inputs", c->args.n_inputs, f->inputs.len));
  TRY(check_count("outputs", c->args.n_outputs, f->outputs.len));
  ir_env_init(&c->env, (ir_func *)f, c->memory);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    const ir_array *a = &c->inputs[i];
    const char *what = input_label(c, i);
    TRY(check_dtype(a, ir_tensor_at(f, f->inputs.data[i])->dtype, what));
    if (!ir_bind_shape(&c->env, f->inputs.data[i], a->extents, a->rank, what)) {
      return STATUS_BAD_PROGRAM;
    }
  }
  if (!ir_bind_check(&c->env)) return STATUS_BAD_PROGRAM;
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    const char *what = output_label(c, i);
    TRY(check_dtype(&c->outputs[i], ir_tensor_at(f, f->outputs.data[i])->dtype, what));
    TRY(check_output(c, f->outputs.data[i], &c->outputs[i], what));
  }
  return STATUS_OK;
}

static status definition_body(void *context) {
  run_call *c = context;
  return api_take_diags(&c->p->ir, bind_definition(c), c->memory);
}

static status eval_body(void *context) {
  run_call *c = context;
  ref_options options = {.seed = c->args.seed, .memory = &c->p->memory};
  if (c->judgement) return api_judge(&c->env, c->inputs, c->outputs, &options, c->judgement);
  return ref_eval(&c->env, c->inputs, c->outputs, &options);
}

/* The definition is evaluated in memory of the call, outside the lock; locks are taken outside guards:
 * running out of memory must not leave one locked. */
static status evaluate(run_call *c) {
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
static status execute(run_call *c) {
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
  *result = (weir_run_args){0};
  api_copy_sized(result, args, args->struct_size, sizeof *result);
  if ((result->n_inputs && !result->inputs) || (result->n_outputs && !result->outputs))
    return api_refuse("%s: a list of tensors is NULL", function);
  api_begin();
  status st = check_count("inputs", result->n_inputs, p->func->inputs.len);
  if (st == STATUS_OK) st = check_count("outputs", result->n_outputs, p->func->outputs.len);
  return st == STATUS_OK ? check_streams(result, function) : api_end(st);
}

static status run_now(run_call *c) {
  const weir_run_args *args = &c->args;
  for (size_t i = 0; i < args->n_streams; i++)
    c->streams[c->n_streams++] = api_stream(&args->streams[i]);
  bool on_device = is_on_device(c);
  weir_program_busy(c->p, true);
  status st = on_device ? execute(c) : evaluate(c);
  weir_program_busy(c->p, false);
  return st;
}

status api_run_now(weir_program *p, const weir_run_args *args, rt_control *control) {
  return run_now(&(run_call){.p = p, .args = *args, .control = control});
}

weir_status weir_run(const weir_program *p, const weir_run_args *args) {
  weir_run_args checked;
  weir_status refused = api_run_check(p, args, "weir_run", &checked);
  if (refused != WEIR_OK) return refused;
  api_begin();
  session_queue_settle(&((weir_program *)p)->queue);
  return api_end(api_run_now((weir_program *)p, &checked, NULL));
}

weir_status weir_check(const weir_program *p, const weir_run_args *args, double rtol,
                       weir_verdict *verdicts) {
  api_judgement j = {.rtol = rtol, .verdicts = verdicts};
  run_call c = {.p = (weir_program *)p, .judgement = &j};
  if (!verdicts) return api_refuse("weir_check: an argument is NULL");
  if (!(rtol >= 0)) return api_refuse("weir_check: rtol is %g; it must not be negative", rtol);
  weir_status refused = api_run_check(p, args, "weir_check", &c.args);
  if (refused != WEIR_OK) return refused;
  if (c.args.check_rows < 0) return api_refuse("weir_check: check_rows must not be negative");
  j.rows = c.args.check_rows;
  c.args.as_definition = true;
  api_begin();
  session_queue_settle(&c.p->queue);
  return api_end(run_now(&c));
}
