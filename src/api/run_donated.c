/* Outputs in the memory of donated inputs. */
#include <inttypes.h>

#include "api/run.h"

int64_t api_run_donated(const api_run *c, uint32_t i) {
  return c->args.donated ? c->args.donated[i] : -1;
}

/* Arrays of an output: itself, or its shards, by device of this process. */
static uint32_t arrays_of(const api_run *c, uint32_t output) {
  return session_is_sharded(&c->out, output) ? c->p->session.ranks.n : 1;
}
static ir_array *array_at(const session_arrays *a, uint32_t n, uint32_t i, uint32_t device) {
  return (ir_array *)(session_is_sharded(a, i) ? &a->shards[device * n + i] : &a->whole[i]);
}
static ir_array *output_array(const api_run *c, uint32_t i, uint32_t device) {
  return array_at(&c->out, c->p->func->outputs.len, i, device);
}
static ir_array *input_array(const api_run *c, uint32_t i, uint32_t device) {
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

status api_run_check_donated(api_run *c, uint32_t i) {
  const ir_func *f = c->p->func;
  int64_t from = api_run_donated(c, i);
  const char *what = api_run_output_label(c, i);
  if (from == -1) return STATUS_OK;
  if (from < 0 || from >= (int64_t)f->inputs.len)
    return fail(STATUS_BAD_USAGE, "%s is given input %" PRId64 ": there are %u", what, from,
                f->inputs.len);
  const char *input = api_run_input_label(c, (uint32_t)from);
  for (uint32_t k = 0; k < i; k++)
    if (api_run_donated(c, k) == from)
      return fail(STATUS_BAD_USAGE, "%s is given to %s already", input, api_run_output_label(c, k));
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
static bool may_overwrite(api_run *c, uint32_t from, uint32_t i) {
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
static status keep_apart(api_run *c, uint32_t i, bool on_device) {
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

static bool any_donated(const api_run *c) {
  for (uint32_t i = 0; i < c->p->func->outputs.len; i++)
    if (api_run_donated(c, i) >= 0) return true;
  return false;
}

status api_run_place_donated(api_run *c, bool on_device) {
  session *x = &c->p->session;
  uint32_t n = c->p->func->outputs.len;
  if (!any_donated(c)) return STATUS_OK;
  bool *in_place = ARENA_ARRAY(c->memory, n, bool);
  c->gifts = ARENA_ARRAY(c->memory, n, int64_t);
  bool any = false;
  for (uint32_t i = 0; i < n; i++) {
    int64_t from = api_run_donated(c, i);
    c->gifts[i] = from >= 0 && on_device && may_overwrite(c, (uint32_t)from, i) ? from : -1;
    any = any || c->gifts[i] >= 0;
  }
  if (any) TRY(session_donate(x, &c->env, c->gifts, in_place));
  else c->gifts = NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (api_run_donated(c, i) < 0) continue;
    if (!in_place[i]) TRY(keep_apart(c, i, on_device));
    if (in_place[i]) x->counts.in_place++;
    else if (on_device) x->counts.copied++;
  }
  return STATUS_OK;
}
