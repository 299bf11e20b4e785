#include "session/pieces.h"

#include <inttypes.h>
#include <string.h>

#include "session/memory.h"

/* The piece of one tensor on one rank. `local` is dense memory of its own, allocated when it is needed
 * for the first time. `value` is where the piece is in this run: in `local`, in the whole array, or in
 * the caller's shard. */
typedef struct slot {
  rt_piece piece;
  ir_array local, value;
  bool writes_whole; /* an output: this rank's piece is the one that counts */
} slot;

struct session_pieces {
  const allocator *memory;
  const session_ranks *ranks;
  const ir_func *host;
  uint32_t n_inputs, n_outputs, n;
  slot *inputs, *outputs; /* by rank, then by tensor */
  void **in, **out;
};

static status measure(const session_pieces *p, const ir_env *env, ir_tensor t, uint32_t r,
                      slot *s) {
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

static status make_slots(session_pieces *p, const ir_env *env) {
  for (uint32_t r = 0; r < p->n; r++) {
    for (uint32_t i = 0; i < p->n_inputs; i++) {
      slot *s = &p->inputs[r * p->n_inputs + i];
      TRY(measure(p, env, p->host->inputs.data[i], r, s));
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) {
      slot *s = &p->outputs[r * p->n_outputs + i];
      TRY(measure(p, env, p->host->outputs.data[i], r, s));
    }
  }
  return STATUS_OK;
}

status session_pieces_make(const session_ranks *r, const ir_func *host, const ir_env *env,
                           const allocator *memory, session_pieces **result) {
  uint32_t n_in = host->inputs.len, n_out = host->outputs.len, n = r->n * (n_in + n_out);
  session_pieces *p = memory_alloc(memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  *p = (session_pieces){
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
  else session_pieces_destroy(p);
  return st;
}

void session_pieces_destroy(session_pieces *p) {
  if (!p) return;
  for (uint32_t i = 0; p->inputs && i < p->n * (p->n_inputs + p->n_outputs); i++)
    memory_free(p->memory, p->inputs[i].local.data);
  memory_free(p->memory, p->inputs);
  memory_free(p->memory, p->in);
  memory_free(p->memory, p);
}

/* The k-th slot's array as the caller gave it: its shard, or the piece of the whole one. */
static ir_array given(const slot *s, const session_arrays *a, uint32_t k, uint32_t n) {
  return session_is_sharded(a, k % n) ? a->shards[k] : rt_piece_view(&s->piece, &a->whole[k % n]);
}

/* Can the slot's piece be used in the caller's array, as a view of it? */
static bool has_view(const slot *s, const session_arrays *a, uint32_t k, uint32_t n) {
  return session_is_sharded(a, k % n) || s->piece.is_box;
}

static status use_local(const session_pieces *p, slot *s) {
  if (!s->local.data) TRY(ir_array_alloc(&s->local, p->memory));
  s->value = s->local;
  return STATUS_OK;
}

static status take_input(session_pieces *p, const session_arrays *inputs, uint32_t k) {
  slot *s = &p->inputs[k];
  p->in[k] = NULL;
  if (!s->piece.present) return STATUS_OK;
  bool viewed = has_view(s, inputs, k, p->n_inputs);
  if (viewed) s->value = given(s, inputs, k, p->n_inputs);
  if (!viewed) {
    TRY(use_local(p, s));
    rt_piece_take(&s->piece, &inputs->whole[k % p->n_inputs], &s->value);
  } else if (!ir_array_is_dense(&s->value)) {
    ir_array from = s->value;
    TRY(use_local(p, s));
    ir_array_copy(&s->value, &from);
  }
  p->in[k] = s->value.data;
  return STATUS_OK;
}

/* Is the k-th slot written to the caller's array? If devices of one process hold the same part of a whole array, only
 * one of them is. Each process has an array of its own. */
static bool is_written(const session_pieces *p, const session_arrays *outputs, uint32_t k) {
  return p->outputs[k].writes_whole || session_is_sharded(outputs, k % p->n_outputs) ||
         p->n < p->ranks->world;
}

static status take_output(session_pieces *p, const session_arrays *outputs, uint32_t k) {
  slot *s = &p->outputs[k];
  p->out[k] = NULL;
  if (!s->piece.present) return STATUS_OK;
  bool viewed = has_view(s, outputs, k, p->n_outputs);
  if (viewed) s->value = given(s, outputs, k, p->n_outputs);
  bool own = is_written(p, outputs, k);
  if (!own && s->value.space) { /* the host cannot read this memory to compare the copies */
    s->value.data = NULL;
    return STATUS_OK;
  }
  if (!viewed || !own || !ir_array_is_dense(&s->value)) TRY(use_local(p, s));
  p->out[k] = s->value.data;
  return STATUS_OK;
}

static void add_shape(rt_comm_line *l, const int64_t *extents, uint32_t rank) {
  rt_comm_line_add(l, "[");
  for (uint32_t i = 0; i < rank; i++) rt_comm_line_add(l, "%s%" PRId64, i ? ", " : "", extents[i]);
  rt_comm_line_add(l, "]");
}

static status wrong_shape(const char *side, const char *name, const rt_piece *piece, int64_t device,
                          const ir_array *shard) {
  char text[512];
  rt_comm_line l = rt_comm_line_of(text, sizeof text);
  rt_comm_line_add(&l, "the shard of %s %s on device %" PRId64 " has shape ", side, name, device);
  add_shape(&l, shard->extents, shard->rank);
  rt_comm_line_add(&l, ", but needs ");
  add_shape(&l, piece->extents, piece->rank);
  return fail(STATUS_BAD_USAGE, "%s", text);
}

status session_shard_check(const char *side, const char *name, const rt_piece *piece,
                           int64_t device, const ir_array *shard) {
  bool is_given = shard->dtype != 0;
  if (!is_given && piece->present)
    return fail(STATUS_BAD_USAGE, "device %" PRId64 " holds a part of %s %s, but no shard is given",
                device, side, name);
  if (is_given && !piece->present)
    return fail(STATUS_BAD_USAGE,
                "device %" PRId64 " holds nothing of %s %s, but a shard is "
                "given",
                device, side, name);
  if (!is_given) return STATUS_OK;
  bool same = shard->rank == piece->rank &&
              memcmp(shard->extents, piece->extents, piece->rank * sizeof *piece->extents) == 0;
  return same ? STATUS_OK : wrong_shape(side, name, piece, device, shard);
}

/* Shards of a caller must be what the placement says. */
static status check_shards(const session_pieces *p, const char *side, const session_arrays *a,
                           const slot *slots, const ir_tensor *tensors, uint32_t n) {
  for (uint32_t k = 0; k < p->n * n; k++)
    if (session_is_sharded(a, k % n))
      TRY(session_shard_check(side, ir_tensor_name(p->host, tensors[k % n]), &slots[k].piece,
                              (int64_t)p->ranks->first + k / n, &a->shards[k]));
  return STATUS_OK;
}

status session_pieces_cut(session_pieces *p, const session_arrays *inputs,
                          const session_arrays *outputs, void ***in, void ***out) {
  TRY(check_shards(p, "input", inputs, p->inputs, p->host->inputs.data, p->n_inputs));
  TRY(check_shards(p, "output", outputs, p->outputs, p->host->outputs.data, p->n_outputs));
  for (uint32_t k = 0; k < p->n * p->n_inputs; k++) TRY(take_input(p, inputs, k));
  for (uint32_t k = 0; k < p->n * p->n_outputs; k++) TRY(take_output(p, outputs, k));
  *in = p->in;
  *out = p->out;
  return STATUS_OK;
}

/* ---- assembling ---- */

static status disagree(const session_pieces *p, uint32_t i, int64_t a, int64_t b) {
  return fail(STATUS_CHECK_FAILED, "devices %lld and %lld disagree on output %s", (long long)a,
              (long long)b, ir_tensor_name(p->host, p->host->outputs.data[i]));
}

/* An output that is an input is not computed but copied: each device has its piece. */
static status copy_returned(session_pieces *p, uint32_t k) {
  uint32_t r = k / p->n_outputs;
  for (uint32_t i = 0; i < p->n_inputs; i++)
    if (IR_SAME(p->host->outputs.data[k % p->n_outputs], p->host->inputs.data[i]))
      TRY(session_memory_copy(&p->outputs[k].value, &p->inputs[r * p->n_inputs + i].value));
  return STATUS_OK;
}

static status deliver(session_pieces *p, const session_arrays *outputs, uint32_t k) {
  const slot *s = &p->outputs[k];
  if (!p->out[k]) return STATUS_OK;
  TRY(copy_returned(p, k));
  bool own = is_written(p, outputs, k);
  if (!has_view(s, outputs, k, p->n_outputs)) {
    if (own) rt_piece_put(&s->piece, &outputs->whole[k % p->n_outputs], &s->value);
    return STATUS_OK;
  }
  ir_array to = given(s, outputs, k, p->n_outputs);
  if (own && to.data != s->value.data) ir_array_copy(&to, &s->value);
  return STATUS_OK;
}

static status assemble_here(session_pieces *p, const session_arrays *outputs) {
  for (uint32_t k = 0; k < p->n * p->n_outputs; k++) TRY(deliver(p, outputs, k));
  for (uint32_t k = 0; k < p->n * p->n_outputs; k++) {
    const slot *s = &p->outputs[k];
    uint32_t i = k % p->n_outputs;
    if (s->writes_whole || !p->out[k] || session_is_sharded(outputs, i)) continue;
    bool owner_is_here =
        s->piece.owner >= p->ranks->first && s->piece.owner < p->ranks->first + p->n;
    if (owner_is_here && !rt_piece_same(&s->piece, &outputs->whole[i], &s->value))
      return disagree(p, i, s->piece.owner, (int64_t)p->ranks->first + k / p->n_outputs);
  }
  return STATUS_OK;
}

/* ---- from other processes ---- */

/* Sends this rank's piece of output i to rank 0: the data, or, if another rank represents the piece, a hash to
 * compare. */
static status give(session_pieces *p, uint32_t i) {
  slot *s = &p->outputs[i];
  int64_t bytes;
  if (!s->piece.present) return STATUS_OK;
  if (!s->writes_whole) {
    uint64_t hash = ir_array_hash(&s->value);
    return session_ranks_transfer(p->ranks, true, 0, &hash, sizeof hash);
  }
  check(ir_array_size_bytes(&s->value, &bytes));
  return session_ranks_transfer(p->ranks, true, 0, s->value.data, bytes);
}

static ir_array dense_like(const rt_piece *piece, ir_dtype dtype) {
  ir_array local = {.dtype = dtype, .rank = piece->rank};
  memcpy(local.extents, piece->extents, sizeof local.extents);
  ir_array_dense(&local);
  return local;
}

status session_piece_receive(const session_ranks *r, uint32_t from, const allocator *memory,
                             const rt_piece *piece, const ir_array *whole) {
  if (piece->is_box) {
    ir_array view = rt_piece_view(piece, whole);
    return session_ranks_receive(r, from, memory, &view);
  }
  ir_array local = dense_like(piece, whole->dtype);
  TRY(ir_array_alloc(&local, memory));
  status st = session_ranks_receive(r, from, memory, &local);
  if (st == STATUS_OK) rt_piece_put(piece, whole, &local);
  memory_free(memory, local.data);
  return st;
}

static status receive(session_pieces *p, const ir_env *env, uint32_t i, uint32_t from,
                      const ir_array *output) {
  rt_piece piece;
  uint64_t theirs = 0;
  check(rt_piece_of(p->host, env, p->host->outputs.data[i], from, &piece));
  if (!piece.present) return STATUS_OK;
  if (piece.owner == from) return session_piece_receive(p->ranks, from, p->memory, &piece, output);
  ir_array local = dense_like(&piece, output->dtype);
  TRY(ir_array_alloc(&local, p->memory));
  rt_piece_take(&piece, output, &local);
  status st = session_ranks_transfer(p->ranks, false, from, &theirs, sizeof theirs);
  if (st == STATUS_OK && theirs != ir_array_hash(&local)) st = disagree(p, i, piece.owner, from);
  memory_free(p->memory, local.data);
  return st;
}

/* Receives from owners first, then from those with copies. An owner is the first device in its mesh but
 * need not have the lowest rank, hence two rounds. */
static status receive_all(session_pieces *p, const ir_env *env, uint32_t i,
                          const ir_array *output) {
  for (int round = 0; round < 2; round++) {
    for (uint32_t from = 1; from < p->ranks->world; from++) {
      rt_piece piece;
      check(rt_piece_of(p->host, env, p->host->outputs.data[i], from, &piece));
      if ((piece.owner == from) == (round == 0)) TRY(receive(p, env, i, from, output));
    }
  }
  return STATUS_OK;
}

status session_pieces_assemble(session_pieces *p, const ir_env *env,
                               const session_arrays *outputs) {
  TRY(assemble_here(p, outputs));
  if (p->n == p->ranks->world) return STATUS_OK;
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    if (session_is_sharded(outputs, i)) continue;
    if (p->ranks->first == 0) TRY(receive_all(p, env, i, &outputs->whole[i]));
    else TRY(give(p, i));
  }
  return STATUS_OK;
}
