#include "session/session.h"

#include <string.h>

#include "runtime/machine.h"
#include "session/plans.h"
#include "session/profile.h"

/* ---- the device ---- */

/* Refuses options that the device does not have, before it is opened. */
static status check_options_of(const rt_device_ops *ops, const session_options *o) {
  if (o->adversary >= 0 && !ops->takes_adversary)
    return fail(STATUS_BAD_USAGE,
                "device '%s' has no adversary: it computes nothing that a hostile "
                "order could spoil",
                ops->name);
  if (o->carrier != RT_CARRIER_NONE && !(ops->carriers >> o->carrier & 1))
    return fail(STATUS_BAD_USAGE,
                "device '%s' does not communicate by --comm %s; see weir list comms", ops->name,
                rt_carrier_name(o->carrier));
  if (o->deterministic && ops->measure && strcmp(ops->name, "cpu") != 0)
    return fail(STATUS_BAD_USAGE,
                "device '%s' does not know --deterministic: its libraries choose how they add up",
                ops->name);
  return STATUS_OK;
}

static rt_device_options device_options(const session_options *options,
                                        const session_place *place) {
  rt_device_options o = {.threads = options->threads, .carrier = options->carrier};
  o.first_gpu = place->is_spread ? place->local : 0;
  o.adversarial = options->adversary >= 0;
  o.seed = o.adversarial ? (uint64_t)options->adversary : 0;
  o.graph = options->graph;
  o.tf32 = options->tf32;
  o.link_host = options->link_host;
  o.machine = options->has_machine ? &options->machine : NULL;
  o.memory = options->device_memory;
  return o;
}

static void take_options(session *x, const session_options *options) {
  x->variants = options->variants;
  x->tight = options->tight;
  x->memory_limit = options->memory_limit;
  x->plan_cache = options->plan_cache;
  x->program = options->program;
  x->streams = options->streams;
  x->keep_waits = options->keep_waits;
  x->dump_plan = options->dump_plan;
  x->proof = options->proof;
  if (options->has_machine) x->machine = (session_machine){SESSION_MACHINE_GIVEN, options->machine};
}

status session_open(session *x, ir_func *host, const session_options *options,
                    const allocator *memory) {
  const rt_device_ops *ops = rt_device_find(options->device);
  if (!ops) return fail(STATUS_BAD_USAGE, "there is no device '%s'", options->device);
  TRY(check_options_of(ops, options));
  session_place place;
  TRY(session_place_find(host, options->comm, options->group, options->devices, &place));
  if (options->carrier == RT_CARRIER_CUDA_IPC && !place.is_spread)
    return fail(STATUS_BAD_USAGE,
                "start the program with mpirun or torchrun to use --comm cuda-ipc");
  rt_device_options o = device_options(options, &place);
  TRY(ops->open(&o, memory, &x->device));
  x->memory = memory;
  x->host = host;
  take_options(x, options);
  return session_ranks_open(&x->ranks, &place, options->timeout_s * 1000000000, x->device, memory);
}

void session_close(session *x) {
  session_profile_release(x->profile);
  session_plans_close(x);
  session_forget_proven(x);
  session_ranks_close(&x->ranks, x->memory);
  if (x->device) x->device->ops->close(x->device);
  *x = (session){0};
}

bool session_computes(const session *x) {
  return !x->device->ops->virtual_clock && strcmp(x->device->ops->name, "null") != 0;
}

/* ---- which variant ---- */

rt_speed session_speed(const session *x) {
  const rt_device_ops *ops = x->device->ops;
  const rt_speed *machine = session_machine_speed(&x->machine);
  if (ops->speed) return ops->speed(x->device, machine, x->ranks.n ? x->ranks.n : 1);
  return rt_machine_default();
}

static status bind_rank(void *context, const ir_env *env, uint32_t rank, const rt_plan *like,
                        rt_plan **result) {
  return session_bind_rank(context, env, rank, like, result);
}

static status bind_waits(void *context, const ir_env *env, uint32_t rank, rt_plan **result) {
  return session_bind_waits(context, env, rank, result);
}

choose_world session_world(session *x) {
  return (choose_world){.memory = x->memory,
                        .speed = session_speed(x),
                        .ranks = x->ranks.world,
                        .rank = x->ranks.first,
                        .bind = bind_rank,
                        .bind_waits = bind_waits,
                        .context = x};
}

/* Rank 0 chooses for all. */
status session_pick(session *x, const ir_env *env, uint8_t *choice) {
  choose_choice c = {0};
  *choice = 0;
  if (!x->variants.n) return STATUS_OK;
  TRY(session_machine_need(&x->machine, x->device, &x->ranks, x->memory));
  choose_world world = session_world(x);
  if (x->ranks.first == 0) TRY(choose_pick(&world, env, x->host, &x->variants, &c));
  TRY(session_ranks_decide(&x->ranks, &c.best));
  x->choice = c;
  *choice = c.best;
  return STATUS_OK;
}

status session_told_choice(session *x, const ir_env *env, choose_choice *result) {
  *result = x->choice;
  bool unused = x->choice.ns > 0 && x->choice.best && x->choice.best == x->variants.plain;
  if (!unused || x->choice.too_large_bytes) return STATUS_OK;
  choose_world world = session_world(x);
  return choose_simulate_times(&world, env, x->host, &x->variants, result);
}

status session_choose(session *x, const ir_env *env, const char **pass) {
  uint8_t choice;
  TRY(session_pick(x, env, &choice));
  *pass = choice ? x->variants.list[choice - 1].pass : NULL;
  return STATUS_OK;
}
