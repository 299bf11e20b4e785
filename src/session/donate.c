/* Outputs in the memory of donated inputs. */
#include <string.h>

#include "session/plans.h"

static status all_may(rt_plan *const *plans, uint32_t n, uint32_t input, uint32_t output,
                      const allocator *memory, bool *may) {
  *may = true;
  for (uint32_t r = 0; r < n && *may; r++) {
    check_alias_result answer;
    TRY(check_alias(plans[r], input, output, memory, &answer));
    *may = answer.safe;
  }
  return STATUS_OK;
}

status session_donate_plans(rt_plan *const *plans, uint32_t n, const int64_t *donated,
                            const allocator *memory, bool *in_place) {
  for (uint32_t i = 0; i < plans[0]->n_outputs; i++) {
    in_place[i] = false;
    if (donated[i] < 0) continue;
    TRY(all_may(plans, n, (uint32_t)donated[i], i, memory, &in_place[i]));
    for (uint32_t r = 0; r < n && in_place[i]; r++)
      rt_plan_donate(plans[r], (uint32_t)donated[i], i);
  }
  return STATUS_OK;
}

static bool same_part(const rt_piece *a, const rt_piece *b) {
  if (a->present != b->present || a->rank != b->rank || !a->is_box || !b->is_box) return false;
  for (uint32_t d = 0; d < a->rank; d++)
    if (rt_piece_begin(a, d) != rt_piece_begin(b, d) || a->extents[d] != b->extents[d])
      return false;
  return true;
}

/* Does no other device of this process hold the same part? They could not both write it in place. */
static bool is_alone(const session *x, const rt_piece *piece, int64_t device) {
  return x->ranks.n == 1 || piece->owner == device;
}

bool session_donate_whole(const session *x, const ir_env *env, uint32_t input, uint32_t output,
                          const ir_array *whole) {
  ir_env bound = *env;
  bound.func = x->host;
  if (!session_ranks_are_many(&x->ranks)) return ir_array_is_dense(whole);
  for (uint32_t r = 0; r < x->ranks.n; r++) {
    int64_t device = (int64_t)x->ranks.first + r;
    rt_piece in, out;
    if (!rt_piece_of(x->host, &bound, x->host->inputs.data[input], device, &in) ||
        !rt_piece_of(x->host, &bound, x->host->outputs.data[output], device, &out))
      return false;
    if (!in.present && !out.present) continue;
    if (!same_part(&in, &out) || !is_alone(x, &in, device) || !is_alone(x, &out, device))
      return false;
    ir_array view = rt_piece_view(&in, whole);
    if (!ir_array_is_dense(&view)) return false;
  }
  return true;
}

status session_donate(session *x, const ir_env *env, const int64_t *donated, bool *in_place) {
  session_plan *p;
  bool all = !session_computes(x); /* outputs of such a device must not be copied over the inputs */
  for (uint32_t i = 0; i < x->host->outputs.len; i++) in_place[i] = all && donated[i] >= 0;
  if (all) return STATUS_OK;
  TRY(session_plan_bound(x, env, donated, &p));
  memcpy(in_place, p->in_place, x->host->outputs.len * sizeof *in_place);
  return STATUS_OK;
}

status session_donation(session *x, const ir_env *env, uint32_t input, uint32_t output,
                        check_alias_result *result) {
  ir_env bound = *env;
  status st = session_host(x, env, &bound.func);
  *result = (check_alias_result){.safe = true};
  for (uint32_t r = 0; r < x->ranks.n && result->safe && st == STATUS_OK; r++) {
    rt_plan *plan = NULL;
    st = session_bind_apart(x, &bound, x->ranks.first + r, &plan);
    if (st == STATUS_OK) st = check_alias(plan, input, output, x->memory, result);
    rt_plan_destroy(plan);
  }
  return st;
}
