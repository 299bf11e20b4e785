/* The arrays of a run: whole tensors, or the shards that devices hold. */
#include <inttypes.h>
#include <string.h>

#include "api/run.h"

status api_run_check_count(const char *what, size_t given, uint32_t wanted) {
  if (given == wanted) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "the fusion has %u %s, but %zu are given", wanted, what, given);
}

status api_run_check_dtype(const ir_array *a, ir_dtype wanted, const char *what) {
  if (a->dtype == wanted) return STATUS_OK;
  return fail(STATUS_BAD_USAGE, "%s holds %s, but the fusion has %s", what, ir_dtype_text(a->dtype),
              ir_dtype_text(wanted));
}

/* A device that computes nothing needs no data. */
static status view(const api_run *c, const weir_dl_tensor *t, const char *what, ir_array *result) {
  bool shape_only = api_run_on_device(c) && !session_computes(&c->p->session);
  return api_view(t, what, shape_only, result);
}

/* ---- shards ---- */
static bool has_shards(const weir_dl_tensor *const *const *lists, uint32_t i) {
  return lists && lists[i];
}

/* Takes the shards of tensor i, one of `n` on its side: the parts that the devices of this process hold. */
static status take_shards(api_run *c, const weir_dl_tensor *const *list, ir_tensor t, uint32_t i,
                          uint32_t n, const char *what, session_arrays *a) {
  const session_ranks *ranks = &c->p->session.ranks;
  if (!api_run_on_device(c))
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
    TRY(api_run_check_dtype(shard, ir_tensor_at(c->p->func, t)->dtype, what));
  }
  return STATUS_OK;
}

/* If the program has one device, its shard is the whole tensor. */
static status take_only_shard(api_run *c, const weir_dl_tensor *const *list, const char *what,
                              ir_array *whole, session_arrays *a, uint32_t i) {
  if (session_ranks_are_many(&c->p->session.ranks)) return STATUS_OK;
  ((bool *)a->sharded)[i] = false;
  return view(c, list[0], what, whole);
}

static status take_sharded_input(api_run *c, ir_tensor t, uint32_t i, const char *what) {
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

/* Only inputs declare extents: with all of them bound, every extent has a value. Extents that were
 * checked in the run before are not checked again. */
static status check_extents(api_run *c) {
  weir_program *p = c->p;
  size_t bytes = c->env.len * sizeof *p->held;
  if (c->env.len > 0 && p->n_held == c->env.len && memcmp(p->held, c->env.symbols, bytes) == 0)
    return STATUS_OK;
  p->n_held = 0;
  if (!ir_bind_check(&c->env)) return STATUS_BAD_PROGRAM;
  if (c->env.len == 0 || c->env.len > p->most_held) return STATUS_OK;
  memcpy(p->held, c->env.symbols, bytes);
  p->n_held = c->env.len;
  return STATUS_OK;
}

status api_run_take_inputs(api_run *c) {
  const ir_func *f = c->p->func;
  c->inputs = ARENA_ARRAY(c->memory, f->inputs.len, ir_array);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_tensor t = f->inputs.data[i];
    const char *what = api_run_input_label(c, i);
    if (has_shards(c->args.input_shards, i)) TRY(take_sharded_input(c, t, i, what));
    else TRY(view(c, c->args.inputs[i], what, &c->inputs[i]));
    TRY(api_run_check_dtype(&c->inputs[i], ir_tensor_at(f, t)->dtype, what));
    if (!ir_bind_shape(&c->env, t, c->inputs[i].extents, c->inputs[i].rank, what))
      return STATUS_BAD_PROGRAM;
  }
  c->in.whole = c->inputs;
  return check_extents(c);
}

/* Two positions of an output must not share memory. */
static status check_own(const ir_array *a, const char *what) {
  if (!ir_array_shares(a)) return STATUS_OK;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->strides[d] == 0 && a->extents[d] > 1)
      return fail(STATUS_BAD_USAGE, "%s: elements along dimension %u share memory", what, d);
  return fail(STATUS_BAD_USAGE, "%s: by its strides, elements share memory", what);
}

status api_run_check_output(api_run *c, ir_tensor t, const ir_array *a, const char *what) {
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

/* Checks only that no two elements of a shard share memory. Shapes are checked where the placement is
 * known. */
static status take_sharded_output(api_run *c, ir_tensor t, uint32_t i, const char *what) {
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

status api_run_take_outputs(api_run *c) {
  const ir_func *f = c->p->func;
  c->outputs = ARENA_ARRAY(c->memory, f->outputs.len, ir_array);
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_tensor t = f->outputs.data[i];
    const char *what = api_run_output_label(c, i);
    if (has_shards(c->args.output_shards, i)) TRY(take_sharded_output(c, t, i, what));
    else TRY(view(c, c->args.outputs[i], what, &c->outputs[i]));
    TRY(api_run_check_dtype(&c->outputs[i], ir_tensor_at(f, t)->dtype, what));
    TRY(api_run_check_output(c, t, &c->outputs[i], what));
  }
  c->out.whole = c->outputs;
  return STATUS_OK;
}
