#include "session/plans.h"
#include "bind/bind.h"

#include <string.h>

#include "base/log.h"
#include "base/table.h"
#include "session/profile.h"

/* Whether a rank of the world runs in this process. */
static bool is_here(const session *x, uint32_t rank) {
  return rank >= x->ranks.first && rank - x->ranks.first < x->ranks.n;
}

static void destroy_ranks(const session *x, session_plan *p) {
  rt_plan_destroy(p->unrolled);
  p->unrolled = NULL;
  if (p->plan != p->own) rt_plan_destroy(p->plan);
  for (uint32_t r = 0; p->ranks && r < x->ranks.world; r++) rt_plan_destroy(p->ranks[r]);
  memory_free(x->memory, p->ranks);
  p->plan = p->own = NULL;
  p->ranks = NULL;
}

static void destroy_plan(const session *x, session_plan *p) {
  const rt_plan *profiled = x->profile ? x->profile->plan : NULL;
  if (profiled && (profiled == p->plan || profiled == p->unrolled))
    session_profile_release(x->profile);
  if (p->loaded) x->device->ops->unload(p->loaded);
  session_pieces_destroy(p->pieces);
  destroy_ranks(x, p);
  memory_free(x->memory, p->symbols);
  memory_free(x->memory, p->donated);
  memory_free(x->memory, p->in_place);
  memory_free(x->memory, p);
}

void session_plans_close(session *x) {
  while (x->plans) {
    session_plan *next = x->plans->next;
    destroy_plan(x, x->plans);
    x->plans = next;
  }
}

/* ---- the cache ---- */

static bool fits(const session_plan *p, const ir_env *env) {
  return p->n_symbols == env->len &&
         memcmp(p->symbols, env->symbols, env->len * sizeof *env->symbols) == 0;
}

static bool same_gifts(const session *x, const session_plan *p, const int64_t *donated) {
  if (!p->donated || !donated) return p->donated == donated;
  return memcmp(p->donated, donated, x->host->outputs.len * sizeof *p->donated) == 0;
}

/* Moves the plan to the front; NULL if there is none. */
static session_plan *find_plan(session *x, const ir_env *env, const int64_t *donated) {
  for (session_plan **at = &x->plans; *at; at = &(*at)->next) {
    session_plan *p = *at;
    if (!fits(p, env) || !same_gifts(x, p, donated)) continue;
    *at = p->next;
    p->next = x->plans;
    x->plans = p;
    return p;
  }
  return NULL;
}

/* The memory of a plan, with that of its buffers if the device keeps them for this plan alone. */
static int64_t bytes_of(const session *x, const session_plan *p) {
  const rt_device_ops *ops = x->device->ops;
  bool joined = p->plan && p->plan != p->own;
  int64_t bytes = joined ? (int64_t)p->plan->memory.used_bytes : 0;
  if (p->unrolled) bytes += (int64_t)p->unrolled->memory.used_bytes;
  if (!p->ranks && p->own) bytes += (int64_t)p->own->memory.used_bytes;
  for (uint32_t r = 0; p->ranks && r < x->ranks.world; r++)
    if (p->ranks[r]) bytes += (int64_t)p->ranks[r]->memory.used_bytes;
  return bytes + (p->plan && p->loaded && !ops->shares_pool ? p->plan->pool_bytes : 0);
}

void session_kept(const session *x, int64_t *plans, int64_t *bytes) {
  *plans = *bytes = 0;
  for (const session_plan *p = x->plans; p; p = p->next) {
    *plans += 1;
    *bytes += bytes_of(x, p);
  }
}

void session_plans_evict(session *x, int64_t most_bytes) {
  int64_t bytes = 0;
  for (session_plan **at = &x->plans; *at;) {
    session_plan *p = *at;
    bytes += bytes_of(x, p);
    if (p->captured || bytes <= most_bytes) {
      at = &p->next;
      continue;
    }
    bytes -= bytes_of(x, p);
    *at = p->next;
    destroy_plan(x, p);
    x->counts.evicted++;
  }
}

/* ---- one rank ---- */

/* Are there so many ranks that, if they are alike, one of them is shown and proven for all? */
static bool is_one_of_many(const session *x) { return x->ranks.n > SESSION_MOST_SHOWN; }

/* Removes redundant waits: loops wait for everything that precedes them, whether they depend on it or
 * not. The proof takes about 2 us per launch; plans for which it would take half a second keep their
 * waits. */
static status prune(const session *x, rt_plan *plan) {
  enum { MOST_LAUNCHES = 250 * 1000, LONGEST = 2 * 1000 * 1000 };
  uint32_t removed;
  /* If so, waits that any rank needs are kept. */
  bool any_root = (plan->alike || plan->kin) && is_one_of_many(x);
  if (x->keep_waits || plan->n_tasks > MOST_LAUNCHES || plan->n_instrs > LONGEST) return STATUS_OK;
  return any_root ? check_prune_alike(plan, x->memory, &removed)
                  : check_prune_waits(plan, x->memory, &removed);
}

typedef struct rank_binding {
  uint32_t rank;
  uint32_t streams;       /* 0: as many as the session has */
  bool lends;             /* as bind_options says */
  const int64_t *donated; /* as in a run; NULL: nothing is */
  const rt_plan *like;    /* another rank's, which may need the same waits; NULL: there is none */
  bool loops;             /* long loops are kept, if the device takes them */
  bool apart;             /* does not ask which ranks are alike */
} rank_binding;

/* Loops with so many repetitions or more are kept. Shorter ones are unrolled: their buffers are then placed better. */
enum { LONG_LOOP = 32 };

/* Plans can be bound with loops: where the device does not take them, it is given an unrolled plan. But a device that
 * reads the plans of other processes is given those as they are bound, so they must have no loops. */
static bool keeps_loops(const session *x) {
  bool here = x->ranks.n >= x->ranks.world;
  return x->device && (here || !x->device->ops->load_spread);
}

/* In a program written by hand (keep_waits), buffers do not share the memory of outputs. */
static status bind_waits(session *x, const ir_env *env, const rank_binding *b, rt_plan **result) {
  bind_options options = {.keep_waits = x->keep_waits};
  options.streams = b->streams ? b->streams : x->streams;
  options.lends = b->lends && !x->keep_waits;
  options.folds_in_place = x->device && x->device->ops->folds_in_place;
  options.donated = b->donated;
  options.loops = b->loops && keeps_loops(x) ? LONG_LOOP : 0;
  options.rank = b->rank;
  options.world = b->apart ? 0 : x->ranks.world;
  return bind_plan(env, &options, x->memory, result);
}

static status bind_rank(session *x, const ir_env *env, const rank_binding *b, rt_plan **result) {
  TRY(bind_waits(x, env, b, result));
  if (b->like && check_prune_like(*result, b->like)) return STATUS_OK;
  status st = prune(x, *result);
  if (st == STATUS_OK) return st;
  rt_plan_destroy(*result);
  *result = NULL;
  return st;
}

status session_bind_rank(session *x, const ir_env *env, uint32_t rank, const rt_plan *like,
                         rt_plan **result) {
  return bind_rank(x, env, &(rank_binding){.rank = rank, .lends = true, .like = like}, result);
}

status session_bind_waits(session *x, const ir_env *env, uint32_t rank, rt_plan **result) {
  return bind_waits(x, env, &(rank_binding){.rank = rank, .lends = true}, result);
}

status session_bind_apart(session *x, const ir_env *env, uint32_t rank, rt_plan **result) {
  return bind_rank(x, env, &(rank_binding){.rank = rank, .loops = true}, result);
}

typedef struct other_call {
  session *x;
  const session_plan *like;
  uint32_t rank;
  rt_plan **result;
  arena scratch;
} other_call;

static status other_guarded(void *context) {
  other_call *c = context;
  ir_env env;
  ir_env_init(&env, (ir_func *)c->like->plan->host, &c->scratch);
  memcpy(env.symbols, c->like->symbols, c->like->n_symbols * sizeof *env.symbols);
  rank_binding b = {.rank = c->rank, .lends = true, .donated = c->like->donated};
  b.streams = c->like->streams;
  return bind_rank(c->x, &env, &b, c->result);
}

status session_bind_other(session *x, const rt_plan *plan, uint32_t rank, rt_plan **result) {
  other_call c = {.x = x, .like = x->plans, .rank = rank, .result = result};
  while (c.like && c.like->plan != plan && c.like->unrolled != plan) c.like = c.like->next;
  check(c.like);
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(other_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}

status session_bind_plain(session *x, const ir_env *env, uint32_t rank, rt_plan **result) {
  ir_env bound = *env;
  bound.func = x->variants.plain ? x->variants.list[x->variants.plain - 1].host : x->host;
  return session_bind_rank(x, &bound, rank, NULL, result);
}

/* ---- the ranks of a plan ---- */

static status donate(const session *x, session_plan *p, rt_plan *const *plans, uint32_t n) {
  if (!p->donated) return STATUS_OK;
  return session_donate_plans(plans, n, p->donated, x->memory, p->in_place);
}

/* Donates inputs in the plan of another process's rank, as that process does. */
static status donate_other(const session *x, const session_plan *p, rt_plan *const *plan) {
  bool *in_place = memory_alloc(x->memory, x->host->outputs.len * sizeof *in_place);
  if (!in_place) return STATUS_OUT_OF_MEMORY;
  status st = session_donate_plans(plan, 1, p->donated, x->memory, in_place);
  memory_free(x->memory, in_place);
  return st;
}

status session_plan_need_ranks(session *x, const ir_env *env, session_plan *p, uint32_t first,
                               uint32_t n) {
  ir_env bound = *env;
  bound.func = (ir_func *)p->own->host;
  for (uint32_t i = 0; i < n; i++) {
    rt_plan **plan = &p->ranks[first + i];
    (void)log_progress("binding ranks", i, n);
    if (*plan) continue;
    rank_binding b = {.rank = first + i, .lends = true, .donated = p->donated, .like = p->own};
    b.loops = true;
    b.apart = p->apart;
    b.streams = p->streams;
    TRY(bind_rank(x, &bound, &b, plan));
    if (p->donated && !is_here(x, first + i)) TRY(donate_other(x, p, plan));
  }
  (void)log_progress("binding ranks", n, n);
  return STATUS_OK;
}

/* Binds the plans of the ranks of this process, and makes one plan of them. */
static status need_own(session *x, const ir_env *env, session_plan *p) {
  return session_plan_need_ranks(x, env, p, x->ranks.first, x->ranks.n);
}

/* Binds the first rank of this process. The others follow when they are needed: if ranks are alike, this one
 * represents them. But which outputs are computed in donated memory is decided for all of them. */
static status bind_own(session *x, const ir_env *env, session_plan *p) {
  size_t bytes = x->ranks.world * sizeof *p->ranks;
  uint32_t first = x->ranks.first;
  p->ranks = memory_alloc(x->memory, bytes);
  if (!p->ranks) return STATUS_OUT_OF_MEMORY;
  memset(p->ranks, 0, bytes);
  rank_binding b = {.rank = first, .lends = true, .donated = p->donated, .loops = true};
  b.streams = p->streams;
  TRY(bind_rank(x, env, &b, &p->ranks[first]));
  p->own = p->ranks[first];
  if (!p->donated) return STATUS_OK;
  TRY(need_own(x, env, p));
  p->own->alike = p->own->kin = NULL;
  return donate(x, p, &p->ranks[first], x->ranks.n);
}

bool session_plan_is_typical(const session *x, const session_plan *p) {
  return p->own->alike && is_one_of_many(x);
}

status session_plan_need_joined(session *x, const ir_env *env, session_plan *p) {
  if (p->plan) return STATUS_OK;
  if (x->ranks.n == 1) {
    p->plan = p->own;
    return STATUS_OK;
  }
  TRY(need_own(x, env, p));
  return rt_plan_join(&p->ranks[x->ranks.first], x->ranks.n, x->memory, &p->plan);
}

status session_plan_need_unrolled(session *x, session_plan *p, const rt_plan **result) {
  if (p->plan->n_loops && !p->unrolled) TRY(rt_plan_unroll(p->plan, x->memory, &p->unrolled));
  *result = p->unrolled ? p->unrolled : p->plan;
  return STATUS_OK;
}

/* ---- memory ---- */
static int64_t most_bytes(const session *x, const session_plan *p) {
  int64_t most = 0;
  for (uint32_t r = 0; r < x->ranks.world; r++)
    if (p->ranks[r] && p->ranks[r]->pool_bytes > most) most = p->ranks[r]->pool_bytes;
  return most;
}

static status bind_again(session *x, ir_func *host, ir_env *bound, session_plan *p) {
  destroy_ranks(x, p);
  bound->func = host;
  TRY(bind_own(x, bound, p));
  return p->own->alike ? STATUS_OK : need_own(x, bound, p);
}

/* Replaces the plan by that of `host` if it needs more memory than the limit. Rank 0 decides for all
 * ranks. */
static status bind_smaller(session *x, ir_func *host, ir_env *bound, session_plan *p) {
  uint8_t taken = host && host != bound->func && most_bytes(x, p) > x->memory_limit;
  TRY(session_ranks_decide(&x->ranks, &taken));
  if (!taken) return STATUS_OK;
  x->choice.too_large_bytes = most_bytes(x, p);
  return bind_again(x, host, bound, p);
}

/* Binds with fewer streams until the limit is kept: iterations on different streams have buffers of their own. */
static status bind_fewer_streams(session *x, ir_env *bound, session_plan *p) {
  uint32_t streams = x->streams;
  int64_t too_large_bytes = most_bytes(x, p);
  for (;;) {
    uint8_t fewer = streams > 1 && most_bytes(x, p) > x->memory_limit;
    TRY(session_ranks_decide(&x->ranks, &fewer));
    if (!fewer) return STATUS_OK;
    p->streams = streams -= (streams + 3) / 4; /* the same on all ranks */
    p->too_large_bytes = too_large_bytes;
    TRY(bind_again(x, bound->func, bound, p));
  }
}

/* Tries the program as it is marked, then the lowering that does not overlap, then fewer streams. */
static status keep_to_limit(session *x, ir_env *bound, session_plan *p) {
  if (!x->memory_limit) return STATUS_OK;
  if (!p->own->alike) TRY(need_own(x, bound, p));
  TRY(bind_smaller(x, x->host, bound, p));
  TRY(bind_smaller(x, x->tight, bound, p));
  TRY(bind_fewer_streams(x, bound, p));
  if (most_bytes(x, p) <= x->memory_limit) return STATUS_OK;
  return fail(
      STATUS_BAD_USAGE,
      "the program needs %lld bytes for the buffers of a device, more than --memory-limit %lld",
      (long long)most_bytes(x, p), (long long)x->memory_limit);
}

/* ---- binding ---- */

/* A hash of what all processes must agree on before they bind. */
static uint64_t hash_key(const session *x, const ir_env *env, const int64_t *donated) {
  uint64_t hash = x->program;
  for (uint32_t i = 0; i < env->len; i++) hash = hash_mix(hash, (uint64_t)env->symbols[i]);
  for (uint32_t i = 0; donated && i < x->host->outputs.len; i++)
    hash = hash_mix(hash, (uint64_t)donated[i]);
  return hash;
}

static status keep_gifts(const session *x, const int64_t *donated, session_plan *p) {
  uint32_t n = x->host->outputs.len;
  if (!donated) return STATUS_OK;
  p->donated = memory_alloc(x->memory, n * sizeof *p->donated);
  p->in_place = memory_alloc(x->memory, n * sizeof *p->in_place);
  if (!p->donated || !p->in_place) return STATUS_OUT_OF_MEMORY;
  memcpy(p->donated, donated, n * sizeof *p->donated);
  return STATUS_OK;
}

static status choose_host(session *x, const ir_env *env, ir_func **host) {
  uint8_t choice;
  TRY(session_pick(x, env, &choice));
  *host = choice ? x->variants.list[choice - 1].host : x->host;
  if (x->variants.shown[choice]) log_text(x->variants.shown[choice]);
  return STATUS_OK;
}

static status make_plan(session *x, const ir_env *env, const int64_t *donated,
                        session_plan **result) {
  session_plan *p = memory_alloc(x->memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (session_plan){.n_symbols = env->len};
  ir_env bound = *env;
  status st = STATUS_OUT_OF_MEMORY;
  p->symbols = memory_alloc(x->memory, env->len * sizeof *env->symbols);
  if (!p->symbols) goto out;
  memcpy(p->symbols, env->symbols, env->len * sizeof *env->symbols);
  TRY_OUT(keep_gifts(x, donated, p));
  TRY_OUT(session_ranks_agree(&x->ranks, hash_key(x, env, donated)));
  TRY_OUT(choose_host(x, env, &bound.func));
  TRY_OUT(bind_own(x, &bound, p));
  TRY_OUT(keep_to_limit(x, &bound, p));
  x->counts.bindings++;
  if (x->dump_plan && !session_plan_is_typical(x, p))
    TRY_OUT(session_plan_need_joined(x, &bound, p));
  if (x->dump_plan) TRY_OUT(session_show_plan(x, p->plan ? p->plan : p->own));
  *result = p;
out:
  if (st != STATUS_OK) destroy_plan(x, p);
  return st;
}

status session_plan_bound(session *x, const ir_env *env, const int64_t *donated,
                          session_plan **result) {
  session_plan *p = find_plan(x, env, donated);
  if (!p) {
    session_plans_evict(x, x->plan_cache);
    TRY(make_plan(x, env, donated, &p));
    p->next = x->plans;
    x->plans = p;
  }
  *result = p;
  return STATUS_OK;
}

/* Does this rank's plan represent all ranks? If collectives have roots, a plan lacks the waits that are redundant for
 * its own rank, unless there are many ranks: then it lacks only those that are redundant for all. */
static bool represents_all(const session *x, const session_plan *p) {
  return p->own->alike && (is_one_of_many(x) || !rt_plan_has_roots(p->own));
}

status session_bind(session *x, const ir_env *env, const rt_plan *const **plans, uint32_t *n) {
  session_plan *p;
  TRY(session_plan_bound(x, env, NULL, &p));
  bool one = represents_all(x, p);
  *n = one ? 1 : x->ranks.world;
  if (!one) TRY(session_plan_need_ranks(x, env, p, 0, *n));
  *plans = (const rt_plan *const *)&p->ranks[one ? x->ranks.first : 0];
  return STATUS_OK;
}

/* Is the check of one rank for all enough? With few ranks, messages shall name every rank concerned. With roots, each
 * rank is taken for the root, and what is found may not be an error of any rank. */
static bool is_conclusive(const check_world_report *r, uint32_t n, bool has_roots) {
  if (has_roots) return r->n_found == 0;
  return r->meetings.len == 0 || n > SESSION_MOST_SHOWN;
}

status session_plan_kinds(session *x, const ir_env *env, session_plan *p, session_kinds *result) {
  session_kinds f = {.n = 0};
  uint32_t n = x->ranks.world, left = n;
  *result = f;
  if (!p->own->kin || !is_one_of_many(x)) return STATUS_OK;
  for (uint32_t r = 0; r < n && left > 0; r++) {
    bool taken = false;
    for (uint32_t k = 0; k < f.n; k++) taken = taken || !f.plans[k]->differs[r];
    if (taken) continue;
    if (f.n == SESSION_MOST_KINDS) return STATUS_OK;
    TRY(session_plan_need_ranks(x, env, p, r, 1));
    rt_plan *plan = f.plans[f.n] = p->ranks[r];
    if (!plan->kin) return STATUS_OK;
    for (uint32_t i = 0; i < n; i++) f.times[f.n] += !plan->differs[i];
    left -= f.times[f.n++];
  }
  *result = f;
  return STATUS_OK;
}

/* Checks one rank of each kind. *known: the ranks are of a few kinds, and nothing was found. */
static status check_kinds(session *x, const ir_env *env, session_plan *p,
                          const check_options *options, bool *known, check_world_report *report) {
  session_kinds f;
  *known = false;
  TRY(session_plan_kinds(x, env, p, &f));
  if (f.n == 0) return STATUS_OK;
  return check_kin((const rt_plan *const *)f.plans, f.times, f.n, x->ranks.world, options, known,
                   report);
}

status session_check(session *x, const ir_env *env, const check_options *options,
                     check_world_report *report) {
  session_plan *p;
  uint32_t n = x->ranks.world;
  TRY(session_plan_bound(x, env, NULL, &p));
  if (represents_all(x, p)) {
    TRY(check_alike(p->own, n, options, report));
    if (is_conclusive(report, n, rt_plan_has_roots(p->own))) return STATUS_OK;
    check_world_report_destroy(report);
  }
  bool known = false;
  TRY(check_kinds(x, env, p, options, &known, report));
  if (known) return STATUS_OK;
  p->apart = !p->own->alike && is_one_of_many(x);
  TRY(session_plan_need_ranks(x, env, p, 0, n));
  return check_world((const rt_plan *const *)p->ranks, n, options, report);
}

status session_host(session *x, const ir_env *env, ir_func **host) {
  for (const session_plan *p = x->plans; p; p = p->next) {
    if (!fits(p, env)) continue;
    *host = (ir_func *)p->own->host;
    return STATUS_OK;
  }
  uint8_t choice;
  TRY(session_pick(x, env, &choice));
  *host = choice ? x->variants.list[choice - 1].host : x->host;
  return STATUS_OK;
}

uint32_t session_streams(const session *x, int64_t *too_large_bytes) {
  const session_plan *p = x->plans;
  *too_large_bytes = p && p->streams ? p->too_large_bytes : 0;
  return p && p->streams ? p->streams : x->streams;
}

ir_func *session_last(const session *x, arena *scratch, ir_env *env) {
  if (!x->plans) return NULL;
  ir_func *host = (ir_func *)x->plans->own->host;
  ir_env_init(env, host, scratch);
  for (uint32_t i = 0; i < env->len && i < x->plans->n_symbols; i++)
    env->symbols[i] = x->plans->symbols[i];
  return host;
}
