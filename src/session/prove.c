/* Proves the plans of all devices before their first run. A program written by hand may lack a wait,
 * and its result would then depend on luck; or its devices may wait for each other for ever. */
#include <string.h>

#include "session/session.h"

static bool is_same(const session_proven *v, const ir_env *env) {
  return v->symbols && v->len == env->len &&
         memcmp(v->symbols, env->symbols, env->len * sizeof *env->symbols) == 0;
}

static bool is_proven(const session *x, const ir_env *env) {
  for (uint32_t i = 0; i < SESSION_MAX_PROVEN && i < x->n_proven; i++) {
    if (is_same(&x->proven[i], env)) return true;
  }
  return false;
}

/* Remembers that these extents are proven, in place of the oldest. */
static status remember(session *x, const ir_env *env) {
  session_proven *v = &x->proven[x->n_proven % SESSION_MAX_PROVEN];
  size_t size_bytes = env->len * sizeof *env->symbols;
  int64_t *symbols = memory_alloc(x->memory, size_bytes + 1);
  if (!symbols) return STATUS_OUT_OF_MEMORY;
  memcpy(symbols, env->symbols, size_bytes);
  memory_free(x->memory, v->symbols);
  *v = (session_proven){symbols, env->len};
  x->n_proven++;
  return STATUS_OK;
}

void session_forget_proven(session *x) {
  for (uint32_t i = 0; i < SESSION_MAX_PROVEN; i++) memory_free(x->memory, x->proven[i].symbols);
}

/* Lowered programs should be right by construction. They are proven all the same if the proof is cheap: if they have
 * at most this many instructions. */
enum { CHEAP_INSTRS = 2048 };

static bool is_cheap(const rt_plan *const *plans, uint32_t n) {
  uint64_t instrs = 0;
  for (uint32_t r = 0; r < n; r++) instrs += plans[r]->n_instrs;
  return instrs <= CHEAP_INSTRS;
}

status session_prove(session *x, const ir_env *env, check_world_report *found) {
  bool cheaply = x->proof == SESSION_PROOF_CHEAP;
  if (x->proof == SESSION_PROOF_NEVER || is_proven(x, env)) return STATUS_OK;
  if (cheaply && session_ranks_are_spread(&x->ranks)) return STATUS_OK;
  const rt_plan *const *plans;
  uint32_t n;
  TRY(session_bind(x, env, &plans, &n));
  if (cheaply && !is_cheap(plans, n)) return remember(x, env);
  x->counts.proofs++;
  check_options options = {.memory = x->memory, .no_waits = true, .trusted = true};
  TRY(session_check(x, env, &options, found));
  return found->n_found == 0 ? remember(x, env) : STATUS_OK;
}
