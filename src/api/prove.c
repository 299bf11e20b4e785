/* Proving the plans of all devices before their first run. A program written by hand may lack a wait,
 * and what it computes would then depend on luck; or its devices may never meet. */
#include <string.h>

#include "api/program.h"
#include "check/check.h"

static bool is_same(const api_proven *v, const ir_env *env) {
  return v->symbols && v->len == env->len &&
         memcmp(v->symbols, env->symbols, env->len * sizeof *env->symbols) == 0;
}

static bool is_proven(const weir_program *p, const ir_env *env) {
  for (uint32_t i = 0; i < API_MAX_PROVEN && i < p->n_proven; i++) {
    if (is_same(&p->proven[i], env)) return true;
  }
  return false;
}

/* In place of the oldest. */
static status remember(weir_program *p, const ir_env *env) {
  api_proven *v = &p->proven[p->n_proven % API_MAX_PROVEN];
  size_t size_bytes = env->len * sizeof *env->symbols;
  int64_t *symbols = memory_alloc(&p->memory, size_bytes + 1);
  if (!symbols) return STATUS_OUT_OF_MEMORY;
  memcpy(symbols, env->symbols, size_bytes);
  memory_free(&p->memory, v->symbols);
  *v = (api_proven){symbols, env->len};
  p->n_proven++;
  return STATUS_OK;
}

void api_forget_proven(weir_program *p) {
  for (uint32_t i = 0; i < API_MAX_PROVEN; i++) memory_free(&p->memory, p->proven[i].symbols);
}

/* What lowering makes is right by construction, and by tests; where a proof costs next to nothing it is made all the
 * same. */
enum { CHEAP_INSTRS = 2048 };

static bool is_cheap(const rt_plan *const *plans, uint32_t n) {
  uint64_t instrs = 0;
  for (uint32_t r = 0; r < n; r++) instrs += plans[r]->n_instrs;
  return instrs <= CHEAP_INSTRS;
}

status api_prove(weir_program *p, const ir_env *env, arena *scratch, check_world_report *found) {
  bool cheaply = p->proof == API_PROOF_CHEAP;
  if (p->proof == API_PROOF_NEVER || is_proven(p, env)) return STATUS_OK;
  if (cheaply && api_ranks_are_spread(&p->executor.ranks)) return STATUS_OK;
  const rt_plan *const *plans;
  uint32_t n;
  TRY(api_executor_bind(&p->executor, env, &plans, &n));
  if (cheaply && !is_cheap(plans, n)) return remember(p, env);
  p->executor.counts.proofs++;
  check_options options = {.memory = &p->memory, .no_waits = true};
  TRY(api_executor_check(&p->executor, env, &options, found));
  if (found->n_found == 0) return remember(p, env);
  strbuf text;
  strbuf_init(&text, scratch);
  check_world_text(found, &text);
  api_set_error(text.data);
  return fail(STATUS_CHECK_FAILED, "the plan is not safe");
}
