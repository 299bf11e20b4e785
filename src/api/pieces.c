/* Cutting inputs into the pieces that devices hold, and putting outputs together. */
#include <string.h>

#include "api/ranks.h"
#include "base/table.h"

/* The piece of one tensor on one rank. `local` is dense memory of its own; without any, the piece is
 * dense in the whole array and used there. */
typedef struct slot {
  rt_piece piece;
  ir_array local;
  bool writes_whole; /* an output: this rank's piece is the one that counts */
} slot;

struct api_pieces {
  const allocator *memory;
  const api_ranks *ranks;
  const ir_func *host;
  uint32_t n_inputs, n_outputs, n;
  slot *inputs, *outputs; /* by rank, then by tensor */
  void **in, **out;
};

static status measure(const api_pieces *p, const ir_env *env, ir_tensor t, uint32_t r, slot *s) {
  int64_t device = (int64_t)p->ranks->first + r;
  if (!rt_piece_of(p->host, env, t, device, &s->piece))
    return fail(STATUS_BAD_PROGRAM, "the part of '%s' on device %lld cannot be computed",
                ir_tensor_name(p->host, t), (long long)device);
  s->writes_whole = s->piece.present && s->piece.owner == device;
  s->local = (ir_array){.dtype = ir_tensor_at(p->host, t)->dtype, .rank = s->piece.rank};
  memcpy(s->local.extents, s->piece.extents, sizeof s->local.extents);
  ir_array_dense(&s->local);
  return STATUS_OK;
}

/* Would the piece be dense in a dense whole array? */
static bool lies_dense(const rt_piece *p, ir_dtype dtype) {
  ir_array whole = {.dtype = dtype, .rank = p->rank};
  memcpy(whole.extents, p->whole, sizeof whole.extents);
  ir_array_dense(&whole);
  ir_array view = rt_piece_view(p, &whole);
  return ir_array_is_dense(&view);
}

static status reserve(api_pieces *p, slot *s, bool output) {
  if (!s->piece.present) return STATUS_OK;
  bool direct = lies_dense(&s->piece, s->local.dtype) && (!output || s->writes_whole);
  return direct ? STATUS_OK : ir_array_alloc(&s->local, p->memory);
}

static status make_slots(api_pieces *p, const ir_env *env) {
  for (uint32_t r = 0; r < p->n; r++) {
    for (uint32_t i = 0; i < p->n_inputs; i++) {
      slot *s = &p->inputs[r * p->n_inputs + i];
      TRY(measure(p, env, p->host->inputs.data[i], r, s));
      TRY(reserve(p, s, false));
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) {
      slot *s = &p->outputs[r * p->n_outputs + i];
      TRY(measure(p, env, p->host->outputs.data[i], r, s));
      TRY(reserve(p, s, true));
    }
  }
  return STATUS_OK;
}

status api_pieces_make(const api_ranks *r, const ir_func *host, const ir_env *env,
                       const allocator *memory, api_pieces **result) {
  uint32_t n_in = host->inputs.len, n_out = host->outputs.len, n = r->n * (n_in + n_out);
  api_pieces *p = memory_alloc(memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (api_pieces){
      .memory = memory, .ranks = r, .host = host, .n_inputs = n_in, .n_outputs = n_out};
  p->n = r->n;
  status st = STATUS_OUT_OF_MEMORY;
  p->inputs = memory_alloc(memory, (n + 1) * sizeof *p->inputs);
  if (p->inputs) memset(p->inputs, 0, (n + 1) * sizeof *p->inputs);
  p->in = memory_alloc(memory, (n + 1) * sizeof *p->in);
  if (p->inputs && p->in) {
    p->outputs = p->inputs + r->n * n_in;
    p->out = p->in + r->n * n_in;
    st = make_slots(p, env);
  }
  if (st == STATUS_OK) *result = p;
  else api_pieces_destroy(p);
  return st;
}

void api_pieces_destroy(api_pieces *p) {
  if (!p) return;
  for (uint32_t i = 0; p->inputs && i < p->n * (p->n_inputs + p->n_outputs); i++)
    memory_free(p->memory, p->inputs[i].local.data);
  memory_free(p->memory, p->inputs);
  memory_free(p->memory, p->in);
  memory_free(p->memory, p);
}

void api_pieces_cut(api_pieces *p, const ir_array *inputs, const ir_array *outputs, void ***in,
                    void ***out) {
  for (uint32_t k = 0; k < p->n * p->n_inputs; k++) {
    slot *s = &p->inputs[k];
    ir_array view = rt_piece_view(&s->piece, &inputs[k % p->n_inputs]);
    p->in[k] = s->local.data ? s->local.data : view.data;
    if (s->local.data) ir_array_copy(&s->local, &view);
  }
  for (uint32_t k = 0; k < p->n * p->n_outputs; k++) {
    const slot *s = &p->outputs[k];
    ir_array view = rt_piece_view(&s->piece, &outputs[k % p->n_outputs]);
    p->out[k] = s->local.data ? s->local.data : view.data;
  }
  *in = p->in;
  *out = p->out;
}

/* ---- assembling ---- */

static bool same_bytes(const ir_array *a, const ir_array *b) {
  int64_t n, index[IR_MAX_RANK] = {0};
  if (!ir_array_count(a, &n) || n == 0) return true;
  size_t bytes = ir_dtype_size_bytes(a->dtype);
  do {
    if (memcmp(ir_array_at(a, index), ir_array_at(b, index), bytes) != 0) return false;
  } while (ir_array_next(a, index));
  return true;
}

static status disagree(const api_pieces *p, uint32_t i, int64_t a, int64_t b) {
  return fail(STATUS_CHECK_FAILED, "devices %lld and %lld disagree on output %s", (long long)a,
              (long long)b, ir_tensor_name(p->host, p->host->outputs.data[i]));
}

static status assemble_here(api_pieces *p, const ir_array *outputs) {
  for (uint32_t k = 0; k < p->n * p->n_outputs; k++) {
    const slot *s = &p->outputs[k];
    if (!s->writes_whole || !s->local.data) continue;
    ir_array view = rt_piece_view(&s->piece, &outputs[k % p->n_outputs]);
    ir_array_copy(&view, &s->local);
  }
  for (uint32_t k = 0; k < p->n * p->n_outputs; k++) {
    const slot *s = &p->outputs[k];
    uint32_t i = k % p->n_outputs;
    if (s->writes_whole || !s->local.data) continue;
    bool owner_is_here =
        s->piece.owner >= p->ranks->first && s->piece.owner < p->ranks->first + p->n;
    ir_array owned = rt_piece_view(&s->piece, &outputs[i]);
    if (owner_is_here && !same_bytes(&s->local, &owned))
      return disagree(p, i, s->piece.owner, (int64_t)p->ranks->first + k / p->n_outputs);
  }
  return STATUS_OK;
}

/* ---- from other processes ---- */

static status transfer(const api_pieces *p, bool sends, uint32_t peer, void *data, int64_t bytes) {
  rt_comm *comm = p->ranks->endpoints[0];
  uint32_t team[2] = {0, sends ? comm->rank : peer};
  rt_comm_request r = {.kind = sends ? RT_COMM_SEND : RT_COMM_RECV, .dtype = IR_U8, .team = team};
  rt_comm_ticket ticket;
  r.n_team = 2;
  r.me = sends ? 1 : 0;
  r.to = sends ? 0 : RT_COMM_NOBODY;
  r.from = sends ? RT_COMM_NOBODY : 1;
  r.count = bytes;
  r.in = sends ? data : NULL;
  r.out = sends ? NULL : data;
  r.origin = "the outputs";
  TRY(comm->ops->post(comm, &r, &ticket));
  return comm->ops->wait(comm, &ticket, p->ranks->timeout_ns);
}

static uint64_t hash_of(const ir_array *a) {
  int64_t n, index[IR_MAX_RANK] = {0};
  uint64_t hash = 0;
  if (!ir_array_count(a, &n) || n == 0) return hash;
  size_t bytes = ir_dtype_size_bytes(a->dtype);
  do hash = hash_mix(hash, hash_bytes(ir_array_at(a, index), bytes));
  while (ir_array_next(a, index));
  return hash;
}

/* What rank `from` holds of output i reaches rank 0: the data, or, of what somebody else speaks for, a
 * hash to compare. */
static status give(api_pieces *p, uint32_t i, const ir_array *output) {
  slot *s = &p->outputs[i];
  int64_t bytes;
  if (!s->piece.present) return STATUS_OK;
  ir_array dense = s->local;
  if (!dense.data) dense = rt_piece_view(&s->piece, output);
  uint64_t hash = hash_of(&dense);
  if (!s->writes_whole) return transfer(p, true, 0, &hash, sizeof hash);
  check(ir_array_size_bytes(&s->local, &bytes));
  return transfer(p, true, 0, dense.data, bytes);
}

static status receive(api_pieces *p, const ir_env *env, uint32_t i, uint32_t from,
                      const ir_array *output) {
  rt_piece piece;
  uint64_t theirs = 0;
  check(rt_piece_of(p->host, env, p->host->outputs.data[i], from, &piece));
  if (!piece.present) return STATUS_OK;
  ir_array view = rt_piece_view(&piece, output);
  if (piece.owner != from) {
    TRY(transfer(p, false, from, &theirs, sizeof theirs));
    return theirs == hash_of(&view) ? STATUS_OK : disagree(p, i, piece.owner, from);
  }
  ir_array local = view;
  int64_t bytes;
  local.data = NULL;
  check(ir_array_size_bytes(&local, &bytes));
  TRY(ir_array_alloc(&local, p->memory));
  status st = transfer(p, false, from, local.data, bytes);
  if (st == STATUS_OK) ir_array_copy(&view, &local);
  memory_free(p->memory, local.data);
  return st;
}

/* Owners come before those who hold the same: they are the first in their mesh, but not the lowest
 * rank, so two rounds are needed. */
static status receive_all(api_pieces *p, const ir_env *env, uint32_t i, const ir_array *output) {
  for (int round = 0; round < 2; round++) {
    for (uint32_t from = 1; from < p->ranks->world; from++) {
      rt_piece piece;
      check(rt_piece_of(p->host, env, p->host->outputs.data[i], from, &piece));
      if ((piece.owner == from) == (round == 0)) TRY(receive(p, env, i, from, output));
    }
  }
  return STATUS_OK;
}

status api_pieces_assemble(api_pieces *p, const ir_env *env, const ir_array *outputs) {
  TRY(assemble_here(p, outputs));
  if (p->n == p->ranks->world) return STATUS_OK;
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    if (p->ranks->first == 0) TRY(receive_all(p, env, i, &outputs[i]));
    else TRY(give(p, i, &outputs[i]));
  }
  return STATUS_OK;
}
