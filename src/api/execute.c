#include "api/execute.h"

#include <stdio.h>
#include <string.h>

#include "api/memory.h"
#include "api/simulate.h"
#include "base/log.h"
#include "base/table.h"
#include "cost/cost.h"
#include "runtime/machine.h"

struct api_plan {
  api_plan *next;
  int64_t *symbols;
  uint32_t n_symbols;
  rt_plan *own;    /* of the first rank of this process */
  rt_plan **ranks; /* by rank of the world, `own` among them; NULL: not bound yet */
  rt_plan *plan;   /* that a device loads: `own`, or this process's ranks as one. NULL: not yet */
  api_pieces *pieces; /* with several ranks */
  int64_t *donated;   /* by output, the plan's key; NULL: none */
  bool *in_place;     /* those that are computed where their input is */
  bool captured;      /* a CUDA graph of the caller's uses what is loaded */
  rt_loaded *loaded;  /* NULL: not yet */
};

/* ---- the device ---- */

status api_executor_open(api_executor *x, ir_func *host, const api_executor_options *options,
                         const allocator *memory) {
  const rt_device_ops *ops = rt_device_find(options->device);
  if (!ops) return fail(STATUS_BAD_USAGE, "there is no device '%s'", options->device);
  if (options->adversary >= 0 && !ops->takes_adversary)
    return fail(STATUS_BAD_USAGE,
                "device '%s' has no adversary: it computes nothing that a hostile "
                "order could spoil",
                ops->name);
  if (options->carrier != RT_CARRIER_NONE && !(ops->carriers >> options->carrier & 1))
    return fail(STATUS_BAD_USAGE,
                "device '%s' does not communicate by --comm %s; see weir list comms", ops->name,
                rt_carrier_name(options->carrier));
  if (options->deterministic && ops->measure && strcmp(ops->name, "cpu") != 0)
    return fail(STATUS_BAD_USAGE,
                "device '%s' does not know --deterministic: its libraries choose how they add up",
                ops->name);
  api_place place;
  TRY(api_place_find(host, options->comm, options->group, options->devices, &place));
  if (options->carrier == RT_CARRIER_CUDA_IPC && !place.is_spread)
    return fail(STATUS_BAD_USAGE,
                "start the program with mpirun or torchrun to use --comm cuda-ipc");
  rt_device_options o = {.threads = options->threads, .carrier = options->carrier};
  o.first_gpu = place.is_spread ? place.local : 0;
  o.adversarial = options->adversary >= 0;
  o.seed = o.adversarial ? (uint64_t)options->adversary : 0;
  o.graph = options->graph;
  o.tf32 = options->tf32;
  o.link_host = options->link_host;
  o.machine = options->has_machine ? &options->machine : NULL;
  o.memory = options->device_memory;
  TRY(ops->open(&o, memory, &x->device));
  x->memory = memory;
  x->host = host;
  x->variants = options->variants;
  x->tight = options->tight;
  x->memory_limit = options->memory_limit;
  x->plan_cache = options->plan_cache;
  x->program = options->program;
  x->streams = options->streams;
  x->keep_waits = options->keep_waits;
  x->dump_plan = options->dump.plan;
  if (options->has_machine) x->machine = (api_machine){API_MACHINE_GIVEN, options->machine};
  return api_ranks_open(&x->ranks, &place, options->timeout_s * 1000000000, x->device, memory);
}

void api_profile_release(weir_profile *p) {
  if (!p || !p->owner) return;
  p->owner->profile = NULL;
  p->owner = NULL;
  api_profile_drop_world(p);
  p->plan = NULL;
  p->path_len = 0;
}

/* Whether a rank of the world runs in this process. */
static bool is_here(const api_executor *x, uint32_t rank) {
  return rank >= x->ranks.first && rank - x->ranks.first < x->ranks.n;
}

static void destroy_ranks(const api_executor *x, api_plan *p) {
  if (p->plan != p->own) rt_plan_destroy(p->plan);
  for (uint32_t r = 0; p->ranks && r < x->ranks.world; r++) rt_plan_destroy(p->ranks[r]);
  memory_free(x->memory, p->ranks);
  p->plan = p->own = NULL;
  p->ranks = NULL;
}

static void destroy_plan(const api_executor *x, api_plan *p) {
  if (p->plan && x->profile && x->profile->plan == p->plan) api_profile_release(x->profile);
  if (p->loaded) x->device->ops->unload(p->loaded);
  api_pieces_destroy(p->pieces);
  destroy_ranks(x, p);
  memory_free(x->memory, p->symbols);
  memory_free(x->memory, p->donated);
  memory_free(x->memory, p->in_place);
  memory_free(x->memory, p);
}

void api_executor_close(api_executor *x) {
  api_profile_release(x->profile);
  while (x->plans) {
    api_plan *next = x->plans->next;
    destroy_plan(x, x->plans);
    x->plans = next;
  }
  api_ranks_close(&x->ranks, x->memory);
  if (x->device) x->device->ops->close(x->device);
  *x = (api_executor){0};
}

/* ---- plans ---- */

static bool fits(const api_plan *p, const ir_env *env) {
  return p->n_symbols == env->len &&
         memcmp(p->symbols, env->symbols, env->len * sizeof *env->symbols) == 0;
}

static bool same_gifts(const api_executor *x, const api_plan *p) {
  if (!p->donated || !x->donated) return p->donated == x->donated;
  return memcmp(p->donated, x->donated, x->host->outputs.len * sizeof *p->donated) == 0;
}

/* Moves the plan to the front; NULL if there is none. */
static api_plan *find_plan(api_executor *x, const ir_env *env) {
  for (api_plan **at = &x->plans; *at; at = &(*at)->next) {
    api_plan *p = *at;
    if (!fits(p, env) || !same_gifts(x, p)) continue;
    *at = p->next;
    p->next = x->plans;
    x->plans = p;
    return p;
  }
  return NULL;
}

/* Its own memory, and that of its buffers if the device keeps it for this plan alone. */
static int64_t bytes_of(const api_executor *x, const api_plan *p) {
  const rt_device_ops *ops = x->device->ops;
  bool joined = p->plan && p->plan != p->own;
  int64_t bytes = joined ? (int64_t)p->plan->memory.used_bytes : 0;
  if (!p->ranks && p->own) bytes += (int64_t)p->own->memory.used_bytes;
  for (uint32_t r = 0; p->ranks && r < x->ranks.world; r++)
    if (p->ranks[r]) bytes += (int64_t)p->ranks[r]->memory.used_bytes;
  return bytes + (p->plan && p->loaded && !ops->shares_pool ? p->plan->pool_bytes : 0);
}

void api_executor_kept(const api_executor *x, int64_t *plans, int64_t *bytes) {
  *plans = *bytes = 0;
  for (const api_plan *p = x->plans; p; p = p->next) {
    *plans += 1;
    *bytes += bytes_of(x, p);
  }
}

/* Keeps plans of at most so many bytes, the most recently used ones, and those that a caller's graph needs. */
static void drop_old_plans(api_executor *x, int64_t most_bytes) {
  int64_t bytes = 0;
  for (api_plan **at = &x->plans; *at;) {
    api_plan *p = *at;
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

/* Loops wait for what precedes them without asking whether they depend on it; the checker knows. The
 * proof takes about 2 us per launch; plans for which that would be half a second keep their waits. */
static status prune(const api_executor *x, rt_plan *plan) {
  enum { MOST_LAUNCHES = 250 * 1000, LONGEST = 2 * 1000 * 1000 };
  uint32_t removed;
  if (x->keep_waits || plan->n_tasks > MOST_LAUNCHES || plan->n_instrs > LONGEST) return STATUS_OK;
  return check_prune_waits(plan, x->memory, &removed);
}

typedef struct dump_call {
  const rt_plan *plan;
  uint32_t first_rank;
  arena scratch;
} dump_call;

/* "main", "stream 2"; of several ranks "rank 1 main". */
static void put_stream(const rt_plan *plan, uint32_t first_rank, uint32_t stream, strbuf *out) {
  uint32_t rank = rt_plan_rank(plan, stream), number = stream - rt_plan_first_stream(plan, rank);
  if (plan->n_ranks > 1) strbuf_printf(out, "rank %-3u ", first_rank + rank);
  if (number == 0) strbuf_puts(out, "main        ");
  else strbuf_printf(out, "stream %-3u  ", number - 1);
}

static status dump_guarded(void *context) {
  dump_call *c = context;
  strbuf out;
  strbuf_init(&out, &c->scratch);
  strbuf_printf(&out, "plan: %u instructions on %u streams, %lld bytes of buffers\n",
                c->plan->n_instrs, c->plan->n_streams, (long long)c->plan->pool_bytes);
  for (uint32_t i = 0; i < c->plan->n_instrs; i++) {
    strbuf_printf(&out, "%6u  ", i);
    put_stream(c->plan, c->first_rank, c->plan->instrs[i].stream, &out);
    rt_describe(c->plan, i, &out);
    strbuf_putc(&out, '\n');
  }
  log_text(out.data);
  return STATUS_OK;
}

static status dump_plan(const api_executor *x, const rt_plan *plan) {
  dump_call c = {.plan = plan, .first_rank = x->ranks.first};
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(dump_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}

status api_executor_bind_rank(api_executor *x, const ir_env *env, uint32_t rank, rt_plan **result) {
  rt_bind_options options = {.streams = x->streams, .keep_waits = x->keep_waits};
  options.rank = rank;
  options.world = x->ranks.world;
  TRY(rt_bind(env, &options, x->memory, result));
  status st = prune(x, *result);
  if (st == STATUS_OK) return st;
  rt_plan_destroy(*result);
  *result = NULL;
  return st;
}

typedef struct other_call {
  api_executor *x;
  const api_plan *like;
  uint32_t rank;
  rt_plan **result;
  arena scratch;
} other_call;

static status other_guarded(void *context) {
  other_call *c = context;
  ir_env env;
  ir_env_init(&env, (ir_func *)c->like->plan->host, &c->scratch);
  memcpy(env.symbols, c->like->symbols, c->like->n_symbols * sizeof *env.symbols);
  return api_executor_bind_rank(c->x, &env, c->rank, c->result);
}

status api_executor_bind_other(api_executor *x, const rt_plan *plan, uint32_t rank,
                               rt_plan **result) {
  other_call c = {.x = x, .like = x->plans, .rank = rank, .result = result};
  while (c.like && c.like->plan != plan) c.like = c.like->next;
  check(c.like);
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(other_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}

/* ---- which variant ---- */

rt_speed api_executor_speed(const api_executor *x) {
  const rt_device_ops *ops = x->device->ops;
  const rt_speed *machine = api_machine_speed(&x->machine);
  if (ops->speed) return ops->speed(x->device, machine, x->ranks.n ? x->ranks.n : 1);
  return rt_machine_default();
}

/* Do devices have parts of the program that others have not, as stages of a pipeline? */
static bool has_stages(const api_executor *x, const ir_func *host) {
  for (uint32_t i = 1; i < host->meshes.len; i++)
    if (host->meshes.data[i].n_devices < (int64_t)x->ranks.world) return true;
  return false;
}

/* Where devices do different things, the time of one says nothing: all are simulated. */
static status estimate(api_executor *x, const ir_env *env, ir_func *host, double *ns) {
  enum { MOST_SIMULATED = 64 };
  if (has_stages(x, host) && x->ranks.world <= MOST_SIMULATED)
    return api_simulate_ns(x, env, host, ns);
  rt_plan *plan;
  ir_env bound = *env;
  bound.func = host;
  TRY(api_executor_bind_rank(x, &bound, x->ranks.first, &plan));
  rt_speed speed = api_executor_speed(x);
  status st = cost_plan_estimate(plan, &speed, x->memory, ns);
  rt_plan_destroy(plan);
  return st;
}

/* A pipelined program pays for its slices with smaller steps; it is taken if the model says that it is
 * faster all the same. Of equals the last variant runs, which is the simplest. 0 is the program as it is marked. */
static status choose(api_executor *x, const ir_env *env, uint8_t *choice) {
  const api_variants *v = &x->variants;
  uint8_t best = (uint8_t)v->n;
  double best_ns = 0, streamed_ns = 0;
  *choice = 0;
  if (!v->n) return STATUS_OK;
  TRY(api_machine_need(&x->machine, x->device, &x->ranks, x->memory));
  bool asked = x->ranks.first == 0; /* its word counts */
  for (uint32_t i = asked ? v->n + 1 : 0; i-- > 0;) {
    double ns;
    TRY(estimate(x, env, i ? v->list[i - 1].host : x->host, &ns));
    if (i < v->n && (streamed_ns == 0 || ns < streamed_ns)) streamed_ns = ns;
    if (i < v->n && ns >= best_ns) continue;
    best = (uint8_t)i;
    best_ns = ns;
  }
  TRY(api_ranks_decide(&x->ranks, &best));
  bool unused = asked && best == v->n;
  x->streamed_ns = unused ? streamed_ns : 0;
  x->unstreamed_ns = unused ? best_ns : 0;
  *choice = best;
  return STATUS_OK;
}

static status choose_host(api_executor *x, const ir_env *env, ir_func **host) {
  uint8_t choice;
  TRY(choose(x, env, &choice));
  *host = choice ? x->variants.list[choice - 1].host : x->host;
  if (x->variants.shown[choice]) log_text(x->variants.shown[choice]);
  return STATUS_OK;
}

status api_executor_choose(api_executor *x, const ir_env *env, const char **pass) {
  uint8_t choice;
  TRY(choose(x, env, &choice));
  *pass = choice ? x->variants.list[choice - 1].pass : NULL;
  return STATUS_OK;
}

static status donate(const api_executor *x, api_plan *p, rt_plan *const *plans, uint32_t n) {
  if (!p->donated) return STATUS_OK;
  return api_donate_plans(plans, n, p->donated, x->memory, p->in_place);
}

/* As the process of that rank does. */
static status donate_other(const api_executor *x, const api_plan *p, rt_plan *const *plan) {
  bool *in_place = memory_alloc(x->memory, x->host->outputs.len * sizeof *in_place);
  if (!in_place) return STATUS_OUT_OF_MEMORY;
  status st = api_donate_plans(plan, 1, p->donated, x->memory, in_place);
  memory_free(x->memory, in_place);
  return st;
}

/* Ranks first … first + n - 1 of the world. */
static status need_ranks(api_executor *x, const ir_env *env, api_plan *p, uint32_t first,
                         uint32_t n) {
  ir_env bound = *env;
  bound.func = (ir_func *)p->own->host;
  for (uint32_t i = 0; i < n; i++) {
    rt_plan **plan = &p->ranks[first + i];
    (void)log_progress("binding ranks", i, n);
    if (*plan) continue;
    TRY(api_executor_bind_rank(x, &bound, first + i, plan));
    if (p->donated && !is_here(x, first + i)) TRY(donate_other(x, p, plan));
  }
  (void)log_progress("binding ranks", n, n);
  return STATUS_OK;
}

static status need_own_ranks(api_executor *x, const ir_env *env, api_plan *p) {
  return need_ranks(x, env, p, x->ranks.first, x->ranks.n);
}

/* Binds the first rank of this process. The others follow when they are needed: of ranks that are alike, this
 * one tells what there is to know; but what is donated is decided for all of them. */
static status bind_own(api_executor *x, const ir_env *env, api_plan *p) {
  size_t bytes = x->ranks.world * sizeof *p->ranks;
  uint32_t first = x->ranks.first;
  p->ranks = memory_alloc(x->memory, bytes);
  if (!p->ranks) return STATUS_OUT_OF_MEMORY;
  memset(p->ranks, 0, bytes);
  TRY(api_executor_bind_rank(x, env, first, &p->ranks[first]));
  p->own = p->ranks[first];
  if (!p->donated) return STATUS_OK;
  TRY(need_own_ranks(x, env, p));
  p->own->alike = NULL;
  return donate(x, p, &p->ranks[first], x->ranks.n);
}

/* Of more ranks than this that are alike, one is shown and simulated. */
enum { MOST_SHOWN = 64 };

static bool one_stands_for_all(const api_executor *x, const api_plan *p) {
  return p->own->alike && x->ranks.n > MOST_SHOWN;
}

/* One plan of all ranks of this process. */
static status need_plan(api_executor *x, const ir_env *env, api_plan *p) {
  if (p->plan) return STATUS_OK;
  if (x->ranks.n == 1) {
    p->plan = p->own;
    return STATUS_OK;
  }
  TRY(need_own_ranks(x, env, p));
  return rt_plan_join(&p->ranks[x->ranks.first], x->ranks.n, x->memory, &p->plan);
}

/* ---- memory ---- */
static int64_t most_bytes(const api_executor *x, const api_plan *p) {
  int64_t most = 0;
  for (uint32_t r = 0; r < x->ranks.world; r++)
    if (p->ranks[r] && p->ranks[r]->pool_bytes > most) most = p->ranks[r]->pool_bytes;
  return most;
}

/* If the plan needs more memory than there may be, another one takes its place, which overlaps less; on all
 * ranks, if rank 0 says so. */
static status keep_to_limit(api_executor *x, ir_env *bound, api_plan *p) {
  if (!x->memory_limit) return STATUS_OK;
  if (!p->own->alike) TRY(need_own_ranks(x, bound, p));
  uint8_t tight = x->tight && most_bytes(x, p) > x->memory_limit;
  TRY(api_ranks_decide(&x->ranks, &tight));
  if (tight) {
    destroy_ranks(x, p);
    bound->func = x->tight;
    TRY(bind_own(x, bound, p));
    if (!p->own->alike) TRY(need_own_ranks(x, bound, p));
  }
  if (most_bytes(x, p) <= x->memory_limit) return STATUS_OK;
  return fail(
      STATUS_BAD_USAGE,
      "the program needs %lld bytes for the buffers of a device, more than --memory-limit %lld",
      (long long)most_bytes(x, p), (long long)x->memory_limit);
}

/* What all processes must agree on before they bind. */
static uint64_t hash_key(const api_executor *x, const ir_env *env) {
  uint64_t hash = x->program;
  for (uint32_t i = 0; i < env->len; i++) hash = hash_mix(hash, (uint64_t)env->symbols[i]);
  for (uint32_t i = 0; x->donated && i < x->host->outputs.len; i++)
    hash = hash_mix(hash, (uint64_t)x->donated[i]);
  return hash;
}

static status keep_gifts(const api_executor *x, api_plan *p) {
  uint32_t n = x->host->outputs.len;
  if (!x->donated) return STATUS_OK;
  p->donated = memory_alloc(x->memory, n * sizeof *p->donated);
  p->in_place = memory_alloc(x->memory, n * sizeof *p->in_place);
  if (!p->donated || !p->in_place) return STATUS_OUT_OF_MEMORY;
  memcpy(p->donated, x->donated, n * sizeof *p->donated);
  return STATUS_OK;
}

static status make_plan(api_executor *x, const ir_env *env, api_plan **result) {
  api_plan *p = memory_alloc(x->memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (api_plan){.n_symbols = env->len};
  ir_env bound = *env;
  status st = STATUS_OUT_OF_MEMORY;
  p->symbols = memory_alloc(x->memory, env->len * sizeof *env->symbols);
  if (!p->symbols) goto out;
  memcpy(p->symbols, env->symbols, env->len * sizeof *env->symbols);
  TRY_OUT(keep_gifts(x, p));
  TRY_OUT(api_ranks_agree(&x->ranks, hash_key(x, env)));
  TRY_OUT(choose_host(x, env, &bound.func));
  TRY_OUT(bind_own(x, &bound, p));
  TRY_OUT(keep_to_limit(x, &bound, p));
  x->counts.bindings++;
  if (x->dump_plan && !one_stands_for_all(x, p)) TRY_OUT(need_plan(x, &bound, p));
  if (x->dump_plan) TRY_OUT(dump_plan(x, p->plan ? p->plan : p->own));
  *result = p;
out:
  if (st != STATUS_OK) destroy_plan(x, p);
  return st;
}

static status bound_plan(api_executor *x, const ir_env *env, api_plan **result) {
  api_plan *p = find_plan(x, env);
  if (!p) {
    drop_old_plans(x, x->plan_cache);
    TRY(make_plan(x, env, &p));
    p->next = x->plans;
    x->plans = p;
  }
  *result = p;
  return STATUS_OK;
}

status api_executor_bind(api_executor *x, const ir_env *env, const rt_plan *const **plans,
                         uint32_t *n) {
  api_plan *p;
  TRY(bound_plan(x, env, &p));
  *n = p->own->alike ? 1 : x->ranks.world;
  if (!p->own->alike) TRY(need_ranks(x, env, p, 0, *n));
  *plans = (const rt_plan *const *)&p->ranks[p->own->alike ? x->ranks.first : 0];
  return STATUS_OK;
}

status api_executor_check(api_executor *x, const ir_env *env, const check_options *options,
                          check_world_report *report) {
  api_plan *p;
  uint32_t n = x->ranks.world;
  TRY(bound_plan(x, env, &p));
  if (p->own->alike) {
    TRY(check_alike(p->own, n, options, report));
    /* Of few ranks, messages name each that does not meet another. */
    if (report->meetings.len == 0 || n > MOST_SHOWN) return STATUS_OK;
    check_world_report_destroy(report);
  }
  TRY(need_ranks(x, env, p, 0, n));
  return check_world((const rt_plan *const *)p->ranks, n, options, report);
}

/* Whether any rank posts anything: all processes answer alike. */
static bool communicates(const api_executor *x, const api_plan *p) {
  for (uint32_t r = 0; r < x->ranks.world; r++)
    if (p->ranks[r]->n_posts > 0) return true;
  return false;
}

/* A device that reads the memory of other processes has to know what they do. */
static status load_plan(api_executor *x, const ir_env *env, api_plan *p) {
  const rt_device_ops *ops = x->device->ops;
  bool is_spread = x->ranks.n == 1 && x->ranks.world > 1;
  TRY(api_ranks_need(&x->ranks, x->memory));
  if (!p->plan && ops->virtual_clock && one_stands_for_all(x, p)) p->plan = p->own;
  TRY(need_plan(x, env, p));
  if (!is_spread || !ops->load_spread) return ops->load(x->device, p->plan, &p->loaded);
  TRY(need_ranks(x, env, p, 0, x->ranks.world));
  if (!communicates(x, p)) return ops->load(x->device, p->plan, &p->loaded);
  (void)atomic_fetch_add(&x->ranks.waiting, 1); /* the device knows what it does */
  status st = ops->load_spread(x->device, p->plan, (const rt_plan *const *)p->ranks, x->ranks.world,
                               &p->loaded);
  (void)atomic_fetch_sub(&x->ranks.waiting, 1);
  return st;
}

/* All plans but the first, which is in use. Not with other processes, which load when this one does. */
static bool drop_others(api_executor *x) {
  api_plan *first = x->plans;
  if (!first->next || x->ranks.n < x->ranks.world) return false;
  x->plans = first->next;
  drop_old_plans(x, 0);
  first->next = x->plans;
  x->plans = first;
  return true;
}

static status loaded_plan(api_executor *x, const ir_env *env, api_plan **result) {
  TRY(bound_plan(x, env, result));
  api_plan *p = *result;
  if (p->loaded) return STATUS_OK;
  status st = load_plan(x, env, p);
  if (st == STATUS_OUT_OF_MEMORY && drop_others(x)) {
    status_clear();
    st = load_plan(x, env, p);
  }
  if (st != STATUS_OK) return st;
  x->counts.loads++;
  return STATUS_OK;
}

status api_executor_plan(api_executor *x, const ir_env *env, rt_loaded **result) {
  api_plan *p;
  TRY(loaded_plan(x, env, &p));
  *result = p->loaded;
  return STATUS_OK;
}

status api_executor_host(api_executor *x, const ir_env *env, ir_func **host) {
  for (const api_plan *p = x->plans; p; p = p->next) {
    if (!fits(p, env)) continue;
    *host = (ir_func *)p->own->host;
    return STATUS_OK;
  }
  uint8_t choice;
  TRY(choose(x, env, &choice));
  *host = choice ? x->variants.list[choice - 1].host : x->host;
  return STATUS_OK;
}

ir_func *api_executor_last(const api_executor *x, arena *scratch, ir_env *env) {
  if (!x->plans) return NULL;
  ir_func *host = (ir_func *)x->plans->own->host;
  ir_env_init(env, host, scratch);
  for (uint32_t i = 0; i < env->len && i < x->plans->n_symbols; i++)
    env->symbols[i] = x->plans->symbols[i];
  return host;
}

/* The last variant is the simplest. */
status api_executor_bind_plain(api_executor *x, const ir_env *env, uint32_t rank,
                               rt_plan **result) {
  ir_env bound = *env;
  bound.func = x->variants.n ? x->variants.list[x->variants.n - 1].host : x->host;
  return api_executor_bind_rank(x, &bound, rank, result);
}

/* ---- donated inputs ---- */
bool api_executor_computes(const api_executor *x) {
  return !x->device->ops->virtual_clock && strcmp(x->device->ops->name, "null") != 0;
}

/* The plan that a run would take. */
static status plan_of_run(api_executor *x, const ir_env *env, const int64_t *donated,
                          api_plan **result) {
  if (api_ranks_are_many(&x->ranks)) TRY(api_ranks_need(&x->ranks, x->memory));
  x->donated = donated;
  status st = bound_plan(x, env, result);
  x->donated = NULL;
  return st;
}

status api_executor_prepare(api_executor *x, const ir_env *env) {
  api_plan *p;
  TRY(plan_of_run(x, env, NULL, &p));
  if (p->loaded) return STATUS_OK;
  TRY(load_plan(x, env, p));
  x->counts.loads++;
  return STATUS_OK;
}

status api_executor_donate(api_executor *x, const ir_env *env, const int64_t *donated,
                           bool *in_place) {
  api_plan *p;
  bool all = !api_executor_computes(x); /* then nothing may be copied over them either */
  for (uint32_t i = 0; i < x->host->outputs.len; i++) in_place[i] = all && donated[i] >= 0;
  if (all) return STATUS_OK;
  TRY(plan_of_run(x, env, donated, &p));
  memcpy(in_place, p->in_place, x->host->outputs.len * sizeof *in_place);
  return STATUS_OK;
}

status api_executor_donation(api_executor *x, const ir_env *env, uint32_t input, uint32_t output,
                             check_alias_result *result) {
  api_plan *p;
  TRY(plan_of_run(x, env, NULL, &p));
  TRY(need_own_ranks(x, env, p));
  rt_plan *const *plans = &p->ranks[x->ranks.first];
  uint32_t n = x->ranks.n;
  *result = (check_alias_result){.safe = true};
  for (uint32_t r = 0; r < n && result->safe; r++)
    TRY(check_alias(plans[r], input, output, x->memory, result));
  return STATUS_OK;
}

/* ---- memory of devices ---- */

/* Is what every rank of this process holds of a whole array contiguous there? */
static bool pieces_are_dense(const api_executor *x, const ir_env *env, ir_tensor t,
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

/* Which of the whole arrays it is; UINT32_MAX: a shard. */
static uint32_t index_in(const ir_array *list, uint32_t n, const ir_array *a) {
  return a >= list && a < list + n ? (uint32_t)(a - list) : UINT32_MAX;
}

bool api_executor_takes(const api_executor *x, const ir_env *env, const api_arrays *inputs,
                        const api_arrays *outputs, const ir_array *a, uint32_t *space) {
  const ir_func *h = x->host;
  *space = 0;
  if (!x->device->ops->memory) return false;
  uint32_t in = index_in(inputs->whole, h->inputs.len, a);
  uint32_t out = index_in(outputs->whole, h->outputs.len, a);
  bool is_whole = in != UINT32_MAX || out != UINT32_MAX;
  if (is_whole && api_ranks_are_many(&x->ranks)) {
    /* processes send each other their parts of a whole output */
    if (out != UINT32_MAX && x->ranks.n < x->ranks.world) return false;
    return pieces_are_dense(x, env, in != UINT32_MAX ? h->inputs.data[in] : h->outputs.data[out],
                            a);
  }
  *space = a->space;
  return ir_array_is_dense(a);
}

/* ---- running ---- */

typedef struct staging {
  const allocator *memory;
  void *inputs[64], *outputs[64]; /* addresses for the device */
  void **in, **out;               /* the same, or longer lists of their own */
  ir_array *copies;               /* dense copies: inputs, then outputs; data NULL where none */
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
        TRY(api_memory_copy(&outputs[i], &inputs[k]));
    }
  }
  return STATUS_OK;
}

/* A profile may outlive the program, so its memory is its own. */
static status reserve_spans(weir_profile *p, uint32_t n) {
  if (p->room >= n) return STATUS_OK;
  memory_free(&memory_default, p->spans);
  p->spans = memory_alloc(&memory_default, n * sizeof *p->spans);
  p->room = p->spans ? n : 0;
  return p->spans ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

typedef struct profile_call {
  api_executor *x;
  weir_profile *profile;
  rt_loaded *loaded;
  int64_t wall_ns, host_ns;
  arena scratch;
} profile_call;

static status profile_guarded(void *context) {
  profile_call *c = context;
  weir_profile *p = c->profile;
  p->plan = c->loaded->plan;
  p->owner = c->x;
  c->x->profile = p;
  p->device = c->loaded->ops->name;
  p->first_rank = c->x->ranks.first;
  p->n_spans = p->plan->n_tasks + p->plan->n_posts;
  rt_stats_make(p->plan, p->spans, p->n_spans, c->wall_ns, c->host_ns, &c->scratch, &p->stats);
  return STATUS_OK;
}

/* Of a virtual clock: the whole time, and the launches that it is made of. */
static status keep_path(weir_profile *p, const rt_loaded *loaded, int64_t *wall_ns) {
  rt_outcome o = loaded->ops->outcome(loaded);
  *wall_ns = o.total_ns;
  memory_free(&memory_default, p->path);
  p->path = memory_alloc(&memory_default, ((size_t)o.path_len + 1) * sizeof *p->path);
  p->path_len = p->path ? o.path_len : 0;
  if (!p->path) return STATUS_OUT_OF_MEMORY;
  if (o.path_len) memcpy(p->path, o.path, o.path_len * sizeof *p->path);
  return STATUS_OK;
}

static status run_profiled(api_executor *x, rt_loaded *loaded, staging *s, const api_run *run) {
  weir_profile *profile = run->profile;
  api_profile_release(profile);
  api_profile_release(x->profile);
  TRY(reserve_spans(profile, loaded->plan->n_tasks + loaded->plan->n_posts));
  profile_call c = {.x = x, .profile = profile, .loaded = loaded};
  int64_t start_ns = rt_clock_ns();
  TRY(rt_run_controlled(loaded, s->in, s->out, profile->spans, &c.host_ns, run->control));
  c.wall_ns = rt_clock_ns() - start_ns;
  profile->origin_ns = x->device->ops->virtual_clock ? 0 : start_ns;
  if (loaded->ops->outcome) TRY(keep_path(profile, loaded, &c.wall_ns));
  arena_init(&c.scratch, x->memory);
  status st = memory_guard(profile_guarded, &c);
  arena_destroy(&c.scratch);
  return st;
}

/* Whether the device alone can order the run by the caller's streams: nothing is left to the host. */
static bool is_ordered(const api_executor *x, const api_run *run) {
  const api_arrays *sides[] = {run->inputs, run->outputs};
  const uint32_t n[] = {x->host->inputs.len, x->host->outputs.len};
  if (!x->device->ops->run_on || run->profile || run->copies) return false;
  for (int side = 0; side < 2; side++)
    for (uint32_t i = 0; i < n[side]; i++) {
      const ir_array *a = &sides[side]->whole[i];
      bool sharded = api_is_sharded(sides[side], i);
      if (!sharded && (api_ranks_are_many(&x->ranks) ? !a->space : !ir_array_is_dense(a)))
        return false;
      for (uint32_t r = 0; sharded && r < x->ranks.n; r++)
        if (!ir_array_is_dense(&sides[side]->shards[r * n[side] + i])) return false;
    }
  for (uint32_t i = 0; i < n[1]; i++) /* outputs that are inputs are copied afterwards */
    for (uint32_t k = 0; k < n[0]; k++)
      if (IR_SAME(x->host->outputs.data[i], x->host->inputs.data[k])) return false;
  return true;
}

/* Before the host touches anything: what it does itself comes after the streams by waiting for them. */
static status wait_for_streams(const api_executor *x, const api_run *run) {
  if (run->n_streams == 0 || is_ordered(x, run)) return STATUS_OK;
  for (uint32_t i = 0; i < run->n_streams; i++) TRY(api_memory()->wait(&run->streams[i]));
  return STATUS_OK;
}

/* Processes that draw with different seeds would hold different values of the same tensor. */
static status set_seed(api_executor *x, const api_plan *p, uint64_t seed) {
  if (!x->has_seed || x->seed != seed) TRY(api_ranks_agree(&x->ranks, hash_mix(x->program, seed)));
  x->has_seed = true;
  x->seed = seed;
  *p->plan->seed = seed;
  return STATUS_OK;
}

static status run_plan(api_executor *x, api_plan *p, staging *s, const api_run *run) {
  bool captured = false;
  TRY(set_seed(x, p, run->seed));
  x->counts.runs++;
  if (run->profile) return run_profiled(x, p->loaded, s, run);
  if (run->n_streams == 0 || !is_ordered(x, run))
    return rt_run_controlled(p->loaded, s->in, s->out, NULL, NULL, run->control);
  status st =
      p->loaded->ops->run_on(p->loaded, s->in, s->out, run->streams, run->n_streams, &captured);
  p->captured = p->captured || captured;
  return st;
}

static status run_ranks(api_executor *x, const ir_env *env, const api_run *run) {
  api_plan *p;
  staging s = {.memory = x->memory};
  TRY(api_ranks_need(&x->ranks, x->memory));
  x->donated = run->donated;
  status st = loaded_plan(x, env, &p);
  x->donated = NULL;
  if (st != STATUS_OK) return st;
  if (!api_executor_computes(x)) return run_plan(x, p, &s, run);
  ir_env bound = *env;
  bound.func = x->host;
  if (!p->pieces) TRY(api_pieces_make(&x->ranks, x->host, &bound, x->memory, &p->pieces));
  TRY(api_pieces_cut(p->pieces, run->inputs, run->outputs, &s.in, &s.out));
  (void)atomic_fetch_add(&x->ranks.waiting, 1); /* the device knows what it does */
  st = run_plan(x, p, &s, run);
  (void)atomic_fetch_sub(&x->ranks.waiting, 1);
  if (st == STATUS_OK) return api_pieces_assemble(p->pieces, &bound, run->outputs);
  api_ranks_renew(&x->ranks);
  return st;
}

status api_executor_run(api_executor *x, const ir_env *env, const api_run *run) {
  api_plan *p;
  TRY(wait_for_streams(x, run));
  if (api_ranks_are_many(&x->ranks)) return run_ranks(x, env, run);
  x->donated = run->donated;
  status st = loaded_plan(x, env, &p);
  x->donated = NULL;
  if (st != STATUS_OK) return st;
  if (!api_executor_computes(x)) return run_plan(x, p, &(staging){0}, run);
  staging s = {.memory = x->memory, .n_inputs = x->host->inputs.len};
  s.n_outputs = x->host->outputs.len;
  const ir_array *inputs = run->inputs->whole, *outputs = run->outputs->whole;
  st = begin_staging(&s, inputs, outputs);
  if (st == STATUS_OK) st = run_plan(x, p, &s, run);
  end_staging(&s, outputs, st == STATUS_OK);
  if (st == STATUS_OK) st = copy_returned_inputs(x->host, inputs, outputs);
  return st;
}
