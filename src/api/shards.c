/* Tensors given and returned as the parts that devices hold, and what processes agree on. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/program.h"
#include "session/memory.h"
#include "session/pieces.h"

/* ---- devices ---- */
weir_status weir_program_devices(const weir_program *p, weir_devices *result) {
  if (!p || !result) return api_refuse("weir_program_devices: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_devices") != WEIR_OK) return WEIR_BAD_USAGE;
  const session_ranks *r = &p->session.ranks;
  weir_devices d = {.struct_size = result->struct_size, .count = 1, .world = 1};
  if (p->session.device)
    d.first = (int64_t)r->first, d.count = (int64_t)r->n, d.world = (int64_t)r->world;
  api_copy_sized(result, &d, result->struct_size, sizeof d);
  return WEIR_OK;
}

/* ---- the part of a device ---- */
static const char *side_text(weir_side side) { return side == WEIR_INPUT ? "input" : "output"; }

typedef struct shard_call {
  weir_program *p;
  const weir_shapes *shapes;
  weir_side side;
  size_t i;
  int64_t device;                      /* of weir_program_shard() */
  rt_piece piece;                      /* likewise: the answer */
  const weir_dl_tensor *const *shards; /* of weir_program_join() */
  const weir_dl_tensor *whole;
  bool assembles;
} shard_call;

static status tensor_of(const shard_call *c, ir_tensor *result) {
  const ir_func *host = c->p->session.host;
  uint32_t n = c->side == WEIR_INPUT ? host->inputs.len : host->outputs.len;
  if (c->i >= n) return fail(STATUS_BAD_USAGE, "the program has %u %ss", n, side_text(c->side));
  *result = c->side == WEIR_INPUT ? host->inputs.data[c->i] : host->outputs.data[c->i];
  return STATUS_OK;
}

static status piece_of(const shard_call *c, const ir_env *env, int64_t device, rt_piece *piece) {
  ir_tensor t = {0};
  TRY(tensor_of(c, &t));
  if (rt_piece_of(c->p->session.host, env, t, device, piece)) return STATUS_OK;
  return fail(STATUS_BAD_PROGRAM, "the part of '%s' on device %" PRId64 " cannot be computed%s",
              ir_tensor_name(c->p->session.host, t), device,
              api_shapes_complete(c->shapes) ? "" : ": not all of its extents are known");
}

/* Binds the host program to the shapes, which are those of its fusion. */
static status bind_host(const shard_call *c, arena *scratch, ir_env *env) {
  TRY(api_bind_like(c->p, c->shapes, scratch, env));
  env->func = c->p->session.host;
  return STATUS_OK;
}

/* The same for shapes that are not complete: binds the inputs whose extents are known. */
static status bind_known(const shard_call *c, arena *scratch, ir_env *env) {
  const ir_func *f = c->p->func;
  ir_env_init(env, (ir_func *)f, scratch);
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    int64_t extents[IR_MAX_RANK];
    uint32_t rank;
    bool known = api_shapes_known(c->shapes, i, extents, &rank);
    if (known && !ir_bind_shape(env, f->inputs.data[i], extents, rank, "the given shapes"))
      return STATUS_BAD_PROGRAM;
  }
  env->func = c->p->session.host;
  return STATUS_OK;
}

static status shard_body(arena *scratch, void *context) {
  shard_call *c = context;
  ir_env env;
  status st =
      api_shapes_complete(c->shapes) ? bind_host(c, scratch, &env) : bind_known(c, scratch, &env);
  if (st == STATUS_OK) st = piece_of(c, &env, c->device, &c->piece);
  return api_take_diags(&c->p->ir, st, scratch);
}

static weir_status call(shard_call *c, api_body body) {
  if (!c->p->session.device)
    return api_refuse("the reference evaluator has no devices: it takes whole tensors");
  if (c->side != WEIR_INPUT && c->side != WEIR_OUTPUT)
    return api_refuse("a side is WEIR_INPUT or WEIR_OUTPUT");
  return api_ask(c->p, body, c);
}

weir_status weir_program_shard(const weir_program *p, const weir_shapes *s, weir_side side,
                               size_t i, int64_t device, weir_shard *result) {
  if (!p || !s || !result) return api_refuse("weir_program_shard: an argument is NULL");
  if (api_check_size(result->struct_size, "weir_program_shard") != WEIR_OK) return WEIR_BAD_USAGE;
  shard_call c = {.p = (weir_program *)p, .shapes = s, .side = side, .i = i, .device = device};
  weir_status st = call(&c, shard_body);
  if (st != WEIR_OK) return st;
  weir_shard r = {.struct_size = result->struct_size, .present = c.piece.present};
  r.rank = c.piece.rank;
  r.owner = c.piece.owner;
  for (uint32_t d = 0; d < c.piece.rank; d++) r.begin[d] = rt_piece_begin(&c.piece, d);
  r.scattered = c.piece.present && !c.piece.is_box;
  memcpy(r.extents, c.piece.extents, sizeof r.extents);
  memcpy(r.whole, c.piece.whole, sizeof r.whole);
  api_copy_sized(result, &r, result->struct_size, sizeof r);
  return WEIR_OK;
}

/* ---- putting together ---- */
typedef struct join_state {
  const shard_call *c;
  const session_ranks *ranks;
  const char *name;
  ir_env env;
  rt_piece *pieces; /* by device of the world */
  ir_array *shards; /* by device of this process */
  uint64_t *hashes; /* by device of the world */
  ir_array whole;
  session_away *away; /* of arrays that the host does not reach */
} join_state;

static status take_shards(join_state *j) {
  const shard_call *c = j->c;
  for (uint32_t r = 0; r < j->ranks->n; r++) {
    const weir_dl_tensor *given = c->shards[r];
    int64_t device = (int64_t)j->ranks->first + r;
    if (given) TRY(api_view(given, j->name, false, &j->shards[r]));
    TRY(session_shard_check(side_text(c->side), j->name, &j->pieces[device], device,
                            &j->shards[r]));
    if (j->shards[r].space) TRY(session_away_move(j->away, &j->shards[r], 0, false));
  }
  return STATUS_OK;
}

static status take_whole(join_state *j) {
  if (!j->c->assembles || j->ranks->first > 0) return STATUS_OK;
  TRY(api_view(j->c->whole, j->name, false, &j->whole));
  for (int64_t d = 0; d < j->ranks->world; d++) {
    const rt_piece *piece = &j->pieces[d];
    bool same = j->whole.rank == piece->rank &&
                memcmp(j->whole.extents, piece->whole, piece->rank * sizeof *piece->whole) == 0;
    if (piece->present && !same)
      return fail(STATUS_BAD_USAGE, "the whole %s does not have the tensor's shape", j->name);
  }
  if (j->whole.space) TRY(session_away_move(j->away, &j->whole, 0, true));
  return STATUS_OK;
}

/* Devices that hold the same part must hold the same values; every process finds out by itself. */
static status compare(join_state *j) {
  const session_ranks *r = j->ranks;
  for (uint32_t k = 0; k < r->n; k++)
    if (j->pieces[r->first + k].present) j->hashes[r->first + k] = ir_array_hash(&j->shards[k]);
  uint64_t mine = j->hashes[r->first];
  if (r->n < r->world) TRY(session_ranks_exchange(r, &mine, j->hashes, sizeof mine));
  for (int64_t d = 0; d < r->world; d++) {
    int64_t owner = j->pieces[d].owner;
    if (j->pieces[d].present && j->hashes[d] != j->hashes[owner])
      return fail(j->c->side == WEIR_INPUT ? STATUS_BAD_INPUT : STATUS_CHECK_FAILED,
                  "devices %" PRId64 " and %" PRId64 " hold the same part of %s %s, and other "
                  "values",
                  owner, d, side_text(j->c->side), j->name);
  }
  return STATUS_OK;
}

/* Sends this rank's part to rank 0, if this rank is its owner. */
static status give(const join_state *j, const allocator *memory) {
  uint32_t me = j->ranks->first;
  ir_array dense = j->shards[0];
  int64_t bytes;
  if (!j->pieces[me].present || j->pieces[me].owner != me) return STATUS_OK;
  check(ir_array_size_bytes(&dense, &bytes));
  if (ir_array_is_dense(&dense))
    return session_ranks_transfer(j->ranks, true, 0, dense.data, bytes);
  TRY(ir_array_alloc(&dense, memory));
  ir_array_copy(&dense, &j->shards[0]);
  status st = session_ranks_transfer(j->ranks, true, 0, dense.data, bytes);
  memory_free(memory, dense.data);
  return st;
}

static status assemble(const join_state *j, const allocator *memory) {
  const session_ranks *r = j->ranks;
  if (!j->c->assembles) return STATUS_OK;
  if (r->first > 0) return give(j, memory);
  for (uint32_t d = 0; d < r->world; d++) {
    const rt_piece *piece = &j->pieces[d];
    if (!piece->present || piece->owner != d) continue;
    if (d < r->n) rt_piece_put(piece, &j->whole, &j->shards[d]);
    else TRY(session_piece_receive(r, d, memory, piece, &j->whole));
  }
  return STATUS_OK;
}

/* Must not allocate from an arena: if that fails, control does not return here to free the copies. */
static status join_arrays(join_state *j, const allocator *memory) {
  TRY(take_shards(j));
  TRY(take_whole(j));
  TRY(compare(j));
  return assemble(j, memory);
}

static status join_body(arena *scratch, void *context) {
  const shard_call *c = context;
  session_away away = {.memory = &c->p->memory};
  join_state j = {.c = c, .ranks = &c->p->session.ranks, .away = &away};
  ir_tensor t = {0};
  TRY(tensor_of(c, &t));
  TRY(bind_host(c, scratch, &j.env));
  j.name = ir_tensor_name(c->p->session.host, t);
  j.pieces = ARENA_ARRAY(scratch, j.ranks->world, rt_piece);
  j.shards = ARENA_ARRAY(scratch, j.ranks->n, ir_array);
  j.hashes = ARENA_ARRAY(scratch, j.ranks->world, uint64_t);
  for (int64_t d = 0; d < j.ranks->world; d++) TRY(piece_of(c, &j.env, d, &j.pieces[d]));
  return session_away_end(&away, join_arrays(&j, &c->p->memory));
}

weir_status weir_program_join(const weir_program *p, const weir_shapes *s, weir_side side, size_t i,
                              const weir_dl_tensor *const *shards, bool assemble_whole,
                              const weir_dl_tensor *whole) {
  if (!p || !s || !shards) return api_refuse("weir_program_join: an argument is NULL");
  shard_call c = {.p = (weir_program *)p, .shapes = s, .side = side, .i = i, .shards = shards};
  c.whole = whole;
  c.assembles = assemble_whole;
  return call(&c, join_body);
}

/* ---- agreeing ---- */
/* What each process says. All have one size, so long messages are cut off. */
typedef struct verdict {
  int32_t st;
  char text[1020];
} verdict;

static status agree(const session_ranks *r, const verdict *mine, const allocator *memory) {
  verdict *all = memory_alloc(memory, r->world * sizeof *all);
  if (!all) return STATUS_OUT_OF_MEMORY;
  status st = session_ranks_exchange(r, mine, all, sizeof *mine);
  for (uint32_t i = 0; st == STATUS_OK && i < r->world; i++) {
    all[i].text[sizeof all[i].text - 1] = 0;
    if (all[i].st == STATUS_OK) continue;
    if (i == r->first) st = fail((status)all[i].st, "%s", all[i].text);
    else st = fail((status)all[i].st, "rank %u: %s", i, all[i].text);
  }
  memory_free(memory, all);
  return st;
}

weir_status weir_program_agree(const weir_program *p, weir_status mine, const char *message) {
  if (!p) return api_refuse("weir_program_agree: the program is NULL");
  const session_ranks *r = &p->session.ranks;
  verdict v = {.st = (int32_t)mine};
  (void)snprintf(v.text, sizeof v.text, "%s", message ? message : "");
  api_begin();
  if (!p->session.device || r->n == r->world)
    return api_end(mine == WEIR_OK ? STATUS_OK : fail((status)mine, "%s", v.text));
  (void)pthread_mutex_lock((pthread_mutex_t *)&p->lock);
  status st = agree(r, &v, &p->memory);
  (void)pthread_mutex_unlock((pthread_mutex_t *)&p->lock);
  return api_end(st);
}

void weir_program_busy(const weir_program *p, bool busy) {
  if (!p) return;
  _Atomic uint32_t *count = &((weir_program *)p)->session.ranks.busy;
  if (busy) (void)atomic_fetch_add(count, 1);
  else (void)atomic_fetch_sub(count, 1);
}
