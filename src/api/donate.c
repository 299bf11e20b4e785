/* Outputs in the memory of donated inputs. */
#include "api/program.h"

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

status api_donate_plans(rt_plan *const *plans, uint32_t n, const int64_t *donated,
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

/* Devices of one process that hold the same part cannot all write it there. */
static bool is_alone(const api_executor *x, const rt_piece *piece, int64_t device) {
  return x->ranks.n == 1 || piece->owner == device;
}

bool api_donate_whole(const api_executor *x, const ir_env *env, uint32_t input, uint32_t output,
                      const ir_array *whole) {
  ir_env bound = *env;
  bound.func = x->host;
  if (!api_ranks_are_many(&x->ranks)) return ir_array_is_dense(whole);
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

typedef struct donation_call {
  weir_program *p;
  const weir_shapes *shapes;
  size_t input, output;
  char **why;
} donation_call;

static status ask(const donation_call *c, arena *scratch) {
  const ir_func *f = c->p->func;
  check_alias_result answer = {0};
  ir_env env;
  if (c->input >= f->inputs.len || c->output >= f->outputs.len)
    return fail(STATUS_BAD_USAGE, "the program has %u inputs and %u outputs", f->inputs.len,
                f->outputs.len);
  TRY(api_bind_like(c->p, c->shapes, scratch, &env));
  TRY(api_executor_donation(&c->p->executor, &env, (uint32_t)c->input, (uint32_t)c->output,
                            &answer));
  strbuf text;
  strbuf_init(&text, scratch);
  strbuf_puts(&text, answer.why);
  return answer.safe ? STATUS_OK : api_string(&text, c->why);
}

static status donation_body(arena *scratch, void *context) {
  donation_call *c = context;
  return api_take_diags(&c->p->ir, ask(c, scratch), scratch);
}

weir_status weir_program_donation(const weir_program *p, const weir_shapes *s, size_t input,
                                  size_t output, char **why) {
  if (!p || !s || !why) return api_refuse("weir_program_donation: an argument is NULL");
  *why = NULL;
  if (!p->executor.device)
    return api_refuse("the reference evaluator overwrites nothing: it has no plan");
  donation_call c = {(weir_program *)p, s, input, output, why};
  (void)pthread_mutex_lock(&c.p->lock);
  weir_status st = api_call(&p->memory, donation_body, &c);
  (void)pthread_mutex_unlock(&c.p->lock);
  return st;
}
