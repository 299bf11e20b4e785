/* Runs: turns the caller's arrays into what the device takes, and back. */
#include <string.h>

#include "base/table.h"
#include "session/memory.h"
#include "session/plans.h"
#include "session/profile.h"

/* ---- memory of devices ---- */

/* Is the part of a whole array that each rank of this process holds contiguous in it? */
static bool pieces_are_dense(const session *x, const ir_env *env, ir_tensor t,
                             const ir_array *whole) {
  ir_env bound = *env;
  bound.func = x->host;
  for (uint32_t r = 0; r < x->ranks.n; r++) {
    rt_piece piece;
    if (!rt_piece_of(x->host, &bound, t, (int64_t)x->ranks.first + r, &piece)) return false;
    if (!piece.present) continue;
    ir_array view = piece.is_box ? rt_piece_view(&piece, whole) : *whole;
    if (!piece.is_box || !ir_array_is_dense(&view)) return false;
  }
  return true;
}

/* The position of `a` among the whole arrays; UINT32_MAX: it is a shard. */
static uint32_t index_in(const ir_array *list, uint32_t n, const ir_array *a) {
  return a >= list && a < list + n ? (uint32_t)(a - list) : UINT32_MAX;
}

bool session_takes(const session *x, const ir_env *env, const session_arrays *inputs,
                   const session_arrays *outputs, const ir_array *a, uint32_t *space) {
  const ir_func *h = x->host;
  *space = 0;
  if (!x->device->ops->memory) return false;
  uint32_t in = index_in(inputs->whole, h->inputs.len, a);
  uint32_t out = index_in(outputs->whole, h->outputs.len, a);
  bool is_whole = in != UINT32_MAX || out != UINT32_MAX;
  if (is_whole && session_ranks_are_many(&x->ranks)) {
    /* processes send each other their parts of a whole output */
    if (out != UINT32_MAX && x->ranks.n < x->ranks.world) return false;
    return pieces_are_dense(x, env, in != UINT32_MAX ? h->inputs.data[in] : h->outputs.data[out],
                            a);
  }
  *space = a->space;
  return ir_array_is_dense(a);
}

/* ---- copies of arrays that are not dense ---- */

typedef struct staging {
  const allocator *memory;
  void *inputs[64], *outputs[64]; /* addresses for the device */
  void **in, **out;               /* these, or longer lists that were allocated */
  ir_array *copies;               /* dense copies of inputs, then of outputs; data NULL: no copy */
  uint32_t n_inputs, n_outputs;
} staging;

static status stage(staging *s, const ir_array *a, uint32_t i, bool copy_in, void **address) {
  *address = a->data;
  int64_t n;
  if (ir_array_is_dense(a) || (ir_array_count(a, &n) && n == 0)) return STATUS_OK;
  check(s->copies != NULL); /* begin_staging() made room when it saw this array */
  ir_array *copy = &s->copies[i];
  *copy = *a;
  copy->data = NULL;
  TRY(ir_array_alloc(copy, s->memory));
  if (copy_in) ir_array_copy(copy, a);
  *address = copy->data;
  return STATUS_OK;
}

static bool any_staged(const ir_array *arrays, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!ir_array_is_dense(&arrays[i])) return true;
  }
  return false;
}

static status begin_staging(staging *s, const ir_array *inputs, const ir_array *outputs) {
  uint32_t n = s->n_inputs + s->n_outputs;
  s->in = s->inputs;
  s->out = s->outputs;
  if (s->n_inputs > 64 || s->n_outputs > 64) {
    s->in = memory_alloc(s->memory, (n + 1) * sizeof(void *));
    if (!s->in) return STATUS_OUT_OF_MEMORY;
    s->out = s->in + s->n_inputs;
  }
  if (any_staged(inputs, s->n_inputs) || any_staged(outputs, s->n_outputs)) {
    s->copies = memory_alloc(s->memory, n * sizeof *s->copies);
    if (!s->copies) return STATUS_OUT_OF_MEMORY;
    memset(s->copies, 0, n * sizeof *s->copies);
  }
  for (uint32_t i = 0; i < s->n_inputs; i++) TRY(stage(s, &inputs[i], i, true, &s->in[i]));
  for (uint32_t i = 0; i < s->n_outputs; i++) {
    TRY(stage(s, &outputs[i], s->n_inputs + i, false, &s->out[i]));
  }
  return STATUS_OK;
}

static void end_staging(staging *s, const ir_array *outputs, bool done) {
  for (uint32_t i = 0; s->copies && i < s->n_inputs + s->n_outputs; i++) {
    bool output = i >= s->n_inputs && s->copies[i].data;
    if (output && done) ir_array_copy(&outputs[i - s->n_inputs], &s->copies[i]);
    memory_free(s->memory, s->copies[i].data);
  }
  memory_free(s->memory, s->copies);
  if (s->in != s->inputs) memory_free(s->memory, s->in);
}

/* An output that is an input needs no computing, only a copy. */
static status copy_returned_inputs(const ir_func *h, const ir_array *inputs,
                                   const ir_array *outputs) {
  for (uint32_t i = 0; i < h->outputs.len; i++) {
    for (uint32_t k = 0; k < h->inputs.len; k++) {
      if (IR_SAME(h->outputs.data[i], h->inputs.data[k]))
        TRY(session_memory_copy(&outputs[i], &inputs[k]));
    }
  }
  return STATUS_OK;
}

/* ---- one run ---- */

/* Can the device alone order the run by the caller's streams? Then the host has nothing to do. */
static bool is_ordered(const session *x, const session_run_args *run) {
  const session_arrays *sides[] = {run->inputs, run->outputs};
  const uint32_t n[] = {x->host->inputs.len, x->host->outputs.len};
  if (!x->device->ops->run_on || run->profile || run->copies) return false;
  for (int side = 0; side < 2; side++)
    for (uint32_t i = 0; i < n[side]; i++) {
      const ir_array *a = &sides[side]->whole[i];
      bool sharded = session_is_sharded(sides[side], i);
      if (!sharded && (session_ranks_are_many(&x->ranks) ? !a->space : !ir_array_is_dense(a)))
        return false;
      for (uint32_t r = 0; sharded && r < x->ranks.n; r++)
        if (!ir_array_is_dense(&sides[side]->shards[r * n[side] + i])) return false;
    }
  for (uint32_t i = 0; i < n[1]; i++) /* outputs that are inputs are copied afterwards */
    for (uint32_t k = 0; k < n[0]; k++)
      if (IR_SAME(x->host->outputs.data[i], x->host->inputs.data[k])) return false;
  return true;
}

/* Waits for the caller's streams before the host reads or writes any data. */
static status wait_for_streams(const session *x, const session_run_args *run) {
  if (run->n_streams == 0 || is_ordered(x, run)) return STATUS_OK;
  for (uint32_t i = 0; i < run->n_streams; i++) TRY(session_memory()->wait(&run->streams[i]));
  return STATUS_OK;
}

/* Processes that draw with different seeds would hold different values of the same tensor. */
static status set_seed(session *x, const session_plan *p, uint64_t seed) {
  if (!x->has_seed || x->seed != seed)
    TRY(session_ranks_agree(&x->ranks, hash_mix(x->program, seed)));
  x->has_seed = true;
  x->seed = seed;
  *p->plan->seed = seed;
  return STATUS_OK;
}

static status run_plan(session *x, session_plan *p, staging *s, const session_run_args *run) {
  bool captured = false;
  const rt_plan *profiled;
  TRY(set_seed(x, p, run->seed));
  x->counts.runs++;
  if (run->profile) {
    TRY(session_plan_need_unrolled(x, p, &profiled));
    return session_profile_run(x, p->loaded, profiled, s->in, s->out, run->control, run->profile);
  }
  if (run->n_streams == 0 || !is_ordered(x, run))
    return rt_run_controlled(p->loaded, s->in, s->out, NULL, NULL, run->control);
  status st =
      p->loaded->ops->run_on(p->loaded, s->in, s->out, run->streams, run->n_streams, &captured);
  p->captured = p->captured || captured;
  return st;
}

static status run_ranks(session *x, const ir_env *env, session_plan *p,
                        const session_run_args *run) {
  staging s = {.memory = x->memory};
  if (!session_computes(x)) return run_plan(x, p, &s, run);
  ir_env bound = *env;
  bound.func = x->host;
  if (!p->pieces) TRY(session_pieces_make(&x->ranks, x->host, &bound, x->memory, &p->pieces));
  TRY(session_pieces_cut(p->pieces, run->inputs, run->outputs, &s.in, &s.out));
  (void)atomic_fetch_add(&x->ranks.waiting, 1); /* the device tells others itself if it is busy */
  status st = run_plan(x, p, &s, run);
  (void)atomic_fetch_sub(&x->ranks.waiting, 1);
  if (st == STATUS_OK) return session_pieces_assemble(p->pieces, &bound, run->outputs);
  session_ranks_renew(&x->ranks);
  return st;
}

static status run_alone(session *x, session_plan *p, const session_run_args *run) {
  if (!session_computes(x)) return run_plan(x, p, &(staging){0}, run);
  staging s = {.memory = x->memory, .n_inputs = x->host->inputs.len};
  s.n_outputs = x->host->outputs.len;
  const ir_array *inputs = run->inputs->whole, *outputs = run->outputs->whole;
  status st = begin_staging(&s, inputs, outputs);
  if (st == STATUS_OK) st = run_plan(x, p, &s, run);
  end_staging(&s, outputs, st == STATUS_OK);
  if (st == STATUS_OK) st = copy_returned_inputs(x->host, inputs, outputs);
  return st;
}

status session_run(session *x, const ir_env *env, const session_run_args *run) {
  session_plan *p;
  TRY(wait_for_streams(x, run));
  TRY(session_plan_loaded(x, env, run->donated, &p));
  return session_ranks_are_many(&x->ranks) ? run_ranks(x, env, p, run) : run_alone(x, p, run);
}
